"""How well messages were grouped and parsed: the four measures of the log parsing literature."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class ParsingScores:
    """Four measures, each from 0 to 1.

    Attributes
    ----------
    ga : float
        Grouping accuracy: messages whose found group holds exactly the messages of
        their true group. Weighted by messages, so large groups decide it.
    fga : float
        F1 of grouping: the harmonic mean of the shares of found and of true groups that
        are exactly right. Weighted by groups.
    pa : float
        Parsing accuracy: messages whose template has exactly the true text.
    fta : float
        F1 of templates: as ``fga``, where the text of the template must be right, too.
    """

    ga: float
    fga: float
    pa: float
    fta: float


def parsing_scores(truth: pl.Series, found: pl.Series) -> ParsingScores:
    """Compare the templates of messages with the true ones.

    Parameters
    ----------
    truth, found : polars.Series, length n_messages
        The template of each message: its text, or for ``ga`` and ``fga`` alone any name.

    Returns
    -------
    ParsingScores
        All 1.0 for no messages.

    References
    ----------
    .. [1] Khan, Z. A. et al. (2022). Guidelines for assessing the accuracy of log message
       template identification techniques. ICSE 2022.
    .. [2] Jiang, Z. et al. (2024). A large-scale evaluation for log parsing techniques: how
       far are we? ISSTA 2024.

    Examples
    --------
    >>> truth, found = pl.Series(["a", "a", "b", "b"]), pl.Series(["a", "a", "b", "c"])
    >>> parsing_scores(truth, found)
    ParsingScores(ga=0.5, fga=0.4, pa=0.75, fta=0.4)
    """
    if not truth.len():
        return ParsingScores(1.0, 1.0, 1.0, 1.0)
    pairs = pl.DataFrame({"truth": truth.alias("truth"), "found": found.alias("found")})
    n_true, n_found = truth.n_unique(), found.n_unique()
    exact = (
        pairs.group_by("truth", "found")
        .agg(n=pl.len())
        .with_columns(n_groups=pl.len().over("truth"), n_others=pl.len().over("found"))
        .filter((pl.col("n_groups") == 1) & (pl.col("n_others") == 1))
    )
    right = exact.filter(pl.col("truth") == pl.col("found"))
    return ParsingScores(
        ga=float(exact["n"].sum()) / truth.len(),
        fga=2 * exact.height / (n_true + n_found),
        pa=float((pairs["truth"] == pairs["found"]).sum()) / truth.len(),
        fta=2 * right.height / (n_true + n_found),
    )

"""How sure a share is: Wilson's interval, for numbers and for columns."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import polars as pl

from stateanalytics.errors import ArgumentError


def wilson(n_hits: int, n: int, *, confidence: float = 0.95) -> tuple[float, float] | None:
    """Interval for a share of ``n_hits`` in ``n``; None where there is nothing to share.

    Parameters
    ----------
    n_hits, n : int
        How many had the property, of how many; 0 <= n_hits <= n.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    tuple of float, or None
        Lower and upper end, in [0, 1]; None where ``n`` is 0.

    Raises
    ------
    ArgumentError
        If the counts are negative, n_hits exceeds n, or confidence is not in (0, 1).

    Notes
    -----
    The score interval of [1]_. It stays inside [0, 1] and keeps a width at 0 and at n,
    where the textbook interval collapses. It takes the n to be independent: the many
    sessions of one fan-out are not, and make it too narrow.

    References
    ----------
    .. [1] Wilson, E. B. (1927). Probable inference, the law of succession, and
       statistical inference. JASA 22, 209-212.

    Examples
    --------
    >>> [round(end, 6) for end in wilson(8, 10)]
    [0.490162, 0.943318]
    >>> wilson(0, 0) is None
    True
    """
    z = _z(confidence)
    if not 0 <= n_hits <= n:
        raise ArgumentError(
            f"wilson needs 0 <= n_hits <= n; found n_hits={n_hits} and n={n}.",
            "pass the hits first, the total second: wilson(8, 10)",
        )
    if n == 0:
        return None
    low, high = _ends(n_hits, n, z)
    # At none and at all the end is the share itself; rounding must not put it beside.
    return (max(0.0, min(float(low), n_hits / n)), min(1.0, max(float(high), n_hits / n)))


def wilson_columns(
    hits: str, total: str, *, confidence: float = 0.95, prefix: str = "share"
) -> list[pl.Expr]:
    """The share, and the two ends of its interval, as expressions over two columns.

    Parameters
    ----------
    hits, total : str
        Columns with the counts.
    confidence : float
        Between 0 and 1.
    prefix : str
        Begins the three names: ``share``, ``share_low``, ``share_high``.

    Returns
    -------
    list of polars.Expr
        Null where the total is 0 or null.

    Examples
    --------
    >>> week = pl.DataFrame({"failed": [0, 8], "ended": [0, 10]})
    >>> week.select(wilson_columns("failed", "ended")).row(1)[0]
    0.8
    """
    n = pl.when(pl.col(total) > 0).then(pl.col(total).cast(pl.Float64))
    n_hits = pl.col(hits).cast(pl.Float64)
    low, high = _ends(n_hits, n, _z(confidence))
    share = n_hits / n
    return [
        share.alias(prefix),
        pl.min_horizontal(low, share).clip(lower_bound=0.0).alias(f"{prefix}_low"),
        pl.max_horizontal(high, share).clip(upper_bound=1.0).alias(f"{prefix}_high"),
    ]


def _z(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ArgumentError(
            f"confidence is a share between 0 and 1; found {confidence!r}.", "confidence=0.95"
        )
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _ends(n_hits: Any, n: Any, z: float) -> tuple[Any, Any]:
    """The two ends, for numbers and for expressions alike."""
    centre = (n_hits + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * (n_hits * (n - n_hits) / n + z * z / 4) ** 0.5
    return centre - half, centre + half

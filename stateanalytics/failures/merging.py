"""Patterns that differ in one word are one template, where that word evidently varies."""

from __future__ import annotations

import polars as pl

from stateanalytics.failures import masks
from stateanalytics.failures.masks import CLOSE, OPEN, PARTING

#: A word that takes this many values between the same other words varies.
N_VALUES = 5
#: What remains of a template must still say something.
N_CONSTANT = 2
#: Pairs of placeholders are looked at in patterns with at most so many.
N_WORDS = 12


def merge(patterns: pl.DataFrame) -> pl.DataFrame:
    """Merge patterns over words that vary, round by round, until nothing changes.

    A round looks at every pattern with one of its words left out. Where that shortened
    pattern exists already, with a placeholder there, the pattern joins it; where at least
    `N_VALUES` patterns share it, the word varies and all of them become it. All decisions
    of a round are taken on the set as it was, so order never matters.

    Parameters
    ----------
    patterns : polars.DataFrame, shape (n_patterns, 1)
        Distinct ``pattern``, as `masking.mask` gives them.

    Returns
    -------
    polars.DataFrame, shape (n_patterns, 2)
        ``pattern`` and ``merged``, the pattern it became.
    """
    live = _pieces(patterns)
    while (after := _next(live)) is not None:
        live = after
    return (
        live.group_by("number", maintain_order=True)
        .agg(merged=pl.col("piece").str.join(""))
        .join(patterns.with_row_index("number"), on="number")
        .select("pattern", "merged")
    )


def _next(live: pl.DataFrame) -> pl.DataFrame | None:
    after = _one_round(live)
    return _two_words(live) if after is None else after


def _pieces(patterns: pl.DataFrame) -> pl.DataFrame:
    """One row per word, and per what parts words; which words may vary."""
    pieces = (
        patterns.with_row_index("number")
        .select("number", piece=pl.col("pattern").str.extract_all(rf"[{PARTING}]+|[^{PARTING}]+"))
        .explode("piece", empty_as_null=True)
        .with_columns(pl.col("piece").fill_null(""), column=pl.int_range(pl.len()).over("number"))
    )
    piece = pl.col("piece")
    is_word = ~piece.str.contains(rf"^[{PARTING}]*$") & ~piece.str.contains(OPEN, literal=True)
    models = next(pattern for name, pattern in masks.KEPT if name == "model")
    may_vary = (
        is_word
        & (~piece.str.contains("[0-9]") | piece.str.contains(f"^{masks.NAME_WITH_NUMBER}$"))
        & ~piece.str.to_lowercase().is_in(sorted(masks.OPPOSITES))
        & ~piece.str.contains(masks.NAMES)
        & ~piece.str.contains(f"^{models}$")
    )
    words = (
        pieces.select("piece")
        .unique()
        .with_columns(is_constant=is_word & piece.str.contains("[A-Za-z]"), may_vary=may_vary)
    )
    return pieces.join(words, on="piece", how="left", maintain_order="left")


def _hashed(live: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The pieces with their hashes, and the sum of them for each pattern.

    A pattern is the sum of its pieces' hashes, so leaving one out is a subtraction.
    """
    place, wildcard = pl.col("column").hash(7), pl.lit(OPEN + CLOSE).hash(11)
    is_wild = pl.col("piece").str.starts_with(OPEN) & pl.col("piece").str.ends_with(CLOSE)
    hashed = live.with_columns(
        part=pl.when(is_wild).then(wildcard).otherwise(pl.col("piece").hash(11)) ^ place,
        blank=wildcard ^ place,
        is_wild=is_wild,
    )
    whole = hashed.group_by("number").agg(
        whole=pl.col("part").sum(), n_constant=pl.col("is_constant").sum(), length=pl.len()
    )
    return hashed, whole


def _two_words(live: pl.DataFrame) -> pl.DataFrame | None:
    """The pieces after patterns joined one that has a placeholder for two of their words.

    What takes many values in two places at once leaves stragglers: too few share either of
    their words, though everything else says what they are. None where nothing joins.
    """
    hashed, whole = _hashed(live)
    change = pl.col("blank") - pl.col("part")
    words = (
        hashed.filter("may_vary")
        .join(whole.filter(pl.col("n_constant") > N_CONSTANT + 2), on="number")
        .select("number", "column", "whole", "length", change=change)
    )
    others = words.select("number", other="column", more="change")
    pairs = (
        words.join(_open_pairs(hashed, whole), on=["length", "column"])
        .join(others, on=["number", "other"])
        .with_columns(without=pl.col("whole") + pl.col("change") + pl.col("more"))
        .filter(pl.col("without").is_in(whole["whole"].unique().implode()))
    )
    if pairs.is_empty():
        return None
    first = pairs.sort("number", "column", "other").unique(
        "number", keep="first", maintain_order=True
    )
    both = first.select("number", column=pl.concat_list("column", "other")).explode("column")
    return _with_placeholders(live, both)


def _open_pairs(hashed: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """Which two columns are placeholders in some pattern of each length."""
    wild = (
        hashed.filter("is_wild")
        .filter(pl.len().over("number") <= N_WORDS)
        .join(whole.select("number", "length"), on="number")
        .select("number", "length", "column")
    )
    # Patterns with the same placeholders say the same: one of each is enough.
    alike = wild.group_by("number", "length").agg(pl.col("column").sort())
    one = alike.unique(["length", "column"], keep="any").explode("column")
    return (
        one.join(one.select("number", other="column"), on="number")
        .filter(pl.col("column") < pl.col("other"))
        .select("length", "column", "other")
        .unique()
    )


def _one_round(live: pl.DataFrame) -> pl.DataFrame | None:
    """The pieces after one round of merging; None where nothing merges."""
    hashed, whole = _hashed(live)
    candidates = (
        hashed.filter("may_vary")
        .join(whole.filter(pl.col("n_constant") > N_CONSTANT), on="number")
        .with_columns(without=pl.col("whole") - pl.col("part") + pl.col("blank"))
        .with_columns(
            n_values=pl.col("piece").n_unique().over("without"),
            exists=pl.col("without").is_in(whole["whole"].unique().implode()),
        )
        .filter(pl.col("exists") | (pl.col("n_values") >= N_VALUES))
    )
    if candidates.is_empty():
        return None
    chosen = (
        candidates.sort(
            "number", "exists", "n_values", "column", descending=[False, True, True, False]
        )
        .group_by("number", maintain_order=True)
        .agg(pl.col("column").first())
    )
    return _with_placeholders(live, chosen)


def _with_placeholders(live: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    """The pieces with a placeholder in each chosen column."""
    is_chosen = pl.col("is_chosen").fill_null(value=False)
    return live.join(
        chosen.with_columns(is_chosen=True),
        on=["number", "column"],
        how="left",
        maintain_order="left",
    ).select(
        "number",
        "column",
        piece=pl.when(is_chosen).then(pl.lit(OPEN + CLOSE)).otherwise("piece"),
        is_constant=pl.col("is_constant") & ~is_chosen,
        may_vary=pl.col("may_vary") & ~is_chosen,
    )

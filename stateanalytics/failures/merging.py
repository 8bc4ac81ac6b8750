"""What varies between patterns that are otherwise alike becomes a placeholder.

A pattern is cut into columns, and columns that evidently vary are merged: words, commands
and quoted spans first, then what stands in brackets, then free ends (`free_ends`); at last a
template takes in those that it matches (`subsumption`). All decisions are taken on sets, so
the order of patterns never matters.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.failures.free_ends import merge_ends
from stateanalytics.failures.pieces import (
    BRACKETS,
    WORDS,
    as_text,
    cut_into_pieces,
    hashed,
)
from stateanalytics.failures.subsumption import absorbed

#: A column of this kind varies when it takes so many values between the same others.
N_VALUES = {"word": 5, "name": 3, "bracket": 3, "payload": 2, "quoted": 2, "said": 5, "command": 2}
#: Where several of them vary at once, each takes so many values.
N_TOGETHER = {"name": 6, "bracket": 3, "payload": 2, "quoted": 3, "command": 2}
#: Between so many words fewer values do: of a word, and of names together.
N_FRAME, N_WORD_IN_FRAME, N_NAMES_IN_FRAME = 5, 4, 3
#: What remains of a template must still say something: so many words.
N_CONSTANT = {
    "word": 2,
    "name": 2,
    "bracket": 2,
    "payload": 3,
    "quoted": 1,
    "said": 2,
    "command": 2,
}
#: Pairs of placeholders are looked at in patterns with at most so many.
N_WORDS = 12


def merge(texts: pl.Series) -> pl.Series:
    """The template of every text, by what all of them have in common.

    Parameters
    ----------
    texts : polars.Series, length n_texts
        Distinct masked messages; what follows `TRACE_HERE` is never merged.

    Returns
    -------
    polars.Series, length n_texts
        In the same order.
    """
    found = pl.DataFrame({"text": texts, "merged": texts})
    steps = (
        lambda distinct: _columns_merged(distinct, WORDS),
        lambda distinct: _columns_merged(distinct, BRACKETS),
        merge_ends,
        absorbed,
    )
    for step in steps:
        distinct = found.select(merged="merged").unique()["merged"]
        after = pl.DataFrame({"merged": distinct, "after": step(distinct)})
        found = found.join(after, on="merged", how="left", maintain_order="left").select(
            "text", merged="after"
        )
    return found["merged"]


def unmerged(texts: pl.Series) -> pl.Series:
    """What `merge` makes of each text where there is no other."""
    for columns in (WORDS, BRACKETS):
        texts = as_text(cut_into_pieces(texts, columns))
    return texts


def _columns_merged(texts: pl.Series, columns: str) -> pl.Series:
    """Merge over single columns, and pairs of them, round by round, until nothing changes.

    A round looks at every pattern with one of its columns left out. Where that shortened
    pattern exists already, with a placeholder there, the pattern joins it; where enough
    patterns share it, the column varies and all of them become it. All decisions of a
    round are taken on the set as it was, and of patterns that are alike by now one is
    looked at.
    """
    after: pl.DataFrame | None = _together(cut_into_pieces(texts, columns))
    same = pl.Series(range(texts.len()), dtype=pl.UInt32)
    while after is not None:
        live, first = _distinct(after)
        same = same.replace(first["number"], first["first"])
        after = _next(live)
    return as_text(live).gather(same.rank("dense") - 1)


def _distinct(live: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The pieces of the first of all patterns that are alike, and which is the first of each."""
    first = (
        live.group_by("number", maintain_order=True)
        .agg(whole=pl.col("piece").str.join("\0"))
        .select("number", first=pl.col("number").first().over("whole"))
    )
    return live.filter(pl.col("number").is_in(first["first"].unique().implode())), first


def _next(live: pl.DataFrame) -> pl.DataFrame | None:
    after = _one_round(live)
    return _two_words(live) if after is None else after


def _least(numbers: dict[str, int]) -> pl.Expr:
    return pl.col("kind").replace_strict(numbers, return_dtype=pl.UInt32)


def _least_in_frame(numbers: dict[str, int], kind: str, n: int, n_words: pl.Expr) -> pl.Expr:
    """The least number of values, which is ``n`` for a kind between enough words."""
    in_frame = (pl.col("kind") == kind) & (n_words >= N_FRAME)
    return pl.when(in_frame).then(pl.lit(n, pl.UInt32)).otherwise(_least(numbers))


def _together(live: pl.DataFrame) -> pl.DataFrame:
    """The pieces after merging names and spans that vary together in one frame of words."""
    pieces, _ = hashed(live)
    may_vary = pl.col("may_vary") & pl.col("kind").is_in(list(N_TOGETHER))
    chosen = (
        pieces.with_columns(is_free=may_vary | pl.col("is_wild"))
        .with_columns(
            frame=pl.when("is_free").then("open").otherwise("part").sum().over("number"),
            n_fixed=(pl.col("is_constant") & ~pl.col("is_free")).sum().over("number"),
        )
        .filter(may_vary)
        .filter(pl.col("n_fixed") >= _least(N_CONSTANT))
        .filter(
            pl.col("piece").n_unique().over("frame", "column")
            >= _least_in_frame(N_TOGETHER, "name", N_NAMES_IN_FRAME, pl.col("n_fixed"))
        )
    )
    return _with_placeholders(live, chosen.select("number", "column"))


def _one_round(live: pl.DataFrame) -> pl.DataFrame | None:
    """The pieces after one round of merging; None where nothing merges."""
    pieces, whole = hashed(live)
    n_others = pl.col("n_constant") - pl.col("is_constant")
    least = _least_in_frame(N_VALUES, "word", N_WORD_IN_FRAME, n_others)
    candidates = (
        pieces.filter("may_vary")
        .join(whole, on="number")
        .filter(n_others >= _least(N_CONSTANT))
        .with_columns(without=pl.col("whole") - pl.col("part") + pl.col("open"))
        .with_columns(
            n_values=pl.col("piece").n_unique().over("without", "kind"),
            exists=pl.col("without").is_in(whole["whole"].unique().implode()),
        )
        .filter(pl.col("exists") | (pl.col("n_values") >= least))
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


def _two_words(live: pl.DataFrame) -> pl.DataFrame | None:
    """The pieces after patterns joined one that has a placeholder for two of their words.

    What takes many values in two places at once leaves stragglers: too few share either of
    their words, though everything else says what they are. None where nothing joins.
    """
    pieces, whole = hashed(live)
    change = pl.col("open") - pl.col("part")
    words = (
        pieces.filter("may_vary")
        .join(whole.filter(pl.col("n_constant") > N_CONSTANT["word"] + 2), on="number")
        .select("number", "column", "whole", "length", change=change)
    )
    others = words.select("number", other="column", more="change")
    pairs = (
        words.join(_open_pairs(pieces, whole), on=["length", "column"])
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


def _open_pairs(pieces: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """Which two columns are placeholders in some pattern of each length."""
    wild = (
        pieces.filter("is_wild")
        .filter(pl.len().over("number") <= N_WORDS)
        .join(whole.select("number", "length"), on="number")
        .select("number", "length", "column")
    )
    # Patterns with the same placeholders say the same: one of each is enough.
    alike = wild.group_by("number", "length").agg(pl.col("column").sort())
    representatives = alike.unique(["length", "column"], keep="any").explode("column")
    return (
        representatives.join(representatives.select("number", other="column"), on="number")
        .filter(pl.col("column") < pl.col("other"))
        .select("length", "column", "other")
        .unique()
    )


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
        "kind",
        "blank",
        piece=pl.when(is_chosen).then("blank").otherwise("piece"),
        is_constant=pl.col("is_constant") & ~is_chosen,
        may_vary=pl.col("may_vary") & ~is_chosen,
        is_wild=pl.col("is_wild") | is_chosen,
    )

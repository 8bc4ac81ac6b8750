"""What stands at the end of a message is a value where it is another text every time."""

from __future__ import annotations

import polars as pl

from stateanalytics.failures.cut_off import TRACE_HERE
from stateanalytics.failures.pieces import BRACKETS, WILD, as_text, cut_into_pieces, hashed

#: So many words are a beginning; so many say exactly what went on.
N_BEGINNING, N_EXACT = 3, 8
#: So many different ends make a free end; of a beginning that is exact, or of ends of so
#: many words, fewer do.
N_ENDS, N_FEW_ENDS, N_LONG = 5, 3, 4
#: Kinds of pieces that vary in a beginning where they take so many values.
N_TOGETHER = {"name": 3, "bracket": 3, "payload": 2, "quoted": 3, "command": 2}


def merge_ends(texts: pl.Series) -> pl.Series:
    """Merge what follows a colon, a sentence or a line where it is another text every time.

    Parameters
    ----------
    texts : polars.Series, length n_texts
        Distinct patterns.

    Returns
    -------
    polars.Series, length n_texts
        In the same order. What tells failures apart, such as an exception or an exit code, is
        never part of an end that is merged.
    """
    framed = _framed(texts)
    ends = _ends(framed).select("number", cut="column", group="prefix")
    pieces = framed.join(ends, on="number", how="left", maintain_order="left")
    place = (pl.col("column") - pl.col("cut")).fill_null(0)
    n_values = pl.col("piece").n_unique().over("group", "column")
    least = pl.col("kind").replace_strict(N_TOGETHER, default=None, return_dtype=pl.UInt32)
    varies = _may_vary() & (place < 0) & (n_values >= least)
    is_trace = pl.col("piece").str.starts_with(TRACE_HERE)
    return as_text(
        pieces.with_columns(
            piece=pl.when(place == 1)
            .then(pl.lit(WILD))
            .when((place > 0) & ~is_trace)
            .then(pl.lit(""))
            .when(varies.fill_null(value=False))
            .then("blank")
            .otherwise("piece")
        )
    )


def _may_vary() -> pl.Expr:
    return pl.col("may_vary") & pl.col("kind").is_in(list(N_TOGETHER))


def _framed(texts: pl.Series) -> pl.DataFrame:
    """Each piece of each pattern with what is said up to it, and what follows."""
    pieces, _ = hashed(cut_into_pieces(texts, BRACKETS))
    piece, is_free = pl.col("piece"), pl.col("is_free")
    is_fixed = pl.col("is_constant") & ~is_free
    ends_sentence = (piece == " ") & (piece.shift(1).over("number") == ".")
    return pieces.with_columns(is_free=_may_vary() | pl.col("is_wild")).with_columns(
        prefix=pl.when(is_free).then("open").otherwise("part").cum_sum().over("number"),
        n_fixed=_so_far(is_fixed),
        n_free=_so_far(is_free),
        next=piece.shift(-1).over("number"),
        n_rest=pl.len().over("number") - pl.col("column") - 1,
        n_words=_after(pl.col("is_constant")),
        n_kept=_after(pl.col("is_kept")),
        ends_line=piece.str.contains("\n", literal=True),
        ends_part=piece.str.contains(r":\s+$") | ends_sentence,
    )


def _so_far(is_one: pl.Expr) -> pl.Expr:
    return is_one.cast(pl.UInt32).cum_sum().over("number")


def _after(is_one: pl.Expr) -> pl.Expr:
    """How many such pieces follow this one."""
    count = is_one.cast(pl.UInt32)
    return count.sum().over("number") - count.cum_sum().over("number")


def _ends(framed: pl.DataFrame) -> pl.DataFrame:
    """The last piece of each pattern behind which its free end begins."""
    n_fixed, n_free = pl.col("n_fixed"), pl.col("n_free")
    is_said = (n_fixed >= N_BEGINNING) | ((n_fixed == N_BEGINNING - 1) & (n_free > 1))
    # Where a colon follows the same words every time, what follows is one of many errors.
    may_end = pl.col("ends_part") & ((n_free > 0) | (n_fixed >= 2 * N_BEGINNING))
    is_open = is_said & (pl.col("ends_line") | may_end)
    n_texts, n_next = pl.col("n_texts"), pl.col("n_next")
    n_least = pl.when(n_fixed < N_EXACT).then(N_ENDS).otherwise(N_FEW_ENDS)
    is_free_after = (
        ((n_texts >= n_least) | (pl.col("n_long") >= N_FEW_ENDS))
        & (n_next > pl.when(n_fixed + n_free < 2 * N_BEGINNING).then(2).otherwise(1))
        & (pl.col("n_lengths") > 1)
    )
    is_free_anywhere = (n_texts >= N_ENDS) & (n_next > 3) & (pl.col("n_lengths") > 2)
    return (
        framed.filter((is_open | (n_fixed > N_BEGINNING)) & (pl.col("n_rest") > 0))
        .filter(pl.col("n_kept") == 0)
        .with_columns(
            n_texts=pl.col("number").n_unique().over("prefix"),
            n_long=pl.col("number").filter(pl.col("n_words") >= N_LONG).n_unique().over("prefix"),
            n_next=pl.col("next").n_unique().over("prefix"),
            n_lengths=pl.col("n_rest").n_unique().over("prefix"),
        )
        .filter(pl.when(is_open).then(is_free_after).otherwise(is_free_anywhere))
        .sort("column", descending=True)
        .unique("number", keep="first", maintain_order=True)
    )

"""Lines that stay apart without colour: a dash and a direct label for each stratum."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.core.text import shortened, visible

MOST = 5
"""More lines than this cannot be told apart; the largest strata are drawn."""
COLOURS = ("info", "critical", "success", "warning", "neutral")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4])
ALL = "all"


def named(frame: pl.DataFrame, strata: Sequence[str], *, size: str) -> pl.DataFrame:
    """Add ``stratum``: the values of the strata as one text, the largest strata first.

    Parameters
    ----------
    frame : polars.DataFrame
        Anything with the columns of ``strata``.
    strata : sequence of str
        Columns that tell the lines apart; none: one line.
    size : str
        Column by whose largest value strata are ranked.

    Returns
    -------
    polars.DataFrame
        Rows of at most `MOST` strata, in the order of their size, then as they came.
    """
    if not strata:
        return frame.with_columns(stratum=pl.lit(ALL))
    parts = [pl.col(name).cast(pl.String).fill_null("unknown") for name in strata]
    text = pl.concat_str(parts, separator=", ")
    largest = pl.col(size).max().over("stratum")
    labelled = frame.with_columns(stratum=text)
    readable = {name: shortened(visible(name), 24) for name in labelled["stratum"].unique()}
    return (
        labelled.with_columns(_size=largest)
        .sort("_size", "stratum", descending=[True, False], maintain_order=True)
        .with_columns(_rank=pl.col("stratum").rle_id())
        .filter(pl.col("_rank") < MOST)
        .with_columns(pl.col("stratum").replace_strict(readable, return_dtype=pl.String))
        .drop("_size", "_rank")
    )


def apart(frame: pl.DataFrame) -> list[str]:
    """The strata of a named frame, in their order."""
    return frame["stratum"].unique(maintain_order=True).to_list()

"""How many runs took how long, and how many do not count."""

from __future__ import annotations

import polars as pl

from stateanalytics.errors import MissingColumnsError
from stateanalytics.survival.run_spells import LEFT_OUT

# About a factor of two each, on moments that people name: equal widths on a log axis.
EDGES_S = (
    0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 1800.0, 3600.0,
    7200.0, 14400.0, 28800.0, 57600.0, 115200.0, 230400.0, 460800.0, 921600.0, 1843200.0,
)  # fmt: skip


def count_left_out(spells: pl.DataFrame) -> pl.DataFrame:
    """How many runs do not count, and why.

    Parameters
    ----------
    spells : polars.DataFrame
        What `spells` gave.

    Returns
    -------
    polars.DataFrame, shape (n_reasons, 3)
        ``left_out``, its ``meaning``, ``n``; in the order of `LEFT_OUT`, without zeros.

    Examples
    --------
    >>> runs = pl.DataFrame({"left_out": ["no_end", None, "legacy", "no_end"]})
    >>> count_left_out(runs).select("left_out", "n").rows()
    [('legacy', 1), ('no_end', 2)]
    """
    if "left_out" not in spells.columns:
        raise MissingColumnsError.of(["left_out"], spells.columns, "count_left_out")
    counts = spells.group_by("left_out").agg(n=pl.len().cast(pl.Int64))
    reasons = pl.DataFrame({"left_out": list(LEFT_OUT), "meaning": list(LEFT_OUT.values())})
    return reasons.join(counts, on="left_out", how="inner", maintain_order="left")


def count_spells(spells: pl.DataFrame, by: str = "ending") -> pl.DataFrame:
    """How many counted spells fall into each step of `EDGES_S`.

    Parameters
    ----------
    spells : polars.DataFrame
        What `spells` gave; rows that are left out are not counted.
    by : str
        Column to count apart, for example ``ending`` or ``kind``.

    Returns
    -------
    polars.DataFrame, shape (n_filled_steps, 5)
        ``by``, ``low_s`` and ``high_s`` (low included; the last step has no high),
        ``n``, and ``n_cut_off`` (of them, those that lasted at least so long). Sorted.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {
    ...         "ending": ["completed", "completed", "running"],
    ...         "duration_s": [61.0, 119.0, 7200.0],
    ...         "ended": [True, True, False],
    ...         "left_out": pl.Series([None] * 3, dtype=pl.String),
    ...     }
    ... )
    >>> count_spells(runs).rows()
    [('completed', 60.0, 120.0, 2, 0), ('running', 7200.0, 14400.0, 1, 1)]
    """
    needed = (by, "duration_s", "ended", "left_out")
    if missing := [name for name in needed if name not in spells.columns]:
        raise MissingColumnsError.of(missing, spells.columns, "count_spells")
    steps = pl.DataFrame(
        {"low_s": EDGES_S, "high_s": [*EDGES_S[1:], None]},
        schema={"low_s": pl.Float64, "high_s": pl.Float64},
    )
    return (
        spells.filter(pl.col("left_out").is_null(), pl.col("duration_s").is_not_null())
        .sort("duration_s")
        .join_asof(steps, left_on="duration_s", right_on="low_s", coalesce=False)
        .group_by(by, "low_s", "high_s")
        .agg(
            n=pl.len().cast(pl.Int64),
            n_cut_off=(~pl.col("ended")).sum().cast(pl.Int64),
        )
        .sort(by, "low_s", nulls_last=True)
    )

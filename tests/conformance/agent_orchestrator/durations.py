"""Durations as Agent Orchestrator's configuration writes them."""

from __future__ import annotations

import polars as pl


def duration_s(text: pl.Expr) -> pl.Expr:
    """Seconds of a configured duration such as ``10m``.

    Parameters
    ----------
    text : polars.Expr of String
        Digits and one of ``s``, ``m``, ``h``.

    Returns
    -------
    polars.Expr of Float64
        Seconds; 0, which switches a threshold off, for everything else.

    Notes
    -----
    Agent Orchestrator's ``parseDuration``.

    Examples
    --------
    >>> import polars as pl
    >>> texts = pl.DataFrame({"threshold": ["10m", "2d", ""]})
    >>> texts.select(duration_s(pl.col("threshold")))["threshold"].to_list()
    [600.0, 0.0, 0.0]
    """
    pattern = r"^([0-9]+)([smh])$"
    number = text.str.extract(pattern, 1).cast(pl.Float64)
    unit = text.str.extract(pattern, 2).replace_strict(
        ["s", "m", "h"], [1.0, 60.0, 3600.0], default=None, return_dtype=pl.Float64
    )
    return (number * unit).fill_null(0.0)

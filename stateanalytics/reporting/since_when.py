"""Whether a number of the window is within what chance does, and since when it is not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from stateanalytics.core.windows import WEEK, Window, iso_week
from stateanalytics.reporting.false_alarms import LIMITS
from stateanalytics.reporting.material import Material, Plain
from stateanalytics.reporting.phrases import number, sentence, share
from stateanalytics.state.definitions import RUN
from stateanalytics.state.population import is_counted
from stateanalytics.weekly_limits import (
    MOST_WEEKS,
    SHARES,
    control_limits,
    newest,
    numbers_of_ended,
)

DRAWN = ("runs", "completed", "timed_out", "incidents")
"""Those that are drawn week by week: of runs, the ones that ended."""
FEWEST_DRAWN, MOST_DRAWN = 4, 12
MEASURES = ("completed", "timed_out", "incidents")
"""Those of the five numbers that can be told of a past window as it is known now."""
OPEN = "unresolved"
OPEN_DRAWN = "bars: how many were open"
"""At the end of each window; which of them were in trouble takes a look at each end, and long."""


def with_limits(headline: Plain, material: Material) -> Plain:
    """The numbers of the headline, each with its weeks and what these let expect.

    Notes
    -----
    Earlier windows of the same length are counted as they are known now, over runs that had
    ended; with this one there must be `FEWEST_DRAWN` to draw them, as ``weeks``, and
    `FEWEST_WEEKS` to say what they let expect, as ``limits``.
    """
    windows = _earlier(material)
    if len(windows) + 1 < FEWEST_DRAWN:
        return headline
    here = replace(material.window, label=_name(material.window.since, material.window))
    counted = numbers_of_ended(
        material.ever, material.failed_ever, (*windows, here), material.facts.as_of
    )
    # Of fewer than `FEWEST_WEEKS` it finds none.
    found = newest(
        control_limits(counted.filter(pl.col("measure").is_in(MEASURES)), fdr=2 * LIMITS), MEASURES
    )
    drawn = {name: counted.filter(measure=name)["value"].fill_nan(None) for name in DRAWN}
    drawn[OPEN] = _open_at_ends(material, (*windows, here))
    numbers = [
        {**each, **_weeks(drawn[each["name"]])}
        | ({"drawn": OPEN_DRAWN} if each["name"] == OPEN else {})
        | ({"limits": _limits(found[each["name"]])} if each["name"] in found else {})
        for each in headline["numbers"]
    ]
    labels = [window.label for window in (*windows, here)]
    return {**headline, "numbers": numbers, "weeks": labels[-MOST_DRAWN:]}


def _weeks(values: pl.Series) -> Plain:
    """The last windows of a number, oldest first, null where nothing ended."""
    told = values.tail(MOST_DRAWN).to_list()
    most = max((value or 0.0 for value in told), default=0.0)
    return {"weeks": told, "bars": [(value or 0.0) / most if most else 0.0 for value in told]}


def _open_at_ends(material: Material, windows: Sequence[Window]) -> pl.Series:
    """How many runs that rates count were open at the end of each window, as is known now."""
    began = pl.coalesce("started_at", "created_at")
    is_open_at = [
        is_counted(RUN)
        & (began < window.until)
        & (pl.col("is_open") | (pl.col("placed_at") >= window.until))
        for window in windows
    ]
    counts = (is_open.sum().alias(str(place)) for place, is_open in enumerate(is_open_at))
    return pl.Series(material.ever.select(counts).row(0), dtype=pl.Int64)


def _earlier(material: Material) -> list[Window]:
    """Windows of the same length, back to back before this one, that the data cover whole."""
    window = material.window
    length = window.until - window.since
    moment = pl.min_horizontal("created_at", "started_at", "ended_at")
    begins = material.ever.select(moment.filter(~pl.col("is_open")).min()).item()
    if begins is None:
        return []
    n = min(MOST_WEEKS - 1, (window.since - begins) // length)
    since = [window.since - length * back for back in range(n, 0, -1)]
    return [Window(moment, moment + length, _name(moment, window)) for moment in since]


def _name(moment: Any, window: Window) -> str:
    """An ISO week by its name, any other stretch by its first day."""
    is_week = window.until - window.since == WEEK and window.since == _monday(window)
    return iso_week(moment) if is_week else f"{moment:%Y-%m-%d %H:%M}"


def _monday(window: Window) -> Any:
    midnight = window.since.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - WEEK / 7 * window.since.weekday()


def _limits(row: Mapping[str, Any]) -> Plain:
    """What is said below a number of the headline."""
    is_share = row["measure"] in SHARES
    if is_share:
        ends, levels = (
            [share(row[name]) for name in names]
            for names in (("limit_low", "limit_high"), ("level_before", "level"))
        )
    else:
        ends = [number(math.ceil(row["limit_low"])), number(math.floor(row["limit_high"]))]
        levels = [number(round(row[name] or 0)) for name in ("level_before", "level")]
    since, expected = row["level_since"], f"95 %: {ends[0]} to {ends[1]}"
    words = f"within what chance does since {since} ({expected})"
    if row["verdict"] != "within":
        words = f"{row['verdict']} what chance does ({expected})"
    if row["level_before"] is not None:
        step = "higher" if row["level"] > row["level_before"] else "lower"
        words = f"{step} since {since}: {levels[1]}, before {levels[0]}; {words}"
    return {
        "verdict": row["verdict"],
        "since": since,
        "expected": row["expected"],
        "interval": [row["limit_low"], row["limit_high"]],
        "level": row["level"],
        "level_before": row["level_before"],
        "words": sentence(words),
    }

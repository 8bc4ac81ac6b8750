"""What a chart proves, in one sentence: read off the frame that it draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from stateanalytics.core.text import shortened, visible
from stateanalytics.core.units import how_long, per_hundred
from stateanalytics.survival.estimates import quantiles

MISTAKES = {
    ("false_alarm", "100 session-hours"): "false alarms",
    ("lost_run", "100 session-hours"): "live runs closed",
    ("false_alarm", "100 runs"): "good runs flagged",
    ("lost_run", "100 runs"): "good runs ended",
}
"""What a mistake is, by what it costs and what is counted over."""
_MOST_STRATA = 3


def say_survival(curve: pl.DataFrame, *, what: str = "runs", prob: float = 0.95) -> str:
    """The median with its interval, and whether a late quantile is known.

    Examples
    --------
    >>> from stateanalytics.survival.curves import kaplan_meier
    >>> runs = pl.DataFrame({"duration_s": [60.0, 120.0, 180.0], "ended": [True, True, False]})
    >>> say_survival(kaplan_meier(runs), what="flow runs")
    'Half of the flow runs end within 2 min (1 min to not identified); p95 is not identified.'
    """
    if curve.is_empty():
        return f"There are no {what} to draw."
    at_probs = quantiles(curve, [0.5, prob])
    strata = at_probs.columns[: at_probs.columns.index("prob")]
    if not strata:
        median, late = (
            at_probs.filter(pl.col("prob") == p).row(0, named=True) for p in (0.5, prob)
        )
        return f"{_half(median, what)}; {_late(late)}."
    largest = curve.group_by(strata).agg(n=pl.col("n_at_risk").max())
    medians = (
        at_probs.filter(pl.col("prob") == 0.5)
        .join(largest, on=strata, how="left", nulls_equal=True)
        .sort("n", *strata, descending=[True, *[False] * len(strata)])
    )
    parts = [
        f"{_name([row[column] for column in strata])} {_within(row)}"
        for row in medians.head(_MOST_STRATA).iter_rows(named=True)
    ]
    return f"Half of the {what} end: {'; '.join(parts)}."


def say_cumulative_incidence(
    incidence: pl.DataFrame, *, at_s: float = 3600.0, what: str = "runs"
) -> str:
    """What has become of the runs by one moment.

    Examples
    --------
    >>> from stateanalytics.survival.incidence import cumulative_incidence
    >>> runs = pl.DataFrame({"duration_s": [60.0, 90.0, 99.0], "cause": ["done", None, "done"]})
    >>> say_cumulative_incidence(cumulative_incidence(runs), at_s=90.0)
    'By 1 min 30 s, of 100 runs: 33 done, 67 still running.'
    """
    by_then = (
        incidence.filter(pl.col("duration_s") <= at_s)
        .sort("duration_s")
        .group_by("cause")
        .agg(pl.col("incidence").last())
        .sort("incidence", "cause", descending=[True, False])
    )
    left = 1 - float(by_then["incidence"].sum())
    rows = [(_word(cause), share) for cause, share in by_then.iter_rows() if share >= 0.005]
    if not rows:
        return f"By {how_long(at_s)}, no {what} have ended."
    ends = ", ".join(f"{100 * share:.0f} {word}" for word, share in rows)
    return f"By {how_long(at_s)}, of 100 {what}: {ends}, {100 * left:.0f} still running."


def say_limits(runs: pl.DataFrame) -> str:
    """How many runs met their time limit, and how many of those had not begun to work.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {
    ...         "limit_s": [900.0, 900.0, None],
    ...         "elapsed_s": [900.5, 60.0, 5.0],
    ...         "fits": ["at_limit", "before", None],
    ...         "has_no_turns": [True, False, None],
    ...     }
    ... )
    >>> say_limits(runs)
    '1 of 2 runs with a known limit ran into it, 1 of them without a single turn.'
    """
    known = runs.filter(pl.col("limit_s").is_not_null() & pl.col("elapsed_s").is_not_null())
    if known.is_empty():
        return "No time limit is known for any run."
    met = known.filter(pl.col("fits") == "at_limit")
    empty = met.filter(pl.col("has_no_turns").fill_null(False)).height
    tail = f", {empty} of them without a single turn" if empty else ""
    return f"{met.height} of {known.height} runs with a known limit ran into it{tail}."


def say_worksheet(curve: pl.DataFrame) -> str:
    """Today's threshold against the recommended one, in alarms and delay.

    Examples
    --------
    >>> curve = pl.DataFrame(
    ...     {
    ...         "threshold_s": [1800.0, 21600.0],
    ...         "mistakes": [2.8, 0.0],
    ...         "mistake": ["false_alarm"] * 2,
    ...         "per": ["100 session-hours"] * 2,
    ...         "is_today": [False, True],
    ...         "is_best": [True, False],
    ...     }
    ... )
    >>> say_worksheet(curve)
    'Today 6 h: 0 false alarms per 100 session-hours. The cheapest, 30 min: 2.8, 5 h 30 min sooner.'
    """
    today = curve.filter("is_today").head(1).to_dicts()
    best = curve.filter("is_best").head(1).to_dicts()
    if not best:
        return "Not enough data to weigh a threshold."
    cheapest = best[0]
    what = mistakes_of(cheapest["mistake"], cheapest["per"])
    number, limit = per_hundred(cheapest["mistakes"]), how_long(cheapest["threshold_s"])
    if not today:
        return f"The cheapest, {limit}: {number} {what}."
    now = today[0]
    outcome = f"{how_long(now['threshold_s'])}: {per_hundred(now['mistakes'])} {what}."
    moved = now["threshold_s"] - cheapest["threshold_s"]
    if not moved:
        return f"Today's value is the cheapest, {outcome}"
    sooner = "sooner" if moved > 0 else "later"
    return f"Today {outcome} The cheapest, {limit}: {number}, {how_long(abs(moved))} {sooner}."


def say_false_alarms(sheet: pl.DataFrame, *, what: str = "sessions") -> str:
    """What the shortest and the longest of today's constants do, with exact intervals.

    Examples
    --------
    >>> sheet = pl.DataFrame(
    ...     {
    ...         "threshold_s": [3600.0, 21600.0],
    ...         "mistakes_per_100h": [2.8, 0.0],
    ...         "mistakes_per_100h_low": [0.1, 0.0],
    ...         "mistakes_per_100h_high": [15.4, 10.2],
    ...         "constants": ["idle", "stale.agent"],
    ...         "is_today": [True, True],
    ...     }
    ... )
    >>> say_false_alarms(sheet, what="agents")
    'Of agents, per 100 session-hours: 1 h flags 2.8 wrongly (0.1 to 15), 6 h 0 (0 to 10).'
    """
    today = sheet.filter("is_today", pl.col("mistakes_per_100h").is_not_null()).sort("threshold_s")
    if today.is_empty():
        return f"No threshold of today can be judged by these {what}."
    ends = today.head(1) if today.height == 1 else pl.concat([today.head(1), today.tail(1)])
    rate, low, high = (f"mistakes_per_100h{end}" for end in ("", "_low", "_high"))
    parts = [
        f"{how_long(row['threshold_s'])}{' flags' if place == 0 else ''} {per_hundred(row[rate])}"
        f"{' wrongly' if place == 0 else ''} ({per_hundred(row[low])} to {per_hundred(row[high])})"
        for place, row in enumerate(ends.iter_rows(named=True))
    ]
    return f"Of {what}, per 100 session-hours: {', '.join(parts)}."


def mistakes_of(mistake: str, per: str) -> str:
    """What is counted, over what.

    Examples
    --------
    >>> mistakes_of("lost_run", "100 runs")
    'good runs ended per 100 runs'
    """
    return f"{MISTAKES.get((mistake, per), 'mistakes')} per {visible(per)}"


def _half(row: dict[str, object], what: str) -> str:
    return f"Half of the {what} end {_within(row)}"


def _within(row: dict[str, object]) -> str:
    if row["duration_s"] is None:
        return "at a time that is not identified"
    low, high = row["duration_low_s"], row["duration_high_s"]
    return f"within {_spoken(row['duration_s'])} ({_spoken(low)} to {_spoken(high)})"


def _late(row: dict[str, object]) -> str:
    name = f"p{100 * float(str(row['prob'])):g}"
    known = row["duration_s"]
    return f"{name} is not identified" if known is None else f"{name} is {_spoken(known)}"


def _spoken(seconds: Any) -> str:
    return how_long(seconds, "not identified", is_estimate=True)


def _name(values: Sequence[object]) -> str:
    words = ("unknown" if value is None else str(value) for value in values)
    return shortened(visible(", ".join(words)), 24)


def _word(cause: object) -> str:
    return shortened(visible(str(cause).replace("_", " ")), 24)

"""How the headline numbers changed: against the earlier window, and against their own past."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from stateanalytics.core.windows import LAST_WEEK, WEEK, Window, in_utc, iso_week, read_window
from stateanalytics.core.words import capitalised, number, points, say, share
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.material import Material, Plain, iso
from stateanalytics.state.definitions import RUN
from stateanalytics.state.population import is_counted
from stateanalytics.stats.shares import ClusteredShare
from stateanalytics.weekly_limits import (
    MOST_WEEKS,
    SHARES,
    control_limits,
    newest,
    numbers_of_ended,
)

FALSE_ALARMS = 0.05
"""Probability that an unchanged week is called growing, higher, lower, above or below at all."""

LIMITS = 0.0175
"""Its part for weeks outside their control limits, and as much again for new levels."""
GROWING = 0.01
"""Its part for growing clusters."""


def false_alarm_rate(n_compared: int, *, has_limits: bool) -> float:
    """The false-alarm rate of each of several changes against the earlier window.

    They share the rest of the budget, which is small where control limits, the better test,
    are available.

    Examples
    --------
    >>> round(false_alarm_rate(2, has_limits=False), 6)
    0.02
    """
    rest = FALSE_ALARMS - GROWING - (2 * LIMITS if has_limits else 0.0)
    return rest / max(n_compared, 1)


DRAWN = ("runs", "completed", "timed_out", "incidents")
"""Numbers that are drawn week by week; runs are those that ended."""
FEWEST_DRAWN, MOST_DRAWN = 4, 12
MEASURES = ("completed", "timed_out", "incidents")
"""Numbers that can be computed for a past window from what is known now."""
OPEN = "unresolved"
"""Drawn as the number of runs open at the end of each window, because computing which of them
were in trouble would take a past state for each window."""


def with_limits(headline: Plain, material: Material) -> Plain:
    """The numbers of the headline, each with its past weeks and its expected range.

    Notes
    -----
    Earlier windows of the same length are counted from what is known now, over runs that had
    ended. With this window there must be `FEWEST_DRAWN` to draw them, as ``weeks``, and
    `FEWEST_WEEKS` for an expected range, as ``limits``.
    """
    windows = _earlier_windows(material)
    if len(windows) + 1 < FEWEST_DRAWN:
        return headline
    current = replace(material.window, label=_name(material.window.since, material.window))
    counted = numbers_of_ended(
        material.ever, material.failed_ever, (*windows, current), material.facts.as_of
    )
    # Fewer than `FEWEST_WEEKS` have no limits.
    limits = newest(
        control_limits(counted.filter(pl.col("measure").is_in(MEASURES)), fdr=2 * LIMITS), MEASURES
    )
    drawn = {name: counted.filter(measure=name)["value"].fill_nan(None) for name in DRAWN}
    drawn[OPEN] = _open_at_ends(material, (*windows, current))
    numbers = [
        {**figure, **_weeks(drawn[figure["name"]])}
        | ({"drawn": say("limits.open_bars")} if figure["name"] == OPEN else {})
        | ({"limits": _limits(limits[figure["name"]])} if figure["name"] in limits else {})
        for figure in headline["numbers"]
    ]
    labels = [window.label for window in (*windows, current)]
    return {**headline, "numbers": numbers, "weeks": labels[-MOST_DRAWN:]}


def _weeks(values: pl.Series) -> Plain:
    """The last windows of a number, oldest first, null where nothing ended."""
    weeks = values.tail(MOST_DRAWN).to_list()
    most = max((value or 0.0 for value in weeks), default=0.0)
    return {"weeks": weeks, "bars": [(value or 0.0) / most if most else 0.0 for value in weeks]}


def _open_at_ends(material: Material, windows: Sequence[Window]) -> pl.Series:
    """Number of counted runs that were open at the end of each window, as known now."""
    began = pl.coalesce("started_at", "created_at")
    is_open_at = [
        is_counted(RUN)
        & (began < window.until)
        & (pl.col("is_open") | (pl.col("placed_at") >= window.until))
        for window in windows
    ]
    counts = (is_open.sum().alias(str(place)) for place, is_open in enumerate(is_open_at))
    return pl.Series(material.ever.select(counts).row(0), dtype=pl.Int64)


def _earlier_windows(material: Material) -> list[Window]:
    """Adjacent earlier windows of the same length that the data cover completely."""
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
    """The name of a window: its ISO week, else its first moment."""
    is_week = window.until - window.since == WEEK and window.since == _monday(window)
    return iso_week(moment) if is_week else f"{moment:%Y-%m-%d %H:%M}"


def _monday(window: Window) -> Any:
    midnight = window.since.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - WEEK / 7 * window.since.weekday()


def _limits(row: Mapping[str, Any]) -> Plain:
    """The expected range of a number, and whether its level changed."""
    is_share = row["measure"] in SHARES
    if is_share:
        ends, levels = (
            [share(row[name]) for name in names]
            for names in (("limit_low", "limit_high"), ("level_before", "level"))
        )
    else:
        ends = [number(math.ceil(row["limit_low"])), number(math.floor(row["limit_high"]))]
        levels = [number(round(row[name] or 0)) for name in ("level_before", "level")]
    since = row["level_since"]
    words = say(f"limits.{row['verdict']}", since=since, low=ends[0], high=ends[1])
    if row["level_before"] is not None:
        name = "limits.higher" if row["level"] > row["level_before"] else "limits.lower"
        if row["verdict"] == "within":
            words = say("limits.expected", low=ends[0], high=ends[1])
        words = say(name, since=since, level=levels[1], before=levels[0]) + words
    return {
        "verdict": row["verdict"],
        "since": since,
        "expected": row["expected"],
        "interval": [row["limit_low"], row["limit_high"]],
        "level": row["level"],
        "level_before": row["level_before"],
        "words": capitalised(words),
    }


PREVIOUS, NONE = "previous", "none"
UNRESOLVED = "unresolved"


def earlier_window(compare: object, window: Window, *, as_of: datetime) -> Window | None:
    """The window that a report is compared with.

    Parameters
    ----------
    compare : str, pair of moments, or None
        ``"previous"`` (as long, right before), ``"last-week"`` (seven days earlier),
        ``"none"`` or None, or any window that `read_window` knows.
    window : Window
        The one that is reported on.
    as_of : datetime
        The instant that the states are read at.

    Returns
    -------
    Window or None
        None where nothing is to be compared.

    Raises
    ------
    ArgumentError
        If it is no window, or does not begin before the one that is reported on.

    Examples
    --------
    >>> from datetime import UTC
    >>> as_of = datetime(2026, 5, 27, tzinfo=UTC)
    >>> this = read_window("2026-W21", as_of=as_of)
    >>> earlier_window("previous", this, as_of=as_of).since.isoformat()
    '2026-05-11T00:00:00+00:00'
    """
    if compare is None or compare == NONE:
        return None
    if compare in (PREVIOUS, LAST_WEEK):
        step = WEEK if compare == LAST_WEEK else window.until - window.since
        return _earlier_by(step, window)
    try:
        earlier = read_window(compare, as_of=as_of)
    except ArgumentError as error:
        raise ArgumentError(
            f"The window that a report is compared with is wrong: {error.problem}",
            'compare="previous", "last-week", None, or an earlier window',
            shell="--compare previous, last-week, none, or an ISO week such as 2026-W20",
        ) from None
    if earlier.since >= window.since:
        raise ArgumentError(
            f"A report is compared with an earlier window; {earlier.label} does not begin "
            f"before {in_utc(window.since)}.",
            'name an earlier one, such as "last-week"',
            shell="name an earlier one, such as --compare last-week",
        )
    return earlier


def compared_with(earlier: Window | None, now: Material) -> Plain | None:
    """The window of the comparison, and how much of it the data cover."""
    if earlier is None:
        return None
    begins = _first_moment(now.facts.entities)
    if begins is None or begins >= earlier.until:
        coverage = say("change.not_recorded")
    elif begins > earlier.since:
        coverage = say("change.partly_recorded", begin=in_utc(begins))
    else:
        coverage = None
    return {
        "label": earlier.label,
        "since": iso(earlier.since),
        "until": iso(earlier.until),
        "is_covered": is_covered(earlier, now),
        "coverage": coverage,
    }


def is_covered(earlier: Window, now: Material) -> bool:
    """Whether anything was recorded in a window or before it."""
    begins = _first_moment(now.facts.entities)
    return begins is not None and begins < earlier.until


def with_changes(numbers: list[Plain], earlier: list[Plain], n_unknown: int = 0) -> list[Plain]:
    """The numbers of this window, each with its change against the earlier window.

    Open runs are not compared where the earlier state of ``n_unknown`` runs is not recorded.
    """
    before = {number["name"]: number for number in earlier}
    n_shares = sum(bool(figure["of"] and before[figure["name"]]["of"]) for figure in numbers)
    alpha = false_alarm_rate(n_shares, has_limits=any("limits" in figure for figure in numbers))
    return [
        {**number, "change": _change(number, before[number["name"]], n_unknown, alpha)}
        for number in numbers
    ]


def _change(now: Plain, before: Plain, n_unknown: int, alpha: float) -> Plain:
    if now["name"] == UNRESOLVED and n_unknown:
        return _as_change(now, None, say("change.unknown_open", n=n_unknown))
    if now["name"] == UNRESOLVED and not (now["of"] and before["of"]):
        return _as_change(now, before, say("change.none_open"))
    if now["of"] is None:
        return _as_change(now, before, _more_or_less(now["n"], before["n"]))
    if not now["of"] or not before["of"]:
        return _as_change(now, before, say("change.none_ended"))
    share_now, share_before = share_from(now), share_from(before)
    difference, low, high = share_now.minus(share_before)
    _, lowest, highest = share_now.minus(share_before, confidence=1 - alpha)
    is_significant = lowest > 0 or highest < 0
    words = say("change.share", difference=difference, before=before["share"], low=low, high=high)
    if not is_significant:
        # Alone it may look significant; of several numbers, one does so by chance.
        words += say("change.not_significant" if low <= 0 <= high else "change.one_of_several")
    name = "change.short" if is_significant else "change.short_not_significant"
    if points(difference) == points(0.0) and not is_significant:
        name = "change.short_same"
    return _as_change(
        now,
        before,
        words,
        say(name, difference=difference),
        difference=difference,
        interval=[low, high],
        is_clear=is_significant,
    )


def _as_change(
    now: Plain,
    before: Plain | None,
    words: str,
    short: str | None = None,
    *,
    difference: float | None = None,
    interval: list[float] | None = None,
    is_clear: bool | None = None,
) -> Plain:
    if before is not None and now["of"] is None:
        difference = float(now["n"] - before["n"])
    return {
        "n": before["n"] if before else None,
        "of": before["of"] if before else None,
        "difference": difference,
        "interval": interval,
        "is_clear": is_clear,
        "words": words,
        "short": short or (words if now["of"] is None else say("change.short_unknown")),
    }


def _more_or_less(now: int, before: int) -> str:
    if now == before:
        return say("change.same", n=before) if before else say("change.none")
    name = "change.more" if now > before else "change.fewer"
    return say(name, n=abs(now - before), before=before)


def _earlier_by(step: timedelta, window: Window) -> Window:
    try:
        since, until = window.since - step, window.until - step
    except OverflowError:
        raise ArgumentError(
            f"There is no window before {window.label}.",
            'leave it out: compare="none"',
            shell="leave it out: --compare none",
        ) from None
    return Window(since, until, f"{in_utc(since)} to {in_utc(until)}")


def _first_moment(entities: pl.DataFrame) -> datetime | None:
    first = entities.select(pl.min_horizontal("created_at", "started_at", "ended_at").min()).item()
    return first if isinstance(first, datetime) else None


_SHARE_FIELDS = ("n_units", "n_effective", "n_if_alike", "degrees")


def share_fields(share: ClusteredShare | None) -> Plain:
    """The fields of a share that its interval is computed from; infinite degrees are null."""
    if share is None:
        return dict.fromkeys(_SHARE_FIELDS)
    fields = {name: getattr(share, name) for name in _SHARE_FIELDS}
    return fields | {"degrees": share.degrees if math.isfinite(share.degrees) else None}


def share_from(figure: Plain) -> ClusteredShare:
    """The share of a headline number, from its fields."""
    known = figure | {"degrees": math.inf if figure["degrees"] is None else figure["degrees"]}
    return ClusteredShare(figure["n"], figure["of"], *(known[name] for name in _SHARE_FIELDS))

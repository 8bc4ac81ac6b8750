"""How the headline numbers changed: against the earlier window, and against their own past."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from stateanalytics.core.windows import LAST_WEEK, WEEK, Window, in_utc, iso_week, read_window
from stateanalytics.core.words import capitalised, count, number, points, share
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
"""Of a whole report: of all that it calls growing, higher, lower, above or below together."""

LIMITS = 0.0175
"""For weeks beyond the limits of many, and as much again for new levels."""
GROWING = 0.01
"""For clusters that grow."""


def of_changes(n_compared: int, *, has_limits: bool) -> float:
    """How often each of so many changes against an earlier window may be a false one.

    They share what is left, which is little where many weeks say the same, and better.

    Examples
    --------
    >>> round(of_changes(2, has_limits=False), 6)
    0.02
    """
    left = FALSE_ALARMS - GROWING - (2 * LIMITS if has_limits else 0.0)
    return left / max(n_compared, 1)


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
            f"What a report is compared with is a window, too: {error.problem}",
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
    """Which window stands beside this one, and how much of it the data cover."""
    if earlier is None:
        return None
    begins = _first_moment(now.facts.entities)
    if begins is None or begins >= earlier.until:
        coverage = "Nothing was recorded then, so no change is given."
    elif begins > earlier.since:
        coverage = f"The data begin {in_utc(begins)}, so only a part of it is covered."
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
    """Whether anything was recorded in or before a window."""
    begins = _first_moment(now.facts.entities)
    return begins is not None and begins < earlier.until


def with_changes(numbers: list[Plain], earlier: list[Plain], n_unknown: int = 0) -> list[Plain]:
    """The numbers of this window, each with its change against the earlier one.

    What is open is not compared where nobody recorded how ``n_unknown`` runs stood then.
    """
    before = {number["name"]: number for number in earlier}
    n_shares = sum(bool(each["of"] and before[each["name"]]["of"]) for each in numbers)
    alpha = of_changes(n_shares, has_limits=any("limits" in each for each in numbers))
    return [
        {**number, "change": _change(number, before[number["name"]], n_unknown, alpha)}
        for number in numbers
    ]


def _change(now: Plain, then: Plain, n_unknown: int, alpha: float) -> Plain:
    if now["name"] == UNRESOLVED and n_unknown:
        return _as_change(now, None, f"How {count(n_unknown, 'run')} stood then is not recorded.")
    if now["name"] == UNRESOLVED and not (now["of"] and then["of"]):
        return _as_change(now, then, "No run was open at the end of one of the two windows.")
    if now["of"] is None:
        return _as_change(now, then, _more_or_less(now["n"], then["n"]))
    if not now["of"] or not then["of"]:
        return _as_change(now, then, "No run ended in one of the two windows.")
    shares = [share_from(side) for side in (now, then)]
    difference, low, high = shares[0].minus(shares[1])
    _, least, most = shares[0].minus(shares[1], confidence=1 - alpha)
    is_clear = least > 0 or most < 0
    is_beside = ", too little to tell of one of several numbers"
    is_within = low <= 0 <= high
    verdict = "" if is_clear else ", within what chance does" if is_within else is_beside
    moved = points(difference)
    is_same = moved == points(0.0) and not is_clear
    short = "as before" if is_same else f"{moved}, {'clear' if is_clear else 'may be chance'}"
    words = (
        f"{points(difference)} against {share(then['share'])} "
        f"(95 %: {points(low)} to {points(high)}){verdict}"
    )
    return _as_change(
        now, then, words, short, difference=difference, interval=[low, high], is_clear=is_clear
    )


def _as_change(
    now: Plain,
    then: Plain | None,
    words: str,
    short: str | None = None,
    *,
    difference: float | None = None,
    interval: list[float] | None = None,
    is_clear: bool | None = None,
) -> Plain:
    if then is not None and now["of"] is None:
        difference = float(now["n"] - then["n"])
    return {
        "n": then["n"] if then else None,
        "of": then["of"] if then else None,
        "difference": difference,
        "interval": interval,
        "is_clear": is_clear,
        "words": words,
        "short": short or (words if now["of"] is None else "no change known"),
    }


def _more_or_less(now: int, then: int) -> str:
    if now == then:
        return f"as many as before, {number(then)}" if then else "none before either"
    step = number(abs(now - then))
    return f"{step} {'more' if now > then else 'fewer'} than {number(then)} before"


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
    """What an interval of a share rests on; as many degrees as there are, null: it is known."""
    if share is None:
        return dict.fromkeys(_SHARE_FIELDS)
    told = {name: getattr(share, name) for name in _SHARE_FIELDS}
    return told | {"degrees": share.degrees if math.isfinite(share.degrees) else None}


def share_from(told: Plain) -> ClusteredShare:
    """The share of a number of this section."""
    known = told | {"degrees": math.inf if told["degrees"] is None else told["degrees"]}
    return ClusteredShare(told["n"], told["of"], *(known[name] for name in _SHARE_FIELDS))

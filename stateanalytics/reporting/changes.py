"""How the headline numbers changed: against the earlier window, and against their own past."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import partial

import polars as pl

from stateanalytics.core.windows import (
    LAST_WEEK,
    WEEK,
    Window,
    instant,
    minute_of,
    read_window,
    zone_of,
)
from stateanalytics.core.words import capitalised, how_long, interval, number, points, say, share
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.material import Material, Plain, iso
from stateanalytics.state.definitions import RUN
from stateanalytics.state.population import is_counted
from stateanalytics.stats.intervals import rate_ratio
from stateanalytics.stats.process_control import newest_change
from stateanalytics.stats.shares import ClusteredShare
from stateanalytics.weekly import TIME_TO_COMPLETE
from stateanalytics.weekly_limits import FEWEST_WEEKS, OF_ALL, SHARES, WORSE, back, points_of

INCIDENTS = "incidents"
BURSTS = 2.0
"""Dispersion of incident counts (variance over mean) where no earlier weeks can show it."""
PER_RUN = ("completed", "timed_out", "incidents")
"""Numbers of ended runs that are judged against all earlier weeks."""
FALSE_ALARMS = 0.05
"""Probability that a report of an unchanged week calls anything changed or growing."""

LIMITS: Mapping[str, float] = {
    **{"completed": 0.012, "timed_out": 0.0025, "incidents": 0.005},
    **{"time_to_complete": 0.01, "time_to_complete_by_kind": 0.001},
}
"""The part of `FALSE_ALARMS` that each number may spend; the most important get the most."""
GROWING = 0.017
"""The part of `FALSE_ALARMS` for growing clusters."""


def false_alarm_rate(n_compared: int, *, has_limits: bool) -> float:
    """The false-alarm rate of each of several changes against the earlier window.

    They share what `LIMITS` and `GROWING` leave of the budget. That is little where there are
    enough earlier weeks, because those are the better test.

    Examples
    --------
    >>> round(false_alarm_rate(2, has_limits=False), 6)
    0.0165
    """
    rest = FALSE_ALARMS - GROWING - (sum(LIMITS.values()) if has_limits else 0.0)
    return rest / max(n_compared, 1)


FEWEST_DRAWN, MOST_DRAWN = 4, 12
OPEN = "unresolved"
"""Drawn as the number of runs open at the end of each window, because computing which of them
need attention would take a past state for each window."""


def with_limits(headline: Plain, material: Material) -> Plain:
    """The numbers of the headline, each with its past weeks and its normal range.

    Notes
    -----
    Earlier windows of the same length are counted from what is known now, over runs that had
    ended. With this window there must be `FEWEST_DRAWN` to draw them, as ``weeks``, and
    `FEWEST_WEEKS` for a normal range, as ``limits``.
    """
    every = [*material.earlier_windows, material.named_window]
    if len(every) < FEWEST_DRAWN:
        return headline
    of_measures, limits = _judged(material)
    drawn = {name: part["value"] for name, part in of_measures.items()}
    drawn[OPEN] = _open_at_ends(material, every)
    numbers = [
        {**figure, **_weeks(drawn[figure["name"]])}
        | ({"drawn": say("limits.open_bars")} if figure["name"] == OPEN else {})
        | ({"limits": limits[figure["name"]]} if figure["name"] in limits else {})
        for figure in headline["numbers"]
    ]
    labels = [window.label for window in every]
    numbers += filter(None, [time_figure(material, limits.get("completed"))])
    return {**headline, "numbers": numbers, "weeks": labels[-MOST_DRAWN:]}


def _judged(material: Material) -> tuple[dict[str, pl.DataFrame], dict[str, Plain]]:
    """The weeks of each number of ended runs, and what those `PER_RUN` show."""
    parts = {part["measure"][0]: part for part in material.numbers.partition_by("measure")}
    judged = {name: against_its_past(parts[name], LIMITS[name]) for name in PER_RUN}
    return parts, {name: found for name, found in judged.items() if found}


def rate_of_growing(material: Material) -> float:
    """The part of the false alarms for growing clusters.

    The part of a number that is called worse passes on to the clusters: either that call is
    already the report's false alarm, or it is true and spent nothing [1]_.

    References
    ----------
    .. [1] Wiens, B. L. and Dmitrienko, A. (2005). The fallback procedure for evaluating a single
       family of hypotheses. Journal of Biopharmaceutical Statistics 15, 929-942.
    """
    if len(material.earlier_windows) + 1 < FEWEST_WEEKS:
        return GROWING
    up, limits = {"higher": 1, "lower": -1}, _judged(material)[1]
    worse = [name for name, found in limits.items() if up.get(found["verdict"]) == WORSE[name]]
    return GROWING + sum(LIMITS[name] for name in worse)


def time_figure(material: Material, completed: Plain | None) -> Plain | None:
    """The time to complete as a number of the headline; None: too few weeks.

    Where fewer runs complete, the moment at which half of all have completed comes later, even
    if each takes as long as before. So where ``completed`` is lower, a longer time is unclear.
    """
    series = material.times.filter(pl.col("group_kind").is_null())
    limits = against_its_past(series, LIMITS[TIME_TO_COMPLETE])
    if limits is None:
        return None
    if limits["verdict"] == "higher" and completed and completed["verdict"] == "lower":
        level, before = (how_long(limits[at], is_estimate=True) for at in ("level", "expected"))
        given = {"since": limits["since"], "level": level, "before": before}
        words = capitalised(say("limits.fewer", **given))
        short = say("limits.short_fewer", **given)
        limits |= {"verdict": "unclear", "words": words, "short": short}
    # `times` has no row for a window in which no run began.
    every = (*material.earlier_windows, material.named_window)
    windows = pl.DataFrame({"week": [window.label for window in every]})
    of_windows = windows.join(series, on="week", how="left", maintain_order="left")
    now = series.row(-1, named=True)
    ends = [now["own_lower"], now["own_upper"]]
    is_sure = None not in ends
    shown = [how_long(end, is_estimate=True) for end in (now["value"], *ends)]
    counted = say(timed(material.attempts), n=now["n"], n_of=now["n_of"])
    return {
        "name": TIME_TO_COMPLETE,
        "title": say("headline.duration"),
        **{"n": now["n"], "of": now["n_of"], "share": None, "shown": shown[0]},
        "interval": ends if is_sure else None,
        "shown_interval": say("headline.range", low=shown[1], high=shown[2]) if is_sure else None,
        "unit": "invocation",
        **share_fields(None),
        "n_units": now["n_units"],
        "counted": f"{counted} completed",
        "note": say("headline.note_duration", counted=counted),
        "denominator": "",
        "limits": limits,
        **_weeks(of_windows["value"]),
    }


def timed(attempts: pl.DataFrame) -> str:
    """The sentence for what has a time to complete: turns of transcripts, or runs and attempts."""
    is_turn = attempts["entity_type"] == "turn"
    if is_turn.all():
        return "headline.turns"
    is_mixed = is_turn.any() or (attempts["n_resumed"] > 0).any()
    return "headline.attempts" if is_mixed else "headline.runs"


def _weeks(values: pl.Series) -> Plain:
    """The last windows of a number, oldest first, null where nothing ended."""
    weeks = values.tail(MOST_DRAWN).to_list()
    most = max((value or 0.0 for value in weeks), default=0.0)
    return {"weeks": weeks, "bars": [(value or 0.0) / most if most else 0.0 for value in weeks]}


def _open_at_ends(material: Material, windows: Sequence[Window]) -> pl.Series:
    """Number of counted runs that were open at the end of each window, as known now."""
    began = pl.coalesce("started_at", "created_at")
    is_open_at = [
        is_counted(RUN) & (began < until) & (pl.col("is_open") | (pl.col("placed_at") >= until))
        for until in (instant(window.until) for window in windows)
    ]
    counts = (is_open.sum().alias(str(place)) for place, is_open in enumerate(is_open_at))
    return pl.Series(material.ever.select(counts).row(0), dtype=pl.Int64)


def explained_windows(
    headline: Plain, material: Material, earlier: Window | None
) -> tuple[Window, Window] | None:
    """The time since the share of completed runs changed, and the time before; None: no past.

    Without a change: this window, and all earlier windows.
    """
    [completed] = [figure for figure in headline["numbers"] if figure["name"] == "completed"]
    window, limits = material.window, completed.get("limits")
    since = {past.label: past.since for past in material.earlier_windows}
    if limits is None or not since:
        return None if earlier is None else (window, earlier)
    start, first = since.get(limits["since"], window.since), min(since.values())
    return Window(start, window.until, ""), Window(first, start, "")


def against_its_past(series: pl.DataFrame, alpha: float) -> Plain | None:
    """What the newest windows of a number show against those before; None: too few."""
    if series.height < FEWEST_WEEKS:
        return None
    rows, points = points_of(series)
    if len(points) < FEWEST_WEEKS or rows[-1]["week"] != series["week"][-1]:
        return None
    measure = rows[-1]["measure"]
    found = newest_change(points, alpha=alpha, worse=WORSE[measure])
    if found is None:
        return None
    of_past, of_level = ("before", "low", "high"), ("level", "level_low", "level_high")
    before, low, high, level, level_low, level_high = (
        back(getattr(found, name), rows[-1]) for name in (*of_past, *of_level)
    )
    in_units = partial(how_long, is_estimate=True) if measure == TIME_TO_COMPLETE else number
    shown: Callable[[float], str] = share if measure in SHARES else in_units
    verdict = "within"
    if found.start is not None:
        verdict = "higher" if found.level > found.before else "lower"
    if verdict == "lower" and OF_ALL in series.columns:
        # If the longest runs fail early, the rest looks faster though nothing completes sooner.
        of_all = against_its_past(series.with_columns(value=OF_ALL).drop(OF_ALL), alpha)
        verdict = "lower" if of_all and of_all["verdict"] == "lower" else "unclear"
    since = None if found.start is None else rows[found.start]["week"]
    ends = (low, high)
    normal = interval(ends) if measure in SHARES else say("headline.range", **_ends(ends, shown))
    given = {"since": since, "level": shown(level), "before": shown(before), "normal": normal}
    return {
        "verdict": verdict,
        "since": since,
        "expected": before,
        "interval": [low, high],
        "level": level,
        "level_interval": [level_low, level_high],
        "alpha": alpha,
        # A level of several weeks can be clear though its last week alone is in the range.
        "normal": say(
            "limits.normal_of_one"
            if since and found.low <= points[-1].value <= found.high
            else "limits.normal",
            normal=normal,
        ),
        "short": say(f"limits.short_{verdict}", **given),
        "words": capitalised(
            say(f"limits.{verdict}", **given, **_ends((level_low, level_high), shown))
        ),
    }


def _ends(ends: tuple[float, float], shown: Callable[[float], str]) -> Plain:
    return dict(zip(("low", "high"), map(shown, ends), strict=True))


PREVIOUS, NONE = "previous", "none"


def earlier_window(
    compare: object, window: Window, *, as_of: datetime, tz: str | None = None
) -> Window | None:
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
    tz : str, optional
        The time zone of its days; UTC by default.

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
    >>> as_of = datetime(2026, 5, 27, tzinfo=UTC)
    >>> this = read_window("2026-W21", as_of=as_of)
    >>> earlier_window("previous", this, as_of=as_of).since.isoformat()
    '2026-05-11T00:00:00+00:00'
    """
    if compare is None or compare == NONE:
        return None
    zone = zone_of(tz)
    if compare in (PREVIOUS, LAST_WEEK):
        return _earlier(window, zone, by=WEEK if compare == LAST_WEEK else None)
    try:
        earlier = read_window(compare, as_of=as_of, tz=tz)
    except ArgumentError as error:
        raise ArgumentError(
            f"The window that a report is compared with is wrong: {error.problem}",
            'compare="previous", "last-week", None, or an earlier window',
            shell="--compare previous, last-week, none, or an ISO week such as 2026-W20",
        ) from None
    if earlier.since >= window.since:
        raise ArgumentError(
            f"A report is compared with an earlier window; {earlier.label} does not begin "
            f"before {minute_of(window.since, zone)}.",
            'name an earlier one, such as "last-week"',
            shell="name an earlier one, such as --compare last-week",
        )
    return earlier


def compared_with(earlier: Window | None, now: Material) -> Plain | None:
    """The window of the comparison, and how much of it the data cover."""
    if earlier is None:
        return None
    begins, coverage = now.begins, None
    if begins is None or begins >= earlier.until:
        coverage = say("change.not_recorded")
    elif begins > earlier.since:
        coverage = say("change.partly_recorded", begin=minute_of(begins, zone_of(now.zone)))
    return {
        "label": earlier.label,
        "since": iso(earlier.since),
        "until": iso(earlier.until),
        "is_covered": is_covered(earlier, now),
        "coverage": coverage,
    }


def is_covered(earlier: Window, now: Material) -> bool:
    """Whether anything was recorded in a window or before it."""
    begins = now.begins
    return begins is not None and begins < earlier.until


def with_changes(numbers: list[Plain], earlier: list[Plain], n_unknown: int = 0) -> list[Plain]:
    """The numbers of this window, each with its change against the earlier window.

    Open runs are not compared where the earlier state of ``n_unknown`` runs is not recorded.
    """
    by_name, before = ({one["name"]: one for one in each} for each in (numbers, earlier))
    n_compared = sum(
        "limits" not in figure
        and (figure["name"] == INCIDENTS or bool(figure["of"] and before[figure["name"]]["of"]))
        for figure in numbers
    )
    ended = [of["completed"]["of"] for of in (by_name, before) if "completed" in of]
    alpha = false_alarm_rate(n_compared, has_limits=any("limits" in figure for figure in numbers))
    return [
        {**number, "change": _change(number, before.get(number["name"]), n_unknown, alpha, ended)}
        for number in numbers
    ]


def _change(
    now: Plain, before: Plain | None, n_unknown: int, alpha: float, ended: list[int]
) -> Plain:
    """The change of a number; ``ended`` has the runs that ended in this window and before."""
    if before is None:
        # It is not a number of the earlier window; only its weekly series judges it.
        limits = now["limits"]
        has_moved = limits["verdict"] in ("higher", "lower")
        return _as_change(now, None, limits["words"], limits["short"], is_clear=has_moved)
    is_open = now["name"] == OPEN
    if is_open and n_unknown:
        return _as_change(now, None, say("change.unknown_open", n=n_unknown))
    # Neither open runs nor a weekly series need runs that ended in the earlier window.
    is_none_before = ended[1:] == [0] and not is_open and "limits" not in now
    if is_none_before or (is_open and not (now["of"] and before["of"])):
        words = say("change.none_before" if is_none_before else "change.none_open")
        return _as_change(now, before, words, "" if is_none_before else None)
    if now["of"] is None:
        words, limits = _more_or_less(now["n"], before["n"]), now.get("limits")
        short = limits and say("change.judged", change=words, limits=limits["short"])
        is_clear = limits and limits["verdict"] != "within"
        if now["name"] == INCIDENTS and not limits:
            # More runs have more incidents, so the test compares incidents per run, as weeks do.
            n, n_before, (runs, runs_before) = now["n"], before["n"], ended or (1, 1)
            chance = rate_ratio(n, runs, n_before, runs_before, dispersion=BURSTS).p_value
            is_more = n * runs_before > n_before * runs
            is_significant = chance is not None and chance <= alpha
            if n != n_before or is_significant:
                words += per_run(is_more=is_more, is_significant=is_significant)
            is_clear = is_significant and n != n_before and is_more == (n > n_before)
        return _as_change(now, before, words, short, is_clear=is_clear)
    if not now["of"] or not before["of"]:
        return _as_change(now, before, say("change.none_ended"))
    share_now, share_before = share_from(now), share_from(before)
    difference, low, high = share_now.minus(share_before)
    words = say("change.share", difference=difference, before=before["share"], low=low, high=high)
    if "limits" in now:
        # All earlier weeks judge the change; the one window before says less.
        short = say("change.judged", change=points(difference), limits=now["limits"]["short"])
        is_clear = now["limits"]["verdict"] != "within"
    else:
        _, lowest, highest = share_now.minus(share_before, confidence=1 - alpha)
        is_clear = lowest > 0 or highest < 0
        name = "change.short"
        if not is_clear:
            # It may be significant by itself, but not as one of several comparisons.
            words += say("change.not_significant" if low <= 0 <= high else "change.one_of_several")
            is_same = points(difference) == points(0.0)
            name = "change.short_same" if is_same else "change.short_not_significant"
        short = say(name, difference=difference)
    return _as_change(
        now, before, words, short, difference=difference, interval=[low, high], is_clear=is_clear
    )


def per_run(*, is_more: bool, is_significant: bool) -> str:
    """Whether there is more of something for each run than before, or less."""
    significant = "change.more_per_run" if is_more else "change.less_per_run"
    return say(significant if is_significant else "change.not_per_run")


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
        "short": words if short is None and now["of"] is None else short,
    }


def _more_or_less(now: int, before: int) -> str:
    if now == before:
        return say("change.same", n=before) if before else say("change.none")
    name = "change.more" if now > before else "change.fewer"
    return say(name, n=abs(now - before), before=before)


def _earlier(window: Window, zone: tzinfo, by: timedelta | None) -> Window:
    """The window shifted back by a step, by default its own length.

    A window of whole days is shifted by calendar days, also over a change to summer time.
    """
    try:
        ends = (window.since.astimezone(zone), window.until.astimezone(zone))
        is_of_days = all(end.time() == time.min for end in ends)
        since, until = ends if is_of_days else (window.since, window.until)
        step = by or until - since
        since, until = since - step, until - step
    except OverflowError:
        raise ArgumentError(
            f"There is no window before {window.label}.",
            'leave it out: compare="none"',
            shell="leave it out: --compare none",
        ) from None
    label = f"{minute_of(since, zone)} to {minute_of(until, zone)}"
    return Window(since.astimezone(UTC), until.astimezone(UTC), label)


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

"""The same numbers for an earlier window, and how far the two differ."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from stateanalytics.core.windows import WEEK, Window, in_utc, read_window
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.material import Material, Plain, iso
from stateanalytics.reporting.phrases import number, points, share
from stateanalytics.stats.intervals import newcombe

PREVIOUS, LAST_WEEK, NONE = "previous", "last-week", "none"
NOT_COMPARED = {"unresolved": "How open work stood then is not recorded."}


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


def compared_with(earlier: Window | None, now: Material, then: Material | None) -> Plain | None:
    """Which window stands beside this one, and how much of it the data cover."""
    if earlier is None or then is None:
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
        "is_covered": begins is not None and begins < earlier.until,
        "coverage": coverage,
    }


def with_changes(numbers: list[Plain], earlier: list[Plain]) -> list[Plain]:
    """The numbers of this window, each with its change against the earlier one."""
    then = {one["name"]: one for one in earlier}
    return [{**one, "change": _change(one, then[one["name"]])} for one in numbers]


def _change(now: Plain, then: Plain) -> Plain:
    if why := NOT_COMPARED.get(now["name"]):
        return _as_change(now, None, why)
    if now["of"] is None:
        return _as_change(now, then, _more_or_less(now["n"], then["n"]))
    if not now["of"] or not then["of"]:
        return _as_change(now, then, "No run ended in one of the two windows.")
    difference, low, high = newcombe(now["n"], now["of"], then["n"], then["of"])
    is_clear = low > 0 or high < 0
    verdict = "" if is_clear else ", within what chance does"
    said = (
        f"{points(difference)} against {share(then['share'])} "
        f"(95 %: {points(low)} to {points(high)}){verdict}"
    )
    return _as_change(
        now, then, said, difference=difference, interval=[low, high], is_clear=is_clear
    )


def _as_change(
    now: Plain,
    then: Plain | None,
    words: str,
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

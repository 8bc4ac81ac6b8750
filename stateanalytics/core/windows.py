"""A stretch of time to report on, from what people type; always half-open, in UTC."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeAlias

from stateanalytics.errors import ArgumentError

Moment: TypeAlias = datetime | date | str | int | float

WEEK = timedelta(days=7)
TICK = timedelta(microseconds=1)
_ISO_WEEK = re.compile(r"(\d{4})-?[Ww](\d{2})")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_HOW = 'window="2026-W21", or window=("2026-05-18", "2026-05-25")'
_HOW_IN_SHELL = "--week 2026-W21, or --since 2026-05-18 --until 2026-05-25"


@dataclass(frozen=True)
class Window:
    """From ``since`` up to, but without, ``until``.

    Attributes
    ----------
    since, until : datetime
        In UTC; ``since < until``.
    label : str
        How people call it.
    """

    since: datetime
    until: datetime
    label: str

    @property
    def days(self) -> float:
        """Length in days."""
        return (self.until - self.since) / timedelta(days=1)


LAST_WEEK = "last-week"


def read_window(window: object, *, as_of: datetime) -> Window:
    """The window that someone asked for.

    Parameters
    ----------
    window : str, pair of moments, Window, or None
        An ISO week (``"2026-W21"``: Monday to Monday, UTC); ``"last-week"``, the last one that
        is over at as-of; a pair ``(since, until)`` of
        datetimes, ISO texts or epoch seconds, where a missing ``until`` means as-of and a
        missing ``since`` seven days before ``until``; None: the seven days up to as-of.
    as_of : datetime
        The instant that the states are read at.

    Returns
    -------
    Window
        Half-open. One that ends at as-of still contains as-of itself.

    Raises
    ------
    ArgumentError
        If it is no window, a week that the year does not have, empty, reversed, or
        begins after as-of.

    Notes
    -----
    Without a window the last seven days are taken and not the calendar week: on a
    Monday morning the week is one hour old, and nobody asks for that.

    Examples
    --------
    >>> as_of = datetime(2026, 5, 27, tzinfo=UTC)
    >>> read_window("2026-W21", as_of=as_of).since.isoformat()
    '2026-05-18T00:00:00+00:00'
    >>> read_window("last-week", as_of=as_of) == read_window("2026-W21", as_of=as_of)
    True
    >>> read_window(None, as_of=as_of).label
    'the 7 days up to 2026-05-27 00:00 UTC'
    """
    asked = _as_asked(window, as_of)
    if asked.since == asked.until:
        raise ArgumentError(
            f"A window needs a length; {in_utc(asked.since)} to {in_utc(asked.until)} has none.",
            "the end is not part of a window: for one day, end it at the next midnight",
        )
    if asked.since > asked.until:
        raise ArgumentError(
            f"A window runs forward; this one goes from {in_utc(asked.since)} "
            f"back to {in_utc(asked.until)}.",
            "swap the two: (since, until)",
            shell="swap --since and --until; without --until a window ends at as-of",
        )
    if asked.since > as_of:
        raise ArgumentError(
            f"The window ({asked.label}) lies in the future: it begins {in_utc(asked.since)}, "
            f"and the data are read as of {in_utc(as_of)}.",
            f"choose a window that begins before that, or leave it out; {_HOW}",
            shell=f"choose a window that begins before that, or leave it out; {_HOW_IN_SHELL}",
        )
    return asked


def weeks_up_to(as_of: datetime, n: int) -> list[Window]:
    """The last ISO weeks, oldest first; the last one holds the instant, or ends at it.

    Examples
    --------
    >>> as_of = datetime(2026, 5, 27, tzinfo=UTC)
    >>> [week.label[:13] for week in weeks_up_to(as_of, 2)]
    ['week 2026-W21', 'week 2026-W22']
    """
    last = (as_of - TICK).astimezone(UTC).date()
    return [_week(iso_week(last - WEEK * back)) for back in reversed(range(n))]


def iso_week(day: date) -> str:
    """The ISO week of a day, as people type it.

    Examples
    --------
    >>> iso_week(date(2026, 5, 18))
    '2026-W21'
    """
    year, week, _ = day.isocalendar()
    return f"{year:04}-W{week:02}"


def read_moment(value: object, name: str = "moment") -> datetime:
    """One instant in UTC, from a datetime, a date, ISO text or epoch seconds.

    Parameters
    ----------
    value : datetime, date, str, int or float
        Without a zone it is taken as UTC; a date is its midnight.
    name : str
        What to call it in the error.

    Raises
    ------
    ArgumentError
        If it is none of these, or no instant between the years 1 and 9999.

    Examples
    --------
    >>> read_moment("2026-05-18T12:00+02:00").isoformat()
    '2026-05-18T10:00:00+00:00'
    >>> read_moment(1779840000).isoformat()
    '2026-05-27T00:00:00+00:00'
    """
    try:
        moment = _moment(value)
    except (ValueError, OverflowError, OSError):
        moment = None
    if moment is None:
        raise ArgumentError(
            f"{name} needs a moment; found {value!r:.80}.",
            'a datetime, ISO text such as "2026-05-18" or "2026-05-18T12:00Z", or epoch seconds',
            shell="ISO text such as 2026-05-18 or 2026-05-18T12:00Z, or epoch seconds",
        )
    return moment


def in_utc(moment: datetime) -> str:
    """A moment for people, to the minute."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def day_of(moment: date) -> str:
    """Day and month for people; in English whatever the locale of the process.

    Examples
    --------
    >>> day_of(date(2026, 5, 18))
    'Mon 18 May'
    """
    return f"{_DAYS[moment.weekday()]} {moment.day} {_MONTHS[moment.month - 1]}"


def _moment(value: object) -> datetime | None:
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip())
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
    return None


def _as_asked(window: object, as_of: datetime) -> Window:
    if isinstance(window, Window):
        return window
    if window is None:
        until = as_of + TICK
        return Window(until - WEEK, until, f"the 7 days up to {in_utc(as_of)}")
    if window == LAST_WEEK:
        last, this = weeks_up_to(as_of, 2)
        return this if this.until <= as_of + TICK else last
    if isinstance(window, str):
        return _week(window)
    if (
        isinstance(window, (tuple, list))
        and len(window) == 2
        and any(x is not None for x in window)
    ):
        return _between(window[0], window[1], as_of)
    raise ArgumentError(
        f"window needs a week or a pair of moments; found {window!r:.80}.",
        _HOW,
        shell=_HOW_IN_SHELL,
    )


def _week(text: str) -> Window:
    parts = _ISO_WEEK.fullmatch(text.strip())
    if not parts:
        raise ArgumentError(
            f"window needs an ISO week; found {text!r:.80}.", _HOW, shell=_HOW_IN_SHELL
        )
    year, week = int(parts[1]), int(parts[2])
    try:
        monday = date.fromisocalendar(year, week, 1)
        sunday = monday + timedelta(days=6)
        since = datetime.combine(monday, time(), UTC)
        until = since + WEEK
    except ValueError:
        raise ArgumentError(
            f"There is no week {week} in {year}{_weeks_of(year)}.", _HOW, shell=_HOW_IN_SHELL
        ) from None
    except OverflowError:
        raise ArgumentError(
            f"There is no week {week} in {year} that can be read: it ends in the year {year + 1}, "
            f"and {year} is the last with dates.",
            _HOW,
            shell=_HOW_IN_SHELL,
        ) from None
    first = day_of(monday) if monday.year == sunday.year else f"{day_of(monday)} {monday.year}"
    days = f"{first} to {day_of(sunday)} {sunday.year}"
    return Window(since, until, f"week {year:04}-W{week:02}, {days}")


def _weeks_of(year: int) -> str:
    try:
        return f", which has {date(year, 12, 28).isocalendar().week}"
    except ValueError:
        return ""


def _between(since: object, until: object, as_of: datetime) -> Window:
    last = as_of + TICK if until is None else read_moment(until, "the end of the window")
    first = last - WEEK if since is None else read_moment(since, "the start of the window")
    shown = in_utc(as_of) if until is None else in_utc(last)
    return Window(first, last, f"{in_utc(first)} to {shown}")

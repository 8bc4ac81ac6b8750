"""A stretch of time to report on, from what people type; always half-open, in UTC."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from typing import TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import polars as pl

from stateanalytics.errors import ArgumentError, did_you_mean, in_short

Moment: TypeAlias = datetime | date | str | int | float

WEEK = timedelta(days=7)
TICK = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO_WEEK = re.compile(r"(\d{4})-?[Ww](\d{2})")
_PERIOD = re.compile(r"(\d{4})(?:-[Qq]([1-4])|-(\d{2})(?:-(\d{2}))?)?")
_AGO = re.compile(r"(\d{1,4}) ?([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DAYS_BACK = {"today": 0, "yesterday": 1}
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = (*("Jan", "Feb", "Mar", "Apr", "May", "Jun"), *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"))
_HOW = 'window="2026-W21", "2026-05", ("7d", None), or ("2026-05-18", "2026-05-25")'
_HOW_IN_SHELL = "--week 2026-W21, --since 7d, or --since 2026-05-18 --until 2026-05-25"


def instant(at: datetime) -> pl.Expr:
    """A moment as an expression: polars asks its engine twice for one with a time zone."""
    return pl.lit((at - EPOCH) // TICK, pl.Int64).cast(pl.Datetime("us", "UTC"))


def in_zone(local: pl.Expr, zone: str) -> pl.Expr:
    """A time that a clock shows, as a moment; where clocks skip it, an hour or a day later."""
    return pl.coalesce(
        at.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        for at in (local, local + pl.duration(hours=1), local + pl.duration(days=1))
    )


def step_of(name: str, every: str, zone: str) -> pl.Expr:
    """The beginning of the step, by the clock of a zone, in which a moment lies."""
    return in_zone(_on_clock(pl.col(name), every, zone), zone)


def steps_between(first: datetime, last: datetime, every: str, zone: str) -> pl.LazyFrame:
    """Every step from that of one moment to that of another: ``from_at`` and ``until``."""
    begin, end = (_on_clock(instant(at), every, zone) for at in (first, last))
    local = pl.datetime_range(begin, end, every, time_unit="us")
    until = in_zone(local.dt.offset_by(every), zone)
    # A step that the clock skips begins with the next one.
    begun = pl.LazyFrame().select(from_at=in_zone(local, zone), until=until)
    steps = begun.unique("from_at", keep="last", maintain_order=True)
    return steps.with_columns(until=pl.coalesce(pl.col("from_at").shift(-1), "until"))


def _on_clock(moment: pl.Expr, every: str, zone: str) -> pl.Expr:
    return moment.dt.convert_time_zone(zone).dt.replace_time_zone(None).dt.truncate(every)


@dataclass(frozen=True)
class Window:
    """A half-open window: ``since`` is part of it, ``until`` is not.

    Attributes
    ----------
    since, until : datetime
        In UTC; ``since < until``.
    label : str
        What people call it.
    """

    since: datetime
    until: datetime
    label: str

    @property
    def days(self) -> float:
        """Length in days."""
        return (self.until - self.since) / timedelta(days=1)

    def holds(self, column: str) -> pl.Expr:
        """Whether the moment of a row lies in the window; null where it has none."""
        return pl.col(column).is_between(instant(self.since), instant(self.until), closed="left")


LAST_WEEK = "last-week"


def read_window(window: object, *, as_of: datetime, tz: object = None) -> Window:
    """The window that someone asked for.

    Parameters
    ----------
    window : str, pair of moments, Window, or None
        An ISO week (``"2026-W21"``: Monday to Monday); a day (``"2026-05-21"``), a month
        (``"2026-05"``), a quarter (``"2026-Q2"``) or a year; ``"last-week"``, the last one that
        is over at as-of; a pair ``(since, until)`` of
        datetimes, ISO texts, epoch seconds, ``"today"`` or ``"yesterday"`` (from midnight), or
        a time before as-of (``"90m"``, ``"24h"``, ``"7d"``, ``"2w"``), where a missing
        ``until`` means as-of and a missing ``since`` seven days before ``until``; None: the
        seven days up to as-of.
    as_of : datetime
        The instant that the states are read at.
    tz : str, optional
        The time zone of the calendar and of moments without one; UTC by default.

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
    >>> read_window("2026-05", as_of=as_of, tz="Europe/Berlin").since.isoformat()
    '2026-04-30T22:00:00+00:00'
    """
    zone = zone_of(tz)
    asked = _as_asked(window, as_of, zone)
    since, until, last = (minute_of(at, zone) for at in (asked.since, asked.until, as_of))
    if asked.since == asked.until:
        raise ArgumentError(
            f"A window needs a length; {since} to {until} has none.",
            "the end is not part of a window: for one day, end it at the next midnight",
        )
    if asked.since > as_of:
        raise ArgumentError(
            f"The window begins {since}, but the data end, or are read as of, {last}.",
            f'begin it before that: window=("{last[:10]}", None); or read with a later as_of',
            shell=f"begin it before that, as --since {last[:10]} does, or name a later --as-of",
        )
    if asked.since > asked.until:
        raise ArgumentError(
            f"A window runs forward; this one goes from {since} back to {until}.",
            "swap the two: (since, until)",
            shell="swap --since and --until",
        )
    return asked


def period_before(window: Window, asked: object, zone: tzinfo = UTC) -> Window:
    """The week before a week, the month before a month; else as long, up to the window.

    Parameters
    ----------
    window : Window
        What `read_window` made of ``asked``.
    asked : str, pair of moments or Window
    zone : tzinfo

    Examples
    --------
    >>> may = read_window("2026-05", as_of=datetime(2026, 5, 27, tzinfo=UTC))
    >>> period_before(may, "2026-05").label
    'Apr 2026'
    """
    try:
        last = (window.since - TICK).astimezone(zone).date()
        if not isinstance(asked, str):
            length = window.until - window.since
            return Window(window.since - length, window.since, "the time before")
    except OverflowError:
        raise ArgumentError("There is no window before the first year.", _HOW) from None
    text = asked.strip()
    if text == LAST_WEEK or "W" in text.upper():
        return _calendar(iso_week(last), zone)
    if "Q" in text.upper():
        return _calendar(f"{last.year:04}-Q{(last.month + 2) // 3}", zone)
    return _calendar(last.isoformat()[: len(text)], zone)


def weeks_up_to(as_of: datetime, n: int) -> list[Window]:
    """The last ISO weeks, oldest first; the last one holds the instant, or ends at it.

    Examples
    --------
    >>> as_of = datetime(2026, 5, 27, tzinfo=UTC)
    >>> [week.label[:13] for week in weeks_up_to(as_of, 2)]
    ['week 2026-W21', 'week 2026-W22']
    """
    last = (as_of - TICK).astimezone(UTC).date()
    return [_calendar(iso_week(last - WEEK * back), UTC) for back in reversed(range(n))]


def iso_week(day: date) -> str:
    """The ISO week of a day, as people type it.

    Examples
    --------
    >>> iso_week(date(2026, 5, 18))
    '2026-W21'
    """
    year, week, _ = day.isocalendar()
    return f"{year:04}-W{week:02}"


def read_moment(value: object, name: str = "moment", zone: tzinfo = UTC) -> datetime:
    """One instant in UTC, from a datetime, a date, ISO text or epoch seconds.

    Parameters
    ----------
    value : datetime, date, str, int or float
        Without a zone it is taken as ``zone``; a date is its midnight.
    name : str
        What to call it in the error.
    zone : tzinfo

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
        moment = _moment(value, zone)
    except (ValueError, OverflowError, OSError):
        moment = None
    if moment is None:
        raise ArgumentError(
            f"{name} needs a moment; found {value!r:.80}.",
            'a datetime, ISO text such as "2026-05-18" or "2026-05-18T12:00Z", or epoch seconds',
            shell="ISO text such as 2026-05-18 or 2026-05-18T12:00Z, or epoch seconds",
        )
    return moment


def minute_of(moment: datetime, zone: tzinfo = UTC) -> str:
    """A moment for people, to the minute, by the clock of a zone, which is named.

    Examples
    --------
    >>> moment = datetime(2026, 5, 25, 5, 59, tzinfo=UTC)
    >>> minute_of(moment), minute_of(moment, zone_of("Europe/Berlin"))
    ('2026-05-25 05:59 UTC', '2026-05-25 07:59 CEST')
    """
    try:
        moment = moment.astimezone(zone)
    except OverflowError:  # before the first day, or after the last one
        moment = moment.astimezone(UTC)
    # `%Y` of a year before 1000 has four digits on some versions of Python only.
    return f"{moment.date()} {moment:%H:%M %Z}"


def day_of(moment: date) -> str:
    """Day and month for people; in English whatever the locale of the process.

    Examples
    --------
    >>> day_of(date(2026, 5, 18))
    'Mon 18 May'
    """
    return f"{DAYS[moment.weekday()]} {moment.day} {_MONTHS[moment.month - 1]}"


def _moment(value: object, zone: tzinfo) -> datetime | None:
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip())
    if isinstance(value, datetime):
        value = value.replace(tzinfo=zone) if value.tzinfo is None else value
        return value.astimezone(UTC)
    if isinstance(value, date):
        return _midnight(value, zone)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return EPOCH + timedelta(seconds=value)
    return None


def zone_of(tz: object) -> tzinfo:
    """The time zone of a name such as ``Europe/Berlin``; None: UTC.

    Raises
    ------
    ArgumentError
        If there is none of that name.

    Examples
    --------
    >>> zone_of("Europe/Berlin").key
    'Europe/Berlin'
    """
    if tz is None:
        return UTC
    try:
        return _zone_of(str(tz))
    except (ValueError, OSError, ZoneInfoNotFoundError, pl.exceptions.ComputeError):
        near = did_you_mean(str(tz)[:80], sorted(available_timezones()))
        raise ArgumentError(
            f"There is no time zone {in_short(tz)}.",
            'tz="Europe/Berlin", or tz="UTC"' + near,
            shell="--tz Europe/Berlin, or --tz UTC" + near,
        ) from None


@cache
def _zone_of(name: str) -> ZoneInfo:
    # Only zones that polars knows, too: no "localtime" of a machine.
    pl.Series([EPOCH]).dt.convert_time_zone(name)
    return ZoneInfo(name)


def _as_asked(window: object, as_of: datetime, zone: tzinfo) -> Window:
    if isinstance(window, Window):
        return window
    if window is None:
        until = as_of + TICK
        return Window(until - WEEK, until, f"the 7 days up to {minute_of(as_of, zone)}")
    if window == LAST_WEEK:
        last, this = (
            _calendar(iso_week((as_of - TICK).astimezone(zone).date() - back), zone)
            for back in (WEEK, timedelta())
        )
        return this if this.until <= as_of + TICK else last
    if isinstance(window, str):
        return _calendar(window, zone)
    if (
        isinstance(window, (tuple, list))
        and len(window) == 2
        and any(x is not None for x in window)
    ):
        return _between(window[0], window[1], as_of, zone)
    raise ArgumentError(
        f"window needs a week, a month or a pair of moments; found {window!r:.80}.",
        _HOW,
        shell=_HOW_IN_SHELL,
    )


def _calendar(text: str, zone: tzinfo) -> Window:
    """An ISO week, a day, a month, a quarter or a year, from midnight to midnight of a zone."""
    if parts := _ISO_WEEK.fullmatch(text.strip()):
        return _week(int(parts[1]), int(parts[2]), zone)
    parts = _PERIOD.fullmatch(text.strip())
    if not parts:
        raise ArgumentError(
            f"window needs a day, an ISO week, a month, a quarter or a year; found {text!r:.80}.",
            _HOW,
            shell=_HOW_IN_SHELL,
        )
    year, quarter, month, day = (int(part) if part else None for part in parts.groups())
    try:
        first = date(year or 0, 3 * quarter - 2 if quarter else month or 1, day or 1)
        n_months = 0 if day else 3 if quarter else 1 if month else 12
        whole = first.year * 12 + first.month - 1 + n_months
        after = date(whole // 12, whole % 12 + 1, 1) if n_months else first + timedelta(days=1)
        label = text.strip()
        if day or month:
            name = f"{_MONTHS[first.month - 1]} {first.year}"
            label = f"{DAYS[first.weekday()]} {first.day} {name}" if day else name
        return Window(_midnight(first, zone), _midnight(after, zone), label)
    except (ValueError, OverflowError):
        raise ArgumentError(
            f"There is no {text.strip()!r:.80} in the calendar.", _HOW, shell=_HOW_IN_SHELL
        ) from None


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)


def _week(year: int, week: int, zone: tzinfo) -> Window:
    try:
        monday = date.fromisocalendar(year, week, 1)
        sunday = monday + timedelta(days=6)
        since, until = _midnight(monday, zone), _midnight(monday + WEEK, zone)
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


def _between(since: object, until: object, as_of: datetime, zone: tzinfo) -> Window:
    last = as_of + TICK if until is None else _end(until, "the end of the window", as_of, zone)
    start = "the start of the window"
    try:
        first = last - WEEK if since is None else _end(since, start, as_of, zone)
    except OverflowError:
        raise ArgumentError(
            "The week before that end begins before the year 1.", _HOW, shell=_HOW_IN_SHELL
        ) from None
    shown = minute_of(as_of if until is None else last, zone)
    return Window(first, last, f"{minute_of(first, zone)} to {shown}")


def _end(value: object, name: str, as_of: datetime, zone: tzinfo) -> datetime:
    """One end of a window, which may be named by its distance from as-of."""
    text = value.strip().lower() if isinstance(value, str) else ""
    with suppress(OverflowError):  # before the first year
        if text in _DAYS_BACK:
            return _midnight(as_of.astimezone(zone).date() - timedelta(days=_DAYS_BACK[text]), zone)
        if ago := _AGO.fullmatch(text):
            # As without a window: 7d are the seven days up to as-of.
            return as_of + TICK - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        return read_moment(value, name, zone)
    except ArgumentError as error:
        raise ArgumentError(error.problem, _HOW, shell=_HOW_IN_SHELL) from None

"""How long a cron schedule waits between two fires, read from its expression alone.

lionagi asks `croniter` for the two occurrences after the newest sign of life and takes
their distance; the same rule here, for the five classic fields, names, steps, ranges
that wrap, ``@daily`` and the like, and *either* of day of month and day of week where
both are restricted. What else croniter knows (seconds and years, ``L``, ``W``, ``#``,
``H``, ``R``), and what its versions read in different ways, is not read and has no
cadence: better none than a guess.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_ITEM = re.compile(r"(\*|\?|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/(\d+))?")
_YEARS_AHEAD = 9  # the longest wait there is: from 29 February to the next, over 2100
MAX_EXPRESSION = 200


@dataclass(frozen=True)
class Cron:
    """The moments of an expression, as sets of the numbers that each field allows."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: tuple[int, ...]
    weekdays: frozenset[int]
    is_any_day: bool
    is_any_weekday: bool

    def falls_on(self, day: datetime) -> bool:
        """Is this a day of the schedule (its month aside)."""
        by_date = day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        if self.is_any_day or self.is_any_weekday:
            return by_date and by_weekday
        return by_date or by_weekday


@dataclass(frozen=True)
class _Field:
    """The numbers that a field may name, and names for them."""

    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The last number; Sunday is 0 and 7, and a week ends on Saturday."""
        return 6 if self.high == 7 else self.high

    def number(self, text: str) -> int:
        """The number that a text stands for; -1 where it is none."""
        if text.isdecimal() and text.isascii():
            return int(text)
        return self.names.get(text, -1)


_MINUTE, _HOUR, _DAY = _Field(0, 59), _Field(0, 23), _Field(1, 31)
_MONTH, _WEEKDAY = _Field(1, 12, _MONTHS), _Field(0, 7, _DAYS)


@lru_cache(maxsize=4096)
def parse(expression: str) -> Cron | None:
    """The schedule that an expression means; None where it cannot be read.

    Examples
    --------
    >>> parse("0 3 * * *").hours
    (3,)
    >>> parse("at dawn") is None
    True
    """
    text = " ".join(expression.lower().split())
    fields = _SHORTHANDS.get(text, text).split(" ")
    if len(fields) != 5 or len(text) > MAX_EXPRESSION:
        return None
    minutes = _numbers(fields[0], _MINUTE)
    hours = _numbers(fields[1], _HOUR)
    days = _numbers(fields[2], _DAY)
    months = _numbers(fields[3], _MONTH)
    weekdays = _numbers(fields[4], _WEEKDAY)
    if not (minutes and hours and days and months and weekdays) or "?" in (*fields[:2], fields[3]):
        return None
    return Cron(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        tuple(sorted(months)),
        frozenset(day % 7 for day in weekdays),
        is_any_day=_is_any(fields[2], days, 31, fields[4]),
        is_any_weekday=_is_any(fields[4], {day % 7 for day in weekdays}, 7, fields[2]),
    )


def _is_any(field: str, allowed: set[int], size: int, other: str) -> bool:
    """Does a day field leave the choice to the other one: it is a star, or equals one."""
    return field in ("*", "?") or (len(allowed) == size and "*" in other)


def _numbers(text: str, of: _Field) -> set[int]:
    """The numbers a field allows; empty where it cannot be read."""
    items = text.split(",")
    # In a list, versions of croniter take a star for one choice or for the whole field.
    if len(items) > 1 and not {"*", "?"}.isdisjoint(items):
        return set()
    matched = [_ITEM.fullmatch(item) for item in items]
    allowed = [_item(*one.groups(), of=of) if one else set() for one in matched]
    return set().union(*allowed) if all(allowed) else set()


def _item(first: str, last: str | None, step: str | None, *, of: _Field) -> set[int]:
    """What one item of a list allows; nothing where it cannot be read."""
    every = int(step) if step else 1
    if first in ("*", "?"):
        is_odd = last is not None or every == 0 or (first == "?" and step)
        return set() if is_odd else set(range(of.low, of.end + 1, every))
    begin, end = of.number(first), of.number(last or first)
    if not (of.low <= begin <= of.high and of.low <= end <= of.high and every > 0):
        return set()
    if last is None:
        return set(range(begin, max(begin, of.end) + 1, every)) if step else {begin}
    if begin == end or {begin, end} == {0, 7}:
        # "sun-sun" is written for the whole week.
        return set(range(of.low, of.end + 1, every))
    if begin < end:
        return set(range(begin, end + 1, every))
    # "fri-mon" goes on past the end of the week; where a step lands then, versions differ.
    return set() if step else {*range(begin, of.end + 1), *range(of.low, end + 1)}


def occurrences(cron: Cron, after: datetime) -> Iterator[datetime]:
    """The local moments of a schedule after a local moment, in order, for nine years."""
    begin = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    for year in range(begin.year, min(begin.year + _YEARS_AHEAD, 9999)):
        for month in cron.months:
            if (year, month) < (begin.year, begin.month):
                continue
            for number in range(1, calendar.monthrange(year, month)[1] + 1):
                day = begin.replace(year=year, month=month, day=number, hour=0, minute=0)
                if day.date() < begin.date() or not cron.falls_on(day):
                    continue
                for hour in cron.hours:
                    for minute in cron.minutes:
                        moment = day.replace(hour=hour, minute=minute)
                        if moment >= begin:
                            yield moment


def cadence_s(expression: str, reference_at: datetime, zone: str = "UTC") -> float | None:
    """The distance of the two fires that follow a moment.

    Parameters
    ----------
    expression : str
        A cron expression of five fields, or a shorthand such as ``@daily``.
    reference_at : datetime
        The moment to look from, with a time zone.
    zone : str
        The IANA zone that the expression is meant in; UTC where it cannot be loaded.

    Returns
    -------
    float or None
        Seconds; None where the expression cannot be read or never fires twice.

    Examples
    --------
    >>> from datetime import UTC
    >>> cadence_s("*/15 * * * *", datetime(2026, 5, 27, tzinfo=UTC))
    900.0
    >>> cadence_s("0 9 * * mon-fri", datetime(2026, 5, 29, tzinfo=UTC))  # a Friday
    259200.0
    """
    cron = parse(expression)
    if cron is None:
        return None
    local = _zone(zone)
    fires = occurrences(cron, reference_at.astimezone(local).replace(tzinfo=None))
    first, second = next(fires, None), next(fires, None)
    if first is None or second is None:
        return None
    gap = second.replace(tzinfo=local).timestamp() - first.replace(tzinfo=local).timestamp()
    return gap if gap > 0 else None


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")

"""How long a cron schedule waits between two fires, read from its expression alone.

lionagi asks `croniter` for the two occurrences after the newest sign of life and takes
their distance; the same rule here, for the five classic fields, names, steps, ranges
that wrap, ``@daily`` and the like, and *either* of day of month and day of week where
both are restricted. What cannot be read has no cadence.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
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
    minutes = _numbers(fields[0], 0, 59)
    hours = _numbers(fields[1], 0, 23)
    days = _numbers(fields[2], 1, 31)
    months = _numbers(fields[3], 1, 12, _MONTHS)
    weekdays = _numbers(fields[4], 0, 7, _DAYS)
    if not (minutes and hours and days and months and weekdays):
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


def _numbers(field: str, low: int, high: int, names: dict[str, int] | None = None) -> set[int]:
    """The numbers a field allows; empty where it cannot be read."""
    allowed: set[int] = set()
    for item in field.split(","):
        matched = _ITEM.fullmatch(item)
        if matched is None:
            return set()
        first, last, step = matched.groups()
        if first in ("*", "?"):
            begin, end = low, high if high != 7 else 6
            if last is not None:
                return set()
        else:
            begin, end = _number(first, names), _number(last or first, names)
            if step and last is None:
                end = high if high != 7 else max(begin, 6)
            elif last is not None and begin == end:
                # "sun-sun" is written for the whole week.
                begin, end = low, high if high != 7 else 6
        every = int(step) if step else 1
        if not (low <= begin <= high and low <= end <= high and every > 0):
            return set()
        if begin <= end:
            allowed.update(range(begin, end + 1, every))
        else:
            # "fri-mon" goes on past the end of the week.
            size = high - low + (1 if high != 7 else 0)
            allowed.update(
                low + (number - low) % size for number in range(begin, end + size + 1, every)
            )
    return allowed


def _number(text: str, names: dict[str, int] | None) -> int:
    if text.isdecimal() and text.isascii():
        return int(text)
    return (names or {}).get(text, -1)


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

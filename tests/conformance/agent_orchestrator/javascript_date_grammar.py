"""The grammar that `Date.parse` reads a text by: the ECMAScript one, then V8's legacy one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from tests.conformance.agent_orchestrator.javascript_date_tokens import (
    END,
    KEYWORD,
    NUMBER,
    Token,
    Tokens,
    tokens_of,
)

_MONTHS_BEFORE_MARCH = 2
_DAYS_TO_EPOCH = 719_468
_MS_PER_DAY = 86_400_000
_LARGEST_MS = 8_640_000_000_000_000
_MINUTES_PER_HOUR = 60
_YEAR_2_MS, _YEAR_9998_MS = -62_104_060_800_000, 253_339_228_800_000
_SMALLEST_SMI, _LARGEST_SMI = -(2**30), 2**30 - 1


@dataclass
class _Day:
    parts: list[int] = field(default_factory=list)
    month: int | None = None
    is_iso: bool = False

    def add(self, number: int) -> bool:
        if len(self.parts) == 3:
            return False
        self.parts.append(number)
        return True

    def date(self) -> tuple[int, int, int] | None:
        """Year, month and day, or nothing where they are none."""
        if not self.parts:
            return None
        first, second, third = (*self.parts, 1, 1)[:3]
        if self.month is not None:
            year, month, day = (
                (second, self.month, first) if _is_day(first) else (first, self.month, second)
            )
        elif self.is_iso or not _is_day(first):
            year, month, day = first, second, third
        else:
            year, month, day = third, first, second
        if not self.is_iso and 0 <= year <= 99:
            year += 2000 if year <= 49 else 1900
        is_date = _SMALLEST_SMI <= year <= _LARGEST_SMI and 1 <= month <= 12 and _is_day(day)
        return (year, month, day) if is_date else None


@dataclass
class _Time:
    parts: list[int] = field(default_factory=list)
    hour_offset: int | None = None

    def add(self, number: int) -> bool:
        if len(self.parts) == 4:
            return False
        self.parts.append(number)
        return True

    def add_last(self, number: int) -> None:
        self.parts = ([*self.parts, number, 0, 0, 0])[:4]

    def expects(self, number: int) -> bool:
        limits = {1: 59, 2: 59, 3: 999}
        return len(self.parts) in limits and 0 <= number <= limits[len(self.parts)]

    def ms(self) -> int | None:
        """Milliseconds of the day, or nothing where it is no time."""
        hour, minute, second, ms = (*self.parts, 0, 0, 0, 0)[:4]
        if self.hour_offset is not None:
            if not 0 <= hour <= 12:
                return None
            hour = hour % 12 + self.hour_offset
        in_range = 0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59 and 0 <= ms <= 999
        if not in_range and (hour, minute, second, ms) != (24, 0, 0, 0):
            return None
        return ((hour * 60 + minute) * 60 + second) * 1000 + ms


@dataclass
class _Zone:
    sign: int | None = None
    hour: int | None = None
    minute: int | None = None

    def set(self, hours: int) -> None:
        self.sign, self.hour, self.minute = (-1 if hours < 0 else 1), abs(hours), 0

    @property
    def is_utc(self) -> bool:
        return self.hour == 0 and self.minute == 0

    def expects(self, number: int) -> bool:
        return self.hour is not None and self.minute is None and 0 <= number <= 59

    def offset_ms(self) -> int | None:
        if self.sign is None:
            return None
        minutes = (self.hour or 0) * _MINUTES_PER_HOUR + (self.minute or 0)
        return self.sign * minutes * 60_000


@dataclass
class _Parts:
    day: _Day = field(default_factory=_Day)
    time: _Time = field(default_factory=_Time)
    zone: _Zone = field(default_factory=_Zone)


class _NoDateError(ValueError):
    """The text is no date."""


def read_date(text: str, zone: ZoneInfo) -> int | None:
    """Milliseconds since the epoch that a text means, or nothing where it is no date.

    Parameters
    ----------
    text : str
        Any text.
    zone : zoneinfo.ZoneInfo
        The zone of times without one.

    Returns
    -------
    int or None
        As `Date.parse`; None for NaN.

    Examples
    --------
    >>> read_date("2 Jan 1970 UTC", ZoneInfo("UTC"))
    86400000
    """
    tokens, parts = tokens_of(text), _Parts()
    try:
        unread = _read_standard(tokens, parts)
        _read_legacy(tokens, unread, parts)
    except _NoDateError:
        return None
    date, of_day = parts.day.date(), parts.time.ms()
    if date is None or of_day is None:
        return None
    wall = _days_from_civil(*date) * _MS_PER_DAY + of_day
    shift = parts.zone.offset_ms()
    ms = wall - (shift if shift is not None else _local_offset_ms(wall, zone))
    return ms if abs(ms) <= _LARGEST_MS else None


def _read_standard(tokens: Tokens, parts: _Parts) -> Token:
    """Read the ECMAScript format; give back the first token that is none of it."""
    day = parts.day
    if tokens.peek.is_sign:
        sign = tokens.next()
        if not tokens.peek.is_number_of(6):
            return sign
        year = tokens.next().value
        if sign.value < 0 and year == 0:
            return sign
        day.add(sign.value * year)
    elif tokens.peek.is_number_of(4):
        day.add(tokens.next().value)
    else:
        return tokens.next()
    for smallest, largest in ((1, 12), (1, 31)):
        if not tokens.skip("-"):
            break
        if not (tokens.peek.is_number_of(2) and smallest <= tokens.peek.value <= largest):
            return tokens.next()
        day.add(tokens.next().value)
    if tokens.peek.is_keyword("separator"):
        tokens.next()
        _read_standard_time(tokens, parts.time, parts.zone)
        _demand(tokens.peek.kind == END)
    elif tokens.peek.kind != END:
        return tokens.next()
    if parts.zone.sign is None and not parts.time.parts:
        parts.zone.set(0)
    day.is_iso = True
    return tokens.peek


def _read_standard_time(tokens: Tokens, time: _Time, zone: _Zone) -> None:
    _demand(tokens.peek.is_number_of(2) and tokens.peek.value <= 24)
    is_24 = tokens.peek.value == 24
    time.add(tokens.next().value)
    _demand(tokens.skip(":"))
    _read_two_digits(tokens, time, is_24)
    if tokens.skip(":"):
        _read_two_digits(tokens, time, is_24)
        if tokens.skip("."):
            _demand(tokens.peek.kind == NUMBER and not (is_24 and tokens.peek.value > 0))
            time.add(_thousandths(tokens.next()))
    if tokens.peek.is_zulu:
        tokens.next()
        zone.set(0)
    elif tokens.peek.is_sign:
        zone.sign = tokens.next().value
        _read_standard_offset(tokens, zone)


def _read_two_digits(tokens: Tokens, time: _Time, is_24: bool) -> None:
    token = tokens.peek
    _demand(token.is_number_of(2) and token.value <= (0 if is_24 else 59))
    time.add(tokens.next().value)


def _read_standard_offset(tokens: Tokens, zone: _Zone) -> None:
    if tokens.peek.is_number_of(4):
        zone.hour, zone.minute = divmod(tokens.next().value, 100)
    else:
        _demand(tokens.peek.is_number_of(2))
        zone.hour = tokens.next().value
        _demand(tokens.skip(":") and tokens.peek.is_number_of(2))
        zone.minute = tokens.next().value
    _demand(zone.hour <= 23 and zone.minute <= 59)


def _read_legacy(tokens: Tokens, token: Token, parts: _Parts) -> None:
    has_number = bool(parts.day.parts)
    while token.kind != END:
        if token.kind == NUMBER:
            has_number = True
            _read_legacy_number(tokens, token.value, parts)
        elif token.kind == KEYWORD:
            _read_legacy_word(tokens, token, parts, has_number)
        elif token.is_sign and (parts.zone.is_utc or parts.time.parts):
            has_number = True
            _read_legacy_offset(tokens, token.value, parts.zone)
        elif token.is_sign or token.is_symbol(")"):
            _demand(not has_number)
        token = tokens.next()


def _read_legacy_number(tokens: Tokens, number: int, parts: _Parts) -> None:
    day, time, zone = parts.day, parts.time, parts.zone
    if tokens.skip(":"):
        if tokens.skip(":"):
            _demand(not time.parts)
            time.add(number)
            time.add(0)
        else:
            _demand(time.add(number))
            tokens.skip(".")
    elif tokens.skip(".") and time.expects(number):
        time.add(number)
        _demand(tokens.peek.kind == NUMBER)
        time.add_last(_thousandths(tokens.next()))
    elif zone.expects(number):
        zone.minute = number
    elif time.expects(number):
        time.add_last(number)
        after = tokens.peek
        _demand(after.kind == END or after.is_space or after.is_zulu or after.is_sign)
    else:
        _demand(day.add(number))
        tokens.skip("-")


def _read_legacy_word(tokens: Tokens, token: Token, parts: _Parts, has_number: bool) -> None:
    if token.word == "half" and parts.time.parts:
        parts.time.hour_offset = token.value
    elif token.word == "month":
        parts.day.month = token.value
        tokens.skip("-")
    elif token.word == "zone" and has_number:
        parts.zone.set(token.value)
    else:
        _demand(not has_number and tokens.peek.kind != NUMBER)


def _read_legacy_offset(tokens: Tokens, sign: int, zone: _Zone) -> None:
    zone.sign = sign
    number, length = 0, 0
    if tokens.peek.kind == NUMBER:
        token = tokens.next()
        number, length = token.value, token.length
    if tokens.peek.is_symbol(":"):
        zone.hour, zone.minute = number, None
    elif length in {1, 2}:
        zone.hour, zone.minute = number, 0
    else:
        _demand(length in {3, 4})
        zone.hour, zone.minute = divmod(number, 100)


def _thousandths(token: Token) -> int:
    """Milliseconds of the digits after a decimal point; at most nine digits count."""
    length = min(token.length, 9)
    return int(token.value * 1000 // 10**length)


def _demand(holds: bool) -> None:
    if not holds:
        raise _NoDateError


def _is_day(number: int) -> bool:
    return 1 <= number <= 31


def _days_from_civil(year: int, month: int, day: int) -> int:
    """Days since the epoch; a day past the end of its month runs into the next."""
    year -= month <= _MONTHS_BEFORE_MARCH
    era, year_of_era = year // 400, year % 400
    day_of_year = (153 * (month + (-3 if month > _MONTHS_BEFORE_MARCH else 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146_097 + day_of_era - _DAYS_TO_EPOCH


def _local_offset_ms(wall_ms: int, zone: ZoneInfo) -> int:
    """Offset of the zone at a wall time; outside the years 1 to 9999, that of their edge."""
    clipped = min(max(wall_ms, _YEAR_2_MS), _YEAR_9998_MS)
    at = (datetime(1970, 1, 1) + timedelta(milliseconds=clipped)).replace(tzinfo=zone)
    offset = at.utcoffset()
    return int(offset.total_seconds() * 1000) if offset is not None else 0

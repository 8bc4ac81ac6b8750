"""How long a cron schedule waits between two fires, read from its expression alone.

lionagi asks `croniter` for the two occurrences after the newest sign of life and takes
their distance; so do we, for the five classic fields with names, steps, lists and ranges,
and for ``@daily`` and the like. What else croniter knows (seconds and years, ``L``, ``W``,
``#``, ``H``, ``R``), and what its versions read in different ways, has no cadence: better
none than a guess.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterError, croniter

_VALUE = r"(?:\d{1,2}|[a-z]{3})"
_ITEM = rf"{_VALUE}(?:-{_VALUE})?(?:/\d{{1,3}})?"
# In a list, versions of croniter take a star for one choice or for the whole field.
_FIELD = rf"(?:\*(?:/\d{{1,3}})?|{_ITEM}(?:,{_ITEM})*)"
_DAY = rf"(?:\?|{_FIELD})"
_PLAIN = re.compile(
    rf"{_FIELD} {_FIELD} {_DAY} {_FIELD} {_DAY}"
    r"|@(?:hourly|daily|midnight|weekly|monthly|yearly|annually)",
    re.ASCII,
)
_STEPPED_RANGE = re.compile(r"(\w+)-(\w+)/")
_NAMES = {name: number for names in croniter.ALPHACONV[3:5] for name, number in names.items()}
_YEARS_AHEAD = 9  # the longest wait there is: from 29 February to the next, over 2100


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
    >>> cadence_s("at dawn", datetime(2026, 5, 29, tzinfo=UTC)) is None
    True
    """
    text = " ".join(expression.lower().split())
    if not _PLAIN.fullmatch(text) or _steps_past_the_end(text):
        return None
    try:
        fires = croniter(
            text,
            reference_at.astimezone(_zone(zone)),
            ret_type=datetime,
            max_years_between_matches=_YEARS_AHEAD,
        )
        first_at, second_at = next(fires), next(fires)
    except (CroniterError, StopIteration):
        return None
    # Timestamps: the difference of two local times ignores a change of clocks between them.
    return float(second_at.timestamp() - first_at.timestamp())


def _steps_past_the_end(text: str) -> bool:
    """Does a range with a step begin after it ends: versions differ in where it lands."""
    return any(_number(begin) > _number(end) for begin, end in _STEPPED_RANGE.findall(text))


def _number(value: str) -> int:
    return int(value) if value.isdecimal() else _NAMES.get(value, -1)


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")

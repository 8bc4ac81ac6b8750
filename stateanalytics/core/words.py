"""Numbers, lists and sentences in plain English: everything that a report says.

The sentences stand in ``data/sentences.csv``, one a row, with named fields. A field may say
how its value is written: ``{n:count run}`` gives "12 runs", ``{n:is/are}`` the verb that fits
a number, ``{value:share}`` "73 %", ``{seconds:duration}`` "1 h 30 min".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from string import Formatter
from typing import Any

from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.text import shortened
from stateanalytics.core.units import how_long, per_hundred


def say(sentence: str, /, **values: Any) -> str:
    """A sentence of the catalogue with its values.

    Parameters
    ----------
    sentence : str
        Its name in ``sentences.csv``.
    **values : object
        By field. Text of a store is put in as it is and never read as a template.

    Examples
    --------
    >>> say("over_time.range", fewest=1, most=12, step="day")
    'Between 1 and 12 runs ended a day'
    """
    text = _WRITER.vformat(sentences()[sentence], (), values)
    # Whatever ends in a full stop stands by itself, and begins with a capital.
    return capitalised(text) if text.endswith(".") else text


@cache
def sentences() -> dict[str, str]:
    """The catalogue: name of a sentence to its template."""
    rows = table_rows("stateanalytics.core", "sentences.csv")
    return {row["sentence"]: row["text"] for row in rows}


class _Writer(Formatter):
    """Writes the value of a field in the way that its specification names."""

    def format_field(self, value: Any, specification: str) -> str:
        noun = re.fullmatch(r"count ([^/]+)(?:/(.+))?", specification)
        if noun:
            return count(value, noun[1], noun[2] or "")
        if "/" in specification:
            singular, plural = specification.split("/")
            return singular if value == 1 else plural
        return WRITTEN_AS[specification](value) if specification else str(value)


def shorten_template(template: str, longest: int) -> str:
    """A message template as a sentence names it: an ellipsis where words differ.

    Examples
    --------
    >>> shorten_template("Bash exited with code 127: <*>: <*>: poetry: not found (image <*>)", 72)
    'Bash exited with code 127: … poetry: not found'
    >>> shorten_template("resets <*>:<*> (UTC)", 72), shorten_template("<*>", 72)
    ('resets … (UTC)', '…')
    >>> shorten_template("a long one", 6), shorten_template("error from <*> at once", 14)
    ('a lon…', 'error from …')
    """
    for pattern, replacement in _GAPS:
        template = pattern.sub(replacement, template)
    # A gap at the end already says that text is missing.
    return re.sub("… ?…$", "…", shortened(template, longest))


_GAPS = (
    (re.compile(r"(?:<\*>[\s:,]*)+"), "… "),
    (re.compile(r"… (?=[).,;'\"”]|$)"), "…"),
    # An id at the end means nothing to a reader.
    (re.compile(r"\s*\(\w+ …\)$"), ""),
)


def share(value: float | None) -> str:
    """A share as a percentage; never rounded to 0 % or 100 % unless it is exactly that.

    Examples
    --------
    >>> [share(x) for x in (0, 0.0004, 0.004, 0.734, 0.9999, 1, None)]
    ['0 %', '< 0.1 %', '0.4 %', '73 %', '> 99 %', '100 %', 'no share']
    """
    if value is None:
        return "no share"
    percent = 100 * value
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99 < percent < 100 and f"{percent:.0f}" == "100":
        return "> 99 %"
    return f"{percent:.1f} %" if 0 < percent < 1 else f"{percent:.0f} %"


def points(difference: float) -> str:
    """A difference of two shares in percentage points, with its sign.

    Examples
    --------
    >>> [points(x) for x in (0.0512, -0.3, 0, -0.0004)]
    ['+5 points', '\u221230 points', '0 points', '0 points']
    """
    rounded = round(100 * difference)
    sign = "+" if rounded > 0 else "\u2212" if rounded < 0 else ""
    return f"{sign}{abs(rounded)} {'point' if abs(rounded) == 1 else 'points'}"


def interval(ends: tuple[float, float] | list[float] | None) -> str:
    """Both ends of an interval for a share.

    Examples
    --------
    >>> interval((0.490162, 0.943318))
    '49 to 94 %'
    """
    if ends is None:
        return "no interval"
    return f"{100 * ends[0]:.0f} to {100 * ends[1]:.0f} %"


def count(n: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    Examples
    --------
    >>> count(1, "run"), count(0, "run"), count(12_345, "entity", "entities")
    ('1 run', 'no runs', '12,345 entities')
    """
    if n == 1:
        return f"1 {noun}"
    return f"{number(n)} {plural or noun + 's'}" if n else f"no {plural or noun + 's'}"


def number(n: float) -> str:
    """A count with separators."""
    return f"{n:,.0f}"


def listed(parts: Iterable[str]) -> str:
    """Parts as an enumeration.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a"]), listed([])
    ('a, b and c', 'a', '')
    """
    *head, last = list(parts) or [""]
    return f"{', '.join(head)} and {last}" if head else last


def spark(bars: Iterable[float]) -> str:
    """Shares of the highest bar as a line of blocks, where nothing can be drawn.

    Examples
    --------
    >>> spark([0.0, 0.5, 1.0])
    '▁▅█'
    """
    return "".join(_BLOCKS[round(bar * (len(_BLOCKS) - 1))] for bar in bars)


_BLOCKS = "▁▂▃▄▅▆▇█"


def size(n_bytes: int | None) -> str:
    """A size in the unit that keeps it short.

    Examples
    --------
    >>> [size(n) for n in (None, 900, 1_007_616, 5_000_000_000)]
    ['unknown', '900 B', '1.0 MB', '5.0 GB']
    """
    if n_bytes is None:
        return "unknown"
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= limit:
            return f"{n_bytes / limit:.1f} {unit}"
    return f"{n_bytes} B"


def dollars(usd: float) -> str:
    """An amount in US dollars.

    Examples
    --------
    >>> dollars(1234.5)
    '$1,234.50'
    """
    return f"${usd:,.2f}"


def capitalised(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


WRITTEN_AS: Mapping[str, Callable[[Any], str]] = {
    "number": number,
    "share": share,
    "points": points,
    "interval": interval,
    "list": listed,
    "dollars": dollars,
    "per_hundred": per_hundred,
    "percent": lambda value: f"{100 * value:.0f} %",
    "duration": how_long,
    "limit": lambda seconds: how_long(seconds, "none"),
    "estimate": lambda seconds: how_long(seconds, "not identified", is_estimate=True),
}
"""How the values of fields are written, by specification."""
_WRITER = _Writer()

"""Numbers, lists and sentences in plain English: everything that a report says."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stateanalytics.core.text import shortened

_GAPS = (
    (re.compile(r"(?:<\*>[\s:,]*)+"), "… "),
    (re.compile(r"… (?=[).,;'\"”]|$)"), "…"),
    # An id at the end tells nobody anything.
    (re.compile(r"\s*\(\w+ …\)$"), ""),
)


def spoken(template: str, longest: int) -> str:
    """A template as a capitalised names it: where words differ there is a gap.

    Examples
    --------
    >>> spoken("Bash exited with code 127: <*>: <*>: poetry: not found (image <*>)", 72)
    'Bash exited with code 127: … poetry: not found'
    >>> spoken("resets <*>:<*> (UTC)", 72), spoken("<*>", 72), spoken("a long one", 6)
    ('resets … (UTC)', '…', 'a lon…')
    >>> spoken("error from <*> at once", 14)
    'error from …'
    """
    for pattern, instead in _GAPS:
        template = pattern.sub(instead, template)
    # Where a gap is the last that is left, it tells that more is gone, too.
    return re.sub("… ?…$", "…", shortened(template, longest))


def share(value: float | None) -> str:
    """A share as a percentage; never rounded onto 0 % or 100 % from beside them.

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


def capitalised(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]

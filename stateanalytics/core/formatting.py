"""Durations, shares, counts, money and lists in plain English, for pages and terminals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import partial

import polars as pl

from stateanalytics.core.text import shortened

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
CANDIDATES_S = (
    10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 450.0, 600.0, 900.0, 1200.0,
    1800.0, 2700.0, 3600.0, 5400.0, 7200.0, 10800.0, 14400.0, 21600.0, 28800.0, 43200.0,
    64800.0, 86400.0, 129600.0, 172800.0, 259200.0, 604800.0,
)  # fmt: skip
"""Values that people would set, 10 s to a week. Finer steps would only show noise."""
_LEAST_S = 0.001


def how_long(seconds: float | None, unknown: str = "unknown", *, is_estimate: bool = False) -> str:
    """A duration in its two largest units.

    Parameters
    ----------
    seconds : float or None
        None or not finite: not known. What is left over is cut and not rounded: what has
        not passed a limit must not read as if it had.
    unknown : str
        What to say then.
    is_estimate : bool
        A median, a mean or a measured stretch is no limit: it is rounded, and below ten
        seconds keeps two figures, to the millisecond.

    Examples
    --------
    >>> [how_long(s) for s in (0.4, 42, 450, 5400, 33_120, 200_000, None)]
    ['under 1 s', '42 s', '7 min 30 s', '1 h 30 min', '9 h 12 min', '2 d 7 h', 'unknown']
    >>> [how_long(s, is_estimate=True) for s in (0.0374, 2.84, 42.6, 5399)]
    ['0.037 s', '2.8 s', '43 s', '1 h 30 min']
    """
    if seconds is None or not math.isfinite(seconds):
        return unknown
    if seconds < 0:
        return f"minus {how_long(-seconds, is_estimate=is_estimate)}"
    if is_estimate and 0 < seconds < 10:
        # What took any time at all must not read as if it took none.
        return f"{max(_LEAST_S, float(f'{round(seconds, 3):.2g}')):g} s"
    if is_estimate:
        step = _smaller_unit(seconds)
        seconds = math.floor(seconds / step + 0.5) * step
    if seconds < 1:
        return "under 1 s" if seconds else "0 s"
    whole = int(seconds)
    place = next(place for place, (size, _) in enumerate(UNITS) if whole >= size)
    count, left = divmod(whole, UNITS[place][0])
    size, unit = UNITS[min(place + 1, len(UNITS) - 1)]
    rest = f" {left // size} {unit}" if left // size else ""
    return f"{count} {UNITS[place][1]}{rest}"


def _smaller_unit(seconds: float) -> int:
    """Seconds of the smaller of the two units in which a duration is said."""
    return next((step for size, step in ((86_400, 3_600), (3_600, 60)) if seconds >= size), 1)


def how_long_each(
    seconds: str | pl.Expr, unknown: str | None = None, *, is_estimate: bool = False
) -> pl.Expr:
    """What `how_long` says of each row of a column; null or ``unknown`` where not known.

    Examples
    --------
    >>> waits = pl.DataFrame({"s": [45.0, 5400.0, -5.0, None]})
    >>> waits.select(how_long_each("s", "never"))["s"].to_list()
    ['45 s', '1 h 30 min', 'minus 5 s', 'never']
    """
    value = pl.col(seconds) if isinstance(seconds, str) else seconds
    if is_estimate:
        # A row a stratum or a threshold: few enough to be said one by one.
        say = partial(how_long, is_estimate=True)
        told = pl.when(value.is_finite()).then(value).map_elements(say, return_dtype=pl.String)
        return told if unknown is None else told.fill_null(pl.lit(unknown))
    size = value.abs()
    whole = size.cast(pl.Int64, strict=False)
    said = pl.when(size == 0).then(pl.lit("0 s")).when(size < 1).then(pl.lit("under 1 s"))
    for place, (large, unit) in enumerate(UNITS):
        small, smaller_unit = UNITS[min(place + 1, len(UNITS) - 1)]
        count, rest = whole // large, whole % large // small
        both = pl.format(f"{{}} {unit} {{}} {smaller_unit}", count, rest)
        words = pl.when(rest > 0).then(both).otherwise(pl.format(f"{{}} {unit}", count))
        said = said.when(size.is_finite() & (whole >= large)).then(words)
    sign = pl.when(value < 0).then(pl.lit("minus ")).otherwise(pl.lit(""))
    text = pl.concat_str(sign, said.otherwise(pl.lit(None, pl.String)))
    known = text if unknown is None else text.fill_null(pl.lit(unknown))
    # Under the name of its column, not of the first literal.
    return known.alias(value.meta.output_name())


def dollars_each(usd: str | pl.Expr) -> pl.Expr:
    """Each amount of a column as people say it; null stays null.

    Examples
    --------
    >>> pl.DataFrame({"usd": [1234.5, None]}).select(dollars_each("usd"))["usd"].to_list()
    ['$1,234.50', None]
    """
    value = pl.col(usd) if isinstance(usd, str) else usd
    return value.map_elements("${:,.2f}".format, return_dtype=pl.String)


def per_hundred(number: float | None) -> str:
    """A number per hundred, with as many digits as it deserves.

    Examples
    --------
    >>> [per_hundred(n) for n in (0, 0.034, 2.345, 41.2, None)]
    ['0', '0.034', '2.3', '41', 'unknown']
    """
    if number is None:
        return "unknown"
    if abs(number) >= 10:
        return f"{number:,.0f}"
    return f"{number:.2g}"


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

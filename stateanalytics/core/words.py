"""Durations, numbers, lists and sentences in plain English, for pages, charts and terminals.

The sentences stand in ``data/sentences.csv``, one a row, with named fields. A field may say
how its value is written: ``{n:count run}`` gives "12 runs", ``{n:is/are}`` the verb that fits
a number, ``{value:share}`` "73 %", ``{seconds:duration}`` "1 h 30 min".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from string import Formatter
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.text import shortened


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
    'Between 1 and 12 runs ended each day'
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


def each_in_words(sentence: Callable[[dict[str, Any]], str | None]) -> pl.Expr:
    """A sentence for each row of a small table, from its values by column.

    Examples
    --------
    >>> runs = pl.DataFrame({"name": ["flow"], "n": [2]})
    >>> runs.select(each_in_words(lambda row: f"{row['n']} of {row['name']}")).item()
    '2 of flow'
    """
    return pl.struct(pl.all()).map_elements(sentence, return_dtype=pl.String)


def first_word(otherwise: str | None = None, /, **conditions: str | pl.Expr) -> pl.Expr:
    """The first of several words of which the condition holds; null counts as false.

    Examples
    --------
    >>> sizes = pl.DataFrame({"n": [0, 5, None]})
    >>> sizes.select(first_word("some", none=pl.col("n") == 0, many=pl.col("n") > 3)).rows()
    [('none',), ('many',), ('some',)]
    """
    chosen = (pl.when(holds).then(pl.lit(word)) for word, holds in conditions.items())
    return pl.coalesce(*chosen, pl.lit(otherwise, pl.String))


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
    >>> shorten_template("[<*>] $ <*> [<*>] $ <*> [<*>] $ <*> [lint] failed", 72)
    '[… ] $ … [lint] failed'
    """
    for pattern, replacement in _GAPS:
        template = pattern.sub(replacement, template)
    # A gap at the end already says that text is missing.
    return re.sub("… ?…$", "…", shortened(template, longest))


_GAPS = (
    (re.compile(r"(?:<\*>[\s:,]*)+"), "… "),
    (re.compile(r"… (?=[).,;'\"”]|$)"), "…"),
    # Steps or errors that differ only in their gaps: one says what they are.
    (re.compile(r"(?<!\S)(\S.{0,40}?…)(?: \1)+(?!\S)"), r"\1"),
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
    return "no interval" if ends is None else f"{100 * ends[0]:.0f} to {100 * ends[1]:.0f} %"


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


def clock(moment: str, zone: str = "UTC") -> str:
    """A moment, in ISO text of UTC, as the clock of a time zone shows it.

    Examples
    --------
    >>> clock("2026-05-17T22:00:00Z"), clock("2026-05-17T22:00:00Z", "Europe/Berlin")
    ('2026-05-17 22:00', '2026-05-18 00:00')
    """
    if zone == "UTC":
        return f"{moment[:10]} {moment[11:16]}"
    return f"{datetime.fromisoformat(moment).astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"


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
    """An amount in US dollars; a small one must not read as none.

    Examples
    --------
    >>> [dollars(usd) for usd in (1234.5, 0.0042, 0)]
    ['$1,234.50', 'under $0.01', '$0.00']
    """
    return "under $0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def sentence_of(clauses: Sequence[str]) -> str:
    """Clauses as one sentence; empty without any.

    Examples
    --------
    >>> sentence_of(["none failed", "1 run still open"])
    'None failed; 1 run still open.'
    """
    return capitalised("; ".join(clauses)).removesuffix(".") + "." if clauses else ""


def capitalised(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
CANDIDATES_S = (
    10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 450.0, 600.0, 900.0, 1200.0,
    1800.0, 2700.0, 3600.0, 5400.0, 7200.0, 10800.0, 14400.0, 21600.0, 28800.0, 43200.0,
    64800.0, 86400.0, 129600.0, 172800.0, 259200.0, 604800.0,
)  # fmt: skip
"""Values that people would set, 10 s to a week. Finer steps would only show noise."""
_MIN_ESTIMATE_S = 0.001


def how_long(seconds: float | None, unknown: str = "unknown", *, is_estimate: bool = False) -> str:
    """A duration in its two largest units.

    Parameters
    ----------
    seconds : float or None
        None or not finite: not known. The remainder is cut and not rounded: a duration
        that has not passed a limit must not read as if it had.
    unknown : str
        The text for a duration that is not known.
    is_estimate : bool
        A median, a mean or a measurement is no limit: it is rounded, and below ten seconds
        has two significant digits, to the millisecond.

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
        # A short duration must not read as none.
        return f"{max(_MIN_ESTIMATE_S, float(f'{round(seconds, 3):.2g}')):g} s"
    if is_estimate:
        # The smaller of the two units in which the duration is written.
        step = 3_600 if seconds >= 86_400 else 60 if seconds >= 3_600 else 1
        seconds = math.floor(seconds / step + 0.5) * step
    if seconds < 1:
        return "under 1 s" if seconds else "0 s"
    whole = int(seconds)
    place = next(place for place, (size, _) in enumerate(UNITS) if whole >= size)
    n_large, left = divmod(whole, UNITS[place][0])
    small, unit = UNITS[min(place + 1, len(UNITS) - 1)]
    rest = f" {left // small} {unit}" if left // small else ""
    return f"{n_large} {UNITS[place][1]}{rest}"


def how_long_each(
    seconds: str | pl.Expr, unknown: str | None = None, *, is_estimate: bool = False
) -> pl.Expr:
    """`how_long` of each row of a column; null or ``unknown`` where not known.

    Examples
    --------
    >>> waits = pl.DataFrame({"s": [45.0, 5400.0, -5.0, None]})
    >>> waits.select(how_long_each("s", "never"))["s"].to_list()
    ['45 s', '1 h 30 min', 'minus 5 s', 'never']
    """
    value = pl.col(seconds) if isinstance(seconds, str) else seconds
    if is_estimate:
        # One row for a stratum or a threshold: few enough for a Python function.
        known_s = pl.when(value.is_finite()).then(value)
        estimate = known_s.map_elements(partial(how_long, is_estimate=True), return_dtype=pl.String)
        return estimate if unknown is None else estimate.fill_null(pl.lit(unknown))
    size = value.abs()
    whole = size.cast(pl.Int64, strict=False)
    text = pl.when(size == 0).then(pl.lit("0 s")).when(size < 1).then(pl.lit("under 1 s"))
    for place, (large, unit) in enumerate(UNITS):
        small, smaller_unit = UNITS[min(place + 1, len(UNITS) - 1)]
        n_large, n_small = whole // large, whole % large // small
        both = pl.format(f"{{}} {unit} {{}} {smaller_unit}", n_large, n_small)
        only_large = pl.format(f"{{}} {unit}", n_large)
        in_units = pl.when(n_small > 0).then(both).otherwise(only_large)
        text = text.when(size.is_finite() & (whole >= large)).then(in_units)
    sign = pl.when(value < 0).then(pl.lit("minus ")).otherwise(pl.lit(""))
    signed = pl.concat_str(sign, text.otherwise(pl.lit(None, pl.String)))
    filled = signed if unknown is None else signed.fill_null(pl.lit(unknown))
    # Polars would name the result after the first literal.
    return filled.alias(value.meta.output_name())


def dollars_each(usd: str | pl.Expr) -> pl.Expr:
    """Amounts in US dollars as text; null stays null.

    Examples
    --------
    >>> pl.DataFrame({"usd": [1234.5, None]}).select(dollars_each("usd"))["usd"].to_list()
    ['$1,234.50', None]
    """
    value = pl.col(usd) if isinstance(usd, str) else usd
    return value.map_elements(dollars, return_dtype=pl.String)


def per_hundred(number: float | None) -> str:
    """A number per hundred, with two significant digits or as a whole number.

    Examples
    --------
    >>> [per_hundred(n) for n in (0, 0.034, 2.345, 41.2, None)]
    ['0', '0.034', '2.3', '41', 'unknown']
    """
    if number is None:
        return "unknown"
    return f"{number:,.0f}" if abs(number) >= 10 else f"{number:.2g}"


def in_one_line(rows: pl.DataFrame) -> list[str]:
    """Each of some `changes` in a few words: ``model claude-opus (tester, since 2026-04-27)``."""
    what = pl.concat_str("what", "to", separator=" ", ignore_nulls=True)
    day = pl.lit("since ") + pl.col("changed_at").dt.strftime("%Y-%m-%d")
    place = pl.concat_str("where", day, separator=", ", ignore_nulls=True)
    return rows.select(pl.format("{} ({})", what, place)).to_series().to_list()


WRITTEN_AS: Mapping[str, Callable[[Any], str]] = {
    "number": number,
    "share": share,
    "points": points,
    "interval": interval,
    "list": listed,
    "dollars": dollars,
    "per_hundred": per_hundred,
    "percent": lambda value: f"{100 * value:.0f} %",
    "hundredths": lambda value: "?" if value is None else f"{100 * value:.0f}",
    "rounded": lambda value: "?" if value is None else str(round(value, 2)),
    "duration": how_long,
    "limit": lambda seconds: how_long(seconds, "none"),
    "estimate": lambda seconds: how_long(seconds, "not identified", is_estimate=True),
}
"""How the values of fields are written, by specification."""
_WRITER = _Writer()

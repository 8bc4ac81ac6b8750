"""A frame as a table of text or HTML for people: units in words, harmless to look at."""

from __future__ import annotations

import html
import itertools
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache, partial
from importlib.resources import files
from typing import Any

import polars as pl

from stateanalytics.core.redaction import redact
from stateanalytics.core.text import UNTYPESET, shortened, visible, without_formula
from stateanalytics.core.words import dollars, how_long

_WIDEST_CELL = 100
_WIDEST_HTML = 500
_NARROWEST = 12
_READABLE = 36
N_FIRST = 10
"""Columns of a frame that a notebook shows before somebody asks for the others."""
N_SHOWN = 100
"""Rows that a notebook shows, so that a page of outputs stays small."""
PROSE = frozenset(
    {"message", "in_words", "words", "template", "says", "against", "what_to_do", "example"}
    | {"action", "meaning", "title", "where"}
)
"""Columns of sentences, which get twice the width of a name."""
_GAP = "  "
_UNIT = re.compile("_(s|usd)(?=$|_before$)")
TONES: Mapping[str, str] = {
    word: tone
    for tone, words in {
        "critical": "critical error failed worse stuck new back",
        "warning": "warning timed_out struggled growing raise lower",
        "success": "success completed better gone smooth",
    }.items()
    for word in words.split()
}
"""Words that have a colour where they are all of a cell, and which."""
_ANSI = {"critical": "31", "warning": "33", "success": "32"}


def as_table(
    frame: pl.DataFrame, width: int, *, is_wide: bool = False, is_coloured: bool = False
) -> tuple[str, int]:
    """A frame as lines of text, and how many of its columns did not fit.

    Columns keep their order. Wide ones shrink first, sentences only from twice the width of
    others; none shrinks below a short word, so the last columns are hidden where there are
    too many. An id is never cut, since half of it names nothing. With ``is_wide`` nothing is
    cut: what is longer than its column continues below. With ``is_coloured`` the words of
    `TONES` have their colour.

    Examples
    --------
    >>> print(as_table(pl.DataFrame({"word": ["a", "long text"], "n": [1, 20]}), 80)[0])
    word        n
    ---------  --
    a           1
    long text  20
    <BLANKLINE>
    """
    from rich.cells import cell_len

    is_whole = [_is_id(name) or dtype.is_temporal() for name, dtype in frame.schema.items()]
    columns = [
        [
            visible(column.name),
            *(cell(value, is_whole=whole or is_wide) for value in column.to_list()),
        ]
        for column, whole in zip(frame.get_columns(), is_whole, strict=True)
    ]
    needed = [max(map(cell_len, texts)) for texts in columns]
    # A sentence gets twice the width of a name.
    share = [2 if name in PROSE else 1 for name in frame.columns]

    def capped(cap: int, n: int) -> list[int]:
        columns = zip(needed[:n], is_whole, share, strict=False)
        return [length if whole else min(length, cap * times) for length, whole, times in columns]

    def fitted_to(n: int) -> list[int]:
        room, cap = width - len(_GAP) * (n - 1), max(needed[:n], default=0)
        while cap > _NARROWEST and sum(capped(cap, n)) > room:
            cap -= 1
        return capped(cap, n)

    ends = itertools.accumulate(size + len(_GAP) for size in capped(_NARROWEST, len(columns)))
    n_kept = max(1, sum(end - len(_GAP) <= width for end in ends)) if columns else 0
    prose = [i for i, name in enumerate(frame.columns[:n_kept]) if name in PROSE]
    # Sentences matter most: columns to their right are hidden before a sentence gets too narrow.
    while prose and n_kept > prose[-1] + 1:
        sizes = fitted_to(n_kept)
        if all(sizes[i] >= min(needed[i], _READABLE) for i in prose):
            break
        n_kept -= 1
    lines = []
    widths = fitted_to(n_kept)
    is_right = [dtype.is_numeric() for dtype in frame.dtypes]
    fit = _wrapped if is_wide else _cut
    for i in range(frame.height + 1):
        fitted = [fit(texts[i], size) for texts, size in zip(columns, widths, strict=False)]
        for row in itertools.zip_longest(*fitted, fillvalue="") if fitted else [()]:
            parts = [
                " " * (size - cell_len(text)) + text
                if right
                else (_painted(text, name) if is_coloured and i else text)
                + " " * (size - cell_len(text))
                for text, size, right, name in zip(
                    row, widths, is_right, frame.columns, strict=False
                )
            ]
            lines.append(_GAP.join(parts).rstrip())
        if i == 0:
            lines.append(_GAP.join("-" * size for size in widths))
    return "\n".join([*lines, ""]), len(columns) - n_kept


def _is_id(name: str) -> bool:
    return name in ("id", "entity", "code") or name.endswith("_id")


def _painted(text: str, column: str) -> str:
    return f"\x1b[{_ANSI[tone]}m{text}\x1b[0m" if (tone := _tone(text, column)) else text


def _tone(text: str, column: str) -> str:
    # What is called "stuck" need not be: a name is no verdict.
    return "" if column == "name" else TONES.get(text.lower().replace(" ", "_"), "")


def _cut(text: str, size: int) -> list[str]:
    from rich.cells import cell_len, set_cell_size

    return [text if cell_len(text) <= size else set_cell_size(text, size - 1).rstrip(" …") + "…"]


def _wrapped(text: str, size: int) -> list[str]:
    from rich.cells import chop_cells

    lines = textwrap.wrap(text, size) or [""]
    # Wide characters take more room than there are letters.
    return [part for line in lines for part in (chop_cells(line, size) or [""])]


def cell(value: Any, *, is_whole: bool = False, widest: int = _WIDEST_CELL) -> str:
    """One value of a table as harmless text, short unless it must be whole; empty for null.

    Examples
    --------
    >>> cell(None), cell(0.5), cell(True), cell(chr(27) + "[31mred")
    ('', '0.5', 'yes', 'red')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    text = value if isinstance(value, str) else str(plain(value))
    if is_whole:
        return visible(text)
    return shortened(visible(text[: 4 * widest]), widest)


def for_people(frame: pl.DataFrame, *, is_renamed: bool = True) -> pl.DataFrame:
    """Seconds and dollars in words, and names of columns without the unit that values now have.

    Examples
    --------
    >>> for_people(pl.DataFrame({"run_s": [97_301.6, None], "cost_usd": [4.929, None]})).to_dicts()
    [{'run_time': '1 d 3 h', 'cost': '$4.93'}, {'run_time': None, 'cost': None}]
    """
    units = [name for name, dtype in frame.schema.items() if dtype.is_numeric() and _unit(name)]
    shown = frame.with_columns(
        pl.col(name).map_elements(partial(in_words, name=name), return_dtype=pl.String)
        for name in units
    )
    # A column "run" of times would be read as a name or a number of runs.
    names = {name: _UNIT.sub("", name.replace("run_s", "run_time")) for name in units}
    renamed = {old: new for old, new in names.items() if is_renamed and new not in frame.columns}
    return shown.rename(renamed)


def _unit(name: str) -> str:
    return found[1] if (found := _UNIT.search(name)) else ""


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | pl.Series):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal | timedelta):
        return float(value) if isinstance(value, Decimal) else value.total_seconds()
    return _moment(value) if isinstance(value, datetime | date | time) else _text(value)


def _moment(value: datetime | date | time) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value.isoformat()


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def as_html(
    frame: pl.DataFrame, first: Sequence[str] = (), notes: Mapping[str, str] | None = None
) -> str:
    """A frame as a table of a notebook: sorted, filtered and copied by a script of its own.

    Without a script it is a table to read. Its colours are those of the notebook's theme.

    Parameters
    ----------
    frame : polars.DataFrame
        Any.
    first : sequence of str
        The columns that matter most, in order, where there are more than ten.
    notes : mapping of str to str, optional
        What a column means, by its name: shown while the pointer is on its head.

    Returns
    -------
    str
        HTML in which text of the frame is escaped and what looks like a secret masked, since
        notebooks are saved with their outputs, and shared.

    Examples
    --------
    >>> page = as_html(pl.DataFrame({"run_s": [5400.0], "says": ["<b>"]}))
    >>> '<td class="n" data-v="5400.0">1 h 30 min</td><td class="prose">&lt;b&gt;</td>' in page
    True
    """
    rows, n_masked = redact(frame.select(in_order(frame, first)).head(N_SHOWN))
    n = sum(n_masked.values())
    note = f"; {n} that looked like secrets {'is' if n == 1 else 'are'} masked" if n else ""
    heads = "".join(
        f"<th scope='col'{_class(dtype, n)} title='{_escaped((notes or {}).get(name))}'>"
        f"{_escaped(name)}</th>"
        for n, (name, dtype) in enumerate(rows.schema.items())
    )
    columns = [
        [_cell(value, name, dtype, n) for value in rows[name].to_list()]
        for n, (name, dtype) in enumerate(rows.schema.items())
    ]
    lines = "".join(f"<tr>{''.join(cells)}</tr>" for cells in zip(*columns, strict=True))
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"
    return (
        f"<div class='sa-frame {UNTYPESET}'><style>{_asset('css')}</style><div>{table}</div>"
        f"<p>{counted(frame, N_SHOWN)}{note}</p><script>{_asset('js')}</script></div>"
    )


@cache
def _asset(kind: str) -> str:
    return (files(__package__) / f"data/table.{kind}").read_text("utf-8")


def counted(frame: pl.DataFrame, n_shown: int) -> str:
    """How many rows and columns a frame has, of which a table shows so many."""
    few = f"the first {n_shown} of " if frame.height > n_shown else ""
    more = f", {N_FIRST} of {frame.width} columns" if frame.width > N_FIRST else ""
    return f"{few}{frame.height:,} row{'' if frame.height == 1 else 's'}{more}"


def in_order(frame: pl.DataFrame, first: Sequence[str]) -> list[str]:
    """Columns: of many those that matter most, then the others, those without a value last."""
    if frame.width <= N_FIRST:
        return frame.columns
    chosen = dict.fromkeys(name for name in first if name in frame.columns)
    rest = [name for name in frame.columns if name not in chosen]
    empty = {name for name in rest if frame[name].null_count() == frame.height}
    return [*chosen, *(name for name in rest if name not in empty), *sorted(empty, key=rest.index)]


def _class(dtype: pl.DataType, n: int, look: str = "") -> str:
    words = ("n" * dtype.is_numeric(), "at" * dtype.is_temporal(), "more" * (n >= N_FIRST), look)
    return f' class="{" ".join(filter(None, words))}"' if any(words) else ""


def _cell(value: Any, name: str, dtype: pl.DataType, n: int) -> str:
    """One cell, with the value itself where that is not what is shown."""
    shown = in_words(value, name)
    if value is None:
        raw = ""
    elif isinstance(value, datetime):
        raw = value.isoformat().replace("+00:00", "Z")
    else:
        raw = str(value) if dtype.is_numeric() else without_formula(shown)
    ranks = [] if value is None or not isinstance(dtype, pl.Enum) else dtype.categories.to_list()
    own = f' data-v="{_escaped(raw)}"' if raw != shown else ""
    own += f' data-r="{ranks.index(value)}"' if ranks else ""
    look = "prose" if name in PROSE else _tone(shown, name)
    return f"<td{_class(dtype, n, look)}{own}>{html.escape(shown)}</td>"


def in_words(value: Any, name: str) -> str:
    """A value with the unit that the name of its column says."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and (unit := _unit(name)):
        return how_long(value) if unit == "s" else dollars(value)
    return cell(value, widest=_WIDEST_HTML)


def _escaped(text: str | None) -> str:
    return html.escape(visible(text or ""))

"""A frame as text: a table for people, CSV, JSON or Parquet for programs; harmless to look at."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from stateanalytics.cli.options import note
from stateanalytics.core.text import shortened, visible, without_formula
from stateanalytics.core.words import dollars_each, how_long_each
from stateanalytics.errors import ArgumentError

_PIPE_WIDTH = 160
_WIDEST_CELL = 100
_NARROWEST = 12
_READABLE = 36
_PROSE = frozenset(
    {"message", "in_words", "words", "template", "says", "against", "what_to_do", "example"}
    | {"action", "meaning"}
)
_GAP = "  "


def table_for_people(
    frame: pl.DataFrame, columns: Sequence[str] | None, *, is_file: bool, is_wide: bool
) -> str:
    """Columns of a frame as a table for people, with a note of what did not fit."""
    chosen = frame if columns is None else for_people(frame.select(_with_system(frame, columns)))
    text, n_hidden = as_table(chosen, _width(is_file), is_wide=is_wide)
    if n_hidden:
        plural = "column" if n_hidden == 1 else "columns"
        note(f"{n_hidden} more {plural} did not fit; --format csv has them all")
    if not is_wide and "…" in text and _PROSE & {*chosen.columns}:
        note("long texts are cut; --wide wraps them")
    return f"{text}({frame.height:,} row{'' if frame.height == 1 else 's'})\n"


def _with_system(frame: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    """The columns to show, with the system where there are several."""
    is_needed = "system" in frame.columns and frame["system"].drop_nulls().n_unique() > 1
    return list(dict.fromkeys([*columns[:1], "system", *columns] if is_needed else columns))


def _width(is_file: bool) -> int:
    if os.environ.get("COLUMNS", "").isdecimal():
        return max(20, int(os.environ["COLUMNS"]))
    if is_file or not sys.stdout.isatty():
        return _PIPE_WIDTH
    return os.get_terminal_size(sys.stdout.fileno()).columns


def as_table(frame: pl.DataFrame, width: int, *, is_wide: bool = False) -> tuple[str, int]:
    """A frame as lines of text, and how many of its columns did not fit.

    Columns keep their order. Wide ones shrink first, sentences only from twice the width of
    others; none shrinks below a short word, so the last columns are hidden where there are
    too many. An id is never cut, since half of it names nothing. With ``is_wide`` nothing is
    cut: what is longer than its column continues below.

    Examples
    --------
    >>> print(as_table(pl.DataFrame({"word": ["a", "long text"], "n": [1, 20]}), 80)[0])
    word        n
    ---------  --
    a           1
    long text  20
    <BLANKLINE>
    """
    from rich.cells import cell_len, set_cell_size

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
    share = [2 if name in _PROSE else 1 for name in frame.columns]

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
    prose = [i for i, name in enumerate(frame.columns[:n_kept]) if name in _PROSE]
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
                " " * (size - cell_len(text)) + text if right else set_cell_size(text, size)
                for text, size, right in zip(row, widths, is_right, strict=False)
            ]
            lines.append(_GAP.join(parts).rstrip())
        if i == 0:
            lines.append(_GAP.join("-" * size for size in widths))
    return "\n".join([*lines, ""]), len(columns) - n_kept


def _is_id(name: str) -> bool:
    return name in ("id", "entity", "code") or name.endswith("_id")


def _cut(text: str, size: int) -> list[str]:
    from rich.cells import cell_len, set_cell_size

    return [text if cell_len(text) <= size else set_cell_size(text, size - 1).rstrip() + "…"]


def _wrapped(text: str, size: int) -> list[str]:
    from rich.cells import chop_cells

    lines = textwrap.wrap(text, size) or [""]
    # Wide characters take more room than there are letters.
    return [part for line in lines for part in (chop_cells(line, size) or [""])]


def cell(value: Any, *, is_whole: bool = False) -> str:
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
    return shortened(visible(text[: 4 * _WIDEST_CELL]), _WIDEST_CELL)


def for_people(frame: pl.DataFrame) -> pl.DataFrame:
    """Seconds and dollars in words, and names of columns without the unit that values now have.

    Examples
    --------
    >>> for_people(pl.DataFrame({"run_s": [97_301.6, None], "cost_usd": [4.929, None]})).rows()
    [('1 d 3 h', '$4.93'), (None, None)]
    """
    seconds = [name for name, dtype in frame.schema.items() if _has_unit(name, dtype, "_s")]
    dollars = [name for name, dtype in frame.schema.items() if _has_unit(name, dtype, "_usd")]
    shown = frame.with_columns(
        *(how_long_each(name).alias(name) for name in seconds),
        *map(dollars_each, dollars),
    )
    renamed = {name: name.replace("_usd", "") for name in dollars}
    renamed |= {name: re.sub("_s(?=$|_before$)", "", name) for name in seconds}
    return shown.rename({old: new for old, new in renamed.items() if new not in frame.columns})


def _has_unit(name: str, dtype: pl.DataType, unit: str) -> bool:
    return name.removesuffix("_before").endswith(unit) and dtype.is_numeric()


def named_entities(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with an ``entity`` that ``show`` takes: type and id, a UUID by its beginning."""
    start = pl.col("entity_id").str.extract(r"^([0-9a-f]{8})-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$")
    is_unique = pl.col("entity_id").n_unique().over("_start") == 1
    return (
        rows.with_columns(_start=start)
        .with_columns(_start=pl.when(is_unique).then("_start"))
        .with_columns(entity=pl.format("{}:{}", "entity_type", pl.coalesce("_start", "entity_id")))
        .drop("_start")
    )


def changed_only(frame: pl.DataFrame, column: str, quiet: Sequence[str]) -> pl.DataFrame:
    """The rows of a table that have a change, if any has, and a note of the number of others."""
    is_quiet = pl.col(column).cast(pl.String).is_in(list(quiet))
    counts = frame.filter(is_quiet)[column].cast(pl.String).value_counts(sort=True)
    if counts["count"].sum() in (0, frame.height):
        return frame
    words = ", ".join(f"{n} {word.replace('_', ' ')}" for word, n in counts.rows())
    note(f"{words}: not shown; --format csv has them")
    return frame.filter(~is_quiet)


def as_csv(frame: pl.DataFrame, *, is_safe: bool = False, is_seen: bool = False) -> str:
    """A frame as CSV: moments in ISO 8601, lists and structs as JSON, null as an empty field."""
    flat = frame.select(_flat(column) for column in frame.get_columns())
    if is_safe:
        texts = pl.col(pl.String).map_elements(without_formula, return_dtype=pl.String)
        flat = flat.with_columns(texts).rename(without_formula)
    if is_seen:
        texts = pl.col(pl.String).map_elements(visible, return_dtype=pl.String)
        flat = flat.with_columns(texts).rename(visible)
    return flat.write_csv()


def _flat(column: pl.Series) -> pl.Series:
    """A column that CSV can hold."""
    dtype = column.dtype
    if isinstance(dtype, pl.Datetime):
        zone = "Z" if dtype.time_zone else ""
        return column.dt.strftime(f"%Y-%m-%dT%H:%M:%S%.6f{zone}")
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
        texts = [None if value is None else _json(value) for value in column.to_list()]
        return pl.Series(column.name, texts, dtype=pl.String)
    return column.cast(pl.String) if isinstance(dtype, pl.Enum | pl.Categorical) else column


def as_json(frame: pl.DataFrame, *, is_seen: bool = False) -> str:
    """A frame as a JSON list of objects; NaN and infinity are null."""
    rows = [_json(row, is_ascii=is_seen) for row in frame.iter_rows(named=True)]
    return "[" + ",\n ".join(rows) + "]\n"


def _json(value: Any, *, is_ascii: bool = False) -> str:
    return json.dumps(plain(value), ensure_ascii=is_ascii, allow_nan=False)


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


def as_parquet(frame: pl.DataFrame, *, is_seen: bool) -> bytes:
    """A frame as Parquet, which is for files only."""
    if is_seen:
        raise ArgumentError("Parquet cannot be printed to a terminal.", "-o result.parquet")
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()

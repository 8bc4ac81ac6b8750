"""A frame as a table for eyes, or as CSV, JSON or Parquet for programs."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import polars as pl

from stateanalytics.cli.options import note
from stateanalytics.core.redaction import redact as redact_frame
from stateanalytics.core.text import shortened, visible, without_formula
from stateanalytics.core.units import dollars_each, how_long_each
from stateanalytics.errors import ArgumentError
from stateanalytics.io.outputs import refuse_inputs, refuse_no_folder, write_output

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot

FORMATS: Mapping[str, Sequence[str]] = {
    "csv": (".csv",),
    "json": (".json",),
    "parquet": (".parquet",),
    "table": (".txt",),
}
"""What a table is written as, and the suffixes of each."""
PAGES: Mapping[str, Sequence[str]] = {"html": (".html", ".htm")}
_PIPE_WIDTH = 160
_PIECE_BYTES = 2**16
_WIDEST_CELL = 100
_NARROWEST = 12
_PROSE = frozenset(
    {"message", "in_words", "words", "template", "says", "against", "what_to_do", "example"}
    | {"action", "meaning"}
)
_GAP = "  "
_OUTPUTS = frozenset({"output", "metadata", "otlp", "metrics_file"})
"""Options that name what is written, which may be there from the last time."""


def write(
    frame: pl.DataFrame,
    *,
    form: str | None = None,
    output: Path | None = None,
    safe_csv: bool | None = None,
    redact: bool = True,
    is_wide: bool = False,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    inputs: Sequence[Path] = (),
) -> None:
    """Print a frame, or write it to a file.

    Parameters
    ----------
    frame : polars.DataFrame
        What to print.
    form : str, optional
        One of `FORMATS`; by default what the suffix of ``output`` says, else a table.
    output : Path, optional
        Where to; standard output by default.
    safe_csv : bool, optional
        Disarm formulas in CSV; by default where it goes to a file.
    redact : bool
        Mask what looks like a secret, and say how many. A file in which nothing was masked
        on purpose is its owner's only.
    is_wide : bool
        Wrap what does not fit into a table, instead of cutting it.
    columns : sequence of str, optional
        The ones to show in a table, durations and sums as people say them; files always get
        all, as they are.
    limit : int, optional
        Rows to print; by default 50 in a table, all otherwise.
    inputs : sequence of Path
        Files and directories that must not be written over; the files that the command's
        line names are none of these either.

    Raises
    ------
    ArgumentError
        If the output cannot be written, or is an input, or Parquet would go to a terminal;
        or if its suffix says another format, or one that is not known.
    """
    refuse_inputs_of(output, inputs)
    form = form_of(form, output)
    shown = frame.head(limit if limit is not None else 50 if form == "table" else frame.height)
    if redact:
        shown = _masked(shown)
    if form == "table":
        content = _table(shown, columns, is_file=output is not None, is_wide=is_wide).encode(
            "utf-8", "replace"
        )
    elif form == "csv":
        is_safe = output is not None if safe_csv is None else safe_csv
        content = as_csv(shown, is_safe=is_safe, is_seen=_is_seen(output)).encode()
    elif form == "json":
        content = as_json(shown, is_seen=_is_seen(output)).encode()
    else:
        content = _as_parquet(shown, is_seen=_is_seen(output))
    put(content, output, inputs=inputs, is_private=not redact)
    if shown.height < frame.height:
        note(f"{frame.height - shown.height:,} more rows; see them with {_ways_to_more()}")


def _masked(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame without what looks like a secret; what was taken out is counted."""
    masked, n_masked = redact_frame(frame)
    if n_masked:
        counts = ", ".join(f"{n} × {kind}" for kind, n in sorted(n_masked.items()))
        note(f"masked: {counts}; --no-redact shows them")
    return masked


def _ways_to_more() -> str:
    """What this command offers to see all rows; not every command has a limit of its own."""
    command = click.get_current_context(silent=True)
    has_limit = command is not None and "limit" in command.params
    return "--limit or --format csv" if has_limit else "--format csv"


def form_of(
    form: str | None,
    output: Path | None,
    formats: Mapping[str, Sequence[str]] = FORMATS,
    *,
    otherwise: str = "table",
) -> str:
    """The format that is asked for, in words or by the suffix of a file; never against it.

    Of formats that share a suffix the first is meant.

    Examples
    --------
    >>> form_of(None, None), form_of(None, Path("a.csv")), form_of("json", Path("a.log"))
    ('table', 'csv', 'json')
    """
    suffix = output.suffix.lower() if output else ""
    by_suffix = next((name for name, ends in formats.items() if suffix in ends), None)
    if form is None and output and suffix and by_suffix is None:
        ends = list(dict.fromkeys(itertools.chain.from_iterable(formats.values())))
        raise ArgumentError(
            f"The suffix of a file says how it is written; {str(output)!r} names no format.",
            f"end it in {', '.join(ends)}: -o {shlex.quote(str(output.with_suffix(ends[0])))}",
        )
    if form is not None and by_suffix is not None and suffix not in formats[form]:
        raise ArgumentError(
            f"{str(output)!r} looks like {by_suffix}, and the format that was asked for is {form}.",
            "leave --format out, or change the suffix",
        )
    return form or by_suffix or otherwise


def _is_seen(output: Path | None) -> bool:
    return output is None and sys.stdout.isatty()


def put(
    content: bytes,
    output: Path | None,
    *,
    inputs: Sequence[Path] = (),
    is_private: bool = False,
) -> None:
    """Bytes to a file that was not read, or to standard output."""
    if output is not None:
        sources = [*inputs, *_named_files(output)]
        write_output(output, content, inputs=sources, is_private=is_private)
        return
    sys.stdout.flush()
    # Piece by piece, so that a reader who went away is noticed.
    for begin in range(0, len(content), _PIECE_BYTES):
        sys.stdout.buffer.write(content[begin : begin + _PIECE_BYTES])
        sys.stdout.buffer.flush()


def show_in_browser(page: Path) -> None:
    """Open a page, or say where it is on a machine without a screen."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if sys.platform == "linux" and not any(map(os.environ.get, screens)):
        # What would open it there complains in lines of its own.
        note(f"no browser can be opened here; the page is {visible(str(page.resolve()))}")
        return
    click.launch(str(page.resolve()))


def refuse_inputs_of(output: Path | None, inputs: Sequence[Path] = ()) -> None:
    """An error, before the work begins, where the output is read, or has no place."""
    if output is not None:
        refuse_no_folder(output)
        refuse_inputs(output, [*inputs, *_named_files(output)])


def _named_files(output: Path) -> list[Path]:
    """The files that a command's line names beside its output: policies, rules, numbers."""
    command = click.get_current_context(silent=True)
    values = command.params.items() if command is not None else ()
    paths = [
        Path(text)
        for name, value in values
        if name not in _OUTPUTS
        for text in (value if isinstance(value, tuple) else (value,))
        if isinstance(text, str | Path)
    ]
    return [path for path in paths if _is_file(path)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def as_csv(frame: pl.DataFrame, *, is_safe: bool = False, is_seen: bool = False) -> str:
    """A frame as CSV: moments in ISO 8601, lists and structs as JSON, null as nothing."""
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
    """A frame as a JSON list of objects; what is not a number is null."""
    rows = [_json(row, is_ascii=is_seen) for row in frame.iter_rows(named=True)]
    return "[" + ",\n ".join(rows) + "]\n"


def _json(value: Any, *, is_ascii: bool = False) -> str:
    return json.dumps(_plain(value), ensure_ascii=is_ascii, allow_nan=False)


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | pl.Series):
        return [_plain(inner) for inner in value]
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


def _as_parquet(frame: pl.DataFrame, *, is_seen: bool) -> bytes:
    if is_seen:
        raise ArgumentError(
            "Parquet is for files, and the output is a terminal.", "-o result.parquet"
        )
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def as_table(frame: pl.DataFrame, width: int, *, is_wide: bool = False) -> tuple[str, int]:
    """A frame as lines of text, and how many of its columns did not fit.

    Columns keep their order. Wide ones give way first, what is said in words at twice the
    width; none is cut below that of a short word, so the last columns are left out where there
    are too many. An id is never cut: half of one names nothing. ``is_wide``: nothing is
    cut, and what is longer than its column goes on below.

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
    # What is said in words has twice the room of a name.
    share = [2 if name in _PROSE else 1 for name in frame.columns]

    def capped(cap: int) -> list[int]:
        columns = zip(needed, is_whole, share, strict=True)
        return [length if whole else min(length, cap * n) for length, whole, n in columns]

    least = list(itertools.accumulate(length + len(_GAP) for length in capped(_NARROWEST)))
    n_kept = max(1, sum(end - len(_GAP) <= width for end in least)) if columns else 0
    room = width - len(_GAP) * (n_kept - 1)
    cap = max(needed[:n_kept], default=0)
    while cap > _NARROWEST and sum(capped(cap)[:n_kept]) > room:
        cap -= 1
    lines = []
    widths = capped(cap)[:n_kept]
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
    # A line of wide characters takes more room than it has letters.
    return [part for line in lines for part in (chop_cells(line, size) or [""])]


def _table(
    frame: pl.DataFrame, columns: Sequence[str] | None, *, is_file: bool, is_wide: bool
) -> str:
    chosen = frame if columns is None else for_people(frame.select(_with_system(frame, columns)))
    text, n_left_out = as_table(chosen, _width(is_file), is_wide=is_wide)
    if n_left_out:
        columns_ = "column" if n_left_out == 1 else "columns"
        note(f"{n_left_out} more {columns_} did not fit; --format csv has them all")
    if not is_wide and "…" in text and _PROSE & {*chosen.columns}:
        note("long texts are cut; --wide wraps them")
    return f"{text}({frame.height:,} row{'' if frame.height == 1 else 's'})\n"


def _with_system(frame: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    """The columns to show, with whose system it is where there are several."""
    is_needed = "system" in frame.columns and frame["system"].drop_nulls().n_unique() > 1
    return list(dict.fromkeys([*columns[:1], "system", *columns] if is_needed else columns))


def for_people(frame: pl.DataFrame) -> pl.DataFrame:
    """Seconds and dollars as people say them; a name no longer tells a unit that a value has.

    Examples
    --------
    >>> for_people(pl.DataFrame({"run_s": [97_301.6, None], "cost_usd": [4.929, None]})).rows()
    [('1 d 3 h', '$4.93'), (None, None)]
    """
    seconds = [name for name, dtype in frame.schema.items() if _is_of(name, dtype, "_s")]
    dollars = [name for name, dtype in frame.schema.items() if _is_of(name, dtype, "_usd")]
    shown = frame.with_columns(
        *(how_long_each(name).alias(name) for name in seconds),
        *map(dollars_each, dollars),
    )
    plain = {name: name.replace("_usd", "") for name in dollars}
    plain |= {name: re.sub("_s(?=$|_before$)", "", name) for name in seconds}
    return shown.rename({old: new for old, new in plain.items() if new not in frame.columns})


def _is_of(name: str, dtype: pl.DataType, unit: str) -> bool:
    return name.removesuffix("_before").endswith(unit) and dtype.is_numeric()


def changed_only(frame: pl.DataFrame, column: str, quiet: Sequence[str]) -> pl.DataFrame:
    """The rows of a table of changes that say one, if any do, and a note of the others."""
    is_quiet = pl.col(column).cast(pl.String).is_in(list(quiet))
    counts = frame.filter(is_quiet)[column].cast(pl.String).value_counts(sort=True)
    if counts["count"].sum() in (0, frame.height):
        return frame
    said = ", ".join(f"{n} {word.replace('_', ' ')}" for word, n in counts.rows())
    note(f"{said}: not shown; --format csv has them")
    return frame.filter(~is_quiet)


def note_of_last_week(window: object, snap: Snapshot) -> None:
    """Where the clock calls another week the last: data may end before the week that is over."""
    from stateanalytics.core.windows import LAST_WEEK, in_utc, iso_week, read_window

    if window != LAST_WEEK or snap.as_of_from != "data":
        return
    counted = read_window(LAST_WEEK, as_of=snap.as_of)
    by_clock = read_window(LAST_WEEK, as_of=datetime.now(UTC))
    if counted != by_clock:
        note(
            f"last-week is {counted.label}, the last that is over at {in_utc(snap.as_of)} "
            f"({snap.why_as_of}); by the clock it is another: "
            f"--week {iso_week(by_clock.since.date())}"
        )


def note_of_nothing(frame: pl.DataFrame, snap: Snapshot, window: object) -> None:
    """Where a window has no row: which one that is, and from when to when data were read."""
    if not frame.is_empty() or window is None:
        return
    from stateanalytics.core.windows import in_utc, read_window

    moments = snap.entities.select(pl.min_horizontal("created_at", "started_at", "ended_at").min())
    first = moments.item()
    reach = f" from {in_utc(first)} to {in_utc(snap.as_of)}" if first else "; they hold no moment"
    label = read_window(window, as_of=snap.as_of).label
    note(f"nothing of this in {label}; the data that were read go{reach}")


def _width(is_file: bool) -> int:
    if os.environ.get("COLUMNS", "").isdecimal():
        return max(20, int(os.environ["COLUMNS"]))
    if is_file or not sys.stdout.isatty():
        return _PIPE_WIDTH
    return os.get_terminal_size(sys.stdout.fileno()).columns


def cell(value: Any, *, is_whole: bool = False) -> str:
    """One value of a table as harmless text, short unless it must be whole; null as nothing.

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
    text = value if isinstance(value, str) else str(_plain(value))
    if is_whole:
        return visible(text)
    return shortened(visible(text[: 4 * _WIDEST_CELL]), _WIDEST_CELL)

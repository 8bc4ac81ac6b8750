"""Where what a command says goes: to the terminal or a file, in which form, with which notes."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import polars as pl

from stateanalytics.cli.formats import as_csv, as_json, as_parquet
from stateanalytics.cli.options import note
from stateanalytics.cli.tables import table_for_people
from stateanalytics.core.redaction import redact_with_names
from stateanalytics.core.text import visible
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
_PIECE_BYTES = 2**16
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
        text = table_for_people(shown, columns, is_file=output is not None, is_wide=is_wide)
        content = text.encode("utf-8", "replace")
    elif form == "csv":
        is_safe = output is not None if safe_csv is None else safe_csv
        content = as_csv(shown, is_safe=is_safe, is_seen=_is_seen(output)).encode()
    elif form == "json":
        content = as_json(shown, is_seen=_is_seen(output)).encode()
    else:
        content = as_parquet(shown, is_seen=_is_seen(output))
    put(content, output, inputs=inputs, is_private=not redact)
    if shown.height < frame.height:
        note(f"{frame.height - shown.height:,} more rows; see them with {_ways_to_more()}")


def _masked(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame without what looks like a secret; what was taken out is counted."""
    masked, n_masked = redact_with_names(frame)
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
    if form is not None and form not in formats:
        raise ArgumentError(
            f"This cannot be written as {form}.", f"--format {' or '.join(formats)}"
        )
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
    """The files other than its output that a command's line names: policies, rules, numbers."""
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

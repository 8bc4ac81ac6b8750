"""Where an answer goes: to the terminal or a file, in which format, with which notes."""

from __future__ import annotations

import io
import itertools
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import polars as pl

from stateanalytics.cli import options
from stateanalytics.core.redaction import redact_with_names
from stateanalytics.core.tables import PROSE, as_table, for_people, plain
from stateanalytics.core.text import LONG_ID, shell_word, visible, without_formula
from stateanalytics.core.words import count
from stateanalytics.errors import ArgumentError
from stateanalytics.io.outputs import refuse_inputs, refuse_no_folder, write_output

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.snapshot import Snapshot
    from stateanalytics.state.policy import Policy

FORMATS: Mapping[str, Sequence[str]] = {
    "csv": (".csv",),
    "json": (".json",),
    "parquet": (".parquet",),
    "table": (".txt",),
}
"""What a table is written as, and the suffixes of each."""
PAGES: Mapping[str, Sequence[str]] = {"html": (".html", ".htm")}
_CLEAR = frozenset({".csv", ".json", ".parquet", ".html", ".htm"})
_PIPE_WIDTH = 160
_PIECE_BYTES = 2**16
_OUTPUTS = frozenset({"output", "target", "metadata", "otlp", "metrics_file"})
"""Options that name output files, which may exist from an earlier run."""


@dataclass(frozen=True)
class Request:
    """The shared part of a command's line: which stores, as of when, and where the answer goes."""

    sources: tuple[str, ...] = ()
    week: str | None = None
    since: str | None = None
    until: str | None = None
    as_of: str | None = None
    probe: bool = False
    salvage: bool = False
    bodies: bool = False
    policy: str = "v1"
    limit: int | None = None
    form: str | None = None
    output: Path | None = None
    safe_csv: bool | None = None
    redact: bool = True
    wide: bool = False

    @property
    def window(self) -> object:
        """What the library takes as a window; None where nothing was asked for."""
        has_moments = self.since is not None or self.until is not None
        if self.week is not None and has_moments:
            raise click.UsageError(
                "A window is a week, or since and until; found both. Hint: remove one of them"
            )
        return self.week or ((self.since, self.until) if has_moments else None)

    @property
    def chosen_policy(self) -> Policy:
        """The policy that was named."""
        from stateanalytics.state.policy import Policy

        return Policy.of(self.policy)

    @property
    def format(self) -> str:
        """The format of a frame that is the answer."""
        return chosen_format(self.form, self.output)

    def opened(
        self, *, is_table: bool = True, is_followed: bool = False, has_notes: bool = True
    ) -> Snapshot:
        """Read the sources, once it is known where and what to write; note what is lost.

        Parameters
        ----------
        is_table : bool
            Whether the answer is a frame, which has a format.
        is_followed : bool
            Whether the snapshot will be refreshed.
        has_notes : bool
            Whether the `notes` are printed now.
        """
        refuse_input_as_output(self.output)
        if is_table:
            chosen_format(self.form, self.output)
            options.hold_notes()
        from stateanalytics.io import processes

        processes.start_ahead()  # they start while the readers are imported
        from stateanalytics import snapshot

        given = click.get_current_context().meta
        read = snapshot.read if is_followed else snapshot.read_for_once
        snap = read(
            *self.sources,
            as_of=self.as_of,
            bodies=self.bodies,
            on_error="salvage" if self.salvage else "skip",
            probe=self.probe,
            budget=given.get(options.BUDGET),
            cache=not given.get(options.NO_CACHE),
        )
        for line in self.notes(snap) if has_notes else ():
            click.echo(line, err=True)
        return snap

    def notes(self, snap: Facts) -> list[str]:
        """Lines about what was read and what is lost, for standard error."""
        from stateanalytics.core.facts import losses_of
        from stateanalytics.core.redaction import redact

        lost = losses_of(snap.findings).select("severity", "source", "message", "table")
        lines = [
            f"{'warning' if kind == 'warning' else 'note: lost'}: {of}: {why}"
            + (f" ({place})" if place and place not in why else "")
            for kind, of, why, place in redact(lost)[0].iter_rows()
        ]
        if not self.sources:
            lines.append(f"note: reading {', '.join(snap.sources['source'])}")
        if self.as_of is not None and snap.as_of > datetime.now(UTC):
            at = f"as-of {snap.as_of:%Y-%m-%d %H:%M} UTC"
            lines.append(f"note: {at} is in the future; ages count up to it")
        return [visible(line) for line in lines]

    def write(
        self,
        frame: pl.DataFrame,
        *,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        inputs: Sequence[Path] = (),
    ) -> None:
        """Print the answer, or write it to the file that was named.

        Parameters
        ----------
        frame : polars.DataFrame
            The answer.
        columns : sequence of str, optional
            The columns of a table, durations and sums in words; files always get all, unchanged.
        limit : int, optional
            Rows to print; by default 50 in a table, all otherwise.
        inputs : sequence of Path
            Files and directories that must not be written over, besides those that the command
            line names.

        Raises
        ------
        ArgumentError
            If the output cannot be written, or is an input, or Parquet would go to a terminal;
            or if its suffix contradicts the format, or names none.
        """
        refuse_input_as_output(self.output, inputs)
        limit = limit or self.limit or (50 if self.format == "table" else frame.height)
        shown = frame.head(min(limit, frame.height))
        if self.redact:
            shown = _masked(shown)
        is_file = self.output is not None
        is_seen = not is_file and sys.stdout.isatty()
        if self.format == "table":
            text = table_for_people(shown, columns, is_file=is_file, is_wide=self.wide)
            content = text.encode("utf-8", "replace")
        elif self.format == "csv":
            is_safe = is_file if self.safe_csv is None else self.safe_csv
            content = as_csv(shown, is_safe=is_safe, is_seen=is_seen).encode()
        elif self.format == "json":
            content = as_json(shown, is_seen=is_seen).encode()
        else:
            content = as_parquet(shown, is_seen=is_seen)
        # With --no-redact, only the owner may read the file.
        put(content, self.output, inputs=inputs, is_private=not self.redact)
        if shown.height < frame.height:
            more = count(frame.height - shown.height, "more row")
            options.note(f"{more}; see them with --limit or --format csv")


def takes(
    *own: options.Option,
    formats: Mapping[str, Sequence[str]] | None = FORMATS,
    otherwise: str = "a table",
) -> options.Option:
    """Give a command shared options, and its function one `Request` in place of them.

    Without ``formats`` the command has no options for the output of a frame.
    """

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        shared = [field.name for field in fields(Request)]

        @wraps(command)
        def with_request(**arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in shared if name in arguments}
            command(Request(**given), **arguments)

        decorated: Callable[..., Any] = with_request
        if formats is not None:
            decorated = options.output_options(formats, otherwise)(decorated)
        return options.combined(*own)(decorated)

    return add


def _masked(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame without what looks like a secret, with a note of how much was masked."""
    masked, n_masked = redact_with_names(frame)
    if n_masked:
        counts = ", ".join(f"{n} × {kind}" for kind, n in sorted(n_masked.items()))
        options.note(f"masked: {counts}; --no-redact shows them")
    return masked


def chosen_format(
    form: str | None,
    output: Path | None,
    formats: Mapping[str, Sequence[str]] = FORMATS,
    *,
    otherwise: str = "table",
) -> str:
    """The format that is asked for by name or by the suffix of a file, which must agree.

    Of formats that share a suffix the first is meant.

    Examples
    --------
    >>> chosen_format(None, None), chosen_format(None, Path("a.csv"))
    ('table', 'csv')
    >>> chosen_format("json", Path("a.log"))
    'json'
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
            f"The suffix of a file chooses its format; {str(output)!r} has no known suffix.",
            f"end it in {', '.join(ends)}: -o {shlex.quote(str(output.with_suffix(ends[0])))}",
        )
    # A suffix may also mean a format that only other commands write.
    means = by_suffix or (suffix[1:] if suffix in _CLEAR else None)
    if form is not None and means and suffix not in formats[form]:
        raise ArgumentError(
            f"The suffix of {str(output)!r} means {means}, but --format is {form}.",
            f"{'remove --format, or ' if by_suffix else ''}change the suffix",
        )
    return form or by_suffix or otherwise


def put(
    content: bytes, output: Path | None, *, inputs: Sequence[Path] = (), is_private: bool = False
) -> None:
    """Write bytes to a file that is no input, or to standard output."""
    if output is not None:
        write_output(output, content, inputs=[*inputs, *_named_files()], is_private=is_private)
        return
    sys.stdout.flush()
    # In pieces, so that a closed pipe is noticed early.
    for begin in range(0, len(content), _PIECE_BYTES):
        sys.stdout.buffer.write(content[begin : begin + _PIECE_BYTES])
        sys.stdout.buffer.flush()


def program() -> str:
    """How a shell runs this program: by its name where it is on PATH, else by its interpreter."""
    if shutil.which("stateanalytics"):
        return "stateanalytics"
    home, python = f"{Path.home()}{os.sep}", sys.executable
    # A shell expands the tilde only outside of quotes.
    is_own = python.startswith(home)
    shown = f"~/{shell_word(python.removeprefix(home))}" if is_own else shell_word(python)
    return f"{shown} -m stateanalytics"


def show_in_browser(page: Path) -> None:
    """Open a page, or print its path on a machine without a screen."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if sys.platform == "linux" and not any(map(os.environ.get, screens)):
        # The opener would print error messages of its own there.
        options.note(f"no browser can be opened here; the page is {visible(str(page.resolve()))}")
        return
    click.launch(str(page.resolve()))


def refuse_input_as_output(output: Path | None, inputs: Sequence[Path] = ()) -> None:
    """Raise, before the work begins, where the output is an input, or has no folder."""
    if output is not None:
        refuse_no_folder(output)
        refuse_inputs(output, [*inputs, *_named_files()])


def _named_files() -> list[Path]:
    """The files other than outputs that the command line names: policies, rules, numbers."""
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
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return False


def note_of_last_week(window: object, snap: Snapshot, tz: object = None) -> None:
    """Note that the data end early, so that *last week* is not that of today's date."""
    from stateanalytics.core.windows import LAST_WEEK, iso_week, minute_of, read_window, zone_of

    if window != LAST_WEEK or snap.as_of_from != "data":
        return
    counted = read_window(LAST_WEEK, as_of=snap.as_of, tz=tz)
    by_clock = read_window(LAST_WEEK, as_of=datetime.now(UTC), tz=tz)
    if counted != by_clock:
        options.note(
            f"last-week is {counted.label}, the last week over at {minute_of(snap.as_of)} "
            f"({snap.why_as_of}); by today's date it is another: "
            f"--week {iso_week(by_clock.since.astimezone(zone_of(tz)).date())}"
        )


def note_of_empty_window(
    frame: pl.DataFrame, snap: Snapshot, window: object, tz: object = None
) -> None:
    """Note that nothing was found in a window, with the period that the data cover."""
    if not frame.is_empty() or (window is None and snap.entities.height):
        return
    from stateanalytics.core.windows import minute_of, read_window
    from stateanalytics.systems.history import begins_at

    first, last = begins_at(snap.entities), minute_of(snap.as_of)
    reach = f"go from {minute_of(first)} to {last}" if first else "have no timestamp"
    label = read_window(window, as_of=snap.as_of, tz=tz).label
    found = f"nothing found in {label}; the data that were read {reach}"
    options.note(found if snap.entities.height else f"nothing is recorded here up to {last}")


def newest_first(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the newest period first, so that a table that is cut shows the latest."""
    periods = [name for name in ("month", "week", "day", "since") if name in rows.columns]
    if not periods:
        return rows
    return rows.sort(periods, descending=True, nulls_last=True, maintain_order=True)


def table_for_people(
    frame: pl.DataFrame, columns: Sequence[str] | None, *, is_file: bool, is_wide: bool
) -> str:
    """Columns of a frame as a table for people, with a note of what did not fit."""
    chosen = frame if columns is None else for_people(frame.select(_with_system(frame, columns)))
    is_coloured = not is_file and _has_colour()
    text, n_hidden = as_table(chosen, _width(is_file), is_wide=is_wide, is_coloured=is_coloured)
    if n_hidden:
        options.note(f"{count(n_hidden, 'more column')} did not fit; --format csv has them all")
    if not is_wide and "…" in text and PROSE & {*chosen.columns}:
        options.note("long texts are cut; --wide wraps them")
    return f"{text}({frame.height:,} row{'' if frame.height == 1 else 's'})\n"


def _has_colour() -> bool:
    is_forced = os.environ.get("FORCE_COLOR", "0") not in ("", "0")
    is_seen = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return not os.environ.get("NO_COLOR") and (is_forced or is_seen)


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


def named_entities(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with ``entity``, an argument for ``show``: the type, and the id or its beginning."""
    start = pl.col("entity_id").str.replace(LONG_ID, "${1}${2}")
    is_unique = pl.col("entity_id").n_unique().over(start) == 1
    shown = pl.when(is_unique).then(start).otherwise("entity_id")
    return rows.with_columns(entity=pl.format("{}:{}", "entity_type", shown))


def changed_only(frame: pl.DataFrame, column: str, quiet: Sequence[str]) -> pl.DataFrame:
    """The rows with a change and a note that counts the others; all rows if none has one."""
    is_quiet = pl.col(column).cast(pl.String).is_in(list(quiet))
    counts = frame.filter(is_quiet)[column].cast(pl.String).value_counts(sort=True)
    if counts["count"].sum() in (0, frame.height):
        return frame
    words = ", ".join(f"{n} {word.replace('_', ' ')}" for word, n in counts.rows())
    options.note(f"{words}: not shown; --format csv has them")
    return frame.filter(~is_quiet)


def as_csv(frame: pl.DataFrame, *, is_safe: bool = False, is_seen: bool = False) -> str:
    """A frame as CSV: moments in ISO 8601, lists and structs as JSON, null as an empty field."""
    flat = frame.select(_flat(column) for column in frame.get_columns())
    for clean, is_wanted in ((without_formula, is_safe), (visible, is_seen)):
        if is_wanted:
            texts = pl.col(pl.String).map_elements(clean, return_dtype=pl.String)
            flat = flat.with_columns(texts).rename(clean)
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


def as_parquet(frame: pl.DataFrame, *, is_seen: bool) -> bytes:
    """A frame as Parquet, which is for files only."""
    if is_seen:
        raise ArgumentError("Parquet cannot be printed to a terminal.", "-o result.parquet")
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()

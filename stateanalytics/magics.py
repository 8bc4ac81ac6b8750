"""SQL cells in a notebook: ``%load_ext stateanalytics``, then ``%%statesql``.

::

    %%statesql -o slow
    SELECT name, age_s FROM slow_sessions WHERE kind = $kind

The cell is the same question as ``snap.sql(...)``, with the same limits. ``$kind`` is the
variable of that name, bound as a value and never read as SQL. TAB completes names of
tables, and of columns after a dot.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NoReturn

import polars as pl
from IPython.core.completer import SimpleCompletion, context_matcher

from stateanalytics.core.redaction import redact
from stateanalytics.core.tables import N_FIRST, as_html, as_table, counted, for_people, in_order
from stateanalytics.errors import ArgumentError, did_you_mean, in_short
from stateanalytics.questions import QUESTIONS
from stateanalytics.snapshot import Snapshot

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell

NAME = "statesql"
IDENTIFIER = f"stateanalytics.{NAME}"
_OURS = re.compile(rf"\s*%%?{NAME}\b")
_PARAMETER = re.compile(r"\$([A-Za-z_]\w*)")
# What a parameter cannot stand in: texts, quoted names and comments.
_NO_SQL = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_TYPED = re.compile(r"(?:(\w+)\.)?(\w*)$")
_WORDS = ("SELECT", "FROM", "WHERE", "GROUP BY ALL", "ORDER BY", "LIMIT", "JOIN", "USING")


def magic_for(shell: InteractiveShell) -> Callable[[str, str | None], pl.DataFrame | None]:
    """The function behind ``%statesql`` and ``%%statesql`` of a shell."""

    def statesql(line: str, cell: str | None = None) -> pl.DataFrame | None:
        if cell is None:
            line, cell = _options_and_query(line)
        asked = _options().parse_args(_words(line))
        names = shell.user_ns
        result = _snapshot_of(names, asked.snap).sql(
            cell, _bound(cell, names), max_rows=asked.max_rows, timeout_s=asked.timeout
        )
        if asked.output is None:
            return result
        names[asked.output] = result
        return None

    statesql.__doc__ = (
        "Ask a snapshot in SQL; the result is a polars frame.\n\n" + _options().format_help()
    )
    return statesql


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


class _Options(argparse.ArgumentParser):
    """Options that say what is wrong with them, and do not end the kernel."""

    def error(self, message: str) -> NoReturn:
        raise ArgumentError(
            f"%%{NAME}: {message}.", f"%%{NAME}? lists the options; the query begins on a new line"
        )


def _options() -> _Options:
    options = _Options(prog=f"%%{NAME}", add_help=False)
    add = options.add_argument
    add("-s", "--snap", help="variable that holds the snapshot; else the only one there is")
    add("-o", "--output", type=_name, help="variable for the frame, instead of showing it")
    add("--max-rows", type=int, default=10_000, help="a longer result is cut, and says so")
    add("--timeout", type=float, default=30.0, help="seconds that the query may take")
    return options


def _name(text: str) -> str:
    if not text.isidentifier() or iskeyword(text):
        raise argparse.ArgumentTypeError(f"{in_short(text)} is no name of a variable")
    return text


def _options_and_query(line: str) -> tuple[str, str]:
    """A line magic is options first, then the query: it keeps its quotes."""
    options = re.match(r"\s*(?:(?:-s|--snap|-o|--output|--max-rows|--timeout)[ =]\S+\s+)*", line)
    end = options.end() if options else 0
    return line[:end], line[end:]


def _snapshots(names: Mapping[str, Any]) -> dict[str, Snapshot]:
    """The user's snapshots by name; IPython's own names of past results are not theirs."""
    return {
        name: value
        for name, value in names.items()
        if isinstance(value, Snapshot) and not name.startswith("_")
    }


def _snapshot_of(names: Mapping[str, Any], name: str | None) -> Snapshot:
    there = _snapshots(names)
    if name is not None:
        if name in there:
            return there[name]
        raise ArgumentError(
            f"{in_short(name)} is not a snapshot; there are {', '.join(sorted(there)) or 'none'}.",
            f"name one: %%{NAME} -s snap" + did_you_mean(name, there),
        )
    if "snap" in there:
        return there["snap"]
    if not there:
        raise ArgumentError(
            f"%%{NAME} needs a snapshot, and no variable is one.",
            'snap = sa.read("state.db"), or snap = sa.demo()',
        )
    # The same snapshot under two names is one.
    if len(set(map(id, there.values()))) > 1:
        raise ArgumentError(
            f"There are several snapshots: {', '.join(sorted(there))}.",
            f"name one: %%{NAME} -s {min(there)}",
        )
    return next(iter(there.values()))


def _bound(query: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the variables that a query names with ``$``."""
    wanted = dict.fromkeys(_PARAMETER.findall(_NO_SQL.sub(" ", query)))
    if missing := [name for name in wanted if name not in names]:
        raise ArgumentError(
            f"The query names ${missing[0]}, and there is no variable {missing[0]}.",
            f"{missing[0]} = … in a cell above" + did_you_mean(missing[0], names),
        )
    return {name: names[name] for name in wanted}


def matcher_for(shell: InteractiveShell) -> Any:
    """What completes names of tables and columns in the cells of a shell."""

    def complete(context: CompletionContext) -> SimpleMatcherResult:
        lines = context.full_text.split("\n")[: context.cursor_line]
        written = "\n".join([*lines, context.text_until_cursor])
        begins = written if written.lstrip().startswith("%%") else context.text_until_cursor
        if not _OURS.match(begins):
            return {"completions": [], "suppress": False}
        names = [SimpleCompletion(text) for text in names_for(written, shell.user_ns)]
        return {"completions": names, "suppress": True}

    return context_matcher(identifier=IDENTIFIER, priority=100)(complete)


def names_for(written: str, names: Mapping[str, Any]) -> list[str]:
    """What the last word of a query may become.

    Parameters
    ----------
    written : str
        The cell up to the cursor, its options included.
    names : mapping
        The user's variables, among them the snapshot.

    Returns
    -------
    list of str
        Tables first, then columns of the tables that the query names, then SQL words;
        after ``table.`` the columns of that table; nothing where there is no snapshot.
    """
    typed = _TYPED.search(written)
    table, begun = (typed[1], typed[2].lower()) if typed else (None, "")
    option = re.search(r"(?:-s|--snap)[ =](\w+)", written.split("\n", 1)[0])
    try:
        columns = _snapshot_of(names, option[1] if option else None).table("columns")
    except ArgumentError:
        return []
    tables = columns["frame"].unique(maintain_order=True).to_list()
    if table is not None:
        spellings = [name for name in tables if name.lower() == table.lower()]
        of_table = columns.filter(pl.col("frame").is_in(spellings))["column"].to_list()
        return [f"{table}.{name}" for name in of_table if name.lower().startswith(begun)]
    return list(_candidates(written, begun, tables, columns))


def _candidates(
    written: str, begun: str, tables: list[str], columns: pl.DataFrame
) -> Iterator[str]:
    """Tables first, then columns of the tables that the query names, then words."""
    named = set(re.findall(r"\w+", written.lower()))
    used = [table for table in tables if table.lower() in named and table.lower() != begun]
    of_used = columns.filter(pl.col("frame").is_in(used))["column"].unique(maintain_order=True)
    for name in (*tables, *of_used.to_list(), *_WORDS):
        if name.lower().startswith(begun):
            yield name


def load(shell: InteractiveShell) -> None:
    """Add the magic and its completion to a shell; loading twice adds nothing."""
    magic = magic_for(shell)
    shell.register_magic_function(magic, "line_cell", NAME)  # type: ignore[arg-type]
    completer = shell.Completer
    if completer is not None and not any(map(_is_ours, completer.custom_matchers)):
        completer.custom_matchers.append(matcher_for(shell))


def unload(shell: InteractiveShell) -> None:
    """Take both away again."""
    shell.magics_manager.magics["line"].pop(NAME, None)
    shell.magics_manager.magics["cell"].pop(NAME, None)
    if shell.Completer is not None:
        shell.Completer.custom_matchers[:] = [
            matcher for matcher in shell.Completer.custom_matchers if not _is_ours(matcher)
        ]


def _is_ours(matcher: Any) -> bool:
    return getattr(matcher, "matcher_identifier", None) == IDENTIFIER


# --- how frames are shown --------------------------------------------------------------

_WIDTH, _N_LINES = 160, 24
_STAND_FOR = {"entity": ("entity_type", "entity_id"), "id": ("cluster_id",)}
"""Columns that only a terminal has, and what they are made from."""


def frame_as_html(frame: pl.DataFrame) -> str:
    """How a notebook shows a frame; one whose columns are not documented as polars shows it."""
    known = explained(frame)
    return str(frame._repr_html_()) if known is None else as_html(frame, *known)


def write_frame(frame: pl.DataFrame, printer: Any, is_circular: bool) -> None:
    """How IPython shows a frame in a terminal."""
    known = explained(frame)
    if known is None or is_circular:
        printer.text(repr(frame))
        return
    rows, _ = redact(frame.select(in_order(frame, known[0])[:N_FIRST]).head(_N_LINES))
    width = shutil.get_terminal_size((_WIDTH, 1)).columns
    text, _ = as_table(for_people(rows, is_renamed=False), width)
    printer.text(f"{text}({counted(frame, _N_LINES)})")


def explained(frame: pl.DataFrame) -> tuple[list[str], dict[str, str]] | None:
    """The columns that matter first and the notes on all; None where few are documented.

    Parameters
    ----------
    frame : polars.DataFrame
        A result, or what was made of one: it is known by its columns.
    """
    from stateanalytics.sql.returned import described, frames_named

    notes = described(frame)
    known = notes.drop_nulls("frame")["frame"]
    # One or two names that many frames have say nothing.
    if known.len() < min(2, frame.width) or 2 * known.len() < frame.width or frame.width < 2:
        return None
    of = known.value_counts(sort=True)["frame"][0]
    first = next(
        (
            question.columns
            for question in QUESTIONS
            if question.table == of or of in [one.name for one in frames_named(question.function)]
        ),
        (),
    )
    # What the call grouped by, or was joined to it, is asked for by name.
    of_call = notes.filter(pl.col("frame").ne_missing(of))["column"]
    shown = [*of_call, *(name for one in first for name in _STAND_FOR.get(one, (one,)))]
    with_unit = {
        name: f"{meaning} ({unit or dtype})"
        for _, name, dtype, unit, meaning in notes.iter_rows()
        if meaning
    }
    return shown, with_unit

"""Options that several commands share, and lines for people on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import click

from stateanalytics.core.package_tables import keyed_table, place_of, wrong_cell
from stateanalytics.core.text import visible
from stateanalytics.questions import examples_of

if TYPE_CHECKING:
    from stateanalytics.errors import ArgumentError
    from stateanalytics.snapshot import Snapshot

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What `click.option` gives: it adds an option to a command."""

BUDGET = f"{__name__}.budget"
"""Key of the value of ``--budget`` in the context of click."""
NO_CACHE = f"{__name__}.no_cache"
"""Key of whether ``--no-cache`` was given."""
_HELD = f"{__name__}.held"
"""Key of the notes of a command that prints a table."""
FILE = click.Path(path_type=Path, dir_okay=False)
_TYPES: Mapping[str, click.ParamType[Any]] = {
    "text": click.STRING,
    "number": click.FLOAT,
    "seconds": click.FloatRange(min=0, min_open=True),
    "share": click.FloatRange(0, 1, min_open=True, max_open=True),
    "amount": click.IntRange(min=0),
    "count": click.IntRange(min=1),
    "file": FILE,
    "folder": click.Path(path_type=Path, file_okay=False),
    "path": click.Path(path_type=Path),
}


class _Row(NamedTuple):
    """One option of the table ``data/options.csv``.

    Attributes
    ----------
    key : str
        Its name in the table: the parameter that it gives a value, after a command where the
        option is that of one command.
    flags : tuple of str
        What people type.
    kind : str
        What it takes: nothing (flag), yes or no (switch), one of some words, or a type.
    help : str
        Its line in the help.
    words : tuple of str
        Those that it takes.
    is_repeated : bool
        Whether it may be given several times.
    default : tuple of str
        Its value if it is not given.
    alone : str
        Its value if it is given without one.
    metavar : str, optional
        What the help calls its value.
    parameter : str
        The parameter, where the key does not end with it.
    """

    key: str
    flags: tuple[str, ...]
    kind: Annotated[str, ("flag", "switch", "word", *_TYPES)]
    help: str
    words: tuple[str, ...] = ()
    is_repeated: bool = False
    default: tuple[str, ...] = ()
    alone: str = ""
    metavar: str | None = None
    parameter: str = ""


_ROWS = keyed_table("stateanalytics.cli", "options.csv", _Row, "key")
_SWITCHED: Mapping[tuple[str, ...], bool | None] = {(): None, ("yes",): True, ("no",): False}


def _wrong(row: _Row, column: str, needed: str) -> ArgumentError:
    """The error that says which cell of the table is wrong."""
    number = 1 + [*_ROWS].index(row.key)
    cell = getattr(row, column)
    text = "|".join(cell) if isinstance(cell, tuple) else cell
    return wrong_cell(place_of("stateanalytics.cli", "options.csv"), number, column, needed, text)


def combined(*options: Option) -> Option:
    """Several options as one, in this order in the help."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def option(key: str, **more: Any) -> Option:
    """An option of the table; its default is in the help, unless the words there name it."""
    row = _ROWS[key]
    if not row.flags:
        raise _wrong(row, "flags", "what people type, such as --week")
    if (row.kind == "word") != bool(row.words):
        raise _wrong(row, "words", "words where the kind is word, and nowhere else")
    given: dict[str, Any] = {"help": row.help, "metavar": row.metavar, **more}
    if row.kind == "flag":
        given |= {"flag_value": row.alone} if row.alone else {"is_flag": True}
    elif row.kind == "switch":
        if row.default not in _SWITCHED:
            raise _wrong(row, "default", "yes, no or nothing")
        given["default"] = _SWITCHED[row.default]
    else:
        kind = click.Choice(row.words) if row.words else _TYPES[row.kind]
        given |= {"type": kind, "multiple": row.is_repeated}
        if values := _converted(row, "default", kind, row.default):
            given["default"] = values if row.is_repeated else values[0]
        if row.alone:
            [value] = _converted(row, "alone", kind, [row.alone])
            given |= {"is_flag": False, "flag_value": value}
    given["show_default"] = bool(row.default) and "by default" not in row.help
    return click.option(*row.flags, row.parameter or key.rpartition(".")[2], **given)


def _converted(
    row: _Row, column: str, kind: click.ParamType[Any], texts: Iterable[str]
) -> list[Any]:
    """The values of texts of the table, as the option would convert them."""
    try:
        return [kind.convert(text, None, None) for text in texts]
    except click.BadParameter as error:
        raise _wrong(row, column, f"a value of the option ({error.message})") from None


def sources_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The stores to read, and what reading them may cost; see `Request.opened`."""

    def remember(context: click.Context, option: click.Parameter, given: Any) -> None:
        context.meta[BUDGET if option.name == "budget" else NO_CACHE] = given

    reading = (option(key, callback=remember, expose_value=False) for key in ("budget", "no_cache"))
    return click.argument("sources", nargs=-1, metavar="[SOURCES]...")(combined(*reading)(command))


def _split(_: click.Context, __: click.Parameter, given: Sequence[str]) -> list[str]:
    return [name.strip() for names in given for name in names.split(",")]


_CALLBACKS: Mapping[str, Callable[..., Any]] = {
    "by": _split,
    "cost_by": _split,
    "detectors": lambda *given: _split(*given) or None,
}
_MADE = {key: option(key, callback=_CALLBACKS.get(key)) for key in _ROWS}
_COSTS = ("false_alarm", "undetected_hour", "lost_run", "run_hour", "deaths")


def named(*keys: str) -> Option:
    """Options of the table, in this order in the help."""
    return combined(*map(_MADE.__getitem__, keys))


OPTIONS: Mapping[str, Option] = {
    **_MADE,
    "window": named("week", "since", "until"),
    "costs": named(*_COSTS),
}
"""Every option by its key; those of questions, by the parameter that each gives a value."""
READING = named("as_of", "probe", "salvage", "policy")
"""The options of every command that derives states from stores."""
STORED = named("as_of", "policy", "bodies", "salvage")
"""The options of commands that show what stores hold."""


def pairs_given(texts: Sequence[str], rule: str, example: str) -> dict[str, str]:
    """The values of ``NAME=VALUE`` arguments, by name."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip("$ "):
            raise click.UsageError(f"{rule}, found {text!r}. Hint: {example}")
        pairs[name.strip("$ ")] = value
    return pairs


def with_tables(snap: Snapshot, own: Sequence[str]) -> Snapshot:
    """The snapshot with the tables that ``--table`` names."""
    for name, path in pairs_given(own, "A table is NAME=FILE", "--table teams=teams.csv").items():
        snap = snap.with_table(name, path)
    return snap


def examples(command: str = "") -> str:
    """The examples at the end of the help of a command, or of the program."""
    return "\b\n" + "\n".join(("Examples:", *(f"  {line}" for line in examples_of(command))))


def refuse_options_of_others(mode: str, modes: Mapping[str, Sequence[str]]) -> None:
    """Refuse options on the command line that ``mode`` would ignore.

    Parameters
    ----------
    mode : str
        What the command does this time, as people type it: ``--show change``.
    modes : mapping of str to sequence of str
        The modes that use a parameter, by its name; the other parameters belong to all.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        name = str(parameter.name)
        is_given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if is_given and mode not in modes.get(name, (mode,)):
            raise click.UsageError(
                f"{parameter.opts[-1]} belongs to {' or '.join(modes[name])}. Hint: remove it"
            )


def output_options(formats: Iterable[str], otherwise: str = "a table") -> Option:
    """``--format``, ``--output``, ``--redact``, ``--wide`` and ``--safe-csv``."""
    form = click.option(
        "-f",
        "--format",
        "form",
        type=click.Choice(tuple(formats)),
        help=f"Print in this format; {otherwise} by default.",
    )
    return combined(form, named("output", "safe_csv", "wide", "redact"))


def note(text: str) -> None:
    """One line for people on standard error. With `hold_notes`, later ones wait for the table."""
    context = click.get_current_context(silent=True)
    held = context.meta.get(_HELD) if context is not None else None
    line = f"note: {visible(text)}\n"
    if not held:
        sys.stderr.write(line)
    if held is not None:
        held.append(line)


def hold_notes() -> None:
    """Print all notes except the first after the table, when the command ends."""
    context = click.get_current_context()
    if _HELD not in context.meta:
        held: list[str] = context.meta.setdefault(_HELD, [])
        context.find_root().call_on_close(lambda: sys.stderr.writelines(held[1:]))


def warn(text: str) -> None:
    """One line on standard error: a warning about numbers that are likely to be wrong."""
    print(f"warning: {visible(text)}", file=sys.stderr)

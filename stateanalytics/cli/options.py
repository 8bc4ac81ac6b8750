"""Arguments that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from stateanalytics.core.text import visible

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot
    from stateanalytics.state.policy import Policy

Command = TypeVar("Command", bound=Callable[..., Any])

_BUDGET = f"{__name__}.budget"


def sources_argument(command: Command) -> Command:
    """The stores to read, and what reading them may cost; see `budget_of`."""

    def keep(context: click.Context, _: click.Parameter, given: str | None) -> None:
        context.meta[_BUDGET] = given

    budget = click.option(
        "--budget",
        metavar="LIMITS",
        callback=keep,
        expose_value=False,
        help="Read no more than this, such as processor_s=60,n_rows=1000000; off: no limit.",
    )
    return click.argument("sources", nargs=-1, metavar="[SOURCES]...")(budget(command))


as_of_option = click.option(
    "--as-of",
    metavar="MOMENT",
    help="Read the states at this instant: ISO text (UTC without a zone) or epoch seconds. "
    "By default it is the newest moment in the data; the clock for a store in use.",
)
policy_option = click.option(
    "--policy",
    metavar="NAME|FILE",
    default="v1",
    show_default=True,
    help="Judge by this policy: v1 (ADR-0033), adr0025, operator, parity, or a .toml or .json "
    "file.",
)
bodies_option = click.option(
    "--bodies", is_flag=True, help="Read what people and models said, too."
)

redact_option = click.option(
    "--redact/--no-redact", default=True, help="Mask what looks like a secret.", show_default=True
)
probe_option = click.option(
    "--probe",
    is_flag=True,
    help="Check whether recorded processes are alive, on this machine and now.",
)
salvage_option = click.option(
    "--salvage", is_flag=True, help="Read what is left of a damaged store, and say what is lost."
)

detectors_option = click.option(
    "--detectors",
    "--detector",
    "chosen",
    multiple=True,
    metavar="NAMES",
    callback=lambda _ctx, _param, given: (
        [name.strip() for names in given for name in names.split(",")] or None
    ),
    help="Ask these detectors, by name or number, joined by commas: B2,B4; all: those of past "
    "releases, too; SYSTEM@VERSION: those of one release. By default the dozen of each system's "
    "current release.",
)
tables_option = click.option(
    "--table",
    "own",
    multiple=True,
    metavar="NAME=FILE",
    help="Add a table of yours, of a CSV, Parquet or JSON file; may be repeated.",
)


def budget_of(context: click.Context) -> str | None:
    """What ``--budget`` says, where the command reads sources."""
    return context.meta.get(_BUDGET)


def pairs_of(texts: Sequence[str], rule: str, example: str) -> dict[str, str]:
    """What ``NAME=VALUE`` arguments say, by name."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip("$ "):
            raise click.UsageError(f"{rule}, found {text!r}. Hint: {example}")
        pairs[name.strip("$ ")] = value
    return pairs


def with_tables(snap: Snapshot, own: Sequence[str]) -> Snapshot:
    """The snapshot with the tables that ``--table`` names."""
    for name, path in pairs_of(own, "A table is NAME=FILE", "--table teams=teams.csv").items():
        snap = snap.with_table(name, path)
    return snap


def examples(*lines: str) -> str:
    """The end of a command's help: lines to copy, each kept as it is."""
    return "\b\n" + "\n".join(("Examples:", *(f"  {line}" for line in lines)))


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
                f"{parameter.opts[-1]} belongs to {' or '.join(modes[name])}. Hint: leave it out"
            )


def output_options(
    formats: Iterable[str], otherwise: str = "a table"
) -> Callable[[Command], Command]:
    """``--format``, ``--output``, ``--redact``, ``--wide`` and ``--safe-csv``."""

    def add(command: Command) -> Command:
        for option in (
            redact_option,
            click.option(
                "--wide", is_flag=True, help="Wrap long texts in a table instead of cutting them."
            ),
            click.option(
                "--safe-csv/--raw-csv",
                default=None,
                help="In CSV, put ' before texts that a spreadsheet would run as formulas; "
                "by default in files, which people open, and not in pipes.",
            ),
            click.option(
                "-o",
                "--output",
                type=click.Path(path_type=Path, dir_okay=False),
                help="Write to this file; its suffix chooses the format.",
            ),
            click.option(
                "-f",
                "--format",
                "form",
                type=click.Choice(tuple(formats)),
                help=f"Print in this format; {otherwise} by default.",
            ),
        ):
            command = option(command)
        return command

    return add


def opened(
    sources: Sequence[str],
    *,
    as_of: str | None = None,
    bodies: bool = False,
    salvage: bool = False,
    probe: bool = False,
    is_followed: bool = False,
) -> Snapshot:
    """Read the sources, once or to refresh them; say which, where none was named, and losses."""
    from stateanalytics.io import processes

    processes.start_ahead()  # while all that reads is imported
    from stateanalytics import snapshot
    from stateanalytics.core.facts import losses_of
    from stateanalytics.core.redaction import redact

    on_error: Literal["skip", "salvage"] = "salvage" if salvage else "skip"
    read = snapshot.read if is_followed else snapshot.read_for_once
    budget = budget_of(click.get_current_context())
    snap = read(*sources, as_of=as_of, bodies=bodies, on_error=on_error, probe=probe, budget=budget)
    lost = losses_of(snap.findings).select("source", "message", "severity")
    for source, message, severity in redact(lost)[0].iter_rows():
        if severity == "warning":
            warn(f"{source}: {message}")
        else:
            note(f"lost: {source}: {message}")
    if not sources:
        note(f"reading {', '.join(snap.sources['source'])}")
    if as_of is not None and snap.as_of > datetime.now(UTC):
        note(f"as-of {snap.as_of:%Y-%m-%d %H:%M} UTC lies in the future; ages count up to it")
    return snap


def policy_of(name_or_path: str) -> Policy:
    """The policy that an argument names."""
    from stateanalytics.state.policy import Policy

    return Policy.of(name_or_path)


def note(text: str) -> None:
    """One line for people, on standard error."""
    print(f"note: {visible(text)}", file=sys.stderr)


def warn(text: str) -> None:
    """One line for people about numbers that are likely to be wrong."""
    print(f"warning: {visible(text)}", file=sys.stderr)


def window_options(command: Command) -> Command:
    """``--week``, ``--since`` and ``--until``."""
    for option in (
        click.option("--until", metavar="MOMENT", help="Let the window end before this moment."),
        click.option("--since", metavar="MOMENT", help="Let the window begin at this moment."),
        click.option(
            "--week",
            metavar="YYYY-Www",
            help="Look at an ISO week, Monday to Monday in UTC, or at last-week.",
        ),
    ):
        command = option(command)
    return command


def window_of(week: str | None, since: str | None, until: str | None) -> object:
    """What the library takes as a window; None where nothing was asked for."""
    if week is not None and (since is not None or until is not None):
        raise click.UsageError(
            "A window is a week, or since and until; found both. Hint: leave one of them out"
        )
    if week is not None:
        return week
    return None if since is None and until is None else (since, until)

"""Options that several commands share, and lines for people on standard error."""

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
FILE = click.Path(path_type=Path, dir_okay=False)


def combined(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one, in this order in the help."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def sources_argument(command: Command) -> Command:
    """The stores to read, and what reading them may cost; see `budget_given`."""

    def remember(context: click.Context, _: click.Parameter, given: str | None) -> None:
        context.meta[_BUDGET] = given

    budget = click.option(
        "--budget",
        metavar="LIMITS",
        callback=remember,
        expose_value=False,
        help="Read no more than this, such as processor_s=60,n_rows=1000000; off: no limit.",
    )
    return click.argument("sources", nargs=-1, metavar="[SOURCES]...")(budget(command))


def budget_given(context: click.Context) -> str | None:
    """The value of ``--budget``, where the command reads sources."""
    return context.meta.get(_BUDGET)


def _split(_: click.Context, __: click.Parameter, given: Sequence[str]) -> list[str]:
    return [name.strip() for names in given for name in names.split(",") if name.strip()]


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
    "--salvage", is_flag=True, help="Read what is left of a damaged store, and report what is lost."
)
limit_option = click.option(
    "--limit", type=click.IntRange(min=1), help="Print at most this many rows; 50 in a table by "
    "default.",
)  # fmt: skip
window_options = combined(
    click.option(
        "--week",
        metavar="YYYY-Www",
        help="Look at an ISO week, Monday to Monday in UTC, or at last-week.",
    ),
    click.option("--since", metavar="MOMENT", help="Let the window begin at this moment."),
    click.option("--until", metavar="MOMENT", help="Let the window end before this moment."),
)
detectors_option = click.option(
    "--detectors",
    "--detector",
    "detectors",
    multiple=True,
    metavar="NAMES",
    callback=lambda *given: _split(*given) or None,
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
prices_option = click.option(
    "--prices",
    type=FILE,
    metavar="FILE",
    help="Estimate costs by prices of yours, from a TOML file; other models keep list prices.",
)
ledger_option = click.option(
    "--ledger",
    type=FILE,
    help="Show the owner of each failure, from a CSV file that `failures own` edits.",
)
READING = (as_of_option, probe_option, salvage_option, policy_option)
"""The options of every command that derives states from stores."""


def _by_option(default: str, about: str) -> Callable[[Command], Command]:
    return click.option(
        "--by",
        multiple=True,
        default=[default],
        show_default=True,
        metavar="COLUMNS",
        callback=_split,
        help=about,
    )


OPTIONS: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "window": window_options,
    "own": tables_option,
    "detectors": detectors_option,
    "prices": prices_option,
    "ledger": ledger_option,
    "entity_type": click.option(
        "--type", "entity_type", metavar="TYPE", help="List only this entity type."
    ),
    "severity": click.option("--severity", metavar="WORD", help="List only rows of this severity."),
    "code": click.option(
        "--code", help="Count only this code and those below it, such as run.failed."
    ),
    "cluster": click.option(
        "--cluster", metavar="ID", help="Count only this cluster, by its id or the beginning of it."
    ),
    "rules": click.option("--rules", type=FILE, help="Apply your own clusters, from a TOML file."),
    "earlier": click.option(
        "--against",
        "earlier",
        metavar="STORE",
        help="Read, with --show change, the earlier window from this store.",
    ),
    "leave_out_mass": click.option(
        "--leave-out-mass",
        is_flag=True,
        help="Exclude, with --show change, runs that were started when almost all failed.",
    ),
    "at": click.option(
        "--at", metavar="MOMENT", help="Ask about this earlier instant; by default as-of."
    ),
    "by": _by_option(
        "kind",
        "Group by kind, agent, model, playbook, project, system, or a column of --table, such as "
        "teams.owner; may be repeated.",
    ),
    "cost_by": _by_option(
        "system,model",
        "Sum by these, joined by commas: system, model, provider, project, agent, kind, "
        "playbook, or a column of --table, such as teams.owner; or none: all runs together.",
    ),
    "probs": click.option(
        "--prob",
        "probs",
        multiple=True,
        default=(0.25, 0.5, 0.75, 0.95),
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        help="Show the quantiles of these shares; by default 0.25, 0.5, 0.75, 0.95.",
    ),
    "candidates_s": click.option(
        "--candidate",
        "candidates_s",
        multiple=True,
        type=float,
        metavar="SECONDS",
        help="Try this limit with --show candidates; may be repeated; by default 5 min to 24 h.",
    ),
    "costs": combined(
        click.option(
            "--false-alarm",
            type=float,
            default=5.0,
            show_default=True,
            help="Minutes of attention that a false alarm costs.",
        ),
        click.option(
            "--undetected-hour",
            type=float,
            default=10.0,
            show_default=True,
            help="Minutes that an hour costs in which a dead or hopeless run goes unnoticed.",
        ),
        click.option(
            "--lost-run",
            type=float,
            default=60.0,
            show_default=True,
            help="Minutes that a run costs which was ended though it would have ended well.",
        ),
        click.option(
            "--run-hour",
            type=float,
            default=3.0,
            show_default=True,
            help="Minutes that an hour of a run costs.",
        ),
        click.option(
            "--deaths",
            type=float,
            help="Assume this many deaths per 100 session-hours; by default those in the data.",
        ),
    ),
    "settings": click.option(
        "--settings",
        type=click.Choice(("toml", "json", "python")),
        help="Print the settings as the systems' own settings name them, instead of the table.",
    ),
    "other_policy": click.option(
        "--against",
        "other_policy",
        metavar="NAME|FILE",
        help="List instead the entities that have another severity under this policy than under "
        "--policy.",
    ),
}
"""The options of questions, by the parameter of the function that each gives a value."""


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
    return combined(
        click.option(
            "-f",
            "--format",
            "form",
            type=click.Choice(tuple(formats)),
            help=f"Print in this format; {otherwise} by default.",
        ),
        click.option(
            "-o",
            "--output",
            type=FILE,
            help="Write to this file; its suffix chooses the format.",
        ),
        click.option(
            "--safe-csv/--raw-csv",
            default=None,
            help="In CSV, put ' before texts that a spreadsheet would run as formulas; "
            "by default in files, which people open, and not in pipes.",
        ),
        click.option(
            "--wide", is_flag=True, help="Wrap long texts in a table instead of cutting them."
        ),
        redact_option,
    )


def opened(
    sources: Sequence[str],
    *,
    as_of: str | None = None,
    bodies: bool = False,
    salvage: bool = False,
    probe: bool = False,
    is_followed: bool = False,
) -> Snapshot:
    """Read the sources, to refresh them or not; note which were found, and what is lost."""
    from stateanalytics.io import processes

    processes.start_ahead()  # while all that reads is imported
    from stateanalytics import snapshot
    from stateanalytics.core.facts import losses_of
    from stateanalytics.core.redaction import redact

    on_error: Literal["skip", "salvage"] = "salvage" if salvage else "skip"
    read = snapshot.read if is_followed else snapshot.read_for_once
    budget = budget_given(click.get_current_context())
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


def policy_named(name_or_path: str) -> Policy:
    """The policy that an argument names."""
    from stateanalytics.state.policy import Policy

    return Policy.of(name_or_path)


def note(text: str) -> None:
    """One line for people, on standard error."""
    print(f"note: {visible(text)}", file=sys.stderr)


def warn(text: str) -> None:
    """One line for people about numbers that are likely to be wrong."""
    print(f"warning: {visible(text)}", file=sys.stderr)

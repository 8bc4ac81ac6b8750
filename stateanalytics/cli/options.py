"""Options that several commands share, and lines for people on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stateanalytics.core.text import visible

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What `click.option` gives: it adds an option to a command."""

BUDGET = f"{__name__}.budget"
"""Where the context keeps the value of ``--budget``."""
NO_CACHE = f"{__name__}.no_cache"
"""Where it keeps whether ``--no-cache`` was given."""
_HELD = f"{__name__}.held"
"""Where it keeps the notes of a command that prints a table."""
FILE = click.Path(path_type=Path, dir_okay=False)


def combined(*options: Option) -> Option:
    """Several options as one, in this order in the help."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def sources_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The stores to read, and what reading them may cost; see `Request.opened`."""

    def remember(context: click.Context, option: click.Parameter, given: Any) -> None:
        context.meta[BUDGET if option.name == "budget" else NO_CACHE] = given

    options = combined(
        click.option(
            "--budget",
            metavar="LIMITS",
            callback=remember,
            expose_value=False,
            help="Limit what is read, such as processor_s=60,n_rows=1000000; off: no limit.",
        ),
        click.option(
            "--no-cache",
            is_flag=True,
            callback=remember,
            expose_value=False,
            help="Read everything again, and keep nothing for the next command.",
        ),
    )
    return click.argument("sources", nargs=-1, metavar="[SOURCES]...")(options(command))


def _split(_: click.Context, __: click.Parameter, given: Sequence[str]) -> list[str]:
    return [name.strip() for names in given for name in names.split(",")]


as_of_option = click.option(
    "--as-of",
    metavar="MOMENT",
    help="Evaluate states as of this instant: ISO 8601 (UTC if without a time zone) or epoch "
    "seconds. Default: the newest timestamp in the data, or now if a store is in use.",
)
policy_option = click.option(
    "--policy",
    metavar="NAME|FILE",
    default="v1",
    show_default=True,
    help="Evaluate by this policy: v1 (ADR-0033), adr0025, operator, parity, or a .toml or "
    ".json file.",
)
bodies_option = click.option("--bodies", is_flag=True, help="Also read the texts of messages.")
redact_option = click.option(
    "--redact/--no-redact",
    default=True,
    help="Mask text that looks like a secret.",
    show_default=True,
)
probe_option = click.option(
    "--probe",
    is_flag=True,
    help="Check whether the recorded processes are alive on this machine now.",
)
salvage_option = click.option(
    "--salvage", is_flag=True, help="Read the intact parts of a damaged store, and report losses."
)
limit_option = click.option(
    "--limit", type=click.IntRange(min=1), help="Print at most this many rows; 50 in a table by "
    "default.",
)  # fmt: skip
window_options = combined(
    click.option(
        "--week",
        metavar="YYYY-Www",
        help="Use the window of an ISO week, Monday to Monday in UTC, or of last-week.",
    ),
    click.option("--since", metavar="MOMENT", help="Begin the window at this moment."),
    click.option("--until", metavar="MOMENT", help="End the window before this moment."),
)
zone_option = click.option(
    "--tz",
    metavar="ZONE",
    help="Begin weeks and days at midnight in this time zone, such as Europe/Berlin, and show "
    "its clock; default: UTC.",
)
detectors_option = click.option(
    "--detectors",
    "--detector",
    "detectors",
    multiple=True,
    metavar="NAMES",
    callback=lambda *given: _split(*given) or None,
    help="Evaluate these detectors, by name or number, joined by commas: B2,B4; all: also those "
    "of past releases; SYSTEM@VERSION: those of one release. Default: about a dozen of each "
    "system's current release.",
)
tables_option = click.option(
    "--table",
    "own",
    multiple=True,
    metavar="NAME=FILE",
    help="Add your own table from a CSV, Parquet or JSON file; may be repeated.",
)
prices_option = click.option(
    "--prices",
    type=FILE,
    metavar="FILE",
    help="Estimate costs with your own prices, from a TOML file; other models keep list prices.",
)
ledger_option = click.option(
    "--ledger",
    type=FILE,
    help="Show the owner of each failure, from a CSV file that `failures own` edits.",
)
READING = (as_of_option, probe_option, salvage_option, policy_option)
"""The options of every command that derives states from stores."""
STORED = (as_of_option, policy_option, bodies_option, salvage_option)
"""The options of commands that show what stores hold."""


def _by_option(default: str, about: str) -> Option:
    return click.option(
        "--by",
        multiple=True,
        default=[default],
        show_default=True,
        metavar="COLUMNS",
        callback=_split,
        help=about,
    )


def _cost_option(flag: str, minutes: float, cause: str) -> Option:
    about = f"Cost of {cause}, in minutes of a person's attention."
    return click.option(flag, type=float, default=minutes, show_default=True, help=about)


OPTIONS: Mapping[str, Option] = {
    "window": window_options,
    "own": tables_option,
    "detectors": detectors_option,
    "prices": prices_option,
    "ledger": ledger_option,
    "registry": click.option(
        "--registry",
        type=FILE,
        help="Keep the ids of faults as in this file; by default faults.csv next to --ledger, else "
        "in this folder.",
    ),
    "entity_type": click.option(
        "--type", "entity_type", metavar="TYPE", help="List only this entity type."
    ),
    "severity": click.option("--severity", metavar="WORD", help="List only rows of this severity."),
    "standing": click.option(
        "--standing",
        type=click.Choice(["open", "ended", "stopped"]),
        help="List only what can still be acted on, has ended, or was stopped on purpose.",
    ),
    "code": click.option(
        "--code", help="Count only this code and those below it, such as run.failed."
    ),
    "cluster": click.option(
        "--cluster",
        metavar="ID",
        help="Count only this cluster or fault, by the beginning of its id.",
    ),
    "of": click.option(
        "--of",
        type=click.Choice(["runs", "calls"]),
        default="runs",
        show_default=True,
        help="Count failed runs, or the failed calls of tools inside of runs.",
    ),
    "rules": click.option(
        "--rules", type=FILE, help="Apply your own rules for clusters, from a TOML file."
    ),
    "earlier": click.option(
        "--against",
        "earlier",
        metavar="STORE",
        help="With --show change: read the earlier window from this store.",
    ),
    "leave_out_mass": click.option(
        "--leave-out-mass",
        is_flag=True,
        help="With --show change: exclude runs that started while almost all runs failed.",
    ),
    "at": click.option(
        "--at", metavar="MOMENT", help="Evaluate at this earlier instant; by default as-of."
    ),
    "by": _by_option(
        "kind",
        "Group by kind, agent, model, playbook, project, system, or a column of --table, such as "
        "teams.owner; may be repeated.",
    ),
    "cost_by": _by_option(
        "system,model",
        "Sum by these columns, joined by commas: system, model, provider, project, agent, kind, "
        "playbook, day, week, month, or a column of --table, such as teams.owner; none: all runs "
        "together.",
    ),
    "tz": zone_option,
    "probs": click.option(
        "--prob",
        "probs",
        multiple=True,
        default=(0.25, 0.5, 0.75, 0.95),
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        help="Show this quantile; may be repeated; by default 0.25, 0.5, 0.75, 0.95.",
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
        _cost_option("--false-alarm", 5.0, "a false alarm"),
        _cost_option("--undetected-hour", 10.0, "an hour in which a dead run goes unnoticed"),
        _cost_option("--lost-run", 60.0, "stopping a run that would have completed"),
        _cost_option("--run-hour", 3.0, "an hour of run time"),
        click.option(
            "--deaths",
            type=float,
            help="Assume this many deaths per 100 session-hours; by default those in the data.",
        ),
    ),
    "loses": click.option(
        "--loses",
        type=float,
        metavar="SHARE",
        help="Lose at most this share of the runs that would end well, with --covering: .05.",
    ),
    "settings": click.option(
        "--settings",
        type=click.Choice(("toml", "json", "python")),
        help="Print the recommended values under the systems' own names of settings, not a table.",
    ),
    "other_policy": click.option(
        "--against",
        "other_policy",
        metavar="NAME|FILE",
        help="List instead the entities whose severity differs between --policy and this policy.",
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
                f"{parameter.opts[-1]} belongs to {' or '.join(modes[name])}. Hint: remove it"
            )


def output_options(formats: Iterable[str], otherwise: str = "a table") -> Option:
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
            "-o", "--output", type=FILE, help="Write to this file; its suffix chooses the format."
        ),
        click.option(
            "--safe-csv/--raw-csv",
            default=None,
            help="In CSV, prefix text that a spreadsheet would run as a formula with '; "
            "by default in files but not in pipes.",
        ),
        click.option(
            "--wide", is_flag=True, help="Wrap long texts in a table instead of cutting them."
        ),
        redact_option,
    )


def note(text: str) -> None:
    """One line for people, on standard error; after a first one, others wait for the table."""
    context = click.get_current_context(silent=True)
    held = context.meta.get(_HELD) if context is not None else None
    line = f"note: {visible(text)}\n"
    if not held:
        sys.stderr.write(line)
    if held is not None:
        held.append(line)


def hold_notes() -> None:
    """Let notes but the first come after the table, when the command ends."""
    context = click.get_current_context()
    if _HELD not in context.meta:
        held: list[str] = context.meta.setdefault(_HELD, [])
        context.find_root().call_on_close(lambda: sys.stderr.writelines(held[1:]))


def warn(text: str) -> None:
    """One line for people about numbers that are likely to be wrong."""
    print(f"warning: {visible(text)}", file=sys.stderr)

"""The command line: arguments, one call of the library, output.

Exit codes: 0 done; 2 the input was wrong (one line on stderr explains it, and what to
type); 1 the run failed (out of time, memory or room, or a store that stays busy), or one
of several sources did; 3 a report is bad news, where `--fail-on` asks;
130 interrupted; 141 the reader of the output went away.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EDQUOT, ENOSPC, EPIPE
from pathlib import Path
from typing import Any, NoReturn

import click

from stateanalytics.cli.options import examples, warn
from stateanalytics.core.text import shell_word, visible
from stateanalytics.errors import (
    MissingComponentError,
    NoRoomError,
    QueryTimeoutError,
    StateAnalyticsError,
    StoreBusyError,
    did_you_mean,
)
from stateanalytics.questions import ALL_COMMANDS as COMMANDS
from stateanalytics.questions import Command

_ALLOCATOR = "_RJEM_MALLOC_CONF"
_ENGINE = "POLARS_ENGINE_AFFINITY"
FAILED_RUNS = (QueryTimeoutError, StoreBusyError, NoRoomError, MissingComponentError)


def _by_heading(commands: Iterable[Command]) -> dict[str, list[Command]]:
    """Commands by the heading of ``--help`` that lists them."""
    groups: dict[str, list[Command]] = {}
    for command in commands:
        groups.setdefault(command.heading, []).append(command)
    return groups


GROUPS = _by_heading(COMMANDS.values())
"""The commands under each heading of ``--help``, which imports none of their modules."""
RENAMED = {
    "audit": "attention --show audit",
    "collect": "archive",
    "demo": "doctor --demo",
    "diff": "report this.json --against last.json",
    "findings": "attention --show findings",
    "metrics": "export --metrics -",
    "places": "doctor",
    "policies": "thresholds --policy v1 --against operator",
    "schema": "sql --schema",
    "states": "attention --show states",
    "timeouts": "durations --show limits",
    "views": "sql --views",
    "weeks": "report --weeks",
}
"""Commands of earlier versions, and what to type instead."""


@contextmanager
def _printing() -> Iterator[None]:
    """End a command whose standard output is closed or full with its own exit code or error."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # A file that cannot be written is named in its error; standard output has no name.
        if error.filename is not None or error.errno not in (EPIPE, ENOSPC, EDQUOT):
            raise
        # Python flushes standard output again when it exits, which would raise once more.
        with suppress(OSError):  # a stream that a caller put there may have no descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == EPIPE:
            raise click.exceptions.Exit(141) from error
        raise NoRoomError("Standard output has no room.", "free some space") from error


class _Commands(click.Group):
    """A group that imports a command when it is run, and helps with misspelt ones."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = COMMANDS[cmd_name].module
        module = importlib.import_module(f"stateanalytics.cli.{name}")
        command: click.Command = (
            module.command_of(cmd_name) if name == "questions" else getattr(module, cmd_name)
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for heading, group in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(known.name.ljust(width), known.summary) for known in group])

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _printing():  # --help and --version
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _printing():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in RENAMED:
            raise click.UsageError(
                f"`stateanalytics {args[0]}` has a new name. "
                f"Hint: stateanalytics {RENAMED[args[0]]}"
            )
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            if os.sep in args[0] or Path(args[0]).exists():
                raise click.UsageError(
                    f"A command was needed before {args[0]!r}. "
                    f"Hint: stateanalytics report {shell_word(args[0])}"
                )
            near = did_you_mean(args[0], COMMANDS)
            raise click.UsageError(
                f"There is no command {args[0]!r}. Hint: stateanalytics --help{near}"
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
    epilog=examples(),
)
@click.version_option(package_name="stateanalytics", prog_name="stateanalytics")
@click.pass_context
def cli(context: click.Context) -> None:
    """Analytics for fleets of coding agents, from the data that orchestrators store.

    Without a COMMAND, the last seven days of the usual places are summed up, with three things
    to do. SOURCES are stores (such as a state.db), directories that contain stores, or patterns;
    without any, the usual places are read (`stateanalytics doctor` lists them). Nothing is
    written next to a store, and a store that is in use is not disturbed.
    """
    if context.invoked_subcommand is None:
        from stateanalytics.cli.reports import sum_up

        sum_up()


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process."""
    # Polars' allocator reads this when it is loaded: it then keeps a tenth less free memory than
    # by default, and takes as long.
    settings = f"dirty_decay_ms:200,muzzy_decay_ms:0,narenas:{os.cpu_count() or 1}"
    os.environ.setdefault(_ALLOCATOR, settings)
    # A command asks a thousand small queries, for which polars' streaming engine takes twice as
    # long; large ones take as much time and memory with either.
    os.environ.setdefault(_ENGINE, "in-memory")
    # A start makes a hundred thousand lasting objects, and a report as many again. Collecting
    # garbage among them again and again takes a tenth of the time of a short command.
    gc.set_threshold(200_000)
    # Python would add the file and the line of the code, which do not help who typed a command.
    warnings.showwarning = lambda message, *_: warn(str(message))
    # If the caller closed a stream, it is None, and the next file opened takes its descriptor.
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    code = run(arguments)
    # Without this, Python collects garbage among all objects once more when it exits. DuckDB
    # reports connections that are not freed by then, so they are collected if it was used.
    if "duckdb" not in sys.modules:
        gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        code = cli.main(
            args=None if arguments is None else list(arguments),
            prog_name="stateanalytics",
            standalone_mode=False,
        )
    except StateAnalyticsError as error:
        hint = f" Hint: {error.shell}" if error.shell else ""
        return _complain(error.problem + hint, 1 if isinstance(error, FAILED_RUNS) else 2)
    except click.ClickException as error:
        return _usage_error(error)
    except (click.Abort, KeyboardInterrupt):
        return _complain("interrupted", 130)
    except MemoryError:
        return _complain("not enough memory. Hint: read fewer stores at once", 1)
    return code if isinstance(code, int) else 0


def _usage_error(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and context is not None:
        click.echo(context.get_help())
        return 0
    message = error.format_message().rstrip(".")
    if "Hint:" not in message and context is not None:
        # People type --json or --csv, as in other programs; here these are formats.
        form = (getattr(error, "option_name", None) or "")[2:]
        forms = next((each.type for each in context.command.params if each.name == "form"), None)
        is_form = form in getattr(forms, "choices", ())
        message += f". Hint: {f'-f {form}' if is_form else f'{context.command_path} --help'}"
    return _complain(message, 2)


def _complain(message: str, code: int) -> int:
    click.echo(f"error: {visible(' '.join(message.split()))}", err=True)
    return code

"""The command line: arguments, one call of the library, output.

Exit codes: 0 done; 2 the input was wrong (one line on stderr says how, and what to
type); 1 the run failed (out of time, memory or room, or a store that stays busy), or one
of several sources did;
130 interrupted; 141 the reader of the output went away.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from stateanalytics.cli.archive import archive
from stateanalytics.cli.detectors import detectors
from stateanalytics.cli.durations import durations, timeouts
from stateanalytics.cli.failures import failures
from stateanalytics.cli.options import examples
from stateanalytics.cli.queries import places, schema, sql, watch
from stateanalytics.cli.reports import (
    attention,
    audit,
    demo,
    diff,
    findings,
    policies,
    report,
    states,
)
from stateanalytics.cli.thresholds import thresholds
from stateanalytics.cli.weeks import weeks
from stateanalytics.core.text import visible
from stateanalytics.errors import (
    MissingComponentError,
    NoRoomError,
    QueryTimeoutError,
    StateAnalyticsError,
    StoreBusyError,
    did_you_mean,
)

FAILED_RUNS = (QueryTimeoutError, StoreBusyError, NoRoomError, MissingComponentError)


class _ReaderWentAwayError(Exception):
    """The reader of the output closed it: a broken pipe, which click would call a failure."""


class _Commands(click.Group):
    """A group that helps with misspelt commands."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise _ReaderWentAwayError from error
        return answer

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(
                f"There is no command {args[0]!r}. Hint: stateanalytics --help{near}"
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
    epilog=examples(
        "stateanalytics report state.db -o week.html --week 2026-W21",
        'stateanalytics sql state.db "SELECT severity, count(*) FROM states GROUP BY ALL"',
        "stateanalytics attention state.db",
    ),
)
@click.version_option(package_name="stateanalytics", prog_name="stateanalytics")
def cli() -> None:
    """Analytics for fleets of coding agents, from the stores that orchestrators leave.

    SOURCES are stores, directories that hold one, or patterns; without any, the usual
    places are looked up (see `stateanalytics places`). Nothing is written beside a
    store, and a store that is in use is not disturbed.
    """


for _command in (
    watch,
    archive,
    diff,
    *(report, sql, attention, audit, states, findings, detectors, thresholds),
    *(durations, timeouts, failures, weeks),
    *(policies, schema, places, demo),
):
    cli.add_command(_command)
# What one machine archives, a fleet collects; it is one thing.
cli.add_command(archive, "collect")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
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
        return _helped(error)
    except (click.Abort, KeyboardInterrupt):
        return _complain("interrupted", 130)
    except MemoryError:
        return _complain("there was not enough memory. Hint: read fewer stores at once", 1)
    except _ReaderWentAwayError:
        # The interpreter flushes once more at its end, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code if isinstance(code, int) else 0


def _helped(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and context is not None:
        click.echo(context.get_help())
        return 0
    message = error.format_message().rstrip(".")
    if "Hint:" not in message and context is not None:
        message = f"{message}. Hint: {context.command_path} --help"
    return _complain(message, 2)


def _complain(message: str, code: int) -> int:
    click.echo(f"error: {visible(' '.join(message.split()))}", err=True)
    return code

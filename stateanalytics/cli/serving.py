"""The commands that stay open: ``watch`` for people, ``mcp`` for agents."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stateanalytics.cli import options
from stateanalytics.cli.output import Request, put, refuse_input_as_output, takes
from stateanalytics.core.redaction import redact
from stateanalytics.core.text import visible

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.snapshot import Snapshot
    from stateanalytics.state.policy import Policy


@click.command(epilog=options.examples("watch"))
@options.sources_argument
@options.named("watch.every_s", "watch.looks", "watch.metrics_file")
@takes(options.named("policy"), formats=None)
def watch(
    request: Request, *, every_s: float, looks: int | None, metrics_file: Path | None
) -> None:
    """Print changes of severity as they happen, until Ctrl-C.

    A line has the time, the severity before and now, and the entity. At most once a week, an
    ALARM reports more failures than chance explains; ESCALATING is a failure with three times
    as many in three hours as ever in the week before. The writer of a store never waits.
    """
    from stateanalytics.live import watch as follow

    n_changes = 0
    policy = request.chosen_policy
    with request.opened(is_followed=True) as snap:
        options.note(
            f"watching {snap.entities.height:,} entities every {every_s:g} s; Ctrl-C ends it"
        )
        try:
            changes = follow(
                snap,
                policy=policy,
                every_s=every_s,
                on_alarm=_print_alarm,
                on_escalating=_print_escalating,
                on_look=_metrics_writer(metrics_file, snap, policy) if metrics_file else None,
            )
            for changed in islice(changes, looks):
                n_changes += changed.height
                _print(changed)
        except KeyboardInterrupt:
            click.echo(err=True)
    options.note(f"{n_changes:,} change{'' if n_changes == 1 else 's'} of severity seen")


def _metrics_writer(path: Path, snap: Snapshot, policy: Policy) -> Callable[[Snapshot], None]:
    """Write metrics at each look; limits need all of history, and are computed once."""
    from stateanalytics.metrics import as_openmetrics, limits

    refuse_input_as_output(path, snap.inputs)
    thresholds = limits(snap, policy=policy)

    def write(look: Snapshot) -> None:
        text = as_openmetrics(look, policy=policy, limits=thresholds)
        put(text.encode(), path, inputs=look.inputs)

    return write


def _print_alarm(alarm: pl.DataFrame) -> None:
    at, words = alarm.select("at", "in_words").row(0)
    click.echo(f"{at:%H:%M:%S}  ALARM  {words}")


def _print_escalating(found: pl.DataFrame) -> None:
    for row in redact(found)[0].iter_rows(named=True):
        name = row["rule_name"] or row["template"] or row["code"] or "without a message"
        line = f"ESCALATING  {row['n_requests']} in 3 hours, {row['n_most']} at most before: {name}"
        click.echo(visible(line)[:300])


def _print(changed: pl.DataFrame) -> None:
    for row in redact(changed)[0].iter_rows(named=True):
        what = row["name"] or row["entity_id"] or "unnamed"
        line = (
            f"{row['at']:%H:%M:%S}  {row['severity_before'] or 'new'} -> "
            f"{row['severity'] or 'removed'}  {row['entity_type']} {what}  {row['display'] or ''}"
        )
        click.echo(visible(line.rstrip())[:300])


@click.command(epilog=options.examples("mcp"))
@options.sources_argument
@takes(options.named("as_of", "policy", "salvage"), formats=None)
@options.named("mcp.has_sql")
def mcp(request: Request, *, has_sql: bool) -> None:
    """Serve read-only tools for agents over standard input and output (MCP).

    The sources are read once, at the start, and nothing else is opened. Secrets are masked.
    Answers are short and report what was cut off.
    """
    from stateanalytics.mcp_server import serve

    with request.opened() as snap:
        serve(snap, request.chosen_policy, has_sql=has_sql)

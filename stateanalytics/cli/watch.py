"""The command ``watch``."""

from __future__ import annotations

from itertools import islice

import click
import polars as pl

from stateanalytics.cli.options import (
    examples,
    note,
    opened,
    policy_of,
    policy_option,
    sources_argument,
)
from stateanalytics.core.text import visible


@click.command(
    epilog=examples(
        "stateanalytics watch state.db",
        "stateanalytics watch state.db --every 30 --policy operator",
    )
)
@sources_argument
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks.",
)
@click.option("--looks", type=click.IntRange(min=1), help="Stop after so many looks.")
@policy_option
def watch(*, sources: tuple[str, ...], every_s: float, looks: int | None, policy: str) -> None:
    """Print changes of severity as they happen, until interrupted (Ctrl-C).

    A line is the moment, the severity before and now, and what it is about. The writer
    never waits.
    """
    from stateanalytics.live import watch as follow

    n_changes = 0
    with opened(sources) as snap:
        note(f"watching {snap.entities.height:,} entities every {every_s:g} s; Ctrl-C ends it")
        try:
            for changed in islice(follow(snap, policy=policy_of(policy), every_s=every_s), looks):
                n_changes += changed.height
                _print(changed)
        except KeyboardInterrupt:
            click.echo(err=True)
    note(f"{n_changes:,} change{'' if n_changes == 1 else 's'} of severity seen")


def _print(changed: pl.DataFrame) -> None:
    for row in changed.iter_rows(named=True):
        what = row["name"] or row["entity_id"] or "unnamed"
        line = (
            f"{row['at']:%H:%M:%S}  {row['severity_before'] or 'new'} -> "
            f"{row['severity'] or 'gone'}  {row['entity_type']} {what}  {row['display'] or ''}"
        )
        click.echo(visible(line.rstrip())[:300])

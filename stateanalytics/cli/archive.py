"""The command that keeps history: ``archive``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from stateanalytics.cli.options import (
    budget_of,
    examples,
    salvage_option,
    sources_argument,
    warn,
)
from stateanalytics.core.text import visible
from stateanalytics.core.windows import day_of

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.systems.reading import OnError

_N_STALE = 3


@click.command(
    epilog=examples(
        "stateanalytics archive state.db --to history/",
        "stateanalytics archive 'hosts/*/state.db' --to history/ --jobs 4",
        "stateanalytics report history/ -o week.html --week 2026-W21",
    )
)
@sources_argument
@click.option(
    "--to",
    required=True,
    metavar="FOLDER",
    help="Keep it in this archive; it is made where there is none, and only ever added to.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Read with so many processes.",
)
@click.option("--bodies", is_flag=True, help="Keep what people and models said, too.")
@click.option("--redact", is_flag=True, help="Mask what looks like a secret, before it is kept.")
@salvage_option
@click.pass_context
def archive(
    ctx: click.Context,
    *,
    sources: tuple[str, ...],
    to: str,
    jobs: int,
    bodies: bool,
    redact: bool,
    salvage: bool,
) -> None:
    """Archive the stores before they delete what is old.

    One line a source: archived, unchanged, or failed; after a failed one the others go on,
    and the exit code is 1. Asked again, it goes on where it was interrupted. Sources that the
    archive has and nobody collected for a week are named at the end. FOLDER is read like a
    store by every command.
    """
    from stateanalytics.systems.archiving import Archiving, collect_each

    archiving = Archiving.at(to, bodies=bodies, redacted=redact, budget=budget_of(ctx))
    on_error: OnError = "salvage" if salvage else "skip"
    totals: Counter[str] = Counter()
    for rows in collect_each(archiving, sources, jobs=jobs, on_error=on_error):
        for row in rows.iter_rows(named=True):
            totals[row["status"]] += 1
            if row["status"] == "archived" and row["message"]:
                warn(f"{row['source']}: {row['message']}")
            click.echo(visible(_line(row)), err=row["status"] == "failed")
    if totals.total() > 1:
        counts = ", ".join(f"{n:,} {status}" for status, n in sorted(totals.items()))
        click.echo(f"{totals.total():,} sources: {counts}")
    late = archiving.stale()
    if late.height:
        click.echo(visible(_in_words(late)), err=True)
    if totals["failed"]:
        ctx.exit(1)


def _line(row: dict[str, Any]) -> str:
    added = f": {row['n_rows']:,} new rows, {row['size_bytes'] / 1000:,.0f} kB"
    ending = f": {row['message']}" if row["message"] else ""
    return f"{row['status']} {row['source']}{added if row['status'] == 'archived' else ending}"


def _in_words(late: pl.DataFrame) -> str:
    """Which sources of an archive nobody collects any more."""
    shown = late.head(_N_STALE).iter_rows()
    named = ", ".join(f"{source} since {day_of(at)} {at.year}" for source, at in shown)
    more = f", and {late.height - _N_STALE:,} more" if late.height > _N_STALE else ""
    return f"stale, not collected for more than a week: {named}{more}"

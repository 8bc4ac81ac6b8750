"""The command that keeps history: ``archive``."""

from __future__ import annotations

import click

from stateanalytics.cli.options import examples, salvage_option, sources_argument
from stateanalytics.core.text import visible


@click.command(
    epilog=examples(
        "stateanalytics archive state.db --to history/",
        "stateanalytics archive ~/fleet/*/state.db --to history/ --redact",
        "stateanalytics report history/ -o week.html --week 2026-W21",
    )
)
@sources_argument
@click.option(
    "--to",
    required=True,
    metavar="FOLDER",
    help="The archive; made where there is none, and only ever added to.",
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
    bodies: bool,
    redact: bool,
    salvage: bool,
) -> None:
    """Keep what is in the stores, so that it stays when they forget it.

    One line a source: archived, unchanged, or failed; after a failed one the others go on,
    and the exit code is 1. FOLDER is read like a store by every command.
    """
    from stateanalytics.systems.archiving import Archiving

    archiving = Archiving.at(to, bodies=bodies, redacted=redact)
    has_failed = False
    for outcome in archiving.add_named(sources, on_error="salvage" if salvage else "skip"):
        row = outcome.row(0, named=True)
        has_failed |= row["status"] == "failed"
        added = f": {row['n_rows']:,} new rows, {row['size_bytes'] / 1000:,.0f} kB"
        ending = f": {row['message']}" if row["message"] else ""
        ending = added if row["status"] == "archived" else ending
        click.echo(
            visible(f"{row['status']} {row['source']}{ending}"), err=row["status"] == "failed"
        )
    if has_failed:
        ctx.exit(1)

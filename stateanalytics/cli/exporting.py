"""The command that hands everything over: ``export``."""

from __future__ import annotations

import click

from stateanalytics.cli.options import (
    as_of_option,
    bodies_option,
    examples,
    opened,
    policy_of,
    policy_option,
    redact_option,
    salvage_option,
    sources_argument,
    tables_option,
    with_tables,
)
from stateanalytics.core.text import visible


@click.command(
    epilog=examples(
        "stateanalytics export state.db -o week.xlsx",
        "stateanalytics export history/ -o fleet.duckdb --table teams=teams.csv",
        "stateanalytics export state.db -o week.sqlite --only entities --only states",
    )
)
@sources_argument
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE|FOLDER",
    help="Write to a .duckdb, .sqlite or .xlsx file; any other name is a new folder of "
    "Parquet files.",
)
@click.option(
    "--only", multiple=True, metavar="TABLE", help="Write only this table; may be repeated."
)
@tables_option
@as_of_option
@policy_option
@bodies_option
@salvage_option
@redact_option
def export(
    *,
    sources: tuple[str, ...],
    output: str,
    only: tuple[str, ...],
    own: tuple[str, ...],
    as_of: str | None,
    policy: str,
    bodies: bool,
    salvage: bool,
    redact: bool,
) -> None:
    """Write every frame, ready view and table of yours into a file that other programs open."""
    with opened(sources, as_of=as_of, bodies=bodies, salvage=salvage) as snap:
        place = with_tables(snap, own).export(
            output, tables=only or None, policy=policy_of(policy), redact=redact
        )
    click.echo(visible(str(place)))

"""The commands that hand everything over: ``export``, ``views``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

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
from stateanalytics.cli.output import form_of, put, refuse_inputs_of
from stateanalytics.core.text import visible
from stateanalytics.errors import ArgumentError

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot

EXPORTS = {
    "DuckDB": (".duckdb",),
    "SQLite": (".sqlite", ".db"),
    "Excel": (".xlsx",),
    "CSV of one table": (".csv",),
    "Parquet of one table": (".parquet",),
    "a folder of Parquet": ("/",),
}
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(
    epilog=examples(
        "stateanalytics export state.db -o week.xlsx",
        "stateanalytics export history/ -o fleet.duckdb --table teams=teams.csv",
        "stateanalytics export state.db -o week.sqlite --only entities --only states",
        "stateanalytics export history/ -o week.sqlite --metadata week.json",
        "stateanalytics export history/ --otlp spans.jsonl",
    )
)
@sources_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE|FOLDER",
    help="Write to a .duckdb, .sqlite or .xlsx file, or one table to .csv or .parquet; a name "
    "without a suffix, or that ends in /, is a new folder of Parquet files.",
)
@click.option(
    "--only", multiple=True, metavar="TABLE", help="Write only this table; may be repeated."
)
@click.option(
    "--metadata",
    type=_FILE,
    help="Also write what each table and column means, as Datasette reads it (JSON).",
)
@click.option(
    "--otlp", type=_FILE, help="Write what ended as OpenTelemetry spans (lines of OTLP/JSON)."
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
    output: str | None,
    metadata: Path | None,
    otlp: Path | None,
    only: tuple[str, ...],
    own: tuple[str, ...],
    as_of: str | None,
    policy: str,
    bodies: bool,
    salvage: bool,
    redact: bool,
) -> None:
    """Write every frame, ready view and table of yours into a file that other programs open."""
    if not (output or otlp) or (metadata and not output):
        raise click.UsageError("Nothing says where to. Hint: -o week.duckdb, or --otlp spans.jsonl")
    if output and not output.endswith(("/", os.sep)):
        form_of(None, Path(output), EXPORTS)
    for place in (output, metadata, otlp):
        refuse_inputs_of(Path(place) if place else None)
    places = [Path(place).resolve() for place in (output, metadata, otlp) if place]
    if len(set(places)) < len(places):
        raise click.UsageError("Two outputs have one name. Hint: give each a file of its own")
    with opened(sources, as_of=as_of, bodies=bodies, salvage=salvage) as snap:
        for beside in (metadata, otlp):
            refuse_inputs_of(beside, snap.inputs)
        chosen = policy_of(policy)
        written = []
        if output:
            whole = with_tables(snap, own)
            written.append(whole.export(output, tables=only or None, policy=chosen, redact=redact))
            if metadata:
                _write_metadata(whole, metadata, Path(output).stem, only)
                written.append(metadata)
        if otlp:
            from stateanalytics.otlp import as_otlp

            lines = as_otlp(snap, policy=chosen, redact=redact)
            put("".join(lines).encode(), otlp, inputs=snap.inputs, is_private=not redact)
            written.append(otlp)
    for place in written:
        click.echo(visible(str(place)))


def _write_metadata(snap: Snapshot, path: Path, database: str, only: tuple[str, ...]) -> None:
    """Titles, descriptions and units in the words of Datasette's ``metadata.json``."""
    columns = snap.schema()
    tables = {
        name: {
            "description": f"A row is {row}.",
            "columns": {
                column: f"{meaning} ({unit})" if unit else meaning
                for column, unit, meaning in columns.filter(frame=name)
                .select("column", "unit", "meaning").iter_rows()
            },
        }
        for name, row in snap.table("tables").select("name", "row").iter_rows()
        if name in only or not (only or name.startswith("raw_"))
    }  # fmt: skip
    said = {"title": "stateanalytics", "databases": {database: {"tables": tables}}}
    put((json.dumps(said, ensure_ascii=False, indent=1) + "\n").encode(), path, inputs=snap.inputs)


@click.command(
    epilog=examples("stateanalytics views", "stateanalytics views --sql -o models/stateanalytics")
)
@click.option("--sql", "is_sql", is_flag=True, help="Print their SQL instead of what they give.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write their SQL into this folder, a file each.",
)
def views(*, is_sql: bool, output: Path | None) -> None:
    """List the ready views of SQL, or give each as SQL that runs on an export.

    The tables that they name, and as_of(), are in `stateanalytics export -o week.duckdb`.
    """
    from stateanalytics.sql.views import VIEWS

    if output is None:
        for view in VIEWS:
            about = f"{view.frame.name}: {view.frame.row}"
            click.echo(f"-- {about}\n{view.sql.strip()};\n" if is_sql else about)
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"{str(output)!r} cannot be written: {error.strerror}.", "name another folder"
        ) from None
    for view in VIEWS:
        put(
            f"-- {view.frame.row}\n{view.sql.strip()}\n".encode(), output / f"{view.frame.name}.sql"
        )
    click.echo(f"wrote {len(VIEWS)} views into {visible(str(output))}")

"""The command ``export``."""

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
        "stateanalytics export history/ --metrics /var/lib/node_exporter/agents.prom",
        "stateanalytics export --views models/stateanalytics",
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
@click.option(
    "--metrics",
    "metrics_file",
    type=_FILE,
    help="Write what alerts need as OpenMetrics text; - prints it.",
)
@click.option(
    "--views",
    "views_folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the SQL of the ready views into this folder, a file each; no store is read for it.",
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
    metrics_file: Path | None,
    views_folder: Path | None,
    only: tuple[str, ...],
    own: tuple[str, ...],
    as_of: str | None,
    policy: str,
    bodies: bool,
    salvage: bool,
    redact: bool,
) -> None:
    """Write tables, metrics or spans into files that other programs open.

    With -o every frame, ready view and table of yours. Metrics are what is open, past its
    limits, and failed; limits are the recommended ones, else today's (`watch --metrics FILE`
    keeps the file current).
    """
    of_stores = output or otlp or metrics_file
    if not (of_stores or views_folder) or (metadata and not output):
        raise click.UsageError("Nothing says where to. Hint: -o week.duckdb, or --otlp spans.jsonl")
    if output and not output.endswith(("/", os.sep)):
        form_of(None, Path(output), EXPORTS)
    files = (output, metadata, otlp, metrics_file)
    for place in files:
        refuse_inputs_of(Path(place) if place else None)
    places = [Path(place).resolve() for place in (*files, views_folder) if place]
    if len(set(places)) < len(places):
        raise click.UsageError("Two outputs have one name. Hint: give each a file of its own")
    if views_folder:
        _write_views(views_folder)
        click.echo(visible(str(views_folder)))
    if not of_stores:
        return
    written = []
    with opened(sources, as_of=as_of, bodies=bodies, salvage=salvage) as snap:
        for path in (metadata, otlp, metrics_file):
            refuse_inputs_of(path, snap.inputs)
        chosen = policy_of(policy)
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
        if metrics_file:
            from stateanalytics.metrics import as_openmetrics, limits

            text = as_openmetrics(snap, policy=chosen, limits=limits(snap, policy=chosen))
            is_piped = str(metrics_file) == "-"
            put(text.encode(), None if is_piped else metrics_file, inputs=snap.inputs)
            written += [] if is_piped else [metrics_file]
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


def _write_views(folder: Path) -> None:
    """The SQL of each ready view, a file each: for dbt and others that query an export."""
    from stateanalytics.sql.views import VIEWS

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"{str(folder)!r} cannot be written: {error.strerror}.", "name another folder"
        ) from None
    for view in VIEWS:
        content = f"-- {view.frame.row}\n{view.sql.strip()}\n"
        put(content.encode(), folder / f"{view.frame.name}.sql")

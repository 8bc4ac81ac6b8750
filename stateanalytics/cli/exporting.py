"""The commands ``export`` and ``archive``: what is written for other programs, and for later."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stateanalytics.cli import options
from stateanalytics.cli.output import Request, chosen_format, put, refuse_input_as_output, takes
from stateanalytics.core.text import visible
from stateanalytics.core.windows import day_of
from stateanalytics.errors import ArgumentError

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.snapshot import Snapshot
    from stateanalytics.systems.reading import OnError

EXPORTS = {
    "DuckDB": (".duckdb",),
    "SQLite": (".sqlite", ".db"),
    "Excel": (".xlsx",),
    "CSV of one table": (".csv",),
    "Parquet of one table": (".parquet",),
    "a folder of Parquet": ("/",),
}
_N_STALE = 3


@click.command(epilog=options.examples("export"))
@options.sources_argument
@options.named(
    *("export.target", "export.only", "export.metadata", "export.otlp"),
    *("export.metrics_file", "export.views_folder", "own"),
)
@takes(options.STORED, options.named("redact"), formats=None)
def export(
    request: Request,
    *,
    target: str | None,
    metadata: Path | None,
    otlp: Path | None,
    metrics_file: Path | None,
    views_folder: Path | None,
    only: tuple[str, ...],
    own: tuple[str, ...],
) -> None:
    """Write tables, metrics or spans for other programs.

    -o writes every frame, every predefined view and your own tables. --metrics counts what is
    open, past its limit, or failed; the limits are the recommended ones, otherwise today's.
    `watch --metrics FILE` keeps that file up to date.
    """
    needs_stores = target or otlp or metrics_file
    if not (needs_stores or views_folder) or (metadata and not target):
        raise click.UsageError("No output is named. Hint: -o week.duckdb, or --otlp spans.jsonl")
    if target and not target.endswith(("/", os.sep)):
        chosen_format(None, Path(target), EXPORTS)
    files = (target, metadata, otlp, metrics_file)
    for file in files:
        refuse_input_as_output(Path(file) if file else None)
    places = [Path(place).resolve() for place in (*files, views_folder) if place]
    if len(set(places)) < len(places):
        raise click.UsageError("Two outputs have the same name. Hint: name a file for each")
    if views_folder:
        _write_views(views_folder)
        click.echo(visible(str(views_folder)))
    if not needs_stores:
        return
    written = []
    with request.opened() as snap:
        for path in (metadata, otlp, metrics_file):
            refuse_input_as_output(path, snap.inputs)
        policy, redact = request.chosen_policy, request.redact
        if target:
            joined = options.with_tables(snap, own)
            written.append(joined.export(target, tables=only or None, policy=policy, redact=redact))
            if metadata:
                _write_metadata(joined, metadata, Path(target).stem, only)
                written.append(metadata)
        if otlp:
            from stateanalytics.otlp import as_otlp

            lines = as_otlp(snap, policy=policy, redact=redact)
            put("".join(lines).encode(), otlp, inputs=snap.inputs, is_private=not redact)
            written.append(otlp)
        if metrics_file:
            from stateanalytics.metrics import as_openmetrics, limits

            text = as_openmetrics(snap, policy=policy, limits=limits(snap, policy=policy))
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
    metadata = {"title": "stateanalytics", "databases": {database: {"tables": tables}}}
    put(
        (json.dumps(metadata, ensure_ascii=False, indent=1) + "\n").encode(),
        path,
        inputs=snap.inputs,
    )


def _write_views(folder: Path) -> None:
    """The SQL of each predefined view, a file each: for dbt and others that query an export."""
    from stateanalytics.sql.frames import VIEWS

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"{str(folder)!r} cannot be written: {error.strerror}.", "name another folder"
        ) from None
    for view in VIEWS:
        put(f"-- {view.frame.row}\n{view.sql}\n".encode(), folder / f"{view.frame.name}.sql")


@click.command(epilog=options.examples("archive"))
@options.sources_argument
@options.option("archive.to", required=True)
@options.named("archive.jobs", "archive.bodies", "archive.redact", "archive.compact", "salvage")
@click.pass_context
def archive(
    ctx: click.Context,
    *,
    sources: tuple[str, ...],
    to: str,
    jobs: int,
    bodies: bool,
    redact: bool,
    compact: bool,
    salvage: bool,
) -> None:
    """Archive stores before they delete old data.

    Prints one line for each source: archived, unchanged, or failed. A failed source does not
    stop the others; the exit code is then 1. After an interruption, run the same command again.
    The last lines name sources of the archive that were not collected for a week. Every command
    reads FOLDER like a store.
    """
    from stateanalytics.systems.archiving import Archiving, collect_each, compact_archive

    on_error: OnError = "salvage" if salvage else "skip"
    budget = ctx.meta.get(options.BUDGET)
    archiving = Archiving.at(to, bodies=bodies, redacted=redact, budget=budget, on_error=on_error)
    if compact:
        if sources:
            raise click.UsageError("--compact joins the files of FOLDER; it reads no SOURCE.")
        click.echo("compacted" if compact_archive(to) else "nothing to compact")
        return
    totals: Counter[str] = Counter()
    for row in collect_each(archiving, sources, jobs=jobs):
        totals[row["status"]] += 1
        if row["status"] == "archived" and row["message"]:
            options.warn(f"{row['source']}: {row['message']}")
        click.echo(visible(_line(row)), err=row["status"] == "failed")
    if totals.total() > 1:
        counts = ", ".join(f"{n:,} {status}" for status, n in sorted(totals.items()))
        click.echo(f"{totals.total():,} sources: {counts}")
    stale = archiving.stale()
    if stale.height:
        click.echo(visible(_stale_sources(stale)), err=True)
    if totals["failed"]:
        ctx.exit(1)


def _line(row: dict[str, Any]) -> str:
    added = f": {row['n_rows']:,} new rows, {row['size_bytes'] / 1000:,.0f} kB"
    ending = f": {row['message']}" if row["message"] else ""
    named = f"{row['status']} {row['source']}".rstrip()
    return f"{named}{added if row['status'] == 'archived' else ending}"


def _stale_sources(stale: pl.DataFrame) -> str:
    """The sources of an archive that are not collected any more, in words."""
    shown = stale.head(_N_STALE).iter_rows()
    named = ", ".join(f"{source} since {day_of(at)} {at.year}" for source, at in shown)
    more = f", and {stale.height - _N_STALE:,} more" if stale.height > _N_STALE else ""
    return f"stale, not collected for more than a week: {named}{more}"

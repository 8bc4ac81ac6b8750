"""The command ``sql``: one query, the columns of every table, or the predefined views."""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from dataclasses import replace

import click
import polars as pl

from stateanalytics.cli import options
from stateanalytics.cli.output import FORMATS, Request, chosen_format, put, takes
from stateanalytics.core.redaction import redact_texts
from stateanalytics.errors import MaskedWarning, TruncatedWarning
from stateanalytics.systems.base import expanded

SCHEMA_FORMATS = {**FORMATS, "markdown": (".md",)}
_ALL_FRAMES = "all"
_OF_A_QUERY = ("own", "params", "max_rows", "timeout", "memory_bytes", "policy", "bodies")
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}
_UNITS |= {f"{unit}I": 1024**power for power, unit in enumerate("KMG", 1)}
_MIN_MEMORY = 2**20


def _bytes(ctx: click.Context, param: click.Parameter, written: str) -> int:
    """Bytes of a size as people write it: 500MB, 2GiB, 1.5g."""
    parts = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) *([KMG]?I?)B?", written.upper())
    if not parts or parts[2] not in _UNITS:
        raise click.BadParameter(f"{written!r:.60} is not a size. Hint: 500MB, or 2GiB", ctx, param)
    size = int(float(parts[1]) * _UNITS[parts[2]])
    if size < _MIN_MEMORY:
        raise click.BadParameter(f"no query fits into {written!r}. Hint: 500MB", ctx, param)
    return size


@click.command(epilog=options.examples("sql"))
@options.sources_argument
@click.argument("query", required=False)
@options.named("sql.schema", "sql.is_views", "sql.params", "sql.max_rows", "sql.timeout")
@options.option("sql.memory_bytes", callback=_bytes)
@options.named("own")
@takes(options.STORED, formats=SCHEMA_FORMATS)
def sql(
    request: Request,
    *,
    query: str | None,
    schema: str | None,
    is_views: bool,
    own: tuple[str, ...],
    params: tuple[str, ...],
    max_rows: int,
    timeout: float,
    memory_bytes: int,
) -> None:
    """Answer one SELECT over SOURCES, in DuckDB's SQL.

    QUERY may use every frame (entities, states, reasons, events, …), the predefined views
    (running_sessions, failed_24h, attention, …) and each table of the store as raw_….
    `stateanalytics sql --schema` lists them. Files, the network and settings are out of its
    reach. Secrets are masked in the tables before QUERY runs. With - as QUERY, the query is
    read from standard input.
    """
    mode = "--schema" if schema is not None else "--views" if is_views else "QUERY"
    options.refuse_options_of_others(
        mode, {**dict.fromkeys(_OF_A_QUERY, ("QUERY",)), "is_views": ["--views"]}
    )
    if mode != "QUERY":
        # Without a query, the last argument is a source like the others.
        request = replace(request, sources=(*request.sources, *([] if query is None else [query])))
    if is_views:
        _write_views(request)
        return
    if schema is not None:
        _write_schema(request, None if schema == _ALL_FRAMES else schema)
        return
    if query is None:
        raise click.UsageError(
            "Missing argument 'QUERY'. Hint: stateanalytics sql state.db \"FROM states\""
        )
    if query and os.path.exists(expanded(query)):  # noqa: PTH110
        raise click.UsageError(
            f"The query comes last, after the sources; found the path {query!r} there. Hint: "
            f'stateanalytics sql {shlex.quote(query)} "FROM states"'
        )
    values = options.pairs_given(params, "A parameter is NAME=VALUE", "-p since=2026-05-18")
    text = sys.stdin.read() if query == "-" else query
    with request.opened() as snap:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TruncatedWarning)
            warnings.simplefilter("always", MaskedWarning)
            frame = options.with_tables(snap, own).sql(
                text,
                values or None,
                max_rows=max_rows,
                timeout_s=timeout,
                memory_bytes=memory_bytes,
                policy=request.chosen_policy,
                redact=request.redact,
            )
        if request.redact and redact_texts(pl.Series([text, *map(str, values.values())]))[1]:
            options.note(
                "the query contains what looks like a secret, which is masked in the tables; "
                "--no-redact compares with the stored text"
            )
        request.write(frame, limit=frame.height, inputs=snap.inputs)
        for warning in caught:
            words = str(warning.message).replace("max_rows=…", "--max-rows")
            options.note(words.replace("redact=False", "--no-redact"))


def _write_schema(request: Request, name: str | None) -> None:
    """Columns of every frame, or of one; of the raw tables, too, where sources are named."""
    from stateanalytics.core.shapes import as_markdown, data_dictionary
    from stateanalytics.snapshot import only_frame
    from stateanalytics.sql.returned import FRAMES_RETURNED, frames_named
    from stateanalytics.sql.tables import FRAMES

    documented = (*FRAMES, *FRAMES_RETURNED)
    if chosen_format(request.form, request.output, SCHEMA_FORMATS) == "markdown":
        kept = documented if name is None else frames_named(name)
        if not kept:
            only_frame(data_dictionary(documented), str(name))
        put(as_markdown(kept, is_whole=name is None).encode(), request.output)
        return
    if request.sources:
        with request.opened() as snap:
            columns = snap.schema(name)
    else:
        columns = data_dictionary(documented)
        columns = columns if name is None else only_frame(columns, name)
    request.write(columns, limit=columns.height)


def _write_views(request: Request) -> None:
    from stateanalytics.sql.frames import VIEWS

    texts = [(view.frame.name, view.frame.row, view.sql) for view in VIEWS]
    frame = pl.DataFrame(texts, schema=["name", "meaning", "sql"], orient="row")
    request.write(frame, columns=("name", "meaning"), limit=frame.height)

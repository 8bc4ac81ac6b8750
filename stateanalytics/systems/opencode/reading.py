"""One opencode input, from its tables, events and files to canonical frames."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, Past
from stateanalytics.core.joins import pool
from stateanalytics.core.schema import INPUTS, RESULTS
from stateanalytics.errors import DamagedStoreError, SourceError
from stateanalytics.io.cells import Cell
from stateanalytics.io.json_lines import Parser
from stateanalytics.io.parts import Parts, by_source
from stateanalytics.io.sqlite import Store, open_store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.history import LOST, with_rows_of
from stateanalytics.systems.opencode import NAME, frames
from stateanalytics.systems.opencode.canonical import (
    detail_frames,
    entities_of,
    events_of,
    transitions_of,
)
from stateanalytics.systems.opencode.findings import findings_of
from stateanalytics.systems.opencode.folding import Folded, fold, fold_messages
from stateanalytics.systems.opencode.frames import OF_SESSIONS, RECORDS, gathered_from, kept_records
from stateanalytics.systems.opencode.gathered import (
    SESSION_KEY,
    USAGE,
    Broken,
    Gathered,
    Log,
    completed_rows,
    ordered,
    rows_of,
    together,
    without_copies,
)
from stateanalytics.systems.opencode.places import companions, is_database, is_storage
from stateanalytics.systems.opencode.records import (
    read_record_files,
    read_storage,
    size_of,
)
from stateanalytics.systems.opencode.tables import claim_columns, read_database
from stateanalytics.systems.tool_calls import calls_from

_BATCH_BYTES = 32 * 2**20
"""Small files are folded together, up to this size."""


def read(
    path: Path,
    *,
    label: str | None = None,
    bodies: bool = False,
    on_error: str = "skip",
    before: object = None,
) -> Parts:
    """The facts of one opencode database, directory or file.

    Parameters
    ----------
    path : pathlib.Path
        What `places.find` gave.
    label : str, optional
        How the user named it.
    bodies : bool
        Without effect: what people and models said is never loaded.
    on_error : {"skip", "raise"}
        What a record that cannot be read does.
    before : optional
        Without effect: files are reread each time.

    Returns
    -------
    Parts
        Canonical frames. No store stays open for raw SQL: opencode's databases have
        tables with keys and tokens.

    Raises
    ------
    DamagedStoreError
        If a record cannot be read and ``on_error`` is ``raise``.
    """
    name = str(path) if label is None else label
    [part] = read_many([path], labels=[name], on_error=on_error)
    return part


def read_many(
    paths: Sequence[Path], *, labels: Sequence[str], bodies: bool = False, on_error: str = "skip"
) -> Iterator[Parts]:
    """The facts of each input, as `read` gives them; small files are read and folded together.

    Parameters
    ----------
    paths : sequence of pathlib.Path
    labels : sequence of str
        The user's names of them; no two are the same.
    bodies, on_error
        As for `read`.

    Yields
    ------
    Parts
        In the order of the paths.
    """
    batch: list[tuple[str, Path]] = []
    n_bytes = 0
    with Parser() as parser:
        for label, path in zip(labels, paths, strict=True):
            if path.is_file() and is_database(path):
                yield from _of_files(batch, parser, on_error)
                yield _of_database(path, label, parser, on_error)
                batch, n_bytes = [], 0
                continue
            batch.append((label, path))
            n_bytes += size_of(path)
            if n_bytes > _BATCH_BYTES:
                yield from _of_files(batch, parser, on_error)
                batch, n_bytes = [], 0
        yield from _of_files(batch, parser, on_error)


def _of_database(path: Path, label: str, parser: Parser, on_error: str) -> Parts:
    """The facts of a database, and of the legacy files next to it."""
    with open_store(path, label=label, salvage=on_error == "salvage") as store:
        gathered, of_tables = read_database(store, parser)
        for legacy in filter(is_storage, companions(store.path)):
            gathered = _with_legacy(gathered, read_storage(legacy, label, parser))
        _refuse(label, gathered.broken, on_error)
        part = assembled(gathered, of_tables=of_tables)
        claimed = pl.when(bool(claim_columns(store))).then("is_resume_claimed")
        return replace(
            part,
            entities=part.entities.with_columns(is_resume_claimed=claimed),
            label=label,
            format=_format(part.details["opencode_sessions"], "database", store.tables),
            size_bytes=store.size_bytes,
            is_live=store.is_live,
        )


def _of_files(named: Sequence[tuple[str, Path]], parser: Parser, on_error: str) -> Iterator[Parts]:
    """Records and legacy directories by label, folded together."""
    if not named:
        return
    folders = [(label, path) for label, path in named if is_storage(path)]
    files = [pair for pair in named if pair not in folders]
    of_folders = [read_storage(path, label, parser) for label, path in folders]
    gathered = together([*of_folders, read_record_files(files, parser)])
    for label, _ in named:
        _refuse(label, [loss for loss in gathered.broken if loss.source == label], on_error)
    parts = by_source(assembled(gathered), [label for label, _ in named])
    for (label, path), part in zip(named, parts, strict=True):
        what = "storage directory" if path.is_dir() else "records"
        kind = _format(part.details["opencode_sessions"], what)
        # Nothing outside of the directories that are read whole, `Files.skips`.
        yield replace(part, label=label, format=kind, size_bytes=size_of(path), opened=())


def _refuse(name: str, broken: Sequence[Broken], on_error: str) -> None:
    """Raise an error about the first loss, if the caller asked for it."""
    losses = [loss for loss in broken if loss.severity != "info"]
    if on_error != "raise" or not losses:
        return
    raise DamagedStoreError(
        f"{name!r} was to be read completely, but it has {losses[0].message} "
        f"({losses[0].n_rows} times, first: {losses[0].example}).",
        'read the rest with on_error="skip"',
    )


def _with_legacy(gathered: Gathered, legacy: Gathered) -> Gathered:
    """Add the sessions of legacy files that the database does not have."""
    known = pl.concat(
        [gathered.session_rows["session_id"], gathered.messages["session_id"]]
    ).unique()
    new = ~pl.col("session_id").is_in(known.implode())
    messages = legacy.messages.filter(new)
    return replace(
        gathered,
        messages=pl.concat([gathered.messages, messages]),
        parts=pl.concat([gathered.parts, legacy.parts.join(messages, on="message_id", how="semi")]),
        session_rows=completed_rows(gathered.session_rows, legacy.session_rows.filter(new)),
        broken=(*gathered.broken, *legacy.broken),
    )


def assembled(gathered: Gathered, *, of_tables: pl.DataFrame | None = None) -> Parts:
    """Fold the contents of some inputs, and put them into canonical frames.

    ``of_tables`` has the findings about the tables of a database; None: it is none.
    """
    recorded, gathered = gathered, without_copies(gathered)
    order = ordered(gathered.log)
    folded = fold(gathered.log, order)
    by_messages = _folded_messages(gathered, folded)
    sessions = completed_rows(gathered.session_rows, folded.sessions, by_messages.sessions)
    # Records are kept with the copies of forks.
    details = {
        **detail_frames(gathered, order, folded, by_messages, sessions),
        **kept_records(recorded, order),
    }
    steps = rows_of(order.events, gathered.log, "step").filter(pl.col("message_id").is_not_null())
    of_messages = details["opencode_executions"].filter(pl.col("era") == "V1")
    written = pl.concat([gathered.messages, gathered.projections]).unique(
        ["source", "message_id"], keep="first", maintain_order=True
    )
    without_events = written.join(
        by_messages.sessions, on=SESSION_KEY, how="semi", maintain_order="left"
    )
    chat = written.filter(pl.col("role").is_in(["user", "assistant"])).group_by(SESSION_KEY)
    n_messages = chat.agg(n_messages=pl.len(), n_chat_messages=pl.len())
    findings = findings_of(gathered, order, details, is_table=of_tables is not None)
    return Parts(
        system=NAME,
        format="",
        entities=entities_of(
            details, sessions.join(n_messages, on=SESSION_KEY, how="left", maintain_order="left")
        ),
        transitions=transitions_of(
            order,
            steps,
            of_messages.join(by_messages.executions, on=SESSION_KEY, how="semi"),
        ),
        events=events_of(order, without_events),
        findings=findings if of_tables is None else pool([of_tables, findings], schema.FINDINGS),
        details=details,
    )


def _folded_messages(gathered: Gathered, folded: Folded) -> Folded:
    """The messages of sessions without events of work, and V2's of sessions without any event."""
    worked = folded.executions.select(SESSION_KEY).unique()
    seen = folded.sessions.select(SESSION_KEY)
    projected = gathered.projections.join(seen, on=SESSION_KEY, how="anti")
    own = gathered.messages.join(worked, on=SESSION_KEY, how="anti").join(
        projected.select(SESSION_KEY).unique(), on=SESSION_KEY, how="anti"
    )
    return fold_messages(pl.concat([own, projected]), gathered.parts)


def _format(sessions: pl.DataFrame, what: str, tables: Collection[str] = ()) -> str:
    """The kind of an input, with the eras that wrote it."""
    recorded = set(sessions["era"].unique().to_list()) - {None}
    eras = sorted(recorded | ({"C"} if "session_v2" in tables else set()))
    return f"opencode {what}" + (f", era {' and '.join(eras)}" if eras else "")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Clocks(NamedTuple):
    """When the rows of a table began, and when each column that is overwritten was written."""

    began: tuple[pl.Expr, ...]
    """A row is later if any of these moments is."""
    written: Mapping[str, tuple[str, ...]]
    """Columns by the moment at which they were written: before it they are unknown."""


_CLOCKS = {
    "messages": _Clocks(
        began=(pl.col("created_ms"), pl.col("written_ms")),
        written={
            "completed_ms": (
                *("completed_ms", "finish", "raw_finish", "n_content_chars", "n_content_tools"),
                *("error_type", "error_message", "error_status"),
                *("retry_at_ms", "retry_attempt", "retry_error_type"),
                *USAGE,
            )
        },
    ),
    "parts": _Clocks(
        began=(pl.coalesce("created_ms", "start_ms"), pl.col("written_ms")),
        written={
            "start_ms": ("start_ms",),
            "end_ms": (
                *("end_ms", "exit_code", "error_message", "n_chars"),
                *("is_timed_out", "is_aborted"),
                # The input is part of a state that its end overwrites.
                *INPUTS.dtypes,
                *RESULTS.dtypes,
                "says",
            ),
        },
    ),
    "session_rows": _Clocks(
        began=(pl.col("created_ms"), pl.col("written_ms")),
        written={
            "updated_ms": (
                *("updated_ms", "row_cost_usd", "row_input_tokens", "row_output_tokens"),
                *("row_reasoning_tokens", "row_cache_read_tokens", "row_cache_write_tokens"),
                *("agent", "model", "provider", "n_resume_attempts", "idle_outcome"),
            ),
            "archived_ms": ("archived_ms",),
            "suspended_ms": ("suspended_ms",),
        },
    ),
}
"""The clocks of all records that are overwritten; events never are."""


def rewind(past: Past, facts: Facts) -> Past:
    """The same instant, with opencode's rows as they would have been read at that instant.

    Later records are excluded, and the others are folded again. A record that is overwritten
    has the moment of its end: before that, nothing that was written with the end is known.
    Rows of sessions keep no old values, so that their totals are known only if they were last
    written before the instant.

    Parameters
    ----------
    past : Past
        From the shared history.
    facts : Facts
        Of the present, with the frames of `frames.RECORDS`.

    Returns
    -------
    Past
        Inputs without those frames are unchanged.
    """
    kept = [facts.detail(frame)["source"] for frame in RECORDS]
    labels = pl.concat(kept).unique().sort()
    if labels.is_empty():
        return past
    at_ms = (past.at - _EPOCH) // timedelta(milliseconds=1)
    has_records = pl.col("source").is_in(labels.implode())
    gathered = gathered_from(facts.details, facts.events.filter(has_records))
    part = assembled(_cut_off(gathered, at_ms))
    entities = part.entities.sort("source", maintain_order=True)
    lost = _lost(entities, part.details[frames.EXECUTIONS.name], facts, past.at)
    return with_rows_of(past, part, labels, lost)


def _lost(
    entities: pl.DataFrame, executions: pl.DataFrame, facts: Facts, at: datetime
) -> pl.DataFrame:
    """The facts of entities that are not known at the instant; all others are folded again.

    A session's row that was written later shows neither when it was written before nor whether
    the session was claimed, which its executions need.
    """
    written = facts.detail(OF_SESSIONS).filter(pl.col("updated_at") > at)
    ids = ["source", "session_id"]
    rows = (
        pl.concat(
            [
                written.select("source", entity_type=pl.lit("session"), entity_id="session_id"),
                executions.join(written, on=ids, how="semi").select(
                    "source", entity_type=pl.lit("execution"), entity_id="entity_id"
                ),
            ]
        )
        .unique()
        .with_columns(is_written=pl.lit(value=True))
    )
    key = ["source", "entity_type", "entity_id"]
    joined = entities.join(rows, on=key, how="left", maintain_order="left")
    is_written = pl.col("is_written").fill_null(value=False)
    is_session = pl.col("entity_type") == "session"
    known = dict.fromkeys(LOST, pl.lit(value=False))
    lost = {
        "updated": is_written & is_session,
        "record": is_written,
        "present": pl.lit(value=True),
    }
    return joined.select(**(known | lost))


def _cut_off(gathered: Gathered, at_ms: int) -> Gathered:
    """The contents of inputs at an instant, in epoch milliseconds.

    Records that began later are excluded, and those that ended later are open. Records without
    any moment are kept: nothing shows that they were written later. A part without one is as
    old as its message.
    """
    later = gathered.messages.filter(_is_later(pl.col("created_ms"), at_ms))
    parts = gathered.parts.join(later, on=["source", "message_id"], how="anti")
    # Only the last status is stored; the moments show the earlier ones.
    status = (
        pl.when(pl.col("status").is_null())
        .then(None)
        .when(_is_later(pl.col("start_ms"), at_ms))
        .then(pl.lit("pending"))
        .when(_is_later(pl.col("end_ms"), at_ms))
        .then(pl.lit("running"))
        .otherwise("status")
    )
    return replace(
        gathered,
        log=Log(_events_up_to(gathered.log.events, at_ms), gathered.log.payloads),
        messages=_up_to(gathered.messages, "messages", at_ms),
        projections=_up_to(gathered.projections, "messages", at_ms),
        parts=_up_to(parts.with_columns(status=status), "parts", at_ms),
        session_rows=_up_to(gathered.session_rows, "session_rows", at_ms),
        waiting=None,
    )


def _up_to(rows: pl.DataFrame, table: str, at_ms: int) -> pl.DataFrame:
    """The rows that had begun, with the columns that had been written, by `_CLOCKS`."""
    clocks = _CLOCKS[table]
    begun = rows.filter(~_is_later(began, at_ms) for began in clocks.began)
    return begun.with_columns(
        pl.when(~_is_later(pl.col(clock), at_ms)).then(name).alias(name)
        for clock, names in clocks.written.items()
        for name in names
    )


def _is_later(at: pl.Expr, at_ms: int) -> pl.Expr:
    return (at > at_ms).fill_null(value=False)


def _events_up_to(events: pl.DataFrame, at_ms: int) -> pl.DataFrame:
    """Events up to an instant; one without a moment is no later than the next one with one."""
    ordered = events.sort(*SESSION_KEY, "seq", nulls_last=True, maintain_order=True)
    at, is_durable = pl.col("at_ms"), pl.col("seq").is_not_null()
    by = pl.coalesce(at, at.backward_fill(), at.forward_fill()).over(*SESSION_KEY, is_durable)
    return ordered.filter(~_is_later(by, at_ms))


def calls(facts: Facts) -> pl.DataFrame:
    """The tool calls of opencode, in the shape of `schema.CALLS`."""
    is_error = (pl.col("state") == "error") | pl.col("cause").is_not_null()
    tools = facts.detail(frames.TOOLS).with_columns(
        thread_id="session_id",
        turn_no="exec_no",
        tool="name",
        message="error_message",
        started_at=pl.coalesce("called_at", "started_at"),
        is_error=is_error,
    )
    return calls_from(tools, NAME)


def texts(facts: Facts, entity: Mapping[str, Any]) -> pl.DataFrame:
    """The messages of a session of opencode 1, from its database, which is read again.

    Returns
    -------
    polars.DataFrame
        ``at``, ``role`` and ``text``, in order; no rows where no database has the session.
    """
    session_id = entity["entity_id" if entity["entity_type"] == "session" else "session_id"]
    found = [pl.DataFrame(schema={"at": schema.MOMENT, "role": pl.String, "text": pl.String})]
    for path in filter(is_database, facts.inputs):
        with suppress(SourceError), open_store(path) as store:
            found.append(_said(store, session_id))
    return pl.concat(found)


def _said(store: Store, session_id: str) -> pl.DataFrame:
    """What a session says in the tables of messages and of their parts."""
    own = "'" + session_id.replace("'", "''") + "'"

    def of_session(sql: str, *needs: str) -> Cell:
        guarded = f"CASE WHEN session_id = {own} AND json_valid(data) THEN {sql} END"
        return Cell("text", guarded, ("session_id", "data", *needs))

    text = "json_extract(data, '$.text')"
    is_text = "json_extract(data, '$.type') = 'text' AND json_extract(data, '$.synthetic') IS NULL"
    message = {
        "message_id": of_session("id", "id"),
        "role": of_session("json_extract(data, '$.role')"),
        "created": of_session("CAST(json_extract(data, '$.time.created') AS TEXT)"),
    }
    part = {
        "message_id": of_session("message_id", "message_id"),
        "text": of_session(f"CASE WHEN {is_text} THEN {text} END"),
    }
    messages, parts = (
        read_table(store, table, cells, system=NAME)[0].drop_nulls()
        for table, cells in (("message", message), ("part", part))
    )
    said = parts.group_by("message_id", maintain_order=True).agg(pl.col("text").str.join("\n"))
    created = pl.col("created").cast(pl.Float64, strict=False).cast(pl.Int64)
    at = pl.from_epoch(created, "ms").cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    whole = messages.join(said, on="message_id", maintain_order="left").with_columns(at=at)
    return whole.select("at", "role", "text").drop_nulls()


def turns(facts: Facts) -> pl.DataFrame:
    """The executions of opencode, in the shape of `schema.TURNS`."""
    is_over = pl.col("outcome") == "succeeded"
    return schema.TURNS.conform(
        facts.detail(frames.EXECUTIONS).with_columns(
            system=pl.lit(NAME),
            entity_type=pl.lit("execution"),
            thread_id="session_id",
            turn_no="exec_no",
            is_empty=is_over & (pl.col("n_final_chars").fill_null(0) == 0),
            is_cut=is_over & (pl.col("last_finish") == "length"),
            is_interrupted=(pl.col("outcome") == "interrupted")
            & (pl.col("interrupt_reason") == "user"),
        )
    )

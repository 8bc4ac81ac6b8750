"""One opencode input, from its tables, events and files to canonical frames."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.errors import DamagedStoreError
from stateanalytics.io.json_lines import Parser, moment
from stateanalytics.io.parts import Parts, by_source
from stateanalytics.io.sqlite import Store, open_store
from stateanalytics.systems.omissions import findings_of_database
from stateanalytics.systems.opencode import frames
from stateanalytics.systems.opencode.canonical import entities_of, events_of, transitions_of
from stateanalytics.systems.opencode.details import detail_frames
from stateanalytics.systems.opencode.events import events_of_rows, messages_of, parts_of
from stateanalytics.systems.opencode.executions import Folded, fold
from stateanalytics.systems.opencode.findings import findings_of
from stateanalytics.systems.opencode.forks import without_copies
from stateanalytics.systems.opencode.gathered import Broken, Gathered, completed_rows, together
from stateanalytics.systems.opencode.log import SESSION_KEY, rows_of
from stateanalytics.systems.opencode.mapping import SYSTEM
from stateanalytics.systems.opencode.message_fold import PROJECTED, FoldedMessages, fold_messages
from stateanalytics.systems.opencode.places import beside, is_database, is_storage
from stateanalytics.systems.opencode.record_frames import kept_records
from stateanalytics.systems.opencode.records import read_record_files, read_storage, size_of
from stateanalytics.systems.opencode.tables import (
    claim_columns,
    read_events,
    read_messages,
    read_projections,
    read_sessions,
    read_waiting,
)

_BATCH_BYTES = 32 * 2**20
"""Small files are folded together, so many bytes at once."""


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
        Without effect: files are read anew each time.

    Returns
    -------
    Parts
        Canonical frames. No store stays open for raw SQL: opencode's databases hold
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
    """What `read` gives of each: files of records are read and folded as if they were one.

    Parameters
    ----------
    paths : sequence of pathlib.Path
    labels : sequence of str
        How the user named each; no two are the same.
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
    with open_store(path, label=label, salvage=on_error == "salvage") as store:
        part = read_store(store, parser, on_error=on_error)
        losses = findings_of_database(store, system=part.system)
    return replace(part, findings=pool([losses, part.findings], schema.FINDINGS))


def _of_files(named: Sequence[tuple[str, Path]], parser: Parser, on_error: str) -> Iterator[Parts]:
    """Records and legacy directories by label, folded at once."""
    if not named:
        return
    folders = [(label, path) for label, path in named if is_storage(path)]
    files = [each for each in named if each not in folders]
    of_folders = [read_storage(path, label, parser) for label, path in folders]
    gathered = together([*of_folders, read_record_files(files, parser)])
    for label, _ in named:
        _refuse(label, [loss for loss in gathered.broken if loss.source == label], on_error)
    of_each = by_source(assembled(gathered), [label for label, _ in named])
    for (label, path), part in zip(named, of_each, strict=True):
        what = "storage directory" if path.is_dir() else "records"
        kind = _format(part.details["opencode_sessions"], what)
        yield replace(part, label=label, format=kind, size_bytes=size_of(path))


def _refuse(name: str, broken: Sequence[Broken], on_error: str) -> None:
    """End the load over the first loss, where the caller asked for it."""
    losses = [loss for loss in broken if loss.severity != "info"]
    if on_error != "raise" or not losses:
        return
    raise DamagedStoreError(
        f"{name!r} was to be read whole, but it holds {losses[0].message} "
        f"({losses[0].n_rows} times, first: {losses[0].example}).",
        'read the rest with on_error="skip"',
    )


def read_store(store: Store, parser: Parser, *, on_error: str = "skip") -> Parts:
    """The facts of an open opencode database, and of the legacy files beside it."""
    rows, of_events = read_events(store)
    sessions, of_sessions = read_sessions(store, parser)
    messages, parts, of_messages = read_messages(store)
    projected, of_projections = read_projections(store)
    middle = sessions["created_ms"].median()
    log, broken_events = events_of_rows(
        rows,
        parser,
        reference_ms=None if middle is None else int(middle),  # type: ignore[arg-type]
    )
    of_rows, broken_messages = messages_of(messages, parser)
    pieces, broken_parts = parts_of(parts, parser)
    projections, broken_projections = messages_of(
        projected, parser, "session_message", era=PROJECTED, has_content=True
    )
    gathered = Gathered(
        log=log,
        messages=of_rows,
        parts=pieces,
        projections=projections,
        session_rows=sessions,
        waiting=read_waiting(store),
        broken=(*broken_events, *broken_messages, *broken_parts, *broken_projections),
    )
    for legacy in filter(is_storage, beside(store.path)):
        gathered = _with_legacy(gathered, read_storage(legacy, store.label, parser))
    _refuse(store.label, gathered.broken, on_error)
    findings = pool([of_events, of_sessions, of_messages, of_projections], schema.FINDINGS)
    part = assembled(gathered, cells=findings, is_table=True)
    claimed = pl.when(bool(claim_columns(store))).then("is_resume_claimed")
    return replace(
        part,
        entities=part.entities.with_columns(is_resume_claimed=claimed),
        label=store.label,
        format=_format(part.details["opencode_sessions"], "database", store.tables),
        size_bytes=store.size_bytes,
        is_live=store.is_live,
    )


def _with_legacy(gathered: Gathered, legacy: Gathered) -> Gathered:
    """Sessions of files that the database does not have; imported ones are left in place."""
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


def assembled(
    gathered: Gathered, *, cells: pl.DataFrame | None = None, is_table: bool = False
) -> Parts:
    """Fold what was gathered of some inputs, and put it into canonical frames."""
    recorded, gathered = gathered, without_copies(gathered)
    folded = fold(gathered.log)
    by_messages = _folded_messages(gathered, folded)
    sessions = completed_rows(
        gathered.session_rows, _rows_of(folded.sessions), _rows_of(by_messages.sessions)
    )
    details = _details(gathered, folded, by_messages, sessions, recorded)
    steps = rows_of(folded.order.events, gathered.log, "step").filter(
        pl.col("message_id").is_not_null()
    )
    of_messages = details["opencode_executions"].filter(pl.col("era") == "V1")
    written = pl.concat([gathered.messages, gathered.projections]).unique(
        ["source", "message_id"], keep="first", maintain_order=True
    )
    spoken = written.join(by_messages.sessions, on=SESSION_KEY, how="semi", maintain_order="left")
    is_said = pl.col("role").is_in(["user", "assistant"])
    said = written.filter(is_said).group_by(SESSION_KEY)
    n_messages = said.agg(n_messages=pl.len(), n_chat_messages=pl.len())
    findings = findings_of(gathered, folded, details, is_table=is_table)
    return Parts(
        system=SYSTEM,
        format="",
        entities=entities_of(
            details, sessions.join(n_messages, on=SESSION_KEY, how="left", maintain_order="left")
        ),
        transitions=transitions_of(
            folded.order,
            steps,
            of_messages.join(by_messages.executions, on=SESSION_KEY, how="semi"),
        ),
        events=events_of(folded.order, spoken),
        findings=pool([findings] if cells is None else [cells, findings], schema.FINDINGS),
        details=details,
    )


def _folded_messages(gathered: Gathered, folded: Folded) -> FoldedMessages:
    """What messages add: sessions without events of work, and V2's without any event."""
    worked = folded.executions.select(SESSION_KEY).unique()
    seen = folded.sessions.select(SESSION_KEY)
    projected = gathered.projections.join(seen, on=SESSION_KEY, how="anti")
    own = gathered.messages.join(worked, on=SESSION_KEY, how="anti").join(
        projected.select(SESSION_KEY).unique(), on=SESSION_KEY, how="anti"
    )
    return fold_messages(pl.concat([own, projected]), gathered.parts)


def _rows_of(sessions: pl.DataFrame) -> pl.DataFrame:
    """What events or messages say of sessions that have no row."""
    return sessions.filter(pl.col("session_id").is_not_null())


def _details(
    gathered: Gathered,
    folded: Folded,
    by_messages: FoldedMessages,
    sessions: pl.DataFrame,
    recorded: Gathered,
) -> dict[str, pl.DataFrame]:
    stacked = detail_frames(folded, by_messages, gathered.log, sessions)
    stacked["opencode_sessions"] = _all_sessions(stacked["opencode_sessions"], sessions)
    if gathered.waiting is not None:
        stored = pl.col("input_id").is_in(gathered.waiting["input_id"].implode())
        stacked["opencode_inputs"] = stacked["opencode_inputs"].with_columns(
            is_stored_pending=stored
        )
    stacked |= kept_records(recorded, folded.order)
    shapes = {shape.name: shape for shape in frames.frames()}
    return {name: shapes[name].conform(frame) for name, frame in stacked.items()}


def _all_sessions(frame: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """One row a session, also of those that have neither events nor messages."""
    ordered = frame.sort(pl.col("n_executions").fill_null(0), descending=True, maintain_order=True)
    distinct = ordered.unique(SESSION_KEY, keep="first", maintain_order=True)
    names = ("program_version", "directory", "fork_of", "idle_outcome", "n_resume_attempts")
    rows = sessions.select(
        *SESSION_KEY,
        suspended=moment("suspended_ms"),
        archived=moment("archived_ms"),
        created=moment("created_ms"),
        **{f"row_{name}": name for name in names},
    )
    counts = ("n_events", "n_executions", "n_turns", "n_steps", "n_inputs", "n_pending_inputs")
    return (
        distinct.join(rows, on=SESSION_KEY, how="full", coalesce=True, maintain_order="left_right")
        .with_columns(
            *(pl.coalesce(name, f"row_{name}").alias(name) for name in names),
            *(pl.col(name).fill_null(0) for name in counts),
            suspended_at=pl.coalesce("suspended_at", "suspended"),
            archived_at=pl.coalesce("archived_at", "archived"),
            last_at=pl.coalesce("last_at", "created"),
        )
        .select(frame.columns)
        .sort(SESSION_KEY)
    )


def _format(sessions: pl.DataFrame, what: str, tables: Collection[str] = ()) -> str:
    told = set(sessions["era"].unique().to_list()) - {None}
    eras = sorted(told | ({"C"} if "session_v2" in tables else set()))
    return f"opencode {what}" + (f", era {' and '.join(eras)}" if eras else "")

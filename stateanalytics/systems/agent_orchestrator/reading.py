"""One tree, part of a tree, file or database: from files to canonical frames."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import pool
from stateanalytics.errors import SourceError
from stateanalytics.io.parts import Parts
from stateanalytics.io.sqlite import Store, open_store
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.assembly import Known, assemble, proven_at
from stateanalytics.systems.agent_orchestrator.columns import with_defaults
from stateanalytics.systems.agent_orchestrator.databases import (
    EVENTS_TABLE,
    is_go,
    read_activity_events,
    read_go,
)
from stateanalytics.systems.agent_orchestrator.findings import (
    go_findings,
    log_findings,
    record_findings,
)
from stateanalytics.systems.agent_orchestrator.go_sessions import (
    circumstances,
    go_changes,
    go_statuses,
    read_go_sessions,
)
from stateanalytics.systems.agent_orchestrator.go_work import (
    go_entries,
    read_usage,
    read_work,
    work_transitions,
)
from stateanalytics.systems.agent_orchestrator.logs import (
    READERS,
    add_entities,
    canonical,
    decisions,
    events,
    link,
    read_logs,
    transitions,
)
from stateanalytics.systems.agent_orchestrator.places import (
    RECORDS,
    SYSTEM,
    Fault,
    Faults,
    File,
    Kind,
    files_of,
    opened_of,
)
from stateanalytics.systems.agent_orchestrator.records import read_records
from stateanalytics.systems.agent_orchestrator.sessions import (
    read_payloads,
    read_sessions,
    shaped,
    time_findings,
)
from stateanalytics.systems.omissions import findings_of_database

_LOGS = (*READERS, Kind.FEEDBACK)
_DATABASES = (Kind.EVENTS_DATABASE, Kind.GO_DATABASE)


def read(
    path: Path,
    *,
    label: str,
    bodies: bool = False,
    on_error: str = "skip",
    before: object = None,
) -> Parts:
    """Facts of a tree of Agent Orchestrator, or of any part of one.

    Parameters
    ----------
    path : pathlib.Path
        A path of `places.find`.
    label : str
        Name of the input, as the user gave it.
    bodies : bool
        Whether to keep the lines of logs and the texts of feedback.
    on_error : {"skip", "raise"}
        Whether to go on after a file that cannot be read.

    Returns
    -------
    Parts
        Canonical frames, ``ao_sessions`` and ``ao_decisions``. Nothing is written, locked or
        waited for.

    Raises
    ------
    DamagedStoreError
        If something cannot be read and ``on_error`` is ``raise``.
    """
    faults = Faults(label, str(path if path.is_dir() else path.parent), on_error)
    files = list(files_of(path))
    stores = [store for file in files if (store := _opened(file, faults))]
    try:
        part = _parts(files, stores, faults, bodies=bodies)
        lost = [findings_of_database(store, system=SYSTEM) for store in stores]
        return replace(
            part,
            findings=pool([*lost, part.findings], schema.FINDINGS),
            opened=tuple(opened_of(files)),
        )
    finally:
        for store in stores:
            store.close()


def read_store(store: Store, *, bodies: bool = False, before: object = None) -> Parts:
    """Facts of one database that was named by itself."""
    return _parts([], [store], Faults(store.label, str(store.path.parent)), bodies=bodies)


def _parts(
    files: Sequence[File], stores: Sequence[Store], faults: Faults, *, bodies: bool
) -> Parts:
    label = faults.label
    stored = _from_databases(stores, faults, bodies)
    records = read_payloads(read_records([file for file in files if file.kind in RECORDS], faults))
    logs = read_logs([file for file in files if file.kind in _LOGS], faults, bodies=bodies)
    _note_files(files, faults)
    all_records = pl.concat([read_sessions(records), *stored["sessions"]], how="diagonal_relaxed")
    # Only the Go rewrite keeps when an agent was last seen, and which ones signal.
    optional = dict.fromkeys(("activity_last_at", "first_signal_at"), schema.MOMENT)
    sessions = add_entities(with_defaults(all_records, {**optional, "has_hooks": schema.YES_NO}))
    entries = link(
        pl.concat([logs, *stored["entries"]], how="diagonal_relaxed").with_columns(
            _order=pl.int_range(pl.len())
        ),
        sessions,
    )
    decided = decisions(entries, label)
    work, usage, known = (
        _linked(stored[frame.name], frame, sessions, label)
        for frame in (frames.WORK, frames.USAGE, frames.CIRCUMSTANCES)
    )
    own_events = canonical(events(entries), schema.EVENTS, label)
    sessions, entities = assemble(Known(sessions, own_events, decided, work, usage, known), label)
    changes = canonical(transitions(entries), schema.TRANSITIONS, label)
    details = {
        frames.SESSIONS.name: shaped(sessions, label),
        frames.DECISIONS.name: decided,
        frames.WORK.name: work,
        frames.USAGE.name: usage,
        frames.CIRCUMSTANCES.name: known,
    }
    findings = [
        faults.findings(),
        *stored["findings"],
        time_findings(records, label),
        record_findings(sessions, label),
        log_findings(entries, sessions, label),
    ]
    is_locked = any(file.kind == Kind.LOCK for file in files)
    proofs = [proven_at(details[frames.SESSIONS.name], entities), usage["at"].drop_nulls()]
    return Parts(
        system=SYSTEM,
        format=_format(sessions, stores),
        entities=entities,
        transitions=pl.concat([changes, work_transitions(work)]),
        events=own_events,
        findings=pool(findings, schema.FINDINGS),
        details=details,
        label=label,
        size_bytes=_size_of(records, files, stores),
        is_live=is_locked or any(store.is_live for store in stores),
        proven_at=pl.concat(proofs),
    )


def _opened(file: File, faults: Faults) -> Store | None:
    """Private copy of a database of the tree; None for any other file, or with a fault."""
    if file.kind not in _DATABASES:
        return None
    below = faults.below(file.path)
    try:
        return open_store(file.path, label=faults.label, salvage=faults.on_error == "salvage")
    except SourceError as error:
        faults.add(Fault("file.unreadable", "warning", error.problem, below))
        return None


def _from_databases(
    stores: Sequence[Store], faults: Faults, bodies: bool
) -> Mapping[str, list[pl.DataFrame]]:
    """Sessions, entries, findings and other frames of all databases, sessions by their names."""
    stored: Mapping[str, list[pl.DataFrame]] = defaultdict(list)
    for store in stores:
        if EVENTS_TABLE in store.tables:
            entries, findings = read_activity_events(store, bodies=bodies)
            stored["entries"].append(entries)
            stored["findings"].append(findings)
        if is_go(store):
            tables = read_go(store)
            statuses, work = go_statuses(tables), read_work(tables)
            path = faults.below(str(store.path))
            changes = go_changes(tables, statuses, bodies=bodies)
            stored["sessions"].append(read_go_sessions(tables, statuses, path=path))
            stored["entries"].extend([changes, go_entries(tables)])
            stored["findings"].extend([tables.findings, go_findings(tables, store.label)])
            stored[frames.WORK.name].append(work)
            stored[frames.USAGE.name].append(read_usage(tables))
            stored[frames.CIRCUMSTANCES.name].append(circumstances(tables, work))
    return stored


def _linked(
    pieces: Sequence[pl.DataFrame], shape: schema.Frame, sessions: pl.DataFrame, label: str
) -> pl.DataFrame:
    """One frame of all databases, with the entity in place of the name of each session."""
    rows = pl.concat([shape.empty(), *pieces], how="diagonal_relaxed")
    named = sessions.filter(pl.col("generation") == "G3").unique("session_id")
    column = "session_id" if "session_id" in shape.dtypes else "entity_id"
    linked = (
        with_defaults(rows.with_columns(source=pl.lit(label)), {"session_id": schema.TEXT})
        .join(
            named.select("session_id", _entity_id="entity_id"),
            on="session_id",
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.coalesce("_entity_id", "session_id").alias(column))
    )
    if shape is not frames.WORK:
        return shape.conform(linked)
    has_id = linked.filter(pl.col("entity_id").is_not_null())
    return shape.conform(has_id.unique(shape.key, keep="first", maintain_order=True))


def _note_files(files: Sequence[File], faults: Faults) -> None:
    """Add names that are not UTF-8, and records that Agent Orchestrator set aside as corrupt."""
    for file in files:
        faults.note_name(file.path)
        if file.kind == Kind.CORRUPT_COPY:
            faults.add(
                Fault(
                    "record.corrupt_copy",
                    "info",
                    "a corrupt record that Agent Orchestrator put aside and rewrote",
                    faults.below(file.path),
                    session_id=file.name.partition(".json")[0],
                    action="not read; the rewritten record may lack what it held",
                )
            )


def _format(sessions: pl.DataFrame, stores: Sequence[Store]) -> str:
    """Generations of the records and databases, oldest first."""
    seen = set(sessions.filter("is_readable")["generation"].drop_nulls())
    has_events = any(EVENTS_TABLE in store.tables for store in stores)
    if any(is_go(store) for store in stores):
        seen.add("G3")
    return ", ".join([*sorted(seen), *(["activity events"] if has_events else [])]) or "logs"


def _size_of(records: pl.DataFrame, files: Sequence[File], stores: Sequence[Store]) -> int:
    """Bytes of everything that was read; a file that vanished has none."""
    logs = sum(_size(file) for file in files if file.kind in _LOGS)
    return logs + int(records["size_bytes"].sum()) + sum(store.size_bytes for store in stores)


def _size(file: File) -> int:
    try:
        return Path(file.path).stat().st_size
    except OSError:
        return 0

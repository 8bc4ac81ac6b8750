"""One tree, part of a tree, file or database: from files to canonical frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl
import polars.selectors as cs

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.errors import SourceError
from stateanalytics.io.parts import Parts
from stateanalytics.io.sqlite import Store, open_store
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.columns import in_calendar, with_defaults
from stateanalytics.systems.agent_orchestrator.databases import (
    EVENTS_TABLE,
    is_go,
    read_activity_events,
    read_go,
)
from stateanalytics.systems.agent_orchestrator.events import (
    add_entities,
    decisions,
    events,
    link,
    named,
    transitions,
)
from stateanalytics.systems.agent_orchestrator.findings import (
    go_findings,
    log_findings,
    record_findings,
)
from stateanalytics.systems.agent_orchestrator.go_sessions import (
    add_silence,
    circumstances,
    go_changes,
    go_entries,
    go_statuses,
    read_go_sessions,
    with_circumstances,
)
from stateanalytics.systems.agent_orchestrator.go_work import (
    read_usage,
    read_work,
    with_turns,
    work_entities,
    work_transitions,
)
from stateanalytics.systems.agent_orchestrator.logs import READERS, read_logs
from stateanalytics.systems.agent_orchestrator.meaning import add_kill_events, add_meaning
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
    proven_at,
    read_sessions,
    shaped,
    tell,
    time_findings,
)
from stateanalytics.systems.unread import findings_of_database

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
    """The facts of a tree of Agent Orchestrator, or of any part of one.

    Parameters
    ----------
    path : pathlib.Path
        What `places.find` gave.
    label : str
        How the user named it.
    bodies : bool
        Whether to keep the lines of logs and the texts of feedback.
    on_error : {"skip", "raise"}
        What a file that cannot be read does.

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
    """The facts of one database that was named by itself."""
    return _parts([], [store], Faults(store.label, str(store.path.parent)), bodies=bodies)


def _parts(
    files: Sequence[File], stores: Sequence[Store], faults: Faults, *, bodies: bool
) -> Parts:
    label = faults.label
    stored = _from_databases(stores, faults, bodies)
    records = read_records([file for file in files if file.kind in RECORDS], faults)
    logs = read_logs([file for file in files if file.kind in _LOGS], faults, bodies=bodies)
    _note_files(files, faults)
    read = pl.concat([read_sessions(records), *stored.sessions], how="diagonal_relaxed")
    # Only the Go rewrite keeps when an agent was last seen, and which ones signal.
    seen = dict.fromkeys(("activity_last_at", "first_signal_at"), schema.MOMENT)
    sessions = add_entities(with_defaults(read, {**seen, "has_hooks": schema.YES_NO}))
    entries = link(
        pl.concat([logs, *stored.entries], how="diagonal_relaxed").with_columns(
            _order=pl.int_range(pl.len())
        ),
        sessions,
    )
    entries, sessions = within_calendar(entries), within_calendar(sessions)
    decided = decisions(entries, label)
    work, usage, known = (
        within_calendar(stored.named(shape, sessions, label))
        for shape in (frames.WORK, frames.USAGE, frames.CIRCUMSTANCES)
    )
    sessions = add_silence(sessions, (entries, work, usage))
    with_more = with_circumstances(sessions, known)
    meant = add_meaning(add_kill_events(with_more, decided))
    sessions = shaped(meant, label)
    told = named(events(entries), schema.EVENTS, label)
    entities = tell(meant, told, label, usage)
    changes = named(transitions(entries), schema.TRANSITIONS, label)
    return Parts(
        system=SYSTEM,
        format=_format(meant, stores),
        entities=pl.concat([with_turns(entities, work), work_entities(work, entities)]),
        transitions=pl.concat([changes, work_transitions(work)]),
        events=told,
        findings=pool(
            [
                faults.findings(),
                *stored.findings,
                time_findings(records, label),
                record_findings(meant, label),
                log_findings(entries, meant, label),
            ],
            schema.FINDINGS,
        ),
        details={
            frames.SESSIONS.name: sessions,
            frames.DECISIONS.name: decided,
            frames.WORK.name: work,
            frames.USAGE.name: usage,
            frames.CIRCUMSTANCES.name: known,
        },
        label=label,
        size_bytes=_size_of(records, files, stores),
        is_live=any(store.is_live for store in stores)
        or any(file.kind == Kind.LOCK for file in files),
        proven_at=pl.concat([proven_at(sessions, entities), usage["at"].drop_nulls()]),
    )


def _opened(file: File, faults: Faults) -> Store | None:
    """A private copy of a database of the tree; None, and a fault, where it is none."""
    if file.kind not in _DATABASES:
        return None
    below = faults.below(file.path)
    try:
        return open_store(file.path, label=faults.label, salvage=faults.on_error == "salvage")
    except SourceError as error:
        faults.add(Fault("file.unreadable", "warning", error.problem, below))
        return None


@dataclass(frozen=True)
class _Stored:
    """What all databases of an input hold."""

    sessions: list[pl.DataFrame] = field(default_factory=list)
    entries: list[pl.DataFrame] = field(default_factory=list)
    findings: list[pl.DataFrame] = field(default_factory=list)
    work: list[pl.DataFrame] = field(default_factory=lambda: [frames.WORK.empty()])
    usage: list[pl.DataFrame] = field(default_factory=lambda: [frames.USAGE.empty()])
    circumstances: list[pl.DataFrame] = field(
        default_factory=lambda: [frames.CIRCUMSTANCES.empty()]
    )

    def named(self, shape: schema.Frame, sessions: pl.DataFrame, label: str) -> pl.DataFrame:
        """A frame of all databases; what is told of a session names it as its entity."""
        pieces = getattr(self, shape.name.removeprefix("ao_"))
        rows = pl.concat(pieces, how="diagonal_relaxed").with_columns(source=pl.lit(label))
        names = sessions.filter(pl.col("generation") == "G3").unique("session_id")
        told = with_defaults(rows, {"session_id": schema.TEXT}).join(
            names.select("session_id", _known="entity_id"),
            on="session_id",
            how="left",
            maintain_order="left",
        )
        column = "session_id" if "session_id" in shape.dtypes else "entity_id"
        linked = told.with_columns(pl.coalesce("_known", "session_id").alias(column))
        if shape is not frames.WORK:
            return shape.conform(linked)
        has_id = linked.filter(pl.col("entity_id").is_not_null())
        return shape.conform(has_id.unique(shape.key, keep="first", maintain_order=True))


def _from_databases(stores: Sequence[Store], faults: Faults, bodies: bool) -> _Stored:
    """What all databases hold, sessions by their own names."""
    stored = _Stored()
    for store in stores:
        if EVENTS_TABLE in store.tables:
            events, wrong = read_activity_events(store, bodies=bodies)
            stored.entries.append(events)
            stored.findings.append(wrong)
        if is_go(store):
            tables = read_go(store)
            stood, work = go_statuses(tables), read_work(tables)
            below = faults.below(str(store.path))
            stored.sessions.append(read_go_sessions(tables, stood, path=below))
            stored.entries.extend([go_changes(tables, stood, bodies=bodies), go_entries(tables)])
            stored.findings.extend([tables.findings, go_findings(tables, store.label)])
            stored.work.append(work)
            stored.usage.append(read_usage(tables))
            stored.circumstances.append(circumstances(tables, work))
    return stored


def within_calendar(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame without moments that no Python date can hold."""
    return frame.with_columns(in_calendar(cs.datetime(time_zone="UTC")))


def _note_files(files: Sequence[File], faults: Faults) -> None:
    """Names that are not UTF-8, and what Agent Orchestrator itself put aside as corrupt."""
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
    """The generations that were seen, oldest first."""
    seen = set(sessions.filter("is_readable")["generation"].drop_nulls())
    has_events = any(EVENTS_TABLE in store.tables for store in stores)
    if any(is_go(store) for store in stores):
        seen.add("G3")
    return ", ".join([*sorted(seen), *(["activity events"] if has_events else [])]) or "logs"


def _size_of(records: pl.DataFrame, files: Sequence[File], stores: Sequence[Store]) -> int:
    """Bytes of everything that was read; a file that is gone by now has none."""
    others = (_size(file) for file in files if file.kind in _LOGS)
    return (
        sum(others) + int(records["size_bytes"].sum()) + sum(store.size_bytes for store in stores)
    )


def _size(file: File) -> int:
    try:
        return Path(file.path).stat().st_size
    except OSError:
        return 0

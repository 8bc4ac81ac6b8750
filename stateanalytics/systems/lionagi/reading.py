"""Reading one store of lionagi: recognition, release, and facts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Frames
from stateanalytics.core.joins import pool
from stateanalytics.core.vocabulary import TABLES
from stateanalytics.io.parts import Parts, ReadTable
from stateanalytics.io.sqlite import Store
from stateanalytics.systems.derived import Derived
from stateanalytics.systems.lionagi import findings, frames, schedules, sessions, work
from stateanalytics.systems.lionagi.calls import read_calls
from stateanalytics.systems.lionagi.directories import (
    add_starts,
    add_timeouts,
    find_shows,
    link_runs,
    read_runs,
    read_shows,
    run_findings,
    runs_directory,
    show_findings,
    show_roots,
    stored_folders,
)
from stateanalytics.systems.lionagi.events import (
    OTHER_KINDS,
    AllEvents,
    decisions,
    dispositions,
    refreshed_events,
)
from stateanalytics.systems.lionagi.raw import SYSTEM, Raw, read_raw
from stateanalytics.systems.lionagi.reasons import add_all_reasons
from stateanalytics.systems.lionagi.transitions import add_end_writers, transitions

_NEEDED = ("sessions", "branches", "progressions")

# Newest first: (releases that store so, table, column; None: the table itself).
_FEATURES: tuple[tuple[str, str, str | None], ...] = (
    ("0.36.0", "sessions", "user_label"),
    ("0.35.1 to 0.35.5", "sessions", "ended_at_is_approximate"),
    ("0.34.1 to 0.35.0", "attention_dispositions", None),
    ("0.33.0", "session_controls", "claimed_at"),
    ("0.31.0 to 0.32.0", "sessions", "run_id"),
    ("0.29.1 to 0.30.2", "sessions", "cc_session_id"),
    ("0.29.0", "schedule_runs", "lease_attempts"),
    ("0.28.0", "dispatch_outbox", None),
    ("0.27.2", "sessions", "total_cost_usd"),
    ("0.27.0 to 0.27.1", "session_signals", None),
    ("0.26.15 to 0.26.18", "sessions", "current_phase"),
    ("0.26.7 to 0.26.14", "status_transitions", None),
    ("0.26.2 to 0.26.6", "schedules", None),
    ("0.26.1", "invocations", None),
    ("0.26.0", "sessions", "status"),
)


def is_lionagi(tables: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether these tables are a lionagi store: sessions that refer to progressions.

    Examples
    --------
    >>> is_lionagi({"sessions": ("id",), "users": ("id",)})
    False
    """
    return all(table in tables for table in _NEEDED) and "progression_id" in tables["sessions"]


def generation(tables: Mapping[str, tuple[str, ...]]) -> str:
    """The releases that store so, as text.

    Parameters
    ----------
    tables : mapping of str to tuple of str
        The tables that exist, each with its columns.

    Returns
    -------
    str
        ``lionagi <releases>``: by the newest table or column that is there.

    Examples
    --------
    >>> generation({"sessions": ("id", "status")})
    'lionagi 0.26.0'
    >>> generation({"sessions": ("id", "status", "run_id"), "dispatch_outbox": ()})
    'lionagi 0.31.0 to 0.32.0'
    """
    for releases, table, column in _FEATURES:
        if table in tables and (column is None or column in tables[table]):
            return f"lionagi {releases}"
    return "lionagi before 0.26.0"


def recognises(store: Store) -> bool:
    """Whether this is a store of lionagi."""
    return is_lionagi(store.tables)


@dataclass(frozen=True)
class Kept:
    """What the next read of a store can start from."""

    tables: Mapping[str, ReadTable]
    events: AllEvents
    derived: Derived


def read_uncached(store: Store, *, bodies: bool = False, before: Kept | None = None) -> Parts:
    """The result of `read` for a store that is not read again: tables are freed early."""
    del before
    return read(store, bodies=bodies, keep=False)


def read(
    store: Store, *, bodies: bool = False, before: Kept | None = None, keep: bool = True
) -> Parts:
    """The facts of one lionagi store and of the directories of runs and shows next to it.

    Parameters
    ----------
    store : Store
        An open lionagi store, of any release.
    bodies : bool
        Whether to load the texts of messages and signals too.
    before : Kept, optional
        What an earlier read of the same store kept.
    keep : bool
        Whether to keep what the next read can start from.

    Returns
    -------
    Parts
        Canonical frames; a table that the store does not have gives no rows.
    """
    label = store.label
    derive = Derived(None if before is None else before.derived, keep=keep)
    raw, cell_findings, kept_tables = read_raw(
        store, bodies=bodies, before=None if before is None else before.tables
    )
    unique_tables, id_findings = derive(_with_unique_ids, raw, label)
    raw = {**raw, **unique_tables}
    runs, file_findings = read_runs(store.path, label)
    runs = derive(link_runs, derive.same(runs), raw)
    shows = find_shows(raw, store.path)
    disk = read_shows(shows, raw)
    history = derive(transitions, raw)
    all_events = refreshed_events(
        raw,
        kept_tables if keep else {},
        [derive(kind, raw) for kind in OTHER_KINDS],
        None if before is None else before.events,
    )
    events = all_events.events
    kept = Kept(kept_tables, all_events, derive) if keep else None
    del all_events, kept_tables
    schedule_details = derive(schedules.schedule_details, raw)
    list_findings, json_findings = (
        derive(check, raw, label) for check in (findings.list_findings, findings.json_findings)
    )
    details = {
        frames.SCHEDULES: schedule_details,
        frames.FIRES: derive(schedules.fires, raw),
        frames.DISPOSITIONS: derive(dispositions, raw),
        frames.DECISIONS: derive(decisions, raw),
        frames.RUNS: runs,
        frames.SHOWS_ON_DISK: disk,
    }
    elsewhere = _outside([*shows.values(), *stored_folders(raw)], companions(store.path))
    if not keep:  # the large columns are no longer needed
        lists = raw["progressions"].drop("collection")
        deadlines = raw["messages"].filter(pl.col("deadline").is_not_null())
        raw, unique_tables = {**raw, "messages": deadlines, "progressions": lists}, {}
    entities = _entities(raw, history, events, schedule_details, derive)
    del raw
    entities = derive(_with_ends, entities, runs, history)
    all_findings = [
        cell_findings,
        id_findings,
        file_findings,
        derive(run_findings, runs, entities, label),
        show_findings(disk, label),
        derive(findings.entity_findings, entities, label),
        list_findings,
        findings.message_findings(events, label),
        derive(findings.history_findings, history, entities, label),
        json_findings,
        derive(findings.schedule_findings, schedule_details, label),
    ]
    return Parts(
        system=SYSTEM,
        format=generation(store.tables),
        entities=derive(_with_reasons, entities, label),
        transitions=derive(_canonical, history, schema.TRANSITIONS, label),
        events=derive(_canonical, events, schema.EVENTS, label),
        findings=pool(all_findings, schema.FINDINGS),
        details=Frames(
            {
                **{shape.name: _canonical(rows, shape, label) for shape, rows in details.items()},
                # Contents are read when calls are asked for (ADR-0017), or kept in the cache.
                frames.CALLS.name: cache(partial(read_calls, store.borrowed(), events, label)),
            }
        ),
        kept=kept,
        # With missing ones: a refresh reads them when they appear.
        inputs=elsewhere,
    )


def _with_ends(entities: pl.DataFrame, runs: pl.DataFrame, history: pl.DataFrame) -> pl.DataFrame:
    timed = add_timeouts(add_starts(entities, runs), runs)
    return add_end_writers(timed, history)


def _with_reasons(entities: pl.DataFrame, label: str) -> pl.DataFrame:
    return add_all_reasons(_canonical(entities, schema.ENTITIES, label))


def companions(store_path: Path) -> list[Path]:
    """The directories of runs and shows that are always read with a store."""
    return [runs_directory(store_path), *show_roots(store_path)]


def _outside(folders: Iterable[Path], roots: Iterable[Path]) -> tuple[Path, ...]:
    """The directories that are in none of the roots, with symbolic links followed."""
    known = [os.path.realpath(root) for root in roots]
    return tuple(
        folder
        for folder in dict.fromkeys(folders)
        if not any(Path(os.path.realpath(folder)).is_relative_to(root) for root in known)
    )


def _entities(
    raw: Raw,
    history: pl.DataFrame,
    events: pl.DataFrame,
    details: pl.DataFrame,
    derive: Derived,
) -> pl.DataFrame:
    """All entities, by type, in the order of their tables."""
    with_parents = derive(work.add_plays_as_parents, derive(sessions.sessions, raw), raw)
    rows = [
        sessions.with_chats(_with_last_messages(with_parents, events), events, ["entity_id"]),
        derive(sessions.branches, raw),
        derive(work.shows, raw),
        derive(work.plays, raw),
        derive(work.invocations, raw),
        derive(schedules.schedules, raw, history, details),
        derive(schedules.schedule_runs, raw),
        derive(work.teams, raw),
        derive(work.engine_runs, raw),
        derive(work.dispatches, raw, history),
    ]
    pooled: pl.DataFrame = derive(_pooled, *rows)
    return pooled


def _pooled(*rows: pl.DataFrame) -> pl.DataFrame:
    return pool([schema.ENTITIES.conform(frame) for frame in rows], schema.ENTITIES)


def _with_last_messages(rows: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Sessions with the time of their last message, for which 0.26.0 had no column."""
    if rows["last_message_at"].null_count() < rows.height or events.is_empty():
        return rows
    last = (
        events.filter((pl.col("kind") == "message") & pl.col("entity_id").is_not_null())
        .group_by("entity_id")
        .agg(newest_message_at=pl.col("at").max())
    )
    return (
        rows.join(last, on="entity_id", how="left", maintain_order="left")
        .with_columns(
            last_message_at="newest_message_at",
            last_activity_at=pl.coalesce("newest_message_at", "last_activity_at"),
        )
        .drop("newest_message_at")
    )


def _with_unique_ids(raw: Raw, label: str) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """Tables with repeated or missing ids, without those rows, and a finding for each row."""
    tables: dict[str, pl.DataFrame] = {}
    unusable = []
    for entity_type, table in {**TABLES, "progression": "progressions"}.items():
        rows = raw[table]
        if rows["id"].n_unique() == rows.height and not rows["id"].null_count():
            continue
        first = rows["id"].is_first_distinct() & rows["id"].is_not_null()
        tables[table] = rows.filter(first)
        unusable.append(
            findings.per_entity(
                rows.filter(~first).select(entity_type=pl.lit(entity_type), entity_id="id"),
                label,
                "id.unusable",
                message=pl.when(pl.col("entity_id").is_null())
                .then(pl.lit("a row without an id"))
                .otherwise(pl.lit("a second row with the same id")),
                table=table,
            )
        )
    return tables, pool(unusable, schema.FINDINGS)


def _canonical(frame: pl.DataFrame, shape: schema.Frame, label: str) -> pl.DataFrame:
    """A frame in its canonical shape, with ``source`` and ``system``."""
    return shape.conform(frame.with_columns(source=pl.lit(label), system=pl.lit(SYSTEM)))

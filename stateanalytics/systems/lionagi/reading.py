"""One store of lionagi: is it one, of which release, and its facts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.core.vocabulary import TABLES
from stateanalytics.io.parts import Parts, ReadTable
from stateanalytics.io.sqlite import Store
from stateanalytics.systems.derived import Derived
from stateanalytics.systems.lionagi import frames, schedules, sessions, store_findings, work
from stateanalytics.systems.lionagi.end_writers import add_end_writers
from stateanalytics.systems.lionagi.events import OTHER_KINDS, decisions, dispositions
from stateanalytics.systems.lionagi.events_again import Happened, events_since
from stateanalytics.systems.lionagi.findings import per_entity
from stateanalytics.systems.lionagi.raw import SYSTEM, Raw, read_raw
from stateanalytics.systems.lionagi.reasons import add_all_reasons
from stateanalytics.systems.lionagi.run_directories import (
    add_starts,
    add_timeouts,
    link_runs,
    read_runs,
    run_findings,
    runs_directory,
)
from stateanalytics.systems.lionagi.show_directories import (
    find_shows,
    read_shows,
    show_findings,
    show_roots,
    stored_folders,
)
from stateanalytics.systems.lionagi.transitions import transitions
from stateanalytics.systems.lionagi.work import add_plays_as_parents

NEEDED = ("sessions", "branches", "progressions")

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
    """Do these tables make a lionagi store: sessions that point at progressions.

    Examples
    --------
    >>> is_lionagi({"sessions": ("id",), "users": ("id",)})
    False
    """
    return all(table in tables for table in NEEDED) and "progression_id" in tables["sessions"]


def generation(tables: Mapping[str, tuple[str, ...]]) -> str:
    """The releases whose storage this is, as text.

    Parameters
    ----------
    tables : mapping of str to tuple of str
        The tables that exist, each with its columns.

    Returns
    -------
    str
        ``lionagi <releases>``: by the newest feature of which something is here.

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
    """Is this store lionagi's."""
    return is_lionagi(store.tables)


@dataclass(frozen=True)
class Remembered:
    """What the next read of a store can go on from."""

    tables: Mapping[str, ReadTable]
    happened: Happened
    derived: Derived


def read_once(store: Store, *, bodies: bool = False, before: Remembered | None = None) -> Parts:
    """What `read` gives, with each table let go of as soon as all that follows from it is made."""
    del before
    return read(store, bodies=bodies, keep=False)


def read(
    store: Store, *, bodies: bool = False, before: Remembered | None = None, keep: bool = True
) -> Parts:
    """The facts of one lionagi store and of the run and show directories beside it.

    Parameters
    ----------
    store : Store
        An open lionagi store, of any release.
    bodies : bool
        Whether to load the texts of messages and signals too.
    before : Remembered, optional
        What an earlier read of the same store kept.
    keep : bool
        Whether to keep what the next read goes on from.

    Returns
    -------
    Parts
        Canonical frames; a table that the store does not have gives no rows.
    """
    label = store.label
    derive = Derived(None if before is None else before.derived, keep=keep)
    raw, cells, kept = read_raw(
        store, bodies=bodies, before=None if before is None else before.tables
    )
    kept = kept if keep else {}
    distinct, doubles = derive(_distinct, raw, label)
    raw = {**raw, **distinct}
    runs, run_files = read_runs(store.path, label)
    runs = derive(link_runs, derive.same(runs), raw)
    shows = find_shows(raw, store.path)
    disk = read_shows(shows, raw)
    history = derive(transitions, raw)
    others = [derive(kind, raw) for kind in OTHER_KINDS]
    last = None if before is None else before.happened
    all_happened = events_since(raw, kept, others, last)
    happened = all_happened.events
    remembered = Remembered(kept, all_happened, derive) if keep else None
    del all_happened, others
    details = derive(schedules.schedule_details, raw)
    of_lists = derive(store_findings.list_findings, raw, label)
    of_json = derive(store_findings.json_findings, raw, label)
    details_of = {
        frames.SCHEDULES: details,
        frames.FIRES: derive(schedules.fires, raw),
        frames.DISPOSITIONS: derive(dispositions, raw),
        frames.DECISIONS: derive(decisions, raw),
        frames.RUNS: runs,
        frames.SHOWS_ON_DISK: disk,
    }
    elsewhere = _elsewhere([*shows.values(), *stored_folders(raw)], beside(store.path))
    if not keep:  # these are told by now, and large
        lists = raw["progressions"].drop("collection")
        limits = raw["messages"].filter(pl.col("deadline").is_not_null())
        raw, distinct = {**raw, "messages": limits, "progressions": lists}, {}
    everything = _entities(raw, history, happened, details, derive)
    del raw
    known = derive(_with_ends, everything, runs, history)
    del everything
    findings = [
        cells,
        doubles,
        run_files,
        derive(_findings_of_runs, runs, known, label),
        show_findings(disk, label),
        derive(store_findings.entity_findings, known, label),
        of_lists,
        store_findings.message_findings(happened, label),
        derive(store_findings.history_findings, history, known, label),
        of_json,
        derive(store_findings.schedule_findings, details, label),
    ]
    return Parts(
        system=SYSTEM,
        format=generation(store.tables),
        entities=derive(_with_reasons, known, label),
        transitions=derive(_named, history, schema.TRANSITIONS, label),
        events=derive(_named, happened, schema.EVENTS, label),
        findings=pool(findings, schema.FINDINGS),
        details={shape.name: _named(frame, shape, label) for shape, frame in details_of.items()},
        kept=remembered,
        # Those that are not there, too: what comes to lie there will be read.
        inputs=elsewhere,
    )


def _with_ends(everything: pl.DataFrame, runs: pl.DataFrame, history: pl.DataFrame) -> pl.DataFrame:
    timed = add_timeouts(add_starts(everything, runs), runs)
    return add_end_writers(timed, history)


def _with_reasons(known: pl.DataFrame, label: str) -> pl.DataFrame:
    return add_all_reasons(_named(known, schema.ENTITIES, label))


def _findings_of_runs(runs: pl.DataFrame, known: pl.DataFrame, label: str) -> pl.DataFrame:
    return run_findings(runs, known.filter(pl.col("entity_type") == "session"), label)


def beside(store_path: Path) -> list[Path]:
    """The directories of runs and of shows that are read with a store, whatever it says."""
    return [runs_directory(store_path), *show_roots(store_path)]


def _elsewhere(folders: Iterable[Path], roots: Iterable[Path]) -> tuple[Path, ...]:
    """The directories that lie in none of the roots, by their own place or where a link leads."""
    known = [os.path.realpath(root) for root in roots]
    return tuple(
        folder
        for folder in dict.fromkeys(folders)
        if not any(Path(os.path.realpath(folder)).is_relative_to(root) for root in known)
    )


def _entities(
    raw: Raw,
    history: pl.DataFrame,
    happened: pl.DataFrame,
    details: pl.DataFrame,
    derive: Derived,
) -> pl.DataFrame:
    """All entities, type by type, in the order of their tables."""
    of_sessions = derive(add_plays_as_parents, derive(sessions.sessions, raw), raw)
    frames = [
        sessions.with_chats(_with_last_messages(of_sessions, happened), happened, ["entity_id"]),
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
    everything: pl.DataFrame = derive(_pooled, *frames)
    return everything


def _pooled(*frames: pl.DataFrame) -> pl.DataFrame:
    return pool([schema.ENTITIES.conform(frame) for frame in frames], schema.ENTITIES)


def _with_last_messages(of_sessions: pl.DataFrame, happened: pl.DataFrame) -> pl.DataFrame:
    """Before 0.26.1 there was no column for the last message: the messages themselves tell."""
    if of_sessions["last_message_at"].null_count() < of_sessions.height or happened.is_empty():
        return of_sessions
    last = (
        happened.filter((pl.col("kind") == "message") & pl.col("entity_id").is_not_null())
        .group_by("entity_id")
        .agg(newest_message_at=pl.col("at").max())
    )
    return (
        of_sessions.join(last, on="entity_id", how="left", maintain_order="left")
        .with_columns(
            last_message_at="newest_message_at",
            last_activity_at=pl.coalesce("newest_message_at", "last_activity_at"),
        )
        .drop("newest_message_at")
    )


def _distinct(raw: Raw, label: str) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """Tables without the rows whose ids are not distinct, as a key must be, which are a finding."""
    kept: dict[str, pl.DataFrame] = {}
    findings = []
    for entity_type, table in {**TABLES, "progression": "progressions"}.items():
        rows = raw[table]
        if rows["id"].n_unique() == rows.height and not rows["id"].null_count():
            continue
        first = rows["id"].is_first_distinct() & rows["id"].is_not_null()
        kept[table] = rows.filter(first)
        findings.append(
            per_entity(
                rows.filter(~first).select(entity_type=pl.lit(entity_type), entity_id="id"),
                label,
                "id.unusable",
                message=pl.when(pl.col("entity_id").is_null())
                .then(pl.lit("a row without an id"))
                .otherwise(pl.lit("a second row with the same id")),
                table=table,
            )
        )
    return kept, pool(findings, schema.FINDINGS)


def _named(frame: pl.DataFrame, shape: schema.Frame, label: str) -> pl.DataFrame:
    """A frame in its canonical shape, with the input and the system in every row."""
    return shape.conform(frame.with_columns(source=pl.lit(label), system=pl.lit(SYSTEM)))

"""One store of lionagi: recognition, release, facts of now and of an earlier instant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache, partial
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, Frames, Past, changed_facts, map_frames, unevaluated
from stateanalytics.core.joins import collected, collected_all, collected_each, left_joined, pool
from stateanalytics.core.vocabulary import TABLES
from stateanalytics.core.windows import instant
from stateanalytics.io.findings import all_findings
from stateanalytics.io.parts import Parts, ReadTable
from stateanalytics.io.sqlite import Store
from stateanalytics.systems.history import (
    clocks_of,
    has_begun,
    has_happened,
    sources_seen_later,
    sources_with_later,
    values_at,
)
from stateanalytics.systems.lionagi import directories, findings, frames, schedules, sessions
from stateanalytics.systems.lionagi.events import (
    read_calls,
    read_instructions,
    read_turns,
    refreshed_events,
    resolved_items,
)
from stateanalytics.systems.lionagi.frames import SYSTEM, Raw, generation, read_raw
from stateanalytics.systems.lionagi.schedules import of_schedules, with_runs
from stateanalytics.systems.lionagi.sessions import OF_SESSION, with_chats, with_owners
from stateanalytics.systems.lionagi.transitions import add_all_reasons, add_end_writers, transitions
from stateanalytics.systems.tool_calls import calls_until, turns_until

_NEEDED = ("sessions", "branches", "progressions")


def recognises(store: Store) -> bool:
    """Whether this is a store of lionagi: sessions that refer to progressions."""
    tables = store.tables
    return all(name in tables for name in _NEEDED) and "progression_id" in tables["sessions"]


def read(
    store: Store,
    *,
    bodies: bool = False,
    before: Mapping[str, ReadTable] | None = None,
    keep: bool = True,
) -> Parts:
    """The facts of one lionagi store and of the directories of runs and shows next to it.

    Parameters
    ----------
    store : Store
        An open lionagi store, of any release.
    bodies : bool
        Whether to load the texts of messages and signals too.
    before : mapping of str to ReadTable, optional
        What an earlier read of the same store kept: only changed rows are read.
    keep : bool
        Whether to keep what the next read can start from.

    Returns
    -------
    Parts
        Canonical frames; a table that the store does not have gives no rows.
    """
    label = store.label
    raw, cell_findings, kept = read_raw(store, bodies=bodies, before=before)
    unique_tables, id_findings = _with_unique_ids(raw, label)
    raw = {**raw, **unique_tables}
    sound_tables, usage_findings = _with_sound_usage(raw, label)
    raw = {**raw, **sound_tables}
    raw |= sessions.with_errors(raw)
    runs, file_findings = directories.read_runs(store.path, label)
    runs = directories.link_runs(runs, raw)
    shows = directories.find_shows(raw, store.path)
    disk = directories.read_shows(shows, raw)
    history = transitions(raw)
    events = refreshed_events(store, raw, before, kept)
    kept = {**kept, "events": ReadTable(store.copy, events, cell_findings)}
    schedule_details = schedules.schedule_details(raw)
    list_findings, json_findings = (
        check(raw, label) for check in (findings.list_findings, findings.json_findings)
    )
    details = {
        frames.SCHEDULES: schedule_details,
        frames.FIRES: raw["schedule_runs"].with_columns(schedule_run_id="id"),
        frames.DISPOSITIONS: resolved_items(raw["attention_dispositions"], raw),
        frames.DECISIONS: resolved_items(raw["attention_disposition_history"], raw).rename(
            {"created_at": "at", "sequence": "seq", "new_state": "state"}
        ),
        frames.RUNS: runs,
        frames.SHOWS_ON_DISK: disk,
    }
    elsewhere = _outside(
        [*shows.values(), *directories.stored_folders(raw)], companions(store.path)
    )
    if not keep:  # the large columns are no longer needed
        kept = {}
        lists = raw["progressions"].drop("collection")
        deadlines = raw["messages"].filter(pl.col("deadline").is_not_null())
        raw, unique_tables = {**raw, "messages": deadlines, "progressions": lists}, {}
    entities = _entities(raw, history, events, schedule_details)
    del raw
    entities = directories.add_timeouts(directories.add_starts(entities, runs), runs)
    entities = add_end_writers(entities, history)
    odd = [
        cell_findings,
        id_findings,
        usage_findings,
        file_findings,
        directories.run_findings(runs, entities, label),
        directories.show_findings(disk, label),
        findings.entity_findings(entities, label),
        list_findings,
        findings.message_findings(events, label),
        findings.history_findings(history, entities, label),
        json_findings,
        findings.schedule_findings(schedule_details, label),
    ]
    borrowed = store.borrowed()
    instructions = cache(partial(read_instructions, borrowed, events))
    of_messages = (borrowed, events, label, instructions)
    return Parts(
        system=SYSTEM,
        format=generation(store.tables),
        entities=add_all_reasons(_canonical(entities, schema.ENTITIES, label)),
        transitions=_canonical(history, schema.TRANSITIONS, label),
        events=_canonical(events, schema.EVENTS, label),
        findings=all_findings(*odd),
        details=Frames(
            {
                **{shape.name: _canonical(rows, shape, label) for shape, rows in details.items()},
                # Contents are read when calls are asked for (ADR-0017), or kept in the cache.
                frames.CALLS.name: cache(partial(read_calls, *of_messages)),
                frames.TURNS.name: cache(partial(read_turns, *of_messages)),
            }
        ),
        kept=kept or None,
        # With missing ones: a refresh reads them when they appear.
        inputs=elsewhere,
    )


read_uncached = partial(read, keep=False)
"""The result of `read` for a store that is not read again: tables are freed early."""


def companions(store_path: Path) -> list[Path]:
    """The directories of runs and shows that are always read with a store."""
    return [directories.runs_directory(store_path), *directories.show_roots(store_path)]


def _outside(folders: Iterable[Path], roots: Iterable[Path]) -> tuple[Path, ...]:
    """The directories that are in none of the roots, with symbolic links followed."""
    known = [os.path.realpath(root) for root in roots]
    return tuple(
        folder
        for folder in dict.fromkeys(folders)
        if not any(Path(os.path.realpath(folder)).is_relative_to(root) for root in known)
    )


def _entities(
    raw: Raw, history: pl.DataFrame, events: pl.DataFrame, details: pl.DataFrame
) -> pl.DataFrame:
    """All entities, by type, in the order of their tables."""
    owners = sessions.sessions(raw)
    with_parents = sessions.add_plays_as_parents(owners, raw)

    def owned(rows: pl.DataFrame, entity_type: str) -> pl.DataFrame:
        return with_owners(rows, owners, OF_SESSION[entity_type])

    rows = [
        with_chats(with_parents, events, ["entity_id"]),
        owned(sessions.branches(raw), "branch"),
        sessions.shows(raw),
        owned(sessions.plays(raw), "play"),
        sessions.invocations(raw),
        schedules.schedules(raw, history, details),
        schedules.schedule_runs(raw),
        sessions.teams(raw),
        sessions.engine_runs(raw),
        owned(sessions.dispatches(raw, history), "dispatch"),
    ]
    return pool([schema.ENTITIES.conform(frame) for frame in rows], schema.ENTITIES)


def _with_unique_ids(raw: Raw, label: str) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """Tables with repeated or missing ids, without those rows, and a finding for each row."""
    tables: dict[str, pl.DataFrame] = {}
    unusable = []
    if_missing = pl.when(pl.col("entity_id").is_null()).then(pl.lit("a row without an id"))
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
                message=if_missing.otherwise(pl.lit("a second row with the same id")),
                table=table,
            )
        )
    return tables, all_findings(*unusable)


_USAGE = ("input_tokens", "output_tokens", "total_cost_usd")


def _with_sound_usage(raw: Raw, label: str) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """Tables with impossible tokens or costs, without these values, and a finding for each."""
    tables: dict[str, pl.DataFrame] = {}
    found = []
    for table in ("sessions", "branches"):
        for name in _USAGE:
            rows = tables.get(table, raw[table])
            is_sound = rows[name].is_between(0, 2**62, closed="left")
            # `all` passes over nulls, which are not known.
            if not is_sound.all():
                tables[table] = rows.with_columns(pl.when(is_sound).then(name))
                odd = rows.filter(~is_sound)
                more = {"table": table, "column": name}
                found.append(findings.counted(label, "usage.impossible", odd, "id", **more))
    return tables, all_findings(*found)


def _canonical(frame: pl.DataFrame, shape: schema.Frame, label: str) -> pl.DataFrame:
    """A frame in its canonical shape, with ``source`` and ``system``."""
    return shape.conform(frame.with_columns(source=pl.lit(label), system=pl.lit(SYSTEM)))


_CLOCKS = clocks_of("stateanalytics.systems.lionagi")
_CHECKS = (*_CLOCKS["schedules"],)
_ASSEMBLED = ("session", "branch", "play", "schedule")
_ATTENTION = "attention."
_OVERWRITTEN, _UNCOUNTED, _PLACE = "_is_overwritten", "_is_uncounted", "_place"


def rewind(past: Past, facts: Facts) -> Past:
    """The past with lionagi's schedules, decisions, directories and writers of ends.

    Parameters
    ----------
    past : Past
        As the history that all systems share gives it.
    facts : Facts
        As they are now.

    Returns
    -------
    Past
        What was recorded is rebuilt; the rest is null, or (directories of shows) excluded.
    """
    at, schedules = past.at, facts.detail(frames.SCHEDULES)
    ran_later = schedules.filter(
        pl.any_horizontal(pl.col(*_CHECKS, "last_executed_at") > instant(at))
    )
    changed = {*sources_with_later(facts, at), *ran_later["source"]}
    later = sorted(changed & {*sources_seen_later(facts, at)})
    marks = [past.lost["record"].alias(_OVERWRITTEN), past.lost["n_messages"].alias(_UNCOUNTED)]
    known = past.facts.entities.hstack(marks).with_row_index(_PLACE)
    is_mine = (pl.col("system") == SYSTEM) & pl.col("source").is_in(later)
    mine = _with_parents(known.filter(is_mine), facts.entities, at)
    fires = facts.detail(frames.FIRES)
    rebuilt = _past_schedules(schedules, fires, mine, at)
    rows = add_end_writers(
        _assembled(mine, rebuilt, facts.events, at),
        past.facts.transitions.filter(pl.col("system") == SYSTEM),
    )
    others = known.lazy().filter(~is_mine)
    rows = pl.concat([others, rows.lazy().select(known.columns)]).sort(_PLACE).collect()
    runs = known.lazy().filter(pl.col("entity_type") == "schedule_run")
    is_unchanged = ~pl.col("source").is_in(later)
    began = (
        facts.detail(frames.RUNS)
        .lazy()
        .filter((pl.col("started_at") <= instant(at)).fill_null(value=True))
    )
    details = {
        frames.SCHEDULES: pl.concat(
            [schedules.filter(is_unchanged), frames.SCHEDULES.conform(rebuilt)]
        ),
        frames.FIRES: fires.lazy()
        .join(
            runs.select("source", schedule_run_id="entity_id"),
            on=["source", "schedule_run_id"],
            how="semi",
            maintain_order="left",
        )
        .collect(),
        frames.DISPOSITIONS: _past_decisions(past, facts),
        frames.DECISIONS: facts.detail(frames.DECISIONS).filter(pl.col("at") <= instant(at)),
        frames.RUNS: began.with_columns(**values_at(at, _CLOCKS["runs"])).collect(),
        # Past contents of the directories of shows were not recorded.
        frames.SHOWS_ON_DISK: facts.detail(frames.SHOWS_ON_DISK).filter(is_unchanged),
    }
    kept = dict(unevaluated(past.facts.details))
    kept |= {shape.name: rows for shape, rows in details.items() if shape.name in kept}
    for shape, until in ((frames.CALLS, calls_until), (frames.TURNS, turns_until)):
        if shape.name in kept:
            kept[shape.name] = map_frames(partial(until, at=at), kept[shape.name])
    return Past(
        changed_facts(
            past.facts,
            entities=add_all_reasons(schema.ENTITIES.conform(rows)),
            details=Frames(kept),
        ),
        past.lost.with_columns(record=rows[_OVERWRITTEN], n_messages=rows[_UNCOUNTED]),
    )


def _assembled(
    mine: pl.DataFrame, schedules: pl.DataFrame, events: pl.DataFrame, at: datetime
) -> pl.DataFrame:
    """Entities with what follows from other rows that existed then, as when a store is read."""
    rows, own = mine.lazy(), pl.col("entity_type")
    *typed, others = collected_each(
        [
            *(rows.filter(own == name) for name in _ASSEMBLED),
            rows.filter(~own.is_in(_ASSEMBLED).fill_null(value=False)),
        ]
    )
    by_type = dict(zip(_ASSEMBLED, typed, strict=True))
    sessions = by_type["session"]
    branches = with_owners(by_type["branch"], sessions, OF_SESSION["branch"], "source")
    key = ["source", "entity_id"]
    shown = schedules.lazy().select("source", entity_id="schedule_id", is_lost=_OVERWRITTEN)
    known = by_type["schedule"].lazy().join(shown, on=key, how="left", maintain_order="left")
    is_shown = pl.col("is_lost").is_not_null()
    planned, unplanned = collected_each([known.filter(is_shown), known.filter(~is_shown)])
    assembled = [
        with_chats(sessions, events.filter(has_happened(at), system=SYSTEM), key),
        _with_list_lengths(branches, events, at),
        # The session of a play is written later than its row.
        with_owners(by_type["play"], sessions, ("session_id", *OF_SESSION["play"]), "source"),
        of_schedules(planned, schedules, key).with_columns(pl.col("is_lost").alias(_OVERWRITTEN)),
        unplanned,
    ]
    return pl.concat([others, *(rows[mine.columns] for rows in assembled)])


def _past_schedules(
    schedules: pl.DataFrame, fires: pl.DataFrame, mine: pl.DataFrame, at: datetime
) -> pl.DataFrame:
    """Schedules with the values that follow from their fires; a later plan of the next is lost."""
    key = ["source", "schedule_id"]
    rows = mine.lazy()
    fired = (
        rows.filter(pl.col("entity_type") == "schedule_run")
        .select(
            "source",
            schedule_run_id="entity_id",
            id="entity_id",
            fired_at="started_at",
            status="raw_status",
            status_reason_code="reason_code",
        )
        .join(fires.lazy(), on=["source", "schedule_run_id"], how="inner")
    )
    newest = fired.group_by(key).agg(newest_fire_at=pl.col("fired_at").max())
    entities = rows.filter(pl.col("entity_type") == "schedule").select(
        "source", "created_at", _OVERWRITTEN, "raw_status", schedule_id="entity_id"
    )
    checks = values_at(at, _CLOCKS["schedules"])
    cut = (
        schedules.lazy()
        .join(entities, on=key, how="inner", maintain_order="left")
        .join(newest, on=key, how="left", maintain_order="left")
        .with_columns(
            pl.any_horizontal(_OVERWRITTEN, pl.col(*_CHECKS) > instant(at)).alias(_OVERWRITTEN),
            is_enabled=pl.col("raw_status") == "enabled",
            executed_at="last_executed_at",
            **checks | {"last_fired_at": pl.coalesce(checks["last_fired_at"], "newest_fire_at")},
        )
    )
    # A later fire or check overwrote the plan, and of pruned fires nothing is known.
    is_pruned = (pl.col("executed_at") > instant(at)) & pl.col("last_executed_at").is_null()
    plans, occurred = collected_all(cut, fired)
    return collected(
        with_runs(plans, occurred, *key)
        .lazy()
        .with_columns((pl.col(_OVERWRITTEN) | is_pruned).fill_null(value=False))
        .with_columns(next_fire_at=pl.when(~pl.col(_OVERWRITTEN)).then("next_fire_at"))
    )


def _with_parents(mine: pl.DataFrame, now: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Entities with the show as their parent until the row of their play was written."""
    is_later = {"system": SYSTEM, "entity_type": "play"}
    later_plays = (
        now.lazy()
        .filter(~has_begun(at), **is_later)
        .select(
            "source",
            parent_type="entity_type",
            show_type="parent_type",
            parent_id="entity_id",
            show_id="parent_id",
        )
        .collect()
    )
    key = ["source", "parent_type", "parent_id"]
    if later_plays.is_empty():
        return mine
    return (
        mine.join(later_plays, on=key, how="left", maintain_order="left")
        .with_columns(
            parent_type=pl.coalesce("show_type", "parent_type"),
            parent_id=pl.coalesce("show_id", "parent_id"),
        )
        .drop("show_type", "show_id")
    )


def _with_list_lengths(branches: pl.DataFrame, events: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Branches with their past number of messages: an only branch has its session's.

    Events do not record which of several branches a message is of, so that the number is lost.
    """
    messages = events.lazy().filter(pl.col("at") > instant(at), system=SYSTEM, kind="message")
    later = messages.group_by("source", session_id="entity_id").agg(
        n_later=pl.len().cast(schema.INTEGER)
    )
    is_changed = pl.col("n_later").is_not_null()
    is_only = pl.len().over("source", "session_id") == 1
    joined = left_joined(branches.lazy(), later, on=["source", "session_id"]).with_columns(
        (pl.col(_UNCOUNTED) | (is_changed & ~is_only)).alias(_UNCOUNTED),
        n_messages=pl.when(is_only | ~is_changed).then(
            pl.col("n_messages") - pl.col("n_later").fill_null(0)
        ),
    )
    return collected(joined)


def _past_decisions(past: Past, facts: Facts) -> pl.DataFrame:
    """Decisions of operators that were in force, from the history up to the instant."""
    at, dispositions = past.at, facts.detail(frames.DISPOSITIONS)
    decisions = facts.detail(frames.DECISIONS)
    # Archives from before that frame have only events, which lack the status of the item.
    is_old = ~pl.col("source").is_in(decisions["source"].unique().to_list())
    from_events = (
        facts.events.lazy()
        .filter((pl.col("system") == SYSTEM) & pl.col("kind").str.starts_with(_ATTENTION) & is_old)
        .select(
            *("source", "at", "seq", "entity_type", "entity_id"),
            item_id="name",
            note="detail",
            actor="role",
            state=pl.col("kind").str.strip_prefix(_ATTENTION),
        )
    )
    both = pl.concat([decisions.lazy(), from_events], how="diagonal")
    history = both.sort("at", "seq", nulls_last=True)
    items = ["source", "item_id"]
    decided_later = history.filter(pl.col("at") > instant(at)).select(items).unique()
    before = history.filter(pl.col("at") <= instant(at)).join(decided_later, on=items, how="semi")
    rebuilt = (
        before.group_by(items, maintain_order=True)
        .agg(
            pl.col("entity_type", "entity_id", "note", "actor", "state", "source_status").last(),
            created_at=pl.col("at").first(),
            updated_at=pl.col("at").last(),
        )
        .filter(pl.col("state") != "open")
    )
    # Releases without a history of decisions overwrite them.
    cut = (
        dispositions.lazy()
        .filter((pl.col("created_at") <= instant(at)).fill_null(value=True))
        .join(decided_later, on=items, how="anti", maintain_order="left")
        .with_columns(**values_at(at, _CLOCKS["dispositions"]))
    )
    parts = collected_all(cut, rebuilt)
    return pl.concat([frames.DISPOSITIONS.conform(frame) for frame in parts])

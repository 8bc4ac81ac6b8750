"""From files to canonical frames, of now or as of an earlier instant.

Both are assembled by the same function, the past from what was recorded up to the instant. A
record holds its newest values only. One that was last written by the instant holds what it
held at the instant; for any other, the lines of logs up to the instant give the axes
(`logs.decided_at_instant`), and a moment before the instant stands, with the values that
were written together with it (`CLOCKS`). An archive that existed by the instant describes its
session, until a log has more. Everything else is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, Past, changed_facts
from stateanalytics.core.joins import left_joined
from stateanalytics.errors import SourceError
from stateanalytics.io.files import size_of
from stateanalytics.io.findings import all_findings
from stateanalytics.io.parts import Parts
from stateanalytics.io.sqlite import Store, open_store
from stateanalytics.systems.agent_orchestrator import (
    columns,
    frames,
    go_sessions,
    go_work,
    logs,
    mapping,
    meaning,
)
from stateanalytics.systems.agent_orchestrator.findings import (
    go_findings,
    log_findings,
    record_findings,
)
from stateanalytics.systems.agent_orchestrator.go_work import read_calls, read_words
from stateanalytics.systems.agent_orchestrator.places import (
    RECORDS,
    SYSTEM,
    Faults,
    File,
    Kind,
    files_of,
    opened_of,
)
from stateanalytics.systems.agent_orchestrator.sessions import (
    read_payloads,
    read_records,
    read_sessions,
    shaped,
    time_findings,
)
from stateanalytics.systems.history import clocks_of, values_at
from stateanalytics.systems.omissions import findings_of_database
from stateanalytics.systems.situations import add_axes, add_reasons
from stateanalytics.systems.tool_calls import calls_until


class Known(NamedTuple):
    """What one input records, all of it up to the same instant.

    Attributes
    ----------
    records : polars.DataFrame
        Records with their axes, ``entity_id`` and ``is_current``, and without meaning.
    events : polars.DataFrame
        Canonical events.
    decisions, work, usage, circumstances : polars.DataFrame
        As `frames` has them.
    """

    records: pl.DataFrame
    events: pl.DataFrame
    decisions: pl.DataFrame
    work: pl.DataFrame
    usage: pl.DataFrame
    circumstances: pl.DataFrame


def assemble(known: Known, label: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Sessions and entities of one input, from what it records up to an instant.

    Parameters
    ----------
    known : Known
        Everything that is read, or what of it was recorded up to an earlier instant.
    label : str
        The input.

    Returns
    -------
    sessions : polars.DataFrame
        The records with their meaning, in the shape of `frames.SESSIONS`.
    entities : polars.DataFrame
        Sessions and pieces of work, in the shape of `schema.ENTITIES`.
    """
    clocks = (known.events, known.work, known.usage)
    records = go_sessions.add_silence(known.records, clocks).with_columns(**_of_axes())
    sessions = go_sessions.with_circumstances(records, known.circumstances)
    sessions = meaning.add_meaning(meaning.add_kill_events(sessions, known.decisions))
    entities = session_entities(sessions, known.events, label, known.usage)
    work = go_work.work_entities(known.work, entities)
    return shaped(sessions, label), pl.concat([go_work.with_turns(entities, known.work), work])


def _of_axes() -> dict[str, pl.Expr]:
    """What follows from the axes of a record; the Go rewrite has none."""
    priority = mapping.of_legacy_status("priority", "legacy_status")
    return {
        "is_ao_terminal": pl.when(_IS_GO).then("is_ao_terminal").otherwise(mapping.is_terminal()),
        "event_priority": pl.when(~_IS_GO).then(priority),
        "primary_reason": mapping.primary_reason(),
    }


_SEEN_AT = r"activity_signal=valid\b.*\bactivity=(?:active|ready|idle|blocked|waiting_input) at=\S+"
_OBSERVED_ENDS = ("runtime_lost", "agent_process_exited", "probe_failure", "auto_cleanup")


def proven_at(sessions: pl.DataFrame, entities: pl.DataFrame) -> pl.Series:
    """Newest moment that each record proves, in `frames.SESSIONS` and its entity.

    Notes
    -----
    One per record, so that one clock that ran ahead is one moment and has no company. When
    the file was changed proves nothing: that of a copy is of whoever copied it.
    """
    moments = [name for name in _MOMENTS if name != "modified_at"]
    by_record = sessions.select(pl.max_horizontal(moments).alias("at"))
    by_entity = entities.select(pl.max_horizontal("ended_at", "last_activity_at").alias("at"))
    return pl.concat([by_record, by_entity])["at"].drop_nulls()


def session_entities(
    sessions: pl.DataFrame, events: pl.DataFrame, label: str, usage: pl.DataFrame
) -> pl.DataFrame:
    """Entities of an input with their reasons, in the shape of `schema.ENTITIES`.

    Parameters
    ----------
    sessions : polars.DataFrame
        Records with the columns of `add_meaning`, as now or at an instant.
    events : polars.DataFrame
        Canonical events of the input up to that instant.
    label : str
        The input.
    usage : polars.DataFrame
        `frames.USAGE` of the input up to that instant.

    Notes
    -----
    One row per session, in the order of the records: its current record, and its signs of
    life. The end of a session that was archived without one is the moment it was archived,
    of the Go rewrite that of its last write, and counts as approximate. ``raw_status`` is the
    one word that Agent Orchestrator shows, and the stored one where there are no axes.
    """
    current = sessions.filter("is_current")
    messages = meaning.first_reasons(current, key=["entity_id"]).select("entity_id", "message")
    details = (_signs_of_life(events), messages, go_work.summed(usage))
    current = left_joined(current, *details, on="entity_id")
    is_over = pl.col("outcome").is_not_null() & (pl.col("outcome") != "unknown")
    declared = pl.when(
        (pl.col("session_reason") == "research_complete") & (pl.col("report_state") == "completed")
    ).then("report_at")
    stored_end = pl.coalesce("terminated_at", "completed_at", declared)
    # The Go rewrite writes a row for the last time when it is over, or after that.
    last_written = pl.when(pl.col("generation") == "G3").then("last_transition_at")
    ended_at = pl.coalesce(stored_end, "archived_at", last_written)
    # To extract a group takes four times as long.
    seen = pl.col("evidence_text").str.extract_all(_SEEN_AT).list.first()
    seen_at = columns.stored_moment(seen.str.split(" at=").list.last())
    entities = add_axes(_with_parents(current)).select(
        pl.col("^recorded_.*$", "entity_id", "parent_id", "kind", "name", "project", "agent"),
        pl.col("n_messages", "last_message_at", "created_at", "n_children", *go_work.SUMS),
        entity_type=pl.lit("session"),
        parent_type=pl.when(pl.col("parent_id").is_not_null()).then(pl.lit("session")),
        session_id="entity_id",
        directory="worktree",
        native_session_id="agent_session_id",
        model=pl.coalesce("model", "used_model"),
        provider="used_provider",
        # Its chats list no messages of tools.
        n_chat_messages="n_messages",
        recorded_by=pl.lit("live"),
        raw_status=pl.when(columns.flag("is_synthesized"))
        .then("stored_status")
        .otherwise("legacy_status"),
        started_at=pl.coalesce("started_at", "created_at"),
        # A session that is alive again still holds its old end: only what is over has one.
        ended_at=pl.when(is_over).then(ended_at),
        updated_at="last_transition_at",
        last_activity_at=pl.coalesce(
            pl.max_horizontal("signed_at", "used_at", "report_at", "activity_last_at", seen_at),
            "started_at",
            "created_at",
        ),
        is_end_approximate=pl.when(is_over & ended_at.is_not_null()).then(stored_end.is_null()),
        end_written_by=pl.when(is_over & stored_end.is_not_null()).then(
            columns.first_true(
                (pl.col("session_reason").is_in(_OBSERVED_ENDS), "observer"), default="executor"
            )
        ),
        reason_code=meaning.first_code(),
        reason_message="message",
        evidence=columns.references(
            tool_result="evidence_text", url="pr_url", message="report_note"
        ),
    )
    return add_reasons(
        logs.canonical(entities, schema.ENTITIES, label),
        meaning.recorded_reasons(shaped(sessions, label)),
    )


def _signs_of_life(events: pl.DataFrame) -> pl.DataFrame:
    is_message = pl.col("kind") == "message"
    n_messages = is_message.sum().cast(pl.Int64)
    return (
        events.filter(pl.col("entity_id").is_not_null())
        .group_by("entity_id")
        .agg(
            signed_at=pl.col("at").filter("is_activity").max(),
            last_message_at=pl.col("at").filter(is_message).max(),
            n_messages=pl.when(n_messages > 0).then(n_messages),
        )
    )


def _with_parents(current: pl.DataFrame) -> pl.DataFrame:
    """Add the orchestrator of each worker: none is stored, so only that of its project counts."""
    is_boss = pl.col("kind") == "orchestrator"
    bosses = (
        current.filter(is_boss & pl.col("project").is_not_null())
        .unique("project", keep="none")
        .select("project", _boss="entity_id")
    )
    workers = current.filter(~is_boss).group_by("project").agg(_n=pl.len().cast(pl.Int64))
    linked = current.join(bosses, on="project", how="left", maintain_order="left").join(
        workers, on="project", how="left", maintain_order="left"
    )
    is_the_boss = is_boss & (pl.col("_boss") == pl.col("entity_id"))
    return linked.with_columns(
        parent_id=pl.when(~is_boss).then("_boss"),
        n_children=pl.when(is_the_boss).then(pl.col("_n").fill_null(0)),
    )


# --- as of an earlier instant ------------------------------------------------------------

_KEY = ["source", "entity_id"]
_IS_GO = pl.col("generation") == "G3"
_MOMENTS = [name for name, dtype in frames.SESSIONS.dtypes.items() if dtype == schema.MOMENT]
# The file's own moment is of whoever copied it, and these two are of the beginning.
_WRITES = [name for name in _MOMENTS if name not in ("modified_at", "created_at", "started_at")]
CLOCKS = clocks_of(__package__)["sessions"]
"""The clock of each column of `frames.SESSIONS`, for a record that was written again since."""
_IDENTITY = ("name", "agent", "model")


def rewind(past: Past, facts: Facts) -> Past:
    """Sessions and records at the instant, in place of those of the shared history.

    Parameters
    ----------
    past : Past
        All rows at the instant, as `history.facts_at` has them.
    facts : Facts
        Present facts.

    Returns
    -------
    Past
        Entities of this system, assembled as the present ones are from what was recorded up
        to the instant; its own frames cut likewise; and in ``lost`` what no record and no
        log holds.
    """
    at = past.at
    is_mine = (pl.col("system") == SYSTEM) & (pl.col("entity_type") == "session")
    known = past.facts.entities.filter(is_mine).select(*_KEY, *_IDENTITY)
    decisions = facts.detail(frames.DECISIONS)
    # An input that proves nothing later was looked at by the instant, and is unchanged since.
    is_unchanged = pl.col("source").is_in(
        facts.sources.filter(pl.col("last_at") <= at)["source"].implode()
    )
    stored = facts.detail(frames.SESSIONS).with_columns(_is_unchanged=is_unchanged)
    chosen = _chosen(stored.join(known, on=_KEY, how="inner"), decisions, at)
    rewound = _rewound(chosen.filter(~pl.col("_is_written")), _reports(past.facts.events), at)
    current = pl.concat([chosen.filter("_is_written"), rewound], how="diagonal_relaxed")
    older = _older(stored, current, at)
    details = {
        frames.DECISIONS.name: decisions.filter(pl.col("at") <= at),
        frames.WORK.name: go_work.work_at(facts.detail(frames.WORK), at),
        **{
            frame.name: facts.detail(frame).filter(pl.col("at") <= at)
            for frame in (frames.USAGE, frames.CIRCUMSTANCES)
        },
    }
    records = (
        pl.concat([current, older], how="diagonal_relaxed")
        .with_columns(pl.when(pl.col(name) <= at).then(name).alias(name) for name in _MOMENTS)
        .drop(name for name, clock in CLOCKS.items() if clock == "assembled")
    )
    own_events = past.facts.events.filter(pl.col("system") == SYSTEM)
    every = Known(records, own_events, *details.values())
    assembled = [
        assemble(Known(*(frame.filter(pl.col("source") == source) for frame in every)), source)
        for source in records["source"].unique(maintain_order=True)
    ]
    sessions = [frames.SESSIONS.empty(), *(rows for rows, _ in assembled)]
    own = pl.concat([past.facts.entities.clear(), *(rows for _, rows in assembled)])
    details[frames.SESSIONS.name] = pl.concat(sessions)
    details[frames.CALLS.name] = calls_until(facts.detail(frames.CALLS), at)
    return replace(
        past,
        facts=changed_facts(
            past.facts,
            entities=_replaced(past.facts.entities, own),
            details={**past.facts.details, **details},
        ),
        lost=_lost(past, current),
    )


def _written_at() -> pl.Expr:
    """When a record was last written; null for one without axes, which keeps no such moment."""
    last = pl.max_horizontal(_WRITES)
    has_moment = pl.any_horizontal(pl.col("last_transition_at", "archived_at").is_not_null())
    return pl.when(has_moment).then(last)


def _is_written_by(at: datetime) -> pl.Expr:
    """Was a record last written by the instant, by its own moments or that of its file."""
    last = pl.max_horizontal(_WRITES)
    by_file = (pl.col("modified_at") <= at) & (last.is_null() | (last <= at))
    return ((_written_at() <= at) | by_file).fill_null(value=False)


def _chosen(records: pl.DataFrame, decisions: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """The record that describes each session at the instant, with the axes of its logs.

    That is the current one where it was not written since, else an earlier one (an archive,
    an original of the migration) that no log and no moment outdates, else the current one,
    to be rewound.
    """
    decided = logs.decided_at_instant(decisions, at)
    logged = decided.rename({name: f"log_{name}" for name in decided.columns if name not in _KEY})
    past_moments = pl.max_horizontal(pl.when(pl.col(name) <= at).then(name) for name in _WRITES)
    last_line = decisions.group_by(_KEY).agg(_last_line_at=pl.col("at").max())
    # The status of a row of the Go rewrite depends on its pull requests too.
    is_changed_since = _IS_GO & (pl.col("_last_line_at") > at).fill_null(value=False)
    current_at = past_moments.filter("is_current").first().over(_KEY)
    known_at = pl.max_horizontal(current_at, "log_decided_at")
    ranked = (
        records.filter("is_readable")
        .pipe(left_joined, last_line, logged, on=_KEY)
        .with_columns(
            _is_written=pl.col("_is_unchanged") | (_is_written_by(at) & ~is_changed_since),
            _written_at=_written_at(),
        )
        .with_columns(
            _rank=pl.when(pl.col("is_current") & pl.col("_is_written"))
            .then(0)
            .when(pl.col("_is_written") & (pl.col("_written_at") >= known_at).fill_null(value=True))
            .then(1)
            .when("is_current")
            .then(2)
            .otherwise(3)
        )
        .sort(
            "_rank", "_written_at", descending=[False, True], nulls_last=True, maintain_order=True
        )
    )
    first = ranked.unique(_KEY, keep="first", maintain_order=True)
    return first.with_columns(is_current=pl.lit(value=True))


def _older(records: pl.DataFrame, sessions: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Further records that existed at the instant, and were not written since."""
    existing = records.filter(pl.col("_is_unchanged") | _is_written_by(at))
    others = existing.join(sessions, on=["source", "path"], how="anti")
    return others.with_columns(is_current=pl.lit(value=False))


def _reports(events: pl.DataFrame) -> pl.DataFrame:
    """Last accepted report of each session, by the log."""
    accepted = events.filter(
        (pl.col("system") == SYSTEM)
        & pl.col("kind").str.starts_with("report.")
        & pl.col("is_activity")
    )
    return (
        accepted.sort("at", "seq", nulls_last=True)
        .group_by(_KEY, maintain_order=True)
        .agg(
            log_report_at=pl.col("at").last(),
            log_report_state=pl.col("name").last(),
            log_report_note=pl.col("detail").last(),
        )
    )


def _rewound(records: pl.DataFrame, reports: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Records that were written since, with the values of logs and of their own older moments."""
    has_words = pl.col("log_session_state").is_not_null()
    # A moment after the instant was not stored yet, nor were the values written with it; what
    # each write replaces is lost.
    cut = records.join(reports, on=_KEY, how="left", maintain_order="left").with_columns(
        **values_at(at, CLOCKS, is_written=pl.lit(value=False)),
        _is_report_lost=(pl.col("report_at") > at) & pl.col("log_report_at").is_null(),
        _is_contradicted=(
            pl.col("log_session_state") != pl.coalesce("log_next_previous", "session_state")
        ).fill_null(value=False),
    )
    report = ("report_at", "report_state", "report_note")
    return cut.with_columns(
        *(
            pl.when(pl.col("report_at").is_null()).then(f"log_{name}").otherwise(name).alias(name)
            for name in report
        ),
        is_synthesized=~_IS_GO & ~has_words,
        last_transition_at="log_decided_at",
        **{
            name: pl.coalesce(
                name, pl.when(pl.col("session_state") == state).then("log_state_since")
            )
            for name, state in (("terminated_at", "terminated"), ("completed_at", "done"))
        },
        activity_last_at=pl.coalesce("activity_last_at", pl.when(_IS_GO).then("log_seen_since")),
    ).with_columns(
        terminated_at=pl.when(~_IS_GO)
        .then("terminated_at")
        .when(pl.col("legacy_status").is_in(mapping.GO_ENDS))
        .then("log_over_since"),
        is_ao_terminal=pl.col("legacy_status").is_in(mapping.GO_ENDS),
    )


def _replaced(entities: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """Entities with those of this system replaced by their records at the instant."""
    key = list(schema.ENTITY_KEY)
    places = entities.select(key).with_row_index("_place")
    both = pl.concat([entities.join(own, on=key, how="anti"), own])
    return both.join(places, on=key, how="left", nulls_equal=True).sort("_place").drop("_place")


def _lost(past: Past, sessions: pl.DataFrame) -> pl.DataFrame:
    """What is lost of this system's rows: all of a record that nothing describes, or nothing.

    Where the next line records another previous state, or the record holds what no line
    recorded, somebody wrote in between and did not log it: before or after is not known.
    """
    is_named = pl.any_horizontal(pl.col("log_session_state", "log_stored_status").is_not_null())
    is_known = pl.col("_is_written") | (is_named & ~pl.col("_is_contradicted"))
    known = sessions.select(
        *_KEY,
        system=pl.lit(SYSTEM),
        entity_type=pl.lit("session"),
        **dict.fromkeys(("status", "updated", "reason", "record"), ~is_known),
        silence=~is_known & pl.col("report_at").is_null(),
        report=pl.col("_is_report_lost").fill_null(value=False),
    )
    key = list(schema.ENTITY_KEY)
    shared = past.facts.entities.select(key).hstack(past.lost)
    return shared.update(known, on=key).drop(key)


# --- from files and databases ------------------------------------------------------------

_LOGS = (*logs.READERS, Kind.FEEDBACK)
_DATABASES = (Kind.EVENTS_DATABASE, Kind.GO_DATABASE)


def read(
    path: Path, *, label: str, bodies: bool = False, on_error: str = "skip", before: object = None
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
            part, findings=all_findings(*lost, part.findings), opened=tuple(opened_of(files))
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
    lines = logs.read_logs([file for file in files if file.kind in _LOGS], faults, bodies=bodies)
    _note_files(files, faults)
    all_records = pl.concat([read_sessions(records), *stored["sessions"]], how="diagonal_relaxed")
    # Only the Go rewrite keeps when an agent was last seen, which ones signal, and its own end.
    moments = dict.fromkeys(("activity_last_at", "first_signal_at"), schema.MOMENT)
    words = dict.fromkeys(("has_hooks", "is_ao_terminal"), schema.YES_NO)
    sessions = logs.add_entities(columns.with_defaults(all_records, {**moments, **words}))
    entries = logs.link(
        pl.concat([lines, *stored["entries"]], how="diagonal_relaxed").with_columns(
            _order=pl.int_range(pl.len())
        ),
        sessions,
    )
    decided = logs.decisions(entries, label)
    work, usage, known, called = (
        _linked(stored[frame.name], frame, sessions, label)
        for frame in (frames.WORK, frames.USAGE, frames.CIRCUMSTANCES, frames.CALLS)
    )
    own_events = logs.canonical(logs.events(entries), schema.EVENTS, label)
    sessions, entities = assemble(Known(sessions, own_events, decided, work, usage, known), label)
    changes = logs.canonical(logs.transitions(entries), schema.TRANSITIONS, label)
    rows = (sessions, decided, work, usage, known, called)
    details = {frame.name: own for frame, own in zip(frames.FRAMES, rows, strict=True)}
    findings = [
        faults.findings(),
        *stored["findings"],
        time_findings(records, label),
        record_findings(sessions, label),
        log_findings(entries, sessions, label),
    ]
    is_locked = any(file.kind == Kind.LOCK for file in files)
    proofs = [proven_at(sessions, entities), usage["at"].drop_nulls()]
    return Parts(
        system=SYSTEM,
        format=_format(sessions, stores),
        entities=entities,
        transitions=pl.concat([changes, go_work.work_transitions(work)]),
        events=own_events,
        findings=all_findings(*findings),
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
    try:
        return open_store(file.path, label=faults.label, salvage=faults.on_error == "salvage")
    except SourceError as error:
        faults.note("file.unreadable", file.path, message=error.problem)
        return None


def _from_databases(
    stores: Sequence[Store], faults: Faults, bodies: bool
) -> Mapping[str, list[pl.DataFrame]]:
    """Sessions, entries, findings and other frames of all databases, sessions by their names."""
    stored: Mapping[str, list[pl.DataFrame]] = defaultdict(list)
    for store in stores:
        if logs.EVENTS_TABLE in store.tables:
            entries, findings = logs.read_activity_events(store, bodies=bodies)
            stored["entries"].append(entries)
            stored["findings"].append(findings)
        if go_sessions.is_go(store):
            tables, of_cells = go_sessions.read_go(store)
            statuses, work = go_sessions.go_statuses(tables), go_work.read_work(tables)
            path = faults.below(str(store.path))
            changes = go_sessions.go_changes(tables, statuses, bodies=bodies)
            stored["sessions"].append(go_sessions.read_go_sessions(tables, statuses, path=path))
            stored["entries"].extend([changes, go_work.go_entries(tables)])
            stored["findings"].extend([of_cells, go_findings(tables, store.label)])
            words = ["entity_type", "entity_id"]
            stored[frames.WORK.name].append(work.join(read_words(store), on=words, how="left"))
            stored[frames.USAGE.name].append(go_work.read_usage(tables))
            stored[frames.CIRCUMSTANCES.name].append(go_sessions.circumstances(tables, work))
            stored[frames.CALLS.name].append(read_calls(store, tables))
    return stored


def _linked(
    pieces: Sequence[pl.DataFrame], shape: schema.Frame, sessions: pl.DataFrame, label: str
) -> pl.DataFrame:
    """One frame of all databases, with the entity in place of the name of each session."""
    rows = pl.concat([shape.empty(), *pieces], how="diagonal_relaxed")
    named = sessions.filter(pl.col("generation") == "G3").unique("session_id")
    of_names = named.select("session_id", _entity_id="entity_id")
    column = "session_id" if "session_id" in shape.dtypes else "entity_id"
    linked = (
        columns.with_defaults(rows.with_columns(source=pl.lit(label)), {"session_id": schema.TEXT})
        .join(of_names, on="session_id", how="left", maintain_order="left")
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
            session_id = file.name.partition(".json")[0]
            faults.note("record.corrupt_copy", file.path, session_id=session_id)


def _format(sessions: pl.DataFrame, stores: Sequence[Store]) -> str:
    """Generations of the records and databases, oldest first."""
    seen = set(sessions.filter("is_readable")["generation"].drop_nulls())
    has_events = any(logs.EVENTS_TABLE in store.tables for store in stores)
    if any(go_sessions.is_go(store) for store in stores):
        seen.add("G3")
    return ", ".join([*sorted(seen), *(["activity events"] if has_events else [])]) or "logs"


def _size_of(records: pl.DataFrame, files: Sequence[File], stores: Sequence[Store]) -> int:
    """Bytes of everything that was read; a file that vanished has none."""
    n_bytes = size_of(file.path for file in files if file.kind in _LOGS)
    return n_bytes + int(records["size_bytes"].sum()) + sum(store.size_bytes for store in stores)

"""Past values of lionagi's own frames: schedules, decisions, directories, writers of ends."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, Frames, Past, changed_facts, map_frames, unevaluated
from stateanalytics.systems.history import sources_seen_later, sources_with_later
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.raw import SYSTEM
from stateanalytics.systems.lionagi.reasons import add_all_reasons
from stateanalytics.systems.lionagi.schedules import cron_cadences, last_sign_at, summarize_runs
from stateanalytics.systems.lionagi.sessions import with_chats
from stateanalytics.systems.lionagi.transitions import add_end_writers
from stateanalytics.systems.tool_calls import calls_until

_CHECKS = ("last_fired_at", "last_evaluated_at", "last_healthy_poll_at")
_FROM_SESSION = {
    "play": ("session_id", "invocation_id", "run_id", "project", "agent"),
    # The row of a branch may be written a moment before that of its session.
    "branch": ("invocation_id", "run_id", "project", "kind", "recorded_by"),
}
"""The columns of plays and branches that come from their session."""
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
    ran_later = schedules.filter(pl.any_horizontal(pl.col(*_CHECKS, "last_executed_at") > at))
    changed = {*sources_with_later(facts, at), *ran_later["source"]}
    later = sorted(changed & {*sources_seen_later(facts, at)})
    known = past.facts.entities.with_columns(past.lost["record"].alias(_OVERWRITTEN))
    fires = facts.detail(frames.FIRES)
    rebuilt = _past_schedules(schedules, fires, known, at).filter(pl.col("source").is_in(later))
    rows = _with_parts(_with_schedules(known, rebuilt), later)
    rows = _with_list_lengths(_with_links(rows, facts.entities), facts.events, at)
    rows = _with_ends(_with_past_chats(rows, facts.events, at), past, later)
    runs = known.filter(pl.col("entity_type") == "schedule_run")
    is_unchanged = ~pl.col("source").is_in(later)
    details = {
        frames.SCHEDULES: pl.concat(
            [schedules.filter(is_unchanged), frames.SCHEDULES.conform(rebuilt)]
        ),
        frames.FIRES: fires.join(
            runs.select("source", schedule_run_id="entity_id"),
            on=["source", "schedule_run_id"],
            how="semi",
            maintain_order="left",
        ),
        frames.DISPOSITIONS: _past_decisions(past, facts),
        frames.DECISIONS: facts.detail(frames.DECISIONS).filter(pl.col("at") <= at),
        frames.RUNS: _past_runs(facts.detail(frames.RUNS), at),
        # Past contents of the directories of shows were not recorded.
        frames.SHOWS_ON_DISK: facts.detail(frames.SHOWS_ON_DISK).filter(is_unchanged),
    }
    kept = dict(unevaluated(past.facts.details))
    kept |= {shape.name: rows for shape, rows in details.items() if shape.name in kept}
    if frames.CALLS.name in kept:
        until = partial(calls_until, at=at)
        kept[frames.CALLS.name] = map_frames(until, kept[frames.CALLS.name])
    return Past(
        changed_facts(
            past.facts,
            entities=add_all_reasons(schema.ENTITIES.conform(rows)),
            details=Frames(kept),
        ),
        past.lost.with_columns(
            record=rows[_OVERWRITTEN], n_messages=rows[_UNCOUNTED] | past.lost["n_messages"]
        ),
    )


def _past_schedules(
    schedules: pl.DataFrame, fires: pl.DataFrame, known: pl.DataFrame, at: datetime
) -> pl.DataFrame:
    """Schedules with the values that follow from their fires; a later plan of the next is lost."""
    mine = known.filter(pl.col("system") == SYSTEM)
    runs = mine.filter(pl.col("entity_type") == "schedule_run").select(
        "source",
        schedule_run_id="entity_id",
        id="entity_id",
        fired_at="started_at",
        status="raw_status",
        status_reason_code="reason_code",
    )
    fired = runs.join(fires, on=["source", "schedule_run_id"], how="inner")
    key = ["source", "schedule_id"]
    counts = summarize_runs(fired, *key)
    newest = fired.group_by(key).agg(newest_fire_at=pl.col("fired_at").max())
    entities = mine.filter(pl.col("entity_type") == "schedule").select(
        "source", "created_at", _OVERWRITTEN, "raw_status", schedule_id="entity_id"
    )
    rows = schedules.with_columns(executed_at="last_executed_at").drop(
        [name for name in counts.columns if name not in key]
    )
    joined = rows.join(entities, on=key, how="inner", maintain_order="left")
    for frame in (counts, newest):
        joined = joined.join(frame, on=key, how="left", maintain_order="left")
    checks = {name: pl.when(pl.col(name) <= at).then(name) for name in _CHECKS}
    fired_at = pl.coalesce(checks["last_fired_at"], "newest_fire_at")
    # A later fire or check overwrote the plan, and of pruned fires nothing is known.
    is_pruned = (pl.col("executed_at") > at) & pl.col("last_executed_at").is_null()
    is_overwritten = pl.any_horizontal(_OVERWRITTEN, pl.col(*_CHECKS) > at, is_pruned)
    is_overwritten = is_overwritten.fill_null(value=False)
    numbers = ("n_runs", "n_running", "n_missed", "n_failed_in_row")
    rebuilt = joined.with_columns(
        is_overwritten.alias(_OVERWRITTEN),
        is_enabled=pl.col("raw_status") == "enabled",
        next_fire_at=pl.when(~is_overwritten).then("next_fire_at"),
        **{**checks, "last_fired_at": fired_at},
        **{name: pl.col(name).fill_null(0).cast(schema.INTEGER) for name in numbers},
    )
    reference_at = pl.coalesce(last_sign_at(), "last_fired_at", "created_at")
    cadences = cron_cadences(rebuilt.select("cron_expr", "timezone", at=reference_at))
    is_cron = pl.col("trigger_type") == "cron"
    return rebuilt.with_columns(cadence_s=pl.when(is_cron).then(cadences).otherwise("cadence_s"))


def _with_schedules(known: pl.DataFrame, rebuilt: pl.DataFrame) -> pl.DataFrame:
    """Entities with the past signs of life, cadence and plan of schedules."""
    past_values = rebuilt.select(
        "source",
        entity_id="schedule_id",
        entity_type=pl.lit("schedule"),
        system=pl.lit(SYSTEM),
        is_lost=_OVERWRITTEN,
        past_cadence_s="cadence_s",
        past_n_running="n_running",
        past_last_sign_at=last_sign_at(),
        past_due_at="next_fire_at",
        fired_at="last_fired_at",
    )
    joined = known.join(past_values, on=schema.ENTITY_KEY, how="left", maintain_order="left")
    is_rebuilt = pl.col("is_lost").is_not_null()
    names = ("cadence_s", "n_running", "last_sign_at", "due_at", "last_activity_at")
    return joined.with_columns(
        past_last_activity_at=pl.coalesce("fired_at", "updated_at", "created_at")
    ).with_columns(
        *(pl.when(is_rebuilt).then(f"past_{name}").otherwise(name).alias(name) for name in names),
        (pl.col(_OVERWRITTEN) | pl.col("is_lost").fill_null(value=False)).alias(_OVERWRITTEN),
    )


def _with_parts(rows: pl.DataFrame, later: list[str]) -> pl.DataFrame:
    """Entities with the number of plays that a show had; that of a team is lost with its row."""
    plays = (
        rows.filter((pl.col("entity_type") == "play") & (pl.col("parent_type") == "show"))
        .group_by("source", "system", entity_type="parent_type", entity_id="parent_id")
        .agg(n_plays=pl.len().cast(schema.INTEGER))
    )
    is_mine = (pl.col("system") == SYSTEM) & pl.col("source").is_in(later)
    is_show, is_team = (
        is_mine & (pl.col("entity_type") == name).fill_null(value=False)
        for name in ("show", "team")
    )
    return rows.join(plays, on=schema.ENTITY_KEY, how="left", maintain_order="left").with_columns(
        n_children=pl.when(is_show)
        .then(pl.col("n_plays").fill_null(0))
        .when(is_team & pl.col(_OVERWRITTEN))
        .then(None)
        .otherwise("n_children")
    )


def _with_links(rows: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """Entities without values of sessions that began later, and without later plays as parents."""
    existing = rows.filter(pl.col("system") == SYSTEM).select("source", "entity_type", "entity_id")
    sessions = existing.filter(pl.col("entity_type") == "session").select(
        "source", session_id="entity_id", has_session=pl.lit(value=True)
    )
    is_play = pl.col("entity_type") == "play"
    later_plays = (
        now.filter((pl.col("system") == SYSTEM) & is_play)
        .join(existing, on=existing.columns, how="anti")
        .select(
            "source",
            "system",
            parent_type="entity_type",
            parent_id="entity_id",
            show_type="parent_type",
            show_id="parent_id",
        )
    )
    joined = rows.join(sessions, on=["source", "session_id"], how="left", maintain_order="left")
    named = joined.join(
        later_plays,
        on=["source", "system", "parent_type", "parent_id"],
        how="left",
        maintain_order="left",
    )
    is_mine = (pl.col("system") == SYSTEM).fill_null(value=False)
    is_early = is_mine & pl.col("has_session").is_null()
    for entity_type, columns in _FROM_SESSION.items():
        is_cleared = is_early & (pl.col("entity_type") == entity_type).fill_null(value=False)
        named = named.with_columns(pl.when(~is_cleared).then(pl.col(columns)))
    return named.with_columns(
        # Before the row of the play was written, the show was the parent.
        parent_type=pl.coalesce("show_type", "parent_type"),
        parent_id=pl.coalesce("show_id", "parent_id"),
    )


def _with_list_lengths(rows: pl.DataFrame, events: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Entities with the past number of messages of branches: an only branch has its session's.

    Events do not record which of several branches a message is of, so that the number is lost.
    """
    is_branch = (pl.col("system") == SYSTEM) & (pl.col("entity_type") == "branch")
    messages = events.filter((pl.col("kind") == "message") & (pl.col("at") > at))
    later = messages.group_by("source", "system", session_id="entity_id").agg(
        n_later=pl.len().cast(schema.INTEGER)
    )
    joined = rows.join(
        later, on=["source", "system", "session_id"], how="left", maintain_order="left"
    )
    n_branches = is_branch.sum().over("source", "system", "session_id")
    is_changed = is_branch & pl.col("n_later").is_not_null()
    return joined.with_columns(
        (is_changed & (n_branches > 1)).fill_null(value=False).alias(_UNCOUNTED),
        n_messages=pl.when(is_changed & (n_branches > 1))
        .then(None)
        .when(is_changed)
        .then(pl.col("n_messages") - pl.col("n_later"))
        .otherwise("n_messages"),
    )


def _with_past_chats(rows: pl.DataFrame, events: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Sessions with the prompts and answers that they had."""
    messages = events.filter((pl.col("system") == SYSTEM) & (pl.col("at") <= at))
    counted = with_chats(rows, messages, ["source", "entity_id"])
    is_mine = (pl.col("system") == SYSTEM) & (pl.col("entity_type") == "session")
    names = ("n_turns", "n_chat_messages")
    return rows.with_columns(
        pl.when(is_mine).then(counted[name]).otherwise(name).alias(name) for name in names
    )


def _with_ends(rows: pl.DataFrame, past: Past, later: list[str]) -> pl.DataFrame:
    """Entities with the writer of the end that they had."""
    placed = rows.with_row_index(_PLACE)
    is_mine = (pl.col("system") == SYSTEM) & pl.col("source").is_in(later)
    history = past.facts.transitions
    with_writers = [
        add_end_writers(frame, history.filter(pl.col("source") == source))
        for (source, *_), frame in placed.filter(is_mine)
        .partition_by("source", as_dict=True)
        .items()
    ]
    others = placed.filter(~is_mine)
    return pl.concat([others, *(frame.select(others.columns) for frame in with_writers)]).sort(
        _PLACE
    )


def _past_decisions(past: Past, facts: Facts) -> pl.DataFrame:
    """Decisions of operators that were in force, from the history up to the instant."""
    at, dispositions = past.at, facts.detail(frames.DISPOSITIONS)
    decisions = facts.detail(frames.DECISIONS)
    # Archives from before that frame have only events, which lack the status of the item.
    is_old = ~pl.col("source").is_in(decisions["source"].unique().implode())
    from_events = facts.events.filter(
        (pl.col("system") == SYSTEM) & pl.col("kind").str.starts_with(_ATTENTION) & is_old
    ).select(
        *("source", "at", "seq", "entity_type", "entity_id"),
        item_id="name",
        note="detail",
        actor="role",
        state=pl.col("kind").str.strip_prefix(_ATTENTION),
    )
    history = pl.concat([decisions, from_events], how="diagonal").sort("at", "seq", nulls_last=True)
    items = ["source", "item_id"]
    decided_later = history.filter(pl.col("at") > at).select(items).unique()
    before = history.filter(pl.col("at") <= at).join(decided_later, on=items, how="semi")
    rebuilt = (
        before.group_by(items, maintain_order=True)
        .agg(
            pl.col("entity_type", "entity_id", "note", "actor", "state", "source_status").last(),
            created_at=pl.col("at").first(),
            updated_at=pl.col("at").last(),
        )
        .filter(pl.col("state") != "open")
    )
    kept = dispositions.filter((pl.col("created_at") <= at).fill_null(value=True)).join(
        decided_later, on=items, how="anti", maintain_order="left"
    )
    # Releases without a history of decisions overwrite them.
    is_overwritten = (pl.col("updated_at") > at).fill_null(value=False)
    lost = ("state", "note", "actor", "source_status", "updated_at", "expires_at")
    cut = kept.with_columns(pl.when(~is_overwritten).then(name).alias(name) for name in lost)
    return pl.concat([frames.DISPOSITIONS.conform(frame) for frame in (cut, rebuilt)])


def _past_runs(runs: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Run directories of runs that had begun; what was written into them since is lost."""
    is_over = (pl.col("ended_at") <= at).fill_null(value=False)
    lost = ("status", "derived_status", "ended_at", "n_signals_dropped")
    began = runs.filter((pl.col("started_at") <= at).fill_null(value=True))
    return began.with_columns(
        pl.when(pl.col("ended_at").is_null() | is_over).then(name).alias(name) for name in lost
    )

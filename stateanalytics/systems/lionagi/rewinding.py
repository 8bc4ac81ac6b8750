"""What lionagi's own frames say of an earlier instant: schedules, decisions, directories."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, changed_facts
from stateanalytics.systems.history import Past, sources_seen_later, sources_with_later
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.end_writers import add_end_writers
from stateanalytics.systems.lionagi.raw import SYSTEM
from stateanalytics.systems.lionagi.reasons import add_all_reasons
from stateanalytics.systems.lionagi.schedules import cron_cadences, last_sign_at, of_runs
from stateanalytics.systems.lionagi.sessions import with_chats

_LOOKS = ("last_fired_at", "last_evaluated_at", "last_healthy_poll_at")
_OF_SESSION = {
    "play": ("session_id", "invocation_id", "run_id", "project", "agent"),
    # The row of a branch may be written a moment before that of its session.
    "branch": ("invocation_id", "run_id", "project", "kind", "recorded_by"),
}
"""The columns that the session of a play or a branch tells."""
_ATTENTION = "attention."
_WRITTEN, _UNCOUNTED, _PLACE = "_is_written", "_is_uncounted", "_place"


def rewind(past: Past, facts: Facts) -> Past:
    """The past with lionagi's schedules, decisions, directories and writers of ends.

    Parameters
    ----------
    past : Past
        As the shared history tells it.
    facts : Facts
        As they are now.

    Returns
    -------
    Past
        What was recorded is rebuilt; what was not is null, or (what directories said) gone.
    """
    at, schedules = past.at, facts.detail(frames.SCHEDULES)
    ran_later = schedules.filter(pl.any_horizontal(pl.col(*_LOOKS, "last_executed_at") > at))
    seen_later = {*sources_seen_later(facts, at)}
    later = sorted({*sources_with_later(facts, at), *ran_later["source"]} & seen_later)
    known = past.facts.entities.with_columns(past.lost["record"].alias(_WRITTEN))
    fires = facts.detail(frames.FIRES)
    of_then = _schedules_then(schedules, fires, known, at).filter(pl.col("source").is_in(later))
    linked = _with_links(_with_parts(_with_schedules(known, of_then), later), facts.entities)
    counted = _with_chats_then(_with_lists(linked, facts.events, at), facts.events, at)
    rows = _with_ends(counted, past, later)
    disk = facts.detail(frames.SHOWS_ON_DISK)
    runs = known.filter(pl.col("entity_type") == "schedule_run")
    details = {
        frames.SCHEDULES: pl.concat(
            [
                schedules.filter(~pl.col("source").is_in(later)),
                frames.SCHEDULES.conform(of_then),
            ]
        ),
        frames.FIRES: _of_those(fires, runs, "schedule_run_id"),
        frames.DISPOSITIONS: _decisions_then(past, facts),
        frames.DECISIONS: facts.detail(frames.DECISIONS).filter(pl.col("at") <= at),
        frames.RUNS: _directories_then(facts.detail(frames.RUNS), at),
        # Nobody recorded what directories said then.
        frames.SHOWS_ON_DISK: disk.filter(~pl.col("source").is_in(later)),
    }
    filled = {shape.name: frame for shape, frame in details.items() if shape.name in facts.details}
    return Past(
        changed_facts(
            past.facts,
            entities=add_all_reasons(schema.ENTITIES.conform(rows)),
            details={**past.facts.details, **filled},
        ),
        past.lost.with_columns(
            record=rows[_WRITTEN], n_messages=rows[_UNCOUNTED] | past.lost["n_messages"]
        ),
    )


def _of_those(details: pl.DataFrame, entities: pl.DataFrame, key: str) -> pl.DataFrame:
    """The rows of a detail frame whose entities were there."""
    there = entities.select("source", pl.col("entity_id").alias(key))
    return details.join(there, on=["source", key], how="semi", maintain_order="left")


def _schedules_then(
    schedules: pl.DataFrame, fires: pl.DataFrame, known: pl.DataFrame, at: datetime
) -> pl.DataFrame:
    """Schedules with what their fires up to then tell; the plan of the next one is lost."""
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
    told = of_runs(fired, *key)
    newest = fired.group_by(key).agg(newest_fire_at=pl.col("fired_at").max())
    of_rows = mine.filter(pl.col("entity_type") == "schedule").select(
        "source", "created_at", _WRITTEN, "raw_status", schedule_id="entity_id"
    )
    rows = schedules.with_columns(executed_at="last_executed_at").drop(
        [name for name in told.columns if name not in key]
    )
    joined = rows.join(of_rows, on=key, how="inner", maintain_order="left")
    for frame in (told, newest):
        joined = joined.join(frame, on=key, how="left", maintain_order="left")
    looked = {name: pl.when(pl.col(name) <= at).then(name) for name in _LOOKS}
    fired_at = pl.coalesce(looked["last_fired_at"], "newest_fire_at")
    # A fire or a look that came later wrote over the plan, and pruned fires tell nothing.
    is_pruned = (pl.col("executed_at") > at) & pl.col("last_executed_at").is_null()
    is_written = pl.any_horizontal(_WRITTEN, pl.col(*_LOOKS) > at, is_pruned)
    counts = ("n_runs", "n_running", "n_missed", "n_failed_in_row")
    then = joined.with_columns(
        is_written.fill_null(value=False).alias(_WRITTEN),
        is_enabled=pl.col("raw_status") == "enabled",
        next_fire_at=pl.when(~is_written.fill_null(value=False)).then("next_fire_at"),
        **{**looked, "last_fired_at": fired_at},
        **{name: pl.col(name).fill_null(0).cast(schema.INTEGER) for name in counts},
    )
    since = pl.coalesce(last_sign_at(), "last_fired_at", "created_at")
    rhythm = cron_cadences(then.select("cron_expr", "timezone", at=since))
    is_cron = pl.col("trigger_type") == "cron"
    return then.with_columns(cadence_s=pl.when(is_cron).then(rhythm).otherwise("cadence_s"))


def _with_schedules(known: pl.DataFrame, of_then: pl.DataFrame) -> pl.DataFrame:
    """Entities whose schedules have the signs of life, the rhythm and the plan of then."""
    told = of_then.select(
        "source",
        entity_id="schedule_id",
        entity_type=pl.lit("schedule"),
        system=pl.lit(SYSTEM),
        is_lost=_WRITTEN,
        then_cadence_s="cadence_s",
        then_n_running="n_running",
        then_last_sign_at=last_sign_at(),
        then_due_at="next_fire_at",
        then_fired_at="last_fired_at",
    )
    joined = known.join(told, on=schema.ENTITY_KEY, how="left", maintain_order="left")
    is_told = pl.col("is_lost").is_not_null()
    names = ("cadence_s", "n_running", "last_sign_at", "due_at")
    alive = pl.coalesce("then_fired_at", "updated_at", "created_at")
    return joined.with_columns(
        *(pl.when(is_told).then(f"then_{name}").otherwise(name).alias(name) for name in names),
        pl.when(is_told).then(alive).otherwise("last_activity_at").alias("last_activity_at"),
        (pl.col(_WRITTEN) | pl.col("is_lost").fill_null(value=False)).alias(_WRITTEN),
    )


def _with_parts(rows: pl.DataFrame, later: list[str]) -> pl.DataFrame:
    """Shows have the plays that were there; how many members a team had is lost with its row."""
    plays = (
        rows.filter((pl.col("entity_type") == "play") & (pl.col("parent_type") == "show"))
        .group_by("source", "system", entity_type="parent_type", entity_id="parent_id")
        .agg(n_plays=pl.len().cast(schema.INTEGER))
    )
    is_mine = (pl.col("system") == SYSTEM) & pl.col("source").is_in(later)
    of_type = {
        name: is_mine & (pl.col("entity_type") == name).fill_null(value=False)
        for name in ("show", "team")
    }
    return rows.join(plays, on=schema.ENTITY_KEY, how="left", maintain_order="left").with_columns(
        n_children=pl.when(of_type["show"])
        .then(pl.col("n_plays").fill_null(0))
        .when(of_type["team"] & pl.col(_WRITTEN))
        .then(None)
        .otherwise("n_children")
    )


def _with_links(rows: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """Nothing of a session that began later in its play or branch, and no later play as parent."""
    there = rows.filter(pl.col("system") == SYSTEM).select("source", "entity_type", "entity_id")
    sessions = there.filter(pl.col("entity_type") == "session").select(
        "source", session_id="entity_id", has_session=pl.lit(value=True)
    )
    is_play = pl.col("entity_type") == "play"
    later_plays = (
        now.filter((pl.col("system") == SYSTEM) & is_play)
        .join(there, on=there.columns, how="anti")
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
    is_early = {
        entity_type: is_mine
        & (pl.col("entity_type") == entity_type).fill_null(value=False)
        & pl.col("has_session").is_null()
        for entity_type in _OF_SESSION
    }
    kept = {
        name: ~pl.any_horizontal(is_early[t] for t in _OF_SESSION if name in _OF_SESSION[t])
        for name in dict.fromkeys(sum(_OF_SESSION.values(), ()))
    }
    return named.with_columns(
        *(pl.when(is_kept).then(name).alias(name) for name, is_kept in kept.items()),
        # Before its play was written, what is of it stood below the show.
        parent_type=pl.coalesce("show_type", "parent_type"),
        parent_id=pl.coalesce("show_id", "parent_id"),
    )


def _with_lists(rows: pl.DataFrame, events: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Branches with the messages of then: an only branch has those of its session.

    Of several branches events do not say who said what, so that the number is lost.
    """
    is_branch = (pl.col("system") == SYSTEM) & (pl.col("entity_type") == "branch")
    said = events.filter((pl.col("kind") == "message") & (pl.col("at") > at))
    later = said.group_by("source", "system", session_id="entity_id").agg(
        n_later=pl.len().cast(schema.INTEGER)
    )
    joined = rows.join(
        later, on=["source", "system", "session_id"], how="left", maintain_order="left"
    )
    n_branches = is_branch.sum().over("source", "system", "session_id")
    is_behind = is_branch & pl.col("n_later").is_not_null()
    return joined.with_columns(
        (is_behind & (n_branches > 1)).fill_null(value=False).alias(_UNCOUNTED),
        n_messages=pl.when(is_behind & (n_branches > 1))
        .then(None)
        .when(is_behind)
        .then(pl.col("n_messages") - pl.col("n_later"))
        .otherwise("n_messages"),
    )


def _with_chats_then(rows: pl.DataFrame, events: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Sessions with their prompts and answers of then."""
    said = events.filter((pl.col("system") == SYSTEM) & (pl.col("at") <= at))
    counted = with_chats(rows, said, ["source", "entity_id"])
    is_mine = (pl.col("system") == SYSTEM) & (pl.col("entity_type") == "session")
    names = ("n_turns", "n_chat_messages")
    return rows.with_columns(
        pl.when(is_mine).then(counted[name]).otherwise(name).alias(name) for name in names
    )


def _with_ends(rows: pl.DataFrame, past: Past, later: list[str]) -> pl.DataFrame:
    """Entities with who wrote the end that they had then."""
    placed = rows.with_row_index(_PLACE)
    is_mine = (pl.col("system") == SYSTEM) & pl.col("source").is_in(later)
    history = past.facts.transitions
    told = [
        add_end_writers(frame, history.filter(pl.col("source") == source))
        for (source, *_), frame in placed.filter(is_mine)
        .partition_by("source", as_dict=True)
        .items()
    ]
    others = placed.filter(~is_mine)
    return pl.concat([others, *(frame.select(others.columns) for frame in told)]).sort(_PLACE)


def _decisions_then(past: Past, facts: Facts) -> pl.DataFrame:
    """What operators had decided: the last word on each item, from the history up to then."""
    at, decisions = past.at, facts.detail(frames.DISPOSITIONS)
    words = facts.detail(frames.DECISIONS)
    # Archives of before that frame have the events alone, which do not tell the item's status.
    is_old = ~pl.col("source").is_in(words["source"].unique().implode())
    told = facts.events.filter(
        (pl.col("system") == SYSTEM) & pl.col("kind").str.starts_with(_ATTENTION) & is_old
    ).select(
        *("source", "at", "seq", "entity_type", "entity_id"),
        item_id="name",
        note="detail",
        actor="role",
        state=pl.col("kind").str.strip_prefix(_ATTENTION),
    )
    said = pl.concat([words, told], how="diagonal").sort("at", "seq", nulls_last=True)
    items = ["source", "item_id"]
    spoken_later = said.filter(pl.col("at") > at).select(items).unique()
    before = said.filter(pl.col("at") <= at).join(spoken_later, on=items, how="semi")
    rebuilt = (
        before.group_by(items, maintain_order=True)
        .agg(
            pl.col("entity_type", "entity_id", "note", "actor", "state", "source_status").last(),
            created_at=pl.col("at").first(),
            updated_at=pl.col("at").last(),
        )
        .filter(pl.col("state") != "open")
    )
    kept = decisions.filter((pl.col("created_at") <= at).fill_null(value=True)).join(
        spoken_later, on=items, how="anti", maintain_order="left"
    )
    # Releases without a history of decisions write them over.
    is_written = (pl.col("updated_at") > at).fill_null(value=False)
    lost = ("state", "note", "actor", "source_status", "updated_at", "expires_at")
    cut = kept.with_columns(pl.when(~is_written).then(name).alias(name) for name in lost)
    return pl.concat([frames.DISPOSITIONS.conform(frame) for frame in (cut, rebuilt)])


def _directories_then(runs: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Run directories that had begun; what was written into them since is lost."""
    is_over = (pl.col("ended_at") <= at).fill_null(value=False)
    lost = ("status", "derived_status", "ended_at", "n_signals_dropped")
    began = runs.filter((pl.col("started_at") <= at).fill_null(value=True))
    return began.with_columns(
        pl.when(pl.col("ended_at").is_null() | is_over).then(name).alias(name) for name in lost
    )

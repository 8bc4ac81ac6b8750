"""Invocations, shows, plays, teams, engine runs and dispatches, with their parents."""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.lionagi.raw import Raw
from stateanalytics.systems.lionagi.sessions import json_list, reason


def add_plays_as_parents(sessions: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """Sessions with the play (or show) for which they worked as their parent.

    It is the play with their ``session_id``; else the play, or at least the show, of the
    names in their own row.
    """
    plays = raw["plays"].select("show_id", "session_id", play_id="id", show_play_name="name")
    linked = plays.filter(pl.col("session_id").is_not_null()).select(
        entity_id="session_id", play_type=pl.lit("play"), play_id="play_id"
    )
    named = (
        raw["sessions"]
        .filter(pl.col("show_topic").is_not_null())
        .select("show_topic", "show_play_name", entity_id="id")
        .join(
            raw["shows"].select(show_id="id", show_topic="topic"),
            on="show_topic",
            how="inner",
            maintain_order="left",
        )
        .join(
            plays.drop("session_id"),
            on=["show_id", "show_play_name"],
            how="left",
            maintain_order="left",
        )
        .select(
            "entity_id",
            play_type=pl.when(pl.col("play_id").is_null())
            .then(pl.lit("show"))
            .otherwise(pl.lit("play")),
            play_id=pl.coalesce("play_id", "show_id"),
        )
    )
    parents = pl.concat([linked, named]).unique("entity_id", keep="first", maintain_order=True)
    if parents.is_empty():
        return sessions
    return (
        sessions.join(parents, on="entity_id", how="left", maintain_order="left")
        .with_columns(
            parent_type=pl.coalesce("play_type", "parent_type"),
            parent_id=pl.coalesce("play_id", "parent_id"),
        )
        .drop("play_type", "play_id")
    )


def invocations(raw: Raw) -> pl.DataFrame:
    """Invocations, one row each: requests that started sessions, or should have.

    ``n_children`` is the larger of lionagi's own count and the number of sessions in the
    store, so that pruning does not turn a request with work into one without.
    """
    counted = raw["sessions"].group_by("invocation_id").agg(n_stored=pl.len().cast(schema.INTEGER))
    fires = (
        raw["schedule_runs"]
        .filter(pl.col("invocation_id").is_not_null())
        .unique("invocation_id", keep="first", maintain_order=True)
        .select("invocation_id", schedule_run_id="id")
    )
    rows = (
        raw["invocations"]
        .join(counted, left_on="id", right_on="invocation_id", how="left", maintain_order="left")
        .join(fires, left_on="id", right_on="invocation_id", how="left", maintain_order="left")
    )
    return rows.select(
        pl.col("created_at", "started_at", "ended_at", "updated_at"),
        entity_type=pl.lit("invocation"),
        entity_id="id",
        parent_type=pl.when(pl.col("schedule_run_id").is_not_null()).then(pl.lit("schedule_run")),
        parent_id="schedule_run_id",
        invocation_id="id",
        kind=pl.col("node_metadata").str.json_path_match("$.action_kind"),
        name="skill",
        playbook="skill",
        recorded_by=pl.lit("live"),
        raw_status="status",
        last_activity_at=pl.coalesce("updated_at", "started_at"),
        n_children=pl.max_horizontal(pl.col("session_count"), pl.col("n_stored").fill_null(0)),
        **reason(),
    )


def shows(raw: Raw) -> pl.DataFrame:
    """Shows, one row each: orchestrations of plays, as they were when they were imported."""
    counted = raw["plays"].group_by("show_id").agg(n_children=pl.len().cast(schema.INTEGER))
    rows = raw["shows"].join(
        counted, left_on="id", right_on="show_id", how="left", maintain_order="left"
    )
    return rows.select(
        entity_type=pl.lit("show"),
        entity_id="id",
        name="topic",
        raw_status="status",
        created_at="created_at",
        started_at="created_at",
        updated_at="updated_at",
        last_activity_at=pl.coalesce("updated_at", "created_at"),
        n_children=pl.col("n_children").fill_null(0),
        **reason(),
    )


def plays(raw: Raw) -> pl.DataFrame:
    """Plays of shows, one row each; project, agent and invocation are those of their session."""
    owners = _sessions_of(raw["plays"], raw).select(
        pl.col("invocation_id", "project", "agent_name", "run_id"),
        session_id="id",
    )
    rows = raw["plays"].join(owners, on="session_id", how="left", maintain_order="left")
    return rows.select(
        pl.col("session_id", "invocation_id", "run_id", "name", "project", "playbook"),
        pl.col("attempt", "created_at", "started_at", "ended_at", "updated_at", "exit_code"),
        pl.col("depends_on"),
        entity_type=pl.lit("play"),
        entity_id="id",
        parent_type=pl.when(pl.col("show_id").is_not_null()).then(pl.lit("show")),
        parent_id="show_id",
        agent="agent_name",
        raw_status="status",
        last_activity_at=pl.coalesce("updated_at", "started_at"),
        **reason("reason_codes", second_message="gate_feedback"),
        stored_health="health",
        stored_delivery="delivery",
        stored_reason_codes="reason_codes",
    )


def teams(raw: Raw) -> pl.DataFrame:
    """Teams, one row each, with the time of the last message between members."""
    messages = (
        raw["team_messages"]
        .group_by("team_id")
        .agg(last_message_at=pl.col("created_at").max(), n_messages=pl.len().cast(schema.INTEGER))
    )
    rows = raw["teams"].join(
        messages, left_on="id", right_on="team_id", how="left", maintain_order="left"
    )
    play_id, show_id = (pl.coalesce(name, f"metadata_{name}") for name in ("play_id", "show_id"))
    return rows.select(
        pl.col("name", "created_at", "updated_at", "last_message_at"),
        entity_type=pl.lit("team"),
        entity_id="id",
        parent_type=pl.when(play_id.is_not_null())
        .then(pl.lit("play"))
        .when(show_id.is_not_null())
        .then(pl.lit("show")),
        parent_id=pl.coalesce(play_id, show_id),
        # A team has a row only where its file was imported.
        recorded_by=pl.lit("imported"),
        raw_status="status",
        started_at="created_at",
        last_activity_at=pl.coalesce("last_message_at", "updated_at", "created_at"),
        n_messages=pl.col("n_messages").fill_null(0),
        n_children="member_count",
        **reason(),
    )


def engine_runs(raw: Raw) -> pl.DataFrame:
    """Runs of `li engine`, one row each; they have no stored reasons and no history."""
    return raw["engine_runs"].select(
        pl.col("invocation_id", "kind", "started_at", "ended_at"),
        entity_type=pl.lit("engine_run"),
        entity_id="id",
        parent_type=pl.when(pl.col("parent_session_id").is_not_null())
        .then(pl.lit("session"))
        .when(pl.col("invocation_id").is_not_null())
        .then(pl.lit("invocation")),
        parent_id=pl.coalesce("parent_session_id", "invocation_id"),
        session_id=pl.coalesce("session_id", "signal_session_id"),
        recorded_by=pl.lit("live"),
        raw_status="status",
        last_activity_at="started_at",
        reason_message=pl.col("error").replace("", None),
    )


def dispatches(raw: Raw, transitions: pl.DataFrame) -> pl.DataFrame:
    """Notices to be delivered, one row each; their reasons are in their history."""
    owners = _sessions_of(raw["dispatch_outbox"], raw).select("invocation_id", session_id="id")
    rows = (
        raw["dispatch_outbox"]
        .join(owners, on="session_id", how="left", maintain_order="left")
        .join(
            last_reasons(transitions, "dispatch"),
            left_on=["id", "status"],
            right_on=["entity_id", "raw_status"],
            how="left",
            maintain_order="left",
        )
    )
    return rows.select(
        pl.col("session_id", "invocation_id", "kind", "created_at", "updated_at", "reason_code"),
        entity_type=pl.lit("dispatch"),
        entity_id="id",
        parent_type=pl.when(pl.col("session_id").is_not_null())
        .then(pl.lit("session"))
        .when(pl.col("schedule_run_id").is_not_null())
        .then(pl.lit("schedule_run")),
        parent_id=pl.coalesce("session_id", "schedule_run_id"),
        name="deliver_to",
        recorded_by=pl.lit("live"),
        raw_status="status",
        attempt=pl.when(pl.col("attempt") > 0).then("attempt"),
        started_at="created_at",
        last_activity_at=pl.coalesce("updated_at", "created_at"),
        reason_message=pl.coalesce(pl.col("last_error").replace("", None), "message"),
        evidence=json_list("evidence"),
    )


def last_reasons(transitions: pl.DataFrame, entity_type: str) -> pl.DataFrame:
    """Reason of each entity of a type for its status, from the last transition into it."""
    return (
        transitions.filter(pl.col("entity_type") == entity_type)
        .group_by("entity_id", "status")
        .agg(pl.col("reason_code", "message", "evidence").last())
        .rename({"status": "raw_status"})
    )


def _sessions_of(rows: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """The sessions that some rows refer to: few, even where a store has a million."""
    return raw["sessions"].join(rows, left_on="id", right_on="session_id", how="semi")

"""Invocations, shows, plays, teams, engine runs and dispatches, with their parents."""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.lionagi.raw import Raw
from stateanalytics.systems.lionagi.sessions import json_list, reason


def played_sessions(raw: Raw) -> pl.DataFrame:
    """Sessions that worked for a play or a show, and which.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables, as `raw.read_raw` gives them.

    Returns
    -------
    polars.DataFrame, shape (n_played, 3)
        ``entity_id`` (a session, once), ``play_type`` and ``play_id``: the play that links
        it; else the play, or at least the show, of the names that the session carries.
    """
    plays = raw["plays"].select("show_id", "session_id", play_id="id", show_play_name="name")
    shows = raw["shows"].select(show_id="id", show_topic="topic")
    linked = plays.filter(pl.col("session_id").is_not_null()).select(
        entity_id="session_id", play_type=pl.lit("play"), play_id="play_id"
    )
    named = (
        raw["sessions"]
        .filter(pl.col("show_topic").is_not_null())
        .select("show_topic", "show_play_name", entity_id="id")
        .join(shows, on="show_topic", how="inner", maintain_order="left")
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
    return pl.concat([linked, named]).unique("entity_id", keep="first", maintain_order=True)


def add_plays_as_parents(sessions: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """Make the play (or show) a session worked for its direct parent."""
    played = played_sessions(raw)
    if played.is_empty():
        return sessions
    return (
        sessions.join(played, on="entity_id", how="left", maintain_order="left")
        .with_columns(
            parent_type=pl.coalesce("play_type", "parent_type"),
            parent_id=pl.coalesce("play_id", "parent_id"),
        )
        .drop("play_type", "play_id")
    )


def invocations(raw: Raw) -> pl.DataFrame:
    """One row an invocation: a request that made sessions, or was meant to.

    ``n_children`` is the larger of the count that lionagi kept and of the sessions that
    are here, so that pruning does not turn a request with work into one without.
    """
    counted = raw["sessions"].group_by("invocation_id").agg(n_here=pl.len().cast(schema.INTEGER))
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
        n_children=pl.max_horizontal(pl.col("session_count"), pl.col("n_here").fill_null(0)),
        **reason(),
    )


def shows(raw: Raw) -> pl.DataFrame:
    """One row a show: an orchestration of plays, as it was when it was imported."""
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
    """One row a play of a show; kind, agent and cause are those of its session."""
    whose = _sessions_of(raw["plays"], raw).select(
        pl.col("invocation_id", "project", "agent_name", "run_id"),
        session_id="id",
    )
    rows = raw["plays"].join(whose, on="session_id", how="left", maintain_order="left")
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
        **{
            **reason("reason_codes"),
            "reason_message": pl.coalesce(
                pl.col("status_reason_summary").replace("", None), "gate_feedback"
            ),
        },
        stored_health="health",
        stored_delivery="delivery",
        stored_reason_codes="reason_codes",
    )


def teams(raw: Raw) -> pl.DataFrame:
    """One row a team, with the last message that its members exchanged."""
    spoken = (
        raw["team_messages"]
        .group_by("team_id")
        .agg(last_message_at=pl.col("created_at").max(), n_messages=pl.len().cast(schema.INTEGER))
    )
    rows = raw["teams"].join(
        spoken, left_on="id", right_on="team_id", how="left", maintain_order="left"
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
        # Team rows exist only where somebody imported the team's file.
        recorded_by=pl.lit("imported"),
        raw_status="status",
        started_at="created_at",
        last_activity_at=pl.coalesce("last_message_at", "updated_at", "created_at"),
        n_messages=pl.col("n_messages").fill_null(0),
        n_children="member_count",
        **reason(),
    )


def engine_runs(raw: Raw) -> pl.DataFrame:
    """One row a run of `li engine`; it keeps no reasons and no history."""
    session_id = pl.coalesce("session_id", "signal_session_id")
    invocation_id = pl.col("invocation_id")
    return raw["engine_runs"].select(
        pl.col("invocation_id", "kind", "started_at", "ended_at"),
        entity_type=pl.lit("engine_run"),
        entity_id="id",
        parent_type=pl.when(pl.col("parent_session_id").is_not_null())
        .then(pl.lit("session"))
        .when(invocation_id.is_not_null())
        .then(pl.lit("invocation")),
        parent_id=pl.coalesce("parent_session_id", "invocation_id"),
        session_id=session_id,
        recorded_by=pl.lit("live"),
        raw_status="status",
        last_activity_at="started_at",
        reason_message=pl.col("error").replace("", None),
    )


def dispatches(raw: Raw, transitions: pl.DataFrame) -> pl.DataFrame:
    """One row a notice that had to be delivered; its reason is in its history."""
    whose = _sessions_of(raw["dispatch_outbox"], raw).select("invocation_id", session_id="id")
    rows = (
        raw["dispatch_outbox"]
        .join(whose, on="session_id", how="left", maintain_order="left")
        .join(
            last_reasons(transitions, "dispatch"),
            left_on=["id", "status"],
            right_on=["entity_id", "raw_status"],
            how="left",
            maintain_order="left",
        )
    )
    of_session = pl.col("session_id").is_not_null()
    return rows.select(
        pl.col("session_id", "invocation_id", "kind", "created_at", "updated_at", "reason_code"),
        entity_type=pl.lit("dispatch"),
        entity_id="id",
        parent_type=pl.when(of_session)
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
    """Why each entity of a type is in its status, from the last transition into it."""
    return (
        transitions.filter(pl.col("entity_type") == entity_type)
        .group_by("entity_id", "status")
        .agg(pl.col("reason_code", "message", "evidence").last())
        .rename({"status": "raw_status"})
    )


def _sessions_of(rows: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """The sessions that some rows name: few, where a store holds a million."""
    return raw["sessions"].join(rows, left_on="id", right_on="session_id", how="semi")

"""What only Agent Orchestrator records: doubt about a process, and reports of agents."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.facts import Facts

# Agent Orchestrator's words while nobody knows yet, and for what is over for good.
_UNSURE = ("detecting", "stuck")
_OVER = ("killed", "terminated", "errored", "done", "cleanup", "exited")


def detecting_episodes(snap: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """How long Agent Orchestrator's sessions stayed in doubt, and whether they came back.

    Notes
    -----
    An episode begins when a session enters ``detecting`` and ends with the first word
    that is neither that nor ``stuck``: today's budget only renames the doubt, so it does
    not cut the episode off. It is good where the session went on.
    """
    unsure = pl.col("status").is_in(_UNSURE)
    key = ["source", "entity_id"]
    rows = (
        snap.transitions.filter(
            (pl.col("system") == "agent_orchestrator")
            & (pl.col("entity_type") == "session")
            & pl.col("at").is_not_null()
            & (pl.col("at") <= snap.as_of)
        )
        .sort(*key, "at", "seq")
        .with_columns(
            left_at=pl.when(~unsure).then("at").shift(-1).backward_fill().over(key),
            left_for=pl.when(~unsure).then("status").shift(-1).backward_fill().over(key),
            is_first=~unsure.shift(1, fill_value=False).over(key),
        )
        .filter((pl.col("status") == "detecting") & pl.col("is_first"))
    )
    return _elapsed(
        rows.join(_kinds(snap), on=key, how="left"),
        snap,
        start="at",
        end="left_at",
        is_good=~pl.col("left_for").is_in(_OVER),
    )


def first_reports(snap: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """How long until an agent first reported; good where it did before it ended."""
    key = ["source", "entity_id"]
    first = _reports(snap).group_by(key).agg(reported_at=pl.col("at").min())
    sessions = snap.entities.filter(
        (pl.col("system") == "agent_orchestrator")
        & (pl.col("entity_type") == "session")
        & (pl.col("kind") == "worker")
    ).join(first, on=key, how="left")
    return _elapsed(
        sessions.with_columns(seen_at=pl.coalesce("reported_at", "ended_at")),
        snap,
        start="created_at",
        end="seen_at",
        is_good=pl.col("reported_at").is_not_null(),
    )


def report_silences(snap: Facts, gaps: pl.DataFrame) -> pl.DataFrame:
    """Silences between an agent's reports; those after the last say nothing but a death."""
    key = ["source", "entity_id"]
    dead = gaps.filter("is_dead").select(key).unique()
    reported = _reports(snap).sort(*key, "at").select(*key, "at")
    between = reported.with_columns(
        gap_s=_seconds(pl.col("at").shift(-1).over(key) - pl.col("at"))
    ).join(dead.with_columns(died=pl.lit(True)), on=key, how="left")
    is_last, died = pl.col("gap_s").is_null(), pl.col("died").fill_null(False)
    return between.join(_kinds(snap), on=key, how="left").select(
        _unit(*key),
        system=pl.lit("agent_orchestrator"),
        kind="kind",
        gap_s=pl.col("gap_s").fill_null(0.0),
        closed_by=pl.when(~is_last)
        .then(pl.lit("sign_of_life"))
        .when(died)
        .then(pl.lit("death"))
        .otherwise(pl.lit("as_of")),
        is_dead=is_last & died,
    )


def _reports(snap: Facts) -> pl.DataFrame:
    return snap.events.filter(
        (pl.col("system") == "agent_orchestrator")
        & (pl.col("entity_type") == "session")
        & pl.col("kind").str.starts_with("report.")
        & (pl.col("kind") != "report.rejected")
        & pl.col("at").is_not_null()
        & (pl.col("at") <= snap.as_of)
    )


def _kinds(snap: Facts) -> pl.DataFrame:
    return (
        snap.entities.filter(pl.col("entity_type") == "session")
        .select("source", "entity_id", "kind")
        .unique(subset=["source", "entity_id"], keep="first", maintain_order=True)
    )


def _elapsed(
    rows: pl.DataFrame, snap: Facts, *, start: str, end: str, is_good: pl.Expr
) -> pl.DataFrame:
    """Rows as `thresholds.evidence.RUNS`: cut off at as-of ; impossible ones left out."""
    ended = pl.col(end).is_not_null() & (pl.col(end) <= snap.as_of)
    until = pl.when(ended).then(end).otherwise(pl.lit(snap.as_of))
    return rows.select(
        _unit("source", "entity_id"),
        "system",
        "kind",
        duration_s=_seconds(until - pl.col(start)),
        ended=ended,
        is_good=is_good,
        timeout_s=pl.lit(None, dtype=pl.Float64),
    ).filter(pl.col("duration_s") >= 0)


def _unit(*parts: str | pl.Expr) -> pl.Expr:
    return pl.concat_str(parts, separator="\n", ignore_nulls=True).alias("unit")


def _seconds(how_long: pl.Expr) -> pl.Expr:
    return how_long.dt.total_microseconds() / 1e6

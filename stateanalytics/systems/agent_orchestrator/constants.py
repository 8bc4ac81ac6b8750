"""Constants of Agent Orchestrator's last TypeScript version, and the data to judge them by."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.systems.base import NO_SETTING, Constant

STUCK_THRESHOLD_S = 600.0
"""``reactions.agent-stuck.threshold`` by default: idle for longer means stuck."""
FRESH_S = 300.0
"""Up to this age a sign of activity counts, then it is stale."""
READY_THRESHOLD_S = 300.0
"""Up to this age an entry of an agent's log means ready (``readyThresholdMs``), then idle."""
STICKY_S = 300.0
"""How long a waiting or blocked entry counted before it became sticky (17 May 2026)."""


ACKNOWLEDGE_S = 600.0
"""Age of a session without a report at which the report watcher speaks up."""
STALE_REPORT_S = 1800.0
"""Age of the last report at which the report watcher speaks up."""
DETECTING_S = 300.0
"""How long probes may disagree (``DETECTING_MAX_DURATION_MS``) before a session is stuck."""


_CORE, _YAML = "packages/core/src", "agent-orchestrator.yaml"
_DECISIONS = f"{_CORE}/lifecycle-status-decisions.ts"


def constants(_policy: object) -> list[Constant]:
    """Every constant that is judged; no policy of ours holds one of them."""
    system = "agent_orchestrator"
    return [
        Constant(
            "ao.stuck", system, _YAML, ("reactions", "agent-stuck", "threshold"),
            STUCK_THRESHOLD_S, "idle for longer: stuck, and a person is notified", "silences",
            unit="duration", kind="worker", is_configurable=True,
        ),
        Constant(
            "ao.stuck.orchestrator", system, f"{NO_SETTING}: workers' value holds for them",
            ("reactions", "agent-stuck", "threshold", "orchestrator"), STUCK_THRESHOLD_S,
            "idle for longer: stuck, though orchestrators wait by design", "silences",
            unit="duration", kind="orchestrator",
        ),
        Constant(
            "ao.ready", system, _YAML, ("readyThresholdMs",), READY_THRESHOLD_S,
            "no activity for longer: idle", "silences", unit="ms", is_configurable=True,
        ),
        Constant(
            "ao.fresh", system, _CORE, ("activity freshness: weak",), FRESH_S,
            "activity that is older proves nothing any more", "silences", unit="ms",
        ),
        Constant(
            "ao.detecting.duration", system, _DECISIONS, ("DETECTING_MAX_DURATION_MS",),
            DETECTING_S, "probes disagree for longer: stuck", "detecting", unit="ms",
        ),
        Constant(
            "ao.detecting.attempts", system, _DECISIONS, ("DETECTING_MAX_ATTEMPTS",), 90.0,
            "more polls in a row that disagree in the same way: stuck", "detecting", unit="polls",
        ),
        Constant(
            "ao.acknowledge", system, f"{_CORE} (report watcher)", ("acknowledge timeout",),
            ACKNOWLEDGE_S, "no report so long after the start: no_acknowledge", "first_report",
            unit="ms", at_least=True,
        ),
        Constant(
            "ao.report", system, f"{_CORE} (report watcher)", ("stale report",),
            STALE_REPORT_S,
            "no report for so long: stale_report", "reports", unit="ms", at_least=True,
        ),
    ]  # fmt: skip


# Statuses while the end is in doubt, and of sessions that are over for good.
_UNSURE = ("detecting", "stuck")
_OVER = ("killed", "terminated", "errored", "done", "cleanup", "exited")


def detecting_episodes(snap: Facts, _gaps: pl.DataFrame) -> pl.DataFrame:
    """How long Agent Orchestrator's sessions stayed in doubt, and whether they recovered.

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
    """Silences between an agent's reports; those after the last reveal a death only."""
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
    """Rows as `thresholds.evidence.RUNS`: cut off at as-of, without impossible ones."""
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

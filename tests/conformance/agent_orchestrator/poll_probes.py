"""The first half of a poll: what the probes and the agent's activity say."""

from __future__ import annotations

import polars as pl

from tests.conformance.agent_orchestrator.activity import signal_of
from tests.conformance.agent_orchestrator.javascript_dates import milliseconds

THROWS, INDETERMINATE = "throws", "indeterminate"


def observe_runtime(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add ``_runtime`` (alive, dead, unknown) and the runtime axis after its probe."""
    probe = pl.when(pl.col("has_handle") & pl.col("_can_probe")).then("runtime_probe")
    is_tmux = (pl.col("runtime_name") == "tmux").fill_null(False)
    missing = pl.when(is_tmux).then(pl.lit("tmux_missing")).otherwise(pl.lit("process_missing"))
    return (
        frame.with_columns(_probe=probe)
        .with_columns(
            _runtime=pl.when(pl.col("_probe").is_in(("alive", "dead")))
            .then("_probe")
            .otherwise(pl.lit("unknown")),
            _runtime_failed=(pl.col("_probe") == THROWS).fill_null(False),
            _runtime_seen=pl.col("_probe").is_not_null(),
            _runtime_state=_by_probe("alive", "missing", "probe_failed", "runtime_state"),
            _runtime_reason=_by_probe("process_running", missing, "probe_error", "runtime_reason"),
        )
        .drop("_probe")
    )


def _by_probe(alive: str, dead: str | pl.Expr, throws: str, stored: str) -> pl.Expr:
    probe = pl.col("_probe")
    return (
        pl.when(probe == "alive")
        .then(pl.lit(alive))
        .when(probe == "dead")
        .then(pl.lit(dead) if isinstance(dead, str) else dead)
        .when(probe == THROWS)
        .then(pl.lit(throws))
        .otherwise(stored)
    )


def observe_activity(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the activity signal, from the agent's log or else from its terminal."""
    looks = pl.col("has_agent") & (pl.col("has_handle") | pl.col("has_workspace"))
    activity = pl.when(looks).then("activity")
    has_thrown = (activity == THROWS).fill_null(False)
    is_native = activity.is_not_null() & ~has_thrown
    reads_terminal = (
        looks & ~has_thrown & activity.is_null() & pl.col("has_handle") & pl.col("_can_probe")
    )
    from_terminal = pl.when(reads_terminal).then("terminal_activity")
    found = frame.with_columns(
        _has_thrown=has_thrown,
        _is_native=is_native,
        _activity=pl.when(is_native).then(activity).otherwise(from_terminal),
        _activity_ms=pl.when(is_native).then(milliseconds(pl.col("activity_at"))),
        _source=pl.when(looks & from_terminal.is_null())
        .then("activity_source")
        .when(looks)
        .then(pl.lit("terminal"))
        .otherwise(pl.lit("none")),
        _detection=pl.when(~looks)
        .then(pl.lit("unavailable"))
        .when(has_thrown)
        .then(pl.lit("probe_failure"))
        .when(is_native | from_terminal.is_not_null())
        .then(pl.lit("detected"))
        .otherwise(pl.lit("null")),
    )
    signal = signal_of(
        pl.col("_detection"),
        pl.col("_activity"),
        pl.col("_source"),
        pl.col("_activity_ms"),
        milliseconds(pl.col("at")),
    )
    return found.with_columns(
        _is_idle=signal.is_idle_evidence,
        _is_live=signal.is_liveness_evidence,
        _is_weak=signal.is_weak_evidence,
        _activity_evidence=signal.evidence,
        _is_waiting=(pl.col("_activity") == "waiting_input").fill_null(False),
        _is_blocked=signal.is_idle_evidence & (pl.col("_activity") == "blocked").fill_null(False),
    ).with_columns(**_runtime_by_activity())


def _runtime_by_activity() -> dict[str, pl.Expr]:
    """Any activity proves the runtime, unless its probe said otherwise; an exit ends it."""
    is_seen = pl.col("_is_native") | (pl.col("_source") == "terminal")
    is_proof = is_seen & ~pl.col("_runtime_state").is_in(("missing", "probe_failed"))
    is_exit = (
        pl.col("_is_native") & (pl.col("_activity") == "exited") & pl.col("_can_probe")
    ).fill_null(False)
    return {
        "_runtime_state": pl.when(is_exit)
        .then(pl.lit("exited"))
        .when(is_proof)
        .then(pl.lit("alive"))
        .otherwise("_runtime_state"),
        "_runtime_reason": pl.when(is_exit)
        .then(pl.lit("process_missing"))
        .when(is_proof)
        .then(pl.lit("process_running"))
        .otherwise("_runtime_reason"),
        "_runtime_seen": pl.col("_runtime_seen") | is_exit | is_proof,
        "_is_exit": is_exit,
    }


def observe_process(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add ``_process`` (alive, dead, unknown) and what a dead one makes of the runtime."""
    asks = (
        ~pl.col("_is_exit")
        & ~pl.col("_has_thrown")
        & ~pl.col("_is_waiting")
        & pl.col("has_handle")
        & pl.col("_can_probe")
        & pl.col("has_agent")
    )
    answer = pl.when(asks).then("process_probe")
    is_dead = (answer == "dead").fill_null(False)
    return frame.with_columns(
        _process=pl.when("_is_exit")
        .then(pl.lit("dead"))
        .when(answer.is_in(("alive", "dead")))
        .then(answer)
        .otherwise(pl.lit("unknown")),
        _process_failed=(answer == THROWS).fill_null(False),
        _is_indeterminate=(answer == INDETERMINATE).fill_null(False),
        _runtime_state=pl.when(is_dead).then(pl.lit("exited")).otherwise("_runtime_state"),
        _runtime_reason=pl.when(is_dead)
        .then(pl.lit("process_missing"))
        .otherwise("_runtime_reason"),
        _runtime_seen=pl.col("_runtime_seen") | is_dead,
    )

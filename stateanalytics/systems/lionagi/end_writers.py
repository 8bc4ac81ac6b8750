"""Who wrote the end of each entity: the work itself, an observer, or an import."""

from __future__ import annotations

import polars as pl

# Codes that only a sweeper writes; `session.*` codes are verdicts about a session from
# outside, except the one that reopens it.
_SWEEPER_CODES = (
    "run.cancelled.manual_kill",
    "run.cancelled.force_kill",
    "run.cancelled.stale_auto",
    "run.failed.never_dispatched",
)
_SWEEPER_SUMMARIES = (
    "invocation_deadline_exceeded",
    "zero_session_invocation_timeout",
    "schedule_run_stale_running_reaped",
    "process_exited_without_status",
    "play_runner_dead_or_orphaned",
    "phantom_reaped",
    "mirror_idle_reaped",
)
_SWEEPER_ACTORS = (
    "user",
    "doctor",
    "admin",
    "admin_prune",
    "studio_lifecycle_reaper",
    "scheduler_startup_reconciliation",
    "scheduler_startup_recovery",
    "claude-mirror-reconcile",
    "codex-mirror-reconcile",
)
_IMPORT_ACTORS = ("shows_import",)
_SWEEPER_EVIDENCE = (
    '"(kill_event|stale_kill|child_stale_kill|phantom_classification|session_health)"'
)


def last_writers(transitions: pl.DataFrame) -> pl.DataFrame:
    """The actor and evidence of each entity's last transition, where they tell anything.

    Parameters
    ----------
    transitions : polars.DataFrame
        In the shape of `stateanalytics.core.schema.TRANSITIONS`, in their order.

    Returns
    -------
    polars.DataFrame, shape (n_told, 4)
        ``entity_type``, ``entity_id``, ``raw_status`` (the status that was written) and
        ``wrote``: ``observer`` or ``import``.
    """
    key = ["entity_type", "entity_id"]
    wrote = (
        pl.when(pl.col("actor").is_in(_IMPORT_ACTORS))
        .then(pl.lit("import"))
        .when(pl.col("actor").is_in(_SWEEPER_ACTORS) | _shows_a_sweep("evidence"))
        .then(pl.lit("observer"))
    )
    writers = transitions.select(*key, raw_status="status", wrote=wrote, seq="seq", at="at")
    # Most entities were ended by themselves: only those with a telling row need a last one.
    telling = writers.filter(pl.col("wrote").is_not_null())
    if telling.is_empty():
        return telling.select(*key, "raw_status", "wrote")
    return (
        writers.join(telling.select(key).unique(), on=key, how="semi")
        .sort("at", "seq", nulls_last=False)
        .group_by(key)
        .agg(pl.col("raw_status", "wrote").last())
        .filter(pl.col("wrote").is_not_null())
    )


def add_end_writers(entities: pl.DataFrame, transitions: pl.DataFrame) -> pl.DataFrame:
    """Add ``end_written_by`` to entities that have an end.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `stateanalytics.core.schema.ENTITIES`.
    transitions : polars.DataFrame
        In the shape of `stateanalytics.core.schema.TRANSITIONS`.

    Returns
    -------
    polars.DataFrame
        ``entities`` in their order; ``executor`` where nothing says otherwise, null
        without an end.
    """
    key = ["entity_type", "entity_id", "raw_status"]
    writers = last_writers(transitions)
    # By few columns: a join makes all of them anew.
    wrote = entities.select(key).join(writers, on=key, how="left", maintain_order="left")["wrote"]
    by_observer = (
        (pl.col("wrote") == "observer")
        | (pl.col("recorded_by") == "mirrored")
        | pl.col("is_end_approximate")
        | pl.col("reason_code").is_in(_SWEEPER_CODES)
        | (
            pl.col("reason_code").str.starts_with("session.")
            & (pl.col("reason_code") != "session.reopened.by_resume")
        )
        | pl.col("reason_message").is_in(_SWEEPER_SUMMARIES)
        | _shows_a_sweep("evidence")
        | (
            # An invocation that names itself as evidence was ended by a deadline.
            (pl.col("entity_type") == "invocation")
            & pl.col("evidence").str.contains('"invocation"', literal=True)
        )
    )
    writer = (
        pl.when(pl.col("ended_at").is_null())
        .then(None)
        .when((pl.col("recorded_by") == "imported") | (pl.col("wrote") == "import"))
        .then(pl.lit("import"))
        .when(by_observer)
        .then(pl.lit("observer"))
        .otherwise(pl.lit("executor"))
    )
    return entities.with_columns(wrote).with_columns(end_written_by=writer).drop("wrote")


def _shows_a_sweep(column: str) -> pl.Expr:
    return pl.col(column).str.contains(_SWEEPER_EVIDENCE).fill_null(value=False)

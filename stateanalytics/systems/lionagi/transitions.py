"""Recorded changes of status, and who wrote the end of each entity."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.vocabulary import TABLES, words_of
from stateanalytics.systems.lionagi.raw import Raw

KNOWN: dict[str, tuple[str, ...]] = {
    entity_type: tuple(word.raw_status for word in words_of(entity_type)) for entity_type in TABLES
}


def _ends(entity_type: str, *, but: tuple[str, ...] = ()) -> tuple[str, ...]:
    ends = (word.raw_status for word in words_of(entity_type) if word.is_terminal)
    return tuple(raw for raw in ends if raw not in but)


# Ends of work that ran, so that a missing time is a gap: a skipped fire or a play that
# was blocked before it began has no end to record.
ENDS_WITH_A_TIME: dict[str, tuple[str, ...]] = {
    "session": _ends("session"),
    "invocation": _ends("invocation"),
    "schedule_run": _ends("schedule_run", but=("skipped", "cancelled")),
    "engine_run": _ends("engine_run"),
}
RUNNING: dict[str, tuple[str, ...]] = {
    "session": ("running",),
    "invocation": ("running",),
    "play": ("running", "prepared"),
    "schedule_run": ("queued", "waiting_dependency", "running"),
    "engine_run": ("running",),
}


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
    writers = last_writers(transitions)
    joined = entities.join(
        writers, on=["entity_type", "entity_id", "raw_status"], how="left", maintain_order="left"
    )
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
    return joined.with_columns(end_written_by=writer).drop("wrote")


def _shows_a_sweep(column: str) -> pl.Expr:
    return pl.col(column).str.contains(_SWEEPER_EVIDENCE).fill_null(value=False)


# Older call sites wrote the table's name or the route's.
_ALIASES = {
    "run": "session",
    "sessions": "session",
    "shows": "show",
    "plays": "play",
    "invocations": "invocation",
    "teams": "team",
    "schedule_runs": "schedule_run",
    "schedules": "schedule",
    "dispatch_outbox": "dispatch",
}


def transitions(raw: Raw) -> pl.DataFrame:
    """One row an accepted status change.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables, as `raw.read_raw` gives them.

    Returns
    -------
    polars.DataFrame, shape (n_transitions, 12)
        Sorted by ``at``, then ``seq`` (the row's place in the table: ids are random, and
        several changes may share one moment).
    """
    rows = raw["status_transitions"].select(
        entity_type=pl.col("entity_type").replace(_ALIASES),
        entity_id="entity_id",
        at="created_at",
        seq="rowid",
        previous_status="previous_status",
        status="status",
        reason_code=pl.col("reason_code").replace("", None),
        message=pl.col("reason_summary").replace("", None),
        writer="source",
        actor="actor",
        evidence="evidence_refs",
        metadata="metadata",
    )
    # Rows come in the order of their place, and are mostly written in the order of time.
    is_ordered = rows["at"].null_count() == 0 and rows["at"].is_sorted()
    return rows if is_ordered else rows.sort("at", "seq", nulls_last=True)

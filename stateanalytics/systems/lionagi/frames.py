"""The frames that only lionagi fills."""

from __future__ import annotations

from stateanalytics.core.schema import INTEGER, MOMENT, REAL, TEXT, YES_NO, Column, Frame

SCHEDULES = Frame(
    "lionagi_schedules",
    "one lionagi schedule, with the facts its health is judged by",
    ("source", "schedule_id"),
    (
        Column("source", TEXT, "the input"),
        Column("schedule_id", TEXT, "id of the schedule"),
        Column("is_enabled", YES_NO, "is it switched on"),
        Column("trigger_type", TEXT, "cron, interval, github_poll, at"),
        Column("cron_expr", TEXT, "cron expression"),
        Column("timezone", TEXT, "the zone that it is meant in"),
        Column(
            "cadence_s", REAL, "interval between fires; null: none (at, or unreadable cron)", "s"
        ),
        Column("next_fire_at", MOMENT, "next planned fire"),
        Column("last_fired_at", MOMENT, "last fire, survives retention of runs"),
        Column("last_evaluated_at", MOMENT, "last threshold evaluation"),
        Column("last_healthy_poll_at", MOMENT, "last poll that worked"),
        Column("has_threshold", YES_NO, "is it a threshold schedule"),
        Column("last_executed_at", MOMENT, "last run that was executed (skips do not count)"),
        Column("last_executed_status", TEXT, "status of that run"),
        Column("n_runs", INTEGER, "runs recorded"),
        Column("n_running", INTEGER, "runs that are running"),
        Column("n_missed", INTEGER, "fires missed (skipped as missed_fire)"),
        Column("n_failed_in_row", INTEGER, "failed or timed-out runs since the last good one"),
    ),
)

FIRES = Frame(
    "lionagi_fires",
    "one run of a schedule, and what fired it",
    ("source", "schedule_run_id"),
    (
        Column("source", TEXT, "the input"),
        Column("schedule_run_id", TEXT, "id of the run"),
        Column("schedule_id", TEXT, "the schedule; null: queued without one"),
        Column("chain_depth", INTEGER, "0: fired by its schedule; else by the run before it"),
    ),
)

DISPOSITIONS = Frame(
    "lionagi_dispositions",
    "what an operator decided about one attention item (ADR-0030)",
    ("source", "item_id"),
    (
        Column("source", TEXT, "the input"),
        Column("item_id", TEXT, "run:<session>, inv:<id>, sched:<id>, play:<topic>:<name>"),
        Column("entity_type", TEXT, "type of the entity that item_id names; null: not resolved"),
        Column("entity_id", TEXT, "the entity that item_id names; null: not resolved"),
        Column("state", TEXT, "acknowledged, resolved, expected, snoozed"),
        Column("note", TEXT, "the operator's note"),
        Column("actor", TEXT, "who decided"),
        Column("source_status", TEXT, "status the item had then"),
        Column("created_at", MOMENT, "when it was first decided"),
        Column("updated_at", MOMENT, "when it was last decided"),
        Column("expires_at", MOMENT, "end of a snooze"),
    ),
)

DECISIONS = Frame(
    "lionagi_decisions",
    "one decision of an operator about an attention item, the withdrawn ones too",
    ("source", "item_id", "at", "seq"),
    (
        Column("source", TEXT, "the input"),
        *DISPOSITIONS.columns[1:4],
        Column("at", MOMENT, "when it was decided"),
        Column("seq", INTEGER, "order within the store"),
        Column("state", TEXT, "acknowledged, resolved, expected, snoozed; open: withdrawn"),
        *DISPOSITIONS.columns[5:8],
    ),
)

RUNS = Frame(
    "lionagi_runs",
    "one run directory beside the store",
    ("source", "run_id"),
    (
        Column("source", TEXT, "the input"),
        Column("run_id", TEXT, "name of the directory"),
        Column("session_id", TEXT, "session that the directory belongs to, where it is known"),
        Column("status", TEXT, "status in run.json; may lag behind the store"),
        Column("derived_status", TEXT, "status by ADR-0017's import rule"),
        Column("kind", TEXT, "invocation kind in run.json"),
        Column("agent", TEXT, "agent in run.json"),
        Column("model", TEXT, "model in run.json"),
        Column("started_at", MOMENT, "start in run.json, else file time"),
        Column("ended_at", MOMENT, "end in run.json"),
        Column("is_time_from_files", YES_NO, "started_at is only a file time"),
        Column("timeout_s", REAL, "config.timeout of checkpoint.json", "s"),
        Column("n_signals_dropped", INTEGER, "signals that could not be stored"),
        Column("n_planned_ops", INTEGER, "operations in the plan of checkpoint.json"),
    ),
)

SHOWS_ON_DISK = Frame(
    "lionagi_shows_on_disk",
    "one show or play directory: what the disk says (it wins over the store, #1161)",
    ("source", "topic", "play"),
    (
        Column("source", TEXT, "the input"),
        Column("topic", TEXT, "show"),
        Column("play", TEXT, "play; null: the show itself"),
        Column("disk_status", TEXT, "status by the files"),
        Column("store_status", TEXT, "status by the store; null: not in the store"),
        Column("is_gate_passed", YES_NO, "verdict of the gate"),
        Column("is_show_passed", YES_NO, "final verdict of the show"),
        Column("has_abort_sentinel", YES_NO, "an _ABORT file is there"),
        Column("depends_on", TEXT, "JSON list of plays that must be merged first"),
        Column("feedback", TEXT, "the gate's words, shortened"),
    ),
)


def frames() -> tuple[Frame, ...]:
    """Them, in the order of the schema."""
    return (
        SCHEDULES,
        FIRES,
        DISPOSITIONS,
        DECISIONS,
        RUNS,
        SHOWS_ON_DISK,
    )


def dispositions() -> Frame:
    """The one of what operators decided."""
    return DISPOSITIONS

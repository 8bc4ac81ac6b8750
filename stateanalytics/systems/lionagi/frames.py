"""The frames that only lionagi fills."""

from __future__ import annotations

from stateanalytics.core.schema import Calls, OfInput, Turns
from stateanalytics.core.shapes import Frame, Integer, Moment, Real, Text, YesNo, frame


class LionagiSchedules(OfInput, key=("source", "schedule_id")):
    """One lionagi schedule, with the facts its health is judged by."""

    schedule_id = Text("id of the schedule")
    is_enabled = YesNo("is it switched on")
    trigger_type = Text("cron, interval, github_poll, at")
    cron_expr = Text("cron expression")
    timezone = Text("the zone that it is meant in")
    cadence_s = Real("interval between fires; null: none (at, or unreadable cron)", unit="s")
    next_fire_at = Moment("next planned fire")
    last_fired_at = Moment("last fire, survives retention of runs")
    last_evaluated_at = Moment("last threshold evaluation")
    last_healthy_poll_at = Moment("last poll that worked")
    has_threshold = YesNo("is it a threshold schedule")
    last_executed_at = Moment("last run that was executed (skips do not count)")
    last_executed_status = Text("status of that run")
    n_runs = Integer("runs recorded")
    n_running = Integer("runs that are running")
    n_missed = Integer("fires missed (skipped as missed_fire)")
    n_failed_in_row = Integer("failed or timed-out runs since the last good one")


SCHEDULES = frame(LionagiSchedules)


class LionagiFires(OfInput, key=("source", "schedule_run_id")):
    """One run of a schedule, and what fired it."""

    schedule_run_id = Text("id of the run")
    schedule_id = Text("the schedule; null: queued without one")
    chain_depth = Integer("0: fired by its schedule; else by the run before it")


FIRES = frame(LionagiFires)


class LionagiDispositions(OfInput, key=("source", "item_id")):
    """What an operator decided about one attention item (ADR-0030)."""

    item_id = Text("run:<session>, inv:<id>, sched:<id>, play:<topic>:<name>")
    entity_type = Text("type of the entity that item_id names; null: not resolved")
    entity_id = Text("the entity that item_id names; null: not resolved")
    state = Text("acknowledged, resolved, expected, snoozed")
    note = Text("the operator's note")
    actor = Text("who decided")
    source_status = Text("status the item had then")
    created_at = Moment("when it was first decided")
    updated_at = Moment("when it was last decided")
    expires_at = Moment("end of a snooze")


DISPOSITIONS = frame(LionagiDispositions)


class LionagiDecisions(OfInput, key=("source", "item_id", "at", "seq")):
    """One decision of an operator about an attention item, the withdrawn ones too."""

    item_id = Text("run:<session>, inv:<id>, sched:<id>, play:<topic>:<name>")
    entity_type = Text("type of the entity that item_id names; null: not resolved")
    entity_id = Text("the entity that item_id names; null: not resolved")
    at = Moment("when it was decided")
    seq = Integer("order within the store")
    state = Text("acknowledged, resolved, expected, snoozed; open: withdrawn")
    note = Text("the operator's note")
    actor = Text("who decided")
    source_status = Text("status the item had then")


DECISIONS = frame(LionagiDecisions)


class LionagiRuns(OfInput, key=("source", "run_id")):
    """One run directory next to the store."""

    run_id = Text("name of the directory")
    session_id = Text("session that the directory belongs to, where it is known")
    status = Text("status in run.json; may lag behind the store")
    derived_status = Text("status by ADR-0017's import rule")
    kind = Text("invocation kind in run.json")
    agent = Text("agent in run.json")
    model = Text("model in run.json")
    started_at = Moment("start in run.json, else file time")
    ended_at = Moment("end in run.json")
    is_time_from_files = YesNo("started_at is only a file time")
    timeout_s = Real("config.timeout of checkpoint.json", unit="s")
    n_signals_dropped = Integer("signals that could not be stored")
    n_planned_ops = Integer("operations in the plan of checkpoint.json")


RUNS = frame(LionagiRuns)


class LionagiShowsOnDisk(OfInput, key=("source", "topic", "play")):
    """One show or play directory: the state on disk (it wins over the store, #1161)."""

    topic = Text("show")
    play = Text("play; null: the show itself")
    disk_status = Text("status by the files")
    store_status = Text("status by the store; null: not in the store")
    is_gate_passed = YesNo("verdict of the gate")
    is_show_passed = YesNo("final verdict of the show")
    has_abort_sentinel = YesNo("an _ABORT file is there")
    depends_on = Text("JSON list of plays that must be merged first")
    feedback = Text("the gate's words, shortened")


SHOWS_ON_DISK = frame(LionagiShowsOnDisk)


class LionagiCalls(Calls, key=("source", "entity_id")):
    """One call of a tool in the messages of lionagi, read when it is first asked for."""


CALLS = frame(LionagiCalls)


class LionagiTurns(Turns, key=("source", "entity_id")):
    """One instruction in the messages of lionagi, read when turns are first asked for."""


TURNS = frame(LionagiTurns)


FRAMES = (SCHEDULES, FIRES, DISPOSITIONS, DECISIONS, RUNS, SHOWS_ON_DISK, CALLS, TURNS)


def frames() -> tuple[Frame, ...]:
    """Every frame of lionagi, in the order of the schema."""
    return FRAMES

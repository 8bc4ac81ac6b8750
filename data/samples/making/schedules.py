"""Schedules and their runs: in health, overdue, failing, due, running, off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from making.clock import moment
from making.invocations import ends, invocation
from making.lives import End, Life, live
from making.talk import chatter
from making.truth import Truth
from making.world import AS_OF, Call, World

HOUR = 3_600.0
_OUTCOMES = {"completed": ("completed", "succeeded"), "skipped": ("skipped", "skipped")}


@dataclass
class Run:
    """One occurrence of a schedule as it was meant."""

    fired: float
    status: str
    code: str
    took_s: float | None = 120.0
    summary: str = ""
    exit_code: int | None = None
    cause: str = ""
    by: str = "executor"
    health: str = "ok"


@dataclass
class Schedule:
    """One schedule as it was meant."""

    scenario: str
    name: str
    health: str
    next_at: float | None
    runs: tuple[Run, ...]
    cron: str | None = None
    every_s: int | None = None
    is_enabled: bool = True
    born: float = moment("2026-05-10 12:00")


def fire(world: World) -> None:
    """Plan every schedule."""
    for schedule in _schedules():
        plan(world, schedule)


def _ok(fired: float, took_s: float = 600.0) -> Run:
    return Run(fired, "completed", "run.completed.ok", took_s, "Run completed.", exit_code=0)


def _bad(fired: float) -> Run:
    return Run(
        fired, "failed", "run.failed.exit_nonzero", 95.0,
        "exit 1: ModuleNotFoundError: No module named 'reports'", exit_code=1, cause="tool exit",
    )  # fmt: skip


def _missed(fired: float) -> Run:
    return Run(
        fired, "skipped", "schedule.skipped.missed_fire", None,
        "Due time passed while the scheduler was not running.", cause="scheduler was down",
    )  # fmt: skip


def _schedules() -> tuple[Schedule, ...]:
    nights = [moment("2026-05-11 03:00") + 24 * HOUR * day for day in range(15)]
    hours = [moment("2026-05-23 18:00") + HOUR * place for place in range(9)]
    fours = [moment("2026-05-23 20:00") + 4 * HOUR * place for place in range(9)]
    return (
        Schedule(
            "schedule_well", "nightly-audit", "ok", moment("2026-05-26 03:00"),
            tuple(_ok(night) for night in nights), cron="0 3 * * *",
        ),
        Schedule(
            "schedule_overdue", "hourly-triage", "misfired", moment("2026-05-24 03:00"),
            (
                *(_ok(hour, 200.0) for hour in hours),
                *(_missed(moment("2026-05-24 05:00") + HOUR * place) for place in range(3)),
            ),
            cron="0 * * * *",
        ),
        Schedule(
            "schedule_failing", "metrics-export", "ok", AS_OF + 2 * HOUR,
            (*(_ok(at) for at in fours[:4]), *(_bad(at) for at in fours[4:])), every_s=14_400,
        ),
        Schedule(
            "schedule_due", "daily-digest", "due", AS_OF - 300,
            (_ok(AS_OF - 300 - 48 * HOUR), _ok(AS_OF - 300 - 24 * HOUR)), every_s=86_400,
        ),
        Schedule(
            "schedule_running", "weekly-report", "running", moment("2026-06-01 05:30"),
            (
                _ok(moment("2026-05-18 05:30")),
                Run(
                    moment("2026-05-25 05:30"), "running", "run.started.ok", None,
                    health="running",
                ),
            ),
            every_s=604_800,
        ),
        Schedule(
            "schedule_run_silent", "monthly-cleanup", "running", moment("2026-06-20 01:00"),
            (
                Run(
                    moment("2026-05-23 22:00"), "running", "run.started.ok", None,
                    health="stalled",
                ),
            ),
            every_s=2_592_000,
        ),
        Schedule(
            "schedule_off", "old-sync", "ok", None,
            (
                Run(
                    moment("2026-05-14 12:00"), "timed_out", "run.timed_out.deadline",
                    26 * HOUR, "schedule_run_stale_running_reaped", cause="process lost",
                    by="observer",
                ),
                Run(
                    moment("2026-05-16 12:00"), "cancelled", "run.cancelled.system", 60.0,
                    "Cancelled by the runtime.",
                ),
                Run(
                    moment("2026-05-17 12:00"), "skipped", "schedule.skipped.overlap", None,
                    "Previous occurrence still running.",
                ),
            ),
            every_s=86_400, is_enabled=False,
        ),
    )  # fmt: skip


def plan(world: World, schedule: Schedule) -> None:
    """Plan a schedule and all that it fires."""
    name = world.hex(12)
    fires = [run.fired for run in schedule.runs if run.status != "skipped"]
    row = {
        "id": name,
        "name": schedule.name,
        "enabled": 1,
        "trigger_type": "cron" if schedule.cron else "interval",
        "cron_expr": schedule.cron,
        "interval_sec": schedule.every_s,
        "action_kind": "agent",
        "action_model": "claude_code/sonnet",
        "action_prompt": f"run {schedule.name}",
        "action_cwd": "/home/op/infra",
        "project": "infra",
        "next_fire_at": min(fires),
        "created_at": schedule.born,
        "updated_at": schedule.born,
    }
    world.at(schedule.born, lambda store: store.create_schedule(row))
    world.at(
        max(fires) + 1,
        lambda store: store.update_schedule(
            name, last_fired_at=max(fires), next_fire_at=schedule.next_at
        ),
    )
    if not schedule.is_enabled:
        world.at(moment("2026-05-18 09:00"), lambda store: store.update_schedule(name, enabled=0))
    word = "enabled" if schedule.is_enabled else "disabled"
    world.is_true(Truth("schedule", name, schedule.scenario, word, health=schedule.health))
    for place, run in enumerate(schedule.runs):
        _occur(world, schedule, name, run, has_session=place % 5 == 0 and run.status == "completed")


def _occur(
    world: World, schedule: Schedule, schedule_id: str, run: Run, *, has_session: bool
) -> None:
    name, cause = world.hex(12), None
    took = run.took_s or 0.0
    if has_session:
        cause, row = invocation(world, schedule.scenario, "schedule", run.fired + 0.5)
        live(
            world,
            Life(
                schedule.scenario, "agent", run.fired + 3, End("completed", run.fired + took - 5),
                chatter(world, run.fired + 3, run.fired + took - 5, has_long=False),
                agent="tester", project="infra", invocation_id=cause, n_turns=2, cost_usd=0.05,
            ),
        )  # fmt: skip
        ends(
            world, row, run.fired + took - 2, "completed", "run.completed.ok",
            started=run.fired + 0.5,
        )  # fmt: skip
    is_skip = run.status == "skipped"
    born = {
        "id": name,
        "schedule_id": schedule_id,
        "trigger_context": {"fired_at": run.fired, "trigger": "tick"},
        "action_kind": "agent",
        "action_args": {"prompt": f"run {schedule.name}"},
        "status": "skipped" if is_skip else "running",
        "fired_at": run.fired,
    }
    world.at(run.fired, _created(born, run))
    if not is_skip:
        world.at(run.fired + 1, _dispatched(name, run.fired + 1, cause))
    if not is_skip and run.took_s is not None:
        world.at(run.fired + took, _ended(name, run))
    lifecycle, outcome = _OUTCOMES.get(run.status, (run.status, run.status))
    is_open = run.status == "running"
    world.is_true(
        Truth(
            "schedule_run", name, schedule.scenario, lifecycle, outcome="" if is_open else outcome,
            health=run.health, delivery="not_expected", reason_code=run.code, cause=run.cause,
            duration_s=run.took_s, ended_by="" if is_open or is_skip else run.by,
        )
    )  # fmt: skip


def _created(row: dict[str, Any], run: Run) -> Call:
    async def create(store: Any) -> None:
        await store.create_schedule_run(row)
        if run.status == "skipped":
            await store.update_schedule_run(
                row["id"], status="skipped", reason_code=run.code, reason_summary=run.summary,
                reason_source="system", reason_actor="scheduler",
            )  # fmt: skip

    return create


def _dispatched(name: str, at: float, cause: str | None) -> Call:
    more = {"invocation_id": cause} if cause else {}
    return lambda store: store.update_schedule_run(name, dispatched_at=at, **more)


def _ended(name: str, run: Run) -> Call:
    async def end(store: Any) -> None:
        await store.update_schedule_run(
            name, exit_code=run.exit_code, ended_at=run.fired + (run.took_s or 0.0),
            error_detail=run.summary if run.status == "failed" else None,
        )  # fmt: skip
        await store.update_schedule_run(
            name, status=run.status, reason_code=run.code, reason_summary=run.summary,
            reason_source="executor" if run.by == "executor" else "system",
            reason_actor="scheduler" if run.by == "executor" else "studio_lifecycle_reaper",
        )  # fmt: skip

    return end

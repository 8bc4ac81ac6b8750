"""Twelve weeks of one small team: what happened, when, and to whom (see README)."""

from __future__ import annotations

from math import inf
from typing import Any

from making.clock import moment
from making.invocations import ends, invocation
from making.lives import End, Life, live
from making.schedules import Run, Schedule, plan
from making.talk import chatter
from making.week import Sort, holes
from making.world import AS_OF, World
from tests.generators.templates import BY_ID, Template

DAY, HOUR = 86_400.0, 3_600.0
FIRST_MONDAY = moment("2026-03-02 00:00")
N_WEEKS = 12
OUTAGE = moment("2026-04-15 09:10"), moment("2026-04-15 13:40")
"""The provider of three quarters of all runs is down."""
NEW_MODEL = moment("2026-04-27 00:00")
"""Since then half of the work is done by a model that is slower, dearer and fails less."""
NEW_LIMIT = moment("2026-05-04 00:00")
"""Since then flows may take 90 minutes instead of 60."""
BROKEN_IMAGE = (FIRST_MONDAY, moment("2026-03-23 08:00")), (moment("2026-05-18 15:00"), inf)
"""The build image of one project lacks a tool, is mended, and lacks it again."""
UPGRADE = moment("2026-05-19 12:00")
"""Since then plans of two projects' flows are rejected, after most of the work was done."""

NO_POETRY = Template(
    "no_poetry", "run.failed.exception", "ToolError", "tool missing",
    "ToolError: Bash exited with code 127: /bin/sh: 1: poetry: not found (image build-{count})",
)  # fmt: skip
NO_STEPS = Template(
    "no_steps", "run.failed.exception", "ValidationError", "orchestrator bug",
    "pydantic_core.ValidationError: 1 validation error for FlowPlan: steps Field required "
    "(request {request})",
)  # fmt: skip
USUAL = {
    "tool_exit_1": 24, "read_timeout": 13, "context_length_400": 11, "git_conflict": 11,
    "missing_artifact": 9, "bad_json": 9, "rate_limit_429": 8, "stream_cut": 6,
    "tool_exit_137": 5, "no_file": 4,
}  # fmt: skip
PROJECTS = {"checkout": 30, "billing": 26, "search": 20, "mobile": 14, "infra": 10}
AGENTS = ("implementer", "reviewer", "researcher", "tester")
SONNET, OPUS, CODEX = "claude_code/sonnet", "claude_code/opus", "codex/gpt-5.1-codex"
DOLLARS_A_MESSAGE = {SONNET: 0.031, OPUS: 0.085, CODEX: 0.024}


SORTS = (
    Sort("agent", 0.66, 660.0, 0.65, 2_700.0),
    Sort("flow", 0.22, 2_300.0, 0.45, HOUR),
    Sort("play", 0.12, 1_900.0, 0.40, 7_200.0),
)


def weeks(world: World) -> None:
    """Plan everything."""
    for day in range(7 * N_WEEKS + 1):
        midnight = FIRST_MONDAY + DAY * day
        growth = 1 + 0.35 * day / (7 * N_WEEKS)
        usual = 3 if day % 7 > 4 else 13
        for _ in range(round(usual * growth * (0.8 + 0.4 * world.chance.random()))):
            live(world, _run(world, _start(world, midnight)))
        if day % 7 in (1, 3):
            _reviews(world, midnight + HOUR * (9 + 6 * world.chance.random()))
    for _ in range(26):
        live(world, _run(world, OUTAGE[0] + world.chance.random() * (OUTAGE[1] - OUTAGE[0])))
    _limited(world, moment("2026-05-21 14:00"))
    _this_morning(world)
    _schedules(world)


def _start(world: World, midnight: float) -> float:
    """Three of four in working hours; the last morning ends with as-of."""
    if midnight + DAY > AS_OF:
        return round(midnight + 4.5 * HOUR * world.chance.random(), 3)
    hour = 7 + 11 * world.chance.random() if world.chance.random() < 0.75 else None
    return round(midnight + HOUR * (hour if hour else 23.5 * world.chance.random()), 3)


def _run(world: World, started: float, project: str = "", kind: str = "") -> Life:
    sort = world.pick({sort: sort.share for sort in SORTS if kind in ("", sort.kind)})
    project = project or world.pick(PROJECTS)
    model = world.pick({SONNET: 3.0, CODEX: 1.0})
    if started >= NEW_MODEL and model == SONNET and world.chance.random() < 0.65:
        model = OPUS
    timeout = 1.5 * HOUR if sort.kind == "flow" and started >= NEW_LIMIT else sort.timeout_s
    takes = world.log_normal(sort.median_s * (1.45 if model == OPUS else 1.0), sort.sigma)
    status, template = _fate(world, (started, started + takes), sort.kind, project, model)
    # What the upgrade broke is noticed when the plan is read back, at the end.
    pace = {"completed": 1.0, "failed": 0.5, "aborted": 0.6, "cancelled": 0.6}.get(status, 0.4)
    takes = max(25.0, takes * (1.0 if template is NO_STEPS else pace))
    if template is not None and template.cause == "provider overload":
        takes = 40.0 + takes / 8
    if takes > timeout:
        status, template, takes = "timed_out", None, timeout + 0.05
    ended = round(min(started + takes, AS_OF - 120.0), 3)
    operations = ("architect", "implementer", "reviewer") if sort.kind == "flow" else ()
    n_first = max(1, len(operations))
    talk = chatter(world, started, ended, n_first=n_first)
    return Life(
        scenario=f"story_{status}" if template is None else f"story_{template.template_id}",
        kind=sort.kind, started=started, end=_end(world, status, template, ended, model),
        talk=talk, agent=world.one_of(AGENTS), model=model, project=project,
        playbook=world.one_of(("feature", "bugfix", "release")) if operations else None,
        timeout_s=timeout, operations=operations, has_run_files=bool(operations),
        n_turns=max(1, len(talk) - n_first), has_artifacts=bool(operations),
        cost_usd=round(DOLLARS_A_MESSAGE[model] * len(talk), 4),
    )  # fmt: skip


def _fate(
    world: World, between: tuple[float, float], kind: str, project: str, model: str
) -> tuple[str, Template | None]:
    """How a run ends, before its limit is looked at."""
    started, ended = between
    chance = world.chance.random()
    if model != CODEX and started < OUTAGE[1] and ended > OUTAGE[0] and chance < 0.85:
        return "failed", BY_ID[world.pick({"overloaded_529": 3.0, "unavailable_503": 1.0})]
    is_broken = any(since <= started < until for since, until in BROKEN_IMAGE)
    if project == "mobile" and is_broken and chance < 0.55:
        return "failed", NO_POETRY
    if (
        project in ("billing", "checkout")
        and kind == "flow"
        and started >= UPGRADE
        and chance < 0.8
    ):
        return "failed", NO_STEPS
    failed = 0.05 if model == OPUS else 0.105
    status = world.pick(
        {"failed": failed, "aborted": 0.02, "cancelled": 0.012, "completed_empty": 0.018,
         "completed": 0.95 - failed}
    )  # fmt: skip
    return status, BY_ID[world.pick(USUAL)] if status == "failed" else None


def _end(world: World, status: str, template: Template | None, ended: float, model: str) -> End:
    if template is None:
        causes = {"timed_out": "limit", "aborted": "operator", "cancelled": "runtime"}
        return End(status, ended, cause=causes.get(status, ""))
    words: dict[str, Any] = holes(world) | {"model": model}
    return End(
        "failed", ended, code=template.reason_code, summary=template.fill(**words),
        cause=template.cause, template_id=template.template_id,
        metadata={"exception_class": template.exception_class} if template.exception_class else {},
    )  # fmt: skip


def _reviews(world: World, begun: float) -> None:
    """Six reviewers look at one change; with their fate goes the request's."""
    name, row = invocation(world, "story_reviews", "review", begun)
    project = world.pick(PROJECTS)
    last, n_failed = begun, 0
    for place in range(6):
        life = _run(world, round(begun + 2 + 0.7 * place, 3), project, kind="agent")
        life.kind, life.agent, life.invocation_id = "fanout", "reviewer", name
        assert life.end is not None
        last, n_failed = max(last, life.end.at), n_failed + (life.end.status != "completed")
        live(world, life)
    status = "failed" if n_failed == 6 else "completed"
    code = {"failed": "run.failed.exception"}.get(status, "run.completed.ok")
    ends(world, row, last + 5, status, code, started=begun)


def _limited(world: World, begun: float) -> None:
    """Twelve sessions of one request fail from one limit of the provider."""
    name, row = invocation(world, "story_limited", "fanout", begun)
    for place in range(12):
        started = round(begun + 2 + 0.7 * place, 3)
        life = _run(world, started, "billing", kind="agent")
        ended = round(begun + 380 + 40 * world.chance.random(), 3)
        life.kind, life.invocation_id, life.model = "fanout", name, CODEX
        life.end = _end(world, "failed", BY_ID["rate_limit_429"], ended, CODEX)
        life.talk = chatter(world, started, ended, has_long=False)
        life.scenario, life.n_turns = "story_limited", len(life.talk)
        life.cost_usd = round(DOLLARS_A_MESSAGE[CODEX] * len(life.talk), 4)
        live(world, life)
    ends(
        world, row, begun + 460, "failed", "run.failed.exception", started=begun,
        summary="12 of 12 sessions failed.", cause="provider limit",
    )  # fmt: skip


def _this_morning(world: World) -> None:
    """What runs at as-of: five are well, one is silent for a coffee, three for the night."""
    for scenario, kind, hours, silence, health, project in (
        ("running_fresh", "agent", 0.2, 60.0, "running", "search"),
        ("running_fresh", "agent", 0.4, 200.0, "running", "checkout"),
        ("running_fresh", "play", 0.6, 300.0, "running", "checkout"),
        ("running_fresh", "flow", 0.8, 90.0, "running", "billing"),
        ("running_fresh", "flow", 0.5, 150.0, "running", "search"),
        ("running_idle", "agent", 3.0, 2 * HOUR, "idle", "infra"),
        ("running_silent", "agent", 9.0, 8.4 * HOUR, "stalled", "mobile"),
        ("running_silent", "agent", 9.2, 8.5 * HOUR, "stalled", "mobile"),
        ("running_silent", "play", 11.0, 9 * HOUR, "stalled", "checkout"),
    ):
        started, last = AS_OF - hours * HOUR, AS_OF - silence
        operations = ("architect", "implementer", "reviewer") if kind == "flow" else ()
        n_first = max(1, len(operations))
        talk = [*chatter(world, started, last, n_first=n_first, has_long=False), last]
        live(
            world,
            Life(
                scenario, kind, started, None, talk, project=project, operations=operations,
                health=health, has_run_files=kind == "flow",
                timeout_s=1.5 * HOUR if kind == "flow" else None,
            ),
        )  # fmt: skip


def _schedules(world: World) -> None:
    """One keeps its time; one has not fired since Sunday night."""
    nights = [FIRST_MONDAY + DAY * day + 3 * HOUR for day in range(7 * N_WEEKS + 1)]
    thirds = [FIRST_MONDAY + 3 * DAY * day + 5 * HOUR for day in range(28)]
    for schedule in (
        Schedule(
            "schedule_well", "nightly-audit", "ok", nights[-1] + DAY,
            tuple(_fired(at) for at in nights), cron="0 3 * * *", born=FIRST_MONDAY - DAY,
        ),
        Schedule(
            "schedule_overdue", "dependency-triage", "misfired", thirds[-1] + 3 * DAY,
            tuple(_fired(at) for at in thirds), every_s=259_200, born=FIRST_MONDAY - DAY,
        ),
    ):  # fmt: skip
        plan(world, schedule)


def _fired(at: float) -> Run:
    return Run(at, "completed", "run.completed.ok", 420.0, "Run completed.", exit_code=0)

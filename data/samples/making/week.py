"""The ordinary work of two weeks: sessions drawn from known distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from making.clock import moment
from making.lives import MODELS, End, Life, live
from making.talk import chatter
from making.world import AS_OF, World
from tests.generators.templates import TEMPLATES, Template

AGENTS = ("implementer", "reviewer", "critic", "researcher", "architect", "tester")
PROJECTS = ("checkout", "billing", "search", "mobile", "infra")
PLAYBOOKS = ("feature", "bugfix", "release", "audit")
FIRST_DAY = moment("2026-05-11 00:00")
# The week before, the week of the report (Monday 18 May), and the morning after.
N_A_DAY = (12, 15, 17, 15, 13, 4, 3, 29, 34, 31, 36, 32, 8, 6, 5)


@dataclass(frozen=True)
class Sort:
    """How one kind of work behaves (see README)."""

    kind: str | None
    share: float
    median_s: float
    sigma: float
    timeout_s: float | None


SORTS = (
    Sort("agent", 0.60, 660.0, 0.75, 1_800.0),
    Sort("play", 0.10, 2_700.0, 0.40, 7_200.0),
    Sort("flow", 0.19, 3_900.0, 0.35, 5_400.0),
    Sort("fanout", 0.05, 900.0, 0.50, 1_800.0),
    Sort("engine", 0.04, 2_400.0, 0.50, None),
    Sort(None, 0.02, 660.0, 0.75, 1_800.0),
)
FATES = {
    "completed": 0.755,
    "failed": 0.17,
    "aborted": 0.03,
    "cancelled": 0.02,
    "completed_empty": 0.025,
}
PACE = {
    "completed": 1.0,
    "failed": 0.5,
    "aborted": 0.7,
    "cancelled": 0.6,
    "completed_empty": 0.3,
}
OPERATIONS = (("analyst", "critic"), ("architect", "implementer", "reviewer"))
CONTRACT = [
    {
        "id": "report",
        "path": "report.md",
        "required": True,
        "description": "what was found",
        "source": "playbook",
    },
    {"id": "notes", "path": "notes.md", "required": False, "source": "role_default"},
]


def work(world: World) -> None:
    """Two weeks of sessions, most of them in working hours."""
    for day, n_sessions in enumerate(N_A_DAY):
        for _ in range(n_sessions):
            live(world, _session(world, FIRST_DAY + 86_400.0 * day))


def failure(world: World, template: Template, ended: float) -> End:
    """A session that failed with the message of a template, its holes filled."""
    return End(
        "failed",
        ended,
        code=template.reason_code,
        summary=template.fill(**holes(world)),
        cause=template.cause,
        template_id=template.template_id,
        metadata={"exception_class": template.exception_class} if template.exception_class else {},
    )


def holes(world: World) -> dict[str, Any]:
    """Values for the holes of templates; secrets are made up."""
    directory = f"/home/op/worktrees/{world.hex(8)}"
    relative = world.one_of(("src/parser.py", "tests/test_cart.py", "lib/invoice.ts", "docs/a.md"))
    return {
        "seconds": 5 + int(world.chance.random() * 600),
        "count": 2 + int(world.chance.random() * 200),
        "size": 1_000 + int(world.chance.random() * 90_000),
        "tokens": 200_001 + int(world.chance.random() * 40_000),
        "model": world.one_of(tuple(MODELS)),
        "host": world.one_of(("api.anthropic.com:443", "api.openai.com:443")),
        "request": f"req_{world.hex(24)}",
        "secret": f"sk-test-{world.hex(32)}",
        "sha": world.hex(8),
        "uuid": world.uuid(),
        "artifact": "report",
        "relative": relative,
        "directory": directory,
        "path": f"{directory}/{relative}",
    }


def _session(world: World, midnight: float) -> Life:
    sort = world.pick({sort: sort.share for sort in SORTS})
    started, latest = _start(world, midnight), AS_OF - 120.0
    agent = world.one_of(AGENTS)
    playbook = world.one_of(PLAYBOOKS) if sort.kind in ("play", "flow") else None
    timeout = _limit(sort, agent, playbook)
    fate = world.pick(FATES)
    latent = max(20.0, world.log_normal(sort.median_s * PACE[fate], sort.sigma))
    is_cut = timeout is not None and latent > timeout
    ended = round(started + (timeout + 0.05 if is_cut and timeout else latent), 3)
    if ended > latest:
        started, ended = round(started - (ended - latest), 3), latest
    status = "timed_out" if is_cut else fate
    is_mute = status == "timed_out" and sort.kind != "flow" and world.chance.random() < 0.5
    operations = world.one_of(OPERATIONS) if sort.kind == "flow" else ()
    n_first = max(1, len(operations))
    talk = [round(started + 0.3, 3)] if is_mute else chatter(world, started, ended, n_first=n_first)
    life = Life(
        scenario="timed_out_no_turn" if is_mute else f"week_{status}",
        kind=sort.kind,
        started=started,
        end=None,
        talk=talk,
        agent=agent,
        model=world.one_of(tuple(MODELS)),
        project=world.one_of(PROJECTS),
        playbook=playbook,
        timeout_s=timeout,
        operations=operations,
        has_run_files=sort.kind == "flow" or world.chance.random() < 0.06,
        n_turns=0 if is_mute else max(1, len(talk) - n_first),
        cost_usd=round(0.031 * len(talk), 4) if world.chance.random() < 0.8 else None,
    )
    life.end = _outcome(world, life, status, ended)
    _promise(world, life)
    return life


def _start(world: World, midnight: float) -> float:
    """Three of four in working hours; the last morning ends with as-of."""
    if midnight + 86_400.0 > AS_OF:
        return round(midnight + 3_600.0 * (0.2 + 4.0 * world.chance.random()), 3)
    hour = 7 + 11 * world.chance.random() if world.chance.random() < 0.75 else None
    return round(midnight + 3_600.0 * (hour if hour else 23.5 * world.chance.random()), 3)


def _limit(sort: Sort, agent: str, playbook: str | None) -> float | None:
    if sort.kind == "flow" and playbook in ("release", "audit"):
        return 3_600.0
    if sort.kind == "agent" and agent == "researcher":
        return 900.0
    return sort.timeout_s


def _outcome(world: World, life: Life, status: str, ended: float) -> End:
    if status != "failed":
        causes = {"timed_out": "limit", "aborted": "operator", "cancelled": "runtime"}
        return End(status, ended, cause=causes.get(status, ""))
    return failure(world, _template(world), ended)


def _template(world: World) -> Template:
    """Every other failure takes the next template, so that all occur; the rest are uneven."""
    world.n_failures += 1
    if world.n_failures % 2:
        return TEMPLATES[-1 - world.n_failures // 2 % len(TEMPLATES)]
    picked: Template = world.pick(
        {template: 1.0 / (3 + place) for place, template in enumerate(TEMPLATES)}
    )
    return picked


def _promise(world: World, life: Life) -> None:
    """Some sessions promise outputs, and some of those keep the promise only in part."""
    end = life.end
    if end is None or end.status == "completed_empty":
        return
    if end.template_id == "missing_artifact":
        missing = CONTRACT[0]
        life.expected, life.produced = CONTRACT, ("notes",)
        end.summary = f"Missing required artifact: {missing['id']} ({missing['path']})."
        end.evidence = [
            {"kind": "expected_artifact", "id": missing["id"], "label": missing["path"]}
        ]
        return
    if end.template_id == "artifact_write" or world.chance.random() > 0.25:
        return
    life.expected = CONTRACT
    if end.status == "completed":
        life.produced = ("report", "notes") if world.chance.random() < 0.75 else ("report",)
    elif end.status in ("aborted", "cancelled"):
        life.has_verdict = False
    else:
        life.produced = ("notes",) if world.chance.random() < 0.5 else ()

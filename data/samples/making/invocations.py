"""Requests that cause many sessions: two fan-outs, and requests that come to nothing."""

from __future__ import annotations

from typing import Any

from making.clock import moment
from making.lives import End, Life, live
from making.talk import chatter
from making.truth import Truth
from making.week import failure
from making.world import AS_OF, World
from tests.generators.templates import BY_ID


def invocation(world: World, scenario: str, skill: str, started: float) -> tuple[str, Truth]:
    """An invocation that has begun; its truth is that it still runs."""
    name = world.hex(12)
    world.at(
        started,
        lambda store: store.create_invocation(
            {
                "id": name,
                "skill": skill,
                "plugin": "marketplace",
                "prompt": f"{skill}: work through the list",
                "started_at": started,
                "node_metadata": {"action_kind": skill},
            }
        ),
    )
    row = Truth("invocation", name, scenario, "running", reason_code="run.started.ok")
    world.is_true(row)
    return name, row


def ends(
    world: World,
    row: Truth,
    at: float,
    status: str,
    code: str,
    *,
    started: float,
    summary: str = "",
    evidence: list[dict[str, Any]] | None = None,
    cause: str = "",
    by: str = "executor",
    actor: str | None = None,
) -> None:
    """An invocation ends; its truth says how."""
    word = {"completed": "succeeded", "completed_empty": "succeeded"}.get(status, status)
    row.lifecycle = row.outcome = word
    row.delivery = "missing" if status == "completed_empty" else ""
    row.reason_code, row.cause, row.ended_by = code, cause, by
    row.duration_s = at - started
    row.__post_init__()
    world.at(
        at,
        lambda store: store.update_invocation(
            row.entity_id,
            status=status,
            ended_at=at,
            reason_code=code,
            reason_summary=summary or f"Invocation {status}.",
            evidence_refs=evidence or [],
            reason_source="executor" if by == "executor" else "system",
            reason_actor=actor or row.entity_id,
        ),
    )


def fan_out(world: World) -> None:
    """24 sessions of one invocation fail from one provider limit; another fan-out is well."""
    begun = moment("2026-05-20 14:00")
    name, row = invocation(world, "fan_out_one_cause", "fanout", begun)
    seconds, model = 3600, "claude_code/opus"
    for place in range(24):
        started = round(begun + 2 + 0.7 * place, 3)
        ended = round(begun + 412 + 40 * world.chance.random(), 3)
        template = BY_ID["rate_limit_429"]
        end = failure(world, template, ended)
        end.summary = template.fill(model=model, seconds=seconds, request=f"req_{world.hex(24)}")
        talk = chatter(world, started, ended, has_long=False)
        live(
            world,
            Life(
                "fan_out_one_cause", "fanout", started, end, talk,
                agent="reviewer", model=model, project="billing", timeout_s=1_800.0,
                invocation_id=name, n_turns=max(1, len(talk) - 1),
            ),
        )  # fmt: skip
    ends(
        world, row, begun + 460, "failed", "run.failed.exception", started=begun,
        summary="24 of 24 sessions failed.", cause="provider limit",
    )  # fmt: skip

    begun = moment("2026-05-19 09:30")
    name, row = invocation(world, "fan_out_well", "fanout", begun)
    for place in range(8):
        started = round(begun + 2 + 0.7 * place, 3)
        ended = round(started + 600 + 500 * world.chance.random(), 3)
        talk = chatter(world, started, ended, has_long=False)
        live(
            world,
            Life(
                "fan_out_well", "fanout", started, End("completed", ended), talk,
                agent="researcher", project="search", timeout_s=1_800.0,
                invocation_id=name, n_turns=max(1, len(talk) - 1), cost_usd=0.12,
            ),
        )  # fmt: skip
    ends(world, row, begun + 1_200, "completed", "run.completed.ok", started=begun)

    begun = moment("2026-05-22 10:00")
    _, row = invocation(world, "invocation_without_sessions", "review", begun)
    ends(
        world, row, begun + 640, "timed_out", "run.timed_out.deadline", started=begun,
        summary="zero_session_invocation_timeout", cause="never started", by="observer",
        evidence=[{"kind": "invocation", "id": row.entity_id}], actor="studio_lifecycle_reaper",
    )  # fmt: skip
    begun = moment("2026-05-21 16:00")
    _, row = invocation(world, "invocation_empty", "audit", begun)
    ends(
        world, row, begun + 900, "completed_empty", "run.completed_empty.no_evidence",
        started=begun, cause="no evidence",
    )  # fmt: skip
    begun = moment("2026-05-19 17:00")
    _, row = invocation(world, "invocation_cancelled", "review", begun)
    ends(world, row, begun + 300, "cancelled", "run.cancelled.system", started=begun)
    invocation(world, "invocation_running", "review", AS_OF - 1_500)

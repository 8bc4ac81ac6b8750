"""What a session and its branches were meant to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from making.truth import Truth
from making.world import World

if TYPE_CHECKING:
    from making.lives import End, Life


def mean(world: World, life: Life, branches: list[str], n_errors: int) -> None:
    """Write down the truth about a session and its branches."""
    end = life.end
    status = end.status if end else "running"
    lifecycle = "completed" if status == "completed_empty" else status
    stopped = (end.true_at or end.at) if end else None
    is_recorded = life.has_run_files and life.kind == "flow" and life.timeout_s is not None
    world.is_true(
        Truth(
            "session",
            life.session_id,
            life.scenario,
            lifecycle,
            outcome=lifecycle if end else "",
            health="ok" if end else life.health,
            delivery=_delivery(life),
            reason_code=end.code if end else "run.started.ok",
            cause=end.cause if end else "",
            template_id=end.template_id if end else "",
            duration_s=None if stopped is None else stopped - life.started,
            ended_by=end.by if end else "",
            timeout_s=life.timeout_s,
            timeout_from="checkpoint" if is_recorded else "",
            n_messages=len(life.talk),
            n_tool_errors=n_errors,
        )
    )
    is_told = end is not None and end.write is None
    word = branch_status(end) if end and is_told else "unknown"
    for branch in branches:
        world.is_true(
            Truth(
                "branch",
                branch,
                life.scenario,
                word,
                outcome=word,
                duration_s=None,
                ended_by=end.by if end and is_told else "",
            )
        )


def branch_status(end: End) -> str:
    """What the teardown writes into a branch: it did its part, whatever became of the run."""
    is_done = end.status == "completed_empty" or end.code == "run.failed.missing_artifact"
    return "completed" if is_done else end.status


def _delivery(life: Life) -> str:
    if life.delivery:
        return life.delivery
    if life.end and life.end.status == "completed_empty":
        return "missing"
    if not life.expected:
        return "not_expected"
    if not life.end or life.end.write or not life.has_verdict:
        return "unknown"
    missing = [entry for entry in life.expected if entry["id"] not in life.produced]
    if any(entry.get("required", True) for entry in missing):
        return "missing"
    return "partial" if missing else "passed"

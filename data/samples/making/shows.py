"""Shows and their plays, in the store and on disk; one of them differs (issue 1161)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from making.clock import moment
from making.invocations import ends, invocation
from making.lives import End, Life, live
from making.talk import chatter
from making.truth import Truth
from making.world import AS_OF, Call, World

_PLAY_TRUTH = {
    "pending": ("planned", "", "ok"),
    "prepared": ("queued", "", "ok"),
    "running": ("running", "", "running"),
    "redoing": ("running", "", "running"),
    "gated": ("run_complete", "", "ok"),
    "merged": ("merged", "merged", "ok"),
    "gate_failed": ("failed", "failed", "ok"),
    "escalated": ("failed", "failed", "ok"),
    "blocked": ("blocked", "unknown", "blocked"),
    "aborted_after_finish": ("cancelled", "aborted", "ok"),
}
_REASONS = {
    "pending": ("play.pending.created", ""),
    "merged": ("play.merged.ok", "Play was imported as merged."),
    "gate_failed": ("play.gate_failed.verdict", "Play was imported with a failing gate verdict."),
    "escalated": (
        "play.escalated.gate_twice",
        "Play was imported as escalated after a second gate failure.",
    ),
    "blocked": (
        "play.blocked.dep_failed",
        "Play was imported as blocked because a dependency failed.",
    ),
    "aborted_after_finish": ("run.aborted.user", "Aborted by the user after it finished."),
}


@dataclass
class Play:
    """One play as the store has it, and as the disk has it if that differs."""

    name: str
    status: str
    hours: float = 1.2
    is_linked: bool = True
    attempt: int = 1
    deps: tuple[str, ...] = ()
    on_disk: str = ""
    health: str = ""
    feedback: str = ""


@dataclass
class Show:
    """One show as it was meant."""

    scenario: str
    topic: str
    begun: float
    status: str
    health: str
    plays: tuple[Play, ...]
    reason: tuple[str, str] = ("show.active.created", "")
    ended: float | None = None
    verdict: dict[str, Any] | None = None
    is_aborted: bool = False
    project: str = "checkout"
    evidence: list[dict[str, Any]] = field(default_factory=list)


def perform(world: World) -> None:
    """Plan every show."""
    for show in _shows():
        _perform(world, show)


def _shows() -> tuple[Show, ...]:
    return (
        Show(
            "show_running", "checkout-v3", AS_OF - 7 * 3_600, "active", "running",
            (
                Play("schema", "merged"),
                Play("api", "merged", deps=("schema",)),
                Play("ui", "running", deps=("api",)),
                Play("docs", "pending", deps=("ui",), is_linked=False),
            ),
        ),
        Show(
            "show_disk_differs", "billing-split", moment("2026-05-19 08:00"), "active", "running",
            (
                Play("ledger", "merged"),
                Play(
                    "export", "gated", on_disk="merged", is_linked=False,
                ),
                Play(
                    "cleanup", "running", on_disk="merged", is_linked=False, health="stalled",
                ),
            ),
            verdict={"show_passed": True, "summary": "all plays merged", "blockers": []},
            project="billing",
        ),
        Show(
            "show_blocked", "infra-cleanup", moment("2026-05-21 08:00"), "active", "blocked",
            (
                Play("terraform", "merged"),
                Play("secrets", "gate_failed", feedback="no rotation plan"),
                Play("dns", "blocked", deps=("secrets",), is_linked=False),
                Play("backup", "escalated", attempt=2, feedback="restore was not tried"),
            ),
            project="infra",
        ),
        Show(
            "show_aborted", "search-index", moment("2026-05-20 09:00"), "aborted", "ok",
            (
                Play("reindex", "merged"),
                Play("rank", "aborted_after_finish"),
                Play("ui", "pending", deps=("rank",), is_linked=False),
            ),
            reason=("show.aborted.operator", "Show was imported with an operator abort marker."),
            ended=moment("2026-05-20 15:00"), is_aborted=True, project="search",
        ),
        Show(
            "show_completed", "mobile-login", moment("2026-05-22 07:00"), "completed", "ok",
            (Play("screen", "merged"), Play("token", "merged", deps=("screen",))),
            reason=(
                "show.completed.final_gate",
                "Show was imported with a passing final gate verdict.",
            ),
            ended=moment("2026-05-22 12:00"), project="mobile",
            verdict={"show_passed": True, "summary": "both gates passed", "blockers": []},
        ),
    )  # fmt: skip


def _perform(world: World, show: Show) -> None:
    show_id = world.uuid()
    folder = f"/home/op/shows/{show.topic}"
    cause, row = invocation(world, show.scenario, "show", show.begun)
    row.scenario = show.scenario
    world.at(
        show.begun + 1,
        lambda store: store.create_show(
            {
                "id": show_id,
                "topic": show.topic,
                "goal": f"Bring {show.topic} to an end.",
                "repo": f"/home/op/{show.project}",
                "base_branch": "main",
                "integration_branch": f"show/{show.topic}/integration",
                "status": "active",
                "show_dir": folder,
            }
        ),
    )
    if show.ended:
        code, summary = show.reason
        file = "_ABORT" if show.is_aborted else "_final_verdict.json"
        world.at(
            show.ended,
            lambda store: store.update_status(
                "show", show_id, new_status=show.status, reason_code=code,
                reason_summary=summary, source="system", actor="shows_import",
                evidence_refs=[{"kind": "file", "path": f"{folder}/{file}"}],
                metadata={"topic": show.topic},
            ),
        )  # fmt: skip
        status = "aborted" if show.is_aborted else "completed"
        ends(
            world, row, show.ended + 5, status,
            "run.aborted.user" if show.is_aborted else "run.completed.ok", started=show.begun,
            cause="operator" if show.is_aborted else "",
        )  # fmt: skip
    outcome = show.status if show.ended else ""
    world.is_true(
        Truth(
            "show", show_id, show.scenario, show.status, outcome=outcome, health=show.health,
            delivery="not_expected", reason_code=show.reason[0],
            duration_s=show.ended - show.begun if show.ended else None,

        )
    )  # fmt: skip
    _write_show(world, show)
    for place, play in enumerate(show.plays):
        _play(world, show, play, place, (show_id, cause))


def _play(world: World, show: Show, play: Play, place: int, ids: tuple[str, str]) -> None:
    show_id, invocation_id = ids
    started = round(show.begun + 120 + 4_800 * place, 3)
    ended = round(started + play.hours * 3_600, 3)
    is_over = play.status in ("merged", "gate_failed", "escalated", "aborted_after_finish")
    session = ""
    if play.is_linked:
        stop = ended if is_over else AS_OF - 150
        end = End("completed", ended) if is_over else None
        talk = chatter(world, started, stop)
        session = live(
            world,
            Life(
                show.scenario, "show-play", started, end, talk if is_over else [*talk, stop],
                agent="implementer", project=show.project, playbook="feature",
                show=(show.topic, play.name), name=f"show_{show.topic}_{play.name}",
                invocation_id=invocation_id, health="" if is_over else "running",
                n_turns=len(talk), cost_usd=round(0.03 * len(talk), 3), timeout_s=10_800.0,
            ),
        )  # fmt: skip
    has_begun = play.status not in ("pending", "blocked")
    row = {
        "id": world.uuid(),
        "show_id": show_id,
        "name": play.name,
        "playbook": "feature",
        "effort": "high",
        "status": play.status,
        "attempt": play.attempt,
        "session_id": session or None,
        "started_at": started if has_begun else None,
        "ended_at": ended + 30 if is_over else None,
        "exit_code": 0 if is_over else None,
        "worktree": f"/home/op/worktrees/{show.topic}-{play.name}",
        "branch": f"show/{show.topic}/{play.name}",
        "merge_sha": world.hex(40) if play.status == "merged" else None,
        "merged_at": ended + 40 if play.status == "merged" else None,
        "gate_passed": {"merged": 1, "gate_failed": 0, "escalated": 0}.get(play.status),
        "gate_feedback": play.feedback or None,
        "depends_on": [],
        "sort_order": place,
    }
    world.at(ended + 60 if is_over else started + 2, _imported(show, row))
    _write_play(world, show, play, row)
    lifecycle, outcome, health = _PLAY_TRUTH[play.status]
    code = _REASONS.get(play.status, ("", ""))[0]
    world.is_true(
        Truth(
            "play", str(row["id"]), show.scenario, lifecycle, outcome=outcome,
            health=play.health or health, delivery="not_expected", reason_code=code,
            cause="gate" if play.status in ("gate_failed", "escalated") else "",
            duration_s=ended + 30 - started if is_over else None,
            ended_by=_ended_by(play) if is_over else "",
        )
    )  # fmt: skip


def _imported(show: Show, row: dict[str, Any]) -> Call:
    """As lionagi's import does it: the row, then a reason for its status; one ended by itself."""

    async def create(store: Any) -> None:
        status = str(row["status"])
        is_own = status == "aborted_after_finish"
        await store.create_play({**row, "status": "running"} if is_own else row)
        if status not in _REASONS or status == "pending":
            return
        code, summary = _REASONS[status]
        await store.update_status(
            "play", row["id"], new_status=status, reason_code=code, reason_summary=summary,
            source="executor" if is_own else "system", actor=None if is_own else "shows_import",
            metadata={"topic": show.topic, "play": row["name"], "attempt": row["attempt"]},
        )  # fmt: skip

    return create


def _ended_by(play: Play) -> str:
    return "executor" if play.status == "aborted_after_finish" else "import"


def _write_show(world: World, show: Show) -> None:
    plays = "".join(
        f"**{play.name}**\n- Intent: do {play.name}\n- deps: [{', '.join(play.deps)}]\n"
        "- Acceptance: tests pass\n\n"
        for play in show.plays
    )
    world.file(
        f"shows/{show.topic}/_show.md",
        f"# Show: {show.topic}\n\n## Goal\nBring {show.topic} to an end.\n\n## Context\n"
        f"- Repo: /home/op/{show.project}\n- Base: main\n"
        f"- Integration: show/{show.topic}/integration\n\n## Plays\n\n{plays}## Decisions\n",
    )
    if show.verdict:
        world.file(f"shows/{show.topic}/_final_verdict.json", show.verdict)
    if show.is_aborted:
        world.file(f"shows/{show.topic}/_ABORT", "")


def _write_play(world: World, show: Show, play: Play, row: dict[str, Any]) -> None:
    folder = f"shows/{show.topic}/{play.name}"
    status = play.on_disk or play.status
    meta = {
        "worktree": row["worktree"],
        "branch": row["branch"],
        "attempt": play.attempt,
        "started_at": row["started_at"],
        "ended_at": row["ended_at"],
        "exit_code": row["exit_code"],
        "status": status,
        "merge_sha": row["merge_sha"],
        "effort": "high",
    }
    if play.status == "blocked":
        meta["block_reason"] = "dep_failed"
    world.file(f"{folder}/_intent.md", f"do {play.name}\n")
    world.file(f"{folder}/_meta.json", {key: kept for key, kept in meta.items() if kept})
    if row["gate_passed"] is not None or status == "merged":
        passed = status == "merged"
        world.file(
            f"{folder}/_verdict.json",
            json.dumps({"gate_passed": passed, "feedback": play.feedback or None, "notes": None}),
        )

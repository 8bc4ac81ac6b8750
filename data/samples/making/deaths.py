"""Sessions whose end somebody else wrote: reaped, killed, swept, resumed."""

from __future__ import annotations

from typing import Any

from making.clock import moment
from making.lives import End, Life, live
from making.talk import chatter
from making.week import CONTRACT, OPERATIONS
from making.world import Call, World

HOUR = 3_600.0


def phantoms(world: World) -> None:
    """A machine dies at night and takes six sessions along; a sweep notices four hours later."""
    died, noticed = moment("2026-05-21 03:12"), moment("2026-05-21 07:05")
    for place, kind in enumerate(("agent", "agent", "flow", "play", "agent", "flow")):
        started = round(died - 1_500 + 170 * place, 3)
        operations = OPERATIONS[0] if kind == "flow" else ()
        life = Life(
            "phantom_reaped", kind, started, None,
            chatter(world, started, died, n_first=max(1, len(operations))),
            project="infra", operations=operations, has_run_files=kind == "flow",
            timeout_s=5_400.0 if kind == "flow" else None,
            expected=CONTRACT if place == 0 else None,
        )  # fmt: skip
        end = End(
            "failed", noticed + place, code="session.phantom.process_dead",
            summary="phantom_reaped", cause="machine died", by="observer", true_at=died,
        )  # fmt: skip
        end.write = _reaped(life, end)
        life.end = end
        live(world, life)


def killed(world: World) -> None:
    """An operator ends five sessions; the row says when it was done, not when work stopped."""
    for place, (signal, after_s) in enumerate(
        (
            ("sigterm", 0.0),
            ("sigkill", 0.0),
            ("already_dead", 2_400.0),
            ("stale", 9_000.0),
            ("stale", 12_000.0),
        )
    ):
        started = moment("2026-05-22 08:00") + 2_000 * place
        died = round(started + 1_300 + 200 * place, 3)
        life = Life(
            f"killed_{signal}", "agent", started, None, chatter(world, started, died),
            agent="tester", project="mobile", timeout_s=1_800.0,
        )  # fmt: skip
        end = End(
            "cancelled", round(died + after_s, 3), cause="operator", by="observer", true_at=died,
            code={
                "sigkill": "run.cancelled.force_kill", "stale": "run.cancelled.stale_auto",
            }.get(signal, "run.cancelled.manual_kill"),
        )  # fmt: skip
        end.write = _killed(life, end, signal)
        life.end = end
        live(world, life)


def swept(world: World) -> None:
    """`li state doctor` ends a session a day after it went silent; a daemon missed another."""
    started = moment("2026-05-18 10:00")
    died = started + 4_000
    life = Life(
        "swept_by_doctor", "play", started, None, chatter(world, started, died),
        playbook="bugfix", project="search", timeout_s=7_200.0,
    )  # fmt: skip
    end = End(
        "aborted", started + 26 * HOUR, code="session.stale.no_heartbeat",
        summary="doctor sweep: running longer than 24h", cause="process lost", by="observer",
        true_at=died,
    )  # fmt: skip

    async def sweep(store: Any) -> None:
        await store.update_status(
            "session", life.session_id, new_status="aborted", reason_code=end.code,
            reason_summary=end.summary, source="admin", actor="doctor",
            evidence_refs=[
                {"kind": "session_health", "health": "stale", "session_id": life.session_id}
            ],
            expected_statuses={"running"},
            extra_fields={"ended_at": end.at, "current_phase": None},
        )  # fmt: skip

    end.write = sweep
    life.end = end
    live(world, life)


def resumed(world: World) -> None:
    """A session times out, is resumed by hand, and ends well; a late report is refused."""
    started = moment("2026-05-20 08:00")
    last = started + 7_000
    life = Life(
        "resumed_after_timeout", "agent", started, None,
        chatter(world, started, started + 1_800, has_long=False),
        agent="implementer", project="billing", timeout_s=1_800.0, n_turns=12,
    )  # fmt: skip
    end = End("completed", last, true_at=last)

    async def close(store: Any) -> None:
        await store.update_status(
            "session", life.session_id, new_status="completed", reason_code=end.code,
            reason_summary=end.summary, source="executor", actor=life.session_id,
            extra_fields={"ended_at": last, "duration_ms": (last - started) * 1000},
        )  # fmt: skip

    end.write = close
    life.end = end
    live(world, life)

    async def time_out(store: Any) -> None:
        await store.update_status(
            "session", life.session_id, new_status="timed_out",
            reason_code="run.timed_out.deadline",
            reason_summary="Run exceeded the configured timeout.",
            source="executor", actor=life.session_id,
            metadata={"exception_class": "TimeoutError"},
            extra_fields={"ended_at": started + 1_800},
        )  # fmt: skip

    async def resume(store: Any) -> None:
        await store.update_status(
            "session", life.session_id, new_status="running",
            reason_code="session.reopened.by_resume",
            reason_summary="branch resumed by a new leg", source="executor",
            actor=life.session_id, override=True, override_actor="resume",
            override_justification="li agent -r",
        )  # fmt: skip

    async def too_late(store: Any) -> None:
        from lionagi.state.db import TransitionRejectedError

        try:
            await store.update_status(
                "session", life.session_id, new_status="failed",
                reason_code="run.failed.exception", reason_summary="late report",
                source="executor", actor="executor",
            )  # fmt: skip
        except TransitionRejectedError:
            return

    world.at(started + 1_800.01, time_out)
    world.at(started + 4_200, resume)
    world.at(last + 60, too_late)


def _reaped(life: Life, end: End) -> Call:
    async def reap(store: Any) -> None:
        await store.update_status(
            "session", life.session_id, new_status="failed", reason_code=end.code,
            reason_summary="phantom_reaped",
            evidence_refs=[
                {
                    "kind": "phantom_classification",
                    "reason": "process_dead",
                    "session_id": life.session_id,
                }
            ],
            source="system", actor="studio_lifecycle_reaper",
            metadata={"phantom_reaped": True, "phantom_reason": "process_dead"},
            expected_statuses={"running"},
            extra_fields={"current_phase": None, "ended_at": end.at},
        )  # fmt: skip

    return reap


def _killed(life: Life, end: End, signal: str) -> Call:
    """As `li kill` does it, with lionagi's own function."""

    async def kill(store: Any) -> None:
        from lionagi.cli.kill import _persist_cancel

        if signal == "stale":
            summary = "Stale auto-cancel: process dead or no PID."
            evidence = {
                "kind": "stale_kill", "pid": 4711, "pid_alive": False, "identity_verdict": None,
                "killed_at": end.at, "threshold_seconds": 3600,
            }  # fmt: skip
        else:
            summary = (
                "Force-killed (SIGKILL after grace period)."
                if signal == "sigkill"
                else "Manually cancelled via `li kill`."
            )
            evidence = {"kind": "kill_event", "signal": signal, "pid": 4711, "killed_at": end.at}
        await _persist_cancel(
            store, "session", life.session_id, reason_code=end.code, reason_summary=summary,
            evidence=evidence,
        )  # fmt: skip

    return kill

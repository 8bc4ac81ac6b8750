"""Sessions that lionagi did not run itself: mirrored transcripts and imported directories."""

from __future__ import annotations

import json
from typing import Any

from making.clock import moment
from making.lives import End, Life, live
from making.truth import Truth
from making.world import AS_OF, Call, World


def mirrored(world: World) -> None:
    """Claude Code sessions that were read from transcripts: no process, an end by silence."""
    for place in range(8):
        started = round(moment("2026-05-18 15:00") + 70_000 * place, 3)
        spoken = [started + 5, started + 400 + 60 * place]
        is_error = place == 5
        is_back = place == 6
        life = Life(
            "mirrored_back" if is_back else "mirrored_failed" if is_error else "mirrored",
            "agent", AS_OF - 3_000 if is_back else started, None,
            [AS_OF - 2_990, AS_OF - 600] if is_back else spoken,
            agent="claude-code", project="mobile", name="Claude Code session",
        )  # fmt: skip
        quiet = (AS_OF - 2_000) if is_back else spoken[-1] + 300
        end = End(
            "failed" if is_error else "completed", quiet,
            code="run.failed.provider_retryable" if is_error else "run.completed.ok",
            summary="mirror provider error: rate_limit"
            if is_error
            else "mirror session became idle",
            cause="provider limit" if is_error else "", by="observer", true_at=spoken[-1],
        )  # fmt: skip
        end.write = _idle(life, end)
        if is_back:
            life.health = "running"
            world.at(AS_OF - 2_000, _idle(life, end))
            world.at(AS_OF - 601, _back(life))
        else:
            life.end = end
        live(world, life)
        world.by_sql(
            "UPDATE sessions SET cc_session_id = ?, node_metadata = ?, model = ?, run_id = NULL,"
            " provider = 'anthropic' WHERE id = ?",
            world.uuid(), json.dumps({"process_identity_mode": "external"}),
            "<synthetic>" if place == 3 else "claude-sonnet-4-5", life.session_id,
        )  # fmt: skip
        if is_back:
            # Issue 3018: the mirror reopens the row and forgets the end.
            world.by_sql(
                "UPDATE sessions SET ended_at = ? WHERE id = ?", AS_OF - 2_000, life.session_id
            )
            world.truth_of(life.session_id).ended_by = "observer"


def imported(world: World) -> None:
    """Runs that were read from their directories later; two have no end of their own."""
    for place in range(6):
        name = world.uuid()
        started = round(moment("2026-05-13 10:00") + 50_000 * place, 3)
        status = "failed" if place in (1, 4) else "completed"
        has_end = place < 4
        row: dict[str, Any] = {
            "id": name,
            "created_at": started,
            "updated_at": started + 1_500,
            "started_at": started,
            "last_message_at": started + 1_450,
            "ended_at": started + 1_500 if has_end else None,
            "name": "agent",
            "progression_id": world.uuid(),
            "status": status,
            "source_kind": "imported_fs",
            "invocation_kind": "agent",
            "agent_name": "implementer",
            "model": "claude_code/sonnet",
            "provider": "claude_code",
            "project": "search",
            "project_source": "explicit",
        }
        world.at(moment("2026-05-24 20:00") + place, created(row))
        world.is_true(
            Truth(
                "session", name, "imported" if has_end else "imported_without_end", status,
                outcome=status, health="ok", delivery="not_expected",
                duration_s=1_500.0 if has_end else None, ended_by="import", n_messages=0,
                cause="not recorded" if status == "failed" else "",
            )
        )  # fmt: skip


def created(row: dict[str, Any]) -> Call:
    """The creation of a session that is over, as an import makes it."""

    async def create(store: Any) -> None:
        await store.create_progression(row["progression_id"])
        await store.create_session(row)

    return create


def _idle(life: Life, end: End) -> Call:
    async def reconcile(store: Any) -> None:
        await store.update_status(
            "session", life.session_id, new_status=end.status, reason_code=end.code,
            reason_summary=end.summary, source="system", actor="claude_mirror",
            extra_fields={"ended_at": end.at},
        )  # fmt: skip

    return reconcile


def _back(life: Life) -> Call:
    async def reactivate(store: Any) -> None:
        await store.update_status(
            "session", life.session_id, new_status="running", reason_code="run.started.ok",
            reason_summary="mirror session reactivated because transcript resumed within"
            " live_window",
            source="system", actor="claude_mirror", override=True,
            override_actor="claude_mirror", override_justification="transcript resumed",
        )  # fmt: skip

    return reactivate

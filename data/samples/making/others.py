"""Teams, engine runs, notifications, operators' decisions and administration."""

from __future__ import annotations

import json
from typing import Any

from making.clock import moment
from making.lives import End, Life, live
from making.talk import chatter
from making.truth import Truth
from making.world import AS_OF, Call, World


def complete(world: World) -> None:
    """Plan the smaller entities."""
    teams(world)
    engines(world)
    dispatches(world)
    decisions(world)
    administration(world)


def teams(world: World) -> None:
    """Three teams with messages; one was archived by an operator."""
    for place, (name, members) in enumerate(
        (
            ("review-crew", ["alice", "bob"]),
            ("night-shift", ["carol", "dave", "erin"]),
            ("old-crew", ["alice", "bob"]),
        )
    ):
        team, begun = world.hex(12), moment("2026-05-18 09:00") + 3_600 * place
        # lionagi writes teams only in its import of team files; these are its statements.
        world.at(
            begun,
            _executed(
                "INSERT INTO teams (id, name, created_at, updated_at, member_count, members,"
                " status) VALUES (?, ?, ?, ?, ?, ?, 'active')",
                team, name, begun, begun, len(members), json.dumps(members),
            ),
        )  # fmt: skip
        for nth in range(4):
            when = begun + 300 * nth
            world.at(
                when,
                _executed(
                    "INSERT INTO team_messages (id, team_id, created_at, sender, recipient,"
                    " content, read_by) VALUES (?, ?, ?, ?, 'all', ?, ?)",
                    world.hex(12), team, when, members[nth % len(members)],
                    f"done with part {nth}", json.dumps(members[:1]),
                ),
            )  # fmt: skip
        is_archived = name == "old-crew"
        if is_archived:
            world.at(begun + 90_000, _archived(team))
        world.is_true(
            Truth(
                "team", team, "team", "closed" if is_archived else "active", health="ok",
                reason_code="team.archived.operator" if is_archived else "",
            )
        )  # fmt: skip


def engines(world: World) -> None:
    """Engine runs: done, failed, cancelled, and one that runs with its session."""
    cases = (
        ("research", "completed", None),
        ("review", "completed", None),
        ("coding", "failed", "RuntimeError: no candidate passed the gate"),
        ("planning", "cancelled", None),
        ("hypothesis", "running", None),
    )
    for place, (kind, status, error) in enumerate(cases):
        name = world.hex(32)
        is_open = status == "running"
        started = AS_OF - 2_400 if is_open else moment("2026-05-19 14:00") + 40_000 * place
        ended = started + 1_800
        stop = AS_OF - 90 if is_open else ended - 5
        talk = chatter(world, started, stop, has_long=False)
        words = {"failed": ("run.failed.exception", error or "")}.get(status, ("", ""))
        end = None if is_open else End(status, ended - 3, *words, cause="gate" if error else "")
        session = live(
            world,
            Life(
                "engine", "engine", started, end, [*talk, stop] if is_open else talk,
                agent="researcher", project="search", health="running" if is_open else "",
                n_turns=len(talk),
            ),
        )  # fmt: skip
        world.at(started + 1, _begun(name, kind, started, session))
        if not is_open:
            world.at(ended, _over(name, status, ended, error))
        world.is_true(
            Truth(
                "engine_run", name, "engine", status, outcome="" if is_open else status,
                health="running" if is_open else "ok", cause="gate" if error else "",
                duration_s=None if is_open else ended - started,
                ended_by="" if is_open else "executor",
            )
        )  # fmt: skip


def dispatches(world: World) -> None:
    """Notifications through lionagi's outbox; its transport is `true` or `false`."""
    begun = moment("2026-05-20 14:10")
    cases = (
        ("delivered", ["true", "{deliver_to}"], {}, "dispatch.delivered.transport_ok"),
        ("delivered", ["true", "{deliver_to}"], {}, "dispatch.delivered.transport_ok"),
        (
            "dead_letter",
            ["false", "{deliver_to}"],
            {"max_attempts": 2},
            "dispatch.dead_letter.max_attempts",
        ),
        ("acked", ["true", "{deliver_to}"], {"ack_required": True}, "dispatch.acked.consumer"),
        ("expired", ["false", "{deliver_to}"], {"expires_at": 20.0}, "dispatch.expired.deadline"),
    )
    truths = {
        "delivered": ("succeeded", "succeeded", "ok"),
        "acked": ("succeeded", "succeeded", "ok"),
        "dead_letter": ("failed", "failed", "ok"),
        "expired": ("timed_out", "timed_out", "ok"),
        "pending": ("pending", "", "due"),
    }
    waiting = ("pending", ["false", "{deliver_to}"], {}, "dispatch.pending.enqueued")
    for place, (status, command, more, code) in enumerate((*cases, waiting)):
        when = AS_OF - 1_000 if status == "pending" else begun + 7_200 * place
        options = dict(more)
        if "expires_at" in options:
            options["expires_at"] = when + options["expires_at"]
        row = Truth(
            "dispatch", f"dispatch {place}", f"dispatch_{status}", truths[status][0],
            outcome=truths[status][1], health=truths[status][2], reason_code=code,
        )  # fmt: skip
        world.is_true(row)
        world.at(when, _enqueued(row, place, options))
        if status == "pending":
            continue
        for nth in range(2 if status == "dead_letter" else 1):
            world.at(when + 30 + 120 * nth, _delivered(command))
        if status == "acked":
            world.at(when + 45, _acked(row))


def decisions(world: World) -> None:
    """What an operator decided about items that needed attention."""
    failed = [
        row.entity_id
        for row in world.truth
        if row.entity_type == "session" and row.scenario == "week_failed"
    ]
    cases: tuple[tuple[str, str, str | None, float | None, float], ...] = (
        (f"run:{failed[-1]}", "acknowledged", "looked at it", None, 3_600),
        (f"run:{failed[-2]}", "snoozed", "tomorrow", 20 * 3_600, 7_200),
        (f"run:{failed[-3]}", "snoozed", "after lunch", -10 * 3_600, 40_000),
        (f"run:{failed[-4]}", "expected", "known outage", 40 * 3_600, 9_000),
        (f"run:{failed[-5]}", "resolved", None, None, 10_000),
    )
    sequence = 0
    for item, state, note, expires_in, ago in cases:
        now = AS_OF - ago
        sequence += 1
        world.at(
            now,
            _executed(
                "INSERT INTO attention_dispositions (item_id, state, note, created_at,"
                " updated_at, expires_at, actor, source_status, revision)"
                " VALUES (?, ?, ?, ?, ?, ?, 'operator', 'failed', 1)",
                item, state, note, now, now,
                None if expires_in is None else AS_OF + expires_in,
            ),
        )  # fmt: skip
        world.at(now, _remembered(world, item, sequence, now, states=(None, state), note=note))
    now, sequence = AS_OF - 3_000, sequence + 1
    item = f"run:{failed[-6]}"
    world.at(
        now, _remembered(world, item, sequence, now, states=("acknowledged", "open"), note=None)
    )


def administration(world: World) -> None:
    """Maintenance, and a request to a running session that nobody finished."""
    for when, action, details in (
        (moment("2026-05-18 04:00"), "checkpoint", {"mode": "TRUNCATE", "busy": 0}),
        (moment("2026-05-22 04:00"), "vacuum", {"bytes_before": 4_100_000}),
        (moment("2026-05-24 04:00"), "prune", {"keep_days": 30, "sessions": 0}),
    ):
        world.at(when, _noted(action, details))
    busy = next(row for row in world.truth if row.scenario == "running_long_and_alive")
    world.at(AS_OF - 700, _asked(busy.entity_id))
    for version, text in enumerate(("timeout: 5400\n", "timeout: 3600\n")):
        world.at(
            moment("2026-05-11 08:00") + 7 * 86_400 * version,
            lambda store, text=text: store.save_definition(
                kind="playbook", name="release", path="/home/op/playbooks/release.yaml",
                content=f"name: release\n{text}", message="sharper limit",
            ),
        )  # fmt: skip


def _executed(sql: str, *values: object) -> Call:
    return lambda store: store.execute(sql, values)


def _archived(team: str) -> Call:
    return lambda store: store.update_status(
        "team", team, new_status="archived", reason_code="team.archived.operator",
        reason_summary="No longer needed.", source="admin", actor="operator",
    )  # fmt: skip


def _begun(name: str, kind: str, started: float, session: str) -> Call:
    return lambda store: store.insert_engine_run(
        run_id=name, kind=kind, spec_json={"prompt": f"{kind} the index"}, started_at=started,
        session_id=session,
    )  # fmt: skip


def _over(name: str, status: str, ended: float, error: str | None) -> Call:
    return lambda store: store.update_engine_run(name, status=status, ended_at=ended, error=error)


def _enqueued(row: Truth, place: int, options: dict[str, Any]) -> Call:
    async def enqueue(store: Any) -> None:
        from lionagi.dispatch.outbox import enqueue_dispatch

        # lionagi gives the id; it is known only now.
        row.entity_id = await enqueue_dispatch(
            store, kind="terminal_notify", deliver_to="ops",
            body={"text": f"notification {place}"}, dedup_key=f"notification:{place}", **options,
        )  # fmt: skip

    return enqueue


def _delivered(command: list[str]) -> Call:
    async def deliver(store: Any) -> None:
        from lionagi.dispatch.outbox import deliver_due_dispatches

        await deliver_due_dispatches(store, notify_template=command)

    return deliver


def _acked(row: Truth) -> Call:
    async def acknowledge(store: Any) -> None:
        from lionagi.dispatch.outbox import ack_dispatch, get_dispatch

        stored = await get_dispatch(store, row.entity_id)
        await ack_dispatch(store, row.entity_id, stored["ack_token"])

    return acknowledge


def _remembered(
    world: World,
    item: str,
    sequence: int,
    now: float,
    *,
    states: tuple[str | None, str],
    note: str | None,
) -> Call:
    prior, state = states
    return _executed(
        "INSERT INTO attention_disposition_history (id, item_id, sequence, prior_state,"
        " new_state, note, actor, source_status, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, 'operator', 'failed', ?)",
        world.hex(32), item, sequence, prior, state, note, now,
    )  # fmt: skip


def _noted(action: str, details: dict[str, Any]) -> Call:
    return lambda store: store.insert_admin_event(action=action, details=details, actor="operator")


def _asked(session: str) -> Call:
    async def ask(store: Any) -> None:
        await store.insert_session_control(session_id=session, verb="pause")
        await store.insert_session_control(
            session_id=session, verb="message", payload={"text": "please wrap up"}
        )

    return ask

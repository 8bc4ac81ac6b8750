"""Rows with a flaw: promises half kept, hostile text, no status, contradictions."""

from __future__ import annotations

import json
from typing import Any

from making.clock import moment
from making.lives import End, Life, live
from making.outside import created
from making.talk import chatter
from making.truth import Truth
from making.week import CONTRACT, OPERATIONS
from making.world import World


def promises(world: World) -> None:
    """The rarer fates of a promise: broken as JSON, forgotten, kept with a caveat."""
    started = moment("2026-05-19 11:00")
    life = Life(
        "contract_broken", "agent", started, End("completed", started + 700),
        chatter(world, started, started + 700), expected=CONTRACT,
        produced=("report", "notes"), delivery="invalid", n_turns=3,
    )  # fmt: skip
    live(world, life)
    world.by_sql(
        "UPDATE sessions SET artifact_contract_json = ? WHERE id = ?",
        '{"expected": [{"id": "report", "path"', life.session_id,
    )  # fmt: skip
    started += 2_000
    live(
        world,
        Life(
            "contract_without_verdict", "agent", started, End("completed", started + 800),
            chatter(world, started, started + 800), expected=CONTRACT, has_verdict=False,
            n_turns=2,
        ),
    )  # fmt: skip
    for code, summary in (
        (
            "run.completed.gate_rejected",
            "DAG completed successfully; 1 gate(s) rejected (critic) and their dependent subtree"
            " was short-circuited instead of running against the rejected baseline.",
        ),
        (
            "run.completed.spawn_refused",
            "2 reactive spawn request(s) were refused because the run's spawn capacity was"
            " exhausted.",
        ),
    ):
        started += 2_000
        end = End(
            "completed", started + 3_100, code=code, summary=summary, cause="caveat",
            evidence=[{"kind": "gate", "id": "critic", "label": "critic"}],
        )  # fmt: skip
        live(
            world,
            Life(
                "completed_with_caveat", "flow", started, end,
                chatter(world, started, started + 3_100, n_first=2),
                operations=OPERATIONS[0], playbook="feature", timeout_s=5_400.0,
                has_run_files=True, n_turns=9, cost_usd=0.4,
            ),
        )  # fmt: skip
    started += 2_000
    end = End(
        "failed", started + 1_900, code="run.failed.escalated", cause="escalated",
        summary="1 operation(s) escalated without producing required output: critic.",
        evidence=[{"kind": "escalation", "id": "critic", "label": "critic"}],
    )  # fmt: skip
    live(
        world,
        Life(
            "escalated", "flow", started, end,
            chatter(world, started, started + 1_900, n_first=2), operations=OPERATIONS[0],
            playbook="feature", timeout_s=5_400.0, has_run_files=True, n_turns=5,
        ),
    )  # fmt: skip


def hostile_text(world: World) -> None:
    """Failures whose text attacks whoever shows it. All of it is test data and harmless."""
    texts = {
        "hostile_script": "[test data] ValueError: </script><script>window.TEST_DATA=1</script>"
        "<img src=x onerror=window.TEST_DATA=2>",
        "hostile_terminal": "[test data] ToolError: \x1b[31mred\x1b[0m \x1b]0;title\x07 and"
        " \u202egnidaer\u202c backwards",
        "hostile_formula": '=HYPERLINK("http://example.org/test-data";"[test data] click")',
    }
    for place, (name, text) in enumerate(texts.items()):
        started = moment("2026-05-23 12:00") + 900 * place
        end = End(
            "failed", started + 300, code="run.failed.exception", summary=text,
            cause="test data", template_id=name, metadata={"exception_class": "ValueError"},
        )  # fmt: skip
        live(
            world,
            Life(
                name, "agent", started, end, [started + 0.3, started + 60],
                project="checkout", first_words=text, n_turns=1,
                name="[test data] <b>bold</b> & 'quoted'" if place == 0 else None,
            ),
        )  # fmt: skip
    started = moment("2026-05-23 13:00")
    live(
        world,
        Life(
            "looks_like_secrets", "agent", started, End("completed", started + 400),
            [started + 0.3, started + 90], project="infra", n_turns=1, cost_usd=0.03,
            first_words="[test data] use Authorization: Bearer test-0123456789abcdef0123456789"
            " or api_key=sk-test-00000000000000000000000000000000, mail dev@example.org,"
            " work in /home/op/private",
        ),
    )  # fmt: skip


def legacy(world: World) -> None:
    """Twelve rows from before sessions had a status."""
    for place in range(12):
        name, steps = world.uuid(), world.uuid()
        started = round(moment("2026-05-11 09:00") + 31_000 * place, 3)
        row = {
            "id": name,
            "created_at": started,
            "updated_at": started + 900,
            "started_at": started if place % 2 else None,
            "last_message_at": started + 880,
            "name": "agent",
            "progression_id": steps,
            "status": None,
            "invocation_kind": "agent" if place % 3 else None,
            "agent_name": "implementer",
            "model": "claude_code/sonnet",
            "provider": "claude_code",
            "project": "checkout",
            "project_source": "explicit",
        }
        world.at(started, created(row))
        world.is_true(
            Truth(
                "session", name, "legacy_no_status", "unknown", outcome="unknown",
                health="unknown", delivery="not_expected", is_legacy=True, n_messages=0,
            )
        )  # fmt: skip


def odd_rows(world: World) -> None:
    """Rows that contradict themselves, each as real stores have them."""
    begun = moment("2026-05-18 13:00")

    def odd(scenario: str, place: int, **more: Any) -> Life:
        started = begun + 1_800 * place
        life = Life(
            scenario, "agent", started, End("completed", started + 600),
            chatter(world, started, started + 600), project="mobile", n_turns=2, **more,
        )  # fmt: skip
        live(world, life)
        return life

    for place, word in enumerate(("done", "")):
        life = odd("unknown_status", place)
        world.by_sql("UPDATE sessions SET status = ? WHERE id = ?", word, life.session_id)
        row = world.truth_of(life.session_id)
        row.lifecycle = row.outcome = row.health = "unknown"
        row.is_legacy = True
        row.__post_init__()
    life = odd("unknown_reason_code", 2)
    for sql in (
        "UPDATE sessions SET status_reason_code = ? WHERE id = ?",
        "UPDATE status_transitions SET reason_code = ? WHERE entity_id = ? AND status <> 'running'",
    ):
        world.by_sql(sql, "run.completed.lights_out", life.session_id)
    world.truth_of(life.session_id).reason_code = "run.completed.lights_out"
    for place in (3, 4, 5):
        life = odd("no_end", place)
        world.by_sql(
            "UPDATE sessions SET ended_at = NULL, duration_ms = NULL WHERE id = ?",
            life.session_id,
        )
        world.truth_of(life.session_id).ended_by = ""
    life = odd("end_before_start", 6)
    world.by_sql(
        "UPDATE sessions SET ended_at = started_at - 40, duration_ms = 0 WHERE id = ?",
        life.session_id,
    )
    life = odd("double_encoded", 7)
    world.by_sql(
        "UPDATE sessions SET node_metadata = ? WHERE id = ?",
        json.dumps(json.dumps({"pid": 4242, "run_id": "kept"})), life.session_id,
    )  # fmt: skip
    life = odd("text_for_a_number", 8)
    world.by_sql("UPDATE sessions SET num_turns = 'several' WHERE id = ?", life.session_id)
    for _ in range(2):
        steps = world.uuid()
        world.at(begun, lambda store, steps=steps: store.create_progression(steps))

"""Agent Orchestrator's rules over words and ages: every engine, every odd input."""

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.errors import ArgumentError, MissingColumnsError
from stateanalytics.systems.agent_orchestrator.constants import WatcherThresholds
from stateanalytics.systems.agent_orchestrator.features import classify_web_attention
from stateanalytics.systems.agent_orchestrator.mapped_axes import find_traps, reattribute_ends
from stateanalytics.systems.agent_orchestrator.mapping import AXES, map_axes
from stateanalytics.systems.agent_orchestrator.mapping_table import map_go_words, map_legacy_words
from stateanalytics.systems.agent_orchestrator.statuses import (
    EVENT_PRIORITIES,
    classify_go_pull_requests,
    derive_go_status,
    derive_legacy_status,
    name_primary_reason,
)
from stateanalytics.systems.agent_orchestrator.words import LEGACY_STATUSES
from tests.conformance.agent_orchestrator.activity import classify_activity, decay_log_entries
from tests.conformance.agent_orchestrator.agent_report import (
    interpret_reports,
    judge_report_freshness,
    validate_reports,
)
from tests.conformance.agent_orchestrator.agent_report_effect import apply_reports
from tests.conformance.agent_orchestrator.detecting import DetectingBudget, decide_detecting
from tests.conformance.agent_orchestrator.detecting_replay import replay_detecting
from tests.conformance.agent_orchestrator.event_kinds import event_kinds
from tests.conformance.agent_orchestrator.events import classify_events, classify_status_changes
from tests.conformance.agent_orchestrator.mapping_detectors import add_detector_reasons
from tests.conformance.agent_orchestrator.pull_request import pull_request_events
from tests.conformance.agent_orchestrator.recovery import classify_recovery
from tests.conformance.agent_orchestrator.report_watcher import watch_reports
from tests.conformance.agent_orchestrator.roles import find_orchestrators
from tests.conformance.agent_orchestrator.terminality import classify_terminality
from tests.engines import Engine, assert_same_rows, on_every_engine
from tests.examples import examples

START = datetime(2026, 5, 1, 12, tzinfo=UTC)
TRAPS = {
    "session_state": "terminated",
    "session_reason": "runtime_lost",
    "runtime_state": "exited",
    "legacy_status": "killed",
    "stored_status": "killed",
    "detecting_attempts": 0,
    "created_age_s": 900.0,
    "terminated_age_s": 100.0,
    "restored_age_s": None,
    "transition_age_s": 85.0,
}
WORDS = dict.fromkeys((*AXES, "previous_status"), "open") | {"session_state": "working"}

# Every rule that takes a frame of any engine, with one row that it can read.
ROWS: dict[Callable[..., Any], dict[str, Any]] = {
    derive_legacy_status: WORDS,
    classify_terminality: WORDS | {"has_lifecycle": True, "status": "stuck", "activity": "exited"},
    decay_log_entries: {"entry_state": "blocked", "entry_age_s": 301.0},
    interpret_reports: {"report_state": "completed"},
    judge_report_freshness: {"report_age_s": 300.0},
    validate_reports: WORDS | {"kind": "worker"},
    watch_reports: {
        "status": "idle",
        "kind": "worker",
        "created_age_s": 9000.0,
        "report_state": "completed",
        "report_age_s": 1800.0,
    },
    pull_request_events: {"previous_pr_state": "open", "pr_state": "closed"},
    classify_events: {"event_type": "merge.ready"},
    classify_status_changes: {"new_status": "ci_failed"},
    name_primary_reason: WORDS,
    map_axes: WORDS,
    add_detector_reasons: {f"reason_{place}": "run.health.stalled" for place in range(7)}
    | {
        "reason_codes": "",
        "health": "running",
        "outcome": None,
        "evidence": "signal_disagreement runtime=alive process=dead",
        "is_detecting_escalated": False,
        "is_recovery_escalated": False,
        "watcher_trigger": "no_acknowledge",
        "signal_state": "null",
        "is_cleanup_deferred": False,
    },
    map_legacy_words: {"status": "cleanup", "has_pr": True},
    map_go_words: {"status": "exited"},
    classify_web_attention: WORDS | {"status": "working", "activity": "idle"},
    find_traps: TRAPS,
    reattribute_ends: TRAPS
    | {
        "is_kill_doubtful": True,
        "is_flickering": False,
        "has_kill_event": False,
        "is_worktree_gone": True,
    },
    classify_recovery: {
        "runtime_alive": True,
        "workspace_exists": True,
        "agent_running": False,
        "status": "working",
        "runtime_probe_ok": True,
        "process_probe_ok": True,
        "has_handle": True,
    },
    classify_go_pull_requests: {
        "pr_state": "open",
        "ci_state": "passing",
        "review_decision": "approved",
        "mergeability": "blocked",
        "n_unresolved_comments": 0,
    },
    derive_go_status: {
        "is_terminated": False,
        "activity_state": "idle",
        "activity_age_s": 91.0,
        "has_hooks": True,
        "has_signal": False,
        "has_merged_pr": False,
        "worst_pr_status": "ci_failed",
    },
}
DTYPES = {bool: pl.Boolean, int: pl.Int64, float: pl.Float64, type(None): pl.Float64}
TEXTS = {"outcome": pl.String}
every_rule = pytest.mark.parametrize("rule", list(ROWS), ids=lambda rule: rule.__name__)


def frame_of(rule: Callable[..., Any]) -> pl.DataFrame:
    """The row, the same row again, and one that is null throughout."""
    row = ROWS[rule]
    schema = {name: DTYPES.get(type(value), pl.String) for name, value in row.items()} | {
        name: dtype for name, dtype in TEXTS.items() if name in row
    }
    return pl.DataFrame([row, row, dict.fromkeys(row)], schema=schema)


@every_rule
@on_every_engine
def test_every_engine_gives_the_same_rows(engine: Engine, rule: Callable[..., Any]) -> None:
    frame = frame_of(rule)
    assert_same_rows(engine.back(rule(engine.of(frame))), rule(frame))


@every_rule
def test_rows_are_kept_and_read_one_by_one(rule: Callable[..., Any]) -> None:
    frame = frame_of(rule)
    judged = rule(frame)
    assert judged.height == frame.height
    assert judged.row(0) == judged.row(1)
    assert rule(frame.reverse()).equals(judged.reverse())
    assert rule(frame.clear()).equals(judged.clear())


@every_rule
def test_a_missing_column_says_what_is_needed(rule: Callable[..., Any]) -> None:
    with pytest.raises(MissingColumnsError, match=rf"(?s){rule.__name__} needs columns \[.*Hint: "):
        rule(pl.DataFrame({"unrelated": [1]}))


@every_rule
def test_every_rule_is_documented(rule: Callable[..., Any]) -> None:
    assert inspect.getdoc(rule)


# --- activity --------------------------------------------------------------------------


def signal(activity: str | None, age_s: float | None) -> dict[str, Any]:
    at = None if age_s is None else START - timedelta(seconds=age_s)
    frame = pl.DataFrame(
        {"at": [START], "activity": [activity], "activity_source": ["native"], "activity_at": [at]},
        schema_overrides={"activity": pl.String, "activity_at": pl.Datetime("us", "UTC")},
    )
    return classify_activity(frame).row(0, named=True)


@pytest.mark.parametrize(
    ("activity", "age_s", "state", "freshness", "idle", "live"),
    [
        ("active", 60, "valid", "strong", False, True),
        ("active", 60.001, "valid", "weak", False, True),
        ("ready", 300, "valid", "weak", False, True),
        ("ready", 300.001, "stale", "stale", False, False),
        ("active", None, "valid", "none", False, False),
        ("active", -3600, "valid", "strong", False, True),
        ("idle", 86_400, "valid", "stale", True, False),
        ("blocked", None, "stale", "none", False, False),
        ("exited", 0, "valid", "strong", False, False),
        (None, None, "null", "none", False, False),
    ],
)
def test_a_signal_is_as_good_as_its_age(
    activity: str | None, age_s: float | None, state: str, freshness: str, idle: bool, live: bool
) -> None:
    row = signal(activity, age_s)
    assert (row["signal_state"], row["freshness"]) == (state, freshness)
    assert (row["is_idle_evidence"], row["is_liveness_evidence"]) == (idle, live)


def test_a_sticky_entry_stays_for_ever_only_in_the_last_version() -> None:
    day = pl.DataFrame({"entry_state": ["waiting_input"], "entry_age_s": [86_400.0]})
    states = [
        decay_log_entries(day, version=version)["actionable_state"].item()
        for version in ("head", "final")
    ]
    assert states == [None, "waiting_input"]


def test_a_short_ready_threshold_shortens_the_active_window() -> None:
    entry = pl.DataFrame({"entry_state": ["active"], "entry_age_s": [20.0]})
    decayed = decay_log_entries(entry, ready_threshold_s=10)
    assert decayed["fallback_state"].item() == "idle"


# --- the detecting budget ----------------------------------------------------------------


def polls(evidence: list[str | None], step_s: float = 30) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "session_id": ["one"] * len(evidence),
            "at": [START + timedelta(seconds=step_s * place) for place in range(len(evidence))],
            "evidence": evidence,
        },
        schema_overrides={"evidence": pl.String, "at": pl.Datetime("us", "UTC")},
    )


def one_by_one(recorded: pl.DataFrame, budget: DetectingBudget) -> list[tuple[Any, ...]]:
    """The slow obvious version: each poll decided from what the one before stored."""
    stored = {"detecting_attempts": 0, "detecting_started_at": None, "detecting_hash": None}
    decisions = []
    for poll in recorded.sort("at").iter_rows(named=True):
        if poll["evidence"] is None:
            stored = {"detecting_attempts": 0, "detecting_started_at": None, "detecting_hash": None}
            decisions.append((None, 0, None))
            continue
        schema = {
            "detecting_started_at": pl.Datetime("us", "UTC"),
            "detecting_hash": pl.String,
        }
        frame = pl.DataFrame([poll | stored], schema_overrides=schema)
        row = decide_detecting(frame, budget=budget).row(0, named=True)
        stored = {name: row[name] for name in stored}
        decisions.append((row["status"], row["detecting_attempts"], row["detecting_started_at"]))
    return decisions


@given(
    st.lists(st.sampled_from(["a", "b", "a activity=idle", None]), max_size=10),
    st.integers(0, 4),
    st.sampled_from([30.0, 120.0, 400.0]),
)
@examples(25)
def test_runs_of_evidence_say_the_same_as_poll_after_poll(
    evidence: list[str | None], attempts: int, step_s: float
) -> None:
    budget = DetectingBudget(max_attempts=attempts)
    recorded = polls(evidence, step_s)
    replayed = replay_detecting(recorded.reverse(), budget=budget)
    columns = replayed.select("status", "detecting_attempts", "detecting_started_at")
    assert columns.rows() == one_by_one(recorded, budget)


@given(st.lists(st.sampled_from(["a", "b", None]), max_size=12), st.integers(0, 5))
@examples(25)
def test_a_larger_budget_is_never_used_up_earlier(
    evidence: list[str | None], attempts: int
) -> None:
    small, large = (
        replay_detecting(polls(evidence), budget=DetectingBudget(max_attempts=limit))
        for limit in (attempts, attempts + 1)
    )
    assert not (large["is_escalated"] & ~small["is_escalated"]).any()


def test_the_fourth_equal_poll_is_stuck_and_the_sixth_with_five_attempts() -> None:
    recorded = polls(["x"] * 7)
    stuck = [
        replay_detecting(recorded, budget=budget)["status"].to_list().index("stuck")
        for budget in (DetectingBudget(), DetectingBudget(max_attempts=5))
    ]
    assert stuck == [3, 5]


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(ArgumentError, match="limits of 0 or more"):
        DetectingBudget(max_attempts=-1)


def test_no_polls_replay_to_none() -> None:
    assert replay_detecting(polls([])).height == 0


# --- reports, watcher, roles, kinds ---------------------------------------------------------


def test_a_report_that_contradicts_itself_leaves_no_trace() -> None:
    row = {"report_state": "pr_created", "kind": "worker", "session_state": "working"}
    row |= {"session_reason": "task_in_progress", "pr_state": "none", "pr_reason": "not_created"}
    row |= {"runtime_state": "alive", "given_pr_number": 7.0}
    row |= {"given_pr_url": "https://github.com/a/b/pull/8", "at": START, "started_at": START}
    row |= {"last_transition_at": START, "pr_number": None, "pr_url": None}
    schema = {"pr_number": pl.Int64, "pr_url": pl.String}
    after = apply_reports(pl.DataFrame([row], schema_overrides=schema)).row(0, named=True)
    assert after["n_audit_lines"] == 0
    assert after["error"].startswith("PR number 7 does not match PR URL")
    assert (after["session_reason"], after["pr_state"]) == ("task_in_progress", "none")


def test_other_thresholds_of_the_watcher_can_be_tried() -> None:
    frame = frame_of(watch_reports).head(1)
    patient = watch_reports(frame, thresholds=WatcherThresholds(stale_s=3600))
    assert patient["watcher_trigger"].item() is None


def test_a_numbered_worker_of_another_project_is_no_orchestrator() -> None:
    frame = pl.DataFrame({"session_id": ["app-orchestrator-1"]}).with_columns(
        role=pl.lit(None, pl.String)
    )
    alone = find_orchestrators(frame, prefix="app")
    among = find_orchestrators(frame, prefix="app", all_prefixes=["app", "app-orchestrator"])
    without = find_orchestrators(frame)
    answers = [found["is_orchestrator"].item() for found in (alone, among, without)]
    assert answers == [True, False, False]


def test_recovery_follows_its_decision_table() -> None:
    base = frame_of(classify_recovery).head(1)
    cases = {
        "human": {"agent_running": pl.lit(value=False)},
        "recover": {"agent_running": pl.lit(value=True)},
        "skip": {"status": pl.lit("merged")},
    }
    found = {
        name: classify_recovery(base.with_columns(**change)).row(0, named=True)
        for name, change in cases.items()
    }
    assert found["human"]["recovery_rule"] == "human"
    assert found["recover"]["recovery_action"] == "recover"
    assert found["skip"]["recovery_class"] == "unrecoverable"


def test_the_kinds_of_real_events_are_known(shared: Path) -> None:
    import sqlite3

    folder = shared / "samples" / "agent-orchestrator" / "v3_json_final_ts"
    path = next(folder.glob("**/activity-events.db"))
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as store:
        kinds = {kind for (kind,) in store.execute("SELECT DISTINCT type FROM activity_events")}
    store.close()
    assert kinds <= set(event_kinds()["kind"])


def test_a_status_has_the_priority_of_the_event_that_it_emits() -> None:
    words = pl.DataFrame({"new_status": LEGACY_STATUSES})
    events = classify_status_changes(words).filter(pl.col("event_type").is_not_null())
    assert dict(events.select("new_status", "event_priority").rows()) == EVENT_PRIORITIES

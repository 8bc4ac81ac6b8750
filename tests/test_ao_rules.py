"""Agent Orchestrator's rules over words and ages: every engine, every odd input."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from stateanalytics.errors import MissingColumnsError
from stateanalytics.systems.agent_orchestrator.detectors import classify_web_attention
from stateanalytics.systems.agent_orchestrator.mapping import (
    AXES,
    map_axes,
    map_go_words,
    map_legacy_words,
)
from stateanalytics.systems.agent_orchestrator.meaning import find_traps, reattribute_ends
from stateanalytics.systems.agent_orchestrator.statuses import (
    classify_go_pull_requests,
    derive_go_status,
    derive_legacy_status,
    name_primary_reason,
)
from tests.engines import Engine, assert_same_rows, on_every_engine

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
WORDS = dict.fromkeys(AXES, "open") | {"session_state": "working"}

# Every rule that takes a frame of any engine, with one row that it can read.
ROWS: dict[Callable[..., Any], dict[str, Any]] = {
    derive_legacy_status: WORDS,
    name_primary_reason: WORDS,
    map_axes: WORDS,
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
every_rule = pytest.mark.parametrize("rule", list(ROWS), ids=lambda rule: rule.__name__)


def frame_of(rule: Callable[..., Any]) -> pl.DataFrame:
    """The row, the same row again, and one that is null throughout."""
    row = ROWS[rule]
    schema = {name: DTYPES.get(type(value), pl.String) for name, value in row.items()}
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

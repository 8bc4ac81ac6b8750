"""The outcome of a schedule's occurrence, and who says so."""

import polars as pl
import pytest

from stateanalytics.errors import MissingColumnsError
from tests.conformance.lionagi.run_view import run_view_outcome
from tests.engines import assert_same_rows, on_every_engine

COLUMNS = {
    "run_status": pl.String,
    "run_exit_code": pl.Int64,
    "run_error_detail": pl.String,
    "invocation_status": pl.String,
    "session_status": pl.String,
}


def runs(*rows, **extra):
    filled = [{name: row.get(name) for name in [*COLUMNS, *extra]} for row in rows]
    return pl.DataFrame(filled, schema={**COLUMNS, **extra})


def outcome(_extra=None, **row):
    found = run_view_outcome(runs(row, **(_extra or {})))
    return found.row(0, named=True)


def test_a_session_that_ended_speaks_first():
    row = outcome(run_status="failed", invocation_status="completed", session_status="timed_out")
    assert row["outcome_code"] == "run.failed.timed_out"
    assert (row["outcome_source"], row["exit_code"]) == ("session", 124)


def test_an_invocation_speaks_while_its_sessions_do_not():
    row = outcome(run_status="failed", invocation_status="cancelled")
    assert (row["outcome_source"], row["exit_code"]) == ("invocation", 143)


def test_an_invocation_that_runs_does_not_speak():
    assert outcome(run_status="queued", invocation_status="running")["outcome_source"] == "fallback"


@pytest.mark.parametrize(
    ("row", "code", "summary", "exit_code"),
    [
        pytest.param({"run_status": "running"}, "running", "running", 3, id="running"),
        pytest.param(
            {"run_status": "running", "run_error_detail": "boom"},
            "running",
            "running",
            3,
            id="running, an error does not end it",
        ),
        pytest.param({"run_status": "skipped"}, "skipped", "skipped", 1, id="skipped"),
        pytest.param(
            {"run_status": "skipped", "run_error_detail": "overlap"},
            "skipped",
            "overlap",
            1,
            id="why",
        ),
        pytest.param(
            {"run_status": "failed", "run_exit_code": 2},
            "failed_exit_nonzero",
            "failed (exit 2)",
            1,
            id="nonzero",
        ),
        pytest.param(
            {"run_status": "failed", "run_exit_code": 0}, "failed", "failed (exit 0)", 1, id="zero"
        ),
        pytest.param(
            {"run_status": "queued"}, "queued_no_exit_code", "queued", 2, id="never started"
        ),
        pytest.param(
            {"run_status": "completed", "run_exit_code": 0},
            "completed",
            "completed (exit 0)",
            0,
            id="good",
        ),
        pytest.param({}, "unknown_no_exit_code", "unknown", 2, id="nothing at all"),
        pytest.param(
            {"run_error_detail": "boom"}, "failed_dispatch", "boom", 2, id="an error and no status"
        ),
    ],
)
def test_the_occurrence_alone(row, code, summary, exit_code):
    found = outcome(**row)
    assert (found["outcome_code"], found["outcome_summary"]) == (code, summary)
    assert found["exit_code"] == exit_code


def test_words_that_somebody_wrote_win_and_are_marked_as_theirs():
    texts = {"session_reason_code": pl.String, "session_reason_message": pl.String}
    said = {"session_reason_code": "run.failed.exception", "session_reason_message": "disk full"}
    row = outcome(texts, session_status="failed", **said)
    assert (row["outcome_code"], row["outcome_summary"]) == ("run.failed.exception", "disk full")
    assert row["is_summary_reported"] is True
    assert outcome(session_status="failed")["is_summary_reported"] is False


def test_an_empty_text_says_as_little_as_none():
    texts = {"session_reason_message": pl.String}
    assert (
        outcome(texts, session_status="failed", session_reason_message="")["outcome_summary"]
        == "failed"
    )
    assert outcome(run_status="failed", run_error_detail="")["outcome_source"] == "fallback"


def test_artifacts_are_counted_in_the_summary():
    row = outcome({"n_artifacts": pl.Int64}, session_status="completed", n_artifacts=2)
    assert row["outcome_summary"] == "completed: 2 artifact(s)"


def test_columns_without_a_type_are_fine():
    row = run_view_outcome(pl.DataFrame({name: [None] for name in COLUMNS}))
    assert row["outcome_code"].to_list() == ["unknown_no_exit_code"]


def test_a_missing_column_says_what_to_do():
    with pytest.raises(MissingColumnsError, match="run_view_outcome needs columns"):
        run_view_outcome(runs().drop("session_status"))


@on_every_engine
def test_every_engine_says_the_same(engine):
    rows = runs(
        {"run_status": "failed", "run_exit_code": 2, "run_error_detail": "boom"},
        {"run_status": "failed", "run_exit_code": 2},
        {"session_status": "completed_empty"},
        {"invocation_status": "aborted"},
        {},
    )
    assert_same_rows(engine.back(run_view_outcome(engine.of(rows))), run_view_outcome(rows))

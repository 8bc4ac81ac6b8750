"""What status commands answer, as words and exit codes."""

import polars as pl
import pytest

from stateanalytics.errors import MissingColumnsError
from tests.conformance.lionagi.exit_codes import with_exit_codes
from tests.conftest import component
from tests.engines import assert_same_rows, on_every_engine


def answer(entity_type, status):
    rows = pl.DataFrame({"entity_type": [entity_type], "status": [status]})
    names = ("is_terminal", "exit_class", "status_command_exit_code", "process_exit_code")
    return with_exit_codes(rows).select(names).row(0)


@pytest.mark.parametrize(
    ("entity_type", "status", "expected"),
    [
        pytest.param("session", "completed", (True, "success", 0, 0), id="good"),
        pytest.param("session", "completed_empty", (True, "failure", 1, 1), id="good but empty"),
        pytest.param("session", "timed_out", (True, "failure", 1, 124), id="timeout"),
        pytest.param("session", "aborted", (True, "failure", 1, 130), id="interrupt"),
        pytest.param("invocation", "cancelled", (True, "failure", 1, 143), id="termination"),
        pytest.param("session", "running", (False, "running", 3, None), id="running"),
        pytest.param("session", None, (False, "running", 3, None), id="no status"),
        pytest.param("session", "merged", (False, "running", 3, None), id="a play's word"),
        pytest.param("play", "merged", (True, "success", 0, None), id="play"),
        pytest.param("play", "gate_failed", (True, "failure", 1, None), id="play, no process"),
        pytest.param("flow", "failed", (True, "failure", 1, 1), id="others read like sessions"),
        pytest.param(None, "failed", (True, "failure", 1, 1), id="no type"),
    ],
)
def test_each_status_has_its_codes(entity_type, status, expected):
    assert answer(entity_type, status) == expected


def test_the_classes_are_those_of_the_installed_lionagi():
    status = component("lionagi.cli.status")
    for entity_type in ("session", "invocation", "play"):
        for word in ("running", "completed", "completed_empty", "merged", "escalated", "odd"):
            terminal, exit_class, code = status._classify(entity_type, word)
            assert answer(entity_type, word)[:3] == (terminal, exit_class, code)


def test_empty_frames_and_missing_columns():
    assert with_exit_codes(pl.DataFrame({"entity_type": [], "status": []})).height == 0
    with pytest.raises(MissingColumnsError, match="with_exit_codes needs columns"):
        with_exit_codes(pl.DataFrame({"status": ["failed"]}))


@on_every_engine
def test_every_engine_answers_the_same(engine):
    rows = pl.DataFrame(
        {"entity_type": ["session", "play", None], "status": ["aborted", "merged", None]}
    )
    assert_same_rows(engine.back(with_exit_codes(engine.of(rows))), with_exit_codes(rows))

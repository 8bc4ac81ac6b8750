"""What a group of children amounts to: three rules of lionagi's that disagree, and ours."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.core.vocabulary import EXIT_CODES
from stateanalytics.systems.lionagi.audits import SEVERITY_ORDER, roll_up
from tests.examples import examples

TERMINAL_STATUSES = tuple(EXIT_CODES)
ODD = ("running", "done", "", None)


def parents(*ids, **columns):
    rows = {"parent_id": list(ids), **columns}
    return pl.DataFrame(rows, schema_overrides={"parent_id": pl.String})


def children(groups):
    rows = [(parent, status) for parent, statuses in groups.items() for status in statuses]
    shape = {"parent_id": pl.String, "status": pl.String}
    return pl.DataFrame(rows, schema=shape, orient="row")


def rolled(*statuses, **columns):
    found = roll_up(parents("a", **columns), children({"a": statuses}))
    return found.row(0, named=True)


def test_failed_and_cancelled_have_three_statuses_in_lionagi():
    row = rolled("failed", "cancelled")
    assert (row["invocation_status"], row["worst_status"]) == ("failed", "failed")
    assert (row["grading_status"], row["lifecycle_outcome"]) == ("cancelled", "cancelled")


def test_each_status_is_counted():
    row = rolled("failed", "failed", "completed", "running", "done", None)
    assert (row["n_children"], row["n_failed"], row["n_completed"]) == (6, 2, 1)
    assert (row["n_running"], row["n_open"]) == (1, 3)


def test_without_children_the_leader_decides():
    row = rolled(leader_status=["timed_out"])
    assert row["invocation_status"] == "timed_out"
    assert (row["worst_status"], row["grading_status"]) == (None, None)
    assert (row["lifecycle_is_terminal"], row["n_children"]) == (False, 0)


def test_a_leader_that_returned_is_no_proof_that_its_children_did():
    assert rolled("running")["invocation_status"] == "completed_empty"
    assert rolled("completed", "running")["worst_status"] == "running"


@pytest.mark.parametrize(
    ("leader", "exit_code", "code"),
    [
        ("failed", 3, "run.failed.exit_nonzero"),
        *((word, None, "run.failed.exception") for word in ("failed", "gone wrong")),
    ],
)
def test_a_failed_leader_has_the_code_of_its_failure(leader, exit_code, code):
    row = rolled("running", leader_status=[leader], leader_exit_code=[exit_code])
    assert (row["invocation_status"], row["invocation_reason_code"]) == ("failed", code)


def test_a_failed_child_is_never_blamed_on_the_leaders_exit_code():
    row = rolled("failed", leader_status=["failed"], leader_exit_code=[3])
    assert row["invocation_reason_code"] == "run.failed.exception"


def test_an_interrupted_child_gives_the_code_of_an_interrupt():
    rows = children({"a": ["aborted"]}).with_columns(reason_code=pl.lit("run.cancelled.sigint"))
    found = roll_up(parents("a"), rows).row(0, named=True)
    assert found["invocation_reason_code"] == "run.cancelled.sigint"


def test_the_newest_of_equally_bad_children_is_graded():
    assert rolled("failed", "completed_empty")["grading_status"] == "completed_empty"
    assert rolled("completed_empty", "failed")["grading_status"] == "failed"


def test_empty_groups_and_empty_frames_are_fine():
    assert roll_up(parents(), children({})).height == 0
    assert roll_up(parents("a", "b"), children({}))["n_children"].to_list() == [0, 0]


def test_children_without_a_parent_are_excluded():
    found = roll_up(parents("a"), children({"a": ["failed"], "z": ["completed"]}))
    assert found["n_children"].to_list() == [1]


STATUSES = st.lists(st.sampled_from([*TERMINAL_STATUSES, *ODD]), max_size=5)


@examples(40)
@given(STATUSES.filter(bool), st.sampled_from(TERMINAL_STATUSES))
def test_a_further_child_never_makes_the_worst_status_better(statuses, more):
    rank = {status: place for place, status in enumerate(SEVERITY_ORDER)}
    before, after = rolled(*statuses)["worst_status"], rolled(*statuses, more)["worst_status"]
    assert rank[after] <= rank[before]

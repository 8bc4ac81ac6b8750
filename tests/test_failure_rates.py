"""Mass failures: hours in which almost every start failed."""

import pytest

import stateanalytics as sa
from tests.failures import run as failed_run
from tests.failures import store
from tests.frames import AS_OF, ago

NOW = (ago(days=7), AS_OF)


def started(name, n, *, failed, days=1, **rest):
    """Runs of one hour, some of which failed of one thing; each a request of its own."""
    return [
        failed_run(f"{name}{i}", ended=ago(days=days, minutes=-30 - i / 10), **rest)
        | ({"reason_message": f"{name} broke"} if i < failed else {"raw_status": "completed"})
        for i in range(n)
    ]


def hours(*rows, **asked):
    found = sa.failures.mass_failures(store(*rows), **asked)
    return found.select("n_starts", "n_failed", "is_mass").rows()


@pytest.mark.parametrize(
    ("n", "failed", "is_mass"),
    [
        pytest.param(10, 9, True, id="nine of ten"),
        pytest.param(10, 8, False, id="eighty percent are not over eighty"),
        pytest.param(5, 5, True, id="five are enough"),
        pytest.param(4, 4, False, id="four are no mass"),
        pytest.param(10, 0, False, id="nothing failed"),
    ],
)
def test_more_than_the_share_of_enough_starts(n, failed, is_mass):
    assert hours(*started("a", n, failed=failed)) == [(n, failed, is_mass)]


def test_hours_are_apart_and_a_share_and_a_step_can_be_asked_for():
    rows = [*started("a", 6, failed=6), *started("b", 6, failed=3, days=2)]
    assert hours(*rows) == [(6, 3, False), (6, 6, True)]
    assert hours(*rows, share=0.4) == [(6, 3, True), (6, 6, True)]
    assert hours(*rows, step_s=7 * 86_400.0) == [(12, 9, False)]
    assert hours(*rows, window=(ago(days=1.5), AS_OF)) == [(6, 6, True)]


def test_failed_rows_of_a_mass_failure_are_marked_with_what_holds_them():
    rows = started("a", 6, failed=6, invocation_id="inv")
    holder = failed_run("inv", entity_type="invocation", invocation_id="inv", session_id=None)
    alone = failed_run("b", reason_message="x", ended=ago(days=3))
    found = sa.failures.members(store(*rows, holder, alone))
    marks = dict(found.select("entity_id", "is_mass").rows())
    assert marks.pop("b") is False
    assert len(marks) == 7 and all(marks.values())


def test_what_has_no_outcome_yet_has_not_failed():
    begun = {"raw_status": "running", "ended_at": None}
    rows = [one | begun for one in started("open", 9, failed=0)]
    assert hours(*rows, *started("bad", 1, failed=1)) == [(10, 1, False)]


@pytest.mark.slow
def test_a_comparison_can_leave_them_out():
    well = started("well", 40, failed=0, days=3) + started("then", 40, failed=0, days=9)
    rows = [*well, *started("out", 12, failed=11), failed_run("c", reason_message="c broke")]
    whole = sa.failures.change(store(*rows), window=NOW)
    without = sa.failures.change(store(*rows), window=NOW, leave_out_mass=True)
    assert set(whole["template"]) == {"out broke", "c broke"}
    assert without["template"].to_list() == ["c broke"]
    # The run of that hour that went well is left out, too.
    assert whole["n_runs"][0] - without["n_runs"][0] == 12


def test_a_window_tells_whole_stretches_and_agrees_with_the_marks():
    # Fifteen starts of one hour: five fail within the window, ten end well after it.
    late = [
        failed_run(
            f"late{i}", status="completed", ended=ago(hours=5), started_at=ago(days=1, minutes=-15)
        )
        for i in range(10)
    ]
    rows = [*started("a", 5, failed=5), *late]
    window = (ago(days=1, minutes=-20), ago(days=1, minutes=-59))
    assert hours(*rows, window=window) == hours(*rows) == [(15, 5, False)]
    assert not sa.failures.members(store(*rows), window=window)["is_mass"].any()
    assert hours(*rows, window=(ago(hours=6), AS_OF)) == []


def test_a_step_that_does_not_divide_a_day_is_counted_from_1970():
    found = sa.failures.mass_failures(store(*started("a", 5, failed=5)), step_s=50_000.0)
    assert [since.timestamp() % 50_000 for since in found["since"]] == [0]


@pytest.mark.slow
def test_ids_stay_the_same_without_them():
    users = ("ada", "ben", "cyd", "dov", "eve", "fay")
    rows = [
        failed_run(f"out{user}", reason_message=f"login of {user} broke", ended=ago(days=1))
        for user in users
    ]
    rows.append(failed_run("gus", reason_message="login of gus broke", ended=ago(days=3)))
    whole, without = (
        sa.failures.change(store(*rows), window=NOW, leave_out_mass=leave_out)
        for leave_out in (False, True)
    )
    assert without["cluster_id"].to_list() == whole["cluster_id"].to_list()
    assert (whole["n_rows"].item(), without["n_rows"].item()) == (7, 1)

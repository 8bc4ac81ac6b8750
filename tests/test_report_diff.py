"""Why a number moved: every cause by itself, all of them together, and nothing hidden."""

import functools
import json
from datetime import timedelta

import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.errors import ArgumentError, SourceNotFoundError
from stateanalytics.reporting import ledger as module
from stateanalytics.reporting import report
from tests.conftest import ROOT
from tests.examples import examples
from tests.frames import AS_OF, ago, facts

COMPARED = ("headline", "provenance", "appendix")  # what a comparison looks at
WINDOW = (ago(days=7), AS_OF + timedelta(days=1))


def entity(identity, status="completed", *, hours_ago=5.0, **columns):
    began = ago(hours=hours_ago)
    ended = {} if status == "running" else {"ended_at": began + timedelta(minutes=30)}
    alive = {"last_activity_at": AS_OF, "n_messages": 3}
    return {
        "entity_id": identity, "raw_status": status, "created_at": began, "started_at": began,
        **ended, **alive, **columns,
    }  # fmt: skip


def made(entities, *, sources=("state.db",), as_of=AS_OF, **options):
    whole = facts(entities, as_of=as_of, sources=[{"source": name} for name in sources])
    asked = {"window": WINDOW, "sections": COMPARED, "shown": False, **options}
    return report(whole, **asked)


def steps(last, this, number="runs"):
    """Cause and change of the counts of a number; what is unexplained, only if anything is."""
    found = sa.diff(last, this).filter(number=number)
    return {
        row["cause"]: row["n_after"] - row["n_before"]
        for row in found.iter_rows(named=True)
        if row["cause"] != "unexplained" or row["n_after"] != row["n_before"]
    }


@pytest.mark.slow
def test_two_weeks_differ_by_what_their_runs_came_to():
    failed = [entity(f"f{n}", "failed", reason_code="run.failed.exception") for n in range(3)]
    rows = [entity("a"), *failed, entity("b", hours_ago=24 * 10), entity("c", hours_ago=24 * 9)]
    week, before = (AS_OF - timedelta(days=7), AS_OF), (ago(days=14), AS_OF - timedelta(days=7))
    last, this = made(rows, window=before), made(rows, window=week)
    assert steps(last, this) == {"runs that completed": -1, "runs that failed": 3}
    share = sa.diff(last, this).filter(number="completed")
    moved = share.select("cause", "before", "after").rows()[:2]
    assert moved == [("runs that completed", 1.0, 1.0), ("runs that failed", 1.0, 0.25)]
    assert share["change"].sum() == -0.75


OLD = [entity("a"), entity("b", "failed", reason_code="run.failed.exception")]


@functools.cache
def old():
    """The report on the two runs, which no test changes."""
    return made(OLD)


@pytest.mark.slow
def test_the_same_report_twice_has_nothing_to_explain():
    found = sa.diff(old(), made(OLD))
    assert found["cause"].to_list() == ["unexplained"] * 5
    assert found["change"].drop_nulls().sum() == 0


NEW = [*OLD, entity("n", hours_ago=-1), entity("l", hours_ago=3)]
EMPTY_HANDED = [*OLD, entity("e", "completed_empty")]
SILENT = [*OLD, entity("r", "running", hours_ago=0.5)]
THREE_DAYS = [*OLD, entity("w", hours_ago=72)]
LATER = {"as_of": AS_OF + timedelta(hours=10)}
MOVED = {
    "new and late rows": (OLD, NEW, LATER, "runs", {"new rows": 1, "late rows": 1}),
    "another policy": (EMPTY_HANDED, EMPTY_HANDED, {"policy": sa.Policy.parity()}, "completed",
                       {"another policy": -1}),
    "another as-of": (SILENT, SILENT, LATER, "unresolved", {"another as-of": 1}),
    "nobody can say which": (SILENT, SILENT, {**LATER, "policy": sa.Policy.operator()},
                             "unresolved", {"another policy or as-of": 1}),
    "another window": (THREE_DAYS, THREE_DAYS, {"window": (ago(days=2), AS_OF)}, "runs",
                       {"another window": -1}),
    "removed rows": (THREE_DAYS, OLD, {}, "runs", {"removed rows": -1}),
    "a row that was written to": (OLD, [OLD[0], entity("b", "completed")], {}, "completed",
                                  {"changed rows": 1}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", MOVED)
def test_a_number_that_moved_has_its_cause(case):
    rows, rows_now, changed, number, causes = MOVED[case]
    assert steps(made(rows), made(rows_now, **changed), number) == causes


@pytest.mark.slow
def test_work_that_has_ended_closes_a_censoring():
    last = made([*OLD, entity("r", "running")])
    this = made([*OLD, entity("r", "timed_out")], as_of=AS_OF + timedelta(hours=1))
    assert steps(last, this) == {}
    assert steps(last, this, "timed_out") == {"closed censoring": 1}
    step = sa.diff(last, this).filter(number="timed_out", cause="closed censoring")
    assert step.select("before", "after", "of_before", "of_after").row(0) == (0.0, 1 / 3, 2, 3)


@pytest.mark.slow
def test_another_input_is_told_by_its_name_and_its_runs():
    other = entity("o", source="other.db")
    both = made([*OLD, other], sources=("state.db", "other.db"))
    assert steps(old(), both) == {"another input": 1}
    assert steps(both, old()) == {"another input": -1}
    moved = [{**row, "source": "/elsewhere/state.db"} for row in [*OLD, entity("l")]]
    assert steps(old(), made(moved, sources=("/elsewhere/state.db",))) == {"late rows": 1}


@pytest.mark.slow
def test_a_run_that_rates_leave_out_is_no_run_until_it_counts():
    legacy = [*OLD, entity("x", None)]
    assert made(legacy).summary["headline"]["numbers"][0]["n"] == 2
    assert steps(made(legacy), made([*OLD, entity("x")])) == {"changed rows": 1}


@pytest.mark.slow
def test_incidents_are_distinct_on_both_sides():
    fan = [entity(str(n), "failed", reason_code="run.failed.exception", invocation_id="i",
                  hours_ago=-1) for n in range(9)]  # fmt: skip
    this = made([*OLD, *fan], as_of=AS_OF + timedelta(hours=6))
    assert steps(old(), this, "incidents") == {"new rows": 1}
    assert sa.diff(old(), this).filter(number="incidents")["n_runs"].to_list() == [9, None]


@pytest.mark.slow
def test_what_failed_alone_and_fails_with_others_now_is_another_grouping():
    said = {"reason_code": "run.failed.exception", "reason_message": "API Error: 503 unavailable"}
    a, y, z = (entity(name, "failed", provider="p", **said) for name in "ayz")
    last, this = made([y, z]), made([a, y, z])
    assert steps(last, this, "incidents") == {"late rows": 1, "another grouping": -2}


def test_what_no_run_explains_is_not_hidden():
    last, this = old().summary, json.loads(old().as_json())
    this["headline"]["numbers"][0]["n"] += 7
    this["headline"]["numbers"][1]["of"] += 1
    assert steps(last, this) == {"unexplained": 7}
    told = sa.diff(last, this).filter(number="completed", cause="unexplained")
    assert told.select("of_before", "of_after").row(0) == (2, 3)


@pytest.mark.slow
def test_little_or_nothing_can_be_compared():
    nothing = made([])
    assert sa.diff(nothing, nothing)["before"].to_list() == [0.0, None, None, None, 0.0]
    assert steps(nothing, old()) == {"late rows": 2}
    assert steps(made([entity(None), entity(None)]), nothing) == {}


STATUSES = ("completed", "failed", "timed_out", "running", "completed_empty", None, "odd")
runs = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.tuples(st.sampled_from(STATUSES), st.sampled_from([-30, 0.5, 5, 80, 200])),
    max_size=6,
)


@pytest.mark.slow
@examples(8, suppress_health_check=[HealthCheck.too_slow])
@given(first=runs, second=runs, hours=st.sampled_from([0, 40]), other=st.booleans())
def test_steps_always_add_up_and_leave_nothing_over(first, second, hours, other):
    last = made([entity(name, one, hours_ago=at) for name, (one, at) in first.items()])
    rows = [entity(name, one, hours_ago=at) for name, (one, at) in second.items()]
    policy = sa.Policy.operator() if other else None
    this = made(rows, as_of=AS_OF + timedelta(hours=hours), policy=policy)
    found = sa.diff(last, this)
    for place, name in enumerate(("runs", "completed", "timed_out", "unresolved", "incidents")):
        rows = found.filter(number=name)
        ends = [one.summary["headline"]["numbers"][place] for one in (last, this)]
        assert (rows["n_before"][0], rows["of_before"][0]) == (ends[0]["n"], ends[0]["of"])
        assert (rows["n_after"][-1], rows["of_after"][-1]) == (ends[1]["n"], ends[1]["of"])
        assert rows["n_before"].to_list()[1:] == rows["n_after"].to_list()[:-1]
        unexplained = rows.row(-1, named=True)
        assert unexplained["cause"] == "unexplained"
        assert all(unexplained[f"{n}_before"] == unexplained[f"{n}_after"] for n in ("n", "of"))
    assert found["cause"].is_in(module.CAUSES).all()


@pytest.mark.slow
def test_the_ledger_holds_no_text_of_a_store():
    secret = "sk-test-AAAAAAAAAAAAAAAAAAAAAAAA"
    lines = made([entity(secret, "failed", reason_code=secret, name=secret)]).summary["ledger"]
    assert len(lines) == 1
    assert secret not in lines[0]
    assert len(lines[0].split(" ")) == 8


@pytest.mark.slow
def test_the_command_compares_two_files(tmp_path, capsys):
    store = ROOT / "data/samples/state.db"
    last, this = tmp_path / "last.json", tmp_path / "this.json"
    for path, as_of in ((last, "2026-05-22T12:00:00Z"), (this, "2026-05-25T06:00:00Z")):
        assert run(["report", str(store), "--week", "2026-W21", "--as-of", as_of,
                    "--sections", ",".join(COMPARED), "-o", str(path)]) == 0  # fmt: skip
    capsys.readouterr()
    assert run(["report", str(this), "--against", str(last), "--format", "json"]) == 0
    found = pl.DataFrame(json.loads(capsys.readouterr().out), infer_schema_length=None)
    by_cause = found.filter(number="runs")
    assert by_cause["cause"].to_list()[0] == "new rows"
    assert by_cause.row(-1, named=True)["change"] == 0.0
    assert run(["report", str(tmp_path / "none.json"), "--against", str(last)]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (7, ArgumentError, "diff needs two reports; last is 7"),
        ({}, ArgumentError, "diff needs two reports"),
        ({"headline": {}}, ArgumentError, "has no ledger"),
        ({"headline": {}, "ledger": []}, ArgumentError, "lacks"),
        ("nowhere.json", SourceNotFoundError, "cannot be read: No such file"),
    ],
)
def test_what_is_no_report_is_refused(given, error, words):
    with pytest.raises(error, match=words):
        sa.diff(given, old())


@pytest.mark.parametrize("lines", [7, ["x"], [1], ["a b c d e f g h"], None])
def test_a_ledger_that_cannot_be_read_is_refused(lines):
    broken = {**old().summary, "ledger": lines}
    with pytest.raises(ArgumentError, match="ledger"):
        sa.diff(broken, old())


@pytest.mark.parametrize("text", ["<html>", "[" * 100_000, "9" * 5000, '{"a": \xff}'])
def test_a_file_that_is_no_json_is_refused(tmp_path, text):
    """Deep JSON is input 25 of seed 21."""
    path = tmp_path / "week.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ArgumentError, match="should be the JSON of a report, but is not JSON"):
        sa.diff(path, path)

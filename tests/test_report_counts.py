"""The same count is the same number in every section; of every face: test_same_numbers."""

from datetime import timedelta

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.reporting import summarize
from stateanalytics.reporting.sections.failures import NO_CODE
from stateanalytics.state.definitions import FAILURES, GOOD_ENDS, TROUBLE
from tests.frames import facts
from tests.samples import SAMPLES
from tests.test_report import WEEK

INPUTS = [
    pytest.param(["state.db", "agent_orchestrator", "opencode"], id="all"),
    # At the desk the three together say enough.
    pytest.param(["state.db"], id="lionagi", marks=pytest.mark.slow),
    pytest.param(["agent_orchestrator"], id="agent_orchestrator", marks=pytest.mark.slow),
    pytest.param(["opencode"], id="opencode", marks=pytest.mark.slow),
]


class Case:
    def __init__(self, names):
        self.paths = [str(SAMPLES / name) for name in names]
        self.snap = sa.read(*self.paths, progress=False)
        # A source that ended before the window is in no number of the page.
        since = min(self.snap.as_of, *self.snap.sources["last_at"]) - timedelta(days=7)
        self.window = (since, self.snap.as_of + timedelta(seconds=1))
        self.summary = sa.report(self.snap, window=self.window).summary
        self.numbers = {one["name"]: one for one in self.summary["headline"]["numbers"]}


@pytest.fixture(scope="module", params=INPUTS)
def case(request):
    return Case(request.param)


def one_number(**counts):
    """All places that show a count show one number."""
    assert len(set(counts.values())) == 1, counts


def test_runs(case):
    summary, runs = case.summary, case.numbers["runs"]["n"]
    n_ended, n_open = case.numbers["completed"]["of"], case.numbers["unresolved"]["of"]
    sessions = [row for row in summary["attention"]["by_type"] if row["entity_type"] == "session"]
    one_number(
        headline=runs,
        ended_and_open=n_ended + n_open,
        attention=sum(row["n"] for row in sessions),
        systems=(summary["systems"]["total"] or {"n": runs})["n"],
        each_system=sum(one["runs"]["n"] for one in summary["systems"]["systems"]) or runs,
        ledger=sum(line.split()[4] != "left_out" for line in summary["ledger"]),
    )


def test_ended_runs(case):
    summary, ended = case.summary, case.numbers["completed"]["of"]
    one_number(
        completed=ended,
        timed_out=case.numbers["timed_out"]["of"],
        outcomes=sum(one["n"] for one in summary["headline"]["outcomes"]),
        over_time=sum(row["n"] for row in summary["over_time"]["rows"]),
        coverage=summary["provenance"]["coverage"][0]["n"],
        systems=(summary["systems"]["total"] or {"n_ended": ended})["n_ended"],
    )


def test_runs_that_ended_well_and_runs_that_timed_out(case):
    summary = case.summary
    by_outcome = {one["outcome"]: one["n"] for one in summary["headline"]["outcomes"]}
    ends = summary["over_time"]["endings"]
    over_time = {
        end: sum(row["counts"][place] for row in summary["over_time"]["rows"])
        for place, end in enumerate(ends)
    }
    n_good = case.numbers["completed"]["n"]
    total = summary["systems"]["total"]
    one_number(
        headline=n_good,
        outcomes=sum(by_outcome.get(word, 0) for word in GOOD_ENDS),
        over_time=sum(over_time.get(word, 0) for word in GOOD_ENDS),
        systems=total["ends"]["completed"] if total else n_good,
    )
    n_late = case.numbers["timed_out"]["n"]
    one_number(
        headline=n_late,
        outcomes=by_outcome.get("timed_out", 0),
        over_time=over_time.get("timed_out", 0),
        systems=total["ends"]["timed_out"] if total else n_late,
    )


def test_open_runs_and_those_in_trouble(case):
    summary, n_open = case.summary, case.numbers["unresolved"]["of"]
    alone = {"n_open": n_open, "n_unresolved": case.numbers["unresolved"]["n"]}
    total = summary["systems"]["total"] or alone
    one_number(
        headline=n_open,
        over_time=summary["over_time"]["rows"][-1]["n_open"],
        slow=summary["slow"]["n_open"],
        detectors=summary["detectors"]["n_open"],
        systems=total["n_open"],
    )
    one_number(headline=case.numbers["unresolved"]["n"], systems=total["n_unresolved"])
    assert set(TROUBLE) == {"critical", "warning"}


@pytest.mark.slow
def test_failed_runs_their_causes_and_incidents(case):
    summary = case.summary
    by_outcome = {one["outcome"]: one["n"] for one in summary["headline"]["outcomes"]}
    incidents = {line.split()[6] for line in summary["ledger"]} - {"-"}
    members = sa.failures.members(case.snap, window=case.window).filter(entity_type="session")
    one_number(
        outcomes=sum(by_outcome.get(word, 0) for word in FAILURES)
        + members.filter(outcome="aborted").height,
        over_time=sum(row["n_failed"] for row in summary["over_time"]["rows"]),
        failures=summary["failures"]["n_runs"],
    )
    one_number(
        headline=summary["headline"]["n_causes"],
        failures=summary["failures"]["n_run_causes"],
        members=members["cause"].n_unique(),
    )
    one_number(
        headline=case.numbers["incidents"]["n"],
        ledger=len(incidents),
        members=members.select(pl.coalesce("incident_id", "cause").n_unique()).item(),
    )


@pytest.mark.slow
def test_causes_of_failed_rows_and_clusters_of_codes(case):
    summary = case.summary
    members = sa.failures.members(case.snap, window=case.window)
    clusters = sa.failures.clusters(case.snap, window=case.window)
    one_number(
        failures=summary["failures"]["n_causes"],
        members=members["cause"].n_unique() if members.height else 0,
    )
    codes = summary["failures"]["codes"]
    shown = [None if code["code"] == NO_CODE else code["code"] for code in codes]
    of_codes = pl.DataFrame({"code": shown}, {"code": pl.String})
    one_number(
        codes=sum(code["n_clusters"] for code in codes),
        clusters=clusters.join(of_codes, on="code", how="semi", nulls_equal=True).height,
    )


@pytest.mark.slow
def test_a_share_is_of_causes_wherever_it_stands(case):
    summary, n_causes = case.summary, case.summary["failures"]["n_causes"]
    for code in summary["failures"]["codes"]:
        assert code["share"] == pytest.approx(code["n_causes"] / n_causes)
    for cluster in summary["failures"]["clusters"]:
        assert cluster["share"] == pytest.approx(cluster["n_causes"] / n_causes)
    codes = sa.failures.codes(case.snap, window=case.window)
    deepest = codes.filter(pl.col("depth") == pl.col("depth").max())
    known = dict(deepest.select("code", "share").rows())
    for code in summary["failures"]["codes"]:
        if code["code"] in known:
            assert known[code["code"]] == pytest.approx(code["share"])


@pytest.mark.slow
def test_incidents(case):
    incidents = sa.failures.incidents(case.snap, window=case.window)
    one_number(report=case.summary["failures"]["together"]["n"], incidents=incidents.height)
    members = sa.failures.members(case.snap, window=case.window)
    one_number(
        report=case.summary["failures"]["n_incidents"],
        members=members.select(pl.coalesce("incident_id", "cause").n_unique()).item(),
    )


def test_what_is_left_out(case):
    summary = case.summary
    left_out = {row["reason"]: row["n"] for row in summary["provenance"]["left_out"]}
    n_ledger = sum(line.split()[4] == "left_out" for line in summary["ledger"])
    total = summary["systems"]["total"]
    one_number(
        provenance=sum(left_out.values()),
        ledger=n_ledger,
        systems=total["n_left_out"] if total else n_ledger,
    )


@pytest.mark.slow
def test_sections_that_are_made_at_one_time_are_the_same(small_week, monkeypatch):
    monkeypatch.setattr(summarize, "_WORTH_THREADS", range(10**9))
    assert sa.report(facts(WEEK)).summary == small_week.summary


@pytest.mark.slow
def test_sections_of_a_store_that_are_made_at_one_time_are_the_same(case, monkeypatch):
    monkeypatch.setattr(summarize, "_WORTH_THREADS", range(10**9))
    assert sa.report(case.snap, window=case.window).summary == case.summary

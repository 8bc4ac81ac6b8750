"""The section on failures: each once, by cost, with its code, its life and its owner."""

import json
import re
from datetime import date, timedelta

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.cli import run as command
from stateanalytics.errors import ArgumentError
from tests.failures import run, store
from tests.frames import AS_OF, ago, facts
from tests.samples import SAMPLES

pytestmark = pytest.mark.usefixtures("read_once")

WINDOW = (ago(days=7), AS_OF)


def said(name, *, code="run.failed.exception", days=1.0, **rest):
    """One failure with a message of its own."""
    ended = ago(days=days)
    return run(f"{name} {days}", reason_code=code, reason_message=name, ended=ended, **rest)


WEEK = [
    said("cheap", cost_usd=0.5),
    said("dear", cost_usd=9.0),
    said("dear", cost_usd=3.0, days=3),
    said("silent about its cost"),
    said("old friend", days=1, cost_usd=1.0),
    said("old friend", days=9, cost_usd=1.0),
    said("returned", days=2, cost_usd=2.0, code="run.failed.exit_nonzero"),
    *(said("returned", days=day, code="run.failed.exit_nonzero") for day in range(30, 35)),
    *(said("left", days=day) for day in range(9, 24)),
    said("once", days=9),
    *(said("left long ago", days=day) for day in range(40, 50)),
    run("well", status="completed"),
]


def section(rows, **asked):
    return sa.report(store(*rows), window=WINDOW, sections=["failures"], **asked)


@pytest.fixture(scope="module")
def made():
    return section(WEEK)


def by_name(summary):
    return {one["name"]: one for one in summary["failures"]["clusters"]}


def test_what_cost_most_comes_first_and_its_cost_is_shown(made):
    it = made.summary["failures"]
    ranked = [(one["name"], one["rank"], one["lost"]["cost"]) for one in it["clusters"]]
    assert ranked[:2] == [("dear", 1, "$12.00"), ("returned", 2, "$2.00")]
    assert ranked[2] == ("old friend", 3, "$1.00")
    codes = [code["code"] for code in it["codes"]]
    assert codes == ["run.failed.exception", "run.failed.exit_nonzero"]
    counts = "6 failed or timed-out runs are 6 incidents in 5 clusters; "
    assert it["finding"].startswith(f"{counts}“dear” ($12.00, 20 min) costs most; ")


def test_news_has_a_name_however_cheap_it_is():
    """A cause that grew was counted, and named nowhere, below three dearer ones of its code."""
    dear = [said(f"dear {name}", days=day + 0.1, cost_usd=50.0)
            for name in ("one", "two", "three", "four") for day in range(0, 84, 3)]  # fmt: skip
    news = [said("cheap news", days=1 + n / 2, cost_usd=0.01) for n in range(8)]
    well = [run(f"well {day}", status="completed", ended=ago(days=day + 0.2)) for day in range(84)]
    made = section([*dear, *news, *well])
    it = made.summary["failures"]
    assert [(one["name"], one["is_news"]) for one in it["clusters"]][3:] == [("cheap news", True)]
    assert [code["n_more"] for code in it["codes"]] == [1]
    assert "cheap news" in made.as_html()


@pytest.mark.slow
def test_the_page_begins_with_what_one_person_would_fix(demo):
    made = sa.report(demo, window="2026-W21")
    it = made.summary["failures"]
    expected = sa.failures.faults(demo, window="2026-W21")
    assert it["n_faults"] == expected.height
    shown = expected.head(len(it["faults"]))
    for column in ("fault_id", "title", "where", "n_clusters", "n_rows"):
        assert [fault[column] for fault in it["faults"]] == shown[column].to_list()
    # Each names the rows of its clusters, which are one step away.
    for fault in it["faults"]:
        ranks = [one["rank"] for one in it["clusters"] if one["fault_id"] == fault["fault_id"]]
        assert fault["ranks"] == ranks
    words = next(fault["where"] for fault in it["faults"] if fault["where"])
    page = made.as_html()
    assert page.index(words) < page.index("By code and message")


def test_a_code_shows_its_dearest_clusters_and_counts_the_others(made):
    it = made.summary["failures"]
    code = it["codes"][0]
    assert (code["n_clusters"], code["n_more"]) == (4, 1)
    shown = [one["name"] for one in it["clusters"] if one["code"] == code["code"]]
    assert shown == ["dear", "old friend", "cheap"]
    page = made.as_html().partition("By code and message")[2]
    order = ("run.failed.exception<", "dear\n", "old friend\n", "run.failed.exit_nonzero<",
             "returned\n")  # fmt: skip
    places = [page.index(f">{text}") for text in order]
    assert places == sorted(places)
    assert "1 cheaper cluster" in page


def test_every_cluster_has_a_state_and_its_weeks(made):
    found = by_name(made.summary)
    states = {name: one["state"] for name, one in found.items()}
    assert states == {"dear": "new", "old friend": "ongoing", "cheap": "new", "returned": "back"}
    assert found["returned"]["n_quiet_weeks"] == 4
    assert found["old friend"]["weeks"][-3:] == [0, 1, 1]
    assert all(one["weeks"][-1] == one["n_incidents"] for one in found.values())
    assert made.summary["failures"]["gone"] == {"n": 1, "names": ["left"]}
    news = {one["title"]: one["n"] for one in made.summary["news"]}
    assert (news["Reappeared"], news["No longer seen"]) == (1, 1)
    assert made.summary["failures"]["finding"].endswith(
        "3 new (1 surprisingly), 1 reappeared after weeks and 1 no longer seen, "
        "in 7 weeks of history."
    )


@pytest.mark.slow
def test_the_ledger_says_whose_it_is_and_who_is_missing(tmp_path):
    clusters = sa.failures.clusters(store(*WEEK))
    ids = dict(clusters.select("template", "cluster_id").rows())
    path = tmp_path / "owners.csv"
    sa.failures.own(path, ids["dear"], owner="ada", ticket="OPS-1", expected_until="2099-01-01")
    sa.failures.own(path, ids["returned"], owner="ben", resolved_in="1.4",
                    resolved_on=AS_OF.date() - timedelta(days=20))  # fmt: skip
    sa.failures.own(path, "v1:000000000000", owner="cyd")
    made = section(WEEK, ledger=path)
    it = made.summary["failures"]
    assert "unassigned: “old friend” ($1.00, 10 min) and “cheap”" in it["finding"]
    assert it["also"] == ["Resolved, but reappeared: “returned”."]
    assert (it["has_ledger"], it["n_unknown"]) == (True, 1)
    page = " ".join(re.sub(r"<[^>]+>", " ", made.as_html()).split())
    for words in ("ada", "OPS-1", "unassigned", "resolved in 1.4, but reappeared", "2099-01-01",
                  "1 entry of the ledger matches no failure"):  # fmt: skip
        assert words in page
    with pytest.raises(ArgumentError, match="which was read"):
        made.write_html(path)


@pytest.mark.slow
def test_where_nobody_reported_anything_nothing_is_called_dearest():
    play = run("p", entity_type="play", status="escalated", reason_message="x")
    made = section([{**play, "started_at": None}])
    said = "1 failed or timed-out row is 1 incident in 1 cluster."
    assert made.summary["failures"]["finding"] == said


def test_incidents_are_those_of_runs_as_in_the_headline(demo_week):
    told = demo_week.summary
    [in_headline] = [one["n"] for one in told["headline"]["numbers"] if one["name"] == "incidents"]
    n_runs = told["failures"]["n_runs"]
    assert told["failures"]["n_rows"] > n_runs
    said = f"{n_runs} failed or timed-out runs are {in_headline} incidents in "
    assert told["failures"]["finding"].startswith(said)


@pytest.mark.slow
def test_clusters_that_only_other_work_has_are_counted_beside_those_of_runs():
    others = [run(f"p{n}", entity_type="play", status="escalated", reason_message=f"no {n * 'x'}")
              for n in (1, 9)]  # fmt: skip
    told = section([said("dear", cost_usd=1.0), *others]).summary["failures"]
    n = len(told["clusters"])
    words = f"1 failed or timed-out run is 1 incident in 1 cluster ({n} with other work); "
    assert n > 1 and told["finding"].startswith(words)


def test_without_a_ledger_no_failure_has_an_owner(made):
    assert made.as_html().count("No owner is recorded.") == 1, "of the things to do, once"
    assert made.summary["failures"]["has_ledger"] is False


@pytest.mark.slow
def test_mass_failures_are_marked_and_the_rate_is_told_without_them():
    outage = [said(f"out {chr(97 + i) * 9}", days=2) for i in range(9)]
    well = [run(f"ok {i}", status="completed", ended=ago(hours=1 + 5 * i)) for i in range(3)]
    made = section([*outage, *well, said("other", cost_usd=1.0)])
    mass = made.summary["failures"]["mass"]
    assert [(one["n_failed"], one["n_starts"]) for one in mass["stretches"]] == [(9, 9)]
    assert mass["completed_without"] == {"n": 3, "of": 4, "shown": "75 %"}
    assert {one["n_mass"] for one in made.summary["failures"]["clusters"]} == {0, 1}
    assert "in a mass failure" in made.as_html()


HOUR = ("2026-05-20T14:00", "2026-05-20T15:00")


@pytest.mark.slow
def test_the_fan_out_of_the_sample_is_one_incident_everywhere(demo, capsys):
    made = sa.report(demo, window=HOUR, sections=["failures"]).summary
    headline = {one["name"]: one["n"] for one in made["headline"]["numbers"]}
    it = made["failures"]
    fan = max(it["clusters"], key=lambda one: one["n_rows"])
    code = next(one for one in it["codes"] if one["code"] == fan["code"])
    parts = {"section": it, "code": code, "cluster": fan}
    counts = {name: part["n_incidents"] for name, part in parts.items()} | {
        "headline": headline["incidents"],
        "ledger": len({line.split()[6] for line in made["ledger"]} - {"-"}),
        "weeks of the cluster": max(fan["weeks"]),
        "incidents": it["together"]["n"],
    }
    for name in ("clusters", "codes", "change", "life"):
        frame = getattr(sa.failures, name)(demo, window=HOUR)
        counts[name] = frame.filter(pl.col("n_rows") >= 24)["n_incidents"].max()
    asked = ["--since", HOUR[0], "--until", HOUR[1], "--format", "json", "--show", "codes"]
    assert command(["failures", str(SAMPLES / "state.db"), *asked]) == 0
    printed = json.loads(capsys.readouterr().out)
    counts["command"] = max(row["n_incidents"] for row in printed)
    assert set(counts.values()) == {1}, counts
    assert fan["n_rows"] == 24
    weeks = demo.weeks(2).filter(measure="failure_incidents", group_id=fan["cluster_id"])
    rows = demo.weeks(2).filter(measure="failure_rows", group_id=fan["cluster_id"])
    # Of the week the outage is one, and each of the others one.
    assert weeks["n"].max() == rows["n"].max() - 24 + 1


@pytest.mark.slow
def test_a_report_of_the_command_line_reads_the_ledger(tmp_path, capsys):
    path, page = tmp_path / "owners.csv", tmp_path / "week.html"
    sa.failures.own(path, "v1:3dd4831bf7f3", owner="ada", ticket="OPS-17", today=date(2026, 5, 1))
    asked = ["--week", "2026-W21", "--sections", "failures", "--ledger", str(path)]
    assert command(["report", str(SAMPLES / "state.db"), *asked, "-o", str(page)]) == 0
    assert "OPS-17" in page.read_text()
    assert command(["report", str(SAMPLES / "state.db"), *asked, "-o", str(path)]) == 2
    capsys.readouterr()


def test_runs_that_died_and_runs_that_were_stopped_are_both_aborted():
    """Agent Orchestrator calls both aborted; only those that died are failures."""
    ao = {"system": "agent_orchestrator", "raw_status": "aborted"}
    codes = ["run.aborted.runtime_lost", "run.aborted.killed", "run.aborted.killed"]
    rows = [run(str(n), reason_code=code) | ao for n, code in enumerate(codes)]
    told = sa.report(facts(rows), window=WINDOW, sections=["headline", "failures"])
    assert "1 aborted, in 1 incident; 2 more aborted." in told.summary["headline"]["finding"]
    assert "Rows are\n 1 session, without 2 aborted that did not fail.</p>" in told.as_html()


@pytest.mark.slow
def test_what_died_is_a_failure_where_its_system_calls_it_so(capsys):
    path = str(SAMPLES / "agent_orchestrator")
    snap = sa.read(path, progress=False)
    died = sa.failures.members(snap)
    ended = sa.states(snap).filter("is_terminal").select("entity_id")
    attention = sa.attention(snap).join(ended, on="entity_id", how="semi")
    dated = snap.entities.filter(pl.coalesce("ended_at", "started_at", "created_at").is_not_null())
    critical = attention.join(dated, on="entity_id", how="semi").filter(severity="critical")
    assert set(died["entity_id"]) == set(critical["entity_id"]) != set()
    assert set(died["outcome"]) == {"aborted"}
    clusters = sa.failures.clusters(snap)
    assert int(clusters["n_failed"].sum()) == died.height
    told = sa.report(snap, window=("2026-01-01", "2027-01-01"), sections=["over_time"]).summary
    steps = told["over_time"]["rows"]
    assert sum(row["n_failed"] for row in steps) == died.filter(entity_type="session").height > 0
    assert "none failed" not in told["over_time"]["finding"]
    assert command(["failures", path, "--format", "csv"]) == 0
    said = capsys.readouterr()
    assert "run.aborted.runtime_lost" in said.out
    assert (
        "note: Agent Orchestrator: A session that died is aborted, and a failure, too" in said.err
    )
    assert command(["failures", path, "--code", "run.failed", "--format", "csv"]) == 0
    assert "A session that died" not in capsys.readouterr().err, "no row is such a failure"
    made = sa.report(snap, window=(ago(days=400), None), sections=["failures"])
    assert f"{died.height} aborted, in" in made.summary["headline"]["finding"]
    assert made.summary["failures"]["n_runs"] == died.height
    assert "A session that died is aborted, and a failure, too" in made.as_html()


@pytest.mark.slow
def test_what_a_person_stopped_is_no_failure(demo):
    assert set(sa.failures.members(demo)["outcome"]) == {"failed", "timed_out"}

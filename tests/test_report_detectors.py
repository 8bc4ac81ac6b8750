"""The report's section on detectors: the worst contradiction first, and never an invented one."""

import json

import polars as pl
import pytest

from stateanalytics import cli
from stateanalytics.detectors.catalogue import chosen_detectors
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting import report
from stateanalytics.reporting.sections.detectors import FEWEST_DRAWN, TROUBLE, _all_agree
from stateanalytics.systems.detector import Detector, Entry
from tests.conftest import SHIPPED
from tests.frames import ago, facts


def running(entity_id, *, hours, silent_s):
    row = {"entity_id": entity_id, "raw_status": "running", "n_messages": 3, "kind": "flow"}
    began = dict.fromkeys(("created_at", "started_at"), ago(hours=hours))
    spoke = ("last_message_at", "last_activity_at", "updated_at")
    return {**row, **began, **dict.fromkeys(spoke, ago(seconds=silent_s))}


DASHBOARD = "lionagi@0.26.1"


def section(rows, detectors=None):
    made = report(facts(rows), sections=["detectors"], detectors=detectors)
    return made.summary["detectors"], made


@pytest.mark.slow
def test_a_long_run_that_speaks_is_stuck_for_one_and_fine_for_the_other():
    """lionagi #1162: "Stale: 0" beside "1 stuck >60m"."""
    found, made = section([running("long", hours=9, silent_s=40)], DASHBOARD)
    assert "1 stuck and 0 stale" in found["finding"]
    stuck = "stuck (dashboard, 0.26.1) counts 9 h since start, "
    assert f"{stuck}stale (dashboard, 0.26.1) counts 40 s" in found["finding"]
    assert found["causes"][0]["cause"] == "construct"
    assert found["finding"].split(":")[0] in made.as_html()
    # One name everywhere: "dashboard stuck 60m" stood in the tables.
    assert found["causes"][0]["title_a"] == stuck.partition(" counts")[0]
    assert stuck.partition(" counts")[0] in {row["title"] for row in found["said"]}
    assert "dashboard stuck" not in made.as_html()


@pytest.mark.slow
def test_a_young_run_that_speaks_contradicts_nothing_on_the_dashboard():
    found, _ = section([running("young", hours=0.1, silent_s=5)], [DASHBOARD, "policy"])
    flagged = {row["detector"] for row in found["said"]}
    assert not flagged & {"dashboard_stuck_60m", "dashboard_stale_card", "policy"}


@pytest.mark.slow
def test_the_report_asks_the_current_rules_unless_others_are_named():
    rows = [running("long", hours=9, silent_s=40), running("quiet", hours=30, silent_s=90_000)]
    few, every, two = (section(rows, asked)[0] for asked in (None, "all", ["B2", "B4"]))
    assert two["n_detectors"] == 2
    assert few["n_detectors"] < every["n_detectors"] / 2
    assert few["n_causes"] < every["n_causes"] / 5
    current = {rule.name for rule in chosen_detectors() if rule.question in TROUBLE}
    assert {row["detector"] for row in few["said"]} <= current


@pytest.mark.slow
def test_the_report_takes_rules_of_yours_and_refuses_unknown_ones():
    mine = Detector("mine", fires=pl.lit(value=True), entry=Entry(rule="always"))
    found, _ = section([running("long", hours=9, silent_s=40)], ["B4", mine])
    assert found["finding"].startswith("Two rules disagree about 1 run; one calls it ")
    assert {row["rule"] for row in found["said"]} == {"always"}
    with pytest.raises(ArgumentError, match="no detector 'B99'"):
        section([running("long", hours=9, silent_s=40)], "B99")


@pytest.mark.slow
def test_the_command_report_asks_the_detectors_that_are_named(tmp_path):
    def n_asked(*arguments):
        page = tmp_path / "week.json"
        sections = ("--sections", "detectors", "-o", str(page))
        assert cli.run(["report", str(SHIPPED["lionagi"]), *sections, *arguments]) == 0
        return json.loads(page.read_text("utf-8"))["detectors"]["n_detectors"]

    assert n_asked("--detectors", "B2,B4") == 2
    assert 2 < n_asked() < n_asked("--detectors", "all") / 2


@pytest.mark.slow
def test_a_matrix_is_made_only_where_there_is_something_to_see():
    rows = [running(f"r{n}", hours=9, silent_s=40) for n in range(FEWEST_DRAWN)]
    few, many = (section(some, "all")[0]["pairs"] for some in (rows[1:], rows))
    assert few == [] != many


def test_without_open_runs_there_is_nothing_to_contradict():
    found, made = section([])
    assert found["finding"] == "No run is open, so no detector could contradict another."
    assert found["pairs"] == []
    assert "Nothing is recorded here yet" in made.as_html()


@pytest.mark.slow
def test_the_words_say_what_each_detector_looked_at():
    found, _ = section([running("long", hours=9, silent_s=40)], DASHBOARD)
    by_name = {row["detector"]: row for row in found["said"]}
    stuck = by_name["dashboard_stuck_60m"]
    assert (stuck["n_flagged"], stuck["n_covered"], stuck["known_as"]) == (1, 1, "B2")


@pytest.mark.parametrize(
    ("n_loud", "expected"),
    [
        (0, "9 rules looked at 3 open runs and called none stale, stuck, slow or dead."),
        (
            1,
            "One rule calls open runs stale, stuck, slow or dead, "
            "and no other rule about runs contradicts it.",
        ),
        (2, "2 rules call open runs stale, stuck, slow or dead, and all the same ones."),
    ],
)
def test_no_contradiction_is_said_by_how_many_flag_anything(n_loud, expected):
    assert _all_agree(n_loud, 9, 3) == expected

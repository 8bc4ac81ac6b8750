"""The sample that people see first tells its story."""

import re

import pytest

import stateanalytics as sa
from tests.conftest import ROOT
from tests.test_report_page import Page

STORY = ROOT / "data" / "samples" / "twelve_weeks"


@pytest.fixture(scope="module")
def snap():
    with sa.read(STORY / "history", progress=False) as snap:
        yield snap


@pytest.mark.slow
def test_the_report_says_what_happened(snap):
    told = sa.report(snap, window="2026-W21", ledger=STORY / "owners.csv").summary
    clusters = told["failures"]["clusters"]
    states = {cluster["template"]: cluster["state"] for cluster in clusters}
    assert [state for words, state in states.items() if "FlowPlan" in words] == ["new"]
    assert [state for words, state in states.items() if "poetry" in words] == ["back"]
    assert "FlowPlan" in clusters[0]["template"]
    (limited,) = (cluster for cluster in clusters if "429" in cluster["template"])
    assert (limited["n_incidents"], limited["n_rows"]) == (1, 12)


@pytest.mark.slow
def test_the_outage_is_one_incident_of_four_hours(snap):
    found = sa.failures.incidents(snap, window="2026-W16").sort("n_rows")
    assert found["n_rows"].to_list()[-1] == 22
    assert found["duration_s"].to_list()[-1] > 4 * 3600


@pytest.mark.slow
def test_the_new_model_takes_longer_with_the_same_mix(snap):
    compared = sa.survival.compare(sa.survival.spells(snap), by="model").filter(
        value="claude_code/opus", measure="duration", method="adjusted"
    )
    assert compared["low"].item() > 60


def test_what_the_store_forgot_is_in_the_archive(snap):
    assert not snap.sources["is_unchanged"].any()
    assert set(snap.findings["code"]) <= {
        "cost.unreliable",
        "run.not_in_store",
        "transition.orphaned",
    }
    assert snap.entities.filter(entity_type="session").height > 1_000


def test_it_is_small_and_names_nobodys_home():
    files = [path for path in STORY.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2_000_000
    for path in files:
        assert b"/root/" not in path.read_bytes()
        assert b"/tmp/" not in path.read_bytes()


@pytest.fixture(scope="module")
def week(snap):
    return sa.report(snap, ledger=STORY / "owners.csv", shown=False)


def test_the_page_says_how_many_completed_and_what_is_normal_and_then_what_changed(week):
    first = week.summary["lead"][0]
    assert re.match(
        r"83 of 140 ended runs completed \(59 %\), lowest of 12 weeks, "
        r"normal range .*\d+ to \d+ %\. Worse than before: completed, 59 % overall since ",
        first,
    )
    assert f"<strong>{first}</strong>" in week.as_html()


def test_what_explains_it_adds_up(week):
    """The change in points where it is clear, else the runs that failed."""
    story = week.summary["story"]
    signed = re.findall(r"[+−]\d+", story["explained"])
    if story["parts"]:
        change = int(re.search(r"rose by (\d+) points", story["explained"])[1])
        assert sum(int(one.replace("−", "-")) for one in signed) == change
    else:
        counts = re.findall(r"(?:: |, | and )(\d+) ", story["explained"])
        assert sum(map(int, counts)) == int(re.search(r"of (\d+) failed", story["explained"])[1])


def test_each_thing_to_do_has_an_owner_or_is_said_to_have_none(week):
    owned = [one["who"] for one in week.summary["actions"] if one["is_owned"]]
    assert owned == ["owner: grace (OPS-41), reopened"]
    assert week.summary["unassigned"] == "No owner: actions 1 and 3."
    assert week.as_html().count("No owner: ") == 1


def test_runs_of_a_fault_are_one_number_and_a_note_says_that_rows_share_incidents(week):
    story, actions = week.summary["story"]["explained"], week.summary["actions"]
    assert "“Missing command `poetry` · Bash” in project mobile +7" in story
    [fix] = [one["why"] for one in actions if "poetry" in one["what"]]
    assert fix.startswith("13 runs, ")
    page = " ".join(week.as_html().split())
    assert page.count("One incident may be in several lines.") == 1


def test_the_first_screen_has_350_words_and_the_page_for_everybody_900(week):
    page = Page(week.as_html())
    first, everybody = (page.words(n, "header") + page.words(n, "headline") for n in (0, 1))
    assert first <= 350
    assert everybody + page.words(0, "costs") <= 900

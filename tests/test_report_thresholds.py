"""The report's section on thresholds: a sentence, one curve, a table of reasons."""

import json
import re
from collections import Counter

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.windows import Window
from stateanalytics.reporting.material import Material
from stateanalytics.reporting.sections.thresholds import _finding, summarize_thresholds
from stateanalytics.thresholds import Advice, Costs
from tests.frames import AS_OF, ago, facts

HOSTILE = "</script><script>x()</script>"


@pytest.fixture(scope="module")
def report(demo):
    return sa.report(demo, sections=["thresholds"])


@pytest.fixture(scope="module")
def section(report):
    return report.summary["thresholds"]


def material(snap) -> Material:
    return Material.of(snap, Window(ago(days=7), AS_OF, "a week"), sa.Policy.v1())


@pytest.mark.slow
def test_it_leads_with_what_should_change_and_what_is_not_known(section):
    """On the sample one has a direction: what one run carries is no reason to move a limit."""
    counts = Counter(row["verdict"] for row in section["rows"])
    assert (counts["change"], counts["raise"]) == (0, 1)
    assert "most of all worker.idle: 10 min to at least 30 min; " in section["finding"]
    n_unknown = section["n_thresholds"] - len(section["rows"])
    assert f"for {n_unknown} of {section['n_thresholds']} there is not enough" in section["finding"]


def test_a_change_leads_with_both_values():
    row = {"verdict": "change", "name": "idle", "today_s": 3600.0, "recommended_s": 900.0}
    known = pl.DataFrame([row])
    advice = Advice(known, pl.DataFrame(), Costs(), ())
    assert _finding(advice, known).startswith(
        "1 threshold would cost less at another value, most of all idle: 1 h to 15 min; "
    )


def test_where_no_threshold_can_be_judged_none_is_said_to_be_kept():
    known = pl.DataFrame({"verdict": ["cannot_tell", "not_identified"]})
    assert _finding(Advice(known, pl.DataFrame(), Costs(), ()), known).startswith(
        "For 2 thresholds the data cannot tell whether another value would cost less; "
    )


def test_changes_stand_first_and_every_row_says_why(section):
    order = ["change", "choose", "raise", "lower", "keep", "cannot tell", "not identified"]
    verdicts = [order.index(row["verdict"]) for row in section["rows"]]
    assert verdicts == sorted(verdicts)
    assert not [row for row in section["rows"] if not row["in_words"].endswith(".")]


def test_what_is_known_without_advice_stands_apart_from_it(section, report):
    known = {row["name"]: row["in_words"] for row in section["undecided"]}
    assert "Borrowed from" in known["stale.engine"]
    assert not known.keys() & {row["name"] for row in section["rows"]}
    assert all(words.startswith("Not enough data: ") for words in known.values())
    page, first = report.as_html(), section["rows"][0]["name"]
    assert page.index("thresholds with too few runs for advice") > page.index(first)
    assert page.count("waits less") >= sum("waits less" in words for words in known.values()) > 2


@pytest.mark.slow
def test_it_is_the_advice_of_the_library(demo, section):
    frame = sa.thresholds.recommend(demo).frame
    said = {row["name"]: row["in_words"] for row in section["rows"]}
    known = frame.filter(~frame["verdict"].is_in(["not_enough_data"]))
    assert said == dict(known.select("name", "in_words").iter_rows())


def test_the_page_has_the_curve_with_both_axes_named(report, section):
    page = report.as_html()
    start = page.index('<div id="thresholds"')
    part = page[start : page.index("</section>", start)]
    assert section["worksheet"]["finding"] in part.replace("&#39;", "'")
    assert "delay until it acts (the threshold)" in part
    assert re.search(r"(good runs ended|false alarms) per 100", part)


@pytest.mark.slow
def test_a_snapshot_without_data_says_so():
    empty = summarize_thresholds(material(facts([])))
    assert empty["finding"] == "No threshold of these systems is known."
    one = facts([{"entity_id": "a", "kind": HOSTILE, "started_at": ago(hours=3)}])
    few = summarize_thresholds(material(one))
    assert few["finding"] == "There is not enough data to judge any threshold."
    assert few["rows"] == []
    assert few["worksheet"] is None
    assert "<script" not in sa.report(one, sections=["thresholds"]).as_html()


def test_it_is_plain_data(section):
    assert json.loads(json.dumps(section, allow_nan=False)) == section

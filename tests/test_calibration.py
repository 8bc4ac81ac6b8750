"""The fleets of `doctor --calibrate` are as they say, and its reading of reports is right."""

import math
from datetime import timedelta
from random import Random

import polars as pl
import pytest

from stateanalytics.cli import calibration, run
from stateanalytics.cli.calibration import CHANGES, Change, Size, fleet, statements
from tests.conftest import ROOT
from tests.failures import run as session
from tests.frames import AS_OF, facts

GROWS = "a cause from 10 to 20 a week, a new one of 8"


def weekly(found, is_new):
    """The runs of the changed weeks, or those before."""
    since = found.as_of - timedelta(days=14)
    return found.entities.filter((pl.col("ended_at") >= since) == is_new)


def n_of(rows, word):
    return rows.filter(pl.col("reason_message").str.contains(word)).height


def median_s(rows):
    return (rows["ended_at"] - rows["started_at"]).dt.total_seconds().median()


def test_a_fleet_is_as_large_and_fails_as_often_as_asked(demo):
    found = fleet(demo, Size(400, 0.9), CHANGES["failures × 2"], 5)
    assert found.entities.height == pytest.approx(12 * 400, rel=0.1)
    for is_new, share in ((False, 0.1), (True, 0.2)):
        failed = weekly(found, is_new)["reason_message"].is_not_null().mean()
        assert failed == pytest.approx(share, abs=0.04)
    assert found.entities["entity_id"].is_unique().all()
    again = fleet(demo, Size(400, 0.9), CHANGES["failures × 2"], 5)
    assert again.entities.equals(found.entities)


def test_each_change_is_only_itself(demo):
    slow = fleet(demo, Size(400), CHANGES["durations × 1.5"], 6)
    ratio = median_s(weekly(slow, True)) / median_s(weekly(slow, False))
    assert ratio == pytest.approx(1.5, rel=0.15)
    grown = fleet(demo, Size(100), CHANGES[GROWS], 7)
    assert n_of(weekly(grown, True), "golf") == pytest.approx(40, abs=16)
    assert n_of(weekly(grown, False), "golf") == pytest.approx(100, abs=30)
    assert n_of(weekly(grown, True), "hotel") > 5
    assert n_of(weekly(grown, False), "hotel") == 0
    alike = fleet(demo, Size(100), Change(), 7)
    assert n_of(alike.entities, "golf") == n_of(alike.entities, "hotel") == 0


def other_weeks(draw, share_now):
    """Another generator than that of the package: single runs, of which a share completes."""
    rows = []
    for i in range(12 * 120):
        week = i // 120
        ended = AS_OF - timedelta(days=7 * (12 - week - draw.random()))
        bad = draw.random() > (share_now if week == 11 else 0.9)
        word = draw.choice(["oscar", "papa", "quebec"])
        message = f"{word} refused: no {word} left on {word}"
        rows.append(session(f"s{i}", status="failed" if bad else "completed", ended=ended,
                            reason_message=message if bad else None))  # fmt: skip
    return facts(rows)


@pytest.mark.slow
def test_reports_of_another_generator_are_read_as_they_say():
    draw = Random(11)
    assert "worse than before" in statements(other_weeks(draw, 0.5), 0)
    alike = other_weeks(draw, 0.9)
    assert statements(alike, 0) == statements(alike, 1) == set()


def test_data_without_failures_take_those_of_the_sample(demo):
    nothing = facts([session("a", status="completed")])
    assert fleet(nothing, Size(20), Change(), 1).entities.height >= 20
    assert calibration.size_of(nothing) == Size(10, 0.98)


def test_advice_is_useful_on_fleets_of_its_own():
    for row in calibration.advice_calibrated(1):
        assert (row["useful"], row["wrong"]) == (1.0, 0.0)


def test_the_command_prints_what_was_measured(monkeypatch, capsys):
    row = {"change": "failures × 2", "statement": "worse than before", "week_1": 0.5}
    rows = [{**row, "week_2": None, "wrong": 0.0125}]
    monkeypatch.setattr(calibration, "calibrated", lambda *_: rows)
    monkeypatch.setattr(calibration, "advice_calibrated", lambda *_: [])
    assert run(["doctor", "--calibrate", "2"]) == 0
    printed = capsys.readouterr().out
    assert "| failures × 2 | worse than before | 50% | · | 1.2% |" in printed
    assert "**300 runs a week, of which 90% complete**" in printed


def test_the_page_has_every_statement():
    page = (ROOT / "docs" / "calibration.md").read_text("utf-8")
    for change, (*_, said) in CHANGES.items():
        assert all(f"| {change} | {statement} |" in page for statement in said)
    assert "stateanalytics doctor --calibrate" in page


@pytest.mark.slow
def test_the_goals_that_are_met_at_300_runs_a_week(demo, monkeypatch):
    name = "completed × 0.8"
    monkeypatch.setattr(calibration, "CHANGES", {name: calibration.CHANGES[name]})
    found = {(row["change"], row["statement"]): row
             for row in calibration.calibrated(demo, Size(300), 10, 400)}  # fmt: skip
    worse = found[name, "worse than before"]
    assert worse["week_1"] >= 0.8 and worse["week_2"] >= 0.9
    n_reports = 20
    most = 0.05 + 3 * math.sqrt(0.05 * 0.95 / n_reports)
    assert found["none", "any"]["wrong"] <= most


def test_a_sample_with_a_number_of_fleets_or_a_store_is_refused(capsys):
    for arguments in (["state.db"], ["--calibrate", "1"]):
        assert run(["doctor", "--demo", *arguments]) == 2
        assert "Hint: stateanalytics doctor --demo" in capsys.readouterr().err


def test_fleets_that_fail_more_often_than_not_are_simulated(demo):
    made = fleet(demo, Size(20, 0.4), Change(failures=2.0), 0)
    newest = made.entities.filter(pl.col("ended_at") >= made.as_of - timedelta(days=7))
    assert newest.height > 5

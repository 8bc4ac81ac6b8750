"""A report in the reader's time zone: weeks and days from midnight there, and its clock."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.core.windows import read_window
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.changes import earlier_window
from tests.lionagi_stores import session, write_store
from tests.report_parts import material_of
from tests.samples import SAMPLES

ZONE = "Europe/Berlin"
SECTIONS = ["over_time", "provenance"]


@pytest.mark.slow
def test_a_week_begins_on_monday_at_midnight_there(demo):
    made = sa.report(demo, window="2026-W21", tz=ZONE, sections=SECTIONS)
    window, rows = made.summary["window"], made.summary["over_time"]["rows"]
    assert (window["since"], window["until"]) == ("2026-05-17T22:00:00Z", "2026-05-24T22:00:00Z")
    days = ["Mon 18", "Tue 19", "Wed 20", "Thu 21", "Fri 22", "Sat 23", "Sun 24"]
    assert [row["label"] for row in rows] == [f"{day} May" for day in days]
    assert sum(row["n"] for row in rows) == made.summary["headline"]["numbers"][1]["of"]
    since, until = datetime(2026, 5, 17, 22, tzinfo=UTC), datetime(2026, 5, 24, 22, tzinfo=UTC)
    same = sa.report(demo, window=(since, until), sections=["headline"])
    assert same.summary["headline"]["finding"] == made.summary["headline"]["finding"]


@pytest.mark.slow
def test_the_page_shows_the_clock_of_the_zone_and_its_name(demo):
    page = sa.report(demo, window="2026-W21", tz=ZONE, sections=SECTIONS).as_html()
    first = demo.sources["first_at"].item()
    assert f"{first.hour + 2:02}:{first:%M}</time>" in page
    assert f"2026 · {ZONE}</p>" in page
    assert ZONE not in sa.report(demo, window="2026-W21", sections=SECTIONS).as_html()


@pytest.mark.slow
def test_the_week_in_which_the_clock_changes_has_seven_days(demo):
    made = sa.report(demo, window="2026-W13", tz=ZONE, sections=SECTIONS)
    rows = made.summary["over_time"]["rows"]
    assert len(rows) == 7 and not any(row["is_part"] for row in rows)
    assert made.summary["window"]["days"] == round(7 - 1 / 24, 3)


@pytest.mark.slow
def test_sentences_and_axes_name_the_zone_too(demo):
    made = sa.report(demo, tz=ZONE, sections=["headline", "over_time", "provenance"])
    assert made.summary["window"]["label"] == "the 7 days up to 2026-05-25 08:00 CEST"
    page = made.as_html()
    assert "as of 2026-05-25 08:00 CEST" in page
    assert "2026-05-11 08:00 CEST to 2026-05-18 08:00 CEST" in page
    assert f"each day ({ZONE})" in page
    assert "UTC" not in page


@pytest.mark.parametrize("compare", ["previous", "last-week", "2026-W13"])
def test_the_week_before_begins_at_midnight_there_where_the_clock_changed(compare):
    as_of = datetime(2026, 5, 27, tzinfo=UTC)
    week = read_window("2026-W14", as_of=as_of, tz=ZONE)
    before = earlier_window(compare, week, as_of=as_of, tz=ZONE)
    assert before.since == datetime(2026, 3, 22, 23, tzinfo=UTC)
    assert before.until == week.since == datetime(2026, 3, 29, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("since", "until"),
    [
        # The hour that is there twice, half before and half after, and a week that is no week.
        ("2026-10-25T00:30Z", "2026-10-25T01:30Z"),
        ("2026-10-25T00:45Z", "2026-10-25T01:15Z"),
        ("2026-10-20T12:00Z", "2026-10-27T12:00Z"),
    ],
)
def test_a_window_that_is_not_of_days_is_compared_with_as_many_hours(since, until):
    as_of = datetime(2026, 11, 1, tzinfo=UTC)
    window = read_window((since, until), as_of=as_of, tz=ZONE)
    before = earlier_window("previous", window, as_of=as_of, tz=ZONE)
    assert before.until == window.since
    assert before.until - before.since == window.until - window.since


@pytest.mark.parametrize(("zone", "day"), [("Asia/Tokyo", "2026-05-24"), (ZONE, "2026-05-24")])
def test_a_day_of_the_zone_has_its_name(demo, zone, day):
    window = read_window(day, as_of=demo.as_of, tz=zone)
    material = replace(material_of(demo, window), zone=zone)
    assert material.named_window.label == day


def test_the_first_day_there_is_needs_no_clock():
    as_of = datetime(2026, 5, 27, tzinfo=UTC)
    asked = ("0001-01-01T00:00Z", "2026-01-01")
    read = read_window(asked, as_of=as_of, tz="America/New_York")
    assert read.label.startswith("0001-01-01 00:00 UTC to 2026-01-01")


def test_costs_of_nothing_name_the_window_of_the_zone(tmp_path, capsys):
    store = write_store(tmp_path / "state.db", sessions=[session("a")])
    days = ["--since", "2020-01-01", "--until", "2020-01-02", "--tz", "Asia/Tokyo"]
    assert run(["costs", str(store), *days]) == 0
    words = "nothing found in 2020-01-01 00:00 JST to 2020-01-02 00:00 JST"
    assert words in capsys.readouterr().err


def test_a_zone_that_there_is_not_is_one_line(demo, capsys):
    with pytest.raises(ArgumentError, match="no time zone 'Berlin'"):
        sa.report(demo, tz="Berlin")
    assert run(["report", str(SAMPLES / "state.db"), "--tz", "Berlin", "-o", "-"]) == 2
    assert capsys.readouterr().err.startswith("error: There is no time zone 'Berlin'")

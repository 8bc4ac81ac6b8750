"""The worksheet for a threshold of silence: what it would have done, today's marked."""

import polars as pl
import pytest

from stateanalytics import Policy
from stateanalytics.detectors.gaps import silence_gaps
from stateanalytics.detectors.quality import gap_sums, quality_of_service
from stateanalytics.errors import ArgumentError
from stateanalytics.thresholds.settings import stale

HOUR = 3600.0


@pytest.fixture(scope="module")
def gaps(demo):
    return silence_gaps(demo)


def marked(sheet, **where):
    rows = sheet.filter("is_today").filter(**where)
    return {row["threshold_s"]: row["constants"] for row in rows.iter_rows(named=True)}


def test_today_s_constants_are_marked_where_they_apply(gaps):
    sheet = stale(gaps)
    assert marked(sheet, kind="flow") == {HOUR: "idle, phantom", 12 * HOUR: "stale.flow"}
    assert marked(sheet, kind="agent") == {
        600.0: "worker.idle",
        HOUR: "idle, phantom",
        6 * HOUR: "stale.agent",
    }


def test_work_without_a_kind_of_its_own_has_the_default(gaps):
    sheet = stale(gaps.with_columns(kind=pl.lit(None, pl.String)))
    assert marked(sheet) == {HOUR: "idle, phantom", 6 * HOUR: "stale.other"}


def test_constants_of_another_system_are_not_marked(gaps):
    worker = gaps.with_columns(system=pl.lit("agent_orchestrator"), kind=pl.lit("worker"))
    found = marked(stale(worker))
    assert found == {300.0: "ao.fresh, ao.ready", 600.0: "ao.stuck"}


def test_all_of_them_are_marked_where_nothing_is_told_apart(gaps):
    everything = marked(stale(gaps, by=()))
    assert "stale.flow" in everything[12 * HOUR]
    assert "ao.stuck" in everything[600.0]


def test_a_policy_says_what_is_today_s(gaps):
    strict = Policy.v1().replace(idle_after_s=777)
    assert "idle" in marked(stale(gaps, policy=strict), kind="flow")[777.0]


def test_the_numbers_are_those_of_quality_of_service(gaps):
    sheet = stale(gaps, thresholds_s=[1000.0], by="kind")
    plain = quality_of_service(gaps, thresholds_s=[1000.0])
    assert sheet.filter(threshold_s=1000.0).select(plain.columns).equals(plain)
    assert not sheet.filter(threshold_s=1000.0)["is_today"].any()
    assert sheet["threshold_s"].n_unique() > 5


def test_flags_are_counted_however_the_silence_went_on(gaps):
    sheet = stale(gaps, thresholds_s=[1000.0], by=()).filter(threshold_s=1000.0)
    longer = gaps.filter(pl.col("left_out").is_null(), pl.col("gap_s") > 1000)
    assert sheet["n_flagged"].item() == longer.height


def test_sums_keep_the_thresholds_they_were_counted_at(gaps):
    sums = gap_sums(gaps, [HOUR, 5.0])
    sheet = stale(sums)
    assert sheet["threshold_s"].unique().to_list() == [5.0, HOUR]
    assert set(marked(sheet)) == {HOUR}
    with pytest.raises(ArgumentError, match="already have their thresholds"):
        stale(sums, thresholds_s=[5.0])

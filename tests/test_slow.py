"""Thresholds of "slow": what they flag, what became of it, and how healthy that was."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.stats.intervals import wilson
from tests.examples import examples
from tests.generators import durations
from tests.survival_data import TYPE_I, at

MONDAY = datetime(2026, 5, 18, tzinfo=UTC)
ENDS = {"completed": True, "failed": True, "timed_out": False, "running": False}


def runs(rows, **columns):
    """Rows are (duration, ending); all start on Monday of week 21."""
    return pl.DataFrame(
        {
            "kind": "flow",
            "started_at": MONDAY,
            "left_out": None,
            **columns,
            "duration_s": [float(row[0]) for row in rows],
            "ending": [row[1] for row in rows],
            "ended": [ENDS[row[1]] for row in rows],
            "cause": [row[1] if ENDS[row[1]] else None for row in rows],
        },
        schema_overrides={"cause": pl.String, "ending": pl.String, "left_out": pl.String,
                          "ended": pl.Boolean, "duration_s": pl.Float64},
    )  # fmt: skip


MIXED = [*((seconds, "completed") for seconds in (600, 3600, 3601)), (5000, "failed")]
MIXED += [(7200, "timed_out"), (9000, "running"), (900, "running")]


def told(frame, threshold, **asked):
    table = sa.survival.slow_thresholds(frame, [threshold], by=(), **asked)
    return table.filter(pl.col("threshold_s") == threshold).row(0, named=True)


def test_what_a_threshold_would_have_flagged():
    hour = told(runs(MIXED), 3600)
    counts = ("n_runs", "n_flagged", "n_finished_well", "n_ended_otherwise", "n_open", "n_unknown")
    assert [hour[name] for name in counts] == [7, 4, 1, 2, 1, 1]
    assert hour["well"] == pytest.approx(1 / 3)
    assert hour["well_low"] < 1 / 3 < hour["well_high"]


def test_fan_outs_whose_runs_end_alike_are_one_witness_each():
    rows = [(4000, end) for end in ("completed", "completed", "failed") for _ in range(4)]
    hour = told(runs(rows, unit=[place // 4 for place in range(12)]), 3600)
    assert (hour["well"], hour["well_low"], hour["well_high"]) == (2 / 3, *wilson(2, 3))


def test_an_age_at_the_threshold_is_not_flagged():
    assert told(runs([(3600, "completed")]), 3600)["n_flagged"] == 0


def test_todays_thresholds_are_marked_and_always_there():
    table = sa.survival.slow_thresholds(runs(MIXED), [60.0], by=())
    today = [(1800.0, "30 min (ADR-0017)"), (3600.0, "1 h (ADR-0025, policy v1)")]
    assert table.select("threshold_s", "known_as").rows() == [(60.0, None), *today]


def test_counted_per_week_and_kind():
    done, failed = [(4000, "completed")], [(4000, "failed")]
    late = [MONDAY + timedelta(days=6, hours=23), MONDAY + timedelta(days=7)]
    failures = [runs(failed, started_at=at) for at in late]
    frame = pl.concat([runs(done), *failures, runs(done, kind="agent")])
    hour = sa.survival.slow_thresholds(frame, [3600]).filter(pl.col("threshold_s") == 3600)
    first = [("2026-W21", "agent", 1, 1), ("2026-W21", "flow", 2, 1)]
    counted = hour.select("week", "kind", "n_flagged", "n_finished_well").rows()
    assert counted == [*first, ("2026-W22", "flow", 1, 0)]


def test_healthy_runs_flagged_are_a_share_of_those_that_complete():
    flagged = told(runs([(i, "completed") for i in range(1, 11)]), 7)
    assert flagged["healthy_flagged"] == pytest.approx(0.3)
    assert flagged["healthy_flagged_low"] < 0.3 < flagged["healthy_flagged_high"]


def test_beyond_the_longest_run_the_healthy_share_is_not_known():
    beyond = told(runs(MIXED), 10_000)
    assert (beyond["is_identified"], beyond["healthy_flagged"]) == (False, None)
    assert beyond["horizon_s"] == 9000


def test_the_healthy_share_of_the_generator_lies_in_its_interval():
    """ADR-0025 put the line at 60 min; a flow of this fleet takes 65 min by the median."""
    drawn = durations(2000, seed=5).filter(pl.col("kind") == "flow")
    frame = drawn.with_columns(
        started_at=pl.lit(MONDAY), left_out=pl.lit(None, pl.String), ending="end",
        ended=pl.col("end") != "timed_out",
        cause=pl.when(pl.col("end") != "timed_out").then("end"),
    )  # fmt: skip
    hour = told(frame, 3600)
    healthy = durations(60_000, seed=6).filter(kind="flow", end="completed")
    truth = healthy.filter(pl.col("duration_s") > 3600).height / healthy.height
    assert 0.3 < truth < 0.7
    assert hour["healthy_flagged_low"] <= truth <= hour["healthy_flagged_high"]


def test_nothing_and_nothing_completed():
    assert sa.survival.slow_thresholds(runs([])).is_empty()
    failed = told(runs([(4000, "failed")]), 3600)
    assert (failed["n_flagged"], failed["healthy_flagged"]) == (1, None)


def test_left_out_runs_do_not_count():
    assert sa.survival.slow_thresholds(runs([(9999, "completed")], left_out="no_end")).is_empty()


def test_wrong_columns_are_refused():
    words = r"slow_thresholds needs columns \['agent'\]"
    with pytest.raises(sa.errors.MissingColumnsError, match=words):
        sa.survival.slow_thresholds(runs(MIXED), by="agent")


# --- of the runs that complete ------------------------------------------------------------


def test_completion_times_of_what_all_completed_are_their_distribution():
    frame = runs([(i, "completed") for i in range(1, 51)])
    half = at(sa.survival.completion_times(frame), 25)
    assert half["share"] == pytest.approx(0.5)
    # The binomial's.
    assert half["share_se"] == pytest.approx((0.25 / 50) ** 0.5)


def test_other_ends_are_no_completions_and_cut_offs_are_not_dropped():
    completed = TYPE_I.with_columns(cause=pl.when("ended").then(pl.lit("completed")))
    shares = sa.survival.completion_times(completed)
    naive = TYPE_I.filter("ended")
    at_240 = naive.filter(pl.col("duration_s") <= 240).height / naive.height
    assert at(shares, 240)["share"] < at_240
    assert shares["horizon_s"].unique().to_list() == [900]


ROW = st.tuples(st.integers(0, 9), st.sampled_from(sorted(ENDS)))
ROWS = st.lists(ROW, min_size=1, max_size=40)


@given(ROWS)
@examples(50)
def test_shares_rise_to_one_and_their_intervals_hold_them(rows):
    shares = sa.survival.completion_times(runs(rows))
    if not any(ending == "completed" for _, ending in rows):
        assert shares.is_empty()
        return
    assert shares["share"].is_sorted() and shares["share"].to_list()[-1] == 1
    inside = shares.drop_nulls()
    assert (inside["share"] >= inside["share_low"] - 1e-9).all()
    assert (inside["share"] <= inside["share_high"] + 1e-9).all()


@given(ROWS, st.integers(1, 10))
@examples(50)
def test_flags_equal_the_slow_loop(rows, threshold):
    found = told(runs(rows), float(threshold))
    flagged = [ending for seconds, ending in rows if seconds > threshold]
    assert found["n_flagged"] == len(flagged)
    assert found["n_finished_well"] == flagged.count("completed")
    assert found["n_open"] == flagged.count("running")
    assert found["n_ended_otherwise"] == flagged.count("failed") + flagged.count("timed_out")

"""Ways to get durations wrong that look right: one test for each.

Pitfalls of comparing detectors (kappa at low prevalence, look-ahead through ``updated_at``,
polls counted as mistakes) are tests of the detectors.
"""

import inspect
import math

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.survival.run_spells import spells
from tests.frames import AS_OF, DONE, FAILED, RUNNING, STALLED, TIMED_OUT, ago, facts, states_of
from tests.survival_data import TIED, TYPE_I, at


def runs_of(rows, **asked):
    """Spells of entities and states that are given in pairs; all start five hours ago."""
    given = facts(
        [
            {"entity_id": f"s{i}", "started_at": ago(hours=5), **entity}
            for i, (entity, _) in enumerate(rows)
        ]
    )
    return spells(given, states=states_of(given, [state for _, state in rows]), **asked)


def median(frame):
    return sa.survival.quantiles(sa.survival.kaplan_meier(frame), [0.5])["duration_s"].item()


def test_timeouts_as_events():
    """A run that its limit stopped would have taken longer."""
    as_events = TYPE_I.with_columns(ended=pl.col("ended") | (pl.col("duration_s") == 900))
    assert median(TYPE_I) == 510
    assert median(as_events.filter("ended")) == 420
    run = runs_of([({"ended_at": ago(hours=4)}, TIMED_OUT)])
    assert run.select("ended", "cause", "cut_off_by").row(0) == (False, None, "time_limit")


def test_running_rows_dropped():
    assert median(TYPE_I.filter("ended")) == 240
    assert median(TYPE_I) == 510
    run = runs_of([({}, RUNNING)])
    assert run.select("duration_s", "is_censored").row(0) == (18_000.0, True)


def test_p95_of_nothing_is_not_zero():
    found = sa.survival.quantiles(sa.survival.kaplan_meier(TYPE_I.clear()), [0.95]).row(
        0, named=True
    )
    assert found["duration_s"] is None
    assert found["in_words"] == "not identified: no spells"


def test_incidence_as_one_minus_survival_of_a_cause():
    """Taking other ends as cut-offs overstates; and the shares would add up to more than 1."""
    overstated = 0.0
    for cause in (1, 2):
        alone = TIED.with_columns(ended=(pl.col("cause") == cause).fill_null(value=False))
        wrong = 1 - sa.survival.kaplan_meier(alone)["survival"].min()
        right = sa.survival.cumulative_incidence(TIED).filter(cause=cause)["incidence"].max()
        assert wrong > right
        overstated += wrong
    assert overstated > 1


def test_cohort_by_end():
    """In a fleet that grows, the runs that end in a window are the short ones."""
    week = (ago(days=7), ago(days=0))
    started = {"started_at": ago(days=1), "ended_at": ago(hours=23)}
    ended = {"started_at": ago(days=20), "ended_at": ago(days=1)}
    rows = [(started, DONE), (ended, DONE)]
    assert runs_of(rows, window=week)["entity_id"].to_list() == ["s0"]
    active = runs_of(rows, window=week, cohort="active")
    assert active["entity_id"].to_list() == ["s0", "s1"]
    # It came under observation when it was 13 days old, and says nothing about before.
    assert active["entry_s"].to_list() == [None, 13 * 86_400.0]
    assert sa.survival.kaplan_meier(active)["n_at_risk"].to_list() == [1, 1]


def test_dead_rows_cut_off_now():
    """A row that is called running for weeks after its death would drag the curve up."""
    dead = ({"started_at": ago(days=20), "last_activity_at": ago(days=20, minutes=-5)}, STALLED)
    assert runs_of([dead])["duration_s"].item() == 300
    assert runs_of([dead], silent_runs="as_of")["duration_s"].item() == 20 * 86_400


def test_clock_of_the_reaper_as_time_of_death():
    reaped = (
        {
            "ended_at": ago(hours=1),
            "last_activity_at": ago(hours=4),
            "end_written_by": "observer",
            "reason_code": "session.phantom.process_dead",
        },
        FAILED,
    )
    told = runs_of([reaped]).row(0, named=True)
    assert (told["duration_s"], told["cause"], told["end_from"]) == (
        3600,
        "failed",
        "last_activity",
    )
    assert told["end_width_s"] == 3 * 3600
    assert runs_of([reaped], observed_ends="left_out")["left_out"].item() == "end_observed"


@pytest.mark.parametrize(
    "unlike",
    [
        pytest.param({"last_activity_at": ago(hours=5)}, id="no sign of life since its start"),
        pytest.param({"reason_code": "run.cancelled.manual_kill"}, id="a person killed it"),
        pytest.param({"reason_code": None}, id="nobody said why"),
    ],
)
def test_an_observer_who_did_not_find_it_dead_says_nothing(unlike):
    entity = {
        "ended_at": ago(hours=1),
        "last_activity_at": ago(hours=4),
        "end_written_by": "observer",
        "reason_code": "run.cancelled.stale_auto",
        **unlike,
    }
    assert runs_of([(entity, FAILED)])["left_out"].item() == "end_observed"


def test_jittered_ties():
    """Ties of different causes are exact: asked twice, the same; and nothing is lost."""
    curve = sa.survival.cumulative_incidence(TIED)
    assert curve.equals(sa.survival.cumulative_incidence(TIED))
    total = curve.filter(pl.col("duration_s") == 6)["incidence"].sum()
    assert total + sa.survival.kaplan_meier(TIED.with_columns(ended=pl.col("cause").is_not_null()))[
        "survival"
    ].min() == pytest.approx(1, abs=1e-12)


def test_quantile_beyond_what_is_identified():
    found = sa.survival.quantiles(sa.survival.kaplan_meier(TYPE_I), [0.9]).row(0, named=True)
    assert found["duration_s"] is None
    assert not found["is_identified"]
    assert found["in_words"] == "not identified: 32 % outlast the data, which end at 15 min"


def test_pointwise_interval_read_as_the_whole_curve():
    curve = sa.survival.confidence_band(sa.survival.kaplan_meier(TYPE_I)).drop_nulls()
    assert (curve["band_low"] < curve["survival_low"]).all()
    assert (curve["band_high"] > curve["survival_high"]).all()
    assert "pointwise" in inspect.getdoc(sa.survival.kaplan_meier)


def test_quantiles_averaged_over_shards():
    one = pl.DataFrame({"duration_s": [1.0, 1.0, 1.0, 100.0], "ended": True})
    two = pl.DataFrame({"duration_s": [50.0], "ended": True})
    assert (median(one) + median(two)) / 2 == 25.5
    assert median(pl.concat([one, two])) == 1
    assert "Never average quantiles" in inspect.getdoc(sa.survival.quantiles)


def test_shards_add_up_to_the_counts_of_all():
    """Counts per duration are sums: at risk and ended of all are those of the parts."""
    parts = [TYPE_I.head(9), TYPE_I.tail(7)]
    grid = TYPE_I.select("duration_s").unique().sort("duration_s")
    ended = pl.concat(
        sa.survival.kaplan_meier(part).select("duration_s", "n_events") for part in parts
    )
    whole = sa.survival.kaplan_meier(TYPE_I)
    assert (
        grid.join(ended.group_by("duration_s").agg(pl.col("n_events").sum()), on="duration_s")
        .sort("duration_s")["n_events"]
        .to_list()
        == whole["n_events"].to_list()
    )


def test_clock_skew():
    run = runs_of([({"ended_at": ago(hours=6)}, DONE)])
    assert run.select("left_out", "duration_s").row(0) == ("ends_before_start", None)


@pytest.mark.parametrize("started_at", [None, AS_OF.fromtimestamp(0, AS_OF.tzinfo)])
def test_no_start_and_the_start_of_time(started_at):
    run = runs_of([({"started_at": started_at, "ended_at": ago(hours=4)}, DONE)])
    assert run["left_out"].item() == "no_start"


def test_nan_is_not_null():
    spells = pl.DataFrame({"duration_s": [1.0, math.nan], "ended": [True, True]})
    with pytest.raises(sa.errors.ArgumentError, match="1 durations that are not finite"):
        sa.survival.kaplan_meier(spells)
    nan_entry = spells.head(1).with_columns(entry_s=pl.lit(math.nan))
    with pytest.raises(sa.errors.ArgumentError, match="entries that are not finite"):
        sa.survival.kaplan_meier(nan_entry)


def test_seconds_and_milliseconds_mixed():
    """Durations come from the two moments, never from what the store computed."""
    run = runs_of([({"ended_at": ago(hours=4), "stored_duration_s": 3_600_000.0}, DONE)])
    assert run["duration_s"].item() == 3600


def test_single_precision_loses_minutes_of_an_epoch():
    now = 1_779_840_000.0
    assert pl.Series([now, now + 60], dtype=pl.Float32).n_unique() == 1
    run = runs_of([({"ended_at": ago(hours=5, microseconds=-1)}, DONE)])
    assert run["duration_s"].item() == pytest.approx(1e-6)


def test_fewer_than_two_groups():
    alone = TYPE_I.with_columns(kind=pl.lit("flow"))
    found = sa.survival.logrank(alone, "kind").row(0, named=True)
    assert (found["p_value"], found["df"], found["n_groups"]) == (None, 0, 1)


def test_a_group_where_nothing_ended():
    """Its curve stays at 1, and none of its quantiles is known."""
    spells = pl.DataFrame(
        {"duration_s": [1.0, 2, 3, 4], "ended": [False, False, True, True], "kind": list("aabb")}
    )
    curve = sa.survival.kaplan_meier(spells, by="kind").filter(kind="a")
    assert curve["survival"].to_list() == [1, 1]
    found = sa.survival.quantiles(curve, [0.01, 0.5, 0.99])
    assert found["duration_s"].to_list() == [None] * 3
    assert sa.survival.restricted_mean(curve, 2)["mean_s"].item() == 2


def test_zero_durations_stay_at_zero():
    spells = pl.DataFrame({"duration_s": [0.0, 0.0, 5.0], "ended": [True, False, True]})
    assert at(sa.survival.kaplan_meier(spells), 0)["survival"] == pytest.approx(2 / 3)
    assert runs_of([({"ended_at": ago(hours=5)}, DONE)])["duration_s"].item() == 0

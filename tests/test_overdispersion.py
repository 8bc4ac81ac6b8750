"""Failures that come in bursts: weeks that only look different are not called so."""

from datetime import UTC, datetime, timedelta
from random import Random

import polars as pl
import pytest

from stateanalytics.core.windows import Window
from stateanalytics.failures.frames import CHANGE
from stateanalytics.failures.weekly_change import _judged, dispersions
from stateanalytics.stats.intervals import rate_ratio
from tests.outages import poisson

MONDAY = datetime(2026, 5, 18, tzinfo=UTC)
NOW = Window(MONDAY, MONDAY + timedelta(days=7), "a week")
N_BEFORE = 8


def burst(draw, mean):
    """Geometric: at least one, ``mean`` on average."""
    n = 1
    while draw.random() > 1 / mean:
        n += 1
    return n


def weeks(draw, mean, size, *, times_now=1.0, n_clusters=20):
    """Moments of incidents of clusters, this week and those before; bursts last some hours."""
    rows = []
    for cluster in range(n_clusters):
        for week in range(-N_BEFORE, 1):
            causes = poisson(draw, mean * (times_now if week == 0 and cluster == 0 else 1))
            for _ in range(causes):
                began = MONDAY + timedelta(days=7 * week, hours=168 * draw.random())
                rows += [(cluster, week, began)] * burst(draw, size)
    return pl.DataFrame(rows, schema=["cluster_id", "week", "at"], orient="row")


HOURS = [MONDAY + timedelta(hours=h) for h in range(-168 * N_BEFORE, 168)]
RUNS = pl.DataFrame({"at": HOURS}).cast(pl.Datetime("us", "UTC"))


def statuses(incidents, n_before):
    """What `change` says of these incidents, against so many weeks before."""
    counts = incidents.group_by("cluster_id").agg(
        n_incidents=(pl.col("week") == 0).sum().cast(pl.Int64),
        n_incidents_before=pl.col("week").is_between(-n_before, -1).sum().cast(pl.Int64),
    )
    spread = counts.join(dispersions(incidents, RUNS, NOW), on="cluster_id", how="left")
    runs = {"n_quiet_weeks": 0, "n_runs": 168, "n_runs_before": 168 * n_before}
    counts = spread.with_columns(
        *(pl.lit(n, pl.Int64).alias(name) for name, n in runs.items()),
        n_causes="n_incidents", n_causes_before="n_incidents_before", n_rows="n_incidents",
        quiet_chance=pl.lit(1.0),
    )  # fmt: skip
    names = CHANGE.dtypes.names()
    judged = {name for name in names if name.startswith(("ratio", "rate", "p_", "q_"))}
    rest = set(names) - set(counts.columns) - judged
    whole = counts.with_columns(pl.lit(None).alias(name) for name in rest)
    return dict(_judged(whole, 0.05).select("cluster_id", "status").iter_rows())


def has_false_change(draw, mean, size):
    found = statuses(weeks(draw, mean, size), 1)
    return any(status in ("growing", "shrinking") for status in found.values())


def is_doubling_found(draw, size):
    found = statuses(weeks(draw, 10, size, times_now=2.0, n_clusters=1), N_BEFORE)
    return found[0] == "growing"


@pytest.mark.parametrize("size", [1, 8])
def test_dispersion_is_that_of_the_bursts(size):
    """Of geometric bursts it is the mean square over the mean: 2 * size - 1."""
    found = dispersions(weeks(Random(5), 20, size), RUNS, NOW)["dispersion"]
    assert found.mean() == pytest.approx(2 * size - 1, rel=0.25)
    assert found.min() >= 1


def test_no_incidents_vary_by_nothing():
    nothing = weeks(Random(1), 0, 1)
    assert dispersions(nothing.cast({"at": pl.Datetime("us", "UTC")}), RUNS, NOW).is_empty()


def test_bursts_are_no_change_and_a_doubling_is_one():
    draw = Random(11)
    assert sum(has_false_change(draw, 8, 8) for _ in range(8)) <= 1
    assert sum(is_doubling_found(draw, 1) for _ in range(5)) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("mean", [8, 20])
def test_at_most_one_week_in_twenty_has_a_false_change(mean, size):
    draw = Random(1000 * mean + size)
    assert sum(has_false_change(draw, mean, size) for _ in range(100)) <= 9


@pytest.mark.slow
def test_a_doubled_rate_is_found_in_three_of_five():
    """Ten incidents a week, against the eight weeks before."""
    draw = Random(17)
    assert sum(is_doubling_found(draw, 1) for _ in range(200)) >= 120


def is_found_by_an_oracle(incidents):
    """Exact tests by one who knows that counts are Poisson's, of all clusters as one family."""
    counts = incidents.group_by("cluster_id").agg(
        now=(pl.col("week") == 0).sum(), before=(pl.col("week") < 0).sum()
    )
    p_values = [
        (rate_ratio(now, 1, before, N_BEFORE).p_value, cluster)
        for cluster, now, before in counts.iter_rows()
    ]
    ranked = enumerate(sorted(p_values), 1)
    passed = [rank for rank, (p, _) in ranked if p <= 0.05 * rank / len(p_values)]
    return 0 in [cluster for _, cluster in sorted(p_values)[: max(passed, default=0)]]


@pytest.mark.slow
@pytest.mark.parametrize("n_clusters", [1, 3, 8])
def test_among_few_clusters_a_doubled_rate_is_found_about_as_often_as_can_be(n_clusters):
    """What is lost to learning the dispersion is a tenth; more, nobody can find."""
    draw, n, found, could_be = Random(n_clusters), 150, 0, 0
    for _ in range(n):
        incidents = weeks(draw, 10, 1, times_now=2.0, n_clusters=n_clusters)
        found += statuses(incidents, N_BEFORE)[0] == "growing"
        could_be += is_found_by_an_oracle(incidents)
    assert found >= could_be - 0.1 * n


@pytest.mark.parametrize("n", [(15, 7), (0, 9), (30, 30)])
def test_where_bursts_count_once_a_ratio_is_less_sure(n):
    now, before = n
    alone, bursts = (rate_ratio(now, 10, before, 11, dispersion=by) for by in (1.0, 3.0))
    assert bursts.ratio == alone.ratio
    assert bursts.low <= alone.low
    assert bursts.high is None or bursts.high >= alone.high
    assert bursts.p_value > alone.p_value / 2


def test_a_burst_of_three_is_one_of_three():
    tripled = rate_ratio(45, 10, 21, 11, dispersion=3.0)
    once = rate_ratio(15, 10, 7, 11)
    assert (tripled.low, tripled.high) == pytest.approx((once.low, once.high))

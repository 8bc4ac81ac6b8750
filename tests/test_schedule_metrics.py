"""E5 to E7: the numbers that schedules are fired by, quirks included."""

import pytest

from stateanalytics.errors import ArgumentError
from tests.conformance.lionagi.schedule_metrics import METRICS, schedule_metrics
from tests.frames import ago, facts


def failed(entity_id, **columns):
    return {"entity_id": entity_id, "raw_status": "failed", "ended_at": ago(hours=1), **columns}


def invocation(entity_id, seconds, **columns):
    return {"entity_type": "invocation", "entity_id": entity_id, "raw_status": "completed",
            "started_at": ago(hours=2), "ended_at": ago(hours=2, seconds=-seconds),
            **columns}  # fmt: skip


def value(given, metric, **options):
    found = schedule_metrics(given, **options)
    assert found.schema == METRICS.dtypes
    return found.filter(metric=metric).select("value", "n").row(0)


def test_failures_of_one_cause_count_once():
    limit = {"invocation_id": "i", "reason_code": "run.failed.provider"}
    rows = [failed(f"a{n}", **limit) for n in range(24)]
    rows += [failed("b"), failed("c", raw_status="timed_out"), failed("old", ended_at=ago(days=2))]
    assert value(facts(rows), "failed_sessions") == (3.0, 26)


@pytest.mark.parametrize(
    ("n", "expected"), [(1, 1000.0), (20, 19_000.0), (21, 20_000.0), (100, 95_000.0)]
)
def test_the_95th_percentile_is_of_nearest_rank(n, expected):
    rows = [invocation(f"i{k}", k + 1) for k in range(n)]
    assert value(facts(rows), "p95_latency_ms") == (expected, n)


def test_the_percentile_of_nothing_is_zero_and_says_so():
    rows = [
        invocation("cancelled", 5, raw_status="cancelled"),
        invocation("backwards", -5),
        invocation("inherited", 5, evidence='[{"kind": "invocation", "id": "x"}]'),
        invocation("open", 5, ended_at=None),
    ]
    assert value(facts(rows), "p95_latency_ms") == (0.0, 0)


def test_costs_add_up_and_unknown_ones_are_not_free():
    rows = [failed("a", cost_usd=1.5), failed("b", cost_usd=None), failed("c", cost_usd=0.25)]
    assert value(facts(rows), "total_cost_usd") == (1.75, 2)


def test_a_window_without_length_says_so():
    with pytest.raises(ArgumentError, match="more than zero; found 0"):
        schedule_metrics(facts([]), window_s=0)


def test_no_rows_are_zeros():
    assert schedule_metrics(facts([]))["value"].to_list() == [0.0, 0.0, 0.0, 0.0]

"""Lionagi's health of sessions: every version of its classifier, on every engine."""

import math
import random
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lionagi.state.health import HEALTH_SEVERITY
from lionagi.state.health import classify_session_health as lionagi_classifier
from lionagi.state.staleness import staleness_check

from stateanalytics.core.engines import epoch_s
from stateanalytics.core.session_health import (
    HEALTH_ORDER,
    classify_session_health,
    classify_session_health_by_age,
    staleness_by_age,
)
from stateanalytics.errors import ArgumentError, ColumnTypeError, MissingColumnsError
from tests.engines import assert_same_rows, on_every_engine
from tests.examples import examples

NOW = 1779840000.0
MOMENTS = ("last_message_at", "updated_at", "started_at")
TRUTHS = ("process_alive", "has_artifacts", "has_stale_locks")
COLUMNS = {
    **{"status": pl.String, "invocation_kind": pl.String, "message_count": pl.Int64},
    **dict.fromkeys(MOMENTS, pl.Float64),
    **dict.fromkeys(TRUTHS, pl.Boolean),
}


def sessions(rows):
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def session(**facts):
    plain = {"status": "running", "message_count": 4, "last_message_at": NOW - 60}
    left = {"has_artifacts": True, "has_stale_locks": False}
    return sessions([{**dict.fromkeys(COLUMNS), **plain, **left, **facts}])


def health_of(frame, **how):
    return classify_session_health(frame, now=how.pop("now", NOW), **how)["session_health"].item()


def row_by_row(row):
    """Lionagi's own function, one row at a time."""
    return lionagi_classifier(row, now=NOW, **{name: row[name] for name in TRUTHS}).value


def with_ages(frame):
    return frame.with_columns(
        (NOW - pl.col(f"{name}_at").replace(0.0, None)).alias(f"{name}_age_s")
        for name in ("last_message", "updated", "started")
    )


_ENDS = ("completed", "completed_empty", "failed", "timed_out", "aborted", "cancelled")
gaps = [0.0, 0.5, 3599.5, 3600.0, 3600.5, 21600.0, 21600.5, 43200.0, 43200.5, 1e6, -10.0]
CELLS = {
    "status": [None, "", "queued", "RUNNING", *["running"] * 4, *_ENDS],
    "invocation_kind": [None, "agent", "flow", "engine", "bogus", ""],
    "message_count": [None, 0, 3, -1],
    **dict.fromkeys(MOMENTS, (None, 0.0, *(NOW - gap for gap in gaps))),
    **dict.fromkeys(TRUTHS, (True, False, None)),
}
row = st.fixed_dictionaries({name: st.sampled_from(cells) for name, cells in CELLS.items()})
draw = random.Random(36)
MANY = [{name: draw.choice(cells) for name, cells in CELLS.items()} for _ in range(600)]


@on_every_engine
def test_health_and_staleness_are_lionagis_everywhere(engine):
    frame = with_ages(sessions(MANY))
    found = engine.back(classify_session_health(engine.of(frame), now=NOW))
    assert_same_rows(found, frame.with_columns(session_health=pl.Series(map(row_by_row, MANY))))
    stale = pl.Series([staleness_check(session, now=NOW) for session in MANY])
    found = engine.back(staleness_by_age(engine.of(frame)))
    assert_same_rows(found, frame.with_columns(staleness=stale))


@examples(80)
@given(st.lists(row, max_size=40))
def test_bulk_equals_lionagi_row_by_row(rows):
    found = classify_session_health(sessions(rows), now=NOW)
    assert found["session_health"].to_list() == [row_by_row(session) for session in rows]


@examples(40)
@given(st.lists(row, max_size=30))
def test_staleness_equals_lionagi_row_by_row(rows):
    expected = [staleness_check(session, now=NOW) for session in rows]
    assert staleness_by_age(with_ages(sessions(rows)))["staleness"].to_list() == expected


@examples(30)
@given(st.lists(row, max_size=30), st.integers(0, 99))
def test_the_order_of_rows_never_matters(rows, seed):
    frame = sessions(rows).with_row_index()
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    found = classify_session_health(shuffled, now=NOW).sort("index")
    assert found.equals(classify_session_health(frame, now=NOW))


@on_every_engine
def test_moments_may_be_datetimes(engine):
    gaps = (0.25, 3600.0, 3600.000001, 21600.0, 21600.000001)
    moments = [*((NOW - gap, None, None) for gap in gaps), (0.0, None, NOW - 9.0)]
    rows = sessions([["running", "agent", 1, *three, None, True, False] for three in moments])
    dated = rows.with_columns(
        (pl.col(MOMENTS) * 1e6).round().cast(pl.Int64).cast(pl.Datetime("us", "UTC"))
    )
    found = engine.back(classify_session_health(engine.of(dated), now="2026-05-27T00:00:00Z"))
    assert sorted(found["session_health"]) == ["healthy"] * 3 + ["idle"] * 2 + ["stale"]


@pytest.mark.parametrize(
    "now",
    [NOW, int(NOW), "2026-05-27", "2026-05-27T02:00:00+02:00", datetime(2026, 5, 27, tzinfo=UTC)],
)
def test_now_may_be_a_number_a_text_or_a_datetime(now):
    assert health_of(session(last_message_at=NOW - 3601), now=now) == "idle"
    assert health_of(session(last_message_at=NOW - 3600), now=now) == "healthy"


def test_without_any_moment_the_silence_reaches_back_to_1970():
    silent = session(last_message_at=None)
    assert health_of(silent) == "stale"
    assert health_of(silent, now=21600) == "idle"
    assert health_of(silent, now=3600) == "healthy"


def test_nan_counts_as_not_known():
    frame = session(last_message_at=math.nan, updated_at=NOW - 5)
    assert health_of(frame) == "healthy"
    ages = pl.DataFrame({"last_message_age_s": [math.nan], "updated_age_s": [5.0]})
    ages = ages.with_columns(started_age_s=pl.lit(None, pl.Float64))
    by_ages = frame.drop(MOMENTS).hstack(ages)
    assert classify_session_health_by_age(by_ages)["session_health"].item() == "healthy"


def test_thresholds_are_laid_over_the_table():
    quiet = session(last_message_at=NOW - 7201, invocation_kind="agent")
    assert health_of(quiet) == "idle"
    assert health_of(quiet, thresholds={"agent": 7200}) == "stale"
    assert health_of(quiet, thresholds={"flow": 7200}) == "idle"
    other = session(last_message_at=NOW - 7201, invocation_kind="bogus")
    assert health_of(other, thresholds={"default": 7200}) == "stale"
    assert health_of(quiet, idle_after_s=7201) == "healthy"


@on_every_engine
def test_no_rows_give_no_rows(engine):
    found = engine.back(classify_session_health(engine.of(sessions([])), now=NOW))
    assert found.columns == [*COLUMNS, "session_health"]


@on_every_engine
def test_a_row_of_nulls_reads_as_completed(engine):
    nothing = pl.DataFrame({name: [None] for name in COLUMNS})
    found = engine.back(classify_session_health(engine.of(nothing), now=NOW))
    assert found["session_health"].to_list() == ["healthy"]


def test_truths_may_be_zero_and_one():
    as_numbers = pl.col("has_stale_locks", "has_artifacts").cast(pl.Int64)
    frame = session(status="failed", has_stale_locks=True).with_columns(as_numbers)
    assert health_of(frame) == "zombie"


def test_an_unknown_version_lists_the_known_ones():
    with pytest.raises(ArgumentError, match=r"no version.*'0\.35'; there are 0\.26\.1, .*0\.36"):
        classify_session_health(session(), now=NOW, version="0.35")


@pytest.mark.parametrize("limit", [-1, "6h", None, True, math.nan])
def test_a_threshold_that_is_no_number_is_refused(limit):
    with pytest.raises(ArgumentError, match="threshold of 'agent' needs seconds"):
        classify_session_health(session(), now=NOW, thresholds={"agent": limit})


def test_a_now_that_is_no_instant_is_refused():
    with pytest.raises(ArgumentError, match="now needs a moment; found 'yesterday'"):
        classify_session_health(session(), now="yesterday")


def test_a_missing_column_is_named():
    with pytest.raises(MissingColumnsError, match=r"needs columns \['process_alive'\]"):
        classify_session_health(session().drop("process_alive"), now=NOW)


def test_moments_as_text_are_refused():
    frame = session().with_columns(started_at=pl.lit("2026-05-27"))
    with pytest.raises(ColumnTypeError, match=r"'started_at'; found String.\nHint: parse it"):
        classify_session_health(frame, now=NOW)


def test_the_order_of_healths_is_lionagis():
    ranks = {word: rank for rank, word in enumerate(HEALTH_ORDER)}
    assert {word.value: rank for word, rank in HEALTH_SEVERITY.items()} == ranks


def test_epoch_seconds_are_kept_to_the_last_bit():
    assert epoch_s(0.1 + 0.2) == 0.1 + 0.2


@pytest.mark.parametrize("dtype", [pl.Categorical(), pl.Enum(["running", "flow", "agent"])])
def test_coded_words_are_read_as_words(dtype):
    frame = session(last_message_at=NOW - 30000, invocation_kind="flow")
    assert health_of(frame.cast({"status": dtype, "invocation_kind": dtype})) == "idle"

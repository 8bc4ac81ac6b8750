"""When a detector was on: exact, from gaps, and equal to asking at every instant."""

from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.detectors.frames import ALARMS
from stateanalytics.errors import ArgumentError
from tests.examples import examples
from tests.frames import AS_OF, WHOSE, ago, facts

HOUR = 3600.0
OF_MESSAGES = {"measures": "last_message_age_s", "restarts_on": "message"}
OF_MESSAGES["scope"] = pl.col("status") == "running"
QUIET = sa.detectors.Detector("quiet_1h", threshold_s=HOUR, label="quiet", **OF_MESSAGES)
QUIET_AT = sa.detectors.Detector("quiet_at", comparison=">=", threshold_s=HOUR, **OF_MESSAGES)


def run(entity_id="s", **columns):
    moments = dict.fromkeys(("created_at", "started_at", "updated_at"), ago(hours=10))
    row = {"entity_id": entity_id, "kind": "agent", "raw_status": "running"}
    return {**row, **moments, **columns}


def spans_of(given, detector):
    return spans(sa.detectors.alarms(given, detectors=[detector]))


def says(*hours_ago, entity_id="s"):
    return [
        {**WHOSE, "entity_id": entity_id, "at": ago(hours=one), "seq": seq, "kind": "message",
         "is_activity": True}
        for seq, one in enumerate(hours_ago)
    ]  # fmt: skip


def changes(*triples):
    return [
        {**WHOSE, "entity_id": "s", "at": ago(hours=one), "seq": seq,
         "previous_status": before, "status": after}
        for seq, (one, before, after) in enumerate(triples)
    ]  # fmt: skip


def spans(found):
    """Each alarm as hours before as-of, and what ended it."""
    return [
        ((AS_OF - row["started_at"]) / timedelta(hours=1),
         (AS_OF - row["ended_at"]) / timedelta(hours=1), row["ended_by"])
        for row in found.iter_rows(named=True)
    ]  # fmt: skip


def test_an_alarm_goes_from_the_threshold_to_the_next_sign():
    given = facts([run(last_message_at=ago(hours=2))], events=says(9, 6, 2))
    found = sa.detectors.alarms(given, detectors=[QUIET])
    signs = [(8.0, 6.0, "sign of life"), (5.0, 2.0, "sign of life")]
    assert spans(found) == [*signs, (1.0, 0.0, "as-of")]
    assert found["is_censored"].to_list() == [False, False, True]
    assert found["duration_s"].to_list() == [2 * HOUR, 3 * HOUR, HOUR]
    assert found["sign_at"].to_list() == [ago(hours=9), ago(hours=6), ago(hours=2)]
    assert found["label"].unique().to_list() == ["quiet"]


def test_an_end_ends_it():
    given = facts([run(raw_status="completed", ended_at=ago(hours=5))], events=says(9))
    assert spans_of(given, QUIET) == [(8.0, 5.0, "end")]


def test_nothing_is_on_between_an_end_and_resumed_work():
    ended = (10, None, "running"), (9.5, "running", "completed")
    transitions = changes(*ended, (4, "completed", "running"))
    rows = [run(last_message_at=ago(minutes=30))]
    given = facts(rows, events=says(9.9, 0.5), transitions=transitions)
    assert spans_of(given, QUIET) == [(3.0, 0.5, "sign of life")]


def test_a_gap_as_long_as_the_threshold_is_no_alarm():
    given = facts([run(last_message_at=ago(hours=1))], events=says(9.5, 8.5, 7.5, 1))
    assert spans_of(given, QUIET) == [(6.5, 1.0, "sign of life")]
    # At as-of it has been just an hour: over for >=, not yet for >.
    assert spans_of(given, QUIET_AT)[1:] == [(0.0, 0.0, "as-of")]


def test_work_that_ended_nobody_knows_when_has_no_last_alarm():
    given = facts([run(raw_status="completed")], events=says(9, 6))
    assert spans_of(given, QUIET) == [(8.0, 6.0, "sign of life")]


def test_messages_that_are_not_in_the_store_make_no_gap():
    given = facts([run(last_message_at=ago(hours=2))], events=says(9.5))
    assert spans_of(given, QUIET) == [(1.0, 0.0, "as-of")]


def test_the_dashboard_stops_looking_after_a_day():
    old = dict.fromkeys(("created_at", "started_at", "updated_at"), ago(hours=40))
    given = facts([run(**old)])
    assert spans_of(given, "dashboard_stuck_60m") == [(39.0, 16.0, "range")]
    assert spans_of(given, "fleet_attention_v1") == [(39.0, 0.0, "as-of")]


def test_an_upper_limit_ends_an_alarm():
    assert spans_of(facts([run()]), "adr0030_slow") == [(9.0, 7.0, "range")]


def test_each_kind_has_its_own_limit():
    old = {"created_at": ago(hours=14), "started_at": ago(hours=14)}
    given = facts([run("a", **old), run("f", **old, **{"kind": "flow"})])
    found = sa.detectors.alarms(given, detectors=["A2"])
    assert dict(found.select("entity_id", "threshold_s").rows()) == {"a": 21600.0, "f": 43200.0}
    assert found["duration_s"].to_list() == [8 * HOUR, 2 * HOUR]


def test_a_report_restarts_only_the_clock_of_reports():
    theirs = {"system": "agent_orchestrator", "raw_status": "working", "kind": "worker"}
    reports = [
        {**WHOSE, "system": "agent_orchestrator", "entity_id": "s", "at": ago(hours=one),
         "seq": 0, "kind": f"report.{word}", "name": word, "is_activity": True}
        for one, word in ((9, "started"), (5, "needs_input"))
    ]  # fmt: skip
    given = facts([{**run(), **theirs}], events=reports)
    # It started ten hours ago, but nothing counts before the first report; and what waits
    # for input is never a stale report.
    assert spans_of(given, "ao_stale_report") == [(8.5, 5.0, "sign of life")]


def test_tools_at_work_make_opencode_patient():
    theirs = {"system": "opencode", "entity_type": "execution", "session_id": "s"}

    def heard(minutes, kind):
        return {**WHOSE, "system": "opencode", "entity_id": "s", "at": ago(minutes=minutes),
                "seq": 0, "kind": kind, "is_activity": True}  # fmt: skip

    execution = run("s:execution:1", started_at=ago(minutes=200), ended_at=ago(minutes=1))
    events = [heard(190, "session.tool.called"), heard(100, "session.tool.success")]
    given = facts([execution | theirs], events=events)
    found = sa.detectors.alarms(given, detectors=["opencode_stalled"])
    assert found["threshold_s"].to_list() == [3600.0, 600.0]
    assert found["duration_s"].to_list() == [30 * 60.0, 89 * 60.0]


@pytest.mark.parametrize("entities", [[], [{"entity_id": "s", "raw_status": None}]])
def test_nothing_gives_nothing(entities):
    found = sa.detectors.alarms(facts(entities))
    assert found.schema == ALARMS.dtypes
    assert found.is_empty()


def test_rules_over_columns_that_are_written_over_have_no_history():
    with pytest.raises(ArgumentError, match="alarms of 'phantom_v2' cannot be reconstructed"):
        sa.detectors.alarms(facts([run()]), detectors=["phantom_v2"])


MINUTES = st.lists(st.integers(1, 599), max_size=12, unique=True)


@examples(15)
@given(MINUTES, st.integers(1, 200), st.sampled_from([">", ">="]))
def test_alarms_are_what_the_slow_loop_finds(minutes, threshold, comparison):
    """At every minute of ten hours: on, if and only if an interval holds that minute."""
    limit = {"comparison": comparison, "threshold_s": 60.0 * threshold}
    detector = sa.detectors.Detector("quiet", **limit, **OF_MESSAGES)
    hours = sorted((one / 60 for one in minutes), reverse=True)
    last = ago(hours=hours[-1]) if hours else None
    given_facts = facts([run(last_message_at=last)], events=says(*hours))
    found = sa.detectors.alarms(given_facts, detectors=[detector])
    spells = found.select("started_at", "ended_at", "is_censored").rows()
    for minute in range(601):
        silence = min(one for one in (600, *minutes) if one >= minute) - minute
        expected = silence > threshold if comparison == ">" else silence >= threshold
        at = ago(minutes=minute)
        is_on = any(
            (begin < at if comparison == ">" else begin <= at)
            and (at < end or (is_censored and at == end))
            for begin, end, is_censored in spells
        )
        assert is_on == expected, minute


def test_alarms_are_the_silences_that_are_longer_than_the_threshold(demo):
    """`sa.detectors.silence_gaps` counts them in its own way; both say the same."""
    limit = {"measures": "silence_s", "threshold_s": 600.0, "restarts_on": "activity"}
    quiet = sa.detectors.Detector("quiet", **limit)
    key = ["entity_id", "started_at"]
    gaps = sa.detectors.silence_gaps(demo).filter(pl.col("left_out").is_null())
    is_counted = pl.col("entity_id").is_in(gaps["entity_id"].unique().implode())
    found = sa.detectors.alarms(demo, detectors=[quiet]).filter(is_counted)
    found = found.filter(entity_type="session", ended_by="sign of life")
    long = gaps.filter(pl.col("gap_s") > 600, closed_by="sign_of_life")
    assert long.height > 100
    found_keys = found.select("entity_id", started_at="sign_at").sort(key)
    assert found_keys.equals(long.select(key).sort(key))
    lengths = found.sort("entity_id", "sign_at")["duration_s"] + 600
    assert lengths.to_list() == pytest.approx(long.sort(key)["gap_s"].to_list())

"""NormalizedState of every entity: by hand, as the slow version says, on every engine."""

import csv
import json
import random
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stateanalytics.core import schema
from stateanalytics.core.session_health import classify_session_health
from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.errors import ArgumentError, ColumnTypeError, MissingColumnsError
from stateanalytics.state.policy import Policy
from stateanalytics.state.reason_codes import REGISTRY
from stateanalytics.state.states import (
    compare_policies,
    count_changes,
    reasons,
    states,
    states_and_reasons,
)
from stateanalytics.systems import reading as sources
from tests.engines import LAZY, POLARS, assert_same_rows, on_every_engine, on_polars_first
from tests.examples import a_few, examples
from tests.frames import AS_OF, ago, facts
from tests.slow_states import slow_states

JUDGED = ("lifecycle", "outcome", "health", "delivery", "severity", "tone", "severity_rule")
TOLD = (*JUDGED, "is_terminal", "is_legacy", "display", "effective_state", "reason_codes")
TIMES = ("age_s", "silence_s", "duration_s")


def entities(rows):
    plain = {"source": "state.db", "system": "lionagi"}
    return schema.ENTITIES.conform(
        pl.DataFrame(
            [{**dict.fromkeys(schema.ENTITIES.dtypes), **plain, **row} for row in rows],
            schema=schema.ENTITIES.dtypes,
        )
    )


def state(**facts_of_row):
    row = {"entity_type": "session", "entity_id": "e1", "has_artifacts": True, **facts_of_row}
    return states(entities([row]), as_of=AS_OF).row(0, named=True)


def running(**facts_of_row):
    return state(**{"raw_status": "running", "last_activity_at": ago(minutes=1), **facts_of_row})


# --- by hand, one decision each ---------------------------------------------------------


def test_every_stored_status_has_its_lifecycle_and_outcome():
    rows = [
        {"entity_type": word.entity_type, "entity_id": "e1", "raw_status": word.raw_status}
        for word in STATUS_WORDS
    ]
    found = states(entities([{**row, "has_artifacts": True} for row in rows]), as_of=AS_OF)
    for word, row in zip(STATUS_WORDS, found.to_dicts(), strict=True):
        assert row["entity_type"] == word.entity_type
        assert (row["lifecycle"], row["outcome"]) == (word.lifecycle, word.outcome), word


def test_d1_a_good_end_is_named_as_its_entity_names_it():
    ends = {"session": "completed", "invocation": "completed", "play": "merged"}
    found = {kind: state(entity_type=kind, raw_status=raw)["outcome"] for kind, raw in ends.items()}
    assert found == {"session": "completed", "invocation": "succeeded", "play": "merged"}


@pytest.mark.parametrize("raw", [None, ""])
def test_d2_no_status_is_legacy_and_in_no_rate(raw):
    found = state(raw_status=raw)
    assert [found[axis] for axis in ("lifecycle", "outcome", "health")] == ["unknown"] * 3
    assert found["is_legacy"]
    assert found["is_terminal"] is None
    assert found["effective_state"] == "legacy"
    assert found["display"] == "Legacy · Health unknown"


def test_an_unknown_status_stays_visible_under_its_own_name():
    found = state(raw_status="COMPLETED")
    assert found["lifecycle"] == "unknown"
    assert found["is_legacy"]
    assert found["effective_state"] == "COMPLETED"


def test_a_branch_without_a_status_only_mirrors_its_session():
    found = state(entity_type="branch", raw_status=None)
    assert (found["lifecycle"], found["is_legacy"], found["health"]) == ("unknown", False, None)


def test_d3_an_abort_is_critical_and_neutral_only_under_adr0025():
    row = entities([{"entity_type": "session", "entity_id": "e1", "raw_status": "aborted"}])
    assert states(row, as_of=AS_OF)["severity"].item() == "critical"
    assert states(row, as_of=AS_OF, policy=Policy.adr0025())["severity"].item() == "neutral"


def test_d5_silence_stalls_and_only_a_process_that_was_looked_for_is_dead():
    assert running(last_activity_at=ago(hours=7), process_alive=None)["health"] == "stalled"
    assert running(last_activity_at=ago(hours=7), process_alive=True)["health"] == "stalled"
    assert running(process_alive=False)["health"] == "process_dead"


def test_d6_healthy_work_is_running_while_it_runs_and_ok_when_over():
    assert running()["health"] == "running"
    assert state(raw_status="failed")["health"] == "ok"


def test_d7_d8_what_is_over_has_no_running_time_health_but_locks():
    assert state(raw_status="failed", last_activity_at=ago(days=9))["health"] == "ok"
    assert state(raw_status="failed", has_stale_locks=True)["health"] == "degraded"


def test_d11_a_good_end_without_evidence_is_completed_and_missing():
    found = state(raw_status="completed_empty")
    assert (found["outcome"], found["delivery"]) == ("completed", "missing")
    assert found["severity"] == "critical"


@pytest.mark.parametrize(
    ("hours", "kind", "health"),
    [
        pytest.param(1, "agent", "running", id="an hour sharp is not idle"),
        pytest.param(1.001, "agent", "idle", id="just over an hour"),
        pytest.param(6, "agent", "idle", id="six hours sharp are not stalled"),
        pytest.param(6.001, "agent", "stalled", id="just over six hours"),
        pytest.param(11, "flow", "idle", id="a flow may be silent longer"),
        pytest.param(12.001, "engine", "stalled", id="but not for more than twelve"),
        pytest.param(7, None, "stalled", id="no kind: six hours"),
    ],
)
def test_d14_silence_is_measured_by_kind(hours, kind, health):
    assert running(last_activity_at=ago(hours=hours), kind=kind)["health"] == health


def test_nothing_to_show_and_no_process_is_orphaned():
    nothing = {"has_artifacts": False, "n_messages": 0}
    assert running(**nothing, process_alive=False)["health"] == "orphaned"
    assert running(**nothing, process_alive=True)["health"] == "running"
    row = entities([{"entity_type": "session", "entity_id": "e1", "raw_status": "running"}])
    assert states(row, as_of=AS_OF, policy=Policy.parity())["health"].item() == "orphaned"


@pytest.mark.parametrize("n_messages", [0, None])
@pytest.mark.parametrize(
    ("silent", "kind", "health"),
    [
        pytest.param({"seconds": 5}, "agent", "unknown", id="it has just begun"),
        pytest.param({"hours": 6}, "agent", "unknown", id="six hours sharp are not too long"),
        pytest.param({"hours": 6.001}, "agent", "stalled", id="its silence says it"),
        pytest.param({"hours": 12}, "flow", "unknown", id="a flow may be silent longer"),
        pytest.param(None, "agent", "unknown", id="no moment is no silence"),
    ],
)
def test_what_nobody_saw_is_unknown_until_its_silence_stalls(silent, kind, health, n_messages):
    at = ago(**silent) if silent else None
    found = running(has_artifacts=False, n_messages=n_messages, last_activity_at=at, kind=kind)
    assert found["health"] == health
    assert found["severity"] == ("neutral" if health == "unknown" else "critical")


@pytest.mark.parametrize("entity_type", ["session", "play", "schedule_run", "engine_run", "branch"])
def test_a_status_alone_is_never_critical(entity_type):
    row = entities([{"entity_type": entity_type, "entity_id": "e1", "raw_status": "running"}])
    assert states(row, as_of=AS_OF)["severity"].item() in ("neutral", "info")
    told = reasons(row, as_of=AS_OF)
    assert set(told["code"]) <= {f"{domain}.health.unknown" for domain in ("run", entity_type)}


@pytest.mark.parametrize(
    ("process_alive", "health", "recorder"),
    [
        pytest.param(None, "unknown", "stalled", id="nobody looked"),
        pytest.param(True, "running", "stalled", id="alive"),
        pytest.param(False, "process_dead", "process_dead", id="gone"),
    ],
)
def test_no_moment_at_all_is_silence_to_the_recorder_only(process_alive, health, recorder):
    row = {"entity_type": "session", "entity_id": "e1", "raw_status": "running"}
    frame = entities([{**row, "n_messages": 5, "process_alive": process_alive}])
    found = states(frame, as_of=AS_OF)
    assert found["health"].item() == health
    assert (found["severity"].item() == "critical") is (health == "process_dead")
    told = states(frame, as_of=AS_OF, policy=Policy.parity())
    assert told["health"].item() == recorder


@pytest.mark.parametrize(
    ("contract", "delivery"),
    [
        pytest.param({}, "not_expected", id="no contract"),
        pytest.param({"n_expected": 0}, "not_expected", id="nothing expected"),
        pytest.param({"verdict": "passed"}, "passed", id="passed"),
        pytest.param({"verdict": "warning"}, "partial", id="D10 optional missing"),
        pytest.param(
            {"verdict": "failed", "n_required_missing": 1, "n_produced": 3},
            "missing",
            id="D9 required missing with some output",
        ),
        pytest.param({"is_contract_valid": False}, "invalid", id="malformed contract"),
        pytest.param({"is_verdict_valid": False}, "invalid", id="malformed verdict"),
        pytest.param({"verdict": None}, "unknown", id="never verified"),
        pytest.param({"verdict": "skipped"}, "unknown", id="a verdict nobody knows"),
        pytest.param(
            {"raw_status": "running", "verdict": "failed"}, "unknown", id="not over: provisional"
        ),
    ],
)
def test_delivery_follows_contract_and_verdict(contract, delivery):
    promise = {"has_contract": True, "is_contract_valid": True, "n_expected": 2} if contract else {}
    found = state(**{"raw_status": "completed", "reason_code": None, **promise, **contract})
    assert found["delivery"] == delivery


def linked(*rows):
    found = states(facts(list(rows)))
    return {row["entity_id"]: row for row in found.to_dicts()}


def session(**row):
    return {"entity_id": "s1", "raw_status": "running", "has_artifacts": True, **row}


def play(**row):
    return {"entity_type": "play", "entity_id": "p1", "raw_status": "running", **row}


def show(**row):
    return {"entity_type": "show", "entity_id": "w1", "raw_status": "active", **row}


@pytest.mark.parametrize(("hours", "health"), [(7, "stalled"), (0.1, "running"), (2, "running")])
def test_a_play_is_as_well_as_its_session(hours, health):
    found = linked(
        session(last_activity_at=ago(hours=hours)),
        play(session_id="s1", last_activity_at=ago(days=3)),
    )
    assert found["p1"]["health"] == health


def test_a_play_without_a_session_is_stalled_after_six_hours_sharp():
    assert linked(play(last_activity_at=ago(hours=6)))["p1"]["health"] == "stalled"
    assert linked(play(last_activity_at=ago(hours=5.99)))["p1"]["health"] == "running"
    assert (
        linked(play(session_id="gone", last_activity_at=ago(hours=6)))["p1"]["health"] == "stalled"
    )


def test_a_play_delivers_what_its_session_delivers():
    delivered = session(raw_status="completed", has_contract=True, n_expected=1, verdict="failed")
    found = linked(delivered, play(raw_status="merged", session_id="s1"))
    assert found["p1"]["delivery"] == "missing"
    assert found["p1"]["display"] == "Merged · Artifacts missing"
    assert linked(play(raw_status="merged"))["p1"]["delivery"] == "not_expected"


@pytest.mark.parametrize(
    ("statuses", "health"),
    [
        pytest.param((), "ok", id="no plays"),
        pytest.param(("merged", "pending"), "ok", id="nothing moves, nothing blocks"),
        pytest.param(("merged", "redoing", "blocked"), "running", id="one moves"),
        pytest.param(("merged", "gate_failed"), "blocked", id="one blocks"),
    ],
)
def test_an_active_show_is_judged_by_its_plays(statuses, health):
    plays = [
        play(entity_id=f"p{n}", raw_status=raw, parent_type="show", parent_id="w1")
        for n, raw in enumerate(statuses)
    ]
    assert linked(show(), *plays)["w1"]["health"] == health
    assert linked(show(raw_status="completed"), *plays)["w1"]["health"] == "ok"


SCHEDULE = {"entity_type": "schedule", "entity_id": "d1", "raw_status": "enabled"}


@pytest.mark.parametrize(
    ("record", "health"),
    [
        pytest.param(
            {"cadence_s": 600.0, "last_sign_at": ago(seconds=1801)}, "misfired", id="late"
        ),
        pytest.param({"cadence_s": 600.0, "last_sign_at": ago(seconds=1800)}, "ok", id="not late"),
        pytest.param({"n_running": 1}, "running", id="a run is running"),
        pytest.param({"due_at": AS_OF}, "due", id="due now"),
        pytest.param({"due_at": ago(seconds=-1)}, "ok", id="due in a second"),
    ],
)
def test_a_schedule_is_judged_by_its_record(record, health):
    found = linked({**SCHEDULE, **record})
    assert found["d1"]["health"] == health


def test_a_schedule_that_is_off_is_ok_and_one_without_a_record_unknown():
    assert linked({**SCHEDULE, "raw_status": "disabled"})["d1"]["health"] == "ok"
    assert linked(SCHEDULE)["d1"]["health"] == "unknown"


def test_the_policy_says_when_a_schedule_is_late():
    late = facts([{**SCHEDULE, "cadence_s": 600.0, "last_sign_at": ago(seconds=1801)}])
    patient = Policy.v1().replace(overdue_cadences=4)
    assert states(late)["health"].item() == "misfired"
    assert states(late, policy=patient)["health"].item() == "ok"


@pytest.mark.parametrize(("hours", "health"), [(24, "stalled"), (23.9, "running")])
def test_a_fire_is_stalled_after_a_day_without_a_write(hours, health):
    fire = {"entity_type": "schedule_run", "entity_id": "r1", "raw_status": "running"}
    assert linked({**fire, "updated_at": ago(hours=hours)})["r1"]["health"] == health
    assert linked({**fire, "started_at": ago(hours=hours)})["r1"]["health"] == health


def test_an_engine_run_is_as_well_as_its_session_and_runs_without_one():
    engine = {"entity_type": "engine_run", "entity_id": "g1", "raw_status": "running"}
    quiet = session(last_activity_at=ago(hours=7))
    assert linked(quiet, {**engine, "session_id": "s1"})["g1"]["health"] == "stalled"
    assert linked({**engine, "session_id": "gone"})["g1"]["health"] == "running"


def test_links_stay_within_their_source():
    found = linked(
        session(source="other.db", last_activity_at=ago(days=1)),
        play(session_id="s1", last_activity_at=ago(minutes=1)),
    )
    assert found["p1"]["health"] == "running"


def test_blocked_work_is_neutral_under_v1_and_listed():
    found = linked(play(raw_status="blocked"))["p1"]
    assert (found["outcome"], found["health"], found["severity"]) == (
        "unknown",
        "blocked",
        "neutral",
    )
    rows = states(facts([play(raw_status="blocked"), session()]))
    neutral = rows.filter(pl.col("health") == "blocked", pl.col("severity") == "neutral")
    assert neutral["entity_id"].to_list() == ["p1"]
    raised = states(facts([play(raw_status="blocked")]), policy=Policy.operator())
    assert raised["severity"].item() == "warning"


# --- display ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "chain", "effective"),
    [
        ({"raw_status": "failed"}, "Failed", "failed"),
        ({"raw_status": "timed_out"}, "Timed out", "timed out"),
        ({"raw_status": "failed", "has_stale_locks": True}, "Failed · Degraded", "failed"),
    ],
)
def test_display_of_what_is_over(row, chain, effective):
    found = state(**row)
    assert (found["display"], found["effective_state"]) == (chain, effective)


def test_stale_work_is_never_shown_as_running_alone():
    found = running(last_activity_at=ago(hours=7))
    assert (found["display"], found["effective_state"]) == ("Running · Stalled", "stale running")
    assert running()["display"] == "Running"


def test_infra_ok_is_said_in_the_verbose_mode_only():
    row = entities([{"entity_type": "session", "entity_id": "e1", "raw_status": "failed"}])
    verbose = Policy.v1().replace(is_display_verbose=True)
    assert states(row, as_of=AS_OF, policy=verbose)["display"].item() == "Failed · Infra OK"
    assert states(row, as_of=AS_OF)["display"].item() == "Failed"


# --- against the slow version ------------------------------------------------------------

RAWS = [*sorted({word.raw_status for word in STATUS_WORDS}), "", "done", "Running", None]
TYPES = [*sorted({word.entity_type for word in STATUS_WORDS}), "ghost"]
HOURS = (0, 0.5, 1, 1.001, 6, 6.001, 12, 12.5, 24, 25, -1)


def any_row(choose):
    """A row of any type with any facts; few ids, so that rows find each other."""
    raw = choose(RAWS)
    kind = choose(TYPES)
    own = [word.raw_status for word in STATUS_WORDS if word.entity_type == kind]
    return {
        "source": choose(["a.db", "b.db"]),
        "system": "lionagi",
        "entity_type": kind,
        "entity_id": choose(["1", "2", "3"]),
        "parent_type": choose([None, "show", "schedule", "session"]),
        "parent_id": choose([None, "1", "2", "3"]),
        "session_id": choose([None, "1", "2", "3"]),
        "kind": choose([None, "agent", "flow", "engine", "other"]),
        "raw_status": choose([*own, raw]),
        "started_at": choose([None, *(AS_OF - timedelta(hours=h) for h in HOURS)]),
        "ended_at": choose([None, AS_OF - timedelta(minutes=7, microseconds=1)]),
        "updated_at": choose([None, *(AS_OF - timedelta(hours=h) for h in HOURS)]),
        "last_activity_at": choose([None, *(AS_OF - timedelta(hours=h) for h in HOURS)]),
        "n_messages": choose([None, 0, 2]),
        "process_alive": choose([None, None, True, False]),
        "has_artifacts": choose([None, True, False]),
        "has_stale_locks": choose([None, True, False]),
        "has_contract": choose([None, True, True, False]),
        "is_contract_valid": choose([None, True, True, False]),
        "is_verdict_valid": choose([None, True, True, False]),
        "verdict": choose([None, "passed", "warning", "failed", "skipped"]),
        "n_expected": choose([None, 0, 2]),
        "reason_code": choose([None, "run.failed.exception"]),
        "reason_message": choose([None, "It broke."]),
        "is_end_approximate": choose([None, True, False]),
        "n_required_missing": choose([None, 1]),
        "n_produced": choose([None, 0, 1]),
        "evidence": choose([None, "[]"]),
    }


def many_rows(n_rows, seed):
    return [any_row(random.Random(f"{seed} {n}").choice) for n in range(n_rows)]


def slowly(rows):
    found = slow_states(rows, AS_OF)
    return pl.DataFrame(
        found, schema={name: schema.STATES.dtypes[name] for name in (*TOLD, *TIMES)}
    )


@examples(25)
@given(
    st.lists(
        st.builds(lambda seed: any_row(random.Random(seed).choice), st.integers()), max_size=12
    )
)
def test_bulk_equals_row_by_row(rows):
    found = states(entities(rows), as_of=AS_OF)
    assert_frame_equal(found.select(*TOLD, *TIMES), slowly(rows))


def test_many_rows_equal_row_by_row():
    rows = many_rows(400, seed=1)
    found = states(entities(rows), as_of=AS_OF)
    assert_frame_equal(found.select(*TOLD, *TIMES), slowly(rows))


@on_every_engine
def test_every_engine_gives_the_same_states(engine):
    frame = entities(many_rows(200, seed=2)).with_row_index("row")
    keyed = frame.with_columns(entity_id=pl.format("{} {}", "entity_id", pl.col("row") % 40))
    found = engine.back(states(engine.of(keyed.drop("row")), as_of=AS_OF))
    utc = found.with_columns(pl.col("evaluated_at").dt.convert_time_zone("UTC"))
    assert_same_rows(utc, states(keyed, as_of=AS_OF))


@on_polars_first
def test_every_engine_gives_the_same_reasons(engine):
    frame = entities(many_rows(120, seed=3))
    assert_same_rows(
        engine.back(reasons(engine.of(frame), as_of=AS_OF)), reasons(frame, as_of=AS_OF)
    )


@on_polars_first
def test_a_bare_frame_tells_how_its_schedules_are(engine):
    frame = entities([{**SCHEDULE, "due_at": AS_OF}, {**SCHEDULE, "entity_id": "d2"}])
    found = engine.back(states(engine.of(frame), as_of=AS_OF)).select("entity_id", "health")
    assert sorted(found.rows()) == [("d1", "due"), ("d2", "unknown")]


@examples(15)
@given(st.integers(), st.integers(0, 99))
def test_the_order_of_rows_never_matters(seed, order):
    frame = entities(many_rows(12, seed)).with_row_index()
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=order)
    found = states(shuffled.drop("index"), as_of=AS_OF).with_columns(shuffled["index"])
    expected = states(frame.drop("index"), as_of=AS_OF)
    assert_frame_equal(found.sort("index").drop("index"), expected)


def test_duplicates_stay_duplicates():
    frame = entities([{"entity_type": "play", "entity_id": "p1", "raw_status": "running"}] * 3)
    assert states(frame, as_of=AS_OF).height == 3


@pytest.mark.parametrize("engine", [POLARS, LAZY], ids=str)
def test_no_rows_give_frames_of_the_right_shape(engine):
    empty = engine.of(schema.ENTITIES.empty())
    assert engine.back(states(empty, as_of=AS_OF)).schema == schema.STATES.dtypes
    assert engine.back(reasons(empty, as_of=AS_OF)).schema == schema.REASONS.dtypes


def test_the_shape_is_the_canonical_one():
    frame = entities(many_rows(30, seed=4))
    assert states(frame, as_of=AS_OF).schema == schema.STATES.dtypes
    assert reasons(frame, as_of=AS_OF).schema == schema.REASONS.dtypes


@on_polars_first
def test_a_row_of_nulls_is_unknown_and_neutral(engine):
    nothing = schema.ENTITIES.conform(pl.DataFrame({"source": [None]}))
    found = engine.back(states(engine.of(nothing), as_of=AS_OF))
    assert found.select("lifecycle", "severity", "is_legacy").row(0) == ("unknown", "neutral", True)


def test_both_at_once_equals_one_after_the_other():
    frame = entities(many_rows(60, seed=5))
    both = states_and_reasons(frame, as_of=AS_OF)
    assert_frame_equal(both[0], states(frame, as_of=AS_OF))
    assert_frame_equal(both[1], reasons(frame, as_of=AS_OF))


def test_facts_bring_their_own_instant_and_another_may_be_given():
    given = facts([session(last_activity_at=ago(hours=2))])
    assert states(given)["evaluated_at"].item() == AS_OF
    assert states(given)["health"].item() == "idle"
    assert states(given, as_of=AS_OF - timedelta(hours=1.5))["health"].item() == "running"


def test_states_are_stamped():
    found = state(raw_status="failed")
    assert (found["policy_version"], found["origin"]) == ("v1", "stateanalytics")
    assert found["evaluated_at"] == AS_OF


def test_a_bare_frame_needs_an_instant():
    with pytest.raises(ArgumentError, match=r"as_of is not given\.\nHint: states"):
        states(schema.ENTITIES.empty())


def test_a_policy_that_is_none_is_refused():
    with pytest.raises(ArgumentError, match="states needs a Policy; found 'operator'"):
        states(schema.ENTITIES.empty(), as_of=AS_OF, policy="operator")


def test_missing_and_odd_columns_are_named():
    with pytest.raises(MissingColumnsError, match=r"states needs columns \['raw_status'\]"):
        states(schema.ENTITIES.empty().drop("raw_status"), as_of=AS_OF)
    odd = schema.ENTITIES.empty().with_columns(started_at=pl.lit("now"))
    with pytest.raises(ColumnTypeError, match="moments or epoch seconds in column 'started_at'"):
        states(odd, as_of=AS_OF)


# --- reasons -----------------------------------------------------------------------------


def why(policy=None, **row):
    frame = entities([{"entity_type": "session", "entity_id": "e1", "has_artifacts": True, **row}])
    return reasons(frame, as_of=AS_OF, policy=policy or Policy.v1()).to_dicts()


def test_a_stored_reason_is_observed_and_passed_through():
    found = why(
        raw_status="failed",
        reason_code="run.failed.exception",
        reason_message="boom",
        evidence='[{"kind":"file"}]',
    )
    assert len(found) == 1
    assert found[0]["order"] == 0
    assert found[0]["claim_status"] == "observed"
    assert found[0]["confidence"] == 1.0
    assert (found[0]["message"], found[0]["evidence"]) == ("boom", '[{"kind":"file"}]')


def test_an_estimated_end_lowers_the_confidence():
    found = why(raw_status="failed", reason_code="run.failed.x", is_end_approximate=True)
    assert found[0]["confidence"] == 0.8


def test_silence_is_explained_with_its_numbers():
    found = why(raw_status="running", last_activity_at=ago(hours=9, minutes=12), kind="agent")
    assert [row["code"] for row in found] == ["run.health.stalled"]
    assert found[0]["claim_status"] == "inferred"
    assert found[0]["message"] == "No sign of life: silent for 9 h 12 min, threshold 6 h."
    assert json.loads(found[0]["evidence"]) == [
        {
            "kind": "rule",
            "id": "silence_over_threshold",
            "detail": "silent for 9 h 12 min, threshold 6 h",
        }
    ]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"last_activity_at": ago(hours=2)}, "silent for 2 h, threshold 1 h"),
        ({"last_activity_at": ago(days=4, hours=3)}, "silent for 4 d 3 h, threshold 6 h"),
        ({"last_activity_at": ago(hours=13), "kind": "flow"}, "silent for 13 h, threshold 12 h"),
    ],
)
def test_silence_is_told_in_two_units(row, text):
    assert text in why(raw_status="running", **row)[0]["message"]


def test_silence_without_a_moment_is_told_as_the_policy_reads_it():
    row = {"raw_status": "running", "last_activity_at": None}
    assert why(**row)[0]["message"].startswith("Nobody saw it at work")
    recorder = why(**row, policy=Policy.parity())[0]["message"]
    assert "silent for ever, threshold 6 h" in recorder


def test_a_missing_output_is_explained_by_its_counts():
    promise = {"has_contract": True, "verdict": "failed", "n_expected": 2, "n_required_missing": 1}
    found = why(raw_status="completed", **promise)[0]
    assert found["code"] == "run.delivery.missing"
    assert found["message"] == "Required outputs are missing: 1 required missing of 2 promised."


def test_a_message_without_a_code_is_kept():
    found = why(raw_status="failed", reason_message="TypeError: x")
    assert [(row["code"], row["message"]) for row in found] == [(None, "TypeError: x")]


@pytest.mark.parametrize("seed", range(3))
def test_reasons_agree_with_the_codes_of_the_states(seed):
    rows = [{**row, "entity_id": str(n)} for n, row in enumerate(many_rows(150, seed))]
    told, explained = states_and_reasons(entities(rows), as_of=AS_OF)
    joined = (
        explained.sort("order")
        .group_by("entity_id", maintain_order=True)
        .agg(codes=pl.col("code").drop_nulls().str.join(", "))
        .with_columns(pl.col("codes").replace("", None))
    )
    both = told.join(joined, on="entity_id", how="left")
    assert both["codes"].equals(both["reason_codes"].alias("codes"), null_equal=True)


def test_every_derived_reason_is_registered_and_has_readable_evidence():
    found = reasons(entities(many_rows(600, seed=6)), as_of=AS_OF)
    derived = found.filter(pl.col("claim_status") == "inferred")
    known = derived.filter(~pl.col("entity_type").is_in(["ghost"]))
    assert set(known["code"]) <= set(REGISTRY)
    for evidence in derived["evidence"].unique():
        (reference,) = json.loads(evidence)
        assert set(reference) == {"kind", "id", "detail"}
    assert derived["confidence"].is_between(0, 1).all()
    assert not derived["message"].is_null().any()


# --- policies, odd words, stored axes ------------------------------------------------------


def test_two_policies_can_be_compared():
    rows = [
        {"entity_type": "session", "entity_id": "s1", "raw_status": "aborted"},
        {"entity_type": "session", "entity_id": "s2", "raw_status": "aborted"},
        {"entity_type": "session", "entity_id": "s3", "raw_status": "failed"},
    ]
    changed = compare_policies(facts(rows), Policy.v1(), Policy.adr0025())
    assert changed["entity_id"].to_list() == ["s1", "s2"]
    assert changed.select("severity_rule_a", "severity_rule_b").unique().rows() == [(1, 13)]
    assert count_changes(changed).rows() == [("session", "critical", "neutral", 2)]


def test_comparing_a_policy_with_itself_changes_nothing():
    given = facts([session()])
    same = compare_policies(given, Policy.v1(), Policy.v1())
    assert same.is_empty()
    assert count_changes(same).is_empty()


def test_thresholds_change_severity_too():
    given = facts([session(last_activity_at=ago(hours=2))])
    strict = Policy.v1().replace(stalled_after_s={"agent": 3600}, stalled_after_default_s=3600)
    changed = compare_policies(given, Policy.v1(), strict)
    assert changed.select("health_a", "health_b").row(0) == ("idle", "stalled")


def test_parity_shows_what_lionagi_shows():
    rows = [
        {"entity_type": "session", "entity_id": "s1", "raw_status": None},
        {"entity_type": "session", "entity_id": "s2", "raw_status": "completed_empty"},
    ]
    found = states(facts(rows), policy=Policy.parity())
    assert found["outcome"].to_list() == ["completed", "failed"]
    assert found["delivery"].to_list() == ["not_expected", "not_expected"]
    assert not found["is_legacy"].any()


# --- real stores ---------------------------------------------------------------------------

RULE_OF = {
    "0.26.12": "0.26.1",
    "0.29.1": "0.29.1",
    "0.36.0": "0.36",
    "migrated-0.26.12-to-0.36.0": "0.26.1",
}


@pytest.mark.parametrize(("store", "version"), a_few(RULE_OF.items()))
def test_the_verdicts_of_the_sample_stores_are_reproduced(store, version, lionagi_samples):
    folder = lionagi_samples / store
    found, _ = sources.read_facts([folder / "state.db"])
    with (folder / "scenarios.csv").open() as file:
        told = [row for row in csv.DictReader(file) if row["entity_type"] == "session"]
    live = pl.DataFrame(
        [
            {
                "entity_id": row["entity_id"],
                "process_alive": {"true": True, "false": False}.get(row["process_alive"]),
                "has_artifacts": row["has_artifacts"] == "1",
                "has_stale_locks": row["has_stale_locks"] == "1",
                "verdict": row["health"] or None,
            }
            for row in told
        ],
        schema_overrides={"process_alive": pl.Boolean},
    )
    judged = classify_session_health(
        found.entities.filter(pl.col("entity_type") == "session")
        .select(
            "entity_id",
            "last_message_at",
            "updated_at",
            "started_at",
            status="raw_status",
            invocation_kind="kind",
            message_count="n_messages",
        )
        .join(live, on="entity_id"),
        now=datetime(2026, 5, 27, tzinfo=UTC),
        version=version,
    ).filter(pl.col("verdict").is_not_null())
    assert judged.height > 50
    wrong = judged.filter(pl.col("session_health") != pl.col("verdict"))
    assert wrong.is_empty(), wrong


@pytest.mark.slow
def test_every_sample_store_has_a_state_for_every_entity(lionagi_samples):
    paths = sorted(lionagi_samples.rglob("state.db"))
    assert len(paths) >= 5
    for path in paths:
        given, _ = sources.read_facts([path])
        told, explained = states_and_reasons(given)
        assert told.height == given.entities.height
        assert told["lifecycle"].null_count() == 0
        assert set(explained["entity_id"]) <= set(given.entities["entity_id"])

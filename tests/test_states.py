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
from stateanalytics.state.reasons import REGISTRY
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


PLAIN = {"entity_type": "session", "has_artifacts": True}
RUNNING = {**PLAIN, "raw_status": "running", "last_activity_at": ago(minutes=1)}


def judged(cases, base=PLAIN, policy=None):
    """The states of the rows of a table, by name of the case: all of them judged at once."""
    rows = [{**base, **row, "entity_id": case} for case, row in cases.items()]
    found = states(entities(rows), as_of=AS_OF, policy=policy or Policy.v1())
    return {row["entity_id"]: row for row in found.to_dicts()}


def judged_as(axis, cases, base=PLAIN):
    """One word of each of those states."""
    return {case: row[axis] for case, row in judged(cases, base).items()}


def state(**row):
    return judged({"e1": row})["e1"]


def running(**row):
    return judged({"e1": row}, RUNNING)["e1"]


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
    ends = {
        "session": ("completed", "completed"),
        "invocation": ("completed", "succeeded"),
        "play": ("merged", "merged"),
    }
    rows = {kind: {"entity_type": kind, "raw_status": raw} for kind, (raw, _) in ends.items()}
    assert judged_as("outcome", rows) == {kind: outcome for kind, (_, outcome) in ends.items()}


def test_d2_no_status_is_legacy_and_in_no_rate():
    for found in judged({"none": {"raw_status": None}, "empty": {"raw_status": ""}}).values():
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
    rows = {
        "silent": {"last_activity_at": ago(hours=7), "process_alive": None},
        "silent, alive": {"last_activity_at": ago(hours=7), "process_alive": True},
        "gone": {"process_alive": False},
    }
    health = judged_as("health", rows, RUNNING)
    assert health == {"silent": "stalled", "silent, alive": "stalled", "gone": "process_dead"}


def test_d6_healthy_work_is_running_while_it_runs_and_ok_when_over():
    rows = {"at work": {}, "over": {"raw_status": "failed"}}
    assert judged_as("health", rows, RUNNING) == {"at work": "running", "over": "ok"}


def test_d7_d8_what_is_over_has_no_running_time_health_but_locks():
    rows = {"silent": {"last_activity_at": ago(days=9)}, "locked": {"has_stale_locks": True}}
    over = {**PLAIN, "raw_status": "failed"}
    assert judged_as("health", rows, over) == {"silent": "ok", "locked": "degraded"}


def test_d11_a_good_end_without_evidence_is_completed_and_missing():
    found = state(raw_status="completed_empty")
    assert (found["outcome"], found["delivery"]) == ("completed", "missing")
    assert found["severity"] == "critical"


def test_d14_silence_is_measured_by_kind():
    silences = {
        "an hour sharp is not idle": (1, "agent", "running"),
        "just over an hour": (1.001, "agent", "idle"),
        "six hours sharp are not stalled": (6, "agent", "idle"),
        "just over six hours": (6.001, "agent", "stalled"),
        "a flow may be silent longer": (11, "flow", "idle"),
        "but not for more than twelve": (12.001, "engine", "stalled"),
        "no kind: six hours": (7, None, "stalled"),
    }
    rows = {
        case: {"last_activity_at": ago(hours=hours), "kind": kind}
        for case, (hours, kind, _) in silences.items()
    }
    wanted = {case: health for case, (*_, health) in silences.items()}
    assert judged_as("health", rows, RUNNING) == wanted


def test_nothing_to_show_and_no_process_is_orphaned():
    nothing = {**RUNNING, "has_artifacts": False, "n_messages": 0}
    rows = {"gone": {"process_alive": False}, "alive": {"process_alive": True}}
    assert judged_as("health", rows, nothing) == {"gone": "orphaned", "alive": "running"}
    row = entities([{"entity_type": "session", "entity_id": "e1", "raw_status": "running"}])
    assert states(row, as_of=AS_OF, policy=Policy.parity())["health"].item() == "orphaned"


def test_what_nobody_saw_is_unknown_until_its_silence_stalls():
    silences = {
        "it has just begun": (ago(seconds=5), "agent", "unknown"),
        "six hours sharp are not too long": (ago(hours=6), "agent", "unknown"),
        "its silence says it": (ago(hours=6.001), "agent", "stalled"),
        "a flow may be silent longer": (ago(hours=12), "flow", "unknown"),
        "no moment is no silence": (None, "agent", "unknown"),
    }
    rows = {
        f"{case}, {n_messages} messages": {
            "has_artifacts": False, "n_messages": n_messages, "last_activity_at": at, "kind": kind,
        }
        for n_messages in (0, None)
        for case, (at, kind, _) in silences.items()
    }  # fmt: skip
    found = judged(rows, RUNNING)
    assert len(found) == 10
    for case, row in found.items():
        health = silences[case.split(",")[0]][-1]
        severity = "neutral" if health == "unknown" else "critical"
        assert (row["health"], row["severity"]) == (health, severity), case


def test_a_status_alone_is_never_critical():
    types = ("session", "play", "schedule_run", "engine_run", "branch")
    rows = entities(
        [{"entity_type": kind, "entity_id": "e1", "raw_status": "running"} for kind in types]
    )
    found, told = states_and_reasons(rows, as_of=AS_OF)
    assert found["entity_type"].to_list() == list(types)
    assert set(found["severity"]) <= {"neutral", "info"}
    for kind, code in told.select("entity_type", "code").rows():
        assert code in (None, "run.health.unknown", f"{kind}.health.unknown")


def test_no_moment_at_all_is_silence_to_the_recorder_only():
    looked = {"nobody looked": None, "alive": True, "gone": False}
    rows = {case: {"process_alive": alive} for case, alive in looked.items()}
    base = {"entity_type": "session", "raw_status": "running", "n_messages": 5}
    found, told = judged(rows, base), judged(rows, base, Policy.parity())
    ours = {case: (row["health"], row["severity"] == "critical") for case, row in found.items()}
    assert ours == {
        "nobody looked": ("unknown", False),
        "alive": ("running", False),
        "gone": ("process_dead", True),
    }
    theirs = {case: row["health"] for case, row in told.items()}
    assert theirs == {"nobody looked": "stalled", "alive": "stalled", "gone": "process_dead"}


def test_delivery_follows_contract_and_verdict():
    contracts = {
        "no contract": ({}, "not_expected"),
        "nothing expected": ({"n_expected": 0}, "not_expected"),
        "passed": ({"verdict": "passed"}, "passed"),
        "D10 optional missing": ({"verdict": "warning"}, "partial"),
        "D9 required missing with some output": (
            {"verdict": "failed", "n_required_missing": 1, "n_produced": 3},
            "missing",
        ),
        "malformed contract": ({"is_contract_valid": False}, "invalid"),
        "malformed verdict": ({"is_verdict_valid": False}, "invalid"),
        "never verified": ({"verdict": None}, "unknown"),
        "a verdict nobody knows": ({"verdict": "skipped"}, "unknown"),
        "not over: provisional": ({"raw_status": "running", "verdict": "failed"}, "unknown"),
    }
    promise = {"has_contract": True, "is_contract_valid": True, "n_expected": 2}
    rows = {
        case: {"raw_status": "completed", **(promise if contract else {}), **contract}
        for case, (contract, _) in contracts.items()
    }
    wanted = {case: delivery for case, (_, delivery) in contracts.items()}
    assert judged_as("delivery", rows) == wanted


def linked(*rows):
    found = states(facts(list(rows)))
    return {row["entity_id"]: row for row in found.to_dicts()}


def session(**row):
    return {"entity_id": "s1", "raw_status": "running", "has_artifacts": True, **row}


def play(**row):
    return {"entity_type": "play", "entity_id": "p1", "raw_status": "running", **row}


def show(**row):
    return {"entity_type": "show", "entity_id": "w1", "raw_status": "active", **row}


def test_a_play_is_as_well_as_its_session():
    wanted = {7: "stalled", 0.1: "running", 2: "running"}
    rows = [
        row
        for hours in wanted
        for row in (
            session(entity_id=f"s {hours}", last_activity_at=ago(hours=hours)),
            play(entity_id=f"p {hours}", session_id=f"s {hours}", last_activity_at=ago(days=3)),
        )
    ]
    found = linked(*rows)
    assert {hours: found[f"p {hours}"]["health"] for hours in wanted} == wanted


def test_a_play_without_a_session_is_stalled_after_six_hours_sharp():
    found = linked(
        play(entity_id="sharp", last_activity_at=ago(hours=6)),
        play(entity_id="before", last_activity_at=ago(hours=5.99)),
        play(entity_id="of none", session_id="gone", last_activity_at=ago(hours=6)),
    )
    health = {name: row["health"] for name, row in found.items()}
    assert health == {"sharp": "stalled", "before": "running", "of none": "stalled"}


def test_a_play_delivers_what_its_session_delivers():
    delivered = session(raw_status="completed", has_contract=True, n_expected=1, verdict="failed")
    found = linked(delivered, play(raw_status="merged", session_id="s1"))
    assert found["p1"]["delivery"] == "missing"
    assert found["p1"]["display"] == "Merged · Artifacts missing"
    assert linked(play(raw_status="merged"))["p1"]["delivery"] == "not_expected"


def test_an_active_show_is_judged_by_its_plays():
    shows = {
        "no plays": ((), "ok"),
        "nothing moves, nothing blocks": (("merged", "pending"), "ok"),
        "one moves": (("merged", "redoing", "blocked"), "running"),
        "one blocks": (("merged", "gate_failed"), "blocked"),
    }
    rows = [
        row
        for case, (statuses, _) in shows.items()
        for status in ("active", "completed")
        for row in (
            show(entity_id=f"{case}: {status}", raw_status=status),
            *(
                play(
                    entity_id=f"{n} of {case}: {status}", raw_status=raw,
                    parent_type="show", parent_id=f"{case}: {status}",
                )
                for n, raw in enumerate(statuses)
            ),
        )
    ]  # fmt: skip
    found = linked(*rows)
    for case, (_, health) in shows.items():
        assert found[f"{case}: active"]["health"] == health, case
        assert found[f"{case}: completed"]["health"] == "ok", case


SCHEDULE = {"entity_type": "schedule", "entity_id": "d1", "raw_status": "enabled"}


def test_a_schedule_is_judged_by_its_record():
    records = {
        "late": ({"cadence_s": 600.0, "last_sign_at": ago(seconds=1801)}, "misfired"),
        "not late": ({"cadence_s": 600.0, "last_sign_at": ago(seconds=1800)}, "ok"),
        "late, and fast": ({"cadence_s": 60.0, "last_sign_at": ago(seconds=361)}, "misfired"),
        "five minutes of grace": ({"cadence_s": 60.0, "last_sign_at": ago(seconds=360)}, "ok"),
        "a run is running": ({"n_running": 1}, "running"),
        "due now": ({"due_at": AS_OF}, "due"),
        "due in a second": ({"due_at": ago(seconds=-1)}, "ok"),
        "off": ({"raw_status": "disabled"}, "ok"),
        "no record": ({}, "unknown"),
    }
    found = linked(*({**SCHEDULE, **row, "entity_id": case} for case, (row, _) in records.items()))
    wanted = {case: health for case, (_, health) in records.items()}
    assert {case: row["health"] for case, row in found.items()} == wanted


def test_the_policy_says_when_a_schedule_is_late():
    late = facts([{**SCHEDULE, "cadence_s": 600.0, "last_sign_at": ago(seconds=1801)}])
    patient = Policy.v1().replace(overdue_cadences=4)
    assert states(late)["health"].item() == "misfired"
    assert states(late, policy=patient)["health"].item() == "ok"


def test_a_fire_is_stalled_after_a_day_without_a_write():
    fire = {"entity_type": "schedule_run", "raw_status": "running"}
    wanted = {24: "stalled", 23.9: "running"}
    rows = {
        f"{moment} {hours}": {moment: ago(hours=hours)}
        for moment in ("updated_at", "started_at")
        for hours in wanted
    }
    found = linked(*({**fire, **row, "entity_id": case} for case, row in rows.items()))
    assert len(found) == 4
    for case, row in found.items():
        assert row["health"] == wanted[float(case.split()[1])], case


def test_an_engine_run_is_as_well_as_its_session_and_runs_without_one():
    engine = {"entity_type": "engine_run", "raw_status": "running"}
    found = linked(
        session(last_activity_at=ago(hours=7)),
        {**engine, "entity_id": "g1", "session_id": "s1"},
        {**engine, "entity_id": "g2", "session_id": "gone"},
    )
    assert (found["g1"]["health"], found["g2"]["health"]) == ("stalled", "running")


def test_links_stay_within_their_source():
    found = linked(
        session(source="other.db", last_activity_at=ago(days=1)),
        play(session_id="s1", last_activity_at=ago(minutes=1)),
    )
    assert found["p1"]["health"] == "running"


def test_blocked_work_is_neutral_under_v1_and_listed():
    found = linked(play(raw_status="blocked"))["p1"]
    judged = tuple(found[axis] for axis in ("outcome", "health", "severity"))
    assert judged == ("unknown", "blocked", "neutral")
    rows = states(facts([play(raw_status="blocked"), session()]))
    neutral = rows.filter(pl.col("health") == "blocked", pl.col("severity") == "neutral")
    assert neutral["entity_id"].to_list() == ["p1"]
    raised = states(facts([play(raw_status="blocked")]), policy=Policy.operator())
    assert raised["severity"].item() == "warning"


# --- display ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "display", "effective"),
    [
        ({"raw_status": "failed"}, "Failed", "failed"),
        ({"raw_status": "timed_out"}, "Timed out", "timed out"),
        ({"raw_status": "failed", "has_stale_locks": True}, "Failed · Degraded", "failed"),
        # Stale work is never shown as running alone.
        ({"last_activity_at": ago(hours=7)}, "Running · Stalled", "stale running"),
        ({}, "Running", "running"),
    ],
)
def test_display_says_how_it_is_and_what_is_wrong(row, display, effective):
    found = running(**row)
    assert (found["display"], found["effective_state"]) == (display, effective)


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
    told = {name: schema.STATES.dtypes[name] for name in (*TOLD, *TIMES)}
    return pl.DataFrame(slow_states(rows, AS_OF), schema=told)


@examples(25)
@given(st.lists(st.builds(lambda n: any_row(random.Random(n).choice), st.integers()), max_size=12))
def test_bulk_equals_row_by_row(rows):
    found = states(entities(rows), as_of=AS_OF)
    assert_frame_equal(found.select(*TOLD, *TIMES), slowly(rows))


def test_many_rows_equal_row_by_row():
    rows = many_rows(400, seed=1)
    found = states(entities(rows), as_of=AS_OF)
    assert_frame_equal(found.select(*TOLD, *TIMES), slowly(rows))


@pytest.mark.slow
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


def test_duplicates_stay_duplicates():
    frame = entities([{"entity_type": "play", "entity_id": "p1", "raw_status": "running"}] * 3)
    assert states(frame, as_of=AS_OF).height == 3


@pytest.mark.slow
@pytest.mark.parametrize("engine", [POLARS, LAZY], ids=str)
def test_no_rows_give_frames_of_the_right_shape(engine):
    empty = engine.of(schema.ENTITIES.empty())
    assert engine.back(states(empty, as_of=AS_OF)).schema == schema.STATES.dtypes
    assert engine.back(reasons(empty, as_of=AS_OF)).schema == schema.REASONS.dtypes


@on_polars_first
def test_a_row_of_nulls_is_unknown_and_neutral(engine):
    nothing = schema.ENTITIES.conform(pl.DataFrame({"source": [None]}))
    found = engine.back(states(engine.of(nothing), as_of=AS_OF))
    assert found.select("lifecycle", "severity", "is_legacy").row(0) == ("unknown", "neutral", True)


def test_both_at_once_equal_one_after_the_other_in_the_canonical_shapes():
    frame = entities(many_rows(60, seed=5))
    both = states_and_reasons(frame, as_of=AS_OF)
    assert_frame_equal(both[0], states(frame, as_of=AS_OF))
    assert_frame_equal(both[1], reasons(frame, as_of=AS_OF))
    assert [told.schema for told in both] == [schema.STATES.dtypes, schema.REASONS.dtypes]


def test_facts_bring_their_own_instant_and_another_may_be_given():
    given = facts([session(last_activity_at=ago(hours=2))])
    assert states(given)["evaluated_at"].item() == AS_OF
    assert states(given)["health"].item() == "idle"
    assert states(given, as_of=AS_OF - timedelta(hours=1.5))["health"].item() == "running"

    found = states(given)
    assert (found["policy_version"].item(), found["origin"].item()) == ("v1", "stateanalytics")


def test_a_bare_frame_needs_an_instant():
    with pytest.raises(ArgumentError, match=r"as_of is not given\.\nHint: states"):
        states(schema.ENTITIES.empty())


def test_a_policy_that_is_none_is_refused():
    with pytest.raises(ArgumentError, match="policy needs a Policy; found 'operator'"):
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
    stored = {"reason_code": "run.failed.exception", "reason_message": "boom"}
    (found,) = why(raw_status="failed", **stored, evidence='[{"kind":"file"}]')
    assert (found["order"], found["claim_status"], found["confidence"]) == (0, "observed", 1.0)
    assert (found["message"], found["evidence"]) == ("boom", '[{"kind":"file"}]')


def test_an_estimated_end_lowers_the_confidence():
    found = why(raw_status="failed", reason_code="run.failed.x", is_end_approximate=True)
    assert found[0]["confidence"] == 0.8


def test_silence_is_explained_with_its_numbers():
    found = why(raw_status="running", last_activity_at=ago(hours=9, minutes=12), kind="agent")
    assert [row["code"] for row in found] == ["run.health.stalled"]
    assert found[0]["claim_status"] == "inferred"
    assert found[0]["message"] == "No sign of life: silent for 9 h 12 min, threshold 6 h."
    said = "silent for 9 h 12 min, threshold 6 h"
    (evidence,) = json.loads(found[0]["evidence"])
    assert evidence == {"kind": "rule", "id": "silence_over_threshold", "detail": said}


def test_silence_is_told_in_two_units():
    silences = [
        ({"last_activity_at": ago(hours=2)}, "silent for 2 h, threshold 1 h"),
        ({"last_activity_at": ago(days=4, hours=3)}, "silent for 4 d 3 h, threshold 6 h"),
        ({"last_activity_at": ago(hours=13), "kind": "flow"}, "silent for 13 h, threshold 12 h"),
    ]
    rows = [{**RUNNING, "entity_id": text, **row} for row, text in silences]
    told = reasons(entities(rows), as_of=AS_OF)
    told = told.unique("entity_id", keep="first", maintain_order=True)
    assert told["entity_id"].to_list() == [text for _, text in silences]
    for text, message in told.select("entity_id", "message").rows():
        assert text in message


def test_silence_without_a_moment_is_told_as_the_policy_reads_it():
    row = {"raw_status": "running", "last_activity_at": None}
    assert why(**row)[0]["message"].startswith("No sign that it was at work")
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


@pytest.mark.parametrize("seed", a_few(range(3)))
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


@pytest.mark.parametrize("ask", [states, reasons])
def test_a_path_instead_of_a_snapshot_is_told_what_to_type(ask):
    with pytest.raises(ArgumentError, match=r"read one first: sa\.\w+\(sa\.read\('x\.db'\)"):
        ask("x.db")

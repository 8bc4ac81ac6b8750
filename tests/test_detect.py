"""Detectors replayed over facts: now, at an earlier instant, and where nothing is known."""

import dataclasses
from datetime import datetime, timedelta
from functools import cache

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import changed_facts
from stateanalytics.core.session_health import VERSIONS, classify_session_health_by_age
from stateanalytics.detectors.catalogue import chosen_detectors, named
from stateanalytics.detectors.detections import features_of, in_words, truths
from stateanalytics.errors import ArgumentError
from stateanalytics.systems.history import facts_at
from tests.examples import a_few
from tests.frames import AS_OF, WHOSE, ago, facts, frame

QUIET = ["dashboard_stuck_60m", "dashboard_stale_card", "adr0030_stuck", "phantom_v2"]


def session(entity_id="s", **columns):
    heard = ("updated_at", "last_message_at", "last_activity_at")
    moments = dict.fromkeys(("created_at", "started_at"), ago(hours=9))
    moments |= dict.fromkeys(heard, ago(seconds=40))
    facts = {"kind": "agent", "raw_status": "running", "has_artifacts": True, "n_messages": 4}
    return {"entity_id": entity_id, **moments, **facts, **columns}


def message(at, entity_id="s", seq=0):
    return {**WHOSE, "entity_id": entity_id, "at": at, "seq": seq, "kind": "message",
            "is_activity": True}  # fmt: skip


def change(at, previous, status, entity_id="s", seq=0):
    return {**WHOSE, "entity_id": entity_id, "at": at, "seq": seq,
            "previous_status": previous, "status": status}  # fmt: skip


def answers(given, at=None, detectors=QUIET):
    found = sa.detectors.detect(given, at=at, detectors=detectors).rows
    return {row["detector"]: row for row in found.iter_rows(named=True)}


# --- now -------------------------------------------------------------------------------


def test_each_answer_says_what_was_compared():
    given = answers(facts([session()]))
    stuck, stale = given["dashboard_stuck_60m"], given["dashboard_stale_card"]
    assert (stuck["fires"], stuck["label"], stuck["measured_s"]) == (True, "stuck", 9 * 3600)
    assert stuck["why"] == "9 h since start, limit 1 h"
    assert (stale["fires"], stale["label"]) == (False, None)
    assert stale["why"] == "40 s of silence, limit 6 h"


def test_what_is_over_is_not_covered_by_rules_about_running_work():
    given = answers(facts([session(raw_status="completed", ended_at=ago(hours=1))]))
    stuck = given["dashboard_stuck_60m"]
    assert (stuck["covered"], stuck["fires"]) == (False, None)
    assert stuck["why"].startswith("it only covers running sessions")


def test_a_source_that_does_not_record_a_measure_is_not_covered():
    """A store of 0.26 whose rows have no ``updated_at``: not all of them are phantoms."""
    given = answers(facts([session(updated_at=None), session("t", updated_at=None)]))
    assert given["phantom_v2"]["covered"] is False
    assert "does not record updated_age_s" in given["phantom_v2"]["why"]


def test_one_row_that_was_never_written_is_a_phantom_all_the_same():
    given = facts([session(), session("t", updated_at=None)])
    found = sa.detectors.detect(given, detectors=["C2"]).rows
    assert dict(found.select("entity_id", "fires").rows()) == {"s": False, "t": True}


def test_all_null_rows_are_survived():
    bare = {"entity_id": "s", "raw_status": None}
    found = sa.detectors.detect(facts([bare, bare])).rows
    assert found["fires"].any() is False or found.height > 0


# --- at an earlier instant -------------------------------------------------------------


@pytest.mark.slow
def test_only_messages_up_to_the_instant_count():
    given = facts(
        [session()],
        events=[message(ago(hours=8)), message(ago(seconds=40), seq=1)],
        transitions=[change(ago(hours=9), None, "running")],
    )
    then = answers(given, at=ago(hours=5))
    assert then["adr0030_stuck"]["measured_s"] == 3 * 3600
    assert then["adr0030_stuck"]["fires"] is True
    assert answers(given)["adr0030_stuck"]["fires"] is False


def test_what_was_written_over_is_unknowable_and_not_guessed():
    given = facts([session()], events=[message(ago(hours=8))],
                  transitions=[change(ago(hours=9), None, "running")])  # fmt: skip
    then = answers(given, at=ago(hours=5))["phantom_v2"]
    assert (then["covered"], then["fires"], then["is_knowable"]) == (True, None, False)
    assert then["why"] == "what it reads was overwritten since"


def test_an_update_before_the_instant_is_still_known():
    given = facts([session(updated_at=ago(hours=7), last_message_at=ago(hours=7))])
    then = answers(given, at=ago(hours=5))["phantom_v2"]
    assert (then["fires"], then["is_knowable"], then["measured_s"]) == (True, True, 7200)


def test_without_messages_in_the_store_the_silence_of_then_is_unknowable():
    then = answers(facts([session()]), at=ago(hours=5))
    assert then["adr0030_stuck"]["is_knowable"] is False
    assert then["dashboard_stale_card"]["is_knowable"] is False


def test_a_first_message_that_came_later_leaves_the_update_lost():
    given = facts([session()], events=[message(ago(seconds=40))])
    then = answers(given, at=ago(hours=5), detectors=["A1"])["staleness_v1"]
    assert then["is_knowable"] is False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transitions", "status"),
    [
        pytest.param([change(ago(hours=9), None, "running"),
                      change(ago(hours=1), "running", "completed")], "running", id="before"),
        pytest.param([change(ago(hours=1), "running", "completed")], "running", id="by the next"),
        pytest.param([change(ago(hours=9), None, "running"),
                      change(ago(hours=6), "running", "failed"),
                      change(ago(hours=1), "failed", "completed")], "failed", id="changed twice"),
        pytest.param([change(ago(hours=5), "running", "failed"),
                      change(ago(hours=1), "failed", "completed")], "failed", id="at the instant"),
        pytest.param([change(ago(hours=5, microseconds=-1), "running", "completed")], "running",
                     id="a microsecond after it"),
        pytest.param([], None, id="never recorded"),
    ],
)  # fmt: skip
def test_the_status_of_then_comes_from_transitions(transitions, status):
    now = session(raw_status="completed", ended_at=ago(hours=1), updated_at=ago(hours=1))
    past = facts_at(facts([now], transitions=transitions), ago(hours=5))
    assert past.facts.entities["raw_status"].item() == status
    ends = [row["at"] for row in transitions if row["status"] == "failed"]
    ended = ends[0] if status == "failed" else None
    assert past.facts.entities["ended_at"].item() == ended
    assert past.lost["status"].item() is (status is None)


def test_a_message_at_the_instant_has_been_said_and_one_after_it_has_not():
    said = [message(ago(hours=5)), message(ago(hours=5, microseconds=-1), seq=1)]
    past = facts_at(facts([session()], events=said), ago(hours=5)).facts
    assert past.events["at"].to_list() == [ago(hours=5)]
    assert past.entities["last_message_at"].item() == ago(hours=5)


def test_what_did_not_exist_yet_is_not_asked_about():
    given = facts([session(), session("old", created_at=ago(days=2), started_at=ago(days=2))])
    found = sa.detectors.detect(given, at=ago(hours=12), detectors=["B1"]).rows
    assert found["entity_id"].to_list() == ["old"]


def test_work_that_was_resumed_later_had_ended_then():
    """The row has its last end only; that of then is in the history."""
    resumed = session(raw_status="completed", ended_at=ago(hours=1), updated_at=ago(hours=1))
    history = [
        change(ago(hours=9), None, "running"),
        change(ago(hours=7), "running", "completed", seq=1),
        change(ago(hours=4), "completed", "running", seq=2),
        change(ago(hours=1), "running", "completed", seq=3),
    ]
    given = facts([resumed], transitions=history)
    then = answers(given, at=ago(hours=5), detectors=["B3"])["dashboard_slow_60m"]
    assert (then["fires"], then["measured_s"]) == (True, 2 * 3600)
    running = answers(given, at=ago(hours=3), detectors=["B2"])["dashboard_stuck_60m"]
    assert (running["covered"], running["measured_s"]) == (True, 6 * 3600)


def test_sessions_that_came_later_do_not_count_then():
    invocation = {
        "entity_type": "invocation", "entity_id": "i", "raw_status": "running", "n_children": 1,
        "created_at": ago(hours=1), "started_at": ago(hours=1), "updated_at": ago(hours=1),
    }  # fmt: skip
    later = session(invocation_id="i", created_at=ago(minutes=30), started_at=ago(minutes=30))
    given = facts([invocation, later])
    assert answers(given, detectors=["C6"])["zero_session_invocation"]["fires"] is False
    then = answers(given, at=ago(minutes=40), detectors=["C6"])["zero_session_invocation"]
    assert (then["fires"], then["measured_s"]) == (True, 1200)


def test_work_that_was_waiting_then_had_not_started():
    """Created nine hours ago, started one hour ago: four hours ago it was only planned."""
    late = session(started_at=ago(hours=1), raw_status="running")
    given = facts([late], transitions=[change(ago(hours=1), "pending", "running")])
    past = facts_at(given, ago(hours=4))
    assert past.facts.entities.select("raw_status", "started_at").row(0) == ("pending", None)


def test_turns_that_were_counted_later_are_not_missing_then():
    done = session(raw_status="completed", ended_at=ago(hours=6), n_model_turns=3)
    history = [change(ago(hours=6), "running", "completed")]
    given = facts([done], transitions=history)
    assert answers(given, detectors=["B17"])["status_degraded"]["fires"] is False
    then = answers(given, at=ago(hours=5), detectors=["B17"])["status_degraded"]
    assert (then["covered"], then["is_knowable"]) == (True, False)


def test_an_invocation_is_as_unknowable_as_its_sessions():
    invocation = {
        "entity_type": "invocation", "entity_id": "i", "raw_status": "running",
        "created_at": ago(hours=9), "started_at": ago(hours=9), "updated_at": ago(hours=8),
    }  # fmt: skip
    child = session(invocation_id="i")
    given = facts([invocation, child], transitions=[change(ago(hours=9), None, "running")])
    now = answers(given, detectors=["invocation_health"])["invocation_health"]
    assert (now["fires"], now["is_knowable"]) == (False, True)
    then = answers(given, at=ago(hours=5), detectors=["invocation_health"])["invocation_health"]
    assert (then["fires"], then["is_knowable"]) == (None, False)


def test_what_directories_say_is_of_the_present():
    show = {"entity_type": "show", "entity_id": "w", "raw_status": "active", "name": "topic",
            "created_at": ago(days=2), "started_at": ago(days=2),
            "updated_at": ago(days=1)}  # fmt: skip
    then = answers(facts([show]), at=ago(hours=5), detectors=["C9"])["stale_show"]
    assert then["is_knowable"] is False


@pytest.mark.slow
def test_a_schedule_that_ran_since_is_unknowable():
    ran = {"source": "state.db", "schedule_id": "c", "is_enabled": True, "trigger_type": "cron",
           "cadence_s": 3600.0, "n_runs": 3, "last_executed_at": ago(hours=1),
           "last_executed_status": "completed"}  # fmt: skip
    given = dataclasses.replace(
        facts([{"entity_type": "schedule", "entity_id": "c", "raw_status": "enabled",
                "created_at": ago(days=2), "updated_at": ago(days=2)}]),
        details={"lionagi_schedules": frame("lionagi_schedules", [ran])},
    )  # fmt: skip
    assert answers(given, detectors=["E1"])["schedule_overdue"]["fires"] is False
    then = answers(given, at=ago(hours=5), detectors=["E1"])["schedule_overdue"]
    assert (then["is_knowable"], then["fires"]) == (False, None)


@pytest.mark.slow
def test_the_future_does_not_change_the_past(demo):
    """Whatever happens after the instant, the answers stay, where they are known."""
    at = datetime.fromisoformat("2026-05-21T12:00:00+00:00")
    later = pl.col("at") > at

    def moved(name, by):
        return pl.when(pl.col(name) > at).then(pl.col(name) + by).otherwise(name)

    written_later = pl.when(pl.col("updated_at") > at)
    entities = demo.entities.with_columns(
        raw_status=written_later.then(pl.lit("failed")).otherwise("raw_status"),
        process_alive=pl.lit(value=False),
        last_message_at=moved("last_message_at", timedelta(hours=1)),
        ended_at=moved("ended_at", -timedelta(microseconds=1)),
    )
    events = demo.events.filter(~later | (pl.int_range(pl.len()) % 3 > 0))
    changed = changed_facts(demo, events=events, entities=entities)
    key = ["entity_type", "entity_id", "detector"]
    keep = [*key, "covered", "fires", "label", "measured_s"]
    sessions = [one for one in chosen_detectors(None) if one.entity_types == ("session",)
                and one.system == "lionagi"]  # fmt: skip
    before, after = (
        sa.detectors.detect(given, at=at, detectors=sessions)
        .rows.filter("is_knowable")
        .select(keep)
        for given in (demo, changed)
    )
    both = before.join(after.select(key), on=key, how="semi")
    assert both.height > 0.9 * before.height
    assert both.sort(key).equals(after.join(before.select(key), on=key, how="semi").sort(key))


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("2026-01-01", "Nothing had started at"),
        ("2030-01-01", "is later, and nothing is known"),
        ("noon", "at"),
    ],
)
def test_an_instant_outside_the_data_says_where_they_are(demo, at, words):
    with pytest.raises(ArgumentError, match=words):
        sa.detectors.detect(demo, at=at)


def test_as_of_itself_loses_nothing(demo):
    past = facts_at(demo, demo.as_of)
    assert not past.lost.select(pl.any_horizontal(pl.all())).to_series().any()


# --- the registry's rules are those that the oracles prove -----------------------------


def read_oracle(path):
    return pl.read_csv(path, infer_schema=False)


def test_the_classifiers_are_the_ones_that_the_oracle_proves(oracles):
    from tests.oracles import HEALTH_VERSIONS, number, words, yes

    rows = read_oracle(oracles / "lionagi" / "oracle_health_versions.csv")
    ages = ("last_message_age_s", "updated_age_s", "started_age_s")
    signs = rows.select(
        *words("status", "invocation_kind"),
        number("message_count"),
        *(pl.when(pl.col(age) != "0").then(number(age)).alias(age) for age in ages),
        *(yes(name).alias(name) for name in ("process_alive", "has_artifacts", "has_stale_locks")),
    )
    of_version = {
        "0.26.1": "health_0_26", "2026-07-04a": "health_2026_07_04", "0.28": "health_0_28",
        "0.29.1": "health_0_29", "0.36": "health_0_36",
    }  # fmt: skip
    assert set(of_version) == set(VERSIONS)
    for column, version in HEALTH_VERSIONS.items():
        detector = named(of_version[version])
        assert detector.classify(signs, detector.threshold_s).equals(
            rows[column].alias("session_health")
        ), column


def test_the_schedule_detector_is_the_one_that_the_oracle_proves(oracles):
    from tests.oracles import ADAPTERS

    name = "lionagi/oracle_schedule_health_0.36.csv"
    rows = read_oracle(oracles / name)
    word = ADAPTERS[name](rows)["health_state"]
    assert word.equals(rows["health_state"])
    signs = pl.DataFrame({"schedule_health": word}).with_columns(
        source=pl.lit("s"), system=pl.lit("lionagi"), entity_type=pl.lit("schedule"),
        entity_id=pl.lit("e"), session_id=pl.lit("e"), kind=pl.lit(None, pl.String),
    )  # fmt: skip
    found = in_words(truths(signs, [named("schedule_unwell")]), at=AS_OF)
    unwell = ("overdue", "failing", "never-fired", "no-evidence")
    assert found["fires"].fill_null(value=False).equals(word.is_in(unwell).alias("fires"))


def test_the_report_watchers_are_the_ones_that_the_oracle_proves(oracles):
    path = oracles / "agent-orchestrator" / "oracle_report_watcher.csv"
    rows = read_oracle(path)
    age = {name: pl.col(f"{name}_age_ms").cast(pl.Float64) / 1000 for name in ("created", "report")}
    signs = rows.with_row_index("n").select(
        "status", "kind", "report_state", created_age_s=age["created"], report_age_s=age["report"],
        source=pl.lit("s"), system=pl.lit("agent_orchestrator"), entity_type=pl.lit("session"),
        entity_id=pl.col("n").cast(pl.String).str.zfill(6), session_id=pl.lit("s"),
        generation=pl.lit("G2"),
    )  # fmt: skip
    for trigger in ("no_acknowledge", "stale_report", "agent_needs_input"):
        found = in_words(truths(signs, [named(f"ao_{trigger}")]), at=AS_OF).sort("entity_id")
        expected = (rows["trigger"] == trigger).fill_null(value=False)
        assert found["fires"].fill_null(value=False).equals(expected.alias("fires")), trigger


def activities(rows, word):
    """The agent's last word and its age, as detectors read them."""
    return rows.with_row_index("n").select(
        source=pl.lit("s"), system=pl.lit("agent_orchestrator"), entity_type=pl.lit("session"),
        entity_id=pl.col("n").cast(pl.String).str.zfill(6), session_id=pl.lit("s"),
        kind=pl.lit("worker"), status=pl.lit("working"), generation=pl.lit("G2"), activity=word,
        activity_age_s=pl.col("age_ms").cast(pl.Float64, strict=False) / 1000,
    )  # fmt: skip


def fired(rows, word, name):
    found = in_words(truths(activities(rows, word), [named(name)]), at=AS_OF).sort("entity_id")
    return found["fires"].to_list()


def test_stale_activity_is_the_freshness_that_the_oracle_proves(oracles):
    path = oracles / "agent-orchestrator" / "oracle_activity_signal.csv"
    rows = read_oracle(path).filter(pl.col("kind") == "detected")
    assert rows.height > 20
    stale = (rows["freshness"] == "stale").to_list()
    assert fired(rows, "activity", "ao_activity_stale") == stale


def test_idleness_is_the_ladder_that_the_oracle_proves(oracles):
    path = oracles / "agent-orchestrator" / "oracle_activity_log.csv"
    rows = read_oracle(path).filter(pl.col("fallback_state").is_not_null())
    for name, states in (
        ("ao_activity_idle", ["active", "ready"]),
        ("ao_call_decayed", ["waiting_input", "blocked"]),
    ):
        some = rows.filter(pl.col("entry_state").is_in(states))
        assert fired(some, "entry_state", name) == (some["fallback_state"] == "idle").to_list()


@pytest.mark.slow
def test_signs_of_a_store_are_judged_by_the_same_classifier(lionagi_samples):
    snap = sa.read(lionagi_samples / "0.36.0" / "state.db", as_of=1779840000)
    signs = features_of(facts_at(snap), "lionagi", sa.states(snap)).filter(entity_type="session")
    unjudged = signs.drop("session_health", strict=False)
    judged = classify_session_health_by_age(unjudged, version="0.36")
    assert judged["session_health"].equals(signs["health_0_36"].alias("session_health"))


@cache
def detected(sample):
    """A sample, and what every detector says of it."""
    snap = sa.read(sample)
    return snap, sa.detectors.detect(snap, detectors="all").rows


@pytest.mark.slow
@pytest.mark.parametrize("store", a_few(["agent_orchestrator", "opencode"]))
def test_every_system_is_replayed_now_and_then(shared, store):
    path = f"{store}/v2_20260717" if store == "opencode" else "agent-orchestrator/v3_json_final_ts"
    snap, now = detected(shared / "samples" / path)
    assert set(now["system"]) == {store}
    assert now["fires"].sum() > 0
    then = sa.detectors.detect(snap, at=snap.events["at"].median()).rows
    unknowable = then.filter(~pl.col("is_knowable"))
    assert unknowable["fires"].null_count() == unknowable.height
    assert then["at"].max() < snap.as_of


def test_agent_orchestrators_sample_is_flagged_as_its_scenario_says(shared):
    _, now = detected(shared / "samples" / "agent-orchestrator" / "v3_json_final_ts")
    flagged = now.filter("fires")
    of = {name: set(part["entity_id"]) for (name,), part in flagged.group_by("detector")}
    assert of["ao_detecting_budget"] == {"app-4"}
    assert of["ao_no_acknowledge"] == {"app-7"}
    assert of["ao_agent_needs_input"] == {"app-9"}
    assert of["ao_idle_stuck"] == {"app-12", "app-orchestrator"}
    assert of["ao_blocked_stuck"] == {"app-13"}
    assert of["ao_is_terminal"] == {"app-4"}
    assert "app-8" in of["ao_stale_report"]


def test_an_empty_detail_is_no_obstacle():
    """Facts made by hand have no frames of one system only."""
    given = facts([{**session(), "system": "opencode", "entity_type": "execution"},
                   {**session("t"), "system": "agent_orchestrator"}])  # fmt: skip
    found = sa.detectors.detect(given, detectors="all").rows
    assert {"opencode_stalled", "ao_idle_stuck"} <= set(found["detector"])

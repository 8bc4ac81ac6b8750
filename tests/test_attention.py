"""The attention list: who is on it, why, how it is grouped, and what operators decided."""

from datetime import timedelta

import polars as pl
import pytest

from stateanalytics.core import schema
from stateanalytics.core.facts import changed_facts
from stateanalytics.queries import attention_and_excluded, grouped_items
from stateanalytics.state import reasons as reasons_rule
from stateanalytics.state import states as states_rule
from stateanalytics.state.attention import ATTENTION, attention_items, with_item_id
from stateanalytics.state.policy import Policy
from stateanalytics.state.reasons import REGISTRY
from stateanalytics.systems import reading as sources
from tests.frames import AS_OF, ago, facts, frame

SOURCE = {"source": "state.db", "system": "lionagi"}
FAILED = {"severity": "critical", "tone": "danger", "severity_rule": 1}


def entity(entity_id="a", entity_type="session", **columns):
    failed = {"raw_status": "failed", "reason_code": "run.failed.exception"}
    own = {"entity_type": entity_type, "entity_id": entity_id, "ended_at": ago(hours=1)}
    return {**own, **failed, **columns}


def given(entities, *, transitions=(), dispositions=()):
    plain = facts(entities, transitions=[{**SOURCE, **row} for row in transitions])
    decided = frame("lionagi_dispositions", [{"source": "state.db", **row} for row in dispositions])
    return changed_facts(plain, details={"lionagi_dispositions": decided})


def states(entities, judged):
    keys = [{name: row[name] for name in ("entity_type", "entity_id")} for row in entities]
    own = {**SOURCE, "is_legacy": False, **FAILED}
    return frame("states", [{**own, **key, **judged.get(key["entity_id"], {})} for key in keys])


def reason(entity_id, code, order=0, dimension="lifecycle", entity_type="session"):
    whose = {**SOURCE, "entity_type": entity_type, "entity_id": entity_id}
    why = {"dimension": dimension, "code": code, "message": f"because {code}"}
    return {**whose, "order": order, **why}


def listed(*entities, judged=None, reasons=None, with_discharged=False, policy=None, **frames):
    rows = list(entities) or [entity()]
    why = reasons or [
        reason(row["entity_id"], row["reason_code"], entity_type=row["entity_type"])
        for row in rows
        if row["reason_code"]
    ]
    return attention_items(
        given(rows, **frames),
        states(rows, judged or {}),
        frame("reasons", why),
        with_discharged=with_discharged,
        policy=policy,
    )


def test_a_failed_session_is_on_the_list_with_its_reason():
    row = listed().row(0, named=True)
    assert (row["item_id"], row["disposition"]) == ("run:a", "open")
    assert row["fingerprint"] == "session:a:run.failed.exception"
    assert row["message"] == "because run.failed.exception"


MILD = [{"severity": severity} for severity in ("info", "neutral", None)]


@pytest.mark.parametrize("judged", [*MILD, {"is_legacy": True}])
def test_what_is_mild_or_legacy_is_not_on_it(judged):
    assert listed(judged={"a": judged}).height == 0


def test_a_branch_only_repeats_its_session():
    assert listed(entity(entity_type="branch")).height == 0


def test_the_reason_is_that_of_the_axis_that_made_it_severe():
    reasons = [
        reason("a", "run.started.ok"),
        reason("a", "run.health.stalled", 1, "health"),
        reason("a", "run.delivery.missing", 2, "delivery"),
    ]
    codes = {4: "run.health.stalled", 3: "run.delivery.missing", 1: "run.started.ok"}
    for rule, code in codes.items():
        judged = {"a": {"severity_rule": rule}}
        assert listed(judged=judged, reasons=reasons)["code"].to_list() == [code]


def test_rules_of_an_own_policy_say_their_axis_too():
    reasons = [reason("a", "run.started.ok"), reason("a", "play.health.blocked", 1, "health")]
    judged = {"a": {"severity": "warning", "tone": "warning", "severity_rule": 15}}
    found = listed(judged=judged, reasons=reasons, policy=Policy.operator())
    assert found["code"].to_list() == ["play.health.blocked"]


def test_blocked_work_says_what_blocks_it():
    known = reason("a", "play.health.blocked", 1, "health")
    judged = {"a": {"severity": "warning", "tone": "warning", "severity_rule": 15,
                    "health": "blocked"}}  # fmt: skip
    for reasons in ([reason("a", "play.blocked.dependency_failed"), known], [known]):
        found = listed(judged=judged, reasons=reasons, policy=Policy.operator())
        assert found["code"].to_list() == [reasons[0]["code"]]


def test_an_item_without_any_reason_is_still_listed():
    row = listed(entity(reason_code=None)).row(0, named=True)
    assert row["code"] == "unknown"
    assert row["fingerprint"] == "session:a:unknown"


def test_most_severe_first_then_most_recent():
    rows = [
        entity("old", ended_at=ago(days=2)),
        entity("mild", ended_at=ago(minutes=1)),
        entity("new", ended_at=ago(hours=2)),
        entity("never", ended_at=None),
    ]
    judged = {"mild": {"severity": "warning", "tone": "warning"}}
    found = listed(*rows, judged=judged)
    assert found["entity_id"].to_list() == ["new", "old", "never", "mild"]
    assert found.equals(listed(*reversed(rows), judged=judged))


def test_one_cause_with_one_reason_is_one_cluster():
    rows = [
        entity("a", invocation_id="i"),
        entity("b", invocation_id="i"),
        entity("c", invocation_id="j"),
        entity("d"),
        entity("e", invocation_id="i", reason_code="run.failed.exit_nonzero"),
    ]
    found = listed(*rows).sort("entity_id")
    exceptions = [f"run.failed.exception:{cause}" for cause in "iijd"]
    assert found["cluster"].to_list() == [*exceptions, "run.failed.exit_nonzero:i"]
    assert found["n_in_cluster"].to_list() == [2, 2, 1, 1, 1]
    assert found["n_causes"].to_list() == [3, 3, 3, 3, 1]


def test_every_type_has_its_item_id():
    rows = [
        entity("a"),
        entity("b", "invocation"),
        entity("c", "schedule"),
        entity("w", "show", name="topic"),
        entity("p", "play", parent_id="w", name="build"),
        entity("q", "play", parent_id="gone", name="build"),
        entity("t", "team"),
    ]
    found = with_item_id(given(rows).entities)["item_id"].to_list()
    assert found == ["run:a", "inv:b", "sched:c", "show:w", "play:topic:build", "play:q", "team:t"]


def decided(state="snoozed", **columns):
    of = {"item_id": "run:a", "source_status": "failed", "actor": "ana"}
    return {**of, "state": state, "updated_at": ago(minutes=30), **columns}


def moved(status, code, at, seq=0):
    of = {"entity_type": "session", "entity_id": "a"}
    return {**of, "at": at, "seq": seq, "status": status, "reason_code": code}


END = moved("failed", "run.failed.exception", ago(hours=1))


@pytest.mark.parametrize("state", ["acknowledged", "resolved", "expected", "snoozed"])
def test_a_decision_takes_an_item_off_the_list(state):
    assert listed(dispositions=[decided(state)], transitions=[END]).height == 0
    known = {"dispositions": [decided(state, note="known")], "transitions": [END]}
    row = listed(**known, with_discharged=True).row(0, named=True)
    assert (row["disposition"], row["note"], row["actor"]) == (state, "known", "ana")


def test_a_snooze_ends_when_it_expires():
    later = decided(expires_at=AS_OF + timedelta(seconds=1))
    assert listed(dispositions=[later], transitions=[END]).height == 0
    now = decided(expires_at=AS_OF)
    row = listed(dispositions=[now], transitions=[END]).row(0, named=True)
    assert (row["disposition"], row["reopened_because"]) == ("open", "expired")


def test_a_new_reason_reopens_a_snoozed_item():
    again = moved("failed", "run.failed.exit_nonzero", ago(minutes=5), 1)
    failed = entity(reason_code="run.failed.exit_nonzero")
    found = listed(failed, dispositions=[decided()], transitions=[END, again])
    row = found.row(0, named=True)
    assert row["reopened_because"] == "new reason"
    assert row["fingerprint"] == "session:a:run.failed.exit_nonzero"


def test_the_same_reason_again_reopens_only_what_was_resolved():
    again = [
        moved("running", "session.reopened.by_resume", ago(minutes=10), 1),
        moved("failed", "run.failed.exception", ago(minutes=5), 2),
    ]
    assert listed(dispositions=[decided()], transitions=[END, *again]).height == 0
    row = listed(dispositions=[decided("resolved")], transitions=[END, *again]).row(0, named=True)
    assert row["reopened_because"] == "happened again"


def test_without_history_the_status_of_then_decides():
    assert listed(dispositions=[decided()]).height == 0
    moved_on = decided(source_status="running")
    assert listed(dispositions=[moved_on])["reopened_because"].to_list() == ["new reason"]
    pages_word = decided(source_status="stuck")
    assert listed(dispositions=[pages_word]).height == 0


def test_a_decision_about_another_store_does_not_count():
    rows = given([entity()])
    other = frame("lionagi_dispositions", [{"source": "b.db", **decided()}])
    elsewhere = changed_facts(rows, details={"lionagi_dispositions": other})
    why = frame("reasons", [reason("a", "run.failed.exception")])
    assert attention_items(elsewhere, states([entity()], {}), why).height == 1


def test_a_withdrawn_decision_and_one_given_twice():
    assert listed(dispositions=[decided("open")], transitions=[END]).height == 1
    twice = [decided("resolved", updated_at=ago(minutes=40)), decided("snoozed")]
    row = listed(dispositions=twice, transitions=[END], with_discharged=True).row(0, named=True)
    assert row["disposition"] == "snoozed"


def test_all_null_columns_are_fine():
    rows = given([entity(reason_code=None, ended_at=None, raw_status=None)])
    judged = states([entity()], {"a": {"severity_rule": None}})
    found = attention_items(rows, judged, schema.REASONS.empty())
    assert found["since_at"].to_list() == [None]
    assert isinstance(found["severity"].dtype, pl.Enum)


def test_a_real_store_lists_every_type_with_known_reasons(lionagi_samples):
    read = sources.read_facts([lionagi_samples / "0.36.0" / "state.db"])[0]
    judged, why = states_rule.states(read), reasons_rule.reasons(read)
    found = attention_items(read, judged, why, with_discharged=True)
    assert set(found["code"]) - set(REGISTRY) == {"unknown"}
    assert {"session", "play", "show", "invocation", "schedule"} <= set(found["entity_type"])
    assert found["fingerprint"].is_unique().all()
    snoozed = found.filter(pl.col("disposition") != "open")
    assert snoozed.select("disposition", "code").rows() == [("snoozed", "run.failed.exception")]
    assert attention_items(read, judged, why).height == found.height - 1


def test_what_somebody_stopped_stands_apart_from_what_failed_and_what_is_open():
    rows = [entity("open"), entity("failed"), entity("stopped")]
    judged = {
        "open": {"lifecycle": "running", "is_terminal": False},
        "failed": {"lifecycle": "failed", "outcome": "failed", "is_terminal": True},
        "stopped": {"lifecycle": "aborted", "outcome": "aborted", "is_terminal": True},
    }
    items = attention_items(given(rows), states(rows, judged), schema.REASONS.empty())
    standing = dict(items.select("entity_id", "standing").iter_rows())
    assert standing == {"open": "open", "failed": "ended", "stopped": "stopped"}


def test_what_is_severe_and_not_listed_is_counted_with_its_reason():
    failed = {"raw_status": "failed", "ended_at": ago(hours=1)}
    of = {"entity_type": "branch", "session_id": "s", "parent_type": "session", "parent_id": "s"}
    snap = facts([{"entity_id": "s", **failed}, {"entity_id": "b", **of, **failed}])
    items, excluded = attention_and_excluded(snap)
    assert items["entity_id"].to_list() == ["s"]
    assert excluded.rows() == [("branch", "reported by another row", 1)]
    early, excluded = attention_and_excluded(snap, window=(ago(days=3), ago(days=2)))
    assert early.is_empty()
    assert excluded.rows() == [
        ("session", "not counted in the window", 1),
        ("branch", "reported by another row", 1),
    ]


def test_items_that_ask_the_same_are_one_row_and_what_can_be_helped_is_first():
    said = "no answer after 3s (request 0b5e7c1a-9d9c-4b1e-8f4a-1d2c3b4a5f60)"
    other = said.replace("0b5e7c1a", "ffffffff").replace("3s", "42s")
    rows = [
        ("a", "session", "ended", said, 3), ("b", "session", "ended", other, 2),
        ("c", "session", "ended", "exit 1", 1), ("g", "session", "ended", "exit 137", 4),
        # What ended with a session, and for its cause, goes with it.
        ("c", "invocation", "ended", "1 of 1 sessions failed", 0),
        ("d", "session", "open", said, 2), ("e", "session", "open", said, 5),
        ("e", "invocation", "open", None, 1), ("f", "session", "stopped", said, 0),
    ]  # fmt: skip
    listed = [
        {"entity_type": entity_type, "entity_id": name, "item_id": f"{entity_type}:{name}",
         "cluster": f"code:{name}", "standing": standing, "message": message,
         "severity": "critical", "since_at": ago(hours=hours)}
        for name, entity_type, standing, message, hours in rows
    ]  # fmt: skip
    items = ATTENTION.conform(pl.DataFrame(listed))
    told = grouped_items(items)
    counts = [("e", 2), ("d", 1), ("c", 2), ("b", 2), ("g", 1), ("f", 1)]
    assert told.select("entity_id", "n").rows() == counts
    assert told["item_id"][0] == "session:e"  # silent for longest
    for seed in range(3):
        assert grouped_items(items.sample(fraction=1, shuffle=True, seed=seed)).equals(told)
    assert told["n"].sum() == items.height
    assert grouped_items(items.clear()).is_empty()

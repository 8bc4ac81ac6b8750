"""Agent Orchestrator's three axes in the words of the normalized state."""

from typing import Any

import polars as pl
import pytest

from stateanalytics.core.schema import CLAIM_STATUSES, DELIVERIES, HEALTHS, LIFECYCLES, OUTCOMES
from stateanalytics.state.health import derive_severity
from stateanalytics.systems.agent_orchestrator.mapping import (
    AXES,
    GO_MEANINGS,
    LEGACY_MEANINGS,
    LEGACY_STATUSES,
    PULL_REQUEST_STATUSES,
    SESSION_MEANINGS,
    SESSION_REASONS,
    go_status,
    map_axes,
    map_go_words,
    map_legacy_words,
    words_of,
)
from stateanalytics.systems.agent_orchestrator.meaning import (
    find_traps,
    list_reasons,
    reattribute_ends,
)

NONE = ("none", "not_created")
ALIVE = ("alive", "process_running")
GONE = ("exited", "process_missing")


def mapped(*rows: tuple[str | None, ...]) -> pl.DataFrame:
    schema = dict.fromkeys(AXES, pl.String)
    return map_axes(pl.DataFrame(list(rows), schema=schema, orient="row"))


@pytest.mark.parametrize(
    ("session", "pull_request", "runtime", "state"),
    [
        ("working task_in_progress", NONE, ALIVE, "running running - info"),
        ("working fixing_ci", ("open", "ci_failing"), ALIVE, "running running invalid warning"),
        ("idle awaiting_external_review", ("open", "merge_ready"), ALIVE,
         "running ok passed neutral"),
        ("needs_input awaiting_user_input", NONE, ALIVE, "running idle - warning"),
        ("stuck probe_failure", NONE, ALIVE, "running stalled - critical"),
        ("detecting agent_process_exited", NONE, GONE, "running disconnected - warning"),
        ("terminated manually_killed", NONE, GONE, "cancelled ok not_expected neutral"),
        ("terminated runtime_lost", NONE, GONE, "aborted process_dead missing critical"),
        ("terminated runtime_lost", ("merged", "merged"), GONE, "completed ok passed neutral"),
        ("terminated auto_cleanup", NONE, ALIVE, "aborted orphaned missing critical"),
        ("idle research_complete", NONE, ALIVE, "completed ok not_expected neutral"),
    ],
)  # fmt: skip
def test_common_cases_are_as_severe_as_they_should_be(session, pull_request, runtime, state):
    row = derive_severity(mapped((*session.split(), *pull_request, *runtime)))
    words = row.select("lifecycle", "health", "delivery", "severity").row(0)
    assert " ".join(word or "-" for word in words) == state


def test_no_sessions_map_to_no_rows() -> None:
    assert mapped().height == 0
    assert list_reasons(mapped().with_columns(id=pl.lit("")), key=["id"]).height == 0


def test_every_pair_of_words_maps_to_words_of_the_model() -> None:
    pairs = [
        (state, reason, "none", "not_created", "unknown", "spawn_incomplete")
        for state in words_of("session_state")
        for reason in SESSION_REASONS
    ]
    frame = mapped(*pairs)
    assert set(frame["lifecycle"]) <= set(LIFECYCLES)
    assert set(frame["outcome"].drop_nulls()) <= set(OUTCOMES)
    assert set(frame["health"]) <= set(HEALTHS)
    assert set(frame["delivery"].drop_nulls()) <= set(DELIVERIES)
    odd = frame.filter(pl.col("reason_codes").str.contains("pair_unreachable"))
    assert odd.height == len(pairs) - len(SESSION_MEANINGS)


def test_unknown_words_stay_visible() -> None:
    frame = mapped(
        ("idle", "new_word", *NONE, *ALIVE),
        ("paused", "resting", *NONE, *ALIVE),
        (None, None, None, None, None, None),
    )
    assert frame["lifecycle"].to_list() == ["running", "unknown", "unknown"]
    assert frame["reason_codes"].str.contains("reason_unrecognized").to_list() == [True] * 3


def test_reasons_are_rows_with_a_claim_and_its_strength() -> None:
    frame = mapped(
        ("working", "task_in_progress", *NONE, *ALIVE),
        ("working", "task_in_progress", *NONE, *ALIVE),
        ("terminated", "manually_killed", "open", "approved", *GONE),
        ("idle", "new_word", *NONE, *ALIVE),
    ).with_columns(
        id=pl.Series(["guess", "seen", "made up", "odd"]),
        evidence=pl.Series(["activity_signal=null", "agent_report:working", None, None]),
        is_synthesized=pl.Series([False, False, True, False]),
    )
    reasons = list_reasons(frame, key=["id"])
    assert reasons.select("id", "order", "dimension", "claim_status", "confidence").rows() == [
        ("guess", 0, "lifecycle", "inferred", 0.6),
        ("seen", 0, "lifecycle", "observed", 1.0),
        ("made up", 0, "lifecycle", "inferred", 0.5),
        ("made up", 1, "delivery", "observed", 1.0),
        ("made up", 2, "delivery", "observed", 1.0),
        ("odd", 0, "lifecycle", "inferred", 0.4),
    ]
    assert set(reasons["claim_status"]) <= set(CLAIM_STATUSES)
    assert reasons["message"].null_count() == 0


def test_each_code_of_a_session_is_a_reason_however_many_it_has() -> None:
    codes = [f"run.health.cleanup_{number}" for number in range(9)]
    reasons = list_reasons(pl.DataFrame({"id": "a", "reason_codes": ", ".join(codes)}), key=["id"])
    assert reasons["code"].to_list() == codes
    assert reasons["order"].to_list() == list(range(9))


def test_every_legacy_word_has_a_meaning() -> None:
    assert set(LEGACY_MEANINGS) == set(LEGACY_STATUSES)
    words = pl.DataFrame({"status": [*LEGACY_STATUSES, "odd", None]})
    frame = map_legacy_words(words.with_columns(has_pr=pl.lit(value=False)))
    assert frame["lifecycle"].to_list()[-2:] == ["unknown", "unknown"]
    assert frame["reason_codes"].str.contains("synthesized").to_list()[:-1] == [True] * 19
    assert set(frame["health"]) <= set(HEALTHS)


def test_a_killed_word_is_only_half_believed() -> None:
    row = map_legacy_words(pl.DataFrame({"status": ["killed"], "has_pr": [False]}))
    assert row.select("lifecycle", "confidence").row(0) == ("aborted", 0.4)
    assert row["reason_codes"].item().startswith("run.aborted.killed_unspecified")


def test_go_words_are_words_of_the_model() -> None:
    frame = map_go_words(pl.DataFrame({"status": list(GO_MEANINGS)}))
    assert set(frame["lifecycle"]) <= set(LIFECYCLES)
    assert frame.filter(status="merged")["outcome"].item() == "merged"


def test_every_status_of_the_go_rewrite_has_a_meaning() -> None:
    of_sessions = {"merged", "terminated", "working", "exited", "needs_input", "no_signal", "idle"}
    assert {*of_sessions, *PULL_REQUEST_STATUSES} == set(GO_MEANINGS)


def go_session(**facts: Any) -> str:
    usual = {"is_terminated": False, "activity_state": "idle", "has_merged_pr": False}
    row = {**usual, "worst_pr_status": None, **facts}
    frame = pl.DataFrame([row], schema_overrides={"worst_pr_status": pl.String})
    return frame.select(go_status()).item()


def test_the_go_rewrite_derives_its_status_in_order() -> None:
    assert go_session() == "idle"
    assert go_session(activity_state="dreaming") == "dreaming"
    assert go_session(activity_state=None, is_terminated=None, has_merged_pr=None) == "idle"
    assert go_session(has_merged_pr=True) == "merged"
    assert go_session(has_merged_pr=True, worst_pr_status="draft") == "draft"
    assert go_session(worst_pr_status="draft", activity_state="blocked") == "needs_input"
    assert go_session(activity_state="active", worst_pr_status="ci_failed") == "working"
    assert go_session(is_terminated=True, activity_state="active") == "terminated"
    assert go_session(is_terminated=True, has_merged_pr=True) == "merged"


# --- traps -----------------------------------------------------------------------------

RECORD = {
    "session_state": "working",
    "session_reason": "task_in_progress",
    "runtime_state": "alive",
    "legacy_status": "working",
    "stored_status": "working",
    "detecting_attempts": 0,
    "created_age_s": 3600.0,
    "terminated_age_s": None,
    "restored_age_s": None,
    "transition_age_s": 10.0,
}
AGES = {name: pl.Float64 for name in RECORD if name.endswith("_age_s")}
LOST = {"session_state": "terminated", "session_reason": "runtime_lost", "runtime_state": "exited"}
LOST |= {"legacy_status": "killed", "stored_status": "killed", "terminated_age_s": 25.0}
POLLED = LOST | {"transition_age_s": 25.0}


def traps_of(**facts: Any) -> set[str]:
    frame = pl.DataFrame([RECORD | facts], schema_overrides=AGES)
    found = find_traps(frame).select(pl.exclude(*RECORD)).row(0, named=True)
    return {name for name, holds in found.items() if holds}


@pytest.mark.parametrize(
    ("facts", "traps"),
    [
        pytest.param({}, set(), id="a sound record"),
        pytest.param({"stored_status": "pr_open"}, {"is_status_stale"}, id="a stale word"),
        pytest.param(LOST, {"is_kill_doubtful"}, id="a kill written over"),
        pytest.param(POLLED, set(), id="lost at that very poll"),
        pytest.param(POLLED | {"created_age_s": 60.0}, {"is_spawn_race"}, id="in its first minute"),
        pytest.param(
            POLLED | {"stored_status": "stuck", "detecting_attempts": 4},
            {"is_status_stale", "is_flickering"},
            id="two writers",
        ),
        pytest.param(
            POLLED | {"restored_age_s": 20.0},
            {"looks_ended_after_restore"},
            id="restored, and says ended",
        ),
        pytest.param({"terminated_age_s": 99.0}, {"has_stale_end"}, id="alive with an end"),
        pytest.param({"runtime_state": "missing"}, {"is_zombie"}, id="a zombie"),
    ],
)
def test_each_trap_is_found_and_nothing_else(facts: dict[str, Any], traps: set[str]) -> None:
    assert traps_of(**facts) == traps


@pytest.mark.parametrize(
    ("facts", "state", "reason", "why"),
    [
        ({}, "terminated", "runtime_lost", None),
        ({"has_kill_event": True}, "terminated", "manually_killed", "killed_by_event"),
        ({"stored_status": "stuck", "detecting_attempts": 4}, "stuck", "probe_failure", "flicker"),
        ({"stored_status": "detecting", "detecting_attempts": 2}, "detecting", "runtime_lost",
         "flicker"),
    ],
)  # fmt: skip
def test_an_end_is_given_back_to_who_caused_it(facts, state: str, reason: str, why) -> None:
    row = RECORD | LOST | {"has_kill_event": False} | facts
    frame = pl.DataFrame([row], schema_overrides=AGES)
    after = reattribute_ends(find_traps(frame)).row(0, named=True)
    assert (after["session_state"], after["session_reason"]) == (state, reason)
    assert after["reattribution"] == why


# MAPPING.md, section 1: every pair that is written.
PAIRS = {
    (state, reason): (
        *(lifecycle, None if outcome == "-" else outcome, health),
        *(f"run.{code}", claim, float(n)),
    )
    for state, reason, lifecycle, outcome, health, code, claim, n in map(
        str.split,
        """
not_started spawn_requested pending - unknown pending.spawn_requested observed 1.0
working agent_acknowledged running - running running.agent_acknowledged observed 1.0
working task_in_progress running - running running.task_in_progress inferred 0.6
working fixing_ci running - running running.fixing_ci inferred 0.7
working resolving_review_comments running - running running.resolving_review_comments inferred 0.7
needs_input awaiting_user_input running - idle health.awaiting_user_input observed 1.0
idle pr_created running - ok running.pr_created observed 1.0
idle awaiting_external_review running - ok running.awaiting_external_review observed 1.0
idle pr_closed_waiting_decision running - ok running.pr_closed_waiting_decision observed 1.0
idle merged_waiting_decision completed merged ok completed.merged_waiting_decision observed 1.0
idle research_complete completed completed ok completed.agent_declared observed 0.8
stuck probe_failure running - stalled health.stalled inferred 0.7
stuck error_in_process running - stalled health.stalled_error inferred 0.8
detecting probe_failure running - degraded health.probe_inconclusive hypothesis 0.5
detecting runtime_lost running - disconnected health.runtime_unconfirmed hypothesis 0.5
detecting agent_process_exited running - disconnected health.process_exit_unconfirmed hypothesis 0.5
done research_complete completed completed ok completed.done observed 1.0
terminated manually_killed cancelled cancelled ok cancelled.manually_killed observed 1.0
terminated pr_merged completed merged ok completed.pr_merged_cleanup observed 1.0
terminated auto_cleanup aborted aborted ok aborted.auto_cleanup observed 1.0
terminated runtime_lost aborted aborted ok aborted.runtime_lost inferred 0.6
terminated agent_process_exited aborted aborted ok aborted.agent_process_exited observed 0.9
terminated probe_failure failed failed ok failed.probe_failure inferred 0.6
terminated error_in_process failed failed ok failed.error_in_process observed 0.9
""".strip().splitlines(),
    )
}


@pytest.mark.parametrize("pair", sorted(SESSION_MEANINGS.keys() | PAIRS), ids=" ".join)
def test_every_pair_that_is_written_means_what_the_mapping_says(pair: tuple[str, str]) -> None:
    frame = mapped((*pair, *NONE, "unknown", "spawn_incomplete")).with_columns(id=pl.lit("s"))
    lifecycle, outcome, _, code, claim, confidence = PAIRS[pair]
    row = frame.row(0, named=True)
    assert (row["lifecycle"], row["outcome"]) == (lifecycle, outcome)
    reason = list_reasons(frame, key=["id"]).filter(code=code).row(0, named=True)
    assert (reason["claim_status"], reason["confidence"]) == (claim, confidence)
    assert SESSION_MEANINGS[pair].health == PAIRS[pair][2]


@pytest.mark.parametrize(
    ("state", "lifecycle", "outcome", "health"),
    [
        ("not_started", "pending", None, "unknown"),
        ("working", "running", None, "running"),
        ("idle", "running", None, "ok"),
        ("needs_input", "running", None, "idle"),
        ("stuck", "running", None, "stalled"),
        ("detecting", "running", None, "disconnected"),
        ("done", "completed", "completed", "ok"),
        ("terminated", "aborted", "aborted", "ok"),
    ],
)
def test_a_pair_that_is_never_written_is_mapped_by_its_state(state, lifecycle, outcome, health):
    reasons = ("migrated_from_archive", "a word of tomorrow", None)
    gone = mapped(*((state, one, *NONE, "unknown", "spawn_incomplete") for one in reasons))
    alive = mapped(*((state, one, *NONE, *ALIVE) for one in reasons))
    for row in gone.to_dicts():
        assert (row["lifecycle"], row["outcome"]) == (lifecycle, outcome)
        assert "run.lifecycle.reason_unrecognized" in row["reason_codes"]
    # A process that runs on after the end is the one thing that outweighs the state,
    # and one that was only asked for is seen to be there.
    seen = "orphaned" if outcome else "ok" if state == "not_started" else health
    assert alive["health"].to_list() == [seen] * len(reasons)

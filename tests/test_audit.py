"""The audit finds what contradicts itself, and nothing else."""

import csv
import re
from datetime import timedelta

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.auditing import (
    CHECKS,
    CODES,
    as_findings,
    audit,
    count_transitions,
    outside_vocabulary,
)
from stateanalytics.core import schema
from stateanalytics.core.audit import audit_rows, word
from stateanalytics.core.facts import changed_facts
from stateanalytics.core.windows import read_window
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.material import Material
from stateanalytics.reporting.sections.audit import VERDICTS, summarize_audit
from stateanalytics.sql.tables import tables_of
from stateanalytics.systems import all_systems
from stateanalytics.systems.lionagi.transitions import VERDICTS as OF_CHANGES
from stateanalytics.systems.opencode import frames as opencode_frames
from tests.conftest import ROOT
from tests.examples import a_few
from tests.frames import AS_OF, WHOSE, ago, facts

pytestmark = pytest.mark.usefixtures("read_once")

AN_HOUR_AGO = ago(hours=1)
STARTED = {"started_at": ago(hours=2), "created_at": ago(hours=2)}
ENDED = {**STARTED, "raw_status": "completed", "ended_at": ago(hours=1)}


def codes(*entities, **frames):
    """Codes that the audit gives, in its order, without the prefix."""
    found = audit(facts(list(entities), **frames))
    return [code.removeprefix("audit.") for code in found["code"]]


def session(identity="s", **columns):
    return {"entity_id": identity, **ENDED, **columns}


def change(previous, status, *, at=AN_HOUR_AGO, entity_id="s", **columns):
    return {
        **WHOSE, "entity_id": entity_id, "at": at, "seq": 1,
        "previous_status": previous, "status": status, **columns,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("entity_type", "is_odd"), [("session", True), ("play", False), ("tool_call", False)]
)
def test_plays_and_calls_are_judged_after_their_process_has_ended(entity_type, is_odd):
    failed = session(entity_type=entity_type, raw_status="failed", exit_code=0)
    assert ("exit_code_differs" in codes(failed)) == is_odd


def test_what_agrees_with_itself_makes_no_row():
    running = {"entity_id": "r", **STARTED, "raw_status": "running", "last_activity_at": AS_OF}
    history = [change(None, "running", at=ago(hours=2)), change("running", "completed")]
    assert codes(session(), {**running, "n_messages": 3}, transitions=history) == []


OPEN = {"raw_status": "running", "n_messages": 2}
CONTRADICTIONS = [
    pytest.param({"ended_at": None}, "end_missing", id="over without an end"),
    pytest.param({"ended_at": ago(hours=3)}, "end_before_start", id="end before start"),
    pytest.param({**OPEN, "last_activity_at": AS_OF}, "end_while_open", id="running with an end"),
    pytest.param({"stored_duration_s": 3602.0}, "duration_differs", id="another duration"),
    pytest.param({"stored_duration_s": 3601.1}, "duration_differs", id="over a second more"),
    pytest.param({"stored_duration_s": 3598.9}, "duration_differs", id="over a second less"),
    pytest.param(
        {**OPEN, "ended_at": None, "started_at": ago(days=2), "last_activity_at": ago(hours=30)},
        "open_without_sign_of_life", id="silent for thirty hours",
    ),
    pytest.param(
        {"raw_status": "failed", "reason_code": "run.failed.missing_artifact",
         "verdict": "passed", "n_required_missing": 0},
        "verdict_contradicts_reason", id="failed for what the verdict found",
    ),
    pytest.param(
        {"verdict": "failed", "n_required_missing": 1, "reason_code": "run.completed.ok"},
        "verdict_contradicts_reason", id="completed without what was required",
    ),
    pytest.param(
        {"verdict": "passed", "n_required_missing": 2},
        "verdict_contradicts_counts", id="a verdict against its own list",
    ),
    pytest.param(
        {"reason_code": "play.merged.ok"}, "reason_of_other_entity", id="a foreign reason"
    ),
]  # fmt: skip


EXPLAINED = [
    pytest.param({"stored_duration_s": 3600.9}, id="within a second"),
    pytest.param({"stored_duration_s": 3599.0}, id="a second less, to the digit"),
    pytest.param({"raw_status": None, "ended_at": None}, id="no status"),
    pytest.param({"raw_status": "done", "ended_at": None}, id="an unknown status"),
    pytest.param({"raw_status": "timed_out", "verdict": "failed", "n_required_missing": 1,
                  "reason_code": "run.timed_out.deadline"}, id="out of time, so nothing made"),
    pytest.param({"raw_status": "running", "ended_at": None, "started_at": ago(seconds=5),
                  "process_alive": False, "n_messages": 0}, id="five seconds old"),
    pytest.param({"reason_code": "legacy.imported"}, id="an imported row"),
]  # fmt: skip


@pytest.fixture(scope="module")
def told():
    """Codes of each of these cases, every one a session of its own."""
    cases = (*CONTRADICTIONS, *EXPLAINED)
    found = audit(facts([session(case.id, **case.values[0]) for case in cases]))
    assert set(found["entity_id"]) <= {case.id for case in cases}
    return {
        case.id: [code.removeprefix("audit.") for code in found.filter(entity_id=case.id)["code"]]
        for case in cases
    }


@pytest.mark.parametrize(
    ("case", "code"), [pytest.param(one.id, one.values[1], id=one.id) for one in CONTRADICTIONS]
)
def test_a_contradiction_of_one_row(told, case, code):
    assert told[case] == [code]


@pytest.mark.parametrize("case", [one.id for one in EXPLAINED])
def test_what_is_not_known_or_explained_contradicts_nothing(told, case):
    assert told[case] == []


@pytest.mark.parametrize(
    ("before", "after", "at", "more", "code"),
    [
        pytest.param("failed", "completed", AS_OF, {}, ["transition_illegal_before_0_28"], id="x"),
        pytest.param("running", "pending", AS_OF, {}, ["transition_unknown_status"], id="a word"),
        pytest.param("running", "running", AS_OF, {}, [], id="the same again"),
        pytest.param(
            "timed_out", "completed", AS_OF, {"reason_code": "session.reopened.by_resume"},
            ["transition_override"], id="with a justification",
        ),
    ],
)  # fmt: skip
def test_a_change_is_held_against_its_graph(before, after, at, more, code):
    known = {"running", "completed"} >= {after}
    row = session(raw_status=after if known else "completed", ended_at=ago(minutes=1))
    if after == "running":
        row |= {"ended_at": None, "last_activity_at": AS_OF, "n_messages": 1}
    found = codes(row, transitions=[change(before, after, at=at, **more)])
    assert [one for one in found if one != "status_differs_from_history"] == code


def test_an_illegal_change_of_today_is_a_warning():
    late = AS_OF + timedelta(days=90)
    row = session(started_at=late, ended_at=late, last_activity_at=late)
    changes = [change("failed", "completed", at=late)]
    found = audit(facts([row], as_of=late, transitions=changes)).row(0, named=True)
    assert (found["code"], found["severity"]) == ("audit.transition_illegal", "warning")
    assert found["says"] == "went from 'failed' to 'completed'"
    assert found["at"] == late


def test_a_history_is_held_against_itself_and_against_the_row():
    gap = [change(None, "running", at=ago(hours=2)), change("completed", "failed")]
    found = audit(facts([session()], transitions=gap))
    told = {row["code"]: (row["says"], row["against"]) for row in found.iter_rows(named=True)}
    assert told["audit.history_gap"] == (
        "a change from 'completed' to 'failed'",
        "the change before it ended in 'running'",
    )
    assert told["audit.status_differs_from_history"] == (
        "its row says 'completed'",
        "its history ended in 'failed'",
    )


def test_changes_of_entities_with_one_id_are_apart():
    """Their changes alternate in time; each history alone has no gap."""
    words = [(None, "running"), ("running", "completed")]
    changes = [
        change(before, after, at=ago(hours=2 - place, minutes=minutes), **own)
        for place, (before, after) in enumerate(words)
        for minutes, own in ((0, {}), (1, {"entity_type": "invocation"}), (2, {"source": "b"}))
    ]
    rows = [session(), session(entity_type="invocation"), session(source="b")]
    given = facts(rows, transitions=changes)
    assert not audit(given).filter(code="audit.history_gap").height
    changes[-1]["previous_status"] = "pending"
    found = audit(facts(rows, transitions=changes)).filter(code="audit.history_gap")
    assert found["source"].to_list() == ["b"]


def test_ties_of_time_are_broken_by_the_order_of_writing():
    history = [change("running", "completed", seq=2), change(None, "running", seq=1)]
    assert codes(session(), transitions=history) == []


INVOCATION = {"entity_type": "invocation", "entity_id": "i", **STARTED}


def request(*statuses, status="completed", ended_at=AN_HOUR_AGO):
    children = [
        session(str(place), invocation_id="i", raw_status=one, created_at=ago(minutes=90 - place))
        for place, one in enumerate(statuses)
    ]
    return codes({**INVOCATION, "raw_status": status, "ended_at": ended_at}, *children)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parent", "children", "code"),
    [
        pytest.param("completed", ("completed", "completed"), [], id="all good"),
        pytest.param("failed", ("failed", "cancelled"), ["rollups_disagree"], id="three answers"),
        pytest.param("completed", ("failed",), ["parent_contradicts_children"], id="too good"),
        pytest.param("aborted", ("completed",), ["parent_contradicts_children"], id="too bad"),
        pytest.param("completed", (None,), [], id="a child of which nothing is known"),
    ],
)
def test_a_request_is_held_against_its_sessions(parent, children, code):
    assert request(*children, status=parent) == code


def test_the_answers_of_all_three_rules_are_told():
    children = [session("a", invocation_id="i", raw_status="failed"),
                session("b", invocation_id="i", raw_status="cancelled")]  # fmt: skip
    parent = {**INVOCATION, "raw_status": "failed", "ended_at": ago(hours=1)}
    assert audit(facts([parent, *children]))["against"].to_list() == [
        "scheduler 'failed', run view 'cancelled', li lifecycle 'cancelled', worst 'failed'"
    ]


def test_a_parent_and_its_children_end_together():
    running = {"raw_status": "running", "ended_at": None, "last_activity_at": AS_OF,
               "n_messages": 1}  # fmt: skip
    over = {**INVOCATION, "raw_status": "completed", "ended_at": ago(hours=1)}
    early = codes(over, session("a", invocation_id="i", **running))
    assert early == ["parent_ended_before_children"]
    still_open = {**INVOCATION, "raw_status": "running", "n_children": 1}
    ended = session("a", invocation_id="i", ended_at=ago(hours=1.5))
    assert codes(still_open, ended) == ["parent_open_after_children"]
    just_ended = session("a", invocation_id="i", ended_at=ago(minutes=5))
    assert codes(still_open, just_ended) == []


def test_a_command_may_have_no_session():
    empty = {**INVOCATION, "raw_status": "running", "n_children": 0}
    assert codes(empty) == ["open_without_sign_of_life"]
    assert codes({**empty, "kind": "command"}) == []


@pytest.mark.parametrize(
    ("process_alive", "words"), [(False, "its process was checked"), (None, "silent for so long")]
)
def test_only_a_process_that_was_checked_is_said_to_be(process_alive, words):
    dead = session(**OPEN, ended_at=None, recorded_health="process_dead")
    found = audit(facts([dead | {"process_alive": process_alive}]))
    assert found["against"].to_list()[0].startswith(words)


def test_a_policy_says_what_silence_is():
    quiet = session(**OPEN, ended_at=None, last_activity_at=ago(hours=1.5))
    assert codes(quiet) == []
    strict = sa.Policy.v1().replace(stalled_after_default_s=3600.0)
    found = audit(facts([quiet]), policy=strict)["code"].to_list()
    assert found == ["audit.open_without_sign_of_life"]


def test_little_or_nothing_can_be_audited():
    assert audit(facts([])).is_empty()
    assert codes({"entity_id": None}) == []
    assert audit(facts([session(ended_at=None)] * 2)).height == 1


def test_every_code_is_made_by_a_check_and_can_be_acted_on():
    assert len(CHECKS) == len(set(CHECKS))
    for code in CODES.values():
        assert re.fullmatch(r"audit\.[a-z0-9_]+", code.code)
        assert code.severity in ("warning", "info")
        assert code.message
        assert code.what_to_do
    package = ROOT / "stateanalytics"
    folders = ("auditing/*.py", "systems/*/*.py")
    modules = [path for folder in folders for path in package.glob(folder)]
    sources = "".join(path.read_text("utf-8") for path in modules)
    assert [code for code in CODES if f'"{code}"' not in sources] == []


def test_what_to_do_is_said_in_the_commands_of_the_system():
    began = dict.fromkeys(("started_at", "created_at", "last_activity_at"), ago(days=9))
    quiet = {**began, "kind": "agent", "raw_status": "running", "n_messages": 1}
    systems = ("lionagi", "agent_orchestrator", "opencode")
    rows = [{"entity_id": name, "system": name, **quiet} for name in systems]
    found = audit(facts(rows)).filter(code="audit.open_without_sign_of_life")
    advice = dict(found.select("system", "what_to_do").rows())
    assert advice["lionagi"].endswith("let the reaper close it, or `li kill ID`")
    assert advice["agent_orchestrator"].endswith("`ao session kill ID`")
    assert advice["opencode"] == CODES["audit.open_without_sign_of_life"].what_to_do


def test_systems_advise_on_codes_that_there_are():
    assert {code for known in all_systems() for code in known.auditing().advice} <= {*CODES}


def test_words_that_the_adr_does_not_list_are_reported_and_kept():
    rows = [
        {"entity_id": "s1", "raw_status": "failed", "has_stale_locks": True},
        {"entity_type": "show", "entity_id": "w1", "raw_status": "aborted"},
        {"entity_id": "s2", "raw_status": "failed"},
        {"entity_id": "s3", "raw_status": None},
    ]
    found = outside_vocabulary(sa.states(facts(rows)))
    assert found.schema == schema.FINDINGS.dtypes
    assert found.select("entity_type", "column", "example", "n_rows").rows() == [
        ("session", "health", "degraded", 1),
        ("show", "lifecycle", "aborted", 1),
    ]


def test_stored_axes_that_differ_are_told():
    stored = {"stored_health": "stalled", "stored_delivery": "missing"}
    reason = {"reason_code": "run.failed.exception"}
    told = {"stored_reason_codes": '["run.failed.exception"]'}
    rows = [
        {"entity_id": "s1", "raw_status": "failed", "stored_health": "ok"},
        {"entity_id": "s2", "raw_status": "failed", **reason, **stored, **told},
        {"entity_id": "s3", "raw_status": "running", "stored_reason_codes": "[]"},
    ]
    given = facts(rows)
    found = audit(given).filter(code="audit.stored_differs")
    assert found.select("entity_id", "says", "against").rows() == [
        ("s2", "stored delivery missing", "recomputed not_expected"),
        ("s2", "stored health stalled", "recomputed ok"),
    ]


def test_words_outside_of_the_adr_are_among_the_findings():
    locked = session(raw_status="failed", has_stale_locks=True)
    tables = tables_of(facts([locked]), ())
    found = tables["findings"].load()
    assert found.select("code", "example").rows() == [("state.health_outside_adr", "degraded")]


def test_hostile_text_stays_text():
    word = "\x1b[31m</script>" + "x" * 1_000_000
    found = audit(facts([session(raw_status=word)], transitions=[change("running", "completed")]))
    assert found["says"].str.len_chars().max() < 300


def test_what_is_no_policy_is_refused():
    with pytest.raises(ArgumentError, match=r"policy needs a Policy"):
        audit(facts([]), policy="v1")


@pytest.mark.slow
def test_sql_has_it_by_itself_and_within_findings(demo):
    snap = demo
    found = sa.audit(snap)
    assert snap.sql("FROM audit").height == found.height
    within = snap.sql("SELECT * FROM findings WHERE code LIKE 'audit.%'")
    assert within.height == found.height
    assert within["entity_id"].null_count() == 0
    assert as_findings(found)["example"].str.contains("; but ").all()
    assert snap.findings.filter(pl.col("code").str.starts_with("audit.")).is_empty()


def test_legal_changes_are_counted_though_they_make_no_row(demo):
    counts = count_transitions(demo)
    legal = counts.filter(entity_type="session", verdict="legal")["n"].item()
    assert legal > 300
    assert counts["n"].sum() == demo.transitions.filter(system="lionagi").height


# --- the real stores ----------------------------------------------------------------------

SILENT = "open_without_sign_of_life"
# Scenario (of scenarios.csv) -> the contradictions that it is made of. Nothing else may be
# found in any store; what a release could not store is found from the release that could.
TRUTH = {
    "agent_quiet_6h_1s": {SILENT},
    "agent_quiet_6h_1s_unknown": {SILENT},
    "flow_quiet_12h_1s": {SILENT},
    "play_quiet_7h": {SILENT},
    "nokind_quiet_7h": {SILENT},
    "running_foreign_host": {SILENT},
    "raw_running_no_times": {SILENT},
    "inv_zero_sessions_40h": {SILENT},
    "srun_stuck_running_30h": {SILENT},
    "play_frontend": {SILENT},
    "play_redo": {SILENT},
    "play_rc": {SILENT},
    "raw_end_before_start": {"end_before_start"},
    "raw_no_end": {"end_missing"},
    "raw_ms_epoch": {"end_missing"},
    "raw_running_with_end": {"end_while_open"},
    "show_1161": {"parent_open_after_children"},
    "play_one": {"end_before_start"},
    "play_two": {"end_before_start"},
}
"""What every release's store holds, from 0.26.12 on."""


ILLEGAL = {"transition_illegal"}
SKIPPED = {"srun_skipped_missed": ILLEGAL, "srun_skipped_overlap": ILLEGAL}
# Releases that refused these ends left the sessions running, silent for nine hours.
UNFINISHED = {"completed_finalize_error": {SILENT}, "completed_gate_rejected": {SILENT}}
OLD = {**UNFINISHED, **SKIPPED, "failed_exception": {"transition_illegal_before_0_28"}}
IMPORTED = {"end_before_start", "status_differs_from_history"}
SINCE_0_29 = {
    **SKIPPED,
    "srun_budget": ILLEGAL,
    "srun_deferred_capacity": ILLEGAL,
    "play_one": IMPORTED,
    "play_two": IMPORTED,
}
CHANGED = {
    "0.26.0": {},
    "0.26.12": OLD,
    # The migration repaired the end that was missing.
    "migrated-0.26.12-to-0.36.0": {**OLD, "raw_no_end": set()},
    "0.29.1": {**SINCE_0_29, **UNFINISHED},
    "0.36.0": {
        **SINCE_0_29,
        "reopened": {"transition_override"},
        "raw_future": {"duration_differs"},
    },
}
"""What is otherwise in some release: histories began with 0.26.5, first rows with 0.28."""


def scenarios(folder):
    with (folder / "scenarios.csv").open(encoding="utf-8") as file:
        return {row["scenario"]: row["entity_id"] for row in csv.DictReader(file)}


@pytest.mark.slow
@pytest.mark.parametrize("release", a_few([*CHANGED][::-1]))
def test_every_contradiction_of_a_real_store_is_found_and_none_is_invented(
    lionagi_samples, release
):
    folder = lionagi_samples / release
    named = scenarios(folder)
    found = audit(sa.read(folder / "state.db", as_of=AS_OF, progress=False))
    told = {
        (row["entity_id"], row["code"].removeprefix("audit."))
        for row in found.iter_rows(named=True)
    }
    truth = {
        (named[scenario], code)
        for scenario, codes in {**TRUTH, **CHANGED[release]}.items()
        for code in codes
        if scenario in named
    }
    by_id = {identity: scenario for scenario, identity in named.items()}
    assert {(by_id.get(one), code) for one, code in told - truth} == set(), "invented"
    assert {(by_id.get(one), code) for one, code in truth - told} == set(), "missed"


def test_the_real_home_contradicts_itself_where_a_process_was_killed(lionagi_samples):
    home = lionagi_samples / "organic-0.36.0" / "lionagi_home"
    found = audit(sa.read(home / "state.db", progress=False))
    assert found.select("code", "says", "against").rows() == [
        ("audit.parent_ended_before_children", "show 'aborted'", "1 of 1 plays not over"),
        (
            "audit.run_file_differs",
            "the store says 'cancelled'",
            "run.json of '20261120T235707-30765c' says 'running'",
        ),
    ]


ODD = {
    ("unknown_status", "status_differs_from_history"),
    ("show_disk_differs", "open_without_sign_of_life"),
    ("show_disk_differs", "parent_open_after_children"),
    ("show_disk_differs", "disk_differs"),
    ("schedule_run_silent", "open_without_sign_of_life"),
    ("running_unseen", "open_without_sign_of_life"),
    ("running_silent", "open_without_sign_of_life"),
    ("invocation_running", "open_without_sign_of_life"),
    ("no_end", "end_missing"),
    ("end_before_start", "end_before_start"),
    ("mirrored_back", "end_while_open"),
    ("mirrored_back", "transition_override"),
    ("resumed_after_timeout", "transition_override"),
    ("show_aborted", "parent_contradicts_children"),
    ("show_aborted", "parent_ended_before_children"),
    ("show_aborted", "reason_of_other_entity"),
    ("show_blocked", "parent_open_after_children"),
    ("phantom_reaped", "run_file_differs"),
    ("unknown_reason_code", "reason_unknown"),
}


def test_the_sample_week_is_told_as_it_was_meant(demo):
    """Scenarios of truth.csv; nothing of the ordinary week contradicts itself."""
    truth = pl.read_csv(ROOT / "data/samples/truth.csv", infer_schema=False)
    found = sa.audit(demo).join(
        truth.select("entity_type", "entity_id", "scenario", "health"),
        on=["entity_type", "entity_id"],
        how="left",
    )
    told = found.with_columns(pl.col("code").str.strip_prefix("audit."))
    assert set(told.select("scenario", "code").rows()) == ODD
    quiet = truth.filter(pl.col("health").is_in(["stalled", "process_dead", "orphaned"]))
    silent = told.filter(code=SILENT).filter(pl.col("entity_type") != "invocation")
    assert sorted(silent["entity_id"]) == sorted(quiet["entity_id"])


def test_records_of_agent_orchestrator_are_held_against_their_logs():
    snap = sa.read(ROOT / "data/samples/agent_orchestrator", progress=False)
    told = set(sa.audit(snap).select("entity_id", "code").rows())
    assert ("app-11", "audit.status_differs_from_history") in told
    assert ("app-1", "audit.record_contradicts_itself") in told
    assert ("app-4", "audit.open_without_sign_of_life") in told


def audited_execution(**columns):
    row = {"source": "o", "session_id": "s", "exec_no": 1, "entity_id": "s:execution:1", **columns}
    detail = opencode_frames.EXECUTIONS.conform(pl.DataFrame([row]))
    return audit(changed_facts(facts([]), details={"opencode_executions": detail}))


def test_executions_of_opencode_that_ended_twice_are_contradictions():
    found = audited_execution(
        outcome="succeeded", n_terminals=2, first_outcome="failed", is_blocked=True
    )
    assert found.select("code", "against").rows() == [
        ("audit.success_was_blocked", "the provider's content filter stopped it"),
        ("audit.ended_twice", "2 ends were written, the first says 'failed'"),
    ]


@pytest.mark.parametrize(
    ("outcome", "is_blocked", "codes"),
    [
        pytest.param("succeeded", True, ["audit.success_was_blocked"], id="blocked"),
        pytest.param("succeeded", False, [], id="a plain success"),
        pytest.param("succeeded", None, [], id="nobody knows"),
        pytest.param("failed", True, [], id="blocked, and recorded as failed"),
    ],
)
def test_only_a_success_that_was_blocked_is_a_contradiction(outcome, is_blocked, codes):
    found = audited_execution(
        outcome=outcome, n_terminals=1, first_outcome=outcome, is_blocked=is_blocked
    )
    assert found["code"].to_list() == codes


def test_the_report_counts_contradictions_with_examples(demo):
    material = Material.of(demo, read_window("2026-W21", as_of=demo.as_of), sa.Policy.v1())
    section = summarize_audit(material)
    found = sa.audit(demo)
    assert section["n"] == found.height == sum(one["n"] for one in section["codes"])
    assert section["finding"].startswith("23 contradictions and 6 explained exceptions in ")
    missing = next(one for one in section["codes"] if one["code"] == "audit.end_missing")
    assert (missing["n"], len(missing["examples"]), missing["n_not_shown"]) == (3, 3, 0)
    assert "override" in section["transitions"]["columns"]
    assert tuple(VERDICTS) == OF_CHANGES


def test_the_command_lists_contradictions(capsys):
    from stateanalytics.cli import run

    store = str(ROOT / "data/samples/state.db")
    asked = ["attention", store, "--show", "audit", "--severity", "warning", "--format", "json"]
    assert run(asked) == 0
    out = capsys.readouterr().out
    assert '"audit.end_before_start"' in out
    assert '"audit.transition_override"' not in out


def test_the_page_lists_every_code():
    page = (ROOT / "docs" / "audit.md").read_text("utf-8")
    for code in CODES.values():
        assert f"| `{code.code}` | {code.severity} | {code.message} | {code.what_to_do} |" in page


def test_words_of_the_change_before_are_said_whatever_pieces_a_frame_is_of() -> None:
    key = dict.fromkeys(schema.ENTITY_KEY, "a")
    changes = pl.DataFrame({"status": ["running", "failed", "running"], **key})
    pieces = changes.with_columns(before=pl.col("status").shift(1)).drop_nulls("before")
    rows = audit_rows(pieces, "audit.history_gap", says=word("status"), against=word("before"))
    assert rows["against"].to_list() == ["'running'", "'failed'"]

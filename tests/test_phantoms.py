"""The preview of what reapers would close, and each rule at its exact boundary."""

from dataclasses import replace

import polars as pl
import pytest

from stateanalytics.core import schema
from stateanalytics.core.facts import changed_facts
from stateanalytics.state.policy import Policy
from stateanalytics.state.reasons import REGISTRY
from stateanalytics.state.states import states
from stateanalytics.systems import reading as sources
from stateanalytics.systems.lionagi.audits import phantoms, reapers, with_phantom_reason
from stateanalytics.systems.lionagi.transitions import KNOWN
from tests.frames import AS_OF, ago, facts, frame

NO_TERMINAL = "system.health.process_dead_no_terminal"

HOUR = 3600
OLD = {"created_at": ago(days=9), "started_at": ago(days=9), "updated_at": ago(days=9)}
FRESH = {"created_at": ago(minutes=1), "started_at": ago(minutes=1), "updated_at": ago(minutes=1)}


def entity(entity_type="session", raw_status="running", entity_id="a", **columns):
    named = {"entity_type": entity_type, "entity_id": entity_id, "raw_status": raw_status}
    return {**named, **FRESH, **columns}


def states_of(given, judged):
    """Plain states: not terminal, nothing wrong, except those of ``judged``, by id."""
    rows = [
        {
            **{name: row[name] for name in ("source", "system", "entity_type", "entity_id")},
            "health": "ok",
            "is_terminal": False,
            "is_legacy": False,
            "age_s": (AS_OF - row["started_at"]).total_seconds() if row["started_at"] else None,
            **judged.get(row["entity_id"], {}),
        }
        for row in given.entities.iter_rows(named=True)
    ]
    return frame("states", rows)


def preview(*entities, judged=None, shows=(), **options):
    given = facts(list(entities))
    disk = frame("lionagi_shows_on_disk", [{"source": "state.db", **row} for row in shows])
    given = changed_facts(given, details={"lionagi_shows_on_disk": disk})
    return phantoms(given, states_of(given, judged or {}), **options)


def closed(*entities, **options):
    """Reaper to (status, reason) of the preview."""
    found = preview(*entities, **options).select("reaper", "target_status", "reason_code")
    return {row[0]: row[1:] for row in found.rows()}


def aged(seconds):
    return ago(seconds=seconds)


LIMITS = [
    # What reaps what, just before its limit and at it.
    ("phantom_session", "session", {"updated_at": aged(3599)}, False),
    ("phantom_session", "session", {"updated_at": aged(3600)}, True),
    ("doctor", "session", {"started_at": aged(86400)}, False),
    ("doctor", "session", {"started_at": aged(86401)}, True),
    ("doctor", "session", {"started_at": None}, True),
    ("kill_stale", "session", {"started_at": aged(3599)}, False),
    ("kill_stale", "session", {"started_at": aged(3600)}, True),
    ("invocation_deadline", "invocation", {"started_at": aged(7200), "n_children": 3}, False),
    ("invocation_deadline", "invocation", {"started_at": aged(7201), "n_children": 3}, True),
    ("zero_session_invocation", "invocation", {"updated_at": aged(300), "n_children": 0}, False),
    ("zero_session_invocation", "invocation", {"updated_at": aged(301), "n_children": 0}, True),
    ("zero_session_invocation", "invocation", {"updated_at": aged(301), "n_children": None}, True),
    ("zero_session_invocation", "invocation", {"updated_at": aged(301), "n_children": 1}, False),
    ("zero_session_invocation", "invocation",
     {"updated_at": aged(301), "n_children": 0, "kind": "command"}, False),
    ("stale_schedule_run", "schedule_run", {"updated_at": aged(86400), "parent_id": "s"}, False),
    ("stale_schedule_run", "schedule_run", {"updated_at": aged(86401), "parent_id": "s"}, True),
    ("stale_schedule_run", "schedule_run", {"updated_at": aged(86401), "parent_id": None}, False),
    *(("stale_play", "play", {"raw_status": word, "updated_at": aged(6 * HOUR - 1)}, False)
      for word in ("running", "running_complete", "prepared", "redoing")),
    *(("stale_play", "play", {"raw_status": word, **OLD}, False)
      for word in ("gated", "pending", "merged")),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("reaper", "entity_type", "columns", "is_closed"), LIMITS)
def test_each_reaper_fires_exactly_at_its_limit(reaper, entity_type, columns, is_closed):
    assert (reaper in closed(entity(entity_type, **columns))) is is_closed
    assert closed(entity()) == {}, "what is fresh is left alone"


@pytest.mark.parametrize("status", ["running", "running_complete", "prepared", "redoing"])
def test_a_play_at_rest_for_six_hours_is_blocked(status):
    at_limit = entity("play", status, updated_at=aged(6 * HOUR))
    assert closed(at_limit)["stale_play"] == ("blocked", "run.cancelled.stale_auto")


@pytest.mark.parametrize(
    ("columns", "end"),
    [
        ({"agent": "claude-code"}, ("completed", "run.completed.ok")),
        ({"has_stale_locks": True}, ("failed", "session.zombie.stale_locks")),
    ],
)
def test_what_is_known_of_a_phantom_changes_its_end(columns, end):
    assert closed(entity(**OLD, **columns))["phantom_session"] == end


def test_a_quiet_session_of_unknown_liveness_is_closed_by_several_rules_that_disagree():
    found = preview(entity(**OLD))
    ends = {"phantom_session": "failed", "doctor": "aborted", "kill_stale": "cancelled"}
    assert found.select("reaper", "target_status").rows() == list(ends.items())
    assert found["has_dispute"].all()
    assert found["n_reapers"].to_list() == [3, 3, 3]
    assert not found["is_certain"].any()


def test_a_session_that_is_alive_is_never_a_phantom():
    assert closed(entity(**OLD, process_alive=True)) == {}


def test_a_dead_process_is_certain():
    assert preview(entity(**OLD, process_alive=False))["is_certain"].all()


def test_a_session_without_a_status_is_closed_as_failed():
    failed = {"null_status": ("failed", "run.failed.exception")}
    assert closed(entity(raw_status=None, **OLD)) == failed
    assert closed(entity(raw_status=None)) == {}
    assert closed(entity(raw_status="", **OLD)) == {}


def test_never_written_moments_count_as_infinitely_old():
    row = entity(created_at=None, started_at=None, updated_at=None)
    assert set(closed(row)) == {"phantom_session", "doctor", "kill_stale"}
    assert preview(row)["age_s"].to_list() == [None, None, None]


def test_the_deadline_takes_an_invocation_before_the_empty_rule_does():
    found = closed(entity("invocation", **OLD, n_children=0))
    assert "zero_session_invocation" not in found
    assert found["invocation_deadline"] == ("timed_out", "run.timed_out.deadline")


def test_a_play_whose_session_is_alive_is_left_alone():
    work = entity(entity_id="s", process_alive=True, **OLD)
    play = entity("play", entity_id="p", session_id="s", **OLD)
    assert closed(work, play) == {}


def test_a_running_play_whose_session_ended_is_swept_by_kill():
    work = entity(raw_status="completed", entity_id="s")
    play = entity("play", entity_id="p", session_id="s", started_at=aged(HOUR))
    assert closed(work, play)["kill_stale_play"] == ("blocked", "run.cancelled.stale_auto")
    unlinked = entity("play", entity_id="p", session_id="gone", started_at=aged(HOUR))
    assert "kill_stale_play" not in closed(unlinked)


MERGED = {"play": "p", "disk_status": "merged"}


@pytest.mark.parametrize(
    ("disk", "expected"),
    [
        ([{"play": None, "has_abort_sentinel": True}], ("aborted", "show.aborted.operator")),
        ([{"play": None, "is_show_passed": True}], ("completed", "show.completed.final_gate")),
        ([{"play": None}, MERGED], ("completed", "show.completed.all_plays_merged")),
        ([{"play": None}, MERGED, {"play": "q", "disk_status": "gated"}], None),
        ([{"play": None}], None),
        ([], None),
    ],
)
def test_a_stale_show_ends_as_its_directory_says(disk, expected):
    show = entity("show", "active", name="topic", updated_at=aged(6 * HOUR))
    shows = [{"topic": "topic", **row} for row in disk]
    assert closed(show, shows=shows).get("stale_show") == expected


def test_a_show_is_swept_once_all_its_plays_ended():
    show = entity("show", "active", entity_id="w", **OLD)
    merged = entity("play", "merged", entity_id="p", parent_id="w")
    waiting = entity("play", "gated", entity_id="q", parent_id="w")
    assert closed(show, merged)["kill_stale_show"] == ("aborted", "run.cancelled.stale_auto")
    assert "kill_stale_show" not in closed(show, merged, waiting)
    assert "kill_stale_show" not in closed(show)


def test_adr0033_closes_dead_and_orphaned_work_past_the_threshold():
    judged = {"a": {"health": "orphaned", "age_s": 3601.0}}
    assert closed(entity(), judged=judged) == {"phantom_reconciliation": ("aborted", NO_TERMINAL)}
    for change in ({"age_s": 3600.0}, {"health": "stalled"}, {"is_terminal": True}):
        assert closed(entity(), judged={"a": judged["a"] | change}) == {}


def test_adr0033s_threshold_is_the_policys():
    judged = {"a": {"health": "process_dead", "age_s": 700.0}}
    policy = Policy.v1().replace(phantom_after_s=600)
    assert "phantom_reconciliation" in closed(entity(), judged=judged, policy=policy)
    assert closed(entity(), judged=judged) == {}


def test_adr0033_ends_at_once_what_a_watchdog_saw_die():
    found = closed(entity(process_alive=False))
    assert found == {"terminal_enforcement": ("aborted", NO_TERMINAL)}
    ended = entity(raw_status="failed", process_alive=False)
    assert closed(ended, judged={"a": {"is_terminal": True}}) == {}


def test_sessions_of_other_systems_are_never_closed_by_lionagis_reapers():
    other = entity(raw_status=None, entity_id="b", system="agent_orchestrator", **OLD)
    judged = {"b": {"health": "process_dead", "age_s": 9e9}}
    assert preview(other, judged=judged).is_empty()
    assert closed(entity(raw_status=None, **OLD), other, judged=judged)


def test_every_reaper_writes_a_known_reason_and_a_word_of_the_vocabulary():
    rows = preview(
        entity(**OLD),
        entity(raw_status=None, entity_id="b", **OLD),
        entity("invocation", entity_id="c", **OLD),
        entity("play", entity_id="d", **OLD),
        entity("schedule_run", entity_id="e", parent_id="s", **OLD),
        judged={"a": {"health": "orphaned"}},
    )
    assert set(rows["reason_code"]) <= set(REGISTRY)
    for row in rows.iter_rows(named=True):
        assert row["target_status"] in KNOWN[row["entity_type"]]


def test_the_preview_has_its_documented_shape_and_order():
    rows = [entity(entity_id=name, **OLD) for name in ("c", "a", "b")]
    found = preview(*rows)
    assert found.schema == schema.PHANTOMS.dtypes
    assert found["entity_id"].to_list() == [name for name in "abc" for _ in range(3)]
    assert found.equals(preview(*reversed(rows)))


def test_nothing_to_see_is_an_empty_preview():
    assert preview().schema == schema.PHANTOMS.dtypes
    assert len({reaper.name for reaper in reapers()}) == len(reapers())


MATRIX = {
    "phantom_session": "phantom_gate_3600_0.36_port",
    "doctor": "state_doctor_24h_0.36_port",
    "kill_stale": "kill_all_stale_3600_0.36_port",
    "null_status": "null_status_reaper_3600_port",
}


@pytest.mark.slow
def test_real_sessions_are_closed_by_the_rules_that_lionagi_closes_them_by(shared, lionagi_samples):
    matrix = pl.read_csv(
        shared / "oracles" / "lionagi" / "oracle_detector_matrix_0.36.csv", infer_schema=False
    )
    store = lionagi_samples / "0.36.0" / "state.db"
    read, _ = sources.read_facts([store], as_of=AS_OF)
    # What was seen on the machine then, and no store holds.
    alive = {"true": True, "false": False}
    observed = matrix.select(
        entity_id="session_id",
        alive=pl.col("process_alive").replace_strict(alive, default=None, return_dtype=pl.Boolean),
        locks=pl.col("has_stale_locks") == "1",
    )
    entities = (
        read.entities.join(observed, on="entity_id", how="left", maintain_order="left")
        .with_columns(process_alive="alive", has_stale_locks="locks")
        .drop("alive", "locks")
    )
    there = replace(read, entities=entities)
    found = phantoms(there, states(there)).filter(pl.col("entity_type") == "session")
    # Facts do not hold the host; lionagi leaves other machines alone.
    elsewhere = set(matrix.filter(pl.col("scenario") == "running_foreign_host")["session_id"])
    for reaper, column in MATRIX.items():
        mine = set(found.filter(pl.col("reaper") == reaper)["entity_id"]) - elsewhere
        theirs = set(matrix.filter(pl.col(column) == "true")["session_id"])
        assert theirs, column
        assert mine == theirs, reaper


REASONS = pl.DataFrame(
    {
        "updated_age_s": [None, 3600.0, 3599.0, 1e6, 1e6, 1e6, 1e6],
        "process_alive": [None, False, None, True, None, None, None],
        "has_stale_locks": [None, None, None, None, True, True, None],
        "is_foreign": [None, None, None, None, None, None, True],
        "is_artifacts_gone": [None, None, None, None, None, True, None],
        "expected": [
            *("process_dead", "process_dead", None, None),
            *("stale_lock", "missing_artifacts", None),
        ],
    }
)


def test_each_reason_of_a_phantom_comes_before_the_next():
    found = with_phantom_reason(REASONS)["phantom_reason"]
    assert found.to_list() == REASONS["expected"].to_list()


def test_the_limit_may_be_a_column():
    rows = REASONS.with_columns(limit_s=pl.lit(1e9))
    found = with_phantom_reason(rows, stale_s=pl.col("limit_s"))["phantom_reason"]
    assert found.to_list() == ["process_dead", *[None] * 6]

"""Agent Orchestrator's sessions get ADR-0033's states, by the mapping's own table."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core import schema
from tests.ao_trees import lifecycle, record, write_events, write_flat, write_json, write_lines
from tests.examples import a_few
from tests.test_observations import store_at

AXES = ("session_state", "session_reason", "pr_state", "pr_reason", "runtime_state")
AXES += ("runtime_reason",)
STATE = ("lifecycle", "outcome", "health", "delivery", "severity", "tone")
AS_OF = datetime(2026, 5, 4, 10, tzinfo=UTC)


def snapshot(*paths: Path) -> sa.Snapshot:
    return sa.read(*paths, as_of=AS_OF, progress=False)


def states_of(*paths: Path) -> dict[str, dict]:
    with snapshot(*paths) as snap:
        return {row["entity_id"]: row for row in sa.states(snap).to_dicts()}


@pytest.fixture(scope="module")
def table(oracles: Path) -> dict[tuple, dict]:
    """The recommended mapping: six words to state and reasons."""
    path = oracles / "agent-orchestrator" / "mapping_ao_to_normalized.csv"
    rows = pl.read_csv(path, infer_schema=False).to_dicts()
    return {tuple(row[name] for name in AXES): row for row in rows}


@pytest.fixture(scope="module", params=a_few([["v0*", "v3*"], ["v*"]]))
def alone(shared: Path, request: pytest.FixtureRequest) -> dict[str, sa.Snapshot]:
    """Each generation of the samples by itself: together they tell one fleet's work once."""
    samples = shared / "samples" / "agent-orchestrator"
    trees = sorted(tree for pattern in request.param for tree in samples.glob(pattern))
    return {tree.name: snapshot(tree) for tree in trees if tree.is_dir()}


def test_the_table_holds_for_records_on_disk(table: dict, tmp_path: Path) -> None:
    # Every reachable combination is a row; a spread of them becomes files.
    chosen = list(table)[:: max(1, len(table) // 250)]
    for number, words in enumerate(chosen):
        life = lifecycle(words[0], words[1], pr=words[2:4], runtime=words[4:6])
        write_json(tmp_path, f"web-{number}", record(life))
    with snapshot(tmp_path) as snap:
        found = {row["entity_id"]: row for row in sa.states(snap).to_dicts()}
        told = dict(snap.detail("ao_sessions").select("entity_id", "reason_codes").rows())
    for number, words in enumerate(chosen):
        wanted, row = table[words], found[f"web-{number}"]
        assert {name: row[name] for name in STATE} == {name: wanted[name] for name in STATE}, words
        assert told[f"web-{number}"].split(", ") == wanted["reason_codes"].split("|")


def test_every_entity_has_one_state_in_the_order_of_the_entities(alone: dict) -> None:
    for samples in alone.values():
        states = sa.states(samples)
        assert states.schema == schema.STATES.dtypes
        assert states.select(schema.ENTITY_KEY).equals(samples.entities.select(schema.ENTITY_KEY))
        assert set(states["evaluated_at"]) == {AS_OF}


def test_a_record_of_one_word_is_mapped_by_the_word(alone: dict[str, sa.Snapshot]) -> None:
    here = sa.states(alone["v0_kv_pre_lifecycle"])
    told = {row["entity_id"]: row for row in here.to_dicts()}
    assert (told["bil-4"]["lifecycle"], told["bil-4"]["delivery"]) == ("running", "invalid")
    assert told["bil-9"]["outcome"] == "merged"
    assert told["bil-20"]["lifecycle"] == "running"  # `starting`
    assert told["bil-13"]["severity"] == "critical"


def test_every_reason_of_a_state_is_a_row(alone: dict[str, sa.Snapshot]) -> None:
    for samples in alone.values():
        reasons = sa.reasons(samples)
        assert reasons.schema == schema.REASONS.dtypes
        grouped = reasons.sort("order").group_by(schema.ENTITY_KEY)
        joined = grouped.agg(told=pl.col("code").str.join(", "))
        both = sa.states(samples).join(joined, on=schema.ENTITY_KEY, how="inner")
        assert both.filter(pl.col("told") != pl.col("reason_codes")).height == 0
        assert both.height == samples.entities.height
        assert reasons["message"].null_count() == 0
        assert reasons.filter(~pl.col("confidence").is_between(0, 1)).height == 0
        for evidence in reasons["evidence"].drop_nulls().unique():
            assert all("kind" in one for one in json.loads(evidence))


def killed(root: Path, *, minutes: int) -> None:
    """A session that was killed by hand, and the poll that wrote over the reason."""
    life = lifecycle(
        "terminated", "runtime_lost", runtime=("missing", "process_missing"),
        terminatedAt="2026-05-04T09:30:00.000Z", lastTransitionAt="2026-05-04T09:30:20.000Z",
    )  # fmt: skip
    write_json(root, "web-1", record(life, status="killed"))
    at_ms = int(datetime(2026, 5, 4, 9, minutes, tzinfo=UTC).timestamp() * 1000)
    event = (at_ms, None, "web-1", "session.killed", '{"reason":"manually_killed"}')
    write_events(root / "activity-events.db", event)


def test_a_kill_that_the_next_poll_wrote_over_is_no_crash(tmp_path: Path) -> None:
    killed(tmp_path, minutes=30)
    with snapshot(tmp_path) as snap:
        row = sa.states(snap).row(0, named=True)
        reason = sa.reasons(snap).filter(order=0).row(0, named=True)
        assert set(snap.findings["code"]) >= {"end.kill_doubtful", "end.reason_overwritten"}
        session = snap.detail("ao_sessions").row(0, named=True)
    assert (row["lifecycle"], row["health"], row["severity"]) == ("cancelled", "ok", "neutral")
    assert reason["code"] == "run.cancelled.manually_killed"
    assert (reason["claim_status"], reason["confidence"]) == ("inferred", 0.9)
    assert session["session_reason"] == "runtime_lost"
    assert session["reattribution"] == "killed_by_event"


def test_a_kill_of_long_before_explains_nothing(tmp_path: Path) -> None:
    killed(tmp_path, minutes=20)
    assert states_of(tmp_path)["web-1"]["lifecycle"] == "aborted"


def test_a_session_that_two_writers_fight_over_is_undecided(tmp_path: Path) -> None:
    life = lifecycle("terminated", "runtime_lost", runtime=("missing", "tmux_missing"))
    write_json(tmp_path, "web-1", record(life, status="stuck", detectingAttempts="6"))
    with snapshot(tmp_path) as snap:
        row = sa.states(snap).row(0, named=True)
        first = sa.reasons(snap).filter(order=0).row(0, named=True)
        assert "status.flickering" in snap.findings["code"]
    assert (row["lifecycle"], row["outcome"]) == ("running", None)
    assert "run.lifecycle.flicker" in row["reason_codes"]
    assert (first["claim_status"], first["confidence"]) == ("hypothesis", 0.5)


def test_an_unreadable_status_counts_neither_as_good_nor_as_bad(tmp_path: Path) -> None:
    write_json(tmp_path, "web-1", record(status="exploded"))
    row = states_of(tmp_path)["web-1"]
    assert (row["lifecycle"], row["is_legacy"], row["is_terminal"]) == ("unknown", True, None)


def test_silence_counts_from_the_last_sign_of_life(tmp_path: Path) -> None:
    evidence = "activity_signal=valid via_native activity=active at=2026-05-04T09:40:00.000Z"
    write_json(tmp_path, "web-1", record(lifecycle(), lifecycleEvidence=evidence))
    write_json(tmp_path, "web-2", record(lifecycle()))
    log = tmp_path / "projects" / "web" / "worktrees" / "web-2" / ".ao" / "activity.jsonl"
    states = {"09:50": "active", "09:59": "idle"}
    lines = [{"ts": f"2026-05-04T{at}:00.000Z", "state": state} for at, state in states.items()]
    write_lines(log, *[line | {"source": "terminal"} for line in lines])
    told = states_of(tmp_path)
    assert [told[name]["silence_s"] for name in ("web-1", "web-2")] == [1200.0, 600.0]


@pytest.mark.slow
def test_two_systems_share_one_snapshot_and_keep_their_order(tmp_path: Path) -> None:
    write_json(tmp_path / "ao", "web-1", record(lifecycle("stuck", "probe_failure")))
    write_flat(tmp_path / "ao", "web-2", directory="0123456789ab-web", status="working")
    lionagi = store_at(tmp_path / "state.db", 3)
    later = "2026-06-10"
    with sa.read(lionagi, tmp_path / "ao", as_of=later, progress=False) as snap:
        states = sa.states(snap)
        alone = sa.states(sa.read(lionagi, as_of=later, progress=False))
        by_system = snap.sql("SELECT system, count(*) AS n FROM states GROUP BY ALL ORDER BY ALL")
    assert by_system.rows() == [("agent_orchestrator", 2), ("lionagi", alone.height)]
    assert states.filter(system="lionagi").drop("source").equals(alone.drop("source"))
    assert states["system"].to_list()[-2:] == ["agent_orchestrator"] * 2


def test_a_stricter_policy_reaches_mapped_systems_too(tmp_path: Path) -> None:
    write_json(tmp_path, "web-1", record(lifecycle("terminated", "auto_cleanup",
                                                   runtime=("missing", "auto_cleanup"),
                                                   pr=("merged", "merged"))))  # fmt: skip
    with snapshot(tmp_path) as snap:
        named = sa.states(snap, policy=sa.Policy.adr0025())
    assert set(named["policy_version"]) == {sa.Policy.adr0025().version}

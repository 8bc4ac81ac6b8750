"""When a tree of Agent Orchestrator stands where no log says it: its records do."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.state.definitions import LEFT_OUT
from stateanalytics.state.population import population
from tests.ao_trees import lifecycle, record, write_flat, write_json

NEWEST = "2026-05-04T09:45:00.200Z"
AT = datetime(2026, 5, 4, 9, 45, 0, 200_000, tzinfo=UTC)


@pytest.fixture
def records_only(shared: Path, tmp_path: Path) -> sa.Snapshot:
    """A tree of which only the records of sessions were kept."""
    samples = shared / "samples" / "agent-orchestrator" / "v3_json_final_ts"
    for path in samples.glob("projects/*/sessions/*.json"):
        copy = tmp_path / path.relative_to(samples)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return sa.read(tmp_path, progress=False)


def test_a_tree_of_records_stands_at_the_newest_moment_that_one_proves(
    records_only: sa.Snapshot,
) -> None:
    assert records_only.events.is_empty()
    assert records_only.transitions.is_empty()
    assert records_only.as_of == AT
    assert records_only.sources["last_at"].to_list() == [AT]
    assert "time.future" not in records_only.findings["code"].to_list()


def test_no_age_of_a_tree_of_records_is_negative(records_only: sa.Snapshot) -> None:
    ages = sa.states(records_only).select("age_s", "silence_s", "duration_s")
    assert ages.select((pl.all() < 0).any()).row(0) == (False, False, False)


def test_no_session_of_a_tree_of_records_vanishes_unnamed(records_only: sa.Snapshot) -> None:
    states = sa.states(records_only)
    rows = population(records_only.entities, states, as_of=records_only.as_of)
    assert rows.height == records_only.entities.height == 19
    # One record has neither axes nor a date, and is said to be of no known status.
    assert rows.filter(pl.col("left_out").is_not_null())["left_out"].to_list() == ["legacy"]
    assert "legacy" in LEFT_OUT


PROOFS = {
    "last transition": {"lifecycle": lifecycle(lastTransitionAt=NEWEST)},
    "terminated": {"lifecycle": lifecycle("terminated", "manually_killed", terminatedAt=NEWEST)},
    "completed": {"lifecycle": lifecycle("done", "research_complete", completedAt=NEWEST)},
    "last report": {"agentReportedState": "working", "agentReportedAt": NEWEST},
    "restored": {"restoredAt": NEWEST},
    "watcher": {"reportWatcherTriggerActivatedAt": NEWEST},
    "in doubt": {"detectingStartedAt": NEWEST},
    "looked up": {"prEnrichment": f'{{"enrichedAt": "{NEWEST}"}}'},
    "seen": {"lifecycleEvidence": f"activity_signal=valid activity=active at={NEWEST}"},
}


@pytest.mark.slow
def test_every_moment_of_a_record_proves_that_it_has_been(tmp_path: Path) -> None:
    """Each in a tree of its own."""
    for number, keys in enumerate(PROOFS.values()):
        life = {"lifecycle": lifecycle()} | keys
        write_json(tmp_path / str(number), f"web-{number}", record(**life))
    trees = [tmp_path / str(number) for number in range(len(PROOFS))]
    with sa.read(*trees, progress=False) as snap:
        assert snap.as_of == AT
        assert dict(zip(PROOFS, snap.sources["last_at"], strict=True)) == dict.fromkeys(PROOFS, AT)


def test_one_record_of_a_clock_that_ran_ahead_does_not_make_the_tree_old(tmp_path: Path) -> None:
    for number in range(4):
        write_json(tmp_path, f"web-{number}", record(lifecycle(lastTransitionAt=NEWEST)))
    write_json(
        tmp_path, "web-9", record(agentReportedState="working", agentReportedAt="2031-01-01")
    )
    with sa.read(tmp_path, progress=False) as snap:
        assert snap.as_of == AT
        named = snap.findings.filter(pl.col("code") == "time.future")
        assert named["entity_id"].to_list() == ["web-9"]


def test_when_a_file_was_copied_proves_nothing(tmp_path: Path) -> None:
    write_flat(tmp_path, "bil-1", directory="82cd38fe090d-billing", status="working",
               createdAt="2026-03-20T08:00:00.000Z")  # fmt: skip
    with sa.read(tmp_path, progress=False) as snap:
        assert snap.as_of == datetime(2026, 3, 20, 8, tzinfo=UTC)
        assert datetime.now(UTC) - snap.as_of > timedelta(days=1)

"""Codex: every session and subagent of the samples is what a person wrote it should be."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.state.states import states
from stateanalytics.systems.codex import frames
from stateanalytics.systems.reading import read_facts
from tests.conftest import SHARED

SAMPLES = SHARED / "samples" / "codex"
ORDER = {"run.health.stalled"}
"""Derived reasons stand after recorded ones here; the samples name them first."""
COUNTS = {
    "n_turns": "n_turns",
    "n_prompts": "n_prompts",
    "n_agent": "n_answers",
    "input_tokens": "n_input_tokens",
    "cached_input_tokens": "n_cached_tokens",
    "output_tokens": "n_output_tokens",
    "reasoning_output_tokens": "n_reasoning_tokens",
    "naive_total_tokens": "naive_total_tokens",
    "n_tool_calls": "n_tool_calls",
    "n_tool_errors": "n_tool_errors",
    "n_open_tools": "n_open_tools",
}


@pytest.fixture(scope="module")
def expected() -> list[dict]:
    if not SAMPLES.is_dir():
        pytest.skip("the folder ../shared is not here")
    table = pl.read_csv(SAMPLES / "expected.csv")
    return table.with_columns(pl.col("as_of").str.to_datetime(time_zone="UTC")).to_dicts()


@pytest.fixture(scope="module")
def facts(expected: list[dict]) -> Facts:
    return read_facts(SAMPLES, as_of=expected[0]["as_of"])[0]


def told(facts: Facts) -> Iterator[tuple[str, dict]]:
    """What is said of each thread, by its file."""
    of_states = states(facts).select(
        "entity_id", "lifecycle", "outcome", "health", "delivery", "severity", "reason_codes"
    )
    entities = facts.entities.filter(entity_type="session")
    own = entities.select("entity_id", "kind", "parent_id", "n_messages", "started_at")
    sessions = facts.detail(frames.SESSIONS).rename({"thread_id": "entity_id"})
    for row in sessions.join(of_states, on="entity_id").join(own, on="entity_id").to_dicts():
        yield row["file"], row


def test_every_row_of_the_expected_file_holds(facts: Facts, expected: list[dict]) -> None:
    found = dict(told(facts))
    assert sorted(found) == sorted(row["file"] for row in expected)
    names = {row["file"]: row["session"] for row in expected}
    threads = {row["entity_id"]: names[file] for file, row in found.items()}
    for row in expected:
        ours = found[row["file"]]
        axes = ("lifecycle", "outcome", "health", "delivery", "severity")
        assert {axis: ours[axis] for axis in axes} == {axis: row[axis] for axis in axes}, row
        codes = row["reason_codes"].split(";")
        codes.sort(key=lambda code: code in ORDER)
        assert ours["reason_codes"].split(", ") == codes, row["session"]
        assert {name: ours[name] for name in COUNTS.values()} == {
            name: row[theirs] for theirs, name in COUNTS.items()
        }, row["session"]
        assert ours["n_input_tokens"] + ours["n_output_tokens"] == row["total_tokens"]
        assert ours["n_messages"] == row["n_messages"]
        assert ours["kind"] == row["subtype"]
        assert threads.get(ours["parent_id"]) == row["parent"], row["session"]
        for name in ("started_at", "last_activity_at"):
            moment = ours[name].isoformat(timespec="milliseconds").replace("+00:00", "Z")
            assert moment == row[name], row["session"]


def test_what_is_odd_in_the_samples_is_counted(facts: Facts, expected: list[dict]) -> None:
    n_rows = dict(facts.findings.select("code", "n_rows").iter_rows())
    n_unknown = sum(n for code, n in n_rows.items() if code.startswith("record.unknown"))
    assert n_unknown == sum(row["n_unknown_records"] for row in expected)
    assert "line.unfinished" not in n_rows


def test_names_and_order_of_files_change_nothing(
    facts: Facts, expected: list[dict], tmp_path: Path
) -> None:
    """Files of other folders: a thread is its id, wherever it lies."""
    files = sorted(SAMPLES.glob("*s/**/rollout-*"), reverse=True)
    assert len(files) == len(expected)
    for number, file in enumerate(files):
        place = tmp_path / "sessions" / f"p{len(files) - number}" / file.name
        place.parent.mkdir(parents=True)
        place.write_bytes(file.read_bytes())
    shutil.copy(SAMPLES / "session_index.jsonl", tmp_path)
    moved = read_facts(tmp_path, as_of=facts.as_of)[0]
    key = ["entity_type", "entity_id"]
    assert moved.entities.drop("source").sort(key).equals(facts.entities.drop("source").sort(key))


def test_a_snapshot_counts_runs_and_not_their_parts(expected: list[dict]) -> None:
    snap = sa.read(SAMPLES, as_of=expected[0]["as_of"])
    listed = sa.attention(snap)
    assert set(listed["entity_type"]) == {"session"}
    assert listed.height == 3

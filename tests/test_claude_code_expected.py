"""Claude Code: every session and subagent of the samples is what a person wrote it should be."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.state.states import states
from stateanalytics.systems.claude_code import frames
from stateanalytics.systems.reading import read_facts
from tests.conftest import SHARED

SAMPLES = SHARED / "samples" / "claude-code"
ORDER = {"run.health.stalled"}
"""Derived reasons stand after recorded ones here; the samples name them first."""
COUNTS = {
    "n_prompts": "n_prompts",
    "n_assistant": "n_answers",
    "input_tokens": "n_input_tokens",
    "cache_creation_tokens": "n_cache_creation_tokens",
    "cache_read_tokens": "n_cache_read_tokens",
    "output_tokens": "n_output_tokens",
    "naive_output_tokens": "naive_output_tokens",
    "n_tool_calls": "n_tool_calls",
    "n_tool_errors": "n_tool_errors",
    "n_open_tools": "n_open_tools",
    "n_retries": "n_retries",
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
    """What is said of each transcript, by its file."""
    of_states = states(facts).select(
        "entity_id", "lifecycle", "outcome", "health", "delivery", "severity", "reason_codes"
    )
    entities = facts.entities.filter(entity_type="session")
    own = entities.select("entity_id", "kind", "parent_id", "n_messages", "started_at")
    sessions = facts.detail(frames.SESSIONS).rename({"thread_id": "entity_id"})
    for row in sessions.join(of_states, on="entity_id").join(own, on="entity_id").to_dicts():
        yield f"projects/{row['file'].removeprefix('projects/')}", row


def test_every_row_of_the_expected_file_holds(facts: Facts, expected: list[dict]) -> None:
    found = dict(told(facts))
    assert sorted(found) == sorted(row["file"] for row in expected)
    names = {row["file"]: row["session"] for row in expected}
    files = {row["entity_id"]: names[file] for file, row in found.items()}
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
        assert ours["n_messages"] == row["n_messages"]
        assert ours["kind"] == row["subtype"]
        assert files.get(ours["parent_id"]) == row["parent"], row["session"]
        for name in ("started_at", "last_activity_at"):
            moment = ours[name].isoformat(timespec="milliseconds").replace("+00:00", "Z")
            assert moment == row[name], row["session"]


def test_what_is_odd_in_the_samples_is_counted(facts: Facts, expected: list[dict]) -> None:
    n_rows = dict(facts.findings.select("code", "n_rows").iter_rows())
    assert n_rows["line.unfinished"] == sum(row["n_bad_lines"] for row in expected)
    assert n_rows["record.unknown_type"] == sum(row["n_unknown_records"] for row in expected)
    assert n_rows["record.unknown_block"] == n_rows["record.unknown_subtype"] == 1


def test_one_project_and_one_file_say_the_same(facts: Facts, expected: list[dict]) -> None:
    [project] = (SAMPLES / "projects").iterdir()
    whole = facts.entities.drop("source")
    of_project = read_facts(project, as_of=facts.as_of)[0]
    assert of_project.entities.drop("source").equals(whole)
    row = next(row for row in expected if row["session"] == "05_subagent_parent")
    alone = read_facts(SAMPLES / row["file"], as_of=facts.as_of)[0]
    assert set(alone.entities["entity_id"]) < set(whole["entity_id"])
    assert alone.entities.filter(entity_type="session", kind="subagent").height == 1


def test_names_and_order_of_files_change_nothing(
    facts: Facts, expected: list[dict], tmp_path: Path
) -> None:
    """Files of other folders: a session is its id, wherever it lies."""
    files = sorted((SAMPLES / "projects").rglob("*.json*"), reverse=True)
    for number, file in enumerate(files):
        place = tmp_path / "projects" / f"-p{len(files) - number}"
        inner = file.relative_to(SAMPLES / "projects").parts[1:]
        to = place.joinpath(*inner)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(file.read_bytes())
    (tmp_path / "projects" / "-p1").mkdir(exist_ok=True)
    (tmp_path / "settings.json").write_bytes((SAMPLES / "settings.json").read_bytes())
    moved = read_facts(tmp_path, as_of=facts.as_of)[0]
    key = ["entity_type", "entity_id"]
    assert moved.entities.drop("source").sort(key).equals(facts.entities.drop("source").sort(key))


def test_a_snapshot_counts_runs_and_not_their_parts(expected: list[dict]) -> None:
    snap = sa.read(SAMPLES, as_of=expected[0]["as_of"])
    listed = sa.attention(snap)
    assert set(listed["entity_type"]) == {"session"}
    assert listed.height == 4

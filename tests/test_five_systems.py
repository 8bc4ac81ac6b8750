"""One report of the samples of all five systems has the numbers that a count by hand gives."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stateanalytics as sa
from tests.conftest import ROOT

SAMPLES = ROOT / "data" / "samples"
STORES = {
    "lionagi": "state.db",
    "agent_orchestrator": "agent_orchestrator",
    "opencode": "opencode",
    "claude_code": "claude_code",
    "codex": "codex",
}
pytestmark = pytest.mark.slow
ENDS = ("completed", "failed", "timed_out", "aborted", "cancelled")


@pytest.fixture(scope="module")
def snap() -> sa.Snapshot:
    return sa.read(*(SAMPLES / path for path in STORES.values()), progress=False)


@pytest.fixture(scope="module")
def summary(snap: sa.Snapshot) -> dict[str, Any]:
    report = sa.report(snap, window=("2026-01-01", "2026-11-22"), shown=False)
    numbers: dict[str, Any] = report.summary
    return numbers


def records(pattern: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each whole line of files, as JSON, read without the project."""
    for path in sorted(SAMPLES.glob(pattern)):
        for line in path.read_text("utf-8").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            yield path, record


def runs_of_lionagi() -> int:
    query = (
        "SELECT count(*) FROM sessions WHERE source_kind <> 'imported_fs' "
        "AND cc_session_id IS NULL AND status IN ('running', 'completed_empty', ?, ?, ?, ?, ?)"
    )
    with closing(sqlite3.connect(f"file:{SAMPLES / 'state.db'}?mode=ro", uri=True)) as store:
        [number] = store.execute(query, ENDS).fetchone()
    return int(number)


def runs_of_agent_orchestrator() -> int:
    folder = SAMPLES / "agent_orchestrator"
    by_json = [path.read_text() for path in folder.glob("projects/*/sessions/*.json")]
    new = [record for record in map(json.loads, by_json) if record.get("lifecycle")]
    old = [path for path in folder.glob("*-*/sessions/**/*") if path.is_file()]
    return len(new) + len(old)


def runs_of_opencode() -> int:
    kinds = Counter(record["type"] for _, record in records("opencode/*.jsonl"))
    return kinds["session.created"] + kinds["session.forked"]


def runs_of_claude_code() -> int:
    return len({path.stem for path, _ in records("claude_code/projects/**/*.jsonl")})


def runs_of_codex() -> int:
    """A rollout has the id of its thread in its name, packed or not."""
    return len({path.name.split(".")[0][-36:] for path in SAMPLES.glob("codex/*/**/rollout-*")})


@pytest.mark.parametrize(
    ("system", "count"),
    [
        ("lionagi", runs_of_lionagi),
        ("agent_orchestrator", runs_of_agent_orchestrator),
        ("opencode", runs_of_opencode),
        ("claude_code", runs_of_claude_code),
        ("codex", runs_of_codex),
    ],
)
def test_runs_of_each_system_are_those_counted_by_hand(
    summary: dict[str, Any], system: str, count: Callable[[], int]
) -> None:
    [part] = [each for each in summary["systems"]["systems"] if each["system"] == system]
    assert part["runs"]["n"] == count()
    assert part["runs"]["n"] == part["runs"]["n_ended"] + part["runs"]["n_open"]


def test_totals_are_the_sums_of_the_five(summary: dict[str, Any]) -> None:
    parts = [each["runs"] for each in summary["systems"]["systems"]]
    assert len(parts) == len(STORES)
    numbers = {each["name"]: each for each in summary["headline"]["numbers"]}
    assert numbers["runs"]["n"] == sum(part["n"] for part in parts)
    for name in ("completed", "timed_out"):
        assert numbers[name]["n"] == sum(part["ends"][name] for part in parts)
        assert numbers[name]["of"] == sum(part["n_ended"] for part in parts)


def test_ends_in_the_store_of_lionagi_are_those_of_the_report(summary: dict[str, Any]) -> None:
    [part] = [each for each in summary["systems"]["systems"] if each["system"] == "lionagi"]
    query = (
        "SELECT status, count(*) FROM sessions WHERE source_kind <> 'imported_fs' "
        "AND cc_session_id IS NULL GROUP BY status"
    )
    with closing(sqlite3.connect(f"file:{SAMPLES / 'state.db'}?mode=ro", uri=True)) as store:
        counts = dict(store.execute(query).fetchall())
    counts["completed"] += counts["completed_empty"]
    assert {name: part["runs"]["ends"][name] for name in ENDS} == {
        name: counts[name] for name in ENDS
    }


def test_calls_and_tokens_are_those_of_the_files(snap: sa.Snapshot) -> None:
    calls, answers = set(), {}
    for _, record in records("claude_code/projects/**/*.jsonl"):
        message = record.get("message") or {}
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_use":
                calls.add(block["id"])
        if record.get("type") == "assistant" and message.get("model") != "<synthetic>":
            key = (message["id"], record.get("requestId"))
            used = message["usage"]["output_tokens"]
            answers[key] = max(used, answers.get(key, 0))
    entities = snap.entities.filter(pl.col("system") == "claude_code")
    assert entities.filter(entity_type="tool_call").height == len(calls)
    for kind in ("session", "turn"):
        of_kind = entities.filter(entity_type=kind)
        assert of_kind["n_output_tokens"].sum() == sum(answers.values())
    started = Counter(record["type"] for _, record in records("opencode/*.jsonl"))
    of_opencode = snap.entities.filter(pl.col("system") == "opencode")
    by_type = dict(of_opencode["entity_type"].value_counts().iter_rows())
    assert by_type["tool_call"] == started["session.tool.input.started"]
    assert by_type["execution"] == started["session.execution.started"]

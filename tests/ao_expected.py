"""Records as the expected rows of the samples describe them, from public functions only."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from stateanalytics.systems.agent_orchestrator import reading as source
from stateanalytics.systems.agent_orchestrator.files import Faults
from stateanalytics.systems.agent_orchestrator.places import RECORDS, files_of, find
from stateanalytics.systems.agent_orchestrator.records import read_records, read_reports
from stateanalytics.systems.agent_orchestrator.sessions import interpret
from tests.conformance.agent_orchestrator.at_instant import judge_sessions
from tests.oracles_agent_orchestrator import lifecycles_of

NOW = datetime(2026, 5, 4, 10, tzinfo=UTC)
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
"""Creation time that records without one were parsed with."""

COLUMNS = (
    "path", "layout", "session_id", "readable", "stored_status", "derived_status",
    "derived_status_trinity", "lifecycle", "is_terminal", "agent_report", "agent_report_fresh",
    "watcher_trigger", "pr_number", "pr_url",
)  # fmt: skip


def described(samples: Path, name: str = ".") -> list[dict]:
    """One row a session record under the samples, or one of them, as `expected.jsonl` has them."""
    return [row for tree in find(samples / name) for row in _of_tree(tree, samples)]


def _of_tree(tree: Path, samples: Path) -> list[dict]:
    faults = Faults(tree.name, str(tree))
    records = read_records([file for file in files_of(tree) if file.kind in RECORDS], faults)
    strict = interpret(records, now=CREATED, is_tolerant=False)
    reports = read_reports(strict)
    shown = source.read(tree, label=tree.name).details["ao_sessions"]
    judged = judge_sessions(shown.with_columns(pl.col("created_at").fill_null(CREATED)), as_of=NOW)
    by_path = {row["path"]: row for row in judged.to_dicts()}
    return [
        _row(f"{tree.relative_to(samples)}/{report['path']}", report, lifecycle, by_path)
        for report, lifecycle in zip(reports.to_dicts(), lifecycles_of(reports), strict=True)
    ]


def _row(path: str, report: dict, lifecycle: dict, by_path: dict[str, dict]) -> dict:
    told = by_path[report["path"]]
    if not told["is_readable"]:
        named = {"path": path, "layout": told["layout"], "session_id": told["session_id"]}
        return named | {"readable": False}
    values = (
        path,
        told["layout"],
        told["session_id"],
        True,
        told["stored_status"],
        told["ao_status"],
        told["trinity_status"],
        lifecycle,
        told["is_ao_terminal"],
        _report(report),
        told["is_report_fresh"],
        told["watcher_trigger"],
        told["pr_number"],
        told["pr_url"],
    )
    return dict(zip(COLUMNS, values, strict=True))


def _report(row: dict) -> dict | None:
    if row["report_state"] is None:
        return None
    told = {
        "state": row["report_state"],
        "timestamp": row["report_at"].isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "note": row["report_note"],
        "prNumber": row["report_pr_number"],
        "prUrl": row["report_pr_url"],
        "prIsDraft": row["report_is_draft"],
    }
    return {key: value for key, value in told.items() if value is not None}


def expected(samples: Path) -> list[dict]:
    """The expected rows, where they are there."""
    path = samples / "expected.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

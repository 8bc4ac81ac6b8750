"""Records as the expected rows of the samples describe them, from public functions only."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from stateanalytics.systems.agent_orchestrator import reading as source
from stateanalytics.systems.agent_orchestrator.detectors import FRESH_S, watcher_trigger
from stateanalytics.systems.agent_orchestrator.mapping import legacy_status
from stateanalytics.systems.agent_orchestrator.places import RECORDS, Faults, files_of, find
from stateanalytics.systems.agent_orchestrator.sessions import (
    LIFECYCLE_COLUMNS,
    interpret,
    read_payloads,
    read_records,
    read_reports,
    refresh_status,
    synthesize_lifecycle,
)
from tests.oracles import lifecycles_of

NOW = datetime(2026, 5, 4, 10, tzinfo=UTC)
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
"""Creation time that records without one were parsed with."""

COLUMNS = (
    "path", "layout", "session_id", "readable", "stored_status", "derived_status", "lifecycle",
    "is_terminal", "agent_report", "agent_report_fresh", "watcher_trigger", "pr_number", "pr_url",
)  # fmt: skip


def described(samples: Path, name: str = ".") -> list[dict]:
    """One row a session record under the samples, or one of them, as `expected.jsonl` has them."""
    return [row for tree in find(samples / name) for row in _of_tree(tree, samples)]


def _of_tree(tree: Path, samples: Path) -> list[dict]:
    faults = Faults(tree.name, str(tree))
    files = [file for file in files_of(tree) if file.kind in RECORDS]
    records = read_payloads(read_records(files, faults))
    read = interpret(records, now=CREATED)
    # Where Agent Orchestrator rejects a payload it makes up all of the lifecycle.
    made_up = synthesize_lifecycle(refresh_status(records), now=CREATED)
    is_accepted = read["reject_reason"].is_null()
    strict = read.with_columns(
        read[name].zip_with(is_accepted, made_up[name]) for name in LIFECYCLE_COLUMNS
    )
    reports = read_reports(strict)
    shown = source.read(tree, label=tree.name).details["ao_sessions"]
    own_words = strict.select("path", status=legacy_status())
    judged = _judged(shown.join(own_words, on="path", how="left", maintain_order="left"))
    by_path = {row["path"]: row for row in judged.to_dicts()}
    return [
        _row(f"{tree.relative_to(samples)}/{report['path']}", report, lifecycle, by_path)
        for report, lifecycle in zip(reports.to_dicts(), lifecycles_of(reports), strict=True)
    ]


def _judged(sessions: pl.DataFrame) -> pl.DataFrame:
    """What depends on the clock: is the last report fresh, what does the watcher say."""
    ages = {
        f"{name}_age_s": (pl.lit(NOW) - at).dt.total_seconds(fractional=True)
        for name, at in {
            "created": pl.col("created_at").fill_null(CREATED),
            "report": pl.col("report_at"),
        }.items()
    }
    is_fresh = pl.col("report_age_s").is_between(-60, FRESH_S).fill_null(value=False)
    aged = sessions.with_columns(**ages)
    return aged.with_columns(is_report_fresh=is_fresh, watcher_trigger=watcher_trigger())


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
        told["status"],
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

"""A hundred thousand session records of Agent Orchestrator, beside parsing the same bytes."""

import functools
import json
import os
import tempfile
from pathlib import Path

from benchmarks.measure import Row, peak_mb, side_by_side
from stateanalytics.systems.reading import read_facts

MOST_ORJSON = 6.0
N_FEW, MOST_FEW_S = 10_000, 5.0

N_PROJECTS = 10
N_RUNS = 3
_STATES = (
    ("working", "task_in_progress", "none", "not_created", "alive", "process_running"),
    ("working", "fixing_ci", "open", "ci_failing", "alive", "process_running"),
    ("idle", "awaiting_external_review", "open", "review_pending", "alive", "process_running"),
    ("idle", "merged_waiting_decision", "merged", "merged", "alive", "process_running"),
    ("stuck", "probe_failure", "none", "not_created", "exited", "process_missing"),
    ("terminated", "runtime_lost", "none", "not_created", "missing", "tmux_missing"),
    ("terminated", "pr_merged", "merged", "merged", "missing", "pr_merged_cleanup"),
    ("detecting", "runtime_lost", "open", "in_progress", "missing", "tmux_missing"),
)


def write_tree(root: Path, n_records: int, *, first: int = 0) -> Path:
    """Records as its last TypeScript writes them, 2 kB each, no two alike."""
    for project in range(N_PROJECTS):
        (root / "projects" / f"web{project}" / "sessions").mkdir(parents=True)
    for number in range(first, first + n_records):
        project = f"web{number % N_PROJECTS}"
        path = root / "projects" / project / "sessions" / f"{project}-{number}.json"
        path.write_text(json.dumps(_record(number, project), indent=2) + "\n")
    return root


def _record(number: int, project: str) -> dict[str, object]:
    words = _STATES[number % len(_STATES)]
    day, second = 1 + number // 4000 % 28, number % 3600
    created = f"2026-05-{day:02}T08:{second // 60:02}:{second % 60:02}.{number % 1000:03}Z"
    later = f"2026-05-{day:02}T09:{second // 60:02}:{second % 60:02}.{number % 997:03}Z"
    home = f"/home/dev/.agent-orchestrator/projects/{project}/worktrees/{project}-{number}"
    handle = {
        "id": f"{project}-{number}",
        "runtimeName": "tmux",
        "data": {"createdAt": 1777885200000 + number, "workspacePath": home},
    }
    url = f"https://github.com/acme/{project}/pull/{number}" if words[2] != "none" else None
    return {
        "worktree": home,
        "branch": f"feat/issue-{number}",
        "tmuxName": f"{project}-{number}",
        "issue": str(number),
        "issueTitle": f"Issue {number}: improve the checkout flow",
        "project": project,
        "agent": "claude-code",
        "createdAt": created,
        "runtimeHandle": handle,
        "lifecycle": {
            "version": 2,
            "session": {
                "kind": "worker",
                "state": words[0],
                "reason": words[1],
                "startedAt": created,
                "completedAt": None,
                "terminatedAt": later if words[0] == "terminated" else None,
                "lastTransitionAt": later,
            },
            "pr": {
                "state": words[2],
                "reason": words[3],
                "number": number if url else None,
                "url": url,
                "lastObservedAt": later if url else None,
            },
            "runtime": {
                "state": words[4],
                "reason": words[5],
                "lastObservedAt": later,
                "handle": handle,
                "tmuxName": f"{project}-{number}",
            },
        },
        "status": "working",
        "lifecycleEvidence": f"activity_signal=valid via_native activity=active at={later}",
        "agentReportedState": "started",
        "agentReportedAt": later,
        "agentReportedNote": f"picked up {number}",
        "reportWatcherLastAuditedAt": later,
        "prEnrichment": json.dumps(
            {"state": words[2], "ciStatus": "passing", "reviewDecision": "none",
             "mergeable": False, "title": f"PR {number}", "additions": number % 500,
             "deletions": number % 90, "isDraft": False, "enrichedAt": later}
        ),
    }  # fmt: skip


def read(root: Path) -> object:
    return read_facts([root], shown=False)


def parse_alone(root: Path) -> int:
    """The same bytes through orjson, one file after the other, and nothing kept."""
    import orjson

    n_records = 0
    for project in os.scandir(root / "projects"):
        for entry in os.scandir(os.path.join(project.path, "sessions")):  # noqa: PTH118
            with open(entry.path, "rb") as file:  # noqa: PTH123
                n_records += bool(orjson.loads(file.read()))
    return n_records


def run(n_sessions: int = 30_000) -> list[Row]:
    n_records = min(n_sessions, 100_000)
    with tempfile.TemporaryDirectory() as folder:
        root = write_tree(Path(folder), N_FEW)
        few_s, few_floor_s = side_by_side(
            functools.partial(read, root), functools.partial(parse_alone, root), N_RUNS
        )
    with tempfile.TemporaryDirectory() as folder:
        root = write_tree(Path(folder), n_records)
        # First: a child's peak begins at what its parent holds when it is born.
        memory_mb = peak_mb(functools.partial(read, root))
        floor_mb = peak_mb(functools.partial(parse_alone, root))
        ours_s, parse_s = side_by_side(
            functools.partial(read, root), functools.partial(parse_alone, root), N_RUNS
        )
    return [
        Row(
            f"a tree of {N_FEW:,} small files of Agent Orchestrator to facts",
            few_s,
            "orjson alone",
            few_floor_s,
            f"≤ {MOST_FEW_S:g} s",
            few_s <= MOST_FEW_S,
            f"{few_s / N_FEW * 1e6:,.0f} µs a file",
            differs="nothing checked, mapped or kept",
        ),
        Row(
            f"{n_records:,} records of Agent Orchestrator to facts",
            ours_s,
            "orjson alone",
            parse_s,
            f"≤ {MOST_ORJSON:g} × orjson",
            ours_s <= MOST_ORJSON * parse_s,
            f"{n_records / ours_s:,.0f} records/s, {memory_mb:,.0f} MB at most "
            f"(orjson alone {floor_mb:,.0f} MB)",
            differs="nothing checked, mapped or kept",
        ),
    ]


if __name__ == "__main__":
    for row in run():
        print(row, row.ratio)

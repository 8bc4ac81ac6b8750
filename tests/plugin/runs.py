"""A week of pulse: runs that end well, break, go quiet, and one broken line."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2026, 5, 18, tzinfo=UTC)
LAST = START + timedelta(days=6)


def write_runs(folder: Path, n: int = 60) -> Path:
    """One file a run: every fifth breaks, one is silent for nine hours, one still beats."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(n):
        begin = START + (LAST - START) * number / n
        beats = range(1, 4 + number % 7)
        lines = [{"at": begin, "what": "start", "agent": "ab"[number % 2], "timeout_s": 900.0}]
        lines += [
            {"at": begin + timedelta(minutes=k), "what": "beat", "load": k / 20} for k in beats
        ]
        end = {"at": lines[-1]["at"] + timedelta(seconds=30), "what": "end", "result": "done"}
        if number % 5 == 0:
            error = f"worker {number} was killed at 512 MB"
            end |= {"result": "broke", "reason": "run.failed.no_memory", "error": error}
        _write(folder / f"run-{number:02}.pulse.jsonl", [*lines, end])
    silent = LAST - timedelta(hours=9)
    begun = {"at": silent - timedelta(minutes=1), "what": "start", "agent": "a"}
    _write(folder / "silent.pulse.jsonl", [begun, {"at": silent, "what": "beat"}])
    lively = [
        {"at": LAST - timedelta(minutes=5), "what": "start", "agent": "a"},
        {"at": LAST, "what": "beat", "load": 0.95},
    ]
    _write(folder / "lively.pulse.jsonl", lively)
    with (folder / "lively.pulse.jsonl").open("a") as file:
        file.write("{not json\n")
    return folder


def _write(path: Path, lines: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(line, default=datetime.isoformat) + "\n" for line in lines))

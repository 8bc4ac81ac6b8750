"""Three million opencode events: folded, and read beside orjson reading the same bytes."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from benchmarks.measure import Row, median_s, peak_mb, side_by_side
from stateanalytics.systems.opencode.executions import fold
from stateanalytics.systems.opencode.log import Log
from stateanalytics.systems.opencode.records import read_record_file

SAMPLE = Path(__file__).parents[1] / "data" / "samples" / "opencode" / "events_july_2026.jsonl"
GOAL_S = 10.0
MOST_ORJSON = 3.0


def write_events(path: Path, n_events: int) -> int:
    """The sample again and again, every session and message with an id of its own.

    Returns
    -------
    int
        How many events were written.
    """
    text = SAMPLE.read_text(encoding="utf-8")
    marked = text.replace('"ses_', '"ses_@').replace('"msg_', '"msg_@').replace('"evt_', '"evt_@')
    n_lines = text.count("\n")
    n_copies = -(-n_events // n_lines)
    with path.open("w", encoding="utf-8") as file:
        for copy in range(n_copies):
            file.write(marked.replace("@", f"{copy:05x}"))
    return n_copies * n_lines


def gather(path: Path) -> Log:
    """The typed events of a log."""
    from stateanalytics.systems.opencode.payloads import Parser

    with Parser() as parser:
        return read_record_file(path, parser).log


def with_orjson(path: Path) -> int:
    """What reading the same bytes costs at least: every line parsed, nothing kept."""
    import orjson

    n = 0
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)
            n += 1
    return n


def read_and_fold(path: Path) -> int:
    """Bytes to folded tables."""
    return fold(gather(path)).executions.height


def run(n_events: int = 3_000_000) -> list[Row]:
    """Fold typed events; and from bytes to folded tables, beside orjson alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        n = write_events(path, n_events)
        log = gather(path)
        folded_s = median_s(partial(fold, log), 3)
        del log
        whole_s, orjson_s = side_by_side(
            partial(read_and_fold, path), partial(with_orjson, path), 1
        )
        peak = peak_mb(partial(read_and_fold, path))
    size = f"{n / 1e6:.2f} M events"
    return [
        Row(
            f"fold {size}",
            folded_s,
            "-",
            None,
            f"≤ {GOAL_S:g} s",
            folded_s <= GOAL_S,
            f"{n / folded_s / 1e6:.2g} M/s",
        ),
        Row(
            f"read and fold {size}",
            whole_s,
            "orjson, parsing only",
            orjson_s,
            f"≤ {MOST_ORJSON:g} × orjson",
            whole_s <= MOST_ORJSON * orjson_s,
            f"{n / whole_s / 1e6:.2g} M/s, peak {peak:,.0f} MB",
            differs="nothing checked, typed, folded or kept",
        ),
    ]

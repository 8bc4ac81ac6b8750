"""A million opencode events, folded and read; and many small logs read at once."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from benchmarks.measure import Row, median_s, peak_mb, side_by_side
from stateanalytics.systems.opencode.folding import fold
from stateanalytics.systems.opencode.gathered import Log, ordered
from stateanalytics.systems.opencode.records import read_record_files
from stateanalytics.systems.reading import read_facts

SAMPLE = Path(__file__).parents[1] / "data" / "samples" / "opencode" / "events_july_2026.jsonl"
GOAL_S = 10.0  # of three million
MOST_ORJSON = 2.5
N_LOGS, N_EVENTS_A_LOG = 300, 40
MOST_LOGS_S = 2.0


def write_events(path: Path, n_events: int, *, first: int = 0) -> int:
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
        for copy in range(first, first + n_copies):
            file.write(marked.replace("@", f"{copy:05x}"))
    return n_copies * n_lines


def write_logs(folder: Path) -> None:
    """Small logs, each with some events of the sample under ids of its own."""
    whole = SAMPLE.read_text(encoding="utf-8")
    marked = whole.replace('"ses_', '"ses_@').replace('"msg_', '"msg_@').replace('"evt_', '"evt_@')
    lines = marked.splitlines(keepends=True)
    for number in range(N_LOGS):
        begin = number * N_EVENTS_A_LOG % (len(lines) - N_EVENTS_A_LOG)
        text = "".join(lines[begin : begin + N_EVENTS_A_LOG]).replace("@", f"{number:05x}")
        (folder / f"log{number}.jsonl").write_text(text, encoding="utf-8")


def gather(path: Path) -> Log:
    """The typed events of a log."""
    from stateanalytics.io.json_lines import Parser

    with Parser() as parser:
        return read_record_files([("events", path)], parser).log


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
    log = gather(path)
    return fold(log, ordered(log)).executions.height


def run(n_events: int = 1_000_000) -> list[Row]:
    """Fold typed events; and from bytes to folded tables, beside orjson alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        n = write_events(path, n_events)
        log = gather(path)
        folded_s = median_s(partial(fold, log, ordered(log)), 3)
        del log
        whole_s, orjson_s = side_by_side(
            partial(read_and_fold, path), partial(with_orjson, path), 1
        )
        peak = peak_mb(partial(read_and_fold, path))
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder))
        logs = sorted(Path(folder).iterdir())
        of_logs_s, each_s = side_by_side(
            partial(read_facts, folder, shown=False), lambda: [with_orjson(log) for log in logs], 3
        )
    size, most_s = f"{n / 1e6:.2f} M events", GOAL_S * n / 3_000_000
    return [
        Row(
            f"fold {size}",
            folded_s,
            "-",
            None,
            f"≤ {most_s:.2g} s",
            folded_s <= most_s,
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
        Row(
            f"{N_LOGS} logs of {N_EVENTS_A_LOG} events each to facts",
            of_logs_s,
            "orjson, parsing only",
            each_s,
            f"≤ {MOST_LOGS_S:g} s",
            of_logs_s <= MOST_LOGS_S,
            f"{of_logs_s / N_LOGS * 1e3:.2g} ms a log",
            differs="nothing checked, typed, folded or kept",
        ),
    ]

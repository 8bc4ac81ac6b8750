"""A refresh of a store that grew a little, beside reading it again."""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import N_RUNS, SAME, Row, median_s

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot

N_SESSIONS, N_MESSAGES = 10_000, 40
_GROW = """
INSERT INTO messages (id, created_at, content, role, lion_class)
SELECT 'new-' || hex(randomblob(8)), (SELECT max(created_at) FROM messages) + rowid,
content, role, lion_class FROM messages WHERE rowid <= 20
"""


GOAL_S, NOTHING_NEW_S = 0.15, 0.02


def _grown(path: Path, read: Callable[[], object]) -> Callable[[], float]:
    """Seconds of a look at a store after 20 new messages, whose writer goes or stays."""

    def work() -> float:
        with closing(sqlite3.connect(path)) as writer:
            writer.execute(_GROW)
            writer.commit()
        begun = time.perf_counter()
        read()
        return time.perf_counter() - begun

    return work


def run(n_sessions: int = N_SESSIONS, n_runs: int = N_RUNS) -> list[Row]:
    """The rows of the benchmark table: after 20 new messages, and after none."""
    from tests.generators import write_store

    with tempfile.TemporaryDirectory() as folder:
        path = write_store(Path(folder) / "state.db", n_sessions, n_messages_per_session=N_MESSAGES)
        closed = _row(path, n_sessions, n_runs, "nobody has it open; all of it is copied, compared")
        with closing(sqlite3.connect(path)) as writer:
            writer.execute("PRAGMA journal_mode=WAL")
            writer.execute(_GROW)
            writer.commit()
            beside = _row(path, n_sessions, n_runs, "beside an open writer in WAL mode")
            nothing = _nothing_new(path, n_sessions, n_runs)
    return [beside, closed, nothing]


def _row(path: Path, n_sessions: int, n_runs: int, note: str) -> Row:
    """A refresh after 20 new messages beside a fresh read after 20 more."""
    from stateanalytics.snapshot import read

    fresh = partial(read, path, progress=False)
    with fresh() as snap:
        refresh = _grown(path, _following(snap))
        # The first refresh looks up which list names which message.
        refresh()
        times = [(refresh(), _grown(path, fresh)()) for _ in range(n_runs)]
    refresh_s, fresh_s = map(statistics.median, zip(*times, strict=True))
    return Row(
        work=f"refresh of {n_sessions:,} sessions and {n_sessions * N_MESSAGES:,} messages",
        ours_s=refresh_s,
        peer="reading again",
        peer_s=fresh_s,
        goal=f"at most {GOAL_S:g} s",
        is_met=refresh_s <= GOAL_S,
        note=f"after 20 new messages, {note}",
        differs=SAME,
    )


def _nothing_new(path: Path, n_sessions: int, n_runs: int) -> Row:
    from stateanalytics.snapshot import read

    with read(path, progress=False) as snap:
        seconds = median_s(partial(snap.refresh, progress=False), n_runs)
    return Row(
        work=f"refresh of {n_sessions:,} sessions, nothing new",
        ours_s=seconds,
        peer="",
        peer_s=None,
        goal=f"at most {NOTHING_NEW_S:g} s",
        is_met=seconds <= NOTHING_NEW_S,
    )


def _following(snap: Snapshot) -> Callable[[], object]:
    """Refresh after refresh, each of the last one's snapshot."""
    last = [snap]

    def look() -> None:
        later = last[0].refresh(progress=False)
        last[0].close()
        last[0] = later

    return look

"""A refresh of a store that grew a little, beside reading it again."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.measure import N_RUNS, SAME, Row, side_by_side

N_SESSIONS, N_MESSAGES = 10_000, 40
_GROW = """
INSERT INTO messages (id, created_at, content, role, lion_class)
SELECT 'new-' || hex(randomblob(8)), created_at, content, role, lion_class
FROM messages WHERE rowid <= 20
"""


def _grown(path: Path, read: object) -> None:
    with closing(sqlite3.connect(path)) as writer:
        writer.execute(_GROW)
        writer.commit()
    read()  # type: ignore[operator]


def run(n_sessions: int = N_SESSIONS, n_runs: int = N_RUNS) -> list[Row]:
    """The row of the benchmark table: fresh read over refresh, each after 20 new messages."""
    from stateanalytics.snapshot import read
    from tests.generators import write_store

    with tempfile.TemporaryDirectory() as folder:
        path = write_store(Path(folder) / "state.db", n_sessions, n_messages_per_session=N_MESSAGES)
        fresh = partial(read, path, progress=False)
        snap = fresh()
        refresh_s, fresh_s = side_by_side(
            partial(_grown, path, partial(snap.refresh, progress=False)),
            partial(_grown, path, fresh),
            n_runs,
        )
        snap.close()
    return [
        Row(
            work=f"refresh of {n_sessions:,} sessions and {n_sessions * N_MESSAGES:,} messages",
            ours_s=refresh_s,
            peer="reading again",
            peer_s=fresh_s,
            goal="faster than reading again",
            is_met=refresh_s < fresh_s,
            note="after 20 new messages",
            differs=SAME,
        )
    ]

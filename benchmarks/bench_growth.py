"""How seconds grow with the size: 10 k, 100 k and 1 M, each with its exponent.

Those of a report are in the topic report, which makes one of a million once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bench_detectors import judge
from benchmarks.bench_durations import made
from benchmarks.bench_states import AS_OF, entities
from benchmarks.measure import Row, grown, peak_mb
from tests.generators import write_store

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot

N_RUNS, MOST_MB = 3, 8_000
Work = Callable[[], object]


def run(n_sessions: int = 1_000_000) -> Iterator[Row]:
    """A row for each step that a fleet is sent through."""
    sizes = (n_sessions // 100, n_sessions // 10, n_sessions)
    with tempfile.TemporaryDirectory() as folder:
        # Each store is written when it is first wanted, and used by all that read one.
        stores = partial(_store, Path(folder))
        snaps = cache(lambda n: _read(stores(n)))

        def detected(n: int) -> Work:
            return _detected(snaps(n))

        works: dict[str, Callable[[int], Work]] = {
            "states and reasons of sessions": _states,
            "cumulative incidence of spells": _incidence,
            "read sessions, each with two messages": lambda n: partial(_read, stores(n)),
            "detectors and their agreement, sessions": detected,
            "failure clusters, sessions": lambda n: _clustered(snaps(n)),
        }
        for work, at in works.items():
            row = grown(work, sizes, at, N_RUNS)
            yield _with_peak(row, stores(n_sessions)) if at is detected else row


def _with_peak(row: Row, path: str) -> Row:
    """The row of the detectors with the memory that they take, which has a goal of its own."""
    peak = peak_mb(partial(judge, path))
    return replace(
        row,
        goal=f"{row.goal}, ≤ {MOST_MB:,} MB",
        is_met=row.is_met and peak <= MOST_MB,
        note=f"{row.note}; peak {peak:,.0f} MB with the snapshot and its reading",
    )


def _store(folder: Path, n_sessions: int) -> str:
    path = folder / f"{n_sessions}.db"
    if not path.exists():
        write_store(path, n_sessions, n_messages_per_session=2)
    return str(path)


def _read(path: str) -> Snapshot:
    from stateanalytics.snapshot import read

    snap = read(path, progress=False)
    snap.close()
    return snap


def _states(n: int) -> Work:
    from stateanalytics.state.states import states_and_reasons

    return partial(states_and_reasons, entities(n), as_of=AS_OF)


def _incidence(n: int) -> Work:
    from stateanalytics.survival.incidence import cumulative_incidence

    return partial(cumulative_incidence, made(n), by="kind")


def _detected(snap: Snapshot) -> Work:
    from stateanalytics.detectors import agreement, detect

    return lambda: agreement(detect(snap))


def _clustered(snap: Snapshot) -> Work:
    from stateanalytics.failures import clusters

    return partial(clusters, snap)

"""How processor seconds grow: README's lines at 10 k, 100 k, 300 k and 1 M, with exponents.

Those of a report are in the topic report, which makes one of a million once; those of SQL, which
runs in a process of its own, in the topic sql.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import stateanalytics as sa
from benchmarks.bench_archive import archived_anew, load
from benchmarks.bench_detectors import judge
from benchmarks.bench_durations import made
from benchmarks.bench_states import AS_OF, entities
from benchmarks.measure import Row, grown, peak_mb
from tests.generators import write_store

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot

N_RUNS, MOST_MB = 3, 8_000
SHARES = (0.01, 0.1, 0.3, 1.0)
MOST_EXPONENT, MOST_TIMES_SNAPSHOT = 1.05, 1.5
Work = Callable[[], object]


def run(n_sessions: int = 1_000_000) -> Iterator[Row]:
    """A row for each step that a fleet is sent through."""
    sizes = tuple(round(n_sessions * share) for share in SHARES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Each store is written when it is first wanted, and used by all that read one.
        snaps = cache(lambda n: sa.read(_store(folder, n), progress=False))

        def of_snapshot(step: Callable[[Snapshot], object]) -> Callable[[int], Work]:
            return lambda n: partial(step, snaps(n))

        works: dict[str, Callable[[int], Work]] = {
            "cumulative incidence, spells": _incidence,
            "states and reasons, sessions": _states,
            "`sa.read`, sessions of two messages": lambda n: partial(_read, _store(folder, n)),
            "`sa.attention`, sessions": of_snapshot(sa.attention),
            "`sa.audit`, sessions": of_snapshot(sa.audit),
            "`sa.failures.clusters`, sessions": of_snapshot(sa.failures.clusters),
            "`sa.detectors.disagreements(detect(snap))`, sessions": of_snapshot(_disagreements),
            "`sa.thresholds.recommend`, sessions": of_snapshot(sa.thresholds.recommend),
            "`sa.session` of one of so many": of_snapshot(_one_run),
            "`snap.archive`, sessions": lambda n: partial(archived_anew, snaps(n), folder / f"{n}"),
            "`sa.read` of that archive, sessions": lambda n: partial(load, folder / f"{n}"),
        }
        for work, at in works.items():
            yield grown(work, sizes, at, N_RUNS, MOST_EXPONENT)
        some, many = (_store(folder, n) for n in sizes[2:])
        peak = peak_mb(partial(judge, many))
        yield _of_memory("detectors and their agreement", n_sessions, peak, MOST_MB)
        read_mb, peak = peak_mb(partial(_read, some)), peak_mb(partial(_recommended, some))
        most_mb = MOST_TIMES_SNAPSHOT * read_mb
        yield _of_memory("`sa.thresholds.recommend`", sizes[2], peak, most_mb)


def _of_memory(work: str, n: int, peak: float, most_mb: float) -> Row:
    """A row whose figure is memory: that of reading the store is in it."""
    goal, note = f"≤ {most_mb:,.0f} MB", f"peak {peak:,.0f} MB with the snapshot and its reading"
    return Row(f"memory of {work}, {n:,} sessions", 0.0, "", None, goal, peak <= most_mb, note)


def _store(folder: Path, n_sessions: int) -> str:
    path = folder / f"{n_sessions}.db"
    if not path.exists():
        write_store(path, n_sessions, n_messages_per_session=2)
    return str(path)


def _read(path: str) -> Snapshot:
    snap = sa.read(path, progress=False)
    snap.close()
    return snap


def _recommended(path: str) -> object:
    return sa.thresholds.recommend(_read(path))


def _states(n: int) -> Work:
    from stateanalytics.state.states import states_and_reasons

    return partial(states_and_reasons, entities(n), as_of=AS_OF)


def _incidence(n: int) -> Work:
    from stateanalytics.survival.incidence import cumulative_incidence

    return partial(cumulative_incidence, made(n), by="kind")


def _disagreements(snap: Snapshot) -> object:
    return sa.detectors.disagreements(sa.detectors.detect(snap)).worst


def _one_run(snap: Snapshot) -> object:
    return sa.session(snap, snap.entities["entity_id"][snap.entities.height // 2])

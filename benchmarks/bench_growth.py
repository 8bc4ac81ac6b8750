"""How seconds grow with the size: 10 k, 100 k and 1 M, each with its exponent."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.bench_durations import made
from benchmarks.bench_report import whole_report
from benchmarks.bench_states import AS_OF, entities
from benchmarks.measure import Row, grown
from tests.generators import write_store

N_RUNS = 3
Work = Callable[[], object]


def run(n_sessions: int = 1_000_000) -> Iterator[Row]:
    """A row for each step that a fleet is sent through."""
    sizes = (n_sessions // 100, n_sessions // 10, n_sessions)
    with tempfile.TemporaryDirectory() as folder:
        # Each store is written when it is first wanted, and used by all that read one.
        stores = partial(_store, Path(folder))
        works: dict[str, Callable[[int], Work]] = {
            "states and reasons of sessions": _states,
            "cumulative incidence of spells": _incidence,
            "read sessions, each with two messages": lambda n: partial(_read, stores(n)),
            "detectors and their agreement, sessions": lambda n: _detected(stores(n)),
            "failure clusters, sessions": lambda n: _clustered(stores(n)),
            "report of sessions, reading included": lambda n: partial(whole_report, stores(n)),
        }
        for work, at in works.items():
            yield grown(work, sizes, at, N_RUNS)


def _store(folder: Path, n_sessions: int) -> str:
    path = folder / f"{n_sessions}.db"
    if not path.exists():
        write_store(path, n_sessions, n_messages_per_session=2)
    return str(path)


def _read(path: str) -> object:
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


def _detected(path: str) -> Work:
    from stateanalytics.detectors import agreement, detect

    snap = _read(path)
    return lambda: agreement(detect(snap))


def _clustered(path: str) -> Work:
    from stateanalytics.failures import clusters

    return partial(clusters, _read(path))

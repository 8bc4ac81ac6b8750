"""Many stores into one archive: in batches, on any executor; one that fails is a row."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.errors import ArgumentError, NoRoomError, check_number
from stateanalytics.io.archive.attempts import Attempt, note_attempts
from stateanalytics.io.archive.reading import Archived
from stateanalytics.systems import system_named
from stateanalytics.systems.archiving import ARCHIVED, Archiving, key_of, outcome
from stateanalytics.systems.places import Place
from stateanalytics.systems.reading import OnError

N_A_BATCH = 16
"""Sources that one task reads: enough that its start costs nothing, few enough to lose."""
_N_WAITING = 32
"""Tasks that wait for an executor that is not ours; how many run at once is its own matter."""


@dataclass(frozen=True)
class _Source:
    """A place as other processes can be told of it: a system is known there by its name."""

    path: Path
    label: str
    is_named: bool
    system: str
    archived: Archived | None

    @classmethod
    def of(cls, place: Place) -> _Source:
        system = "" if place.system is None else place.system.name
        return cls(place.path.absolute(), place.label, place.is_named, system, place.archived)

    def place(self) -> Place:
        system = system_named(self.system) if self.system else None
        return Place(self.path, self.label, self.is_named, system, self.archived)


@dataclass(frozen=True)
class _Batch:
    """Sources to read one after the other, and where to."""

    sources: tuple[_Source, ...]
    archiving: Archiving
    on_error: OnError


Run = Callable[[_Batch], pl.DataFrame]


def collect(
    sources: Sequence[str | Path] | str | Path,
    to: str | Path,
    *,
    executor: Any = None,
    jobs: int = 1,
    bodies: bool = False,
    redact: bool = False,
    on_error: OnError = "skip",
) -> pl.DataFrame:
    """Add what is new in many stores to one archive, which `read` reads like a store.

    Parameters
    ----------
    sources : path or sequence of paths
        Files, directories, patterns.
    to : str or pathlib.Path
        A folder that is an archive, or shall become one.
    executor : optional
        What runs the batches: anything with ``submit``, such as an executor of the standard
        library or Dask's ``Client().get_executor()``, or with ``apply_async``, such as Ray's
        ``ray.util.multiprocessing.Pool()``. It stays open. By default ``jobs`` processes.
    jobs : int
        Processes of our own; 1: none, all is read here.
    bodies, redact : bool
        As for `Snapshot.archive`.
    on_error : {"skip", "raise", "salvage"}
        As for `read`, of each store on its own.

    Returns
    -------
    polars.DataFrame, shape (n_sources, 6)
        The coverage: ``source``, ``system``, ``status`` (archived, unchanged or failed),
        ``n_rows`` and ``size_bytes`` that were added, ``message``.

    Raises
    ------
    ArgumentError
        If ``to`` is something else, lies in a source, or no source is named.

    Notes
    -----
    A source that did not change is skipped by the sizes and times of its files. What cannot
    be read is a row, and a finding ``source.not_collected`` of the archive until it can; a
    process that is killed costs the sources that it had not finished one more try, each on
    its own. What was interrupted goes on when it is asked again. Executors start processes
    afresh (``spawn``): in a script call this below ``if __name__ == "__main__":``.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> from stateanalytics.demo_data import demo_path
    >>> history = mkdtemp()
    >>> collect(demo_path() / "state.db", history)["status"].to_list()
    ['archived']
    >>> collect(demo_path() / "state.db", history)["status"].to_list()
    ['unchanged']
    """
    archiving = Archiving.at(to, bodies=bodies, redacted=redact)
    # What is neither a path nor several is a row of its own: no source must end the others.
    named: list[Any] = (
        list(sources)
        if isinstance(sources, Iterable) and not isinstance(sources, str)
        else [sources]
    )
    rows = collect_each(archiving, named, executor=executor, jobs=jobs, on_error=on_error)
    return pl.concat([pl.DataFrame(schema=ARCHIVED.dtypes), *rows])


def collect_each(
    archiving: Archiving,
    named: Sequence[str | Path],
    *,
    executor: Any = None,
    jobs: int = 1,
    on_error: OnError = "skip",
) -> Iterator[pl.DataFrame]:
    """Rows of `collect`, as they come.

    Yields
    ------
    polars.DataFrame
        Some sources: names of nothing first, then all in the order in which they were named.
    """
    check_number("jobs", jobs, 4, is_whole=True, is_above=True)
    found = list(archiving.places_of(named))
    places = [each for each in found if isinstance(each, Place)]
    yield from (each for each in found if isinstance(each, pl.DataFrame))
    batches = [
        _Batch(tuple(map(_Source.of, places[i : i + N_A_BATCH])), archiving, on_error)
        for i in range(0, len(places), N_A_BATCH)
    ]
    with ExitStack() as begun:
        if executor is None and jobs == 1:
            done: Iterator[pl.DataFrame] = map(_archived, batches)
        else:
            run = _Processes(begun).run if executor is None else _runs(executor)
            n_threads = jobs if executor is None else _N_WAITING
            threads = ThreadPoolExecutor(n_threads)
            # Whoever interrupts waits for what is being read, and for nothing else.
            begun.callback(threads.shutdown, cancel_futures=True)
            done = threads.map(lambda batch: _tried(run, batch), batches)
        for batch, rows in zip(batches, done, strict=True):
            _note(batch, rows)
            yield rows


def _archived(batch: _Batch) -> pl.DataFrame:
    """What became of the sources of a batch; runs in whatever process."""
    places = [source.place() for source in batch.sources]
    return pl.concat([batch.archiving.add_place(place, batch.on_error) for place in places])


def _tried(run: Run, batch: _Batch) -> pl.DataFrame:
    """What became of a batch; where its process died or refused, of each source on its own."""
    try:
        return run(batch)
    # Executors of others raise what they like; none of it ends what the others collect.
    except Exception as error:
        if len(batch.sources) > 1:
            alone = [_Batch((one,), batch.archiving, batch.on_error) for one in batch.sources]
            return pl.concat([_tried(run, each) for each in alone])
        (source,) = batch.sources
        is_killed = isinstance(error, BrokenProcessPool)
        why = "the process that read it was killed" if is_killed else f"{error}"[:300]
        message = why if is_killed else f"{type(error).__name__}: {why}"
        return outcome(source.label, source.system, "failed", message=message)


def _runs(executor: Any) -> Run:
    """How an executor of somebody else is asked."""
    if hasattr(executor, "submit"):
        return lambda batch: executor.submit(_archived, batch).result()
    if hasattr(executor, "apply_async"):
        return lambda batch: executor.apply_async(_archived, (batch,)).get()
    raise ArgumentError(
        f"collect needs an executor with submit or apply_async; found {executor!r:.60}.",
        "executor=concurrent.futures.ProcessPoolExecutor(), or jobs=4",
    )


class _Processes:
    """A process for each thread that asks, so that one that is killed costs no other its work."""

    def __init__(self, begun: ExitStack) -> None:
        self.begun = begun
        self.mine = threading.local()

    def run(self, batch: _Batch) -> pl.DataFrame:
        if not hasattr(self.mine, "pool"):
            # Threads of polars do not survive a fork.
            context = multiprocessing.get_context("spawn")
            self.mine.pool = ProcessPoolExecutor(1, mp_context=context)
            self.begun.callback(self.mine.pool.shutdown)
        try:
            rows: pl.DataFrame = self.mine.pool.submit(_archived, batch).result()
        except BrokenProcessPool:
            del self.mine.pool
            raise
        return rows


def _note(batch: _Batch, rows: pl.DataFrame) -> None:
    """Keep a note of what failed in the archive, for whoever reads it."""
    archiving = batch.archiving
    keys = [key_of(source.place())[0] for source in batch.sources]
    told = list(zip(keys, rows.iter_rows(named=True), strict=True))
    failed = [
        Attempt(key, row["source"], archiving.clock(), row["message"])
        for key, row in told
        if row["status"] == "failed"
    ]
    if not archiving.root.exists():
        return
    try:
        note_attempts(
            archiving.root, failed, [key for key, row in told if row["status"] != "failed"]
        )
    except OSError as error:
        raise NoRoomError(
            f"Nothing more can be written to the archive {str(archiving.root)!r}: "
            f"{error.strerror or error}. What was archived before is there still.",
            "make room, or archive to a folder that you may write to",
        ) from None

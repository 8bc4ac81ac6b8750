"""Many stores into one archive: in batches, on any executor; one that fails is a row."""

from __future__ import annotations

import multiprocessing
import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.errors import ArgumentError, check_number, in_short
from stateanalytics.io.archive.manifests import Manifest, last_runs, source_key
from stateanalytics.io.archive.reading import Archived
from stateanalytics.io.budget import Budget
from stateanalytics.systems import system_named
from stateanalytics.systems.archiving import ARCHIVED, Archiving, key_of, outcome
from stateanalytics.systems.base import expanded
from stateanalytics.systems.places import Place, is_pattern
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
    key: tuple[str, str]
    """Of the machine that asks: whichever reads it, it is the same source."""
    last: Manifest | None
    """Its last run: to look for it in the archive takes longer than to see what it says."""

    @classmethod
    def of(cls, place: Place, runs: Mapping[str, Manifest]) -> _Source:
        system = "" if place.system is None else place.system.name
        path, key = place.path.absolute(), key_of(place)
        return cls(path, place.label, place.is_named, system, place.archived, key, runs.get(key[0]))

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
    budget: Budget | str | None = None,
) -> pl.DataFrame:
    """Add what is new in many stores to one archive, which `read` reads like a store.

    Parameters
    ----------
    sources : path or sequence of paths
        Files, directories, patterns; none: the usual places.
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
        As for `read`, of each store on its own: what ends that is a row here.
    budget : Budget or str, optional
        As for `read`, of each source on its own.

    Returns
    -------
    polars.DataFrame, shape (n_sources, 6)
        The coverage: ``source``, ``system``, ``status`` (archived, unchanged or failed),
        ``n_rows`` and ``size_bytes`` that were added, ``message``.

    Raises
    ------
    ArgumentError
        If ``to`` is something else, ``jobs`` no number, or ``executor`` no executor.
    NoRoomError
        If the archive cannot be written to.

    Notes
    -----
    A source that did not change is skipped by the sizes and times of its files. What cannot
    be read, and what is gone that a name or a pattern gave, is a row, and a finding
    ``archive.not_collected`` of the archive until it can be. A process that is killed costs
    the sources that it had not finished one more try, each on its own. What was interrupted
    goes on when it is asked again. Executors start processes afresh (``spawn``): in a script
    call this below ``if __name__ == "__main__":``.

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
    archiving = Archiving.at(to, bodies=bodies, redacted=redact, budget=budget)
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
    runs = last_runs(archiving.root)
    absent = _absent(runs, named, [each for each in found if isinstance(each, pl.DataFrame)])
    is_absent = {row["source"].item() for _, row in absent}
    there = [_key_of_name(str(name)) for name in named if str(name) not in is_absent]
    archiving.note(absent, there)
    yield from (row for _, row in absent)
    asked = [_Source.of(place, runs) for place in places]
    batches = [
        _Batch(tuple(asked[i : i + N_A_BATCH]), archiving, on_error)
        for i in range(0, len(asked), N_A_BATCH)
    ]
    if executor is None and jobs == 1:
        for batch in batches:
            yield _noted(batch, _archived(batch))
        archiving.drop_old_notes()
        return
    with ExitStack() as begun:
        run = _Processes(begun).run if executor is None else _runs(executor)
        threads = ThreadPoolExecutor(jobs if executor is None else _N_WAITING)
        try:
            done = threads.map(lambda batch: _tried(run, batch), batches)
            for batch, rows in zip(batches, done, strict=True):
                yield _noted(batch, rows)
        finally:
            # Whoever interrupts waits for what is being read, and for nothing else.
            threads.shutdown(cancel_futures=True)
    archiving.drop_old_notes()


def _absent(
    runs: Mapping[str, Manifest], named: Sequence[str | Path], nothing: Sequence[pl.DataFrame]
) -> list[tuple[str, pl.DataFrame]]:
    """Names of nothing, and sources of the archive that patterns gave and that are gone."""
    node = platform.node()
    rows = [(_key_of_name(row["source"].item()), row) for row in nothing]
    patterns = [os.path.realpath(expanded(str(name))) for name in named if is_pattern(str(name))]
    gone = [
        (key, outcome(run.place, "", "failed", message="It is not there any more."))
        for key, run in runs.items()
        if any(fnmatch(run.place, pattern) for pattern in patterns)
        and key == source_key(node, run.place)
        and not os.path.lexists(run.place)
    ]
    return rows + gone


def _key_of_name(name: str) -> str:
    """The key of what lies at a name, or would."""
    return source_key(platform.node(), os.path.realpath(expanded(name)))


def _archived(batch: _Batch) -> pl.DataFrame:
    """What became of the sources of a batch; runs in whatever process."""
    return pl.concat(
        [
            batch.archiving.add_place(source.place(), batch.on_error, source.key, source.last)
            for source in batch.sources
        ]
    )


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
        message = f"{type(error).__name__}: {str(error)[:300]}"
        if isinstance(error, BrokenProcessPool):
            message = "the process that read it was killed"
        return outcome(source.label, source.system, "failed", message=message)


def _runs(executor: Any) -> Run:
    """How an executor of somebody else is asked."""
    if hasattr(executor, "submit"):
        return lambda batch: executor.submit(_archived, batch).result()
    if hasattr(executor, "apply_async"):
        return lambda batch: executor.apply_async(_archived, (batch,)).get()
    raise ArgumentError(
        f"collect needs an executor with submit or apply_async; found {in_short(executor)}.",
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
            self.mine.pool = ProcessPoolExecutor(
                1, mp_context=context, initializer=_end_with_its_parent
            )
            self.begun.callback(self.mine.pool.shutdown)
        try:
            rows: pl.DataFrame = self.mine.pool.submit(_archived, batch).result()
        except BrokenProcessPool:
            del self.mine.pool
            raise
        return rows


def _end_with_its_parent() -> None:
    """End this process as soon as the one that started it is gone, even if that was killed.

    A worker has both ends of the pipe that its tasks come through, and would wait for ever.
    What is half written in an archive does not count.
    """
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _noted(batch: _Batch, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of a batch, noted in the archive."""
    keys = [source.key[0] for source in batch.sources]
    each = [rows[i : i + 1] for i in range(rows.height)]
    batch.archiving.note(list(zip(keys, each, strict=True)))
    return rows

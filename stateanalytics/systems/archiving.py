"""From stores to an archive: each source on its own, in batches, on any executor."""

from __future__ import annotations

import multiprocessing
import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, losses_of
from stateanalytics.errors import (
    ArgumentError,
    NoRoomError,
    SourceError,
    StateAnalyticsError,
    check_number,
    in_short,
)
from stateanalytics.io.archive import compacting, manifests
from stateanalytics.io.archive.delta import DeltaArchive, name_of
from stateanalytics.io.archive.manifests import SCHEMA_VERSION, Manifest, last_runs, source_key
from stateanalytics.io.archive.reading import is_archive
from stateanalytics.io.archive.writing import Options, archive_part, masked_text, no_more_room
from stateanalytics.io.as_of import wall_clock
from stateanalytics.io.budget import Budget, spend
from stateanalytics.io.cache import digest_of_files
from stateanalytics.io.files import is_url, refuse_scheme
from stateanalytics.io.findings import OF_POOLING
from stateanalytics.io.outputs import refuse_inputs
from stateanalytics.io.parts import Parts
from stateanalytics.systems import detail_frames, system_named
from stateanalytics.systems.base import expanded
from stateanalytics.systems.places import Place, companions_of, files_of, find_places, is_pattern
from stateanalytics.systems.reading import OnError, read_place

ARCHIVED = schema.Frame(
    "archived",
    "one source, and what became of it in an archive",
    ("source",),
    (
        *schema.SOURCES.named("source", "system"),
        schema.Column("status", schema.TEXT, "archived, unchanged, same (as another) or failed"),
        schema.Column("n_rows", schema.INTEGER, "rows that the archive did not hold yet", "rows"),
        schema.Column("size_bytes", schema.INTEGER, "size of these rows in the archive", "bytes"),
        schema.Column("message", schema.TEXT, "why, as text"),
    ),
)


@dataclass(frozen=True)
class Archiving:
    """An archive that sources are added to.

    Attributes
    ----------
    root : pathlib.Path
        Its folder, which need not exist yet.
    options : Options
        Which texts are kept.
    clock : callable
        The wall clock.
    budget : Budget, optional
        Limits of reading each source.
    on_error : {"skip", "raise", "salvage"}
        As for `read`, for each source.
    remote : DeltaArchive, optional
        The archive at a URL that the folder is a private copy of.
    """

    root: Path
    options: Options
    clock: Callable[[], datetime] = wall_clock
    budget: Budget | None = None
    on_error: OnError = "skip"
    remote: DeltaArchive | None = None

    @classmethod
    def at(
        cls,
        to: str | Path,
        *,
        bodies: bool = False,
        redacted: bool = False,
        budget: Budget | str | None = None,
        on_error: OnError = "skip",
    ) -> Archiving:
        """The archive in a folder, or at a URL.

        Raises
        ------
        ArgumentError
            If no folder is named, or the folder holds something else.
        """
        if not isinstance(to, str | Path) or not str(to).strip():
            raise ArgumentError(
                f"An archive needs the name of a folder; found {in_short(to)}.",
                'name one, such as "history/"',
                shell="name one, such as --to history/",
            )
        options = Options(bodies=bodies, redacted=redacted)
        limits = None if budget is None else Budget.of(budget)
        if is_url(to):
            remote = DeltaArchive.at(str(to))
            return cls(remote.root, options, budget=limits, on_error=on_error, remote=remote)
        refuse_scheme(to)
        # Through a link the archive is written to the place that the link leads to.
        root = Path(os.path.realpath(expanded(str(to))))
        may_be_archive = root.is_dir() and (is_archive(root) or not any(root.iterdir()))
        if root.exists() and not may_be_archive:
            raise ArgumentError(
                f"{str(to)!r} is not an archive, and it is not empty.",
                'name a new folder, such as "history/"',
                shell="name a new folder, such as --to history/",
            )
        return cls(root, options, budget=limits, on_error=on_error)

    def places_of(self, named: Sequence[str | Path]) -> tuple[list[Place], list[Row]]:
        """The sources that paths name, deduplicated; rows of `ARCHIVED` for names of nothing."""
        places: dict[Path, Place] = {}
        missing = []
        for name in [[path] for path in named] or [[]]:
            try:
                found, _ = find_places(name)
                folders = [expanded(str(path)) for path in name]
                archives = [place.archived.root for place in found if place.archived is not None]
                self._refuse_inputs([*archives, *(each for each in folders if each.is_dir())])
            except (SourceError, ArgumentError) as error:
                label = str(name[0]) if name else ""
                missing.append(outcome(label, "", "failed", message=_with_hint(error)))
                continue
            for place in found:
                places.setdefault(place.path.resolve(), place)
        return list(places.values()), missing

    def add_source(self, source: Source) -> Row:
        """Archive a source: a row of `ARCHIVED`, even where that fails."""
        began, label, last = self.clock(), source.place.label, source.last
        system = "" if last is None else last.system
        try:
            named = system_named(source.system) if source.system else None
            place = replace(source.place, system=named)
            if source.is_unchanged or self.is_unchanged(place, last):
                return outcome(label, system, "unchanged")
            with spend(self.budget or Budget()):
                part = read_place(place, bodies=self.options.bodies, on_error=self.on_error)
            try:
                inputs = [place.path, *companions_of(place, part.system), *part.inputs]
                refuse_inputs(self.root, inputs)
                # Files that only the content names are not known before it is opened: no digest.
                files = "" if part.inputs else self._digest(place, part.system, began)
                return self.add(part, *source.key, files=files, observed_at=began)
            finally:
                for store in part.stores:
                    store.close()
        except (SourceError, ArgumentError, NoRoomError) as error:
            return outcome(label, system, "failed", message=_with_hint(error))

    def is_unchanged(self, place: Place, last: Manifest | None) -> bool:
        """Whether the files of a source have the sizes and times that its last run found."""
        if last is None:
            return False
        files = self._digest(place, last.system, self.clock())
        return files != "" and files == last.files

    def _digest(self, place: Place, system: str, now: datetime) -> str:
        limits = () if self.budget is None else (self.budget,)
        words = (self.options, self.on_error, SCHEMA_VERSION, manifests.package_version(), *limits)
        return digest_of_files(files_of(place, system), now, *words)

    def add(self, part: Parts, key: str, where: str, *, files: str, observed_at: datetime) -> Row:
        """Archive one source that was read."""
        if not part.system:
            messages = part.findings["message"].to_list()
            message = messages[0] if messages else "nothing in it"
            return outcome(part.label, "", "failed", message=message)
        written = archive_part(
            part,
            self.root,
            key,
            detail_frames(),
            place=where,
            files=files,
            options=self.options,
            observed_at=observed_at,
        )
        lost = losses_of(part.findings).filter(severity="warning")
        with_place = pl.coalesce(pl.format("{} ({})", "message", "table"), "message")
        missing = str(lost.select(with_place.first()).item() or "")
        status = "unchanged" if written is None else "archived"
        return outcome(part.label, part.system, status, written, message=missing)

    def add_facts(
        self, facts: Facts, named: Sequence[str | Path], *, is_compacted: bool = False
    ) -> pl.DataFrame:
        """Archive the sources of facts that were read from what paths name.

        Raises
        ------
        ArgumentError
            If the archive would lie in an input, or the facts are not complete.
        """
        self._refuse_inputs(facts.inputs)
        if facts.findings["code"].eq("archive.some_weeks").any():
            raise ArgumentError(
                "An archive needs all data of a source; only some weeks of this one were read.",
                'read it without weeks: sa.read("history/").archive("other/")',
            )
        if facts.findings["code"].is_in(["time.after_as_of", "time.not_recorded"]).any():
            raise ArgumentError(
                "An archive needs all data of a source; this was read as of an earlier instant.",
                'read it without as_of: sa.read("state.db").archive("history/")',
            )
        places = {place.label: place for place in find_places(named)[0]}
        rows, notes = [], []
        for source in facts.sources.iter_rows(named=True):
            label = source["source"]
            if source["same_as"] is not None:
                message = f"the same as {source['same_as']}"
                rows.append(outcome(label, source["system"], "same", message=message))
                continue
            place = places.get(label)
            key = key_of(place) if place else (source_key(platform.node(), label), label)
            if self.remote is not None:
                self.remote.fetch(key[:1])
            part = _part_of(facts, source)
            rows.append(self.add(part, *key, files="", observed_at=self.clock()))
            notes.append((key[0], rows[-1]))
        self.note(notes)
        self.tidy(is_all=is_compacted)
        return pl.DataFrame(rows, ARCHIVED.dtypes)

    def note(self, rows: Sequence[tuple[str, Row]], there: Sequence[str] = ()) -> None:
        """Record in the archive which sources were collected and which failed.

        Parameters
        ----------
        rows : sequence of (str, dict)
            Keys of sources, each with its row of `ARCHIVED`.
        there : sequence of str
            Keys of sources that failed earlier and exist now.

        Raises
        ------
        NoRoomError
            If the archive cannot be written to.
        """
        if not self.root.exists():
            return
        now, is_masked = self.clock(), self.options.redacted
        collected = {key: row["status"] for key, row in rows if row["status"] in manifests.STATUSES}
        failed = []
        for key, row in rows:
            if row["status"] == "failed":
                texts = [row["source"], row["message"]]
                label, message = map(masked_text, texts) if is_masked else texts
                # What to type now is no news for who reads the archive later.
                failed.append(manifests.Attempt(key, label, now, message.partition(_HINT)[0]))
        if self.remote is not None:
            self.remote.note(now, collected, failed, there)
        try:
            manifests.note_attempts(self.root, failed, [*there, *collected])
            manifests.note_looks(self.root, collected, now)
        except OSError as error:
            raise no_more_room(self.root, error) from None

    def tidy(self, *, is_all: bool = False) -> None:
        """Delete notes that newer ones replace, and join files: many ones, or ``is_all``.

        What is new is appended to the archive at a URL, where that is.

        Raises
        ------
        NoRoomError
            If the archive cannot be written to.
        """
        if self.remote is not None:
            self.remote.publish()
            if is_all:
                self.remote.compact()
            return
        try:
            manifests.drop_old_looks(self.root, self.clock())
            compacting.compact(self.root, is_forced=is_all)
        except OSError as error:
            raise no_more_room(self.root, error) from None

    def stale(self) -> pl.DataFrame:
        """The sources that were not collected for a week; see `manifests.stale`."""
        looks, _ = manifests.read_looks(self.root)
        rows = [
            (run.label, max(run.observed_at, looks[key].at) if key in looks else run.observed_at)
            for key, run in last_runs(self.root).items()
        ]
        shape = {"source": schema.TEXT, "looked_at": schema.MOMENT}
        return manifests.stale(pl.DataFrame(rows, schema=shape, orient="row"))

    def _refuse_inputs(self, inputs: Iterable[Path]) -> None:
        """Refuse an archive that was itself read, or that lies in an input."""
        paths = list(inputs)
        url = None if self.remote is None else self.remote.url
        if any(path.resolve() == self.root or name_of(path).rstrip("/") == url for path in paths):
            raise ArgumentError(
                f"{url or str(self.root)!r} is the archive itself, which was read.",
                'archive it to another folder, such as "copy/"',
                shell="archive it to another folder, such as --to copy/",
            )
        refuse_inputs(self.root, paths)


def key_of(place: Place) -> tuple[str, str]:
    """The key of a source, the same in every archive, and its path."""
    if place.archived is not None and place.archived.last is not None:
        return place.archived.last.key, place.archived.last.place
    where = str(place.path.resolve())
    return source_key(platform.node(), where), where


def _part_of(facts: Facts, source: Mapping[str, Any]) -> Parts:
    """The rows of one source, without the findings of pooling."""
    own = pl.col("source") == source["source"]
    details = {name: frame.filter(own) for name, frame in facts.details.items()}
    return Parts(
        source["system"],
        source["format"],
        facts.entities.filter(own),
        facts.transitions.filter(own),
        facts.events.filter(own),
        facts.findings.filter(own & ~pl.col("code").is_in(OF_POOLING)),
        details={name: frame for name, frame in details.items() if frame.height},
        label=source["source"],
        size_bytes=source["size_bytes"],
        is_live=source["is_live"],
    )


Row = dict[str, Any]
"""One row of `ARCHIVED`."""


def outcome(
    source: str, system: str, status: str, written: Manifest | None = None, *, message: str = ""
) -> Row:
    """One row of `ARCHIVED`."""
    shards = () if written is None else written.shards
    new = [shard for shard in shards if shard.frame != "findings"]
    return {
        "source": source,
        "system": system,
        "status": status,
        "n_rows": sum(shard.n_rows for shard in new),
        "size_bytes": sum(shard.n_bytes for shard in new),
        "message": message,
    }


N_A_BATCH = 16
"""Sources of a task: enough to outweigh its start, few enough to repeat after a crash."""
N_BEFORE_COMPACTING = 16
"""Tasks whose small files are joined at once, so that they do not become a million."""
_HINT = " Hint: "
_N_WAITING = 32
"""Tasks that wait for an executor of the caller, which decides how many run at a time."""


@dataclass(frozen=True)
class Source:
    """A place to collect, and what the process that started the collection knows of it.

    Attributes
    ----------
    place : Place
        The source, without its system, whose functions cannot be sent to another process.
    system : str
        The name of that; empty: not known.
    key : (str, str)
        Its `key_of` on that machine, so that it does not depend on the reader.
    last : Manifest or None
        Its last run, as searching the archive for it takes longer than sending it.
    is_unchanged : bool
        Whether that process has seen that it did not change.
    """

    place: Place
    system: str
    key: tuple[str, str]
    last: Manifest | None
    is_unchanged: bool = False


Run = Callable[[Archiving, Sequence[Source]], list[Row]]


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
    compact: bool = False,
) -> pl.DataFrame:
    """Add what is new in many stores to one archive, which `read` reads like a store.

    Parameters
    ----------
    sources : path or sequence of paths
        Files, directories, patterns; none: the usual places.
    to : str or pathlib.Path
        The folder of an archive, or a URL such as ``s3://bucket/history``; a new one is created.
    executor : optional
        The executor of the batches: anything with ``submit``, such as an executor of the standard
        library or Dask's ``Client().get_executor()``, or with ``apply_async``, such as Ray's
        ``ray.util.multiprocessing.Pool()``. It stays open. By default ``jobs`` processes run.
    jobs : int
        Number of processes; 1: all sources are read in this one. A script that asks for more
        needs ``if __name__ == "__main__":``, as each process imports it.
    bodies, redact : bool
        As for `Snapshot.archive`.
    on_error : {"skip", "raise", "salvage"}
        As for `read`, for each store; an error is a row here.
    budget : Budget or str, optional
        As for `read`, for each source.
    compact : bool
        As for `Snapshot.archive`.

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
    StoreBusyError
        If the place that a URL names does not answer in time.
    MissingComponentError
        If a URL needs the extra ``delta``.

    Notes
    -----
    A source is skipped where the sizes and times of its files did not change. One that cannot
    be read, or that a name or a pattern gave earlier and that no longer exists, is a row, and
    a finding ``archive.not_collected`` of the archive until it can be read. After a process
    is killed, each source that it had not finished is tried one more time on its own. An
    interrupted collection continues with the next call; at a URL, where new rows are sent
    after every 256 sources and at the end, what was not sent is collected again. Executors
    start new processes (``spawn``): in a script call this below
    ``if __name__ == "__main__":``.

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
    archiving = Archiving.at(to, bodies=bodies, redacted=redact, budget=budget, on_error=on_error)
    # A source of a wrong type is a row of its own, so that it does not stop the others.
    named: list[Any] = (
        list(sources)
        if isinstance(sources, Iterable) and not isinstance(sources, str)
        else [sources]
    )
    rows = list(collect_each(archiving, named, executor=executor, jobs=jobs))
    if compact:
        archiving.tidy(is_all=True)
    return pl.DataFrame(rows, ARCHIVED.dtypes)


def compact_archive(archive: str | Path) -> bool:
    """Join the files of an archive into one table per frame and week, over all sources.

    Parameters
    ----------
    archive : str or pathlib.Path
        The folder or URL; a folder that an older version wrote is rewritten, too.

    Returns
    -------
    bool
        Whether anything was written; False where its files are joined already.

    Raises
    ------
    ArgumentError
        If it is no archive, or one of its runs cannot be read.
    NoRoomError
        If it cannot be written to; nothing that was archived is lost.

    Notes
    -----
    `collect` and `Snapshot.archive` do so themselves once there are more than 64 small files.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> from stateanalytics.demo_data import demo_path
    >>> history = mkdtemp()
    >>> collected = collect(demo_path() / "state.db", history)
    >>> compact_archive(history), compact_archive(history)
    (True, False)
    """
    archiving = Archiving.at(archive)
    root = archiving.root
    if not root.is_dir() or not is_archive(root):
        raise ArgumentError(
            f"There is no archive {str(archive)!r} to compact.",
            'make one: sa.read("state.db").archive("history/")',
            shell="make one: stateanalytics archive state.db --to history/",
        )
    wrong = [path for each in manifests.runs_by_source(root).values() for path in each.wrong]
    if wrong:
        raise ArgumentError(
            f"The archive {str(archive)!r} has {len(wrong):,} runs that cannot be read, "
            f"such as {wrong[0].name!r}; it stays as it is.",
            'delete them, or write a new archive: sa.read("history/").archive("new/")',
            shell="delete them, or write a new archive: stateanalytics archive history/ --to new/",
        )
    if archiving.remote is not None:
        return archiving.remote.compact()
    try:
        return compacting.compact(root, is_forced=True)
    except OSError as error:
        raise no_more_room(root, error) from None


def collect_each(
    archiving: Archiving,
    named: Sequence[str | Path],
    *,
    executor: Any = None,
    jobs: int = 1,
) -> Iterator[Row]:
    """Rows of `collect`, as soon as they are known.

    Yields
    ------
    dict
        A source: first names of nothing, then the others in the order of their names.
    """
    check_number("jobs", jobs, 4, is_whole=True, is_above=True)
    if archiving.remote is not None and executor is not None:
        raise ArgumentError(
            "An executor cannot write to a URL: its machines do not see the private copy.",
            "use jobs=4, or collect on each machine: several may write to one URL",
        )
    places, missing = archiving.places_of(named)
    runs = last_runs(archiving.root)
    absent = _absent(runs, named, missing)
    is_absent = {row["source"] for _, row in absent}
    there = [_key_of_path(str(name)) for name in named if str(name) not in is_absent]
    # A new archive takes notes after its first source: names of nothing alone make none.
    late = [] if archiving.root.exists() else absent
    archiving.note(absent, there)
    yield from (row for _, row in absent)
    prepared = [
        Source(
            replace(place, path=place.path.absolute(), system=None),
            "" if place.system is None else place.system.name,
            key,
            runs.get(key[0]),
        )
        for place, key in zip(places, map(key_of, places), strict=True)
    ]
    if archiving.remote is not None:
        # Of the others nothing is copied, so what is written from now on has to wait: compared
        # with nothing, all of their rows would be new.
        prepared = [
            replace(source, is_unchanged=archiving.is_unchanged(place, source.last))
            for source, place in zip(prepared, places, strict=True)
        ]
        archiving.remote.fetch(
            source.key[0] for source in prepared if source.last and not source.is_unchanged
        )
    batches = [prepared[i : i + N_A_BATCH] for i in range(0, len(prepared), N_A_BATCH)]
    if executor is None and jobs == 1:
        one_by_one = (_archived(archiving, batch) for batch in batches)
        yield from _noted(archiving, batches, one_by_one, late)
        return
    with ExitStack() as begun:
        run = _Processes(begun).run if executor is None else _runs(executor)
        threads = ThreadPoolExecutor(jobs if executor is None else _N_WAITING)
        try:
            done = threads.map(lambda batch: _tried(run, archiving, batch), batches)
            yield from _noted(archiving, batches, done, late)
        finally:
            # An interrupt waits only for batches that are being read.
            threads.shutdown(cancel_futures=True)


def _noted(
    archiving: Archiving,
    batches: Sequence[Sequence[Source]],
    rows: Iterable[list[Row]],
    late: Sequence[tuple[str, Row]],
) -> Iterator[Row]:
    """The rows of batches, which are recorded in the archive, too, as are the late ones.

    It is tidied at their end, and after many of them.
    """
    waiting = [*late]
    for number, (batch, of_batch) in enumerate(zip(batches, rows, strict=True), 1):
        waiting += [(each.key[0], row) for each, row in zip(batch, of_batch, strict=True)]
        if archiving.root.exists():
            archiving.note(waiting)
            waiting.clear()
        yield from of_batch
        if number % N_BEFORE_COMPACTING == 0:
            archiving.tidy()
    archiving.tidy()


def _absent(
    runs: Mapping[str, Manifest], named: Sequence[str | Path], nothing: Sequence[Row]
) -> list[tuple[str, Row]]:
    """Names of nothing, and archived sources of the patterns that no longer exist."""
    node = platform.node()
    rows = [(_key_of_path(row["source"]), row) for row in nothing]
    patterns = [os.path.realpath(expanded(str(name))) for name in named if is_pattern(str(name))]
    no_longer_there = [
        (key, outcome(run.place, "", "failed", message="It no longer exists."))
        for key, run in runs.items()
        if any(fnmatch(run.place, pattern) for pattern in patterns)
        and key == source_key(node, run.place)
        and not os.path.lexists(run.place)
    ]
    return rows + no_longer_there


def _with_hint(error: StateAnalyticsError) -> str:
    """What is wrong and what to type, as commands say it that stop there."""
    return error.problem + (f"{_HINT}{error.shell}" if error.shell else "")


def _key_of_path(name: str) -> str:
    """The key of a source at a path, whether it exists or not."""
    return source_key(platform.node(), os.path.realpath(expanded(name)))


def _archived(archiving: Archiving, sources: Sequence[Source]) -> list[Row]:
    """Archive the sources of a batch, in any process."""
    return [archiving.add_source(source) for source in sources]


def _tried(run: Run, archiving: Archiving, sources: Sequence[Source]) -> list[Row]:
    """Archive a batch; where its process died or refused it, each source on its own."""
    try:
        return run(archiving, sources)
    # Other executors may raise anything, which must not stop other batches.
    except Exception as error:
        if len(sources) > 1:
            return [row for source in sources for row in _tried(run, archiving, [source])]
        [source] = sources
        message = f"{type(error).__name__}: {str(error)[:300]}"
        if isinstance(error, BrokenProcessPool):
            message = "the process that read it was killed"
        return [outcome(source.place.label, source.system, "failed", message=message)]


def _runs(executor: Any) -> Run:
    """A function that runs a batch on an executor of the caller."""
    if hasattr(executor, "submit"):
        return lambda *batch: executor.submit(_archived, *batch).result()
    if hasattr(executor, "apply_async"):
        return lambda *batch: executor.apply_async(_archived, batch).get()
    raise ArgumentError(
        f"collect needs an executor with submit or apply_async; found {in_short(executor)}.",
        "executor=concurrent.futures.ProcessPoolExecutor(), or jobs=4",
    )


class _Processes:
    """A process for each thread, so that a killed one does not cost the work of others."""

    def __init__(self, begun: ExitStack) -> None:
        self.begun = begun
        self.mine = threading.local()

    def run(self, archiving: Archiving, sources: Sequence[Source]) -> list[Row]:
        if not hasattr(self.mine, "pool"):
            # Threads of polars do not survive a fork.
            context = multiprocessing.get_context("spawn")
            self.mine.pool = ProcessPoolExecutor(
                1, mp_context=context, initializer=_end_with_its_parent
            )
            self.begun.callback(self.mine.pool.shutdown)
        try:
            rows: list[Row] = self.mine.pool.submit(_archived, archiving, sources).result()
        except BrokenProcessPool:
            del self.mine.pool
            raise
        return rows


def _end_with_its_parent() -> None:
    """End this process as soon as its parent has ended, even if that was killed.

    A worker holds both ends of the pipe of its tasks, and would wait for ever. An archive
    ignores files that are half written.
    """
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()

"""An archive at a URL: Delta tables, which several machines append to and other tools read.

::

    <url>/runs              a row a run: its manifest as JSON
    <url>/notes             a row each time that a source was collected, or could not be
    <url>/tables/<frame>    the rows of all runs, partitioned by week

Reading copies what is needed into a private folder, which is an archive like any other. To
collect into a URL is to collect into such a copy, and to append its new runs to the tables:
first their rows, last the runs themselves. Rows whose run is not in ``runs`` do not count.
Credentials and settings of a place are those that the library takes from the environment.
"""

from __future__ import annotations

import atexit
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from shutil import rmtree
from typing import Any
from urllib.parse import urlsplit

import polars as pl

from stateanalytics.core.schema import INTEGER, MOMENT, TEXT
from stateanalytics.core.text import shell_word
from stateanalytics.errors import (
    ArgumentError,
    DamagedStoreError,
    NotAStoreError,
    StoreBusyError,
    needing,
)
from stateanalytics.io.archive import manifests
from stateanalytics.io.archive.compacting import Piece, write_table
from stateanalytics.io.archive.manifests import ARCHIVE_VERSION, Attempt
from stateanalytics.io.archive.reading import ChosenWeeks, read_shard
from stateanalytics.io.cells import EARLIEST, LATEST
from stateanalytics.io.outputs import put_whole
from stateanalytics.io.processes import make_private_folder

RUNS, NOTES = "runs", "notes"
_NOTES = pl.Schema(dict.fromkeys(("key", "status", "label", "message"), TEXT) | {"at": MOMENT})
_FAILED, _THERE = "failed", "there"
_IS_NOTE = (
    # Keys become paths, which must not lead out of the copy.
    pl.col("key").str.contains("^[0-9a-f]{16}$").fill_null(value=False)
    & pl.col("at").dt.epoch("s").is_between(EARLIEST, LATEST).fill_null(value=False)
    & pl.all_horizontal(pl.col("status", "label", "message").is_not_null())
)
"""Whether a row is one that `DeltaArchive.note` writes."""
_OWN = pl.Schema({"week": TEXT, "run": TEXT, "row": INTEGER})
"""Columns of a table that its frame does not have."""
_RUNS = pl.Schema({"run": TEXT, "manifest": TEXT, "version": INTEGER})
_BOUNDS = {"connect_timeout": "5s", "timeout": "60s", "retry_timeout": "60s", "max_retries": "2"}
"""Of one request: without them the library would try for minutes."""
_SLOW_S = 20
"""To open a table takes a few small requests: with more than this, a read would take an hour."""
_N_TRIES = 10
_WEEKS_AT_ONCE = 13
"""Of which the rows of a frame have to fit into memory."""
_MOST_BYTES = 4 * manifests.MAX_TABLE_BYTES
"""Of one query: a small file may hold any number of rows, and they have to fit into memory."""
_REASONS = {
    "answered slowly": f"it took more than {_SLOW_S} s for a few small requests",
    "timed out": "it did not answer within a minute",
    "dns error|tcp connect|[(]Connect[)]": "it cannot be reached",
    "credential|token request|IMDS": "there are no credentials for it",
    "HTTP error": "something else answers there",
}


@dataclass(frozen=True)
class DeltaArchive:
    """An archive at a URL, and a private folder with a copy of what was needed of it so far.

    Attributes
    ----------
    url : str
        The place.
    root : pathlib.Path
        The copy.
    texts : dict of str to str
        The manifest of each run by the name of the run, as JSON.
    notes : list of tuple
        Rows of ``notes`` that are not appended yet.
    seen : dict of str to int or None
        The version of each table that was copied; None: there was none.
    """

    url: str
    root: Path
    texts: dict[str, str] = field(default_factory=dict, repr=False)
    notes: list[tuple[Any, ...]] = field(default_factory=list, repr=False)
    seen: dict[str, int | None] = field(default_factory=dict, repr=False)

    @classmethod
    def at(cls, url: str) -> DeltaArchive:
        """The archive at a URL, its runs and notes copied, its rows not yet.

        Raises
        ------
        ArgumentError
            If the URL holds more than a place.
        MissingComponentError
            If the library is not installed.
        NotAStoreError
            If a newer version wrote the archive.
        StoreBusyError
            If the place does not answer in time, or refuses.
        """
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise ArgumentError(
                f"{url!r:.200} is no URL: {error}.", "name a place such as s3://bucket/history"
            ) from None
        if parts.query or parts.fragment or ":" in parts.netloc.rpartition("@")[0]:
            raise ArgumentError(
                "The URL of an archive names a place, without a password and parameters.",
                "put credentials into the environment, such as AWS_SECRET_ACCESS_KEY",
            )
        with needing("deltalake", f"{url!r:.200}", extra="delta", instead="name a local folder"):
            import deltalake  # noqa: F401
        folder = make_private_folder()
        atexit.register(folder.delete)
        archive = cls(url.rstrip("/"), folder.path / "archive")
        archive.root.mkdir()
        runs = archive._rows(RUNS)
        if runs.height:
            version: Any = runs["version"].max() or 0
            manifests.refuse_newer(url, version)
            # Without a name or a manifest it is a run that cannot be read, which is a finding.
            named = runs.select(pl.col("run").fill_null(""), pl.col("manifest").fill_null("null"))
            archive.texts.update(named.iter_rows())
            archive._write_runs()
        archive._write_notes()
        return archive

    def __reduce__(self) -> tuple[Any, ...]:
        """Without what another process, which only adds to the copy, does not need."""
        return DeltaArchive, (self.url, self.root)

    def fetch(self, keys: Iterable[str] | None = None, weeks: ChosenWeeks | None = None) -> None:
        """Copy the rows of some sources and weeks; by default of all.

        Rows that are not there are missing in the copy, too, so a reader names them.
        """
        chosen = None if keys is None else set(keys)
        by_frame: dict[str, dict[str, list[Piece]]] = {}
        for run in self._runs():
            for shard in run.shards if chosen is None or run.key in chosen else ():
                if weeks is None or shard.week == manifests.ACROSS or weeks.has(shard.week):
                    by_week = by_frame.setdefault(shard.frame, {})
                    by_week.setdefault(shard.week, []).append(Piece(run, shard))
        moved: dict[tuple[str, manifests.Shard], manifests.Shard] = {}
        for frame, by_week in by_frame.items():
            every = list(by_week)
            for first in range(0, len(every), _WEEKS_AT_ONCE):
                some_weeks = every[first : first + _WEEKS_AT_ONCE]
                runs = {each.run.name for week in some_weeks for each in by_week[week]}
                # A commit of which the answer was lost is made twice.
                rows = self._rows_of(frame, some_weeks, None if chosen is None else sorted(runs))
                rows = rows.unique(list(_OWN)).sort(*_OWN)
                parts = rows.partition_by("week", "run", as_dict=True, maintain_order=True)
                for week in some_weeks:
                    there = [
                        ([each], part.drop(list(_OWN)))
                        for each in by_week[week]
                        if (part := parts.get((week, each.run.name))) is not None
                        and part.height == each.shard.n_rows
                    ]
                    if there:
                        moved.update(write_table(self.root, there, level=1))
        for run in self._runs():
            if run.name in self.texts:
                shards = tuple(moved.get((run.name, shard), shard) for shard in run.shards)
                self.texts[run.name] = replace(run, shards=shards).as_json(indent=None)
        self._write_runs()

    def note(
        self, now: datetime, collected: dict[str, str], failed: list[Attempt], there: Iterable[str]
    ) -> None:
        """Remember what became of sources, for the next `publish`."""
        known = manifests.read_attempts(self.root)
        self.notes.extend((key, status, "", "", now) for key, status in collected.items())
        self.notes.extend((each.key, _FAILED, each.label, each.message, now) for each in failed)
        self.notes.extend((key, _THERE, "", "", now) for key in there if key in known)

    def publish(self) -> None:
        """Append the runs of the copy that the tables do not have, and the notes.

        Raises
        ------
        StoreBusyError
            If the place does not answer, or others keep changing it.
        """
        loose = {path.name for path in (self.root / manifests.MANIFESTS).glob("*.json")}
        new = [run for run in self._runs() if run.name in loose - self.texts.keys()]
        # The rows of one frame at a time have to fit into memory.
        for frame in sorted({shard.frame for run in new for shard in run.shards}):
            pieces = []
            for run in new:
                for shard in run.shards:
                    if shard.frame == frame:
                        rows = read_shard(shard.path(self.root, run.system, run.key), shard)
                        own = (pl.lit(shard.week), pl.lit(run.name), pl.int_range(pl.len()))
                        named = [each.alias(name) for each, name in zip(own, _OWN, strict=True)]
                        pieces.append(rows.select(*named, pl.all()))
            self._append(f"{manifests.TABLES}/{frame}", pl.concat(pieces, how="diagonal"))
        if self.notes:
            self._append(NOTES, pl.DataFrame(self.notes, _NOTES, orient="row"))
            self.notes.clear()
        if new:
            columns = ("name", "label", "system", "place", "observed_at", "status", "package")
            rows = pl.DataFrame([{name: getattr(run, name) for name in columns} for run in new])
            texts = pl.Series([run.as_json(indent=None) for run in new])
            rows = rows.rename({"name": "run"})
            rows = rows.with_columns(manifest=texts, version=ARCHIVE_VERSION)
            self._append(RUNS, rows)
            self.texts.update(rows.select("run", "manifest").iter_rows())

    def compact(self) -> bool:
        """Join the small files of each table; whether there were any.

        Raises
        ------
        StoreBusyError
            If the place does not answer, or another process changes the archive.
        """
        from deltalake.exceptions import CommitFailedError

        frames = {shard.frame for run in self._runs() for shard in run.shards}
        is_joined = False
        try:
            self._drop_old_notes()
            for name in (RUNS, NOTES, *(f"{manifests.TABLES}/{frame}" for frame in sorted(frames))):
                table = self._table(name)
                if table is not None:
                    with _reaching(self.url):
                        is_joined |= table.optimize.compact()["numFilesAdded"] > 0
                        table.vacuum(dry_run=False)  # files that were replaced a week ago
        except CommitFailedError:
            raise _changing(self.url) from None
        return is_joined

    def _drop_old_notes(self) -> None:
        """Delete notes that newer ones of the same source and status replace."""
        from deltalake import write_deltalake

        table = self._table(NOTES)
        rows = self._rows(NOTES, table=table)
        every = rows.with_columns(is_note=_IS_NOTE).sort("at")
        kept = every.unique(["key", "status", "is_note"], keep="last", maintain_order=True)
        if kept.height < rows.height:
            with _reaching(self.url):
                # Only the rows of this version of the table are replaced.
                write_deltalake(table, kept.select(rows.columns), mode="overwrite")

    def is_current(self) -> bool:
        """Whether no table has changed since it was copied."""
        tables = {name: self._table(name) for name in self.seen}
        return self.seen == {name: table and table.version() for name, table in tables.items()}

    def _runs(self) -> list[manifests.Manifest]:
        return [run for each in manifests.runs_by_source(self.root).values() for run in each.runs]

    def _write_runs(self) -> None:
        path, content = manifests.table_of_runs(self.root, self.texts.values())
        path.parent.mkdir(exist_ok=True)
        put_whole(path, content)

    def _write_notes(self) -> None:
        every = self._rows(NOTES)
        rows = every.filter(_IS_NOTE)
        if rows.height < every.height:
            # Read as a note that cannot be read, which is a finding.
            folder = self.root / manifests.LOOKS
            folder.mkdir()
            put_whole(folder / "00000000T000000Z-00000000.json", b"{}")
        newest = rows.sort("at").unique("key", keep="last")
        failed = [
            Attempt(row["key"], row["label"], row["at"], row["message"])
            for row in newest.filter(status=_FAILED).iter_rows(named=True)
        ]
        manifests.note_attempts(self.root, failed, ())
        looks = rows.filter(pl.col("status").is_in(manifests.STATUSES))
        newest = looks.sort("at").unique("key", keep="last", maintain_order=True)
        for at, some in newest.group_by("at"):
            manifests.note_looks(self.root, dict(some.select("key", "status").iter_rows()), at[0])

    def _table(self, name: str) -> Any:
        """A table of the library; None where there is none."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        began_s = time.monotonic()
        with suppress(TableNotFoundError), _reaching(self.url):
            table = DeltaTable(f"{self.url}/{name}", storage_options=_BOUNDS)
            if time.monotonic() - began_s > _SLOW_S:
                raise TimeoutError("answered slowly")
            return table
        return None

    def _rows_of(self, frame: str, weeks: list[str], runs: list[str] | None) -> pl.DataFrame:
        """The rows of a frame, without weeks of which a file is damaged or that are too large."""
        where = {"week": weeks} | ({} if runs is None else {"run": runs})
        try:
            return self._rows(f"{manifests.TABLES}/{frame}", where)
        except DamagedStoreError:
            if len(weeks) < 2:
                return pl.DataFrame(schema=_OWN)
        single = [self._rows_of(frame, [week], runs) for week in weeks]
        return pl.concat(single, how="diagonal_relaxed")

    def _rows(
        self, name: str, where: Mapping[str, Iterable[str]] | None = None, table: Any = None
    ) -> pl.DataFrame:
        from deltalake import QueryBuilder

        table = table or self._table(name)
        self.seen[name] = table and table.version()
        needed = {RUNS: _RUNS, NOTES: _NOTES}.get(name, _OWN)
        if table is None:
            return pl.DataFrame(schema=needed)
        tests = [
            # Weeks and names of runs are words that `Manifest.of` has checked.
            f"{column} IN ({', '.join(map(repr, words))})"
            for column, words in (where or {}).items()
        ]
        chosen = f" WHERE {' AND '.join(tests)}" if tests else ""
        with _reaching(self.url):
            batches = QueryBuilder().register("t", table).execute(f"SELECT * FROM t{chosen}")
            pieces = [pl.DataFrame(batches.schema.empty_table())]
            n_bytes = 0.0
            for batch in batches:
                pieces.append(pl.DataFrame(batch))
                n_bytes += pieces[-1].estimated_size()
                if n_bytes > _MOST_BYTES:
                    break
        if n_bytes > _MOST_BYTES:
            raise DamagedStoreError(
                f"The table {name!r} of {self.url!r:.200} holds more than {_MOST_BYTES:,} bytes.",
                "read some weeks of it, or restore an earlier version with a tool for Delta Lake",
            )
        with suppress(pl.exceptions.PolarsError):
            return pl.concat(pieces).cast(needed)
        raise NotAStoreError(
            f"The table {name!r} of {self.url!r:.200} is none of ours.",
            "name a place that holds nothing else, such as s3://bucket/history",
        )

    def _append(self, name: str, rows: pl.DataFrame) -> None:
        from deltalake import WriterProperties, write_deltalake
        from deltalake.exceptions import CommitFailedError

        for number in range(_N_TRIES):
            with suppress(CommitFailedError), _reaching(self.url):
                write_deltalake(
                    f"{self.url}/{name}",
                    rows,
                    mode="append",
                    schema_mode="merge",
                    partition_by=["week"] if "week" in rows.columns else None,
                    storage_options=_BOUNDS,
                    writer_properties=WriterProperties(compression="ZSTD"),
                )
                return
            # Another process has created the table, or added a column to it.
            time.sleep(random.uniform(0, 0.1 * 2**number))
        raise _changing(self.url)


def local_copy(url: str, weeks: ChosenWeeks | None = None) -> Path:
    """A private copy of the archive at a URL, or of some weeks of it, until this process ends.

    Raises
    ------
    NotAStoreError
        If there is no archive with a finished run.
    """
    before = _COPIES.get((url, weeks))
    if before is not None and before.is_current():
        return before.root
    archive = DeltaArchive.at(url)
    if not archive.texts:
        raise NotAStoreError(
            f"There is no archive {url!r:.200}, or none of its runs was finished.",
            f"archive something: sa.collect('state.db', {url!r})",
            shell=f"stateanalytics archive state.db --to {shell_word(url)}",
        )
    archive.fetch(weeks=weeks)
    _COPIES[url, weeks] = archive
    _URLS[archive.root] = url
    if before is not None:  # what was read of it is in memory
        rmtree(before.root, ignore_errors=True)
    return archive.root


def name_of(root: Path) -> str:
    """What a user calls an archive: its path, or the URL that it is a private copy of."""
    return _URLS.get(root, str(root))


_URLS: dict[Path, str] = {}
_COPIES: dict[tuple[str, ChosenWeeks | None], DeltaArchive] = {}
"""Of this process, which may ask for the same archive several times."""


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Turn what the library raises into an error that names the place, and no credentials."""
    from deltalake.exceptions import CommitFailedError, TableNotFoundError

    try:
        yield
    except (CommitFailedError, TableNotFoundError, MemoryError):
        raise
    # Some of its errors are of no class of their own. Their texts may quote requests.
    except Exception as error:
        text = str(error)
        if re.search("(?is)unsupported.*(feature|version)", text):
            raise NotAStoreError(
                f"The tables of {url!r:.200} need a newer deltalake.", "pip install -U deltalake"
            ) from None
        status = re.search(r"\b[45]\d\d [A-Z][A-Za-z ]+", text)
        why = next((why for words, why in _REASONS.items() if re.search(words, text)), "")
        # A file that is gone, or shorter than it was: the place itself has answered.
        is_of_file = status is None or status[0].startswith(("404", "416"))
        if not why and is_of_file and re.search("Parquet|Arrow|Json", text):
            raise DamagedStoreError(
                f"A file of the archive {url!r:.200} is damaged or missing.",
                "restore an earlier version of its tables with a tool for Delta Lake, "
                "or archive to a new place",
            ) from None
        why = why or (type(error).__name__ if status is None else f"it says {status[0]}")
        raise StoreBusyError(
            f"The archive {url!r:.200} cannot be used: {why}.",
            "check its name, the network, and the credentials in the environment; "
            "a copy in a local folder needs none of them",
        ) from None


def _changing(url: str) -> StoreBusyError:
    return StoreBusyError(
        f"Other processes keep changing the archive {url!r:.200}.",
        "run the same command again: what is there already is not added again",
    )

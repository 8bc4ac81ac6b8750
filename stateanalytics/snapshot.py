"""The facts of one instant with the stores they came from: what a user holds."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from stateanalytics.core.facts import Facts, changed_facts, losses_of
from stateanalytics.core.text import as_written, visible
from stateanalytics.core.windows import minute_of, read_moment
from stateanalytics.core.words import size
from stateanalytics.demo_data import AS_OF, demo_path
from stateanalytics.errors import ArgumentError, did_you_mean, in_short

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from stateanalytics.comparing import Comparison
    from stateanalytics.core import schema
    from stateanalytics.io.budget import Budget
    from stateanalytics.io.sqlite import Store
    from stateanalytics.sql import Table
    from stateanalytics.state.policy import Policy
    from stateanalytics.systems.pooling import Memory

_MOST_SOURCES_SHOWN = 5
_MOST_LOSSES_SHOWN = 8
_NEXT = 'sa.states(snap), snap.sql("FROM attention"), sa.report(snap).write_html("week.html")'

_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True)
class _Asked:
    """The arguments of `read`, to refresh with."""

    paths: tuple[str | Path, ...]
    as_of: datetime | None
    bodies: bool = False
    on_error: Literal["skip", "raise", "salvage"] = "skip"
    weeks: str | None = None
    probe: bool = False
    budget: Budget | None = None
    cache: bool = True


@dataclass(frozen=True, repr=False, eq=False)
class Snapshot(Facts):
    """The canonical frames of one or more stores at one instant, and SQL over them.

    Attributes
    ----------
    entities, transitions, events, findings, sources : polars.DataFrame
        As documented in `stateanalytics.core.schema` and by `schema`.
    details : mapping of str to polars.DataFrame
        Frames that one system adds, by name.
    as_of : datetime
        The instant that ages are measured at, in UTC.
    as_of_from : str
        Where it comes from: ``given``, ``data`` or ``clock``.
    inputs : tuple of pathlib.Path
        Files and directories that were read; nothing is ever written over them.
    stores : tuple of Store
        Private copies of the inputs, for raw tables; `close` deletes them.
    has_bodies : bool
        Whether texts of messages were read.
    own_tables : mapping of str to polars.DataFrame
        Your own tables, by name: see `with_table`.
    """

    stores: tuple[Store, ...] = ()
    has_bodies: bool = False
    own_tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    _asked: _Asked | None = None
    _memory: Memory | None = None
    _read_by: int = field(default_factory=os.getpid)
    _tables: dict[Policy | None, Mapping[str, Table]] = field(default_factory=dict, init=False)
    _masked: dict[Policy | None, Mapping[str, Table]] = field(default_factory=dict, init=False)

    __hash__ = object.__hash__

    def detail(self, frame: schema.Frame | str) -> pl.DataFrame:
        """A frame that one system adds, by its name; empty where no input fills it."""
        from stateanalytics.systems import detail_frames

        if isinstance(frame, str):
            known = detail_frames()
            if frame not in known:
                raise ArgumentError(
                    f"There is no frame {in_short(frame)} of a system; there are {len(known)}.",
                    f"use one of {', '.join(known)}{did_you_mean(frame, known)}",
                )
            frame = known[frame]
        return super().detail(frame)

    def sql(
        self,
        query: str,
        params: Mapping[str, Any] | list[Any] | tuple[Any, ...] | None = None,
        *,
        max_rows: int = 10_000,
        timeout_s: float = 30.0,
        memory_bytes: int = 2 * 1024**3,
        policy: Policy | None = None,
        redact: bool = False,
    ) -> pl.DataFrame:
        """The result of one SELECT over this snapshot.

        Parameters
        ----------
        query : str
            One statement in DuckDB's SQL that selects: SELECT, WITH, FROM first, VALUES,
            TABLE, DESCRIBE, SUMMARIZE or SHOW TABLES. It may name every frame, every
            predefined view, and each table of the stores as ``raw_…``. ``as_of()`` is the
            snapshot's instant; the clock cannot be read.
        params : mapping or sequence, optional
            Values for ``$name``, or in order for ``?``. They are never read as SQL.
        max_rows : int
            A longer result is cut, and a `TruncatedWarning` says so.
        timeout_s : float
            Seconds that the query may take, parsing included; computing states or reading raw
            tables, the first time they are named, does not count.
        memory_bytes : int
            Memory that the query may take, in addition to the tables that it names.
        policy : Policy, optional
            For ``states``, ``reasons`` and ``attention``; v1 by default.
        redact : bool
            Whether secrets are masked in the tables, names included, before the query sees
            them, so that no function of it brings one back. If masking makes different values of a
            column in the query equal, a `MaskedWarning` names it.

        Returns
        -------
        polars.DataFrame
            Moments in UTC, intervals as float seconds, whole numbers as Int64, decimals
            as Float64; words such as severity sort by rank.

        Raises
        ------
        QueryError
            If it is not SQL, names an unknown table or column, or fails; the message lists known
            names.
        QueryRefusedError
            If it asks for anything but this snapshot: files, settings, other statements.
        QueryTimeoutError
            If it takes longer than ``timeout_s``.

        Notes
        -----
        Each query runs in another process, in a new DuckDB in memory that sees nothing but
        this snapshot and leaves nothing behind. `stateanalytics.sql` explains what this protects
        from and what it does not. Text in the result is as it is in the store: escape it where it
        is shown.

        Examples
        --------
        >>> snap = demo()
        >>> snap.sql("SELECT count(*) > 0 AS any FROM entities")["any"].to_list()
        [True]
        >>> q = "SELECT entity_id FROM entities WHERE entity_type = $type"
        >>> snap.sql(q, {"type": "session"}).columns
        ['entity_id']
        """
        from stateanalytics.core.redaction import redact_names
        from stateanalytics.sql import run

        answer = run(
            query,
            params,
            self._masked_for(policy) if redact else self._tables_for(policy),
            as_of=self.as_of,
            max_rows=max_rows,
            timeout_s=timeout_s,
            memory_bytes=memory_bytes,
        )
        if redact:  # the query may name a column as it likes
            answer.columns = redact_names(answer.columns)
        return answer

    def with_table(self, name: str, rows: Any) -> Snapshot:
        """Add a table of your own to join in SQL, such as owners; returns a new snapshot.

        Parameters
        ----------
        name : str
            Its name in SQL: lower-case letters, digits and ``_``.
        rows : frame, str or pathlib.Path
            A frame of polars (also a lazy one), pandas or Arrow, or a CSV, Parquet or JSON file.

        Returns
        -------
        Snapshot
            Shares its stores with this one: closing either closes both.

        Raises
        ------
        ArgumentError
            If the name is taken or invalid, or the rows are not a table.

        Examples
        --------
        >>> owners = pl.DataFrame({"kind": ["agent", "flow"], "owner": ["ann", "bob"]})
        >>> snap = demo().with_table("owners", owners)
        >>> q = "SELECT owner, count(*) > 0 AS any FROM entities JOIN owners USING (kind)"
        >>> snap.sql(f"{q} GROUP BY ALL ORDER BY ALL").rows()
        [('ann', True), ('bob', True)]
        """
        from stateanalytics.sql.tables import own_table

        rows = own_table(name, rows, self._tables_for(None))
        return replace(self, own_tables={**self.own_tables, name: rows})

    def export(
        self,
        to: str | Path,
        *,
        tables: Sequence[str] | None = None,
        policy: Policy | None = None,
        redact: bool = True,
    ) -> Path:
        """Write every table into one file for other programs.

        Parameters
        ----------
        to : str or pathlib.Path
            ``x.duckdb``, ``x.sqlite`` or ``x.xlsx``; for one table ``x.csv`` or ``x.parquet``; any
            other name is a new folder with one Parquet file per table.
        tables : sequence of str, optional
            Only these; by default every frame, predefined view and table of your own. Raw tables
            are only exported if named here.
        policy : Policy, optional
            For ``states``, ``reasons`` and ``attention``; v1 by default.
        redact : bool
            Whether what looks like a secret is masked.

        Returns
        -------
        pathlib.Path
            The path; an existing file is replaced once the new one is complete.

        Raises
        ------
        ArgumentError
            If it cannot be written, or a table does not exist or does not fit the format.
        MissingComponentError
            If an Excel file is asked for and xlsxwriter is not installed.

        Notes
        -----
        Moments are UTC; in SQLite ISO text. Words with a rank keep it in DuckDB; elsewhere
        they are text. In Excel no text is run as a formula, and long ones end in ``…``.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     demo().export(f"{folder}/week.duckdb", tables=["entities", "states"]).name
        'week.duckdb'
        """
        from stateanalytics.sql.exporting import export_tables

        loaders = self._loaders(tables, policy)
        return export_tables(loaders, to, as_of=self.as_of, inputs=self.inputs, is_masked=redact)

    def duckdb(self, *, policy: Policy | None = None) -> DuckDBPyConnection:
        """An in-memory DuckDB with every frame and view, and all features of DuckDB.

        Parameters
        ----------
        policy : Policy, optional
            For ``states``, ``reasons`` and ``attention``; v1 by default.

        Returns
        -------
        duckdb.DuckDBPyConnection
            With `as_of()`; changes in it reach nothing else.

        Notes
        -----
        Outside of the sandbox that `sql` runs in: a query here reads and writes files and
        reaches the network. Run nothing in it that you would not run in a shell.

        Examples
        --------
        >>> connection = demo().duckdb()                            # doctest: +SKIP
        >>> connection.sql("PIVOT states ON severity USING count(*)").pl()  # doctest: +SKIP
        """
        from stateanalytics.sql.exporting import duckdb_of

        return duckdb_of(self._loaders(None, policy), self.as_of)

    def _loaders(
        self, names: Sequence[str] | None, policy: Policy | None
    ) -> dict[str, Callable[[], pl.DataFrame]]:
        """Each table that is asked for, by default all but raw ones, with what gives its rows."""
        if isinstance(names, str):
            names = [names]
        there = self._tables_for(policy)
        chosen = [name for name in there if not name.startswith("raw_")] if names is None else names
        return {name: partial(self.table, name, policy=policy) for name in chosen}

    def schema(self, frame: str | pl.DataFrame | None = None) -> pl.DataFrame:
        """Every column of every table of SQL and of every frame that a function returns.

        Parameters
        ----------
        frame : str or polars.DataFrame, optional
            Only this one: the name of a table, of a function such as ``clusters`` or
            ``failures.clusters``; or a result itself.

        Returns
        -------
        polars.DataFrame, shape (n_columns, 5)
            ``frame``, ``column``, ``dtype``, ``unit``, ``meaning``; raw tables, too. A name in
            angle brackets stands for columns that the call chooses, such as ``<by>``.

        Raises
        ------
        ArgumentError
            If there is no frame of that name.

        Examples
        --------
        >>> demo().schema("failures.clusters")["column"].to_list()[:3]
        ['cluster_id', 'code', 'template']
        """
        from stateanalytics.core.shapes import data_dictionary
        from stateanalytics.sql.returned import FRAMES_RETURNED, described

        if isinstance(frame, pl.DataFrame):
            return described(frame)
        columns = pl.concat([self.table("columns"), data_dictionary(FRAMES_RETURNED)])
        return columns if frame is None else only_frame(columns, frame)

    def table(self, name: str, *, policy: Policy | None = None) -> pl.DataFrame:
        """A whole table by its name, without a row cap: a frame, a view or a raw table.

        Raises
        ------
        ArgumentError
            If there is no table of that name.
        """
        tables = self._tables_for(policy)
        if name not in tables:
            raise ArgumentError(
                f"There is no table {name!r:.80}; there are {len(tables)}.",
                "snap.schema() lists them" + (near := did_you_mean(str(name), tables)),
                shell=f"`stateanalytics sql --schema` lists them{near}",
            )
        load = tables[name].load
        if load is not None:
            return load()
        return self.sql(f'FROM "{name}"', max_rows=2**62, timeout_s=3600, policy=policy)

    def error_counts(self) -> pl.DataFrame:
        """Errors of tools in each session with calls (ADR-0017: on demand, as it reads messages).

        Returns
        -------
        polars.DataFrame
            ``source``, ``system``, ``session_id``, ``n_tool_answers``, ``n_tool_errors``,
            ``n_pruned``; the SQL table ``error_counts``.
        """
        return self.table("error_counts")

    def compare(
        self,
        measure: str,
        *,
        by: str | Sequence[str] = (),
        window: object = None,
        against: object = None,
        every: str | None = None,
        tz: str | None = None,
        prices: str | Path | None = None,
        policy: Policy | None = None,
    ) -> Comparison:
        """A measure by any columns, over a window or its steps, compared with another window.

        Parameters
        ----------
        measure, by, window, against, every, tz, prices, policy
            As for `stateanalytics.comparing.compare`.

        Returns
        -------
        Comparison
            With ``.frame``, ``.chart()`` and ``.sql``.

        Raises
        ------
        ArgumentError
            If there is no such measure, column, window, step or time zone.

        Examples
        --------
        >>> demo().compare("failed", by=["project"], window="2026-05").frame.columns[:4]
        ['project', 'since', 'until', 'value']
        """
        from stateanalytics.comparing import compare

        return compare(
            self, measure, by=by, window=window, against=against, every=every, tz=tz,
            prices=prices, policy=policy,
        )  # fmt: skip

    def weeks(
        self, n: int = 12, *, policy: Policy | None = None, top: int | None = 10
    ) -> pl.DataFrame:
        """The numbers of the last ISO weeks, each as of its own end, for charts and limits.

        Parameters
        ----------
        n : int
            How many weeks, up to the one that holds as-of; 1 to 520.
        policy : Policy, optional
            What counts as bad; ADR-0033's by default.
        top : int, optional
            How many clusters, codes and kinds: those with most causes, or runs, over all the
            weeks. None: all of them.

        Returns
        -------
        polars.DataFrame, shape (n_weeks * n_series, 15)
            `weekly.WEEKS`, also the SQL table ``weeks``: a row for each ``week``,
            ``measure`` and group, oldest week first, every series in every week. Measures
            are the five numbers of a report (``runs``, ``completed``, ``timed_out``,
            ``unresolved``, ``incidents``); of failed rows of every type ``failure_causes``,
            ``failure_incidents``, ``failure_rows``, ``failure_run_s`` and
            ``failure_cost_usd``, altogether, by cluster and by reason code; and
            ``time_to_complete``, the median of the runs that started in the week, altogether
            and by kind. ``value`` lies between ``lower`` and ``upper``, counts ``n`` of
            ``n_of``, and is 0 where there was none.

        Raises
        ------
        ArgumentError
            If an argument is not a number, or out of range.

        Notes
        -----
        A week is computed from what was known at its own end (``known_at``): the five numbers are
        those of ``sa.report(snap, window=week, as_known_at=known_at)``. Before the first moment of
        the data everything is null and ``coverage`` *none*; the week in which the data begin and
        the one that as-of cuts are *part*: leave them out of control limits. Intervals: Wilson's of
        shares, Garwood's of causes a week, Brookmeyer and Crowley's of medians; other counts and
        sums have none, because rows of one cause are not independent. Clusters are named by the
        templates of all the weeks together.

        Examples
        --------
        >>> weeks = demo().weeks(3)
        >>> runs = weeks.filter(measure="runs")
        >>> runs.select("week", "coverage", "value").rows()
        [('2026-W20', 'whole', 100.0), ('2026-W21', 'whole', 123.0), ('2026-W22', 'part', 29.0)]
        """
        from stateanalytics.weekly import weekly_numbers

        return weekly_numbers(self, n, policy=policy, top=top)

    def control_limits(
        self, n: int = 26, *, policy: Policy | None = None, top: int | None = 10, fdr: float = 0.05
    ) -> pl.DataFrame:
        """The numbers of the last weeks with their control limits, and since when each level holds.

        Parameters
        ----------
        n : int
            How many weeks; at least 8 of them must be whole, and no more than 26 are judged.
        policy, top
            As for `weeks`.
        fdr : float
            The share of false alarms that is accepted.

        Returns
        -------
        polars.DataFrame, shape (n_weeks * n_series, 24)
            `weeks` with ``limit_low`` to ``limit_high``, ``verdict``, ``level_since`` and
            others: see `stateanalytics.weekly_limits.control_limits`, which takes any such
            frame.

        Raises
        ------
        ArgumentError
            If an argument is not a number, or out of range.

        Examples
        --------
        >>> demo().control_limits(3)["verdict"].count()  # three weeks are too few
        0
        """
        from stateanalytics.weekly_limits import control_limits

        return control_limits(self.weeks(n, policy=policy, top=top), fdr=fdr)

    def refresh(
        self, *, as_of: datetime | date | str | float | None = None, progress: bool | None = None
    ) -> Snapshot:
        """A new snapshot of the same inputs as they are now; this one does not change.

        Parameters
        ----------
        as_of : datetime, date, str or number, optional
            The instant of the new one; by default determined as for this one; a given instant is
            kept.
        progress : bool, optional
            As for `read`.

        Returns
        -------
        Snapshot
            Equal to what `read` would give now.

        Raises
        ------
        ArgumentError
            If this snapshot does not know what it was read from, or as-of is no moment, or
            this process is a fork of the one that read it.
        SourceError
            If an input cannot be read any more.

        Notes
        -----
        Only inputs that were written to are reread. SQLite's own counters of commits show that for
        databases; for all other files their sizes and times do, except within two seconds of a
        write. Of a store that was written to, only rows on changed pages are reread, and only what
        follows from them is computed; with an open writer in WAL mode only the log of the store is
        read. If a changed page cannot be attributed, the whole store is reread. Raw tables of a
        snapshot stay those of its own instant until it is closed.

        Examples
        --------
        >>> snap = demo()
        >>> snap.refresh(progress=False).entities.equals(snap.entities)
        True
        """
        if self._asked is None:
            raise ArgumentError(
                "This snapshot does not know what it was read from.",
                "sa.read(…) gives one that does",
            )
        if self._read_by != os.getpid():
            raise ArgumentError(
                "This snapshot was read by another process, of which this one is a fork: it "
                "lacks the threads that read frames, and would wait for them forever.",
                'sa.read(…) in a process of multiprocessing.get_context("spawn")',
            )
        asked = self._asked if as_of is None else replace(self._asked, as_of=_instant(as_of))
        refreshed = _loaded(asked, progress, before=self._memory)
        return replace(_snapshot(*refreshed, self._asked), own_tables=self.own_tables)

    def archive(
        self, to: str | Path, *, bodies: bool = False, redact: bool = False, compact: bool = False
    ) -> pl.DataFrame:
        """Add what is new since the last time to an archive that `read` can read.

        Parameters
        ----------
        to : str or pathlib.Path
            An archive, or a folder or URL (``s3://…``) at which to create one.
        bodies : bool
            Whether to keep texts of messages, too; they must have been read.
        redact : bool
            Whether to mask what looks like a secret, in all texts but ids.
        compact : bool
            Whether to join all files of the archive at the end, however few they are, into one per
            frame and week.

        Returns
        -------
        polars.DataFrame, shape (n_sources, 6)
            ``source``, ``system``, ``status`` (archived, unchanged, or same as another
            input), ``n_rows`` and ``size_bytes`` that were added, ``message``.

        Raises
        ------
        ArgumentError
            If the folder is in an input or is something else, or rows were excluded by an
            earlier as-of.
        NoRoomError
            If it cannot be written; what was archived before is kept.

        Notes
        -----
        A run adds files and, last, its manifest; many small files are joined at its end.
        Runs may be killed and may overlap.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = demo().archive(f"{folder}/history")["status"].to_list()
        >>> again
        ['archived']
        """
        from stateanalytics.systems.archiving import Archiving

        if bodies and not self.has_bodies:
            raise ArgumentError(
                "Texts of messages were not read, so they cannot be archived.",
                'sa.read("state.db", bodies=True).archive("history/", bodies=True)',
            )
        named = () if self._asked is None else self._asked.paths
        archiving = Archiving.at(to, bodies=bodies, redacted=redact)
        return archiving.add_facts(self, named, is_compacted=compact)

    def close(self) -> None:
        """Delete the private copies: frames remain; raw tables and calls are gone."""
        for store in self.stores:
            store.close()
        self._masked.clear()
        self._tables.clear()  # with them go the files that queries were handed

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _tables_for(self, policy: Policy | None) -> Mapping[str, Table]:
        from stateanalytics.sql.tables import tables_of

        if policy not in self._tables:
            # Not self: its frames would then live until the next garbage collection.
            facts = changed_facts(self)
            self._tables[policy] = tables_of(
                facts, self.stores, policy=policy, bodies=self.has_bodies, own=self.own_tables
            )
        return self._tables[policy]

    def _masked_for(self, policy: Policy | None) -> Mapping[str, Table]:
        from stateanalytics.sql.tables import masked_tables

        if policy not in self._masked:
            self._masked[policy] = masked_tables(self._tables_for(policy))
        return self._masked[policy]

    def __repr__(self) -> str:
        head = f"Snapshot as of {minute_of(self.as_of)} ({self.why_as_of}): {self._counts}"
        lost = [f"  MISSING: {line}" for line in self._losses()]
        read = [f"  {line}" for line in self._inputs()]
        return "\n".join([head, *lost, *read, f"Next: {_NEXT}"])

    def _repr_html_(self) -> str:
        first, *others = html.escape(repr(self)).split("\n")
        return as_written(f"<p><strong>{first}</strong></p><p>{'<br>'.join(others)}</p>")

    @cached_property
    def _counts(self) -> str:
        """Runs as a report counts them, of all time; when the first work began; the systems."""
        from stateanalytics.state.definitions import RUN, is_failure
        from stateanalytics.state.population import counted, rows_of

        runs = counted(rows_of(self), RUN)
        n_open, n_failed = runs.select(pl.col("is_open").sum(), n_failed=is_failure().sum()).row(0)
        begins = self.entities.select(pl.min_horizontal("created_at", "started_at").min()).item()
        period = f"from {begins:%Y-%m-%d}" if begins else "no timestamp"
        systems = self.sources["system"].drop_nulls().unique().sort()
        of = visible(", ".join(systems) or "no system")
        plural = "s" * (runs.height != 1)
        counts = f"{runs.height:,} run{plural}, {n_open:,} open, {n_failed:,} failed or timed out"
        return f"{counts}; {period}; {of}"

    def _losses(self) -> Iterator[str]:
        """One line for all that a damaged store or a fleet's archive lacks, at most a few."""
        lost = losses_of(self.findings)
        for row in lost.head(_MOST_LOSSES_SHOWN).iter_rows(named=True):
            yield visible(f"{row['source']}: {row['message']}")
        if lost.height > _MOST_LOSSES_SHOWN:
            yield f"and {lost.height - _MOST_LOSSES_SHOWN} more, see .findings"

    def _inputs(self) -> Iterator[str]:
        """One line for every input, at most a few."""
        for row in self.sources.head(_MOST_SOURCES_SHOWN).iter_rows(named=True):
            live = ", live" if row["is_live"] else ""
            written_by = row["format"] or row["system"]
            # With one instant for several inputs, it matters where each of them ends.
            ends = self.sources.height > 1 and row["last_at"]
            up_to = f", up to {minute_of(row['last_at'])}" if ends else ""
            yield visible(f"{row['source']}: {written_by}, {size(row['size_bytes'])}{live}{up_to}")
        if self.sources.height > _MOST_SOURCES_SHOWN:
            yield f"and {self.sources.height - _MOST_SOURCES_SHOWN} more, see .sources"


def read(
    *paths: str | Path,
    as_of: datetime | date | str | float | None = None,
    bodies: bool = False,
    on_error: Literal["skip", "raise", "salvage"] = "skip",
    weeks: str | None = None,
    probe: bool = False,
    budget: Budget | str | None = None,
    cache: bool = True,
    progress: bool | None = None,
) -> Snapshot:
    """A snapshot of one or more stores, at one instant.

    Parameters
    ----------
    *paths : str or pathlib.Path
        Stores, directories that hold one, archives, or patterns such as ``"~/fleet/*/state.db"``;
        the system is detected for each. None: the usual places are searched, and ``snap.sources``
        lists what was found.
    as_of : datetime, date, str or number, optional
        The instant that ages are measured at: a datetime (one without a zone is in UTC),
        ISO text, or epoch seconds. By default the newest timestamp in the data; for a store that is
        in use, now. With a given instant everything is as it was then: what began later is
        excluded, and what was overwritten later is rebuilt from the history or null. Both are
        counted in ``findings``; raw tables are not changed.
    bodies : bool
        Whether to read messages of people and models, too, where a system stores them in a
        database. Those of transcripts are read only where one is shown.
    on_error : {"skip", "raise", "salvage"}
        What to do about an unreadable file in a directory: skip it and name it in ``findings``, or
        raise an error. A store that you name yourself always raises one, unless ``salvage`` reads
        the intact parts of a damaged store: losses are in ``findings`` under codes that begin with
        ``salvage.``, in the snapshot's text and at the top of every report.
    weeks : str, optional
        Read only the files of these ISO weeks of an archive, such as ``"2026-W10..W21"``, and those
        of work that spans weeks; a finding has the number of bytes. If the archive continues after
        them, as-of is the end of the last one.
    probe : bool
        Whether to check the processes that a system recorded, on this machine: it fills
        ``process_alive``, a session whose process no longer exists is *process dead*, and as-of is
        now.
    budget : Budget or str, optional
        What the read may cost in bytes, rows, processor time and memory, such as
        ``sa.Budget(processor_s=60)`` or ``"processor_s=60,n_rows=1000"``; ``"off"`` has no limits.
        What exceeds them is skipped and named in ``findings``; by default intact stores of
        gigabytes are read completely.
    cache : bool
        Whether to keep what is read in the user's cache, and to use what is there: of a store
        or tree above a megabyte, the next process reads only what changed. ``STATEANALYTICS_CACHE``
        names the folder, or is ``off``. With ``bodies``, an ``on_error`` other than ``"skip"``
        or a ``budget`` with other limits than ``processor_s`` nothing is cached. Transcripts that
        ``processor_s`` cut are completed by the next read.
    progress : bool, optional
        Whether to show progress; by default on a terminal.

    Returns
    -------
    Snapshot
        Of one instant: nothing that happens to the stores later changes it.

    Raises
    ------
    SourceNotFoundError, NotAStoreError, DamagedStoreError, StoreBusyError
        If an input cannot be read.
    ArgumentError
        If as-of is no moment, or is given together with ``probe``, or the budget is invalid.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> snap = sa.read("state.db")                        # doctest: +SKIP
    >>> snap = sa.read("fleet/*/state.db", as_of="2026-05-27")       # doctest: +SKIP
    """
    named = [
        name for path in paths for name in (path if isinstance(path, list | tuple) else [path])
    ]
    asked = _Asked(
        tuple(named), _instant(as_of), bodies, on_error, weeks, probe, _budget(budget), cache
    )
    return _snapshot(*_loaded(asked, progress), asked)


def read_for_once(
    *paths: str | Path,
    as_of: datetime | date | str | float | None = None,
    bodies: bool = False,
    on_error: Literal["skip", "raise", "salvage"] = "skip",
    probe: bool = False,
    budget: Budget | str | None = None,
    cache: bool = True,
) -> Snapshot:
    """What `read` gives, for who does not refresh it: in two thirds of the memory.

    Parameters
    ----------
    *paths, as_of, bodies, on_error, probe, budget, cache
        As for `read`.
    """
    asked = _Asked(
        paths, _instant(as_of), bodies, on_error, probe=probe, budget=_budget(budget), cache=cache
    )
    return _snapshot(*_loaded(asked, None, keep=False), asked)


def _loaded(
    asked: _Asked, progress: bool | None, *, before: Memory | None = None, keep: bool = True
) -> tuple[Facts, tuple[Store, ...], Memory]:
    from stateanalytics.systems.reading import read_and_keep

    if asked.probe and asked.as_of is not None:
        raise ArgumentError(
            "Processes can be checked only as of now; found as-of.",
            "omit as_of, or probe=True",
            shell="omit --as-of, or --probe",
        )
    options = vars(asked) | {"cache": asked.cache and before is None}
    return read_and_keep(**options, shown=progress, before=before, keep=keep)


def _snapshot(facts: Facts, stores: tuple[Store, ...], memory: Memory, asked: _Asked) -> Snapshot:
    return Snapshot(
        **vars(facts), stores=stores, has_bodies=asked.bodies, _asked=asked, _memory=memory
    )


def demo() -> Snapshot:
    """The shipped sample: an archive of twelve weeks of a small team, described in its README.

    Its state is that of Monday, 25 May 2026, 06:00 UTC; `demo_data` says where it is.

    Raises
    ------
    MissingComponentError
        If the sample was not installed.

    Examples
    --------
    >>> demo().sources["is_live"].to_list()
    [False]
    """
    return read(demo_path() / "history", as_of=AS_OF, progress=False)


def only_frame(columns: pl.DataFrame, name: str) -> pl.DataFrame:
    """The rows of a data dictionary for the table, frame or function of a name."""
    from stateanalytics.sql.returned import frames_named

    rows = columns.filter(pl.col("frame") == name)
    if rows.is_empty():
        names = [frame.name for frame in frames_named(str(name))]
        rows = columns.filter(pl.col("frame").is_in(names))
    if rows.is_empty():
        known = columns["frame"].unique(maintain_order=True).to_list()
        shown = [frame for frame in known if not frame.startswith("raw_")]
        raise ArgumentError(
            f"There is no frame {name!r:.80}; there are {', '.join(shown)}.",
            "leave the name out to see all" + did_you_mean(str(name), known),
        )
    return rows


def _budget(given: Budget | str | None) -> Budget | None:
    from stateanalytics.io.budget import Budget

    return None if given is None else Budget.of(given)


def _instant(as_of: object) -> datetime | None:
    if isinstance(as_of, str) and _NUMBER.fullmatch(as_of.strip()):
        as_of = float(as_of)
    return None if as_of is None else read_moment(as_of, "as_of")

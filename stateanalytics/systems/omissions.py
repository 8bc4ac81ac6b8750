"""Findings on what the frames do not hold: what was not read, and what the past has lost.

Each table and each kind of files that is not read is a finding with a count. Readers use the
same lists of what is read (`System.tables`, `Files.opens`), so that nothing is dropped in
silence.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import MOSTLY_UNREAD, Facts, Past, changed_facts
from stateanalytics.core.joins import deduplicated, left_join
from stateanalytics.io.files import folders_below, legible
from stateanalytics.io.findings import all_findings, findings_of_store, noted
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_copy import VIRTUAL_TABLE
from stateanalytics.io.sqlite_tables import n_rows, read_table
from stateanalytics.systems import system_named
from stateanalytics.systems.base import System, Tables
from stateanalytics.systems.history import LOST_OF, has_begun, has_happened

_SQLITE_OWN = "sqlite_"
_NAMES_OF_WORK = re.compile("usage|turn|event|telemetry")
_MOST_TABLES = 100
_MOST_FILES = 200_000
_MOST_FOLDERS = 100
_RECORDS = (".json", ".jsonl", ".ndjson", ".zst", ".sse")


def findings_of_database(store: Store, *, system: str) -> pl.DataFrame:
    """What of a database was lost, is not read, or has an unknown version.

    Parameters
    ----------
    store : Store
        An open store; this waits for its integrity check.
    system : str
        The system that wrote it; empty: not known.

    Returns
    -------
    polars.DataFrame
        In the shape of `schema.FINDINGS`.
    """
    tables_of_system = system_named(system).tables if system else None
    findings = [findings_of_store(store, system=system)]
    if tables_of_system is not None:
        tables = tables_of_system()
        findings += [_unread_tables(store, system, tables), _unknown_version(store, system, tables)]
    return all_findings(*findings)


def _unread_tables(store: Store, system: str, tables: Tables) -> pl.DataFrame:
    known = {*tables.read, *tables.ignored}
    # The tables behind a virtual table repeat the rows that it indexes.
    virtual = [f"{name}_" for name, what in store.others.items() if what == VIRTUAL_TABLE]
    own = (_SQLITE_OWN, *virtual)
    others = sorted(name for name in store.tables if name not in known and not name.startswith(own))
    named, rest = others[:_MOST_TABLES], others[_MOST_TABLES:]

    found = partial(noted, store.label, system, "source.table_not_read")
    of_tables = (
        found(severity="warning" if _NAMES_OF_WORK.search(table) else "info", n_rows=n, table=table)
        for table, n in n_rows(store, named).items()
    )
    return all_findings(
        *of_tables, found(n_rows=len(rest), message="further tables that are not read")
    )


def _unknown_version(store: Store, system: str, tables: Tables) -> pl.DataFrame:
    """A finding where the schema is newer than any that the reader was checked on."""
    if tables.version is None:
        return schema.FINDINGS.empty()
    table, cell = tables.version
    version = read_table(store, table, {"version": cell})[0]["version"].max()
    is_newer = version is not None and version > tables.newest
    return noted(
        store.label,
        system,
        "version.unknown",
        tables.newest,
        n_rows=int(is_newer),
        table=table,
        example=str(version),
    )


def findings_of_files(
    path: Path, label: str, system: System, opened: Iterable[str | Path] | None = None
) -> pl.DataFrame:
    """Findings on the files of an input, or near it, that are not read, by kind.

    ``opened`` is what was read of it, where that is known. Where neither it nor `Files.opens`
    says so, no file of a directory is a finding.
    """
    files = system.files
    kinds: Mapping[str, int] = {}
    mostly_unread = schema.FINDINGS.empty()
    closed: list[OSError] = []
    if not path.is_dir():
        kinds = {
            kind: number
            for reader in (system.stores, files)
            if reader is not None
            for kind, number in reader.unread_kinds(path).items()
        }
    elif files is not None and (files.opens is not None or opened is not None):
        # Without either nobody knows what was opened, and nothing is called unread.
        if opened is None and files.opens is not None:
            opened = files.opens(path)
        opened = [*(opened or ())]
        kinds = kinds_of_files(path, opened, files.skips, closed.append)
        # Mostly nothing is unread: then there is no second walk.
        unread = _unread_files(path, opened, (*files.skips, *files.ignored)) if kinds else ()
        n_bytes = sum(_size(file) for file in unread if file.endswith(_RECORDS))
        n_read = sum(map(_size, {os.fspath(file) for file in opened})) if n_bytes else 0
        if n_bytes > n_read:
            mostly_unread = noted(
                label, system.name, MOSTLY_UNREAD, n_bytes, n_read, system.title, example=str(path)
            )
    by_kind = [
        noted(label, system.name, "source.files_not_read", n_rows=number, table=kind)
        for kind, number in kinds.items()
    ]
    unlisted = [
        noted(
            *(label, system.name, "folder.unreadable", error.strerror),
            table=os.path.relpath(error.filename, path),
            example=str(error.filename),
        )
        for error in closed[:_MOST_FOLDERS]
    ]
    return all_findings(mostly_unread, *unlisted, *by_kind)


def _unread_files(
    root: Path,
    opened: Iterable[str | Path],
    skips: Collection[str],
    on_error: Callable[[OSError], object] | None = None,
) -> Iterator[str]:
    """Files of a directory that are not opened, those of linked folders too."""
    known = {os.fspath(path) for path in opened}
    n_files = 0
    for folder, names in folders_below([root], skips, on_error):
        begin = os.path.join(folder, "")  # noqa: PTH118 - so many Paths are slow
        yield from (begin + name for name in names if begin + name not in known)
        n_files += len(names)
        if n_files > _MOST_FILES:
            return


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def kinds_of_files(
    root: Path,
    opened: Iterable[str | Path],
    skips: Collection[str] = (),
    on_error: Callable[[OSError], object] | None = None,
) -> Mapping[str, int]:
    """Number of files of each kind in a directory that are not opened.

    Parameters
    ----------
    root : pathlib.Path
    opened : iterable of str or pathlib.Path
        The files that are opened.
    skips : collection of str
        Names of directories in which no files are looked for, such as repositories.
    on_error : callable, optional
        Called with the error of each directory that cannot be listed.

    Returns
    -------
    mapping of str to int
        A kind is the first directory below the root, and the ending: ``todos/*.json``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "todos" / "a").mkdir(parents=True)
    ...     for name in ("one.jsonl", "todos/a/1.json", "todos/a/2.json"):
    ...         _ = (Path(folder) / name).write_text("{}")
    ...     kinds_of_files(Path(folder), [Path(folder) / "one.jsonl"])
    {'todos/*.json': 2}
    """
    kinds: Counter[str] = Counter()
    n_root = len(os.path.join(root, ""))  # noqa: PTH118 - so many Paths are slow
    for path in _unread_files(root, opened, skips, on_error):
        first, separator, _ = path[n_root:].partition(os.sep)
        folder = f"{legible(first)}/" if separator else ""
        kinds[f"{folder}*{legible(os.path.splitext(path)[1])}"] += 1  # noqa: PTH122
    return dict(sorted(kinds.items()))


def with_notes(facts: Facts, past: Past) -> Facts:
    """Past facts, with findings on what began later and on values that are lost.

    Parameters
    ----------
    facts : Facts
        The present.
    past : Past
        What `history.rewound` made of them.
    """
    notes = [_begun_later(facts, past), _not_recorded(facts, past)]
    findings = all_findings(past.facts.findings, *notes)
    return changed_facts(past.facts, findings=findings)


def _not_recorded(facts: Facts, past: Past) -> pl.DataFrame:
    """``time.not_recorded``: lost values, counted by input and column."""
    if not any(column.any() for column in past.lost):
        return schema.FINDINGS.empty()
    entities = past.facts.entities
    # A system may have other entities in the past, or another order.
    present = left_join(entities.select(schema.ENTITY_KEY), deduplicated(facts.entities))
    record, status = past.lost["record"], past.lost["status"]
    lost = {name: past.lost[name] for name in past.lost.columns}
    # Mostly written with the end, so that open work has not lost it.
    lost["end"] = record & (entities["ended_at"].is_not_null() | status)
    missing = [
        present.select("source", "system", column=pl.lit(column)).filter(
            lost[word] & present[column].is_not_null() & entities[column].is_null()
        )
        for column, word in LOST_OF.items()
    ]
    counts = pl.concat(missing).group_by("source", "system", "column", maintain_order=True).len()
    found = (
        noted(source, system, "time.not_recorded", past.at.isoformat(), n_rows=n, column=column)
        for source, system, column, n in counts.iter_rows()
    )
    return all_findings(*found)


def _begun_later(facts: Facts, past: Past) -> pl.DataFrame:
    """``time.after_as_of``: what began after the instant, counted by input, table and type."""
    later = [
        facts.entities.filter(~has_begun(past.at)).select(
            "source", "system", "entity_type", table=pl.lit("entities")
        ),
        *(
            frame.filter(~has_happened(past.at)).select(
                "source", "system", entity_type=pl.lit(None, pl.String), table=pl.lit(name)
            )
            for name, frame in (("transitions", facts.transitions), ("events", facts.events))
        ),
    ]
    key = ("source", "system", "table", "entity_type")
    counts = pl.concat(later).group_by(key).len("n_rows").sort(key)
    found = (
        noted(row.pop("source"), row.pop("system"), "time.after_as_of", past.at.isoformat(), **row)
        for row in counts.iter_rows(named=True)
    )
    return all_findings(*found)

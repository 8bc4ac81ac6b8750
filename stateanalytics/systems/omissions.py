"""What of an input is not read: each table and each kind of files is a finding, counted.

What is read is asked of the system itself (`System.tables`, `Files.opens`), which reads by
the same lists, so that nothing can be dropped in silence.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import MOSTLY_UNREAD, Facts, beside, changed_facts, once, pool
from stateanalytics.io.files import legible
from stateanalytics.io.findings import counted, findings_of_store
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_copy import VIRTUAL_TABLE
from stateanalytics.io.sqlite_tables import n_rows, read_table
from stateanalytics.systems import system_named
from stateanalytics.systems.base import System, Tables
from stateanalytics.systems.history import Past, has_begun, has_happened

_BOOKKEEPING = "sqlite_"
_TELLS_OF_WORK = re.compile("usage|turn|event|telemetry")
_MOST_TABLES = 100
_MOST_FILES = 200_000
_RECORDS = (".json", ".jsonl", ".ndjson", ".zst", ".sse")


def findings_of_database(store: Store, *, system: str) -> pl.DataFrame:
    """What of a database was lost, is not read, or is of an unknown version.

    Parameters
    ----------
    store : Store
        An open store; its check is waited for.
    system : str
        Who wrote it; empty: nobody that is known.

    Returns
    -------
    polars.DataFrame
        In the shape of `schema.FINDINGS`.
    """
    asked = system_named(system).tables if system else None
    found = [findings_of_store(store, system=system)]
    if asked is not None:
        tables = asked()
        found += [_unread_tables(store, system, tables), _unknown_version(store, system, tables)]
    return pool(found, schema.FINDINGS)


def _unread_tables(store: Store, system: str, tables: Tables) -> pl.DataFrame:
    known = {*tables.read, *tables.ignored}
    # What a virtual table is made of repeats what it is an index of.
    virtual = [f"{name}_" for name, what in store.others.items() if what == VIRTUAL_TABLE]
    own = (_BOOKKEEPING, *virtual)
    others = sorted(name for name in store.tables if name not in known and not name.startswith(own))
    named, rest = others[:_MOST_TABLES], others[_MOST_TABLES:]

    def finding(table: str | None, number: int) -> pl.DataFrame:
        tells = table is not None and _TELLS_OF_WORK.search(table)
        return counted(
            store.label,
            system,
            "source.table_not_read",
            "warning" if tells else "info",
            "rows of a table that is not read" if table else "further tables that are not read",
            n_rows=number,
            table=table,
            action="not read",
        )

    rows = n_rows(store, named)
    return pool([*(finding(name, rows[name]) for name in named), finding(None, len(rest))], _SHAPE)


_SHAPE = schema.FINDINGS


def _unknown_version(store: Store, system: str, tables: Tables) -> pl.DataFrame:
    """A finding where the schema is newer than any that the reader was checked on."""
    if tables.version is None:
        return _SHAPE.empty()
    table, cell = tables.version
    found = read_table(store, table, {"version": cell})[0]["version"].max()
    is_newer = found is not None and found > tables.newest
    return counted(
        store.label,
        system,
        "version.unknown",
        "info",
        f"its schema is newer than the newest that is known ({tables.newest})",
        n_rows=int(is_newer),
        table=table,
        example=str(found),
        action="read as far as its columns go",
    )


def findings_of_files(
    path: Path, label: str, system: System, opened: Iterable[str | Path] | None = None
) -> pl.DataFrame:
    """The kinds of files of an input, or beside it, that are not read, each counted.

    ``opened`` is what was read of it, where that is known.
    """
    files = system.files
    kinds: Mapping[str, int] = {}
    missing = _SHAPE.empty()
    if not path.is_dir():
        kinds = {
            kind: number
            for reader in (system.stores, files)
            if reader is not None
            for kind, number in reader.unread_kinds(path).items()
        }
    elif files is not None and (files.opens is not None or files.skips):
        if opened is None:
            opened = files.opens(path) if files.opens is not None else ()
        opened = [*opened]
        kinds = kinds_of_files(path, opened, files.skips)
        n_bytes, n_read = bytes_of_records(path, opened, (*files.skips, *files.ignored))
        if n_bytes > n_read:
            missing = counted(
                label,
                system.name,
                MOSTLY_UNREAD,
                "warning",
                f"most of what lies here is not read: {n_bytes:,} bytes of records, "
                f"next to {n_read:,} that {system.title} wrote",
                example=str(path),
                action="not read; name the directory or the file of its system",
            )
    found = [
        counted(
            label,
            system.name,
            "source.files_not_read",
            "info",
            "files of a kind that is not read",
            n_rows=number,
            table=kind,
            action="not read",
        )
        for kind, number in kinds.items()
    ]
    return pool([missing, *found], _SHAPE)


def bytes_of_records(
    root: Path, opened: Iterable[str | Path], skips: Collection[str] = ()
) -> tuple[int, int]:
    """Bytes of a directory's files of records that are not opened, and of all that are.

    Parameters
    ----------
    root : pathlib.Path
    opened : iterable of str or pathlib.Path
        What is read.
    skips : collection of str
        Names of directories that are never looked into: caches, repositories.

    Returns
    -------
    n_unread : int
        Only files whose ending says that they may be records: JSON in all its forms. Links
        are not followed.
    n_read : int
        Whatever its ending.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "one.jsonl").write_text("{}")
    ...     _ = (Path(folder) / "two.jsonl").write_text("{ }")
    ...     bytes_of_records(Path(folder), [Path(folder) / "one.jsonl"])
    (3, 2)
    """
    known = {os.fspath(path) for path in opened}
    n_unread, n_seen = 0, 0
    for folder, directories, names in os.walk(root):
        directories[:] = [name for name in directories if name not in skips]
        begin = os.path.join(folder, "")  # noqa: PTH118 - so many Paths are slow
        for name in names:
            if name.endswith(_RECORDS) and begin + name not in known:
                n_unread += _size(begin + name)
        n_seen += len(names)
        if n_seen > _MOST_FILES:
            break
    return n_unread, sum(map(_size, known))


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def kinds_of_files(
    root: Path, opened: Iterable[str | Path], skips: Collection[str] = ()
) -> Mapping[str, int]:
    """How many files of each kind a directory holds that are not opened.

    Parameters
    ----------
    root : pathlib.Path
    opened : iterable of str or pathlib.Path
        What is.
    skips : collection of str
        Names of directories that are never looked into, such as of repositories.

    Returns
    -------
    mapping of str to int
        A kind is the first directory below the root, and the ending: ``todos/*.json``. Links
        are not followed.

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
    known = {os.fspath(path) for path in opened}
    kinds: Counter[str] = Counter()
    n_seen = 0
    for folder, directories, names in os.walk(root):
        directories[:] = sorted(name for name in directories if name not in skips)
        below = Path(folder).relative_to(root).parts
        first = legible(below[0]) + "/" if below else ""
        begin = os.path.join(folder, "")  # noqa: PTH118 - so many Paths are slow
        for name in names:
            if begin + name not in known:
                kinds[f"{first}*{legible(os.path.splitext(name)[1])}"] += 1  # noqa: PTH122
        n_seen += len(names)
        if n_seen > _MOST_FILES:
            break
    return dict(sorted(kinds.items()))


def with_notes(facts: Facts, past: Past) -> Facts:
    """The facts of then, with findings on what of them is left out or was not recorded."""
    notes = [left_out(facts, past), not_recorded(facts, past)]
    findings = pool([past.facts.findings, *notes], schema.FINDINGS)
    return changed_facts(past.facts, findings=findings)



_MOSTLY_AT_THE_END = (
    *("verdict", "is_verdict_valid", "n_required_missing", "n_optional_missing", "n_produced"),
    *("n_input_tokens", "n_output_tokens", "n_cache_read_tokens", "n_cache_write_tokens"),
    *("cost_usd", "stored_duration_s", "n_turns", "n_model_turns", "n_chat_messages"),
    *("exit_code", "stored_health", "stored_delivery", "stored_reason_codes"),
)



def not_recorded(facts: Facts, past: Past) -> pl.DataFrame:
    """What of the rows of then nobody recorded: a finding per input and column, counted.

    Parameters
    ----------
    facts : Facts
        As they are.
    past : Past
        What `rewound` made of them.

    Returns
    -------
    polars.DataFrame
        ``time.not_recorded``, in the shape of `schema.FINDINGS`.
    """
    if not any(column.any() for column in past.lost):
        return schema.FINDINGS.empty()
    then = past.facts.entities
    # A system may tell of other rows then, or in another order.
    now = beside(then.select(schema.ENTITY_KEY), once(facts.entities))
    is_gone = {
        "raw_status": past.lost["status"],
        "reason_code": past.lost["reason"],
        "last_message_at": past.lost["message"],
        "n_messages": past.lost["n_messages"],
        **dict.fromkeys(("updated_at", "due_at", "attempt"), past.lost["record"]),
        # What is mostly written with the end was not there to be recorded before.
        **dict.fromkeys(
            _MOSTLY_AT_THE_END,
            past.lost["record"] & (then["ended_at"].is_not_null() | past.lost["status"]),
        ),
        **dict.fromkeys(("process_alive", "has_stale_locks"), past.lost["present"]),
    }
    missing = [
        now.select("source", "system", column=pl.lit(column)).filter(
            gone & now[column].is_not_null() & then[column].is_null()
        )
        for column, gone in is_gone.items()
    ]
    counts = pl.concat(missing).group_by("source", "system", "column", maintain_order=True).len()
    return pool(
        [
            counted(
                source,
                system,
                "time.not_recorded",
                "info",
                f"written over after as-of ({past.at.isoformat()}); nobody recorded what was there",
                n_rows=n,
                table="entities",
                column=column,
                action="set to null",
            )
            for source, system, column, n in counts.iter_rows()
        ],
        schema.FINDINGS,
    )



def left_out(facts: Facts, past: Past) -> pl.DataFrame:
    """What began only after the instant: a finding per input, table and type, counted.

    Returns
    -------
    polars.DataFrame
        ``time.after_as_of``, in the shape of `schema.FINDINGS`.
    """
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
    counts = pl.concat(later).group_by(key).len().sort(key)
    return pool(
        [
            counted(
                source,
                system,
                "time.after_as_of",
                "info",
                f"began after as-of ({past.at.isoformat()})",
                n_rows=n,
                table=table,
                entity_type=entity_type,
                action="left out",
            )
            for source, system, table, entity_type, n in counts.iter_rows()
        ],
        schema.FINDINGS,
    )

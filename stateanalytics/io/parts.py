"""Parts: the frames that a reader returns for one input, before inputs are pooled.

Also the fingerprint of frames, and the refresh of a table, which reads only the rows that differ
from an earlier copy (`stateanalytics.io.changed_rows`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate, pairwise, takewhile
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core.schema import ENTITIES, EVENTS, MOMENT, TRANSITIONS
from stateanalytics.io.cells import Cell
from stateanalytics.io.changed_rows import Rows
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_tables import read_table


@dataclass(frozen=True)
class Parts:
    """The canonical frames of one input.

    Attributes
    ----------
    system : str
        The system that wrote the input.
    format : str
        The storage generation that was recognised.
    entities, transitions, events, findings : polars.DataFrame
        As documented in `stateanalytics.core.schema`.
    details : mapping of str to polars.DataFrame
        Per-system frames by name.
    label : str
        The user's name of the input; the ``source`` column of every frame.
    size_bytes : int
        Size of the input.
    is_live : bool
        Whether a writer had it open.
    stores : tuple of Store
        Private copies that stay open for raw tables; the pooling step closes them.
    kept : object
        State from which the next read of the same input can continue, of the system's own type.
    proven_at : polars.Series
        Moments at which something certainly happened, and that are in no event, transition or
        creation: the newest moment of each record of a system without logs.
    inputs : tuple of pathlib.Path
        Further files and directories that were read because the input names them, without
        those of `Stores.companions`.
    opened : tuple of str, optional
        What was read of a directory, outside of `Files.skips`: every other file there is unread.
        None: what `Files.opens` says.
    span : (datetime or None, datetime or None), optional
        The oldest and the newest proven moment, where an archive knows them.
    digested : Digested, optional
        Its fingerprint with what it was computed from, where that was done already.
    """

    system: str
    format: str
    entities: pl.DataFrame
    transitions: pl.DataFrame
    events: pl.DataFrame
    findings: pl.DataFrame
    details: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    label: str = ""
    size_bytes: int = 0
    is_live: bool = False
    stores: tuple[Store, ...] = ()
    kept: Any = None
    fingerprint: str = ""
    proven_at: pl.Series = field(default_factory=lambda: pl.Series(dtype=MOMENT))
    inputs: tuple[Path, ...] = ()
    opened: tuple[str, ...] | None = None
    span: tuple[datetime | None, datetime | None] | None = None
    digested: Digested | None = None

    @classmethod
    def unread(cls, findings: pl.DataFrame, label: str) -> Parts:
        """An input without rows or system, and the findings that explain it."""
        facts = (ENTITIES.empty(), TRANSITIONS.empty(), EVENTS.empty())
        return cls("", "", *facts, findings, label=label)


FRAMES = ("entities", "transitions", "events", "findings")
"""The frames of every part."""


def by_source(whole: Parts, labels: Sequence[str]) -> Iterator[Parts]:
    """The parts of each of several inputs.

    Parameters
    ----------
    whole : Parts
        All of them together; ``source`` is the input of a row.
    labels : sequence of str
        The inputs; one may have no rows.

    Yields
    ------
    Parts
        The rows of each label, in their order.
    """
    frames = {name: _sliced(getattr(whole, name)) for name in FRAMES}
    details = {name: _sliced(frame) for name, frame in whole.details.items()}
    for label in labels:
        facts: dict[str, Any] = {name: rows_of(label) for name, rows_of in frames.items()}
        yield replace(
            whole,
            **facts,
            details={name: rows_of(label) for name, rows_of in details.items()},
            label=label,
        )


def _sliced(frame: pl.DataFrame) -> Callable[[str], pl.DataFrame]:
    """A function that gives the rows of a source as a slice, without copying."""
    together = frame.sort("source", maintain_order=True)
    runs = together["source"].rle().struct.unnest()
    begins = runs.select(begin=pl.col("len").cum_sum() - pl.col("len")).to_series()
    places = dict(zip(runs["value"], zip(begins, runs["len"], strict=True), strict=True))
    return lambda label: together.slice(*places.get(label, (0, 0)))


@dataclass(frozen=True)
class Digested:
    """A fingerprint, and the digests of columns that it was computed from.

    Attributes
    ----------
    fingerprint : str
        64 hexadecimal digits (SHA-256).
    columns : tuple
        Every column with the digest of each of its pieces, if these are kept.
    """

    fingerprint: str
    columns: tuple[tuple[pl.Series | None, tuple[bytes, ...]], ...] = ()


def fingerprint(frames: Iterable[pl.DataFrame]) -> str:
    """Digest of the names, types, values and order of all rows and columns.

    Parameters
    ----------
    frames : iterable of polars.DataFrame
        Their order matters; their layout in memory and the version of polars do not.

    Returns
    -------
    str
        64 hexadecimal digits (SHA-256).

    Examples
    --------
    >>> rows = pl.DataFrame({"id": ["a", "b"], "n": [1, None]})
    >>> fingerprint([rows]) == fingerprint([pl.concat([rows[:1], rows[1:]], rechunk=False)])
    True
    >>> fingerprint([rows]) == fingerprint([rows.reverse()])
    False
    """
    [result] = digested([list(frames)])
    return result.fingerprint


def digests(parts: Sequence[Parts], before: Digested | None = None) -> list[Digested]:
    """Fingerprint of the rows of each input, whatever its place and label.

    Numbers of rows (``seq``) are excluded too: compacting a file may change them.
    """
    unknown = [part for part in parts if not part.fingerprint and part.digested is None]
    computed = iter(
        digested(
            [
                [
                    frame.drop("source", "seq", strict=False)
                    for frame in (part.entities, part.transitions, part.events)
                ]
                for part in unknown
            ],
            before,
        )
    )
    return [
        Digested(part.fingerprint) if part.fingerprint else part.digested or next(computed)
        for part in parts
    ]


def digested(
    groups: Sequence[Sequence[pl.DataFrame]], before: Digested | None = None
) -> list[Digested]:
    """The `fingerprint` of each of some groups of frames.

    Parameters
    ----------
    groups : sequence of sequence of polars.DataFrame
        The same number of frames in each; frames at one position have the same columns.
    before : Digested, optional
        The result for earlier frames, used if there is one group.
    """
    together = [pl.concat(frames) for frames in zip(*groups, strict=True)]
    columns: list[pl.Series | None] = []
    bounds: list[list[int]] = []
    for place, whole in enumerate(together):
        heights = [frames[place].height for frames in groups]
        columns += [None, *whole.get_columns()]
        bounds += [list(accumulate(heights, initial=0))] * (whole.width + 1)
    known = (None,) * len(columns) if before is None or len(groups) > 1 else before.columns
    tasks = (columns, bounds, known)
    if sum(whole.width * whole.height for whole in together) < _THREADED_CELLS:
        digests = list(map(_digests, *tasks))
    else:
        # Each thread copies a column or pieces of it, so there are no more threads than cores.
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            digests = list(threads.map(_digests, *tasks))
    if len(groups) == 1:
        column_digests = [pieces for [pieces] in digests]
        kept = tuple(zip(columns, column_digests, strict=True))
        return [Digested(_combined(column_digests), kept)]
    by_group = zip(*digests, strict=True) if digests else [()] * len(groups)
    return [Digested(_combined(column_digests)) for column_digests in by_group]


_THREADED_CELLS = 1_000_000
"""Fewer cells are digested before threads would have started."""
_PIECE = 2**16
"""Rows of a piece; rows appended to a long column change only its last piece."""


def _combined(columns: Iterable[Sequence[bytes]]) -> str:
    """The digest of columns from the digests of their pieces."""
    digests = (p[0] if len(p) == 1 else hashlib.sha256(b"".join(p)).digest() for p in columns)
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _digests(
    column: pl.Series | None,
    bounds: Sequence[int],
    known: tuple[pl.Series | None, tuple[bytes, ...]] | None,
) -> list[tuple[bytes, ...]]:
    """Digests of the pieces of a column between each two bounds; a constant without a column."""
    if column is None:
        return [(b"frame",)] * (len(bounds) - 1)
    unchanged = (
        () if known is None or known[0] is None else _same_pieces(column, known[0], known[1])
    )
    ends = [[*range(begin, max(end, begin + 1), _PIECE), end] for begin, end in pairwise(bounds)]
    n_same = len(unchanged) * _PIECE
    ranges = [
        (begin - n_same, end - n_same)
        for group_ends in ends
        for begin, end in pairwise(group_ends)
        if begin >= n_same
    ]
    pieces = iter([*unchanged, *_digests_between(column.slice(n_same), ranges)])
    return [tuple(next(pieces) for _ in group_ends[1:]) for group_ends in ends]


def _same_pieces(
    column: pl.Series, known: pl.Series, digests: tuple[bytes, ...]
) -> tuple[bytes, ...]:
    """Digests of the leading pieces that are equal in a column and in its earlier version."""
    if (known.name, known.dtype) != (column.name, column.dtype):
        return ()
    n_rows = min(known.len(), column.len())
    # Mostly nothing changed, or rows were added: one comparison is enough.
    if column.head(n_rows).equals(known.head(n_rows)):
        # 0.0 and -0.0 are equal floats with different octets.
        is_all = known.len() == column.len() and not column.dtype.is_float()
        return digests if is_all else digests[: n_rows // _PIECE]
    begins = range(0, n_rows - _PIECE + 1, _PIECE)
    is_same = (column.slice(at, _PIECE).equals(known.slice(at, _PIECE)) for at in begins)
    return tuple(digest for digest, _ in zip(digests, takewhile(bool, is_same), strict=False))


def _digests_between(column: pl.Series, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """Digest of the name, type and values of a column in each range of rows."""
    n_null, name, type_name = column.null_count(), column.name, type(column.dtype).__name__
    is_empty, gaps = n_null == column.len(), b""
    octets: list[Callable[[int, int], memoryview | bytes]] = []
    # Most columns of most stores are all null or have no null: counting is enough for these.
    if not is_empty:
        if n_null:
            gaps = bytes(_octets(column.is_null().cast(pl.UInt8)))
        is_long = column.len() > _PIECE * 4 and column.len() > len(ranges) * _PIECE // 8
        octets = _octets_between(column, has_gaps=n_null > 0, is_long=is_long)
    digests = []
    for begin, end in ranges:
        n_own = end - begin if is_empty else gaps.count(1, begin, end)
        total = hashlib.sha256(f"{name!r} {type_name} {end - begin} {n_own}".encode())
        if n_own < end - begin:
            if n_own:
                total.update(gaps[begin:end])
            for between in octets:
                total.update(between(begin, end))
        digests.append(total.digest())
    return digests


def _octets_between(
    column: pl.Series, *, has_gaps: bool, is_long: bool
) -> list[Callable[[int, int], memoryview | bytes]]:
    """Functions that give the octets of a column to digest, from one row to another."""
    if column.dtype in (pl.Enum, pl.Categorical):
        column = column.cast(pl.String)
    if column.dtype != pl.String:
        # The memory under a null is undefined.
        numbers = column.to_physical()
        kept = numbers.cast(pl.UInt8) if numbers.dtype == pl.Boolean else numbers
        return [_octets_by_row(kept.fill_null(0) if has_gaps else kept)]
    lengths = column.str.len_bytes().fill_null(0)
    if is_long:  # its text, three times in memory, would be as large as all else
        return [
            _octets_by_row(lengths),
            lambda begin, end: column.slice(begin, end - begin).str.join("").item().encode(),
        ]
    text = column.str.join("").item().encode()
    ends = pl.concat([pl.Series([0]), lengths.cast(pl.Int64).cum_sum()])
    return [_octets_by_row(lengths), lambda begin, end: text[ends[begin] : ends[end]]]


def _octets_by_row(numbers: pl.Series) -> Callable[[int, int], memoryview]:
    octets = _octets(numbers)
    size = len(octets) // max(numbers.len(), 1)
    return lambda begin, end: octets[begin * size : end * size]


def _octets(numbers: pl.Series) -> memoryview:
    """The memory of a column of numbers without nulls, without a copy."""
    import nanoarrow as na

    array = na.c_array_stream(numbers.rechunk()).get_next()
    values = memoryview(array.view().buffer(1))
    octets, size = values.cast("B"), values.itemsize
    return octets[array.offset * size : (array.offset + len(array)) * size]


_ROW = "_row"
_MAX_CHUNKS = 64
_MAX_CHANGED_ROWS = 20_000
"""With more changed rows a read of the whole table is faster."""


@dataclass(frozen=True)
class ReadTable:
    """A table as it was read, from which a refresh can continue.

    Attributes
    ----------
    copy : pathlib.Path
        The copy that it was read from.
    rows, findings : polars.DataFrame
        The results of `sqlite_tables.read_table`.
    numbers : polars.Series, optional
        The number of each row; None where the table has none.
    """

    copy: Path
    rows: pl.DataFrame
    findings: pl.DataFrame
    numbers: pl.Series | None = None


def refresh_table(
    store: Store,
    table: str,
    columns: Mapping[str, Cell],
    before: ReadTable | None = None,
    *,
    system: str = "",
) -> ReadTable:
    """The rows and findings of a table, by reading only the changed rows where possible.

    Parameters
    ----------
    store, table, columns, system
        As for `sqlite_tables.read_table`.
    before : ReadTable, optional
        An earlier read of the same ``columns``.

    Returns
    -------
    ReadTable
        As of a fresh read.
    """
    changed = changed_rows(store, table, before)
    if before is not None and changed is not None:
        if not changed.before and not changed.now:
            return replace(before, copy=store.copy)
        part = _read_numbered(store, table, columns, system, changed.now)
        # A finding has a count, which would have to be combined from both parts.
        if part.findings.is_empty() and part.rows.height == len(changed.now):
            return _patched(before, part, changed)
    return _read_numbered(store, table, columns, system)


def changed_rows(store: Store, table: str, before: ReadTable | None) -> Rows | None:
    """The rows that may differ, if these are known and few, and the others had no findings."""
    if before is None or store.since is None or store.since.before != before.copy:
        return None
    # Both copies have the same tables, so an absent table was absent before.
    changed = store.since.rows.get(table, None if table in store.tables else Rows())
    is_few = changed is not None and len(changed.now) <= _MAX_CHANGED_ROWS
    return changed if is_few and before.findings.is_empty() else None


def _read_numbered(
    store: Store,
    table: str,
    columns: Mapping[str, Cell],
    system: str,
    only: Collection[int] | None = None,
) -> ReadTable:
    has_numbers = store.rowids.get(table) is not None
    wanted = {**columns, _ROW: Cell("rowid")} if has_numbers else columns
    rows, findings = read_table(store, table, wanted, system=system, only=only)
    numbers = rows[_ROW] if has_numbers else None
    return ReadTable(store.copy, rows.drop(_ROW, strict=False), findings, numbers)


def _patched(before: ReadTable, part: ReadTable, changed: Rows) -> ReadTable:
    """The unchanged rows with the refreshed ones, by row number."""
    numbers, refreshed = before.numbers, part.numbers
    assert numbers is not None
    assert refreshed is not None
    is_stale = numbers.is_in(pl.Series([*changed.before, *changed.now], dtype=pl.Int64).implode())
    places = is_stale.arg_true()
    first = places[0] if len(places) else len(numbers)
    if len(places) == len(numbers) - first:  # only the last rows changed
        left, left_numbers = before.rows.head(first), numbers.head(first)
    else:
        left, left_numbers = before.rows.filter(~is_stale), numbers.filter(~is_stale)
    rows, all_numbers = pl.concat([left, part.rows]), pl.concat([left_numbers, refreshed])
    if first and refreshed.len() and refreshed[0] < (left_numbers.max() or 0):
        order = all_numbers.arg_sort()
        rows, all_numbers = rows[order], all_numbers.gather(order)
    elif rows.n_chunks() > _MAX_CHUNKS:
        # One more chunk with each refresh would slow down reading after thousands of them.
        rows, all_numbers = rows.rechunk(), all_numbers.rechunk()
    return ReadTable(part.copy, rows, before.findings, all_numbers)

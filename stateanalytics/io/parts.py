"""Parts: what one reader hands over for one input, before inputs are pooled.

With them the fingerprint of frames, and tables of which only those rows are read again that
differ from an earlier copy (`stateanalytics.io.changed_rows`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise, takewhile
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core.schema import MOMENT
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
        Which orchestrator wrote the input.
    format : str
        The storage generation that was recognised.
    entities, transitions, events, findings : polars.DataFrame
        As documented in `stateanalytics.core.schema`.
    details : mapping of str to polars.DataFrame
        Per-system frames by name.
    label : str
        How the user named the input; the ``source`` column of every frame.
    size_bytes : int
        Size of what was read.
    is_live : bool
        Whether a writer had it open.
    stores : tuple of Store
        Private copies that stay open for raw tables; whoever pools the parts closes them.
    kept : object
        What the next read of the same input can go on from, in the system's own shape.
    proven_at : polars.Series
        Moments at which something certainly happened, and that no event, transition or
        creation tells: the newest that each record of a system without logs proves.
    inputs : tuple of pathlib.Path
        Files and directories that were read because the input names them: neither it itself
        nor what `Stores.companions` gives for its place.
    opened : tuple of str, optional
        What `Files.opens` told when it was read, where the reader walked the input anyway.
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


def by_source(whole: Parts, labels: Sequence[str]) -> Iterator[Parts]:
    """What several inputs hold, one by one.

    Parameters
    ----------
    whole : Parts
        Of all of them: each row says by ``source`` whose it is.
    labels : sequence of str
        Which there are; one may have no rows.

    Yields
    ------
    Parts
        Of each label its rows, in their order.
    """
    entities, transitions = _sliced(whole.entities), _sliced(whole.transitions)
    events, findings = _sliced(whole.events), _sliced(whole.findings)
    details = {name: _sliced(frame) for name, frame in whole.details.items()}
    for label in labels:
        yield replace(
            whole,
            entities=entities(label),
            transitions=transitions(label),
            events=events(label),
            findings=findings(label),
            details={name: rows_of(label) for name, rows_of in details.items()},
            label=label,
        )


def _sliced(frame: pl.DataFrame) -> Callable[[str], pl.DataFrame]:
    """The rows of a source, without a copy of each."""
    together = frame.sort("source", maintain_order=True)
    runs = together["source"].rle().struct.unnest()
    begins = runs.select(begin=pl.col("len").cum_sum() - pl.col("len")).to_series()
    places = dict(zip(runs["value"], zip(begins, runs["len"], strict=True), strict=True))
    return lambda label: together.slice(*places.get(label, (0, 0)))


@dataclass(frozen=True)
class Digested:
    """A fingerprint, and the digests that it was made from.

    Attributes
    ----------
    fingerprint : str
        64 hexadecimal digits (SHA-256).
    columns : tuple
        Every column with the digest of each of its pieces, where they are kept.
    """

    fingerprint: str
    columns: tuple[tuple[pl.Series | None, tuple[bytes, ...]], ...] = ()


def fingerprint(frames: Iterable[pl.DataFrame]) -> str:
    """A digest of the names, types, values and order of all rows and columns.

    Parameters
    ----------
    frames : iterable of polars.DataFrame
        Their order counts. How they lie in memory does not, nor does the version of
        polars.

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
    [of_frames] = digested([list(frames)])
    return of_frames.fingerprint


def digested(
    groups: Sequence[Sequence[pl.DataFrame]], before: Digested | None = None
) -> list[Digested]:
    """The `fingerprint` of each of some groups of frames.

    Parameters
    ----------
    groups : sequence of sequence of polars.DataFrame
        As many frames in each; those at one place have the same columns.
    before : Digested, optional
        What came out for earlier frames, where there is one group.
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
        # Each copies a column, or pieces of it: no more of them than can be at work.
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            digests = list(threads.map(_digests, *tasks))
    if len(groups) == 1:
        of_columns = [pieces for [pieces] in digests]
        kept = tuple(zip(columns, of_columns, strict=True))
        return [Digested(_of_columns(of_columns), kept)]
    of_groups = zip(*digests, strict=True) if digests else [()] * len(groups)
    return [Digested(_of_columns(of_group)) for of_group in of_groups]


_THREADED_CELLS = 1_000_000
"""Fewer are digested sooner than threads begin."""
_PIECE = 2**16
"""Rows; what is appended to a long column changes the last piece of it only."""


def _of_columns(columns: Iterable[Sequence[bytes]]) -> str:
    """The digest of columns, each by that of its only piece, or by those of its pieces."""
    each = (p[0] if len(p) == 1 else hashlib.sha256(b"".join(p)).digest() for p in columns)
    return hashlib.sha256(b"".join(each)).hexdigest()


def _digests(
    column: pl.Series | None,
    bounds: Sequence[int],
    known: tuple[pl.Series | None, tuple[bytes, ...]] | None,
) -> list[tuple[bytes, ...]]:
    """The digest of each piece of a column between each two bounds; of none at a frame's begin."""
    if column is None:
        return [(b"frame",)] * (len(bounds) - 1)
    same = () if known is None or known[0] is None else _same_pieces(column, known[0], known[1])
    ends = [[*range(begin, max(end, begin + 1), _PIECE), end] for begin, end in pairwise(bounds)]
    n_same = len(same) * _PIECE
    ranges = [
        (begin - n_same, end - n_same)
        for of_group in ends
        for begin, end in pairwise(of_group)
        if begin >= n_same
    ]
    pieces = iter([*same, *_digests_between(column.slice(n_same), ranges)])
    return [tuple(next(pieces) for _ in of_group[1:]) for of_group in ends]


def _same_pieces(
    column: pl.Series, known: pl.Series, digests: tuple[bytes, ...]
) -> tuple[bytes, ...]:
    """The digests of those pieces that a column begins with as the earlier one did."""
    if (known.name, known.dtype) != (column.name, column.dtype):
        return ()
    n_rows = min(known.len(), column.len())
    # Mostly nothing changed, or rows were added: one comparison tells.
    if column.head(n_rows).equals(known.head(n_rows)):
        # Two zeros are equal floats, and their octets may not be.
        is_all = known.len() == column.len() and not column.dtype.is_float()
        return digests if is_all else digests[: n_rows // _PIECE]
    begins = range(0, n_rows - _PIECE + 1, _PIECE)
    slices = ((each.slice(begin, _PIECE) for each in (column, known)) for begin in begins)
    is_same = (now.equals(before) for now, before in slices)
    return tuple(digest for digest, _ in zip(digests, takewhile(bool, is_same), strict=False))


def _digests_between(column: pl.Series, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """The digest of the name, type and values of a column in each range of rows."""
    n_null, name, type_name = column.null_count(), column.name, type(column.dtype).__name__
    is_empty, gaps = n_null == column.len(), b""
    octets: list[Callable[[int, int], memoryview | bytes]] = []
    # Most columns of most stores hold nothing, or have no gap: their numbers say so.
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
    """What of the values of a column is digested, from one row to another."""
    if column.dtype in (pl.Enum, pl.Categorical):
        column = column.cast(pl.String)
    if column.dtype != pl.String:
        # What memory holds under a null is anybody's guess.
        numbers = column.to_physical()
        kept = numbers.cast(pl.UInt8) if numbers.dtype == pl.Boolean else numbers
        return [_of_rows(kept.fill_null(0) if has_gaps else kept)]
    filled = column.fill_null("") if has_gaps else column
    if is_long:  # its text, three times in memory, would be as large as all else
        return [
            _of_rows(filled.str.len_bytes()),
            lambda begin, end: filled.slice(begin, end - begin).str.join("").item().encode(),
        ]
    text, lengths = filled.str.join("").item().encode(), filled.str.len_bytes()
    ends = pl.concat([pl.Series([0]), lengths.cast(pl.Int64).cum_sum()])
    return [_of_rows(lengths), lambda begin, end: text[ends[begin] : ends[end]]]


def _of_rows(numbers: pl.Series) -> Callable[[int, int], memoryview]:
    octets = _octets(numbers)
    size = len(octets) // max(numbers.len(), 1)
    return lambda begin, end: octets[begin * size : end * size]


def _octets(numbers: pl.Series) -> memoryview:
    """The numbers of a column without nulls as they lie in memory, without a copy."""
    import nanoarrow as na

    array = na.c_array_stream(numbers.rechunk()).get_next()
    values = memoryview(array.view().buffer(1))
    octets, size = values.cast("B"), values.itemsize
    return octets[array.offset * size : (array.offset + len(array)) * size]


_ROW = "_row"
_MOST_PIECES = 64
_MOST_AGAIN = 20_000
"""More rows are read sooner with all the others than one by one."""


@dataclass(frozen=True)
class Kept:
    """A table as it was read, to go on from.

    Attributes
    ----------
    copy : pathlib.Path
        The copy that it was read from.
    rows, findings : polars.DataFrame
        As `sqlite.read_table` gave them.
    numbers : polars.Series, optional
        The number of each row; None where the table has none.
    gone, came : polars.DataFrame, optional
        The rows of the table before that are not among these, and those of these that were
        not there before; a row that was read again may be in both. None: not known.
    changed : Rows, optional
        The numbers of these rows.
    """

    copy: Path
    rows: pl.DataFrame
    findings: pl.DataFrame
    numbers: pl.Series | None = None
    gone: pl.DataFrame | None = None
    came: pl.DataFrame | None = None
    changed: Rows | None = None


def read_again(
    store: Store,
    table: str,
    columns: Mapping[str, Cell],
    before: Kept | None = None,
    *,
    system: str = "",
) -> Kept:
    """What `sqlite.read_table` gives, from those rows only that changed where that is the same.

    Parameters
    ----------
    store, table, columns, system
        As for `sqlite.read_table`.
    before : Kept, optional
        What an earlier read of the same ``columns`` gave.

    Returns
    -------
    Kept
        Rows and findings are those of a fresh read; the very same frame where no row differs.
    """
    changed = _changed(store, table, before)
    if before is not None and changed is not None:
        if not changed.before and not changed.now:
            none = before.rows.clear()
            return replace(before, copy=store.copy, gone=none, came=none, changed=changed)
        part = _read_numbered(store, table, columns, system, changed.now)
        # A finding counts, so that it would have to be put together from both parts.
        if part.findings.is_empty() and part.rows.height == len(changed.now):
            return _patched(before, part, changed)
    fresh = _read_numbered(store, table, columns, system)
    # What is made of the very same frame need not be made again.
    is_same = before is not None and fresh.rows.equals(before.rows)
    return replace(fresh, rows=before.rows) if before is not None and is_same else fresh


def _changed(store: Store, table: str, before: Kept | None) -> Rows | None:
    """The rows that may differ, where they are known, few, and nothing was odd in the others."""
    if before is None or store.since is None or store.since.copy != before.copy:
        return None
    # A table that is not there was not there before: the same tables are in both.
    changed = store.since.rows.get(table, None if table in store.tables else Rows())
    is_few = changed is not None and len(changed.now) <= _MOST_AGAIN
    return changed if is_few and before.findings.is_empty() else None


def _read_numbered(
    store: Store,
    table: str,
    columns: Mapping[str, Cell],
    system: str,
    only: Collection[int] | None = None,
) -> Kept:
    has_numbers = store.rowids.get(table) is not None
    wanted = {**columns, _ROW: Cell("rowid")} if has_numbers else columns
    rows, findings = read_table(store, table, wanted, system=system, only=only)
    numbers = rows[_ROW] if has_numbers else None
    return Kept(store.copy, rows.drop(_ROW, strict=False), findings, numbers)


def _patched(before: Kept, part: Kept, changed: Rows) -> Kept:
    """The rows that did not change with those that were read again, by row number."""
    numbers, again = before.numbers, part.numbers
    assert numbers is not None
    assert again is not None
    is_gone = numbers.is_in(pl.Series([*changed.before, *changed.now], dtype=pl.Int64).implode())
    places = is_gone.arg_true()
    first = places[0] if len(places) else len(numbers)
    if len(places) == len(numbers) - first:  # what was written last: nothing has to be moved
        left, left_numbers = before.rows.head(first), numbers.head(first)
    else:
        left, left_numbers = before.rows.filter(~is_gone), numbers.filter(~is_gone)
    rows, all_numbers = pl.concat([left, part.rows]), pl.concat([left_numbers, again])
    if first and again.len() and again[0] < (left_numbers.max() or 0):
        order = all_numbers.arg_sort()
        rows, all_numbers = rows[order], all_numbers.gather(order)
    elif rows.n_chunks() > _MOST_PIECES:
        # A piece a refresh would slow down whoever reads them after thousands.
        rows, all_numbers = rows.rechunk(), all_numbers.rechunk()
    gone = before.rows.filter(is_gone)
    return Kept(part.copy, rows, before.findings, all_numbers, gone, part.rows, changed)

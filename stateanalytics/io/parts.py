"""Parts: what one reader hands over for one input, before inputs are pooled.

With them the fingerprint of frames, and tables that only grow, of which only the new rows
are read again. A writer that appends gives each row a greater number than all before it.
Whether it really only appended is seen by a witness that the private copies of then and
of now must agree on: how many old rows there are, their greatest number, and the sums of
their numbers and of the lengths of their texts. No text is loaded for it. What it cannot
see is a text that was replaced by another of the same length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path

import polars as pl

from stateanalytics.core.schema import MOMENT
from stateanalytics.io.cells import Cell
from stateanalytics.io.scanning import cursor_of
from stateanalytics.io.sqlite import Store, read_table
from stateanalytics.io.sqlite_copy import quoted


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
    kept : mapping of str to Kept
        Tables that the next read of the same input can go on from.
    proven_at : polars.Series
        Moments at which something certainly happened, and that no event, transition or
        creation tells: the newest that each record of a system without logs proves.
    inputs : tuple of pathlib.Path
        Files and directories that were read because the input names them: neither it itself
        nor what `Stores.beside` tells of its place.
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
    kept: Mapping[str, Kept] = field(default_factory=dict)
    fingerprint: str = ""
    proven_at: pl.Series = field(default_factory=lambda: pl.Series(dtype=MOMENT))
    inputs: tuple[Path, ...] = ()


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
    [digest] = fingerprints([list(frames)])
    return digest


def fingerprints(groups: Sequence[Sequence[pl.DataFrame]]) -> list[str]:
    """The `fingerprint` of each of some groups of frames.

    Parameters
    ----------
    groups : sequence of sequence of polars.DataFrame
        As many frames in each; those at one place have the same columns.
    """
    together = [pl.concat(frames) for frames in zip(*groups, strict=True)]
    tasks: list[tuple[pl.Series | None, list[int]]] = []
    for place, whole in enumerate(together):
        bounds = list(accumulate((frames[place].height for frames in groups), initial=0))
        tasks += [(column, bounds) for column in (None, *whole.get_columns())]
    if sum(whole.width * whole.height for whole in together) < _THREADED_CELLS:
        digests = [_digests(*task) for task in tasks]
    else:
        with ThreadPoolExecutor() as threads:
            digests = list(threads.map(_digests, *zip(*tasks, strict=True)))
    of_groups = zip(*digests, strict=True) if digests else [()] * len(groups)
    return [hashlib.sha256(b"".join(columns)).hexdigest() for columns in of_groups]


_THREADED_CELLS = 1_000_000
"""Fewer are digested sooner than threads begin."""


def _digests(column: pl.Series | None, bounds: Sequence[int]) -> list[bytes]:
    """The digest of a column between each two bounds; of none where a frame begins."""
    if column is None:
        return [b"frame"] * (len(bounds) - 1)
    n_null, name, type_name = column.null_count(), column.name, type(column.dtype).__name__
    is_empty, gaps = n_null == column.len(), b""
    octets: list[Callable[[int, int], memoryview | bytes]] = []
    # Most columns of most stores hold nothing, or have no gap: their numbers say so.
    if not is_empty:
        if n_null:
            gaps = bytes(_octets(column.is_null().cast(pl.UInt8)))
        octets = _octets_between(column, has_gaps=n_null > 0)
    digests = []
    for begin, end in pairwise(bounds):
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
    column: pl.Series, *, has_gaps: bool
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
    buffers = filled.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest()).buffers()
    text, ends = memoryview(buffers[2] or b""), memoryview(buffers[1]).cast("q")
    return [
        _of_rows(filled.str.len_bytes()),
        lambda begin, end: text[ends[begin] : ends[end]],
    ]


def _of_rows(numbers: pl.Series) -> Callable[[int, int], memoryview]:
    octets = _octets(numbers)
    size = len(octets) // max(numbers.len(), 1)
    return lambda begin, end: octets[begin * size : end * size]


def _octets(numbers: pl.Series) -> memoryview:
    """The numbers of a column without nulls as they lie in memory, without a copy."""
    array = numbers.rechunk().to_arrow()
    size = array.type.bit_width // 8
    return memoryview(array.buffers()[1])[array.offset * size : (array.offset + len(array)) * size]


_NUMBERS = ("moment", "real", "integer", "yes_no")
Witness = tuple[float | None, ...]
_MOST_PIECES = 64


@dataclass(frozen=True)
class Kept:
    """A table as it was read, to go on from.

    Attributes
    ----------
    store : Store
        The copy that it was read from; where it was closed, all is read again.
    rows, findings : polars.DataFrame
        As `sqlite.read_table` gave them.
    witness : tuple of float, optional
        What is true of all rows, where a scan has found it already.
    """

    store: Store
    rows: pl.DataFrame
    findings: pl.DataFrame
    witness: Witness | None = None


def read_appended(
    store: Store,
    table: str,
    columns: Mapping[str, Cell],
    before: Kept | None = None,
    *,
    system: str = "",
) -> Kept:
    """What `sqlite.read_table` gives, from the rows that are new where that is the same.

    Parameters
    ----------
    store, table, columns, system
        As for `sqlite.read_table`.
    before : Kept, optional
        What an earlier read of the same ``columns`` gave.

    Returns
    -------
    Kept
        Rows and findings are those of a fresh read.
    """
    if before is not None and _has_same_shape(before.store, store, table):
        there = before.witness or _witness(before.store, table, columns)
        last = int(there[1] or 0)
        both = _witness(store, table, columns, up_to=last)
        if both[: len(there)] == there:
            new, odd = read_table(store, table, columns, system=system, after=last)
            if odd.is_empty():  # else both parts would have to be counted together
                rows = pl.concat([before.rows, new]) if new.height else before.rows
                # A piece a refresh would slow down whoever reads them after thousands.
                rows = rows.rechunk() if rows.n_chunks() > _MOST_PIECES else rows
                return Kept(store, rows, before.findings, both[len(there) :])
    return Kept(store, *read_table(store, table, columns, system=system))


def _has_same_shape(old: Store, new: Store, table: str) -> bool:
    return (
        old.copy.exists()
        and not old.losses
        and not new.losses
        and old.tables.get(table) == new.tables.get(table) is not None
        and old.rowids.get(table) == new.rowids.get(table) is not None
    )


def _witness(
    store: Store, table: str, columns: Mapping[str, Cell], *, up_to: int | None = None
) -> Witness:
    """What is true of the rows of a table: of those up to some row number, then of all."""
    rowid = store.rowids[table]
    needed = dict.fromkeys(
        name
        for column, cell in columns.items()
        for name in (cell.needs if cell.sql is not None else (column,))
        if name in store.tables[table]
    )
    numbers = {name for name, cell in columns.items() if cell.kind in _NUMBERS and not cell.sql}
    sums = [
        f"total({quoted(name) if name in numbers else f'octet_length({quoted(name)})'})"
        for name in needed
    ]
    whole = ["count(*)", f"max({rowid})", *sums]
    part = [] if up_to is None else [f"{f} FILTER (WHERE {rowid} <= {up_to})" for f in whole]
    with cursor_of(store) as cursor:
        # An index could answer for rows that the table no longer has.
        return cursor.row(f"SELECT {', '.join([*part, *whole])} FROM {quoted(table)} NOT INDEXED")

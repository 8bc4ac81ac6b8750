"""Pages of SQLite's tables: checks against the file format, and the rows of a page.

References
----------
.. [1] https://www.sqlite.org/fileformat2.html, sections 1.6 and 2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

LEAF, INTERIOR = 13, 5
INDEX_LEAF, INDEX_INTERIOR = 10, 2
NULL, NUMBER, TEXT, BLOB = range(4)
"""Kinds of values in the order in which SQLite sorts them."""

LEAST, MOST = -(2**63), 2**63 - 1
"""The smallest and largest possible row number."""


class Cell(NamedTuple):
    """One row of a leaf: its number, its columns, and where its octets are."""

    rowid: int
    n_columns: int
    page: int
    begin: int
    size: int


@dataclass(frozen=True)
class File:
    """The bytes of a store by page; page numbers begin at 1.

    Attributes
    ----------
    octets : bytes
        The whole file, or what is left of it.
    page_size : int
        From the header.
    """

    octets: bytes
    page_size: int

    @classmethod
    def of(cls, octets: bytes) -> File:
        """A file with the page size in its header."""
        stored = int.from_bytes(octets[16:18], "big")
        return cls(octets, 65536 if stored == 1 else stored)

    @property
    def n_pages(self) -> int:
        """Number of complete pages, whatever the header promises."""
        return len(self.octets) // self.page_size

    @property
    def usable(self) -> int:
        """Bytes of a page that rows may fill."""
        return self.page_size - self.octets[20]

    def page(self, number: int) -> bytes:
        """One page; empty where there is none."""
        begin = (number - 1) * self.page_size
        whole = 1 <= number <= self.n_pages
        return self.octets[begin : begin + self.page_size] if whole else b""

    def free_pages(self) -> set[int] | None:
        """Unused pages; None where the list of them is broken."""
        trunk, n_free = self._number(32), self._number(36)
        pages: set[int] = set()
        while trunk:
            page = self.page(trunk)
            n_leaves = int.from_bytes(page[4:8], "big")
            if not page or trunk in pages or n_leaves > self.usable // 4 - 2:
                return None
            pages.add(trunk)
            ends = range(8, 8 + 4 * n_leaves, 4)
            pages.update(int.from_bytes(page[at : at + 4], "big") for at in ends)
            trunk = int.from_bytes(page[:4], "big")
        return pages if len(pages) == n_free else None

    def _number(self, at: int) -> int:
        return int.from_bytes(self.octets[at : at + 4], "big")

    def text_encoding(self) -> str:
        """Python's name of the encoding of texts."""
        return {2: "utf-16-le", 3: "utf-16-be"}.get(self._number(56), "utf-8")

    def children(self, number: int, low: int, high: int) -> list[tuple[int, int, int]] | None:
        """Child pages of an interior page with the row numbers that each may hold.

        Parameters
        ----------
        number : int
            The page.
        low, high : int
            Row numbers of its subtree are above ``low``, up to ``high``.

        Returns
        -------
        list of (int, int, int), or None
            Child page and its two bounds; None if this is no interior page.
        """
        page, begin = self.page(number), 100 if number == 1 else 0
        if page[begin : begin + 1] != bytes([INTERIOR]):
            return None
        pages, below = [], low
        for at in _pointers(page, begin, 12, self.usable):
            if at is None:
                return None
            child = int.from_bytes(page[at : at + 4], "big")
            key, _ = _signed(page, at + 4)
            if not (child >= 2 and below < key <= high):
                return None
            pages.append((child, below, key))
            below = key
        pages.append((int.from_bytes(page[begin + 8 : begin + 12], "big"), below, high))
        return pages

    def cells(self, number: int, low: int = LEAST, high: int = MOST) -> list[Cell] | None:
        """The sound rows of a leaf; None where these are less than half.

        A row is sound if its number is within the bounds and above the one before, and if the
        sizes of its columns add up to its own.
        """
        page, begin = self.page(number), 100 if number == 1 else 0
        if page[begin : begin + 1] != bytes([LEAF]):
            return None
        sound: list[Cell] = []
        n_cells = 0
        for at in _pointers(page, begin, 8, self.usable):
            n_cells += 1
            cell = None if at is None else self._cell(number, page, at)
            last = sound[-1].rowid if sound else None
            if cell is None or not low <= cell.rowid <= high or cell.rowid == low != LEAST:
                continue
            if last is None or cell.rowid > last:
                sound.append(cell)
        # A page of noise with the first octet of a leaf has hardly a sound row.
        return sound if 2 * len(sound) >= n_cells else None

    def _cell(self, number: int, page: bytes, at: int) -> Cell | None:
        try:
            size, after = _varint(page, at)
            rowid, begin = _signed(page, after)
            header_size, _ = _varint(page, begin)
            local = self.local_size(size)
            # Of a row that is sound at least the types of its columns are in the page.
            if header_size > min(size, local) or begin + local > self.usable:
                return None
            kinds, end = _kinds(page, begin)
        except IndexError:
            return None
        is_sound = end == begin + header_size and header_size + sum(map(size_of, kinds)) == size
        return Cell(rowid, len(kinds), number, begin, size) if is_sound and kinds else None

    def n_cells(self, number: int) -> int:
        """The number of rows in the header of a leaf."""
        begin = 100 if number == 1 else 0
        return int.from_bytes(self.page(number)[begin + 3 : begin + 5], "big")

    def kinds(self, cell: Cell) -> list[int]:
        """The serial types of a sound row."""
        return _kinds(self.page(cell.page), cell.begin)[0]

    def is_legible(self, cell: Cell) -> bool:
        """Whether the texts of a sound row can be decoded: overwritten ones seldom can."""
        encoding, payload = self.text_encoding(), self.payload(cell)
        if not payload:  # a missing page is noticed later, but not a chain that is too long
            return self.overflow(cell, must_end=False) is None
        try:
            texts = (value for kind, value in values_of(payload) or () if kind == TEXT)
            return all("\0" not in text.decode(encoding) for text in texts)
        except UnicodeDecodeError:
            return False

    def values(self, cell: Cell, n: int) -> list[Value] | None:
        """The first values of a sound row; None where its overflow is missing."""
        end = cell.begin + self.local_size(cell.size)
        local = values_of(self.page(cell.page)[cell.begin : end], n)
        return local or values_of(self.payload(cell) or b"\x01", n)

    def index_entries(
        self, number: int, n_values: int
    ) -> list[tuple[int | None, tuple[Value, ...] | None]] | None:
        """The entries of a page of an index, each with the child page of smaller entries.

        Parameters
        ----------
        number : int
            The page.
        n_values : int
            Number of values of an entry, the row number included.

        Returns
        -------
        list of (int or None, tuple or None), or None
            The last child page, if any, comes without an entry. None if this is no page of an
            index, or an entry is not sound.
        """
        page = self.page(number)
        is_leaf = page[:1] == bytes([INDEX_LEAF])
        if not is_leaf and page[:1] != bytes([INDEX_INTERIOR]):
            return None
        entries: list[tuple[int | None, tuple[Value, ...] | None]] = []
        for at in _pointers(page, 0, 8 if is_leaf else 12, self.usable):
            if at is None:
                return None
            begin = at if is_leaf else at + 4
            try:
                size, begin = _varint(page, begin)
                values = values_of(self._whole(page, begin, size, is_index=True), n_values)
            except (IndexError, ValueError):
                return None
            if values is None or len(values) != n_values:
                return None
            child = None if is_leaf else int.from_bytes(page[at : at + 4], "big")
            entries.append((child, tuple(values)))
        if not is_leaf:
            entries.append((int.from_bytes(page[8:12], "big"), None))
        return entries

    def local_size(self, size: int, *, is_index: bool = False) -> int:
        """Bytes of a row of this size that are in its leaf; the others overflow."""
        most = (self.usable - 12) * 64 // 255 - 23 if is_index else self.usable - 35
        if size <= most:
            return size
        least = (self.usable - 12) * 32 // 255 - 23
        extra = least + (size - least) % (self.usable - 4)
        return extra if extra <= most else least

    def payload(self, cell: Cell) -> bytes:
        """A whole row with its overflow; empty where a page of it is missing."""
        return self._whole(self.page(cell.page), cell.begin, cell.size)

    def _whole(self, page: bytes, begin: int, size: int, *, is_index: bool = False) -> bytes:
        local = self.local_size(size, is_index=is_index)
        octets = bytearray(page[begin : begin + local])
        overflow = self._overflow(page, begin + local, size - local)
        for following in overflow or ():
            octets += self.page(following)[4 : 4 + min(size - len(octets), self.usable - 4)]
        return b"" if overflow is None else bytes(octets)

    def overflow(self, cell: Cell, *, must_end: bool = True) -> list[int] | None:
        """The overflow pages of a row; None where these are no complete chain."""
        local = self.local_size(cell.size)
        page, n_left = self.page(cell.page), cell.size - local
        return self._overflow(page, cell.begin + local, n_left, must_end=must_end)

    def _overflow(
        self, page: bytes, end: int, n_left: int, *, must_end: bool = True
    ) -> list[int] | None:
        if n_left > self.n_pages * self.page_size:  # more than the file has
            return None
        pages: list[int] = []
        following = int.from_bytes(page[end : end + 4], "big")
        for _ in range(0, n_left, self.usable - 4):
            page = self.page(following)
            if not page:
                return None
            pages.append(following)
            following = int.from_bytes(page[:4], "big")
        # The last page of a chain has no successor, which pages of other content seldom lack.
        return None if must_end and pages and following else pages


Value = tuple[int, Any]
"""A kind, and the number or the bytes; these compare as in SQLite."""


def size_of(kind: int) -> int:
    """Bytes of a value of this serial type.

    Examples
    --------
    >>> [size_of(kind) for kind in (0, 1, 5, 6, 7, 8, 12, 13, 17)]
    [0, 1, 6, 8, 8, 0, 0, 0, 2]
    """
    return (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind] if kind < 10 else (kind - 12) // 2


def plain(values: Iterable[Value], encoding: str) -> list[Any]:
    """Values as Python has them."""
    return [
        value.decode(encoding, "replace") if kind == TEXT else None if kind == NULL else value
        for kind, value in values
    ]


def values_of(payload: bytes, n: int | None = None) -> list[Value] | None:
    """The values of a row, or the first ``n``; None where the row is too short."""
    header_size, at = _varint(payload, 0)
    values: list[Value] = []
    body = header_size
    while at < header_size and (n is None or len(values) < n):
        if at >= len(payload):
            return None
        kind, at = _varint(payload, at)
        octets = payload[body : body + size_of(kind)]
        body += size_of(kind)
        if body > len(payload):
            return None
        if kind in (0, 8, 9):
            values.append((NUMBER, kind - 8) if kind else (NULL, 0))
        elif kind == 7:
            values.append((NUMBER, struct.unpack(">d", octets)[0]))
        elif kind < 12:
            values.append((NUMBER, int.from_bytes(octets, "big", signed=True)))
        else:
            values.append((TEXT if kind % 2 else BLOB, octets))
    return values


def _kinds(page: bytes, begin: int) -> tuple[list[int], int]:
    """The serial types of a row, and the offset after them."""
    header_size, at = _varint(page, begin)
    kinds = []
    while at < begin + header_size:
        kind, at = _varint(page, at)
        kinds.append(kind)
    return kinds, at


def _pointers(page: bytes, begin: int, header: int, usable: int) -> Iterator[int | None]:
    """The offset of each cell; None for an offset outside of its page."""
    n_cells = int.from_bytes(page[begin + 3 : begin + 5], "big")
    first = begin + header
    for place in range(first, min(first + 2 * n_cells, usable - 1), 2):
        at = int.from_bytes(page[place : place + 2], "big")
        yield at if first + 2 * n_cells <= at <= usable - 4 else None


def _varint(octets: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and the offset after it."""
    value = 0
    for place in range(at, at + 8):
        octet = octets[place]
        value = value << 7 | octet & 0x7F
        if octet < 0x80:
            return value, place + 1
    return value << 8 | octets[at + 8], at + 9


def _signed(octets: bytes, at: int) -> tuple[int, int]:
    value, after = _varint(octets, at)
    return value - 2**64 if value > MOST else value, after

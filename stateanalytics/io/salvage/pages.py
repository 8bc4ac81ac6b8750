"""Pages of SQLite's tables: is one what it says it is, and which rows does it hold.

References
----------
.. [1] https://www.sqlite.org/fileformat2.html, sections 1.6 and 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LEAF, INTERIOR = 13, 5
LEAST, MOST = -(2**63), 2**63 - 1
"""The first and last row number that there can be."""


@dataclass(frozen=True)
class Cell:
    """One row of a leaf: its number, how many columns it has, where it lies."""

    rowid: int
    n_columns: int
    at: int


@dataclass(frozen=True)
class File:
    """The bytes of a store, page by page; numbers begin at 1.

    Attributes
    ----------
    octets : bytes
        All of it, or what is left of it.
    page_size : int
        As the header says.
    """

    octets: bytes
    page_size: int

    @classmethod
    def of(cls, octets: bytes) -> File:
        """Read the size of pages off the header."""
        stored = int.from_bytes(octets[16:18], "big")
        return cls(octets, 65536 if stored == 1 else stored)

    @property
    def n_pages(self) -> int:
        """Whole pages that are there, whatever the header promises."""
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
        """Pages that are not in use; None where the list of them is broken."""
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
        """How Python calls the encoding of the store's texts."""
        return {2: "utf-16-le", 3: "utf-16-be"}.get(self._number(56), "utf-8")

    def children(self, number: int, low: int, high: int) -> list[tuple[int, int, int]] | None:
        """Child pages of an interior page with the rows that each may hold.

        Parameters
        ----------
        number : int
            The page.
        low, high : int
            Rows of its subtree are above ``low``, up to ``high``.

        Returns
        -------
        list of (int, int, int), or None
            Page, and the same two bounds of it; None if this is no such page.
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
        """The rows of a leaf that are sound; None where too little of it is.

        A row is sound if its number lies between the bounds and after the one before,
        and if the sizes of its columns add up to its own.
        """
        page, begin = self.page(number), 100 if number == 1 else 0
        if page[begin : begin + 1] != bytes([LEAF]):
            return None
        sound: list[Cell] = []
        n_cells = 0
        for at in _pointers(page, begin, 8, self.usable):
            n_cells += 1
            cell = None if at is None else self._cell(page, at)
            last = sound[-1].rowid if sound else None
            if cell is None or not low <= cell.rowid <= high or cell.rowid == low != LEAST:
                continue
            if last is None or cell.rowid > last:
                sound.append(cell)
        # A page of noise that happens to begin as a leaf does has hardly a sound row.
        return sound if 2 * len(sound) >= n_cells else None

    def _cell(self, page: bytes, at: int) -> Cell | None:
        try:
            size, after = _varint(page, at)
            rowid, begin = _signed(page, after)
            header_size, field = _varint(page, begin)
            local = self.local_size(size)
            if header_size > size or begin + local > self.usable:
                return None
            n_columns, n_bytes = 0, header_size
            end = begin + header_size
            if header_size > local:  # so many columns that not even their types fit
                return None
            while field < end:
                kind, field = _varint(page, field)
                n_columns += 1
                n_bytes += size_of(kind)
        except IndexError:
            return None
        sound = field == end and n_bytes == size and n_columns > 0
        return Cell(rowid, n_columns, at) if sound else None

    def local_size(self, size: int) -> int:
        """How much of a row of this size lies in its leaf; the rest overflows."""
        most = self.usable - 35
        if size <= most:
            return size
        least = (self.usable - 12) * 32 // 255 - 23
        extra = least + (size - least) % (self.usable - 4)
        return extra if extra <= most else least

    def payload(self, number: int, at: int) -> bytes:
        """A whole row, with what overflows; empty where a page of it is not there."""
        page = self.page(number)
        size, after = _varint(page, at)
        _, begin = _varint(page, after)
        octets = bytearray(page[begin : begin + self.local_size(size)])
        overflow = self.overflow(number, at)
        for following in overflow or ():
            octets += self.page(following)[4 : 4 + min(size - len(octets), self.usable - 4)]
        return b"" if overflow is None else bytes(octets)

    def overflow(self, number: int, at: int) -> list[int] | None:
        """The pages that a row goes on to; None where one of them is not there."""
        page = self.page(number)
        size, after = _varint(page, at)
        _, begin = _varint(page, after)
        local = self.local_size(size)
        if size > self.n_pages * self.page_size:  # it would go round in circles
            return None
        pages = []
        following = int.from_bytes(page[begin + local : begin + local + 4], "big")
        for _ in range(0, size - local, self.usable - 4):
            page = self.page(following)
            if not page:
                return None
            pages.append(following)
            following = int.from_bytes(page[:4], "big")
        return pages


def size_of(kind: int) -> int:
    """Bytes that a value of this serial type takes.

    Examples
    --------
    >>> [size_of(kind) for kind in (0, 1, 5, 6, 7, 8, 12, 13, 17)]
    [0, 1, 6, 8, 8, 0, 0, 0, 2]
    """
    return (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind] if kind < 10 else (kind - 12) // 2


def columns_of(payload: bytes, encoding: str) -> list[str | int | None]:
    """The texts and whole numbers of a row; anything else is None."""
    header_size, at = _varint(payload, 0)
    values: list[str | int | None] = []
    body = header_size
    while at < header_size:
        kind, at = _varint(payload, at)
        octets = payload[body : body + size_of(kind)]
        body += size_of(kind)
        if kind >= 13 and kind % 2:
            values.append(octets.decode(encoding, "replace"))
        elif kind in (8, 9):
            values.append(kind - 8)
        else:
            values.append(int.from_bytes(octets, "big", signed=True) if 1 <= kind <= 6 else None)
    return values


def _pointers(page: bytes, begin: int, header: int, usable: int) -> Iterator[int | None]:
    """Where each cell lies; None for one that would lie outside of its page."""
    n_cells = int.from_bytes(page[begin + 3 : begin + 5], "big")
    first = begin + header
    for place in range(first, min(first + 2 * n_cells, usable - 1), 2):
        at = int.from_bytes(page[place : place + 2], "big")
        yield at if first + 2 * n_cells <= at <= usable - 4 else None


def _varint(octets: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where the next begins."""
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


def varint(value: int) -> bytes:
    """A number as the format writes it.

    Examples
    --------
    >>> [_varint(varint(n), 0)[0] == n for n in (0, 127, 128, 2**56, 2**63 - 1)]
    [True, True, True, True, True]
    """
    value &= 2**64 - 1
    if value >= 2**56:
        head, last = value >> 8, value & 0xFF
        return bytes([0x80 | head >> 7 * place & 0x7F for place in range(7, -1, -1)] + [last])
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(0x80 | value & 0x7F)
    return bytes(reversed(groups))

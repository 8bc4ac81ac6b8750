"""The rows that may differ between two copies of one store, from the pages that differ.

A page that is equal in both holds the same rows, so only rows of other pages are looked at,
whatever the size of the store. Every changed page must be accounted for: a leaf or an inner
page of a table, a page of an index, an overflow page of a row on a changed leaf, or a free
page. Otherwise there is no answer, because an overflow page may change while the page of its
row does not.

References
----------
.. [1] https://www.sqlite.org/fileformat2.html, sections 1.3, 1.5, 1.6 and 4.1.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from stateanalytics.io.salvage.pages import INTERIOR, LEAF, File

_INDEX_PAGES = (2, 10)
# An overflow page begins with a page number, whose first octet is 0 below this number.
_MOST_PAGES = 2**24
LOG_HEADER, FRAME_HEADER = 32, 24
# A multiple of every page size. Slices of twice the size would be mapped one by one by malloc,
# which takes three times as long as the comparison.
_BLOCK = 2**16


class _NotProvenError(Exception):
    """A changed page that none of the rules accounts for."""


@dataclass(frozen=True)
class Tree:
    """The pages of one table: inner pages with their children, and leaves."""

    inner: Mapping[int, tuple[int, ...]]
    leaves: frozenset[int]


@dataclass(frozen=True)
class Rows:
    """Numbers of rows of one table on changed pages, before and now."""

    before: frozenset[int] = frozenset()
    now: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Difference:
    """The rows that may differ between two copies.

    Attributes
    ----------
    before : pathlib.Path
        The earlier copy.
    rows : mapping of str to Rows
        By table; tables without row numbers are absent.
    trees : mapping of str to Tree
        The pages of these tables now, for the next comparison.
    """

    before: Path
    rows: Mapping[str, Rows]
    trees: Mapping[str, Tree]


@dataclass(frozen=True)
class _Copy(File):
    """A copy and its write-ahead log, which has the newer pages."""

    log: bytes = b""
    ends: Mapping[int, int] = field(default_factory=dict)
    n_logged: int = 0

    @cached_property
    def n_pages(self) -> int:
        """Number of pages by the last commit in the log, else by the size of the file."""
        return self.n_logged or len(self.octets) // self.page_size

    def page(self, number: int) -> bytes:
        """The newest version of a page; empty where there is none."""
        end = self.ends.get(number)
        return super().page(number) if end is None else self.log[end - self.page_size : end]

    def _number(self, at: int) -> int:
        return int.from_bytes(self.page(1)[at : at + 4], "big")


def difference(
    before: Path,
    now: Path,
    roots: Mapping[str, int],
    trees: Mapping[str, Tree],
    changed: Collection[int] | None = None,
) -> Difference | None:
    """The rows that may differ between two copies; all others are equal.

    Parameters
    ----------
    before, now : pathlib.Path
        The copies, each with its log, if it has one.
    roots : mapping of str to int
        First page of each table with row numbers, the same in both.
    trees : mapping of str to Tree
        The pages of the tables before, if known.
    changed : collection of int, optional
        The pages that may differ, if known.

    Returns
    -------
    Difference or None
        None where it cannot be proven.
    """
    with _opened(before) as old, _opened(now) as new:
        if not _is_comparable(old, new):
            return None
        pages = frozenset(_differing(old, new) if changed is None else changed)
        try:
            return Difference(before, *_differing_rows(old, new, pages, roots, trees))
        except (_NotProvenError, struct.error, IndexError):
            return None


@contextmanager
def _opened(path: Path) -> Iterator[_Copy]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as octets:
        log_path = path.with_name(path.name + "-wal")
        log = log_path.read_bytes() if log_path.exists() else b""
        whole = File.of(octets)  # type: ignore[arg-type]
        size = whole.page_size + FRAME_HEADER
        ats = range(LOG_HEADER, len(log) - size + 1, size)
        # Of each frame its page, and the number of pages after a commit.
        heads = [struct.unpack_from(">II", log, at) for at in ats]
        ends = {page: at + size for at, (page, _) in zip(ats, heads, strict=True)}
        yield _Copy(whole.octets, whole.page_size, log, ends, heads[-1][1] if heads else 0)


def _is_comparable(old: _Copy, new: _Copy) -> bool:
    """Whether both have the same page size and tables, and page kinds can be recognised."""
    first, second = old.page(1), new.page(1)
    # Without the counter of changes to the tables: a backup has one of its own. If definitions
    # fill more than the first page, the other pages belong to no table of these.
    same = [slice(16, 18), slice(20, 24), slice(44, 48), slice(52, 60), slice(64, 68)]
    same.append(slice(100, old.page_size))
    # The pages of auto-vacuum, which record where other pages are, have no kind.
    has_auto_vacuum = first[52:56] != b"\0\0\0\0"
    return (
        all(first[at] == second[at] for at in same)
        and not has_auto_vacuum
        and max(old.n_pages, new.n_pages) < _MOST_PAGES
    )


def _differing(old: _Copy, new: _Copy) -> set[int]:
    """Pages that differ between the files, and pages in either log."""
    size = old.page_size
    n_common = min(len(old.octets), len(new.octets)) // size
    pages = {
        at // size + 1
        for block in range(0, n_common * size, _BLOCK)
        if old.octets[block : block + _BLOCK] != new.octets[block : block + _BLOCK]
        for at in range(block, min(block + _BLOCK, n_common * size), size)
        if old.octets[at : at + size] != new.octets[at : at + size]
    }
    return {*pages, *old.ends, *new.ends, *range(n_common + 1, new.n_pages + 1)}


def _differing_rows(
    old: _Copy,
    new: _Copy,
    changed: frozenset[int],
    roots: Mapping[str, int],
    trees: Mapping[str, Tree],
) -> tuple[dict[str, Rows], dict[str, Tree]]:
    explained: set[int] = {1}
    rows, new_trees = {}, {}
    for table, root in roots.items():
        before = trees.get(table) or _tree(old, root)
        is_same = root not in changed and changed.isdisjoint(before.inner)
        kept = {page: below for page, below in before.inner.items() if page not in changed}
        now = before if is_same else _tree(new, root, kept)
        old_leaves, new_leaves = before.leaves & changed, now.leaves & changed
        if now is not before:
            old_leaves |= before.leaves - now.leaves
            new_leaves |= now.leaves - before.leaves
        rows[table] = Rows(_rows(old, old_leaves, set()), _rows(new, new_leaves, explained))
        explained |= new_leaves | now.inner.keys()
        new_trees[table] = now
    unexplained = {
        page
        for page in changed - explained
        if page <= new.n_pages and new.page(page)[0] not in _INDEX_PAGES
    }
    if unexplained and not unexplained <= (new.free_pages() or set()):
        raise _NotProvenError
    return rows, new_trees


def _tree(file: _Copy, root: int, known: Mapping[int, tuple[int, ...]] | None = None) -> Tree:
    """All pages of a table; ``known`` inner pages are not read. All leaves have one depth."""
    inner: dict[int, tuple[int, ...]] = {}
    level = [root]
    while file.page(level[0])[0] == INTERIOR:
        if not inner.keys().isdisjoint(level):
            raise _NotProvenError
        below = {page: (known or {}).get(page) or _children(file.page(page)) for page in level}
        inner.update(below)
        level = [child for children in below.values() for child in children]
    return Tree(inner, frozenset(level))


def _children(page: bytes) -> tuple[int, ...]:
    kind, _, n_cells, _, _, last = struct.unpack_from(">BHHHBI", page)
    if kind != INTERIOR:
        raise _NotProvenError
    cells = struct.unpack_from(f">{n_cells}H", page, 12)
    return (*(struct.unpack_from(">I", page, at)[0] for at in cells), last)


def _rows(file: _Copy, leaves: Iterable[int], overflow: set[int]) -> frozenset[int]:
    """The row numbers on some leaves; adds the overflow pages of the rows to ``overflow``."""
    numbers: set[int] = set()
    for leaf in leaves:
        page = file.page(leaf)
        cells = file.cells(leaf)
        if page[0] != LEAF or cells is None or len(cells) != int.from_bytes(page[3:5], "big"):
            raise _NotProvenError
        for cell in cells:
            following = file.overflow(cell)
            if following is None:
                raise _NotProvenError
            numbers.add(cell.rowid)
            overflow.update(following)
    return frozenset(numbers)

"""Tables of a damaged store: their leaves, the table that owns each leaf, and the lost rows.

A leaf belongs to a table if the definition allows its rows and the indexes list them. A damaged
index proves nothing by itself, so no rows are read from one. But an entry with the key and the
number of a row confirms that the row is of this table, and a sound page of an index without
the entry contradicts it.

References
----------
.. [1] https://www.sqlite.org/fileformat2.html, sections 1.6 and 2.1.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import NamedTuple

from stateanalytics.io.salvage.pages import LEAF, LEAST, MOST, NULL, NUMBER, Cell, File, Value
from stateanalytics.io.sqlite_copy import keeps_text, quoted

_DENY_FUNCTIONS = {sqlite3.SQLITE_FUNCTION: sqlite3.SQLITE_DENY}
_N_INDEXES = 3  # per table; each costs time, and two rarely have the same gap


class Column(NamedTuple):
    """One stored column, and the values that are possible in it.

    Attributes
    ----------
    name, declared : str
        Its name; its declared type and default, as SQL.
    affinity : str
        TEXT, INTEGER, REAL, BLOB or NUMERIC; in a STRICT table the declared type.
    is_strict, is_required : bool
        Whether other types and nulls are refused.
    may_be_absent : bool
        Whether rows may have been written before the column was added.
    is_rowid : bool
        Whether it is another name of the row number, and so not stored itself.
    """

    name: str = ""
    declared: str = ""
    affinity: str = "NUMERIC"
    is_strict: bool = False
    is_required: bool = False
    may_be_absent: bool = False
    is_rowid: bool = False

    def allows(self, kind: int) -> bool:
        """Whether SQLite stores a value of this serial type in the column."""
        if self.is_rowid or kind == 0:
            return kind == 0 and (self.is_rowid or not self.is_required)
        is_number, is_blob = kind < 12, kind >= 12 and kind % 2 == 0
        if self.affinity == "TEXT":  # SQLite converts every number to text
            return not (is_number or (is_blob and self.is_strict))
        return not self.is_strict or self.affinity == "ANY" or self.expects(kind)

    def expects(self, kind: int) -> bool:
        """Whether the type is also the declared one: SQLite accepts text in columns of numbers."""
        is_text, is_number = kind >= 13 and kind % 2 == 1, kind < 12
        if self.affinity in ("INTEGER", "INT", "REAL"):
            return is_number or not (is_text or self.is_strict)
        return True


@dataclass(frozen=True)
class Index:
    """The readable entries of an index, in order.

    Attributes
    ----------
    places : tuple of int
        Positions of the indexed columns.
    entries : list of tuple
        The values of these columns and the row number.
    gaps : set of int
        Positions before which entries may be missing.
    """

    places: tuple[int, ...]
    entries: list[tuple[Value, ...]] = field(repr=False)
    gaps: set[int] = field(repr=False)

    def lists(self, entry: tuple[Value, ...]) -> bool | None:
        """Whether the index has an entry; None where that cannot be known."""
        place = bisect_left(self.entries, entry)
        if self.entries[place : place + 1] == [entry]:
            # Nulls and row numbers are the same in rows of any table.
            return None if all(kind == NULL for kind, _ in entry[:-1]) else True
        return None if place in self.gaps else False


@dataclass(frozen=True)
class Owner:
    """The properties by which rows of a table are recognized."""

    columns: tuple[Column, ...]
    indexes: tuple[Index, ...] = ()

    def judged(self, file: File, cells: Sequence[Cell]) -> tuple[tuple[Cell, ...], int]:
        """The rows of a leaf that may be of this table, and the number that certainly are.

        There are none if the definition or the indexes exclude most rows: then the page is
        another table's, and a row that fits does so by chance.
        """
        if not any(self._allows(file, cell) for cell in (cells[0], cells[-1])):
            return (), 0  # a quick check, which excludes most tables
        allowed = [cell for cell in cells if self._allows(file, cell)]
        answers = [self._lists(file, cell) for cell in allowed]
        expected = [self._expects(file, cell) for cell in allowed]
        n_listed, n_not = answers.count(True), answers.count(False)
        if 2 * sum(expected) < len(cells) or n_not > n_listed:
            return (), 0
        rows = zip(allowed, answers, expected, strict=True)
        kept = (
            cell for cell, answer, is_expected in rows if answer or (answer is None and is_expected)
        )
        return tuple(kept), n_listed

    def n_rows(self) -> int | None:
        """The number of rows by an index; None where no index is complete."""
        return next((len(index.entries) for index in self.indexes if not index.gaps), None)

    def _allows(self, file: File, cell: Cell) -> bool:
        if cell.n_columns > len(self.columns):
            return False
        kinds = file.kinds(cell)
        return (
            all(map(Column.allows, self.columns, kinds))
            and all(column.may_be_absent for column in self.columns[cell.n_columns :])
            and file.is_legible(cell)
        )

    def _expects(self, file: File, cell: Cell) -> bool:
        return all(map(Column.expects, self.columns, file.kinds(cell)))

    def _lists(self, file: File, cell: Cell) -> bool | None:
        answers = set()
        for index in self.indexes:
            n_needed = max(index.places) + 1
            # A row may have been written before the column was added.
            row = file.values(cell, n_needed) if n_needed <= cell.n_columns else None
            if row:
                number = (NUMBER, cell.rowid)
                key = (
                    number if self.columns[place].is_rowid else row[place] for place in index.places
                )
                answers.add(index.lists((*key, number)))
        return True if True in answers else False if False in answers else None


def owner_of(file: File, name: str, sql: str, indexes: Sequence[tuple[str, int, str]]) -> Owner:
    """The owner by a definition, without running code in it, and by its indexes.

    Parameters
    ----------
    file : File
        The store.
    name, sql : str
        The table and its definition.
    indexes : sequence of (str, int, str)
        Name, root page and definition of each of its indexes.
    """
    with closing(sqlite3.connect(":memory:")) as nowhere:
        nowhere.execute(sql)
        # An index over expressions would run them, and does not help to recognize rows.
        nowhere.set_authorizer(lambda action, *_: _DENY_FUNCTIONS.get(action, sqlite3.SQLITE_OK))
        for _, _, definition in indexes:
            with suppress(sqlite3.Error):
                nowhere.execute(definition)
        described = nowhere.execute(
            'SELECT cid, name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?) '
            "WHERE hidden <> 2 ORDER BY cid",  # virtual generated columns are not stored
            (name,),
        ).fetchall()
        query = 'SELECT name, origin, "unique" FROM pragma_index_list(?) WHERE NOT partial'
        listed = nowhere.execute(query, (name,)).fetchall()
        query = 'SELECT cid, "desc", coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno'
        keys = {index: nowhere.execute(query, (index,)).fetchall() for index, _, _ in listed}
    is_strict = "STRICT" in sql.upper().rpartition(")")[2]
    has_key_index = any(origin == "pk" for _, origin, _ in listed)
    columns = tuple(
        Column(
            name=column,
            declared=f"{quoted(kind)} {_default(default)}",
            affinity=kind.upper() if is_strict else _affinity(kind),
            is_strict=is_strict,
            is_required=bool(not_null),
            may_be_absent=not key and (default is not None or not not_null),
            is_rowid=bool(key) and not has_key_index,
        )
        for _, column, kind, not_null, default, key in described
    )
    places = {cid: place for place, (cid, *_) in enumerate(described)}
    roots = {index: root for index, root, _ in indexes}
    # An entry of an index that is not unique proves less: rows of two tables may have it.
    best = max((unique for index, _, unique in listed if index in roots), default=0)
    usable = [
        (roots[index], tuple(places[cid] for cid, *_ in keys[index]))
        for index, _, unique in listed
        if index in roots
        and unique == best
        and all(cid in places and not desc and coll == "BINARY" for cid, desc, coll in keys[index])
    ]
    return Owner(columns, tuple(_read_index(file, *index) for index in usable[:_N_INDEXES]))


def _default(value: str | None) -> str:
    """SQL: the default of a column, where older rows may have it: SQLite refuses all others."""
    for sql in () if value is None else (f"DEFAULT ({value}\n)", f"DEFAULT {value}"):
        with closing(sqlite3.connect(":memory:")) as nowhere, suppress(sqlite3.Error):
            nowhere.execute("CREATE TABLE t (a)")
            nowhere.execute("INSERT INTO t DEFAULT VALUES")
            nowhere.execute(f"ALTER TABLE t ADD COLUMN b {sql}")
            query = "SELECT dflt_value FROM pragma_table_info('t') WHERE name = 'b'"
            if nowhere.execute(query).fetchone() == (value,):  # and no constraint after it
                return sql
    return ""


def _affinity(declared: str) -> str:
    """The affinity of a declared type, by SQLite's rules in their order."""
    kind = declared.upper()
    if "INT" in kind:
        return "INTEGER"
    if keeps_text(kind):
        return "TEXT"
    if "BLOB" in kind or not kind:
        return "BLOB"
    return "REAL" if any(word in kind for word in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _read_index(file: File, root: int, places: tuple[int, ...]) -> Index:
    """Every entry of an index, and the gaps of its invalid pages."""
    entries: list[tuple[Value, ...]] = []
    gaps: set[int] = set()
    seen: set[int] = set()
    # A page with the upper bound of its entries; or None with an entry.
    left: list[tuple[int | None, tuple[Value, ...] | None]] = [(root, None)]
    while left:
        page, entry = left.pop()
        if page is None:
            if entry is not None:
                entries.append(entry)
            continue
        on_page = None if page in seen else file.index_entries(page, len(places) + 1)
        last = entries[-1] if entries else None
        keys = [key for _, key in on_page or () if key is not None]
        bounds = [*([] if last is None else [last]), *keys, *([] if entry is None else [entry])]
        is_empty = not on_page and page != root  # only the root of an empty index may be empty
        if on_page is None or is_empty or any(below >= above for below, above in pairwise(bounds)):
            gaps.add(len(entries))
            continue
        seen.add(page)
        steps: list[tuple[int | None, tuple[Value, ...] | None]] = []
        for child, key in on_page:
            if child is not None:
                steps.append((child, entry if key is None else key))
            steps.append((None, key))
        left.extend(reversed(steps))
    return Index(places, entries, gaps)


@dataclass(frozen=True)
class Leaf:
    """A page with readable rows, of which ``n_lost`` more cannot be read."""

    page: int
    cells: tuple[Cell, ...]
    n_lost: int = 0

    @property
    def first(self) -> int:
        """Its smallest row number."""
        return self.cells[0].rowid

    @property
    def last(self) -> int:
        """Its largest row number."""
        return self.cells[-1].rowid


@dataclass(frozen=True)
class Gap:
    """Row numbers above ``low``, up to ``high``, of a page that cannot be read.

    Attributes
    ----------
    page : int
        The page.
    low, high : int
        The bounds.
    depth : int or None
        Its levels below the root; None where other pages may be missing with it.
    """

    page: int
    low: int
    high: int
    depth: int | None = None


@dataclass(frozen=True)
class Tree:
    """What is left of one table.

    Attributes
    ----------
    name, sql : str
        From its definition.
    root : int
        Its first page.
    owner : Owner
        How its rows are recognized.
    leaves : tuple of Leaf
        In the order of row numbers.
    gaps : tuple of Gap
        Unreadable ranges, in the same order.
    leaf_depth : int or None
        Levels of all leaves below the root; None without leaves.
    seen : frozenset of int
        Pages of this table.
    """

    name: str
    sql: str
    root: int
    owner: Owner = field(default=Owner(()), repr=False)
    leaves: tuple[Leaf, ...] = ()
    gaps: tuple[Gap, ...] = ()
    leaf_depth: int | None = None
    seen: frozenset[int] = field(default=frozenset(), repr=False)

    @property
    def cells(self) -> Iterator[Cell]:
        """All of its rows."""
        return chain.from_iterable(leaf.cells for leaf in self.leaves)

    @property
    def pages(self) -> set[int]:
        """Every page that is known to be of this table."""
        return {*self.seen, *(leaf.page for leaf in self.leaves)}


def walk(file: File, tree: Tree) -> Tree:
    """Follow a table from its root; invalid pages become gaps."""
    leaves: list[tuple[Leaf, Gap]] = []
    gaps: list[Gap] = []
    seen: set[int] = set()
    left = [Gap(tree.root, LEAST, MOST, 0)]
    while left:
        place = left.pop()
        page, low, high, depth = place.page, place.low, place.high, place.depth or 0
        children = None if page in seen else file.children(page, low, high)
        cells = None if page in seen or children else file.cells(page, low, high)
        # Only the root of an empty table may have no rows.
        if children is None and (cells is None or (depth and not cells)):
            gaps.append(place)
            continue
        seen.add(page)
        left.extend(Gap(*child, depth + 1) for child in reversed(children or []))
        if cells:
            leaves.append((_leaf(file, page, cells), place))
    n_at = Counter(place.depth for _, place in leaves)
    leaf_depth = max(n_at, key=lambda depth: n_at[depth], default=None)
    # All leaves have the same depth: a leaf above them has replaced a page that led to many.
    misplaced = [place for _, place in leaves if place.depth != leaf_depth]
    return replace(
        tree,
        leaves=tuple(leaf for leaf, place in leaves if place not in misplaced),
        gaps=tuple(gaps + [replace(place, depth=None) for place in misplaced]),
        leaf_depth=leaf_depth,
        seen=frozenset(seen.difference(place.page for place in misplaced)),
    )


def _leaf(file: File, page: int, cells: list[Cell]) -> Leaf:
    return Leaf(page, tuple(cells), file.n_cells(page) - len(cells))


def own(file: File, trees: list[Tree]) -> list[Tree]:
    """The trees without leaves of other tables, to which a misplaced interior page leads.

    Returns
    -------
    list of Tree
        With a gap for each leaf of another table or of unknown owner.
    """
    trees = [replace(tree, owner=_with_own_indexes(file, tree)) for tree in trees]
    n_trees = Counter(leaf.page for tree in trees for leaf in tree.leaves)
    return [
        _without_others(tree, [_owned(file, leaf, tree, trees, n_trees) for leaf in tree.leaves])
        for tree in trees
    ]


def _with_own_indexes(file: File, tree: Tree) -> Owner:
    """The owner of a tree without indexes that list none of its rows.

    The root of an index may be misplaced, too, which cannot be noticed otherwise.
    """
    kept = []
    for index in tree.owner.indexes:
        alone = replace(tree.owner, indexes=(index,))
        leaves = chain(tree.leaves, _leaves(file, tree.pages)) if index.entries else ()
        if any(alone.judged(file, leaf.cells)[1] for leaf in leaves):
            kept.append(index)
    return replace(tree.owner, indexes=tuple(kept))


def _owned(
    file: File, leaf: Leaf, tree: Tree, trees: list[Tree], n_trees: Counter[int]
) -> Leaf | None:
    cells, n_sure = tree.owner.judged(file, leaf.cells)
    if cells and (not n_sure or n_trees[leaf.page] > 1):
        others = (other.owner for other in trees if other is not tree)
        n_sure_elsewhere = max((owner.judged(file, leaf.cells)[1] for owner in others), default=0)
        if n_sure_elsewhere > n_sure or (n_trees[leaf.page] > 1 and n_sure_elsewhere == n_sure):
            return None
    return replace(leaf, cells=cells) if cells else None


def _without_others(tree: Tree, kept: list[Leaf | None]) -> Tree:
    leaves = [leaf for leaf in kept if leaf is not None]
    others = [leaf for leaf, own in zip(tree.leaves, kept, strict=True) if own is None]
    is_listed = bool(tree.owner.indexes) and not tree.leaves and not tree.gaps
    if is_listed:  # its root is an empty page of another table
        return replace(tree, gaps=(Gap(tree.root, LEAST, MOST),))
    if not others:
        return replace(tree, leaves=tuple(leaves))
    gaps: list[Gap] = []
    lows = [LEAST, *(leaf.last for leaf in leaves)]
    highs = [*(leaf.first - 1 for leaf in leaves), MOST]
    for low, high in zip(lows, highs, strict=True):
        # The bounds of another table's pages do not bound the missing rows.
        pages = [leaf.page for leaf in others if low < leaf.first and leaf.last <= high]
        inside = [gap for gap in tree.gaps if low <= gap.low and gap.high <= high]
        gaps.extend([Gap(pages[0], low, high)] if pages else inside)
    seen = tree.seen.difference(leaf.page for leaf in others)
    return replace(tree, leaves=tuple(leaves), gaps=tuple(gaps), seen=seen)


def adopt(file: File, trees: list[Tree], taken: set[int] | None) -> list[Tree]:
    """Assign leaves that no tree leads to any more to the one gap that they fit into.

    Parameters
    ----------
    file : File
        The store.
    trees : list of Tree
        All tables, walked.
    taken : set of int, or None
        Free pages and those of other tables. Where these are not known no leaf is assigned:
        a leaf of deleted rows looks like any other.

    Returns
    -------
    list of Tree
        With the assigned leaves, and the remaining gaps.
    """
    if taken is None or not any(tree.gaps for tree in trees):
        return trees
    known = taken.union(*(tree.seen for tree in trees))
    claimed: dict[int, list[Leaf]] = {}
    for leaf in _leaves(file, known):
        fitting = [
            (place, *tree.owner.judged(file, leaf.cells))
            for place, tree in enumerate(trees)
            if any(gap.low < leaf.first and leaf.last <= gap.high for gap in tree.gaps)
        ]
        most = max((n_sure for *_, n_sure in fitting), default=0)
        best = [(place, cells) for place, cells, n_sure in fitting if cells and n_sure == most]
        if len(best) == 1 and (most or not _is_listed(file, leaf, trees)):
            place, cells = best[0]
            claimed.setdefault(place, []).append(replace(leaf, cells=cells))
    whole = list(trees)
    for place, leaves in claimed.items():
        whole[place] = _with(trees[place], leaves)
    return whole


def n_set_apart(walked: list[Tree], trees: list[Tree]) -> list[int]:
    """Number of rows that each walked tree led to and that are in no tree in the end."""
    kept = {leaf.page: len(leaf.cells) for tree in trees for leaf in tree.leaves}
    return [
        sum(max(0, len(leaf.cells) - kept.get(leaf.page, 0)) for leaf in tree.leaves)
        for tree in walked
    ]


def n_in_no_tree(file: File, trees: list[Tree], taken: set[int] | None) -> int:
    """Number of rows on used leaves that no tree leads to."""
    if taken is None:  # they may have been deleted
        return 0
    known = taken.union(*(tree.pages for tree in trees))
    return sum(len(leaf.cells) for leaf in _leaves(file, known))


def _leaves(file: File, known: set[int]) -> Iterator[Leaf]:
    for page in range(2, file.n_pages + 1):
        if page not in known and file.page(page)[:1] == bytes([LEAF]):
            cells = file.cells(page)
            if cells:
                yield _leaf(file, page, cells)


def _is_listed(file: File, leaf: Leaf, trees: list[Tree]) -> bool:
    return any(tree.owner.judged(file, leaf.cells)[1] for tree in trees)


def _with(tree: Tree, leaves: Iterable[Leaf]) -> Tree:
    """The tree with more leaves; of two that overlap the one with the smaller first row stays."""
    kept: list[Leaf] = []
    for leaf in sorted([*tree.leaves, *leaves], key=lambda leaf: leaf.first):
        if not kept or leaf.first > kept[-1].last:
            kept.append(leaf)
    gaps = [rest for gap in tree.gaps for rest in _rest(gap, kept)]
    return replace(tree, leaves=tuple(kept), gaps=tuple(gaps))


def _rest(gap: Gap, leaves: list[Leaf]) -> Iterable[Gap]:
    """The parts of a gap that its assigned leaves do not cover."""
    low = gap.low
    inside = [leaf for leaf in leaves if gap.low < leaf.first and leaf.last <= gap.high]
    for leaf in inside:
        if leaf.first > low + 1 and low != LEAST:
            yield Gap(gap.page, low, leaf.first - 1)
        low = leaf.last
    # More rows may have followed the last one; but if they were many, their leaves are here.
    if not inside or (low < gap.high and gap.high != MOST):
        yield Gap(gap.page, low, gap.high)


def n_lost(tree: Tree, gap: Gap) -> int | None:
    """Estimated number of rows of a gap, from the rows of the other leaves; None if unknown."""
    if not tree.leaves:
        return None
    n_rows = sum(len(leaf.cells) for leaf in tree.leaves)
    if gap.low != LEAST and gap.high != MOST:
        n_numbers = sum(leaf.last - leaf.first + 1 for leaf in tree.leaves)
        return max(1, round((gap.high - gap.low) * n_rows / n_numbers))
    is_one_leaf = gap.depth is not None and gap.depth == tree.leaf_depth
    return max(1, round(n_rows / len(tree.leaves))) if is_one_leaf else None

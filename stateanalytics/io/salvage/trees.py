"""Trees of tables: which leaves are left, which rows are lost with the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from stateanalytics.io.salvage.owners import Owner
from stateanalytics.io.salvage.pages import LEAF, LEAST, MOST, Cell, File


@dataclass(frozen=True)
class Leaf:
    """A page of rows that can be read, in part at least: ``n_lost`` of them cannot."""

    page: int
    cells: tuple[Cell, ...]
    n_lost: int = 0

    @property
    def first(self) -> int:
        """Its least row number."""
        return self.cells[0].rowid

    @property
    def last(self) -> int:
        """Its greatest row number."""
        return self.cells[-1].rowid


@dataclass(frozen=True)
class Gap:
    """Rows above ``low``, up to ``high``, that a page which cannot be read would lead to.

    Attributes
    ----------
    page : int
        The page.
    low, high : int
        The bounds.
    depth : int or None
        How far below the root it lies; None where other pages may be missing with it.
    """

    page: int
    low: int
    high: int
    depth: int | None = None


@dataclass(frozen=True)
class Tree:
    """One table: what is left of it.

    Attributes
    ----------
    name, sql : str
        As its definition says.
    root : int
        Page where it begins.
    owner : Owner
        What its rows are recognized by.
    leaves : tuple of Leaf
        In the order of row numbers.
    gaps : tuple of Gap
        Where nothing can be read, in the same order.
    leaf_depth : int or None
        How far below the root all leaves lie; None where there is none.
    seen : frozenset of int
        Pages that are its own.
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
    def pages(self) -> set[int]:
        """Every page that is known to be its own."""
        return {*self.seen, *(leaf.page for leaf in self.leaves)}


def walk(file: File, tree: Tree) -> Tree:
    """Follow a table from its root, and note each page that is not what it should be."""
    leaves: list[tuple[Leaf, Gap]] = []
    gaps: list[Gap] = []
    seen: set[int] = set()
    left = [Gap(tree.root, LEAST, MOST, 0)]
    while left:
        place = left.pop()
        page, low, high, depth = place.page, place.low, place.high, place.depth or 0
        children = None if page in seen else file.children(page, low, high)
        cells = None if page in seen or children else file.cells(page, low, high)
        # Only a table without rows has a page without any: the one that it begins at.
        if children is None and (cells is None or (depth and not cells)):
            gaps.append(place)
            continue
        seen.add(page)
        left.extend(Gap(*child, depth + 1) for child in reversed(children or []))
        if cells:
            leaves.append((_leaf(file, page, cells), place))
    n_at = Counter(place.depth for _, place in leaves)
    leaf_depth = max(n_at, key=lambda depth: n_at[depth], default=None)
    # All leaves lie equally deep: one above them is in the place of a page that led to many.
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
    """The trees without rows of others, which an interior page out of its place leads to.

    Returns
    -------
    list of Tree
        A gap is where a leaf was another table's, or where nobody knows whose it is.
    """
    trees = [replace(tree, owner=_with_own_indexes(file, tree)) for tree in trees]
    n_trees = Counter(leaf.page for tree in trees for leaf in tree.leaves)
    return [
        _without_others(tree, [_owned(file, leaf, tree, trees, n_trees) for leaf in tree.leaves])
        for tree in trees
    ]


def _with_own_indexes(file: File, tree: Tree) -> Owner:
    """What a table is recognized by, without indexes that list none of its rows.

    The page that an index begins at may be out of its place, too, and nothing says so.
    """
    kept = []
    for index in tree.owner.indexes:
        alone = replace(tree.owner, indexes=(index,))
        leaves = chain(tree.leaves, _leaves(file, tree.pages)) if index.entries else ()
        if any(alone.judged(file, leaf.page, leaf.cells)[1] for leaf in leaves):
            kept.append(index)
    return replace(tree.owner, indexes=tuple(kept))


def _owned(
    file: File, leaf: Leaf, tree: Tree, trees: list[Tree], n_trees: Counter[int]
) -> Leaf | None:
    cells, n_sure = tree.owner.judged(file, leaf.page, leaf.cells)
    if cells and (not n_sure or n_trees[leaf.page] > 1):
        others = (other.owner for other in trees if other is not tree)
        n_sure_elsewhere = max(
            (owner.judged(file, leaf.page, leaf.cells)[1] for owner in others), default=0
        )
        if n_sure_elsewhere > n_sure or (n_trees[leaf.page] > 1 and n_sure_elsewhere == n_sure):
            return None
    return replace(leaf, cells=cells) if cells else None


def _without_others(tree: Tree, kept: list[Leaf | None]) -> Tree:
    leaves = [leaf for leaf in kept if leaf is not None]
    others = [leaf for leaf, own in zip(tree.leaves, kept, strict=True) if own is None]
    is_listed = bool(tree.owner.indexes) and not tree.leaves and not tree.gaps
    if is_listed:  # it begins at the empty page of another table
        return replace(tree, gaps=(Gap(tree.root, LEAST, MOST),))
    if not others:
        return replace(tree, leaves=tuple(leaves))
    gaps: list[Gap] = []
    lows = [LEAST, *(leaf.last for leaf in leaves)]
    highs = [*(leaf.first - 1 for leaf in leaves), MOST]
    for low, high in zip(lows, highs, strict=True):
        # The bounds of another table's pages say nothing about what should be here.
        pages = [leaf.page for leaf in others if low < leaf.first and leaf.last <= high]
        inside = [gap for gap in tree.gaps if low <= gap.low and gap.high <= high]
        gaps.extend([Gap(pages[0], low, high)] if pages else inside)
    seen = tree.seen.difference(leaf.page for leaf in others)
    return replace(tree, leaves=tuple(leaves), gaps=tuple(gaps), seen=seen)


def adopt(file: File, trees: list[Tree], taken: set[int] | None) -> list[Tree]:
    """Give leaves that no tree leads to any more back to the one gap that they fit into.

    Parameters
    ----------
    file : File
        The store.
    trees : list of Tree
        All tables, walked.
    taken : set of int, or None
        Pages that are free, or another table's. Where that is not known nothing is
        adopted: a leaf of rows that were deleted looks like any other.

    Returns
    -------
    list of Tree
        With the leaves that they got back, and only the gaps that are left.
    """
    if taken is None or not any(tree.gaps for tree in trees):
        return trees
    known = taken.union(*(tree.seen for tree in trees))
    claimed: dict[int, list[Leaf]] = {}
    for leaf in _leaves(file, known):
        fitting = [
            (place, *tree.owner.judged(file, leaf.page, leaf.cells))
            for place, tree in enumerate(trees)
            if _fits(leaf, tree)
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
    """How many rows each walked tree led to that are in none of the trees in the end."""
    kept = {leaf.page: len(leaf.cells) for tree in trees for leaf in tree.leaves}
    return [
        sum(max(0, len(leaf.cells) - kept.get(leaf.page, 0)) for leaf in tree.leaves)
        for tree in walked
    ]


def n_in_no_tree(file: File, trees: list[Tree], taken: set[int] | None) -> int:
    """How many rows are on leaves that are in use and that no tree leads to."""
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


def _fits(leaf: Leaf, tree: Tree) -> bool:
    return any(gap.low < leaf.first and leaf.last <= gap.high for gap in tree.gaps)


def _is_listed(file: File, leaf: Leaf, trees: list[Tree]) -> bool:
    return any(tree.owner.judged(file, leaf.page, leaf.cells)[1] for tree in trees)


def _with(tree: Tree, leaves: Iterable[Leaf]) -> Tree:
    """The tree with more leaves; of two that overlap the first found is kept."""
    kept: list[Leaf] = []
    for leaf in sorted([*tree.leaves, *leaves], key=lambda leaf: leaf.first):
        if not kept or leaf.first > kept[-1].last:
            kept.append(leaf)
    gaps = [rest for gap in tree.gaps for rest in _rest(gap, kept)]
    return replace(tree, leaves=tuple(kept), gaps=tuple(gaps))


def _rest(gap: Gap, leaves: list[Leaf]) -> Iterable[Gap]:
    """What is left of a gap between the leaves that were found for it."""
    low = gap.low
    inside = [leaf for leaf in leaves if gap.low < leaf.first and leaf.last <= gap.high]
    for leaf in inside:
        if leaf.first > low + 1 and low != LEAST:
            yield Gap(gap.page, low, leaf.first - 1)
        low = leaf.last
    # Nobody knows whether rows followed the last one; if many did, their leaves are here.
    if not inside or (low < gap.high and gap.high != MOST):
        yield Gap(gap.page, low, gap.high)


def n_lost(tree: Tree, gap: Gap) -> int | None:
    """About how many rows a gap held, by how the leaves that are left are filled; else None."""
    if not tree.leaves:
        return None
    n_rows = sum(len(leaf.cells) for leaf in tree.leaves)
    if gap.low != LEAST and gap.high != MOST:
        n_numbers = sum(leaf.last - leaf.first + 1 for leaf in tree.leaves)
        return max(1, round((gap.high - gap.low) * n_rows / n_numbers))
    is_one_leaf = gap.depth is not None and gap.depth == tree.leaf_depth
    return max(1, round(n_rows / len(tree.leaves))) if is_one_leaf else None

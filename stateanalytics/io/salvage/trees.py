"""Trees of tables: which leaves are left, which rows are lost with the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from stateanalytics.io.salvage.pages import LEAF, LEAST, MOST, Cell, File


@dataclass(frozen=True)
class Leaf:
    """A page of rows that can be read, in part at least."""

    page: int
    cells: tuple[Cell, ...]

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
    n_columns : int
        Columns of the definition; rows may have fewer, never more.
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
    n_columns: int = 0
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
    leaves: list[Leaf] = []
    gaps: list[Gap] = []
    seen: set[int] = set()
    left = [(tree.root, LEAST, MOST, 0)]
    leaf_depth = None
    while left:
        page, low, high, depth = left.pop()
        children = None if page in seen else file.children(page, low, high)
        cells = None if page in seen or children else file.cells(page, low, high)
        if children is None and cells is None:
            gaps.append(Gap(page, low, high, depth))
            continue
        seen.add(page)
        left.extend((*child, depth + 1) for child in reversed(children or []))
        if cells:
            leaves.append(Leaf(page, tuple(cells)))
            leaf_depth = depth
    return replace(
        tree,
        leaves=tuple(leaves),
        gaps=tuple(gaps),
        leaf_depth=leaf_depth,
        seen=frozenset(seen),
    )


def adopt(file: File, trees: list[Tree], taken: set[int] | None) -> tuple[list[Tree], int]:
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
    int
        Rows of leaves that no tree could claim alone.
    """
    if taken is None or not any(tree.gaps for tree in trees):
        return trees, 0
    known = taken.union(*(tree.seen for tree in trees))
    claimed: dict[int, list[Leaf]] = {}
    n_unclaimed = 0
    for page in range(2, file.n_pages + 1):
        if page in known or file.page(page)[:1] != bytes([LEAF]):
            continue
        cells = file.cells(page)
        if not cells:
            continue
        leaf = Leaf(page, tuple(cells))
        fitting = [place for place, tree in enumerate(trees) if _fits(leaf, tree)]
        if len(fitting) == 1:
            claimed.setdefault(fitting[0], []).append(leaf)
        else:
            n_unclaimed += len(cells)
    whole = list(trees)
    for place, leaves in claimed.items():
        whole[place] = _with(trees[place], leaves)
    return whole, n_unclaimed


def _fits(leaf: Leaf, tree: Tree) -> bool:
    widest = max(cell.n_columns for cell in leaf.cells)
    most = max((cell.n_columns for leaf in tree.leaves[:1] for cell in leaf.cells), default=0)
    # Rows of one table have as many columns as it had when they were written.
    return (
        widest <= tree.n_columns
        and (not most or 2 * widest >= most)
        and any(gap.low < leaf.first and leaf.last <= gap.high for gap in tree.gaps)
    )


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

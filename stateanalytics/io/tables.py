"""Tables as typed frames: marks become null, and what they were becomes findings."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.io import cells, scanning
from stateanalytics.io.budget import OVER_BUDGET, BudgetSpentError, spending
from stateanalytics.io.cells import Cell, Kind, problem
from stateanalytics.io.scanning import (
    Cursor,
    Invalid,
    Plan,
    cursor_of,
    parts,
    plans,
    scan_guarded,
    scan_unguarded,
    small_cursor_of,
)
from stateanalytics.io.sqlite_copy import quoted

if TYPE_CHECKING:
    from stateanalytics.io.sqlite import Store

Problem = dict[str, object]


def read(
    store: Store, table: str, columns: Mapping[str, Cell], only: Collection[int] | None = None
) -> tuple[pl.DataFrame, list[Problem]]:
    """Rows of a table, as `sqlite.read_table` gives them, and problems as dicts."""
    shape = pl.Schema({name: cells.DTYPES[cell.kind] for name, cell in columns.items()})
    if table not in store.tables:
        return shape.to_frame(), _why_absent(store, table)
    try:
        spending().draw()
    except BudgetSpentError as error:
        return shape.to_frame(), _why_left_out(store, table, error)
    scanned, n_rows, problems = _columns(plans(store, table, columns), only)
    with contextlib.suppress(BudgetSpentError):  # what was read is kept: the next table reports it
        spending().draw(n_rows=n_rows)
    documents_in = [name for name in scanned.columns if columns[name].kind == "json"]
    scanned, of_documents = cells.check_json(scanned, documents_in)
    rows = pl.DataFrame(
        {
            name: scanned[name]
            if name in scanned.columns
            else pl.repeat(None, n_rows, dtype=dtype, eager=True)
            for name, dtype in shape.items()
        }
    )
    return rows, [{"table": table, **finding} for finding in (*problems, *of_documents)]


def n_rows(store: Store, names: Collection[str]) -> dict[str, int]:
    """How many rows each of these tables of a store has."""
    with small_cursor_of(store) as cursor:
        return {
            name: cursor.row(f"SELECT count(*) AS n FROM {quoted(name)} NOT INDEXED")[0]
            for name in names
        }


def _columns(
    planned: list[Plan], only: Collection[int] | None = None
) -> tuple[pl.DataFrame, int, list[Problem]]:
    """The columns of all plans side by side, how many rows, and what was odd in them."""
    scan = _Scan()
    with small_cursor_of(planned[0].store) as cursor:
        ranges = parts(planned[0], only, cursor)
        tasks = [(plan, where) for plan in planned for where in ranges]
        scanned = [scan(task, cursor) for task in tasks] if len(ranges) == 1 else []
    if not scanned:
        with ThreadPoolExecutor(scanning.N_THREADS) as threads:
            scanned = list(threads.map(scan.alone, tasks))
    typed, problems = [], []
    for i, plan in enumerate(planned):
        of_plan = scanned[i * len(ranges) : (i + 1) * len(ranges)]
        raw = pl.concat([frame for frame, _ in of_plan])
        frame, marked = _typed(raw, plan.kinds)
        typed.append(frame)
        problems += _meanings(plan, ranges, marked, _added_up([invalid for _, invalid in of_plan]))
    return pl.concat(typed, how="horizontal"), raw.height, problems


class _Scan:
    """Scans without guards, until something in a plan's columns is found to need them."""

    def __init__(self) -> None:
        self.guarded: set[int] = set()

    def __call__(self, task: tuple[Plan, str], cursor: Cursor) -> tuple[pl.DataFrame, Invalid]:
        plan, where = task
        if id(plan) not in self.guarded:
            scanned = scan_unguarded(plan, where, cursor)
            if scanned is not None:
                return scanned
            self.guarded.add(id(plan))
        return scan_guarded(plan, where, cursor)

    def alone(self, task: tuple[Plan, str]) -> tuple[pl.DataFrame, Invalid]:
        """By a connection of its own, for a thread."""
        with cursor_of(task[0].store) as cursor:
            return self(task, cursor)


def _why_absent(store: Store, table: str) -> list[Problem]:
    if table not in store.others:
        return []
    finding = problem("table.not_stored", None, 1, "a view or virtual table runs code", None)
    return [finding | {"table": table, "example": store.others[table], "action": "taken as absent"}]


def _why_left_out(store: Store, table: str, error: BudgetSpentError) -> list[Problem]:
    message = f"rows that are not read: {error}"
    n_left = n_rows(store, [table])[table]
    if not n_left:
        return []
    finding = problem(OVER_BUDGET, None, n_left, message, None)
    return [finding | {"table": table, "action": "raise the budget, or name fewer sources"}]


def _added_up(parts: list[Invalid]) -> Invalid:
    total: Invalid = {}
    for part in parts:
        for name, (n_bad, example) in part.items():
            before, first = total.get(name, (0, b""))
            total[name] = (before + n_bad, first or example)
    return total


def _typed(raw: pl.DataFrame, kinds: Mapping[str, Kind]) -> tuple[pl.DataFrame, set[str]]:
    """Columns of their kinds with marks set to null, and which columns had some."""
    is_mark = {
        name: {
            "real": pl.col(name).is_infinite(),
            # A moment of 0 was never set.
            "moment": pl.col(name).is_infinite() | (pl.col(name) == 0),
            "integer": pl.col(name) == cells.MARK_INTEGER,
            "yes_no": pl.col(name) == cells.MARK_YES_NO,
        }[kind]
        for name, kind in kinds.items()
        if kind in ("real", "moment", "integer", "yes_no")
    }
    is_marked = raw.select(expr.any().alias(name) for name, expr in is_mark.items())
    marked = {name for name in is_mark if is_marked[name].item()}
    value = {
        name: pl.when(~is_mark[name]).then(name) if name in marked else pl.col(name)
        for name in kinds
    }
    microseconds = {name: (value[name] * 1e6).round().cast(pl.Int64) for name in kinds}
    return raw.select(
        (microseconds[name] if kind == "moment" else value[name])
        .cast(cells.DTYPES[kind])
        .alias(name)
        for name, kind in kinds.items()
    ), marked


def _meanings(plan: Plan, ranges: list[str], marked: set[str], invalid: Invalid) -> list[Problem]:
    """What the marks of a scan were: counts and an example by column and code."""
    # Marks in UTF-16 text were not seen, so that every such column is looked at.
    suspects = [
        name
        for name, kind in plan.kinds.items()
        if name in marked or name in invalid or (kind in ("text", "json") and not plan.is_utf8)
    ]
    if not suspects:
        return []
    problems: list[Problem] = []
    counted: dict[tuple[str, str], tuple[int, str]] = {}
    with ThreadPoolExecutor(scanning.N_THREADS) as threads:
        for part in threads.map(lambda where: _counted(plan, suspects, where), ranges):
            for key, (n_rows, example) in part.items():
                before, least = counted.get(key, (0, ""))
                both = min(least, example) if before and n_rows else example or least
                counted[key] = (before + n_rows, both)
    for name in suspects:
        for meaning in cells.MEANINGS[plan.kinds[name]]:
            n_rows, example = counted[name, meaning.code]
            if n_rows:
                problems.append(problem(meaning.code, name, n_rows, meaning.message, example))
        n_invalid, octets = invalid.get(name, (0, b""))
        n_invalid -= counted.get((name, "cell.blob"), (0, ""))[0]
        if n_invalid > 0:
            example = octets.decode(errors="backslashreplace")
            problems.append(
                problem("cell.not_utf8", name, n_invalid, "text that is not UTF-8", example)
            )
    return problems


def _counted(plan: Plan, suspects: list[str], where: str) -> dict[tuple[str, str], tuple[int, str]]:
    """Rows of a range by column and code, and the least example of each."""
    source, names = plan.rows(where)
    inner, outer, keys = [], [], []
    for i, name in enumerate(suspects):
        meanings = cells.MEANINGS[plan.kinds[name]]
        whens = " ".join(f"WHEN {m.sql} THEN {j}" for j, m in enumerate(meanings))
        inner.append(f"CASE {whens} END AS m{i}, {{c}} AS v{i}".format(c=names[name]))
        example = cells.EXAMPLE.format(c=f"v{i}")
        for j, meaning in enumerate(meanings):
            keys.append((name, meaning.code))
            outer.append(f"count(*) FILTER (WHERE m{i} = {j})")
            outer.append(f"CAST(min(CASE WHEN m{i} = {j} THEN {example} END) AS BLOB)")
    odd = " OR ".join(f"m{i} IS NOT NULL" for i in range(len(suspects)))
    rows = f"(SELECT {', '.join(inner)} FROM {source} LIMIT -1 OFFSET 0) WHERE {odd}"
    with cursor_of(plan.store) as cursor:
        row = cursor.row(f"SELECT {', '.join(outer)} FROM {rows}")
    return {
        key: (row[2 * i], (row[2 * i + 1] or b"").decode(errors="backslashreplace"))
        for i, key in enumerate(keys)
    }

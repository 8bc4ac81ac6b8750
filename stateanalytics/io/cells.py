"""Kinds of cells of a SQLite table, and SQL that replaces values of any other kind by a mark.

SQLite types values, not columns: any cell may hold text, a number or bytes. Every column is
therefore read through a guard, an expression with the values of one kind and a mark for
everything else, so that a scan can neither fail nor guess. Marks become null; only if there are
some, a second scan counts what they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.package_tables import package_table
from stateanalytics.io.duckdb_rows import DuckDBRows, answer

Kind = Literal["text", "real", "integer", "yes_no", "moment", "json", "rowid"]


@dataclass(frozen=True)
class Cell:
    """One column to read.

    Attributes
    ----------
    kind : str
        The expected content: ``text``, ``real``, ``integer``, ``yes_no`` (0 or 1),
        ``moment`` (epoch seconds), ``json``, or ``rowid`` (the row's number).
    sql : str, optional
        An expression over the table's columns to read instead of the column of that name;
        it is computed once per row.
    needs : tuple of str
        Columns that ``sql`` uses; if one is absent, the whole column is null.
    """

    kind: Kind
    sql: str | None = None
    needs: tuple[str, ...] = ()


TEXT, REAL, INTEGER = Cell("text"), Cell("real"), Cell("integer")
YES_NO, MOMENT, JSON, ROWID = Cell("yes_no"), Cell("moment"), Cell("json"), Cell("rowid")


class _Column(NamedTuple):
    """A column that a system reads, under its own name or another one."""

    table: str
    column: str
    kind: Annotated[Any, ("", *get_args(Kind))]
    read_from: str


def cells_from_csv(
    package: str, own: Mapping[str, Mapping[str, Cell]]
) -> dict[str, dict[str, Cell]]:
    """The cells of ``data/columns.csv`` in a package, by table and column.

    Parameters
    ----------
    package : str
        That of a system.
    own : mapping
        By table and column the cells without a kind in the table: those that SQL computes.
    """
    tables: dict[str, dict[str, Cell]] = {}
    for row in package_table(package, "columns.csv", _Column):
        renamed = (row.read_from, (row.read_from,)) if row.read_from else ()
        cell = Cell(row.kind, *renamed) if row.kind else own[row.table][row.column]
        tables.setdefault(row.table, {})[row.column] = cell
    return tables


EXACT = 2**53  # beyond it, floats skip whole numbers
EARLIEST, LATEST = 946_684_800, 4_102_444_800  # 2000-01-01 and 2100-01-01
MARK_INTEGER, MARK_YES_NO = -(2**63), -9
_MARK_INTEGER = "-9223372036854775807 - 1"  # the number itself would be read as a float


class Meaning(NamedTuple):
    """A possible meaning of a mark of a kind: a code, its condition in SQL, and a message."""

    kind: Annotated[str, get_args(Kind)]
    code: str
    sql: str
    message: str

    @property
    def condition(self) -> str:
        """Its SQL with the limits in place of their names."""
        limits = {"EXACT": EXACT, "EARLIEST": EARLIEST, "LATEST": LATEST, "MARK": _MARK_INTEGER}
        return re.sub(r"\b[A-Z]+\b", lambda word: str(limits.get(word[0], word[0])), self.sql)


@cache
def meanings_of(kind: Kind) -> tuple[Meaning, ...]:
    """The meanings of a mark of this kind: the first with a true condition counts.

    They are not read by a process of its own, which has no package to look in.
    """
    table = package_table("stateanalytics.io", "meanings.csv", Meaning)
    return tuple(meaning for meaning in table if meaning.kind == kind)


class _Scan(NamedTuple):
    """How cells of a kind are read.

    The driver takes a column's type from its first rows, so each scan begins with one row of the
    right types, the ``seed``, which is removed afterwards. Without guards a scan is a fifth
    faster: its result is suspicious if the driver chose another type than ``scanned``, or if a
    ``guard`` might have replaced a value.
    """

    dtype: pl.DataType
    scanned: pl.DataType
    seed: str
    guard: str


# `{c}` is the column, `{mark}` text that is not UTF-8. A `+` takes away the column's
# affinity, so that a number is compared with a number and never as text; no text is as
# great as any blob, whatever it says.
_TEXT = "WHEN {c} >= x'' THEN {mark} ELSE CAST({c} AS TEXT) END"
_IS_EXACT = f"BETWEEN -{EXACT} AND {EXACT}"
_INTEGER = (
    "CASE typeof({c}) WHEN 'integer' THEN {c} WHEN 'null' THEN NULL WHEN 'real' THEN "
    f"CASE WHEN {{c}} {_IS_EXACT} AND {{c}} = CAST({{c}} AS INTEGER) "
    f"THEN CAST({{c}} AS INTEGER) ELSE {_MARK_INTEGER} END ELSE {_MARK_INTEGER} END"
)
_REAL = f"CASE WHEN +{{c}} {_IS_EXACT} OR typeof({{c}}) = 'real' THEN {{c}} "
_MOMENT = f"CASE WHEN +{{c}} BETWEEN {EARLIEST} AND {LATEST} THEN {{c}} "
_YES_NO = "CASE WHEN +{c} IN (0, 1) THEN CAST({c} AS INTEGER) "
_JSON = f"CASE WHEN {{c}} IN ('', 'null') THEN NULL {_TEXT}"
_MARKED = "9e999 END"
SCANS: Mapping[Kind, _Scan] = {
    "text": _Scan(schema.TEXT, schema.TEXT, "''", f"CASE {_TEXT}"),
    "json": _Scan(schema.TEXT, schema.TEXT, "''", _JSON),
    "real": _Scan(schema.REAL, schema.REAL, "0.5", f"{_REAL}WHEN {{c}} IS NOT NULL THEN {_MARKED}"),
    "moment": _Scan(schema.MOMENT, schema.REAL, "0.5", f"{_MOMENT}WHEN +{{c}} <> 0 THEN {_MARKED}"),
    "integer": _Scan(schema.INTEGER, schema.INTEGER, "1", _INTEGER),
    "yes_no": _Scan(
        *(schema.YES_NO, schema.INTEGER, "1"),
        f"{_YES_NO}WHEN {{c}} IS NOT NULL THEN {MARK_YES_NO} END",
    ),
    "rowid": _Scan(schema.INTEGER, schema.INTEGER, "1", "{c}"),
}


def is_suspicious(kinds: Mapping[str, Kind]) -> pl.Expr:
    """Whether a guard might have replaced some value of these unguarded columns."""
    fine: Mapping[Kind, Callable[[pl.Expr], pl.Expr]] = {
        "real": lambda value: value.abs() < EXACT,
        "moment": lambda value: value.is_between(EARLIEST, LATEST) | (value == 0),
        "integer": lambda value: value > MARK_INTEGER,
        "yes_no": lambda value: value.is_between(0, 1),
    }
    is_fine = [fine[kind](pl.col(name)).all() for name, kind in kinds.items() if kind in fine]
    return ~pl.all_horizontal(is_fine or [pl.lit(True)])


EXAMPLE = (
    "CASE typeof({c}) WHEN 'blob' THEN 'x''' || hex(substr({c}, 1, 40)) || '''' "
    "ELSE substr(CAST({c} AS TEXT), 1, 100) END"
)


def problem(
    code: str, column: str | None, n_rows: int, message: str, example: str | None
) -> dict[str, object]:
    """One row of `findings` about cells set to null, without table and source."""
    return {
        "code": code,
        "severity": "warning",
        "column": column,
        "n_rows": n_rows,
        "message": message,
        "example": None if example is None else shown(example),
        "action": "set to null",
    }


def shown(text: str, length: int = 80) -> str:
    r"""A text as one short printable line.

    Examples
    --------
    >>> shown("two\nlines and \x1b[31mred")
    'two\\nlines and \\x1b[31mred'
    >>> len(shown("x" * 1000))
    80
    """
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: length + 1])
    return line if len(line) <= length else line[: length - 1] + "…"


FEW_CELLS = 10_000  # cells
LONG_TEXT, MANY_BRACKETS = 1000, 200  # bytes, brackets
# Brackets are only counted where there is room for many.
_DOUBTFUL = (
    "contains({c}, 'NaN') OR contains({c}, 'Infinity') OR CASE WHEN strlen({c}) > "
    f"{LONG_TEXT} THEN strlen({{c}}) - strlen(replace(replace({{c}}, '[', ''), '{{{{', '')) > "
    f"{MANY_BRACKETS} END"
)
_COUNTS = (
    "count(*) FILTER (NOT json_valid({c})), count(*) FILTER (starts_with({c}, '\"')), "
    f"count(*) FILTER ({_DOUBTFUL})"
)
# A JSON string with an object or a list in it was encoded twice.
_INNER = "json_extract_string({c}, '$')"
_DECODED = f"""SELECT {{c}} AS raw, json_valid({{c}}) AS is_json,
  CASE WHEN NOT json_valid({{c}}) THEN NULL
  WHEN json_type({{c}}) <> 'VARCHAR' OR NOT json_valid({_INNER}) THEN {{c}}
  WHEN json_type({_INNER}) IN ('OBJECT', 'ARRAY') THEN {_INNER}
  WHEN json_type({_INNER}) = 'NULL' THEN NULL ELSE {{c}} END AS decoded
FROM cells"""


def check_json(
    frame: pl.DataFrame, columns: Sequence[str]
) -> tuple[pl.DataFrame, list[dict[str, object]]]:
    """Set texts that are no JSON to null, and decode those that were encoded twice.

    Parameters
    ----------
    frame : polars.DataFrame, shape (n_rows, n_columns)
        Rows with text columns.
    columns : sequence of str
        The columns that should hold JSON.

    Returns
    -------
    frame : polars.DataFrame, shape (n_rows, n_columns)
        The same rows and columns.
    problems : list of dict
        ``cell.not_json`` and ``cell.double_encoded`` per column, as `cells.problem`.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": ['{"b": 1}', '{"b": ', '"[1]"', None]})
    >>> frame, problems = check_json(frame, ["a"])
    >>> frame["a"].to_list()
    ['{"b": 1}', None, '[1]', None]
    >>> [(problem["code"], problem["n_rows"]) for problem in problems]
    [('cell.not_json', 1), ('cell.double_encoded', 1)]
    """
    decoded = {name: _decoded_few(frame[name]) for name in columns}
    many = [name for name, cells in decoded.items() if cells is None]
    checked = {
        name: _checked(name, cells)
        for name, cells in {**decoded, **_decoded_many(frame.select(many))}.items()
        if cells is not None and cells.height
    }
    problems = [problem for _, of_column in checked.values() for problem in of_column]
    return frame.with_columns(**{name: column for name, (column, _) in checked.items()}), problems


def _decoded_few(cells: pl.Series) -> pl.DataFrame | None:
    """The columns of `_DECODED` for a few cells, by the strict parser, without starting DuckDB.

    No rows where every cell stays as it is; None where the parser alone cannot decide, or there
    are many cells.
    """
    n_cells = cells.len() - cells.null_count()
    if n_cells == 0 or n_cells > FEW_CELLS:
        return None if n_cells else pl.DataFrame()
    raw, inner = pl.col("raw"), pl.col("inner")
    holds_more = inner.str.contains(r"^\s*[\[{]")
    # The parser returns null both for a JSON null and for a text that is no JSON.
    is_unsure = (raw.is_not_null() & pl.col("value").is_null()) | (
        inner.str.contains(r"^\s*null\s*$")
        | (holds_more & inner.str.json_path_match("$").is_null())
    )
    looked = (
        pl.DataFrame({"raw": cells})
        .with_columns(value=raw.str.json_path_match("$"))
        .with_columns(inner=pl.when(raw.str.contains(r'^\s*"')).then("value"))
        .select(
            "raw",
            is_json=True,
            decoded=pl.when(holds_more).then(inner).otherwise(raw),
            is_unsure=is_unsure.fill_null(value=False),
        )
    )
    if looked["is_unsure"].any():
        return None
    return looked.drop("is_unsure") if cells.str.starts_with('"').any() else looked.clear()


def _decoded_many(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The columns of `_DECODED` by DuckDB, for each column with a cell that may need a change."""
    if not frame.width:
        return {}
    import duckdb

    config = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    names = {name: f"k{i}" for i, name in enumerate(frame.columns)}
    decoded = dict.fromkeys(names, pl.DataFrame())
    with duckdb.connect(config={**config, "python_enable_replacements": "false"}) as connection:
        connection.register("cells", DuckDBRows(frame.rename(names)))
        columns = ", ".join(_COUNTS.format(c=c) for c in names.values())
        counts = connection.sql(f"SELECT {columns} FROM cells").fetchall()[0]
        for i, (name, c) in enumerate(names.items()):
            if any(counts[3 * i : 3 * i + 3]):
                decoded[name] = answer(connection.sql(_DECODED.format(c=c)))
    return decoded


def _checked(name: str, cells: pl.DataFrame) -> tuple[pl.Series, list[dict[str, object]]]:
    """One column of JSON, and problems with the cells that were changed."""
    document = pl.col("decoded")
    is_long = document.str.len_bytes() > LONG_TEXT
    has_many = document.str.count_matches(r"[\[{]") > MANY_BRACKETS
    doubtful = document.str.contains("NaN|Infinity") | (is_long & has_many)
    cells = cells.with_row_index()
    strict = cells.filter(doubtful).select(
        "index", is_strict=document.str.json_path_match("$").is_not_null()
    )
    cells = (
        cells.join(strict, on="index", how="left", maintain_order="left")
        .with_columns(is_bad=~pl.col("is_json") | ~pl.col("is_strict").fill_null(True))
        .with_columns(kept=pl.when(~pl.col("is_bad")).then(document))
    )
    bad = cells.filter("is_bad")["raw"].drop_nulls()
    twice = cells.filter(~pl.col("is_bad"), pl.col("kept").ne_missing(pl.col("raw")))["raw"]
    problems = []
    if bad.len():
        problems.append(
            problem("cell.not_json", name, bad.len(), "text that is not JSON", str(bad.min()))
        )
    if twice.len():
        finding = problem(
            "cell.double_encoded", name, twice.len(), "JSON inside a JSON string", str(twice.min())
        )
        problems.append(finding | {"severity": "info", "action": "decoded once more"})
    return cells["kept"].alias(name), problems

"""Kinds of cells of a SQLite table, and SQL that replaces values of any other kind by a mark.

SQLite types values, not columns: any cell may hold text, a number or bytes. Every column is
therefore read through a guard, an expression with the values of one kind and a mark for
everything else, so that a scan can neither fail nor guess. Marks become null; only if there are
some, a second scan counts what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from stateanalytics.core import schema
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


@dataclass(frozen=True)
class Meaning:
    """A possible meaning of a mark: a code, its condition in SQL, and a message."""

    code: str
    sql: str
    message: str


EXACT = 2**53  # beyond it, floats skip whole numbers
EARLIEST, LATEST = 946_684_800, 4_102_444_800  # 2000-01-01 and 2100-01-01
MARK_INTEGER, MARK_YES_NO = -(2**63), -9
_MARK_INTEGER = "-9223372036854775807 - 1"  # the number itself would be read as a float

DTYPES: Mapping[Kind, pl.DataType] = {
    "text": schema.TEXT,
    "json": schema.TEXT,
    "real": schema.REAL,
    "integer": schema.INTEGER,
    "rowid": schema.INTEGER,
    "yes_no": schema.YES_NO,
    "moment": schema.MOMENT,
}

# The driver takes a column's type from its first rows, so each scan begins with one row of the
# right types, which is removed afterwards.
SEEDS: Mapping[Kind, str] = {
    "text": "''",
    "json": "''",
    "real": "0.5",
    "moment": "0.5",
    "integer": "1",
    "yes_no": "1",
    "rowid": "1",
}

# `{c}` is the column, `{mark}` text that is not UTF-8. A `+` takes away the column's
# affinity, so that a number is compared with a number and never as text; no text is as
# great as any blob, whatever it says.
_TEXT = "WHEN {c} >= x'' THEN {mark} ELSE CAST({c} AS TEXT) END"
GUARDS: Mapping[Kind, str] = {
    "text": f"CASE {_TEXT}",
    "json": f"CASE WHEN {{c}} IN ('', 'null') THEN NULL {_TEXT}",
    "real": f"CASE WHEN +{{c}} BETWEEN -{EXACT} AND {EXACT} OR typeof({{c}}) = 'real' THEN {{c}} "
    "WHEN {c} IS NOT NULL THEN 9e999 END",
    "moment": f"CASE WHEN +{{c}} BETWEEN {EARLIEST} AND {LATEST} THEN {{c}} "
    "WHEN +{c} <> 0 THEN 9e999 END",
    "integer": "CASE typeof({c}) WHEN 'integer' THEN {c} WHEN 'null' THEN NULL WHEN 'real' THEN "
    f"CASE WHEN {{c}} BETWEEN -{EXACT} AND {EXACT} AND {{c}} = CAST({{c}} AS INTEGER) "
    f"THEN CAST({{c}} AS INTEGER) ELSE {_MARK_INTEGER} END ELSE {_MARK_INTEGER} END",
    "yes_no": "CASE WHEN +{c} IN (0, 1) THEN CAST({c} AS INTEGER) "
    f"WHEN {{c}} IS NOT NULL THEN {MARK_YES_NO} END",
    "rowid": "{c}",
}

# Without guards a scan is a fifth faster. Its result is suspicious if the driver chose another
# type than these, or if a guard might have replaced a value.
SCANNED: Mapping[Kind, pl.DataType] = {
    "text": pl.String(),
    "json": pl.String(),
    "real": pl.Float64(),
    "moment": pl.Float64(),
    "integer": pl.Int64(),
    "yes_no": pl.Int64(),
    "rowid": pl.Int64(),
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


_NO_NUMBER = "typeof({c}) IN ('text', 'blob')"
_INFINITE = (
    "typeof({c}) = 'real' AND NOT +{c} BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308"
)
# The first meaning with a true condition counts.
MEANINGS: Mapping[Kind, tuple[Meaning, ...]] = {
    "text": (Meaning("cell.blob", "typeof({c}) = 'blob'", "bytes where text was expected"),),
    "json": (Meaning("cell.blob", "typeof({c}) = 'blob'", "bytes where JSON was expected"),),
    "real": (
        Meaning("cell.wrong_type", _NO_NUMBER, "no number where one was expected"),
        Meaning("cell.not_finite", _INFINITE, "an infinite number"),
        Meaning(
            "cell.inexact",
            f"typeof({{c}}) = 'integer' AND NOT +{{c}} BETWEEN -{EXACT} AND {EXACT}",
            "an integer that a float cannot hold exactly",
        ),
    ),
    "moment": (
        Meaning("cell.wrong_type", _NO_NUMBER, "no number where epoch seconds were expected"),
        Meaning(
            "cell.absurd_moment",
            f"+{{c}} <> 0 AND NOT +{{c}} BETWEEN {EARLIEST} AND {LATEST}",
            "epoch seconds outside of the years 2000 to 2100",
        ),
    ),
    "integer": (
        Meaning("cell.wrong_type", _NO_NUMBER, "no number where an integer was expected"),
        Meaning(
            "cell.inexact",
            f"typeof({{c}}) = 'real' AND NOT +{{c}} BETWEEN -{EXACT} AND {EXACT} "
            f"OR +{{c}} = {_MARK_INTEGER}",
            "a number beyond those that are exact",
        ),
        Meaning(
            "cell.not_whole",
            "typeof({c}) = 'real' AND +{c} <> CAST({c} AS INTEGER)",
            "a fraction where an integer was expected",
        ),
    ),
    "yes_no": (
        Meaning("cell.wrong_type", _NO_NUMBER, "no number where 0 or 1 was expected"),
        Meaning("cell.not_yes_no", "NOT +{c} IN (0, 1)", "a number other than 0 and 1"),
    ),
    "rowid": (),
}
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

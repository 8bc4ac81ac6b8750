"""What a cell of a SQLite table may hold, as SQL that lets nothing else through.

SQLite types values, not columns: any cell may hold text, a number or bytes. Every
column is therefore read through a guard, an expression that lets values of one kind
through and a mark for everything else, so that a scan can neither fail nor guess.
Marks become null; only where some were seen does a second scan say what they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from stateanalytics.core import schema

Kind = Literal["text", "real", "integer", "yes_no", "moment", "json", "rowid"]


@dataclass(frozen=True)
class Cell:
    """One column to read.

    Attributes
    ----------
    kind : str
        What its cells should hold: ``text``, ``real``, ``integer``, ``yes_no`` (0 or
        1), ``moment`` (epoch seconds), ``json``, or ``rowid`` (the row's number).
    sql : str, optional
        What to read instead of the column of that name, over the table's columns.
        It is computed once a row, also where its kind looks at it several times.
    needs : tuple of str
        Columns that ``sql`` uses; where one is absent, the whole column is null.
    """

    kind: Kind
    sql: str | None = None
    needs: tuple[str, ...] = ()


TEXT, REAL, INTEGER = Cell("text"), Cell("real"), Cell("integer")
YES_NO, MOMENT, JSON, ROWID = Cell("yes_no"), Cell("moment"), Cell("json"), Cell("rowid")


@dataclass(frozen=True)
class Meaning:
    """What a mark can mean: a code, the SQL that holds then, and words."""

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

# The driver takes a column's type from its first rows, so that each scan begins with
# one row of the right types, which is cut off again.
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

# Without guards a scan is a fifth faster, and what it brought is suspicious where the
# driver chose another type, or where a value is one that a guard might not let through.
ARROW: Mapping[Kind, str] = {
    "text": "string",
    "json": "string",
    "real": "double",
    "moment": "double",
    "integer": "int64",
    "yes_no": "int64",
    "rowid": "int64",
}


def is_suspicious(kind: Kind, value: pl.Expr) -> pl.Expr:
    """Might a guard not have let some value of an unguarded column through."""
    fine: Mapping[Kind, pl.Expr] = {
        "real": value.abs() < EXACT,
        "moment": value.is_between(EARLIEST, LATEST) | (value == 0),
        "integer": value > MARK_INTEGER,
        "yes_no": value.is_between(0, 1),
    }
    return (~fine.get(kind, pl.lit(True))).any()


_NO_NUMBER = "typeof({c}) IN ('text', 'blob')"
_INFINITE = (
    "typeof({c}) = 'real' AND NOT +{c} BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308"
)
# The first that holds counts.
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
    """One row of `findings`, its cells set to null, still without table and source."""
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

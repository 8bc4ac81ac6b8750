"""Tables in the folder ``data`` of a package, whose rows are checked when they are loaded."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from stateanalytics.errors import ArgumentError, did_you_mean, in_short

Row = TypeVar("Row")
_BOOLEANS = {"true": True, "yes": True, "false": False, "": False}


def table_rows(package: str, name: str) -> list[dict[str, str]]:
    """Rows of a CSV file, each a mapping of column to text; nothing is an empty text.

    Raises
    ------
    ArgumentError
        If a row has fewer or more cells than the heading.

    Examples
    --------
    >>> table_rows("stateanalytics.core", "audit_codes.csv")[0]["severity"]
    'warning'
    """
    rows = list(csv.DictReader(package_text(package, name).splitlines()))
    for number, cells in enumerate(rows, 1):
        if cells.get(None) is not None:
            last, surplus = [*cells][-2], cells[None]
            raise wrong_cell(place_of(package, name), number, last, "no cell after it", surplus)
        for column, text in cells.items():
            if text is None:
                raise wrong_cell(place_of(package, name), number, column, "a cell", None)
    return rows


def package_text(package: str, name: str) -> str:
    """The content of a file in the folder ``data`` of a package."""
    # Read by path, so a package in a zip file has no tables. `importlib.resources` could read
    # them, but its import takes 7 ms, a tenth of the time of `stateanalytics --help`.
    return Path(import_module(package).__path__[0], "data", name).read_text("utf-8")


def package_table(package: str, name: str, row: type[Row]) -> tuple[Row, ...]:
    """Rows of a CSV file as values of a class, every column and cell checked.

    Parameters
    ----------
    package : str
        The package with ``data/<name>``.
    name : str
    row : dataclass or NamedTuple
        A column for each field; one with a default may be absent. A field is text, a number,
        a Boolean (``true``, ``yes``, ``false`` or nothing), a ``tuple[str, ...]`` with ``|``
        between its items, or optional: nothing is None. ``Annotated[str, words]`` is one of
        these words.

    Returns
    -------
    tuple of row

    Raises
    ------
    ArgumentError
        If a column is missing or unknown, or a cell has no value of its type: with the number
        of the row, counted from 1 below the heading, and the name of the column.
    """
    return rows_as(row, table_rows(package, name), place_of(package, name))


def keyed_table(package: str, name: str, row: type[Row], key: str) -> dict[str, Row]:
    """Rows of `package_table` by one of their columns, in which values are unique."""
    by_key: dict[str, Row] = {}
    for number, value in enumerate(package_table(package, name, row), 1):
        text = getattr(value, key)
        if text in by_key:
            needed = "a word that no row above has"
            raise wrong_cell(place_of(package, name), number, key, needed, text)
        by_key[text] = value
    return by_key


def place_of(package: str, name: str) -> str:
    """The name of a file in the folder ``data`` of a package, for errors."""
    return f"{package.replace('.', '/')}/data/{name}"


def wrong_cell(place: str, number: int, column: str, needed: str, found: object) -> ArgumentError:
    """The error that says which cell of a table is wrong; rows count from 1 below the heading."""
    return ArgumentError(
        f"{place}, row {number}, column {column!r}: needed {needed}; found {in_short(found)}.",
        "correct the cell",
    )


def rows_as(row: type[Row], rows: Iterable[Mapping[str, str]], place: str) -> tuple[Row, ...]:
    """Rows of text as values of a class; see `package_table`. ``place`` is where they are from.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> class Limit(NamedTuple):
    ...     kind: str
    ...     limit_s: float | None
    >>> rows_as(Limit, [{"kind": "play", "limit_s": "60"}, {"kind": "", "limit_s": ""}], "x.csv")
    (Limit(kind='play', limit_s=60.0), Limit(kind='', limit_s=None))
    """
    hints = get_type_hints(row, include_extras=True)
    defaults = getattr(row, "_field_defaults", None)
    if defaults is None:
        defaults = {name for name in hints if hasattr(row, name)}
    read = {name: _reader(hint) for name, hint in hints.items()}
    values = []
    for number, cells in enumerate(rows, 1):
        if missing := [name for name in read if name not in cells and name not in defaults]:
            raise ArgumentError(
                f"{place} needs the columns {missing}; found {[*cells]}.", "add them"
            )
        if unknown := [name for name in cells if name not in read]:
            raise ArgumentError(
                f"{place} has the column {unknown[0]!r:.80}, which nothing reads.",
                "remove it, or rename it" + did_you_mean(str(unknown[0]), read),
            )
        fields = {}
        for name, text in cells.items():
            try:
                fields[name] = read[name](text)
            except ValueError as error:
                raise wrong_cell(place, number, name, str(error), text) from None
        values.append(row(**fields))
    return tuple(values)


def _reader(hint: Any) -> Callable[[str], Any]:
    """A function from a cell to a value of a type; its ValueError says what is needed."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        [inner] = [argument for argument in arguments if argument is not NoneType]
        read = _reader(inner)
        return lambda text: read(text) if text else None
    if origin is Annotated:
        return lambda text: _word(text, arguments[1])
    if origin is tuple:
        return lambda text: tuple(filter(None, text.split("|")))
    if hint in (float, int):
        return lambda text: _number(text, hint)
    return _boolean if hint is bool else str


def _word(text: str, words: Iterable[str]) -> str:
    if text not in words:
        raise ValueError("one of " + ", ".join(map(repr, words)) + did_you_mean(text, words))
    return text


def _number(text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ValueError("a number") from None


def _boolean(text: str) -> bool:
    if text not in _BOOLEANS:
        raise ValueError("true, yes, false or nothing")
    return _BOOLEANS[text]

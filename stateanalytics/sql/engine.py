"""The DuckDB that runs a query: closed, bounded, and with the snapshot's tables in it.

Values for parameters are checked on their way in, types of the result on their way out.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateanalytics.errors import QueryError, did_you_mean, in_short
from stateanalytics.io.sqlite_copy import quoted
from stateanalytics.sql.functions import (
    DEEPEST_TYPE,
    LONGEST_TEXT,
    MOST_COLUMNS,
    MOST_FIELDS,
    MOST_GROWTH,
)
from stateanalytics.sql.guard import read_query
from stateanalytics.sql.parsing import TableText, too_large

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection
    from duckdb.sqltypes import DuckDBPyType

Parameters = Mapping[str, Any] | Sequence[Any] | None

_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "threads": "2",
}

# Stand-ins for functions that build long values: (name, arguments, what is too long, call).
# Constants are folded from the inside out, also in a branch that is never taken, and a macro
# copies its arguments; so each argument stands in its macro once, as the value of a lambda.
_BOUNDED = (
    *(
        (name, "x, n, pad", "n", f"n > {LONGEST_TEXT}", f"{name}(x, least(n, {LONGEST_TEXT}), pad)")
        for name in ("lpad", "rpad")
    ),
    (
        "repeat",
        "x, n",
        "n x",
        f"n > {LONGEST_TEXT} OR n * strlen(x::VARCHAR) > {MOST_GROWTH}",
        f"repeat(x, least(n, {LONGEST_TEXT}))",
    ),
    (
        "replace",
        "x, a, b",
        "x a b",
        # The number of places is counted, since most long texts hold few.
        "strlen(b) > strlen(a) AND (strlen(x) - strlen(system.main.replace(x, a, ''))) "
        f"// greatest(strlen(a), 1) * (strlen(b) - strlen(a)) > {MOST_GROWTH}",
        "replace(x, a, b)",
    ),
)
_LONG_MATCHES = f"strlen(b) > 1 AND (strlen(x) + 1) * strlen(b) > {MOST_GROWTH}"


@dataclass(frozen=True)
class TableFile:
    """The rows of a table.

    Attributes
    ----------
    path : str
        A file of an Arrow stream.
    words : mapping of str to sequence of str
        Columns whose words have a rank, and the words in that order.
    """

    path: str
    words: Mapping[str, Sequence[str]]


def connect() -> DuckDBPyConnection:
    """An engine of its own, with stand-ins for functions that have no bound."""
    import duckdb

    connection = duckdb.connect(":memory:", config=dict(_CONFIG))
    connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
    for name, arguments, checked, is_long, call in _BOUNDED:
        body = _bounded(name, checked.split(), is_long, call)
        connection.execute(f"CREATE MACRO {name}({arguments}) AS {body}")
    # A pattern stays where it is: as the value of a lambda it would be read for every row.
    three, four = (
        _bounded("regexp_replace", ["x", "b"], _LONG_MATCHES, f"regexp_replace({arguments})")
        for arguments in ("x, p, b", "x, p, b, o")
    )
    connection.execute(f"CREATE MACRO regexp_replace(x, p, b) AS {three}, (x, p, b, o) AS {four}")
    return connection


def warm_up() -> None:
    """Do on one row what the first query would otherwise wait for: imports and threads."""
    import nanoarrow as na
    import polars as pl

    from stateanalytics.io.duckdb_rows import DuckDBRows

    octets = io.BytesIO()
    pl.DataFrame({"a": [1]}).write_ipc_stream(octets)
    with connect() as connection:
        connection.register("rows", DuckDBRows(pl.read_ipc_stream(octets.getvalue())))
        pl.concat([pl.DataFrame(batch) for batch in na.c_array_stream(connection.sql("FROM rows"))])
        connection.unregister("rows")


def _bounded(name: str, checked: Sequence[str], is_long: str, call: str) -> str:
    """SQL that makes a long value, or an error where it would be too long."""
    refusal = (
        f"{name}() makes at most {LONGEST_TEXT:,} characters, "
        f"or {MOST_GROWTH:,} bytes more than it was given"
    )
    null = " OR ".join(f"{argument} IS NULL" for argument in checked)
    sql = (
        f"CASE WHEN {null} THEN NULL WHEN {is_long} THEN error('{refusal}') "
        f"ELSE system.main.{call} END"
    )
    for argument in reversed(checked):
        sql = f"list_transform([{argument}], lambda {argument}: {sql})[1]"
    return sql


def load_order(
    wanted: Collection[str], known: Mapping[str, TableText], connection: DuckDBPyConnection
) -> list[str]:
    """The tables that a query and its views need, each after those that it builds on."""
    columns = {name: table.columns for name, table in known.items()}
    needed: dict[str, None] = {}
    for name in sorted(wanted):
        view = known[name].view
        if view is not None:
            below = read_query(view, columns, connection).tables
            needed |= dict.fromkeys(load_order(below, known, connection))
        needed[name] = None
    return list(needed)


def add_tables(
    connection: DuckDBPyConnection,
    tables: Sequence[str],
    known: Mapping[str, TableText],
    rows: Mapping[str, tuple[pl.DataFrame, TableFile]],
) -> None:
    """Give the engine the tables of `load_order`, with the rows that `read_rows` gave."""
    for name in tables:
        view = known[name].view
        if view is None:
            _register(connection, name, *rows[name])
        else:
            connection.execute(f"CREATE VIEW {quoted(name)} AS {view}")


def read_rows(file: TableFile) -> pl.DataFrame:
    """The rows of a table."""
    import polars as pl

    # As bytes: for a path polars looks for a library of file systems, which takes .3 s.
    # In one piece, since otherwise the first query would join the pieces.
    return pl.read_ipc_stream(Path(file.path).read_bytes()).rechunk()


def _register(
    connection: DuckDBPyConnection, name: str, rows: pl.DataFrame, file: TableFile
) -> None:
    """Register a table in the engine; its ranked columns sort by rank in SQL too."""
    from stateanalytics.io.duckdb_rows import DuckDBRows

    hidden = f"_rows_of_{name}"
    connection.register(hidden, DuckDBRows(rows))
    replaced = replacing_words(connection, file.words)
    connection.execute(f"CREATE VIEW {quoted(name)} AS SELECT *{replaced} FROM {quoted(hidden)}")


def replacing_words(connection: DuckDBPyConnection, columns: Mapping[str, Sequence[str]]) -> str:
    """SQL after ``SELECT *`` that makes columns of words sort by their rank."""
    ranked = []
    for column, words in columns.items():
        kind = "ENUM(" + ", ".join("'" + word.replace("'", "''") + "'" for word in words) + ")"
        # So that a query can say 'warning'::severity.
        connection.execute(f"CREATE TYPE IF NOT EXISTS {quoted(column)} AS {kind}")
        ranked.append(f"CAST({quoted(column)} AS {kind}) AS {quoted(column)}")
    return f" REPLACE ({', '.join(ranked)})" if ranked else ""


def lock_down(connection: DuckDBPyConnection, timeout_s: float) -> None:
    """Allow no files, no network and no change of settings from here on."""
    connection.execute(f"SET max_execution_time = {max(1, math.ceil(timeout_s * 1000))}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def write_rows(
    connection: DuckDBPyConnection,
    sql: str,
    values: Any,
    path: str,
    *,
    max_rows: int,
    max_bytes: int,
) -> list[tuple[str, list[str] | None]]:
    """Run a query and write its result to a file of an Arrow stream.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        After `lock_down`.
    sql, values : str, dict or list
        The query and its parameters.
    path : str
        Where the result goes.
    max_rows : int
        One more is written, so that a cut result can be recognised.
    max_bytes : int
        Bytes that the result may have.

    Returns
    -------
    list of tuple
        Name of each column, and its words where they have a rank.
    """
    import nanoarrow as na
    import polars as pl

    from stateanalytics.io.duckdb_rows import answer

    relation = connection.sql(sql, params=values)
    names, types = list(relation.columns), list(relation.types)
    check_shape(types)
    result = relation.project(projection(types)).limit(max_rows + 1)
    batches, n_bytes = [answer(result.limit(0))], 0.0
    for batch in na.c_array_stream(result):
        batches.append(pl.DataFrame(batch))
        n_bytes += batches[-1].estimated_size()
        if n_bytes > max_bytes:
            raise too_large(max_bytes)
    pl.concat(batches).write_ipc_stream(path)
    return [(name, enum_words(kind)) for name, kind in zip(names, types, strict=True)]


_WHOLE = {"tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger"}
_UNCHANGED = {"varchar", "boolean", "double", "uuid", "json", "enum", "blob", "time"}
_MOMENTS = {
    "timestamp": "TIMESTAMP",
    "timestamp_s": "TIMESTAMP",
    "timestamp_ms": "TIMESTAMP",
    "timestamp_ns": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMPTZ",
    "date": "DATE",
}
_TARGETS = {
    **dict.fromkeys(_WHOLE, "BIGINT"),
    **dict.fromkeys(("hugeint", "uhugeint", "ubigint"), "HUGEINT"),
    **dict.fromkeys(("decimal", "float"), "DOUBLE"),
}
_NESTED = {"list", "array", "struct", "map"}


def packed(params: Parameters) -> bytes:
    """Values for a query's parameters, as bytes for the process that runs it.

    Raises
    ------
    QueryError
        If they are no dict or list, or cannot leave this process.
    """
    if isinstance(params, str | bytes) or not isinstance(params, Mapping | Sequence | None):
        raise QueryError(
            f"Values for parameters are a dict or a list; found {in_short(params)}.",
            "snap.sql(query, {'since': …}) for $since, snap.sql(query, [value]) for ?",
        )
    plain = dict(params) if isinstance(params, Mapping) else list(params or ())
    try:
        return pickle.dumps(plain or None)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise _no_value(error) from None


def unpacked(values: bytes) -> Any:
    """What `packed` packed.

    Raises
    ------
    QueryError
        If a value is of a class that is known elsewhere only.
    """
    try:
        return pickle.loads(values)
    except Exception as error:
        raise _no_value(error) from None


def _no_value(error: Exception) -> QueryError:
    return QueryError(
        f"A value for a parameter cannot be passed: {error}.",
        "values for parameters are text, numbers, Booleans, timestamps, or lists of them",
    )


def bind(params: Parameters, names: frozenset[str]) -> dict[str, Any] | list[Any] | None:
    """Check the values for a query's parameters against the names it uses.

    Parameters
    ----------
    params : mapping, sequence or None
        Values by name for ``$name``, in order for ``?``.
    names : frozenset of str
        As the query uses them; ``"1"``, ``"2"`` … for ``?`` and ``$1``.

    Returns
    -------
    dict, list or None
        As DuckDB takes them; None where the query has no parameter.

    Raises
    ------
    QueryError
        If a value is missing or superfluous, or names and positions are mixed up.
    """
    if not names and not params:
        return None
    in_order = all(name.isdecimal() for name in names)
    if isinstance(params, Mapping) or (params is None and not in_order):
        params = params or {}
        return _by_name({str(name): value for name, value in params.items()}, names)
    values = list(params or ())
    if names and not in_order:
        raise QueryError(
            f"The query has named parameters ({_listed(names)}); "
            f"found {len(values)} values without names.",
            f"params={{{sorted(names)[0]!r}: …}}",
            shell=f"-p {sorted(names)[0]}=…",
        )
    needed = max((int(name) for name in names), default=0)
    if len(values) != needed:
        raise QueryError(
            f"The query has {needed} parameters in order (?); found {len(values)} values.",
            "give one value for every ?, in their order",
        )
    return values


def _by_name(params: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    folded, given = ({name.casefold() for name in each} for each in (names, params))
    if missing := sorted(name for name in names if name.casefold() not in given):
        near = did_you_mean(missing[0], sorted(set(params) - names))
        raise QueryError(
            f"The query needs a value for {_listed(missing)}; found {_listed(params) or 'none'}.",
            f"params={{{missing[0]!r}: …}}{near}",
            shell=f"-p {missing[0]}=…{near}",
        )
    if extra := sorted(name for name in params if name.casefold() not in folded):
        raise QueryError(
            f"The query has no parameter {_listed(extra)}; it has {_listed(names) or 'none'}.",
            f"write ${extra[0]} where the value belongs, or remove it",
        )
    return params


def _listed(names: Any) -> str:
    return ", ".join(f"${name}" for name in sorted(names)[:5])


def projection(types: Sequence[DuckDBPyType]) -> str:
    """SQL that brings every column of a result to a type that our frames use.

    Whole numbers become 64-bit, decimals floats, intervals float seconds; moments outside the
    years 1 to 9999 (``infinity``) become null; what has no counterpart becomes text, and so
    do structs, maps and lists of lists that hold moments.
    """
    return ", ".join(f"{_cast(f'#{i}', kind)} AS c{i}" for i, kind in enumerate(types, 1))


def check_shape(types: Sequence[DuckDBPyType]) -> None:
    """Refuse a result of more columns, fields or levels than can be handed over."""
    if len(types) > MOST_COLUMNS:
        raise QueryError(
            f"The result has {len(types):,} columns; at most {MOST_COLUMNS:,} are returned.",
            "name the columns that are needed",
        )
    n_fields = 0
    waiting = [(kind, 1) for kind in types]
    while waiting:
        kind, level = waiting.pop()
        n_fields += dict(kind.children)["size"] if kind.id == "array" else 1  # type: ignore[operator]
        if level > DEEPEST_TYPE or n_fields > MOST_FIELDS:
            raise QueryError(
                f"The result nests lists or structs more than {DEEPEST_TYPE} deep, "
                f"or has more than {MOST_FIELDS:,} fields.",
                "unnest them, select fewer, or give them as text: to_json(x)::VARCHAR",
            )
        waiting.extend((inner, level + 1) for inner in _inner(kind))


def _inner(kind: DuckDBPyType) -> list[DuckDBPyType]:
    if kind.id not in _NESTED:
        return []
    return [child for _, child in kind.children if not isinstance(child, int | list)]


def enum_words(kind: DuckDBPyType) -> list[str] | None:
    """The words of an enum type, in their order; None for other types."""
    return dict(kind.children)["values"] if kind.id == "enum" else None  # type: ignore[return-value]


def _cast(column: str, kind: DuckDBPyType) -> str:
    name = kind.id
    if name in _MOMENTS:
        moment = f"{column}::{_MOMENTS[name]}"
        return f"CASE WHEN {moment} BETWEEN '0001-01-01' AND '9999-12-30' THEN {moment} END"
    if name == "interval":
        return f"epoch({column})"
    if name == "list" and _inner(kind)[0].id in _MOMENTS:
        return f"list_transform({column}, lambda moment: {_cast('moment', _inner(kind)[0])})"
    if name in _UNCHANGED or (name in _NESTED and _is_plain(kind)):
        return column
    return f"{column}::{_TARGETS.get(name, 'VARCHAR')}"


def _is_plain(kind: DuckDBPyType) -> bool:
    """Whether a nested value needs no cast; moments in it could be infinite."""
    if kind.id in _NESTED:
        return all(_is_plain(child) for child in _inner(kind))
    return kind.id in _WHOLE | _UNCHANGED | {"decimal", "float", "ubigint"}

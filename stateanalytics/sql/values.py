"""Values on their way into a query, and the types of those that come out of it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stateanalytics.errors import QueryError, did_you_mean, in_short
from stateanalytics.sql.functions import DEEPEST_TYPE, MOST_COLUMNS, MOST_FIELDS

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

Parameters = Mapping[str, Any] | Sequence[Any] | None

_WHOLE = {"tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger"}
_AS_THEY_ARE = {"varchar", "boolean", "double", "uuid", "json", "enum", "blob", "time"}
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
    """Values for a query's parameters as the process that runs it takes them.

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
        f"A value for a parameter cannot be handed over: {error}.",
        "values for parameters are text, numbers, Booleans, moments, or lists of them",
    )


def bound(params: Parameters, names: frozenset[str]) -> dict[str, Any] | list[Any] | None:
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
    folded = {name.casefold() for name in names}
    if missing := sorted(name for name in names if name.casefold() not in _folded(params)):
        near = did_you_mean(missing[0], sorted(set(params) - names))
        raise QueryError(
            f"The query needs a value for {_listed(missing)}; found {_listed(params) or 'none'}.",
            f"params={{{missing[0]!r}: …}}{near}",
            shell=f"-p {missing[0]}=…{near}",
        )
    if extra := sorted(name for name in params if name.casefold() not in folded):
        raise QueryError(
            f"The query has no parameter {_listed(extra)}; it has {_listed(names) or 'none'}.",
            f"write ${extra[0]} where the value belongs, or leave it out",
        )
    return params


def _folded(names: Mapping[str, Any]) -> set[str]:
    return {name.casefold() for name in names}


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
            f"The result has {len(types):,} columns; at most {MOST_COLUMNS:,} are given.",
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


def words_of(kind: DuckDBPyType) -> list[str] | None:
    """The words of a type that has some, in their order."""
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
    if name in _AS_THEY_ARE or (name in _NESTED and _is_plain(kind)):
        return column
    return f"{column}::{_TARGETS.get(name, 'VARCHAR')}"


def _is_plain(kind: DuckDBPyType) -> bool:
    """Whether a nested value can be given as it is; moments in it could be infinite."""
    if kind.id in _NESTED:
        return all(_is_plain(child) for child in _inner(kind))
    return kind.id in _WHOLE | _AS_THEY_ARE | {"decimal", "float", "ubigint"}

"""What a query asks for, read from its syntax tree before anything runs.

DuckDB's own parser makes the tree, so there is no second reading of the text to fool.
Only what is known passes: one statement that selects, tables of the snapshot by their
plain names, functions of the lists in `functions`. An unknown kind of node is refused,
whatever it may turn out to be.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stateanalytics.errors import QueryError, did_you_mean
from stateanalytics.sql import functions
from stateanalytics.sql.parsing import HOW, one_statement, refused, syntax_tree, too_deep

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


_PIVOT = "list the values: SELECT … FROM states PIVOT (count(*) FOR severity IN ('critical'))"
_QUERY_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_TABLE_NODES = {"SUBQUERY", "JOIN", "EXPRESSION_LIST", "EMPTY", "PIVOT", "SHOW_REF"}
_PLAIN_NODES = set(
    (
        "ORDER_MODIFIER LIMIT_MODIFIER LIMIT_PERCENT_MODIFIER DISTINCT_MODIFIER ORDER_DEFAULT "
        "ASCENDING DESCENDING"
    ).split()
)
_EXPRESSIONS = set(
    (
        "BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT DEFAULT FUNCTION "
        "LAMBDA LAMBDA_REF OPERATOR PARAMETER POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW"
    ).split()
)
_ORDERINGS = {
    *("COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO", "COMPARE_BETWEEN"),
    *("COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO"),
}
_SCHEMAS = {"system", "temp", "memory", "main", "pg_catalog", "information_schema"}
_SYSTEM_TABLE = re.compile(r"(?i)(duckdb_|pg_|pragma_|sqlite_|information_schema)")
_LIKE_A_FILE = re.compile(r"[/\\:.*?]")
# A width of thousands of characters, one that is computed, or one inside another.
_WIDE_FORMAT = re.compile(r"\d{4}|\*|\{[^{}]*\{")


@dataclass(frozen=True)
class Reading:
    """What a query asks for.

    Attributes
    ----------
    sql : str
        The statement to run: the text, with column names quoted where they had to be.
    tables : frozenset of str
        Tables of the snapshot that it names.
    parameters : frozenset of str
        Names of its parameters; ``"1"``, ``"2"`` … for ``?``.
    """

    sql: str
    tables: frozenset[str]
    parameters: frozenset[str]


def read_query(
    query: str,
    known: Mapping[str, Collection[str]],
    connection: DuckDBPyConnection,
    *,
    ranked: Collection[str] = (),
) -> Reading:
    """Check that a query asks for nothing but the snapshot, and list what it needs.

    Parameters
    ----------
    query : str
        SQL as someone typed or pasted it.
    known : mapping of str to collection of str
        Names of the tables that may be named, each with its columns.
    connection : duckdb.DuckDBPyConnection
        Parses; nothing of the query is run on it.
    ranked : collection of str
        Columns whose words have a rank, which a comparison must name.

    Returns
    -------
    Reading
        Its tables are names of ``known``.

    Raises
    ------
    QueryRefusedError
        If it is more than one statement, does anything but select, or names a file, a
        setting, a table or a function outside the lists.
    QueryError
        If it is no SQL, or names a table that does not exist.
    """
    sql, kind, parameters = one_statement(query, connection)
    if kind != "SELECT":
        first = re.match(r"\s*([A-Za-z]+)", sql)
        hint = _PIVOT if kind == "MULTI" else HOW
        raise refused(f"{first[1].upper() if first else kind} was found", hint)
    tree = syntax_tree(sql, connection)
    if _is_show_tables(tree):
        return Reading("SELECT * FROM tables", frozenset({"tables"}), frozenset())
    if _levels(tree, {}) > functions.DEEPEST_QUERY:
        raise QueryError(
            f"The query builds on itself more than {functions.DEEPEST_QUERY} levels deep; "
            "every level can double the work of planning.",
            "join levels: one SELECT can filter, compute and group",
        )
    walk = _Walk({name.casefold(): name for name in known}, connection, ranked)
    walk.through(tree)
    columns = {column.casefold() for name in walk.tables for column in known[name]}
    if words := sorted(walk.session_words - columns):
        raise refused(f"{words[0]} was found", functions.WHY_NOT[words[0]])
    return Reading(sql, frozenset(walk.tables), frozenset(parameters))


class _Walk:
    """One pass over a syntax tree, with the names that WITH defines where they hold."""

    def __init__(
        self, known: Mapping[str, str], connection: DuckDBPyConnection, ranked: Collection[str]
    ) -> None:
        self.known = known
        self.connection = connection
        self.ranked = ranked
        self.tables: set[str] = set()
        self.session_words: set[str] = set()
        self.n_stars = 0

    def through(self, tree: Any) -> None:
        """Visit every node, with an explicit stack: a query may nest deeper than Python allows."""
        waiting: list[tuple[Any, frozenset[str], int, int]] = [(tree, frozenset(), 0, 0)]
        while waiting:
            node, names, doubled, level = waiting.pop()
            if level > functions.DEEPEST_TREE:
                raise too_deep()
            level += 1
            if isinstance(node, list):
                waiting.extend((item, names, doubled, level) for item in node)
            elif isinstance(node, dict):
                doubled += str(node.get("function_name")).casefold() in functions.DOUBLING
                if doubled > functions.DEEPEST_DOUBLING:
                    raise too_deep()
                parts = self._parts(node, names)
                waiting.extend((part, seen, doubled, level) for part, seen in parts)

    def _parts(self, node: dict[str, Any], names: frozenset[str]) -> Iterator[Any]:
        """Check one node and give those below it."""
        kind = node.get("type")
        if isinstance(node.get("sample"), dict):
            raise refused("a sample was found", functions.WHY_NOT["random"])
        if "class" in node:
            self._check_expression(node)
            if node["class"] == "CONSTANT":
                return
        elif isinstance(kind, str):
            if kind in _QUERY_NODES:
                names = yield from self._definitions(node, names)
                node = {key: value for key, value in node.items() if key != "cte_map"}
            elif kind == "BASE_TABLE":
                self._check_table(node, names)
            elif kind == "TABLE_FUNCTION":
                self._check_table_function(node["function"])
                yield node["function"].get("arguments"), names
                yield node["function"].get("children"), names
                node = {key: value for key, value in node.items() if key != "function"}
            elif kind == "SHOW_REF" and not node.get("query"):
                raise refused("SHOW was found", "SHOW TABLES, or DESCRIBE and a table")
            elif kind not in _TABLE_NODES and kind not in _PLAIN_NODES:
                raise refused(f"{kind.replace('_', ' ').lower()} was found", HOW)
        for value in node.values():
            yield value, names

    def _definitions(self, node: dict[str, Any], names: frozenset[str]) -> Any:
        """Bodies of WITH: each sees the names before it, a recursive one its own too."""
        for entry in (node.get("cte_map") or {}).get("map") or ():
            name, body = entry["key"].casefold(), entry["value"]
            if body.get("materialized") == "CTE_MATERIALIZE_NEVER":
                raise refused(
                    "NOT MATERIALIZED was found, which can double the work with every name",
                    f"leave the two words out: WITH {entry['key']} AS (…)",
                )
            own = names | {name}
            is_recursive = (body.get("query_node") or {}).get("type") == "RECURSIVE_CTE_NODE"
            yield body, own if is_recursive else names
            names = own
        return names

    def _check_table(self, node: dict[str, Any], names: frozenset[str]) -> None:
        name = node["table_name"]
        path = [part.casefold() for part in _path(node, "table_name")]
        if len(path) > 1 and path != ["recurring", path[-1]]:
            raise refused(f"the table {'.'.join(path)!r} was found", "name tables without schema")
        if path[-1] in names:
            return
        if len(path) == 1 and path[0] in self.known:
            self.tables.add(self.known[path[0]])
            return
        if name.casefold() in functions.WHY_NOT or _SYSTEM_TABLE.match(name):
            raise refused(f"the table {name!r} was found", HOW)
        if _LIKE_A_FILE.search(name):
            raise refused(f"the file {name!r:.80} was found", functions.WHY_NOT["read_csv"])
        raise no_such_table(name, self.known.values())

    def _check_table_function(self, node: dict[str, Any]) -> None:
        name = node["function_name"].casefold()
        if name not in functions.TABLE_FUNCTIONS or len(_path(node, "function_name")) > 1:
            raise self._refused_function(name, functions.WHY_NOT.get(name, HOW))

    def _check_expression(self, node: dict[str, Any]) -> None:
        if node["class"] not in _EXPRESSIONS:
            raise refused(f"{str(node['class']).lower()} was found", HOW)
        if node["class"] in ("FUNCTION", "WINDOW"):
            self._check_function(node)
        if node["class"] == "STAR":
            self.n_stars += 1
            if self.n_stars > functions.MOST_STARS:
                raise QueryError(
                    f"A query may use * at most {functions.MOST_STARS} times.", "name the columns"
                )
        if node["class"] in ("COMPARISON", "BETWEEN"):
            _check_order(node, self.ranked)
        if node["class"] == "COLUMN_REF":
            word = ".".join(node["column_names"]).casefold()
            if word in functions.CLOCK_WORDS:
                raise refused(f"{word} was found", functions.WHY_NOT[word])
            if word in functions.SESSION_WORDS:
                self.session_words.add(word)

    def _check_function(self, node: dict[str, Any]) -> None:
        name = node["function_name"].casefold()
        path = [part.casefold() for part in _path(node, "function_name")]
        if name not in functions.FUNCTIONS or _SCHEMAS & set(path[:-1]):
            raise self._refused_function(name, functions.WHY_NOT.get(name, ""))
        if name == "age" and len(node.get("arguments") or ()) < 2:
            raise refused(
                "age() of one moment was found, which counts from today",
                "age(as_of(), x) counts from the instant of the snapshot",
            )
        if name in ("format", "printf") and not _has_plain_pattern(node):
            raise refused(
                f"{name}() with a width above 999, or one that is computed, was found",
                f"write the pattern out: {name}('{'{:.1f}' if name == 'format' else '%.1f'}', x)",
            )
        if node["class"] == "WINDOW" and name in functions.GROWING:
            raise refused(
                f"{name}() over a window was found, which makes one whole copy for every row",
                f"use {name}() with GROUP BY",
            )

    def _refused_function(self, name: str, why: str) -> QueryError:
        if why:
            return refused(f"the function {name}() was found", why)
        [(n_such,)] = self.connection.execute(
            "SELECT count(*) FROM duckdb_functions() WHERE lower(function_name) = $1", [name]
        ).fetchall()
        if n_such:
            return refused(
                f"the function {name}() was found",
                "it is not among the functions that a query may call",
            )
        return QueryError(
            f"There is no function {name}().",
            "functions are those of DuckDB" + did_you_mean(name, functions.FUNCTIONS),
        )


def _levels(tree: Any, defined: dict[str, int]) -> int:
    """How many SELECTs build on one another, through FROM and through names of WITH."""
    deepest = 0
    waiting: list[tuple[Any, int]] = [(tree, 0)]
    while waiting:
        node, above = waiting.pop()
        if isinstance(node, list):
            waiting.extend((item, above) for item in node)
        elif isinstance(node, dict):
            for entry in (node.get("cte_map") or {}).get("map") or ():
                name = entry["key"].casefold()
                defined[name] = max(defined.get(name, 0), _levels(entry["value"], defined))
            above += node.get("type") == "SELECT_NODE"
            if node.get("type") == "BASE_TABLE":
                above += defined.get(node["table_name"].casefold(), 0)
            deepest = max(deepest, above)
            waiting.extend((part, above) for key, part in node.items() if key != "cte_map")
    return deepest


def no_such_table(name: str, known: Collection[str]) -> QueryError:
    """The error for a table that does not exist, with those that do."""
    there = sorted(known)
    plain = [table for table in there if not table.startswith("raw_")]
    raw = len(there) - len(plain)
    listed = ", ".join(plain) + (f" and {raw} raw_… tables" if raw else "")
    return QueryError(
        f"There is no table {name!r:.80}; there are {listed}.",
        "see `stateanalytics sql --schema`" + did_you_mean(name.casefold(), there),
    )


def _is_show_tables(tree: dict[str, Any]) -> bool:
    shown = tree.get("from_table") or {}
    return shown.get("type") == "SHOW_REF" and shown.get("table_name") == '"tables"'


def _check_order(node: dict[str, Any], ranked_columns: Collection[str]) -> None:
    """Words such as severity have a rank, which the engine ignores next to plain text."""
    if node["type"] not in _ORDERINGS:
        return
    sides = [node.get(side) or {} for side in ("left", "right", "input", "lower", "upper")]
    named = [side["column_names"][-1] for side in sides if side.get("class") == "COLUMN_REF"]
    ranked = [name for name in named if name.casefold() in ranked_columns]
    if ranked and any(side.get("class") in ("CONSTANT", "PARAMETER") for side in sides):
        raise QueryError(
            f"{ranked[0]} has an order, and a comparison with plain text would be alphabetical.",
            f"cast to the vocabulary: {ranked[0]} <= 'warning'::{ranked[0]}, or list words with IN",
        )


def _path(node: dict[str, Any], name: str) -> list[str]:
    parts = (node.get("qualified_name") or {}).get("path") or [
        node.get("catalog_name") or node.get("catalog"),
        node.get("schema_name") or node.get("schema"),
        node[name],
    ]
    return [part for part in parts if part]


def _has_plain_pattern(node: dict[str, Any]) -> bool:
    first = ((node.get("arguments") or [{}])[0]).get("expression") or {}
    literal = first.get("literal") or {}
    return literal.get("kind") == "STRING" and not _WIDE_FORMAT.search(literal.get("text", "{{"))

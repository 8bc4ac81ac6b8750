"""Parse a query with DuckDB, and translate DuckDB's errors into ours."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stateanalytics.errors import (
    QueryError,
    QueryRefusedError,
    QueryTimeoutError,
    did_you_mean,
    in_short,
)
from stateanalytics.sql.functions import DEEPEST_WITH, LONGEST_QUERY, MEMORY_BYTES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

HOW = "one SELECT over the tables that `stateanalytics sql --schema` lists"


def one_statement(query: str, connection: DuckDBPyConnection) -> tuple[str, str, set[str]]:
    """The one statement in a text, its kind, and the names of its parameters.

    Column names that are words of SQL are quoted where the text does not parse as it is.

    Raises
    ------
    QueryRefusedError
        If there are several statements, or none.
    QueryError
        If the text is no SQL, or too deep to be parsed safely.
    """
    import duckdb

    _check_nesting(query)
    try:
        statements = connection.extract_statements(query)
    except duckdb.Error as error:
        quoted = _with_column_names_quoted(query)
        try:
            statements = connection.extract_statements(quoted)
        except duckdb.Error:
            raise syntax_error(error) from None
        query = quoted
    if len(statements) != 1:
        raise refused(
            f"{len(statements) or 'no'} statements were found", "run them one after the other"
        )
    try:
        kind = statements[0].type.name
    except ValueError:  # kinds that DuckDB's Python side has no name for
        kind = ""
    return _without_end(query), kind, set(statements[0].named_parameters)


def check_text(query: object) -> str:
    """Refuse what is not the text of a query before anything reads it.

    Raises
    ------
    QueryError
        If it is no text, empty, too long, or holds what no text may.
    """
    if not isinstance(query, str) or not query.strip():
        raise QueryError(
            f"A query needs SQL text; found {in_short(query)}.",
            'snap.sql("FROM states")',
            shell='stateanalytics sql state.db "FROM states"',
        )
    if len(query) > LONGEST_QUERY:
        raise QueryError(
            f"A query may have at most {LONGEST_QUERY:,} characters; this one has {len(query):,}.",
            "pass long lists as a parameter: WHERE entity_id IN $ids",
        )
    if "\0" in query or any("\ud800" <= character <= "\udfff" for character in query):
        raise QueryError("The query contains a NUL or half a surrogate pair.", "remove it")
    return str(query)


def syntax_tree(sql: str, connection: DuckDBPyConnection) -> Any:
    """The tree of one statement that selects, as nested dicts and lists."""
    import duckdb

    try:
        [(text,)] = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchall()
        answer = json.loads(text)
    except RecursionError:
        raise too_deep() from None
    except duckdb.Error as error:
        raise syntax_error(error) from None
    if answer.get("error", True) or len(answer.get("statements", ())) != 1:
        message = str(answer.get("error_message", "it cannot be read"))
        raise refused(f"a statement of another kind was found ({message})", HOW)
    return answer["statements"][0]["node"]


def refused(problem: str, hint: str) -> QueryRefusedError:
    """The error for what a query may not do."""
    return QueryRefusedError(f"A query is one statement that selects; {problem}.", hint)


def too_deep() -> QueryError:
    """The error for a query that cannot be checked for its depth."""
    return QueryError(
        "The query is nested too deeply.", "use WITH to name its parts, IN for long lists"
    )


def syntax_error(error: Exception) -> QueryError:
    """The error for text that is no SQL."""
    if "Max expression depth" in str(error):
        return too_deep()
    message = str(error).split("\n\nLINE")[0].removeprefix("Parser Error: ").strip()
    where = re.search(r"\n\nLINE (\d+): (.*)", str(error))
    line = f" in line {where[1]}: {where[2].strip():.120}" if where else ""
    return QueryError(
        f"The query cannot be read: {message}{line}.",
        'a query is DuckDB SQL; put column names that are SQL keywords in "double quotes"',
    )


def _check_nesting(query: str) -> None:
    """Refuse WITH inside WITH inside WITH … before the parser sees it."""
    import duckdb

    text = query.encode()
    tokens = duckdb.tokenize(query)
    has_with = [False]
    for (start, kind), (stop, _) in zip(tokens, [*tokens[1:], (len(text), None)], strict=True):
        if kind == duckdb.token_type.operator:
            for character in text[start:stop].decode("utf-8", "replace"):
                if character == "(":
                    has_with.append(False)
                elif character == ")" and len(has_with) > 1:
                    has_with.pop()
        elif kind == duckdb.token_type.keyword and text[start:stop].strip().lower() == b"with":
            has_with[-1] = True
            if sum(has_with) > DEEPEST_WITH:
                raise QueryError(
                    f"The query has WITH inside WITH more than {DEEPEST_WITH} deep.",
                    "write the parts one after the other: WITH a AS (…), b AS (…)",
                )


def _without_end(query: str) -> str:
    """A statement without the semicolons and comments behind it: it becomes a subquery."""
    import duckdb

    text = query.encode()
    end = len(text)
    for start, kind in reversed(duckdb.tokenize(query)):
        if kind != duckdb.token_type.comment and text[start:end].strip() != b";":
            break
        end = start
    return text[:end].decode()


# Columns of the canonical frames that are also words of SQL, and what follows the word
# where it is one. Where the text does not parse as it is, they are taken for columns.
_WORDS = {
    "at": re.compile(r"(?i)\s*(?:time\b|\()"),
    "order": re.compile(r"(?i)\s*by\b"),
    "table": re.compile(r"(?i)\s*[\"a-z_]"),
    "column": re.compile(r"(?!)"),
}


def _with_column_names_quoted(query: str) -> str:
    import duckdb

    text = query.encode()
    pieces, end = [], 0
    tokens = duckdb.tokenize(query)
    for (start, kind), (stop, _) in zip(tokens, [*tokens[1:], (len(text), None)], strict=True):
        word = text[start:stop].decode("utf-8", "replace").rstrip()
        if kind != duckdb.token_type.keyword or word.casefold() not in _WORDS:
            continue
        behind = start + len(word.encode())
        if not _WORDS[word.casefold()].match(text[behind : behind + 40].decode("utf-8", "replace")):
            pieces += [text[end:start], b'"', word.encode(), b'"']
            end = behind
    return b"".join([*pieces, text[end:]]).decode()


_NO_COLUMN = re.compile(r'(?:Referenced column|does not have a column named) "([^"]+)"')
_NO_COLUMN_OF = re.compile(r'Table "[^"]+" does not have a column named "([^"]+)"')


@dataclass(frozen=True)
class TableText:
    """What a query can be checked against before it has a table's rows.

    Attributes
    ----------
    columns : tuple of str
        For messages; empty where they are known only once it is loaded.
    left_out : tuple of str
        Columns that hold bodies, which were not read.
    view : str, optional
        Instead of rows: SQL over other tables.
    """

    columns: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    view: str | None = None


def as_our_error(
    error: Exception, tables: Iterable[TableText], memory_bytes: int = MEMORY_BYTES
) -> QueryError:
    """DuckDB's error as ours: its first sentences, and a hint.

    Parameters
    ----------
    error : duckdb.Error
        What the engine raised.
    tables : iterable of Table
        The tables of the query, to name their columns.
    memory_bytes : int
        The limit of memory.
    """
    import duckdb

    tables = list(tables)
    text = re.split(r"\n\nLINE |\n\nPossible solutions|\nCandidate|\s*Stack Trace", str(error))[0]
    message = " ".join(re.sub(r"\A[A-Z][A-Za-z ]{2,30} Error: ", "", text).split())[:400]
    if isinstance(error, duckdb.OutOfMemoryException):
        return too_large(memory_bytes)
    if isinstance(error, duckdb.PermissionException):
        return QueryRefusedError(
            f"A query can use the snapshot only: {message}",
            "select from the tables of the snapshot",
        )
    if missing := (_NO_COLUMN_OF.search(message) or _NO_COLUMN.search(message)):
        return _no_such_column(missing[1], tables)
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        return QueryError(f"The SQL engine failed on this query: {message}", "write it another way")
    return QueryError(f"The query cannot be run: {message}", _hint_for(error))


def _no_such_column(name: str, tables: Collection[TableText]) -> QueryError:
    if any(name in table.left_out for table in tables):
        return QueryError(
            f"The column {name!r} has texts of messages, which were not read.",
            "read the store with bodies=True",
            shell="add --bodies",
        )
    known = sorted({column for table in tables for column in table.columns})
    listed = ", ".join(known[:60]) + (f" and {len(known) - 60} more" if len(known) > 60 else "")
    return QueryError(
        f"There is no column {name!r:.80} in the tables of this query; "
        f"they have {listed or 'no columns'}.",
        "put text in 'single quotes'; see `stateanalytics sql --schema`"
        + did_you_mean(name, known),
    )


def _hint_for(error: Exception) -> str:
    import duckdb

    if isinstance(error, duckdb.ConversionException):
        return "TRY_CAST(… AS type) gives null where a value does not fit"
    if isinstance(error, duckdb.NotImplementedException):
        return "values for parameters are text, numbers, Booleans, timestamps, or lists of them"
    return (
        "functions, types and operators are those of DuckDB; tables: `stateanalytics sql --schema`"
    )


def from_arrow(
    error: BaseException, timeout_s: float, memory_bytes: int = MEMORY_BYTES
) -> QueryError:
    """The error for a result that breaks off, or cannot be handed over, on its way."""
    message = " ".join(str(error).split())
    if isinstance(error, MemoryError) or "out of memory" in message.casefold():
        return too_large(memory_bytes)
    if "interrupt" in message.casefold():
        return too_slow(timeout_s)
    return QueryError(
        f"The result cannot be transferred: {message[:300] or type(error).__name__}",
        "select fewer columns, or a nested one as text: to_json(x)::VARCHAR",
    )


def too_slow(timeout_s: float) -> QueryTimeoutError:
    """The error for a query that did not end in time."""
    return QueryTimeoutError(
        f"The query took longer than its limit of {timeout_s:g} s.",
        "narrow it with WHERE, or allow more time: timeout_s=…",
        shell="narrow it with WHERE, or allow more time: --timeout …",
    )


_WITH_LESS = "aggregate or filter earlier, select fewer columns, or add LIMIT"


def too_large(limit_bytes: int) -> QueryError:
    """The error for a query that does not fit into memory."""
    return QueryError(
        f"The query needs more memory than its limit of {_size(limit_bytes)}.",
        f"{_WITH_LESS}; or allow more: memory_bytes=…",
        shell=f"{_WITH_LESS}; or allow more: --memory-limit …",
    )


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1024**3:g} GiB" if n_bytes % 2**29 == 0 else f"{n_bytes / 1e6:,.0f} MB"


def broken_down(exit_code: int | None, limit_bytes: int) -> QueryError:
    """The error for a query whose process ended before it answered."""
    return QueryError(
        f"The SQL engine crashed on this query (exit code {exit_code}), most likely because "
        f"it needs more memory than {_size(limit_bytes)}.",
        f"{_WITH_LESS}; or write it another way",
    )

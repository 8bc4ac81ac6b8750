"""Text to one statement and its syntax tree, by DuckDB's own lexer and parser."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from stateanalytics.errors import QueryError, QueryRefusedError
from stateanalytics.sql.limits import DEEPEST_WITH, LONGEST_QUERY

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

HOW = "one SELECT over the tables that `stateanalytics schema` lists"


def one_statement(query: str, connection: DuckDBPyConnection) -> tuple[str, str, set[str]]:
    """The one statement in a text, its kind, and the names of its parameters.

    Column names that are words of SQL are quoted where the text does not parse as it is.

    Raises
    ------
    QueryRefusedError
        If there are several statements, or none.
    QueryError
        If the text is no SQL, or too long or too deep to be parsed safely.
    """
    import duckdb

    if not isinstance(query, str) or not query.strip():
        raise QueryError(
            f"A query needs SQL text; found {query!r:.60}.", 'snap.sql("SELECT * FROM states")'
        )
    if len(query) > LONGEST_QUERY:
        raise QueryError(
            f"A query may have {LONGEST_QUERY:,} characters; this one has {len(query):,}.",
            "pass long lists as a parameter: WHERE entity_id IN $ids",
        )
    if "\0" in query or any("\ud800" <= character <= "\udfff" for character in query):
        raise QueryError("The query holds a NUL or half a surrogate pair.", "remove it")
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


def refused(found: str, hint: str) -> QueryRefusedError:
    """The error for what a query may not do."""
    return QueryRefusedError(f"A query is one statement that selects; {found}.", hint)


def too_deep() -> QueryError:
    """The error for a query that cannot be checked for its depth."""
    return QueryError(
        "The query is nested too deeply.", "use WITH to name its parts, IN for long lists"
    )


def syntax_error(error: Exception) -> QueryError:
    """The error for text that is no SQL."""
    message = str(error).split("\n\nLINE")[0].removeprefix("Parser Error: ").strip()
    where = re.search(r"\n\nLINE (\d+): (.*)", str(error))
    line = f" in line {where[1]}: {where[2].strip():.120}" if where else ""
    return QueryError(
        f"The query cannot be read: {message}{line}.",
        'a query is DuckDB SQL; column names that are words of SQL stand in "double quotes"',
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

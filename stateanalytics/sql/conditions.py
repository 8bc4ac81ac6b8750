"""Values as they stand in SQL, so that what is chosen by hand can be asked for again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from stateanalytics.core.own_columns import OwnColumn
from stateanalytics.io.sqlite_copy import quoted
from stateanalytics.systems import all_systems

NOT_DRIVEN = (
    "NOT coalesce((source, system, session_id) IN (SELECT (told_source, told_system, told_id) "
    "FROM links JOIN entity_states USING (source, system, entity_type, entity_id) "
    "WHERE is_counted_by_driver AND NOT is_legacy AND lifecycle <> 'unknown' "
    "AND coalesce(ended_at, started_at, created_at) IS NOT NULL), false)"
)
"""SQL that leaves out transcripts of work that another system's session counts.

What counts nowhere by itself, a legacy status above all, counts nothing that it drove.
"""


def literal(value: object) -> str:
    """A value in DuckDB's SQL: a text of a store stays a text.

    Examples
    --------
    >>> [literal(value) for value in ("it's", 3, 0.5, None)]
    ["'it''s'", '3', '0.5', 'NULL']
    """
    match value:
        case None:
            return "NULL"
        case bool() | int() | float():
            return str(value)
        case datetime():
            return f"TIMESTAMPTZ '{value.isoformat(' ')}'"
    return "'" + str(value).replace("'", "''") + "'"


def with_own(of: str, joined: Sequence[OwnColumn]) -> str:
    """A table with columns of one's own tables, under their dotted names."""
    if not joined:
        return of
    names = (f'{quoted(x.table)}.{quoted(x.column)} AS "{x.table}.{x.column}"' for x in joined)
    keys = {own.table: own.key for own in joined}
    joins = (f" LEFT JOIN {quoted(name)} USING ({quoted(key)})" for name, key in keys.items())
    return f"(SELECT rows.*, {', '.join(names)} FROM {of} AS rows{''.join(joins)})"


def is_run(systems: Iterable[str]) -> str:
    """SQL that holds of the runs among entities of some systems.

    Examples
    --------
    >>> is_run([])
    "entity_type = 'session'"
    """
    types = {known.name: known.run_type for known in all_systems() if known.name in set(systems)}
    if set(types.values()) <= {"session"}:
        return "entity_type = 'session'"
    each = [
        f"(system = {literal(name)} AND entity_type = {literal(run_type)})"
        for name, run_type in types.items()
    ]
    return f"({' OR '.join(each)})"

"""Rows of `findings`: one problem each, and never so many that they drown the data."""

from __future__ import annotations

from functools import partial

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool

MAX_ROWS_PER_CODE = 1000
MAX_EXAMPLE = 200

OF_POOLING = (
    *("source.named_twice", "source.same_content", "source.same_work", "source.ids_collide"),
    *("time.future", "time.after_as_of", "time.not_recorded"),
)
"""Codes that reading several inputs at an instant adds; all others are of one input."""


def counted(
    source: str,
    system: str,
    code: str,
    severity: str,
    message: str,
    *,
    n_rows: int | None = 1,
    table: str | None = None,
    column: str | None = None,
    entity_type: str | None = None,
    entity_id: str | None = None,
    example: str | None = None,
    action: str | None = None,
) -> pl.DataFrame:
    """One finding about several rows, or about a file; none where it concerns no row.

    Returns
    -------
    polars.DataFrame, shape (0 or 1, 12)
        In the shape of `stateanalytics.core.schema.FINDINGS`.

    Examples
    --------
    >>> counted("a.db", "a_system", "run.unreadable", "warning", "not JSON").height
    1
    >>> counted("a.db", "a_system", "run.unreadable", "warning", "not JSON", n_rows=0).height
    0
    """
    if n_rows == 0:
        return schema.FINDINGS.empty()
    row = {
        "source": source,
        "system": system,
        "code": code,
        "severity": severity,
        "entity_type": entity_type,
        "entity_id": entity_id,
        "table": table,
        "column": column,
        "n_rows": n_rows,
        "message": message,
        "example": None if example is None else example[:MAX_EXAMPLE],
        "action": action,
    }
    return pl.DataFrame([row], schema=schema.FINDINGS.dtypes)


def rows_counted(
    rows: pl.DataFrame,
    system: str,
    code: str | pl.Expr,
    severity: str | pl.Expr,
    message: str | pl.Expr,
    **more: str | pl.Expr | None,
) -> pl.DataFrame:
    """What `counted` gives, of several sources at once.

    Parameters
    ----------
    rows : polars.DataFrame, shape (n_findings, >= 2)
        Has ``source`` and ``n_rows``, and what the expressions need.
    system, code, severity, message, **more
        Columns of `schema.FINDINGS`: a text for all, or an expression over ``rows``.

    Examples
    --------
    >>> rows = pl.DataFrame({"source": ["a.jsonl", "b.jsonl"], "n_rows": [3, 1]})
    >>> rows_counted(rows, "a_system", "run.unreadable", "warning", "not JSON")["n_rows"].to_list()
    [3, 1]
    """
    if rows.is_empty():
        return schema.FINDINGS.empty()
    given = {"system": system, "code": code, "severity": severity, "message": message, **more}
    texts = {name: _text(value) for name, value in given.items()}
    texts["example"] = _text(more.get("example")).str.slice(0, MAX_EXAMPLE)
    return schema.FINDINGS.conform(rows.select("source", "n_rows", **texts))


def per_entity(
    rows: pl.DataFrame,
    source: str | pl.Expr,
    system: str,
    code: str,
    severity: str,
    *,
    message: str | pl.Expr,
    table: str | None = None,
    column: str | pl.Expr | None = None,
    example: str | pl.Expr | None = None,
    action: str | None = None,
    max_rows: int = MAX_ROWS_PER_CODE,
) -> pl.DataFrame:
    """One finding an entity; beyond ``max_rows`` the rest become one counted finding.

    Parameters
    ----------
    rows : polars.DataFrame, shape (n_entities, >= 2)
        Has ``entity_type`` and ``entity_id``, and what the expressions need.
    source : str or polars.Expr
        One for all, or ``pl.col("source")`` of ``rows``.
    system, code, severity, table, action : str
        As in `stateanalytics.core.schema.FINDINGS`.
    message, column, example : str or polars.Expr
        A text for all, or an expression over ``rows``.
    max_rows : int
        How many entities of a source get a row of their own.

    Returns
    -------
    polars.DataFrame, shape (min(n_entities, max_rows) + 1 or less, 12)
        Ordered by entity, whatever the order of ``rows``; of several sources one by one.

    Examples
    --------
    >>> rows = pl.DataFrame({"entity_type": ["session"] * 3, "entity_id": ["c", "a", "b"]})
    >>> few = per_entity(rows, "a.db", "a_system", "end.missing", "info", message="-", max_rows=2)
    >>> few.select("entity_id", "n_rows").rows()
    [('a', 1), ('b', 1), (None, 1)]
    """
    if rows.is_empty():
        return schema.FINDINGS.empty()
    few = rows.height <= max_rows
    if isinstance(source, pl.Expr) and not few:
        # The bound is that of each source.
        of_one = partial(
            per_entity,
            system=system,
            code=code,
            severity=severity,
            message=message,
            table=table,
            column=column,
            example=example,
            action=action,
            max_rows=max_rows,
        )
        sources = rows.sort("source").partition_by("source", as_dict=True, maintain_order=True)
        each = [of_one(own, name) for (name,), own in sources.items()]
        return pool(each, schema.FINDINGS)
    key = [*([] if isinstance(source, str) else ["source"]), "entity_type", "entity_id"]
    # The first by name: which are listed must not hang on the order of rows.
    named = rows.sort(key) if few else rows.bottom_k(max_rows, by=key).sort(key)
    listed = named.select(
        _text(source).alias("source"),
        _text(system).alias("system"),
        _text(code).alias("code"),
        _text(severity).alias("severity"),
        "entity_type",
        "entity_id",
        _text(table).alias("table"),
        _text(column).alias("column"),
        pl.lit(1, schema.INTEGER).alias("n_rows"),
        _text(message).alias("message"),
        _text(example).str.slice(0, MAX_EXAMPLE).alias("example"),
        _text(action).alias("action"),
    )
    if isinstance(source, pl.Expr) or few:
        return schema.FINDINGS.conform(listed)
    rest = counted(
        source,
        system,
        code,
        severity,
        f"{rows.height - named.height} more entities with the same problem, not listed one by one",
        n_rows=rows.height - named.height,
        table=table,
        column=column if isinstance(column, str) else None,
        action=action,
    )
    return schema.FINDINGS.conform(pl.concat([listed, rest]))


def folded(findings: pl.DataFrame) -> pl.DataFrame:
    """Findings that differ only in whose they are and in the example as one, rows added up.

    Parameters
    ----------
    findings : polars.DataFrame
        In the shape of `stateanalytics.core.schema.FINDINGS`.

    Returns
    -------
    polars.DataFrame
        In the same shape, each kind where its first stood. ``source``, ``system``,
        ``entity_type`` and ``entity_id`` are null where several were folded; ``example``
        is the first that is known.

    Examples
    --------
    >>> rows = pl.DataFrame({"entity_type": ["session"] * 3, "entity_id": ["c", "a", "b"]})
    >>> findings = per_entity(rows, "a.db", "a_system", "end.missing", "info", message="-")
    >>> folded(findings).select("entity_type", "entity_id", "n_rows").rows()
    [('session', None, 3)]
    """
    entity = ("source", "system", "entity_type", "entity_id")
    alike = [
        name
        for name in schema.FINDINGS.dtypes.names()
        if name not in (*entity, "n_rows", "example")
    ]
    return schema.FINDINGS.conform(
        findings.group_by(alike, maintain_order=True).agg(
            *(
                pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first()).alias(name)
                for name in entity
            ),
            pl.col("n_rows").fill_null(1).sum(),
            pl.col("example").drop_nulls().first(),
        )
    )


def _text(value: str | pl.Expr | None) -> pl.Expr:
    return value.cast(pl.String) if isinstance(value, pl.Expr) else pl.lit(value, pl.String)

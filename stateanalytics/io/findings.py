"""Rows of `findings`: one problem each, few enough to read; those about a whole store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import pool
from stateanalytics.io.cells import shown
from stateanalytics.io.sqlite import Store

MAX_ROWS_PER_CODE = 1000
MAX_EXAMPLE = 200

OF_POOLING = (
    *("source.named_twice", "source.same_content", "source.same_work", "source.ids_collide"),
    *("time.future", "time.after_as_of", "time.not_recorded"),
)
"""Codes added when inputs are pooled at an instant; all others concern one input."""


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
    """One finding about several rows or a file; no finding about zero rows.

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
    """Findings as of `counted`, for several sources at once.

    Parameters
    ----------
    rows : polars.DataFrame, shape (n_findings, >= 2)
        ``source``, ``n_rows``, and the columns of the expressions.
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
    """One finding per entity; beyond ``max_rows`` the others become one counted finding.

    Parameters
    ----------
    rows : polars.DataFrame, shape (n_entities, >= 2)
        ``entity_type``, ``entity_id``, and the columns of the expressions.
    source : str or polars.Expr
        One source for all rows, or ``pl.col("source")``.
    system, code, severity, table, action : str
        As in `stateanalytics.core.schema.FINDINGS`.
    message, column, example : str or polars.Expr
        A text for all, or an expression over ``rows``.
    max_rows : int
        Number of entities of a source with a row of their own.

    Returns
    -------
    polars.DataFrame, shape (min(n_entities, max_rows) + 1 or less, 12)
        Ordered by source and entity, whatever the order of ``rows``.

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
        # The bound holds for each source by itself.
        findings_of_source = partial(
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
        findings = [findings_of_source(part, name) for (name,), part in sources.items()]
        return pool(findings, schema.FINDINGS)
    key = [*([] if isinstance(source, str) else ["source"]), "entity_type", "entity_id"]
    # The first by name: the list must not depend on the order of rows.
    first = rows.sort(key) if few else rows.bottom_k(max_rows, by=key).sort(key)
    listed = first.select(
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
        f"{rows.height - first.height} more entities with the same problem, not listed one by one",
        n_rows=rows.height - first.height,
        table=table,
        column=column if isinstance(column, str) else None,
        action=action,
    )
    return schema.FINDINGS.conform(pl.concat([listed, rest]))


def folded(findings: pl.DataFrame) -> pl.DataFrame:
    """Findings grouped into one where only the entity and the example differ, rows summed.

    Parameters
    ----------
    findings : polars.DataFrame
        In the shape of `stateanalytics.core.schema.FINDINGS`.

    Returns
    -------
    polars.DataFrame
        In the same shape, in order of first appearance. ``source``, ``system``,
        ``entity_type`` and ``entity_id`` are null where they differ within a group;
        ``example`` is the first that is not null.

    Examples
    --------
    >>> rows = pl.DataFrame({"entity_type": ["session"] * 3, "entity_id": ["c", "a", "b"]})
    >>> findings = per_entity(rows, "a.db", "a_system", "end.missing", "info", message="-")
    >>> folded(findings).select("entity_type", "entity_id", "n_rows").rows()
    [('session', None, 3)]
    """
    entity = ("source", "system", "entity_type", "entity_id")
    same = [
        name
        for name in schema.FINDINGS.dtypes.names()
        if name not in (*entity, "n_rows", "example")
    ]
    return schema.FINDINGS.conform(
        findings.group_by(same, maintain_order=True).agg(
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


PREFIX = "salvage."
"""Prefix of the code of every finding about a loss."""


def loss_findings(losses: Mapping[str, Any], label: str, *, system: str) -> pl.DataFrame:
    """Findings about what was lost of a store, one per table and kind of loss.

    Parameters
    ----------
    losses : mapping
        What `sqlite.salvage` reported; empty for a whole store.
    label, system : str
        The input and its system.

    Returns
    -------
    polars.DataFrame
        In the shape of `schema.FINDINGS`: ``salvage.truncated``, ``salvage.log_lost``,
        ``salvage.definitions_lost``, ``salvage.rows_lost`` and ``salvage.rows_unclaimed``
        are errors; ``salvage.unverified`` is about what cannot be checked. ``n_rows`` is null
        where the number is not known.
    """
    return pool(
        [counted(label, system, **loss) for loss in _losses(losses)] if losses else [],
        schema.FINDINGS,
    )


def _losses(losses: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if missing := losses["n_bytes_missing"]:
        yield _loss(
            "truncated",
            f"the file ends early: its last {missing:,} bytes "
            f"({-(-missing // losses['page_size']):,} pages) are missing",
        )
    for note in losses["notes"]:
        yield _loss("log_lost", note)
    if n_pages := losses["n_definition_pages"]:
        yield _loss(
            "definitions_lost",
            f"{n_pages} page{'s' if n_pages > 1 else ''} that define tables cannot be read, so "
            "tables may be missing altogether",
        )
    if names := losses["definitions_refused"]:
        yield _loss(
            "definitions_lost",
            f"{len(names)} definition{'s' if len(names) > 1 else ''} of tables cannot be read or "
            "would run something, so these tables are missing",
            example=", ".join(names),
        )
    for table in losses["tables"]:
        if table["n_ranges"] or table["n_lost"]:
            yield _lost_rows(table)
        if n_rows := table["n_unclaimed"]:
            yield _loss(
                "rows_unclaimed",
                f"pages of {table['table']} lead to {n_rows:,} more rows than can be its own: "
                "its definition or its indexes contradict them, or another table claims them",
                n_rows=n_rows,
                table=table["table"],
            )
    if n_rows := losses["n_unclaimed"]:
        yield _loss(
            "rows_unclaimed",
            "rows on pages that no table leads to, which fit no table or several",
            n_rows=n_rows,
        )
    yield {
        "code": f"{PREFIX}unverified",
        "severity": "info",
        "message": "rows were read without their indexes; a text on several pages may hold bytes "
        "of a damaged page, which the file cannot show",
        "n_rows": sum(table["n_read"] for table in losses["tables"]),
        "action": "kept",
    }


def _lost_rows(table: Mapping[str, Any]) -> dict[str, Any]:
    n_lost, n_read = table["n_lost"], table["n_read"]
    how_many = "an unknown number of rows" if n_lost is None else f"about {n_lost:,}"
    n_more = table["n_ranges"] - 1
    more = f" and {n_more:,} more range{'s' if n_more > 1 else ''}" if n_more else ""
    return _loss(
        "rows_lost",
        f"of {table['table']} {how_many} cannot be read; {n_read:,} were",
        n_rows=n_lost,
        table=table["table"],
        example=_shown(table["ranges"][0]) + more if table["ranges"] else None,
    )


def _shown(lost: Mapping[str, Any]) -> str:
    rows = (
        f"row number {lost['first']}"
        if lost["first"] == lost["last"]
        else f"row numbers {_bound(lost['first'])} to {_bound(lost['last'])}"
    )
    return rows if lost["page"] is None else f"{rows} (page {lost['page']})"


def _bound(rowid: int) -> str:
    return "?" if abs(rowid) >= 2**62 else str(rowid)


def _loss(code: str, message: str, **more: Any) -> dict[str, Any]:
    return {
        "code": PREFIX + code,
        "severity": "error",
        "message": message,
        "action": "excluded from everything below",
        **more,
    }


def findings_of_store(store: Store, *, system: str) -> pl.DataFrame:
    """Findings about lost rows, names that cannot be read, and pages that were not checked.

    Parameters
    ----------
    store : Store
        An open store; its check is waited for.
    system : str
        The system that wrote it.

    Returns
    -------
    polars.DataFrame
        In the shape of `schema.FINDINGS`.
    """
    names = [
        counted(
            store.label,
            system,
            "table.illegible_name",
            "warning",
            "the name of a table or column is not UTF-8",
            example=shown(name),
            action="not read",
        )
        for name in store.illegible
    ]
    unchecked = [
        counted(
            store.label,
            system,
            "table.not_checked",
            "info",
            "looking for damaged pages took too long"
            if table == "*"
            else "what the store computes was not run to look for damaged pages",
            table=None if table == "*" else table,
            action="read as it is",
        )
        for table in store.unchecked()
    ]
    lost = loss_findings(store.losses, store.label, system=system)
    return pool([lost, *names, *unchecked], schema.FINDINGS)

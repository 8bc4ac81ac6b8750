"""Rows of `findings`: one problem each, few enough to read; those about a whole store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Annotated, Any, NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import pool
from stateanalytics.core.package_tables import package_table
from stateanalytics.core.words import count
from stateanalytics.io.cells import shown
from stateanalytics.io.sqlite import Store

_HERE = "stateanalytics.io"
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


class Texts(NamedTuple):
    """What is the same in each finding of a code; braces stand for values."""

    code: str
    severity: Annotated[str, schema.FINDING_SEVERITIES]
    message: str
    column: str | None
    action: str | None
    table: str | None = None
    entity_type: str | None = None
    example: str | None = None


@cache
def texts_of(package: str) -> dict[str, Texts]:
    """Those of each code in ``data/findings.csv`` of a package.

    They are not read by a process of its own, which has no package to look in.
    """
    return {row.code: row for row in package_table(package, "findings.csv", Texts)}


def noted(
    source: str, system: str, code: str, *values: object, package: str = _HERE, **more: Any
) -> pl.DataFrame:
    """A finding as of `counted`, with the texts of its code in a package."""
    texts = texts_of(package)[code]
    message = texts.message.format(*values) if values else texts.message
    same = {name: getattr(texts, name) for name in ("severity", "table", "column", "action")}
    return counted(source, system, code, **{"message": message, **same, **more})


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


def noted_rows(
    rows: pl.DataFrame, system: str, code: str, *, package: str, message: str = "", **more: Any
) -> pl.DataFrame:
    """Findings as of `rows_counted`, with the texts of their code in a package."""
    texts = texts_of(package)[code]
    same = {"table": texts.table, "column": texts.column, "action": texts.action, **more}
    return rows_counted(rows, system, code, texts.severity, message or texts.message, **same)


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
    given: dict[str, Any] = {
        **{"severity": severity, "message": message, "table": table, "column": column},
        **{"example": example, "action": action},
    }
    if isinstance(source, pl.Expr) and not few:
        # The bound holds for each source by itself.
        parts = rows.sort("source").partition_by("source", as_dict=True, maintain_order=True)
        findings = (
            per_entity(part, name, system, code, max_rows=max_rows, **given)
            for (name,), part in parts.items()
        )
        return all_findings(*findings)
    key = [*([] if isinstance(source, str) else ["source"]), "entity_type", "entity_id"]
    # The first by name: the list must not depend on the order of rows.
    first = rows.sort(key) if few else rows.bottom_k(max_rows, by=key).sort(key)
    texts = {
        name: _text(value) for name, value in {"source": source, "code": code, **given}.items()
    }
    texts["example"] = _text(example).str.slice(0, MAX_EXAMPLE)
    listed = schema.FINDINGS.conform(
        first.select("entity_type", "entity_id", system=_text(system), n_rows=pl.lit(1), **texts)
    )
    if isinstance(source, pl.Expr) or few:
        return listed
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
    return pl.concat([listed, rest])


def noted_entities(
    rows: pl.DataFrame,
    source: str | pl.Expr,
    system: str,
    code: str,
    *,
    package: str = _HERE,
    **more: Any,
) -> pl.DataFrame:
    """Findings as of `per_entity`, with the texts of their code in a package.

    ``{column}`` in a text is filled from its row. ``entity_type`` is a column of ``rows`` where
    the code has none.
    """
    if rows.is_empty():
        return schema.FINDINGS.empty()
    texts = texts_of(package)[code]._asdict() | more
    if entity_type := texts.pop("entity_type"):
        rows = rows.with_columns(entity_type=pl.lit(entity_type))
    filled = {part: _filled(text) for part, text in texts.items() if part != "code"}
    return per_entity(rows, source, system, code, **filled)


def _filled(text: Any) -> Any:
    """A text as an expression where it names columns in braces."""
    columns = re.findall(r"\{(\w+)\}", text) if isinstance(text, str) else []
    return pl.format(re.sub(r"\{\w+\}", "{}", text), *columns) if columns else text


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


def all_findings(*findings: pl.DataFrame) -> pl.DataFrame:
    """Findings below one another, in the shape of the schema."""
    return pool(findings, schema.FINDINGS)


def _text(value: str | pl.Expr | None) -> pl.Expr:
    return value.cast(pl.String) if isinstance(value, pl.Expr) else pl.lit(value, pl.String)


def _losses(
    losses: Mapping[str, Any], found: Callable[..., pl.DataFrame]
) -> Iterator[pl.DataFrame]:
    """What `sqlite.salvage` reported as lost, one finding a table and kind of loss."""
    if missing := losses["n_bytes_missing"]:
        yield found("salvage.truncated", missing, -(-missing // losses["page_size"]))
    for note in losses["notes"]:
        yield found("salvage.log_lost", note)
    if n_pages := losses["n_definition_pages"]:
        message = count(n_pages, "page that defines", "pages that define")
        message += " tables cannot be read, so tables may be missing altogether"
        yield found("salvage.definitions_lost", message)
    if names := losses["definitions_refused"]:
        message = f"{count(len(names), 'definition')} of tables cannot be read or would run "
        message += "something, so these tables are missing"
        yield found("salvage.definitions_lost", message, example=", ".join(names))
    for table in losses["tables"]:
        name, n_lost = table["table"], table["n_lost"]
        if table["n_ranges"] or n_lost:
            how_many = "an unknown number of rows" if n_lost is None else f"about {n_lost:,}"
            n_more = table["n_ranges"] - 1
            more = f" and {n_more:,} more range{'s' if n_more > 1 else ''}" if n_more else ""
            example = _shown(table["ranges"][0]) + more if table["ranges"] else None
            numbers = (name, how_many, table["n_read"])
            yield found("salvage.rows_lost", *numbers, n_rows=n_lost, table=name, example=example)
        if n_rows := table["n_unclaimed"]:
            message = _CONTRADICTED.format(name, n_rows)
            yield found("salvage.rows_unclaimed", message, n_rows=n_rows, table=name)
    if n_rows := losses["n_unclaimed"]:
        message = "rows on pages that no table leads to, which fit no table or several"
        yield found("salvage.rows_unclaimed", message, n_rows=n_rows)
    yield found("salvage.unverified", n_rows=sum(table["n_read"] for table in losses["tables"]))


_CONTRADICTED = (
    "pages of {} lead to {:,} more rows than can be its own: "
    "its definition or its indexes contradict them, or another table claims them"
)


def _shown(lost: Mapping[str, Any]) -> str:
    first, last = ("?" if abs(lost[end]) >= 2**62 else lost[end] for end in ("first", "last"))
    rows = f"row numbers {first} to {last}"
    if lost["first"] == lost["last"]:
        rows = f"row number {lost['first']}"
    return rows if lost["page"] is None else f"{rows} (page {lost['page']})"


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
    found = partial(noted, store.label, system)
    lost = _losses(store.losses, found) if store.losses else ()
    names = [found("table.illegible_name", example=shown(name)) for name in store.illegible]
    late = {"message": "looking for damaged pages took too long"}
    unchecked = [
        found("table.not_checked", **late if name == "*" else {"table": name})
        for name in store.unchecked()
    ]
    return all_findings(*lost, *names, *unchecked)

"""Situations of work as a table: what each means in ADR-0033's terms, and why it holds.

A system names the situation of each row; ``data/situations.csv`` of its package says the
rest: the four axes, and a reason. In its text ``{cause}`` is the row's own; a health of
``rules`` is left to the shared rules, as it depends on the instant.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.package_tables import read_table
from stateanalytics.systems.recorded import add_axes, add_reasons, evidence, numbered

BY_RULES = "rules"
_AXES = ("lifecycle", "outcome", "health", "delivery", "delivery_without_output")
_WHY = ("dimension", "code", "message", "claim", "confidence", "is_quoted")
_ALIKE = ("whys", "cause", "error_message", "detail")
_KEY = schema.ENTITY_KEY


class Situation(NamedTuple):
    """A row of ``data/situations.csv``; see `situations_from_csv`."""

    situation: str
    lifecycle: Annotated[str, schema.LIFECYCLES] | None
    outcome: Annotated[str, schema.OUTCOMES] | None
    health: Annotated[str, (*schema.HEALTHS, schema.NO_WORD, BY_RULES)] | None
    delivery: Annotated[str, (*schema.DELIVERIES, schema.NO_WORD)] | None
    delivery_without_output: Annotated[str, schema.DELIVERIES] | None
    dimension: Annotated[str, schema.DIMENSIONS] | None
    code: str | None
    message: str | None
    claim: Annotated[str, schema.CLAIM_STATUSES] | None
    confidence: float | None
    is_quoted: bool


def situations_from_csv(package: str) -> pl.DataFrame:
    """The table of a package, one row a situation.

    Parameters
    ----------
    package : str
        The package with ``data/situations.csv``.

    Returns
    -------
    polars.DataFrame
        ``situation``, four axes, ``delivery_without_output`` where that differs, and of its
        reason the ``dimension``, ``code``, ``message``, ``claim`` and ``confidence``;
        ``is_quoted``: the words of the error are the message, where there are any.
    """
    dtypes = {name: pl.String() for name in Situation._fields}
    typed = {**dtypes, "confidence": pl.Float64(), "is_quoted": pl.Boolean()}
    return pl.DataFrame(read_table(package, "situations.csv", Situation), typed, orient="row")


def add_situations(
    entities: pl.DataFrame, works: pl.DataFrame, table: pl.DataFrame, also: pl.Expr
) -> pl.DataFrame:
    """Add to entities what their situations mean, and why they hold.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.
    works : polars.DataFrame
        One row an entity: its key, ``situation``, ``has_output``, ``cause``,
        ``error_message``, ``detail`` (of the evidence), and further columns of ``entities``.
    table : polars.DataFrame
        From `situations_from_csv`.
    also : polars.Expr
        A list of further situations, whose reasons hold as well.
    """
    meant = works.join(
        table.select("situation", *_AXES), on="situation", how="left", maintain_order="left"
    )
    empty = pl.when(~pl.col("has_output").fill_null(value=True)).then("delivery_without_output")
    is_judged = pl.col("health").fill_null("") == BY_RULES
    axes = add_axes(
        meant.with_columns(delivery=pl.coalesce(empty, "delivery")), *_AXES[:4]
    ).with_columns(recorded_health=pl.when(~is_judged).then("recorded_health"))
    # Thousands of calls went alike: why is put in words once for all of them.
    whys = pl.concat_list("situation", also).list.drop_nulls().list.join(" ")
    known = axes.with_columns(whys=whys)
    alike = known.select(_ALIKE).unique(maintain_order=True).with_row_index("entity_id")
    said = _said(alike.with_columns(pl.col("entity_id").cast(pl.String)), table)
    joined = known.join(said, on=_ALIKE, how="left", nulls_equal=True, maintain_order="left")
    is_over = pl.when(pl.col("recorded_outcome").is_not_null())
    told = joined.with_columns(
        is_over.then(name).alias(name) for name in ("reason_code", "evidence")
    )
    return _beside(entities, told.select(name for name in told.columns if name in entities.columns))


def _said(alike: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """Works that are alike, with their reasons as columns of entities."""
    rows = alike.with_columns(pl.lit("").alias(name) for name in _KEY if name != "entity_id")
    over = rows.select(*_KEY, recorded_outcome=pl.lit("any"))
    told = with_recorded(schema.ENTITIES.conform(over), over, _reasons(rows, table))
    columns = ("recorded_reasons", "recorded_reason_codes", "reason_code", "evidence")
    return rows.select(_ALIKE).hstack(told.select(columns))


def _reasons(works: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """Why each situation holds, its own reason first, in the shape of `schema.REASONS`."""
    whys = table.filter(pl.col("code").is_not_null()).select(*_WHY, why="situation")
    rows = (
        works.with_columns(why=pl.col("whys").str.split(" "))
        .explode("why")
        .join(whys, on="why", how="inner", maintain_order="left")
    )
    said = pl.when("is_quoted").then(pl.coalesce("error_message", "message")).otherwise("message")
    cause = pl.col("cause").fill_null("unknown")
    return numbered(
        rows.select(
            *_KEY,
            "dimension",
            "confidence",
            place=pl.lit(0),
            code=pl.col("code").str.replace("{cause}", cause, literal=True),
            message=said,
            claim_status="claim",
            evidence=evidence(pl.lit("rule"), pl.col("why"), pl.coalesce("detail", "message")),
        ),
        _KEY,
    )


def with_recorded(
    entities: pl.DataFrame, axes: pl.DataFrame, reasons: pl.DataFrame
) -> pl.DataFrame:
    """Entities with what their system knows of their states, and the code of what ended them.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.
    axes : polars.DataFrame
        The key of entities, and columns that go in place of theirs.
    reasons : polars.DataFrame
        In the shape of `schema.REASONS`.
    """
    key = list(_KEY)
    ends = (
        reasons.filter(pl.col("dimension") == "lifecycle")
        .sort("order")
        .unique(key, keep="first", maintain_order=True)
        .select(*key, code="code", why="evidence")
    )
    is_over = pl.when(pl.col("recorded_outcome").is_not_null())
    known = {"recorded_outcome"} - set(axes.columns)
    beside = entities.select(*key, *known)
    for told in (axes, ends):
        beside = beside.join(told, on=key, how="left", maintain_order="left")
    told = add_reasons(beside, reasons).with_columns(
        reason_code=is_over.then("code"), evidence=is_over.then("why")
    )
    return _beside(entities, told.drop("code", "why"))


def _beside(entities: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """Entities with columns in place of theirs; joined to their keys alone, as there are many."""
    first = told.unique(_KEY, keep="first", maintain_order=True)
    columns = entities.select(_KEY).join(first, on=_KEY, how="left", maintain_order="left")
    return schema.ENTITIES.conform(entities.with_columns(columns.drop(_KEY)))

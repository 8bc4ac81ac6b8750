"""What a system knows of its entities' states, in the canonical columns that rules read."""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema

_KEY = list(schema.ENTITY_KEY)


def add_axes(
    entities: pl.DataFrame, lifecycle: str, outcome: str, health: str, delivery: str
) -> pl.DataFrame:
    """Add the ``recorded_`` axes from columns in ADR-0033's words.

    Parameters
    ----------
    entities : polars.DataFrame
        One row an entity.
    lifecycle, outcome, health, delivery : str
        Columns; null: it does not apply. Without a lifecycle nothing is known: *unknown*.

    Examples
    --------
    >>> rows = pl.DataFrame({"a": ["failed", None], "b": ["failed", None], "c": ["ok", None]})
    >>> add_axes(rows.with_columns(d=None), "a", "b", "c", "d").select(
    ...     "recorded_lifecycle", "recorded_outcome", "recorded_health").rows()
    [('failed', 'failed', 'ok'), ('unknown', 'unknown', 'none')]
    """
    unknown, none = pl.lit("unknown"), pl.lit(schema.NO_WORD)
    return entities.with_columns(
        recorded_lifecycle=pl.coalesce(lifecycle, unknown),
        recorded_outcome=pl.when(pl.col(lifecycle).is_null()).then(unknown).otherwise(outcome),
        recorded_health=pl.coalesce(health, none),
        recorded_delivery=pl.coalesce(delivery, none),
    )


def add_reasons(entities: pl.DataFrame, reasons: pl.DataFrame) -> pl.DataFrame:
    """Add ``recorded_reasons`` and their codes from rows in the shape of `schema.REASONS`.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.
    reasons : polars.DataFrame
        In the shape of `schema.REASONS`, most direct first within an entity.
    """
    texts = reasons.with_columns(pl.col("dimension", "claim_status").cast(pl.String))
    by_entity = (
        texts.sort("order", maintain_order=True)
        .with_columns(reason=pl.struct(schema.RECORDED_REASON).struct.json_encode())
        .group_by(_KEY)
        .agg(
            codes=pl.col("code").str.join(schema.CODE_SEPARATOR),
            listed=pl.col("reason").str.join(","),
        )
        .with_columns(listed=pl.format("[{}]", "listed"))
    )
    joined = entities.join(by_entity, on=_KEY, how="left", maintain_order="left")
    return joined.with_columns(recorded_reason_codes="codes", recorded_reasons="listed").drop(
        "codes", "listed"
    )

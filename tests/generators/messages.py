"""Failure messages with known templates: what a miner of templates is judged by."""

from __future__ import annotations

import polars as pl

from tests.generators import draws
from tests.generators.failure_corpus import HOLE, holes
from tests.generators.templates import BY_ID, TEMPLATES, Template


def add_messages(rows: pl.DataFrame, *, seed: int) -> pl.DataFrame:
    """Add ``message``: the text of each row's ``template_id``, holes filled; null without one."""
    filled = holes(pl.col("row"), seed)
    parts = [
        part.with_columns(message=_text(BY_ID.get(template_id), filled))
        for (template_id,), part in rows.partition_by(
            "template_id", as_dict=True, maintain_order=True
        ).items()
    ]
    if not parts:
        return rows.with_columns(message=pl.lit(None, dtype=pl.String))
    return pl.concat(parts).sort("row")


def failure_messages(n_messages: int, *, seed: int = 0) -> pl.DataFrame:
    """Failure messages, each with its ``template_id``, ``pattern``, ``reason_code`` and ``cause``.

    Templates are drawn unevenly: the k-th about in proportion to 1/k, as failures are.
    """
    row = pl.col("row")
    shares = {template.template_id: 1.0 / rank for rank, template in enumerate(TEMPLATES, 1)}
    truth = pl.DataFrame(
        {
            "template_id": [template.template_id for template in TEMPLATES],
            "pattern": [template.pattern for template in TEMPLATES],
            "reason_code": [template.reason_code for template in TEMPLATES],
            "cause": [template.cause for template in TEMPLATES],
        }
    )
    return (
        pl.select(row=pl.int_range(n_messages, dtype=pl.UInt64))
        .with_columns(template_id=draws.weighted(row, seed, "template", shares))
        .pipe(add_messages, seed=seed)
        .join(truth, on="template_id", how="left", maintain_order="left")
        .select("message", "template_id", "pattern", "reason_code", "cause")
    )


def _text(template: Template | None, filled: dict[str, pl.Expr]) -> pl.Expr:
    if template is None:
        return pl.lit(None, dtype=pl.String)
    if not template.holes:
        return pl.lit(template.text)
    return pl.format(HOLE.sub("{}", template.text), *(filled[name] for name in template.holes))

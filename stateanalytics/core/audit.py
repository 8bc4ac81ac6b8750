"""Shared by the checks of the audit: their codes, the rows they read and the rows they return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, TypeVar

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import deduplicated, left_join
from stateanalytics.core.package_tables import package_table

PREFIX = "audit."


@dataclass(frozen=True)
class Code:
    """One kind of audit row.

    Attributes
    ----------
    code : str
        Stable; begins with `PREFIX`.
    severity : str
        ``warning``: two records that cannot both be true. ``info``: an
        exception that the data themselves explain.
    message : str
        The contradiction in words.
    what_to_do : str
        The operator's next step.
    """

    code: str
    severity: Annotated[str, schema.FINDING_SEVERITIES]
    message: str
    what_to_do: str


CODES: Mapping[str, Code] = {
    code.code: code for code in package_table("stateanalytics.core", "audit_codes.csv", Code)
}
"""Every code, in the order in which rows of one severity stand."""

_JUDGED = ("lifecycle", "outcome", "health", "is_terminal", "is_legacy", "age_s", "silence_s")


@dataclass(frozen=True)
class Cases:
    """The facts, states and policy that are audited.

    Attributes
    ----------
    facts : Facts
        Everything that was read.
    states : polars.DataFrame
        ``schema.STATES`` of these facts under the policy.
    policy : Policy
        Of `state.policy`; its thresholds define silence.
    """

    facts: Facts
    states: pl.DataFrame
    policy: Any

    @property
    def plan(self) -> pl.LazyFrame:
        """The `rows` as a lazy plan, for checks that filter and join."""
        return self.rows.lazy()

    @cached_property
    def rows(self) -> pl.DataFrame:
        """One row per entity, with the columns of its state."""
        judged = self.states.select(
            *schema.ENTITY_KEY,
            *(
                pl.col(name).cast(pl.String) if name in ("lifecycle", "outcome", "health") else name
                for name in _JUDGED
            ),
        )
        return left_join(deduplicated(self.facts.entities), deduplicated(judged)).with_columns(
            # Null means not known, which contradicts nothing, so it counts as false.
            is_open=(~pl.col("is_terminal") & ~pl.col("is_legacy")).fill_null(value=False),
            is_over=(pl.col("is_terminal") & ~pl.col("is_legacy")).fill_null(value=False),
        )


Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)


def audit_rows(
    rows: Rows,
    code: str,
    says: pl.Expr,
    against: pl.Expr,
    at: pl.Expr | str | None = None,
    *,
    severity: pl.Expr | None = None,
) -> Rows:
    """Rows of the audit, each with both sides of a contradiction in words.

    Parameters
    ----------
    rows : polars.DataFrame or LazyFrame
        With the columns of the entity key.
    code : str
        A key of `CODES`.
    says, against : polars.Expr
        The two sides of the evidence, as text.
    at : polars.Expr or str, optional
        When it happened; null where nobody knows.
    severity : polars.Expr, optional
        Replaces the severity of the code.

    Returns
    -------
    polars.DataFrame or LazyFrame
        ``schema.AUDIT``.
    """
    about = CODES[code]
    columns = {
        "code": pl.lit(code),
        "severity": pl.lit(about.severity) if severity is None else severity,
        "at": pl.lit(None) if at is None else pl.col(at) if isinstance(at, str) else at,
        "says": says,
        "against": against,
        "message": pl.lit(about.message),
        "what_to_do": pl.lit(about.what_to_do),
    }
    dtypes = schema.AUDIT.dtypes
    typed = {name: column.cast(dtypes[name]) for name, column in columns.items()}
    # polars cannot slice texts whose first chunk is empty, as after a shift.
    whole = (
        rows.rechunk() if isinstance(rows, pl.DataFrame) else rows.map_batches(pl.DataFrame.rechunk)
    )
    return whole.select(*schema.ENTITY_KEY, **typed)


def family(rows: pl.LazyFrame, parent: str, child: str, column: str) -> pl.LazyFrame:
    """Parents with children here, the number of open ones, and when the last one ended.

    Parameters
    ----------
    rows : polars.LazyFrame
        `Cases.plan`.
    parent, child : str
        Entity types.
    column : str
        The child's column that names the parent.
    """
    children = (
        rows.filter(pl.col("entity_type") == child, pl.col(column).is_not_null())
        .group_by("source", "system", entity_id=column)
        .agg(
            n_here=pl.len(),
            n_open=pl.col("is_open").sum(),
            n_legacy=(~pl.col("is_open") & ~pl.col("is_over")).sum(),
            last_end_at=pl.max_horizontal("ended_at", "last_activity_at").max(),
        )
    )
    return (
        rows.filter(pl.col("entity_type") == parent)
        .join(children, on=["source", "system", "entity_id"], maintain_order="left")
        .with_columns(n_children="n_here")
    )


def moment(column: str) -> pl.Expr:
    """A moment in words, to the second."""
    return pl.col(column).dt.strftime("%Y-%m-%d %H:%M:%S UTC").fill_null("no time")


def word(column: str) -> pl.Expr:
    """A stored word in quotes; the word *nothing* where none was stored."""
    quoted = pl.format("'{}'", pl.col(column).cast(pl.String).str.slice(0, 200))
    return pl.when(pl.col(column).is_null()).then(pl.lit("nothing")).otherwise(quoted)

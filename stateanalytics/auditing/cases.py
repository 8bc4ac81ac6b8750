"""The rows that the checks of the audit share, and the shape that they answer in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from stateanalytics.auditing.codes import CODES
from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.state.policy import Policy

_JUDGED = (
    "lifecycle",
    "outcome",
    "health",
    "is_terminal",
    "is_legacy",
    "age_s",
    "silence_s",
)


@dataclass(frozen=True)
class Cases:
    """What is audited.

    Attributes
    ----------
    facts : Facts
        Everything that was read.
    states : polars.DataFrame
        ``schema.STATES`` of these facts under the policy.
    policy : Policy
        Whose thresholds say what silence is.
    """

    facts: Facts
    states: pl.DataFrame
    policy: Policy

    @cached_property
    def rows(self) -> pl.DataFrame:
        """Each entity once, with what its state says about it."""
        judged = self.states.select(
            *schema.ENTITY_KEY,
            *(
                pl.col(name).cast(pl.String) if name in ("lifecycle", "outcome", "health") else name
                for name in _JUDGED
            ),
        ).unique(schema.ENTITY_KEY, keep="first")
        once = self.facts.entities.unique(schema.ENTITY_KEY, keep="first", maintain_order=True)
        return once.join(judged, on=schema.ENTITY_KEY, how="left").with_columns(
            # Null is not known, and what is not known contradicts nothing.
            is_open=(~pl.col("is_terminal") & ~pl.col("is_legacy")).fill_null(value=False),
            is_over=(pl.col("is_terminal") & ~pl.col("is_legacy")).fill_null(value=False),
        )

    def of_system(self, system: str) -> pl.DataFrame:
        """The rows of one system."""
        return self.rows.filter(pl.col("system") == system)


def told(
    rows: pl.DataFrame,
    code: str,
    *,
    says: pl.Expr,
    against: pl.Expr,
    at: pl.Expr | str | None = None,
    severity: pl.Expr | None = None,
) -> pl.DataFrame:
    """Rows of the audit: who contradicts what, each side in words.

    Parameters
    ----------
    rows : polars.DataFrame
        With the columns of the entity key.
    code : str
        One of `codes.CODES`.
    says, against : polars.Expr
        The two sides of the evidence, as text.
    at : polars.Expr or str, optional
        When it happened; null where nobody knows.
    severity : polars.Expr, optional
        In place of the code's own.

    Returns
    -------
    polars.DataFrame
        ``schema.AUDIT``.
    """
    about = CODES[code]
    moment = pl.lit(None, schema.MOMENT) if at is None else at
    return schema.AUDIT.conform(
        rows.select(
            *schema.ENTITY_KEY,
            code=pl.lit(code),
            severity=pl.lit(about.severity) if severity is None else severity,
            at=moment,
            says=says,
            against=against,
            message=pl.lit(about.message),
            what_to_do=pl.lit(about.what_to_do),
        )
    )


def moment(column: str) -> pl.Expr:
    """A moment in words, to the second."""
    return pl.col(column).dt.strftime("%Y-%m-%d %H:%M:%S UTC").fill_null("no time")


def word(column: str) -> pl.Expr:
    """A stored word as it is, in quotes; what was not stored is said."""
    quoted = pl.format("'{}'", pl.col(column).cast(pl.String).str.slice(0, 200))
    return pl.when(pl.col(column).is_null()).then(pl.lit("nothing")).otherwise(quoted)


def spell(seconds: pl.Expr) -> pl.Expr:
    """Seconds in words: hours from one hour on, minutes below."""
    whole = seconds.round(0).cast(pl.Int64)
    return (
        pl.when(seconds.is_null())
        .then(pl.lit("an unknown time"))
        .when(seconds.abs() < 120)
        .then(pl.format("{} s", whole))
        .when(seconds.abs() < 7200)
        .then(pl.format("{} min", whole // 60))
        .otherwise(pl.format("{} h {} min", whole // 3600, whole % 3600 // 60))
    )

"""What the checks of the audit share: their codes, their rows, and the shape they answer in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts

PREFIX = "audit."


@dataclass(frozen=True)
class Code:
    """One kind of audit row.

    Attributes
    ----------
    code : str
        Stable; begins with `PREFIX`.
    severity : str
        ``warning``: two things that the data say cannot both be true. ``info``: an
        exception that the data themselves explain.
    message : str
        The contradiction in words.
    what_to_do : str
        The operator's next step.
    """

    code: str
    severity: str
    message: str
    what_to_do: str


_ALL = (
    Code(
        "audit.transition_illegal",
        "warning",
        "a change of status that its lifecycle does not declare",
        "find the writer that goes around the lifecycle service; trust neither status until then",
    ),
    Code(
        "audit.transition_illegal_before_0_28",
        "info",
        "a terminal status was left before its system began to refuse that",
        "nothing to repair; count the entity by its last status",
    ),
    Code(
        "audit.transition_override",
        "info",
        "a terminal status was left on purpose, with a justification",
        "check who asked for it; durations across it hold the pause too",
    ),
    Code(
        "audit.transition_unknown_status",
        "warning",
        "a change from or to a word outside the vocabulary",
        "look up which release or script wrote the word; map it with a policy's read_as",
    ),
    Code(
        "audit.history_gap",
        "warning",
        "a change does not begin where the one before it ended",
        "a change was written around the history: durations in this status are not reliable",
    ),
    Code(
        "audit.status_differs_from_history",
        "warning",
        "the row has another status than the last change in its history",
        "somebody wrote the row without its history: repair it through the lifecycle service",
    ),
    Code(
        "audit.open_without_sign_of_life",
        "warning",
        "not over by its status, but without a sign of life",
        "look whether its process is alive; if not, let a reaper close it",
    ),
    Code(
        "audit.end_missing",
        "warning",
        "over by its status, but without a moment of its end",
        "its duration is not known; take the last sign of life as a lower bound",
    ),
    Code(
        "audit.end_before_start",
        "warning",
        "it ended before it started",
        "leave it out of durations; look for a second clock or a row that was reused",
    ),
    Code(
        "audit.end_while_open",
        "warning",
        "not over by its status, but with an end",
        "a writer died between two writes: look which is true before it is counted",
    ),
    Code(
        "audit.duration_differs",
        "warning",
        "the stored duration is not the distance from start to end",
        "use start and end; the stored figure counts something else or was written twice",
    ),
    Code(
        "audit.verdict_contradicts_reason",
        "warning",
        "the verdict about its outputs and the reason of its end exclude each other",
        "verify the outputs again; until then count it by its verdict",
    ),
    Code(
        "audit.verdict_contradicts_counts",
        "warning",
        "the verdict's word and its own list of missing outputs exclude each other",
        "verify the outputs again; the list is the evidence, the word is not",
    ),
    Code(
        "audit.reason_of_other_entity",
        "info",
        "a reason code from the domain of another entity type",
        "normal where a sweep closed it; group failures by code, not by domain",
    ),
    Code(
        "audit.reason_unknown",
        "info",
        "a reason code that its system does not know",
        "look up which release or script wrote it; it counts under its own name",
    ),
    Code(
        "audit.parent_contradicts_children",
        "warning",
        "no rule for rolling up its children gives the status it has",
        "look at the children: the parent was closed by something else, or too early",
    ),
    Code(
        "audit.rollups_disagree",
        "info",
        "the rules for rolling up its children give different answers",
        "name the rule with the number; worst_status is this toolkit's own",
    ),
    Code(
        "audit.parent_ended_before_children",
        "warning",
        "it is over, and something that belongs to it is not",
        "look whether the child still works; if not, close it",
    ),
    Code(
        "audit.parent_open_after_children",
        "warning",
        "everything that belongs to it has ended, and it is still open",
        "close it, or find out what it waits for",
    ),
    Code(
        "audit.disk_differs",
        "warning",
        "its files say something else than the store",
        "the files are written by the worker and win for shows and plays; import them again",
    ),
    Code(
        "audit.run_file_differs",
        "info",
        "its run directory says something else than the store",
        "the store wins: run.json is not written when a process is killed",
    ),
    Code(
        "audit.record_contradicts_itself",
        "warning",
        "two parts of one record exclude each other",
        "the axes count; the flat status is a cache of them",
    ),
    Code(
        "audit.record_contradicts_log",
        "warning",
        "its record and its log exclude each other",
        "the log is written once and counts; the record was written over",
    ),
    Code(
        "audit.ended_twice",
        "info",
        "more than one end was written",
        "the last end counts; work between the two ends was done after it was thought over",
    ),
    Code(
        "audit.success_was_blocked",
        "warning",
        "stored as a success, but a content filter stopped it",
        "count it as a failure: it has no answer",
    ),
    Code(
        "audit.stored_differs",
        "warning",
        "the store keeps a health, delivery or reason that its own facts do not give",
        "the recomputed one counts; find out which writer keeps the stored one up to date",
    ),
)

CODES = MappingProxyType({code.code: code for code in _ALL})
"""Every code, in the order in which rows of one severity stand."""

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
        Of `state.policy`; whose thresholds say what silence is.
    """

    facts: Facts
    states: pl.DataFrame
    policy: Any

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


def audit_rows(
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
        A key of `CODES`.
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


def family(rows: pl.DataFrame, parent: str, child: str, column: str) -> pl.DataFrame:
    """Parents that have children here, with how many are open and when the last one ended.

    Parameters
    ----------
    rows : polars.DataFrame
        `Cases.rows`.
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
        .join(children, on=["source", "system", "entity_id"], how="inner")
        .with_columns(n_children="n_here")
    )


def moment(column: str) -> pl.Expr:
    """A moment in words, to the second."""
    return pl.col(column).dt.strftime("%Y-%m-%d %H:%M:%S UTC").fill_null("no time")


def word(column: str) -> pl.Expr:
    """A stored word as it is, in quotes; what was not stored is said."""
    quoted = pl.format("'{}'", pl.col(column).cast(pl.String).str.slice(0, 200))
    return pl.when(pl.col(column).is_null()).then(pl.lit("nothing")).otherwise(quoted)

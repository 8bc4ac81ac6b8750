"""Histories of status: against the graph of their entity type, against themselves, their row."""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, told, word
from stateanalytics.systems import all_systems

_KEY = list(schema.ENTITY_KEY)
# The verdicts that are worth a row; the others are as they should be.
_TOLD = {
    "illegal": "audit.transition_illegal",
    "illegal_before_0_28": "audit.transition_illegal_before_0_28",
    "override": "audit.transition_override",
    "unknown": "audit.transition_unknown_status",
}


def judged_transitions(cases: Cases) -> pl.DataFrame:
    """The changes that a system can judge (`System.judge_transitions`), with ``verdict``."""
    there = set(cases.facts.transitions["system"].unique())
    judged = [
        known.judge_transitions(cases.facts)
        for known in all_systems()
        if known.judge_transitions is not None and known.name in there
    ]
    nothing = schema.TRANSITIONS.empty().with_columns(verdict=pl.lit(None, pl.String))
    return pl.concat([nothing, *judged], how="diagonal_relaxed")


def against_graphs(cases: Cases) -> pl.DataFrame:
    """Changes that the graph of their entity type does not declare."""
    judged = judged_transitions(cases)
    return pl.concat(
        told(
            judged.filter(pl.col("verdict") == verdict),
            code,
            at="at",
            says=pl.format("went from {} to {}", word("previous_status"), word("status")),
            against=pl.format(
                "{}, with reason {} by {}",
                pl.lit(_EXPECTED[verdict]),
                word("reason_code"),
                word("actor"),
            ),
        )
        for verdict, code in _TOLD.items()
    )


_EXPECTED = {
    "illegal": "the lifecycle has no such edge",
    "illegal_before_0_28": "nothing may follow a terminal status",
    "override": "nothing may follow a terminal status unless somebody overrides it",
    "unknown": "no status of that name is declared",
}


def against_themselves(cases: Cases) -> pl.DataFrame:
    """Changes that do not begin where the one before ended."""
    ordered = _ordered(cases).with_columns(
        before=pl.col("status").shift(1).over(_KEY), before_at=pl.col("at").shift(1).over(_KEY)
    )
    gaps = ordered.filter(
        pl.col("before").is_not_null(), pl.col("previous_status") != pl.col("before")
    )
    return told(
        gaps,
        "audit.history_gap",
        at="at",
        says=pl.format("a change from {} to {}", word("previous_status"), word("status")),
        against=pl.format("the change before it ended in {}", word("before")),
    )


def against_rows(cases: Cases) -> pl.DataFrame:
    """Rows whose status is another than the last one of their history."""
    last = _ordered(cases).group_by(_KEY).agg(pl.col("status", "at").last())
    both = cases.rows.join(last, on=_KEY, how="inner").filter(
        pl.col("raw_status").ne_missing(pl.col("status")),
        # A history that is not whole ends before the row does: a record that was written
        # later, by a kill for one, rightly says more.
        pl.col("system").is_in(_with_history("whole")) | (pl.col("at") > pl.col("updated_at")),
    )
    return told(
        both,
        "audit.status_differs_from_history",
        at="at",
        says=pl.format("its row says {}", word("raw_status")),
        against=pl.format("its history ended in {}", word("status")),
    )


def _ordered(cases: Cases) -> pl.DataFrame:
    """Changes of status in the order in which they were accepted."""
    # Where changes are derived from events, there is nothing to hold against them.
    kept = cases.facts.transitions.filter(~pl.col("system").is_in(_with_history("derived")))
    return kept.sort("at", "seq", nulls_last=False, maintain_order=True)


def _with_history(kind: str) -> list[str]:
    return [known.name for known in all_systems() if known.history == kind]

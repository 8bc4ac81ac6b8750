"""Contradictions within the data.

Each row of `audit` names an entity, the two sides of the evidence and what to do. The
codes, with their severities, are data: `core.audit.CODES`.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.auditing.contradictions import (
    CHECKS,
    changes_against_graphs,
    judged_transitions,
    outside_vocabulary,
)
from stateanalytics.core import schema
from stateanalytics.core.audit import CODES, PREFIX, Cases
from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import pool
from stateanalytics.state.policy import Policy, checked_policy
from stateanalytics.state.states import states_at_hand
from stateanalytics.systems import all_systems

__all__ = [
    "CODES",
    "PREFIX",
    "all_findings",
    "as_findings",
    "audit",
    "count_transitions",
    "outside_vocabulary",
]


def audit(
    snap: Facts, *, policy: Policy | None = None, states: pl.DataFrame | None = None
) -> pl.DataFrame:
    """All contradictions within the data, the most severe first.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    policy : Policy, optional
        Its thresholds determine how long silence may last; v1's by default.
    states : polars.DataFrame, optional
        ``schema.STATES`` of the same facts under the same policy, where the caller has them.

    Returns
    -------
    polars.DataFrame, shape (n_contradictions, 11)
        ``schema.AUDIT``: an entity and code may have several rows, one for each moment.
        ``warning``: two statements that cannot both be true. ``info``: an exception that the
        data explain, such as an override. In the order of severity, then of `CODES`, then of
        time.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, or the policy none.

    Notes
    -----
    Unknown values contradict nothing: entities without a status, or with one outside
    the vocabulary, are only compared with their own history. Legal changes of status, and
    those that repeat the status, make no row; `count_transitions` has them all.

    Examples
    --------
    >>> from stateanalytics.snapshot import demo
    >>> rows = audit(demo())
    >>> rows.filter(code="audit.open_without_sign_of_life")["says"].to_list()
    ["its status is 'running'", "its status is 'running'", "its status is 'running'"]
    """
    return audited(snap, policy=policy, states=states)[0]


def audited(
    snap: Facts, *, policy: Policy | None = None, states: pl.DataFrame | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The results of `audit` and `count_transitions`, which share their judged transitions."""
    cases = _cases(snap, policy, states)
    judged = judged_transitions(cases.facts)
    parts = [*changes_against_graphs(judged), *(rows for check in CHECKS for rows in check(cases))]
    for known in all_systems():
        parts += [check(cases).lazy() for check in known.auditing().checks]
    # A parent may belong to two families with the same contradiction.
    rows = _with_commands(pl.concat(parts)).unique(maintain_order=True)
    order = (_rank("severity", schema.FINDING_SEVERITIES), _rank("code", tuple(CODES)), "at")
    rows = rows.sort(*order, *schema.ENTITY_KEY, "says", "against", nulls_last=True)
    return rows.collect(), _by_verdict(judged)


def count_transitions(snap: Facts, *, policy: Policy | None = None) -> pl.DataFrame:
    """Numbers of legal and other changes of status, by entity type.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    policy : Policy, optional
        As for `audit`.

    Returns
    -------
    polars.DataFrame
        ``entity_type``, ``verdict``, ``n``. Only changes that a system can judge
        (`Auditing.judge_transitions`).

    Examples
    --------
    >>> from stateanalytics.snapshot import demo
    >>> count_transitions(demo()).filter(entity_type="session")["verdict"].to_list()
    ['first', 'legal']
    """
    return _by_verdict(judged_transitions(_cases(snap, policy, schema.STATES.empty()).facts))


def _by_verdict(judged: pl.DataFrame) -> pl.DataFrame:
    key = ("entity_type", "verdict")
    return judged.lazy().group_by(key).agg(n=pl.len()).sort(key).collect()


def as_findings(audited: pl.DataFrame) -> pl.DataFrame:
    """Rows of the audit in the shape of ``schema.FINDINGS``, so that both can be concatenated.

    Examples
    --------
    >>> as_findings(schema.AUDIT.empty()).columns == schema.FINDINGS.dtypes.names()
    True
    """
    return schema.FINDINGS.conform(
        audited.with_columns(
            n_rows=pl.lit(1),
            example=pl.format("{}; but {}", "says", "against"),
            action=pl.lit("kept; see the table audit"),
        )
    )


def all_findings(facts: Facts, states: pl.DataFrame, audited: pl.DataFrame) -> pl.DataFrame:
    """Everything that is wrong in the data: the table ``findings``, and what metrics count.

    Problems of reading, words outside of the ADR among the states, and the contradictions
    of an `audit`, in the shape of ``schema.FINDINGS``.
    """
    return pool([facts.findings, outside_vocabulary(states), as_findings(audited)], schema.FINDINGS)


def _cases(snap: Any, policy: Policy | None, states: pl.DataFrame | None) -> Cases:
    checked_snapshot(snap, "audit")
    policy = checked_policy(policy)
    return Cases(snap, states_at_hand(snap, states, policy=policy), policy)


def _with_commands(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Rows with the advice of their system in ``what_to_do``, where it has some."""
    advice = pl.LazyFrame(
        [
            (known.name, *pair)
            for known in all_systems()
            for pair in known.auditing().advice.items()
        ],
        schema=dict.fromkeys(("system", "code", "own"), pl.String),
        orient="row",
    )
    own = rows.join(advice, on=["system", "code"], how="left", maintain_order="left")
    return own.with_columns(what_to_do=pl.coalesce("own", "what_to_do")).drop("own")


def _rank(column: str, words: tuple[str, ...]) -> pl.Expr:
    places = {word: place for place, word in enumerate(words)}
    return pl.col(column).replace_strict(places, default=len(words), return_dtype=pl.Int32)

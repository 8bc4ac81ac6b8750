"""Two policies over one set of facts: whose severity changes, and how often."""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.windows import Moment
from stateanalytics.errors import MissingColumnsError
from stateanalytics.state.policy import Policy
from stateanalytics.state.states import states

_COMPARED = ("health", "delivery", "severity", "tone", "severity_rule", "display")


def compare_policies(
    facts: Any, a: Policy, b: Policy, *, as_of: Moment | None = None
) -> pl.DataFrame:
    """The entities whose severity is another under the second policy.

    Parameters
    ----------
    facts : Facts, Snapshot, or a polars frame of entities
        As for `states.states`.
    a, b : Policy
        The policies, before and after.
    as_of : datetime, date, ISO text or epoch seconds, optional
        As for `states.states`.

    Returns
    -------
    polars.DataFrame
        One row a changed entity: its key, ``lifecycle`` and ``outcome`` (under the
        first), then ``health``, ``delivery``, ``severity``, ``tone``,
        ``severity_rule`` and ``display`` twice, ending in ``_a`` and ``_b``, and
        ``policy_a``, ``policy_b``. `count_changes` makes counts of it.

    Examples
    --------
    >>> row = {"entity_type": "session", "entity_id": "s1", "raw_status": "aborted"}
    >>> entities = schema.ENTITIES.conform(pl.DataFrame([row]))
    >>> changed = compare_policies(entities, Policy.v1(), Policy.adr0025(), as_of="2026-05-27")
    >>> changed.select("severity_a", "severity_rule_a", "severity_b", "severity_rule_b").row(0)
    ('critical', 1, 'neutral', 13)
    """
    before, after = (
        found.collect() if isinstance(found, pl.LazyFrame) else found
        for found in (states(facts, policy=policy, as_of=as_of) for policy in (a, b))
    )
    told = pl.concat(
        [
            before.select(*schema.ENTITY_KEY, "lifecycle", "outcome"),
            before.select(pl.col(_COMPARED).name.suffix("_a")),
            after.select(pl.col(_COMPARED).name.suffix("_b")),
        ],
        how="horizontal",
    )
    return told.filter(pl.col("severity_a") != pl.col("severity_b")).with_columns(
        policy_a=pl.lit(a.version), policy_b=pl.lit(b.version)
    )


def count_changes(changed: pl.DataFrame) -> pl.DataFrame:
    """How many entities of each type went from which severity to which.

    Parameters
    ----------
    changed : polars.DataFrame
        What `compare_policies` gave.

    Returns
    -------
    polars.DataFrame
        ``entity_type``, ``severity_a``, ``severity_b``, ``n_entities``; most frequent
        first, ties by name.

    Examples
    --------
    >>> changed = pl.DataFrame(
    ...     {"entity_type": ["play"], "severity_a": ["neutral"], "severity_b": ["warning"]}
    ... )
    >>> count_changes(changed).rows()
    [('play', 'neutral', 'warning', 1)]
    """
    named = ("entity_type", "severity_a", "severity_b")
    if missing := [name for name in named if name not in changed.columns]:
        raise MissingColumnsError.of(missing, changed.columns, "count_changes")
    return (
        changed.group_by(named)
        .agg(n_entities=pl.len().cast(pl.Int64))
        .sort("n_entities", *named, descending=[True, False, False, False])
    )

"""Failed rows with their codes, templates, causes and costs, gathered once for all counts."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core.windows import read_window
from stateanalytics.errors import ArgumentError
from stateanalytics.failures.by_code import select_failures
from stateanalytics.failures.causes import cause_key
from stateanalytics.failures.costs import add_costs
from stateanalytics.failures.rule_effects import apply_rules
from stateanalytics.failures.rules_file import FailureRules
from stateanalytics.failures.templates import VERSION, mine_templates, template_id
from stateanalytics.state.population import counted, population
from stateanalytics.state.states import states

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.core.windows import Window
    from stateanalytics.state.policy import Policy

COLUMNS = (
    *("source", "system", "entity_type", "entity_id", "session_id", "invocation_id"),
    *("kind", "name", "agent", "model", "provider", "project", "playbook", "outcome"),
    *("code", "message", "template", "template_id", "cluster_id", "rule", "rule_name"),
    *("cause", "failed_at", "unit", "run_s", "n_tokens", "cost_usd"),
)


def find_members(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    earlier: pl.DataFrame | None = None,
    judged: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """What `failure_members` gives without incidents, for the functions that count it.

    ``judged`` are the `states` of the snapshot, where they are at hand.
    """
    chosen_rules = FailureRules.of(rules)
    rows = failed_rows(snap, window=window, policy=policy, earlier=earlier, judged=judged)
    return (
        apply_rules(rows, chosen_rules)
        .with_columns(reason_code="code")
        .with_columns(cause_key().alias("cause"))
        .pipe(_with_ids)
        .sort("failed_at", "source", "entity_type", "entity_id", descending=[True, *[False] * 3])
        .select(COLUMNS)
    )


def failed_rows(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    earlier: pl.DataFrame | None = None,
    judged: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Failed rows with ``code``, ``message``, mined ``template`` and costs, before any rule."""
    chosen = None if window is None else read_window(window, as_of=checked(snap).as_of)
    known = judge(snap, policy) if judged is None else judged
    everything = failures_of(snap, known)
    failed = everything if chosen is None else failures_of(snap, known, chosen)
    texts = everything["reason_message"].unique().drop_nulls()
    templates = mine_templates(texts, earlier=earlier).select("template", message=texts)
    return (
        add_costs(failed, snap.entities)
        .rename({"reason_code": "code", "reason_message": "message", "placed_at": "failed_at"})
        .with_columns(outcome=pl.col("outcome").cast(pl.String))
        .join(templates, on="message", how="left", maintain_order="left")
    )


def failures_of(snap: Facts, judged: pl.DataFrame, window: Window | None = None) -> pl.DataFrame:
    """The rows of a population that count as failures."""
    return select_failures(population(snap.entities, judged, as_of=snap.as_of, window=window))


def ended_runs(snap: Facts, judged: pl.DataFrame, window: Window | None = None) -> pl.DataFrame:
    """The sessions that rates count and that have ended: what failures are compared with."""
    rows = population(snap.entities, judged, as_of=snap.as_of, window=window)
    return counted(rows, "session").filter(~pl.col("is_open"))


def judge(snap: Facts, policy: Policy | None) -> pl.DataFrame:
    """The states of a snapshot."""
    judged: pl.DataFrame = states(checked(snap), policy=policy)
    return judged


def checked(snap: Facts) -> Facts:
    """The same, or an error that says what was needed."""
    if not all(hasattr(snap, name) for name in ("entities", "details", "as_of")):
        raise ArgumentError(
            f"Failures are those of a snapshot; found {type(snap).__name__} {snap!r:.60}.",
            'read one first: sa.failure_clusters(sa.read("~/.lionagi/state.db"))',
        )
    return snap


def cluster_id(code: str | None, template: str | None) -> str:
    """The id of a cluster: of its code and template alone, so that it outlives the week.

    Examples
    --------
    >>> cluster_id("run.failed.exception", "worker <*> died")[:3]
    'v1:'
    >>> cluster_id(None, "x") == cluster_id("", "x")
    False
    """
    parts = "".join(f"{part is None:d}{part or ''}\0" for part in (code, template))
    return f"{VERSION}:{hashlib.blake2b(parts.encode(), digest_size=6).hexdigest()}"


def _with_ids(rows: pl.DataFrame) -> pl.DataFrame:
    pairs = rows.select("code", "template").unique()
    ids = pairs.with_columns(
        cluster_id=pl.Series([cluster_id(*pair) for pair in pairs.rows()], dtype=pl.String),
        template_id=pl.Series(
            [None if text is None else template_id(text) for text in pairs["template"]],
            dtype=pl.String,
        ),
    )
    return rows.join(
        ids, on=["code", "template"], how="left", nulls_equal=True, maintain_order="left"
    )

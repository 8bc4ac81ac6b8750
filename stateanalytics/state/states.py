"""The NormalizedState of every entity: ADR-0033's model, recomputed in bulk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.engines import TEMPORARY, Frame, add_span
from stateanalytics.core.windows import Moment
from stateanalytics.errors import check_columns
from stateanalytics.state.display import add_code, add_words
from stateanalytics.state.evaluate import Evaluation, evaluate
from stateanalytics.state.health import HEALTH_RULE, RETRY_SCHEDULED
from stateanalytics.state.lifecycle import StatusTable
from stateanalytics.state.policy import Policy
from stateanalytics.state.reasons import (
    NEEDED_TOO,
    add_unexplained,
    reasons,
    reasons_of,
    runaway_code,
)

__all__ = ["reasons", "states", "states_and_reasons"]

ORIGIN = "stateanalytics"
_HEALTH, _DELIVERY = f"{TEMPORARY}health_code", f"{TEMPORARY}delivery_code"
_RETRY, _RUNAWAY = f"{TEMPORARY}retry", f"{TEMPORARY}runaway"
_UNEXPLAINED = f"{TEMPORARY}unexplained"


def states(facts: Any, *, policy: Policy | None = None, as_of: Moment | None = None) -> Any:
    """The normalized state of every entity, one row each.

    Parameters
    ----------
    facts : Facts, Snapshot, or a frame of entities
        Anything with ``.entities`` and ``.as_of``; or a polars DataFrame or LazyFrame, a
        DuckDB relation or a PySpark frame with the columns `evaluate.NEEDED` of
        ``schema.ENTITIES``. All of them give what the frame alone gives.
    policy : Policy, optional
        The rules and thresholds of states; default `Policy.v1`.
    as_of : datetime, date, ISO text or epoch seconds, optional
        The instant of the evaluation; default that of the facts. A frame alone needs it.

    Returns
    -------
    frame, shape (n_entities, 22)
        ``schema.STATES``, of the same kind, the rows in the order they came in (engines
        without an order keep none). Vocabularies are Enums in polars, text elsewhere.

    Raises
    ------
    MissingColumnsError, ColumnTypeError
        If the frame does not have what the rules read.
    ArgumentError
        If a bare frame comes without ``as_of``, or an argument makes no sense.

    Notes
    -----
    The clock is not read and nothing is stored. An unknown or missing status stays visible
    (``is_legacy``, ``effective_state``) and does not become another one.

    References
    ----------
    ADR-0033; decisions D1 to D22 where it leaves something open.

    Examples
    --------
    >>> import polars as pl
    >>> row = {"entity_type": "session", "entity_id": "s1", "raw_status": "failed"}
    >>> entities = schema.ENTITIES.conform(pl.DataFrame([row]))
    >>> states(entities, as_of="2026-05-27").select("severity", "display").row(0)
    ('critical', 'Failed')
    """
    return _judged(facts, "states", policy, as_of)


def _judged(facts: Any, function: str, policy: Policy | None, as_of: Moment | None) -> Any:
    return states_of(evaluate(facts, function, policy=policy, as_of=as_of))


def states_at_hand(facts: Any, given: Any, *, policy: Policy | None = None) -> Any:
    """The states that a caller passes, else derived states."""
    return states(facts, policy=policy) if given is None else given


def states_and_reasons(
    facts: Any, *, policy: Policy | None = None, as_of: Moment | None = None
) -> tuple[Any, Any]:
    """`states` and `reasons` of the same facts, with the rules applied once.

    Parameters
    ----------
    facts, policy, as_of
        As for both.

    Returns
    -------
    (frame, frame)
        States and reasons.

    Examples
    --------
    >>> import polars as pl
    >>> row = {"entity_type": "session", "entity_id": "s1", "raw_status": None}
    >>> entities = schema.ENTITIES.conform(pl.DataFrame([row]))
    >>> frames = states_and_reasons(entities, as_of="2026-05-27")
    >>> [frame["entity_id"].to_list() for frame in frames]
    [['s1'], ['s1']]
    """
    evaluation = evaluate_once(facts, "states_and_reasons", policy=policy, as_of=as_of)
    return states_of(evaluation), reasons_of(evaluation)


def evaluate_once(
    facts: Any, function: str, *, policy: Policy | None, as_of: Moment | None = None
) -> Evaluation:
    """Apply the rules to facts once, for both `states_of` and `reasons_of`.

    Parameters
    ----------
    facts, policy, as_of
        As for `states`.
    function : str
        The name of the caller, for messages.
    """
    evaluation = evaluate(facts, function, policy=policy, as_of=as_of, also=NEEDED_TOO)
    if evaluation.adapter.is_eager:
        evaluation = replace(evaluation, frame=evaluation.frame.collect().lazy())
    return evaluation


def states_of(evaluation: Evaluation) -> Any:
    """The result of `states`, of the same kind as the frame that was evaluated."""
    return evaluation.adapter.give_back(_worded(evaluation))


def _worded(evaluation: Evaluation) -> Frame:
    table, policy = evaluation.table, evaluation.policy
    spanned = add_span(evaluation.frame, "duration_s", "started_at", "ended_at")
    worded = add_words(spanned, policy, has_recorded=table.has_recorded)
    named = _with_codes(worded, table).with_columns(
        duration_s=nw.when(table.where(lambda cell: cell.is_terminal)).then(nw.col("duration_s")),
        evaluated_at=nw.lit(evaluation.as_of),
        policy_version=nw.lit(policy.version),
        origin=nw.lit(ORIGIN),
    )
    if evaluation.has_unnamed:
        unnamed = table.where(lambda cell: cell.word is None and not cell.is_known_text)
        own_word = nw.when(unnamed).then(nw.col("raw_status"))
        named = named.with_columns(effective_state=own_word.otherwise(nw.col("effective_state")))
    return named.select(
        nw.col(name).cast(nw.Int64) if name == "severity_rule" else name
        for name in schema.STATES.dtypes.names()
    )


def _with_codes(frame: Frame, table: StatusTable) -> Frame:
    """The codes; and the words, where some rows have recorded ones of their own."""
    pieces: tuple[str, ...] = ("reason_code", _UNEXPLAINED, "derived_codes")
    frame = add_unexplained(frame, table, _UNEXPLAINED)
    if table.has_recorded:
        pieces = ("recorded_reason_codes", _UNEXPLAINED, _HEALTH, _RETRY, _RUNAWAY, _DELIVERY)
        coded = add_code(add_code(frame, table, "health", _HEALTH), table, "delivery", _DELIVERY)
        is_retry = nw.col(HEALTH_RULE) == RETRY_SCHEDULED
        also = {_RETRY: nw.when(is_retry).then(nw.col("retry_code")), _RUNAWAY: runaway_code()}
        frame = coded.with_columns(
            **also,
            recorded_reason_codes=nw.coalesce("recorded_reason_codes", "reason_code"),
            display=nw.coalesce("recorded_display", "display"),
        )
    # Joining columns of text is cheaper than choosing between them.
    joined = nw.concat_str(*pieces, separator=schema.CODE_SEPARATOR, ignore_nulls=True)
    is_any = nw.any_horizontal(*(~nw.col(name).is_null() for name in pieces), ignore_nulls=False)
    return frame.with_columns(reason_codes=nw.when(is_any).then(joined))


_COMPARED = ("health", "delivery", "severity", "tone", "severity_rule", "display")


def compare_policies(
    facts: Any, a: Policy, b: Policy, *, as_of: Moment | None = None
) -> pl.DataFrame:
    """The entities whose severity differs between two policies.

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
        One row per changed entity: its key, ``lifecycle`` and ``outcome`` (under the first), then
        ``health``, ``delivery``, ``severity``, ``tone``, ``severity_rule`` and ``display`` twice,
        ending in ``_a`` and ``_b``, and ``policy_a``, ``policy_b``. `count_changes` counts them.

    Examples
    --------
    >>> row = {"entity_type": "session", "entity_id": "s1", "raw_status": "aborted"}
    >>> entities = schema.ENTITIES.conform(pl.DataFrame([row]))
    >>> changed = compare_policies(entities, Policy.v1(), Policy.adr0025(), as_of="2026-05-27")
    >>> changed.select("severity_a", "severity_rule_a", "severity_b", "severity_rule_b").row(0)
    ('critical', 1, 'neutral', 13)
    """
    before, after = (
        judged.collect() if isinstance(judged, pl.LazyFrame) else judged
        for judged in (_judged(facts, "compare_policies", policy, as_of) for policy in (a, b))
    )
    check_columns(before, schema.ENTITY_KEY, "compare_policies")
    both = pl.concat(
        [
            before.select(*schema.ENTITY_KEY, "lifecycle", "outcome"),
            before.select(pl.col(_COMPARED).name.suffix("_a")),
            after.select(pl.col(_COMPARED).name.suffix("_b")),
        ],
        how="horizontal",
    )
    return both.filter(pl.col("severity_a") != pl.col("severity_b")).with_columns(
        policy_a=pl.lit(a.version), policy_b=pl.lit(b.version)
    )


def count_changes(changed: pl.DataFrame) -> pl.DataFrame:
    """How many entities of each type went from which severity to which.

    Parameters
    ----------
    changed : polars.DataFrame
        The result of `compare_policies`.

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
    return (
        changed.group_by(named)
        .agg(n_entities=pl.len().cast(pl.Int64))
        .sort("n_entities", *named, descending=[True, False, False, False])
    )

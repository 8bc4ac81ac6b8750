"""The NormalizedState of every entity: ADR-0033's model, recomputed in bulk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.windows import Moment
from stateanalytics.state.clock import add_spans
from stateanalytics.state.derived_codes import SEPARATOR
from stateanalytics.state.engines import Frame
from stateanalytics.state.evaluate import Evaluation, evaluate
from stateanalytics.state.mapped import mapped_reasons, mapped_states, split
from stateanalytics.state.policy import Policy
from stateanalytics.state.reasons import NEEDED_TOO, reason_rows, reasons
from stateanalytics.state.signatures import add_words

__all__ = ["reasons", "states", "states_and_reasons"]

ORIGIN = "stateanalytics"


def states(
    facts: Any,
    *,
    policy: Policy | None = None,
    as_of: Moment | None = None,
    schedules: Any = None,
) -> Any:
    """The NormalizedState of every entity, one row an entity.

    Parameters
    ----------
    facts : Facts, Snapshot, or a frame of entities
        Anything with ``.entities``, ``.details`` and ``.as_of``; or a polars DataFrame or
        LazyFrame, a DuckDB relation or a PySpark frame with the columns
        `evaluate.NEEDED` of ``schema.ENTITIES``.
    policy : Policy, optional
        What counts as bad, and after how long; default `Policy.v1`.
    as_of : datetime, date, ISO text or epoch seconds, optional
        The instant to judge at; default the facts' own. A bare frame needs it.
    schedules : frame, optional
        ``schema.LIONAGI_SCHEDULES`` of the same engine; default the facts' own. Without
        it the health of schedules that are switched on is ``unknown``.

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
    Nothing is read from the clock and nothing is stored. An unknown or missing status
    stays visible (``is_legacy``, ``effective_state``) and is not folded into any other.

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
    rest, mapped = split(facts)
    found = evaluate(rest, "states", policy=policy, as_of=as_of, schedules=schedules)
    own = found.door.give_back(_worded(found))
    return own if mapped is None else _in_order(own, rest, mapped, facts, found)


def states_and_reasons(
    facts: Any,
    *,
    policy: Policy | None = None,
    as_of: Moment | None = None,
    schedules: Any = None,
) -> tuple[Any, Any]:
    """`states` and `reasons` of the same facts, with the rules applied once.

    Parameters
    ----------
    facts, policy, as_of, schedules
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
    rest, mapped = split(facts)
    found = evaluate(
        rest,
        "states_and_reasons",
        policy=policy,
        as_of=as_of,
        schedules=schedules,
        also=NEEDED_TOO,
    )
    if found.door.is_eager:
        found = replace(found, frame=found.frame.collect().lazy())
    give_back = found.door.give_back
    judged, explained = give_back(_worded(found)), give_back(reason_rows(found))
    if mapped is None:
        return judged, explained
    return (
        _in_order(judged, rest, mapped, facts, found),
        pl.concat(
            [
                explained,
                mapped_reasons(mapped, facts.details, policy=found.policy, as_of=found.as_of),
            ]
        ),
    )


def _in_order(
    own: pl.DataFrame, rest: Any, mapped: pl.DataFrame, facts: Any, found: Evaluation
) -> pl.DataFrame:
    """States of all systems in the order of the entities."""
    others = mapped_states(
        mapped, facts.details, policy=found.policy, as_of=found.as_of, origin=ORIGIN
    )
    places = pl.concat([rest.index, mapped["index"]])
    judged: pl.DataFrame = pl.concat([own, others])[places.arg_sort()]
    return judged


def _worded(found: Evaluation) -> Frame:
    cells, policy = found.cells, found.policy
    spanned = add_spans(found.frame, {"duration_s": ("started_at", "ended_at")})
    worded = add_words(spanned, policy)
    stored, derived = nw.col("reason_code"), nw.col("derived_codes")
    # Choosing between two columns of text costs more than joining them.
    joined = nw.concat_str(stored, derived, separator=SEPARATOR, ignore_nulls=True)
    said = worded.with_columns(
        reason_codes=nw.when(~stored.is_null() | ~derived.is_null()).then(joined),
        duration_s=nw.when(cells.where(lambda cell: cell.is_terminal)).then(nw.col("duration_s")),
        evaluated_at=nw.lit(found.as_of),
        policy_version=nw.lit(policy.version),
        origin=nw.lit(ORIGIN),
    )
    if found.survey.has_unnamed:
        unnamed = cells.where(lambda cell: cell.word is None and not cell.is_known_text)
        own_word = nw.when(unnamed).then(nw.col("raw_status"))
        said = said.with_columns(effective_state=own_word.otherwise(nw.col("effective_state")))
    return said.select(
        nw.col(name).cast(nw.Int64) if name == "severity_rule" else name
        for name in schema.STATES.dtypes.names()
    )

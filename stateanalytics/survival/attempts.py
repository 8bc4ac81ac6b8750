"""Attempts at the same work: a run that ended and was resumed is several of them."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.schema import ENTITY_KEY, MOMENT
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import System

_MOMENTS = ("ended_at", "resumed_at", "last_sign_at")
_OF_ATTEMPT = ("outcome", "raw_status", "reason_code", "reason_message", "end_written_by")
_OF_CHANGE = ("status", "reason_code", "message", "writer")
_COLUMNS = (*ENTITY_KEY, *_MOMENTS, *_OF_ATTEMPT)
_NONE = pl.DataFrame(
    schema={**dict.fromkeys(_COLUMNS, pl.String), **dict.fromkeys(_MOMENTS, MOMENT)}
)


def split_into_attempts(runs: pl.DataFrame, snap: Facts) -> pl.DataFrame:
    """One row an attempt, where transitions show that a run had ended and went on.

    Parameters
    ----------
    runs : polars.DataFrame
        Rows of `population` that are runs.
    snap : Snapshot or Facts
        Whose transitions and events tell of earlier attempts.

    Returns
    -------
    polars.DataFrame
        ``runs`` in their order, with ``n_resumed``: how often the work had been resumed
        before, 0 for its first attempt. Earlier attempts have the start, end, outcome,
        reason and writer of their own; the last keeps those of the run, but for its start.

    Notes
    -----
    The time between an end and the resumption belongs to no attempt. What transitions do
    not tell apart by session, such as turns, is unknown for all but single attempts.
    """
    whole = runs.with_row_index("_run").with_columns(n_resumed=pl.lit(0, pl.Int64))
    ended = _ends_of_attempts(runs, snap)
    if ended.is_empty():
        return whole.drop("_run")
    numbered = ended.sort(*ENTITY_KEY, "ended_at").with_columns(
        resumed_before_at=pl.col("resumed_at").shift(1).over(ENTITY_KEY),
        number=pl.int_range(pl.len(), dtype=pl.Int64).over(ENTITY_KEY),
    )
    earlier = whole.join(numbered, on=ENTITY_KEY, how="inner", suffix="_of_attempt").with_columns(
        n_resumed="number",
        started_at=pl.coalesce("resumed_before_at", "started_at"),
        ended_at="ended_at_of_attempt",
        last_activity_at="last_sign_at_of_attempt",
        is_open=pl.lit(value=False),
        is_end_approximate=pl.lit(value=False),
        health=pl.lit(None, runs.schema["health"]),
        n_model_turns=pl.lit(None, runs.schema["n_model_turns"]),
        **{name: pl.col(f"{name}_of_attempt").cast(runs.schema[name]) for name in _OF_ATTEMPT},
    )
    resumed = ended.group_by(ENTITY_KEY).agg(
        pl.col("resumed_at").max(), number=pl.len().cast(pl.Int64)
    )
    last = whole.join(resumed, on=ENTITY_KEY, how="left", maintain_order="left").with_columns(
        started_at=pl.coalesce("resumed_at", "started_at"),
        n_resumed=pl.col("number").fill_null(0),
        n_model_turns=pl.when(pl.col("number").is_null()).then("n_model_turns"),
    )
    return (
        pl.concat([earlier.select(whole.columns), last.select(whole.columns)])
        .sort("_run", "n_resumed", maintain_order=True)
        .drop("_run")
    )


def _ends_of_attempts(runs: pl.DataFrame, snap: Facts) -> pl.DataFrame:
    """Ends of runs that work followed, each with what it was and when it went on."""
    told = [
        known.ends.of_attempts(snap).select(_COLUMNS)
        if known.ends.of_attempts is not None
        else _of_transitions(known, snap)
        for known in all_systems()
        if known.name in runs["system"].unique()
    ]
    return (
        pl.concat([_NONE, *told], how="vertical_relaxed")
        .join(runs.select(ENTITY_KEY), on=ENTITY_KEY, how="semi")
        .filter(pl.col("resumed_at") <= snap.as_of)
    )


def _of_transitions(known: System, snap: Facts) -> pl.DataFrame:
    """Ends of a system's runs that a status of work follows, by its own words for ends."""
    outcomes: Mapping[str, str | None] = known.ends.statuses or {
        word.raw_status: word.outcome
        for word in known.vocabulary
        if word.entity_type == known.run_type and word.is_terminal
    }
    ends = list(outcomes)
    is_end = pl.col("status").is_in(ends)
    is_death = pl.col("reason_code").is_in(known.ends.death_codes).fill_null(value=False)
    is_own = pl.col("writer").is_in(known.ends.own_writers) & ~is_death
    told = snap.transitions.select(*ENTITY_KEY, "at", "seq", *_OF_CHANGE)
    changes = told.filter(
        pl.col("system") == known.name,
        pl.col("entity_type") == known.run_type,
        pl.col("at") <= snap.as_of,
    )
    # By id alone, which costs a third, it is seen that hardly any did; two may share an id.
    of_ids = changes.group_by("entity_id").agg(
        first_end_at=pl.when(is_end).then("at").min(),
        last_work_at=pl.when(~is_end).then("at").max(),
    )
    may = of_ids.filter(pl.col("last_work_at") >= pl.col("first_end_at"))["entity_id"]
    changes = changes.filter(pl.col("entity_id").is_in(may.implode()))
    first_ends = changes.filter(is_end).group_by(ENTITY_KEY).agg(first_end_at=pl.col("at").min())
    # Few runs go on after an end: only theirs are put in order.
    went_on = (
        changes.filter(~is_end)
        .join(first_ends, on=ENTITY_KEY)
        .filter(pl.col("at") >= pl.col("first_end_at"))
    )
    ended = (
        changes.join(went_on, on=ENTITY_KEY, how="semi")
        .sort(*ENTITY_KEY, "at", "seq")
        # Two ends in a row are one end, the first.
        .filter(~(is_end & is_end.shift(1, fill_value=False).over(ENTITY_KEY)))
        .with_columns(
            resumed_at=pl.col("at").shift(-1).over(ENTITY_KEY),
            is_left=~pl.col("status").shift(-1).over(ENTITY_KEY).is_in(ends),
        )
        .filter(is_end, "is_left")
        .select(
            *ENTITY_KEY,
            "resumed_at",
            "reason_code",
            ended_at="at",
            outcome=pl.col("status").replace_strict(outcomes, default=None, return_dtype=pl.String),
            raw_status="status",
            reason_message="message",
            end_written_by=pl.when(is_own.fill_null(value=False))
            .then(pl.lit("executor"))
            .otherwise(pl.lit("observer")),
        )
    )
    signs = _last_signs(ended, snap)
    return ended.join(signs, on=[*ENTITY_KEY, "ended_at"], how="left").select(_COLUMNS)


def _last_signs(ended: pl.DataFrame, snap: Facts) -> pl.DataFrame:
    """The last sign of life before each of those ends."""
    return (
        snap.events.lazy()
        .filter("is_activity")
        .select(*ENTITY_KEY, "at")
        .join(ended.lazy().select(*ENTITY_KEY, "ended_at"), on=ENTITY_KEY, how="inner")
        .filter(pl.col("at") <= pl.col("ended_at"))
        .group_by(*ENTITY_KEY, "ended_at")
        .agg(last_sign_at=pl.col("at").max())
        .collect()
    )

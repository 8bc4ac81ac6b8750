"""Attempts at the same work: a run that ended and was resumed is several of them."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.vocabulary import words_of

_OUTCOMES = {word.raw_status: word.outcome for word in words_of("session") if word.is_terminal}
_RESUMED_AT, _ENDED_AT = "_resumed_at", "_attempt_ended_at"


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
    breaks = _breaks(runs, snap)
    whole = runs.with_row_index("_run").with_columns(n_resumed=pl.lit(0, pl.Int64))
    if breaks.is_empty():
        return whole.drop("_run")
    signs = _last_signs(breaks, snap)
    before = pl.col(_RESUMED_AT).shift(1).over(ENTITY_KEY)
    ended = (
        breaks.join(signs, on=[*ENTITY_KEY, _ENDED_AT], how="left")
        .sort(*ENTITY_KEY, _ENDED_AT)
        .with_columns(_from=before, _n=pl.int_range(pl.len()).over(ENTITY_KEY))
    )
    earlier = whole.join(ended, on=ENTITY_KEY, how="inner", suffix="_of_attempt").with_columns(
        n_resumed=pl.col("_n").cast(pl.Int64),
        started_at=pl.coalesce("_from", "started_at"),
        ended_at=pl.col(_ENDED_AT),
        last_activity_at="last_sign_of_attempt",
        is_open=pl.lit(value=False),
        is_end_approximate=pl.lit(value=False),
        outcome=pl.col("outcome_of_attempt").cast(runs.schema["outcome"]),
        raw_status="raw_status_of_attempt",
        reason_code="reason_code_of_attempt",
        reason_message="reason_message_of_attempt",
        end_written_by=pl.col("end_written_by_of_attempt").cast(runs.schema["end_written_by"]),
        health=pl.lit(None, runs.schema["health"]),
        n_turns=pl.lit(None, runs.schema["n_turns"]),
    )
    resumed = ended.group_by(ENTITY_KEY).agg(pl.col(_RESUMED_AT).max(), _n=pl.len().cast(pl.Int64))
    last = whole.join(resumed, on=ENTITY_KEY, how="left", maintain_order="left").with_columns(
        started_at=pl.coalesce(_RESUMED_AT, "started_at"),
        n_resumed=pl.col("_n").fill_null(0),
        n_turns=pl.when(pl.col("_n").is_null()).then("n_turns"),
    )
    return (
        pl.concat([earlier.select(whole.columns), last.select(whole.columns)])
        .sort("_run", "n_resumed", maintain_order=True)
        .drop("_run")
    )


def _breaks(runs: pl.DataFrame, snap: Facts) -> pl.DataFrame:
    """Ends of sessions that a status of work follows, each with what it was and when it went on."""
    ends = list(_OUTCOMES)
    is_end = pl.col("status").is_in(ends)
    return (
        snap.transitions.filter(pl.col("entity_type") == "session", pl.col("at") <= snap.as_of)
        .join(runs.select(ENTITY_KEY), on=ENTITY_KEY, how="semi")
        .sort(*ENTITY_KEY, "at", "seq")
        # Two ends in a row are one end, the first.
        .filter(~(is_end & is_end.shift(1, fill_value=False).over(ENTITY_KEY)))
        .with_columns(
            pl.col("at").shift(-1).over(ENTITY_KEY).alias(_RESUMED_AT),
            is_left=~pl.col("status").shift(-1).over(ENTITY_KEY).is_in(ends),
        )
        .filter(is_end, "is_left")
        .select(
            *ENTITY_KEY,
            pl.col("at").alias(_ENDED_AT),
            _RESUMED_AT,
            outcome_of_attempt=pl.col("status").replace_strict(_OUTCOMES, return_dtype=pl.String),
            raw_status_of_attempt="status",
            reason_code_of_attempt="reason_code",
            reason_message_of_attempt="message",
            end_written_by_of_attempt=pl.when(pl.col("writer") == "executor")
            .then(pl.lit("executor"))
            .otherwise(pl.lit("observer")),
        )
    )


def _last_signs(breaks: pl.DataFrame, snap: Facts) -> pl.DataFrame:
    """The last sign of life before each of those ends."""
    return (
        snap.events.filter("is_activity")
        .select(*ENTITY_KEY, "at")
        .join(breaks.select(*ENTITY_KEY, _ENDED_AT), on=ENTITY_KEY, how="inner")
        .filter(pl.col("at") <= pl.col(_ENDED_AT))
        .group_by(*ENTITY_KEY, _ENDED_AT)
        .agg(last_sign_of_attempt=pl.col("at").max())
    )

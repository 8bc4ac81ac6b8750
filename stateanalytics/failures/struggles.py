"""Signs of struggle inside of runs: loops, refusals, work taken back, tests that end red.

A sign is what was recorded, never a score: which calls, how many, and what they cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import pool
from stateanalytics.core.schema import SIGNS
from stateanalytics.failures.call_outcomes import FAILED, calls

_THREAD = ["source", "thread_id"]


@dataclass(frozen=True)
class SignRules:
    """From when on calls are a sign.

    Attributes
    ----------
    n_repeated : int
        Equal calls in a row, whatever their result (gemini-cli: 5).
    n_repeated_errors : int
        Equal calls in a row that all fail (OpenHands: 3).
    n_alternating : int
        Calls in a row of two that alternate (OpenHands: 6).
    n_denied : int
        Refused calls of one thread.
    n_failing : int
        Failed calls of a thread in which more fail than succeed.
    """

    n_repeated: int = 5
    n_repeated_errors: int = 3
    n_alternating: int = 6
    n_denied: int = 3
    n_failing: int = 5


RULES = SignRules()


def signs(snap: Facts, *, rules: SignRules = RULES) -> pl.DataFrame:
    """What shows that a run struggled, whatever its end.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    rules : SignRules
        From when on calls are a sign.

    Returns
    -------
    polars.DataFrame
        `schema.SIGNS`: a row for each sign of a session or subagent, the costliest first.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> sa.failures.signs(sa.demo()).is_empty()
    True
    """
    rows = calls(snap).with_columns(
        nth=pl.int_range(pl.len()).over(_THREAD),
        is_failed=pl.col("outcome").is_in(FAILED),
    )
    # A call without a known input is like no other.
    known = rows.filter(pl.col("input_digest").is_not_null())
    found = [
        _repeated(known, rules),
        _alternating(known, rules),
        _signs(rows.filter(outcome="denied"), "denied", rules.n_denied),
        _signs(rows.filter(outcome="interrupted"), "interrupted", 1),
        _signs(rows.filter("is_undo", outcome="ok"), "taken_back", 1),
        _tests_failing(rows),
        _mostly_failing(rows, rules),
    ]
    return pool(found, SIGNS).sort(
        "lost_s", "n_calls", descending=True, nulls_last=True, maintain_order=True
    )


def _repeated(known: pl.DataFrame, rules: SignRules) -> pl.DataFrame:
    """Equal calls in a row; where all of them fail, fewer are enough."""
    call = (*_THREAD, "tool", "input_digest")
    # A call between two others, with an unknown input too, begins another row of them.
    gap = _is_apart().cum_sum()
    failing = known.with_columns(row=pl.struct(*call, "is_failed", gap=gap).rle_id())
    errors = _signs(failing.filter("is_failed"), "repeated_error", rules.n_repeated_errors, ["row"])
    equal = known.with_columns(row=pl.struct(*call, gap=gap).rle_id())
    repeated = _signs(equal, "repeated_call", rules.n_repeated, ["row"])
    # Calls that all fail are one sign, the stronger one.
    key = [*_THREAD, "first_call"]
    return pool([errors, repeated.join(errors.select(key), on=key, how="anti")], SIGNS)


def _alternating(known: pl.DataFrame, rules: SignRules) -> pl.DataFrame:
    """Two calls in turn: each equals the one before the last, and differs from the last."""
    own = pl.col("input_digest")
    is_turn = (own == own.shift(2)) & (own != own.shift(1)) & (pl.col("nth").diff(2) == 2)
    marked = known.with_columns(is_turn=is_turn.over(_THREAD).fill_null(value=False))
    # The two calls that a stretch begins with have none before them to equal.
    is_first = marked.select(
        (pl.col("is_turn").shift(-1) | pl.col("is_turn").shift(-2)).over(_THREAD)
    ).to_series()
    rows = marked.filter(pl.col("is_turn") | is_first.fill_null(value=False)).with_columns(
        row=pl.struct(*_THREAD, gap=_is_apart().cum_sum()).rle_id()
    )
    return _signs(rows, "alternating", rules.n_alternating, ["row"])


def _is_apart() -> pl.Expr:
    """Whether other calls stand between a call and the row before it."""
    return (pl.col("nth").diff() != 1).fill_null(value=False)


def _tests_failing(rows: pl.DataFrame) -> pl.DataFrame:
    """Threads of which the last run of tests failed."""
    ended = rows.filter("is_test", pl.col("outcome") != "unknown")
    last = ended.group_by(_THREAD, maintain_order=True).tail(1)
    return _signs(last.filter("is_failed"), "tests_failing", 1)


def _mostly_failing(rows: pl.DataFrame, rules: SignRules) -> pl.DataFrame:
    """Threads in which more calls fail than succeed."""
    n_ok = (pl.col("outcome") == "ok").sum().over(_THREAD)
    many = rows.filter(pl.col("is_failed").sum().over(_THREAD) > n_ok)
    return _signs(many.filter("is_failed"), "mostly_failing", rules.n_failing)


def _signs(rows: pl.DataFrame, sign: str, least: int, by: list[str] | None = None) -> pl.DataFrame:
    """A sign for each thread, or group of calls in it, with at least so many calls."""
    ended = pl.coalesce("ended_at", "started_at")
    grouped = rows.group_by(*_THREAD, *(by or ()), maintain_order=True).agg(
        pl.col("system", "session_id", "tool", "target").first(),
        sign=pl.lit(sign),
        n_calls=pl.len().cast(pl.Int64),
        first_call=pl.col("entity_id").first(),
        last_call=pl.col("entity_id").last(),
        first_at=pl.col("started_at").first(),
        last_at=ended.last(),
        message=pl.col("message").drop_nulls().last(),
        lost_s=(ended.max() - ended.first()).dt.total_microseconds() / 1e6,
        n_tokens=pl.col("n_answer_tokens").slice(1).sum(),
    )
    return SIGNS.conform(grouped.filter(pl.col("n_calls") >= least))

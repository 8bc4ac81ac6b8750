"""What a group of child sessions amounts to: lionagi's three answers, and ours.

lionagi rolls children up in three places that disagree: the scheduler's resolver of
an invocation, the grading of a schedule occurrence (`run_view`), and ``li lifecycle``.
A group of *failed + cancelled* is failed, cancelled and cancelled to them. Ours,
``worst_status``, orders by how much attention an end needs, and the counts stay
beside it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import narwhals as nw

from stateanalytics.core.engines import NUMBER, TEXT, Frame, Kind, adapt, optional
from stateanalytics.core.vocabulary import EXIT_CODES

KEY = Kind("text or whole numbers", (*TEXT.dtypes, *NUMBER.dtypes), nw.String(), "cast it to text")

TERMINAL_STATUSES = tuple(EXIT_CODES)

SEVERITY_ORDER = (
    "failed",
    "aborted",
    "timed_out",
    "completed_empty",
    "cancelled",
    "unknown",
    "running",
    "completed",
)
"""Ours, worst first. A group is completed only when every child is."""

SCHEDULER_ORDER = ("timed_out", "failed", "aborted", "cancelled")
SCHEDULER_CODES = MappingProxyType(
    {
        "timed_out": "run.timed_out.deadline",
        "failed": "run.failed.exception",
        "aborted": "run.aborted.user",
        "cancelled": "run.cancelled.system",
        "completed_empty": "run.completed_empty.no_evidence",
        "completed": "run.completed.ok",
    }
)
_CANCELLED = ("cancelled", "aborted")
_OUTCOME_OF_STATUS = MappingProxyType(
    {"completed": "succeeded", "cancelled": "cancelled", "aborted": "cancelled"}
)

# A status is carried through an aggregation as the low digits of its position, so that
# "the first child that …" is a plain minimum, which every engine has.
_BASE = 100
_OTHER = _BASE - 1
_WORDS = MappingProxyType(dict(enumerate((*TERMINAL_STATUSES, "running"))))
_NUMBERS = MappingProxyType({word: number for number, word in _WORDS.items()})


def roll_up(parents: Any, children: Any, *, by: str = "parent_id") -> Any:
    """What the children of each parent amount to, by four named rules.

    Parameters
    ----------
    parents : frame
        One row a parent, ``by`` unique and not null. Used if there: ``leader_status``
        (what the process of the parent itself came to; default completed) and
        ``leader_exit_code``.
    children : frame
        One row a child, of the same engine: ``by``, ``status`` (as stored; null is no
        end), ``position`` (integer, oldest first, distinct within a parent). Used if
        there: ``reason_code``.
    by : str, default "parent_id"
        The column that names the parent.

    Returns
    -------
    frame
        The parents, in no particular order, with

        - ``n_children`` and ``n_<status>``, ``n_open`` (no end known): counts;
        - ``worst_status``: ours, by `SEVERITY_ORDER`; null without children;
        - ``invocation_status``, ``invocation_reason_code``: the scheduler's, which
          asks the leader where the children do not say;
        - ``grading_status``, ``grading_exit_code``: `run_view`'s, null until every
          child has ended: the highest exit code, the newest of several;
        - ``lifecycle_is_terminal``, ``lifecycle_status``, ``lifecycle_outcome``: those
          of ``li lifecycle``. Words outside the vocabulary read ``unknown`` here.

    Examples
    --------
    >>> import polars as pl
    >>> parents = pl.DataFrame({"parent_id": ["a"]})
    >>> children = pl.DataFrame({"parent_id": ["a", "a"], "position": [0, 1],
    ...                          "status": ["failed", "cancelled"]})
    >>> roll_up(parents, children).select(
    ...     "worst_status", "invocation_status", "grading_status", "lifecycle_outcome").row(0)
    ('failed', 'failed', 'cancelled', 'cancelled')
    """
    adapter = adapt(parents, {by: KEY}, "roll_up")
    group = adapter.frame
    rows = adapt(children, {by: KEY, "status": TEXT, "position": NUMBER}, "roll_up").frame
    facts = _facts_of_children(rows, by)
    leader = optional(group, "leader_status", nw.String).fill_null("completed")
    leader_exit_code = optional(group, "leader_exit_code", nw.Int64)
    return adapter.give_back(
        group.with_columns(_leader=leader, _leader_exit_code=leader_exit_code)
        .join(facts, on=by, how="left")
        .with_columns(nw.col(*_COUNTS).fill_null(0))
        .with_columns(
            worst_status=_worst(),
            invocation_status=_scheduler_status(),
            grading_status=_word("_graded"),
            lifecycle_is_terminal=_all_ended(),
            lifecycle_status=_word("_governing"),
        )
        .with_columns(
            invocation_reason_code=_scheduler_code(),
            grading_exit_code=_exit_code("grading_status"),
            lifecycle_outcome=nw.when(nw.col("lifecycle_is_terminal")).then(
                nw.col("lifecycle_status").replace_strict(
                    dict(_OUTCOME_OF_STATUS), default="failed", return_dtype=nw.String
                )
            ),
        )
        .drop("_leader", "_leader_exit_code", "_graded", "_governing", "_n_interrupted")
    )


_COUNTS = (
    "n_children",
    *(f"n_{word}" for word in TERMINAL_STATUSES),
    "n_running",
    "n_open",
    "_n_interrupted",
)


def _facts_of_children(rows: Frame, by: str) -> Frame:
    """Counts, and the children that two of the rules let speak for the group."""
    status = nw.col("status")
    number = status.replace_strict(dict(_NUMBERS), default=_OTHER, return_dtype=nw.Int64).fill_null(
        _OTHER
    )
    exit_code = status.replace_strict(dict(EXIT_CODES), default=None, return_dtype=nw.Int64)
    is_ended = status.is_in(TERMINAL_STATUSES).fill_null(False)
    is_cancelled = status.is_in(_CANCELLED).fill_null(False)
    is_good = (status == "completed").fill_null(False)
    interrupted = (status == "aborted") & (
        optional(rows, "reason_code", nw.String) == "run.cancelled.sigint"
    )
    packed = nw.col("position").cast(nw.Int64) * _BASE + nw.col("_number")
    speaks = {
        "_first_open": ~is_ended,
        "_first_cancelled": is_cancelled,
        "_first_bad": ~is_good,
    }
    facts = (
        rows.with_columns(_number=number, _exit_code=exit_code)
        .with_columns(
            *(nw.when(test).then(packed).alias(name) for name, test in speaks.items()),
            *(
                (status == word).fill_null(False).cast(nw.Int64).alias(f"n_{word}")
                for word in _NUMBERS
            ),
            _last=packed,
            # The highest exit code, then the newest: one number per child, one maximum.
            _graded=nw.col("_exit_code") * 10**12 + packed,
            n_open=(~is_ended).cast(nw.Int64),
            _n_interrupted=interrupted.fill_null(False).cast(nw.Int64),
        )
        .group_by(by)
        .agg(
            nw.len().alias("n_children"),
            *(nw.col(name).sum() for name in _COUNTS if name != "n_children"),
            *(nw.col(name).min() for name in speaks),
            nw.col("_last").max(),
            nw.col("_graded").max(),
        )
    )
    governing = nw.coalesce("_first_open", "_first_cancelled", "_first_bad", "_last")
    return facts.with_columns(
        _governing=governing % _BASE,
        _graded=nw.when(nw.col("n_open") == 0).then(nw.col("_graded") % _BASE),
        n_children=nw.col("n_children").cast(nw.Int64),
    ).drop(*speaks, "_last")


def _word(column: str) -> nw.Expr:
    word = nw.col(column).replace_strict(dict(_WORDS), default="unknown", return_dtype=nw.String)
    return nw.when(~nw.col(column).is_null()).then(word)


def _exit_code(column: str) -> nw.Expr:
    return nw.col(column).replace_strict(dict(EXIT_CODES), default=None, return_dtype=nw.Int64)


def _all_ended() -> nw.Expr:
    return (nw.col("n_children") > 0) & (nw.col("n_open") == 0)


def _first_true(cases: list[tuple[nw.Expr, Any]], otherwise: Any) -> nw.Expr:
    chain: Any = nw
    for test, then in cases:
        chain = chain.when(test).then(then)
    answer: nw.Expr = chain.otherwise(otherwise)
    return answer


def _worst() -> nw.Expr:
    n_unknown = nw.col("n_open") - nw.col("n_running")
    counts = {
        word: n_unknown if word == "unknown" else nw.col(f"n_{word}") for word in SEVERITY_ORDER
    }
    return _first_true(
        [(count > 0, nw.lit(word)) for word, count in counts.items()],
        nw.lit(None).cast(nw.String),
    )


def _scheduler_status() -> nw.Expr:
    """Any bad end wins; silence of the children is not success of the leader."""
    n_good = nw.col("n_completed") + nw.col("n_completed_empty")
    has_children = nw.col("n_children") > 0
    is_all_good = has_children & (n_good == nw.col("n_children"))
    leader = nw.col("_leader")
    leader_known = nw.when(leader.is_in(("completed", "timed_out", "aborted", "cancelled")))
    return _first_true(
        [
            *((nw.col(f"n_{word}") > 0, nw.lit(word)) for word in SCHEDULER_ORDER),
            (is_all_good & (nw.col("n_completed_empty") > 0), nw.lit("completed_empty")),
            (is_all_good, nw.lit("completed")),
            (has_children & (leader == "completed"), nw.lit("completed_empty")),
        ],
        leader_known.then(leader).otherwise(nw.lit("failed")),
    )


def _scheduler_code() -> nw.Expr:
    is_leaders = nw.col("n_failed") == 0
    is_nonzero = (nw.col("_leader_exit_code") != 0).fill_null(False)
    status = nw.col("invocation_status")
    return _first_true(
        [
            (
                (status == "aborted") & (nw.col("_n_interrupted") > 0),
                nw.lit("run.cancelled.sigint"),
            ),
            (
                (status == "failed") & is_leaders & is_nonzero,
                nw.lit("run.failed.exit_nonzero"),
            ),
        ],
        status.replace_strict(dict(SCHEDULER_CODES), default=None, return_dtype=nw.String),
    )

"""Where lionagi contradicts itself: directories, roll-ups, reasons and administrators.

lionagi rolls the sessions of a request up in three places that disagree: the scheduler's
resolver of an invocation, the grading of a schedule occurrence (`run_view`), and
``li lifecycle``. A group of *failed + cancelled* is failed, cancelled and cancelled to them.
``worst_status`` is ours, ordered by how much attention an end needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, audit_rows, family, word
from stateanalytics.core.facts import Facts
from stateanalytics.core.vocabulary import EXIT_CODES
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.transitions import (
    LIFECYCLES,
    OVERRIDE_EVENT,
    classify_transitions,
)

_KEY = list(schema.ENTITY_KEY)
_ADMIN_TARGETS = ("failed", "aborted", "cancelled")

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

_SCHEDULER_ORDER = ("timed_out", "failed", "aborted", "cancelled")
_SCHEDULER_CODES = {
    "timed_out": "run.timed_out.deadline",
    "failed": "run.failed.exception",
    "aborted": "run.aborted.user",
    "cancelled": "run.cancelled.system",
    "completed_empty": "run.completed_empty.no_evidence",
    "completed": "run.completed.ok",
}
_OUTCOMES = {"completed": "succeeded", "cancelled": "cancelled", "aborted": "cancelled"}


def audits() -> tuple[Callable[[Cases], pl.DataFrame], ...]:
    """The checks that only lionagi's data allow."""
    return (reasons, roll_ups, shows_on_disk, run_directories, admin_targets)


def judge_transitions(facts: Facts) -> pl.DataFrame:
    """Status changes of the entity types with a declared lifecycle, each with its verdict."""
    changes = facts.transitions.filter(
        pl.col("system") == "lionagi",
        pl.col("entity_type").is_in([cycle.entity_type for cycle in LIFECYCLES]),
    )
    # Most stores have no override: then no change has to be compared with one.
    overrides = facts.events.filter(pl.col("kind") == OVERRIDE_EVENT)
    return classify_transitions(changes, events=None if overrides.is_empty() else overrides)


def shows_on_disk(cases: Cases) -> pl.DataFrame:
    """Shows and plays of which the directory and the row have different statuses (#1161)."""
    rows = _rows(cases)
    shows = rows.filter(pl.col("entity_type") == "show")
    topics = shows.select("source", parent_id="entity_id", topic="name")
    plays = rows.filter(pl.col("entity_type") == "play").join(topics, on=["source", "parent_id"])
    key = (*_KEY, "topic", "play")
    named = pl.concat(
        [
            shows.with_columns(topic="name", play=pl.lit(None, pl.String)).select(key),
            plays.with_columns(play="name").select(key),
        ]
    )
    differing = cases.facts.detail(frames.SHOWS_ON_DISK).filter(
        pl.col("store_status").is_not_null(), pl.col("disk_status") != pl.col("store_status")
    )
    both = differing.join(named, on=["source", "topic", "play"], how="inner", nulls_equal=True)
    return audit_rows(
        both,
        "audit.disk_differs",
        says=pl.format("the store says {}", word("store_status")),
        against=pl.format("its directory says {}", word("disk_status")),
    )


def run_directories(cases: Cases) -> pl.DataFrame:
    """Sessions of which run.json has another status."""
    sessions = _rows(cases).filter(pl.col("entity_type") == "session")
    runs = cases.facts.detail(frames.RUNS).select(
        "source", "session_id", "run_id", file_status="status"
    )
    both = sessions.drop("run_id").join(runs, on=["source", "session_id"], how="inner")
    return audit_rows(
        both.filter(pl.col("file_status") != pl.col("raw_status")),
        "audit.run_file_differs",
        at="ended_at",
        says=pl.format("the store says {}", word("raw_status")),
        against=pl.format("run.json of {} says {}", word("run_id"), word("file_status")),
    )


def roll_ups(cases: Cases) -> pl.DataFrame:
    """Requests whose sessions have all ended, where the three rules or the request disagree."""
    requests = _rows(cases).select(
        *(*_KEY, "invocation_id", "raw_status", "ended_at", "last_activity_at"),
        *("is_open", "is_over", "n_children"),
    )
    ended = (
        family(requests, "invocation", "session", "invocation_id")
        .filter("is_over", pl.col("n_open") == 0, pl.col("n_legacy") == 0)
        .with_columns(invocation_id="entity_id")
    )
    key = ["source", "system", "invocation_id"]
    children = (
        cases.rows.lazy()  # a lazy frame joins the selected columns only
        .filter(pl.col("entity_type") == "session", system="lionagi")
        .sort("created_at", nulls_last=False, maintain_order=True)
        .select(*key, "reason_code", status="raw_status")
        .join(ended.lazy().select(key), on=key, how="semi", maintain_order="left")
        .collect()
    )
    answers = ("invocation_status", "grading_status", "lifecycle_status", "worst_status")
    rolled_up = roll_up(ended.select(key), children, by=key).select(*key, *answers)
    both = ended.join(rolled_up, on=key, how="inner").with_columns(
        is_agreed=pl.all_horizontal(pl.col(answers[0]) == pl.col(name) for name in answers[1:3]),
        is_backed=pl.any_horizontal(pl.col("raw_status") == pl.col(name) for name in answers),
    )
    problems = {
        "audit.parent_contradicts_children": ~pl.col("is_backed"),
        "audit.rollups_disagree": pl.col("is_backed") & ~pl.col("is_agreed"),
    }
    return pl.concat(
        audit_rows(
            both.filter(is_wrong),
            code,
            at="ended_at",
            says=pl.format("invocation {} of {} sessions", word("raw_status"), "n_children"),
            against=pl.format(
                "scheduler {}, run view {}, li lifecycle {}, worst {}", *map(word, answers)
            ),
        )
        for code, is_wrong in problems.items()
    )


def roll_up(
    parents: pl.DataFrame, children: pl.DataFrame, *, by: str | Sequence[str] = "parent_id"
) -> pl.DataFrame:
    """The status of each group of child sessions, by four named rules.

    Parameters
    ----------
    parents : polars.DataFrame
        One row per parent, ``by`` unique and not null. Optional columns: ``leader_status``
        (how the parent's own process ended; default completed) and ``leader_exit_code``.
    children : polars.DataFrame
        One row per child, oldest first: ``by`` and ``status`` (as stored; null is no end).
        Optional column: ``reason_code``.
    by : str or sequence of str, default "parent_id"
        The columns that identify the parent.

    Returns
    -------
    polars.DataFrame
        The parents in their order, with

        - ``n_children`` and ``n_<status>``, ``n_open`` (no end known): counts;
        - ``worst_status``: ours, by `SEVERITY_ORDER`; null without children;
        - ``invocation_status``, ``invocation_reason_code``: the scheduler's, which
          falls back to the leader where the children do not decide;
        - ``grading_status``: `run_view`'s, null until every child has ended: the highest
          exit code, the newest of several;
        - ``lifecycle_is_terminal``, ``lifecycle_status``, ``lifecycle_outcome``: those
          of ``li lifecycle``. Words outside the vocabulary read ``unknown`` here.

    Examples
    --------
    >>> parents = pl.DataFrame({"parent_id": ["a"]})
    >>> children = pl.DataFrame({"parent_id": ["a", "a"], "status": ["failed", "cancelled"]})
    >>> roll_up(parents, children).select(
    ...     "worst_status", "invocation_status", "grading_status", "lifecycle_outcome").row(0)
    ('failed', 'failed', 'cancelled', 'cancelled')
    """
    known = (*EXIT_CODES, "running")
    status = pl.when(pl.col("status").is_in(known)).then("status").otherwise(pl.lit("unknown"))
    is_ended = pl.col("status").is_in(tuple(EXIT_CODES)).fill_null(value=False)
    exit_code = status.replace_strict(dict(EXIT_CODES), default=None, return_dtype=pl.Int64)
    code = pl.col("reason_code") if "reason_code" in children.columns else pl.lit(None, pl.String)
    counts = children.group_by(by).agg(
        *((pl.col("status") == word).sum().alias(f"n_{word}") for word in known),
        n_children=pl.len(),
        n_open=(~is_ended).sum(),
        n_interrupted=((pl.col("status") == "aborted") & (code == "run.cancelled.sigint")).sum(),
        grading_status=status.filter(exit_code == exit_code.max()).last(),
        # A child without an end comes first, then a cancelled one, then any but completed.
        lifecycle_status=pl.coalesce(
            status.filter(~is_ended).first(),
            status.filter(status.is_in(("cancelled", "aborted"))).first(),
            status.filter(status != "completed").first(),
            status.last(),
        ),
    )
    is_terminal = (pl.col("n_children") > 0) & (pl.col("n_open") == 0)
    named = {"leader_status": pl.lit("completed"), "leader_exit_code": pl.lit(None, pl.Int64)}
    missing = {name: value for name, value in named.items() if name not in parents.columns}
    rows = parents.with_columns(**missing).join(counts, on=by, how="left", maintain_order="left")
    return (
        rows.with_columns(
            pl.col("^n_.*$").fill_null(0).cast(pl.Int64),
            leader_status=pl.col("leader_status").fill_null("completed"),
        )
        .with_columns(
            worst_status=_worst_status(),
            invocation_status=_scheduler_status(),
            grading_status=pl.when(is_terminal).then("grading_status"),
            lifecycle_is_terminal=is_terminal,
        )
        .with_columns(
            invocation_reason_code=_scheduler_code(),
            lifecycle_outcome=pl.when("lifecycle_is_terminal").then(
                pl.col("lifecycle_status").replace_strict(_OUTCOMES, default="failed")
            ),
        )
        .drop(*missing, "n_interrupted")
    )


def _worst_status() -> pl.Expr:
    counts = {word: pl.col(f"n_{word}") for word in SEVERITY_ORDER if word != "unknown"}
    counts["unknown"] = pl.col("n_open") - pl.col("n_running")
    return pl.coalesce(pl.when(counts[word] > 0).then(pl.lit(word)) for word in SEVERITY_ORDER)


def _scheduler_status() -> pl.Expr:
    """Any bad end wins; a leader that returned does not prove that its children ended well."""
    n_good = pl.col("n_completed") + pl.col("n_completed_empty")
    has_children = pl.col("n_children") > 0
    is_all_good = has_children & (n_good == pl.col("n_children"))
    leader = pl.col("leader_status")
    is_empty = (is_all_good & (pl.col("n_completed_empty") > 0)) | (
        has_children & ~is_all_good & (leader == "completed")
    )
    return pl.coalesce(
        *(pl.when(pl.col(f"n_{word}") > 0).then(pl.lit(word)) for word in _SCHEDULER_ORDER),
        pl.when(is_empty).then(pl.lit("completed_empty")),
        pl.when(is_all_good).then(pl.lit("completed")),
        pl.when(leader.is_in(("completed", "timed_out", "aborted", "cancelled"))).then(leader),
        pl.lit("failed"),
    )


def _scheduler_code() -> pl.Expr:
    status = pl.col("invocation_status")
    is_interrupted = (status == "aborted") & (pl.col("n_interrupted") > 0)
    # Without a failed child, the failure is the leader's.
    is_nonzero = (pl.col("n_failed") == 0) & (pl.col("leader_exit_code") != 0)
    return (
        pl.when(is_interrupted)
        .then(pl.lit("run.cancelled.sigint"))
        .when((status == "failed") & is_nonzero)
        .then(pl.lit("run.failed.exit_nonzero"))
        .otherwise(status.replace_strict(_SCHEDULER_CODES, default=None))
    )


def reasons(cases: Cases) -> pl.DataFrame:
    """Reason codes of a domain that the entity type does not declare as its own."""
    own = {
        cycle.entity_type: [f"{prefix}." for prefix in cycle.reason_prefixes]
        for cycle in LIFECYCLES
        if cycle.has_reason_columns
    }
    code = pl.col("reason_code")
    foreign = pl.any_horizontal(
        (pl.col("entity_type") == entity_type)
        & ~pl.any_horizontal(code.str.starts_with(prefix) for prefix in prefixes)
        for entity_type, prefixes in own.items()
    )
    # Every entity type may have `legacy.imported`.
    rows = _rows(cases).filter(foreign, ~code.str.starts_with("legacy."))
    return audit_rows(
        rows,
        "audit.reason_of_other_entity",
        at=pl.coalesce("ended_at", "updated_at"),
        says=pl.format("a {} with status {}", "entity_type", word("raw_status")),
        against=pl.format("reason {}", word("reason_code")),
    )


def admin_targets(cases: Cases) -> pl.DataFrame:
    """Sessions to which an admin gave a status that only the system may give (ADR-0025)."""
    by_admin = cases.facts.transitions.filter(
        pl.any_horizontal(pl.col(name) == "admin" for name in ("writer", "actor")),
        ~pl.col("status").is_in(_ADMIN_TARGETS),
        system="lionagi",
        entity_type="session",
    )
    return audit_rows(
        by_admin,
        "audit.admin_target",
        at="at",
        says=pl.format("an admin set it to {}", word("status")),
        against=pl.lit(f"an admin may only set {', '.join(_ADMIN_TARGETS)}"),
    )


def _rows(cases: Cases) -> pl.DataFrame:
    return cases.rows.filter(system="lionagi")

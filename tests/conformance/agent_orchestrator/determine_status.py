"""One poll of many sessions: what Agent Orchestrator would decide, and write."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import need, with_defaults
from stateanalytics.systems.agent_orchestrator.statuses import legacy_status_rule
from tests.conformance.agent_orchestrator.agent_report import FRESH_S, SKEW_S, report_meaning
from tests.conformance.agent_orchestrator.detecting import DetectingBudget
from tests.conformance.agent_orchestrator.javascript_dates import milliseconds
from tests.conformance.agent_orchestrator.poll_columns import (
    ASSUMED,
    NEEDED,
    OBSERVED,
    SEEN,
    SETTING,
    STORED,
)
from tests.conformance.agent_orchestrator.poll_decision import decide
from tests.conformance.agent_orchestrator.poll_probes import (
    observe_activity,
    observe_process,
    observe_runtime,
)
from tests.conformance.agent_orchestrator.poll_record import write
from tests.conformance.agent_orchestrator.probe import probe_rule

_ENDED = ("terminated", "done")
_UNDECIDED = ("detecting", "stuck", "needs_input")


def determine_status(polls: pl.DataFrame, *, budget: DetectingBudget | None = None) -> pl.DataFrame:
    """Decide one poll of each session, from what was stored and what was observed.

    Parameters
    ----------
    polls : polars.DataFrame, shape (n_polls, ...)
        One row a poll. Stored before it: ``session_state``, ``session_reason``,
        ``pr_state``, ``pr_reason``, ``runtime_state`` and the optional rest of
        `poll_columns.STORED` and `poll_columns.SEEN`. Observed: ``at`` and the optional
        rest of `poll_columns.OBSERVED` (``runtime_probe`` and ``process_probe``: alive,
        dead, throws, from 14 May 2026 also indeterminate; ``activity``: a word, throws,
        or null; ``terminal_activity``: what the terminal looks like, null if empty).
        How it is set up: `poll_columns.SETTING`; ``stuck_threshold_s`` 0 is off.
    budget : DetectingBudget, optional
        The limits of doubt to try; Agent Orchestrator's where absent.

    Returns
    -------
    polars.DataFrame, shape (n_polls, ... + 3)
        The stored columns as they are after the poll; ``status`` (the word the poll came
        to), ``decided_by`` (which rule: see Notes) and ``is_lifecycle_changed`` (was the
        record written, which also refreshes ``stored_status``).

    Raises
    ------
    MissingColumnsError
        If a needed column is absent.

    Notes
    -----
    Agent Orchestrator's ``determineStatus`` and what its poll writes. ``decided_by``, first
    match: project_missing, indeterminate, waiting_input, activity_failure,
    activity_failure_kept, probe, pull_request, agent_report, idle, weak_evidence, recovered
    (working again), unchanged. Terminal states are not protected here: the poll loop does
    that, see `replay_polls`.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> import polars as pl
    >>> at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    >>> polls = pl.DataFrame(
    ...     {
    ...         "at": [at],
    ...         "session_state": ["working"],
    ...         "session_reason": ["task_in_progress"],
    ...         "pr_state": ["none"],
    ...         "pr_reason": ["not_created"],
    ...         "runtime_state": ["alive"],
    ...         "runtime_probe": ["dead"],
    ...         "process_probe": ["dead"],
    ...     }
    ... )
    >>> determine_status(polls).select("status", "session_reason", "decided_by").row(0)
    ('killed', 'runtime_lost', 'probe')
    """
    need(polls, NEEDED, "determine_status")
    return plan_poll(with_poll_columns(polls).lazy(), budget or DetectingBudget()).collect()


def with_poll_columns(polls: pl.DataFrame) -> pl.DataFrame:
    """Polls with every column that a poll reads: absent ones as they are assumed to be."""
    filled = with_defaults(polls, STORED | SEEN | OBSERVED | SETTING, ASSUMED)
    return filled.with_columns(
        *(pl.col(name).fill_null(value) for name, value in ASSUMED.items()),
        has_pr=pl.col("has_pr").fill_null(pl.col("scm_state").is_not_null()),
    )


def plan_poll(polls: pl.LazyFrame, budget: DetectingBudget) -> pl.LazyFrame:
    """As `determine_status`, over `with_poll_columns`, and not yet computed."""
    before = polls.with_columns(_status0=legacy_status_rule(library=pl))
    before = before.with_columns(_can_probe=(pl.col("_status0") != "spawning").fill_null(True))
    observed = observe_process(observe_activity(observe_runtime(before)))
    written = write(decide(_candidates(observed), budget), budget)
    return written.select(pl.exclude("^_.*$"))


def _candidates(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add which of the rules apply, and what their inputs are."""
    probe = probe_rule(
        runtime=pl.col("_runtime"),
        is_runtime_failed=pl.col("_runtime_failed"),
        process=pl.col("_process"),
        is_process_failed=pl.col("_process_failed"),
        can_probe=pl.col("_can_probe"),
        is_live=pl.col("_is_live"),
        activity_evidence=pl.col("_activity_evidence"),
    )
    silence_ms = milliseconds(pl.col("at")) - pl.col("_activity_ms")
    threshold_ms = pl.col("stuck_threshold_s") * 1000
    report_age_ms = milliseconds(pl.col("at")) - milliseconds(pl.col("report_at"))
    meaning = report_meaning(pl.col("report_state"), "session_state")
    is_fresh = report_age_ms.is_between(-SKEW_S * 1000, FRESH_S * 1000).fill_null(False)
    with_inputs = frame.with_columns(
        _probe_decision=probe.decision,
        _probe_reason=probe.reason,
        _probe_evidence=probe.evidence,
        _is_too_idle=(pl.col("_is_idle") & (threshold_ms > 0) & (silence_ms > threshold_ms)),
        _is_reported=is_fresh
        & meaning.is_not_null()
        & (pl.col("kind") != "orchestrator")
        & ~pl.col("session_state").is_in(_ENDED),
        _is_pr_decided=pl.col("has_pr")
        & (pl.col("scm_is_cached") | pl.col("scm_state").is_in(("merged", "closed")))
        & pl.col("scm_state").is_not_null(),
    )
    return with_inputs.with_columns(decided_by=_first_rule())


def _first_rule() -> pl.Expr:
    state = pl.col("session_state")
    is_undecided = state.is_in(_UNDECIDED) | pl.col("_status0").is_in(_UNDECIDED)
    rules = {
        "project_missing": ~pl.col("is_project_known"),
        "waiting_input": pl.col("_is_waiting"),
        "activity_failure_kept": pl.col("_has_thrown") & state.is_in(_UNDECIDED),
        "activity_failure": pl.col("_has_thrown"),
        "indeterminate": pl.col("_is_indeterminate"),
        "probe": pl.col("_probe_decision") != "none",
        "pull_request": pl.col("_is_pr_decided"),
        "agent_report": pl.col("_is_reported"),
        "idle": pl.col("_is_too_idle"),
        "weak_evidence": pl.col("_is_weak") & is_undecided,
        "recovered": pl.col("_status0").is_in(("spawning", *_UNDECIDED)),
    }
    named = (pl.when(rule).then(pl.lit(name)) for name, rule in rules.items())
    return pl.coalesce(*named, pl.lit("unchanged"))

"""What a report of an agent writes into the record of its session."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import need, with_defaults
from stateanalytics.systems.agent_orchestrator.records import pull_request_of
from stateanalytics.systems.agent_orchestrator.stored_values import is_filled
from tests.conformance.agent_orchestrator.agent_report import report_meaning, validate_reports

_NEEDED = (
    "at",
    "report_state",
    "kind",
    "session_state",
    "session_reason",
    "started_at",
    "last_transition_at",
    "pr_state",
    "pr_reason",
    "pr_number",
    "pr_url",
    "runtime_state",
)
_OPTIONAL = {
    "given_pr_url": pl.String(),
    "given_pr_number": pl.Float64(),
    "report_pr_number": pl.Int64(),
    "report_pr_url": pl.String(),
}


def apply_reports(frame: pl.DataFrame) -> pl.DataFrame:
    """Apply one report to each session, as ``ao report`` does at once.

    Parameters
    ----------
    frame : polars.DataFrame
        ``at`` (the clock, a moment in UTC), ``report_state``; the lifecycle columns
        ``kind``, ``session_state``, ``session_reason``, ``started_at``,
        ``last_transition_at``, ``pr_state``, ``pr_reason``, ``pr_number``, ``pr_url``,
        ``runtime_state``; optionally what was passed, ``given_pr_url`` and
        ``given_pr_number``, and what an earlier report left, ``report_pr_url`` and
        ``report_pr_number``.

    Returns
    -------
    polars.DataFrame
        The lifecycle columns as they are afterwards, and ``is_accepted`` (Boolean),
        ``error`` (text), ``n_audit_lines`` (0 where the report contradicts itself, else
        1), ``stored_pr_number``, ``stored_pr_url``, ``stored_is_draft`` (what the report
        adds to the flat record; null: nothing).

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Agent Orchestrator's ``applyAgentReport``. The pull request is touched only by the three
    reports about one, and only if its URL or number is known or it is already open.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> import polars as pl
    >>> at = datetime(2026, 5, 1, tzinfo=UTC)
    >>> frame = pl.DataFrame(
    ...     {
    ...         "at": [at],
    ...         "report_state": ["pr_created"],
    ...         "given_pr_url": ["https://github.com/acme/app/pull/42"],
    ...         "kind": ["worker"],
    ...         "session_state": ["working"],
    ...         "session_reason": ["task_in_progress"],
    ...         "started_at": [at],
    ...         "last_transition_at": [at],
    ...         "pr_state": ["none"],
    ...         "pr_reason": ["not_created"],
    ...         "pr_number": pl.Series([None], dtype=pl.Int64),
    ...         "pr_url": pl.Series([None], dtype=pl.String),
    ...         "runtime_state": ["alive"],
    ...     }
    ... )
    >>> apply_reports(frame).select("session_state", "pr_state", "pr_number").row(0)
    ('idle', 'open', 42)
    """
    need(frame, _NEEDED, "apply_reports")
    judged = validate_reports(with_defaults(frame, _OPTIONAL)).with_columns(**_given())
    decided = judged.with_columns(
        error=pl.coalesce("_contradiction", "rejection_reason"),
        n_audit_lines=pl.col("_contradiction").is_null().cast(pl.Int64),
    ).with_columns(is_accepted=pl.col("error").is_null())
    touched = decided.with_columns(_touches=_touches_pull_request())
    return touched.with_columns(**_effects()).select(
        pl.exclude("^_.*$", "rejection_reason", *_OPTIONAL)
    )


def _given() -> dict[str, pl.Expr]:
    url, number = pl.col("given_pr_url"), pl.col("given_pr_number")
    in_url = pl.when(is_filled(url)).then(pull_request_of(url)[2])
    is_number = (number == number.floor()) & (number > 0)
    explicit = pl.when(is_number).then(number.cast(pl.Int64, strict=False))
    contradiction = pl.concat_str(
        pl.lit("PR number "),
        explicit.cast(pl.String),
        pl.lit(" does not match PR URL "),
        url,
    )
    return {
        "_number": pl.coalesce(explicit, in_url),
        "_url": pl.when(is_filled(url)).then(url),
        "_contradiction": pl.when(explicit != in_url).then(contradiction),
    }


def _touches_pull_request() -> pl.Expr:
    is_about_one = report_meaning(pl.col("report_state"), "pr_reason").is_not_null()
    known = pl.any_horizontal(
        pl.col(name).is_not_null()
        for name in ("_url", "_number", "pr_url", "pr_number", "report_pr_url", "report_pr_number")
    )
    return pl.col("is_accepted") & is_about_one & (known | (pl.col("pr_state") != "none"))


def _effects() -> dict[str, pl.Expr]:
    ok, report, touches = pl.col("is_accepted"), pl.col("report_state"), pl.col("_touches")
    is_about_one = ok & report_meaning(report, "pr_reason").is_not_null()
    state = report_meaning(report, "session_state")
    number = pl.coalesce("_number", "pr_number", "report_pr_number")
    url = pl.coalesce("_url", "pr_url", "report_pr_url")
    starts = ok & (state == "working") & pl.col("started_at").is_null()
    return {
        "session_state": pl.when(ok).then(state).otherwise("session_state"),
        "session_reason": pl.when(ok)
        .then(report_meaning(report, "session_reason"))
        .otherwise("session_reason"),
        "started_at": pl.when(starts).then("at").otherwise("started_at"),
        "last_transition_at": pl.when(ok).then("at").otherwise("last_transition_at"),
        "pr_state": pl.when(touches).then(pl.lit("open")).otherwise("pr_state"),
        "pr_reason": pl.when(touches)
        .then(report_meaning(report, "pr_reason"))
        .otherwise("pr_reason"),
        "pr_number": pl.when(touches).then(number).otherwise("pr_number"),
        "pr_url": pl.when(touches).then(url).otherwise("pr_url"),
        "stored_pr_number": pl.when(is_about_one).then("_number"),
        "stored_pr_url": pl.when(is_about_one).then("_url"),
        "stored_is_draft": pl.when(is_about_one).then(report_meaning(report, "is_draft")),
    }

"""What the state of a pull request makes of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import narwhals as nw
import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import (
    FrameT,
    add_columns,
    need,
    with_defaults,
)
from stateanalytics.systems.agent_orchestrator.records import pull_request_of


def parse_pull_request_urls(frame: pl.DataFrame, *, column: str = "pr_url") -> pl.DataFrame:
    """Add the owner, repository and number that a pull request's URL names.

    Parameters
    ----------
    frame : polars.DataFrame
        With the text column ``column``.
    column : str, default "pr_url"
        The column of URLs.

    Returns
    -------
    polars.DataFrame
        With ``pr_owner``, ``pr_repository`` (text; null where only a number is known)
        and ``pr_number`` (Int64; null where the text names no pull request).

    Raises
    ------
    MissingColumnsError
        If the column is absent.

    Notes
    -----
    Agent Orchestrator's ``parsePrFromUrl``: GitHub's ``/pull/N`` on any host, GitLab's
    ``/-/merge_requests/N``, else the digits after the last slash of the raw text.

    Examples
    --------
    >>> import polars as pl
    >>> urls = pl.DataFrame({"pr_url": ["https://github.com/acme/app/pull/42/files", "a/7", "7"]})
    >>> parse_pull_request_urls(urls)["pr_number"].to_list()
    [42, 7, None]
    """
    need(frame, [column], "parse_pull_request_urls")
    owner, repository, number = pull_request_of(pl.col(column))
    return frame.with_columns(pr_owner=owner, pr_repository=repository, pr_number=number)


# Evidence word -> status, session state, session reason, pull request state and reason.
_DECISIONS: Mapping[str, tuple[str, str, str, str, str]] = {
    "pr_merged": ("merged", "idle", "merged_waiting_decision", "merged", "merged"),
    "pr_closed": ("idle", "idle", "pr_closed_waiting_decision", "closed", "closed_unmerged"),
    "ci_failing": ("ci_failed", "working", "fixing_ci", "open", "ci_failing"),
    "review_changes_requested": (
        "changes_requested",
        "working",
        "resolving_review_comments",
        "open",
        "changes_requested",
    ),
    "merge_ready": ("mergeable", "idle", "awaiting_external_review", "open", "merge_ready"),
    "review_approved": ("approved", "idle", "awaiting_external_review", "open", "approved"),
    "review_pending": (
        "review_pending",
        "idle",
        "awaiting_external_review",
        "open",
        "review_pending",
    ),
    "idle_beyond_threshold": ("stuck", "stuck", "probe_failure", "open", "in_progress"),
    "pr_open": ("pr_open", "idle", "pr_created", "open", "in_progress"),
}


class PullRequestDecision(NamedTuple):
    """One decision over a pull request, as expressions over one frame."""

    status: pl.Expr
    session_state: pl.Expr
    session_reason: pl.Expr
    pr_state: pl.Expr
    pr_reason: pl.Expr
    evidence: pl.Expr


def pull_request_rule(
    *,
    state: pl.Expr,
    ci: pl.Expr,
    review: pl.Expr,
    is_mergeable: pl.Expr,
    is_idle_too_long: pl.Expr,
    is_blocked: pl.Expr,
    activity_evidence: pl.Expr,
) -> PullRequestDecision:
    """The decision over a pull request, as expressions; see `decide_pull_request`."""
    conditions = {
        "pr_merged": state == "merged",
        "pr_closed": state == "closed",
        "ci_failing": ci == "failing",
        "review_changes_requested": review == "changes_requested",
        "merge_ready": review.is_in(("approved", "none")) & is_mergeable,
        "review_approved": review == "approved",
        "review_pending": review == "pending",
        "idle_beyond_threshold": is_idle_too_long,
    }
    words = list(_DECISIONS)
    word = pl.coalesce(
        *(pl.when(condition).then(pl.lit(name)) for name, condition in conditions.items()),
        pl.lit("pr_open"),
    )
    status, session_state, reason, pr_state, pr_reason = (
        word.replace_strict(words, values, return_dtype=pl.String)
        for values in zip(*_DECISIONS.values(), strict=True)
    )
    is_stuck = word == "idle_beyond_threshold"
    return PullRequestDecision(
        status=status,
        session_state=session_state,
        session_reason=pl.when(is_stuck & is_blocked)
        .then(pl.lit("error_in_process"))
        .otherwise(reason),
        pr_state=pr_state,
        pr_reason=pr_reason,
        evidence=pl.when(is_stuck)
        .then(pl.concat_str(word, pl.lit(" "), activity_evidence))
        .otherwise(word),
    )


def decide_pull_request(frame: pl.DataFrame) -> pl.DataFrame:
    """Decide what a session is by its pull request.

    Parameters
    ----------
    frame : polars.DataFrame
        ``scm_state`` (open, merged, closed), ``scm_ci`` (none, pending, passing,
        failing), ``scm_review`` (none, pending, approved, changes_requested),
        ``scm_is_mergeable`` (Boolean), ``is_idle_too_long`` (Boolean), and optionally
        ``is_idle_blocked`` (Boolean) and ``activity_evidence`` (text).

    Returns
    -------
    polars.DataFrame
        With ``status``, ``session_state``, ``session_reason``, ``pr_state``,
        ``pr_reason``, ``evidence``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Agent Orchestrator's ``resolvePREnrichmentDecision``, first match: merged, closed, CI
    failing, changes requested, mergeable (approved, or no review asked for), approved,
    review pending, idle too long, open. So silence makes a session stuck only where
    nothing else is known of its pull request.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "scm_state": ["open", "open"],
    ...         "scm_ci": ["failing", "passing"],
    ...         "scm_review": ["approved", "none"],
    ...         "scm_is_mergeable": [True, True],
    ...         "is_idle_too_long": [True, True],
    ...     }
    ... )
    >>> decide_pull_request(frame)["status"].to_list()
    ['ci_failed', 'mergeable']
    """
    names = ["scm_state", "scm_ci", "scm_review", "scm_is_mergeable", "is_idle_too_long"]
    need(frame, names, "decide_pull_request")
    optional = {"is_idle_blocked": pl.Boolean(), "activity_evidence": pl.String()}
    filled = with_defaults(frame, optional)
    decision = pull_request_rule(
        state=pl.col("scm_state"),
        ci=pl.col("scm_ci"),
        review=pl.col("scm_review"),
        is_mergeable=pl.col("scm_is_mergeable"),
        is_idle_too_long=pl.col("is_idle_too_long"),
        is_blocked=pl.col("is_idle_blocked"),
        activity_evidence=pl.col("activity_evidence").fill_null(""),
    )
    return filled.with_columns(**decision._asdict())


def pull_request_events(frame: FrameT) -> FrameT:
    """Add the event that a change of the pull request's state emits.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``previous_pr_state`` and ``pr_state``.

    Returns
    -------
    The same kind of frame
        With ``pr_event``: ``pr.closed`` on entering *closed*, else null. Merging and
        opening emit nothing by themselves.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"previous_pr_state": ["open"] * 2, "pr_state": ["closed", "merged"]})
    >>> pull_request_events(frame)["pr_event"].to_list()
    ['pr.closed', None]
    """
    is_closing = (nw.col("pr_state") == "closed") & (nw.col("previous_pr_state") != "closed")
    rules = {"pr_event": nw.when(is_closing).then(nw.lit("pr.closed"))}
    return add_columns(frame, ["previous_pr_state", "pr_state"], "pull_request_events", rules)

"""The status of the Go rewrite, which stores none and derives it on every read."""

from __future__ import annotations

from typing import Any

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns

NO_SIGNAL_S = 90.0
"""A harness with hooks that has been silent for longer since its start has no signal."""

PULL_REQUEST_STATUSES = (
    "ci_failed",
    "changes_requested",
    "draft",
    "review_pending",
    "pr_open",
    "approved",
    "mergeable",
)
"""The statuses of an open pull request, from the worst."""


def classify_go_pull_requests(frame: FrameT) -> FrameT:
    """Add the status of each pull request of the Go rewrite.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``pr_state`` (draft, open, merged, closed), ``ci_state``, ``review_decision``,
        ``mergeability`` (words of its ``pr`` table), ``n_unresolved_comments``.

    Returns
    -------
    The same kind of frame
        With ``pr_status``: one of `PULL_REQUEST_STATUSES`, or merged or closed; and
        ``pr_rank``, its place in that order (null where it is not open).

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "pr_state": ["open", "draft"],
    ...         "ci_state": ["passing", "failing"],
    ...         "review_decision": ["review_required", "none"],
    ...         "mergeability": ["unknown", "unknown"],
    ...         "n_unresolved_comments": [0, 0],
    ...     }
    ... )
    >>> classify_go_pull_requests(frame)["pr_status"].to_list()
    ['review_pending', 'ci_failed']
    """
    review, merge = nw.col("review_decision"), nw.col("mergeability")
    needs_changes = (review == "changes_requested") | (nw.col("n_unresolved_comments") > 0)
    status: Any = nw.lit("pr_open")
    # From the last match to the first: the first one wins.
    for condition, word in (
        (review == "approved", "approved"),
        (merge == "blocked", "pr_open"),
        (review == "review_required", "review_pending"),
        (merge == "mergeable", "mergeable"),
        (needs_changes, "changes_requested"),
        (nw.col("pr_state") == "draft", "draft"),
        (nw.col("ci_state") == "failing", "ci_failed"),
        (nw.col("pr_state") == "closed", "closed"),
        (nw.col("pr_state") == "merged", "merged"),
    ):
        status = nw.when(condition).then(nw.lit(word)).otherwise(status)
    rank: Any = nw.lit(None, nw.Int64())
    for place, word in enumerate(PULL_REQUEST_STATUSES):
        rank = nw.when(nw.col("pr_status") == word).then(nw.lit(place)).otherwise(rank)
    names = ["pr_state", "ci_state", "review_decision", "mergeability", "n_unresolved_comments"]
    function = "classify_go_pull_requests"
    return add_columns(frame, names, function, {"pr_status": status}, {"pr_rank": rank})


def derive_go_status(frame: FrameT, *, no_signal_s: float = NO_SIGNAL_S) -> FrameT:
    """Add the status of each session of the Go rewrite.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``is_terminated``, ``activity_state``, ``activity_age_s`` (since the last
        activity, or the start), ``has_hooks`` (does its harness signal), ``has_signal``
        (did it ever), and of its pull requests: ``has_merged_pr`` and
        ``worst_pr_status`` (of the open ones; null: none is open).
    no_signal_s : float, default 90
        The silence after which a harness with hooks counts as silent.

    Returns
    -------
    The same kind of frame
        With ``status``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    First match: terminated (merged, if a pull request was), active, exited, waiting or
    blocked, the worst open pull request, merged, no signal, idle.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "is_terminated": [False],
    ...         "activity_state": ["idle"],
    ...         "activity_age_s": [91.0],
    ...         "has_hooks": [True],
    ...         "has_signal": [False],
    ...         "has_merged_pr": [False],
    ...         "worst_pr_status": pl.Series([None], dtype=pl.String),
    ...     }
    ... )
    >>> derive_go_status(frame)["status"].item()
    'no_signal'
    """
    activity, worst = nw.col("activity_state"), nw.col("worst_pr_status")
    is_silent = (
        nw.col("has_hooks") & ~nw.col("has_signal") & (nw.col("activity_age_s") > no_signal_s)
    )
    ended = nw.when(nw.col("has_merged_pr")).then(nw.lit("merged")).otherwise(nw.lit("terminated"))
    status: Any = nw.lit("idle")
    for condition, word in (
        (is_silent, nw.lit("no_signal")),
        (nw.col("has_merged_pr"), nw.lit("merged")),
        (~worst.is_null(), worst),
        (activity.is_in(("waiting_input", "blocked")), nw.lit("needs_input")),
        (activity == "exited", nw.lit("exited")),
        (activity == "active", nw.lit("working")),
        (nw.col("is_terminated"), ended),
    ):
        status = nw.when(condition).then(word).otherwise(status)
    names = ["is_terminated", "activity_state", "activity_age_s", "has_hooks", "has_signal"]
    names += ["has_merged_pr", "worst_pr_status"]
    return add_columns(frame, names, "derive_go_status", {"status": status})

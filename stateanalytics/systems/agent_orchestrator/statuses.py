"""The one status that each generation of Agent Orchestrator derives and shows."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns, choose
from stateanalytics.systems.agent_orchestrator.words import TERMINAL_STATUSES, VERSIONS, Version

_BY_STATE = {
    "not_started": "spawning",
    "needs_input": "needs_input",
    "stuck": "stuck",
    "done": "done",
    "detecting": "detecting",
}
_BY_END = {
    "manually_killed": "killed",
    "runtime_lost": "killed",
    "auto_cleanup": "cleanup",
    "pr_merged": "cleanup",
    "error_in_process": "errored",
    "probe_failure": "errored",
}
_BY_PULL_REQUEST = {
    "ci_failing": "ci_failed",
    "changes_requested": "changes_requested",
    "review_pending": "review_pending",
    "approved": "approved",
    "merge_ready": "mergeable",
}
_KEPT_BY_TRINITY = ("cleanup", "errored", "killed", "terminated")


def legacy_status_rule(
    version: Version = "head",
    *,
    library: Any = nw,
    prefix: str = "",
) -> Any:
    """The legacy status as one expression over session and pull request columns.

    Parameters
    ----------
    version : {"trinity", "head", "final"}, default "head"
        Whose rule. Trinity keeps the previous terminal word of a terminated session.
    library : module, default narwhals
        ``narwhals``, or ``polars`` inside a polars expression.
    prefix : str, default ""
        What stands before the column names, such as ``"before_"``.

    Returns
    -------
    narwhals.Expr or polars.Expr
        Text; null where the session state is null or no known word.

    Notes
    -----
    Agent Orchestrator's ``deriveLegacyStatus``. Runtime, kind and times never matter.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "session_state": ["working"],
    ...         "session_reason": ["fixing_ci"],
    ...         "pr_state": ["open"],
    ...         "pr_reason": ["ci_failing"],
    ...     }
    ... )
    >>> frame.select(legacy_status_rule(library=pl)).item()
    'ci_failed'
    """
    when, lit = library.when, library.lit
    state, reason, pr_state, pr_reason = (
        library.col(prefix + name)
        for name in ("session_state", "session_reason", "pr_state", "pr_reason")
    )
    if version == "trinity":
        previous = library.col(prefix + "previous_status")
        ended = when(previous.is_in(_KEPT_BY_TRINITY)).then(previous).otherwise(lit("terminated"))
    else:
        ended = _lookup(library, reason, _BY_END, lit("terminated"))
    at_work = (
        when(pr_state == "merged")
        .then(lit("merged"))
        .otherwise(
            when(pr_state == "open")
            .then(_lookup(library, pr_reason, _BY_PULL_REQUEST, lit("pr_open")))
            .otherwise(state)
        )
    )
    rest = when(state.is_in(("working", "idle"))).then(at_work)
    rest = when(state == "terminated").then(ended).otherwise(rest)
    return _lookup(library, state, _BY_STATE, rest)


def derive_legacy_status(frame: FrameT, *, version: Version = "head") -> FrameT:
    """Add the one word that Agent Orchestrator shows for the three axes.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``session_state``, ``session_reason``, ``pr_state``, ``pr_reason``; for Trinity,
        in place of the session's reason, ``previous_status``: the flat status that was
        stored before (may be null).
    version : {"trinity", "head", "final"}, default "head"
        Whose rule; *head* and *final* are the same.

    Returns
    -------
    The same kind of frame
        With ``legacy_status``; null where the session state is no known word.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ArgumentError
        If the version is unknown.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "session_state": ["stuck", "terminated"],
    ...         "session_reason": ["probe_failure", "pr_merged"],
    ...         "pr_state": ["open", "merged"],
    ...         "pr_reason": ["approved", "merged"],
    ...     }
    ... )
    >>> derive_legacy_status(frame)["legacy_status"].to_list()
    ['stuck', 'cleanup']
    """
    choose(version, VERSIONS, "version")
    second = "previous_status" if version == "trinity" else "session_reason"
    names = ["session_state", second, "pr_state", "pr_reason"]
    rule = {"legacy_status": legacy_status_rule(version)}
    return add_columns(frame, names, "derive_legacy_status", rule)


def classify_terminality(frame: FrameT, *, version: Version = "head") -> FrameT:
    """Add whether a session counts as terminal, and whether it may be restored.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``has_lifecycle`` (Boolean), ``session_state``, ``pr_state``, ``runtime_state``,
        ``status`` (legacy word), ``activity``.
    version : {"trinity", "head", "final"}, default "head"
        Trinity does not restore what is merged.

    Returns
    -------
    The same kind of frame
        With Booleans ``is_terminal`` and ``is_restorable``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Agent Orchestrator's ``isTerminalSession`` and ``isRestorable``. It is one of three
    notions of *terminal* there: it counts a stuck session whose process is gone, which the
    poll loop (`TERMINAL_STATUSES`) and the dashboard do not.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "has_lifecycle": [True, False],
    ...         "session_state": ["stuck", None],
    ...         "pr_state": ["none", None],
    ...         "runtime_state": ["exited", None],
    ...         "status": ["stuck", "working"],
    ...         "activity": [None, "active"],
    ...     }
    ... )
    >>> classify_terminality(frame)["is_terminal"].to_list()
    [True, False]
    """
    choose(version, VERSIONS, "version")
    names = ["has_lifecycle", "session_state", "pr_state", "runtime_state", "status", "activity"]
    by_axes = (
        _is_in(nw.col("session_state"), ("done", "terminated"))
        | _is_in(nw.col("pr_state"), ("merged",))
        | _is_in(nw.col("runtime_state"), ("missing", "exited"))
    )
    by_word = _is_in(nw.col("status"), TERMINAL_STATUSES) | _is_in(nw.col("activity"), ("exited",))
    is_terminal = nw.when(nw.col("has_lifecycle")).then(by_axes).otherwise(by_word)
    is_restorable = is_terminal
    if version == "trinity":
        is_merged = _is_in(nw.col("status"), ("merged",)) | (
            nw.col("has_lifecycle") & _is_in(nw.col("pr_state"), ("merged",))
        )
        is_restorable = is_terminal & ~is_merged
    rules = {"is_terminal": is_terminal, "is_restorable": is_restorable}
    return add_columns(frame, names, "classify_terminality", rules)


def _is_in(column: Any, words: tuple[str, ...]) -> Any:
    return column.is_in(words).fill_null(False)


def _lookup(library: Any, column: Any, table: dict[str, str], otherwise: Any) -> Any:
    """The value of a word in a table: one look-up in polars, elsewhere a chain of conditions."""
    if library is pl:
        words, values = list(table), list(table.values())
        return column.replace_strict(words, values, default=otherwise, return_dtype=pl.String)
    rule = otherwise
    for word, value in table.items():
        rule = library.when(column == word).then(library.lit(value)).otherwise(rule)
    return rule


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

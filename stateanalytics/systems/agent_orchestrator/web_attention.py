"""The column of the dashboard that a session stands in."""

from __future__ import annotations

from typing import Any

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns


def classify_web_attention(frame: FrameT) -> FrameT:
    """Add how much attention Agent Orchestrator's dashboard asks for.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``session_state``, ``pr_state``, ``pr_reason`` (null: the record has no lifecycle),
        ``status`` (legacy word) and ``activity``.

    Returns
    -------
    The same kind of frame
        With ``web_attention`` (done, merge, respond, review, pending, working) and
        ``web_attention_simple``, where respond and review are both action.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Agent Orchestrator's ``getAttentionLevel``, without the live details of a pull request.
    An approved pull request beats a stuck session: it is shown as merge. Where there is no
    lifecycle, the words of the status stand for those of the axes.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "session_state": ["stuck", "stuck"],
    ...         "pr_state": ["open", "none"],
    ...         "pr_reason": ["approved", "not_created"],
    ...         "status": ["stuck", "stuck"],
    ...         "activity": ["idle", "idle"],
    ...     }
    ... )
    >>> classify_web_attention(frame)["web_attention"].to_list()
    ['merge', 'respond']
    """
    state, reason, status = nw.col("session_state"), nw.col("pr_reason"), nw.col("status")
    bare = state.is_null()
    levels = {
        "pending": reason.is_in(("review_pending", "closed_unmerged"))
        | (bare & (status == "review_pending")),
        "review": reason.is_in(("ci_failing", "changes_requested"))
        | (bare & status.is_in(("ci_failed", "changes_requested"))),
        "respond": state.is_in(("detecting", "needs_input", "stuck"))
        | (status == "errored")
        | (bare & status.is_in(("detecting", "needs_input", "stuck")))
        | nw.col("activity").is_in(("waiting_input", "blocked", "exited")),
        "merge": reason.is_in(("merge_ready", "approved"))
        | status.is_in(("mergeable", "approved")),
        "done": state.is_in(("done", "terminated"))
        | (nw.col("pr_state") == "merged")
        | (bare & status.is_in(("merged", "killed", "cleanup", "done", "terminated"))),
    }
    level: Any = nw.lit("working")
    for word, condition in levels.items():
        level = nw.when(condition.fill_null(False)).then(nw.lit(word)).otherwise(level)
    is_action = nw.col("web_attention").is_in(("respond", "review"))
    simple = nw.when(is_action).then(nw.lit("action")).otherwise(nw.col("web_attention"))
    names = ["session_state", "pr_state", "pr_reason", "status", "activity"]
    function = "classify_web_attention"
    levels_rule = {"web_attention": level}
    return add_columns(frame, names, function, levels_rule, {"web_attention_simple": simple})

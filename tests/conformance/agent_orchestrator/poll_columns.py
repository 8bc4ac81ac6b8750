"""The columns of one poll of one session: what was stored, what was observed."""

from __future__ import annotations

import polars as pl

MOMENT = pl.Datetime("us", "UTC")

STORED: dict[str, pl.DataType] = {
    "session_state": pl.String(),
    "session_reason": pl.String(),
    "started_at": MOMENT,
    "completed_at": MOMENT,
    "terminated_at": MOMENT,
    "last_transition_at": MOMENT,
    "pr_state": pl.String(),
    "pr_reason": pl.String(),
    "runtime_state": pl.String(),
    "runtime_reason": pl.String(),
    "evidence": pl.String(),
    "detecting_attempts": pl.Int64(),
    "detecting_started_at": MOMENT,
    "detecting_hash": pl.String(),
    "detecting_escalated_at": MOMENT,
    "stored_status": pl.String(),
}
"""What a poll reads from a session's record, and writes back."""

SEEN: dict[str, pl.DataType] = {
    "kind": pl.String(),
    "seen_status": pl.String(),
    "report_state": pl.String(),
    "report_at": MOMENT,
}
"""What a poll only reads: the session's kind, the poller's memory, the last report."""

OBSERVED: dict[str, pl.DataType] = {
    "at": MOMENT,
    "runtime_probe": pl.String(),
    "process_probe": pl.String(),
    "activity": pl.String(),
    "activity_at": MOMENT,
    "activity_source": pl.String(),
    "terminal_activity": pl.String(),
    "scm_state": pl.String(),
    "scm_ci": pl.String(),
    "scm_review": pl.String(),
    "scm_is_mergeable": pl.Boolean(),
}
"""What a poll finds out."""

SETTING: dict[str, pl.DataType] = {
    "is_project_known": pl.Boolean(),
    "has_handle": pl.Boolean(),
    "has_workspace": pl.Boolean(),
    "has_agent": pl.Boolean(),
    "has_pr": pl.Boolean(),
    "scm_is_cached": pl.Boolean(),
    "runtime_name": pl.String(),
    "stuck_threshold_s": pl.Float64(),
}
"""How the session is set up, and what a poll assumes where it is not said."""

ASSUMED: dict[str, object] = {
    "kind": "worker",
    "activity_source": "native",
    "detecting_attempts": 0,
    "is_project_known": True,
    "has_handle": True,
    "has_workspace": True,
    "has_agent": True,
    "scm_is_cached": True,
    "runtime_name": "tmux",
    "stuck_threshold_s": 600.0,
}
NEEDED = ("at", "session_state", "session_reason", "pr_state", "pr_reason", "runtime_state")

"""The words of Agent Orchestrator, each vocabulary once.

A word's place in its tuple is its place in Agent Orchestrator's own declaration.
"""

from __future__ import annotations

from typing import Final

KINDS: Final = ("worker", "orchestrator")

LEGACY_STATUSES: Final = (
    "spawning",
    "working",
    "detecting",
    "pr_open",
    "ci_failed",
    "review_pending",
    "changes_requested",
    "approved",
    "mergeable",
    "merged",
    "cleanup",
    "needs_input",
    "stuck",
    "errored",
    "killed",
    "idle",
    "done",
    "terminated",
)
TERMINAL_STATUSES: Final = ("killed", "terminated", "done", "cleanup", "errored", "merged")
"""The derived statuses that the poll loop leaves alone."""

SESSION_STATES: Final = (
    "not_started",
    "working",
    "idle",
    "needs_input",
    "stuck",
    "detecting",
    "done",
    "terminated",
)
SESSION_REASONS: Final = (
    "spawn_requested",
    "agent_acknowledged",
    "task_in_progress",
    "pr_created",
    "pr_closed_waiting_decision",
    "fixing_ci",
    "resolving_review_comments",
    "awaiting_user_input",
    "awaiting_external_review",
    "research_complete",
    "merged_waiting_decision",
    "manually_killed",
    "pr_merged",
    "auto_cleanup",
    "runtime_lost",
    "agent_process_exited",
    "probe_failure",
    "error_in_process",
)
PR_STATES: Final = ("none", "open", "merged", "closed")
PR_REASONS: Final = (
    "not_created",
    "in_progress",
    "ci_failing",
    "review_pending",
    "changes_requested",
    "approved",
    "merge_ready",
    "merged",
    "closed_unmerged",
    "cleared_on_restore",
)
RUNTIME_STATES: Final = ("unknown", "alive", "exited", "missing", "probe_failed")
RUNTIME_REASONS: Final = (
    "spawn_incomplete",
    "process_running",
    "process_missing",
    "tmux_missing",
    "manual_kill_requested",
    "pr_merged_cleanup",
    "auto_cleanup",
    "probe_error",
)
REPORT_STATES: Final = (
    "started",
    "working",
    "waiting",
    "needs_input",
    "fixing_ci",
    "addressing_reviews",
    "pr_created",
    "draft_pr_created",
    "ready_for_review",
    "completed",
)


PAYLOAD_WORDS: Final = {
    "kind": KINDS,
    "session_state": SESSION_STATES,
    "session_reason": SESSION_REASONS,
    "pr_state": PR_STATES,
    "pr_reason": PR_REASONS,
    "runtime_state": RUNTIME_STATES,
    "runtime_reason": RUNTIME_REASONS,
}
"""The words that each field of a lifecycle payload may hold."""

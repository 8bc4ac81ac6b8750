"""The status words that lionagi writes, as far as reading needs them.

What a word *means* is decided in `rules`; here only: is it known, is it an end, and
must such an end have a time.
"""

from __future__ import annotations

_PROCESS_ENDS = ("completed", "completed_empty", "failed", "timed_out", "aborted", "cancelled")

KNOWN: dict[str, tuple[str, ...]] = {
    "session": ("running", *_PROCESS_ENDS),
    "branch": ("running", *_PROCESS_ENDS),
    "invocation": ("running", *_PROCESS_ENDS),
    "show": ("active", "imported", "completed", "aborted"),
    "play": (
        "pending",
        "prepared",
        "running",
        "redoing",
        "running_complete",
        "gated",
        "merged",
        "gate_failed",
        "escalated",
        "blocked",
        "aborted_after_finish",
    ),
    # Schedules have no status column: `enabled` 1/0 is read as these words.
    "schedule": ("enabled", "disabled", "deleted"),
    "schedule_run": (
        "queued",
        "waiting_dependency",
        "running",
        "retry_wait",
        "completed",
        "failed",
        "timed_out",
        "skipped",
        "cancelled",
    ),
    "team": ("active", "archived"),
    "engine_run": ("running", "completed", "failed", "cancelled"),
    "dispatch": ("pending", "delivering", "delivered", "acked", "dead_letter", "expired"),
}

# Ends of work that ran, so that a missing time is a gap: a skipped fire or a play that
# was blocked before it began has no end to record.
ENDS_WITH_A_TIME: dict[str, tuple[str, ...]] = {
    "session": _PROCESS_ENDS,
    "invocation": _PROCESS_ENDS,
    "schedule_run": ("completed", "failed", "timed_out"),
    "engine_run": ("completed", "failed", "cancelled"),
}
RUNNING: dict[str, tuple[str, ...]] = {
    "session": ("running",),
    "invocation": ("running",),
    "play": ("running", "prepared"),
    "schedule_run": ("queued", "waiting_dependency", "running"),
    "engine_run": ("running",),
}

"""After how long an open execution is judged, as values that a caller can change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """Limits of the mapping to ADR-0033's health; seconds, but for the last.

    Attributes
    ----------
    stalled_after_s : float
        Without any event of the session.
    dead_after_s : float
        Without any event, and without a claim to resume it.
    tool_factor : float
        How much longer both may take while a tool is at work.
    retry_grace_s : float
        How long a retry may be overdue.
    min_runaway_steps : int
        Steps of one execution that finished for an unknown reason.
    """

    stalled_after_s: float = 600.0
    dead_after_s: float = 3600.0
    tool_factor: float = 6.0
    retry_grace_s: float = 60.0
    min_runaway_steps: int = 10

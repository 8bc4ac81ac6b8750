"""The six words that lionagi's own pages show for a run, to compare ours with.

Kept exact, quirks included: whatever the pages do not know (an empty completion, a
merged play, a failed gate) is shown as *running*, and a timeout as *cancelled*.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import narwhals as nw

from stateanalytics.core.engines import TEXT, adapt

ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "running": (
            "running",
            "executing",
            "in_progress",
            "director-managed",
            "open",
            "needs_review",
            "blocked",
            "gated",
        ),
        "completed": (
            "completed",
            "done",
            "success",
            "finished",
            "running_complete",
            "director-managed-complete",
        ),
        "failed": ("failed", "error", "failure"),
        "cancelled": ("cancelled", "canceled", "aborted", "timed_out", "timeout"),
        "queued": ("queued", "pending", "planned", "received", "waiting", "scheduled"),
        "orphaned": ("orphaned",),
    }
)
UNSUCCESSFUL = ("failed", "cancelled", "orphaned")
DEAD_HEALTHS = ("stale", "orphaned", "zombie")
REAPED_MESSAGE = "phantom_reaped"
LOCKS_CODE = "session.zombie.stale_locks"


def with_display_status(frame: Any) -> Any:
    """The word a page shows for each run, and the three judgements that follow from it.

    Parameters
    ----------
    frame : frame
        ``status``, ``reason_code``, ``reason_message`` as stored and ``session_health``
        (ADR-0024's word): text.

    Returns
    -------
    frame
        The same rows and kind with ``display_status`` (queued, running, completed,
        failed, cancelled, orphaned) and the Booleans ``is_orphaned_reason``,
        ``is_unsuccessful_terminal`` and ``is_effectively_active``.

    Examples
    --------
    >>> import polars as pl
    >>> row = {"status": "completed_empty", "reason_code": None, "reason_message": None,
    ...        "session_health": "stale"}
    >>> with_display_status(pl.DataFrame([row]))["display_status"].to_list()
    ['running']
    """
    word = nw.col("status").str.strip_chars().str.to_lowercase()
    is_reaped = (nw.col("reason_message") == REAPED_MESSAGE).fill_null(False)
    has_locks = (nw.col("reason_code") == LOCKS_CODE).fill_null(False)
    display = nw.col("display_status")
    is_dead = nw.col("session_health").is_in(DEAD_HEALTHS).fill_null(False)
    is_active = (display == "queued") | ((display == "running") & ~is_dead)
    adapter = adapt(frame, dict.fromkeys(_NEEDED, TEXT), "with_display_status")
    return adapter.give_back(
        adapter.frame.with_columns(is_orphaned_reason=is_reaped & ~has_locks)
        .with_columns(
            display_status=nw.when(nw.col("is_orphaned_reason"))
            .then(nw.lit("orphaned"))
            .otherwise(word.replace_strict(_DISPLAY_OF, default="running", return_dtype=nw.String))
            .fill_null("running")
        )
        .with_columns(
            is_unsuccessful_terminal=display.is_in(UNSUCCESSFUL),
            is_effectively_active=is_active,
        )
    )


_NEEDED = ("status", "reason_code", "reason_message", "session_health")
_DISPLAY_OF = {word: shown for shown, words in ALIASES.items() for word in words}

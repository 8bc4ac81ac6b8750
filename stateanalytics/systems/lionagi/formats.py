"""Which generation of lionagi's storage a file is, by what it has and never by its label.

``schema_meta.version`` says '1' for five releases and `PRAGMA user_version` is always
0, so only tables and columns tell. A migrated store looks like the release that
migrated it, though its old rows keep their gaps: that a column exists does not mean
that data was recorded in it.
"""

from __future__ import annotations

from collections.abc import Mapping

NEEDED = ("sessions", "branches", "progressions")

# Newest first: (releases that store so, table, column; None: the table itself).
_FEATURES: tuple[tuple[str, str, str | None], ...] = (
    ("0.36.0", "sessions", "user_label"),
    ("0.35.1 to 0.35.5", "sessions", "ended_at_is_approximate"),
    ("0.34.1 to 0.35.0", "attention_dispositions", None),
    ("0.33.0", "session_controls", "claimed_at"),
    ("0.31.0 to 0.32.0", "sessions", "run_id"),
    ("0.29.1 to 0.30.2", "sessions", "cc_session_id"),
    ("0.29.0", "schedule_runs", "lease_attempts"),
    ("0.28.0", "dispatch_outbox", None),
    ("0.27.2", "sessions", "total_cost_usd"),
    ("0.27.0 to 0.27.1", "session_signals", None),
    ("0.26.15 to 0.26.18", "sessions", "current_phase"),
    ("0.26.7 to 0.26.14", "status_transitions", None),
    ("0.26.2 to 0.26.6", "schedules", None),
    ("0.26.1", "invocations", None),
    ("0.26.0", "sessions", "status"),
)


def is_lionagi(tables: Mapping[str, tuple[str, ...]]) -> bool:
    """Do these tables make a lionagi store: sessions that point at progressions.

    Examples
    --------
    >>> is_lionagi({"sessions": ("id",), "users": ("id",)})
    False
    """
    return all(table in tables for table in NEEDED) and "progression_id" in tables["sessions"]


def generation(tables: Mapping[str, tuple[str, ...]]) -> str:
    """The releases whose storage this is, as text.

    Parameters
    ----------
    tables : mapping of str to tuple of str
        The tables that exist, each with its columns.

    Returns
    -------
    str
        ``lionagi <releases>``: by the newest feature of which something is here.

    Examples
    --------
    >>> generation({"sessions": ("id", "status")})
    'lionagi 0.26.0'
    >>> generation({"sessions": ("id", "status", "run_id"), "dispatch_outbox": ()})
    'lionagi 0.31.0 to 0.32.0'
    """
    for releases, table, column in _FEATURES:
        if table in tables and (column is None or column in tables[table]):
            return f"lionagi {releases}"
    return "lionagi before 0.26.0"

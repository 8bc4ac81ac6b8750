"""Status pills: a colour, an icon and a word together, so that no one of them matters alone.

The word is ADR-0025's effective state, the icon is that of its status; the colour is
that of ADR-0033's tone, which rules where the two differ (an abort is grey in the one
and red in the other).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from stateanalytics.reporting.material import Plain

TOKEN_OF_TONE: Mapping[str, str] = MappingProxyType(
    {
        "danger": "error",
        "warning": "warning",
        "info": "running",
        "success": "success",
        "neutral": "neutral",
    }
)
# Icons that the ADR names for the six statuses, and one for silence.
ICON_OF_LIFECYCLE: Mapping[str, str] = MappingProxyType(
    {
        "running": "activity",
        "active": "activity",
        "enabled": "activity",
        "completed": "check",
        "succeeded": "check",
        "merged": "check",
        "run_complete": "check",
        "failed": "x-circle",
        "timed_out": "hourglass",
        "aborted": "stop",
        "cancelled": "slash",
        "skipped": "slash",
        "blocked": "stop",
    }
)
STALE_ICON = "clock"
OTHER_ICON = "dash"


def pill_of(row: Mapping[str, Any]) -> Plain:
    """How the state of one entity is drawn.

    Parameters
    ----------
    row : mapping
        ``lifecycle``, ``tone``, ``effective_state`` and ``is_legacy``.

    Returns
    -------
    dict
        ``label``, ``token`` (of ADR-0025's colours), ``icon`` and ``is_dotted``.

    Examples
    --------
    >>> pill_of({"lifecycle": "running", "tone": "danger", "effective_state": "stale running",
    ...          "is_legacy": False})
    {'label': 'stale running', 'token': 'error', 'icon': 'clock', 'is_dotted': False}
    """
    state = row["effective_state"] or (row["lifecycle"] or "unknown").replace("_", " ")
    is_legacy = bool(row["is_legacy"])
    is_stale = state.startswith("stale ")
    icon = STALE_ICON if is_stale else ICON_OF_LIFECYCLE.get(row["lifecycle"], OTHER_ICON)
    return {
        "label": state,
        "token": TOKEN_OF_TONE.get(row["tone"], "neutral"),
        "icon": OTHER_ICON if is_legacy else icon,
        "is_dotted": is_legacy,
    }

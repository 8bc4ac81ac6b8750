"""Status pills: a colour, an icon and a word together, so that no one of them matters alone.

The word is ADR-0025's effective state, the icon is that of its status; the colour is
that of ADR-0033's tone, which rules where the two differ (an abort is grey in the one
and red in the other).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from stateanalytics.reporting.material import Plain

LEGACY_TOOLTIP = (
    "Sessions created before the current status vocabulary. Excluded from live operational metrics."
)
"""ADR-0025's words for a status outside of the vocabulary."""


@dataclass(frozen=True)
class Colours:
    """A soft background and a strong foreground, for light and for dark pages.

    The contrasts are those of the ADR's table; `contrast` computes them anew.
    """

    light_background: str
    light_foreground: str
    light_contrast: float
    dark_background: str
    dark_foreground: str
    dark_contrast: float


COLOURS: Mapping[str, Colours] = MappingProxyType(
    {
        "success": Colours("#ECFDF3", "#067647", 5.4, "#062C1B", "#86EFAC", 10.8),
        "running": Colours("#EFF6FF", "#175CD3", 5.5, "#0B1E3D", "#93C5FD", 9.2),
        "error": Colours("#FEF3F2", "#B42318", 6.0, "#3B0A0A", "#FCA5A5", 9.0),
        "warning": Colours("#FFFAEB", "#B54708", 5.2, "#3A2604", "#FCD34D", 10.0),
        "stale": Colours("#FFF7ED", "#C2410C", 4.9, "#331C05", "#FDBA74", 9.5),
        "neutral": Colours("#F3F4F6", "#374151", 9.4, "#1F2937", "#D1D5DB", 10.0),
        "review": Colours("#F5F3FF", "#6D28D9", 6.5, "#23153E", "#C4B5FD", 9.1),
    }
)


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
        ``label``, ``token`` (of ADR-0025's colours), ``icon``, ``is_dotted`` and ``tooltip``
        (None: the label says it all).

    Examples
    --------
    >>> row = {"lifecycle": "running", "tone": "danger", "effective_state": "stale running"}
    >>> pill_of({**row, "is_legacy": False})["icon"]
    'clock'
    >>> pill_of({**row, "is_legacy": True})["tooltip"][:45]
    'Sessions created before the current status vo'
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
        "tooltip": LEGACY_TOOLTIP if is_legacy else None,
    }

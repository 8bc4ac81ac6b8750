"""ADR-0025: six statuses of a session, how they are drawn, and when one is slow.

Superseded by ADR-0033 in meaning, kept for what it alone says: exit codes, labels,
icons and colours of status pills, the legacy chip, the effective state of lists and
the sentence that explains a timeout. Colour is never the only sign: each pill has an
icon and a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import narwhals as nw

from stateanalytics.core.engines import NUMBER, TEXT, YES_NO, adapt
from stateanalytics.errors import ArgumentError
from stateanalytics.state import display

SLOW_RUN_S = 3600
STUCK_RUN_S = 3600
"""Sixty minutes for both: thirty flagged nearly every flow."""

STATUSES = ("running", "completed", "failed", "timed_out", "aborted", "cancelled")
LEGACY = "legacy"
STALE_HEALTHS = (*display.STALE_HEALTHS, "stale")
"""Healths that make a lone "Running" untrue: ADR-0033's words, and ADR-0024's *stale*."""


@dataclass(frozen=True)
class Pill:
    """How one status is drawn: colour, icon and text together.

    Attributes
    ----------
    status, label : str
        The word that is stored, and the one that is shown.
    tone : str
        The ADR's display tone: running, ok, failed, pending, neutral.
    token : str
        Name in `stateanalytics.reporting.pills.COLOURS`.
    icon : str
        Name of the icon.
    border : str
        ``solid``, or ``dotted`` for the legacy pill.
    exit_code : int or None
        What the process returns on this end: UNIX conventions (124 as ``timeout``
        does, 128 + signal). None while running; a failure returns any but 0, usually 1.
    """

    status: str
    label: str
    tone: str
    token: str
    icon: str
    border: str = "solid"
    exit_code: int | None = None


PILLS: Mapping[str, Pill] = MappingProxyType(
    {
        pill.status: pill
        for pill in (
            Pill("running", "Running", "running", "running", "activity"),
            Pill("completed", "Completed", "ok", "success", "check", exit_code=0),
            Pill("failed", "Failed", "failed", "error", "x-circle", exit_code=1),
            Pill("timed_out", "Timed out", "pending", "warning", "hourglass", exit_code=124),
            Pill("aborted", "Aborted", "neutral", "neutral", "stop", exit_code=130),
            Pill("cancelled", "Cancelled", "neutral", "neutral", "slash", exit_code=143),
            Pill(LEGACY, "legacy", "neutral", "neutral", "dash", border="dotted"),
        )
    }
)

PILL_CSS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "normal": MappingProxyType(
            {
                "height": "20px",
                "padding": "0 6px",
                "font-size": "11px",
                "font-weight": "600",
                "border-radius": "999px",
            }
        ),
        "dense": MappingProxyType(
            {
                "height": "18px",
                "padding": "0 6px",
                "font-size": "10px",
                "font-weight": "600",
                "border-radius": "999px",
            }
        ),
    }
)
"""Sizes of a pill ``[ icon label ]``, in lists and in dense tables."""


def contrast(background: str, foreground: str) -> float:
    """The WCAG contrast ratio of two colours, from 1 to 21.

    Parameters
    ----------
    background, foreground : str
        Colours as ``#RRGGBB``.

    References
    ----------
    .. [1] Web Content Accessibility Guidelines 2.2, "contrast ratio" and "relative
       luminance".

    Examples
    --------
    >>> contrast("#FFFFFF", "#000000")
    21.0
    """
    lighter, darker = sorted((_luminance(background), _luminance(foreground)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def pill(status: str | None) -> Pill:
    """How a stored status is drawn; anything outside of the six words is legacy.

    Examples
    --------
    >>> pill("timed_out").label, pill(None).border
    ('Timed out', 'dotted')
    """
    return PILLS.get(status or LEGACY, PILLS[LEGACY])


def validate_status(status: str) -> str:
    """The status itself, if it is one of the six.

    Raises
    ------
    ArgumentError
        If it is another word.

    Examples
    --------
    >>> validate_status("aborted")
    'aborted'
    """
    if status not in STATUSES:
        raise ArgumentError(
            f"a session status must be one of {', '.join(STATUSES)}; found {status!r}.",
            "map other words with stateanalytics.core.vocabulary.STATUS_WORDS",
        )
    return status


def with_effective_state(frame: Any) -> Any:
    """The word for lists: never a lone "running" when nothing runs any more.

    Parameters
    ----------
    frame : frame
        ``lifecycle`` and ``health`` (ADR-0033's words) and ``is_legacy``.

    Returns
    -------
    frame
        The same rows and kind with ``effective_state``: ``stale running`` for running
        with a health of `STALE_HEALTHS`, ``legacy`` for legacy rows, else the lifecycle,
        spaces for underscores. Terminal rows show their end alone.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.DataFrame({"lifecycle": ["running", "timed_out"], "health": ["stalled", "ok"],
    ...                      "is_legacy": [False, False]})
    >>> with_effective_state(rows)["effective_state"].to_list()
    ['stale running', 'timed out']
    """
    needed = {"lifecycle": TEXT, "health": TEXT, "is_legacy": YES_NO}
    adapter = adapt(frame, needed, "with_effective_state")
    return adapter.give_back(adapter.frame.with_columns(effective_state=effective_state()))


def effective_state() -> nw.Expr:
    """`with_effective_state` as an expression over ``lifecycle``, ``health``, ``is_legacy``."""
    lifecycle = nw.col("lifecycle").cast(nw.String)
    is_stale = nw.col("health").cast(nw.String).is_in(STALE_HEALTHS).fill_null(False)
    return (
        nw.when(nw.col("is_legacy").fill_null(False))
        .then(nw.lit(LEGACY))
        .when((lifecycle == "running") & is_stale)
        .then(nw.lit("stale running"))
        .otherwise(lifecycle.str.replace_all("_", " ", literal=True))
    )


def timeout_sentence(elapsed_s: float | None, configured_s: float | None) -> str:
    """Why a run timed out, with the limit where one is known.

    Examples
    --------
    >>> timeout_sentence(900.2, 900)
    'timed out after 900 s (configured 900 s)'
    >>> timeout_sentence(900.2, None)
    'timed out after 900 s'
    """
    elapsed = "" if elapsed_s is None else f" after {elapsed_s:.0f} s"
    configured = "" if configured_s is None else f" (configured {configured_s:.0f} s)"
    return f"timed out{elapsed}{configured}"


def with_timeout_sentence(frame: Any) -> Any:
    """`timeout_sentence` for every row that timed out.

    Parameters
    ----------
    frame : frame
        ``raw_status``, ``duration_s``, ``timeout_s``.

    Returns
    -------
    frame
        The same rows and kind with ``timeout_sentence``; null for other statuses.

    Examples
    --------
    >>> import polars as pl
    >>> row = {"raw_status": "timed_out", "duration_s": 900.2, "timeout_s": 900.0}
    >>> with_timeout_sentence(pl.DataFrame([row]))["timeout_sentence"].to_list()
    ['timed out after 900 s (configured 900 s)']
    """
    needed = {"raw_status": TEXT, "duration_s": NUMBER, "timeout_s": NUMBER}
    adapter = adapt(frame, needed, "with_timeout_sentence")
    elapsed = nw.concat_str(nw.lit(" after "), _whole("duration_s"), nw.lit(" s"))
    configured = nw.concat_str(nw.lit(" (configured "), _whole("timeout_s"), nw.lit(" s)"))
    sentence = nw.concat_str(
        nw.lit("timed out"),
        nw.coalesce(elapsed, nw.lit("")),
        nw.coalesce(configured, nw.lit("")),
    )
    is_timeout = nw.col("raw_status") == "timed_out"
    return adapter.give_back(
        adapter.frame.with_columns(timeout_sentence=nw.when(is_timeout).then(sentence))
    )


def _whole(column: str) -> nw.Expr:
    return nw.col(column).round(0).cast(nw.Int64).cast(nw.String)

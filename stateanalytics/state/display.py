"""A state in words: ADR-0033's flat chain, and ADR-0025's effective state."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import narwhals as nw

from stateanalytics.core import schema
from stateanalytics.core.engines import TEMPORARY, TEXT, Frame, adapt, encode, lookup
from stateanalytics.state.definitions import GOOD_ENDS
from stateanalytics.state.lifecycle import StatusCell

SEPARATOR = " · "

HEALTH_LABELS = MappingProxyType(
    {
        "ok": "Infra OK",
        "running": "Running",
        "due": "Due",
        "idle": "Idle",
        "degraded": "Degraded",
        "disconnected": "Disconnected",
        "blocked": "Blocked",
        "stalled": "Stalled",
        "misfired": "Misfired",
        "process_dead": "Process dead",
        "orphaned": "Orphaned",
        "unknown": "Health unknown",
    }
)
DELIVERY_LABELS = MappingProxyType(
    {
        "passed": "Artifacts passed",
        "partial": "Artifacts partial",
        "missing": "Artifacts missing",
        "invalid": "Artifact contract invalid",
        "not_expected": "No artifacts expected",
        "unknown": "Artifacts unknown",
    }
)

STALE_HEALTHS = ("stalled", "process_dead", "orphaned")
"""Healths with which ADR-0025 never shows a lone "Running", but "stale running"."""

Segment = tuple[str, bool, bool]
"""First label of the chain; is the outcome terminal; is it a success."""


def label(word: str) -> str:
    """A word of a vocabulary as people read it.

    Examples
    --------
    >>> label("timed_out")
    'Timed out'
    """
    return word.replace("_", " ").capitalize()


def chain(segment: Segment, health: str | None, delivery: str | None, *, verbose: bool) -> str:
    """One state as a chain.

    Parameters
    ----------
    segment : (str, bool, bool)
        First label; is there a terminal outcome; is it a success.
    health, delivery : str or None
        Words of their axes; None: does not apply.
    verbose : bool
        Keep the segments that ADR-0033 leaves out because all is well.

    Notes
    -----
    The health is left out if it is ``ok`` and the outcome terminal, the delivery if it is
    ``not_expected``, or ``passed`` with a success. A segment that would repeat the one
    before it (a running run that is running) is said once.

    References
    ----------
    ADR-0033, "State display contract".

    Examples
    --------
    >>> chain(("Failed", True, False), "ok", "missing", verbose=False)
    'Failed · Artifacts missing'
    >>> chain(("Failed", True, False), "ok", "not_expected", verbose=True)
    'Failed · Infra OK'
    """
    first, is_ended, is_success = segment
    parts = [first]
    if health and (verbose or not (health == "ok" and is_ended)):
        parts.append(HEALTH_LABELS[health])
    is_as_promised = delivery == "passed" and is_success and not verbose
    if delivery and delivery != "not_expected" and not is_as_promised:
        parts.append(DELIVERY_LABELS[delivery])
    return SEPARATOR.join(dict.fromkeys(parts))


def segment_of(cell: StatusCell) -> Segment:
    """The first segment that a stored status gives."""
    is_ended = bool(cell.is_terminal)
    if cell.word is None and cell.is_recorded:
        return (label(cell.lifecycle), False, False)
    if cell.word is None:
        is_blank = cell.is_known_text and not cell.raw_status
        return ("Legacy" if is_blank and cell.is_legacy else "Unknown", False, False)
    if cell.lifecycle == "unknown":
        return (label(cell.word.raw_status), False, False)
    is_said = cell.outcome is not None and cell.outcome != "unknown"
    first = cell.outcome if is_said and cell.outcome else cell.lifecycle
    return (label(first), is_ended, cell.is_good_end)


def effective_states(cell: StatusCell) -> tuple[str | None, str | None]:
    """ADR-0025's word for lists, and the one while the health is stale.

    None for a text that no table has: it is shown as it is stored.
    """
    if cell.word is None and (cell.raw_status or not cell.is_known_text):
        return (cell.raw_status, cell.raw_status)
    if cell.is_legacy:
        return ("legacy", "legacy")
    word = cell.lifecycle.replace("_", " ")
    return (word, f"stale {word}" if word == "running" else word)


def chains(segments: tuple[Segment, ...], *, verbose: bool) -> tuple[str, ...]:
    """Every chain, by segment, then health, then delivery; a last one each for None."""
    return tuple(
        chain(segment, health, delivery, verbose=verbose)
        for segment in segments
        for health in (*schema.HEALTHS, None)
        for delivery in (*schema.DELIVERIES, None)
    )


def with_display(frame: Any, *, verbose: bool = False, into: str = "display") -> Any:
    """The display chain of every row.

    Parameters
    ----------
    frame : polars, DuckDB or PySpark frame
        ``lifecycle``, ``outcome``, ``health``, ``delivery``: words of ADR-0033 or null.
    verbose : bool
        Keep the segments that ADR-0033 leaves out because all is well.
    into : str
        Name of the column to write.

    Returns
    -------
    frame
        The same kind and rows, with the chain added; null where neither outcome nor
        lifecycle is a word of ADR-0033.

    Examples
    --------
    >>> import polars as pl
    >>> states = pl.DataFrame({
    ...     "lifecycle": ["failed", "running"], "outcome": ["failed", None],
    ...     "health": ["ok", "stalled"], "delivery": ["not_expected", "unknown"]})
    >>> with_display(states)["display"].to_list()
    ['Failed', 'Running · Stalled · Artifacts unknown']
    >>> with_display(states, verbose=True)["display"].to_list()
    ['Failed · Infra OK', 'Running · Stalled · Artifacts unknown']
    """
    axes = {
        "lifecycle": schema.LIFECYCLES,
        "outcome": tuple(word for word in schema.OUTCOMES if word != "unknown"),
        "health": schema.HEALTHS,
        "delivery": schema.DELIVERIES,
    }
    adapter = adapt(frame, dict.fromkeys(axes, TEXT), "with_display")
    codes = {axis: f"{TEMPORARY}{axis}" for axis in axes}
    coded = encode(adapter.frame, {codes[axis]: (axis, words) for axis, words in axes.items()})
    segments = (
        *((label(word), True, word in GOOD_ENDS) for word in axes["outcome"]),
        *((label(word), False, False) for word in axes["lifecycle"]),
    )
    lifecycle = nw.col(codes["lifecycle"]).cast(nw.Int16) + len(axes["outcome"])
    first = nw.coalesce(nw.col(codes["outcome"]).cast(nw.Int16), lifecycle)
    health = nw.col(codes["health"]).cast(nw.Int16).fill_null(len(axes["health"]))
    delivery = nw.col(codes["delivery"]).cast(nw.Int16).fill_null(len(axes["delivery"]))
    worded = add_display(coded, first, health, delivery, segments, verbose=verbose, into=into)
    return adapter.give_back(worded.drop(list(codes.values())))


def add_display(
    frame: Frame,
    segment: nw.Expr,
    health: nw.Expr,
    delivery: nw.Expr,
    segments: tuple[Segment, ...],
    *,
    verbose: bool,
    into: str = "display",
) -> Frame:
    """Add the chain from the positions of a row's segment, health and delivery.

    ``health`` and ``delivery`` are never null; one past their vocabulary means none.
    """
    place = f"{TEMPORARY}chain"
    n_healths, n_deliveries = len(schema.HEALTHS) + 1, len(schema.DELIVERIES) + 1
    number = (segment * n_healths + health) * n_deliveries + delivery
    return lookup(
        frame.with_columns(number.alias(place)),
        {into: (place, chains(segments, verbose=verbose))},
    ).drop(place)

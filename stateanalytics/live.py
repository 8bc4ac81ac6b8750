"""Following stores that somebody writes to: what changed its severity, as it happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import checked_snapshot
from stateanalytics.core.schema import CHANGES
from stateanalytics.errors import StoreBusyError, check_number
from stateanalytics.failures.cluster_life import escalating
from stateanalytics.snapshot import Snapshot
from stateanalytics.state.policy import Policy
from stateanalytics.state.states import states
from stateanalytics.weekly_limits import failure_alarm

__all__ = ["CHANGES", "severity_changes", "watch"]

_KEY = list(schema.ENTITY_KEY)


def severity_changes(
    before: Snapshot, after: Snapshot, *, policy: Policy | None = None
) -> pl.DataFrame:
    """The entities whose severity differs between two snapshots of the same inputs.

    Parameters
    ----------
    before, after : Snapshot
        An earlier and a later look, such as a snapshot and its `Snapshot.refresh`.
    policy : Policy, optional
        The rules of states; v1 by default.

    Returns
    -------
    polars.DataFrame
        `CHANGES`, most severe first, then by key. Branches, which repeat their session,
        are excluded; so are new entities that are neutral.

    Examples
    --------
    >>> from stateanalytics.snapshot import demo
    >>> snap = demo()
    >>> severity_changes(snap, snap).height
    0
    """
    return _differences(_judged(before, policy), _judged(after, policy), after)


def watch(
    snap: Snapshot,
    *,
    policy: Policy | None = None,
    every_s: float = 5.0,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    sleep: Callable[[float], None] = time.sleep,
    on_alarm: Callable[[pl.DataFrame], None] | None = None,
    on_escalating: Callable[[pl.DataFrame], None] | None = None,
    on_look: Callable[[Snapshot], None] | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield changes of severity as they happen, until stopped.

    Parameters
    ----------
    snap : Snapshot
        The first snapshot; its inputs are reread. It stays open.
    policy : Policy, optional
        The rules of states; v1 by default.
    every_s : float
        Seconds between two refreshes.
    clock, sleep : callable
        The clock that ages are measured by, and how to wait.
    on_alarm : callable, optional
        Called with the result of `failure_alarm`, at most once a week: when the week has more
        failures than chance gives in one week of 20, however often it is checked.
    on_escalating : callable, optional
        Called with the rows of `failures.escalating` that are new since the last refresh.
    on_look : callable, optional
        Called with the snapshot of each refresh, which is closed after the next one.

    Yields
    ------
    polars.DataFrame
        `CHANGES` since the last refresh: one frame per refresh, which may be empty.

    Raises
    ------
    ArgumentError
        If ``every_s`` is not positive.
    SourceError
        If an input cannot be read any more. A busy input is retried.

    Notes
    -----
    A refresh takes a consistent private copy, as `read` does, so in WAL mode no writer ever waits.
    Inputs that did not change are not copied; silence alone may still change a severity.
    """
    checked_snapshot(snap, "watch")
    check_number("every_s", every_s, 5, is_above=True)
    # What was written since the snapshot was read is found at the first look.
    now = replace(snap, as_of=clock())
    known = _judged(now, policy)
    reported_week: str | None = None
    escalated = pl.Series("cluster_id", dtype=pl.String)
    try:
        while True:
            sleep(every_s)
            later = _look(now, clock())
            if later.stores is not now.stores and now.stores is not snap.stores:
                now.close()
            judged = _judged(later, policy)
            if on_look:
                on_look(later)
            # Evidence only rises where something fails; what stalled before keeps its severity.
            if on_alarm and not judged.equals(known):
                alarm = failure_alarm(later, policy=policy)
                if alarm["is_alarm"].item() and alarm["week"].item() != reported_week:
                    reported_week = alarm["week"].item()
                    on_alarm(alarm)
            if on_escalating and not judged.equals(known):
                found = escalating(later, policy=policy)
                if (news := found.filter(~pl.col("cluster_id").is_in(escalated.implode()))).height:
                    on_escalating(news)
                escalated = found["cluster_id"]
            yield _differences(known, judged, later)
            now, known = later, judged
    finally:
        if now.stores is not snap.stores:
            now.close()


def _look(now: Snapshot, at: datetime) -> Snapshot:
    """The inputs at another instant."""
    with suppress(StoreBusyError):
        return now.refresh(as_of=at, progress=False)
    return replace(now, as_of=at)


def _judged(snap: Snapshot, policy: Policy | None) -> pl.DataFrame:
    kept = ("severity", "display", "reason_codes")
    judged: pl.DataFrame = states(snap, policy=policy).select(*_KEY, *kept)
    # Null is its own change: an entity that has no state is not there.
    return judged.filter(pl.col("entity_type") != "branch").unique(
        _KEY, keep="first", maintain_order=True
    )


def _differences(before: pl.DataFrame, after: pl.DataFrame, snap: Snapshot) -> pl.DataFrame:
    was = before.select(*_KEY, severity_before="severity")
    names = snap.entities.select(*_KEY, "name").unique(_KEY, keep="first")
    both = was.join(after, on=_KEY, how="full", coalesce=True, nulls_equal=True)
    is_news = pl.col("severity_before").is_not_null() | (pl.col("severity") != "neutral")
    changed = both.filter(pl.col("severity_before").ne_missing(pl.col("severity")) & is_news)
    named = changed.join(names, on=_KEY, how="left", nulls_equal=True)
    return CHANGES.conform(named.with_columns(at=pl.lit(snap.as_of))).sort(
        "severity", *_KEY, nulls_last=True
    )

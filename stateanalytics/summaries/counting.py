"""One store, counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from stateanalytics import failures
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.windows import Moment
from stateanalytics.detectors.detections import detect
from stateanalytics.detectors.gaps import lean_gaps
from stateanalytics.detectors.sums import gap_sums
from stateanalytics.errors import ArgumentError, check_columns
from stateanalytics.failures.templates import mine_templates
from stateanalytics.snapshot import Snapshot, read
from stateanalytics.state.policy import Policy
from stateanalytics.state.states import states
from stateanalytics.summaries.merging import added, failed, in_order
from stateanalytics.summaries.summary import Summary
from stateanalytics.survival.run_spells import spells

_AXES = ("lifecycle", "outcome", "health", "delivery", "severity", "is_legacy")
_SPELL = ("timeout_s", "duration_s", "ending", "ended", "cause", "cut_off_by", "left_out")
_SOURCE = (
    "source", "system", "format", "fingerprint", "n_entities", "n_events", "n_findings", "last_at",
)  # fmt: skip


def summarize(
    source: str | Path | Snapshot,
    *,
    as_of: Moment | None = None,
    policy: Policy | None = None,
    by: Sequence[str] = ("system", "kind"),
    thresholds_s: Iterable[float] | None = None,
) -> Summary:
    """Count one store, so that it can be added to others.

    Parameters
    ----------
    source : path or Snapshot
        As for `read`: a store, a directory or a pattern; or what `read` gave.
    as_of : datetime, date, ISO text or epoch seconds, optional
        The instant to count at. Give one for a whole fleet: it decides what is cut off.
    policy : Policy, optional
        What counts as bad; v1 by default.
    by : sequence of str
        Columns of ``entities`` that runs and silences are counted apart by.
    thresholds_s : iterable of float, optional
        Thresholds of silence; `silence_grid` by default.

    Returns
    -------
    Summary
        Small (counts, and masked messages), whatever the size of the store.

    Raises
    ------
    SourceError
        If the input cannot be read.
    ArgumentError, MissingColumnsError
        If an argument makes no sense, or a column of ``by`` is not there.

    Notes
    -----
    It can be sent to any `concurrent.futures.Executor`, and its answer back. Start
    processes with ``spawn`` or ``forkserver``: threads of polars do not survive a fork.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> sa.summarize(sa.demo()).silences["n_dead"].max() > 0
    True
    """
    if not isinstance(source, Snapshot):
        with read(source, as_of=as_of, progress=False) as snap:
            return _counted(snap, policy or Policy.v1(), list(by), thresholds_s)
    if as_of is not None:
        raise ArgumentError(
            "A snapshot has its own as-of; found as_of as well.", "sa.read(path, as_of=…)"
        )
    return _counted(source, policy or Policy.v1(), list(by), thresholds_s)


def _counted(
    snap: Snapshot, policy: Policy, by: list[str], thresholds_s: Iterable[float] | None
) -> Summary:
    judged = states(snap, policy=policy)
    runs = spells(snap, states=judged, policy=policy)
    check_columns(runs, by, "summarize")
    return Summary(
        as_of=snap.as_of,
        policy=policy.version,
        sources=snap.sources.select(_SOURCE).sort("source", "system"),
        states=added([_one_each(judged.select("system", "entity_type", *_AXES))]),
        spells=added(
            [_one_each(runs.with_columns(pl.col("duration_s").ceil()).select(*by, *_SPELL))]
        ),
        silences=gap_sums(lean_gaps(snap, policy=policy, by=by), thresholds_s, by=by),
        detections=_detections(snap, policy),
        templates=_templates(snap, policy),
    )


def _detections(snap: Snapshot, policy: Policy) -> pl.DataFrame:
    """How many entities each combination of answers is about."""
    found = detect(snap, policy=policy)
    wide = found.pivot(on="detector", index=list(ENTITY_KEY), values="fires")
    return in_order(added([_one_each(wide.drop(ENTITY_KEY))]))


def _templates(snap: Snapshot, policy: Policy) -> pl.DataFrame:
    members = failures.members(snap, policy=policy)
    return failed(
        members.select(
            "system",
            "code",
            mine_templates(members["message"])["pattern"],
            n_rows=pl.lit(1, pl.Int64),
            first_at="failed_at",
            last_at="failed_at",
        )
    )


def _one_each(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(n=pl.lit(1, pl.Int64))

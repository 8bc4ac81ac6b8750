"""Quality of service of detectors of silence, in hindsight: how often wrong, how late.

A silence detector flags a run that has been silent for longer than its threshold. Every
threshold is judged at once, from the silences alone; no instant is sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.detectors.gaps import lean_gaps
from stateanalytics.detectors.sums import SUMS, gap_sums
from stateanalytics.errors import ArgumentError
from stateanalytics.state.policy import Policy
from stateanalytics.stats.intervals import poisson_columns, wilson_columns

__all__ = ["quality_of_service"]

_US_PER_S = 1e6
_UNIT_S = 100 * 3_600.0


def quality_of_service(
    silences: Facts | pl.DataFrame | pl.LazyFrame,
    *,
    thresholds_s: Iterable[float] | None = None,
    by: str | Sequence[str] = ("kind",),
    conf_level: float = 0.95,
    at_least: bool = False,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """How often each threshold of silence is wrong, for how long, and how late it is right.

    Parameters
    ----------
    silences : Snapshot, polars.DataFrame or LazyFrame
        A snapshot; or silences as `silence_gaps` gives them; or what `gap_sums` or
        `merge_gap_sums` gave, whose thresholds and columns are then taken.
    thresholds_s : iterable of float, optional
        Seconds of silence after which a run is flagged; by default those that people
        would set, 10 s to a week.
    by : str or sequence of str
        Columns to judge apart: of the silences, or of ``entities`` for a snapshot.
    conf_level : float
        Level of the intervals.
    at_least : bool
        Flag a silence as long as the threshold, too (>=); by default only longer ones (>).
    policy : Policy, optional
        Decides which sessions of a snapshot have ended; v1 by default.

    Returns
    -------
    polars.DataFrame, shape (n_strata * n_thresholds, n_by + 21)
        Sorted by ``by`` and ``threshold_s``:

        - ``n_gaps``, silences behind the row; ``alive_s``, time that is proven alive;
        - ``n_mistakes``: the run was flagged, then it spoke again; ``mistakes_per_100h`` of
          alive time with ``mistakes_per_100h_low`` and ``_high`` (exact Poisson), null
          without alive time; ``mistake_recurrence_s``, mean time from mistake to mistake,
          and ``mean_mistake_s``, how long one lasts, null without mistakes;
        - ``query_accuracy``: share of alive time in which the run was not flagged;
        - ``n_dead``, runs that somebody found dead; ``n_found``, of them, those flagged
          before that; ``share_found`` with ``share_found_low`` and ``_high`` (Wilson);
          ``detection_low_s`` and ``detection_high_s``, mean time from death to flag at
          least and at most, null where nobody was found dead;
        - ``n_ended`` and ``n_ended_flagged``: runs that wrote their own end, and those
          flagged just before; ``n_cut_off`` and ``n_cut_off_flagged``: runs whose last
          silence was cut off, and those flagged then.

    Raises
    ------
    MissingColumnsError, ColumnTypeError
        If a column is absent or not of its type.
    ArgumentError
        If a threshold, a silence or the level makes no sense.

    Notes
    -----
    The measures of Chen, Toueg and Aguilera [1]_ (the May printing), with the mistakes,
    not the polls, counted. A last silence is never a mistake, however long: nobody knows
    what would have followed. Silences of dead runs count as no alive time.

    The death of a run lies somewhere between its last sign of life and the moment it was
    found out, so the detection time is bounded, not measured: ``detection_high_s`` is the
    threshold (death came at once), ``detection_low_s`` takes the latest moment. A poller
    adds up to one of its intervals.

    The interval takes mistakes to be independent; for those of one session, which are
    not, resample sessions.

    References
    ----------
    .. [1] Chen, W., Toueg, S. and Aguilera, M. K. (2002). On the quality of service of
       failure detectors. IEEE Trans. Computers 51(5), 561-580.

    Examples
    --------
    >>> gaps = pl.DataFrame({"kind": "agent", "gap_s": [60.0, 1800.0, 5400.0, 10740.0]})
    >>> hourly = quality_of_service(gaps, thresholds_s=[3600])
    >>> hourly.select("alive_s", "n_mistakes", "mistakes_per_100h", "mean_mistake_s").row(0)
    (18000.0, 2, 40.0, 4470.0)
    """
    sums = _summed(silences, thresholds_s, by, at_least=at_least, policy=policy)
    strata = [name for name in sums.columns if name not in (*SUMS, "threshold_s")]
    mistakes = pl.when(pl.col("n_mistakes") > 0).then("n_mistakes")
    alive_s = pl.when(pl.col("alive_us") > 0).then(pl.col("alive_us") / _US_PER_S)
    dead = pl.when(pl.col("n_dead") > 0).then("n_dead")
    late_s = pl.col("late_us") / _US_PER_S
    return (
        sums.with_columns(units=alive_s / _UNIT_S)
        .with_columns(
            *poisson_columns(
                "n_mistakes", "units", confidence=conf_level, prefix="mistakes_per_100h"
            ),
            *wilson_columns("n_found", "n_dead", confidence=conf_level, prefix="share_found"),
        )
        .select(
            *strata,
            "threshold_s",
            "n_gaps",
            (pl.col("alive_us") / _US_PER_S).alias("alive_s"),
            "n_mistakes",
            "mistakes_per_100h",
            "mistakes_per_100h_low",
            "mistakes_per_100h_high",
            mistake_recurrence_s=alive_s / mistakes,
            mean_mistake_s=pl.col("mistaken_us") / _US_PER_S / mistakes,
            query_accuracy=1 - pl.col("suspected_us") / _US_PER_S / alive_s,
            n_dead="n_dead",
            n_found="n_found",
            share_found="share_found",
            share_found_low="share_found_low",
            share_found_high="share_found_high",
            detection_low_s=late_s / dead,
            detection_high_s=pl.when(dead.is_not_null()).then("threshold_s"),
            n_ended="n_ended",
            n_ended_flagged="n_ended_flagged",
            n_cut_off="n_cut_off",
            n_cut_off_flagged="n_cut_off_flagged",
        )
    )


def _summed(
    silences: object,
    thresholds_s: Iterable[float] | None,
    by: str | Sequence[str],
    *,
    at_least: bool,
    policy: Policy | None,
) -> pl.DataFrame:
    if isinstance(silences, pl.DataFrame) and set(SUMS) <= set(silences.columns):
        if thresholds_s is not None:
            raise ArgumentError(
                "Sums already have their thresholds; found thresholds_s as well.",
                "gap_sums(gaps, thresholds_s), then quality_of_service(sums)",
            )
        return silences
    if not isinstance(silences, (pl.DataFrame, pl.LazyFrame)):
        facts = checked_snapshot(silences, "detectors.quality_of_service")
        silences = lean_gaps(facts, policy=policy, by=by)
    return gap_sums(silences, thresholds_s, by=by, at_least=at_least)

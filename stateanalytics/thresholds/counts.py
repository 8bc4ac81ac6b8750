"""Mistakes and waiting under each candidate threshold: one row an independent unit.

Both are sums over units (sessions, invocations), so the same few functions serve the
estimate, its interval, and every price that somebody may put on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from stateanalytics.survival.curves import bare_curve

Mistake = Literal["false_alarm", "lost_run"]

EXPOSURE = "exposure"
"""What sums are divided by: hours alive for silences, runs for elapsed time."""
_MOST_UNORDERED = 2


def mistake_columns(candidates_s: Sequence[float]) -> list[str]:
    """Names of the columns that count mistakes, one per candidate, in their order."""
    return [f"mistakes_{place}" for place in range(len(candidates_s))]


def waiting_columns(candidates_s: Sequence[float]) -> list[str]:
    """Names of the columns that hold hours of waiting, one per candidate."""
    return [f"waiting_h_{place}" for place in range(len(candidates_s))]


@dataclass(frozen=True)
class Support:
    """How far the data behind a few candidates reach.

    Attributes
    ----------
    candidates_s : tuple of float
        Thresholds that can be tried, rising: none beyond the longest that was seen, unless
        nothing was still open there.
    n_at_risk : tuple of int
        Units that were under observation for so long.
    weights : tuple of float
        For how many one that was seen for so long stands, the others having been cut off.
    n_open : float
        How many outlast the data; they may go on to end well.
    waits : float
        What one more unit would wait, in relation to the hours between two candidates; 0
        where the rate of deaths is given.
    is_beyond : bool
        Whether the last candidate lies beyond the data: what is open may be its mistakes.
    """

    candidates_s: tuple[float, ...]
    n_at_risk: tuple[int, ...]
    weights: tuple[float, ...]
    n_open: float = 0.0
    waits: float = 1.0
    is_beyond: bool = False


def support(lengths: pl.DataFrame, candidates_s: Sequence[float]) -> Support:
    """How far lengths reach.

    Parameters
    ----------
    lengths : polars.DataFrame
        ``unit``, ``duration_s`` and ``ended`` (False: cut off, by whoever it was).
    candidates_s : sequence of float
        Thresholds that somebody could set, in seconds.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {"unit": [1, 2, 3], "duration_s": [5.0, 9.0, 9.0], "ended": [False, True, False]}
    ... )
    >>> reach = support(runs, [4.0, 8.0, 16.0])
    >>> reach.candidates_s, reach.n_at_risk, reach.weights, reach.n_open
    ((4.0, 8.0), (3, 2), (1.0, 1.5), 1.5)
    """
    if lengths.is_empty():
        return Support((), (), ())
    curve = bare_curve(lengths)
    longest, outlasting = curve.select("duration_s", "survival").row(-1)
    tried = [limit for limit in sorted(candidates_s) if limit <= longest or not outlasting]
    at = pl.Series(tried, dtype=pl.Float64)
    each = lengths["duration_s"].sort()
    n_left = lengths.height - each.search_sorted(at, side="left")
    longest_of_units = lengths.group_by("unit").agg(pl.col("duration_s").max())["duration_s"].sort()
    n_at_risk = longest_of_units.len() - longest_of_units.search_sorted(at, side="left")
    before = curve["duration_s"].search_sorted(at, side="left")
    survival = pl.concat([pl.Series([1.0]), curve["survival"]]).gather(before)
    expected = lengths.height * survival / n_left.cast(pl.Float64)
    weights = expected.set(n_left == 0, None).fill_null(strategy="forward").fill_null(1.0)
    return Support(
        tuple(tried), tuple(n_at_risk), tuple(weights), n_open=lengths.height * outlasting
    )


def silence_support(
    gaps: pl.DataFrame, candidates_s: Sequence[float], today_s: float | None = None
) -> Support:
    """How far silences reach; whoever ends one but the run itself cuts it off, death included.

    An observer calls dead what it does not hear of, so nobody knows what would have come.
    Today's threshold is tried even where it lies beyond the data: how long it lets the dead
    wait is known, and so is how many silences could be broken before it.
    """
    is_its_own = pl.col("closed_by").is_in(["sign_of_life", "own_end"])
    reach = support(gaps.select("unit", duration_s="gap_s", ended=is_its_own), candidates_s)
    if today_s is None or not reach.candidates_s or today_s <= reach.candidates_s[-1]:
        return reach
    return replace(
        reach,
        candidates_s=(*reach.candidates_s, today_s),
        n_at_risk=(*reach.n_at_risk, 0),
        weights=(*reach.weights, reach.weights[-1]),
        is_beyond=True,
    )


def silence_counts(
    gaps: pl.DataFrame,
    candidates_s: Sequence[float],
    *,
    at_least: bool = False,
    deaths_per_hour: float | None = None,
    alive: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Wrong alarms and late ones of silence thresholds, one row a unit.

    Parameters
    ----------
    gaps : polars.DataFrame, shape (n_gaps, >= 4)
        Silences: ``unit`` (what is independent: their session or invocation), ``gap_s``,
        ``closed_by`` and ``is_dead`` as in `silence_gaps`; optional ``project``.
    candidates_s : sequence of float
        Thresholds, in seconds.
    at_least : bool
        Whether the alarm also sounds at exactly the threshold.
    deaths_per_hour : float, optional
        Deaths per hour alive; by default each unit's own, seen in ``is_dead``.
    alive : polars.DataFrame, optional
        What `time_alive` gave, where it is at hand.

    Returns
    -------
    polars.DataFrame, shape (n_units, 3 + 2 * n_candidates)
        ``unit``, ``project`` if it was there, `EXPOSURE` (hours proven alive), ``n_dead``,
        then mistakes and hours of waiting per candidate; sorted by ``unit``.

    Notes
    -----
    A session that is silent for longer than the threshold and then speaks again was a
    mistake; one that died is noticed a threshold after its last sign of life, at the
    latest. Last silences that ended otherwise are no mistakes, and count as time alive
    only where the run wrote its end itself. Those that somebody closed, or that are still
    open, might have been broken: the longer ones that were stand for them, too, which is
    the Kaplan-Meier estimate over silences.

    Examples
    --------
    >>> gaps = pl.DataFrame(
    ...     {
    ...         "unit": [1, 1, 2],
    ...         "gap_s": [3600.0, 7200.0, 60.0],
    ...         "closed_by": ["sign_of_life", "sign_of_life", "death"],
    ...         "is_dead": [False, False, True],
    ...     }
    ... )
    >>> silence_counts(gaps, [3600.0, 36000.0]).rows()
    [(1, 3.0, 0, 1.0, 0.0, 0.0, 0.0), (2, 0.0, 1, 0.0, 0.0, 1.0, 10.0)]
    """
    names, spoke = mistake_columns(candidates_s), pl.col("closed_by") == "sign_of_life"
    gap = pl.col("gap_s")
    over = [gap >= limit if at_least else gap > limit for limit in candidates_s]
    is_closed = pl.col("closed_by").is_in(["other_end", "as_of"])
    mistakes = _by_unit(
        with_weights(gaps.with_columns(duration_s="gap_s", ended=~is_closed))
        # Most silences are shorter than every candidate.
        .filter(spoke & (gap >= min(candidates_s, default=0.0))),
        {name: pl.col("stands_for") * is_over for name, is_over in zip(names, over, strict=True)},
    )
    deaths = pl.col("n_dead")
    if deaths_per_hour is not None:
        deaths = deaths_per_hour * pl.col(EXPOSURE)
    return (
        (time_alive(gaps) if alive is None else alive)
        .join(mistakes, on="unit", how="left")
        .select(
            *_named(gaps),
            EXPOSURE,
            "n_dead",
            *(pl.col(name).fill_null(0).cast(pl.Float64) for name in names),
            *_waiting(candidates_s, deaths),
        )
        .sort("unit")
    )


def waiting_counts(alive: pl.DataFrame, candidates_s: Sequence[float]) -> pl.DataFrame:
    """Of what `silence_counts` gives, ``unit``, ``project`` and the hours of waiting alone."""
    return alive.select(*_named(alive), *_waiting(candidates_s, pl.col("n_dead")))


def time_alive(gaps: pl.DataFrame) -> pl.DataFrame:
    """Hours proven alive, as `EXPOSURE`, and deaths (``n_dead``) of each unit, sorted by it."""
    is_alive = pl.col("closed_by").is_in(["sign_of_life", "own_end"])
    return _by_unit(
        gaps,
        {EXPOSURE: pl.col("gap_s") * is_alive},
        *_projects(gaps),
        pl.col("is_dead").sum().cast(pl.Int64).alias("n_dead"),
    ).with_columns(pl.col(EXPOSURE) / 3600)


def _named(gaps: pl.DataFrame) -> list[str]:
    return ["unit", *(["project"] if "project" in gaps.columns else [])]


def _waiting(candidates_s: Sequence[float], deaths: pl.Expr) -> Iterator[pl.Expr]:
    for name, limit in zip(waiting_columns(candidates_s), candidates_s, strict=True):
        yield (deaths * (limit / 3600)).alias(name)


def elapsed_counts(
    spells: pl.DataFrame, candidates_s: Sequence[float], *, mistake: Mistake = "false_alarm"
) -> pl.DataFrame:
    """Runs hit by mistake and hours spent under limits on elapsed time, one row a unit.

    Parameters
    ----------
    spells : polars.DataFrame, shape (n_spells, >= 4)
        ``unit`` (what is independent: an invocation, a session), ``duration_s``,
        ``ended`` (False: cut off, it lasted at least so long) and ``is_good`` (it ended
        well; not asked where ``ended`` is False).
    candidates_s : sequence of float
        Limits, in seconds; only those that the data reach have a meaning, see `support`.
    mistake : {"false_alarm", "lost_run"}
        ``false_alarm``: the limit is a label, and a person looks; what waits are runs
        that do not end well. ``lost_run``: the limit ends the run; every run spends time.

    Returns
    -------
    polars.DataFrame, shape (n_units, 3 + 2 * n_candidates)
        ``unit``, `EXPOSURE` (its spells), ``n_good``, then mistakes (runs that go on to
        end well, later than the limit) and hours of waiting per candidate; sorted by
        ``unit``.

    Notes
    -----
    A run that ended stands for itself and for its share of the runs that were cut off
    earlier [1]_: weighted so, sums over runs equal the Kaplan-Meier and Aalen-Johansen
    estimates to the last digit. What outlasts the data does not end well within them. The
    weights are held fixed where the sums over units get intervals, which makes those a
    little too wide rather than too narrow.

    References
    ----------
    .. [1] Efron, B. (1967). The two sample problem with censored data. Proc. Fifth
       Berkeley Symposium 4, 831-853.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {
    ...         "unit": [1, 2],
    ...         "duration_s": [3600.0, 7200.0],
    ...         "ended": [True, True],
    ...         "is_good": [True, False],
    ...     }
    ... )
    >>> elapsed_counts(runs, [1800.0, 7200.0]).rows()
    [(1, 1.0, 1, 1.0, 0.0, 0.0, 0.0), (2, 1.0, 0, 0.0, 0.0, 0.5, 2.0)]
    """
    weight, length = pl.col("stands_for"), pl.col("duration_s")
    is_good = pl.col("ended") & pl.col("is_good").fill_null(False)
    waits = pl.lit(True) if mistake == "lost_run" else ~is_good

    def waiting_s(limit: float) -> pl.Expr:
        until = pl.when(waits).then(pl.min_horizontal(length, pl.lit(limit))).otherwise(0.0)
        # Its share of the runs, each with its own time; what is left outlasts the data.
        return weight * (until - limit) + limit

    mistakes = {
        name: weight * (is_good & (length > limit))
        for name, limit in zip(mistake_columns(candidates_s), candidates_s, strict=True)
    }
    waiting = {
        name: waiting_s(limit)
        for name, limit in zip(waiting_columns(candidates_s), candidates_s, strict=True)
    }
    return _by_unit(
        with_weights(spells),
        mistakes | waiting,
        *_projects(spells),
        pl.len().cast(pl.Float64).alias(EXPOSURE),
        is_good.sum().cast(pl.Int64).alias("n_good"),
    ).with_columns(pl.col(list(waiting)) / 3600)


def _by_unit(rows: pl.DataFrame, added: Mapping[str, pl.Expr], *others: pl.Expr) -> pl.DataFrame:
    """One row a unit: what is told of it, then sums of what is added up over its rows.

    The last digit of a sum follows the order of what is added, and threads add parts of a
    group by themselves: what is added is sorted. Of one number or two there is but one sum, and
    most units have no more: sorting each of them would take most of the time.
    """
    whole = rows.with_columns(**added, _n=pl.len().over("unit"))
    each, is_few = pl.col(list(added)), pl.col("_n") <= _MOST_UNORDERED
    parts = [
        whole.filter(is_few).group_by("unit").agg(*others, each.sum()),
        whole.filter(~is_few).group_by("unit").agg(*others, each.sort().sum()),
    ]
    return pl.concat(parts).sort("unit")


def _projects(rows: pl.DataFrame) -> list[pl.Expr]:
    """The project of each unit, where it is known what it is; of several the first by name."""
    return [pl.col("project").min()] if "project" in rows.columns else []


def with_weights(spells: pl.DataFrame) -> pl.DataFrame:
    """Add ``stands_for``: for how many each one that ended stands; 0 where cut off.

    Examples
    --------
    >>> runs = pl.DataFrame({"duration_s": [1.0, 2.0], "ended": [False, True]})
    >>> with_weights(runs)["stands_for"].to_list()
    [0.0, 2.0]
    """
    curve = bare_curve(spells)
    # What the curve falls by is shared by the runs that ended there.
    fall = pl.col("survival").shift(1, fill_value=1.0) - pl.col("survival")
    each = curve.select(spells.height * fall / pl.col("n_events")).to_series()
    # Durations that floats cannot tell apart are one step of the curve: the first of them.
    place = curve["duration_s"].search_sorted(spells["duration_s"], side="right") - 1
    return spells.with_columns(stands_for=pl.when("ended").then(each.gather(place)).otherwise(0.0))

"""Mistakes and waiting under each candidate threshold, one row per independent unit.

Both are sums over units (sessions, invocations), so the same few functions serve the
estimate, its interval, and any price of a mistake or of an hour. The bounds that a verdict
is decided by stand here, because every later step uses them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from stateanalytics.core.joins import Rows, collected
from stateanalytics.survival.curves import bare_curve

FEWEST_AT_RISK = 10
"""Units at risk that a recommended value needs."""
FEWEST_HIT = 5
"""Units with a mistake that are needed to estimate the variance of mistakes."""
NEAR = 0.05
"""Of values without significant difference, those at most this share above the cheapest count."""
MUCH, MUCH_PER_HUNDRED = 0.5, 1.0
"""A saving is small below this share of today's loss, or below so many mistakes per 100."""
STOPPED = 2.0
"""Weight of an uncensored unit from which most of the others were stopped: not identified."""
FEW_STOPPED = 1.25
"""Weight of an uncensored unit up to which the others that were stopped hardly matter."""
TIE = 1e-9
"""Losses within this relative difference are ties, up to rounding."""


Mistake = Literal["false_alarm", "lost_run"]

EXPOSURE = "exposure"
"""Denominator of sums: hours alive for silences, runs for elapsed time."""
_MOST_UNORDERED = 2


def mistake_columns(candidates_s: Sequence[float]) -> list[str]:
    """Names of the columns that count mistakes, one per candidate, in their order."""
    return [f"mistakes_{place}" for place in range(len(candidates_s))]


def waiting_columns(candidates_s: Sequence[float]) -> list[str]:
    """Names of the columns that hold hours of waiting, one per candidate."""
    return [f"waiting_h_{place}" for place in range(len(candidates_s))]


@dataclass(frozen=True)
class Support:
    """How far the data reach: units at risk and weights at each candidate.

    Attributes
    ----------
    candidates_s : tuple of float
        Ascending thresholds: none beyond the longest observed duration, unless nothing was
        still open there.
    n_at_risk : tuple of int
        Units still under observation at each.
    weights : tuple of float
        How many spells one that is still at risk represents, itself and the censored ones.
    n_open : float
        Spells that outlast the data; they may still end well.
    waits : float
        Waiting of one more unit, as a share of the time between two candidates; 0 if the rate
        of deaths is given.
    is_beyond : bool
        Whether the last candidate lies beyond the data: open spells may be its mistakes.
    """

    candidates_s: tuple[float, ...]
    n_at_risk: tuple[int, ...]
    weights: tuple[float, ...]
    n_open: float = 0.0
    waits: float = 1.0
    is_beyond: bool = False


def support(
    lengths: pl.DataFrame, candidates_s: Sequence[float], *, curve: pl.DataFrame | None = None
) -> Support:
    """Units at risk and weights at each candidate that durations reach.

    Parameters
    ----------
    lengths : polars.DataFrame
        ``unit``, ``duration_s`` and ``ended`` (False: censored, for whatever reason).
    candidates_s : sequence of float
        Thresholds that could be set, in seconds.
    curve : polars.DataFrame, optional
        The `bare_curve` of the durations, if already computed.

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
    curve = bare_curve(lengths) if curve is None else curve
    longest, _, outlasting = curve.row(-1)
    reached = [limit for limit in sorted(candidates_s) if limit <= longest or not outlasting]
    at = pl.Series(reached, dtype=pl.Float64)
    duration = pl.col("duration_s")
    n_reaching = pl.len() - duration.sort().search_sorted(pl.lit(at), side="left")
    of_units = lengths.lazy().group_by("unit").agg(duration.max())
    counted = lengths.lazy().select(n_spells=n_reaching), of_units.select(n_units=n_reaching)
    n_spells, n_at_risk = pl.concat(counted, how="horizontal").pipe(collected).get_columns()
    steps = curve["duration_s"].to_list()
    weights, weight = [], 1.0
    for n, limit in zip(n_spells, reached, strict=True):
        place = bisect_left(steps, limit)
        if n:
            weight = lengths.height * (curve["survival"][place - 1] if place else 1.0) / n
        weights.append(weight)
    n_open = lengths.height * outlasting
    return Support(tuple(reached), tuple(n_at_risk), tuple(weights), n_open)


def silence_support(
    gaps: pl.DataFrame, candidates_s: Sequence[float], today_s: float | None = None
) -> Support:
    """The support of silences; they are censored if anything but the run itself ends them.

    This includes death: an observer declares a silent run dead, so nobody knows whether it
    would have spoken again. Today's threshold is a candidate even beyond the data: the waiting
    of the dead is known, and so is a bound of the silences that could be broken before it.
    """
    closed_by = gaps["closed_by"]
    lengths = {
        "unit": gaps["unit"],
        "duration_s": gaps["gap_s"],
        "ended": (closed_by == "sign_of_life") | (closed_by == "own_end"),
    }
    reach = support(pl.DataFrame(lengths), candidates_s)
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
    """False alarms and delay of silence thresholds, one row per unit.

    Parameters
    ----------
    gaps : polars.DataFrame, shape (n_gaps, >= 4)
        Silences: ``unit`` (the independent unit: session or invocation), ``gap_s``,
        ``closed_by`` and ``is_dead`` as in `silence_gaps`; optional ``project``, and ``weight``
        of `with_weights_of_silences`, if already computed.
    candidates_s : sequence of float
        Thresholds, in seconds.
    at_least : bool
        Whether the alarm also fires at exactly the threshold.
    deaths_per_hour : float, optional
        Deaths per hour alive; by default each unit's own, from ``is_dead``.
    alive : polars.DataFrame, optional
        The result of `time_alive`, if already computed.

    Returns
    -------
    polars.DataFrame, shape (n_units, 3 + 2 * n_candidates)
        ``unit``, ``project`` if given, `EXPOSURE` (hours proven alive), ``n_dead``, then
        mistakes and hours of waiting per candidate; sorted by ``unit``.

    Notes
    -----
    A session that is silent for longer than the threshold and then speaks again is a mistake;
    one that died is noticed one threshold after its last sign of life, at the latest. Other
    last silences are no mistakes, and count as time alive only if the run wrote its end
    itself. Silences that an observer closed, or that are still open, are censored: longer
    silences that were broken represent them, which is the Kaplan-Meier estimate.

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
    fires = [gap >= limit if at_least else gap > limit for limit in candidates_s]
    mistakes = _by_unit(
        (gaps if "weight" in gaps.columns else with_weights_of_silences(gaps))
        .lazy()
        # Most silences are shorter than every candidate.
        .filter(spoke & (gap >= min(candidates_s, default=0.0))),
        {name: pl.col("weight") * does for name, does in zip(names, fires, strict=True)},
    )
    deaths = pl.col("n_dead")
    if deaths_per_hour is not None:
        deaths = deaths_per_hour * pl.col(EXPOSURE)
    return collected(
        (time_alive(gaps) if alive is None else alive)
        .lazy()
        .join(mistakes, on="unit", how="left")
        .select(
            *_key(gaps),
            EXPOSURE,
            "n_dead",
            *(pl.col(name).fill_null(0).cast(pl.Float64) for name in names),
            *_waiting(candidates_s, deaths),
        )
        .sort("unit")
    )


def with_weights_of_silences(gaps: pl.DataFrame) -> pl.DataFrame:
    """Silences with ``weight``, see `with_weights`: an observer, or as-of, censors them."""
    is_censored = pl.col("closed_by").is_in(["other_end", "as_of"])
    spells = gaps.lazy().with_columns(duration_s="gap_s", ended=~is_censored)
    return with_weights(spells).pipe(collected)


def with_deaths_of_all(
    counts: pl.DataFrame, alive: pl.DataFrame, candidates_s: Sequence[float], deaths: pl.Expr
) -> pl.DataFrame:
    """Counts of a kind next to all units of its system, with the waiting of other deaths.

    ``deaths`` may rest on ``n_dead_of_all``; ``alive`` is the result of `time_alive` of the system.
    """
    return collected(
        alive.lazy()
        .select(*_key(alive), n_dead_of_all="n_dead")
        .join(counts.lazy().drop("project", strict=False), "unit", "left", maintain_order="left")
        .with_columns(pl.exclude("unit", "project").fill_null(0))
        .with_columns(_waiting(candidates_s, deaths))
        .drop("n_dead_of_all")
    )


def time_alive(gaps: pl.DataFrame) -> pl.DataFrame:
    """Hours proven alive (`EXPOSURE`) and deaths (``n_dead``) of each unit, sorted by unit."""
    is_alive = pl.col("closed_by").is_in(["sign_of_life", "own_end"])
    by_unit = _by_unit(
        gaps.lazy(),
        {EXPOSURE: pl.col("gap_s") * is_alive},
        *_projects(gaps),
        pl.col("is_dead").sum().cast(pl.Int64).alias("n_dead"),
    )
    return by_unit.with_columns(pl.col(EXPOSURE) / 3600).pipe(collected)


def _key(gaps: pl.DataFrame) -> list[str]:
    return ["unit", *(["project"] if "project" in gaps.columns else [])]


def _waiting(candidates_s: Sequence[float], deaths: pl.Expr) -> Iterator[pl.Expr]:
    for name, limit in zip(waiting_columns(candidates_s), candidates_s, strict=True):
        yield (deaths * (limit / 3600)).alias(name)


def elapsed_counts(
    spells: pl.DataFrame,
    candidates_s: Sequence[float],
    *,
    mistake: Mistake = "false_alarm",
    curve: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Runs hit by mistake and hours spent under limits on elapsed time, one row per unit.

    Parameters
    ----------
    spells : polars.DataFrame, shape (n_spells, >= 4)
        ``unit`` (the independent unit: an invocation, a session), ``duration_s``, ``ended``
        (False: censored) and ``is_good`` (it ended well; ignored where ``ended`` is False).
    candidates_s : sequence of float
        Limits, in seconds; only those that the data reach are meaningful, see `support`.
    mistake : {"false_alarm", "lost_run"}
        ``false_alarm``: the limit is a label, and a person looks; runs that do not end well
        wait. ``lost_run``: the limit ends the run; every run spends time.
    curve : polars.DataFrame, optional
        The `bare_curve` of the spells, if already computed.

    Returns
    -------
    polars.DataFrame, shape (n_units, 2 + 2 * n_candidates)
        ``unit``, `EXPOSURE` (its spells), then mistakes (runs that go on to
        end well, later than the limit) and hours of waiting per candidate; sorted by
        ``unit``.

    Notes
    -----
    A run that ended represents itself and its share of the runs that were censored earlier
    (redistribution to the right [1]_): with these weights, sums over runs equal the
    Kaplan-Meier and Aalen-Johansen estimates to the last digit. Runs that outlast the data do
    not end well within them. Intervals of sums take the weights as fixed, which makes them
    slightly too wide.

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
    [(1, 1.0, 1.0, 0.0, 0.0, 0.0), (2, 1.0, 0.0, 0.0, 0.5, 2.0)]
    """
    weight, length = pl.col("weight"), pl.col("duration_s")
    is_good = pl.col("ended") & pl.col("is_good").fill_null(False)
    waits = pl.lit(True) if mistake == "lost_run" else ~is_good

    def waiting_s(limit: float) -> pl.Expr:
        until = pl.when(waits).then(pl.min_horizontal(length, pl.lit(limit))).otherwise(0.0)
        # Its share of the runs, each with its own time; the remaining runs outlast the data.
        return weight * (until - limit) + limit

    mistakes = {
        name: weight * (is_good & (length > limit))
        for name, limit in zip(mistake_columns(candidates_s), candidates_s, strict=True)
    }
    waiting = {
        name: waiting_s(limit)
        for name, limit in zip(waiting_columns(candidates_s), candidates_s, strict=True)
    }
    by_unit = _by_unit(
        with_weights(spells.lazy(), curve),
        mistakes | waiting,
        *_projects(spells),
        pl.len().cast(pl.Float64).alias(EXPOSURE),
    )
    return by_unit.with_columns(pl.col(list(waiting)) / 3600).pipe(collected)


def at_worst(
    spells: pl.DataFrame, today_s: float, *, until_s: float, price_s: float
) -> pl.DataFrame:
    """Runs as they would end if a limit below today's were as wrong as it can be.

    Parameters
    ----------
    spells : polars.DataFrame
        As in `elapsed_counts`.
    today_s : float
        Today's limit, in seconds; also beyond the data. No run goes on for longer.
    until_s : float
        The longest of the shorter limits, in seconds.
    price_s : float
        Price of a run ended by mistake, in seconds of waiting.

    Notes
    -----
    A run whose end before today's limit is not known ends well a second after it was seen. If
    it had waited for longer than ``until_s`` and its own price, both become one number, the
    waiting that is left, and no other mistake. Nothing is assumed of what lies beyond the data.

    Examples
    --------
    >>> open_runs = pl.DataFrame(
    ...     {"duration_s": [9.0, 4.0], "ended": [False, False], "is_good": [None, None]}
    ... )
    >>> at_worst(open_runs, 20.0, until_s=2.0, price_s=3.0).rows()
    [(6.0, True, False), (5.0, True, True)]
    """
    length, ended = pl.col("duration_s"), pl.col("ended")
    is_unknown, most = ~ended & (length < today_s), length.clip(upper_bound=today_s)
    left = most - price_s * is_unknown
    is_sure = is_unknown & (left >= until_s)
    is_good = ended & pl.col("is_good").fill_null(False) & (length <= today_s)
    is_mistake = is_unknown & ~is_sure
    return spells.with_columns(
        duration_s=pl.when(is_sure).then(left).otherwise(most + is_mistake),
        ended=True,
        is_good=is_good | is_mistake,
    )


def _by_unit(
    rows: pl.LazyFrame, summed: Mapping[str, pl.Expr], *aggregates: pl.Expr
) -> pl.LazyFrame:
    """One row per unit: the aggregates, then sums over its rows, reproducible to the last digit.

    The last digit of a float sum depends on the order, and threads sum parts of a group by
    themselves, so values are sorted first. One or two values have only one sum, and most units
    have no more: sorting those would take most of the time.
    """
    values, is_short = pl.col(list(summed)), pl.col("_n") <= _MOST_UNORDERED
    counted = rows.with_columns(**summed, _n=pl.len().over("unit"))
    parts = [
        counted.filter(is_short).group_by("unit").agg(*aggregates, values.sum()),
        counted.filter(~is_short).group_by("unit").agg(*aggregates, values.sort().sum()),
    ]
    return pl.concat(parts).sort("unit")


def _projects(rows: pl.DataFrame) -> list[pl.Expr]:
    """The project of each unit, if there is such a column; of several the first by name."""
    return [pl.col("project").min()] if "project" in rows.columns else []


def with_weights(spells: Rows, curve: pl.DataFrame | None = None) -> Rows:
    """Add ``weight``: how many spells each one that ended represents; 0 where censored.

    Examples
    --------
    >>> runs = pl.DataFrame({"duration_s": [1.0, 2.0], "ended": [False, True]})
    >>> with_weights(runs)["weight"].to_list()
    [0.0, 2.0]
    """
    curve = bare_curve(spells) if curve is None else curve
    # The runs that ended at a step of the curve share its height.
    survival, n_events = pl.lit(curve["survival"]), pl.lit(curve["n_events"])
    weights = pl.len() * (survival.shift(1, fill_value=1.0) - survival) / n_events
    # Ties by rounding are one step of the curve, at the first of them.
    step = pl.lit(curve["duration_s"]).search_sorted(pl.col("duration_s"), side="right") - 1
    return spells.with_columns(weight=pl.when("ended").then(weights.gather(step)).otherwise(0.0))

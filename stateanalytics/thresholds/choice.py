"""The cheapest threshold under stated costs, how sure that is, and how much data it takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from stateanalytics.errors import check_number, check_share
from stateanalytics.stats.bootstrap import resampled_sums
from stateanalytics.stats.distributions import beta_cdf
from stateanalytics.thresholds.counts import EXPOSURE, mistake_columns, waiting_columns


@dataclass(frozen=True)
class Costs:
    """What mistakes of a threshold cost, in minutes of a person's attention.

    Only their ratios matter for the advice: doubling all of them changes nothing but the
    numbers called loss.

    Attributes
    ----------
    false_alarm : float
        Looking at a run that was fine. Default 5: open it, read the last lines, go back.
    undetected_hour : float
        A run that is dead or will not end well, unnoticed for an hour. Default 10: what
        waits for it waits, and its context is colder when somebody looks.
    lost_run : float
        A run that would have ended well, cut off or closed by mistake. Default 60: it is
        looked into and repeated.
    run_hour : float
        An hour that a run works: model, machine and slot. Default 3.
    deaths_per_100_hours : float or None
        How often runs die, per 100 session-hours alive. None (the default): as the data
        show, where they show enough of it.

    Examples
    --------
    >>> Costs(false_alarm=20).lost_run
    60.0
    """

    false_alarm: float = 5.0
    undetected_hour: float = 10.0
    lost_run: float = 60.0
    run_hour: float = 3.0
    deaths_per_100_hours: float | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            check_number(field.name, value, 5)
            object.__setattr__(self, field.name, float(value))

    def of_mistake(self, mistake: str) -> float:
        """What one mistake costs: ``false_alarm``, or ``lost_run`` where the alarm closes runs."""
        return self.lost_run if mistake == "lost_run" else self.false_alarm


def n_needed(prob: float, *, confidence: float = 0.95) -> int:
    """How many values it takes before their largest bounds a quantile from above.

    Parameters
    ----------
    prob : float
        The quantile, in (0, 1).
    confidence : float
        How sure, in (0, 1).

    Notes
    -----
    The largest of n values lies above the quantile with probability ``1 - prob**n``.

    Examples
    --------
    >>> [n_needed(prob) for prob in (0.9, 0.95, 0.99)]
    [29, 59, 299]
    """
    _check(prob, confidence)
    return math.ceil(math.log(1 - confidence) / math.log(prob))


def upper_bound(values: pl.Series, prob: float, *, confidence: float = 0.95) -> float | None:
    """A value that the quantile does not exceed, this sure; None where no value is.

    Parameters
    ----------
    values : polars.Series of float
        Independent values; infinite where a value is only known to be large (cut off).
    prob, confidence : float
        The quantile and how sure, in (0, 1).

    Returns
    -------
    float or None
        An observed value; None with fewer than `n_needed` values, or where the bound
        falls on one that was cut off.

    Notes
    -----
    The smallest order statistic k with P(Binomial(n, prob) < k) >= confidence [1]_.

    References
    ----------
    .. [1] Hahn, G. J. and Meeker, W. Q. (1991). Statistical intervals, section 5.2.

    Examples
    --------
    >>> upper_bound(pl.Series(range(58)), 0.95) is None
    True
    >>> upper_bound(pl.Series(range(100)), 0.95)
    98.0
    """
    _check(prob, confidence)
    kept = values.cast(pl.Float64).drop_nulls().sort()
    n = kept.len()
    if n < n_needed(prob, confidence=confidence):
        return None
    low, high = 1, n
    while low < high:
        middle = (low + high) // 2
        # P(Binomial(n, p) < k) = P(Beta(k, n - k + 1) > p).
        if 1 - beta_cdf(prob, middle, n - middle + 1) >= confidence:
            high = middle
        else:
            low = middle + 1
    bound = float(kept[low - 1])
    return bound if math.isfinite(bound) else None


def _check(prob: float, confidence: float) -> None:
    check_share("prob", prob, 0.95)
    check_share("confidence", confidence, 0.95)


CURVE = ("threshold_s", "mistakes", "waiting_h", "loss", "loss_low", "loss_high")


@dataclass(frozen=True)
class Choice:
    """The cheapest of a few thresholds, beside today's.

    Attributes
    ----------
    curve : polars.DataFrame
        One row a candidate: `CURVE`, all but the first per 100 units of exposure.
    best_s, best_low_s, best_high_s : float
        The cheapest candidate, and the range of those that the data cannot tell from it.
    gain, gain_low, gain_high : float or None
        What moving from today's value to the best saves, with its interval; None where
        today's value is no candidate.
    """

    curve: pl.DataFrame
    best_s: float
    best_low_s: float
    best_high_s: float
    gain: float | None
    gain_low: float | None
    gain_high: float | None

    @property
    def is_clear(self) -> bool:
        """Whether the gain over today's value is beyond noise."""
        return self.gain_low is not None and self.gain_low > 0

    def at(self, threshold_s: float | None) -> dict[str, float | None]:
        """The row of the curve at a candidate; nothing known elsewhere."""
        at = self.curve.filter(pl.col("threshold_s").is_in([threshold_s]))
        return at.row(0, named=True) if at.height else dict.fromkeys(CURVE)


def choose(
    counts: pl.DataFrame,
    candidates_s: Sequence[float],
    *,
    price: float,
    hour: float,
    today_s: float | None = None,
    n_boot: int = 400,
    seed: int = 0,
    conf_level: float = 0.95,
) -> Choice | None:
    """The cheapest candidate of `silence_counts` or `elapsed_counts`; None without exposure.

    Parameters
    ----------
    counts : polars.DataFrame
        Mistakes and waiting, one row an independent unit.
    candidates_s : sequence of float
        What the columns stand for, rising.
    price, hour : float
        What a mistake and an hour of waiting cost.
    today_s : float, optional
        Today's value; its gain is only known where it is one of the candidates.
    n_boot, seed : int
        Repetitions of the bootstrap over units, and their seed.
    conf_level : float
        Of the intervals.

    Notes
    -----
    Where candidates cost the same, the one nearest to today's value is taken. Intervals
    are percentiles of the bootstrap. The range of the best runs from the first to the last
    candidate that is not dearer than it beyond noise: where the data end, everything
    longer is alike, and the range says so. The best of a *fixed, coarse* set of values is
    looked for: the exact minimum of a curve with steps would jump from sample to sample,
    and its bootstrap would be wrong [1]_.

    References
    ----------
    .. [1] Abrevaya, J. and Huang, J. (2005). On the bootstrap of the maximum score
       estimator. Econometrica 73, 1175-1204.

    Examples
    --------
    >>> counts = pl.DataFrame(
    ...     {
    ...         "exposure": [1.0],
    ...         "mistakes_0": [2.0],
    ...         "mistakes_1": [0.0],
    ...         "waiting_h_0": [1.0],
    ...         "waiting_h_1": [3.0],
    ...     }
    ... )
    >>> choose(counts, [60.0, 120.0], price=5.0, hour=1.0, n_boot=10).best_s
    120.0
    """
    mistakes, waiting = mistake_columns(candidates_s), waiting_columns(candidates_s)
    if not mistakes or counts.is_empty() or counts[EXPOSURE].sum() <= 0:
        return None
    names = [f"loss_{place}" for place in range(len(mistakes))]
    priced = counts.select(
        EXPOSURE,
        *(
            (price * pl.col(mistake) + hour * pl.col(wait)).alias(name)
            for mistake, wait, name in zip(mistakes, waiting, names, strict=True)
        ),
    )
    losses = _per_hundred(priced.sum(), names).row(0)
    again = _per_hundred(resampled_sums(priced, n_boot=n_boot, seed=seed), names).filter(
        pl.all_horizontal(pl.all().is_finite())
    )
    best, tail = _cheapest(losses, candidates_s, today_s), (1 - conf_level) / 2
    dearer = again.select(pl.col(names) - pl.col(names[best]))
    least = dearer.select(pl.all().quantile(tail)).row(0)
    # Ties within rounding are ties.
    alike = [place for place, loss in enumerate(least) if (loss or 0) <= 1e-9 * abs(losses[best])]
    gains: list[float | None] = [None, None, None]
    if today_s in candidates_s:
        today = list(candidates_s).index(float(today_s or 0))
        saved = dearer[names[today]]
        gains = [losses[today] - losses[best], saved.quantile(tail), saved.quantile(1 - tail)]
    sums = counts.sum()
    return Choice(
        pl.DataFrame(
            {
                "threshold_s": [float(limit) for limit in candidates_s],
                "mistakes": _per_hundred(sums, mistakes).row(0),
                "waiting_h": _per_hundred(sums, waiting).row(0),
                "loss": losses,
                "loss_low": again.select(pl.all().quantile(tail)).row(0),
                "loss_high": again.select(pl.all().quantile(1 - tail)).row(0),
            },
            schema=dict.fromkeys(CURVE, pl.Float64),
        ),
        candidates_s[best],
        candidates_s[min(alike)],
        candidates_s[max(alike)],
        *gains,
    )


def _per_hundred(sums: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    return sums.select(pl.col(names) * (100 / pl.col(EXPOSURE)))


def _cheapest(losses: Sequence[float], candidates_s: Sequence[float], today_s: float | None) -> int:
    least = min(losses)
    ties = [place for place, loss in enumerate(losses) if loss <= least + 1e-9 * abs(least)]
    if not today_s:
        return ties[0]
    return min(ties, key=lambda place: abs(math.log(candidates_s[place] / today_s)))

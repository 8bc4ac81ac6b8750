"""From counts and prices to a choice: the cheapest candidate, how sure, and beside what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from stateanalytics.thresholds.counts import EXPOSURE, mistake_columns, waiting_columns
from stateanalytics.thresholds.resampling import resampled_sums

CANDIDATES_S = (
    10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 450.0, 600.0, 900.0, 1200.0,
    1800.0, 2700.0, 3600.0, 5400.0, 7200.0, 10800.0, 14400.0, 21600.0, 28800.0, 43200.0,
    64800.0, 86400.0, 129600.0, 172800.0, 259200.0, 604800.0,
)  # fmt: skip
"""Values that people would set, 10 s to a week. Finer steps would only show noise."""

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
        found = self.curve.filter(pl.col("threshold_s").is_in([threshold_s]))
        return found.row(0, named=True) if found.height else dict.fromkeys(CURVE)


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
            (price * pl.col(one) + hour * pl.col(other)).alias(name)
            for one, other, name in zip(mistakes, waiting, names, strict=True)
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
    alike = [place for place, one in enumerate(least) if (one or 0) <= 1e-9 * abs(losses[best])]
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

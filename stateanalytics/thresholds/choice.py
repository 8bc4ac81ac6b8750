"""Which of a few thresholds costs least, how sure that is, and whether to change today's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import polars as pl

from stateanalytics.errors import check_number, check_share
from stateanalytics.state.population import FEWEST_PROJECTS
from stateanalytics.stats.distributions import beta_cdf
from stateanalytics.stats.intervals import weighted_count
from stateanalytics.thresholds.counts import (
    EXPOSURE,
    FEWEST_AT_RISK,
    FEWEST_HIT,
    MUCH,
    MUCH_PER_HUNDRED,
    NEAR,
    STOPPED,
    TIE,
    Support,
    mistake_columns,
    waiting_columns,
)
from stateanalytics.thresholds.leave_one_out import Without


@dataclass(frozen=True)
class Costs:
    """What mistakes of a threshold cost, in minutes of a person's attention.

    Only their ratios matter for the advice: doubling all of them changes only the losses.

    Attributes
    ----------
    false_alarm : float
        Looking at a healthy run. Default 5: open it, read the last lines, go back.
    undetected_hour : float
        A run that is dead or will not end well, undetected for an hour. Default 10: other work
        waits for it, and its context is harder to recall.
    lost_run : float
        A run that would have ended well, stopped or closed by mistake. Default 60: it is
        investigated and repeated.
    run_hour : float
        An hour of a running run: model, machine and slot. Default 3.
    deaths_per_100_hours : float or None
        Deaths of runs per 100 session-hours alive. None (the default): estimated from the
        data, if they have enough deaths.

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
        for cost in fields(self):
            value = getattr(self, cost.name)
            if value is None and cost.default is None:
                continue
            check_number(cost.name, value, 5)
            object.__setattr__(self, cost.name, float(value))

    def of_mistake(self, mistake: str) -> float:
        """Cost of one mistake: ``false_alarm``, or ``lost_run`` where the alarm closes runs."""
        return self.lost_run if mistake == "lost_run" else self.false_alarm


def n_needed(prob: float, *, confidence: float = 0.95) -> int:
    """Sample size from which the largest value is an upper confidence bound of a quantile.

    Parameters
    ----------
    prob : float
        The quantile, in (0, 1).
    confidence : float
        Confidence level, in (0, 1).

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
    """Upper confidence bound of a quantile; None where no value is one.

    Parameters
    ----------
    values : polars.Series of float
        Independent values; infinite where a value is only known to be large (censored).
    prob, confidence : float
        The quantile and the confidence level, in (0, 1).

    Returns
    -------
    float or None
        An observed value; None with fewer than `n_needed` values, or where the bound
        falls on a censored one.

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
_CURVE_SCHEMA = dict.fromkeys(CURVE, pl.Float64)


@dataclass(frozen=True)
class Choice:
    """The cheapest of a few thresholds, compared with today's, and the verdict.

    Attributes
    ----------
    curve : polars.DataFrame
        One row per candidate: `CURVE`, all but the first per 100 units of exposure.
    verdict : str
        A key of `VERDICTS`.
    recommended_s : float or None
        Today's value, another one, or none.
    best_s, best_low_s : float
        The cheapest candidate, and the first that is not significantly more expensive.
    best_high_s : float or None
        The last such candidate; None where the best may lie beyond the data.
    gain, gain_low, gain_high : float or None
        Saving of the recommended value (if none: of the cheapest) over today's, with its
        interval; None where today's value is no candidate.
    flips : bool
        Whether the verdict changes without some single unit.
    """

    curve: pl.DataFrame
    verdict: str
    recommended_s: float | None
    best_s: float
    best_low_s: float
    best_high_s: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    flips: bool = False

    def at(self, threshold_s: float | None) -> dict[str, float | None]:
        """The row of the curve at a candidate; None in every column for any other value."""
        row = self.curve.filter(pl.col("threshold_s").is_in([threshold_s]))
        return row.row(0, named=True) if row.height else dict.fromkeys(CURVE)


def choose(
    counts: pl.DataFrame,
    support: Support,
    *,
    price: float,
    hour: float,
    today_s: float | None = None,
    conf_level: float = 0.95,
) -> Choice | None:
    """The cheapest candidate of `silence_counts` or `elapsed_counts`; None without exposure.

    Parameters
    ----------
    counts : polars.DataFrame
        Mistakes and waiting, one row per independent unit; optional ``project``, within which
        units may be similar.
    support : Support
        The candidates, and the units at risk at each.
    price, hour : float
        Cost of a mistake and of an hour of waiting.
    today_s : float, optional
        Today's value; the gain is only known if it is one of the candidates.
    conf_level : float
        Level of the intervals.

    Notes
    -----
    Two values differ by the mistakes and the hours between them. Both are sums over units,
    with gamma intervals that account for the variance between units and projects, and for the
    mistakes that one more unit could add where none was observed (`weighted_count`); the
    difference of their costs has the interval of [1]_. So a short tail is not taken for an
    empty one.

    Of the values not significantly more expensive than the cheapest, and at most a twentieth
    more expensive, the one nearest to today's is chosen, if at least `FEWEST_AT_RISK` units
    were at risk there, and if it is significantly cheaper than today's without any single
    unit. Today's value is kept if no value could save much; if even that is unknown, the
    verdict is ``cannot_tell``.

    References
    ----------
    .. [1] Zou, G. Y. and Donner, A. (2008). Construction of confidence limits about
       effect measures: a general approach. Statistics in Medicine 27, 1693-1702.

    Examples
    --------
    >>> counts = pl.DataFrame(
    ...     {"unit": range(99), "exposure": 1.0, "mistakes_0": 2.0, "mistakes_1": 0.0,
    ...      "waiting_h_0": 1.0, "waiting_h_1": 3.0}
    ... )
    >>> support = Support((60.0, 120.0), (99, 99), (1.0, 1.0))
    >>> choose(counts, support, price=5.0, hour=1.0, today_s=60.0).recommended_s
    120.0
    """
    if not support.candidates_s or counts.is_empty() or counts[EXPOSURE].sum() <= 0:
        return None
    losses = Losses(counts, support, price, hour, conf_level)
    choice = decided(losses, today_s)
    # Null counts as another verdict: without the only unit with exposure nothing is known.
    flips = bool(verdicts_without_one(losses, today_s).ne_missing(choice.verdict).any())
    if flips and choice.verdict in ("change", "keep"):
        choice = replace(choice, verdict="cannot_tell", recommended_s=None)
    return replace(choice, curve=_curve(losses), flips=flips)


@dataclass(frozen=True)
class Losses:
    """Losses of all candidates, and the differences of two of them, with intervals."""

    counts: pl.DataFrame
    support: Support
    price: float
    hour: float
    conf_level: float

    @cached_property
    def sums(self) -> dict[str, float]:
        """Totals of exposure, mistakes and waiting."""
        return self.counts.select(pl.exclude("unit", "project")).sum().row(0, named=True)

    @property
    def n(self) -> int:
        """Number of candidates."""
        return len(self.support.candidates_s)

    @property
    def per_hundred(self) -> float:
        """Factor that turns a sum into a rate per 100 units of exposure."""
        return 100 / self.sums[EXPOSURE]

    def at(self, place: int) -> float:
        """Loss per 100 units of exposure at a candidate."""
        mistakes, waiting = self.sums[f"mistakes_{place}"], self.sums[f"waiting_h_{place}"]
        return self.per_hundred * (self.price * mistakes + self.hour * waiting)

    def saved(self, place: int) -> list[tuple[float, float, float]]:
        """Saving of each candidate over the given one, with both ends of its interval."""
        return [
            _difference(mistakes, waiting, sign=1 if place < other else -1)
            for other, (mistakes, waiting) in enumerate(self._cost_differences(place))
        ]

    def beyond(self, place: int) -> float:
        """Largest saving of a value beyond the last candidate: if all open units end well.

        Minus infinity where no unit is open.
        """
        if not self.support.n_open:
            return -math.inf
        last = self.n - 1 - self.support.is_beyond
        avoided = self.sums[f"mistakes_{place}"] - self.sums[f"mistakes_{last}"]
        waiting = self.sums[f"waiting_h_{last}"] - self.sums[f"waiting_h_{place}"]
        avoided += self.support.n_open
        return self.per_hundred * (self.price * avoided - self.hour * waiting)

    def intervals(self) -> list[tuple[float, float]]:
        """Interval of the loss of each candidate, as far as its mistakes were observed."""
        limits = self.support.candidates_s
        waits = [self._waiting_of_one_unit(0.0, place) for place in range(self.n)]
        names = [*mistake_columns(limits), *waiting_columns(limits)]
        units = self.counts.select(EXPOSURE, *self._projects, *names)
        ends = self._sum_intervals(units, [*self.per_hit_unit, *waits])
        intervals = []
        for mistakes, waiting in zip(ends[: self.n], ends[self.n :], strict=True):
            cost = self.price * mistakes[0] + self.hour * waiting[0]
            below, above = (
                math.hypot(
                    self.price * (mistakes[end] - mistakes[0]),
                    self.hour * (waiting[end] - waiting[0]),
                )
                for end in (1, 2)
            )
            intervals.append((self.per_hundred * (cost - below), self.per_hundred * (cost + above)))
        return intervals

    def _cost_differences(
        self, place: int
    ) -> Iterator[tuple[tuple[float, ...], tuple[float, ...]]]:
        """Costs of the mistakes and of the hours between a candidate and each other one."""
        pairs = [tuple(sorted((place, other))) for other in range(self.n)]
        heaviest = [
            *(self.per_hit_unit[j] if i != j else 0.0 for i, j in pairs),
            *(self._waiting_of_one_unit(self.support.candidates_s[i], j) for i, j in pairs),
        ]
        limits = self.support.candidates_s
        mistakes_of, waiting_of = mistake_columns(limits), waiting_columns(limits)
        # Few expressions over many columns: with one each, planning took most of the time.
        differences = self.counts.select(
            pl.col(EXPOSURE, *self._projects),
            pl.col(mistakes_of[: place + 1]) - pl.col(mistakes_of[place]),
            -(pl.col(mistakes_of[place + 1 :]) - pl.col(mistakes_of[place])),
            -(pl.col(waiting_of[:place]) - pl.col(waiting_of[place])),
            pl.col(waiting_of[place:]) - pl.col(waiting_of[place]),
        )
        ends = self._sum_intervals(differences, heaviest)
        for (_, to), mistakes, waiting in zip(pairs, ends[: self.n], ends[self.n :], strict=True):
            total, low, high = mistakes
            if self.support.is_beyond and to == self.n - 1:
                high += self.support.n_open
            yield (
                tuple(self.per_hundred * self.price * end for end in (total, low, high)),
                tuple(self.per_hundred * self.hour * end for end in waiting),
            )

    def _sum_intervals(
        self, units: pl.DataFrame, heaviest: Sequence[float]
    ) -> list[tuple[float, float, float]]:
        """Sums of all non-negative columns, each with both ends of its interval."""
        numbers = units.select(pl.exclude(EXPOSURE, *self._projects))
        totals = numbers.sum().row(0)
        variances = _variances(units.drop(self._projects))
        if self._projects:
            # A unit without a project counts as a project of its own.
            own = pl.lit("\n") + pl.int_range(pl.len()).cast(pl.String)
            projects = units.with_columns(project=pl.coalesce("project", own))
            sums = projects.group_by("project", maintain_order=True).sum().drop("project")
            variances = [max(pair) for pair in zip(variances, _variances(sums), strict=True)]
        hit = numbers.select((pl.all() > 0).sum()).row(0)
        intervals = []
        for total, variance, n_hit, heavy in zip(totals, variances, hit, heaviest, strict=True):
            # Few hit units underestimate the variance: at least that of a Poisson count of them.
            cautious = variance if n_hit >= FEWEST_HIT else max(variance, heavy * total)
            low, high = weighted_count(total, cautious, heavy, confidence=self.conf_level)
            intervals.append((total, low, high))
        return intervals

    @cached_property
    def _projects(self) -> list[str]:
        """The column of projects, if there are enough to estimate how much they vary."""
        known = "project" in self.counts.columns
        n_known = self.counts["project"].drop_nulls().n_unique() if known else 0
        return ["project"] * (n_known >= FEWEST_PROJECTS)

    @cached_property
    def per_hit_unit(self) -> list[float]:
        """Size-biased mean of mistakes per hit unit; with too few hit units, the previous one."""
        columns = mistake_columns(self.support.candidates_s)
        sums = self.counts.select(
            *((pl.col(name) > 0).sum().alias(f"n {name}") for name in columns),
            *(pl.col(name).sum() for name in columns),
            *((pl.col(name) ** 2).sum().alias(f"square {name}") for name in columns),
        ).row(0, named=True)
        means, mean = [], 1.0
        for name, weight in zip(columns, self.support.weights, strict=True):
            if sums[f"n {name}"] >= FEWEST_HIT:
                mean = max(1.0, sums[f"square {name}"] / sums[name])
            means.append(max(mean, weight))
        return means

    def _waiting_of_one_unit(self, from_s: float, place: int) -> float:
        """Hours that one more unit would wait from a duration until a candidate."""
        hours = (self.support.candidates_s[place] - from_s) / 3600
        return self.support.waits * hours * self.support.weights[place]


def _variances(units: pl.DataFrame) -> list[float]:
    """Variance of each sum given its exposure (ratio estimate), between independent units."""
    n, exposure = units.height, units[EXPOSURE].sum()
    if n < 2:
        return [0.0] * (units.width - 1)
    counts = pl.exclude(EXPOSURE)
    residual = counts - counts.sum() / exposure * pl.col(EXPOSURE)
    return [n / (n - 1) * square for square in units.select((residual**2).sum()).row(0)]


def _difference(
    mistakes: Sequence[float], waiting: Sequence[float], *, sign: int
) -> tuple[float, float, float]:
    """Mistakes minus waiting (or the reverse) with Zou and Donner's interval, see `choose`."""
    gain = mistakes[0] - waiting[0]
    below = math.hypot(mistakes[0] - mistakes[1], waiting[2] - waiting[0])
    above = math.hypot(mistakes[2] - mistakes[0], waiting[0] - waiting[1])
    return (gain, gain - below, gain + above) if sign > 0 else (-gain, -gain - above, below - gain)


def decided(losses: Losses, today_s: float | None) -> Choice:
    """The choice and its verdict, without the curve."""
    candidates_s, n_at_risk = losses.support.candidates_s, losses.support.n_at_risk
    loss = [losses.at(place) for place in range(losses.n)]
    lowest = min(loss) + TIE * abs(min(loss))
    cheapest = [place for place in range(losses.n) if loss[place] <= lowest]
    best = _nearest(cheapest, candidates_s, today_s)
    from_best = losses.saved(best)
    slack = TIE * abs(loss[best])
    # Not significantly more expensive: the upper end of the saving reaches 0.
    near_best = [place for place, (_, _, high) in enumerate(from_best) if high >= -slack]
    today = list(candidates_s).index(float(today_s)) if today_s in candidates_s else None
    from_today = None if today is None else from_best if today == best else losses.saved(today)
    eligible = [
        place
        for place in near_best
        if n_at_risk[place] >= FEWEST_AT_RISK
        and loss[place] <= (1 + NEAR) * loss[best] + slack
        and (from_today is None or from_today[place][1] > slack)
    ]
    chosen = _nearest(eligible, candidates_s, today_s) if eligible else None
    verdict = _undecided(losses)
    if today is not None and from_today is not None and today in near_best:
        chosen = today
        largest_saving = max(*(high for _, _, high in from_today), losses.beyond(today))
        if largest_saving <= max(MUCH * loss[today], MUCH_PER_HUNDRED * losses.price):
            verdict = "keep"
    elif (
        chosen is not None
        and losses.beyond(chosen) <= max(MUCH * loss[best], MUCH_PER_HUNDRED * losses.price)
        and (today_s is None or from_today)
    ):
        verdict = "choose" if today_s is None else "change"
    else:
        chosen = None
    gains: tuple[float | None, float | None, float | None] = (None, None, None)
    if from_today is not None:
        gains = from_today[best if chosen in (None, today) else chosen]
    is_decided = verdict in ("keep", "change", "choose")
    return Choice(
        pl.DataFrame(schema=_CURVE_SCHEMA),
        verdict,
        candidates_s[chosen] if chosen is not None and is_decided else None,
        candidates_s[best],
        candidates_s[min(near_best)],
        None if losses.beyond(best) > 0 else candidates_s[max(near_best)],
        *gains,
    )


def _curve(losses: Losses) -> pl.DataFrame:
    """Mistakes, waiting and loss of each candidate, with the interval of the loss."""
    candidates_s, ends, sums = losses.support.candidates_s, losses.intervals(), losses.sums
    return pl.DataFrame(
        {
            "threshold_s": list(candidates_s),
            "mistakes": [losses.per_hundred * sums[name] for name in mistake_columns(candidates_s)],
            "waiting_h": [
                losses.per_hundred * sums[name] for name in waiting_columns(candidates_s)
            ],
            "loss": [losses.at(place) for place in range(losses.n)],
            "loss_low": [low for low, _ in ends],
            "loss_high": [high for _, high in ends],
        },
        schema=_CURVE_SCHEMA,
    )


def _undecided(losses: Losses) -> str:
    """The verdict if nothing is known: *not identified* where most units were stopped early."""
    support = losses.support
    n_seen = len(support.weights) - support.is_beyond
    seen = list(zip(support.n_at_risk, support.weights, strict=True))[:n_seen]
    thin = [weight for n_at_risk, weight in seen if n_at_risk < FEWEST_AT_RISK]
    is_stopped = thin[0] >= STOPPED if thin else support.n_open > 0
    return "not_identified" if is_stopped else "cannot_tell"


def _nearest(places: Sequence[int], candidates_s: Sequence[float], today_s: float | None) -> int:
    """The candidate nearest to today's value, as a ratio; without one the first."""
    if not today_s:
        return places[0]
    return min(places, key=lambda place: abs(math.log(candidates_s[place] / today_s)))


def verdicts_without_one(losses: Losses, today_s: float | None) -> pl.Series:
    """The verdict without each unit, in the order of the counts; null: nothing is known."""
    order, candidates_s = list(range(losses.n)), losses.support.candidates_s
    if today_s:
        order.sort(key=lambda place: abs(math.log(candidates_s[place] / today_s)))
    return Without(
        losses.counts,
        losses.support,
        losses.price,
        losses.hour,
        losses.conf_level,
        today_s,
        order,
        _undecided(losses),
    ).verdicts()

"""Which of a few thresholds costs least, how sure that is, and whether to change today's."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import polars as pl

from stateanalytics.errors import check_number
from stateanalytics.state.population import FEWEST_PROJECTS
from stateanalytics.stats.distributions import beta_cdf
from stateanalytics.stats.intervals import weighted_count
from stateanalytics.thresholds.counts import (
    EXPOSURE,
    FEW_STOPPED,
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


CONFIDENCE = 0.95
"""Level of the upper bounds of quantiles."""


def n_needed(prob: float) -> int:
    """Sample size from which the largest value is an upper confidence bound of a quantile.

    Parameters
    ----------
    prob : float
        The quantile, in (0, 1).

    Notes
    -----
    The largest of n values lies above the quantile with probability ``1 - prob**n``.

    Examples
    --------
    >>> [n_needed(prob) for prob in (0.9, 0.95, 0.99)]
    [29, 59, 299]
    """
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(prob))


def upper_bound(values: pl.Series, prob: float) -> float | None:
    """Upper confidence bound of a quantile; None where no value is one.

    Parameters
    ----------
    values : polars.Series of float
        Independent values; infinite where a value is only known to be large (censored).
    prob : float
        The quantile, in (0, 1).

    Returns
    -------
    float or None
        An observed value; None with fewer than `n_needed` values, or where the bound
        falls on a censored one.

    Notes
    -----
    The smallest order statistic k with P(Binomial(n, prob) < k) >= `CONFIDENCE` [1]_.

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
    kept = values.cast(pl.Float64).sort(nulls_last=True)
    n = kept.len() - kept.null_count()
    if n < n_needed(prob):
        return None
    # P(Binomial(n, p) < k) = P(Beta(k, n - k + 1) > p).
    place = bisect_left(range(1, n), CONFIDENCE, key=lambda k: 1 - beta_cdf(prob, k, n - k + 1))
    bound = float(kept[place])
    return bound if math.isfinite(bound) else None


def covering_limit(values: pl.Series, loses: float = 0.05) -> float | None:
    """A limit that one more value exceeds with a chance of at most ``loses``; None: too few.

    Parameters
    ----------
    values : polars.Series of float
        Exchangeable values, in any order; infinite where one is only known to be large.
    loses : float
        The chance, in (0, 1).

    Notes
    -----
    The smallest order statistic k of n with ``k >= (n + 1) * (1 - loses)``, a conformal bound
    without any assumption on the distribution. A censored value that counts as infinite can
    only move the limit up; None where the limit would be a censored one.

    Examples
    --------
    >>> covering_limit(pl.Series(range(18))) is None
    True
    >>> covering_limit(pl.Series(range(19))), covering_limit(pl.Series(range(39)))
    (18.0, 37.0)
    """
    kept = values.cast(pl.Float64).sort(nulls_last=True)
    n = kept.len() - kept.null_count()
    place = math.ceil((n + 1) * (1 - loses) - TIE)
    if not 0 < place <= n:
        return None
    limit = float(kept[place - 1])
    return limit if math.isfinite(limit) else None


CURVE = ("threshold_s", "mistakes", "waiting_h", "loss", "loss_low", "loss_high")


MOST_TIMES = 10.0
"""Beyond so many times the units that were seen, how many would decide is not estimated."""
ROUNDING = 1e-12
"""Squares of residuals below this share of the squares are differences of rounded sums."""
DIRECTIONS = ("raise", "lower")
"""Verdicts that say on which side of today's value the best one is, and not where."""


@dataclass(frozen=True)
class Toward:
    """A direction: the candidate nearest to today's that is known to be cheaper."""

    verdict: str
    place: int
    bound_s: float
    gain: tuple[float, float, float]


@dataclass(frozen=True)
class Choice:
    """The cheapest of a few thresholds, compared with today's, and the verdict.

    Attributes
    ----------
    curve : polars.DataFrame
        One row per candidate: `CURVE`, all but the first per 100 units of exposure.
    verdict : str
        One of `VERDICTS`.
    recommended_s : float or None
        Today's value, another one, or none.
    best_s, best_low_s : float
        The cheapest candidate, and the first that is not significantly more expensive.
    best_high_s : float or None
        The last such candidate; None where the best may lie beyond the data.
    gain, gain_low, gain_high : float or None
        Saving of the recommended value (if none: of the bound, else of the cheapest) over
        today's, with its interval; None where today's value is no candidate.
    toward : Toward or None
        The side of today's value on which the best one is, where that is known.
    flips : bool
        Whether the verdict changes without some single unit.
    near_best : tuple of int
        Places of the candidates that are not significantly more expensive than the cheapest.
    times : float or None
        Where the data cannot tell: how many times as many units would probably decide.
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
    toward: Toward | None = None
    flips: bool = False
    near_best: tuple[int, ...] = ()
    times: float | None = None

    @property
    def bound_s(self) -> float | None:
        """Where only the direction is known, the nearest value that is known to cost less."""
        return self.toward.bound_s if self.toward and self.verdict in DIRECTIONS else None

    def at(self, threshold_s: float | None) -> dict[str, float | None]:
        """The row of the curve at a candidate; None in every column for any other value."""
        rows = self.curve.iter_rows(named=True)
        nothing: dict[str, float | None] = dict.fromkeys(CURVE)
        return next((row for row in rows if row["threshold_s"] == threshold_s), nothing)


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
    unit. Where the best cannot be determined, but all values that may be the best are on one
    side of today's, and one of them is significantly cheaper than today's (also without any
    single unit), the verdict is the direction. Today's value is kept if no value could save
    much; if even that is unknown, the verdict is ``cannot_tell``.

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
    toward = choice.toward
    # None is another verdict: without the only unit with exposure nothing is known.
    others = verdicts_without_one(losses, today_s)
    flips = any(other != choice.verdict for other in others)
    is_undecided = choice.verdict == "cannot_tell" or (choice.verdict == "change" and flips)
    # A change without some unit is on the same side, so it agrees with the direction.
    if toward and is_undecided and {*others} <= {"change", toward.verdict}:
        choice = without_value(choice)
        flips = False
    elif flips and choice.verdict in ("change", "keep"):
        choice = replace(choice, verdict="cannot_tell", recommended_s=None)
    return replace(choice, curve=_curve(losses), flips=flips)


def without_value(choice: Choice) -> Choice:
    """The same without a recommended value: its direction, else that the data cannot tell."""
    if choice.toward is None:
        return replace(choice, verdict="cannot_tell", recommended_s=None)
    gain, low, high = choice.toward.gain
    return replace(
        choice,
        verdict=choice.toward.verdict,
        recommended_s=None,
        gain=gain,
        gain_low=low,
        gain_high=high,
    )


@dataclass(frozen=True)
class _LeftOut:
    """A unit to leave out: its exposure and numbers, those of its project, and its name."""

    whole: Losses
    unit: Sequence[float]
    project: Sequence[float]
    is_alone: bool
    name: str | None


@dataclass(frozen=True)
class Losses:
    """Losses of all candidates, and the differences of two of them, with intervals.

    All follow from sums over units and over projects (`_terms`), so that leaving a unit out is a
    subtraction, and no other pass over all units.
    """

    counts: pl.DataFrame
    support: Support
    price: float
    hour: float
    conf_level: float
    left_out: _LeftOut | None = None

    @cached_property
    def sums(self) -> dict[str, float]:
        """Totals of exposure, mistakes and waiting."""
        _, exposure, _, *sums = self._by_unit(None)
        return dict(zip(self._names, [exposure, *sums[: 2 * self.n]], strict=True))

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
        waits = [self._waiting_of_one_unit(0.0, place) for place in range(self.n)]
        ends = self._sum_intervals(None, [*self.per_hit_unit, *waits])
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
        ends = self._sum_intervals(place, heaviest)
        for (_, to), mistakes, waiting in zip(pairs, ends[: self.n], ends[self.n :], strict=True):
            total, low, high = mistakes
            if self.support.is_beyond and to == self.n - 1:
                high += self.support.n_open
            yield (
                tuple(self.per_hundred * self.price * end for end in (total, low, high)),
                tuple(self.per_hundred * self.hour * end for end in waiting),
            )

    def _sum_intervals(
        self, place: int | None, heaviest: Sequence[float]
    ) -> list[tuple[float, float, float]]:
        """Sums of the numbers of `_terms`, each with both ends of its interval."""
        n, of_units = 2 * self.n, self._by_unit(place)
        totals, n_hit = of_units[3 : 3 + n], of_units[3 + n : 3 + 2 * n]
        variances = _variances(of_units)
        if self.n_projects >= FEWEST_PROJECTS:
            between = _variances(self._by_project(place))
            variances = [max(pair) for pair in zip(variances, between, strict=True)]
        intervals = []
        for total, variance, hit, heavy in zip(totals, variances, n_hit, heaviest, strict=True):
            # Few hit units underestimate the variance: at least that of a Poisson count of them.
            cautious = variance if hit >= FEWEST_HIT else max(variance, heavy * total)
            low, high = weighted_count(total, cautious, heavy, confidence=self.conf_level)
            intervals.append((total, low, high))
        return intervals

    @cached_property
    def n_projects(self) -> int:
        """Known projects, of which some are needed to estimate how much they vary."""
        if self.left_out:
            is_gone = self.left_out.is_alone and self.left_out.name is not None
            return self.left_out.whole.n_projects - is_gone
        if "project" not in self.counts.columns:
            return 0
        projects = self.counts["project"]
        return projects.n_unique() - bool(projects.null_count())

    @cached_property
    def projects(self) -> pl.DataFrame:
        """The counts of each project, and ``n_units``; a unit without one is one of its own."""
        own = pl.lit("\n") + pl.int_range(pl.len()).cast(pl.String)
        named = self.counts.with_columns(project=pl.coalesce("project", own), n_units=1)
        by_project = named.group_by("project", maintain_order=True)
        return by_project.agg(pl.col("n_units", *self._names).sum())

    def without_each(self, places: Sequence[int]) -> Iterator[Losses]:
        """The losses without each of these rows of the counts."""
        units, of_project = self.counts[self._names], {}
        names: Sequence[str | None] = [None] * len(places)
        if self.n_projects >= FEWEST_PROJECTS:
            projects = self.counts["project"].cast(pl.String)
            names = [projects[place] for place in places]
            mine = self.projects.filter(pl.col("project").is_in(names))
            rows = mine.select("project", "n_units", *self._names).rows()
            of_project = {name: row for name, *row in rows}
        for name, unit in zip(names, map(units.row, places), strict=True):
            n_units, *project = of_project.get(name, (1, *unit))
            yield replace(self, left_out=_LeftOut(self, unit, project, n_units == 1, name))

    @property
    def _names(self) -> list[str]:
        limits = self.support.candidates_s
        return [EXPOSURE, *mistake_columns(limits), *waiting_columns(limits)]

    @cached_property
    def _kept(self) -> dict[tuple[int | None, bool], tuple[float, ...]]:
        """Sums that were asked for, by candidate and whether by project."""
        return {}

    def _by_unit(self, place: int | None) -> tuple[float, ...]:
        """Number of units and sums of `_terms`."""
        if self.left_out is None:
            return self._sums(place)
        return self._minus(self.left_out.whole._by_unit(place), self.left_out.unit, place)

    def _by_project(self, place: int | None) -> tuple[float, ...]:
        if self.left_out is None:
            return self._sums(place, by_project=True)
        left = self.left_out
        without = self._minus(left.whole._by_project(place), left.project, place)
        if left.is_alone:
            return without
        rest = [of_all - own for of_all, own in zip(left.project, left.unit, strict=True)]
        return self._minus(without, rest, place, -1)

    def _sums(self, place: int | None, *, by_project: bool = False) -> tuple[float, ...]:
        key = (place, by_project)
        if key not in self._kept:
            rows = self.projects if by_project else self.counts
            terms = self._terms(place, [pl.col(name) for name in self._names])
            sums = (term.sum().alias(str(i)) for i, term in enumerate(terms))
            self._kept[key] = rows.select(pl.len(), *sums).row(0)
        return self._kept[key]

    def _minus(
        self, sums: Sequence[float], row: Sequence[float], place: int | None, sign: int = 1
    ) -> tuple[float, ...]:
        terms = (1, *self._terms(place, row))
        return tuple(each - sign * term for each, term in zip(sums, terms, strict=True))

    def _terms(self, place: int | None, row: Sequence[Any]) -> list[Any]:
        """Exposure and its square; then all numbers, whether above 0, squared, times exposure.

        Numbers are mistakes and hours of each candidate, or, with ``place``, between it and
        each: as expressions or as values of one row, and never negative.
        """
        exposure, mistakes, waiting = row[0], row[1 : 1 + self.n], row[1 + self.n :]
        numbers = [*mistakes, *waiting]
        if place is not None:
            mistake, wait = mistakes[place], waiting[place]
            numbers = [
                *(each - mistake for each in mistakes[:place]),
                *(mistake - each for each in mistakes[place:]),
                *(wait - each for each in waiting[:place]),
                *(each - wait for each in waiting[place:]),
            ]
        hit, squares = [each > 0 for each in numbers], [each * each for each in numbers]
        products = [each * exposure for each in numbers]
        return [exposure, exposure * exposure, *numbers, *hit, *squares, *products]

    @cached_property
    def per_hit_unit(self) -> list[float]:
        """Size-biased mean of mistakes per hit unit; with too few hit units, the previous one."""
        sums, n = self._by_unit(None)[3:], 2 * self.n
        totals, n_hit, squares = sums, sums[n:], sums[2 * n :]
        means, mean = [], 1.0
        for place, weight in enumerate(self.support.weights):
            if n_hit[place] >= FEWEST_HIT:
                mean = max(1.0, squares[place] / totals[place])
            means.append(max(mean, weight))
        return means

    def _waiting_of_one_unit(self, from_s: float, place: int) -> float:
        """Hours that one more unit would wait from a duration until a candidate."""
        hours = (self.support.candidates_s[place] - from_s) / 3600
        return self.support.waits * hours * self.support.weights[place]


def _variances(sums: Sequence[float]) -> list[float]:
    """Variance of each total given its exposure (ratio estimate), between independent rows."""
    n, exposure, exposure_squared, *terms = sums
    n_numbers = len(terms) // 4
    if n < 2:
        return [0.0] * n_numbers
    variances = []
    for place, total in enumerate(terms[:n_numbers]):
        ratio = total / exposure
        square, product = terms[2 * n_numbers + place], terms[3 * n_numbers + place]
        residual = square - 2 * ratio * product + ratio * ratio * exposure_squared
        # What is left by rounding, where all units have one ratio, is nothing.
        variances.append(n / (n - 1) * residual if residual > ROUNDING * square else 0.0)
    return variances


def _difference(
    mistakes: Sequence[float], waiting: Sequence[float], *, sign: int
) -> tuple[float, float, float]:
    """Mistakes minus waiting (or the reverse) with Zou and Donner's interval, see `choose`."""
    gain = mistakes[0] - waiting[0]
    below = math.hypot(mistakes[0] - mistakes[1], waiting[2] - waiting[0])
    above = math.hypot(mistakes[2] - mistakes[0], waiting[0] - waiting[1])
    return (gain, gain - below, gain + above) if sign > 0 else (-gain, -gain - above, below - gain)


def decided(losses: Losses, today_s: float | None, toward: Toward | None = None) -> Choice:
    """The choice and its verdict, without the curve; ``toward``: a direction to confirm."""
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
        is_little = largest_saving <= max(MUCH * loss[today], MUCH_PER_HUNDRED * losses.price)
        if is_little and _is_seen(losses.support, today):
            verdict = "keep"
    elif (
        chosen is not None
        and losses.beyond(chosen) <= max(MUCH * loss[best], MUCH_PER_HUNDRED * losses.price)
        and (today_s is None or from_today)
    ):
        verdict = "choose" if today_s is None else "change"
    else:
        chosen = None
        if toward and from_today is not None and from_today[toward.place][1] > 0:
            verdict = toward.verdict
    gains: tuple[float | None, float | None, float | None] = (None, None, None)
    if from_today is not None:
        gains = from_today[best if chosen in (None, today) else chosen]
    is_decided = verdict in ("keep", "change", "choose")
    return Choice(
        pl.DataFrame(schema=dict.fromkeys(CURVE, pl.Float64)),
        verdict,
        candidates_s[chosen] if chosen is not None and is_decided else None,
        candidates_s[best],
        candidates_s[min(near_best)],
        None if losses.beyond(best) > 0 else candidates_s[max(near_best)],
        *gains,
        _direction(losses.support, near_best, from_today, today)
        if _undecided(losses) == "cannot_tell"
        else None,
        near_best=tuple(near_best),
        times=_times(losses, best, today, from_today) if verdict == "cannot_tell" else None,
    )


def lowered(losses: Losses) -> Toward | None:
    """The longest candidate that costs less than the last one, also without any single unit.

    The losses are those of runs `at_worst`; the last candidate stands for today's limit.
    """
    last = losses.n - 1
    longest = losses.counts[waiting_columns(losses.support.candidates_s)[last]].arg_max() or 0
    without, gains = next(losses.without_each([longest])), losses.saved(last)
    lows = [min(pair[0][1], pair[1][1]) for pair in zip(gains, without.saved(last), strict=True)]
    place = max((place for place, low in enumerate(lows) if low > 0), default=None)
    if place is None:
        return None
    return Toward("lower", place, losses.support.candidates_s[place], gains[place])


def _times(
    losses: Losses,
    best: int,
    today: int | None,
    from_today: Sequence[tuple[float, float, float]] | None,
) -> float | None:
    """How many times as many units would decide, if they are like these; None: not known.

    Intervals become narrower with the root of the number of units: until the cheapest value is
    significantly cheaper than today's, or no value can save much.
    """
    fewest = FEWEST_AT_RISK / max(1, losses.support.n_at_risk[best])
    if today is None or from_today is None:
        return fewest if fewest > 1 else None
    gain, low, _ = from_today[best]
    ways = [((gain - low) / gain) ** 2] if gain > 0 else []
    if low > 0:
        ways.append(fewest)
    small = max(MUCH * losses.at(today), MUCH_PER_HUNDRED * losses.price)
    gains = [(gain, high) for gain, _, high in from_today]
    if losses.beyond(today) <= small and all(gain < small for gain, _ in gains):
        ways.append(max(((high - gain) / (small - gain)) ** 2 for gain, high in gains))
    return min((times for times in ways if 1 < times <= MOST_TIMES), default=None)


def _direction(
    support: Support,
    near_best: Sequence[int],
    from_today: Sequence[tuple[float, float, float]] | None,
    today: int | None,
) -> Toward | None:
    """On which side of today's value all values are that may be the best, if one is cheaper."""
    if today is None or from_today is None or min(near_best) <= today <= max(near_best):
        return None
    is_up = min(near_best) > today
    cheaper = [
        place
        for place in near_best
        # What a limit or an observer closed does not show how it would have ended.
        if from_today[place][1] > 0 and support.weights[max(place, today)] < FEW_STOPPED
    ]
    if not cheaper:
        return None
    bound = min(cheaper) if is_up else max(cheaper)
    verdict = "raise" if is_up else "lower"
    return Toward(verdict, bound, support.candidates_s[bound], from_today[bound])


def totals(counts: pl.DataFrame, support: Support) -> pl.DataFrame:
    """Mistakes and waiting of each candidate, per 100 units of exposure."""
    limits, exposure = list(support.candidates_s), float(counts[EXPOSURE].sum())
    mistakes, waiting = (
        [100 / exposure * float(counts[name].sum()) for name in names]
        for names in (mistake_columns(limits), waiting_columns(limits))
    )
    columns = {"threshold_s": limits, "mistakes": mistakes, "waiting_h": waiting}
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64))


def seen(curve: pl.DataFrame, support: Support) -> pl.DataFrame:
    """The candidates up to beyond which fewer than half of the spells were stopped."""
    kept = [row for place, row in enumerate(curve.iter_rows()) if _is_seen(support, place)]
    return pl.DataFrame(kept, curve.schema, orient="row")


def _is_seen(support: Support, place: int) -> bool:
    """Whether half of the spells beyond a candidate show how they ended; see `seen`."""
    return support.weights[min(place + 1, len(support.weights) - 1)] < STOPPED


def break_even(curve: pl.DataFrame, today_s: float | None) -> tuple[float, float] | None:
    """From and to which price of a mistake, in hours of waiting, today's value is the cheapest.

    Parameters
    ----------
    curve : polars.DataFrame
        ``threshold_s``, ``mistakes`` and ``waiting_h`` of each candidate, see `totals`.
    today_s : float or None
        Today's value; None, or no candidate: there is no such price.

    Examples
    --------
    >>> curve = pl.DataFrame(
    ...     {"threshold_s": [1.0, 2.0, 4.0], "mistakes": [9.0, 4.0, 2.0],
    ...      "waiting_h": [1.0, 2.0, 4.0]}
    ... )
    >>> break_even(curve, 2.0), break_even(curve, 4.0)
    ((0.2, 1.0), (1.0, inf))
    """
    columns = (curve[name].to_list() for name in ("threshold_s", "mistakes", "waiting_h"))
    rows = list(zip(*columns, strict=True))
    today = next((row for row in rows if row[0] == today_s), None)
    if today is None:
        return None
    low, high = 0.0, math.inf
    for _, mistakes, waiting_h in rows:
        fewer, longer = mistakes - today[1], today[2] - waiting_h
        # Today's value is no dearer where price * fewer >= longer.
        if fewer > 0:
            low = max(low, longer / fewer)
        elif fewer < 0:
            high = min(high, longer / fewer)
        elif longer > 0:
            low = math.inf
    return low, max(0.0, high)


def _curve(losses: Losses) -> pl.DataFrame:
    """Mistakes, waiting and loss of each candidate, with the interval of the loss."""
    ends = losses.intervals()
    loss = {
        "loss": [losses.at(place) for place in range(losses.n)],
        "loss_low": [low for low, _ in ends],
        "loss_high": [high for _, high in ends],
    }
    schema = dict.fromkeys(loss, pl.Float64)
    return totals(losses.counts, losses.support).hstack(pl.DataFrame(loss, schema))


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


def verdicts_without_one(losses: Losses, today_s: float | None) -> list[str | None]:
    """The verdict without each unit on which it rests most; None: nothing is known.

    These are the units that contribute most, for and against, to the differences between
    today's value (else the best) and those that the verdict compares it with. Without any
    other unit these differences change less. And one that is all of its project: without it
    there may be too few projects to widen an interval.
    """
    candidates_s, whole = losses.support.candidates_s, decided(losses, today_s)
    best = candidates_s.index(whole.best_s)
    base = candidates_s.index(today_s) if today_s in candidates_s else best
    highs = [high for _, _, high in losses.saved(base)]
    others = {best, losses.n - 1, highs.index(max(highs))}
    if whole.recommended_s is not None:
        others.add(candidates_s.index(whole.recommended_s))
    if whole.toward:
        others.add(whole.toward.place)
    if whole.verdict == "keep":
        others.update(whole.near_best)
    cost = [
        losses.price * pl.col(mistakes) + losses.hour * pl.col(waiting)
        for mistakes, waiting in zip(
            mistake_columns(candidates_s), waiting_columns(candidates_s), strict=True
        )
    ]
    differences = [cost[base] - cost[other] for other in sorted(others - {base})]
    ends = [(each.arg_max(), each.arg_min()) for each in (pl.col(EXPOSURE), *differences)]
    units = losses.counts.select(
        place.alias(str(i)) for i, place in enumerate(place for pair in ends for place in pair)
    ).row(0)
    if losses.n_projects >= FEWEST_PROJECTS:
        is_alone = pl.col("project").is_not_null() & (pl.len().over("project") == 1)
        units += tuple(losses.counts.select(is_alone.arg_true().first()).to_series().drop_nulls())
    return [
        decided(without, today_s, whole.toward).verdict if without.sums[EXPOSURE] > 0 else None
        for without in losses.without_each(sorted(set(units)))
    ]

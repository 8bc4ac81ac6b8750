"""Which of a few thresholds costs least, how sure that is, and whether to move at all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import polars as pl

from stateanalytics.state.population import FEWEST_PROJECTS
from stateanalytics.stats.intervals import weighted_count
from stateanalytics.thresholds.counts import EXPOSURE, Support, mistake_columns, waiting_columns
from stateanalytics.thresholds.leave_one_out import Without
from stateanalytics.thresholds.rules import (
    ALIKE,
    CLOSED,
    FEWEST_AT_RISK,
    FEWEST_HIT,
    MUCH,
    MUCH_PER_HUNDRED,
    NEAR,
)

CURVE = ("threshold_s", "mistakes", "waiting_h", "loss", "loss_low", "loss_high")
_CURVE_SCHEMA = dict.fromkeys(CURVE, pl.Float64)


@dataclass(frozen=True)
class Choice:
    """The cheapest of a few thresholds, beside today's, and what to do.

    Attributes
    ----------
    curve : polars.DataFrame
        One row a candidate: `CURVE`, all but the first per 100 units of exposure.
    verdict : str
        A key of `VERDICTS`.
    recommended_s : float or None
        Today's value, another one, or none.
    best_s, best_low_s : float
        The cheapest candidate, and the first that cannot be told from it.
    best_high_s : float or None
        The last; None where the best may lie beyond the data.
    gain, gain_low, gain_high : float or None
        What moving from today's value to the recommended one (without any: the cheapest)
        saves, with its interval; None where today's value is no candidate.
    flips : bool
        Whether the verdict is another one without some one unit.
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
        """The row of the curve at a candidate; nothing known elsewhere."""
        at = self.curve.filter(pl.col("threshold_s").is_in([threshold_s]))
        return at.row(0, named=True) if at.height else dict.fromkeys(CURVE)


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
        Mistakes and waiting, one row an independent unit; ``project``, where it is there,
        is what units may have in common.
    support : Support
        The candidates, and how many units were seen so far.
    price, hour : float
        What a mistake and an hour of waiting cost.
    today_s : float, optional
        Today's value; its gain is only known where it is one of the candidates.
    conf_level : float
        Of the intervals.

    Notes
    -----
    Two values differ by the mistakes and the hours between them. Both are sums over units,
    with gamma intervals that know how much units and projects vary, and what mistakes one
    more unit could bring where none was seen (`weighted_count`); the difference of their
    costs has the interval of [1]_. So no tail is taken for empty because it is short.

    Of the values that cannot be told from the cheapest and cost at most a twentieth more, the
    one nearest to today's is taken, if at least `FEWEST_AT_RISK` units were under
    observation there, and if it is cheaper than today's beyond noise, whichever one unit is
    left out. Today's value is kept where nothing could save much; where that is not
    known, either, the verdict says so.

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
    # One unit may be all that was alive: without it nothing is known.
    flips = bool(verdicts_without_one(losses, today_s).ne_missing(choice.verdict).any())
    if flips and choice.verdict in ("change", "keep"):
        choice = replace(choice, verdict="cannot_tell", recommended_s=None)
    return replace(choice, curve=_curve(losses), flips=flips)


@dataclass(frozen=True)
class Losses:
    """What every candidate costs, and by how much two of them differ."""

    counts: pl.DataFrame
    support: Support
    price: float
    hour: float
    conf_level: float
    sums: dict[str, float] = field(init=False)
    together: list[float] = field(init=False)

    def __post_init__(self) -> None:
        numbers = self.counts.select(pl.exclude("unit", "project"))
        object.__setattr__(self, "sums", numbers.sum().row(0, named=True))
        object.__setattr__(self, "together", self._together())

    @property
    def n(self) -> int:
        """How many candidates there are."""
        return len(self.support.candidates_s)

    @property
    def per_hundred(self) -> float:
        """What a sum is multiplied by, per 100 units of exposure."""
        return 100 / self.sums[EXPOSURE]

    def at(self, place: int) -> float:
        """What 100 units of exposure cost at a candidate."""
        spent = self.price * self.sums[self._mistakes(place)]
        return self.per_hundred * (spent + self.hour * self.sums[self._waiting(place)])

    def saved(self, place: int) -> list[tuple[float, float, float]]:
        """What moving from a candidate to each one saves, with both ends."""
        return [
            _difference(mistakes, waiting, sign=1 if place < other else -1)
            for other, (mistakes, waiting) in enumerate(self._apart(place))
        ]

    def beyond(self, place: int) -> float:
        """What going on beyond the last candidate could save at most: all that is open ends well.

        Nothing can be saved where nothing is open.
        """
        if not self.support.n_open:
            return -math.inf
        last = self.n - 1 - self.support.is_beyond
        spared = self.sums[self._mistakes(place)] - self.sums[self._mistakes(last)]
        longer = self.sums[self._waiting(last)] - self.sums[self._waiting(place)]
        spared += self.support.n_open
        return self.per_hundred * (self.price * spared - self.hour * longer)

    def intervals(self) -> list[tuple[float, float]]:
        """Both ends of what each candidate costs, as far as its mistakes were seen."""
        limits = self.support.candidates_s
        steps = [self._step(0.0, place) for place in range(self.n)]
        names = [*mistake_columns(limits), *waiting_columns(limits)]
        units = self.counts.select(EXPOSURE, *self._projects, *names)
        ends = self._sum_interval(units, [*self.together, *steps])
        found = []
        for mistakes, waiting in zip(ends[: self.n], ends[self.n :], strict=True):
            cost = self.price * mistakes[0] + self.hour * waiting[0]
            below, above = (
                math.hypot(
                    self.price * (mistakes[end] - mistakes[0]),
                    self.hour * (waiting[end] - waiting[0]),
                )
                for end in (1, 2)
            )
            found.append((self.per_hundred * (cost - below), self.per_hundred * (cost + above)))
        return found

    def _apart(self, place: int) -> Iterator[tuple[tuple[float, ...], tuple[float, ...]]]:
        """Costs of the mistakes and of the hours between a candidate and each one."""
        pairs = [tuple(sorted((place, other))) for other in range(self.n)]
        heaviest = [
            *(self.together[j] if i != j else 0.0 for i, j in pairs),
            *(self._step(self.support.candidates_s[i], j) for i, j in pairs),
        ]
        limits = self.support.candidates_s
        mistakes_of, waiting_of = mistake_columns(limits), waiting_columns(limits)
        # One expression for many columns: of one each, most of the time went into planning.
        apart = self.counts.select(
            pl.col(EXPOSURE, *self._projects),
            pl.col(mistakes_of[: place + 1]) - pl.col(mistakes_of[place]),
            -(pl.col(mistakes_of[place + 1 :]) - pl.col(mistakes_of[place])),
            -(pl.col(waiting_of[:place]) - pl.col(waiting_of[place])),
            pl.col(waiting_of[place:]) - pl.col(waiting_of[place]),
        )
        ends = self._sum_interval(apart, heaviest)
        for (_, to), mistakes, waiting in zip(pairs, ends[: self.n], ends[self.n :], strict=True):
            seen, low, high = mistakes
            if self.support.is_beyond and to == self.n - 1:
                high += self.support.n_open
            yield (
                tuple(self.per_hundred * self.price * end for end in (seen, low, high)),
                tuple(self.per_hundred * self.hour * end for end in waiting),
            )

    def _sum_interval(
        self, units: pl.DataFrame, heaviest: Sequence[float]
    ) -> list[tuple[float, float, float]]:
        """Sums of all columns that are never negative, each with both ends of its interval."""
        numbers = units.select(pl.exclude(EXPOSURE, *self._projects))
        totals = numbers.sum().row(0)
        variances = _variances(units.drop(self._projects))
        if self._projects:
            # A unit without a project is of no other's.
            whose = pl.coalesce("project", pl.lit("\n") + pl.int_range(pl.len()).cast(pl.String))
            numbered = units.with_columns(project=whose)
            of_projects = numbered.group_by("project", maintain_order=True).sum().drop("project")
            by_project = _variances(of_projects)
            variances = [max(pair) for pair in zip(variances, by_project, strict=True)]
        hit = numbers.select((pl.all() > 0).sum()).row(0)
        found = []
        for total, variance, n_hit, heavy in zip(totals, variances, hit, heaviest, strict=True):
            # What few units show of their own variance is not to be relied on.
            spread = variance if n_hit >= FEWEST_HIT else max(variance, heavy * total)
            low, high = weighted_count(total, spread, heavy, confidence=self.conf_level)
            found.append((total, low, high))
        return found

    @cached_property
    def _projects(self) -> list[str]:
        """The column of projects, where there are enough of them to vary."""
        known = "project" in self.counts.columns
        n_known = self.counts["project"].drop_nulls().n_unique() if known else 0
        return ["project"] * (n_known >= FEWEST_PROJECTS)

    def _together(self) -> list[float]:
        """How many mistakes come with one unit; where hardly any was hit, as shortly before."""
        columns = mistake_columns(self.support.candidates_s)
        each = self.counts.select(
            *((pl.col(name) > 0).sum().alias(f"n {name}") for name in columns),
            *(pl.col(name).sum() for name in columns),
            *((pl.col(name) ** 2).sum().alias(f"square {name}") for name in columns),
        ).row(0, named=True)
        together, last = [], 1.0
        for name, weight in zip(columns, self.support.weights, strict=True):
            if each[f"n {name}"] >= FEWEST_HIT:
                last = max(1.0, each[f"square {name}"] / each[name])
            together.append(max(last, weight))
        return together

    def _step(self, from_s: float, place: int) -> float:
        """Hours that one more unit would wait from a moment until a candidate."""
        apart_h = (self.support.candidates_s[place] - from_s) / 3600
        return self.support.waits * apart_h * self.support.weights[place]

    @staticmethod
    def _mistakes(place: int) -> str:
        return f"mistakes_{place}"

    @staticmethod
    def _waiting(place: int) -> str:
        return f"waiting_h_{place}"


def _variances(units: pl.DataFrame) -> list[float]:
    """Of each sum, in relation to the exposure that comes with it, as independent units vary."""
    n, exposure = units.height, units[EXPOSURE].sum()
    if n < 2:
        return [0.0] * (units.width - 1)
    each = pl.exclude(EXPOSURE)
    rest = each - each.sum() / exposure * pl.col(EXPOSURE)
    return [n / (n - 1) * square for square in units.select((rest**2).sum()).row(0)]


def _difference(
    mistakes: Sequence[float], waiting: Sequence[float], *, sign: int
) -> tuple[float, float, float]:
    """Mistakes minus waiting, or the other way round, with the ends of both combined."""
    gain = mistakes[0] - waiting[0]
    below = math.hypot(mistakes[0] - mistakes[1], waiting[2] - waiting[0])
    above = math.hypot(mistakes[2] - mistakes[0], waiting[0] - waiting[1])
    return (gain, gain - below, gain + above) if sign > 0 else (-gain, -gain - above, below - gain)


def decided(losses: Losses, today_s: float | None) -> Choice:
    """The verdict on all units that are there, without the curve, which it does not take."""
    tried, at_risk = losses.support.candidates_s, losses.support.n_at_risk
    cost = [losses.at(place) for place in range(losses.n)]
    best = _nearest(
        [place for place in range(losses.n) if cost[place] <= min(cost) + ALIKE * abs(min(cost))],
        tried,
        today_s,
    )
    dearer = losses.saved(best)
    slack = ALIKE * abs(cost[best])
    # What is dearer saves less than nothing, however lucky.
    alike = [place for place, (_, _, high) in enumerate(dearer) if high >= -slack]
    is_open = losses.beyond(best) > 0
    today = list(tried).index(float(today_s)) if today_s in tried else None
    saved = None if today is None else dearer if today == best else losses.saved(today)
    near = [
        place
        for place in alike
        if at_risk[place] >= FEWEST_AT_RISK
        and cost[place] <= (1 + NEAR) * cost[best] + slack
        and (saved is None or saved[place][1] > slack)
    ]
    much = max(MUCH * cost[best], MUCH_PER_HUNDRED * losses.price)
    taken = _nearest(near, tried, today_s) if near else None
    verdict = "not_identified" if _is_closed(losses) else "cannot_tell"
    if today is not None and saved is not None and today in alike:
        could = max(*(high for _, _, high in saved), losses.beyond(today))
        taken = today
        if could <= max(MUCH * cost[today], MUCH_PER_HUNDRED * losses.price):
            verdict = "keep"
    elif taken is not None and losses.beyond(taken) <= much and (today_s is None or saved):
        verdict = "choose" if today_s is None else "change"
    else:
        taken = None
    gains: tuple[float | None, float | None, float | None] = (None, None, None)
    if saved is not None:
        gains = saved[best if taken in (None, today) else taken]
    return Choice(
        pl.DataFrame(schema=_CURVE_SCHEMA),
        verdict,
        tried[taken] if taken is not None and verdict in ("keep", "change", "choose") else None,
        tried[best],
        tried[min(alike)],
        None if is_open else tried[max(alike)],
        *gains,
    )


def _curve(losses: Losses) -> pl.DataFrame:
    """What each candidate costs, with its interval."""
    tried, ends, sums = losses.support.candidates_s, losses.intervals(), losses.sums
    return pl.DataFrame(
        {
            "threshold_s": list(tried),
            "mistakes": [losses.per_hundred * sums[name] for name in mistake_columns(tried)],
            "waiting_h": [losses.per_hundred * sums[name] for name in waiting_columns(tried)],
            "loss": [losses.at(place) for place in range(losses.n)],
            "loss_low": [low for low, _ in ends],
            "loss_high": [high for _, high in ends],
        },
        schema=_CURVE_SCHEMA,
    )


def _is_closed(losses: Losses) -> bool:
    """Whether those who would still be there had been stopped by somebody, not by their end."""
    support = losses.support
    n_seen = len(support.weights) - support.is_beyond
    seen = list(zip(support.n_at_risk, support.weights, strict=True))[:n_seen]
    thin = [weight for n_at_risk, weight in seen if n_at_risk < FEWEST_AT_RISK]
    return thin[0] >= CLOSED if thin else support.n_open > 0


def _nearest(places: Sequence[int], tried: Sequence[float], today_s: float | None) -> int:
    if not today_s:
        return places[0]
    return min(places, key=lambda place: _far(tried[place], today_s))


def verdicts_without_one(losses: Losses, today_s: float | None) -> pl.Series:
    """The verdict without each unit, in the order of the counts; null: nothing is known."""
    places = range(losses.n)
    tried = losses.support.candidates_s
    order = places if not today_s else sorted(places, key=lambda place: _far(tried[place], today_s))
    return Without(
        losses.counts,
        losses.support,
        losses.price,
        losses.hour,
        losses.conf_level,
        today_s,
        list(order),
        "not_identified" if _is_closed(losses) else "cannot_tell",
    ).verdicts()


def _far(limit_s: float, today_s: float) -> float:
    return abs(math.log(limit_s / today_s))

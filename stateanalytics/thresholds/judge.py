"""Advice on one constant from its evidence: today's value, the best one, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import polars as pl

from stateanalytics.core.words import CANDIDATES_S, how_long
from stateanalytics.systems.base import OTHER, Constant
from stateanalytics.thresholds.borrowing import BORROWED, borrow, healthy_lengths
from stateanalytics.thresholds.choice import Choice, choose
from stateanalytics.thresholds.costs import Costs, n_needed, upper_bound
from stateanalytics.thresholds.counts import (
    EXPOSURE,
    Support,
    elapsed_counts,
    silence_counts,
    silence_support,
    support,
    time_alive,
    waiting_counts,
)
from stateanalytics.thresholds.rules import FEWEST_AT_RISK
from stateanalytics.thresholds.wording import in_words

COLUMNS = {
    **dict.fromkeys(("name", "system", "kind", "place", "setting", "meaning"), pl.String),
    **dict.fromkeys(
        (
            "today_s", "recommended_s", "best_s", "best_low_s", "best_high_s",
            "mistakes_today", "mistakes_recommended", "loss_today", "loss_recommended",
            "gain", "gain_low", "gain_high",
            "best_if_half_s", "excess_if_half", "best_if_double_s", "excess_if_double",
            *BORROWED,
        ),
        pl.Float64,
    ),
    "per": pl.String,
    **dict.fromkeys(("n", "n_needed", "n_deaths", "n_at_risk", "n_kinds_borrowed"), pl.Int64),
    **dict.fromkeys(("n_effective", "healthy_upper_s", "reached_s", "outlasting"), pl.Float64),
    **dict.fromkeys(("is_mixed", "flips"), pl.Boolean),
    **dict.fromkeys(("verdict", "in_words"), pl.String),
}  # fmt: skip
"""One row of advice; `recommend` says what they mean."""

MIN_DEATHS = 5
"""With fewer deaths in a kind, the rate of its whole system is taken."""


_NOT_ASKED: Mapping[str, Any] = dict.fromkeys(
    ("name", "place", "path", "meaning", "unit", "policy_field", "is_configurable", "is_mixed"), ""
)
"""What a constant is called, and where it stands, says nothing of what is best."""
_TOO_SHORT = f"the data end within {how_long(CANDIDATES_S[0])}"


@dataclass(frozen=True)
class Judged:
    """A constant, the row of advice on it, and the curve behind it (None: none)."""

    constant: Constant
    row: dict[str, Any]
    curve: pl.DataFrame | None


@dataclass(frozen=True)
class _Seen:
    """Evidence of some work, with what several constants ask of it."""

    rows: pl.DataFrame

    def of(self, constant: Constant) -> _Seen:
        """That of the kind that a constant holds for."""
        if constant.kind is None:
            return self
        return _Seen(self.rows.filter(is_of_kind(constant)))

    @cached_property
    def n_units(self) -> int:
        return self.rows["unit"].n_unique()

    @cached_property
    def n_dead(self) -> int:
        return int(self.rows["is_dead"].sum())

    @cached_property
    def hours(self) -> float:
        """Hours alive."""
        is_alive = pl.col("closed_by").is_in(["sign_of_life", "own_end"])
        # Sorted, because the last digit of a sum follows the order of what is added.
        return float(self.rows.filter(is_alive)["gap_s"].sort().sum()) / 3600

    @cached_property
    def alive(self) -> pl.DataFrame:
        """The same by unit."""
        return time_alive(self.rows)


def judge_all(
    constants: Sequence[Constant],
    seen: Mapping[str, pl.DataFrame],
    costs: Costs,
    conf_level: float = 0.95,
) -> tuple[Judged, ...]:
    """What the evidence says about each constant; the same question is answered once.

    Parameters
    ----------
    constants : sequence of Constant
        What is judged.
    seen : mapping of str to polars.DataFrame
        All evidence of each sort, see `evidence`.
    costs : Costs
        What mistakes cost.
    conf_level : float
        Of the intervals.
    """

    @cache
    def of_system(sort: str, system: str) -> _Seen:
        return _Seen(seen[sort].filter(pl.col("system") == system))

    @cache
    def weighed(asked: Constant) -> _Weighed:
        whole = of_system(asked.evidence, asked.system)
        mine = whole.of(asked)
        found = (
            _silence(asked, mine, whole, costs) if asked.is_of_silence else _elapsed(asked, mine)
        )
        found = replace(_chosen(found, asked, costs, conf_level), n_units=mine.n_units)
        if found.n >= n_needed(asked.prob) or asked.kind is None:
            return found
        borrowed = borrow(
            whole.rows,
            is_of_kind(asked),
            prob=asked.prob,
            is_silence=asked.is_of_silence,
            conf_level=conf_level,
        )
        return replace(found, borrowed=borrowed)

    return tuple(
        _judged(constant, weighed(replace(constant, **_NOT_ASKED)), costs) for constant in constants
    )


def judge(constant: Constant, seen: pl.DataFrame, costs: Costs, conf_level: float = 0.95) -> Judged:
    """What the evidence of its sort says about one constant, see `judge_all`."""
    return judge_all([constant], {constant.evidence: seen}, costs, conf_level)[0]


def _judged(constant: Constant, weighed: _Weighed, costs: Costs) -> Judged:
    row = dict.fromkeys(COLUMNS) | _named(constant)
    row |= _numbers(constant, weighed, costs)
    row |= {
        "per": "100 session-hours" if constant.is_of_silence else "100 runs",
        "n": weighed.n,
        "n_needed": n_needed(constant.prob),
        "n_deaths": weighed.n_deaths,
        "healthy_upper_s": weighed.healthy_upper_s,
        "is_mixed": constant.is_mixed,
        "verdict": weighed.choice.verdict if weighed.choice else "not_enough_data",
        **weighed.borrowed,
    }
    row["in_words"] = in_words(constant, row, why_not=weighed.why_not)
    return Judged(constant, row, None if weighed.choice is None else weighed.choice.curve)


@dataclass(frozen=True)
class _Weighed:
    """What one sort of evidence says, before it is put into a row."""

    n: int
    n_deaths: int | None
    healthy_upper_s: float | None
    counts: pl.DataFrame | None = None
    support: Support | None = None
    why_not: str = ""
    choice: Choice | None = None
    n_effective: float | None = None
    n_units: int = 0
    borrowed: Mapping[str, Any] = field(default_factory=dict)


def _silence(constant: Constant, mine: _Seen, of_system: _Seen, costs: Costs) -> _Weighed:
    longest = healthy_lengths(mine.rows, is_silence=True)["longest_s"]
    n, n_deaths = longest.len(), mine.n_dead
    upper, rate = upper_bound(longest, constant.prob), costs.deaths_per_100_hours
    if n < n_needed(constant.prob):
        return _Weighed(n, n_deaths, upper)
    # Everything is said per session-hour, and messages may all stand at the end of their runs.
    if not mine.hours:
        why = "no time passed between signs of life"
        return _Weighed(n, n_deaths, upper, why_not=why)
    reach = silence_support(mine.rows, _candidates(constant.today_s), constant.today_s)
    if not reach.candidates_s:
        return _Weighed(n, n_deaths, upper, why_not=_TOO_SHORT)
    per_hour = None if rate is None else rate / 100
    counts = silence_counts(
        mine.rows,
        reach.candidates_s,
        at_least=constant.at_least,
        deaths_per_hour=per_hour,
        alive=mine.alive,
    )
    if rate is not None:
        # What is given does not vary from unit to unit.
        reach = replace(reach, waits=0.0)
    elif n_deaths < MIN_DEATHS:
        n_deaths = of_system.n_dead
        # Deaths of other kinds weigh as much as this kind is of all time alive.
        share = mine.hours / of_system.hours
        reach = replace(reach, waits=share)
        counts = _with_borrowed(counts, waiting_counts(of_system.alive, reach.candidates_s), share)
        if n_deaths < MIN_DEATHS:
            why = "too few runs are known to have died to weigh the delay"
            return _Weighed(n, n_deaths, upper, why_not=why)
    return _Weighed(n, n_deaths, upper, counts, reach)


def _with_borrowed(counts: pl.DataFrame, of_system: pl.DataFrame, share: float) -> pl.DataFrame:
    """A kind's mistakes and time alive, beside its share of the waiting of its whole system."""
    waiting = [name for name in counts.columns if name.startswith("waiting_h_")]
    own = [name for name in counts.columns if name not in (*waiting, "project")]
    return (
        of_system.select(pl.col("^unit|project$"), pl.col(waiting) * share)
        .join(counts.select(own), on="unit", how="left", maintain_order="left")
        .with_columns(pl.col(own[1:]).fill_null(0))
    )


def _elapsed(constant: Constant, mine: _Seen) -> _Weighed:
    is_good = pl.col("ended") & pl.col("is_good").fill_null(False)
    n = mine.rows.filter(is_good)["unit"].n_unique()
    lengths = healthy_lengths(mine.rows, is_silence=False)["longest_s"]
    weighed = _Weighed(n, None, upper_bound(lengths, constant.prob))
    if n < n_needed(constant.prob):
        return weighed
    reach = support(mine.rows, _candidates(constant.today_s))
    if not reach.candidates_s:
        return replace(weighed, why_not=_TOO_SHORT)
    counts = elapsed_counts(mine.rows, reach.candidates_s, mistake=constant.mistake)
    return replace(weighed, counts=counts, support=reach)


def prices(constant: Constant, costs: Costs) -> tuple[float, float]:
    """What a mistake of the constant costs, and an hour of waiting."""
    is_limit = constant.mistake == "lost_run" and not constant.is_of_silence
    hour = costs.run_hour if is_limit else costs.undetected_hour
    return costs.of_mistake(constant.mistake), hour


def _chosen(weighed: _Weighed, constant: Constant, costs: Costs, conf_level: float) -> _Weighed:
    """The choice, where there is enough to choose by."""
    if weighed.counts is None or weighed.support is None:
        return weighed
    price, hour = prices(constant, costs)
    choice = choose(
        weighed.counts,
        weighed.support,
        price=price,
        hour=hour,
        today_s=constant.today_s,
        conf_level=conf_level,
    )
    # Kish's number of units of one size that would say as much.
    sizes = pl.col(EXPOSURE)
    alike = weighed.counts.select(sizes.sum() ** 2 / (sizes**2).sum() / pl.len()).item()
    n_effective = None if alike is None else weighed.n * float(alike)
    return replace(weighed, choice=choice, n_effective=n_effective)


def _candidates(today_s: float | None) -> list[float]:
    return sorted({*CANDIDATES_S, *([today_s] if today_s else [])})


def is_of_kind(constant: Constant) -> pl.Expr:
    """Whether a row is of the kind of work that a constant holds for."""
    if constant.kind is None:
        return pl.lit(True)
    if constant.kind == OTHER:
        return ~pl.col("kind").is_in(constant.other_kinds).fill_null(False)
    return (pl.col("kind") == constant.kind).fill_null(False)


def _named(constant: Constant) -> dict[str, Any]:
    names = ("name", "system", "kind", "place", "setting", "meaning")
    return {name: getattr(constant, name) for name in names}


def _numbers(constant: Constant, weighed: _Weighed, costs: Costs) -> dict[str, Any]:
    """The numbers of a row; what is absent is null."""
    choice, reach, counts = weighed.choice, weighed.support, weighed.counts
    if choice is None or reach is None or counts is None:
        return {"today_s": constant.today_s}
    today, then = choice.at(constant.today_s), choice.at(choice.recommended_s)
    looked_at = choice.best_s if choice.recommended_s is None else choice.recommended_s
    seen = zip(reach.candidates_s, reach.n_at_risk, reach.weights, strict=True)
    reached_s, n_left, weight = max(
        (one for one in seen if one[1] >= FEWEST_AT_RISK), default=(None, 0, 0.0)
    )
    return {
        "today_s": constant.today_s,
        "recommended_s": choice.recommended_s,
        "best_s": choice.best_s,
        "best_low_s": choice.best_low_s,
        "best_high_s": choice.best_high_s,
        "mistakes_today": today["mistakes"],
        "mistakes_recommended": then["mistakes"],
        "loss_today": today["loss"],
        "loss_recommended": then["loss"],
        "gain": choice.gain,
        "gain_low": choice.gain_low,
        "gain_high": choice.gain_high,
        "n_effective": weighed.n_effective,
        "n_at_risk": reach.n_at_risk[reach.candidates_s.index(looked_at)],
        "reached_s": reached_s,
        # Several runs of a unit may stand for it together.
        "outlasting": min(weight * n_left, weighed.n_units) / weighed.n,
        "flips": choice.flips,
        **_at_other_costs(choice, prices(constant, costs)),
    }


def _at_other_costs(choice: Choice, costs: tuple[float, float]) -> dict[str, float | None]:
    """The best value if a mistake cost half or twice as much, and what the advised one is above it.

    A mistake at half its cost is an hour at twice, because only their ratio matters.
    """
    found: dict[str, float | None] = {}
    for word, factor in (("half", 0.5), ("double", 2.0)):
        mistakes, waiting = (pl.col(name) for name in ("mistakes", "waiting_h"))
        priced = choice.curve.with_columns(
            loss=factor * costs[0] * mistakes + costs[1] * waiting
        ).sort("loss", "threshold_s")
        best = priced.row(0, named=True)
        advised = priced.filter(pl.col("threshold_s").is_in([choice.recommended_s]))["loss"]
        found[f"best_if_{word}_s"] = best["threshold_s"]
        is_known = advised.len() and best["loss"] > 0
        found[f"excess_if_{word}"] = advised[0] / best["loss"] - 1 if is_known else None
    return found

"""Advice on one constant from its evidence: today's value, the best one, and what to do."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import polars as pl

from stateanalytics.core.words import CANDIDATES_S, count, how_long, per_hundred, say
from stateanalytics.stats.distributions import beta_cdf
from stateanalytics.stats.shares import borrowed
from stateanalytics.systems.base import OTHER, Constant
from stateanalytics.thresholds.choice import Choice, Costs, choose, n_needed, upper_bound
from stateanalytics.thresholds.counts import (
    EXPOSURE,
    FEWEST_AT_RISK,
    Support,
    elapsed_counts,
    silence_counts,
    silence_support,
    support,
    time_alive,
    waiting_counts,
)
from stateanalytics.thresholds.frames import ADVICE

MIN_DEATHS = 5
"""A kind with fewer deaths takes the rate of its whole system."""
FEWEST_KINDS = 3
"""Other kinds that are needed to estimate how much kinds differ."""
_BORROWED = ("borrowed_low_s", "borrowed_s", "borrowed_high_s")
_NO_DESCRIPTION: Mapping[str, Any] = dict.fromkeys(
    ("name", "place", "path", "meaning", "unit", "policy_field", "is_configurable", "is_mixed"), ""
)
"""Fields of a constant without influence on its best value, blanked so that equals are cached."""
_TOO_SHORT = f"the data end within {how_long(CANDIDATES_S[0])}"


@dataclass(frozen=True)
class Judged:
    """A constant, the row of advice on it, and the curve of its candidates (None: none)."""

    constant: Constant
    row: dict[str, Any]
    curve: pl.DataFrame | None


@dataclass(frozen=True)
class _Evidence:
    """Rows of evidence, with the totals that several constants need."""

    rows: pl.DataFrame

    def matching(self, constant: Constant) -> _Evidence:
        if constant.kind is None:
            return self
        return _Evidence(self.rows.filter(matches_kind(constant)))

    @cached_property
    def n_units(self) -> int:
        return self.rows["unit"].n_unique()

    @cached_property
    def n_dead(self) -> int:
        return int(self.rows["is_dead"].sum())

    @cached_property
    def hours(self) -> float:
        """Hours proven alive."""
        is_alive = pl.col("closed_by").is_in(["sign_of_life", "own_end"])
        # Sorted, because the last digit of a float sum depends on the order.
        return float(self.rows.filter(is_alive)["gap_s"].sort().sum()) / 3600

    @cached_property
    def alive(self) -> pl.DataFrame:
        """Hours proven alive by unit."""
        return time_alive(self.rows)


@dataclass(frozen=True)
class _Assessment:
    """The result for one constant, before it becomes a row; ``counts`` None: too little data."""

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


def judge_all(
    constants: Sequence[Constant],
    evidence: Mapping[str, pl.DataFrame],
    costs: Costs,
    conf_level: float = 0.95,
) -> tuple[Judged, ...]:
    """Advice on each constant; constants that differ only by name are computed once.

    Parameters
    ----------
    constants : sequence of Constant
        The constants.
    evidence : mapping of str to polars.DataFrame
        All evidence by its name, see `thresholds.evidence.evidence`.
    costs : Costs
        Costs of mistakes.
    conf_level : float
        Level of the intervals.
    """

    @cache
    def of_system(name: str, system: str) -> _Evidence:
        return _Evidence(evidence[name].filter(pl.col("system") == system))

    @cache
    def assessed(constant: Constant) -> _Assessment:
        whole = of_system(constant.evidence, constant.system)
        own = whole.matching(constant)
        result = (
            _assess_silences(constant, own, whole, costs)
            if constant.is_of_silence
            else _assess_runs(constant, own)
        )
        result = replace(_with_choice(result, constant, costs, conf_level), n_units=own.n_units)
        if result.n >= n_needed(constant.prob) or constant.kind is None:
            return result
        context = borrow(
            whole.rows,
            matches_kind(constant),
            prob=constant.prob,
            is_silence=constant.is_of_silence,
            conf_level=conf_level,
        )
        return replace(result, borrowed=context)

    return tuple(
        _judged(constant, assessed(replace(constant, **_NO_DESCRIPTION)), costs)
        for constant in constants
    )


def matches_kind(constant: Constant) -> pl.Expr:
    """Whether a row belongs to the kind of work that a constant holds for."""
    if constant.kind is None:
        return pl.lit(True)
    if constant.kind == OTHER:
        return ~pl.col("kind").is_in(constant.other_kinds).fill_null(False)
    return (pl.col("kind") == constant.kind).fill_null(False)


def prices(constant: Constant, costs: Costs) -> tuple[float, float]:
    """Price of a mistake of the constant, and of an hour of waiting."""
    is_limit = constant.mistake == "lost_run" and not constant.is_of_silence
    hour = costs.run_hour if is_limit else costs.undetected_hour
    return costs.of_mistake(constant.mistake), hour


def _assess_silences(
    constant: Constant, own: _Evidence, whole: _Evidence, costs: Costs
) -> _Assessment:
    longest = healthy_lengths(own.rows, is_silence=True)["longest_s"]
    n, n_deaths = longest.len(), own.n_dead
    upper, rate = upper_bound(longest, constant.prob), costs.deaths_per_100_hours
    if n < n_needed(constant.prob):
        return _Assessment(n, n_deaths, upper)
    # Results are per session-hour, and all messages may have the time at which their run ended.
    if not own.hours:
        why = "no time passed between signs of life"
        return _Assessment(n, n_deaths, upper, why_not=why)
    reach = silence_support(own.rows, _candidates(constant.today_s), constant.today_s)
    if not reach.candidates_s:
        return _Assessment(n, n_deaths, upper, why_not=_TOO_SHORT)
    counts = silence_counts(
        own.rows,
        reach.candidates_s,
        at_least=constant.at_least,
        deaths_per_hour=None if rate is None else rate / 100,
        alive=own.alive,
    )
    if rate is not None:
        # A given rate does not vary between units.
        reach = replace(reach, waits=0.0)
    elif n_deaths < MIN_DEATHS:
        n_deaths = whole.n_dead
        # Deaths of other kinds count in proportion to this kind's share of the time alive.
        share = own.hours / whole.hours
        reach = replace(reach, waits=share)
        counts = _with_system_waiting(
            counts, waiting_counts(whole.alive, reach.candidates_s), share
        )
        if n_deaths < MIN_DEATHS:
            why = "too few runs are known to have died to weigh the delay"
            return _Assessment(n, n_deaths, upper, why_not=why)
    return _Assessment(n, n_deaths, upper, counts, reach)


def _with_system_waiting(counts: pl.DataFrame, whole: pl.DataFrame, share: float) -> pl.DataFrame:
    """Mistakes and time alive of a kind, with its share of the waiting of its whole system."""
    waiting = [name for name in counts.columns if name.startswith("waiting_h_")]
    own = [name for name in counts.columns if name not in (*waiting, "project")]
    return (
        whole.select(pl.col("^unit|project$"), pl.col(waiting) * share)
        .join(counts.select(own), on="unit", how="left", maintain_order="left")
        .with_columns(pl.col(own[1:]).fill_null(0))
    )


def _assess_runs(constant: Constant, own: _Evidence) -> _Assessment:
    is_good = pl.col("ended") & pl.col("is_good").fill_null(False)
    n = own.rows.filter(is_good)["unit"].n_unique()
    lengths = healthy_lengths(own.rows, is_silence=False)["longest_s"]
    result = _Assessment(n, None, upper_bound(lengths, constant.prob))
    if n < n_needed(constant.prob):
        return result
    reach = support(own.rows, _candidates(constant.today_s))
    if not reach.candidates_s:
        return replace(result, why_not=_TOO_SHORT)
    counts = elapsed_counts(own.rows, reach.candidates_s, mistake=constant.mistake)
    return replace(result, counts=counts, support=reach)


def _candidates(today_s: float | None) -> list[float]:
    return sorted({*CANDIDATES_S, *([today_s] if today_s else [])})


def _with_choice(
    result: _Assessment, constant: Constant, costs: Costs, conf_level: float
) -> _Assessment:
    if result.counts is None or result.support is None:
        return result
    price, hour = prices(constant, costs)
    choice = choose(
        result.counts,
        result.support,
        price=price,
        hour=hour,
        today_s=constant.today_s,
        conf_level=conf_level,
    )
    # Kish's effective sample size, as a share of the units with any exposure.
    sizes = pl.col(EXPOSURE)
    efficiency = result.counts.select(sizes.sum() ** 2 / (sizes**2).sum() / pl.len()).item()
    n_effective = None if efficiency is None else result.n * float(efficiency)
    return replace(result, choice=choice, n_effective=n_effective)


def _judged(constant: Constant, result: _Assessment, costs: Costs) -> Judged:
    described = ("name", "system", "kind", "place", "setting", "meaning", "today_s", "is_mixed")
    row = dict.fromkeys(ADVICE.dtypes) | {name: getattr(constant, name) for name in described}
    row |= {
        **_choice_columns(constant, result, costs),
        "per": "100 session-hours" if constant.is_of_silence else "100 runs",
        "n": result.n,
        "n_needed": n_needed(constant.prob),
        "n_deaths": result.n_deaths,
        "healthy_upper_s": result.healthy_upper_s,
        "verdict": result.choice.verdict if result.choice else "not_enough_data",
        **result.borrowed,
    }
    row["in_words"] = in_words(constant, row, why_not=result.why_not)
    return Judged(constant, row, None if result.choice is None else result.choice.curve)


def _choice_columns(constant: Constant, result: _Assessment, costs: Costs) -> dict[str, Any]:
    choice, reach = result.choice, result.support
    if choice is None or reach is None:
        return {}
    today, recommended = choice.at(constant.today_s), choice.at(choice.recommended_s)
    copied = "recommended_s best_s best_low_s best_high_s gain gain_low gain_high flips".split()
    shown_s = choice.best_s if choice.recommended_s is None else choice.recommended_s
    # The longest candidate with enough units at risk.
    reached_s, n_at_risk, weight = max(
        (
            (candidate_s, n, weight)
            for candidate_s, n, weight in zip(
                reach.candidates_s, reach.n_at_risk, reach.weights, strict=True
            )
            if n >= FEWEST_AT_RISK
        ),
        default=(None, 0, 0.0),
    )
    return {
        **{name: getattr(choice, name) for name in copied},
        "mistakes_today": today["mistakes"],
        "mistakes_recommended": recommended["mistakes"],
        "loss_today": today["loss"],
        "loss_recommended": recommended["loss"],
        "n_effective": result.n_effective,
        "n_at_risk": reach.n_at_risk[reach.candidates_s.index(shown_s)],
        "reached_s": reached_s,
        # Several runs of a unit may represent it together, so at most all units.
        "outlasting": min(weight * n_at_risk, result.n_units) / result.n,
        **_at_other_costs(choice, *prices(constant, costs)),
    }


def _at_other_costs(choice: Choice, price: float, hour: float) -> dict[str, float | None]:
    """The best value if a mistake cost half or twice as much, and the excess of the advised one.

    Half the price of a mistake is twice the price of an hour, because only their ratio matters.
    """
    results: dict[str, float | None] = {}
    for word, factor in (("half", 0.5), ("double", 2.0)):
        loss = factor * price * pl.col("mistakes") + hour * pl.col("waiting_h")
        curve = choice.curve.with_columns(loss=loss).sort("loss", "threshold_s")
        best = curve.row(0, named=True)
        advised = curve.filter(pl.col("threshold_s").is_in([choice.recommended_s]))["loss"]
        results[f"best_if_{word}_s"] = best["threshold_s"]
        is_known = advised.len() and best["loss"] > 0
        results[f"excess_if_{word}"] = advised[0] / best["loss"] - 1 if is_known else None
    return results


# --- context for kinds with little data --------------------------------------------------


def healthy_lengths(
    rows: pl.DataFrame, *, is_silence: bool, by: Sequence[str] = ()
) -> pl.DataFrame:
    """The longest silence or run of each healthy unit.

    Parameters
    ----------
    rows : polars.DataFrame
        Silences or runs, see `thresholds.evidence.evidence`.
    is_silence : bool
        Whether they are silences.
    by : sequence of str
        Columns to group by next to the unit.

    Returns
    -------
    polars.DataFrame, shape (n_units, n_by + 2)
        ``unit`` and ``longest_s``; infinite where a run was censored. One value per unit,
        because the runs of a unit are not independent.
    """
    if is_silence:
        healthy = rows.filter(pl.col("closed_by").is_in(["sign_of_life", "own_end"]))
        return healthy.group_by(*by, "unit").agg(longest_s=pl.col("gap_s").max())
    is_good = pl.col("ended") & pl.col("is_good").fill_null(False)
    length = pl.when(is_good).then("duration_s").otherwise(float("inf"))
    return rows.filter(is_good | ~pl.col("ended")).group_by(*by, "unit").agg(longest_s=length.max())


def borrow(
    rows: pl.DataFrame,
    is_own: pl.Expr,
    *,
    prob: float,
    is_silence: bool,
    conf_level: float = 0.95,
) -> dict[str, Any]:
    """A bound that most healthy units of a kind stay below, estimated with the other kinds.

    Parameters
    ----------
    rows : polars.DataFrame
        Evidence of a whole system, with ``kind``.
    is_own : polars.Expr
        Which rows belong to the kind.
    prob : float
        Share of units below the bound, such as .95.
    is_silence : bool
        Whether the rows are silences.
    conf_level : float
        Level of the interval.

    Returns
    -------
    dict
        ``borrowed_low_s``, ``borrowed_s``, ``borrowed_high_s``, each one of `CANDIDATES_S`
        (None: beyond them, or censored before), and ``n_kinds_borrowed``. Empty if the kind
        has no rows, or with fewer than three other kinds.

    Notes
    -----
    At each candidate the number of units of a kind beyond it is binomial, and the shares of
    kinds are beta-distributed (`stats.shares.borrowed`). The estimate is the first candidate
    beyond which probably at most ``1 - prob`` go; the interval ends where that is almost
    excluded, and almost certain. Kinds are assumed exchangeable: an unusual kind is shrunk
    towards others that it has nothing to do with.
    """
    kinds = rows.filter(is_own | pl.col("kind").is_not_null()).with_columns(
        kind=pl.when(~is_own).then("kind")
    )
    lengths = healthy_lengths(kinds, is_silence=is_silence, by=["kind"])
    by_kind = {kind: group["longest_s"].sort() for (kind,), group in lengths.group_by("kind")}
    own = by_kind.pop(None, None)
    if own is None or len(by_kind) < FEWEST_KINDS:
        return {}

    def counts_beyond(longest: pl.Series, limit_s: float) -> tuple[int, int]:
        return longest.len() - int(longest.search_sorted(limit_s, side="right")), longest.len()

    @cache
    def probability(limit_s: float) -> float:
        """Posterior probability that at most ``1 - prob`` of the units go beyond a candidate."""
        others = [counts_beyond(longest, limit_s) for longest in by_kind.values()]
        return beta_cdf(1 - prob, *borrowed(counts_beyond(own, limit_s), others))

    tail = (1 - conf_level) / 2
    places = [bisect_left(CANDIDATES_S, level, key=probability) for level in (tail, 0.5, 1 - tail)]
    bounds = [CANDIDATES_S[place] if place < len(CANDIDATES_S) else None for place in places]
    return {**dict(zip(_BORROWED, bounds, strict=True)), "n_kinds_borrowed": len(by_kind)}


# --- sentences ---------------------------------------------------------------------------

VERDICTS = {
    "change": "another value costs significantly less, also without any single unit",
    "choose": "no value is set; this one is the cheapest",
    "keep": "no other value can save much: that is known, not merely not refuted",
    "cannot_tell": "other values may cost as much or less; there are too few units to decide",
    "not_identified": "a limit or an observer closed runs before their outcome was seen",
    "not_enough_data": "too few sessions, or too few deaths to weigh the delay",
}
"""What each verdict means, in order of display."""
SAID = {verdict: verdict.replace("_", " ") for verdict in VERDICTS}
"""Verdicts as people read them."""


def in_words(constant: Constant, row: Mapping[str, Any], *, why_not: str = "") -> str:
    """A row of advice as sentences.

    Parameters
    ----------
    constant : Constant
        The constant that is judged.
    row : mapping of str to object
        The advice on it, see `recommend`.
    why_not : str
        What is missing, where it is not the number of units.
    """
    if row["verdict"] != "not_enough_data":
        return f"{_verdict(constant, row)} {_evidence(row)}"
    too_few = say(
        "advice.not_enough",
        units=count(row["n"], "invocation") if row["n"] else "0 invocations",
        which="alive" if constant.is_of_silence else "that ended well",
        missing=why_not or say("advice.needed", n=row["n_needed"]),
    )
    if row["borrowed_s"] is None:
        return too_few
    # From the distribution over all kinds: context for the reader, never advice.
    borrowed = say(
        "advice.borrowed",
        n=row["n_kinds_borrowed"],
        prob=constant.prob,
        limit=row["borrowed_s"],
        range=_range(row["borrowed_low_s"], row["borrowed_high_s"]),
    )
    return f"{too_few} {borrowed}"


def _verdict(constant: Constant, row: Mapping[str, Any]) -> str:
    verdict, today = row["verdict"], how_long(constant.today_s, "none")
    values = {
        "today": say("advice.mixed", today=today) if constant.is_mixed else today,
        "best": how_long(row["best_s"]),
        "range": _range(row["best_low_s"], row["best_high_s"]),
        "recommended": how_long(row["recommended_s"]),
        "effect": _effect(constant, row["mistakes_today"]),
        "gain": "" if row["gain"] is None else _gain(row),
    }
    if verdict == "change":
        return say("advice.change", **values, mistakes=row["mistakes_recommended"])
    if verdict in ("choose", "keep"):
        return say(f"advice.{verdict}", **values)
    if verdict == "not_identified":
        reached = how_long(row["reached_s"], "the shortest value")
        return say("advice.not_identified", **values, reached=reached)
    if row["gain"] is None:
        return say("advice.beyond_data", **values)
    is_todays = row["best_s"] == row["today_s"]
    return say("advice.cannot_tell_todays" if is_todays else "advice.cannot_tell", **values)


def _gain(row: Mapping[str, Any]) -> str:
    gain, low, high = row["gain"], row["gain_low"], row["gain_high"]
    return say("advice.gain", gain=gain, low=low, high=high, per=row["per"])


def _evidence(row: Mapping[str, Any]) -> str:
    """The units, how many are at risk, and what a single unit and other costs would change."""
    evidence = say(
        "advice.evidence",
        n=row["n"],
        n_effective=round(row["n_effective"]),
        n_at_risk=row["n_at_risk"],
        flips=say("advice.depends_on_one" if row["flips"] else "advice.depends_on_none"),
    )
    if row["excess_if_half"] is None:
        return f"{evidence}."
    names = ("best_if_half_s", "excess_if_half", "best_if_double_s", "excess_if_double")
    return f"{evidence}; {say('advice.other_costs', **{name: row[name] for name in names})}."


def _effect(constant: Constant, mistakes: float | None) -> str:
    """The mistakes of a threshold, in words."""
    is_closing = constant.mistake == "lost_run"
    if constant.is_of_silence:
        name = "advice.closes" if is_closing else "advice.false_alarms"
    else:
        name = "advice.ends" if is_closing else "advice.flags"
    return say(name, n=per_hundred(mistakes))


def _range(low: float, high: float | None) -> str:
    if high is None:
        return f"{how_long(low)} or more"
    return how_long(low) if low == high else f"{how_long(low)} to {how_long(high)}"

"""Advice on one constant from its evidence: today's value, the best one, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from stateanalytics.core.units import CANDIDATES_S, how_long, per_hundred
from stateanalytics.systems.base import OTHER, Constant
from stateanalytics.thresholds.choice import (
    Choice,
    Costs,
    choose,
    n_needed,
    upper_bound,
)
from stateanalytics.thresholds.counts import (
    elapsed_counts,
    horizon,
    silence_counts,
    waiting_columns,
)

COLUMNS = {
    **dict.fromkeys(("name", "system", "kind", "place", "setting", "meaning"), pl.String),
    **dict.fromkeys(
        (
            "today_s", "recommended_s", "best_s", "best_low_s", "best_high_s",
            "mistakes_today", "mistakes_recommended", "loss_today", "loss_recommended",
            "gain", "gain_low", "gain_high",
        ),
        pl.Float64,
    ),
    "per": pl.String,
    **dict.fromkeys(("n", "n_needed", "n_deaths"), pl.Int64),
    "healthy_upper_s": pl.Float64,
    **dict.fromkeys(("verdict", "in_words"), pl.String),
}  # fmt: skip
"""One row of advice; `recommend` says what they mean."""

VERDICTS = {
    "keep": "the best value saves no more than noise",
    "change": "another value saves more than noise",
    "choose": "no value is set; this one is the cheapest",
    "not_identified": "the cheapest value lies where runs were cut off: longer ones are not seen",
    "not_enough_data": "too few sessions, or too few deaths to weigh the delay",
}
SILENT = ("silences", "reports")
"""Evidence that is made of silences; the rest is elapsed time."""
MIN_DEATHS = 5
"""With fewer deaths in a kind, the rate of its whole system is taken."""
CLOSE_TO_THE_END = 0.05
"""A share of runs that outlast the data below this is no obstacle."""


@dataclass(frozen=True)
class Judged:
    """A constant, the row of advice on it, and the curve behind it (None: none)."""

    constant: Constant
    row: dict[str, Any]
    curve: pl.DataFrame | None


@dataclass(frozen=True)
class Draws:
    """How often sessions are drawn again, by which seed, for intervals of which level."""

    n_boot: int
    seed: int
    conf_level: float


def judge(constant: Constant, seen: pl.DataFrame, costs: Costs, draws: Draws) -> Judged:
    """What the evidence says about a constant.

    Parameters
    ----------
    constant : Constant
        What is judged.
    seen : polars.DataFrame
        All evidence of the constant's sort, see `evidence`.
    costs : Costs
        What mistakes cost.
    draws : Draws
        The bootstrap.
    """
    of_system = seen.filter(pl.col("system") == constant.system)
    mine = of_system.filter(_is_of_kind(constant))
    is_silence = constant.evidence in SILENT
    weighed = (
        _silence(constant, mine, of_system, costs, draws)
        if is_silence
        else _elapsed(constant, mine, costs, draws)
    )
    row = dict.fromkeys(COLUMNS) | _named(constant) | _numbers(constant, weighed)
    row |= {
        "per": "100 session-hours" if is_silence else "100 runs",
        "n": weighed.n,
        "n_needed": n_needed(constant.prob),
        "n_deaths": weighed.n_deaths,
        "healthy_upper_s": weighed.healthy_upper_s,
        "verdict": weighed.verdict,
    }
    row["in_words"] = _in_words(constant, row, weighed)
    return Judged(constant, row, None if weighed.choice is None else weighed.choice.curve)


@dataclass(frozen=True)
class _Weighed:
    """What one sort of evidence says, before it is put into a row."""

    n: int
    n_deaths: int | None
    healthy_upper_s: float | None
    choice: Choice | None
    verdict: str
    why_not: str = ""
    outlasting: float = 0.0


def _silence(
    constant: Constant, mine: pl.DataFrame, of_system: pl.DataFrame, costs: Costs, draws: Draws
) -> _Weighed:
    is_alive = pl.col("closed_by").is_in(["sign_of_life", "own_end"])
    longest = mine.filter(is_alive).group_by("unit").agg(pl.col("gap_s").max())["gap_s"]
    n, n_deaths = longest.len(), int(mine["is_dead"].sum())
    upper, rate = upper_bound(longest, constant.prob), costs.deaths_per_100_hours
    if n < n_needed(constant.prob):
        return _Weighed(n, n_deaths, upper, None, "not_enough_data")
    # Everything is said per session-hour, and messages may all stand at the end of their runs.
    if not _hours(mine):
        why = "no time passed between signs of life"
        return _Weighed(n, n_deaths, upper, None, "not_enough_data", why)
    share = 1.0
    if n_deaths < MIN_DEATHS and rate is None:
        # Deaths of other kinds weigh as much as this kind is of all time alive.
        share = _hours(mine) / _hours(of_system)
        is_mine = _is_of_kind(constant)
        mine = of_system.with_columns(
            closed_by=pl.when(is_mine).then("closed_by").otherwise(pl.lit("other_end"))
        )
        n_deaths = int(mine["is_dead"].sum())
    if n_deaths < MIN_DEATHS and rate is None:
        why = "too few runs are known to have died to weigh the delay"
        return _Weighed(n, n_deaths, upper, None, "not_enough_data", why)
    tried = _candidates(constant.today_s)
    counts = silence_counts(
        mine,
        tried,
        at_least=constant.at_least,
        deaths_per_hour=None if rate is None else rate / 100,
    ).with_columns(pl.col(waiting_columns(tried)) * share)
    choice = _chosen(constant, counts, tried, costs, draws)
    return _Weighed(n, n_deaths, upper, choice, _verdict(constant, choice))


def _hours(gaps: pl.DataFrame) -> float:
    alive = gaps.filter(pl.col("closed_by").is_in(["sign_of_life", "own_end"]))
    return float(alive["gap_s"].sum()) / 3600


def _elapsed(constant: Constant, mine: pl.DataFrame, costs: Costs, draws: Draws) -> _Weighed:
    is_good = pl.col("ended") & pl.col("is_good").fill_null(False)
    n = mine.filter(is_good).height
    known = pl.when(is_good).then("duration_s").otherwise(float("inf"))
    lengths = mine.filter(is_good | ~pl.col("ended")).select(known=known)["known"]
    upper = upper_bound(lengths, constant.prob)
    if n < n_needed(constant.prob):
        return _Weighed(n, None, upper, None, "not_enough_data")
    longest, outlasting = horizon(mine)
    tried = [limit for limit in _candidates(constant.today_s) if limit <= longest or not outlasting]
    if not tried:
        why = f"the data end within {how_long(CANDIDATES_S[0])}"
        return _Weighed(n, None, upper, None, "not_enough_data", why)
    counts = elapsed_counts(mine, tried, mistake=constant.mistake)
    choice = _chosen(constant, counts, tried, costs, draws)
    verdict = _verdict(constant, choice)
    is_at_the_end = choice is not None and choice.best_s == tried[-1]
    # What is cut off at today's limit cannot speak for that limit.
    is_open = verdict != "keep" or constant.today_s == tried[-1]
    if is_at_the_end and is_open and outlasting > CLOSE_TO_THE_END:
        verdict = "not_identified"
    return _Weighed(n, None, upper, choice, verdict, outlasting=outlasting)


def prices(constant: Constant, costs: Costs) -> tuple[float, float]:
    """What a mistake of the constant costs, and an hour of waiting."""
    is_limit = constant.mistake == "lost_run" and constant.evidence not in SILENT
    hour = costs.run_hour if is_limit else costs.undetected_hour
    return costs.of_mistake(constant.mistake), hour


def _chosen(
    constant: Constant, counts: pl.DataFrame, tried: Sequence[float], costs: Costs, draws: Draws
) -> Choice | None:
    price, hour = prices(constant, costs)
    return choose(
        counts,
        tried,
        price=price,
        hour=hour,
        today_s=constant.today_s,
        n_boot=draws.n_boot,
        seed=draws.seed,
        conf_level=draws.conf_level,
    )


def _verdict(constant: Constant, choice: Choice | None) -> str:
    if choice is None:
        return "not_enough_data"
    if constant.today_s is None:
        return "choose"
    # Beyond the data today's value has no loss, so nothing speaks for leaving it alone.
    if choice.gain is None or choice.is_clear:
        return "change" if choice.best_s != constant.today_s else "keep"
    return "keep"


def _candidates(today_s: float | None) -> list[float]:
    return sorted({*CANDIDATES_S, *([today_s] if today_s else [])})


def _is_of_kind(constant: Constant) -> pl.Expr:
    if constant.kind is None:
        return pl.lit(True)
    if constant.kind == OTHER:
        return ~pl.col("kind").is_in(constant.other_kinds).fill_null(False)
    return (pl.col("kind") == constant.kind).fill_null(False)


def _named(constant: Constant) -> dict[str, Any]:
    names = ("name", "system", "kind", "place", "setting", "meaning")
    return {name: getattr(constant, name) for name in names}


def _numbers(constant: Constant, weighed: _Weighed) -> dict[str, Any]:
    """The numbers of a row; what is absent is null."""
    choice, verdict = weighed.choice, weighed.verdict
    if choice is None:
        return {"today_s": constant.today_s}
    recommended = None if verdict == "not_identified" else choice.best_s
    recommended = constant.today_s if verdict == "keep" else recommended
    today, then = choice.at(constant.today_s), choice.at(recommended)
    return {
        "today_s": constant.today_s,
        "recommended_s": recommended,
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
    }


def _in_words(constant: Constant, row: dict[str, Any], weighed: _Weighed) -> str:
    singular, plural = ("live session", "live sessions")
    if row["per"] == "100 runs":
        singular, plural = ("run that ended well", "runs that ended well")
    behind = f"{row['n']} {singular if row['n'] == 1 else plural}"
    if weighed.verdict == "not_enough_data":
        why = weighed.why_not or f"it takes {row['n_needed']}"
        return f"Not enough data: {behind}; {why}."
    alike = _range(row["best_low_s"], row["best_high_s"])
    best = f"{how_long(row['best_s'])} ({alike})"
    if weighed.verdict == "not_identified":
        return (
            f"At least {how_long(row['best_s'])}: {per_hundred(100 * weighed.outlasting)} of 100 "
            "runs outlast the data, so longer limits are not identified."
        )
    if weighed.verdict == "choose":
        return f"Choose {best}; none is set today. {behind}."
    return _against_today(constant, row, best, alike)


def _against_today(constant: Constant, row: dict[str, Any], best: str, alike: str) -> str:
    today = how_long(constant.today_s, "none")
    if row["gain"] is None:
        return f"{today} lies beyond the data; the cheapest value they show is {best}."
    does = _hits(constant, row["mistakes_today"])
    if row["verdict"] == "keep" and row["best_s"] == constant.today_s:
        return f"Keep {today}, the cheapest value ({alike}); it {does}."
    if row["verdict"] == "keep":
        return f"Keep {today}: the best value, {best}, saves no more than noise; {today} {does}."
    return (
        f"{today} to {best}: {today} {does}, {how_long(row['best_s'])} "
        f"{per_hundred(row['mistakes_recommended'])}; saves {per_hundred(row['gain'])} "
        f"({per_hundred(row['gain_low'])} to {per_hundred(row['gain_high'])}) min of attention "
        f"per {row['per']}."
    )


def _hits(constant: Constant, mistakes: float | None) -> str:
    """What a threshold does to work that is fine, in words."""
    number = per_hundred(mistakes)
    is_closing = constant.mistake == "lost_run"
    if constant.evidence in SILENT:
        what = f"closes {number} live runs" if is_closing else f"gives {number} false alarms"
        return f"{what} per 100 session-hours"
    fate = "would have ended well" if is_closing else "go on to end well"
    return f"{'ends' if is_closing else 'flags'} {number} of 100 runs that {fate}"


def _range(low: float | None, high: float | None) -> str:
    return how_long(low) if low == high else f"{how_long(low)} to {how_long(high)}"

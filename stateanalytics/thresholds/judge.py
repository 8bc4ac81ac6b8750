"""Advice on one constant from its evidence: today's value, the best one, and what to do."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from operator import itemgetter
from typing import Any

import polars as pl

from stateanalytics.core.joins import collected
from stateanalytics.core.words import CANDIDATES_S, count, how_long, per_hundred, say
from stateanalytics.stats.distributions import beta_cdf
from stateanalytics.stats.shares import borrowed
from stateanalytics.survival.curves import bare_curve
from stateanalytics.systems.base import OTHER, Constant
from stateanalytics.thresholds.choice import (
    DIRECTIONS,
    MOST_TIMES,
    Choice,
    Costs,
    Losses,
    break_even,
    choose,
    covering_limit,
    lowered,
    n_needed,
    seen,
    totals,
    upper_bound,
    without_value,
)
from stateanalytics.thresholds.counts import (
    EXPOSURE,
    FEW_STOPPED,
    FEWEST_AT_RISK,
    MUCH_PER_HUNDRED,
    Support,
    at_worst,
    elapsed_counts,
    silence_counts,
    silence_support,
    support,
    time_alive,
    with_deaths_of_all,
    with_weights_of_silences,
)
from stateanalytics.thresholds.frames import ADVICE

MIN_DEATHS = 5
"""A kind with fewer deaths takes the rate of its whole system."""
FEWEST_UNITS = 19
"""Units from which today's value is compared with others."""
FEWEST_OF_VALUE = n_needed(0.95)
"""Units from which another value is recommended; fewer give its direction."""
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

    @cached_property
    def of_kinds(self) -> dict[str, pl.DataFrame]:
        return {part["kind"][0]: part for part in self.rows.partition_by("kind")}

    @cached_property
    def n_units(self) -> int:
        return self.rows["unit"].n_unique()

    @cached_property
    def n_dead(self) -> int:
        return int(self.rows["is_dead"].sum())

    @cached_property
    def hours(self) -> float:
        """Hours proven alive."""
        closed_by = self.rows["closed_by"]
        alive_s = self.rows["gap_s"].filter(
            (closed_by == "sign_of_life") | (closed_by == "own_end")
        )
        # Sorted, because the last digit of a float sum depends on the order.
        return float(alive_s.sort().sum()) / 3600

    @cached_property
    def weighted(self) -> pl.DataFrame:
        """Silences with their weights."""
        return with_weights_of_silences(self.rows)

    @cached_property
    def healthy_s(self) -> pl.Series:
        """The longest silence or run of each healthy unit."""
        return healthy_lengths(self.rows, is_silence="gap_s" in self.rows.columns)["longest_s"]

    @cached_property
    def n_good(self) -> int:
        """Units of which a run ended well."""
        return self.rows["unit"].filter(self.rows["ended"] & self.rows["is_good"]).n_unique()

    @cached_property
    def curve(self) -> pl.DataFrame:
        """The survival of runs."""
        return bare_curve(self.rows)

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
    covering_s: float | None = None
    curve: pl.DataFrame | None = None
    runs: pl.DataFrame | None = None
    most_deaths: float = math.inf


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
        rows = evidence[name].lazy().filter(pl.col("system") == system)
        # Units in the same order, by number: groups of texts took half of the time.
        return _Evidence(rows.with_columns(pl.col("unit").rank("dense")).pipe(collected))

    @cache
    def of_kind(name: str, system: str, kind: str | None, others: tuple[str, ...]) -> _Evidence:
        whole = of_system(name, system)
        if kind is None or kind == OTHER:
            return (
                whole if kind is None else _Evidence(whole.rows.filter(matches_kind(kind, others)))
            )
        return _Evidence(whole.of_kinds.get(kind, whole.rows.clear()))

    @cache
    def assessed(constant: Constant) -> _Assessment:
        whole = of_system(constant.evidence, constant.system)
        others = tuple(constant.other_kinds) if constant.kind == OTHER else ()
        own = of_kind(constant.evidence, constant.system, constant.kind, others)
        result = (
            _assess_silences(constant, own, whole, costs)
            if constant.is_of_silence
            else _assess_runs(constant, own)
        )
        result = replace(_with_choice(result, constant, costs, conf_level), n_units=own.n_units)
        is_known = result.choice is not None or result.n >= n_needed(constant.prob)
        if is_known or constant.kind is None:
            return result
        context = borrow(
            whole.rows,
            matches_kind(constant.kind, constant.other_kinds),
            prob=constant.prob,
            is_silence=constant.is_of_silence,
            conf_level=conf_level,
        )
        return replace(result, borrowed=context)

    return tuple(
        _judged(constant, assessed(replace(constant, **_NO_DESCRIPTION)), costs)
        for constant in constants
    )


def matches_kind(kind: str | None, other_kinds: Sequence[str] = ()) -> pl.Expr:
    """Whether a row belongs to a kind of work; None: any, `OTHER`: none of the other kinds."""
    if kind is None:
        return pl.lit(True)
    if kind == OTHER:
        return ~pl.col("kind").is_in(other_kinds).fill_null(False)
    return (pl.col("kind") == kind).fill_null(False)


def prices(constant: Constant, costs: Costs) -> tuple[float, float]:
    """Price of a mistake of the constant, and of an hour of waiting."""
    is_limit = constant.mistake == "lost_run" and not constant.is_of_silence
    hour = costs.run_hour if is_limit else costs.undetected_hour
    return costs.of_mistake(constant.mistake), hour


def _assess_silences(
    constant: Constant, own: _Evidence, whole: _Evidence, costs: Costs
) -> _Assessment:
    longest = own.healthy_s
    n, n_deaths = longest.len(), own.n_dead
    upper, rate = upper_bound(longest, constant.prob), costs.deaths_per_100_hours
    result = _Assessment(n, n_deaths, upper, covering_s=rounded_up(covering_limit(longest)))
    if not n:
        return result
    # Results are per session-hour, and all messages may have the time at which their run ended.
    if not own.hours:
        why = "no time passed between signs of life"
        return replace(result, why_not=why)
    reach = silence_support(own.rows, _candidates(constant.today_s), constant.today_s)
    if not reach.candidates_s:
        return replace(result, why_not=_TOO_SHORT)
    counts = silence_counts(
        own.weighted,
        reach.candidates_s,
        at_least=constant.at_least,
        deaths_per_hour=None if rate is None else rate / 100,
        alive=own.alive,
    )
    # If every run died.
    n_runs = int((own.rows["closed_by"] != "sign_of_life").sum())
    result = replace(result, most_deaths=100 * n_runs / own.hours)
    if rate is not None:
        # A given rate does not vary between units.
        reach = replace(reach, waits=0.0)
    else:
        n_deaths = n_deaths if n_deaths >= MIN_DEATHS else whole.n_dead
        # Deaths of all kinds count in proportion to this kind's share of the time alive, and
        # as much as `MIN_DEATHS` of its own would.
        share = own.hours / whole.hours
        weight = share * whole.n_dead / (share * whole.n_dead + MIN_DEATHS)
        reach = replace(reach, waits=weight + (1 - weight) * share)
        deaths = share * (1 - weight) * pl.col("n_dead_of_all") + weight * pl.col("n_dead")
        # Of too few, half of the trade is known: the mistakes, and the delay of one in 100 hours.
        known = 0.01 * pl.col(EXPOSURE) if n_deaths < MIN_DEATHS else deaths
        counts = with_deaths_of_all(counts, whole.alive, reach.candidates_s, known)
        if n_deaths < MIN_DEATHS:
            why = "too few runs are known to have died to weigh the delay"
            curve = seen(totals(counts, reach), reach)
            return replace(result, n_deaths=n_deaths, why_not=why, curve=curve)
    return replace(result, n_deaths=n_deaths, counts=counts, support=reach)


def _assess_runs(constant: Constant, own: _Evidence) -> _Assessment:
    upper, covering_s = upper_bound(own.healthy_s, constant.prob), covering_limit(own.healthy_s)
    result = _Assessment(own.n_good, None, upper, covering_s=rounded_up(covering_s))
    if not own.n_good:
        return result
    reach = support(own.rows, _candidates(constant.today_s), curve=own.curve)
    if not reach.candidates_s:
        return replace(result, why_not=_TOO_SHORT)
    counts = elapsed_counts(own.rows, reach.candidates_s, mistake=constant.mistake, curve=own.curve)
    return replace(result, counts=counts, support=reach, runs=own.rows)


def _fewest(constant: Constant) -> int:
    """Units from which the losses are compared: with today's value a test protects the verdict."""
    return FEWEST_OF_VALUE if constant.today_s is None else FEWEST_UNITS


def _candidates(today_s: float | None) -> list[float]:
    return sorted({*CANDIDATES_S, *([today_s] if today_s else [])})


def _with_choice(
    result: _Assessment, constant: Constant, costs: Costs, conf_level: float
) -> _Assessment:
    if result.counts is None or result.support is None:
        return result
    if result.n < _fewest(constant):
        return replace(result, curve=seen(totals(result.counts, result.support), result.support))
    price, hour = prices(constant, costs)
    choice = choose(
        result.counts,
        result.support,
        price=price,
        hour=hour,
        today_s=constant.today_s,
        conf_level=conf_level,
    )
    if choice and choice.verdict == "change" and result.n < FEWEST_OF_VALUE:
        choice = without_value(choice)
    if choice is None:
        return result
    if constant.mistake == "lost_run" and choice.verdict in _UNDECIDED:
        choice = _with_observed(choice, result, constant, costs, conf_level)
    # Kish's effective sample size, as a share of the units with any exposure.
    sizes = result.counts[EXPOSURE]
    efficiency = float(sizes.sum()) ** 2 / float(sizes.dot(sizes) or 0.0) / sizes.len()
    n_effective, drawn = result.n * efficiency, seen(choice.curve, result.support)
    return replace(result, choice=choice, n_effective=n_effective, curve=drawn)


def _with_observed(
    choice: Choice, result: _Assessment, constant: Constant, costs: Costs, conf_level: float
) -> Choice:
    """The choice, or to lower today's limit where what was already waited costs more.

    What a limit or the end of the data hides cannot make that cheaper, see `at_worst`.
    """
    (price, hour), runs, reach = prices(constant, costs), result.runs, result.support
    today_s = constant.today_s or 0.0
    if runs is None or reach is None or today_s <= choice.best_s or not hour:
        return choice
    price_s = 3600 * price / hour
    until_s = (min(today_s, reach.candidates_s[-1]) - price_s) / 2
    reached = zip(reach.candidates_s, reach.weights, strict=True)
    shorter = [at_s for at_s, weight in reached if at_s <= until_s and weight < FEW_STOPPED]
    rows = at_worst(runs, today_s, until_s=until_s, price_s=price_s)
    kept = support(rows, [*shorter, float(rows["duration_s"].max() or 0.0)])  # type: ignore[arg-type]
    counts = elapsed_counts(rows, kept.candidates_s, mistake="lost_run")
    toward = lowered(Losses(counts, kept, price, hour, conf_level))
    if toward is None:
        return choice
    choice = replace(choice, gain=None, gain_low=toward.gain[1], gain_high=None)
    return replace(choice, verdict="lower", toward=toward, flips=False, times=None)


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
        "covering_s": result.covering_s,
        **_right_if(constant, result, costs),
        "verdict": result.choice.verdict if result.choice else "not_enough_data",
        "n_more": _n_more(constant, result),
        **result.borrowed,
    }
    if row["mistakes_today"] is None and result.curve is not None:
        mistakes = dict(result.curve[["threshold_s", "mistakes"]].iter_rows())
        row["mistakes_today"] = mistakes.get(constant.today_s)
    why_not = result.why_not if result.n >= _fewest(constant) else ""
    row["in_words"] = in_words(constant, row, why_not=why_not, curve=result.curve)
    return Judged(constant, row, None if result.choice is None else result.choice.curve)


def _n_more(constant: Constant, result: _Assessment) -> int | None:
    """About how many more units would decide, if they are like these; None: not known."""
    n, fewest = result.n, _fewest(constant)
    if n < fewest:
        return fewest - n
    times: float | None
    if result.choice is not None:
        times = result.choice.times
    else:
        times = MIN_DEATHS / result.n_deaths if result.n_deaths else None
    if times is None or not 1 < times <= MOST_TIMES:
        return None
    more = (times - 1) * n
    digits: int = 10 ** max(0, math.floor(math.log10(max(more, 1))) - 1)
    return math.ceil(more / digits) * digits


def _choice_columns(constant: Constant, result: _Assessment, costs: Costs) -> dict[str, Any]:
    choice, reach = result.choice, result.support
    if choice is None or reach is None:
        return {}
    today, recommended = choice.at(constant.today_s), choice.at(choice.recommended_s)
    copied = (
        "recommended_s bound_s best_s best_low_s best_high_s gain gain_low gain_high flips".split()
    )
    shown_s = choice.recommended_s or choice.bound_s or choice.best_s
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


def _right_if(constant: Constant, result: _Assessment, costs: Costs) -> dict[str, float | None]:
    """Between which prices, or deaths where too few are known, today's value is the cheapest."""
    range_ = None if result.curve is None else break_even(result.curve, constant.today_s)
    if range_ is None:
        return {}
    # All values among which the best one was chosen, also those that few runs reached.
    if result.choice is not None:
        range_ = break_even(result.choice.curve, constant.today_s) or range_
    price, hour = prices(constant, costs)
    low, high = (end * hour for end in range_)
    if result.choice is None and constant.is_of_silence:
        name = "deaths"
        low, high = (price / end if end else math.inf for end in (high, low))
        high = high if low <= result.most_deaths else result.most_deaths
    else:
        name = "price"
        # A value with as few mistakes waits less at any price.
        low, high = (0.0, 0.0) if math.isinf(low) else (low, high)
    ends = {"low": low, "high": high}
    return {f"right_{name}_{end}": at if math.isfinite(at) else None for end, at in ends.items()}


def _at_other_costs(choice: Choice, price: float, hour: float) -> dict[str, float | None]:
    """The best value if a mistake cost half or twice as much, and the excess of the advised one.

    Half the price of a mistake is twice the price of an hour, because only their ratio matters.
    """
    results: dict[str, float | None] = {}
    for word, factor in (("half", 0.5), ("double", 2.0)):
        losses = {
            row["threshold_s"]: factor * price * row["mistakes"] + hour * row["waiting_h"]
            for row in choice.curve.iter_rows(named=True)
        }
        loss, best_s = min((loss, at) for at, loss in losses.items())
        advised = losses.get(choice.recommended_s or 0.0)
        # What is too little for a verdict is too little here: of hardly any cost, any saving
        # is a large share.
        if advised is not None and advised - loss <= MUCH_PER_HUNDRED * factor * price:
            loss, best_s = advised, choice.recommended_s
        results[f"best_if_{word}_s"] = best_s
        results[f"excess_if_{word}"] = advised / loss - 1 if advised and loss > 0 else None
    return results


# --- context for kinds with little data --------------------------------------------------


def healthy_lengths(
    rows: pl.DataFrame | pl.LazyFrame, *, is_silence: bool, by: Sequence[str] = ()
) -> pl.DataFrame:
    """The longest silence or run of each healthy unit.

    Parameters
    ----------
    rows : polars.DataFrame or LazyFrame
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
        healthy = rows.lazy().filter(pl.col("closed_by").is_in(["sign_of_life", "own_end"]))
        return healthy.group_by(*by, "unit").agg(longest_s=pl.col("gap_s").max()).pipe(collected)
    is_good = pl.col("ended") & pl.col("is_good").fill_null(False)
    length = pl.when(is_good).then("duration_s").otherwise(float("inf"))
    healthy = rows.lazy().filter(is_good | ~pl.col("ended"))
    return healthy.group_by(*by, "unit").agg(longest_s=length.max()).pipe(collected)


def borrow(
    rows: pl.DataFrame, is_own: pl.Expr, *, prob: float, is_silence: bool, conf_level: float = 0.95
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
    kinds = rows.lazy().filter(is_own | pl.col("kind").is_not_null())
    named = kinds.with_columns(kind=pl.when(~is_own).then("kind"))
    lengths = healthy_lengths(named, is_silence=is_silence, by=["kind"])
    by_kind: dict[str | None, list[float]] = {}
    for kind, longest_s in sorted(lengths[["kind", "longest_s"]].rows(), key=itemgetter(1)):
        by_kind.setdefault(kind, []).append(longest_s)
    own = by_kind.pop(None, None)
    if own is None or len(by_kind) < FEWEST_KINDS:
        return {}

    def counts_beyond(longest: list[float], limit_s: float) -> tuple[int, int]:
        return len(longest) - bisect_right(longest, limit_s), len(longest)

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

VERDICTS = (
    # Another value costs significantly less, also without any single unit.
    "change",
    # No value is set; this one is the cheapest.
    "choose",
    # Values above, or below, today's cost significantly less; which is best is not known.
    *("raise", "lower"),
    # The data show that no other value can save much.
    "keep",
    # Other values may cost as much or less; there are too few units to decide.
    "cannot_tell",
    # A limit or an observer closed runs before their outcome was seen.
    "not_identified",
    # Too few sessions, or too few deaths to weigh the delay.
    "not_enough_data",
)
"""In order of display."""
_DECIDED = ("change", "choose", "keep")
_MISTAKES = {"false_alarm": "a false alarm", "lost_run": "a run ended by mistake"}
SAID = {verdict: verdict.replace("_", " ") for verdict in VERDICTS}
"""Verdicts as people read them."""


def in_words(
    constant: Constant,
    row: Mapping[str, Any],
    *,
    why_not: str = "",
    curve: pl.DataFrame | None = None,
) -> str:
    """A row of advice as sentences.

    Parameters
    ----------
    constant : Constant
        The constant that is judged.
    row : mapping of str to object
        The advice on it, see `recommend`.
    why_not : str
        What is missing, where it is not the number of units.
    curve : polars.DataFrame, optional
        Mistakes and waiting of each candidate.
    """
    is_advised = row["verdict"] in (*_DECIDED, *DIRECTIONS)
    known = () if is_advised else _known(constant, row, curve)
    if row["verdict"] != "not_enough_data":
        return _fitted(_verdict(constant, row), known, _evidence(constant, row))
    too_few = say(
        "advice.not_enough",
        units=count(row["n"], "invocation") if row["n"] else "0 invocations",
        which="alive" if constant.is_of_silence else "that ended well",
        missing=why_not or say("advice.needed", n=_fewest(constant)),
    )
    return _fitted(too_few, known)


def _fitted(first: str, known: Iterable[str], last: str = "") -> str:
    """Sentences with as many of those between as a cell has room for; columns have them all."""
    kept, room = [first], _LONGEST - len(first) - len(last) - 1
    for sentence in known:
        if len(sentence) < room:
            kept.append(sentence)
            room -= len(sentence) + 1
    return " ".join([*kept, last]).strip()


def _known(constant: Constant, row: Mapping[str, Any], curve: pl.DataFrame | None) -> Iterator[str]:
    """What is known where no value is advised: how many more units would decide, and so on."""
    if row["n_more"] is not None and row["n"] >= _fewest(constant):
        yield say("advice.more", n=row["n_more"])
    pairs = [] if curve is None else sorted(curve[["threshold_s", "mistakes"]].rows())
    if curve is not None and curve["mistakes"].sum() > 0:
        around_s = row["today_s"] or row["covering_s"] or pairs[-1][0]
        steps = [math.log(around_s) + math.log(step) for step in (0.25, 1, 4)]
        near = {min(pairs, key=lambda pair: abs(math.log(pair[0]) - step)) for step in steps}
        (first_s, mistakes), *others = sorted(near)
        rest = [f"; {how_long(at_s)}: {per_hundred(n) if n else 'none seen'}" for at_s, n in others]
        effect = _effect(constant, mistakes)
        if mistakes:
            yield say("advice.cuts", first=how_long(first_s), effect=effect, rest="".join(rest))
    for name in ("price", "deaths"):
        low, high = row[f"right_{name}_low"], row[f"right_{name}_high"]
        if low is None and high is None:
            continue
        what: dict[str, Any] = {
            "today": how_long(row["today_s"]),
            "mistake": _MISTAKES[constant.mistake],
            "range": _number_range(low, high),
        }
        if high == 0 and curve is not None:
            todays = dict(pairs).get(row["today_s"])
            as_few = [at_s for at_s, n in pairs if todays is not None and n <= todays]
            # Two values that read the same are no alternative.
            shortest_s = min(as_few, default=None)
            if (shorter := how_long(shortest_s)) != what["today"]:
                tried = f" ({say('advice.shortest')})" if shortest_s == CANDIDATES_S[0] else ""
                yield say("advice.as_few", shorter=shorter, tried=tried, **what)
        elif low is not None and high is not None and low > high:
            never = "advice.never_cheapest" if name == "price" else "advice.too_short"
            yield say(never, **what)
        elif name == "price":
            yield say("advice.right_price", **what)
        else:
            yield say("advice.right_deaths", **what)
    if row["covering_s"] is not None:
        limit = how_long(row["covering_s"])
        name = "advice.covers_silences" if constant.is_of_silence else "advice.covers_runs"
        yield say(name, limit=limit)
    if row["borrowed_s"] is not None:
        # From the distribution over all kinds: context for the reader, never advice.
        range_ = _range(row["borrowed_low_s"], row["borrowed_high_s"])
        given = {"n": row["n_kinds_borrowed"], "prob": constant.prob, "range": range_}
        yield say("advice.borrowed", limit=row["borrowed_s"], **given)


def rounded_up(limit_s: float | None) -> float | None:
    """A limit that words show in full, and that is not shorter."""
    if limit_s is None:
        return None
    step = 1 if limit_s < 3600 else 60 if limit_s < 86_400 else 3600
    return float(math.ceil(limit_s / step) * step)


def _number_range(low: float | None, high: float | None) -> str:
    if not low:
        return f"at most {per_hundred(high)}"
    least = per_hundred(low)
    return f"at least {least}" if high is None else f"{least} to {per_hundred(high)}"


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
    if verdict in DIRECTIONS:
        name = "advice.lower_observed" if row["gain"] is None else f"advice.{verdict}"
        bound = how_long(row["bound_s"])
        return say(name, **values, bound=bound, least=row["gain_low"], per=row["per"])
    if verdict in ("choose", "keep"):
        return say(f"advice.{verdict}", **values)
    if verdict == "not_identified":
        reached = how_long(row["reached_s"], "the shortest value")
        return say("advice.not_identified", **values, reached=reached)
    if row["gain"] is None:
        return say("advice.beyond_data" if row["today_s"] else "advice.cannot_choose", **values)
    is_todays = row["best_s"] == row["today_s"]
    return say("advice.cannot_tell_todays" if is_todays else "advice.cannot_tell", **values)


_EXACT = 0.3
"""Of gains with a 95 % interval within this share of them, 99 in 100 are within a quarter.

That is a quarter of the true gain, on simulated fleets; see docs/thresholds.md.
"""


def _gain(row: Mapping[str, Any]) -> str:
    """The gain with its interval; the interval alone where no number can be promised."""
    gain, low, high = row["gain"], row["gain_low"], row["gain_high"]
    if low < 0:
        return say("advice.gain_or_loss", high=high, loss=-low, per=row["per"])
    name = "advice.gain" if max(gain - low, high - gain) <= _EXACT * gain else "advice.gain_range"
    return say(name, gain=gain, low=low, high=high, per=row["per"])


_LONGEST = 400
"""Characters of a text that a cell of a report has room for."""
_UNDECIDED = ("cannot_tell", "not_identified")
"""Verdicts that give no value, so that nothing is said of what it would rest on."""


def _evidence(constant: Constant, row: Mapping[str, Any]) -> str:
    """The units, how many are at risk, and what a single unit and other costs would change."""
    n_effective, is_open = round(row["n_effective"]), row["verdict"] in _UNDECIDED
    is_same = is_open or n_effective == row["n"]
    depends = say("advice.depends_on_one" if row["flips"] else "advice.depends_on_none")
    evidence = say(
        "advice.evidence",
        n=row["n"],
        which="" if constant.is_of_silence else " ended well",
        effective="" if is_same else say("advice.effective", n=n_effective),
        n_at_risk=row["n_at_risk"],
        needed=say("advice.at_risk_needed", n=FEWEST_AT_RISK)
        if is_open and row["n_at_risk"] < FEWEST_AT_RISK
        else "",
        at_s=row["recommended_s"] or row["bound_s"] or row["best_s"],
        flips="" if is_open and not row["flips"] else depends,
    )
    if row["excess_if_half"] is None:
        return f"{evidence}."
    words = [word for word in ("half", "double") if row[f"excess_if_{word}"]]
    name = f"advice.cost_{'_or_'.join(words) or 'any'}"
    return f"{evidence}; {say(name, **row)}."


def _effect(constant: Constant, mistakes: float | None) -> str:
    """The mistakes of a threshold, in words."""
    is_closing = constant.mistake == "lost_run"
    if constant.is_of_silence:
        name = "advice.closes" if is_closing else "advice.false_alarms"
    else:
        name = "advice.ends" if is_closing else "advice.flags"
    return say(name, n=per_hundred(mistakes))


def _range(low: float, high: float | None) -> str:
    tried = f"; {say('advice.shortest')}" if low == CANDIDATES_S[0] else ""
    if high is None:
        return f"{how_long(low)} or more{tried}"
    return (how_long(low) if low == high else f"{how_long(low)} to {how_long(high)}") + tried

"""Choosing a threshold: counts equal slow loops and curves, and verdicts rest on no one unit."""

import math
from collections import Counter
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.core.words import CANDIDATES_S
from stateanalytics.errors import ArgumentError
from stateanalytics.stats.intervals import poisson_interval, weighted_count
from stateanalytics.survival.curves import kaplan_meier, restricted_mean
from stateanalytics.survival.incidence import cumulative_incidence
from stateanalytics.thresholds.choice import (
    Costs,
    Losses,
    choose,
    decided,
    upper_bound,
    verdicts_without_one,
)
from stateanalytics.thresholds.counts import (
    Support,
    elapsed_counts,
    silence_counts,
    silence_support,
    support,
    with_weights,
)
from tests.examples import examples
from tests.generators import silences
from tests.generators.known_costs import silences as silences_of

LIMITS = [1.0, 3.0, 10.0]

gaps = st.lists(
    st.fixed_dictionaries(
        {
            "unit": st.integers(0, 4),
            "gap_s": st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 10.0, 11.0]),
            "closed_by": st.sampled_from(["sign_of_life", "own_end", "death", "as_of"]),
        }
    ),
    max_size=30,
).map(
    lambda rows: pl.DataFrame(
        [{**row, "is_dead": row["closed_by"] == "death"} for row in rows],
        schema={
            "unit": pl.Int64,
            "gap_s": pl.Float64,
            "closed_by": pl.String,
            "is_dead": pl.Boolean,
        },
    )
)
spells = st.lists(
    st.fixed_dictionaries(
        {
            "unit": st.integers(0, 30),
            "duration_s": st.sampled_from([0.0, 1.0, 2.0, 2.5, 3.0, 7.0, 10.0, 12.0]),
            "ended": st.booleans(),
            "is_good": st.booleans(),
        }
    ),
    min_size=1,
    max_size=30,
).map(pl.DataFrame)


# --- how much data a tail needs ---------------------------------------------------------


@pytest.mark.parametrize(("prob", "n"), [(0.95, 58), (0.95, 59), (0.95, 100), (0.99, 400)])
def test_the_bound_is_the_smallest_order_statistic_that_is_sure_enough(prob, n):
    def below(k):  # P(Binomial(n, prob) < k), term by term
        return math.fsum(math.comb(n, i) * prob**i * (1 - prob) ** (n - i) for i in range(k))

    sure = [k for k in range(1, n + 1) if below(k) >= 0.95]
    found = upper_bound(pl.Series([float(k) for k in range(1, n + 1)]).shuffle(3), prob)
    assert found == (sure[0] if sure else None)


def test_a_bound_that_falls_on_what_was_cut_off_is_not_known():
    values = [1.0] * 99 + [math.inf]
    assert upper_bound(pl.Series(values), 0.9) == 1.0
    assert upper_bound(pl.Series([1.0] * 50 + [math.inf] * 50), 0.9) is None


# --- counts ------------------------------------------------------------------------------


@given(gaps, st.booleans())
@examples(60)
def test_counts_of_silences_equal_the_slow_loop(frame, at_least):
    counts = silence_counts(frame, LIMITS, at_least=at_least)
    assert counts["unit"].to_list() == sorted({row["unit"] for row in frame.to_dicts()})
    stands_for = redistributed(frame.to_dicts())
    for row in counts.to_dicts():
        mine = [gap for gap in frame.with_row_index("gap").to_dicts() if gap["unit"] == row["unit"]]
        alive = [g["gap_s"] for g in mine if g["closed_by"] in ("sign_of_life", "own_end")]
        assert row["exposure"] == pytest.approx(sum(alive) / 3600)
        for place, limit in enumerate(LIMITS):
            spoke = [g for g in mine if g["closed_by"] == "sign_of_life"]
            hit = [g for g in spoke if g["gap_s"] > limit or (at_least and g["gap_s"] == limit)]
            weights = sum(stands_for[g["gap"]] for g in hit)
            assert row[f"mistakes_{place}"] == pytest.approx(weights)
            dead = sum(g["is_dead"] for g in mine)
            assert row[f"waiting_h_{place}"] == pytest.approx(dead * limit / 3600)


def redistributed(gaps):
    """Silences that somebody closed hand their weight to all that were longer, in their order."""
    weights = [1.0] * len(gaps)
    by_length = sorted(range(len(gaps)), key=lambda i: gaps[i]["gap_s"])
    for i in by_length:
        # At one length, what ended came before what was cut off.
        longer = [j for j in by_length if gaps[j]["gap_s"] > gaps[i]["gap_s"]]
        if gaps[i]["closed_by"] == "as_of" and longer:
            for j in longer:
                weights[j] += weights[i] / len(longer)
    return weights


def test_a_rate_of_deaths_that_is_given_replaces_those_seen():
    frame = silences(5, seed=1, death_share=1.0).rename({"session": "unit"})
    counts = silence_counts(frame, [7200.0], deaths_per_hour=0.5)
    assert counts["waiting_h_0"].to_list() == pytest.approx(counts["exposure"].to_list())


@pytest.mark.slow
@given(spells)
@examples(60)
def test_weights_equal_the_curves_to_the_last_digit(frame):
    """Efron's redistribution is Kaplan-Meier, Aalen-Johansen and the area below them."""
    n = frame.height
    weighted = with_weights(frame)
    causes = frame.with_columns(
        cause=pl.when("ended").then(pl.when("is_good").then(pl.lit("good")).otherwise(pl.lit("x")))
    )
    curve, incidence = kaplan_meier(frame), cumulative_incidence(causes)
    for limit in (0.0, *LIMITS):
        within = weighted.filter(pl.col("duration_s") <= limit)
        survival = curve.filter(pl.col("duration_s") <= limit)["survival"]
        assert 1 - within["weight"].sum() / n == pytest.approx(
            survival[-1] if len(survival) else 1.0, abs=1e-9
        )
        good = incidence.filter(cause="good").filter(pl.col("duration_s") <= limit)["incidence"]
        assert within.filter("is_good")["weight"].sum() / n == pytest.approx(
            good[-1] if len(good) else 0.0, abs=1e-9
        )
    reached = support(frame, LIMITS).candidates_s
    counts = elapsed_counts(frame, reached, mistake="lost_run")
    for place, limit in enumerate(reached):
        mean = restricted_mean(curve, limit)["mean_s"][0]
        assert counts[f"waiting_h_{place}"].sum() * 3600 / n == pytest.approx(mean, abs=1e-9)
        later = weighted.filter("is_good", "ended", pl.col("duration_s") > limit)
        assert counts[f"mistakes_{place}"].sum() == pytest.approx(later["weight"].sum())


def test_labels_wait_only_for_runs_that_do_not_end_well():
    runs = pl.DataFrame(
        {"unit": [1, 2], "duration_s": [9.0, 9.0], "ended": True, "is_good": [True, False]}
    )
    assert elapsed_counts(runs, [5.0])["waiting_h_0"].to_list() == pytest.approx([0, 5 / 3600])


def test_no_spells_reach_nowhere():
    empty = pl.DataFrame(
        schema={
            "unit": pl.Int64,
            "duration_s": pl.Float64,
            "ended": pl.Boolean,
            "is_good": pl.Boolean,
        }
    )
    assert support(empty, LIMITS).candidates_s == ()
    assert elapsed_counts(empty, LIMITS).is_empty()


# --- how far data reach, and sums over units -----------------------------------------------


@given(spells)
@examples(60)
def test_support_counts_units_and_weighs_what_is_left(frame):
    reach = support(frame, LIMITS)
    rows, curve = frame.to_dicts(), kaplan_meier(frame)
    left = curve["survival"][-1]
    longest = max(row["duration_s"] for row in rows)
    assert list(reach.candidates_s) == [t for t in LIMITS if t <= longest or left == 0]
    assert reach.n_open == pytest.approx(left * len(rows))
    for limit, n_at_risk, weight in zip(
        reach.candidates_s, reach.n_at_risk, reach.weights, strict=True
    ):
        still = [row for row in rows if row["duration_s"] >= limit]
        assert n_at_risk == len({row["unit"] for row in still})
        before = curve.filter(pl.col("duration_s") < limit)["survival"]
        if still:
            share = before[-1] if len(before) else 1.0
            assert weight == pytest.approx(share * len(rows) / len(still))


def test_todays_silence_beyond_the_data_is_tried_as_one():
    seen = silences_of(20, 1, reaper_s=900.0)
    reach = silence_support(seen, [600.0, 900.0, 1200.0], 21_600.0)
    assert reach.candidates_s == (600.0, 900.0, 21_600.0)
    assert reach.is_beyond
    assert reach.n_at_risk[-1] == 0
    assert not silence_support(seen, [600.0], 600.0).is_beyond


@pytest.mark.parametrize("n", [0, 1, 4, 15, 200])
def test_a_count_of_equal_units_has_the_exact_interval(n):
    low, high = weighted_count(n, n, 1)
    exact_low, exact_high = poisson_interval(n)
    assert high == pytest.approx(exact_high, rel=0.01)
    assert low <= exact_low * 1.001
    assert n < 10 or low == pytest.approx(exact_low, rel=0.01)


def test_heavy_units_and_varying_ones_are_less_sure():
    low, high = weighted_count(10, 10, 1)
    assert weighted_count(10, 10, 5)[1] > high
    assert weighted_count(10, 40, 1)[0] < low
    assert weighted_count(0, 0, 5)[1] == pytest.approx(5 * weighted_count(0, 0, 1)[1])


# --- choosing ----------------------------------------------------------------------------


def counts_of(mistakes, waiting, n=80):
    """Units that all look the same, one column a candidate."""
    return pl.DataFrame(
        {
            "unit": range(n),
            "exposure": [1.0] * n,
            **{f"mistakes_{k}": [float(m)] * n for k, m in enumerate(mistakes)},
            **{f"waiting_h_{k}": [float(w)] * n for k, w in enumerate(waiting)},
        }
    )


def all_seen(n=80):
    return Support(tuple(LIMITS), (n,) * 3, (1.0,) * 3)


def test_the_cheapest_is_chosen_and_costs_decide_which():
    counts = counts_of([3, 1, 0], [1, 2, 9])
    dear = choose(counts, all_seen(), price=100, hour=1, today_s=1.0)
    cheap = choose(counts, all_seen(), price=0.1, hour=1, today_s=1.0)
    assert (dear.best_s, cheap.best_s) == (10.0, 1.0)
    assert (dear.verdict, dear.recommended_s) == ("change", 10.0)
    assert dear.gain == pytest.approx(100 * (301 - 9))
    assert cheap.verdict == "keep"


def test_of_equals_the_nearest_to_today_is_taken():
    counts = counts_of([0, 0, 0], [0, 0, 0])
    for today in (1.0, 10.0):
        choice = choose(counts, all_seen(), price=1, hour=1, today_s=today)
        assert choice.best_s == today
    # One more unit could wait until each candidate, though none was seen to.
    assert choice.curve["loss_high"].to_list() == sorted({*choice.curve["loss_high"]})


def test_of_those_that_cannot_be_told_apart_the_nearest_to_today_is_taken():
    one_in_twenty = pl.when(pl.col("unit") % 20 == 0)
    counts = counts_of([9, 0, 0], [1, 2, 2]).with_columns(
        mistakes_1=one_in_twenty.then(1.0).otherwise(0.0)
    )
    choice = choose(counts, all_seen(), price=1, hour=1, today_s=1.0)
    assert choice.best_s == 10.0
    assert choice.recommended_s == 3.0


def test_nothing_is_recommended_where_hardly_anybody_was_left():
    counts = counts_of([9, 1, 0], [1, 2, 2.5])
    few = Support(tuple(LIMITS), (80, 9, 9), (1.0,) * 3)
    choice = choose(counts, few, price=1, hour=1, today_s=1.0)
    assert (choice.best_s, choice.verdict, choice.recommended_s) == (10.0, "raise", None)
    assert (choice.bound_s, choice.flips) == (10.0, False)
    closed = Support(tuple(LIMITS), (80, 9, 9), (1.0, 8.0, 8.0), n_open=9.0)
    assert choose(counts, closed, price=1, hour=1, today_s=1.0).verdict == "not_identified"


def test_what_one_unit_carries_is_no_change():
    counts = counts_of([0, 0, 0], [0, 0, 0]).with_columns(
        mistakes_0=pl.when(pl.col("unit") == 0).then(90.0).otherwise(0.0)
    )
    choice = choose(counts, all_seen(), price=1, hour=1, today_s=1.0)
    assert choice.gain > 0
    assert (choice.verdict, choice.recommended_s, choice.flips) == ("cannot_tell", None, True)


def test_what_is_open_may_be_better_than_what_was_seen():
    counts = counts_of([9, 5, 4], [1, 2, 3])
    reach = Support(tuple(LIMITS), (80,) * 3, (1.0,) * 3, n_open=800.0)
    choice = choose(counts, reach, price=1, hour=1, today_s=1.0)
    assert (choice.verdict, choice.best_high_s) == ("not_identified", None)


def test_a_limit_beyond_the_data_may_break_all_that_was_open():
    counts = counts_of([9, 5, 4], [1, 2, 3])
    beyond = Support(tuple(LIMITS), (80, 80, 0), (1.0,) * 3, is_beyond=True)
    closed, open_ = (
        Losses(counts, replace(beyond, n_open=n), 1.0, 1.0, 0.95).saved(0) for n in (0.0, 40.0)
    )
    assert open_[:2] == closed[:2]
    assert open_[2][0] == closed[2][0]
    assert open_[2][2] > closed[2][2]


def test_without_exposure_there_is_no_choice():
    assert choose(counts_of([1], [1], n=0), all_seen(), price=1, hour=1) is None
    assert choose(counts_of([], []), Support((), (), ()), price=1, hour=1) is None


def test_the_curve_holds_what_any_price_needs():
    curve = choose(counts_of([3, 1, 0], [1, 2, 9]), all_seen(), price=5, hour=2).curve
    assert curve["loss"].to_list() == pytest.approx(
        (5 * curve["mistakes"] + 2 * curve["waiting_h"]).to_list()
    )
    assert (curve["loss_low"] <= curve["loss"]).all()
    assert (curve["loss_high"] >= curve["loss"]).all()


def test_order_of_rows_changes_nothing():
    frame = silences(80, seed=4).rename({"session": "unit"})
    one, other = (
        choose(silence_counts(rows, LIMITS), all_seen(), price=5, hour=10, today_s=3.0)
        for rows in (frame, frame.sample(fraction=1, shuffle=True, seed=1))
    )
    assert (one.best_s, one.best_low_s, one.best_high_s, one.verdict) == (
        other.best_s,
        other.best_low_s,
        other.best_high_s,
        other.verdict,
    )


def test_a_unit_of_several_projects_is_of_one_whatever_the_order_of_rows():
    rows = pl.DataFrame({"unit": 1, "project": [None, "b", "a"], "duration_s": [1.0, 2.0, 3.0]})
    found = rows.with_columns(ended=True, is_good=True, gap_s="duration_s", is_dead=False)
    found = found.with_columns(closed_by=pl.lit("sign_of_life"))
    for each in (found, found.reverse()):
        assert elapsed_counts(each, LIMITS)["project"].to_list() == ["a"]
        assert silence_counts(each, LIMITS)["project"].to_list() == ["a"]


def test_projects_that_differ_make_all_less_sure():
    counts = counts_of([1, 0, 0], [0, 0, 1], n=160).with_columns(
        project=pl.col("unit") // 20,
        mistakes_0=pl.when(pl.col("unit") < 40).then(4.0).otherwise(0.1),
    )
    apart = choose(counts, all_seen(160), price=1, hour=1, today_s=1.0)
    alike = choose(counts.drop("project"), all_seen(160), price=1, hour=1, today_s=1.0)
    assert apart.gain_low < alike.gain_low < alike.gain < alike.gain_high < apart.gain_high


def test_units_without_a_project_are_of_no_common_one():
    counts = counts_of([1, 0, 0], [0, 0, 1], n=160).with_columns(
        project=pl.when(pl.col("unit") < 8).then(pl.col("unit").cast(pl.String)),
        mistakes_0=pl.when(pl.col("unit") < 40).then(4.0).otherwise(0.1),
    )
    apart, without = (
        choose(each, all_seen(160), price=1, hour=1, today_s=1.0)
        for each in (counts, counts.drop("project"))
    )
    assert (apart.gain_low, apart.gain_high) == (without.gain_low, without.gain_high)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"false_alarm": -1}, "false_alarm needs a number from 0; found -1"),
        ({"lost_run": math.nan}, "lost_run needs a number from 0; found nan"),
        ({"run_hour": "3"}, "run_hour needs a number from 0; found '3'"),
        ({"undetected_hour": None}, "undetected_hour needs a number from 0; found None"),
        ({"deaths_per_100_hours": True}, "deaths_per_100_hours needs a number from 0; found True"),
    ],
)
def test_costs_are_numbers_of_at_least_zero(wrong, words):
    with pytest.raises(ArgumentError, match=words):
        Costs(**wrong)


# --- verdicts without one unit ------------------------------------------------------------


@st.composite
def thin_counts(draw):
    """Few units and three candidates, with units that carry everything, projects and ties."""
    n = draw(st.integers(1, 24))
    numbers = st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.0, 40.0]), min_size=n, max_size=n)
    steps = [draw(numbers) for _ in range(6)]
    columns = {"unit": list(range(n)), "exposure": [float(v > 0) + 1 for v in draw(numbers)]}
    if draw(st.booleans()):
        columns["project"] = draw(
            st.lists(st.sampled_from([None, *"abcdefghij"]), min_size=n, max_size=n)
        )
    for place in range(3):
        # Mistakes fall with the limit and waiting rises, as they do for every unit.
        columns[f"mistakes_{place}"] = [sum(each) for each in zip(*steps[place:3], strict=True)]
        columns[f"waiting_h_{place}"] = [
            sum(each) for each in zip(*steps[3 : place + 4], strict=True)
        ]
    at_risk = draw(st.sampled_from([(n,) * 3, (n, 9, 9), (80, 40, 9)]))
    weights = draw(st.sampled_from([(1.0,) * 3, (1.0, 1.5, 8.0)]))
    n_open = draw(st.sampled_from([0.0, 3.0]))
    is_beyond = draw(st.booleans())
    return pl.DataFrame(columns), Support(
        tuple(LIMITS), at_risk, weights, n_open=n_open, is_beyond=is_beyond
    )


def without_any(losses, today_s):
    """The slow loop: the verdict without each unit."""
    return [
        decided(replace(losses, counts=rest), today_s, decided(losses, today_s).toward).verdict
        if rest.height
        else None
        for rest in (losses.counts.filter(pl.col("unit") != unit) for unit in losses.counts["unit"])
    ]


@given(thin_counts(), st.sampled_from([None, 1.0, 3.0, 10.0, 5.0]), st.sampled_from([0.1, 1, 30]))
@examples(40)
def test_verdicts_without_one_unit_are_among_those_of_the_slow_loop(thin, today_s, price):
    counts, reach = thin
    losses = Losses(counts, reach, price, 1.0, 0.95)
    some = verdicts_without_one(losses, today_s)
    assert Counter(some) <= Counter(without_any(losses, today_s))
    if counts.height == 1:
        assert some == [None]


def test_any_unit_may_carry_a_verdict_not_only_the_heaviest():
    """The only unit of the eighth project, which is like any other: seven widen nothing."""
    counts = counts_of([0, 0, 0], [0, 0.2, 1], n=141).with_columns(
        project=pl.col("unit") // 20,
        mistakes_0=pl.when(pl.col("unit") < 20).then(4.0).otherwise(0.0),
    )
    seven, eight = (
        choose(rows, all_seen(), price=1, hour=1, today_s=1.0)
        for rows in (counts.head(140), counts)
    )
    assert (seven.verdict, seven.flips) == ("change", False)
    assert (eight.verdict, eight.flips) == ("cannot_tell", True)


def test_names_of_units_and_projects_change_nothing():
    counts = counts_of([0, 0, 0], [0, 0.2, 1], n=141).with_columns(
        project=pl.col("unit") // 16,
        mistakes_0=pl.when(pl.col("unit") < 20).then(4.0).otherwise(0.0),
    )
    named = counts.with_columns(
        unit=pl.format("unit {}", "unit"), project=pl.format("p{}", "project")
    )
    by_number, by_name = (
        choose(rows, all_seen(), price=1, hour=1, today_s=1.0) for rows in (counts, named)
    )
    assert by_number.curve.equals(by_name.curve)
    assert replace(by_number, curve=None) == replace(by_name, curve=None)


@pytest.mark.slow
def test_what_the_units_that_count_most_leave_as_it_is_no_other_unit_changes():
    n_fleets, n_decided, n_differ = 12, 0, 0
    for seed in range(n_fleets):
        frame, today_s = silences_of(200, 60 + seed), [1800.0, 21_600.0][seed % 2]
        reach = silence_support(frame, CANDIDATES_S, today_s)
        losses = Losses(silence_counts(frame, reach.candidates_s), reach, 5.0, 10.0, 0.95)
        verdict = decided(losses, today_s).verdict
        if verdict in ("change", "keep"):
            n_decided += 1
            some, all_ = verdicts_without_one(losses, today_s), without_any(losses, today_s)
            n_differ += ({*some} == {verdict}) != ({*all_} == {verdict})
    assert n_decided >= n_fleets / 4
    assert n_differ <= 0.05 * n_decided


@pytest.mark.parametrize(("weight", "verdict"), [(1.9, "keep"), (2.2, "not_identified")])
def test_today_is_kept_only_where_half_of_what_passes_it_is_seen(weight, verdict):
    counts = counts_of([9, 1, 1], [1, 2, 9])
    reach = Support(tuple(LIMITS), (80, 80, 9), (1.0, 1.0, weight), n_open=0.0)
    choice = choose(counts, reach, price=1, hour=1, today_s=3.0)
    assert (choice.best_s, choice.verdict) == (3.0, verdict)

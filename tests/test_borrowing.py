"""Kinds with few runs borrow from the others: an estimate with its range, never advice."""

import math
from random import Random

import polars as pl
import pytest

from stateanalytics.core.words import CANDIDATES_S
from stateanalytics.stats.distributions import beta_cdf
from stateanalytics.stats.shares import borrowed
from stateanalytics.thresholds.judge import borrow

IS_OWN = (pl.col("kind") == "small").fill_null(value=False)


def silences(lengths):
    """A silence a unit, by kind."""
    rows = [(kind, length) for kind, each in lengths.items() for length in each]
    frame = pl.DataFrame(rows, schema=["kind", "gap_s"], orient="row")
    return frame.with_columns(closed_by=pl.lit("sign_of_life")).with_row_index("unit")


def of(lengths, **options):
    options = {"prob": 0.95, "is_silence": True, **options}
    return borrow(silences(lengths), IS_OWN, **options)


LARGE = {f"kind {i}": [float(100 + second) for second in range(150)] for i in range(4)}


def test_a_small_kind_like_the_others_borrows_what_they_know():
    alone, beside = of({"small": [110.0] * 4}), of({"small": [110.0] * 4, **LARGE})
    assert alone == {}
    assert beside["n_kinds_borrowed"] == 4
    assert beside["borrowed_low_s"] <= beside["borrowed_s"] <= beside["borrowed_high_s"]
    assert beside["borrowed_s"] == 300.0


def test_what_it_shows_itself_weighs_more_the_more_it_shows():
    few, many = (of({"small": [5000.0] * n, **LARGE}) for n in (2, 40))
    assert many["borrowed_low_s"] == many["borrowed_high_s"] == 5400.0
    # Two such say that this kind is another one, and no more than that.
    assert few["borrowed_high_s"] is None


def test_fewer_than_three_other_kinds_have_nothing_to_lend():
    two = dict(list(LARGE.items())[:2])
    assert of({"small": [110.0] * 4, **two}) == {}
    assert of(LARGE) == {}


def test_what_was_cut_off_is_not_known_to_be_short():
    lengths, ended = silences({"small": [110.0] * 20, **LARGE}), pl.col("unit") % 5 > 0
    runs = lengths.select("unit", "kind", duration_s="gap_s", ended=ended, is_good=True)
    found = borrow(runs, IS_OWN, prob=0.95, is_silence=False)
    assert (found["borrowed_s"], found["borrowed_high_s"]) == (None, None)


def test_shares_of_no_hits_and_of_all_have_a_distribution():
    for own, others in (((0, 3), [(0, 10)] * 5), ((3, 3), [(10, 10)] * 5), ((0, 0), [(5, 10)])):
        a, b = borrowed(own, others)
        assert math.isfinite(a) and a > 0 and b > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "strength", "n_kinds"), [(0.05, 20, 6), (0.05, 200, 6), (0.02, 10, 4), (0.2, 8, 6)]
)
def test_the_distribution_of_a_borrowed_share_holds_the_truth(share, strength, n_kinds):
    random, n_repeats, n_held = Random(7), 600, 0
    for _ in range(n_repeats):
        odds = share * strength, (1 - share) * strength
        truths = [random.betavariate(*odds) for _ in range(n_kinds)]
        sizes = [random.randint(5, 30), *(random.randint(10, 150) for _ in truths[1:])]
        own, *others = (
            (sum(random.random() < truth for _ in range(n)), n)
            for truth, n in zip(truths, sizes, strict=True)
        )
        n_held += 0.025 <= beta_cdf(truths[0], *borrowed(own, others)) <= 0.975
    # Where kinds hardly differ it is wider than it need be; never much narrower.
    assert n_held >= 0.92 * n_repeats


@pytest.mark.slow
def test_the_borrowed_range_holds_the_length_that_a_share_stays_below():
    random, n_repeats, n_held = Random(11), 200, 0
    for _ in range(n_repeats):
        medians = [600 * math.exp(random.gauss(0, 0.6)) for _ in range(6)]
        sizes = [random.randint(5, 30), *(random.randint(20, 150) for _ in medians[1:])]
        lengths = {
            name: [median * math.exp(random.gauss(0, 0.8)) for _ in range(n)]
            for name, median, n in zip(["small", *"abcde"], medians, sizes, strict=True)
        }
        found = of(lengths)
        right = medians[0] * math.exp(1.6449 * 0.8)
        first = next(limit for limit in CANDIDATES_S if limit >= right)
        n_held += found["borrowed_low_s"] <= first <= (found["borrowed_high_s"] or math.inf)
    assert n_held >= 0.92 * n_repeats

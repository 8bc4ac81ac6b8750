"""Agreement of labels, against published tables."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stateanalytics.stats.agreement import (
    cochran_q,
    fleiss_kappa,
    krippendorff_alpha,
    pairwise_agreement,
)
from stateanalytics.stats.distributions import even_split_p
from tests.examples import examples

NONE = None


def labels(both: int, only_a: int, only_b: int, neither: int) -> pl.DataFrame:
    rows = [(True, True)] * both + [(True, False)] * only_a
    rows += [(False, True)] * only_b + [(False, False)] * neither
    return pl.DataFrame(rows, schema={"a": pl.Boolean, "b": pl.Boolean}, orient="row")


def compared(*cells: int) -> dict[str, float]:
    return pairwise_agreement(labels(*cells), ["a", "b"]).row(0, named=True)


def test_kappa_equals_the_reference():
    found = compared(20, 5, 10, 15)
    assert found["kappa"] == pytest.approx(0.4, abs=1e-12)
    assert found["ac1"] == pytest.approx(0.405941, abs=5e-7)
    assert found["pabak"] == pytest.approx(0.4, abs=1e-12)


@pytest.mark.parametrize(
    ("cells", "mcc"),
    [
        # The example of scikit-learn's matthews_corrcoef.
        ((2, 1, 1, 0), -1 / 3),
        # Six of eight cats and three of four dogs are told, in Wikipedia's "Phi coefficient".
        ((6, 2, 1, 3), 0.478),
        ((90, 4, 1, 5), 0.656),
        *(((7, 0, 0, 9), 1.0), ((5, 3, 0, 0), None), ((0, 0, 0, 0), None)),
    ],
)
def test_matthews_correlation_equals_the_reference(cells, mcc):
    found = compared(*cells)
    assert found["mcc"] == (None if mcc is None else pytest.approx(mcc, abs=5e-4))


def test_kappa_collapses_at_high_prevalence_and_ac1_does_not():
    """Gwet, K. (2002), Kappa statistic is not satisfactory for assessing agreement."""
    found = compared(118, 5, 2, 0)
    assert found["raw_agreement"] == 0.944
    assert found["kappa"] == pytest.approx(-0.0233918, abs=5e-8)
    assert found["ac1"] == pytest.approx(0.940776, abs=5e-7)
    assert found["pabak"] == pytest.approx(0.888, abs=1e-12)


def test_mcnemar_equals_the_reference():
    found = compared(794, 86, 150, 570)
    assert found["mcnemar_p"] == pytest.approx(3.71593614e-05, abs=5e-14)
    few = compared(0, 1, 7, 0)
    assert (few["mcnemar_p"], few["mcnemar_mid_p"]) == (0.0703125, 0.0390625)


def test_fleiss_kappa_equals_the_reference():
    """The worked example of 14 raters on ten subjects, after Fleiss, J. L. (1971)."""
    counts = [
        *([0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1]),
        *([7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]),
    ]
    assert fleiss_kappa(pl.DataFrame(counts, orient="row")) == pytest.approx(0.2099307, abs=5e-8)


FOUR_BY_TWELVE = pl.DataFrame(
    {
        "a": [1, 2, 3, 3, 2, 1, 4, 1, 2, NONE, NONE, NONE],
        "b": [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NONE, 3],
        "c": [NONE, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NONE],
        "d": [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NONE],
    }
)
THREE_BY_FIFTEEN = pl.DataFrame(
    {
        "a": [NONE, NONE, NONE, NONE, NONE, 3, 4, 1, 2, 1, 1, 3, 3, NONE, 3],
        "b": [1, NONE, 2, 1, 3, 3, 4, 3, NONE, NONE, NONE, NONE, NONE, NONE, NONE],
        "c": [NONE, NONE, 2, 1, 3, 4, 4, NONE, 2, 1, 1, 3, 3, NONE, 4],
    }
)


@pytest.mark.parametrize(
    ("ratings", "alpha"), [(FOUR_BY_TWELVE, 0.743421), (THREE_BY_FIFTEEN, 0.691358)]
)
def test_krippendorff_alpha_equals_the_reference(ratings, alpha):
    """Krippendorff, K. (2011), Computing Krippendorff's alpha-reliability, sections C and D."""
    assert krippendorff_alpha(ratings) == pytest.approx(alpha, abs=5e-7)
    assert krippendorff_alpha(ratings.reverse()) == krippendorff_alpha(ratings)


def test_krippendorff_takes_words_and_truths():
    truths = pl.DataFrame({"a": [True, False, None], "b": [True, True, False]})
    assert krippendorff_alpha(truths) == krippendorff_alpha(truths.cast(pl.String))


def test_what_is_not_covered_is_never_no():
    answers = pl.DataFrame({"a": [True, None, False], "b": [True, True, None]})
    found = pairwise_agreement(answers, ["a", "b"]).row(0, named=True)
    assert (found["n"], found["n_uncovered"], found["n_only_b"]) == (1, 2, 0)


def test_among_three_detectors_each_pair_is_compared_as_if_alone():
    answers = {
        "a": [True, True, False, False, None, True],
        "b": [True, False, False, None, True, True],
        "c": [False, True, True, False, True, True],
    }
    units = pl.DataFrame(answers)
    alone = [pairwise_agreement(units, pair) for pair in (["a", "b"], ["a", "c"], ["b", "c"])]
    assert_frame_equal(pairwise_agreement(units, list(answers)), pl.concat(alone))


@pytest.mark.parametrize("cells", [(0, 0, 0, 0), (5, 0, 0, 0)])
def test_kappa_without_two_answers_is_null_not_a_division_by_zero(cells):
    found = compared(*cells)
    assert found["kappa"] is None
    assert found["mcnemar_p"] == 1.0


def test_no_units_and_one_answer_give_none():
    assert fleiss_kappa(pl.DataFrame(schema={"x": pl.Int64, "y": pl.Int64})) is None
    assert krippendorff_alpha(pl.DataFrame({"a": [1, 1], "b": [1, 1]})) is None
    assert cochran_q(labels(0, 0, 0, 0), ["a", "b"]) == (None, None, None)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
@examples(50)
def test_bulk_equals_the_textbook_in_any_order_and_either_way_round(rows):
    frame = pl.DataFrame(rows, schema=["a", "b"], orient="row")
    found = pairwise_agreement(frame, ["a", "b"]).row(0, named=True)
    turned = pairwise_agreement(frame.reverse(), ["b", "a"]).row(0, named=True)
    agreed = sum(a == b for a, b in rows) / len(rows)
    yes_a, yes_b = (sum(row[i] for row in rows) / len(rows) for i in (0, 1))
    chance = yes_a * yes_b + (1 - yes_a) * (1 - yes_b)
    assert found["raw_agreement"] == pytest.approx(agreed)
    if chance < 1:
        assert found["kappa"] == pytest.approx((agreed - chance) / (1 - chance))
    assert found["n_only_a"] == turned["n_only_b"]
    assert found["mcnemar_p"] == turned["mcnemar_p"]


def test_cochran_q_of_two_detectors_is_mcnemar():
    statistic, df, _ = cochran_q(labels(794, 86, 150, 570), ["a", "b"])
    assert (statistic, df) == (pytest.approx(17.355932, abs=5e-7), 1)
    assert even_split_p(0, 0) == 1.0

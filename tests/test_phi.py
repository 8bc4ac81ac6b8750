"""Phi: how surprising a silence is, after the silences of its kind."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.detectors.gaps import silence_gaps
from stateanalytics.detectors.phi_accrual import MODELS, phi, phi_threshold
from stateanalytics.errors import ArgumentError, ColumnTypeError, MissingColumnsError
from tests.examples import examples
from tests.generators import message_gaps

TEN = pl.DataFrame({"gap_s": [float(s) for s in range(1, 11)]})


def rated(gaps, *silences_s, **options):
    return phi(gaps, silences_s, by=(), **options)["phi"].to_list()


def test_one_in_ten_is_1():
    assert rated(TEN, 0.0, 5.0, 9.0) == pytest.approx([0.0, math.log10(2), 1.0])


def test_beyond_the_data_it_is_capped_and_says_so():
    found = phi(TEN, [9.0, 9.9, 10.0, 1e6], by=())
    assert found["is_capped"].to_list() == [False, False, True, True]
    assert found["phi"].to_list() == pytest.approx([1.0] * 4)


def test_a_silence_that_was_cut_off_counts_as_longer():
    """Kaplan-Meier by hand: 1 of 4 ends at 1, then 1 of 2 at 3."""
    gaps = pl.DataFrame(
        {
            "gap_s": [1.0, 2.0, 3.0, 4.0],
            "closed_by": ["sign_of_life", "as_of", "sign_of_life", "own_end"],
        }
    )
    assert rated(gaps, 1.0, 3.0) == pytest.approx([-math.log10(3 / 4), -math.log10(3 / 8)])
    assert phi(gaps, [3.9, 4.0], by=())["is_capped"].to_list() == [False, True]


@pytest.mark.parametrize("closed_by", ["death", "other_end"])
def test_silences_of_the_dead_say_nothing_about_the_living(closed_by):
    dead = pl.DataFrame({"gap_s": [9e5], "closed_by": [closed_by]})
    living = TEN.with_columns(closed_by=pl.lit("sign_of_life"))
    for model in MODELS:
        both = pl.concat([living, dead])
        assert rated(both, 5.0, model=model) == rated(living, 5.0, model=model)


def test_cassandra_convicts_at_18_means():
    found = phi_threshold(TEN, 8, by=(), model="exponential")
    assert found["threshold_s"].item() == pytest.approx(18.4207 * 5.5, rel=1e-5)
    assert rated(TEN, 5.5, model="exponential") == pytest.approx([0.4342945])


def test_akka_gives_its_reference_values():
    """STATS.md section 5: 0, 1, 2, 3 and 5 spreads above the mean."""
    gaps = pl.DataFrame({"gap_s": [90.0, 110.0]})
    found = rated(gaps, *(100.0 + 10 * y for y in (0, 1, 2, 3, 5)), model="normal")
    assert found == pytest.approx([0.30103, 0.79951, 1.64283, 2.90948, 7.29995], abs=5e-6)


@pytest.mark.parametrize("model", MODELS)
def test_the_threshold_of_a_phi_has_that_phi(model):
    gaps = message_gaps(50, seed=2)
    at_s = phi_threshold(gaps, 2, by=(), model=model)["threshold_s"].item()
    assert rated(gaps, at_s, model=model)[0] == pytest.approx(2, abs=2e-3)
    assert rated(gaps, at_s * 0.99, model=model)[0] < 2


def test_what_the_data_do_not_reach_is_not_known():
    assert phi_threshold(TEN, 1.0001, by=())["threshold_s"].item() is None


def test_models_call_a_long_tool_call_far_too_surprising():
    gaps = message_gaps(200, seed=1)
    silence = 5400.0
    empirical, exponential = (
        rated(gaps, silence, model=m)[0] for m in ("empirical", "exponential")
    )
    assert empirical < 3.5 < 20 < exponential


def test_each_kind_has_a_scale_of_its_own_and_null_is_a_kind():
    slow = TEN.select(gap_s=pl.col("gap_s") * 10, kind=pl.lit("slow"))
    gaps = pl.concat([TEN.with_columns(kind=pl.lit(None, pl.String)), slow], how="diagonal")
    found = phi(gaps, [9.0])
    assert found.rows() == [
        (None, 9.0, pytest.approx(1.0), False, 10),
        ("slow", 9.0, 0.0, False, 10),
    ]
    assert phi_threshold(gaps, 1)["threshold_s"].to_list() == [9.0, 90.0]


def test_a_kind_that_never_spoke_again_has_no_scale():
    gaps = pl.DataFrame({"gap_s": [5.0], "closed_by": ["as_of"]})
    for model in MODELS:
        assert rated(gaps, 1.0, model=model) == [None]
        assert phi_threshold(gaps, 1, by=(), model=model)["threshold_s"].to_list() == [None]


def test_silences_that_are_all_alike_have_a_spread():
    assert rated(pl.DataFrame({"gap_s": [60.0, 60.0]}), 60.1, model="normal") == pytest.approx(
        [0.79951], abs=5e-6
    )


@examples(40)
@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=30),
    st.lists(st.integers(0, 1200), min_size=2, max_size=5),
)
def test_a_longer_silence_is_never_less_surprising(gaps_s, silences_s):
    gaps = pl.DataFrame({"gap_s": [float(s) for s in gaps_s]})
    for model in MODELS:
        found = phi(gaps, silences_s, by=(), model=model)
        assert found["phi"].is_sorted()
        assert found["phi"].min() >= 0
    assert found["n_gaps"].to_list() == [len(gaps_s)] * found.height


def test_no_silences_give_no_rows():
    empty = TEN.clear()
    assert phi(empty, [1.0], by=()).is_empty()
    assert phi_threshold(empty, 1, by=()).is_empty()
    assert phi(TEN, [], by=()).is_empty()


def test_a_store_has_a_scale(demo):
    found = phi_threshold(silence_gaps(demo), 1)
    assert found.columns == ["kind", "phi", "threshold_s", "n_gaps"]
    assert found["threshold_s"].null_count() < found.height


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ArgumentError, match=r"no model 'empiric'; there are empirical"):
        phi(TEN, [1.0], model="empiric", by=())
    with pytest.raises(ArgumentError, match=r"silences_s needs numbers of at least 0; found -1"):
        phi(TEN, [-1], by=())
    with pytest.raises(ArgumentError, match="level above 0; found 0"):
        phi_threshold(TEN, 0, by=())
    with pytest.raises(MissingColumnsError, match="phi needs columns"):
        phi(TEN, [1.0])
    with pytest.raises((ArgumentError, ColumnTypeError)):
        phi(pl.DataFrame({"gap_s": [-1.0]}), [1.0], by=())

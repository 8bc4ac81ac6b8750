"""Agreement of detections: reference values, intervals over sessions, gaps that stay gaps."""

from datetime import timedelta
from math import sqrt
from statistics import NormalDist

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.detectors.frames import AGREEMENT, AGREEMENT_OVERALL, DETECTIONS
from stateanalytics.errors import ArgumentError
from stateanalytics.stats import agreement
from stateanalytics.stats.agreement import cells_by_class, intervals_of_cells, pairwise_agreement
from stateanalytics.stats.distributions import student_quantile
from tests.examples import examples
from tests.frames import AS_OF


def detections(answers, *, sessions=None, at=None, kinds=None):
    """Detections from answers: one dict an entity, detector to True, False or None."""
    rows = [
        {
            "source": "s", "system": "lionagi", "entity_type": "session",
            "entity_id": f"e{n:04}", "session_id": f"{sessions[n] if sessions else n}",
            "kind": kinds[n] if kinds else None, "detector": name, "at": at or AS_OF,
            "covered": fires is not None, "fires": fires, "is_knowable": True,
        }
        for n, answer in enumerate(answers)
        for name, fires in answer.items()
    ]  # fmt: skip
    return DETECTIONS.conform(pl.DataFrame(rows, infer_schema_length=None))


def table(both, only_a, only_b, neither):
    cells = ((True, True, both), (True, False, only_a), (False, True, only_b),
             (False, False, neither))  # fmt: skip
    return [{"x": a, "y": b} for a, b, n in cells for _ in range(n)]


def test_reference_values_come_out_of_detections():
    pairs = sa.detectors.agreement(detections(table(20, 5, 10, 15)), n_resamples=0).pairs
    assert pairs.select("n_both", "n_only_a", "n_only_b", "n_neither").row(0) == (20, 5, 10, 15)
    found = pairs.row(0, named=True)
    assert found["raw_agreement"] == pytest.approx(0.7)
    assert found["kappa"] == pytest.approx(0.4)
    assert found["ac1"] == pytest.approx(0.405941, abs=5e-7)
    assert found["pabak"] == pytest.approx(0.4)
    assert found["kappa_low"] is None


def test_intervals_are_near_those_of_large_samples():
    """Of 4 times the reference table; psych's interval narrows by half."""
    found = sa.detectors.agreement(detections(table(80, 20, 40, 60)), n_resamples=1000).pairs
    row = found.row(0, named=True)
    assert row["kappa_low"] == pytest.approx(0.4 - 0.2489 / 2, abs=0.02)
    assert row["kappa_high"] == pytest.approx(0.4 + 0.2489 / 2, abs=0.02)
    for score in ("kappa", "mcc", "ac1", "pabak"):
        assert row[f"{score}_low"] < row[score] < row[f"{score}_high"]


def test_the_same_seed_gives_the_same_intervals_in_any_order_of_rows():
    rows = detections(table(20, 5, 10, 15))
    first = sa.detectors.agreement(rows, seed=7, n_resamples=300).pairs
    mixed = rows.sample(fraction=1, shuffle=True, seed=1).sort("detector")
    assert first.equals(sa.detectors.agreement(mixed, seed=7, n_resamples=300).pairs)
    assert not first.equals(sa.detectors.agreement(rows, seed=8, n_resamples=300).pairs)


def test_a_session_asked_at_many_instants_is_one_cluster():
    """Ten copies of each answer make ten times the units, and no narrower interval."""
    once = detections(table(20, 5, 10, 15))
    often = pl.concat(
        [once.with_columns(at=pl.lit(AS_OF - timedelta(hours=n)).dt.cast_time_unit("us"))
         for n in range(10)]
    )  # fmt: skip
    one, ten = (sa.detectors.agreement(rows, n_resamples=400).pairs.row(0, named=True)
                for rows in (once, often))  # fmt: skip
    assert (one["n"], ten["n"]) == (50, 500)
    assert (one["n_clusters"], ten["n_clusters"]) == (50, 50)
    assert ten["kappa"] == pytest.approx(one["kappa"])
    for end in ("kappa_low", "kappa_high"):
        assert ten[end] == pytest.approx(one[end], abs=0.05)


def test_what_is_not_covered_never_counts_as_fine():
    answers = [{"x": True, "y": None}, {"x": True, "y": True}, {"x": None, "y": False}]
    found = sa.detectors.agreement(detections(answers), n_resamples=0)
    row = found.pairs.row(0, named=True)
    assert (row["n"], row["n_uncovered"], row["n_both"], row["n_neither"]) == (1, 2, 1, 0)
    assert found.overall["n_units"].item() == 1


def test_all_alike_divides_nothing_by_zero():
    found = sa.detectors.agreement(detections([{"x": False, "y": False}] * 3), n_resamples=50)
    row = found.pairs.row(0, named=True)
    assert (row["raw_agreement"], row["kappa"], row["kappa_low"]) == (1.0, None, None)
    assert (row["ac1"], row["ac1_high"]) == (1.0, 1.0)
    assert row["pabak_low"] < 0.9  # three sessions alike are no proof
    overall = found.overall.select("fleiss_kappa", "krippendorff_alpha", "cochran_q")
    assert overall.row(0) == (None, None, None)


def test_one_unit_and_no_unit_are_survived():
    one = sa.detectors.agreement(detections([{"x": True, "y": False}]), n_resamples=10)
    assert one.pairs["raw_agreement"].item() == 0.0
    none = sa.detectors.agreement(detections([{"x": None, "y": None}]), n_resamples=10)
    assert none.pairs.select("n", "raw_agreement", "kappa").row(0) == (0, None, None)
    assert none.overall["n_detectors"].item() == 0


def test_measures_over_all_detectors():
    answers = [{"x": True, "y": True, "z": True}, {"x": False, "y": False, "z": True},
               {"x": True, "y": False, "z": None}]  # fmt: skip
    overall = sa.detectors.agreement(detections(answers), n_resamples=0).overall.row(0, named=True)
    assert (overall["n_units"], overall["n_detectors"], overall["n_complete"]) == (3, 3, 2)
    # Two complete units, three raters: by hand (2/3 - 5/9) / (1 - 5/9).
    assert overall["fleiss_kappa"] == pytest.approx((2 / 3 - 5 / 9) / (1 - 5 / 9))
    assert (overall["cochran_q"], overall["cochran_df"]) == (pytest.approx(2.0), 2)


def test_groups_are_compared_apart_and_a_group_of_one_row_is_survived():
    answers = [{"x": True, "y": True}, {"x": True, "y": False}, {"x": False, "y": False}]
    rows = detections(answers, kinds=["agent", "agent", "flow"])
    found = sa.detectors.agreement(rows, by="kind", n_resamples=20)
    assert found.pairs.select("kind", "n", "n_both").rows() == [("agent", 2, 1), ("flow", 1, 0)]
    assert found.pairs.columns == ["kind", *AGREEMENT.dtypes.names()]
    assert found.overall.columns == ["kind", *AGREEMENT_OVERALL.dtypes.names()]


def test_pairs_that_are_never_about_the_same_type_are_left_out():
    other = detections([{"z": True}]).with_columns(entity_type=pl.lit("schedule"))
    rows = pl.concat([detections([{"x": True, "y": True}]), other])
    assert sa.detectors.agreement(rows, n_resamples=0).pairs.select("a", "b").rows() == [("x", "y")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"by": "knd"}, "did you mean 'kind'"),
        ({"by": "fires"}, "no column to group by 'fires'; there are"),
        ({"n_resamples": -1}, "whole number from 0; found -1"),
        ({"conf_level": 95}, "between 0 and 1; found 95"),
    ],
)
def test_options_that_make_no_sense_say_so(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        sa.detectors.agreement(detections(table(1, 1, 1, 1)), **arguments)


def test_one_detector_says_what_to_do():
    with pytest.raises(ArgumentError, match=r"at least two detectors; found \['x'\]"):
        sa.detectors.agreement(detections([{"x": True}]))


def test_it_shows_itself():
    found = sa.detectors.agreement(detections(table(1, 1, 1, 1)), n_resamples=0)
    assert repr(found) == "Agreement of 2 detectors in 1 pairs. Next: .pairs, .overall"
    assert "<table" in found._repr_html_()


ANSWER = st.sampled_from([True, False, None])


@pytest.mark.slow
@examples(10)
@given(st.lists(st.tuples(ANSWER, ANSWER, st.integers(0, 3)), min_size=1, max_size=12))
def test_intervals_equal_drawing_clusters_one_by_one(rows):
    """The slow loop: the same draws and half units, clusters put together one by one."""
    schema = {"a": pl.Boolean, "b": pl.Boolean, "who": pl.Int64}
    labels = pl.DataFrame(rows, schema=schema, orient="row")
    cells, members = cells_by_class(labels, [("a", "b")], "who")
    found = intervals_of_cells(cells, members, n_resamples=12, conf_level=0.95, seed=5)
    classes, members = agreement._classes(labels, ["a", "b"], "who")
    draws = agreement._draws(members, 12, 5)
    seen, *scores = [pairwise_agreement(labels, ["a", "b"])["pabak"].item()]
    for draw, *more in agreement._half_units(12, 5).rows():
        times = draws.filter(pl.col("_draw") == draw)
        units = pl.concat(
            [classes.filter(pl.col("_class") == name) for name, n in
             times.select("_class", "_times").rows() for _ in range(int(n))]
        )  # fmt: skip
        table = pairwise_agreement(units, ["a", "b"]).row(0, named=True)
        if not table["n"]:
            continue
        both, only_a, only_b, neither = (
            table[name] + half for name, half in zip(agreement.CELLS[1:], more, strict=True)
        )
        n = both + only_a + only_b + neither
        scores.append(2 * (both + neither) / n - 1)
    if seen is None:
        assert found.is_empty()
    else:
        answers = [(who, a or b, a and b) for a, b, who in rows if None not in (a, b)]
        n_yes = len({who for who, some, _ in answers if some})
        n_no = len({who for who, _, every in answers if not every})
        n = max(2, min(n_yes, n_no))
        tail = NormalDist().cdf(-student_quantile(0.95, n - 1) * sqrt(n / (n - 1)))
        place = round(tail * (len(scores) - 1))
        in_order = sorted(scores)
        low, high = min(in_order[place], seen), max(in_order[-1 - place], seen)
        assert found.select("pabak_low", "pabak_high").row(0) == pytest.approx((low, high))
    # As many clusters in every draw as there are.
    n_drawn = draws.group_by("_draw").agg(pl.col("_times").sum())["_times"]
    assert n_drawn.unique().to_list() == [float(labels["who"].n_unique())]

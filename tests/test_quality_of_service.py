"""How often a detector of silence is wrong and how late it is right, for any threshold."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.core.words import CANDIDATES_S
from stateanalytics.detectors.gaps import CLOSED_BY, silence_gaps
from stateanalytics.detectors.quality import SUMS, gap_sums, merge_gap_sums, quality_of_service
from stateanalytics.errors import ArgumentError, ColumnTypeError, MissingColumnsError
from stateanalytics.stats.intervals import poisson_interval, wilson
from tests.examples import examples
from tests.generators import message_gaps

LENGTH_S = st.integers(0, 10_000_000).map(lambda us: us / 1e6)
SILENCE = st.tuples(
    st.sampled_from(["agent", "flow", None]), LENGTH_S, st.sampled_from(CLOSED_BY), st.booleans()
)
SILENCES = st.lists(SILENCE, max_size=30)
THRESHOLDS = st.lists(LENGTH_S, min_size=1, max_size=6)
SCHEMA = {"kind": pl.String, "gap_s": pl.Float64, "closed_by": pl.String, "left_out": pl.String}


def gaps_of(silences):
    rows = [(kind, gap_s, by, "legacy" if out else None) for kind, gap_s, by, out in silences]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def slowly(silences, thresholds, *, at_least):
    """The obvious version: every silence at every threshold, one after the other."""
    found = {}
    for kind, gap_s, closed_by, is_out in silences:
        if is_out:
            continue
        for threshold in set(thresholds):
            sums = found.setdefault((kind, threshold), dict.fromkeys(SUMS, 0))
            gap_us, limit_us = round(gap_s * 1e6), round(threshold * 1e6)
            is_flagged = gap_us >= limit_us if at_least else gap_us > limit_us
            flagged_us = gap_us - limit_us if is_flagged else 0
            sums["n_gaps"] += 1
            if closed_by == "sign_of_life":
                sums["n_mistakes"] += is_flagged
                sums["mistaken_us"] += flagged_us
            if closed_by in ("sign_of_life", "own_end"):
                sums["alive_us"] += gap_us
                sums["suspected_us"] += flagged_us
            if closed_by == "own_end":
                sums["n_ended"] += 1
                sums["n_ended_flagged"] += is_flagged
            if closed_by in ("as_of", "other_end"):
                sums["n_cut_off"] += 1
                sums["n_cut_off_flagged"] += is_flagged
            if closed_by == "death":
                sums["n_dead"] += 1
                sums["n_found"] += is_flagged
                sums["late_us"] += max(limit_us - gap_us, 0)
    return found


@examples(40)
@given(SILENCES, THRESHOLDS, st.booleans())
def test_sums_equal_the_loop_over_silences_and_thresholds(silences, thresholds, at_least):
    fast = gap_sums(gaps_of(silences), thresholds, at_least=at_least)
    slow = slowly(silences, thresholds, at_least=at_least)
    assert {tuple(row[:2]): dict(zip(SUMS, row[2:], strict=True)) for row in fast.rows()} == slow


@examples(25)
@given(st.lists(SILENCES, min_size=1, max_size=4), THRESHOLDS)
def test_merged_equals_pooled(stores, thresholds):
    parts = [gap_sums(gaps_of(silences), thresholds) for silences in stores]
    pooled = gap_sums(gaps_of([one for silences in stores for one in silences]), thresholds)
    assert merge_gap_sums(parts).equals(pooled)


@examples(25)
@given(SILENCES, THRESHOLDS)
def test_a_longer_threshold_is_never_wrong_more_often(silences, thresholds):
    found = quality_of_service(gaps_of(silences), thresholds_s=thresholds)
    per_kind = found.sort("kind", "threshold_s").group_by("kind", maintain_order=True)
    for _, rows in per_kind:
        assert rows["n_mistakes"].is_sorted(descending=True)
        assert rows["n_found"].is_sorted(descending=True)
        assert rows["query_accuracy"].drop_nulls().is_sorted()
        assert rows["detection_low_s"].drop_nulls().is_sorted()
        assert rows["query_accuracy"].drop_nulls().is_between(0, 1).all()


@examples(15)
@given(SILENCES, st.randoms(use_true_random=False))
def test_the_order_of_silences_does_not_matter(silences, random):
    shuffled = random.sample(silences, len(silences))
    assert quality_of_service(gaps_of(shuffled)).equals(quality_of_service(gaps_of(silences)))


HOUR = 3600.0


def judged(*silences, thresholds_s=(HOUR,), **options):
    given = gaps_of([("agent", gap_s, closed_by, False) for gap_s, closed_by in silences])
    return quality_of_service(given, thresholds_s=thresholds_s, **options).row(0, named=True)


def test_a_flagged_run_that_speaks_again_is_a_mistake():
    found = judged((HOUR / 2, "sign_of_life"), (1.5 * HOUR, "sign_of_life"))
    assert (found["n_mistakes"], found["mean_mistake_s"]) == (1, HOUR / 2)
    assert (found["mistakes_per_100h"], found["mistake_recurrence_s"]) == (50.0, 2 * HOUR)
    assert found["query_accuracy"] == 0.75
    ends = (found["mistakes_per_100h_low"], found["mistakes_per_100h_high"])
    assert ends == tuple(end / 0.02 for end in poisson_interval(1))


@pytest.mark.parametrize("closed_by", ["own_end", "death", "other_end", "as_of"])
def test_a_last_silence_is_never_a_mistake(closed_by):
    found = judged((HOUR / 2, "sign_of_life"), (9 * HOUR, closed_by))
    assert (found["n_mistakes"], found["mean_mistake_s"]) == (0, None)


def test_time_counts_as_alive_only_where_it_is_proven():
    silences = [(HOUR, "sign_of_life"), (2 * HOUR, "own_end")]
    unproven = [(4 * HOUR, "death"), (8 * HOUR, "as_of"), (16 * HOUR, "other_end")]
    found = judged(*silences, *unproven)
    assert (found["alive_s"], found["n_ended"], found["n_cut_off"]) == (3 * HOUR, 1, 2)
    assert (found["n_ended_flagged"], found["n_cut_off_flagged"]) == (1, 2)
    assert found["query_accuracy"] == pytest.approx(2 / 3)


def test_a_death_is_found_late_within_bounds():
    found = judged((HOUR / 2, "death"), (3 * HOUR, "death"))
    assert (found["n_dead"], found["n_found"], found["share_found"]) == (2, 1, 0.5)
    assert (found["share_found_low"], found["share_found_high"]) == pytest.approx(wilson(1, 2))
    # One was flagged before it was found dead, the other half an hour after.
    assert (found["detection_low_s"], found["detection_high_s"]) == (HOUR / 4, HOUR)


def test_what_is_not_known_is_null():
    found = judged((HOUR, "as_of"))
    unknown = (
        *("mistakes_per_100h", "mistakes_per_100h_high", "query_accuracy", "mean_mistake_s"),
        *("mistake_recurrence_s", "share_found", "detection_low_s", "detection_high_s"),
    )
    assert [found[name] for name in unknown] == [None] * len(unknown)
    assert (found["n_gaps"], found["alive_s"], found["n_dead"]) == (1, 0.0, 0)


@pytest.mark.parametrize(("at_least", "n_mistakes"), [(False, 0), (True, 1)])
def test_the_boundary_is_strict_unless_asked(at_least, n_mistakes):
    found = judged((HOUR, "sign_of_life"), at_least=at_least)
    assert found["n_mistakes"] == n_mistakes


def test_a_float_at_the_boundary_is_compared_in_microseconds():
    """0.1 + 0.2 is not 0.3, but no store writes it otherwise."""
    assert judged((0.1 + 0.2, "sign_of_life"), thresholds_s=[0.3])["n_mistakes"] == 0


def test_exponential_silences_have_the_closed_form():
    """STATS.md section 5: mean 10 minutes, thresholds of 10, 30 and 60."""
    n = 200_000
    quantile = (pl.int_range(n) + 0.5) / n
    gaps = pl.select(gap_s=-600.0 * (1 - quantile).log())
    found = quality_of_service(gaps, thresholds_s=[600, 1800, 3600], by=())
    per_minute = (found["mistakes_per_100h"] / 6000).to_list()
    assert per_minute == pytest.approx([0.036788, 0.004979, 0.000248], rel=2e-3)
    assert found["mean_mistake_s"].to_list() == pytest.approx([600] * 3, rel=6e-3)
    assert found["query_accuracy"].to_list() == pytest.approx(
        [0.632121, 0.950213, 0.997521], abs=2e-5
    )


def test_mistakes_of_the_generator_are_its_long_silences():
    gaps = message_gaps(500, seed=3, median_s=10.0, sigma=0.3)
    found = quality_of_service(gaps, thresholds_s=[600], by=())
    assert found["n_mistakes"].item() == gaps.filter("is_long", pl.col("gap_s") > 600).height
    assert found["alive_s"].item() == pytest.approx(gaps["gap_s"].sum())


def test_accuracy_recurrence_and_duration_fit_together():
    """Chen's identity: P_A = 1 - E[T_M] / E[T_MR]."""
    found = quality_of_service(message_gaps(200), thresholds_s=[60, 600], by=())
    identity = 1 - pl.col("mean_mistake_s") / pl.col("mistake_recurrence_s")
    assert found.select((pl.col("query_accuracy") - identity).abs().max()).item() < 1e-12


@pytest.mark.slow
def test_a_snapshot_its_silences_and_its_sums_say_the_same(demo):
    snap = demo
    gaps = silence_gaps(snap)
    expected = quality_of_service(snap)
    assert quality_of_service(gaps).equals(expected)
    assert quality_of_service(gaps.lazy()).equals(expected)
    assert quality_of_service(gap_sums(gaps)).equals(expected)
    by_model = quality_of_service(snap, thresholds_s=[600], by=["model", "kind"])
    everything = quality_of_service(snap, thresholds_s=[600], by=())
    assert by_model.columns[:2] == ["model", "kind"]
    assert by_model["n_mistakes"].sum() == everything["n_mistakes"].item() > 100


def test_flags_stand_in_for_what_closed_a_silence():
    flags = pl.DataFrame(
        {"gap_s": [9.0, 9.0, 9.0], "is_last": [False, True, True], "is_dead": [None, None, True]}
    )
    found = gap_sums(flags, [5], by=()).row(0, named=True)
    assert (found["n_mistakes"], found["n_cut_off"], found["n_found"]) == (1, 1, 1)


def test_what_closed_a_silence_can_be_counted_by():
    given = gaps_of([("agent", 9.0, "sign_of_life", False), ("agent", 9.0, "death", False)])
    found = gap_sums(given, [5], by="closed_by")
    assert found.select("closed_by", "n_mistakes", "n_found").rows() == [
        ("death", 0, 1),
        ("sign_of_life", 1, 0),
    ]


def test_the_grid_holds_the_thresholds_that_people_name():
    named = (60.0, 300.0, 600.0, 1_800.0, 3_600.0, 21_600.0, 43_200.0, 86_400.0)
    assert set(named) <= set(CANDIDATES_S)
    assert list(CANDIDATES_S) == sorted(set(CANDIDATES_S))
    assert (CANDIDATES_S[0], CANDIDATES_S[-1]) == (10.0, 604_800.0)


def test_no_silences_add_no_thresholds_to_those_of_others():
    full, empty = gaps_of([("agent", 1.0, "as_of", False)]), gaps_of([])
    merged = merge_gap_sums([gap_sums(empty, [5]), gap_sums(full, [7])])
    assert merged.equals(gap_sums(full, [7]))


@pytest.mark.parametrize("bad", [None, -1.0, math.nan, math.inf, 2e9])
def test_a_length_that_is_none_is_refused(bad):
    gaps = pl.DataFrame({"gap_s": [1.0, bad]})
    with pytest.raises(ArgumentError, match=r"1 of 2 are null, negative, not finite or longer"):
        gap_sums(gaps, [5], by=())


@pytest.mark.parametrize(
    ("thresholds_s", "words"),
    [
        *(([], "at least one threshold"), ([-1], r"seconds from 0 to 1e\+09; found -1")),
        *(([math.nan], "found nan"), (["1h"], "found '1h'")),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(thresholds_s, words):
    with pytest.raises(ArgumentError, match=words):
        gap_sums(gaps_of([]), thresholds_s)


def test_columns_that_are_not_there_are_named():
    with pytest.raises(MissingColumnsError, match=r"gap_sums needs columns \['gap_s', 'kind'\]"):
        gap_sums(pl.DataFrame({"gap": [1.0]}))
    with pytest.raises(ColumnTypeError, match="gap_s as a number of seconds"):
        gap_sums(pl.DataFrame({"gap_s": ["1"]}), by=())


def test_parts_that_do_not_fit_together_are_refused():
    one = gap_sums(gaps_of([("a", 1.0, "as_of", False)]), [5])
    other = gap_sums(gaps_of([("a", 1.0, "as_of", False)]), [6])
    with pytest.raises(ArgumentError, match="same columns and thresholds"):
        merge_gap_sums([one, other])
    with pytest.raises(ArgumentError, match="at least one part"):
        merge_gap_sums([])
    with pytest.raises(ArgumentError, match="already have their thresholds"):
        quality_of_service(one, thresholds_s=[5])
    with pytest.raises(ArgumentError, match="needs a snapshot; found int 5"):
        quality_of_service(5)


def test_many_mistakes_have_an_interval_as_good_as_the_exact_one():
    gaps = pl.DataFrame({"gap_s": [7200.0] * 3000})
    found = quality_of_service(gaps, thresholds_s=[HOUR], by=())
    low, high = (end / 60 for end in poisson_interval(3000))
    shown = found.select("mistakes_per_100h_low", "mistakes_per_100h_high").row(0)
    assert shown == pytest.approx((low, high), rel=1e-6)

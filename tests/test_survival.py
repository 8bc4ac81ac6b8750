"""Curves with censoring, against R's survival package and the slow loop."""

import math
import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.charts.survival import say_survival
from stateanalytics.errors import ArgumentError, ColumnTypeError, MissingColumnsError
from stateanalytics.stats.distributions import chi_square_tail
from stateanalytics.survival.curves import (
    bare_curve,
    kaplan_meier,
    quantiles,
    restricted_mean,
)
from stateanalytics.survival.incidence import cumulative_incidence
from stateanalytics.survival.log_rank import logrank
from tests.examples import examples
from tests.survival_data import (
    FLAT,
    TIED,
    TRUNCATED,
    TYPE_I,
    at,
    read_aml,
    read_lung,
    read_mgus2,
    slow_incidence,
    slow_logrank,
)


@pytest.fixture(scope="session")
def stats(shared: Path) -> Path:
    return shared / "reference" / "stats"


@pytest.fixture
def aml(stats: Path) -> pl.DataFrame:
    return read_aml(stats)


@pytest.fixture
def lung(stats: Path) -> pl.DataFrame:
    return read_lung(stats)


def test_aml_curve_and_interval_equal_r(aml):
    point = at(kaplan_meier(aml), 27)
    assert point["survival"] == pytest.approx(0.4968944, abs=5e-8)
    assert point["survival_se"] == pytest.approx(0.1084018, abs=5e-8)
    assert point["survival_low"] == pytest.approx(0.27556563, abs=5e-9)
    assert point["survival_high"] == pytest.approx(0.684214, abs=5e-7)
    late = at(kaplan_meier(aml), 48)
    assert late["survival"] == pytest.approx(0.0828157, abs=5e-8)
    assert late["survival_low"] == pytest.approx(0.00695597, abs=5e-9)
    assert late["survival_high"] == pytest.approx(0.286760, abs=5e-7)


def test_aml_quartiles_equal_r(aml):
    quartiles = quantiles(kaplan_meier(aml))
    assert quartiles["duration_s"].to_list() == [12, 27, 43]
    assert quartiles["duration_low_s"].to_list() == [5, 13, 30]
    assert quartiles["duration_high_s"].to_list() == [23, 34, None]


@pytest.mark.parametrize(
    ("conf_type", "maintained", "nonmaintained"),
    [
        pytest.param("log-log", (13, None), (5, 33), id="log-log"),
        pytest.param("log", (18, None), (8, None), id="log, R's default"),
        pytest.param("plain", (18, 48), (8, 33), id="plain"),
    ],
)
def test_aml_medians_equal_r_on_every_scale(aml, conf_type, maintained, nonmaintained):
    medians = quantiles(kaplan_meier(aml, by="arm", conf_type=conf_type), [0.5])
    assert medians.select("arm", "duration_s", "duration_low_s", "duration_high_s").rows() == [
        ("Maintained", 31, *maintained),
        ("Nonmaintained", 23, *nonmaintained),
    ]


def test_an_unknown_scale_or_level_is_refused(aml):
    with pytest.raises(
        ArgumentError, match="conf_type must be one of log-log, log, plain; found 'arcsin'"
    ):
        kaplan_meier(aml, conf_type="arcsin")
    with pytest.raises(ArgumentError, match="between 0 and 1; found 95"):
        kaplan_meier(aml, conf_level=95)


def test_a_lazy_frame_is_to_be_collected_first(aml):
    with pytest.raises(ArgumentError, match=r"LazyFrame\.\nHint: kaplan_meier\(frame\.collect"):
        kaplan_meier(aml.lazy())


def test_the_flats_of_r_itself_are_read_from_the_left_or_the_middle():
    probs = [1 / 14, 1 / 7, 1 / 3, 1 / 2, 26 / 35, 9 / 10]
    curve = kaplan_meier(FLAT)
    middle = quantiles(curve, probs, flat="middle")
    assert middle["duration_s"].to_list() == [1, 3.5, 6, 9, 9.5, None]
    assert quantiles(curve, probs)["duration_s"].to_list() == [1, 1, 6, 9, 9, None]
    with pytest.raises(ArgumentError, match="flat must be one of left, middle; found 'right'"):
        quantiles(curve, probs, flat="right")


def test_lung_quantiles_equal_r(lung):
    found = quantiles(kaplan_meier(lung), [0.1, 0.25, 0.5, 0.75, 0.9])
    assert quantiles(kaplan_meier(lung), 0.5).equals(quantiles(kaplan_meier(lung), [0.5]))
    assert found["duration_s"].to_list() == [79, 170, 310, 550, 735]
    assert found["duration_low_s"].to_list() == [54, 144, 284, 457, 687]
    assert found["duration_high_s"].to_list() == [105, 194, 361, 643, None]


def test_log_rank_equals_r(aml, lung):
    assert logrank(aml, "arm")["statistic"].item() == pytest.approx(3.396388699, abs=5e-10)
    assert logrank(aml, "arm")["p_value"].item() == pytest.approx(0.06534, abs=5e-6)
    assert logrank(lung, "sex")["statistic"].item() == pytest.approx(10.32674195, abs=5e-9)
    assert logrank(lung, "sex")["p_value"].item() == pytest.approx(0.00131116452, abs=5e-12)
    assert logrank(lung, "sex", rho=1)["statistic"].item() == pytest.approx(12.7141514, abs=5e-8)


def test_restricted_mean_equals_r(aml):
    means = restricted_mean(kaplan_meier(aml, by="arm"), 40)
    assert means["mean_s"].to_list() == pytest.approx([28.89772727, 21.93055556], abs=5e-9)
    assert means["mean_se"].to_list() == pytest.approx([3.467577679, 3.835641163], abs=5e-10)


def test_left_truncation_equals_r():
    curve = kaplan_meier(TRUNCATED).filter(pl.col("n_events") > 0)
    assert curve["n_at_risk"].to_list() == [6, 6, 5, 4, 2]
    assert curve["survival"].to_list() == pytest.approx(
        [0.833333, 0.694444, 0.555556, 0.416667, 0.208333], abs=5e-7
    )
    six = at(curve, 6)
    assert six["survival_low"] == pytest.approx(0.1594651, abs=5e-8)
    assert six["survival_high"] == pytest.approx(0.828462, abs=5e-7)


def test_competing_risks_of_tied_spells_equal_r():
    curve = cumulative_incidence(TIED)
    one, two = (curve.filter(cause=cause) for cause in (1, 2))
    assert one["incidence"].to_list() == pytest.approx(
        [0.1, 0.2, 0.3, 0.3, 0.4666667, 0.4666667], abs=5e-8
    )
    assert two["incidence"].to_list() == pytest.approx(
        [0.1, 0.1, 0.2, 0.2, 0.3666667, 0.3666667], abs=5e-8
    )
    assert one["incidence_se"].to_list()[:5] == pytest.approx(
        [0.0948683298, 0.1264911064, 0.1449137675, 0.1449137675, 0.1797117033], abs=5e-11
    )
    assert two["incidence_se"].to_list()[:5] == pytest.approx(
        [0.0948683298, 0.0948683298, 0.1264911064, 0.1264911064, 0.1750132270], abs=5e-11
    )


def test_mgus2_incidences_equal_r(stats):
    curve = cumulative_incidence(read_mgus2(stats))
    pcm, death = (curve.filter(cause=cause) for cause in (1, 2))
    months = (12, 60, 120, 240, 360)
    for month, incidence, error in zip(
        months,
        (0.009401259345, 0.034103712974, 0.063722168013, 0.099813715935, 0.134041644326),
        (0.002595155763, 0.004889257908, 0.006796848424, 0.009784846793, 0.020127562513),
        strict=True,
    ):
        assert at(pcm, month)["incidence"] == pytest.approx(incidence, abs=5e-13)
        assert at(pcm, month)["incidence_se"] == pytest.approx(error, abs=5e-13)
    for month, incidence in zip(
        months, (0.1221854028, 0.3203670103, 0.5318177041, 0.7240279761, 0.7842082468), strict=True
    ):
        assert at(death, month)["incidence"] == pytest.approx(incidence, abs=5e-11)
    assert at(pcm, 240)["incidence_low"] == pytest.approx(0.0816899507, abs=5e-11)
    assert at(pcm, 240)["incidence_high"] == pytest.approx(0.1200191317, abs=5e-11)
    # On the log scale, which is survfit's default.
    pcm = cumulative_incidence(read_mgus2(stats), conf_type="log").filter(cause=1)
    assert at(pcm, 240)["incidence_low"] == pytest.approx(0.0823656280, abs=5e-11)
    assert at(pcm, 240)["incidence_high"] == pytest.approx(0.1209579546, abs=5e-11)


def test_timeouts_are_cut_offs_and_the_tail_is_not_identified():
    found = quantiles(kaplan_meier(TYPE_I), [0.25, 0.5, 0.75, 0.9])
    assert found["duration_s"].to_list() == [180, 510, None, None]
    assert found["duration_low_s"].to_list() == [60, 180, 510, None]
    assert found["duration_high_s"].to_list() == [510, None, None, None]
    assert found["in_words"][1] == "50 % end within 8 min 30 s (3 min to not identified)"
    why = "is not identified: 32 % outlast the data, which end at 15 min"
    assert found["in_words"][2:].to_list() == [f"when {n} % have ended {why}" for n in (75, 90)]


def test_no_spells_give_no_rows():
    empty = TYPE_I.clear()
    assert kaplan_meier(empty).height == 0
    assert cumulative_incidence(TIED.clear()).height == 0
    assert logrank(empty.with_columns(g=pl.lit("a")), "g")["p_value"].to_list() == [None]
    assert quantiles(kaplan_meier(empty))["in_words"].to_list() == ["not identified: no spells"] * 3


def test_all_censored_stays_at_one_and_no_quantile_is_identified():
    running = pl.DataFrame({"duration_s": [1.0, 2.0], "ended": [False, False]})
    curve = kaplan_meier(running)
    assert curve["survival"].to_list() == [1.0, 1.0]
    assert curve["survival_low"].to_list() == [None, None]
    assert quantiles(curve, [0.5])["is_identified"].to_list() == [False]
    assert restricted_mean(curve, 2).row(0)[1:5] == (2.0, None, None, None)
    rounded = kaplan_meier(running.with_columns(duration_s=pl.Series([5.3, 14.1])))
    assert restricted_mean(rounded, 14.1)["mean_s"].item() == 14.1
    assert cumulative_incidence(running.with_columns(cause=pl.lit(None, pl.String))).height == 0


def test_one_spell_and_zero_durations_are_kept():
    spell = pl.DataFrame({"duration_s": [0.0], "ended": [True]})
    assert kaplan_meier(spell).row(0)[:4] == (0.0, 1, 1, 0.0)
    more = pl.DataFrame({"duration_s": [0.0, 0.0, 5.0], "ended": [True, False, True]})
    assert at(kaplan_meier(more), 0)["survival"] == pytest.approx(2 / 3)


def test_a_null_stratum_is_a_stratum():
    spells = TYPE_I.with_columns(kind=pl.when(pl.col("ended")).then(pl.lit("flow")))
    assert kaplan_meier(spells, by="kind")["kind"].unique().len() == 2


def test_restricted_mean_beyond_the_data_is_not_identified():
    curve = kaplan_meier(TYPE_I)
    assert restricted_mean(curve, 900)["is_identified"].item()
    assert restricted_mean(curve, 901)["mean_s"].item() is None


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        pytest.param("duration_s", [1.0, math.nan], "not finite", id="not a number"),
        pytest.param("duration_s", [1.0, math.inf], "not finite", id="endless"),
        pytest.param("duration_s", [1.0, -1.0], "1 negative durations", id="negative"),
        pytest.param("duration_s", [1.0, None], "1 null durations", id="null"),
        pytest.param("entry_s", [0.0, 9.0], "end before they are entered", id="entry after end"),
        pytest.param("entry_s", [0.0, math.nan], "entries that are not finite", id="no entry"),
    ],
)
def test_durations_without_meaning_are_refused_in_words(column, values, words):
    spells = pl.DataFrame({"duration_s": [1.0, 2.0], "ended": [True, True]})
    with pytest.raises(ArgumentError, match=words):
        kaplan_meier(spells.with_columns(pl.Series(column, values, dtype=pl.Float64)))


def test_all_that_is_wrong_is_counted_at_once():
    durations, ended = [math.nan, None, -1.0, -2.0], [True, True, True, None]
    spells = pl.DataFrame({"duration_s": durations, "ended": ended})
    words = "among 4 spells it found 1 null durations, 1 durations that are not finite, 2 negative"
    with pytest.raises(ArgumentError, match=words):
        kaplan_meier(spells)


def test_spells_that_are_left_out_do_not_count_and_do_not_hurt():
    spells = pl.DataFrame(
        {
            "duration_s": [1.0, 2.0, None],
            "ended": [True, True, None],
            "cause": ["completed", "failed", None],
            "left_out": [None, None, "no_end"],
        }
    )
    assert kaplan_meier(spells)["n_at_risk"].to_list() == [2, 1]
    assert cumulative_incidence(spells)["cause"].n_unique() == 2


@pytest.mark.parametrize("dtype", [pl.Int64, pl.Float32, pl.UInt8])
def test_any_number_is_a_duration(dtype):
    spells = TYPE_I.head(2).with_columns(pl.col("duration_s").cast(dtype))
    curve = kaplan_meier(spells)
    assert curve.schema["duration_s"] == pl.Float64
    assert curve["duration_s"].to_list() == [60, 95]


def test_durations_that_differ_by_rounding_are_ties():
    """survfit's timefix: 0.1 + 0.2 and 0.3 are one time."""
    noisy = pl.DataFrame(
        {"duration_s": [0.1 + 0.2, 0.3, 1.0], "ended": [True, True, True], "arm": ["a", "b", "b"]}
    )
    exact = noisy.with_columns(duration_s=pl.Series([0.3, 0.3, 1.0]))
    assert kaplan_meier(noisy).equals(kaplan_meier(exact))
    assert bare_curve(noisy).equals(bare_curve(exact))
    assert kaplan_meier(noisy)["n_events"].to_list() == [2, 1]
    assert logrank(noisy, "arm").equals(logrank(exact, "arm"))
    late = noisy.with_columns(entry_s=pl.Series([0.0, 0.0, 0.1 + 0.2]))
    assert kaplan_meier(late)["n_at_risk"].to_list() == [2, 1]


def test_a_microsecond_is_no_tie_among_short_durations():
    spells = pl.DataFrame({"duration_s": [1.0, 1.000001], "ended": [True, True]})
    assert kaplan_meier(spells).height == 2


def test_an_entry_at_an_end_is_too_late_to_be_at_risk_there():
    spells = pl.DataFrame({"entry_s": [None, 2.0], "duration_s": [2.0, 5.0], "ended": [True, True]})
    assert kaplan_meier(spells)["n_at_risk"].to_list() == [1, 1]


def test_entries_of_nothing_mean_from_the_start_even_at_zero():
    spells = pl.DataFrame({"entry_s": [0.0, None], "duration_s": [0.0, 5.0], "ended": True})
    assert kaplan_meier(spells)["n_at_risk"].to_list() == [2, 1]


def test_several_columns_make_strata_in_order():
    spells = TYPE_I.with_columns(
        kind=pl.int_range(pl.len()) % 2, agent=pl.when(pl.int_range(pl.len()) % 3 > 0).then(1)
    )
    curve = kaplan_meier(spells, by=["kind", "agent"])
    strata = curve.select("kind", "agent").unique(maintain_order=True)
    assert strata.rows() == [(0, None), (0, 1), (1, None), (1, 1)]
    one = kaplan_meier(spells.filter(pl.col("kind") == 1, pl.col("agent") == 1))
    assert curve.filter(kind=1, agent=1).drop("kind", "agent").equals(one)


@pytest.mark.slow
def test_ten_thousand_strata_with_one_member_each():
    spells = pl.DataFrame(
        {"duration_s": [1.0] * 10_000, "ended": True, "cause": "completed",
         "agent": [f"agent {i}" for i in range(10_000)]}
    )  # fmt: skip
    assert kaplan_meier(spells, by="agent")["survival"].sum() == 0
    assert cumulative_incidence(spells, by="agent")["incidence"].sum() == 10_000
    assert quantiles(kaplan_meier(spells, by="agent"), [0.5]).height == 10_000
    with pytest.raises(ArgumentError, match=r"at most 200 groups; found 10000[\s\S]*within"):
        logrank(spells, "agent")


def test_groups_that_were_gone_before_the_first_end_are_no_degree_of_freedom():
    spells = pl.DataFrame(
        {
            "duration_s": [1.0, 2, 3, 4, 5, 0.5],
            "ended": [True, True, True, True, True, False],
            "arm": ["a", "a", "b", "b", "b", "gone"],
        }
    )
    left = spells.filter(pl.col("arm") != "gone")
    with_gone, without = logrank(spells, "arm"), logrank(left, "arm")
    assert with_gone["df"].item() == without["df"].item() == 1
    assert with_gone["statistic"].item() == pytest.approx(without["statistic"].item())
    assert with_gone["n_groups"].item() == 3
    alone = logrank(TYPE_I.with_columns(arm=pl.lit("a")), "arm").row(0, named=True)
    assert (alone["p_value"], alone["df"], alone["n_groups"]) == (None, 0, 1)


def test_one_test_within_each_stratum_equals_testing_each_alone(lung):
    spells = lung.with_columns(half=pl.int_range(pl.len()) % 2)
    within = logrank(spells, "sex", within="half")
    for half in (0, 1):
        alone = logrank(spells.filter(pl.col("half") == half), "sex")
        assert within.filter(half=half).drop("half").row(0) == pytest.approx(alone.row(0))


def test_three_groups_have_two_degrees_of_freedom(lung):
    spells = lung.with_columns(third=pl.int_range(pl.len()) % 3)
    found = logrank(spells, "third").row(0, named=True)
    assert (found["df"], found["n_groups"]) == (2, 3)
    renamed = spells.with_columns(third=2 - pl.col("third"))
    assert logrank(renamed, "third")["statistic"].item() == pytest.approx(found["statistic"])


def test_groups_that_never_meet_in_a_stratum_are_tested_part_by_part(lung):
    """Of two pairs of groups in strata of their own there are two differences, not three."""
    half, quarter = (pl.int_range(pl.len()) % n for n in (2, 4))
    spells = lung.with_columns(half=half, quarter=quarter)
    for rows in (spells, spells.with_columns(unit=pl.int_range(pl.len()) % 60)):
        found = logrank(rows, "quarter", strata="half").row(0, named=True)
        parts = [logrank(rows.filter(half=n), "quarter")["statistic"].item() for n in (0, 1)]
        assert (found["df"], found["n_groups"]) == (2, 4)
        if "unit" not in rows.columns:
            assert found["statistic"] == pytest.approx(sum(parts))
            assert found["p_value"] == pytest.approx(math.exp(-sum(parts) / 2))
    apart = logrank(spells, "quarter", strata="quarter").row(0, named=True)
    assert (apart["statistic"], apart["p_value"], apart["df"]) == (None, None, 0)
    at_once = spells.with_columns(duration_s=60.0, ended=True)
    same = logrank(at_once, "half").row(0, named=True)
    assert (same["statistic"], same["p_value"], same["df"]) == (0, 1, 1)


@pytest.mark.slow
def test_rounding_is_no_difference_of_groups():
    draw = random.Random(3)
    spells = pl.DataFrame(
        {
            "duration_s": [draw.expovariate(1) for _ in range(6 * 20_000)],
            "ended": True,
            "arm": [*"abcxyz"] * 20_000,
        }
    ).with_columns(stratum=pl.col("arm").is_in([*"abc"]))
    parts = logrank(spells, "arm", within="stratum")
    found = logrank(spells, "arm", strata="stratum").row(0, named=True)
    assert found["df"] == parts["df"].sum() == 4
    assert found["statistic"] == pytest.approx(parts["statistic"].sum())


def test_horizons_of_their_own_equal_asking_each_stratum_alone(aml):
    curve = kaplan_meier(aml, by="arm").with_columns(
        horizon=pl.when(pl.col("arm") == "Maintained").then(40.0).otherwise(20.0)
    )
    own = restricted_mean(curve, "horizon")
    for arm, horizon in (("Maintained", 40), ("Nonmaintained", 20)):
        alone = restricted_mean(kaplan_meier(aml.filter(arm=arm)), horizon)
        assert own.filter(arm=arm).drop("arm").row(0) == pytest.approx(alone.row(0))


def test_nothing_to_read_off_is_not_known():
    empty = kaplan_meier(TYPE_I.clear())
    assert restricted_mean(empty, 60).select("mean_s", "is_identified").row(0) == (None, False)
    assert quantiles(empty, []).height == 0


def test_too_few_ends_for_a_bound_are_said():
    spells = pl.DataFrame({"duration_s": [float(i) for i in range(1, 21)], "ended": True})
    words = quantiles(kaplan_meier(spells), [0.5, 0.95])["in_words"].to_list()
    assert words[0] == "50 % end within 10 s (5 s to 15 s)"
    assert words[1] == "95 % end within 19 s (no interval: 20 of 59 ends needed)"
    at_once = kaplan_meier(spells.with_columns(duration_s=7.0))
    words = quantiles(at_once, 0.5)["in_words"].item()
    assert words == "50 % end within 7 s (no interval: all that were left ended at once)"
    assert say_survival(at_once) == "Half of the runs end within 7 s (no interval); p95 is 7 s."


def test_missing_and_mistyped_columns_say_what_to_do():
    with pytest.raises(MissingColumnsError, match=r"needs columns \['ended'\]"):
        kaplan_meier(pl.DataFrame({"duration_s": [1.0]}))
    with pytest.raises(ColumnTypeError, match="as seconds"):
        kaplan_meier(pl.DataFrame({"duration_s": ["1"], "ended": [True]}))
    with pytest.raises(MissingColumnsError, match="cause"):
        cumulative_incidence(TYPE_I)
    with pytest.raises(ArgumentError, match="1 of 1 have none"):
        cumulative_incidence(pl.DataFrame({"duration_s": [1.0], "ended": [True], "cause": [None]}))
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        quantiles(kaplan_meier(TYPE_I), [1.5])


CAUSES = st.sampled_from(["completed", "failed", None])
SPELL = st.tuples(st.integers(0, 12), CAUSES, st.sampled_from("ab"))
SPELLS = st.lists(SPELL, min_size=1, max_size=40)


def frame(rows: list[tuple[int, str | None, str]]) -> pl.DataFrame:
    return pl.DataFrame(
        rows, schema={"duration_s": pl.Float64, "cause": pl.String, "kind": pl.String}, orient="row"
    ).with_columns(ended=pl.col("cause").is_not_null())


@given(SPELLS)
@examples(60)
def test_survival_and_incidences_add_up_to_one(rows):
    spells = frame(rows)
    total = (
        cumulative_incidence(spells, by="kind")
        .group_by("kind", "duration_s")
        .agg(pl.col("incidence").sum())
        .join(kaplan_meier(spells, by="kind"), on=["kind", "duration_s"])
    )
    assert (total["incidence"] + total["survival"]).to_list() == pytest.approx(
        [1.0] * total.height, abs=1e-12
    )


@given(SPELLS)
@examples(60)
def test_the_curve_equals_the_slow_loop_in_any_order(rows):
    spells = frame(rows[::-1])
    curve = kaplan_meier(spells)
    bare = bare_curve(spells)
    assert bare.equals(curve.select(bare.columns).cast(bare.schema))
    survival, slow = 1.0, []
    for duration in sorted({float(row[0]) for row in rows}):
        at_risk = sum(row[0] >= duration for row in rows)
        survival *= 1 - sum(row[0] == duration and row[1] is not None for row in rows) / at_risk
        slow.append((duration, at_risk, survival))
    assert curve.select("duration_s", "n_at_risk").rows() == [row[:2] for row in slow]
    assert curve["survival"].to_list() == pytest.approx([row[2] for row in slow], abs=1e-12)
    assert curve.drop_nulls()["survival_low"].is_between(0, 1).all()


@pytest.mark.parametrize(("statistic", "df", "tail"), [(5.991465, 2, 0.05), (7.814728, 3, 0.05)])
def test_chi_square_tail_equals_its_table(statistic, df, tail):
    assert chi_square_tail(statistic, df) == pytest.approx(tail, abs=1e-7)


def late(*others, min_size=1):
    """Lists of an entry, an end after it and the others."""
    row = st.tuples(st.integers(0, 5), st.integers(1, 6), *others)
    moved = row.map(lambda row: (float(row[0]), float(row[0] + row[1]), *row[2:]))
    return st.lists(moved, min_size=min_size, max_size=25)


LATE = late(CAUSES)


@given(LATE)
@examples(60)
def test_incidences_of_late_entries_equal_the_formula_term_by_term(rows):
    spells = pl.DataFrame(
        rows,
        schema={"entry_s": pl.Float64, "duration_s": pl.Float64, "cause": pl.String},
        orient="row",
    )
    # An entry of 0 is from the start, as nobody ends at 0.
    for cause in {row[2] for row in rows} - {None}:
        found = cumulative_incidence(spells, least_at_risk=0).filter(cause=cause)
        slow = slow_incidence(rows, cause)
        assert found["duration_s"].to_list() == [row[0] for row in slow]
        assert found["incidence"].to_list() == pytest.approx([row[1] for row in slow], abs=1e-12)
        assert found["incidence_se"].to_list() == pytest.approx([row[2] for row in slow], abs=1e-7)


@given(LATE)
@examples(60)
def test_a_curve_that_begins_late_is_that_of_the_spells_that_lasted_until_then(rows):
    spells = pl.DataFrame(
        [(entry, duration, why is not None) for entry, duration, why in rows],
        schema={"entry_s": pl.Float64, "duration_s": pl.Float64, "ended": pl.Boolean},
        orient="row",
    )
    curve = kaplan_meier(spells)
    from_s = curve["from_s"][0]
    if from_s is None:
        assert curve["survival"].null_count() == curve.height
        return
    lasted = spells.filter(pl.col("duration_s") >= from_s).with_columns(
        entry_s=pl.max_horizontal("entry_s", pl.lit(from_s - 0.5))
    )
    later = kaplan_meier(lasted, least_at_risk=0).drop("from_s")
    assert curve.filter(pl.col("duration_s") >= from_s).drop("from_s").equals(later)
    assert (curve.filter(pl.col("duration_s") < from_s)["survival"] == 1).all()


@given(SPELLS, st.randoms(use_true_random=False))
@examples(40)
def test_the_order_of_rows_does_not_matter(rows, random):
    mixed = rows.copy()
    random.shuffle(mixed)
    for one, other in (
        (kaplan_meier(frame(rows), by="kind"), kaplan_meier(frame(mixed), by="kind")),
        (cumulative_incidence(frame(rows)), cumulative_incidence(frame(mixed))),
    ):
        assert one.equals(other)


@given(late(st.booleans(), st.booleans(), min_size=2))
@examples(60)
def test_log_rank_of_late_entries_equals_the_slow_loop(rows):
    spells = pl.DataFrame(
        rows,
        schema={"entry_s": pl.Float64, "duration_s": pl.Float64, "ended": pl.Boolean,
                "is_first": pl.Boolean},
        orient="row",
    )  # fmt: skip
    found, slow = logrank(spells, "is_first")["statistic"].item(), slow_logrank(rows)
    if slow is None:
        assert not found
    else:
        assert found == pytest.approx(slow, rel=1e-9, abs=1e-9)


EARLY = pl.DataFrame(
    {
        "entry_s": [0.0] + [100.0] * 20,
        "duration_s": [50.0, *(200.0 + second for second in range(20))],
        "ended": True,
    }
)


def test_one_early_entrant_does_not_take_the_curve_to_zero():
    curve = kaplan_meier(EARLY)
    assert curve["from_s"].unique().to_list() == [200.0]
    assert curve["survival"][:2].to_list() == pytest.approx([1.0, 0.95])
    assert curve["n_events"][0] == 0
    assert kaplan_meier(EARLY, least_at_risk=0)["survival"][0] == 0
    words = quantiles(curve, [0.5])["in_words"].item()
    assert words.startswith("of those that lasted 3 min 20 s: 50 % end within 3 min 2")
    incidence = cumulative_incidence(EARLY.with_columns(cause=pl.lit("failed")))
    assert incidence["incidence"][:2].to_list() == pytest.approx([0.0, 0.05])


def test_a_curve_begins_again_where_all_had_ended_before_others_came():
    first = pl.DataFrame({"entry_s": 0.0, "duration_s": [10.0] * 6, "ended": True})
    curve = kaplan_meier(pl.concat([first, EARLY[1:]]))
    assert curve["from_s"][0] == 200.0
    assert curve["survival"][-2] == pytest.approx(0.05)


def test_fewer_than_five_at_once_give_no_curve_and_say_so():
    curve = kaplan_meier(EARLY.head(4))
    assert curve["from_s"].null_count() == curve["survival"].null_count() == 4
    assert quantiles(curve, [0.5])["in_words"].item() == (
        "not identified: all came under observation late, and too few at the same time"
    )
    assert not restricted_mean(curve, 60)["is_identified"].item()


@pytest.mark.parametrize("estimate", [kaplan_meier, lambda rows: logrank(rows, "ended")])
def test_weights_are_refused_not_ignored(estimate):
    with pytest.raises(ArgumentError, match=r"counts every spell once; found a column 'weight'"):
        estimate(TYPE_I.with_columns(weight=2.0))


def test_one_log_rank_test_over_strata_equals_the_slow_sum_of_each():
    spells = TRUNCATED.with_columns(arm=pl.int_range(pl.len()) % 2 == 0, one=pl.lit("a"))
    other = TRUNCATED.with_columns(arm=pl.int_range(pl.len()) % 3 == 0, one=pl.lit("b"))
    both = pl.concat([spells, other.with_columns(pl.col("duration_s") + 1)])
    found = logrank(both, "arm", strata="one")
    parts = both.partition_by("one")
    columns = ("entry_s", "duration_s", "ended", "arm")
    slow = slow_logrank(*(part.select(columns).rows() for part in parts))
    assert found["statistic"].item() == pytest.approx(slow)
    assert found["df"].item() == 1
    twice = pl.concat([both.with_columns(week=1), both.with_columns(week=2)])
    each = logrank(twice, "arm", within="week", strata="one")
    assert each["statistic"].to_list() == pytest.approx([slow, slow])


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt8])
def test_ended_may_be_the_0_and_1_of_a_file(dtype):
    spells = pl.DataFrame({"duration_s": [5, 8, 9], "ended": [True, False, None]}).head(2)
    as_numbers = spells.with_columns(pl.col("ended").cast(dtype))
    assert kaplan_meier(as_numbers).equals(kaplan_meier(spells))


def test_ended_with_other_numbers_is_refused():
    spells = pl.DataFrame({"duration_s": [5.0, 8.0], "ended": [1, 2]})
    with pytest.raises(ColumnTypeError, match="as true or false; found Int64"):
        kaplan_meier(spells)


@pytest.mark.parametrize("horizon", [0, 0.0, -1, float("-inf"), float("inf"), float("nan")])
def test_a_mean_up_to_no_horizon_is_refused(aml, horizon):
    curve = kaplan_meier(aml)
    with pytest.raises(ArgumentError, match="until_s needs a number above 0; found"):
        restricted_mean(curve, horizon)
    assert restricted_mean(curve, 1e-9)["mean_s"].item() == pytest.approx(1e-9)

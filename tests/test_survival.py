"""Curves with censoring, against R's survival package and the slow loop."""

import math
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateanalytics.distributions import chi_square_tail
from stateanalytics.durations.curves import kaplan_meier
from stateanalytics.durations.incidence import cumulative_incidence
from stateanalytics.durations.logrank import logrank
from stateanalytics.durations.read_off import quantiles, restricted_mean
from stateanalytics.errors import ArgumentError, ColumnTypeError, MissingColumnsError

# completed at ten durations, four timed out at 900 s, two still running at 150 and 640 s
TYPE_I = pl.DataFrame(
    {
        "duration_s": [60.0, 95, 120, 180, 240, 300, 420, 510, 700, 880]
        + [900.0] * 4
        + [150.0, 640],
        "ended": [True] * 10 + [False] * 6,
    }
)
TIED = pl.DataFrame(
    {
        "duration_s": [1.0, 1, 2, 3, 3, 3, 4, 5, 5, 6],
        "cause": [1, 2, 1, None, 1, 2, None, 2, 1, None],
    }
)
TRUNCATED = pl.DataFrame(
    {
        "entry_s": [0.0, 0, 0, 1, 2, 2, 3, 4],
        "duration_s": [3.0, 5, 6, 4, 7, 8, 9, 9],
        "ended": [True, False, True, True, True, False, True, False],
    }
)


@pytest.fixture(scope="session")
def stats(shared: Path) -> Path:
    return shared / "reference" / "stats"


@pytest.fixture
def aml(stats: Path) -> pl.DataFrame:
    return pl.read_csv(stats / "aml.csv").select(
        duration_s="time", ended=pl.col("status") == 1, arm="x"
    )


@pytest.fixture
def lung(stats: Path) -> pl.DataFrame:
    return pl.read_csv(stats / "lung.csv").select(
        duration_s="time", ended=pl.col("status") == 2, sex="sex"
    )


@pytest.fixture
def mgus2(stats: Path) -> pl.DataFrame:
    return pl.read_csv(stats / "mgus2_competing.csv").select(
        duration_s="time", cause=pl.when(pl.col("event") > 0).then("event")
    )


def at(curve: pl.DataFrame, duration_s: float) -> dict[str, float]:
    return curve.filter(pl.col("duration_s") <= duration_s).row(-1, named=True)


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


def test_aml_medians_by_arm_equal_r(aml):
    medians = quantiles(kaplan_meier(aml, by="arm"), [0.5])
    assert medians.select("arm", "duration_s", "duration_low_s", "duration_high_s").rows() == [
        ("Maintained", 31, 13, None),
        ("Nonmaintained", 23, 5, 33),
    ]


def test_lung_quantiles_equal_r(lung):
    found = quantiles(kaplan_meier(lung), [0.1, 0.25, 0.5, 0.75, 0.9])
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


def test_mgus2_incidences_equal_r(mgus2):
    curve = cumulative_incidence(mgus2)
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


def test_one_minus_survival_of_one_cause_overstates(mgus2):
    only = mgus2.with_columns(ended=(pl.col("cause") == 1).fill_null(False))
    assert 1 - at(kaplan_meier(only), 240)["survival"] == pytest.approx(0.2095616245, abs=5e-11)


def test_timeouts_are_cut_offs_and_the_tail_is_not_identified():
    found = quantiles(kaplan_meier(TYPE_I), [0.25, 0.5, 0.75, 0.9])
    assert found["duration_s"].to_list() == [180, 510, None, None]
    assert found["duration_low_s"].to_list() == [60, 180, 510, None]
    assert found["duration_high_s"].to_list() == [510, None, None, None]
    assert found["in_words"][1] == "50 % end within 8.5 min (3 min to not identified)"
    assert found["in_words"][2].startswith("not identified: ")


def test_dropping_what_did_not_finish_halves_the_median():
    completed = TYPE_I.filter("ended")
    assert quantiles(kaplan_meier(completed), [0.5])["duration_s"].item() == 240
    assert quantiles(kaplan_meier(completed), [0.9])["duration_s"].item() == 700


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
    assert cumulative_incidence(running.with_columns(cause=pl.lit(None, pl.String))).height == 0


def test_one_spell_and_zero_durations_are_kept():
    assert kaplan_meier(pl.DataFrame({"duration_s": [0.0], "ended": [True]})).row(0)[:4] == (
        0.0,
        1,
        1,
        0.0,
    )


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
    ],
)
def test_durations_without_meaning_are_refused_in_words(column, values, words):
    spells = pl.DataFrame({"duration_s": [1.0, 2.0], "ended": [True, True]}).with_columns(
        pl.Series(column, values, dtype=pl.Float64)
    )
    with pytest.raises(ArgumentError, match=words):
        kaplan_meier(spells)


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


SPELLS = st.lists(
    st.tuples(
        st.integers(0, 12), st.sampled_from(["completed", "failed", None]), st.sampled_from("ab")
    ),
    min_size=1,
    max_size=40,
)


def frame(rows: list[tuple[int, str | None, str]]) -> pl.DataFrame:
    return pl.DataFrame(
        rows,
        schema={"duration_s": pl.Float64, "cause": pl.String, "kind": pl.String},
        orient="row",
    ).with_columns(ended=pl.col("cause").is_not_null())


@given(SPELLS)
@settings(max_examples=60, deadline=None)
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
@settings(max_examples=60, deadline=None)
def test_the_curve_equals_the_slow_loop_in_any_order(rows):
    curve = kaplan_meier(frame(rows[::-1]))
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

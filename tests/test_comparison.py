"""Like with like: differences that the mix of work cannot turn round."""

import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.errors import ArgumentError, MissingComponentError
from stateanalytics.survival.comparison import VANISHES, reversals
from stateanalytics.survival.jackknife import incidence_and_influence, mean_and_influence
from tests.frames import ago, facts
from tests.generators import draws
from tests.survival_data import TRUNCATED, read_aml


def runs_of(rows):
    """``rows`` are (model, kind, duration, how many); every run is an invocation."""
    table = pl.DataFrame(rows, schema=["model", "kind", "duration_s", "n"], orient="row")
    each = table.select(pl.exclude("n").repeat_by("n")).explode("model", "kind", "duration_s")
    # A little apart, so that nothing ties.
    apart = pl.col("duration_s") * (1 + pl.col("unit") / 10_000)
    done = {"ended": True, "ending": pl.lit("completed")}
    return each.with_row_index("unit").with_columns(duration_s=apart, **done)


# The new model is faster at either kind, and gets the hard ones.
SIMPSON = runs_of(
    [
        *(("old", "easy", seconds, 20) for seconds in (80.0, 100.0, 120.0)),
        *(("old", "hard", seconds, 4) for seconds in (800.0, 1000.0, 1200.0)),
        *(("new", "easy", seconds, 4) for seconds in (40.0, 60.0, 80.0)),
        *(("new", "hard", seconds, 20) for seconds in (600.0, 800.0, 1000.0)),
    ]
)


@pytest.fixture(scope="module")
def reversed_by_mix():
    return sa.survival.compare(SIMPSON, adjust="kind", against="old", until_s=1500)


def row_of(found, measure, method):
    [row] = found.filter(measure=measure, method=method).to_dicts()
    return row


def adjusted_duration(rows):
    return row_of(sa.survival.compare(rows, adjust="kind", until_s=1500), "duration", "adjusted")


def test_the_mix_no_longer_turns_round_which_model_is_slower(reversed_by_mix):
    raw, adjusted = (row_of(reversed_by_mix, "duration", name) for name in ("raw", "adjusted"))
    assert raw["verdict"] == "higher"
    assert adjusted["verdict"] == "lower"
    assert raw["is_reversed"]
    assert adjusted["is_reversed"]
    # 60 of 120 runs are of either kind: half of 40 s and half of 200 s.
    assert adjusted["estimate"] == pytest.approx(-120, abs=2)
    assert adjusted["low"] < -120 < adjusted["high"] < 0
    assert adjusted["log_rank_p"] < 0.05
    assert adjusted["compared"] == 1.0


def test_what_is_reversed_comes_first_and_is_said_in_words(reversed_by_mix):
    first, second = reversed_by_mix["in_words"][:2]
    assert first.startswith("new takes ")
    assert " longer than old within 25 min (" in first
    assert " shorter than old within 25 min (minus " in second
    assert second.endswith("with the same mix of kind")


def test_the_same_outcomes_are_no_difference(reversed_by_mix):
    row = row_of(reversed_by_mix, "completed", "adjusted")
    assert (row["estimate"], row["is_reversed"]) == (0.0, False)
    assert row["in_words"].startswith("new completes less than 1 of 100 runs fewer than old ")


def test_a_few_runs_of_wrong_clocks_do_not_make_the_horizon_years():
    rows = [(model, "k", seconds, n) for model in "ab" for seconds, n in ((100.0, 40), (1e9, 2))]
    stopped = pl.col("ended") & (pl.int_range(pl.len()) % 3 > 0) & (pl.col("duration_s") < 1000)
    runs = runs_of(rows).with_columns(ended=~stopped)
    longest = runs.filter(pl.col("duration_s") < 1000)["duration_s"].max()
    found = sa.survival.compare(runs, adjust="kind")["until_s"]
    assert found.is_between(1000, 10 * longest).all()


def test_work_without_a_counterpart_is_named_and_not_compared():
    rows = pl.concat([SIMPSON, runs_of([("new", "odd", 5000.0, 30)])])
    rows = rows.with_columns(unit=pl.int_range(pl.len()))
    adjusted = adjusted_duration(rows)
    assert adjusted["compared"] == pytest.approx(144 / 174)
    assert adjusted["not_compared"] == "kind odd (30 runs)"
    assert adjusted["n_runs"] + adjusted["n_runs_against"] == 144


def test_one_unit_in_a_stratum_shows_no_variation_and_is_no_counterpart():
    lonely = runs_of([("old", "rare", 5.0, 9), ("new", "rare", 5.0, 9)])
    lonely = lonely.with_columns(
        unit=pl.when(model="new").then(0).otherwise("unit").cast(pl.UInt32)
    )
    rows = pl.concat([SIMPSON.with_columns(pl.col("unit") + 100), lonely])
    adjusted = adjusted_duration(rows)
    assert adjusted["not_compared"] == "kind rare (18 runs)"


def test_strata_of_one_project_are_compared_though_others_have_many():
    alone = runs_of([("old", "odd", 50.0, 20)]).with_columns(
        unit=pl.col("unit") + 1000, project=pl.format("p{}", "unit")
    )
    rows = pl.concat([SIMPSON.with_columns(project=pl.lit("shared")), alone])
    adjusted = adjusted_duration(rows)
    assert adjusted["not_compared"] == "kind odd (20 runs)"
    assert adjusted["p_value"] is not None


def test_sessions_of_one_fan_out_are_one_witness():
    together = SIMPSON.with_columns(unit=pl.col("unit") // 4)
    alone, alike = adjusted_duration(SIMPSON), adjusted_duration(together)
    assert alike["n_units"] == alone["n_units"] / 4
    assert alike["high"] - alike["low"] > 1.5 * (alone["high"] - alone["low"])


def test_few_invocations_conclude_nothing():
    few = SIMPSON.with_columns(unit=pl.col("unit") // 40)
    found = sa.survival.compare(few, adjust="kind", until_s=1500)
    assert found["verdict"].unique().to_list() == ["not_enough_data"]
    assert "not enough data" in found["in_words"][0]
    assert found["low"].null_count() == found.height


def test_one_model_alone_and_no_runs_give_no_rows():
    assert sa.survival.compare(SIMPSON.filter(model="old"), adjust="kind").height == 0
    assert sa.survival.compare(SIMPSON.clear(), adjust="kind").height == 0


@pytest.mark.slow
def test_the_sample_compares_every_model_with_the_commonest(demo):
    found = sa.survival.compare(demo)
    assert found["against"].unique().to_list() == ["claude_code/sonnet"]
    assert found.group_by("value").len()["len"].unique().to_list() == [4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"adjust": ()}, "columns other than 'model'"),
        ({"adjust": "model"}, "columns other than 'model'"),
        ({"against": "none"}, "a value of model; found 'none'"),
        ({"until_s": 0}, "above 0"),
    ],
)
def test_arguments_without_meaning_are_refused(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        sa.survival.compare(SIMPSON, **{"adjust": "kind", **arguments})


def test_what_a_report_asks_is_what_is_reversed_among_all():
    runs = SIMPSON.with_columns(pl.col("kind").alias("project"))
    # The mix turns nine of each round, too, but of so few nobody can tell.
    is_common = (pl.col("model") == "old") == (pl.col("kind") == "easy")
    n_kept = pl.when(is_common).then(6).otherwise(3)
    few = runs.filter(pl.int_range(pl.len()).over("model", "kind") < n_kept)
    for rows, is_told in ((runs, True), (few, False)):
        whole = sa.survival.compare(rows)
        raw, adjusted = whole.filter(measure="duration")["estimate"]
        assert raw * adjusted < 0
        assert whole["is_reversed"].any() == is_told
        is_shown = pl.col("is_reversed") | pl.col("in_words").str.ends_with(VANISHES)
        assert whole["in_words"].str.starts_with("old ").all()
        told = whole.filter(is_shown.any().over("value", "measure"))["in_words"]
        assert reversals(rows)["in_words"].to_list() == told.to_list()
    assert reversals(runs.clear()).is_empty()


@pytest.mark.slow
def test_the_report_shows_a_pair_that_the_mix_turns_round():
    done = {"raw_status": "completed", "end_written_by": "executor"}
    begun = dict.fromkeys(("created_at", "started_at"), ago(hours=25))
    rows = [
        {"entity_id": str(unit), "model": model, "kind": kind, **done, **begun,
         "ended_at": ago(seconds=25 * 3600 - lasted)}
        for unit, model, kind, lasted in SIMPSON.select(
            "unit", "model", "kind", "duration_s").iter_rows()
    ]  # fmt: skip
    shown = sa.report(facts(rows), sections=["durations"])
    told, *_ = shown.summary["durations"]["reversed"]
    assert told["raw"].startswith("old takes ")
    assert "longer than new" in told["adjusted"]
    assert "The mix of work reverses this: old takes " in " ".join(shown.as_html().split())


# --- what a spell adds, against the formulas of Greenwood and of differences ----------------


@pytest.fixture(scope="module")
def aml(shared: Path):
    return read_aml(shared / "reference" / "stats").with_row_index("unit")


def test_without_units_the_variance_is_greenwoods(aml):
    estimates, moved = mean_and_influence(aml, ["arm"], 40.0)
    assert estimates.collect()["estimate"].to_list() == pytest.approx(
        [28.89772727, 21.93055556], abs=5e-9
    )
    errors = moved.group_by("_stratum").agg((pl.col("influence") ** 2).sum().sqrt())
    found = errors.sort("_stratum")["influence"].to_list()
    assert found == pytest.approx([3.467577679, 3.835641163], abs=5e-10)


def test_without_units_the_variance_of_an_incidence_is_the_delta_methods(aml):
    rows = aml.with_columns(
        is_good=pl.col("unit") % 3 == 0,
        cause=pl.when("ended").then((pl.col("unit") % 3 == 0).cast(pl.String)),
    )
    estimates, moved = incidence_and_influence(rows, ["arm"], 30.0)
    curve = sa.survival.cumulative_incidence(rows, by="arm").filter(
        pl.col("duration_s") <= 30, cause="true"
    )
    last = curve.group_by("arm", maintain_order=True).last()
    errors = moved.group_by("_stratum").agg((pl.col("influence") ** 2).sum().sqrt())
    assert estimates.collect()["estimate"].to_list() == pytest.approx(last["incidence"].to_list())
    errors = errors.sort("_stratum")["influence"].to_list()
    assert errors == pytest.approx(last["incidence_se"].to_list())


@pytest.mark.parametrize("estimate", [mean_and_influence, incidence_and_influence])
def test_with_late_entries_a_spell_moves_what_counting_it_more_moves(estimate):
    # Moments below a second, too, are after the beginning.
    rows = TRUNCATED.with_columns(pl.col("entry_s", "duration_s") / 16, one=1)
    rows = rows.with_columns(is_good=pl.col("duration_s") < 7 / 16).with_row_index("unit")
    times, until_s = 500, 8.5 / 16
    whole, moved = estimate(rows, ["one"], until_s)
    many = pl.concat([rows] * times)
    for unit in rows["unit"]:
        more, _ = estimate(pl.concat([many, rows.filter(unit=unit)]), ["one"], until_s)
        after, before = (each.collect()["estimate"].item() for each in (more, whole))
        change = (after - before) * times
        assert moved.filter(unit=unit)["influence"].item() == pytest.approx(change, abs=0.005)


def test_who_enters_at_0_is_there_before_an_end_at_0():
    rows = TRUNCATED.with_columns(one=1).with_row_index("unit")
    rows = pl.concat([rows, rows.with_columns(duration_s=0.0, entry_s=None, ended=True).head(2)])
    at_0 = rows.with_columns(pl.col("entry_s").fill_null(0.0))
    null = rows.with_columns(pl.when(pl.col("entry_s") > 0).then("entry_s"))
    for estimates in zip(*(mean_and_influence(x, ["one"], 8.5) for x in (at_0, null)), strict=True):
        assert_frame_equal(*estimates)


# --- the regression -------------------------------------------------------------------------


def test_a_regression_without_its_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.duration.hazard_regression", None)
    monkeypatch.setitem(sys.modules, "numpy", sys)
    with pytest.raises(MissingComponentError, match=r"stateanalytics\[models\]"):
        sa.survival.compare(SIMPSON, adjust="kind", regression=True)


def test_projects_are_compared_too():
    runs = SIMPSON.with_columns(project=pl.col("model"))
    found = sa.survival.compare(runs, by="project", adjust="kind", against="old")
    assert row_of(found, "duration", "raw")["dimension"] == "project"


@pytest.mark.models
def test_a_regression_agrees_that_the_new_model_is_faster():
    found = sa.survival.compare(SIMPSON, adjust="kind", against="old", regression=True)
    raw, adjusted = (row_of(found, "hazard_ratio", name) for name in ("raw", "adjusted"))
    assert raw["estimate"] < 1 < adjusted["low"] < adjusted["estimate"]
    assert raw["is_reversed"]


@pytest.mark.models
def test_a_regression_is_where_observed_are_as_many_as_expected(aml):
    """Breslow's score equation, summed by hand; a run that is told twice says nothing more."""
    from stateanalytics.survival.comparison import hazard_ratio

    rows = aml.with_columns(is_it=pl.col("arm") == "Nonmaintained")
    found = hazard_ratio(rows, "is_it", [])
    score = 0.0
    for row in rows.filter("ended").iter_rows(named=True):
        at_risk = rows.filter(pl.col("duration_s") >= row["duration_s"])["is_it"]
        weight = found["estimate"] * at_risk.sum()
        score += row["is_it"] - weight / (weight + (~at_risk).sum())
    assert score == pytest.approx(0, abs=1e-6)
    twice = hazard_ratio(pl.concat([rows, rows]), "is_it", [])
    assert twice["estimate"] == pytest.approx(found["estimate"], rel=1e-6)
    assert twice["variance"] == pytest.approx(found["variance"], rel=1e-6)


@pytest.mark.models
@pytest.mark.parametrize(
    ("n_units", "degrees"), [((4, 9), 3), ((9, 4), 3), ((2, 9), 1), ((1, 9), 1)]
)
def test_a_regression_is_as_sure_as_its_smaller_group_has_units(n_units, degrees):
    from stateanalytics.survival.comparison import hazard_ratio

    # Three runs of each unit, none of which ties.
    runs = (
        pl.DataFrame({"is_it": [True] * 3 * n_units[0] + [False] * 3 * n_units[1]})
        .with_row_index("run")
        .with_columns(
            unit=pl.col("run") // 3, duration_s=10.0 + pl.col("run") * 37 % 101, ended=True
        )
    )
    assert hazard_ratio(runs, "is_it", [])["degrees"] == degrees


# --- by simulation ------------------------------------------------------------------------


def fleet(seed, *, n_units=40, difference_s=60.0, share=0.7):
    """Fan-outs of 1 to 8 runs that have a pace in common; the mix differs by model."""
    row = pl.int_range(n_units * 2, dtype=pl.UInt64)

    def uniform(column, at):
        return draws.uniform(at, seed, column)

    def normal(column, at):
        first, second = uniform(column, at), uniform(column + "2", at)
        return (-2 * first.log()).sqrt() * (6.283185307179586 * second).cos()

    units = pl.select(unit=row).with_columns(
        model=pl.when(row % 2 == 0).then(pl.lit("old")).otherwise(pl.lit("new")),
        pace=normal("pace", row) * 0.5,
        n=draws.integer(row, seed, "n", 1, 8),
        draw=uniform("kind", row),
    )
    is_hard = pl.col("draw") < pl.when(model="new").then(share).otherwise(1 - share)
    units = units.with_columns(kind=pl.when(is_hard).then(pl.lit("hard")).otherwise(pl.lit("easy")))
    runs = units.select(pl.exclude("n").repeat_by("n")).explode(pl.all())
    each = pl.int_range(pl.len(), dtype=pl.UInt64)
    base = pl.when(kind="hard").then(900.0).otherwise(300.0)
    faster = pl.when(model="new").then(difference_s).otherwise(0.0)
    taken = base * (pl.col("pace") + 0.5 * normal("own", each) - 0.25).exp() - faster
    limit = 200.0 + 4000.0 * uniform("cut", each)
    runs = runs.with_columns(taken=taken.clip(lower_bound=1.0), limit=limit)
    return runs.with_columns(
        duration_s=pl.min_horizontal("taken", "limit"),
        ended=pl.col("taken") <= pl.col("limit"),
        ending=pl.lit("completed"),
    )


@pytest.mark.slow
@pytest.mark.parametrize("difference_s", [0.0, 60.0])
def test_adjusted_intervals_hold_the_truth_of_fan_outs(difference_s):
    until = 1500.0
    big = pl.concat(
        fleet(10_000 + seed, n_units=2000, difference_s=difference_s) for seed in range(10)
    )
    truths = big.group_by("model", "kind").agg(
        duration=pl.col("taken").clip(upper_bound=until).mean(),
        completed=(pl.col("taken") <= until).mean(),
    )
    n_repeats = 400
    n_held, n_found, n_told = dict.fromkeys(("duration", "completed"), 0), 0, 0
    for seed in range(n_repeats):
        runs = fleet(seed, difference_s=difference_s)
        found = sa.survival.compare(runs, adjust="kind", against="old", until_s=until)
        # A week in which one of the two did fewer than ten invocations of a kind is not told.
        if row_of(found, "duration", "adjusted")["low"] is None:
            continue
        n_told += 1
        # What is estimated is the difference for the mix of that week.
        mix = dict(runs["kind"].value_counts(normalize=True).iter_rows())
        for measure in n_held:
            of = {row[:2]: row[2] for row in truths.select("model", "kind", measure).iter_rows()}
            right = sum(share * (of["new", kind] - of["old", kind]) for kind, share in mix.items())
            row = row_of(found, measure, "adjusted")
            n_held[measure] += row["low"] <= right <= row["high"]
        n_found += row_of(found, "duration", "adjusted")["log_rank_p"] < 0.05
    assert n_told >= 0.95 * n_repeats
    assert all(0.92 * n_told <= n <= 0.98 * n_told for n in n_held.values()), n_held
    if not difference_s:
        assert n_found <= 0.08 * n_told

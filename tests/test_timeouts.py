"""Time limits: declared, or found where many ends lie; and what another limit would have done."""

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.survival.time_limits import count_timeouts
from stateanalytics.thresholds import evidence
from tests.frames import DONE, FAILED, RUNNING, TIMED_OUT, WHOSE, ago, facts, states_of
from tests.generators import durations
from tests.survival_data import at

START = ago(hours=5)


def timeouts_of(rows, **asked):
    runs = [{"entity_id": f"s{i}", "started_at": START, **row} for i, (row, _) in enumerate(rows)]
    given = facts(runs)
    states = states_of(given, [state for _, state in rows])
    return sa.survival.timeouts(given, states=states, **asked)


def run(seconds, state=TIMED_OUT, **columns):
    return {"ended_at": ago(hours=5, seconds=-seconds), "kind": "flow", **columns}, state


@pytest.mark.parametrize(
    ("seconds", "fits", "over_s"),
    [
        pytest.param(900.0, "at_limit", 0.0, id="on the second"),
        pytest.param(903.5, "at_limit", 3.5, id="stopping takes a while"),
        pytest.param(905.0, "at_limit", 5.0, id="the tolerance counts as at the limit"),
        pytest.param(906.0, "after", 6.0, id="another deadline, later"),
        pytest.param(300.0, "before", -600.0, id="another deadline, earlier"),
    ],
)
def test_elapsed_beside_the_configured_limit(seconds, fits, over_s):
    limited = timeouts_of([run(seconds, timeout_s=900.0, timeout_from="metadata")])
    assert limited.select("limit_s", "limit_from", "fits").row(0) == (900.0, "metadata", fits)
    assert limited["over_s"].item() == over_s


def test_runs_without_a_limit_are_listed_only_if_they_timed_out():
    listed = timeouts_of([run(60), run(60, DONE), run(60, FAILED, timeout_s=900.0)])
    listed = listed.select("ending", "limit_s", "fits").rows()
    assert listed == [("timed_out", None, None), ("failed", 900.0, "before")]


def test_a_run_that_goes_on_past_its_limit():
    going = timeouts_of([({"timeout_s": 900.0}, RUNNING)])
    assert going.select("ending", "elapsed_s", "fits").row(0) == ("running", 18_000.0, "after")


@pytest.mark.parametrize(("n_turns", "is_silent"), [(0, True), (3, False), (None, None)])
def test_runs_that_never_spoke_are_told_apart(n_turns, is_silent):
    assert timeouts_of([run(900, n_model_turns=n_turns)])["has_no_turns"].item() is is_silent


def test_what_a_reaper_called_timed_out_is_no_timeout():
    assert timeouts_of([run(900, end_written_by="observer")]).is_empty()


def test_limits_are_counted_with_what_they_stopped():
    silent = run(900, timeout_s=900.0, n_model_turns=0)
    spoke = run(300, timeout_s=900.0, n_model_turns=2)
    others = run(700, DONE, timeout_s=900.0), run(44, timeout_s=1800.0)
    first, second = count_timeouts(timeouts_of([silent, spoke, *others])).rows(named=True)
    assert [first[name] for name in ("limit_s", "n_runs", "n_timed_out")] == [900.0, 3, 2]
    assert [first[name] for name in ("n_at_limit", "n_elsewhere", "n_no_turns")] == [1, 1, 1]
    assert first["stopped_low"] < first["stopped"] < first["stopped_high"]
    assert (second["n_turns_unknown"], second["n_no_turns"]) == (1, 0)


def test_an_undeclared_limit_is_inferred_and_says_so():
    heap = [run(900 + 0.1 * i, FAILED) for i in range(6)]
    spread = [run(61.0 * i, FAILED) for i in range(1, 20)]
    listed = timeouts_of([*heap, *spread])
    assert listed["limit_from"].to_list() == ["inferred"] * 6
    assert listed["limit_s"].unique().to_list() == [900.0]


def test_what_is_declared_is_not_inferred():
    heap = [run(900, timeout_s=900.0, timeout_from="checkpoint") for _ in range(9)]
    assert timeouts_of(heap)["limit_from"].unique().to_list() == ["checkpoint"]


def ends(seconds, **columns):
    return pl.DataFrame(
        {"system": "lionagi", "kind": "flow", "ending": "failed", "left_out": None,
         "timeout_s": None, **columns, "duration_s": [float(one) for one in seconds]},
    )  # fmt: skip


SPREAD = [61 * i for i in range(1, 29)]


def test_twelve_of_forty_failures_at_one_second():
    found = sa.survival.implicit_timeouts(ends([900] * 12 + SPREAD)).row(0, named=True)
    assert (found["at_s"], found["n_at"], found["n_ended"]) == (900, 12, 40)
    assert found["in_words"].startswith("12 of 40 ends without success come at 15 min (± 1 s)")
    assert found["q_value"] < 1e-6


@pytest.mark.parametrize(
    ("seconds", "columns"),
    [
        pytest.param([], {}, id="no end"),
        pytest.param([900], {}, id="one end"),
        pytest.param([900] * 4 + SPREAD, {}, id="four are too few"),
        pytest.param(range(850, 950), {}, id="a busy minute is no second"),
        pytest.param([1, 2, 2, 3, 3, 3] * 9, {}, id="early failures are no limit"),
        pytest.param([900] * 12, {"ending": "completed"}, id="good ends"),
        pytest.param([900] * 12, {"left_out": "no_start"}, id="excluded ends"),
    ],
)
def test_no_limit_is_inferred_without_one(seconds, columns):
    assert sa.survival.implicit_timeouts(ends(seconds, **columns)).is_empty()


def test_neighbours_of_a_heap_are_the_same_heap():
    shaken = [899.2] * 3 + [900.4] * 4 + [901.4] * 3
    found = sa.survival.implicit_timeouts(ends([*shaken, *SPREAD]))
    assert found.select("at_s", "n_at").rows() == [(900, 10)]


def test_each_kind_has_limits_of_its_own():
    two = pl.concat([ends([900] * 9, kind="flow"), ends([1800] * 9, kind="agent")])
    found = sa.survival.implicit_timeouts(two, by="kind").select("kind", "at_s").rows()
    assert found == [("agent", 1800), ("flow", 900)]


@pytest.mark.parametrize("seed", range(5))
def test_smooth_durations_have_no_limit(seed):
    drawn = durations(4000, seed=seed)
    assert sa.survival.implicit_timeouts(ends(drawn["latent_s"])).is_empty()


def test_the_limits_of_the_generator_are_found():
    drawn = durations(4000, seed=3).filter(pl.col("end") != "completed")
    stopped = ends(drawn["duration_s"]).with_columns(kind=drawn["kind"])
    found = sa.survival.implicit_timeouts(stopped)
    told = drawn.filter(pl.col("end") == "timed_out").group_by("kind", "timeout_s").len()
    expected = told.filter(pl.col("len") >= 8).select("kind", "timeout_s").rows()
    assert set(expected) <= {(kind, float(at_s)) for kind, at_s in found[["kind", "at_s"]].rows()}


# --- candidates -------------------------------------------------------------------------


def runs_until(limit_s, n, *, kind="flow", seed=1):
    """Runs of the generator, stopped at a limit: what `spells` says of them."""
    drawn = durations(n, seed=seed).with_columns(kind=pl.lit(kind))
    taken = pl.min_horizontal("latent_s", pl.lit(float(limit_s)))
    is_cut = pl.col("latent_s") > limit_s
    return drawn.select(
        "kind",
        duration_s=taken,
        ended=~is_cut,
        ending=pl.when(is_cut).then(pl.lit("timed_out")).otherwise("fate"),
        timeout_s=pl.lit(float(limit_s)),
        left_out=pl.lit(None, pl.String),
    )


def test_a_candidate_says_what_completes_what_is_cut_and_what_it_costs():
    runs = runs_until(1800, 400)
    told = sa.survival.timeout_candidates(runs, [600, 900]).row(1, named=True)
    caused = runs.with_columns(cause=pl.when("ended").then("ending"))
    curve = sa.survival.kaplan_meier(runs)
    assert told["candidate_s"] == 900
    assert told["cut"] == pytest.approx(at(curve, 900)["survival"])
    assert told["completed"] == pytest.approx(
        at(sa.survival.cumulative_incidence(caused).filter(cause="completed"), 900)["incidence"]
    )
    mean_s = sa.survival.restricted_mean(curve, 900)["mean_s"].item()
    assert told["run_hours"] == pytest.approx(mean_s / 3600)
    assert told["n_longer"] == runs.filter(pl.col("duration_s") > 900).height
    assert told["completed_low"] < told["completed"] < told["completed_high"]


def test_completions_gained_per_extra_run_hour():
    told = sa.survival.timeout_candidates(runs_until(1800, 400), [600, 900]).head(2)
    gained = [told[name].diff().fill_null(told[name]) for name in ("completed", "run_hours")]
    per_hour = (gained[0] / gained[1]).to_list()
    assert told["gained_per_hour"].to_list() == pytest.approx(per_hour)


def test_beyond_the_longest_run_nothing_is_guessed():
    today, beyond = sa.survival.timeout_candidates(runs_until(900, 200), [3600]).rows(named=True)
    assert (today["candidate_s"], today["is_today"], today["is_identified"]) == (900, True, True)
    assert (beyond["is_identified"], beyond["identified_until_s"]) == (False, 900)
    measured = ("completed", "cut", "run_hours", "rescued", "gained_per_hour")
    assert [beyond[name] for name in measured] == [None] * 5
    assert beyond["in_words"].startswith(
        "a limit of 1 h is not identified: the data end at 15 min, where"
    )


def test_runs_with_a_longer_limit_tell_what_it_would_have_rescued():
    """Half of the runs had twice the limit: the others' future is read off them."""
    runs = pl.concat([runs_until(900, 3000), runs_until(3600, 2000, seed=2)])
    told = sa.survival.timeout_candidates(runs, [900, 1800, 3600])
    today, later, _ = told.rows(named=True)
    assert today["is_today"] and today["rescued"] is None
    assert later["rescued_low"] < later["rescued"] < later["rescued_high"]
    # The generator's truth, for the same runs without any limit.
    truth = durations(60_000, seed=9).filter(pl.col("latent_s") > 900)
    done = truth.filter(pl.col("latent_s") <= 1800, pl.col("fate") == "completed").height
    assert later["rescued_low"] <= done / truth.height <= later["rescued_high"]
    assert "would have completed" in later["in_words"]
    # Of three that had longer, nothing can be told: neither before nor after their first end.
    few = pl.concat([runs.filter(timeout_s=900), runs.filter(pl.col("duration_s") > 1000).head(3)])
    told = sa.survival.timeout_candidates(few, [900, 901, 1800])
    assert told["rescued"].to_list() == [None] * 3
    assert told["in_words"].str.contains("is not known").to_list() == [False, True, True]


def test_timeouts_count_as_cut_off_however_spells_were_asked_for():
    runs = runs_until(900, 100)
    as_events = runs.with_columns(ended=pl.lit(value=True))
    assert sa.survival.timeout_candidates(runs).equals(sa.survival.timeout_candidates(as_events))


@pytest.mark.parametrize(("n_new", "today_s", "is_mixed"), [(9, 900, True), (11, 1800, True),
                                                            (20, 1800, False)])  # fmt: skip
def test_todays_limit_is_the_most_common_one_of_the_newest_runs(n_new, today_s, is_mixed):
    """Forty runs had 15 minutes, and the newest ones have 30."""
    limits = [900.0] * 40 + [1800.0] * n_new
    rows = [
        {**WHOSE, "entity_id": str(i), "kind": "flow", "raw_status": "completed",
         "timeout_s": limit, "started_at": ago(hours=99 - i),
         "ended_at": ago(hours=99 - i, minutes=-5)}
        for i, limit in enumerate(limits)
    ]  # fmt: skip
    given = facts(rows[::-1])
    runs = sa.survival.spells(given)
    [found] = evidence.time_limits(sa.survival.timeouts(given), evidence.runs(runs)).to_dicts()
    assert (found["limit_s"], found["is_mixed"]) == (today_s, is_mixed)
    [today] = sa.survival.timeout_candidates(runs, [60], by="kind").filter("is_today").to_dicts()
    assert today["candidate_s"] == today_s


def test_an_inferred_limit_is_todays_limit_too():
    runs = runs_until(900, 300).with_columns(timeout_s=pl.lit(None, pl.Float64))
    today = sa.survival.timeout_candidates(runs, [300]).filter("is_today")
    assert today["candidate_s"].to_list() == [900]


def test_every_run_over_is_identified_without_end():
    runs = runs_until(1e9, 50).with_columns(timeout_s=pl.lit(None, pl.Float64))
    told = sa.survival.timeout_candidates(runs, [1e8]).row(0, named=True)
    assert (told["is_identified"], told["identified_until_s"], told["cut"]) == (True, None, 0.0)


def test_kinds_are_told_apart_and_null_is_one():
    nameless = runs_until(1800, 50).with_columns(kind=pl.lit(None, pl.String))
    runs = pl.concat([runs_until(900, 50), nameless])
    told = sa.survival.timeout_candidates(runs, [600])
    assert told.select("kind", "candidate_s").rows() == [
        (None, 600.0), (None, 1800.0), ("flow", 600.0), ("flow", 900.0),
    ]  # fmt: skip
    alone = sa.survival.timeout_candidates(runs.filter(kind="flow"), [600])
    assert told.filter(kind="flow").equals(alone)


def test_no_runs_have_no_candidates_and_everything_cut_off_has_few_answers():
    runs = runs_until(900, 5)
    assert sa.survival.timeout_candidates(runs.clear()).is_empty()
    cut = runs.with_columns(ended=pl.lit(value=False), ending=pl.lit("running"))
    told = sa.survival.timeout_candidates(cut, [60])
    assert told.filter("is_identified")["completed"].unique().to_list() == [0.0]


def test_missing_columns_are_named():
    words = r"timeout_candidates needs columns \['tim"
    with pytest.raises(sa.errors.MissingColumnsError, match=words):
        sa.survival.timeout_candidates(runs_until(900, 5).drop("timeout_s"))
    with pytest.raises(sa.errors.ArgumentError, match="tolerance_s"):
        timeouts_of([], tolerance_s=-1)


def test_timeouts_are_open_to_sql(demo):
    asked = demo.sql("SELECT count(*) AS n FROM timeouts WHERE limit_from = 'inferred'")
    assert asked["n"].item() == sa.survival.timeouts(demo).filter(limit_from="inferred").height > 0

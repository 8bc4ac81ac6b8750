"""Advice on thresholds: constants, evidence, verdicts, words and settings."""

import json
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.core.session_health import STALLED_AFTER_S
from stateanalytics.systems.agent_orchestrator.detectors import (
    detecting_episodes,
    first_reports,
    report_silences,
)
from stateanalytics.systems.lionagi.detectors import time_limit
from stateanalytics.thresholds import Advice, Costs
from stateanalytics.thresholds.evidence import sampled
from stateanalytics.thresholds.frames import ADVICE
from stateanalytics.thresholds.judge import (
    VERDICTS,
    _at_other_costs,
    _evidence,
    _known,
    _range,
    judge_all,
)
from stateanalytics.thresholds.settings import (
    UNIT_S,
    constants,
    to_json,
    to_python,
    to_toml,
    written,
)
from tests.conftest import component
from tests.examples import examples
from tests.frames import AS_OF, ago, facts
from tests.generators import durations, silences
from tests.generators.spells import Kind

HOSTILE = 'x"]\n</script>\x1b[31m\x7f\u202e😀'


@pytest.fixture(scope="module")
def advice(demo) -> Advice:
    return sa.thresholds.recommend(demo)


def constant(name):
    return next(one for one in constants() if one.name == name)


def judge(constant, evidence, costs):
    """The advice on one constant."""
    return judge_all([constant], {constant.evidence: evidence}, costs)[0]


def stale_after(seconds):
    policy = sa.Policy.v1().replace(stalled_after_s={"agent": seconds})
    return next(one for one in constants(policy) if one.name == "stale.agent")


def gaps(n_sessions=120, *, seed=0, kind="agent", **traits):
    return silences(n_sessions, seed=seed, **traits).select(
        pl.format("{}/{}", pl.lit(kind), "session").alias("unit"),
        pl.exclude("session", "kind"),
        kind=pl.lit(kind),
        system=pl.lit("lionagi"),
    )


def runs(n=200, *, seed=0, kind="agent"):
    return durations(n, seed=seed).select(
        "duration_s",
        "timeout_s",
        unit=pl.int_range(pl.len()).cast(pl.String),
        system=pl.lit("lionagi"),
        kind=pl.lit(kind),
        ended=pl.col("end") != "timed_out",
        is_good=pl.col("end") == "completed",
    )


# --- constants ---------------------------------------------------------------------------


def test_every_constant_has_a_name_of_its_own_and_a_value_to_write():
    names = [one.name for one in constants()]
    assert len(set(names)) == len(names)
    for one in constants():
        assert one.unit in UNIT_S
        assert one.today_s > 0
        assert written(one, one.today_s)


def test_todays_values_are_those_of_the_systems():
    by_kind = {one.kind: one.today_s for one in constants() if one.name.startswith("stale.")}
    assert by_kind == {**STALLED_AFTER_S, "other": 21_600.0}
    assert {name: constant(name).today_s for name in ("slow", "stuck", "idle", "phantom")} == (
        dict.fromkeys(("slow", "stuck", "idle", "phantom"), 3600.0)
    )
    assert written(constant("ao.stuck"), 600.0) == "10m"
    assert written(constant("ao.ready"), 300.0) == 300_000
    assert written(constant("ao.detecting.attempts"), 90.0) == 3
    assert written(constant("phantom"), 5400.0) == 1.5


def test_a_policy_brings_its_own_values():
    strict = sa.Policy.v1().replace(idle_after_s=600, stalled_after_s={"flow": 900})
    mine = {one.name: one.today_s for one in constants(strict)}
    assert (mine["idle"], mine["stale.flow"], mine["stale.play"]) == (600.0, 900.0, 21_600.0)


def test_the_installed_lionagi_has_these_constants():
    staleness = component("lionagi.state.staleness")
    health = component("lionagi.state.health")
    for one in constants():
        if one.path[0] == "STALE_THRESHOLDS":
            assert staleness.STALE_THRESHOLDS[one.kind] == one.today_s
    assert constant("stale.other").today_s == staleness.DEFAULT_STALE_THRESHOLD
    assert constant("idle").today_s == health.IDLE_THRESHOLD


# --- evidence ----------------------------------------------------------------------------

AO = {"source": "ao", "system": "agent_orchestrator", "entity_type": "session"}


def ao(*entity_ids, **columns):
    return [{**AO, "entity_id": one, "kind": "worker", **columns} for one in entity_ids]


def changes(entity_id, *steps):
    return [
        {**AO, "entity_id": entity_id, "at": ago(minutes=minutes), "seq": seq, "status": status}
        for seq, (minutes, status) in enumerate(steps)
    ]


def test_doubt_lasts_until_a_word_that_is_none():
    """Today's budget renames the doubt to stuck; that is no answer."""
    snap = facts(
        ao("back", "gone", "open"),
        transitions=[
            *changes("back", (60, "working"), (50, "detecting"), (48, "stuck"), (40, "working")),
            *changes("gone", (60, "working"), (50, "detecting"), (45, "killed")),
            *changes("open", (60, "working"), (20, "detecting"), (15, "stuck")),
        ],
    )
    found = {
        row["unit"].split("\n")[1]: row
        for row in detecting_episodes(snap, pl.DataFrame()).to_dicts()
    }
    assert [found[one]["duration_s"] / 60 for one in ("back", "gone", "open")] == [10, 5, 20]
    assert [found[one]["ended"] for one in ("back", "gone", "open")] == [True, True, False]
    assert (found["back"]["is_good"], found["gone"]["is_good"]) == (True, False)


def test_the_first_report_is_waited_for_until_the_session_ends():
    snap = facts(
        [
            *ao("spoke", "silent", created_at=ago(minutes=60)),
            *ao("ended", created_at=ago(minutes=60), ended_at=ago(minutes=30)),
        ],
        events=[
            {**AO, "entity_id": "spoke", "at": ago(minutes=52), "kind": "report.started"},
            {**AO, "entity_id": "silent", "at": ago(minutes=50), "kind": "report.rejected"},
        ],
    )
    found = {
        row["unit"].split("\n")[1]: row for row in first_reports(snap, pl.DataFrame()).to_dicts()
    }
    assert [found[one]["duration_s"] / 60 for one in ("spoke", "silent", "ended")] == [8, 60, 30]
    assert [found[one]["ended"] for one in ("spoke", "silent", "ended")] == [True, False, True]
    assert [found[one]["is_good"] for one in ("spoke", "ended")] == [True, False]


def test_silences_between_reports_end_with_the_last():
    events = [
        {**AO, "entity_id": "a", "at": ago(minutes=minutes), "kind": "report.working"}
        for minutes in (50, 30, 25)
    ]
    snap = facts(ao("a"), events=events)
    none = pl.DataFrame(
        {"source": [], "entity_id": [], "is_dead": []},
        schema={"source": pl.String, "entity_id": pl.String, "is_dead": pl.Boolean},
    )
    found = report_silences(snap, none)
    assert found["gap_s"].to_list() == [1200.0, 300.0, 0.0]
    assert found["closed_by"].to_list() == ["sign_of_life", "sign_of_life", "as_of"]


def test_nothing_gives_advice_that_says_so():
    empty = sa.thresholds.recommend(facts([]))
    assert empty.frame.is_empty()
    assert "none" in repr(empty)
    one = sa.thresholds.recommend(
        facts([{"entity_id": "s", "kind": "agent", "started_at": ago(hours=1)}], as_of=AS_OF)
    )
    assert one.frame["verdict"].unique().to_list() == ["not_enough_data"]
    assert tomllib.loads(one.to_toml()) == {}


# --- verdicts ----------------------------------------------------------------------------


def test_too_few_sessions_are_not_enough_and_19_are():
    stale = constant("stale.agent")
    few = judge(stale, gaps(18, death_share=0.3), Costs())
    assert few.row["verdict"] == "not_enough_data"
    assert few.row["in_words"] == (
        "Not enough data: 18 invocations alive; 19 are needed. 1 h 30 min gives 9.6 false alarms "
        "per 100 session-hours; 6 h: none seen; 1 d: none seen. As observed, 4 h makes no more "
        "mistakes than 6 h, and waits less."
    )
    assert few.row["n_more"] == 1
    assert few.row["recommended_s"] is None
    assert judge(stale, gaps(25, death_share=0.5), Costs()).row["verdict"] != "not_enough_data"
    assert judge(stale, gaps(59, death_share=0.3), Costs()).row["verdict"] == "change"


def test_sessions_whose_last_message_is_their_end_say_nothing_per_hour():
    """No time alive was seen at all: their one silence lasts no time."""
    none = gaps(80).with_columns(gap_s=pl.lit(0.0))
    for others in (none, pl.concat([none, gaps(90, kind="flow", death_share=0.3)])):
        row = judge(constant("stale.agent"), others, Costs()).row
        assert row["verdict"] == "not_enough_data"
        assert "no time passed between signs of life" in row["in_words"]


def test_what_the_only_session_that_lived_for_a_while_says_is_carried_by_it():
    """Without it no time alive is left to divide by."""
    none = gaps(80, death_share=0.3).with_columns(gap_s=pl.lit(0.0))
    one = none.head(1).with_columns(gap_s=pl.lit(7200.0))
    row = judge(constant("stale.agent"), pl.concat([none, one]), Costs()).row
    assert row["flips"]
    assert row["verdict"] not in ("change", "keep")


def test_silences_of_seconds_say_nothing_about_minutes():
    short = gaps(90, death_share=0.3).with_columns(gap_s=pl.col("gap_s").clip(0.0, 5.0))
    still_open = short.head(9).with_columns(gap_s=pl.lit(8.0), closed_by=pl.lit("as_of"))
    row = judge(constant("stale.agent"), pl.concat([short, still_open]), Costs()).row
    assert "alive; the data end within 10 s." in row["in_words"]


def test_a_bound_of_the_99th_percentile_needs_299_and_a_verdict_does_not():
    phantom = constant("phantom")
    assert judge(phantom, gaps(298), Costs()).row["n_needed"] == 299
    few, enough = (judge(phantom, gaps(n), Costs()).row for n in (298, 299))
    assert (few["healthy_upper_s"], few["verdict"]) == (None, "raise")
    assert enough["healthy_upper_s"] is not None


def test_without_deaths_delay_cannot_be_weighed_unless_somebody_says_how_often():
    stale, found = constant("stale.agent"), gaps(100, death_share=0.0)
    row = judge(stale, found, Costs()).row
    assert row["verdict"] == "not_enough_data"
    assert "too few runs are known to have died" in row["in_words"]
    told = judge(stale, found, Costs(deaths_per_100_hours=10)).row
    assert told["verdict"] == "change"


def test_a_kind_borrows_deaths_of_its_system_and_is_less_sure():
    agents = gaps(200, kind="agent", death_share=0.0)
    flows = gaps(200, kind="flow", seed=5, death_share=0.1)
    row = judge(constant("stale.agent"), pl.concat([agents, flows]), Costs()).row
    assert row["n"] == 200
    assert row["n_deaths"] > 5
    assert row["verdict"] == "lower"
    assert row["gain_low"] < row["gain"] < row["gain_high"]


def test_the_rate_of_deaths_of_a_kind_lies_between_its_own_and_that_of_its_system():
    stale = constant("stale.agent")
    agents = gaps(200, kind="agent", death_share=0.2)
    flows = gaps(200, kind="flow", seed=5, death_share=0.02)
    alone, both, many = (
        judge(stale, rows, Costs()).curve["waiting_h"][-1]
        for rows in (agents, pl.concat([agents, flows]), pl.concat([agents, *[flows] * 9]))
    )
    assert both < alone
    # More flows lower the rate of the system, and what is expected to have died of agents.
    assert many < alone


def test_todays_value_is_kept_where_the_gain_is_noise():
    found = gaps(300)
    best = judge(constant("stale.agent"), found, Costs()).row
    kept = judge(stale_after(best["best_high_s"]), found, Costs()).row
    assert kept["best_s"] == best["best_s"] != kept["today_s"]
    assert (kept["verdict"], kept["recommended_s"]) == ("keep", best["best_high_s"])
    assert kept["in_words"].startswith("Keep ")


@pytest.mark.slow
def test_the_advice_does_not_flutter_from_week_to_week():
    """Who has the right value already is told to keep it, whatever the week brought."""
    true_best = stale_after(1200.0)
    verdicts = [
        judge(true_best, gaps(200, seed=seed), Costs()).row["verdict"] for seed in range(20)
    ]
    assert verdicts.count("keep") >= 19


def test_dearer_false_alarms_never_shorten_a_threshold():
    found = gaps(200)
    best = [
        judge(constant("stale.agent"), found, Costs(false_alarm=price)).row["best_s"]
        for price in (0.1, 1, 10, 100, 1000)
    ]
    assert best == sorted(best)


def test_limits_beyond_what_was_seen_are_not_identified():
    cut = runs(1200).with_columns(
        duration_s=pl.min_horizontal("duration_s", pl.lit(600.0)),
        ended=pl.col("ended") & (pl.col("duration_s") < 600),
    )
    row = judge(time_limit("agent", 300.0), cut, Costs()).row
    assert row["verdict"] == "not_identified"
    assert row["recommended_s"] is None
    assert row["best_high_s"] is None
    assert row["in_words"].startswith("Not identified: beyond 10 min most were stopped ")
    assert "The cheapest observed value is 10 min (10 min or more)" in row["in_words"]
    assert row["healthy_upper_s"] is None


@pytest.mark.parametrize(("shorter_s", "n"), [(1800.0, 1), (None, 0)])
def test_a_value_is_no_shorter_than_itself(shorter_s, n):
    """As few mistakes at less is worth a sentence; today's own value is no alternative."""
    curve = pl.DataFrame({"threshold_s": [shorter_s or 7200.0, 3600.0], "mistakes": [0.0, 0.0]})
    nothing = ("n_more", "right_deaths_low", "right_deaths_high", "covering_s", "borrowed_s")
    row = dict.fromkeys(nothing) | {"today_s": 3600.0, "right_price_low": 0, "right_price_high": 0}
    words = [*_known(constant("stale.agent"), row, curve)]
    assert words == ["As observed, 30 min makes no more mistakes than 1 h, and waits less."][:n]


def test_the_shortest_value_is_said_to_be_the_shortest_that_was_tried():
    curve = pl.DataFrame({"threshold_s": [10.0, 3600.0], "mistakes": [0.0, 0.0]})
    nothing = ("n_more", "right_deaths_low", "right_deaths_high", "covering_s", "borrowed_s")
    row = dict.fromkeys(nothing) | {"today_s": 3600.0, "right_price_low": 0, "right_price_high": 0}
    assert [*_known(constant("stale.agent"), row, curve)] == [
        "As observed, 10 s (no shorter value was tried) makes no more mistakes than 1 h, and waits "
        "less."
    ]
    assert _range(10.0, 60.0) == "10 s to 1 min; no shorter value was tried"
    assert _range(20.0, None) == "20 s or more"


def test_a_value_that_no_possible_rate_of_deaths_makes_the_cheapest_is_too_short():
    schema = gaps(1).select("unit", "gap_s", "closed_by", "is_dead", "system", "kind").schema
    silences = [(gap, "sign_of_life") for gap in [40.0] * 5 + [120.0] * 5] + [(0.0, "own_end")]
    rows = [(f"s{unit}", *gap, False, "lionagi", "agent") for unit in range(60) for gap in silences]
    short = replace(constant("stale.agent"), today_s=60.0, mistake="lost_run")
    row = judge(short, pl.DataFrame(rows, schema=schema, orient="row"), Costs()).row
    # 60 sessions of 800 s: 450 deaths per 100 hours, if all died.
    assert row["right_deaths_low"] > row["right_deaths_high"] == pytest.approx(450)
    assert "As observed, 1 min is too short, even if every run died." in row["in_words"]


@pytest.mark.parametrize(("n_at_risk", "flips"), [(8, True), (30, False)])
def test_a_verdict_of_cannot_tell_says_what_is_lacking(n_at_risk, flips):
    row = {"n_effective": 50.0, "verdict": "cannot_tell", "n": 50, "flips": flips}
    row |= {"n_at_risk": n_at_risk, "recommended_s": None, "bound_s": None, "best_s": 60.0}
    words = _evidence(constant("stale.agent"), row | {"excess_if_half": None})
    assert (" (10 are needed)" in words) == (n_at_risk < 10)
    assert ("; excluding one of them changes the verdict" in words) == flips


def test_runs_of_seconds_say_nothing_about_minutes():
    short = runs(450).with_columns(
        duration_s=pl.col("duration_s") / 10_000,
        ended=pl.col("duration_s") < pl.col("duration_s").max(),
    )
    row = judge(time_limit("agent", 1800.0), short, Costs()).row
    assert "that ended well; the data end within 10 s." in row["in_words"]


def test_what_todays_limit_cuts_off_cannot_speak_for_it():
    """All data end at 30 min: that none would have ended well later is not known."""
    kind = Kind("agent", 1.0, 600.0, 0.9, 1800.0)
    found = durations(500, seed=1, kinds=(kind,)).select(
        "duration_s",
        "kind",
        unit=pl.int_range(pl.len()).cast(pl.String),
        system=pl.lit("lionagi"),
        ended=pl.col("end") != "timed_out",
        is_good=pl.col("end") == "completed",
    )
    row = judge(time_limit("agent", 1800.0), found, Costs()).row
    assert row["verdict"] == "not_identified"
    assert row["in_words"].startswith("Not identified: beyond 30 min most were stopped ")


def test_a_limit_that_nobody_set_is_chosen():
    rows = runs(450)
    row = judge(time_limit("agent", None), rows, Costs(run_hour=60.0)).row
    n_good = rows.filter("ended", "is_good").height
    assert row["n"] == n_good < 450
    assert f"Evidence: {n_good} invocations ended well, " in row["in_words"]
    assert row["verdict"] in ("choose", "not_identified")
    assert row["gain"] is None


@pytest.mark.slow
def test_every_verdict_is_explained(advice):
    assert set(advice.frame["verdict"]) <= set(VERDICTS)


# --- the whole ---------------------------------------------------------------------------


@pytest.mark.slow
def test_advice_on_the_sample_is_the_same_twice(advice, demo):
    again = sa.thresholds.recommend(demo)
    assert advice.frame.equals(again.frame)
    assert advice.to_json() == again.to_json()
    assert {"slow", "stuck", "idle", "stale.flow", "timeout.agent"} <= set(advice.frame["name"])


@pytest.mark.slow
def test_each_curve_marks_todays_value_and_the_best_once(advice):
    marked = advice.curves.group_by("name").agg(pl.col("is_best").sum(), pl.col("is_today").sum())
    assert marked["is_best"].to_list() == [1] * marked.height
    assert set(marked["is_today"]) <= {0, 1}


def test_todays_value_is_the_cheapest_only_up_to_the_price_from_which_the_best_is(advice):
    row = advice.frame.row(by_predicate=pl.col("name") == "slow", named=True)
    curve = advice.curves.filter(pl.col("threshold_s").is_in([3600.0, 5400.0]), name="slow")
    fewer, longer = -curve["mistakes"].diff()[1], curve["waiting_h"].diff()[1]
    assert row["best_s"] == 5400
    assert row["right_price_high"] == pytest.approx(curve["hour"][0] * longer / fewer)


def test_what_small_kinds_borrow_is_marked_and_nothing_rests_on_it(advice):
    frame = advice.frame.filter(pl.col("borrowed_s").is_not_null())
    assert frame.filter(name="stale.engine").height == 1
    assert frame["verdict"].unique().to_list() == ["not_enough_data"]
    assert frame["recommended_s"].null_count() == frame.height
    assert frame["in_words"].str.contains(r"Borrowed from \d other kinds: 9[59] % of").all()
    assert (frame["borrowed_low_s"] <= frame["borrowed_s"]).all()


@pytest.mark.slow
def test_a_sample_of_sessions_takes_everything_that_is_theirs_and_says_how_many(demo):
    snap = demo
    some = sampled(snap, 100, seed=3)
    ids = some.entities.filter(entity_type="session")["entity_id"]
    assert ids.n_unique() == 100
    assert set(some.events.filter(entity_type="session")["entity_id"]) <= set(ids)
    assert some.events.filter(pl.col("entity_id") == ids[0]).equals(
        snap.events.filter(pl.col("entity_id") == ids[0])
    )
    shuffled = facts([])  # only its entities matter here
    object.__setattr__(shuffled, "entities", snap.entities.sample(fraction=1, shuffle=True, seed=1))
    again = sampled(shuffled, 100, seed=3).entities.filter(entity_type="session")["entity_id"]
    assert set(again) == set(ids)
    assert sampled(snap, 10_000, seed=3) is snap
    few = sa.thresholds.recommend(snap, most_sessions=100)
    assert (few.n_sessions_drawn, few.n_sessions) == (100, 388)
    assert few.counts.endswith("; 100 of 388 sessions, drawn at random")
    assert "drawn" not in sa.thresholds.recommend(snap).counts


def test_advice_shows_itself(advice):
    assert repr(advice).startswith(f"Advice on {advice.frame.height} thresholds")
    assert ".to_toml()" in repr(advice)
    assert ">idle</th>" in advice._repr_html_()


def test_agent_orchestrators_budget_is_judged_by_how_doubt_ended():
    """70 of 82 doubts were over within 4 minutes; the others were deaths, killed after 20."""
    back = [
        changes(f"b{n}", (90, "working"), (60, "detecting"), (60 - (n % 8 + 1) / 2, "working"))
        for n in range(70)
    ]
    gone = [
        changes(f"g{n}", (90, "working"), (60, "detecting"), (58, "stuck"), (40, "killed"))
        for n in range(12)
    ]
    names = [f"b{n}" for n in range(70)] + [f"g{n}" for n in range(12)]
    snap = facts(ao(*names), transitions=[one for some in (*back, *gone) for one in some])
    advice = sa.thresholds.recommend(snap)
    budget = advice.frame.filter(name="ao.detecting.duration").row(0, named=True)
    assert (budget["n"], budget["today_s"], budget["best_s"]) == (70, 300.0, 300.0)
    # Nothing was flagged wrongly in 70, which 5 in 100 would do by chance.
    assert budget["verdict"] == "cannot_tell"
    assert "the cheapest value, 5 min (5 min to 15 min), is today's" in budget["in_words"]
    attempts = advice.frame.filter(name="ao.detecting.attempts").row(0, named=True)
    assert attempts["mistakes_today"] == pytest.approx(100 * 43 / 82)
    settings = json.loads(advice.to_json())["settings"]["agent_orchestrator"]
    core = settings["packages/core/src/lifecycle-status-decisions.ts"]
    assert "DETECTING_MAX_DURATION_MS" not in core
    assert core["DETECTING_MAX_ATTEMPTS"] == 10


# --- settings ----------------------------------------------------------------------------


def test_settings_are_in_the_words_of_their_owners(advice):
    toml = tomllib.loads(advice.to_toml())
    told = json.loads(advice.to_json())
    assert toml == told["settings"]
    # What closes runs at an hour cannot tell what a longer wait would spare.
    assert "environment" not in toml["lionagi"]
    assert toml["lionagi"]["lionagi/state/health.py"] == {"IDLE_THRESHOLD": 3600}
    assert len(told["advice"]) == advice.frame.height


def test_the_python_gives_a_policy_with_the_recommended_values(advice):
    held = {}
    exec(compile(advice.to_python(), "advice.py", "exec"), held)
    recommended = dict(advice.frame.select("name", "recommended_s").iter_rows())
    assert held["policy"].idle_after_s == recommended["idle"]
    assert recommended["stale.agent"] is None
    assert held["policy"].stalled_after("agent") == 21_600.0
    assert held["policy"].stalled_after("flow") == 43_200.0


@pytest.mark.slow
@given(st.one_of(st.just(HOSTILE), st.text(max_size=12)))
@examples(25)
def test_a_kind_of_any_name_stays_a_name(kind):
    """Text of a store reaches settings only as quoted text, never as their syntax."""
    one = judge(time_limit(kind, 1800.0), runs(80, kind=kind), Costs())
    row = {**one.row, "recommended_s": 900.0}
    judged = [type(one)(one.constant, row, one.curve)]
    expected = {"lionagi": {"playbook or command line": {"timeout": {kind: 900}}}}
    assert tomllib.loads(to_toml(judged)) == expected
    assert json.loads(to_json(judged, Costs()))["settings"] == expected
    compile(to_python(judged), "advice.py", "exec")


def test_advice_escapes_names_where_it_is_shown():
    one = judge(time_limit(HOSTILE, 1800.0), runs(80, kind=HOSTILE), Costs())
    shown = Advice(pl.DataFrame([one.row], schema=ADVICE.dtypes), pl.DataFrame(), Costs(), (one,))
    assert "</script>" not in shown._repr_html_()
    assert "\x1b" not in repr(shown)


@pytest.mark.parametrize(
    ("mistakes", "best_s", "said"),
    [
        # Of 100 runs, .6 mistakes: a value without any is 340 % cheaper, and saves hardly a thing.
        pytest.param(0.6, {}, "the same value is best if a mistake costs half or twice as much."),
        pytest.param(
            3.0, {"half": 900.0, "double": 900.0},
            "if a mistake cost half as much, 15 min would be best and this 400 % more expensive; "
            "if twice as much, 15 min and 1900 %.",
        ),
    ],
)  # fmt: skip
def test_what_is_kept_since_little_can_be_saved_is_no_expensive_value(mistakes, best_s, said):
    curve = pl.DataFrame(
        {"threshold_s": [600.0, 900.0], "mistakes": [mistakes, 0.0], "waiting_h": [0.0, 0.15]}
    )
    choice = SimpleNamespace(curve=curve, recommended_s=600.0)
    others = _at_other_costs(choice, 5.0, 10.0)
    assert [others[f"best_if_{word}_s"] for word in ("half", "double")] == [
        best_s.get(word, 600.0) for word in ("half", "double")
    ]
    row = {**others, "n_effective": 9.0, "n": 9, "verdict": "keep", "flips": False, "n_at_risk": 9,
           "recommended_s": 600.0}  # fmt: skip
    assert _evidence(constants()[0], row).endswith(f"; {said}")

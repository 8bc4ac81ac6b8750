"""What distinguishes a cluster, and which failures hang together."""

import random
from datetime import UTC, datetime, timedelta
from itertools import permutations
from math import comb, log2

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.failures.incident_grouping import LINKS, _with_components
from stateanalytics.stats.distributions import hypergeometric_tail
from stateanalytics.weekly import weekly_numbers
from tests.examples import a_few, examples
from tests.failures import LIMIT, fan_out, run, store
from tests.frames import ago

# --- lift ------------------------------------------------------------------------------


def lifted(*rows, **asked):
    found = sa.failures.lift(store(*rows), **asked)
    return {(row["dimension"], row["value"]): row for row in found.iter_rows(named=True)}


def test_an_agent_that_a_cluster_has_more_of_is_found():
    boom = {"reason_message": "boom", "agent": "coder", "model": "m"}
    rows = [run(f"bad{i}", **boom, ended=ago(days=1 + i)) for i in range(10)]
    others = {"status": "completed", "agent": "critic", "model": "m"}
    rows += [run(f"ok{i}", **others, ended=ago(days=1 + i / 9)) for i in range(90)]
    found = lifted(*rows)
    coder = found["agent", "coder"]
    counts = [coder[name] for name in ("n_in", "n_cluster", "n_value", "n_all")]
    assert counts == [10, 10, 10, 100]
    assert coder["lift"] == pytest.approx(10.0)
    assert coder["lift_low"] > 7 and coder["is_over_represented"]
    # A dimension with one value distinguishes nothing.
    assert ("model", "m") not in found


def test_sessions_of_one_fan_out_prove_nothing():
    rows = fan_out(24, agent="coder")
    rows += [run(f"ok{i}", status="completed", agent="critic") for i in range(30)]
    assert lifted(*rows) == {}


def test_a_project_that_always_fails_is_no_outage():
    """The same failure in all of its runs, as often as it runs."""
    rows = [
        run(f"r{i}", project=f"p{i % 5}", ended=ago(days=i / 71),
            **({"reason_message": "boom"} if i % 5 == 0 else {"status": "completed"}))
        for i in range(1_000)
    ]  # fmt: skip
    found = lifted(*rows)["project", "p0"]
    assert found["n_in"] == found["n_cluster"] == 200


def test_a_burst_counts_once_for_what_its_first_run_does_not_say():
    rows = [run(f"ok{i}", status="completed", agent="critic", ended=ago(days=i / 9))
            for i in range(90)]  # fmt: skip
    rows += [
        run(f"bad{day}-{i}", reason_message="boom", ended=ago(days=day - i / 50),
            **({} if i == 0 else {"agent": "coder"}))
        for day in (2, 4, 6, 8) for i in range(4)
    ]  # fmt: skip
    assert lifted(*rows)["agent", "coder"]["n_in"] == 4


def test_failures_of_one_incident_prove_nothing_either():
    """One outage of ten minutes takes whoever runs then, and all of them run in one hour."""
    rows = [
        run(f"bad{i}", reason_message="boom", agent="coder",
            ended=ago(days=1) + timedelta(seconds=50 * i))
        for i in range(10)
    ]  # fmt: skip
    others = {"status": "completed", "agent": "critic"}
    rows += [run(f"ok{i}", **others, ended=ago(days=i / 9)) for i in range(90)]
    assert lifted(*rows) == {}
    apart = lifted(*rows, run("bad", reason_message="boom", agent="coder", ended=ago(days=3)))
    assert apart["agent", "coder"]["n_in"] == apart["agent", "coder"]["n_cluster"] == 2


PROJECTS, AGENTS = [f"project-{i}" for i in range(6)], ["coder", "critic", "tester"]
WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliet".split()
WORDS += "kilo lima mike november oscar".split()


def null_report(draw):
    """What fails, fails in pairs minutes apart in one project; nothing tells clusters apart."""

    def at():
        return ago(hours=draw.uniform(1, 28 * 24))

    def one(name, ended, project, **rest):
        return run(name, ended=ended, project=project, agent=draw.choice(AGENTS), **rest)

    rows = [one(f"ok{i}", at(), draw.choice(PROJECTS), status="completed") for i in range(620)]
    for word in WORDS:
        for pair in range(6):
            began, project = at(), draw.choice(PROJECTS)
            for place in range(2):
                ended = began + place * timedelta(seconds=draw.uniform(1, 400))
                message = f"the {word} service said {word} is not {word} at all"
                rows.append(one(f"{word}{pair}{place}", ended, project, reason_message=message))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("seed", [31, 977])
def test_reports_of_failures_in_pairs_have_hardly_ever_a_false_finding(seed):
    draw, n = random.Random(seed), 100
    found = [sa.failures.lift(store(*null_report(draw))) for _ in range(n)]
    assert all(frame["cluster_id"].n_unique() >= 10 for frame in found)
    assert sum(frame["is_over_represented"].any() for frame in found) / n <= 0.05 + 0.04


def requests_of_two_sizes(draw, fails_by):
    """Fan-outs of eight runs, and as many runs one by one: all kinds fail equally often."""
    rows = []
    for place in range(60):
        for kind, size in (("fanout", 8), *[("agent", 1)] * 8):
            ended, name = ago(hours=draw.uniform(1, 28 * 24)), f"{kind}{place}-{len(rows)}"
            all_fail = draw.random() < 0.06
            for member in range(size):
                is_bad = all_fail if fails_by == "request" else draw.random() < 0.06
                why = {"reason_message": "boom"} if is_bad else {"status": "completed"}
                why |= {"invocation_id": name, "kind": kind, "ended": ended}
                rows.append(run(f"{name}-{member}", **why))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("fails_by", ["run", "request"])
def test_requests_of_many_runs_do_not_make_their_kind_stand_out(fails_by):
    draw, n = random.Random(5), 12
    found = [lifted(*requests_of_two_sizes(draw, fails_by)) for _ in range(n)]
    assert all(("kind", "agent") in report for report in found)
    assert sum(row["is_over_represented"] for report in found for row in report.values()) <= 1


def test_with_one_run_a_request_both_shares_are_the_same():
    """7 of 25 times 25 is a little more than 7 in floating point."""
    rows = [
        run(f"r{i}", kind="a" if i % 4 == 0 else "b", ended=ago(days=1 + i),
            **({"reason_message": "boom"} if i % 3 else {"status": "completed"}))
        for i in range(25)
    ]  # fmt: skip
    found = lifted(*rows)
    assert (found["kind", "a"]["n_value"], found["kind", "a"]["n_all"]) == (7, 25)
    assert found["kind", "b"]["n_value"] == 18


def test_only_what_failed_itself_counts_for_its_kind():
    """Each request has a planner, which never fails, and a coder, which often does."""
    rows = [
        run(f"{kind}{i}", kind=kind, invocation_id=f"request{i}", ended=ago(days=1 + i / 9),
            **({"reason_message": "boom"} if kind == "coder" and i % 3 == 0
               else {"status": "completed"}))
        for i in range(60) for kind in ("planner", "coder")
    ]  # fmt: skip
    found = lifted(*rows)
    assert found["kind", "coder"]["n_in"] == found["kind", "coder"]["n_cluster"]
    assert ("kind", "planner") not in found


def test_a_dimension_that_was_not_recorded_is_left_out():
    rows = [
        run(f"bad{i}", reason_message="boom", agent="coder" if i else None, ended=ago(days=1 + i))
        for i in range(3)
    ]
    rows += [run("ok", status="completed", agent="critic")]
    assert lifted(*rows)["agent", "coder"]["n_cluster"] == 2


TAILS = [((3, 4, 4, 8), 17 / 70), ((4, 4, 4, 8), 1 / 70), ((0, 4, 4, 8), 1.0)]
TAILS += [((2, 2, 2, 2), 1.0), ((5, 4, 4, 8), 0.0)]


@pytest.mark.parametrize(("table", "p"), TAILS)
def test_the_tail_by_hand(table, p):
    assert hypergeometric_tail(*table) == pytest.approx(p)


def test_the_tail_is_exact_against_counting():
    chance = random.Random(1)
    for _ in range(300):
        n = chance.randint(1, 200)
        marked, drawn = chance.randint(0, n), chance.randint(0, n)
        k = chance.randint(0, min(marked, drawn))
        ways = range(k, min(marked, drawn) + 1)
        hits = sum(comb(marked, i) * comb(n - marked, drawn - i) for i in ways)
        expected = hits / comb(n, drawn)
        assert hypergeometric_tail(k, drawn, marked, n) == pytest.approx(expected, rel=1e-9)


# --- incidents -------------------------------------------------------------------------


def incidents(*rows, **asked):
    return sa.failures.incidents(store(*rows), **asked)


def spread(n=20):
    """Other failures, far apart, so that there is a usual distance."""
    said = [f"other {chr(97 + i)}" for i in range(n)]
    return [run(f"o{i}", reason_message=one, ended=ago(days=2 + i)) for i, one in enumerate(said)]


def test_one_rate_limit_that_failed_24_sessions_is_one_incident():
    found = incidents(*fan_out(24), *spread())
    assert found.select("n_rows", "n_sessions", "n_causes", "n_work").rows() == [(24, 24, 1, 24)]
    assert found["linked_by"].item() == "invocation"
    assert found["duration_s"].item() == 23.0
    assert found["providers"].to_list() == ["claude_code"]


def test_failures_of_which_nothing_is_known_are_not_linked_by_their_time():
    silent = [run(f"s{i}", ended=ago(days=1, seconds=i)) for i in range(5)]
    assert incidents(*silent, *spread()).is_empty()


def test_one_provider_that_fails_in_several_ways_and_systems_is_one_incident():
    moment = ago(days=1)
    elsewhere = {"source": "other.db", "ended": moment + timedelta(minutes=4)}
    rows = [
        run("a", reason_message=LIMIT.format(1), provider="p", ended=moment),
        run("b", reason_message="HTTP 503 upstream connect error", provider="p", **elsewhere),
        run("c", reason_message="ValueError: mine", provider="p", ended=moment),
        run("d", reason_message=LIMIT.format(2), provider="q", ended=moment + timedelta(days=1)),
    ]
    found = incidents(*rows, *spread())
    assert found.select("n_rows", "n_clusters", "linked_by").rows() == [(2, 2, "provider")]


def test_links_over_several_steps_make_one_incident():
    steps = {
        "a": ("x", "i", 0),
        "b": ("y", "i", 3600),
        "c": ("y", "j", 3605),
        "d": ("z", "j", 7200),
    }
    rows = [
        run(name, reason_message=said, invocation_id=of, ended=ago(days=1, seconds=-after_s))
        for name, (said, of, after_s) in steps.items()
    ]
    found = incidents(*rows, *spread())
    assert found.select("n_rows", "n_clusters", "linked_by").rows() == [(4, 3, "invocation, time")]


def test_a_play_and_its_session_are_one_failure_and_no_incident():
    play = run("p", status="escalated", entity_type="play", session_id="s", reason_message="x")
    assert incidents(run("s", reason_message="x"), play, *spread()).is_empty()


def test_what_fails_all_the_time_anyway_is_no_incident():
    rows = [run(f"t{i}", reason_message="tick", ended=ago(minutes=5 * i + 1)) for i in range(300)]
    assert incidents(*rows).is_empty()


@pytest.mark.slow
@pytest.mark.parametrize("history_days", a_few([0, 70]))
@pytest.mark.parametrize(("minutes", "n"), [(8, 1), (95, 100)])
def test_a_week_has_as_many_incidents_whatever_came_before_it_and_whoever_counts(
    history_days, minutes, n
):
    """A hundred failures within half a day are one outage; over the whole week they are none."""
    begins = datetime(2026, 5, 18, tzinfo=UTC)
    ends = {f"t{i}": begins + timedelta(minutes=minutes * i) for i in range(100)}
    ends |= {f"old{day}": begins - timedelta(days=day) for day in range(30, history_days, 10)}
    rows = [run(name, reason_message="tick", ended=at) for name, at in ends.items()]
    facts, week = store(*rows), {"window": "2026-W21"}
    in_week = {
        name: getattr(sa.failures, name)(facts, **week).item(0, "n_incidents")
        for name in ("clusters", "codes", "change", "life")
    }
    failed = pl.col("measure") == "failure_incidents"
    for last in (2, 8):
        weeks = weekly_numbers(facts, last).filter(failed, week="2026-W21")
        in_week[f"{last} weeks"] = weeks.filter(group_kind="cluster").item(0, "value")
    assert set(in_week.values()) == {n}, in_week


@pytest.mark.slow
@pytest.mark.parametrize(("gap_s", "n"), [(0, 0), (29, 0), (31, 1), (600, 1)])
def test_the_gap_can_be_chosen(gap_s, n):
    times = {"a": 0, "b": -30}
    rows = [run(a, reason_message="x", ended=ago(days=1, seconds=s)) for a, s in times.items()]
    assert incidents(*rows, *spread(), gap_s=gap_s).height == n


@pytest.mark.slow
def test_incidents_keep_their_id_and_order_never_matters():
    rows = [*fan_out(5), *spread()]
    assert incidents(*rows[::-1]).equals(incidents(*rows))
    more = incidents(*rows, *fan_out(9)[5:])
    assert more["incident_id"].to_list() == incidents(*rows)["incident_id"].to_list()


def test_members_name_their_incident():
    members = sa.failures.members(store(*fan_out(3), *spread(4)))
    assert members["incident_id"].drop_nulls().len() == 3
    assert members.filter(pl.col("incident_id").is_null()).height == 4


LINKED = st.tuples(*[st.none() | st.sampled_from("abcdef")] * len(LINKS))


@given(links=st.lists(LINKED, min_size=1, max_size=20))
@examples(100)
def test_with_components_are_what_links_join_over_any_number_of_steps(links):
    schema = dict.fromkeys([f"by_{link}" for link in LINKS], pl.String)
    frame = pl.DataFrame(links, schema=schema, orient="row")
    found = _with_components(frame.with_columns(apart=pl.lit(0)))
    expected = list(range(len(links)))
    for _ in links:
        for i, j in permutations(range(len(links)), 2):
            if any(a is not None and a == b for a, b in zip(links[i], links[j], strict=True)):
                expected[i] = expected[j] = min(expected[i], expected[j])
    assert found["component"].to_list() == expected


@pytest.mark.parametrize("order", ["in order", "backwards", "from both ends", "shuffled"])
def test_a_long_chain_needs_few_rounds(order, monkeypatch):
    n, n_rounds, equals = 2_000, [], pl.Series.equals
    place = {
        "in order": list(range(n)),
        "backwards": list(range(n))[::-1],
        "from both ends": [i // 2 if i % 2 else n - 1 - i // 2 for i in range(n)],
        "shuffled": random.Random(1).sample(range(n), n),
    }[order]
    # Each is linked with the one before by one link and with the next one by another.
    pairs = {"by_invocation": [i // 2 for i in place], "by_time": [(i + 1) // 2 for i in place]}
    chain = pl.DataFrame(pairs, schema=dict.fromkeys(pairs, pl.Int64)).cast(pl.String)
    monkeypatch.setattr(pl.Series, "equals", lambda *a: n_rounds.append(1) or equals(*a))
    none = {f"by_{link}": pl.lit(None, pl.String) for link in LINKS if f"by_{link}" not in pairs}
    found = _with_components(chain.with_columns(**none, apart=pl.lit(0)))
    assert found["component"].n_unique() == 1
    assert len(n_rounds) <= 2 + log2(n)

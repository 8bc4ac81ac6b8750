"""New, back, growing, unclear, steady, shrinking, gone: against a stretch, or a snapshot."""

from datetime import timedelta

import pytest

import stateanalytics as sa
from tests.failures import fan_out, run, store
from tests.frames import AS_OF, ago

NOW, BEFORE = (ago(days=7), AS_OF), (ago(days=14), ago(days=7))


def week(name, n, *, days, **rest):
    """Failures of one message, spread over four days: hours apart, or they were one incident."""
    return [
        run(
            f"{name}{i}{days}",
            reason_message=f"{name} broke",
            ended=ago(days=days, hours=96 * i / n),
            **rest,
        )
        for i in range(n)
    ]


def daily(name, days, **rest):
    """A failure of one message on each of these days before as-of."""
    return [row for day in days for row in week(name, 1, days=day, **rest)]


def well(n, *, days, every=1):
    return [
        run(f"ok{i}{days}", status="completed", ended=ago(days=days, minutes=every * i))
        for i in range(n)
    ]


def change(*rows, **asked):
    found = sa.failures.change(store(*rows), window=NOW, **asked)
    return {row["template"]: row for row in found.iter_rows(named=True)}


# Spread as failures are: what fails as often as work ends comes in no bursts.
RUNS = [*well(50, days=1, every=120), *well(50, days=8, every=120)]


@pytest.mark.slow
def test_every_status_is_what_the_counts_say():
    found = change(
        *RUNS,
        *week("fresh", 3, days=1),
        *week("rising", 30, days=1), *week("rising", 3, days=8),
        *week("even", 5, days=1), *week("even", 5, days=8),
        *week("usual", 47, days=1), *week("usual", 47, days=8),
        *week("falling", 3, days=1), *week("falling", 30, days=8),
        *week("once", 4, days=8),
    )  # fmt: skip
    assert {name.split()[0]: row["status"] for name, row in found.items()} == {
        "fresh": "new",
        "rising": "growing",
        "even": "unclear",
        "usual": "steady",
        "falling": "shrinking",
        "once": "unclear",
    }
    rising = found["rising broke"]
    assert (rising["n_causes_before"], rising["n_causes"]) == (3, 30)
    assert rising["ratio_low"] > 1 and rising["q_value"] < 0.05
    assert found["fresh broke"]["ratio"] is None
    for name, words in {
        "fresh": "never before",
        "even": "1.0 times as often per run (95 %: 0.23 to 4.4): no significant change",
        "usual": "1.0 times as often per run (95 %: 0.66 to 1.5)",
        "once": "none in the window, which may be chance",
    }.items():
        assert found[f"{name} broke"]["why"] == words


@pytest.mark.slow
def test_what_failed_every_day_and_not_for_a_week_is_gone():
    found = change(*RUNS, *daily("past", range(8, 25)))
    assert (found["past broke"]["status"], found["past broke"]["why"]) == (
        "gone",
        "none in the window",
    )


@pytest.mark.slow
def test_what_is_back_after_two_quiet_weeks_is_not_new_and_before_that_is_neither():
    found = change(
        *RUNS,
        *daily("again", (1, 1.02)), *daily("again", range(30, 34)),
        *daily("rare", (1, 1.02, 30, 30.02)),
        *daily("lately", (1, 1.02, 14.5)),
    )  # fmt: skip
    assert {name.split()[0]: (row["status"], row["why"]) for name, row in found.items()} == {
        "again": ("back", "after 4 weeks without it"),
        "rare": ("unclear", "none in the period before, which may be chance"),
        "lately": ("unclear", "none in the period before, but shortly before that"),
    }


@pytest.mark.slow
def test_a_change_says_what_it_cost():
    rows = [
        *week("dear", 2, days=1, cost_usd=1.5),
        *week("dear", 1, days=8, cost_usd=0.25),
        *week("quiet", 1, days=1),
    ]
    found = change(*RUNS, *rows)
    dear, quiet = found["dear broke"], found["quiet broke"]
    assert (dear["cost_usd_before"], dear["cost_usd"]) == (0.25, 3.0)
    assert (quiet["cost_usd_before"], quiet["cost_usd"]) == (None, None)
    assert dear["run_s"] == 2 * dear["run_s_before"] > 0


@pytest.mark.slow
def test_what_may_be_chance_among_many_clusters_says_so():
    others = [run(f"o{i}", reason_message="abcdefghijklmnopqrst"[i] * 9, ended=ago(days=8))
              for i in range(20)]  # fmt: skip
    found = change(*RUNS, *others, *week("rising", 11, days=1), *week("rising", 2, days=8))
    rising = found["rising broke"]
    assert rising["status"] == "unclear" and rising["ratio_low"] > 1
    assert rising["why"].endswith(f"not significant among {len(found)} clusters")


@pytest.mark.slow
def test_a_rate_counts_runs_so_a_busy_week_is_not_a_bad_one():
    rows = [*week("even", 40, days=1), *week("even", 4, days=8)]
    busy = change(*rows, *well(360, days=1), *well(36, days=8))["even broke"]
    assert busy["status"] == "unclear"
    assert busy["rate"] == busy["rate_before"] == pytest.approx(0.1)
    assert busy["ratio"] == pytest.approx(1.0)


@pytest.mark.slow
def test_a_fan_out_is_one_cause_and_proves_nothing():
    found = change(*RUNS, *fan_out(24), run("b", reason_message="x", ended=ago(days=8)))
    limit = found["API Error: 429 slow down, request <*>"]
    assert (limit["status"], limit["n_rows"], limit["n_causes"]) == ("new", 24, 1)
    assert limit["q_value"] > 0.5


@pytest.mark.slow
def test_sessions_that_one_outage_fails_are_one_incident_and_prove_nothing():
    outage = [
        run(f"out{i}", reason_code="run.failed.exception", provider="p",
            reason_message="API Error: 503 unavailable", ended=ago(days=1, seconds=i))
        for i in range(24)
    ]  # fmt: skip
    found = change(*RUNS, *outage, run("b", reason_message="x", ended=ago(days=8)))
    limit = found["API Error: 503 unavailable"]
    assert (limit["n_rows"], limit["n_causes"], limit["n_incidents"]) == (24, 24, 1)
    assert limit["q_value"] > 0.5
    facts = store(*RUNS, *outage)
    for counted in (sa.failures.clusters(facts), sa.failures.codes(facts).filter(depth=1)):
        assert counted["n_incidents"].to_list() == [1]
    [life] = sa.failures.life(facts, window=NOW).iter_rows(named=True)
    assert (life["state"], life["n_incidents"]) == ("new", 1)


@pytest.mark.slow
def test_what_was_seen_before_both_stretches_is_back_not_new_as_in_its_life():
    old = [*week("old", 1, days=1), *daily("old", range(30, 34))]
    rows = [*old, *week("fresh", 1, days=1)]
    found = change(*rows)
    lives = sa.failures.life(store(*rows), window=NOW)
    assert {row["template"]: row["state"] for row in lives.iter_rows(named=True)} == {
        name: row["status"] for name, row in found.items()
    }
    assert found["old broke"]["is_seen_before"] is True
    assert found["fresh broke"]["is_seen_before"] is False
    assert (found["old broke"]["status"], found["fresh broke"]["status"]) == ("back", "new")


@pytest.mark.slow
def test_two_snapshots_agree_on_ids_through_their_templates():
    users = ("ada", "ben", "cyd", "dov", "eve")
    last = store(*(run(u, reason_message=f"login of {u} broke", ended=ago(days=9)) for u in users))
    this = store(
        run("fay", reason_message="login of fay broke"), run("g", reason_message="disk 7 is full")
    )
    found = sa.failures.change(this, window=NOW, before=BEFORE, earlier=last)
    assert set(found.select("template", "status", "n_rows_before", "n_rows").rows()) == {
        ("login of <*> broke", "unclear", 5, 1),
        ("disk <*> is full", "new", 0, 1),
    }


@pytest.mark.slow
def test_without_runs_there_is_no_rate_and_no_test():
    plays = [
        run("p", status="escalated", entity_type="play", reason_message="x", ended=ago(days=days))
        for days in (1, 8)
    ]
    [row] = change(*plays).values()
    assert (row["rate"], row["ratio"], row["p_value"]) == (None, None, None)
    assert (row["status"], row["why"]) == ("unclear", "no run ended in one of the periods")


@pytest.mark.slow
def test_the_stretch_before_is_as_long_and_just_before():
    edge = ago(days=7)
    rows = [run("now", reason_message="a", ended=edge)]
    rows += [run("then", reason_message="b", ended=edge - timedelta(microseconds=1))]
    rows += [run("long ago", reason_message="c", ended=ago(days=14, seconds=1))]
    found = change(*rows)
    assert {name: row["status"] for name, row in found.items()} == {"a": "new", "b": "unclear"}

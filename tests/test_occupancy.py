"""Shares of runs in each state: by hand, against the competing-risks curve, against truth."""

import math
from random import Random
from statistics import NormalDist

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.errors import ArgumentError
from stateanalytics.survival import occupancy
from tests.frames import AS_OF, WHOSE, ago, facts

STRETCH = {"state": pl.String, "from_s": pl.Float64, "until_s": pl.Float64, "next_state": pl.String}


def stretches(*rows):
    return pl.DataFrame(rows, schema=STRETCH, orient="row")


def at(lives, seconds, column="share", **asked):
    found = sa.survival.state_occupancy(lives, at_s=seconds, **asked)
    return dict(found.select("state", column).rows())


def test_shares_by_hand_with_a_way_back_and_a_cut():
    lives = stretches(
        ("running", 0, 2, "stalled"), ("stalled", 2, 4, "running"), ("running", 4, 9, "completed"),
        ("running", 0, 3, None),
        ("running", 0, 5, "stalled"), ("stalled", 5, 8, "failed"),
        ("running", 0, 7, "completed"),
    )  # fmt: skip
    # At 2 one of four stalls. At 3 one is cut off. At 4 the stalled one runs again: all run.
    assert at(lives, 2) == {"running": 0.75, "stalled": 0.25, "completed": 0, "failed": 0}
    assert at(lives, 4)["running"] == 1
    # At 5 one of three stalls, at 7 one of two completes, at 8 the stalled one fails.
    thirds = dict.fromkeys(("running", "completed", "failed"), 1 / 3)
    assert at(lives, 8) == pytest.approx({**thirds, "stalled": 0})
    assert at(lives, 2, "recover")["stalled"] == 1.0
    assert at(lives, 6, "recover")["stalled"] == 0.0
    # Nine that begin one by one are all running at last, whatever their steps sum to.
    waiting = [("queued", 0, 1 + place, "running") for place in range(9)]
    begun = stretches(*waiting, *(("running", 1 + place, 50, None) for place in range(9)))
    assert at(begun, 40) == {"queued": 0.0, "running": 1.0}


def test_variance_by_hand():
    lives = stretches(("running", 0, 1, "completed"), *[("running", 0, 9, None)] * 3)
    assert at(lives, 1, "share_se")["completed"] == pytest.approx((0.25 * 0.75 / 4) ** 0.5)


AS_LIVES = {"from_s": "entry_s", "until_s": "duration_s", "next_state": "cause"}
AS_LIVES |= {"state": pl.lit("running")}


def competing(draw, n, *, is_late=False):
    rows = []
    for _ in range(n):
        entry = draw.choice([0.0, 0.0, draw.randrange(4)]) if is_late else 0.0
        until = entry + draw.randrange(1, 12)
        rows.append((entry, until, draw.choice(["failed", "completed", None])))
    schema = {"entry_s": pl.Float64, "duration_s": pl.Float64, "cause": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_final_ends_give_the_competing_risks_curve_and_its_variance(seed, is_late):
    ends = competing(Random(seed), 60, is_late=is_late)
    curve = sa.survival.cumulative_incidence(ends, conf_type="log-log")
    found = sa.survival.state_occupancy(ends.select(**AS_LIVES))
    both = curve.join(found, left_on=["cause", "duration_s"], right_on=["state", "duration_s"])
    assert both.height > 10
    for ours, theirs in (("share", "incidence"), ("share_se", "incidence_se")):
        assert both[ours].to_list() == pytest.approx(both[theirs].to_list(), abs=1e-12)
    sums = found.group_by("duration_s").agg(pl.col("share").sum())["share"]
    assert sums.to_list() == pytest.approx([1.0] * sums.len())


def test_strata_are_apart_and_what_has_no_length_is_refused():
    lives = stretches(("running", 0, 2, "completed"), ("running", 0, 3, "failed"))
    lives = lives.with_columns(kind=pl.Series(["a", "b"]))
    apart = sa.survival.state_occupancy(lives, by="kind", at_s=[2.5])
    assert apart.filter(kind="a", state="completed")["share"].item() == 1
    assert apart.filter(kind="b", state="running")["share"].item() == 1
    with pytest.raises(ArgumentError, match="1 of 1 do not"):
        sa.survival.state_occupancy(stretches(("running", 2, 2, None)))


def test_no_lives_give_no_rows():
    assert sa.survival.state_occupancy(stretches()).is_empty()
    assert sa.survival.state_occupancy(facts([])).is_empty()


def session(entity_id, began, ended=None, status="running", **row):
    return {
        **WHOSE, "entity_id": entity_id, "kind": "agent", "raw_status": status,
        "started_at": ago(minutes=began),
        "ended_at": None if ended is None else ago(minutes=ended),
        "last_activity_at": ago(minutes=began), **row,
    }  # fmt: skip


def signs(entity_id, *minutes):
    return [
        {**WHOSE, "entity_id": entity_id, "at": ago(minutes=m), "seq": n, "is_activity": True}
        for n, m in enumerate(minutes)
    ]


def test_a_silent_run_is_stalled_until_its_next_sign():
    given = facts(
        [session("a", 60, 10, "completed"), session("b", 60)],
        events=signs("a", 55, 30, 28, 20) + signs("b", 58),
    )
    lives = sa.survival.stretches_of(given, silent_after_s=600)
    minutes = (pl.col("from_s") / 60, pl.col("until_s") / 60)
    assert lives.filter(entity_id="a").select("state", *minutes, "next_state").rows() == [
        ("running", 0, 15, "stalled"), ("stalled", 15, 30, "running"),
        ("running", 30, 50, "completed"), ("completed", 50, 60, None),
    ]  # fmt: skip
    assert lives.filter(entity_id="b").select("state", *minutes).rows() == [
        ("running", 0, 12), ("stalled", 12, 60),
    ]  # fmt: skip
    shares = at(given, 20 * 60, silent_after_s=600)
    assert (shares["stalled"], shares["running"]) == (1.0, 0.0)
    # One ran again; the other had not when the data ended.
    assert at(given, 20 * 60, "recover", silent_after_s=600)["stalled"] == 0.5


def test_a_window_lets_older_lives_enter_late():
    given = facts([session("a", 60, 10, "completed")], events=signs("a", *range(60, 10, -5)))
    seen = sa.survival.stretches_of(given, window=(ago(minutes=40), AS_OF), silent_after_s=900)
    assert seen.select("state", "from_s", "until_s").rows() == [
        ("running", 1200.0, 3000.0), ("completed", 3000.0, 3600.0),
    ]  # fmt: skip


def test_waiting_for_a_person_is_a_state_of_its_own():
    whose = {**WHOSE, "system": "agent_orchestrator", "entity_id": "w"}
    steps = (("working", 50), ("needs_input", 40), ("working", 25), ("merged", 10))
    given = facts(
        [session("w", 60, 10, "merged", system="agent_orchestrator", recorded_outcome="merged",
                 recorded_lifecycle="completed", created_at=ago(minutes=70))],
        transitions=[
            {**whose, "at": ago(minutes=m), "seq": n, "status": status, "writer": "poll"}
            for n, (status, m) in enumerate(steps)
        ],
    )  # fmt: skip
    lives = sa.survival.stretches_of(given, silent_after_s=3000)
    assert lives["state"].to_list() == ["queued", "running", "waiting", "running", "completed"]
    assert (lives["from_s"] / 60).to_list() == [0, 10, 30, 45, 60]


def test_the_sample_adds_up(demo):
    found = sa.survival.state_occupancy(demo, by="kind", at_s=[600, 1800], silent_after_s=600)
    sums = found.group_by("kind", "duration_s").agg(pl.col("share").sum())["share"]
    assert sums.to_list() == pytest.approx([1.0] * sums.len())


def lives_of_units(draw, n_lives, n_units):
    """Ways back, ties, cut-offs and late entries; each life of some unit."""
    rows = []
    for life in range(n_lives):
        unit, at = draw.randrange(n_units), float(draw.choice([0, 0, draw.randrange(4)]))
        state = draw.choice(["running", "queued"])
        for _ in range(draw.randrange(1, 5)):
            until = at + draw.randrange(1, 6)
            then = draw.choice(["running", "stalled", "completed", "failed", None])
            then = None if then == state else then
            rows.append((state, at, until, then, unit, f"{life}"))
            if then in (None, "completed", "failed"):
                break
            state, at = then, until
    return pl.DataFrame(rows, schema={**STRETCH, "unit": pl.Int64, "entity_id": pl.String},
                        orient="row")  # fmt: skip


def weighted_shares(rows, weights, until):
    """The product over changes of stretches that count more or less than one."""
    pairs = list(zip(rows, weights, strict=True))
    first = [(row, w) for row, w in pairs if row[1] == min(row[1] for row in rows)]
    share = dict.fromkeys([state for row in rows for state in (row[0], row[3]) if state], 0.0)
    for row, w in first:
        share[row[0]] += w / sum(w for _, w in first)
    for moment in sorted({row[2] for row in rows if row[3] and row[2] <= until}):
        step = dict(share)
        for state in share:
            here = [(row, w) for row, w in pairs if row[0] == state and row[1] < moment <= row[2]]
            for row, w in here:
                if row[2] == moment and row[3]:
                    moved = share[state] * w / sum(w for _, w in here)
                    step[state], step[row[3]] = step[state] - moved, step[row[3]] + moved
        share = step
    return share


@pytest.mark.parametrize("times", [(4.0,), (3.0, 7.0, 11.0), ()])
def test_the_variance_is_that_of_counting_each_unit_a_little_more(monkeypatch, times):
    lives, seen = lives_of_units(Random(4), 30, 7), []
    told = occupancy.variances_by_unit
    keep = lambda *given: seen.append(told(*given)) or seen[0]  # noqa: E731
    monkeypatch.setattr(occupancy, "variances_by_unit", keep)
    sa.survival.state_occupancy(lives, at_s=times)
    rows, n_lives = lives.rows(), lives["entity_id"].n_unique()
    meant = {}
    for unit, of_unit in lives.group_by("unit"):
        weight = of_unit["entity_id"].n_unique() / n_lives
        for moment in seen[0]["duration_s"].unique():
            more, less = (
                weighted_shares(rows, [1 + sign * (row[4] == unit[0]) for row in rows], moment)
                for sign in (1e-5, -1e-5)
            )
            for state, share in more.items():
                moved = (share - less[state]) / 2e-5
                key = (moment, state)
                meant[key] = meant.get(key, 0) + moved**2 / (1 - weight)
    assert {row[:2]: row[2] for row in seen[0].rows()} == pytest.approx(meant, abs=1e-9)


def test_final_ends_give_the_variance_by_unit_of_the_competing_risks_curve():
    ends = competing(Random(9), 60).with_columns(unit=pl.int_range(60) // 5)
    curve = sa.survival.cumulative_incidence(ends)
    lives = ends.select("unit", **AS_LIVES)
    found = sa.survival.state_occupancy(lives)
    both = curve.join(found, left_on=["cause", "duration_s"], right_on=["state", "duration_s"])
    assert both["share_se"].to_list() == pytest.approx(both["incidence_se"].to_list(), abs=1e-12)
    assert both["share_low"].to_list() == pytest.approx(both["incidence_low"].to_list(), abs=1e-9)
    assert both["n_units"].unique().to_list() == [12]
    few = sa.survival.state_occupancy(lives.filter(pl.col("unit") < 4), at_s=5.0)
    assert few["share_se"].null_count() == few["share_low"].null_count() == few.height


def test_the_order_of_stretches_says_nothing_and_strata_have_their_own_units():
    lives = lives_of_units(Random(3), 60, 20).with_columns(kind=pl.col("unit") % 2)
    found = sa.survival.state_occupancy(lives, by="kind", at_s=6.0)
    shuffled = lives.sample(fraction=1, shuffle=True, seed=1)
    assert sa.survival.state_occupancy(shuffled, by="kind", at_s=6.0).equals(found)
    assert found["n_units"].unique().to_list() == [10]


RATES = {
    "running": {"stalled": 0.02, "completed": 0.03},
    "stalled": {"running": 0.05, "failed": 0.02},
}


def truth(seconds):
    """The closed form: the Markov chain, stepped finely."""
    share, n_steps = {"running": 1.0, "stalled": 0.0, "completed": 0.0, "failed": 0.0}, 4000
    for _ in range(n_steps):
        step = dict(share)
        for state, rates in RATES.items():
            for then, rate in rates.items():
                moved = share[state] * rate * seconds / n_steps
                step[state], step[then] = step[state] - moved, step[then] + moved
        share = step
    return share


def chain(draw, n, *, times=1.0, is_late=True):
    """Lives whose rates are so many times the usual ones; some entered late."""
    rows = []
    for _ in range(n):
        now, state, stop = 0.0, "running", draw.uniform(20, 150)
        entry = draw.choice([0.0, draw.uniform(0, 30)]) if is_late else 0.0
        while True:
            rates = RATES.get(state)
            until = now + draw.expovariate(times * sum(rates.values())) if rates else float("inf")
            then = draw.choices(list(rates), list(rates.values()))[0] if rates else None
            if min(until, stop) > max(now, entry):
                then_seen = then if until < stop else None
                rows.append((state, max(now, entry), min(until, stop), then_seen))
            if until >= stop:
                break
            now, state = until, then
    return stretches(*rows)


@pytest.mark.slow
def test_intervals_cover_the_truth_of_a_markov_chain():
    """300 samples of 150 lives, cut off and entered late, at a seed that nothing was tuned on."""
    draw, meant = Random(90_210), truth(40.0)
    covered = dict.fromkeys(meant, 0)
    for _ in range(300):
        found = sa.survival.state_occupancy(chain(draw, 150), at_s=40.0)
        for state, low, high in found.select("state", "share_low", "share_high").rows():
            covered[state] += low is not None and low <= meant[state] <= high
    assert all(0.92 <= n / 300 <= 0.98 for n in covered.values()), covered


@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.0, 0.5, 1.0])
def test_intervals_cover_the_truth_of_fan_outs_that_are_alike(sd):
    """200 samples of 20 fan-outs of 1 to 24 whose rates differ, at seeds drawn anew."""
    draw, held = Random(), {}
    normal = [NormalDist().inv_cdf((place + 0.5) / 40) for place in range(40)] if sd else [0.0]
    known = [truth(40 * math.exp(sd * value)) for value in normal]
    meant = {state: sum(one[state] for one in known) / len(known) for state in known[0]}
    for _ in range(200):
        lives = pl.concat(
            chain(draw, 1, times=math.exp(sd * value), is_late=False).with_columns(
                unit=pl.lit(unit), entity_id=pl.lit(f"{unit} {place}")
            )
            for unit, value in enumerate(draw.gauss() for _ in range(20))
            for place in range(draw.randint(1, 24))
        )
        found = sa.survival.state_occupancy(lives, at_s=40.0)
        for state, low, high in found.select("state", "share_low", "share_high").rows():
            held[state] = held.get(state, 0) + (low is not None and low <= meant[state] <= high)
    # 95 of a hundred give or take three, and what 200 draws differ by.
    assert all(0.92 - 0.03 <= n / 200 <= 1 for n in held.values()), held
    assert 0.92 <= sum(held.values()) / 200 / len(held) <= 0.985, held

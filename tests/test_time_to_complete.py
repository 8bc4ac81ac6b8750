"""How long runs took, week by week: a slowdown is found in time, and nothing is made up."""

import math
import re
from collections import Counter
from datetime import timedelta
from random import Random

import polars as pl
import pytest

from stateanalytics.core.windows import Window
from stateanalytics.reporting import report
from stateanalytics.reporting.changes import LIMITS, against_its_past, timed
from stateanalytics.survival.run_spells import to_completion
from stateanalytics.weekly import median_times
from stateanalytics.weekly_limits import times_of_started
from tests.failures import run
from tests.frames import AS_OF, facts

USUAL_S = {"agent": 600, "flow": 2400, "play": 1200, "fanout": 300}
MIX = (5, 2, 2, 1)
WEEK = timedelta(weeks=1)


def fleet(
    draw,
    n_weeks,
    *,
    per_week=300,
    times=1.0,
    since=0,
    unit_sd=0.4,
    week_sd=0.0,
    fails=0.1,
    dies_at=1.0,
    mix=MIX,
):
    """Runs of fan-outs of 1 to 8 similar ones; the last ``since`` weeks take so much longer.

    One in ten fails, at ``dies_at`` of its time or before; where that is below 1, those that would
    take longest do so as well.
    """  # fmt: skip
    rows = []
    for back in range(n_weeks):
        is_since, n, of_week = back < since, 0, draw.gauss(0, week_sd)
        while n < per_week:
            n_alike, effect = draw.choice([1, 1, 2, 8]), draw.gauss(of_week, unit_sd)
            kind = draw.choices(list(USUAL_S), mix if is_since else MIX)[0]
            began = AS_OF - WEEK * (back + draw.random())
            for _ in range(n_alike):
                own = draw.gauss(0, 0.7)
                lasted = USUAL_S[kind] * math.exp(effect + own) * (times if is_since else 1.0)
                has_failed = draw.random() < fails
                if is_since and dies_at < 1:
                    has_failed |= own > 0.3
                lasted *= draw.uniform(0, dies_at) if has_failed else 1.0
                ended = began + timedelta(seconds=lasted)
                if ended < AS_OF:
                    status = "failed" if has_failed else "completed"
                    rows.append((f"{back}-{n}", kind, began, ended, status))
            n += n_alike
    return rows


def spells_of(rows):
    names = ["invocation_id", "kind", "started_at", "ended_at", "ending"]
    lasted = pl.col("ended_at") - pl.col("started_at")
    return pl.DataFrame(rows, schema=names, orient="row").with_columns(
        source=pl.lit("state.db"), ended=pl.lit(True), left_out=pl.lit(None, pl.String),
        duration_s=lasted.dt.total_microseconds() / 1e6,
    )  # fmt: skip


def facts_of(rows):
    return facts([
        run(f"r{place}", status=status, ended=ended, invocation_id=unit, kind=kind)
        | {"started_at": began, "created_at": began}
        for place, (unit, kind, began, ended, status) in enumerate(rows)
    ])  # fmt: skip


def weeks_before(n):
    starts = {k: AS_OF - WEEK * k for k in range(n, 0, -1)}
    return [Window(start, start + WEEK, f"w{n - k:02}") for k, start in starts.items()]


def limits_of(rows, n_weeks):
    times = times_of_started(spells_of(rows), weeks_before(n_weeks), AS_OF)
    of_none = times.filter(pl.col("group_kind").is_null())
    of_all = against_its_past(of_none, LIMITS["time_to_complete"])
    kinds = times.filter(group_kind="kind").partition_by("group_id")
    alpha = LIMITS["time_to_complete_by_kind"] / len(kinds)
    return of_all, [against_its_past(of_kind, alpha) for of_kind in kinds]


def verdicts(n, seed, n_weeks, **how):
    draw = Random(seed)
    return Counter(limits_of(fleet(draw, n_weeks, **how), n_weeks)[0]["verdict"] for _ in range(n))


@pytest.mark.slow
def test_what_fails_sooner_is_never_better():
    """The longest runs die early: the others are shorter, and no more complete by any time."""
    found = verdicts(8, 7, 12, since=2, dies_at=0.2)
    assert found["lower"] == 0 and found["unclear"] > 0


@pytest.mark.slow
def test_work_that_is_faster_is_better():
    assert verdicts(6, 8, 12, since=2, times=0.5)["lower"] >= 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "least"), [({"since": 1}, 0.5), ({"since": 2}, 0.8), ({"since": 4}, 0.95)]
)
def test_a_slowdown_by_half_is_told(how, least):
    n = 60
    assert verdicts(n, 11, 10 + how["since"], times=1.5, **how)["higher"] >= least * n


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_weeks", "how"),
    [(12, {}), (10, {"per_week": 100, "week_sd": 0.2}), (26, {"per_week": 60, "unit_sd": 1.0}),
     (12, {"since": 2, "mix": (1, 5, 2, 1)}), (12, {"since": 2, "fails": 0.3})],
)  # fmt: skip
def test_of_unchanged_weeks_hardly_any_is_slower_or_faster(n_weeks, how):
    n, draw, n_false = 100, Random(13), 0
    for _ in range(n):
        of_all, kinds = limits_of(fleet(draw, n_weeks, **how), n_weeks)
        said = [of_all, *(one for one in kinds if one)]
        n_false += any(one["verdict"] in ("higher", "lower") for one in said)
    assert n_false <= 5


@pytest.mark.slow
def test_the_page_says_since_when_it_takes_longer():
    given = facts_of(fleet(Random(1), 11, per_week=60, times=2.5, since=2, unit_sd=0.1))
    window = (AS_OF - WEEK, AS_OF)
    made = report(given, window=window, compare="previous", sections=["headline", "durations"])
    numbers = {one["name"]: one for one in made.summary["headline"]["numbers"]}
    number = numbers["time_to_complete"]
    limits = number["limits"]
    assert limits["verdict"] == "higher" and number["change"]["is_clear"]
    slower = "Slower: median time to complete 37 min 53 s overall since "
    assert made.summary["verdict"].startswith(slower)
    assert "Median time to complete" in made.tripped("regression")[0]
    assert re.fullmatch(r"\d+ of \d+ runs completed", number["counted"])
    low, high = number["interval"]
    assert low < number["weeks"][-1] < high
    assert limits["interval"][1] < number["weeks"][-1]
    page, text = made.as_html(), made.as_markdown()
    assert limits["words"] in page and number["shown"] in page
    assert limits["short"] in text and number["shown_interval"] in text
    kinds = made.summary["durations"]["by_kind"]["rows"]
    assert all(row["limits"]["words"] in page for row in kinds if row["limits"])
    agent = next(row for row in kinds if row["kind"] == "agent")
    assert agent["limits"]["alpha"] == LIMITS["time_to_complete_by_kind"] / 4


def test_runs_that_fail_more_and_take_as_long_are_not_slower():
    draw, rows = Random(6), []
    for row in fleet(Random(5), 12, per_week=80, unit_sd=0.1):
        fails = row[0][:2] in ("0-", "1-") and draw.random() < 0.4
        rows.append((*row[:4], "failed" if fails else row[4]))
    made = report(facts_of(rows), window=(AS_OF - WEEK, AS_OF), sections=["headline"])
    numbers = {one["name"]: one for one in made.summary["headline"]["numbers"]}
    limits = numbers["time_to_complete"]["limits"]
    assert limits["verdict"] == "unclear" and limits["level"] > 1.2 * limits["expected"]
    assert "fewer runs complete: those that do may take as long as before" in limits["words"]
    assert made.summary["verdict"].startswith("Worse than before: completed")
    assert not any("Median" in said for said in made.tripped("regression"))


def test_a_week_without_runs_keeps_its_place():
    rows = [one for one in fleet(Random(3), 14, per_week=3) if one[0][:2] not in ("3-", "4-")]
    made = report(facts_of(rows), window=(AS_OF - WEEK, AS_OF), sections=["headline"])
    numbers = {one["name"]: one for one in made.summary["headline"]["numbers"]}
    times = numbers["time_to_complete"]["weeks"]
    assert len(times) == len(made.summary["headline"]["weeks"])
    assert [place for place, time in enumerate(times, -len(times)) if time is None] == [-5, -4]
    assert "Week by week" in made.as_html()


@pytest.mark.slow
def test_too_few_weeks_have_no_time_to_complete():
    made = report(facts_of(fleet(Random(2), 6, per_week=20)), window=(AS_OF - WEEK, AS_OF))
    assert "time_to_complete" not in [one["name"] for one in made.summary["headline"]["numbers"]]


@pytest.mark.parametrize(
    ("rows", "noun"),
    [
        ([("turn", 0)], "turns"),
        ([("session", 0)], "runs"),
        ([("session", 0), ("session", 1)], "attempts"),
        ([("session", 0), ("turn", 0)], "attempts"),
    ],
)
def test_the_median_names_what_it_is_of(rows, noun):
    """A page of transcripts has more turns than runs, and says so."""
    runs = pl.DataFrame(rows, ["entity_type", "n_resumed"], orient="row")
    assert timed(runs) == f"headline.{noun}"


HAND = spells_of([
    ("a", "agent", AS_OF - timedelta(hours=4), AS_OF - timedelta(hours=3), "completed"),
    ("b", "agent", AS_OF - timedelta(hours=4), AS_OF - timedelta(hours=2), "failed"),
    ("c", "agent", AS_OF - timedelta(hours=4), AS_OF - timedelta(hours=1), "completed"),
])  # fmt: skip


@pytest.mark.parametrize(
    ("others", "until", "seen"),
    [
        ("cut_off", 0, [(1, True), (2, False), (3, True)]),
        ("never", 0, [(1, True), (4, False), (3, True)]),
        ("cut_off", 2.5, [(1, True), (1.5, False), (1.5, False)]),
        ("never", 2.5, [(1, True), (1.5, False), (1.5, False)]),
    ],
)
def test_only_completion_ends_a_time_to_complete(others, until, seen):
    at = pl.lit(AS_OF - timedelta(hours=until))
    found = to_completion(HAND, at, others=others)
    assert found.select(pl.col("duration_s") / 3600, "ended").rows() == seen


@pytest.mark.slow
def test_medians_of_weeks_know_that_fan_outs_are_few_witnesses():
    """Of weeks of 25 runs in fan-outs of similar ones; the naive interval covers in 6 of 10."""
    draw, n, covered = Random(31), 60, 0
    for _ in range(n):
        rows = []
        for unit in range(8):
            effect, began = draw.gauss(0, 0.9), AS_OF - WEEK * draw.random()
            for _ in range(draw.choice([1, 3, 6])):
                lasted = 600 * math.exp(effect + draw.gauss(0, 0.4))
                ended = began + timedelta(seconds=lasted)
                rows.append((f"u{unit}", "agent", began, ended, "completed"))
        week = median_times(spells_of(rows), ["kind"]).row(0, named=True)
        low, high = week["lower"] or 0.0, week["upper"] or math.inf
        covered += low <= 600 <= high
    assert covered >= 0.88 * n


def test_the_order_of_runs_does_not_matter_and_without_any_there_is_nothing():
    runs = spells_of(fleet(Random(4), 9, per_week=20))
    shuffled = runs.sample(fraction=1.0, shuffle=True, seed=1)
    of = times_of_started(runs, weeks_before(9), AS_OF)
    assert of.equals(times_of_started(shuffled, weeks_before(9), AS_OF))
    assert times_of_started(runs.clear(), weeks_before(9), AS_OF).is_empty()
    alone = times_of_started(runs.head(1), weeks_before(9), AS_OF)
    assert alone["n_of"].to_list() in ([1, 1], [])


def test_the_interval_of_a_week_counts_that_its_mix_varies():
    weeks, rows = weeks_before(3), spells_of(fleet(Random(3), 3, per_week=60))
    newest = times_of_started(rows, weeks, AS_OF).filter(
        pl.col("week") == weeks[-1].label, pl.col("group_kind").is_null()
    )
    in_week = rows.filter(pl.col("started_at") >= weeks[-1].since)
    own = median_times(to_completion(in_week, pl.lit(AS_OF)).with_columns(all=1), ["all"])
    ends = newest.select("value", "own_lower", "own_upper").row(0)
    assert ends == pytest.approx(own.select("value", "lower", "upper").row(0))
    relative = newest.select(pl.col("upper") - pl.col("lower")).item()
    assert ends[2] - ends[1] > relative, "multiples of what is usual for a kind vary less"

"""Control limits over many weeks: by hand, by chance alone, and in the report."""

import math
import random
import re
from datetime import UTC, datetime, timedelta
from statistics import NormalDist, fmean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.charts import chart_weeks
from stateanalytics.core.windows import iso_week
from stateanalytics.errors import ArgumentError, MissingColumnsError
from stateanalytics.reporting import report
from stateanalytics.reporting.changes import LIMITS, against_its_past
from stateanalytics.stats import process_control
from stateanalytics.stats.process_control import (
    Point,
    count_back,
    count_point,
    newest_change,
    share_back,
    share_point,
)
from stateanalytics.weekly_limits import control_limits, points_of
from tests import draws
from tests.examples import a_few, examples, some_of
from tests.failures import run
from tests.frames import facts

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
STEADY = (9, 11, 8, 12, 10, 9, 11, 10, 9, 12)


def weeks_of(measure, values, *, n_of=None, coverage="whole", **group):
    """The shape of `Snapshot.weeks`: one number week after week."""
    rows = [
        {
            "week": iso_week(MONDAY + timedelta(weeks=place)), "coverage": coverage,
            "measure": measure, "group_kind": group.get("kind"), "group_id": group.get("id"),
            "value": value / n_of if n_of else float(value), "n": int(value), "n_of": n_of,
            "lower": None, "upper": None, "n_effective": float(n_of) if n_of else None,
        }
        for place, value in enumerate(values)
    ]  # fmt: skip
    schema = dict.fromkeys(("week", "coverage", "measure", "group_kind", "group_id"), pl.String)
    numbers = {"value": pl.Float64, "n": pl.Int64, "n_of": pl.Int64}
    numbers |= dict.fromkeys(("lower", "upper", "n_effective"), pl.Float64)
    return pl.DataFrame(rows, schema=schema | numbers)


def with_ended(weeks, n_ended):
    n_weeks = weeks["week"].n_unique()
    ended = weeks_of("completed", [0] * n_weeks).with_columns(n_of=pl.Series(n_ended))
    return pl.concat([weeks, ended.with_columns(n=pl.col("n_of"), value=1.0)])


def test_a_steady_count_is_within_what_chance_does():
    limited = control_limits(weeks_of("runs", STEADY))
    assert limited["verdict"].to_list() == [None] * 7 + ["within"] * 3
    assert limited["level_since"].drop_nulls().to_list() == ["2026-W02"] * 3
    assert limited["level_before"].null_count() == 10
    assert limited["expected"][-1] == pytest.approx(9.9, abs=0.1)


def test_one_week_that_stands_out_is_a_change_for_that_week_alone():
    limited = control_limits(weeks_of("runs", (*STEADY, 40, 10)))
    assert limited["verdict"].to_list()[7:] == [*["within"] * 3, "above", "within"]
    assert limited["limit_high"][10] < 40
    assert limited["level_since"].to_list()[10:] == ["2026-W12", "2026-W02"]


@pytest.mark.parametrize(
    ("values", "n_of", "measure"),
    [
        pytest.param((*STEADY, 31, 28, 33, 30), None, "runs", id="a count"),
        pytest.param((*[80 + n for n in STEADY], 61, 58, 60, 57), 100, "completed", id="a share"),
        pytest.param((*[600 + n for n in STEADY], 900, 890, 910, 905), None, "time_to_complete",
                     id="a duration"),
    ],
)  # fmt: skip
def test_a_level_says_since_when(values, n_of, measure):
    last = control_limits(weeks_of(measure, values, n_of=n_of)).row(-1, named=True)
    is_more = values[-1] > values[0]
    assert (last["level_since"], last["verdict"]) == ("2026-W12", "above" if is_more else "below")
    assert last["q_value"] == 2 * last["p_value"] < 0.05
    before, now = sum(values[:10]) / 10, sum(values[10:]) / 4
    assert last["level_before"] == pytest.approx(before / (n_of or 1), rel=0.05)
    assert last["level"] == pytest.approx(now / (n_of or 1), rel=0.05)


def shares_of(n, n_of, n_effective):
    weeks = weeks_of("timed_out", n, n_of=1)
    return weeks.with_columns(
        n_of=pl.Series(n_of), n_effective=pl.Series(n_effective, dtype=pl.Float64),
        value=pl.col("n") / pl.Series(n_of),
    )  # fmt: skip


def test_a_rise_is_above_also_in_a_week_too_small_to_show_it():
    n, n_of = [*[1] * 9, 25, 30, 28, 0], [*[1000] * 12, 3]
    limited = control_limits(shares_of(n, n_of, n_of))
    assert limited["verdict"].to_list()[9:12] == ["above"] * 3
    assert limited["verdict"][-1] != "below"


def test_what_later_weeks_show_about_chance_changes_no_verdict_of_before():
    n, n_of = [*[10] * 8, 38, *[10] * 10], [100] * 19
    clear, dependent = [100.0] * 9, [20.0] * 10
    now = control_limits(shares_of(n[:9], n_of[:9], clear))
    later = control_limits(shares_of(n, n_of, [*clear, *dependent]))
    assert now["verdict"][-1] == "above"
    assert later.head(9).equals(now)


def test_three_times_the_work_has_three_times_the_incidents():
    n_ended = [100] * 10 + [300]
    doubled = weeks_of("incidents", (*STEADY, 30))
    verdicts = [
        control_limits(with_ended(doubled, n)).filter(measure="incidents")["verdict"][-1]
        for n in (n_ended, [100] * 11)
    ]
    assert verdicts == ["within", "above"]


def test_durations_that_never_vary_have_limits_of_seconds_and_not_of_nothing():
    same = dict.fromkeys(("lower", "upper"), 600.0) | {"n_effective": 10.0}
    weeks = weeks_of("time_to_complete", [600] * 10 + [720])
    limited = control_limits(weeks.with_columns(**same))
    assert limited["verdict"].to_list()[7:] == [*["within"] * 3, "above"]
    assert 601 < limited["limit_high"][-1] < 720


@examples(30)
@given(st.lists(st.integers(0, 40), min_size=8, max_size=14), st.integers(1, 4))
def test_each_week_has_the_verdict_of_a_report_at_its_end(values, n_series):
    series = [weeks_of("incidents", values, kind="cluster", id=str(i)) for i in range(n_series)]
    limited = control_limits(with_ended(pl.concat(series), [100] * len(values)))
    judged = limited.filter(group_id="0").with_columns(n_ended=100.0)
    for n, row in enumerate(judged.iter_rows(named=True), start=1):
        found = against_its_past(judged.head(n), 0.05 / n_series / 2)
        assert (found is None) == (n < 8) == (row["verdict"] is None)
        if found:
            verdict = {"higher": "above", "lower": "below"}.get(found["verdict"], "within")
            since = row["level_since"] if row["level_before"] is not None else None
            assert (row["verdict"], since) == (verdict, found["since"])
            assert (row["limit_low"], row["limit_high"]) == tuple(found["interval"])
            assert (row["q_value"] <= 0.05) == (verdict != "within")


def test_groups_have_limits_of_their_own():
    other = weeks_of("failure_incidents", STEADY, kind="cluster", id="b")
    mine = weeks_of("failure_incidents", [3 * n for n in STEADY], kind="cluster", id="a")
    weeks = with_ended(pl.concat([other, mine]), [100] * 10)
    expected = control_limits(weeks).group_by("group_id").agg(pl.col("expected").mean())
    by_id = dict(expected.drop_nulls().iter_rows())
    assert by_id["a"] > 2.5 * by_id["b"]


@pytest.mark.parametrize(
    "weeks",
    [
        pytest.param(weeks_of("runs", STEADY[:7]), id="too few weeks"),
        pytest.param(weeks_of("runs", STEADY, coverage="part"), id="weeks in part"),
        pytest.param(weeks_of("failure_causes", STEADY), id="causes"),
        pytest.param(weeks_of("incidents", STEADY), id="nobody knows of how many runs"),
        pytest.param(weeks_of("completed", [0] * 10, n_of=0), id="nothing to share"),
        pytest.param(weeks_of("runs", ()), id="no weeks"),
    ],
)
def test_where_nothing_is_known_there_are_no_limits(weeks):
    limited = control_limits(weeks)
    assert limited.height == weeks.height
    assert limited["verdict"].null_count() == limited.height


def test_the_chart_draws_limits_where_there_are_any():
    weeks = weeks_of("runs", STEADY).with_columns(
        lower=pl.lit(None, pl.Float64), upper=pl.lit(None, pl.Float64), unit=pl.lit("runs"),
        group_label=pl.lit(None, pl.String),
    )  # fmt: skip
    n_layers = [
        len(chart_weeks(drawn).to_dict()["concat"][0]["layer"])
        for drawn in (weeks, control_limits(weeks))
    ]
    assert n_layers == [3, 5]


def test_what_makes_no_sense_is_refused():
    with pytest.raises(MissingColumnsError, match="control_limits needs columns"):
        control_limits(pl.DataFrame({"week": ["2026-W21"]}))
    with pytest.raises(ArgumentError, match="fdr must be a share"):
        control_limits(weeks_of("runs", STEADY), fdr=2)


def test_the_order_of_rows_does_not_matter():
    weeks = weeks_of("runs", (*STEADY, 31, 28, 33, 30))
    again = control_limits(weeks.reverse()).reverse()
    assert again.equals(control_limits(weeks))


@pytest.mark.parametrize("n", [0, 1, 40])
def test_scales_lead_back(n):
    assert count_back(count_point(n, 7.0).value, 7.0) == pytest.approx(n)
    assert share_back(share_point(n, 40).value, 40) == pytest.approx(n / 40)


@pytest.mark.slow
@pytest.mark.parametrize("n_weeks", [8, 26])
def test_of_a_whole_report_nothing_is_told_by_chance_in_19_of_20(n_weeks):
    """Two shares of fan-outs that are alike, and incidents of weeks that differ."""
    n, n_told, rng = 2400 // n_weeks, 0, random.Random()
    for _ in range(n):
        shares = [
            weeks_of(name, [sum(draws.alike(rng, 24, share, 0.3) for _ in range(5))
                            for _ in range(n_weeks)], n_of=120)
            for name, share in (("completed", 0.8), ("timed_out", 0.05))
        ]  # fmt: skip
        incidents = [draws.negative_binomial(rng, 10, 0.1) for _ in range(n_weeks)]
        weeks = pl.concat([*shares, weeks_of("incidents", incidents)])
        # Of 24 runs of one fate, 3.04 are independent.
        limited = control_limits(weeks.with_columns(pl.col("n_effective") / (1 + 23 * 0.3)))
        last = limited.filter(pl.col("week") == limited["week"].max())
        n_told += (last["verdict"] != "within").any()
    assert n_told / n <= 0.05 + 3 * (0.05 * 0.95 / n) ** 0.5


def many_weeks(n_failed, n_runs=20):
    """As many failed runs in each week, a day apart from each other, among so many."""
    rows = []
    for week, n in enumerate(n_failed):
        for place in range(n_runs):
            is_bad = place < n
            rows.append(
                run(
                    f"w{week}r{place}",
                    status="failed" if is_bad else "completed",
                    ended=MONDAY + timedelta(weeks=week, hours=1 + place * 8),
                    invocation_id=f"i{week}-{place}",
                    reason_code=f"run.failed.exception_{place}" if is_bad else None,
                )
            )
    return facts(rows, as_of=MONDAY + timedelta(weeks=len(n_failed)))


@pytest.fixture(scope="module")
def step():
    """Nine weeks of few failures, then four of many."""
    facts_of_it = many_weeks((2, 3, 1, 2, 3, 2, 1, 2, 3, 12, 11, 13, 12))
    return report(facts_of_it, window="2026-W14", sections=["headline"])


def test_the_report_says_since_when_a_number_is_another(step):
    said = {each["name"]: each.get("limits") for each in step.summary["headline"]["numbers"]}
    assert said["runs"] is None
    completed = said["completed"]
    assert completed["since"] == "2026-W11"
    assert completed["words"].startswith("Lower since 2026-W11: 40 % (95 %: ")
    assert completed["words"].endswith("), before 90 %")
    assert said["incidents"]["words"].startswith("Higher since 2026-W11: 12 (95 %: ")
    assert completed["words"] in step.as_html()


@pytest.mark.slow
def test_what_doubled_and_stays_is_worse_in_each_week_by_verdict_tile_row_and_alert():
    """Until the new level is the usual one; before that, and of a week that is over, nothing."""
    weeks = (2, 3, 1, 2, 3, 2, 1, 2, 3, 12, 11, 13, 12)
    verdicts = []
    for n in (9, 10, 11, 13):
        made = report(
            many_weeks(weeks[:n]), window=f"2026-W{n + 1:02}", compare="previous",
            sections=["headline"],
        )  # fmt: skip
        summary = made.summary
        verdicts.append(summary["lead"][0] if n == 9 else summary["verdict"])
        numbers = {each["name"]: each for each in summary["headline"]["numbers"]}
        assert numbers["completed"]["limits"]["normal"] in summary["lead"][0]
        has_changed = numbers["completed"]["limits"]["verdict"] == "lower"
        assert has_changed == numbers["completed"]["change"]["is_clear"] == (n > 9)
        assert bool(made.tripped("regression")) == has_changed
    assert verdicts[0] == (
        "17 of 20 ended runs completed (85 %), normal range 66 to 100 %. No significant change."
    )
    assert [words.partition(" since ")[0] for words in verdicts[1:]] == [
        f"Worse than before: completed, {level} % overall" for level in (40, 42, 40)
    ]
    assert all(" since 2026-W11, " in words for words in verdicts[1:])
    whole = report(many_weeks(weeks[:10]), window="2026-W11", compare="previous").summary
    assert whole["verdict"].startswith("Worse than before: ")
    assert re.search(
        r"Why: since .*, the share of incomplete runs rose by \d+ points against "
        "all runs before: ",
        whole["story"]["explained"],
    )
    over = report(many_weeks((*weeks[:9], 13, 2)), window="2026-W12", compare="previous")
    assert over.summary["lead"][0].endswith("normal range 13 to 100 %. No significant change.")
    assert over.summary["story"]["parts"] == []
    assert over.summary["story"]["explained"] == (
        "Why: 1 of 2 failed or timed-out runs had “run.failed.exception_1” and 1 "
        "“run.failed.exception_0”."
    )


def test_what_was_open_at_the_end_of_each_week_is_drawn():
    """Of five weeks: one run is open over two of their ends, another from the fourth on."""
    weeks = [MONDAY + timedelta(weeks=n) for n in range(5)]
    earlier = MONDAY - timedelta(weeks=1)
    rows = [run(f"{day:%d}", status="completed", ended=day + HOUR) for day in (earlier, *weeks)]
    long = {**run("long", status="completed", ended=weeks[3] + HOUR), "started_at": weeks[1]}
    open_ = {**run("open", status="running"), "started_at": weeks[3], "ended_at": None}
    told = report(
        facts([*rows, long, open_], as_of=weeks[4] + 24 * HOUR),
        window=(weeks[4], weeks[4] + 168 * HOUR),
        sections=["headline"],
    )
    unresolved = next(n for n in told.summary["headline"]["numbers"] if n["name"] == "unresolved")
    assert unresolved["weeks"] == [0, 1, 1, 1, 1]
    # The card shows no bars of another number than its own.
    assert unresolved["drawn"] not in told.as_html()
    assert unresolved["drawn"] in told.as_markdown()


@pytest.mark.slow
def test_the_report_of_a_steady_store_says_so():
    steady = report(
        many_weeks((2, 3, 1, 2, 3, 2, 1, 2, 3)), window="2026-W10", sections=["headline"]
    )
    said = {each["name"]: each.get("limits") for each in steady.summary["headline"]["numbers"]}
    assert said["completed"]["words"] == "Within 66 to 100 %"


def test_a_report_of_few_weeks_says_nothing_of_levels(demo_week):
    assert all("limits" not in each for each in demo_week.summary["headline"]["numbers"])


SERIES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=0, max_size=30)


@examples(100)
@given(SERIES, st.randoms(use_true_random=False))
def test_a_week_within_its_printed_range_alone_is_called_unchanged(weeks, order):
    points = [share_point(n, n + more) for n, more in weeks if n + more]
    found = newest_change(points)
    if len(points) < 5:
        assert found is None
        return
    if found.start is None:
        assert found.low - 1e-9 <= points[-1].value <= found.high + 1e-9
    else:
        newest = points[-1].value
        assert abs(newest - found.level) <= abs(newest - found.before)
        assert found.level_low <= found.level <= found.level_high
    old = points[:-8]
    order.shuffle(old)
    again = newest_change([*old, *points[-8:]]) if len(points) > 12 else found
    assert again.start == found.start and again.level == found.level


def test_the_chance_of_a_change_is_the_mean_over_all_that_weeks_may_vary_by(monkeypatch):
    """Two weeks at 0 and two at 2, then one at 4; by chance alone, or as much again as well."""
    points = [Point(value, 1.0) for value in (0.0, 2.0, 0.0, 2.0, 4.0)]
    monkeypatch.setattr(process_control, "_inflation", lambda n: 1)  # weeks that do not persist
    monkeypatch.setattr(process_control, "SPREADS", {0.0: 1.0, 1.0: 1.0})
    # Squares of 4 in three degrees of freedom, at a variance of 1 and of 2.
    odds = math.exp(-4 / 2) / (math.exp(-4 / 4) / 2**1.5)
    near, far = (NormalDist().cdf(-3 / (each * (1 + 1 / 4)) ** 0.5) for each in (1, 2))
    mean = (odds * near + far) / (odds + 1)
    assert newest_change(points).p_value == pytest.approx(mean / process_control.WORSE_SHARE)


@examples(50)
@given(st.lists(st.integers(5, 15), min_size=9, max_size=20), st.integers(16, 60))
def test_the_more_the_weeks_before_differ_the_less_likely_is_a_change(values, last):
    """By half as much again from their mean, which is the same."""
    near = [count_point(n, 1.0) for n in values]
    mean = fmean(point.value for point in near)
    far = [Point(mean + 1.5 * (point.value - mean), point.weight) for point in near]
    newest = count_point(last, 1.0)
    found, again = (newest_change([*weeks, newest], most_new=1) for weeks in (near, far))
    assert again.p_value >= found.p_value - 1e-12
    assert again.high - again.before >= found.high - found.before - 1e-9


def fleets(n, before, since=(), per_week=300):
    """Shares of completed runs of as many fleets, week by week: binomial, by random bits."""
    draw = random.Random(repr((n, before, since, per_week)))
    for _ in range(n):
        yield [
            share_point(sum(draw.random() < share for _ in range(per_week)), per_week)
            for share in (*before, *since)
        ]


def test_the_worse_is_said_before_the_better():
    usual = [count_point(n, 1.0) for n in STEADY]
    for worse, last in ((1, 20), (-1, 4)):
        found = [newest_change([*usual, count_point(last, 1.0)], worse=side).start is not None
                 for side in (worse, -worse)]  # fmt: skip
        assert found == [True, False], last
    up, down = (newest_change(usual, worse=side) for side in (1, -1))
    assert up.before == down.before
    assert up.high < down.high and up.low < down.low


def test_what_units_have_in_common_is_that_of_the_usual_week_or_the_worse():
    series = weeks_of("completed", [90] * 9, n_of=100).with_columns(
        n_effective=pl.Series([50.0, 50.0, 50.0, 100.0, 100.0, 40.0, 50.0, 50.0, 10.0])
    )
    weights = [point.weight for point in points_of(series)[1]]
    assert weights == pytest.approx([100.5 / 2] * 5 + [100.5 / 2.5] + [100.5 / 2] * 2 + [10.05])


@pytest.mark.parametrize(
    ("ends", "spread"),
    [
        # Standard errors of .1, of eight times ten units and of forty.
        pytest.param((600 * math.exp(-0.196), 600 * math.exp(0.196)), 1.2 / 9, id="known"),
        pytest.param((None, None), math.pi / 2, id="not bounded"),
        pytest.param((600.0, 600.0), 0.01, id="the same"),
    ],
)
def test_a_median_is_as_sure_as_its_interval_says(ends, spread):
    bounds = {
        name: pl.lit(end, pl.Float64) for name, end in zip(("lower", "upper"), ends, strict=True)
    }
    series = weeks_of("time_to_complete", [600] * 9).with_columns(
        **bounds, n_effective=pl.Series([10.0] * 8 + [40.0])
    )
    weights = [point.weight for point in points_of(series)[1]]
    assert weights == pytest.approx([10 / spread] * 8 + [40 / spread], rel=0.001)


def wandering_shares(draw, n_weeks, persistence, times, per_week=140):
    """Points of weeks whose odds wander, by ``times`` what chance does, and their true shares."""
    sigma = times / math.sqrt(per_week * 0.9 * 0.1)
    level, shares, points = draw.gauss(0, sigma), [], []
    for _ in range(n_weeks):
        shares.append(1 / (1 + math.exp(-level) / 9))
        n = round(draw.gauss(per_week, 1.5 * math.sqrt(per_week)))
        points.append(share_point(sum(draw.random() < shares[-1] for _ in range(n)), n))
        level = persistence * level + draw.gauss(0, sigma * math.sqrt(1 - persistence**2))
    return points, shares


WANDER = [
    # Weeks, autocorrelation, deviation over that of chance, and the share that may be called.
    (12, 0.7, 2.0, 0.08), (12, 0.0, 0.5, 0.02), (26, 0.0, 1.0, 0.03), (8, 0.0, 2.0, 0.05),
    (12, 0.3, 1.0, 0.035), (8, 0.3, 2.0, 0.06), (12, 0.3, 2.0, 0.05), (8, 0.5, 1.0, 0.04),
    (26, 0.5, 1.0, 0.05), (26, 0.5, 2.0, 0.04), (12, 0.7, 1.0, 0.06), (26, 0.7, 1.0, 0.07),
    (8, 0.7, 2.0, 0.09), (9, 0.0, 0.0, 0.02), (12, 0.9, 2.0, 0.11), (26, 0.9, 2.0, 0.16),
    (8, 0.5, 2.0, 0.08), (12, 0.5, 1.0, 0.05), (12, 0.5, 2.0, 0.06),
]  # fmt: skip


@pytest.mark.parametrize(("n_weeks", "persistence", "times", "most"), a_few(WANDER, 2))
def test_weeks_that_wander_are_seldom_a_change(n_weeks, persistence, times, most):
    """And hardly ever where the true shares of those weeks differ by less than half of it."""
    draw = random.Random(f"{n_weeks} {persistence} {times}")
    n, n_called, n_wrong = some_of(800, 2), 0, 0
    for _ in range(n):
        points, shares = wandering_shares(draw, n_weeks, persistence, times)
        found = newest_change(points, alpha=LIMITS["completed"], worse=-1)
        if found.start is not None:
            true = fmean(shares[found.start :]) - fmean(shares[: found.start])
            said = share_back(found.level, 140) - share_back(found.before, 140)
            n_called, n_wrong = n_called + 1, n_wrong + (true / said < 0.5)
    assert n_called / n <= most + 3 * math.sqrt(most * (1 - most) / n)
    assert n_wrong / n <= 0.03 + 3 * math.sqrt(0.03 * 0.97 / n)


@pytest.mark.slow
def test_a_lower_share_is_found_in_time_and_hardly_ever_made_up():
    for since, per_week, least in (
        ((0.72,), 300, 0.97), ((0.8,), 300, 0.95), ((0.8, 0.8), 300, 0.97),
        ((0.72,), 100, 0.95), ((0.8,), 100, 0.6), ((0.8, 0.8), 100, 0.75), ((0.8,) * 4, 100, 0.75),
    ):  # fmt: skip
        series = list(fleets(60, (0.9,) * 10, since, per_week))
        found = [newest_change(points, alpha=LIMITS["completed"], worse=-1) for points in series]
        assert sum(one.start is not None for one in found) >= least * 60, (since, per_week)

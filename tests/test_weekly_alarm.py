"""An alarm on this week's failures: the evidence, its honesty at every look, and who is told."""

import math
import random
from contextlib import closing
from datetime import timedelta

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.schema import MOMENT
from stateanalytics.core.windows import Window
from stateanalytics.errors import ArgumentError
from stateanalytics.failures.weekly_change import dispersions
from stateanalytics.stats.process_control import UsualRate, evidence_of_more, usual_rate
from stateanalytics.weekly_limits import ALARM, failure_alarm
from tests import draws
from tests.lionagi_stores import NOW_S, session, write_store
from tests.test_control_limits import MONDAY, many_weeks
from tests.test_live import Clock, write

USUAL = (2, 3, 1, 2, 3, 2, 1, 2, 3)


def test_evidence_is_a_ratio_of_negative_binomial_probabilities():
    usual, n, exposure = UsualRate(shape=3.0, exposure=30.0), 4, 10.0

    def probability(rate_exposure):
        """Of no event in the first half of the exposure, and all four after it, in some order."""
        share = exposure / (rate_exposure + exposure)
        return (1 - share) ** usual.shape * share**n

    expected = [
        probability(usual.exposure / ratio) / probability(usual.exposure)
        for ratio in (1.5, 2.0, 3.0, 5.0, 10.0)
    ]
    assert evidence_of_more(n, exposure, usual) == pytest.approx(sum(expected) / 5)


def test_nothing_seen_is_no_evidence():
    assert evidence_of_more(0, 0.0, UsualRate(3.0, 30.0)) == pytest.approx(1.0)
    assert evidence_of_more(0, 50.0, UsualRate(3.0, 30.0)) < 1


def test_a_week_in_which_all_of_a_busy_fleet_failed_is_an_alarm_too():
    evidence = evidence_of_more(1000, 1000.0, UsualRate(800.0, 8000.0))
    assert math.isfinite(evidence)
    assert evidence > 1e100


def test_weeks_that_differ_say_less_of_what_is_usual():
    alike = usual_rate([10] * 8, [100.0] * 8)
    unlike = usual_rate([2, 18, 5, 15, 10, 10, 1, 19], [100.0] * 8)
    assert alike.mean == pytest.approx(unlike.mean)
    assert alike.shape > 5 * unlike.shape
    assert usual_rate([0] * 8, [10.0] * 8).mean > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_now", "is_alarm"),
    [pytest.param(3, False, id="as usual"), pytest.param(16, True, id="far more")],
)
def test_the_alarm_of_a_week(n_now, is_alarm):
    snap = many_weeks((*USUAL, 2, n_now))
    alarm = failure_alarm(snap)
    assert dict(alarm.schema) == dict(ALARM.dtypes)
    row = alarm.row(0, named=True)
    assert (row["week"], row["n_incidents"], row["n_runs"]) == ("2026-W12", n_now, 20)
    assert (row["is_alarm"], row["n_weeks"]) == (is_alarm, 9)
    assert row["n_expected"] == pytest.approx(2.1, abs=0.3)
    assert (row["evidence"] >= 20) is is_alarm


@pytest.mark.slow
def test_what_this_week_brings_does_not_change_how_it_is_read():
    usual, bad = (failure_alarm(many_weeks((*USUAL, 2, n))) for n in (2, 16))
    assert usual["dispersion"].item() == bad["dispersion"].item()


def test_too_few_weeks_raise_no_alarm():
    row = failure_alarm(many_weeks((2, 20))).row(0, named=True)
    assert (row["is_alarm"], row["evidence"], row["n_weeks"]) == (False, None, 0)
    with pytest.raises(ArgumentError, match="alpha must be a share"):
        failure_alarm(many_weeks((2,)), alpha=5)


@pytest.mark.slow
def test_watch_tells_an_alarm_once_a_week(tmp_path):
    day_s = 86_400
    ended = [
        session(
            f"w{week}r{place}",
            status="failed" if place == 0 else "completed",
            started_at=NOW_S - week * 7 * day_s - place * 3000 - 60,
            ended_at=NOW_S - week * 7 * day_s - place * 3000,
        )
        for week in range(1, 12)
        for place in range(20)
    ]
    running = [
        session(f"r{i}", status="running", ended_at=None, last_message_at=NOW_S - 1)
        for i in range(9)
    ]
    path = write_store(tmp_path / "state.db", sessions=[*ended, *running])

    def fail(*names):
        ids = ", ".join(f"'{name}'" for name in names)
        return write(
            path,
            f"UPDATE sessions SET status = 'failed', ended_at = {NOW_S} + rowid % 20 * 1000 "
            f"WHERE id IN ({ids})",
        )

    clock, alarms = Clock(fail("r0"), fail(*(f"r{i}" for i in range(1, 8))), fail("r8")), []
    with sa.read(path, as_of=clock.now, progress=False) as snap:
        seen = sa.watch(
            snap, clock=clock, sleep=clock.sleep, every_s=day_s / 2, on_alarm=alarms.append
        )
        with closing(seen):
            n_alarms = [len(alarms) for _ in range(3) if next(seen) is not None]
    assert n_alarms == [0, 1, 1]
    assert alarms[0]["in_words"].item().endswith("however often it is checked.")


@pytest.mark.slow
@pytest.mark.parametrize("n_weeks", [8, 26])
@pytest.mark.parametrize("excess", [0, 0.1, 0.5], ids=["alike", "differ", "differ much"])
def test_usual_weeks_raise_an_alarm_in_at_most_one_of_20(excess, n_weeks):
    """Looked at 50 times each, of 1,000 weeks."""
    rng, n = random.Random(), 1000
    assert sum(first_alarm(rng, n_weeks, excess) is not None for _ in range(n)) / n <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4, 8])
def test_bursts_raise_no_more_alarms(size):
    """Failures at one moment, so many together: days before say what they count."""
    rng, n, n_weeks = random.Random(), 300, 12
    now = Window(day(7 * n_weeks), day(7 * n_weeks + 7), "now")
    runs = pl.DataFrame({"at": [day(at / 5) for at in range(n_weeks * 35)]})
    n_alarms = 0
    for _ in range(n):
        *before, this = (
            [7 * rng.random() for _ in range(draws.poisson(rng, 12 / size))]
            for _ in range(n_weeks + 1)
        )
        weeks = [[at for at in week for _ in range(draws.burst(rng, size))] for week in before]
        moments = [day(7 * week + at) for week, each in enumerate(weeks) for at in each]
        seen = pl.DataFrame({"at": moments}, schema={"at": MOMENT})
        found = dispersions(seen.with_columns(cluster_id=pl.lit("all")), runs, now)
        spread = found["dispersion"].item() if found.height else 1.0
        usual = usual_rate([len(week) / spread for week in weeks], [100 / spread] * n_weeks)
        count = 0
        for at in sorted(this):
            count += draws.burst(rng, size)
            if evidence_of_more(count / spread, 100 * at / 7 / spread, usual) >= 20:
                n_alarms += 1
                break
    assert n_alarms / n <= 0.05 + 3 * (0.05 * 0.95 / n) ** 0.5


def day(at):
    return MONDAY + timedelta(days=at)


@pytest.mark.slow
def test_four_times_the_usual_rate_is_told_before_the_middle_of_the_week():
    rng, n = random.Random(), 300
    looks = [first_alarm(rng, 12, 0, times=4) for _ in range(n)]
    told = sorted(look for look in looks if look is not None)
    assert len(told) / n > 0.9
    assert told[len(told) // 2] < 25


def first_alarm(rng, n_weeks, excess, *, times=1):
    """At which of 50 looks at a week the alarm comes; None: at none."""

    def rate():
        return rng.gammavariate(1 / excess, 0.1 * excess) if excess else 0.1

    exposures = [rng.choice((60.0, 100.0, 180.0)) for _ in range(n_weeks)]
    usual = usual_rate([draws.poisson(rng, rate() * each) for each in exposures], exposures)
    n, now = 0, times * rate()
    for look in range(50):
        n += draws.poisson(rng, now * 2)
        if evidence_of_more(n, 2.0 * (look + 1), usual) >= 20:
            return look
    return None

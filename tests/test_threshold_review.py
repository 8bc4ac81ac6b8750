"""Was the advice right: limits that change at a known week, and what was promised of them."""

import random
from datetime import UTC, datetime, timedelta

import pytest

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.reporting import report
from stateanalytics.thresholds import review
from stateanalytics.thresholds.promises import _in_words
from tests.frames import facts
from tests.lionagi_stores import NOW_S, session, write_store

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
CHANGE = 4
"""The week in which the limit changes."""


def weeks_of_runs(before_s, after_s, *, slower=1.0, n_weeks=8, n=150, free=0.0, seed=7):
    """Lognormal runs under a limit that changes; since then they may be slower."""
    rng, rows = random.Random(seed), []
    for week in range(n_weeks):
        limit = before_s if week < CHANGE else after_s
        for place in range(n):
            wants = rng.lognormvariate(6.4, 0.8) * (slower if week >= CHANGE else 1.0)
            limit_s = 14_400.0 if rng.random() < free else limit
            is_stopped = wants > limit_s
            started = MONDAY + timedelta(weeks=week, hours=1 + place)
            ended = started + timedelta(seconds=min(wants, limit_s))
            rows.append({
                **dict.fromkeys(("entity_id", "session_id"), f"w{week}r{place}"),
                **dict.fromkeys(("created_at", "started_at"), started),
                **dict.fromkeys(("ended_at", "last_message_at"), ended),
                "invocation_id": f"i{week}-{place}", "kind": "flow", "timeout_s": limit_s,
                "timeout_from": "checkpoint", "end_written_by": "executor",
                "raw_status": "timed_out" if is_stopped else "completed",
            })  # fmt: skip
    return facts(rows, as_of=MONDAY + timedelta(weeks=n_weeks))


def by_measure(frame):
    return {row["measure"]: row for row in frame.iter_rows(named=True)}


def test_a_shorter_limit_ends_as_many_as_promised():
    found = by_measure(review(weeks_of_runs(3600.0, 1200.0)))
    assert list(found) == ["closed"]
    closed = found["closed"]
    assert (closed["before_s"], closed["after_s"]) == (3600.0, 1200.0)
    assert closed["changed_at"] == MONDAY + timedelta(weeks=CHANGE, hours=1)
    # Of runs with median 602 s and sigma 0.8, 19 % take longer than 1,200 s.
    assert closed["promised_low"] < 19.4 < closed["promised_high"]
    assert closed["since_low"] < 19.4 < closed["since_high"]
    assert (closed["verdict"], closed["n_units"]) == ("as_promised", 600)
    assert closed["in_words"].endswith("(600 invocations): as forecast.")


def test_of_a_hundred_runs_at_most_a_hundred_count():
    """One run is one invocation, and its interval ends where all runs do."""
    row = {"name": "timeout.flow", "before_s": 60.0, "after_s": 90.0, "changed_at": MONDAY}
    row |= {"per": "100 runs", "measure": "closed", "before": None, "promised": None}
    row |= {"since": 100.0, "since_low": 1.3, "since_high": 556.0}
    words = _in_words({**row, "n_units": 1, "verdict": "cannot_tell"})
    assert "no forecast, 100 (1.3 to 100) since (1 invocation): " in words


def test_work_that_became_slower_breaks_the_promise():
    found = by_measure(review(weeks_of_runs(3600.0, 1200.0, slower=2.0)))
    assert found["closed"]["verdict"] == "not_as_promised"
    assert found["closed"]["in_words"].endswith(": not as forecast.")


def test_nothing_can_be_promised_beyond_a_limit_that_stopped_all():
    found = by_measure(review(weeks_of_runs(600.0, 3600.0)))
    assert list(found) == ["closed", "saved"]
    assert {row["promised"] for row in found.values()} == {None}
    assert {row["verdict"] for row in found.values()} == {"cannot_tell"}
    # About 49 % take longer than 600 s and less than 3,600 s.
    assert found["saved"]["since_low"] < 49 < found["saved"]["since_high"]


def test_a_trial_lets_a_longer_limit_be_promised():
    found = by_measure(review(weeks_of_runs(600.0, 1800.0, free=0.4)))
    # 42 % take longer than 600 s and less than 1,800 s.
    assert found["saved"]["promised_low"] < 42 < found["saved"]["promised_high"]
    assert found["saved"]["verdict"] == "as_promised"


def test_few_invocations_cannot_tell():
    found = by_measure(review(weeks_of_runs(3600.0, 1200.0, n=4)))
    assert found["closed"]["verdict"] == "cannot_tell"


def test_a_limit_that_never_changed_has_no_review(demo):
    assert review(weeks_of_runs(1200.0, 1200.0)).is_empty()
    assert review(facts([])).is_empty()


def test_what_somebody_remembers_is_reviewed(demo):
    found = review(demo, changes={"slow": ("2026-05-20", 1800, 3600)})
    row = found.filter(name="slow").row(0, named=True)
    assert (row["measure"], row["per"]) == ("false_alarms", "100 runs")
    assert row["before"] >= row["promised"]
    assert row["promised_low"] <= row["promised"] <= row["promised_high"]


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Six weeks that two archivings kept, the first of which the store has forgotten since."""
    tmp_path = tmp_path_factory.mktemp("review")
    rng, day_s = random.Random(3), 86_400
    sessions = []
    for week in range(6):
        for place in range(40):
            wants, limit_s = rng.lognormvariate(6.4, 0.8), 3600 if week < 3 else 1200
            begun = NOW_S - (6 - week) * 7 * day_s + place * 10_000
            sessions.append(
                session(
                    f"w{week}r{place}", started_at=begun, created_at=begun,
                    ended_at=begun + min(wants, limit_s), invocation_kind="flow",
                    status="timed_out" if wants > limit_s else "completed",
                    node_metadata=f'{{"timeout_seconds": {limit_s}}}',
                )
            )  # fmt: skip
    for name, held in (("old", sessions[:120]), ("new", sessions[120:])):
        (tmp_path / name).mkdir()
        path = write_store(tmp_path / name / "state.db", sessions=held)
        with sa.read(path, progress=False) as snap:
            snap.archive(tmp_path / "history")
    return tmp_path / "history"


def test_an_archive_knows_when_a_setting_changed(history):
    closed = by_measure(review(sa.read(history, progress=False)))["closed"]
    assert (closed["before_s"], closed["after_s"]) == (3600.0, 1200.0)
    assert closed["verdict"] != "not_as_promised"


@pytest.mark.slow
def test_the_report_and_the_command_say_what_came_of_a_change(history, capsys):
    snap = sa.read(history, progress=False)
    words = review(snap)["in_words"].to_list()
    said = report(snap, sections=["thresholds"]).summary["thresholds"]["review"]
    assert [row["in_words"] for row in said["rows"]] == words
    assert run(["thresholds", str(history), "--review", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("timeout.flow,")

"""Changes of severity are told as they happen, and the writer never waits."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context

import polars as pl
import pytest

import stateanalytics as sa
from benchmarks.bench_watch import MOST_GROWTH_MB, N_SESSIONS, followed
from stateanalytics import live, snapshot
from stateanalytics.errors import ArgumentError, StoreBusyError
from stateanalytics.systems import reading
from tests.examples import some_of
from tests.frames import AS_OF
from tests.generators import write_store as write_generated
from tests.lionagi_stores import NOW_S, listing, session, write_store, wrote

RUNNING = {"status": "running", "ended_at": None, "last_message_at": NOW_S - 1}


UNBUFFERED = {"PYTHONUNBUFFERED": "1"}


@pytest.fixture
def path(tmp_path):
    return write_store(
        tmp_path / "state.db",
        sessions=[session("a", **RUNNING), session("b", name="b")],
        branches=[{"id": "x", "session_id": "a", "progression_id": "list-x"}],
        progressions=[listing("list-x", ["m"])],
    )


class Clock:
    """A clock that a test moves, and that does something before each look."""

    def __init__(self, *steps):
        self.now, self.steps = AS_OF, list(steps)

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += timedelta(seconds=seconds)
        if self.steps:
            self.steps.pop(0)()


def write(path, sql):
    def step():
        wrote(path, sql)

    return step


def nothing():
    pass


def looks(path, clock, n, **options):
    with sa.read(path, as_of=AS_OF, progress=False) as snap:
        seen = sa.watch(snap, clock=clock, sleep=clock.sleep, **options)
        found = [
            frame.select("entity_id", "severity_before", "severity").rows()
            for frame, _ in zip(seen, range(n), strict=False)
        ]
        seen.close()
        return found


@pytest.mark.slow
def test_a_failure_is_told_once(path):
    fail = write(path, "UPDATE sessions SET status = 'failed' WHERE id = 'a'")
    assert looks(path, Clock(nothing, fail, nothing), 3) == [[], [("a", "info", "critical")], []]


@pytest.mark.slow
def test_an_alarm_is_told_once_and_only_looked_for_where_something_changed(path, monkeypatch):
    asked, told = [], []

    def alarm(snap, *, policy):
        asked.append(snap.as_of)
        return pl.DataFrame({"week": ["2026-W22"], "is_alarm": [len(asked) > 1]})

    monkeypatch.setattr(live, "failure_alarm", alarm)
    steps = [write(path, f"UPDATE sessions SET status = '{word}' WHERE id = 'a'")
             for word in ("failed", "aborted", "failed")]  # fmt: skip
    looks(path, Clock(nothing, *steps), 4, on_alarm=told.append)
    assert (len(asked), len(told)) == (3, 1)


@pytest.mark.slow
def test_an_escalation_is_told_once_until_it_calms_down(path, monkeypatch):
    seen, told = [["x"], ["x", "y"], [], ["x"]], []

    def found(snap, *, policy):
        return pl.DataFrame({"cluster_id": seen.pop(0)}, schema={"cluster_id": pl.String})

    monkeypatch.setattr(live, "escalating", found)
    steps = [write(path, f"UPDATE sessions SET status = '{word}' WHERE id = 'a'")
             for word in ("failed", "aborted", "failed", "aborted")]  # fmt: skip
    looks(path, Clock(nothing, *steps), 5,
          on_escalating=lambda news: told.append(news["cluster_id"].to_list()))  # fmt: skip
    assert told == [["x"], ["y"], ["x"]]


@pytest.mark.slow
def test_what_is_new_and_bad_is_told_and_what_is_new_and_well_is_not(path):
    columns = "(id, progression_id, status, started_at)"
    new = f"INSERT INTO sessions {columns} VALUES ('{{}}', 'p', '{{}}', 1)"
    bad, well = write(path, new.format("c", "failed")), write(path, new.format("d", "completed"))
    assert looks(path, Clock(bad, well), 2) == [[("c", None, "critical")], []]


@pytest.mark.slow
def test_what_is_gone_is_told(path):
    gone = write(path, "DELETE FROM sessions WHERE id = 'a'")
    assert looks(path, Clock(gone), 1) == [[("a", "info", None)]]


def test_silence_alone_changes_a_severity(path):
    worse = [("a", "info", "warning")], [("a", "warning", "critical")]
    assert looks(path, Clock(), 3, every_s=4 * 3600) == [*worse, []]


def test_a_policy_says_what_is_bad(path):
    limits = {"idle_after_s": 1e9, "stalled_after_default_s": 1e9, "stalled_after_s": ()}
    patient = sa.Policy.v1().replace(**limits)
    assert looks(path, Clock(), 2, every_s=4 * 3600, policy=patient) == [[], []]


@pytest.mark.slow
def test_a_store_that_nobody_touched_is_not_copied_again(path, monkeypatch):
    clock = Clock(nothing, nothing, write(path, "UPDATE sessions SET status = 'failed'"))
    read = []
    copied = reading.open_store

    def counted(path, **options):
        read.append(clock.now)
        return copied(path, **options)

    monkeypatch.setattr(reading, "open_store", counted)
    looks(path, clock, 3)
    assert len(read) == 2


@pytest.mark.slow
def test_a_store_that_is_busy_is_tried_again(path, monkeypatch):
    fail = write(path, "UPDATE sessions SET status = 'failed' WHERE id = 'a'")
    refresh, refused = sa.Snapshot.refresh, []

    def busy_once(self, **options):
        if not refused:
            refused.append(1)
            raise StoreBusyError("busy", "wait")
        return refresh(self, **options)

    monkeypatch.setattr(sa.Snapshot, "refresh", busy_once)
    assert looks(path, Clock(fail), 2) == [[], [("a", "info", "critical")]]


@pytest.mark.slow
def test_private_copies_of_looks_that_are_over_are_deleted(path, tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    touch = write(path, "UPDATE sessions SET updated_at = updated_at + 1")
    looks(path, Clock(*[touch] * 4), 4)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("every_s", [0, -1, float("nan")])
def test_no_time_between_looks_is_refused(path, every_s):
    with pytest.raises(ArgumentError, match="every_s needs a number above 0"):
        next(sa.watch(sa.read(path, progress=False), every_s=every_s))


@pytest.mark.slow
def test_the_command_prints_changes_until_it_is_interrupted(path):
    """A real process beside a real writer, which never waits."""
    command = [sys.executable, "-m", "stateanalytics", "watch", str(path), "--every", "0.1"]
    pipes, env = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE), os.environ | UNBUFFERED
    with (
        subprocess.Popen(command, text=True, env=env, **pipes) as process,
        closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as writer,
    ):
        try:
            writer.execute("PRAGMA journal_mode=WAL")
            assert process.stderr.readline().startswith("note: watching 3 entities every 0.1 s")
            now = datetime.now(UTC).timestamp()
            for _ in range(20):
                writer.execute("UPDATE sessions SET updated_at = ?", (now,))
                time.sleep(0.01)
            fail = "UPDATE sessions SET status = 'failed', name = ? WHERE id = 'b'"
            writer.execute(fail, ("\x1b[31mred",))
            line = next(line for line in process.stdout if "red" in line)
            process.send_signal(signal.SIGINT)
            out, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert "neutral -> critical  session red  Failed" in line
    assert "\x1b" not in line + out
    assert process.returncode == 0
    assert said.strip().endswith("of severity seen")


@pytest.mark.slow
def test_a_busy_store_is_followed_without_growing(tmp_path):
    path = write_generated(tmp_path / "state.db", N_SESSIONS, n_messages_per_session=20)
    n_looks = some_of(1_000, 6)
    # In a process of its own: what other tests left in this one would be counted as growth.
    with get_context("spawn").Pool(1) as pool:
        seen = pool.apply(followed, (path, n_looks))
    assert len(seen.lags_s) > n_looks / 10
    assert seen.grown_mb < MOST_GROWTH_MB


def test_the_command_may_stop_by_itself(path, capsys, monkeypatch):
    from stateanalytics.cli import run

    monkeypatch.setattr(snapshot, "read_for_once", None)  # it goes on from what it read
    assert run(["watch", str(path), "--every", "0.01", "--looks", "2"]) == 0
    assert "Ctrl-C ends it" in capsys.readouterr().err

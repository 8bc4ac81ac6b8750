"""A report says the same whatever the order of the rows it is made from."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.core.facts import Facts, changed_facts
from stateanalytics.weekly import weekly_numbers
from tests.conftest import ROOT
from tests.examples import a_few
from tests.frames import facts
from tests.samples import the_week
from tests.test_observations import SAMPLES
from tests.test_report import WEEK


def with_frames(facts: Facts, change) -> Facts:
    names = ("entities", "transitions", "events", "findings")
    frames = {name: change(getattr(facts, name)) for name in names}
    details = {name: change(frame) for name, frame in facts.details.items()}
    return changed_facts(facts, **frames, details=details)


def shuffled(facts: Facts) -> Facts:
    return with_frames(facts, lambda frame: frame.sample(fraction=1, shuffle=True, seed=7))


def beside_its_twin(facts: Facts) -> Facts:
    """The same work under the name of a second source, so that all that is equal ties."""

    def twice(frame):
        return pl.concat([frame, frame.with_columns(source=pl.lit("twin.db"))])

    return changed_facts(with_frames(facts, twice), sources=twice(facts.sources))


def page(facts: Facts) -> str:
    return sa.report(facts).as_html()


@pytest.mark.parametrize("sample", a_few(SAMPLES, 0))
def test_a_report_does_not_depend_on_the_order_of_rows(shared, sample):
    with sa.read(shared / "samples" / SAMPLES[sample]) as snap:
        # Facts without their store, from which texts of messages are read.
        assert page(shuffled(snap)) == page(with_frames(snap, lambda frame: frame))


def with_rows_in_another_order(store: Path, copy: Path, seed: int) -> Path:
    """The same store; its triggers, which would write a history of the copying, are gone."""
    chance = random.Random(seed)
    shutil.copy(store, copy)
    with closing(sqlite3.connect(copy)) as db:
        query = "SELECT name FROM sqlite_master WHERE type = ?"
        triggers, tables = (
            [name for (name,) in db.execute(query, [kind])] for kind in ("trigger", "table")
        )
        for name in triggers:
            db.execute(f'DROP TRIGGER "{name}"')
        for name in (name for name in tables if not name.startswith("sqlite_")):
            rows = db.execute(f'SELECT * FROM "{name}"').fetchall()
            chance.shuffle(rows)
            db.execute(f'DELETE FROM "{name}"')
            if rows:
                places = ", ".join("?" * len(rows[0]))
                db.executemany(f'INSERT INTO "{name}" VALUES ({places})', rows)
        db.commit()
    return copy


STORES = ["agent-orchestrator-go/ao.db", "opencode/v1_1.18.34/opencode.db"]
STORES += ["opencode/v2_20260717/opencode-local.db"]


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_a_store_says_the_same_in_whatever_order_its_rows_lie(shared, tmp_path, store):
    original = shared / "samples" / store
    key = ["entity_type", "entity_id"]
    copy = with_rows_in_another_order(original, tmp_path / original.name, 5)
    with sa.read(original) as one, sa.read(copy) as other:
        for told in (lambda snap: snap.entities, sa.states):
            assert_frame_equal(*(told(snap).drop("source").sort(key) for snap in (one, other)))
        counts = [snap.findings.select("code", "n_rows") for snap in (one, other)]
        assert_frame_equal(*counts, check_row_order=False)


@pytest.mark.slow
def test_nor_where_two_sources_tell_equal_sessions():
    both = beside_its_twin(facts(WEEK))
    assert sa.report(shuffled(both)).as_json() == sa.report(both).as_json()


@pytest.mark.slow
def test_nor_where_two_sources_tell_all_the_sessions_of_the_sample(demo):
    both = beside_its_twin(demo)
    assert page(shuffled(both)) == page(both)


def some_detections(facts: Facts) -> pl.DataFrame:
    some = ["A6", "B2", "B4", "C2", "C11", "E1", "policy"]
    return sa.detectors.detect(facts, detectors=some).rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        *(sa.attention, sa.audit, sa.failures.clusters, sa.phantoms, sa.changes, some_detections),
        weekly_numbers,
    ],
)
def test_what_a_question_answers_stands_in_one_order(demo, function):
    both = beside_its_twin(demo)
    assert function(shuffled(both)).equals(function(both))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["change", "compare", "duration_change", "recommend", "lift"])
def test_a_question_that_is_asked_again_has_the_same_answer_to_the_last_digit(name):
    # Groups come in any order, and floats add up to the same only in the same one.
    parts = (sa.survival, sa.failures, sa.thresholds)
    function = next(getattr(part, name) for part in parts if hasattr(part, name))
    week = the_week()
    first = answer(function(week))
    assert first.height > 2
    for _ in range(6):
        assert answer(function(week)).equals(first)


def test_sums_of_hours_do_not_depend_on_the_order_of_rows(demo):
    for function in (sa.failures.costs, sa.survival.duration_change):
        assert function(shuffled(demo), window="2026-W21").equals(function(demo, window="2026-W21"))


def answer(given) -> pl.DataFrame:
    return given if isinstance(given, pl.DataFrame) else given.frame


@pytest.mark.slow
def test_a_report_says_the_same_in_however_many_threads():
    command, how, told = [sys.executable, "-c", ITS_NUMBERS], {"capture_output": True}, []
    for n in ("1", "3"):
        env = os.environ | {"POLARS_MAX_THREADS": n}
        told.append(subprocess.run(command, env=env, cwd=ROOT, check=True, **how).stdout)
    assert len(told[0]) > 100_000
    assert told[0] == told[1]


ITS_NUMBERS = """
import stateanalytics as sa
from tests.samples import the_week
print(sa.report(the_week(), shown=False).as_json())
"""

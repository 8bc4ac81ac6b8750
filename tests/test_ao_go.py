"""The database of the Go rewrite says of each thing what its scenarios say."""

import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from tests.ao_trees import facts_of

AS_OF = datetime(2026, 8, 22, 12, tzinfo=UTC)
AXES = ("lifecycle", "outcome", "health", "delivery")


def shuffled(store: Path, to: Path) -> Path:
    """A copy of which every table has its rows in another order."""
    to.write_bytes(store.read_bytes())
    with closing(sqlite3.connect(to)) as db:
        kinds = dict(db.execute("SELECT name, type FROM sqlite_master").fetchall())
        for name in [name for name, kind in kinds.items() if kind == "trigger"]:
            db.execute(f"DROP TRIGGER {name}")
        for name in [name for name, kind in kinds.items() if kind == "table"]:
            rows = db.execute(f"SELECT * FROM {name}").fetchall()
            random.Random(3).shuffle(rows)
            db.execute(f"DELETE FROM {name}")
            marks = ", ".join("?" * len(rows[0])) if rows else ""
            db.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        db.commit()
    return to


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    return shared / "samples" / "agent-orchestrator-go"


@pytest.fixture(scope="module")
def facts(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return facts_of(
        shuffled(folder / "ao.db", tmp_path_factory.mktemp("go") / "ao.db"), as_of=AS_OF
    )


@pytest.fixture(scope="module")
def known(facts: Facts, folder: Path) -> pl.DataFrame:
    """What each scenario expects, beside what is read and derived, in columns ``read_…``."""
    rows = facts.entities.join(
        sa.states(facts).select("entity_type", "entity_id", *AXES, "reason_codes"),
        on=["entity_type", "entity_id"],
    )
    key = ["entity_type", "entity_id"]
    read = rows.select(*key, pl.exclude(key).cast(pl.String).name.prefix("read_"))
    scenarios = pl.read_csv(folder / "scenarios.csv", infer_schema=False)
    return scenarios.filter(pl.col("entity_type").is_in(["session"])).join(read, on=key, how="left")


def differences(known: pl.DataFrame, expected: str, found: str) -> list[tuple[object, ...]]:
    wrong = known.filter(pl.col(expected).ne_missing(pl.col(found)))
    return wrong.select("entity_id", expected, found).rows()


def test_every_status_is_the_word_that_is_shown(known: pl.DataFrame) -> None:
    assert differences(known, "ao_status", "read_raw_status") == []


@pytest.mark.parametrize("axis", ["lifecycle", "outcome", "delivery"])
def test_every_axis_is_as_the_scenarios_say(known: pl.DataFrame, axis: str) -> None:
    assert differences(known, axis, f"read_{axis}") == []


def test_changes_of_status_are_transitions_and_say_when_a_session_ended(facts: Facts) -> None:
    of_one = facts.transitions.filter(entity_id="web-13")
    assert of_one["status"].to_list()[-1] == "merged"
    over = facts.entities.filter(raw_status="terminated")
    assert over["ended_at"].null_count() == 0
    last = facts.transitions.filter(status="terminated").group_by("entity_id").agg(pl.max("at"))
    ended = over.join(last, on="entity_id", how="left")
    assert (ended["ended_at"] == ended["at"]).all()


def test_a_moment_of_a_local_clock_is_read(facts: Facts) -> None:
    written = facts.entities.filter(entity_id="old-2")["created_at"].item()
    assert written == datetime(2026, 7, 22, 12, 0, 0, 500_000, tzinfo=UTC)

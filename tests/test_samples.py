"""The sample store holds what its truth says, hurts nobody, and can be made again."""

import contextlib
import csv
import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

from stateanalytics import demo_data
from stateanalytics.errors import MissingComponentError
from stateanalytics.failures.call_outcomes import calls
from stateanalytics.state.states import states
from stateanalytics.systems import reading as sources
from tests.conftest import ROOT, absent
from tests.generators.templates import BY_ID
from tests.samples import AS_OF, SAMPLES

AS_OF_S = 1_779_688_800.0


def read(sql):
    place = f"file:{SAMPLES / 'state.db'}?mode=ro"
    with contextlib.closing(sqlite3.connect(place, uri=True)) as connection:
        return connection.execute(sql).fetchall()


def sessions_ended_by(truth, who):
    """The sessions that an executor or an observer ended, of which the truth knows how long."""
    rows = [row for row in truth if row["entity_type"] == "session" and row["ended_by"] == who]
    return [row for row in rows if row["duration_s"] and row["scenario"] != "end_before_start"]


@pytest.fixture(scope="module")
def truth():
    with (SAMPLES / "truth.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def truth_frame():
    return pl.read_csv(SAMPLES / "truth.csv", infer_schema=False, null_values=[""]).with_columns(
        pl.col("duration_s", "timeout_s").cast(pl.Float64),
        pl.col("n_messages", "n_tool_errors").cast(pl.Int64),
        is_legacy=pl.col("is_legacy") == "true",
    )


@pytest.fixture(scope="module")
def facts_and_stores():
    return sources.read_facts([SAMPLES], as_of=AS_OF)


# --- the store and its truth, by plain SQL ---------------------------------------------


def test_what_an_executor_ended_took_as_long_as_the_row_says(truth):
    stored = dict(read("SELECT id, ended_at - started_at FROM sessions"))
    ended = sessions_ended_by(truth, "executor")
    assert len(ended) > 250
    for row in ended:
        assert stored[row["entity_id"]] == pytest.approx(float(row["duration_s"]), abs=0.02)


def test_what_an_observer_ended_was_over_before_the_row_says(truth):
    stored = dict(read("SELECT id, ended_at - started_at FROM sessions"))
    ended = sessions_ended_by(truth, "observer")
    late = [stored[row["entity_id"]] - float(row["duration_s"]) for row in ended]
    assert len(late) > 15
    assert min(late) > -0.02
    assert sum(seconds > 200 for seconds in late) > 12


def test_failures_carry_the_message_of_their_template(truth):
    stored = dict(read("SELECT id, status_reason_summary FROM sessions"))
    made = [row for row in truth if row["template_id"]]
    made = [row for row in made if not row["template_id"].startswith("hostile")]
    assert len({row["template_id"] for row in made}) >= 20
    for row in made:
        if row["template_id"] == "missing_artifact":
            continue
        parts = BY_ID[row["template_id"]].pattern.split("<*>")
        pattern = ".+?".join(map(re.escape, parts))
        assert re.fullmatch(pattern, stored[row["entity_id"]], re.DOTALL), row["scenario"]


def test_timeouts_reach_their_limit(truth):
    limits = {
        row["entity_id"]: float(row["timeout_s"])
        for row in truth
        if row["lifecycle"] == "timed_out" and row["timeout_s"]
    }
    assert {900.0, 1_800.0, 3_600.0} <= set(limits.values())
    took = dict(read("SELECT id, ended_at - started_at FROM sessions"))
    assert all(limit <= took[name] <= limit + 1.0 for name, limit in limits.items())


def test_a_timeout_without_a_turn_has_no_message_of_an_assistant(truth):
    no_turn = [row for row in truth if row["scenario"] == "timed_out_no_turn"]
    mute = {row["entity_id"] for row in no_turn if row["entity_type"] == "session"}
    turns = dict(read("SELECT id, num_turns FROM sessions"))
    assert len(mute) >= 3
    assert {turns[name] for name in mute} == {0}


def test_nothing_in_the_store_is_later_than_as_of():
    moments = [
        *(("sessions", "updated_at"), ("sessions", "last_message_at"), ("messages", "created_at")),
        *(("status_transitions", "created_at"), ("session_signals", "ts")),
        ("schedule_runs", "fired_at"),
    ]
    for table, column in moments:
        assert read(f"SELECT max({column}) <= {AS_OF_S} FROM {table}") == [(1,)], table


# --- safe to ship ----------------------------------------------------------------------


def test_hostile_text_is_marked_as_test_data():
    hostile = read(
        "SELECT status_reason_summary FROM sessions WHERE status_reason_summary LIKE '%<script%'"
        " OR status_reason_summary LIKE '%' || char(27) || '%'"
        " OR status_reason_summary LIKE '=%'"
    )
    assert len(hostile) == 3
    assert all("[test data]" in text or "test-data" in text for (text,) in hostile)


def test_what_looks_like_a_secret_is_none():
    tables = ("sessions", "messages", "status_transitions")
    dump = "\n".join(str(row) for table in tables for row in read(f"SELECT * FROM {table}"))
    assert len(re.findall(r"\bsk-\w+", dump)) >= 3
    assert set(re.findall(r"\bsk-\w+", dump)) == {"sk-test"}
    assert set(re.findall(r"Bearer (\w+)-", dump)) == {"test"}
    assert set(re.findall(r"\b[\w.]+@[\w.]+\w", dump)) == {"dev@example.org"}


def test_the_sample_is_small():
    # Other samples stand beside it, each in a folder of its own.
    others = [path.parent for path in SAMPLES.glob("*/README.md")]
    files = [path for path in SAMPLES.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    files = [path for path in files if not any(map(path.is_relative_to, others))]
    assert sum(path.stat().st_size for path in files) < 3_100_000
    shipped = [path for path in files if path.suffix != ".py"]
    assert sum(path.stat().st_size for path in shipped) < 3_000_000


def test_the_store_opens_where_nothing_may_be_written():
    assert read("PRAGMA journal_mode") == [("delete",)]
    assert read("PRAGMA integrity_check") == [("ok",)]
    assert not list(SAMPLES.glob("state.db-*"))


def test_no_path_of_a_real_machine_is_in_it():
    paths = [path for path in SAMPLES.rglob("*") if path.suffix in (".json", ".md", ".csv")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    homes = set(re.findall(r"/home/\w+|/Users/\w+|/root\b|/work\b|/tmp\b", text))
    assert homes <= {"/home/op", "/home/demo"}


# --- where it is -----------------------------------------------------------------------


def test_the_sample_of_an_installation_wins(tmp_path, monkeypatch):
    package = tmp_path / "stateanalytics"
    (package / "demo" / "history").mkdir(parents=True)
    monkeypatch.setattr(demo_data, "__file__", str(package / "demo_data.py"))
    assert demo_data.demo_path() == package / "demo"


def test_an_installation_without_the_sample_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_data, "__file__", str(tmp_path / "stateanalytics" / "demo_data.py"))
    with pytest.raises(MissingComponentError, match="Hint: pip install"):
        demo_data.demo_path()


def test_the_wheel_carries_the_sample():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    carried = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert carried == {"data/samples/twelve_weeks": "stateanalytics/demo"}


# --- read back by the library ----------------------------------------------------------


def test_facts_know_who_wrote_each_end(facts_and_stores, truth_frame):
    entities = facts_and_stores[0].entities
    both = entities.join(truth_frame, on=["entity_type", "entity_id"], how="full", suffix="_meant")
    assert both.filter(pl.col("source").is_null() | pl.col("scenario").is_null()).height == 0
    # A truth of these types names no code; a session of which no code is stored may be told one.
    codes = both.filter(
        ~pl.col("entity_type").is_in(["schedule", "branch", "engine_run", "dispatch"]),
        pl.col("reason_code_meant").ne_missing(pl.col("reason_code")),
    )
    assert codes.select("entity_type", "reason_code", "reason_code_meant").rows() == []
    # An invocation that an engine or a reaper closed may be told by its reason alone.
    wrong = both.filter(pl.col("end_written_by").ne_missing(pl.col("ended_by")))
    assert wrong.select("entity_type", "scenario", "end_written_by", "ended_by").rows() == []


def test_facts_know_messages_and_limits(facts_and_stores, truth_frame):
    meant = truth_frame.filter(entity_type="session")
    entities, key = facts_and_stores[0].entities, ["entity_type", "entity_id"]
    sessions = entities.join(meant, on=key, suffix="_meant")
    assert sessions["n_messages"].to_list() == sessions["n_messages_meant"].to_list()
    known = pl.when(pl.col("timeout_from_meant") == "checkpoint").then("timeout_s_meant")
    wrong = sessions.filter(pl.col("timeout_s").ne_missing(known))
    assert wrong.height == 0
    assert sessions["timeout_s"].drop_nulls().len() > 40


def test_facts_count_the_errors_of_tools(facts_and_stores, truth_frame):
    failed = calls(facts_and_stores[0]).filter(~pl.col("outcome").is_in(["ok", "unknown"]))
    counted = failed.group_by(entity_id="session_id").agg(n=pl.len())
    of_sessions = truth_frame.filter(entity_type="session")
    sessions = of_sessions.join(counted, on="entity_id", how="left")
    assert sessions["n_tool_errors"].fill_null(0).to_list() == sessions["n"].fill_null(0).to_list()
    assert sessions["n"].sum() >= 5


def test_every_flaw_of_the_sample_is_found(facts_and_stores):
    found = facts_and_stores[0].findings.group_by("code").agg(pl.col("n_rows").sum())
    counts = dict(found.rows())
    meant = {
        **{"status.unknown": 2, "status.legacy": 12, "progression.orphaned": 2},
        **{"end.missing": 3, "end.before_start": 1, "end.while_running": 1},
        **{"contract.invalid": 1, "show.disk_differs": 1, "play.disk_differs": 2},
        **{"cell.wrong_type": 1, "cell.double_encoded": 1},
    }
    assert {code: counts.get(code) for code in meant} == meant


def test_every_state_is_the_one_that_was_meant(facts_and_stores, truth_frame):
    axes = ["lifecycle", "outcome", "health", "delivery", "severity"]
    derived = states(facts_and_stores[0]).with_columns(pl.col(axes).cast(pl.String))
    both = derived.join(truth_frame, on=["entity_type", "entity_id"], how="full", suffix="_meant")
    assert both.height == truth_frame.height == derived.height
    for axis in [*axes, "is_legacy"]:
        wrong = both.filter(pl.col(axis).ne_missing(pl.col(f"{axis}_meant")))
        shown = wrong.select("entity_type", "scenario", axis, f"{axis}_meant").unique().rows()
        assert shown == [], axis


# --- making it again -------------------------------------------------------------------


@pytest.mark.slow
def test_making_it_again_gives_the_same(tmp_path):
    if find_spec("lionagi") is None:
        absent("lionagi")
    command = [sys.executable, str(SAMPLES / "make_samples.py"), "--into", str(tmp_path)]
    env = {**os.environ, "PYTHONHASHSEED": "1"}
    subprocess.run(command, check=True, capture_output=True, env=env)
    dumps = []
    for folder in (SAMPLES, tmp_path):
        with contextlib.closing(sqlite3.connect(folder / "state.db")) as connection:
            dumps.append(sorted(connection.iterdump()))
    assert dumps[0] == dumps[1]
    for path in ("truth.csv", "runs", "shows"):
        kept, made = SAMPLES / path, tmp_path / path
        files = [file.relative_to(kept) for file in kept.rglob("*") if file.is_file()] or [Path()]
        assert all((kept / file).read_bytes() == (made / file).read_bytes() for file in files)
        assert len(list(kept.rglob("*"))) == len(list(made.rglob("*")))

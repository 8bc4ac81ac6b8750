"""Systems whose statuses are words of their own: read, unknown, and at an earlier instant."""

import dataclasses
from datetime import timedelta

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics import systems
from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.systems import history
from stateanalytics.systems.situations import add_axes_of_statuses
from tests.conftest import ROOT
from tests.plugin.pulse_system import SYSTEM
from tests.plugin.runs import write_runs

SHARED = next(w for w in STATUS_WORDS if (w.entity_type, w.raw_status) == ("session", "completed"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Runs of an installed system."""
    monkeypatch.syspath_prepend(ROOT / "tests" / "plugin")
    forget()
    yield write_runs(tmp_path)
    monkeypatch.undo()
    forget()


def forget():
    for remembered in (systems.all_systems, systems.detail_frames, systems.limits_of_systems):
        remembered.cache_clear()


def read(folder):
    snap = sa.read(folder, progress=False)
    return snap, sa.states(snap)


def test_a_status_outside_of_its_words_is_a_finding_and_keeps_its_name(folder):
    first = folder / "run-00.pulse.jsonl"
    last = first.read_text("utf-8").splitlines()[-1]
    exploded = last.replace("done", "exploded").replace("broke", "exploded")
    assert exploded != last
    first.write_text(first.read_text("utf-8").replace(last, exploded), "utf-8")
    snap, states = read(folder)
    [finding] = snap.findings.filter(code="status.unknown").to_dicts()
    assert finding["message"] == "'exploded' is no status of entity type session in Pulse"
    assert finding["n_rows"] == 1
    [state] = states.filter(entity_id=finding["entity_id"]).to_dicts()
    assert (state["lifecycle"], state["is_legacy"]) == ("unknown", True)
    assert state["effective_state"] == "exploded"


def test_words_of_the_adr_may_stand_among_its_own():
    rows = pl.DataFrame({"entity_type": "session", "raw_status": ["completed", "done", "broke"]})
    worded = add_axes_of_statuses(schema.ENTITIES.conform(rows), (*SYSTEM.words.vocabulary, SHARED))
    assert worded["recorded_lifecycle"].to_list() == ["completed", "completed", "failed"]


def test_what_a_reader_recorded_is_not_ended_by_a_word_that_is_missing():
    rows = pl.DataFrame(
        {"entity_type": ["session"], "raw_status": ["odd"], "recorded_lifecycle": ["running"]}
    )
    worded = add_axes_of_statuses(schema.ENTITIES.conform(rows), SYSTEM.words.vocabulary)
    assert worded.select("recorded_lifecycle", "recorded_outcome").row(0) == ("running", None)


@pytest.mark.slow
def test_in_the_middle_of_a_run_it_was_running(folder):
    snap, states = read(folder)
    facts = Facts(**{name: getattr(snap, name) for name in Facts.__dataclass_fields__})
    ended = snap.entities.join(states.filter("is_terminal"), on=schema.ENTITY_KEY, how="semi")
    for run in ended.sort("entity_id").head(12).to_dicts():
        middle = run["started_at"] + (run["ended_at"] - run["started_at"]) / 2
        past = history.facts_at(facts, middle + timedelta(microseconds=1)).facts
        then = sa.states(past).filter(entity_id=run["entity_id"])
        assert then["lifecycle"].to_list() == ["running"], run


def test_an_installed_system_that_cannot_look_hides_no_store_of_others(folder, monkeypatch):
    def fail(path):
        raise ValueError("boom")

    [pulse] = [known for known in systems.all_systems() if known.name == "pulse"]
    broken = dataclasses.replace(pulse, files=dataclasses.replace(pulse.files, find=fail))
    known = tuple(broken if system is pulse else system for system in systems.all_systems())
    monkeypatch.setattr("stateanalytics.systems.places.all_systems", lambda: known[::-1])
    with pytest.warns(RuntimeWarning, match="'pulse' cannot examine .*boom"):
        snap = sa.read(ROOT / "data" / "samples" / "opencode", progress=False)
    assert snap.sources["system"].unique().to_list() == ["opencode"]

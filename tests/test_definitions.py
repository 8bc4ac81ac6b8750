"""One word for one thing: what counts as dead, failed or ended well is the same everywhere."""

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.demo_data import demo_path
from stateanalytics.state.definitions import (
    BAD_ENDS,
    ENDINGS,
    FAILURES,
    GOOD_ENDS,
    STOPPED,
)
from stateanalytics.systems import all_systems
from tests.frames import ago, facts

SAMPLES = demo_path()

DEATH_CODES = [code for system in all_systems() for code in system.ends.death_codes]
DEATH_MESSAGES = [words for system in all_systems() for words in system.ends.death_messages]
# A sweep by age, a person who kills, a verdict about something else.
NO_DEATHS = (
    "run.cancelled.stale_auto",
    "session.stale.no_heartbeat",
    "run.cancelled.manual_kill",
    "session.phantom.missing_artifacts",
    "run.failed.exception",
    None,
)


def died_of(code, message=None, *, by="observer"):
    return facts(
        [
            {
                "entity_id": "s",
                "raw_status": "failed",
                "reason_code": code,
                "reason_message": message,
                "end_written_by": by,
                "started_at": ago(hours=9),
                "last_activity_at": ago(hours=8),
                "last_message_at": ago(hours=8),
                "ended_at": ago(hours=2),
            }
        ]
    )


def durations_say_dead(snap) -> bool:
    return sa.survival.spells(snap)["end_from"].to_list() == ["last_activity"]


def silences_say_dead(snap) -> bool:
    return bool(sa.detectors.silence_gaps(snap)["is_dead"].any())


@pytest.mark.parametrize("code", DEATH_CODES)
def test_an_observer_that_did_not_find_the_process_found_it_dead(code):
    snap = died_of(code)
    assert durations_say_dead(snap)
    assert silences_say_dead(snap)
    own_end = died_of(code, by="executor")
    assert not durations_say_dead(own_end)
    assert not silences_say_dead(own_end)


@pytest.mark.parametrize("message", DEATH_MESSAGES)
def test_so_did_one_that_said_it_in_words(message):
    snap = died_of("run.failed.exception", message)
    assert durations_say_dead(snap)
    assert silences_say_dead(snap)


@pytest.mark.parametrize("code", NO_DEATHS)
def test_a_sweep_by_age_or_a_kill_proves_no_death(code):
    snap = died_of(code)
    assert not durations_say_dead(snap)
    assert not silences_say_dead(snap)


def test_every_code_of_a_death_is_known():
    known = set(sa.reason_codes()["code"])
    assert set(DEATH_CODES) - known == set()


def test_a_run_ends_in_one_way():
    assert not set(GOOD_ENDS) & {*FAILURES, *STOPPED}
    assert set(FAILURES) < set(BAD_ENDS) <= {*FAILURES, *STOPPED}
    assert len(ENDINGS) == len(set(ENDINGS))


@pytest.mark.parametrize("sample", ["state.db", "agent_orchestrator"])
def test_durations_and_silences_agree_on_the_samples(sample):
    snap = sa.read(SAMPLES / sample, progress=False)
    key = ["source", "system", "entity_id"]
    dead = sa.detectors.silence_gaps(snap).filter("is_dead").select(key).unique()
    found = sa.survival.spells(snap).filter(pl.col("end_from") == "last_activity").select(key)
    assert found.height > 0
    assert found.join(dead, on=key, how="anti").is_empty()

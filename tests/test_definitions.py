"""One word for one thing: what counts as dead, failed or ended well is the same everywhere."""

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.state.definitions import BAD_ENDS, ENDINGS, FAILURES, GOOD_ENDS, STOPPED
from stateanalytics.systems import all_systems
from stateanalytics.systems.agent_orchestrator.mapping import words_of
from tests.frames import ago, facts
from tests.samples import SAMPLES

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


def died_of(*codes, message=None, by="observer"):
    """A session for each code, named by it."""
    return facts(
        [
            {
                "entity_id": str(code),
                "raw_status": "failed",
                "reason_code": code,
                "reason_message": message,
                "end_written_by": by,
                "started_at": ago(hours=9),
                "last_activity_at": ago(hours=8),
                "last_message_at": ago(hours=8),
                "ended_at": ago(hours=2),
            }
            for code in codes
        ]
    )


def durations_say_dead(snap) -> set[str]:
    spells = sa.survival.spells(snap)
    assert set(spells["entity_id"]) == set(snap.entities["entity_id"])
    return set(spells.filter(end_from="last_activity")["entity_id"])


def silences_say_dead(snap) -> set[str]:
    return set(sa.detectors.silence_gaps(snap).filter("is_dead")["entity_id"])


def test_an_observer_that_did_not_find_the_process_found_it_dead():
    snap = died_of(*DEATH_CODES)
    assert durations_say_dead(snap) == set(DEATH_CODES)
    assert silences_say_dead(snap) == set(DEATH_CODES)
    own_end = died_of(*DEATH_CODES, by="executor")
    assert durations_say_dead(own_end) == silences_say_dead(own_end) == set()


@pytest.mark.parametrize("message", DEATH_MESSAGES)
def test_so_did_one_that_said_it_in_words(message):
    snap = died_of("run.failed.exception", message=message)
    assert durations_say_dead(snap) == silences_say_dead(snap) == {"run.failed.exception"}


def test_a_sweep_by_age_or_a_kill_proves_no_death():
    snap = died_of(*NO_DEATHS)
    assert durations_say_dead(snap) == silences_say_dead(snap) == set()


def test_every_code_of_a_death_is_known():
    # Agent Orchestrator's transitions have its own words, without what they are mapped to.
    reasons = (*words_of("session_reason"), *words_of("runtime_reason"))
    known = {*sa.reason_codes()["code"], *reasons}
    assert set(DEATH_CODES) - known == set()


def test_every_code_that_makes_a_failure_of_aborted_work_is_known():
    declared = {code for known in all_systems() for code in known.ends.failure_codes}
    assert declared - set(sa.reason_codes()["code"]) == set() != declared
    for known in all_systems():
        assert bool(known.runs.failure_meaning) == bool(known.ends.failure_codes)


def test_a_run_ends_in_one_way():
    assert not set(GOOD_ENDS) & {*FAILURES, *STOPPED}
    assert set(FAILURES) < set(BAD_ENDS) <= {*FAILURES, *STOPPED}
    assert len(ENDINGS) == len(set(ENDINGS))


@pytest.mark.parametrize(
    "sample", ["agent_orchestrator", pytest.param("state.db", marks=pytest.mark.slow)]
)
def test_durations_and_silences_agree_on_the_samples(sample):
    snap = sa.read(SAMPLES / sample, progress=False)
    key = ["source", "system", "entity_id"]
    dead = sa.detectors.silence_gaps(snap).filter("is_dead").select(key).unique()
    found = sa.survival.spells(snap).filter(pl.col("end_from") == "last_activity").select(key)
    assert found.height > 0
    assert found.join(dead, on=key, how="anti").is_empty()

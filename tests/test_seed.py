"""What the seeds say, to the letter: ADR-0033's words are read as themselves."""

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.vocabulary import ADR_LIFECYCLES, STATUS_WORDS
from tests.frames import facts

STORED = {(word.entity_type, word.raw_status): word.lifecycle for word in STATUS_WORDS}
WORDS = [(entity_type, word) for entity_type, words in ADR_LIFECYCLES.items() for word in words]


@pytest.mark.parametrize(("entity_type", "word"), WORDS)
def test_every_lifecycle_word_of_the_adr_is_read(entity_type, word):
    row = {"entity_type": entity_type, "entity_id": "e", "raw_status": word}
    state = sa.states(facts([row])).row(0, named=True)
    assert state["lifecycle"] == STORED.get((entity_type, word), word)
    assert not state["is_legacy"]


@pytest.mark.parametrize(
    ("entity_type", "word", "severity"),
    [
        ("play", "failed", "critical"),
        ("show", "failed", "critical"),
        ("play", "timed_out", "warning"),
    ],
)
def test_a_bad_end_in_words_of_the_adr_has_its_severity(entity_type, word, severity):
    row = {"entity_type": entity_type, "entity_id": "e", "raw_status": word}
    found = sa.states(facts([row])).select(pl.col("outcome", "severity").cast(pl.String))
    assert found.row(0) == (word, severity)

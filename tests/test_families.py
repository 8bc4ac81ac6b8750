"""Files of transcripts that share ids are a family, assembled together and apart from others."""

import json
import os
import pickle
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from stateanalytics.core.facts import Facts, unevaluated
from stateanalytics.systems import folding, transcripts
from stateanalytics.systems.claude_code import reading as claude_code
from stateanalytics.systems.codex import reading as codex
from stateanalytics.systems.folding import with_families
from stateanalytics.systems.history import facts_at
from stateanalytics.systems.reading import read_facts
from tests.conftest import ROOT

SAMPLES = ROOT / "data" / "samples"
READINGS = (claude_code, codex)


def sample_of(reading: object) -> Facts:
    return read_facts(SAMPLES / reading.__name__.split(".")[-2])[0]


def assert_same(ours: Facts, theirs: Facts) -> None:
    for name in ("entities", "transitions", "events"):
        rows = (getattr(facts, name) for facts in (ours, theirs))
        assert_frame_equal(*rows, check_row_order=False)
    for name, rows in theirs.details.items():
        assert_frame_equal(ours.details[name], rows, check_row_order=False)


def test_a_long_chain_of_files_is_one_family_and_an_unrelated_file_another() -> None:
    numbers = range(1000, 0, -1)
    rows = {"node": [*map(str, numbers), "other"], "id": [*numbers, -1]}
    rows["of"] = [*(number - 1 for number in numbers), -2]
    chain = pl.DataFrame(rows).with_columns(source=pl.lit("here"))
    families = with_families(chain, [("id", "of")])
    assert families["family"].value_counts().sort("count")["count"].to_list() == [1, 1000]
    # Equal ids of two kinds are no link.
    assert with_families(chain, [("id",), ("of",)])["family"].n_unique() == 1001


@pytest.mark.slow
@pytest.mark.parametrize("reading", READINGS)
def test_batches_of_families_give_the_rows_of_all_families_together(reading, monkeypatch) -> None:
    sample = sample_of(reading)
    lines = sample.detail(reading.FOLDING.records[0])
    assert reading.FOLDING.families(lines).n_unique() > 3
    monkeypatch.setattr(folding, "_MOST_ROWS", 20)
    by_families = sample_of(reading)
    assert_same(by_families, sample)
    frames = unevaluated(by_families.details).values()
    assert all(isinstance(frame, transcripts.Packed) for frame in frames)


@pytest.mark.slow
@pytest.mark.parametrize("reading", READINGS)
def test_families_without_later_records_keep_their_present_rows(reading, monkeypatch) -> None:
    sample = sample_of(reading)
    moments = sample.detail(reading.FOLDING.records[0])["at"].drop_nulls().sort()
    middle = moments[moments.len() // 2]
    by_families = facts_at(sample, middle).facts

    def all_in_one(_folding: object, lines: pl.DataFrame) -> pl.Series:
        return pl.repeat(0, lines.height, eager=True)

    monkeypatch.setattr(folding.Folding, "families", all_in_one)
    assert_same(by_families, facts_at(sample_of(reading), middle).facts)


@pytest.mark.slow
@pytest.mark.parametrize("reading", READINGS)
def test_rewinding_in_two_steps_gives_the_rows_of_one_step(reading) -> None:
    sample = sample_of(reading)
    moments = sample.detail(reading.FOLDING.records[0])["at"].drop_nulls().sort()
    earlier, later = (moments[moments.len() * third // 3] for third in (1, 2))
    twice = facts_at(facts_at(sample, later).facts, earlier).facts
    assert_same(twice, facts_at(sample, earlier).facts)


@pytest.mark.slow
@pytest.mark.parametrize("reading", READINGS)
def test_facts_of_an_earlier_instant_can_be_sent_to_another_process(reading) -> None:
    sample = sample_of(reading)
    then = facts_at(sample, sample.events["at"].drop_nulls().sort()[0]).facts
    sent = pickle.loads(pickle.dumps(then))
    assert_same(sent, then)
    assert repr(sent.details) == f"Frames({', '.join(then.details)})"


def written(path: Path, day: int, **told: object) -> None:
    """A transcript of one question."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = {"type": "user", "uuid": f"u{day}", "timestamp": f"2026-05-0{day}T10:00:00Z", **told}
    path.write_text(json.dumps(line | {"message": {"role": "user", "content": "go"}}) + "\n")


@pytest.mark.slow
def test_agents_of_one_name_in_folders_of_no_session_are_one_family(tmp_path, monkeypatch) -> None:
    project, session = tmp_path / "projects" / "p", "019d4845-6280-4bcf-8c9b-6955155b9b99"
    written(project / f"{session}.jsonl", 3, sessionId=session)
    for day, folder in enumerate(("foo", "bar"), 1):
        written(project / folder / "subagents" / "agent-x.jsonl", day, isSidechain=True)
    whole = read_facts(tmp_path)[0]
    then = facts_at(whole, datetime(2026, 5, 1, 12, tzinfo=UTC)).facts
    assert then.entities["created_at"].max() < then.as_of
    monkeypatch.setattr(folding, "_MOST_ROWS", 1)
    assert_same(read_facts(tmp_path)[0], whole)


@pytest.mark.slow
@pytest.mark.parametrize("reading", READINGS)
def test_a_copy_on_another_machine_has_the_same_rows_and_is_not_counted_twice(
    reading, tmp_path
) -> None:
    original = SAMPLES / reading.__name__.split(".")[-2]
    # Another path, other moments of the files, another order of the directory.
    copy = tmp_path / "from the laptop"
    for path in sorted(original.rglob("*"), reverse=True):
        if path.is_file():
            to = copy / path.relative_to(original)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(path.read_bytes())
            os.utime(to, (1, 1))
    sample, elsewhere = sample_of(reading), read_facts(copy)[0]
    for name in ("entities", "transitions", "events"):
        rows = (getattr(facts, name).drop("source") for facts in (elsewhere, sample))
        assert_frame_equal(*rows, check_row_order=False)
    both = read_facts([original, copy])[0]
    assert both.entities.height == sample.entities.height
    assert "source.same_content" in both.findings["code"]

"""The campaign of `tests.fuzz` itself: inputs come back, and defects are noticed."""

import hashlib
import time
from dataclasses import replace

import pytest

import stateanalytics as sa
from stateanalytics.io import sqlite_tables
from stateanalytics.io.archive import reading
from tests.examples import a_few
from tests.fuzz import archives, campaign, worker
from tests.fuzz.counting import LostRowsError
from tests.fuzz.mutations import GROWING
from tests.fuzz.targets import TARGETS, chosen, made

SEED = 11


def first_of(name):
    return next(n for n in range(10_000) if chosen(SEED, n)[0].name == name)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return tmp_path_factory.mktemp("originals")


@pytest.mark.slow
@pytest.mark.parametrize("target", a_few([pytest.param(each, id=each.name) for each in TARGETS]))
def test_an_input_of_every_format_is_made_and_run(target, tmp_path, originals):
    answer = worker.run(SEED, first_of(target.name), originals, tmp_path / "input")
    assert answer["target"] == target.name
    assert answer["verdict"] in ("right", "refused"), answer
    assert answer["changed"]


def test_a_number_is_the_same_input_again(tmp_path, originals):
    def digests(folder):
        return {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    for name in ("lionagi store", "agent orchestrator tree", "opencode log"):
        number = first_of(name)
        first, second = (made(tmp_path / f"{name} {n}", SEED, number, originals) for n in "ab")
        assert first.changed == second.changed
        assert digests(tmp_path / f"{name} a") == digests(tmp_path / f"{name} b")
        assert first.rng.random() == second.rng.random()


def test_a_foreign_error_is_noticed(monkeypatch, tmp_path, originals):
    def raising(*_):
        raise KeyError("id")

    monkeypatch.setattr(sqlite_tables, "rows_and_problems", raising)
    answer = worker.run(SEED, first_of("lionagi directories"), originals, tmp_path / "input")
    assert (answer["verdict"], answer["kind"]) == ("defect", "KeyError")
    assert answer["where"] == "io/sqlite_tables.py:read_table"


def test_a_lost_row_is_noticed(monkeypatch, tmp_path, originals):
    read = sqlite_tables.rows_and_problems

    def losing(store, table, *others):
        rows, problems = read(store, table, *others)
        return (rows[:-1] if table == "sessions" else rows), problems

    monkeypatch.setattr(sqlite_tables, "rows_and_problems", losing)
    answer = worker.run(SEED, first_of("lionagi directories"), originals, tmp_path / "input")
    assert (answer["verdict"], answer["kind"]) == ("defect", "LostRowsError")
    assert "sessions" in answer["message"]


@pytest.mark.slow
def test_a_lost_row_of_an_archive_is_noticed(monkeypatch, tmp_path):
    read, root = reading.read_shard, archives.archive(tmp_path)
    next(root.rglob("entities-*.parquet")).unlink()
    archives.check_shards(root, sa.read(root, progress=False))  # what is named is not lost
    monkeypatch.setattr(reading, "read_shard", lambda *given: read(*given)[:-1])
    with pytest.raises(LostRowsError, match="ids of sound files are gone"):
        archives.check_shards(root, sa.read(root, progress=False))


@pytest.mark.parametrize(
    ("limits", "kind"),
    [
        ({"LIMIT_S": -1.0, "S_A_BYTE": 0.0}, "TooSlow"),
        ({"PEAK_BYTES": -(10**9), "PEAK_RATIO": 0}, "TooLarge"),
    ],
)
def test_an_input_that_takes_too_much_for_its_size_is_noticed(
    monkeypatch, tmp_path, originals, limits, kind
):
    for name, value in limits.items():
        monkeypatch.setattr(worker, name, value)
    answer = worker.run(SEED, first_of("rules"), originals, tmp_path / "input")
    assert (answer["verdict"], answer["kind"]) == ("defect", kind)
    assert 0 < answer["disk_bytes"] < 100_000


@pytest.mark.slow
@pytest.mark.parametrize("mutate", GROWING)
@pytest.mark.parametrize("target", ["codex", "claude code", "opencode log"])
def test_what_grows_when_it_is_read_takes_work_by_its_room_on_disk(
    tmp_path, originals, target, mutate, monkeypatch
):
    [kind] = [each for each in TARGETS if each.name == target]
    changing = tuple((pattern, (mutate,)) for pattern, _ in kind.mutations)
    only = (replace(kind, mutations=changing),)
    monkeypatch.setattr("tests.fuzz.targets.TARGETS", only)
    answer = worker.run(SEED, 1, originals, tmp_path / "input")
    assert answer["verdict"] in ("right", "refused"), answer
    assert mutate.__name__ in answer["changed"][0]
    assert answer["disk_bytes"] < 2_500_000


def sleep_for_ever():
    """Planted into a worker: it hangs in the reader of tables."""
    worker.HANG_S = 4.0
    sqlite_tables.rows_and_problems = lambda *_: time.sleep(999)


def end_at_once():
    """Planted into a worker: it dies in the reader of tables."""
    sqlite_tables.rows_and_problems = lambda *_: worker.os.abort()


@pytest.mark.slow
def test_hangs_and_crashes_are_noticed_and_the_campaign_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(campaign, "HANG_S", 5.0)
    number = first_of("lionagi directories")
    for planted, kind, n_times in ((sleep_for_ever, "Hang", 1), (end_at_once, "Crash", 2)):
        asked = campaign.Worker(SEED, planted=f"tests.test_fuzz:{planted.__name__}")
        try:
            answers = [asked.run(number) for _ in range(n_times)]
        finally:
            asked.end()
        for answer in answers:
            assert (answer["verdict"], answer["kind"]) == ("defect", kind)
            assert answer["where"] == "io/sqlite_tables.py:read_table"
            assert answer["target"] == "lionagi directories"


def test_a_campaign_goes_on_where_it_was_stopped(monkeypatch, tmp_path):
    class Counting:
        def __init__(self, seed, planted=None):
            self.seed = seed

        def run(self, number):
            verdict = "defect" if number == fails else "right"
            place = {"target": "x", "kind": "KeyError", "where": "a.py:f", "message": "id"}
            return {"seed": self.seed, "number": number, "verdict": verdict, **place}

        def end(self):
            pass

    monkeypatch.setattr(campaign, "Worker", Counting)
    results, fails = tmp_path / "answers.jsonl", 2
    first = campaign.Campaign(SEED, results, jobs=1)
    first.run(1, most=4)
    assert "1 × KeyError in a.py:f (x)" in first.summary()
    assert f"--seed {SEED} --only 2" in first.summary()
    with results.open("a") as file:
        file.write('{"seed": 11, "numb')  # it was stopped in the middle of a line
    fails = None
    second = campaign.Campaign(SEED, results, jobs=1)
    assert [answer["number"] for answer in second.defects] == [2]
    second.run(1, most=3)
    assert (len(second.answers), second.defects, second.n_new) == (7, [], 4)

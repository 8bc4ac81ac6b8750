"""Many stores into one archive: what fails is a row, and what is killed costs its own work."""

import os
import pickle
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.core import schema
from stateanalytics.core.facts import losses_of
from stateanalytics.errors import ArgumentError
from stateanalytics.io.archive import manifests
from stateanalytics.io.archive.manifests import read_attempts
from stateanalytics.reporting.first_screen import coverage_of
from stateanalytics.systems import archiving
from stateanalytics.systems.archiving import Archiving, Source
from stateanalytics.systems.places import Place, files_of, find_places
from tests.conftest import ROOT
from tests.examples import a_few
from tests.lionagi_stores import session, write_store
from tests.samples import SAMPLES

EVENTS = ROOT / "data" / "samples" / "opencode" / "events_july_2026.jsonl"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Three stores, one that is none, and a name of nothing."""
    root = tmp_path_factory.mktemp("hosts")
    for host in "abc":
        folder = root / host
        folder.mkdir()
        write_store(folder / "state.db", sessions=[session(f"{host}-1"), session(f"{host}-2")])
    (root / "d").mkdir()
    (root / "d" / "state.db").write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
    # Files that were written just now may be written again within the same tick.
    for path in root.glob("*/state.db"):
        os.utime(path, (1_779_000_000, 1_779_000_000))
    return root


@pytest.fixture(scope="module")
def collected(hosts, tmp_path_factory):
    """What was told of them, and their archive."""
    history = tmp_path_factory.mktemp("collected") / "history"
    return sa.collect(named(hosts), history), history


def named(hosts):
    return [*(hosts / host / "state.db" for host in "abcd"), hosts / "e" / "state.db"]


def statuses(rows):
    return dict(rows.select(pl.col("source").str.extract(r"(\w)/state"), "status").iter_rows())


NOTHING = dict.fromkeys("de", "failed")
DONE = {**dict.fromkeys("abc", "archived"), **NOTHING}
AGAIN = {**dict.fromkeys("abc", "unchanged"), **NOTHING}


@pytest.mark.slow
def test_what_fails_is_a_row_and_the_others_are_collected(hosts, collected):
    rows, history = collected
    assert statuses(rows) == DONE
    assert all(rows.filter(status="failed")["message"].str.len_chars() > 10)
    with sa.read(history) as snap, sa.read(named(hosts)[:3]) as pooled:
        assert snap.entities.height == 6
        assert_frame_equal(
            sa.states(snap, as_of=pooled.as_of).drop("source"), sa.states(pooled).drop("source")
        )


@pytest.mark.slow
def test_a_source_of_an_archive_is_told_by_files_of_its_own(hosts, tmp_path):
    """All of the archive for each of a thousand sources would be looked at a million times."""
    sa.collect(named(hosts), tmp_path)
    own = [files_of(place, "lionagi") for place in find_places([tmp_path])[0]]
    files = [
        {file for path in map(Path, paths) for file in (path, *path.rglob("*")) if file.is_file()}
        for paths in own
    ]
    # When they were collected is told with the names of the sources, each time.
    looks = set((tmp_path / "looks").iterdir())
    every = {path for path in tmp_path.rglob("*") if path.is_file()} - looks
    assert set().union(*files) == every
    assert sum(map(len, files)) == len(every)


@pytest.mark.slow
def test_the_archive_is_looked_through_once_and_not_for_each_source(hosts, tmp_path, monkeypatch):
    monkeypatch.setattr("stateanalytics.io.cache._TICK_NS", 0)
    sa.collect(named(hosts)[:3], tmp_path)
    listed, find = [], manifests.runs_by_source
    monkeypatch.setattr(manifests, "runs_by_source", lambda root: listed.append(root) or find(root))
    monkeypatch.setattr(archiving, "read_place", None)  # none of them is opened
    assert set(sa.collect(named(hosts)[:3], tmp_path)["status"]) == {"unchanged"}
    assert len(listed) == 2  # to collect, and to see whether compacting is worth it


@pytest.mark.slow
def test_what_was_not_collected_is_told_until_it_is(hosts, tmp_path):
    store, history = tmp_path / "state.db", tmp_path / "history"
    store.write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
    sa.collect([hosts / "a" / "state.db", store], history)
    with sa.read(history) as snap:
        (told,) = snap.findings.filter(code="archive.not_collected").to_dicts()
    assert (told["source"], told["action"]) == (str(store), "nothing is known of it")
    shutil.copy(hosts / "b" / "state.db", store)
    sa.collect(store, history)
    with sa.read(history) as snap:
        assert snap.findings.filter(code="archive.not_collected").is_empty()
        assert snap.entities.height == 4
    store.write_bytes(b"SQLite format 3\0" + b"y" * 5_000)
    sa.collect(store, history)
    with sa.read(history) as snap:
        (told,) = snap.findings.filter(code="archive.not_collected").to_dicts()
        assert told["action"].startswith("shown as last seen at ")
        assert snap.entities.height == 4


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_first_run_notes_names_of_nothing_too(hosts, tmp_path, jobs):
    """A share that was not mounted was told from the second run on; alone it makes no archive."""
    absent, history = tmp_path / "share" / "state.db", tmp_path / "history"
    assert sa.collect(absent, history, jobs=jobs)["status"].to_list() == ["failed"]
    assert not history.exists()
    texts = [tmp_path / f"{n:02}.txt" for n in range(17)]  # more than are archived at once
    for path in texts:
        path.write_text("-")
    sa.collect([absent, *texts, hosts / "a" / "state.db"], history, jobs=jobs)
    with sa.read(history) as snap:
        told = snap.findings.filter(code="archive.not_collected")
    assert sorted(told["source"]) == sorted(map(str, [absent, *texts]))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    shutil.copytree(SAMPLES / "claude_code", tmp_path / "home")
    os.mkfifo(tmp_path / "home" / "projects" / "a.jsonl")
    (row,) = sa.collect(tmp_path / "home", tmp_path / "history").to_dicts()
    words = "a file that cannot be read (not a regular file) (projects/a.jsonl)"
    assert (row["status"], row["message"]) == ("archived", words)


@pytest.mark.slow
def test_the_page_of_a_fleet_begins_with_what_it_lacks(hosts, tmp_path):
    sa.collect(named(hosts)[2:4], tmp_path / "history")
    with sa.read(tmp_path / "history") as snap:
        page = sa.report(snap, sections=[], shown=False)
    (lost,) = page.summary["losses"]
    assert (lost["code"], lost["source"]) == ("archive.not_collected", str(named(hosts)[3]))
    html = page.as_html()
    assert "1 source could not be collected." in html
    assert "A store was damaged" not in html
    assert html.index("What is missing from this report") < html.index("The window in numbers")


def test_a_note_that_cannot_be_read_is_told_too(collected, tmp_path):
    history = shutil.copytree(collected[1], tmp_path / "history")
    (note, *_) = (history / "attempts").iterdir()
    note.write_text("{")
    with sa.read(history) as snap:
        told = snap.findings.filter(code="archive.not_collected")
        assert told["message"].str.contains("the note of it cannot be read").any()


BROKEN_NOTES = {
    "nested": "[" * 100_000,
    "before all": '{"label": "a", "at": "0001-01-01T00:00:00+14:00", "message": "m"}',
    "half a character": '{"label": "a\\ud800", "at": null, "message": "m"}',
    "another type": '{"label": 3, "at": [], "message": {}}',
    "too long": '{"label": "' + "a" * 1_000_001 + '"}',
    "empty": "",
}


@pytest.mark.parametrize("text", BROKEN_NOTES.values(), ids=BROKEN_NOTES)
def test_no_note_makes_an_archive_unreadable(hosts, tmp_path, text):
    sa.collect(named(hosts)[3:], tmp_path)
    (note, _) = sorted((tmp_path / "attempts").iterdir())
    note.write_text(text)
    told = read_attempts(tmp_path)[note.stem]
    assert told.at is None
    assert told.label


def test_a_note_is_no_device_and_no_stranger(hosts, tmp_path):
    sa.collect(named(hosts)[3:], tmp_path)
    (note, other) = sorted((tmp_path / "attempts").iterdir())
    note.unlink()
    note.symlink_to("/dev/zero")
    (other.with_name("readme.json")).write_text("{}")
    assert set(read_attempts(tmp_path)) == {note.stem, other.stem}
    assert read_attempts(tmp_path)[note.stem].message == "the note of it cannot be read"


def at_clock(monkeypatch, day):
    now, at = datetime(2026, 6, day, tzinfo=UTC), archiving.Archiving.at
    monkeypatch.setattr(
        archiving.Archiving,
        "at",
        lambda *to, **options: replace(at(*to, **options), clock=lambda: now),
    )


def looked(history):
    """When each source was collected last, and whether anything was new then."""
    rows = sa.read(history).sources.select(
        pl.col("source").str.extract(r"(\w)/state"), "looked_at", "is_unchanged"
    )
    return {name: (at.day, is_unchanged) for name, at, is_unchanged in rows.iter_rows()}


@pytest.mark.slow
def test_an_archive_tells_when_each_source_was_collected_last(hosts, tmp_path, monkeypatch):
    for day, names in ((1, "abc"), (2, "abd"), (20, "bd")):
        at_clock(monkeypatch, day)
        sa.collect([hosts / name / "state.db" for name in names], tmp_path)
    assert looked(tmp_path) == {"a": (2, True), "b": (20, True), "c": (1, False)}
    with sa.read(tmp_path) as snap:
        told = coverage_of(snap.sources, losses_of(snap.findings))
        assert [snap.sources["source"][n][-10] for n in (0, 2)] == ["a", "c"]
    assert (told["n_read"], told["n_unchanged"], told["n_failed"]) == (3, 2, 1)
    assert [each["since"][:10] for each in told["stale"]] == ["2026-06-01", "2026-06-02"]


@pytest.mark.slow
def test_what_a_snapshot_archives_is_collected_too(hosts, tmp_path, monkeypatch):
    for day in (1, 5):
        at_clock(monkeypatch, day)
        sa.read(hosts / "a" / "state.db").archive(tmp_path)
    assert looked(tmp_path) == {"a": (5, True)}


@pytest.mark.slow
def test_notes_of_what_was_collected_stay_few(hosts, tmp_path, monkeypatch):
    """Also those of a clock that was ahead once."""
    for day in (1, 28, 2, 3):
        at_clock(monkeypatch, day)
        sa.collect(named(hosts)[:2], tmp_path)
    (note,) = (tmp_path / "looks").iterdir()
    assert note.name.startswith("20260603T000000Z-")
    at_clock(monkeypatch, 4)
    sa.collect(named(hosts)[1:3], tmp_path)
    assert len(list((tmp_path / "looks").iterdir())) == 2
    assert looked(tmp_path) == {"a": (3, True), "b": (4, True), "c": (4, False)}


@pytest.mark.slow
def test_an_archive_without_notes_of_what_was_collected_tells_its_runs(
    hosts, tmp_path, monkeypatch
):
    for day in (1, 5):
        at_clock(monkeypatch, day)
        sa.collect(named(hosts)[:1], tmp_path)
    shutil.rmtree(tmp_path / "looks")
    assert looked(tmp_path) == {"a": (1, False)}


@pytest.mark.slow
def test_a_refresh_tells_that_a_source_was_collected_again(hosts, tmp_path, monkeypatch):
    monkeypatch.setattr("stateanalytics.io.cache._TICK_NS", 0)
    at_clock(monkeypatch, 1)
    sa.collect(named(hosts)[:2], tmp_path)
    snap = sa.read(tmp_path)
    at_clock(monkeypatch, 5)
    sa.collect(named(hosts)[:2], tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("stateanalytics.systems.reading.read_place", None)  # no row is read again
        again = snap.refresh(progress=False)
    assert again.sources["is_unchanged"].to_list() == [True, True]
    assert_frame_equal(again.sources, sa.read(tmp_path).sources)


BROKEN_LOOKS = {
    "nested": "[" * 100_000,
    "no object": "[]",
    "no moment": '{"at": "9999-12-31", "sources": {}}',
    "another status": '{"at": "2026-06-01", "sources": {"0123456789abcdef": "failed"}}',
    "another type": '{"at": "2026-06-01", "sources": {"0123456789abcdef": []}}',
    "no key": '{"at": "2026-06-01", "sources": {"../../x": "unchanged"}}',
    "half a character": '{"at": "2026-06-01", "sources": {"a\\ud800": "unchanged"}}',
    "empty": "",
}


@pytest.mark.parametrize(
    "text", a_few([pytest.param(text, id=name) for name, text in BROKEN_LOOKS.items()], 2)
)
def test_no_note_of_what_was_collected_makes_an_archive_unreadable(collected, tmp_path, text):
    history = shutil.copytree(collected[1], tmp_path / "history")
    (note,) = (history / "looks").iterdir()
    note.write_text(text)
    with sa.read(history) as snap:
        (found,) = snap.findings.filter(code="archive.look_unreadable").to_dicts()
        assert (found["example"], found["severity"]) == (note.name, "warning")
        assert snap.sources["looked_at"].null_count() == 0


def test_of_what_was_collected_a_stranger_tells_nothing(collected, tmp_path):
    history = shutil.copytree(collected[1], tmp_path / "history")
    (note,) = (history / "looks").iterdir()
    note.unlink()
    note.symlink_to("/dev/zero")
    (note.with_name("20260601T000000Z-00000000.json")).write_text(
        '{"at": "2026-06-01", "sources": {"0123456789abcdef": "unchanged"}}'
    )
    (note.with_name("readme.json")).write_text("{}")
    with sa.read(history) as snap:
        assert snap.findings.filter(code="archive.look_unreadable")["example"].to_list() == [
            note.name
        ]
        assert snap.sources.height == 3


def test_a_first_run_of_failures_leaves_an_archive_to_go_on_with(hosts, tmp_path):
    assert statuses(sa.collect(named(hosts)[3:], tmp_path)) == NOTHING
    assert statuses(sa.collect(named(hosts)[2:], tmp_path)) == {**NOTHING, "c": "archived"}
    with sa.read(tmp_path) as snap:
        assert snap.findings.filter(code="archive.not_collected").height == 2


@pytest.mark.slow
@pytest.mark.parametrize("by", a_few(["pattern", "name"]))
def test_a_store_that_is_gone_is_told(hosts, tmp_path, by):
    folder, history = tmp_path / "hosts", tmp_path / "history"
    shutil.copytree(hosts, folder, ignore=shutil.ignore_patterns("c", "d"))
    asked = (
        folder / "*" / "state.db"
        if by == "pattern"
        else [folder / "a/state.db", folder / "b/state.db"]
    )
    sa.collect(asked, history)
    shutil.rmtree(folder / "b")
    assert statuses(sa.collect(asked, history))["b"] == "failed"
    with sa.read(history) as snap:
        (told,) = snap.findings.filter(code="archive.not_collected")["source"]
        assert told == str(folder / "b" / "state.db")
        assert "MISSING" in repr(snap)
    shutil.copytree(hosts / "b", folder / "b")
    sa.collect(asked, history)
    with sa.read(history) as snap:
        assert snap.findings.filter(code="archive.not_collected").is_empty()


def test_a_source_has_one_key_on_whatever_machine_it_is_read(hosts, tmp_path, monkeypatch):
    with ThreadPoolExecutor(1) as pool:
        sa.collect(named(hosts)[:1], tmp_path / "history", executor=pool)
        original = archiving._archived

        def elsewhere(*batch):
            with monkeypatch.context() as patched:
                patched.setattr("platform.node", lambda: "another-host")
                return original(*batch)

        monkeypatch.setattr(archiving, "_archived", elsewhere)
        again = sa.collect(named(hosts)[:1], tmp_path / "history", executor=pool)
    assert again["status"].to_list() == ["unchanged"]


def test_secrets_of_a_label_are_masked_in_its_note(hosts, tmp_path):
    folder = tmp_path / "token=ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    folder.mkdir()
    shutil.copy(hosts / "d" / "state.db", folder)
    sa.collect([hosts / "a/state.db", folder / "state.db"], tmp_path / "history", redact=True)
    (note,) = (tmp_path / "history" / "attempts").iterdir()
    assert "ghp_16C7" not in note.read_text()


class Doing:
    """A pool with ``apply_async``, as Ray has one."""

    def __init__(self, pool):
        self.pool = pool

    def apply_async(self, function, arguments):
        done = self.pool.submit(function, *arguments)
        return type("Result", (), {"get": staticmethod(done.result)})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["submit", "apply_async"])
def test_any_executor_does(hosts, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(archiving, "N_A_BATCH", 2)
    with ThreadPoolExecutor(2) as pool:
        executor = pool if kind == "submit" else Doing(pool)
        rows = sa.collect(named(hosts)[1:], tmp_path / "history", executor=executor)
    assert statuses(rows) == {**NOTHING, **dict.fromkeys("bc", "archived")}


def _dies_of(victim, to, sources):
    if any(source.place.path.parent.name == victim for source in sources):
        os.kill(os.getpid(), signal.SIGKILL)
    return archiving._archived(to, sources)


@pytest.mark.slow
def test_a_process_that_is_killed_costs_the_store_that_killed_it(hosts, tmp_path, monkeypatch):
    original = archiving._Processes.run

    def run(processes, *batch):
        with monkeypatch.context() as patched:
            patched.setattr(archiving, "_archived", partial(_dies_of, "b"))
            return original(processes, *batch)

    monkeypatch.setattr(archiving._Processes, "run", run)
    rows = sa.collect(named(hosts)[:2], tmp_path / "history", jobs=2)
    assert statuses(rows) == {"a": "archived", "b": "failed"}
    (why,) = rows.filter(pl.col("source").str.contains("b/state.db"))["message"]
    assert why == "the process that read it was killed"


@pytest.mark.slow
def test_what_was_interrupted_goes_on(hosts, tmp_path):
    history = tmp_path / "history"
    rows = archiving.collect_each(archiving.Archiving.at(history), named(hosts)[:2])
    next(rows)
    rows.close()
    assert statuses(sa.collect(named(hosts), history)) == {**AGAIN, "c": "archived"}
    assert statuses(sa.collect(named(hosts), history)) == AGAIN


@pytest.mark.slow
def test_the_command_sums_up(hosts, tmp_path, capsys):
    stores = [str(path) for path in named(hosts)[1:]]
    assert run(["archive", *stores, "--to", str(tmp_path / "history")]) == 1
    told = capsys.readouterr()
    assert told.out.count("archived ") == 2
    assert told.out.splitlines()[-1] == "4 sources: 2 archived, 2 failed"
    assert told.err.count("failed ") == 2
    assert "stale" not in told.err


@pytest.mark.slow
def test_the_command_names_what_nobody_collects_any_more(hosts, tmp_path, capsys, monkeypatch):
    for day, names in ((1, "abc"), (20, "b")):
        at_clock(monkeypatch, day)
        asked = [str(hosts / name / "state.db") for name in names]
        assert run(["archive", *asked, "--to", str(tmp_path)]) == 0
    a, c = (hosts / name / "state.db" for name in "ac")
    assert capsys.readouterr().err == (
        "stale, not collected for more than a week: "
        f"{a} since Mon 1 Jun 2026, {c} since Mon 1 Jun 2026\n"
    )


def test_a_source_that_an_executor_refuses_has_its_system(tmp_path):
    class Refusing:
        def submit(self, *_):
            raise RuntimeError("full")

    rows = sa.collect(EVENTS, tmp_path / "history", executor=Refusing())
    named_by = ("system", "status", "message")
    assert rows.select(named_by).rows() == [("opencode", "failed", "RuntimeError: full")]


def test_a_worker_without_the_package_of_a_source_says_so(hosts, tmp_path):
    """It may lack what the machine that started the collection has."""
    place = Place(Path(named(hosts)[0]), "theirs", is_named=True)
    sent = pickle.loads(pickle.dumps(Source(place, "theirs", ("0", "host:theirs"), None)))
    row = Archiving.at(tmp_path / "history").add_source(sent)
    assert (row["source"], row["status"]) == ("theirs", "failed")
    assert "There is no system 'theirs'" in row["message"]


def test_what_is_no_executor_is_refused(hosts, tmp_path):
    with pytest.raises(ArgumentError, match="an executor with submit or apply_async; found 7"):
        sa.collect(named(hosts), tmp_path / "history", executor=7)
    with pytest.raises(ArgumentError, match="jobs needs a whole number above 0; found 0"):
        sa.collect(named(hosts), tmp_path / "history", jobs=0)


@pytest.mark.slow
def test_a_file_of_another_system_is_collected_as_it_is_read(tmp_path):
    sa.collect([EVENTS], tmp_path / "history", jobs=2)
    with sa.read(tmp_path / "history") as snap, sa.read(EVENTS) as store:
        assert snap.entities.height == store.entities.height


def test_errors_and_what_could_not_be_read_are_losses():
    rows = [
        ("archive.shard_missing", "error", "excluded", True),
        ("id.unusable", "error", "the row was excluded", True),
        ("file.unreadable", "warning", None, True),
        ("record.not_json", "warning", "excluded", True),
        ("record.half_surrogate", "info", "excluded", False),
        ("record.would_reject", "warning", "the words are kept as they are stored", False),
        ("line.unfinished", "info", "excluded", False),
        ("time.unreadable", "warning", "read as null", False),
    ]
    columns = ("code", "severity", "action", "expected")
    findings = pl.DataFrame(rows, schema=columns, orient="row")
    lost = losses_of(schema.FINDINGS.conform(findings))["code"].to_list()
    assert lost == findings.filter("expected")["code"].to_list()

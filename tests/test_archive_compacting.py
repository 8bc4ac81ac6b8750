"""The small files of an archive become few, and every row stays."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.errors import ArgumentError, NoRoomError, NotAStoreError, StateAnalyticsError
from stateanalytics.io.archive import compacting
from stateanalytics.io.archive.compacting import compact
from stateanalytics.io.archive.reading import archived_sources, read_many_archived
from stateanalytics.systems import detail_frames
from stateanalytics.systems.archiving import compact_archive
from tests.examples import a_few
from tests.lionagi_stores import session, write_store
from tests.test_archive import codes
from tests.test_archive_weeks import WEDNESDAY, work
from tests.test_observations import store_at

FRAMES = ("entities", "transitions", "events", "findings", "sources")


@pytest.fixture(scope="module")
def small_files(tmp_path_factory):
    """Two runs of one store, one of another with work in four weeks, and one that failed."""
    root = tmp_path_factory.mktemp("compacting")
    history = root / "history"
    for name in "abc":
        (root / name).mkdir()
    for day in (1, 3):
        store = root / "a" / "state.db"
        store.unlink(missing_ok=True)
        with sa.read(store_at(store, day)) as snap:
            snap.archive(history)
    told = [work(f"in-{i}", at, at + 600) for i, at in enumerate(WEDNESDAY)]
    (root / "c" / "state.db").write_bytes(b"SQLite format 3\0" + b"x" * 5_000)
    write_store(
        root / "b" / "state.db",
        sessions=[row for row, _ in told],
        status_transitions=[one for _, many in told for one in many],
    )
    sa.collect([root / "b" / "state.db", root / "c" / "state.db"], history)
    return history


@pytest.fixture
def history(small_files, tmp_path):
    return shutil.copytree(small_files, tmp_path / "history")


def files(root):
    """All files but the notes."""
    return sorted(
        path
        for path in root.rglob("*.*")
        if path.is_file() and path.parent.name not in ("looks", "attempts")
    )


def same(one, other):
    """Whether two snapshots have the same rows of every frame."""
    for name in FRAMES:
        rows, others = getattr(one, name), getattr(other, name)
        assert_frame_equal(rows.sort(rows.columns), others.sort(rows.columns))
    assert set(one.details) == set(other.details)
    for name, rows in one.details.items():
        assert_frame_equal(rows, other.details[name], check_row_order=False)


def test_compacted_rows_are_those_of_before(history, capsys):
    whole, week = sa.read(history), sa.read(history, weeks="2026-W20")
    n_before = len(files(history))
    assert run(["archive", "--compact", "--to", str(history)]) == 0
    same(sa.read(history), whole)
    some = sa.read(history, weeks="2026-W20")
    assert some.entities.equals(week.entities)
    tables = [path for path in files(history) if path.suffix == ".parquet"]
    assert len(tables) == len({path.parent for path in tables}) < n_before
    assert [path.suffix for path in (history / "manifests").iterdir()] == [".jsonl"]
    assert not (history / "shards").exists()
    assert run(["archive", "--compact", "--to", str(history)]) == 0
    assert capsys.readouterr().out.splitlines() == ["compacted", "nothing to compact"]


@pytest.mark.slow
def test_a_compacted_archive_is_added_to(history, tmp_path):
    stores = [Path(label) for label in sa.read(history).sources["source"]]
    sa.collect(stores, history)
    compact(history, is_forced=True)
    before = files(history)
    assert sa.collect(stores, history)["status"].to_list() == ["unchanged"] * 2
    write_store(tmp_path / "state.db", sessions=[session("new")])
    assert sa.collect(tmp_path / "state.db", history)["status"].to_list() == ["archived"]
    assert set(before) < set(files(history))
    whole = sa.read(history)
    assert whole.sources.height == 3
    compact(history, is_forced=True)
    same(sa.read(history), whole)


@pytest.mark.parametrize("how", ["archive", "collect"])
def test_it_is_compacted_where_that_is_asked_for(tmp_path, how):
    store = write_store(tmp_path / "state.db", sessions=[session("one")])
    if how == "archive":
        with sa.read(store) as snap:
            snap.archive(tmp_path / "history", compact=True)
    else:
        sa.collect(store, tmp_path / "history", compact=True)
    assert not (tmp_path / "history" / "shards").exists()
    assert sa.read(tmp_path / "history").entities["entity_id"].to_list() == ["one"]


@pytest.mark.slow
def test_many_small_files_are_joined_without_being_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(compacting, "MOST_FILES", 2)
    stores = []
    for name in "abc":
        (tmp_path / name).mkdir()
        stores.append(write_store(tmp_path / name / "state.db", sessions=[session(name)]))
    sa.collect(stores, tmp_path / "history")
    assert not list((tmp_path / "history" / "manifests").glob("*.json"))
    assert sa.read(tmp_path / "history").entities.height == 3


def test_no_table_has_more_rows_than_a_reader_takes(history, monkeypatch):
    """Rows of many sources that are alike become very few bytes."""
    whole = sa.read(history)
    monkeypatch.setattr(compacting, "_is_too_dense", lambda n_rows, _: n_rows > 3)
    compact(history, is_forced=True)
    monkeypatch.undo()
    same(sa.read(history), whole)
    tables = [pl.read_parquet(path) for path in history.rglob("tables/*/*/*.parquet")]
    assert max(rows.height for rows in tables) <= 3


def test_who_listed_the_runs_before_reads_them_after(history):
    sources = [source for source in archived_sources(history) if source.runs]
    labels = [source.label for source in sources]
    before = read_many_archived(sources, labels, detail_frames())
    compact(history, is_forced=True)
    for part, earlier in zip(
        read_many_archived(sources, labels, detail_frames()), before, strict=True
    ):
        assert part.entities.equals(earlier.entities)
        assert part.findings.equals(earlier.findings)


def test_a_damaged_file_stays_where_it_is(history):
    damaged = next(path for path in files(history) if path.name.startswith("transitions-"))
    damaged.write_bytes(b"")
    whole = sa.read(history)
    compact(history, is_forced=True)
    assert damaged.exists()
    same(sa.read(history), whole)
    assert codes(whole).count("archive.shard_damaged") == 1


def test_an_archive_with_a_run_that_cannot_be_read_stays_as_it_is(history, capsys):
    next((history / "manifests").iterdir()).write_text("{")
    before = files(history)
    assert not compact(history, is_forced=True)
    assert files(history) == before
    assert run(["archive", "--compact", "--to", str(history)]) == 2
    assert "1 runs that cannot be read" in capsys.readouterr().err


def test_a_table_of_a_newer_version_says_what_to_do(history):
    compact(history, is_forced=True)
    (table,) = (history / "manifests").iterdir()
    head, *lines = table.read_text().splitlines()
    table.write_text("\n".join([json.dumps(json.loads(head) | {"archive": 3}), *lines]))
    with pytest.raises(NotAStoreError, match="has version 3; this program reads up to 2"):
        sa.read(history)
    (failed,) = sa.collect("state.db", history)["status"] if Path("state.db").exists() else ("",)
    assert failed in ("", "failed")


def test_a_line_that_is_no_run_costs_that_run(history):
    compact(history, is_forced=True)
    (table,) = (history / "manifests").iterdir()
    lines = table.read_text().splitlines()
    lines[1] = lines[1][:-9]
    table.write_text("\n".join(lines))
    snap = sa.read(history)
    (found,) = snap.findings.filter(code="archive.run_unreadable").to_dicts()
    assert found["example"] == f"{table.name}:2"
    assert snap.entities.height


@pytest.mark.slow
@pytest.mark.parametrize("seed", a_few(list(range(60)), 6))
def test_no_octets_of_a_table_end_a_read(history, seed):
    compact(history, is_forced=True)
    chosen = Random(seed)
    path = chosen.choice(files(history))
    content = bytearray(path.read_bytes())
    for _ in range(chosen.choice((1, 3, 20))):
        content[chosen.randrange(len(content))] = chosen.randrange(256)
    path.write_bytes(content[: chosen.randrange(len(content))] if seed % 3 == 0 else content)
    try:
        snap = sa.read(history)
    except StateAnalyticsError:
        return
    same(snap, sa.read(history))


def test_where_nothing_can_be_written_nothing_is_lost(history, monkeypatch):
    whole = sa.read(history)

    def refuse(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(compacting, "put_whole", refuse)
    with pytest.raises(NoRoomError, match="Nothing that was archived before is lost"):
        compact_archive(history)
    same(sa.read(history), whole)


def test_only_an_archive_is_compacted(tmp_path):
    with pytest.raises(ArgumentError, match="There is no archive"):
        compact_archive(tmp_path / "none")
    assert run(["archive", "x.db", "--compact", "--to", str(tmp_path / "none")]) == 2


KILLED = """
import os, signal, sys
from pathlib import Path
from stateanalytics.io.archive import compacting
left = [int(sys.argv[2])]
def counted(work):
    def step(*args, **options):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*args, **options)
    return step
compacting.put_whole = counted(compacting.put_whole)
Path.unlink = counted(Path.unlink)
compacting.compact(Path(sys.argv[1]), is_forced=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("n_steps", a_few(list(range(60)), 3))
def test_a_compaction_that_is_killed_loses_nothing(history, n_steps):
    whole = sa.read(history)
    ended = subprocess.run([sys.executable, "-c", KILLED, str(history), str(n_steps)], check=False)
    assert ended.returncode in (0, -signal.SIGKILL)
    same(sa.read(history), whole)
    compact(history, is_forced=True)
    same(sa.read(history), whole)
    assert [path.suffix for path in (history / "manifests").iterdir()] == [".jsonl"]

"""Private copies do not outlive the process that made them, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stateanalytics as sa
from stateanalytics.cli import cli
from stateanalytics.errors import NoRoomError
from stateanalytics.io import processes
from stateanalytics.io.outputs import put_in_place, write_output
from stateanalytics.io.processes import (
    HIDDEN,
    PREFIX,
    delete_abandoned_folders,
    make_private_folder,
    new_path,
)
from stateanalytics.io.sqlite import open_store, salvaged
from stateanalytics.sql import running
from tests.conftest import ROOT
from tests.lionagi_stores import session, write_store


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Where temporary files go."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def age(folder: Path, seconds: float = 3600) -> None:
    os.utime(folder, (time.time() - seconds,) * 2)


def killed(script: str, *arguments: object) -> None:
    """Another process prints a line, goes on, and is killed."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGKILL)


WITH_A_COPY = """
import sys, time
from stateanalytics.io.sqlite import open_store
store = open_store(sys.argv[1]); store.check(); print('now', flush=True)
time.sleep(600)
"""


def test_the_copy_of_a_killed_process_goes_with_the_next_load(tmp_path, place):
    store = write_store(tmp_path / "state.db", sessions=[session("a")])
    killed(WITH_A_COPY, store)
    (left,) = place.iterdir()
    assert (left / "copy.db").exists()
    age(left)
    with sa.read(store) as snap:
        assert not left.exists()
        assert snap.stores[0].copy.exists()
    assert list(place.iterdir()) == []


@pytest.mark.slow
def test_of_many_loads_only_the_first_in_a_while_looks(place, tmp_path, monkeypatch):
    store = write_store(tmp_path / "state.db", sessions=[session("a")])
    killed(WITH_A_COPY, store)
    (left,) = place.iterdir()
    for since_s, is_there in ((0.0, True), (601.0, False)):
        age(left)
        monkeypatch.setitem(processes._NEXT_LOOK_S, place, time.monotonic() + 600 - since_s)
        with sa.read(store):
            assert left.exists() is is_there


def test_a_copy_that_is_used_stays(tmp_path, place):
    store = write_store(tmp_path / "state.db", sessions=[session("a")])
    with open_store(store) as first:
        age(first.copy.parent)
        with sa.read(store):
            assert first.copy.exists()
        script = (
            "import sys; from pathlib import Path\n"
            "from stateanalytics.io.processes import delete_abandoned_folders\n"
            "print(delete_abandoned_folders(Path(sys.argv[1]), young_s=0))\n"
        )
        command = [sys.executable, "-c", script, str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n"
        assert first.copy.exists()


@pytest.mark.parametrize("name", ["week.html", "week", ".week", "0123456789abc", "projects"])
@pytest.mark.parametrize("prefix", [PREFIX, HIDDEN])
@pytest.mark.parametrize("is_file", [True, False])
def test_files_and_folders_that_people_named_after_the_program_stay(place, prefix, name, is_file):
    theirs = place / f"{prefix}{name}"
    theirs.write_text("a report of last week") if is_file else theirs.mkdir()
    age(theirs)
    assert delete_abandoned_folders(place) == []
    assert theirs.exists()


@pytest.mark.parametrize("what", ["a young folder", "no lock", "a link", "another name"])
def test_what_may_be_somebody_elses_stays(place, what):
    folder = place / ("other-x" if what == "another name" else f"{PREFIX}x")
    folder.mkdir()
    (folder / "copy.db").write_bytes(b"x")
    if what != "no lock":
        (folder / "in-use").write_bytes(b"")
    age(folder, 0 if what == "a young folder" else 3600)
    if what == "a link":
        folder = folder.rename(place / "real")
        (place / f"{PREFIX}x").symlink_to(folder)
    assert delete_abandoned_folders(place) == []
    assert (folder / "copy.db").exists()


def test_a_folder_is_for_its_owner_only_and_goes_when_asked(place):
    folder = make_private_folder()
    assert folder.path.stat().st_mode & 0o077 == 0
    folder.delete()
    folder.delete()
    assert list(place.iterdir()) == []


def test_a_temporary_folder_that_cannot_be_used_is_an_error(tmp_path, monkeypatch):
    store = write_store(tmp_path / "state.db", sessions=[session("s1")])
    monkeypatch.setenv("TMPDIR", str(tmp_path / "not-mounted"))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(NoRoomError, match=r"TMPDIR=.*not-mounted cannot be used"):
        open_store(store)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["parsed apart", "report", "salvage", "sql"])
def test_without_the_temporary_folder_nothing_goes_elsewhere(tmp_path, monkeypatch, what):
    recorded = sorted((ROOT / "tests/recorded/claude/projects").glob("*/*.jsonl"))[0]
    path = tmp_path / "projects" / "a" / recorded.name
    path.parent.mkdir(parents=True)
    path.write_text(recorded.read_text("utf-8"), "utf-16" if what == "parsed apart" else "utf-8")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "not-mounted"))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(NoRoomError, match=r"TMPDIR=.*not-mounted cannot be used"):
        if what == "report":
            cli.main(["report", str(tmp_path), "-o", "-", "-f", "md"], standalone_mode=False)
        elif what == "salvage":
            salvaged(path)
        else:
            snap = sa.read(tmp_path)
            monkeypatch.setattr(running.WORKERS, "_folder", None)
            snap.sql("FROM entities")


HALF = "print('now', flush=True); time.sleep(600)\n"
HALF_A_FOLDER = (
    "import sys, time\n"
    "from pathlib import Path\n"
    "from stateanalytics.io.outputs import put_in_place\n"
    f"def write(path):\n    path.write_bytes(b'secret'); {HALF}"
    "put_in_place(Path(sys.argv[1]), write)\n"
)
HALF_A_FILE = (
    "import os, sys, time\n"
    f"def half(handle):\n    {HALF}"
    "os.fsync = half\n"
    "from stateanalytics.io.outputs import write_output\n"
    "write_output(sys.argv[1], b'secret')\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("script", [HALF_A_FOLDER, HALF_A_FILE])
@pytest.mark.parametrize("name", ["e.sqlite", "in-use"])
def test_what_a_killed_output_left_goes_with_the_next(tmp_path, monkeypatch, script, name):
    monkeypatch.setattr(processes, "_NEXT_LOOK_S", {})
    target = tmp_path / name
    killed(script, target)
    (left,) = tmp_path.iterdir()
    age(left)
    put_in_place(target, lambda path: path.write_bytes(b"whole") and None)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert target.read_bytes() == b"whole"


def test_an_output_that_is_being_written_stays(tmp_path, monkeypatch):
    def write(path: Path) -> None:
        path.write_bytes(b"half")
        age(path.parent.parent)
        monkeypatch.setattr(processes, "_NEXT_LOOK_S", {})
        write_output(tmp_path / "other", b"whole")
        assert path.exists()

    put_in_place(tmp_path / "one", write)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]


def test_a_folder_whose_maker_was_killed_before_it_was_locked_goes(place):
    folder = new_path(place)
    folder.mkdir()
    assert delete_abandoned_folders() == []
    age(folder)
    assert delete_abandoned_folders() == [folder]
    assert list(place.iterdir()) == []


@pytest.mark.slow
def test_an_export_that_was_killed_leaves_nothing_for_good(tmp_path, monkeypatch):
    """Killed at several instants, as the memory killer does."""
    monkeypatch.setattr(processes, "_NEXT_LOOK_S", {})
    command = [sys.executable, "-m", "stateanalytics", "export"]
    command += [str(ROOT / "data" / "samples" / "state.db"), "-o", str(tmp_path / "e.sqlite")]
    silent = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
    for after_s in (1.5, 3.0):
        process = subprocess.Popen(command, **silent)
        time.sleep(after_s)
        process.kill()
        process.wait()
    for left in tmp_path.iterdir():
        age(left)
    write_output(tmp_path / "x", b"whole")
    assert {path.name for path in tmp_path.iterdir()} <= {"x", "e.sqlite"}

"""Private copies do not outlive the process that made them, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stateanalytics as sa
from stateanalytics.errors import NoRoomError
from stateanalytics.io import private_folders
from stateanalytics.io.private_folders import (
    PREFIX,
    delete_abandoned_folders,
    make_private_folder,
)
from stateanalytics.io.sqlite import open_store
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


def killed_with_a_copy(store: Path) -> None:
    """Another process opens a store, and is killed."""
    script = (
        "import sys, time\n"
        "from stateanalytics.io.sqlite import open_store\n"
        "store = open_store(sys.argv[1]); store.check(); print('open', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(store)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "open\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_the_copy_of_a_killed_process_goes_with_the_next_load(tmp_path, place):
    store = write_store(tmp_path / "state.db", sessions=[session("a")])
    killed_with_a_copy(store)
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
    killed_with_a_copy(store)
    (left,) = place.iterdir()
    for since_s, is_there in ((0.0, True), (601.0, False)):
        age(left)
        monkeypatch.setitem(private_folders._NEXT_LOOK_S, place, time.monotonic() + 600 - since_s)
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
            "from stateanalytics.io.private_folders import delete_abandoned_folders\n"
            "print(delete_abandoned_folders(Path(sys.argv[1]), young_s=0))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(place)], capture_output=True, text=True, check=True
        )
        assert done.stdout == "[]\n"
        assert first.copy.exists()


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

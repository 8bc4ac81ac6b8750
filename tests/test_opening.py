"""Files of text are opened so that nothing can block, and read no further than a bound."""

import importlib.util
import os
import sys
from types import SimpleNamespace

import pytest

from stateanalytics.io import files, sqlite_copy
from stateanalytics.io.files import JsonObject, read_json_object


def test_a_regular_file_is_read_through_a_link(tmp_path):
    (tmp_path / "a").write_bytes(b"text")
    (tmp_path / "b").symlink_to("a")
    octets, status = files.read_octets(tmp_path / "b", 4)
    assert (octets, status.st_size) == (b"text", 4)


def test_octets_stay_as_they_are_where_a_text_could_end_at_ctrl_z(tmp_path, monkeypatch):
    """Windows has O_BINARY; its number is one that Linux takes and does nothing for."""
    monkeypatch.setattr(os, "O_BINARY", 0x8000, raising=False)
    asked, really = [], os.open
    monkeypatch.setattr(os, "open", lambda path, flags: asked.append(flags) or really(path, flags))
    (tmp_path / "a").write_bytes(b"a\r\n\x1ab")
    for path, function in ((files.__file__, "read_octets"), (sqlite_copy.__file__, "beginning")):
        spec = importlib.util.spec_from_file_location("on_windows", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "on_windows", module)  # dataclasses look it up there
        spec.loader.exec_module(module)
        asked.clear()
        getattr(module, function)(str(tmp_path / "a"), 5)
        assert asked
        assert all(flags & 0x8000 for flags in asked)


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_what_may_block_or_never_end_is_refused(tmp_path, kind):
    path = tmp_path / "checkpoint.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    assert read_json_object(path) == JsonObject(None, "not a regular file")


def test_what_was_put_there_after_it_was_looked_at_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.json"
    path.write_text("{}")
    before = os.stat(path)  # noqa: PTH116
    path.unlink()
    os.mkfifo(path)
    shown = SimpleNamespace(stat=lambda _: before)
    monkeypatch.setattr(files, "os", SimpleNamespace(**{**vars(os), **vars(shown)}))
    assert read_json_object(path) == JsonObject(None, "not a regular file")


def test_reading_ends_at_the_bound_whatever_size_was_told(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.json"
    path.write_bytes(b"x" * 3_000_000)
    assert read_json_object(path, max_bytes=2_000_000).problem == (
        "3,000,000 bytes, more than the 2,000,000 that are read"
    )
    told = SimpleNamespace(st_mode=os.stat(path).st_mode, st_size=0)  # noqa: PTH116
    lying = {**vars(os), "fstat": lambda _: told}
    monkeypatch.setattr(files, "os", SimpleNamespace(**lying))
    assert read_json_object(path, max_bytes=2_000_000).problem == (
        "more than the 2,000,000 that are read"
    )

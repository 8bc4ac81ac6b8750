"""Transcripts of which some were written to: the others are not read again, and nothing is lost."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.core.facts import unevaluated
from stateanalytics.io import json_lines
from stateanalytics.io.json_lines import chunks_of
from stateanalytics.systems import folding, transcripts
from tests.conftest import ROOT
from tests.examples import examples
from tests.frames import AS_OF
from tests.lionagi_stores import session, write_store
from tests.test_refresh import assert_same

SESSION = "019d4845-6280-4bcf-8c9b-{:012d}"


def sample(system: str, to: Path) -> Path:
    return shutil.copytree(ROOT / "data" / "samples" / system, to / system)


def read(path: Path) -> sa.Snapshot:
    return sa.read(path, as_of=AS_OF, progress=False)


def files_of(root: Path) -> list[Path]:
    found = [path for path in root.rglob("*.jsonl") if path.name != "history.jsonl"]
    return sorted(found)


def nth(root: Path, n: int) -> Path:
    files = files_of(root)
    return files[n % len(files)]


def append(root: Path, n: int) -> None:
    """One more line, as the file has had before."""
    path = nth(root, n)
    lines = path.read_bytes().splitlines(keepends=True) or [b"\n"]
    path.write_bytes(b"".join([*lines, lines[n % len(lines)]]))


def rewrite(root: Path, n: int) -> None:
    """As many octets, others."""
    path = nth(root, n)
    path.write_bytes(path.read_bytes().replace(b"1", b"3"))


def cut(root: Path, n: int) -> None:
    """Half of the last line is not written yet."""
    path = nth(root, n)
    path.write_bytes(path.read_bytes()[: -(n % 90) - 1])


def delete(root: Path, n: int) -> None:
    if len(files_of(root)) > 3:
        nth(root, n).unlink()


def fork(root: Path, n: int) -> None:
    """A file with what another one holds."""
    path = nth(root, n)
    other = path.with_name(f"{path.stem[:-12]}{n:012d}.jsonl")
    if path.name != "session_index.jsonl" and other != path:
        shutil.copy(path, other)


def damage(root: Path, n: int) -> None:
    path = nth(root, n)
    path.write_bytes(b'{"half\n' + path.read_bytes() + b"\xff\xfe\n")


def empty(root: Path, n: int) -> None:
    nth(root, n).write_bytes(b"")


def add(root: Path, n: int) -> None:
    """A session of one question, in Claude Code's words; to Codex a line that it never writes."""
    told = {"type": "user", "uuid": f"u{n}", "sessionId": SESSION.format(n)}
    line = {**told, "timestamp": "2026-05-01T10:00:00Z", "message": {"content": f"go {n}"}}
    path = nth(root, n)
    begin = "rollout-2026-05-19T10-00-00-" if path.name.startswith("rollout-") else ""
    if path.name != "session_index.jsonl":
        path.with_name(f"{begin}{SESSION.format(n)}.jsonl").write_text(json.dumps(line) + "\n")


def agent(root: Path, n: int) -> None:
    """A subagent, and which call started it; the second time another call."""
    sessions = [path for path in files_of(root) if not path.name.startswith("agent-")]
    if not sessions:
        return
    folder = sessions[n % len(sessions)].with_suffix("") / "subagents"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "agent-x.jsonl"
    if not path.exists():
        shutil.copy(sessions[n % len(sessions)], path)
    path.with_suffix(".meta.json").write_text(json.dumps({"toolUseId": f"toolu_{n}"}))


def settings(root: Path, n: int) -> None:
    words = {"env": {"BASH_DEFAULT_TIMEOUT_MS": f"{n}000"}}
    (root / "settings.json").write_text(json.dumps(words))


WRITES = {
    "codex": (append, rewrite, cut, delete, fork, damage, empty, add),
    "claude_code": (append, rewrite, cut, delete, fork, damage, empty, add, agent, settings),
}
STEP = st.tuples(st.integers(0, 9), st.integers(1, 10**6))


@pytest.mark.slow
@pytest.mark.parametrize("system", WRITES)
@pytest.mark.parametrize("most", [30, 50_000])
@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rounds=st.lists(st.lists(STEP, max_size=3), min_size=1, max_size=4))
def test_whatever_is_written_a_refresh_equals_a_fresh_read(tmp_path_factory, system, most, rounds):
    root = sample(system, tmp_path_factory.mktemp("home"))
    with pytest.MonkeyPatch.context() as patch:
        # Else nobody is sure of what was written just now.
        patch.setattr("stateanalytics.io.cache._TICK_NS", 0)
        patch.setattr(folding, "_MOST_ROWS", most)
        patch.setattr(transcripts, "_FEW_ROWS", most // 10)
        snap = read(root)
        for steps in rounds:
            for kind, n in steps:
                writes = WRITES[system]
                writes[kind % len(writes)](root, n)
            snap = snap.refresh(progress=False)
            assert_same(snap, read(root))


@pytest.mark.slow
@pytest.mark.parametrize("system", WRITES)
def test_only_what_was_written_to_is_read_and_folded_again(tmp_path, monkeypatch, system):
    monkeypatch.setattr("stateanalytics.io.cache._TICK_NS", 0)
    monkeypatch.setattr(folding, "_MOST_ROWS", 1)
    opened, folded = [], []

    def chunks(path, *others):
        opened.append(path)
        return chunks_of(path, *others)

    def part_of(self, lines, *others):
        part = fold(self, lines, *others)
        folded.append(part.entities.height)
        return part

    fold = folding.Folding._assembled
    monkeypatch.setattr(json_lines, "chunks_of", chunks)
    monkeypatch.setattr(folding.Folding, "_assembled", part_of)
    root = sample(system, tmp_path)
    snap = read(root)
    n_batches = len(folded)
    assert n_batches > 3
    *_, last = files_of(root)
    append(root, -1)
    opened.clear(), folded.clear()
    snap.refresh(progress=False)
    assert opened == [last]
    assert 1 <= len(folded) < n_batches / 2


@pytest.mark.slow
def test_pieces_do_not_grow_in_number(tmp_path, monkeypatch):
    monkeypatch.setattr("stateanalytics.io.cache._TICK_NS", 0)
    root = sample("claude_code", tmp_path)
    snap = read(root)
    n_pieces = []
    for n in range(12):
        append(root, n)
        snap = snap.refresh(progress=False)
        n_pieces.append(len(unevaluated(snap.details)["claude_lines"].pieces))
    assert max(n_pieces) <= n_pieces[0] + 2
    assert_frame_equal(snap.entities, read(root).entities)


@pytest.mark.slow
@pytest.mark.parametrize("system", WRITES)
def test_a_place_may_come_to_hold_another_system(tmp_path, system):
    root = sample(system, tmp_path)
    of_transcripts = read(root)
    kept = root.rename(tmp_path / "kept")
    root.mkdir()
    write_store(root / "state.db", sessions=[session("a")])
    of_store = of_transcripts.refresh(progress=False)
    assert_same(of_store, read(root))
    shutil.rmtree(root)
    kept.rename(root)
    assert_same(of_store.refresh(progress=False), read(root))

"""Processes that a system wrote down are looked for on request, and on their own machine only."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics import cli
from stateanalytics.errors import ArgumentError
from stateanalytics.io.processes import Process, is_alive, machine_name
from tests.test_claude_code_costs import BEGAN, Session, facts_of, id_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def start_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


MINE = os.getpid()


def ended() -> int:
    """The id of a process that is over."""
    return int(subprocess.check_output([sys.executable, "-c", "import os; print(os.getpid())"]))


def note(pid: int, **fields: object) -> dict:
    known = {"pid": pid, "sessionId": id_of(0), "status": "busy", "procStart": start_of(MINE)}
    return known | fields


def root_with(folder: Path, *notes: object) -> Path:
    facts_of(folder, Session(0).prompt(), Session(1).prompt())
    (folder / "sessions").mkdir()
    for number, said in enumerate(notes):
        text = said if isinstance(said, str) else json.dumps(said)
        (folder / "sessions" / f"{number}.json").write_text(text)
    return folder


def look_at(folder: Path, **options: object) -> dict:
    with sa.read(folder, progress=False, **options) as snap:
        entities = snap.entities.filter(entity_type="session")
        alive = dict(entities.select("entity_id", "process_alive").rows())
        health = dict(sa.states(snap).select("entity_id", "health").rows())
        assert snap.as_of_from == ("clock" if options.get("probe") else "data")
    return {n: (alive[id_of(n)], health[id_of(n)]) for n in range(2)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        (lambda: [note(MINE)], (True, "stalled")),
        (lambda: [note(ended())], (False, "process_dead")),
        (lambda: [note(MINE, procStart="1")], (False, "process_dead")),  # its id was reused
        (lambda: [note(MINE, procStart="1"), note(MINE)], (True, "stalled")),  # it was resumed
        (lambda: [note(MINE, pidDomain=machine_name())], (True, "stalled")),
        (lambda: [note(MINE, status="waiting", waitingFor="permission prompt")], (True, "idle")),
        (lambda: [note(MINE, status="waiting", procStart="1")], (False, "process_dead")),
        (lambda: [note(MINE, status="waiting", procStart="1"), note(MINE)], (True, "stalled")),
        (lambda: [note(ended(), pidDomain="linux:other:pid:[1]")], (None, "stalled")),
        (lambda: [note(MINE, procStart=None)], (None, "stalled")),
        (lambda: ["{", "[]", '{"pid": "x"}', '{"pid": true}', note(-1)], (None, "stalled")),
        (list, (None, "stalled")),
    ],
)
def test_the_process_of_a_session_is_looked_for(tmp_path: Path, notes, expected) -> None:
    folder = root_with(tmp_path, *notes())
    assert look_at(folder, probe=True) == {0: expected, 1: (None, "stalled")}
    assert look_at(folder)[0][0] is None


def test_a_session_that_is_over_stays_so(tmp_path: Path) -> None:
    facts_of(tmp_path, Session(0).prompt().answer(1), Session(1).prompt())
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "1.json").write_text(json.dumps(note(ended())))
    assert look_at(tmp_path, probe=True)[0] == (False, "ok")


def test_the_subagents_of_a_session_run_in_its_process(tmp_path: Path) -> None:
    folder = root_with(tmp_path, note(ended()))
    child = tmp_path / "projects" / "-repo" / id_of(0) / "subagents" / "agent-a.jsonl"
    child.parent.mkdir(parents=True)
    line = Session(0).prompt().lines[0] | {"agentId": "a", "isSidechain": True, "uuid": "c"}
    child.write_text(json.dumps(line) + "\n")
    with sa.read(folder, probe=True, progress=False) as snap:
        rows = sa.states(snap).filter(pl.col("entity_id").str.contains("/a"))
    health = dict(rows.select("entity_type", "health").rows())
    assert health == {"session": "process_dead", "turn": "process_dead"}


@pytest.mark.slow
def test_without_the_probe_nothing_is_another(tmp_path: Path) -> None:
    with_notes, without = tmp_path / "a", tmp_path / "b"
    root_with(with_notes, note(MINE))
    root_with(without)
    snaps = [sa.read(each, progress=False) for each in (with_notes, without)]
    assert_frame_equal(*(snap.entities.drop("source") for snap in snaps))


@pytest.mark.slow
def test_a_refresh_looks_again(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        said = note(process.pid, procStart=start_of(process.pid))
        snap = sa.read(root_with(tmp_path, said), probe=True, progress=False)
        process.kill()
    again = snap.refresh(progress=False)
    told = [each.entities.filter(entity_id=id_of(0))["process_alive"][0] for each in (snap, again)]
    assert told == [True, False]


def test_a_process_that_nobody_waited_for_is_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        start = start_of(process.pid)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_alive(Process("s", process.pid, start)) is False


def test_an_instant_cannot_be_probed(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="checked only as of now; found as-of"):
        sa.read(root_with(tmp_path), as_of=BEGAN + timedelta(days=1), probe=True)


@pytest.mark.slow
def test_the_command_line_asks_for_it(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = root_with(tmp_path, note(ended()))
    assert cli.run(["attention", str(folder), "--probe", "--format", "json"]) == 0
    assert "Process dead" in capsys.readouterr().out

"""Every command that a page prints is one line that a shell runs, with exit code 0."""

import html
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import stateanalytics as sa
from stateanalytics.cli import output
from stateanalytics.cli import run as cli
from stateanalytics.reporting.entities import with_program
from tests.examples import is_whole
from tests.samples import SAMPLES

STORES = {
    "several": ["state.db", "claude_code", "codex"],
    "five, of which four are outdated": [
        *("state.db", "claude_code", "codex", "agent_orchestrator", "opencode")
    ],
    "lionagi": ["state.db"],
    "a history": ["twelve_weeks/history"],
    "agent orchestrator": ["agent_orchestrator"],
    "claude code": ["claude_code"],
    "codex": ["codex"],
    "opencode": ["opencode"],
}


def commands_of(page, program="stateanalytics"):
    """What stands in `code` and begins with the program, as a browser would copy it."""
    codes = re.findall(r"<code[^>]*>(.*?)</code>", page, re.DOTALL)
    texts = [html.unescape(re.sub(r"<[^>]+>", "", code)) for code in codes]
    return list(dict.fromkeys(text for text in texts if text.startswith(f"{program} ")))


def shape_of(command):
    """Its subcommand and its options, without their values."""
    words = command.split()
    return (words[1], *(word for word in words if word.startswith("-")))


@pytest.mark.slow
@pytest.mark.usefixtures("read_once")
# CI runs every command of two pages, and of the others one of each shape.
@pytest.mark.parametrize(
    ("names", "is_every"),
    [(each, is_whole() or n in (0, len(STORES) - 1)) for n, each in enumerate(STORES.values())],
)
def test_every_command_of_a_page_runs(names, is_every, capsys, tmp_path, monkeypatch):
    folder = tmp_path / "it's a b"
    folder.symlink_to(SAMPLES)
    monkeypatch.chdir(tmp_path)
    with sa.read(*(folder / name for name in names), progress=False) as snap:
        made = sa.report(snap, shown=False)
    commands = commands_of(made.as_html())
    asked = {"show", "sql"} | ({"thresholds"} if made.summary["thresholds"]["rows"] else set())
    assert {command.split()[1] for command in commands} >= asked
    assert all("SOURCES" not in command and "\n" not in command for command in commands)
    of_shapes = {shape_of(command): command for command in commands}
    for command in commands if is_every else of_shapes.values():
        limit = [] if command.split()[1] in ("show", "sql") else ["--limit", "1"]
        assert cli([*shlex.split(command)[1:], *limit]) == 0, (command, capsys.readouterr().err)


def test_a_program_that_is_not_on_the_path_is_named_by_its_interpreter(monkeypatch, demo_week):
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/stateanalytics")
    assert output.program() == "stateanalytics"
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(sys, "executable", "/opt/it's/python")
    assert output.program() == """'/opt/it'"'"'s/python' -m stateanalytics"""
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setattr(sys, "executable", "/home/ann/a b/python")
    assert output.program() == "~/'a b/python' -m stateanalytics"
    spoken = with_program(demo_week.summary["actions"], "py -m stateanalytics")
    assert all(one["command"].startswith("py -m stateanalytics ") for one in spoken)


@pytest.mark.slow
def test_a_page_of_the_command_line_runs_in_a_new_shell(tmp_path, monkeypatch, capsys):
    """With nothing on PATH but what every machine has."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    page = tmp_path / "week.html"
    given = [str(SAMPLES / "claude_code"), str(SAMPLES / "state.db")]
    assert cli(["report", *given, "-o", str(page)]) == 0
    said = capsys.readouterr().out
    commands = commands_of(page.read_text("utf-8"), output.program())
    assert len(commands) > 3
    assert commands[0] in said
    plain = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    found = subprocess.run(["bash", "-c", commands[0]], env=plain, check=False, cwd=tmp_path)
    assert found.returncode == 0

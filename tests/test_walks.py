"""The walks and the lists of files in CONTRIBUTING.md are those of the code."""

import re
from functools import cache

import pytest

from tests.conftest import ROOT
from tests.test_imports import MODULES, PACKAGE, imported

PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
WALKS = re.findall(r"^> (.*→.*)$", PAGE, re.M)
SYSTEMS = sorted(path.parent.name for path in PACKAGE.glob("systems/*/__init__.py"))
NAMES = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in MODULES}


@cache
def reached_from(name):
    """Every module that one imports, or that those import, and so on."""
    reached, waiting = set(), [name]
    while waiting:
        for target in imported(NAMES[waiting.pop()]):
            inner = target.removeprefix("stateanalytics.")
            module = inner if inner in NAMES else inner.rpartition(".")[0]
            if module in NAMES and module not in reached:
                reached.add(module)
                waiting.append(module)
    return reached


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_never_steps_back(walk, system):
    steps = [step.replace("<system>", system) for step in re.findall(r"`([^`]+)`", walk)]
    assert len(steps) > 8
    for place, step in enumerate(steps):
        assert step in NAMES, f"CONTRIBUTING.md walks through {step}, which is not there"
        assert not reached_from(step) & set(steps[place + 1 :]), step


def test_each_usual_change_takes_two_files_at_most():
    rows = re.findall(r"^\| (a [a-z ]+) \| (.*) \|$", PAGE, re.M)
    assert [what for what, _ in rows] == [
        "a severity rule",
        "a threshold",
        "a system",
        "a detector",
        "a section of the report",
    ]
    for way in (way for _, cell in rows for way in cell.split("; or")):
        files = re.findall(r"`([\w<>./]+)`", way)
        assert len(files) <= 2
        for file in files:
            there = file.replace("<system>", "lionagi").replace("<name>", "slow")
            assert (PACKAGE / there).exists(), file

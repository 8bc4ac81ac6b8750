"""Words that a colleague has to translate are absent from what users and maintainers read."""

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

BANNED = re.compile(
    r"\b(told|anew|alike|beside|dearest|manieth)\b"
    r"|\bthose of then\b|\bvalues_then\b|\bwhat may be chance\b|\bwithin what chance does\b"
    r"|\bleft out\b|\blooks? after\b|\bwas said\b|\bas many as \d+ of one size\b",
    re.IGNORECASE,
)
"""The dialect of the first versions, see the glossary of the house style."""
PACKAGE = ROOT / "stateanalytics"
CLEAN = ("reporting", "charts", "widgets")
"""Packages whose every text is clean; a package is added when it is."""


def texts(path):
    """Docstrings and other texts of a module; a line for every other kind of file."""
    if path.suffix != ".py":
        return enumerate(path.read_text("utf-8").splitlines(), 1)
    return (
        (node.lineno, node.value)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def files(folder):
    return sorted(
        path
        for path in Path(folder).rglob("*")
        if path.suffix in (".py", ".j2", ".css", ".csv") and not path.name.endswith(".min.js")
    )


@pytest.mark.parametrize("name", CLEAN)
def test_texts_of_a_package_are_in_plain_english(name):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]}"
        for path in files(PACKAGE / name)
        for line, text in texts(path)
        for match in BANNED.finditer(text)
    ]
    assert not found

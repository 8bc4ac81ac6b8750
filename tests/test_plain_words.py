"""Words that a colleague has to translate are absent from what users and maintainers read."""

import ast
import re
from pathlib import Path

import click
import pytest

from stateanalytics.cli import cli
from tests.conftest import ROOT

BANNED = re.compile(
    r"\b(told|anew|alike|beside|dearest|manieth)\b"
    r"|\bthose of then\b|\bvalues_then\b|\bwhat may be chance\b|\bwithin what chance does\b"
    r"|\bleft out\b|\blooks? after\b|\bwas said\b|\bas many as \d+ of one size\b",
    re.IGNORECASE,
)
"""The dialect of the first versions, see the glossary of the house style."""
PACKAGE = ROOT / "stateanalytics"
CLEAN = (
    *("auditing", "charts", "cli", "detectors", "failures", "io"),
    *("reporting", "summaries", "testing", "widgets"),
)
"""Packages whose every text is clean; another one is added when it is."""
GENERATED = ("schema.md",)
"""Made from the meanings of columns, which stand in the packages."""


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


def test_the_pages_of_the_documentation_are_in_plain_english():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [
        f"{path.name}:{number}: {match[0]}"
        for path in pages
        if path.name not in GENERATED
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for match in BANNED.finditer(line)
    ]
    assert len(pages) > 10
    assert not found


def test_the_help_of_every_command_is_in_plain_english():
    context = click.Context(cli, info_name="stateanalytics")
    helps = {
        name: cli.get_command(context, name).get_help(context)
        for name in cli.list_commands(context)
    }
    assert len(helps) > 10
    assert not {name: match[0] for name, text in helps.items() if (match := BANNED.search(text))}


def test_a_report_of_the_sample_is_in_plain_english(demo_week):
    """In every form; texts that are quoted from the store have none of these words."""
    for text in (demo_week.as_html(), demo_week.as_json(), demo_week.as_markdown()):
        assert not BANNED.search(re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL))

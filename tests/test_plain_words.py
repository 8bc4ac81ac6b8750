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
PARTS = sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name[0] != "_")
DIALECT = {"told", "tell", "tells", "anew", "alike", "beside", "dearest"}
KEPT = {
    *("n_if_alike", "n_alike"),  # keys of reports that were stored as JSON
    *("told_source", "told_system", "told_id", "told_output"),  # columns of `links`
    "tell",  # a method of files
}
"""Names that have to stay."""


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


@pytest.mark.parametrize("name", ["", *PARTS])
def test_texts_of_a_package_are_in_plain_english(name):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]}"
        for path in (files(PACKAGE / name) if name else sorted(PACKAGE.glob("*.py*")))
        for line, text in texts(path)
        for match in BANNED.finditer(text)
    ]
    assert not found


def identifiers(path):
    """Names of functions, classes, arguments, variables and attributes of a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        for field in ("name", "id", "arg", "attr"):
            if isinstance(name := getattr(node, field, None), str):
                yield node, name


def test_names_are_in_plain_english():
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for _, name in identifiers(path)
        if name not in KEPT and DIALECT & {*name.lower().split("_")}
    }
    assert not found


def test_the_pages_of_the_documentation_are_in_plain_english():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [
        f"{path.name}:{number}: {match[0]}"
        for path in pages
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

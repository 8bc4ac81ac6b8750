"""The site has a page for everything, and its build knows where each name is told."""

import importlib.util
import re
from pathlib import PurePosixPath

import pytest

import stateanalytics as sa
from tests.conftest import ROOT
from tests.test_docs import PUBLIC


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "site" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page(hooks):
    listed = re.findall(r"^\s+- (?:.+: )?(\S+\.md)$", (ROOT / "site/mkdocs.yml").read_text(), re.M)
    written = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert len(listed) == len(set(listed))
    assert set(listed) == written | set(hooks.made_pages())


def test_the_reference_has_every_public_name_by_the_place_of_its_docstring(hooks):
    listed = {}
    for namespace in hooks.NAMESPACES:
        listed |= hooks.public_names(namespace)
    spaces = {f"sa.{name}" for name in hooks.NAMESPACES if name}
    assert {f"sa.{name}" for name in PUBLIC} - spaces <= set(listed)
    assert {f"sa.errors.{name}" for name in sa.errors.__all__} <= set(listed)
    assert all(path.startswith("stateanalytics.") for path in listed.values())


def test_the_catalogue_has_a_line_for_each_detector(hooks):
    lines = [line for line in hooks.catalogue().splitlines() if line.startswith("| ")]
    assert len(lines) == 1 + sa.detectors.known().height


@pytest.mark.parametrize(
    ("text", "linked"),
    [
        ("[a](docs/sql.md#b)", "[a](sql.md#b)"),
        ("![a](docs/report.png)", "![a](report.png)"),
        ("[a](CHANGELOG.md)", "[a](changelog.md)"),
        ("[a](LICENSE) b", "a b"),
        ("[a](deploy/weekly.sh)", "[a](deploy/weekly.sh)"),
        (
            "[a](deploy/skills/stateanalytics/SKILL.md)",
            "[a](deploy/skills/stateanalytics/SKILL.txt)",
        ),
        ("[a](https://x.example)", "[a](https://x.example)"),
        ("[a](#b)", "[a](#b)"),
    ],
)
def test_links_lead_to_pages_of_the_site_or_are_words(hooks, text, linked):
    assert hooks.relinked(text, PurePosixPath()) == linked
    assert hooks.relinked("[a](../README.md)", PurePosixPath("docs")) == "[a](index.md)"
    below = PurePosixPath("docs/gallery")
    assert hooks.relinked("[a](../../README.md)", below) == "[a](../index.md)"
    assert hooks.relinked("[a](../sql.md) ![b](b/c.svg)", below) == "[a](../sql.md) ![b](b/c.svg)"


def test_the_site_fetches_nothing():
    told = (ROOT / "site/mkdocs.yml").read_text("utf-8") + (ROOT / "site/site.css").read_text()
    assert "font: false" in told
    assert "http" not in told


def test_a_pipe_in_the_code_of_a_cell_is_no_escape(hooks):
    assert hooks.on_page_content(r"<td><code>A\|B</code></td>") == "<td><code>A|B</code></td>"

"""Notebooks: committed without output, and every cell runs."""

import re
from doctest import DocTestParser
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import stateanalytics as sa
from tests.conftest import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_CELLS = 40
LONGEST_S = 900
"""So that a cell that hangs ends: no cell takes a minute, but for a machine that has other work."""
# A kernel would otherwise put its history, its connection files and its settings into the home.
PRIVATE = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def opened(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def test_there_are_notebooks():
    assert NOTEBOOKS


@each
def test_a_notebook_is_committed_without_output(path: Path) -> None:
    notebook = opened(path)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.id for cell in code if cell.outputs or cell.execution_count] == []
    assert "widgets" not in notebook.metadata
    assert {tuple(cell.metadata) for cell in notebook.cells} <= {()}


@each
def test_a_notebook_is_short_and_begins_with_its_title(path: Path) -> None:
    cells = opened(path).cells
    assert len(cells) <= MOST_CELLS
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")
    assert any(cell.cell_type == "code" for cell in cells)


@pytest.mark.slow
@each
def test_every_cell_of_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch) -> None:
    for name in PRIVATE:
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    before = sorted(FOLDER.rglob("*"))
    notebook = opened(path)
    client = NotebookClient(
        notebook,
        timeout=LONGEST_S,
        # The kernel shares the machine with every other test: it may be as late as a cell.
        startup_timeout=LONGEST_S,
        resources={"metadata": {"path": FOLDER}},
    )
    client.execute()
    said = [
        output.text
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "stream" and output.name == "stderr"
    ]
    assert said == [], "a cell wrote a warning"
    assert sorted(FOLDER.rglob("*")) == before, "a cell left a file"


@each
def test_the_gallery_shows_every_cell_of_a_notebook(path: Path) -> None:
    """What it shows is from a run of these very cells: ``make gallery`` writes it again."""
    page = (ROOT / "docs" / "gallery" / f"{path.stem}.md").read_text("utf-8")
    for cell in opened(path).cells:
        if cell.cell_type == "code":
            assert cell.source.rstrip() in page, cell.id
    for drawing in re.findall(r"\]\(([\w-]+\.svg)\)", page):
        assert (ROOT / "docs" / "gallery" / drawing).read_text("utf-8").startswith("<svg xmlns=")
    assert str(ROOT) not in page
    assert "Output()" not in page, "a bar of progress that has gone"


def test_the_page_of_charts_has_every_chart_its_example_and_its_drawing() -> None:
    page = (ROOT / "docs" / "charts.md").read_text("utf-8")
    names = [name for name in sa.charts.__all__ if name.startswith("chart_")]
    assert re.findall(r"^## (\w+)$", page, re.M) == sorted(names)
    for name in names:
        *lines, said = DocTestParser().get_examples(getattr(sa.charts, name).__doc__)
        assert "".join(line.source for line in lines) in page
        assert "chart.description" in said.source
        drawing = (ROOT / "docs" / "gallery" / "charts" / f"{name}.svg").read_text("utf-8")
        assert drawing.startswith("<svg xmlns=")

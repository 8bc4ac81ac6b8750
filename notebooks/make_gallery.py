"""Run every notebook and write what it shows as a page with pictures: ``make gallery``.

A page has the text and code of its notebook, each chart as the drawing that a notebook without
scripts shows, and the words of all other results. Paths of the machine are left out.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from doctest import DocTestParser
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from stateanalytics import charts

HERE = Path(__file__).parent
ROOT = HERE.parent
GALLERY = ROOT / "docs" / "gallery"
MOST_LINES = 60
DRAWING = "image/svg+xml"
BAR = "Output()"
"""What is left of a bar of progress."""
ABOUT_CHARTS = """\
`sa.charts` draws frames that functions of this package returned, or some of their rows. Each \
chart is an Altair chart: `chart + rule`, `chart | other` and `chart.properties(…)` work, \
`chart.data` is the frame, and `chart.live()` gives what was selected as a frame and as SQL. \
Colours of outcomes are the same everywhere. In a notebook a chart is a card on a light ground, \
whichever the theme; `palette=sa.charts.DARK` gives a dark one. The pictures are drawn from \
the examples (`make gallery`)."""


def main() -> None:
    """Write ``docs/gallery`` and ``docs/charts.md`` again."""
    shutil.rmtree(GALLERY, ignore_errors=True)
    (GALLERY / "charts").mkdir(parents=True)
    (ROOT / "docs" / "charts.md").write_text(page_of_charts(), "utf-8")
    pages = [page_of(path) for path in sorted(HERE.glob("*.ipynb"))]
    links = "\n".join(f"- [{title}]({name}.md)" for name, title in pages)
    head = "# Gallery\n\nWhat the notebooks show, from a run on the sample (`make gallery`).\n\n"
    (GALLERY / "README.md").write_text(f"{head}{links}\n", "utf-8")


def page_of_charts() -> str:
    """Each chart: what it shows, the example of its docstring, and the drawing of it."""
    parts = ["# Charts", ABOUT_CHARTS]
    for name in sorted(name for name in charts.__all__ if name.startswith("chart_")):
        docstring = getattr(charts, name).__doc__
        names: dict[str, Any] = {}
        lines = [example.source for example in DocTestParser().get_examples(docstring)]
        # The last line of an example prints what the chart says.
        for line in lines[:-1]:
            exec(line, names)
        drawing = charts.to_svg(names["chart"], name=name, label=docstring.splitlines()[0])
        svg = drawing.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        (GALLERY / "charts" / f"{name}.svg").write_text(without_paths(svg), "utf-8")
        parts += [f"## {name}", docstring.splitlines()[0], fenced("".join(lines[:-1]), "python")]
        parts.append(f"![{name}](gallery/charts/{name}.svg)")
    return "\n\n".join(parts) + "\n"


def page_of(path: Path) -> tuple[str, str]:
    """Write the page of one notebook; its name and title."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=900, startup_timeout=300, resources={"metadata": {"path": str(HERE)}}
    ).execute()
    parts = []
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(linked(cell.source))
            continue
        parts.append(fenced(cell.source, "python"))
        for n, output in enumerate(cell.outputs):
            data = output.get("data", {})
            if DRAWING in data:
                drawing = f"{path.stem}-{place}-{n}.svg"
                (GALLERY / drawing).write_text(without_paths(data[DRAWING]), "utf-8")
                label = re.search(r'aria-label="([^"]*)"', data[DRAWING])
                parts.append(f"![{label[1][:200] if label else 'chart'}]({drawing})")
            elif (text := data.get("text/plain") or output.get("text")) and text != BAR:
                parts.append(fenced(without_paths(str(text))))
    (GALLERY / f"{path.stem}.md").write_text("\n\n".join(parts) + "\n", "utf-8")
    return path.stem, notebook.cells[0].source.splitlines()[0].removeprefix("# ")


def fenced(text: str, language: str = "") -> str:
    """A block of code, or of the first lines of a result."""
    lines = [line.rstrip() for line in text.splitlines()]
    shown = lines if language or len(lines) <= MOST_LINES else [*lines[:MOST_LINES], "…"]
    return "\n".join([f"```{language}", *shown, "```"])


def linked(text: str) -> str:
    """Links of a notebook, as they are from the gallery."""
    return text.replace("](../docs/", "](../").replace("](0", "](../../notebooks/0")


def without_paths(text: str) -> str:
    """What the run says, without where it was."""
    passing = re.escape(tempfile.gettempdir()) + r"/[\w./-]+"
    return re.sub(passing, "…", text.replace(f"{ROOT}/", ""))


if __name__ == "__main__":
    main()

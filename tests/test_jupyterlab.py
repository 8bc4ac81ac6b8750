"""Notebooks in a real JupyterLab, in a real browser: no error in a cell or the console.

Charts are there with text that would run if it could: each is drawn by JupyterLab itself,
tells what is under the pointer, is chosen from, and gives what is chosen as rows.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.conftest import ROOT, absent

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.lab]
NOTEBOOK = ROOT / "notebooks" / "01_first_look.ipynb"
CHARTS = (
    "alarms", "cumulative incidence", "disagreement", "durations", "failure codes",
    "failure trend", "false alarms", "incidents", "intersections", "limits", "over time",
    "rates", "severity", "survival", "timeline", "weeks", "worksheet",
)  # fmt: skip
CELLS = (
    "import stateanalytics as sa\n"
    "from tests.hostile_charts import every_chart\n"
    "charts = every_chart(sa.demo())\n"
    "assert len(charts) == 17",
    *(f"charts[{name!r}]" for name in CHARTS),
    "live = charts['limits'].live()\nlive",
    "from tests.hostile_charts import hostile\n"
    "told = hostile(sa.demo().table('failures').select('code', 'failed_at', 'message'))\n"
    "look = sa.explore(sa.demo().with_table('told', told), 'told', by=['code', 'failed_at'])\n"
    "look",
    "print('chosen', live.selected.height, live.sql)",
)
# Drawn as SVG, of which a test can read what is faint and what the axes say.
AXES = ("alarms", "false alarms", "incidents", "limits", "rates", "survival", "timeline",
        "worksheet")  # fmt: skip
GESTURES = (
    CELLS[0],
    "drawn = {'usermeta': {'embedOptions': {'renderer': 'svg'}}}",
    *(f"charts[{name!r}].properties(**drawn)" for name in AXES),
    "sa.explore(sa.demo())",
)
LONGEST_S = 600
# What the machine has no network for, and a notebook does not need.
UNRELATED = ("jupyterlab/api/news", "extensionmanager", "favicon")

SEEN = """() => ({
  errors: [...document.querySelectorAll('[data-mime-type="application/vnd.jupyter.stderr"]')]
    .map(one => one.textContent),
  drawings: document.querySelectorAll('.jp-OutputArea-output .vega-embed').length,
  tables: document.querySelectorAll('.jp-OutputArea-output table').length,
  texts: [...document.querySelectorAll('.jp-OutputArea-output')].map(one => one.textContent),
})"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab of its own, over a copy of the notebooks and the samples."""
    try:
        import jupyterlab  # noqa: F401
    except ImportError:
        absent("JupyterLab")
    home = tmp_path_factory.mktemp("lab")
    shutil.copytree(NOTEBOOK.parent, home / "work" / "notebooks")
    kernel_of_lab = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for name, sources in (("charts", CELLS), ("gestures", GESTURES)):
        cells = [new_code_cell(source) for source in sources]
        notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel_of_lab})
        nbformat.write(notebook, home / "work" / f"{name}.ipynb")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    private = {name: str(home / name.lower()) for name in folders}
    kernel = home / "jupyter_data_dir" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    told = {"argv": command, "display_name": "Python 3", "language": "python"}
    kernel.joinpath("kernel.json").write_text(json.dumps(told), "utf-8")
    arguments = (
        "--no-browser", "--allow-root", f"--port={port}", "--IdentityProvider.token=",
        "--ServerApp.password=", f"--ServerApp.root_dir={home / 'work'}",
        "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
    )  # fmt: skip
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *arguments],
            env={**os.environ, **private, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
        try:
            yield _reachable(f"http://127.0.0.1:{port}", server, home / "log")
        finally:
            server.terminate()
            server.wait(20)


def _reachable(address: str, server: subprocess.Popen, log: Path) -> str:
    for _ in range(LONGEST_S):
        assert server.poll() is None, log.read_text("utf-8", "replace")[-2000:]
        try:
            urllib.request.urlopen(f"{address}/api", timeout=2).close()
        except OSError:
            time.sleep(1)
        else:
            return address
    raise AssertionError(log.read_text("utf-8", "replace")[-2000:])


@pytest.fixture
def opened(chromium, lab):
    """What opens a notebook, runs its cells and gives the page; complaints are kept."""
    complaints = []
    pages = []

    def open_and_run(name: str, n_cells: int, height: int):
        page = chromium.new_page(viewport={"width": 1280, "height": height})
        pages.append(page)
        page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        # Else the notebook of the test before is open as well, and its cells never end.
        page.goto(f"{lab}/lab/tree/{name}?reset")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=1000 * LONGEST_S)
        page.wait_for_selector(".jp-KernelName:has-text('Python 3')", timeout=1000 * LONGEST_S)
        page.click("text=Run >> nth=0")
        page.click("text=Run All Cells >> nth=0")
        page.wait_for_function(
            "n => { const all = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]"
            ".map(one => one.textContent.trim());"
            " return all.length >= n && all.every(text => /^\\[\\d+\\]:$/.test(text)); }",
            arg=n_cells,
            timeout=1000 * LONGEST_S,
        )
        page.wait_for_timeout(2000)
        for question in page.get_by_role("button", name="No", exact=True).all():
            question.click()  # whether it may look for news
        return page

    yield open_and_run
    for page in pages:
        page.close()
    assert [said for said in complaints if not any(word in said for word in UNRELATED)] == []


def pictured(page, name: str) -> None:
    if folder := os.environ.get("STATEANALYTICS_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def test_the_first_notebook_runs_without_an_error_in_cell_or_console(opened):
    page = opened(f"notebooks/{NOTEBOOK.name}", 9, 3000)
    seen = page.evaluate(SEEN)
    pictured(page, "jupyterlab")
    assert seen["errors"] == []
    assert seen["drawings"] >= 1
    assert seen["tables"] >= 5
    assert any("Snapshot as of 2026-05-25 06:00" in text for text in seen["texts"])
    assert any("Whole report:" in text for text in seen["texts"])
    assert page.locator("mjx-container").count() == 0, "dollars are amounts and no formulas"
    frame = page.locator(".sa-frame[data-live]").first
    frame.locator("th").first.click()
    assert frame.locator("th").first.get_attribute("aria-sort") == "ascending"
    text = frame.locator("td:not(.n)").first
    assert text.evaluate("e => getComputedStyle(e).textAlign") == "left"


def marks(page, n: int):
    """The drawing of a cell, and how a pointer is moved in it."""
    drawing = page.locator(".jp-CodeCell").nth(n).locator(".vega-embed canvas, .vega-embed svg")
    drawing.first.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    return drawing.first.bounding_box()


def told(page, box) -> str:
    """What marks say, met on a walk over the drawing."""
    for down in range(4, 96, 5):
        for right in range(12, 96, 4):
            x, y = box["x"] + box["width"] * right / 100, box["y"] + box["height"] * down / 100
            page.mouse.move(x, y)
            tip = page.locator("#vg-tooltip-element.visible")
            if tip.count() and tip.first.inner_text():
                return tip.first.inner_text()
    return ""


def test_every_chart_is_drawn_told_and_chosen_from_and_nothing_runs(opened):
    page = opened("charts.ipynb", len(CELLS), 1400)
    for n in range(len(CELLS)):
        page.locator(".jp-CodeCell").nth(n).scroll_into_view_if_needed()
        page.wait_for_timeout(200)
    said = " ".join(page.locator(".jp-OutputArea-output").all_inner_texts())
    assert "Javascript Error" not in said
    assert "Traceback" not in said
    silent = []
    for n, name in enumerate(CHARTS, start=1):
        cell = page.locator(".jp-CodeCell").nth(n)
        cell.scroll_into_view_if_needed()
        page.wait_for_timeout(300)
        if not cell.locator(".vega-embed").count():
            silent.append(f"{name}: {cell.inner_text()[:300]}")
            pictured(page, f"chart-{name}")
            continue
        box = marks(page, n)
        if not told(page, box):
            silent.append(name)
        pictured(page, f"chart-{name}")
    assert silent == []
    live = CHARTS.index("limits") + 1, len(CHARTS) + 1
    for n in live:
        box = marks(page, n)
        page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] * 0.2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.55, steps=8)
        page.mouse.up()
        page.wait_for_timeout(800)
        pictured(page, f"chosen-{n}")
    look = page.locator(".jp-CodeCell").nth(len(CHARTS) + 2)
    look.scroll_into_view_if_needed()
    look.locator(".sa-word").first.click()
    page.wait_for_timeout(800)
    box = look.locator(".sa-scale").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.1, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 20, steps=5)
    page.mouse.up()
    page.wait_for_timeout(800)
    pictured(page, "explore")
    query = look.locator(".sa-sql").inner_text()
    assert '"code" IN (\'' in query
    assert '"failed_at" >= TIMESTAMPTZ' in query
    page.locator(".jp-CodeCell").last.click()
    page.keyboard.press("Control+Enter")
    page.wait_for_timeout(2000)
    said = page.locator(".jp-CodeCell").last.inner_text()
    pictured(page, "chosen-rows")
    assert "FROM timeouts WHERE elapsed_s BETWEEN" in said
    assert page.evaluate("window.PWNED") is None
    assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0


def cell_of(page, name: str):
    """The cell that draws a chart of `AXES`, in view."""
    cell = page.locator(".jp-CodeCell").nth(AXES.index(name) + 2)
    cell.scroll_into_view_if_needed()
    drawing = cell.locator(".vega-embed svg").first
    drawing.wait_for()
    # Those before it are drawn when they are met, and push it down.
    page.wait_for_timeout(700)
    drawing.evaluate("drawing => drawing.scrollIntoView({block: 'center'})")
    page.wait_for_timeout(300)
    return cell


LABELS = """cell => [...cell.querySelectorAll('.role-axis-label text')]
  .map(one => one.textContent + one.parentNode.getAttribute('transform')
    + one.getAttribute('transform')).sort()"""
OPACITIES = """cell => [...cell.querySelectorAll('.mark-line path, .mark-symbol.role-mark path')]
  .map(one => Number(one.getAttribute('opacity') ?? 1))"""


def middle_of(cell) -> tuple[float, float]:
    """Where marks are drawn: between the axes, and in no legend."""
    return tuple(
        cell.evaluate("""cell => {
          const one = cell.querySelector('svg .role-scope .background')
            ?? cell.querySelector('svg .background');
          const box = one.getBoundingClientRect();
          return [box.x + box.width / 2, box.y + box.height / 2];
        }""")
    )


def test_the_wheel_stretches_axes_and_a_drag_moves_them_each_with_its_key_only(opened):
    page = opened("gestures.ipynb", len(GESTURES), 1400)
    for name in AXES:
        cell = cell_of(page, name)
        before = cell.evaluate(LABELS)
        x, y = middle_of(cell)
        page.mouse.move(x, y)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -240)
        page.keyboard.up("Control")
        page.wait_for_timeout(400)
        stretched = cell.evaluate(LABELS)
        pictured(page, f"stretched-{name}")
        assert stretched != before, name
        page.keyboard.down("Shift")
        page.mouse.down()
        page.mouse.move(x + 90, y, steps=6)
        page.mouse.up()
        page.keyboard.up("Shift")
        page.wait_for_timeout(400)
        assert cell.evaluate(LABELS) != stretched, name
        page.mouse.dblclick(x, y)
        page.wait_for_timeout(400)
        assert cell.evaluate(LABELS) == before, name
        page.mouse.wheel(0, 40)
        page.wait_for_timeout(400)
        assert cell.evaluate(LABELS) == before, f"{name}: the wheel is the notebook's"


def test_a_click_in_a_legend_keeps_one_and_fades_the_others(opened):
    page = opened("gestures.ipynb", len(GESTURES), 1400)
    for name in ("rates", "limits"):
        cell = cell_of(page, name)
        assert min(cell.evaluate(OPACITIES)) > 0.5, name
        cell.locator(".role-legend-symbol path").first.click()
        page.wait_for_timeout(400)
        faded = cell.evaluate(OPACITIES)
        pictured(page, f"legend-{name}")
        assert min(faded) < 0.5 < max(faded), name
        cell.locator(".role-legend-symbol path").first.dblclick()
        page.wait_for_timeout(400)


# How far text is from its ground, as WCAG 2 counts it, through grounds that are half seen through.
CONTRASTS = """chosen => {
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const over = (top, below) => {
    const a = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map(k => a * top[k] + (1 - a) * below[k]);
  };
  const light = c => { const [r, g, b] = c.map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = one => {
    const grounds = [];
    for (let at = one; at; at = at.parentElement)
      grounds.push(parts(getComputedStyle(at).backgroundColor));
    return grounds.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  return [...document.querySelectorAll(chosen)]
    // A label that has no room is there, and not seen.
    .filter(one => one.textContent.trim() && getComputedStyle(one).opacity !== '0').map(one => {
    const style = getComputedStyle(one);
    const drawing = one.ownerSVGElement;
    const back = drawing && drawing.querySelector(':scope > rect');
    const behind = back ? over(parts(getComputedStyle(back).fill), ground(drawing)) : ground(one);
    let opacity = 1;
    for (let at = one; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    const colour = parts(drawing ? style.fill : style.color);
    const [a, b] = [light(over([...colour.slice(0, 3), opacity], behind)), light(behind)];
    return [one.textContent.trim().slice(0, 40), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  });
}"""
READ = {
    "explorer": ".sa-explore :is(.sa-name, .sa-n, h4, .sa-ends span, .sa-sql, td, th, button)",
    "charts": ".vega-embed svg :is(.role-axis-label, .role-axis-title, .role-legend-label, "
    ".role-title-text) text",
}


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_text_of_charts_and_explorers_can_be_read_in_both_themes(opened, theme):
    page = opened("gestures.ipynb", len(GESTURES), 1400)
    page.click(".lm-MenuBar-itemLabel:has-text('Settings')")
    page.hover(".lm-Menu-itemLabel:text-is('Theme')")
    page.click(f".lm-Menu-itemLabel:text-is('{theme}')")
    page.wait_for_timeout(1500)
    for name in AXES:
        cell_of(page, name)
    page.locator(".sa-explore").scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    pictured(page, f"explore-{theme.split()[-1].lower()}")
    for what, chosen in READ.items():
        found = page.evaluate(CONTRASTS, chosen)
        assert len(found) > 20, what
        assert [(text, round(ratio, 2)) for text, ratio in found if ratio < 4.5] == []

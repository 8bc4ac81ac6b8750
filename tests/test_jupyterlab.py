"""The first notebook in a real JupyterLab, in a real browser: no error in a cell or the console."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.conftest import ROOT, absent, component

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.lab]
NOTEBOOK = ROOT / "notebooks" / "01_first_look.ipynb"
LONGEST_S = 180
# What the machine has no network for, and a notebook does not need.
UNRELATED = ("jupyterlab/api/news", "extensionmanager", "favicon")

SEEN = """() => ({
  errors: [...document.querySelectorAll('[data-mime-type="application/vnd.jupyter.stderr"]')]
    .map(one => one.textContent),
  drawings: document.querySelectorAll('.jp-OutputArea-output figure svg').length,
  tables: document.querySelectorAll('.jp-OutputArea-output table').length,
  texts: [...document.querySelectorAll('.jp-OutputArea-output')].map(one => one.textContent),
})"""


@pytest.fixture(scope="module")
def chromium():
    sync_api = component("playwright.sync_api")
    found = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if found is None:
        absent("Chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab of its own, over a copy of the notebooks and the samples."""
    try:
        import jupyterlab  # noqa: F401
    except ImportError:
        absent("JupyterLab")
    home = tmp_path_factory.mktemp("lab")
    shutil.copytree(NOTEBOOK.parent, home / "work" / "notebooks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    private = {
        name: str(home / name.lower())
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    }
    kernel = home / "jupyter_data_dir" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    kernel.joinpath("kernel.json").write_text(
        json.dumps(
            {
                "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                "display_name": "Python 3",
                "language": "python",
            }
        ),
        "utf-8",
    )
    arguments = (
        "--no-browser", "--allow-root", f"--port={port}", "--IdentityProvider.token=",
        "--ServerApp.password=", f"--ServerApp.root_dir={home / 'work'}",
        "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
    )  # fmt: skip
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *arguments],
            env={**os.environ, **private},
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


def test_the_first_notebook_runs_without_an_error_in_cell_or_console(chromium, lab):
    page = chromium.new_page(viewport={"width": 1280, "height": 3000})
    complaints = []
    page.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(f"{lab}/lab/tree/notebooks/{NOTEBOOK.name}")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=1000 * LONGEST_S)
    page.wait_for_selector("text=Python 3", timeout=1000 * LONGEST_S)
    page.click("text=Run >> nth=0")
    page.click("text=Run All Cells >> nth=0")
    # The last code cell shows the report; nothing waits any more.
    page.wait_for_function(
        "() => { const all = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]"
        ".map(one => one.textContent.trim());"
        " return all.length > 8 && all.every(text => /^\\[\\d+\\]:$/.test(text)); }",
        timeout=1000 * LONGEST_S,
    )
    page.wait_for_timeout(1000)
    seen = page.evaluate(SEEN)
    if folder := os.environ.get("STATEANALYTICS_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / "jupyterlab.png"), full_page=True)
    page.close()
    assert seen["errors"] == []
    assert seen["drawings"] >= 1
    assert seen["tables"] >= 5
    assert any("Snapshot as of 2026-05-25 06:00" in text for text in seen["texts"])
    assert any("Whole report:" in text for text in seen["texts"])
    unexplained = [text for text in complaints if not any(word in text for word in UNRELATED)]
    assert unexplained == []

"""The page in a real browser: nothing runs, nothing is fetched, everything can be read."""

import json
import re
import shutil
import subprocess

import pytest

from stateanalytics.reporting import report
from tests.conftest import absent
from tests.frames import facts
from tests.test_report import WEEK
from tests.test_report_page import FINDINGS, HOSTILE, SOURCES, hostile_facts

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DARK, LIGHT = 0, 1
DESKTOP, PHONE = 1280, 390
MARKUP = [case for case in HOSTILE if "PWNED" in case.values[0]]

# Loads the report in a frame of any width and writes down what a reader would meet.
LOOK = r"""<!doctype html><meta charset="utf-8">
<iframe src="REPORT" width="WIDTH" height="900"></iframe><pre id="seen"></pre>
<script>
const rgb = text => (text.match(/[\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
function ground(element, look) {
  for (let at = element; at; at = at.parentElement) {
    const colour = rgb(look(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
}
function faint(page, look) {
  const found = [];
  const walk = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.data.trim(), inside = walk.currentNode.parentElement;
    if (!text || !inside.getClientRects().length) continue;
    const style = look(inside);
    const ink = light(rgb(inside.namespaceURI.endsWith("svg") ? style.fill : style.color));
    const paper = light(ground(inside, look));
    const contrast = (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
    if (contrast < 4.5) found.push([text.slice(0, 40), Math.round(contrast * 100) / 100]);
  }
  return found;
}
window.onload = () => {
  const view = document.querySelector("iframe").contentWindow, page = view.document;
  // The first screen is what stands there before anything is unfolded.
  const front = page.querySelector("#headline .front")?.getBoundingClientRect().bottom;
  for (const one of page.querySelectorAll("details")) one.open = true;
  const box = page.documentElement, look = element => view.getComputedStyle(element);
  document.getElementById("seen").textContent = JSON.stringify({
    pwned: view.PWNED ?? null,
    fetched: view.performance.getEntriesByType("resource").map(one => one.name),
    overflow: box.scrollWidth - box.clientWidth,
    front,
    background: look(page.body).backgroundColor,
    bar: look(page.querySelector("figure rect, figure path[fill^=var]") || page.body).fill,
    drawings: [...page.querySelectorAll("figure svg")]
      .map(one => one.getBoundingClientRect().width),
    faint: faint(page, look),
    cutOff: [...page.querySelectorAll("#failures .scroll")]
      .map(one => one.scrollWidth - one.clientWidth),
    headings: [...page.querySelectorAll("h1, h2")].map(one => one.textContent),
  });
};
</script>"""


@pytest.fixture(scope="module")
def browser():
    found = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    return found or absent("Chromium")


def run(browser, tmp_path, *arguments):
    return subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'profile'}",
            *arguments,
        ],
        check=True,
        capture_output=True,
        timeout=60,
    ).stdout.decode("utf-8", "replace")


def seen(browser, tmp_path, made, *, width=DESKTOP, theme=LIGHT):
    """What the browser made of a report."""
    page = made.write_html(tmp_path / "week.html")
    look = tmp_path / "look.html"
    look.write_text(LOOK.replace("REPORT", page.as_uri()).replace("WIDTH", str(width)), "utf-8")
    dom = run(
        browser,
        tmp_path,
        "--allow-file-access-from-files",
        f"--blink-settings=preferredColorScheme={theme}",
        f"--window-size={width + 100},1000",
        "--dump-dom",
        look.as_uri(),
    )
    text = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)[1]
    return json.loads(text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


@pytest.fixture(scope="module")
def week():
    return report(facts(WEEK, sources=SOURCES, findings=FINDINGS))


def test_no_hostile_text_runs_and_nothing_is_fetched(browser, tmp_path):
    everything = "".join(case.values[0] for case in MARKUP)
    found = seen(browser, tmp_path, report(hostile_facts(everything), title=everything))
    assert found["pwned"] is None
    assert found["fetched"] == []


def test_a_script_that_got_onto_the_page_would_still_not_run(browser, tmp_path, week):
    class Pierced:
        def write_html(self, path):
            page = week.as_html().replace("</main>", "<script>window.PWNED=1</script></main>")
            path.write_text(page, "utf-8")
            return path

    assert seen(browser, tmp_path, Pierced())["pwned"] is None


def test_the_look_itself_would_see_what_is_wrong(browser, tmp_path):
    class Wrong:
        def write_html(self, path):
            path.write_text(
                "<!doctype html><p style='color:#aaa;width:3000px'>faint</p>"
                "<img src='http://127.0.0.1:9/none.png'><script>window.PWNED=1</script>",
                "utf-8",
            )
            return path

    found = seen(browser, tmp_path, Wrong())
    assert found["pwned"] == 1
    assert found["fetched"]
    assert found["overflow"] > 1000
    assert found["faint"] == [["faint", 2.32]]


@pytest.mark.parametrize("theme", [pytest.param(LIGHT, id="light"), pytest.param(DARK, id="dark")])
@pytest.mark.parametrize(
    "width", [pytest.param(DESKTOP, id="desktop"), pytest.param(PHONE, id="phone")]
)
def test_the_page_fits_and_every_word_can_be_read(browser, tmp_path, week, width, theme):
    found = seen(browser, tmp_path, week, width=width, theme=theme)
    assert found["overflow"] == 0
    assert set(found["cutOff"]) == {0}
    assert found["faint"] == []
    assert found["headings"][0] == "Weekly report"
    assert len(found["headings"]) == len(set(found["headings"])) >= 9
    shown = [one for one in found["drawings"] if one]
    assert len(shown) * 2 == len(found["drawings"]) >= 6
    assert max(shown) < width
    is_dark_ground = sum(map(int, re.findall(r"\d+", found["background"])[:3])) < 380
    assert is_dark_ground is (theme == DARK)


@pytest.mark.parametrize(("width", "n_screens"), [(DESKTOP, 1), (PHONE, 3)])
def test_what_to_do_stands_on_the_first_screen(browser, tmp_path, demo_week, width, n_screens):
    found = seen(browser, tmp_path, demo_week, width=width)
    assert 0 < found["front"] <= 900 * n_screens


def test_drawings_follow_the_theme(browser, tmp_path, week):
    light = seen(browser, tmp_path, week, theme=LIGHT)["bar"]
    dark = seen(browser, tmp_path, week, theme=DARK)["bar"]
    assert light.startswith("rgb") and dark.startswith("rgb")
    assert light != dark


def test_an_empty_week_fits_a_phone(browser, tmp_path):
    found = seen(browser, tmp_path, report(facts([])), width=PHONE)
    assert found["overflow"] == 0
    assert found["faint"] == []


def test_long_words_do_not_break_the_phone(browser, tmp_path):
    found = seen(browser, tmp_path, report(hostile_facts("x" * 5_000)), width=PHONE)
    assert found["overflow"] == 0


def test_the_page_prints(browser, tmp_path, week):
    page, paper = week.write_html(tmp_path / "week.html"), tmp_path / "week.pdf"
    run(browser, tmp_path, f"--print-to-pdf={paper}", "--no-pdf-header-footer", page.as_uri())
    assert paper.read_bytes()[:5] == b"%PDF-"

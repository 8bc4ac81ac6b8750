"""The report under axe-core: what a person with a screen reader or a keyboard would stumble on."""

from pathlib import Path

import pytest

import stateanalytics as sa
from tests.conftest import component
from tests.samples import AS_OF, SAMPLES

pytestmark = [pytest.mark.browser, pytest.mark.slow]
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def axe_core():
    """axe-core itself, as its package brings it."""
    package = component("axe_playwright_python")
    return (Path(package.__file__).parent / "axe.min.js").read_text("utf-8")


@pytest.fixture(scope="module")
def axe():
    return axe_core()


@pytest.fixture(scope="module")
def week(demo_week, tmp_path_factory):
    return demo_week.write_html(tmp_path_factory.mktemp("axe") / "w.html")


def violations(chromium, axe, address, *, width, theme):
    """What axe finds on a page with everything opened that opens."""
    page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
    try:
        page.goto(address)
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        page.evaluate(axe)
        # Of what passes, one place of each rule: to name all takes minutes on a page of tables.
        only = "{runOnly: {type: 'tag', values: rules}, resultTypes: ['violations']}"
        found = page.evaluate(f"rules => axe.run(document, {only})", RULES)
    finally:
        page.close()
    assert len(found["passes"]) > 10
    return [
        (one["id"], one["help"], [node["target"] for node in one["nodes"]][:3])
        for one in found["violations"]
    ]


@pytest.mark.parametrize(
    ("width", "theme"),
    [pytest.param(1280, "light", id="desktop-light"), pytest.param(390, "dark", id="phone-dark")],
)
def test_axe_finds_no_violation(chromium, axe, week, width, theme):
    assert violations(chromium, axe, week.as_uri(), width=width, theme=theme) == []


def test_paper_has_the_first_screen_on_its_first_page_and_every_fold_open(chromium, week):
    """Of A4 and of Letter what is as wide and as high as both, less a margin of 15 mm."""
    page = chromium.new_page(viewport={"width": 680, "height": 942})
    try:
        page.goto(week.as_uri())
        folded = "[...document.querySelectorAll('details > :not(summary)')]"
        seen = f"{folded}.map(one => one.checkVisibility())"
        assert not any(page.evaluate(seen))
        page.emulate_media(media="print")
        assert all(page.evaluate(seen))
        front = page.locator(".front").bounding_box()
        assert front["y"] + front["height"] < 942
        assert page.evaluate("document.documentElement.scrollWidth") <= 680
    finally:
        page.close()


PAPER = """() => ({
  tooWide: [...document.querySelectorAll('table')]
    .filter(one => one.getBoundingClientRect().right > innerWidth + 1)
    .map(one => one.tHead.innerText),
  brokenWords: [...document.querySelectorAll('thead th')].filter(one => {
    const words = document.createRange();
    words.selectNodeContents(one);
    const lines = new Set([...words.getClientRects()].map(box => Math.round(box.y))).size;
    return lines > one.innerText.split(/[\\s]+/).length;
  }).map(one => one.innerText),
  folds: [...document.querySelectorAll('summary')].filter(one =>
    getComputedStyle(one).display === 'list-item' && getComputedStyle(one).listStyleType !== 'none'
    || !['none', 'normal'].includes(getComputedStyle(one, '::before').content)
  ).map(one => one.innerText),
})"""


@pytest.fixture(scope="module")
def five_systems(tmp_path_factory):
    """The report of the samples of all systems: more inputs, kinds and detectors than one has."""
    names = ("state.db", "agent_orchestrator", "claude_code", "codex", "opencode")
    snap = sa.read(*(SAMPLES / name for name in names), as_of=AS_OF, progress=False)
    return sa.report(snap).write_html(tmp_path_factory.mktemp("five") / "w.html")


@pytest.mark.parametrize("name", ["week", "five_systems"])
def test_paper_breaks_no_heading_within_a_word_and_points_at_no_fold(chromium, request, name):
    page = chromium.new_page(viewport={"width": 680, "height": 942})
    try:
        page.goto(request.getfixturevalue(name).as_uri())
        assert page.evaluate(PAPER)["folds"], "on a screen they do"
        page.emulate_media(media="print")
        assert page.evaluate(PAPER) == {"tooWide": [], "brokenWords": [], "folds": []}
    finally:
        page.close()


def test_axe_would_find_one(chromium, axe, tmp_path, week):
    broken = tmp_path / "broken.html"
    page = week.read_text("utf-8").replace('<html lang="en">', "<html>")
    broken.write_text(page.replace("</main>", "<img src='data:,'></main>"), "utf-8")
    found = violations(chromium, axe, broken.as_uri(), width=1280, theme="light")
    assert {"html-has-lang", "image-alt"} <= {name for name, _, _ in found}

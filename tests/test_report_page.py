"""The page: well formed, inert whatever the text, and fit for those who cannot see it."""

import itertools
import re
import sys
from contextlib import nullcontext
from html.parser import HTMLParser
from pathlib import Path

import jinja2
import pytest

from stateanalytics.charts import report_charts
from stateanalytics.io.processes import ChildProcess
from stateanalytics.reporting import report
from stateanalytics.reporting.entities import LEGACY_TOOLTIP, pill_of
from stateanalytics.reporting.render import _pages, render
from stateanalytics.reporting.sections import SECTIONS
from tests.frames import AS_OF, ago, facts
from tests.test_report import WEEK, run

VOID = {"meta", "br", "input", "path", "circle", "rect", "line"}
HOSTILE = [
    pytest.param("</script><script>window.PWNED=1</script>", id="a script"),
    pytest.param("<img src=x onerror=window.PWNED=1>", id="a handler"),
    pytest.param('" onmouseover="window.PWNED=1" x="', id="out of an attribute"),
    pytest.param("' autofocus onfocus='window.PWNED=1", id="out of single quotes"),
    pytest.param("javascript:window.PWNED=1", id="a link"),
    pytest.param("</style><script>window.PWNED=1</script>", id="out of the style"),
    pytest.param("</svg><script>window.PWNED=1</script>", id="out of a drawing"),
    pytest.param("]]><script>window.PWNED=1</script>", id="out of character data"),
    pytest.param("{{ 7 * 7 }}{% raw %}", id="a template"),
    pytest.param("\x1b[31mred\x1b[0m\x07\x00\x9b", id="terminal codes and a null byte"),
    pytest.param("\u202egnp.exe\u2066\u200b\ufeff\u2028", id="reading direction turned round"),
    pytest.param("\ud800 half", id="half a character"),
    pytest.param("&lt;b&gt; &amp; &#x202e;", id="entities"),
    pytest.param("=cmd|' /C calc'!A0", id="a formula"),
    pytest.param("x" * 1_000_000, id="a megabyte"),
    pytest.param("", id="nothing"),
]


# One of them at the desk, every one in CI: a page takes seconds.
AT_THE_DESK = ("terminal codes and a null byte",)
each_hostile_text = pytest.mark.parametrize(
    "text",
    [
        text
        if text.id in AT_THE_DESK
        else pytest.param(*text.values, id=text.id, marks=pytest.mark.slow)
        for text in HOSTILE
    ],
)


class Page(HTMLParser):
    """What a page is made of; fails where a tag is not closed as it was opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.within: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.texts: list[tuple[str, int, list[str]]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.within.append(dict(attrs).get("id") or tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.within.pop()

    def handle_data(self, data):
        self.text += data
        if not {"style", "svg"} & set(self.open):
            pairs = itertools.pairwise((*self.open, ""))
            n_folds = sum(tag == "details" and inner != "summary" for tag, inner in pairs)
            self.texts.append((data, n_folds, list(self.within)))

    def words(self, n_folds, within="body"):
        """How many words a reader sees who opens folds so deep."""
        return sum(
            len(re.findall(r"\S*\w\S*", text))
            for text, depth, ids in self.texts
            if depth <= n_folds and within in ids
        )

    def ids(self):
        return [attributes["id"] for _, attributes in self.tags if attributes.get("id")]

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def made():
    return report(facts(WEEK, sources=SOURCES, findings=FINDINGS))


@pytest.fixture(scope="module")
def page(made):
    return Page(made.as_html())


SOURCES = [{"source": "/home/ann/state.db", "system": "lionagi", "size_bytes": 4096}]
NO_JSON = {"code": "cell.not_json", "severity": "error", "message": "no JSON", "action": "null"}
FINDINGS = [
    {**NO_JSON, "n_rows": 3},
    {"code": "status.unknown", "severity": "info", "n_rows": 1, "message": "a word"},
]


def hostile_facts(text):
    """Every text column of every frame holds the same hostile text."""
    storable = text.encode("utf-8", "replace").decode("utf-8")
    columns = "name kind project agent model provider playbook reason_code reason_message".split()
    said = dict.fromkeys(columns, storable)
    entities = [
        run("a " + storable, "failed", **said),
        run("b " + storable, "running", last_activity_at=ago(hours=25), **said),
        run("c " + storable, "completed", **said),
        run("d " + storable, storable or None, **said),
        run("e", "blocked", entity_type="play", **said),
        run("f", "failed", entity_type=storable, **said),
    ]
    names = dict.fromkeys(("source", "system", "format", "fingerprint"), storable)
    texts = ("source", "code", "table", "column", "message", "example", "action")
    problem = dict.fromkeys(texts, storable)
    findings = [{**problem, "severity": word} for word in ("error", storable)]
    return facts(entities, sources=[names], findings=findings)


@pytest.mark.slow
@each_hostile_text
def test_hostile_text_is_inert_wherever_it_stands(text):
    made = report(hostile_facts(text), title=text or None)
    for written in (made.as_html(), made.as_email()):
        read = Page(written)
        assert read.all("script") == read.all("img") == read.all("iframe") == read.all("link") == []
        for _, attributes in read.tags:
            assert not [name for name in attributes if name.startswith("on")]
            assert "javascript:" not in (attributes.get("href") or "")
        control = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
        assert not re.search(control, written)
        assert len(written) < 400_000
        written.encode("utf-8")
    assert "<script" not in made._repr_html_()


@pytest.mark.slow
def test_the_template_language_is_not_run_on_text():
    told = ["attention", "failures", "provenance"]
    made = report(hostile_facts("{{ 7 * 7 }}"), sections=told)
    assert "49" not in Page(made.as_html()).text.split()


@pytest.fixture(scope="module")
def demo_page(demo_week):
    return Page(demo_week.as_html())


def test_no_script_no_network_no_link_out(page):
    policies = [one["content"] for one in page.all("meta") if "http-equiv" in one]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert page.all("script") == page.all("link") == page.all("img") == []
    assert all(one["href"].startswith("#") for one in page.all("a"))
    assert not re.search(r"url\((?!#)", page.text)
    assert "@import" not in page.text


def test_every_link_and_reference_has_its_target(page):
    ids = page.ids()
    assert len(ids) == len(set(ids))
    assert {one["href"][1:] for one in page.all("a")} <= set(ids)
    assert {one["aria-labelledby"] for one in page.all("section")} <= set(ids)


def test_the_page_has_a_language_one_heading_and_landmarks(page):
    assert page.all("html")[0]["lang"] == "en"
    assert len(page.all("h1")) == len(page.all("main")) == len(page.all("nav")) == 1
    assert page.all("a")[0]["class"] == "skip"
    headings = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1
    assert all(below <= above + 1 for above, below in itertools.pairwise(headings))


def test_every_header_cell_says_what_it_heads(page):
    assert page.all("th")
    assert {one.get("scope") for one in page.all("th")} == {"col", "row", "rowgroup"}


def test_every_drawing_has_a_caption_and_its_numbers_as_a_table(page):
    figures = len(page.all("figure"))
    assert figures == len(page.all("figcaption")) >= 3
    drawings = [one for one in page.all("svg") if one.get("role") == "img"]
    assert len(drawings) == 2 * figures
    assert all(one["aria-label"] for one in drawings)


def test_wide_tables_scroll_in_a_box_that_a_keyboard_reaches(page):
    boxes = [one for _, one in page.tags if one.get("class") == "scroll"]
    assert boxes
    assert all(one["tabindex"] == "0" and one["aria-label"] for one in boxes)


def test_every_section_begins_with_its_finding_in_words(made, page):
    summary = made.summary
    assert " ".join(summary["lead"]) in page.text
    for name in ("provenance", "attention", "failures", "durations", "appendix"):
        assert summary[name]["finding"] in page.text


def test_errors_in_the_data_stand_open_on_top(page):
    assert page.text.index("cell.not_json") < page.text.index("The window in numbers")
    assert "/home/[user]/state.db" in page.text


@pytest.mark.parametrize(
    ("n_folds", "within", "most"),
    [(0, "header", 105), (0, "headline", 218), (0, "body", 760), (1, "body", 3_190)],
)
def test_the_page_is_no_longer_than_somebody_reads(demo_page, n_folds, within, most):
    """The first screen has 350 words; each chapter a sentence, and not many when it is open.

    Each command of this page names the instant that the sample is read at.
    """
    in_appendix = demo_page.words(n_folds, "runs") if within == "body" else 0
    assert most / 2 < demo_page.words(n_folds, within) - in_appendix <= most


def test_the_part_for_everybody_is_one_page_with_its_evidence_open(demo_page):
    everybody = demo_page.words(1, "header") + demo_page.words(1, "headline")
    assert 450 < everybody + demo_page.words(0, "costs") <= 900


def test_chapters_without_content_are_one_line(demo_page, demo_week):
    text = demo_page.text
    assert text.index("What runs cost") < text.index("For operators") < text.index("Why work")
    summary = demo_week.summary
    silent = [one for one in SECTIONS if not one.has_content(summary[one.name])]
    assert {"systems", "fleet"} <= {one.name for one in silent}
    assert f"Nothing to show: {', '.join(one.label.lower() for one in silent)}" in text
    for one in silent:
        assert demo_page.ids().count(one.name) == 1
        assert summary[one.name]["finding"] in text


def test_the_first_screen_says_what_failures_cost_and_counts_what_is_new(demo_page, demo_week):
    assert "41 more than the 24 before, not significant per run" in demo_page.text
    lost = "1 d 9 h of all work, cost $7.27 (53 not reported); before: 9 h 44 min, "
    assert demo_week.summary["lost"] == f"{lost}$2.36, not significant per run."
    # Where failures are rare and history is short, new ones are counted and are no news.
    assert demo_week.summary["news"] == []
    assert "26 new, in " in demo_page.text


def test_the_badge_of_the_data_is_red_where_some_were_lost(demo_week, page):
    assert 'class="badge"' in demo_week.as_html()
    assert 'class="badge lost"' not in demo_week.as_html()
    classes = [one.get("class") or "" for one in page.all("a")]
    assert [one for one in classes if "badge" in one] == ["badge lost"]


def test_what_somebody_stopped_is_counted_and_is_no_thing_to_look_at(demo_week):
    told = demo_week.summary["attention"]
    assert told["stopped"]["n"] == 4
    assert {one["pill"]["label"] for one in told["stopped"]["items"]} == {"aborted"}
    n_things = told["open"]["n"] + told["ended"]["n"]
    assert n_things == told["n_things"]
    assert f"{n_things} items to check" in told["finding"]
    assert told["ended"]["items"][0]["n_alike"] > 1


def test_every_id_on_the_page_leads_to_what_is_known_of_it(demo_page, demo_week):
    named = demo_week.summary["runs"]
    assert len(named) > 40
    assert {f"run-{place}" for place in range(1, len(named) + 1)} <= set(demo_page.ids())
    links = [one["href"] for one in demo_page.all("a") if one["href"].startswith("#run-")]
    n_ids = sum(one.get("class") == "id" for one in demo_page.all("code"))
    assert len(links) + len(named) == n_ids
    assert {one["href"][1:] for one in demo_page.all("a")} <= set(demo_page.ids())
    slowest = demo_week.summary["slow"]["open"][0]
    [told] = [one for one in named if one["entity_id"] == slowest["entity_id"]]
    assert told["command"].startswith("stateanalytics show ")
    assert told["command"].endswith(f"state.db {slowest['entity_id']}")
    assert told["lasted"] == slowest["lasted"]


def test_only_the_bar_of_this_window_is_highlighted():
    """A window of which the number is 0 has no bar; the highlight was that of an earlier one."""
    spark = _pages().get_template("macros.html.j2").module.spark
    assert ['class="now"' in bar for bar in spark([1.0, 0.5]).split("<rect")[1:]] == [False, True]
    assert "<rect" in spark([1.0, 0.0]) and "now" not in spark([1.0, 0.0])


@pytest.mark.slow
def test_a_report_in_full_is_the_page_with_every_fold_open(small_week):
    page = small_week.as_html()
    assert Page(page).all("details")
    assert small_week.as_html(is_full=True) == page.replace("<details", "<details open")


def test_an_email_is_a_page_of_plain_elements_that_say_how_they_look(demo_week):
    written = demo_week.as_email()
    read = Page(written)
    assert len(written) < 20_000
    assert read.all("style") == read.all("svg") == read.all("a") == read.all("script") == []
    assert demo_week.summary["lost"] in read.text
    assert len(demo_week.summary["actions"]) >= 2
    assert all(one["command"] in read.text for one in demo_week.summary["actions"])
    assert demo_week.summary["failures"]["finding"] in read.text


def test_colours_are_said_once_and_for_both_themes(small_week):
    written = small_week.as_html()
    body = written[written.index("<body") :]
    assert not re.search(r"#[0-9A-Fa-f]{6}\b", body)
    for name in set(re.findall(r"var\((--[\w-]+)\)", written)):
        assert f"{name}:" in written.replace(f"{name}: ", f"{name}:")


def test_as_of_and_policy_are_shown(page):
    assert f"{AS_OF:%Y-%m-%d %H:%M} UTC, as asked" in page.text
    assert "Policy v1" in page.text


@pytest.mark.slow
def test_the_page_of_a_big_week_stays_small():
    codes = [f"run.failed.c{n % 90}" for n in range(3_000)]
    rows = [run(f"{n:05}", "failed", reason_code=c, kind=f"k{n % 50}") for n, c in enumerate(codes)]
    assert len(report(facts(rows)).as_html()) < 250_000


@pytest.mark.slow
def test_a_page_is_the_same_whoever_draws_it(made):
    report_charts.end_prepared()
    drawn_here = render(made.summary)
    report_charts.prepare()
    [process] = report_charts._PREPARED
    assert render(made.summary) == drawn_here
    assert [process] == report_charts._PREPARED
    other = made.summary["over_time"] | {"finding": "another finding"}
    report_charts.begin_drawing("over_time", made.summary["over_time"], lambda _: other)
    report_charts.begin_drawing("durations", made.summary["durations"], dict)
    assert render(made.summary) == drawn_here
    process.end()
    assert render(made.summary) == drawn_here
    assert not report_charts._PREPARED


class Interrupted:
    """A process that draws, and somebody presses Ctrl-C meanwhile."""

    def __init__(self, command):
        self.command, self.is_ended = command, False

    def is_alive(self):
        return not self.is_ended

    def within(self, limit_s):
        return nullcontext()

    def ask(self, *asked):
        raise KeyboardInterrupt

    def end(self):
        self.is_ended = True


def test_what_draws_is_ended_by_ctrl_c_and_starts_whatever_stands_on_the_path(monkeypatch):
    monkeypatch.setattr(report_charts, "ChildProcess", Interrupted)
    monkeypatch.setattr(report_charts, "_PREPARED", [])
    monkeypatch.setattr(sys, "path", ["/somewhere", Path("/no/text")])
    report_charts.prepare()
    [process] = report_charts._PREPARED
    assert process.command[-1] == '["/somewhere"]'
    with pytest.raises(KeyboardInterrupt):
        report_charts.drawn({})
    assert process.is_ended


@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(60)",
        "print('a warning', flush=True); input(); input()",
        "print('[1]', flush=True); input(); input()",
        "",
    ],
)
def test_charts_are_drawn_here_where_what_draws_does_not_answer(monkeypatch, program):
    process = ChildProcess([sys.executable, "-S", "-c", program])
    monkeypatch.setattr(report_charts, "_PREPARED", [process])
    monkeypatch.setattr(report_charts, "LIMIT_S", 0.3)
    late = (lambda section: section, ("wide",))
    monkeypatch.setattr(report_charts, "DRAWN", {"late": late})
    monkeypatch.setattr(report_charts, "draw", lambda sections: sections)
    assert report_charts.drawn({"late": {"wide": "<svg>"}}) == {"late": {"wide": "<svg>"}}
    assert report_charts._PREPARED == []
    assert not process.is_alive()


def test_templates_are_compiled_once_as_far_as_python_keeps_what_it_compiles(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def fresh():
        return _pages.__wrapped__().get_template("losses.html.j2")

    fresh()
    assert not [*tmp_path.rglob("*.pyc")]
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    fresh()
    [kept] = tmp_path.rglob("*.pyc")
    with monkeypatch.context() as without:
        without.setattr(jinja2.Environment, "compile", None)
        assert fresh().name == "losses.html.j2"
    kept.write_bytes(b"of another version")
    assert fresh().name == "losses.html.j2"
    assert kept.read_bytes() != b"of another version"


def test_a_pill_of_a_word_outside_the_vocabulary_says_why():
    row = {"lifecycle": "unknown", "tone": "neutral", "effective_state": "done"}
    macros = _pages().get_template("macros.html.j2").module
    assert f'title="{LEGACY_TOOLTIP}"' in macros.pill(pill_of({**row, "is_legacy": True}))
    assert "title" not in macros.pill(pill_of({**row, "is_legacy": False}))

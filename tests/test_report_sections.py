"""A report of some of its sections: the same numbers, and only their work."""

import json
import pkgutil
import re
from importlib import resources

import pytest

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting import sections
from stateanalytics.reporting.material import FOR_OPERATORS
from tests.examples import a_few
from tests.frames import facts
from tests.samples import SAMPLES
from tests.test_report import WEEK

pytestmark = pytest.mark.usefixtures("read_once")

NAMES = [section.name for section in sections.SECTIONS]


UNTOLD = {"systems", "fleet", "costs", "inside", "late"}
"""What a page of one source, one system, no cost, no call and no late row has nothing to say in."""


@pytest.fixture(scope="module", params=a_few(NAMES, 3))
def section(request):
    return request.param, sa.report(facts(WEEK), sections=[request.param])


def test_a_section_alone_says_what_it_says_in_the_whole_report(small_week, section):
    name, alone = section
    assert alone.summary[name] == small_week.summary[name]
    assert {key for key in alone.summary if key in NAMES} == {name, "headline"}
    assert alone.summary["ledger"] == small_week.summary["ledger"]


def test_the_page_of_a_section_has_nothing_of_the_others(section):
    name, alone = section
    page = alone.as_html()
    anchors = {f"{other.replace('_', '-')}" for other in {name, "headline"} - UNTOLD}
    assert set(re.findall(r'<(?:section|div) id="([\w-]+)"(?! class)', page)) == anchors
    assert ("Nothing to show: " in page) == (name in UNTOLD)


def test_the_contents_lead_to_each_chapter_for_operators(small_week):
    links = re.findall(r"<nav.*?</nav>", small_week.as_html(), re.S)[0].split('"')[3::2]
    chapters = [one.name for one in sections.SECTIONS if one.place >= FOR_OPERATORS]
    assert links == [f"#{name.replace('_', '-')}" for name in chapters if name not in UNTOLD]


def test_a_section_is_a_module_and_a_template_of_its_name():
    package = resources.files("stateanalytics.reporting")
    modules = {module.name for module in pkgutil.iter_modules(sections.__path__)}
    assert modules == set(NAMES)
    assert all((package / "templates" / f"{name}.html.j2").is_file() for name in NAMES)
    assert len({section.place for section in sections.SECTIONS}) == len(NAMES)


@pytest.mark.slow
def test_sections_stand_in_the_order_of_the_page_whatever_was_asked(small_week):
    some = sa.report(facts(WEEK), sections=["audit", "slow", "audit"])
    order = re.findall(r'<(?:section|div) id="([\w-]+)"(?! class)', some.as_html())
    assert order == ["headline", "slow", "audit"]
    every = re.findall(r'<(?:section|div) id="([\w-]+)"(?! class)', small_week.as_html())
    assert every == [name.replace("_", "-") for name in NAMES if name not in UNTOLD]


@pytest.mark.slow
def test_one_name_need_not_be_a_list():
    assert "slow" in sa.report(facts(WEEK), sections="slow").summary


@pytest.mark.slow
def test_only_the_work_of_the_chosen_sections_is_done(monkeypatch):
    def refused(material):
        raise AssertionError("this section was not asked for")

    own = ("slow", "headline")
    others = [s._replace(summarize=refused) for s in sections.SECTIONS if s.name not in own]
    kept = [s for s in sections.SECTIONS if s.name in own]
    monkeypatch.setattr(sections, "SECTIONS", (*kept, *others))
    assert "slow" in sa.report(facts(WEEK), sections=["slow"]).summary


def test_an_unknown_section_is_an_error_with_the_list_of_names():
    with pytest.raises(ArgumentError) as raised:
        sa.report(facts(WEEK), sections=["duration"])
    assert all(name in str(raised.value) for name in NAMES)
    assert "did you mean 'durations'" in str(raised.value)


@pytest.mark.slow
def test_the_command_takes_names_between_commas(tmp_path, capsys):
    path = tmp_path / "some.json"
    store = str(SAMPLES / "state.db")
    assert run(["report", store, "--sections", "slow, over_time", "-o", str(path)]) == 0
    summary = json.loads(path.read_text())
    assert {key for key in summary if key in NAMES} == {"headline", "slow", "over_time"}
    assert run(["report", store, "--sections", "fast"]) != 0
    assert "no section 'fast'" in capsys.readouterr().err

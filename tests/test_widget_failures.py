"""The drill-down into failures: counts agree at each step, texts are masked and inert."""

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.errors import ArgumentError
from stateanalytics.widgets.failures import NO_CODE
from tests.frames import facts
from tests.test_charts_detectors import HOSTILE
from tests.test_report import KEY, run


@pytest.fixture(scope="module")
def snap():
    with sa.demo() as opened:
        yield opened


@pytest.fixture(scope="module")
def look(snap):
    return sa.FailureExplorer(snap)


def test_rows_of_every_code_are_its_templates_rows(look):
    for code in look.codes:
        assert look.rows(code).height == look.templates(code)["n_rows"].sum()


def test_the_sql_gives_the_same_rows(look, snap):
    cluster = look.clusters["cluster_id"][0]
    for code, one in ((None, None), ("run.failed", None), (NO_CODE, None), (None, cluster)):
        found = snap.sql(look.sql(code, one))
        assert found["entity_id"].sort().equals(look.rows(code, one)["entity_id"].sort())


def test_the_box_drills_down_from_code_to_template_to_evidence(look):
    code, template, shown = look.widget.children
    code.value = "run.failed.provider_retryable"
    names = [name for name, _ in template.options]
    assert names[0] == "everything"
    assert any("429" in name for name in names)
    before = shown.value
    template.value = template.options[1][1]
    assert shown.value != before
    assert "snap.sql(" in shown.value
    assert "<pre>" in shown.value


def test_an_unknown_code_names_near_ones(look):
    with pytest.raises(ArgumentError, match=r"run.failed.exeption.*\n.*did you mean"):
        look.view("run.failed.exeption")


def test_a_window_without_failures_says_so(snap):
    empty = sa.FailureExplorer(snap, window=("2020-01-01", "2020-01-02"))
    assert "Nothing failed" in empty.widget.children[0].value
    assert empty.as_html().startswith("<p>0 rows, 0 runs, 0 incidents</p>")


def test_secrets_are_masked_and_hostile_text_is_text():
    rows = [
        run("a", "failed", reason_code=HOSTILE, reason_message=f"{HOSTILE} {KEY}", agent=HOSTILE),
        run("b", "failed", reason_code="run.failed.exception", reason_message=KEY),
    ]
    shown = sa.FailureExplorer(facts(rows)).as_html()
    assert KEY not in shown
    assert "<img" not in shown
    assert KEY in sa.FailureExplorer(facts(rows), is_redacted=False).as_html()


def test_it_shows_itself_with_and_without_a_kernel(look):
    bundle = look._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "Newest rows" in bundle["text/html"]
    assert repr(look).startswith("FailureExplorer of ")
    assert isinstance(look.members, pl.DataFrame)

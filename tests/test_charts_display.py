"""A chart in a notebook is a drawing: nothing in its data runs, and nothing is fetched."""

import altair as alt
import polars as pl
import pytest

from stateanalytics.charts import chart_severity
from tests.examples import a_few
from tests.test_report_page import HOSTILE


def chart(text="session"):
    return chart_severity(
        pl.DataFrame({"entity_type": [text], "critical": [3], "warning": [0], "info": [1]})
    )


def test_a_chart_stays_an_altair_chart_with_its_data():
    made = chart()
    assert isinstance(made, alt.FacetChart)
    assert made.data["n"].sum() == 4
    assert isinstance(made.properties(title="mine"), type(made))
    made.to_dict()


def test_a_notebook_gets_a_drawing_and_words():
    shown = chart()._repr_mimebundle_()
    assert sorted(shown) == ["text/html", "text/plain"]
    assert shown["text/plain"] == "FacetChart: 4 entities by type and severity."
    assert shown["text/html"].startswith("<figure><svg ")
    assert "background:#fff" in shown["text/html"]


# No frame can hold half a character.
@pytest.mark.parametrize(
    "text", a_few([case for case in HOSTILE if case.id != "half a character"], 4)
)
def test_nothing_in_its_data_runs(text):
    shown = chart(text)._repr_mimebundle_()["text/html"].lower()
    for sign in ("<script", "<img", "<a ", "javascript:", "onerror=", "http"):
        assert f"<{sign.lstrip('<')}" not in shown
    assert shown.count("<svg") == 1
    assert "url(http" not in shown


def test_the_same_chart_shows_the_same_bytes():
    assert chart()._repr_mimebundle_() == chart()._repr_mimebundle_()

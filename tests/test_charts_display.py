"""A chart in a notebook is data and a drawing: nothing in it runs, and nothing is fetched."""

import json
import re
import sys
from xml.etree import ElementTree

import altair as alt
import polars as pl
import pytest

from stateanalytics.charts import LIGHT, chart_durations, chart_limits, chart_severity, to_svg
from stateanalytics.charts.style import FONT_SIZE, fitted, width_of, wrapped
from stateanalytics.charts.vega import VERSIONS, bundled
from tests import hostile_charts
from tests.examples import a_few
from tests.test_charts import STEPS
from tests.test_report_page import HOSTILE

LIVE, STILL = "application/vnd.vegalite.v6+json", "image/svg+xml"
ROWS = [
    *(("a", 60.0, 60.0, "timed_out", False), ("b", 600.0, 20.0, "completed", True)),
    ("c", 600.0, 500.0, "completed", True),
]
COLUMNS = ["entity_id", "limit_s", "elapsed_s", "ending", "fits"]
RUNS = pl.DataFrame(ROWS, COLUMNS, orient="row").with_columns(has_no_turns=False)
RULE = alt.Chart(pl.DataFrame({"x": [60.0]})).mark_rule().encode(x="x:Q")


def chart(text="session"):
    row = {"entity_type": text, "critical": 3, "warning": 0, "info": 1}
    return chart_severity(pl.DataFrame([row]))


@pytest.mark.slow
def test_the_drawing_of_every_chart_is_inert_and_the_same_each_time(demo, monkeypatch):
    monkeypatch.setattr(hostile_charts, "HOSTILE", f"{hostile_charts.HOSTILE}\x1b[31m")
    odd = STEPS.with_columns(ending=pl.lit(hostile_charts.HOSTILE))
    drawn = hostile_charts.every_chart(demo) | {"endings": chart_durations(odd)}
    for name, hostile in drawn.items():
        drawing = to_svg(hostile, name="x", label="in words")
        assert not re.search(r"<(script|img)|<[^>]*\son\w+=|href|\x1b", drawing), name
        ElementTree.fromstring(drawing)
        assert drawing == to_svg(hostile, name="x", label="in words"), name


def test_a_chart_stays_an_altair_chart_with_its_data():
    made = chart()
    assert isinstance(made, alt.FacetChart)
    assert made.data["n"].sum() == 4
    assert isinstance(made.properties(title="mine"), type(made))
    made.to_dict()


def test_a_notebook_gets_vega_lite_a_drawing_and_words():
    shown = chart()._repr_mimebundle_()
    assert sorted(shown) == ["application/vnd.vegalite.v5+json", LIVE, STILL, "text/plain"]
    assert shown["text/plain"] == "FacetChart: 4 entities by type and severity."
    assert ElementTree.fromstring(shown[STILL]).tag == "{http://www.w3.org/2000/svg}svg"
    assert f'fill="{LIGHT["surface"]}"' in shown[STILL]
    assert shown[LIVE]["config"]["background"] == LIGHT["surface"]
    assert shown[LIVE]["background"] == LIGHT["surface"], "VS Code asks here whether it is dark"
    margin = shown[LIVE]["config"]["padding"]
    assert min(margin.values()) >= FONT_SIZE, "a card in a dark notebook, and no box around text"
    assert chart().properties(background="red")._repr_mimebundle_()[LIVE]["background"] == "red"
    assert shown["application/vnd.vegalite.v5+json"]["$schema"].endswith("/v5.json")


@pytest.mark.slow
def test_charts_are_layered_put_beside_others_and_configured_like_any_other():
    limits = chart_limits(RUNS)
    whole = limits.to_dict()["config"]
    for made in (
        limits + RULE, limits | chart(), limits & limits, limits | RULE,
        limits.properties(title="mine"), limits.copy(),
    ):  # fmt: skip
        assert made.to_dict()["config"] == whole
        assert type(made)._repr_mimebundle_ is type(limits)._repr_mimebundle_
    red = limits.configure_axis(labelColor="red").to_dict()["config"]
    assert red["axis"] == whole["axis"] | {"labelColor": "red"}
    assert "config" not in alt.layer(limits, RULE).to_dict()["layer"][0]
    assert "config" not in alt.hconcat(limits, chart()).to_dict()["hconcat"][0]


def test_a_live_chart_brings_its_libraries_and_imports_none():
    module = chart().live()._esm
    assert not re.search(r"^import\b|esm\.sh|\bimport\(", module, re.MULTILINE)
    assert {*re.findall(r'^load\("([\w-]+)"', module, re.MULTILINE)} == {*VERSIONS, "vega-embed"}
    assert bundled(module) == module, "as after alt.JupyterChart.enable_offline()"
    assert "vl_convert" not in sys.modules


# A model as anywidget gives it, and what the page does with it.
MODEL = """async ([source, state]) => {
  const module = await import(URL.createObjectURL(new Blob([source], {type: 'text/javascript'})));
  const el = document.body.appendChild(document.createElement('div'));
  window.state = state;
  await module.default.render({el, model: {
    get: name => state[name], set: (name, value) => { state[name] = value; },
    save_changes() {}, on() {},
  }});
}"""


@pytest.mark.slow
@pytest.mark.browser
def test_a_live_chart_is_drawn_and_chosen_from_without_a_network(chromium):
    live = chart_limits(RUNS.with_columns(entity_id=pl.lit("<img src=x onerror=PWNED=1>"))).live()
    state = {name: getattr(live, name) for name in live.trait_names(sync=True) if name[0] != "_"}
    state |= {"_vl_selections": live._vl_selections, "_params": live._params, "layout": None}
    page = chromium.new_page()
    asked, complaints = [], []
    page.route("**/*", lambda route: route.abort())
    page.on("request", lambda request: asked.append(request.url[:40]))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    # No text is run as a script, where a page says so.
    page.set_content("<meta http-equiv='Content-Security-Policy' content='script-src blob:'>")
    page.evaluate(MODEL, [live._esm, state])
    box = page.locator(".vega-embed canvas, .vega-embed svg").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] * 0.2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.8, steps=8)
    page.mouse.up()
    page.wait_for_timeout(300)
    told = page.evaluate("state._vl_selections")
    live._vl_selections = told
    assert " BETWEEN " in live.sql
    assert page.evaluate("window.PWNED ?? null") is None
    assert complaints == []
    assert [url for url in asked if not url.startswith("blob:")] == []
    page.close()


@pytest.mark.slow
def test_no_setting_of_altair_is_changed():
    before = alt.renderers.active, alt.theme.active, alt.data_transformers.active
    theirs = alt.JupyterChart._esm
    chart()._repr_mimebundle_()
    chart_limits(RUNS).live()
    assert (alt.renderers.active, alt.theme.active, alt.data_transformers.active) == before
    assert alt.JupyterChart._esm == theirs


def test_marks_say_what_they_are():
    told = chart_limits(RUNS).layer[2].to_dict()
    titles = [tip["title"] for tip in told["encoding"]["tooltip"]]
    assert titles == ["ended", "runs", "limit", "took", "run"]
    took = chart_limits(RUNS).layer[2].data.sort("tooltip_run")["tooltip_took"]
    assert took.to_list() == ["1 min", "20 s", "8 min 20 s"]


def chosen(live, name, value, store):
    """What the page sends when something is chosen in it."""
    live._vl_selections = {**live._vl_selections, name: {"value": value, "store": store}}


def test_what_is_chosen_is_a_frame_and_the_sql_for_it():
    live = chart_limits(RUNS).live()
    assert live.selected["run"].sort().to_list() == ["a", "b", "c"]
    assert live.sql == "FROM timeouts"
    chosen(live, "chosen_runs", {"elapsed_s": [10, 100]}, [])
    assert live.selected["run"].sort().to_list() == ["a", "b"]
    assert live.sql.startswith("FROM timeouts WHERE elapsed_s BETWEEN 10 AND 100 AND (")
    chosen(live, "limits_axes", {"elapsed_s": [10, 20]}, [])
    assert live.selected.height == 2, "an axis that was moved chooses nothing"
    few = chart("it's").live()
    point = {"or": [{"entity_type": "it's", "severity": "info"}]}
    chosen(few, "chosen_severity", {"vlPoint": point}, [])
    assert few.selected["n"].to_list() == [1]
    assert few.sql == "FROM states WHERE ((entity_type = 'it''s' AND severity = 'info'))"


# No frame can hold half a character.
@pytest.mark.slow
@pytest.mark.parametrize(
    "text", a_few([case for case in HOSTILE if case.id != "half a character"], 4)
)
def test_nothing_in_its_data_runs(text):
    bundle = chart(text)._repr_mimebundle_()
    still = bundle[STILL].lower()
    assert not re.search(r"<(script|img|a|style|foreignobject|image)\b|<[^>]*\son\w+=", still)
    assert still.count("<svg") == 1
    assert "url(http" not in still
    spec = json.dumps(bundle[LIVE])
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", spec)
    # A text of a store is data, the name of a category or a heading; never code or an address.
    for key in ("expr", "signal", "test", "filter", "calculate", "labelExpr", "href", "url"):
        for found in re.finditer(rf'"{key}": "((?:[^"\\]|\\.)*)"', spec):
            assert not text or json.dumps(text)[1:-1] not in found[1]


def test_the_same_chart_shows_the_same_bytes():
    assert chart()._repr_mimebundle_() == chart()._repr_mimebundle_()


def test_a_text_is_measured_in_the_widest_font_and_cut_to_its_room():
    long = "ProviderQuotaError: API Error: 529 overloaded, and many words more behind it"
    for room in (40, 120, 250):
        assert width_of(fitted(long, room)) <= room
        assert all(width_of(line) <= room for line in wrapped(long, room))
    assert fitted(long, 120).startswith("ProviderQuota")
    assert " ".join(wrapped(long, 250)) == long
    assert width_of("ж") > width_of("n") > width_of("i")


def test_what_a_notebook_keeps_of_a_chart_has_no_secrets():
    key = "sk-" + "a1B2" * 12
    made = chart(f"runs with {key}").properties(description=key)
    shown = made._repr_mimebundle_()
    assert key not in json.dumps(shown)
    assert "[API key]" in json.dumps(shown[LIVE])
    assert key in made.data["entity_type"][0], "what is held is as it was"

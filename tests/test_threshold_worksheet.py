"""The worksheet of thresholds in a notebook: quick under sliders, whole without them."""

import re
import time
from xml.etree import ElementTree

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.text import as_written
from stateanalytics.core.words import how_long
from stateanalytics.errors import ArgumentError
from stateanalytics.thresholds.frames import ADVICE_CURVES
from stateanalytics.thresholds.judge import SAID
from stateanalytics.widgets.drawing import drawing, heading, priced, priced_table, sentence

HOSTILE = "</script><script>x()</script>\x1b[31m"


@pytest.fixture(scope="module")
def sheet(demo):
    return sa.ThresholdWorksheet(sa.thresholds.recommend(demo))


@pytest.fixture
def curve():
    rows = [(60.0, 9.0, 1.0, False), (600.0, 1.0, 10.0, False), (3600.0, 0.0, 60.0, True)]
    columns = ["threshold_s", "mistakes", "waiting_h", "is_today"]
    return pl.DataFrame(rows, columns, orient="row").with_columns(per=pl.lit("100 runs"))


def test_costs_move_the_cheapest(curve):
    assert [priced(curve, price=p, hour=1.0).cheapest for p in (0.1, 5.0, 100.0)] == [0, 1, 2]


def test_the_sentence_compares_with_the_cheapest_and_todays(curve):
    of = priced(curve, price=5.0, hour=1.0, threshold_s=60.0)
    assert sentence(of) == (
        "1 min: mistakes 9, waiting 1 h, loss 46 per 100 runs; "
        "10 min, the cheapest, 15; 1 h, today's, 60."
    )


def test_the_drawing_is_sound_and_names_its_marks(curve):
    svg = ElementTree.fromstring(drawing(priced(curve, price=5.0, hour=1.0)))
    texts = [part.text for part in svg.iter("text")]
    assert {"this, cheapest: 10 min", "today: 1 h"} <= {*texts}
    axes = {"loss, minutes of attention per 100 runs", "threshold: delay until it acts"}
    assert axes <= {*texts}


def test_losses_are_as_high_as_the_labels_of_the_axis_say(curve):
    of = priced(curve, price=5.0, hour=1.0, threshold_s=60.0)
    svg = ElementTree.fromstring(drawing(of))
    frame, dot = svg.find("svg"), svg.find("circle")
    top, height = float(frame.get("y")), float(frame.get("height"))
    labels = [part.text for part in svg.iter("text")]
    assert {"0", "60"} <= set(labels)  # the ends of the axis, at both ends of the frame
    points = [point.split(",") for point in frame.find("polyline").get("points").split()]
    read_off = [60 * (1 - float(y) / height) for _, y in points]
    assert read_off == pytest.approx(of.losses, abs=0.1)
    assert 60 * (1 - (float(dot.get("cy")) - top) / height) == pytest.approx(46, abs=0.1)


def test_one_candidate_and_no_loss_are_drawn(curve):
    for few in (curve.head(1), curve.with_columns(mistakes=0.0, waiting_h=0.0)):
        ElementTree.fromstring(drawing(priced(few, price=5.0, hour=1.0)))


def test_the_table_has_every_candidate(curve):
    rows = re.findall(
        r"<tr><th scope='row'>(.*?)</th>", priced_table(priced(curve, price=5, hour=1))
    )
    assert rows == ["1 min", "10 min", "1 h"]


def test_a_move_of_a_slider_is_drawn_at_once(sheet):
    """The promise is 100 ms; what is held here is far above what it takes."""
    which, value, price, hour, shown = sheet.widget.children
    before = shown.value
    started = time.process_time()
    for cost in range(20):
        price.value = float(cost)
    assert (time.process_time() - started) / 20 < 0.1
    assert shown.value != before
    which.value = "slow.agent"
    assert shown.value == sheet.view(
        "slow.agent", threshold_s=value.value, price=price.value, hour=hour.value
    )
    value.value = 3600.0
    assert shown.value.startswith("<p>1 h: ")


def test_at_first_the_cheapest_is_shown_and_it_is_that_of_the_advice(sheet):
    for name, best_s in sheet.advice.frame.select("name", "best_s").drop_nulls().iter_rows():
        assert sheet.view(name).startswith(f"<p>{how_long(best_s)}: ")


def test_an_export_shows_whole_curves_and_tables_instead_of_sliders(sheet):
    page = sheet.as_html()
    assert page.count("<svg viewBox") == page.count("<table>") == len(sheet.names)
    assert sheet._repr_mimebundle_()["text/html"] == as_written(page)
    assert "application/vnd.jupyter.widget-view+json" in sheet._repr_mimebundle_()
    assert "<script" not in page
    assert "id=" not in page


def test_to_keep_is_not_to_know_nothing(sheet):
    """Report, command and widget use the same words for the two."""
    verdicts = dict(sheet.advice.frame.select("name", "verdict").iter_rows())
    for name in sheet.names:
        assert f"<p>{SAID[verdicts[name]].capitalize()}" in sheet.view(name)
        assert f">{SAID[verdicts[name]]}</td>" in sheet.advice._repr_html_()


def test_text_of_a_store_stays_text():
    assert "<script" not in heading(HOSTILE, HOSTILE)
    assert "\x1b" not in heading(HOSTILE, None)


def test_without_data_it_says_so():
    empty = sa.thresholds.Advice(pl.DataFrame(), ADVICE_CURVES.empty(), sa.thresholds.Costs(), ())
    nothing = sa.ThresholdWorksheet(empty)
    assert nothing.as_html() == "<p>Not enough data for any threshold.</p>"
    assert nothing.widget.children[0].value == nothing.as_html()
    assert repr(nothing).startswith("ThresholdWorksheet of 0 thresholds")


def test_wrong_names_and_things_are_refused_in_words(sheet):
    with pytest.raises(ArgumentError, match="There is no curve for 'idel'; there are slow"):
        sheet.view("idel")
    with pytest.raises(ArgumentError, match="ThresholdWorksheet needs advice; found str"):
        sa.ThresholdWorksheet("state.db")

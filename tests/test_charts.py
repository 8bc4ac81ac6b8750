"""Charts draw the frame they are given, nothing else, and come out inert."""

import gc
import itertools
import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.charts import (
    DARK,
    LIGHT,
    VARIABLES,
    chart_durations,
    chart_over_time,
    chart_severity,
    to_svg,
    vega,
)
from stateanalytics.charts.style import OF_GROUPS, ORDER
from stateanalytics.charts.svg import LONGEST_TEXT, inert, tame
from stateanalytics.errors import ArgumentError, ColumnTypeError, MissingColumnsError
from stateanalytics.reporting.entities import COLOURS
from tests.examples import a_few

STEPS = pl.DataFrame(
    {
        "ending": ["completed", "completed", "timed_out", "running"],
        "low_s": [0.0, 900.0, 900.0, 57600.0],
        "high_s": [1.0, 1800.0, 1800.0, None],
        "n": [1, 12, 3, 2],
        "n_cut_off": [0, 0, 3, 2],
    }
)
BY_TYPE = pl.DataFrame(
    {"entity_type": ["session", "play"], "critical": [3, 0], "warning": [1, 0], "info": [0, 2]}
)
HOSTILE = '</script><script>window.PWNED=1</script><img src=x onerror="window.PWNED=1">'


def contrast(background: str, foreground: str) -> float:
    """The contrast ratio of two colours by WCAG 2.2, from 1 to 21."""
    lighter, darker = sorted((_luminance(background), _luminance(foreground)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def linear(colour: str) -> list[float]:
    """Red, green and blue of sRGB, as light."""
    channels = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels]


def _luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def drawn(chart) -> str:
    return to_svg(chart, name="x", label="in words")


def texts(svg: str) -> list[str]:
    return [part.text for part in ElementTree.fromstring(svg).iter("text") if part.text]


def test_durations_have_a_row_for_each_ending_and_say_which_are_lower_bounds():
    shown = texts(drawn(chart_durations(STEPS)))
    assert "completed: 13" in shown
    assert "timed out: 3 (lower bounds)" in shown
    assert "still running: 2 (lower bounds)" in shown
    assert {"1 s", "1 min", "1 h", "6 h"} <= set(shown)
    assert "12" in shown


def test_durations_have_a_row_for_each_value_of_another_column():
    """Of 16 runs of a kind, 3 are lower bounds; two others have no kind, and go on."""
    runs = STEPS.with_columns(kind=pl.Series(["agent", "agent", "agent", None]))
    chart = chart_durations(runs, by="kind")
    shown = texts(drawn(chart))
    assert {"agent: 16 (3 lower bounds)", "not recorded: 2 (lower bounds)"} <= set(shown)
    assert chart.description.startswith("18 durations by kind, ")
    with pytest.raises(MissingColumnsError, match="chart_durations needs columns"):
        chart_durations(STEPS, by="kind")


def test_severity_names_every_column_and_number():
    shown = texts(drawn(chart_severity(BY_TYPE)))
    assert {"critical", "warning", "info", "session", "play", "3", "1", "2", "0"} <= set(shown)


@pytest.mark.slow
@pytest.mark.parametrize(("draw", "frame"), [(chart_durations, STEPS), (chart_severity, BY_TYPE)])
def test_the_same_chart_gives_the_same_bytes_and_one_image(draw, frame):
    chart = draw(frame)
    svg = drawn(chart)
    assert svg == drawn(chart)
    root = ElementTree.fromstring(svg)
    assert (root.get("role"), root.get("aria-label")) == ("img", "in words")
    assert root.get("viewBox")
    assert root.get("width") is None


def test_a_drawing_leaves_the_garbage_of_others_alone():
    """QuickJS's own way to collect collects all of Python's, which a notebook may have much of."""
    chart, collected = chart_severity(BY_TYPE), []
    gc.callbacks.append(lambda _, info: collected.append(info["generation"]))
    gc.disable()
    try:
        drawn(chart)
    finally:
        gc.enable()
        gc.callbacks.pop()
    assert collected == []


def test_rows_may_come_in_any_order():
    assert texts(drawn(chart_durations(STEPS[::-1]))).count("completed: 13") == 1


def test_ids_begin_with_the_name_and_every_reference_is_to_one_of_them():
    svg = drawn(chart_durations(STEPS))
    assert all(name.startswith("x-") for name in re.findall(r'\bid="([^"]*)"', svg))
    assert set(re.findall(r"url\(#([^)]*)\)", svg)) <= set(re.findall(r'\bid="([^"]*)"', svg))


def test_what_is_not_known_falls_away_whoever_wrote_it():
    svg = inert(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:x="http://www.w3.org/1999/xlink"'
        ' viewBox="0 0 9 9" onload="p()"><style>*{}</style><script>p()</script>'
        '<a href="javascript:p()"><text>linked</text></a><image x:href="http://e.vil/i.png"/>'
        '<rect onclick="p()" style="x" fill="url(http://e.vil/#f)" clip-path="url(#old)"/>'
        '<clipPath id="old"><path d="M0,0"/></clipPath>'
        "<foreignObject><p>p</p></foreignObject></svg>",
        name="x",
        label='" onload="p()',
    )
    kept = '<rect fill="none" clip-path="url(#x-0)" />'
    assert svg.endswith(f'>{kept}<clipPath id="x-0"><path d="M0,0" /></clipPath></svg>')
    assert ElementTree.fromstring(svg).get("aria-label") == '" onload="p()'


def test_colours_are_left_to_the_page():
    svg = drawn(chart_durations(STEPS, palette=VARIABLES))
    assert "var(--chart-success)" in svg
    assert not re.search(r"#[0-9A-Fa-f]{6}", svg)


@pytest.mark.parametrize("width", a_few([120, 310, 2000]))
def test_any_width_is_drawn(width):
    assert drawn(chart_durations(STEPS, width=width))
    assert drawn(chart_severity(BY_TYPE, width=width))


@pytest.mark.parametrize("n", a_few([0, 1, 10_000_000]))
def test_one_bar_of_any_height_is_drawn(n):
    assert drawn(chart_durations(STEPS.head(1).with_columns(n=pl.lit(n))))
    assert drawn(chart_severity(BY_TYPE.head(1).with_columns(critical=pl.lit(n))))


def vega_bars(**data):
    axes = {"x": {"field": "a", "type": "nominal"}, "y": {"field": "b", "type": "quantitative"}}
    return {"data": data, "mark": "bar", "encoding": axes}


def test_any_thread_draws_the_same():
    spec = vega_bars(values=[{"a": "x", "b": 2}])
    with ThreadPoolExecutor(3) as threads:
        (_,) = set(threads.map(vega.drawn, [spec] * 3))


def test_what_vega_cannot_draw_is_an_error_and_no_address_is_fetched(tmp_path):
    with pytest.raises(ArgumentError, match="Vega cannot draw this chart: "):
        vega.drawn({**vega_bars(values=[]), "mark": "nonsense"})
    (tmp_path / "rows.json").write_text('[{"a": "secret", "b": 2}]')
    assert "secret" not in vega.drawn(vega_bars(url=(tmp_path / "rows.json").as_uri()))


@pytest.mark.parametrize("library", vega.VERSIONS)
def test_vega_is_of_the_version_that_is_told(library):
    text = (Path(vega.__file__).parent / f"{library}.min.js").read_text("utf-8")
    assert f'"{vega.VERSIONS[library]}"' in text


def test_a_column_of_words_is_no_count():
    with pytest.raises(ColumnTypeError, match=r"\['n'\]; found String"):
        chart_durations(STEPS.with_columns(pl.col("n").cast(pl.String)))
    with pytest.raises(ColumnTypeError, match=r"\['info'\]; found String"):
        chart_severity(BY_TYPE.with_columns(pl.col("info").cast(pl.String)))


# Machado et al. (2009), severity 1.0: how a colour looks with each kind of colour blindness.
SIGHTS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
               (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
               (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
               (0.004733, 0.691367, 0.303900)),
}  # fmt: skip


def dot(weights, values) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def lab(colour: str, sight: str) -> tuple[float, float, float]:
    seen = [min(1, max(0, dot(row, linear(colour)))) for row in SIGHTS[sight]]
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.95047, 1.0, 1.08883)
    x, y, z = (f(dot(row, seen) / w) for row, w in zip(to_xyz, white, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def f(t: float) -> float:
    return t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116


PALETTES = pytest.mark.parametrize("palette", [LIGHT, DARK])


@pytest.mark.parametrize("sight", SIGHTS)
@PALETTES
def test_fills_stay_apart_for_every_kind_of_sight(palette, sight):
    pairs = [pair for names in (ORDER, OF_GROUPS) for pair in itertools.combinations(names, 2)]
    for one, other in pairs:
        apart = math.dist(lab(palette[one], sight), lab(palette[other], sight))
        assert apart >= 20, (one, other, apart)


@PALETTES
def test_no_group_looks_like_an_outcome(palette):
    """A kind of work in the colour of failures would look like one that failed."""
    for group, outcome in itertools.product(OF_GROUPS, ("critical", "warning", "success")):
        apart = math.dist(lab(palette[group], "normal"), lab(palette[outcome], "normal"))
        assert apart >= 25, (group, outcome, apart)


@PALETTES
def test_type_on_charts_can_be_read_and_fills_can_be_seen(palette):
    for text in ("text", "muted"):
        assert contrast(palette["surface"], palette[text]) >= 4.5
    for fill in ("critical", "info", "neutral", "success", "second", "third"):
        assert contrast(palette["surface"], palette[fill]) >= 2.9


@pytest.mark.parametrize("token", sorted(COLOURS))
def test_contrasts_are_those_of_the_adrs_table(token):
    one = COLOURS[token]
    light = contrast(one.light_background, one.light_foreground)
    dark = contrast(one.dark_background, one.dark_foreground)
    assert light == pytest.approx(one.light_contrast, abs=0.1)
    assert dark == pytest.approx(one.dark_contrast, abs=0.1)
    assert min(light, dark) >= 4.5


def test_steps_of_time_stay_in_their_order_where_one_has_a_change():
    """Of two orders of one axis, Vega-Lite takes neither but that of the alphabet."""
    labels = ["Mon 18 May (part)", "Tue 19 May", "Fri 22 May"]
    counts = pl.DataFrame(
        {"label": labels, "ending": "completed", "n": [3, 2, 1], "changed": [None, "new", None]}
    )
    parts = ElementTree.fromstring(drawn(chart_over_time(counts))).iter()
    shown = [part.text for part in parts if part.tag in ("text", "tspan") and part.text]
    days = [text for text in shown if text[:3] in ("Mon", "Tue", "Fri")]
    assert days == ["Mon 18 May", "Tue 19 May", "Fri 22 May"]
    assert "(part)" in shown, "on a line of its own"
    assert [text for text in shown if text in ("3", "2", "1")] == ["3", "2", "1"]


def test_limits_of_durations_stand_by_their_lines_with_name_and_value():
    assert "slow: 1 h" in texts(drawn(chart_durations(STEPS)))
    limits = {"stale": 259_200.0, "slow": 3_600.0, "timeout.agent": 2_700.0, HOSTILE: 60.0}
    chart = chart_durations(STEPS, limits=limits)
    shown = texts(drawn(chart))
    assert {"timeout.agent: 45 min", "slow: 1 h", "stale: 3 d"} <= set(shown)
    assert shown.count("slow: 1 h") == 1, "once, though every row has the line"
    assert f"{HOSTILE}: 1 min" in shown
    # A limit beyond all durations is on the axis, and each bar in its own row only.
    assert "1 d" in shown
    assert [shown.count(n) for n in ("12", "3", "2")] == [1, 1, 1]
    assert "slow: 1 h" not in texts(drawn(chart_durations(STEPS, limits={})))
    assert chart_durations(STEPS.clear(), limits=limits).description.startswith("0 durations by")
    # Limits that are off, or that an axis of logarithms does not have.
    odd = texts(drawn(chart_durations(STEPS, limits={"off": None, "0": 0, "-": -1, "∞": math.inf})))
    assert not [text for text in odd if text.startswith(("off:", "0:", "-:", "∞:"))]
    assert "brief: under 1 s" in texts(drawn(chart_durations(STEPS, limits={"brief": 0.2})))


LEAVES = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(
    LEAVES, lambda part: st.lists(part) | st.dictionaries(st.text(), part), max_leaves=9
)


@given(VALUES)
def test_a_specification_has_no_characters_that_xml_forbids(value):
    written = json.dumps(tame(value), ensure_ascii=False)
    assert ElementTree.fromstring(f"<a>{escape(written)}</a>").text == written


def test_texts_of_a_specification_are_short_wherever_they_stand():
    hostile = "x\x00" * 5000
    ((name, (text,)),) = tame({hostile: [hostile]}).items()
    assert len(name) == len(text) == LONGEST_TEXT

"""How runs ended: after how long, on a logarithmic axis of time, and over steps of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.charts.living import Palette, Source, living
from stateanalytics.charts.pointing import click, faint, told
from stateanalytics.charts.style import LIGHT, TICKS, largest, tick_labels
from stateanalytics.charts.text_width import FONT_SIZE
from stateanalytics.errors import ColumnTypeError, check_columns

if TYPE_CHECKING:
    import altair as alt

ENDINGS = {
    "completed": ("completed", "success"),
    "failed": ("failed", "critical"),
    "timed_out": ("timed out", "warning"),
    "aborted": ("aborted", "neutral"),
    "cancelled": ("cancelled", "neutral"),
    "skipped": ("skipped", "neutral"),
    "running": ("still running", "info"),
}
SLOW_S = 3_600
ROW_HEIGHT = 46
NEEDED = ("ending", "low_s", "high_s", "n", "n_cut_off")
OPEN = "open"
_STEP_HEIGHT = 40
_OF_ENDING = Source("spells", (("ending", "ending = {}"),))
_OF_STEP = Source(
    "spells",
    (("ending", "ending = {}"), ("low_s", "duration_s >= {}"), ("high_s", "duration_s < {}")),
)


def chart_durations(
    steps: pl.DataFrame,
    *,
    slow_after_s: float = SLOW_S,
    palette: Palette = LIGHT,
    width: int = 620,
) -> alt.FacetChart:
    """One row of bars for each way to end; hollow bars lasted at least so long.

    Parameters
    ----------
    steps : polars.DataFrame
        What `count_spells` gave: ``ending``, ``low_s``, ``high_s``, ``n``, ``n_cut_off``.
    slow_after_s : float
        Where the dashed line stands.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.FacetChart
        Carries the frame that it draws. Rows share both axes, so heights compare.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ColumnTypeError
        If a count or an edge is no number.
    """
    import altair as alt

    drawn, tips = told(
        _drawable(steps, slow_after_s), ended="ending_name", runs="n", at_least="low_s",
        below="high_s", cut_off="n_cut_off",
    )  # fmt: skip
    chosen = click("chosen_durations", "ending", "low_s", "high_s")
    endings = [ending for ending in ENDINGS if ending in drawn["ending"].to_list()]
    names = [ENDINGS[ending][0] for ending in endings]
    colours = [palette[ENDINGS[ending][1]] for ending in endings]
    time = alt.X(
        "from_s:Q",
        title="duration",
        scale=alt.Scale(type="log", domain=_domain(drawn), nice=False),
        axis=alt.Axis(
            values=_ticks(drawn, sparse=width < 400),
            labelExpr=tick_labels(),
            grid=True,
            gridOpacity=0.6,
            labelFlush=True,
        ),
    )
    runs = alt.Y(
        "n:Q",
        title=None,
        scale=alt.Scale(domain=[0, max(largest(drawn, "n"), 1)], nice=False),
        axis=None,
    )
    base = alt.Chart(drawn)
    scale = alt.Scale(domain=names, range=colours)
    bars = base.mark_rect(strokeWidth=1).encode(
        x=time,
        x2="to_s:Q",
        y=runs,
        y2=alt.datum(0),
        tooltip=tips,
        opacity=faint(chosen),
        fill=alt.Fill("ending_name:N", scale=scale, legend=None),
        fillOpacity=alt.condition("datum.is_cut_off", alt.value(0.15), alt.value(1)),
        stroke=alt.Stroke("ending_name:N", scale=scale, legend=None),
    )
    counts = base.mark_text(baseline="bottom", dy=-2, fontSize=FONT_SIZE - 1).encode(
        x=alt.X("middle_s:Q", scale=alt.Scale(type="log")),
        y=runs,
        text="n:Q",
        color=alt.value(palette["muted"]),
    )
    slow = base.mark_rule(strokeDash=[4, 3], strokeWidth=1).encode(
        x="mean(slow_s):Q", color=alt.value(palette["muted"])
    )
    bars = bars.add_params(chosen)
    layers = [slow, bars] if width < 400 else [slow, bars, counts]
    rows = alt.layer(*layers, data=drawn).properties(width=width, height=ROW_HEIGHT)
    chart = rows.facet(
        row=alt.Row(
            "row_name:N",
            sort=_row_names(drawn, endings),
            header=alt.Header(labelOrient="top", labelAnchor="start", labelPadding=2),
        ),
        spacing=12,
    )
    return living(chart.properties(description=_description(drawn)), palette, _OF_STEP)


def _drawable(steps: pl.DataFrame, slow_after_s: float) -> pl.DataFrame:
    """The steps with what a log axis cannot know: where the open ends are drawn, and names."""
    check_columns(steps, NEEDED, "chart_durations")
    if wrong := [
        name
        for name in NEEDED[1:]
        if not (steps[name].dtype.is_numeric() or steps[name].is_empty())
    ]:
        raise ColumnTypeError(
            f"chart_durations needs numbers in {wrong}; found {steps[wrong[0]].dtype}.",
            "pass what count_spells returned",
        )
    counts = pl.col("n").sum().over("ending")
    is_cut_off = pl.col("n_cut_off") > 0
    name = pl.col("ending").replace_strict(
        {ending: words for ending, (words, _) in ENDINGS.items()}, default=pl.col("ending")
    )
    return (
        steps.filter(pl.col("ending").is_not_null())
        .with_columns(
            from_s=pl.max_horizontal(pl.col("low_s"), 0.5),
            # A hair narrower than the step, so that bars stand apart.
            to_s=pl.coalesce("high_s", pl.col("low_s") * 2) * 0.97,
            ending_name=name,
            is_cut_off=is_cut_off,
            row_name=pl.format(
                "{}: {}{}",
                name,
                counts,
                pl.when(is_cut_off.any().over("ending"))
                .then(pl.lit(" (lasted at least so long)"))
                .otherwise(pl.lit("")),
            ),
        )
        .with_columns(
            middle_s=(pl.col("from_s") * pl.col("to_s")).sqrt(), slow_s=pl.lit(slow_after_s)
        )
    )


def _row_names(drawn: pl.DataFrame, endings: list[str]) -> list[str]:
    by_ending = dict(drawn.select("ending", "row_name").unique(maintain_order=True).iter_rows())
    return [by_ending[ending] for ending in endings]


def _domain(drawn: pl.DataFrame) -> list[float]:
    """At least a second to two hours, so that two weeks can be laid side by side."""
    is_below_a_second = (drawn["from_s"] < 1).any()
    return [0.5 if is_below_a_second else 1.0, max(2.0 * SLOW_S, largest(drawn, "to_s"))]


def _ticks(drawn: pl.DataFrame, *, sparse: bool) -> list[int]:
    low, high = _domain(drawn)
    inside = [tick for tick in TICKS if low <= tick <= high]
    return [tick for tick in inside if tick not in (10, 600)] if sparse else inside


def _description(drawn: pl.DataFrame) -> str:
    return f"Durations of {drawn['n'].sum()} runs by how they ended, on a logarithmic axis of time."


def chart_over_time(
    counts: pl.DataFrame, *, palette: Palette = LIGHT, width: int = 620
) -> alt.FacetChart:
    """One row of bars for each way to end, over steps of time, with their numbers.

    Parameters
    ----------
    counts : polars.DataFrame
        ``label`` of the step, in order of time; ``ending`` (an outcome, or ``open`` for
        runs that were open at the end of the step); ``n``.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.FacetChart
        Outcomes share a scale, so heights compare; the row of open runs has its own.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    """
    import altair as alt

    check_columns(counts, ("label", "ending", "n"), "chart_over_time")
    drawn, tips = told(_heights(counts), step="label", ended="row_name", runs="n")
    chosen = click("chosen_steps", "label", "ending")
    steps = counts["label"].unique(maintain_order=True).to_list()
    rows = drawn["row_name"].unique(maintain_order=True).to_list()
    fills = [palette[colour] for colour in drawn.unique("row_name", maintain_order=True)["colour"]]
    room = width / max(len(steps), 1)
    base = alt.Chart(drawn).encode(
        x=alt.X(
            "label:N",
            sort=steps,
            title=None,
            axis=alt.Axis(
                labelAngle=0,
                ticks=False,
                values=steps[:: max(1, -(-len(steps) * 70 // width))],
                labelLimit=90,
            ),
            scale=alt.Scale(paddingInner=0.25, paddingOuter=0.1),
        ),
        y=alt.Y("height:Q", title=None, axis=None, scale=alt.Scale(domain=[0, 1.35], nice=False)),
    )
    bars = base.mark_bar().encode(
        tooltip=tips,
        opacity=faint(chosen),
        color=alt.Color("row_name:N", scale=alt.Scale(domain=rows, range=fills), legend=None),
    )
    numbers = base.mark_text(baseline="bottom", dy=-2, fontSize=FONT_SIZE - 1).encode(
        text="n:Q",
        color=alt.condition("datum.n > 0", alt.value(palette["text"]), alt.value(palette["muted"])),
    )
    bars = bars.add_params(chosen)
    layers = [bars, numbers] if room >= 24 else [bars]
    chart = (
        alt.layer(*layers, data=drawn)
        .properties(width=width, height=_STEP_HEIGHT)
        .facet(
            row=alt.Row(
                "row_name:N",
                sort=rows,
                header=alt.Header(labelOrient="top", labelAnchor="start", labelPadding=2),
            ),
            spacing=10,
        )
    )
    n = int(counts.filter(pl.col("ending") != OPEN)["n"].sum())
    described = chart.properties(description=f"{n} runs by when and how they ended.")
    return living(described, palette, _OF_ENDING)


def _heights(counts: pl.DataFrame) -> pl.DataFrame:
    """The counts as heights between 0 and 1, with the name and colour of each row."""
    is_open = pl.col("ending") == OPEN
    most = {
        True: largest(counts.filter(is_open), "n") or 1.0,
        False: largest(counts.filter(~is_open), "n") or 1.0,
    }
    known = [name for name in ENDINGS if name != "running"]
    names = {name: ENDINGS[name][0] for name in known} | {OPEN: "open at the end of the step"}
    colours = {name: ENDINGS[name][1] for name in known} | {OPEN: "info"}
    return counts.with_columns(
        height=pl.col("n") / pl.when(is_open).then(most[True]).otherwise(most[False]),
        row_name=pl.col("ending").replace(names),
        colour=pl.col("ending").replace_strict(colours, default="neutral"),
    )

"""What becomes of a run by each duration: every way to end, stacked, and what still runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.charts.durations import ENDINGS
from stateanalytics.charts.living import Palette, Source
from stateanalytics.charts.pointing import click, faint, told
from stateanalytics.charts.sentences import say_cumulative_incidence
from stateanalytics.charts.style import LIGHT, SHORTEST_S, axis_title, finished, largest, log_time
from stateanalytics.charts.text_width import FONT_SIZE, fitted, width_of
from stateanalytics.core.text import shortened, visible
from stateanalytics.errors import ArgumentError, check_columns

if TYPE_CHECKING:
    import altair as alt

NEEDED = ("cause", "duration_s", "incidence")
RUNNING = "running"
_OWN = (*NEEDED, "incidence_se", "incidence_low", "incidence_high", "from_s", "n_units")
_OF_STATES = (
    "n_in_state",
    "share_se",
    "share_low",
    "share_high",
    "recover",
    "recover_low",
    "recover_high",
)
_STEPS = 200
_LEAST_HEIGHT = 0.035
_LABELS = 150
_OF_FATE = Source("spells", (("ending", "ending = {}"),))


def chart_cumulative_incidence(
    incidence: pl.DataFrame,
    *,
    what: str = "runs",
    at_s: float = 3600.0,
    sentence: str | None = None,
    palette: Palette = LIGHT,
    width: int = 620,
    height: int = 260,
) -> alt.LayerChart:
    """Shares of runs by how they have ended, or by state, stacked over time; the rest still runs.

    Parameters
    ----------
    incidence : polars.DataFrame
        What `cumulative_incidence` or `state_occupancy` gave, of one stratum.
    what : str
        What the runs are called.
    at_s : float
        The moment that the sentence speaks of.
    sentence : str, optional
        Heading; by default what the chart proves (`say_cumulative_incidence`), "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width, height : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.LayerChart
        Good ends lie at the bottom, what still runs on top; each area is named at its
        right end, and white lines part them. Shares add up to 1 at every duration.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ArgumentError
        If there are several strata: they cannot be stacked.
    """
    import altair as alt

    if "state" in getattr(incidence, "columns", ()):
        shares = incidence.filter(pl.col("state") != RUNNING).drop(_OF_STATES, strict=False)
        incidence = shares.rename({"state": "cause", "share": "incidence"})
    check_columns(incidence, NEEDED, "chart_cumulative_incidence")
    if strata := [name for name in incidence.columns if name not in _OWN]:
        raise ArgumentError(
            f"chart_cumulative_incidence draws one stratum; found the strata {strata}.",
            "filter one: incidence.filter(kind='flow').drop('kind')",
        )
    drawn, order = _stacked(incidence)
    drawn, tips = told(
        drawn.with_columns(share=pl.col("high") - pl.col("low")), what="fate", share="share",
        after="duration_s",
    )  # fmt: skip
    chosen = click("chosen_fate", "ending")
    high = max(largest(drawn, "duration_s"), 60.0)
    shortest = incidence.filter(pl.col("incidence") > 0)["duration_s"].min()
    low = max(SHORTEST_S, float(shortest or 1.0) / 2)  # type: ignore[arg-type]
    fills = {word: palette[colour] for word, colour in ENDINGS.values()}
    # Running is no fate: it is what is left.
    fills[ENDINGS[RUNNING][0]] = palette["line"]
    fill = alt.Scale(domain=order, range=[fills.get(name, palette["neutral"]) for name in order])
    room = width - _LABELS
    time = log_time(
        "duration_s",
        low_s=low,
        high_s=high,
        title=axis_title(f"time since start of {what}"),
        width=room,
    )
    share = alt.Y(
        "low:Q",
        title=axis_title(f"of all {what}", height),
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
    )
    areas = (
        alt.Chart(drawn)
        .mark_area(interpolate="step-after", stroke=palette["surface"], strokeWidth=0.6)
        .encode(
            x=time,
            y=share,
            y2="high:Q",
            fill=alt.Fill("fate:N", scale=fill, legend=None),
            opacity=faint(chosen),
            detail="ending:N",
        )
        .add_params(chosen)
    )
    # Not seen: an area tells of one row only.
    until = pl.col("duration_s").shift(-1).over("fate", order_by="duration_s").fill_null(high)
    edges = (
        alt.Chart(drawn.with_columns(until_s=until).filter(pl.col("share") > 0))
        .mark_rect(opacity=0, clip=True)
        .encode(x=time, x2="until_s:Q", y=share, y2="high:Q", tooltip=tips)
    )
    names = (
        alt.Chart(_labels(drawn, order))
        .mark_text(align="left", dx=6, baseline="middle", fontSize=FONT_SIZE)
        .encode(
            x=alt.value(room),
            y=alt.Y("label_at:Q", scale=alt.Scale(domain=[0, 1])),
            text="label:N",
            color=alt.value(palette["text"]),
        )
    )
    chart = alt.layer(areas, edges, names).properties(width=room, height=height)
    words = (
        say_cumulative_incidence(incidence, at_s=at_s, what=what) if sentence is None else sentence
    )
    return finished(alt.LayerChart, chart, words, palette=palette, width=width, source=_OF_FATE)


def _stacked(incidence: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Lower and upper edge of each way to end at each duration, and the ways from the bottom."""
    known = [name for name in ENDINGS if name != RUNNING]
    causes = incidence["cause"].cast(pl.String).unique().sort().drop_nulls().to_list()
    order = [name for name in known if name in causes]
    order += [name for name in causes if name not in known]
    words = {
        name: ENDINGS[name][0] if name in ENDINGS else shortened(visible(name), 24)
        for name in order
    }
    step = (pl.max_horizontal("duration_s", SHORTEST_S).log10() * _STEPS / 6).floor()
    last = (
        incidence.with_columns(pl.col("cause").cast(pl.String), step=step)
        .group_by("cause", "step")
        .agg(pl.col("duration_s").last(), pl.col("incidence").last())
        .with_columns(pl.max_horizontal("duration_s", SHORTEST_S))
    )
    begin = last.group_by("cause").agg(
        pl.col("duration_s").min().clip(upper_bound=SHORTEST_S), incidence=pl.lit(0.0)
    )
    rank = {name: place for place, name in enumerate(order)}
    stacked = (
        pl.concat([begin, last.drop("step")], how="diagonal")
        .with_columns(rank=pl.col("cause").replace_strict(rank, return_dtype=pl.Int64))
        .sort("duration_s", "rank")
        .with_columns(
            high=pl.col("incidence").cum_sum().over("duration_s"),
            fate=pl.col("cause").replace_strict(words, return_dtype=pl.String),
        )
        .with_columns(low=pl.col("high") - pl.col("incidence"))
    )
    still = ENDINGS[RUNNING][0]
    running = stacked.group_by("duration_s", maintain_order=True).agg(
        low=pl.col("high").max(), high=pl.lit(1.0), fate=pl.lit(still), cause=pl.lit(RUNNING)
    )
    columns = ("duration_s", "fate", "low", "high", pl.col("cause").alias("ending"))
    return (
        pl.concat([stacked.select(columns), running.select(columns)]),
        [*words.values(), still],
    )


def _labels(drawn: pl.DataFrame, order: list[str]) -> pl.DataFrame:
    """A name and a share at the right end of every area that is there, apart from each other."""
    ends = drawn.group_by("fate", maintain_order=True).last().to_dicts()
    rows, at = [], -1.0
    for row in sorted(ends, key=lambda row: order.index(row["fate"])):
        height = row["high"] - row["low"]
        if height < 0.0005:
            continue
        at = max(at + 2 * _LEAST_HEIGHT, row["low"] + height / 2)
        share = f" {100 * height:.0f} %"
        name = fitted(row["fate"], _LABELS - 10 - width_of(share))
        rows.append({"label": name + share, "label_at": at})
    over = max((row["label_at"] for row in rows), default=0.0) - 1
    for row in rows:
        row["label_at"] -= max(over, 0.0)
    return pl.DataFrame(rows, schema={"label": pl.String, "label_at": pl.Float64})

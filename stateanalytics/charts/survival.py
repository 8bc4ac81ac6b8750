"""How long runs go on: survival curves, and the share of each ending by duration.

Lines can be distinguished without colour: each stratum has a dash pattern and a direct label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.charts import interactive
from stateanalytics.charts.durations import ENDINGS
from stateanalytics.charts.style import (
    FONT_SIZE,
    LIGHT,
    OF_GROUPS,
    SHORTEST_S,
    Palette,
    Source,
    axis_title,
    field,
    fitted,
    label_axis,
    largest,
    log_time,
    mark,
    share_axis,
    ticks_between,
    widest,
    width_of,
)
from stateanalytics.core.text import shortened, visible
from stateanalytics.core.words import say
from stateanalytics.errors import ArgumentError, check_columns
from stateanalytics.survival.curves import quantiles

if TYPE_CHECKING:
    import altair as alt


NEEDED = ("duration_s", "n_at_risk", "n_events", "survival", "survival_low", "survival_high")
_CURVE_COLUMNS = (*NEEDED, "survival_se", "from_s", "n_units")
_STEPS = 300
_MOST_LABELS = 150
MOST = 5
"""More lines cannot be distinguished; the largest strata are drawn."""
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4])
ALL = "all"
# A single stratum needs no name.
_ROW_LABEL = f"datum.label === '{ALL}' ? 'at risk' : datum.label"
_OF_DURATION = Source("spells", ranges=("duration_s",))


def chart_survival(
    curve: pl.DataFrame,
    *,
    what: str = "runs",
    sentence: str | None = None,
    palette: Palette = LIGHT,
    width: int = 620,
    height: int = 240,
) -> alt.VConcatChart:
    """Share of runs still going by each duration, with its band, cut-offs and counts.

    Parameters
    ----------
    curve : polars.DataFrame
        From `kaplan_meier`; any further columns are strata, of which the largest are drawn.
    what : str
        What the runs are called.
    sentence : str, optional
        Heading; by default what the curve shows (`say_survival`), "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width, height : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.VConcatChart
        The curve with its pointwise band, a tick where runs were cut off, and below it how
        many runs were still at risk. What is added with ``+`` is drawn over the curve.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> curve = sa.survival.kaplan_meier(sa.survival.spells(sa.demo()), by="kind")
    >>> chart = sa.charts.chart_survival(curve)
    >>> print(chart.description.split(";")[0])
    Half of the runs end: agent within 10 min 10 s (9 min 39 s to 10 min 48 s)
    """
    import altair as alt

    check_columns(curve, NEEDED, "chart_survival")
    strata = [name for name in curve.columns if name not in _CURVE_COLUMNS]
    drawn = _drawable(with_strata(curve, strata, size="n_at_risk"))
    names, high = strata_of(drawn), max(largest(drawn, "duration_s"), 60.0)
    low = _beginning(drawn.filter(pl.col("n_events") + pl.col("n_cut_off") > 0))
    left = round(widest([*names, "at risk"])) + 20
    room = width - (0 if names == [ALL] else round(widest(names)) + 40)
    title = axis_title(f"time since start of {what}")
    durations = log_time("duration_s", low_s=low, high_s=high, title=title, width=room)
    key = None if names == [ALL] else _key(palette)
    fill = {"domain": names, "range": [palette[name] for name in OF_GROUPS[: len(names)]]}
    dashes = {"domain": names, "range": list(DASHES[: len(names)])}
    place = {
        "x": durations,
        "y": share_axis("survival", "still going"),
        "color": field("stratum:N", scale=fill, legend=key, title=None),
    }
    ends = {"y": field("survival_low:Q"), "y2": {"field": "survival_high"}}
    dashed = {**place, "strokeDash": field("stratum:N", scale=dashes, legend=key, title=None)}
    step: dict[str, Any] = {"interpolate": "step-after", "clip": True}
    band = mark("area", {**place, **ends}, opacity=0.15, **step)
    cut = mark("tick", place, orient="vertical", size=9, thickness=1.5, clip=True)
    # Invisible and last, so that the pointer meets it: a line has the tooltip of one row only.
    points = mark("point", place, size=120, opacity=0, filled=True, clip=True)
    top = {
        "data": drawn,
        "tooltips": {
            "of": "stratum", "after": "duration_s", "still_going": "survival",
            "at_least": "survival_low", "at_most": "survival_high", "at_risk": "n_at_risk",
            "ended": "n_events", "cut_off": "n_cut_off",
        },
        "layer": [
            {
                **band,
                "drags": ("chosen_durations", "x"),
                "moves": ("survival_axis", "x"),
                "has_tips": False,
            },
            mark("line", dashed, strokeWidth=2, **step),
            {**cut, "data": drawn.filter(pl.col("n_cut_off") > 0)},
            {**points, "has_tips": True},
        ],
        "width": room,
        "height": height,
    }  # fmt: skip
    rows = label_axis(left, labelExpr=_ROW_LABEL)
    at_risk = {
        "x": {**durations, "title": None, "axis": None},
        "y": field("stratum:N", sort=names, title=None, axis=rows),
        "text": field("n_at_risk:Q"),
        "color": {"value": palette["muted"]},
    }
    table = {
        **mark("text", at_risk, fontSize=FONT_SIZE - 1),
        "data": _counts(drawn, names, ticks_between(low, high, room)),
        "width": room,
        "height": 16 * len(names),
    }
    words = say_survival(curve, what=what) if sentence is None else sentence
    chart = alt.vconcat(*map(interactive.as_chart, (top, table)), spacing=4)
    return interactive.finished(
        alt.VConcatChart, chart, words, palette=palette, width=width, source=_OF_DURATION
    )


def _key(palette: Palette) -> interactive.Spec:
    """Names of lines next to the plot: at their ends, a line would cross a name."""
    return {
        "orient": "right",
        "symbolType": "stroke",
        "symbolSize": 400,
        "symbolStrokeWidth": 2,
        "labelColor": palette["text"],
        "labelFontSize": FONT_SIZE,
        "labelLimit": _MOST_LABELS,
        "symbolOpacity": 1,
    }


def _drawable(curve: pl.DataFrame) -> pl.DataFrame:
    """The curve from its start, with censored runs, thinned to the resolution of a drawing."""
    following = pl.col("n_at_risk").shift(-1, fill_value=0).over("stratum")
    counted = curve.with_columns(
        n_cut_off=(pl.col("n_at_risk") - pl.col("n_events") - following).clip(lower_bound=0),
        duration_s=pl.max_horizontal("duration_s", SHORTEST_S),
    )
    step = (pl.col("duration_s").log10() * _STEPS / 6).floor()
    kept = counted.group_by("stratum", step.alias("step"), maintain_order=True).agg(
        pl.col("duration_s", "survival", "survival_low", "survival_high").last(),
        pl.col("n_at_risk").first(),
        pl.col("n_events", "n_cut_off").sum(),
    )
    begin = (
        kept.group_by("stratum", maintain_order=True)
        .first()
        .with_columns(
            duration_s=pl.min_horizontal("duration_s", pl.lit(SHORTEST_S)),
            survival=1.0,
            survival_low=1.0,
            survival_high=1.0,
            n_events=pl.lit(0, dtype=kept.schema["n_events"]),
            n_cut_off=pl.lit(0, dtype=kept.schema["n_cut_off"]),
        )
    )
    order = {name: place for place, name in enumerate(strata_of(kept))}
    return (
        pl.concat([begin, kept])
        .sort(
            pl.col("stratum").replace_strict(order, default=None), "duration_s", maintain_order=True
        )
        .drop("step")
    )


def _counts(drawn: pl.DataFrame, names: list[str], ticks: list[int]) -> pl.DataFrame:
    """How many were at risk just before each tick, one row per stratum and tick."""
    asked = pl.DataFrame({"stratum": names}, schema={"stratum": pl.String}).join(
        pl.DataFrame({"duration_s": [float(tick) for tick in ticks]}), how="cross"
    )
    return (
        asked.sort("duration_s")
        .join_asof(
            drawn.select("stratum", "duration_s", "n_at_risk").sort("duration_s"),
            on="duration_s",
            by="stratum",
            strategy="forward",
            check_sortedness=False,
        )
        .with_columns(pl.col("n_at_risk").fill_null(0))
    )


def _beginning(ended: pl.DataFrame) -> float:
    """Half of the shortest duration, so that the curve visibly begins at 1, and shares at 0."""
    shortest: Any = ended["duration_s"].min()
    return max(SHORTEST_S, float(shortest or 1.0) / 2)


def with_strata(frame: pl.DataFrame, strata: Sequence[str], *, size: str) -> pl.DataFrame:
    """Add ``stratum``: the values of the strata as one text, the largest strata first.

    Parameters
    ----------
    frame : polars.DataFrame
        Anything with the columns of ``strata``.
    strata : sequence of str
        Columns that define the lines; none for a single line.
    size : str
        Column whose largest value ranks the strata.

    Returns
    -------
    polars.DataFrame
        Rows of at most `MOST` strata, by size, then in their order.
    """
    if not strata:
        return frame.with_columns(stratum=pl.lit(ALL))
    parts = [pl.col(name).cast(pl.String).fill_null("unknown") for name in strata]
    text = pl.concat_str(parts, separator=", ")
    largest = pl.col(size).max().over("stratum")
    labelled = frame.with_columns(stratum=text)
    readable = {
        name: fitted(visible(name), 140, is_bold=True) for name in labelled["stratum"].unique()
    }
    return (
        labelled.with_columns(_size=largest)
        .sort("_size", "stratum", descending=[True, False], maintain_order=True)
        .with_columns(_rank=pl.col("stratum").rle_id())
        .filter(pl.col("_rank") < MOST)
        .with_columns(pl.col("stratum").replace_strict(readable, return_dtype=pl.String))
        .drop("_size", "_rank")
    )


def strata_of(frame: pl.DataFrame) -> list[str]:
    """The strata of a frame, in order."""
    return frame["stratum"].unique(maintain_order=True).to_list()


NEEDED_INCIDENCE = ("cause", "duration_s", "incidence")
RUNNING = "running"
_INCIDENCE_COLUMNS = (
    *NEEDED_INCIDENCE,
    *("incidence_se", "incidence_low", "incidence_high", "from_s", "n_units"),
)
_OF_STATES = tuple(
    "n_in_state share_se share_low share_high recover recover_low recover_high".split()
)
_AREA_STEPS = 200
_LEAST_HEIGHT = 0.035
_AREA_LABELS = 150
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
        From `cumulative_incidence` or `state_occupancy`, for one stratum.
    what : str
        What the runs are called.
    at_s : float
        The duration in the sentence.
    sentence : str, optional
        Heading; by default what the chart shows (`say_cumulative_incidence`), "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width, height : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.LayerChart
        Good ends lie at the bottom, what still runs on top; each area is named at its
        right end, separated by white lines. Shares add up to 1 at every duration.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ArgumentError
        If there are several strata: they cannot be stacked.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> spells = sa.survival.spells(sa.demo()).filter(kind="flow")
    >>> incidence = sa.survival.cumulative_incidence(spells)
    >>> chart = sa.charts.chart_cumulative_incidence(incidence, what="flow runs")
    >>> print(chart.description)
    By 1 h, of 100 flow runs: 58 completed, 21 failed, 2 aborted, 1 cancelled, 18 still running.
    """
    import altair as alt

    if "state" in getattr(incidence, "columns", ()):
        shares = incidence.filter(pl.col("state") != RUNNING).drop(_OF_STATES, strict=False)
        incidence = shares.rename({"state": "cause", "share": "incidence"})
    check_columns(incidence, NEEDED_INCIDENCE, "chart_cumulative_incidence")
    if strata := [name for name in incidence.columns if name not in _INCIDENCE_COLUMNS]:
        raise ArgumentError(
            f"chart_cumulative_incidence draws one stratum; found the strata {strata}.",
            "filter one: incidence.filter(kind='flow').drop('kind')",
        )
    drawn, order = _stacked(incidence)
    drawn = drawn.with_columns(share=pl.col("high") - pl.col("low"))
    high = max(largest(drawn, "duration_s"), 60.0)
    low = _beginning(incidence.filter(pl.col("incidence") > 0))
    fills = {ending.words: palette[ending.colour] for ending in ENDINGS.values()}
    # Running is no ending: it is the remainder.
    fills[ENDINGS[RUNNING].words] = palette["line"]
    fill = {"domain": order, "range": [fills.get(name, palette["neutral"]) for name in order]}
    room = width - _AREA_LABELS
    title = axis_title(f"time since start of {what}")
    place = {
        "x": log_time("duration_s", low_s=low, high_s=high, title=title, width=room),
        "y": share_axis("low", axis_title(f"of all {what}", height)),
        "y2": {"field": "high"},
    }
    filled = {
        **place,
        "fill": field("fate:N", scale=fill, legend=None),
        "detail": field("ending:N"),
    }
    edge = {"stroke": palette["surface"], "strokeWidth": 0.6}
    tips = {"what": "fate", "share": "share", "after": "duration_s"}
    areas = {
        **mark("area", filled, interpolate="step-after", **edge),
        "data": drawn,
        "tooltips": tips,
        "clicks": ("chosen_fate", "ending"),
        "has_tips": False,
    }
    # Invisible, for the pointer: an area has the tooltip of one row only.
    until = pl.col("duration_s").shift(-1).over("fate", order_by="duration_s").fill_null(high)
    edges = {
        **mark("rect", {**place, "x2": {"field": "until_s"}}, opacity=0, clip=True),
        "data": drawn.with_columns(until_s=until).filter(pl.col("share") > 0),
        "tooltips": tips,
        "has_tips": True,
    }
    labels = {
        "x": {"value": room},
        "y": field("label_at:Q", scale={"domain": [0, 1]}),
        "text": field("label:N"),
        "color": {"value": palette["text"]},
    }
    names = mark("text", labels, align="left", dx=6, baseline="middle", fontSize=FONT_SIZE)
    layers = [areas, edges, {**names, "data": _area_labels(drawn, order)}]
    spec = {"layer": layers, "width": room, "height": height}
    words = (
        say_cumulative_incidence(incidence, at_s=at_s, what=what) if sentence is None else sentence
    )
    return interactive.finished(
        alt.LayerChart, spec, words, palette=palette, width=width, source=_OF_FATE
    )


def _stacked(incidence: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Lower and upper edge of each way to end at each duration, and the ways from the bottom."""
    known = [name for name in ENDINGS if name != RUNNING]
    causes = incidence["cause"].cast(pl.String).unique().sort().drop_nulls().to_list()
    order = [name for name in known if name in causes]
    order += [name for name in causes if name not in known]
    words = {
        name: ENDINGS[name].words if name in ENDINGS else shortened(visible(name), 24)
        for name in order
    }
    step = (pl.max_horizontal("duration_s", SHORTEST_S).log10() * _AREA_STEPS / 6).floor()
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
    still = ENDINGS[RUNNING].words
    running = stacked.group_by("duration_s", maintain_order=True).agg(
        low=pl.col("high").max(), high=pl.lit(1.0), fate=pl.lit(still), cause=pl.lit(RUNNING)
    )
    columns = ("duration_s", "fate", "low", "high", pl.col("cause").alias("ending"))
    return (pl.concat([stacked.select(columns), running.select(columns)]), [*words.values(), still])


def _area_labels(drawn: pl.DataFrame, order: list[str]) -> pl.DataFrame:
    """A name and a share at the right end of every area, without overlap."""
    ends = drawn.group_by("fate", maintain_order=True).last().to_dicts()
    rows, at = [], -1.0
    for row in sorted(ends, key=lambda row: order.index(row["fate"])):
        height = row["high"] - row["low"]
        if height < 0.0005:
            continue
        at = max(at + 2 * _LEAST_HEIGHT, row["low"] + height / 2)
        share = f" {100 * height:.0f} %"
        name = fitted(row["fate"], _AREA_LABELS - 10 - width_of(share))
        rows.append({"label": name + share, "label_at": at})
    over = max((row["label_at"] for row in rows), default=0.0) - 1
    for row in rows:
        row["label_at"] -= max(over, 0.0)
    return pl.DataFrame(rows, schema={"label": pl.String, "label_at": pl.Float64})


_MOST_STRATA = 3


def say_survival(curve: pl.DataFrame, *, what: str = "runs") -> str:
    """The median with its interval, and a late quantile, in a sentence.

    Examples
    --------
    >>> from stateanalytics.survival.curves import kaplan_meier
    >>> runs = pl.DataFrame({"duration_s": [60.0, 120.0, 180.0], "ended": [True, True, False]})
    >>> say_survival(kaplan_meier(runs), what="flow runs")
    'Half of the flow runs end within 2 min (1 min to not identified); p95 is not identified.'
    """
    if curve.is_empty():
        return say("chart.no_runs", what=what)
    at_probs = quantiles(curve, [0.5, 0.95])
    strata = at_probs.columns[: at_probs.columns.index("prob")]
    if not strata:
        median, late = at_probs.iter_rows(named=True)
        name = "chart.median" if late["duration_s"] is None else "chart.median_and_late"
        given = {"median": _within(median), "late": "p95", "seconds": late["duration_s"]}
        return say(name, what=what, **given)
    largest = curve.group_by(strata).agg(n=pl.col("n_at_risk").max())
    medians = (
        at_probs.filter(pl.col("prob") == 0.5)
        .join(largest, on=strata, how="left", nulls_equal=True)
        .sort("n", *strata, descending=[True, *[False] * len(strata)])
    )
    parts = [
        f"{_name([row[column] for column in strata])} {_within(row)}"
        for row in medians.head(_MOST_STRATA).iter_rows(named=True)
    ]
    return say("chart.medians", what=what, medians="; ".join(parts))


def say_cumulative_incidence(
    incidence: pl.DataFrame, *, at_s: float = 3600.0, what: str = "runs"
) -> str:
    """The shares of endings by a given duration, in a sentence.

    Examples
    --------
    >>> from stateanalytics.survival.incidence import cumulative_incidence
    >>> runs = pl.DataFrame({"duration_s": [60.0, 90.0, 99.0], "cause": ["done", None, "done"]})
    >>> say_cumulative_incidence(cumulative_incidence(runs), at_s=90.0)
    'By 1 min 30 s, of 100 runs: 33 done, 67 still running.'
    """
    by_cause = (
        incidence.filter(pl.col("duration_s") <= at_s)
        .sort("duration_s")
        .group_by("cause")
        .agg(pl.col("incidence").last())
        .sort("incidence", "cause", descending=[True, False])
    )
    left = 1 - float(by_cause["incidence"].sum())
    rows = [(_word(cause), share) for cause, share in by_cause.iter_rows() if share >= 0.005]
    if not rows:
        return say("chart.none_ended", at=at_s, what=what)
    ends = ", ".join(f"{100 * share:.0f} {word}" for word, share in rows)
    return say("chart.endings", at=at_s, what=what, endings=ends, running=f"{100 * left:.0f}")


def _within(row: dict[str, object]) -> str:
    if row["duration_s"] is None:
        return say("chart.no_median")
    median, low, high = (row[f"duration{end}_s"] for end in ("", "_low", "_high"))
    name = "chart.within_alone" if low is None else "chart.within"
    return say(name, median=median, low=low, high=high)


def _name(values: Sequence[object]) -> str:
    words = ("unknown" if value is None else str(value) for value in values)
    return shortened(visible(", ".join(words)), 24)


def _word(cause: object) -> str:
    return shortened(visible(str(cause).replace("_", " ")), 24)

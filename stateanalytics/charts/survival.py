"""How many runs are still going by each duration: survival curves with what stands behind.

Lines stay apart without colour: a dash and a direct label for each stratum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.charts.living import Palette, Source
from stateanalytics.charts.pointing import drag, moving, told
from stateanalytics.charts.sentences import say_survival
from stateanalytics.charts.style import (
    LIGHT,
    SHORTEST_S,
    axis_title,
    finished,
    label_axis,
    largest,
    log_time,
    ticks_between,
)
from stateanalytics.charts.text_width import FONT_SIZE, fitted, widest
from stateanalytics.core.text import visible
from stateanalytics.errors import check_columns

if TYPE_CHECKING:
    import altair as alt

NEEDED = (
    "duration_s",
    "n_at_risk",
    "n_events",
    "survival",
    "survival_low",
    "survival_high",
)
_OWN = (*NEEDED, "survival_se", "from_s", "n_units")
_STEPS = 300
_MOST_LABELS = 190
_LINE = 0.065
MOST = 5
"""More lines than this cannot be told apart; the largest strata are drawn."""
COLOURS = ("info", "critical", "success", "warning", "neutral")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4])
ALL = "all"
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
        What `kaplan_meier` gave; columns that are not its own tell lines apart, and the
        largest few are drawn.
    what : str
        What the runs are called.
    sentence : str, optional
        Heading; by default what the curve proves (`say_survival`), "" for none.
    palette : mapping of str to str, optional
        Colours by name.
    width, height : int
        Of the plotting area, in pixels.

    Returns
    -------
    altair.VConcatChart
        The curve with its pointwise band, a tick where runs were cut off, and below it how
        many runs were still at risk. Carries the rows that it draws.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    """
    import altair as alt

    check_columns(curve, NEEDED, "chart_survival")
    strata = [name for name in curve.columns if name not in _OWN]
    drawn = _drawable(named(curve, strata, size="n_at_risk"))
    drawn, tips = told(
        drawn, of="stratum", after="duration_s", still_going="survival", at_least="survival_low",
        at_most="survival_high", at_risk="n_at_risk", ended="n_events", cut_off="n_cut_off",
    )  # fmt: skip
    names, high = apart(drawn), max(largest(drawn, "duration_s"), 60.0)
    low = _beginning(drawn)
    labels = round(min(widest(names, is_bold=True) + 10, _MOST_LABELS))
    room = width if names == [ALL] else width - labels
    time = log_time(
        "duration_s",
        low_s=low,
        high_s=high,
        title=axis_title(f"time since start of {what}"),
        width=width,
    )
    share = alt.Y(
        "survival:Q",
        title="still going",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
    )
    fill = alt.Scale(domain=names, range=[palette[name] for name in COLOURS[: len(names)]])
    colour = alt.Color("stratum:N", scale=fill, legend=None)
    dash = alt.StrokeDash(
        "stratum:N", scale=alt.Scale(domain=names, range=list(DASHES[: len(names)])), legend=None
    )
    base = alt.Chart(drawn)
    band = base.mark_area(interpolate="step-after", opacity=0.15, clip=True).encode(
        x=time, y="survival_low:Q", y2="survival_high:Q", color=colour
    )
    line = base.mark_line(interpolate="step-after", strokeWidth=2, clip=True).encode(
        x=time, y=share, color=colour, strokeDash=dash
    )
    cut = (
        alt.Chart(drawn.filter(pl.col("n_cut_off") > 0))
        .mark_tick(orient="vertical", size=9, thickness=1.5, clip=True)
        .encode(x=time, y=share, color=colour)
    )
    layers = [band.add_params(drag("chosen_durations"), moving("survival_axis")), line, cut]
    if names != [ALL]:
        label = alt.Chart(_labels(drawn, apart_by=math.log10(high / low) * labels / room))
        layers.append(
            label.mark_text(
                align="left", dx=5, fontSize=FONT_SIZE, fontWeight="bold", clip=False
            ).encode(x=time, y="label_at:Q", text="stratum:N", color=colour)
        )
    # Not seen, and last, so that a pointer meets it: a line tells of one row only.
    layers.append(
        base.mark_point(size=120, opacity=0, filled=True, clip=True).encode(
            x=time, y=share, color=colour, tooltip=tips
        )
    )
    counts = _counts(drawn, names, ticks_between(low, high, room))
    table = (
        alt.Chart(counts)
        .mark_text(fontSize=FONT_SIZE - 1)
        .encode(
            x=log_time("duration_s", low_s=low, high_s=high, title=None, width=room).axis(None),
            y=alt.Y(
                "stratum:N",
                sort=names,
                title=None,
                axis=label_axis(labels + 20, labelExpr=_row_label()),
            ),
            text="n_at_risk:Q",
            color=alt.value(palette["muted"]),
        )
        .properties(width=room, height=16 * len(names))
    )
    top = alt.layer(*layers).properties(width=room, height=height)
    words = say_survival(curve, what=what) if sentence is None else sentence
    chart = alt.vconcat(top, table, spacing=4)
    return finished(
        alt.VConcatChart, chart, words, palette=palette, width=width, source=_OF_DURATION
    )


def _drawable(curve: pl.DataFrame) -> pl.DataFrame:
    """The curve from its start, with cut-offs, thinned to what a drawing can show."""
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
    order = {name: place for place, name in enumerate(apart(kept))}
    return (
        pl.concat([begin, kept])
        .with_columns(_place=pl.col("stratum").replace_strict(order, default=None))
        .sort("_place", "duration_s", maintain_order=True)
        .drop("step", "_place")
    )


def _counts(drawn: pl.DataFrame, names: list[str], ticks: list[int]) -> pl.DataFrame:
    """How many were at risk just before each tick, one row a stratum and tick."""
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


def _labels(drawn: pl.DataFrame, *, apart_by: float) -> pl.DataFrame:
    """Names at the ends of lines; those that would cover each other are moved up."""
    ends = drawn.group_by("stratum", maintain_order=True).last()
    placed: list[dict[str, Any]] = []
    for row in ends.sort("survival", "duration_s", maintain_order=True).to_dicts():
        near = [
            other["label_at"]
            for other in placed
            if abs(math.log10(row["duration_s"] / other["duration_s"])) < apart_by
        ]
        at = max([row["survival"], 0.02, *(taken + _LINE for taken in near)])
        placed.append({**row, "label_at": min(at, 1.0)})
    return pl.DataFrame(placed)


def _row_label() -> str:
    """One stratum only needs no name: the row says what its numbers are."""
    return f"datum.label === '{ALL}' ? 'at risk' : datum.label"


def _beginning(drawn: pl.DataFrame) -> float:
    """Half of the shortest duration: the curve is seen to begin at 1."""
    shortest = drawn.filter(pl.col("n_events") + pl.col("n_cut_off") > 0)["duration_s"].min()
    return max(SHORTEST_S, float(shortest or 1.0) / 2)  # type: ignore[arg-type]


def named(frame: pl.DataFrame, strata: Sequence[str], *, size: str) -> pl.DataFrame:
    """Add ``stratum``: the values of the strata as one text, the largest strata first.

    Parameters
    ----------
    frame : polars.DataFrame
        Anything with the columns of ``strata``.
    strata : sequence of str
        Columns that tell the lines apart; none: one line.
    size : str
        Column by whose largest value strata are ranked.

    Returns
    -------
    polars.DataFrame
        Rows of at most `MOST` strata, in the order of their size, then as they came.
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


def apart(frame: pl.DataFrame) -> list[str]:
    """The strata of a named frame, in their order."""
    return frame["stratum"].unique(maintain_order=True).to_list()

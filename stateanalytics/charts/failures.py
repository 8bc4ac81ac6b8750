"""What failed and how severe it is: reason codes, clusters, incidents and severities."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.charts.interactive import Spec, fading, finished
from stateanalytics.charts.style import (
    FONT_SIZE,
    HEADER,
    LIGHT,
    UTC_AXIS,
    Palette,
    Source,
    field,
    fitted,
    label_axis,
    largest,
    mark,
    where,
    width_of,
)
from stateanalytics.core.text import visible
from stateanalytics.errors import ColumnTypeError, check_columns

if TYPE_CHECKING:
    import altair as alt


NO_CODE = "(no code)"
DEPTHS = [0.42, 0.3, 0.2, 0.12]
_ROW_HEIGHT = 34
_MOST_CLUSTERS, _MOST_CELLS, _MOST_INCIDENTS = 12, 14, 12
NO_MESSAGE = "(no message)"
_OF_CODE = Source("failures", (("code", "(code = {} OR starts_with(code, {} || '.'))"),))
_OF_CLUSTER = Source("failures", (("cluster_id", "cluster_id = {}"),))
_OF_INCIDENT = Source("failures", (("incident_id", "incident_id = {}"),))
_LABEL_WIDTH, _CLUSTER_ROW, _INCIDENT_ROW = 260, 22, 26
_OF_NODES = ("n_sessions", "n_incidents", "cost_usd", "run_s")


def chart_failure_codes(
    codes: pl.DataFrame, *, sentence: str = "", palette: Palette = LIGHT, width: int = 620
) -> alt.LayerChart:
    """Reason codes as a tree of bars, each as wide as its rows, under its parent.

    Parameters
    ----------
    codes : polars.DataFrame
        From `failures.codes`.
    sentence : str
        Heading: what the chart shows.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        In pixels.

    Returns
    -------
    altair.LayerChart
        A name stands in its bar where there is room for it; the frame has all.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> codes = sa.failures.codes(sa.demo(), window="2026-W21")
    >>> chart = sa.charts.chart_failure_codes(codes)
    >>> print(chart.description)
    45 failed rows over 7 nodes of reason codes.
    """
    import altair as alt

    check_columns(codes, ("code", "parent", "depth", "n_rows"), "chart_failure_codes")
    drawn = _placed(codes, width)
    depths = max(int(largest(drawn, "depth")), 1)
    total = max(largest(drawn, "end"), 1.0)
    place = {
        "x": field("start:Q", axis=None, scale={"domain": [0, total], "nice": False}),
        "y": field("top:Q", axis=None, scale={"domain": [depths, 0], "nice": False}),
    }
    fades = {"domain": [1, 2, 3, 4], "range": DEPTHS}
    filled = {
        **place,
        "x2": {"field": "end"},
        "y2": {"field": "bottom"},
        "fill": {"value": palette["critical"]},
        "fillOpacity": field("depth:O", legend=None, scale=fades),
        "stroke": {"value": palette["surface"]},
    }
    shown = {**place, "text": field("shown:N"), "color": {"value": palette["text"]}}
    left = {"align": "left", "baseline": "middle", "dx": 5, "dy": _ROW_HEIGHT / 2}
    spec = {
        "data": drawn,
        "tooltips": {
            "code": "code", "rows": "n_rows", "runs": "n_sessions", "incidents": "n_incidents",
            "cost": "cost_usd", "time": "run_s",
        },
        "layer": [
            {**mark("rect", filled, strokeWidth=1.5), "clicks": ("chosen_code", "code")},
            mark("text", shown, fontSize=FONT_SIZE, **left),
        ],
        "width": width,
        "height": _ROW_HEIGHT * depths,
        "description": f"{int(total)} failed rows over {drawn.height} nodes of reason codes.",
    }  # fmt: skip
    return finished(alt.LayerChart, spec, sentence, palette=palette, width=width, source=_OF_CODE)


def _placed(codes: pl.DataFrame, width: int) -> pl.DataFrame:
    """The place of each node: below its parent, next to its siblings, sorted by name.

    Sorted by their segments, a node comes right before its children; so it begins where the
    own rows of all nodes before it end.
    """
    sums = [name for name in _OF_NODES if name in codes.columns]
    rows = codes.select("code", "parent", "depth", "n_rows", *sums)
    children = rows.group_by(code="parent").agg(n_below=pl.col("n_rows").sum())
    placed = (
        rows.join(children, on="code", how="left")
        .with_columns(own=pl.col("n_rows") - pl.col("n_below").fill_null(0))
        .sort(pl.col("code").str.split("."), nulls_last=True)
        .with_columns(start=pl.col("own").cum_sum() - pl.col("own"))
        .with_columns(end=pl.col("start") + pl.col("n_rows"), top=pl.col("depth") - 1)
    )
    total = max(largest(placed, "end"), 1.0)
    name = pl.col("code").str.split(".").list.last().fill_null(NO_CODE)
    label = pl.concat_str(name, pl.lit(" "), pl.col("n_rows").cast(pl.String))
    room = pl.col("n_rows") / total * width - 10
    taken = label.map_elements(width_of, return_dtype=pl.Float64)
    return placed.with_columns(
        bottom=pl.col("top") + 1, shown=pl.when(taken <= room).then(label).otherwise(pl.lit(""))
    )


def chart_failure_trend(
    clusters: pl.DataFrame,
    *,
    since: datetime,
    sentence: str = "",
    palette: Palette = LIGHT,
    width: int = 620,
) -> alt.LayerChart:
    """The clusters that cost most, over the steps of their trend.

    Parameters
    ----------
    clusters : polars.DataFrame
        From `failures.clusters`; the first twelve are drawn.
    since : datetime
        Where the trends begin: the window's start.
    sentence : str
        Heading: what the chart shows.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole drawing, in pixels.

    Returns
    -------
    altair.LayerChart
        More than fourteen steps are grouped by twos, threes, …; a week of hours becomes days.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> from datetime import datetime, timezone
    >>> clusters = sa.failures.clusters(sa.demo(), window="2026-W21")
    >>> monday = datetime(2026, 5, 18, tzinfo=timezone.utc)
    >>> chart = sa.charts.chart_failure_trend(clusters, since=monday)
    >>> print(chart.description)
    10 clusters of failures over 7 steps of time.
    """
    import altair as alt

    check_columns(
        clusters,
        ("cluster_id", "code", "template", "rule_name", "trend", "trend_step_s", "rank"),
        "chart_failure_trend",
    )
    labels = _LABEL_WIDTH // 2 if width < 2 * _LABEL_WIDTH else _LABEL_WIDTH
    drawn = _cells(clusters.sort("rank").head(_MOST_CLUSTERS), since, 0.85 * labels - 10)
    lines = drawn["name"].unique(maintain_order=True).to_list()
    steps = drawn["step"].unique(maintain_order=True).to_list()
    room = width - labels
    axis = {
        "values": steps[:: max(1, -(-len(steps) * 46 // max(room, 1)))],
        **{"labelAngle": 0, "domain": False, "ticks": False},
    }
    place = {
        "x": field("step:O", sort=steps, title=None, axis=axis),
        "y": field("name:N", sort=lines, title=None, axis=label_axis(labels - 10)),
    }
    root = {"type": "sqrt", "domain": [0, max(largest(drawn, "n"), 1)], "range": [0, 0.6]}
    filled = {
        **place,
        "fill": {"value": palette["critical"]},
        "fillOpacity": field("n:Q", legend=None, scale=root),
        "stroke": {"value": palette["line"]},
    }
    cells = {**mark("rect", filled, strokeWidth=1), "clicks": ("chosen_cluster", "cluster_id")}
    shown = {**place, "text": field("shown:N"), "color": {"value": palette["text"]}}
    numbers = mark("text", shown, fontSize=FONT_SIZE - 1)
    spec = {
        "data": drawn,
        "tooltips": {
            "failures": "n", "step": "step", "code": "code", "message": "template",
            "cluster": "cluster_id",
        },
        "layer": [cells] if room / max(len(steps), 1) < 16 else [cells, numbers],
        "width": room,
        "height": _CLUSTER_ROW * max(len(lines), 1),
        "description": f"{len(lines)} clusters of failures over {len(steps)} steps of time.",
    }  # fmt: skip
    return finished(
        alt.LayerChart, spec, sentence, palette=palette, width=width, source=_OF_CLUSTER
    )


def _cells(clusters: pl.DataFrame, since: datetime, room: float) -> pl.DataFrame:
    """One row for each cluster and step, with distinct names that fit into a width."""
    if clusters["trend"].dtype == pl.String:
        clusters = clusters.with_columns(pl.col("trend").str.split(", ").cast(pl.List(pl.Int64)))
    n_steps = max(int(largest(clusters.select(n=pl.col("trend").list.len()), "n")), 1)
    step_s = largest(clusters, "trend_step_s") or 3_600.0
    fold = -(-n_steps // _MOST_CELLS)
    if step_s * fold < 86_400 < step_s * n_steps / 2:
        fold = max(1, round(86_400 / step_s))  # steps of whole days read best
    form = "%a %-d" if step_s * fold < 7 * 86_400 else "%-d %b"
    form = form if step_s * fold >= 86_400 else "%a %H:%M"
    names = [fitted(f"{row['rank']} {_title(row)}", room) for row in clusters.iter_rows(named=True)]
    long = (
        clusters.select(
            "cluster_id", "code", "template", "trend", name=pl.Series(names, dtype=pl.String)
        )
        .with_columns(at=pl.int_ranges(pl.col("trend").list.len()))
        .explode("trend", "at")
        .drop_nulls("at")
        .group_by(
            *("name", "cluster_id", "code", "template"),
            place=pl.col("at") // fold,
            maintain_order=True,
        )
        .agg(n=pl.col("trend").sum())
    )
    moments = pl.lit(since) + pl.col("place") * pl.lit(timedelta(seconds=step_s * fold))
    return long.with_columns(
        step=moments.dt.strftime(form),
        shown=pl.when(pl.col("n") > 0).then(pl.col("n").cast(pl.String)).otherwise(pl.lit("")),
    ).drop("place")


def _title(row: Mapping[str, Any]) -> str:
    """What a row of failures is called: two messages may begin with the same words."""
    names = (row.get(name) for name in ("rule_name", "title", "template", "code"))
    return visible(next(filter(None, names), NO_MESSAGE))


def chart_incidents(
    incidents: pl.DataFrame, *, sentence: str = "", palette: Palette = LIGHT, width: int = 620
) -> alt.LayerChart:
    """The incidents with most rows, one line each, over time.

    Parameters
    ----------
    incidents : polars.DataFrame
        From `failures.incidents`.
    sentence : str
        Heading: what the chart shows.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole drawing, in pixels.

    Returns
    -------
    altair.LayerChart
        A bar from the first failure to the last, with its title and how many rows and sessions
        it took; oldest on top.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> incidents = sa.failures.incidents(sa.demo(), window="2026-W21")
    >>> chart = sa.charts.chart_incidents(incidents)
    >>> print(chart.description)
    2 incidents, 2 of them drawn.
    """
    import altair as alt

    check_columns(
        incidents,
        ("incident_id", "since", "until", "n_rows", "n_sessions", "code", "template", "linked_by"),
        "chart_incidents",
    )
    labels = _LABEL_WIDTH // 2 if width < 2 * _LABEL_WIDTH else _LABEL_WIDTH
    drawn = _named(incidents, 0.85 * labels - 10, width - labels)
    lines = drawn["name"].to_list()
    room = {"type": "utc", "padding": 8}  # for the marks at both ends
    place = {
        "x": field("since:T", title="UTC", scale=room, axis=UTC_AXIS),
        "y": field("name:N", sort=lines, title=None, axis=label_axis(labels - 10)),
        "color": {"value": palette["critical"]},
    }
    # A burst of seconds would be too thin to see, so its start is marked.
    bars = mark("bar", {**place, "x2": {"field": "until"}}, height=10, cornerRadius=2, clip=True)
    starts = {**place, "opacity": fading("chosen_incident")}
    ends = mark("point", starts, filled=True, shape="diamond", size=50, clip=True)
    named = {**place, "text": field("words:N"), "color": {"value": palette["text"]}}
    # Labels extend away from the nearer edge.
    words = [
        {
            **mark("text", named, align=align, dx=dx, dy=-9, fontSize=FONT_SIZE - 1, clip=False),
            "transform": [{"filter": f"datum.is_late == {is_late}"}],
            "has_tips": True,
        }
        for is_late, align, dx in (("false", "left", 8), ("true", "right", -8))
    ]
    chosen = {"clicks": ("chosen_incident", "incident_id"), "moves": ("incidents_axis", "x")}
    spec = {
        "data": drawn,
        "tooltips": {
            "what": "title", "since": "since", "until": "until", "rows": "n_rows",
            "sessions": "n_sessions", "cost": "cost_usd", "code": "code", "message": "template",
            "linked_by": "linked_by", "incident": "incident_id",
        },
        "layer": [{**bars, **chosen}, {**ends, "has_tips": True}, *words],
        "width": width - labels,
        "height": _INCIDENT_ROW * max(len(lines), 1),
        "description": f"{incidents.height} incidents, {drawn.height} of them drawn.",
    }  # fmt: skip
    return finished(
        alt.LayerChart, spec, sentence, palette=palette, width=width, source=_OF_INCIDENT
    )


def _named(incidents: pl.DataFrame, room: float, width: float) -> pl.DataFrame:
    """The largest incidents by start, with their names and labels cut to their width."""
    top = incidents.sort("n_rows", "since", descending=True).head(_MOST_INCIDENTS).sort("since")
    names = [
        fitted(f"{place} {_title(row)}", room)
        for place, row in enumerate(top.iter_rows(named=True), start=1)
    ]
    words = pl.format("{} rows, {} sessions: {}", "n_rows", "n_sessions", "linked_by")
    first, span = pl.col("since").min(), pl.col("until").max() - pl.col("since").min()
    share = ((pl.col("since") - first) / span).fill_nan(0.0).fill_null(0.0)
    # Eight pixels at both ends of the axis, and eight from a mark to its words.
    label_width = pl.when(share > 0.5).then(share).otherwise(1 - share) * (width - 16)
    top = top.with_columns(words=words, is_late=share > 0.5, label_width=label_width)
    labels = [
        fitted(visible(text), width_left, FONT_SIZE - 1)
        for text, width_left in top.select("words", "label_width").rows()
    ]
    others = [name for name in ("title", "cost_usd") if name in top.columns]
    return top.select(
        *("since", "until", "incident_id", "n_rows", "n_sessions", "code", "template", "linked_by"),
        *others,
        "is_late",
        words=pl.Series(labels, dtype=pl.String),
        name=pl.Series(names, dtype=pl.String),
    )


# Neutral is only in the table: it would dominate the scale, and needs no attention.
SEVERITIES_DRAWN = ("critical", "warning", "info")
NEEDED_SEVERITIES = ("entity_type", *SEVERITIES_DRAWN)
_TYPE_ROW = 24
_TYPE_LABEL_WIDTH = 96
_OF_TYPE = Source("states", (("entity_type", "entity_type = {}"), ("severity", "severity = {}")))


def chart_severity(
    by_type: pl.DataFrame, *, palette: Palette = LIGHT, width: int = 620
) -> alt.FacetChart:
    """Entities by type, with a column of bars for each severity, the most severe first.

    Parameters
    ----------
    by_type : polars.DataFrame
        ``entity_type`` and a count for each of critical, warning and info.
    palette : mapping of str to str, optional
        Colours by name.
    width : int
        Of the whole drawing, in pixels.

    Returns
    -------
    altair.FacetChart
        Rows stand in the order of the frame. All columns share one scale.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ColumnTypeError
        If a count is no number.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> counts = sa.demo().sql(
    ...     "PIVOT (SELECT entity_type, severity FROM states) ON severity "
    ...     "IN ('critical', 'warning', 'info') USING count(*) ORDER BY entity_type"
    ... )
    >>> chart = sa.charts.chart_severity(counts)
    >>> print(chart.description)
    711 entities by type and severity.
    """
    import altair as alt

    spec = severity_spec(by_type, palette=palette, width=width)
    return finished(alt.FacetChart, spec, "", palette=palette, width=width, source=_OF_TYPE)


def severity_spec(by_type: pl.DataFrame, *, palette: Palette, width: int) -> Spec:
    """The specification of `chart_severity`."""
    check_columns(by_type, NEEDED_SEVERITIES, "chart_severity")
    if wrong := [
        name for name in SEVERITIES_DRAWN if by_type.height and not by_type[name].dtype.is_numeric()
    ]:
        raise ColumnTypeError(
            f"chart_severity needs counts in {wrong}; found {by_type[wrong[0]].dtype}.",
            "count first: frame.group_by('entity_type').agg(...)",
        )
    drawn = by_type.select(NEEDED_SEVERITIES).unpivot(
        index="entity_type", variable_name="severity", value_name="n"
    )
    labels = label_axis(
        _TYPE_LABEL_WIDTH, labelPadding=6, labelExpr="replace(datum.label, /_/g, ' ')"
    )
    # Room right of the longest bar, where its number stands.
    domain = [0, 1.35 * max(largest(drawn, "n"), 1)]
    place = {
        "y": field("entity_type:N", sort=by_type["entity_type"].to_list(), title=None, axis=labels),
        "x": field("n:Q", axis=None, scale={"domain": domain, "nice": False}),
    }
    names = list(SEVERITIES_DRAWN)
    fills = {"domain": names, "range": [palette[name] for name in names]}
    filled = {**place, "color": field("severity:N", scale=fills, legend=None)}
    bars = mark("bar", filled, height=12)
    bars["clicks"] = "chosen_severity", "entity_type", "severity"
    colour = where("datum.n > 0", palette["text"], palette["muted"])
    shown = {**place, "text": field("n:Q"), "color": colour}
    numbers = mark("text", shown, align="left", dx=4, fontSize=FONT_SIZE)
    return {
        "data": drawn,
        "tooltips": {"type": "entity_type", "severity": "severity", "entities": "n"},
        "facet": {"column": field("severity:N", sort=names, header=HEADER)},
        "spec": {
            "layer": [bars, numbers],
            "width": (width - _TYPE_LABEL_WIDTH) / len(names) - 10,
            "height": _TYPE_ROW * by_type.height,
        },
        "spacing": 10,
        "description": f"{int(drawn['n'].sum())} entities by type and severity.",
    }

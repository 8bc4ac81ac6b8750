"""Incidents: failures that belong together, whatever code or system recorded them.

Failures are linked where they belong to one request (an invocation, else a session), and
where they follow each other faster than by chance: those of one cluster, at one provider, of
one cause group on one host, or of one task. An incident is a connected component of these links.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import polars as pl

from stateanalytics.core.joins import collected, connected_components, parts_of
from stateanalytics.core.windows import Window
from stateanalytics.errors import check_number
from stateanalytics.failures.counting import COSTS, session_count, sum_costs
from stateanalytics.failures.fault_table import titled_clusters
from stateanalytics.failures.frames import INCIDENTS
from stateanalytics.failures.templates import versioned_id
from stateanalytics.state.population import hosts_of

#: Part of every id of an incident, a digest of its earliest row; templates do not matter.
VERSION = "v1"
GAP_S = 600.0
LINKS = ("invocation", "time", "provider", "cause", "task")
#: Work comes by day and on weekdays: chance is that at so many times the usual rate.
RHYTHM = 4.0
#: How soon so many more failures follow by chance, in usual distances at `RHYTHM`: 8 in 1,000
#: times one more, 1.7 two more, 0.15 four and more. Lower quantiles of gamma distributions.
BURSTS = {1: 0.008, 2: 0.06, 4: 0.26, 8: 1.47, 16: 5.35, 32: 15.4}
#: Two failures are a burst only where less than a minute apart is not yet chance: where more
#: is usual, pairs come every week.
PAIR_S = 60.0
#: Of a group's busiest hours, this share of all hours, none counts for the usual distance with
#: more than the next one has, or than so many failures.
BUSY, N_BUSY = 1 / 8, 3
#: Gaps of a burst are at most so many times its median gap, at its ends and within, ...
OUTER, INNER = 6, 16
#: ... and at most so many times ``gap_s``, which no gap has to be below.
LONGEST = 9
#: Causes that several clusters of one host may share: none that is in the task itself.
SHARED = (
    *("network", "database", "disk_full", "out_of_memory", "container", "tool_server", "killed"),
    *("provider_limit", "provider_down", "billing", "auth"),
)
_LINKED = (
    *("source", "system", "entity_type", "entity_id", "invocation_id", "session_id", "unit"),
    *("failed_at", "cluster_id", "code", "message", "template", "provider", "cause_group"),
    *("name", "directory", "cause"),
)
#: Codes and messages of failures at the provider.
AT_PROVIDER = (
    r"(?i)provider|rate.?limit|overloaded|quota|insufficient balance|upstream connect"
    r"|\b(?:429|50[0234]|529)\b"
)


def add_incidents(
    rows: pl.DataFrame,
    *,
    gap_s: float = GAP_S,
    span_s: float | pl.Expr = 0.0,
    apart: int | pl.Expr = 0,
) -> pl.DataFrame:
    """Add ``incident_id`` to `members`; null: the only cause of its request, and of no outage.

    ``span_s`` is the length of the observed time of each row's source: where one outage is all
    that failed in a week, the failures alone would suggest that so many are usual. A group has
    the longest of its sources, so that sources without its failures do not matter to it. Rows
    of different values of ``apart``, such as weeks, have nothing to do with each other.

    Raises
    ------
    ArgumentError
        If ``gap_s`` is negative or no number.
    """
    check_number("gap_s", gap_s, 600)
    # Rows are wide and are sorted four times: only the columns that this needs.
    linked = _with_components(_with_links(rows, gap_s, span_s, apart))
    names = ("source", "system", "entity_type", "entity_id")
    # A call may have no id.
    other = pl.concat_str(*names[:3], "session_id", "failed_at", separator="|", ignore_nulls=True)
    key = pl.coalesce(pl.concat_str(names, separator="|"), other)
    first = (
        linked.lazy()
        .sort("failed_at", key)
        .group_by("component", maintain_order=True)
        .agg(first_key=key.first(), n_causes=pl.col("cause").n_unique(), n_units=_n_units())
        .filter((pl.col("n_units") > 1) | (pl.col("n_causes") > 1))
        .collect()
    )
    keys = first[["component", "first_key"]].iter_rows()
    ids = {component: versioned_id(text, VERSION) for component, text in keys}
    of_rows = [ids.get(component) for component in linked["component"].to_list()]
    added = linked[[f"by_{link}" for link in LINKS]].hstack(
        [pl.Series("incident_id", of_rows, pl.String)]
    )
    return rows[[name for name in rows.columns if name not in added.columns]].hstack(added)


def _n_units() -> pl.Expr:
    return pl.col("unit").n_unique() - pl.col("unit").has_nulls()


def members_within(
    rows: pl.DataFrame, window: Window, as_of: datetime, begins: Mapping[str, datetime]
) -> pl.DataFrame:
    """The `members` of a window, of those of all time, with the incidents of the window alone.

    The usual distance is the window's own, so that no history before it changes a count;
    ``begins`` is when the data of each source begin, which others do not change.
    """
    return members_within_each(rows, [window], as_of, begins)[window]


def members_within_each(
    rows: pl.DataFrame, windows: Sequence[Window], as_of: datetime, begins: Mapping[str, datetime]
) -> dict[Window, pl.DataFrame]:
    """The `members_within` of several windows, in one pass."""
    if not windows:
        return {}
    parts = [
        rows.lazy()
        .filter(window.holds("failed_at"))
        .with_columns(window=pl.lit(i, pl.Int64), observed_s=observed_s(window, as_of, begins))
        for i, window in enumerate(windows)
    ]
    linked = add_incidents(
        collected(pl.concat(parts)), span_s=pl.col("observed_s"), apart=pl.col("window")
    )
    names = [name for name in linked.columns if name != "observed_s"]
    return dict(zip(windows, parts_of(linked[names], "window", len(windows)), strict=True))


def observed_s(window: Window, as_of: datetime, begins: Mapping[str, datetime]) -> pl.Expr:
    """The seconds of a window that were over at as-of, from where the data of a source begin."""
    until = min(window.until, as_of)
    since = {source: max(window.since, first) for source, first in begins.items()}
    seconds = {source: max((until - at).total_seconds(), 0.0) for source, at in since.items()}
    whole_s = max((until - window.since).total_seconds(), 0.0)
    return pl.col("source").replace_strict(seconds, default=whole_s, return_dtype=pl.Float64)


def count_incidents(rows: pl.DataFrame) -> pl.DataFrame:
    """One row for each incident of `members`; see `incidents` for the columns."""
    # Several rows of one piece of work are one failure, and no incident to list.
    is_listed = _n_units().over("incident_id") > 1
    members = rows.lazy().filter(pl.col("incident_id").is_not_null()).filter(is_listed)
    links = [
        pl.when(pl.col(f"by_{link}").drop_nulls().is_duplicated().any()).then(pl.lit(link))
        for link in LINKS
    ]
    largest = (
        members.group_by("incident_id", "cluster_id", "code", "template")
        .agg(n=pl.len())
        .sort("n", "cluster_id", descending=[True, False])
        .unique("incident_id", keep="first", maintain_order=True)
        .join(titled_clusters(rows)[["cluster_id", "title"]].lazy(), on="cluster_id", how="left")
        .select("incident_id", "title", "code", "template")
    )
    counted = members.group_by("incident_id").agg(
        since=pl.col("failed_at").min(),
        until=pl.col("failed_at").max(),
        n_rows=pl.len().cast(pl.Int64),
        n_sessions=session_count(),
        n_causes=pl.col("cause").n_unique().cast(pl.Int64),
        n_clusters=pl.col("cluster_id").n_unique().cast(pl.Int64),
        linked_by=pl.concat_list(links).list.drop_nulls().list.join(", ").first(),
        cluster_ids=pl.col("cluster_id").unique().sort(),
        codes=pl.col("code").drop_nulls().unique().sort(),
        providers=pl.col("provider").drop_nulls().unique().sort(),
        systems=pl.col("system").unique().sort(),
        **{name: sums for name, sums in sum_costs().items() if name in (*COSTS, "n_work")},
    )
    return (
        counted.join(largest, on="incident_id")
        .with_columns(duration_s=(pl.col("until") - pl.col("since")).dt.total_microseconds() / 1e6)
        .sort("since", "incident_id", descending=[True, False])
        .select(INCIDENTS.dtypes.names())
        .collect()
    )


def _with_links(
    rows: pl.DataFrame, gap_s: float, span_s: float | pl.Expr, apart: int | pl.Expr
) -> pl.DataFrame:
    """Rows with the names of their links: rows with the same ``by_…`` are linked."""
    request = pl.coalesce(
        pl.lit("invocation:") + pl.col("invocation_id"),
        pl.lit("session:") + pl.col("session_id"),
        pl.col("entity_type") + ":" + pl.col("entity_id"),
    )
    text = pl.concat_str("code", "message", separator=" ", ignore_nulls=True).str.head(4_000)
    is_at_provider = text.str.contains(AT_PROVIDER) & pl.col("provider").is_not_null()
    # Failures without code and template are not known to be the same.
    is_described = pl.col("code").is_not_null() | pl.col("template").is_not_null()
    cluster = pl.when(is_described).then("cluster_id")
    is_task = pl.col("name").is_not_null() | pl.col("directory").is_not_null()
    task = pl.concat_str(pl.col("name", "directory").fill_null(""), separator="|")
    groups = {
        "time": cluster,
        "provider": pl.when(is_at_provider).then("provider"),
        "cause": pl.when(pl.col("cause_group").is_in(SHARED)).then(
            pl.concat_str("cause_group", hosts_of(rows["source"]), separator="|")
        ),
        "task": pl.when(is_task).then(
            pl.concat_str("source", task, pl.coalesce("cause_group", cluster), separator="|")
        ),
    }
    request_id = pl.concat_str("source", request, separator="|")
    # The span of a source, not of the group: a single burst has no usual distance.
    failed_at = pl.col("failed_at")
    failed_s = (failed_at.max() - failed_at.min()).dt.total_microseconds() / 1e6
    linked = (
        rows.lazy()
        .select(*_LINKED, span_s=span_s, apart=apart)
        .with_columns(
            span_s=pl.max_horizontal("span_s", failed_s.over("apart", "source")),
            by_invocation=request_id,
        )
        .with_row_index("row")
    )
    # Equal numbers for equal texts are faster to sort.
    place_apart = pl.col("apart").cast(pl.String).cast(pl.Categorical).to_physical()
    numbered = {
        name: place_apart.cast(pl.UInt64) * 2**32
        + pl.format(f"{name}|{{}}", group).cast(pl.Categorical).to_physical()
        for name, group in groups.items()
    }
    place = {
        "request": pl.col("by_invocation").cast(pl.Categorical).to_physical(),
        "at_s": pl.col("failed_at").dt.epoch("us") / 1e6,
        "hour": pl.col("failed_at").dt.epoch("us") // 3_600_000_000,
    }
    long = linked.select("row", "span_s", **place, **numbered).unpivot(
        list(groups), index=["row", "span_s", *place], variable_name="link", value_name="group"
    )
    found = _bursts(long.drop_nulls("group"), gap_s)
    names = (pl.col("burst").filter(link=name).first().alias(f"by_{name}") for name in groups)
    bursts = found.group_by("row").agg(names)
    return linked.join(bursts, on="row", how="left", maintain_order="left").drop("row").collect()


def _bursts(rows: pl.LazyFrame, gap_s: float) -> pl.LazyFrame:
    """Name each burst: failures of a group that follow each other faster than by chance."""
    # What one request fails within an hour says no more than its first failure.
    failures = rows.sort("group", "at_s", "row").unique(
        ["group", "request", "hour"], keep="first", maintain_order=True
    )
    # A group of several sources was observed for as long as the first of them.
    failures = failures.with_columns(pl.col("span_s").max().over("group"))
    n_busy = (pl.col("span_s").first() / 3600 * BUSY).cast(pl.Int64)
    busiest = pl.col("n").sort(descending=True).get(n_busy, null_on_oob=True)
    usual = (
        failures.group_by("group", "hour")
        .agg(pl.col("span_s").first(), n=pl.len())
        .group_by("group")
        .agg(n=pl.min_horizontal("n", pl.max_horizontal(pl.lit(N_BUSY), busiest)).sum())
    )
    limits_s = {n: by_chance * pl.col("span_s") / RHYTHM for n, by_chance in BURSTS.items()}
    # Most failures are in no burst, and medians take time.
    fast = (
        failures.join(usual, on="group", maintain_order="left")
        .with_columns(gap=pl.col("at_s").shift(-1) - pl.col("at_s"))
        .filter(
            pl.any_horizontal(_next(_is_fast(n, limit_s), n + 1) for n, limit_s in limits_s.items())
        )
    )
    is_linked = pl.any_horizontal(
        _next(_is_fast(n, limit_s) & _is_even(n, gap_s), n) for n, limit_s in limits_s.items()
    )
    begins = ~is_linked.shift().fill_null(value=False)
    return fast.select("row", "link", burst=begins.cum_sum().cast(pl.String))


def _is_fast(n: int, limit_s: pl.Expr) -> pl.Expr:
    """Whether n more of its group follow a failure faster than by chance."""
    is_one_group = pl.col("group") == pl.col("group").shift(-n)
    is_rare = pl.col("n") * PAIR_S <= limit_s
    is_fast = (pl.col("at_s").shift(-n) - pl.col("at_s")) * pl.col("n") <= limit_s
    return is_one_group & is_fast & (is_rare if n == 1 else True)


def _is_even(n: int, gap_s: float) -> pl.Expr:
    """Whether no gap up to the n-th failure after one stands out."""
    gap, most_s = pl.col("gap"), gap_s if n == 1 else LONGEST * gap_s
    median, widest = gap.rolling_median(n).shift(1 - n), gap.rolling_max(n).shift(1 - n)
    ends = pl.max_horizontal(gap, gap.shift(1 - n))
    return (widest <= (INNER * median).clip(gap_s, most_s)) & (
        ends <= (OUTER * median).clip(gap_s, most_s)
    )


def _next(is_first: pl.Expr, n: int) -> pl.Expr:
    """The n rows from each of these on."""
    return is_first.cast(pl.Int8).rolling_max(n, min_samples=1) == 1


def _with_components(linked: pl.DataFrame) -> pl.DataFrame:
    """Rows with the number of their connected component: that of its first row."""
    row, rows = pl.int_range(pl.len(), dtype=pl.Int64), linked.lazy()
    pairs = pl.concat(
        rows.select(node=row, id=pl.format(f"{link}|{{}}|{{}}", "apart", f"by_{link}"))
        for link in LINKS
    ).drop_nulls()
    return linked.hstack([connected_components(linked.height, pairs)])

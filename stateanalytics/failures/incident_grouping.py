"""Incidents: failures that belong together, whatever code or system recorded them.

Failures are linked where they belong to one request (an invocation, else a session), where
the same cluster fails again shortly after, and where one provider fails in several ways at
a time. An incident is a connected component of these links.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

import polars as pl

from stateanalytics.core.joins import connected_components
from stateanalytics.core.windows import Window
from stateanalytics.errors import check_number
from stateanalytics.failures.counting import COSTS, sum_costs

#: Part of every id of an incident, a digest of its earliest row; templates do not matter.
VERSION = "v1"
GAP_S = 600.0
#: Failures that are closer than this share of their usual distance are linked: by chance
#: about as large a share of them is.
CHANCE = 0.01
LINKS = ("invocation", "time", "provider")
_LINKED = (
    *("source", "system", "entity_type", "entity_id", "invocation_id", "session_id", "unit"),
    *("failed_at", "cluster_id", "code", "message", "template", "provider"),
)
#: Codes and messages of failures at the provider.
AT_PROVIDER = (
    r"(?i)provider|rate.?limit|overloaded|quota|insufficient balance|upstream connect"
    r"|\b(?:429|50[0234]|529)\b"
)


def add_incidents(rows: pl.DataFrame, *, gap_s: float = GAP_S, span_s: float = 0.0) -> pl.DataFrame:
    """Add ``incident_id`` to `members`; null: not part of an incident.

    ``span_s`` is the length of the observed time: where one outage is all that failed in a
    week, the failures alone would suggest that so many are usual.

    Raises
    ------
    ArgumentError
        If ``gap_s`` is negative or no number.
    """
    check_number("gap_s", gap_s, 600)
    # Rows are wide and are sorted four times: only the columns that this needs.
    linked = _with_components(_with_links(rows.select(_LINKED), gap_s, span_s))
    key = pl.concat_str("source", "system", "entity_type", "entity_id", separator="|")
    first = (
        linked.sort("failed_at", key)
        .group_by("component", maintain_order=True)
        .agg(first_key=key.first(), n_work=pl.col("unit").n_unique() - pl.col("unit").has_nulls())
        .filter(pl.col("n_work") > 1)
    )
    digests = [
        hashlib.blake2b(text.encode(), digest_size=6).hexdigest() for text in first["first_key"]
    ]
    ids = first.select(
        "component",
        incident_id=pl.Series([f"{VERSION}:{digest}" for digest in digests], dtype=pl.String),
    )
    added = linked.join(ids, on="component", how="left", maintain_order="left").select(
        *(f"by_{link}" for link in LINKS), "incident_id"
    )
    return pl.concat([rows.drop(added.columns, strict=False), added], how="horizontal")


def members_within(rows: pl.DataFrame, window: Window, as_of: datetime) -> pl.DataFrame:
    """The `members` of a window, of those of all time, with the incidents of the window alone.

    The usual distance is the window's own, so that no history before it changes a count.
    """
    is_within = pl.col("failed_at").is_between(window.since, window.until, closed="left")
    return add_incidents(rows.filter(is_within), span_s=observed_s(window, as_of))


def observed_s(window: Window, as_of: datetime) -> float:
    """The seconds of a window that were over at as-of."""
    return max((min(window.until, as_of) - window.since).total_seconds(), 0.0)


def count_incidents(rows: pl.DataFrame) -> pl.DataFrame:
    """One row for each incident of `members`; see `incidents` for the columns."""
    members = rows.filter(pl.col("incident_id").is_not_null())
    sessions = pl.struct("source", "session_id").filter(pl.col("session_id").is_not_null())
    links = [
        pl.when(pl.col(f"by_{link}").drop_nulls().is_duplicated().any()).then(pl.lit(link))
        for link in LINKS
    ]
    largest = (
        members.group_by("incident_id", "cluster_id", "code", "template")
        .agg(n=pl.len())
        .sort("n", "cluster_id", descending=[True, False])
        .unique("incident_id", keep="first", maintain_order=True)
        .select("incident_id", "code", "template")
    )
    counted = members.group_by("incident_id").agg(
        since=pl.col("failed_at").min(),
        until=pl.col("failed_at").max(),
        n_rows=pl.len().cast(pl.Int64),
        n_sessions=sessions.n_unique().cast(pl.Int64),
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
        .select(
            *("incident_id", "since", "until", "duration_s", "n_rows", "n_sessions", "n_causes"),
            *("n_clusters", "linked_by", "code", "template", "cluster_ids", "codes"),
            *("providers", "systems", "run_s", "n_tokens", "cost_usd", "n_work"),
        )
    )


def _with_links(rows: pl.DataFrame, gap_s: float, span_s: float) -> pl.DataFrame:
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
    return (
        rows.with_columns(by_invocation=pl.concat_str("source", request, separator="|"))
        .pipe(_bursts, pl.when(is_described).then("cluster_id"), "by_time", (gap_s, span_s))
        .pipe(_bursts, pl.when(is_at_provider).then("provider"), "by_provider", (gap_s, span_s))
    )


def _bursts(
    rows: pl.DataFrame, group: pl.Expr, name: str, seconds: tuple[float, float]
) -> pl.DataFrame:
    """Name each burst: failures of one group that follow each other within seconds."""
    in_order = rows.with_row_index("_row").with_columns(_group=group).sort("failed_at", "_row")
    # The span of all failures, not of the group: a single burst has no usual distance.
    failing_s = (pl.col("failed_at").max() - pl.col("failed_at").min()).dt.total_microseconds()
    gap_s, span_s = seconds[0], pl.max_horizontal(failing_s / 1e6, pl.lit(seconds[1]))
    n_requests = pl.col("by_invocation").n_unique().over("_group")
    elapsed_s = pl.col("failed_at").diff().over("_group").dt.total_microseconds() / 1e6
    limit_s = pl.min_horizontal(pl.lit(float(gap_s)), span_s / n_requests * CHANCE)
    burst = pl.col("_begins").cum_sum().over("_group")
    return (
        in_order.with_columns(_begins=~(elapsed_s <= limit_s).fill_null(False))
        .with_columns(pl.concat_str("_group", burst, separator="#").alias(name))
        .sort("_row")
        .drop("_row", "_group", "_begins")
    )


def _with_components(linked: pl.DataFrame) -> pl.DataFrame:
    """Rows with the number of their connected component: that of its first row."""
    row = pl.int_range(pl.len(), dtype=pl.Int64)
    pairs = pl.concat(
        linked.select(node=row, id=pl.lit(f"{link}|") + pl.col(f"by_{link}")) for link in LINKS
    ).drop_nulls()
    return linked.with_columns(component=connected_components(linked.height, pairs))

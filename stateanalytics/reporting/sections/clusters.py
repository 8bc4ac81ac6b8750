"""The same failure told once: clusters by code and message, incidents, and what is new."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.units import how_long
from stateanalytics.failures.clustering import count_clusters
from stateanalytics.failures.failure_rows import find_members
from stateanalytics.failures.incident_grouping import count_incidents, members_within
from stateanalytics.failures.known_ids import former_ids
from stateanalytics.reporting.material import Material, Plain, Section, iso, plain_rows
from stateanalytics.reporting.phrases import count, number, share

N_SHOWN, N_INCIDENTS, N_NAMED = 10, 5, 2
_TOLD = (
    *(
        "rank",
        "cluster_id",
        "former_ids",
        "code",
        "template",
        "rule_name",
        "n_rows",
        "n_sessions",
        "n_causes",
    ),
    *(
        "n_incidents",
        "share",
        "share_low",
        "share_high",
        "first_at",
        "last_at",
        "trend",
        "trend_step_s",
    ),
    *("run_s", "n_tokens", "cost_usd", "n_work", "n_cost_unreported"),
    *("example_shortest", "example_median", "example_newest", "what_to_do"),
)
_INCIDENT = (
    *("incident_id", "since", "until", "duration_s", "n_rows", "n_sessions", "n_causes"),
    *("n_clusters", "linked_by", "code", "template", "run_s", "cost_usd"),
)


def summarize_clusters(material: Material) -> Plain:
    """The window's clusters by what they cost, its incidents, and those never seen before."""
    window, as_of = material.window, material.facts.as_of
    # Templates are mined from the failures of all time: ids stay the same next week.
    ever = find_members(material.facts, rows=material.ever)
    here = members_within(ever, window, as_of)
    clusters = count_clusters(here, window=window, as_of=as_of).join(
        former_ids(ever), on="cluster_id", how="left", maintain_order="left"
    )
    before = ever.filter(pl.col("failed_at") < window.since)
    new = clusters.join(before.select("cluster_id").unique(), on="cluster_id", how="anti")
    incidents = count_incidents(here).sort(
        "n_rows", "since", "incident_id", descending=[True, True, False]
    )
    is_first = before.is_empty()
    return {
        "finding": _sentence(clusters, incidents, None if is_first else new.height),
        "denominator": "failed and timed-out entities of the window, of every type but branches",
        "n": clusters.height,
        "since": iso(window.since),
        "clusters": [_cluster(row) for row in plain_rows(clusters.head(N_SHOWN), _TOLD)],
        "n_incidents": incidents.height,
        "incidents": [_incident(row) for row in plain_rows(incidents.head(N_INCIDENTS), _INCIDENT)],
        "n_new": None if is_first else new.height,
        "new": None if is_first else [_name(row) for row in plain_rows(new.head(N_SHOWN), _TOLD)],
    }


def _cluster(row: Plain) -> Plain:
    most = max(row["trend"], default=0)
    examples = dict.fromkeys(
        row.pop(name) for name in ("example_newest", "example_median", "example_shortest")
    )
    return {
        **row,
        "former_ids": row["former_ids"] or [],
        "examples": [text for text in examples if text],
        "bars": [step / most if most else 0.0 for step in row["trend"]],
        "shown_share": share(row["share"]),
        "lost": _lost(row),
    }


def _lost(row: Plain) -> str:
    """What it cost, where somebody reported it; not reported is never nothing."""
    parts = []
    if row["run_s"] is not None:
        parts.append(how_long(row["run_s"]))
    if row["cost_usd"] is not None:
        unreported = row["n_cost_unreported"]
        part = f"${row['cost_usd']:,.2f}"
        parts.append(f"{part} ({number(unreported)} unreported)" if unreported else part)
    return ", ".join(parts) or "not reported"


def _incident(row: Plain) -> Plain:
    return {**row, "lasted": how_long(row["duration_s"], is_estimate=True)}


def _name(row: Plain) -> str:
    return str(row["rule_name"] or row["template"] or row["code"] or "(nothing said)")


def _sentence(clusters: pl.DataFrame, incidents: pl.DataFrame, n_new: int | None) -> str:
    if clusters.is_empty():
        return "Nothing failed or timed out in this window."
    top = clusters.row(0, named=True)
    parts = [
        f"{count(int(clusters['n_rows'].sum()), 'failed row').capitalize()} form "
        f"{count(clusters.height, 'cluster')} of code and message; the costliest, "
        f"{_quoted(_name(top))}, stands for {number(top['n_rows'])}"
    ]
    if incidents.height:
        incident = incidents.row(0, named=True)
        parts.append(
            f"the largest incident took {count(incident['n_sessions'], 'session')} "
            f"within {how_long(incident['duration_s'], is_estimate=True)}"
        )
    if n_new is not None:
        parts.append(f"{number(n_new)} {'was' if n_new == 1 else 'were'} never seen before")
    return "; ".join(parts) + "."


def _quoted(text: str) -> str:
    words = text.split()
    short = " ".join(words[:8])
    return f"“{short} …”" if len(words) > 8 else f"“{short}”"


SECTION = Section("clusters", "Clusters", summarize_clusters, place=60)

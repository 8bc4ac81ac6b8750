"""Parents against their children: a request and its sessions, a show and its plays."""

from __future__ import annotations

import polars as pl

from stateanalytics.auditing.cases import Cases, moment, told, word
from stateanalytics.core import schema
from stateanalytics.state.rollups import roll_up

_KEY = list(schema.ENTITY_KEY)
# (parent, child, the child's column that names the parent). A play does not contain its
# session but follows it, through a gate that may refuse: only their being over is compared.
_FAMILIES = (
    ("invocation", "session", "invocation_id"),
    ("show", "play", "parent_id"),
)
# lionagi's words for the same end, where parent and roll-up use different ones.
_OUTCOMES = {"succeeded": "completed"}


def over_or_open(cases: Cases) -> pl.DataFrame:
    """Parents that ended before a child, or stay open after the last one ended."""
    found = []
    for parent, child, column in _FAMILIES:
        family = _family(cases, parent, child, column)
        late = family.filter("is_over", pl.col("n_open") > 0)
        # A request may go on by itself for a while, and a show waits for its gate.
        quiet_s = cases.policy.idle_after_s
        since_s = (pl.lit(cases.facts.as_of) - pl.col("last_end_at")).dt.total_microseconds() / 1e6
        forgotten = family.filter(
            "is_open", pl.col("n_open") == 0, pl.col("n_legacy") == 0, since_s > quiet_s
        )
        said = pl.format("{} {}", pl.lit(parent), word("raw_status"))
        found += [
            told(
                late,
                "audit.parent_ended_before_children",
                at="ended_at",
                says=said,
                against=pl.format("{} of {} {}s not over", "n_open", "n_children", pl.lit(child)),
            ),
            told(
                forgotten,
                "audit.parent_open_after_children",
                at="last_end_at",
                says=said,
                against=pl.format(
                    "{} of {} {}s over, the last since {}",
                    "n_children",
                    "n_children",
                    pl.lit(child),
                    moment("last_end_at"),
                ),
            ),
        ]
    return pl.concat(found)


def roll_ups(cases: Cases) -> pl.DataFrame:
    """Requests whose sessions have all ended: what the three rules say, and the request."""
    whole = _family(cases, "invocation", "session", "invocation_id").filter(
        "is_over", pl.col("n_open") == 0, pl.col("n_legacy") == 0
    )
    numbered = whole.with_row_index("parent").with_columns(pl.col("parent").cast(pl.Int64))
    children = (
        cases.of_system("lionagi")
        .filter(pl.col("entity_type") == "session")
        .sort("created_at", nulls_last=False, maintain_order=True)
        .select("source", "system", "invocation_id", "reason_code", status="raw_status")
        .join(
            numbered.select("source", "system", "parent", invocation_id="entity_id"),
            on=["source", "system", "invocation_id"],
            how="inner",
            maintain_order="left",
        )
        .with_columns(position=pl.int_range(pl.len(), dtype=pl.Int64).over("parent"))
    )
    rolled = roll_up(numbered.select("parent"), children, by="parent").drop("n_children")
    answers = ("invocation_status", "grading_status", "lifecycle_status", "worst_status")
    both = numbered.join(rolled, on="parent", how="inner").with_columns(
        is_agreed=pl.all_horizontal(pl.col(answers[0]) == pl.col(name) for name in answers[1:3]),
        is_backed=pl.any_horizontal(pl.col("raw_status") == pl.col(name) for name in answers),
    )
    said = pl.format("invocation {} of {} sessions", word("raw_status"), "n_children")
    against = pl.format(
        "scheduler {}, run view {}, li lifecycle {}, worst {}", *(word(name) for name in answers)
    )
    return pl.concat(
        [
            told(
                both.filter(~pl.col("is_backed")),
                "audit.parent_contradicts_children",
                at="ended_at",
                says=said,
                against=against,
            ),
            told(
                both.filter(pl.col("is_backed") & ~pl.col("is_agreed")),
                "audit.rollups_disagree",
                at="ended_at",
                says=said,
                against=against,
            ),
        ]
    )


def plays_and_sessions(cases: Cases) -> pl.DataFrame:
    """Plays that are over while their session is not, or at work long after it ended."""
    rows = cases.of_system("lionagi")
    sessions = rows.filter(pl.col("entity_type") == "session").select(
        "source",
        "session_id",
        child_status="raw_status",
        child_is_open="is_open",
        child_is_over="is_over",
        child_ended_at="ended_at",
    )
    both = rows.filter(pl.col("entity_type") == "play").join(
        sessions, on=["source", "session_id"], how="inner"
    )
    since_s = (pl.lit(cases.facts.as_of) - pl.col("child_ended_at")).dt.total_microseconds() / 1e6
    said = pl.format("play {}", word("raw_status"))
    return pl.concat(
        [
            told(
                both.filter("is_over", "child_is_open"),
                "audit.parent_ended_before_children",
                at="ended_at",
                says=said,
                against=pl.format("its session is {}", word("child_status")),
            ),
            told(
                both.filter(
                    pl.col("lifecycle") == "running",
                    "child_is_over",
                    since_s > cases.policy.idle_after_s,
                ),
                "audit.parent_open_after_children",
                at="child_ended_at",
                says=said,
                against=pl.format(
                    "its session {} since {}", word("child_status"), moment("child_ended_at")
                ),
            ),
            told(
                both.filter(
                    pl.col("outcome") == "merged",
                    "child_is_over",
                    pl.col("child_status").is_in(["failed", "timed_out", "aborted", "cancelled"]),
                ),
                "audit.parent_contradicts_children",
                at="ended_at",
                says=said,
                against=pl.format("its session {}", word("child_status")),
            ),
        ]
    )


def fires_and_requests(cases: Cases) -> pl.DataFrame:
    """Fires of a schedule that ended well though their request did not, or the reverse."""
    rows = cases.of_system("lionagi").filter("is_over")
    outcome = pl.col("outcome").replace(_OUTCOMES)
    requests = rows.filter(pl.col("entity_type") == "invocation").select(
        "source", invocation_id="entity_id", child_status="raw_status", child_outcome=outcome
    )
    both = (
        rows.filter(pl.col("entity_type") == "schedule_run")
        .join(requests, on=["source", "invocation_id"], how="inner")
        .filter((outcome == "completed") != (pl.col("child_outcome") == "completed"))
    )
    return told(
        both,
        "audit.parent_contradicts_children",
        at="ended_at",
        says=pl.format("schedule run {}", word("raw_status")),
        against=pl.format("its invocation {}", word("child_status")),
    )


def _family(cases: Cases, parent: str, child: str, column: str) -> pl.DataFrame:
    """Parents that have children here, with how many are open and when the last one ended."""
    rows = cases.of_system("lionagi")
    children = (
        rows.filter(pl.col("entity_type") == child, pl.col(column).is_not_null())
        .group_by("source", "system", entity_id=column)
        .agg(
            n_here=pl.len(),
            n_open=pl.col("is_open").sum(),
            n_legacy=(~pl.col("is_open") & ~pl.col("is_over")).sum(),
            last_end_at=pl.max_horizontal("ended_at", "last_activity_at").max(),
        )
    )
    return (
        rows.filter(pl.col("entity_type") == parent)
        .join(children, on=["source", "system", "entity_id"], how="inner")
        .with_columns(n_children="n_here")
    )

"""Parents against their children: a request and its sessions, a show and its plays."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.audit import Cases, family, moment, told, word

_WORK = ["source", "system"]
# (parent, child, the child's column that names the parent). A play does not contain its
# session but follows it, through a gate that may refuse: only their being over is compared.
_FAMILIES = (
    ("invocation", "session", "invocation_id"),
    ("show", "play", "parent_id"),
)
# Words for the same end, where parent and roll-up use different ones.
_OUTCOMES = {"succeeded": "completed"}


def over_or_open(cases: Cases) -> pl.DataFrame:
    """Parents that ended before a child, or stay open after the last one ended."""
    found = []
    for parent, child, column in _FAMILIES:
        grouped = family(cases.rows, parent, child, column)
        late = grouped.filter("is_over", pl.col("n_open") > 0)
        # A request may go on by itself for a while, and a show waits for its gate.
        quiet_s = cases.policy.idle_after_s
        since_s = (pl.lit(cases.facts.as_of) - pl.col("last_end_at")).dt.total_microseconds() / 1e6
        forgotten = grouped.filter(
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


def plays_and_sessions(cases: Cases) -> pl.DataFrame:
    """Plays that are over while their session is not, or at work long after it ended."""
    rows = cases.rows
    sessions = rows.filter(pl.col("entity_type") == "session").select(
        *_WORK,
        "session_id",
        child_status="raw_status",
        child_is_open="is_open",
        child_is_over="is_over",
        child_ended_at="ended_at",
    )
    both = rows.filter(pl.col("entity_type") == "play").join(
        sessions, on=[*_WORK, "session_id"], how="inner"
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
    rows = cases.rows.filter("is_over")
    outcome = pl.col("outcome").replace(_OUTCOMES)
    requests = rows.filter(pl.col("entity_type") == "invocation").select(
        *_WORK, invocation_id="entity_id", child_status="raw_status", child_outcome=outcome
    )
    both = (
        rows.filter(pl.col("entity_type") == "schedule_run")
        .join(requests, on=[*_WORK, "invocation_id"], how="inner")
        .filter((outcome == "completed") != (pl.col("child_outcome") == "completed"))
    )
    return told(
        both,
        "audit.parent_contradicts_children",
        at="ended_at",
        says=pl.format("schedule run {}", word("raw_status")),
        against=pl.format("its invocation {}", word("child_status")),
    )

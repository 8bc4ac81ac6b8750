"""An alarm on this week's failures that is as honest on Thursday as on Monday."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.schema import INTEGER, MOMENT, REAL, TEXT, Column, Frame
from stateanalytics.core.windows import Window, iso_week, weeks_up_to
from stateanalytics.errors import check_share
from stateanalytics.failures.failure_rows import ended_runs, find_members, judged_rows
from stateanalytics.failures.weekly_change import dispersions
from stateanalytics.state.policy import Policy
from stateanalytics.stats.process_control import evidence_of_more, usual_rate
from stateanalytics.weekly_limits import FEWEST_WEEKS, MOST_WEEKS, numbers_of_ended

ALARM = Frame(
    "failure_alarm",
    "whether incidents of failed runs are more this week, so far, than chance does",
    ("week",),
    (
        Column("week", TEXT, "the ISO week that holds as-of"),
        Column("at", MOMENT, "the moment of the look"),
        Column("n_incidents", INTEGER, "incidents of failed runs so far"),
        Column("n_runs", INTEGER, "runs that ended so far"),
        Column("n_expected", REAL, "incidents of so many runs in the weeks before"),
        Column("n_weeks", INTEGER, "weeks before that this was learned from"),
        Column("dispersion", REAL, "so many incidents count as one, because they come in bursts"),
        Column("evidence", REAL, "how many times likelier at a higher rate; null: too few weeks"),
        Column("is_alarm", pl.Boolean(), "whether chance does this in at most one of 20 weeks"),
        Column("in_words", TEXT, "the same as a sentence"),
    ),
)


def failure_alarm(
    snap: Facts, *, policy: Policy | None = None, alpha: float = 0.05
) -> pl.DataFrame:
    """Whether more fails this week, so far, than chance lets one see at any look at it.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave; its as-of is the moment of the look.
    policy : Policy, optional
        Which states count; v1 by default.
    alpha : float
        In how many usual weeks an alarm may come at all, looked at however often.

    Returns
    -------
    polars.DataFrame, shape (1, 10)
        `ALARM`.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, or ``alpha`` is not between 0 and 1.

    Notes
    -----
    Limits for a whole week are broken by chance far more often than they say when one looks
    every hour. Here the evidence itself is read: see `evidence_of_more`. Incidents are held
    against the runs that ended, so that a quiet Sunday is no good news and a busy Monday no
    bad news. The rate of a week varies as it did in 8 to 26 whole weeks before, and what
    comes in bursts counts less (`dispersions`).

    Examples
    --------
    >>> from stateanalytics import demo
    >>> failure_alarm(demo())["in_words"].item()
    '7 incidents in 20 ended runs of 2026-W22 so far, 3.5 expected by 11 weeks before: no alarm.'
    """
    checked_snapshot(snap, "failure_alarm")
    check_share("alpha", alpha, 0.05)
    *before, now = (
        replace(week, label=iso_week(week.since))
        for week in weeks_up_to(snap.as_of, MOST_WEEKS + 1)
    )
    ever = judged_rows(snap, policy)
    ended = ended_runs(ever)
    begins = ended.select(pl.min_horizontal("created_at", "started_at", "ended_at").min()).item()
    weeks = [week for week in before if begins is not None and begins <= week.since]
    failed = find_members(snap, policy=policy, rows=ever)
    numbers = numbers_of_ended(ever, failed, (*weeks, now), snap.as_of)
    counts = (
        numbers.filter(measure="incidents")
        .select("week", n_incidents="n")
        .join(
            numbers.filter(measure="completed").select("week", n_runs="n_of"),
            on="week", maintain_order="left",
        )
    )  # fmt: skip
    *earlier, this = counts.iter_rows(named=True)
    known = [week for week in earlier if week["n_runs"]]
    row: dict[str, Any] = {**this, "at": snap.as_of, "n_weeks": len(known), "is_alarm": False}
    if len(known) < FEWEST_WEEKS:
        row["in_words"] = (
            f"Nothing is known of what is usual: {len(known)} of the {FEWEST_WEEKS} whole "
            "weeks before that it takes."
        )
        return ALARM.conform(pl.DataFrame([row]))
    bursts = _dispersion(failed, ended, weeks, now)
    usual = usual_rate(
        [week["n_incidents"] / bursts for week in known],
        [week["n_runs"] / bursts for week in known],
    )
    row |= {
        "n_expected": usual.mean * this["n_runs"],
        "dispersion": bursts,
        "evidence": evidence_of_more(this["n_incidents"] / bursts, this["n_runs"] / bursts, usual),
    }
    row["is_alarm"] = row["evidence"] >= 1 / alpha
    row["in_words"] = _said(row, alpha)
    return ALARM.conform(pl.DataFrame([row]))


def _dispersion(
    failed: pl.DataFrame, ended: pl.DataFrame, weeks: list[Window], now: Window
) -> float:
    """By how much more than by chance incidents vary from day to day within weeks.

    Of the weeks before alone: what this week brings must not change how it is read.
    """
    is_before = pl.col("at").is_between(weeks[0].since, now.since, closed="left")
    first = (
        failed.filter(pl.col("entity_type") == "session")
        .group_by(incident=pl.coalesce("incident_id", "cause"))
        .agg(at=pl.col("failed_at").min())
    )
    seen = first.filter(is_before).with_columns(cluster_id=pl.lit("all"))
    found = dispersions(seen, ended.select(at="placed_at").filter(is_before), now)
    return float(found["dispersion"][0]) if found.height else 1.0


def _said(row: dict[str, Any], alpha: float) -> str:
    n, of = row["n_incidents"], row["n_runs"]
    seen = (
        f"{n} incident{'' if n == 1 else 's'} in {of:,} ended runs of {row['week']} so far, "
        f"{row['n_expected']:.1f} expected by {row['n_weeks']} weeks before"
    )
    if not row["is_alarm"]:
        return f"{seen}: no alarm."
    often = f"{100 * alpha:g} of 100 weeks"
    return f"{seen}: chance does that in at most {often}, however often one looks."

"""The life of a failure: new, back, growing, ongoing or gone, and who looks after it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core.facts import checked_snapshot
from stateanalytics.core.windows import Window, read_window
from stateanalytics.errors import check_share
from stateanalytics.failures.clustering import KEY
from stateanalytics.failures.counting import COSTS, by_cost, count_groups
from stateanalytics.failures.failure_rows import find_members, judged_rows, placed_runs
from stateanalytics.failures.known_ids import find_entries
from stateanalytics.failures.ownership import SCHEMA, checked_ledger
from stateanalytics.failures.weekly_change import (
    QUIET_WEEKS,
    as_long_before,
    compare_stretches,
    quiet_weeks,
)

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.state.policy import Policy

STATES = ("new", "back", "growing", "ongoing", "gone", "unknown")
"""What a life is; unknown: the ledger names it, and nothing failed so."""

_LEDGER = tuple(name for name in SCHEMA if name not in KEY)
COLUMNS = (
    *(*KEY, "cause_group", "rule_name", "state"),
    *("first_at", "last_at", "n_quiet_weeks", "n_causes_before", "n_causes", "n_causes_ever"),
    *("n_incidents_before", "n_incidents", "n_rows", *COSTS, "ratio", "q_value"),
    *("ledger_id", *_LEDGER, "is_back", "is_expected"),
)


def life(
    snap: Facts,
    *,
    window: object = None,
    ledger: str | Path | pl.DataFrame | None = None,
    policy: Policy | None = None,
    rules: object = None,
    fdr: float = 0.05,
) -> pl.DataFrame:
    """What becomes of each failure over all history, what it costs, and whose it is.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave; of an archive, its whole history.
    window : str, pair of moments or Window, optional
        Now: as in `read_window`; None: the seven days up to as-of. Later failures are not
        looked at.
    ledger : path or polars.DataFrame, optional
        What `owners` reads, or gave; or the same as `polars.read_csv` gives it.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    fdr : float
        The share of false alarms among growing clusters that is accepted, as for `change`.

    Returns
    -------
    polars.DataFrame, shape (n_clusters, 30)
        See `add_life`; beside it the key of `clusters`, ``cause_group``, ``rule_name``;
        ``n_causes`` now, ``n_causes_before`` in the stretch before and ``n_causes_ever``;
        ``n_incidents`` of both stretches; ``n_rows``, ``run_s``, ``n_tokens`` and ``cost_usd``
        now (null: not reported, or nothing failed now); ``ratio`` and ``q_value``
        of `change`. What costs most comes first: see `by_cost`.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, the window makes no sense, a rule or the ledger cannot
        be used, or ``fdr`` is not between 0 and 1.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> sa_life = life(demo(), window="2026-W21")
    >>> sa_life["state"].dtype == pl.Enum(STATES)
    True
    """
    check_share("fdr", fdr, 0.05)
    now = read_window(window, as_of=checked_snapshot(snap, "failures.life").as_of)
    entries = None if ledger is None else checked_ledger(ledger, "failures.life")
    every = judged_rows(snap, policy)
    rows = find_members(snap, rules=rules, rows=every)
    return count_lives(rows, every, now, as_of=snap.as_of, entries=entries, fdr=fdr)


def count_lives(
    rows: pl.DataFrame,
    every: pl.DataFrame,
    now: Window,
    *,
    as_of: datetime,
    entries: pl.DataFrame | None = None,
    fdr: float = 0.05,
) -> pl.DataFrame:
    """Tell the lives of `members` of all time; ``every`` is the `population`. See `life`."""
    past = as_long_before(now)
    known = rows.filter(pl.col("failed_at") < now.until)
    ended = placed_runs(every)
    changed = compare_stretches(
        (known, known), (now, past), (ended, ended), as_of=(as_of, as_of), fdr=fdr
    ).select(
        *("cluster_id", "status", "n_incidents_before", "n_incidents", "n_rows"),
        *("ratio", "q_value"),
    )
    here = known.filter(pl.col("failed_at") >= now.since)
    costs = count_groups(here, ["cluster_id"]).select("cluster_id", *COSTS)
    ever = known.group_by(KEY).agg(
        pl.col("cause_group").first(), pl.col("rule_name").sort().first()
    )
    lives = (
        count_stretches(known, now, past)
        .join(changed, on="cluster_id", how="left")
        .join(ever, on="cluster_id", how="left")
        .join(costs, on="cluster_id", how="left")
        .with_columns(pl.col("n_incidents_before", "n_incidents", "n_rows").fill_null(0))
    )
    said = pl.DataFrame(schema=SCHEMA) if entries is None else entries
    return by_cost(add_life(lives, now, find_entries(said, known)), "cluster_id").select(COLUMNS)


def count_stretches(rows: pl.DataFrame, now: Window, past: Window) -> pl.DataFrame:
    """When each cluster failed first and last, and of how many causes now, before and ever.

    Parameters
    ----------
    rows : polars.DataFrame
        `members`, none of them after the end of ``now``.
    now, past : Window
        The stretch that is looked at, and the one just before.

    Returns
    -------
    polars.DataFrame
        ``cluster_id``, ``first_at``, ``last_at``, ``n_quiet_weeks`` (see `quiet_weeks`),
        ``n_causes``, ``n_causes_before``, ``n_causes_ever``.
    """
    failed_at, causes = pl.col("failed_at"), pl.col("cause")
    is_now = failed_at >= now.since
    is_past = failed_at.is_between(past.since, past.until, closed="left")
    return rows.group_by("cluster_id").agg(
        first_at=failed_at.min(),
        last_at=failed_at.max(),
        n_quiet_weeks=quiet_weeks(now),
        n_causes=causes.filter(is_now).n_unique().cast(pl.Int64),
        n_causes_before=causes.filter(is_past).n_unique().cast(pl.Int64),
        n_causes_ever=causes.n_unique().cast(pl.Int64),
    )


def add_life(counts: pl.DataFrame, now: Window, entries: pl.DataFrame) -> pl.DataFrame:
    """Add the state of each cluster, and what the ledger says of it.

    Parameters
    ----------
    counts : polars.DataFrame
        What `count_stretches` gave, with the ``status`` of `change` (null: in neither
        stretch).
    now : Window
        The stretch that is looked at.
    entries : polars.DataFrame
        What `owners` gave, with ``ledger_id`` and ``last_of_it_at``: see `find_entries`.

    Returns
    -------
    polars.DataFrame
        ``counts`` and a row for each entry of no cluster, with ``state`` (`STATES`: new,
        where nothing failed so before; back after at least `QUIET_WEEKS` weeks
        without it; growing, as `change` says; gone, where nothing fails so now);
        the columns of the ledger and ``ledger_id``, the id it has there (another where the
        cluster's id has changed since); ``is_back``: it is said to be resolved, and what has
        the id of the ledger failed after that day (null: not said, or not since when, or found
        by its template); ``is_expected``: it is said to go on until a day that the window does
        not end after (null: not said).
    """
    is_gone = pl.col("n_causes") == 0
    state = (
        pl.when(pl.col("first_at").is_null())
        .then(pl.lit("unknown"))
        .when(is_gone)
        .then(pl.lit("gone"))
        .when(pl.col("n_quiet_weeks").is_null())
        .then(pl.lit("new"))
        .when(pl.col("n_quiet_weeks") >= QUIET_WEEKS)
        .then(pl.lit("back"))
        .when(pl.col("status") == "growing")
        .then(pl.lit("growing"))
        .otherwise(pl.lit("ongoing"))
    )
    last_day = (now.until - timedelta(microseconds=1)).date()
    return (
        counts.join(entries, on="cluster_id", how="full", coalesce=True, suffix="_said")
        .with_columns(pl.coalesce(name, f"{name}_said") for name in ("code", "template"))
        .with_columns(
            pl.col("n_causes", "n_causes_before", "n_causes_ever").fill_null(0),
            state=state.cast(pl.Enum(STATES)),
            is_back=pl.col("last_of_it_at").dt.date() > pl.col("resolved_on"),
            is_expected=pl.col("expected_until") >= last_day,
        )
    )

"""The life of a failure: new, back, growing, ongoing, quiet or gone; its owner, and its former ids.

An id is a digest of code and template, so it changes where more messages make a template
wider, and where a new version of the miner makes another template. A ledger entry belongs to
the cluster that has its id now or had it before, or that its template is mined into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from stateanalytics.core.facts import checked_snapshot
from stateanalytics.core.windows import Window, read_window
from stateanalytics.errors import check_share
from stateanalytics.failures import templates
from stateanalytics.failures.call_outcomes import RUNS
from stateanalytics.failures.clustering import KEY
from stateanalytics.failures.counting import COSTS, count_groups, sorted_by_cost
from stateanalytics.failures.failure_rows import cluster_id, find_members, judged_rows, placed_runs
from stateanalytics.failures.frames import ALIASES, LIFE
from stateanalytics.failures.ownership import SCHEMA, checked_ledger
from stateanalytics.failures.weekly_change import (
    compare_periods,
    is_back,
    is_no_chance,
    n_quiet_weeks,
    period_before,
    quiet_chance,
    quiet_until,
)

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.state.policy import Policy

STATES = ("new", "back", "growing", "ongoing", "quiet", "gone", "unknown")
"""States of a failure; unknown: the ledger names it, and nothing of it failed."""

_LEDGER = tuple(name for name in SCHEMA if name not in KEY)


class Miner(NamedTuple):
    """A release's miner of templates: like `templates.mine_with_parts`, under its version."""

    version: str
    mine: Callable[[pl.Series], pl.DataFrame]


#: Where the rules that make ids change, the former ones stay here for one release.
FORMER: tuple[Miner, ...] = ()


def life(
    snap: Facts,
    *,
    window: object = None,
    ledger: str | Path | pl.DataFrame | None = None,
    policy: Policy | None = None,
    rules: object = None,
    fdr: float = 0.05,
    of: str = RUNS,
) -> pl.DataFrame:
    """The state of each failure over all history, its cost and its owner.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`; of an archive, its whole history.
    window : str, pair of moments or Window, optional
        Now: as in `read_window`; None: the seven days up to as-of. Later failures are not
        looked at.
    ledger : path or polars.DataFrame, optional
        A file that `owners` reads, its result, or the same as `polars.read_csv` gives it.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    fdr : float
        The share of false alarms among growing clusters that is accepted, as for `change`.
    of : str
        runs, or calls: the calls of tools inside of runs.

    Returns
    -------
    polars.DataFrame, shape (n_clusters, 32)
        The key of `clusters`, ``cause_group``, ``rule_name``; ``state`` (`STATES`: new,
        where nothing failed before; back after at least `QUIET_WEEKS` weeks without a failure
        that are no chance; growing, as in `change`; gone, where nothing fails now and that is no
        chance; quiet, where it may be); ``first_at``, ``last_at``, ``n_quiet_weeks`` without a
        failure and ``quiet_chance``, the chance of that at the rate before it (null: never
        before); ``quiet_chance_before``, that of the part before the window;
        ``n_causes`` now, ``n_causes_before`` in the period before and ``n_causes_ever``;
        ``n_incidents`` of both periods; ``n_rows``, ``run_s``, ``n_tokens`` and ``cost_usd``
        now (null: not reported, or nothing failed now); ``ratio`` and ``q_value``
        of `change`; the columns of the ledger and ``ledger_id``, the id it has there (another
        where the cluster's id has changed since); ``is_back``: the ledger has it as resolved,
        and the id of the ledger failed after that day (null: not resolved, no day, or matched
        by its template); ``is_expected``: expected until a day that the window does not end
        after (null: not expected). Entries of no cluster have rows, too. The most expensive
        first: see `sorted_by_cost`.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, the window makes no sense, a rule or the ledger cannot
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
    every = judged_rows(snap, policy, of)
    rows = find_members(snap, rules=rules, rows=every, of=of)
    ended = placed_runs(every, of)
    return count_lives(rows, ended, now, as_of=snap.as_of, entries=entries, fdr=fdr)


def count_lives(
    rows: pl.DataFrame,
    ended: pl.DataFrame,
    now: Window,
    *,
    as_of: datetime,
    entries: pl.DataFrame | None = None,
    fdr: float = 0.05,
) -> pl.DataFrame:
    """The `life` of `members` of all time; ``ended`` are all `placed_runs`."""
    past = period_before(now)
    known = rows.filter(pl.col("failed_at") < now.until)
    changed = compare_periods(
        (known, known), (now, past), (ended, ended), as_of=(as_of, as_of), fdr=fdr
    ).select(
        *("cluster_id", "status", "n_incidents_before", "n_incidents", "n_rows"),
        *("ratio", "q_value"),
    )
    here = known.filter(pl.col("failed_at") >= now.since)
    costs = count_groups(here, ["cluster_id"]).select("cluster_id", *COSTS)
    failed_at, causes = pl.col("failed_at"), pl.col("cause")
    is_past = failed_at.is_between(past.since, past.until, closed="left")
    lives = (
        known.group_by(KEY)
        .agg(
            pl.col("cause_group").first(),
            pl.col("rule_name").sort().first(),
            first_at=failed_at.min(),
            last_at=failed_at.max(),
            n_quiet_weeks=n_quiet_weeks(now),
            quiet_chance=quiet_chance(now.since, quiet_until(now)),
            quiet_chance_before=quiet_chance(now.since, pl.lit(now.since)),
            n_causes=causes.filter(failed_at >= now.since).n_unique().cast(pl.Int64),
            n_causes_before=causes.filter(is_past).n_unique().cast(pl.Int64),
            n_causes_ever=causes.n_unique().cast(pl.Int64),
        )
        .join(changed, on="cluster_id", how="left")
        .join(costs, on="cluster_id", how="left")
        .with_columns(pl.col("n_incidents_before", "n_incidents", "n_rows").fill_null(0))
    )
    ledger = find_entries(pl.DataFrame(schema=SCHEMA) if entries is None else entries, known)
    return sorted_by_cost(_with_ledger(lives, now, ledger), "cluster_id").select(
        LIFE.dtypes.names()
    )


def _with_ledger(lives: pl.DataFrame, now: Window, entries: pl.DataFrame) -> pl.DataFrame:
    """Lives with the entries of the ledger, and a row for each entry of no cluster."""
    state = (
        pl.when(pl.col("first_at").is_null())
        .then(pl.lit("unknown"))
        .when(pl.col("n_causes") == 0)
        .then(pl.when(is_no_chance()).then(pl.lit("gone")).otherwise(pl.lit("quiet")))
        .when(pl.col("n_quiet_weeks").is_null())
        .then(pl.lit("new"))
        .when(is_back())
        .then(pl.lit("back"))
        .when(pl.col("status") == "growing")
        .then(pl.lit("growing"))
        .otherwise(pl.lit("ongoing"))
    )
    last_day = (now.until - timedelta(microseconds=1)).date()
    return (
        lives.join(entries, on="cluster_id", how="full", coalesce=True, suffix="_in_ledger")
        .with_columns(pl.coalesce(name, f"{name}_in_ledger") for name in ("code", "template"))
        .with_columns(
            pl.col("n_causes", "n_causes_before", "n_causes_ever").fill_null(0),
            state=state.cast(pl.Enum(STATES)),
            is_back=pl.col("last_of_id_at").dt.date() > pl.col("resolved_on"),
            is_expected=pl.col("expected_until") >= last_day,
        )
    )


def aliases(
    snap: Facts, *, policy: Policy | None = None, rules: object = None, of: str = RUNS
) -> pl.DataFrame:
    """Other ids of each cluster, over all history.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    of : str
        runs, or calls: the calls of tools inside of runs.

    Returns
    -------
    polars.DataFrame, shape (n_aliases, 6)
        ``alias_id``, unique; ``cluster_id``, ``code`` and ``template`` of today; ``n_rows`` and
        ``last_at`` of the rows that have, or would have had, that id. An alias is the id that
        messages have when they are mined without the others, or with a former release of the
        miner. Where several clusters have it, the one with most such rows.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, or a rule cannot be used.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> known = aliases(demo())
    >>> known["alias_id"].is_unique().all()
    True
    """
    return find_aliases(find_members(snap, policy=policy, rules=rules, of=of))


def find_aliases(rows: pl.DataFrame) -> pl.DataFrame:
    """The `aliases` of `members` of all time."""
    current = Miner(templates.VERSION, templates.mine_with_parts)
    return _ids(rows, (current, *FORMER), ("template", "alone"))


def former_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """The ids that former releases gave the clusters of `members`, as a list each."""
    ids = _ids(rows, FORMER, ("template",)) if FORMER else ALIASES.empty()
    return ids.group_by("cluster_id").agg(former_ids=pl.col("alias_id").sort())


def _ids(rows: pl.DataFrame, miners: tuple[Miner, ...], columns: Iterable[str]) -> pl.DataFrame:
    """The other ids that these miners give the clusters of `members`, from these templates."""
    messages = rows.group_by("cluster_id", "code", "template", "message", "rule").agg(
        n_rows=pl.len().cast(pl.Int64), last_at=pl.col("failed_at").max()
    )
    texts = messages["message"].drop_nulls().unique().sort()
    names = [
        mined.select(pl.lit(miner.version).alias("version"), message=texts, named=column)
        for miner in miners
        for mined in [miner.mine(texts)]
        for column in columns
    ]
    # The template of a rule or of last steps is the same in every version.
    not_mined = messages.filter(pl.col("message").is_null() | pl.col("rule").is_not_null())
    own = [not_mined.with_columns(version=pl.lit(m.version), named="template") for m in miners]
    pairs = (
        pl.concat([messages.join(pl.concat(names), on="message"), *own], how="diagonal")
        .group_by("cluster_id", "code", "template", "version", "named")
        .agg(pl.col("n_rows").sum(), pl.col("last_at").max())
    )
    ids = [cluster_id(*named) for named in pairs.select("code", "named", "version").rows()]
    return (
        pairs.with_columns(alias_id=pl.Series(ids, dtype=pl.String))
        .filter(~pl.col("alias_id").is_in(rows["cluster_id"].unique().implode()))
        .sort("n_rows", "cluster_id", descending=[True, False])
        .unique("alias_id", keep="first", maintain_order=True)
        .sort("alias_id")
        .pipe(ALIASES.conform)
    )


def find_entries(entries: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Entries of a ledger with the ids that their clusters have now.

    Parameters
    ----------
    entries : polars.DataFrame
        Result of `owners`.
    rows : polars.DataFrame
        `members` of all time.

    Returns
    -------
    polars.DataFrame
        ``entries`` with ``ledger_id``, the id in the ledger, and ``last_of_id_at``,
        the last failure with that id. Where no row has it, ``cluster_id`` is the cluster that
        has it among its `aliases`, or else the one of the same code that the entry's template
        is mined into (``last_of_id_at`` is then null: the cluster may hold other failures,
        too); unless the ledger has an entry for that cluster as well. Of two entries that match
        one cluster, the one with fewer rows stays as it is.
    """
    named = entries.with_columns(ledger_id="cluster_id")
    own = rows.group_by("cluster_id").agg(last_of_id_at=pl.col("failed_at").max())
    lost = named.join(own, on="cluster_id", how="anti")
    if lost.is_empty() or rows.is_empty():
        return named.join(own, on="cluster_id", how="left", maintain_order="left")
    by_id = lost.join(find_aliases(rows), left_on="ledger_id", right_on="alias_id").select(
        "ledger_id", "n_rows", matched="cluster_id_right", last_matched_at="last_at"
    )
    by_text = _mined_into(lost.join(by_id, on="ledger_id", how="anti"), rows)
    best = (
        pl.concat([by_id, by_text], how="diagonal_relaxed")
        .filter(~pl.col("matched").is_in(entries["cluster_id"].implode()))
        .sort("n_rows", "ledger_id", "matched", descending=[True, False, False])
        .unique("ledger_id", keep="first", maintain_order=True)
        .unique("matched", keep="first", maintain_order=True)
    )
    return (
        named.join(best, on="ledger_id", how="left", maintain_order="left")
        .join(own, on="cluster_id", how="left", maintain_order="left")
        .with_columns(
            cluster_id=pl.coalesce("matched", "cluster_id"),
            last_of_id_at=pl.coalesce("last_matched_at", "last_of_id_at"),
        )
        .drop("matched", "n_rows", "last_matched_at")
    )


def _mined_into(lost: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The cluster that the template of an entry belongs to, mined as one more message."""
    # Some templates have a quote in front, which protects from formulas in spreadsheets.
    entries = lost.drop_nulls("template").select(
        "ledger_id", "code", message=pl.col("template").str.strip_prefix("'")
    )
    messages = rows.select("code", "message", matched="cluster_id").drop_nulls("message")
    texts = pl.concat([entries["message"], messages["message"]]).unique().sort()
    mined = templates.mine_templates(texts).select("template", message=texts)
    clusters = (
        messages.join(mined, on="message")
        .group_by("code", "template", "matched")
        .agg(n_rows=pl.len().cast(pl.Int64))
    )
    return (
        entries.join(mined, on="message")
        .join(clusters, on=["code", "template"], nulls_equal=True)
        .select("ledger_id", "n_rows", "matched")
    )

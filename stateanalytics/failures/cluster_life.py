"""The life of a failure: new, renamed, flapping, back, growing, quiet, gone; its owner and ids.

An id is a digest of code and template, so it changes when more messages make a template more
general, or when a new version of the miner makes another one. A ledger entry belongs to the
cluster that has or had its id, or else to the one that its template is mined into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import collected, left_joined
from stateanalytics.core.windows import TICK, WEEK, Window, instant, read_window
from stateanalytics.core.words import first_word
from stateanalytics.errors import check_share
from stateanalytics.failures import ownership, templates
from stateanalytics.failures.associations import LEAST, similar_texts
from stateanalytics.failures.call_outcomes import RUNS
from stateanalytics.failures.counting import COSTS, count_groups, sorted_by_cost
from stateanalytics.failures.failure_rows import cluster_id, find_members, judged_rows, placed_runs
from stateanalytics.failures.fault_registry import (
    FILE,
    REGISTRY,
    assign,
    changed_within,
    read_registry,
    with_registered,
)
from stateanalytics.failures.fault_table import KEY
from stateanalytics.failures.frames import ALIASES, ESCALATING, LIFE
from stateanalytics.failures.incident_grouping import members_within_each
from stateanalytics.failures.weekly_change import (
    QUIET_CHANCE,
    QUIET_WEEKS,
    all_periods,
    growth,
    is_back,
    n_quiet_weeks,
    new_chance,
    period_before,
    quiet_chance,
    quiet_until,
    source_histories,
)
from stateanalytics.io.outputs import alone_in
from stateanalytics.state.policy import Policy
from stateanalytics.systems.history import begins_of

STATES = (
    *("new", "renamed", "flapping", "back", "growing", "ongoing", "quiet", "gone", "unknown"),
)
"""States of a failure; unknown: the ledger names it, and nothing of it failed."""
FLAPPING_WEEKS = 26
"""A failure that came back twice in so many weeks is flapping."""

ESCALATION_H, ESCALATION, TIMES_USUAL = 3, 10, 3
"""Escalating: hours, fewest failed requests in them, and how many times the week's maximum."""

_COUNTED = ("n_causes", "n_incidents", "n_rows")
_LEDGER = tuple(name for name in ownership.SCHEMA if name not in KEY)


class Miner(NamedTuple):
    """A release's miner of templates: like `templates.mine_with_parts`, under its version."""

    version: str
    mine: Callable[[pl.Series], pl.DataFrame]


#: When the rules that make ids change, the former ones are kept here for one release.
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
    registry: object = None,
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
        The share of false alarms among growing clusters that is accepted.
    of : str
        runs, or calls: the calls of tools inside of runs.
    registry : path or polars.DataFrame, optional
        Ids of faults from a file that `register` wrote.

    Returns
    -------
    polars.DataFrame, shape (n_clusters, 38)
        The key of `clusters`, ``fault_id``, ``registry_change`` (as in `faults`),
        ``cause_group``, ``rule_name``; ``state`` (`STATES`: new,
        where nothing failed before; renamed, where it is the same failure in other words as the
        cluster ``renamed_from``, which is over, or ``renamed_to``, which it became; flapping, where
        it reappeared at least twice in `FLAPPING_WEEKS` weeks (``n_comebacks``); back after at
        least `QUIET_WEEKS` weeks without a failure that chance does not explain; growing, where
        this week, this week and the last, or the last four have more than the 24 weeks before
        (`growth`); gone, where nothing fails in a window that is over and chance does not explain
        it; quiet, where chance may explain it, or where it was absent as long before);
        ``first_at``, ``last_at``,
        ``n_quiet_weeks`` without a failure and ``quiet_chance``, the chance of that at the rate
        before it (null: never before); ``quiet_chance_before``, that of the part before the window;
        ``new_chance``, that of none in the earlier history of its sources, where it is new;
        ``n_causes`` now, ``n_causes_before`` in the period before and ``n_causes_ever``;
        ``n_incidents`` of both periods; ``n_rows``, ``run_s``, ``n_tokens`` and ``cost_usd`` now
        (null: not reported, or nothing failed now); ``ratio`` of the incidents per run to those of
        the 24 weeks before, and ``q_value`` of the test of growth; the columns of the ledger and
        ``ledger_id``, the id it has there (another where the cluster's id has changed since);
        ``is_back``: the ledger has it as resolved, and the id of the ledger failed after that day
        (null: not resolved, no day, or matched by its template); ``is_expected``: expected until a
        day that the window does not end after (null: not expected). Entries of no cluster have
        rows, too. The most expensive first: see `sorted_by_cost`.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, the window makes no sense, a rule or the ledger cannot
        be used, or ``fdr`` is not between 0 and 1.

    Notes
    -----
    A cluster is renamed where one that is over (so long without it has a chance below 1 %) is
    followed within two weeks by one of the same cause group, else of the same code, whose
    text is as near as those that `related` suggests.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> sa_life = life(demo(), window="2026-W21")
    >>> sa_life["state"].dtype == pl.Enum(STATES)
    True
    """
    check_share("fdr", fdr, 0.05)
    now = read_window(window, as_of=checked_snapshot(snap, "failures.life").as_of)
    entries = None if ledger is None else ownership.checked_ledger(ledger, "failures.life")
    every = judged_rows(snap, policy, of)
    rows = find_members(snap, rules=rules, rows=every, of=of)
    rows = with_registered(rows, registry, "failures.life")
    changed = changed_within(registry, now, "failures.life")
    ended = placed_runs(every, of)
    counted = count_lives(
        rows,
        ended,
        now,
        as_of=snap.as_of,
        entries=entries,
        fdr=fdr,
        begins=begins_of(snap.entities),
    )
    return counted.update(changed, on="fault_id")


def count_lives(
    rows: pl.DataFrame,
    ended: pl.DataFrame,
    now: Window,
    *,
    as_of: datetime,
    entries: pl.DataFrame | None = None,
    fdr: float = 0.05,
    begins: Mapping[str, datetime] | None = None,
) -> pl.DataFrame:
    """The `life` of `members` of all time; ``ended`` are all `placed_runs`.

    ``begins`` is when the data of each source begin; None: before the window.
    """
    known = rows.filter(pl.col("failed_at") < instant(now.until))
    periods = (now, period_before(now), all_periods(now))
    members = members_within_each(known, periods, as_of, begins or {})
    here, before = (count_groups(members[period], ["cluster_id"]).lazy() for period in periods[:2])
    # In a week that is not over, silence only counts up to now.
    seen = replace(now, until=min(now.until, as_of) if as_of > now.since else now.until)
    failed_at, causes = pl.col("failed_at"), pl.col("cause")
    since = instant(now.since)
    days = (failed_at - failed_at.min()).dt.total_days().unique().sort()
    recent = (instant(seen.until) - failed_at.min()).dt.total_days() - 7 * FLAPPING_WEEKS
    # Like `quiet_chance`, for each silence between two days with a failure.
    away_chance = (days.shift(1) / days).pow(days.cum_count().cast(pl.Int64) - 2)
    is_back_on_day = (days.diff() >= 7 * QUIET_WEEKS) & (away_chance < QUIET_CHANCE)
    on_id: Any = {"on": "cluster_id", "how": "left"}
    lives = (
        known.lazy()
        .join(source_histories(ended, seen), on="source", how="left")
        # Without ended runs, the history of a source begins with its first failure.
        .with_columns(known_since=pl.min_horizontal("known_since", failed_at.min().over("source")))
        .group_by(KEY)
        .agg(
            pl.col("cause_group", "fault_id").first(),
            pl.col("rule_name").sort().first(),
            registry_change=pl.lit(None, pl.String),
            first_at=failed_at.min(),
            last_at=failed_at.max(),
            n_quiet_weeks=n_quiet_weeks(seen),
            new_chance=pl.when(failed_at.min() >= since).then(new_chance(seen)),
            quiet_chance=quiet_chance(now.since, quiet_until(seen)),
            silence_chance=quiet_chance(seen.until, instant(seen.until)),
            quiet_chance_before=quiet_chance(now.since, since),
            n_comebacks=(is_back_on_day & (days >= recent)).sum().cast(pl.Int64),
            n_days_away=days.diff().filter(is_back_on_day).max(),
            n_causes_ever=causes.n_unique().cast(pl.Int64),
        )
        .join(before.select("cluster_id", pl.col(_COUNTED[:2]).name.suffix("_before")), **on_id)
        .join(here.select("cluster_id", *_COUNTED, *COSTS), **on_id)
        .join(growth(known, members[periods[2]], ended, now, as_of=as_of, fdr=fdr).lazy(), **on_id)
        .with_columns(
            pl.col(*_COUNTED, "n_causes_before", "n_incidents_before").fill_null(0),
            is_growing=pl.col("q_value") <= fdr,
            # In a week that is not over, the failure may still come.
            chance_at_end="quiet_chance" if now.until <= as_of + TICK else "quiet_chance_before",
        )
        .pipe(collected)
        .pipe(_with_renames)
    )
    ledger = find_entries(
        pl.DataFrame(schema=ownership.SCHEMA) if entries is None else entries, known
    )
    return sorted_by_cost(_with_ledger(lives, now, ledger), "cluster_id")[LIFE.dtypes.names()]


def _with_ledger(lives: pl.DataFrame, now: Window, entries: pl.DataFrame) -> pl.DataFrame:
    """Lives with the entries of the ledger, and a row for each entry without a cluster."""
    is_flapping = (pl.col("n_comebacks") > 1).fill_null(value=False)
    # A flapping failure is gone only after a longer absence than any before.
    is_usual = is_flapping & (pl.col("n_quiet_weeks") * 7 <= pl.col("n_days_away"))
    is_gone = (pl.col("chance_at_end") < QUIET_CHANCE) & ~is_usual
    is_absent, is_first = pl.col("n_causes") == 0, pl.col("n_quiet_weeks").is_null()
    is_in_other_words = ~is_absent & is_first & pl.col("renamed_from").is_not_null()
    state = first_word(
        "ongoing",
        unknown=pl.col("first_at").is_null(),
        renamed=pl.col("renamed_to").is_not_null() | is_in_other_words,
        gone=is_absent & is_gone,
        quiet=is_absent,
        new=is_first,
        flapping=is_flapping,
        back=is_back(),
        growing="is_growing",
    )
    last_day = (now.until - timedelta(microseconds=1)).date()
    return collected(
        lives.lazy()
        .join(entries.lazy(), on="cluster_id", how="full", coalesce=True, suffix="_in_ledger")
        .with_columns(pl.coalesce(name, f"{name}_in_ledger") for name in ("code", "template"))
        .with_columns(
            pl.col("n_causes", "n_causes_before", "n_causes_ever").fill_null(0),
            state=state.cast(pl.Enum(STATES)),
            is_back=pl.col("last_of_id_at").dt.date() > pl.col("resolved_on"),
            is_expected=pl.col("expected_until") >= last_day,
        )
    )


def _with_renames(lives: pl.DataFrame) -> pl.DataFrame:
    """Lives with the ids of clusters that continue another one in nearly the same words."""
    is_over, after = pl.col("silence_chance") < QUIET_CHANCE, pl.col("first_at_after")
    first_over = pl.col("last_at").filter("is_over").min()
    texts = collected(
        lives.lazy()
        .with_columns(is_over=is_over, cause=pl.coalesce("cause_group", "code"))
        .filter(pl.col("is_over") | (pl.col("first_at") > first_over))
        .select("cluster_id", "template", "first_at", "last_at", "is_over", "cause")
        .sort("cluster_id")
        .with_row_index("i")
    )
    pairs = (
        similar_texts(texts)
        .lazy()
        .filter(pl.col("similarity") >= LEAST)
        .join(texts.lazy().filter("is_over"), on="i")
        .join(texts.lazy().rename({"i": "j"}), on=["j", "cause"], suffix="_after")
        .filter(after > pl.col("last_at"), after <= pl.col("last_at") + QUIET_WEEKS * WEEK)
        .sort("similarity", "i", "j", descending=[True, False, False])
        .unique("i", keep="first", maintain_order=True)
        .unique("j", keep="first", maintain_order=True)
        .select(old="cluster_id", new="cluster_id_after")
    )
    into = pairs.select(cluster_id="old", renamed_to="new")
    out_of = pairs.select(cluster_id="new", renamed_from="old")
    on_id: Any = {"on": "cluster_id", "how": "left"}
    return lives.lazy().join(into, **on_id).join(out_of, **on_id).pipe(collected)


def escalating(snap: Facts, *, policy: Policy | None = None) -> pl.DataFrame:
    """Clusters that fail much more often in the last three hours than in the week before.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`; its as-of is now.
    policy : Policy, optional
        Which states count; v1 by default.

    Returns
    -------
    polars.DataFrame, shape (n_clusters, 7)
        The key of `clusters` and ``rule_name``; ``n_requests`` of the last three hours, at least
        10 and at least three times ``n_most``, the most of any three hours in the seven
        days before them. The most first; none where the snapshot begins later.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot.

    Notes
    -----
    Requests count (an invocation, else a run) and not incidents: an outage is one incident,
    however much it stops, and a fan-out that fails is no outage. It is a simple form of the
    forecasts with which error trackers detect that an issue escalates [1]_.

    References
    ----------
    .. [1] Sentry, `escalating_issues_alg.py`.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> escalating(demo()).height
    0
    """
    now = checked_snapshot(snap, "failures.escalating").as_of
    since = now - timedelta(hours=ESCALATION_H) - WEEK
    week = Window(since, now + timedelta(microseconds=1), "a week and the hours after it")
    ago = (now - pl.col("failed_at")).dt.total_seconds() // (3600 * ESCALATION_H)
    is_now, n = pl.col("ago") == 0, pl.col("n")
    is_known = bool(snap.entities.select((pl.col("created_at") <= since).any()).item())
    return (
        find_members(snap, window=week, policy=policy)
        .filter(is_known)
        .group_by(*KEY, "rule_name", ago=ago)
        .agg(n=pl.coalesce("invocation_id", "cause").n_unique().cast(pl.Int64))
        .group_by(*KEY, "rule_name")
        .agg(n_requests=n.filter(is_now).sum(), n_most=n.filter(~is_now).max().fill_null(0))
        .filter(
            pl.col("n_requests") >= pl.max_horizontal(ESCALATION, TIMES_USUAL * pl.col("n_most"))
        )
        .sort("n_requests", "cluster_id", descending=[True, False])
        .pipe(ESCALATING.conform)
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


def register(
    snap: Facts,
    *,
    registry: str | Path = FILE,
    write: bool = False,
    policy: Policy | None = None,
    rules: object = None,
    of: str = RUNS,
) -> pl.DataFrame:
    """Assign a permanent id to each fault in a registry, and list what changed.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`; its as-of is the day since which new faults are known.
    registry : path
        A CSV file; where there is none, every fault is new.
    write : bool
        Write the file; else only say what would change.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    of : str
        runs, or calls: the calls of tools inside of runs.

    Returns
    -------
    polars.DataFrame, shape (n_faults, 6)
        ``fault_id`` and its ``change``: new; merged into ``other_id``, which is older; split
        from ``other_id``, which most of it keeps; renamed, where ``other_id`` is computed now
        (the registry's id stays); kept. ``title``, ``n_clusters``, ``n_rows``. Ordered by
        change.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, a rule cannot be used, or the registry cannot be read
        or written: an unfinished merge, a member with two faults, a circle of merged faults.

    Notes
    -----
    A cluster is known by its id, else by one of its `aliases`, else by the template
    that the registry keeps.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> register(demo(), registry="no-such-file.csv")["change"].unique().to_list()
    ['new']
    """
    place = ownership.place_of(registry, REGISTRY, FILE)
    rows = find_members(snap, policy=policy, rules=rules, of=of)
    with alone_in(place.parent) if write else nullcontext():
        known = read_registry(place) if place.exists() else ownership.as_frame({}, REGISTRY)
        clusters = rows.group_by("cluster_id", "code", "template", "fault_id", "cause_group").agg(
            pl.col("rule_name").sort().first(), n_rows=pl.len().cast(pl.Int64)
        )
        after, changes = assign(
            known,
            clusters,
            _known_as(known, rows),
            today=snap.as_of.date(),
            version=version("stateanalytics"),
        )
        if write and not after.equals(known):
            ownership.write_lines(place, after, REGISTRY, inputs=getattr(snap, "inputs", ()))
    return changes


def _known_as(lines: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The members of a registry that today's clusters correspond to, by alias or template."""
    ids = rows["cluster_id"].unique()
    lost = lines.filter(~pl.col("member").is_in(ids.implode()))
    unknown = ids.filter(~ids.is_in(lines["member"].implode()))
    pair = ("cluster_id", "member")
    if lost.is_empty() or rows.is_empty():
        return pl.DataFrame(schema=dict.fromkeys(pair, pl.String))
    by_id = find_aliases(rows).select("cluster_id", member="alias_id").join(lost, on="member")
    unknown = unknown.filter(~unknown.is_in(by_id["cluster_id"].implode()))
    if unknown.is_empty():
        return by_id.select(pair)
    named = lost.join(by_id, on="member", how="anti").rename({"member": "ledger_id"})
    by_text = _mined_into(named, rows).filter(pl.col("matched").is_in(unknown.implode()))
    return pl.concat([by_id.select(pair), by_text.select(cluster_id="matched", member="ledger_id")])


def find_aliases(rows: pl.DataFrame) -> pl.DataFrame:
    """The `aliases` of `members` of all time."""
    current = Miner(templates.VERSION, templates.mine_with_parts)
    return _ids(rows, (current, *FORMER), ("template", "alone"))


def former_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """The ids that former releases gave the clusters of `members`, as a list each."""
    ids = _ids(rows, FORMER, ("template",)) if FORMER else ALIASES.empty()
    return ids.group_by("cluster_id").agg(former_ids=pl.col("alias_id").sort())


def _ids(rows: pl.DataFrame, miners: tuple[Miner, ...], columns: Iterable[str]) -> pl.DataFrame:
    """The other ids of the clusters of `members` by these miners, from these templates."""
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
    # Templates that are not mined, of rules and last steps, are equal in all versions.
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
    named = entries.hstack([entries["cluster_id"].alias("ledger_id")])
    own = rows.group_by("cluster_id").agg(last_of_id_at=pl.col("failed_at").max())
    if named.is_empty():
        return named.hstack([own["last_of_id_at"].clear()])
    lost = named.lazy().join(own.lazy(), on="cluster_id", how="anti").collect()
    if lost.is_empty() or rows.is_empty():
        return left_joined(named.lazy(), own.lazy(), on="cluster_id").collect()
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
    # A quote at the beginning protects against formulas in spreadsheets and is removed.
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

"""What thresholds are judged by: silences, elapsed times and episodes, from one snapshot.

All come as plain frames with ``unit``: the show or invocation, because what happens in one is
not independent (a session without one is its own), and ``project``, which invocations share.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core.facts import Facts, changed_facts
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.detectors.gaps import silence_gaps
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.stats import random_columns
from stateanalytics.survival.risk_sets import product_limit
from stateanalytics.survival.run_spells import spells
from stateanalytics.survival.time_limits import timeouts
from stateanalytics.systems import all_systems

SILENCES = ("unit", "project", "system", "kind", "gap_s", "closed_by", "is_dead")
RUNS = ("unit", "project", "system", "kind", "duration_s", "ended", "is_good", "timeout_s")


def evidence(
    snap: Facts, *, policy: Policy | None = None, rows: pl.DataFrame | None = None
) -> Mapping[str, pl.DataFrame]:
    """Every kind of evidence that a `Constant` may name, by its name, and time limits.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    policy : Policy, optional
        Decides which runs have ended; v1 by default.
    rows : polars.DataFrame, optional
        The `population` of all time under that policy, where it is at hand.

    Returns
    -------
    mapping of str to polars.DataFrame
        ``silences`` has the columns `SILENCES`, ``runs`` has `RUNS`, ``limits`` those of
        `time_limits`; what systems add has the first or the second. Only what counts; null
        ``kind`` is not known.
    """
    rows = rows_of(snap, policy=policy, rows=rows)
    gaps = silence_gaps(snap, by=("kind", "project", "show_id", "invocation_id"), rows=rows).filter(
        pl.col("left_out").is_null()
    )
    elapsed = runs(spells(snap, rows=rows))
    return {
        "silences": silences(gaps),
        "runs": elapsed,
        **_of_systems(snap, gaps),
        "limits": time_limits(timeouts(snap, rows=rows), elapsed),
    }


def _of_systems(snap: Facts, gaps: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """What only one system records, of the systems that were read."""
    there = set(snap.entities["system"].unique())
    return {
        name: gather(snap, gaps)
        for known in all_systems()
        if known.name in there
        for name, gather in known.evidence.items()
    }


def sampled(snap: Facts, most_sessions: int, *, seed: int) -> Facts:
    """The facts of sessions drawn at random, with everything that belongs to them.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    most_sessions : int
        How many; a snapshot with no more is given back as it is.
    seed : int
        The same seed draws the same sessions, in whatever order they stand.
    """
    key, session = ["source", "entity_id"], pl.coalesce("session_id", "entity_id")
    sessions = snap.entities.filter(pl.col("entity_type") == "session").select(key).unique()
    if sessions.height <= most_sessions:
        return snap
    row = pl.int_range(pl.len(), dtype=pl.UInt64)
    drawn = (
        sessions.sort(key)
        .with_columns(draw=random_columns.bits(row, seed, "session"))
        .sort("draw")
        .head(most_sessions)
    )
    entities = snap.entities.with_columns(_session=session).join(
        drawn, left_on=["source", "_session"], right_on=key, how="semi", maintain_order="left"
    )
    theirs = entities.select(ENTITY_KEY)
    return changed_facts(
        snap,
        entities=entities.drop("_session"),
        transitions=snap.transitions.join(theirs, on=ENTITY_KEY, how="semi", maintain_order="left"),
        events=snap.events.join(theirs, on=ENTITY_KEY, how="semi", maintain_order="left"),
    )


def silences(gaps: pl.DataFrame) -> pl.DataFrame:
    """Silences as they are judged."""
    unit = _unit("source", pl.coalesce("show_id", "invocation_id", "entity_id"))
    return gaps.select(unit, *SILENCES[1:])


def runs(spells: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times as they are judged; runs of one show or fan-out share their fate."""
    return spells.filter(pl.col("left_out").is_null() & pl.col("duration_s").is_not_null()).select(
        _unit("source", pl.coalesce("show_id", "invocation_id", "session_id", "entity_id")),
        "project",
        "system",
        "kind",
        "duration_s",
        "ended",
        is_good=pl.col("ending") == "completed",
        timeout_s="timeout_s",
    )


MIXED = 0.1
"""A limit that holds for fewer than this share of runs does not make limits mixed."""


def time_limits(limits: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """The time limit that holds for most runs of each kind: declared, else inferred.

    Parameters
    ----------
    limits : polars.DataFrame
        What `timeouts` gave.
    runs : polars.DataFrame
        What `runs` gave.

    Returns
    -------
    polars.DataFrame
        ``system``, ``kind``, ``limit_s``; ``is_inferred``: nobody wrote it down, but many
        ends lie there; ``is_mixed``: another one holds for a tenth of the runs or more.
        Kinds without any known limit have no row.

    Notes
    -----
    An inferred limit is only seen where it stops a run, and a short one stops more. So its
    share is the hazard there: of the runs that came so far, the share that it stopped.
    """
    key = ["system", "kind"]
    found = (
        limits.filter(pl.col("kind").is_not_null() & pl.col("limit_s").is_not_null())
        .group_by(*key, "limit_s", is_inferred=pl.col("limit_from") == "inferred")
        .agg(n=pl.len())
    )
    # Each run with how many are as long or longer: a limit looks up the first that reaches it.
    ranked = (
        runs.select(*key, "duration_s")
        .sort("duration_s")
        .with_columns(
            n_runs=pl.len().over(key),
            n_left=pl.len().over(key) - pl.int_range(pl.len()).over(key),
        )
    )
    came_so_far = (
        # Stopping takes a moment, and ends are found to the second.
        found.with_columns(reached_s=pl.col("limit_s") - 1)
        .sort("reached_s")
        .join_asof(
            ranked.drop("n_runs"),
            left_on="reached_s",
            right_on="duration_s",
            by=key,
            strategy="forward",
            check_sortedness=False,
        )
        .join(ranked.select(*key, "n_runs").unique(), on=key)
        .with_columns(pl.col("n_left").fill_null(0))
    )
    stopped = (pl.col("n") / pl.col("n_left")).clip(upper_bound=1.0)
    without_shorter = product_limit(pl.col("stopped")).shift(1, fill_value=1.0)
    among = [*key, "is_inferred"]
    return (
        came_so_far.sort(*among, "limit_s")
        .with_columns(stopped=stopped)
        .with_columns(
            share=pl.when("is_inferred")
            .then(pl.col("stopped") * without_shorter.over(among))
            .otherwise(pl.col("n") / pl.col("n_runs"))
        )
        .with_columns(is_mixed=(pl.col("share") >= MIXED).sum().over(among) > 1)
        .sort(*among, "share", "limit_s", descending=[False, False, False, True, False])
        .unique(key, keep="first", maintain_order=True)
        .select(*key, "limit_s", "is_inferred", "is_mixed")
    )


def _unit(*parts: str | pl.Expr) -> pl.Expr:
    return pl.concat_str(parts, separator="\n", ignore_nulls=True).alias("unit")

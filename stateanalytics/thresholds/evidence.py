"""What thresholds are judged by: silences, elapsed times and episodes, from one snapshot.

All come as plain frames with ``unit``: the invocation, because what happens inside one is
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
    gaps = silence_gaps(snap, by=("kind", "project", "invocation_id"), rows=rows).filter(
        pl.col("left_out").is_null()
    )
    return {
        "silences": silences(gaps),
        "runs": runs(spells(snap, rows=rows)),
        **_of_systems(snap, gaps),
        "limits": time_limits(timeouts(snap, rows=rows)),
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
    unit = _unit("source", pl.coalesce("invocation_id", "entity_id"))
    return gaps.select(unit, *SILENCES[1:])


def runs(spells: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times as they are judged; runs of one fan-out share their invocation's fate."""
    return spells.filter(pl.col("left_out").is_null() & pl.col("duration_s").is_not_null()).select(
        _unit("source", pl.coalesce("invocation_id", "session_id", "entity_id")),
        "project",
        "system",
        "kind",
        "duration_s",
        "ended",
        is_good=pl.col("ending") == "completed",
        timeout_s="timeout_s",
    )


def time_limits(limits: pl.DataFrame) -> pl.DataFrame:
    """The most common time limit of each kind of runs: declared, else inferred.

    Parameters
    ----------
    limits : polars.DataFrame
        What `timeouts` gave.

    Returns
    -------
    polars.DataFrame
        ``system``, ``kind``, ``limit_s`` and ``is_inferred``: nobody wrote it down, but many
        ends lie there. Kinds without any known limit have no row.
    """
    known = limits.filter(pl.col("kind").is_not_null() & pl.col("limit_s").is_not_null())
    return (
        known.group_by("system", "kind", "limit_s", is_inferred=pl.col("limit_from") == "inferred")
        .agg(n=pl.len())
        .sort(
            *("system", "kind", "is_inferred", "n", "limit_s"),
            descending=[False, False, False, True, False],
        )
        .unique(["system", "kind"], keep="first", maintain_order=True)
        .drop("n")
    )


def _unit(*parts: str | pl.Expr) -> pl.Expr:
    return pl.concat_str(parts, separator="\n", ignore_nulls=True).alias("unit")

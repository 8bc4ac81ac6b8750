"""Evidence on thresholds: silences, elapsed times and episodes of one snapshot.

All are frames with ``unit``, the show or invocation, whose sessions are not independent (a
session without one is a unit of its own), and ``project``, which invocations share.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core.facts import Facts, changed_facts
from stateanalytics.core.joins import collected
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.detectors.gaps import silence_gaps
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.stats import draws
from stateanalytics.survival.risk_sets import product_limit
from stateanalytics.survival.run_spells import spells
from stateanalytics.survival.time_limits import N_NEWEST, timeouts
from stateanalytics.systems import all_systems

SILENCES = ("unit", "project", "system", "kind", "gap_s", "closed_by", "is_dead")
MOST_SESSIONS = 10_000
"""Sessions that advice rests on by default: of more, so many are drawn at random."""


def evidence(
    snap: Facts, *, policy: Policy | None = None, rows: pl.DataFrame | None = None
) -> Mapping[str, pl.DataFrame]:
    """All evidence that a `Constant` may name, by its name, and the time limits of kinds.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    policy : Policy, optional
        Decides which runs have ended; v1 by default.
    rows : polars.DataFrame, optional
        The `population` of all time under that policy, if already computed.

    Returns
    -------
    mapping of str to polars.DataFrame
        ``silences`` has the columns `SILENCES`, ``runs`` those of `runs`, ``limits`` those of
        `time_limits`; evidence of single systems has the first or the second. Only counted
        rows; a null ``kind`` is not known.
    """
    rows = rows_of(snap, policy=policy, rows=rows)
    gaps = silence_gaps(snap, by=("kind", "project", "show_id", "invocation_id"), rows=rows).filter(
        pl.col("left_out").is_null()
    )
    elapsed = runs(spells(snap, rows=rows))
    present = set(snap.entities["system"].unique())
    by_system = {
        name: gather(snap, gaps)
        for system in all_systems()
        if system.name in present
        for name, gather in system.thresholds().evidence.items()
    }
    return {
        "silences": silences(gaps),
        "runs": elapsed,
        **by_system,
        "limits": time_limits(timeouts(snap, rows=rows), elapsed),
    }


def sampled(snap: Facts, most_sessions: int, *, seed: int) -> Facts:
    """The facts of a random sample of sessions, with everything that belongs to them.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    most_sessions : int
        Sample size; a snapshot without more sessions is returned as it is.
    seed : int
        The same seed draws the same sessions, whatever their order.
    """
    key, session = ["source", "entity_id"], pl.coalesce("session_id", "entity_id")
    of_sessions = snap.entities.lazy().filter(pl.col("entity_type") == "session")
    sessions = of_sessions.select(key).unique().pipe(collected)
    if sessions.height <= most_sessions:
        return snap
    row = pl.int_range(pl.len(), dtype=pl.UInt64)
    drawn = (
        sessions.sort(key)
        .with_columns(draw=draws.bits(row, seed, "session"))
        .sort("draw")
        .head(most_sessions)
    )
    entities = snap.entities.with_columns(_session=session).join(
        drawn, left_on=["source", "_session"], right_on=key, how="semi", maintain_order="left"
    )
    kept = entities.select(ENTITY_KEY)
    return changed_facts(
        snap,
        entities=entities.drop("_session"),
        transitions=snap.transitions.join(kept, on=ENTITY_KEY, how="semi", maintain_order="left"),
        events=snap.events.join(kept, on=ENTITY_KEY, how="semi", maintain_order="left"),
    )


def silences(gaps: pl.DataFrame) -> pl.DataFrame:
    """Silences with their unit, in the columns `SILENCES`."""
    unit = _unit("source", pl.coalesce("show_id", "invocation_id", "entity_id"))
    return gaps.select(unit, *SILENCES[1:])


def runs(spells: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times of counted runs with their unit."""
    is_timed = pl.col("left_out").is_null() & pl.col("duration_s").is_not_null()
    timed = (
        spells.lazy()
        .filter(is_timed)
        .select(
            _unit("source", pl.coalesce("show_id", "invocation_id", "session_id", "entity_id")),
            *("project", "system", "kind", "duration_s", "ended"),
            is_good=pl.col("ending") == "completed",
            timeout_s="timeout_s",
        )
    )
    return collected(timed)


MIXED = 0.1
"""Share of the runs from which a second limit makes the limits of a kind mixed."""


def time_limits(limits: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Today's time limit of each kind: the most common one of its newest runs, else inferred.

    Parameters
    ----------
    limits : polars.DataFrame
        From `timeouts`.
    runs : polars.DataFrame
        From `runs`.

    Returns
    -------
    polars.DataFrame
        ``system``, ``kind``, ``limit_s``; ``is_inferred``: not declared, but many ends lie
        there; ``is_mixed``: another one holds for a tenth of these runs or more. Kinds without
        a known limit have no row.

    Notes
    -----
    An inferred limit is only visible where it stops a run, and a short one stops more runs. So
    its share is the hazard there: stopped runs over the runs that reached it.
    """
    key = ["system", "kind"]
    among = [*key, "is_inferred"]
    is_newest = pl.int_range(pl.len()).over(among) < N_NEWEST
    counted = (
        limits.lazy()
        .filter(pl.col("kind").is_not_null() & pl.col("limit_s").is_not_null())
        .with_columns(is_inferred=pl.col("limit_from") == "inferred")
        .sort("started_at", *ENTITY_KEY, descending=True, nulls_last=True)
        .filter(pl.col("is_inferred") | is_newest)
        .group_by(*among, "limit_s")
        .agg(n=pl.len())
    )
    # Each run with the number of runs at least as long; a limit takes the first that reaches it.
    ranked = (
        runs.lazy()
        .select(*key, "duration_s")
        .sort("duration_s")
        .with_columns(n_at_risk=pl.len().over(key) - pl.int_range(pl.len()).over(key))
    )
    at_limit = (
        # A second earlier: stopping takes a moment, and ends are recorded to the second.
        counted.with_columns(reached_s=pl.col("limit_s") - 1)
        .sort("reached_s")
        .join_asof(
            ranked,
            left_on="reached_s",
            right_on="duration_s",
            by=key,
            strategy="forward",
            check_sortedness=False,
        )
        .join(ranked.select(key).unique(), on=key)
        .with_columns(pl.col("n_at_risk").fill_null(0))
    )
    hazard = (pl.col("n") / pl.col("n_at_risk")).clip(upper_bound=1.0)
    past_shorter_limits = product_limit(pl.col("hazard")).shift(1, fill_value=1.0)
    return collected(
        at_limit.sort(*among, "limit_s")
        .with_columns(hazard=hazard)
        .with_columns(
            share=pl.when("is_inferred")
            .then(pl.col("hazard") * past_shorter_limits.over(among))
            .otherwise(pl.col("n") / pl.col("n").sum().over(among))
        )
        .with_columns(is_mixed=(pl.col("share") >= MIXED).sum().over(among) > 1)
        .sort(*among, "share", "limit_s", descending=[False, False, False, True, False])
        .unique(key, keep="first", maintain_order=True)
        .select(*key, "limit_s", "is_inferred", "is_mixed")
    )


def _unit(*parts: str | pl.Expr) -> pl.Expr:
    return pl.concat_str(parts, separator="\n", ignore_nulls=True).alias("unit")

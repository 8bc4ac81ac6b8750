"""What thresholds are judged by: silences, elapsed times and episodes, from one snapshot.

All come as plain frames with ``unit``: what is drawn again by the bootstrap, because what
happens inside it is not independent.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.detectors.gaps import silence_gaps
from stateanalytics.state.policy import Policy
from stateanalytics.state.states import states as states_of
from stateanalytics.stats import random_columns as chance
from stateanalytics.survival.run_spells import spells
from stateanalytics.survival.time_limits import timeouts

SILENCES = ("unit", "system", "kind", "gap_s", "closed_by", "is_dead")
RUNS = ("unit", "system", "kind", "duration_s", "ended", "is_good", "timeout_s")

# Agent Orchestrator's words while nobody knows yet, and for what is over for good.
_UNSURE = ("detecting", "stuck")
_OVER = ("killed", "terminated", "errored", "done", "cleanup", "exited")


def evidence(
    snap: Facts, *, policy: Policy | None = None, states: pl.DataFrame | None = None
) -> Mapping[str, pl.DataFrame]:
    """Every kind of evidence that `Constant.evidence` names, by its name, and time limits.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    policy : Policy, optional
        Decides which runs have ended; v1 by default.
    states : polars.DataFrame, optional
        The states under that policy, where they are known already.

    Returns
    -------
    mapping of str to polars.DataFrame
        ``silences`` and ``reports`` have the columns `SILENCES`, ``limits`` those of
        `time_limits`, the others `RUNS`. Only what counts; null ``kind`` is not known.
    """
    states = states_of(snap, policy=policy) if states is None else states
    gaps = silence_gaps(snap, policy=policy).filter(pl.col("left_out").is_null())
    return {
        "silences": silences(gaps),
        "runs": runs(spells(snap, states=states, policy=policy)),
        "detecting": detecting_episodes(snap),
        "first_report": first_reports(snap),
        "reports": report_silences(snap, gaps),
        "limits": time_limits(timeouts(snap, states=states, policy=policy)),
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
    key, whose = ["source", "entity_id"], pl.coalesce("session_id", "entity_id")
    sessions = snap.entities.filter(pl.col("entity_type") == "session").select(key).unique()
    if sessions.height <= most_sessions:
        return snap
    row = pl.int_range(pl.len(), dtype=pl.UInt64)
    drawn = (
        sessions.sort(key)
        .with_columns(draw=chance.bits(row, seed, "session"))
        .sort("draw")
        .head(most_sessions)
    )
    entities = snap.entities.with_columns(_session=whose).join(
        drawn, left_on=["source", "_session"], right_on=key, how="semi", maintain_order="left"
    )
    theirs = entities.select(ENTITY_KEY)
    return Facts(
        entities=entities.drop("_session"),
        transitions=snap.transitions.join(theirs, on=ENTITY_KEY, how="semi", maintain_order="left"),
        events=snap.events.join(theirs, on=ENTITY_KEY, how="semi", maintain_order="left"),
        findings=snap.findings,
        sources=snap.sources,
        as_of=snap.as_of,
        as_of_from=snap.as_of_from,
        details=snap.details,
    )


def silences(gaps: pl.DataFrame) -> pl.DataFrame:
    """Silences as they are judged; the unit is the session."""
    return gaps.select(
        _unit("source", "entity_id"), "system", "kind", "gap_s", "closed_by", "is_dead"
    )


def runs(found: pl.DataFrame) -> pl.DataFrame:
    """Elapsed times as they are judged; runs of one fan-out share their invocation's fate."""
    return found.filter(pl.col("left_out").is_null() & pl.col("duration_s").is_not_null()).select(
        _unit("source", pl.coalesce("invocation_id", "session_id", "entity_id")),
        "system",
        "kind",
        "duration_s",
        "ended",
        is_good=pl.col("ending") == "completed",
        timeout_s="timeout_s",
    )


def time_limits(found: pl.DataFrame) -> pl.DataFrame:
    """The most common time limit of each kind of lionagi's runs: declared, else inferred.

    Parameters
    ----------
    found : polars.DataFrame
        What `timeouts` gave.

    Returns
    -------
    polars.DataFrame
        ``kind``, ``limit_s`` and ``is_inferred``: nobody wrote it down, but many ends lie
        there. Kinds without any known limit have no row.
    """
    known = found.filter(
        (pl.col("system") == "lionagi")
        & pl.col("kind").is_not_null()
        & pl.col("limit_s").is_not_null()
    )
    return (
        known.group_by("kind", "limit_s", is_inferred=pl.col("limit_from") == "inferred")
        .agg(n=pl.len())
        .sort("kind", "is_inferred", "n", "limit_s", descending=[False, False, True, False])
        .unique("kind", keep="first", maintain_order=True)
        .drop("n")
    )


def detecting_episodes(snap: Facts) -> pl.DataFrame:
    """How long Agent Orchestrator's sessions stayed in doubt, and whether they came back.

    Notes
    -----
    An episode begins when a session enters ``detecting`` and ends with the first word
    that is neither that nor ``stuck``: today's budget only renames the doubt, so it does
    not cut the episode off. It is good where the session went on.
    """
    unsure = pl.col("status").is_in(_UNSURE)
    key = ["source", "entity_id"]
    rows = (
        snap.transitions.filter(
            (pl.col("system") == "agent_orchestrator")
            & (pl.col("entity_type") == "session")
            & pl.col("at").is_not_null()
            & (pl.col("at") <= snap.as_of)
        )
        .sort(*key, "at", "seq")
        .with_columns(
            left_at=pl.when(~unsure).then("at").shift(-1).backward_fill().over(key),
            left_for=pl.when(~unsure).then("status").shift(-1).backward_fill().over(key),
            is_first=~unsure.shift(1, fill_value=False).over(key),
        )
        .filter((pl.col("status") == "detecting") & pl.col("is_first"))
    )
    return _elapsed(
        rows.join(_kinds(snap), on=key, how="left"),
        snap,
        start="at",
        end="left_at",
        is_good=~pl.col("left_for").is_in(_OVER),
    )


def first_reports(snap: Facts) -> pl.DataFrame:
    """How long until an agent first reported; good where it did before it ended."""
    key = ["source", "entity_id"]
    first = _reports(snap).group_by(key).agg(reported_at=pl.col("at").min())
    sessions = snap.entities.filter(
        (pl.col("system") == "agent_orchestrator")
        & (pl.col("entity_type") == "session")
        & (pl.col("kind") == "worker")
    ).join(first, on=key, how="left")
    return _elapsed(
        sessions.with_columns(seen_at=pl.coalesce("reported_at", "ended_at")),
        snap,
        start="created_at",
        end="seen_at",
        is_good=pl.col("reported_at").is_not_null(),
    )


def report_silences(snap: Facts, gaps: pl.DataFrame) -> pl.DataFrame:
    """Silences between an agent's reports; those after the last say nothing but a death."""
    key = ["source", "entity_id"]
    dead = gaps.filter("is_dead").select(key).unique()
    reported = _reports(snap).sort(*key, "at").select(*key, "at")
    between = reported.with_columns(
        gap_s=_seconds(pl.col("at").shift(-1).over(key) - pl.col("at"))
    ).join(dead.with_columns(died=pl.lit(True)), on=key, how="left")
    is_last, died = pl.col("gap_s").is_null(), pl.col("died").fill_null(False)
    return between.join(_kinds(snap), on=key, how="left").select(
        _unit(*key),
        system=pl.lit("agent_orchestrator"),
        kind="kind",
        gap_s=pl.col("gap_s").fill_null(0.0),
        closed_by=pl.when(~is_last)
        .then(pl.lit("sign_of_life"))
        .when(died)
        .then(pl.lit("death"))
        .otherwise(pl.lit("as_of")),
        is_dead=is_last & died,
    )


def _reports(snap: Facts) -> pl.DataFrame:
    return snap.events.filter(
        (pl.col("system") == "agent_orchestrator")
        & (pl.col("entity_type") == "session")
        & pl.col("kind").str.starts_with("report.")
        & (pl.col("kind") != "report.rejected")
        & pl.col("at").is_not_null()
        & (pl.col("at") <= snap.as_of)
    )


def _kinds(snap: Facts) -> pl.DataFrame:
    return (
        snap.entities.filter(pl.col("entity_type") == "session")
        .select("source", "entity_id", "kind")
        .unique(subset=["source", "entity_id"], keep="first", maintain_order=True)
    )


def _elapsed(
    rows: pl.DataFrame, snap: Facts, *, start: str, end: str, is_good: pl.Expr
) -> pl.DataFrame:
    """Rows as `RUNS`: cut off at as-of where the end is not known; impossible ones left out."""
    ended = pl.col(end).is_not_null() & (pl.col(end) <= snap.as_of)
    until = pl.when(ended).then(end).otherwise(pl.lit(snap.as_of))
    return rows.select(
        _unit("source", "entity_id"),
        "system",
        "kind",
        duration_s=_seconds(until - pl.col(start)),
        ended=ended,
        is_good=is_good,
        timeout_s=pl.lit(None, dtype=pl.Float64),
    ).filter(pl.col("duration_s") >= 0)


def _unit(*parts: str | pl.Expr) -> pl.Expr:
    return pl.concat_str(parts, separator="\n", ignore_nulls=True).alias("unit")


def _seconds(how_long: pl.Expr) -> pl.Expr:
    return how_long.dt.total_microseconds() / 1e6

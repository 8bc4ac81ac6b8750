"""What reapers would close, as a preview: nothing is ever written.

lionagi closes an entity unless its process is *observed* to be alive. From the data
alone that is never known, so a row of the preview reads "would be closed, unless it is
alive" where ``is_certain`` is false.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.engines import NUMBER, YES_NO, adapt, optional
from stateanalytics.core.facts import Facts, beside, once
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.reaper_rules import OPEN_PLAYS, Limits, Reaper, reapers

if TYPE_CHECKING:
    from stateanalytics.state.policy import Policy


def with_phantom_reason(frame: Any, *, stale_s: float | str = 3600) -> Any:
    """Why a running session is a phantom by lionagi's classifier; null where it is none.

    Parameters
    ----------
    frame : frame
        ``updated_age_s`` (null: never updated, so old), ``process_alive`` (null: not
        known). Used if there: ``has_stale_locks``; ``is_foreign`` (it runs on another
        machine, where nothing can be observed from here); ``is_artifacts_gone`` (a
        directory was recorded and is not there).
    stale_s : float or str, default 3600
        The age at which it counts as old, or the column that holds it.

    Returns
    -------
    frame
        The same rows and kind with ``phantom_reason``: missing_artifacts, stale_lock,
        process_dead or null.

    Notes
    -----
    Alive, foreign and fresh sessions are none. A session of unknown liveness is one: the
    classifier asks for proof of life.

    Examples
    --------
    >>> row = {"updated_age_s": 3600.0, "process_alive": None}
    >>> with_phantom_reason(pl.DataFrame([row]))["phantom_reason"].to_list()
    ['process_dead']
    """
    needed = {"updated_age_s": NUMBER, "process_alive": YES_NO}
    if isinstance(stale_s, str):
        needed[stale_s] = NUMBER
    adapter = adapt(frame, needed, "with_phantom_reason")
    limit = nw.col(stale_s) if isinstance(stale_s, str) else nw.lit(float(stale_s))
    is_alive = nw.col("process_alive").fill_null(False)
    is_foreign = optional(adapter.frame, "is_foreign", nw.Boolean).fill_null(False)
    is_gone = optional(adapter.frame, "is_artifacts_gone", nw.Boolean).fill_null(False)
    has_locks = optional(adapter.frame, "has_stale_locks", nw.Boolean).fill_null(False)
    is_fresh = (nw.col("updated_age_s") < limit).fill_null(False)
    return adapter.give_back(
        adapter.frame.with_columns(
            phantom_reason=nw.when(is_alive | is_foreign | is_fresh)
            .then(nw.lit(None).cast(nw.String))
            .when(is_gone)
            .then(nw.lit("missing_artifacts"))
            .when(has_locks)
            .then(nw.lit("stale_lock"))
            .otherwise(nw.lit("process_dead"))
        )
    )


def phantoms(
    facts: Facts,
    states: pl.DataFrame,
    *,
    policy: Policy | None = None,
    limits: Limits | None = None,
) -> pl.DataFrame:
    """Which entities reapers would close at as-of, with which status and reason.

    Parameters
    ----------
    facts : Facts
        Entities, as-of, and ``lionagi_shows_on_disk`` for shows.
    states : polars.DataFrame
        ``schema.STATES`` of the same facts.
    policy : Policy, optional
        Whose ``phantom_after_s`` limits ADR-0033's reconciliation.
    limits : Limits, optional
        The ages at which each rule closes; by default the policy's and lionagi's.

    Returns
    -------
    polars.DataFrame
        `schema.PHANTOMS`, one row an entity and rule, sorted by key, then in the order of
        `reapers`. Rules that would write different statuses set ``has_dispute``.

    Notes
    -----
    lionagi leaves alone what runs on another machine. Facts do not hold the host, so
    such a session is in the preview, with ``is_certain`` false.

    Examples
    --------
    >>> from datetime import UTC
    >>> empty = [frame.empty() for frame in schema.FACTS]
    >>> nothing = Facts(*empty, as_of=datetime(2026, 1, 1, tzinfo=UTC))
    >>> phantoms(nothing, schema.STATES.empty()).height
    0
    """
    limits = limits or (Limits(reconciliation_s=policy.phantom_after_s) if policy else Limits())
    rows = with_phantom_reason(seen_by_reapers(facts, states), stale_s=limits.phantom_s)
    of_entity = pl.len().over(schema.ENTITY_KEY)
    n_targets = pl.col("target_status").n_unique().over(schema.ENTITY_KEY)
    would_close = pl.concat(
        [_closed_by(rows, reaper, order) for order, reaper in enumerate(reapers(limits))]
    ).with_columns(n_reapers=of_entity, has_dispute=n_targets > 1)
    return schema.PHANTOMS.conform(would_close.sort(*schema.ENTITY_KEY, "order"))


def _closed_by(rows: pl.DataFrame, reaper: Reaper, order: int) -> pl.DataFrame:
    is_dead = pl.col("process_alive").not_().fill_null(False)
    status, code, message = reaper.written
    return rows.filter(reaper.closes.fill_null(False)).select(
        *schema.ENTITY_KEY,
        "raw_status",
        reaper=pl.lit(reaper.name),
        known_as=pl.lit(reaper.known_as),
        target_status=status.cast(pl.String),
        reason_code=code.cast(pl.String),
        message=message.cast(pl.String),
        actor=pl.lit(reaper.actor),
        age_s=pl.when(reaper.age_s.is_finite()).then(reaper.age_s.cast(pl.Float64)),
        limit_s=pl.lit(reaper.past[1], dtype=pl.Float64),
        is_certain=is_dead | pl.lit(reaper.ignores_liveness),
        order=pl.lit(order),
    )


def seen_by_reapers(facts: Facts, states: pl.DataFrame) -> pl.DataFrame:
    """Each entity with its ages, its state, its session and its children.

    The rows of ``facts.entities`` in their order, with all that `reapers` read except
    the ``phantom_reason``.
    """
    judged = states.select(
        *schema.ENTITY_KEY,
        pl.col("health").cast(pl.String),
        "is_terminal",
        "is_legacy",
        "age_s",
    )
    dated = facts.entities.with_columns(**_ages(facts.as_of))
    return with_relatives(beside(dated, once(judged, keep="last")), facts)


def with_relatives(rows: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Entities with what reapers read of their session, their plays and their directory."""
    work = once(rows.filter(pl.col("entity_type") == "session"), keep="last").select(
        "source",
        "system",
        session_id="entity_id",
        session_status="raw_status",
        session_alive="process_alive",
        has_session_row=pl.lit(True),
    )
    joined = rows.join(
        work, on=["source", "system", "session_id"], how="left", maintain_order="left"
    )
    return (
        joined.join(_plays(joined), on=schema.ENTITY_KEY, how="left", maintain_order="left")
        .join(_ends_on_disk(facts), on=["source", "name"], how="left", maintain_order="left")
        .with_columns(pl.col("has_session_row").fill_null(False))
    )


def _ages(as_of: datetime) -> dict[str, pl.Expr]:
    return {
        f"{what}_age_s": (pl.lit(as_of) - pl.col(f"{what}_at")).dt.total_microseconds() / 1e6
        for what in ("started", "updated", "created")
    }


def _plays(joined: pl.DataFrame) -> pl.DataFrame:
    """Of each show: how many plays, how many go on, is any at work."""
    is_open = pl.col("raw_status").is_in(OPEN_PLAYS)
    return (
        joined.filter(pl.col("entity_type") == "play", pl.col("parent_id").is_not_null())
        .group_by("source", "system", entity_id="parent_id")
        .agg(
            n_plays=pl.len(),
            n_open_plays=is_open.sum(),
            has_live_play=pl.col("session_alive").any(),
        )
        .with_columns(entity_type=pl.lit("show"))
    )


def _ends_on_disk(facts: Facts) -> pl.DataFrame:
    """What the directory of each show proves, as the reason a reaper would write."""
    disk = facts.detail(frames.SHOWS_ON_DISK)
    is_show = pl.col("play").is_null()
    is_aborted = (pl.col("has_abort_sentinel") & is_show).any()
    is_passed = (pl.col("is_show_passed") & is_show).any()
    n_plays = is_show.not_().sum()
    n_merged = ((pl.col("disk_status") == "merged") & is_show.not_()).sum()
    return disk.group_by("source", name="topic").agg(
        disk_end=pl.when(is_aborted)
        .then(pl.lit("show.aborted.operator"))
        .when(is_passed)
        .then(pl.lit("show.completed.final_gate"))
        .when((n_plays > 0) & (n_merged == n_plays))
        .then(pl.lit("show.completed.all_plays_merged"))
    )

"""Where a session record does not mean what it says: each trap a Boolean column."""

from __future__ import annotations

from typing import Any

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns

RACE_S = 60.0
"""A session killed sooner after its creation was probed before its agent had started."""
OVERWRITE_S = (2.0, 60.0)
"""How long after a kill the poll that writes over its reason comes."""

NEEDED = (
    "session_state",
    "session_reason",
    "runtime_state",
    "legacy_status",
    "stored_status",
    "detecting_attempts",
    "created_age_s",
    "terminated_age_s",
    "restored_age_s",
    "transition_age_s",
)


def find_traps(frame: FrameT) -> FrameT:
    """Add which known contradictions each session record holds.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``session_state``, ``session_reason``, ``runtime_state``, ``legacy_status`` (of
        `derive_legacy_status`), ``stored_status`` (the flat status), ``detecting_attempts``
        and ages in seconds: ``created_age_s``, ``terminated_age_s``, ``restored_age_s``,
        ``transition_age_s`` (null: no such time).

    Returns
    -------
    The same kind of frame
        With Booleans, never null: ``is_status_stale`` (the flat status is another than the
        axes say), ``is_kill_doubtful`` (lost runtime that may be a kill whose reason the
        next poll wrote over), ``is_flickering`` (two writers disagree from poll to poll:
        undecided), ``looks_ended_after_restore`` (restored, but still says terminated),
        ``has_stale_end`` (alive again, but still has an end), ``is_zombie`` (not over, and
        its process is gone), ``is_spawn_race`` (lost within a minute of its creation).

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    ``lastTransitionAt`` is the last time a decision was written, changed or not: it is no
    dwell time, for any session.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "session_state": ["terminated"],
    ...         "session_reason": ["runtime_lost"],
    ...         "runtime_state": ["exited"],
    ...         "legacy_status": ["killed"],
    ...         "stored_status": ["killed"],
    ...         "detecting_attempts": [0],
    ...         "created_age_s": [900.0],
    ...         "terminated_age_s": [100.0],
    ...         "restored_age_s": pl.Series([None], dtype=pl.Float64),
    ...         "transition_age_s": [85.0],
    ...     }
    ... )
    >>> find_traps(frame)["is_kill_doubtful"].item()
    True
    """
    state, reason = nw.col("session_state"), nw.col("session_reason")
    ended, stored = nw.col("terminated_age_s"), nw.col("stored_status")
    is_over = state.is_in(("terminated", "done"))
    is_lost = (state == "terminated") & (reason == "runtime_lost")
    lag = ended - nw.col("transition_age_s")
    rules: dict[str, Any] = {
        "is_status_stale": ~stored.is_null() & (stored != nw.col("legacy_status")),
        "is_kill_doubtful": is_lost & (lag >= OVERWRITE_S[0]) & (lag <= OVERWRITE_S[1]),
        "is_flickering": state.is_in(("terminated", "detecting"))
        & (reason == "runtime_lost")
        & stored.is_in(("stuck", "detecting"))
        & (stored != nw.col("legacy_status"))
        & (nw.col("detecting_attempts") > 0),
        "looks_ended_after_restore": is_over & (nw.col("restored_age_s") <= ended),
        "has_stale_end": ~is_over & ~ended.is_null(),
        "is_zombie": ~is_over & nw.col("runtime_state").is_in(("exited", "missing")),
        "is_spawn_race": is_lost & (nw.col("created_age_s") - ended < RACE_S),
    }
    known = {name: rule.fill_null(False) for name, rule in rules.items()}
    return add_columns(frame, NEEDED, "find_traps", known)


def reattribute_ends(frame: FrameT) -> FrameT:
    """Replace what two writers left behind by what is known to have happened.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        What `find_traps` needs and adds, and ``has_kill_event`` (Boolean: an event says that
        a person killed it, up to a minute before the last transition) and
        ``is_worktree_gone`` (Boolean; null: not known).

    Returns
    -------
    The same kind of frame
        With ``session_state`` and ``session_reason`` as to be mapped, and
        ``reattribution`` (``killed_by_event``, ``killed_by_worktree``, ``flicker``; null:
        left alone) with ``reattribution_confidence``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Without this every manual kill that was polled again reads as a crash, and a session
    that two writers fight over reads as dead every other time.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "session_state": ["terminated"],
    ...         "session_reason": ["runtime_lost"],
    ...         "stored_status": ["killed"],
    ...         "is_kill_doubtful": [True],
    ...         "is_flickering": [False],
    ...         "has_kill_event": [True],
    ...         "is_worktree_gone": [None],
    ...     }
    ... )
    >>> reattribute_ends(frame).select("session_reason", "reattribution").row(0)
    ('manually_killed', 'killed_by_event')
    """
    state, reason, stored = (
        nw.col(name) for name in ("session_state", "session_reason", "stored_status")
    )
    is_lost = (state == "terminated") & (reason == "runtime_lost")
    by_event = (is_lost & nw.col("has_kill_event")).fill_null(False)
    by_worktree = (nw.col("is_kill_doubtful") & nw.col("is_worktree_gone")).fill_null(False)
    cause: Any = nw.when(by_worktree).then(nw.lit("killed_by_worktree"))
    cause = nw.when(by_event).then(nw.lit("killed_by_event")).otherwise(cause)
    cause = nw.when(nw.col("is_flickering")).then(nw.lit("flicker")).otherwise(cause)
    why = nw.col("reattribution")
    is_killed = why.is_in(("killed_by_event", "killed_by_worktree")).fill_null(False)
    is_flicker = (why == "flicker").fill_null(False)
    doubt = nw.when(stored == "stuck").then(nw.lit("probe_failure")).otherwise(reason)
    confidence: Any = nw.when(is_flicker).then(nw.lit(0.5))
    confidence = nw.when(why == "killed_by_worktree").then(nw.lit(0.6)).otherwise(confidence)
    confidence = nw.when(why == "killed_by_event").then(nw.lit(0.9)).otherwise(confidence)
    killed = nw.when(is_killed).then(nw.lit("manually_killed")).otherwise(reason)
    after = {
        "reattribution_confidence": confidence,
        "session_reason": nw.when(is_flicker).then(doubt).otherwise(killed),
        "session_state": nw.when(is_flicker).then(stored).otherwise(state),
    }
    names = ["session_state", "session_reason", "stored_status", "is_kill_doubtful"]
    names += ["is_flickering", "has_kill_event", "is_worktree_gone"]
    return add_columns(frame, names, "reattribute_ends", {"reattribution": cause}, after)

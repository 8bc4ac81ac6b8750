"""What records and logs mean together: traps, what was written over, and ADR-0033's axes."""

from __future__ import annotations

from functools import cache
from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import (
    FrameT,
    Steps,
    add_columns,
    first_true,
    look_up,
    with_defaults,
)
from stateanalytics.systems.agent_orchestrator.decisions import KILL_EVENTS
from stateanalytics.systems.agent_orchestrator.files import EPOCH
from stateanalytics.systems.agent_orchestrator.mapping import REASON_CODES, map_axes
from stateanalytics.systems.agent_orchestrator.mapping_table import map_go_words, map_legacy_words
from stateanalytics.systems.agent_orchestrator.reasons import first_reasons, split_codes

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
    return add_columns(frame, NEEDED, "find_traps", *_traps())


@cache
def _traps() -> Steps:
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
    return ({name: rule.fill_null(False) for name, rule in rules.items()},)


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
    cause = first_true(
        (nw.col("is_flickering"), "flicker"),
        (by_event, "killed_by_event"),
        (by_worktree, "killed_by_worktree"),
    )
    why = nw.col("reattribution")
    is_killed = why.is_in(("killed_by_event", "killed_by_worktree")).fill_null(False)
    is_flicker = (why == "flicker").fill_null(False)
    doubt = first_true((stored == "stuck", "probe_failure"), default=reason)
    weights = {"flicker": 0.5, "killed_by_worktree": 0.6, "killed_by_event": 0.9}
    after = {
        "reattribution_confidence": look_up(why, weights, dtype=nw.Float64()),
        "session_reason": first_true(
            (is_flicker, doubt), (is_killed, "manually_killed"), default=reason
        ),
        "session_state": nw.when(is_flicker).then(stored).otherwise(state),
    }
    names = ["session_state", "session_reason", "stored_status", "is_kill_doubtful"]
    names += ["is_flickering", "has_kill_event", "is_worktree_gone"]
    return add_columns(frame, names, "reattribute_ends", {"reattribution": cause}, after)


KILL_WINDOW_S = 60.0
"""A kill event this long before the last transition explains a runtime that was lost."""

_AGES = {
    "created_age_s": "created_at",
    "terminated_age_s": "terminated_at",
    "restored_age_s": "restored_at",
    "transition_age_s": "last_transition_at",
}
_MAPPED = ("lifecycle", "outcome", "health", "delivery", "reason_codes", "confidence")
_ADDED: dict[str, pl.DataType] = {
    **dict.fromkeys((*_MAPPED, *REASON_CODES, "reattribution"), pl.String()),
    **dict.fromkeys(("confidence", "reattribution_confidence"), pl.Float64()),
    "_record": pl.Int64(),
}
_FLICKER = "run.lifecycle.flicker"


def add_kill_events(sessions: pl.DataFrame, decided: pl.DataFrame) -> pl.DataFrame:
    """Add ``has_kill_event``: does an event say that a person killed the session just then.

    Parameters
    ----------
    sessions : polars.DataFrame
        Records with ``entity_id`` and ``last_transition_at``.
    decided : polars.DataFrame
        `frames.DECISIONS` of the same input.
    """
    kills = decided.filter(
        pl.col("kind").is_in(KILL_EVENTS) & (pl.col("code") == "manually_killed")
    ).select("entity_id", killed_at="at")
    numbered = sessions.with_row_index("_record")
    gap_s = (pl.col("last_transition_at") - pl.col("killed_at")).dt.total_seconds(fractional=True)
    near = (
        numbered.select("_record", "entity_id", "last_transition_at")
        .join(kills, on="entity_id", how="inner")
        .filter((gap_s >= 0) & (gap_s <= KILL_WINDOW_S))["_record"]
        .unique()
    )
    return numbered.with_columns(has_kill_event=pl.col("_record").is_in(near.implode())).drop(
        "_record"
    )


def add_meaning(sessions: pl.DataFrame) -> pl.DataFrame:
    """Add the traps that a record is in, and what it means as lifecycle, health, delivery.

    Parameters
    ----------
    sessions : polars.DataFrame, shape (n_records, ...)
        Records with ``has_kill_event``.

    Returns
    -------
    polars.DataFrame, shape (n_records, ... + 22)
        The traps of `find_traps`, ``reattribution`` and its
        confidence, the mapped axes, ``reason_codes`` with the same codes one a column, and
        ``confidence``.

    Notes
    -----
    Records with axes are mapped by them, records that hold a word only by the word, and
    those of the Go rewrite by its derived status. The stored words stay as they are.
    """
    epoch = pl.lit(EPOCH)
    ages = {
        name: (epoch - pl.col(moment)).dt.total_seconds(fractional=True)
        for name, moment in _AGES.items()
    }
    # A trap compares moments of one record, so that any clock shows the same.
    numbered = sessions.with_columns(**ages, _record=pl.int_range(pl.len()))
    trapped = _trapped(numbered)
    is_go = pl.col("generation") == "G3"
    has_words = pl.col("is_synthesized").fill_null(value=False)
    is_readable = pl.col("is_readable")
    kinds = (
        (_by_axes, is_readable & ~is_go & ~has_words),
        (_by_word, is_readable & ~is_go & has_words),
        (_by_go_status, is_readable & is_go),
        (_unknown, ~is_readable),
    )
    # Each mapping is a long expression, which costs its making also where it has no rows.
    parts = [
        mapped(rows)
        for mapped, holds in kinds
        if (rows := trapped.filter(holds)).height or mapped is _unknown
    ]
    mapped = pl.concat([_filled(part) for part in parts])
    return trapped.join(mapped, on="_record", how="left", maintain_order="left").drop(
        "_record", *_AGES
    )


_ENDS = ("cleanup", "errored", "killed", "terminated")


def _trapped(sessions: pl.DataFrame) -> pl.DataFrame:
    """The traps, with the flat status held against the word that its own writer derives.

    A record without axes has nothing else than the flat status: that is no stale cache.
    The writer of ``statePayload`` left the word of an end in place, whatever the axes say.
    """
    is_kept_end = (
        (pl.col("generation") == "G1")
        & (pl.col("session_state") == "terminated")
        & pl.col("stored_status").is_in(_ENDS)
    )
    own = pl.when(is_kept_end).then("stored_status").otherwise("legacy_status")
    traps = find_traps(sessions.with_columns(legacy_status=own)).with_columns(
        legacy_status=sessions["legacy_status"]
    )
    has_words = pl.col("is_synthesized").fill_null(value=True)
    return traps.with_columns(is_status_stale=pl.col("is_status_stale") & ~has_words)


def _by_axes(sessions: pl.DataFrame) -> pl.DataFrame:
    known = sessions.with_columns(is_worktree_gone=pl.lit(None, pl.Boolean))
    attributed = reattribute_ends(known)
    mapped = map_axes(attributed)
    first = first_reasons(mapped.with_columns(evidence="evidence_text"), key=["_record"])
    with_confidence = mapped.join(
        first.select("_record", "confidence"), on="_record", how="left", maintain_order="left"
    )
    is_flicker = (pl.col("reattribution") == "flicker").fill_null(value=False)
    return with_confidence.with_columns(
        confidence=pl.coalesce("reattribution_confidence", "confidence"),
        reason_6=pl.when(is_flicker).then(pl.lit(_FLICKER)).otherwise("reason_6"),
        reason_codes=pl.when(is_flicker)
        .then(pl.format("{}, {}", "reason_codes", pl.lit(_FLICKER)))
        .otherwise("reason_codes"),
    )


def _by_word(sessions: pl.DataFrame) -> pl.DataFrame:
    """Records of one status word; AO itself reads ``starting`` as working."""
    word = pl.col("stored_status").replace({"starting": "working"})
    return split_codes(
        map_legacy_words(sessions.with_columns(status=word, has_pr=pl.col("pr_url").is_not_null()))
    )


def _by_go_status(sessions: pl.DataFrame) -> pl.DataFrame:
    mapped = map_go_words(sessions.with_columns(status="legacy_status"))
    more = pl.col("more_codes")
    is_left = (pl.col("health") == "ok") & more.str.contains("run.health.cleanup_", literal=True)
    return split_codes(
        mapped.with_columns(
            health=pl.when(is_left).then(pl.lit("degraded")).otherwise("health"),
            reason_codes=pl.concat_str("reason_codes", more, separator=", ", ignore_nulls=True),
        )
    )


def _unknown(sessions: pl.DataFrame) -> pl.DataFrame:
    return sessions.select("_record")


def _filled(part: pl.DataFrame) -> pl.DataFrame:
    """The same columns from every part; null where a rule does not give one."""
    return with_defaults(part, _ADDED).select(*_ADDED)

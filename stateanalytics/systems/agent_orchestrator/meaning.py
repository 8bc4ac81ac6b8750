"""Why a session is in its state: the codes of the mapping as reasons, with words and weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.agent_orchestrator.columns import (
    FrameT,
    Steps,
    add_columns,
    first_true,
    look_up,
    need,
    references,
    with_defaults,
)
from stateanalytics.systems.agent_orchestrator.events import KILL_EVENTS
from stateanalytics.systems.agent_orchestrator.mapping import (
    ODD_CODES,
    REASON_CODES,
    SESSION_MEANINGS,
    map_axes,
    map_go_words,
    map_legacy_words,
)
from stateanalytics.systems.agent_orchestrator.places import EPOCH, SYSTEM
from stateanalytics.systems.base import codes_from_csv

_SHARED = {
    "run.health.process_dead": "its process is gone",
    "run.delivery.missing": "it ended without a pull request",
}
"""Words for the codes that are not this system's own."""
_WORDS_ONLY = "run.lifecycle.synthesized"
_SEEN = ("agent_report:", "activity_signal=valid")
_BY_CI = ("run.running.fixing_ci", "run.running.resolving_review_comments")


def list_reasons(mapped: pl.DataFrame, *, key: Sequence[str]) -> pl.DataFrame:
    """The reasons of each session, one a row, most direct first.

    Parameters
    ----------
    mapped : polars.DataFrame, shape (n_sessions, ...)
        What `map_axes` gives, with the columns ``key``;
        optionally ``evidence`` (the stored text) and ``is_synthesized`` (of
        `parse_lifecycle`).
    key : sequence of str
        The columns that name a session.

    Returns
    -------
    polars.DataFrame, shape (n_reasons, len(key) + 7)
        ``key``, ``order`` (from 0), ``dimension`` (lifecycle, health, delivery), ``code``,
        ``message``, ``claim_status`` (observed, inferred, hypothesis), ``confidence`` (0 to
        1) and ``evidence``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    *Working* is what Agent Orchestrator falls back to: it counts as observed only where the
    evidence is a report or a valid signal. A made-up record is worth half.

    Examples
    --------
    >>> import polars as pl
    >>> from stateanalytics.systems.agent_orchestrator.mapping import AXES, map_axes
    >>> words = ["terminated", "runtime_lost", "none", "not_created", "exited", "process_missing"]
    >>> frame = pl.DataFrame([["app-5", *words]], schema=["session_id", *AXES], orient="row")
    >>> list_reasons(map_axes(frame), key=["session_id"]).select("code", "confidence").rows()
    [('run.aborted.runtime_lost', 0.6), ('run.delivery.missing', 1.0)]
    """
    need(mapped, [*key, *REASON_CODES], "list_reasons")
    codes = _codes_of(mapped)
    rows = with_defaults(mapped, _OPTIONAL).select(*key, *_OPTIONAL, *codes).with_row_index("_row")
    # One code of each row at a time: few rows have more than two, and lists are dear.
    listed = pl.concat(
        rows.filter(pl.col(code).is_not_null()).select(
            "_row", *key, *_OPTIONAL, code=code, order=_n_there(codes[:place])
        )
        for place, code in enumerate(codes)
    )
    return _in_words(listed.sort("_row", maintain_order=True), key)


def _n_there(codes: Sequence[str]) -> pl.Expr:
    return pl.sum_horizontal(
        pl.lit(0, pl.Int64), *(pl.col(code).is_not_null() for code in codes)
    ).cast(pl.Int64)


def first_reasons(mapped: pl.DataFrame, *, key: Sequence[str]) -> pl.DataFrame:
    """Of what `list_reasons` gives the most direct reason of each session."""
    filled = with_defaults(mapped, _OPTIONAL)
    first = filled.select(
        *key, *_OPTIONAL, code=pl.coalesce(_codes_of(mapped)), order=pl.lit(0, pl.Int64)
    )
    return _in_words(first.drop_nulls("code"), key)


def _in_words(rows: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """What the code of each row says, and how sure that is."""
    return rows.select(
        *key,
        "order",
        "code",
        "evidence",
        dimension=_dimension(),
        message=pl.col("code").replace_strict(_messages(), default=None, return_dtype=pl.String),
        claim_status=_claim(),
        confidence=_confidence(),
    ).select(
        *key, "order", "dimension", "code", "message", "claim_status", "confidence", "evidence"
    )


_OPTIONAL: dict[str, pl.DataType] = {"evidence": pl.String(), "is_synthesized": pl.Boolean()}


def _codes_of(mapped: pl.DataFrame) -> list[str]:
    """`REASON_CODES`, and what else a caller has numbered in the same way."""
    return [name for name in mapped.columns if re.fullmatch(r"reason_\d", name)]


def _messages() -> dict[str, str]:
    """Reason code to words, as they stand within a sentence."""
    codes = codes_from_csv("stateanalytics.systems.agent_orchestrator")
    # A word of a generation that keeps no reasons is not explained by being said again.
    said = (code for code in codes if "generation" not in code.meaning)
    return _SHARED | {code.code: code.meaning[0].lower() + code.meaning[1:] for code in said}


def _dimension() -> pl.Expr:
    family = pl.col("code").str.extract(r"^run\.([a-z]+)\.")
    is_named = family.is_in(("health", "delivery"))
    return pl.when(is_named).then(family).otherwise(pl.lit("lifecycle"))


def _is_seen() -> pl.Expr:
    """Was the state seen, and not only fallen back to."""
    evidence = pl.col("evidence")
    is_signal = evidence.str.starts_with(_SEEN[1]) & (
        pl.col("code") == "run.running.task_in_progress"
    )
    is_guess = pl.col("code").is_in(("run.running.task_in_progress", *_BY_CI))
    return (is_guess & (evidence.str.starts_with(_SEEN[0]) | is_signal)).fill_null(False)


def _is_made_up() -> pl.Expr:
    return pl.col("is_synthesized").fill_null(False) & (pl.col("order") == 0)


def _claim() -> pl.Expr:
    claims = {meaning.code: meaning.claim for meaning in SESSION_MEANINGS.values()}
    claim = pl.col("code").replace_strict(claims, default="observed", return_dtype=pl.String)
    is_odd = pl.col("code").is_in(ODD_CODES)
    return (
        pl.when(_is_seen())
        .then(pl.lit("observed"))
        .when(is_odd | _is_made_up())
        .then(pl.lit("inferred"))
        .otherwise(claim)
    )


def _confidence() -> pl.Expr:
    weights = {meaning.code: meaning.confidence for meaning in SESSION_MEANINGS.values()}
    weights |= dict.fromkeys(ODD_CODES, 0.4)
    weight = pl.col("code").replace_strict(weights, default=1.0, return_dtype=pl.Float64)
    halved = pl.when(_is_made_up()).then(pl.min_horizontal(weight, pl.lit(0.5))).otherwise(weight)
    return pl.when(_is_seen()).then(pl.lit(1.0)).otherwise(halved)


def split_codes(mapped: pl.DataFrame) -> pl.DataFrame:
    """The codes of ``reason_codes`` one a column, as `map_axes` gives them."""
    codes = pl.col("reason_codes").str.split(", ")
    return mapped.with_columns(
        codes.list.get(place, null_on_oob=True).alias(name)
        for place, name in enumerate(REASON_CODES)
    )


def recorded_reasons(sessions: pl.DataFrame) -> pl.DataFrame:
    """Why every session is in its state by its current record, as `schema.REASONS`.

    Parameters
    ----------
    sessions : polars.DataFrame
        `frames.SESSIONS`.

    Returns
    -------
    polars.DataFrame
        One row a reason, most direct first. Where two writers disagreed, or an event told
        what a record no longer says, the first reason is inferred, with the confidence of
        that; a record that holds a status word only is worth half.
    """
    current = sessions.filter("is_current").with_columns(
        _references=references(tool_result="evidence_text"),
        evidence="evidence_text",
        _confidence="confidence",
        system=pl.lit(SYSTEM),
        entity_type=pl.lit("session"),
    )
    told = ("_references", "_confidence", "reattribution")
    listed = list_reasons(split_codes(current), key=(*schema.ENTITY_KEY, *told))
    is_first, was_replaced = pl.col("order") == 0, pl.col("reattribution").is_not_null()
    return schema.REASONS.conform(
        listed.with_columns(
            evidence="_references",
            confidence=pl.when(is_first)
            .then(pl.coalesce("_confidence", "confidence"))
            .otherwise("confidence"),
            claim_status=pl.when(is_first & was_replaced)
            .then(
                pl.when(pl.col("reattribution") == "flicker")
                .then(pl.lit("hypothesis"))
                .otherwise(pl.lit("inferred"))
            )
            .when(pl.col("code") == _WORDS_ONLY)
            .then(pl.lit("inferred"))
            .otherwise("claim_status"),
            # A code without a message of its own is read out: its last part.
            message=pl.coalesce(
                "message", pl.col("code").str.extract(r"([a-z_]+)$").str.replace_all("_", " ")
            ),
        )
    )


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

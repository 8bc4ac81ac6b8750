"""What records and logs mean together: known contradictions, ADR-0033's axes, and reasons."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import left_joined
from stateanalytics.systems.agent_orchestrator import mapping
from stateanalytics.systems.agent_orchestrator.columns import (
    EPOCH,
    first_true,
    flag,
    look_up,
    references,
    with_defaults,
)
from stateanalytics.systems.agent_orchestrator.logs import KILL_EVENTS
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.base import codes_from_csv

RACE_S = 60.0
"""A session killed sooner after its creation was probed before its agent had started."""
OVERWRITE_S = (2.0, 60.0)
"""How long after a kill the poll that writes over its reason comes."""
KILL_WINDOW_S = 60.0
"""A kill event this long before the last transition explains a runtime that was lost."""


def find_traps(sessions: pl.DataFrame) -> pl.DataFrame:
    """Add which known contradictions each session record holds.

    Parameters
    ----------
    sessions : polars.DataFrame
        ``session_state``, ``session_reason``, ``runtime_state``, ``legacy_status``,
        ``stored_status`` (the flat status), ``detecting_attempts``
        and ages in seconds: ``created_age_s``, ``terminated_age_s``, ``restored_age_s``,
        ``transition_age_s`` (null: no such time).

    Returns
    -------
    polars.DataFrame
        With Booleans, never null: ``is_status_stale`` (the flat status is another than the
        axes imply), ``is_kill_doubtful`` (lost runtime that may be a kill of which the next
        poll overwrote the reason), ``is_flickering`` (two writers disagree from poll to poll:
        undecided), ``looks_ended_after_restore`` (restored, but still marked terminated),
        ``has_stale_end`` (alive again, but still has an end), ``is_zombie`` (not over, and
        its process is gone), ``is_spawn_race`` (lost within a minute of its creation).

    Notes
    -----
    ``lastTransitionAt`` is the last time a decision was written, changed or not: it is no
    dwell time, for any session.

    Examples
    --------
    >>> words = {"session_state": ["terminated"], "session_reason": ["runtime_lost"]}
    >>> words |= {"runtime_state": ["exited"], "legacy_status": ["killed"]}
    >>> words |= {"stored_status": ["killed"], "detecting_attempts": [0]}
    >>> ages = {"created_age_s": [900.0], "terminated_age_s": [100.0], "restored_age_s": [None]}
    >>> sessions = pl.DataFrame({**words, **ages, "transition_age_s": [85.0]})
    >>> find_traps(sessions)["is_kill_doubtful"].item()
    True
    """
    state, reason = pl.col("session_state"), pl.col("session_reason")
    ended, stored = pl.col("terminated_age_s"), pl.col("stored_status")
    is_over = state.is_in(("terminated", "done"))
    is_lost = (state == "terminated") & (reason == "runtime_lost")
    is_status_stale = stored != pl.col("legacy_status")
    rules = {
        "is_status_stale": is_status_stale,
        "is_kill_doubtful": is_lost & (ended - pl.col("transition_age_s")).is_between(*OVERWRITE_S),
        "is_flickering": state.is_in(("terminated", "detecting"))
        & (reason == "runtime_lost")
        & stored.is_in(("stuck", "detecting"))
        & is_status_stale
        & (pl.col("detecting_attempts") > 0),
        "looks_ended_after_restore": is_over & (pl.col("restored_age_s") <= ended),
        "has_stale_end": ~is_over & ended.is_not_null(),
        "is_zombie": ~is_over & pl.col("runtime_state").is_in(("exited", "missing")),
        "is_spawn_race": is_lost & (pl.col("created_age_s") - ended < RACE_S),
    }
    return sessions.with_columns(
        rule.fill_null(value=False).alias(name) for name, rule in rules.items()
    )


def reattribute_ends(sessions: pl.DataFrame) -> pl.DataFrame:
    """Replace what two writers left behind by what is known to have happened.

    Parameters
    ----------
    sessions : polars.DataFrame
        Columns of `find_traps`, and ``has_kill_event`` (Boolean: an event shows that a
        person killed it, up to a minute before the last transition).

    Returns
    -------
    polars.DataFrame
        With ``session_state`` and ``session_reason`` as to be mapped, and
        ``reattribution`` (``killed_by_event``, ``flicker``; null: unchanged) with
        ``reattribution_confidence``.

    Notes
    -----
    Without this every manual kill that was polled again reads as a crash, and a session
    that two writers fight over reads as dead every other time.

    Examples
    --------
    >>> words = {"session_state": ["terminated"], "session_reason": ["runtime_lost"]}
    >>> words |= {"stored_status": ["killed"], "is_flickering": [False]}
    >>> sessions = pl.DataFrame({**words, "has_kill_event": [True]})
    >>> reattribute_ends(sessions).select("session_reason", "reattribution").row(0)
    ('manually_killed', 'killed_by_event')
    """
    state, reason, stored = (
        pl.col(name) for name in ("session_state", "session_reason", "stored_status")
    )
    is_lost = (state == "terminated") & (reason == "runtime_lost")
    is_flicker, is_killed = (
        pl.col("reattribution").eq_missing(pl.lit(word)) for word in ("flicker", "killed_by_event")
    )
    doubt = first_true((stored == "stuck", "probe_failure"), default=reason)
    return sessions.with_columns(
        reattribution=first_true(
            (pl.col("is_flickering"), "flicker"),
            (is_lost & flag("has_kill_event"), "killed_by_event"),
        )
    ).with_columns(
        reattribution_confidence=look_up(
            pl.col("reattribution"), {"flicker": 0.5, "killed_by_event": 0.9}, dtype=pl.Float64()
        ),
        session_reason=first_true(
            (is_flicker, doubt), (is_killed, "manually_killed"), default=reason
        ),
        session_state=first_true((is_flicker, stored), default=state),
    )


def add_kill_events(sessions: pl.DataFrame, decisions: pl.DataFrame) -> pl.DataFrame:
    """Add ``has_kill_event``: does an event show that a person killed the session just then.

    Parameters
    ----------
    sessions : polars.DataFrame
        Records with ``entity_id`` and ``last_transition_at``.
    decisions : polars.DataFrame
        `frames.DECISIONS` of the same input.
    """
    kills = decisions.filter(
        pl.col("kind").is_in(KILL_EVENTS) & (pl.col("code") == "manually_killed")
    ).select("entity_id", killed_at="at")
    numbered = sessions.with_row_index("_record")
    gap_s = (pl.col("last_transition_at") - pl.col("killed_at")).dt.total_seconds(fractional=True)
    killed = (
        numbered.select("_record", "entity_id", "last_transition_at")
        .join(kills, on="entity_id", how="inner")
        .filter(gap_s.is_between(0, KILL_WINDOW_S))["_record"]
        .unique()
    )
    has_kill_event = pl.col("_record").is_in(killed.implode())
    return numbered.with_columns(has_kill_event=has_kill_event).drop("_record")


_AGES = {
    "created_age_s": "created_at",
    "terminated_age_s": "terminated_at",
    "restored_age_s": "restored_at",
    "transition_age_s": "last_transition_at",
}
_ADDED: dict[str, pl.DataType] = {
    **dict.fromkeys(("lifecycle", "outcome", "health", "delivery", "reason_codes"), pl.String()),
    "reattribution": pl.String(),
    **dict.fromkeys(("confidence", "reattribution_confidence"), pl.Float64()),
    "_record": pl.Int64(),
}
_FLICKER = "run.lifecycle.flicker"


def add_meaning(sessions: pl.DataFrame) -> pl.DataFrame:
    """Add contradictions within each record, and its lifecycle, health and delivery.

    Parameters
    ----------
    sessions : polars.DataFrame, shape (n_records, ...)
        Records with ``has_kill_event``.

    Returns
    -------
    polars.DataFrame, shape (n_records, ... + 15)
        The columns of `find_traps`, ``reattribution`` and its
        confidence, the mapped axes, ``reason_codes``, and ``confidence``.

    Notes
    -----
    Records with axes are mapped by them, records that hold a word only by the word, and
    those of the Go rewrite by its derived status. The stored words stay as they are.
    """
    ages = {
        name: (pl.lit(EPOCH) - pl.col(moment)).dt.total_seconds(fractional=True)
        for name, moment in _AGES.items()
    }
    # A trap compares moments of one record, so that any clock shows the same.
    trapped = _trapped(sessions.with_columns(**ages, _record=pl.int_range(pl.len())))
    is_go = pl.col("is_readable") & (pl.col("generation") == "G3")
    is_word = pl.col("is_readable") & ~is_go & flag("is_synthesized")
    is_axes = pl.col("is_readable") & ~is_go & ~flag("is_synthesized")
    mappings = ((_by_axes, is_axes), (_by_word, is_word), (_by_go_status, is_go))
    # Each mapping is a long expression, which costs its making also where it has no rows.
    parts = [mapped(rows) for mapped, holds in mappings if (rows := trapped.filter(holds)).height]
    unreadable = trapped.filter(~pl.col("is_readable")).select("_record")
    mapped = pl.concat(with_defaults(part, _ADDED).select(*_ADDED) for part in (*parts, unreadable))
    joined = trapped.join(mapped, on="_record", how="left", maintain_order="left")
    return joined.drop("_record", *_AGES)


_ENDS = ("cleanup", "errored", "killed", "terminated")


def _trapped(sessions: pl.DataFrame) -> pl.DataFrame:
    """The traps, with the flat status compared to the word that its own writer derives.

    A record without axes has nothing else than the flat status: that is no stale cache.
    The writer of ``statePayload`` left the word of an end in place, whatever the axes are.
    """
    is_kept_end = (
        (pl.col("generation") == "G1")
        & (pl.col("session_state") == "terminated")
        & pl.col("stored_status").is_in(_ENDS)
    )
    own = pl.when(is_kept_end).then("stored_status").otherwise("legacy_status")
    traps = find_traps(sessions.with_columns(legacy_status=own))
    has_axes = ~pl.col("is_synthesized").fill_null(value=True)
    return traps.with_columns(
        sessions["legacy_status"], is_status_stale=pl.col("is_status_stale") & has_axes
    )


def _by_axes(sessions: pl.DataFrame) -> pl.DataFrame:
    mapped = mapping.map_axes(reattribute_ends(sessions))
    first = first_reasons(mapped.with_columns(evidence="evidence_text"), key=["_record"])
    with_confidence = left_joined(mapped, first.select("_record", "confidence"), on="_record")
    is_flicker = pl.col("reattribution").eq_missing(pl.lit("flicker"))
    return with_confidence.with_columns(
        confidence=pl.coalesce("reattribution_confidence", "confidence"),
        reason_codes=first_true(
            (is_flicker, pl.format("{}, {}", "reason_codes", pl.lit(_FLICKER))),
            default=pl.col("reason_codes"),
        ),
    )


def _by_word(sessions: pl.DataFrame) -> pl.DataFrame:
    """Records of one status word; Agent Orchestrator itself reads ``starting`` as working."""
    word = pl.col("stored_status").replace({"starting": "working"})
    has_pr = pl.col("pr_url").is_not_null()
    return mapping.map_legacy_words(sessions.with_columns(status=word, has_pr=has_pr))


def _by_go_status(sessions: pl.DataFrame) -> pl.DataFrame:
    mapped = mapping.map_go_words(sessions.with_columns(status="legacy_status"))
    more = pl.col("more_codes")
    is_cleanup_open = more.str.contains("run.health.cleanup_", literal=True)
    is_degraded = (pl.col("health") == "ok") & is_cleanup_open
    return mapped.with_columns(
        health=first_true((is_degraded, "degraded"), default=pl.col("health")),
        reason_codes=pl.concat_str("reason_codes", more, separator=", ", ignore_nulls=True),
    )


# --- reasons -----------------------------------------------------------------------------

_SHARED_MESSAGES = {
    "run.health.process_dead": "its process is gone",
    "run.delivery.missing": "it ended without a pull request",
}
"""Messages of the codes that are not this system's own."""
_WORDS_ONLY = "run.lifecycle.synthesized"
_BY_CI = ("run.running.fixing_ci", "run.running.resolving_review_comments")
_OPTIONAL: dict[str, pl.DataType] = {"evidence": pl.String(), "is_synthesized": pl.Boolean()}


def list_reasons(mapped: pl.DataFrame, *, key: Sequence[str]) -> pl.DataFrame:
    """Reasons of each session, one per row, most direct first.

    Parameters
    ----------
    mapped : polars.DataFrame, shape (n_sessions, ...)
        Sessions with ``reason_codes`` and the columns ``key``; optionally ``evidence`` (the
        stored text) and ``is_synthesized`` (of `parse_lifecycle`).
    key : sequence of str
        The columns that name a session.

    Returns
    -------
    polars.DataFrame, shape (n_reasons, len(key) + 7)
        ``key``, ``order`` (from 0), ``dimension`` (lifecycle, health, delivery), ``code``,
        ``message``, ``claim_status`` (observed, inferred, hypothesis), ``confidence`` (0 to
        1) and ``evidence``.

    Notes
    -----
    *Working* is what Agent Orchestrator falls back to: it counts as observed only where the
    evidence is a report or a valid signal. A synthesized record is worth half.

    Examples
    --------
    >>> from stateanalytics.systems.agent_orchestrator.mapping import AXES, map_axes
    >>> words = ["terminated", "runtime_lost", "none", "not_created", "exited", "process_missing"]
    >>> sessions = pl.DataFrame([["app-5", *words]], schema=["session_id", *AXES], orient="row")
    >>> list_reasons(map_axes(sessions), key=["session_id"]).select("code", "confidence").rows()
    [('run.aborted.runtime_lost', 0.6), ('run.delivery.missing', 1.0)]
    """
    # Most sessions have the same codes as many others: each list is split one time.
    lists = mapped.select("reason_codes").drop_nulls().unique()
    codes = lists.with_columns(code=pl.col("reason_codes").str.split(", "))
    codes = codes.with_columns(order=pl.int_ranges(pl.col("code").list.len()))
    rows = with_defaults(mapped, _OPTIONAL).select(*key, *_OPTIONAL, "reason_codes")
    listed = rows.join(
        codes.explode("code", "order"), on="reason_codes", maintain_order="left_right"
    )
    return _explained(listed, key)


def first_reasons(mapped: pl.DataFrame, *, key: Sequence[str]) -> pl.DataFrame:
    """Most direct reason of each session: the first of its rows in `list_reasons`."""
    first = with_defaults(mapped, _OPTIONAL).select(
        *key, *_OPTIONAL, code=first_code(), order=pl.lit(0, pl.Int64)
    )
    return _explained(first.drop_nulls("code"), key)


def first_code() -> pl.Expr:
    """The first of ``reason_codes``."""
    return pl.col("reason_codes").str.splitn(", ", 2).struct[0]


def _explained(rows: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Message, claim and confidence of the code of each row."""
    code, evidence = pl.col("code"), pl.col("evidence")
    family = code.str.extract(r"^run\.([a-z]+)\.")
    is_report = evidence.str.starts_with("agent_report:")
    is_signal = evidence.str.starts_with("activity_signal=valid")
    at_work = "run.running.task_in_progress"
    # Seen, and not only fallen back to.
    is_seen = (
        code.is_in((at_work, *_BY_CI)) & (is_report | (is_signal & (code == at_work)))
    ).fill_null(value=False)
    is_made_up = flag("is_synthesized") & (pl.col("order") == 0)
    claims = {meaning.code: meaning.claim for meaning in mapping.SESSION_MEANINGS.values()}
    weights = {meaning.code: meaning.confidence for meaning in mapping.SESSION_MEANINGS.values()}
    weight = look_up(code, weights | dict.fromkeys(mapping.ODD_CODES, 0.4), 1.0, pl.Float64())
    return rows.select(
        *key,
        "order",
        dimension=first_true((family.is_in(("health", "delivery")), family), default="lifecycle"),
        code=code,
        message=look_up(code, _messages()),
        claim_status=first_true(
            (is_seen, "observed"),
            (code.is_in(mapping.ODD_CODES) | is_made_up, "inferred"),
            default=look_up(code, claims, "observed"),
        ),
        confidence=pl.when(is_seen)
        .then(1.0)
        .when(is_made_up)
        .then(pl.min_horizontal(weight, pl.lit(0.5)))
        .otherwise(weight),
        evidence=evidence,
    )


def _messages() -> dict[str, str]:
    """Reason code to its message, as it stands within a sentence."""
    codes = codes_from_csv("stateanalytics.systems.agent_orchestrator")
    # A generation that keeps no reasons has no other message than the status itself.
    return _SHARED_MESSAGES | {
        code.code: code.meaning[0].lower() + code.meaning[1:]
        for code in codes
        if "generation" not in code.meaning
    }


def recorded_reasons(sessions: pl.DataFrame) -> pl.DataFrame:
    """Why every session is in its state by its current record, as `schema.REASONS`.

    Parameters
    ----------
    sessions : polars.DataFrame
        `frames.SESSIONS`.

    Returns
    -------
    polars.DataFrame
        One row per reason, most direct first. Where two writers disagreed, or an event
        recorded what a record no longer shows, the first reason is inferred, with the
        confidence of that; a record that holds a status word only is worth half.
    """
    current = sessions.filter("is_current").with_columns(
        _references=references(tool_result="evidence_text"),
        evidence="evidence_text",
        _confidence="confidence",
        system=pl.lit(SYSTEM),
        entity_type=pl.lit("session"),
    )
    carried = ("_references", "_confidence", "reattribution")
    listed = list_reasons(current, key=(*schema.ENTITY_KEY, *carried))
    is_first = pl.col("order") == 0
    is_flicker = pl.col("reattribution") == "flicker"
    own_confidence = pl.when(is_first).then("_confidence")
    return schema.REASONS.conform(
        listed.with_columns(
            evidence="_references",
            confidence=pl.coalesce(own_confidence, "confidence"),
            claim_status=first_true(
                (is_first & is_flicker, "hypothesis"),
                (is_first & pl.col("reattribution").is_not_null(), "inferred"),
                (pl.col("code") == _WORDS_ONLY, "inferred"),
                default=pl.col("claim_status"),
            ),
            # A code without a message of its own is read out: its last part.
            message=pl.coalesce(
                "message", pl.col("code").str.extract(r"([a-z_]+)$").str.replace_all("_", " ")
            ),
        )
    )

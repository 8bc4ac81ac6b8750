"""What records and logs mean together: traps, what was written over, and ADR-0033's axes."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.agent_orchestrator.files import EPOCH
from stateanalytics.systems.agent_orchestrator.mapping import REASON_CODES, map_axes
from stateanalytics.systems.agent_orchestrator.mapping_reasons import list_reasons
from stateanalytics.systems.agent_orchestrator.mapping_words import map_go_words, map_legacy_words
from stateanalytics.systems.agent_orchestrator.traps import find_traps, reattribute_ends

KILL_EVENTS = ("session.killed", "session.kill_started")
KILL_WINDOW_S = 60.0
"""A kill event this long before the last transition explains a runtime that was lost."""

_AGES = {
    "created_age_s": "created_at",
    "terminated_age_s": "terminated_at",
    "restored_age_s": "restored_at",
    "transition_age_s": "last_transition_at",
}
_MAPPED = ("lifecycle", "outcome", "health", "delivery", "reason_codes", "confidence")
_FLICKER = "run.lifecycle.flicker"


def add_kill_events(sessions: pl.DataFrame, entries: pl.DataFrame) -> pl.DataFrame:
    """Add ``has_kill_event``: does an event say that a person killed the session just then.

    Parameters
    ----------
    sessions : polars.DataFrame
        Records with ``entity_id`` and ``last_transition_at``.
    entries : polars.DataFrame
        Entries of logs, linked to ``entity_id``.
    """
    kills = entries.filter(
        pl.col("kind").is_in(KILL_EVENTS)
        & (pl.col("code") == "manually_killed")
        & pl.col("entity_id").is_not_null()
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
    ages = {
        name: (pl.lit(EPOCH) - pl.col(moment)).dt.total_seconds(fractional=True)
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
    names = [
        *_MAPPED, *REASON_CODES, "reattribution", "reattribution_confidence", "_record",
    ]  # fmt: skip
    mapped = pl.concat([_filled(part, names) for part in parts])
    return trapped.join(mapped, on="_record", how="left", maintain_order="left").drop(
        "_record", *_AGES
    )


def _trapped(sessions: pl.DataFrame) -> pl.DataFrame:
    """The traps, with the flat status held against the word that its own writer derives.

    A record without axes has nothing else than the flat status: that is no stale cache.
    """
    own = pl.coalesce("trinity_status", "legacy_status")
    traps = find_traps(sessions.with_columns(legacy_status=own)).with_columns(
        legacy_status=sessions["legacy_status"]
    )
    has_words = pl.col("is_synthesized").fill_null(value=True)
    return traps.with_columns(is_status_stale=pl.col("is_status_stale") & ~has_words)


def _by_axes(sessions: pl.DataFrame) -> pl.DataFrame:
    known = sessions.with_columns(is_worktree_gone=pl.lit(None, pl.Boolean))
    attributed = reattribute_ends(known)
    mapped = map_axes(attributed)
    listed = list_reasons(mapped.with_columns(evidence="evidence_text"), key=["_record"]).filter(
        pl.col("order") == 0
    )
    with_confidence = mapped.join(
        listed.select("_record", "confidence"), on="_record", how="left", maintain_order="left"
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
    return _split(
        map_legacy_words(sessions.with_columns(status=word, has_pr=pl.col("pr_url").is_not_null()))
    )


def _by_go_status(sessions: pl.DataFrame) -> pl.DataFrame:
    return _split(map_go_words(sessions.with_columns(status="legacy_status")))


def _split(mapped: pl.DataFrame) -> pl.DataFrame:
    """The codes of ``reason_codes`` one a column, as `map_axes` gives them."""
    codes = pl.col("reason_codes").str.split(", ")
    return mapped.with_columns(
        **{name: codes.list.get(place, null_on_oob=True) for place, name in enumerate(REASON_CODES)}
    )


def _unknown(sessions: pl.DataFrame) -> pl.DataFrame:
    return sessions.select("_record")


def _filled(part: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """The same columns from every part; null where a rule does not give one."""
    real = ("confidence", "reattribution_confidence")
    kinds = {name: pl.Float64 if name in real else pl.String for name in names} | {
        "_record": pl.Int64
    }
    return part.select(
        (pl.col(name) if name in part.columns else pl.lit(None)).cast(kinds[name]).alias(name)
        for name in names
    )

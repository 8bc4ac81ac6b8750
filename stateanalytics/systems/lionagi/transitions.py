"""Status changes: which may follow which, the recorded history, and who wrote each end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.package_tables import package_table, table_rows
from stateanalytics.core.vocabulary import STATUS_WORDS, TABLES, words_of
from stateanalytics.systems.lionagi.raw import Raw
from stateanalytics.systems.situations import first_that_holds


@dataclass(frozen=True)
class Edge:
    """One declared status change, and what a writer must provide to make it."""

    entity_type: str
    before: str
    after: str
    actor_types: tuple[str, ...] = ()
    required_patch: tuple[str, ...] = ()
    required_guard: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lifecycle:
    """How the histories of one entity type are written.

    Attributes
    ----------
    same_status : str
        What a write of the current status does: ``append`` a row, or ``noop``.
    reason_prefixes : tuple of str
        Domains of reason codes that the type declares; writers may use others.
    has_reason_columns : bool
        Whether the entity's row keeps the last reason.
    """

    entity_type: str
    same_status: str
    reason_prefixes: tuple[str, ...]
    has_reason_columns: bool


LIFECYCLES = package_table(__package__, "lifecycles.csv", Lifecycle)


def _any_other(entity_type: str) -> tuple[Edge, ...]:
    """Edges from each open status to every other: shows and plays move freely until they end."""
    words = words_of(entity_type)
    return tuple(
        Edge(entity_type, before.raw_status, after.raw_status)
        for before in words
        for after in words
        if not before.is_terminal and before != after
    )


# A delivery that a crashed worker left behind is taken over by counting the attempt.
EDGES: tuple[Edge, ...] = (
    *package_table(__package__, "edges.csv", Edge),
    *_any_other("show"),
    *_any_other("play"),
)


VERDICTS = (
    *("first", "legal", "same_status", "override"),
    *("illegal_before_0_28", "illegal", "unknown"),
)
"""Classes of a change. ``first``: no status before it was recorded, so there is no edge
to judge. ``unknown``: no graph for the entity type, or a word outside its vocabulary."""

OVERRIDE_EVENT = "admin.status_transition_override"
_OVERRIDE_CODE = "session.reopened.by_resume"
_OVERRIDE_WITHIN = timedelta(seconds=1)
TERMINAL_FLOOR_AT = datetime(2026, 7, 7, tzinfo=UTC)
"""Release of lionagi 0.28.0, the first to refuse changes of a terminal status."""


def classify_transitions(
    transitions: pl.DataFrame, *, events: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Status changes, each with its class of `VERDICTS`.

    Parameters
    ----------
    transitions : polars.DataFrame
        In the shape of ``schema.TRANSITIONS``.
    events : polars.DataFrame, optional
        In the shape of ``schema.EVENTS``. An ``admin.status_transition_override`` of the
        entity within a second proves that an exit from a terminal status was intended.

    Returns
    -------
    polars.DataFrame
        The same rows with ``verdict``: text, never null.

    Notes
    -----
    An undeclared edge between open statuses is ``illegal`` at any time: no release
    declared it, though writers other than the lifecycle service could make it.

    Examples
    --------
    >>> day = datetime(2026, 8, 1, tzinfo=UTC)
    >>> change = {"source": "a.db", "entity_type": "session", "entity_id": "a", "at": day,
    ...           "previous_status": "failed", "status": "completed", "reason_code": None}
    >>> classify_transitions(pl.DataFrame([change]))["verdict"].to_list()
    ['illegal']
    """
    edge = pl.concat_str("entity_type", "previous_status", "status", separator="|")
    before = pl.concat_str("entity_type", "previous_status", separator="|")
    after = pl.concat_str("entity_type", "status", separator="|")
    is_known = before.is_in(_KNOWN) & after.is_in(_KNOWN)
    is_override = pl.col("reason_code") == _OVERRIDE_CODE
    if events is not None:
        is_override |= pl.lit(_has_override_event(transitions, events))
    verdicts = {
        "first": pl.col("previous_status").is_null(),
        "unknown": ~is_known.fill_null(value=False),
        "legal": edge.is_in(_DECLARED),
        "same_status": pl.col("previous_status") == pl.col("status"),
        "override": is_override,
        "illegal_before_0_28": before.is_in(_TERMINAL) & (pl.col("at") < TERMINAL_FLOOR_AT),
    }
    return transitions.with_columns(verdict=first_that_holds(verdicts).fill_null("illegal"))


_DECLARED = [f"{edge.entity_type}|{edge.before}|{edge.after}" for edge in EDGES]
_MANAGED_WORDS = [
    word for word in STATUS_WORDS if word.entity_type in {cycle.entity_type for cycle in LIFECYCLES}
]
_KNOWN = [f"{word.entity_type}|{word.raw_status}" for word in _MANAGED_WORDS]
_TERMINAL = [f"{word.entity_type}|{word.raw_status}" for word in _MANAGED_WORDS if word.is_terminal]


def _has_override_event(transitions: pl.DataFrame, events: pl.DataFrame) -> pl.Series:
    """Whether each change has an override event of the same entity within a second."""
    key = ["source", "entity_id"]
    overrides = events.filter(pl.col("kind") == OVERRIDE_EVENT)
    changes = transitions.select(*key, "at", place=pl.int_range(pl.len()))
    pairs = changes.join(overrides.select(*key, event_at="at"), on=key, how="inner")
    near = pairs.filter((pl.col("at") - pl.col("event_at")).abs() <= _OVERRIDE_WITHIN)["place"]
    return changes["place"].is_in(near.implode())


_WITHOUT_A_RUN = {("schedule_run", "skipped"), ("schedule_run", "cancelled")}
KNOWN: dict[str, tuple[str, ...]] = {
    entity_type: tuple(word.raw_status for word in words_of(entity_type)) for entity_type in TABLES
}


# Ends of work that ran, so that a missing time is a gap: a skipped run or a play that
# was blocked before it began has no end to record.
ENDS_WITH_A_TIME: dict[str, tuple[str, ...]] = {
    entity_type: tuple(
        word.raw_status
        for word in words_of(entity_type)
        if word.is_terminal and (entity_type, word.raw_status) not in _WITHOUT_A_RUN
    )
    for entity_type in ("session", "invocation", "schedule_run", "engine_run")
}
RUNNING: dict[str, tuple[str, ...]] = {
    "session": ("running",),
    "invocation": ("running",),
    "play": ("running", "prepared"),
    "schedule_run": ("queued", "waiting_dependency", "running"),
    "engine_run": ("running",),
}


# Older call sites wrote the table's name or the route's.
_ALIASES = {
    "run": "session",
    **{f"{name}s": name for name in ("session", "show", "play", "invocation", "team")},
    **{"schedule_runs": "schedule_run", "schedules": "schedule", "dispatch_outbox": "dispatch"},
}


def transitions(raw: Raw) -> pl.DataFrame:
    """Accepted status changes, one row each.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables, as `raw.read_raw` gives them.

    Returns
    -------
    polars.DataFrame, shape (n_transitions, 12)
        Sorted by ``at``, then ``seq`` (the row's number in the table: ids are random, and
        several changes may have the same time).
    """
    rows = raw["status_transitions"].select(
        pl.col("entity_id", "previous_status", "status", "actor", "metadata"),
        entity_type=pl.col("entity_type").replace(_ALIASES),
        at="created_at",
        seq="rowid",
        reason_code=pl.col("reason_code").replace("", None),
        message=pl.col("reason_summary").replace("", None),
        writer="source",
        evidence="evidence_refs",
    )
    # Rows are read in table order, and are mostly written in the order of time.
    is_ordered = rows["at"].null_count() == 0 and rows["at"].is_sorted()
    return rows if is_ordered else rows.sort("at", "seq", nulls_last=True)


_SWEEPERS = table_rows(__package__, "sweepers.csv")
# Codes that only a sweeper writes; `session.*` codes are verdicts of an observer, except
# the one that reopens a session.
_SWEEPER_CODES, _SWEEPER_SUMMARIES, _SWEEPER_ACTORS = (
    [row["word"] for row in _SWEEPERS if row["of"] == of] for of in ("code", "summary", "actor")
)
_HAS_SWEEP_EVIDENCE = (
    pl.col("evidence")
    .str.contains(
        '"(kill_event|stale_kill|child_stale_kill|phantom_classification|session_health)"'
    )
    .fill_null(value=False)
)


def _key_of(transitions: pl.DataFrame) -> list[str]:
    return [name for name in schema.ENTITY_KEY if name in transitions.columns]


def _last_writers(transitions: pl.DataFrame) -> pl.DataFrame:
    """Entities of which the last transition was written by an observer or an import.

    ``raw_status`` is the status that it wrote, ``wrote`` is ``observer`` or ``import``.
    """
    key = _key_of(transitions)
    is_sweeper = pl.col("actor").is_in(_SWEEPER_ACTORS) | _HAS_SWEEP_EVIDENCE
    is_import = pl.col("actor") == "shows_import"
    wrote = first_that_holds({"import": is_import, "observer": is_sweeper})
    writers = transitions.select(*key, raw_status="status", wrote=wrote, seq="seq", at="at")
    # Most entities end by themselves: only those that somebody else wrote need a last row.
    written = writers.filter(pl.col("wrote").is_not_null())
    if written.is_empty():
        return written.select(*key, "raw_status", "wrote")
    return (
        writers.join(written.select(key).unique(), on=key, how="semi")
        .sort("at", "seq", nulls_last=False)
        .group_by(key)
        .agg(pl.col("raw_status", "wrote").last())
        .filter(pl.col("wrote").is_not_null())
    )


def add_end_writers(entities: pl.DataFrame, transitions: pl.DataFrame) -> pl.DataFrame:
    """Entities with ``end_written_by``: executor, observer or import.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `stateanalytics.core.schema.ENTITIES`.
    transitions : polars.DataFrame
        In the shape of `stateanalytics.core.schema.TRANSITIONS`.

    Returns
    -------
    polars.DataFrame
        ``entities`` in their order; ``executor`` where nothing shows another writer, null
        without an end.
    """
    key = [*_key_of(transitions), "raw_status"]
    writers = _last_writers(transitions)
    # Only the key is joined: a join copies every column.
    wrote = entities.select(key).join(writers, on=key, how="left", maintain_order="left")["wrote"]
    by_observer = (
        (pl.col("wrote") == "observer")
        | (pl.col("recorded_by") == "mirrored")
        | pl.col("is_end_approximate")
        | pl.col("reason_code").is_in(_SWEEPER_CODES)
        | (
            pl.col("reason_code").str.starts_with("session.")
            & (pl.col("reason_code") != _OVERRIDE_CODE)
        )
        | pl.col("reason_message").is_in(_SWEEPER_SUMMARIES)
        | _HAS_SWEEP_EVIDENCE
        | (
            # An invocation that names itself as evidence was ended by a deadline.
            (pl.col("entity_type") == "invocation")
            & pl.col("evidence").str.contains('"invocation"', literal=True)
        )
    )
    by_import = (pl.col("recorded_by") == "imported") | (pl.col("wrote") == "import")
    writer = first_that_holds({"import": by_import, "observer": by_observer}).fill_null("executor")
    has_end = pl.when(pl.col("ended_at").is_not_null())
    rows = entities.with_columns(wrote)
    return rows.with_columns(end_written_by=has_end.then(writer)).drop("wrote")

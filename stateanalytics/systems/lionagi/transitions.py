"""Status changes: which may follow which, the recorded history, who wrote each end, and why.

Beyond the one reason that a row stores there are further listed codes, and those inferred from
other rows. Only rows that have any get ``recorded_reasons``. Everything follows from rows of
``entities``, so that a past instant is explained by its own rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import collected, collected_all, left_joined
from stateanalytics.core.package_tables import package_table, table_rows
from stateanalytics.core.vocabulary import ADR_WORDS, STATUS_WORDS, TABLES, words_of
from stateanalytics.core.windows import instant
from stateanalytics.systems import situations
from stateanalytics.systems.lionagi.frames import SYSTEM, Raw
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
        "illegal_before_0_28": before.is_in(_TERMINAL)
        & (pl.col("at") < instant(TERMINAL_FLOOR_AT)),
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
        The tables, as `frames.read_raw` gives them.

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
    writers = transitions.lazy().select(*key, raw_status="status", wrote=wrote, seq="seq", at="at")
    # Most entities end by themselves: only those that somebody else wrote need a last row.
    written = writers.filter(pl.col("wrote").is_not_null()).collect()
    if written.is_empty():
        return written[[*key, "raw_status", "wrote"]]
    return (
        writers.join(written.lazy().select(key).unique(), on=key, how="semi")
        .sort("at", "seq", nulls_last=False)
        .group_by(key)
        .agg(pl.col("raw_status", "wrote").last())
        .filter(pl.col("wrote").is_not_null())
        .pipe(collected)
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
    wrote = left_joined(entities[key], writers, on=key)["wrote"]
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
    rows = entities.lazy().with_columns(wrote)
    return rows.with_columns(end_written_by=has_end.then(writer)).drop("wrote").pipe(collected)


# --- reasons -----------------------------------------------------------------------------

_KEY = list(schema.ENTITY_KEY)
_PLACE = "_place"
_BAD_ENDS = ("failed", "timed_out", "cancelled", "aborted")
# The store records that the other entity blocks this one, not that it is the cause.
_CONFIDENCE = 0.8
_MESSAGES = {row["code"]: row["message"] for row in table_rows(__package__, "inferred.csv")}
_EXPLAINED_TYPES = ("play", "show", "team", "schedule")
_MAX_NAMED = 5
_MAX_CHARS = 100
_WORDS = pl.DataFrame(
    [
        (word.entity_type, word.raw_status, word.lifecycle, word.outcome, word.is_terminal)
        for word in (*STATUS_WORDS, *ADR_WORDS)
    ],
    schema={
        **dict.fromkeys(("entity_type", "raw_status", "lifecycle", "outcome"), pl.String),
        "is_terminal": pl.Boolean,
    },
    orient="row",
)


def add_all_reasons(entities: pl.DataFrame) -> pl.DataFrame:
    """Entities with all their recorded reasons, and the health of teams with an ended parent.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`; rows of other systems stay as they are.

    Returns
    -------
    polars.DataFrame
        The same rows in their order.
    """
    is_mine = (pl.col("system") == SYSTEM).fill_null(value=False)
    # Most sessions have no list of codes: only rows that may have more reasons are examined.
    has_codes = pl.col("stored_reason_codes").ne_missing(pl.lit("[]"))
    may_have_reasons = (pl.col("stored_reason_codes").is_not_null() & has_codes) | pl.col(
        "entity_type"
    ).is_in(_EXPLAINED_TYPES)
    rows = (
        entities.lazy()
        .filter(is_mine & may_have_reasons)
        .with_columns(codes=situations.texts_of("stored_reason_codes"))
    )
    by_rules = _inferred_reasons(rows)
    reasons, inferred = collected_all(
        pl.concat([_stored_reasons(rows, by_rules), by_rules]), by_rules
    )
    has_any = (is_mine & pl.col("recorded_reasons").is_not_null()).any()
    if reasons.is_empty() and not entities.select(has_any).item():
        return entities
    placed = entities.with_row_index(_PLACE)
    in_order = situations.numbered(
        reasons.with_columns(place=pl.int_range(pl.len())), schema.ENTITY_KEY
    )
    orphans = inferred.filter(dimension="health").select(*_KEY, health=pl.lit("orphaned"))
    explained = (
        situations.add_reasons(placed.filter(is_mine), in_order)
        .join(orphans, on=_KEY, how="left", maintain_order="left")
        .with_columns(recorded_health="health")
        .drop("health")
    )
    both = pl.concat([explained, placed.filter(~is_mine)])
    return both.sort(_PLACE).drop(_PLACE)


def _stored_reasons(rows: pl.LazyFrame, inferred: pl.LazyFrame) -> pl.LazyFrame:
    """The stored reason and the rest of the list, where there is more than the stored one."""
    code = pl.col("reason_code")
    has_more = (
        (pl.col("codes").list.len() > 1)
        | (pl.col("codes").list.first() != code)
        | (code.str.contains(situations.OTHER_AXES) & pl.col("codes").is_not_null())
    ).fill_null(value=False)
    explained = inferred.select(_KEY).unique().with_columns(has_inferred=pl.lit(value=True))
    kept = rows.join(explained, on=_KEY, how="left", maintain_order="left").filter(
        has_more | pl.col("has_inferred").is_not_null()
    )
    first = kept.filter(pl.any_horizontal(pl.col("reason_code", "reason_message").is_not_null()))
    rest = (
        kept.select(*_KEY, "codes", own="reason_code")
        .explode("codes")
        .filter(pl.col("codes") != pl.col("own"))
        .select(*_KEY, reason_code="codes")
    )
    both = pl.concat([first, rest], how="diagonal")
    named = both.with_columns(code="reason_code", message="reason_message")
    return _as_reasons(named, situations.OBSERVED, 1.0)


def _inferred_reasons(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Codes of ADR-0033 that follow from other rows, where a row has no code of its own."""
    worded = rows.join(
        _WORDS.lazy(), on=["entity_type", "raw_status"], how="left", maintain_order="left"
    )
    has_no_code = pl.col("reason_code").is_null()
    is_blocked = pl.col("lifecycle") == "blocked"
    plays = worded.filter(entity_type="play", parent_type="show").with_columns(
        waits_for=situations.texts_of("depends_on"),
        is_failed=pl.col("outcome").is_in(_BAD_ENDS).fill_null(value=False),
        is_bad=(pl.col("outcome").is_in(_BAD_ENDS) | is_blocked).fill_null(value=False),
    )
    show_key = ["source", "system", "parent_id"]
    waiting = (
        plays.select(*_KEY, "parent_id", "name", "reason_code", "lifecycle", "waits_for")
        .explode("waits_for")
        .filter(pl.col("waits_for").is_not_null() & pl.col("waits_for").ne_missing(pl.col("name")))
    )
    others = _named(plays, "play").select(
        *show_key, "other_type", "other_id", "label", "is_bad", waits_for="name"
    )
    upstream = waiting.filter(is_blocked, has_no_code).join(
        others.unique([*show_key, "waits_for"], keep="first", maintain_order=True),
        on=[*show_key, "waits_for"],
        how="left",
        maintain_order="left",
    )
    missing = upstream.filter(pl.col("other_id").is_null()).with_columns(label="waits_for")
    needed = waiting.select(*show_key, name="waits_for", is_needed=pl.lit(value=True)).unique()
    # A play that only waits for a failed one did not fail the show.
    n_failed = pl.col("is_failed").sum().over(show_key)
    in_show = (
        _named(plays.filter("is_bad", (n_failed == 0) | pl.col("is_failed")), "play")
        .join(needed, on=[*show_key, "name"], how="left", maintain_order="left")
        # A play that others wait for is certainly on the critical path.
        .sort(pl.col("is_needed").is_null(), maintain_order=True)
        .select("source", "system", "other_type", "other_id", "label", entity_id="parent_id")
    )
    failed_shows = worded.filter(has_no_code, entity_type="show", lifecycle="failed").select(_KEY)
    paths = failed_shows.join(
        in_show, on=["source", "system", "entity_id"], how="inner", maintain_order="left_right"
    )
    parents = _named(worded.filter("is_terminal"), pl.col("entity_type")).select(
        "source", "system", "label", "other_type", "other_id"
    )
    teams = worded.filter(~pl.col("is_terminal"), entity_type="team").join(
        parents.unique(["source", "system", "other_type", "other_id"], maintain_order=True),
        left_on=["source", "system", "parent_type", "parent_id"],
        right_on=["source", "system", "other_type", "other_id"],
        how="inner",
        coalesce=False,
        maintain_order="left",
    )
    schedules = worded.filter(entity_type="schedule").with_columns(
        other_type=pl.lit("schedule_run"),
        other_id=pl.lit(None, pl.String),
        label=pl.format("last_run_outcome is {}", "recorded_delivery"),
    )
    because = {
        "play.blocked.dependency_failed": upstream.filter("is_bad"),
        "play.blocked.dependency_invalid": missing,
        "show.failed.critical_path_blocked": paths,
        "team.health.orphaned": teams,
        "schedule.delivery.missing": schedules.filter(recorded_delivery="missing"),
        "schedule.delivery.partial": schedules.filter(recorded_delivery="partial"),
        "schedule.delivery.invalid": schedules.filter(recorded_delivery="invalid"),
    }
    return pl.concat([_because(code, inferred_from) for code, inferred_from in because.items()])


def _named(rows: pl.LazyFrame, entity_type: str | pl.Expr) -> pl.LazyFrame:
    """Rows with ``other_type``, ``other_id`` and ``label`` (name and status), as a reason needs."""
    named = pl.coalesce("name", "entity_id").str.slice(0, _MAX_CHARS)
    return rows.with_columns(
        other_type=pl.lit(entity_type) if isinstance(entity_type, str) else entity_type,
        other_id="entity_id",
        label=pl.format("{} ({})", named, "raw_status"),
    )


def _because(code: str, rows: pl.LazyFrame) -> pl.LazyFrame:
    """One reason per entity; its evidence is each entity that it is inferred from."""
    piece = pl.struct(
        kind=pl.lit("rule"),
        id=pl.lit(code.rpartition(".")[2]),
        entity_type="other_type",
        entity_id="other_id",
        detail=pl.col("label").str.slice(0, 2 * _MAX_CHARS),
    )
    labels = pl.col("label").str.slice(0, 2 * _MAX_CHARS).head(_MAX_NAMED).str.join(", ")
    n_more = pl.len().cast(pl.Int64) - _MAX_NAMED
    more = pl.when(n_more > 0).then(pl.format(" and {} more", n_more)).otherwise(pl.lit(""))
    grouped = rows.group_by(_KEY, maintain_order=True).agg(
        message=pl.format(_MESSAGES[code], labels) + more,
        evidence=pl.format("[{}]", piece.struct.json_encode().str.join(",")),
    )
    return _as_reasons(grouped.with_columns(code=pl.lit(code)), situations.INFERRED, _CONFIDENCE)


def _as_reasons(reasons: pl.LazyFrame, claim_status: str, confidence: float) -> pl.LazyFrame:
    axis = pl.col("code").str.extract(situations.OTHER_AXES)
    names = (*_KEY, *schema.RECORDED_REASON)
    return reasons.with_columns(
        dimension=pl.coalesce(axis, pl.lit("lifecycle")),
        claim_status=pl.lit(claim_status),
        confidence=pl.lit(confidence),
    ).select(pl.col(name).cast(pl.Float64 if name == "confidence" else pl.String) for name in names)

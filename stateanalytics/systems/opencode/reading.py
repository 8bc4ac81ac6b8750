"""One opencode input, from its tables, events and files to canonical frames.

Tables of accounts, credentials and shares contain keys and tokens and are never read. Of the
files next to a database only the legacy messages are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, audit_rows, word
from stateanalytics.core.facts import Facts, Past
from stateanalytics.core.joins import left_joined, total
from stateanalytics.errors import SourceError
from stateanalytics.io.cells import Cell, cells_from_csv
from stateanalytics.io.findings import all_findings, noted, noted_entities, noted_rows, texts_of
from stateanalytics.io.json_lines import Parser, moment, numbered, refuse_losses
from stateanalytics.io.parts import Parts, by_source
from stateanalytics.io.sqlite import Store, open_store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.base import Tables
from stateanalytics.systems.history import clocks_of, losses, values_at, with_rows_of
from stateanalytics.systems.omissions import findings_of_database
from stateanalytics.systems.opencode import NAME, canonical, frames, records
from stateanalytics.systems.opencode.folding import Folded, fold, fold_messages
from stateanalytics.systems.opencode.frames import OF_SESSIONS, RECORDS, gathered_from, kept_records
from stateanalytics.systems.opencode.gathered import (
    KINDS,
    PROJECTED,
    SESSION_KEY,
    Gathered,
    Log,
    Ordered,
    completed_rows,
    n_by_source,
    ordered,
    rows_of,
    session_rows_of,
    sound_usage,
    together,
    without_copies,
)
from stateanalytics.systems.opencode.places import companions, is_database, is_storage
from stateanalytics.systems.opencode.states import UNRECOGNIZED
from stateanalytics.systems.situations import is_content_filter
from stateanalytics.systems.tool_calls import calls_from

# Only the payloads that the fold needs are read. Snapshots of V1 repeat whole messages for each
# update, and are most of the bytes in databases of 100 GB.
_PREFIXES = (
    "step.", "execution.", "text.ended", "tool.", "input.", "inbox.", "retry.", "prompt",
    "created", "renamed", "forked", "usage.recorded", "compaction.",
)  # fmt: skip
_NEEDED = " OR ".join(
    f"type GLOB '{scope}{prefix}*'"
    for scope in ("session.", "session.next.")
    for prefix in _PREFIXES
)


_OWN = {"event": {"data": Cell("text", f"CASE WHEN {_NEEDED} THEN data END", ("data", "type"))}}
TABLES: Mapping[str, Mapping[str, Cell]] = cells_from_csv(__package__, _OWN)
"""Every table that is read, with the columns that are read."""
_NEWEST_PAYLOAD = 2
"""The highest known version of any type of event."""
_CLAIMED, _SUSPENDED = "execution_claimed_at", "time_suspended"


def tables() -> Tables:
    """The tables of a database that are read, and those that are ignored on purpose."""
    return Tables(
        read=TABLES,
        ignored=(
            *("migration", "data_migration", "event_sequence", "project", "project_directory"),
            *("workspace", "worktree", "kv"),
        ),
        version=("migration", Cell("text", "id", ("id",))),
        newest="20260903010538_execution_claimed_at",
    )


def read_database(store: Store, parser: Parser) -> tuple[Gathered, pl.DataFrame]:
    """The contents of a database, and findings about its tables."""

    def rows_of(table: str) -> pl.DataFrame:
        rows, problems = _read_rows(store, table)
        findings.append(problems)
        return rows

    findings: list[pl.DataFrame] = []
    events = rows_of("event")
    findings += [_newer_events(store, events), _claim_findings(store)]
    sessions = _sessions_of(store, parser, [rows_of(table) for table in ("session_v2", "session")])
    median_ms = sessions["created_ms"].median()
    log, broken_events = records.events_of_rows(
        events,
        parser,
        reference_ms=None if median_ms is None else int(median_ms),  # type: ignore[arg-type]
    )
    messages, broken_messages = records.messages_of(rows_of("message"), parser)
    parts, broken_parts = records.parts_of(rows_of("part"), parser)
    projections, broken_projections = records.messages_of(
        rows_of("session_message"), parser, "session_message", era=PROJECTED, has_content=True
    )
    gathered = Gathered(
        log=log,
        messages=messages,
        parts=parts,
        projections=projections,
        session_rows=sessions,
        waiting=_waiting_inputs(store),
        broken=pl.concat([broken_events, broken_messages, broken_parts, broken_projections]),
    )
    # Losses are only known after everything was read.
    losses = findings_of_database(store, system=NAME)
    return gathered, all_findings(losses, *findings)


def _read_rows(store: Store, table: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows, findings = read_table(store, table, TABLES[table], system=NAME)
    return rows.with_columns(source=pl.lit(store.label)), findings


def _newer_events(store: Store, rows: pl.DataFrame) -> pl.DataFrame:
    """A finding if some events have a version that no known opencode writes."""
    version = pl.col("raw_type").str.extract(r"\.(\d+)$").cast(pl.Int64, strict=False)
    newer = rows.filter(version > _NEWEST_PAYLOAD)["raw_type"]
    code, example = "event.unknown_version", newer.min()
    n_rows = newer.len()
    return noted(store.label, NAME, code, package=__package__, n_rows=n_rows, example=example)


def _sessions_of(
    store: Store, parser: Parser, session_tables: Sequence[pl.DataFrame]
) -> pl.DataFrame:
    """The rows of both session tables; if an id is in both, that of 2.0, which comes first."""
    frames = []
    for table, rows in zip(("session_v2", "session"), session_tables, strict=True):
        # The claim of a session has a newer name in some versions.
        is_newer = _CLAIMED in store.tables.get(table, ())
        claim = "claimed_ms" if is_newer else "suspended_ms"
        placed = numbered(rows.with_columns(suspended_ms=claim).drop("claimed_ms"))
        fields = {"model": (("id",), "VARCHAR"), "provider": (("providerID",), "VARCHAR")}
        frames.append(records.with_fields(placed, parser, fields).drop("row"))
    return completed_rows(session_rows_of(pl.concat(frames)))


def claim_columns(store: Store) -> set[str]:
    """The columns of the table of 2.0 that show claims; one name if there is no table."""
    return {_CLAIMED, _SUSPENDED} & {*store.tables.get("session_v2", (_CLAIMED,))}


def _claim_findings(store: Store) -> pl.DataFrame:
    """A finding if the table of 2.0 has both columns of a claim, or neither."""
    claims = claim_columns(store)
    code = "source.column_twice" if claims else "source.column_missing"
    n_rows = int(len(claims) != 1)
    return noted(store.label, NAME, code, _SUSPENDED, package=__package__, n_rows=n_rows)


def _waiting_inputs(store: Store) -> pl.DataFrame | None:
    """Ids of the inputs that wait according to the database; None: it has no such table."""
    frames = []
    for table in ("session_pending", "session_inbox"):
        if table in store.tables:
            frames.append(_read_rows(store, table)[0].select(input_id="id"))
    if "session_input" in store.tables and "promoted_seq" in store.tables["session_input"]:
        rows, _ = _read_rows(store, "session_input")
        frames.append(rows.filter(pl.col("promoted_seq").is_null()).select(input_id="id"))
    return pl.concat(frames) if frames else None


_USUAL_RETRIES = 5
_MOST_WORDS = 50
_CLOCK_STEP_MS = 1000
"""Smaller steps back in time may come from the clocks of two writers."""
_INTERRUPT_REASONS = ("user", "shutdown", "superseded", "inactivity")
_IDLE_OUTCOMES = ("succeeded", "failed", "interrupted")
_FINISHES = ("stop", "length", "tool-calls", "error", "unknown")


def findings_of(
    gathered: Gathered, order: Ordered, details: Mapping[str, pl.DataFrame], *, is_table: bool
) -> pl.DataFrame:
    """The findings of some inputs, in the shape of the schema."""
    executions, steps = details["opencode_executions"], details["opencode_steps"]
    tools, sessions = details["opencode_tools"], details["opencode_sessions"]
    events = gathered.log.events
    has_session = pl.col("session_id").is_not_null()
    without_session = n_by_source(events.filter(pl.col("seq").is_not_null(), ~has_session))
    conflicts = order.conflicts.group_by("source", entity_id="session_id").agg(
        n=pl.len(), seq=pl.col("seq").min()
    )
    is_blocked = pl.col("is_blocked") & (pl.col("outcome") == "succeeded")
    strange = {
        "event.unknown_type": events.filter(has_session, _is_strange("kind", KINDS)),
        "interrupt.unrecognized": executions.filter(
            _is_strange("interrupt_reason", _INTERRUPT_REASONS)
        ),
        "finish.unrecognized": steps.filter(
            _is_strange("finish", _FINISHES), ~is_content_filter("finish")
        ),
        "outcome.unrecognized": sessions.filter(_is_strange("idle_outcome", _IDLE_OUTCOMES)),
    }
    odd = {
        "end.late": executions.filter(pl.col("n_terminals") > 1),
        "execution.head_missing": executions.filter("is_head_truncated"),
        "retry.unusual": steps.filter(pl.col("n_retries") > _USUAL_RETRIES),
        "outcome.blocked_as_success": executions.filter(is_blocked),
    }
    findings = [
        gathered.broken,
        _counted(order.duplicates, "event.duplicate"),
        _counted(order.misplaced, "event.misplaced"),
        _counted(without_session, "event.without_session"),
        _per_entity(conflicts, "event.conflict", example=pl.col("seq")),
        *(
            _unknown_words(frame.filter(pl.col("cause") == UNRECOGNIZED), "error.unrecognized")
            for frame in (executions, tools)
        ),
        *(_unknown_words(rows, code) for code, rows in strange.items()),
        *(_per_entity(rows, code) for code, rows in odd.items()),
        _backward_times(order.events),
        _gaps(events, order.events) if is_table else schema.FINDINGS.empty(),
        _disagreeing_inputs(details["opencode_inputs"]),
    ]
    return all_findings(*findings)


def _is_strange(column: str, known: Collection[str]) -> pl.Expr:
    return ~pl.col(column).is_in(list(known))


def _counted(rows: pl.DataFrame, code: str, **more: Any) -> pl.DataFrame:
    """One finding per row, which has ``source`` and ``n_rows``."""
    return noted_rows(rows, NAME, code, package=__package__, **more)


def _per_entity(rows: pl.DataFrame, code: str, **more: Any) -> pl.DataFrame:
    """One finding per entity, up to a maximum per source."""
    return noted_entities(rows, pl.col("source"), NAME, code, package=__package__, **more)


def _unknown_words(strange: pl.DataFrame, code: str) -> pl.DataFrame:
    """One finding per word of the ``strange`` rows of a source, most frequent first.

    The words are in the column that the texts of the code name.
    """
    column = str(texts_of(__package__)[code].column)
    words = (
        strange.filter(pl.col(column).is_not_null())
        .group_by("source", column)
        .agg(n_rows=pl.len().cast(pl.Int64))
        .sort("n_rows", column, descending=[True, False])
        .group_by("source", maintain_order=True)
        .head(_MOST_WORDS)
    )
    return _counted(words, code, example=pl.col(column))


def _backward_times(events: pl.DataFrame) -> pl.DataFrame:
    """Sessions in which time goes back: a clock was set, or two machines wrote them."""
    at, before = pl.col("at_ms"), pl.col("at_ms").shift(1)
    is_same = pl.col("sid") == pl.col("sid").shift(1)
    sessions = (
        events.with_columns(back_ms=pl.when(is_same).then(before - at))
        .filter(pl.col("back_ms") > _CLOCK_STEP_MS)
        .group_by("source", entity_id="session_id")
        .agg(n=pl.len(), most_s=pl.col("back_ms").max() // 1000)
    )
    return _per_entity(sessions, "time.backwards")


def _gaps(recorded: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Sequence numbers that are missing, which is odd in a table except after a fork."""
    forked = events.filter(pl.col("kind") == "forked").select(SESSION_KEY).unique()
    gaps = (
        recorded.filter(pl.col("seq").is_not_null())
        .group_by(SESSION_KEY)
        .agg(n=pl.col("seq").max() - pl.col("seq").min() + 1 - pl.col("seq").n_unique())
        .filter(pl.col("n") > 0)
        .join(forked, on=SESSION_KEY, how="anti")
        .rename({"session_id": "entity_id"})
    )
    return _per_entity(gaps, "event.gap")


def _disagreeing_inputs(inputs: pl.DataFrame) -> pl.DataFrame:
    """Inputs that wait according to events but not according to the table, or vice versa."""
    differ = inputs.filter(
        pl.col("is_stored_pending").is_not_null(),
        pl.col("admitted_seq").is_not_null(),
        pl.col("is_stored_pending") != pl.col("is_pending"),
    )
    words = differ.group_by("source").agg(
        n_rows=pl.len().cast(pl.Int64), first=pl.col("input_id").min()
    )
    return _counted(words, "input.disagrees", example=pl.col("first"))


def executions(cases: Cases) -> pl.LazyFrame:
    """Executions with several ends, or with a success that the content filter stopped."""
    rows = cases.facts.detail(frames.EXECUTIONS).lazy()
    rows = rows.with_columns(system=pl.lit(NAME), entity_type=pl.lit("execution"))
    blocked = pl.col("is_blocked") & (pl.col("outcome") == "succeeded")
    return pl.concat(
        [
            audit_rows(
                rows.filter(pl.col("n_terminals") > 1),
                "audit.ended_twice",
                at="ended_at",
                says=pl.format("its last end says {}", word("outcome")),
                against=pl.format(
                    "{} ends were written, the first says {}", "n_terminals", word("first_outcome")
                ),
            ),
            audit_rows(
                rows.filter(blocked.fill_null(value=False)),
                "audit.success_was_blocked",
                at="ended_at",
                says=pl.format("outcome {}", word("outcome")),
                against=pl.lit("the provider's content filter stopped it"),
            ),
        ]
    )


_BATCH_BYTES = 32 * 2**20
"""Small files are folded together, up to this size."""


def read(
    path: Path,
    *,
    label: str | None = None,
    bodies: bool = False,
    on_error: str = "skip",
    before: object = None,
) -> Parts:
    """The facts of one opencode database, directory or file.

    Parameters
    ----------
    path : pathlib.Path
        The result of `places.find`.
    label : str, optional
        How the user named it.
    bodies : bool
        Without effect: texts of people and models are never loaded.
    on_error : {"skip", "raise"}
        Whether a record that cannot be read is skipped or raises an error.
    before : optional
        Without effect: files are reread each time.

    Returns
    -------
    Parts
        Canonical frames. No store stays open for raw SQL: opencode's databases have
        tables with keys and tokens.

    Raises
    ------
    DamagedStoreError
        If a record cannot be read and ``on_error`` is ``raise``.
    """
    name = str(path) if label is None else label
    [part] = read_many([path], labels=[name], on_error=on_error)
    return part


def read_many(
    paths: Sequence[Path], *, labels: Sequence[str], bodies: bool = False, on_error: str = "skip"
) -> Iterator[Parts]:
    """The facts of each input, as `read` gives them; small files are read and folded together.

    Parameters
    ----------
    paths : sequence of pathlib.Path
    labels : sequence of str
        The user's names of them; no two are the same.
    bodies, on_error
        As for `read`.

    Yields
    ------
    Parts
        In the order of the paths.
    """
    batch: list[tuple[str, Path]] = []
    n_bytes = 0
    with Parser() as parser:
        for label, path in zip(labels, paths, strict=True):
            if path.is_file() and is_database(path):
                yield from _of_files(batch, parser, on_error)
                yield _of_database(path, label, parser, on_error)
                batch, n_bytes = [], 0
                continue
            batch.append((label, path))
            n_bytes += records.size_of(path)
            if n_bytes > _BATCH_BYTES:
                yield from _of_files(batch, parser, on_error)
                batch, n_bytes = [], 0
        yield from _of_files(batch, parser, on_error)


def _of_database(path: Path, label: str, parser: Parser, on_error: str) -> Parts:
    """The facts of a database, and of the legacy files next to it."""
    with open_store(path, label=label, salvage=on_error == "salvage") as store:
        gathered, of_tables = read_database(store, parser)
        for legacy in filter(is_storage, companions(store.path)):
            gathered = _with_legacy(gathered, records.read_storage(legacy, label, parser))
        refuse_losses(gathered.broken, label, on_error)
        part = assembled(gathered, of_tables=of_tables)
        claimed = pl.when(bool(claim_columns(store))).then("is_resume_claimed")
        return replace(
            part,
            entities=part.entities.with_columns(is_resume_claimed=claimed),
            label=label,
            format=_format(part.details["opencode_sessions"], "database", store.tables),
            size_bytes=store.size_bytes,
            is_live=store.is_live,
        )


def _of_files(named: Sequence[tuple[str, Path]], parser: Parser, on_error: str) -> Iterator[Parts]:
    """Records and legacy directories by label, folded together."""
    if not named:
        return
    folders = [(label, path) for label, path in named if is_storage(path)]
    files = [pair for pair in named if pair not in folders]
    of_folders = [records.read_storage(path, label, parser) for label, path in folders]
    gathered = together([*of_folders, records.read_record_files(files, parser)])
    for label, _ in named:
        refuse_losses(gathered.broken.filter(source=label), label, on_error)
    parts = by_source(assembled(gathered), [label for label, _ in named])
    for (label, path), part in zip(named, parts, strict=True):
        what = "storage directory" if path.is_dir() else "records"
        kind = _format(part.details["opencode_sessions"], what)
        # Nothing is opened outside of the directories that are read as a whole (`Files.skips`).
        yield replace(part, label=label, format=kind, size_bytes=records.size_of(path), opened=())


def _with_legacy(gathered: Gathered, legacy: Gathered) -> Gathered:
    """Add the sessions of legacy files that the database does not have."""
    known = pl.concat(
        [gathered.session_rows["session_id"], gathered.messages["session_id"]]
    ).unique()
    new = ~pl.col("session_id").is_in(known.implode())
    messages = legacy.messages.filter(new)
    return replace(
        gathered,
        messages=pl.concat([gathered.messages, messages]),
        parts=pl.concat([gathered.parts, legacy.parts.join(messages, on="message_id", how="semi")]),
        session_rows=completed_rows(gathered.session_rows, legacy.session_rows.filter(new)),
        broken=pl.concat([gathered.broken, legacy.broken]),
    )


def assembled(gathered: Gathered, *, of_tables: pl.DataFrame | None = None) -> Parts:
    """Fold the contents of some inputs, and put them into canonical frames.

    ``of_tables`` has the findings about the tables of a database; None: the input is none.
    """
    recorded, gathered = gathered, without_copies(_with_sound_usage(gathered))
    order = ordered(gathered.log)
    folded = fold(gathered.log, order)
    by_messages = _folded_messages(gathered, folded)
    sessions = completed_rows(gathered.session_rows, folded.sessions, by_messages.sessions)
    # The kept records still include the copies that forks made.
    details = {
        **canonical.detail_frames(gathered, order, folded, by_messages, sessions),
        **kept_records(recorded, order),
    }
    steps = rows_of(order.events, gathered.log, "step").filter(pl.col("message_id").is_not_null())
    of_messages = details["opencode_executions"].filter(pl.col("era") == "V1")
    written = pl.concat([gathered.messages, gathered.projections]).unique(
        ["source", "message_id"], keep="first", maintain_order=True
    )
    without_events = written.join(
        by_messages.sessions, on=SESSION_KEY, how="semi", maintain_order="left"
    )
    chat = written.filter(pl.col("role").is_in(["user", "assistant"])).group_by(SESSION_KEY)
    n_messages = chat.agg(n_messages=pl.len(), n_chat_messages=pl.len())
    findings = findings_of(gathered, order, details, is_table=of_tables is not None)
    return Parts(
        system=NAME,
        format="",
        entities=canonical.entities_of(details, left_joined(sessions, n_messages, on=SESSION_KEY)),
        transitions=canonical.transitions_of(
            order, steps, of_messages.join(by_messages.executions, on=SESSION_KEY, how="semi")
        ),
        events=canonical.events_of(order, without_events),
        findings=findings if of_tables is None else all_findings(of_tables, findings),
        details=details,
        proven_at=gathered.parts.select(at=moment("end_ms"))["at"].drop_nulls(),
    )


def _with_sound_usage(gathered: Gathered) -> Gathered:
    """The contents without impossible tokens and costs; ``broken`` counts rows that had some."""
    log = gathered.log
    tables = {name: getattr(gathered, name) for name in ("messages", "projections", "session_rows")}
    sound = {name: sound_usage(rows) for name, rows in {**tables, **log.payloads}.items()}
    odd = [
        log.events.join(rows, on="row", how="semi") if "row" in rows.columns else rows
        for _, rows in sound.values()
    ]
    n_odd = n_by_source(pl.concat(rows.select("source") for rows in odd))
    return replace(
        gathered,
        log=Log(log.events, {family: sound[family][0] for family in log.payloads}),
        broken=pl.concat([gathered.broken, _counted(n_odd, "usage.impossible")]),
        **{name: sound[name][0] for name in tables},
    )


def _folded_messages(gathered: Gathered, folded: Folded) -> Folded:
    """The messages of sessions without events of work, and V2's of sessions without any event."""
    worked = folded.executions.select(SESSION_KEY).unique()
    seen = folded.sessions.select(SESSION_KEY)
    projected = gathered.projections.join(seen, on=SESSION_KEY, how="anti")
    own = gathered.messages.join(worked, on=SESSION_KEY, how="anti").join(
        projected.select(SESSION_KEY).unique(), on=SESSION_KEY, how="anti"
    )
    return fold_messages(pl.concat([own, projected]), gathered.parts)


def _format(sessions: pl.DataFrame, what: str, tables: Collection[str] = ()) -> str:
    """The kind of an input, with the eras that wrote it."""
    recorded = set(sessions["era"].unique().to_list()) - {None}
    eras = sorted(recorded | ({"C"} if "session_v2" in tables else set()))
    return f"opencode {what}" + (f", era {' and '.join(eras)}" if eras else "")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCKS = clocks_of(__package__)
"""The clocks of records that are overwritten; events are never overwritten."""


def rewind(past: Past, facts: Facts) -> Past:
    """The same instant, with opencode's rows as they would have been read at that instant.

    Later records are excluded, and the others are folded again. An overwritten record has the
    time of its end; before that, the values that were written with the end are not known. Rows
    of sessions keep no old values, so totals are known only if last written before the instant.

    Parameters
    ----------
    past : Past
        From the shared history.
    facts : Facts
        Of the present, with the frames of `frames.RECORDS`.

    Returns
    -------
    Past
        Inputs without those frames are unchanged.
    """
    kept = [facts.detail(frame)["source"] for frame in RECORDS]
    labels = pl.concat(kept).unique().sort()
    if labels.is_empty():
        return past
    at_ms = (past.at - _EPOCH) // timedelta(milliseconds=1)
    has_records = pl.col("source").is_in(labels.implode())
    gathered = gathered_from(facts.details, facts.events.filter(has_records))
    part = assembled(_cut_off(gathered, at_ms))
    # A row that was written after the instant shows neither its earlier write nor whether the
    # session was claimed, which executions need. Everything else is folded again.
    written = facts.detail(OF_SESSIONS).filter(pl.col("updated_at") > past.at)
    ids = ["source", "session_id"]
    placed = part.entities.sort("source", maintain_order=True).join(
        written.select(ids, is_written=True).unique(), on=ids, how="left", maintain_order="left"
    )
    is_session, is_execution = (pl.col("entity_type") == name for name in ("session", "execution"))
    is_written = pl.col("is_written").fill_null(value=False)
    lost = losses(
        placed,
        updated=is_written & is_session,
        record=is_written & (is_session | is_execution),
        present=pl.lit(value=True),
    )
    return with_rows_of(past, part, labels, lost)


def _cut_off(gathered: Gathered, at_ms: int) -> Gathered:
    """The contents of inputs at an instant, in epoch milliseconds.

    Records that began later are excluded; those that ended later are open. Records without any
    time are kept, because nothing shows that they were written later. A part without a time is
    as old as its message.
    """
    # A fork copies older messages into a session that did not exist yet.
    unborn = gathered.session_rows.filter(_is_later(pl.col("created_ms"), at_ms))
    messages, parts = (
        rows.join(unborn, on=SESSION_KEY, how="anti", maintain_order="left")
        for rows in (gathered.messages, gathered.parts)
    )
    later = messages.filter(_is_later(pl.col("created_ms"), at_ms))
    parts = parts.join(later, on=["source", "message_id"], how="anti", maintain_order="left")
    # Only the last status is stored; the times show the earlier ones.
    status = (
        pl.when(pl.col("status").is_null())
        .then(None)
        .when(_is_later(pl.col("start_ms"), at_ms))
        .then(pl.lit("pending"))
        .when(_is_later(pl.col("end_ms"), at_ms))
        .then(pl.lit("running"))
        .otherwise("status")
    )
    return replace(
        gathered,
        log=Log(_events_up_to(gathered.log.events, at_ms), gathered.log.payloads),
        messages=_up_to(messages, "messages", at_ms),
        projections=_up_to(gathered.projections, "messages", at_ms),
        parts=_up_to(parts.with_columns(status=status), "parts", at_ms),
        session_rows=_up_to(gathered.session_rows, "session_rows", at_ms),
        waiting=None,
    )


def _up_to(rows: pl.DataFrame, table: str, at_ms: int) -> pl.DataFrame:
    """The rows that had begun, with the columns that had been written."""
    begun = pl.coalesce("created_ms", "start_ms") if table == "parts" else pl.col("created_ms")
    is_later = (_is_later(moment, at_ms) for moment in (begun, pl.col("written_ms")))
    return rows.filter(~later for later in is_later).with_columns(
        **values_at(at_ms, _CLOCKS[table])
    )


def _is_later(at: pl.Expr, at_ms: int) -> pl.Expr:
    return (at > at_ms).fill_null(value=False)


def _events_up_to(events: pl.DataFrame, at_ms: int) -> pl.DataFrame:
    """Events up to an instant; an event without a time gets that of the next event."""
    ordered = events.sort(*SESSION_KEY, "seq", nulls_last=True, maintain_order=True)
    at, is_durable = pl.col("at_ms"), pl.col("seq").is_not_null()
    by = pl.coalesce(at, at.backward_fill(), at.forward_fill()).over(*SESSION_KEY, is_durable)
    return ordered.filter(~_is_later(by, at_ms))


def calls(facts: Facts) -> pl.DataFrame:
    """The tool calls of opencode, in the shape of `schema.CALLS`."""
    is_error = (pl.col("state") == "error") | pl.col("cause").is_not_null()
    tools = facts.detail(frames.TOOLS).with_columns(
        thread_id="session_id",
        turn_no="exec_no",
        tool="name",
        message="error_message",
        started_at=pl.coalesce("called_at", "started_at"),
        is_error=is_error,
    )
    return calls_from(tools, NAME)


def texts(facts: Facts, entity: Mapping[str, Any]) -> pl.DataFrame:
    """The messages of a session, from its database, which is read again.

    Returns
    -------
    polars.DataFrame
        ``at``, ``role`` and ``text``, in order; no rows where no database has the session.
    """
    session_id = entity["entity_id" if entity["entity_type"] == "session" else "session_id"]
    found = [pl.DataFrame(schema={"at": schema.MOMENT, "role": pl.String, "text": pl.String})]
    for path in filter(is_database, facts.inputs):
        with suppress(SourceError), open_store(path) as store:
            own = "'" + session_id.replace("'", "''") + "'"
            found += [_said(store, own), _said_in_events(store, own)]
    return pl.concat(found).sort("at", maintain_order=True)


def _said_in_events(store: Store, own: str) -> pl.DataFrame:
    """The texts of a session of opencode 2 (its id is quoted), from prompt and answer events."""
    text = "json_extract(data, '$.{}')"
    asked = ("input.data.text", "item.payload.text", "prompt.text")
    texts = {
        "user": f"coalesce({', '.join(map(text.format, asked))})",
        "assistant": f"CASE WHEN type LIKE '%.text.ended%' THEN {text.format('text')} END",
    }
    needs = ("aggregate_id", "data", "type")
    sound = f"CASE WHEN aggregate_id = {own} AND json_valid(data) THEN"
    cells = {role: Cell("text", f"{sound} {sql} END", needs) for role, sql in texts.items()}
    cells["created"] = Cell("text", "CAST(created AS TEXT)", ("created",))
    rows = read_table(store, "event", cells, system=NAME)[0].with_columns(at=_moment("created"))
    longer = rows.unpivot(list(texts), index="at", variable_name="role", value_name="text")
    return longer.drop_nulls()


def _moment(name: str) -> pl.Expr:
    """Milliseconds in a text as a time in UTC."""
    ms = pl.col(name).cast(pl.Float64, strict=False).cast(pl.Int64)
    return pl.from_epoch(ms, "ms").cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def _said(store: Store, own: str) -> pl.DataFrame:
    """The texts of a session (its id is quoted) from the tables of messages and parts."""

    def of_session(sql: str, *needs: str) -> Cell:
        guarded = f"CASE WHEN session_id = {own} AND json_valid(data) THEN {sql} END"
        return Cell("text", guarded, ("session_id", "data", *needs))

    text = "json_extract(data, '$.text')"
    is_text = "json_extract(data, '$.type') = 'text' AND json_extract(data, '$.synthetic') IS NULL"
    message = {
        "message_id": of_session("id", "id"),
        "role": of_session("json_extract(data, '$.role')"),
        "created": of_session("CAST(json_extract(data, '$.time.created') AS TEXT)"),
    }
    part = {
        "message_id": of_session("message_id", "message_id"),
        "text": of_session(f"CASE WHEN {is_text} THEN {text} END"),
    }
    messages, parts = (
        read_table(store, table, cells, system=NAME)[0].drop_nulls()
        for table, cells in (("message", message), ("part", part))
    )
    said = parts.group_by("message_id", maintain_order=True).agg(pl.col("text").str.join("\n"))
    whole = messages.join(said, on="message_id", maintain_order="left")
    return whole.with_columns(at=_moment("created")).select("at", "role", "text").drop_nulls()


def turns(facts: Facts) -> pl.DataFrame:
    """The executions of opencode, in the shape of `schema.TURNS`."""
    # An execution without steps was asked nothing, so it has no answer that could be empty.
    is_over = (pl.col("outcome") == "succeeded") & (pl.col("n_steps") > 0)
    key = [*SESSION_KEY, "exec_no"]
    waited = facts.detail(frames.STEPS).group_by(key).agg(retry_s=total("retry_wait_s"))
    executions = facts.detail(frames.EXECUTIONS)
    return schema.TURNS.conform(
        executions.join(waited, on=key, how="left", maintain_order="left").with_columns(
            system=pl.lit(NAME),
            entity_type=pl.lit("execution"),
            thread_id="session_id",
            turn_no="exec_no",
            is_empty=is_over & (pl.col("n_final_chars").fill_null(0) == 0),
            is_cut=is_over & (pl.col("last_finish") == "length"),
            is_interrupted=(pl.col("outcome") == "interrupted")
            & (pl.col("interrupt_reason") == "user"),
        )
    )

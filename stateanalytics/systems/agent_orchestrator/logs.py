"""Lines of logs: read, linked to their sessions, as events, transitions and decisions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson
import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import left_joined
from stateanalytics.core.package_tables import table_rows
from stateanalytics.io.budget import MAX_LINE_BYTES
from stateanalytics.io.cells import INTEGER, JSON, TEXT, Cell, shown
from stateanalytics.io.files import legible
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.agent_orchestrator import frames, mapping, places
from stateanalytics.systems.agent_orchestrator.columns import (
    MOST_DETAIL,
    json_value,
    moment,
    references,
    stored_moment,
    unreadable_times,
)
from stateanalytics.systems.agent_orchestrator.mapping import AXES, of_legacy_status
from stateanalytics.systems.agent_orchestrator.sessions import (
    NoRecordError,
    key_value_record,
    text_of,
)

Line = Mapping[str, Any]


Entry = dict[str, Any]
"""One row of a log: some of `COLUMNS`."""

COLUMNS = (
    # Which log: audit, activity, observability, trace, event, notification, recovery, feedback.
    "log",
    # The project's directory; empty where the log is of a whole tree.
    "directory",
    # By the line, or by the name of its file.
    *("project", "session_id"),
    "at",
    "kind",
    # Legacy status before and after, where the line has them.
    *("previous", "status"),
    # Reason; item; who; a short text; level; what groups lines of one cause.
    *("code", "name", "role", "detail", "level", "correlation"),
    # Is it a sign of life; was a report accepted.
    *("is_activity", "is_accepted"),
    *("duration_ms", "size"),
    # The line itself, only where bodies are asked for.
    "body",
    # The session's axes before and after the line; null where the line does not have them.
    *("decided_previous", "decided_status", *(f"previous_{name}" for name in AXES)),
    *(*AXES, "evidence_text", "detecting_attempts"),
)
"""The columns that all logs share, each of texts."""


def read_logs(files: Iterable[places.File], faults: places.Faults, *, bodies: bool) -> pl.DataFrame:
    """Every line of every log of a tree, in the order of the files and of their lines.

    Parameters
    ----------
    files : iterable of File
        Logs of any kind.
    faults : Faults
        Receives the lines that could not be read.
    bodies : bool
        Whether to keep the lines themselves.

    Returns
    -------
    polars.DataFrame
        ``seq`` (Int64), ``at`` (moment; null: none can be read) and the rest of `COLUMNS`
        as texts.
    """
    entries = [entry for file in files for entry in _entries(file, faults, bodies)]
    columns = {name: [text_of(entry.get(name)) for entry in entries] for name in COLUMNS}
    frame = pl.DataFrame(columns, schema=dict.fromkeys(COLUMNS, pl.String))
    return frame.with_columns(
        seq=pl.int_range(pl.len(), dtype=pl.Int64),
        at=stored_moment("at"),
        detail=pl.col("detail").str.slice(0, MOST_DETAIL),
        is_activity=pl.col("is_activity").fill_null("false"),
    )


def _entries(file: places.File, faults: places.Faults, bodies: bool) -> Iterator[Entry]:
    content = places.read_file(file.path, faults)
    if content.text is None:
        return
    if file.kind == places.Kind.FEEDBACK:
        yield from _feedback(content.text, file, faults, bodies)
        return
    read = READERS[file.kind]
    for size, text, line in _lines(content.text, file, faults):
        for entry in read(line, file):
            yield entry | {"size": size, "body": text if bodies else None}


def _lines(text: str, file: places.File, faults: places.Faults) -> Iterator[tuple[int, str, Line]]:
    """Objects of a log; one object for a whole file of traces."""
    pieces: Sequence[str] = [text] if file.kind == places.Kind.TRACES else text.split("\n")
    n_bad, n_long, first_bad = 0, 0, ""
    last = len(pieces) - 1
    for number, piece in enumerate(pieces):
        if len(piece) > MAX_LINE_BYTES:
            n_long += 1
            continue
        if not piece.strip():
            continue
        try:
            line = orjson.loads(piece)
        except ValueError:
            line = None
        if isinstance(line, dict):
            yield len(piece), piece, line
        elif number == last and file.kind != places.Kind.TRACES:
            # A writer may be in the middle of it: only what ends in a newline is finished.
            faults.note("line.unfinished", file.path, example=shown(piece))
        else:
            n_bad, first_bad = n_bad + 1, first_bad or piece
    if n_bad:
        faults.note("line.unreadable", file.path, n_rows=n_bad, example=shown(first_bad))
    if n_long:
        faults.note("line.too_long", file.path, MAX_LINE_BYTES // 2**20, n_rows=n_long)


Place = tuple[list[str], str]
"""A key, and those of the objects around it."""


def _keys() -> Mapping[str, Sequence[tuple[str, Sequence[Place]]]]:
    """By kind of line its columns, each with the places that it may be read from."""
    columns: dict[str, list[tuple[str, list[Place]]]] = {}
    for row in table_rows(__package__, "log_keys.csv"):
        paths = (path.split(".") for path in row["keys"].split("|"))
        found = [(outer, key) for *outer, key in paths]
        columns.setdefault(row["line"], []).append((row["column"], found))
    return columns


_KEYS = _keys()


def _fields(line: Line, kind: str) -> Entry:
    """The columns of a kind of line: of several places, the first with a value that is true."""
    entry: Entry = {}
    for column, found in _KEYS[kind]:
        for outer, key in found:
            part = line
            for name in outer:
                part = _part(part, name)
            entry[column] = part.get(key)
            if entry[column]:
                break
    return entry


def _part(line: Line, key: str) -> Line:
    """Object inside of a line; empty where there is none."""
    value = line.get(key)
    return value if isinstance(value, dict) else {}


def _audit(line: Line, file: places.File) -> Iterator[Entry]:
    """One report of an agent: accepted, or rejected with the reason."""
    is_accepted, state = line.get("accepted") is True, line.get("reportState")
    yield {
        **_fields(line, "audit"),
        "log": "audit",
        "directory": file.directory,
        "session_id": file.name.removesuffix(".ndjson"),
        "kind": f"report.{text_of(state)}" if is_accepted else "report.rejected",
        "detail": line.get("note" if is_accepted else "rejectionReason"),
        "is_activity": is_accepted,
        "is_accepted": is_accepted,
        # A report changes the session axis only.
        **(_fields(line, "report") if is_accepted else {}),
    }


ALIVE = ("active", "ready")
"""Activities that are a sign of life; waiting and idle agents give none."""


def _activity(line: Line, file: places.File) -> Iterator[Entry]:
    """One activity of an agent."""
    state = text_of(line.get("state"))
    yield {
        **_fields(line, "activity"),
        "log": "activity",
        "directory": file.directory,
        "session_id": legible(file.path.split(os.sep)[-3]),  # noqa: PTH206
        "kind": f"activity.{state}",
        "is_activity": state in ALIVE,
    }


def _observability(line: Line, file: places.File, log: str = "observability") -> Iterator[Entry]:
    """One line of the observability log, or one trace of a process."""
    operation = text_of(line.get("operation") or line.get("surface") or line.get("kind"))
    is_change = operation == "lifecycle.transition" or "fromStatus" in line
    # A poll records all three axes, changed or not.
    is_poll = "newSessionState" in _part(line, "data")
    yield {
        **_fields(line, "observability"),
        "log": log,
        "kind": f"observability.{operation}",
        **(_fields(line, "change") if is_change else {}),
        **(_fields(line, "poll") if is_poll else {}),
    }


def _traces(line: Line, file: places.File) -> Iterator[Entry]:
    """Newest traces that a process kept of itself, oldest first."""
    traces = line.get("traces")
    for trace in reversed(traces if isinstance(traces, list) else []):
        if isinstance(trace, dict):
            yield from _observability(trace, file, "trace")


def _notification(line: Line, file: places.File) -> Iterator[Entry]:
    """An event as a notifier got it, with or without its envelope."""
    event = _part(line, "event") or line
    change = _part(_part(event, "data"), "transition")
    is_status = change.get("kind") == "session_status" or not change
    yield {
        **_fields(event, "notification"),
        "log": "notification",
        "at": event.get("timestamp") or line.get("receivedAt"),
        "kind": f"notification.{text_of(event.get('type'))}",
        **(_fields(event, "notified change") if is_status else {}),
    }


def _recovery(line: Line, file: places.File) -> Iterator[Entry]:
    """One action of a recovery on a session."""
    kind = f"recovery.{text_of(line.get('action'))}"
    own = {"log": "recovery", "directory": file.directory, "kind": kind}
    yield {**_fields(line, "recovery"), **own}


def _feedback(text: str, file: places.File, faults: places.Faults, bodies: bool) -> Iterator[Entry]:
    """One feedback report: a bug, or a wish."""
    try:
        record = key_value_record(text)
    except NoRecordError as error:
        faults.note("record.unreadable", file.path, error, severity="warning")
        return
    yield {
        **_fields(record, "feedback"),
        "log": "feedback",
        "directory": file.directory,
        "kind": f"feedback.{record.get('tool')}",
        "body": record.get("body") if bodies else None,
        "size": len(text),
    }


READERS: Mapping[places.Kind, Callable[[Line, places.File], Iterator[Entry]]] = {
    places.Kind.AUDIT: _audit,
    places.Kind.ACTIVITY: _activity,
    places.Kind.OBSERVABILITY: _observability,
    places.Kind.TRACES: _traces,
    places.Kind.NOTIFICATIONS: _notification,
    places.Kind.RECOVERY: _recovery,
}


# --- activity events ---------------------------------------------------------------------

EVENTS_TABLE = "activity_events"

EVENTS: Mapping[str, Cell] = {
    "id": INTEGER,
    "ts_epoch": INTEGER,
    "ts": TEXT,
    **dict.fromkeys(("project_id", "session_id", "source", "type", "log_level", "summary"), TEXT),
    "data": JSON,
}


def read_activity_events(store: Store, *, bodies: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Activity events as entries of a log, and what was wrong with their cells.

    ``bodies`` keeps the ``data`` of each event. The entries are in the shape of
    `read_logs`, without the columns that no event has.
    """
    rows, findings = read_table(store, EVENTS_TABLE, EVENTS, system=places.SYSTEM)
    is_status = pl.col("type") == "lifecycle.transition"
    is_seen = pl.col("type") == "activity.transition"
    entries = rows.select(
        "session_id",
        log=pl.lit("event"),
        project="project_id",
        at=pl.coalesce(moment(pl.col("ts_epoch")), stored_moment("ts")),
        kind="type",
        previous=pl.when(is_status).then(json_value("data", "from")),
        status=pl.when(is_status).then(json_value("data", "to")),
        code=json_value("data", "reason", "cause", "trigger"),
        name=json_value("data", "reactionKey", "to", "agent"),
        role="source",
        detail=pl.col("summary").str.slice(0, MOST_DETAIL),
        level="log_level",
        is_activity=(is_seen & json_value("data", "to").is_in(ALIVE))
        .fill_null(value=False)
        .cast(pl.String),
        duration_ms=json_value("data", "durationMs"),
        size=pl.col("data").str.len_bytes().cast(pl.String),
        body=pl.when(bodies).then("data"),
        seq="id",
    )
    # The number is what the store sorts by; its text counts only where there is no number.
    texts = rows.filter(pl.col("ts_epoch").is_null())
    unreadable = unreadable_times(texts, store.label, EVENTS_TABLE, {"ts": pl.col("ts")})
    return entries, pl.concat([findings, unreadable])


# --- sessions and their lines ------------------------------------------------------------

_ARCHIVES = [str(places.Kind.ARCHIVE), str(places.Kind.JSON_ARCHIVE)]


def add_entities(sessions: pl.DataFrame) -> pl.DataFrame:
    """Add ``entity_id`` and ``is_current`` to every record.

    Parameters
    ----------
    sessions : polars.DataFrame, shape (n_records, ...)
        What `sessions.read_sessions` gives.

    Returns
    -------
    polars.DataFrame, shape (n_records, ... + 2)
        ``entity_id`` is null for what cannot be read. Exactly one readable record of each
        entity is current.

    Notes
    -----
    An archive is an earlier record of the session of its name, and so is an original that
    the storage migration left behind. The newest archive counts only where nothing else
    is left. Two directories with the same session id hold two sessions, unless both name
    the same project: as in the migration the newest keeps the id, and the other becomes
    ``<id>__from-<directory>``.

    Examples
    --------
    >>> import polars as pl
    >>> row = {"session_id": "a-1", "layout": "kv", "is_migrated_original": False,
    ...        "is_readable": True, "archived_at": None, "created_at": None,
    ...        "modified_at": None}
    >>> rows = [{**row, "directory": d, "project": p, "path": f"{d}/sessions/a-1"}
    ...         for d, p in (("0123456789ab-x", "x"), ("ba9876543210-y", "y"))]
    >>> add_entities(pl.DataFrame(rows))["entity_id"].to_list()
    ['a-1', 'a-1__from-ba9876543210']
    """
    ranked = sessions.with_columns(
        _row=pl.int_range(pl.len()),
        _home=_home(),
        _rank=2 * pl.col("is_migrated_original").cast(pl.Int8) + pl.col("layout").is_in(_ARCHIVES),
    )
    readable = ranked.filter("is_readable")
    current = _current(readable)
    ids = _ids(readable.filter(pl.col("_row").is_in(current["_row"].implode())))
    joined = (
        ranked.join(ids, on=["_home", "session_id"], how="left", maintain_order="left")
        .with_columns(
            entity_id=pl.when("is_readable").then("entity_id"),
            is_current=pl.col("is_readable") & pl.col("_row").is_in(current["_row"].implode()),
        )
        .sort("_row")
    )
    return joined.drop("_row", "_home", "_rank")


def _home() -> pl.Expr:
    """Key that a record shares with the other records of its session.

    A migrated original belongs to the project it was migrated to; any other to its directory.
    """
    directory = pl.col("directory").str.strip_suffix(places.MIGRATED)
    is_json = pl.col("layout").is_in([str(places.Kind.JSON_RECORD), str(places.Kind.JSON_ARCHIVE)])
    project = pl.coalesce("project", directory)
    return pl.when(is_json | pl.col("is_migrated_original")).then(project).otherwise(directory)


def _current(readable: pl.DataFrame) -> pl.DataFrame:
    """Row of the current record of each session: the live one, else the newest of the others."""
    if readable["session_id"].n_unique() == readable.height:
        return readable.select("_row")
    order = readable.sort(
        "_rank",
        pl.coalesce("archived_at", "created_at", "modified_at"),
        "path",
        descending=[False, True, True],
        nulls_last=True,
    )
    return order.unique(["_home", "session_id"], keep="first", maintain_order=True).select("_row")


def _ids(current: pl.DataFrame) -> pl.DataFrame:
    """An id for every session: its own name, or where that is taken, with its directory."""
    if current["session_id"].n_unique() == current.height:
        return current.select("_home", "session_id", entity_id="session_id")
    order = current.sort(
        pl.coalesce("created_at", "archived_at"),
        "modified_at",
        "path",
        descending=[True, True, False],
        nulls_last=True,
    )
    digits = pl.col("directory").str.extract(r"^([0-9a-f]{12})")
    place = pl.coalesce(digits, "directory").fill_null("")
    n_before = pl.int_range(pl.len()).over("session_id")
    other = pl.format("{}__from-{}", "session_id", place)
    named = order.with_columns(entity_id=pl.when(n_before == 0).then("session_id").otherwise(other))
    # Two directories of one hash: only their whole names differ.
    n_same = pl.int_range(pl.len()).over("entity_id")
    return named.with_columns(
        entity_id=pl.when(n_same == 0)
        .then("entity_id")
        .otherwise(pl.format("{}-{}", "entity_id", n_same))
    ).select("_home", "session_id", "entity_id")


# Several logs record the same change: the first of these is kept.
_LOGS_BY_RANK = ("audit", "event", "observability", "trace", "notification", "change")
SAME_CHANGE_S = 2.0
"""The same change in two logs this close together is one change."""
ECHO_S = 60.0
"""A poll sees what an agent reported at most two polls later."""


def link(entries: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Add ``entity_id``: by directory, else by project, else by the name of the session.

    Parameters
    ----------
    entries : polars.DataFrame, shape (n_entries, ...)
        Rows of `logs.read_logs` and of `databases`.
    sessions : polars.DataFrame
        Records with ``entity_id`` and ``is_current``.

    Returns
    -------
    polars.DataFrame, shape (n_entries, ... + 2)
        With ``entity_id`` and ``is_orphaned``: a session is named that has no record here.
    """
    is_named = pl.col("session_id").is_in(entries["session_id"].unique().implode())
    known = sessions.filter(pl.col("entity_id").is_not_null() & is_named)
    current = known.filter("is_current")
    by_directory = known.unique(["directory", "session_id"], keep="first", maintain_order=True)
    by_project = current.unique(["project", "session_id"], keep="first", maintain_order=True)
    by_name = current.unique("session_id", keep="none", maintain_order=True)
    linked = entries
    for name, keys, rows in (
        ("_by_directory", ["directory", "session_id"], by_directory),
        ("_by_project", ["project", "session_id"], by_project),
        ("_by_name", ["session_id"], by_name),
    ):
        linked = left_joined(linked, rows.select(*keys, **{name: "entity_id"}), on=keys)
    # The nearest record wins: names repeat across projects, and projects across directories.
    entity_id = pl.coalesce("_by_directory", "_by_project", "_by_name")
    return linked.with_columns(
        # Without any record the line stays, under the name that it gives itself.
        entity_id=pl.coalesce(entity_id, "session_id"),
        is_orphaned=entity_id.is_null() & pl.col("session_id").is_not_null(),
    ).drop("_by_directory", "_by_project", "_by_name")


def transitions(entries: pl.DataFrame) -> pl.DataFrame:
    """Every change of a session's legacy status that some log records, deduplicated.

    Parameters
    ----------
    entries : polars.DataFrame
        Linked entries.

    Returns
    -------
    polars.DataFrame
        Columns of `schema.TRANSITIONS`, by time and then as they were read.

    Notes
    -----
    An accepted report changes the status at once, the poller records the same change when
    it sees it; events, the observability log and notifications record what the poller saw.
    """
    changes = (
        entries.filter(
            pl.col("status").is_not_null()
            & pl.col("previous").is_not_null()
            & (pl.col("status") != pl.col("previous"))
            & pl.col("entity_id").is_not_null()
            & pl.col("at").is_not_null()
            & pl.col("log").is_in(_LOGS_BY_RANK)
            & (pl.col("is_accepted").fill_null("true") == "true")
        )
        .with_columns(
            _rank=pl.col("log").replace_strict(
                {log: rank for rank, log in enumerate(_LOGS_BY_RANK)}, return_dtype=pl.Int8
            )
        )
        .sort("entity_id", "previous", "status", "at", "_rank", "_order", maintain_order=True)
    )
    change = ["entity_id", "previous", "status"]
    gap_s = pl.col("at").diff().over(change).dt.total_seconds(fractional=True)
    is_echo = (pl.col("log").shift(1).over(change) == "audit") & (gap_s <= ECHO_S)
    is_repeated = ((gap_s <= SAME_CHANGE_S) | is_echo).fill_null(value=False)
    has_evidence = pl.col("log").is_in(["observability", "trace"])
    has_message = pl.col("log").is_in(["audit", "notification"])
    by_change = (
        changes.with_columns(_change=(~is_repeated).cum_sum())
        .sort("_change", "_rank", "_order", maintain_order=True)
        .group_by("_change", maintain_order=True)
        .agg(
            pl.first("entity_id", "previous", "status", "log", "role", "_order"),
            pl.col("at").min(),
            pl.col("code").drop_nulls().first(),
            seen=pl.col("detail").filter(has_evidence).first(),
            message=pl.col("detail").filter(has_message).first(),
        )
        .sort("at", "_order")
    )
    is_report = pl.col("log") == "audit"
    return by_change.select(
        *("entity_id", "at", "status", "message"),
        entity_type=pl.lit("session"),
        seq=pl.int_range(pl.len(), dtype=pl.Int64),
        previous_status="previous",
        reason_code="code",
        writer=pl.when(is_report).then(pl.lit("agent_report")).otherwise(pl.lit("poll")),
        actor=pl.when(is_report).then("role"),
        evidence=references(tool_result="seen"),
        metadata=pl.struct("log").struct.json_encode(),
    )


def events(entries: pl.DataFrame) -> pl.DataFrame:
    """Every entry of the logs, in the columns of `schema.EVENTS`.

    Traces that the observability log holds as well are excluded.
    """
    same_event = ["at", "kind", "correlation", "session_id"]
    logged = entries.filter(pl.col("log") == "observability").select(same_event).unique()
    traces = entries.filter(pl.col("log") == "trace").join(
        logged, on=same_event, how="anti", nulls_equal=True
    )
    kept = pl.concat([entries.filter(pl.col("log") != "trace"), traces]).sort("_order")
    return kept.select(
        *("entity_id", "at", "kind", "role", "name", "detail", "body"),
        entity_type=pl.when(pl.col("entity_id").is_not_null()).then(pl.lit("session")),
        seq=pl.int_range(pl.len(), dtype=pl.Int64),
        is_activity=pl.col("is_activity") == "true",
        size_bytes=pl.col("size").cast(pl.Int64, strict=False),
        duration_s=pl.col("duration_ms").cast(pl.Float64, strict=False) / 1000,
    )


def canonical(frame: pl.DataFrame, shape: schema.Frame, label: str) -> pl.DataFrame:
    """Frame in its canonical shape, with the input and the system in every row."""
    return shape.conform(frame.with_columns(source=pl.lit(label), system=pl.lit(places.SYSTEM)))


# --- decisions: what log lines record of a session's axes --------------------------------

KILLED = "session.killed"
KILL_EVENTS = (KILLED, "session.kill_started")

_AT_WORK = ("working", "idle")
_KEY = ("source", "entity_id")


def decisions(entries: pl.DataFrame, label: str) -> pl.DataFrame:
    """Every log line that records a new state of a session, as `frames.DECISIONS`.

    Parameters
    ----------
    entries : polars.DataFrame
        Linked entries of all logs (`link`).
    label : str
        The input.

    Notes
    -----
    A poll records all three axes, a report the session's and by its status the pull
    request's, a kill how the session ended; an event or a notification a status only.
    """
    is_kill = pl.col("kind").is_in(KILL_EVENTS) & pl.col("code").is_not_null()
    is_end = is_kill & (pl.col("kind") == KILLED)
    lines = entries.with_columns(
        previous_status=pl.coalesce("decided_previous", "previous"),
        status=pl.coalesce("decided_status", "status"),
        session_state=pl.when(is_end).then(pl.lit("terminated")).otherwise("session_state"),
        session_reason=pl.when(is_end).then("code").otherwise("session_reason"),
    ).filter(
        pl.col("entity_id").is_not_null()
        & pl.col("at").is_not_null()
        & (pl.col("is_accepted").fill_null("true") == "true")
        & (pl.any_horizontal(pl.col("status", "session_state").is_not_null()) | is_kill)
    )
    whole = lines.with_columns(**_implied_pull_request(""), **_implied_pull_request("previous_"))
    ordered = whole.sort("at", "_order", maintain_order=True).with_columns(
        seq=pl.int_range(pl.len(), dtype=pl.Int64).over("entity_id", "at"),
        detecting_attempts=pl.col("detecting_attempts").cast(pl.Int64, strict=False),
        source=pl.lit(label),
    )
    return frames.DECISIONS.conform(ordered)


def _implied_pull_request(prefix: str) -> dict[str, pl.Expr]:
    """Words of the pull request axis, implied by the status where a line holds no others.

    A report holds no more of the pull request than its status word implies.
    """
    is_at_work = pl.col(f"{prefix}session_state").is_in(_AT_WORK)
    implied = {
        f"{prefix}{part}": pl.when(is_at_work).then(of_legacy_status(part, f"{prefix}status"))
        for part in ("pr_state", "pr_reason")
    }
    return {name: pl.coalesce(name, by_status) for name, by_status in implied.items()}


def decided_at_instant(decisions: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Axes of each session at an instant, by the log lines up to it.

    Parameters
    ----------
    decisions : polars.DataFrame
        `frames.DECISIONS`.
    at : datetime
        The instant.

    Returns
    -------
    polars.DataFrame
        ``source``, ``entity_id``, the six words (null: no line holds them, or a newer one
        holds another status only), ``stored_status``, ``legacy_status``, ``evidence_text``,
        ``detecting_attempts``, ``decided_at``; the first lines since which the session axis
        (``state_since``), the evidence (``seen_since``) and being over or not by its status
        (``over_since``) have been the same; and ``next_previous`` (the session state before
        the next line, as that line records it).

    Notes
    -----
    A value that a line does not hold is that of an older line. Before its first line a
    session had the previous values of that line.
    """
    lines = decisions.sort(*_KEY, "at", "seq", maintain_order=True)
    past, future = lines.filter(pl.col("at") <= at), lines.filter(pl.col("at") > at)
    words = ("status", *AXES)
    has_axes = pl.col("session_state").is_not_null()
    by_past = past.group_by(_KEY, maintain_order=True).agg(
        *(pl.col(name).drop_nulls().last() for name in words),
        *(pl.col(name).drop_nulls().last() for name in ("evidence_text", "detecting_attempts")),
        # A pull request of the Go rewrite is a row of its own: that of the session stays.
        decided_at=pl.col("at").filter(~pl.col("kind").str.starts_with("change.pr_")).last(),
        _axes_at=pl.col("at").filter(has_axes).last(),
        _status_at=pl.col("at").filter(pl.col("status").is_not_null()).last(),
    )
    by_future = (
        future.join(by_past, on=_KEY, how="anti")
        .group_by(_KEY, maintain_order=True)
        .agg(pl.col(f"previous_{name}").drop_nulls().first().alias(name) for name in words)
        .filter(pl.any_horizontal(pl.col(words).is_not_null()))
    )
    decided = pl.concat([by_past, by_future], how="diagonal_relaxed")
    decided = left_joined(
        decided,
        _since(past, pl.col("session_state"), "state_since"),
        _since(past, pl.col("evidence_text"), "seen_since"),
        _since(past, pl.col("status").is_in(mapping.GO_ENDS), "over_since"),
        future.group_by(_KEY, maintain_order=True).agg(
            next_previous=pl.col("previous_session_state").drop_nulls().first()
        ),
        on=_KEY,
    )
    # Axes that a newer status contradicts do not hold any more.
    is_outdated = (pl.col("_status_at") > pl.col("_axes_at")) & (
        pl.col("status") != pl.col("legacy_status")
    )
    holds = ~is_outdated.fill_null(value=False) & has_axes
    return (
        decided.with_columns(legacy_status=mapping.legacy_status())
        .with_columns(
            *(pl.when(holds).then(name).alias(name) for name in (*AXES, "state_since")),
            legacy_status=pl.when(holds).then("legacy_status").otherwise("status"),
            stored_status="status",
        )
        .drop("status", "_axes_at", "_status_at")
    )


def _since(lines: pl.DataFrame, value: pl.Expr, name: str) -> pl.DataFrame:
    """Moment of the first line of each session since which a value has been the same."""
    runs = lines.filter(value.is_not_null()).with_columns(_run=value.rle_id().over(_KEY))
    last = runs.filter(pl.col("_run") == pl.col("_run").max().over(_KEY))
    return last.group_by(_KEY).agg(pl.col("at").first().alias(name))

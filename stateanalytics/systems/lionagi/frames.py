"""The tables and columns that are read from a lionagi store, and the frames that only it fills.

Bodies of messages, prompts, payloads and the large ``node_metadata`` stay in the
file; the few keys of them that facts need are extracted by SQL, guarded so that no
malformed value can stop a scan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl

from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import Calls, OfInput, Turns
from stateanalytics.core.shapes import Frame, Integer, Moment, Real, Text, YesNo, frame
from stateanalytics.io.cells import Cell, Kind, cells_from_csv
from stateanalytics.io.findings import all_findings
from stateanalytics.io.parts import ReadTable, refresh_table
from stateanalytics.io.sqlite import Store
from stateanalytics.systems.base import Tables


class LionagiSchedules(OfInput, key=("source", "schedule_id")):
    """One lionagi schedule, with the facts its health is judged by."""

    schedule_id = Text("id of the schedule")
    is_enabled = YesNo("is it switched on")
    trigger_type = Text("cron, interval, github_poll, at")
    cron_expr = Text("cron expression")
    timezone = Text("the zone that it is meant in")
    cadence_s = Real("interval between fires; null: none (at, or unreadable cron)", unit="s")
    next_fire_at = Moment("next planned fire")
    last_fired_at = Moment("last fire, survives retention of runs")
    last_evaluated_at = Moment("last threshold evaluation")
    last_healthy_poll_at = Moment("last poll that worked")
    has_threshold = YesNo("is it a threshold schedule")
    last_executed_at = Moment("last run that was executed (skips do not count)")
    last_executed_status = Text("status of that run")
    n_runs = Integer("runs recorded")
    n_running = Integer("runs that are running")
    n_missed = Integer("fires missed (skipped as missed_fire)")
    n_failed_in_row = Integer("failed or timed-out runs since the last good one")


SCHEDULES = frame(LionagiSchedules)


class LionagiFires(OfInput, key=("source", "schedule_run_id")):
    """One run of a schedule, and what fired it."""

    schedule_run_id = Text("id of the run")
    schedule_id = Text("the schedule; null: queued without one")
    chain_depth = Integer("0: fired by its schedule; else by the run before it")


FIRES = frame(LionagiFires)


class LionagiDispositions(OfInput, key=("source", "item_id")):
    """What an operator decided about one attention item (ADR-0030)."""

    item_id = Text("run:<session>, inv:<id>, sched:<id>, play:<topic>:<name>")
    entity_type = Text("type of the entity that item_id names; null: not resolved")
    entity_id = Text("the entity that item_id names; null: not resolved")
    state = Text("acknowledged, resolved, expected, snoozed")
    note = Text("the operator's note")
    actor = Text("who decided")
    source_status = Text("status the item had then")
    created_at = Moment("when it was first decided")
    updated_at = Moment("when it was last decided")
    expires_at = Moment("end of a snooze")


DISPOSITIONS = frame(LionagiDispositions)


class LionagiDecisions(OfInput, key=("source", "item_id", "at", "seq")):
    """One decision of an operator about an attention item, the withdrawn ones too."""

    item_id = Text("run:<session>, inv:<id>, sched:<id>, play:<topic>:<name>")
    entity_type = Text("type of the entity that item_id names; null: not resolved")
    entity_id = Text("the entity that item_id names; null: not resolved")
    at = Moment("when it was decided")
    seq = Integer("order within the store")
    state = Text("acknowledged, resolved, expected, snoozed; open: withdrawn")
    note = Text("the operator's note")
    actor = Text("who decided")
    source_status = Text("status the item had then")


DECISIONS = frame(LionagiDecisions)


class LionagiRuns(OfInput, key=("source", "run_id")):
    """One run directory next to the store."""

    run_id = Text("name of the directory")
    session_id = Text("session that the directory belongs to, where it is known")
    status = Text("status in run.json; may lag behind the store")
    derived_status = Text("status by ADR-0017's import rule")
    kind = Text("invocation kind in run.json")
    agent = Text("agent in run.json")
    model = Text("model in run.json")
    started_at = Moment("start in run.json, else file time")
    ended_at = Moment("end in run.json")
    is_time_from_files = YesNo("started_at is only a file time")
    timeout_s = Real("config.timeout of checkpoint.json", unit="s")
    n_signals_dropped = Integer("signals that could not be stored")
    n_planned_ops = Integer("operations in the plan of checkpoint.json")


RUNS = frame(LionagiRuns)


class LionagiShowsOnDisk(OfInput, key=("source", "topic", "play")):
    """One show or play directory: the state on disk (it wins over the store, #1161)."""

    topic = Text("show")
    play = Text("play; null: the show itself")
    disk_status = Text("status by the files")
    store_status = Text("status by the store; null: not in the store")
    is_gate_passed = YesNo("verdict of the gate")
    is_show_passed = YesNo("final verdict of the show")
    has_abort_sentinel = YesNo("an _ABORT file is there")
    depends_on = Text("JSON list of plays that must be merged first")
    feedback = Text("the gate's words, shortened")


SHOWS_ON_DISK = frame(LionagiShowsOnDisk)


class LionagiCalls(Calls, key=("source", "entity_id")):
    """One call of a tool in the messages of lionagi, read when it is first asked for."""


CALLS = frame(LionagiCalls)


class LionagiTurns(Turns, key=("source", "entity_id")):
    """One instruction in the messages of lionagi, read when turns are first asked for."""


TURNS = frame(LionagiTurns)


FRAMES = (SCHEDULES, FIRES, DISPOSITIONS, DECISIONS, RUNS, SHOWS_ON_DISK, CALLS, TURNS)


def frames() -> tuple[Frame, ...]:
    """Every frame of lionagi, in the order of the schema."""
    return FRAMES


SYSTEM = "lionagi"


def _object(column: str) -> str:
    """SQL: the JSON object in a column, decoded twice where it was encoded twice."""
    inner = f"json_extract({column}, '$')"
    return (
        f"CASE WHEN typeof({column}) <> 'text' THEN NULL WHEN NOT json_valid({column}) THEN NULL "
        f"ELSE CASE json_type({column}) WHEN 'object' THEN {column} "
        f"WHEN 'text' THEN CASE WHEN json_valid({inner}) THEN {inner} END END END"
    )


def key_of(column: str, key: str) -> str:
    """SQL: one key of a JSON object; rows without it cost one substring search."""
    last = key.rpartition(".")[2]
    return (
        f"CASE WHEN instr({column}, '\"{last}\"') THEN "
        f"json_extract({_object(column)}, '$.{key}') END"
    )


def _key(column: str, key: str, kind: Kind = "text") -> Cell:
    return Cell(kind, key_of(column, key), (column,))


# SQLite gives the size of a value without reading its overflow pages.
def _size(column: str) -> Cell:
    return Cell("integer", f"octet_length({column})", (column,))


# The tool that a request calls; answers may be megabytes and are not parsed.
_TOOL = Cell(
    "text",
    "CASE WHEN lion_class = 4 THEN CASE WHEN octet_length(content) < 20000 THEN "
    f"{key_of('content', 'function')} END END",
    ("lion_class", "content"),
)


# Only the text that `--timeout` puts before a prompt records the second of the deadline.
_DEADLINE = Cell(
    "text",
    "CASE WHEN role = 'user' THEN CASE WHEN typeof(content) = 'text' THEN "
    "CASE WHEN instr(substr(content, 1, 40), '\"[DEADLINE]') THEN substr(content, 1, 160) "
    "END END END",
    ("role", "content"),
)


# A missing contract is stored as NULL, '', 'null' or '{}', by release.
def _contract(column: str) -> Cell:
    return Cell(
        "text", f"CASE WHEN {column} NOT IN ('', 'null', '{{}}') THEN {column} END", (column,)
    )


# Metadata is large and mostly of no use here: it is loaded only where it has a key that
# facts need, or is no JSON object and must be reported.
def _metadata(*keys: str) -> Cell:
    holds = " + ".join(f"instr(node_metadata, '{key}')" for key in keys)
    return Cell(
        "json",
        "CASE WHEN typeof(node_metadata) <> 'text' THEN node_metadata "
        "WHEN NOT json_valid(node_metadata) THEN node_metadata "
        "WHEN unicode(node_metadata) <> unicode('{') THEN node_metadata "
        f"WHEN {holds} THEN node_metadata END",
        ("node_metadata",),
    )


_RUN_ID_OF_OLD_ROWS = Cell(
    "text",
    f"CASE WHEN run_id IS NULL THEN {key_of('node_metadata', 'run_id')} END",
    ("node_metadata", "run_id"),
)


_OWN: Mapping[str, Mapping[str, Cell]] = {
    "sessions": {
        "artifact_contract_json": _contract("artifact_contract_json"),
        "artifact_verification_json": _contract("artifact_verification_json"),
        "has_artifacts": Cell("yes_no", "coalesce(artifacts_path, '') <> ''", ("artifacts_path",)),
        "node_metadata": _metadata('"timeout_seconds"', '"timeout_elapsed"', '"external"'),
        # Flows keep it there too; from 0.31 there is a column, and this is only the fallback.
        "metadata_run_id": _key("node_metadata", "run_id"),
    },
    "branches": {"launch_dir": _key("node_metadata", "mcp_launch.launch_dir")},
    "progressions": {
        "n_messages": Cell(
            "integer",
            # Null for what is no list, of which SQLite would give the length 0.
            "CASE WHEN json_valid(collection) THEN CASE json_type(collection) "
            "WHEN 'array' THEN json_array_length(collection) END END",
            ("collection",),
        )
    },
    "invocations": {"node_metadata": _metadata('"action_kind"')},
    "schedules": {
        "has_threshold": Cell(
            "yes_no",
            "coalesce(threshold_config, '') NOT IN ('', 'null', '{}')",
            ("threshold_config",),
        )
    },
    # No release has columns for the parent of a team; writers of one may use either place.
    "teams": {f"metadata_{name}": _key("node_metadata", name) for name in ("play_id", "show_id")},
    "team_messages": {"size_bytes": _size("content")},
    "session_signals": {
        "size_bytes": _size("payload"),
        "name": _key("payload", "name"),
        "point": _key("payload", "point"),
        "error": Cell(
            "text",
            # Of a run that failed, 0.36 has the error in place of an answer.
            f"CAST(coalesce({key_of('payload', 'error')}, CASE WHEN kind = 'RunFailed' "
            f"THEN nullif({key_of('payload', 'data')}, '') END) AS TEXT)",
            ("kind", "payload"),
        ),
        "elapsed": _key("payload", "elapsed", "real"),
        "duration_ms": _key("payload", "duration_ms", "real"),
        **{
            name: Cell(
                "integer",
                f"CASE WHEN kind = 'RunEnd' THEN {key_of('payload', name)} END",
                ("kind", "payload"),
            )
            for name in ("input_tokens", "cached_tokens", "cache_write_tokens")
        },
    },
    "admin_events": {"target_type": _key("details", "entity_type")},
    "messages": {"size_bytes": _size("content"), "name": _TOOL, "deadline": _DEADLINE},
}
TABLES: Mapping[str, Mapping[str, Cell]] = cells_from_csv(__package__, _OWN)

# Loaded only on request: the texts of people and models.
_BODIES = {"messages": "content", "session_signals": "payload", "team_messages": "content"}

Raw = Mapping[str, pl.DataFrame]


def generation(tables: Mapping[str, Collection[str]]) -> str:
    """The releases that store so, as text.

    Parameters
    ----------
    tables : mapping of str to tuple of str
        The tables that exist, each with its columns.

    Returns
    -------
    str
        ``lionagi <releases>``: by the newest table or column that is there.

    Examples
    --------
    >>> generation({"sessions": ("id", "status")})
    'lionagi 0.26.0'
    >>> generation({"sessions": ("id", "status", "run_id"), "dispatch_outbox": ()})
    'lionagi 0.31.0 to 0.32.0'
    """
    # Newest first; without a column, the table itself is new.
    for row in table_rows(__package__, "releases.csv"):
        if row["column"] in ("", *tables.get(row["table"], ())) and row["table"] in tables:
            return f"lionagi {row['releases']}"
    return "lionagi before 0.26.0"


def tables() -> Tables:
    """The tables that are read, and those that are ignored on purpose."""
    version = Cell(
        "integer", "CASE WHEN key = 'version' THEN CAST(value AS INTEGER) END", ("key", "value")
    )
    return Tables(
        read=TABLES,
        ignored=(
            *("schema_meta", "message_types", "projects", "definitions", "engine_defs"),
            *("workflow_defs", "workers"),
        ),
        version=("schema_meta", version),
        newest=4,
        in_words=generation,
    )


def read_raw(
    store: Store, *, bodies: bool = False, before: Mapping[str, ReadTable] | None = None
) -> tuple[Raw, pl.DataFrame, Mapping[str, ReadTable]]:
    """Every table that facts need, by name, in the columns of `TABLES`.

    Parameters
    ----------
    store : Store
        An open lionagi store.
    bodies : bool
        Whether to load the texts of messages, signals and team messages too.
    before : mapping of str to ReadTable, optional
        What an earlier read of the same store kept: only changed rows are read.

    Returns
    -------
    tables : mapping of str to polars.DataFrame
        A table or column that the store does not have is empty or null.
    findings : polars.DataFrame
        Cells with a value of another kind than their column should have, counted.
    kept : mapping of str to ReadTable
        For the next read.
    """
    tables, findings, kept = {}, [], {}
    for table, cells in TABLES.items():
        wanted = dict(cells)
        if bodies and (column := _BODIES.get(table)):
            wanted["body"] = Cell("text", f"CAST({column} AS TEXT)", (column,))
        if table == "sessions" and "run_id" in store.tables[table]:
            wanted["metadata_run_id"] = _RUN_ID_OF_OLD_ROWS
        kept[table] = refresh_table(store, table, wanted, (before or {}).get(table), system=SYSTEM)
        tables[table] = kept[table].rows
        findings.append(kept[table].findings)
    return tables, all_findings(*findings), kept

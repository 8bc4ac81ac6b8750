"""Calls of tools in the chats of the Go rewrite: commands, changed files, tools of servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.io.cells import TEXT, Cell, Kind
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.agent_orchestrator.frames import CALLS
from stateanalytics.systems.agent_orchestrator.go_sessions import GoTables, go_moment, with_session
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.call_texts import inputs_of, results_of
from stateanalytics.systems.provider_errors import cause_in
from stateanalytics.systems.tool_calls import MOST_MESSAGE_CHARS, calls_from, ends_of

if TYPE_CHECKING:
    from stateanalytics.io.sqlite import Store

_TABLE = "conversation_activities"
_KINDS = ("command", "file_change", "mcp_tool")
_OPEN = ("running", "pending")
_AT_RESTART = "controller ended before the turn completed"
"""What a turn says that the program ended by its own restart, with all that ran in it."""


def _detail(path: str) -> str:
    """SQL: a value of the activity's detail, which is empty where there is none."""
    return f"CASE WHEN json_valid(detail_json) THEN json_extract(detail_json, '$.{path}') END"


def _cell(kind: Kind, sql: str) -> Cell:
    return Cell(kind, sql, ("detail_json", "summary", "kind", "command_output"))


_FILE = f"coalesce({_detail('files[0].path')}, {_detail('locations[0].path')}, summary)"
_ASKED = (
    "CASE kind WHEN 'command' THEN "
    f"json_object('command', coalesce({_detail('command')}, {_detail('input.command')}, summary)) "
    "WHEN 'file_change' THEN "
    f"json_object('file_path', {_FILE}, 'files', {_detail('files')}, 'input', {_detail('input')}) "
    f"ELSE coalesce({_detail('arguments')}, {_detail('input')}, json_object('tool', summary)) END"
)
_OUTPUT = f"coalesce(nullif(command_output, ''), {_detail('output')}, {_detail('result')})"
_CELLS = {
    **dict.fromkeys(("id", "kind", "status", "provider_item_id", "created_at", "updated_at"), TEXT),
    "asked": _cell("text", f"CAST({_ASKED} AS TEXT)"),
    "output": _cell("text", ends_of(f"CAST({_OUTPUT} AS TEXT)")),
    "error": _cell("text", f"CAST({_detail('error')} AS TEXT)"),
    "own_name": _cell("text", f"coalesce({_detail('providerToolName')}, {_detail('toolName')})"),
    "server": _cell("text", _detail("server")),
    "exit_code": _cell("integer", _detail("exitCode")),
    "duration_ms": _cell("real", _detail("durationMs")),
    "is_success": _cell("yes_no", _detail("success")),
}


def read_calls(store: Store, tables: GoTables) -> pl.DataFrame:
    """The calls of tools in a database of the Go rewrite.

    Parameters
    ----------
    store : Store
        An open database of the Go rewrite, of any migration.
    tables : GoTables
        Its tables.

    Returns
    -------
    polars.DataFrame
        `frames.CALLS` without ``source``; ``session_id`` is the session's own name. What ran
        when the program was restarted was interrupted, though it is stored as failed.
    """
    rows = read_table(store, _TABLE, _CELLS, system=SYSTEM)[0]
    rows = rows.hstack([*inputs_of(rows["asked"]), *results_of(rows["output"])])
    ended = tables["conversation_turns"].select(turn_id="id", turn_error="error_message")
    of_session = with_session(tables, _TABLE).select("id", "session_id", "turn_id")
    status, code = pl.col("status"), pl.col("exit_code")
    said = pl.coalesce(pl.col("error", "output").replace("", None))
    is_cut = (status == "failed") & said.is_null() & (pl.col("turn_error") == _AT_RESTART)
    is_stopped = (status == "cancelled") | is_cut.fill_null(value=False)
    is_over = ~status.is_in(_OPEN)
    has_failed = (status != "completed") | (code.fill_null(0) != 0) | ~pl.col("is_success")
    calls = (
        rows.filter(pl.col("kind").is_in(_KINDS))
        .join(of_session, on="id", how="left", maintain_order="left")
        .join(ended, on="turn_id", how="left", maintain_order="left")
        .with_columns(
            entity_id="id",
            call_id=pl.coalesce(pl.col("provider_item_id").replace("", None), "id"),
            tool=pl.coalesce(
                pl.concat_str("server", "own_name", separator="__"), "own_name", "server", "kind"
            ),
            started_at=go_moment(pl.col("created_at")),
            ended_at=pl.when(is_over).then(go_moment(pl.col("updated_at"))),
            duration_s=pl.col("duration_ms") / 1000,
            is_error=pl.when(is_over).then(has_failed.fill_null(value=False)),
        )
        .with_columns(
            cause=pl.when("is_error").then(
                pl.when(is_stopped)
                .then(pl.lit("interrupted"))
                .when(code.fill_null(0) != 0)
                .then(pl.lit("exit_nonzero"))
                .otherwise(cause_in(said))
            ),
            message=pl.when("is_error").then(said.str.slice(0, MOST_MESSAGE_CHARS)),
            source=pl.lit(store.label),
            thread_id="session_id",
        )
    )
    return CALLS.conform(calls_from(calls, SYSTEM))

"""Work of the Go rewrite beyond its sessions: pieces of work, usage, and calls of tools.

``data/situations.csv`` holds the meaning of each status of a piece of work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import left_joined, total
from stateanalytics.core.package_tables import package_table, table_rows
from stateanalytics.core.schema import TURNS
from stateanalytics.io.cells import INTEGER, TEXT, Cell, Kind
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems import tool_calls
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.columns import json_value
from stateanalytics.systems.agent_orchestrator.frames import CALLS, WORK
from stateanalytics.systems.agent_orchestrator.go_sessions import GoTables, go_moment, with_session
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.history import clocks_of, has_begun, values_at
from stateanalytics.systems.situations import (
    add_situations,
    cause_by_words,
    cause_in,
    situations_from_csv,
)

_SITUATIONS = situations_from_csv(__package__)
_CUT_OFF = "controller ended before the turn completed"
"""What a turn says that the program ended by its own restart, with all that ran in it."""
_FIRST = {
    "turn": "queued",
    "agent_switch": "preparing_handoff",
    "interface_transition": "requested",
}
VERDICTS = ("approved", "changes_requested")
_SAME_SPAWN = timedelta(seconds=2)
"""A spawn that failed is written this close to the end of the row that it leaves."""


def _work_tables() -> dict[str, tuple[str, Mapping[str, str]]]:
    tables: dict[str, tuple[str, dict[str, str]]] = {}
    for row in table_rows(__package__, "work_tables.csv"):
        columns = tables.setdefault(row["entity_type"], (row["table"], {}))[1]
        columns[row["column"]] = row["read_from"]
    return {**tables}


WORK_TABLES = _work_tables()
"""Each type of work: its table, and its canonical columns with the columns they are read from."""


def known_words(entity_type: str) -> list[str]:
    """The statuses of a type of work that have a meaning."""
    situations = [name.partition(".") for name in _SITUATIONS["situation"]]
    own = [word for work, _, word in situations if work == entity_type]
    return [*own, "complete", "delivered"] if entity_type == "review_run" else own


def read_work(tables: GoTables) -> pl.DataFrame:
    """Every piece of work in the columns of `frames.WORK`, its session by its stored name."""
    pieces = [
        tables[table].select(entity_type=pl.lit(entity_type), entity_id="id", **columns)
        for entity_type, (table, columns) in WORK_TABLES.items()
    ]
    work = pl.concat([*pieces, _spawns(tables)], how="diagonal")
    replaced = _replaced_turns(tables).implode()
    return (
        left_joined(work, _review_ends(tables), on=["entity_type", "entity_id"])
        .with_columns(
            # A review is over when its pass is, whenever that reaches the provider.
            ended_at=pl.when(_is_over()).then(pl.coalesce("reviewed_at", "ended_at")),
            # The body of a review is an error only where the review failed.
            error_message=pl.when(
                (pl.col("entity_type") != "review_run") | (pl.col("raw_status") == "failed")
            ).then("error_message"),
            is_replaced=pl.when(pl.col("entity_type") == "turn").then(
                pl.col("entity_id").is_in(replaced)
            ),
        )
        .drop("reviewed_at")
    )


def _replaced_turns(tables: GoTables) -> pl.Series:
    """Ids of turns that were rolled back, or are not on the branch that their chat shows.

    Turns of a parent branch are shown up to the fork. A version that does not record which
    branch is shown records for each edit which turn it replaced.
    """
    branches, chats = tables["conversation_branches"], tables["conversations"]
    shown = chats.select("active_branch_id", conversation_id="id")
    levels = [
        shown.select(
            branch_id="active_branch_id",
            fork_after_sequence=pl.lit(None, pl.Int64),
            replaced_turn_id=pl.lit(None, pl.String),
        )
    ]
    unseen = branches
    while levels[-1].height:
        ancestors = unseen.join(levels[-1], left_on="id", right_on="branch_id", how="inner")
        # A damaged store may have its branches in a circle.
        unseen = unseen.join(ancestors, on="id", how="anti")
        forks = pl.min_horizontal("fork_after_sequence", "fork_after_sequence_right")
        levels.append(
            ancestors.select(
                # Turns that a fork excludes stay excluded in every branch after it.
                fork_after_sequence=forks,
                replaced_turn_id="replaced_turn_id",
                branch_id="parent_branch_id",
            ).unique("branch_id", keep="first", maintain_order=True)
        )
    # A branch that is shown itself is shown whole, whatever was forked from it.
    on_path = (
        pl.concat(levels, how="diagonal")
        .drop_nulls("branch_id")
        .unique("branch_id", keep="first", maintain_order=True)
    )
    first_message = (
        tables["conversation_messages"].group_by(id="turn_id").agg(pl.col("sequence").min())
    )
    turns = (
        tables["conversation_turns"]
        .join(first_message, on="id", how="left")
        .join(shown, on="conversation_id", how="left")
        .join(on_path.with_columns(is_on_path=pl.lit(value=True)), on="branch_id", how="left")
    )
    edited, edited_on_path = (
        frame["replaced_turn_id"].drop_nulls().implode() for frame in (branches, on_path)
    )
    is_after_fork = pl.col("sequence") > pl.col("fork_after_sequence")
    is_past = is_after_fork | pl.col("id").is_in(edited_on_path)
    is_away = pl.col("branch_id").is_not_null() & pl.col("is_on_path").is_null()
    is_replaced = (
        pl.when(pl.col("active_branch_id").is_null())
        .then(pl.col("id").is_in(edited))
        .otherwise(is_away | is_past.fill_null(value=False))
    )
    return turns.filter(is_replaced | pl.col("rolled_back_at").is_not_null())["id"]


def _is_over() -> pl.Expr:
    """Is a piece of work over by its status; an unknown status is no end."""
    over = _SITUATIONS.filter(pl.col("outcome").is_not_null())["situation"].implode()
    return _situation().is_in(over)


def _review_ends(tables: GoTables) -> pl.DataFrame:
    """When the pass of each review was over, by the log of changes."""
    ends = (
        tables["change_log"]
        .filter(pl.col("event_type") == "review_run_updated")
        .filter(json_value("payload", "status") != "running")
        .select(
            entity_type=pl.lit("review_run"),
            entity_id=json_value("payload", "id"),
            reviewed_at="created_at",
        )
    )
    return ends.group_by("entity_type", "entity_id").agg(pl.col("reviewed_at").min())


def _spawns(tables: GoTables) -> pl.DataFrame:
    """Every attempt to start a session that telemetry keeps, failed or not.

    One that failed and left a row of a session has no key of it: the row was last written
    at the same moment, by the same project, and never gave a signal.
    """
    statuses = {"ao.session.spawned": "spawned", "ao.session.spawn_failed": "failed"}
    took_ms = json_value("payload_json", "duration_ms").cast(pl.Float64, strict=False)
    began_at = pl.col("occurred_at") - pl.duration(milliseconds=took_ms)
    # A wrong duration may lead out of the calendar of Python's dates.
    started_at = pl.coalesce(pl.when(began_at.dt.year() >= 1).then(began_at), "occurred_at")
    attempts = (
        tables["telemetry_event"]
        .filter(pl.col("name").is_in(list(statuses)))
        .select(
            "session_id",
            entity_type=pl.lit("spawn"),
            entity_id="id",
            project="project_id",
            kind=json_value("payload_json", "kind"),
            agent=json_value("payload_json", "harness"),
            raw_status=pl.col("name").replace_strict(statuses),
            error_code=json_value("payload_json", "error_code", "error_kind"),
            created_at=started_at,
            started_at=started_at,
            ended_at="occurred_at",
        )
    )
    dead = tables["sessions"].filter(pl.col("is_terminated") & pl.col("first_signal_at").is_null())
    left_behind = (
        attempts.filter(pl.col("session_id").is_null())
        .join(dead.select("updated_at", project="project_id", left="id"), on="project")
        .filter((pl.col("updated_at") - pl.col("ended_at")).abs() <= _SAME_SPAWN)
        .sort("left")
        .group_by("entity_id")
        .agg(pl.col("left").first())
    )
    linked = attempts.join(left_behind, on="entity_id", how="left", maintain_order="left")
    return linked.with_columns(session_id=pl.coalesce("session_id", "left")).drop("left")


def work_at(work: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """`frames.WORK` as it was at an instant, by its own moments."""
    is_over = (pl.col("ended_at") <= at).fill_null(value=False)
    has_started = (pl.col("started_at") <= at).fill_null(value=False)
    first = pl.col("entity_type").replace_strict(_FIRST, default="running")
    before = pl.when(has_started & (pl.col("entity_type") == "turn")).then(pl.lit("running"))
    is_same = is_over | pl.col("ended_at").is_null()
    return work.filter(has_begun(at)).with_columns(
        **values_at(at, clocks_of(__package__)["work"], is_written=False),
        raw_status=pl.when(is_same).then("raw_status").otherwise(pl.coalesce(before, first)),
        # When a turn was replaced is not recorded.
        is_replaced=pl.when(~pl.col("is_replaced")).then(pl.lit(value=False)),
    )


def _situation() -> pl.Expr:
    word = pl.format("{}.{}", "entity_type", "raw_status")
    is_review = (pl.col("entity_type") == "review_run") & pl.col("raw_status").is_in(
        ["complete", "delivered"]
    )
    is_known = pl.col("verdict").is_in(VERDICTS)
    verdict = pl.when(is_known).then("verdict").otherwise(pl.lit("no_verdict"))
    return (
        pl.when(is_review)
        .then(pl.format("review_run.{}", verdict))
        .when((pl.col("raw_status") == "failed") & (pl.col("error_message") == _CUT_OFF))
        .then(pl.lit("turn.controller_ended"))
        .otherwise(word)
    )


def with_turns(sessions: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Entities of sessions with their number of chat turns; null: none is recorded."""
    turns = work.filter(pl.col("entity_type") == "turn")
    counts = turns.group_by("source", entity_id="session_id").agg(n_turns=pl.len().cast(pl.Int64))
    return sessions.update(counts, on=["source", "entity_id"])


def work_entities(work: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Pieces of work as entities; a spawn only where it failed and left no session.

    Parameters
    ----------
    work : polars.DataFrame
        `frames.WORK`, as now or at an instant.
    sessions : polars.DataFrame
        Entities of the sessions.
    """
    has_session = (pl.col("entity_type") == "spawn") & (
        pl.col("session_id").is_not_null() | (pl.col("raw_status") != "failed")
    )
    parents = sessions.select("source", session_id="entity_id", in_project="project")
    has_parent = pl.col("session_id").is_not_null()
    rows = (
        work.filter(~has_session)
        .join(parents, on=["source", "session_id"], how="left", maintain_order="left")
        .with_columns(
            system=pl.lit(SYSTEM),
            project=pl.coalesce("project", "in_project"),
            parent_type=pl.when(has_parent).then(pl.lit("session")),
            parent_id="session_id",
            reason_message="error_message",
            recorded_by=pl.lit("live"),
            last_activity_at=pl.coalesce("ended_at", "started_at", "created_at"),
            situation=_situation(),
            has_output=pl.lit(value=True),
            n_turns=pl.when(pl.col("entity_type") == "turn").then(pl.lit(1, pl.Int64)),
            # The provider's message is all that is recorded of why a turn failed.
            cause=pl.coalesce(
                pl.col("error_code").str.to_lowercase(),
                pl.when(pl.col("entity_type") == "turn").then(
                    pl.coalesce(cause_by_words(pl.lit(None, pl.Int64)), pl.lit("provider"))
                ),
            ),
            detail=pl.coalesce("error_code", "error_message"),
        )
    )
    key = [*schema.ENTITY_KEY, "situation", "has_output", "cause", "error_message", "detail"]
    nothing = pl.lit([], pl.List(pl.String))
    return add_situations(schema.ENTITIES.conform(rows), rows.select(key), _SITUATIONS, nothing)


def work_transitions(work: pl.DataFrame) -> pl.DataFrame:
    """The beginning and the end of each piece of work, in the columns of `schema.TRANSITIONS`."""
    is_turn = pl.col("entity_type") == "turn"
    first = pl.col("entity_type").replace_strict(_FIRST, default="running")
    begins = work.filter(is_turn).select(
        *("source", "entity_type", "entity_id"),
        at="started_at",
        previous_status=first,
        status=pl.lit("running"),
    )
    previous = pl.when(is_turn & pl.col("started_at").is_not_null()).then(pl.lit("running"))
    over = work.filter(pl.col("entity_type") != "spawn").select(
        *("source", "entity_type", "entity_id"),
        at="ended_at",
        previous_status=pl.coalesce(previous, first),
        status="raw_status",
        reason_code="error_code",
        message="error_message",
    )
    both = pl.concat([begins, over], how="diagonal").filter(pl.col("at").is_not_null())
    return schema.TRANSITIONS.conform(
        both.sort("at", "entity_id").with_columns(
            system=pl.lit(SYSTEM), seq=pl.int_range(pl.len()), writer=pl.lit("daemon")
        )
    )


_USD_PER_NANO = 1e-9
_REPORTED = ("n_input_tokens", "n_output_tokens", "cost_usd")
SUMS = (*_REPORTED, "n_cache_read_tokens", "n_cache_write_tokens")


def _measured(tables: GoTables) -> pl.DataFrame:
    """Usage events by transcripts, with null tokens where they were not measured."""
    # A provider without such a counter has a number there all the same.
    known = {
        f"{name}_tokens": pl.when(
            pl.col(f"{name}_provenance").ne_missing("unsupported") & (pl.col(f"{name}_tokens") >= 0)
        ).then(f"{name}_tokens")
        for name in ("input", "cached_input", "output")
    }
    events = tables["model_usage_events"].filter(pl.col("model_id").ne_missing("<synthetic>"))
    return events.with_columns(**known)


def unknown_events(tables: GoTables) -> pl.DataFrame:
    """Usage events of which a part should have been measured, and is not known."""
    is_lost = (
        pl.col(f"{name}_tokens").is_null() & pl.col(f"{name}_provenance").ne_missing("unsupported")
        for name in ("input", "output")
    )
    return _measured(tables).filter(pl.any_horizontal(is_lost))


def read_usage(tables: GoTables) -> pl.DataFrame:
    """Usage by transcripts and by chats, in the columns of `frames.USAGE`.

    Notes
    -----
    Both may cover the same work: tokens of a chat count where its session has no events. The
    usage of a chat is its sum up to its last write; a project's chat is of no single session.
    """
    bindings = tables["usage_bindings"].select("session_id", "initial_model_id", binding_id="id")
    openai = tables["openai_usage_event_details"].rename({"event_id": "id"})
    anthropic = tables["anthropic_usage_event_details"].rename({"event_id": "id"})
    events = (
        _measured(tables)
        .join(bindings, on="binding_id", how="left", maintain_order="left")
        .pipe(left_joined, openai, anthropic, on="id")
        .select(
            "session_id",
            at="created_at",
            measured=pl.lit("event"),
            provider="provider_id",
            model=pl.coalesce("model_id", "initial_model_id"),
            n_input_tokens="input_tokens",
            n_cache_read_tokens="cached_input_tokens",
            n_cache_write_tokens=pl.coalesce(
                "openai_cache_write_input_tokens", "anthropic_cache_creation_input_tokens"
            ),
            n_output_tokens="output_tokens",
            n_reasoning_tokens="openai_reasoning_output_tokens",
            estimated_cost=pl.col("estimated_cost_nanos") * _USD_PER_NANO,
        )
    )
    is_usd = pl.col("usage_currency").fill_null("") == "USD"
    chats = tables["conversations"].select(
        "model",
        session_id=pl.when(pl.col("scope") == "session").then("session_id"),
        project="project_id",
        at="updated_at",
        measured=pl.lit("chat"),
        n_input_tokens="usage_input_tokens",
        n_cache_read_tokens="usage_cached_tokens",
        n_output_tokens="usage_output_tokens",
        cost_usd=pl.when(is_usd).then("usage_cost"),
    )
    is_measured = pl.col("session_id").is_in(events["session_id"].drop_nulls().unique().implode())
    # Tokens would count twice; costs are recorded by chats only.
    tokens = pl.col("^n_.*_tokens$")
    counted = chats.with_columns(pl.when(~is_measured.fill_null(value=False)).then(tokens)).filter(
        pl.any_horizontal(pl.col(_REPORTED).is_not_null())
    )
    return pl.concat([events, counted], how="diagonal")


def summed(usage: pl.DataFrame) -> pl.DataFrame:
    """Usage of each session: null where nothing was measured, a lower bound where not all was."""
    last = (
        pl.col(name).drop_nulls().last().alias(f"used_{name}") for name in ("model", "provider")
    )
    rows = usage.filter(pl.col("entity_id").is_not_null())
    return (
        rows.sort("at", "model", nulls_last=True)
        .group_by("entity_id")
        .agg(total(*SUMS), *last, used_at=pl.col("at").filter(measured="event").max())
    )


def used_tokens(facts: Facts) -> pl.DataFrame:
    """Usage of sessions: the rows of `frames.USAGE` that belong to one."""
    of_answer = pl.when(measured="event").then("n_input_tokens")
    rows = facts.detail(frames.USAGE).drop_nulls("entity_id")
    return rows.with_columns(longest_prompt_tokens=of_answer)


# --- events ------------------------------------------------------------------------------


class _Entry(NamedTuple):
    """Rows of a table as entries of a log: where their columns are read from.

    Attributes
    ----------
    is_late : bool
        Whether a row reaches its moment later, if ever.
    since : str, optional
        The moment from which on it lasted.
    alive : str, optional
        The role of which it is a sign of life; ``yes``: of each.
    """

    table: str
    is_late: bool
    kind: str
    at: str
    project: str | None
    role: str | None
    level: str | None
    name: str | None
    detail: str | None
    duration_ms: str | None
    since: str | None
    alive: str | None


_TEXTS = ("project", "role", "level", "name", "detail", "duration_ms")
_PLACE = re.compile("{(.+?)}")


def go_entries(tables: GoTables) -> pl.DataFrame:
    """Rows of several tables as entries of a log, in the shape of `logs.read_logs`."""
    entries = package_table(__package__, "entries.csv", _Entry)
    return pl.concat([_entries(tables, entry) for entry in entries], how="diagonal")


def _entries(tables: GoTables, entry: _Entry) -> pl.DataFrame:
    rows = with_session(tables, entry.table)
    if entry.table == "pr_review_threads":
        rows = rows.with_columns(
            role=pl.when("is_bot").then(pl.lit("bot")).otherwise(pl.lit("person")),
            name=pl.when("resolved").then(pl.lit("resolved")).otherwise(pl.lit("open")),
        )
    if entry.is_late:
        rows = rows.drop_nulls(entry.at)
    named = [_value(places) for places in _PLACE.findall(entry.kind)]
    texts = {name: _value(places) for name in _TEXTS if (places := getattr(entry, name))}
    if entry.since:
        lasted = pl.col(entry.at) - pl.col(entry.since)
        texts["duration_ms"] = lasted.dt.total_milliseconds().cast(pl.String)
    is_alive = pl.lit(entry.alive == "yes")
    if entry.alive and entry.alive != "yes":
        is_alive = (pl.col("role") == entry.alive).fill_null(value=False)
    return rows.select(
        "session_id",
        log=pl.lit("store"),
        at=entry.at,
        kind=pl.format(_PLACE.sub("{}", entry.kind), *named),
        is_activity=is_alive.cast(pl.String),
        **texts,
    )


def _value(places: str) -> pl.Expr:
    """The first of some columns, or of keys of columns of JSON, that has a value."""
    parts = (place.split(".") for place in places.split("|"))
    return pl.coalesce(json_value(*part) if part[1:] else part[0] for part in parts)


_TABLE = "conversation_activities"
_KINDS = ("command", "file_change", "mcp_tool")
_OPEN = ("running", "pending")
_REFUSED = "^(?:decline|cancel|reject|deny|abort)"
"""Answers of a person to a question for approval; that of another client is not recorded."""


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
    "output": _cell("text", tool_calls.ends_of(f"CAST({_OUTPUT} AS TEXT)")),
    "error": _cell("text", f"CAST({_detail('error')} AS TEXT)"),
    "own_name": _cell("text", f"coalesce({_detail('providerToolName')}, {_detail('toolName')})"),
    "server": _cell("text", _detail("server")),
    "exit_code": _cell("integer", _detail("exitCode")),
    "duration_ms": _cell("real", _detail("durationMs")),
    "is_success": _cell("yes_no", _detail("success")),
    "decision": _cell("text", _detail("decision")),
}
_WORDS = {
    **dict.fromkeys(("turn_id", "role", "origin"), TEXT),
    "sequence": INTEGER,
    "words": Cell("text", f"substr(trim(text), 1, {tool_calls.MOST_MESSAGE_CHARS})", ("text",)),
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
        when the program was restarted was interrupted, though it is stored as failed. What a
        person refused is stored as completed: the answer belongs to the last call before it.
    """
    rows = read_table(store, _TABLE, _CELLS, system=SYSTEM)[0]
    rows = rows.hstack(
        [*tool_calls.inputs_of(rows["asked"]), *tool_calls.results_of(rows["output"])]
    )
    ended = tables["conversation_turns"].select(turn_id="id", turn_error="error_message")
    of_session = with_session(tables, _TABLE).select("id", "session_id", "turn_id")
    rows = rows.join(of_session, on="id", how="left", maintain_order="left").with_columns(
        started_at=go_moment(pl.col("created_at"))
    )
    in_order_of_time = rows.drop_nulls("started_at").sort("started_at", "id")
    answers = in_order_of_time.filter(pl.col("decision").str.contains(_REFUSED), kind="approval")
    refused = answers.select("turn_id", "started_at").join_asof(
        in_order_of_time.filter(pl.col("kind").is_in(_KINDS)).select("id", "turn_id", "started_at"),
        on="started_at",
        by="turn_id",
        check_sortedness=False,
    )["id"]
    is_refused = pl.col("id").is_in(refused.drop_nulls().implode())
    status, code = pl.col("status"), pl.col("exit_code")
    said = pl.coalesce(pl.col("error", "output").replace("", None))
    is_cut = (status == "failed") & said.is_null() & (pl.col("turn_error") == _CUT_OFF)
    is_stopped = (status == "cancelled") | is_cut.fill_null(value=False)
    is_over = ~status.is_in(_OPEN)
    has_failed = (status != "completed") | (code.fill_null(0) != 0) | ~pl.col("is_success")
    called = (
        rows.filter(pl.col("kind").is_in(_KINDS))
        .join(ended, on="turn_id", how="left", maintain_order="left")
        .with_columns(
            entity_id="id",
            call_id=pl.coalesce(pl.col("provider_item_id").replace("", None), "id"),
            tool=pl.coalesce(
                pl.concat_str("server", "own_name", separator="__"), "own_name", "server", "kind"
            ),
            ended_at=pl.when(is_over).then(go_moment(pl.col("updated_at"))),
            duration_s=pl.col("duration_ms") / 1000,
            is_error=pl.when(is_over).then(has_failed.fill_null(value=False) | is_refused),
        )
        .with_columns(
            cause=pl.when("is_error").then(
                pl.when(is_stopped)
                .then(pl.lit("interrupted"))
                .when(code.fill_null(0) != 0)
                .then(pl.lit("exit_nonzero"))
                .otherwise(cause_in(said, is_denied=is_refused))
            ),
            message=pl.when("is_error").then(tool_calls.ends_in(said)),
            source=pl.lit(store.label),
            thread_id="session_id",
        )
    )
    turn_of = of_session.select("turn_id", entity_id="id")
    return CALLS.conform(
        tool_calls.calls_from(called, SYSTEM).join(turn_of, on="entity_id", how="left")
    )


def read_words(store: Store) -> pl.DataFrame:
    """What the prompt of a person and the last answer show, for each turn of a chat."""
    rows = read_table(store, "conversation_messages", _WORDS, system=SYSTEM)[0].sort("sequence")
    is_prompt = (pl.col("role") == "user") & (pl.col("origin") == "human")
    words = pl.col("words")
    shown = rows.group_by(entity_id="turn_id").agg(
        answer=words.filter(pl.col("role") == "assistant").last(),
        prompt=words.filter(is_prompt).first(),
    )
    return shown.select(
        "entity_id",
        entity_type=pl.lit("turn"),
        gives_up=tool_calls.phrase_in(pl.col("answer"), "gives_up"),
        is_question=tool_calls.phrase_in(pl.col("answer"), "asks"),
        is_correction=tool_calls.phrase_in(pl.col("prompt"), "corrects"),
    )


def turns(facts: Facts) -> pl.DataFrame:
    """The turns of chats, in the shape of `schema.TURNS`."""
    work = facts.detail(WORK).filter(pl.col("session_id").is_not_null(), entity_type="turn")
    thread = ("source", "session_id")
    return TURNS.conform(
        work.with_columns(started_at=pl.coalesce("started_at", "created_at"))
        .sort(*thread, "started_at", "entity_id")
        .with_columns(
            system=pl.lit(SYSTEM),
            thread_id="session_id",
            turn_no=pl.int_range(1, pl.len() + 1).over(thread),
            is_interrupted=pl.col("raw_status") == "interrupted",
            is_taken_back="is_replaced",
        )
    )


def calls(facts: Facts) -> pl.DataFrame:
    """The calls of chats, in the shape of `schema.CALLS`."""
    turn = turns(facts).select("source", "turn_no", turn_id="entity_id")
    rows = facts.detail(CALLS).drop("turn_no").with_columns(thread_id="session_id")
    return tool_calls.in_order(rows.join(turn, on=["source", "turn_id"], how="left"))

"""One input of Claude Code, from its transcripts to canonical frames."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, unevaluated
from stateanalytics.io.as_of import newest_in_company
from stateanalytics.io.files import legible, read_json_object
from stateanalytics.io.findings import all_findings, counted
from stateanalytics.io.parts import Parts
from stateanalytics.systems import threads
from stateanalytics.systems.claude_code import NAME, costs, folding, frames
from stateanalytics.systems.claude_code.costs import LARGEST
from stateanalytics.systems.claude_code.lines import COST_RECORD, FIELDS, typed
from stateanalytics.systems.claude_code.places import HISTORY, opens, settings_of, transcripts_of
from stateanalytics.systems.folding import (
    Folding,
    LastRead,
    read_transcripts,
    rewound_transcripts,
    sources_with_records,
)
from stateanalytics.systems.situations import situations_from_csv
from stateanalytics.systems.threads import THREAD
from stateanalytics.systems.tool_calls import calls_from
from stateanalytics.systems.transcripts import (
    Transcripts,
    below_zero,
    columns_of,
    findings_on,
    ids_in,
    name_of,
    newer_than,
    strange,
    text_of,
    texts_in,
)

NEWEST_VERSION = (2, 1, 332)
"""The newest version that the reader was checked against."""
_RETENTION_DAYS = 30
COLUMNS = (
    *("source", "file", "line_no", "at", "type", "subtype", "what", "uuid", "parent_uuid"),
    *("program_version", "n_text_chars", *frames.USAGE),
    *("cost_usd", "model_usage", "is_cost_approximate", "result_agent_id"),
)
"""The columns of records that findings need."""
_TIMED = ("user", "assistant", "system", "progress", "attachment")
"""Types of records that have a time in every version; names and settings have none."""


def findings_of(
    root: Path, transcripts: Transcripts, details: Mapping[str, pl.DataFrame], source: str
) -> pl.DataFrame:
    """One finding per kind of oddity, with the number of rows.

    Parameters
    ----------
    root : pathlib.Path
        The input, for the files next to the transcripts.
    transcripts : transcripts.Transcripts
    details : mapping of str to polars.DataFrame
        The frames of `reading.assembled`.
    source : str
        How the user named the input.
    """
    lines, sessions = details[frames.LINES.name], details[frames.SESSIONS.name]
    messages, packed = details[frames.MESSAGES.name], unevaluated(details)
    blocks = columns_of(packed[frames.BLOCKS.name], ("type", "tool_id"))
    tools = columns_of(packed[frames.TOOLS.name], ("tool_id",))
    cost_records = lines.filter(type=COST_RECORD)
    # Older versions recorded no costs at all.
    versions = sessions.filter(pl.col("cost_usd").is_not_null())["program_version"]
    with_costs = sessions.filter(pl.col("program_version").is_in(versions.implode()))
    kind, at = pl.col("type"), pl.col("at")
    newer = newer_than(lines["program_version"], NEWEST_VERSION)
    calls = pl.concat([tools["tool_id"], blocks.filter(kind == "tool_use")["tool_id"]])
    parent = pl.col("parent_thread_id")
    # A fork has copies of the answers of its parent's subagents.
    agents = sessions["thread_id"].str.extract("/(.*)$")
    odd = {
        "record.unknown_type": strange(__package__, lines, "type", "type"),
        "record.unknown_subtype": strange(
            __package__, lines.filter(kind == "system"), "subtype", "subtype"
        ),
        "record.unknown_block": strange(__package__, blocks, "type", "block"),
        "version.unknown": lines.filter(pl.col("program_version").is_in(newer)),
        "session.parent_missing": sessions.filter(~parent.is_in(sessions["thread_id"].implode())),
        "tool.result_without_call": blocks.filter(
            kind.str.ends_with("result"), ~pl.col("tool_id").is_in(calls.implode())
        ),
        "record.no_content": lines.filter(
            pl.col("what").is_in(["prompt", "assistant"]), pl.col("n_text_chars").is_null()
        ),
        "time.unreadable": lines.filter(at.is_null(), kind.is_in(_TIMED)),
        "usage.below_zero": below_zero(lines, frames.USAGE),
        "usage.no_transcript": lines.filter(
            kind.is_in(["user", "progress"]), ~pl.col("result_agent_id").is_in(agents.implode())
        ).unique("result_agent_id", maintain_order=True),
        "usage.placeholder": messages.filter(pl.col("stop_reason").is_null()),
        "cost.unreadable": cost_records.filter(
            ~pl.col("cost_usd").is_between(0, LARGEST).fill_null(value=False)
            | pl.col("model_usage").is_null()
        ),
        "cost.approximate": cost_records.filter("is_cost_approximate"),
        "cost.inherited": sessions.filter(pl.col("inherited_cost_usd") > 0),
        "cost.not_recorded": messages.join(with_costs, on=THREAD, how="semi").filter(
            ~pl.col("is_cost_recorded")
        ),
        "cost.side_requests": messages.filter("is_side_request").with_columns(
            n_tokens=pl.sum_horizontal(frames.USAGE)
        ),
        "file.empty": transcripts.empty_files(lines),
        "record.own_parent": lines.filter(pl.col("uuid") == pl.col("parent_uuid")),
        "time.out_of_order": lines.filter(at < at.cum_max().over("file", order_by="line_no")),
        "session.in_two_files": sessions.filter(pl.col("n_files") > 1),
        "session.transcript_gone": ids_in(root / HISTORY, "sessionId").filter(
            ~pl.col("id").is_in(sessions["session_id"].implode())
        ),
        "session.copied_history": sessions.filter(pl.col("n_copied") > 0),
        "record.repeated": sessions.filter(pl.col("n_repeated") > 0),
    }
    return all_findings(
        findings_on(__package__, source, NAME, odd),
        _repeated_usage(source, sessions, messages),
        _retention(source, lines, root),
    )


def _repeated_usage(source: str, sessions: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """How many lines repeat an answer, and how many tokens their sum would be."""
    answers = messages.filter(~pl.col("is_side_request"))
    n_tokens, n_all_lines = answers["n_output_tokens"].sum(), sessions["naive_output_tokens"].sum()
    # Where the parent counts the last answer of a subagent, no line has that count, so the sum
    # over lines may be the smaller one.
    more = f": the sum over all of them is {n_all_lines:,} output tokens instead of {n_tokens:,}"
    message = "lines that repeat an answer" + (more if n_all_lines > n_tokens else "")
    n_repeats = int(answers["n_lines"].sum()) - answers.height
    return counted(source, NAME, "message.repeated", "info", message, n_rows=n_repeats)


def _retention(source: str, lines: pl.DataFrame, root: Path) -> pl.DataFrame:
    """A finding if the oldest transcript is about as old as Claude Code keeps transcripts."""
    days = settings_of(root).get("cleanupPeriodDays")
    kept = days if isinstance(days, int) and 0 < days < 10**6 else _RETENTION_DAYS
    first, last = lines["at"].min(), newest_in_company([[lines["at"]]], [lines["at"]])
    is_edge = first is not None and last - first >= timedelta(days=kept - 1)  # type: ignore[operator]
    message = f"older transcripts may have been deleted: they are kept for {kept} days"
    return counted(source, NAME, "time.retention_edge", "info", message, n_rows=int(is_edge))


_SITUATIONS = situations_from_csv(__package__)
_STATE_COLUMNS = (
    *("source", "thread_id", "entity_id", "is_last", "situation", "cause", "error_message"),
    *("stop_reason", "open_tool", "last_sign_at", "last_activity_at", "retry_at", "n_open_tools"),
    *("patience_s", "permission_mode", "is_recovered", "has_output"),
)
"""Columns of a turn that states need; others would replace sums over the session."""
_EXIT_CODE = r"(?i)^(?:Error: )?exit code:? ([1-9]\d{0,8})"
_ASKS_NOBODY = ("bypassPermissions", "dontAsk")
_BASH_SETTING = "BASH_DEFAULT_TIMEOUT_MS"
_INPUT_TOKENS = frames.USAGE[:3]
_FORMATTED = r'"formatted"\s*:\s*"([^"\\]+)"'
"""The text of the error of a retry, whose message is an object since the summer of 2026."""
_ROLES = {"prompt": "user", "interrupt": "user", "tool_result": "tool", "assistant": "assistant"}


def read(
    path: Path,
    *,
    label: str | None = None,
    bodies: bool = False,
    on_error: str = "skip",
    before: LastRead | None = None,
) -> Parts:
    """The facts of one root, folder or transcript.

    Parameters
    ----------
    path : pathlib.Path
        The result of `places.find`.
    label : str, optional
        How the user named it.
    bodies : bool
        Without effect: texts of people and models are never loaded.
    on_error, before
        As for `folding.read_transcripts`.
    """
    source = str(path) if label is None else label
    paths = transcripts_of(path)
    limit_s = _bash_limit_s(path)
    return read_transcripts(
        path,
        paths,
        source,
        FOLDING,
        system=NAME,
        fields=FIELDS,
        typed=partial(typed, limit_s=limit_s),
        findings=findings_of,
        columns_of_findings=COLUMNS,
        opened=opens(path, paths),
        on_error=on_error,
        before=before,
        settings=[limit_s],
        notes=_callers(path, paths, source),
    )


def _bash_limit_s(root: Path) -> float | None:
    """The time limit of commands that do not set one, if the settings have it."""
    environment = settings_of(root).get("env")
    value = environment.get(_BASH_SETTING) if isinstance(environment, dict) else None
    limit_ms: float | None = pl.Series([str(value)]).cast(pl.Float64, strict=False).item()
    return None if limit_ms is None else limit_ms / 1000


def _callers(root: Path, paths: list[Path], source: str) -> pl.DataFrame:
    """The call that started each subagent, from the note next to its transcript."""
    rows = []
    for path in (path for path in paths if path.name.startswith("agent-")):
        note = read_json_object(path.with_suffix(".meta.json")).value or {}
        tool_id = note.get("toolUseId")
        if isinstance(tool_id, str):
            agent = legible(path.stem.removeprefix("agent-"))
            rows.append((name_of(path, root), agent, legible(tool_id)))
    columns = ("file", "result_agent_id", "result_tool_id")
    return frames.LINES.conform(
        pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row").with_columns(
            source=pl.lit(source), line_no=pl.lit(0), type=pl.lit("meta"), what=pl.lit("other")
        )
    )


def assembled(lines: pl.DataFrame, blocks: pl.DataFrame) -> Parts:
    """Fold records of any inputs, and put them into canonical frames.

    Parameters
    ----------
    lines, blocks : polars.DataFrame
        `frames.LINES` and `frames.BLOCKS`.
    """
    rows = folding.with_threads(lines)
    answers = folding.messages_of(rows)
    tools = folding.tools_of(rows, blocks)
    turns = folding.turns_of(rows, answers, tools)
    steps = costs.cost_steps(rows)
    messages = costs.with_side_requests(answers, steps)
    sessions = folding.sessions_of(rows, turns, tools, messages, costs.costs_of_sessions(steps))
    details = {
        frames.SESSIONS.name: sessions,
        frames.TURNS.name: turns,
        frames.MESSAGES.name: messages,
        frames.COSTS.name: costs.costs_by_model(steps),
        frames.TOOLS.name: tools,
        frames.LINES.name: lines,
        frames.BLOCKS.name: frames.BLOCKS.conform(blocks),
    }
    return Parts(
        system=NAME,
        format="transcripts",
        entities=_entities(sessions, turns, tools),
        transitions=threads.transitions_of(turns, NAME),
        events=_events(rows),
        findings=schema.FINDINGS.empty(),
        details=details,
    )


def _entities(sessions: pl.DataFrame, turns: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    is_agent = pl.when(pl.col("agent_id").is_not_null())
    named = sessions.with_columns(
        kind=is_agent.then(pl.lit("subagent")).otherwise(pl.lit("session")),
        agent="agent_id",
        provider=pl.lit("anthropic"),
    )
    situation = pl.col("situation")
    waits = pl.when(situation == "retrying")
    states = turns.select(_STATE_COLUMNS).with_columns(
        due_at=waits.then(pl.coalesce("retry_at", "last_activity_at")),
        retry_code=waits.then(pl.format("run.health.{}", pl.col("cause").fill_null("unknown"))),
        n_questions=pl.when(situation.is_in(folding.OPEN)).then(
            (situation == "question").cast(pl.Int64)
        ),
    )
    asks = ~pl.col("permission_mode").fill_null("").is_in(list(_ASKS_NOBODY))
    is_good = situation.is_in(["good", "good_inferred", "waiting"])
    return threads.entities_of(
        named,
        turns,
        tools,
        states=states.drop("last_activity_at"),
        calls=_calls(tools, turns),
        own={
            # Cached or not; `claude_messages` has the parts.
            "n_input_tokens": pl.when(pl.col("entity_type") != "tool_call").then(
                pl.sum_horizontal(_INPUT_TOKENS)
            ),
            "n_cache_write_tokens": pl.col("n_cache_creation_tokens"),
        },
        system=NAME,
        unbegun="no_prompt",
        open_=folding.OPEN,
        guessed=("aborted", "superseded"),
        situations=_SITUATIONS,
        also=pl.concat_list(
            pl.when((situation == "open_tool") & asks).then(pl.lit("may_ask")),
            pl.when(is_good & pl.col("is_recovered")).then(pl.lit("recovered")),
        ),
    )


def _calls(tools: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    cause, turn = pl.col("cause"), pl.col("turn_situation")
    is_stopped = turn.is_in(["interrupted", "shut_down", "ended_by_model", "continued"])
    cut_off = pl.col("is_error").is_null() & is_stopped
    rules = {
        "call_timed_out": cause == "timeout",
        "call_succeeded": ~pl.col("is_error"),
        "call_cancelled": cut_off | cause.is_in(["permission_rejected", "interrupted"]),
        "call_failed": pl.any_horizontal(
            "is_error", "is_replaced", ~turn.is_in(list(folding.OPEN))
        ),
        "call_running": pl.lit(value=True),
    }
    return threads.call_situations(tools, turns, rules, cut_off)


def _events(rows: pl.DataFrame) -> pl.DataFrame:
    """Every record with a time, as an event of its session or subagent."""
    what = pl.col("what")
    kind = (
        pl.when(what.is_in(list(_ROLES)))
        .then(pl.lit("message"))
        .otherwise(pl.when(what == "other").then(pl.coalesce("type", "what")).otherwise(what))
    )
    columns = ("at", "seq", "type", "what", "error_message", "is_copied", "is_repeated")
    return schema.EVENTS.conform(
        folding.own(rows.select(*threads.THREAD, *columns).drop_nulls("at")).with_columns(
            system=pl.lit(NAME),
            entity_type=pl.lit("session"),
            entity_id="thread_id",
            seq=pl.col("seq").cast(pl.Int64),
            kind=kind,
            is_activity=what.is_in(list(folding.SIGNS)),
            role=what.replace_strict(_ROLES, default=None, return_dtype=pl.String),
            detail=pl.coalesce(pl.col("error_message").str.extract(_FORMATTED), "error_message"),
        )
    )


_IDS = ("uuid", "message_id", "session_id", "forked_from", "continued_in")


def _nodes_of(lines: pl.DataFrame) -> pl.DataFrame:
    records = lines.select("source", *_IDS, node="file")
    files = records.select("source", "node").unique(maintain_order=True)
    # A subagent belongs to the session that its folder is named after; if there is none, its
    # file is a thread of its own.
    owners = [
        files.with_columns(owner_id=pl.col("node").str.extract(name))
        for name in (r"([^/]+)/subagents/[^/]+$", r"([^/]+?)(?:\.jsonl)?$")
    ]
    return pl.concat([*owners, records], how="diagonal")


FOLDING = Folding(
    records=(frames.LINES, frames.BLOCKS),
    sessions=frames.SESSIONS,
    family_columns=("source", "file", *_IDS),
    node=pl.col("file"),
    nodes_of=_nodes_of,
    ids=(("uuid",), ("message_id",), ("owner_id", "session_id", "forked_from", "continued_in")),
    assemble=assembled,
    late_at="exited_at",
)
rebuilt_sources = partial(sources_with_records, folding=FOLDING)
rewind = partial(rewound_transcripts, folding=FOLDING)


def used_tokens(facts: Facts) -> pl.DataFrame:
    """The tokens of each answer, and of the requests that only the recorded costs show.

    A model in fast mode has another price, so it counts as a model of its own.
    """
    read, model = pl.sum_horizontal(_INPUT_TOKENS), pl.col("model")
    return facts.detail(frames.MESSAGES).with_columns(
        entity_id="thread_id",
        model=pl.when(pl.col("speed") == "fast").then(model + "-fast").otherwise(model),
        n_input_tokens=read,
        longest_prompt_tokens=pl.when(~pl.col("is_side_request")).then(read),
        n_cache_write_tokens="n_cache_creation_tokens",
        n_cache_write_1h_tokens="n_cache_1h_tokens",
    )


def calls(facts: Facts) -> pl.DataFrame:
    """The tool calls of Claude Code, in the shape of `schema.CALLS`."""
    exit_code = pl.col("error_message").str.extract(_EXIT_CODE).cast(pl.Int64)
    tools = facts.detail(frames.TOOLS).with_columns(
        # The thread of a subagent begins with the id of its session.
        session_id=pl.col("thread_id").str.extract(r"^([^/]*)"),
        call_id="tool_id",
        tool="name",
        message="error_message",
        exit_code=exit_code,
    )
    return calls_from(tools, NAME)


def texts(facts: Facts, entity: Mapping[str, Any]) -> pl.DataFrame:
    """The messages of a session, from its transcript."""
    return texts_in(facts, entity, frames.SESSIONS, _said)


def _said(record: Mapping[str, Any]) -> tuple[object, object]:
    """Role and text of a record."""
    message = record.get("message")
    is_shown = record.get("type") in ("user", "assistant") and not record.get("isMeta")
    if not is_shown or not isinstance(message, dict):
        return None, None
    return record["type"], text_of(message.get("content"))


def turns(facts: Facts) -> pl.DataFrame:
    """The turns of Claude Code, in the shape of `schema.TURNS`."""
    situation = pl.col("situation")
    return schema.TURNS.conform(
        facts.detail(frames.TURNS).with_columns(
            system=pl.lit(NAME),
            entity_type=pl.lit("turn"),
            session_id=pl.col("thread_id").str.extract(r"^([^/]*)"),
            is_empty=situation.is_in(["empty", "good", "good_inferred", "ended"])
            & pl.col("n_final_chars").eq_missing(0),
            is_cut=situation.is_in(["truncated", "overflowed"]),
            is_interrupted=situation == "interrupted",
        )
    )

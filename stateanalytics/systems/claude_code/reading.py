"""One input of Claude Code, from its transcripts to canonical frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.io.files import legible, read_json_object
from stateanalytics.io.json_lines import Parser
from stateanalytics.io.json_losses import losses, refuse
from stateanalytics.io.parts import Parts
from stateanalytics.systems.claude_code import frames
from stateanalytics.systems.claude_code.findings import findings_of, settings_of
from stateanalytics.systems.claude_code.folding import (
    BASH_SETTING,
    SIGNS,
    THREAD,
    messages_of,
    own,
    sessions_of,
    tools_of,
    with_threads,
)
from stateanalytics.systems.claude_code.lines import read_transcripts
from stateanalytics.systems.claude_code.places import name_of, opens, transcripts_of
from stateanalytics.systems.claude_code.states import SYSTEM, add_recorded
from stateanalytics.systems.claude_code.turns import OPEN, turns_of
from stateanalytics.systems.history import Past
from stateanalytics.systems.transcripts import rewound_lines, size_of

_CALLS = {True: "error", False: "done"}
_READ = frames.USAGE[:3]


def read(
    path: Path,
    *,
    label: str | None = None,
    bodies: bool = False,
    on_error: str = "skip",
    before: object = None,
) -> Parts:
    """The facts of one root, folder or transcript.

    Parameters
    ----------
    path : pathlib.Path
        What `places.find` gave.
    label : str, optional
        How the user named it.
    bodies : bool
        Without effect: what people and models said is never loaded.
    on_error : {"skip", "raise"}
        What a record that cannot be read does.
    before : optional
        Without effect: files are read anew each time.

    Raises
    ------
    DamagedStoreError
        If a record cannot be read and ``on_error`` is ``raise``.
    """
    source = str(path) if label is None else label
    paths = transcripts_of(path)
    with Parser() as parser:
        told = read_transcripts(path, paths, source, parser)
    told = replace(
        told,
        lines=pl.concat([told.lines, _starts(path, paths, source)]),
        blocks=told.blocks.with_columns(pl.coalesce("timeout_s", _command_limit_s(path))),
    )
    lost = losses(told.bad, told.lost, source, SYSTEM)
    refuse(lost, source, on_error)
    part = assembled(told.lines, told.blocks)
    found = findings_of(path, told, part.details, source)
    size_bytes = size_of(opens(path))
    return replace(part, findings=pl.concat([lost, found]), label=source, size_bytes=size_bytes)


def _command_limit_s(root: Path) -> pl.Expr:
    """The time limit of commands that ask for none, where the settings say one."""
    environment = settings_of(root).get("env")
    said = environment.get(BASH_SETTING) if isinstance(environment, dict) else None
    return pl.lit(str(said)).cast(pl.Float64, strict=False) / 1000


def _starts(root: Path, paths: list[Path], source: str) -> pl.DataFrame:
    """Which call started each subagent, as the file beside its transcript says."""
    rows = []
    for path in (path for path in paths if path.name.startswith("agent-")):
        notes = read_json_object(path.with_suffix(".meta.json")).value or {}
        tool_id = notes.get("toolUseId")
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
    rows = with_threads(lines)
    messages = messages_of(rows)
    tools = tools_of(rows, blocks)
    turns = turns_of(rows, messages, tools)
    sessions = sessions_of(rows, turns, tools)
    details = {
        frames.SESSIONS.name: sessions,
        frames.TURNS.name: turns,
        frames.MESSAGES.name: messages,
        frames.TOOLS.name: tools,
        frames.LINES.name: lines,
        frames.BLOCKS.name: frames.BLOCKS.conform(blocks),
    }
    return Parts(
        system=SYSTEM,
        format="transcripts",
        entities=_entities(sessions, turns, tools),
        transitions=_transitions(turns),
        events=_events(rows),
        findings=schema.FINDINGS.empty(),
        details=details,
    )


def _entities(sessions: pl.DataFrame, turns: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    is_over = ~pl.col("situation").is_in(list(OPEN))
    is_guess = pl.col("situation").is_in(["aborted", "superseded"])
    is_agent = pl.when(pl.col("agent_id").is_not_null())
    threads = sessions.with_columns(
        kind=is_agent.then(pl.lit("subagent")).otherwise(pl.lit("session")),
        agent="agent_id",
        project="directory",
        session_id="thread_id",
    )
    places = threads.select(*THREAD, "session_id", "kind", "agent", "project")
    shown = ("situation", "ended_at", "error_message", "model")
    last = turns.filter("is_last").select(*THREAD, *shown)
    children = sessions.group_by("source", thread_id="parent_thread_id").agg(n_children=pl.len())
    writer = pl.when(is_guess).then(pl.lit("observer")).when(is_over).then(pl.lit("executor"))
    of_sessions = (
        threads.join(last, on=THREAD, how="left", maintain_order="left")
        .join(children, on=THREAD, how="left", maintain_order="left")
        .with_columns(
            pl.col("situation").fill_null("no_prompt"),
            entity_type=pl.lit("session"),
            entity_id="thread_id",
            parent_type=pl.when(pl.col("parent_thread_id").is_not_null()).then(pl.lit("session")),
            parent_id="parent_thread_id",
            name="title",
            started_at="first_at",
            # Nobody writes that a session is over: what is told is the end of its last turn.
            is_end_approximate=is_over & pl.col("ended_at").is_not_null(),
        )
    )
    of_turns = turns.join(places, on=THREAD, how="left", maintain_order="left").with_columns(
        entity_type=pl.lit("turn"),
        parent_type=pl.lit("session"),
        parent_id="thread_id",
        end_written_by=writer,
        is_end_approximate=is_guess,
    )
    limited, ended = (pl.col(name).is_not_null() for name in ("timeout_s", "ended_at"))
    of_tools = tools.join(places, on=THREAD, how="left", maintain_order="left").with_columns(
        entity_type=pl.lit("tool_call"),
        parent_type=pl.lit("turn"),
        parent_id=pl.concat_str("thread_id", pl.lit(":turn:"), "turn_no"),
        kind="name",
        last_activity_at=pl.coalesce("ended_at", "started_at"),
        situation=pl.col("is_error").replace_strict(_CALLS, default="open"),
        timeout_from=pl.when(limited).then(pl.lit("metadata")),
        end_written_by=pl.when(ended).then(pl.lit("executor")),
    )
    is_call = pl.col("entity_type") == "tool_call"
    stacked = pl.concat([of_sessions, of_turns, of_tools], how="diagonal_relaxed").with_columns(
        system=pl.lit(SYSTEM),
        raw_status="situation",
        created_at="started_at",
        last_message_at=pl.when(~is_call).then("last_activity_at"),
        n_messages=pl.col("n_prompts") + pl.col("n_answers"),
        n_turns="n_answers",
        # However it was read; `claude_messages` has the parts.
        n_input_tokens=pl.when(~is_call).then(pl.sum_horizontal(_READ)),
        n_cache_write_tokens="n_cache_creation_tokens",
        reason_message="error_message",
        provider=pl.when(~is_call).then(pl.lit("anthropic")),
    )
    return add_recorded(schema.ENTITIES.conform(stacked), turns, sessions, tools)


def _transitions(turns: pl.DataFrame) -> pl.DataFrame:
    """The start of each turn, and how it ended; the first is its prompt."""
    begun = turns.with_columns(
        at="started_at", status=pl.lit("started"), seq=2 * pl.col("turn_no"), writer=None
    )
    ended = turns.with_columns(
        at="ended_at",
        status="situation",
        previous_status=pl.lit("started"),
        seq=2 * pl.col("turn_no") + 1,
        writer=pl.lit("executor"),
    )
    rows = pl.concat([begun, ended], how="diagonal_relaxed").drop_nulls("at")
    named = rows.with_columns(system=pl.lit(SYSTEM), entity_type=pl.lit("turn"))
    return schema.TRANSITIONS.conform(named.sort("source", "entity_id", "seq"))


_ROLES = {
    "prompt": "user",
    "interrupt": "user",
    "tool_result": "tool",
    "assistant": "assistant",
}


def _events(rows: pl.DataFrame) -> pl.DataFrame:
    """Every record with a moment, as an event of its session or subagent."""
    what = pl.col("what")
    kind = (
        pl.when(what.is_in(list(_ROLES)))
        .then(pl.lit("message"))
        .otherwise(pl.when(what == "other").then(pl.coalesce("type", "what")).otherwise(what))
    )
    return schema.EVENTS.conform(
        own(rows)
        .filter(pl.col("at").is_not_null())
        .with_columns(
            system=pl.lit(SYSTEM),
            entity_type=pl.lit("session"),
            entity_id="thread_id",
            seq=pl.col("seq").cast(pl.Int64),
            kind=kind,
            is_activity=what.is_in(list(SIGNS)),
            role=what.replace_strict(_ROLES, default=None, return_dtype=pl.String),
            detail="error_message",
        )
    )


def rewind(past: Past, facts: Facts) -> Past:
    """The same instant, with this system's rows as a copy that was cut off there tells them.

    Parameters
    ----------
    past : Past
        As the shared history tells it.
    facts : Facts
        Of now, with the frames of `frames`.
    """
    blocks, place = facts.detail(frames.BLOCKS), list(frames.LINES.key)

    def assemble(then: pl.DataFrame) -> Parts:
        return assembled(then, blocks.join(then, on=place, how="semi", maintain_order="left"))

    return rewound_lines(past, facts.detail(frames.LINES), assemble)


def used_tokens(facts: Facts) -> pl.DataFrame:
    """What each answer used."""
    return facts.detail(frames.MESSAGES).with_columns(
        entity_id="thread_id",
        n_input_tokens=pl.sum_horizontal(_READ),
        n_cache_write_tokens="n_cache_creation_tokens",
        n_cache_write_1h_tokens="n_cache_1h_tokens",
    )

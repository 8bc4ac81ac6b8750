"""One input of Claude Code, from its transcripts to canonical frames."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.errors import DamagedStoreError
from stateanalytics.io.files import legible
from stateanalytics.io.json_lines import Parser
from stateanalytics.io.json_losses import losses
from stateanalytics.io.parts import Parts
from stateanalytics.systems.claude_code import frames
from stateanalytics.systems.claude_code.findings import document, findings_of
from stateanalytics.systems.claude_code.folding import (
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
from stateanalytics.systems.history import LOST, Past, with_rows_of

_FORMAT = "transcripts"


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
    told = replace(told, lines=pl.concat([told.lines, _starts(path, paths, source)]))
    lost = losses(told.bad, told.lost, source, SYSTEM)
    damage = lost.filter(pl.col("severity") != "info")
    if on_error == "raise" and damage.height:
        first = damage.row(0, named=True)
        raise DamagedStoreError(
            f"{source!r} was to be read whole, but it holds {first['message']} "
            f"({first['n_rows']} times, first: {first['example']}).",
            'read the rest with on_error="skip"',
        )
    part = assembled(told.lines, told.blocks)
    found = findings_of(path, told, part.details, source)
    sizes = [_size_of(file) for file in opens(path)]
    return replace(part, findings=pl.concat([lost, found]), label=source, size_bytes=sum(sizes))


def _size_of(file: str | Path) -> int:
    with contextlib.suppress(OSError):
        return Path(file).stat().st_size
    return 0


def _starts(root: Path, paths: list[Path], source: str) -> pl.DataFrame:
    """Which call started each subagent, as the file beside its transcript says."""
    rows = []
    for path in paths:
        tool_id = document(path.with_suffix(".meta.json")).get("toolUseId")
        if path.name.startswith("agent-") and isinstance(tool_id, str):
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
    sessions = sessions_of(rows, turns, messages, tools)
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
        format=_FORMAT,
        entities=_entities(sessions, turns, tools),
        transitions=_transitions(turns),
        events=_events(rows),
        findings=schema.FINDINGS.empty(),
        details=details,
    )


def _entities(sessions: pl.DataFrame, turns: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    is_agent = pl.col("agent_id").is_not_null()
    of_thread = sessions.select(
        *THREAD,
        project="directory",
        kind=pl.when(is_agent).then(pl.lit("subagent")).otherwise(pl.lit("session")),
        agent="agent_id",
    )
    all_of_it = pl.sum_horizontal(
        "n_input_tokens", "n_cache_creation_tokens", "n_cache_read_tokens"
    )
    is_over = ~pl.col("situation").is_in(list(OPEN))
    is_guess = pl.col("situation").is_in(["aborted", "superseded"])
    of_turns = turns.join(of_thread, on=THREAD, how="left", maintain_order="left").with_columns(
        entity_type=pl.lit("turn"),
        parent_type=pl.lit("session"),
        parent_id="thread_id",
        session_id="thread_id",
        raw_status="situation",
        created_at="started_at",
        last_message_at="last_activity_at",
        end_written_by=pl.when(is_over & ~is_guess)
        .then(pl.lit("executor"))
        .when(is_over)
        .then(pl.lit("observer")),
        is_end_approximate=is_guess,
        n_messages=pl.col("n_prompts") + pl.col("n_answers"),
        n_turns="n_answers",
        n_input_tokens=all_of_it,
        reason_message="error_message",
        provider=pl.lit("anthropic"),
    )
    last = turns.filter("is_last").select(
        *THREAD,
        "ended_at",
        raw_status="situation",
        reason_message="error_message",
        model="model",
        is_over=is_over,
    )
    children = sessions.group_by("source", thread_id="parent_thread_id").agg(
        n_children=pl.len().cast(pl.Int64)
    )
    of_sessions = (
        sessions.join(last, on=THREAD, how="left", maintain_order="left")
        .join(children, on=THREAD, how="left", maintain_order="left")
        .with_columns(
            entity_type=pl.lit("session"),
            entity_id="thread_id",
            session_id="thread_id",
            parent_type=pl.when(pl.col("parent_thread_id").is_not_null()).then(pl.lit("session")),
            parent_id="parent_thread_id",
            kind=pl.when(is_agent).then(pl.lit("subagent")).otherwise(pl.lit("session")),
            name="title",
            agent="agent_id",
            project="directory",
            raw_status=pl.col("raw_status").fill_null("no_prompt"),
            created_at="first_at",
            started_at="first_at",
            last_message_at="last_activity_at",
            # Nobody writes that a session is over: what is told is the end of its last turn.
            is_end_approximate=pl.col("is_over").fill_null(value=False),
            n_messages=pl.col("n_prompts") + pl.col("n_answers"),
            n_turns="n_answers",
            n_input_tokens=all_of_it,
            provider=pl.lit("anthropic"),
        )
    )
    of_tools = tools.join(of_thread, on=THREAD, how="left", maintain_order="left").with_columns(
        entity_type=pl.lit("tool_call"),
        parent_type=pl.lit("turn"),
        parent_id=pl.concat_str("thread_id", pl.lit(":turn:"), "turn_no"),
        session_id="thread_id",
        kind="name",
        created_at="started_at",
        last_activity_at=pl.coalesce("ended_at", "started_at"),
        raw_status=pl.when(pl.col("is_error"))
        .then(pl.lit("error"))
        .when(pl.col("is_error").is_null())
        .then(pl.lit("open"))
        .otherwise(pl.lit("done")),
        timeout_from=pl.when(pl.col("timeout_s").is_not_null()).then(pl.lit("metadata")),
        end_written_by=pl.when(pl.col("ended_at").is_not_null()).then(pl.lit("executor")),
        reason_message="error_message",
    )
    stacked = pl.concat(
        [
            schema.ENTITIES.conform(part.with_columns(system=pl.lit(SYSTEM)))
            for part in (of_sessions, of_turns, of_tools)
        ]
    )
    return add_recorded(stacked, turns, sessions, tools)


def _transitions(turns: pl.DataFrame) -> pl.DataFrame:
    """The start of each turn, and how it ended; the first is its prompt."""
    entity = turns.select("source", "entity_id", "started_at", "ended_at", "situation", "turn_no")
    begun = entity.select(
        "source", "entity_id", "turn_no", at="started_at", status=pl.lit("started"), n=pl.lit(0)
    )
    ended = entity.filter(pl.col("ended_at").is_not_null()).select(
        *("source", "entity_id", "turn_no"),
        at="ended_at",
        status="situation",
        n=pl.lit(1),
        previous_status=pl.lit("started"),
    )
    rows = pl.concat([begun, ended], how="diagonal").filter(pl.col("at").is_not_null())
    return schema.TRANSITIONS.conform(
        rows.with_columns(
            system=pl.lit(SYSTEM),
            entity_type=pl.lit("turn"),
            seq=2 * pl.col("turn_no") + pl.col("n"),
            writer=pl.when(pl.col("n") == 1).then(pl.lit("executor")),
        ).sort("source", "entity_id", "seq")
    )


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
    lines, blocks = facts.detail(frames.LINES), facts.detail(frames.BLOCKS)
    labels = lines["source"].unique().sort()
    if labels.is_empty():
        return past
    # A record without a moment came no later than the next one of its file that has one.
    by = pl.coalesce(
        pl.col("at"), pl.col("at").backward_fill().over("source", "file", order_by="line_no")
    )
    then = lines.filter((by <= past.at).fill_null(value=True))
    place = list(frames.LINES.key)
    part = assembled(then, blocks.join(then, on=place, how="semi", maintain_order="left"))
    known = {word: pl.lit(word == "present") for word in LOST}
    lost = part.entities.with_columns(**known).select(LOST)
    return with_rows_of(past, part, labels, lost)

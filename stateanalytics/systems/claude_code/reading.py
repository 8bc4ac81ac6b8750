"""One input of Claude Code, from its transcripts to canonical frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, Frames, MadeFrame, unmade
from stateanalytics.io.files import legible, read_json_object
from stateanalytics.io.parts import Parts
from stateanalytics.systems.claude_code import frames
from stateanalytics.systems.claude_code.costs import (
    cost_steps,
    costs_by_model,
    costs_of_sessions,
    with_side_requests,
)
from stateanalytics.systems.claude_code.findings import READ, findings_of, settings_of
from stateanalytics.systems.claude_code.folding import (
    BASH_SETTING,
    SIGNS,
    messages_of,
    own,
    sessions_of,
    tools_of,
    with_threads,
)
from stateanalytics.systems.claude_code.lines import FIELDS, typed
from stateanalytics.systems.claude_code.places import opens, transcripts_of
from stateanalytics.systems.claude_code.states import SYSTEM, add_recorded
from stateanalytics.systems.claude_code.turns import OPEN, turns_of
from stateanalytics.systems.folding import Before, Folding, inputs_told_anew, rewound_lines
from stateanalytics.systems.history import Past
from stateanalytics.systems.threads import THREAD, entities_of, transitions_of
from stateanalytics.systems.transcripts import name_of, read_records, size_of

_READ = frames.USAGE[:3]


def read(
    path: Path,
    *,
    label: str | None = None,
    bodies: bool = False,
    on_error: str = "skip",
    before: Before | None = None,
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
    before : Before, optional
        What the last read of the same input kept; only files that were written to since are
        read again.

    Raises
    ------
    DamagedStoreError
        If a record cannot be read and ``on_error`` is ``raise``.
    """
    source = str(path) if label is None else label
    paths = transcripts_of(path)
    into = (frames.LINES, frames.BLOCKS)
    limit_s = _command_limit_s(path)
    last = Before.of(before, source, limit_s)
    limited = partial(typed, limit_s=limit_s)
    told = read_records(
        path, paths, source, fields=FIELDS, frames=into, typed=limited, before=last.told
    )
    lost = told.findings(source, SYSTEM, on_error)
    lines, blocks = told.rows
    starts = _starts(path, paths, source)
    lines = lines.with_rows(starts)
    part, folded = FOLDING.part_of(
        (lines, blocks), _with_starts(told.versions, starts), last.folded
    )
    read_of: dict[str, MadeFrame] = {
        frames.LINES.name: partial(lines, READ),
        frames.BLOCKS.name: blocks,
    }
    found = findings_of(path, told, Frames({**unmade(part.details), **read_of}), source)
    size_bytes = size_of(opens(path))
    return replace(
        part,
        findings=pl.concat([lost, found]),
        label=source,
        size_bytes=size_bytes,
        kept=Before((source, limit_s), told, folded),
    )


def _command_limit_s(root: Path) -> float | None:
    """The time limit of commands that ask for none, where the settings say one."""
    environment = settings_of(root).get("env")
    said = environment.get(BASH_SETTING) if isinstance(environment, dict) else None
    limit_ms: float | None = pl.Series([str(said)]).cast(pl.Float64, strict=False).item()
    return None if limit_ms is None else limit_ms / 1000


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


def _with_starts(versions: Mapping[str, object], starts: pl.DataFrame) -> dict[str, object]:
    """Of each file what changes with what the file beside it says, too."""
    said = starts.select("file", "result_tool_id").rows() if versions else ()
    return {**versions, **{file: (versions[file], tool_id) for file, tool_id in said}}


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
    steps = cost_steps(rows)
    messages = with_side_requests(messages, steps)
    sessions = sessions_of(rows, turns, tools, messages, costs_of_sessions(steps))
    details = {
        frames.SESSIONS.name: sessions,
        frames.TURNS.name: turns,
        frames.MESSAGES.name: messages,
        frames.COSTS.name: costs_by_model(steps),
        frames.TOOLS.name: tools,
        frames.LINES.name: lines,
        frames.BLOCKS.name: frames.BLOCKS.conform(blocks),
    }
    return Parts(
        system=SYSTEM,
        format="transcripts",
        entities=_entities(sessions, turns, tools),
        transitions=transitions_of(turns, SYSTEM),
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
    guessed = ("aborted", "superseded")
    stacked = entities_of(
        named, turns, tools, system=SYSTEM, unbegun="no_prompt", open_=OPEN, guessed=guessed
    ).with_columns(
        # However it was read; `claude_messages` has the parts.
        n_input_tokens=pl.when(pl.col("entity_type") != "tool_call").then(pl.sum_horizontal(_READ)),
        n_cache_write_tokens="n_cache_creation_tokens",
    )
    return add_recorded(schema.ENTITIES.conform(stacked), turns, sessions, tools)


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
    told = ("at", "seq", "type", "what", "error_message", "is_copied", "is_repeated")
    return schema.EVENTS.conform(
        own(rows.select(*THREAD, *told).drop_nulls("at")).with_columns(
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


def tells_anew(facts: Facts) -> pl.Series:
    """The inputs of which `rewind` tells every row."""
    return inputs_told_anew(facts, FOLDING)


def rewind(past: Past, facts: Facts) -> Past:
    """The same instant, with this system's rows as a copy that was cut off there tells them.

    Parameters
    ----------
    past : Past
        As the shared history tells it.
    facts : Facts
        Of now, with the frames of `frames`.
    """
    return rewound_lines(past, facts, FOLDING)


_IDS = ("uuid", "message_id", "session_id", "forked_from")


def _nodes_of(lines: pl.DataFrame) -> pl.DataFrame:
    records = lines.select("source", *_IDS, node="file")
    files = records.select("source", "node").unique(maintain_order=True)
    # Of a folder that is no session's name, its agents' files are threads by their own names.
    owners = [
        files.with_columns(owner_id=pl.col("node").str.extract(word))
        for word in (r"([^/]+)/subagents/[^/]+$", r"([^/]+?)(?:\.jsonl)?$")
    ]
    return pl.concat([*owners, records], how="diagonal")


FOLDING = Folding(
    records=(frames.LINES, frames.BLOCKS),
    sessions=frames.SESSIONS,
    told=("source", "file", *_IDS),
    node=pl.col("file"),
    nodes_of=_nodes_of,
    ids=(("uuid",), ("message_id",), ("owner_id", "session_id", "forked_from")),
    assemble=assembled,
)


def used_tokens(facts: Facts) -> pl.DataFrame:
    """What each answer used, and requests that only recorded costs show."""
    return facts.detail(frames.MESSAGES).with_columns(
        entity_id="thread_id",
        n_input_tokens=pl.sum_horizontal(_READ),
        n_cache_write_tokens="n_cache_creation_tokens",
        n_cache_write_1h_tokens="n_cache_1h_tokens",
    )

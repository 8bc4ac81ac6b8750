"""One input of Codex, from its rollouts to canonical frames."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.io.files import as_text
from stateanalytics.io.parts import Parts
from stateanalytics.systems.codex import NAME, frames
from stateanalytics.systems.codex.findings import COLUMNS, findings_of
from stateanalytics.systems.codex.folding import (
    FILE_ID,
    FILE_STEM,
    OPEN,
    own,
    sessions_of,
    tools_of,
    turns_of,
    with_threads,
)
from stateanalytics.systems.codex.lines import FIELDS, typed
from stateanalytics.systems.codex.places import named_in, opens, rollouts_of
from stateanalytics.systems.folding import (
    Folding,
    LastRead,
    read_transcripts,
    rewound_transcripts,
    sources_with_records,
)
from stateanalytics.systems.situations import situations_from_csv
from stateanalytics.systems.threads import (
    THREAD,
    add_states,
    call_situations,
    entities_of,
    transitions_of,
)
from stateanalytics.systems.tool_calls import calls_from
from stateanalytics.systems.transcripts import text_of, texts_in

_SITUATIONS = situations_from_csv(__package__)
_STATE_COLUMNS = (
    *("source", "thread_id", "entity_id", "is_last", "situation", "is_rolled_back", "may_ask"),
    *("has_output", "cause", "error_message", "stop_reason", "open_tool", "last_sign_at"),
    *("n_open_tools", "patience_s"),
)


def read(
    path: Path,
    *,
    label: str | None = None,
    bodies: bool = False,
    on_error: str = "skip",
    before: LastRead | None = None,
) -> Parts:
    """The facts of one root, folder or rollout.

    Parameters
    ----------
    path : pathlib.Path
        What `places.find` gave.
    label : str, optional
        How the user named it.
    bodies : bool
        Without effect: what people and models said is never loaded.
    on_error, before
        As for `folding.read_transcripts`.
    """
    return read_transcripts(
        path,
        [*rollouts_of(path), *named_in(path)],
        str(path) if label is None else label,
        FOLDING,
        system=NAME,
        fields=FIELDS,
        typed=typed,
        findings=findings_of,
        columns_of_findings=COLUMNS,
        opened=opens(path),
        on_error=on_error,
        before=before,
    )


def assembled(lines: pl.DataFrame) -> Parts:
    """Fold records of any inputs, and put them into canonical frames.

    Parameters
    ----------
    lines : polars.DataFrame
        `frames.LINES`.
    """
    rows = with_threads(lines)
    tools = tools_of(rows)
    turns = turns_of(rows, tools)
    named = lines.lazy().filter(pl.col("what") == "name").sort("source", "file", "line_no")
    names = named.select("source", "own_id", "title").collect()
    sessions = sessions_of(rows, turns, names)
    return Parts(
        system=NAME,
        format="rollouts",
        entities=_entities(sessions, turns, tools),
        transitions=transitions_of(turns, NAME),
        events=_events(rows),
        findings=schema.FINDINGS.empty(),
        details={
            frames.SESSIONS.name: sessions,
            frames.TURNS.name: turns,
            frames.TOOLS.name: tools,
            frames.LINES.name: lines,
        },
    )


def _entities(sessions: pl.DataFrame, turns: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    named = sessions.with_columns(
        kind=pl.when("is_subagent").then(pl.lit("subagent")).otherwise(pl.lit("session")),
        agent=pl.coalesce("agent_role", "agent_name"),
    )
    calls = tools.rename({"duration_s": "stored_duration_s"})
    guessed = ("aborted", "superseded", "good_message")
    stacked = entities_of(
        named, turns, calls, system=NAME, unbegun="no_turn", open_=OPEN, guessed=guessed
    ).with_columns(n_cache_read_tokens="n_cached_tokens")
    return add_states(
        schema.ENTITIES.conform(stacked),
        sessions,
        _with_open_facts(turns.select(_STATE_COLUMNS)),
        _calls(tools, turns),
        system=NAME,
        unbegun="no_turn",
        situations=_SITUATIONS,
        also=pl.concat_list(
            pl.when("may_ask").then(pl.lit("may_ask")),
            pl.when(pl.col("situation") == "empty").then(pl.lit("unrecorded_error")),
        ),
    )


def _with_open_facts(turns: pl.DataFrame) -> pl.DataFrame:
    is_open = pl.when(pl.col("situation").is_in(list(OPEN)))
    return turns.with_columns(
        last_sign_at=is_open.then("last_sign_at"),
        n_running=is_open.then("n_open_tools"),
        patience_s=is_open.then("patience_s"),
    )


def _calls(tools: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    is_open, cause = pl.col("is_error").is_null(), pl.col("cause")
    turn = pl.col("turn_situation")
    cut_off = is_open & turn.is_in(["interrupted", "replaced"])
    rules = {
        "call_cancelled": cut_off | cause.is_in(["permission_rejected", "interrupted"]),
        "call_timed_out": cause == "timeout",
        "call_failed": pl.col("is_error") | (is_open & ~turn.is_in(list(OPEN))),
        "call_running": is_open,
        "call_succeeded": pl.lit(value=True),
    }
    return call_situations(tools, turns, rules, cut_off)


def _events(rows: pl.DataFrame) -> pl.DataFrame:
    """Every record with a moment, as an event of its thread."""
    what = pl.col("what")
    role = (
        pl.when("is_prompt").then(pl.lit("user"))
        .when("is_answer").then(pl.lit("assistant"))
        .when(what == "result").then(pl.lit("tool"))
    )  # fmt: skip
    kind = pl.when(what == "other").then(pl.coalesce("kind", "type", "what")).otherwise(what)
    columns = (
        *("line_no", "at", "type", "kind", "what", "error_message"),
        *("is_prompt", "is_answer", "is_copied"),
    )
    return schema.EVENTS.conform(
        own(rows.select(*THREAD, *columns).drop_nulls("at")).with_columns(
            system=pl.lit(NAME),
            entity_type=pl.lit("session"),
            entity_id="thread_id",
            seq=pl.col("line_no").cast(pl.Int64),
            kind=pl.when(role.is_not_null()).then(pl.lit("message")).otherwise(kind),
            is_activity=pl.lit(value=True),
            role=role,
            detail="error_message",
        )
    )


# The index names many threads: each of its records belongs to the rollout of its thread.
_NODE = pl.coalesce(pl.when(pl.col("what") == "name").then("own_id"), "file")
_IDS = ("own_id", "forked_from", "parent_thread_id", "child_thread_id")


def _nodes_of(lines: pl.DataFrame) -> pl.DataFrame:
    has_id = pl.any_horizontal(pl.col(_IDS).is_not_null())
    records = lines.filter(has_id).select("source", *_IDS, node=_NODE)
    files = lines.select("source", node=_NODE).unique(maintain_order=True).with_columns(
        thread_id=pl.coalesce(pl.col("node").str.extract(name) for name in (FILE_ID, FILE_STEM))
    )  # fmt: skip
    return pl.concat([files, records], how="diagonal")


FOLDING = Folding(
    records=(frames.LINES,),
    sessions=frames.SESSIONS,
    family_columns=("source", "file", "what", *_IDS),
    node=_NODE,
    nodes_of=_nodes_of,
    ids=[("thread_id", *_IDS)],
    assemble=assembled,
)
rebuilt_sources = partial(sources_with_records, folding=FOLDING)
rewind = partial(rewound_transcripts, folding=FOLDING)


def used_tokens(facts: Facts) -> pl.DataFrame:
    """What each turn used; a turn has one model."""
    return facts.detail(frames.TURNS).with_columns(
        entity_id="thread_id", at="started_at", n_cache_read_tokens="n_cached_tokens"
    )


def calls(facts: Facts) -> pl.DataFrame:
    """The tool calls of Codex, in the shape of `schema.CALLS`."""
    tools = facts.detail(frames.TOOLS).with_columns(
        session_id="thread_id", tool="name", message="error_message"
    )
    return calls_from(tools, NAME)


def texts(facts: Facts, entity: Mapping[str, Any]) -> pl.DataFrame:
    """The messages of a thread, from its rollout."""
    return texts_in(facts, entity, frames.SESSIONS, _said)


_ROLES = {"user_message": "user", "agent_message": "assistant"}


def _said(record: Mapping[str, Any]) -> tuple[object, object]:
    """Role and text of a record; context that is put in front of prompts begins with a tag."""
    payload = record.get("payload")
    if not isinstance(payload, dict):
        return None, None
    if record.get("type") == "event_msg":
        return _ROLES.get(str(payload.get("type"))), as_text(payload.get("message"))
    text = text_of(payload.get("content")) if payload.get("type") == "message" else None
    return payload.get("role"), None if text is None or text.startswith("<") else text


def turns(facts: Facts) -> pl.DataFrame:
    """The turns of Codex, in the shape of `schema.TURNS`; its retries are not recorded."""
    situation = pl.col("situation")
    return schema.TURNS.conform(
        facts.detail(frames.TURNS).with_columns(
            system=pl.lit(NAME),
            entity_type=pl.lit("turn"),
            session_id="thread_id",
            is_empty=situation.is_in(["empty", "good_inferred"]) & pl.col("is_unanswered"),
            is_cut=situation == "truncated",
            is_interrupted=situation == "interrupted",
            is_taken_back="is_rolled_back",
        )
    )

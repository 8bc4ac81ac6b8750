"""One input of Codex, from its rollouts to canonical frames."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.errors import SourceError
from stateanalytics.io.cells import Cell
from stateanalytics.io.files import as_text
from stateanalytics.io.parts import Parts
from stateanalytics.io.sqlite import open_store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems import folding, threads
from stateanalytics.systems.codex import NAME, frames
from stateanalytics.systems.codex.folding import (
    ENDS,
    FILE,
    FILE_ID,
    FILE_STEM,
    OPEN,
    is_repeated,
    own,
    sessions_of,
    tools_of,
    turns_of,
    with_threads,
)
from stateanalytics.systems.codex.lines import FIELDS, typed
from stateanalytics.systems.codex.places import HISTORY, index_of, named_in, opens, rollouts_of
from stateanalytics.systems.situations import situations_from_csv
from stateanalytics.systems.tool_calls import calls_from
from stateanalytics.systems.transcripts import (
    Transcripts,
    below_zero,
    findings_on,
    ids_in,
    newer_than,
    strange,
    text_of,
    texts_in,
)

NEWEST_VERSION = (0, 171, 0)
"""The newest version that the reader was checked against."""
COLUMNS = (
    *("source", "file", "line_no", "at", "type", "kind", "item", "what", "ordinal"),
    *("own_id", "call_id", "turn_id", "program_version", "n_text_chars", "sum_total_tokens"),
    *frames.USAGE,
)
"""The columns of records that findings need."""


def findings_of(
    root: Path, transcripts: Transcripts, details: Mapping[str, pl.DataFrame], source: str
) -> pl.DataFrame:
    """One finding per kind of oddity, with the number of rows.

    Parameters
    ----------
    root : pathlib.Path
        The input, for the files next to the rollouts.
    transcripts : transcripts.Transcripts
    details : mapping of str to polars.DataFrame
        The frames of `reading.assembled`.
    source : str
        How the user named the input.
    """
    sessions, turns = (details[frame.name] for frame in (frames.SESSIONS, frames.TURNS))
    records = details[frames.LINES.name]
    names = [file.name for file in named_in(root)]
    empty = transcripts.empty_files(records).filter(~pl.col("file").is_in(names))
    lines = records.lazy().filter(pl.col("what") != "name")
    rollouts = lines.sort(*FILE, "line_no").select(COLUMNS).collect()
    del records, lines  # as large as the sorted copy
    what, kind, type_, at = (pl.col(name) for name in ("what", "kind", "type", "at"))
    first = rollouts.group_by(FILE, maintain_order=True).first()
    newer = newer_than(first["program_version"], NEWEST_VERSION)
    threads = sessions["thread_id"].implode()
    indexed, unread = _indexed_threads(root)
    # Most checks need only these columns; filtering all columns would copy them.
    kinds = rollouts.select("type", "kind", "item", "what")
    events = kinds.filter(type_ == "event_msg")
    token_counts = rollouts.filter(what == "tokens").drop_nulls("sum_total_tokens")
    total, ordinal = pl.col("sum_total_tokens"), pl.col("ordinal")
    # Calls that a script makes have their own ids, and no record of the call.
    is_call = what.is_in(["result", "tool_end"]) & ~pl.col("call_id").str.starts_with("exec-")
    tools = details[frames.TOOLS.name]["call_id"]
    calls = pl.concat(
        [rollouts.select(pl.col("call_id").filter(what == "call")).to_series(), tools]
    ).implode()
    starts = rollouts.select(pl.col("turn_id").filter(what == "turn_start")).to_series().implode()
    is_other_end = what.is_in(list(ENDS)) & ~pl.col("turn_id").is_in(starts)
    file_id = pl.col("file").str.extract(FILE_ID)
    situation = pl.col("situation")
    odd = {
        "record.unknown_type": strange(
            __package__, kinds.filter(what != "legacy"), "type", "record"
        ),
        "record.unknown_event": strange(__package__, events, "kind", "event"),
        "record.unknown_item": pl.concat(
            [
                strange(__package__, kinds.filter(type_ == "response_item"), "kind", "item"),
                strange(
                    __package__, events.filter(kind == "item_completed"), "item", "turn_item"
                ).with_columns(kind="item"),
            ]
        ),
        "record.repeated": rollouts.filter(what.str.contains("^(?:prompt|answer)_"), is_repeated()),
        "time.unreadable": rollouts.filter(at.is_null(), what != "legacy"),
        "usage.below_zero": below_zero(rollouts, frames.USAGE),
        "file.empty": empty,
        "record.legacy_shape": rollouts.filter(what == "legacy"),
        "record.no_thread": first.filter(~what.is_in(["meta", "legacy"])),
        "turn.unknown_abort": turns.filter(situation == "unknown_abort"),
        "turn.end_without_start": rollouts.filter(is_other_end),
        "turn.superseded": turns.filter(situation == "aborted"),
        "tool.result_without_call": rollouts.filter(is_call & ~pl.col("call_id").is_in(calls)),
        "tokens.total_fell": token_counts.filter(total < total.shift(1).over(FILE)),
        "version.unknown": first.filter(pl.col("program_version").is_in(newer)),
        "session.parent_missing": sessions.filter(~pl.col("parent_thread_id").is_in(threads)),
        "session.in_two_files": sessions.filter(pl.col("n_files") > 1),
        "session.name_mismatch": first.filter((what == "meta") & (file_id != pl.col("own_id"))),
        "index.thread_without_rollout": indexed.filter(~pl.col("id").is_in(threads)),
        "index.unreadable": unread,
        "session.transcript_gone": ids_in(root / HISTORY, "session_id").filter(
            ~pl.col("id").is_in(threads)
        ),
        "session.copied_history": sessions.filter(pl.col("n_copied") > 0),
        "record.ordinal_gap": rollouts.filter(ordinal > ordinal.shift(1).over(FILE) + 1),
        "time.out_of_order": rollouts.filter(
            at < at.cum_max().over("source", "file", order_by="line_no")
        ),
    }
    return findings_on(__package__, source, NAME, odd)


def _indexed_threads(root: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """``id`` of each thread in the database, and ``file`` of a database that cannot be read."""
    index = index_of(root)
    threads = pl.DataFrame(schema={"id": pl.String})
    unread = pl.DataFrame(schema={"file": pl.String})
    if index is None:
        return threads, unread
    try:
        with open_store(index) as store:
            return read_table(store, "threads", {"id": Cell("text")})[0].drop_nulls(), unread
    except SourceError:
        return threads, pl.DataFrame({"file": [index.name]})


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
    before: folding.LastRead | None = None,
) -> Parts:
    """The facts of one root, folder or rollout.

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
    paths = [*rollouts_of(path), *named_in(path)]
    return folding.read_transcripts(
        path,
        paths,
        str(path) if label is None else label,
        FOLDING,
        system=NAME,
        fields=FIELDS,
        typed=typed,
        findings=findings_of,
        columns_of_findings=COLUMNS,
        opened=opens(path, paths),
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
        transitions=threads.transitions_of(turns, NAME),
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
    return threads.entities_of(
        named,
        turns,
        tools.rename({"duration_s": "stored_duration_s"}),
        states=turns.select(_STATE_COLUMNS).with_columns(
            n_questions=pl.when(pl.col("situation") == "question").then(1)
        ),
        calls=_calls(tools, turns),
        own={"n_cache_read_tokens": pl.col("n_cached_tokens")},
        system=NAME,
        unbegun="no_turn",
        open_=OPEN,
        guessed=("aborted", "superseded", "good_message"),
        situations=_SITUATIONS,
        also=pl.concat_list(
            pl.when("may_ask").then(pl.lit("may_ask")),
            pl.when(pl.col("situation") == "empty").then(pl.lit("unrecorded_error")),
        ),
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
    return threads.call_situations(tools, turns, rules, cut_off)


def _events(rows: pl.DataFrame) -> pl.DataFrame:
    """Every record with a time, as an event of its thread."""
    what = pl.col("what")
    role = (
        pl.when("is_prompt").then(pl.lit("user"))
        .when("is_answer").then(pl.lit("assistant"))
        .when(what == "result").then(pl.lit("tool"))
    )  # fmt: skip
    is_other = what.is_in(["other", "user_shell"])
    kind = pl.when(is_other).then(pl.coalesce("kind", "type", "what")).otherwise(what)
    columns = (
        *("line_no", "at", "type", "kind", "what", "name", "duration_s", "error_message"),
        *("is_prompt", "is_answer", "is_copied"),
    )
    return schema.EVENTS.conform(
        own(rows.select(*threads.THREAD, *columns).drop_nulls("at")).with_columns(
            system=pl.lit(NAME),
            entity_type=pl.lit("session"),
            entity_id="thread_id",
            seq=pl.col("line_no").cast(pl.Int64),
            # A message without a role is context that the client adds for the model.
            kind=pl.when(role.is_not_null())
            .then(pl.lit("message"))
            .otherwise(kind.replace("message", "context")),
            is_activity=pl.lit(value=True),
            role=role,
            detail="error_message",
        )
    )


# The index of names covers many threads; each record belongs to the rollout of its thread.
_NODE = pl.coalesce(pl.when(pl.col("what") == "name").then("own_id"), "file")
_IDS = ("own_id", "forked_from", "parent_thread_id", "child_thread_id")


def _nodes_of(lines: pl.DataFrame) -> pl.DataFrame:
    has_id = pl.any_horizontal(pl.col(_IDS).is_not_null())
    records = lines.filter(has_id).select("source", *_IDS, node=_NODE)
    files = lines.select("source", node=_NODE).unique(maintain_order=True).with_columns(
        thread_id=pl.coalesce(pl.col("node").str.extract(name) for name in (FILE_ID, FILE_STEM))
    )  # fmt: skip
    return pl.concat([files, records], how="diagonal")


FOLDING = folding.Folding(
    records=(frames.LINES,),
    sessions=frames.SESSIONS,
    family_columns=("source", "file", "what", *_IDS),
    node=_NODE,
    nodes_of=_nodes_of,
    ids=[("thread_id", *_IDS)],
    assemble=assembled,
)
rebuilt_sources = partial(folding.sources_with_records, folding=FOLDING)
rewind = partial(folding.rewound_transcripts, folding=FOLDING)


def used_tokens(facts: Facts) -> pl.DataFrame:
    """The tokens of each turn, those of long prompts separately; a turn has one model."""
    turns = facts.detail(frames.TURNS).with_columns(entity_id="thread_id", at="started_at")
    part_of = {
        **{f"n_{name}_tokens": name for name in ("input", "cache_write", "output")},
        "n_cache_read_tokens": "cached",
    }
    of_long = {name: pl.col(f"n_long_{part}_tokens") for name, part in part_of.items()}
    others = {
        name: pl.col(f"n_{part}_tokens") - of_long[name].fill_null(0)
        for name, part in part_of.items()
    }
    longest = {"longest_prompt_tokens": pl.lit(frames.LONG_PROMPT_TOKENS + 1)}
    long_ones = turns.filter(pl.col("n_long_input_tokens") > 0).with_columns(**of_long, **longest)
    return pl.concat([turns.with_columns(**others), long_ones], how="diagonal_relaxed")


def calls(facts: Facts) -> pl.DataFrame:
    """The tool calls of Codex, in the shape of `schema.CALLS`."""
    tools = facts.detail(frames.TOOLS).with_columns(
        session_id="thread_id", tool="name", message="error_message"
    )
    return calls_from(tools, NAME)


def texts(facts: Facts, entity: Mapping[str, Any]) -> pl.DataFrame:
    """The messages of a thread, from its rollout."""
    return texts_in(facts, entity, frames.SESSIONS, _said)


_ROLES = {
    **{"user_message": "user", "agent_message": "assistant"},
    **{"UserMessage": "user", "AgentMessage": "assistant", "Plan": "assistant"},
}


def _said(record: Mapping[str, Any]) -> tuple[object, object]:
    """Role and text of a record, without the context in front of prompts (it has a tag)."""
    payload = record.get("payload")
    if not isinstance(payload, dict):
        return None, None
    item = payload.get("item")
    if payload.get("type") == "item_completed" and isinstance(item, dict):
        return _ROLES.get(str(item.get("type"))), text_of(item.get("content") or item.get("text"))
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

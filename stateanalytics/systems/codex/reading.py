"""One input of Codex, from its rollouts to canonical frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.io.json_lines import Parser
from stateanalytics.io.json_losses import losses, refuse
from stateanalytics.io.parts import Parts
from stateanalytics.systems.codex import frames
from stateanalytics.systems.codex.findings import findings_of
from stateanalytics.systems.codex.folding import THREAD, own, sessions_of, with_threads
from stateanalytics.systems.codex.lines import read_rollouts
from stateanalytics.systems.codex.places import named_in, opens, rollouts_of
from stateanalytics.systems.codex.states import SYSTEM, add_recorded
from stateanalytics.systems.codex.tools import tools_of
from stateanalytics.systems.codex.turns import OPEN, turns_of
from stateanalytics.systems.history import Past
from stateanalytics.systems.transcripts import rewound_lines, size_of

_CALLS = {True: "error", False: "done"}


def read(
    path: Path,
    *,
    label: str | None = None,
    bodies: bool = False,
    on_error: str = "skip",
    before: object = None,
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
    with Parser() as parser:
        told = read_rollouts(path, [*rollouts_of(path), *named_in(path)], source, parser)
    lost = losses(told.bad, told.lost, source, SYSTEM)
    refuse(lost, source, on_error)
    part = assembled(told.lines)
    found = findings_of(path, told, part.details, source)
    size_bytes = size_of(opens(path))
    return replace(part, findings=pl.concat([lost, found]), label=source, size_bytes=size_bytes)


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
    names = lines.filter(pl.col("what") == "name").sort("source", "file", "line_no")
    sessions = sessions_of(rows, turns, names)
    made = ((frames.SESSIONS, sessions), (frames.TURNS, turns), (frames.TOOLS, tools))
    return Parts(
        system=SYSTEM,
        format="rollouts",
        entities=_entities(sessions, turns, tools),
        transitions=_transitions(turns),
        events=_events(rows),
        findings=schema.FINDINGS.empty(),
        details={**{frame.name: found for frame, found in made}, frames.LINES.name: lines},
    )


def _entities(sessions: pl.DataFrame, turns: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    is_over = ~pl.col("situation").is_in(list(OPEN))
    is_guess = pl.col("situation").is_in(["aborted", "superseded", "good_message"])
    threads = sessions.with_columns(
        kind=pl.when("is_subagent").then(pl.lit("subagent")).otherwise(pl.lit("session")),
        agent=pl.coalesce("agent_role", "agent_name"),
        project="directory",
        session_id="thread_id",
    )
    places = threads.select(*THREAD, "session_id", "kind", "agent", "project", "provider")
    last = turns.filter("is_last").select(
        *THREAD, "situation", "ended_at", "error_message", "model"
    )
    children = sessions.group_by("source", thread_id="parent_thread_id").agg(n_children=pl.len())
    of_sessions = (
        threads.join(last, on=THREAD, how="left", maintain_order="left")
        .join(children, on=THREAD, how="left", maintain_order="left")
        .with_columns(
            pl.col("situation").fill_null("no_turn"),
            entity_type=pl.lit("session"),
            entity_id="thread_id",
            parent_type=pl.when(pl.col("parent_thread_id").is_not_null()).then(pl.lit("session")),
            parent_id="parent_thread_id",
            name="title",
            started_at="first_at",
            # Nobody writes that a thread is over: what is told is the end of its last turn.
            is_end_approximate=is_over & pl.col("ended_at").is_not_null(),
        )
    )
    writer = pl.when(is_guess).then(pl.lit("observer")).when(is_over).then(pl.lit("executor"))
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
        stored_duration_s="duration_s",
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
        n_cache_read_tokens="n_cached_tokens",
        reason_message="error_message",
        provider=pl.when(~is_call).then("provider"),
    )
    return add_recorded(schema.ENTITIES.conform(stacked), turns, sessions, tools)


def _transitions(turns: pl.DataFrame) -> pl.DataFrame:
    """The start of each turn, and how it ended."""
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


def _events(rows: pl.DataFrame) -> pl.DataFrame:
    """Every record with a moment, as an event of its thread."""
    what = pl.col("what")
    role = (
        pl.when("is_prompt").then(pl.lit("user"))
        .when("is_answer").then(pl.lit("assistant"))
        .when(what == "result").then(pl.lit("tool"))
    )  # fmt: skip
    kind = pl.when(what == "other").then(pl.coalesce("kind", "type", "what")).otherwise(what)
    return schema.EVENTS.conform(
        own(rows)
        .filter(pl.col("at").is_not_null())
        .with_columns(
            system=pl.lit(SYSTEM),
            entity_type=pl.lit("session"),
            entity_id="thread_id",
            seq=pl.col("line_no").cast(pl.Int64),
            kind=pl.when(role.is_not_null()).then(pl.lit("message")).otherwise(kind),
            is_activity=pl.lit(value=True),
            role=role,
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
    return rewound_lines(past, facts.detail(frames.LINES), assembled)


def used_tokens(facts: Facts) -> pl.DataFrame:
    """What each turn used; a turn has one model."""
    return facts.detail(frames.TURNS).with_columns(
        entity_id="thread_id", at="started_at", n_cache_read_tokens="n_cached_tokens"
    )

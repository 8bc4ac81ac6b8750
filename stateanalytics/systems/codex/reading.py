"""One input of Codex, from its rollouts to canonical frames."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, Frames, unmade
from stateanalytics.io.parts import Parts
from stateanalytics.systems.codex import frames
from stateanalytics.systems.codex.findings import READ, findings_of
from stateanalytics.systems.codex.folding import NAME, NAME_ID, own, sessions_of, with_threads
from stateanalytics.systems.codex.lines import FIELDS, typed
from stateanalytics.systems.codex.places import named_in, opens, rollouts_of
from stateanalytics.systems.codex.states import SYSTEM, add_recorded
from stateanalytics.systems.codex.tools import tools_of
from stateanalytics.systems.codex.turns import OPEN, turns_of
from stateanalytics.systems.folding import Before, Folding, inputs_told_anew, rewound_lines
from stateanalytics.systems.history import Past
from stateanalytics.systems.threads import THREAD, entities_of, transitions_of
from stateanalytics.systems.transcripts import read_records, size_of


def read(
    path: Path,
    *,
    label: str | None = None,
    bodies: bool = False,
    on_error: str = "skip",
    before: Before | None = None,
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
    before : Before, optional
        What the last read of the same input kept; only files that were written to since are
        read again.

    Raises
    ------
    DamagedStoreError
        If a record cannot be read and ``on_error`` is ``raise``.
    """
    source = str(path) if label is None else label
    paths = [*rollouts_of(path), *named_in(path)]
    last = Before.of(before, source)
    told = read_records(
        path, paths, source, fields=FIELDS, frames=[frames.LINES], typed=typed, before=last.told
    )
    lost = told.findings(source, SYSTEM, on_error)
    part, folded = FOLDING.part_of(told.rows, told.versions, last.folded)
    [lines] = told.rows
    of_lines = {frames.LINES.name: partial(lines, READ)}
    found = findings_of(path, told, Frames({**unmade(part.details), **of_lines}), source)
    size_bytes = size_of(opens(path))
    return replace(
        part,
        findings=pl.concat([lost, found]),
        label=source,
        size_bytes=size_bytes,
        kept=Before((source,), told, folded),
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
    made = ((frames.SESSIONS, sessions), (frames.TURNS, turns), (frames.TOOLS, tools))
    return Parts(
        system=SYSTEM,
        format="rollouts",
        entities=_entities(sessions, turns, tools),
        transitions=transitions_of(turns, SYSTEM),
        events=_events(rows),
        findings=schema.FINDINGS.empty(),
        details={**{frame.name: found for frame, found in made}, frames.LINES.name: lines},
    )


def _entities(sessions: pl.DataFrame, turns: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    named = sessions.with_columns(
        kind=pl.when("is_subagent").then(pl.lit("subagent")).otherwise(pl.lit("session")),
        agent=pl.coalesce("agent_role", "agent_name"),
    )
    calls = tools.rename({"duration_s": "stored_duration_s"})
    guessed = ("aborted", "superseded", "good_message")
    stacked = entities_of(
        named, turns, calls, system=SYSTEM, unbegun="no_turn", open_=OPEN, guessed=guessed
    ).with_columns(n_cache_read_tokens="n_cached_tokens")
    return add_recorded(schema.ENTITIES.conform(stacked), turns, sessions, tools)


def _events(rows: pl.DataFrame) -> pl.DataFrame:
    """Every record with a moment, as an event of its thread."""
    what = pl.col("what")
    role = (
        pl.when("is_prompt").then(pl.lit("user"))
        .when("is_answer").then(pl.lit("assistant"))
        .when(what == "result").then(pl.lit("tool"))
    )  # fmt: skip
    kind = pl.when(what == "other").then(pl.coalesce("kind", "type", "what")).otherwise(what)
    told = ("line_no", "at", "type", "kind", "what", "error_message")
    marks = ("is_prompt", "is_answer", "is_copied")
    return schema.EVENTS.conform(
        own(rows.select(*THREAD, *told, *marks).drop_nulls("at")).with_columns(
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


# An index names many threads: each of its records belongs to the rollout of the thread.
_NODE = pl.coalesce(pl.when(pl.col("what") == "name").then("own_id"), "file")


_IDS = ("own_id", "forked_from", "parent_thread_id", "child_thread_id")


def _nodes_of(lines: pl.DataFrame) -> pl.DataFrame:
    is_told = pl.any_horizontal(pl.col(_IDS).is_not_null())
    records = lines.filter(is_told).select("source", *_IDS, node=_NODE)
    files = lines.select("source", node=_NODE).unique(maintain_order=True).with_columns(
        thread_id=pl.coalesce(pl.col("node").str.extract(word) for word in (NAME_ID, NAME))
    )  # fmt: skip
    return pl.concat([files, records], how="diagonal")


FOLDING = Folding(
    records=(frames.LINES,),
    sessions=frames.SESSIONS,
    told=("source", "file", "what", *_IDS),
    node=_NODE,
    nodes_of=_nodes_of,
    ids=[("thread_id", "own_id", "forked_from", "parent_thread_id", "child_thread_id")],
    assemble=assembled,
)


def used_tokens(facts: Facts) -> pl.DataFrame:
    """What each turn used; a turn has one model."""
    return facts.detail(frames.TURNS).with_columns(
        entity_id="thread_id", at="started_at", n_cache_read_tokens="n_cached_tokens"
    )

"""What transcripts told at an earlier instant, from their lines up to then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import (
    Facts,
    Frames,
    MadeFrame,
    later,
    unmade,
)
from stateanalytics.io.parts import Parts
from stateanalytics.systems.families import FAMILY
from stateanalytics.systems.folding import Folding, is_there, of_lines, together
from stateanalytics.systems.history import LOST, Past, with_rows_of
from stateanalytics.systems.packed import Packed, columns_of


def inputs_told_anew(facts: Facts, folding: Folding) -> pl.Series:
    """The inputs whose records are there, to be folded up to an instant."""
    frame = folding.records[0]
    made = unmade(facts.details).get(frame.name, frame.empty())
    known = made.marks if isinstance(made, Packed) else None
    sources = (columns_of(made, ["source"]) if known is None else known)["source"]
    return sources.unique().cast(pl.String)


def rewound_lines(past: Past, facts: Facts, folding: Folding) -> Past:
    """An instant, with a system's rows as a copy that was cut off there tells them.

    Parameters
    ----------
    past : Past
        As the shared history tells it.
    facts : Facts
        Of now, with the records.
    folding : Folding
        The system's.
    """
    made: list[MadeFrame] = [
        unmade(facts.details).get(frame.name, frame.empty()) for frame in folding.records
    ]
    marks = folding.marks(made[0])
    labels = marks["source"].unique().cast(pl.String).sort()
    if labels.is_empty():
        return past
    was_there = (marks["there"] <= past.at).fill_null(value=True)
    families = marks[FAMILY]
    # What hangs together with nothing later is now as it was then.
    is_other = families.is_in(families.filter(~was_there).unique().implode())
    place = pl.col("source", "file")
    same = marks.filter(~is_other).select(place).unique().select(place.cast(pl.String))
    part = folding.parts_of(made, marks, is_other & was_there).part
    threads = facts.detail(folding.sessions).join(same, on=["source", "file"], how="semi")
    details = {
        name: partial(_beside_those_of, facts.details, part.details, name, threads)
        for name in part.details
    }
    until = partial(_until, past.at)
    kept = {
        frame.name: later(until, made[0], *([] if each is made[0] else [each]))
        for frame, each in zip(folding.records, made, strict=True)
    }
    parts = [_of_threads(facts, part, threads, labels), part]
    whole = together(parts, Frames({**details, **kept}))
    known = {word: pl.lit(word == "present") for word in LOST}
    lost = whole.entities.with_columns(**known).select(LOST)
    return with_rows_of(past, whole, labels, lost)


def _until(at: datetime, lines: pl.DataFrame, other: pl.DataFrame | None = None) -> pl.DataFrame:
    """The records of until then, or what another frame has of them."""
    then = lines.filter((is_there() <= at).fill_null(value=True))
    return then if other is None else of_lines(other, then)


def _of_threads(facts: Facts, part: Parts, threads: pl.DataFrame, labels: pl.Series) -> Parts:
    """What a part of those threads would have, off the facts of now."""
    thread, key = ["source", "thread_id"], list(schema.ENTITY_KEY)
    entities = facts.entities.filter(
        pl.col("system") == part.system, pl.col("source").is_in(labels.implode())
    ).join(
        threads, left_on=["source", "session_id"], right_on=thread, how="semi",
        maintain_order="left",
    )  # fmt: skip
    transitions, events = (
        frame.join(entities.select(key), on=key, how="semi", maintain_order="left")
        for frame in (facts.transitions, facts.events)
    )
    return replace(part, entities=entities, transitions=transitions, events=events, details={})


def _beside_those_of(
    details: Mapping[str, pl.DataFrame],
    others: Mapping[str, pl.DataFrame],
    name: str,
    threads: pl.DataFrame,
) -> pl.DataFrame:
    """The rows that a detail frame has of some threads, and others below."""
    mine = details[name].join(
        threads, on=["source", "thread_id"], how="semi", maintain_order="left"
    )
    return pl.concat([mine, others[name]])

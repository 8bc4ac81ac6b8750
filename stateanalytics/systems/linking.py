"""Work seen twice: what an orchestrator drove, and the transcript that the agent wrote of it.

They are one by the id of the transcript, which the orchestrator mostly stores, or by the
working directory and the time, where only one of its sessions fits. Which of the two counts
is said with each: the orchestrator's, unless it only mirrors the transcript itself.
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from stateanalytics.core.schema import KEY_COLUMNS, REAL, TEXT, YES_NO, Column, Frame
from stateanalytics.systems import all_systems
from stateanalytics.systems.recorded import evidence

LINKS = Frame(
    "links",
    "one piece of work that two systems tell: the session that drove it, and its transcript",
    ("told_source", "told_system", "told_id"),
    (
        *KEY_COLUMNS,
        Column("told_source", TEXT, "the input with its transcript"),
        Column("told_system", TEXT, "who wrote that"),
        Column("told_id", TEXT, "the transcript's session: its entity_id"),
        Column("linked_by", TEXT, "session_id; or directory, with the time"),
        Column("confidence", REAL, "that the two are one, 0 to 1"),
        Column("is_counted_by_driver", YES_NO, "the transcript is not counted; else the driver"),
        Column("evidence", TEXT, "JSON list of evidence references"),
    ),
)
NEEDED = (
    *("source", "system", "entity_type", "entity_id", "parent_id", "kind", "recorded_by"),
    *("started_at", "created_at", "ended_at", "directory", "native_session_id"),
)
_TOLD = ["told_source", "told_system", "told_id"]
_DRIVER = [column.name for column in KEY_COLUMNS]
_SLACK = timedelta(seconds=60)
_CONFIDENCE = {"session_id": 1.0, "directory": 0.8}


def links(entities: pl.DataFrame) -> pl.DataFrame:
    """Which sessions and transcripts are one piece of work.

    Parameters
    ----------
    entities : polars.DataFrame
        All rows of ``entities``: the columns of `NEEDED`.

    Returns
    -------
    polars.DataFrame
        `LINKS`: a transcript has one driver at most, a driver may have several transcripts.
    """
    drives = [known.name for known in all_systems() if known.drives_agents]
    systems = set(entities["system"].unique())
    if systems.isdisjoint(drives) or systems <= {*drives}:
        return LINKS.empty()
    # Two rows of one key are one session, whoever tells it.
    sessions = entities.filter(pl.col("entity_type") == "session").unique(
        _DRIVER, keep="first", maintain_order=True
    )
    is_driver = pl.col("system").is_in(drives)
    place = pl.col("directory").str.strip_chars_end("/").replace("", None)
    started = pl.coalesce("started_at", "created_at")
    drivers = sessions.filter(is_driver).select(
        *_DRIVER, "recorded_by", "native_session_id", "ended_at", place=place, begin=started
    )
    told = sessions.filter(~is_driver).select(
        told_source="source", told_system="system", told_id="entity_id", place=place, at=started
    )
    # A mirror of a transcript often has its very id.
    ids = ("native_session_id", "entity_id")
    named = pl.concat([drivers.with_columns(told_id=column) for column in ids])
    by_id = named.drop("place").join(told, on="told_id", how="inner", maintain_order="left")
    unnamed = told.join(by_id, on=_TOLD, how="anti", maintain_order="left").drop_nulls("place")
    until = pl.col("ended_at") + _SLACK
    is_then = (pl.col("at") >= pl.col("begin") - _SLACK) & (pl.col("at") <= until).fill_null(
        value=True
    )
    by_place = (
        drivers.join(unnamed, on="place", how="inner", maintain_order="left")
        .filter(is_then)
        .filter(pl.len().over(_TOLD) == 1)
    )
    found = pl.concat(
        [
            by_id.with_columns(linked_by=pl.lit("session_id")),
            by_place.with_columns(linked_by=pl.lit("directory")),
        ],
        how="diagonal",
    )
    is_mirror = pl.col("recorded_by").is_in(["mirrored", "imported"]).fill_null(value=False)
    detail = pl.coalesce("place", "told_id")
    return LINKS.conform(
        found.sort(
            is_mirror, pl.col("linked_by") == "directory", "begin", *_DRIVER, nulls_last=True
        )
        .unique(_TOLD, keep="first", maintain_order=True)
        .with_columns(
            confidence=pl.col("linked_by").replace_strict(_CONFIDENCE, return_dtype=pl.Float64),
            is_counted_by_driver=~is_mirror,
            evidence=evidence(pl.lit("link"), pl.col("linked_by"), detail),
        )
        .sort(*_DRIVER, *_TOLD)
    )


def is_driven(entities: pl.DataFrame) -> pl.Series:
    """Which rows tell work that a session of another system tells and counts, as ``is_driven``.

    Parameters
    ----------
    entities : polars.DataFrame
        All rows of ``entities``: the columns of `NEEDED`, and ``session_id``.

    Returns
    -------
    polars.Series of Boolean
        Never null: transcripts, their turns and tool calls, and subagents.
    """
    no = pl.Series("is_driven", [False]).new_from_index(0, entities.height)
    if set(NEEDED) - set(entities.columns):
        return no
    driven = (
        links(entities)
        .filter("is_counted_by_driver")
        .select(source="told_source", system="told_system", session_id="told_id")
    )
    if driven.is_empty():
        return no
    key = ["source", "system", "session_id"]
    subagents = (
        entities.filter(pl.col("entity_type") == "session", pl.col("kind") == "subagent")
        .select("source", "system", "entity_id", session_id="parent_id")
        .join(driven, on=key, how="semi")
        .select("source", "system", session_id="entity_id")
    )
    every = pl.concat([driven, subagents]).unique().with_columns(is_driven=pl.lit(value=True))
    rows = entities.select(key).join(every, on=key, how="left", maintain_order="left")
    return rows["is_driven"].fill_null(value=False)

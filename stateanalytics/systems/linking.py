"""Work seen twice: what an orchestrator drove, and the transcript that the agent wrote of it.

They are one by the id of the transcript, which the orchestrator mostly stores, or by the
working directory and the time, where only one of its sessions fits; what a transcript's
subagents did is of the same session. Which of the two counts is said with each: the
orchestrator's, unless it only mirrors the transcript itself.
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
        Column("linked_by", TEXT, "session_id; directory, with the time; or parent, of a subagent"),
        Column("confidence", REAL, "that the two are one, 0 to 1"),
        Column("is_counted_by_driver", YES_NO, "the transcript is not counted; else the driver"),
        Column("evidence", TEXT, "JSON list of evidence references"),
    ),
)
NEEDED = (
    *("source", "system", "entity_type", "entity_id", "parent_id", "kind", "recorded_by"),
    *("started_at", "created_at", "ended_at", "last_activity_at"),
    *("directory", "native_session_id", "agent"),
)
_USAGE = (
    *("n_input_tokens", "n_output_tokens", "n_cache_read_tokens", "n_cache_write_tokens"),
    "cost_usd",
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

    Notes
    -----
    A directory says nothing where the session that had it was heard of for the last time
    before the transcript began, or ran the agent of another system.
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
    # Windows takes either slash and either case, and each program writes its own.
    written = pl.col("directory")
    anyhow = written.str.to_lowercase().str.replace_all("\\", "/", literal=True)
    on_windows = written.str.contains(r"^[A-Za-z]:[\\/]")
    place = pl.when(on_windows).then(anyhow).otherwise(written)
    place = place.str.strip_chars_end("/").replace("", None)
    started = pl.coalesce("started_at", "created_at")
    drivers = sessions.filter(is_driver).select(
        *_DRIVER,
        *("recorded_by", "native_session_id"),
        place=place,
        begin=started,
        until=pl.coalesce("ended_at", "last_activity_at") + _SLACK,
        agent_system=pl.col("agent").str.replace_all("-", "_"),
    )
    told = sessions.filter(~is_driver).select(
        told_source="source",
        told_system="system",
        told_id="entity_id",
        parent=pl.when(pl.col("kind") == "subagent").then("parent_id"),
        place=place,
        at=started,
    )
    # A mirror of a transcript often has its very id.
    ids = (pl.col("native_session_id").str.split(" "), pl.concat_list("entity_id"))
    named = pl.concat([drivers.with_columns(told_id=each).explode("told_id") for each in ids])
    by_id = named.drop("place").join(told, on="told_id", how="inner", maintain_order="left")
    parents = told.select("told_source", "told_system", parent="told_id")
    unnamed = (
        told.join(by_id, on=_TOLD, how="anti", maintain_order="left")
        .join(parents, on=parents.columns, how="anti", maintain_order="left")
        .drop_nulls("place")
    )
    is_then = pl.col("at") >= pl.col("begin") - _SLACK, pl.col("at") <= pl.col("until")
    is_its_agent = ~pl.col("agent_system").is_in([known.name for known in all_systems()]) | (
        pl.col("agent_system") == pl.col("told_system")
    )
    by_place = (
        drivers.join(unnamed, on="place", how="inner", maintain_order="left")
        .filter(*(rule.fill_null(value=True) for rule in (*is_then, is_its_agent)))
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
    direct = found.sort(
        is_mirror, pl.col("linked_by") == "directory", "begin", *_DRIVER, nulls_last=True
    ).unique(_TOLD, keep="first", maintain_order=True)
    detail = pl.coalesce("place", "told_id")
    return LINKS.conform(
        direct.with_columns(
            confidence=pl.col("linked_by").replace_strict(_CONFIDENCE, return_dtype=pl.Float64),
            is_counted_by_driver=~is_mirror,
        )
        .pipe(_with_subagents, told)
        .with_columns(evidence=evidence(pl.lit("link"), pl.col("linked_by"), detail))
        .sort(*_DRIVER, *_TOLD)
    )


def _with_subagents(found: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """Links with those of the subagents of what is linked, and of theirs, however deep."""
    children = told.drop_nulls("parent").select(*_TOLD, "parent")
    whose = ["told_source", "told_system", "parent"]
    known, newest = found, found
    while newest.height:
        above = newest.drop("parent", "place", strict=False).rename({"told_id": "parent"})
        newest = (
            above.join(children, on=whose, how="inner")
            .join(known, on=_TOLD, how="anti")
            .with_columns(linked_by=pl.lit("parent"), place="parent")
        )
        known = pl.concat([known, newest], how="diagonal")
    return known


def is_driven(entities: pl.DataFrame, uncounted: pl.DataFrame | None = None) -> pl.Series:
    """Which rows tell work that a session of another system tells and counts, as ``is_driven``.

    Parameters
    ----------
    entities : polars.DataFrame
        All rows of ``entities``: the columns of `NEEDED`, and ``session_id``.
    uncounted : polars.DataFrame, optional
        Keys of sessions that do not count themselves: what they drove does.

    Returns
    -------
    polars.Series of Boolean
        Never null: transcripts, their turns and tool calls, and subagents.
    """
    no = pl.Series("is_driven", [False]).new_from_index(0, entities.height)
    if set(NEEDED) - set(entities.columns):
        return no
    driven = _counted_links(entities, uncounted)
    if driven.is_empty():
        return no
    every = driven.select(
        source="told_source",
        system="told_system",
        session_id="told_id",
        is_driven=pl.lit(value=True),
    )
    key = ["source", "system", "session_id"]
    rows = entities.select(key).join(every, on=key, how="left", maintain_order="left")
    return rows["is_driven"].fill_null(value=False)


def _counted_links(entities: pl.DataFrame, uncounted: pl.DataFrame | None) -> pl.DataFrame:
    """The links whose driver counts the work."""
    found = links(entities).filter("is_counted_by_driver")
    return found if uncounted is None else found.join(uncounted, on=_DRIVER, how="anti")


def with_usage(entities: pl.DataFrame, uncounted: pl.DataFrame | None = None) -> pl.DataFrame:
    """Entities, where drivers that tell no usage have that of the transcripts that they drove.

    Parameters
    ----------
    entities, uncounted : polars.DataFrame
        As for `is_driven`.
    """
    if {*NEEDED, *_USAGE, "model", "provider"} - set(entities.columns):
        return entities
    driven = _counted_links(entities, uncounted)
    if driven.is_empty():
        return entities
    transcripts = entities.filter(pl.col("entity_type") == "session").select(
        *("model", "provider", *_USAGE),
        told_source="source",
        told_system="system",
        told_id="entity_id",
        at=pl.coalesce("started_at", "created_at"),
    )
    sums = (
        pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(f"{name}_told")
        for name in _USAGE
    )
    last = (
        pl.col(name).drop_nulls().last().alias(f"{name}_told") for name in ("model", "provider")
    )
    of_drivers = (
        driven.join(transcripts, on=_TOLD, how="inner")
        .sort("at", *_TOLD)
        .group_by(_DRIVER, maintain_order=True)
        .agg(*sums, *last)
    )
    names = ("model", "provider", *_USAGE)
    tells_none = pl.all_horizontal(pl.col(_USAGE).is_null())
    joined = entities.join(of_drivers, on=_DRIVER, how="left", maintain_order="left")
    return joined.with_columns(
        pl.when(tells_none).then(pl.coalesce(name, f"{name}_told")).otherwise(name).alias(name)
        for name in names
    ).select(entities.columns)

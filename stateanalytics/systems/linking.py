"""Work that two systems recorded, and the tokens that each session used.

An orchestrator drives an agent, which writes a transcript of its own. The two are linked by
the id of the transcript, which the orchestrator mostly stores, or by working directory and
time, where only one session of it fits; subagents of a transcript belong to the same session.
Where people work in the same directories, transcripts may be theirs: ambiguous ones are not
linked, and are a finding. Each link shows which of the two is counted: the orchestrator's
session, unless that only mirrors the transcript.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import collected, left_joined, total
from stateanalytics.core.schema import INTEGER, KEY_COLUMNS, TEXT, Column
from stateanalytics.core.windows import instant
from stateanalytics.io.findings import all_findings, noted_entities
from stateanalytics.systems import all_systems, detail_frames
from stateanalytics.systems.situations import evidence

LINKS = schema.Frame(
    "links",
    "one piece of work that two systems recorded: the session that drove it, and its transcript",
    ("told_source", "told_system", "told_id"),
    (
        *KEY_COLUMNS,
        Column("told_source", TEXT, "the input with its transcript"),
        Column("told_system", TEXT, "the system that wrote the transcript"),
        Column("told_id", TEXT, "entity_id of the transcript's session"),
        Column("linked_by", TEXT, "session_id; directory, with the time; or parent, of a subagent"),
        Column("confidence", schema.REAL, "that the two are the same work, 0 to 1"),
        Column(
            "is_counted_by_driver",
            schema.YES_NO,
            "true: the transcript is not counted; else the driver",
        ),
        Column("evidence", TEXT, "JSON list of evidence references"),
    ),
)
NEEDED = (
    *("source", "system", "entity_type", "entity_id", "parent_id", "kind", "recorded_by"),
    *("started_at", "created_at", "ended_at", "last_activity_at"),
    *("directory", "native_session_id", "agent"),
)
_START = r"^(?P<_started_at>\S+) (?P<_ended_at>\S+) (?P<_directory>.+)$"
_USAGE = (
    *("n_input_tokens", "n_output_tokens", "n_cache_read_tokens", "n_cache_write_tokens"),
    "cost_usd",
)
TRANSCRIPT = ["told_source", "told_system", "told_id"]
_DRIVER = [column.name for column in KEY_COLUMNS]
_SLACK = timedelta(seconds=60)
# A driver and the agent that it starts have the same clock, which transcripts round; an agent
# that is stopped may still write its last lines.
_ROUNDING = timedelta(seconds=0.1)
_LAST_LINES = timedelta(seconds=5)
# Each round may settle pairs that the one before could not; the rest stays ambiguous.
_ROUNDS = 50
_CONFIDENCE = {"session_id": 1.0, "directory": 0.8}


def links(entities: pl.DataFrame) -> pl.DataFrame:
    """Pairs of a session and a transcript that record the same work.

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
    A directory is no evidence where the last sign of life of its session is older than the
    transcript, or where the session ran the agent of another system.
    """
    by_id, by_place, transcripts = _candidates(entities)
    if transcripts.is_empty():
        return LINKS.empty()
    by_place = by_place.filter(~pl.col("is_ambiguous"))
    pairs = pl.concat(
        [
            by_id.with_columns(linked_by=pl.lit("session_id")),
            by_place.with_columns(linked_by=pl.lit("directory")),
        ],
        how="diagonal",
    )
    is_mirror = pl.col("recorded_by").is_in(["mirrored", "imported"]).fill_null(value=False)
    direct = pairs.sort(
        is_mirror, pl.col("linked_by") == "directory", "begin", *_DRIVER, nulls_last=True
    ).unique(TRANSCRIPT, keep="first", maintain_order=True)
    detail = pl.coalesce("place", "told_id")
    return LINKS.conform(
        direct.with_columns(
            confidence=pl.col("linked_by").replace_strict(_CONFIDENCE, return_dtype=pl.Float64),
            is_counted_by_driver=~is_mirror,
        )
        .pipe(_with_subagents, transcripts)
        .with_columns(evidence=evidence(pl.lit("link"), pl.col("linked_by"), detail))
        .sort(*_DRIVER, *TRANSCRIPT)
    )


def ambiguous_links(entities: pl.DataFrame) -> pl.DataFrame:
    """Sessions that share a directory and a time, so that their transcripts are not certain.

    Parameters
    ----------
    entities : polars.DataFrame
        As for `links`.

    Returns
    -------
    polars.DataFrame
        Findings ``link.ambiguous``, one a session, with the number of its candidates.
    """
    _, by_place, _ = _candidates(entities)
    ambiguous = by_place.filter("is_ambiguous")
    counts = ambiguous.group_by(_DRIVER).agg(n_rows=pl.len()).sort(_DRIVER)
    findings = (
        noted_entities(rows, source, system, "link.ambiguous")
        for (source, system), rows in counts.group_by("source", "system", maintain_order=True)
    )
    return all_findings(*findings)


def _candidates(entities: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Pairs that match by id, pairs that match by place and time, and all transcripts."""
    drives = [known.name for known in all_systems() if known.links.drives_agents]
    shares = [known.name for known in all_systems() if known.links.shares_directories]
    parts = [name for known in all_systems() for name in known.runs.part_types]
    if sum((entities["system"] == name).sum() for name in drives) in (0, entities.height):
        pairs = LINKS.empty().hstack([pl.Series("is_ambiguous", [], pl.Boolean)])
        return pairs, pairs, LINKS.empty()
    # Two rows of one key are one session.
    sessions = schema.ENTITIES.conform(entities.filter(pl.col("entity_type") == "session")).unique(
        _DRIVER, keep="first", maintain_order=True
    )
    is_driver = pl.col("system").is_in(drives)
    # Windows accepts either slash and either case, and programs differ in what they write.
    directory = pl.col("directory")
    normalized = directory.str.to_lowercase().str.replace_all("\\", "/", literal=True)
    is_windows = directory.str.contains(r"^[A-Za-z]:[\\/]")
    place = pl.when(is_windows).then(normalized).otherwise(directory)
    place = place.str.strip_chars_end("/").replace("", None)
    started = pl.coalesce("started_at", "created_at")
    ended = pl.coalesce("ended_at", "last_activity_at")
    names = [known.name for known in all_systems()]
    agents = [pl.col(name).str.replace_all("-", "_") for name in ("agent", "provider")]
    is_shared = pl.col("system").is_in(shares)
    slack = pl.when(is_shared & pl.col("ended_at").is_not_null()).then(_ROUNDING).otherwise(_SLACK)
    parts_of_sessions = (
        entities.filter(pl.col("entity_type").is_in(parts))
        .group_by("source", "system", entity_id="session_id")
        .agg(n_parts=pl.col("entity_id").n_unique())
    )
    drivers = (
        _each_start(sessions.filter(is_driver))
        .pipe(left_joined, parts_of_sessions, on=["source", "system", "entity_id"])
        .select(
            *_DRIVER,
            *("recorded_by", "native_session_id"),
            is_shared=is_shared,
            n_parts=pl.max_horizontal("n_parts", "n_starts", pl.lit(1)),
            n_output="n_output_tokens",
            place=place,
            begin=started - pl.when(is_shared).then(_ROUNDING).otherwise(_SLACK),
            until=ended + slack,
            # The agent of a session does not outlive it.
            closed=pl.when(is_shared).then(pl.col("ended_at") + _LAST_LINES),
            agent_system=pl.coalesce(
                *(pl.when(agent.is_in(names)).then(agent) for agent in agents),
                pl.when(is_shared).then("provider"),
            ),
        )
    )
    transcripts = sessions.filter(~is_driver).select(
        told_source="source",
        told_system="system",
        told_id="entity_id",
        parent=pl.when(pl.col("kind") == "subagent").then("parent_id"),
        place=place,
        at=started,
        last=pl.max_horizontal("ended_at", "last_activity_at"),
        told_output="n_output_tokens",
    )
    # A mirror of a transcript often has the id of the transcript.
    ids = (pl.col("native_session_id").str.split(" "), pl.concat_list("entity_id"))
    named = pl.concat([drivers.with_columns(told_id=value).explode("told_id") for value in ids])
    by_id = named.drop("place").join(transcripts, on="told_id", how="inner", maintain_order="left")
    parents = transcripts.select("told_source", "told_system", parent="told_id")
    unnamed = (
        transcripts.join(by_id, on=TRANSCRIPT, how="anti", maintain_order="left")
        .join(parents, on=parents.columns, how="anti", maintain_order="left")
        .drop_nulls("place")
    )
    # A time that is not known rules nothing out.
    first, last = pl.lit(datetime.min, schema.MOMENT), pl.lit(datetime.max, schema.MOMENT)
    placed = drivers.drop_nulls("place").with_columns(
        pl.col("begin").fill_null(first), pl.col("until").fill_null(last)
    )
    undated = unnamed.filter(pl.col("at").is_null())
    pairs = (
        pl.concat(
            [_within(placed, unnamed.drop_nulls("at")), placed.join(undated, on="place")],
            how="diagonal",
        )
        .filter(
            (pl.col("agent_system") == pl.col("told_system")).fill_null(value=True),
            (pl.col("last") <= pl.col("closed")).fill_null(value=True),
        )
        .unique([*_DRIVER, *TRANSCRIPT], keep="first", maintain_order=True)
        .sort(*_DRIVER, *TRANSCRIPT)
    )
    return by_id, _one_to_one(pairs), transcripts


def _within(placed: pl.DataFrame, dated: pl.DataFrame) -> pl.DataFrame:
    """Pairs of one place whose transcript began while the driver ran.

    In transcripts sorted by time the matches of a driver are consecutive, so that only the
    first and the last are looked up: comparing all pairs takes minutes where thousands of
    sessions ran in one directory.
    """
    ordered = dated.sort("at", *TRANSCRIPT).with_columns(
        position=pl.int_range(pl.len(), dtype=pl.Int64).over("place")
    )
    ends = ordered.select("place", "at", "position")
    for name in ("begin", "until"):
        renamed = ends.rename({"at": f"{name}_at", "position": f"{name}_position"})
        placed = placed.sort(name).join_asof(
            renamed,
            left_on=name,
            right_on=f"{name}_at",
            by="place",
            strategy="forward" if name == "begin" else "backward",
            check_sortedness=False,
        )
    first, last = pl.col("begin_position"), pl.col("until_position")
    return (
        placed.filter(first <= last)
        .with_columns(position=pl.int_ranges(first, last + 1))
        .explode("position")
        .join(ordered, on=["place", "position"], how="inner")
    )


def _each_start(drivers: pl.DataFrame) -> pl.DataFrame:
    """A row for each start of a session, with its time and place; ``n_starts`` of them."""
    line = pl.col("starts")
    known = ("directory", "started_at", "ended_at")
    starts = (
        drivers.with_columns(line.str.split("\n"))
        .with_columns(n_starts=line.list.len())
        .explode("starts")
        .with_columns(line.str.extract_groups(_START).struct.unnest())
    )
    moments = (
        pl.col(f"_{name}").str.to_datetime(time_zone="UTC", strict=False) for name in known[1:]
    )
    values = (pl.col("_directory"), *moments)
    return starts.with_columns(
        pl.coalesce(value, name).alias(name) for name, value in zip(known, values, strict=True)
    )


def _one_to_one(pairs: pl.DataFrame) -> pl.DataFrame:
    """Pairs without those that others rule out; ``is_ambiguous`` where too many are left.

    Where people work in the same directories, a driver has one transcript for each of its
    parts or starts; or more, if together they wrote exactly the tokens that it recorded.
    """
    is_sole = pl.len().over(TRANSCRIPT) == 1
    for _ in range(_ROUNDS):
        n_before = pairs.height
        # A driver with all of its transcripts is no candidate for those of others.
        pairs = (
            pairs.with_columns(is_sole=is_sole)
            .with_columns(n_own=pl.col("is_sole").sum().over(_DRIVER))
            .filter(
                pl.col("is_sole") | ~pl.col("is_shared") | (pl.col("n_own") < pl.col("n_parts"))
            )
        )
        if pairs.height == n_before:
            break
    has_tokens = pl.col("is_shared") & (pl.col("n_output") > 0)
    judged = pairs.with_columns(
        is_sole=is_sole,
        is_too_many=pl.col("is_shared") & (pl.len().over(_DRIVER) > pl.col("n_parts")),
        is_all=has_tokens & (pl.col("told_output").sum().over(_DRIVER) == pl.col("n_output")),
        is_same=has_tokens & (pl.col("told_output") == pl.col("n_output")),
    ).with_columns(pl.col("is_all", "is_same").fill_null(value=False))
    # Pairs that only the number of tokens can decide: it must match exactly one time.
    is_open = (pl.col("is_too_many") & ~pl.col("is_all")) | ~pl.col("is_sole")
    is_only = [pl.col("is_same").sum().over(key) == 1 for key in (_DRIVER, TRANSCRIPT)]
    paired = judged.filter(is_open & pl.col("is_same"), *is_only)
    rest = judged.join(paired, on=_DRIVER, how="anti").join(paired, on=TRANSCRIPT, how="anti")
    is_ambiguous = ~is_sole | (
        pl.col("is_shared") & (pl.len().over(_DRIVER) > pl.col("n_parts")) & ~pl.col("is_all")
    )
    return pl.concat(
        [
            paired.with_columns(is_ambiguous=pl.lit(value=False)),
            rest.with_columns(is_ambiguous=is_ambiguous),
        ]
    )


def _with_subagents(direct: pl.DataFrame, transcripts: pl.DataFrame) -> pl.DataFrame:
    """Links, and those of the subagents of linked transcripts, at any depth."""
    children = transcripts.drop_nulls("parent").select(*TRANSCRIPT, "parent")
    parent = ["told_source", "told_system", "parent"]
    known, newest = direct, direct
    while newest.height:
        above = newest.drop("parent", "place", strict=False).rename({"told_id": "parent"})
        newest = (
            above.join(children, on=parent, how="inner")
            .join(known, on=TRANSCRIPT, how="anti")
            .with_columns(linked_by=pl.lit("parent"), place="parent")
        )
        known = pl.concat([known, newest], how="diagonal")
    return known


def is_driven(entities: pl.DataFrame, uncounted: pl.DataFrame | None = None) -> pl.Series:
    """Whether a session of another system counts the work of a row, as ``is_driven``.

    Parameters
    ----------
    entities : polars.DataFrame
        All rows of ``entities``: the columns of `NEEDED`, and ``session_id``.
    uncounted : polars.DataFrame, optional
        Keys of sessions that are not counted, so that their transcripts are.

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
    transcripts = driven.select(
        source="told_source",
        system="told_system",
        session_id="told_id",
        is_driven=pl.lit(value=True),
    )
    key = ["source", "system", "session_id"]
    rows = entities.select(key).join(transcripts, on=key, how="left", maintain_order="left")
    return rows["is_driven"].fill_null(value=False)


def _counted_links(entities: pl.DataFrame, uncounted: pl.DataFrame | None) -> pl.DataFrame:
    """The links whose driver counts the work."""
    found = links(entities)
    if found.is_empty():
        return found
    counted = found.lazy().filter("is_counted_by_driver")
    if uncounted is not None:
        counted = counted.join(uncounted.lazy(), on=_DRIVER, how="anti")
    return counted.collect()


def with_usage(entities: pl.DataFrame, uncounted: pl.DataFrame | None = None) -> pl.DataFrame:
    """Entities, in which drivers have the usage of their transcripts where they recorded less.

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
    last = (
        pl.col(name).drop_nulls().last().alias(f"{name}_driven") for name in ("model", "provider")
    )
    of_drivers = (
        driven.join(transcripts, on=TRANSCRIPT, how="inner")
        .sort("at", *TRANSCRIPT)
        .group_by(_DRIVER, maintain_order=True)
        .agg(total(*_USAGE).name.suffix("_driven"), *last)
    )
    joined = entities.join(of_drivers, on=_DRIVER, how="left", maintain_order="left")
    # A driver that failed may record zero, one of several rounds the last alone, and all may leave
    # the tokens of the cache out.
    return joined.with_columns(
        *(pl.max_horizontal(name, f"{name}_driven").alias(name) for name in _USAGE),
        *(pl.coalesce(name, f"{name}_driven").alias(name) for name in ("model", "provider")),
    ).select(entities.columns)


COUNTS = (
    *("n_input_tokens", "n_cache_read_tokens", "n_cache_write_tokens"),
    *("n_cache_write_1h_tokens", "n_output_tokens"),
)
USED = schema.Frame(
    "used_tokens",
    "what one session used of one model at one moment",
    (*(column.name for column in KEY_COLUMNS), "at", "model"),
    (
        *KEY_COLUMNS,
        Column("at", schema.MOMENT, "when; null: not known"),
        Column("model", TEXT, "model id; null: not known"),
        Column("n_input_tokens", INTEGER, "all tokens read, cached ones included", "tokens"),
        Column("n_cache_read_tokens", INTEGER, "of those: from a cache", "tokens"),
        Column("n_cache_write_tokens", INTEGER, "of those: written into a cache", "tokens"),
        Column("n_cache_write_1h_tokens", INTEGER, "of those written: for an hour", "tokens"),
        Column("n_output_tokens", INTEGER, "tokens written, reasoning included", "tokens"),
        Column("longest_prompt_tokens", INTEGER, "of its longest prompt; null: unknown", "tokens"),
        Column("is_cost_recorded", schema.YES_NO, "a recorded cost includes them; null: not known"),
        Column("cost_usd", schema.REAL, "their recorded cost; null: not by itself", "USD"),
    ),
)


def program_versions(facts: Facts) -> pl.DataFrame:
    """The version of the agent's program by session, where a system records it.

    Returns
    -------
    polars.DataFrame
        ``source``, ``entity_id`` and ``program_version``.
    """
    parts = [
        pl.LazyFrame(schema=dict.fromkeys(("source", "entity_id", "program_version"), pl.String))
    ]
    for name, shape in detail_frames().items():
        is_of_sessions = shape.key in (("source", "thread_id"), ("source", "session_id"))
        if name in facts.details and is_of_sessions and "program_version" in shape.dtypes:
            columns = ("source", pl.col(shape.key[1]).alias("entity_id"), "program_version")
            parts.append(facts.detail(shape).lazy().select(columns))
    known = pl.concat(parts).drop_nulls()
    return known.unique(["source", "entity_id"], keep="first").collect()


def used_tokens(facts: Facts, periods: Iterable[pl.Expr] = ()) -> pl.DataFrame:
    """What sessions used at each moment, where a system records tokens by model.

    Parameters
    ----------
    facts : Facts
        With the detail frames.
    periods : iterable of polars.Expr
        Of ``at``, such as its day: columns of the result.

    Returns
    -------
    polars.DataFrame
        `USED` up to as-of, and the periods. Without tokens there is no row.
    """
    used = [
        USED.conform(
            known.used_tokens(facts).with_columns(
                system=pl.lit(known.name), entity_type=pl.lit("session")
            )
        )
        for known in all_systems()
        if known.used_tokens is not None and (facts.sources["system"] == known.name).any()
    ]
    is_past = (pl.col("at") <= instant(facts.as_of)).fill_null(value=True)
    key, counts = (*(column.name for column in KEY_COLUMNS), "model"), pl.col(COUNTS)
    # Tokens of a kind that a session never reports are unknown; else a request has none of them.
    is_reported = counts.is_not_null().any().over(key)
    return collected(
        pl.concat([USED.empty(), *used])
        .lazy()
        .filter(is_past, pl.sum_horizontal(COUNTS) > 0)
        .with_columns(pl.when(is_reported).then(counts.fill_null(0)), *periods)
    )

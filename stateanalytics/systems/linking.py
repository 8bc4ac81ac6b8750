"""Work that two systems recorded, and the tokens that each session used."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from stateanalytics.core.facts import Facts, pool
from stateanalytics.core.schema import (
    ENTITIES,
    FINDINGS,
    INTEGER,
    KEY_COLUMNS,
    MOMENT,
    REAL,
    TEXT,
    YES_NO,
    Column,
    Frame,
)
from stateanalytics.io.findings import per_entity
from stateanalytics.systems import all_systems
from stateanalytics.systems.situations import evidence

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
_START = r"^(?P<_started_at>\S+) (?P<_ended_at>\S+) (?P<_directory>.+)$"
_USAGE = (
    *("n_input_tokens", "n_output_tokens", "n_cache_read_tokens", "n_cache_write_tokens"),
    "cost_usd",
)
_TOLD = ["told_source", "told_system", "told_id"]
_DRIVER = [column.name for column in KEY_COLUMNS]
_SLACK = timedelta(seconds=60)
# A driver that starts its agent itself goes by the same clock, which transcripts round; an agent
# that it stops may still write its last lines.
_ROUNDING = timedelta(seconds=0.1)
_LAST_LINES = timedelta(seconds=5)
# Each settles what the one before left over; what is left after these stays ambiguous.
_ROUNDS = 50
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
    by_id, by_place, told = _candidates(entities)
    if told.is_empty():
        return LINKS.empty()
    by_place = by_place.filter(~pl.col("is_ambiguous"))
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


def ambiguous_links(entities: pl.DataFrame) -> pl.DataFrame:
    """Sessions whose transcripts cannot be told from those of others in their directory.

    Parameters
    ----------
    entities : polars.DataFrame
        As for `links`.

    Returns
    -------
    polars.DataFrame
        Findings ``link.ambiguous``, one a session, with how many transcripts may be its.
    """
    _, by_place, _ = _candidates(entities)
    of = by_place.filter("is_ambiguous")
    counts = of.group_by(_DRIVER).agg(n_rows=pl.len()).sort(_DRIVER)
    message = pl.format("{} transcripts of its directory and time, not all can be its", "n_rows")
    found = [
        per_entity(
            rows,
            source,
            system,
            "link.ambiguous",
            severity="info",
            message=message,
            column="directory",
            action="not linked: where they are its work, it is counted twice",
        )
        for (source, system), rows in counts.group_by("source", "system", maintain_order=True)
    ]
    return pool(found, FINDINGS)


def _candidates(entities: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Pairs that fit by id, those that fit by place and time, and all transcripts."""
    drives = [known.name for known in all_systems() if known.drives_agents]
    shares = [known.name for known in all_systems() if known.shares_directories]
    parts = [name for known in all_systems() for name in known.part_types]
    systems = set(entities["system"].unique())
    if systems.isdisjoint(drives) or systems <= {*drives}:
        none = LINKS.empty().with_columns(is_ambiguous=pl.lit(value=False))
        return none, none, LINKS.empty()
    # Two rows of one key are one session, whoever tells it.
    sessions = ENTITIES.conform(entities.filter(pl.col("entity_type") == "session")).unique(
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
    ended = pl.coalesce("ended_at", "last_activity_at")
    names = [known.name for known in all_systems()]
    agents = [pl.col(name).str.replace_all("-", "_") for name in ("agent", "provider")]
    is_shared = pl.col("system").is_in(shares)
    slack = pl.when(is_shared & pl.col("ended_at").is_not_null()).then(_ROUNDING).otherwise(_SLACK)
    legs = (
        entities.filter(pl.col("entity_type").is_in(parts))
        .group_by("source", "system", "session_id")
        .agg(n_parts=pl.col("entity_id").n_unique())
    )
    drivers = (
        _each_start(sessions.filter(is_driver))
        .join(
            legs,
            left_on=["source", "system", "entity_id"],
            right_on=["source", "system", "session_id"],
            how="left",
            maintain_order="left",
        )
        .select(
            *_DRIVER,
            *("recorded_by", "native_session_id"),
            is_shared=is_shared,
            n_parts=pl.max_horizontal("n_parts", "n_starts", pl.lit(1)),
            n_output="n_output_tokens",
            place=place,
            begin=started - pl.when(is_shared).then(_ROUNDING).otherwise(_SLACK),
            until=ended + slack,
            # A session that ended has no agent that goes on.
            closed=pl.when(is_shared).then(pl.col("ended_at") + _LAST_LINES),
            agent_system=pl.coalesce(
                *(pl.when(each.is_in(names)).then(each) for each in agents),
                pl.when(is_shared).then("provider"),
            ),
        )
    )
    told = sessions.filter(~is_driver).select(
        told_source="source",
        told_system="system",
        told_id="entity_id",
        parent=pl.when(pl.col("kind") == "subagent").then("parent_id"),
        place=place,
        at=started,
        last=pl.max_horizontal("ended_at", "last_activity_at"),
        told_output="n_output_tokens",
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
    # Of a time that is not known nothing is ruled out.
    first, last = pl.lit(datetime.min, MOMENT), pl.lit(datetime.max, MOMENT)
    placed = drivers.drop_nulls("place").with_columns(
        pl.col("begin").fill_null(first), pl.col("until").fill_null(last)
    )
    undated = unnamed.filter(pl.col("at").is_null())
    fits = (
        pl.concat(
            [_within(placed, unnamed.drop_nulls("at")), placed.join(undated, on="place")],
            how="diagonal",
        )
        .filter(
            (pl.col("agent_system") == pl.col("told_system")).fill_null(value=True),
            (pl.col("last") <= pl.col("closed")).fill_null(value=True),
        )
        .unique([*_DRIVER, *_TOLD], keep="first", maintain_order=True)
        .sort(*_DRIVER, *_TOLD)
    )
    return by_id, _one_to_one(fits), told


def _within(placed: pl.DataFrame, dated: pl.DataFrame) -> pl.DataFrame:
    """Pairs of one place whose transcript began in the driver's time.

    What fits stands together once transcripts are in order, so that its ends are looked up:
    to compare all pairs of a place takes minutes where thousands ran in one.
    """
    ordered = dated.sort("at", *_TOLD).with_columns(
        position=pl.int_range(pl.len(), dtype=pl.Int64).over("place")
    )
    ends = ordered.select("place", "at", "position")
    for name in ("begin", "until"):
        found = ends.rename({"at": f"{name}_at", "position": f"{name}_position"})
        placed = placed.sort(name).join_asof(
            found,
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
    """A row each time that a session was started, with when and where; ``n_starts`` of them."""
    line = pl.col("starts")
    known = ("directory", "started_at", "ended_at")
    each = (
        drivers.with_columns(line.str.split("\n"))
        .with_columns(n_starts=line.list.len())
        .explode("starts")
        .with_columns(line.str.extract_groups(_START).struct.unnest())
    )
    moments = (
        pl.col(f"_{name}").str.to_datetime(time_zone="UTC", strict=False) for name in known[1:]
    )
    values = (pl.col("_directory"), *moments)
    return each.with_columns(
        pl.coalesce(value, name).alias(name) for name, value in zip(known, values, strict=True)
    )


def _one_to_one(fits: pl.DataFrame) -> pl.DataFrame:
    """Pairs without those that others rule out; ``is_ambiguous`` where too many are left.

    Where people work in the same directories, a driver has as many transcripts as it has
    parts or starts; or more, if they wrote just as many tokens as it tells.
    """
    is_sole = pl.len().over(_TOLD) == 1
    for _ in range(_ROUNDS):
        n_before = fits.height
        # Who has all its own has no part in what may be of another.
        fits = (
            fits.with_columns(is_sole=is_sole)
            .with_columns(n_own=pl.col("is_sole").sum().over(_DRIVER))
            .filter(
                pl.col("is_sole") | ~pl.col("is_shared") | (pl.col("n_own") < pl.col("n_parts"))
            )
        )
        if fits.height == n_before:
            break
    tells = pl.col("is_shared") & (pl.col("n_output") > 0)
    judged = fits.with_columns(
        is_sole=is_sole,
        is_too_many=pl.col("is_shared") & (pl.len().over(_DRIVER) > pl.col("n_parts")),
        is_all=tells & (pl.col("told_output").sum().over(_DRIVER) == pl.col("n_output")),
        is_same=tells & (pl.col("told_output") == pl.col("n_output")),
    ).with_columns(pl.col("is_all", "is_same").fill_null(value=False))
    # What can be told only by the tokens: of each but one that has just as many.
    is_open = (pl.col("is_too_many") & ~pl.col("is_all")) | ~pl.col("is_sole")
    is_one = [pl.col("is_same").sum().over(whose) == 1 for whose in (_DRIVER, _TOLD)]
    paired = judged.filter(is_open & pl.col("is_same"), *is_one)
    rest = judged.join(paired, on=_DRIVER, how="anti").join(paired, on=_TOLD, how="anti")
    is_ambiguous = ~is_sole | (
        pl.col("is_shared") & (pl.len().over(_DRIVER) > pl.col("n_parts")) & ~pl.col("is_all")
    )
    return pl.concat(
        [
            paired.with_columns(is_ambiguous=pl.lit(value=False)),
            rest.with_columns(is_ambiguous=is_ambiguous),
        ]
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
    joined = entities.join(of_drivers, on=_DRIVER, how="left", maintain_order="left")
    # A driver that failed may tell zero of what was used, or tokens without those of the cache.
    tells_none = pl.all_horizontal(pl.col(_USAGE).fill_null(0) == 0)
    own = pl.when(
        ~tells_none | pl.all_horizontal(pl.col(f"{name}_told").is_null() for name in _USAGE)
    )
    return joined.with_columns(
        *(
            pl.max_horizontal(name, f"{name}_told").alias(name)
            for name in _USAGE
            if name != "cost_usd"
        ),
        own.then("cost_usd").otherwise(pl.coalesce("cost_usd_told", "cost_usd")).alias("cost_usd"),
        *(pl.coalesce(name, f"{name}_told").alias(name) for name in ("model", "provider")),
    ).select(entities.columns)


COUNTS = (
    *("n_input_tokens", "n_cache_read_tokens", "n_cache_write_tokens"),
    *("n_cache_write_1h_tokens", "n_output_tokens"),
)
USED = Frame(
    "used_tokens",
    "what one session used of one model at one moment",
    (*(column.name for column in KEY_COLUMNS), "at", "model"),
    (
        *KEY_COLUMNS,
        Column("at", MOMENT, "when; null: nothing says"),
        Column("model", TEXT, "model id; null: nothing says"),
        Column("n_input_tokens", INTEGER, "tokens read in whatever way", "tokens"),
        Column("n_cache_read_tokens", INTEGER, "of those: from a cache", "tokens"),
        Column("n_cache_write_tokens", INTEGER, "of those: put into one", "tokens"),
        Column("n_cache_write_1h_tokens", INTEGER, "of these: for an hour", "tokens"),
        Column("n_output_tokens", INTEGER, "tokens written, those of reasoning too", "tokens"),
        Column("is_cost_recorded", YES_NO, "their cost is part of a reported one; null: not known"),
    ),
)


def used_tokens(facts: Facts) -> pl.DataFrame:
    """Tokens of sessions by model, as far as their systems tell them so.

    Parameters
    ----------
    facts : Facts
        With the detail frames.

    Returns
    -------
    polars.DataFrame
        By ``source``, ``system``, ``entity_type``, ``entity_id``, ``model`` and
        ``is_cost_recorded``: `COUNTS`, of all up to as-of. What has no token has no row.
    """
    told = [
        USED.conform(
            known.used_tokens(facts).with_columns(
                system=pl.lit(known.name), entity_type=pl.lit("session")
            )
        )
        for known in all_systems()
        if known.used_tokens is not None and (facts.sources["system"] == known.name).any()
    ]
    by_then = (pl.col("at") <= facts.as_of).fill_null(value=True)
    key = (*(column.name for column in KEY_COLUMNS), "model", "is_cost_recorded")
    sums = [pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()) for name in COUNTS]
    return (
        pl.concat([USED.empty(), *told])
        .filter(by_then, pl.sum_horizontal(COUNTS) > 0)
        .group_by(key, maintain_order=True)
        .agg(total.alias(name) for total, name in zip(sums, COUNTS, strict=True))
    )

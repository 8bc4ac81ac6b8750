"""One thing that several inputs tell: it is counted once, as it was last seen.

A copy, a backup, a store beside its migrated self, a database beside its export, two
snapshots of one directory: all of them are observations of the same work. What says so is
content, not names: an entity is the same where its type, id and moment of creation are. Of
an entity the latest observation holds; of its history, which is only ever added to, all do,
so that what was pruned since is kept. Inputs whose ids are alike and whose moments of
creation are not were written by different fleets, and stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.connected import components
from stateanalytics.core.facts import pool
from stateanalytics.io.as_of import newest_proven
from stateanalytics.io.findings import counted
from stateanalytics.io.parts import Digested, Parts, digested

_THING = ("entity_type", "entity_id", "created_at")
# What of a row of history is the same in every copy: not its number, and no text that one
# format keeps and another does not.
CHANGE = ("entity_type", "entity_id", "at", "previous_status", "status")
EVENT = ("entity_type", "entity_id", "at", "kind", "role", "name")
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Observed:
    """What is left of several inputs once each thing is told by one of them.

    Attributes
    ----------
    parts : tuple of Parts
        As many as there were, in their order; one whose work another tells has no rows left.
    same_as : mapping of str to str
        By the label of each input whose work another tells, the label of that other.
    findings : polars.DataFrame
        ``source.same_content``, ``source.same_work`` and ``source.ids_collide``, in the
        shape of `schema.FINDINGS`.
    """

    parts: tuple[Parts, ...]
    same_as: Mapping[str, str]
    findings: pl.DataFrame


def digests(parts: Sequence[Parts], before: Digested | None = None) -> list[Digested]:
    """The fingerprint of what was read of each input, wherever it lies and however it is labelled.

    Numbers of rows are left out too: compacting a file may change them.
    """
    unknown = [part for part in parts if not part.fingerprint]
    found = iter(
        digested(
            [
                [
                    frame.drop("source", "seq", strict=False)
                    for frame in (part.entities, part.transitions, part.events)
                ]
                for part in unknown
            ],
            before,
        )
    )
    return [Digested(part.fingerprint) if part.fingerprint else next(found) for part in parts]


def observe_once(
    parts: Sequence[Parts], digests: Sequence[str], frames: Mapping[str, schema.Frame]
) -> Observed:
    """Tell each thing once, however many inputs tell it.

    Parameters
    ----------
    parts : sequence of Parts
        What was read, each with its label.
    digests : sequence of str
        The fingerprint of each, by `digests`.
    frames : mapping of str to Frame
        The shapes of the detail frames, by name.

    Returns
    -------
    Observed

    Notes
    -----
    Of two inputs the later observation is the one that proves the newer moment; of two that
    prove the same, the one that a writer has open, then the larger one, then the one that
    was named first. Two inputs tell the same work where more of the ids that they share were
    created at the same moment than were not.
    """
    kept, same_as, findings = _without_copies(parts, digests)
    left = list(parts)
    for i in same_as:
        left[i] = _emptied(parts[i])
    for group in _groups(parts, kept):
        group_findings, merged = _merged([parts[i] for i in group], frames)
        for i, part in zip(group, merged, strict=True):
            left[i] = part
            if i != group[-1]:
                same_as[i] = group[-1]
        findings += group_findings
    labels = {parts[i].label: parts[_last(same_as, i)].label for i in same_as}
    findings += _collisions(left)
    return Observed(tuple(left), labels, pool(findings, schema.FINDINGS))


def _last(same_as: Mapping[int, int], i: int) -> int:
    """Who tells the work of an input, where that one's is told by a third."""
    while i in same_as:
        i = same_as[i]
    return i


def _without_copies(
    parts: Sequence[Parts], digests: Sequence[str]
) -> tuple[list[int], dict[int, int], list[pl.DataFrame]]:
    """The inputs that hold rows of their own, the copies of them, and what to say of these."""
    first: dict[tuple[str, str], int] = {}
    copies: dict[int, int] = {}
    findings = []
    for i, (part, content) in enumerate(zip(parts, digests, strict=True)):
        if not part.system or part.entities.is_empty():
            continue
        original = first.setdefault((part.system, content), i)
        if original != i:
            copies[i] = original
            findings.append(
                _finding(
                    part,
                    "source.same_content",
                    part.entities.height,
                    f"holds the same as {parts[original].label}",
                    action="counted once",
                )
            )
    return list(first.values()), copies, findings


def _groups(parts: Sequence[Parts], kept: Sequence[int]) -> list[list[int]]:
    """The inputs that tell the same work, oldest observation first; only where there are two."""
    pairs = [(i, n) for n, pair in enumerate(_same_work(parts, kept)) for i in pair]
    links = pl.DataFrame(pairs, schema={"node": pl.Int64, "id": pl.Int64}, orient="row")
    component = components(len(parts), links)
    groups: dict[int, list[int]] = {}
    for i in kept:
        groups.setdefault(component[i], []).append(i)
    several = [group for group in groups.values() if len(group) > 1]
    return [sorted(group, key=lambda i: _observed(parts[i], i)) for group in several]


def _observed(part: Parts, place: int) -> tuple[datetime, bool, int, int]:
    """What orders observations: when, then which is to be believed at one moment."""
    return (newest_proven([part]) or _LONG_AGO, part.is_live, part.size_bytes, -place)


def _same_work(parts: Sequence[Parts], kept: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of inputs of one system most of whose common ids were created together."""
    things = [
        parts[i].entities.select(*_THING, input=pl.lit(i), system=pl.lit(parts[i].system))
        for i in kept
    ]
    if len(things) < 2:
        return []
    dated = pl.concat(things).filter(pl.col("created_at").is_not_null())
    hub = pl.col("input").min().over("system", *_THING)
    pairs = (
        dated.with_columns(hub=hub)
        .filter(pl.col("hub") != pl.col("input"))
        .group_by("hub", "input")
        .agg(n_same=pl.len())
        .sort("hub", "input")
    )
    return [
        (a, b)
        for a, b, n_same in pairs.iter_rows()
        if n_same > _n_other(parts[a].entities, parts[b].entities)
    ]


def _n_other(one: pl.DataFrame, other: pl.DataFrame) -> int:
    """How many ids two inputs share that were not created at the same moment."""
    keys = list(_THING[:2])
    shared = one.select(_THING).join(other.select(_THING), on=keys, how="inner", suffix="_other")
    return shared.filter(pl.col("created_at") != pl.col("created_at_other")).height


def _merged(
    group: Sequence[Parts], frames: Mapping[str, schema.Frame]
) -> tuple[list[pl.DataFrame], list[Parts]]:
    """What to say of observations of one work, and the last of them with the rows of all."""
    latest = group[-1]
    whole = as_last_seen(group, frames)
    n_before = sum(part.entities.height for part in group)
    findings = [
        _finding(
            part,
            "source.same_work",
            part.entities.height,
            f"tells work that {latest.label} tells too, as it was later",
            action="each thing counted once, as last seen; its history is that of both",
            example=f"{n_before} rows tell {whole.entities.height} things",
        )
        for part in group[:-1]
    ]
    return findings, [*(_emptied(part) for part in group[:-1]), whole]


def as_last_seen(group: Sequence[Parts], frames: Mapping[str, schema.Frame]) -> Parts:
    """Observations of one work, oldest first, as the last one with the rows of all.

    Parameters
    ----------
    group : sequence of Parts
        At least one.
    frames : mapping of str to Frame
        The shapes of the detail frames, by name.

    Returns
    -------
    Parts
        Of each thing the row of its latest observation; of its history, what any tells.
    """
    names = dict.fromkeys(name for part in group for name in part.details)
    every = [part.events for part in group]
    events = _union(group, every, EVENT)
    return replace(
        group[-1],
        entities=_latest_rows(
            group, [part.entities for part in group], ["entity_type", "entity_id"]
        ),
        transitions=_union(group, [part.transitions for part in group], CHANGE),
        events=events.filter(~is_owned_elsewhere(events, every)),
        details={
            name: _latest_rows(
                group,
                [part.details.get(name, frames[name].empty()) for part in group],
                [column for column in frames[name].key if column != "source"],
            )
            for name in names
        },
    )


def _latest_rows(
    group: Sequence[Parts], frames: Sequence[pl.DataFrame], key: Sequence[str]
) -> pl.DataFrame:
    """Of each thing the row of its latest observation, under the label of the last input."""
    label = pl.lit(group[-1].label).alias("source")
    stacked = pl.concat([frame.with_columns(label) for frame in frames])
    # What has no name cannot be told from its like, so that all of it stays.
    named = pl.all_horizontal(pl.col(column).is_not_null() for column in key)
    return pl.concat(
        [
            stacked.filter(named).unique(key, keep="last", maintain_order=True),
            frames[-1].with_columns(label).filter(~named),
        ]
    )


def _union(
    group: Sequence[Parts], frames: Sequence[pl.DataFrame], key: Sequence[str]
) -> pl.DataFrame:
    """All that any observation tells of the history, each row once, in order of time.

    Rows that are alike within one input are different rows: the first of them is the first
    of the other input, and so on.
    """
    label = pl.lit(group[-1].label).alias("source")
    nth = pl.int_range(pl.len()).over(key).alias("_nth")
    stacked = pl.concat([frame.with_columns(label, nth) for frame in frames])
    same = [*key, "_nth"]
    if "body" in stacked.columns and stacked["body"].count():
        # An observation that was read without texts does not take away those of one before.
        stacked = stacked.with_columns(pl.col("body").forward_fill().over(same))
    once = stacked.unique(same, keep="last", maintain_order=True)
    return once.sort("at", "seq", nulls_last=True, maintain_order=True).drop("_nth")


def is_owned_elsewhere(events: pl.DataFrame, observations: Sequence[pl.DataFrame]) -> pl.Series:
    """Which events of nobody are events of somebody by the word of some observation.

    Parameters
    ----------
    events : polars.DataFrame
        In the shape of `schema.EVENTS`.
    observations : sequence of polars.DataFrame
        The events that each observation of the same work tells.

    Returns
    -------
    polars.Series of Boolean
        In the order of ``events``.

    Notes
    -----
    Where work is pruned its messages may stay behind, and then nothing names whose they are.
    Of events that are alike but for that, as many are of nobody as one observation tells
    beyond all that are of somebody.
    """
    is_of_nobody = pl.col("entity_id").is_null()
    alike = [*(name for name in EVENT if name not in _THING), "size_bytes"]
    unowned = events.filter(is_of_nobody).select(alike).unique()
    if unowned.is_empty():
        return pl.repeat(value=False, n=events.height, eager=True)
    key = [*EVENT, "size_bytes"]
    told = [
        frame.select(key)
        .join(unowned, on=alike, how="semi", nulls_equal=True)
        .with_columns(_nth=pl.int_range(pl.len()).over(key))
        for frame in observations
    ]
    counts = pl.concat(frame.group_by(alike).agg(n=pl.len().cast(pl.Int64)) for frame in told)
    owned = pl.concat(told).filter(~is_of_nobody).unique([*key, "_nth"])
    room = (
        counts.group_by(alike)
        .agg(pl.col("n").max())
        .join(owned.group_by(alike).len("n_owned"), on=alike, how="left", nulls_equal=True)
        .select(*alike, room=pl.col("n") - pl.col("n_owned").fill_null(0))
    )
    place = pl.int_range(pl.len()).over([*alike, is_of_nobody])
    rows = events.join(room, on=alike, how="left", nulls_equal=True, maintain_order="left")
    return rows.select(is_of_nobody & (place >= pl.col("room")).fill_null(value=False)).to_series()


def _emptied(part: Parts) -> Parts:
    return replace(
        part,
        entities=part.entities.clear(),
        transitions=part.transitions.clear(),
        events=part.events.clear(),
        details={name: frame.clear() for name, frame in part.details.items()},
    )


def _collisions(parts: Iterable[Parts]) -> list[pl.DataFrame]:
    """Ids that inputs of one system share although they are of different work."""
    rows = [
        part.entities.select("source", "system", *_THING) for part in parts if part.entities.height
    ]
    if len(rows) < 2:
        return []
    shared = (
        pl.concat(rows)
        .filter(pl.col("entity_id").is_not_null())
        .filter(pl.col("source").n_unique().over("system", *_THING[:2]) > 1)
        .group_by("source", "system")
        .agg(n=pl.len(), example=pl.col("entity_id").min())
        .sort("source")
    )
    return [
        counted(
            source,
            system,
            "source.ids_collide",
            "info",
            "ids that another input uses for work of its own, created at another moment",
            n_rows=n,
            table="entities",
            column="entity_id",
            example=example,
            action="told apart by their input",
        )
        for source, system, n, example in shared.iter_rows()
    ]


def _finding(
    part: Parts, code: str, n_rows: int, message: str, *, action: str, example: str | None = None
) -> pl.DataFrame:
    return counted(
        part.label,
        part.system,
        code,
        "warning",
        message,
        n_rows=n_rows,
        table="entities",
        example=example,
        action=action,
    )

"""Work that several inputs recorded is counted once, as it was last seen.

A copy, a backup, a store and its migrated successor, a database and its export, two snapshots
of one directory: all are observations of the same work. Content shows this, not names: an
entity is the same where its type, id and moment of creation are equal. The latest observation
of an entity holds; of its history, which only ever grows, all observations do, so that rows
that were pruned since are kept. Inputs with equal ids and different moments of creation were
written by different fleets, and stay separate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Frames, map_frames, unevaluated
from stateanalytics.core.joins import connected_components
from stateanalytics.io.as_of import newest_proven
from stateanalytics.io.findings import all_findings, noted
from stateanalytics.io.parts import Parts

_IDENTITY = ("entity_type", "entity_id", "created_at")
# Columns of history that are equal in every copy: not the number of a row, and no text that
# one format keeps and another does not.
CHANGE = ("entity_type", "entity_id", "at", "previous_status", "status")
EVENT = ("entity_type", "entity_id", "at", "kind", "role", "name")
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def observe_once(
    parts: Sequence[Parts], digests: Sequence[str], frames: Mapping[str, schema.Frame]
) -> tuple[tuple[Parts, ...], Mapping[str, str], pl.DataFrame]:
    """Keep the rows of each entity in one input, however many inputs recorded it.

    Parameters
    ----------
    parts : sequence of Parts
        The inputs, each with its label.
    digests : sequence of str
        The fingerprint of each, from `digests`.
    frames : mapping of str to Frame
        The shapes of the detail frames, by name.

    Returns
    -------
    parts : tuple of Parts
        In the order of the inputs; an input has no rows if another one has all its work.
    same_as : mapping of str to str
        Label of each such input, to the label of the one that has its work.
    findings : polars.DataFrame
        ``source.same_content``, ``source.same_work`` and ``source.ids_collide``, in the
        shape of `schema.FINDINGS`.

    Notes
    -----
    The later observation of two is the one that proves the newer moment; if they prove the
    same, the one that a writer has open, then the larger one, then the one named first. Two
    inputs hold the same work if most of their shared ids were created at the same moments.
    """
    distinct, same_as, findings = _without_copies(parts, digests)
    remaining = list(parts)
    for i in same_as:
        remaining[i] = _emptied(parts[i])
    for group in _groups(parts, distinct):
        group_findings, merged = _merged([parts[i] for i in group], frames)
        for i, part in zip(group, merged, strict=True):
            remaining[i] = part
            if i != group[-1]:
                same_as[i] = group[-1]
        findings += group_findings
    labels = {}
    for i in same_as:
        final = i
        while final in same_as:  # a copy of an input that another one has all the work of
            final = same_as[final]
        labels[parts[i].label] = parts[final].label
    findings += _collisions(remaining)
    return tuple(remaining), labels, all_findings(*findings)


def _without_copies(
    parts: Sequence[Parts], digests: Sequence[str]
) -> tuple[list[int], dict[int, int], list[pl.DataFrame]]:
    """Inputs with content of their own, the original of each copy, and findings about copies."""
    first: dict[tuple[str, str], int] = {}
    copies: dict[int, int] = {}
    findings = []
    for i, (part, content) in enumerate(zip(parts, digests, strict=True)):
        if not part.system or part.entities.is_empty():
            continue
        original = first.setdefault((part.system, content), i)
        if original != i:
            copies[i] = original
            findings.append(_finding(part, "source.same_content", parts[original].label))
    return list(first.values()), copies, findings


def _groups(parts: Sequence[Parts], distinct: Sequence[int]) -> list[list[int]]:
    """Groups of two or more inputs with the same work, oldest observation first."""
    pairs = [(i, n) for n, pair in enumerate(_same_work(parts, distinct)) for i in pair]
    links = pl.DataFrame(pairs, schema={"node": pl.Int64, "id": pl.Int64}, orient="row")
    component = connected_components(len(parts), links)
    groups: dict[int, list[int]] = {}
    for i in distinct:
        groups.setdefault(component[i], []).append(i)

    def order(i: int) -> tuple[datetime, bool, int, int]:
        return (newest_proven([parts[i]]) or _LONG_AGO, parts[i].is_live, parts[i].size_bytes, -i)

    return [sorted(group, key=order) for group in groups.values() if len(group) > 1]


def _same_work(parts: Sequence[Parts], distinct: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of inputs of one system of which most shared ids were created at the same moment."""
    if len(distinct) < 2:
        return []
    whole = _identities([parts[i] for i in distinct], distinct)
    dated = whole.filter(pl.col("created_at").is_not_null())
    hub = pl.col("input").min().over("system", *_IDENTITY)
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
        if n_same > _n_reused_ids(parts[a].entities, parts[b].entities)
    ]


def _identities(parts: Sequence[Parts], numbers: Sequence[int]) -> pl.DataFrame:
    """What identifies each entity of the parts, the ``system``, and the ``input`` by its number."""
    of_parts = pl.DataFrame(
        {
            "input": list(numbers),
            "system": [part.system for part in parts],
            "n": [part.entities.height for part in parts],
        }
    )
    by_row = (
        of_parts.filter(pl.col("n") > 0)
        .select(pl.all().repeat_by("n"))
        .explode("input", "system", "n")
    )
    # Indexing by names takes a tenth of the time of a query, for each of a thousand parts.
    stacked = pl.concat([part.entities[list(_IDENTITY)] for part in parts])
    return stacked.with_columns(by_row["input"], by_row["system"])


def _n_reused_ids(a: pl.DataFrame, b: pl.DataFrame) -> int:
    """Number of ids in both inputs with different moments of creation."""
    shared = a.select(_IDENTITY).join(b.select(_IDENTITY), on=_IDENTITY[:2], suffix="_b")
    return shared.filter(pl.col("created_at") != pl.col("created_at_b")).height


def _merged(
    group: Sequence[Parts], frames: Mapping[str, schema.Frame]
) -> tuple[list[pl.DataFrame], list[Parts]]:
    """Findings about observations of the same work, and the last of them with the rows of all."""
    latest = group[-1]
    whole = as_last_seen(group, frames)
    n_before = sum(part.entities.height for part in group)
    example = f"{n_before} rows for {whole.entities.height} entities"
    findings = [
        _finding(part, "source.same_work", latest.label, example=example) for part in group[:-1]
    ]
    return findings, [*(_emptied(part) for part in group[:-1]), whole]


def as_last_seen(group: Sequence[Parts], frames: Mapping[str, schema.Frame]) -> Parts:
    """The last of several observations of the same work, with the rows of all.

    Parameters
    ----------
    group : sequence of Parts
        At least one, oldest first.
    frames : mapping of str to Frame
        The shapes of the detail frames, by name.

    Returns
    -------
    Parts
        Of each entity the row of its latest observation; of its history, the rows of all.
    """
    names = dict.fromkeys(name for part in group for name in part.details)
    # What is read late of a store is read now: the stores of earlier observations are closed.
    details = [
        part.details if part.stores and part is not group[-1] else unevaluated(part.details)
        for part in group
    ]
    observed_events, label = [part.events for part in group], group[-1].label
    events = _union(group, observed_events, EVENT)
    return replace(
        group[-1],
        entities=_latest_rows(
            label, ["entity_type", "entity_id"], *(part.entities for part in group)
        ),
        transitions=_union(group, [part.transitions for part in group], CHANGE),
        events=events.filter(~is_owned_elsewhere(events, observed_events)),
        details=Frames(
            {
                name: map_frames(
                    partial(_latest_rows, label, [k for k in frames[name].key if k != "source"]),
                    *(each.get(name, frames[name].empty()) for each in details),
                )
                for name in names
            }
        ),
    )


def _latest_rows(source: str, key: Sequence[str], *frames: pl.DataFrame) -> pl.DataFrame:
    """The latest row of each key, with the label of the last input."""
    label = pl.lit(source).alias("source")
    stacked = pl.concat([frame.with_columns(label) for frame in frames])
    # Rows without a key cannot be compared: all rows of the last observation stay.
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
    """The history of all observations without duplicates, in order of time.

    Equal rows within one input are different rows: the first of them equals the first in the
    other input, and so on.
    """
    label = pl.lit(group[-1].label).alias("source")
    nth = pl.int_range(pl.len()).over(key).alias("_nth")
    stacked = pl.concat([frame.with_columns(label, nth) for frame in frames])
    same = [*key, "_nth"]
    if "body" in stacked.columns and stacked["body"].count():
        # An observation that was read without texts does not remove those of an earlier one.
        stacked = stacked.with_columns(pl.col("body").forward_fill().over(same))
    distinct = stacked.unique(same, keep="last", maintain_order=True)
    return distinct.sort("at", "seq", nulls_last=True, maintain_order=True).drop("_nth")


def is_owned_elsewhere(events: pl.DataFrame, observations: Sequence[pl.DataFrame]) -> pl.Series:
    """Events without an owner that another observation records with an owner.

    Parameters
    ----------
    events : polars.DataFrame
        In the shape of `schema.EVENTS`.
    observations : sequence of polars.DataFrame
        The events of each observation of the same work.

    Returns
    -------
    polars.Series of Boolean
        In the order of ``events``.

    Notes
    -----
    Where work is pruned its messages may stay behind, without a trace of their owner. Of events
    that are equal except for the owner, so many have none as one observation has more than
    there are events with an owner.
    """
    has_no_owner = pl.col("entity_id").is_null()
    same = [*(name for name in EVENT if name not in _IDENTITY), "size_bytes"]
    unowned = events.filter(has_no_owner).select(same).unique()
    if unowned.is_empty():
        return pl.repeat(value=False, n=events.height, eager=True)
    key = [*EVENT, "size_bytes"]
    candidates = [
        frame.select(key)
        .join(unowned, on=same, how="semi", nulls_equal=True)
        .with_columns(_nth=pl.int_range(pl.len()).over(key))
        for frame in observations
    ]
    counts = pl.concat(frame.group_by(same).agg(n=pl.len().cast(pl.Int64)) for frame in candidates)
    owned = pl.concat(candidates).filter(~has_no_owner).unique([*key, "_nth"])
    room = (
        counts.group_by(same)
        .agg(pl.col("n").max())
        .join(owned.group_by(same).len("n_owned"), on=same, how="left", nulls_equal=True)
        .select(*same, room=pl.col("n") - pl.col("n_owned").fill_null(0))
    )
    place = pl.int_range(pl.len()).over([*same, has_no_owner])
    rows = events.join(room, on=same, how="left", nulls_equal=True, maintain_order="left")
    return rows.select(has_no_owner & (place >= pl.col("room")).fill_null(value=False)).to_series()


def _emptied(part: Parts) -> Parts:
    facts = ("entities", "transitions", "events")
    return replace(part, details={}, **{name: getattr(part, name).clear() for name in facts})


def _collisions(parts: Iterable[Parts]) -> list[pl.DataFrame]:
    """Findings about ids that inputs of one system share for different work."""
    kept = [part for part in parts if part.entities.height]
    if len(kept) < 2:
        return []
    labels = [part.label for part in kept]
    whole = _identities(kept, range(len(kept)))
    shared = (
        whole.with_columns(source=pl.Series(labels).gather(whole["input"]))
        .filter(pl.col("entity_id").is_not_null())
        .filter(pl.col("source").n_unique().over("system", *_IDENTITY[:2]) > 1)
        .group_by("source", "system")
        .agg(n=pl.len(), example=pl.col("entity_id").min())
        .sort("source")
    )
    return [
        noted(source, system, "source.ids_collide", n_rows=n, example=example)
        for source, system, n, example in shared.iter_rows()
    ]


def _finding(part: Parts, code: str, other: str, **more: Any) -> pl.DataFrame:
    return noted(part.label, part.system, code, other, n_rows=part.entities.height, **more)

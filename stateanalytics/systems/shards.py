"""An archive a few sources at a time, for whoever counts more than fits in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.io.archive.reading import Archived, work_of
from stateanalytics.io.as_of import as_utc
from stateanalytics.io.budget import Budget, spend
from stateanalytics.systems.places import Place, find_places
from stateanalytics.systems.pooling import Pooled, Reading
from stateanalytics.systems.reading import OnError, read_facts, read_place

MOST_ROWS = 5_000_000
"""Rows of entities, transitions and events that are read at once; a single source may have more."""


def facts_in_shards(
    named: Sequence[str | Path],
    *,
    as_of: datetime | None = None,
    on_error: OnError = "skip",
    most_rows: int = MOST_ROWS,
) -> Iterator[Facts]:
    """The facts of what paths name, of archives a few sources at a time.

    Parameters
    ----------
    named : sequence of str or pathlib.Path
        As for `read_facts`; what is no archive is read at once.
    as_of : datetime, optional
        The instant of all of them; by default the newest moment that any source proves.
    on_error : {"skip", "raise", "salvage"}
        As for `read_facts`.
    most_rows : int
        More are not read at once, but of sources that tell the same work.

    Yields
    ------
    Facts
        Of some sources, all at one instant; each source in one of them, and each work too.
    """
    places, _ = find_places(named)
    sources = [place.archived for place in places if place.archived is not None]
    known = [source.last_at for source in sources if source.last_at is not None]
    is_small = len(sources) < len(places) or sum(map(_n_rows, sources)) <= most_rows
    if is_small or not known:
        facts, stores = read_facts(named, as_of=as_of, on_error=on_error, shown=False)
        for store in stores:
            store.close()
        yield facts
        return
    given, began = None if as_of is None else as_utc(as_of), datetime.now(UTC)
    for shard in _shards(places, most_rows):
        with spend(Budget()):
            readings = [
                Reading.of(place, read_place(place, bodies=False, on_error=on_error), began)
                for place in shard
            ]
        yield Pooled.of(readings, ()).at(given, lambda: began, proven=max(known))


def _n_rows(source: Archived) -> int:
    frames = ("entities", "transitions", "events")
    return sum(shard.n_rows for run in source.runs for shard in run.shards if shard.frame in frames)


def _shards(places: Sequence[Place], most_rows: int) -> Iterator[list[Place]]:
    """Places that are read together; those of which nothing can be read go with the first."""
    unreadable = [place for place in places if place.archived and not place.archived.runs]
    shard, n_rows = unreadable, 0
    for group in _telling_the_same([place for place in places if place not in unreadable]):
        n_of_group = sum(_n_rows(place.archived) for place in group if place.archived)
        if n_rows and n_rows + n_of_group > most_rows:
            yield shard
            shard, n_rows = [], 0
        shard, n_rows = shard + group, n_rows + n_of_group
    yield shard


def _telling_the_same(places: Sequence[Place]) -> list[list[Place]]:
    """Places by the work that they tell, over any number of places in between; in their order."""
    works = [
        pl.DataFrame({"work": work_of(place.archived)}).with_columns(place=pl.lit(number))
        for number, place in enumerate(places)
        if place.archived
    ]
    leader = list(range(len(places)))
    if works:
        hubs = pl.concat(works).select("place", hub=pl.col("place").min().over("work")).unique()
        for place, hub in hubs.sort("place", "hub").iter_rows():
            old, new = _top(leader, place), _top(leader, hub)
            leader[max(old, new)] = min(old, new)
    groups: dict[int, list[Place]] = {}
    for number, place in enumerate(places):
        groups.setdefault(_top(leader, number), []).append(place)
    return list(groups.values())


def _top(leader: list[int], place: int) -> int:
    while leader[place] != place:
        place = leader[place]
    return place

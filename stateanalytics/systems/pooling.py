"""Inputs that were read, pooled at one instant, and what the next read reuses of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import (
    Facts,
    FrameOrFactory,
    Frames,
    changed_facts,
    map_frames,
    unevaluated,
)
from stateanalytics.core.joins import pool
from stateanalytics.io.archive.manifests import Look, digest_of_files
from stateanalytics.io.as_of import as_utc, future_findings, newest_proven
from stateanalytics.io.findings import counted
from stateanalytics.io.observations import Observed, digests, observe_once
from stateanalytics.io.parts import Digested, Parts
from stateanalytics.io.processes import state_of_store
from stateanalytics.systems import detail_frames
from stateanalytics.systems.history import rewound
from stateanalytics.systems.linking import ambiguous_links
from stateanalytics.systems.omissions import with_notes
from stateanalytics.systems.places import Place, companions_of, files_of


@dataclass(frozen=True)
class Reading:
    """One input as it was read.

    Attributes
    ----------
    place : Place
        What was read.
    part : Parts
        Its rows.
    digested : Digested
        The fingerprint of the rows.
    state : str or None
        A digest of its files, which changes when somebody writes to them; None: not known.
    """

    place: Place
    part: Parts
    digested: Digested
    state: str | None

    @classmethod
    def of(cls, place: Place, part: Parts, began: datetime, last: Reading | None = None) -> Reading:
        """The reading of a place that began at a time; ``last`` is the one before."""
        [reading] = cls.of_many([place], [part], began, last)
        return reading

    @classmethod
    def of_many(
        cls,
        places: Sequence[Place],
        parts: Sequence[Parts],
        began: datetime,
        last: Reading | None = None,
    ) -> list[Reading]:
        """The readings of places that were read together."""
        known = None if last is None else last.digested
        of_stores = [part.stores[0].state if part.stores else None for part in parts]
        return [
            cls(place, part, own, _state(place, part, began, of_store, part.opened))
            for place, part, own, of_store in zip(
                places, parts, digests(parts, known), of_stores, strict=True
            )
        ]

    @property
    def digest(self) -> str:
        """The fingerprint of its rows."""
        return self.digested.fingerprint

    def is_current(self, place: Place) -> bool:
        """Whether reading the place again would give the same."""
        if place != self.place or self.state is None:
            return False
        of_store = state_of_store(place.path) if self.part.stores else None
        return self.state == _state(place, self.part, datetime.now(UTC), of_store)

    @property
    def is_open(self) -> bool:
        """Whether all of its stores are open."""
        return all(store.is_open for store in self.part.stores)

    def reused(self, place: Place) -> Reading:
        """The same rows with new handles of its stores, and its place as it is now."""
        stores = tuple(store.share() for store in self.part.stores)
        return replace(self, place=place, part=replace(self.part, stores=stores))

    @property
    def look(self) -> Look | None:
        """When an archive collected it last."""
        return None if self.place.archived is None else self.place.archived.look


def _state(
    place: Place,
    part: Parts,
    now: datetime,
    of_store: str | None,
    opened: Sequence[str] | None = None,
) -> str | None:
    if part.stores and of_store is None:
        return None
    # The state of a store is more exact than sizes and times.
    if part.stores:
        files: Sequence[str | Path] = companions_of(place, part.system)
    else:
        files = files_of(place, part.system, opened)
    return digest_of_files([*files, *part.inputs], now, of_store) or None


@dataclass(frozen=True)
class Pooled:
    """Several inputs pooled, before an instant is chosen.

    Attributes
    ----------
    readings : tuple of Reading
        In the order in which they were named.
    duplicates : tuple of Place
        Inputs that were named a second time.
    observed : Observed
        The inputs without rows that another one has.
    """

    readings: tuple[Reading, ...]
    duplicates: tuple[Place, ...]
    observed: Observed

    @classmethod
    def of(cls, readings: Sequence[Reading], duplicates: Sequence[Place]) -> Pooled:
        """Pool inputs that were read."""
        parts, digests = zip(*((each.part, each.digest) for each in readings), strict=True)
        # Modules of other systems are not imported.
        frames = detail_frames(frozenset(part.system for part in parts))
        return cls(tuple(readings), tuple(duplicates), observe_once(parts, digests, frames))

    def with_readings(self, readings: Sequence[Reading]) -> Pooled:
        """The same rows, of inputs that an archive may have collected again without changes."""
        if [each.look for each in readings] == [each.look for each in self.readings]:
            return self
        return replace(self, readings=tuple(readings))

    def at(
        self,
        given: datetime | None,
        clock: Callable[[], datetime],
        *,
        proven: datetime | None = None,
    ) -> Facts:
        """The facts at the instant that was given, or at the newest one that the inputs prove.

        ``proven`` is the instant of a larger set of inputs, of which these are a part.
        """
        as_of, as_of_from = (
            (proven, "data") if given is None and proven else self._instant(given, clock)
        )
        is_given, parts = as_of_from == "given", self.observed.parts
        ahead = [] if is_given else [future_findings(part, part.label, as_of) for part in parts]
        of_parts = [part.findings for part in parts]
        findings = pool(
            [*of_parts, *ahead, *self._named_twice(), self.observed.findings], schema.FINDINGS
        )
        whole = changed_facts(self._whole, findings=findings, as_of=as_of, as_of_from=as_of_from)
        facts = with_notes(whole, rewound(whole, as_of)) if is_given else whole
        with_links = pool([facts.findings, ambiguous_links(facts.entities)], schema.FINDINGS)
        facts = changed_facts(facts, findings=with_links)
        return changed_facts(facts, sources=_counted(facts))

    def _instant(
        self, given: datetime | None, clock: Callable[[], datetime]
    ) -> tuple[datetime, str]:
        if given is not None:
            return given, "given"
        if not any(each.part.is_live for each in self.readings) and self._proven is not None:
            return self._proven, "data"
        return as_utc(clock()), "clock"

    @cached_property
    def _proven(self) -> datetime | None:
        return newest_proven([each.part for each in self.readings])

    def _sources(self) -> pl.DataFrame:
        """A row for each input; how many of its rows are used is counted later."""
        is_alone = len(self.readings) == 1
        rows = [
            {
                "source": whole.label,
                "system": whole.system,
                "format": whole.format,
                "size_bytes": whole.size_bytes,
                "is_live": whole.is_live,
                "first_at": first_at,
                "last_at": self._proven if is_alone else last_at,
                "fingerprint": each.digest,
                "same_as": self.observed.same_as.get(whole.label),
                "looked_at": None if archived is None else archived.looked_at,
                "is_unchanged": None if archived is None else archived.is_unchanged,
            }
            for each in self.readings
            for archived in [each.place.archived]
            if (whole := each.part).system
            for first_at, last_at in [whole.span or (_oldest(whole), newest_proven([whole]))]
        ]
        return schema.SOURCES.conform(pl.DataFrame(rows, schema_overrides=schema.SOURCES.dtypes))

    @cached_property
    def _whole(self) -> Facts:
        """All rows of the inputs, before an instant is chosen."""
        parts = self.observed.parts
        names = dict.fromkeys(name for part in parts for name in part.details)
        frames = detail_frames(frozenset(part.system for part in parts))
        return Facts(
            entities=pool([part.entities for part in parts], schema.ENTITIES),
            transitions=pool([part.transitions for part in parts], schema.TRANSITIONS),
            events=pool([part.events for part in parts], schema.EVENTS),
            findings=schema.FINDINGS.empty(),
            sources=self._sources(),
            as_of=datetime.max.replace(tzinfo=UTC),
            details=Frames(
                {
                    name: _pooled_lazily(
                        frames[name],
                        [unevaluated(part.details)[name] for part in parts if name in part.details],
                    )
                    for name in names
                }
            ),
            inputs=_inputs(self.readings),
        )

    def _named_twice(self) -> list[pl.DataFrame]:
        return [
            counted(
                place.label,
                "",
                "source.named_twice",
                "info",
                "the same file was named before",
                action="read once",
            )
            for place in self.duplicates
        ]


@dataclass(frozen=True)
class Memory:
    """What the next read of the same paths reuses.

    Attributes
    ----------
    readings : mapping of str to Reading
        By label.
    pooled : Pooled, optional
        All of them pooled.
    """

    readings: Mapping[str, Reading] = field(default_factory=dict)
    pooled: Pooled | None = None


def _pooled_lazily(shape: schema.Frame, frames: Sequence[FrameOrFactory]) -> FrameOrFactory:
    """Frames of one shape, pooled on demand; a single one stays, as it may be read in part."""
    if len(frames) == 1 and callable(frames[0]):
        return frames[0]
    return map_frames(partial(_pooled, shape), *frames)


def _pooled(shape: schema.Frame, *frames: pl.DataFrame) -> pl.DataFrame:
    return pool(frames, shape)


def _inputs(readings: Sequence[Reading]) -> tuple[Path, ...]:
    """All paths that were opened: of the places, their companions, and what these name."""
    companions = (
        path
        for each in readings
        for path in (*companions_of(each.place, each.part.system), *each.part.inputs)
    )
    return tuple(dict.fromkeys([*(each.place.path for each in readings), *companions]))


def _oldest(whole: Parts) -> datetime | None:
    first = [
        frame[column].min()
        for frame, column in (
            (whole.transitions, "at"),
            (whole.events, "at"),
            (whole.entities, "created_at"),
        )
    ]
    return pl.Series(first, dtype=schema.MOMENT).min()  # type: ignore[return-value]


def _counted(facts: Facts) -> pl.DataFrame:
    """The inputs, with how many rows of each are used."""
    frames = {
        "n_entities": facts.entities,
        "n_transitions": facts.transitions,
        "n_events": facts.events,
        "n_findings": facts.findings,
    }
    rows = facts.sources.drop(*frames)
    for name, frame in frames.items():
        n_rows = _by_source(frame, facts.sources["source"], name)
        rows = rows.join(n_rows, on="source", how="left", maintain_order="left")
    return schema.SOURCES.conform(rows.with_columns(pl.col(*frames).fill_null(0)))


def _by_source(frame: pl.DataFrame, sources: pl.Series, name: str) -> pl.DataFrame:
    """Number of rows by input; for a single input a comparison is faster."""
    if sources.len() == 1:
        n_rows = (frame["source"] == sources[0]).sum()
        return pl.DataFrame({"source": sources, name: [n_rows]}, schema_overrides={name: pl.UInt32})
    return frame["source"].value_counts(name=name)

"""Inputs that were read, pooled at one instant, and what the next read or process reuses.

The next process uses it as it is where no file of the input has changed since. Of transcripts,
where some have, it reads these and takes the others from the cache.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

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
from stateanalytics.core.joins import is_scalar, left_joined, pool
from stateanalytics.io.archive.manifests import Look
from stateanalytics.io.as_of import as_utc, future_findings, newest_proven, oldest_proven
from stateanalytics.io.budget import OVER_BUDGET, BudgetSpentError
from stateanalytics.io.cache import Cache, digest_of_files
from stateanalytics.io.findings import all_findings, noted
from stateanalytics.io.observations import observe_once
from stateanalytics.io.parts import FRAMES, Digested, Parts, digests
from stateanalytics.io.processes import state_of_store
from stateanalytics.systems import BUILT_IN, detail_frames
from stateanalytics.systems.folding import Folded, LastRead
from stateanalytics.systems.history import rewound
from stateanalytics.systems.linking import ambiguous_links
from stateanalytics.systems.omissions import with_notes
from stateanalytics.systems.places import Place, companions_of, files_of
from stateanalytics.systems.transcripts import Packed, Piece, Transcripts

LEAST_BYTES = 1_000_000
"""Of an input; a smaller one is read as fast as it is found in the cache."""

StateOf = Callable[[Sequence[Path]], "str | None"]
"""The state of the files of an input, given those that its content names; None: not known."""


def remembered(
    cache: Cache, place: Place, system: str, state_of: StateOf
) -> tuple[Parts | None, LastRead | None]:
    """What a fresh read would give, by the cache, and what one can start from.

    The first is None where something changed, both where there is no sound entry of this version.
    """
    key = _key(place, system)
    entry = cache.get(key)
    if entry is None:
        return None, None
    try:
        state = state_of([Path(path) for path in entry.head["inputs"]])
        is_same = state is not None and state == entry.head["state"]
        if not is_same and not entry.head["is_kept"]:
            return None, None
        *_, (part, kept) = _made(entry.head["values"], entry.blocks)
    # A file that is whole, and still not what this version writes.
    except (KeyError, TypeError, ValueError, IndexError, pl.exceptions.PolarsError):
        cache.drop(key)
        return None, None
    return replace(part, kept=kept) if is_same else None, kept


def remember(cache: Cache, place: Place, part: Parts, state: str | None) -> Parts:
    """Keep what was read for the next process; the part with its digest, which is kept too."""
    kept = part.kept if isinstance(part.kept, LastRead) else None
    if part.findings["code"].eq(OVER_BUDGET).any():
        state = None  # the next read goes on with what this one did not reach
    is_known = part.system in BUILT_IN and (state is not None or kept is not None)
    if not is_known or part.size_bytes < LEAST_BYTES:
        return part
    [own] = digests([part])
    bare = replace(_without_handles(part), span=None, digested=Digested(own.fingerprint))
    own_kept = _kept_of(kept)
    written = _Written()
    written.of((bare, own_kept))
    head = {
        "state": state,
        "inputs": [str(path) for path in part.inputs],
        "is_kept": own_kept is not None,
        "values": written.values,
    }
    cache.put(_key(place, part.system), head, written.blocks)
    return replace(part, digested=own)


def _key(place: Place, system: str) -> str:
    return "\0".join([os.path.realpath(place.path), place.label, system])


class _Written:
    """Values as lists of JSON, each once and after those that it consists of."""

    def __init__(self) -> None:
        self.values: list[list[Any]] = []
        self.blocks: list[bytes | memoryview] = []
        # With the values: while one is kept, no other has its id.
        self._places: dict[int, tuple[object, int]] = {}

    def of(self, value: object) -> Any:
        """Where a value is in the lists; a number or text as it is."""
        if value is None or isinstance(value, str | int | float):
            return value
        if id(value) not in self._places:
            listed = self._listed(value)
            self._places[id(value)] = value, len(self.values)
            self.values.append(listed)
        return [self._places[id(value)][1]]

    def _listed(self, value: Any) -> list[Any]:
        kind = type(value).__name__
        parts: Iterable[Any] = ()
        if isinstance(value, _CLASSES):
            parts = [getattr(value, each.name) for each in fields(value)]
        elif isinstance(value, Frames | dict):
            parts = unevaluated(value).items()
        elif isinstance(value, tuple | list | frozenset):
            parts = value
        elif isinstance(value, bytes | memoryview):
            kind, parts = "octets", [len(self.blocks)]
            self.blocks.append(value)
        elif isinstance(value, pl.Series):
            kind, parts = "column", [value.to_frame()]
        elif isinstance(value, pl.DataFrame) or callable(value):
            kind, parts = "rows", _compressed(value() if callable(value) else value)
        elif isinstance(value, Path):
            kind, parts = "path", [str(value)]
        return [kind, *map(self.of, parts)]


def _compressed(rows: pl.DataFrame) -> Sequence[object]:
    """Columns of one repeated value as one row, and the others as they are."""
    repeated = [column.name for column in rows if rows.height and is_scalar(column)]
    octets = (Piece.of(each).data for each in (rows.drop(repeated), rows.select(repeated).head(1)))
    return rows.columns, rows.height, *octets


def _rows(names: list[str], n_rows: int, *octets: memoryview) -> pl.DataFrame:
    """The rows that were compressed."""
    rows, one = (pl.read_ipc(bytes(each)) for each in octets)
    if not rows.width and one.width:
        rows = pl.DataFrame({"": pl.repeat(0, n_rows, eager=True)})
    literals = [pl.lit(column[0], column.dtype).alias(column.name) for column in one]
    return rows.with_columns(literals).select(names)


_CLASSES = (Digested, Folded, LastRead, Packed, Parts, Piece, Transcripts)
_READ_NOW = {"column", *(made.__name__ for made in _CLASSES)}
_MADE: Mapping[str, Callable[..., Any]] = {
    **{made.__name__: made for made in _CLASSES},
    "Frames": lambda *frames: Frames(dict(frames)),
    "dict": lambda *pairs: dict(pairs),
    "tuple": lambda *values: values,
    "list": lambda *values: list(values),
    "frozenset": lambda *values: frozenset(values),
    "column": pl.DataFrame.to_series,
    "rows": lambda *given: partial(_rows, *given),
    "path": Path,
    "object": object,
}


def _made(values: Sequence[Sequence[Any]], blocks: Sequence[memoryview]) -> list[Any]:
    """The values that were written; of frames in `Frames` functions that read them."""
    made: list[Any] = []
    for kind, *given in values:
        for each in given if kind in _READ_NOW else ():
            if isinstance(each, list) and isinstance(made[each[0]], partial):
                made[each[0]] = made[each[0]]()
        own = [made[each[0]] if isinstance(each, list) else each for each in given]
        made.append(blocks[given[0]] if kind == "octets" else _MADE[kind](*own))
    return made


def _kept_of(kept: LastRead | None) -> LastRead | None:
    """What the next process can start from."""
    if kept is None or kept.transcripts is None or kept.folded is None:
        return None
    if not all(isinstance(error, BudgetSpentError) for _, error in kept.transcripts.lost):
        return None
    folded = replace(kept.folded, part=_without_handles(kept.folded.part))
    return replace(kept, transcripts=replace(kept.transcripts, lost=()), folded=folded)


def _without_handles(part: Parts) -> Parts:
    details = Frames(unevaluated(part.details))
    return replace(part, details=details, stores=(), kept=None, fingerprint="", digested=None)


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
    def of_many(
        cls,
        places: Sequence[Place],
        parts: Sequence[Parts],
        began: datetime,
        last: Reading | None = None,
    ) -> list[Reading]:
        """The readings of places that were read together; ``last`` is the one before, of one."""
        known = None if last is None else last.digested
        of_stores = [part.stores[0].state if part.stores else "" for part in parts]
        states = [
            state_of_files(place, part.system, part.inputs, began, of_store, opened=part.opened)
            for place, part, of_store in zip(places, parts, of_stores, strict=True)
        ]
        return list(map(cls, places, parts, digests(parts, known), states))

    @property
    def digest(self) -> str:
        """The fingerprint of its rows."""
        return self.digested.fingerprint

    def is_current(self, place: Place) -> bool:
        """Whether reading the place again would give the same."""
        if place != self.place or self.state is None:
            return False
        of_store = state_of_store(place.path) if self.part.stores else ""
        known = (place, self.part.system, self.part.inputs)
        return self.state == state_of_files(*known, datetime.now(UTC), of_store)

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


def state_of_files(
    place: Place,
    system: str,
    inputs: Sequence[Path],
    now: datetime,
    of_store: str | None,
    *,
    opened: Sequence[str] | None = None,
) -> str | None:
    """A digest of the files of an input, which changes when somebody writes to them.

    Parameters
    ----------
    place : Place
        The input.
    system : str
        Who reads it.
    inputs : sequence of pathlib.Path
        Further files, which its content names.
    now : datetime
        As for `cache.digest_of_files`.
    of_store : str or None
        The state of its store; empty: it has none; None: not known.
    opened : sequence of str, optional
        The files that were read, where that is known.

    Returns
    -------
    str or None
        None where equality would prove nothing.
    """
    if of_store is None:
        return None
    # The state of a store is more exact than sizes and times.
    files: Sequence[str | Path] = (
        companions_of(place, system) if of_store else files_of(place, system, opened)
    )
    return digest_of_files([*files, *inputs], now, of_store) or None


@dataclass(frozen=True)
class Pooled:
    """Several inputs pooled, before an instant is chosen.

    Attributes
    ----------
    readings : tuple of Reading
        In the order in which they were named.
    duplicates : tuple of Place
        Inputs that were named a second time.
    parts, same_as, findings
        The inputs without rows that another one has, as of `observe_once`.
    """

    readings: tuple[Reading, ...]
    duplicates: tuple[Place, ...]
    parts: tuple[Parts, ...]
    same_as: Mapping[str, str]
    findings: pl.DataFrame

    @classmethod
    def of(cls, readings: Sequence[Reading], duplicates: Sequence[Place]) -> Pooled:
        """Pool inputs that were read."""
        parts = [each.part for each in readings]
        if len(parts) == 1:  # there is nothing to compare
            none = schema.FINDINGS.empty()
            return cls(tuple(readings), tuple(duplicates), tuple(parts), {}, none)
        # Modules of other systems are not imported.
        frames = detail_frames(frozenset(part.system for part in parts))
        own = [each.digest for each in readings]
        return cls(tuple(readings), tuple(duplicates), *observe_once(parts, own, frames))

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
        is_given, parts = as_of_from == "given", self.parts
        ahead = [] if is_given else [future_findings(part, part.label, as_of) for part in parts]
        twice = [noted(place.label, "", "source.named_twice") for place in self.duplicates]
        findings = all_findings(*(part.findings for part in parts), *ahead, *twice, self.findings)
        whole = changed_facts(self._whole, findings=findings, as_of=as_of, as_of_from=as_of_from)
        facts = with_notes(whole, rewound(whole, as_of)) if is_given else whole
        if len({part.system for part in parts}) > 1:
            with_links = all_findings(facts.findings, ambiguous_links(facts.entities))
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
                "same_as": self.same_as.get(whole.label),
                "looked_at": None if archived is None else archived.looked_at,
                "is_unchanged": None if archived is None else archived.is_unchanged,
            }
            for each in self.readings
            for archived in [each.place.archived]
            if (whole := each.part).system
            for first_at, last_at in [whole.span or (oldest_proven(whole), newest_proven([whole]))]
        ]
        return schema.SOURCES.conform(pl.DataFrame(rows, schema_overrides=schema.SOURCES.dtypes))

    @cached_property
    def _whole(self) -> Facts:
        """All rows of the inputs, before an instant is chosen."""
        parts = self.parts
        own = [unevaluated(part.details) for part in parts]
        frames = detail_frames(frozenset(part.system for part in parts))
        entities = pool([part.entities for part in parts], schema.ENTITIES)
        return Facts(
            entities=entities if len(parts) == 1 else _with_children(entities),
            transitions=pool([part.transitions for part in parts], schema.TRANSITIONS),
            events=pool([part.events for part in parts], schema.EVENTS),
            findings=schema.FINDINGS.empty(),
            sources=self._sources(),
            as_of=datetime.max.replace(tzinfo=UTC),
            details=Frames(
                {
                    name: _pooled_lazily(frames[name], [of[name] for of in own if name in of])
                    for name in dict.fromkeys(name for of in own for name in of)
                }
            ),
            inputs=_inputs(self.readings),
        )


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


def _with_children(entities: pl.DataFrame) -> pl.DataFrame:
    """Entities; sessions of one input are children of those of another that are their parents."""
    key = ["system", "entity_type", "entity_id"]
    children = entities.filter(entity_type="session", parent_type="session")
    named = children.select("source", *key[:2], entity_id="parent_id", child="entity_id")
    others = named.join(entities, on=["source", *key], how="anti")
    counts = others.group_by(key).agg(n=pl.col("child").n_unique())
    # The other columns stay as they are: those of one value take no memory.
    joined = left_joined(entities.select(*key, "n_children"), counts, on=key)
    n_all = pl.coalesce(pl.col("n_children").fill_null(0) + pl.col("n"), "n_children")
    return entities.with_columns(joined.select(n_children=n_all).to_series())


def _inputs(readings: Sequence[Reading]) -> tuple[Path, ...]:
    """All paths that were opened: of the places, their companions, and what these name."""
    named = [(*companions_of(each.place, each.part.system), *each.part.inputs) for each in readings]
    return tuple(dict.fromkeys([*(each.place.path for each in readings), *chain(*named)]))


def _counted(facts: Facts) -> pl.DataFrame:
    """The inputs, with how many rows of each are used."""
    counts = [f"n_{name}" for name in FRAMES]
    n_rows = (getattr(facts, name)["source"].value_counts(name=f"n_{name}") for name in FRAMES)
    rows = left_joined(facts.sources.drop(counts), *n_rows, on="source")
    return schema.SOURCES.conform(rows.with_columns(pl.col(counts).fill_null(0)))

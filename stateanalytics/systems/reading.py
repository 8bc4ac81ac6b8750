"""From the names of stores to pooled facts: the entry point of this package."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import OTHER_SYSTEM, Facts, changed_facts
from stateanalytics.core.joins import connected_components
from stateanalytics.core.progress import progress
from stateanalytics.errors import (
    ArgumentError,
    DamagedStoreError,
    NotAStoreError,
    SourceError,
    StateAnalyticsError,
    in_short,
)
from stateanalytics.io.archive.manifests import Archived
from stateanalytics.io.archive.reading import (
    ChosenWeeks,
    Weeks,
    read_many_archived,
    works_of,
)
from stateanalytics.io.as_of import as_utc, wall_clock
from stateanalytics.io.budget import Budget, spend, spending
from stateanalytics.io.cache import Cache
from stateanalytics.io.findings import all_findings, counted, noted, noted_entities
from stateanalytics.io.parts import Parts
from stateanalytics.io.processes import delete_abandoned_now_and_then, is_alive
from stateanalytics.io.sqlite import Store, open_store
from stateanalytics.io.sqlite_tables import one_connection
from stateanalytics.systems import BUILT_IN, all_systems, detail_frames, pooling, system_named
from stateanalytics.systems.base import System
from stateanalytics.systems.omissions import findings_of_database, findings_of_files
from stateanalytics.systems.places import Place, find_places, owner_of
from stateanalytics.systems.pooling import Memory
from stateanalytics.systems.situations import add_axes_of_statuses, has_own_statuses

OnError = Literal["skip", "raise", "salvage"]
_MAX_TABLES_NAMED = 8


def read_facts(
    paths: Sequence[str | Path] | str | Path = (), **options: Any
) -> tuple[Facts, tuple[Store, ...]]:
    """The facts of one or more stores at one instant, where nothing is read again.

    Parameters
    ----------
    paths, **options
        As for `read_and_keep`.

    Returns
    -------
    facts, stores
        As of `read_and_keep`.
    """
    facts, stores, _ = read_and_keep(paths, keep=False, **options)
    return facts, stores


def read_and_keep(
    paths: Sequence[str | Path] | str | Path = (),
    *,
    as_of: datetime | None = None,
    bodies: bool = False,
    on_error: OnError = "skip",
    shown: bool | None = None,
    clock: Callable[[], datetime] = wall_clock,
    budget: Budget | None = None,
    before: Memory | None = None,
    weeks: str | None = None,
    keep: bool = True,
    probe: bool = False,
    cache: bool = False,
) -> tuple[Facts, tuple[Store, ...], Memory]:
    """The facts of one or more stores at one instant, and what the next read of them reuses.

    Parameters
    ----------
    paths : sequence of str or pathlib.Path
        Files, directories, patterns; none: the usual places.
    as_of : datetime, optional
        The instant that ages are measured at. By default the newest moment that the data
        prove, for copies; the clock, as soon as one store is live or none proves any.
    bodies : bool
        Whether to load what people and models said.
    on_error : {"skip", "raise", "salvage"}
        What happens to a file of a directory that cannot be read: it is excluded, counted
        and named in ``findings``, or the read fails. A store that is named itself always
        fails the read, unless ``salvage`` recovers what is left of a damaged one.
    shown : bool, optional
        Whether to show progress; by default only where a person looks.
    clock : callable
        The wall clock.
    budget : Budget, optional
        Limits of the read; what exceeds them is excluded, and a finding.
    before : Memory, optional
        What the last read of these paths kept; an input that did not change is not read
        again. The facts are those of a fresh read.
    weeks : str, optional
        Of archives only these ISO weeks, such as ``"2026-W10..W21"``; as of the end of
        the last of them, where the archives know later moments.
    keep : bool
        Whether the same paths will be read again: what that reuses takes half as much memory
        as the facts themselves.
    probe : bool
        Whether to look for processes on this machine; as-of is the clock.
    cache : bool
        Whether to use what earlier processes read, and to keep what this one reads.

    Returns
    -------
    facts : Facts
        Canonical frames, inputs in the order in which they were named.
    stores : tuple of Store
        The open private copies, in the same order; closing them deletes the copies.
    memory : Memory
        For the next read; empty where nothing is kept.

    Raises
    ------
    SourceNotFoundError, NotAStoreError, DamagedStoreError, StoreBusyError
        If an input cannot be read; nothing stays open then.
    ArgumentError
        If a name is no path, as-of no datetime, or ``on_error`` neither word.
    """
    if on_error not in get_args(OnError):
        raise ArgumentError(
            f"on_error must be 'skip', 'raise' or 'salvage'; found {in_short(on_error)}.",
            "on_error='raise'",
        )
    named = [paths] if isinstance(paths, str | Path) else list(paths)
    chosen = None if weeks is None else ChosenWeeks.of(weeks)
    places, duplicates = find_places(named, chosen)
    given = None if as_of is None else as_utc(as_of)
    if chosen is not None and as_of is None:
        given = chosen.end_before(place.archived.last_at for place in places if place.archived)
    before = before or Memory()
    with spend(budget or Budget()), ExitStack() as open_stores:
        unchanged = _unchanged(before, places)
        readings = []
        changed = [place for place in places if place.label not in unchanged]
        if changed:
            delete_abandoned_now_and_then()
        # Texts of messages stay in their stores. A limit of time alone skips whole transcripts,
        # which the next read goes on with; other limits would depend on what is kept.
        of_time = Budget() if budget is None else replace(Budget(), processor_s=budget.processor_s)
        is_cached = cache and not bodies and on_error == "skip" and budget in (None, of_time)
        fresh = _read_places(
            changed,
            before,
            bodies=bodies,
            on_error=on_error,
            weeks=None if chosen is None else chosen.has,
            keep=keep,
            cache=Cache.of_user() if is_cached else None,
        )
        with progress("reading", len(places), shown=shown) as begin:
            for n_read, place in enumerate(places):
                begin(place.label)
                # A large one of the usual places leaves time to those after it.
                spending().begin_part(1 if named else len(places) - n_read)
                same = unchanged.get(place.label)
                reading = next(fresh) if same is None else same.reused(place)
                for store in reading.part.stores:
                    open_stores.enter_context(store)
                readings.append(reading)
        if all(not each.part.system for each in readings):
            raise _nothing_read([each.part for each in readings])
        pooled = before.pooled
        is_same = pooled is not None and not changed and pooled.duplicates == tuple(duplicates)
        if pooled is None or not is_same or len(readings) != len(pooled.readings):
            pooled = pooling.Pooled.of(readings, duplicates)
        pooled = pooled.with_readings(readings)
        now = as_utc(clock()) if probe else None
        facts = changed_facts(pooled.at(given, clock, proven=now), named=tuple(map(str, named)))
        if probe:
            facts = with_processes(facts, places)
        open_stores.pop_all()
    stores = []
    for each in readings:
        for store in each.part.stores:
            if each.part.label in pooled.same_as:
                store.close()
            else:
                stores.append(store)
    memory = Memory({each.part.label: each for each in readings}, pooled) if keep else Memory()
    return facts, tuple(stores), memory


def with_processes(facts: Facts, places: Sequence[Place]) -> Facts:
    """Present facts, with ``process_alive`` where a system records its processes.

    Open work of a process that lives and waits for a person has a question to one.
    """
    noted = [
        (place.label, process.session_id, is_alive(process), process.is_waiting)
        for place in places
        if place.archived is None and place.system is not None and place.system.files is not None
        for process in place.system.files.processes(place.path)
    ]
    flags = dict.fromkeys(("found", "is_waiting"), pl.Boolean)
    schema_of = {"source": pl.String, "session": pl.String, **flags}
    alive, is_unsure = pl.col("found").any(), pl.col("found").is_null().any()
    # A resumed session may still have the record of its earlier process, which died.
    found = (
        pl.DataFrame(noted, schema=schema_of, orient="row")
        .group_by("source", "session")
        .agg(
            pl.col("is_waiting").filter("found").any(),
            found=pl.when(alive | ~is_unsure).then(alive),
        )
    )
    parts = [name for known in all_systems() for name in known.runs.part_types]
    is_part = pl.col("entity_type").is_in(parts)
    # Subagents have the id of their session, and run in its process.
    session = pl.when(~is_part).then(pl.col("session_id").str.extract(r"^([^/]*)"))
    is_open = pl.col("recorded_outcome").is_null()
    is_gone = ~pl.col("found") & is_open
    entities = (
        facts.entities.with_columns(session=session)
        .join(found, on=["source", "session"], how="left", maintain_order="left")
        .with_columns(
            process_alive=pl.coalesce("found", "process_alive"),
            n_questions=pl.when(is_open & pl.col("is_waiting")).then(1).otherwise("n_questions"),
            recorded_health=pl.when(~is_gone.fill_null(value=False)).then("recorded_health"),
        )
    )
    return changed_facts(facts, entities=schema.ENTITIES.conform(entities), as_of_from="clock")


def _unchanged(before: Memory, places: Sequence[Place]) -> dict[str, pooling.Reading]:
    """The last readings of places that did not change, by label."""
    copies = {} if before.pooled is None else before.pooled.same_as
    known = {place.label: (place, before.readings.get(place.label)) for place in places}
    unchanged = {
        label: reading
        for label, (place, reading) in known.items()
        if reading is not None
        and (label in copies or reading.is_open)
        and reading.is_current(place)
    }
    if len(unchanged) == len(places) == len(before.readings):
        return unchanged
    # A closed copy may no longer equal what the other inputs hold now.
    return {label: reading for label, reading in unchanged.items() if reading.is_open}


def _read_places(
    places: Sequence[Place],
    before: Memory,
    *,
    bodies: bool,
    on_error: OnError,
    weeks: Weeks | None,
    keep: bool,
    cache: Cache | None,
) -> Iterator[pooling.Reading]:
    """The readings of places, in their order; neighbours of one system are read together."""
    for read_many, neighbours in groupby(places, _reader_of_many):
        some, began = list(neighbours), wall_clock()
        if read_many is not None:
            if isinstance(read_many, Path):
                parts = _read_archived(some, bodies=bodies, on_error=on_error, weeks=weeks)
            else:
                paths, labels = [place.path for place in some], [place.label for place in some]
                read = read_many(paths, labels=labels, bodies=bodies, on_error=on_error)
                worded = map(_with_words, read)
                parts = [_with_unread(*each) for each in zip(worded, some, strict=True)]
            yield from pooling.Reading.of_many(some, parts, began)
            continue
        for place in some:
            known, began = before.readings.get(place.label), wall_clock()
            last = None if known is None else known.part
            part = read_place(
                place,
                bodies=bodies,
                on_error=on_error,
                before=last,
                keep=keep,
                cache=cache if last is None else None,
            )
            part = part if keep else replace(part, kept=None)
            yield from pooling.Reading.of_many([place], [part], began, known)


def _reader_of_many(place: Place) -> Callable[..., Iterator[Parts]] | Path | None:
    """The function that reads a place with its neighbours; None for an installed system.

    Of the sources of an archive: the archive.
    """
    known = place.system
    if place.archived is not None:
        return place.archived.root
    if known is None or known.files is None or known.name not in BUILT_IN:
        return None
    return known.files.read_many


def read_place(
    place: Place,
    *,
    bodies: bool,
    on_error: OnError,
    before: Parts | None = None,
    keep: bool = False,
    cache: Cache | None = None,
) -> Parts:
    """Read one input: a store by the system of its tables, files by the system that found them."""
    if place.archived is not None:
        return _read_archived([place], bodies=bodies, on_error=on_error)[0]
    finder = place.system
    if finder is not None and finder.files is not None:
        files = partial(finder.files.read, place.path, label=place.label, on_error=on_error)

        def read_files(kept: Any) -> Parts:
            return _read_by(finder, files, place.label, on_error, bodies=bodies, before=kept)

        kept = _kept_by(finder, before)
        return _with_unread(_cached(cache, place, finder.name, kept, read_files), place)
    with ExitStack() as opened:
        last = before.stores[0] if before is not None and before.stores else None
        store = opened.enter_context(
            open_store(place.path, label=place.label, salvage=on_error == "salvage", earlier=last)
        )
        owner = owner_of(store)
        if owner is None and place.is_named:
            raise _no_store(store)
        if owner is None or owner.stores is None:
            # A database in a directory or a match of a pattern that is no store.
            tables = ", ".join(sorted(store.tables))
            part = Parts.unread(
                noted(store.label, "", "source.skipped", example=tables), store.label
            )
        else:
            once = None if keep else owner.stores.read_uncached
            rows = partial(once or owner.stores.read, store)

            def read_store(kept: Any) -> Parts:
                with one_connection(store):
                    part = _read_by(owner, rows, store.label, on_error, bodies=bodies, before=kept)
                return replace(part, size_bytes=store.size_bytes)

            kept = _kept_by(owner, before)
            # What a writer has open has changed by the next time.
            is_settled = store.state is not None and not store.losses and not store.is_live
            usable = cache if is_settled else None
            part = _cached(usable, place, owner.name, kept, read_store, of_store=store.state)
        odd = [
            findings_of_database(store, system=part.system),
            *([] if owner is None else [findings_of_files(place.path, store.label, owner)]),
            _of_others(place, part.system),
        ]
        opened.pop_all()
    return replace(
        part,
        findings=all_findings(part.findings, *odd),
        label=store.label,
        size_bytes=store.size_bytes,
        is_live=store.is_live,
        stores=(store,),
    )


def _read_archived(
    places: Sequence[Place], *, bodies: bool, on_error: OnError, weeks: Weeks | None = None
) -> list[Parts]:
    """Read sources of an archive, each of its files once."""
    sources = [place.archived for place in places if place.archived is not None]
    labels = [place.label for place in places]
    parts = read_many_archived(sources, labels, detail_frames(), weeks=weeks)
    if on_error == "raise":
        for part in parts:
            _refuse_damage(part)
    return [_without_bodies(part, bodies=bodies) for part in parts]


def _cached(
    cache: Cache | None,
    place: Place,
    system: str,
    kept: Any,
    read: Callable[[Any], Parts],
    *,
    of_store: str | None = "",
) -> Parts:
    """What an earlier process read, where no file changed since; else a fresh read."""
    if cache is None:
        return read(kept)
    began = wall_clock()

    def state_of(inputs: Sequence[Path], opened: Sequence[str] | None = None) -> str | None:
        return pooling.state_of_files(place, system, inputs, began, of_store, opened=opened)

    same, cached = pooling.remembered(cache, place, system, state_of)
    if same is not None:
        return same
    part = read(cached if kept is None else kept)
    return pooling.remember(cache, place, part, state_of(part.inputs, part.opened))


def _kept_by(known: System, before: Parts | None) -> Any:
    """What a system kept of its last read; None where another system read the place."""
    return before.kept if before is not None and before.system == known.name else None


def _refuse_damage(part: Parts) -> None:
    """An error where some of an archive cannot be read."""
    is_damage = pl.col("code").str.starts_with("archive.") & (pl.col("severity") == "error")
    for damage in part.findings.filter(is_damage).head(1).iter_rows(named=True):
        raise DamagedStoreError(
            f"The archive of {part.label!r} cannot be read completely: {damage['message']} "
            f"({damage['example']}).",
            "on_error='skip' reads the rest, and lists what is excluded",
            shell="omit it: the rest is read, and what is excluded is listed",
        )


def _without_bodies(part: Parts, *, bodies: bool) -> Parts:
    if bodies or part.events["body"].null_count() == part.events.height:
        return part
    return replace(part, events=part.events.with_columns(body=pl.lit(None, pl.String)))


def _read_by(
    known: System, read: Callable[..., Parts], label: str, on_error: OnError, **options: Any
) -> Parts:
    """What a system reads; an installed one that fails costs its own rows only."""
    try:
        return _with_words(replace(read(**options), label=label))
    # Our own errors describe the input, and are no fault of the system.
    except Exception as error:
        if known.name in BUILT_IN or isinstance(error, StateAnalyticsError):
            raise
        problem = f"{type(error).__name__}: {error}"
        if on_error == "raise":
            raise SourceError(
                f"The system {known.name!r} cannot read {label!r}: {problem}.",
                "report this to the authors of the system; on_error='skip' excludes the input",
            ) from error
        message = f"the system {known.name!r} cannot read it: {problem}"
        return Parts.unread(
            counted(label, "", "source.unreadable", "error", message, action="excluded"), label
        )


def _with_unread(part: Parts, place: Place) -> Parts:
    """The part with findings on files that are not read, and on other systems of a place."""
    assert place.system is not None
    unread = findings_of_files(place.path, place.label, place.system, part.opened)
    findings = all_findings(part.findings, _of_others(place, part.system), unread)
    return replace(part, findings=findings)


def _of_others(place: Place, system: str) -> pl.DataFrame:
    """A finding where other systems could have read some of the same directory."""
    firsts = dict(reversed(place.others))
    titles = " and ".join(reversed(firsts))
    paths = " ".join(shlex.quote(str(path)) for path in reversed(firsts.values()))
    return noted(place.label, system, OTHER_SYSTEM, titles, paths, n_rows=len(place.others))


def _with_words(part: Parts) -> Parts:
    """The part with the axes of statuses that are not ADR-0033's; rules read all others."""
    known = system_named(part.system)
    if not has_own_statuses(known.words.vocabulary):
        return part
    entities = add_axes_of_statuses(part.entities, known.words.vocabulary)
    unknown = entities.filter(
        pl.col("recorded_lifecycle").is_null() & pl.col("raw_status").is_not_null()
    )
    titled, example = unknown.with_columns(title=pl.lit(known.title)), pl.col("raw_status")
    finding = noted_entities(titled, part.label, known.name, "status.unknown", example=example)
    return replace(part, entities=entities, findings=all_findings(part.findings, finding))


def _nothing_read(parts: Sequence[Parts]) -> SourceError:
    """The error for a read without any input that could be read, from the first of them."""
    first = parts[0]
    if first.stores and first.findings["code"].to_list() == ["source.skipped"]:
        return _no_store(first.stores[0])
    problem = first.findings["message"][0]
    return SourceError(
        f"Nothing could be read: of {first.label!r}, {problem}.",
        "restore it from a copy"
        if first.findings["code"][0].startswith("archive.")
        else "report this to the authors of the system, or uninstall it",
    )


def _no_store(store: Store) -> NotAStoreError:
    tables = sorted(store.tables)
    named = ", ".join(repr(table) for table in tables[:_MAX_TABLES_NAMED])
    more = len(tables) - _MAX_TABLES_NAMED
    needed = " or ".join(
        f"{known.title}'s {known.stores.needs}"
        for known in all_systems()
        if known.stores is not None and known.stores.needs
    )
    return NotAStoreError(
        f"{store.label!r} is an SQLite database, but not a known store: {needed} "
        "were needed, found "
        + ((named + (f" and {more} more" if more > 0 else "")) if tables else "no tables")
        + ".",
        "name the store of an orchestrator, such as 'path/to/state.db'",
    )


MOST_ROWS = 5_000_000
"""Rows of entities, transitions and events in a batch; a single source may have more."""


def facts_in_shards(
    named: Sequence[str | Path],
    *,
    as_of: datetime | None = None,
    on_error: OnError = "skip",
    most_rows: int = MOST_ROWS,
) -> Iterator[Facts]:
    """The facts of some paths, with a few sources of an archive at a time.

    Parameters
    ----------
    named : sequence of str or pathlib.Path
        As for `read_and_keep`; only archives are read in batches.
    as_of : datetime, optional
        The instant of all of them; by default the newest moment that any source proves.
    on_error : {"skip", "raise", "salvage"}
        As for `read_and_keep`.
    most_rows : int
        The size of a batch; sources that record the same work stay together.

    Yields
    ------
    Facts
        Some sources at the same instant; each source and each work is in one batch.
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
    for batch in _batches(places, most_rows):
        with spend(Budget()):
            parts = _read_archived(batch, bodies=False, on_error=on_error)
            readings = pooling.Reading.of_many(batch, parts, began)
        yield pooling.Pooled.of(readings, ()).at(given, lambda: began, proven=max(known))


def _n_rows(source: Archived) -> int:
    frames = ("entities", "transitions", "events")
    return sum(shard.n_rows for run in source.runs for shard in run.shards if shard.frame in frames)


def _batches(places: Sequence[Place], most_rows: int) -> Iterator[list[Place]]:
    """Places in batches; those that cannot be read are in the first."""
    unreadable = [place for place in places if place.archived and not place.archived.runs]
    batch, n_rows = unreadable, 0
    for group in _groups_of_work([place for place in places if place not in unreadable]):
        n_of_group = sum(_n_rows(place.archived) for place in group if place.archived)
        if n_rows and n_rows + n_of_group > most_rows:
            yield batch
            batch, n_rows = [], 0
        batch, n_rows = batch + group, n_rows + n_of_group
    yield batch


def _groups_of_work(places: Sequence[Place]) -> list[list[Place]]:
    """Places grouped by the work that they record, directly or through other places."""
    sources = [place.archived for place in places if place.archived is not None]
    works = [
        pl.DataFrame({"id": ids}).with_columns(node=pl.lit(number))
        for number, ids in enumerate(works_of(sources))
    ]
    groups: dict[int, list[Place]] = {}
    numbers = connected_components(len(places), pl.concat(works)) if works else range(len(places))
    for place, number in zip(places, numbers, strict=True):
        groups.setdefault(number, []).append(place)
    return list(groups.values())

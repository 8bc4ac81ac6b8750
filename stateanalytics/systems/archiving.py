"""From stores to an archive of them: each source on its own, what failed named."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, losses_of
from stateanalytics.errors import ArgumentError, NoRoomError, SourceError, in_short
from stateanalytics.io.archive.manifests import (
    SCHEMA_VERSION,
    STATUSES,
    Attempt,
    Manifest,
    digest_of_files,
    drop_old_looks,
    last_runs,
    note_attempts,
    note_looks,
    package_version,
    read_looks,
    source_key,
    stale,
)
from stateanalytics.io.archive.reading import is_archive
from stateanalytics.io.archive.writing import Options, archive_part, masked_text, no_more_room
from stateanalytics.io.budget import Budget, spend
from stateanalytics.io.files import refuse_scheme
from stateanalytics.io.findings import OF_POOLING
from stateanalytics.io.outputs import refuse_inputs
from stateanalytics.io.parts import Parts
from stateanalytics.systems import detail_frames
from stateanalytics.systems.base import expanded
from stateanalytics.systems.places import Place, files_beside, files_of, find_places
from stateanalytics.systems.reading import OnError, read_place

ARCHIVED = schema.Frame(
    "archived",
    "one source, and what became of it in an archive",
    ("source",),
    (
        *schema.SOURCES.named("source", "system"),
        schema.Column("status", schema.TEXT, "archived, unchanged, same (as another) or failed"),
        schema.Column("n_rows", schema.INTEGER, "rows that the archive did not hold yet", "rows"),
        schema.Column("size_bytes", schema.INTEGER, "what they take there", "bytes"),
        schema.Column("message", schema.TEXT, "in words"),
    ),
)


def _wall_clock() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Archiving:
    """An archive that sources are added to.

    Attributes
    ----------
    root : pathlib.Path
        Where it is, or shall be.
    options : Options
        What is kept.
    clock : callable
        The wall clock.
    budget : Budget, optional
        What reading each source may cost.
    """

    root: Path
    options: Options
    clock: Callable[[], datetime] = _wall_clock
    budget: Budget | None = None

    @classmethod
    def at(
        cls,
        to: str | Path,
        *,
        bodies: bool = False,
        redacted: bool = False,
        budget: Budget | str | None = None,
    ) -> Archiving:
        """An archive by its name.

        Raises
        ------
        ArgumentError
            If no folder is named, or something else is there.
        """
        if not isinstance(to, str | Path) or not str(to).strip():
            raise ArgumentError(
                f"An archive needs the name of a folder; found {in_short(to)}.",
                'name one, such as "history/"',
                shell="name one, such as --to history/",
            )
        refuse_scheme(to)
        # An archive may lie behind a link; what is written to is the place that it leads to.
        root = Path(os.path.realpath(expanded(str(to))))
        if root.exists() and not _may_be_archive(root):
            raise ArgumentError(
                f"{str(to)!r} is no archive, and something is there.",
                'name a new folder, such as "history/"',
                shell="name a new folder, such as --to history/",
            )
        options = Options(bodies=bodies, redacted=redacted)
        return cls(root, options, budget=None if budget is None else Budget.of(budget))

    def places_of(self, named: Sequence[str | Path]) -> Iterator[Place | pl.DataFrame]:
        """What paths name, each source once; a row of `ARCHIVED` for a name of nothing."""
        seen: set[Path] = set()
        for name in [[each] for each in named] or [[]]:
            try:
                places, _ = find_places(name)
                folders = [expanded(str(each)) for each in name]
                self._refuse_inputs(folder for folder in folders if folder.is_dir())
            except (SourceError, ArgumentError) as error:
                yield outcome(str(name[0]) if name else "", "", "failed", message=error.problem)
                continue
            for place in places:
                if place.path.resolve() not in seen:
                    seen.add(place.path.resolve())
                    yield place

    def add_place(
        self, place: Place, on_error: OnError, named: tuple[str, str], last: Manifest | None
    ) -> pl.DataFrame:
        """Archive the source at a place, in a row of `ARCHIVED`; one that fails ends nothing.

        Parameters
        ----------
        place : Place
            The source.
        on_error : {"skip", "raise", "salvage"}
            As for `read`.
        named : (str, str)
            Its `key_of`, as the machine that asked for it knows it.
        last : Manifest or None
            Its last run, of those that there were when somebody asked for it.
        """
        began, (key, where) = self.clock(), named
        limits = () if self.budget is None else (self.budget,)
        words = (self.options, on_error, SCHEMA_VERSION, package_version(), *limits)
        system = "" if last is None else last.system
        files = digest_of_files(files_of(place, system), began, *words)
        if last is not None and files and files == last.files:
            return outcome(place.label, last.system, "unchanged")
        try:
            with spend(self.budget or Budget()):
                part = read_place(place, bodies=self.options.bodies, on_error=on_error)
            try:
                inputs = [place.path, *files_beside(place, part.system), *part.inputs]
                refuse_inputs(self.root, inputs)
                # What only its content names is not known before it is opened: no digest then.
                files = digest_of_files(files_of(place, part.system), began, *words)
                files = "" if part.inputs else files
                return self.add(part, key, where=where, files=files, observed_at=began)
            finally:
                for store in part.stores:
                    store.close()
        except (SourceError, ArgumentError, NoRoomError) as error:
            return outcome(place.label, system, "failed", message=error.problem)

    def add(
        self, part: Parts, key: str, *, where: str, files: str, observed_at: datetime
    ) -> pl.DataFrame:
        """Archive one source that was read."""
        if not part.system:
            why = part.findings["message"].to_list()[:1]
            return outcome(part.label, "", "failed", message=why[0] if why else "nothing in it")
        written = archive_part(
            part,
            self.root,
            key,
            detail_frames(),
            place=where,
            files=files,
            options=self.options,
            observed_at=observed_at,
        )
        missing = str(losses_of(part.findings).filter(severity="warning")["message"].first() or "")
        status = "unchanged" if written is None else "archived"
        return outcome(part.label, part.system, status, written, message=missing)

    def add_facts(self, facts: Facts, named: Sequence[str | Path]) -> pl.DataFrame:
        """Archive the sources of facts that were read from what paths name.

        Raises
        ------
        ArgumentError
            If the archive would lie in an input, or the facts leave out what is newer.
        """
        self._refuse_inputs(facts.inputs)
        if facts.findings["code"].eq("archive.some_weeks").any():
            raise ArgumentError(
                "An archive needs all that a source holds; only some weeks were read of this.",
                'read it without weeks: sa.read("history/").archive("other/")',
            )
        if facts.findings["code"].is_in(["time.after_as_of", "time.not_recorded"]).any():
            raise ArgumentError(
                "An archive needs all that a source holds; this was read as of an earlier instant.",
                'read it without as_of: sa.read("state.db").archive("history/")',
            )
        places = {place.label: place for place in find_places(named)[0]}
        rows, noted = [], []
        for source in facts.sources.iter_rows(named=True):
            label = source["source"]
            if source["same_as"] is not None:
                told = f"told by {source['same_as']}"
                rows.append(outcome(label, source["system"], "same", message=told))
                continue
            place = places.get(label)
            key, where = key_of(place) if place else (source_key(platform.node(), label), label)
            part = _part_of(facts, source)
            rows.append(self.add(part, key, where=where, files="", observed_at=self.clock()))
            noted.append((key, rows[-1]))
        self.note(noted)
        self.drop_old_notes()
        return pl.concat(rows)

    def note(self, told: Sequence[tuple[str, pl.DataFrame]], there: Sequence[str] = ()) -> None:
        """Keep notes, for whoever reads the archive, of what was collected and what failed.

        Parameters
        ----------
        told : sequence of (str, polars.DataFrame)
            Keys of sources, each with its row of `ARCHIVED`.
        there : sequence of str
            Keys of what failed before and is there now.

        Raises
        ------
        NoRoomError
            If the archive cannot be written to.
        """
        if not self.root.exists():
            return
        now, is_masked = self.clock(), self.options.redacted
        statuses = {key: row["status"].item() for key, row in told}
        collected = {key: status for key, status in statuses.items() if status in STATUSES}
        failed = []
        for key, row in told:
            if statuses[key] == "failed":
                words = [row[name].item() for name in ("source", "message")]
                label, message = map(masked_text, words) if is_masked else words
                failed.append(Attempt(key, label, now, message))
        try:
            note_attempts(self.root, failed, [*there, *collected])
            note_looks(self.root, collected, now)
        except OSError as error:
            raise no_more_room(self.root, error) from None

    def drop_old_notes(self) -> None:
        """Delete notes of what newer ones tell, at the end of a run."""
        try:
            drop_old_looks(self.root, self.clock())
        except OSError as error:
            raise no_more_room(self.root, error) from None

    def stale(self) -> pl.DataFrame:
        """The sources that nobody has collected for a week, as of `looks.stale`."""
        looks, _ = read_looks(self.root)
        rows = [
            (run.label, max(run.observed_at, looks[key].at) if key in looks else run.observed_at)
            for key, run in last_runs(self.root).items()
        ]
        shape = {"source": schema.TEXT, "looked_at": schema.MOMENT}
        return stale(pl.DataFrame(rows, schema=shape, orient="row"))

    def _refuse_inputs(self, inputs: Iterable[Path]) -> None:
        """An error where the archive is what was read, or lies in it."""
        paths = list(inputs)
        if any(path.resolve() == self.root for path in paths):
            raise ArgumentError(
                f"{str(self.root)!r} is the archive itself, which was read.",
                'archive it to another folder, such as "copy/"',
                shell="archive it to another folder, such as --to copy/",
            )
        refuse_inputs(self.root, paths)


def _may_be_archive(root: Path) -> bool:
    return root.is_dir() and (is_archive(root) or not any(root.iterdir()))


def key_of(place: Place) -> tuple[str, str]:
    """What names the source at a place in every archive, and where it lies."""
    if place.archived is not None and place.archived.last is not None:
        return place.archived.last.key, place.archived.last.place
    where = str(place.path.resolve())
    return source_key(platform.node(), where), where


def _part_of(facts: Facts, source: dict[str, object]) -> Parts:
    """The rows of one source, without what reading several at one instant added."""
    own = pl.col("source") == source["source"]
    details = {name: frame.filter(own) for name, frame in facts.details.items()}
    return Parts(
        str(source["system"]),
        str(source["format"]),
        facts.entities.filter(own),
        facts.transitions.filter(own),
        facts.events.filter(own),
        facts.findings.filter(own & ~pl.col("code").is_in(OF_POOLING)),
        details={name: frame for name, frame in details.items() if frame.height},
        label=str(source["source"]),
        size_bytes=int(str(source["size_bytes"])),
        is_live=bool(source["is_live"]),
    )


def outcome(
    source: str, system: str, status: str, written: Manifest | None = None, *, message: str = ""
) -> pl.DataFrame:
    """One row of `ARCHIVED`."""
    new = () if written is None else [one for one in written.shards if one.frame != "findings"]
    row = {
        "source": source,
        "system": system,
        "status": status,
        "n_rows": sum(shard.n_rows for shard in new),
        "size_bytes": sum(shard.n_bytes for shard in new),
        "message": message,
    }
    return pl.DataFrame([row], schema=ARCHIVED.dtypes)

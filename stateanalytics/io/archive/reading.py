"""The sources of an archive, each with the rows that its runs kept, of all or chosen weeks."""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import pool
from stateanalytics.core.windows import TICK, in_utc, read_window
from stateanalytics.errors import ArgumentError, NotAStoreError
from stateanalytics.io.archive.manifests import (
    ACROSS,
    ATTEMPTS,
    LOOKS,
    Attempt,
    Look,
    Manifest,
    Shard,
    attempt_path,
    manifest_paths,
    read_attempts,
    read_looks,
    read_manifests,
)
from stateanalytics.io.budget import (
    OVER_BUDGET,
    BudgetSpentError,
    OverBoundError,
    share,
    spending,
)
from stateanalytics.io.files import read_octets, read_parquet
from stateanalytics.io.findings import counted
from stateanalytics.io.observations import as_last_seen
from stateanalytics.io.parts import Parts

_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_RANGE = re.compile(r"(?:(\d{4})-)?W(\d{2})", re.IGNORECASE)
_HOW = 'weeks="2026-W10..W21", weeks="2026-W21", or weeks="2025-W50..2026-W03"'


@dataclass(frozen=True)
class ChosenWeeks:
    """The ISO weeks from ``first`` to ``last``, both included; by default all weeks.

    Attributes
    ----------
    first, last : str
        Such as ``2026-W10``; empty for all weeks.
    """

    first: str = ""
    last: str = ""

    @classmethod
    def of(cls, text: str | None) -> ChosenWeeks:
        """The weeks in a text that a person typed.

        Raises
        ------
        ArgumentError
            If the text names no weeks, or the last week is before the first.

        Examples
        --------
        >>> ChosenWeeks.of("2026-W10..W21")
        ChosenWeeks(first='2026-W10', last='2026-W21')
        """
        if text is None:
            return cls()
        parts = [_RANGE.fullmatch(part.strip()) for part in str(text).split("..")]
        match parts:
            case [re.Match() as first] if first[1]:
                chosen = cls(_week(first[1], first[2]), _week(first[1], first[2]))
            case [re.Match() as first, re.Match() as last] if first[1]:
                chosen = cls(_week(first[1], first[2]), _week(last[1] or first[1], last[2]))
            case _:
                raise ArgumentError(f"weeks needs ISO weeks; found {text!r:.80}.", _HOW)
        if chosen.first > chosen.last:
            raise ArgumentError(
                f"weeks runs forward; {text!r:.80} ends before it begins.",
                'weeks="2025-W50..2026-W03" names the year of both',
            )
        return chosen

    @property
    def has(self) -> Callable[[str], bool] | None:
        """A test for a chosen week; None where all weeks are chosen."""
        return (lambda week: self.first <= week <= self.last) if self.first else None

    def end_before(self, moments: Iterable[datetime | None]) -> datetime | None:
        """The last instant of these weeks, if any of the moments is later."""
        if not self.first:
            return None
        known = [moment for moment in moments if moment is not None]
        if not known:
            return None
        end = read_window(self.last, as_of=_END_OF_TIME).until - TICK
        return end if max(known) > end else None


def _week(year: str, number: str) -> str:
    text = f"{year}-W{number}"
    read_window(text, as_of=_END_OF_TIME)  # refuses a week that the year does not have
    return text


FACTS = {frame.name: frame for frame in (schema.ENTITIES, schema.TRANSITIONS, schema.EVENTS)}
_CANONICAL = {**FACTS, "findings": schema.FINDINGS}

_THING = ["entity_type", "entity_id", "created_at"]
_FOLDERS = {"manifests", "shards", ATTEMPTS, LOOKS}
_OTHER_BYTES = "not the bytes that were written"
_OVERLAP = timedelta(hours=1)
"""Two concurrent runs may end in either order; only after more time did a clock go back."""

Weeks = Callable[[str], bool]
"""A test for a requested week; `ACROSS` is always read."""


@dataclass(frozen=True)
class Archived:
    """One source of an archive.

    Attributes
    ----------
    root : pathlib.Path
        The archive.
    label : str
        The name of the source when it was archived last.
    runs : tuple of Manifest
        Its readable runs, oldest observation first.
    files : tuple of pathlib.Path
        All its manifests.
    wrong : mapping of pathlib.Path to str
        The problem of each manifest that cannot be read. An unreadable note of looks is a
        source of its own.
    attempt : Attempt, optional
        The last collection, where that failed.
    look : Look, optional
        The last collection that the archive has a note of. Not compared: a look without news
        makes no other source.
    """

    root: Path
    label: str
    runs: tuple[Manifest, ...]
    files: tuple[Path, ...]
    wrong: Mapping[Path, str]
    attempt: Attempt | None = None
    look: Look | None = field(default=None, compare=False)

    @property
    def last_at(self) -> datetime | None:
        """The newest moment that any of its runs proved."""
        return self.runs[-1].last_at if self.runs else None

    @property
    def last(self) -> Manifest | None:
        """The newest run, whatever it observed."""
        return max(self.runs, key=lambda run: (run.number, run.run), default=None)

    @property
    def looked_at(self) -> datetime | None:
        """The time of the last collection; a killed run may have left no note of its look."""
        if self.last is None:
            return None
        observed_at = self.last.observed_at
        return observed_at if self.look is None else max(self.look.at, observed_at)

    @property
    def is_unchanged(self) -> bool:
        """Whether the last collection found nothing new."""
        look = self.look
        return look is not None and look.status == "unchanged" and look.at == self.looked_at

    @property
    def own_files(self) -> list[Path]:
        """The paths of this source alone: manifests, folders of shards, notes of attempts."""
        folders = {(run.system, run.key) for run in self.runs}
        rows = [self.root / "shards" / system / key for system, key in sorted(folders)]
        notes = {attempt_path(self.root, key) for _, key in folders}
        return [*self.files, *rows, *sorted(notes)]


def is_archive(path: Path) -> bool:
    """Whether a directory is an archive, with or without a finished run."""
    if not (path / "manifests").is_dir():
        return False
    return bool(manifest_paths(path)) or {entry.name for entry in path.iterdir()} <= _FOLDERS


def archived_source(root: Path, key: str) -> Archived:
    """One source of an archive; one without runs if the archive does not have it."""
    return _archived(root, manifest_paths(root).get(key, []))


def archived_sources(root: Path) -> list[Archived]:
    """The sources of an archive, in the order of their labels.

    Raises
    ------
    NotAStoreError
        If no run was ever finished.
    """
    by_key, failed = manifest_paths(root), read_attempts(root)
    last_looks, unreadable = read_looks(root)
    sources = [
        *(
            replace(_archived(root, paths), attempt=failed.get(key), look=last_looks.get(key))
            for key, paths in by_key.items()
        ),
        *(
            Archived(root, attempt.label, (), (attempt_path(root, key),), {}, attempt)
            for key, attempt in failed.items()
            if key not in by_key
        ),
        *(Archived(root, str(path), (), (path,), {path: ""}) for path in unreadable),
    ]
    if not by_key:
        raise NotAStoreError(
            f"The archive {str(root)!r} holds no run that was finished.",
            'archive something: sa.read("state.db").archive("history/")',
            shell="stateanalytics archive state.db --to history/",
        )
    return sorted(sources, key=lambda source: (source.label, source.files[0].name))


def _archived(root: Path, paths: Sequence[Path]) -> Archived:
    runs, wrong = read_manifests(paths)
    source = Archived(root, str(next(iter(paths), root)), tuple(runs), tuple(paths), wrong)
    return source if source.last is None else replace(source, label=source.last.label)


def read_archived(
    source: Archived, frames: Mapping[str, schema.Frame], *, weeks: Weeks | None = None
) -> Parts:
    """Everything that was archived of one source, entities as last seen.

    Parameters
    ----------
    source : Archived
        The source.
    frames : mapping of str to Frame
        The shapes of the detail frames, by name.
    weeks : callable, optional
        The weeks to open; by default all.

    Returns
    -------
    Parts
        Findings are those of the latest observation, and those about the archive itself.
    """
    if not source.runs:
        entities, transitions, events = (frame.empty() for frame in FACTS.values())
        problems = pool([*_unreadable_manifests(source), *_failed_attempt(source)], schema.FINDINGS)
        return Parts("", "", entities, transitions, events, problems, label=source.label)
    shapes = {**frames, **_CANONICAL}
    wanted = [
        (run, shard)
        for run in source.runs
        for shard in run.shards
        if _is_wanted(shard, run, source.runs[-1], weeks)
    ]
    with ThreadPoolExecutor(initializer=share, initargs=(spending(),)) as threads:
        opened = list(
            threads.map(lambda pair: _open_shard(source.root, pair[0], pair[1], shapes), wanted)
        )
    latest = source.runs[-1]
    by_run = [
        _parts_of_run(
            run,
            [shard for (owner, _), shard in zip(wanted, opened, strict=True) if owner is run],
        )
        for run in source.runs
    ]
    # A run that found only files touched wrote no rows, and removes none.
    observations = [
        part
        for before, run, part in zip((None, *source.runs), source.runs, by_run, strict=False)
        if before is None or before.content != run.content or _has_rows(run)
    ]
    whole = as_last_seen(observations, frames) if len(observations) > 1 else observations[0]
    # Where nothing was pruned and every week is open, these are the rows of the latest run.
    is_all = weeks is None and all(
        latest.counts.get(name) == getattr(whole, name).height for name in FACTS
    )
    findings = [
        by_run[-1].findings,
        *_unreadable_manifests(source),
        *_failed_attempt(source),
        *_runs_out_of_order(source),
        *_shard_problems(source, latest.system, wanted, opened),
        *([] if weeks is None else [_skipped_weeks(source, latest.system, wanted)]),
    ]
    kept = replace(
        whole,
        findings=pool(findings, schema.FINDINGS),
        size_bytes=latest.size_bytes,
        fingerprint=latest.fingerprint if is_all else "",
    )
    return labelled(kept, source.label)


def _has_rows(run: Manifest) -> bool:
    return any(shard.frame != "findings" for shard in run.shards)


def _is_wanted(shard: Shard, run: Manifest, latest: Manifest, weeks: Weeks | None) -> bool:
    if shard.frame == "findings":
        return run is latest
    return weeks is None or shard.week == ACROSS or weeks(shard.week)


@dataclass(frozen=True)
class _OpenedShard:
    """The rows of a shard, or the problem with it; and its unknown columns."""

    frame: str
    rows: pl.DataFrame | None
    code: str = ""
    problem: str = ""
    unknown: tuple[str, ...] = ()


class _UnfitError(Exception):
    """A shard that cannot be used: the code of the finding, and the problem in words."""


def _open_shard(
    root: Path, run: Manifest, shard: Shard, shapes: Mapping[str, schema.Frame]
) -> _OpenedShard:
    shape = shapes.get(shard.frame)
    if shape is None:
        return _OpenedShard(
            shard.frame, None, "archive.frame_unknown", "of a frame that is not known"
        )
    try:
        rows = _read_shard(shard.path(root, run.system, run.key), shard)
        kept = _conformed(rows, shape, run.system)
    except _UnfitError as error:
        return _OpenedShard(shard.frame, None, *error.args)
    unknown = tuple(name for name in rows.columns if name not in shape.dtypes)
    return _OpenedShard(shard.frame, kept, unknown=unknown)


def _read_shard(path: Path, shard: Shard) -> pl.DataFrame:
    try:
        content, status = read_octets(path, shard.n_bytes)
        if sha256(content).hexdigest() != shard.sha256:
            raise _UnfitError("archive.shard_damaged", _OTHER_BYTES)
        return read_parquet(io.BytesIO(content), status)
    except FileNotFoundError:
        raise _UnfitError("archive.shard_missing", "not there any more") from None
    except OverBoundError as error:
        code = OVER_BUDGET if isinstance(error, BudgetSpentError) else "file.over_bound"
        raise _UnfitError(code, str(error)) from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise _UnfitError("archive.shard_damaged", _OTHER_BYTES) from None
        problem = f"cannot be read: {error.strerror}"
        raise _UnfitError("archive.shard_damaged", problem) from None
    except pl.exceptions.PolarsError:
        raise _UnfitError("archive.shard_damaged", "no Parquet") from None


def _conformed(rows: pl.DataFrame, shape: schema.Frame, system: str) -> pl.DataFrame:
    """Rows in today's shape; columns that an older version did not have are null."""
    try:
        kept = rows if rows.schema == shape.dtypes else shape.conform(rows)
    except pl.exceptions.PolarsError:
        raise _UnfitError("archive.shard_damaged", "not the columns of its frame") from None
    if "system" in kept.columns and not kept["system"].eq_missing(system).all():
        raise _UnfitError("archive.shard_foreign", "rows of another system")
    return kept


def _parts_of_run(run: Manifest, opened: Sequence[_OpenedShard]) -> Parts:
    by_frame: dict[str, list[pl.DataFrame]] = {}
    for shard in opened:
        if shard.rows is not None:
            by_frame.setdefault(shard.frame, []).append(shard.rows)
    entities, transitions, events, findings = (
        pool(by_frame.pop(name, []), frame) for name, frame in _CANONICAL.items()
    )
    details = {name: pl.concat(parts) for name, parts in by_frame.items()}
    return Parts(
        run.system, run.format, entities, transitions, events, findings, details, run.label
    )


def labelled(part: Parts, label: str) -> Parts:
    """The same rows with another label of their source."""
    source = pl.lit(label).alias("source")
    return replace(
        part,
        label=label,
        entities=part.entities.with_columns(source),
        transitions=part.transitions.with_columns(source),
        events=part.events.with_columns(source),
        details={name: frame.with_columns(source) for name, frame in part.details.items()},
        findings=part.findings.with_columns(source),
    )


def _unreadable_manifests(source: Archived) -> Iterator[pl.DataFrame]:
    system = source.runs[-1].system if source.runs else ""
    for path, problem in source.wrong.items():
        if path.parent.name == LOOKS:
            yield counted(
                source.label,
                system,
                "archive.look_unreadable",
                "warning",
                "a note of what was collected last cannot be read",
                table=LOOKS,
                example=path.name,
                action="taken from the other notes, and from the runs that found something new",
            )
            continue
        yield counted(
            source.label,
            system,
            "archive.run_unreadable",
            "error",
            f"a run of the archive {problem}",
            table="manifests",
            example=path.name,
            action="what only this run wrote is excluded",
        )


def _failed_attempt(source: Archived) -> Iterator[pl.DataFrame]:
    """A finding that the last collection failed, with the time of the last observation."""
    if source.attempt is None:
        return
    last = source.last
    when = "" if source.attempt.at is None else f" at {source.attempt.at:%Y-%m-%d %H:%M} UTC"
    action = "nothing is known of it"
    if last is not None:
        action = f"shown as last seen at {last.observed_at:%Y-%m-%d %H:%M} UTC"
    yield counted(
        source.label,
        "" if last is None else last.system,
        "archive.not_collected",
        "warning",
        f"it could not be collected{when}: {source.attempt.message}",
        action=action,
    )


def _runs_out_of_order(source: Archived) -> Iterator[pl.DataFrame]:
    """Findings about runs with an earlier clock, or an older state, than the run before."""
    by_number = sorted(source.runs, key=lambda run: (run.number, run.run))
    pairs = list(pairwise(by_number))
    backwards = [run for before, run in pairs if before.observed_at - run.observed_at > _OVERLAP]
    # Of two concurrent runs, the one that read first may finish last.
    older = [
        run
        for before, run in pairs
        if run.observed_at >= before.observed_at and run.proven_at < before.proven_at
    ]
    if backwards:
        yield counted(
            source.label,
            backwards[-1].system,
            "archive.clock_went_back",
            "info",
            "runs that have, by their clock, an earlier time than the run before them",
            n_rows=len(backwards),
            table="manifests",
            example=in_utc(backwards[-1].observed_at),
            action="ordered by what they observed, not by their clock",
        )
    if older:
        yield counted(
            source.label,
            older[-1].system,
            "archive.source_went_back",
            "warning",
            "runs that found the source older than an earlier run did, as after a restored backup",
            n_rows=len(older),
            table="manifests",
            example=in_utc(older[-1].observed_at),
            action="nothing that was archived is lost; the newer observation holds",
        )


_SEVERITY = {"archive.frame_unknown": "warning"}


def _shard_problems(
    source: Archived,
    system: str,
    wanted: Sequence[tuple[Manifest, Shard]],
    opened: Sequence[_OpenedShard],
) -> Iterator[pl.DataFrame]:
    """One finding for all files with the same problem, and for each unknown column."""
    unread: dict[tuple[str, str, str], list[tuple[Manifest, Shard]]] = {}
    unknown: dict[tuple[str, str], int] = {}
    for (run, shard), result in zip(wanted, opened, strict=True):
        if result.rows is None:
            key = (result.code, result.problem, result.frame)
            unread.setdefault(key, []).append((run, shard))
        for column in result.unknown:
            unknown[result.frame, column] = unknown.get((result.frame, column), 0) + shard.n_rows
    for (code, problem, frame), shards in unread.items():
        run, shard = shards[0]
        place = shard.path(Path(), run.system, run.key).as_posix()
        yield counted(
            source.label,
            system,
            code,
            _SEVERITY.get(code, "error"),
            f"files of the archive: {problem}",
            n_rows=sum(shard.n_rows for _, shard in shards),
            table=frame,
            example=f"{len(shards)} files, such as {place}" if len(shards) > 1 else place,
            action="excluded; all others are read",
        )
    for (frame, column), n_rows in unknown.items():
        yield counted(
            source.label,
            system,
            "archive.column_unknown",
            "info",
            "a column unknown to this version",
            n_rows=n_rows,
            table=frame,
            column=column,
            action="excluded",
        )


def _skipped_weeks(
    source: Archived, system: str, wanted: Sequence[tuple[Manifest, Shard]]
) -> pl.DataFrame:
    every = [shard for run in source.runs for shard in run.shards if shard.frame != "findings"]
    opened = [shard for _, shard in wanted if shard.frame != "findings"]
    n_read, n_all = (sum(shard.n_bytes for shard in shards) for shards in (opened, every))
    return counted(
        source.label,
        system,
        "archive.some_weeks",
        "info",
        f"{n_read:,} of {n_all:,} bytes were read, the files of the requested weeks",
        n_rows=sum(shard.n_rows for shard in opened),
        table="shards",
        example=", ".join(sorted({shard.week for shard in opened if shard.week != ACROSS})),
        action="the other weeks were not opened",
    )


def work_of(source: Archived) -> pl.Series:
    """Distinct digests of the dated entities of a source; unreadable files have none.

    Sources that recorded the same work share some of them, and so do copies of one store.
    """
    things = [schema.ENTITIES.empty().select(_THING)]
    for run in source.runs:
        for shard in run.shards:
            if shard.frame == "entities":
                path = shard.path(source.root, run.system, run.key)
                with suppress(OSError, pl.exceptions.PolarsError):
                    rows = pl.read_parquet(path, columns=_THING)
                    things.append(rows.cast(things[0].schema))
    dated = pl.concat(things).filter(pl.col("created_at").is_not_null())
    return dated.select(pl.struct(_THING).hash()).to_series().unique()

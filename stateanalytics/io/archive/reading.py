"""The sources of an archive, each with the rows that its runs kept, of all or chosen weeks."""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.windows import TICK, minute_of, read_window
from stateanalytics.errors import ArgumentError, NotAStoreError
from stateanalytics.io import budget
from stateanalytics.io.archive import manifests
from stateanalytics.io.archive.manifests import Archived, Manifest
from stateanalytics.io.files import read_octets, read_parquet
from stateanalytics.io.findings import all_findings, counted, noted
from stateanalytics.io.observations import as_last_seen
from stateanalytics.io.parts import Parts

_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_RANGE = re.compile(r"\s*(\d{4})-W(\d{2})\s*(?:\.\.\s*(?:(\d{4})-)?W(\d{2})\s*)?", re.IGNORECASE)
_HOW = 'weeks="2026-W10..W21", weeks="2026-W21", or weeks="2025-W50..2026-W03"'


@dataclass(frozen=True)
class ChosenWeeks:
    """The ISO weeks from ``first`` to ``last``, both included.

    Attributes
    ----------
    first, last : str
        Such as ``2026-W10``.
    """

    first: str
    last: str

    @classmethod
    def of(cls, text: str) -> ChosenWeeks:
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
        parts = _RANGE.fullmatch(str(text))
        if not parts:
            raise ArgumentError(f"weeks needs ISO weeks; found {text!r:.80}.", _HOW)
        year, week, last_year, last_week = parts.groups()
        chosen = cls(_week(year, week), _week(last_year or year, last_week or week))
        if chosen.first > chosen.last:
            raise ArgumentError(
                f"weeks runs forward; {text!r:.80} ends before it begins.",
                'weeks="2025-W50..2026-W03" names the year of both',
            )
        return chosen

    def has(self, week: str) -> bool:
        """Whether a week is chosen."""
        return self.first <= week <= self.last

    def end_before(self, moments: Iterable[datetime | None]) -> datetime | None:
        """The last instant of these weeks, if any of the moments is later."""
        end = read_window(self.last, as_of=_END_OF_TIME).until - TICK
        return end if any(moment is not None and moment > end for moment in moments) else None


def _week(year: str, number: str) -> str:
    text = f"{year}-W{number}"
    read_window(text, as_of=_END_OF_TIME)  # refuses a week that the year does not have
    return text


FACTS = {frame.name: frame for frame in (schema.ENTITIES, schema.TRANSITIONS, schema.EVENTS)}
_CANONICAL = {**FACTS, "findings": schema.FINDINGS}

_THING = ["entity_type", "entity_id", "created_at"]
_OTHER_BYTES = "not the bytes that were written"
_OVERLAP = timedelta(hours=1)
"""Two concurrent runs may end in either order; only after more time did a clock go back."""

Weeks = Callable[[str], bool]
"""A test for a requested week; `ACROSS` is always read."""


def is_archive(path: Path) -> bool:
    """Whether a directory is an archive, with or without a finished run."""
    if not (path / manifests.MANIFESTS).is_dir():
        return False
    return (
        manifests.is_with_runs(path)
        or {entry.name for entry in path.iterdir()} <= manifests.FOLDERS
    )


def archived_source(root: Path, key: str) -> Archived:
    """One source of an archive; one without runs if the archive does not have it."""
    return manifests.runs_by_source(root).get(key, Archived(root))


def archived_sources(root: Path) -> list[Archived]:
    """The sources of an archive, in the order of their labels.

    Raises
    ------
    NotAStoreError
        If no run was ever finished, or a newer version wrote the archive.
    """
    by_key, failed = manifests.runs_by_source(root), manifests.read_attempts(root)
    last_looks, unreadable = manifests.read_looks(root)
    sources = [
        *(
            replace(source, attempt=failed.get(key), look=last_looks.get(key))
            for key, source in by_key.items()
        ),
        *(
            Archived(root, files=(manifests.attempt_path(root, key),), attempt=attempt)
            for key, attempt in failed.items()
            if key not in by_key
        ),
        *(Archived(root, files=(path,), wrong={path: ""}) for path in unreadable),
    ]
    if not by_key:
        raise NotAStoreError(
            f"The archive {str(root)!r} holds no run that was finished.",
            'archive something: sa.read("state.db").archive("history/")',
            shell="stateanalytics archive state.db --to history/",
        )
    return sorted(sources, key=lambda source: (source.label, source.files[0].name))


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
    [part] = read_many_archived([source], [source.label], frames, weeks=weeks)
    return part


def read_many_archived(
    sources: Sequence[Archived],
    labels: Sequence[str],
    frames: Mapping[str, schema.Frame],
    *,
    weeks: Weeks | None = None,
) -> list[Parts]:
    """What `read_archived` gives for each of some sources; a file of several is opened once.

    ``labels`` are the names of the sources in all rows.
    """
    shapes = {**frames, **_CANONICAL}
    opened = _opened(sources, labels, weeks, shapes)
    if any(found.code == "archive.shard_missing" for found in opened):
        # It may have been compacted since the runs were listed.
        current = [_with_current_files(source) for source in sources]
        if [source.runs for source in current] != [source.runs for source in sources]:
            opened = _opened(current, labels, weeks, shapes)
    rows_of: list[list[_Opened]] = [[] for _ in sources]
    for found in opened:
        rows_of[found.number].append(found)
    return [
        _part_of_source(source, label, rows, frames, is_whole=weeks is None)
        for source, label, rows in zip(sources, labels, rows_of, strict=True)
    ]


def _with_current_files(source: Archived) -> Archived:
    """The source with the places that the archive has for the rows of its runs by now."""
    if not source.runs:
        return source
    current = {run.name: run for run in archived_source(source.root, source.runs[0].key).runs}
    runs = tuple(
        replace(run, shards=current[run.name].shards) if run.name in current else run
        for run in source.runs
    )
    return replace(source, runs=runs)


def _part_of_source(
    source: Archived,
    label: str,
    rows: Sequence[_Opened],
    frames: Mapping[str, schema.Frame],
    *,
    is_whole: bool,
) -> Parts:
    """One source from the rows of its runs."""
    if not source.runs:
        problems = all_findings(*_unreadable_manifests(source), *_failed_attempt(source))
        return Parts.unread(problems.with_columns(source=pl.lit(label)), label)
    latest = source.runs[-1]
    by_run: dict[str, list[_Opened]] = {run.name: [] for run in source.runs}
    for found in rows:
        by_run[found.run.name].append(found)
    # A run that found only files touched wrote no rows, and removes none.
    observations = [
        _parts_of_run(run, by_run[run.name], label)
        for before, run in zip((None, *source.runs), source.runs, strict=False)
        if before is None
        or before.content != run.content
        or any(shard.frame != "findings" for shard in run.shards)
    ]
    whole = as_last_seen(observations, frames) if len(observations) > 1 else observations[0]
    # Where nothing was pruned and every week is open, these are the rows of the latest run.
    is_all = is_whole and all(
        latest.counts.get(name) == getattr(whole, name).height for name in FACTS
    )
    findings = [
        *(
            _stacked([each])
            for each in by_run[latest.name]
            if each.shard.frame == "findings" and each.whole is not None
        ),
        *_unreadable_manifests(source),
        *_failed_attempt(source),
        *_runs_out_of_order(source),
        *_shard_problems(source, latest.system, rows),
        *([] if is_whole else [_skipped_weeks(source, latest.system, rows)]),
    ]
    own = all_findings(*findings)
    return replace(
        whole,
        findings=own if label == source.label else own.with_columns(source=pl.lit(label)),
        size_bytes=latest.size_bytes,
        fingerprint=latest.fingerprint if is_all else "",
        span=(latest.first_at, latest.last_at) if is_all else None,
        label=label,
    )


@dataclass(slots=True)
class _Opened:
    """The rows of a shard, and where in all rows they begin; or the problem with it."""

    number: int
    """Of its source, of which ``label`` is the name."""
    label: str
    root: Path
    run: Manifest
    shard: manifests.Shard
    whole: pl.DataFrame | None = None
    begin: int = 0
    n_rows: int = 0
    code: str = ""
    problem: str = ""
    unknown: tuple[str, ...] = ()

    @property
    def file(self) -> tuple[object, ...]:
        """What identifies its file, without making a path of it."""
        shard, run = self.shard, self.run
        own = () if shard.first is not None else (run.system, run.key)
        return (self.root, shard.frame, shard.week, shard.sha256, shard.n_bytes, own)

    @property
    def path(self) -> Path:
        return self.shard.path(self.root, self.run.system, self.run.key)


class UnfitError(Exception):
    """A shard that cannot be used: the code of the finding, and the problem in words."""


def _opened(
    sources: Sequence[Archived],
    labels: Sequence[str],
    weeks: Weeks | None,
    shapes: Mapping[str, schema.Frame],
) -> list[_Opened]:
    """The rows of each shard of some weeks, in order; each file is opened once."""
    opened = [
        _Opened(number, label, source.root, run, shard)
        for number, (source, label) in enumerate(zip(sources, labels, strict=True))
        for run in source.runs
        for shard in run.shards
        if (
            run is source.runs[-1]
            if shard.frame == "findings"
            else weeks is None or shard.week == manifests.ACROSS or weeks(shard.week)
        )
    ]
    files: dict[tuple[object, ...], list[_Opened]] = {}
    for one in opened:
        files.setdefault(one.file, []).append(one)
    groups = list(files.values())

    def read(group: Sequence[_Opened]) -> pl.DataFrame | None:
        return _read_file(group, shapes)

    if len(groups) < _FEW_FILES:
        frames = [read(group) for group in groups]
    else:
        with ThreadPoolExecutor(
            os.cpu_count(), initializer=budget.share, initargs=(budget.spending(),)
        ) as threads:
            frames = list(threads.map(read, groups))
    by_frame: dict[str, list[tuple[pl.DataFrame, list[_Opened]]]] = {}
    for group, rows in zip(groups, frames, strict=True):
        if rows is not None:
            by_frame.setdefault(group[0].shard.frame, []).append((rows, group))
    for some in by_frame.values():
        _hand_out(some)
    return opened


_FEW_FILES = 4
"""So many are opened before threads would have started."""


def _read_file(group: Sequence[_Opened], shapes: Mapping[str, schema.Frame]) -> pl.DataFrame | None:
    """The rows of a file in today's shape; None, with the problem noted, where it is unfit.

    Columns that an older version did not have are null.
    """
    one, shape = group[0], shapes.get(group[0].shard.frame)
    code, problem = "archive.frame_unknown", "of a frame that is not known"
    try:
        if shape is not None:
            rows = read_shard(one.path, one.shard)
            kept = shape.conform(rows)
            for each in group:
                each.unknown = tuple(name for name in rows.columns if name not in shape.dtypes)
            return kept
    except UnfitError as error:
        code, problem = error.args
    except pl.exceptions.PolarsError:
        code, problem = "archive.shard_damaged", "not the columns of its frame"
    for each in group:
        each.code, each.problem = code, problem
    return None


def _hand_out(files: Sequence[tuple[pl.DataFrame, list[_Opened]]]) -> None:
    """Give each shard its rows, out of all files of one frame at once."""
    whole = pl.concat([rows for rows, _ in files], rechunk=True)
    begin, pieces = 0, []
    for rows, group in files:
        for each in group:
            shard = each.shard
            first, n_rows = (0, rows.height) if shard.first is None else (shard.first, shard.n_rows)
            if first + n_rows > rows.height:
                each.code, each.problem = "archive.shard_damaged", "without some of its rows"
            else:
                pieces.append((each, begin + first, n_rows))
        begin += rows.height
    # The pieces of one source lie together from here on.
    pieces.sort(key=lambda piece: piece[0].number)
    counts = [n_rows for _, _, n_rows in pieces]
    numbered = pl.DataFrame(
        {
            "source": [each.label for each, _, _ in pieces],
            "system": [each.run.system for each, _, _ in pieces],
            "first": [first for _, first, _ in pieces],
            "n": counts,
        },
        schema_overrides={"first": pl.Int64, "n": pl.Int64},
    )
    row = pl.int_ranges("first", pl.col("first") + pl.col("n"))
    by_row = numbered.filter(pl.col("n") > 0).select("source", "system", row=row).explode("row")
    together = whole[by_row["row"]].with_columns(by_row["source"])
    is_own = pl.repeat(value=True, n=together.height, eager=True)
    if "system" in together.columns:
        is_own = together["system"].eq_missing(by_row["system"])
    is_all_own, begin = is_own.all(), 0
    for each, _, n_rows in pieces:
        if is_all_own or is_own.slice(begin, n_rows).all():
            each.whole, each.begin, each.n_rows = together, begin, n_rows
        else:
            each.code, each.problem = "archive.shard_foreign", "rows of another system"
        begin += n_rows


def read_shard(path: Path, shard: manifests.Shard) -> pl.DataFrame:
    """All rows of the file of a shard.

    Raises
    ------
    UnfitError
        If it is not there, or not what was written.
    """
    try:
        content, status = read_octets(path, shard.n_bytes)
        if sha256(content).hexdigest() != shard.sha256:
            raise UnfitError("archive.shard_damaged", _OTHER_BYTES)
        rows = read_parquet(io.BytesIO(content), status)
        # Before 0.3.0 the turns that the agent's program reported stood in `n_turns`.
        is_older = shard.frame == "entities" and "n_model_turns" not in rows.columns
        return rows.rename({"n_turns": "n_model_turns"}, strict=False) if is_older else rows
    except FileNotFoundError:
        raise UnfitError("archive.shard_missing", "not there any more") from None
    except budget.OverBoundError as error:
        code = (
            budget.OVER_BUDGET if isinstance(error, budget.BudgetSpentError) else "file.over_bound"
        )
        raise UnfitError(code, str(error)) from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise UnfitError("archive.shard_damaged", _OTHER_BYTES) from None
        raise UnfitError("archive.shard_damaged", f"cannot be read: {error.strerror}") from None
    except pl.exceptions.PolarsError:
        raise UnfitError("archive.shard_damaged", "no Parquet") from None


def _parts_of_run(run: Manifest, opened: Sequence[_Opened], label: str) -> Parts:
    by_frame: dict[str, list[_Opened]] = {}
    for each in opened:
        if each.whole is not None and each.shard.frame != "findings":
            by_frame.setdefault(each.shard.frame, []).append(each)
    named = {name: _stacked(pieces) for name, pieces in by_frame.items()}
    entities, transitions, events = (
        named.pop(name, frame.empty()) for name, frame in FACTS.items()
    )
    none = schema.FINDINGS.empty()
    return Parts(run.system, run.format, entities, transitions, events, none, named, label)


def _stacked(pieces: Sequence[_Opened]) -> pl.DataFrame:
    """The rows of some shards of one frame; of neighbours without a copy."""
    groups: list[tuple[pl.DataFrame, int, int]] = []
    for each in pieces:
        if each.whole is None:
            continue
        whole, begin, n_rows = groups[-1] if groups else (None, 0, 0)
        if each.whole is whole and each.begin == begin + n_rows:
            groups[-1] = (each.whole, begin, n_rows + each.n_rows)
        else:
            groups.append((each.whole, each.begin, each.n_rows))
    frames = [whole.slice(begin, n_rows) for whole, begin, n_rows in groups]
    return frames[0] if len(frames) == 1 else pl.concat(frames)


def _unreadable_manifests(source: Archived) -> Iterator[pl.DataFrame]:
    found = partial(noted, source.label, source.runs[-1].system if source.runs else "")
    for path, problem in source.wrong.items():
        if path.parent.name == manifests.LOOKS:
            yield found("archive.look_unreadable", table=manifests.LOOKS, example=path.name)
        else:
            yield found("archive.run_unreadable", problem, example=path.name)


def _failed_attempt(source: Archived) -> Iterator[pl.DataFrame]:
    """A finding that the last collection failed, with the time of the last observation."""
    if source.attempt is None:
        return
    last = source.last
    when = "" if source.attempt.at is None else f" at {source.attempt.at:%Y-%m-%d %H:%M} UTC"
    action = "nothing is known of it"
    if last is not None:
        action = f"shown as last seen at {last.observed_at:%Y-%m-%d %H:%M} UTC"
    system, message = "" if last is None else last.system, source.attempt.message
    yield noted(source.label, system, "archive.not_collected", when, message, action=action)


def _runs_out_of_order(source: Archived) -> Iterator[pl.DataFrame]:
    """Findings about runs with an earlier clock, or an older state, than the run before."""
    pairs = list(pairwise(sorted(source.runs, key=lambda run: (run.number, run.run))))
    backwards = [run for before, run in pairs if before.observed_at - run.observed_at > _OVERLAP]
    # Of two concurrent runs, the one that read first may finish last.
    older = [
        run
        for before, run in pairs
        if run.observed_at >= before.observed_at and run.proven_at < before.proven_at
    ]
    wrong = {"archive.clock_went_back": backwards, "archive.source_went_back": older}
    for code, runs in wrong.items():
        if runs:
            example = minute_of(runs[-1].observed_at)
            yield noted(source.label, runs[-1].system, code, n_rows=len(runs), example=example)


def _shard_problems(
    source: Archived, system: str, rows: Sequence[_Opened]
) -> Iterator[pl.DataFrame]:
    """One finding for all files with the same problem, and for each unknown column."""
    unread: dict[tuple[str, str, str], list[tuple[Manifest, manifests.Shard]]] = {}
    unknown: dict[tuple[str, str], int] = {}
    for each in rows:
        shard = each.shard
        if each.whole is None:
            unread.setdefault((each.code, each.problem, shard.frame), []).append((each.run, shard))
        for column in each.unknown:
            unknown[shard.frame, column] = unknown.get((shard.frame, column), 0) + shard.n_rows
    for (code, problem, frame), shards in unread.items():
        run, shard = shards[0]
        place = shard.path(Path(), run.system, run.key).as_posix()
        yield counted(
            source.label,
            system,
            code,
            "warning" if code == "archive.frame_unknown" else "error",
            f"files of the archive: {problem}",
            n_rows=sum(shard.n_rows for _, shard in shards),
            table=frame,
            example=f"{len(shards)} files, such as {place}" if len(shards) > 1 else place,
            action="excluded; all others are read",
        )
    for (frame, column), n_rows in unknown.items():
        code = "archive.column_unknown"
        yield noted(source.label, system, code, n_rows=n_rows, table=frame, column=column)


def _skipped_weeks(source: Archived, system: str, rows: Sequence[_Opened]) -> pl.DataFrame:
    every = [shard for run in source.runs for shard in run.shards if shard.frame != "findings"]
    opened = [each.shard for each in rows if each.shard.frame != "findings"]
    n_read, n_all = (
        sum({shard.sha256: shard.n_bytes for shard in shards}.values())
        for shards in (opened, every)
    )
    weeks = sorted({shard.week for shard in opened if shard.week != manifests.ACROSS})
    return noted(
        source.label,
        system,
        "archive.some_weeks",
        n_read,
        n_all,
        n_rows=sum(shard.n_rows for shard in opened),
        example=", ".join(weeks),
    )


def works_of(sources: Sequence[Archived]) -> list[pl.Series]:
    """Distinct digests of the dated entities of each source; unreadable files have none.

    Sources that recorded the same work share some of them, and so do copies of one store.
    """
    none = schema.ENTITIES.empty().select(_THING)
    things: list[list[pl.DataFrame]] = [[none] for _ in sources]
    opened: dict[Path, pl.DataFrame | None] = {}
    for number, source in enumerate(sources):
        for run in source.runs:
            for shard in run.shards:
                if shard.frame == "entities":
                    path = shard.path(source.root, run.system, run.key)
                    if path not in opened:
                        opened[path] = _things_in(path, none.schema)
                    rows = opened[path] if shard.first is not None else opened.pop(path)
                    if rows is not None:
                        things[number].append(rows.slice(shard.first or 0, shard.n_rows))
    dated = [pl.concat(rows).filter(pl.col("created_at").is_not_null()) for rows in things]
    return [rows.select(pl.struct(_THING).hash()).to_series().unique() for rows in dated]


def _things_in(path: Path, dtypes: pl.Schema) -> pl.DataFrame | None:
    with suppress(OSError, pl.exceptions.PolarsError):
        return pl.read_parquet(path, columns=_THING).cast(dict(dtypes))  # type: ignore[arg-type]
    return None

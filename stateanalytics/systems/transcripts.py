"""Shared by all readers of transcripts: folders of JSON lines, one file per thread."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from io import BytesIO
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts, FrameOrFactory
from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import INTEGER, MOMENT, REAL, TEXT, YES_NO, Frame
from stateanalytics.io import json_lines
from stateanalytics.io.budget import Budget, spend, spending
from stateanalytics.io.cache import digest_of_files
from stateanalytics.io.files import as_text, legible, open_regular, read_octets, written_ns
from stateanalytics.io.findings import all_findings, counted
from stateanalytics.io.parsing_process import parsed_apart

_JOINED_ROWS = 10_000
_FEW_ROWS = 1000


@dataclass(frozen=True)
class Piece:
    """Compressed rows, because thousands of small frames would take more memory than this."""

    data: bytes | memoryview
    n_rows: int
    files: frozenset[str]

    def rows(self, columns: list[str] | None = None) -> pl.DataFrame:
        """The rows, with some of the columns."""
        return pl.read_ipc(bytes(self.data), columns=columns)

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Piece:
        """Some rows, compressed."""
        file = BytesIO()
        rows.write_ipc(file, compression="lz4")
        files = rows["file"].unique() if "file" in rows.columns else ()
        return cls(file.getvalue(), rows.height, frozenset(files))


@dataclass(frozen=True)
class Packed:
    """Rows of transcripts in compressed pieces; only pieces that are needed are unpacked.

    Attributes
    ----------
    none : polars.DataFrame
        Their columns, without rows.
    pieces : sequence of Piece
        In the order of the rows.
    index : polars.DataFrame, optional
        `Folding.index` of the rows, so that rows are chosen without unpacking.
    """

    none: pl.DataFrame
    pieces: Sequence[Piece]
    index: pl.DataFrame | None = None

    def __call__(self, columns: Iterable[str] | None = None) -> pl.DataFrame:
        """All rows, with some of the columns."""
        names = self.none.columns if columns is None else list(columns)
        parts = (piece.rows(names) for piece in self.pieces)
        return pl.concat([self.none.select(names), *(part.select(names) for part in parts)])

    def filter(self, mask: pl.Series) -> pl.DataFrame:
        """The rows for which a Boolean is true; pieces without any stay packed."""
        parts, begin = [self.none], 0
        for piece in self.pieces:
            mine = mask.slice(begin, piece.n_rows)
            begin += piece.n_rows
            if mine.any():
                parts.append(piece.rows().filter(mine))
        return pl.concat(parts, rechunk=True)

    def of_files(self, files: frozenset[str]) -> pl.DataFrame:
        """All rows of the pieces with any of these files; they may have other files, too."""
        pieces = (piece for piece in self.pieces if not files.isdisjoint(piece.files))
        return pl.concat([self.none, *(piece.rows() for piece in pieces)])

    def with_rows(self, rows: pl.DataFrame) -> Packed:
        """These rows followed by others."""
        return replace(self, pieces=[*self.pieces, Piece.of(rows)])

    def updated(self, new: Packed, places: Mapping[str, int], reread: Collection[str]) -> Packed:
        """The rows after some files were read again, in the order of the files.

        Parameters
        ----------
        new : Packed
            The rows of the files that were read again.
        places : mapping of str to int
            The order of all files; a file that is not in it no longer exists.
        reread : collection of str
            The files that were read again, whose earlier rows are dropped.
        """
        pieces = [*self.pieces, *new.pieces]
        n_old = len(self.pieces)
        runs = sorted(
            (places[file], number, file)
            for number, piece in enumerate(pieces)
            for file in piece.files
            if number >= n_old or (file in places and file not in reread)
        )
        wanted = [
            (pieces[number], frozenset(file for *_, file in run))
            for number, run in groupby(runs, key=lambda run: run[1])
        ]
        if len(wanted) > 2 * len(pieces):  # many files are mixed: unpack each piece only once
            kept = frozenset(places.keys() - reread)
            old = [_rows_of(piece, piece.files & kept) for piece in self.pieces]
            every = pl.concat([self.none, *old, *(piece.rows() for piece in new.pieces)])
            rows = every.sort(_place(places), maintain_order=True)
            cut = [Piece.of(part) for part in rows.iter_slices(_JOINED_ROWS)]
            return replace(self, pieces=cut, index=None)
        # Small pieces, and pieces that lose some files, are joined with their neighbours.
        # Otherwise the number of pieces would grow with each read.
        ends = list(accumulate(piece.n_rows for piece, _ in wanted))
        groups = groupby(
            zip(wanted, ends, strict=True),
            key=lambda pair: _is_joined(*pair[0]) and 1 + pair[1] // _JOINED_ROWS,
        )
        joined: list[Piece] = []
        for is_joined, group in groups:
            some = [pair for pair, _ in group]
            if is_joined and (len(some) > 1 or some[0][0].files != some[0][1]):
                joined.append(Piece.of(pl.concat(_rows_of(*pair) for pair in some)))
            else:
                joined += [piece for piece, _ in some]
        return replace(self, pieces=joined, index=None)


def _place(places: Mapping[str, int]) -> pl.Expr:
    return pl.col("file").replace_strict(places, return_dtype=pl.Int64)


def _is_joined(piece: Piece, files: frozenset[str]) -> bool:
    return piece.n_rows < _FEW_ROWS or files != piece.files


def _rows_of(piece: Piece, files: frozenset[str]) -> pl.DataFrame:
    rows = piece.rows()
    return rows if files == piece.files else rows.filter(pl.col("file").is_in(files))


def columns_of(frame: FrameOrFactory, columns: Iterable[str]) -> pl.DataFrame:
    """Some columns of a frame that may be packed, or a function that makes it."""
    if isinstance(frame, Packed):
        return frame(columns)
    return (frame() if callable(frame) else frame).select(list(columns))


# TIMESTAMPTZ, because a cast to TIMESTAMP ignores the offset and anything after the time.
_STORED: Mapping[pl.DataType, str] = {
    TEXT: "VARCHAR",
    INTEGER: "BIGINT",
    REAL: "DOUBLE",
    YES_NO: "BOOLEAN",
    MOMENT: "TIMESTAMPTZ",
}


def fields_read(*frames: Frame) -> json_lines.Fields:
    """Where in a record each column is read from, for `io.json_lines.Parser.read`."""
    return {
        column.name: (column.read_from, _STORED[column.dtype])
        for frame in frames
        for column in frame.columns
        if column.read_from
    }


_MOST = 2**62
"""The upper limit of counts; the sum of two of them still fits into 64 bits."""


@dataclass(frozen=True)
class Transcripts:
    """The records of the transcripts of one input.

    Attributes
    ----------
    rows : tuple of Packed
        The frames that records are read into.
    bad : polars.DataFrame
        ``file``, ``line_no``, ``code``: lines that could not be read.
    lost : tuple of (str, OSError)
        Files that could not be read to their end; records before the error are kept.
    versions : mapping of str to object
        For each file a value that changes whenever its content may have changed; empty if two
        files have the same name.
    files : tuple of str
        The names of all transcripts, in order.
    """

    rows: tuple[Packed, ...]
    bad: pl.DataFrame
    lost: tuple[tuple[str, OSError], ...]
    versions: Mapping[str, object] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def findings(self, source: str, system: str, on_error: str) -> pl.DataFrame:
        """Findings on what could not be read.

        Raises
        ------
        DamagedStoreError
            If there is any, and ``on_error`` is ``raise``.
        """
        lost = json_lines.losses(self.bad, self.lost, source, system)
        json_lines.refuse_losses(lost, source, on_error)
        return lost

    def empty_files(self, lines: pl.DataFrame) -> pl.DataFrame:
        """``file`` of those that were read and have no line at all, not even a bad one."""
        named = (self.files, [name for name, _ in self.lost])
        files, lost = (pl.DataFrame({"file": names}, schema={"file": pl.String}) for names in named)
        known = pl.concat([rows.select("file") for rows in (lines, self.bad, lost)])
        return files.join(known, on="file", how="anti")


def read_records(
    root: Path,
    paths: Iterable[Path],
    source: str,
    *,
    fields: json_lines.Fields,
    frames: Sequence[Frame],
    typed: json_lines.Typed,
    before: Transcripts | None = None,
) -> Transcripts:
    """Every record of some transcripts.

    Parameters
    ----------
    root : pathlib.Path
        The input; files are named by their path relative to it.
    paths : iterable of pathlib.Path
    source : str
        How the user named the input.
    fields : Fields
        The fields to read of each record.
    frames : sequence of Frame
        The frames that records are read into.
    typed : callable
        Makes rows for those frames, without ``source``.
    before : Transcripts, optional
        The last result for the same input and arguments: files that did not change since
        are not read again. The result is that of a fresh read.
    """
    lost: list[tuple[str, OSError]] = []
    named = [(name_of(path, root), path) for path in paths]
    places = {name: place for place, (name, _) in enumerate(named)}
    versions = _versions(named)
    known = before.versions if before is not None and versions else {}
    reread = {name for name, _ in named if not versions or known.get(name) != versions[name]}
    is_tight = spending().budget not in (Budget(), Budget.unlimited())

    def chunks(files: Iterable[tuple[str, Path]]) -> Iterator[json_lines.Chunk]:
        for name, path in files:
            try:
                yield from json_lines.chunks_of(path, name, "transcript")
            except OSError as error:
                lost.append((name, error))

    with json_lines.Parser() as parser:

        def packed(rows: list[pl.DataFrame]) -> list[Piece]:
            *of_frames, bad = rows
            pairs = zip(frames, of_frames, strict=True)
            label = pl.lit(source).alias("source")
            conformed = [frame.conform(records.with_columns(label)) for frame, records in pairs]
            if is_tight:  # files were read newest first
                conformed = [rows.sort(_place(places), maintain_order=True) for rows in conformed]
            return [Piece.of(frame) for frame in (*conformed, bad)]

        def read(piece: list[json_lines.Chunk]) -> list[Piece]:
            return packed(json_lines.typed_rows(piece, fields, typed, parser))

        pieces: list[list[Piece]] = []
        is_bounded = spending().budget.growth_ratio is not None
        changed = [pair for pair in named if pair[0] in reread]
        if is_tight:  # newest first, so that the oldest are skipped
            changed.sort(key=lambda pair: written_ns(pair[1]), reverse=True)
        for is_apart, files in groupby(
            changed, lambda pair: is_bounded and json_lines.grows(pair[1])
        ):
            if not is_apart:
                of_files = json_lines.in_pieces(chunks(files), 2 * json_lines.CHUNK_BYTES)
                pieces += json_lines.side_by_side(read, of_files)
                continue
            for name, path in files:
                of_file, error = parsed_apart(path, name, fields, typed)
                pieces += map(packed, of_file)
                lost += [] if error is None else [(name, error)]
    empty = (*(frame.empty() for frame in frames), pl.DataFrame(schema=json_lines.BAD))
    *rows, bad = (Packed(none, own) for none, *own in zip(empty, *pieces, strict=True))
    all_bad = bad()
    if known or (is_tight and len(places) == len(named)):
        olds = before.rows if before and known else [replace(new, pieces=[]) for new in rows]
        rows = [old.updated(new, places, reread) for old, new in zip(olds, rows, strict=True)]
    if before and known:
        kept = before.bad.filter(pl.col("file").is_in(places.keys() - reread))
        all_bad = pl.concat([kept, all_bad])
    unsure = {name: object() for name, _ in lost}
    versions = {**versions, **unsure} if versions else versions
    bad_rows = all_bad.sort("file", "line_no")
    return Transcripts(tuple(rows), bad_rows, tuple(lost), versions, tuple(places))


def _versions(named: Sequence[tuple[str, Path]]) -> dict[str, object]:
    """A version of each file, which changes when it is written to; none if names repeat."""
    now = datetime.now(UTC)
    versions: dict[str, object] = {
        name: digest_of_files([path], now) or object() for name, path in named
    }
    return versions if len(versions) == len(named) else {}


def name_of(path: Path, root: Path) -> str:
    """The path of a transcript relative to its input."""
    return legible(path.relative_to(root.parent if root.is_file() else root).as_posix())


@cache
def words_of(package: str) -> dict[str, list[str]]:
    """The words that any version of a program writes, by the field that they describe."""
    table = pl.DataFrame(table_rows(package, "known_words.csv"))
    return {
        of: table.filter(of=of)["word"].to_list() for of in table["of"].unique(maintain_order=True)
    }


def strange(package: str, rows: pl.DataFrame, column: str, of: str) -> pl.DataFrame:
    """The rows whose word in a column is absent, or is written by no known version."""
    return rows.filter(~pl.col(column).is_in(words_of(package)[of]).fill_null(value=False))


def with_any_number(fields: json_lines.Fields, names: Iterable[str]) -> json_lines.Fields:
    """Fields with some numbers read as text, so that any size fits; see `whole_numbers`."""
    return {**fields, **{name: (fields[name][0], "VARCHAR") for name in names}}


def whole_numbers(names: Iterable[str]) -> list[pl.Expr]:
    """Integers from texts; -1 where one is too large for a count, null where it is no number.

    Examples
    --------
    >>> texts = pl.DataFrame({"n": ["7", "1e30", "true", None]})
    >>> texts.select(whole_numbers(["n"]))["n"].to_list()
    [7, -1, None, None]
    """
    return [
        pl.when(number.abs() < _MOST).then(number).when(number.is_not_null()).then(-1)
        .cast(pl.Int64).alias(name)
        for name in names
        for number in [pl.col(name).cast(pl.Float64, strict=False)]
    ]  # fmt: skip


def below_zero(rows: pl.DataFrame, usage: Iterable[str]) -> pl.DataFrame:
    """The rows with a negative count, or with one too large, which `whole_numbers` made -1."""
    return rows.filter(pl.any_horizontal(pl.col(name) < 0 for name in usage))


def findings_on(
    package: str, source: str, system: str, odd: Mapping[str, pl.DataFrame]
) -> pl.DataFrame:
    """A finding for each code, in the words of ``data/findings.csv`` of a package.

    Parameters
    ----------
    package, source, system : str
    odd : mapping
        The rows of each code.

    Notes
    -----
    In the table, ``example`` names the column of the example: its first values in alphabetical
    order are shown, so that the order of rows does not matter. ``counts`` names the column with
    the number of records that a row stands for.
    """
    words = {row["code"]: row for row in table_rows(package, "findings.csv")}
    return all_findings(
        *(
            counted(
                source,
                system,
                code,
                texts["severity"],
                texts["message"],
                n_rows=int(rows[texts["counts"]].sum()) if texts["counts"] else rows.height,
                example=", ".join(rows[texts["example"]].drop_nulls().unique().sort().head(5)),
            )
            for code, rows in odd.items()
            for texts in [words[code]]
        )
    )


def newer_than(versions: pl.Series, newest: tuple[int, ...]) -> list[str]:
    """The versions that are newer, compared number by number."""
    return [
        version
        for version in versions.drop_nulls().unique()
        if tuple(int(number[:9]) for number in re.findall(r"\d+", version)[:3]) > newest
    ]


def ids_in(path: Path, key: str) -> pl.DataFrame:
    """The ids under a key in a file of prompts, as ``id``; prompts are not kept.

    It is one small file, so it is read even if the time limit of transcripts is spent.
    """
    try:
        with spend(replace(spending().budget, processor_s=None)):
            octets, _ = read_octets(path)
    except OSError:
        octets = b""
    matches = re.findall(rb'"%s"\s*:\s*"([0-9a-fA-F-]{36})"' % key.encode(), octets)
    ids = sorted({match.decode() for match in matches})
    return pl.DataFrame({"id": ids}, schema={"id": pl.String})


_MOST_TAIL_BYTES = 4_000_000


def texts_in(
    facts: Facts,
    entity: Mapping[str, Any],
    sessions: Frame,
    said: Callable[[Mapping[str, Any]], tuple[object, object]],
) -> pl.DataFrame:
    """The messages at the end of a session, from its transcript, which is read again.

    Parameters
    ----------
    facts : Facts
    entity : mapping
        A row of ``facts.entities``: a session, or what belongs to one.
    sessions : Frame
        The system's own frame of sessions, with ``thread_id`` and ``file``.
    said : callable
        Role and text of a record; None where it is no message.

    Returns
    -------
    polars.DataFrame
        ``at``, ``role`` and ``text``, in order. No rows where the transcript has gone, or is
        compressed.
    """
    is_session = entity["entity_type"] == "session"
    thread = entity["entity_id"] if is_session else entity["parent_id"]
    files = facts.detail(sessions).filter(source=entity["source"], thread_id=thread)["file"]
    rows = [
        (at, role, text)
        for line in _last_lines(facts, entity["source"], files.drop_nulls().to_list())
        for at, (role, text) in [(line.get("timestamp"), said(line))]
        if isinstance(at, str) and isinstance(role, str) and isinstance(text, str) and text.strip()
    ]
    shape = {"at": pl.String, "role": pl.String, "text": pl.String}
    at = pl.col("at").str.to_datetime(time_unit="us", time_zone="UTC", strict=False)
    found = pl.DataFrame(rows, schema=shape, orient="row").with_columns(at)
    return found.drop_nulls().unique(["at", "role"], keep="last", maintain_order=True)


def _last_lines(facts: Facts, source: str, files: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The records at the end of some transcripts below the inputs."""
    for file in files:
        tails = map(_tail_of, _places_of(facts, source, file))
        for line in json_lines.lines_of(next((tail for tail in tails if tail is not None), b"")):
            with suppress(ValueError, RecursionError):
                if isinstance(record := json.loads(line), dict):
                    yield record


def _places_of(facts: Facts, source: str, file: str) -> Iterator[Path]:
    """Where a transcript may be: first below the input that is named like its source."""
    for root in sorted(facts.inputs, key=lambda root: str(root) != source):
        folder = (root.parent if root.is_file() else root).resolve()
        path = (folder / file).resolve()
        # The path comes from an archive, which may be hostile: it must stay inside the input.
        if path.is_relative_to(folder) and path.suffix == ".jsonl":
            yield path


def _tail_of(path: Path) -> bytes | None:
    """The end of a file; None where it cannot be read."""
    try:
        with open_regular(path) as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - _MOST_TAIL_BYTES))
            return opened.read(_MOST_TAIL_BYTES)
    except OSError:
        return None


def text_of(content: object) -> str | None:
    """The text of a message, whose content is a text or a list of parts."""
    if not isinstance(content, list):
        return as_text(content)
    texts = [as_text(part.get("text")) for part in content if isinstance(part, dict)]
    return "\n".join(text for text in texts if text) or None

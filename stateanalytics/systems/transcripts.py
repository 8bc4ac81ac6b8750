"""What readers of transcripts share: folders of JSON lines, one file a thread of work."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from io import BytesIO
from itertools import accumulate, groupby
from pathlib import Path
from types import MappingProxyType

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import (
    MadeFrame,
    pool,
)
from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import INTEGER, MOMENT, REAL, TEXT, YES_NO, Frame
from stateanalytics.io.archive.manifests import digest_of_files
from stateanalytics.io.budget import spending
from stateanalytics.io.files import legible, read_octets
from stateanalytics.io.findings import counted
from stateanalytics.io.json_lines import (
    BAD,
    Chunk,
    Fields,
    Parser,
    Typed,
    chunks_of,
    grows,
    in_pieces,
    losses,
    refuse_losses,
    side_by_side,
    typed_rows,
)
from stateanalytics.io.parsing_process import parsed_apart

_SPLICED_ROWS = 10_000
_FEW_ROWS = 1000


@dataclass(frozen=True)
class Piece:
    """Rows in few bytes: of thousands of small frames each would keep more than its rows need."""

    octets: bytes
    n_rows: int
    files: frozenset[str]

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Piece:
        """Some rows, packed."""
        file = BytesIO()
        rows.write_ipc(file, compression="lz4")
        files = rows["file"].unique() if "file" in rows.columns else ()
        return cls(file.getvalue(), rows.height, frozenset(files))


@dataclass(frozen=True)
class Packed:
    """Rows of transcripts that are unpacked when they are asked for, all or some.

    Attributes
    ----------
    none : polars.DataFrame
        Their columns.
    pieces : sequence of Piece
        In the order of the rows.
    marks : polars.DataFrame, optional
        `Folding.marks` of them, so that nobody unpacks all to know which are asked for.
    """

    none: pl.DataFrame
    pieces: Sequence[Piece]
    marks: pl.DataFrame | None = None

    def __call__(self, columns: Iterable[str] | None = None) -> pl.DataFrame:
        """All rows, of the columns that are asked for."""
        names = self.none.columns if columns is None else list(columns)
        parts = (pl.read_ipc(piece.octets, columns=names) for piece in self.pieces)
        return pl.concat([self.none.select(names), *(part.select(names) for part in parts)])

    def filter(self, mask: pl.Series) -> pl.DataFrame:
        """The rows for which a Boolean of each row is true; no other piece is unpacked."""
        parts, begin = [self.none], 0
        for piece in self.pieces:
            mine = mask.slice(begin, piece.n_rows)
            begin += piece.n_rows
            if mine.any():
                parts.append(pl.read_ipc(piece.octets).filter(mine))
        return pl.concat(parts, rechunk=True)

    def of_files(self, files: frozenset[str]) -> pl.DataFrame:
        """The rows of all pieces that have any of these files, and so of others, too."""
        found = (piece for piece in self.pieces if not files.isdisjoint(piece.files))
        return pl.concat([self.none, *(pl.read_ipc(piece.octets) for piece in found)])

    def with_rows(self, rows: pl.DataFrame) -> Packed:
        """These rows and others below."""
        return replace(self, pieces=[*self.pieces, Piece.of(rows)])

    def spliced(self, other: Packed, places: Mapping[str, int], again: Collection[str]) -> Packed:
        """With the rows of other files and of those that were read again, all in their order.

        Parameters
        ----------
        other : Packed
            The rows of those files.
        places : mapping of str to int
            In which order the files are; one that is not there has no rows any more.
        again : collection of str
            The files whose rows are not those from before.
        """
        pieces = [*self.pieces, *other.pieces]
        n_old = len(self.pieces)
        runs = sorted(
            (places[file], nth, file)
            for nth, piece in enumerate(pieces)
            for file in piece.files
            if (file in places and file not in again if nth < n_old else True)
        )
        wanted = [
            (pieces[nth], frozenset(file for *_, file in run))
            for nth, run in groupby(runs, key=lambda each: each[1])
        ]
        # Pieces that are taken apart, and small ones, become one with their neighbours: else
        # there would be more of them after each time.
        ends = list(accumulate(piece.n_rows for piece, _ in wanted))
        groups = groupby(
            zip(wanted, ends, strict=True),
            key=lambda each: _is_loose(*each[0]) and 1 + each[1] // _SPLICED_ROWS,
        )
        spliced: list[Piece] = []
        for is_loose, group in groups:
            some = [each for each, _ in group]
            if is_loose and (len(some) > 1 or some[0][0].files != some[0][1]):
                spliced.append(Piece.of(pl.concat(_rows_of(*each) for each in some)))
            else:
                spliced += [piece for piece, _ in some]
        return replace(self, pieces=spliced, marks=None)


def _is_loose(piece: Piece, files: frozenset[str]) -> bool:
    return piece.n_rows < _FEW_ROWS or files != piece.files


def _rows_of(piece: Piece, files: frozenset[str]) -> pl.DataFrame:
    rows = pl.read_ipc(piece.octets)
    return rows if files == piece.files else rows.filter(pl.col("file").is_in(files))


def columns_of(made: MadeFrame, columns: Iterable[str]) -> pl.DataFrame:
    """Some columns of a frame that may be packed, or made when it is asked for."""
    if isinstance(made, Packed):
        return made(columns)
    return (made() if callable(made) else made).select(list(columns))


_STORED: Mapping[pl.DataType, str] = MappingProxyType(
    {TEXT: "VARCHAR", INTEGER: "BIGINT", REAL: "DOUBLE", YES_NO: "BOOLEAN", MOMENT: "TIMESTAMP"}
)


def fields_read(*frames: Frame) -> Fields:
    """Where in a record each column is read from, for `io.json_lines.Parser.read`."""
    return {
        column.name: (column.read_from, _STORED[column.dtype])
        for frame in frames
        for column in frame.columns
        if column.read_from
    }


_MOST = 2**62
"""No count is as large, and two of them still make a number of 64 bits."""

Odd = Mapping[str, tuple[pl.DataFrame, str]]
"""By code of a finding the rows that it is about, and the column of its example."""


@dataclass(frozen=True)
class Told:
    """What transcripts of one input tell.

    Attributes
    ----------
    rows : tuple of Packed
        The frames that records are read into.
    bad : polars.DataFrame
        ``file``, ``line_no``, ``code``: lines that could not be read.
    lost : tuple of (str, OSError)
        Files that could not be opened or read to their end; what was read of one stays.
    versions : mapping of str to object
        Of each file what is another as soon as it may hold anything else; empty where two
        files are named alike.
    """

    rows: tuple[Packed, ...]
    bad: pl.DataFrame
    lost: tuple[tuple[str, OSError], ...]
    versions: Mapping[str, object] = field(default_factory=dict)

    def findings(self, source: str, system: str, on_error: str) -> pl.DataFrame:
        """What could not be read.

        Raises
        ------
        DamagedStoreError
            If there is any, and ``on_error`` is ``raise``.
        """
        found = losses(self.bad, self.lost, source, system)
        refuse_losses(found, source, on_error)
        return found

    def empty_files(self, paths: Iterable[Path], root: Path, lines: pl.DataFrame) -> pl.DataFrame:
        """The files without a single line, as ``file``; neither lost nor all of it bad."""
        named = ([name_of(path, root) for path in paths], [name for name, _ in self.lost])
        files, lost = (pl.DataFrame({"file": names}, schema={"file": pl.String}) for names in named)
        known = pl.concat([rows.select("file") for rows in (lines, self.bad, lost)])
        return files.join(known, on="file", how="anti")


def read_records(
    root: Path,
    paths: Iterable[Path],
    source: str,
    *,
    fields: Fields,
    frames: Sequence[Frame],
    typed: Typed,
    before: Told | None = None,
) -> Told:
    """Every record of some transcripts.

    Parameters
    ----------
    root : pathlib.Path
        The input; files are named by their way from it.
    paths : iterable of pathlib.Path
    source : str
        How the user named the input.
    fields : Fields
        What is read of each record.
    frames : sequence of Frame
        What records are read into.
    typed : callable
        Makes rows for those frames, but for ``source``.
    before : Told, optional
        What came out for the same input the last time, with the same arguments: files that
        nobody wrote to since are not read again. What is told is that of a fresh read.
    """
    lost: list[tuple[str, OSError]] = []
    named = [(name_of(path, root), path) for path in paths]
    versions = _versions(named)
    known = before.versions if before is not None and versions else {}
    again = {name for name, _ in named if not versions or known.get(name) != versions[name]}

    def chunks(files: Iterable[tuple[str, Path]]) -> Iterator[Chunk]:
        for name, path in files:
            try:
                yield from chunks_of(path, name, "transcript")
            except OSError as error:
                lost.append((name, error))

    with Parser() as parser:

        def packed(rows: list[pl.DataFrame]) -> list[Piece]:
            *of_frames, bad = rows
            pairs = zip(frames, of_frames, strict=True)
            label = pl.lit(source).alias("source")
            conformed = [frame.conform(found.with_columns(label)) for frame, found in pairs]
            return [Piece.of(each) for each in (*conformed, bad)]

        def read(piece: list[Chunk]) -> list[Piece]:
            return packed(typed_rows(piece, fields, typed, parser))

        pieces: list[list[Piece]] = []
        is_bounded = spending().budget.growth_ratio is not None
        changed = [pair for pair in named if pair[0] in again]
        for is_apart, files in groupby(changed, lambda pair: is_bounded and grows(pair[1])):
            if not is_apart:
                pieces += side_by_side(read, in_pieces(chunks(files)))
                continue
            for name, path in files:
                of_file, error = parsed_apart(path, name, fields, typed)
                pieces += map(packed, of_file)
                lost += [] if error is None else [(name, error)]
    empty = (*(frame.empty() for frame in frames), pl.DataFrame(schema=BAD))
    *rows, bad = (Packed(none, each) for none, *each in zip(empty, *pieces, strict=True))
    all_bad = bad()
    if before is not None and known:
        places = {name: place for place, (name, _) in enumerate(named)}
        rows = [old.spliced(new, places, again) for old, new in zip(before.rows, rows, strict=True)]
        kept = before.bad.filter(pl.col("file").is_in(places.keys() - again))
        all_bad = pl.concat([kept, all_bad])
    unsure = {name: object() for name, _ in lost}
    versions = {**versions, **unsure} if versions else versions
    return Told(tuple(rows), all_bad.sort("file", "line_no"), tuple(lost), versions)


def _versions(named: Sequence[tuple[str, Path]]) -> dict[str, object]:
    """Of each file what changes when it is written to; nothing where names are not its own."""
    now = datetime.now(UTC)
    found: dict[str, object] = {
        name: digest_of_files([path], now) or object() for name, path in named
    }
    return found if len(found) == len(named) else {}


def name_of(path: Path, root: Path) -> str:
    """A transcript's way from its input."""
    return legible(path.relative_to(root.parent if root.is_file() else root).as_posix())


@cache
def table_of(package: str, name: str) -> pl.DataFrame:
    """A table in the folder ``data`` of a package, as text."""
    return pl.DataFrame(table_rows(package, name))


def words_of(package: str) -> dict[str, list[str]]:
    """The words of records that some version writes, by what they are of."""
    table = table_of(package, "known_words.csv")
    return {
        of: table.filter(of=of)["word"].to_list() for of in table["of"].unique(maintain_order=True)
    }


def strange(package: str, rows: pl.DataFrame, column: str, of: str) -> pl.DataFrame:
    """The rows with a word that no known version writes, or without one."""
    return rows.filter(~pl.col(column).is_in(words_of(package)[of]).fill_null(value=False))


def with_any_number(fields: Fields, names: Iterable[str]) -> Fields:
    """Fields of which some are read however large they are; `whole_numbers` makes them whole."""
    return {**fields, **{name: (fields[name][0], "DOUBLE") for name in names}}


def whole_numbers(names: Iterable[str]) -> list[pl.Expr]:
    """Numbers that were read however large they are, whole; -1: there are not as many.

    Examples
    --------
    >>> pl.select(n=pl.Series([7.0, 1e30, None])).select(whole_numbers(["n"]))["n"].to_list()
    [7, -1, None]
    """
    return [
        pl.when(pl.col(name).abs() < _MOST).then(name).when(pl.col(name).is_not_null()).then(-1)
        .cast(pl.Int64).alias(name)
        for name in names
    ]  # fmt: skip


def below_zero(rows: pl.DataFrame, usage: Iterable[str]) -> pl.DataFrame:
    """The rows that tell of less than nothing used, or of more than there can be."""
    return rows.filter(pl.any_horizontal(pl.col(name) < 0 for name in usage))


def findings_on(
    package: str, source: str, system: str, odd: Odd, sums: Mapping[str, str] = {}
) -> pl.DataFrame:
    """A finding for each code, in the words of ``data/findings.csv`` of a package.

    Parameters
    ----------
    package, source, system : str
    odd : mapping
        By code the rows that it is about, and the column of its example: the least words,
        so that the same rows give the same example in any order.
    sums : mapping of str to str
        Of some codes the column that says how many records each row stands for.
    """
    words = {row["code"]: row for row in table_of(package, "findings.csv").to_dicts()}
    return pool(
        [
            counted(
                source,
                system,
                code,
                words[code]["severity"],
                words[code]["message"],
                n_rows=int(rows[sums[code]].sum()) if code in sums else rows.height,
                example=", ".join(rows[column].drop_nulls().unique().sort().head(5)),
            )
            for code, (rows, column) in odd.items()
        ],
        schema.FINDINGS,
    )


def newer_than(versions: pl.Series, newest: tuple[int, ...]) -> list[str]:
    """Those versions that are newer, by their numbers."""
    told = versions.drop_nulls().unique()
    return [
        version
        for version in told
        if tuple(int(number[:9]) for number in re.findall(r"\d+", version)[:3]) > newest
    ]


def ids_in(path: Path, key: str) -> pl.DataFrame:
    """The ids that a file of prompts has under a key, as ``id``; what was typed is not kept."""
    try:
        octets, _ = read_octets(path)
    except OSError:
        octets = b""
    found = re.findall(rb'"%s"\s*:\s*"([0-9a-fA-F-]{36})"' % key.encode(), octets)
    ids = sorted({one.decode() for one in found})
    return pl.DataFrame({"id": ids}, schema={"id": pl.String})


def size_of(paths: Iterable[str | Path]) -> int:
    """How large those files are together; what is gone has no size."""
    sizes = []
    for path in paths:
        try:
            sizes.append(os.stat(path).st_size)  # noqa: PTH116 - thousands of Paths are slow
        except OSError:
            continue
    return sum(sizes)

"""What readers of transcripts share: folders of JSON lines, one file a thread of work."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from io import BytesIO
from itertools import accumulate, groupby
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import (
    Facts,
    Frames,
    MadeFrame,
    later,
    pool,
    unmade,
    with_values_once,
)
from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import Frame
from stateanalytics.io.archive.changes import digest_of_files
from stateanalytics.io.files import legible
from stateanalytics.io.findings import counted
from stateanalytics.io.json_lines import (
    Chunk,
    Fields,
    Parser,
    chunks_of,
    in_pieces,
    records_of,
    side_by_side,
)
from stateanalytics.io.json_losses import BAD, losses, objects_of, refuse
from stateanalytics.io.opening import read_octets
from stateanalytics.io.parts import Parts
from stateanalytics.systems.families import FAMILY, with_families
from stateanalytics.systems.history import LOST, Past, with_rows_of

_MOST_BYTES = 64 * 2**20
_MOST = 2**62
"""No count is as large, and two of them still make a number of 64 bits."""
Odd = Mapping[str, tuple[pl.DataFrame, str]]
"""By code of a finding the rows that it is about, and the column of its example."""


Typed = Callable[[pl.DataFrame, pl.DataFrame, Parser], tuple[pl.DataFrame, ...]]
"""From the fields of records and their texts to rows of a system's frames."""


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
        refuse(found, source, on_error)
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

    def chunks() -> Iterator[Chunk]:
        for name, path in named:
            if name not in again:
                continue
            try:
                yield from chunks_of(path, name, "transcript")
            except OSError as error:
                lost.append((name, error))

    with Parser() as parser:

        def read(piece: list[Chunk]) -> list[Piece]:
            texts, objects, bad = objects_of(records_of(piece), fields, parser)
            label = pl.lit(source).alias("source")
            rows = zip(frames, typed(objects, texts, parser), strict=True)
            told = (frame.conform(found.with_columns(label)) for frame, found in rows)
            return [Piece.of(each) for each in (*told, bad)]

        pieces = list(side_by_side(read, in_pieces(chunks())))
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


_SPLICED_ROWS = 10_000
_FEW_ROWS = 1000


def _is_loose(piece: Piece, files: frozenset[str]) -> bool:
    return piece.n_rows < _FEW_ROWS or files != piece.files


def _rows_of(piece: Piece, files: frozenset[str]) -> pl.DataFrame:
    rows = pl.read_ipc(piece.octets)
    return rows if files == piece.files else rows.filter(pl.col("file").is_in(files))


def _columns(made: MadeFrame, columns: Iterable[str]) -> pl.DataFrame:
    if isinstance(made, Packed):
        return made(columns)
    return (made() if callable(made) else made).select(list(columns))


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
        octets, _ = read_octets(path, _MOST_BYTES)
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


@dataclass(frozen=True)
class Folding:
    """How a system makes its rows of the records of transcripts.

    Attributes
    ----------
    records : tuple of Frame
        What is kept of records: their own frame, and others with its key.
    sessions : Frame
        With ``source``, ``thread_id`` and ``file``.
    told : sequence of str
        Columns of records that say which hang together.
    node : polars.Expr
        Over records: the file, or what else is folded by itself.
    nodes_of : callable
        Gives of records ``source``, ``node`` and the columns of ``ids``.
    ids : sequence of sequence of str
        By which nodes hang together: as for `families.with_families`.
    assemble : callable
        Makes a system's rows of the ``records`` of some families; of each row it says by
        ``thread_id``, or by ``session_id`` of entities, whose it is.
    """

    records: tuple[Frame, ...]
    sessions: Frame
    told: Sequence[str]
    node: pl.Expr
    nodes_of: Callable[[pl.DataFrame], pl.DataFrame]
    ids: Sequence[Sequence[str]]
    assemble: Callable[..., Parts]

    def families(self, lines: pl.DataFrame) -> pl.Series:
        """Of each record the family of its file."""
        families = with_families(self.nodes_of(lines), self.ids)
        named = lines.select("source", node=self.node)
        return named.join(families, on=["source", "node"], how="left", maintain_order="left")[
            FAMILY
        ]

    def marks(self, made: MadeFrame) -> pl.DataFrame:
        """Of each record its ``source``, ``file`` and ``family``, and by when it was ``there``."""
        if isinstance(made, Packed) and made.marks is not None:
            return made.marks
        lines = _columns(made, dict.fromkeys((*self.told, "at", "line_no")))
        # Few words many times: as numbers they take little memory for as long as the records.
        place = pl.col("source", "file").cast(pl.Categorical)
        return lines.select(place, _there().alias("there")).with_columns(
            self.families(lines).alias(FAMILY)
        )

    def part_of(
        self,
        records: Sequence[MadeFrame],
        versions: Mapping[str, object] | None = None,
        before: Folded | None = None,
    ) -> tuple[Parts, Folded]:
        """A system's rows of all records, which are made again when they are asked for.

        Parameters
        ----------
        records : sequence of polars.DataFrame or callable
            As many as there are ``records``.
        versions : mapping of str to object, optional
            As `Told.versions`, of all that is told of a file.
        before : Folded, optional
            The second that came out the last time: what nothing changed of is not folded again.

        Returns
        -------
        Parts
        Folded
            To go on from.
        """
        lines, *others = records
        marks = self.marks(lines)
        is_folded = pl.repeat(value=True, n=marks.height, eager=True)
        folded = self.parts_of(records, marks, is_folded, versions, before)
        marked = replace(lines, marks=marks) if isinstance(lines, Packed) else lines
        made = {
            frame.name: each for frame, each in zip(self.records, [marked, *others], strict=True)
        }
        part = folded.part
        return replace(part, details=Frames({**unmade(part.details), **made})), folded

    def parts_of(
        self,
        records: Sequence[MadeFrame],
        marks: pl.DataFrame,
        is_folded: pl.Series,
        versions: Mapping[str, object] | None = None,
        before: Folded | None = None,
    ) -> Folded:
        """A system's rows, folded some families at a time, which takes less memory.

        Parameters
        ----------
        records : sequence of polars.DataFrame or callable
            As many as there are ``records``; they are no part of the result.
        marks : polars.DataFrame
            ``file`` and ``family`` of each row of the first of them.
        is_folded : polars.Series
            Which rows of the first of them are.
        versions, before
            As for `part_of`.
        """
        # What does not unpack a part of itself is made once, and not for each batch.
        lines, *others = (
            each() if callable(each) and not isinstance(each, Packed) else each for each in records
        )
        batches = _batches(marks, is_folded)
        keys = _keys(marks, batches, versions) if versions else {}
        numbers = batches.drop_nulls().unique().sort().to_list() or [0]
        if len(numbers) == 1:
            key = keys.get(numbers[0])
            if before is not None and before.is_of(key):
                return before
            return Folded(self._part_of(lines, others, is_folded), {key: (0, {})})
        parts: list[tuple[Key, Parts]] = []
        packed: dict[str, Packed] = {}
        for number in numbers:
            key = keys.get(number)
            known = None if before is None else before.batch(key)
            if known is None:
                part = self._part_of(lines, others, (batches == number).fill_null(value=False))
                # Together as large as all else, and asked for by few.
                details = {
                    name: Packed(rows.clear(), [Piece.of(rows)])
                    for name, rows in part.details.items()
                }
                known = replace(
                    part,
                    entities=with_values_once(part.entities),
                    transitions=with_values_once(part.transitions),
                    events=with_values_once(part.events),
                    details=Frames(details),
                )
                del part
            for name, made in unmade(known.details).items():
                if isinstance(made, Packed):
                    above = packed[name].pieces if name in packed else ()
                    packed[name] = replace(made, pieces=[*above, *made.pieces])
            parts.append((key, replace(known, details={})))
            del known  # else they are there beside the next
        return Folded.of(parts, Frames(packed))

    def _part_of(
        self, lines: Packed | pl.DataFrame, others: Sequence[MadeFrame], mask: pl.Series
    ) -> Parts:
        """A system's rows of some records, which are no part of it."""
        some = lines.filter(mask)
        part = self.assemble(some, *(_of_lines(frame, some) for frame in others))
        made = [frame.name for frame in self.records]
        kept = {name: rows for name, rows in part.details.items() if name not in made}
        return replace(part, details=kept)


Key: TypeAlias = "frozenset[object] | None"
"""Of what a batch was folded; None: nobody asked."""
_CANONICAL = ("entities", "transitions", "events")


@dataclass(frozen=True)
class Folded:
    """A system's rows, with where those of each batch lie.

    Attributes
    ----------
    part : Parts
        The rows.
    spans : mapping of Key to (int, mapping of str to (int, int))
        Which batch it is, and of each canonical frame where its rows begin and how many they are.
    """

    part: Parts
    spans: Mapping[Key, tuple[int, Mapping[str, tuple[int, int]]]]

    @classmethod
    def of(cls, batches: Sequence[tuple[Key, Parts]], details: Frames) -> Folded:
        """Batches as one, which lose their frames."""
        begins = dict.fromkeys(_CANONICAL, 0)
        spans = {}
        for nth, (key, part) in enumerate(batches):
            sizes = {name: getattr(part, name).height for name in _CANONICAL}
            spans[key] = nth, {name: (begins[name], size) for name, size in sizes.items()}
            begins = {name: begin + sizes[name] for name, begin in begins.items()}
        return cls(_together([part for _, part in batches], details), spans)

    def is_of(self, key: Key) -> bool:
        """Whether this batch is all that was folded."""
        return key is not None and list(self.spans) == [key]

    def batch(self, key: Key) -> Parts | None:
        """The rows of a batch; None where it is another or the only one."""
        if key is None or key not in self.spans or len(self.spans) == 1:
            return None
        nth, spans = self.spans[key]
        frames = {name: getattr(self.part, name).slice(*span) for name, span in spans.items()}
        details = {
            name: replace(made, pieces=[made.pieces[nth]])
            for name, made in unmade(self.part.details).items()
            if isinstance(made, Packed)
        }
        return replace(self.part, details=Frames(details), **frames)


def _batches(marks: pl.DataFrame, is_folded: pl.Series) -> pl.Series:
    """Of each row that is folded the number of its batch.

    Where a batch ends is said by the names of files, so that rows that are written to one
    batch move no rows between others.
    """
    families = (
        marks.filter(is_folded)
        .group_by(FAMILY)
        .agg(pl.col("file").first().cast(pl.String), n=pl.len())
        .sort(FAMILY)
    )
    numbers, number, n_rows = [], 0, 0
    for size, file in families.select("n", "file").iter_rows():
        numbers.append(number)
        n_rows += size
        is_likely = n_rows * 2 >= _MOST_ROWS and crc32(file.encode()) % _ENDS_OF == 0
        if is_likely or n_rows >= _MOST_ROWS:
            number, n_rows = number + 1, 0
    of_family = marks[FAMILY].replace_strict(
        families[FAMILY], pl.Series(numbers, dtype=pl.UInt32), default=None
    )
    return pl.select(pl.when(is_folded).then(of_family)).to_series()


def _keys(
    marks: pl.DataFrame, batches: pl.Series, versions: Mapping[str, object]
) -> dict[int, frozenset[object]]:
    """Of each batch of what files it is, and how many rows of each."""
    counts = marks.group_by(batches.alias("batch"), pl.col("file").cast(pl.String)).len()
    told: dict[int, set[object]] = defaultdict(set)
    for batch, file, n_rows in counts.drop_nulls("batch").iter_rows():
        told[batch].add((file, n_rows, versions.get(file, file)))
    return {batch: frozenset(files) for batch, files in told.items()}


def _together(parts: Sequence[Parts], details: Frames) -> Parts:
    """What parts tell, which lose their frames, with other details."""
    return replace(
        parts[0],
        entities=_stacked([part.entities for part in parts]),
        transitions=_stacked([part.transitions for part in parts]),
        events=_stacked([part.events for part in parts]),
        details=details,
    )


def _stacked(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Frames of the same columns as one in one piece, column by column.

    Whoever puts another frame beside one that lies in pieces copies all of it. Columns that are
    empty, as most are, take no memory. The frames that are given lose their columns.
    """
    has_rows = any(frame.height for frame in frames)
    columns, empty = [], {}
    names = frames[0].columns
    for name, dtype in frames[0].schema.items():
        each = [frame.drop_in_place(name) for frame in frames]
        if has_rows and all(column.null_count() == column.len() for column in each):
            empty[name] = pl.lit(None, dtype)
        else:
            columns.append(pl.concat(each, rechunk=True))
    return with_values_once(pl.DataFrame(columns).with_columns(**empty)).select(names)


_MOST_ROWS = 50_000
"""Records that are folded at once, or a single family."""
_ENDS_OF = 8
"""From half as many on, a batch ends with every so manieth family."""


def _of_lines(made: MadeFrame, lines: pl.DataFrame) -> pl.DataFrame:
    place = ["source", "file", "line_no"]
    if isinstance(made, Packed):
        frame = made.of_files(frozenset(lines["file"].unique()))
    else:
        frame = made() if callable(made) else made
    return frame.join(lines.select(place), on=place, how="semi", maintain_order="left")


@dataclass(frozen=True)
class Before:
    """What the next read of the same input can go on from.

    Attributes
    ----------
    words : tuple
        What else must be the same: how the input is named, and settings.
    told : Told, optional
        What files said.
    folded : Folded, optional
        What was made of it.
    """

    words: tuple[object, ...]
    told: Told | None = None
    folded: Folded | None = None

    @classmethod
    def of(cls, before: Before | None, *words: object) -> Before:
        """What there is to go on from, where these words are the same."""
        return before if before is not None and before.words == words else cls(words)


def inputs_told_anew(facts: Facts, folding: Folding) -> pl.Series:
    """The inputs whose records are there, to be folded up to an instant."""
    frame = folding.records[0]
    made = unmade(facts.details).get(frame.name, frame.empty())
    known = made.marks if isinstance(made, Packed) else None
    sources = (_columns(made, ["source"]) if known is None else known)["source"]
    return sources.unique().cast(pl.String)


def rewound_lines(past: Past, facts: Facts, folding: Folding) -> Past:
    """An instant, with a system's rows as a copy that was cut off there tells them.

    Parameters
    ----------
    past : Past
        As the shared history tells it.
    facts : Facts
        Of now, with the records.
    folding : Folding
        The system's.
    """
    made: list[MadeFrame] = [
        unmade(facts.details).get(frame.name, frame.empty()) for frame in folding.records
    ]
    marks = folding.marks(made[0])
    labels = marks["source"].unique().cast(pl.String).sort()
    if labels.is_empty():
        return past
    was_there = (marks["there"] <= past.at).fill_null(value=True)
    families = marks[FAMILY]
    # What hangs together with nothing later is now as it was then.
    is_other = families.is_in(families.filter(~was_there).unique().implode())
    place = pl.col("source", "file")
    same = marks.filter(~is_other).select(place).unique().select(place.cast(pl.String))
    part = folding.parts_of(made, marks, is_other & was_there).part
    threads = facts.detail(folding.sessions).join(same, on=["source", "file"], how="semi")
    details = {
        name: partial(_beside_those_of, facts.details, part.details, name, threads)
        for name in part.details
    }
    until = partial(_until, past.at)
    kept = {
        frame.name: later(until, made[0], *([] if each is made[0] else [each]))
        for frame, each in zip(folding.records, made, strict=True)
    }
    parts = [_of_threads(facts, part, threads, labels), part]
    whole = _together(parts, Frames({**details, **kept}))
    known = {word: pl.lit(word == "present") for word in LOST}
    lost = whole.entities.with_columns(**known).select(LOST)
    return with_rows_of(past, whole, labels, lost)


def _there() -> pl.Expr:
    """By when a record was there: without a moment, no later than the next of its file with one."""
    following = pl.col("at").backward_fill().over("source", "file", order_by="line_no")
    return pl.coalesce("at", following)


def _until(at: datetime, lines: pl.DataFrame, other: pl.DataFrame | None = None) -> pl.DataFrame:
    """The records of until then, or what another frame has of them."""
    then = lines.filter((_there() <= at).fill_null(value=True))
    return then if other is None else _of_lines(other, then)


def _of_threads(facts: Facts, part: Parts, threads: pl.DataFrame, labels: pl.Series) -> Parts:
    """What a part of those threads would have, off the facts of now."""
    thread, key = ["source", "thread_id"], list(schema.ENTITY_KEY)
    entities = facts.entities.filter(
        pl.col("system") == part.system, pl.col("source").is_in(labels.implode())
    ).join(
        threads, left_on=["source", "session_id"], right_on=thread, how="semi",
        maintain_order="left",
    )  # fmt: skip
    transitions, events = (
        frame.join(entities.select(key), on=key, how="semi", maintain_order="left")
        for frame in (facts.transitions, facts.events)
    )
    return replace(part, entities=entities, transitions=transitions, events=events, details={})


def _beside_those_of(
    details: Mapping[str, pl.DataFrame],
    others: Mapping[str, pl.DataFrame],
    name: str,
    threads: pl.DataFrame,
) -> pl.DataFrame:
    """The rows that a detail frame has of some threads, and others below."""
    mine = details[name].join(
        threads, on=["source", "thread_id"], how="semi", maintain_order="left"
    )
    return pl.concat([mine, others[name]])

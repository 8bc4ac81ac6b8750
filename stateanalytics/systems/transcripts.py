"""What readers of transcripts share: folders of JSON lines, one file a thread of work."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from io import BytesIO
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, Frames, MadeFrame, later, pool, unmade
from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import Frame
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
    """

    rows: tuple[Packed, ...]
    bad: pl.DataFrame
    lost: tuple[tuple[str, OSError], ...]

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
    """
    lost: list[tuple[str, OSError]] = []

    def chunks() -> Iterator[Chunk]:
        for path in paths:
            name = name_of(path, root)
            try:
                yield from chunks_of(path, name, "transcript")
            except OSError as error:
                lost.append((name, error))

    with Parser() as parser:

        def read(piece: list[Chunk]) -> list[Piece]:
            texts, objects, bad = objects_of(records_of(piece), fields, parser)
            named = pl.lit(source).alias("source")
            rows = zip(frames, typed(objects, texts, parser), strict=True)
            told = (frame.conform(found.with_columns(named)) for frame, found in rows)
            return [Piece.of(each) for each in (*told, bad)]

        pieces = list(side_by_side(read, in_pieces(chunks())))
    empty = (*(frame.empty() for frame in frames), pl.DataFrame(schema=BAD))
    *rows, bad = (Packed(none, each) for none, *each in zip(empty, *pieces, strict=True))
    return Told(tuple(rows), bad(), tuple(lost))


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

    def part_of(self, records: Sequence[MadeFrame]) -> Parts:
        """A system's rows of all records, which are made again when they are asked for."""
        lines, *others = records
        marks = self.marks(lines)
        is_folded = pl.repeat(value=True, n=marks.height, eager=True)
        part = self.parts_of(records, marks[FAMILY], is_folded)
        marked = replace(lines, marks=marks) if isinstance(lines, Packed) else lines
        made = {
            frame.name: each for frame, each in zip(self.records, [marked, *others], strict=True)
        }
        return replace(part, details=Frames({**unmade(part.details), **made}))

    def parts_of(
        self, records: Sequence[MadeFrame], families: pl.Series, is_folded: pl.Series
    ) -> Parts:
        """A system's rows, folded some families at a time, which takes less memory.

        Parameters
        ----------
        records : sequence of polars.DataFrame or callable
            As many as there are ``records``; they are no part of the result.
        families : polars.Series
            Of each row of the first of them.
        is_folded : polars.Series
            Which rows of the first of them are.
        """
        # What does not unpack a part of itself is made once, and not for each batch.
        lines, *others = (
            each() if callable(each) and not isinstance(each, Packed) else each for each in records
        )
        sizes = families.filter(is_folded).rename(FAMILY).value_counts().sort(FAMILY)
        batch = pl.col("count").cum_sum() // _MOST_ROWS
        batches = families.replace_strict(
            sizes[FAMILY], sizes.select(batch).to_series(), default=None
        )
        numbers = sizes.select(batch).to_series().unique().sort() if sizes.height else [0]
        parts: list[Parts] = []
        packed: dict[str, Packed] = {}
        for number in numbers:
            part = self._part_of(
                lines, others, (batches == number).fill_null(value=False) & is_folded
            )
            if len(numbers) == 1:
                return part
            # Together as large as all else, and asked for by few.
            for name, rows in part.details.items():
                packed[name] = packed.get(name, Packed(rows.clear(), ())).with_rows(rows)
            parts.append(replace(part, details={}))
            del part, rows  # else they are there beside the next
        return _together(parts, Frames(packed))

    def _part_of(
        self, lines: Packed | pl.DataFrame, others: Sequence[MadeFrame], mask: pl.Series
    ) -> Parts:
        """A system's rows of some records, which are no part of it."""
        some = lines.filter(mask)
        part = self.assemble(some, *(_of_lines(frame, some) for frame in others))
        made = [frame.name for frame in self.records]
        kept = {name: rows for name, rows in part.details.items() if name not in made}
        return replace(part, details=kept)


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
    n_rows = sum(frame.height for frame in frames)
    columns = []
    for name, dtype in frames[0].schema.items():
        each = [frame.drop_in_place(name) for frame in frames]
        if all(column.null_count() == column.len() for column in each):
            columns.append(pl.repeat(None, n_rows, dtype=dtype, eager=True).alias(name))
        else:
            columns.append(pl.concat(each, rechunk=True))
    return pl.DataFrame(columns)


_MOST_ROWS = 50_000
"""Records that are folded at once, or a single family."""


def _of_lines(made: MadeFrame, lines: pl.DataFrame) -> pl.DataFrame:
    place = ["source", "file", "line_no"]
    if isinstance(made, Packed):
        frame = made.of_files(frozenset(lines["file"].unique()))
    else:
        frame = made() if callable(made) else made
    return frame.join(lines.select(place), on=place, how="semi", maintain_order="left")


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
    part = folding.parts_of(made, families, is_other & was_there)
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

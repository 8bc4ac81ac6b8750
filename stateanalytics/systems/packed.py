"""Rows of many files, packed in pieces: some or all of them are unpacked when asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import accumulate, groupby

import polars as pl

from stateanalytics.core.facts import MadeFrame

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


_SPLICED_ROWS = 10_000

_FEW_ROWS = 1000


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

"""Rows of transcripts, made from families of files, of all records or of those of the past."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.connected import components
from stateanalytics.core.facts import (
    Facts,
    Frames,
    MadeFrame,
    later,
    unmade,
    with_values_once,
)
from stateanalytics.core.schema import Frame
from stateanalytics.io.json_lines import Fields, Typed
from stateanalytics.io.parts import Parts
from stateanalytics.systems.history import LOST, Past, with_rows_of
from stateanalytics.systems.transcripts import (
    Packed,
    Piece,
    Told,
    columns_of,
    read_records,
    size_of,
)

FAMILY = "family"


def with_families(nodes: pl.DataFrame, ids: Sequence[Sequence[str]]) -> pl.DataFrame:
    """Add ``family``: a number that is the same of all nodes that share any id, however far round.

    Parameters
    ----------
    nodes : polars.DataFrame
        ``source``, ``node`` and columns of ids, any number of rows a node.
    ids : sequence of sequence of str
        Columns of ids of one kind each: the same id in any of them is the same.

    Returns
    -------
    polars.DataFrame
        Each node once, in the order of the rows: ``source``, ``node``, ``family``.

    Examples
    --------
    >>> rows = pl.DataFrame({"node": list("abcd"), "id": [1, 2, 3, 4], "of": [None, 1, None, 3]})
    >>> named = rows.with_columns(source=pl.lit("s"))
    >>> with_families(named, [("id", "of")])["family"].to_list()
    [0, 0, 2, 2]
    """
    node = ("source", "node")
    numbered = nodes.select(node).unique(maintain_order=True).with_row_index(FAMILY)
    # Nothing beside numbers is joined: of thousands of files the ids are much text.
    own = nodes.select(node).join(numbered, on=node, how="left", maintain_order="left")[FAMILY]
    # Ids as numbers: two that are alike by chance make a family larger, and nothing wrong.
    pairs = pl.concat(
        nodes.select(
            own.alias("node"),
            id=pl.col("source").hash(kind) ^ pl.col(column).hash(kind),
            is_id=pl.col(column).is_not_null(),
        )
        .filter("is_id")
        .drop("is_id")
        for kind, columns in enumerate(ids)
        for column in columns
    ).unique()
    family = components(numbered.height, pairs).cast(numbered[FAMILY].dtype).alias(FAMILY)
    return numbered.select(*node, family)


_MOST_ROWS = 50_000
"""Records that are folded at once, or a single family."""

_ENDS_OF = 8
"""From half as many on, a batch ends with every so manieth family."""


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
        lines = columns_of(made, dict.fromkeys((*self.told, "at", "line_no")))
        # Few words many times: as numbers they take little memory for as long as the records.
        place = pl.col("source", "file").cast(pl.Categorical)
        return lines.select(place, is_there().alias("there")).with_columns(
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
        part = self.assemble(some, *(of_lines(frame, some) for frame in others))
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
        return cls(together([part for _, part in batches], details), spans)

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


def together(parts: Sequence[Parts], details: Frames) -> Parts:
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


def of_lines(made: MadeFrame, lines: pl.DataFrame) -> pl.DataFrame:
    """The rows of a frame, which may be packed, that some lines told."""
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


def is_there() -> pl.Expr:
    """By when a record was there: without a moment, no later than the next of its file with one.

    The last ones of a file, such as what a process writes when it ends, follow the one before.
    """
    at, file = pl.col("at"), ("source", "file")
    following = at.backward_fill().over(file, order_by="line_no")
    return pl.coalesce("at", following, at.cum_max().forward_fill().over(file, order_by="line_no"))


def read_transcripts(
    root: Path,
    paths: Sequence[Path],
    source: str,
    folding: Folding,
    *,
    system: str,
    fields: Fields,
    typed: Typed,
    findings: Callable[[Path, Told, Mapping[str, pl.DataFrame], str], pl.DataFrame],
    columns_of_findings: Sequence[str],
    opened: Iterable[str | Path],
    on_error: str,
    before: Before | None,
    settings: Sequence[object] = (),
    notes: pl.DataFrame | None = None,
) -> Parts:
    """The facts of one input whose transcripts are JSON lines.

    Parameters
    ----------
    root : pathlib.Path
        The input.
    paths : sequence of pathlib.Path
        Its transcripts.
    source : str
        How the user named the input.
    folding : Folding
        How the system makes its rows of records.
    system : str
    fields, typed
        As for `transcripts.read_records`.
    findings : callable
        Gives what is odd, from the input, what was read, the detail frames, and ``source``.
    columns_of_findings : sequence of str
        Columns of records that ``findings`` reads; all of them would be large.
    opened : iterable of str or pathlib.Path
        Every file that is opened, whose sizes are added up.
    on_error : {"skip", "raise"}
        What a record that cannot be read does.
    before : Before, optional
        What the last read of the same input kept; only files that were written to since are
        read again.
    settings : sequence of object
        What else the rows depend on: after a change of it nothing is reused.
    notes : polars.DataFrame, optional
        Further rows of the frame of records, from small files next to the transcripts.

    Raises
    ------
    DamagedStoreError
        If a record cannot be read and ``on_error`` is ``raise``.
    """
    last = Before.of(before, source, *settings)
    told = read_records(
        root, paths, source, fields=fields, frames=folding.records, typed=typed, before=last.told
    )
    losses = told.findings(source, system, on_error)
    lines, *others = told.rows
    versions = told.versions
    if notes is not None:
        lines = lines.with_rows(notes)
        # A note changes the rows of its transcript, which need not have been written to.
        noted = {row["file"]: tuple(row.values()) for row in notes.iter_rows(named=True)}
        versions = {
            file: (version, noted[file]) if file in noted else version
            for file, version in versions.items()
        }
    part, folded = folding.part_of((lines, *others), versions, last.folded)
    few_columns = {folding.records[0].name: partial(lines, columns_of_findings)}
    odd = findings(root, told, Frames({**unmade(part.details), **few_columns}), source)
    return replace(
        part,
        findings=pl.concat([losses, odd]),
        label=source,
        size_bytes=size_of(opened),
        kept=Before((source, *settings), told, folded),
    )


def inputs_told_anew(facts: Facts, folding: Folding) -> pl.Series:
    """The inputs whose records are there, to be folded up to an instant."""
    frame = folding.records[0]
    made = unmade(facts.details).get(frame.name, frame.empty())
    known = made.marks if isinstance(made, Packed) else None
    sources = (columns_of(made, ["source"]) if known is None else known)["source"]
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
    whole = together(parts, Frames({**details, **kept}))
    known = {word: pl.lit(word == "present") for word in LOST}
    lost = whole.entities.with_columns(**known).select(LOST)
    return with_rows_of(past, whole, labels, lost)


def _until(at: datetime, lines: pl.DataFrame, other: pl.DataFrame | None = None) -> pl.DataFrame:
    """The records of until then, or what another frame has of them."""
    then = lines.filter((is_there() <= at).fill_null(value=True))
    return then if other is None else of_lines(other, then)


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

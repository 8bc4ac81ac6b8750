"""From records of transcripts to rows: of all records, or of those up to an instant.

Resumes and forks copy records, and subagents write their own files, so the records of one file
can change the meaning of another. Files that are linked in this way are a family, and the
records of a family are assembled together. Most families are small. Batches of families take
little memory, and only batches with changes are assembled again when an input is reread.
"""

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
from stateanalytics.core.facts import Facts, FrameOrFactory, Frames, Past, map_frames, unevaluated
from stateanalytics.core.joins import connected_components, left_joined, with_scalar_columns
from stateanalytics.core.schema import Frame
from stateanalytics.io.files import size_of
from stateanalytics.io.json_lines import Fields, Typed
from stateanalytics.io.parts import Parts
from stateanalytics.systems.history import losses, with_rows_of
from stateanalytics.systems.transcripts import Packed, Piece, Transcripts, columns_of, read_records

FAMILY = "family"


def with_families(nodes: pl.DataFrame, ids: Sequence[Sequence[str]]) -> pl.DataFrame:
    """The family of each node: a number that all nodes linked by ids share.

    Parameters
    ----------
    nodes : polars.DataFrame
        ``source``, ``node`` and columns of ids, any number of rows a node.
    ids : sequence of sequence of str
        Groups of columns with the same kind of id; equal ids within a group are a link.

    Returns
    -------
    polars.DataFrame
        A row for each node, in the order of the rows: ``source``, ``node``, ``family``.

    Examples
    --------
    >>> rows = pl.DataFrame({"node": list("abcd"), "id": [1, 2, 3, 4], "of": [None, 1, None, 3]})
    >>> named = rows.with_columns(source=pl.lit("s"))
    >>> with_families(named, [("id", "of")])["family"].to_list()
    [0, 0, 2, 2]
    """
    node = ("source", "node")
    numbered = nodes.select(node).unique(maintain_order=True).with_row_index(FAMILY)
    # Numbers are joined instead of ids, which would be much text for thousands of files.
    own = nodes.select(node).join(numbered, on=node, how="left", maintain_order="left")[FAMILY]
    # Ids are hashed. A collision only makes a family larger, which is harmless.
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
    family = connected_components(numbered.height, pairs).cast(numbered[FAMILY].dtype).alias(FAMILY)
    return numbered.select(*node, family)


_MOST_ROWS = 50_000
"""Records of a batch; a single family may have more."""

_ENDS_OF = 8
"""A half-full batch may end at one family in so many, chosen by a hash of its file name."""


@dataclass(frozen=True)
class Folding:
    """How a system makes its rows from records of transcripts.

    Attributes
    ----------
    records : tuple of Frame
        The frames that records are kept in: the first has all records, others have its key.
    sessions : Frame
        With ``source``, ``thread_id`` and ``file``.
    family_columns : sequence of str
        Columns of records that ``nodes_of`` needs.
    node : polars.Expr
        Over records: the file, or another unit that is never split.
    nodes_of : callable
        ``nodes_of(records)`` gives ``source``, ``node`` and the columns of ``ids``.
    ids : sequence of sequence of str
        As for `with_families`.
    assemble : callable
        ``assemble(*records) -> Parts`` from the ``records`` of some families. Its rows have a
        ``thread_id``, and its entities a ``session_id``, of the thread that they belong to.
    late_at : str
        Column with the time of records that have none in ``at``; at least that of earlier ones.
    """

    records: tuple[Frame, ...]
    sessions: Frame
    family_columns: Sequence[str]
    node: pl.Expr
    nodes_of: Callable[[pl.DataFrame], pl.DataFrame]
    ids: Sequence[Sequence[str]]
    assemble: Callable[..., Parts]
    late_at: str = "at"

    def families(self, lines: pl.DataFrame) -> pl.Series:
        """Family of the file that each record came from."""
        families = with_families(self.nodes_of(lines), self.ids)
        named = lines.select("source", node=self.node)
        return left_joined(named, families, on=["source", "node"])[FAMILY]

    def index(self, records: FrameOrFactory) -> pl.DataFrame:
        """``source``, ``file``, ``family`` and ``written_at`` of each record."""
        if isinstance(records, Packed) and records.index is not None:
            return records.index
        columns = dict.fromkeys((*self.family_columns, "at", self.late_at, "line_no"))
        lines = columns_of(records, columns)
        # Categories save memory, as the index is kept as long as the records.
        place = pl.col("source", "file").cast(pl.Categorical)
        return lines.select(place, _written_at(self.late_at).alias("written_at")).with_columns(
            self.families(lines).alias(FAMILY)
        )

    def part_of(
        self,
        records: Sequence[FrameOrFactory],
        versions: Mapping[str, object] | None = None,
        before: Folded | None = None,
    ) -> tuple[Parts, Folded]:
        """A system's rows of all records, with the records as detail frames.

        Parameters
        ----------
        records : sequence of polars.DataFrame or callable
            One for each of ``records``.
        versions : mapping of str to object, optional
            As `Transcripts.versions`, of all that is known of a file.
        before : Folded, optional
            The result of the last read: batches that did not change are taken from it.

        Returns
        -------
        Parts
        Folded
            For the next read.
        """
        lines, *others = records
        index = self.index(lines)
        is_chosen = pl.repeat(value=True, n=index.height, eager=True)
        folded = self.folded(records, index, is_chosen, versions, before)
        indexed = replace(lines, index=index) if isinstance(lines, Packed) else lines
        names = [frame.name for frame in self.records]
        kept = dict(zip(names, [indexed, *others], strict=True))
        part = folded.part
        return replace(part, details=Frames({**unevaluated(part.details), **kept})), folded

    def folded(
        self,
        records: Sequence[FrameOrFactory],
        index: pl.DataFrame,
        is_chosen: pl.Series,
        versions: Mapping[str, object] | None = None,
        before: Folded | None = None,
    ) -> Folded:
        """A system's rows, assembled in batches of families, which takes less memory.

        Parameters
        ----------
        records : sequence of polars.DataFrame or callable
            One for each of ``records``; they are not part of the result.
        index : polars.DataFrame
            `index` of the first of them.
        is_chosen : polars.Series of Boolean
            Which of its rows are used.
        versions, before
            As for `part_of`.
        """
        # Frames that cannot be unpacked in part are made once, not once for each batch.
        lines, *others = (
            frame() if callable(frame) and not isinstance(frame, Packed) else frame
            for frame in records
        )
        batches = _batches(index, is_chosen)
        keys = _keys(index, batches, versions) if versions else {}
        numbers = batches.drop_nulls().unique().sort().to_list() or [0]
        if len(numbers) == 1:
            key = keys.get(numbers[0])
            if before is not None and before.is_of(key):
                return before
            return Folded(self._assembled(lines, others, is_chosen), {key: (0, {})})
        parts: list[tuple[Key, Parts]] = []
        packed: dict[str, Packed] = {}
        for number in numbers:
            key = keys.get(number)
            known = None if before is None else before.batch(key)
            if known is None:
                part = self._assembled(lines, others, (batches == number).fill_null(value=False))
                # Details are packed: few functions need them, and they are most of the rows.
                details = {
                    name: Packed(rows.clear(), [Piece.of(rows)])
                    for name, rows in part.details.items()
                }
                known = replace(
                    part,
                    entities=with_scalar_columns(part.entities),
                    transitions=with_scalar_columns(part.transitions),
                    events=with_scalar_columns(part.events),
                    details=Frames(details),
                )
                del part
            for name, frame in unevaluated(known.details).items():
                if isinstance(frame, Packed):
                    above = packed[name].pieces if name in packed else ()
                    packed[name] = replace(frame, pieces=[*above, *frame.pieces])
            parts.append((key, replace(known, details={})))
            del known  # frees its memory before the next batch is assembled
        return Folded.of(parts, Frames(packed))

    def _assembled(
        self, lines: Packed | pl.DataFrame, others: Sequence[FrameOrFactory], mask: pl.Series
    ) -> Parts:
        """A system's rows of some records, without the records."""
        some = lines.filter(mask)
        part = self.assemble(some, *(_rows_of_records(frame, some) for frame in others))
        records = [frame.name for frame in self.records]
        kept = {name: rows for name, rows in part.details.items() if name not in records}
        return replace(part, details=kept)


Key: TypeAlias = "frozenset[object] | None"
"""The files of a batch with their versions; None: not known, so the batch is not reused."""

_CANONICAL = ("entities", "transitions", "events")


@dataclass(frozen=True)
class Folded:
    """A system's rows, and which of them came from which batch.

    Attributes
    ----------
    part : Parts
        The rows.
    spans : mapping of Key to (int, mapping of str to (int, int))
        By batch its number, and in each canonical frame the first of its rows and their count.
    """

    part: Parts
    spans: Mapping[Key, tuple[int, Mapping[str, tuple[int, int]]]]

    @classmethod
    def of(cls, batches: Sequence[tuple[Key, Parts]], details: Frames) -> Folded:
        """All batches as one; the frames of the batches are emptied to save memory."""
        begins = dict.fromkeys(_CANONICAL, 0)
        spans = {}
        for number, (key, part) in enumerate(batches):
            sizes = {name: getattr(part, name).height for name in _CANONICAL}
            spans[key] = number, {name: (begins[name], size) for name, size in sizes.items()}
            begins = {name: begin + sizes[name] for name, begin in begins.items()}
        return cls(_stacked_parts([part for _, part in batches], details), spans)

    def is_of(self, key: Key) -> bool:
        """Whether this is the only batch."""
        return key is not None and list(self.spans) == [key]

    def batch(self, key: Key) -> Parts | None:
        """The rows of a batch; None where there is none of this key, or only one batch at all."""
        if key is None or key not in self.spans or len(self.spans) == 1:
            return None
        number, spans = self.spans[key]
        frames = {name: getattr(self.part, name).slice(*span) for name, span in spans.items()}
        details = {
            name: replace(frame, pieces=[frame.pieces[number]])
            for name, frame in unevaluated(self.part.details).items()
            if isinstance(frame, Packed)
        }
        return replace(self.part, details=Frames(details), **frames)


def _batches(index: pl.DataFrame, is_chosen: pl.Series) -> pl.Series:
    """The number of the batch of each chosen record.

    The names of files decide where a batch ends, so that records that are appended to one
    batch do not move records between others.
    """
    families = (
        index.filter(is_chosen)
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
    of_family = index[FAMILY].replace_strict(
        families[FAMILY], pl.Series(numbers, dtype=pl.UInt32), default=None
    )
    return pl.select(pl.when(is_chosen).then(of_family)).to_series()


def _keys(
    index: pl.DataFrame, batches: pl.Series, versions: Mapping[str, object]
) -> dict[int, frozenset[object]]:
    """The files of each batch, with their versions and numbers of records."""
    counts = index.group_by(batches.alias("batch"), pl.col("file").cast(pl.String)).len()
    files_of: dict[int, set[object]] = defaultdict(set)
    for batch, file, n_rows in counts.drop_nulls("batch").iter_rows():
        files_of[batch].add((file, n_rows, versions.get(file, file)))
    return {batch: frozenset(files) for batch, files in files_of.items()}


def _stacked_parts(parts: Sequence[Parts], details: Frames) -> Parts:
    """The rows of several parts, whose frames are emptied, with other details."""
    return replace(
        parts[0],
        entities=_stacked([part.entities for part in parts]),
        transitions=_stacked([part.transitions for part in parts]),
        events=_stacked([part.events for part in parts]),
        details=details,
    )


def _stacked(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Frames of the same columns as one contiguous frame, column by column.

    Adding columns to a frame in several chunks copies all of it. Columns without any value,
    as most are, take no memory. The columns are removed from the frames that are given.
    """
    has_rows = any(frame.height for frame in frames)
    columns, empty = [], {}
    names = frames[0].columns
    for name, dtype in frames[0].schema.items():
        chunks = [frame.drop_in_place(name) for frame in frames]
        if has_rows and all(chunk.null_count() == chunk.len() for chunk in chunks):
            empty[name] = pl.lit(None, dtype)
        else:
            columns.append(pl.concat(chunks, rechunk=True))
    return with_scalar_columns(pl.DataFrame(columns).with_columns(**empty)).select(names)


def _rows_of_records(frame: FrameOrFactory, lines: pl.DataFrame) -> pl.DataFrame:
    """The rows of a frame, which may be packed, that belong to some records."""
    place = ["source", "file", "line_no"]
    if isinstance(frame, Packed):
        frame = frame.of_files(frozenset(lines["file"].unique()))
    elif callable(frame):
        frame = frame()
    return frame.join(lines.select(place), on=place, how="semi", maintain_order="left")


@dataclass(frozen=True)
class LastRead:
    """What the next read of the same input reuses.

    Attributes
    ----------
    settings : str
        The name of the input, and settings: after a change of them nothing is reused.
    transcripts : Transcripts, optional
        The records.
    folded : Folded, optional
        The rows that were made from them.
    """

    settings: str
    transcripts: Transcripts | None = None
    folded: Folded | None = None


def _written_at(late_at: str) -> pl.Expr:
    """When a record was written: one without a moment by the next of its file that has one.

    The last records of a file, such as those of a process that ends, follow the one before.
    """
    at, file = pl.col("at"), ("source", "file")
    following = at.backward_fill().over(file, order_by="line_no")
    before = at.cum_max().forward_fill().over(file, order_by="line_no")
    late = pl.when(pl.col(late_at).is_not_null()).then(pl.max_horizontal(late_at, before))
    return pl.coalesce("at", late, following, before)


def read_transcripts(
    root: Path,
    paths: Sequence[Path],
    source: str,
    folding: Folding,
    *,
    system: str,
    fields: Fields,
    typed: Typed,
    findings: Callable[[Path, Transcripts, Mapping[str, pl.DataFrame], str], pl.DataFrame],
    columns_of_findings: Sequence[str],
    opened: Iterable[str | Path],
    on_error: str,
    before: LastRead | None,
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
        How the system makes its rows from records.
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
    before : LastRead, optional
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
    described = repr((source, *settings))
    is_same = before is not None and before.settings == described
    last = before if before is not None and is_same else LastRead(described)
    transcripts = read_records(
        root,
        paths,
        source,
        fields=fields,
        frames=folding.records,
        typed=typed,
        before=last.transcripts,
    )
    losses = transcripts.findings(source, system, on_error)
    lines, *others = transcripts.rows
    versions = transcripts.versions
    if notes is not None:
        lines = lines.with_rows(notes)
        # A note changes the rows of its transcript, which need not have been written to.
        noted = {row["file"]: tuple(row.values()) for row in notes.iter_rows(named=True)}
        versions = {
            file: f"{version} {noted[file]!r}"
            if file in noted and isinstance(version, str)
            else version
            for file, version in versions.items()
        }
    part, folded = folding.part_of((lines, *others), versions, last.folded)
    few_columns = {folding.records[0].name: partial(lines, columns_of_findings)}
    odd = findings(root, transcripts, Frames({**unevaluated(part.details), **few_columns}), source)
    return replace(
        part,
        findings=pl.concat([losses, odd]),
        label=source,
        size_bytes=size_of(opened),
        kept=LastRead(described, transcripts, folded),
    )


def sources_with_records(facts: Facts, folding: Folding) -> pl.Series:
    """The inputs of which records are kept, so that their past is assembled from records."""
    frame = folding.records[0]
    records = unevaluated(facts.details).get(frame.name, frame.empty())
    index = records.index if isinstance(records, Packed) else None
    sources = (columns_of(records, ["source"]) if index is None else index)["source"]
    return sources.unique().cast(pl.String)


def rewound_transcripts(past: Past, facts: Facts, folding: Folding) -> Past:
    """An instant, with the rows of a system assembled from the records up to it.

    Parameters
    ----------
    past : Past
        As transitions and events of all systems show it.
    facts : Facts
        The present, with the records.
    folding : Folding
        That of the system.
    """
    records: list[FrameOrFactory] = [
        unevaluated(facts.details).get(frame.name, frame.empty()) for frame in folding.records
    ]
    index = folding.index(records[0])
    labels = index["source"].unique().cast(pl.String).sort()
    if labels.is_empty():
        return past
    was_written = (index["written_at"] <= past.at).fill_null(value=True)
    families = index[FAMILY]
    # A family without later records has the rows of the present.
    is_changed = families.is_in(families.filter(~was_written).unique().implode())
    place = pl.col("source", "file")
    same = index.filter(~is_changed).select(place).unique().select(place.cast(pl.String))
    part = folding.folded(records, index, is_changed & was_written).part
    threads = facts.detail(folding.sessions).join(same, on=["source", "file"], how="semi")
    details = {
        name: partial(_detail_frame, facts.details, part.details, name, threads)
        for name in part.details
    }
    until = partial(_records_until, past.at, folding.late_at)
    kept = {
        frame.name: map_frames(until, records[0], *([] if rows is records[0] else [rows]))
        for frame, rows in zip(folding.records, records, strict=True)
    }
    parts = [_present_of_threads(facts, part, threads, labels), part]
    whole = _stacked_parts(parts, Frames({**details, **kept}))
    lost = losses(whole.entities, present=pl.lit(value=True))
    return with_rows_of(past, whole, labels, lost)


def _records_until(
    at: datetime, late_at: str, lines: pl.DataFrame, other: pl.DataFrame | None = None
) -> pl.DataFrame:
    """The records up to an instant, or the rows of another frame that belong to them."""
    past = lines.filter((_written_at(late_at) <= at).fill_null(value=True))
    return past if other is None else _rows_of_records(other, past)


def _present_of_threads(
    facts: Facts, part: Parts, threads: pl.DataFrame, labels: pl.Series
) -> Parts:
    """The present rows of some threads, in the shape of a part."""
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


def _detail_frame(
    present: Mapping[str, pl.DataFrame],
    rebuilt: Mapping[str, pl.DataFrame],
    name: str,
    threads: pl.DataFrame,
) -> pl.DataFrame:
    """The present rows of some threads in a detail frame, and rebuilt rows below."""
    same = present[name].join(
        threads, on=["source", "thread_id"], how="semi", maintain_order="left"
    )
    return pl.concat([same, rebuilt[name]])

"""What was read of an input, kept for the next process that reads it.

The next process uses it as it is where no file of the input has changed since. Of transcripts,
where some have, it reads these and takes the others from the cache.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core.facts import FrameOrFactory, Frames, unevaluated
from stateanalytics.core.joins import is_scalar
from stateanalytics.io.budget import OVER_BUDGET
from stateanalytics.io.cache import Cache, Entry
from stateanalytics.io.observations import digests
from stateanalytics.io.parts import Digested, Parts
from stateanalytics.systems import BUILT_IN
from stateanalytics.systems.folding import Folded, LastRead
from stateanalytics.systems.places import Place
from stateanalytics.systems.transcripts import Packed, Piece, Transcripts

_CANONICAL = ("entities", "transitions", "events", "findings")

LEAST_BYTES = 1_000_000
"""Of an input; a smaller one is read as fast as it is found in the cache."""

StateOf = Callable[[Sequence[Path]], "str | None"]
"""The state of the files of an input, given those that its content names; None: not known."""


@dataclass(frozen=True)
class Remembered:
    """What the cache has of an input.

    Attributes
    ----------
    part : Parts or None
        What a fresh read would give; None where something changed.
    kept : LastRead or None
        What a fresh read can start from.
    """

    part: Parts | None = None
    kept: LastRead | None = None


def remembered(cache: Cache, place: Place, system: str, state_of: StateOf) -> Remembered:
    """What the cache has of an input; nothing where that is damaged or of another version."""
    key = _key(place, system)
    entry = cache.get(key)
    if entry is None:
        return Remembered()
    try:
        state = state_of([Path(path) for path in entry.head["inputs"]])
        is_same = state is not None and state == entry.head["state"]
        if not is_same and entry.head["kept"] is None:
            return Remembered()
        part = _part_from(entry)
        kept = None if entry.head["kept"] is None else _kept_from(entry, part)
    # A file that is whole, and still not what this version writes.
    except (KeyError, TypeError, ValueError, IndexError, pl.exceptions.PolarsError):
        cache.drop(key)
        return Remembered()
    return Remembered(replace(part, kept=kept) if is_same else None, kept)


def remember(cache: Cache, place: Place, part: Parts, state: str | None) -> Parts:
    """Keep what was read for the next process; the part with its digest, which is kept too."""
    kept = part.kept if isinstance(part.kept, LastRead) else None
    is_sure = not part.findings["code"].eq(OVER_BUDGET).any()
    is_known = part.system in BUILT_IN and (state is not None or kept is not None)
    if not (is_known and is_sure) or part.size_bytes < LEAST_BYTES:
        return part
    [own] = digests([part])
    blocks = _Blocks()
    head = _head_of(replace(part, fingerprint=own.fingerprint), state, blocks)
    head["kept"] = None if kept is None else _head_of_kept(kept, part, blocks)
    cache.put(_key(place, part.system), head, blocks.all)
    return replace(part, digested=own)


def _key(place: Place, system: str) -> str:
    return "\0".join([os.path.realpath(place.path), place.label, system])


class _Blocks:
    """Octets to write, each once, by their position."""

    def __init__(self) -> None:
        self.all: list[bytes | memoryview] = []
        self._known: dict[int, int] = {}

    def of(self, octets: bytes | memoryview) -> int:
        if id(octets) not in self._known:
            self._known[id(octets)] = len(self.all)
            self.all.append(octets)
        return self._known[id(octets)]

    def of_frame(self, rows: pl.DataFrame) -> list[Any]:
        """Columns of one repeated value as one row, and the others as they are."""
        repeated = [column.name for column in rows if rows.height and is_scalar(column)]
        frames = (rows.drop(repeated), rows.select(repeated).head(1))
        return [rows.columns, rows.height, *(self.of(_written(frame)) for frame in frames)]


def _written(rows: pl.DataFrame) -> bytes:
    memory = io.BytesIO()
    rows.write_ipc(memory, compression="lz4")
    return memory.getvalue()


def _head_of(part: Parts, state: str | None, blocks: _Blocks) -> dict[str, Any]:
    return {
        "state": state,
        "system": part.system,
        "format": part.format,
        "label": part.label,
        "size_bytes": part.size_bytes,
        "is_live": part.is_live,
        "fingerprint": part.fingerprint,
        "inputs": [str(path) for path in part.inputs],
        "opened": None if part.opened is None else list(part.opened),
        "proven_at": blocks.of_frame(part.proven_at.alias("at").to_frame()),
        "frames": {name: blocks.of_frame(getattr(part, name)) for name in _CANONICAL},
        "details": {
            name: _head_of_frame(frame, blocks) for name, frame in unevaluated(part.details).items()
        },
    }


def _head_of_frame(frame: FrameOrFactory, blocks: _Blocks) -> Any:
    if not isinstance(frame, Packed):
        return blocks.of_frame(frame() if callable(frame) else frame)
    return {
        "none": blocks.of_frame(frame.none),
        "index": None if frame.index is None else blocks.of_frame(frame.index),
        "pieces": [
            [blocks.of(piece.data), piece.n_rows, sorted(piece.files)] for piece in frame.pieces
        ],
    }


def _head_of_kept(kept: LastRead, part: Parts, blocks: _Blocks) -> dict[str, Any] | None:
    read, folded = kept.transcripts, kept.folded
    if read is None or folded is None or read.lost:
        return None
    if any(getattr(part, name) is not getattr(folded.part, name) for name in _CANONICAL[:3]):
        return None
    return {
        "settings": kept.settings,
        "rows": [_head_of_frame(rows, blocks) for rows in read.rows],
        "bad": blocks.of_frame(read.bad),
        "versions": {name: _text(version) for name, version in read.versions.items()},
        "details": list(unevaluated(folded.part.details)),
        "spans": [
            [
                None if key is None else [[*each[:2], _text(each[2])] for each in _files_in(key)],
                number,
                {name: list(span) for name, span in spans.items()},
            ]
            for key, (number, spans) in folded.spans.items()
        ],
    }


def _files_in(key: frozenset[object]) -> Iterator[tuple[str, int, object]]:
    """The files of a batch, each with its number of records and its version."""
    return (each for each in key if isinstance(each, tuple))


def _text(version: object) -> str | None:
    """A version; None for one that is like no other."""
    return version if isinstance(version, str) else None


def _frame(listed: Sequence[Any], blocks: Sequence[memoryview]) -> pl.DataFrame:
    """A frame that `_Blocks.of_frame` wrote."""
    names, n_rows, own, repeated = listed
    rows, one = (pl.read_ipc(bytes(blocks[block])) for block in (own, repeated))
    if not rows.width and one.width:
        rows = pl.DataFrame({"": pl.repeat(0, n_rows, eager=True)})
    literals = [pl.lit(column[0], column.dtype).alias(column.name) for column in one]
    return rows.with_columns(literals).select(names)


def _part_from(entry: Entry) -> Parts:
    head, blocks = entry.head, entry.blocks
    entities, transitions, events, findings = (
        _frame(head["frames"][name], blocks) for name in _CANONICAL
    )
    fingerprint = str(head["fingerprint"])
    return Parts(
        str(head["system"]),
        str(head["format"]),
        entities,
        transitions,
        events,
        findings,
        details=Frames(
            {name: _detail_from(listed, blocks) for name, listed in head["details"].items()}
        ),
        label=str(head["label"]),
        size_bytes=int(head["size_bytes"]),
        is_live=bool(head["is_live"]),
        proven_at=_frame(head["proven_at"], blocks)["at"],
        inputs=tuple(Path(path) for path in head["inputs"]),
        opened=None if head["opened"] is None else tuple(head["opened"]),
        digested=Digested(fingerprint),
    )


def _detail_from(listed: Any, blocks: Sequence[memoryview]) -> FrameOrFactory:
    if isinstance(listed, list):
        return partial(_frame, listed, blocks)
    return Packed(
        _frame(listed["none"], blocks),
        [
            Piece(blocks[block], n_rows, frozenset(files))
            for block, n_rows, files in listed["pieces"]
        ],
        None if listed["index"] is None else _frame(listed["index"], blocks),
    )


def _kept_from(entry: Entry, part: Parts) -> LastRead:
    listed, blocks = entry.head["kept"], entry.blocks
    rows = [_detail_from(each, blocks) for each in listed["rows"]]
    packed = tuple(each for each in rows if isinstance(each, Packed))
    if len(packed) < len(rows):
        raise TypeError("rows")
    versions = {name: version or object() for name, version in listed["versions"].items()}
    details = unevaluated(part.details)
    own = Frames({name: details[name] for name in listed["details"]})
    spans: dict[frozenset[object] | None, tuple[int, dict[str, tuple[int, int]]]] = {}
    for files, number, frames in listed["spans"]:
        key = None
        if files is not None:
            key = frozenset((file, n_rows, version or object()) for file, n_rows, version in files)
        spans[key] = number, {name: (begin, n_rows) for name, (begin, n_rows) in frames.items()}
    read = Transcripts(packed, _frame(listed["bad"], blocks), (), versions)
    folded = Folded(replace(part, details=own, digested=None), spans)
    return LastRead(str(listed["settings"]), read, folded)

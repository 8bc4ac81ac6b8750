"""The result of reading: canonical frames, and the instant for which they are valid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from stateanalytics.core import schema
from stateanalytics.errors import ArgumentError, found

AS_OF_FROM = {
    "given": "as asked",
    "data": "the newest moment in the data",
    "clock": "now, because the store is in use",
}

MOSTLY_UNREAD = "source.mostly_unread"
"""The finding that most of a directory was not read, so every count may be too low."""
OTHER_SYSTEM = "source.other_system"
"""The finding that a directory has files of a system that was not read."""
_LOSSES = (
    *("archive.not_collected", MOSTLY_UNREAD, OTHER_SYSTEM, "read.over_budget", "file.over_bound"),
    *("file.too_large", "file.unreadable", "file.vanished"),
)
"""Codes of losses that are only warnings, because they concern a single file."""
_MISSING = r"^(?:archive|salvage|folder|file|id|record)\."
"""Codes whose errors are losses of data; other errors are about wrong values."""

FrameOrFactory: TypeAlias = "pl.DataFrame | Callable[[], pl.DataFrame]"
"""A frame, or a function that makes it when it is needed."""


class Frames(Mapping[str, pl.DataFrame]):
    """Frames by name. Some are made each time they are asked for, to save memory.

    These are large frames that are seldom needed.

    Parameters
    ----------
    frames : mapping of str to polars.DataFrame or callable

    Examples
    --------
    >>> frames = Frames({"one": pl.DataFrame({"n": [1]}), "two": lambda: pl.DataFrame({"n": [2]})})
    >>> frames["two"].item(), list(frames)
    (2, ['one', 'two'])
    """

    def __init__(self, frames: Mapping[str, FrameOrFactory]) -> None:
        self._frames = frames

    def __getitem__(self, name: str) -> pl.DataFrame:
        return _evaluated(self._frames[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __contains__(self, name: object) -> bool:
        return name in self._frames

    def __len__(self) -> int:
        return len(self._frames)

    def __repr__(self) -> str:
        return f"Frames({', '.join(self)})"


def unevaluated(frames: Mapping[str, pl.DataFrame]) -> Mapping[str, FrameOrFactory]:
    """Frames by name; the factory instead of the frame where there is one."""
    return frames._frames if isinstance(frames, Frames) else frames


def map_frames(function: Callable[..., pl.DataFrame], *arguments: FrameOrFactory) -> FrameOrFactory:
    """The result of a function of frames; a factory of it if one of them is a factory."""
    if any(callable(argument) for argument in arguments):
        return partial(_call, function, arguments)
    return function(*arguments)


def _call(
    function: Callable[..., pl.DataFrame], arguments: Sequence[FrameOrFactory]
) -> pl.DataFrame:
    return function(*map(_evaluated, arguments))


def _evaluated(frame: FrameOrFactory) -> pl.DataFrame:
    return frame() if callable(frame) else frame


@dataclass(frozen=True)
class Facts:
    """The canonical frames of one or more inputs, read at one instant.

    Attributes
    ----------
    entities, transitions, events, findings, sources : polars.DataFrame
        As documented in `stateanalytics.core.schema`.
    details : mapping of str to polars.DataFrame
        Frames that one system adds, by name; large ones are made when they are needed.
    as_of : datetime
        The instant that ages are measured at, in UTC.
    as_of_from : str
        Where it comes from: ``given``, ``data`` or ``clock``.
    inputs : tuple of pathlib.Path
        Files and directories that were read; nothing is ever written over them.
    named : tuple of str
        How the user named what was read; empty where usual places were.
    """

    entities: pl.DataFrame
    transitions: pl.DataFrame
    events: pl.DataFrame
    findings: pl.DataFrame
    sources: pl.DataFrame
    as_of: datetime
    as_of_from: str = "given"
    details: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    inputs: tuple[Path, ...] = ()
    named: tuple[str, ...] = ()

    @property
    def why_as_of(self) -> str:
        """Where the instant comes from, in words."""
        why = AS_OF_FROM.get(self.as_of_from, self.as_of_from)
        if self.as_of_from == "clock" and not self.sources["is_live"].any():
            why = "now"  # nothing in it has a time, or processes were checked
        n = self.sources.height
        return why if n < 2 else f"{why}, one instant for all {n:,} inputs"

    def detail(self, frame: schema.Frame | str) -> pl.DataFrame:
        """A frame that one system adds; empty, in its own shape, where no input fills it.

        If only a name is given, the frame must exist.
        """
        if isinstance(frame, str):
            return self.details[frame]
        detail = self.details.get(frame.name)
        return frame.empty() if detail is None else detail


def changed_facts(facts: Facts, **changes: Any) -> Facts:
    """The facts with some fields replaced; from a snapshot only its facts are kept.

    `dataclasses.replace` would copy a snapshot and keep its stores open.
    """
    values = {name.name: getattr(facts, name.name) for name in fields(Facts)}
    return Facts(**{**values, **changes})


def checked_snapshot(snap: object, function: str) -> Facts:
    """The snapshot itself, or an error that says what was needed.

    Parameters
    ----------
    snap : object
        What a caller gave.
    function : str
        The public name of the caller, without ``sa.``.

    Raises
    ------
    ArgumentError
        If it lacks one of the canonical frames, or the instant.
    """
    needed = (*(frame.name for frame in schema.FACTS), "details", "as_of")
    if not all(hasattr(snap, name) for name in needed):
        raise ArgumentError(
            f"{function} needs a snapshot; found {found(snap)}.",
            f'read one first: sa.{function}(sa.read("state.db"))',
        )
    return snap  # type: ignore[return-value]


def losses_of(findings: pl.DataFrame) -> pl.DataFrame:
    """The findings about missing data, such as errors of files, records and ids.

    Examples
    --------
    >>> losses_of(schema.FINDINGS.empty()).height
    0
    """
    is_record = pl.col("code").str.starts_with("record.") & (pl.col("action") == "excluded")
    is_lost = pl.col("code").is_in(_LOSSES) | (is_record & (pl.col("severity") == "warning"))
    is_missing = pl.col("code").str.contains(_MISSING) & (pl.col("severity") == "error")
    return findings.filter(is_lost | is_missing)


@dataclass(frozen=True)
class Past:
    """Facts at an instant.

    Attributes
    ----------
    facts : Facts
        With ``as_of`` at the instant and nothing younger.
    lost : polars.DataFrame
        A row for each row of ``facts.entities``, in its order; a Boolean for each of
        `systems.history.LOST`: whether the past value is not known.
    """

    facts: Facts
    lost: pl.DataFrame

    @property
    def at(self) -> datetime:
        """The instant."""
        return self.facts.as_of

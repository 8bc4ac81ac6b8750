"""What the sources hand over: canonical frames and the instant they hold for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import polars as pl

from stateanalytics.core import schema
from stateanalytics.errors import ArgumentError, found

AS_OF_FROM = {
    "given": "as asked",
    "data": "the newest moment in the data",
    "clock": "the clock, as the store is in use",
}

MOSTLY_UNREAD = "source.mostly_unread"
"""The finding that most of a directory was not read, so that every count may be too low."""
_OF_LOSSES = ("archive.not_collected", MOSTLY_UNREAD, "read.over_budget", "file.over_bound")

_WORTH_ONE_VALUE = 10_000  # rows: fewer are carried along in no time


MadeFrame: TypeAlias = "pl.DataFrame | Callable[[], pl.DataFrame]"
"""A frame, or what makes it when it is asked for."""


class Frames(Mapping[str, pl.DataFrame]):
    """Frames by name, of which some are made anew whenever they are asked for.

    What is large and seldom needed takes its memory only then.

    Parameters
    ----------
    made : mapping of str to polars.DataFrame or callable

    Examples
    --------
    >>> frames = Frames({"one": pl.DataFrame({"n": [1]}), "two": lambda: pl.DataFrame({"n": [2]})})
    >>> frames["two"].item(), list(frames)
    (2, ['one', 'two'])
    """

    def __init__(self, made: Mapping[str, MadeFrame]) -> None:
        self._made = made

    def __getitem__(self, name: str) -> pl.DataFrame:
        return _frame(self._made[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __contains__(self, name: object) -> bool:
        return name in self._made

    def __len__(self) -> int:
        return len(self._made)

    def __repr__(self) -> str:
        return f"Frames({', '.join(self)})"


def unmade(frames: Mapping[str, pl.DataFrame]) -> Mapping[str, MadeFrame]:
    """Frames by name, those that are made when they are asked for as what makes them."""
    return frames._made if isinstance(frames, Frames) else frames


def later(make: Callable[..., pl.DataFrame], *made: MadeFrame) -> MadeFrame:
    """What a function makes of frames: when it is asked for, if one of them is made then."""
    if any(callable(each) for each in made):
        return partial(_of_made, make, made)
    return make(*made)


def _of_made(make: Callable[..., pl.DataFrame], made: Sequence[MadeFrame]) -> pl.DataFrame:
    return make(*map(_frame, made))


def _frame(made: MadeFrame) -> pl.DataFrame:
    return made() if callable(made) else made


@dataclass(frozen=True)
class Facts:
    """The canonical frames of one or more inputs, read at one instant.

    Attributes
    ----------
    entities, transitions, events, findings, sources : polars.DataFrame
        As documented in `stateanalytics.core.schema`.
    details : mapping of str to polars.DataFrame
        Frames that one system adds, by name; large ones are made when they are asked for.
    as_of : datetime
        The instant that ages are measured at, in UTC.
    as_of_from : str
        Where it is known from: ``given``, ``data`` or ``clock``.
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
        """Where the instant is known from, for people."""
        why = AS_OF_FROM.get(self.as_of_from, self.as_of_from)
        n = self.sources.height
        return why if n < 2 else f"{why}, one instant for all {n:,} inputs"

    def detail(self, frame: schema.Frame | str) -> pl.DataFrame:
        """A frame that one system adds; empty, in its own shape, where no input fills it.

        By its name alone, it must have been filled.
        """
        if isinstance(frame, str):
            return self.details[frame]
        detail = self.details.get(frame.name)
        return frame.empty() if detail is None else detail


def changed_facts(facts: Facts, **changes: Any) -> Facts:
    """The same facts with other values; of a snapshot its facts alone, without its stores.

    Not `dataclasses.replace`: a copy of a snapshot would keep the stores open.
    """
    values = {name.name: getattr(facts, name.name) for name in fields(Facts)}
    return Facts(**{**values, **changes})


def checked_snapshot(snap: object, function: str) -> Facts:
    """The same, or an error that says what was needed.

    Parameters
    ----------
    snap : object
        What a caller gave.
    function : str
        The public name that needs it, without ``sa.``.

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


def once(rows: pl.DataFrame, *, keep: Literal["first", "last"] = "first") -> pl.DataFrame:
    """Each entity once: of several rows with its key the first or the last.

    Examples
    --------
    >>> key = {"source": "s", "system": "x", "entity_type": "session", "entity_id": "1"}
    >>> once(pl.DataFrame([{**key, "n": 1}, {**key, "n": 2}]))["n"].to_list()
    [1]
    """
    # Ids alone mostly tell that nothing is there twice, for a tenth of the time.
    if rows["entity_id"].n_unique() == rows.height:
        return rows
    return rows.unique(schema.ENTITY_KEY, keep=keep, maintain_order=True)


def beside(entities: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """Entities, in their order, with the columns of a frame that tells of each at most once.

    Parameters
    ----------
    entities : polars.DataFrame
        With the columns of ``schema.ENTITY_KEY``.
    told : polars.DataFrame
        The same key, each once (`once`), and columns that ``entities`` does not have.

    Examples
    --------
    >>> key = dict.fromkeys(("source", "system", "entity_type"), "x")
    >>> entities = pl.DataFrame([{**key, "entity_id": name} for name in "abc"])
    >>> told = entities.with_columns(n=pl.int_range(3))
    >>> [beside(entities, rows)["n"].to_list() for rows in (told, told.reverse(), told[:2])]
    [[0, 1, 2], [0, 1, 2], [0, 1, None]]
    >>> of_another_type = told[:1].with_columns(entity_type=pl.lit("y"))
    >>> beside(entities, of_another_type)["n"].to_list()
    [None, None, None]
    """
    key = list(schema.ENTITY_KEY)
    # What was derived from the same entities stands in their order: nothing to look up.
    if told.select(key).equals(entities.select(key), null_equal=False):
        same_order = told
    else:
        same_order = _looked_up(entities.select(key), told)
    return pl.concat([entities, same_order.drop(key)], how="horizontal")


def _looked_up(keys: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """What a frame tells of each key, in their order."""
    # By ids alone it takes a third, and they mostly name one thing.
    if told["entity_id"].n_unique() == told.height:
        others = {name: f"_{name}" for name in schema.ENTITY_KEY if name != "entity_id"}
        found = keys.join(
            told.rename(others).with_columns(_is_told=pl.lit(value=True)),
            on="entity_id",
            how="left",
            maintain_order="left",
        )
        is_same = pl.all_horizontal(pl.col(name) == pl.col(its) for name, its in others.items())
        if found.select((is_same.fill_null(value=False) | ~pl.col("_is_told")).all()).item():
            return found.drop("_is_told", *others.values())
    return keys.join(told, on=list(schema.ENTITY_KEY), how="left", maintain_order="left")


def losses_of(findings: pl.DataFrame) -> pl.DataFrame:
    """The findings on what is missing: of a damaged store, an archive, a directory, for a bound.

    Examples
    --------
    >>> losses_of(schema.FINDINGS.empty()).height
    0
    """
    is_lost = pl.col("code").str.starts_with("salvage.") & (pl.col("severity") == "error")
    return findings.filter(is_lost | pl.col("code").is_in(_OF_LOSSES))


def pool(frames: Sequence[pl.DataFrame], shape: schema.Frame) -> pl.DataFrame:
    """Stack frames of one canonical shape; none give an empty frame of that shape."""
    kept = [frame for frame in frames if frame.height]
    return with_values_once(pl.concat(kept)) if kept else shape.empty()


def with_values_once(rows: pl.DataFrame) -> pl.DataFrame:
    """The same rows, each column that says one thing throughout kept as that one value.

    Such columns take no memory, and steps that carry them along need no time for them.

    Examples
    --------
    >>> rows = pl.DataFrame({"source": ["s"] * 3, "n": [1, 2, 3], "note": [None] * 3})
    >>> with_values_once(rows).equals(rows)
    True
    """
    if rows.height < _WORTH_ONE_VALUE:
        return rows
    said_once = [column for column in rows if _is_one(column)]
    return rows.with_columns(
        pl.lit(column[0], column.dtype).alias(column.name) for column in said_once
    )


def _is_one(column: pl.Series) -> bool:
    """Does a column hold one value throughout; asked of those only of which it is soon known."""
    if column.null_count():
        return column.null_count() == column.len()
    is_told = column.dtype in (pl.String, pl.Boolean) and column[0] == column[-1]
    return is_told and bool((column == column[0]).all())

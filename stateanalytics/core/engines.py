"""Rules over a frame of any engine: adapted on the way in, of the same kind on the way out.

Rules compare small integers, because comparing texts of a million rows is slow. A column of words
is *encoded* on the way in: each known word becomes its position in a vocabulary, anything else
null. Numbers are *looked up* on the way out. Times become ages first, so that no rule needs a
clock. Only these steps differ between engines (`native`); the rules between them are Narwhals
expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.core.native import ENGINES, Engine, Values
from stateanalytics.core.windows import EPOCH, TICK, Moment, read_moment
from stateanalytics.errors import ColumnTypeError, MissingColumnsError

Frame = nw.LazyFrame[Any]

TEMPORARY = "__sa_"
"""Prefix of columns that exist only inside of a rule."""


@dataclass(frozen=True)
class Kind:
    """The types that a column may have, and their name in an error."""

    meaning: str
    dtypes: tuple[type[nw.dtypes.DType], ...]
    dtype: nw.dtypes.DType
    hint: str


_NUMBERS: tuple[type[nw.dtypes.DType], ...] = (
    *(nw.Int8, nw.Int16, nw.Int32, nw.Int64, nw.UInt8, nw.UInt16, nw.UInt32, nw.UInt64),
    *(nw.Float32, nw.Float64, nw.Decimal),
)
TEXT = Kind(
    "words", (nw.String, nw.Categorical, nw.Enum), nw.String(), "cast it to text: .cast(pl.String)"
)
NUMBER = Kind("numbers", _NUMBERS, nw.Float64(), "cast it: .cast(pl.Float64)")
YES_NO = Kind(
    "true or false", (nw.Boolean, *_NUMBERS[:8]), nw.Boolean(), "cast it to a Boolean column"
)
MOMENT = Kind(
    "moments or epoch seconds",
    (*_NUMBERS, nw.Datetime),
    nw.Float64(),
    'parse it: .str.to_datetime(time_zone="UTC")',
)


@dataclass(frozen=True)
class EngineAdapter:
    """A caller's frame on its way through a rule.

    Attributes
    ----------
    frame : narwhals.LazyFrame
        The frame to work on.
    give_back : callable
        Turns the result into the kind of frame that came in.
    is_eager : bool
        Whether the caller's frame is in memory, so that looking at rows costs no query.
    """

    frame: Frame
    give_back: Callable[[Frame], Any]
    is_eager: bool = False


def adapt(frame: Any, needed: Mapping[str, Kind], function: str) -> EngineAdapter:
    """A caller's frame, after a check of the columns that a rule needs.

    Parameters
    ----------
    frame : polars DataFrame or LazyFrame, DuckDB relation, PySpark frame, pyarrow Table
        Eager frames of any library that Narwhals knows work as well.
    needed : mapping of str to Kind
        Columns that the rule needs, and their types. A column of nulls fits any type.
    function : str
        The caller's name, for the message.

    Returns
    -------
    EngineAdapter

    Raises
    ------
    ColumnTypeError
        If it is no frame, or a column holds something else.
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> adapter = adapt(pl.DataFrame({"health": ["ok"]}), {"health": TEXT}, "rule")
    >>> adapter.give_back(adapter.frame).shape
    (1, 1)
    """
    wrapped = nw.from_native(frame, pass_through=True)
    is_lazy = isinstance(wrapped, nw.LazyFrame)
    if not (isinstance(wrapped, nw.DataFrame) or (is_lazy and wrapped.implementation in ENGINES)):
        raise ColumnTypeError(
            f"{function} needs a frame; found {type(frame).__name__}.",
            "give a polars frame, a DuckDB relation, a pyarrow table, or a PySpark frame "
            "(pip install 'stateanalytics[spark]')",
        )
    _check(wrapped, needed, function)
    if is_lazy:
        return EngineAdapter(_typed(wrapped, needed), lambda result: result.to_native())
    library = wrapped.implementation
    return EngineAdapter(
        _typed(wrapped.lazy(backend="polars"), needed),
        lambda result: result.collect(backend=library).to_native(),
        is_eager=True,
    )


def _check(frame: Any, needed: Mapping[str, Kind], function: str) -> None:
    schema = frame.collect_schema()
    if missing := [name for name in needed if name not in schema]:
        raise MissingColumnsError.of(missing, schema.names(), function)
    for name, kind in needed.items():
        if not isinstance(schema[name], (*kind.dtypes, nw.Unknown)):
            raise ColumnTypeError(
                f"{function} needs {kind.meaning} in column {name!r}; found {schema[name]}.",
                kind.hint,
            )


def _typed(frame: Frame, needed: Mapping[str, Kind]) -> Frame:
    """Cast wholly null columns, and Booleans kept as numbers, to the type that rules expect."""
    schema = frame.collect_schema()
    return frame.with_columns(
        nw.col(name).cast(kind.dtype)
        for name, kind in needed.items()
        if isinstance(schema[name], nw.Unknown)
        or (kind is YES_NO and not isinstance(schema[name], nw.Boolean))
    )


def first_true(rules: Mapping[int, nw.Expr]) -> nw.Expr:
    """The number of the first rule that is true; null where none is.

    Parameters
    ----------
    rules : mapping of int to narwhals.Expr
        Boolean expressions by number, in order of precedence; null counts as false.

    Examples
    --------
    >>> frame = nw.from_native(pl.DataFrame({"x": [1, 5, None]}))
    >>> rules = {7: nw.col("x") > 3, 8: nw.col("x") > 0}
    >>> frame.select(first=first_true(rules))["first"].to_list()
    [8, 7, None]
    """
    numbers = iter(rules.items())
    number, expression = next(numbers)
    chain = nw.when(expression).then(nw.lit(number, nw.Int16))
    for number, expression in numbers:
        chain = chain.when(expression).then(nw.lit(number, nw.Int16))
    return chain


def encode(frame: Frame, columns: Mapping[str, tuple[str, Sequence[str]]]) -> Frame:
    """Add, for columns of words, each word's position in its vocabulary.

    Parameters
    ----------
    frame : narwhals.LazyFrame
    columns : mapping of str to (str, sequence of str)
        New column: the column of words, and the vocabulary. A word outside of it, and
        null, become null.

    Examples
    --------
    >>> frame = nw.from_native(pl.LazyFrame({"health": ["idle", "?", None]}))
    >>> encode(frame, {"code": ("health", ("ok", "idle"))}).collect()["code"].to_list()
    [1, None, None]
    """
    engine = _engine(frame)
    return _added(frame, ((new, engine.position(*spec)) for new, spec in columns.items()))


def lookup(frame: Frame, columns: Mapping[str, tuple[str, Values]]) -> Frame:
    """Add, for columns of positions, the value at each position.

    Parameters
    ----------
    frame : narwhals.LazyFrame
    columns : mapping of str to (str, sequence)
        New column: the column of positions, from 0, and the values, which may hold None.
        A position that is null gives null; none may lie outside of the values. Polars
        keeps the dtype of values that are a Series; of an Enum, others make text.

    Examples
    --------
    >>> frame = nw.from_native(pl.LazyFrame({"code": [1, None, 0]}))
    >>> lookup(frame, {"tone": ("code", ("info", "danger"))}).collect()["tone"].to_list()
    ['danger', None, 'info']
    """
    engine = _engine(frame)
    return _added(frame, ((new, engine.item(*spec)) for new, spec in columns.items()))


def add_word(frame: Frame, column: str, word: str, vocabulary: Sequence[str]) -> Frame:
    """Add one word of a vocabulary to every row: an Enum in polars, text elsewhere."""
    if frame.implementation.is_polars():
        return _added(frame, [(column, pl.lit(word, dtype=pl.Enum(vocabulary)))])
    return frame.with_columns(nw.lit(word).alias(column))


def as_words(frame: Frame, columns: Mapping[str, Sequence[str]]) -> Frame:
    """Give columns of words their vocabulary: an Enum in polars; elsewhere they stay text."""
    if not frame.implementation.is_polars():
        return frame
    return _added(frame, ((name, pl.col(name).cast(pl.Enum(w))) for name, w in columns.items()))


def explode_json(frame: Frame, column: str, fields: Mapping[str, type], place: str) -> Frame:
    """One row for each object of a JSON list: its keys as columns, and its position from 0.

    Parameters
    ----------
    frame : narwhals.LazyFrame
    column : str
        JSON lists of objects, never null; it is dropped.
    fields : mapping of str to type
        Keys of the objects, ``str`` or ``float``; none of them is a column already.
    place : str
        New column for the position in the list.

    Examples
    --------
    >>> frame = nw.from_native(pl.LazyFrame({"id": [7], "why": ['[{"code":"a"},{"code":"b"}]']}))
    >>> explode_json(frame, "why", {"code": str}, "order").collect().rows()
    [(7, 0, 'a'), (7, 1, 'b')]
    """
    kept = [name for name in frame.collect_schema().names() if name != column]
    exploded = _engine(frame).explode(frame.to_native(), kept, column, fields, place)
    result: Frame = nw.from_native(exploded)
    return result


def epoch_s(now: Moment) -> float:
    """Epoch seconds of an instant; a number is taken as it is, to the last bit.

    Raises
    ------
    ArgumentError
        If it is no instant.

    Examples
    --------
    >>> epoch_s("2026-05-27")
    1779840000.0
    """
    moment = read_moment(now, "now")
    return float(now) if isinstance(now, (int, float)) else (moment - EPOCH).total_seconds()


def add_ages(frame: Frame, now: Moment, columns: Mapping[str, str]) -> Frame:
    """Add how long before ``now`` each moment was, in float seconds.

    Parameters
    ----------
    frame : narwhals.LazyFrame
    now : datetime, date, str, int or float
        The instant that ages are measured at.
    columns : mapping of str to str
        New column to the column of moments: a Datetime (UTC, also where it has no zone;
        Spark reads one without a zone in its session's) or epoch seconds.

    Returns
    -------
    narwhals.LazyFrame
        Ages are negative for moments after ``now``. Null where no moment is known: null,
        NaN (which SQLite cannot store) and zero.

    Examples
    --------
    >>> frame = nw.from_native(pl.LazyFrame({"updated_at": [40.0, 0.0, None]}))
    >>> add_ages(frame, 100, {"age_s": "updated_at"}).collect()["age_s"].to_list()
    [60.0, None, None]
    """
    schema, engine = frame.collect_schema(), _engine(frame)
    # Integer microseconds are exact on every engine.
    now_us = (read_moment(now, "now") - EPOCH) // TICK
    dated = {new: old for new, old in columns.items() if isinstance(schema[old], nw.Datetime)}
    aged = _added(frame, ((new, engine.age_s(old, now_us)) for new, old in dated.items()))

    def age_of_number(column: str) -> nw.Expr:
        is_known = nw.col(column) != 0
        if isinstance(schema[column], (nw.Float32, nw.Float64)):
            is_known = is_known & ~nw.col(column).is_nan()
        return nw.when(is_known).then(nw.lit(epoch_s(now)) - nw.col(column).cast(nw.Float64))

    return aged.with_columns(
        age_of_number(old).alias(new) for new, old in columns.items() if new not in dated
    )


def add_span(frame: Frame, new: str, earlier: str, later: str) -> Frame:
    """Add the seconds between two moments of a row, both Datetime or both epoch seconds.

    Examples
    --------
    >>> frame = nw.from_native(pl.LazyFrame({"started_at": [40.0], "ended_at": [100.0]}))
    >>> add_span(frame, "duration_s", "started_at", "ended_at").collect()["duration_s"].item()
    60.0
    """
    schema = frame.collect_schema()
    if all(isinstance(schema[name], nw.Datetime) for name in (earlier, later)):
        return _added(frame, [(new, _engine(frame).span_s(earlier, later))])
    return frame.with_columns((nw.col(later) - nw.col(earlier)).cast(nw.Float64).alias(new))


def _engine(frame: Frame) -> Engine:
    return ENGINES[frame.implementation]


def _added(frame: Frame, columns: Iterable[tuple[str, Any]]) -> Frame:
    """The frame with columns written in the engine's own expressions."""
    named = dict(columns)
    if not named:
        return frame
    result: Frame = nw.from_native(_engine(frame).with_columns(frame.to_native(), named))
    return result

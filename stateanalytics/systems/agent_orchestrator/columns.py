"""Column expressions that many rules share: look-ups, first match, stored texts as moments."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import narwhals as nw
import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.errors import MissingColumnsError
from stateanalytics.io.findings import counted
from stateanalytics.systems.agent_orchestrator.places import SYSTEM

FrameT = TypeVar("FrameT")
"""A frame of any engine that Narwhals knows: the same kind comes back."""

Steps = tuple[Mapping[str, Any], ...]
"""Columns to add, step by step: a later step may read those of an earlier one."""


def need(frame: pl.DataFrame, names: Iterable[str], function: str) -> None:
    """Refuse a frame that lacks a column.

    Parameters
    ----------
    frame : polars.DataFrame
        The frame a rule was given.
    names : iterable of str
        The columns it reads.
    function : str
        The rule's name, for the message.

    Raises
    ------
    MissingColumnsError
        If one is absent.

    Examples
    --------
    >>> import polars as pl
    >>> need(pl.DataFrame({"at": [1]}), ["at"], "a_rule")
    """
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise MissingColumnsError.of(missing, frame.columns, function)


def add_columns(
    frame: FrameT, needs: Iterable[str], function: str, *steps: Mapping[str, Any]
) -> FrameT:
    """Add columns to a frame of any engine, after a look at what it has.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        The frame a rule was given.
    needs : iterable of str
        The columns the rule reads.
    function : str
        The rule's name, for the message.
    *steps : mapping of str to narwhals.Expr
        Columns to add; a later step may read those of an earlier one.

    Returns
    -------
    The same kind of frame
        With the columns.

    Raises
    ------
    MissingColumnsError
        If one of ``needs`` is absent.

    Examples
    --------
    >>> import narwhals as nw
    >>> import polars as pl
    >>> add_columns(pl.DataFrame({"a": [1]}), ["a"], "a_rule", {"b": nw.col("a") + 1})["b"].item()
    2
    """
    over = nw.from_native(cast(Any, frame))
    there = over.collect_schema().names()
    missing = [name for name in needs if name not in there]
    if missing:
        raise MissingColumnsError.of(missing, there, function)
    for columns in steps:
        over = over.with_columns(**columns)
    return cast(FrameT, over.to_native())


def drop_columns(frame: FrameT, *names: str) -> FrameT:
    """Drop the columns that only a rule's own steps needed."""
    return cast(FrameT, nw.from_native(cast(Any, frame)).drop(*names).to_native())


def look_up(
    column: Any,
    table: Mapping[str, str | float | None],
    default: Any = None,
    *,
    library: Any = nw,
    dtype: Any = None,
) -> Any:
    """The value of each word in a table, as an expression of Narwhals or polars.

    Parameters
    ----------
    column : narwhals.Expr or polars.Expr
        Words.
    table : mapping of str to str, float or None
        Word to value.
    default : str, float or expression, optional
        For all other words.
    library : module, default narwhals
        ``narwhals``, or ``polars`` inside a polars expression.
    dtype : dtype of the library, default String
        Of the values.

    Examples
    --------
    >>> import polars as pl
    >>> words = pl.DataFrame({"word": ["a", "b", "c"]})
    >>> rule = look_up(pl.col("word"), {"a": "x", "b": "x"}, "y", library=pl)
    >>> words.select(rule).to_series().to_list()
    ['x', 'x', 'y']
    """
    kind = dtype or library.String()
    is_rule = isinstance(default, nw.Expr | pl.Expr)
    # One lookup and not one test a word: Narwhals makes each of those again for every frame.
    return column.replace_strict(
        dict(table),
        default=default if is_rule else library.lit(default, kind),
        return_dtype=kind,
    )


def first_true(*rules: tuple[Any, Any], default: Any = None, library: Any = nw) -> Any:
    """The value of the first condition that holds, as an expression of Narwhals or polars.

    Parameters
    ----------
    *rules : tuple
        A condition, and a word or an expression.
    default : str or expression, optional
        Where none holds.
    library : module, default narwhals
        ``narwhals``, or ``polars`` inside a polars expression.

    Examples
    --------
    >>> import polars as pl
    >>> rule = first_true((pl.col("n") > 1, "many"), default="few", library=pl)
    >>> pl.DataFrame({"n": [1, 2]}).select(rule).to_series().to_list()
    ['few', 'many']
    """

    def expression(value: Any) -> Any:
        is_word = value is None or isinstance(value, str)
        return library.lit(value, library.String()) if is_word else value

    rule = expression(default)
    for condition, value in reversed(rules):
        rule = library.when(condition).then(expression(value)).otherwise(rule)
    return rule


def references(**columns: str) -> pl.Expr:
    """Texts as evidence: a JSON list of references by kind; null where all are null.

    Examples
    --------
    >>> import polars as pl
    >>> pl.DataFrame({"seen": ["ok"]}).select(references(tool_result="seen")).item()
    '[{"kind":"tool_result","detail":"ok"}]'
    """
    pieces = [
        pl.when(pl.col(name).is_not_null()).then(
            pl.struct(kind=pl.lit(kind), detail=name).struct.json_encode()
        )
        for kind, name in columns.items()
    ]
    joined = pl.concat_str(pieces, separator=",", ignore_nulls=True)
    return pl.when(joined != "").then(pl.format("[{}]", joined))


def with_defaults(
    frame: pl.DataFrame, columns: Mapping[str, pl.DataType], values: Mapping[str, object] = {}
) -> pl.DataFrame:
    """Add the optional columns that are absent, and cast all to the type that is read.

    Parameters
    ----------
    frame : polars.DataFrame
        The frame a rule was given.
    columns : mapping of str to polars.DataType
        Optional columns and their types.
    values : mapping of str to object
        What an absent column holds; null if it is not named here.

    Returns
    -------
    polars.DataFrame
        The frame with every one of the columns.

    Examples
    --------
    >>> import polars as pl
    >>> with_defaults(pl.DataFrame({"a": [1]}), {"b": pl.String()})["b"].to_list()
    [None]
    """
    return frame.with_columns(
        (pl.col(name) if name in frame.columns else pl.lit(values.get(name)))
        .cast(dtype)
        .alias(name)
        for name, dtype in columns.items()
    )


WHITE_SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What `String.trim` removes and the class `\\s` matches."""

SPACE_CLASS = f"[{WHITE_SPACE}]"

_LARGEST_FLOAT = sys.float_info.max


def trim(text: pl.Expr) -> pl.Expr:
    r"""A text without JavaScript's white space around it.

    Parameters
    ----------
    text : polars.Expr of String
        Any text.

    Returns
    -------
    polars.Expr of String
        As `String.trim`.

    Examples
    --------
    >>> import polars as pl
    >>> pl.select(trim(pl.lit("\ufeff a "))).item()
    'a'
    """
    return text.str.strip_chars(WHITE_SPACE)


def is_filled(text: pl.Expr) -> pl.Expr:
    """Is a text truthy: there, and not empty. Never null."""
    return text.is_not_null() & (text != "")


def leading_integer(text: pl.Expr) -> pl.Expr:
    """The integer a text begins with, as `parseInt(text, 10)`.

    Parameters
    ----------
    text : polars.Expr of String
        Any text.

    Returns
    -------
    polars.Expr of Float64
        A whole number (JavaScript's numbers are floats); null for NaN.

    Examples
    --------
    >>> import polars as pl
    >>> texts = pl.Series("text", [" 4abc", "2.9", "-1", "0x10", "abc"])
    >>> pl.DataFrame(texts).select(leading_integer(pl.col("text")))["text"].to_list()
    [4.0, 2.0, -1.0, 0.0, None]
    """
    return text.str.extract(rf"^{SPACE_CLASS}*([+-]?[0-9]+)").str.strip_prefix("+").cast(pl.Float64)


class NotJsonError(ValueError):
    """The text is nothing that `JSON.parse` accepts."""


def read_json(text: str) -> object:
    """The value of one JSON text, refused where `JSON.parse` refuses it.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    object
        dict, list, str, int, float, bool or None.

    Raises
    ------
    NotJsonError
        If it is no JSON, ``NaN`` and ``Infinity`` included.

    Examples
    --------
    >>> read_json('{"a": 1}')
    {'a': 1}
    """
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as problem:
        raise NotJsonError(text[:80]) from problem


def write_json(value: object) -> str:
    """A value as `JSON.stringify` writes it: no spaces, whole numbers without a point.

    Parameters
    ----------
    value : object
        What `read_json` gave.

    Returns
    -------
    str
        JSON text.

    Examples
    --------
    >>> write_json({"pid": 42.0, "name": "é"})
    '{"pid":42,"name":"é"}'
    """
    return json.dumps(_numbers(value), ensure_ascii=False, separators=(",", ":"))


def is_integer(value: object) -> bool:
    """Is it what `Number.isInteger` accepts: a whole number, ``42.0`` too, never a Boolean."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _refuse(word: str) -> float:
    raise NotJsonError(word)


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _numbers(value: object) -> object:
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if abs(value) > _LARGEST_FLOAT:
        return None
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


_ISO = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)?"
    r" ?([Zz]|[+-][0-9]{2}:?[0-9]{2})?)?$"
)
_USUAL = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-5][0-9]\.[0-9]{3}Z$"
# Fewer digits are a year or a typing error, more are beyond every calendar.
_EPOCH = r"^([0-9]{9,15})(?:\.[0-9]+)?$"
_LEAST_EPOCH_MS = 10**11
_LAST_MS = 8_640_000_000_000_000
_CALENDAR = (
    pl.lit(datetime(1, 1, 1, tzinfo=UTC)),
    pl.lit(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
)


def iso_ms(text: pl.Expr) -> pl.Expr:
    """Milliseconds since the epoch of ISO dates and epoch numbers.

    Parameters
    ----------
    text : polars.Expr of String
        Times as they were stored. A time without a zone is UTC; a number of fewer than 12
        digits is in seconds, a longer one in milliseconds.

    Returns
    -------
    polars.Expr of Int64
        Whole milliseconds, finer fractions cut off; null for everything else.

    Examples
    --------
    >>> import polars as pl
    >>> texts = ["1970-01-02", "1970-01-01 01:00:00.5+01:00", "1000000000", "Jan 2, 1970"]
    >>> pl.DataFrame({"at": texts}).select(iso_ms(pl.col("at")))["at"].to_list()
    [86400000, 500, 1000000000000, None]
    """
    return text.map_batches(_iso_ms, return_dtype=pl.Int64, is_elementwise=True)


def _iso_ms(texts: pl.Series) -> pl.Series:
    """Nearly every time is as JavaScript writes it, which is read in a tenth of the time."""
    if texts.null_count() == texts.len():
        return texts.cast(pl.Int64)
    rows, text = texts.alias("text").to_frame(), pl.col("text")
    seconds = text.str.slice(0, 19).str.to_datetime(
        "%Y-%m-%dT%H:%M:%S", time_unit="ms", strict=False
    )
    fraction = text.str.slice(20, 3).cast(pl.Int64, strict=False)
    ms = rows.select(seconds.dt.epoch("ms") + fraction).to_series()
    odd = rows.select((~text.str.contains(_USUAL)).arg_true()).to_series()
    if odd.is_empty():
        return ms
    return ms.scatter(odd, rows[odd].select(_any_ms(text)).to_series())


def _any_ms(text: pl.Expr) -> pl.Expr:
    date, minute, second, fraction, zone = (text.str.extract(_ISO, group) for group in range(1, 6))
    written = pl.concat_str(
        date,
        pl.lit("T"),
        minute.fill_null("00:00"),
        pl.lit(":"),
        # A leap second is no moment to JavaScript, and the next minute to polars.
        pl.when(second.fill_null("00") != "60").then(second.fill_null("00")),
        pl.lit("."),
        fraction.fill_null("").str.slice(0, 3).str.pad_end(3, "0"),
    )
    local = written.str.to_datetime("%Y-%m-%dT%H:%M:%S%.3f", time_unit="ms", strict=False)
    hours, minutes = (zone.str.extract(r"([0-9]{2}):?([0-9]{2})$", part) for part in (1, 2))
    away = hours.cast(pl.Int64) * 3_600_000 + minutes.cast(pl.Int64) * 60_000
    signed = pl.when(zone.str.starts_with("-")).then(-away).otherwise(away)
    number = text.str.extract(_EPOCH).cast(pl.Int64, strict=False)
    epoch = pl.when(number < _LEAST_EPOCH_MS).then(number * 1000).otherwise(number)
    return pl.coalesce(local.dt.epoch("ms") - signed.fill_null(0), epoch)


def moment(ms: pl.Expr) -> pl.Expr:
    """Milliseconds since the epoch as a moment in UTC, `Datetime("us", "UTC")`.

    Null beyond 275,000 years, where JavaScript's dates end too.
    """
    # An expression that names its input twice would work it out twice.
    return ms.map_batches(_moments, return_dtype=schema.MOMENT, is_elementwise=True)


def _moments(ms: pl.Series) -> pl.Series:
    kept = pl.when(pl.col("ms").abs() <= _LAST_MS).then("ms")
    return ms.to_frame("ms").select((kept * 1000).cast(schema.MOMENT)).to_series()


def in_calendar(moments: pl.Expr) -> pl.Expr:
    """Those of the years 1 to 9999: no Python date can hold others.

    JavaScript and Go write and read them without a complaint.
    """
    return pl.when(moments.is_between(*_CALENDAR)).then(moments)


def stored_moment(text: str | pl.Expr) -> pl.Expr:
    """A stored time, of a column or an expression, as a moment in UTC."""
    return moment(iso_ms(pl.col(text) if isinstance(text, str) else text))


def unreadable_times(
    rows: pl.DataFrame,
    label: str,
    table: str | None,
    columns: Mapping[str, pl.Expr],
    reader: Callable[[pl.Expr], pl.Expr] = stored_moment,
) -> pl.DataFrame:
    """One finding a column whose texts are neither ISO dates nor epoch numbers.

    Parameters
    ----------
    rows : polars.DataFrame
        Rows of a store.
    label, table : str
        The input, and what of it the rows are from.
    columns : mapping of str to polars.Expr
        Name of a column, as the store calls it, to its texts.
    reader : callable
        How the texts are read.

    Returns
    -------
    polars.DataFrame
        In the shape of `schema.FINDINGS`, counted.
    """
    if rows.is_empty():
        return schema.FINDINGS.empty()
    unreadable = rows.select(
        pl.when((text != "") & reader(text).is_null()).then(text).alias(name)
        for name, text in columns.items()
    )
    findings = [
        counted(
            label,
            SYSTEM,
            "time.unreadable",
            "warning",
            "times that are neither ISO dates nor epoch numbers",
            n_rows=texts.len() - texts.null_count(),
            table=table,
            column=texts.name,
            example=str(texts.min()),
            action="read as null",
        )
        for texts in unreadable.iter_columns()
    ]
    return pool(findings, schema.FINDINGS)

r"""Stored texts, JSON and times, as JavaScript understands them where polars and Python differ.

`String.trim` takes a byte order mark away and leaves U+0085, `\d` is ASCII only,
``JSON.parse("[1.0]")`` is written back as ``[1]``, and ``NaN`` is no JSON.

ISO dates and epoch numbers become moments, anything else null and a finding: Agent
Orchestrator itself hands every stored time to JavaScript's `Date.parse`, which also
takes ``April 1, 2026`` for a moment and 31 April for 1 May. Nothing that it or its plugins
write needs that, and a guess at a hand-written date would move ages silently.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.findings import counted
from stateanalytics.systems.agent_orchestrator.places import SYSTEM

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

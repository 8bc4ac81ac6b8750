r"""Text and JSON as JavaScript understands them, where polars and Python differ.

`String.trim` takes a byte order mark away and leaves U+0085, `\d` is ASCII only,
``JSON.parse("[1.0]")`` is written back as ``[1]``, and ``NaN`` is no JSON.
"""

from __future__ import annotations

import json
import sys

import polars as pl

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

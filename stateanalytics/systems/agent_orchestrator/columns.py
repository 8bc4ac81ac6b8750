"""Column expressions that many rules share: look-ups, first match, stored texts as moments.

ISO dates and epoch numbers become moments, anything else null and a finding: Agent
Orchestrator itself hands every stored time to JavaScript's `Date.parse`, which also
takes ``April 1, 2026`` for a moment and 31 April for 1 May. Nothing that it or its plugins
write needs that, and a guess at a hand-written date would move ages silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.io.findings import all_findings, noted
from stateanalytics.systems.agent_orchestrator.places import SYSTEM


def look_up(
    words: pl.Expr,
    table: Mapping[str, str | float | bool | None],
    default: str | float | pl.Expr | None = None,
    dtype: pl.DataType | None = None,
) -> pl.Expr:
    """Value of each word in a table; ``default`` for every other word.

    Examples
    --------
    >>> words = pl.DataFrame({"word": ["a", "b", "c"]})
    >>> words.select(look_up(pl.col("word"), {"a": "x", "b": "x"}, "y"))["word"].to_list()
    ['x', 'x', 'y']
    """
    kind = dtype or pl.String()
    other = default if isinstance(default, pl.Expr) else pl.lit(default, kind)
    return words.replace_strict(dict(table), default=other, return_dtype=kind)


def first_true(
    *rules: tuple[pl.Expr, str | pl.Expr], default: str | pl.Expr | None = None
) -> pl.Expr:
    """Value of the first condition that holds: a word, or an expression.

    Examples
    --------
    >>> rule = first_true((pl.col("n") > 1, "many"), default="few")
    >>> pl.DataFrame({"n": [1, 2]}).select(rule).to_series().to_list()
    ['few', 'many']
    """

    def expression(value: str | pl.Expr | None) -> pl.Expr:
        return value if isinstance(value, pl.Expr) else pl.lit(value, pl.String)

    rule = expression(default)
    for condition, value in reversed(rules):
        rule = pl.when(condition).then(expression(value)).otherwise(rule)
    return rule


def json_value(column: str, *keys: str) -> pl.Expr:
    """Text of the first of some keys that a column of JSON objects holds."""
    return pl.coalesce(pl.col(column).str.json_path_match(f"$.{key}") for key in keys)


def references(**columns: str) -> pl.Expr:
    """Texts as evidence: a JSON list of references by kind; null where all are null.

    Examples
    --------
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


def with_defaults(frame: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Add optional columns that are absent, as nulls, and cast all to the type that is read.

    Examples
    --------
    >>> with_defaults(pl.DataFrame({"a": [1]}), {"b": pl.String()})["b"].to_list()
    [None]
    """
    return frame.with_columns(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in columns.items()
    )


def filled(name: str) -> pl.Expr:
    """Text column with null in place of empty texts."""
    return pl.when(pl.col(name) != "").then(name)


def yes_no(name: str) -> pl.Expr:
    """Boolean of a text column of ``true`` and ``false``; null for any other text."""
    return look_up(pl.col(name), {"true": True, "false": False}, dtype=pl.Boolean())


def flag(name: str) -> pl.Expr:
    """Boolean column with False in place of null."""
    return pl.col(name).fill_null(value=False)


MOST_DETAIL = 500
"""Characters of a free text that are kept."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for a moment that is not known, where a rule insists on one."""

_ISO = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)?"
    r" ?([Zz]|[+-][0-9]{2}:?[0-9]{2})?)?$"
)
_USUAL = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-5][0-9]\.[0-9]{3}Z$"
# Fewer digits are a year or a typing error, more are beyond every calendar.
_EPOCH = r"^([0-9]{9,15})(?:\.[0-9]+)?$"
_LEAST_EPOCH_MS = 10**11
_CALENDAR_MS = (-62_135_596_800_000, 253_402_300_799_999)
"""Years 1 to 9999: JavaScript and Go write others, and no Python date can hold them."""


def iso_ms(text: pl.Expr) -> pl.Expr:
    """Milliseconds since the epoch, from ISO dates and epoch numbers.

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
    >>> texts = ["1970-01-02", "1970-01-01 01:00:00.5+01:00", "1000000000", "Jan 2, 1970"]
    >>> pl.DataFrame({"at": texts}).select(iso_ms(pl.col("at")))["at"].to_list()
    [86400000, 500, 1000000000000, None]
    """
    return text.map_batches(_iso_ms, return_dtype=pl.Int64, is_elementwise=True)


def _iso_ms(texts: pl.Series) -> pl.Series:
    """Texts as JavaScript writes them, in a tenth of the time; the rare others by `_any_ms`."""
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
    offset = hours.cast(pl.Int64) * 3_600_000 + minutes.cast(pl.Int64) * 60_000
    signed = pl.when(zone.str.starts_with("-")).then(-offset).otherwise(offset)
    number = text.str.extract(_EPOCH).cast(pl.Int64, strict=False)
    epoch = pl.when(number < _LEAST_EPOCH_MS).then(number * 1000).otherwise(number)
    return pl.coalesce(local.dt.epoch("ms") - signed.fill_null(0), epoch)


def moment(ms: pl.Expr) -> pl.Expr:
    """Milliseconds since the epoch as a moment in UTC; null outside of the years 1 to 9999."""
    # An expression that names its input twice would work it out twice.
    return ms.map_batches(_moments, return_dtype=schema.MOMENT, is_elementwise=True)


def _moments(ms: pl.Series) -> pl.Series:
    kept = pl.when(pl.col("ms").is_between(*_CALENDAR_MS)).then("ms")
    return ms.to_frame("ms").select((kept * 1000).cast(schema.MOMENT)).to_series()


def stored_moment(text: str | pl.Expr) -> pl.Expr:
    """Stored time, of a column or an expression, as a moment in UTC."""
    return moment(iso_ms(pl.col(text) if isinstance(text, str) else text))


def unreadable_times(
    rows: pl.DataFrame,
    label: str,
    table: str | None,
    columns: Mapping[str, pl.Expr],
    reader: Callable[[pl.Expr], pl.Expr] = stored_moment,
) -> pl.DataFrame:
    """One finding per column in which some texts are neither ISO dates nor epoch numbers.

    ``columns`` is the name of each column, as the store calls it, with its texts; ``reader``
    is how those texts are read.
    """
    if rows.is_empty():
        return schema.FINDINGS.empty()
    unreadable = rows.select(
        pl.when((text != "") & reader(text).is_null()).then(text).alias(name)
        for name, text in columns.items()
    )
    found = (
        counted(
            label,
            "time.unreadable",
            texts.count(),
            table=table,
            column=texts.name,
            example=str(texts.min()),
        )
        for texts in unreadable.iter_columns()
    )
    return all_findings(*found)


def counted(label: str, code: str, n_rows: int, *values: object, **more: Any) -> pl.DataFrame:
    """One finding on several rows; ``values`` are for the braces of its message."""
    return noted(label, SYSTEM, code, *values, package=__package__, n_rows=n_rows, **more)

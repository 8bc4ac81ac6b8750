"""Stored times: ISO dates and epoch numbers become moments, anything else null and a finding.

Agent Orchestrator itself hands every stored time to JavaScript's `Date.parse`, which also
takes ``April 1, 2026`` for a moment and 31 April for 1 May. Nothing that it or its plugins
write needs that, and a guess at a hand-written date would move ages silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.findings import counted
from stateanalytics.systems.agent_orchestrator.places import SYSTEM

DateReader = Callable[[pl.Expr], pl.Expr]
"""From an expression of stored texts to one of milliseconds since the epoch."""

_ISO = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}:[0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]+))?)?"
    r" ?([Zz]|[+-][0-9]{2}:?[0-9]{2})?)?$"
)
# Fewer digits are a year or a typing error, more are beyond every calendar.
_EPOCH = r"^([0-9]{9,15})(?:\.[0-9]+)?$"
_LEAST_EPOCH_MS = 10**11
_LAST_MS = 8_640_000_000_000_000


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
    return (pl.when(ms.abs() <= _LAST_MS).then(ms) * 1000).cast(schema.MOMENT)


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
    findings = []
    for name, text in columns.items():
        is_unreadable = text.is_not_null() & (text != "") & reader(text).is_null()
        texts = rows.filter(is_unreadable).select(text.alias("text"))["text"]
        findings.append(
            counted(
                label,
                SYSTEM,
                "time.unreadable",
                "warning",
                "times that are neither ISO dates nor epoch numbers",
                n_rows=texts.len(),
                table=table,
                column=name,
                example=None if texts.is_empty() else str(texts.min()),
                action="read as null",
            )
        )
    return pool(findings, schema.FINDINGS)

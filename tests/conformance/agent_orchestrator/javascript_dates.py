"""Moments as JavaScript reads and writes them: `Date.parse` and `toISOString`.

Agent Orchestrator trusts `Date.parse` with every stored time, and `Date.parse` is
generous: ``2026`` and ``April 1, 2026`` are moments, 30 February is 2 March, a time
without a zone is local to the machine that wrote it, and an epoch number in text is
none. A loader that is stricter or more generous than that gives other ages.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import polars as pl

from tests.conformance.agent_orchestrator.javascript_date_grammar import read_date

_USUAL_MS = (-62_167_219_200_000, 253_402_300_799_999)
_LAST_MS = 8_640_000_000_000_000
_ERA_MS = 146_097 * 86_400_000


def parse_dates(texts: pl.Series, *, local_zone: str = "UTC") -> pl.Series:
    """Milliseconds since the epoch that `Date.parse` gives for each text.

    Parameters
    ----------
    texts : polars.Series of String
        Moments as they were stored.
    local_zone : str, default "UTC"
        Time zone of the machine that wrote them; it decides times without a zone.

    Returns
    -------
    polars.Series of Int64, same length and name
        Milliseconds; null where JavaScript gives NaN, and where the text is null.

    Notes
    -----
    JavaScript's grammar cannot be said as one expression, so every distinct text
    that is not ``YYYY-MM-DDTHH:MM:SS.mmmZ`` is read once by a port of the grammar that
    V8 uses (the ECMAScript format first, the legacy one after it).

    Examples
    --------
    >>> import polars as pl
    >>> parse_dates(pl.Series(["1970-01-01T00:00:01Z", "1970", "soon"])).to_list()
    [1000, 0, None]
    """
    frame = pl.DataFrame({"text": texts.cast(pl.String)})
    frame = frame.with_columns(ms=_usual(pl.col("text")))
    odd = frame.filter(pl.col("ms").is_null() & pl.col("text").is_not_null())["text"].unique()
    if odd.len() > 0:
        zone = ZoneInfo(local_zone)
        read = {text: read_date(text, zone) for text in odd}
        known = pl.DataFrame({"text": list(read), "odd_ms": list(read.values())}, _ODD)
        frame = frame.join(known, on="text", how="left", maintain_order="left").with_columns(
            ms=pl.coalesce("ms", "odd_ms")
        )
    return frame["ms"].rename(texts.name)


_ODD = {"text": pl.String, "odd_ms": pl.Int64}


def date_ms(column: str | pl.Expr, *, local_zone: str = "UTC") -> pl.Expr:
    """Milliseconds that `Date.parse` gives, as an expression over a text column.

    Parameters
    ----------
    column : str or polars.Expr
        A text column.
    local_zone : str, default "UTC"
        Time zone of the machine that wrote the texts.

    Returns
    -------
    polars.Expr of Int64
        As `parse_dates`.

    Examples
    --------
    >>> import polars as pl
    >>> pl.DataFrame({"at": ["1970-01-02"]}).select(date_ms("at")).item()
    86400000
    """
    texts = pl.col(column) if isinstance(column, str) else column
    return texts.map_batches(
        lambda series: parse_dates(series, local_zone=local_zone), return_dtype=pl.Int64
    )


def moment(ms: pl.Expr) -> pl.Expr:
    """Milliseconds since the epoch as a moment in UTC, `Datetime("us", "UTC")`.

    Null beyond 275,000 years, where JavaScript's dates end too.
    """
    return (pl.when(ms.abs() <= _LAST_MS).then(ms) * 1000).cast(pl.Datetime("us", "UTC"))


def milliseconds(at: pl.Expr) -> pl.Expr:
    """A moment as whole milliseconds since the epoch, as a JavaScript date holds it."""
    return at.dt.epoch("us").floordiv(1000)


def iso_text(ms: pl.Expr) -> pl.Expr:
    """The text that `toISOString` writes for milliseconds since the epoch.

    Parameters
    ----------
    ms : polars.Expr of Int64
        Milliseconds since the epoch.

    Returns
    -------
    polars.Expr of String
        ``YYYY-MM-DDTHH:MM:SS.mmmZ``; years past 9999 or before 0 have a sign and six
        digits.

    Examples
    --------
    >>> import polars as pl
    >>> pl.select(iso_text(pl.lit(1000))).item()
    '1970-01-01T00:00:01.000Z'
    """
    usual = moment(ms).dt.to_string("%Y-%m-%dT%H:%M:%S%.3fZ")
    unusual = ms.cast(pl.Int64).map_batches(_long_year_texts, return_dtype=pl.String)
    return pl.when(ms.is_between(*_USUAL_MS)).then(usual).otherwise(unusual)


def _long_year_texts(ms: pl.Series) -> pl.Series:
    """ISO texts of the moments outside the years 0 to 9999, each read once; the rest null."""
    odd = ms.filter(~ms.is_between(*_USUAL_MS)).drop_nulls().unique().to_list()
    texts = [_long_year_text(value) for value in odd]
    return ms.replace_strict(odd, texts, default=None, return_dtype=pl.String)


def _long_year_text(ms: int) -> str:
    # 400 years are 146,097 days in every calendar: shift into the years that have a type.
    eras, rest_ms = divmod(ms, _ERA_MS)
    text = (datetime(1970, 1, 1) + timedelta(milliseconds=rest_ms)).isoformat("T", "milliseconds")
    year = int(text[:4]) + 400 * eras
    return f"{'-' if year < 0 else '+'}{abs(year):06}{text[4:]}Z"


def _usual(text: pl.Expr) -> pl.Expr:
    """The form that `toISOString` writes, in one vectorised step; null for all others."""
    shape = text.str.contains(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$")
    at = (
        pl.when(shape)
        .then(text)
        .str.to_datetime("%Y-%m-%dT%H:%M:%S%.3fZ", time_unit="ms", strict=False)
    )
    # A leap second parses as a moment here but is NaN in JavaScript.
    leap = text.str.slice(17, 2) == "60"
    return pl.when(~leap).then(at.dt.epoch("ms"))

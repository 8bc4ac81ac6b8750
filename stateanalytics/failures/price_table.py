"""List prices of models, dated and offline; a file of yours wins.

::

    as_of = 2026-11-01            # when you looked

    [[price]]
    input = 1.00                  # US dollars for a million tokens
    cache_read = 0.10
    cache_write = 1.25            # for five minutes
    cache_write_1h = 2.00         # for an hour, where it is sold apart
    output = 5.00
    source = "https://…"          # where you looked, if you like
    [price.models]
    my-model = 2026-10-01         # since when
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.errors import ArgumentError, did_you_mean, in_short
from stateanalytics.io.files import parsed, read_text, unreadable

_USD = ("input", "cache_read", "cache_write", "cache_write_1h", "output")
_MAY_LACK = ("cache_write_1h", "source")
_KEYS = (*_USD, "source", "models")
_SHAPE = pl.Schema(
    {
        "model": pl.String(),
        **{f"{name}_usd": pl.Float64() for name in _USD},
        "since": pl.Date(),
        "as_of": pl.Date(),
        "source": pl.String(),
        "origin": pl.String(),
    }
)
_MILLION = 1e6
_HINT = (
    "a file of prices has as_of = 2026-11-01 and [[price]] tables, each with "
    f"{', '.join(_KEYS)}; {' and '.join(_MAY_LACK)} may be left out"
)


def prices(own: str | Path | None = None) -> pl.DataFrame:
    """What a million tokens of each model cost, by the list prices that are known.

    Parameters
    ----------
    own : str or pathlib.Path, optional
        A TOML file of yours: its models win over those of the package.

    Returns
    -------
    polars.DataFrame, shape (n_models, 10)
        By ``model``: ``input_usd`` (read anew), ``cache_read_usd``, ``cache_write_usd`` (for
        five minutes), ``cache_write_1h_usd`` (for an hour) and ``output_usd`` for a million
        tokens; ``since`` when they hold; ``as_of`` when somebody looked last, and at which
        page (``source``); ``origin`` (stateanalytics, or the file).

    Raises
    ------
    ArgumentError
        If the file cannot be read, or a price is missing or no number.

    Examples
    --------
    >>> prices().filter(model="gpt-5").select("input_usd", "cache_read_usd", "output_usd").rows()
    [(1.25, 0.125, 10.0)]
    """
    text = resources.files("stateanalytics.core").joinpath("data", "prices.toml").read_text("utf-8")
    tables = [_rows(tomllib.loads(text), "stateanalytics")]
    if own is not None and not isinstance(own, str | Path):
        raise ArgumentError(f"Prices are a TOML file; found {type(own).__name__}.", _HINT)
    if own is not None:
        tables.insert(0, _of_file(Path(own).expanduser()))
    return pl.concat(tables).unique("model", keep="first", maintain_order=True).sort("model")


def _of_file(path: Path) -> pl.DataFrame:
    text, problem = read_text(path)
    if text is None:
        raise unreadable("prices", path, problem)
    whole, problem = parsed(text, tomllib.loads)
    if problem is not None:
        raise ArgumentError(f"The prices {str(path)!r} are no TOML: {problem}.", _HINT)
    return _rows(whole, str(path))


def _rows(whole: Mapping[str, Any], origin: str) -> pl.DataFrame:
    tables, as_of = whole.get("price"), whole.get("as_of")
    is_dated = type(as_of) is date and set(whole) == {"price", "as_of"}
    if not isinstance(tables, list) or not is_dated or any(type(one) is not dict for one in tables):
        found = ", ".join(sorted(whole)) or "nothing"
        raise ArgumentError(f"{origin}: as_of and price were needed; found {found}.", _HINT)
    rows = []
    for number, table in enumerate(tables, 1):
        _check(table, f"{origin}, price {number}")
        told = {"cache_write_1h": table["cache_write"], **table}
        usd = {f"{name}_usd": float(told[name]) for name in _USD}
        rows += [
            {"model": known_as(model), **usd, "since": since, "source": table.get("source")}
            for model, since in table["models"].items()
        ]
    return pl.DataFrame([{**row, "as_of": as_of, "origin": origin} for row in rows], schema=_SHAPE)


def _check(table: Mapping[str, Any], place: str) -> None:
    if unknown := sorted(set(table) - set(_KEYS)):
        hint = _HINT + did_you_mean(unknown[0], _KEYS)
        raise ArgumentError(f"{place}: unknown key {in_short(unknown[0])}.", hint)
    for key in _KEYS:
        value = table.get(key)
        if key in _MAY_LACK and value is None:
            continue
        if key == "models":
            is_sound = isinstance(value, dict) and all(type(day) is date for day in value.values())
        elif key == "source":
            is_sound = isinstance(value, str)
        else:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_sound = is_number and 0 <= float(value or 0) < _MILLION
        if not is_sound:
            raise ArgumentError(f"{place}: {key} cannot be {in_short(value)}.", _HINT)


def known_as(model: str) -> str:
    """The name of a model without its provider, release date and dots.

    Examples
    --------
    >>> known_as("anthropic/claude-sonnet-4.5"), known_as("claude-sonnet-4-5-20250929")
    ('claude-sonnet-4-5', 'claude-sonnet-4-5')
    """
    named = pl.DataFrame({"model": [model]}).select(_known_as()).item()
    return str(named)


def _known_as() -> pl.Expr:
    release = r"(?:[-@](?:20\d{2}-?\d{2}-?\d{2}|latest))+$"
    bare = pl.col("model").str.to_lowercase().str.replace(r"^.*/", "").str.replace(release, "")
    return bare.str.replace_all(".", "-", literal=True)


def estimated_usd(rows: pl.DataFrame, table: pl.DataFrame) -> pl.Series:
    """What each row would have cost at list prices, as ``estimated_usd``.

    Parameters
    ----------
    rows : polars.DataFrame
        ``model``, ``n_input_tokens`` (read in whatever way), ``n_cache_read_tokens`` and
        ``n_cache_write_tokens`` of them, ``n_output_tokens``; and, where it is known,
        ``n_cache_write_1h_tokens``: what of that was put there for an hour.
    table : polars.DataFrame
        What `prices` gave.

    Returns
    -------
    polars.Series of Float64
        Null where the model has no price, or tokens or their share from a cache are unknown.

    Examples
    --------
    >>> rows = pl.DataFrame({"model": ["gpt-5", "gpt-5", "?"], "n_input_tokens": 1_000_000,
    ...     "n_cache_read_tokens": [0, None, 0], "n_cache_write_tokens": 0, "n_output_tokens": 0})
    >>> estimated_usd(rows, prices()).to_list()
    [1.25, None, None]
    """
    priced = rows.with_columns(_known_as().alias("model")).join(
        table, on="model", how="left", maintain_order="left"
    )
    read, written = pl.col("n_cache_read_tokens"), pl.col("n_cache_write_tokens")
    # Not every provider takes money for what is put into a cache, or says how much that was.
    put = written.fill_null(0)
    is_told = "n_cache_write_1h_tokens" in rows.columns
    for_an_hour = pl.col("n_cache_write_1h_tokens").fill_null(0) if is_told else pl.lit(0)
    parts = {
        "input_usd": (pl.col("n_input_tokens") - read - put).clip(0),
        "cache_read_usd": read,
        "cache_write_usd": put - for_an_hour,
        "cache_write_1h_usd": for_an_hour,
        "output_usd": pl.col("n_output_tokens"),
    }
    usd = sum((pl.col(price) * n_tokens for price, n_tokens in parts.items()), pl.lit(0.0))
    return priced.select(estimated_usd=usd / _MILLION).to_series()

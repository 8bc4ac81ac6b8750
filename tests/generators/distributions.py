"""Normal and log-normal random columns, as polars expressions."""

import math

import polars as pl

from tests.generators.draws import uniform


def normal(row: pl.Expr, seed: int, column: str) -> pl.Expr:
    """A standard normal number for each row number (Box and Muller).

    Examples
    --------
    >>> pl.select(normal(pl.int_range(9999), 1, "a")).to_series().std().__round__(1)
    1.0
    """
    radius = (-2.0 * uniform(row, seed, column + "/radius").log()).sqrt()
    return radius * (2.0 * math.pi * uniform(row, seed, column + "/angle")).cos()


def log_normal(
    row: pl.Expr, seed: int, column: str, *, median: pl.Expr | float, sigma: pl.Expr | float
) -> pl.Expr:
    """A log-normal number for each row number: ``median * exp(sigma * normal)``.

    Examples
    --------
    >>> lengths = pl.select(
    ...     log_normal(pl.int_range(9999), 1, "a", median=60.0, sigma=1.0)
    ... ).to_series()
    >>> 57.0 < lengths.median() < 63.0
    True
    """
    spread = sigma if isinstance(sigma, pl.Expr) else pl.lit(float(sigma))
    return median * (spread * normal(row, seed, column)).exp()

"""What is independent among runs: shows, invocations, sessions; or projects, where there are many.

The sessions of one fan-out succeed and fail together. What is said of them with an interval
or a test rests on as many witnesses as there are units, not on as many as there are rows.
"""

from __future__ import annotations

import polars as pl

FEWEST_PROJECTS = 8
"""From so many projects of like weight on, a project is the unit: work of one is alike, too."""

_SESSION = ["source", "system", "session_id"]


def shows_of(entities: pl.DataFrame) -> pl.Series:
    """The show that each entity's session plays in; null: none.

    Parameters
    ----------
    entities : polars.DataFrame
        Canonical ``entities``.
    """
    plays = (
        entities.lazy()
        .filter(pl.col("entity_type") == "play", pl.col("parent_type") == "show")
        .select(*_SESSION, show_id="parent_id")
        .drop_nulls()
        .unique(_SESSION, keep="first", maintain_order=True)
        .collect()
    )
    if plays.is_empty():
        return pl.repeat(None, entities.height, dtype=pl.String, eager=True).alias("show_id")
    return entities.select(_SESSION).join(plays, on=_SESSION, how="left", maintain_order="left")[
        "show_id"
    ]


def unit_of() -> pl.Expr:
    """The show of a row, else its invocation, session or itself, as text with its source."""
    unit = pl.coalesce("show_id", "invocation_id", "session_id", "entity_id")
    return pl.concat_str("source", unit, separator="\n").alias("unit")


def sampling_units(runs: pl.DataFrame) -> tuple[pl.Series, str]:
    """The independent unit that each run belongs to, and what those units are called.

    Parameters
    ----------
    runs : polars.DataFrame
        Rows of a `population`. Rows of sums, which nobody can tell apart, are a unit each.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {"source": "s", "show_id": [None, None], "invocation_id": ["i", "i"],
    ...      "session_id": ["1", "2"], "entity_id": ["1", "2"], "project": ["p", "q"]},
    ...     schema_overrides={"show_id": pl.String},
    ... )
    >>> units, name = sampling_units(runs)
    >>> units.n_unique(), name
    (1, 'invocation')
    """
    if "invocation_id" not in runs.columns:
        return pl.int_range(runs.height, eager=True), "run"
    # 32 bits would not hold the square of a large one.
    sizes = runs["project"].drop_nulls().value_counts(name="n")["n"].cast(pl.Float64)
    if sizes.len() >= FEWEST_PROJECTS and sizes.sum() ** 2 >= FEWEST_PROJECTS * (sizes**2).sum():
        # Work without a project is of no other's kind.
        return runs.select(pl.coalesce("project", unit_of())).to_series(), "project"
    return runs.select(unit_of()).to_series(), "invocation"

"""Rows that tell again, or in parts, what another row tells: no total adds them to it.

A branch repeats its session; executions, steps and tool calls are the parts of a turn, and
a session stands as its last turn does: only the turns before it ended some work of their
own, that no other row tells. Which types are so is said by each system (`part_types`,
`repeated_type`).
"""

from __future__ import annotations

from functools import cache

import polars as pl

from stateanalytics.errors import MissingColumnsError
from stateanalytics.systems import all_systems

NEEDED = ("source", "system", "entity_type", "session_id", "started_at")


def is_mirror(entities: pl.DataFrame) -> pl.Series:
    """Which rows another row of the same store already tells.

    Parameters
    ----------
    entities : polars.DataFrame, shape (n_entities, ...)
        All entities, not only those of a window: which turn is the last one depends on
        the others.

    Returns
    -------
    polars.Series of Boolean, shape (n_entities,)
        Never null. A turn without a start, or that shares the start of the last one,
        counts as the last: rather one row too few than one work twice.

    Raises
    ------
    MissingColumnsError
        If a column of `NEEDED` is absent.
    """
    if missing := [name for name in NEEDED if name not in entities.columns]:
        raise MissingColumnsError.of(missing, entities.columns, "is_mirror")
    whose = ("source", "system", "session_id", "entity_type")
    last = pl.col("started_at").max().over(whose)
    is_part = is_repeated = pl.lit(value=False)
    for known in all_systems():
        own, entity_type = pl.col("system") == known.name, pl.col("entity_type")
        is_part |= own & entity_type.is_in(known.part_types)
        is_repeated |= own & (entity_type == pl.lit(known.repeated_type, pl.String))
    is_last = is_repeated & (pl.col("started_at") >= last).fill_null(True)
    told = is_part | is_last
    return entities.select(is_mirror=told.fill_null(False)).to_series()


@cache
def part_types() -> tuple[str, ...]:
    """Types of which every row is told by another one, in whatever system."""
    return tuple(dict.fromkeys(name for known in all_systems() for name in known.part_types))

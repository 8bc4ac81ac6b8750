"""Rows that tell again, or in parts, what another row tells: no total adds them to it.

A branch of lionagi repeats its session. opencode's executions, steps and tool calls are
the parts of a turn, and a session stands as its last turn does: only the turns before it
ended some work of their own, that no other row tells.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.errors import MissingColumnsError

PARTS = ("branch", "execution", "step", "tool_call")
"""Types of which every row is told by another one."""

TURN = "turn"
"""The type of which the last row of a session is told by the session."""

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

    Examples
    --------
    >>> entities = pl.DataFrame(
    ...     {
    ...         "source": "log", "system": "opencode", "session_id": "s",
    ...         "entity_type": ["session", "turn", "turn", "execution"],
    ...         "started_at": [1, 1, 2, 2],
    ...     }
    ... )
    >>> is_mirror(entities).to_list()
    [False, False, True, True]
    """
    if missing := [name for name in NEEDED if name not in entities.columns]:
        raise MissingColumnsError.of(missing, entities.columns, "is_mirror")
    last = pl.col("started_at").max().over("source", "system", "session_id", "entity_type")
    is_last_turn = (pl.col("entity_type") == TURN) & (pl.col("started_at") >= last).fill_null(True)
    told = pl.col("entity_type").is_in(PARTS) | is_last_turn
    return entities.select(is_mirror=told.fill_null(False)).to_series()

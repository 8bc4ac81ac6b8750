"""Which activity events exist, and where Agent Orchestrator emits them."""

from __future__ import annotations

from pathlib import Path

import polars as pl


def event_kinds() -> pl.DataFrame:
    """Every place that emits an activity event, in Agent Orchestrator's last TypeScript.

    Returns
    -------
    polars.DataFrame, shape (195, 6)
        ``kind`` (a kind may have several places), ``source``, ``level`` (a word, or a
        condition), ``has_session_id`` (Boolean), ``data_keys`` (joined by ``|``; null:
        none) and ``emitting_file``. What is not listed was never recorded: an accepted
        report and a restore, for instance, are no events.

    Examples
    --------
    >>> kinds = event_kinds()
    >>> kinds.filter(kind="detecting.escalated")["source"].to_list()
    ['lifecycle']
    """
    kinds = pl.read_csv(Path(__file__).with_suffix(".csv"), infer_schema=False)
    return kinds.with_columns(has_session_id=pl.col("has_session_id") == "True")

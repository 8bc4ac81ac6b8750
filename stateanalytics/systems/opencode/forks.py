"""Forks: what a session copied from another one counts where it was done.

V1 copies messages under new ids and names no parent. A copy keeps the moments of its original,
so that it is older than its own session.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from stateanalytics.systems.opencode.gathered import Gathered
from stateanalytics.systems.opencode.log import SESSION_KEY
from stateanalytics.systems.opencode.payloads import USAGE

_SAME = ["source", "role", "created_ms", "completed_ms", "n_input_tokens", "n_output_tokens"]


def without_copies(gathered: Gathered) -> Gathered:
    """The same without the messages that a fork copied, and without their part of its sums.

    Where the original is not there any more, the copy of the oldest fork stays: nothing else
    counts the work.
    """
    born = gathered.session_rows.select(*SESSION_KEY, born_ms="created_ms")
    messages = gathered.messages.join(born, on=SESSION_KEY, how="left", maintain_order="left")
    is_older = pl.col("created_ms") < pl.col("born_ms")
    originals = (
        messages.sort(is_older.fill_null(value=False), "born_ms", maintain_order=True)
        .select(*_SAME, original_id="session_id")
        .unique(_SAME, keep="first", maintain_order=True)
    )
    copies = (
        messages.filter(is_older)
        .join(originals, on=_SAME, how="inner", nulls_equal=True, maintain_order="left")
        .filter(pl.col("session_id") != pl.col("original_id"))
    )
    if copies.is_empty():
        return gathered
    message = ["source", "message_id"]
    # A message may be there twice, as a row and as a file.
    sums = (
        copies.unique(message, keep="first", maintain_order=True)
        .group_by(SESSION_KEY, maintain_order=True)
        .agg(pl.col(*USAGE).sum(), original_id=pl.col("original_id").last())
    )
    rows = gathered.session_rows.join(sums, on=SESSION_KEY, how="left", maintain_order="left")
    of_rows = {name: f"row_{name.removeprefix('n_')}" for name in USAGE}
    # A row of a version that counted nothing yet is zero, with copies or without.
    left = {row: (pl.col(row) - pl.col(name).fill_null(0)).clip(0) for name, row in of_rows.items()}
    return replace(
        gathered,
        messages=gathered.messages.join(copies, on=message, how="anti", maintain_order="left"),
        parts=gathered.parts.join(copies, on=message, how="anti", maintain_order="left"),
        session_rows=rows.with_columns(
            fork_of=pl.coalesce("fork_of", "original_id"),
            **left,
        ).select(gathered.session_rows.columns),
    )

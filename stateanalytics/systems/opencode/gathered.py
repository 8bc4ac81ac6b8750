"""What was gathered from one input, before it is folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from stateanalytics.systems.opencode.log import Log, pooled_logs
from stateanalytics.systems.opencode.message_fold import MESSAGES, PARTS
from stateanalytics.systems.opencode.session_rows import SESSION_ROWS, completed_rows


@dataclass(frozen=True)
class Broken:
    """Records that could not be read.

    Attributes
    ----------
    code, severity, message : str
        As in `schema.FINDINGS`.
    n_rows : int
        How many.
    example : str, optional
        Where the first one is.
    table : str, optional
        The file below the input.
    """

    code: str
    severity: str
    message: str
    n_rows: int = 1
    example: str | None = None
    table: str | None = None


@dataclass(frozen=True)
class Gathered:
    """Everything that one input holds.

    Attributes
    ----------
    log : Log
        Events.
    messages, parts : polars.DataFrame
        `MESSAGES` and `PARTS` of V1, exports and runs.
    projections : polars.DataFrame
        `MESSAGES` of V2, used only for sessions without any event.
    session_rows : polars.DataFrame
        `SESSION_ROWS`.
    waiting : polars.DataFrame, optional
        ``input_id`` of what a table says still waits.
    broken : tuple of Broken
    """

    log: Log = field(default_factory=Log)
    messages: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=MESSAGES))
    parts: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PARTS))
    projections: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=MESSAGES))
    session_rows: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SESSION_ROWS))
    waiting: pl.DataFrame | None = None
    broken: tuple[Broken, ...] = ()


def together(gathered: Sequence[Gathered]) -> Gathered:
    """Several pieces of one input as one."""
    if len(gathered) == 1:
        return gathered[0]
    if not gathered:
        return Gathered()
    first = gathered[0]
    return replace(
        first,
        log=pooled_logs([one.log for one in gathered]),
        messages=pl.concat([one.messages for one in gathered]),
        parts=pl.concat([one.parts for one in gathered]),
        projections=pl.concat([one.projections for one in gathered]),
        session_rows=completed_rows(*(one.session_rows for one in reversed(gathered))),
        broken=tuple(one for each in gathered for one in each.broken),
    )

"""What was read of some places: events, rows of sessions, messages, and what was broken."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from stateanalytics.io.json_lines import conform, dtypes_of
from stateanalytics.systems.opencode.log import SESSION_KEY, Log, pooled_logs
from stateanalytics.systems.opencode.message_fold import MESSAGES, PARTS
from stateanalytics.systems.opencode.payloads import SESSION

SESSION_ROWS = pl.Schema(
    {
        "source": pl.String(),
        **dtypes_of(SESSION),
        "fork_of": pl.String(),
        "suspended_ms": pl.Int64(),
        "n_resume_attempts": pl.Int64(),
        "idle_outcome": pl.String(),
        "written_ms": pl.Int64(),
    }
)
"""One session; null: not known. Streams tell it each time that it is written."""


def session_rows_of(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns of `SESSION_ROWS`, those that are absent null, one row a session."""
    return (
        conform(frame, SESSION_ROWS)
        .filter(pl.col("session_id").is_not_null())
        .unique(SESSION_KEY, keep="first", maintain_order=True)
    )


def completed_rows(rows: pl.DataFrame, *others: pl.DataFrame) -> pl.DataFrame:
    """Rows of all sessions: what the first frame leaves open, the next ones tell."""
    result = session_rows_of(rows)
    names = [name for name in SESSION_ROWS if name not in SESSION_KEY]
    for other in others:
        more = session_rows_of(other)
        result = result.join(
            more, on=SESSION_KEY, how="full", coalesce=True, maintain_order="left_right"
        ).select(*SESSION_KEY, *(pl.coalesce(name, f"{name}_right").alias(name) for name in names))
    return result


@dataclass(frozen=True)
class Broken:
    """Records that could not be read.

    Attributes
    ----------
    source, code, severity, message : str
        As in `schema.FINDINGS`.
    n_rows : int
        How many.
    example : str, optional
        Where the first one is.
    table : str, optional
        The file below the input.
    """

    source: str
    code: str
    severity: str
    message: str
    n_rows: int = 1
    example: str | None = None
    table: str | None = None


@dataclass(frozen=True)
class Gathered:
    """Everything that some inputs hold: each row says by ``source`` which.

    Attributes
    ----------
    log : Log
        Events.
    messages, parts : polars.DataFrame
        `MESSAGES` and `PARTS` of V1, exports and runs.
    projections : polars.DataFrame
        `MESSAGES` of V2, used only for sessions without any event.
    session_rows : polars.DataFrame
        `SESSION_ROWS`; of several of one session the first counts, which is the newest.
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
    """Several pieces as one."""
    if len(gathered) == 1:
        return gathered[0]
    if not gathered:
        return Gathered()
    first = gathered[0]
    return replace(
        first,
        log=pooled_logs([part.log for part in gathered]),
        messages=pl.concat([part.messages for part in gathered]),
        parts=pl.concat([part.parts for part in gathered]),
        projections=pl.concat([part.projections for part in gathered]),
        session_rows=pl.concat([part.session_rows for part in reversed(gathered)]),
        broken=tuple(part for each in gathered for part in each.broken),
    )


def without(gathered: Gathered, sources: Collection[str]) -> Gathered:
    """What all inputs but some hold."""
    others = ~pl.col("source").is_in(list(sources))
    return replace(
        gathered,
        log=Log(gathered.log.events.filter(others), gathered.log.payloads),
        messages=gathered.messages.filter(others),
        parts=gathered.parts.filter(others),
        projections=gathered.projections.filter(others),
        session_rows=gathered.session_rows.filter(others),
        broken=tuple(loss for loss in gathered.broken if loss.source not in sources),
    )

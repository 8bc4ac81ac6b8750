"""The events of each session in their own order, each once, with the execution they are in."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stateanalytics.systems.opencode.event_kinds import TERMINALS
from stateanalytics.systems.opencode.log import FAMILY_NAMES, Log

STARTED = "execution.started"
_MOST = 2**40
_KEY = "key"


@dataclass(frozen=True)
class Ordered:
    """Durable events, one row for each place in a session.

    Attributes
    ----------
    events : polars.DataFrame
        `log.EVENTS` with ``sid`` (a number that sorts as the id does) and ``exec_no``,
        sorted by session and sequence.
    n_duplicates : int
        Rows that were there before.
    conflicts : polars.DataFrame
        ``session_id``, ``seq``, ``n_events``: places that several events claim.
    n_misplaced : int
        Rows with a sequence number that cannot be one.
    """

    events: pl.DataFrame
    n_duplicates: int
    conflicts: pl.DataFrame
    n_misplaced: int


def ordered(log: Log) -> Ordered:
    """Durable events without their repetitions, in the order of their sequence numbers.

    Parameters
    ----------
    log : Log

    Returns
    -------
    Ordered

    Notes
    -----
    Never ordered by time: moments tie, are 0 after migrations, and cross clocks. Of two
    events that claim one place, the one from the more trusted origin is kept.
    """
    durable = log.events.filter(
        pl.col("seq").is_not_null(),
        pl.col("session_id").is_not_null(),
        ~pl.col("kind").str.starts_with("message."),
    )
    placed = durable.filter(pl.col("seq").is_between(0, _MOST, closed="left"))
    ids = placed["session_id"].unique().sort()
    keyed = (
        placed.with_columns(
            sid=pl.col("session_id").cast(pl.Enum(ids)).to_physical().cast(pl.UInt32)
        )
        .with_columns((pl.col("sid").cast(pl.Int64) * _MOST + pl.col("seq")).alias(_KEY))
        .sort(_KEY)
    )
    distinct, conflicts = _distinct(keyed)
    return Ordered(
        _numbered(distinct.drop(_KEY)),
        placed.height - distinct.height,
        conflicts,
        durable.height - placed.height,
    )


def _distinct(keyed: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One row a place; and the places that are claimed by different events."""
    again = (pl.col(_KEY) == pl.col(_KEY).shift(1)).fill_null(value=False)
    shared = (again | again.shift(-1)).fill_null(value=False) | again
    several = keyed.filter(shared)
    if several.is_empty():
        return keyed, _conflicts(several)
    kept = several.sort(
        _KEY, "origin", "event_id", "type", "at_ms", "digest", nulls_last=True
    ).unique(_KEY, keep="first", maintain_order=True)
    return pl.concat([keyed.filter(~shared), kept]).sort(_KEY), _conflicts(several)


def _conflicts(several: pl.DataFrame) -> pl.DataFrame:
    return (
        several.group_by("session_id", "seq")
        .agg(n_events=pl.col("event_id").n_unique())
        .filter(pl.col("n_events") > 1)
        .sort("session_id", "seq")
    )


def _numbered(events: pl.DataFrame) -> pl.DataFrame:
    """Add ``exec_no``: how many executions have begun in the session.

    Era A recorded no executions: there, each input that reaches the model begins one.
    """
    begins = (pl.col("kind") == STARTED) | (
        pl.col("is_era_a") & (pl.col("kind") == "input.promoted")
    )
    n_so_far = begins.cast(pl.Int64).cum_sum()
    is_first = (pl.col("sid") != pl.col("sid").shift(1)).fill_null(value=True)
    before = pl.when(is_first).then(n_so_far - begins.cast(pl.Int64)).forward_fill()
    return events.with_columns(exec_no=n_so_far - before, is_start=begins)


def rows_of(events: pl.DataFrame, log: Log, family: str) -> pl.DataFrame:
    """The events of one family in order, with what they carry."""
    mine = events.filter(pl.col("family") == FAMILY_NAMES.index(family))
    return mine.join(log.payload(family), on="row", how="left", maintain_order="left")


def with_session_ids(frame: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Put the id of the session before everything else that its number ``sid`` stands for."""
    ids = events.select("sid", "session_id").unique("sid", keep="first")
    joined = frame.join(ids, on="sid", how="left", maintain_order="left")
    return joined.select("sid", "session_id", pl.exclude("sid", "session_id"))


def is_terminal() -> pl.Expr:
    """Does an event end an execution."""
    return pl.col("kind").is_in(list(TERMINALS))

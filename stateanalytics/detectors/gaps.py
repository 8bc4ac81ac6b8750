"""Silences of work: one row a gap between two signs of life, or up to an end."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.detectors.silence_boundaries import LAST_MESSAGE, MARKS, SIGNS, marks, sessions
from stateanalytics.errors import check_columns
from stateanalytics.state.policy import Policy

CLOSED_BY = ("sign_of_life", "own_end", "death", "other_end", "as_of")
"""What closes a silence: the run goes on; it wrote its own end; an observer found its
process gone; an end by anybody else (a person, a sweep by age, an import); nothing yet.
"""
_WORDS = {"crash": "death", "last_message": "sign_of_life"}
# Divided by a column: polars multiplies by the inverse of a constant, off in the last bit.
_SECONDS = pl.col("gap_us") / (pl.col("gap_us") * 0 + 1_000_000)


def silence_gaps(
    snap: Facts,
    *,
    policy: Policy | None = None,
    by: str | Sequence[str] = ("kind",),
    rows: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Every silence of every session: from a sign of life to what closed it.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave. Signs of life are starts and events with ``is_activity``.
    policy : Policy, optional
        Decides which sessions have ended; v1 by default.
    by : str or sequence of str
        Columns of ``entities`` to carry along, to count by.
    rows : polars.DataFrame, optional
        The `population` of all time, where it is at hand.

    Returns
    -------
    polars.DataFrame, shape (n_gaps, 4 + n_by + 8)
        The key, the columns ``by``; ``started_at`` and ``ended_at`` of the silence,
        ``gap_s`` between them in seconds; ``closed_by``, one of `CLOSED_BY`; ``is_last``:
        the last of a stretch of work; ``is_censored``: it might have gone on (every last
        one but a death); ``is_dead``, and ``dead_known_at``: when the death was found out,
        null where there is none; ``left_out`` (null: counted; else a key of
        `LEFT_OUT_OF_SILENCES`).
        In the order of ``entities``, then of time.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot.
    MissingColumnsError
        If a column of ``by`` is not in ``entities``.

    Notes
    -----
    The last silence of a run is never a mistake of a detector, however long: an open run
    is cut off at as-of, an ended one by its end.

    A run is dead only where somebody looked for its process and did not find it: the
    death itself lies after ``started_at`` and not after ``dead_known_at``. Runs that were
    swept for their age, or killed by a person, prove nothing.

    ``updated_at`` is no sign of life: it is overwritten, so the past cannot be told
    from it. Work that was resumed has several stretches; opencode's sessions have one
    for each execution. What happened after as-of is not seen.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> gaps = silence_gaps(demo()).filter(pl.col("left_out").is_null())
    >>> dict(gaps["closed_by"].value_counts(sort=True).rows())["death"]
    6
    """
    who = sessions(checked_snapshot(snap, "detectors.silence_gaps"), policy, rows)
    columns = [name for name in columns_by(by, who) if name not in ENTITY_KEY]
    gaps = paired(marks(snap, who))
    named = who.select("who", *ENTITY_KEY, *columns, "left_out")
    moment = pl.Datetime("us", "UTC")
    return (
        gaps.join(named, on="who", how="left", maintain_order="left")
        .with_columns(
            started_at=pl.col("from_us").cast(moment),
            ended_at=pl.col("at_us").cast(moment),
            gap_s=_SECONDS,
            is_last=pl.col("closed_by") != "sign_of_life",
            is_dead=pl.col("closed_by") == "death",
        )
        .select(
            *ENTITY_KEY,
            *columns,
            "started_at",
            "ended_at",
            "gap_s",
            "closed_by",
            "is_last",
            is_censored=pl.col("is_last") & ~pl.col("is_dead"),
            is_dead="is_dead",
            dead_known_at=pl.when("is_dead").then("ended_at"),
            left_out=pl.coalesce("left_out", "no_silence"),
        )
    )


def lean_gaps(
    snap: Facts,
    *,
    policy: Policy | None = None,
    by: str | Sequence[str] = ("kind",),
    rows: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The counted silences with no more than sums need: ``by``, ``gap_s``, ``closed_by``."""
    who = sessions(snap, policy, rows)
    columns = columns_by(by, who)
    counted = who.filter(pl.col("left_out").is_null()).select("who", *columns)
    return (
        paired(marks(snap, who))
        .lazy()
        .filter(pl.col("no_silence").is_null())
        .join(counted.lazy(), on="who", how="inner")
        .select(*columns, "closed_by", gap_s=_SECONDS)
        .collect()
    )


def paired(marks: pl.DataFrame) -> pl.DataFrame:
    """Neighbouring marks of a session as silences, in order.

    Parameters
    ----------
    marks : polars.DataFrame
        What `marks.marks` gave.

    Returns
    -------
    polars.DataFrame, shape (n_gaps, 6)
        ``who``, ``from_us``, ``at_us``, ``gap_us``; ``closed_by``; ``no_silence``, why it
        is none: a key of `LEFT_OUT_OF_SILENCES`, or null. Two ends in a row are one end.
    """
    before = pl.all().shift(1).name.prefix("from_")
    words = [_WORDS.get(word, word) for word in MARKS]
    closes = pl.col("mark").replace_strict(
        list(range(len(words))), words, return_dtype=pl.Enum(CLOSED_BY)
    )
    is_after_end = ~pl.col("from_mark").is_in(SIGNS)
    is_end_again = is_after_end & ~pl.col("mark").is_in(SIGNS)
    return (
        _in_order(marks.lazy())
        .with_columns(before)
        .rename({"from_at_us": "from_us"})
        .filter(pl.col("who") == pl.col("from_who"), ~is_end_again)
        .select(
            "who",
            "from_us",
            "at_us",
            gap_us=pl.col("at_us") - pl.col("from_us"),
            closed_by=closes,
            no_silence=pl.when(is_after_end)
            .then(pl.lit("not_running"))
            .when(pl.col("mark") == LAST_MESSAGE)
            .then(pl.lit("unseen")),
        )
        .collect()
    )


def _in_order(marks: pl.LazyFrame) -> pl.LazyFrame:
    """Marks by session, moment and kind; sorted as one wide number, three times as fast."""
    who, at_us, mark = pl.col("who").cast(pl.Int128), pl.col("at_us"), pl.col("mark")
    number = pl.col("number")
    return (
        marks.select(number=who * 2**64 + (at_us * 2**3 + mark))
        .sort("number")
        .select(who=(number + 2**63) // 2**64, number="number")
        .select(
            who=pl.col("who").cast(pl.UInt32), rest=(number - pl.col("who") * 2**64).cast(pl.Int64)
        )
        .select("who", at_us=pl.col("rest") // 2**3, mark=(pl.col("rest") % 2**3).cast(pl.UInt8))
    )


def columns_by(by: str | Sequence[str], there: pl.DataFrame) -> list[str]:
    """The columns to count by, all of which are there."""
    columns = [by] if isinstance(by, str) else list(by)
    check_columns(there, columns, "counting silences by columns")
    return columns

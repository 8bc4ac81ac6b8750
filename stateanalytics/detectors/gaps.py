"""Silences of work: one row for each gap between two signs of life, or up to an end.

A session works in stretches: from its start or a sign of life up to an end. Most have
one; a session that was resumed has several. Between an end and the next sign of life
there is no silence, because nothing ran.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import deduplicated
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.windows import instant
from stateanalytics.core.words import first_word
from stateanalytics.errors import check_columns
from stateanalytics.state.definitions import is_found_dead
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.systems import all_systems

BOUNDARIES = ("crash", "sign_of_life", "last_message", "death", "own_end", "other_end", "as_of")
"""Kinds of moments, in the order in which moments of one instant are sorted.

A crash is noticed when work starts again, so it comes before that sign of life; an end
comes after the last sign of life of its instant.
"""
CRASH, SIGN, LAST_MESSAGE, DEATH, OWN_END, OTHER_END, AS_OF = range(len(BOUNDARIES))
SIGNS_OF_LIFE = (SIGN, LAST_MESSAGE)

# Message times are stored twice, one of them rounded.
_ROUNDING_US = 1_000_000
_KEY = ["source", "system", "entity_id"]


def sessions(
    facts: Facts, policy: Policy | None = None, rows: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Every session with the columns of `population`, and ``session``: its number."""
    all_rows = rows_of(facts, policy=policy, rows=rows)
    return deduplicated(all_rows.filter(pl.col("entity_type") == "session")).with_row_index(
        "session"
    )


def silence_boundaries(facts: Facts, sessions: pl.DataFrame) -> pl.DataFrame:
    """Every moment up to as-of that opens or closes a silence of these sessions.

    Parameters
    ----------
    facts : Facts or Snapshot
        Whose events, transitions and details are read.
    sessions : polars.DataFrame
        Result of `sessions`.

    Returns
    -------
    polars.DataFrame, shape (n_boundaries, 3)
        ``session`` (UInt32), ``at_us`` (Int64, microseconds since 1970), ``boundary`` (UInt8,
        a place in `BOUNDARIES`); in no order. Every session with a sign of life has exactly one
        boundary after all others: the one that closes its last silence.
    """
    signs = _signs(facts, sessions)
    last = signs.lazy().group_by("session").agg(last_us=pl.col("at_us").max())
    active = sessions.lazy().join(last, on="session", how="left")
    unseen = _unseen_messages(active, facts)
    found = unseen.lazy().select("session", unseen_us="at_us")
    seen = (
        active.join(found, on="session", how="left")
        .with_columns(last_us=pl.max_horizontal("last_us", "unseen_us"))
        .filter(pl.col("last_us").is_not_null())
        .collect()
        .lazy()
    )
    ends = [_known_ends(seen), *_earlier_ends(facts, seen), _last_boundaries(seen, facts)]
    return pl.concat([signs.lazy(), unseen.lazy(), *ends]).collect()


def _signs(facts: Facts, sessions: pl.DataFrame) -> pl.DataFrame:
    """Starts, and events that count as a sign of life."""
    key = _distinguishing(facts.events, sessions)
    events = (
        facts.events.lazy()
        .filter("is_activity", pl.col("entity_type") == "session")
        .select(*key, "at")
        .join(sessions.lazy().select("session", *key), on=key, how="inner")
    )
    starts = sessions.lazy().select("session", at="started_at")
    both = pl.concat([_at_moments(events, SIGN), _at_moments(starts, SIGN)])
    return both.filter(pl.col("at_us") <= _us(instant(facts.as_of))).collect()


def _distinguishing(events: pl.DataFrame, sessions: pl.DataFrame) -> list[str]:
    """The key without constant columns: joining millions of rows on constants is slow."""
    both = {name: pl.concat([events[name], sessions[name]]) for name in _KEY[:2]}
    return [*(name for name, values in both.items() if values.n_unique() > 1), "entity_id"]


def _unseen_messages(active: pl.LazyFrame, facts: Facts) -> pl.DataFrame:
    """The last message of sessions whose store no longer holds all of their messages."""
    known_us = pl.col("last_us").fill_null(-(2**62))
    rows = active.filter(_us("last_message_at") > known_us + _ROUNDING_US)
    unseen = _at_moments(rows.with_columns(at="last_message_at"), LAST_MESSAGE)
    return unseen.filter(pl.col("at_us") <= _us(instant(facts.as_of))).collect()


def _known_ends(seen: pl.LazyFrame) -> pl.LazyFrame:
    """The stored end of sessions with a later sign of life: they had been resumed.

    A reaper that called a live run dead ended nothing.
    """
    resumed = seen.filter(~pl.col("is_open"), ~is_found_dead(), _us("ended_at") < pl.col("last_us"))
    return _at_moments(resumed.with_columns(at="ended_at"), _end_boundary())


def _earlier_ends(facts: Facts, seen: pl.LazyFrame) -> list[pl.LazyFrame]:
    """Ends before the last one, as each system records them (`Ends.of_silences`)."""
    present = {*facts.entities["system"].unique()}
    known = [
        system.ends.of_silences(facts)[[*_KEY, "at", "boundary"]]
        for system in all_systems()
        if system.ends.of_silences is not None and system.name in present
    ]
    if not known:
        return []
    places = {name: place for place, name in enumerate(BOUNDARIES)}
    ends = (
        pl.concat(known)
        .lazy()
        .join(seen.select("session", "last_us", *_KEY), on=_KEY, how="inner")
        # An end after the last sign of life closes the last silence; it is no earlier end.
        .filter(
            pl.when(pl.col("boundary") == BOUNDARIES[OTHER_END])
            .then(_us("at") < pl.col("last_us"))
            .otherwise(_us("at") <= pl.col("last_us"))
        )
    )
    return [_at_moments(ends, pl.col("boundary").replace_strict(places, return_dtype=pl.UInt8))]


def _last_boundaries(seen: pl.LazyFrame, facts: Facts) -> pl.LazyFrame:
    """The boundary of the last silence of each session, never before its last sign of life.

    Work whose end is not known, or lies before its last sign of life, is censored there.
    """
    now_us, ended_us = _us(instant(facts.as_of)), _us("ended_at")
    # With neither output nor process, health is orphaned, not dead.
    is_dead = (pl.col("health").cast(pl.String) == "process_dead") | ~pl.col("process_alive")
    has_end = ended_us >= pl.col("last_us")
    at_us = pl.when("is_open").then(now_us).when(has_end).then(ended_us).otherwise("last_us")
    boundary = (
        pl.when(pl.col("is_open") & is_dead)
        .then(DEATH)
        .when("is_open")
        .then(AS_OF)
        .when(has_end & (ended_us <= now_us))
        .then(_end_boundary())
        .otherwise(OTHER_END)
    )
    return seen.select(
        "session", at_us=pl.min_horizontal(at_us, now_us), boundary=boundary.cast(pl.UInt8)
    )


def _end_boundary() -> pl.Expr:
    """The kind of end of a session: death, the run's own end, or any other."""
    unsigned = [known.name for known in all_systems() if known.ends.are_unsigned_own]
    is_own = (pl.col("end_written_by") == "executor") | (
        pl.col("system").is_in(unsigned) & pl.col("end_written_by").is_null()
    )
    is_exact = ~pl.col("is_end_approximate").fill_null(value=False)
    return (
        pl.when(is_found_dead())
        .then(DEATH)
        .when(is_own & is_exact)
        .then(OWN_END)
        .otherwise(OTHER_END)
    )


def _at_moments(rows: pl.LazyFrame, boundary: int | pl.Expr) -> pl.LazyFrame:
    """Rows with ``session`` and ``at`` as boundaries, without those that have no moment."""
    kind = pl.lit(boundary) if isinstance(boundary, int) else boundary
    return rows.filter(pl.col("at").is_not_null()).select(
        "session", at_us=_us("at"), boundary=kind.cast(pl.UInt8)
    )


def _us(moment: str | pl.Expr) -> pl.Expr:
    return (pl.col(moment) if isinstance(moment, str) else moment).dt.epoch("us")


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
    """Every silence of every session: from a sign of life to what ended it.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`. Signs of life are starts and events with ``is_activity``.
    policy : Policy, optional
        Decides which sessions have ended; v1 by default.
    by : str or sequence of str
        Columns of ``entities`` to keep, for grouping.
    rows : polars.DataFrame, optional
        The `population` of all time, if it is already computed.

    Returns
    -------
    polars.DataFrame, shape (n_gaps, 4 + n_by + 9)
        The key, the columns ``by``; ``started_at`` and ``ended_at`` of the silence,
        ``gap_s`` between them in seconds; ``closed_by``, one of `CLOSED_BY`; ``is_last``:
        the last of a stretch of work; ``is_censored``: it might have continued (every last one
        except a death); ``is_dead``, and ``dead_known_at``, when the death was observed, null where
        there is none; ``left_out`` (null: counted; else a key of `LEFT_OUT_OF_SILENCES`). In the
        order of ``entities``, then of time.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot.
    MissingColumnsError
        If a column of ``by`` is not in ``entities``.

    Notes
    -----
    The last silence of a run is never a mistake of a detector, however long: an open run
    is censored at as-of, an ended one by its end.

    A run is dead only where somebody looked for its process and did not find it: the
    death itself lies after ``started_at`` and not after ``dead_known_at``. Runs that were
    swept for their age, or killed by a person, prove nothing.

    ``updated_at`` is no sign of life: it is overwritten, so that it shows nothing about the
    past. Work that was resumed has several stretches; a session that waits for
    people has one for each time that it worked. Events after as-of are ignored.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> gaps = silence_gaps(demo()).filter(pl.col("left_out").is_null())
    >>> dict(gaps["closed_by"].value_counts(sort=True).rows())["as_of"]
    9
    """
    known = sessions(checked_snapshot(snap, "detectors.silence_gaps"), policy, rows)
    columns = [name for name in columns_by(by, known) if name not in ENTITY_KEY]
    gaps = paired(silence_boundaries(snap, known))
    named = known[["session", *ENTITY_KEY, *columns, "left_out"]]
    moment = pl.Datetime("us", "UTC")
    return (
        gaps.lazy()
        .join(named.lazy(), on="session", how="left", maintain_order="left")
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
            *("started_at", "ended_at", "gap_s", "closed_by", "is_last"),
            is_censored=pl.col("is_last") & ~pl.col("is_dead"),
            is_dead="is_dead",
            dead_known_at=pl.when("is_dead").then("ended_at"),
            left_out=pl.coalesce("left_out", "no_silence"),
        )
        .collect()
    )


def lean_gaps(
    snap: Facts,
    *,
    policy: Policy | None = None,
    by: str | Sequence[str] = ("kind",),
    rows: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The counted silences with the columns of sums alone: ``by``, ``gap_s``, ``closed_by``."""
    known = sessions(snap, policy, rows)
    columns = columns_by(by, known)
    counted = known.filter(pl.col("left_out").is_null()).select("session", *columns)
    return (
        paired(silence_boundaries(snap, known))
        .lazy()
        .filter(pl.col("no_silence").is_null())
        .join(counted.lazy(), on="session", how="inner")
        .select(*columns, "closed_by", gap_s=_SECONDS)
        .collect()
    )


def paired(boundaries: pl.DataFrame) -> pl.DataFrame:
    """Neighbouring boundaries of a session as silences, in order.

    Parameters
    ----------
    boundaries : polars.DataFrame
        Result of `silence_boundaries`.

    Returns
    -------
    polars.DataFrame, shape (n_gaps, 6)
        ``session``, ``from_us``, ``at_us``, ``gap_us``; ``closed_by``; ``no_silence``, the
        reason to exclude it: a key of `LEFT_OUT_OF_SILENCES`, or null. Two ends in a row are
        one end.
    """
    before = pl.all().shift(1).name.prefix("from_")
    words = [_WORDS.get(word, word) for word in BOUNDARIES]
    closes = pl.col("boundary").replace_strict(
        list(range(len(words))), words, return_dtype=pl.Enum(CLOSED_BY)
    )
    is_after_end = ~pl.col("from_boundary").is_in(SIGNS_OF_LIFE)
    is_second_end = is_after_end & ~pl.col("boundary").is_in(SIGNS_OF_LIFE)
    return (
        _in_order(boundaries.lazy())
        .with_columns(before)
        .rename({"from_at_us": "from_us"})
        .filter(pl.col("session") == pl.col("from_session"), ~is_second_end)
        .select(
            *("session", "from_us", "at_us"),
            gap_us=pl.col("at_us") - pl.col("from_us"),
            closed_by=closes,
            no_silence=first_word(
                not_running=is_after_end, unseen=pl.col("boundary") == LAST_MESSAGE
            ),
        )
        .collect()
    )


def _in_order(boundaries: pl.LazyFrame) -> pl.LazyFrame:
    """Boundaries by session, moment and kind; sorted as one wide number, three times as fast."""
    session, at_us, boundary = (
        pl.col("session").cast(pl.Int128),
        pl.col("at_us"),
        pl.col("boundary"),
    )
    number = pl.col("number")
    return (
        boundaries.select(number=session * 2**64 + (at_us * 2**3 + boundary))
        .sort("number")
        .select(session=(number + 2**63) // 2**64, number="number")
        .select(
            session=pl.col("session").cast(pl.UInt32),
            rest=(number - pl.col("session") * 2**64).cast(pl.Int64),
        )
        .select(
            "session", at_us=pl.col("rest") // 2**3, boundary=(pl.col("rest") % 2**3).cast(pl.UInt8)
        )
    )


def columns_by(by: str | Sequence[str], there: pl.DataFrame) -> list[str]:
    """The columns to group by; all of them exist."""
    columns = [by] if isinstance(by, str) else list(by)
    check_columns(there, columns, "counting silences by columns")
    return columns

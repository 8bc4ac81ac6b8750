"""The moments that open and close a silence: signs of life, ends, and as-of.

A session works in stretches: from its start or a sign of life up to an end. Most have
one; a session that was resumed has several. Between an end and the next sign of life
nothing was silent, because nothing ran.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.state.definitions import is_found_dead
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.systems import all_systems

MARKS = ("crash", "sign_of_life", "last_message", "death", "own_end", "other_end", "as_of")
"""What a moment is, in the order in which moments of one instant are taken.

A crash is noticed when work starts again, so it comes before that sign of life; an end
comes after the last sign of life of its instant.
"""
CRASH, SIGN, LAST_MESSAGE, DEATH, OWN_END, OTHER_END, AS_OF = range(len(MARKS))
SIGNS = (SIGN, LAST_MESSAGE)

# The two are stored apart, one of them rounded.
_ROUNDING_US = 1_000_000
_KEY = ["source", "system", "entity_id"]


def sessions(
    facts: Facts, policy: Policy | None = None, rows: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Every session with the columns of `population`, and ``who``: its number."""
    every = rows_of(facts, policy=policy, rows=rows)
    each = every.filter(pl.col("entity_type") == "session").unique(
        subset=ENTITY_KEY, keep="first", maintain_order=True
    )
    return each.with_row_index("who")


def marks(facts: Facts, sessions: pl.DataFrame) -> pl.DataFrame:
    """Every moment up to as-of that opens or closes a silence of these sessions.

    Parameters
    ----------
    facts : Facts or Snapshot
        Whose events, transitions and details are read.
    sessions : polars.DataFrame
        What `sessions` gave.

    Returns
    -------
    polars.DataFrame, shape (n_marks, 3)
        ``who`` (UInt32), ``at_us`` (Int64, microseconds since 1970), ``mark`` (UInt8, a
        place in `MARKS`); in no order. Every session with a sign of life has exactly one
        mark after all others: what closes its last silence.
    """
    signs = _signs(facts, sessions)
    last = signs.group_by("who").agg(last_us=pl.col("at_us").max())
    heard = sessions.join(last, on="who", how="left")
    unseen = _unseen_messages(heard, facts)
    later = unseen.select("who", unseen_us="at_us")
    seen = (
        heard.join(later, on="who", how="left")
        .with_columns(last_us=pl.max_horizontal("last_us", "unseen_us"))
        .filter(pl.col("last_us").is_not_null())
    )
    return pl.concat(
        [
            signs,
            unseen,
            _known_ends(seen),
            _earlier_ends(facts, seen),
            _last_marks(seen, facts),
        ]
    )


def _signs(facts: Facts, sessions: pl.DataFrame) -> pl.DataFrame:
    """Starts, and events that count as a sign of life."""
    key = _telling(facts.events, sessions)
    events = (
        facts.events.lazy()
        .filter("is_activity", pl.col("entity_type") == "session")
        .select(*key, "at")
        .join(sessions.lazy().select("who", *key), on=key, how="inner")
    )
    starts = sessions.lazy().select("who", at="started_at")
    both = pl.concat([_marked(events, SIGN), _marked(starts, SIGN)])
    return both.filter(pl.col("at_us") <= _us(pl.lit(facts.as_of))).collect()


def _telling(events: pl.DataFrame, sessions: pl.DataFrame) -> list[str]:
    """The columns of the key that tell rows apart: joining millions on constants is slow."""
    both = {name: [events[name].unique(), sessions[name].unique()] for name in _KEY[:2]}
    telling = [name for name, values in both.items() if pl.concat(values).n_unique() > 1]
    return [*telling, "entity_id"]


def _unseen_messages(heard: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """The last message of sessions that said more than their store still holds."""
    known_us = pl.col("last_us").fill_null(-(2**62))
    rows = heard.lazy().filter(_us("last_message_at") > known_us + _ROUNDING_US)
    unseen = _marked(rows.with_columns(at="last_message_at"), LAST_MESSAGE)
    return unseen.filter(pl.col("at_us") <= _us(pl.lit(facts.as_of))).collect()


def _known_ends(seen: pl.DataFrame) -> pl.DataFrame:
    """The stored end of sessions that spoke again after it: they had been resumed.

    A reaper that called a live run dead ended nothing.
    """
    resumed = seen.lazy().filter(
        ~pl.col("is_open"), ~is_found_dead(), _us("ended_at") < pl.col("last_us")
    )
    return _marked(resumed.with_columns(at="ended_at"), _end_mark()).collect()


def _earlier_ends(facts: Facts, seen: pl.DataFrame) -> pl.DataFrame:
    """Ends before the last one, as each system tells them (`System.silence_ends`)."""
    known = [
        system.silence_ends(facts).select(*_KEY, "at", "mark")
        for system in all_systems()
        if system.silence_ends is not None
    ]
    if not known:
        return pl.DataFrame(schema={"who": pl.UInt32, "at_us": pl.Int64, "mark": pl.UInt8})
    places = {name: place for place, name in enumerate(MARKS)}
    ends = (
        pl.concat(known)
        .lazy()
        .join(seen.lazy().select("who", "last_us", *_KEY), on=_KEY, how="inner")
        # After the last sign of life nothing was silent any more: that end closes it.
        .filter(
            pl.when(pl.col("mark") == MARKS[OTHER_END])
            .then(_us("at") < pl.col("last_us"))
            .otherwise(_us("at") <= pl.col("last_us"))
        )
    )
    mark = pl.col("mark").replace_strict(places, return_dtype=pl.UInt8)
    return _marked(ends, mark).collect()


def _last_marks(seen: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """What closes the last silence of each session; never before its last sign of life.

    Work whose end is not known, or lies before its last sign of life, is cut off there.
    """
    now_us, ended_us = _us(pl.lit(facts.as_of)), _us("ended_at")
    # With neither output nor process, health says orphaned, not dead.
    is_dead = (pl.col("health").cast(pl.String) == "process_dead") | ~pl.col("process_alive")
    has_end = ended_us >= pl.col("last_us")
    at_us = pl.when("is_open").then(now_us).when(has_end).then(ended_us).otherwise("last_us")
    mark = (
        pl.when(pl.col("is_open") & is_dead)
        .then(DEATH)
        .when("is_open")
        .then(AS_OF)
        .when(has_end & (ended_us <= now_us))
        .then(_end_mark())
        .otherwise(OTHER_END)
    )
    return seen.select("who", at_us=pl.min_horizontal(at_us, now_us), mark=mark.cast(pl.UInt8))


def _end_mark() -> pl.Expr:
    """Who closed a session that has ended: death, the run itself, or somebody else."""
    unsigned = [known.name for known in all_systems() if known.are_unsigned_ends_own]
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


def _marked(rows: pl.LazyFrame, mark: int | pl.Expr) -> pl.LazyFrame:
    """Rows with ``who`` and ``at`` as marks; those without a moment are none."""
    kind = pl.lit(mark) if isinstance(mark, int) else mark
    return rows.filter(pl.col("at").is_not_null()).select(
        "who", at_us=_us("at"), mark=kind.cast(pl.UInt8)
    )


def _us(moment: str | pl.Expr) -> pl.Expr:
    return (pl.col(moment) if isinstance(moment, str) else moment).dt.epoch("us")

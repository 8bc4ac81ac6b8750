"""The facts as they were at an earlier instant, and what of them is lost.

Time never leaks backwards: a row counts only if its time is not after the instant. Some
columns are written over (`updated_at`, the status, the last message); their old values
are taken from transitions and events, or, where the present value is itself older than
the instant, from the row. Where neither tells, the value is lost, and is said to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.windows import in_utc, read_moment
from stateanalytics.detectors.history import LOST, lost, then, told
from stateanalytics.errors import ArgumentError


@dataclass(frozen=True)
class Past:
    """Facts at an instant.

    Attributes
    ----------
    facts : Facts
        With ``as_of`` at the instant and nothing younger.
    lost : polars.DataFrame
        A row for each row of ``facts.entities``, in its order; a Boolean for each of
        `LOST`: is the value that the row had then not known any more.
    """

    facts: Facts
    lost: pl.DataFrame

    @property
    def at(self) -> datetime:
        """The instant."""
        return self.facts.as_of


def facts_at(facts: Facts, at: object = None) -> Past:
    """The facts as they were known at an instant.

    Parameters
    ----------
    facts : Facts
        What `read` gave.
    at : datetime, date, ISO text or epoch seconds, optional
        By default the facts' own as-of, where nothing is lost.

    Returns
    -------
    Past

    Raises
    ------
    ArgumentError
        If the instant is after as-of, or before anything began.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> past = facts_at(demo(), "2026-05-20T12:00Z")
    >>> past.facts.entities.height, past.lost.height == past.facts.entities.height
    (506, True)
    """
    instant = facts.as_of if at is None else read_moment(at, "at")
    if instant >= facts.as_of:
        _refuse_future(instant, facts)
        none = {name: pl.lit(value=False) for name in LOST}
        return Past(facts, facts.entities.with_columns(**none).select(LOST))
    born = pl.min_horizontal("created_at", "started_at")
    existing = facts.entities.filter((born <= instant) | born.is_null())
    if existing.is_empty() or existing.select(born.is_null().all()).item():
        first = facts.entities.select(born.min()).item()
        raise ArgumentError(
            f"Nothing had begun at {in_utc(instant)}; "
            + (f"the data begin at {in_utc(first)}." if first else "the data name no beginning."),
            "choose a later instant, or leave it out for as-of",
        )
    known = told(existing, facts, instant)
    rows = {
        "entities": schema.ENTITIES.conform(known.with_columns(**then(instant))),
        "events": facts.events.filter(pl.col("at") <= instant),
        "transitions": facts.transitions.filter(pl.col("at") <= instant),
    }
    gone = known.with_columns(**lost(instant)).select(LOST)
    return Past(_with(facts, rows, instant), gone)


def _with(facts: Facts, rows: dict[str, pl.DataFrame], as_of: datetime) -> Facts:
    """The same inputs with other rows, at another instant."""
    # Not `replace`: a snapshot holds more than facts, and would keep its stores.
    return Facts(
        **rows,
        findings=facts.findings,
        sources=facts.sources,
        as_of=as_of,
        as_of_from="given",
        details=facts.details,
    )


def _refuse_future(instant: datetime, facts: Facts) -> None:
    if instant > facts.as_of:
        raise ArgumentError(
            f"The facts hold up to {in_utc(facts.as_of)}; {in_utc(instant)} lies after that, "
            "and nothing is known of it.",
            "choose an earlier instant, or read the store with a later as_of",
            shell="choose an earlier instant, or a later --as-of",
        )

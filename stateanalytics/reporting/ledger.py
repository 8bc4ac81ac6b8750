"""Every run of a report in one short line, so that two reports can be held side by side.

The numbers of a report say that something changed; its ledger says which runs made it.
A line holds no text of a store: ids, incidents and facts are digests.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import NamedTuple

import polars as pl

from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.material import Material
from stateanalytics.state.definitions import (
    FAILURES,
    TROUBLE,
    cause_key,
    ended_well,
    is_failure,
)

FIELDS = ("run", "source", "began", "placed", "ending", "is_in_trouble", "incident", "facts")
"""What the words of a line are: see `Line`."""

LATER = "later"
"""The ending of a run that was open when the window ended, and has ended since."""

NOTHING = "-"
_FACTS = (
    "raw_status",
    "started_at",
    "ended_at",
    "last_activity_at",
    "reason_code",
    "invocation_id",
    "process_alive",
    "recorded_by",
)


class Line(NamedTuple):
    """One run.

    Attributes
    ----------
    run : str
        Digest of its system and id; the same in every report.
    source : int
        Which input of the report it came from, from 0.
    began, placed : int or None
        Epoch seconds: its start, else creation; the moment that placed it in the window.
    ending : str
        ``open``, ``good``, ``timed_out``, ``failed``, ``other``; ``later``: it began before
        the end of the window and ended after it, so that a later window counts it;
        ``left_out``: no rate counts it.
    is_in_trouble : bool
        Is its severity critical or warning.
    incident : str or None
        Digest of the incident that it failed in: of the first by name of its causes, so that
        most of what comes later leaves it as it is.
    facts : str
        Digest of what is stored about it, whatever a policy makes of it.
    """

    run: str
    source: int
    began: int | None
    placed: int | None
    ending: str
    is_in_trouble: bool
    incident: str | None
    facts: str


def write_ledger(material: Material) -> list[str]:
    """The runs of a report as texts, in order of their digest."""
    words = [pl.col(name).cast(pl.String).fill_null(NOTHING) for name in FIELDS]
    shown = _lines(material).with_columns(pl.col("is_in_trouble").cast(pl.Int8))
    return shown.select(pl.concat_str(words, separator=" ").sort()).to_series().to_list()


def ledger_of(material: Material) -> tuple[dict[str, Line], dict[str, str]]:
    """The runs of a report by their digest, and the ids behind the digests.

    Runs that rates leave out are there too, and those that were open when the window ended.
    """
    lines = _lines(material)
    ledger = {row[0]: Line(*row) for row in lines.select(FIELDS).iter_rows()}
    return ledger, dict(lines.select("run", "entity_id").iter_rows())


def _lines(material: Material) -> pl.DataFrame:
    """`FIELDS` of every run, and its ``entity_id``."""
    labels = material.facts.sources["source"].to_list()
    places = {label: place for place, label in enumerate(labels)}
    began = pl.coalesce("started_at", "created_at")
    runs = _runs(material).with_columns(
        place=pl.col("source").replace_strict(places, default=-1, return_dtype=pl.Int64),
        # The label of an input may change from report to report; its place rarely does.
        cause=pl.when(pl.col("ending").is_in(FAILURES)).then(
            cause_key().str.strip_prefix(pl.col("source") + "|")
        ),
        # Ids of two inputs may be the same.
        again=pl.int_range(pl.len()).over("system", "entity_id"),
    )
    together = material.failed.select(*ENTITY_KEY, "incident_id").unique(ENTITY_KEY)
    cause = pl.format("{}|{}", "place", "cause")
    system, identity = (pl.col(name).fill_null("None") for name in ("system", "entity_id"))
    facts = [pl.col(name).cast(pl.String).fill_null(NOTHING) for name in _FACTS]
    return (
        runs.join(together.lazy(), on=ENTITY_KEY, how="left", maintain_order="left")
        .select(
            "entity_id",
            "ending",
            run=_digests(pl.format("{}|{}|{}", system, identity, "again"), 16),
            source="place",
            began=began.dt.epoch("s"),
            placed=pl.col("placed_at").dt.epoch("s"),
            is_in_trouble=pl.col("severity").is_in(list(TROUBLE)).fill_null(value=False),
            incident=_digests(
                pl.when(pl.col("incident_id").is_null())
                .then(cause)
                .otherwise(cause.min().over("incident_id")),
                12,
            ),
            facts=_digests(pl.concat_str(facts, separator="|"), 8),
        )
        .collect()
    )


def _runs(material: Material) -> pl.LazyFrame:
    """The sessions of the window, and those that ended only after it but began before."""
    is_session = pl.col("entity_type") == "session"
    until, began = material.window.until, pl.coalesce("started_at", "created_at")
    ended_later = ~pl.col("is_open") & (began < until) & (pl.col("placed_at") >= until)
    is_future = (pl.col("left_out") == "future").fill_null(value=False)
    later = material.ever.lazy().filter(is_session, ended_later, ~is_future)
    is_left_out = pl.col("left_out").is_not_null()
    put_off = pl.when(is_left_out).then(pl.lit("left_out")).otherwise(pl.lit(LATER))
    return pl.concat(
        [
            material.rows.lazy().filter(is_session).with_columns(ending=_ending()),
            later.with_columns(ending=put_off),
        ]
    )


def _ending() -> pl.Expr:
    return (
        pl.when(pl.col("left_out").is_not_null())
        .then(pl.lit("left_out"))
        .when("is_open")
        .then(pl.lit("open"))
        .when(ended_well())
        .then(pl.lit("good"))
        .when(is_failure())
        .then(
            pl.when(pl.col("outcome") == "timed_out")
            .then(pl.lit("timed_out"))
            .otherwise(pl.lit("failed"))
        )
        .otherwise(pl.lit("other"))
    )


def _digests(texts: pl.Expr, length: int) -> pl.Expr:
    """Digests of texts. Hashing is all that the loop does: an engine's is no faster."""

    def each(column: pl.Series) -> pl.Series:
        digests = [
            None
            if text is None
            else hashlib.blake2b(text.encode(), digest_size=length // 2).hexdigest()
            for text in column.to_list()
        ]
        return pl.Series(column.name, digests, dtype=pl.String)

    return texts.map_batches(each, return_dtype=pl.String)


def read_ledger(lines: object) -> dict[str, Line]:
    """The lines of a report, by run.

    Raises
    ------
    ArgumentError
        If they are no ledger.

    Examples
    --------
    >>> line = "00ff00ff00ff00ff 0 1779840000 1779840600 good 0 - 1a2b3c4d"
    >>> read_ledger([line])["00ff00ff00ff00ff"].ending
    'good'
    """
    try:
        read = [_line(text) for text in lines]  # type: ignore[attr-defined]
    except (TypeError, ValueError, AttributeError) as error:
        raise ArgumentError(
            f"The ledger of the report cannot be read: {error!s:.80}.",
            "write the report's JSON again: stateanalytics report … --json",
        ) from None
    return {line.run: line for line in read}


def _line(text: str) -> Line:
    run, source, began, placed, ending, trouble, cause, facts = text.split(" ")
    return Line(
        run,
        int(source),
        None if began == NOTHING else int(began),
        None if placed == NOTHING else int(placed),
        ending,
        trouble == "1",
        None if cause == NOTHING else cause,
        facts,
    )


def is_within(line: Line, since: datetime, until: datetime) -> bool:
    """Does a window count a run, by the rule of `population.population`."""
    begin, end = since.timestamp(), until.timestamp()
    if line.ending == "open":
        return line.began is None or line.began < end
    return line.placed is not None and begin <= line.placed < end

"""What of opencode's records every state rests on: events, messages, parts, rows of sessions.

They are kept so that any instant is read as the present is: what was written later is left
out, and the rest is folded again. No text that a person or a model wrote is among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import INTEGER, MOMENT, TEXT, Column, Frame
from stateanalytics.io.json_lines import moment
from stateanalytics.systems.opencode.gathered import SESSION_ROWS, Gathered
from stateanalytics.systems.opencode.log import (
    ERA_A_PREFIX,
    EVENTS,
    PAYLOADS,
    SESSION_KEY,
    Log,
    Ordered,
    family_of,
    kind_of,
    rows_of,
)
from stateanalytics.systems.opencode.message_fold import (
    MESSAGES,
    PARTS,
    PROJECTED,
)

_WORDS = MappingProxyType(
    {row["column"]: row for row in table_rows(__package__, "record_columns.csv")}
)
"""Meaning and unit of a column, whichever record has it."""


def _as_moment(name: str) -> str:
    """What a column of milliseconds is called as a moment: `a_ms` is `a_at`."""
    bare = name.removesuffix("_ms")
    return bare if bare in {name, "at"} or bare.endswith("_at") else f"{bare}_at"


def _columns(shape: Mapping[str, pl.DataType], *without: str) -> tuple[Column, ...]:
    return tuple(
        Column(
            _as_moment(name),
            MOMENT if name.endswith("_ms") else dtype,
            _WORDS[_as_moment(name)]["meaning"],
            _WORDS[_as_moment(name)]["unit"],
        )
        for name, dtype in shape.items()
        if name not in ("source", *without)
    )


_SOURCE = Column("source", TEXT, "the input")
OF_EVENTS = MappingProxyType(
    {
        family: Frame(
            f"opencode_{family}_events",
            f"one event of opencode of the kind '{family}', and what states read of it",
            ("source", "session_id", "event_id"),
            (
                _SOURCE,
                Column("session_id", TEXT, "the session"),
                Column("event_id", TEXT, "the event"),
                Column("seq", INTEGER, "its place in the session; null: it was only live"),
                Column("at", MOMENT, "when it happened"),
                Column("type", TEXT, "its type, without version"),
                *_columns(shape, "row"),
            ),
        )
        for family, shape in PAYLOADS.items()
    }
)
"""A frame for each of `log.FAMILIES`; events that carry nothing stand in ``events`` alone."""

OF_MESSAGES = Frame(
    "opencode_messages",
    "one message of opencode, and what states read of it",
    ("source", "session_id", "message_id", "era"),
    (_SOURCE, *_columns(MESSAGES)),
)
OF_PARTS = Frame(
    "opencode_parts",
    "one part of a message of opencode, and what states read of it",
    ("source", "message_id", "part_id"),
    (_SOURCE, *_columns(PARTS)),
)
OF_SESSIONS = Frame(
    "opencode_session_rows",
    "one session of opencode, as its own row says",
    ("source", "session_id"),
    (_SOURCE, *_columns(SESSION_ROWS)),
)
RECORDS = (*OF_EVENTS.values(), OF_MESSAGES, OF_PARTS, OF_SESSIONS)


def kept_records(gathered: Gathered, order: Ordered) -> dict[str, pl.DataFrame]:
    """What states rest on, as the detail frames of `RECORDS`.

    Parameters
    ----------
    gathered : Gathered
    order : Ordered
        Its durable events, each once.
    """
    frames = {
        frame.name: rows_of(order.events, gathered.log, family)
        for family, frame in OF_EVENTS.items()
    }
    asked = gathered.log.events.filter(
        pl.col("seq").is_null(), pl.col("session_id").is_not_null()
    ).unique(["source", "event_id"], keep="first", maintain_order=True)
    live = rows_of(asked, gathered.log, "ask")
    asks = OF_EVENTS["ask"].name
    frames[asks] = pl.concat([frames[asks].select(live.columns), live])
    frames |= {
        OF_MESSAGES.name: pl.concat([gathered.messages, gathered.projections]).unique(
            maintain_order=True
        ),
        OF_PARTS.name: gathered.parts.unique(maintain_order=True),
        OF_SESSIONS.name: gathered.session_rows.unique(maintain_order=True),
    }
    return {name: _with_moments(frame) for name, frame in frames.items()}


def _with_moments(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(
        moment(name).alias(_as_moment(name)) for name in frame.columns if name.endswith("_ms")
    )


def _with_milliseconds(frame: pl.DataFrame, shape: pl.Schema) -> pl.DataFrame:
    return frame.select(
        pl.col(_as_moment(name)).dt.epoch("ms").alias(name) if name.endswith("_ms") else name
        for name in shape
    )


def gathered_again(details: Mapping[str, pl.DataFrame], events: pl.DataFrame) -> Gathered:
    """What inputs held, from the frames that were kept of them: `kept_records` backwards.

    Parameters
    ----------
    details : mapping of str to polars.DataFrame
        With the frames of `RECORDS`.
    events : polars.DataFrame
        `schema.EVENTS`, of these inputs; those with a ``seq`` are durable ones.

    Returns
    -------
    Gathered
        Without what was broken, and without the table of waiting inputs, which is only ever
        of the present.
    """

    def own(frame: Frame) -> pl.DataFrame:
        return details.get(frame.name, frame.empty())

    messages = _with_milliseconds(own(OF_MESSAGES), MESSAGES)
    is_projected = (pl.col("era") == PROJECTED).fill_null(value=False)
    return Gathered(
        log=_log_again({family: own(frame) for family, frame in OF_EVENTS.items()}, events),
        messages=messages.filter(~is_projected),
        parts=_with_milliseconds(own(OF_PARTS), PARTS),
        projections=messages.filter(is_projected),
        session_rows=_with_milliseconds(
            own(OF_SESSIONS).sort("written_at", "updated_at", descending=True, nulls_last=True),
            SESSION_ROWS,
        ),
    )


def _log_again(carried: Mapping[str, pl.DataFrame], events: pl.DataFrame) -> Log:
    """The log whose durable events stand in ``events``, with what each of them carried."""
    place = [*SESSION_KEY, "seq"]
    heads = [frame.select(*place, "event_id", "at", "type") for frame in carried.values()]
    named = pl.concat(heads)
    durable = events.filter(pl.col("seq").is_not_null()).select(
        "source", pl.col("entity_id").alias("session_id"), "seq", "at", type="kind"
    )
    ids = named.filter(pl.col("seq").is_not_null()).select(*place, "event_id")
    known = durable.join(ids, on=place, how="left", maintain_order="left")
    rows = pl.concat(
        [known.select(named.columns), named.filter(pl.col("seq").is_null())]
    ).with_columns(
        row=pl.int_range(pl.len(), dtype=pl.UInt32),
        at_ms=pl.col("at").dt.epoch("ms"),
        kind=kind_of(pl.col("type")),
        is_era_a=pl.col("type").str.starts_with(ERA_A_PREFIX),
        origin=pl.lit(0, pl.UInt8),
        digest=pl.lit(0, pl.UInt64),
    )
    numbers = rows.select(*place, "event_id", "row")
    payloads = {
        family: _with_milliseconds(
            frame.join(numbers, on=[*place, "event_id"], how="inner", nulls_equal=True),
            PAYLOADS[family],
        )
        for family, frame in carried.items()
    }
    return Log(rows.with_columns(family=family_of(pl.col("kind"))).select(EVENTS.names()), payloads)

"""What was read of some opencode inputs: events, messages, parts, rows of sessions, losses.

The records are kept as frames, so that any instant is read as the present is: later records
are excluded, and the rest is folded again. They contain no text of a person or a model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import polars as pl

from stateanalytics.core.schema import Inputs, Results
from stateanalytics.core.shapes import Columns, Frame, Integer, Moment, Real, Text, YesNo, frame
from stateanalytics.io.json_lines import conform, dtypes_of, moment
from stateanalytics.systems.opencode.log import (
    ERA_A_PREFIX,
    EVENTS,
    PAYLOADS,
    SESSION,
    SESSION_KEY,
    USAGE,
    Log,
    Ordered,
    family_of,
    kind_of,
    pooled_logs,
    rows_of,
)
from stateanalytics.systems.opencode.message_fold import MESSAGES, PARTS, PROJECTED

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
"""One session; null: not known. A stream has a session each time that it was written."""


def session_rows_of(frame: pl.DataFrame) -> pl.DataFrame:
    """One row per session in the columns of `SESSION_ROWS`, null where a column is absent."""
    return (
        conform(frame, SESSION_ROWS)
        .filter(pl.col("session_id").is_not_null())
        .unique(SESSION_KEY, keep="first", maintain_order=True)
    )


def completed_rows(rows: pl.DataFrame, *others: pl.DataFrame) -> pl.DataFrame:
    """Rows of all sessions: nulls of the first frame are filled from the next ones."""
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
        Number of records.
    example : str, optional
        The place of the first.
    table : str, optional
        The table or file of the input.
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
    """The contents of some inputs, with ``source`` in every row.

    Attributes
    ----------
    log : Log
        Events.
    messages, parts : polars.DataFrame
        `MESSAGES` and `PARTS` of V1, exports and runs.
    projections : polars.DataFrame
        `MESSAGES` of V2, used only for sessions without any event.
    session_rows : polars.DataFrame
        `SESSION_ROWS`; the first of several rows of a session counts, which is the newest.
    waiting : polars.DataFrame, optional
        ``input_id`` of the inputs that wait by a table.
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
        broken=tuple(loss for part in gathered for loss in part.broken),
    )


def without(gathered: Gathered, sources: Collection[str]) -> Gathered:
    """The contents of all inputs except some."""
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


_SAME = ["source", "role", "created_ms", "completed_ms", "n_input_tokens", "n_output_tokens"]
"""Columns in which a copied message equals its original."""


def without_copies(gathered: Gathered) -> Gathered:
    """The same without the messages that forks copied, and without their share of the totals.

    V1 copies messages under new ids and names no parent. A copy keeps the moments of its
    original, so that it is older than its own session. Where the original is gone, the copy of
    the oldest fork stays: otherwise nothing would count the work.
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
    # A message may be read twice, as a row and as a file.
    sums = (
        copies.unique(message, keep="first", maintain_order=True)
        .group_by(SESSION_KEY, maintain_order=True)
        .agg(pl.col(*USAGE).sum(), original_id=pl.col("original_id").last())
    )
    rows = gathered.session_rows.join(sums, on=SESSION_KEY, how="left", maintain_order="left")
    of_rows = {name: f"row_{name.removeprefix('n_')}" for name in USAGE}
    # A row of a version that counted nothing yet is zero, with copies or without.
    rest = {row: (pl.col(row) - pl.col(name).fill_null(0)).clip(0) for name, row in of_rows.items()}
    return replace(
        gathered,
        messages=gathered.messages.join(copies, on=message, how="anti", maintain_order="left"),
        parts=gathered.parts.join(copies, on=message, how="anti", maintain_order="left"),
        session_rows=rows.with_columns(
            fork_of=pl.coalesce("fork_of", "original_id"),
            **rest,
        ).select(gathered.session_rows.columns),
    )


class _Records(Columns):
    """One record: each column means the same in every frame of records."""

    source = Text("the input")
    event_id = Text("the event")
    seq = Integer("its place in the session; null: it was only live")
    at = Moment("when it happened")
    type = Text("its type, without version")
    agent = Text("agent")
    archived_at = Moment("when it was archived")
    attempt = Integer("number of the attempt that a retry is for")
    call_id = Text("the provider's id of the tool call")
    completed_at = Moment("when it was complete; null: it was not")
    cost_usd = Real("cost; null: not reported", unit="USD")
    created_at = Moment("when it was created")
    delivery = Text("steer or queue")
    directory = Text("working directory")
    dispatched_at = Moment("when the request was sent (2.0)")
    end_at = Moment("when it ended")
    era = Text("who wrote it")
    error_message = Text("message of its error")
    error_permission = Text("permission that was refused")
    error_resource = Text("what it was refused for")
    error_status = Integer("HTTP status of its error")
    error_type = Text("type of its error, as stored")
    exit_code = Integer("exit code of the tool's program")
    finish = Text("why the step finished, in the provider's words")
    fork_of = Text("session it was forked from")
    idle_outcome = Text("outcome as 2.0 stored it")
    input_id = Text("the input")
    input_kind = Text("user, synthetic, compaction, move")
    is_aborted = YesNo("its command says that a person stopped it")
    is_timed_out = YesNo("its command says that its time limit ended it")
    message_id = Text("the message")
    model = Text("model")
    n_cache_read_tokens = Integer("tokens read from cache", unit="tokens")
    n_cache_write_tokens = Integer("tokens written to cache", unit="tokens")
    n_chars = Integer("characters of text")
    n_content_chars = Integer("characters of text, where a message holds its own parts")
    n_content_tools = Integer("completed tool calls, where a message holds its own parts")
    n_input_tokens = Integer("tokens read", unit="tokens")
    n_output_tokens = Integer("tokens written", unit="tokens")
    n_reasoning_tokens = Integer("tokens of reasoning", unit="tokens")
    n_resume_attempts = Integer("times that 2.0 resumed it by itself")
    parent_id = Text("of a message its prompt, of a session the one that began it")
    part_id = Text("the part")
    part_type = Text("text, tool, …")
    program_version = Text("version of opencode")
    project_id = Text("the project")
    provider = Text("provider of the model")
    raw_finish = Text("the provider's own word for that (2.0)")
    reason = Text("why an execution was interrupted")
    reply = Text("the answer to a permission")
    request_id = Text("the permission or question")
    retry_at = Moment("when the next attempt is due")
    retry_attempt = Integer("number of that attempt")
    retry_error_type = Text("type of the error that made it retry")
    role = Text("user, assistant, …")
    row_cache_read_tokens = Integer(
        "tokens read from cache in the whole session, as its row says", unit="tokens"
    )
    row_cache_write_tokens = Integer(
        "tokens written to cache in the whole session, as its row says", unit="tokens"
    )
    row_cost_usd = Real("cost of the whole session, as its row says", unit="USD")
    row_input_tokens = Integer("tokens read in the whole session, as its row says", unit="tokens")
    row_output_tokens = Integer(
        "tokens written in the whole session, as its row says", unit="tokens"
    )
    row_reasoning_tokens = Integer(
        "tokens of reasoning in the whole session, as its row says", unit="tokens"
    )
    session_id = Text("the session")
    start_at = Moment("when it began")
    status = Text("pending, running, completed, error")
    suspended_at = Moment("claim or stamp to resume it")
    title = Text("its title")
    tool = Text("name of the tool")
    updated_at = Moment("when its row was last written")
    written_at = Moment("when a stream reported it; null: from a row, which is overwritten")
    says = Text("gives_up or corrects, by the first words of a text: a hypothesis")
    inputs = Inputs
    results = Results


def _as_moment(name: str) -> str:
    """The name of a column of milliseconds as a moment: `a_ms` is `a_at`."""
    bare = name.removesuffix("_ms")
    return bare if bare in {name, "at"} or bare.endswith("_at") else f"{bare}_at"


def _of_records(what: str, row: str, key: tuple[str, ...], *names: str) -> Frame:
    columns = dict.fromkeys(_as_moment(name) for name in ("source", *names))
    return Frame(f"opencode_{what}", row, ("source", *key), frame(_Records).named(*columns))


_EVENT = ("session_id", "event_id", "seq", "at", "type")
OF_EVENTS = MappingProxyType(
    {
        family: _of_records(
            f"{family}_events",
            f"one event of opencode of the kind '{family}', and what states read of it",
            ("session_id", "event_id"),
            *_EVENT,
            *(name for name in shape if name != "row"),
        )
        for family, shape in PAYLOADS.items()
    }
)
"""A frame for each of `log.FAMILIES`; events without a payload are in ``events`` only."""

OF_MESSAGES = _of_records(
    "messages",
    "one message of opencode, and what states read of it",
    ("session_id", "message_id", "era"),
    *MESSAGES,
)
OF_PARTS = _of_records(
    "parts",
    "one part of a message of opencode, and what states read of it",
    ("message_id", "part_id"),
    *PARTS,
)
OF_SESSIONS = _of_records(
    "session_rows",
    "one session of opencode, as its own row says",
    ("session_id",),
    *SESSION_ROWS,
)
RECORDS = (*OF_EVENTS.values(), OF_MESSAGES, OF_PARTS, OF_SESSIONS)


def kept_records(gathered: Gathered, order: Ordered) -> dict[str, pl.DataFrame]:
    """The records that states are made from, as the detail frames of `RECORDS`.

    Parameters
    ----------
    gathered : Gathered
    order : Ordered
        Its durable events without repetitions.
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


def gathered_from(details: Mapping[str, pl.DataFrame], events: pl.DataFrame) -> Gathered:
    """The contents of inputs, from the frames that were kept: the inverse of `kept_records`.

    Parameters
    ----------
    details : mapping of str to polars.DataFrame
        With the frames of `RECORDS`.
    events : polars.DataFrame
        `schema.EVENTS` of these inputs; those with a ``seq`` are durable.

    Returns
    -------
    Gathered
        Without losses, and without the table of waiting inputs, which shows only the present.
    """

    def own(frame: Frame) -> pl.DataFrame:
        return details.get(frame.name, frame.empty())

    messages = _with_milliseconds(own(OF_MESSAGES), MESSAGES)
    is_projected = (pl.col("era") == PROJECTED).fill_null(value=False)
    return Gathered(
        log=_log_from({family: own(frame) for family, frame in OF_EVENTS.items()}, events),
        messages=messages.filter(~is_projected),
        parts=_with_milliseconds(own(OF_PARTS), PARTS),
        projections=messages.filter(is_projected),
        session_rows=_with_milliseconds(
            own(OF_SESSIONS).sort("written_at", "updated_at", descending=True, nulls_last=True),
            SESSION_ROWS,
        ),
    )


def _log_from(kept: Mapping[str, pl.DataFrame], events: pl.DataFrame) -> Log:
    """The log of the durable events in ``events``, with their kept payloads."""
    place = [*SESSION_KEY, "seq"]
    heads = [frame.select(*place, "event_id", "at", "type") for frame in kept.values()]
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
        for family, frame in kept.items()
    }
    return Log(rows.with_columns(family=family_of(pl.col("kind"))).select(EVENTS.names()), payloads)

"""The contents of opencode inputs: fields of records, kinds of events, rows and losses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.package_tables import package_table
from stateanalytics.core.schema import INPUTS, RESULTS
from stateanalytics.io.json_lines import Fields, conform, dtypes_of


class _Field(NamedTuple):
    """A column of a kind of records: the paths that it may be read from, and its type."""

    record: str
    column: str
    paths: tuple[str, ...]
    type: str


_FIELDS = package_table(__package__, "fields.csv", _Field)


def _fields_of(record: str) -> Fields:
    return {row.column: (row.paths, row.type) for row in _FIELDS if row.record == record}


USAGE, FIELDS, ENVELOPE = _fields_of("usage"), _fields_of("event"), _fields_of("envelope")
MESSAGE, PART, SESSION = _fields_of("message"), _fields_of("part"), _fields_of("session")
WIRE, FINISH, RUN_ERROR = _fields_of("wire"), _fields_of("finish"), _fields_of("run_error")
ERA_A_PREFIX = "session.next."


class _Kind(NamedTuple):
    """A kind of session events that any known version writes, and its other types."""

    kind: str
    family: str
    is_quiet: bool
    types: tuple[str, ...]


_KINDS = package_table(__package__, "kinds.csv", _Kind)
KINDS = frozenset(row.kind for row in _KINDS)
# Kinds of bookkeeping, which is no sign of life because it also happens without work.
QUIET = tuple(row.kind for row in _KINDS if row.is_quiet)
TERMINALS = ("execution.succeeded", "execution.failed", "execution.interrupted")
SPENT_OUTSIDE_STEPS = ("usage.recorded", "compaction.ended", "compaction.failed")
"""Kinds of events with tokens that a session used outside its steps."""
FAMILIES: Mapping[str, tuple[str, ...]] = {
    family: tuple(row.kind for row in _KINDS if row.family == family)
    for family in dict.fromkeys(row.family for row in _KINDS if row.family)
}
"""The kinds of events of each payload. ``family`` of an event is a position in it, or null."""


def kind_of(event_type: pl.Expr) -> pl.Expr:
    """The kind of an event by its type without version: one name for all versions.

    Examples
    --------
    >>> types = ["session.next.prompted", "session.inbox.delivered", "session.made.up"]
    >>> pl.select(kind_of(pl.lit(pl.Series(types)))).to_series().to_list()
    ['input.promoted', 'input.promoted', 'made.up']
    """
    bare = event_type.str.strip_prefix(ERA_A_PREFIX).str.strip_prefix("session.")
    return bare.replace({name: row.kind for row in _KINDS for name in row.types})


def family_of(kind: pl.Expr) -> pl.Expr:
    """The position in `FAMILIES` of the payload of a kind of events; null: it has none."""
    places = {kind: place for place, kinds in enumerate(FAMILIES.values()) for kind in kinds}
    return kind.replace_strict(places, default=None, return_dtype=pl.UInt8)


ORIGINS = ("database", "log", "stream")
"""Where a row may come from, most trusted first: streams lose rows, databases do not."""
EVENTS = pl.Schema(
    {
        "row": pl.UInt32(),
        **dict.fromkeys(("source", "event_id", "session_id"), pl.String()),
        **dict.fromkeys(("seq", "at_ms"), pl.Int64()),
        **dict.fromkeys(("type", "kind"), pl.String()),
        **{"family": pl.UInt8(), "is_era_a": pl.Boolean()},
        **{"origin": pl.UInt8(), "digest": pl.UInt64()},
    }
)
"""One event: ``row`` links it to its payload, a null ``seq`` means that it was only live.

A log may have events of several inputs, so every key contains ``source``. ``digest`` is a
digest of the text of the event. It decides which of two rows with the same sequence number is
kept, so that the order of reading does not matter.
"""
ERROR = ("error_type", "error_message", "error_status")
MODEL = ("agent", "model", "provider")
_PAYLOAD_FIELDS: Mapping[str, Sequence[str]] = {
    "execution": (*ERROR, "reason"),
    "step": (
        *("message_id", *MODEL, "dispatched_ms", "finish", "raw_finish", "attempt"),
        *("retry_at_ms", *ERROR, *USAGE),
    ),
    "text": ("message_id", "n_chars", "says"),
    "tool": (
        *("message_id", "call_id", "tool", "exit_code", "is_timed_out", *ERROR),
        *("error_permission", "error_resource", *INPUTS.dtypes, *RESULTS.dtypes),
    ),
    "input": ("input_id", "input_kind", "delivery"),
    "session": (
        *("title", "directory", "project_id", "parent_id", "program_version"),
        *(*MODEL, *USAGE),
    ),
    "ask": ("request_id", "reply"),
}
_DTYPES = {
    **dtypes_of(FIELDS),
    **INPUTS.dtypes,
    **RESULTS.dtypes,
    **{"row": pl.UInt32(), "n_chars": pl.Int64(), "says": pl.String()},
}
PAYLOADS: Mapping[str, pl.Schema] = {
    family: pl.Schema({name: _DTYPES[name] for name in ("row", *names)})
    for family, names in _PAYLOAD_FIELDS.items()
}
"""The columns of each payload; ``row`` is that of the event."""
NO_PAYLOADS = {family: pl.DataFrame(schema=shape) for family, shape in PAYLOADS.items()}


@dataclass(frozen=True)
class Log:
    """Events with their payloads, in any order and with repetitions.

    Attributes
    ----------
    events : polars.DataFrame
        `EVENTS`.
    payloads : mapping of str to polars.DataFrame
        `PAYLOADS`, by family.
    """

    events: pl.DataFrame = field(default_factory=pl.DataFrame(schema=EVENTS).clone)
    payloads: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    def payload(self, family: str) -> pl.DataFrame:
        """The payloads of one family; empty if there are none."""
        return self.payloads.get(family, NO_PAYLOADS[family])


def pooled_logs(logs: Sequence[Log]) -> Log:
    """Several logs as one, with new row numbers."""
    if len(logs) == 1:
        return logs[0]
    starts = accumulate((log.events.height for log in logs), initial=0)
    numbered = [(log, pl.col("row") + start) for log, start in zip(logs, starts, strict=False)]
    return Log(
        pl.concat([Log().events, *(log.events.with_columns(row) for log, row in numbered)]),
        {
            family: pl.concat([log.payload(family).with_columns(row) for log, row in numbered])
            for family in PAYLOADS
            if any(family in log.payloads for log in logs)
        },
    )


_MOST_EVENTS = 2**40
SESSION_KEY = ("source", "session_id")


@dataclass(frozen=True)
class Ordered:
    """Durable events, one per session and sequence number.

    Attributes
    ----------
    events : polars.DataFrame
        `EVENTS` with ``sid`` (a number that sorts like source and id) and ``exec_no``,
        sorted by session and sequence number.
    duplicates : polars.DataFrame
        ``source``, ``n_rows``: repeated rows.
    conflicts : polars.DataFrame
        ``source``, ``session_id``, ``seq``, ``n_events``: numbers that several events have.
    misplaced : polars.DataFrame
        ``source``, ``n_rows``: rows with an impossible sequence number.
    """

    events: pl.DataFrame
    duplicates: pl.DataFrame
    conflicts: pl.DataFrame
    misplaced: pl.DataFrame


def ordered(log: Log) -> Ordered:
    """Durable events without repetitions, in the order of their sequence numbers.

    Notes
    -----
    Events are never ordered by time: times may be equal, are 0 after migrations, and come from
    several clocks. Of two events with one number, the more trusted origin is kept.
    """
    durable = log.events.filter(
        pl.col("seq").is_not_null(),
        pl.col("session_id").is_not_null(),
        ~pl.col("kind").str.starts_with("message."),
    )
    is_possible = pl.col("seq").is_between(0, _MOST_EVENTS, closed="left")
    placed = durable.filter(is_possible)
    ids = placed.select(SESSION_KEY).unique().sort(SESSION_KEY).with_row_index("sid")
    keyed = (
        placed.join(ids, on=SESSION_KEY, how="left", maintain_order="left")
        .with_columns(place=pl.col("sid").cast(pl.Int64) * _MOST_EVENTS + pl.col("seq"))
        .sort("place")
    )
    distinct, duplicates, conflicts = _distinct(keyed)
    return Ordered(
        _with_executions(distinct.drop("place")),
        duplicates,
        conflicts,
        n_by_source(durable.filter(~is_possible)),
    )


def n_by_source(rows: pl.DataFrame) -> pl.DataFrame:
    """The number of rows of each ``source``, as ``n_rows``."""
    return rows.group_by("source", maintain_order=True).agg(n_rows=pl.len().cast(pl.Int64))


def _distinct(keyed: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """One row per place, the number of repeated rows, and the places with different events."""
    repeats = (pl.col("place") == pl.col("place").shift(1)).fill_null(value=False)
    is_shared = (repeats | repeats.shift(-1)).fill_null(value=False) | repeats
    shared = keyed.filter(is_shared)
    conflicts = (
        shared.group_by(*SESSION_KEY, "seq")
        .agg(n_events=pl.col("event_id").n_unique())
        .filter(pl.col("n_events") > 1)
        .sort(*SESSION_KEY, "seq")
    )
    if shared.is_empty():  # avoids copying and sorting a million events
        return keyed, n_by_source(shared), conflicts
    kept = shared.sort(
        "place", "origin", "event_id", "type", "at_ms", "digest", nulls_last=True
    ).unique("place", keep="first", maintain_order=True)
    duplicates = shared.filter(~pl.col("row").is_in(kept["row"].implode()))
    distinct = pl.concat([keyed.filter(~is_shared), kept]).sort("place")
    return distinct, n_by_source(duplicates), conflicts


def _with_executions(events: pl.DataFrame) -> pl.DataFrame:
    """Add ``exec_no``: the number of executions that have begun in the session.

    Era A recorded no executions, so each input that reaches the model begins one.
    """
    begins = (pl.col("kind") == "execution.started") | (
        pl.col("is_era_a") & (pl.col("kind") == "input.promoted")
    )
    n_so_far = begins.cast(pl.Int64).cum_sum()
    is_first = (pl.col("sid") != pl.col("sid").shift(1)).fill_null(value=True)
    before = pl.when(is_first).then(n_so_far - begins.cast(pl.Int64)).forward_fill()
    return events.with_columns(exec_no=n_so_far - before, is_start=begins)


def rows_of(events: pl.DataFrame, log: Log, family: str) -> pl.DataFrame:
    """The events of one family in order, with their payloads."""
    of_family = events.filter(pl.col("family") == list(FAMILIES).index(family))
    return of_family.join(log.payload(family), on="row", how="left", maintain_order="left")


def with_session_ids(frame: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Add the source and the id of each session by its number ``sid``, as first columns."""
    ids = events.select("sid", *SESSION_KEY).unique("sid", keep="first")
    joined = frame.join(ids, on="sid", how="left", maintain_order="left")
    return joined.select("sid", *SESSION_KEY, pl.exclude("sid", *SESSION_KEY))


MESSAGES = pl.Schema(
    {
        "source": pl.String(),
        **dtypes_of(MESSAGE),
        **dict.fromkeys(("n_content_chars", "n_content_tools", "written_ms"), pl.Int64()),
        "era": pl.String(),
    }
)
"""One message of a session; ``n_content_…`` where a message contains its parts.

A stream has a message each time that it was written, at ``written_ms``.
"""
PARTS = pl.Schema(
    {
        "source": pl.String(),
        **dtypes_of(PART),
        **dict.fromkeys(("created_ms", "written_ms", "n_chars"), pl.Int64()),
        **dict.fromkeys(("is_timed_out", "is_aborted"), pl.Boolean()),
        "says": pl.String(),
        **INPUTS.dtypes,
        **RESULTS.dtypes,
    }
)
"""One part of a V1 message: a table has the creation of its row, a stream has ``written_ms``."""
PROJECTED = "C"
"""The era of a message that 2.0 made from its events."""
SESSION_ROWS = pl.Schema(
    {
        "source": pl.String(),
        **dtypes_of(SESSION),
        "fork_of": pl.String(),
        **dict.fromkeys(("suspended_ms", "n_resume_attempts"), pl.Int64()),
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
    broken : polars.DataFrame
        Records that could not be read, as `schema.FINDINGS`.
    """

    log: Log = field(default_factory=Log)
    messages: pl.DataFrame = field(default_factory=pl.DataFrame(schema=MESSAGES).clone)
    parts: pl.DataFrame = field(default_factory=pl.DataFrame(schema=PARTS).clone)
    projections: pl.DataFrame = field(default_factory=pl.DataFrame(schema=MESSAGES).clone)
    session_rows: pl.DataFrame = field(default_factory=pl.DataFrame(schema=SESSION_ROWS).clone)
    waiting: pl.DataFrame | None = None
    broken: pl.DataFrame = field(default_factory=schema.FINDINGS.empty)


_FRAMES = ("messages", "parts", "projections", "broken")


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
        session_rows=pl.concat([part.session_rows for part in reversed(gathered)]),
        **{name: pl.concat([getattr(part, name) for part in gathered]) for name in _FRAMES},
    )


def without(gathered: Gathered, sources: Collection[str]) -> Gathered:
    """The contents of all inputs except some."""
    others = ~pl.col("source").is_in(list(sources))
    return replace(
        gathered,
        log=Log(gathered.log.events.filter(others), gathered.log.payloads),
        session_rows=gathered.session_rows.filter(others),
        **{name: getattr(gathered, name).filter(others) for name in _FRAMES},
    )


_OF_ROWS = {name: f"row_{name.removeprefix('n_')}" for name in USAGE}
"""The name of each total in the row of a session."""


def sound_usage(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """All rows with impossible tokens and costs as null, and the rows that had such values."""
    used = [name for name in (*USAGE, *_OF_ROWS.values()) if name in rows.columns]
    is_sound = {name: pl.col(name).is_between(0, 2**62, closed="left") for name in used}
    odd = rows.filter(~pl.all_horizontal(True, *is_sound.values()))
    if odd.is_empty():
        return rows, odd
    return rows.with_columns(pl.when(sound).then(name) for name, sound in is_sound.items()), odd


_SAME = ["source", "role", "created_ms", "completed_ms", "n_input_tokens", "n_output_tokens"]
"""Columns in which a copied message equals its original."""


def without_copies(gathered: Gathered) -> Gathered:
    """The contents without messages that forks copied, and without their share of the totals.

    V1 copies messages under new ids and names no parent. A copy keeps the times of its
    original, so it is older than its own session. If the original was deleted, the copy in the
    oldest fork is kept, because nothing else would count that work.
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
    # Old versions wrote zeros into the row, so the difference is clipped at zero.
    rest = {
        row: (pl.col(row) - pl.col(name).fill_null(0)).clip(0) for name, row in _OF_ROWS.items()
    }
    return replace(
        gathered,
        messages=gathered.messages.join(copies, on=message, how="anti", maintain_order="left"),
        parts=gathered.parts.join(copies, on=message, how="anti", maintain_order="left"),
        session_rows=rows.with_columns(
            fork_of=pl.coalesce("fork_of", "original_id"), **rest
        ).select(gathered.session_rows.columns),
    )

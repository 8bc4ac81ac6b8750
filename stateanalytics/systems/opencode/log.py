"""Opencode's events: their kinds, their columns, their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import polars as pl

from stateanalytics.io.json_lines import dtypes_of
from stateanalytics.systems.opencode.payloads import FIELDS, USAGE

ERA_A_PREFIX = "session.next."

RENAMED = MappingProxyType(
    {
        "prompt.admitted": "input.admitted",
        "prompted": "input.promoted",
        "prompt.promoted": "input.promoted",
        "inbox.enqueued": "input.admitted",
        "inbox.delivered": "input.promoted",
        "inbox.cancelled": "input.cancelled",
        "inbox.delivery.changed": "input.delivery",
        "permission.v2.asked": "permission.asked",
        "permission.v2.replied": "permission.replied",
        "question.v2.asked": "permission.asked",
        "question.asked": "permission.asked",
        "question.v2.replied": "permission.replied",
        "question.replied": "permission.replied",
        "question.v2.rejected": "permission.rejected",
        "question.rejected": "permission.rejected",
        "form.created": "permission.asked",
        "form.replied": "permission.replied",
        "form.cancelled": "permission.rejected",
    }
)

FAMILIES = MappingProxyType(
    {
        "execution": (
            "execution.started",
            "execution.succeeded",
            "execution.failed",
            "execution.interrupted",
        ),
        "step": ("step.started", "step.ended", "step.failed", "retry.scheduled"),
        "text": ("text.ended",),
        "tool": (
            "tool.input.started",
            "tool.input.ended",
            "tool.called",
            "tool.success",
            "tool.failed",
        ),
        "input": ("input.admitted", "input.promoted", "input.cancelled", "input.delivery"),
        "session": (
            "created",
            "updated",
            "renamed",
            "forked",
            "usage.recorded",
            "compaction.ended",
            "compaction.failed",
        ),
        "ask": ("permission.asked", "permission.replied", "permission.rejected"),
    }
)
"""Which payload an event has, by its kind."""

TERMINALS = ("execution.succeeded", "execution.failed", "execution.interrupted")

SPENT_BESIDE = ("usage.recorded", "compaction.ended", "compaction.failed")
"""Kinds of events that tell what a session used beside its steps."""

# Bookkeeping: these also happen while nobody works, so they are no sign of life.
QUIET = (
    "created", "updated", "renamed", "forked", "usage.recorded", "viewed", "metadata.updated",
    "permissions", "moved", "message.content.updated", "revert.staged", "revert.cleared",
    "revert.committed", "deleted", "usage.updated", "agent.selected", "model.selected",
    "message.updated", "message.part.updated", "message.removed", "message.part.removed",
)  # fmt: skip

NOTICED = (
    "compacted", "compaction.admitted", "compaction.delta", "compaction.started", "diff", "error",
    "idle", "instructions.updated", "message.part.delta", "reasoning.delta", "reasoning.ended",
    "reasoning.started", "shell.created", "shell.deleted", "shell.ended", "shell.exited",
    "shell.started", "skill.activated", "status", "step.streamed", "synthetic", "text.delta",
    "text.started", "time_updated", "todo.updated", "tool.input.delta", "tool.progress",
)  # fmt: skip
"""Kinds that are known and say nothing but that somebody works."""
KINDS = frozenset((*(kind for kinds in FAMILIES.values() for kind in kinds), *QUIET, *NOTICED))
"""Every kind of events of a session that any known version writes."""


def kind_of(event_type: pl.Expr) -> pl.Expr:
    """The fold's name for a type, its version already taken off.

    Examples
    --------
    >>> types = ["session.next.prompted", "session.inbox.delivered", "session.made.up"]
    >>> pl.select(kind_of(pl.lit(pl.Series(types)))).to_series().to_list()
    ['input.promoted', 'input.promoted', 'made.up']
    """
    bare = event_type.str.strip_prefix(ERA_A_PREFIX).str.strip_prefix("session.")
    return bare.replace(dict(RENAMED))


def family_of(kind: pl.Expr) -> pl.Expr:
    """Position in `FAMILIES` of the payload that an event of that kind has; null: none."""
    places = {kind: place for place, kinds in enumerate(FAMILIES.values()) for kind in kinds}
    return kind.replace_strict(places, default=None, return_dtype=pl.UInt8)


ORIGINS = ("database", "log", "stream")
"""Where a row was read from, most trusted first: a stream loses rows, a database does not."""

EVENTS = pl.Schema(
    {
        "row": pl.UInt32(),
        "source": pl.String(),
        "event_id": pl.String(),
        "session_id": pl.String(),
        "seq": pl.Int64(),
        "at_ms": pl.Int64(),
        "type": pl.String(),
        "kind": pl.String(),
        "family": pl.UInt8(),
        "is_era_a": pl.Boolean(),
        "origin": pl.UInt8(),
        "digest": pl.UInt64(),
    }
)
"""One event: ``row`` links it to its payload, a null ``seq`` means that it was only live.

Events of several inputs may stand together: no step takes those of one for another's.
``digest`` stands for the text it was read from, so that of two rows that claim one place
the same is kept in whatever order they came.
"""

FAMILY_NAMES = tuple(FAMILIES)
"""``family`` of an event is a position in this; null: it has no payload."""

_ERROR = ("error_type", "error_message", "error_status")
_MODEL = ("agent", "model", "provider")
_FIELDS: Mapping[str, Sequence[str]] = {
    "execution": (*_ERROR, "reason"),
    "step": (
        *("message_id", *_MODEL, "dispatched_ms", "finish", "raw_finish", "attempt"),
        *("retry_at_ms", *_ERROR, *USAGE),
    ),
    "text": ("message_id", "n_chars"),
    "tool": (
        *("message_id", "call_id", "tool", "exit_code", "is_timed_out", *_ERROR),
        *("error_permission", "error_resource"),
    ),
    "input": ("input_id", "input_kind", "delivery"),
    "session": (
        *("title", "directory", "project_id", "parent_id", "program_version"),
        *(*_MODEL, *USAGE),
    ),
    "ask": ("request_id", "reply"),
}
_DTYPES = {**dtypes_of(FIELDS), "row": pl.UInt32(), "n_chars": pl.Int64()}
PAYLOADS: Mapping[str, pl.Schema] = {
    family: pl.Schema({name: _DTYPES[name] for name in ("row", *names)})
    for family, names in _FIELDS.items()
}
"""Columns of each payload; ``row`` is the event's."""


@dataclass(frozen=True)
class Log:
    """Events in any order, as often as they were seen, with what they carry.

    Attributes
    ----------
    events : polars.DataFrame
        `EVENTS`.
    payloads : mapping of str to polars.DataFrame
        `PAYLOADS`, by family.
    """

    events: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=EVENTS))
    payloads: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    def payload(self, family: str) -> pl.DataFrame:
        """The payloads of one family; empty where there are none."""
        frame = self.payloads.get(family)
        return pl.DataFrame(schema=PAYLOADS[family]) if frame is None else frame


def pooled_logs(logs: Sequence[Log]) -> Log:
    """Several logs as one; rows are numbered anew."""
    if len(logs) == 1:
        return logs[0]
    starts, n = [], 0
    for log in logs:
        starts.append(n)
        n += log.events.height
    moved = [
        (
            log.events.with_columns(pl.col("row") + start),
            {f: p.with_columns(pl.col("row") + start) for f, p in log.payloads.items()},
        )
        for log, start in zip(logs, starts, strict=True)
    ]
    return Log(
        pl.concat([events for events, _ in moved]) if moved else pl.DataFrame(schema=EVENTS),
        {
            family: pl.concat([p[family] for _, p in moved if family in p])
            for family in PAYLOADS
            if any(family in p for _, p in moved)
        },
    )


STARTED = "execution.started"
_MOST = 2**40
_KEY = "key"
SESSION_KEY = ("source", "session_id")


@dataclass(frozen=True)
class Ordered:
    """Durable events, one row for each place in a session.

    Attributes
    ----------
    events : polars.DataFrame
        `log.EVENTS` with ``sid`` (a number that sorts as source and id do) and ``exec_no``,
        sorted by session and sequence.
    duplicates : polars.DataFrame
        ``source``, ``n_rows``: rows that were there before.
    conflicts : polars.DataFrame
        ``source``, ``session_id``, ``seq``, ``n_events``: places that several events claim.
    misplaced : polars.DataFrame
        ``source``, ``n_rows``: rows with a sequence number that cannot be one.
    """

    events: pl.DataFrame
    duplicates: pl.DataFrame
    conflicts: pl.DataFrame
    misplaced: pl.DataFrame


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
    is_place = pl.col("seq").is_between(0, _MOST, closed="left")
    placed = durable.filter(is_place)
    ids = placed.select(SESSION_KEY).unique().sort(SESSION_KEY).with_row_index("sid")
    keyed = (
        placed.join(ids, on=SESSION_KEY, how="left", maintain_order="left")
        .with_columns((pl.col("sid").cast(pl.Int64) * _MOST + pl.col("seq")).alias(_KEY))
        .sort(_KEY)
    )
    distinct, duplicates, conflicts = _distinct(keyed)
    return Ordered(
        _numbered(distinct.drop(_KEY)),
        duplicates,
        conflicts,
        n_by_source(durable.filter(~is_place)),
    )


def n_by_source(rows: pl.DataFrame) -> pl.DataFrame:
    """How many rows each ``source`` has, as ``n_rows``."""
    return rows.group_by("source", maintain_order=True).agg(n_rows=pl.len().cast(pl.Int64))


def _distinct(keyed: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """One row a place; how many more there were; the places that different events claim."""
    again = (pl.col(_KEY) == pl.col(_KEY).shift(1)).fill_null(value=False)
    shared = (again | again.shift(-1)).fill_null(value=False) | again
    several = keyed.filter(shared)
    if several.is_empty():
        return keyed, n_by_source(several), _conflicts(several)
    kept = several.sort(
        _KEY, "origin", "event_id", "type", "at_ms", "digest", nulls_last=True
    ).unique(_KEY, keep="first", maintain_order=True)
    again_rows = several.filter(~pl.col("row").is_in(kept["row"].implode()))
    distinct = pl.concat([keyed.filter(~shared), kept]).sort(_KEY)
    return distinct, n_by_source(again_rows), _conflicts(several)


def _conflicts(several: pl.DataFrame) -> pl.DataFrame:
    return (
        several.group_by(*SESSION_KEY, "seq")
        .agg(n_events=pl.col("event_id").n_unique())
        .filter(pl.col("n_events") > 1)
        .sort(*SESSION_KEY, "seq")
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
    """Put the source and the id of the session that its number ``sid`` stands for first."""
    ids = events.select("sid", *SESSION_KEY).unique("sid", keep="first")
    joined = frame.join(ids, on="sid", how="left", maintain_order="left")
    return joined.select("sid", *SESSION_KEY, pl.exclude("sid", *SESSION_KEY))


def is_terminal() -> pl.Expr:
    """Does an event end an execution."""
    return pl.col("kind").is_in(list(TERMINALS))

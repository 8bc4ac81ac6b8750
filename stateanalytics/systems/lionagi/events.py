"""Events: messages, signals, admin and team events, decisions of operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from stateanalytics.core import schema
from stateanalytics.io.parts import ReadTable
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.raw import Raw

_MAX_DETAIL = 500
_ALIVE = (
    "RunStart",
    "RunEnd",
    "RunFailed",
    "MessageAdded",
    "StructuredOutput",
    "NodeSpawned",
    "NodeQueued",
    "NodeStarted",
    "NodeCompleted",
    "NodeFailed",
    "NodeSkipped",
    "NodeCancelled",
    "NodeEscalated",
    "NodePaused",
    "NodeAwaitingApproval",
)
_NOISE = ("HookSignal", "DispatchSignal")
_MESSAGE_TABLES = ("messages", "progressions", "sessions", "branches")
_MOST_MESSAGES = 20_000
"""Above this number, it is faster to build the events of all messages."""
_MOST_PIECES = 64
"""Above this number of chunks, a frame is copied into one."""
_QUOTED_ID = r'"[^"\\]*"'


def listed_messages(owners: pl.DataFrame, progressions: pl.DataFrame) -> pl.DataFrame:
    """Pairs of messages and the sessions that list them.

    Parameters
    ----------
    owners : polars.DataFrame
        ``session_id`` and the ``progression_id`` that lists its messages.
    progressions : polars.DataFrame
        ``id`` and ``collection``, a JSON list of message ids.

    Returns
    -------
    polars.DataFrame, shape (n_pairs, 2)
        ``message_id``, ``session_id``; distinct pairs.
    """
    return (
        owners.join(
            progressions,
            left_on="progression_id",
            right_on="id",
            how="inner",
            maintain_order="left_right",
        )
        .select("session_id", message_id=pl.col("collection").str.extract_all(_QUOTED_ID))
        .explode("message_id", empty_as_null=False, keep_nulls=False)
        .select(pl.col("message_id").str.strip_chars('"'), "session_id")
        .unique(maintain_order=True)
    )


def message_events(raw: Raw) -> pl.DataFrame:
    """Messages as events, one row per session that lists each, with the size, not the text.

    A message belongs to the sessions of the branches that list it, else to the session that
    lists it itself; one that is in no list is kept without an entity.
    """
    messages = raw["messages"]
    if messages.is_empty():
        return _shaped(messages.select(entity_id="id"))
    by_branch = listed_messages(
        raw["branches"].select("session_id", "progression_id"), raw["progressions"]
    )
    rows = messages.join(
        by_branch, left_on="id", right_on="message_id", how="left", maintain_order="left_right"
    )
    if rows["session_id"].null_count():
        by_session = listed_messages(
            raw["sessions"].select("progression_id", session_id="id"), raw["progressions"]
        )
        is_listed = pl.col("session_id").is_not_null()
        others = rows.filter(~is_listed).drop("session_id")
        others = others.join(
            by_session, left_on="id", right_on="message_id", how="left", maintain_order="left_right"
        )
        rows = pl.concat([rows.filter(is_listed), others])
    return _shaped(
        rows.select(
            pl.col("role", "name", "size_bytes"),
            entity_type=pl.lit("session"),
            entity_id="session_id",
            at="created_at",
            seq="rowid",
            kind=pl.lit("message"),
            is_activity=pl.lit(value=True),
            **({"body": pl.col("body")} if "body" in rows.columns else {}),
        )
    )


def signal_events(raw: Raw) -> pl.DataFrame:
    """Signals of runs as events, as far as they were stored."""
    rows = raw["session_signals"]
    is_activity = (
        pl.when(pl.col("kind").is_in(_ALIVE))
        .then(pl.lit(value=True))
        .when(pl.col("kind").is_in(_NOISE))
        .then(pl.lit(value=False))
    )
    is_over = pl.col("kind").is_in(["NodeCompleted", "NodeFailed", "NodeCancelled"])
    return _shaped(
        rows.select(
            entity_type=pl.lit("session"),
            entity_id="session_id",
            at="ts",
            seq="seq",
            kind=pl.format("signal.{}", pl.col("kind").fill_null("unknown")),
            is_activity=is_activity,
            name=pl.coalesce("name", "point", pl.col("op_id").replace("", None)),
            size_bytes="size_bytes",
            # Nodes are timed in seconds (0 until they are over), runs in milliseconds.
            duration_s=pl.coalesce(
                pl.when(is_over).then("elapsed"), pl.col("duration_ms") / 1000.0
            ),
            detail=_short("error"),
            **({"body": pl.col("body")} if "body" in rows.columns else {}),
        )
    )


def admin_events(raw: Raw) -> pl.DataFrame:
    """Administrative actions as events, refused status changes among them."""
    return _shaped(
        raw["admin_events"].select(
            entity_type="target_type",
            entity_id="target_id",
            at="created_at",
            seq="rowid",
            kind=pl.format("admin.{}", pl.col("action").fill_null("unknown")),
            is_activity=pl.lit(value=False),
            role="actor",
            detail=_short("details"),
        )
    )


def attention_events(raw: Raw) -> pl.DataFrame:
    """Decisions of operators about attention items as events; no later decision removes one."""
    items = resolved_items(raw["attention_disposition_history"], raw)
    return _shaped(
        items.select(
            "entity_type",
            "entity_id",
            at="created_at",
            seq="sequence",
            kind=pl.format("attention.{}", pl.col("new_state").fill_null("unknown")),
            is_activity=pl.lit(value=False),
            role="actor",
            name="item_id",
            detail=_short("note"),
        )
    )


def team_events(raw: Raw) -> pl.DataFrame:
    """Messages between the members of a team as events."""
    rows = raw["team_messages"]
    return _shaped(
        rows.select(
            entity_type=pl.lit("team"),
            entity_id="team_id",
            at="created_at",
            seq="rowid",
            kind=pl.lit("team_message"),
            is_activity=pl.lit(value=True),
            role="sender",
            name="recipient",
            size_bytes="size_bytes",
            **({"body": pl.col("body")} if "body" in rows.columns else {}),
        )
    )


OTHER_KINDS = (signal_events, admin_events, attention_events, team_events)
"""Functions from tables to events that are no messages of a session."""


def _in_order(events: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Events of several kinds, sorted by ``at``, then ``seq``."""
    frames = [frame for frame in events if frame.height]
    pooled = pl.concat(frames) if frames else _shaped(schema.EVENTS.empty())
    return pooled.sort("at", "seq", nulls_last=True, maintain_order=True)


@dataclass(frozen=True)
class AllEvents:
    """All events of a store, and the parts that the next refresh starts from.

    Attributes
    ----------
    events : polars.DataFrame
        Of all kinds, sorted by ``at``, then ``seq``.
    messages : polars.DataFrame
        The messages among them.
    others : tuple of polars.DataFrame
        The other kinds.
    mentions : polars.DataFrame, optional
        ``list``, the row number of a list of messages, and ``message``, the hash of an id in it.
    """

    events: pl.DataFrame
    messages: pl.DataFrame
    others: tuple[pl.DataFrame, ...]
    mentions: pl.DataFrame | None = None


def refreshed_events(
    raw: Raw,
    kept: Mapping[str, ReadTable],
    others: Sequence[pl.DataFrame],
    before: AllEvents | None,
) -> AllEvents:
    """All events, of which only messages with changed rows or lists are built again.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables as they are now.
    kept : mapping of str to ReadTable
        The changes of each table since the last read.
    others : sequence of polars.DataFrame
        All events but messages.
    before : AllEvents, optional
        The result of the last read.
    """
    changes = None if before is None else _changed_messages(raw, kept, before)
    if before is None or changes is None:
        messages = message_events(raw)
        return AllEvents(_in_order([messages, *others]), messages, tuple(others))
    stale, fresh, mentions = changes
    messages = before.messages
    if len(stale) or fresh.height:
        unchanged = messages.filter(~pl.col("seq").is_in(stale.implode()))
        messages = pl.concat([unchanged, fresh])
    is_unchanged = all(now is known for now, known in zip(others, before.others, strict=True))
    appended = _appended(before.events, stale, fresh) if is_unchanged else None
    events = _in_order([messages, *others]) if appended is None else appended
    return AllEvents(events, messages, tuple(others), mentions)


def _changed_messages(
    raw: Raw, kept: Mapping[str, ReadTable], before: AllEvents
) -> tuple[pl.Series, pl.DataFrame, pl.DataFrame] | None:
    """Row numbers of changed messages, their events now, and the mentions; None: not known."""
    lists = kept["progressions"]
    if lists.numbers is None or any(
        raw[table] is not kept[table].rows for table in _MESSAGE_TABLES
    ):
        return None
    changed: dict[str, pl.DataFrame] = {}
    for table in _MESSAGE_TABLES:
        gone, came = kept[table].removed, kept[table].added
        if gone is None or came is None:
            return None
        changed[table] = pl.concat([gone, came])
    mentions = _refreshed_mentions(lists, before.mentions)
    owners = pl.concat([changed[table]["progression_id"] for table in ("sessions", "branches")])
    owned = raw["progressions"].filter(pl.col("id").is_in(owners.implode()))
    collections = pl.concat([changed["progressions"], owned])["collection"]
    listed = collections.str.extract_all(_QUOTED_ID).explode(empty_as_null=False, keep_nulls=False)
    ids = pl.concat([changed["messages"]["id"], listed.str.strip_chars('"')]).unique()
    if len(ids) > _MOST_MESSAGES:
        return None
    numbers = changed["messages"]["rowid"]
    is_changed = pl.col("id").is_in(ids.implode()) | pl.col("rowid").is_in(numbers.implode())
    messages = raw["messages"].filter(is_changed)
    hashes = ('"' + ids + '"').hash().implode()
    naming = mentions.filter(pl.col("message").is_in(hashes))["list"].unique()
    needed = raw["progressions"].filter(lists.numbers.is_in(naming.implode()))
    fresh = message_events({**raw, "messages": messages, "progressions": needed})
    stale = pl.concat([numbers, messages["rowid"]]).unique()
    return stale, fresh, mentions


def _refreshed_mentions(lists: ReadTable, before: pl.DataFrame | None) -> pl.DataFrame:
    """Pairs of lists and the messages in them."""
    assert lists.numbers is not None
    if before is None or lists.changed is None:
        return _mentions(lists.rows, lists.numbers)
    numbers = pl.Series([*lists.changed.before, *lists.changed.now], dtype=pl.Int64)
    if numbers.is_empty():
        return before
    is_new = lists.numbers.is_in(numbers.implode())
    new = _mentions(lists.rows.filter(is_new), lists.numbers.filter(is_new))
    return pl.concat([before.filter(~pl.col("list").is_in(numbers.implode())), new])


def _mentions(lists: pl.DataFrame, numbers: pl.Series) -> pl.DataFrame:
    named = pl.col("collection").str.extract_all(_QUOTED_ID)
    return (
        lists.select(named.alias("message"), list=numbers)
        .explode("message", empty_as_null=False, keep_nulls=False)
        .select("list", pl.col("message").hash())
    )


def _appended(events: pl.DataFrame, stale: pl.Series, fresh: pl.DataFrame) -> pl.DataFrame | None:
    """The events with changed messages at their end; None where others lie between them."""
    if stale.is_empty() and fresh.is_empty():
        return events
    is_stale = (pl.col("kind") == "message") & pl.col("seq").is_in(stale.implode())
    places = events.select(is_stale.arg_true()).to_series()
    first = places[0] if len(places) else events.height
    if len(places) != events.height - first:
        return None
    unchanged, new = events.head(first), _in_order([fresh])
    if unchanged.height and new.height:
        last_at, next_at = unchanged["at"][-1], new["at"][0]
        if last_at is None or next_at is None or next_at <= last_at:
            return None
    rows = pl.concat([unchanged, new])
    return rows.rechunk() if rows.n_chunks() > _MOST_PIECES else rows


def resolved_items(items: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """Items with the entity that each ``item_id`` names: ``run:``, ``inv:``, ``sched:``, ``play:``.

    An ``item_id`` has the topic of the show and the name of a play, the id of others; null
    where the store has no such entity.
    """
    prefixes = {"run": "session", "inv": "invocation", "sched": "schedule"}
    tables = {"session": "sessions", "invocation": "invocations", "schedule": "schedules"}
    wanted = items.select("item_id").unique().drop_nulls()
    by_id = [
        wanted.select(
            "item_id",
            entity_type=pl.lit(entity_type),
            entity_id=pl.col("item_id").str.strip_prefix(f"{prefix}:"),
        )
        .filter(pl.col("item_id").str.starts_with(f"{prefix}:"))
        .join(raw[tables[entity_type]].select(entity_id="id"), on="entity_id", how="semi")
        for prefix, entity_type in prefixes.items()
    ]
    topics = raw["shows"].select("topic", show_id="id")
    played = (
        raw["plays"]
        .join(topics, on="show_id", how="inner")
        .select(
            item_id=pl.format("play:{}:{}", "topic", "name"),
            entity_type=pl.lit("play"),
            entity_id="id",
        )
    )
    named = pl.concat([*by_id, played.unique("item_id", keep="first", maintain_order=True)])
    return items.join(named, on="item_id", how="left", maintain_order="left")


def _short(column: str) -> pl.Expr:
    return pl.col(column).str.slice(0, _MAX_DETAIL)


def _shaped(frame: pl.DataFrame) -> pl.DataFrame:
    names = [name for name in schema.EVENTS.dtypes.names() if name not in ("source", "system")]
    return schema.EVENTS.conform(frame).select(names)


def dispositions(raw: Raw) -> pl.DataFrame:
    """Items that an operator set aside, each with the entity that it names.

    Returns
    -------
    polars.DataFrame, shape (n_items, 10)
        `frames.DISPOSITIONS` without ``source``.
    """
    names = [name for name in frames.DISPOSITIONS.dtypes.names() if name != "source"]
    return resolved_items(raw["attention_dispositions"], raw).select(names)


def decisions(raw: Raw) -> pl.DataFrame:
    """Decisions of operators, where the release keeps a history of them.

    Returns
    -------
    polars.DataFrame, shape (n_decisions, 9)
        `frames.DECISIONS` without ``source``.
    """
    names = [name for name in frames.DECISIONS.dtypes.names() if name != "source"]
    items = resolved_items(raw["attention_disposition_history"], raw)
    return items.rename({"created_at": "at", "sequence": "seq", "new_state": "state"}).select(names)

"""Everything that happened, from what happened before and the rows that changed since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from stateanalytics.io.parts import ReadTable
from stateanalytics.systems.lionagi.events import ID_IN_LIST, in_order, message_events
from stateanalytics.systems.lionagi.raw import Raw

_TABLES = ("messages", "progressions", "sessions", "branches")
_MOST_MESSAGES = 20_000
"""Of more messages it is sooner told with all the others whose they are."""


@dataclass(frozen=True)
class Happened:
    """Everything that happened, and what it was put together from.

    Attributes
    ----------
    events : polars.DataFrame
        As `events.events` gives them.
    of_messages : polars.DataFrame
        The messages among them.
    others : tuple of polars.DataFrame
        All else among them.
    mentions : polars.DataFrame, optional
        ``list``, the number of a list of messages, and ``message``, a hash of what it names.
    """

    events: pl.DataFrame
    of_messages: pl.DataFrame
    others: tuple[pl.DataFrame, ...]
    mentions: pl.DataFrame | None = None


def events_since(
    raw: Raw,
    kept: Mapping[str, ReadTable],
    others: Sequence[pl.DataFrame],
    before: Happened | None,
) -> Happened:
    """What `events.events` gives, from the messages whose own rows or lists changed.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables as they are now.
    kept : mapping of str to ReadTable
        How they differ from those before.
    others : sequence of polars.DataFrame
        All events but messages.
    before : Happened, optional
        What the read before gave.
    """
    again = None if before is None else _messages_since(raw, kept, before)
    if before is None or again is None:
        messages = message_events(raw)
        return Happened(in_order([messages, *others]), messages, tuple(others))
    stale, fresh, mentions = again
    of_messages = before.of_messages
    if len(stale) or fresh.height:
        left = of_messages.filter(~pl.col("seq").is_in(stale.implode()))
        of_messages = pl.concat([left, fresh])
    are_same = all(one is other for one, other in zip(others, before.others, strict=True))
    appended = _appended(before.events, stale, fresh) if are_same else None
    events = in_order([of_messages, *others]) if appended is None else appended
    return Happened(events, of_messages, tuple(others), mentions)


def _messages_since(
    raw: Raw, kept: Mapping[str, ReadTable], before: Happened
) -> tuple[pl.Series, pl.DataFrame, pl.DataFrame] | None:
    """Numbers of messages to be told anew, their events, and which lists name which; or None."""
    lists = kept["progressions"]
    if lists.numbers is None or any(raw[table] is not kept[table].rows for table in _TABLES):
        return None
    gone = {name: rows for name in _TABLES if (rows := kept[name].removed) is not None}
    came = {name: rows for name in _TABLES if (rows := kept[name].added) is not None}
    if len(gone) + len(came) < 2 * len(_TABLES):
        return None
    mentions = _mentions_since(lists, before.mentions)
    owners = [rows[table]["progression_id"] for rows in (gone, came) for table in _TABLES[2:]]
    owned = raw["progressions"].filter(pl.col("id").is_in(pl.concat(owners).implode()))
    changed_lists = pl.concat([gone["progressions"], came["progressions"], owned])
    ids = pl.concat(
        [
            gone["messages"]["id"],
            came["messages"]["id"],
            _quoted_ids(changed_lists["collection"]).str.strip_chars('"'),
        ]
    ).unique()
    if len(ids) > _MOST_MESSAGES:
        return None
    numbers = pl.concat([gone["messages"]["rowid"], came["messages"]["rowid"]])
    is_told_anew = pl.col("id").is_in(ids.implode()) | pl.col("rowid").is_in(numbers.implode())
    messages = raw["messages"].filter(is_told_anew)
    hashes = ('"' + ids + '"').hash().implode()
    naming = mentions.filter(pl.col("message").is_in(hashes))["list"].unique()
    needed = raw["progressions"].filter(lists.numbers.is_in(naming.implode()))
    fresh = message_events({**raw, "messages": messages, "progressions": needed})
    stale = pl.concat([numbers, messages["rowid"]]).unique()
    return stale, fresh, mentions


def _mentions_since(lists: ReadTable, before: pl.DataFrame | None) -> pl.DataFrame:
    """Which lists name which messages now."""
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
    named = pl.col("collection").str.extract_all(ID_IN_LIST)
    return (
        lists.select(named.alias("message"), list=numbers)
        .explode("message", empty_as_null=False, keep_nulls=False)
        .select("list", pl.col("message").hash())
    )


def _quoted_ids(collections: pl.Series) -> pl.Series:
    return collections.str.extract_all(ID_IN_LIST).explode(empty_as_null=False, keep_nulls=False)


def _appended(events: pl.DataFrame, stale: pl.Series, fresh: pl.DataFrame) -> pl.DataFrame | None:
    """The events with some messages told anew, where those are the last; else None."""
    if stale.is_empty() and fresh.is_empty():
        return events
    is_stale = (pl.col("kind") == "message") & pl.col("seq").is_in(stale.implode())
    places = events.select(is_stale.arg_true()).to_series()
    first = places[0] if len(places) else events.height
    if len(places) != events.height - first:
        return None
    left, new = events.head(first), in_order([fresh])
    if left.height and new.height:
        last_at, next_at = left["at"][-1], new["at"][0]
        if last_at is None or next_at is None or next_at <= last_at:
            return None
    rows = pl.concat([left, new])
    return rows.rechunk() if rows.n_chunks() > _MOST_PIECES else rows


_MOST_PIECES = 64

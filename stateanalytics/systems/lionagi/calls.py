"""Calls of tools, from the messages of a store; contents are read only when calls are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.schema import RESULTS
from stateanalytics.io.cells import INTEGER, JSON, ROWID, TEXT, Cell, Kind
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.base import stores_of
from stateanalytics.systems.call_texts import inputs_of, results_of
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.events import listed_messages
from stateanalytics.systems.lionagi.raw import SYSTEM, key_of
from stateanalytics.systems.provider_errors import cause_in
from stateanalytics.systems.tool_calls import MOST_MESSAGE_CHARS, calls_from, ends_of

_PIECE = 20_000
"""Messages whose contents are in memory at once."""
_REQUEST, _ANSWER = 4, 5
"""``lion_class`` of a call of a tool, and of its answer."""
_FIRST_LINES = r"\A((?:[^\n]*\n){0,7}[^\n]*)"
_EXIT_CODE = r"(?im)^(?:.*process exited with code.*?|exit code:)\s*(-?\d+)\.?\s*$"
_COMPLAINT = r"error:|failed|permission denied|not found"
_PRUNED = "lion_content_pruned"


def _content(value: str, kind: Kind = "text") -> Cell:
    sound = "typeof(content) = 'text' AND json_valid(content)"
    return Cell(kind, f"CASE WHEN {sound} THEN {value} END", ("content",))


def _text(path: str) -> Cell:
    return _content(f"CAST(json_extract(content, '$.{path}') AS TEXT)")


def _ends(path: str) -> Cell:
    """A text of which the beginning and the end are enough."""
    return _content(ends_of(f"CAST(json_extract(content, '$.{path}') AS TEXT)"))


def _has(*keys: str) -> Cell:
    types = [f"json_type(content, '$.{key}') IS NOT NULL" for key in keys]
    return _content(" OR ".join(types), "yes_no")


_CELLS = {
    "rowid": ROWID,
    "id": TEXT,
    "lion_class": INTEGER,
    "function": _text("function"),
    "asked": _text("arguments"),
    "request_id": _text("action_request_id"),
    "output": _ends("output"),
    "error": _ends("error"),
    "error_of_output": _ends("output.error"),
    "is_answer": _has("output", "error", "action_request_id", _PRUNED),
    "is_pruned": _has(_PRUNED),
    "is_marked": Cell("yes_no", key_of("node_metadata", "is_error"), ("node_metadata",)),
}

_SAID = {
    "rowid": ROWID,
    "text": _content(
        "coalesce(json_extract(content, '$.assistant_response'), "
        "json_extract(content, '$.instruction'))"
    ),
}


def read_calls(store: Store, events: pl.DataFrame, label: str) -> pl.DataFrame:
    """The calls of tools in the messages of a store.

    Parameters
    ----------
    store : Store
        An open lionagi store.
    events : polars.DataFrame
        Its events: the ``seq`` of a message is its row number.
    label : str
        The user's name of the store.

    Returns
    -------
    polars.DataFrame
        `frames.CALLS`. An answer without its request is a call without a beginning.

    Notes
    -----
    A call failed where its answer is marked so or has an error, or where its output shows one
    by lionagi's own rule: an exit code other than 0 in the first eight lines, or a complaint in
    the first 300 characters together with "no such file or directory".
    """
    is_action = (pl.col("kind") == "message") & pl.col("role").is_in(["action", "tool"])
    listed = events.filter(is_action & pl.col("entity_id").is_not_null()).select(
        "at", rowid="seq", session_id="entity_id"
    )
    numbers = listed["rowid"].unique(maintain_order=True)
    pieces = [numbers.slice(begin, _PIECE) for begin in range(0, max(1, len(numbers)), _PIECE)]
    messages = (
        pl.concat(_read(store, piece) for piece in pieces)
        .join(listed.unique("rowid", keep="first"), on="rowid", maintain_order="left")
        .join(_parts(store), left_on="id", right_on="message_id", how="left")
        .drop_nulls("id")
        .sort("at", "rowid", nulls_last=True)
        .unique("id", keep="first", maintain_order=True)
    )
    asked = ~pl.col("is_answer") & (pl.col("lion_class") != _ANSWER).fill_null(value=True)
    requests = messages.filter(asked, pl.col("function").is_not_null())
    ends = messages.filter("is_answer", (pl.col("lion_class") != _REQUEST).fill_null(value=True))
    of_answer = ("is_error", "message", "exit_code", *RESULTS.dtypes)
    answers = ends.select(
        *("session_id", "part_id", "function", *of_answer),
        answer_id="id",
        ended_at="at",
        call_id=pl.coalesce("request_id", "id"),
    ).unique("call_id", keep="first", maintain_order=True)
    both = requests.drop(*of_answer, "request_id").join(
        answers, left_on="id", right_on="call_id", how="full", maintain_order="left_right"
    )
    shared = ("session_id", "part_id", "function")
    called = both.with_columns(
        *(pl.coalesce(name, f"{name}_right") for name in shared),
        source=pl.lit(label),
        call_id="id",
        entity_id=pl.coalesce("id", "answer_id"),
        started_at="at",
    ).with_columns(
        thread_id="session_id",
        tool="function",
        cause=pl.when("is_error").then(cause_in(pl.col("message"))),
    )
    return frames.CALLS.conform(calls_from(called, SYSTEM))


def texts(facts: Facts, entity: Mapping[str, Any]) -> pl.DataFrame:
    """The messages of people and models in a session, from its store while that is open.

    Returns
    -------
    polars.DataFrame
        ``at``, ``role`` and ``text``, in order.
    """
    is_session = entity["entity_type"] == "session"
    listed = facts.events.filter(
        pl.col("role").is_in(["user", "assistant"]),
        source=entity["source"],
        kind="message",
        entity_id=entity["entity_id"] if is_session else entity["session_id"],
    ).select("at", "role", rowid="seq")
    said = listed.clear().with_columns(text=pl.lit(None, pl.String))
    for store in stores_of(facts, entity["source"]):
        numbers = listed["rowid"].to_list()
        found, _ = read_table(store, "messages", _SAID, system=SYSTEM, only=numbers)
        said = listed.join(found, on="rowid", maintain_order="left")
    return said.select("at", "role", "text").drop_nulls()


def _read(store: Store, numbers: pl.Series) -> pl.DataFrame:
    """Messages with what their contents say, without the contents."""
    rows, _ = read_table(store, "messages", _CELLS, system=SYSTEM, only=numbers.to_list())
    error = pl.coalesce(pl.col("error", "error_of_output").replace("", None))
    output = pl.col("output").fill_null("")
    code = output.str.extract(_FIRST_LINES).str.extract(_EXIT_CODE).cast(pl.Int64, strict=False)
    begin = output.str.slice(0, 300).str.to_lowercase()
    is_missing = output.str.to_lowercase().str.contains("no such file or directory", literal=True)
    shows = (code.fill_null(0) != 0) | (begin.str.contains(_COMPLAINT) & is_missing)
    is_error = pl.col("is_marked").fill_null(value=False) | error.is_not_null() | shows
    judged = rows.with_columns(
        pl.col("is_answer").fill_null(value=False),
        is_error=pl.when("is_answer", ~pl.col("is_pruned")).then(is_error),
        exit_code=code,
    ).with_columns(
        message=pl.when("is_error").then(
            pl.coalesce(error, "output").str.strip_chars().str.slice(0, MOST_MESSAGE_CHARS)
        )
    )
    return judged.drop(
        "asked", "output", "error", "error_of_output", "is_marked", "is_pruned"
    ).hstack([*inputs_of(rows["asked"]), *results_of(rows["output"])])


def _parts(store: Store) -> pl.DataFrame:
    """Messages of sessions with several branches, which may work at once, with their branch."""
    cells = {"id": TEXT, "session_id": TEXT, "progression_id": TEXT}
    branches = read_table(store, "branches", cells)[0]
    several = branches.filter(pl.len().over("session_id") > 1)
    if several.is_empty():
        return pl.DataFrame(schema={"message_id": pl.String, "part_id": pl.String})
    lists = read_table(store, "progressions", {"id": TEXT, "collection": JSON})[0]
    listed = listed_messages(several.select("progression_id", session_id="id"), lists)
    return listed.rename({"session_id": "part_id"}).unique("message_id", keep="first")

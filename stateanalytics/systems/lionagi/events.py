"""Events of a store, and the calls of tools and turns in its messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.schema import RESULTS
from stateanalytics.io.cells import INTEGER, JSON, ROWID, TEXT, Cell, Kind
from stateanalytics.io.parts import ReadTable, changed_rows
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems import tool_calls
from stateanalytics.systems.base import stores_of
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.frames import SYSTEM, Raw, key_of
from stateanalytics.systems.situations import cause_in
from stateanalytics.systems.tool_calls import MOST_MESSAGE_CHARS

_MAX_DETAIL = 500
_ALIVE = (
    *("RunStart", "RunEnd", "RunFailed", "MessageAdded", "StructuredOutput", "NodeSpawned"),
    *("NodeQueued", "NodeStarted", "NodeCompleted", "NodeFailed", "NodeSkipped"),
    *("NodeCancelled", "NodeEscalated", "NodePaused", "NodeAwaitingApproval"),
)
_NOISE = ("HookSignal", "DispatchSignal")
_QUOTED_ID = r'"[^"\\]*"'
_UNQUOTED = pl.element().str.strip_chars('"')
# A list without a backslash is split in a third of the time.
_LISTED = pl.col("collection").str.split('"').list.gather_every(2, 1)


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
    named = progressions.rename({"id": "progression_id"})
    lists = owners.join(named, on="progression_id", maintain_order="left_right")
    ids = _LISTED
    if lists["collection"].str.contains("\\", literal=True).any():
        ids = pl.col("collection").str.extract_all(_QUOTED_ID).list.eval(_UNQUOTED)
    pairs = lists.select(ids.alias("message_id"), "session_id").explode(
        "message_id", empty_as_null=False, keep_nulls=False
    )
    is_unique = pairs["message_id"].n_unique() == pairs.height
    return pairs if is_unique else pairs.unique(maintain_order=True)


def message_events(raw: Raw) -> pl.DataFrame:
    """Messages as events, one row per session that lists each, with the size, not the text.

    A message belongs to the sessions of the branches that list it, else to the session that
    lists it itself; one that is in no list is kept without an entity.
    """
    messages = raw["messages"]
    of_branches = raw["branches"].select("session_id", "progression_id")
    by_branch = listed_messages(of_branches, raw["progressions"])
    rows = messages.join(
        by_branch, left_on="id", right_on="message_id", how="left", maintain_order="left_right"
    )
    if rows["session_id"].null_count():
        # Messages of the list of a branch have their session.
        of_sessions = raw["sessions"].select("progression_id", session_id="id")
        lists = raw["progressions"].join(
            of_branches.drop_nulls(), left_on="id", right_on="progression_id", how="anti"
        )
        by_session = listed_messages(of_sessions, lists)
        is_listed = pl.col("session_id").is_not_null()
        others = rows.filter(~is_listed).drop("session_id")
        others = others.join(
            by_session, left_on="id", right_on="message_id", how="left", maintain_order="left_right"
        )
        rows = pl.concat([rows.filter(is_listed), others])
    return schema.EVENTS.conform(
        rows.select(
            pl.col("role", "name", "size_bytes", "^body$"),
            entity_type=pl.lit("session"),
            entity_id="session_id",
            at="created_at",
            seq="rowid",
            kind=pl.lit("message"),
            is_activity=pl.lit(value=True),
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
    return schema.EVENTS.conform(
        rows.select(
            pl.col("seq", "size_bytes", "^body$"),
            entity_type=pl.lit("session"),
            entity_id="session_id",
            at="ts",
            kind=pl.format("signal.{}", pl.col("kind").fill_null("unknown")),
            is_activity=is_activity,
            name=pl.coalesce("name", "point", pl.col("op_id").replace("", None)),
            # Nodes are timed in seconds (0 until they are over), runs in milliseconds.
            duration_s=pl.coalesce(
                pl.when(is_over).then("elapsed"), pl.col("duration_ms") / 1000.0
            ),
            detail=_short("error"),
        )
    )


def admin_events(raw: Raw) -> pl.DataFrame:
    """Administrative actions as events, refused status changes among them."""
    return schema.EVENTS.conform(
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
    return schema.EVENTS.conform(
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
    return schema.EVENTS.conform(
        raw["team_messages"].select(
            pl.col("size_bytes", "^body$"),
            entity_type=pl.lit("team"),
            entity_id="team_id",
            at="created_at",
            seq="rowid",
            kind=pl.lit("team_message"),
            is_activity=pl.lit(value=True),
            role="sender",
            name="recipient",
        )
    )


def all_events(raw: Raw, messages: pl.DataFrame | None = None) -> pl.DataFrame:
    """Events of all kinds, sorted by ``at``, then ``seq``; those of messages may be known."""
    known = message_events(raw) if messages is None else messages
    kinds = (signal_events, admin_events, attention_events, team_events)
    frames = [frame for frame in (known, *(kind(raw) for kind in kinds)) if frame.height]
    pooled = pl.concat(frames) if frames else schema.EVENTS.empty()
    return pooled.sort("at", "seq", nulls_last=True, maintain_order=True)


def refreshed_events(
    store: Store, raw: Raw, before: Mapping[str, ReadTable] | None, now: Mapping[str, ReadTable]
) -> pl.DataFrame:
    """`all_events`; those of messages and lists that did not change are as they were.

    Parameters
    ----------
    store : Store
    raw : mapping of str to polars.DataFrame
        Its tables.
    before, now : mapping of str to ReadTable
        Its tables as read earlier, with the events of that read as ``events``, and as read now.
    """
    ids = None if before is None else _changed_messages(store, raw, before, now)
    if before is None or ids is None:
        return all_events(raw)
    old = before["messages"].rows
    stale = old.filter(pl.col("id").is_in(ids.implode()))["rowid"]
    is_kept = (pl.col("kind") == "message") & ~pl.col("seq").is_in(stale.implode())
    # A list that has an id within another one gives a pair that is not used.
    is_listing = pl.col("collection").str.contains_any(ids.implode())
    changed = {
        "messages": raw["messages"].filter(pl.col("id").is_in(ids.implode())),
        "progressions": raw["progressions"].filter(is_listing),
    }
    again = message_events({**raw, **changed})
    return all_events(raw, pl.concat([before["events"].rows.filter(is_kept), again]))


_LISTING = {"sessions": ("id", "progression_id"), "branches": ("session_id", "progression_id")}
_MOST_CHANGED = 5000


def _changed_messages(
    store: Store, raw: Raw, before: Mapping[str, ReadTable], now: Mapping[str, ReadTable]
) -> pl.Series | None:
    """Ids of messages that changed, or are in a list that did; None where any may have."""
    changed = {
        table: changed_rows(store, table, before.get(table))
        for table in ("messages", "progressions")
    }
    is_elsewhere = any(
        not before[table].rows.select(columns).equals(raw[table].select(columns))
        for table, columns in _LISTING.items()
    )
    if is_elsewhere or raw["progressions"]["collection"].str.contains("\\", literal=True).any():
        return None
    ids = []
    for table, rows in changed.items():
        if rows is None:
            return None
        for read, numbers in ((before[table], rows.before), (now[table], rows.now)):
            if read.numbers is None:
                return None
            some = read.rows.filter(read.numbers.is_in(list(numbers)))
            if table == "progressions":
                some = some.select(id=_LISTED).explode("id", empty_as_null=False, keep_nulls=False)
            ids.append(some["id"])
    found = pl.concat(ids).unique()
    return None if found.null_count() or len(found) > _MOST_CHANGED else found


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


_PIECE = 20_000
"""Messages whose contents are in memory at once."""
_REQUEST, _ANSWER = 4, 5
"""``lion_class`` of a call of a tool, and of its answer."""
_FIRST_LINES = r"\A((?:[^\n]*\n){0,7}[^\n]*)"
_EXIT_CODE = r"(?im)^(?:.*process exited with code.*?|exit code:)\s*(-?\d+)\.?\s*$"
_COMPLAINT = r"error:|failed|permission denied|not found"
_PRUNED = "lion_content_pruned"


def calls(facts: Facts) -> pl.DataFrame:
    """Its calls of tools, in the shape of `schema.CALLS`."""
    return tool_calls.in_order(facts.detail(frames.CALLS))


def turns(facts: Facts) -> pl.DataFrame:
    """Its turns, in the shape of `schema.TURNS`."""
    return facts.detail(frames.TURNS)


def _content(value: str, kind: Kind = "text") -> Cell:
    sound = "typeof(content) = 'text' AND json_valid(content)"
    return Cell(kind, f"CASE WHEN {sound} THEN {value} END", ("content",))


def _text(path: str) -> Cell:
    return _content(f"CAST(json_extract(content, '$.{path}') AS TEXT)")


def _ends(path: str) -> Cell:
    """A text of which the beginning and the end are enough."""
    return _content(tool_calls.ends_of(f"CAST(json_extract(content, '$.{path}') AS TEXT)"))


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


_IDS = {"rowid": ROWID, "id": TEXT}
_WORDS = {
    "rowid": ROWID,
    "words": _content("substr(trim(json_extract(content, '$.assistant_response')), 1, 1000)"),
}


class Instructions(NamedTuple):
    """What begins the turns of a store.

    Attributes
    ----------
    turns : polars.DataFrame
        Instructions, each with the number of its turn in the session.
    parts : polars.DataFrame
        Messages of sessions with several branches, which may work at once, with their branch.
    """

    turns: pl.DataFrame
    parts: pl.DataFrame


def read_instructions(store: Store, events: pl.DataFrame) -> Instructions:
    """Read what begins the turns of a store; parameters are as for `read_calls`."""
    parts = _parts(store)
    turns = (
        _with_ids(store, events, parts, "user")
        .sort("session_id", "at", "rowid", nulls_last=True)
        .with_columns(turn_no=pl.int_range(1, pl.len() + 1).over("session_id"))
        .rename({"at": "started_at"})
    )
    return Instructions(turns, parts)


def read_calls(
    store: Store, events: pl.DataFrame, label: str, instructions: Callable[[], Instructions]
) -> pl.DataFrame:
    """The calls of tools in the messages of a store.

    Parameters
    ----------
    store : Store
        An open lionagi store.
    events : polars.DataFrame
        Its events: the ``seq`` of a message is its row number.
    label : str
        The user's name of the store.
    instructions : callable
        The result of `read_instructions`, which calls and turns share.

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
    turns, parts = instructions()
    pieces = [numbers.slice(begin, _PIECE) for begin in range(0, max(1, len(numbers)), _PIECE)]
    messages = (
        pl.concat(_read(store, piece) for piece in pieces)
        .join(listed.unique("rowid", keep="first"), on="rowid", maintain_order="left")
        .join(parts, left_on="id", right_on="message_id", how="left")
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
    )
    called = _in_turns(called, turns, "started_at").with_columns(
        thread_id="session_id",
        tool="function",
        cause=pl.when("is_error").then(cause_in(pl.col("message"))),
    )
    return frames.CALLS.conform(tool_calls.calls_from(called, SYSTEM))


def texts(facts: Facts, entity: Mapping[str, Any]) -> pl.DataFrame:
    """The messages of people and models in a session, from its store while that is open.

    Returns
    -------
    polars.DataFrame
        ``at``, ``role`` and ``text``, in order.
    """
    is_session = entity["entity_type"] == "session"
    # A play may have no session.
    session = pl.lit(entity["entity_id"] if is_session else entity["session_id"], pl.String)
    listed = (
        facts.events.lazy()
        .filter(
            pl.col("role").is_in(["user", "assistant"]),
            pl.col("entity_id") == session,
            source=entity["source"],
            kind="message",
        )
        .select("at", "role", rowid="seq")
        .collect()
    )
    said = listed.lazy().with_columns(text=pl.lit(None, pl.String))
    for store in stores_of(facts, entity["source"]):
        numbers = listed["rowid"].to_list()
        found, _ = read_table(store, "messages", _SAID, system=SYSTEM, only=numbers)
        said = listed.lazy().join(found.lazy(), on="rowid", maintain_order="left")
    return said.select("at", "role", "text").drop_nulls().collect()


def read_turns(
    store: Store, events: pl.DataFrame, label: str, instructions: Callable[[], Instructions]
) -> pl.DataFrame:
    """The turns in the messages of a store: an instruction, and what was done for it.

    Parameters
    ----------
    store, events, label, instructions
        As for `read_calls`.

    Returns
    -------
    polars.DataFrame
        `frames.TURNS`. Whether a person or a program instructed is not recorded, so that no
        turn is a correction.
    """
    turns, parts = instructions()
    words = pl.col("words").str.slice(0, MOST_MESSAGE_CHARS)
    last = (
        _in_turns(_with_ids(store, events, parts, "assistant"), turns, "at")
        .group_by("session_id", "turn_no")
        .agg(pl.col("at", "rowid").sort_by("at", "rowid").last())
        .rename({"at": "ended_at"})
    )
    # Of all that a model says, only what it says last is read.
    numbers = last["rowid"].unique().to_list()
    said = read_table(store, "messages", _WORDS, system=SYSTEM, only=numbers)[0]
    last = last.join(said, on="rowid", how="left").drop("rowid")
    return frames.TURNS.conform(
        turns.join(last, on=["session_id", "turn_no"], how="left").with_columns(
            source=pl.lit(label),
            system=pl.lit(SYSTEM),
            thread_id="session_id",
            entity_type=pl.lit("turn"),
            entity_id="id",
            gives_up=tool_calls.phrase_in(words, "gives_up"),
            is_question=tool_calls.phrase_in(words, "asks"),
        )
    )


def _with_ids(store: Store, events: pl.DataFrame, parts: pl.DataFrame, role: str) -> pl.DataFrame:
    """Messages of a role in sessions, with their ids, and their branch where it matters."""
    listed = events.filter(pl.col("entity_id").is_not_null(), kind="message", role=role).select(
        "at", rowid="seq", session_id="entity_id"
    )
    numbers = listed["rowid"].unique().to_list()
    rows = read_table(store, "messages", _IDS, system=SYSTEM, only=numbers)[0]
    return listed.join(rows.drop_nulls("id"), on="rowid").join(
        parts, left_on="id", right_on="message_id", how="left"
    )


def _in_turns(rows: pl.DataFrame, turns: pl.DataFrame, at: str) -> pl.DataFrame:
    """Rows with the number of the turn of their session and branch that had begun last."""
    part = pl.col("part_id").fill_null("").alias("_part")
    begun = turns.select("session_id", part, "turn_no", pl.col("started_at").alias(at))
    return (
        rows.with_columns(part)
        .sort(at)
        .join_asof(
            begun.drop_nulls(at).sort(at), on=at, by=["session_id", "_part"], check_sortedness=False
        )
        .drop("_part")
    )


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
            tool_calls.ends_in(pl.coalesce(error, "output").str.strip_chars())
        )
    )
    return judged.drop(
        "asked", "output", "error", "error_of_output", "is_marked", "is_pruned"
    ).hstack([*tool_calls.inputs_of(rows["asked"]), *tool_calls.results_of(rows["output"])])


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

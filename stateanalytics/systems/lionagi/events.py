"""Messages, signals, admin and team events, dispositions and errors of tools, as events."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from stateanalytics.core import schema
from stateanalytics.io.cells import JSON, TEXT, Cell
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.raw import SYSTEM, Raw

MAX_DETAIL = 500
MS_PER_S = 1000.0
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
ID_IN_LIST = r'"[^"\\]*"'


def listed_messages(owners: pl.DataFrame, progressions: pl.DataFrame) -> pl.DataFrame:
    """Which session each message belongs to, by the lists that name messages.

    Parameters
    ----------
    owners : polars.DataFrame
        ``session_id`` and the ``progression_id`` that lists its messages.
    progressions : polars.DataFrame
        ``id`` and ``collection``, a JSON list of message ids.

    Returns
    -------
    polars.DataFrame, shape (n_pairs, 2)
        ``message_id``, ``session_id``, each pair once.
    """
    return (
        owners.join(
            progressions,
            left_on="progression_id",
            right_on="id",
            how="inner",
            maintain_order="left_right",
        )
        .select("session_id", message_id=pl.col("collection").str.extract_all(ID_IN_LIST))
        .explode("message_id", empty_as_null=False, keep_nulls=False)
        .select(pl.col("message_id").str.strip_chars('"'), "session_id")
        .unique(maintain_order=True)
    )


def message_events(raw: Raw) -> pl.DataFrame:
    """One row a message and session that lists it, with its size instead of its text.

    A message belongs to the sessions whose branches list it, else to the session whose
    own list names it; one that no list names is kept without an entity.
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
        unlisted = rows.filter(pl.col("session_id").is_null()).drop("session_id")
        rows = pl.concat(
            [
                rows.filter(pl.col("session_id").is_not_null()),
                unlisted.join(
                    by_session,
                    left_on="id",
                    right_on="message_id",
                    how="left",
                    maintain_order="left_right",
                ),
            ]
        )
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
    """One row a signal that a run sent, delivered as far as it could be stored."""
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
                pl.when(is_over).then("elapsed"), pl.col("duration_ms") / MS_PER_S
            ),
            detail=_short("error"),
            **({"body": pl.col("body")} if "body" in rows.columns else {}),
        )
    )


def admin_events(raw: Raw) -> pl.DataFrame:
    """One row an administrative action, refused transitions among them."""
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
    """One row a decision of an operator about an attention item; it is never forgotten."""
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
    """One row a message between the members of a team."""
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


def events(raw: Raw) -> pl.DataFrame:
    """Everything that happened, in order of time.

    Returns
    -------
    polars.DataFrame, shape (n_events, ...)
        Names as in `stateanalytics.core.schema.EVENTS`; sorted by ``at``, then ``seq``.
    """
    return in_order([kind(raw) for kind in (message_events, *OTHER_KINDS)])


OTHER_KINDS = (signal_events, admin_events, attention_events, team_events)
"""From tables to events that are no messages of a session."""


def in_order(events: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Events of several kinds in order of time."""
    frames = [frame for frame in events if frame.height]
    pooled = pl.concat(frames) if frames else _shaped(schema.EVENTS.empty())
    return pooled.sort("at", "seq", nulls_last=True, maintain_order=True)


def resolved_items(items: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """Add the entity that each ``item_id`` names: ``run:``, ``inv:``, ``sched:``, ``play:``.

    A play is named by its show's topic and its own name, the others by their id; null
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
    return pl.col(column).str.slice(0, MAX_DETAIL)


def _shaped(frame: pl.DataFrame) -> pl.DataFrame:
    names = [name for name in schema.EVENTS.dtypes.names() if name not in ("source", "system")]
    return schema.EVENTS.conform(frame).select(names)


def dispositions(raw: Raw) -> pl.DataFrame:
    """One row an item that an operator set aside, with the entity that it names.

    Returns
    -------
    polars.DataFrame, shape (n_items, 10)
        `frames.DISPOSITIONS` without ``source``.
    """
    names = [name for name in frames.DISPOSITIONS.dtypes.names() if name != "source"]
    return resolved_items(raw["attention_dispositions"], raw).select(names)


def decisions(raw: Raw) -> pl.DataFrame:
    """One row a decision of an operator, where the release keeps a history of them.

    Returns
    -------
    polars.DataFrame, shape (n_decisions, 9)
        `frames.DECISIONS` without ``source``.
    """
    names = [name for name in frames.DECISIONS.dtypes.names() if name != "source"]
    items = resolved_items(raw["attention_disposition_history"], raw)
    return items.rename({"created_at": "at", "sequence": "seq", "new_state": "state"}).select(names)


MAX_OUTPUT = 4000
_FIRST_LINES = r"\A((?:[^\n]*\n){0,7}[^\n]*)"
_EXIT_CODE = r"(?im)^(?:.*process exited with code.*?|exit code:)\s*(-?\d+)\.?\s*$"
_COMPLAINT = r"error:|failed|permission denied|not found"
_PRUNED = "lion_content_pruned"


def _of_response(key: str) -> Cell:
    """A key of the answer of a tool; other messages are not looked into."""
    answer = (
        "CASE WHEN role NOT IN ('action', 'tool') THEN NULL "
        "WHEN typeof(content) <> 'text' THEN NULL WHEN NOT json_valid(content) THEN NULL "
        "WHEN json_type(content, '$.output') IS NULL AND json_type(content, '$.error') IS NULL "
        f"AND json_type(content, '$.{_PRUNED}') IS NULL THEN NULL "
        f"ELSE substr(CAST(json_extract(content, '$.{key}') AS TEXT), 1, {MAX_OUTPUT}) END"
    )
    return Cell("text", answer, ("role", "content"))


def count_errors(store: Store) -> pl.DataFrame:
    """Tool errors of each session.

    Parameters
    ----------
    store : Store
        An open lionagi store.

    Returns
    -------
    polars.DataFrame, shape (n_sessions, 4)
        Sorted by ``session_id``: ``n_tool_answers`` (answers of tools), ``n_tool_errors``
        (of these, errors) and ``n_pruned`` (of these, bodies that were pruned, so that
        nothing is known about them); 0 for a session without answers.

    Notes
    -----
    An answer is an error when it carries one, or when its output says so by lionagi's own
    rule: an exit code other than 0 in the first eight lines, or a complaint in the first
    300 characters together with "no such file or directory". Only the first 4000
    characters of an output are looked at.
    """
    answers, _ = read_table(
        store,
        "messages",
        {
            "id": TEXT,
            "error": _of_response("error"),
            "output": _of_response("output"),
            "pruned": _of_response(_PRUNED),
        },
        system=SYSTEM,
    )
    judged = answers.filter(pl.any_horizontal(pl.col("error", "output", "pruned").is_not_null()))
    progressions, _ = read_table(store, "progressions", {"id": TEXT, "collection": JSON})
    branches, _ = read_table(store, "branches", {"session_id": TEXT, "progression_id": TEXT})
    sessions, _ = read_table(store, "sessions", {"id": TEXT})
    counts = (
        listed_messages(branches, progressions)
        .join(judged, left_on="message_id", right_on="id", how="inner")
        .group_by("session_id")
        .agg(
            n_tool_answers=pl.len(),
            n_tool_errors=_is_error().sum(),
            n_pruned=pl.col("pruned").is_not_null().sum(),
        )
    )
    names = ["n_tool_answers", "n_tool_errors", "n_pruned"]
    return (
        sessions.select(session_id="id")
        .join(counts, on="session_id", how="left")
        .with_columns(pl.col(names).fill_null(0).cast(schema.INTEGER))
        .sort("session_id")
    )


def _is_error() -> pl.Expr:
    output = pl.col("output").fill_null("")
    code = output.str.extract(_FIRST_LINES).str.extract(_EXIT_CODE).cast(pl.Int64, strict=False)
    lower = output.str.to_lowercase()
    complains = lower.str.slice(0, 300).str.contains(_COMPLAINT)
    is_lost = lower.str.contains("no such file or directory", literal=True)
    has_error = pl.col("error").fill_null("") != ""
    return has_error | (code.fill_null(0) != 0) | (complains & is_lost)

"""Lines of logs and records, linked to their sessions, as events and transitions."""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.agent_orchestrator.columns import references
from stateanalytics.systems.agent_orchestrator.places import MIGRATED, SYSTEM, Kind

_ARCHIVES = [str(Kind.ARCHIVE), str(Kind.JSON_ARCHIVE)]


def add_entities(sessions: pl.DataFrame) -> pl.DataFrame:
    """Add ``entity_id`` and ``is_current`` to every record.

    Parameters
    ----------
    sessions : polars.DataFrame, shape (n_records, ...)
        What `sessions.read_sessions` gives.

    Returns
    -------
    polars.DataFrame, shape (n_records, ... + 2)
        ``entity_id`` is null for what cannot be read. Exactly one readable record of each
        entity is current.

    Notes
    -----
    An archive is an earlier record of the session of its name, and so is an original that
    the storage migration left behind. The newest archive counts only where nothing else
    is left. Two directories with the same session id hold two sessions, unless both name
    the same project: as in the migration the newest keeps the id, and the other becomes
    ``<id>__from-<directory>``.

    Examples
    --------
    >>> import polars as pl
    >>> row = {"session_id": "a-1", "layout": "kv", "is_migrated_original": False,
    ...        "is_readable": True, "archived_at": None, "created_at": None,
    ...        "modified_at": None}
    >>> rows = [{**row, "directory": d, "project": p, "path": f"{d}/sessions/a-1"}
    ...         for d, p in (("0123456789ab-x", "x"), ("ba9876543210-y", "y"))]
    >>> add_entities(pl.DataFrame(rows))["entity_id"].to_list()
    ['a-1', 'a-1__from-ba9876543210']
    """
    ranked = sessions.with_columns(
        _row=pl.int_range(pl.len()),
        _home=_home(),
        _rank=2 * pl.col("is_migrated_original").cast(pl.Int8) + pl.col("layout").is_in(_ARCHIVES),
    )
    readable = ranked.filter("is_readable")
    current = _current(readable)
    ids = _ids(readable.filter(pl.col("_row").is_in(current["_row"].implode())))
    joined = (
        ranked.join(ids, on=["_home", "session_id"], how="left", maintain_order="left")
        .with_columns(
            entity_id=pl.when("is_readable").then("entity_id"),
            is_current=pl.col("is_readable") & pl.col("_row").is_in(current["_row"].implode()),
        )
        .sort("_row")
    )
    return joined.drop("_row", "_home", "_rank")


def _home() -> pl.Expr:
    """What a record shares with the other records of its session.

    A migrated original belongs to the project it was migrated to; any other to its directory.
    """
    directory = pl.col("directory").str.strip_suffix(MIGRATED)
    is_json = pl.col("layout").is_in([str(Kind.JSON_RECORD), str(Kind.JSON_ARCHIVE)])
    project = pl.coalesce("project", directory)
    return pl.when(is_json | pl.col("is_migrated_original")).then(project).otherwise(directory)


def _current(readable: pl.DataFrame) -> pl.DataFrame:
    """The record of each session that tells it: the live one, else the newest that is left."""
    if readable["session_id"].n_unique() == readable.height:
        return readable.select("_row")
    order = readable.sort(
        "_rank",
        pl.coalesce("archived_at", "created_at", "modified_at"),
        "path",
        descending=[False, True, True],
        nulls_last=True,
    )
    return order.unique(["_home", "session_id"], keep="first", maintain_order=True).select("_row")


def _ids(current: pl.DataFrame) -> pl.DataFrame:
    """An id for every session: its own name, or where that is taken, with its directory."""
    if current["session_id"].n_unique() == current.height:
        return current.select("_home", "session_id", entity_id="session_id")
    order = current.sort(
        pl.coalesce("created_at", "archived_at"),
        "modified_at",
        "path",
        descending=[True, True, False],
        nulls_last=True,
    )
    digits = pl.col("directory").str.extract(r"^([0-9a-f]{12})")
    place = pl.coalesce(digits, "directory").fill_null("")
    n_before = pl.int_range(pl.len()).over("session_id")
    other = pl.format("{}__from-{}", "session_id", place)
    named = order.with_columns(entity_id=pl.when(n_before == 0).then("session_id").otherwise(other))
    # Two directories of one hash: only their whole names differ.
    again = pl.int_range(pl.len()).over("entity_id")
    return named.with_columns(
        entity_id=pl.when(again == 0)
        .then("entity_id")
        .otherwise(pl.format("{}-{}", "entity_id", again))
    ).select("_home", "session_id", "entity_id")


# The same change is told by several logs: the first of these keeps it.
_TELLS_BEST = ("audit", "event", "observability", "trace", "notification", "change")
SAME_CHANGE_S = 2.0
"""Two logs that tell the same change this close together tell one change."""
ECHO_S = 60.0
"""A poll sees what an agent reported at most two polls later."""


def link(entries: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Add ``entity_id``: by directory, else by project, else by the name of the session.

    Parameters
    ----------
    entries : polars.DataFrame, shape (n_entries, ...)
        What `logs.read_logs` and `databases` give.
    sessions : polars.DataFrame
        Records with ``entity_id`` and ``is_current``.

    Returns
    -------
    polars.DataFrame, shape (n_entries, ... + 2)
        ``entity_id`` and ``is_orphaned``: a session is named that has no record here.
    """
    is_named = pl.col("session_id").is_in(entries["session_id"].unique().implode())
    known = sessions.filter(pl.col("entity_id").is_not_null() & is_named)
    current = known.filter("is_current")
    by_directory = known.unique(["directory", "session_id"], keep="first", maintain_order=True)
    by_project = current.unique(["project", "session_id"], keep="first", maintain_order=True)
    by_name = current.unique("session_id", keep="none", maintain_order=True)
    linked = entries
    for name, keys, rows in (
        ("_by_directory", ["directory", "session_id"], by_directory),
        ("_by_project", ["project", "session_id"], by_project),
        ("_by_name", ["session_id"], by_name),
    ):
        named_by = rows.select(*keys, pl.col("entity_id").alias(name))
        linked = linked.join(named_by, on=keys, how="left", maintain_order="left")
    # The nearest record wins: names repeat across projects, and projects across directories.
    entity_id = pl.coalesce("_by_directory", "_by_project", "_by_name")
    return linked.with_columns(
        # Without any record the line stays, under the name that it gives itself.
        entity_id=pl.coalesce(entity_id, "session_id"),
        is_orphaned=entity_id.is_null() & pl.col("session_id").is_not_null(),
    ).drop("_by_directory", "_by_project", "_by_name")


def transitions(entries: pl.DataFrame) -> pl.DataFrame:
    """Every change of a session's legacy status that some log tells, once.

    Parameters
    ----------
    entries : polars.DataFrame
        Linked entries.

    Returns
    -------
    polars.DataFrame
        Columns of `schema.TRANSITIONS`, by time and then as they were read.

    Notes
    -----
    An accepted report changes the status at once, the poller tells the same change when it
    sees it; events, the observability log and notifications tell what the poller saw.
    """
    changes = (
        entries.filter(
            pl.col("status").is_not_null()
            & pl.col("previous").is_not_null()
            & (pl.col("status") != pl.col("previous"))
            & pl.col("entity_id").is_not_null()
            & pl.col("at").is_not_null()
            & pl.col("log").is_in(_TELLS_BEST)
            & (pl.col("is_accepted").fill_null("true") == "true")
        )
        .with_columns(
            # Of logs that tell one change, the first of these speaks for it.
            _rank=pl.col("log").replace_strict(
                {log: rank for rank, log in enumerate(_TELLS_BEST)}, return_dtype=pl.Int8
            )
        )
        .sort("entity_id", "previous", "status", "at", "_rank", "_order", maintain_order=True)
    )
    of = ["entity_id", "previous", "status"]
    gap_s = pl.col("at").diff().over(of).dt.total_seconds(fractional=True)
    is_echo = (pl.col("log").shift(1).over(of) == "audit") & (gap_s <= ECHO_S)
    is_again = ((gap_s <= SAME_CHANGE_S) | is_echo).fill_null(value=False)
    is_seen = pl.col("log").is_in(["observability", "trace"])
    is_said = pl.col("log").is_in(["audit", "notification"])
    by_change = (
        changes.with_columns(_change=(~is_again).cum_sum())
        .sort("_change", "_rank", "_order", maintain_order=True)
        .group_by("_change", maintain_order=True)
        .agg(
            pl.first("entity_id", "previous", "status", "log", "role", "_order"),
            pl.col("at").min(),
            pl.col("code").drop_nulls().first(),
            seen=pl.col("detail").filter(is_seen).first(),
            words=pl.col("detail").filter(is_said).first(),
        )
        .sort("at", "_order")
    )
    is_report = pl.col("log") == "audit"
    return by_change.select(
        entity_type=pl.lit("session"),
        entity_id="entity_id",
        at="at",
        seq=pl.int_range(pl.len(), dtype=pl.Int64),
        previous_status="previous",
        status="status",
        reason_code="code",
        message="words",
        writer=pl.when(is_report).then(pl.lit("agent_report")).otherwise(pl.lit("poll")),
        actor=pl.when(is_report).then("role"),
        evidence=references(tool_result="seen"),
        metadata=pl.struct("log").struct.json_encode(),
    )


def events(entries: pl.DataFrame) -> pl.DataFrame:
    """Everything that the logs tell, in the columns of `schema.EVENTS`.

    Traces that the observability log holds as well are told once.
    """
    same_event = ["at", "kind", "correlation", "session_id"]
    logged = entries.filter(pl.col("log") == "observability").select(same_event).unique()
    traces = entries.filter(pl.col("log") == "trace").join(
        logged, on=same_event, how="anti", nulls_equal=True
    )
    kept = pl.concat([entries.filter(pl.col("log") != "trace"), traces]).sort("_order")
    return kept.select(
        entity_type=pl.when(pl.col("entity_id").is_not_null()).then(pl.lit("session")),
        entity_id="entity_id",
        at="at",
        seq=pl.int_range(pl.len(), dtype=pl.Int64),
        kind="kind",
        is_activity=pl.col("is_activity") == "true",
        role="role",
        name="name",
        size_bytes=pl.col("size").cast(pl.Int64, strict=False),
        duration_s=pl.col("duration_ms").cast(pl.Float64, strict=False) / 1000,
        detail="detail",
        body="body",
    )


def named(frame: pl.DataFrame, shape: schema.Frame, label: str) -> pl.DataFrame:
    """A frame in its canonical shape, with the input and the system in every row."""
    return shape.conform(frame.with_columns(source=pl.lit(label), system=pl.lit(SYSTEM)))

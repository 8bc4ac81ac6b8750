"""Which record tells which entity: one session may have several records, and one id two."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.agent_orchestrator.layout import MIGRATED, Kind

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
        _rank=pl.when(pl.col("is_migrated_original"))
        .then(2)
        .when(pl.col("layout").is_in(_ARCHIVES))
        .then(1)
        .otherwise(0)
        + pl.when(pl.col("is_migrated_original") & pl.col("layout").is_in(_ARCHIVES))
        .then(1)
        .otherwise(0),
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

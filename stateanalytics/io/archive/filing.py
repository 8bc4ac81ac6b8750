"""Which week a row is filed under, so that a week can be opened without the others."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from stateanalytics.io.archive.manifests import ACROSS

_OPEN = ("draft", "planned", "pending", "queued", "active", "running", "paused", "blocked")
_LIFE = (
    *("created_at", "started_at", "ended_at", "updated_at"),
    *("last_message_at", "last_activity_at", "last_sign_at"),
)
_NO_WEEK = 0


def week_of(at: pl.Expr) -> pl.Expr:
    """The ISO week of a moment as one number, such as 202621; 0 where it has none."""
    year = at.dt.iso_year().cast(pl.Int32)
    number = year * 100 + at.dt.week()
    return pl.when(year.is_between(1, 9999)).then(number).otherwise(_NO_WEEK).fill_null(_NO_WEEK)


def weeks_of_work(entities: pl.DataFrame) -> pl.DataFrame:
    """The week of each entity, where all that is told of its session lies in one.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.

    Returns
    -------
    polars.DataFrame
        In the order of ``entities``: ``entity_id``, ``work`` (its session, else itself),
        ``week`` as a number, and ``begin_week``, that of its own first moment.

    Notes
    -----
    Work that is open has no week: it must be seen in every later one.
    """
    status = pl.coalesce("recorded_lifecycle", "raw_status")
    is_open = (status.is_in(_OPEN) & pl.col("ended_at").is_null()).fill_null(value=False)
    begin, last = week_of(pl.min_horizontal(_LIFE)), week_of(pl.max_horizontal(_LIFE))
    own = pl.when((begin == last) & ~is_open).then(begin).otherwise(_NO_WEEK)
    work = pl.coalesce("session_id", "entity_id")
    rows = entities.select("entity_id", work=work, begin_week=begin, own=own)
    is_one = pl.col("own").min().over("work") == pl.col("own").max().over("work")
    week = pl.when(is_one & pl.col("work").is_not_null()).then("own").otherwise(_NO_WEEK)
    return rows.select("entity_id", "work", "begin_week", week=week)


def weeks_of_details(detail: pl.DataFrame, work: pl.DataFrame) -> pl.Series:
    """The week of each row of a detail frame: that of the work it tells of."""
    return _weeks_of_its_work(detail, work).fill_null(_NO_WEEK)


def weeks_of_history(history: pl.DataFrame, work: pl.DataFrame) -> pl.Series:
    """The week of each row of history: that of the work it tells of, else of its moment."""
    own = history.select(week_of(pl.col("at"))).to_series()
    return _weeks_of_its_work(history, work).fill_null(own)


def identity_of(rows: pl.DataFrame) -> pl.Series:
    """What names the work that each row tells of: its session, else itself."""
    own = [name for name in ("session_id", "entity_id") if name in rows.columns]
    return rows.with_columns(id=pl.coalesce(*own, pl.lit(None, pl.String)))["id"]


def identities(work: pl.DataFrame) -> pl.DataFrame:
    """Each ``id`` by which rows name some ``work``, and its ``week``."""
    return pl.concat(
        [
            work.select("work", id="work", week="week"),
            work.select("work", id="entity_id", week="week"),
        ]
    ).drop_nulls("id")


def _weeks_of_its_work(rows: pl.DataFrame, work: pl.DataFrame) -> pl.Series:
    by_id = (
        identities(work)
        .group_by("id")
        .agg(
            week=pl.when(pl.col("week").n_unique() == 1)
            .then(pl.col("week").first())
            .otherwise(_NO_WEEK)
        )
    )
    asked = identity_of(rows).to_frame()
    return asked.join(by_id, on="id", how="left", maintain_order="left")["week"]


def by_week(rows: pl.DataFrame, week: pl.Series) -> Iterator[tuple[str, pl.DataFrame]]:
    """Rows apart by the name of their week, in their order."""
    numbered = rows.with_columns(week.alias("_week"))
    for part in numbered.partition_by("_week", maintain_order=True, include_key=True):
        yield week_name(part["_week"][0]), part.drop("_week")


def week_name(number: int) -> str:
    """How a week is written.

    Examples
    --------
    >>> week_name(202609), week_name(0)
    ('2026-W09', 'across')
    """
    return ACROSS if number == _NO_WEEK else f"{number // 100:04}-W{number % 100:02}"


LAST_MOMENT = pl.max_horizontal(_LIFE)
"""The last moment that a row of `schema.ENTITIES` tells of."""

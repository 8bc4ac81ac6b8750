"""The instant that ages are measured at, and what lies after it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.errors import ArgumentError
from stateanalytics.io.findings import counted, per_entity
from stateanalytics.io.parts import Parts

_MOMENTS = ("created_at", "started_at", "ended_at", "updated_at", "last_message_at")
_SIGNS = (*_MOMENTS, "last_activity_at")
_LONELY_DAYS = 7
_COMPANY = 3
_TOLERANCE = timedelta(seconds=1)


def as_utc(moment: datetime) -> datetime:
    """A moment in UTC; one without a time zone is taken to be in UTC.

    Raises
    ------
    ArgumentError
        If it is no datetime.

    Examples
    --------
    >>> as_utc(datetime(2026, 5, 27)).isoformat()
    '2026-05-27T00:00:00+00:00'
    """
    if not isinstance(moment, datetime):
        raise ArgumentError(
            f"as_of must be a datetime, not {moment!r}.",
            "as_of=datetime(2026, 5, 27, tzinfo=timezone.utc)",
        )
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def newest_proven(parts: Sequence[Parts]) -> datetime | None:
    """The newest moment at which something certainly happened.

    Parameters
    ----------
    parts : sequence of Parts
        What was read.

    Returns
    -------
    datetime or None
        None where no moment is recorded at all.

    Notes
    -----
    Events, transitions and the creation of rows are written once, by the clock of then,
    so they prove a moment, as do the moments that a reader says its records prove
    (``proven_at``); ``updated_at`` is only asked where there are none of them. A moment
    does not count when fewer than three of any kind lie within a cluster that a week of
    silence separates from all before it: one clock that ran ahead must not make a whole
    store old.
    """
    proofs = [
        frame[column]
        for part in parts
        for frame, column in (
            (part.transitions, "at"),
            (part.events, "at"),
            (part.entities, "created_at"),
        )
    ]
    company = [part.entities[name] for part in parts for name in _MOMENTS]
    proofs += [part.proven_at for part in parts]
    proven = pl.concat(proofs).drop_nulls() if proofs else pl.Series(dtype=schema.MOMENT)
    if proven.is_empty():
        updated = [part.entities["updated_at"] for part in parts]
        proven = pl.concat(updated).drop_nulls() if updated else proven
    if proven.is_empty():
        return None
    everything = pl.concat([proven, *company]).drop_nulls()
    if everything.max() - everything.min() < timedelta(days=_LONELY_DAYS):  # type: ignore[operator]
        return proven.max()  # type: ignore[return-value]
    limit = _end_of_company(everything)
    kept = proven.filter(proven.dt.epoch("d") <= limit)
    return (kept if len(kept) else proven).max()  # type: ignore[return-value]


def _end_of_company(moments: pl.Series) -> int:
    """The last day of the newest cluster that is no lonely one."""
    days = (
        moments.dt.epoch("d")
        .alias("day")
        .value_counts(name="n")
        .sort("day")
        .with_columns(
            cluster=(pl.col("day").diff().fill_null(0) > _LONELY_DAYS).cum_sum(),
        )
    )
    clusters = days.group_by("cluster").agg(pl.col("n").sum(), pl.col("day").max()).sort("day")
    in_company = clusters.filter(pl.col("n") >= _COMPANY)
    return int((in_company if in_company.height else clusters)["day"].max())  # type: ignore[arg-type]


def future_findings(part: Parts, source: str, as_of: datetime) -> pl.DataFrame:
    """Rows with moments after as-of (``time.future``), in the shape of findings.

    In the data of a copy, or beside the clock, a row from the future is one whose own clock
    was wrong, and is kept. A second is tolerated: the moments of one write are not taken at
    once.
    """
    columns = [part.transitions["at"], part.events["at"], *part.entities.select(_SIGNS)]
    newest = [moment for column in columns if (moment := column.max()) is not None]
    if not newest or max(newest) - as_of <= _TOLERANCE:
        return schema.FINDINGS.empty()
    # Made once: a literal with a time zone costs as much as a query.
    limit = pl.lit(as_of + _TOLERANCE)
    late = [
        pl.when(pl.col(name) > limit).then(pl.lit(name, pl.String)).alias(name) for name in _SIGNS
    ]
    latest = pl.max_horizontal(_SIGNS)
    beyond = part.entities.filter(latest > limit).select(
        "entity_type",
        "entity_id",
        latest=latest,
        columns=pl.concat_str(late, separator=", ", ignore_nulls=True),
    )
    return pool(
        [
            per_entity(
                beyond,
                source,
                part.system,
                "time.future",
                "warning",
                message=pl.format("{} lies after as-of ({})", "columns", pl.lit(as_of.isoformat())),
                column=pl.col("columns"),
                example=pl.col("latest"),
                action="kept; its age is negative",
            ),
            *(
                counted(
                    source,
                    part.system,
                    "time.future",
                    "warning",
                    f"{name} after as-of ({as_of.isoformat()})",
                    n_rows=frame.filter(pl.col("at") > limit).height,
                    table=name,
                    column="at",
                    action="kept",
                )
                for name, frame in (("transitions", part.transitions), ("events", part.events))
            ),
        ],
        schema.FINDINGS,
    )

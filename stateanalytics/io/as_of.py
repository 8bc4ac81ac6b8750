"""The instant at which ages are measured, and data from after it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import polars as pl

from stateanalytics.core import schema
from stateanalytics.errors import ArgumentError
from stateanalytics.io.findings import all_findings, noted, noted_entities
from stateanalytics.io.parts import Parts

_MOMENTS = ("created_at", "started_at", "ended_at", "updated_at", "last_message_at")
_SIGNS = (*_MOMENTS, "last_activity_at")
_LONELY_DAYS, _FAR_DAYS = 7, 30
_COMPANY = 3
_TOLERANCE = timedelta(seconds=1)


def as_utc(moment: datetime) -> datetime:
    """A moment in UTC; without a time zone it is taken as UTC.

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


def wall_clock() -> datetime:
    """The moment now, in UTC."""
    return datetime.now(UTC)


def newest_proven(parts: Sequence[Parts]) -> datetime | None:
    """The newest moment at which something certainly happened.

    Parameters
    ----------
    parts : sequence of Parts
        The inputs.

    Returns
    -------
    datetime or None
        None where no moment is recorded.

    Notes
    -----
    Events, transitions and the creation of rows are written once, by the clock of that moment,
    so they prove it, as do the moments in ``proven_at`` of a reader; ``updated_at`` is used only
    where there are none of them. One clock that ran ahead must not make a whole store look old:
    `newest_in_company`.
    """
    if not parts:
        return None
    changes = pl.concat([part.transitions["at"] for part in parts])
    events = pl.concat([part.events["at"] for part in parts])
    own = {name: pl.concat([part.entities[name] for part in parts]) for name in _MOMENTS}
    own["proven_at"] = pl.concat([part.proven_at for part in parts])
    proofs = [changes, events, own["created_at"], own["proven_at"]]
    if all(column.null_count() == column.len() for column in proofs):
        proofs = [own["updated_at"]]
    return newest_in_company([[changes], [events], list(own.values())], proofs)


def oldest_proven(part: Parts) -> datetime | None:
    """The oldest moment of an input at which something happened; None where none is recorded."""
    moments = (part.transitions["at"], part.events["at"], part.entities["created_at"])
    known = [moment for column in moments if (moment := column.min()) is not None]
    return min(known, default=None)  # type: ignore[return-value]


def newest_in_company(
    kinds: Sequence[Sequence[pl.Series]], proofs: Sequence[pl.Series]
) -> datetime | None:
    """The newest of some moments, without those of a single clock that ran ahead.

    Parameters
    ----------
    kinds : sequence of sequence of polars.Series
        All known moments: the columns of each kind of rows.
    proofs : sequence of polars.Series
        The columns of which the newest moment is returned.

    Returns
    -------
    datetime or None
        None without any.

    Notes
    -----
    A cluster of moments after a week of silence counts only with at least three of them. After
    a month it needs three rows, and more than one moment: one row has several moments, and one
    record may be the source of several rows. A whole transcript counts, as it may be the first
    after a pause.
    """
    known = [column for columns in kinds for column in columns]
    newest = _newest(proofs)
    oldest = [moment for column in known if (moment := column.min()) is not None]
    if newest is None or newest - min(oldest) < timedelta(days=_LONELY_DAYS):  # type: ignore[operator]
        return newest
    last = _end_of_company(kinds)
    return _newest([column.filter(column.dt.epoch("d") <= last) for column in proofs]) or newest


def _newest(columns: Sequence[pl.Series]) -> datetime | None:
    known = [moment for column in columns if (moment := column.max()) is not None]
    return max(known, default=None)  # type: ignore[return-value]


def _end_of_company(kinds: Sequence[Sequence[pl.Series]]) -> int:
    """The last day of the newest cluster that is large enough to count."""
    known = [column for columns in kinds for column in columns]
    days_of = [[column.dt.epoch("d") for column in columns] for columns in kinds]
    distinct = [column.unique() for columns in days_of for column in columns]
    days = pl.concat(distinct).drop_nulls().unique().sort()
    begins = (days.diff() > _LONELY_DAYS).fill_null(value=True)
    first, last = days.filter(begins), days.filter(begins.shift(-1, fill_value=True))
    if len(first) == 1:
        return int(last[0])

    def n_each(some: pl.Series) -> pl.Series:
        """Number of moments in each cluster; broken clocks may make thousands of clusters."""
        in_order = some.drop_nulls().sort()
        before = in_order.search_sorted(first).cast(pl.Int64)
        return before.shift(-1, fill_value=len(in_order)) - before

    counts = [[n_each(column) for column in columns] for columns in days_of]
    is_far = (first - last.shift() > _FAR_DAYS).fill_null(value=False)
    # A row has at most one moment in each of its columns.
    n = sum(
        pl.select(
            pl.when(is_far).then(pl.max_horizontal(n)).otherwise(pl.sum_horizontal(n))
        ).to_series()
        for n in counts
    )
    clusters = pl.DataFrame({"first": first, "last": last, "is_far": is_far, "n": n})
    crowds = clusters.filter(pl.col("n") >= _COMPANY)
    is_alone = pl.col("is_far") & (pl.col("first") == pl.col("last"))
    sure = crowds.filter(~is_alone)["last"].tail(1)
    asked = crowds.filter(is_alone, *(pl.col("last") > day for day in sure))["last"]
    if in_company := [*sure, *_with_moments(known, asked)]:
        return int(max(in_company))
    return int((crowds.sort("n", "last") if crowds.height else clusters)["last"][-1])


def _with_moments(columns: Sequence[pl.Series], days: pl.Series) -> pl.Series:
    """The days with more than one moment."""
    if days.is_empty():
        return days
    on_days = (column.filter(column.dt.epoch("d").is_in(days.implode())) for column in columns)
    moments = pl.concat(on_days).unique()
    return moments.dt.epoch("d").alias("day").value_counts().filter(pl.col("count") > 1)["day"]


def future_findings(part: Parts, source: str, as_of: datetime) -> pl.DataFrame:
    """Findings ``time.future`` about rows with moments after as-of.

    Such a row was written by a wrong clock, and is kept. A second is tolerated, because the
    moments of one write are not taken at the same instant.
    """
    moments = (part.entities[name] for name in _SIGNS)
    newest = _newest([part.transitions["at"], part.events["at"], *moments])
    if newest is None or newest - as_of <= _TOLERANCE:
        return schema.FINDINGS.empty()
    # One literal for all: with a time zone it costs as much as a query.
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
    later = {
        name: getattr(part, name).filter(pl.col("at") > limit).height
        for name in ("transitions", "events")
    }
    return all_findings(
        noted_entities(
            *(beyond, source, part.system, "time.future"),
            message=f"{{columns}} lies after as-of ({as_of.isoformat()})",
            column=pl.col("columns"),
            example=pl.col("latest"),
            action="kept; its age is negative",
        ),
        *(
            noted(source, part.system, "time.future", name, as_of.isoformat(), n_rows=n, table=name)
            for name, n in later.items()
        ),
    )

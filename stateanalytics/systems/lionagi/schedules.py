"""Schedules and their runs, and how often each is to fire."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl
from croniter import CroniterError, croniter

from stateanalytics.core import schema
from stateanalytics.systems.lionagi.raw import Raw
from stateanalytics.systems.lionagi.sessions import reason
from stateanalytics.systems.lionagi.work import last_reasons

_VALUE = r"(?:\d{1,2}|[a-z]{3})"
_ITEM = rf"{_VALUE}(?:-{_VALUE})?(?:/\d{{1,3}})?"
# In a list, versions of croniter take a star for one choice or for the whole field.
_FIELD = rf"(?:\*(?:/\d{{1,3}})?|{_ITEM}(?:,{_ITEM})*)"
_DAY = rf"(?:\?|{_FIELD})"
_PLAIN = re.compile(
    rf"{_FIELD} {_FIELD} {_DAY} {_FIELD} {_DAY}"
    r"|@(?:hourly|daily|midnight|weekly|monthly|yearly|annually)",
    re.ASCII,
)
_STEPPED_RANGE = re.compile(r"(\w+)-(\w+)/")
_NAMES = {name: number for names in croniter.ALPHACONV[3:5] for name, number in names.items()}
_YEARS_AHEAD = 9  # the longest wait there is: from 29 February to the next, over 2100


def cadence_s(expression: str, reference_at: datetime, zone: str = "UTC") -> float | None:
    """The distance of the two fires that follow a moment.

    Parameters
    ----------
    expression : str
        A cron expression of five fields, or a shorthand such as ``@daily``.
    reference_at : datetime
        The moment to look from, with a time zone.
    zone : str
        The IANA zone that the expression is meant in; UTC where it cannot be loaded.

    Returns
    -------
    float or None
        Seconds; None where the expression cannot be read or never fires twice.

    Examples
    --------
    >>> from datetime import UTC
    >>> cadence_s("*/15 * * * *", datetime(2026, 5, 27, tzinfo=UTC))
    900.0
    >>> cadence_s("0 9 * * mon-fri", datetime(2026, 5, 29, tzinfo=UTC))  # a Friday
    259200.0
    >>> cadence_s("at dawn", datetime(2026, 5, 29, tzinfo=UTC)) is None
    True
    """
    text = " ".join(expression.lower().split())
    if not _PLAIN.fullmatch(text) or _steps_past_the_end(text):
        return None
    try:
        fires = croniter(
            text,
            reference_at.astimezone(_zone(zone)),
            ret_type=datetime,
            max_years_between_matches=_YEARS_AHEAD,
        )
        first_at, second_at = next(fires), next(fires)
    except (CroniterError, StopIteration):
        return None
    # Timestamps: the difference of two local times ignores a change of clocks between them.
    return float(second_at.timestamp() - first_at.timestamp())


def _steps_past_the_end(text: str) -> bool:
    """Does a range with a step begin after it ends: versions differ in where it lands."""
    return any(_number(begin) > _number(end) for begin, end in _STEPPED_RANGE.findall(text))


def _number(value: str) -> int:
    return int(value) if value.isdecimal() else _NAMES.get(value, -1)


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


# lionagi's own lists: what proves that a run was executed, and what ends a streak.
EXECUTED = ("running", "completed", "failed", "cancelled", "timed_out")
FAILED = ("failed", "timed_out")
GOOD = ("completed", "cancelled")
DEFAULT_POLL_S = 300.0


_DELIVERY_OF_OUTCOME = {
    **{word: word for word in schema.DELIVERIES},
    **dict.fromkeys(("completed", "succeeded", "merged"), "passed"),
    # ADR-0025: what ran out of time may be complete in part.
    "timed_out": "partial",
    **dict.fromkeys(("failed", "aborted", "completed_empty"), "missing"),
    **dict.fromkeys(("cancelled", "skipped"), "not_expected"),
}
"""What the last run of a schedule came to, as the delivery that ADR-0033 lets it carry."""


def schedules(raw: Raw, transitions: pl.DataFrame, details: pl.DataFrame) -> pl.DataFrame:
    """One row a schedule; ``enabled`` 1/0 is read as the status lionagi's history uses.

    ``details`` is what `schedule_details` gave: the facts that its health is judged by.
    """
    status = (
        pl.when("enabled").then(pl.lit("enabled")).when(~pl.col("enabled")).then(pl.lit("disabled"))
    )
    rows = (
        raw["schedules"]
        .with_columns(raw_status=status)
        .join(
            last_reasons(transitions, "schedule"),
            left_on=["id", "raw_status"],
            right_on=["entity_id", "raw_status"],
            how="left",
            maintain_order="left",
        )
        .join(
            details.select("cadence_s", "n_running", id="schedule_id", last_sign_at=last_sign_at()),
            on="id",
            how="left",
            maintain_order="left",
        )
    )
    return rows.select(
        pl.col("cadence_s", "n_running", "last_sign_at", "name", "raw_status", "created_at"),
        pl.col("updated_at", "reason_code", "evidence"),
        due_at="next_fire_at",
        entity_type=pl.lit("schedule"),
        entity_id="id",
        kind="action_kind",
        project=pl.coalesce("project", "action_project"),
        agent="action_agent",
        model="action_model",
        playbook="action_playbook",
        recorded_by=pl.lit("live"),
        started_at="created_at",
        last_activity_at=pl.coalesce("last_fired_at", "updated_at", "created_at"),
        reason_message="message",
        # No release stores it; without it a schedule has no delivery, its runs have theirs.
        recorded_delivery=pl.col("last_run_outcome").replace_strict(
            _DELIVERY_OF_OUTCOME,
            default=pl.when(pl.col("last_run_outcome") != "").then(pl.lit("unknown")),
            return_dtype=pl.String,
        ),
    )


def schedule_runs(raw: Raw) -> pl.DataFrame:
    """One row an occurrence of a schedule, or a task that was queued without one."""
    names = raw["schedules"].select(
        "project", schedule_id="id", schedule_name="name", playbook="action_playbook"
    )
    rows = raw["schedule_runs"].join(names, on="schedule_id", how="left", maintain_order="left")
    return rows.select(
        pl.col("invocation_id", "project", "playbook", "created_at", "ended_at", "updated_at"),
        pl.col("exit_code"),
        entity_type=pl.lit("schedule_run"),
        entity_id="id",
        parent_type=pl.when(pl.col("schedule_id").is_not_null())
        .then(pl.lit("schedule"))
        .when(pl.col("chain_parent_id").is_not_null())
        .then(pl.lit("schedule_run")),
        parent_id=pl.coalesce("schedule_id", "chain_parent_id"),
        kind="action_kind",
        name="schedule_name",
        recorded_by=pl.lit("live"),
        raw_status="status",
        attempt=pl.when(pl.col("lease_attempts") > 0).then("lease_attempts"),
        started_at="fired_at",
        last_activity_at=pl.coalesce("updated_at", "fired_at"),
        **{
            **reason(),
            "reason_message": pl.coalesce(
                pl.col("status_reason_summary").replace("", None),
                pl.col("error_detail").replace("", None),
            ),
        },
    )


def schedule_details(raw: Raw) -> pl.DataFrame:
    """The facts of lionagi's schedule health, one row a schedule.

    Returns
    -------
    polars.DataFrame, shape (n_schedules, 17)
        `frames.SCHEDULES` without ``source``. ``cadence_s`` of a
        cron schedule is the distance of the two fires after its newest sign of life.
    """
    rows = raw["schedules"].join(
        of_runs(raw["schedule_runs"], "schedule_id"),
        left_on="id",
        right_on="schedule_id",
        how="left",
        maintain_order="left",
    )
    counts = ["n_runs", "n_running", "n_missed", "n_failed_in_row"]
    return rows.select(
        pl.col("trigger_type", "cron_expr", "next_fire_at", "last_fired_at"),
        _zone_name().alias("timezone"),
        pl.col("last_evaluated_at", "last_healthy_poll_at", "has_threshold", "last_executed_at"),
        pl.col("last_executed_status"),
        schedule_id="id",
        is_enabled="enabled",
        cadence_s=_cadences(rows),
        **{count: pl.col(count).fill_null(0).cast(schema.INTEGER) for count in counts},
    )


def fires(raw: Raw) -> pl.DataFrame:
    """Which schedule each run is of, and how far down a chain; the columns of `frames.FIRES`."""
    runs = raw["schedule_runs"]
    return runs.select("schedule_id", "chain_depth", schedule_run_id="id")


def of_runs(runs: pl.DataFrame, *schedule: str) -> pl.DataFrame:
    """What the runs of each schedule tell; chained runs are consequences, not fires.

    Parameters
    ----------
    runs : polars.DataFrame
        ``id``, ``chain_depth``, ``fired_at``, ``status``, ``status_reason_code``.
    *schedule : str
        The columns that name the schedule.
    """
    newest_first = runs.filter(pl.col("chain_depth").fill_null(0) == 0).sort(
        "fired_at", "id", descending=True, nulls_last=True
    )
    is_executed = pl.col("status").is_in(EXECUTED)
    is_missed = (pl.col("status") == "skipped") & (
        pl.col("status_reason_code") == "schedule.skipped.missed_fire"
    )
    since_good = pl.col("status").is_in(GOOD).cast(pl.Int32).cum_sum() == 0
    return newest_first.group_by(*schedule).agg(
        n_runs=pl.len(),
        n_running=(pl.col("status") == "running").sum(),
        n_missed=is_missed.sum(),
        n_failed_in_row=(since_good & pl.col("status").is_in(FAILED)).sum(),
        last_executed_at=pl.col("fired_at").filter(is_executed).first(),
        last_executed_status=pl.col("status").filter(is_executed).first(),
    )


def last_sign_at() -> pl.Expr:
    """The last thing that proves a schedule works; a skipped run proves nothing."""
    return pl.max_horizontal(
        "last_executed_at",
        pl.when("has_threshold").then("last_evaluated_at"),
        pl.when(pl.col("trigger_type") == "github_poll").then("last_healthy_poll_at"),
    )


def _cadences(rows: pl.DataFrame) -> pl.Series:
    """Seconds between fires of each schedule, null where there is no rhythm."""
    fixed = (
        pl.when(pl.col("trigger_type") == "interval")
        .then("interval_sec")
        .when(pl.col("trigger_type") == "github_poll")
        .then(
            # Zero is no interval: it stands for "not set" in both columns.
            pl.coalesce(
                pl.col("poll_interval_sec").replace(0.0, None),
                pl.col("interval_sec").replace(0.0, None),
                pl.lit(DEFAULT_POLL_S),
            )
        )
    )
    is_cron = (pl.col("trigger_type") == "cron") & pl.col("cron_expr").is_not_null()
    at = pl.coalesce(last_sign_at(), "last_fired_at", "created_at")
    crons = rows.select("cron_expr", at=at, timezone=_zone_name())
    return rows.select(
        pl.when(is_cron).then(cron_cadences(crons)).otherwise(fixed).alias("cadence_s")
    ).to_series()


def _zone_name() -> pl.Expr:
    return pl.coalesce("resolved_timezone", "effective_timezone", pl.lit("UTC"))


def cron_cadences(crons: pl.DataFrame) -> pl.Series:
    """The `cadence_s` of each row.

    Parameters
    ----------
    crons : polars.DataFrame
        ``cron_expr``, ``at`` (the moment to look from) and ``timezone``.
    """
    names = ["cron_expr", "at", "timezone"]
    # A store has tens of schedules, and a cron expression is no arithmetic.
    distinct = crons.select(names).drop_nulls().unique()
    read = distinct.with_columns(
        cron_s=pl.Series(
            [cadence_s(cron, at, zone) for cron, at, zone in distinct.rows()], dtype=pl.Float64
        )
    )
    return crons.join(read, on=names, how="left", maintain_order="left")["cron_s"]

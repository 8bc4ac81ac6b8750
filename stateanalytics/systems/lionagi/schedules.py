"""Schedules and their runs: rows, cadences, health."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import Rows, collected, left_joined
from stateanalytics.core.windows import instant
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.frames import Raw
from stateanalytics.systems.lionagi.sessions import last_reasons, parent, reason
from stateanalytics.systems.situations import first_that_holds

_VALUE = r"(?:\d{1,2}|[a-z]{3})"
_ITEM = rf"{_VALUE}(?:-{_VALUE})?(?:/\d{{1,3}})?"
# Versions of croniter differ in whether a star in a list is one choice or the whole field.
_FIELD = rf"(?:\*(?:/\d{{1,3}})?|{_ITEM}(?:,{_ITEM})*)"
_DAY = rf"(?:\?|{_FIELD})"
_PLAIN = re.compile(
    rf"{_FIELD} {_FIELD} {_DAY} {_FIELD} {_DAY}"
    r"|@(?:hourly|daily|midnight|weekly|monthly|yearly|annually)",
    re.ASCII,
)
_STEPPED_RANGE = re.compile(r"(\w+)-(\w+)/")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_DAYS = "sun mon tue wed thu fri sat".split()
_NAMES = {
    name: n for names, first in ((_MONTHS, 1), (_DAYS, 0)) for n, name in enumerate(names, first)
}
_YEARS_AHEAD = 9  # the longest wait there is: from 29 February to the next, over 2100


def cadence_s(expression: str, reference_at: datetime, zone: str = "UTC") -> float | None:
    """Seconds between the two fires that follow a moment.

    Parameters
    ----------
    expression : str
        A cron expression of five fields, or a shorthand such as ``@daily``.
    reference_at : datetime
        The moment after which the fires are looked for, with a time zone.
    zone : str
        The IANA zone of the expression; UTC where it cannot be loaded.

    Returns
    -------
    float or None
        None where the expression cannot be read or never fires twice.

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
    # It takes a fifth of the time of importing polars, and few stores need it.
    from croniter import CroniterError, croniter

    text = " ".join(expression.lower().split())
    if not _PLAIN.fullmatch(text) or _has_reversed_range(text):
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
    # Timestamps, because the difference of two local times ignores a clock change between them.
    return float(second_at.timestamp() - first_at.timestamp())


def _has_reversed_range(text: str) -> bool:
    """Whether a range with a step begins after its end: versions of croniter differ there."""
    return any(_number(begin) > _number(end) for begin, end in _STEPPED_RANGE.findall(text))


def _number(value: str) -> int:
    return int(value) if value.isdecimal() else _NAMES.get(value, -1)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


# lionagi's own lists: what proves that a run was executed, and what ends a streak.
_EXECUTED = ("running", "completed", "failed", "cancelled", "timed_out")
_FAILED = ("failed", "timed_out")
_GOOD = ("completed", "cancelled")
_DEFAULT_POLL_S = 300.0

_DELIVERIES = {
    **{word: word for word in schema.DELIVERIES},
    **dict.fromkeys(("completed", "succeeded", "merged"), "passed"),
    # ADR-0025: what ran out of time may be complete in part.
    "timed_out": "partial",
    **dict.fromkeys(("failed", "aborted", "completed_empty"), "missing"),
    **dict.fromkeys(("cancelled", "skipped"), "not_expected"),
}
"""Delivery of a schedule (ADR-0033) by the outcome of its last run."""


def schedules(raw: Raw, transitions: pl.DataFrame, details: pl.DataFrame) -> pl.DataFrame:
    """Schedules, one row each; ``enabled`` 1/0 becomes the status that lionagi's history uses.

    ``details`` is the result of `schedule_details`: the facts by which health is judged.
    """
    status = (
        pl.when("enabled").then(pl.lit("enabled")).when(~pl.col("enabled")).then(pl.lit("disabled"))
    )
    rows = (
        raw["schedules"]
        .with_columns(raw_status=status)
        .pipe(left_joined, last_reasons(transitions, "schedule"), on=["id", "raw_status"])
    )
    entities = rows.select(
        pl.col("name", "raw_status", "created_at", "updated_at", "reason_code", "evidence"),
        entity_type=pl.lit("schedule"),
        entity_id="id",
        kind="action_kind",
        project=pl.coalesce("project", "action_project"),
        agent="action_agent",
        model="action_model",
        playbook="action_playbook",
        recorded_by=pl.lit("live"),
        started_at="created_at",
        reason_message="message",
        # No release stores it yet; without it a schedule has no delivery, only its runs have one.
        recorded_delivery=pl.col("last_run_outcome").replace_strict(
            _DELIVERIES,
            default=pl.when(pl.col("last_run_outcome") != "").then(pl.lit("unknown")),
            return_dtype=pl.String,
        ),
    )
    return of_schedules(entities, details, ["entity_id"])


def of_schedules(entities: pl.DataFrame, details: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Entities of schedules with their plan, cadence and signs of life, by their details."""
    shown = details.lazy().select(
        *(name for name in key if name != "entity_id"),
        *("cadence_s", "n_running", "last_fired_at"),
        entity_id="schedule_id",
        last_sign_at=last_sign_at(),
        due_at="next_fire_at",
    )
    replaced = {*shown.collect_schema()} - {*key}
    return (
        entities.lazy()
        .drop(replaced, strict=False)
        .join(shown, on=key, how="left", maintain_order="left")
        .with_columns(last_activity_at=pl.coalesce("last_fired_at", "updated_at", "created_at"))
        .drop("last_fired_at")
        .pipe(collected)
    )


def schedule_runs(raw: Raw) -> pl.DataFrame:
    """Occurrences of schedules, and tasks that were queued without a schedule."""
    names = raw["schedules"].select(
        "project", schedule_id="id", schedule_name="name", playbook="action_playbook"
    )
    rows = raw["schedule_runs"].join(names, on="schedule_id", how="left", maintain_order="left")
    return rows.select(
        pl.col("invocation_id", "project", "playbook", "created_at", "ended_at", "updated_at"),
        pl.col("exit_code"),
        entity_type=pl.lit("schedule_run"),
        entity_id="id",
        **parent(schedule="schedule_id", schedule_run="chain_parent_id"),
        kind="action_kind",
        name="schedule_name",
        recorded_by=pl.lit("live"),
        raw_status="status",
        attempt=pl.when(pl.col("lease_attempts") > 0).then("lease_attempts"),
        started_at="fired_at",
        last_activity_at=pl.coalesce("updated_at", "fired_at"),
        **reason(second_message="error_detail"),
    )


def schedule_details(raw: Raw) -> pl.DataFrame:
    """The facts by which lionagi judges the health of schedules, one row per schedule.

    Returns
    -------
    polars.DataFrame, shape (n_schedules, 18)
        `frames.SCHEDULES`, ``source`` null. ``cadence_s`` of a cron schedule is the time
        between the two fires that follow its newest sign of life.
    """
    rows = raw["schedules"].with_columns(
        schedule_id="id",
        is_enabled="enabled",
        timezone=pl.coalesce("resolved_timezone", "effective_timezone", pl.lit("UTC")),
        cadence_s=_FIXED_CADENCE,
    )
    return frames.SCHEDULES.conform(with_runs(rows, raw["schedule_runs"], "schedule_id"))


def with_runs(schedules: pl.DataFrame, runs: pl.DataFrame, *schedule: str) -> pl.DataFrame:
    """Schedules with their last executed run, cadence and counts of runs, without chained ones.

    Parameters
    ----------
    schedules : polars.DataFrame
        With the columns of `frames.SCHEDULES` that do not follow from runs, and ``created_at``.
    runs : polars.DataFrame
        ``id``, ``chain_depth``, ``fired_at``, ``status``, ``status_reason_code``.
    *schedule : str
        The columns that identify the schedule.
    """
    # Chained runs are consequences of a fire, not fires.
    newest_first = (
        runs.lazy()
        .filter(pl.col("chain_depth").fill_null(0) == 0)
        .sort("fired_at", "id", descending=True, nulls_last=True)
    )
    is_executed = pl.col("status").is_in(_EXECUTED)
    is_missed = (pl.col("status") == "skipped") & (
        pl.col("status_reason_code") == "schedule.skipped.missed_fire"
    )
    since_good = pl.col("status").is_in(_GOOD).cast(pl.Int32).cum_sum() == 0
    counts = {
        "n_runs": pl.len(),
        "n_running": (pl.col("status") == "running").sum(),
        "n_missed": is_missed.sum(),
        "n_failed_in_row": (since_good & pl.col("status").is_in(_FAILED)).sum(),
    }
    of_runs = newest_first.group_by(*schedule).agg(
        **counts,
        last_executed_at=pl.col("fired_at").filter(is_executed).first(),
        last_executed_status=pl.col("status").filter(is_executed).first(),
    )
    rows = collected(
        schedules.lazy()
        .drop({*counts, "last_executed_at", "last_executed_status"}, strict=False)
        .join(of_runs, on=schedule, how="left", maintain_order="left")
        .with_columns(pl.col(name).fill_null(0).cast(schema.INTEGER) for name in counts)
    )
    # The time between the two fires that follow the newest sign of life.
    at = pl.coalesce(last_sign_at(), "last_fired_at", "created_at")
    crons = cron_cadences(rows.select("cron_expr", "timezone", at=at))
    is_cron = pl.col("trigger_type") == "cron"
    return rows.with_columns(cadence_s=pl.when(is_cron).then(crons).otherwise("cadence_s"))


def last_sign_at() -> pl.Expr:
    """The last proof that a schedule works: an executed run, an evaluation, a healthy poll.

    A skipped run proves nothing, and neither does the planned next fire, which is a promise.
    """
    return pl.max_horizontal(
        "last_executed_at",
        pl.when("has_threshold").then("last_evaluated_at"),
        pl.when(pl.col("trigger_type") == "github_poll").then("last_healthy_poll_at"),
    )


_FIXED_CADENCE = (
    pl.when(pl.col("trigger_type") == "interval")
    .then("interval_sec")
    .when(pl.col("trigger_type") == "github_poll")
    .then(
        # Zero means "not set" in both columns.
        pl.coalesce(
            pl.col("poll_interval_sec").replace(0.0, None),
            pl.col("interval_sec").replace(0.0, None),
            pl.lit(_DEFAULT_POLL_S),
        )
    )
)


def cron_cadences(crons: pl.DataFrame) -> pl.Series:
    """Cadence of each row with a cron expression, by `cadence_s`.

    Parameters
    ----------
    crons : polars.DataFrame
        ``cron_expr``, ``at`` (the moment after which fires are looked for) and ``timezone``.
    """
    rows = crons[["cron_expr", "at", "timezone"]].rows()
    # Schedules are few, but a cron expression takes long to evaluate: each is evaluated once.
    evaluated = {row: cadence_s(*row) for row in {*rows} if None not in row}
    return pl.Series("cron_s", [evaluated.get(row) for row in rows], dtype=pl.Float64)


WORDS = {
    "disabled": "switched off",
    "never-fired": "enabled, and nothing shows that it ever fired",
    "no-evidence": "enabled and fired once, but no executed run is left to judge",
    "overdue": "silent for longer than three cadences, and five minutes longer than one",
    "failing": "the last executed run failed or timed out",
    "healthy": "none of these",
}
"""E1's words and what they mean; the first that applies wins."""


def schedule_ages(schedules: Rows, as_of: datetime) -> Rows:
    """Schedules with the ages of the moments of ``frames.SCHEDULES``.

    Adds ``silence_s`` (since the last proof that the schedule works; null without one),
    ``since_last_fire_s`` and ``next_fire_in_s``: float seconds, null where the moment is
    not known.

    Examples
    --------
    >>> from datetime import UTC
    >>> from stateanalytics.systems.lionagi import frames
    >>> noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    >>> rows = frames.SCHEDULES.conform(pl.DataFrame({"next_fire_at": [noon]}))
    >>> schedule_ages(rows, datetime(2026, 5, 1, 11, tzinfo=UTC))["next_fire_in_s"].to_list()
    [3600.0]
    """
    now = instant(as_of)
    ages = {
        "silence_s": now - last_sign_at(),
        "since_last_fire_s": now - pl.col("last_fired_at"),
        "next_fire_in_s": pl.col("next_fire_at") - now,
    }
    return schedules.with_columns(
        (age.dt.total_microseconds() / 1e6).alias(name) for name, age in ages.items()
    )


def schedule_limit_s() -> pl.Expr:
    """The silence past which a schedule is overdue; null without a cadence.

    Longer than three cadences, and longer than one cadence and five minutes.
    """
    cadence = pl.col("cadence_s")
    return pl.when(cadence > 0).then(pl.max_horizontal(3 * cadence, cadence + 300))


def with_schedule_health(rows: Rows) -> Rows:
    """Schedules with their health, in lionagi's words and in ADR-0033's.

    Parameters
    ----------
    rows : polars.DataFrame
        ``is_enabled``, ``cadence_s`` (null: never overdue), ``silence_s``,
        ``last_executed_status``, ``n_runs``, ``n_running``, ``since_last_fire_s`` and
        ``next_fire_in_s``, as `schedule_ages` gives them.

    Returns
    -------
    polars.DataFrame
        The same rows with ``schedule_health`` (one of `WORDS`) and ``health`` (ADR-0033:
        misfired, running, due, ok).

    Notes
    -----
    A disabled schedule is ``ok``. One that is ``overdue`` is ``misfired`` whatever else is
    true of it; ``failing`` is no matter of health (its runs carry it). An unknown
    ``is_enabled`` counts as disabled, as in lionagi.

    Examples
    --------
    >>> row = {"is_enabled": True, "cadence_s": 60.0, "n_runs": 4, "silence_s": 361.0,
    ...        "last_executed_status": "completed", "since_last_fire_s": 361.0,
    ...        "n_running": 0, "next_fire_in_s": 9.0}
    >>> with_schedule_health(pl.DataFrame([row])).select("schedule_health", "health").row(0)
    ('overdue', 'misfired')
    """
    silence = pl.col("silence_s")
    is_disabled = ~pl.col("is_enabled").fill_null(value=False)
    is_unproven = ~(pl.col("n_runs") > 0).fill_null(value=False) & (
        pl.col("since_last_fire_s").is_null()
    )
    words = {
        "disabled": is_disabled,
        "never-fired": silence.is_null() & is_unproven,
        "no-evidence": silence.is_null(),
        "overdue": silence > schedule_limit_s(),
        "failing": pl.col("last_executed_status").is_in(_FAILED),
    }
    health = {
        "ok": is_disabled,
        "misfired": pl.col("schedule_health") == "overdue",
        "running": pl.col("n_running") > 0,
        "due": pl.col("next_fire_in_s") <= 0,
    }
    return rows.with_columns(
        schedule_health=first_that_holds(words).fill_null("healthy")
    ).with_columns(health=first_that_holds(health).fill_null("ok"))

"""Recorded polls replayed: the same trajectory again, or what other limits had made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import need, with_defaults
from stateanalytics.systems.agent_orchestrator.constants import WatcherThresholds
from stateanalytics.systems.agent_orchestrator.statuses import legacy_status_rule
from stateanalytics.systems.agent_orchestrator.words import TERMINAL_STATUSES
from tests.conformance.agent_orchestrator.detecting import DetectingBudget
from tests.conformance.agent_orchestrator.determine_status import plan_poll, with_poll_columns
from tests.conformance.agent_orchestrator.events import DEFAULT_REACTIONS
from tests.conformance.agent_orchestrator.poll_aftermath import close_merged, notify, watch
from tests.conformance.agent_orchestrator.poll_columns import MOMENT, STORED

WRITTEN = ("session_state", "session_reason", "pr_state", "pr_reason", "runtime_state")
"""The columns that another writer may change between two polls."""

_WATCHED: dict[str, pl.DataType] = {
    "watcher_trigger": pl.String(),
    "watcher_activated_at": MOMENT,
    "watcher_count": pl.Int64(),
}
_MEMORY: dict[str, pl.DataType] = {"seen_status": pl.String(), "merged_pending_since": MOMENT}
_CARRIED = STORED | _WATCHED | _MEMORY
_TIMES: dict[str, pl.DataType] = {"written_at": MOMENT, "created_at": MOMENT}
_OVER = ("terminated", "done")
_BY_RUNTIME_STATE = {
    "alive": "process_running",
    "missing": "process_missing",
    "exited": "process_missing",
    "probe_failed": "probe_error",
    "unknown": "spawn_incomplete",
}


@dataclass(frozen=True)
class PollSettings:
    """What a replay may change.

    Parameters
    ----------
    budget : DetectingBudget
        How long probes may disagree.
    watcher : WatcherThresholds
        When the report watcher speaks up.
    reactions : mapping of str to (str, str)
        Reaction key to what it does (notify, send-to-agent) and its priority; a user's
        own ones are added with ``DEFAULT_REACTIONS | {...}``.
    cleans_up_merged : bool, default True
        Is a session closed once its pull request is merged.
    merge_grace_s : float, default 300
        How long that waits for a busy agent.

    Examples
    --------
    >>> PollSettings(budget=DetectingBudget(max_attempts=5)).budget.max_attempts
    5
    """

    budget: DetectingBudget = field(default_factory=DetectingBudget)
    watcher: WatcherThresholds = field(default_factory=WatcherThresholds)
    reactions: Mapping[str, tuple[str, str]] = field(default_factory=lambda: DEFAULT_REACTIONS)
    cleans_up_merged: bool = True
    merge_grace_s: float = 300.0


def replay_polls(
    polls: pl.DataFrame, *, by: str = "session_id", settings: PollSettings | None = None
) -> pl.DataFrame:
    """Replay recorded polls of many sessions, each from what the one before left.

    Parameters
    ----------
    polls : polars.DataFrame, shape (n_polls, ...)
        One row a poll, in any order: ``by``, ``at``, and what it observed
        (`poll_columns.OBSERVED` and `poll_columns.SETTING`); ``kind``, ``created_at``,
        and the last report then, ``report_state`` and ``report_at``. What another
        writer (a report, a kill, a restore) did between two polls is said in one of two
        ways: ``before_<column>`` for each of `WRITTEN`, the whole record as the poll found
        it, or ``written_<column>``, only what that writer changed. ``written_at`` is
        when that was (optional). The first poll of a session starts from either.
    by : str, default "session_id"
        The column that names the session.
    settings : PollSettings, optional
        What to change; Agent Orchestrator's own where absent.

    Returns
    -------
    polars.DataFrame, shape (n_polls, ...)
        Sorted by ``at`` and ``by``: the record after each poll (`poll_columns.STORED`), the
        watcher's ``watcher_trigger``, ``watcher_activated_at`` and ``watcher_count``,
        ``status``, ``decided_by`` (null: the poll loop left the session alone),
        ``notified_events`` (``type:priority``, joined by ``|``; empty: none), and
        ``written_<column>``: what had changed between this poll and the one before.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    To simulate other settings, replay the result of a replay: it holds what others wrote
    (not what they found), so that stays and all else may come out otherwise.
    The replay goes poll by poll, all sessions at once.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> import polars as pl
    >>> polls = pl.DataFrame(
    ...     {
    ...         "session_id": ["app-4"] * 5,
    ...         "at": [datetime(2026, 5, 1, 12, minute, tzinfo=UTC) for minute in range(5)],
    ...         "written_session_state": ["working", None, None, None, None],
    ...         "written_session_reason": ["task_in_progress", None, None, None, None],
    ...         "written_pr_state": ["none", None, None, None, None],
    ...         "written_pr_reason": ["not_created", None, None, None, None],
    ...         "written_runtime_state": ["alive", None, None, None, None],
    ...         "activity": ["exited"] * 5,
    ...         "runtime_probe": ["alive"] * 5,
    ...     }
    ... )
    >>> replay_polls(polls)["status"].to_list()
    ['detecting', 'detecting', 'detecting', 'stuck', 'stuck']
    >>> patient = PollSettings(budget=DetectingBudget(max_attempts=5))
    >>> replay_polls(polls, settings=patient)["status"].to_list()
    ['detecting', 'detecting', 'detecting', 'detecting', 'detecting']
    """
    need(polls, [by, "at"], "replay_polls")
    source = "before" if "before_session_state" in polls.columns else "written"
    need(polls, [f"{source}_{name}" for name in WRITTEN], "replay_polls")
    chosen = settings or PollSettings()
    carried = pl.DataFrame(schema={by: polls.schema[by], **_CARRIED})
    replayed = [_plan(polls.clear(), carried, by, source, chosen).collect()]
    for step in _steps(polls, by):
        after = _plan(step, carried, by, source, chosen).collect()
        carried = after.select(by, *_CARRIED)
        replayed.append(after)
    joined = pl.concat(replayed, how="vertical_relaxed")
    dropped = pl.exclude("^before_.*$", "seen_status", "merged_pending_since")
    return joined.select(dropped).sort("at", by, maintain_order=True)


def _steps(polls: pl.DataFrame, by: str) -> list[pl.DataFrame]:
    """The first polls of all sessions, the second ones, and so on."""
    if polls.is_empty():
        return []
    in_order = polls.sort("at", maintain_order=True)
    numbered = in_order.with_columns(_step=pl.int_range(pl.len()).over(by))
    return numbered.sort("_step", maintain_order=True).partition_by(
        "_step", maintain_order=True, include_key=False
    )


def _plan(
    step: pl.DataFrame, carried: pl.DataFrame, by: str, source: str, settings: PollSettings
) -> pl.LazyFrame:
    """One poll of each session, from what the last one left and others wrote since."""
    given = {f"written_{name}": pl.String() for name in WRITTEN}
    bare = step.select(pl.exclude(*_CARRIED, "status", "decided_by", "notified_events"))
    filled = with_poll_columns(with_defaults(bare, given | _TIMES)).drop(_CARRIED, strict=False)
    found = filled.lazy().join(
        carried.lazy(), on=by, how="left", maintain_order="left", nulls_equal=True
    )
    return _poll(_apply_writes(found, source), settings)


def _apply_writes(found: pl.LazyFrame, source: str) -> pl.LazyFrame:
    """The record as the poll finds it; ``written_…`` is what changed since the last one."""
    changes = {
        f"written_{name}": pl.when(pl.col(f"{source}_{name}").ne_missing(pl.col(name))).then(
            f"{source}_{name}"
        )
        for name in WRITTEN
    }
    is_first = pl.col("session_state").is_null()
    is_changed = pl.any_horizontal(pl.col(f"written_{name}").is_not_null() for name in WRITTEN)
    changed = found.with_columns(**changes, **{"~first": is_first})
    return changed.with_columns(**{"~written": is_changed & ~pl.col("~first")}).with_columns(
        **_written()
    )


def _written() -> dict[str, pl.Expr]:
    state = pl.coalesce("written_session_state", "session_state")
    at = pl.coalesce("written_at", "report_at", "at")
    is_first, is_written = pl.col("~first"), pl.col("~written")
    was_over, is_over = (one.is_in(_OVER) for one in (pl.col("session_state"), state))
    leaves_end = (is_written & was_over & ~is_over).fill_null(False)
    enters_end = is_written & (state == "terminated")
    starts = (is_first | is_written) & (state == "working") & pl.col("started_at").is_null()
    runtime_reason = pl.col("written_runtime_state").replace_strict(
        _BY_RUNTIME_STATE, default=None, return_dtype=pl.String
    )
    ended = pl.when(enters_end).then(pl.coalesce("terminated_at", at)).otherwise("terminated_at")
    moved = pl.when(is_written).then(at).otherwise("last_transition_at")
    return {
        **{name: pl.coalesce(f"written_{name}", name) for name in WRITTEN},
        "runtime_reason": pl.coalesce(runtime_reason, "runtime_reason"),
        "started_at": pl.when(starts)
        .then(pl.when(is_first).then("created_at").otherwise(at))
        .otherwise("started_at"),
        "completed_at": pl.when(~leaves_end).then("completed_at"),
        "terminated_at": pl.when(~leaves_end).then(ended),
        "last_transition_at": pl.when(is_first).then("created_at").otherwise(moved),
        "merged_pending_since": pl.when(~is_written).then("merged_pending_since"),
    }


def _poll(frame: pl.LazyFrame, settings: PollSettings) -> pl.LazyFrame:
    """One poll of each session: decide, clean up what is merged, watch reports, notify."""
    before = frame.with_columns(
        **{f"~{name}": pl.col(name) for name in _CARRIED},
        **{"~status": legacy_status_rule(library=pl)},
    )
    is_over = pl.col("~status").is_in(TERMINAL_STATUSES).fill_null(False)
    is_news = (pl.col("seen_status") != pl.col("~status")).fill_null(False)
    waits = pl.col("merged_pending_since").is_not_null()
    before = before.with_columns(
        **{
            "~polled": ~is_over | is_news | waits,
            "~seen": pl.coalesce("seen_status", "stored_status", "~status"),
        }
    )
    decided = plan_poll(before, settings.budget)
    cleaned = close_merged(decided, is_on=settings.cleans_up_merged, grace_s=settings.merge_grace_s)
    watched = watch(cleaned, settings.watcher)
    return _keep_unpolled(notify(watched, settings.reactions)).select(pl.exclude("^~.*$"))


def _keep_unpolled(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Put back the record of sessions that the poll loop leaves alone."""
    is_polled = pl.col("~polled")
    return frame.with_columns(
        *(pl.when(is_polled).then(name).otherwise(f"~{name}").alias(name) for name in _CARRIED),
        status=pl.when(is_polled).then("status").otherwise("~status"),
        decided_by=pl.when(is_polled).then("decided_by"),
        notified_events=pl.when(is_polled).then("notified_events").otherwise(pl.lit("")),
    )

"""Is the runtime of an entity well: ADR-0033's health, per entity type, in bulk.

Each rule is a named expression that is true or false, never null; the first that is
true gives the health. Sessions are judged by lionagi's own classifier, whose words are
translated by *evidence*: only a process that was looked for and not found is dead,
silence makes it stalled. What is over carries no running-time health.
"""

from __future__ import annotations

from dataclasses import dataclass

import narwhals as nw

from stateanalytics.core import schema
from stateanalytics.state.engines import TEMPORARY
from stateanalytics.state.lifecycle import Cells
from stateanalytics.state.policy import Policy
from stateanalytics.state.session_health import VERSIONS, Signs, health_rules
from stateanalytics.state.staleness import limit_s

HEALTH_OR_NONE = (*schema.HEALTHS, None)
NO_HEALTH = len(schema.HEALTHS)
"""Position in `HEALTH_OR_NONE` of what has no health at all."""

SESSION_RULE = f"{TEMPORARY}session_rule"
HEALTH_RULE = f"{TEMPORARY}health_rule"
HEALTH = f"{TEMPORARY}health"

QUIET_SESSION = ("stalled", "process_dead", "orphaned")
"""Healths of a session that make the play or engine run it works for stalled."""

RUNNING_LIKE = ("running", "redoing", "running_complete")
"""Stored statuses of a play at work; one that is gated waits for a verdict."""

BLOCKED_LIKE = ("blocked", "escalated", "gate_failed")
"""Stored statuses of a play that hold up its show."""


@dataclass(frozen=True)
class Outcome:
    """What a rule says: the health, and the evidence a derived reason names."""

    health: str | None
    evidence: str | None = None


# lionagi's rules of `session_health.RULE_WORDS`, translated (NORMALIZED_STATE 4).
SESSION_OUTCOMES = {
    "over_with_locks": Outcome("degraded", "stale_locks"),
    "over": Outcome("ok"),
    "nothing_to_show": Outcome("orphaned", "no_process_no_output"),
    "process_gone": Outcome("process_dead", "process_not_found"),
    "silent_not_alive": Outcome("stalled", "silence_over_threshold"),
    "silent_alive": Outcome("stalled", "silence_over_threshold"),
    "quiet": Outcome("idle", "silence_over_threshold"),
    "active": Outcome("running"),
}

OUTCOMES = {
    "does_not_apply": Outcome(None),
    "status_unknown": Outcome("unknown", "status_unknown"),
    **{f"session_{name}": outcome for name, outcome in SESSION_OUTCOMES.items()},
    "play_blocked": Outcome("blocked", "stored_status"),
    "over": Outcome("ok"),
    "play_session_quiet": Outcome("stalled", "session_health"),
    "play_silent": Outcome("stalled", "silence_at_threshold"),
    "play_active": Outcome("running"),
    "show_play_running": Outcome("running"),
    "show_play_blocked": Outcome("blocked", "children_status"),
    "schedule_off": Outcome("ok"),
    "schedule_misfired": Outcome("misfired", "overdue"),
    "schedule_running": Outcome("running"),
    "schedule_due": Outcome("due", "next_fire_passed"),
    "schedule_unknown": Outcome("unknown"),
    "schedule_run_silent": Outcome("stalled", "silence_at_threshold"),
    "schedule_run_active": Outcome("running"),
    "engine_run_session_quiet": Outcome("stalled", "session_health"),
    "engine_run_active": Outcome("running"),
    "dispatch_waiting": Outcome("due", "not_delivered"),
    "waiting": Outcome("ok"),
}
"""Every rule in order of precedence, and what it says."""

SESSION_RULES = tuple(name for name in OUTCOMES if name.startswith("session_"))
_NUMBERS = {name: number for number, name in enumerate(OUTCOMES)}


@dataclass(frozen=True)
class Links:
    """What other rows say about an entity, as expressions; null: no such row.

    Attributes
    ----------
    is_session_quiet : narwhals.Expr
        Is the session that works for it in one of `QUIET_SESSION`.
    has_running_child, has_blocked_child : narwhals.Expr
        Of a show its plays, of a schedule its fires.
    schedule_health : narwhals.Expr
        Position in `links.SCHEDULE_WORDS`.
    """

    is_session_quiet: nw.Expr
    has_running_child: nw.Expr
    has_blocked_child: nw.Expr
    schedule_health: nw.Expr


def session_rules(cells: Cells, policy: Policy) -> dict[int, nw.Expr]:
    """The rules for sessions, by their number in `OUTCOMES`.

    They read ``silence_s``, ``kind``, ``process_alive``, ``has_artifacts``,
    ``n_messages`` and ``has_stale_locks``.
    """
    limits = {**dict(policy.stalled_after_s), "default": policy.stalled_after_default_s}
    is_session = cells.where(lambda cell: cell.entity_type == "session")
    is_over = cells.where(lambda cell: cell.entity_type == "session" and cell.is_terminal)
    is_running = cells.where(
        lambda cell: cell.entity_type == "session" and cell.is_terminal is False
    )
    signs = Signs(
        is_over=is_over,
        is_running=is_running,
        silence_s=nw.col("silence_s").fill_null(float("inf")),
        stale_after_s=limit_s("kind", limits, {}),
        process_alive=nw.col("process_alive"),
        has_output=nw.col("has_artifacts").fill_null(value=False)
        | (nw.col("n_messages").fill_null(0) != 0),
        has_stale_locks=nw.col("has_stale_locks"),
    )
    rules = health_rules(signs, VERSIONS["0.36"], policy.idle_after_s)
    is_unknown = cells.where(
        lambda cell: cell.entity_type == "session" and cell.is_terminal is None
    )
    return {
        _NUMBERS["status_unknown"]: is_unknown,
        **{_NUMBERS[f"session_{name}"]: is_session & rule for name, rule in rules.items()},
    }


def entity_rules(cells: Cells, policy: Policy, links: Links) -> dict[int, nw.Expr]:
    """The rules for everything but sessions, by their number in `OUTCOMES`.

    They read ``silence_s`` and ``updated_age_s``, ``age_s``, and what `Links` says.
    """

    def of(*types: str | None) -> nw.Expr:
        return cells.where(lambda cell: cell.entity_type in types)

    def open_(entity_type: str, *raws: str) -> nw.Expr:
        return cells.where(
            lambda cell: (
                cell.entity_type == entity_type
                and cell.word is not None
                and (cell.word.raw_status in raws or (not raws and not cell.word.is_terminal))
            )
        )

    def yes(expression: nw.Expr) -> nw.Expr:
        return expression.fill_null(value=False)

    quiet, schedule = links.is_session_quiet, links.schedule_health
    silence_s = nw.col("silence_s").fill_null(float("inf"))
    unwritten_s = nw.coalesce(nw.col("updated_age_s"), nw.col("age_s"), nw.lit(float("inf")))
    at_work = open_("play", *RUNNING_LIKE)
    is_on = open_("schedule", "enabled")
    is_fire = open_("schedule_run", "running")
    is_engine = open_("engine_run")
    named = {
        "does_not_apply": of("invocation", "branch"),
        "status_unknown": cells.where(lambda cell: cell.lifecycle == "unknown"),
        "play_blocked": open_("play", "blocked"),
        "over": cells.where(lambda cell: cell.is_terminal),
        "play_session_quiet": at_work & yes(quiet),
        "play_silent": at_work & quiet.is_null() & (silence_s >= policy.play_stalled_after_s),
        "play_active": at_work,
        "show_play_running": of("show") & yes(links.has_running_child),
        "show_play_blocked": of("show") & yes(links.has_blocked_child),
        "schedule_off": open_("schedule", "disabled"),
        "schedule_misfired": is_on & yes(schedule == 0),
        "schedule_running": is_on & (yes(schedule == 1) | yes(links.has_running_child)),
        "schedule_due": is_on & yes(schedule == 2),
        "schedule_unknown": is_on & schedule.is_null(),
        "schedule_run_silent": is_fire & (unwritten_s >= policy.schedule_run_stalled_after_s),
        "schedule_run_active": is_fire,
        "engine_run_session_quiet": is_engine & yes(quiet),
        "engine_run_active": is_engine,
        "dispatch_waiting": open_("dispatch"),
        "waiting": nw.lit(value=True),
    }
    return {_NUMBERS[name]: rule for name, rule in named.items()}


def health_values() -> tuple[int, ...]:
    """Position in `HEALTH_OR_NONE` of what each rule of `OUTCOMES` says."""
    return tuple(HEALTH_OR_NONE.index(outcome.health) for outcome in OUTCOMES.values())

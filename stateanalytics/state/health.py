"""ADR-0033's health, per entity type, and the severity of states, both in bulk.

Health describes the runtime of an entity. Each rule is a named expression that is true or false,
never null; the first true rule gives the health. Sessions are judged by ADR-0024's classifier,
whose words are translated by *evidence*: a process is dead only if it was looked for and not
found, and silence alone makes it stalled. Work that is over has no runtime health. A health that
a system recorded takes precedence, then the limits that the system has for open work.
Severity is how much attention a state needs: a cascade of rules over three axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import narwhals as nw

from stateanalytics.core import schema
from stateanalytics.core.engines import TEMPORARY, TEXT, Frame, adapt, encode, first_true, lookup
from stateanalytics.core.package_tables import package_table
from stateanalytics.core.session_health import VERSIONS, HealthFacts, health_rules, limit_s
from stateanalytics.state.lifecycle import StatusTable
from stateanalytics.state.policy import AXES, Policy
from stateanalytics.systems import limits_of_systems

LIMITS = (
    # Silence from which work is stalled, or dead if nothing claims to resume it.
    *("stalled_after_s", "dead_after_s"),
    # Factor of both while a part of it is running.
    "tool_factor",
    # A retry that is overdue by more than this is stalled.
    "retry_grace_s",
    # So many steps with an unknown end make work degraded (runaway).
    "min_runaway_steps",
)
"""Every limit that a system can have."""

SIGN_AGE, DUE_AGE = f"{TEMPORARY}sign_age_s", f"{TEMPORARY}due_age_s"
"""Ages of the last sign of life and of a due time; negative: it is due later."""

RUNAWAY = f"{TEMPORARY}is_runaway"
_SYSTEM = f"{TEMPORARY}system"
_LIMIT = {name: f"{TEMPORARY}{name}" for name in LIMITS}


def add_limits(frame: Frame, policy: Policy) -> Frame:
    """Add the limits of each row's system, and `RUNAWAY`: whether it loops for too long."""
    systems = tuple(limits_of_systems())
    coded = encode(frame, {_SYSTEM: ("system", systems)})
    limits = {
        column: (_SYSTEM, [policy.limit(system, name) for system in systems])
        for name, column in _LIMIT.items()
    }
    runs_away = nw.col("n_unknown_finishes") >= nw.col(_LIMIT["min_runaway_steps"])
    return lookup(coded, limits).with_columns(runs_away.fill_null(value=False).alias(RUNAWAY))


def open_work_rules(table: StatusTable) -> dict[str, nw.Expr]:
    """The rules by name, over `SIGN_AGE`, `DUE_AGE` and the columns of `add_limits`."""
    is_open = table.where(lambda cell: cell.is_recorded and cell.lifecycle == "running")
    is_judged = is_open & ~nw.col(_SYSTEM).is_null() & nw.col("recorded_health").is_null()
    waits = ~nw.col("retry_code").is_null()
    silence_s = nw.col(SIGN_AGE)
    factor = nw.when(nw.col("n_running") > 0).then(nw.col(_LIMIT["tool_factor"]))
    times = nw.coalesce(factor, nw.lit(1.0))
    patience_s = nw.coalesce(nw.col("patience_s"), nw.col(_LIMIT["stalled_after_s"]) * times)
    is_late = (silence_s >= nw.col(_LIMIT["dead_after_s"]) * times).fill_null(value=False)
    is_claimed = nw.col("is_resume_claimed").fill_null(value=False)
    rules = {
        "process_gone": (~nw.col("process_alive")).fill_null(value=False),
        "retry_overdue": waits & (nw.col(DUE_AGE) > nw.col(_LIMIT["retry_grace_s"])),
        "retry_scheduled": waits,
        "question_open": nw.col("n_questions") > 0,
        "dead": is_late & ~is_claimed,
        "stalled": silence_s >= patience_s,
        "runaway": nw.col(RUNAWAY),
        "active": nw.lit(value=True),
    }
    return {f"open_{name}": is_judged & rule for name, rule in rules.items()}


HEALTH_OR_NONE = (*schema.HEALTHS, None)

SESSION_RULE = f"{TEMPORARY}session_rule"
HEALTH_RULE = f"{TEMPORARY}health_rule"
HEALTH = f"{TEMPORARY}health"

MESSAGE_AGE = f"{TEMPORARY}message_age_s"
"""Column: the age of the last message of a row in seconds."""

RUNNING_LIKE = ("running", "redoing", "running_complete")
"""Stored statuses of a play that works. A gated play waits for a verdict and is not among them."""

BLOCKED_LIKE = ("blocked", "escalated", "gate_failed")
"""Stored statuses of a play that hold up its show."""


class RuleHealth(NamedTuple):
    """The meaning of a rule.

    Attributes
    ----------
    rule : str
        Its name.
    health : str or None
        ADR-0033's word; None: health does not apply.
    evidence : str or None
        The cause that a derived reason names.
    code : str or None
        Last part of the code of that reason, where it is not the health. For rules of open
        work only: of a frame in which no system recorded a state, `states` takes each code
        from the health.
    """

    rule: str
    health: Annotated[str, schema.HEALTHS] | None
    evidence: str | None = None
    code: str | None = None


# The rules of sessions are a translation of `session_health.RULE_WORDS` (NORMALIZED_STATE 4).
# Two rules for unobserved work come before that of death, because the classifier takes a process
# that nobody looked for as gone.
_LISTED = package_table("stateanalytics.state", "health_rules.csv", RuleHealth)
_RECORDED = (RuleHealth(f"recorded_{word}", word) for word in schema.HEALTHS)
_NONE_RECORDED = RuleHealth(f"recorded_{schema.NO_WORD}", None)
RULES = {row.rule: row for row in (*_LISTED, *_RECORDED, _NONE_RECORDED)}
"""Every rule and its health: the shared ones in order, then open work, then recorded ones."""

_NUMBERS = {name: number for number, name in enumerate(RULES)}


IS_QUIET = f"{TEMPORARY}is_quiet"
"""Column: whether the session that works for a row has a silent health; null: no session."""

HAS_RUNNING, HAS_BLOCKED = f"{TEMPORARY}has_running", f"{TEMPORARY}has_blocked"
"""Columns about the plays of a show or the fires of a schedule; null: there are none."""

RECORDED_WORDS = (*schema.HEALTHS, schema.NO_WORD)
FIRST_RECORDED = _NUMBERS[f"recorded_{RECORDED_WORDS[0]}"]
"""Number of the rule of the first of `RECORDED_WORDS`; the others follow it."""

OPEN_RULES = tuple(number for name, number in _NUMBERS.items() if name.startswith("open_"))
RETRY_SCHEDULED, RUNS_AWAY = _NUMBERS["open_retry_scheduled"], _NUMBERS["open_runaway"]


def numbered(rules: Mapping[str, nw.Expr]) -> dict[int, nw.Expr]:
    """Rules by their number in `RULES`."""
    return {_NUMBERS[name]: rule for name, rule in rules.items()}


def session_rules(table: StatusTable, policy: Policy) -> dict[int, nw.Expr]:
    """The rules for sessions, by their number in `RULES`.

    They read ``silence_s``, ``kind``, ``process_alive``, ``has_artifacts``,
    ``n_messages``, `MESSAGE_AGE`, ``age_s`` and ``has_stale_locks``.
    """
    limits = {**dict(policy.stalled_after_s), "default": policy.stalled_after_default_s}
    # Without a recorded time there is no silence; the recorder itself takes it as 1970.
    never_s = float("inf") if policy.is_unseen_dead else 0.0

    def of_sessions(*, is_terminal: bool | None) -> nw.Expr:
        return table.where(
            lambda cell: cell.entity_type == "session" and cell.is_terminal is is_terminal
        )

    session_facts = HealthFacts(
        is_over=of_sessions(is_terminal=True),
        is_running=of_sessions(is_terminal=False),
        silence_s=nw.col("silence_s").fill_null(never_s),
        stale_after_s=limit_s("kind", limits, {}),
        process_alive=nw.col("process_alive"),
        has_output=nw.col("has_artifacts").fill_null(value=False)
        | (nw.col("n_messages").fill_null(0) != 0)
        # The list of messages may be lost, but a message time after the start shows one.
        | (nw.col(MESSAGE_AGE) < nw.col("age_s")).fill_null(value=False),
        has_stale_locks=nw.col("has_stale_locks"),
    )
    of_classifier = health_rules(session_facts, VERSIONS["0.36"], policy.idle_after_s)
    has_no_sign = ~session_facts.has_output | nw.col("silence_s").is_null()
    is_unseen = session_facts.process_alive.is_null() & has_no_sign
    if policy.is_unseen_dead:
        is_unseen = nw.lit(value=False)
    is_silent = (nw.col("silence_s") > session_facts.stale_after_s).fill_null(value=False)
    unseen = {"unseen_silent": is_unseen & is_silent, "unseen": is_unseen}
    rules = {f"session_{name}": rule for name, rule in (of_classifier | unseen).items()}
    named = {name: table.is_type("session") & rules[name] for name in RULES if name in rules}
    return numbered({"status_unknown": of_sessions(is_terminal=None), **named})


def entity_rules(table: StatusTable, policy: Policy) -> dict[int, nw.Expr]:
    """The rules for all entities except sessions, by their number in `RULES`.

    They read ``silence_s`` and ``updated_age_s``, ``age_s``, `SIGN_AGE` and `DUE_AGE`,
    ``cadence_s`` and ``n_running`` of schedules, and what `evaluate.add_links` adds.
    """

    def is_open(entity_type: str) -> nw.Expr:
        return table.where(
            lambda cell: cell.entity_type == entity_type and cell.is_terminal is False
        )

    def yes(expression: nw.Expr) -> nw.Expr:
        return expression.fill_null(value=False)

    quiet, has_running = nw.col(IS_QUIET) == 1, nw.col(HAS_RUNNING) == 1
    # Without a recorded time the silence is unknown; the recorder itself takes it as 1970.
    never_s = nw.lit(float("inf") if policy.is_unseen_dead else None, nw.Float64)
    silence_s = nw.coalesce(nw.col("silence_s"), never_s)
    unwritten_s = nw.coalesce(nw.col("updated_age_s"), nw.col("age_s"), never_s)
    at_work = table.has_status("play", *RUNNING_LIKE)
    is_on = table.has_status("schedule", "enabled")
    cadence, n_running = nw.col("cadence_s"), nw.col("n_running")
    sign_age_s, due_age_s = nw.col(SIGN_AGE), nw.col(DUE_AGE)
    late_s = nw.max_horizontal(cadence * policy.overdue_cadences, cadence + policy.overdue_grace_s)
    facts = (cadence, n_running, sign_age_s, due_age_s)
    has_no_record = nw.all_horizontal(*(fact.is_null() for fact in facts), ignore_nulls=False)
    is_fire = table.has_status("schedule_run", "running")
    is_engine = is_open("engine_run")
    named = {
        "does_not_apply": table.is_type("invocation", "branch"),
        "status_unknown": table.where(lambda cell: cell.lifecycle == "unknown"),
        "play_blocked": table.has_status("play", "blocked"),
        "over": table.where(lambda cell: cell.is_terminal),
        "play_session_quiet": at_work & yes(quiet),
        "play_silent": at_work & quiet.is_null() & yes(silence_s >= policy.play_stalled_after_s),
        "play_unseen": at_work & quiet.is_null() & silence_s.is_null(),
        "play_active": at_work,
        "show_play_running": table.is_type("show") & yes(has_running),
        "show_play_blocked": table.is_type("show") & yes(nw.col(HAS_BLOCKED) == 1),
        "schedule_off": table.has_status("schedule", "disabled"),
        "schedule_misfired": is_on & yes((cadence > 0) & (sign_age_s > late_s)),
        "schedule_running": is_on & (yes(n_running > 0) | yes(has_running)),
        # Without a cadence only the planned time counts: a schedule that is late has missed it.
        "schedule_overdue": is_on
        & ~yes(cadence > 0)
        & yes(due_age_s > policy.overdue_grace_s)
        & ~yes(sign_age_s <= due_age_s),
        "schedule_due": is_on & yes(due_age_s >= 0),
        "schedule_unknown": is_on & has_no_record,
        "schedule_run_silent": is_fire & yes(unwritten_s >= policy.schedule_run_stalled_after_s),
        "schedule_run_unseen": is_fire & unwritten_s.is_null(),
        "schedule_run_active": is_fire,
        "engine_run_session_quiet": is_engine & yes(quiet),
        "engine_run_active": is_engine,
        "dispatch_waiting": is_open("dispatch"),
        "waiting": nw.lit(value=True),
    }
    return numbered(named)


def health_values() -> tuple[int, ...]:
    """Position in `HEALTH_OR_NONE` of the health of each rule of `RULES`."""
    return tuple(HEALTH_OR_NONE.index(rule.health) for rule in RULES.values())


_FIRED = f"{TEMPORARY}fired"


def derive_severity(
    frame: Any, *, policy: Policy | None = None, with_evidence: bool = False
) -> Any:
    """Severity, tone and the rule that fired, for every row.

    Parameters
    ----------
    frame : polars DataFrame or LazyFrame, DuckDB relation, PySpark frame, pyarrow Table
        With the columns ``outcome``, ``health`` and ``delivery`` (text, Categorical or
        Enum); null: not known, or does not apply.
    policy : Policy, optional
        Whose cascade; default `Policy.v1`, which is ADR-0033's.
    with_evidence : bool
        Also keep one Boolean column per rule, named by its condition, such as
        ``health is stalled``: whether it was true, whichever rule fired first.

    Returns
    -------
    frame
        The same kind and the same rows in their order, with ``severity`` and ``tone``
        (text) and ``severity_rule`` (64-bit integer) added, or replaced where they were.

    Raises
    ------
    MissingColumnsError
        If one of the three columns is absent.
    ColumnTypeError
        If one of them holds no words.

    Notes
    -----
    The first rule that is true decides. Null and unknown words make no rule true, so
    they fall through to the last: neutral, by rule 14 of v1.

    References
    ----------
    ADR-0033, "Severity derivation heuristic".

    Examples
    --------
    >>> import polars as pl
    >>> states = pl.DataFrame({"delivery": ["passed", "missing"]}).with_columns(
    ...     outcome=pl.lit("completed"), health=pl.lit("ok")
    ... )
    >>> derive_severity(states).select("severity", "tone", "severity_rule").rows()
    [('neutral', 'success', 12), ('critical', 'danger', 3)]
    """
    chosen = policy or Policy.v1()
    adapter = adapt(frame, dict.fromkeys(AXES, TEXT), "derive_severity")
    codes = {axis: f"{TEMPORARY}{axis}" for axis in AXES}
    named = {axis: words for axis in AXES if (words := chosen.words(axis))}
    coded = encode(adapter.frame, {codes[axis]: (axis, words) for axis, words in named.items()})
    rules = severity_rules(chosen, codes, named)
    evidence = {
        rule.name: rules[rule.number].fill_null(value=False)
        for rule in chosen.severity_rules
        if rule.axis
    }
    kept = coded.with_columns(**evidence) if with_evidence else coded
    judged = _add_severity(kept, chosen, rules)
    return adapter.give_back(judged.drop([codes[axis] for axis in named]))


def severity_rules(
    policy: Policy, codes: Mapping[str, str], words: Mapping[str, Sequence[str | None]]
) -> dict[int, nw.Expr]:
    """The cascade as expressions, by rule number, in its order.

    Parameters
    ----------
    policy : Policy
        Whose cascade.
    codes : mapping of str to str
        Axis to the column that holds its words as positions.
    words : mapping of str to sequence of str
        Axis to the word of each position; several positions may have the same word.

    Returns
    -------
    dict of int to narwhals.Expr
        Boolean, null where the axis is; the last one is always true.
    """
    return {
        rule.number: (
            nw.col(codes[rule.axis]).is_in(
                [place for place, word in enumerate(words[rule.axis]) if word in rule.words]
            )
            if rule.axis
            else nw.lit(value=True)
        )
        for rule in policy.severity_rules
    }


def words_by_number(policy: Policy) -> tuple[list[str | None], list[str | None]]:
    """Severity and tone by the number of the rule; None at unused numbers."""
    by_number = {rule.number: rule for rule in policy.severity_rules}
    numbered = [by_number.get(number) for number in range(max(by_number) + 1)]
    return (
        [rule.severity if rule else None for rule in numbered],
        [rule.tone if rule else None for rule in numbered],
    )


def _add_severity(frame: Frame, policy: Policy, rules: Mapping[int, nw.Expr]) -> Frame:
    severities, tones = words_by_number(policy)
    fired = frame.with_columns(first_true(rules).alias(_FIRED))
    worded = lookup(fired, {"severity": (_FIRED, severities), "tone": (_FIRED, tones)})
    return worded.with_columns(severity_rule=nw.col(_FIRED).cast(nw.Int64)).drop(_FIRED)

"""The words of Agent Orchestrator, the one status that it shows, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.package_tables import package_table
from stateanalytics.systems.agent_orchestrator.columns import first_true, flag, look_up

TERMINAL_STATUSES: Final = ("killed", "terminated", "done", "cleanup", "errored", "merged")
"""The derived statuses that the poll loop leaves alone."""


class AxisWord(NamedTuple):
    """A word of an axis, in Agent Orchestrator's own order, and what it means by itself."""

    axis: str
    word: str
    status: str | None
    lifecycle: Annotated[str, schema.LIFECYCLES] | None
    outcome: Annotated[str, schema.OUTCOMES] | None
    health: Annotated[str, schema.HEALTHS] | None
    delivery: Annotated[str, schema.DELIVERIES] | None
    code: str | None


_AXIS_WORDS = package_table(__package__, "words.csv", AxisWord)


def words_of(axis: str) -> tuple[str, ...]:
    """The words that an axis, or a field of a lifecycle payload, may hold."""
    return tuple(row.word for row in _AXIS_WORDS if row.axis == axis)


def _of_axis(axis: str, column: str) -> dict[str, str]:
    """Each word of an axis to its value in a column, where it has one."""
    values = ((row.word, getattr(row, column)) for row in _AXIS_WORDS if row.axis == axis)
    return {word: value for word, value in values if value}


SESSION_REASONS, REPORT_STATES = words_of("session_reason"), words_of("report_state")


def legacy_status(prefix: str = "") -> pl.Expr:
    """Legacy status: the one word that Agent Orchestrator shows for the three axes.

    Parameters
    ----------
    prefix : str
        Of the columns ``session_state``, ``session_reason``, ``pr_state`` and ``pr_reason``.

    Returns
    -------
    polars.Expr of String
        Null where the session state is null or no known word.

    Notes
    -----
    Agent Orchestrator's ``deriveLegacyStatus``. Runtime, kind and times never matter.

    Examples
    --------
    >>> axes = {"session_state": ["working", "stuck", "terminated"]}
    >>> axes |= {"session_reason": ["fixing_ci", "probe_failure", "pr_merged"]}
    >>> axes |= {"pr_state": ["open", "open", "merged"]}
    >>> axes |= {"pr_reason": ["ci_failing", "approved", "merged"]}
    >>> pl.DataFrame(axes).select(legacy_status()).to_series().to_list()
    ['ci_failed', 'stuck', 'cleanup']
    """
    state, reason, pr_state, pr_reason = (
        pl.col(f"{prefix}{name}")
        for name in ("session_state", "session_reason", "pr_state", "pr_reason")
    )
    is_at_work = state.is_in(("working", "idle"))
    by_end = look_up(reason, _of_axis("session_reason", "status"), "terminated")
    by_review = look_up(pr_reason, _of_axis("pr_reason", "status"), "pr_open")
    by_pull_request = first_true(
        (state == "terminated", by_end),
        (is_at_work & (pr_state == "merged"), "merged"),
        (is_at_work & (pr_state == "open"), by_review),
        (is_at_work, state),
    )
    return look_up(state, _of_axis("session_state", "status"), by_pull_request)


def is_terminal() -> pl.Expr:
    """Does a session with axes count as over.

    It is one of three notions of *terminal* in Agent Orchestrator: it counts a stuck session
    of which the process is gone, which the poll loop and the dashboard do not.
    """
    return (
        pl.col("session_state").is_in(("done", "terminated")).fill_null(value=False)
        | pl.col("pr_state").is_in(("merged",)).fill_null(value=False)
        | pl.col("runtime_state").is_in(("missing", "exited")).fill_null(value=False)
    )


def primary_reason() -> pl.Expr:
    """The one reason that Agent Orchestrator logs for a change.

    Notes
    -----
    Agent Orchestrator's ``primaryLifecycleReason``: the session's while detecting, else the
    pull request's if it says anything, else the runtime's if it is not simply running. So
    a stuck session of which the terminal is gone logs ``tmux_missing``.

    Examples
    --------
    >>> words = {"session_state": ["stuck"], "session_reason": ["probe_failure"]}
    >>> words |= {"pr_reason": ["in_progress"], "runtime_reason": ["tmux_missing"]}
    >>> pl.DataFrame(words).select(primary_reason()).item()
    'tmux_missing'
    """
    session, pull_request, runtime = (
        pl.col(name) for name in ("session_reason", "pr_reason", "runtime_reason")
    )
    return first_true(
        (pl.col("session_state") == "detecting", session),
        (~pull_request.is_in(("not_created", "in_progress")), pull_request),
        (runtime != "process_running", runtime),
        default=session,
    )


# --- the Go rewrite ----------------------------------------------------------------------

ACTIVITIES = ("active", "idle", "waiting_input", "blocked", "exited")
"""What an agent can be seen doing."""
GO_ENDS = ("terminated", "merged")
"""The statuses of sessions that are over."""

NO_SIGNAL_S = 90.0
"""A harness with hooks that has been silent for longer since its start has no signal."""

PULL_REQUEST_STATUSES = (
    "ci_failed", "changes_requested", "draft", "review_pending", "pr_open", "approved", "mergeable",
)  # fmt: skip
"""The statuses of an open pull request, from the worst."""


def go_pull_request_status() -> pl.Expr:
    """Status of each pull request of the Go rewrite, or merged or closed.

    Examples
    --------
    >>> words = {"pr_state": ["open", "draft"], "ci_state": ["passing", "failing"]}
    >>> words |= {"review_decision": ["review_required", "none"]}
    >>> words |= {"mergeability": ["unknown"] * 2, "n_unresolved_comments": [0, 0]}
    >>> pl.DataFrame(words).select(go_pull_request_status()).to_series().to_list()
    ['review_pending', 'ci_failed']
    """
    state, review, merge = (
        pl.col(name) for name in ("pr_state", "review_decision", "mergeability")
    )
    needs_changes = (review == "changes_requested") | (pl.col("n_unresolved_comments") > 0)
    return first_true(
        (state == "merged", "merged"),
        (state == "closed", "closed"),
        (pl.col("ci_state") == "failing", "ci_failed"),
        (state == "draft", "draft"),
        (needs_changes, "changes_requested"),
        (merge == "mergeable", "mergeable"),
        (review == "review_required", "review_pending"),
        (merge == "blocked", "pr_open"),
        (review == "approved", "approved"),
        default="pr_open",
    )


def go_status() -> pl.Expr:
    """Status of each session of the Go rewrite, but for silence, which needs a clock.

    Notes
    -----
    First match: terminated (merged, if a pull request was), active, exited, waiting or
    blocked, the worst open pull request (``worst_pr_status``; null: none is open), merged,
    idle. An activity that no known version writes is a status of its own.

    Examples
    --------
    >>> session = {"is_terminated": [False], "activity_state": ["blocked"]}
    >>> session |= {"has_merged_pr": [False], "worst_pr_status": ["draft"]}
    >>> pl.DataFrame(session).select(go_status()).item()
    'needs_input'
    """
    activity, worst = pl.col("activity_state"), pl.col("worst_pr_status")
    is_terminated, is_merged = flag("is_terminated"), flag("has_merged_pr")
    return first_true(
        (is_terminated & is_merged, "merged"),
        (is_terminated, "terminated"),
        (~activity.is_in(ACTIVITIES), activity),
        (activity == "active", "working"),
        (activity == "exited", "exited"),
        (activity.is_in(("waiting_input", "blocked")), "needs_input"),
        (worst.is_not_null(), worst),
        (is_merged, "merged"),
        default="idle",
    )


class SessionMeaning(NamedTuple):
    """Meaning of a session's state and reason.

    Attributes
    ----------
    lifecycle, outcome : str, str or None
        ADR-0033's words; no outcome while it is not over.
    health : str
        Health by the session axis alone; the runtime may worsen it.
    code : str
        Reason code.
    claim : str
        Observed, inferred or hypothesis.
    confidence : float
        That the reason explains the state, 0 to 1.
    """

    state: str
    reason: str
    lifecycle: Annotated[str, schema.LIFECYCLES]
    outcome: Annotated[str, schema.OUTCOMES] | None
    health: Annotated[str, schema.HEALTHS]
    code: str
    claim: Annotated[str, schema.CLAIM_STATUSES]
    confidence: float


SESSION_MEANINGS: Mapping[tuple[str, str], SessionMeaning] = {
    (meaning.state, meaning.reason): meaning
    for meaning in package_table(__package__, "session_meanings.csv", SessionMeaning)
}
"""State and reason of a session, in every pair that is written, to their meaning."""

HEALTHS_BY_WEIGHT = (
    "process_dead", "orphaned", "stalled", "disconnected", "degraded", "idle", "running", "ok",
    "unknown",
)  # fmt: skip
"""From the worst to the one that means nothing."""

UNDECIDED_DELIVERIES = ("review_pending", "in_progress")


class WordMeaning(NamedTuple):
    """Meaning of a status word on its own, and for legacy ones what follows from it.

    Attributes
    ----------
    code : str, optional
        Reason code of its own.
    priority : str, optional
        Of the event that a change to it emits; none is emitted where there is none.
    session_state, session_reason, pr_state, pr_reason : str, optional
        The axes that it stands for, of the pull request only where it implies one.
    moments : tuple of str
        What a session of it has been: started, completed, terminated.
    """

    of: Annotated[str, ("legacy", "with_pull_request", "go")]
    word: str
    lifecycle: Annotated[str, schema.LIFECYCLES]
    outcome: Annotated[str, schema.OUTCOMES] | None
    health: Annotated[str, (*schema.HEALTHS, schema.NO_WORD)] | None
    delivery: Annotated[str, (*schema.DELIVERIES, schema.NO_WORD)] | None
    confidence: float
    code: str | None = None
    priority: str | None = None
    session_state: str | None = None
    session_reason: str | None = None
    moments: tuple[str, ...] = ()
    pr_state: str | None = None
    pr_reason: str | None = None


_MEANT = ("lifecycle", "outcome", "health", "delivery", "confidence")
"""Columns that follow from a status word."""


_WORD_MEANINGS = package_table(__package__, "word_meanings.csv", WordMeaning)


def _meanings(vocabulary: str) -> Mapping[str, WordMeaning]:
    return {meaning.word: meaning for meaning in _WORD_MEANINGS if meaning.of == vocabulary}


LEGACY_MEANINGS = _meanings("legacy")
"""Legacy status of a record without a lifecycle to its meaning, without a pull request."""
LEGACY_STATUSES = tuple(LEGACY_MEANINGS)
WITH_PULL_REQUEST = _meanings("with_pull_request")
"""Words that mean something else where the record names a pull request."""
GO_MEANINGS = _meanings("go")
"""Status of the Go rewrite to its meaning."""


def _of_words(table: Mapping[str, WordMeaning], column: str) -> dict[str, Any]:
    return {word: getattr(meaning, column) for word, meaning in table.items()}


def of_legacy_status(column: str, status: str = "status") -> pl.Expr:
    """A column of `WordMeaning` of each legacy status; null where it has no value."""
    return look_up(pl.col(status), _of_words(LEGACY_MEANINGS, column))


def map_legacy_words(sessions: pl.DataFrame) -> pl.DataFrame:
    """Add the meaning of the status word of records without a lifecycle.

    Parameters
    ----------
    sessions : polars.DataFrame
        ``status`` (legacy word) and ``has_pr`` (Boolean: does the record name a pull
        request).

    Returns
    -------
    polars.DataFrame
        With ``lifecycle``, ``outcome``, ``health``, ``delivery``, ``confidence`` and
        ``reason_codes`` (joined by ", "); an unknown word is lifecycle and outcome
        *unknown*.

    Notes
    -----
    Not by way of `synthesize_lifecycle`, which forgets CI and review. ``killed`` may be a
    person or a crash: aborted, with confidence 0.4.

    Examples
    --------
    >>> sessions = pl.DataFrame({"status": ["ci_failed", "cleanup"], "has_pr": [True, True]})
    >>> map_legacy_words(sessions).select("lifecycle", "delivery").rows()
    [('running', 'invalid'), ('completed', 'passed')]
    """
    rules = _word_rules(LEGACY_MEANINGS)
    for word, meaning in WITH_PULL_REQUEST.items():
        holds = (pl.col("status") == word) & pl.col("has_pr")
        for name in _MEANT:
            value = pl.lit(getattr(meaning, name), _DTYPES.get(name))
            rules[name] = pl.when(holds).then(value).otherwise(rules[name])
    code = _word_code(LEGACY_MEANINGS)
    return sessions.with_columns(**rules).with_columns(
        reason_codes=pl.format("{}, run.lifecycle.synthesized", code)
    )


def map_go_words(sessions: pl.DataFrame) -> pl.DataFrame:
    """Add the meaning of ``status`` of the Go rewrite: the columns of `map_legacy_words`.

    Examples
    --------
    >>> map_go_words(pl.DataFrame({"status": ["no_signal"]}))["health"].item()
    'disconnected'
    """
    return sessions.with_columns(**_word_rules(GO_MEANINGS)).with_columns(
        reason_codes=_word_code(GO_MEANINGS)
    )


def _word_rules(table: Mapping[str, WordMeaning]) -> dict[str, pl.Expr]:
    unknown = WordMeaning("go", "", "unknown", "unknown", "unknown", None, 0.0)
    return {
        name: look_up(
            pl.col("status"), _of_words(table, name), getattr(unknown, name), _DTYPES.get(name)
        )
        for name in _MEANT
    }


def _word_code(table: Mapping[str, WordMeaning]) -> pl.Expr:
    """Reason code of a word: one of its own, or its lifecycle and the word."""
    word = pl.col("status")
    own_code = pl.coalesce(
        look_up(word, _of_words(table, "code")), pl.format("run.{}.{}", "lifecycle", word)
    )
    return first_true(
        (word.is_in(list(table)), own_code), default="run.lifecycle.status_unrecognized"
    )


_DTYPES: Mapping[str, pl.DataType] = {"confidence": pl.Float64()}


AXES = (
    "session_state", "session_reason", "pr_state", "pr_reason", "runtime_state", "runtime_reason",
)  # fmt: skip
ODD_CODES = ("run.lifecycle.pair_unreachable", "run.lifecycle.reason_unrecognized")
"""Of known words that never go together, and of an unknown reason."""

_OVERRIDDEN = ("running", "pending", "cancelled", "aborted")
_CUT_SHORT = ("cancelled", "aborted", "failed")
_GONE_RUNTIMES = ("exited", "missing")
_OVER = ("terminated", "done")
_DEAD = "process_dead"


def map_axes(sessions: pl.DataFrame) -> pl.DataFrame:
    """Add lifecycle, outcome, health and delivery of every session, and the reasons.

    Parameters
    ----------
    sessions : polars.DataFrame
        The six words: ``session_state``, ``session_reason``, ``pr_state``,
        ``pr_reason``, ``runtime_state``, ``runtime_reason``.

    Returns
    -------
    polars.DataFrame
        With ``lifecycle``, ``outcome`` (null while not over), ``health``, ``delivery``
        (null: nothing is known yet) and ``reason_codes`` (joined by ", ", most direct first).

    Notes
    -----
    A merged pull request outranks the process: unless the session failed, it is completed
    and merged, with its first reason kept. A pair of known words that is never written
    counts by its state alone, with ``run.lifecycle.pair_unreachable``; an unknown reason
    adds ``run.lifecycle.reason_unrecognized``; an unknown state is lifecycle *unknown*.

    References
    ----------
    ADR-0033, "Normalized state".

    Examples
    --------
    >>> words = ("stuck", "probe_failure", "open", "ci_failing", "missing", "tmux_missing")
    >>> mapped = map_axes(pl.DataFrame([words], schema=AXES, orient="row"))
    >>> mapped.select("lifecycle", "outcome", "health", "delivery").row(0)
    ('running', None, 'process_dead', 'invalid')
    >>> mapped["reason_codes"].item().split(", ")[1:]
    ['run.health.process_dead', 'run.health.tmux_missing', 'run.delivery.ci_failing']
    """
    pair = pl.concat_str("session_state", "session_reason", separator=" ")
    return (
        sessions.with_columns(_pair=pair)
        .with_columns(**_session(), _runtime=_runtime_health())
        .with_columns(
            lifecycle=first_true((_is_overridden(), "completed"), default=pl.col("_life")),
            outcome=first_true((_is_overridden(), "merged"), default=pl.col("_out")),
        )
        .with_columns(health=_health(), delivery=_delivery())
        .with_columns(reason_codes=pl.concat_str(_reasons(), separator=", ", ignore_nulls=True))
        .drop("_pair", "_life", "_out", "_own", "_code", "_runtime")
    )


def _session() -> dict[str, pl.Expr]:
    """Lifecycle, outcome, health and code of the session axis alone."""
    state, reason = pl.col("session_state"), pl.col("session_reason")
    rules = {}
    fields = {"_life": "lifecycle", "_out": "outcome", "_own": "health", "_code": "code"}
    for name, field in fields.items():
        table = {" ".join(words): getattr(row, field) for words, row in SESSION_MEANINGS.items()}
        if name == "_code":
            is_known = reason.is_in(SESSION_REASONS)
            odd = first_true((is_known, ODD_CODES[0]), default=ODD_CODES[1])
        else:
            # A known state with a reason that never goes with it.
            by_state = {
                row.word: getattr(row, field) for row in _AXIS_WORDS if row.axis == "session_state"
            }
            odd = look_up(state, by_state, "unknown")
        rules[name] = look_up(pl.col("_pair"), table, odd)
    return rules


def _is_overridden() -> pl.Expr:
    return (pl.col("pr_state") == "merged") & pl.col("_life").is_in(_OVERRIDDEN)


def _is_terminal() -> pl.Expr:
    return pl.col("outcome").is_not_null() & (pl.col("outcome") != "unknown")


def _health() -> pl.Expr:
    state, runtime, own = pl.col("session_state"), pl.col("runtime_state"), pl.col("_own")
    on_purpose = (
        (state == "done")
        | pl.col("session_reason").is_in(("manually_killed", "pr_merged"))
        | (pl.col("outcome") == "merged")
    )
    after_end = first_true((runtime == "alive", "orphaned"), (on_purpose, "ok"), default=_DEAD)
    at_rest = first_true((own.is_in(("running", "unknown")), "ok"), default=own)
    ended = first_true((state.is_in(_OVER), after_end), default=at_rest)
    return first_true((_is_terminal(), ended), default=_worst())


def _runtime_health() -> pl.Expr:
    """Health by the runtime axis; only *disconnected* while its end is in doubt."""
    runtime = pl.col("runtime_state")
    in_doubt = (pl.col("session_state") == "detecting") & runtime.is_in(_GONE_RUNTIMES)
    by_table = look_up(runtime, _of_axis("runtime_state", "health"), "unknown")
    return first_true((in_doubt, "disconnected"), default=by_table)


def _worst() -> pl.Expr:
    """The worse health of session and runtime, while the session is not over."""
    either = (
        ((pl.col("_own") == health) | (pl.col("_runtime") == health), health)
        for health in HEALTHS_BY_WEIGHT
    )
    return first_true(*either, default="unknown")


def _delivery() -> pl.Expr:
    state, reason, outcome = pl.col("pr_state"), pl.col("pr_reason"), pl.col("outcome")
    is_short = outcome.is_in(("merged", *_CUT_SHORT))
    missing = outcome.is_in(("merged", "failed", "aborted"))
    pending = reason.is_in(UNDECIDED_DELIVERIES) & is_short
    opened = first_true(
        (pending, "partial"), default=look_up(reason, _of_axis("pr_reason", "delivery"))
    )
    none = first_true((outcome.is_in(("completed", "cancelled")), "not_expected"))
    return first_true(
        (state == "merged", "passed"),
        (state == "closed", "invalid"),
        ((state == "none") & ~missing, none),
        ((state == "none") & missing, "missing"),
        (state == "open", opened),
    )


def _reasons() -> tuple[pl.Expr, ...]:
    """The reason codes in their order: session, override, health (2), delivery (2), left open."""
    state, runtime, pr_state = pl.col("session_state"), pl.col("runtime_state"), pl.col("pr_state")
    is_over, is_gone = state.is_in(_OVER), runtime.is_in(_GONE_RUNTIMES)
    is_dead = is_gone & ~_is_terminal() & (state != "detecting")
    health = first_true(
        # By ADR-0033 a session that was done has this health without the code.
        ((pl.col("health") == "orphaned") & (state != "done"), "run.health.orphaned_runtime"),
        ((runtime == "probe_failed") & ~is_over, "run.health.probe_error"),
        (is_dead, "run.health.process_dead"),
    )
    own_code = look_up(pl.col("runtime_reason"), _of_axis("runtime_reason", "code"))
    cause = first_true((is_gone & ~is_over, own_code))
    is_cleared = (pr_state == "none") & (pl.col("pr_reason") == "cleared_on_restore")
    is_left_open = (pr_state == "open") & pl.col("outcome").is_in(_CUT_SHORT)
    return (
        pl.col("_code"),
        first_true((_is_overridden(), "run.completed.pr_merged")),
        health,
        cause,
        _delivery_code(),
        first_true((is_cleared, "run.delivery.cleared_on_restore")),
        first_true((is_left_open, "run.delivery.pr_left_open")),
    )


def _delivery_code() -> pl.Expr:
    state = pl.col("pr_state")
    codes = {
        word: f"run.delivery.{word}"
        for word in (*_of_axis("pr_reason", "delivery"), "review_pending")
    }
    return first_true(
        (state == "closed", "run.delivery.pr_closed_unmerged"),
        ((state == "none") & (pl.col("delivery") == "missing"), "run.delivery.missing"),
        (state == "open", look_up(pl.col("pr_reason"), codes)),
    )

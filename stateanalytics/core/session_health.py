"""The health of the process behind a session: ADR-0024's classifier, in bulk.

The six words, from best to worst, are `HEALTH_ORDER`. The rule changed four times. All versions
are here, because a store of June was judged by the rule of June. `state.health` translates the
words into those of ADR-0033.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import narwhals as nw

from stateanalytics.core import engines
from stateanalytics.core.windows import Moment
from stateanalytics.errors import ArgumentError, check_one_of, in_short

HOUR_S = 3600.0
STALLED_AFTER_S: Mapping[str, float] = {
    "agent": 6 * HOUR_S,
    "play": 6 * HOUR_S,
    "flow": 12 * HOUR_S,
    "fanout": 12 * HOUR_S,
    "show-play": 12 * HOUR_S,
    "engine": 12 * HOUR_S,
}
"""Silence limits by kind of work in the latest release; other kinds have the default, 6 h."""
DEFAULT_STALE_AFTER_S = 6 * HOUR_S
FIRST_KINDS: Mapping[str, float] = {
    kind: limit for kind, limit in STALLED_AFTER_S.items() if kind != "engine"
}
"""The limits up to 0.35, where engines got their own limit."""

STALENESS_VERSIONS: Mapping[str, Mapping[str, float]] = {"v1": FIRST_KINDS, "v2": STALLED_AFTER_S}
"""``staleness_check``: v1 (0.26.1) did not look at the start, v2 (0.29.1) does."""

AGES = ("last_message_age_s", "updated_age_s", "started_age_s")
_STATUS = f"{engines.TEMPORARY}status"


def staleness_by_age(
    frame: Any, *, thresholds: Mapping[str, float] | None = None, version: str = "v2"
) -> Any:
    """Whether running work is silent for longer than its kind allows.

    Parameters
    ----------
    frame : frame
        ``status``, ``invocation_kind``; ``last_message_age_s``, ``updated_age_s`` and
        ``started_age_s`` in seconds before now, null where no moment is known.
    thresholds : mapping of str to float, optional
        As for `classify_session_health`.
    version : str
        ``v1`` (0.26.1, which does not look at the start) or ``v2`` (0.29.1).

    Returns
    -------
    frame
        The same kind and rows, with ``staleness`` added: ``stale`` or null.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"status": "running", "invocation_kind": "flow",
    ...     "last_message_age_s": [None], "updated_age_s": [None], "started_age_s": [9.0]})
    >>> staleness_by_age(frame)["staleness"].item(), staleness_by_age(
    ...     frame, version="v1")["staleness"].item()
    (None, 'stale')
    """
    check_one_of(version, STALENESS_VERSIONS, "version of staleness")
    ages = AGES[:2] if version == "v1" else AGES
    needed = {
        "status": engines.TEXT,
        "invocation_kind": engines.TEXT,
        **dict.fromkeys(ages, engines.NUMBER),
    }
    adapter = engines.adapt(frame, needed, "staleness_by_age")
    aged, known = known_ages(adapter.frame, ages)
    coded = engines.encode(aged, {_STATUS: ("status", ("running",))})
    limit = limit_s("invocation_kind", thresholds, STALENESS_VERSIONS[version])
    is_silent = silence_s(known, float("inf")) > limit
    is_stale = ((nw.col(_STATUS) == 0) & is_silent).fill_null(value=False)
    marked = coded.with_columns(staleness=nw.when(is_stale).then(nw.lit("stale")))
    return adapter.give_back(marked.drop([_STATUS, *known]))


def known_ages(frame: engines.Frame, ages: Sequence[str]) -> tuple[engines.Frame, list[str]]:
    """Add a copy of each age with NaN as null; return the frame and the names of the copies."""
    known = {f"{engines.TEMPORARY}{age}": nw.col(age).cast(nw.Float64) for age in ages}
    copied = frame.with_columns(
        nw.when(~age.is_nan()).then(age).alias(name) for name, age in known.items()
    )
    return copied, list(known)


def silence_s(ages: Sequence[str], never_s: float) -> nw.Expr:
    """The first known age in this order, else ``never_s``."""
    return nw.coalesce(*(nw.col(age) for age in ages), nw.lit(never_s))


def limit_s(
    kind: str, thresholds: Mapping[str, float] | None, otherwise: Mapping[str, float]
) -> nw.Expr:
    """The seconds that work may be silent, by its kind; never null."""
    return by_kind(kind, limits_by_kind(thresholds, otherwise))


def by_kind(kind: str, values: Mapping[str, Any]) -> nw.Expr:
    """The value of each row's kind, else ``values["default"]``; never null."""
    default = values["default"]
    of_kind = nw.col(kind).cast(nw.String)
    value_of_kind = nw.lit(default)
    for value in dict.fromkeys(values.values()):
        if value != default:
            # A few comparisons of short texts take half the time of a lookup.
            is_one = (of_kind == name for name, own in values.items() if own == value)
            value_of_kind = (
                nw.when(reduce(or_, is_one)).then(nw.lit(value)).otherwise(value_of_kind)
            )
    return value_of_kind


def limits_by_kind(
    thresholds: Mapping[str, float] | None, otherwise: Mapping[str, float]
) -> dict[str, float]:
    """Seconds of silence by kind, the given ones over those of a version, and ``default``."""
    given = thresholds or {}
    checked = {kind: seconds(f"the threshold of {kind!r}", s) for kind, s in given.items()}
    return {"default": DEFAULT_STALE_AFTER_S, **otherwise, **checked}


def seconds(name: str, value: Any) -> float:
    """A number of seconds from a caller, or an error that says what is wrong with it."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value >= 0:
        raise ArgumentError(
            f"{name} needs seconds, zero or more; found {in_short(value)}.",
            'such as thresholds={"agent": 3600, "default": 21600}',
        )
    return float(value)


HEALTH_ORDER = ("healthy", "idle", "unresponsive", "stale", "orphaned", "zombie")
"""ADR-0024's words; the position is its severity."""

IDLE_AFTER_S = HOUR_S

_FIRST_ENDS = ("completed", "failed", "timed_out", "aborted", "cancelled")


@dataclass(frozen=True)
class HealthVersion:
    """One version of the classifier.

    Attributes
    ----------
    ends : tuple of str
        Statuses that count as over; null and empty always do, they read as completed.
    dead_if : str
        Which work is stale at once, even if recent: ``not_alive``, ``known_dead`` or ``never``.
    is_stale_only_if_running : bool
        Whether only the status ``running`` can be stale by silence, or any open status.
    stale_after_s : mapping of str to float
        Limits of silence by kind of work.
    """

    ends: tuple[str, ...]
    dead_if: str
    is_stale_only_if_running: bool
    stale_after_s: Mapping[str, float]


_ENDS = ("completed", "completed_empty", *_FIRST_ENDS[1:])
VERSIONS: Mapping[str, HealthVersion] = {
    "0.26.1": HealthVersion(_FIRST_ENDS, "not_alive", False, FIRST_KINDS),
    "2026-07-04a": HealthVersion(_FIRST_ENDS, "never", False, FIRST_KINDS),
    "0.28": HealthVersion(_ENDS, "known_dead", False, FIRST_KINDS),
    "0.29.1": HealthVersion(_ENDS, "known_dead", True, FIRST_KINDS),
    "0.36": HealthVersion(_ENDS, "known_dead", True, STALLED_AFTER_S),
}
"""The classifier's versions, by the release or the day in the repository that introduced it."""

_COLUMNS = {
    "status": engines.TEXT,
    "invocation_kind": engines.TEXT,
    "message_count": engines.NUMBER,
    "process_alive": engines.YES_NO,
    "has_artifacts": engines.YES_NO,
    "has_stale_locks": engines.YES_NO,
}
_MOMENTS = ("last_message_at", "updated_at", "started_at")


@dataclass(frozen=True)
class HealthFacts:
    """The facts that decide the health of a session, as expressions.

    Attributes
    ----------
    is_over, is_running : narwhals.Expr
        Whether the status is an end; whether it is exactly ``running``. Never null.
    silence_s, stale_after_s : narwhals.Expr
        Seconds without a sign of life, and the limit for this kind of work.
    process_alive : narwhals.Expr
        True, False, or null: nobody looked.
    has_output : narwhals.Expr
        Whether there is an artifact or a message. Never null.
    has_stale_locks : narwhals.Expr
        Whether lock files were left behind; null counts as no.
    """

    is_over: nw.Expr
    is_running: nw.Expr
    silence_s: nw.Expr
    stale_after_s: nw.Expr
    process_alive: nw.Expr
    has_output: nw.Expr
    has_stale_locks: nw.Expr


RULE_WORDS: Mapping[str, str] = {
    "over_with_locks": "zombie",
    "over": "healthy",
    "nothing_to_show": "orphaned",
    "process_gone": "stale",
    "silent_not_alive": "stale",
    "silent_alive": "unresponsive",
    "quiet": "idle",
    "active": "healthy",
}
"""The classifier's rules in order of precedence, and the word that each one gives."""


def health_rules(
    facts: HealthFacts, version: HealthVersion, idle_after_s: float = IDLE_AFTER_S
) -> dict[str, nw.Expr]:
    """The classifier as named expressions, most certain first; see `RULE_WORDS`."""
    is_alive = facts.process_alive.fill_null(value=False)
    is_dead = {
        "not_alive": ~is_alive,
        "known_dead": (~facts.process_alive).fill_null(value=False),
        "never": nw.lit(value=False),
    }[version.dead_if]
    is_silent = facts.silence_s > facts.stale_after_s
    if version.is_stale_only_if_running:
        is_silent = is_silent & facts.is_running
    return {
        "over_with_locks": facts.is_over & facts.has_stale_locks.fill_null(value=False),
        "over": facts.is_over,
        "nothing_to_show": ~is_alive & ~facts.has_output,
        "process_gone": is_dead,
        "silent_not_alive": ~is_alive & is_silent,
        "silent_alive": is_silent,
        "quiet": facts.silence_s > idle_after_s,
        "active": nw.lit(value=True),
    }


def classify_session_health(
    frame: Any,
    *,
    now: Moment,
    thresholds: Mapping[str, float] | None = None,
    idle_after_s: float = IDLE_AFTER_S,
    version: str = "0.36",
) -> Any:
    """The health of every session by ADR-0024, a word of `HEALTH_ORDER`.

    Parameters
    ----------
    frame : polars DataFrame or LazyFrame, DuckDB relation, PySpark frame, pyarrow Table
        ``status`` and ``invocation_kind`` (words); ``message_count``;
        ``last_message_at``, ``updated_at``, ``started_at`` (epoch seconds, or Datetime in
        UTC); ``process_alive`` (null: not checked), ``has_artifacts``,
        ``has_stale_locks`` (Boolean, or 0 and 1; null counts as no).
    now : datetime, date, ISO text or epoch seconds
        The instant of the evaluation.
    thresholds : mapping of str to float, optional
        Seconds of silence, by kind, after which running work is stale (strictly longer);
        ``default`` is the limit of kinds without one. What it does not name keeps the
        version's own limit.
    idle_after_s : float
        Seconds of silence after which it is idle (strictly longer).
    version : str
        Whose rule: a key of `VERSIONS`.

    Returns
    -------
    frame
        The same kind and rows, with ``session_health`` (text, never null) added.

    Raises
    ------
    ArgumentError
        If the version is unknown, a threshold is no number, or ``now`` no instant.
    MissingColumnsError, ColumnTypeError
        If a column is absent or holds something else.

    Notes
    -----
    The last sign of life is the first of message, update and start that is *truthy*:
    null and 0 are passed over, and NaN too (SQLite stores it as null).
    Without any, the silence reaches back to 1970. A status of null or ``''`` reads as
    completed; an unknown one is judged like running work, but from 0.29.1 on it cannot
    be stale by silence.

    Examples
    --------
    >>> import polars as pl
    >>> session = {"status": "running", "invocation_kind": "agent", "message_count": 4,
    ...            "last_message_at": 0.0, "updated_at": None, "started_at": 1_000_000.0,
    ...            "process_alive": None, "has_artifacts": True, "has_stale_locks": False}
    >>> found = classify_session_health(pl.DataFrame([session]), now=1_000_000 + 6 * 3600 + 1)
    >>> found["session_health"].to_list()
    ['stale']
    """
    needed = {**_COLUMNS, **dict.fromkeys(_MOMENTS, engines.MOMENT)}
    adapter = engines.adapt(frame, needed, "classify_session_health")
    ages = {f"{engines.TEMPORARY}{age}": moment for age, moment in zip(AGES, _MOMENTS, strict=True)}
    aged = engines.add_ages(adapter.frame, now, ages)
    judged = _judged(
        aged,
        list(ages),
        engines.epoch_s(now),
        version=version,
        thresholds=thresholds,
        idle_after_s=idle_after_s,
    )
    return adapter.give_back(judged)


def classify_session_health_by_age(
    frame: Any,
    *,
    thresholds: Mapping[str, float] | None = None,
    idle_after_s: float = IDLE_AFTER_S,
    version: str = "0.36",
) -> Any:
    """`classify_session_health` where the clock was already applied.

    Parameters
    ----------
    frame : frame
        As there, but with ``last_message_age_s``, ``updated_age_s`` and
        ``started_age_s``: seconds before now, null where no moment is known. An age of 0
        is this very instant; a *moment* of 0, which means never, must arrive as null.
    thresholds, idle_after_s, version
        As there.

    Returns
    -------
    frame
        The same kind and rows, with ``session_health`` (text, never null) added.

    Examples
    --------
    >>> import polars as pl
    >>> session = {"status": "running", "invocation_kind": None, "message_count": 0,
    ...            "last_message_age_s": 90.0, "updated_age_s": None, "started_age_s": None,
    ...            "process_alive": None, "has_artifacts": True, "has_stale_locks": None}
    >>> frame = pl.DataFrame([session])
    >>> classify_session_health_by_age(frame, version="0.26.1")["session_health"].item()
    'stale'
    >>> classify_session_health_by_age(frame)["session_health"].item()
    'healthy'
    """
    needed = {**_COLUMNS, **dict.fromkeys(AGES, engines.NUMBER)}
    adapter = engines.adapt(frame, needed, "classify_session_health_by_age")
    aged, known = known_ages(adapter.frame, AGES)
    judged = _judged(
        aged, known, float("inf"), version=version, thresholds=thresholds, idle_after_s=idle_after_s
    )
    return adapter.give_back(judged)


_RANK = f"{engines.TEMPORARY}rank"


def _judged(
    frame: engines.Frame,
    ages: list[str],
    never_s: float,
    *,
    version: str,
    thresholds: Mapping[str, float] | None,
    idle_after_s: float,
) -> engines.Frame:
    """The word of each row; the columns of ages go."""
    check_one_of(version, VERSIONS, "version of the health rule")
    rule = VERSIONS[version]
    statuses = ("", *rule.ends, "running")
    ready = engines.encode(frame, {_STATUS: ("status", statuses)})
    code = nw.col(_STATUS)
    facts = HealthFacts(
        is_over=nw.col("status").is_null() | (code <= len(rule.ends)).fill_null(value=False),
        is_running=(code == statuses.index("running")).fill_null(value=False),
        silence_s=silence_s(ages, never_s),
        stale_after_s=limit_s("invocation_kind", thresholds, rule.stale_after_s),
        process_alive=nw.col("process_alive"),
        has_output=nw.col("has_artifacts").fill_null(value=False)
        | (nw.col("message_count").fill_null(0) != 0),
        has_stale_locks=nw.col("has_stale_locks"),
    )
    rules = health_rules(facts, rule, seconds("idle_after_s", idle_after_s))
    ruled = ready.with_columns(engines.first_true(dict(enumerate(rules.values()))).alias(_RANK))
    worded = engines.lookup(
        ruled, {"session_health": (_RANK, [RULE_WORDS[name] for name in rules])}
    )
    return worded.drop([_STATUS, _RANK, *ages])

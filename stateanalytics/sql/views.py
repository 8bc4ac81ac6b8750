"""Ready questions as SQL views, with the same documentation as any frame.

The dashboard of ADR-0017 is here: its queries, over normalized facts and relative to
as-of instead of the clock. Where ADR-0025 moved a threshold, the policy's value counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateanalytics.core.schema import (
    ENTITIES,
    ENTITY_KEY,
    INTEGER,
    MOMENT,
    REAL,
    STATES,
    TEXT,
    YES_NO,
    Column,
    Frame,
)

_SESSION_KEY = ("source", "system", "session_id")
_WHOSE = (
    *ENTITIES.named("source", "system"),
    Column("session_id", TEXT, "id of the session"),
    *ENTITIES.named("name", "kind", "agent", "model"),
)

SNAPSHOT = Frame(
    "snapshot",
    "the snapshot itself; one row",
    ("as_of",),
    (
        Column("as_of", MOMENT, "the instant that ages are measured at; SQL: as_of()"),
        Column("as_of_from", TEXT, "where it is known from: given, data, clock"),
        Column("policy_version", TEXT, "policy of `states`, `reasons` and `attention`"),
        Column("slow_after_s", REAL, "age at which a running session counts as slow", "s"),
        Column("n_sources", INTEGER, "inputs"),
        Column(
            "has_bodies", YES_NO, "were texts of messages read: `read(bodies=True)`, or `--bodies`"
        ),
    ),
)

TABLES = Frame(
    "tables",
    "one table that SQL can name",
    ("name",),
    (
        Column("name", TEXT, "name of the table"),
        Column("row", TEXT, "what a row of it is"),
        Column("key", TEXT, "columns that identify a row, joined by ', '"),
    ),
)

COLUMNS = Frame(
    "columns",
    "one column of one table",
    ("frame", "column"),
    (
        Column("frame", TEXT, "name of the table"),
        Column("column", TEXT, "name of the column"),
        Column("dtype", TEXT, "type in frames; '' where only the data say it"),
        Column("unit", TEXT, "unit, where there is one"),
        Column("meaning", TEXT, "what it holds; null always means not known"),
    ),
)

REASON_CODES = Frame(
    "reason_codes",
    "one reason code of the registry",
    ("code",),
    (
        Column("code", TEXT, "the code, as in `reasons` and `entities`"),
        Column(
            "origin",
            TEXT,
            "who defines it: a system, adr0033 or stateanalytics",
        ),
        Column("domain", TEXT, "its first segment: run, play, schedule, …"),
        Column("entity_types", TEXT, "types whose rows carry it, joined by |"),
        Column("statuses", TEXT, "statuses that it is written with, in words"),
        Column("is_emitted", YES_NO, "does shipped code ever write it"),
        Column("meaning", TEXT, "the reason in words"),
        Column("what_to_do", TEXT, "the operator's next step"),
    ),
)

ERROR_COUNTS = Frame(
    "error_counts",
    "tool errors of one session, counted when it is first named (reads all messages)",
    _SESSION_KEY,
    (
        *_WHOSE[:3],
        Column("n_tool_answers", INTEGER, "answers of tools"),
        Column("n_tool_errors", INTEGER, "of these, errors"),
        Column("n_pruned", INTEGER, "of these, bodies that were pruned: nothing is known"),
    ),
)


@dataclass(frozen=True)
class View:
    """A ready question: the frame it gives, and its SQL."""

    frame: Frame
    sql: str


ENTITY_STATES = View(
    Frame(
        "entity_states",
        "one entity with its facts and its state",
        ENTITY_KEY,
        (*ENTITIES.columns, *STATES.columns[len(ENTITY_KEY) :]),
    ),
    "SELECT * FROM entities JOIN states USING (source, system, entity_type, entity_id)",
)

RUNNING_SESSIONS = View(
    Frame(
        "running_sessions",
        "one session that is running (ADR-0017: running)",
        _SESSION_KEY,
        (
            *_WHOSE,
            *ENTITIES.named("started_at"),
            *STATES.named("age_s", "silence_s", "effective_state", "severity"),
        ),
    ),
    """
SELECT source, system, entity_id AS session_id, name, kind, agent, model,
       started_at, age_s, silence_s, effective_state, severity
FROM entity_states
WHERE entity_type = 'session' AND lifecycle = 'running'
ORDER BY severity, silence_s DESC NULLS LAST, source, session_id""",
)

FAILED_24H = View(
    Frame(
        "failed_24h",
        "one session that failed in the 24 hours up to as-of (ADR-0017: failed)",
        _SESSION_KEY,
        (
            *_WHOSE,
            *ENTITIES.named("ended_at"),
            *STATES.named("duration_s"),
            *ENTITIES.named("reason_code", "reason_message"),
        ),
    ),
    """
SELECT source, system, entity_id AS session_id, name, kind, agent, model,
       ended_at, duration_s, reason_code, reason_message
FROM entity_states
WHERE entity_type = 'session' AND outcome = 'failed'
  AND ended_at > as_of() - INTERVAL 24 HOURS AND ended_at <= as_of()
ORDER BY ended_at DESC, source, session_id""",
)

SLOW_SESSIONS = View(
    Frame(
        "slow_sessions",
        "one running session older than the policy's `slow_after_s` "
        "(ADR-0017: slow, 30 min; ADR-0025 and v1: 60 min)",
        _SESSION_KEY,
        RUNNING_SESSIONS.frame.columns,
    ),
    """
SELECT * FROM running_sessions
WHERE age_s > (SELECT slow_after_s FROM snapshot)
ORDER BY age_s DESC, source, session_id""",
)

NEEDS_REVIEW = View(
    Frame(
        "needs_review",
        "one session whose plays are gated, escalated or blocked (ADR-0017: needs review)",
        _SESSION_KEY,
        (
            *_WHOSE,
            Column("n_plays", INTEGER, "plays of the session that wait"),
            Column("play_statuses", TEXT, "their stored statuses, joined by ', '"),
        ),
    ),
    """
SELECT session.source, session.system, session.entity_id AS session_id,
       session.name, session.kind, session.agent, session.model,
       count(*) AS n_plays, string_agg(DISTINCT play.raw_status, ', ' ORDER BY play.raw_status)
         AS play_statuses
FROM entities AS play
JOIN entities AS session
  ON session.source = play.source AND session.system = play.system
 AND session.entity_type = 'session' AND session.entity_id = play.session_id
WHERE play.entity_type = 'play' AND play.raw_status IN ('gated', 'escalated', 'blocked')
GROUP BY ALL
ORDER BY session.source, session_id""",
)

SESSIONS_AND_PLAYS = View(
    Frame(
        "sessions_and_plays",
        "one play beside its session: did it run, and was the output accepted (ADR-0017)",
        ("source", "system", "play_id"),
        (
            *_WHOSE[:3],
            Column("play_id", TEXT, "id of the play"),
            Column("play_name", TEXT, "name of the play"),
            Column("session_status", TEXT, "stored status of the session; null: no session"),
            Column("play_status", TEXT, "stored status of the play"),
            Column("session_outcome", STATES.dtypes["outcome"], "did it run"),
            Column("play_outcome", STATES.dtypes["outcome"], "was the output accepted"),
        ),
    ),
    """
SELECT play.source, play.system, play.session_id,
       play.entity_id AS play_id, play.name AS play_name,
       session.raw_status AS session_status, play.raw_status AS play_status,
       session.outcome AS session_outcome, play.outcome AS play_outcome
FROM entity_states AS play
LEFT JOIN entity_states AS session
  ON session.source = play.source AND session.system = play.system
 AND session.entity_type = 'session' AND session.entity_id = play.session_id
WHERE play.entity_type = 'play'
ORDER BY play.source, play_id""",
)

VIEWS = (
    ENTITY_STATES,
    RUNNING_SESSIONS,
    FAILED_24H,
    SLOW_SESSIONS,
    NEEDS_REVIEW,
    SESSIONS_AND_PLAYS,
)

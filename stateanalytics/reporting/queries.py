"""The report's numbers as SQL over a snapshot's frames; a reader can run them again."""

from __future__ import annotations

from stateanalytics.core.windows import Window
from stateanalytics.reporting.material import Plain
from stateanalytics.state.definitions import GOOD_ENDS
from stateanalytics.state.population import part_types

_KEY = "USING (source, system, entity_type, entity_id)"
# Each work once: what a session tells already is not counted again (`rules.mirrors`).
_ONCE = (
    f"entity_type NOT IN ({', '.join(repr(name) for name in part_types())})",
    "AND (entity_type <> 'turn' OR EXISTS (SELECT 1 FROM entities AS later",
    "  WHERE later.entity_type = 'turn' AND later.source = entities.source",
    "  AND later.system = entities.system AND later.session_id = entities.session_id",
    "  AND later.started_at > entities.started_at))",
)
_COUNTED = (
    "NOT is_legacy AND lifecycle <> 'unknown'",
    "AND coalesce(recorded_by, '') NOT IN ('mirrored', 'imported')",
    "AND coalesce(ended_at, started_at, created_at) IS NOT NULL",
)


def queries(window: Window) -> list[Plain]:
    """Title and lines of one query for each table of the report."""
    since, until = (
        f"TIMESTAMPTZ '{moment.isoformat()}'" for moment in (window.since, window.until)
    )
    ended = (
        *_COUNTED,
        "AND is_terminal",
        f"AND coalesce(ended_at, started_at, created_at) >= {since}",
        f"AND coalesce(ended_at, started_at, created_at) < {until}",
    )
    still_open = (
        *_COUNTED,
        "AND NOT is_terminal",
        f"AND coalesce(coalesce(started_at, created_at) < {until}, true)",
    )
    good = ", ".join(f"'{word}'" for word in GOOD_ENDS)
    return [
        {
            "title": "How runs ended",
            "lines": _select(
                "outcome, count(*) AS n", ("entity_type = 'session' AND", *ended), "n DESC, outcome"
            ),
        },
        {
            "title": "Completed and timed out, of the runs that ended",
            "lines": _select(
                f"count(*) FILTER (outcome IN ({good})) AS n_completed, "
                "count(*) FILTER (outcome = 'timed_out') AS n_timed_out, count(*) AS n_ended",
                ("entity_type = 'session' AND", *ended),
            ),
        },
        {
            "title": "Open runs, and those in trouble",
            "lines": _select(
                "count(*) FILTER (severity IN ('critical', 'warning')) AS n_unresolved, "
                "count(*) AS n_open",
                ("entity_type = 'session' AND", *still_open),
            ),
        },
        {
            "title": "Failures by reason code",
            "lines": _select(
                "reason_code, count(*) AS n_rows, count(DISTINCT session_id) AS n_sessions",
                ("outcome IN ('failed', 'timed_out') AND", *_ONCE, "AND", *ended),
                "n_rows DESC, reason_code",
            ),
        },
        {
            "title": "Severity by entity type",
            "lines": _select(
                "entity_type, severity, count(*) AS n",
                (*_ONCE, "AND ((", *ended, ") OR (", *still_open, "))"),
                "entity_type, severity",
            ),
        },
    ]


def _select(what: str, where: tuple[str, ...], order: str = "") -> list[str]:
    lines = [
        f"SELECT {what}",
        "FROM entities",
        f"JOIN states {_KEY}",
        "WHERE",
        *(f"  {condition}" for condition in where),
    ]
    return lines + ([f"GROUP BY ALL ORDER BY {order}"] if order else [])

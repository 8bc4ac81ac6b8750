"""Definitions of every number, the policy that was applied, and SQL for the same rows."""

from __future__ import annotations

import platform
from importlib.metadata import version

import polars as pl

from stateanalytics.charts import vega
from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.windows import Window
from stateanalytics.core.words import how_long, say
from stateanalytics.reporting.material import Material, Plain, Section, iso
from stateanalytics.sql.conditions import COUNTED, PLACE, is_open_before, literal
from stateanalytics.state.definitions import GOOD_ENDS
from stateanalytics.state.population import part_types
from stateanalytics.systems import all_systems

DEFINITIONS = table_rows("stateanalytics.reporting", "definitions.csv")
_KEY = "USING (source, system, entity_type, entity_id)"
# What a session already counts is not counted a second time (`state.population`).
_WITHOUT_PARTS = (
    f"entity_type NOT IN ({', '.join(repr(name) for name in part_types())})",
    "AND (entity_type <> 'turn' OR EXISTS (SELECT 1 FROM entities AS later",
    "  WHERE later.entity_type = 'turn' AND later.source = entities.source",
    "  AND later.system = entities.system AND later.session_id = entities.session_id",
    "  AND later.started_at > entities.started_at))",
)


def summarize_appendix(material: Material) -> Plain:
    """Definitions, the cascade, thresholds, queries and versions."""
    policy = material.policy
    return {
        "finding": say("appendix.finding", policy=policy.version, at=iso(material.facts.as_of)),
        "definitions": [dict(row) for row in DEFINITIONS],
        "policy": {
            "version": policy.version,
            "cascade": [
                {
                    "axis": rule.axis or "anything else",
                    "words": ", ".join(rule.words),
                    **{name: getattr(rule, name) for name in ("number", "severity", "tone")},
                }
                for rule in policy.severity_rules
            ],
            "thresholds": _thresholds(material),
        },
        "queries": queries(material.window, material.facts.sources),
        "versions": {
            "stateanalytics": version("stateanalytics"),
            "polars": version("polars"),
            **vega.VERSIONS,
            "python": platform.python_version(),
        },
    }


_LIMITS = {
    "stalled_after_s": "stalled: silent for at least",
    "dead_after_s": "process dead: silent for at least",
    "retry_grace_s": "stalled: its retry is overdue by more than",
}


def _thresholds(material: Material) -> list[Plain]:
    policy = material.policy
    limits = [
        *((f"stalled: silent for longer than, {kind}", s) for kind, s in policy.stalled_after_s),
        ("stalled: silent for longer than, any other kind", policy.stalled_after_default_s),
        ("idle: silent for longer than", policy.idle_after_s),
        ("play without a session stalled: silent for at least", policy.play_stalled_after_s),
        ("schedule run stalled: silent for at least", policy.schedule_run_stalled_after_s),
        ("slow: runs for longer than", policy.slow_after_s),
        ("stuck: runs for longer than", policy.stuck_after_s),
        *(
            (f"{known.title}, {words}", seconds)
            for known in all_systems()
            for name, words in _LIMITS.items()
            if (seconds := policy.limit(known.name, name)) is not None
        ),
    ]
    return [
        {"name": name, "seconds": seconds, "shown": how_long(seconds)} for name, seconds in limits
    ]


def as_markdown() -> str:
    """The definitions as a page."""
    rows = "\n".join(f"| {row['term']} | {row['meaning']} |" for row in DEFINITIONS)
    return (
        "# What each number means\n\nThe same words stand at the end of every report. "
        "Made from the code by `make docs`.\n\n| term | meaning |\n|---|---|\n" + rows + "\n"
    )


def queries(window: Window, sources: pl.DataFrame) -> list[Plain]:
    """Title and lines of one query for each table of the report."""
    since, until = literal(window.since), literal(window.until)
    is_ended = ("is_terminal", f"{PLACE} >= {since}", f"{PLACE} < {until}")
    is_open = ("NOT is_terminal", *is_open_before(window, sources))
    ended, still_open = (
        (COUNTED[0], *(f"AND {condition}" for condition in (*COUNTED[1:], *others)))
        for others in (is_ended, is_open)
    )
    of_runs = "entity_type = 'session' AND"
    good = ", ".join(f"'{word}'" for word in GOOD_ENDS)
    lines_of = {
        "How runs ended": _select("outcome, count(*) AS n", (of_runs, *ended), "n DESC, outcome"),
        "Completed and timed out, of the runs that ended": _select(
            f"count(*) FILTER (outcome IN ({good})) AS n_completed, "
            "count(*) FILTER (outcome = 'timed_out') AS n_timed_out, count(*) AS n_ended",
            (of_runs, *ended),
        ),
        "Open runs, and those that need attention": _select(
            "count(*) FILTER (severity IN ('critical', 'warning')) AS n_unresolved, "
            "count(*) AS n_open",
            (of_runs, *still_open),
        ),
        "Failures by reason code": [
            "SELECT code, count(*) AS n_rows,",
            "  count(DISTINCT session_id) FILTER (entity_type = 'session') AS n_sessions,",
            "  count(DISTINCT cause) AS n_causes, sum(cost_usd) AS cost_usd",
            "FROM failures",
            f"WHERE failed_at >= {since} AND failed_at < {until}",
            "GROUP BY ALL ORDER BY cost_usd DESC NULLS LAST, n_rows DESC, code",
        ],
        "Severity by entity type": _select(
            "entity_type, severity, count(*) AS n",
            (*_WITHOUT_PARTS, "AND ((", *ended, ") OR (", *still_open, "))"),
            "entity_type, severity",
        ),
    }
    return [{"title": title, "lines": lines} for title, lines in lines_of.items()]


def _select(what: str, where: tuple[str, ...], order: str = "") -> list[str]:
    lines = [
        f"SELECT {what}",
        "FROM entities",
        f"JOIN states {_KEY}",
        "WHERE",
        *(f"  {condition}" for condition in where),
    ]
    return lines + ([f"GROUP BY ALL ORDER BY {order}"] if order else [])


SECTION = Section("appendix", "Definitions", summarize_appendix, place=130)

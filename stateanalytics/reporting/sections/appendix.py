"""What every number means, the policy that was applied, and SQL that gives the same rows."""

from __future__ import annotations

import platform
from importlib.metadata import version

from stateanalytics.core.units import how_long
from stateanalytics.reporting.definitions import DEFINITIONS
from stateanalytics.reporting.material import Material, Plain, Section, iso
from stateanalytics.reporting.queries import queries
from stateanalytics.systems import all_systems


def summarize_appendix(material: Material) -> Plain:
    """Definitions, the cascade, thresholds, queries and versions."""
    policy = material.policy
    return {
        "finding": f"States were derived under policy {policy.version} as of "
        f"{iso(material.facts.as_of)}; every number can be had again with the queries below.",
        "definitions": [{"term": term, "meaning": meaning} for term, meaning in DEFINITIONS],
        "policy": {
            "version": policy.version,
            "cascade": [
                {
                    "number": rule.number,
                    "axis": rule.axis or "anything else",
                    "words": ", ".join(rule.words),
                    "severity": rule.severity,
                    "tone": rule.tone,
                }
                for rule in policy.severity_rules
            ],
            "thresholds": _thresholds(material),
        },
        "queries": queries(material.window),
        "versions": {
            "stateanalytics": version("stateanalytics"),
            "polars": version("polars"),
            "vl-convert-python": version("vl-convert-python"),
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
    silences = [
        (f"stalled: silent for longer than, {kind}", seconds)
        for kind, seconds in policy.stalled_after_s
    ]
    others = [
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
        {"name": name, "seconds": seconds, "shown": how_long(seconds)}
        for name, seconds in (*silences, *others)
    ]


SECTION = Section("appendix", "Definitions", summarize_appendix, place=130)

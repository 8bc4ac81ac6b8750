"""Late data: what belongs to the window and was not known when it ended."""

from __future__ import annotations

from dataclasses import replace

from stateanalytics.core.words import number, say
from stateanalytics.failures.counting import count_run_incidents
from stateanalytics.reporting.ledger import CAUSES, Side, cause_of, is_counted
from stateanalytics.reporting.material import Material, Plain, Section, iso
from stateanalytics.state.population import count_headline
from stateanalytics.systems.history import rewound

N_SHOWN = 20
MEANINGS = {
    "late rows": ("late", "belong to the window, and were not in the data at its end"),
    "closed censoring": ("ended", "were open at its end, and have ended since"),
    "changed rows": ("changed", "were written to since: a correction, new activity, a resumption"),
    "another as-of": ("aged", "were not written to, but have been silent for longer"),
    "removed rows": ("no longer there", "were in the data at its end, and no longer are"),
    "another grouping": (
        "grouped differently",
        "failed as before, but are grouped with other failures",
    ),
}
"""The name of each cause of a difference, and what it means here."""


def summarize_late(material: Material) -> Plain:
    """Runs that are counted differently than at the end of the window, by cause."""
    until = material.window.until
    if until >= material.facts.as_of:
        return {
            "finding": say("late.at_end"),
            "known_at": None,
            "n": 0,
            "numbers": [],
            "kinds": [],
            "rows": [],
            "n_shown": 0,
        }
    past = rewound(material.facts, until).facts
    same = material.window, material.policy
    at_end = replace(Material.of(past, *same, prices=material.prices), zone=material.zone)
    (before, ids_before), (after, ids_after) = map(Side.of_material, (at_end, material))
    rows = _rows(before, after, {**ids_before, **ids_after})
    counts = [
        (name, count_headline(known.runs, count_run_incidents(known.failed)[0]))
        for name, known in (("then", at_end), ("now", material))
    ]
    kinds = [
        {
            "cause": cause,
            **dict(zip(("title", "meaning"), MEANINGS.get(cause, (cause, cause)), strict=True)),
            "n": len(of_cause),
            "n_failures": sum(row["is_new_failure"] for row in of_cause),
        }
        for cause in CAUSES
        if (of_cause := [row for row in rows if row["cause"] == cause])
    ]
    return {
        "finding": _finding(kinds, at_end),
        "known_at": iso(until),
        "n": len(rows),
        "numbers": [
            {"name": name, **{key: list(counted[name][:2]) for key, counted in counts}}
            for name in counts[0][1]
        ],
        "kinds": kinds,
        "rows": rows,
        "n_shown": min(N_SHOWN, len(rows)),
    }


def _rows(before: Side, after: Side, ids: dict[str, str]) -> list[Plain]:
    """One row for each run that some number counts differently, by cause and id."""
    rows = []
    for run in before.ledger.keys() | after.ledger.keys():
        was, now = before.ledger.get(run), after.ledger.get(run)
        cause = cause_of(run, before, after)
        if cause is None or not (is_counted(was) or is_counted(now)):
            continue
        had_failed, has_failed = (line and line.incident for line in (was, now))
        rows.append(
            {
                "run": run,
                "entity_id": ids[run],
                "cause": cause,
                "then": was.ending if was else None,
                "now": now.ending if now else None,
                "is_new_failure": bool(has_failed and not had_failed),
            }
        )
    return sorted(rows, key=lambda row: (CAUSES.index(row["cause"]), row["entity_id"], row["run"]))


def _finding(kinds: list[Plain], at_end: Material) -> str:
    if not kinds:
        return say("late.none", at=at_end.as_of)
    named = [f"{number(kind['n'])} {kind['title']}" for kind in kinds]
    n_failures = sum(kind["n_failures"] for kind in kinds)
    failures = say("late.failures", n=n_failures) if n_failures else ""
    given = {"at": at_end.as_of, "n": at_end.runs.height}
    return say("late.found", kinds=named, failures=failures, **given)


SECTION = Section("late", "Late rows", summarize_late, place=115, needs=("n",))

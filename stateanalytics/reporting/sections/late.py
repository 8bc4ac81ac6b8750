"""What belongs to the window but was not known when it ended: named, and shown apart."""

from __future__ import annotations

from stateanalytics.core.formatting import count, listed, number
from stateanalytics.core.windows import in_utc
from stateanalytics.failures.counting import count_run_incidents
from stateanalytics.reporting.ledger import CAUSES, Side, cause_of, is_counted
from stateanalytics.reporting.material import Material, Plain, Section, iso
from stateanalytics.state.headline import count_headline
from stateanalytics.systems.history import rewound

N_SHOWN = 20
MEANINGS = {
    "late rows": "belong to the window, and were not in the data when it ended",
    "closed censoring": "were open when it ended, and have ended since",
    "changed rows": "were written to since: a correction, a sign of life, a resumption",
    "another as-of": "nobody wrote to, but time has passed over them",
    "rows that are gone": "were in the data when it ended, and are not any more",
    "another grouping": "failed as before, but with others",
}
"""What each of the causes of a difference means here, in the order of `CAUSES`."""
TITLES = {
    "late rows": "came late",
    "closed censoring": "ended since",
    "changed rows": "changed since",
    "another as-of": "aged since",
    "rows that are gone": "are gone",
    "another grouping": "grouped otherwise",
}


def summarize_late(material: Material) -> Plain:
    """The runs that count otherwise than they did at the end of the window, by cause."""
    until = material.window.until
    if until >= material.facts.as_of:
        return {
            "finding": "The data end with the window, so that nothing can have come late.",
            "known_at": None,
            "n": 0,
            "numbers": [],
            "kinds": [],
            "rows": [],
            "n_shown": 0,
        }
    past = rewound(material.facts, until).facts
    then = Material.of(past, material.window, material.policy)
    (before, ids_then), (after, ids_now) = Side.of_material(then), Side.of_material(material)
    rows = _rows(before, after, {**ids_then, **ids_now})
    counts = [
        (name, count_headline(each.runs, count_run_incidents(each.failed)))
        for name, each in (("then", then), ("now", material))
    ]
    return {
        "finding": _sentence(rows, then),
        "known_at": iso(until),
        "n": len(rows),
        "numbers": [
            {"name": name, **{key: list(counted[name][:2]) for key, counted in counts}}
            for name in counts[0][1]
        ],
        "kinds": [
            {
                "cause": cause,
                "title": TITLES.get(cause, cause),
                "meaning": MEANINGS.get(cause, cause),
                "n": len(of_cause),
                "n_failures": sum(row["is_new_failure"] for row in of_cause),
            }
            for cause in CAUSES
            if (of_cause := [row for row in rows if row["cause"] == cause])
        ],
        "rows": rows,
        "n_shown": min(N_SHOWN, len(rows)),
    }


def _rows(before: Side, after: Side, ids: dict[str, str]) -> list[Plain]:
    """One row a run that some number counts otherwise, in the order of causes and ids."""
    rows = []
    for run in before.ledger.keys() | after.ledger.keys():
        was, now = before.ledger.get(run), after.ledger.get(run)
        cause = cause_of(run, before, after)
        if cause is None or not (is_counted(was) or is_counted(now)):
            continue
        has_failed = now is not None and now.incident is not None
        rows.append(
            {
                "run": run,
                "entity_id": ids[run],
                "cause": cause,
                "then": was.ending if was else None,
                "now": now.ending if now else None,
                "is_new_failure": has_failed and not (was is not None and was.incident is not None),
            }
        )
    return sorted(rows, key=lambda row: (CAUSES.index(row["cause"]), row["entity_id"], row["run"]))


def _sentence(rows: list[Plain], then: Material) -> str:
    known = f"As known at {in_utc(then.facts.as_of)}"
    if not rows:
        return f"{known}, when the window ended, its numbers were the same: nothing came late."
    kinds = [
        f"{number(n)} {TITLES.get(cause, cause)}"
        for cause in CAUSES
        if (n := sum(row["cause"] == cause for row in rows))
    ]
    n_failures = sum(row["is_new_failure"] for row in rows)
    failed = f"; {count(n_failures, 'failure')} among them" if n_failures else ""
    return (
        f"{known}, when the window ended, {count(then.runs.height, 'run')} counted; of what "
        f"counts now or then, {listed(kinds)}{failed}."
    )


SECTION = Section("late", "Late rows", summarize_late, place=115)

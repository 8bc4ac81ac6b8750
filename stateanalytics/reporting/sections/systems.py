"""Systems side by side: the same questions, each with its own denominator."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.schema import DELIVERIES, SEVERITIES
from stateanalytics.core.words import count, interval, number, say, share
from stateanalytics.failures.failure_rows import select_failures
from stateanalytics.reporting.material import (
    Material,
    Plain,
    Section,
    findings_by_code,
    plain_rows,
    tally,
)
from stateanalytics.reporting.sections.attention import items_of, things_of
from stateanalytics.reporting.sections.failures import plural
from stateanalytics.state.definitions import BAD_ENDS, GOOD_ENDS, LEFT_OUT, cause_key
from stateanalytics.state.population import part_types, share_of
from stateanalytics.systems import all_systems, system_named

ENDS = ("completed", "failed", "timed_out", "aborted", "cancelled", "other")
N_ITEMS, N_CODES, N_FINDINGS = 3, 5, 8
_ALL = {2: "both", 3: "all three", 4: "all four", 5: "all five"}


def summarize_systems(material: Material) -> Plain:
    """One entry for each system that was read, and a total; none for a single system."""
    names = [known.name for known in material.systems_read]
    if len(names) < 2:
        one = say("systems.one", system=system_named(names[0]).title) if names else ""
        found = {"finding": one or say("systems.none"), "systems": []}
        return {**found, "total": None, "columns": {}}
    things = things_of(material)
    systems = [_system(name, material, things) for name in names]
    total = _runs(material.rows)
    return {
        "finding": _finding(systems, total),
        "systems": systems,
        "total": total,
        # Values that do not occur would only make the tables wider.
        "columns": {
            axis: [word for word, n in total[axis].items() if n]
            for axis in ("ends", "severity", "delivery")
        },
    }


def _system(name: str, material: Material, things: pl.DataFrame) -> Plain:
    known, sources = system_named(name), material.facts.sources.filter(system=name)
    rows, own_things = material.rows.filter(system=name), things.filter(system=name)
    runs, bad = _runs(rows), select_failures(rows, BAD_ENDS)
    causes = bad.select("reason_code", cause_key())
    codes = (
        causes.group_by(code="reason_code")
        .agg(n_rows=pl.len().cast(pl.Int64), n_causes=pl.col("cause").n_unique().cast(pl.Int64))
        .sort("n_causes", "n_rows", "code", descending=[True, True, False], nulls_last=True)
    )
    return {
        "system": name,
        "title": known.title,
        "run_is": known.runs.meaning,
        "n_inputs": sources.height,
        "formats": sources["format"].drop_nulls().unique().sort().to_list(),
        "runs": runs,
        "others": _others(rows),
        "attention": {
            "n": own_things.height,
            "n_open": own_things.filter("is_open").height,
            "items": items_of(own_things.head(N_ITEMS), material),
        },
        "bad_ends": {
            "n_rows": bad.height,
            "n_causes": causes["cause"].n_unique(),
            "codes": plain_rows(codes.head(N_CODES)),
            "n_more_codes": max(codes.height - N_CODES, 0),
        },
        "findings": _findings(name, material),
        "finding": _finding_of_system(runs, own_things, rows),
    }


def _runs(rows: pl.DataFrame) -> Plain:
    """The runs among rows of a window: outcomes, deliveries and severities."""
    sessions = rows.filter(pl.col("entity_type") == "session")
    kept = sessions.filter(pl.col("left_out").is_null())
    ended, still_open = kept.filter(~pl.col("is_open")), kept.filter("is_open")
    outcomes, severities = tally(ended, "outcome"), tally(kept, "severity")
    # Where the state has no delivery it is not applicable.
    deliveries = tally(ended, "delivery")
    delivered = {name: deliveries.get(name, 0) for name in DELIVERIES}
    n_completed = sum(outcomes.get(word, 0) for word in GOOD_ENDS)
    by_end = {"completed": n_completed, **{name: outcomes.get(name, 0) for name in ENDS[1:-1]}}
    sure = share_of(ended, pl.col("outcome").is_in(list(GOOD_ENDS))).sure
    ends = sure.interval() if sure else None
    left_out = tally(sessions, "left_out")
    completed_share = n_completed / ended.height if ended.height else None
    return {
        "n": kept.height,
        "n_ended": ended.height,
        "n_open": still_open.height,
        "n_unresolved": still_open.filter(pl.col("severity").is_in(["critical", "warning"])).height,
        "ends": {**by_end, "other": ended.height - sum(by_end.values())},
        "completed_share": completed_share,
        "shown_share": share(completed_share),
        "shown_interval": None if ends is None else interval(ends),
        "severity": {name: severities.get(name, 0) for name in SEVERITIES},
        "delivery": {**delivered, "not_applicable": ended.height - sum(delivered.values())},
        "left_out": {name: left_out.get(name, 0) for name in LEFT_OUT},
        "n_left_out": sessions.height - kept.height,
    }


def _others(rows: pl.DataFrame) -> list[Plain]:
    """Other entities than runs, by type, parts of runs last."""
    repeated = {known.runs.repeated_type for known in all_systems()}
    counts = tally(rows.filter(pl.col("entity_type") != "session"), "entity_type")
    others = [
        {
            "entity_type": name,
            "n": n,
            "is_part": name in part_types() or name in repeated,
            "shown": count(n, name.replace("_", " "), plural(name)),
        }
        for name, n in counts.items()
    ]
    return sorted(others, key=lambda part: (part["is_part"], -part["n"], part["entity_type"]))


def _findings(name: str, material: Material) -> Plain:
    """Problems in the data of a system, the most severe first, then those of most rows."""
    by_code = findings_by_code(material.facts.findings.filter(system=name), most_rows_first=True)
    columns = ("code", "severity", "n_rows", "message")
    return {
        "n_codes": by_code.height,
        "n_rows": int(by_code["n_rows"].sum()),
        "codes": plain_rows(by_code.head(N_FINDINGS), columns),
    }


def _finding(systems: list[Plain], total: Plain) -> str:
    """The total with its denominator, what it excludes, and the part of each system."""
    ended = say(
        "systems.completed" if total["n_ended"] else "systems.no_run",
        n=total["ends"]["completed"],
        n_ended=total["n_ended"],
        all=_ALL.get(len(systems), f"all {len(systems)}"),
        share=total["shown_share"],
        parts=[_part(system["title"], system["runs"]) for system in systems],
    )
    reasons = [f"{number(n)} {name}" for name, n in total["left_out"].items() if n]
    name = "systems.excluded" if reasons else "systems.none_excluded"
    return say(name, ended=ended, reasons=reasons, n=total["n_left_out"])


def _part(system: str, runs: Plain) -> str:
    name = "systems.part" if runs["n_ended"] else "systems.no_part"
    return say(name, system=system, n=runs["ends"]["completed"], n_ended=runs["n_ended"])


def _finding_of_system(runs: Plain, things: pl.DataFrame, rows: pl.DataFrame) -> str:
    if rows.is_empty():
        return say("systems.empty")
    ended, still_open = "No run ended", say("systems.none_open")
    if n_ended := runs["n_ended"]:
        given = {"n": runs["ends"]["completed"], "share": runs["shown_share"]}
        ended = say("systems.ended", n_ended=n_ended, **given)
    if n_open := runs["n_open"]:
        still_open = say("systems.trouble", n=runs["n_unresolved"], n_open=n_open)
    return say("systems.finding", ended=ended, still_open=still_open, n=things.height)


SECTION = Section("systems", "Systems", summarize_systems, place=30, needs=("systems",))

"""Every system beside the others: the same questions, each with its own denominator."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.schema import DELIVERIES, FINDING_SEVERITIES, SEVERITIES
from stateanalytics.core.words import count, interval, listed, number, share
from stateanalytics.failures.failure_rows import select_failures
from stateanalytics.reporting.material import Material, Plain, Section, plain_rows, tally
from stateanalytics.reporting.sections.attention import items_of, things_of
from stateanalytics.reporting.sections.failures import plural
from stateanalytics.state.definitions import BAD_ENDS, GOOD_ENDS, LEFT_OUT, cause_key
from stateanalytics.state.headline import share_of
from stateanalytics.state.population import part_types
from stateanalytics.systems import all_systems, system_named

ENDS = ("completed", "failed", "timed_out", "aborted", "cancelled", "other")
N_ITEMS, N_CODES, N_FINDINGS = 3, 5, 8
_ALL = {2: "both", 3: "all three", 4: "all four", 5: "all five"}


def summarize_systems(material: Material) -> Plain:
    """One entry a system that was read, and their total; no entries where it is only one."""
    names = [known.name for known in material.systems_read]
    if len(names) < 2:
        return {
            "finding": f"Everything that was read was written by {system_named(names[0]).title}."
            if names
            else "No system was read.",
            "systems": [],
            "total": None,
            "columns": {},
        }
    things = things_of(material)
    systems = [_system(name, material, things) for name in names]
    total = _runs(material.rows)
    return {
        "finding": _sentence(systems, total),
        "systems": systems,
        "total": total,
        # Words that nothing has would only make the tables wider.
        "columns": {
            axis: [word for word, n in total[axis].items() if n]
            for axis in ("ends", "severity", "delivery")
        },
    }


def _system(name: str, material: Material, things: pl.DataFrame) -> Plain:
    rows = material.rows.filter(pl.col("system") == name)
    mine = things.filter(pl.col("system") == name)
    runs, bad = _runs(rows), select_failures(rows, BAD_ENDS)
    causes = bad.select("reason_code", cause_key())
    codes = (
        causes.group_by(code="reason_code")
        .agg(n_rows=pl.len().cast(pl.Int64), n_causes=pl.col("cause").n_unique().cast(pl.Int64))
        .sort("n_causes", "n_rows", "code", descending=[True, True, False], nulls_last=True)
    )
    return {
        "system": name,
        "title": system_named(name).title,
        "run_is": system_named(name).run_is,
        "n_inputs": material.facts.sources.filter(pl.col("system") == name).height,
        "formats": _formats(name, material),
        "runs": runs,
        "others": _others(rows),
        "attention": {
            "n": mine.height,
            "n_open": mine.filter("is_open").height,
            "items": items_of(mine.head(N_ITEMS), material),
        },
        "bad_ends": {
            "n_rows": bad.height,
            "n_causes": causes["cause"].n_unique(),
            "codes": plain_rows(codes.head(N_CODES)),
            "n_more_codes": max(codes.height - N_CODES, 0),
        },
        "findings": _findings(name, material),
        "finding": _of_one(runs, mine, rows),
    }


def _runs(rows: pl.DataFrame) -> Plain:
    """The runs among rows of a window: how they ended, what they delivered, how bad it is."""
    sessions = rows.filter(pl.col("entity_type") == "session")
    kept = sessions.filter(pl.col("left_out").is_null())
    ended, still_open = kept.filter(~pl.col("is_open")), kept.filter("is_open")
    outcomes, severities = tally(ended, "outcome"), tally(kept, "severity")
    n_completed = sum(outcomes.get(word, 0) for word in GOOD_ENDS)
    by_end = {"completed": n_completed, **{name: outcomes.get(name, 0) for name in ENDS[1:-1]}}
    sure = share_of(ended, pl.col("outcome").is_in(list(GOOD_ENDS))).sure
    ends = sure.interval() if sure else None
    left_out = tally(sessions, "left_out")
    return {
        "n": kept.height,
        "n_ended": ended.height,
        "n_open": still_open.height,
        "n_unresolved": still_open.filter(pl.col("severity").is_in(["critical", "warning"])).height,
        "ends": {**by_end, "other": ended.height - sum(by_end.values())},
        "completed_share": n_completed / ended.height if ended.height else None,
        "shown_share": share(n_completed / ended.height if ended.height else None),
        "shown_interval": None if ends is None else interval(ends),
        "severity": {name: severities.get(name, 0) for name in SEVERITIES},
        "delivery": _deliveries(ended),
        "left_out": {name: left_out.get(name, 0) for name in LEFT_OUT},
        "n_left_out": sessions.height - kept.height,
    }


def _deliveries(ended: pl.DataFrame) -> Plain:
    """What ended runs delivered; ``not_applicable`` where the state has no delivery."""
    counts = tally(ended, "delivery")
    known = {name: counts.get(name, 0) for name in DELIVERIES}
    return {**known, "not_applicable": ended.height - sum(known.values())}


def _others(rows: pl.DataFrame) -> list[Plain]:
    """Entities that are no runs, by type, parts of runs last."""
    repeated = {known.repeated_type for known in all_systems()}
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


def _formats(name: str, material: Material) -> list[str]:
    formats = material.facts.sources.filter(pl.col("system") == name)["format"]
    return formats.drop_nulls().unique().sort().to_list()


def _findings(name: str, material: Material) -> Plain:
    """Problems in the data of one system, the gravest first."""
    place = pl.col("severity").replace_strict(
        {word: place for place, word in enumerate(FINDING_SEVERITIES)},
        default=len(FINDING_SEVERITIES),
        return_dtype=pl.Int8,
    )
    by_code = (
        material.facts.findings.filter(pl.col("system") == name)
        .sort("source", "table", "entity_type", "entity_id", "example")
        .group_by("code", "severity", maintain_order=True)
        .agg(
            n_rows=pl.col("n_rows").fill_null(1).sum(),
            message=pl.col("message").drop_nulls().first(),
        )
        .sort(place, -pl.col("n_rows"), "code")
    )
    return {
        "n_codes": by_code.height,
        "n_rows": int(by_code["n_rows"].sum()),
        "codes": plain_rows(by_code.head(N_FINDINGS)),
    }


def _sentence(systems: list[Plain], total: Plain) -> str:
    """The total with its denominator, what it leaves out, and each system's own part."""
    all_of_them = _ALL.get(len(systems), f"all {len(systems)}")
    if not total["n_ended"]:
        ended = f"No run of {all_of_them} systems ended in this window"
    else:
        ended = (
            f"{number(total['ends']['completed'])} of {count(total['n_ended'], 'ended run')} of "
            f"{all_of_them} systems completed ({total['shown_share']}): "
            + listed(_part(part) for part in systems)
        )
    reasons = [f"{number(n)} {name}" for name, n in total["left_out"].items() if n]
    if not reasons:
        return f"{ended}; no session is left out."
    noun = "session" if total["n_left_out"] == 1 else "sessions"
    return f"{ended}; left out: {listed(reasons)} {noun}."


def _part(system: Plain) -> str:
    runs = system["runs"]
    if not runs["n_ended"]:
        return f"{system['title']} none ended"
    return f"{system['title']} {number(runs['ends']['completed'])} of {number(runs['n_ended'])}"


def _of_one(runs: Plain, things: pl.DataFrame, rows: pl.DataFrame) -> str:
    if rows.is_empty():
        return "Nothing of it belongs to this window."
    ended = (
        f"{number(runs['ends']['completed'])} of {count(runs['n_ended'], 'ended run')} completed"
        f" ({runs['shown_share']})"
        if runs["n_ended"]
        else "No run ended"
    )
    still_open = (
        f"{number(runs['n_unresolved'])} of {count(runs['n_open'], 'open run')} in trouble"
        if runs["n_open"]
        else "none is open"
    )
    look = count(things.height, "different thing") + " to look at"
    return f"{ended}; {still_open}; {look}."


SECTION = Section("systems", "Systems", summarize_systems, place=30)

"""What needs a person: by severity and type, and one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import polars as pl

from stateanalytics.core.schema import ENTITY_KEY, SEVERITIES
from stateanalytics.core.units import how_long
from stateanalytics.core.windows import day_of
from stateanalytics.core.words import count, listed, number
from stateanalytics.queries import with_action_key
from stateanalytics.reporting.entities import pill_of
from stateanalytics.reporting.material import Material, Plain, Section, iso, tally
from stateanalytics.state.attention import DISPOSITIONS, OPEN, attention_items

N_SHOWN = 10
N_BLOCKED_SHOWN = 5
LONGEST_EVIDENCE = 20_000
# The order that people think in: the work itself first, what only holds it later.
TYPE_ORDER = (
    "session", "turn", "play", "show", "invocation", "schedule", "schedule_run",
    "engine_run", "dispatch", "team",
)  # fmt: skip


def summarize_attention(material: Material) -> Plain:
    """Severity by entity type, the items on top, and what the policy leaves neutral."""
    rows = material.counted_rows
    listed_items = _listed(rows, material)
    every = _things(listed_items.filter(pl.col("disposition") == OPEN))
    things, stopped = _asking(every), every.filter(standing="stopped")
    by_type = _by_type(rows.select("entity_type", "severity"))
    return {
        "finding": _sentence(by_type, things),
        "denominator": "entities of the window that rates may count, each work once",
        "by_type": by_type,
        "n_things": things.height,
        "open": _shown(things.filter("is_open"), material),
        "ended": _shown(things.filter(~pl.col("is_open")), material),
        "stopped": _shown(stopped, material),
        "discharged": [
            {"disposition": name, "n": n}
            for name in DISPOSITIONS
            if (n := listed_items.filter(pl.col("disposition") == name).height)
        ],
        "blocked": _blocked(rows, material),
        "n_legacy": material.rows.filter(
            pl.col("left_out") == "legacy", ~pl.col("is_mirror")
        ).height,
    }


def things_of(material: Material) -> pl.DataFrame:
    """What is to be looked at in the window, one row for what one answer would clear."""
    items = _listed(material.counted_rows, material)
    return _asking(_things(items.filter(pl.col("disposition") == OPEN)))


def _asking(things: pl.DataFrame) -> pl.DataFrame:
    """Without what somebody ended on purpose: it is severe, and asks nothing of a reader."""
    return things.filter(pl.col("standing") != "stopped")


def _shown(things: pl.DataFrame, material: Material) -> Plain:
    return {"n": things.height, "items": items_of(things.head(N_SHOWN), material)}


def _listed(rows: pl.DataFrame, material: Material) -> pl.DataFrame:
    """The attention list of the window, discharged items too, with what is told about each."""
    items = attention_items(
        material.facts, material.states, material.reasons,
        policy=material.policy, with_discharged=True,
    )  # fmt: skip
    added = (
        "dimension",
        "code",
        "message",
        "cluster",
        "disposition",
        "standing",
        "reopened_because",
    )
    return rows.join(items.select(*ENTITY_KEY, *added), on=ENTITY_KEY, how="inner")


def _by_type(rows: pl.DataFrame) -> list[Plain]:
    """One row a type that occurs, the known ones in their order, then by name."""
    types = sorted(
        tally(rows, "entity_type"),
        key=lambda name: (
            TYPE_ORDER.index(name) if name in TYPE_ORDER else len(TYPE_ORDER),
            name,
        ),
    )
    return [_of_type(name, rows.filter(pl.col("entity_type") == name)) for name in types]


def _of_type(name: str, rows: pl.DataFrame) -> Plain:
    counts = tally(rows, "severity")
    return {
        "entity_type": name,
        "n": rows.height,
        **{severity: counts.get(severity, 0) for severity in SEVERITIES},
    }


def _things(items: pl.DataFrame) -> pl.DataFrame:
    """One row for what one answer would clear: its session, newest first, speaks for it."""
    stands_for_less = pl.col("entity_type") != "session"
    return (
        with_action_key(items)
        .sort(
            "severity",
            stands_for_less,
            "placed_at",
            "entity_type",
            "entity_id",
            "source",
            descending=[False, False, True, False, False, False],
            nulls_last=True,
        )
        .with_columns(
            n_alike=pl.len().over("thing"),
            n_causes=pl.struct("source", "cluster").n_unique().over("thing"),
            # What ended with a session took its time, which counts once.
            lost_s=pl.when(pl.col("entity_type") == pl.col("entity_type").first().over("thing"))
            .then("duration_s")
            .sort()
            .sum()
            .over("thing"),
        )
        .unique("thing", keep="first", maintain_order=True)
        # Of open work the worst and longest silent stands first, of ended work what cost most.
        .sort(
            pl.when("is_open").then("severity"),
            pl.when("is_open").then("silence_s").otherwise("lost_s"),
            "n_alike",
            "placed_at",
            "entity_type",
            "entity_id",
            "source",
            descending=[False, True, True, True, False, False, False],
            nulls_last=True,
        )
    )


def items_of(rows: pl.DataFrame, material: Material) -> list[Plain]:
    """What is told about each row of `things_of`; few rows, so one at a time."""
    reasons = material.reasons.join(rows.select(ENTITY_KEY), on=ENTITY_KEY, how="semi")
    by_entity: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for reason in reasons.sort(*ENTITY_KEY, "order").iter_rows(named=True):
        by_entity.setdefault(tuple(reason[part] for part in ENTITY_KEY), []).append(reason)
    return [
        _item(row, by_entity.get(tuple(row[part] for part in ENTITY_KEY), []))
        for row in rows.iter_rows(named=True)
    ]


def _item(row: dict[str, Any], reasons: list[dict[str, Any]]) -> Plain:
    kept = ("entity_type", "entity_id", "source", "name", "kind", "project", "agent", "model")
    return {
        **{name: row[name] for name in kept},
        "severity": row["severity"],
        "display": row["display"],
        "pill": pill_of(row),
        "reason": _reason(_deciding(row, reasons)),
        "is_open": row["is_open"],
        "n_alike": row["n_alike"],
        "n_causes": row["n_causes"],
        "lost": how_long(row["lost_s"]) if row["n_alike"] > 1 and row["lost_s"] else None,
        "at": iso(row["last_activity_at"] if row["is_open"] else row["placed_at"]),
        "age_s": row["age_s"],
        "silence_s": row["silence_s"],
        "when": _when(row),
        "reopened_because": row.get("reopened_because"),
    }


def _when(row: dict[str, Any]) -> str:
    if not row["is_open"]:
        ran = f", after {how_long(row['duration_s'])}" if row["duration_s"] is not None else ""
        at = row["placed_at"]
        return f"ended {day_of(at)} {at:%H:%M}{ran}" if at else "ended"
    spans = {"open": row["age_s"], "silent": row["silence_s"]}
    told = {state: how_long(span) for state, span in spans.items() if span is not None}
    if len(told) == 2 and len(set(told.values())) == 1:
        return f"open and silent for {told['open']}"
    parts = [f"{state} for {span}" for state, span in told.items()]
    return ", ".join(parts) or "open, no times"


def _deciding(row: dict[str, Any], reasons: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The reason that the attention list names; of blocked work what blocks it."""
    by_code = (reason for reason in reasons if reason["code"] == row.get("code"))
    by_blocked = (r for r in reasons if "code" not in row and ".blocked" in (r["code"] or ""))
    return next(by_code, None) or next(by_blocked, None) or next(iter(reasons), None)


def _reason(chosen: dict[str, Any] | None) -> Plain | None:
    if chosen is None:
        return None
    from stateanalytics.state.reason_codes import REGISTRY

    known = REGISTRY.get(chosen["code"]) if chosen["code"] else None
    return {
        "code": chosen["code"],
        "message": chosen["message"],
        "claim_status": chosen["claim_status"],
        "confidence": chosen["confidence"],
        "evidence": "; ".join(_evidence(chosen["evidence"], chosen["message"])) or None,
        "what_to_do": known.what_to_do if known else None,
    }


def _evidence(text: str | None, message: str | None) -> Iterator[str]:
    """Evidence in words: at most three, none that only repeats the message."""
    if not text or len(text) > LONGEST_EVIDENCE:
        return
    try:
        references = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(references, list):
        return
    for reference in references[:3]:
        if isinstance(reference, dict):
            detail = reference.get("detail") or reference.get("path") or reference.get("id")
            kind = reference.get("kind")
            if isinstance(detail, str) and detail and detail not in (message or ""):
                yield f"{kind}: {detail}" if isinstance(kind, str) else detail


def _blocked(rows: pl.DataFrame, material: Material) -> Plain:
    """What is blocked although the policy calls it neutral: a gap of the cascade itself."""
    blocked = rows.filter(
        pl.col("severity") == "neutral",
        (pl.col("lifecycle") == "blocked") | (pl.col("health") == "blocked"),
    ).sort(
        "placed_at", "entity_type", "entity_id", "source", descending=[True, False, False, False]
    )
    n = blocked.height
    verb = "is" if n == 1 else "are"
    return {
        "finding": f"{count(n, 'entity', 'entities').capitalize()} {verb} blocked, which policy "
        f"{material.policy.version} calls neutral; the policy named operator calls it a warning."
        if n
        else f"Nothing is blocked that policy {material.policy.version} leaves neutral.",
        "n": n,
        "items": items_of(
            blocked.with_columns(n_alike=1, n_causes=1, lost_s=None).head(N_BLOCKED_SHOWN), material
        ),
    }


def _sentence(by_type: list[Plain], things: pl.DataFrame) -> str:
    total = {name: sum(row[name] for row in by_type) for name in SEVERITIES}
    n = sum(row["n"] for row in by_type)
    if not n:
        return "There is nothing in this window that could need attention."
    if not total["critical"] + total["warning"]:
        return f"None of {count(n, 'entity', 'entities')} is critical or a warning."
    critical, warnings = total["critical"], total["warning"]
    severities = listed(
        [f"{number(critical)} critical"] * bool(critical)
        + [count(warnings, "warning")] * bool(warnings)
    )
    n_open = things.filter("is_open").height
    live = f"; {number(n_open)} can still be acted on" if n_open else ""
    return (
        f"Of {count(n, 'entity', 'entities')} in the window, {severities}: "
        f"{count(things.height, 'different thing')} to look at{live}."
    )


SECTION = Section("attention", "Attention", summarize_attention, place=40)

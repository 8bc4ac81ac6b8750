"""What needs attention: counts by severity and type, then each item."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import polars as pl

from stateanalytics.core.joins import collected, collected_each
from stateanalytics.core.schema import ENTITY_KEY, SEVERITIES
from stateanalytics.core.windows import day_of
from stateanalytics.core.words import count, how_long, number, say
from stateanalytics.failures.counting import SESSION_KEY, during_turns, turn_times, worked_s
from stateanalytics.queries import judged_effort, with_action_key
from stateanalytics.reporting.entities import pill_of
from stateanalytics.reporting.material import Material, Plain, Section, iso, tally
from stateanalytics.state.attention import DISPOSITIONS, OPEN, attention_items
from stateanalytics.state.definitions import RUN, TROUBLE
from stateanalytics.state.reasons import REGISTRY

N_SHOWN = 10
N_BLOCKED_SHOWN = 5
LONGEST_EVIDENCE = 20_000
# Work itself stands first, what only contains it later.
TYPE_ORDER = (
    "session", "turn", "play", "show", "invocation", "schedule", "schedule_run",
    "engine_run", "dispatch", "team",
)  # fmt: skip


def summarize_attention(material: Material) -> Plain:
    """Severity by entity type, the most severe items, and blocked work that counts as neutral."""
    rows = material.counted_rows
    listed_items = _listed(rows, material)
    items = listed_items.filter(pl.col("disposition") == OPEN)
    span_s = (material.window.until - material.window.since).total_seconds()
    every = _things(items, old_s=span_s).lazy()
    plan, is_open = every.filter(~_IS_STOPPED), pl.col("is_open")
    things, stopped, still_open, over = collected_each(
        [plan, every.filter(_IS_STOPPED), plan.filter(is_open), plan.filter(~is_open)]
    )
    by_type = _by_type(rows[["entity_type", "severity"]])
    in_disposition = tally(listed_items, "disposition")
    return {
        "finding": _finding(by_type, items, things),
        "denominator": "entities of the window that rates may count, each work once",
        "by_type": by_type,
        "n_items": items.height,
        "n_things": _n_things(things),
        "open": {
            **_shown(still_open, material),
            "n_runs": still_open["n_runs"].sum(),
            "n_runs_old": still_open["n_runs_old"].sum(),
            "is_mixed": len({name == RUN for name in still_open["entity_type"]}) > 1,
        },
        "ended": _shown(over, material),
        "stopped": _shown(stopped, material),
        "discharged": [
            {"disposition": name, "n": n}
            for name in DISPOSITIONS
            if (n := in_disposition.get(name))
        ],
        "blocked": _blocked(rows, material),
        "n_legacy": material.rows.filter(~pl.col("is_mirror"), left_out="legacy").height,
    }


def _n_things(things: pl.DataFrame) -> int:
    """How many answers are asked for: one per open run, and per group of ended work."""
    pairs = zip(things["n_runs"], things["is_open"], strict=True)
    return sum(n if is_open else 1 for n, is_open in pairs)


def things_of(material: Material) -> pl.DataFrame:
    """What needs attention in the window, one row for everything that a single answer clears."""
    items = _listed(material.counted_rows, material)
    return _things(items.filter(pl.col("disposition") == OPEN)).filter(~_IS_STOPPED)


_IS_STOPPED = pl.col("standing") == "stopped"
"""Work that somebody ended on purpose. It has a severity but needs no answer."""


def _shown(things: pl.DataFrame, material: Material) -> Plain:
    return {"n": things.height, "items": items_of(things.head(N_SHOWN), material)}


def _listed(rows: pl.DataFrame, material: Material) -> pl.DataFrame:
    """The attention list of the window with discharged items, each with its reasons."""
    items = attention_items(
        material.facts, material.states, material.reasons,
        policy=material.policy, with_discharged=True,
        efforts=judged_effort(material.facts, material.policy),
    )  # fmt: skip
    added = tuple("dimension code message cluster disposition standing reopened_because".split())
    # These three come from the items: a session that loops is critical whatever its state.
    judged = ("severity", "tone", "display")
    judgements = items.lazy().select(*ENTITY_KEY, *judged, *added)
    in_turns = turn_times(material.facts.entities)
    return (
        rows.lazy()
        .drop(judged)
        .join(judgements, on=ENTITY_KEY, how="inner")
        .join(in_turns, on=[*SESSION_KEY, "entity_type"], how="left")
        .pipe(collected)
    )


def _by_type(rows: pl.DataFrame) -> list[Plain]:
    """Counts by severity for each type: known types in their order, then others by name."""
    order = {name: place for place, name in enumerate(TYPE_ORDER)}
    counts = {(row[0], row[1]): row[2] for row in rows.group_by(rows.columns).len().iter_rows()}
    types = tally(rows, "entity_type").items()
    return [
        {"entity_type": name, "n": n, **{word: counts.get((name, word), 0) for word in SEVERITIES}}
        for name, n in sorted(types, key=lambda pair: (order.get(pair[0], 99), pair))
    ]


def _things(items: pl.DataFrame, *, old_s: float = 0.0) -> pl.DataFrame:
    """One row for everything that a single answer clears, shown by its newest session.

    ``n_runs`` counts its open runs in the same way as the headline does, or is 1 for entities
    that are no runs; ``n_runs_old`` are those that are silent for longer than ``old_s``.
    """
    is_no_session = pl.col("entity_type") != "session"
    is_old, has_no_run = pl.col("silence_s") > old_s, is_no_session.all().over("thing")
    return collected(
        with_action_key(items)
        .lazy()
        .sort(
            "severity",
            is_no_session,
            *("placed_at", "silence_s", "entity_type", "entity_id", "source"),
            descending=[False, False, True, False, False, False, False],
            nulls_last=True,
        )
        .with_columns(
            n_alike=pl.len().over("thing"),
            n_runs=(~is_no_session).sum().over("thing").clip(1),
            n_runs_old=pl.when(has_no_run)
            .then(is_old.cast(pl.UInt32))
            .otherwise((is_old & ~is_no_session).sum().over("thing")),
            n_causes=pl.struct("source", "cluster").n_unique().over("thing"),
            # Other entities that ended with a session share its time, which counts once.
            lost_s=pl.when(pl.col("entity_type") == pl.col("entity_type").first().over("thing"))
            .then(during_turns(worked_s()))
            .sort()
            .sum()
            .over("thing"),
        )
        .unique("thing", keep="first", maintain_order=True)
        # Open work by severity, then by its last sign of life; ended work by its length.
        .sort(
            pl.when("is_open").then("severity"),
            pl.when("is_open").then(-pl.col("silence_s")).otherwise("lost_s"),
            *("n_alike", "placed_at", "entity_type", "entity_id", "source"),
            descending=[False, True, True, True, False, False, False],
            nulls_last=True,
        )
    )


def items_of(rows: pl.DataFrame, material: Material) -> list[Plain]:
    """The items of a list for the page, one at a time because they are few."""
    reasons = material.reasons.lazy().join(rows.lazy(), on=ENTITY_KEY, how="semi")
    in_order = reasons.sort(*ENTITY_KEY, "order").pipe(collected)
    by_entity: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for reason in in_order.iter_rows(named=True):
        by_entity.setdefault(tuple(reason[part] for part in ENTITY_KEY), []).append(reason)
    return [
        _item(row, by_entity.get(tuple(row[part] for part in ENTITY_KEY), []))
        for row in rows.iter_rows(named=True)
    ]


_KEPT = (
    *("entity_type", "entity_id", "source", "name", "kind", "project", "agent", "model"),
    *("severity", "display", "is_open", "n_alike", "n_causes", "age_s", "silence_s"),
    *("n_runs", "n_runs_old"),
)


def _item(row: dict[str, Any], reasons: list[dict[str, Any]]) -> Plain:
    return {
        **{name: row[name] for name in _KEPT},
        "pill": pill_of(row),
        "reason": _reason(_deciding(row, reasons)),
        "lost": how_long(row["lost_s"]) if row["n_alike"] > 1 and row["lost_s"] else None,
        "at": iso(row["last_activity_at"] if row["is_open"] else row["placed_at"]),
        "when": _when(row),
        "reopened_because": row.get("reopened_because"),
    }


def _when(row: dict[str, Any]) -> str:
    if not row["is_open"]:
        at, duration_s = row["placed_at"], row["duration_s"]
        if not at:
            return "ended"
        if row["end_written_by"] == "observer" or row["is_end_approximate"]:
            duration_s = None  # written later, it says nothing of how long the work took
        after = "" if duration_s is None else say("attention.after", seconds=duration_s)
        return say("attention.ended", day=day_of(at), time=f"{at:%H:%M}", duration=after)
    spans = {"open": row["age_s"], "silent": row["silence_s"]}
    known = {state: how_long(span) for state, span in spans.items() if span is not None}
    if len(known) == 2 and len(set(known.values())) == 1:
        return say("attention.open_and_silent", duration=known["open"])
    parts = [f"{state} for {span}" for state, span in known.items()]
    return ", ".join(parts) or say("attention.no_times")


def _deciding(row: dict[str, Any], reasons: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The reason that the attention list names; for blocked work, the entity that blocks it."""
    by_code = (reason for reason in reasons if reason["code"] == row.get("code"))
    by_blocked = (r for r in reasons if "code" not in row and ".blocked" in (r["code"] or ""))
    return next(by_code, None) or next(by_blocked, None) or next(iter(reasons), None)


def _reason(chosen: dict[str, Any] | None) -> Plain | None:
    if chosen is None:
        return None
    known = REGISTRY.get(chosen["code"]) if chosen["code"] else None
    return {
        **{name: chosen[name] for name in ("code", "message", "claim_status", "confidence")},
        "evidence": "; ".join(_evidence(chosen["evidence"], chosen["message"])) or None,
        "what_to_do": known.what_to_do if known else None,
    }


def _evidence(text: str | None, message: str | None) -> Iterator[str]:
    """At most three pieces of evidence, without those that repeat the message."""
    references = None
    if text and len(text) <= LONGEST_EVIDENCE:
        with suppress(ValueError, RecursionError):
            references = json.loads(text)
    for reference in references[:3] if isinstance(references, list) else ():
        if isinstance(reference, dict):
            detail = reference.get("detail") or reference.get("path") or reference.get("id")
            kind = reference.get("kind")
            if isinstance(detail, str) and detail and detail not in (message or ""):
                yield f"{kind}: {detail}" if isinstance(kind, str) else detail


def _blocked(rows: pl.DataFrame, material: Material) -> Plain:
    """Blocked work that the policy calls neutral: a gap in the cascade itself."""
    is_blocked = (pl.col("lifecycle") == "blocked") | (pl.col("health") == "blocked")
    order = ("placed_at", "entity_type", "entity_id", "source")
    blocked = (
        rows.lazy()
        .filter(is_blocked, severity="neutral")
        .sort(order, descending=[True, False, False, False])
        .with_columns(n_alike=1, n_causes=1, n_runs=1, n_runs_old=0, lost_s=None)
        .collect()
    )
    n, policy = blocked.height, material.policy.version
    return {
        "finding": say("attention.blocked" if n else "attention.none_blocked", n=n, policy=policy),
        "n": n,
        "items": items_of(blocked.head(N_BLOCKED_SHOWN), material),
    }


def _finding(by_type: list[Plain], items: pl.DataFrame, things: pl.DataFrame) -> str:
    n = sum(row["n"] for row in by_type)
    if not n:
        return say("attention.nothing")
    if items.is_empty():
        is_any_severe = any(row["critical"] + row["warning"] for row in by_type)
        return say("attention.all_decided" if is_any_severe else "attention.none_bad", n=n)
    in_severity = tally(items, "severity")
    n_critical, n_warnings = (in_severity.get(name, 0) for name in TROUBLE)
    n_open = sum(things["n_runs"].filter(things["is_open"]))
    severities = [f"{number(n_critical)} critical"] * bool(n_critical)
    severities += [count(n_warnings, "warning")] * bool(n_warnings)
    return say(
        "attention.things",
        n=n,
        severities=severities,
        n_things=_n_things(things),
        still_open=say("attention.open", n=n_open) if n_open else "",
    )


SECTION = Section("attention", "Attention", summarize_attention, place=40, needs=("by_type",))

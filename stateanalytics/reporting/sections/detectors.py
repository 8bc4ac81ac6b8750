"""Do the detectors agree: the worst contradiction in a sentence, then who says what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from stateanalytics.core.facts import Facts, changed_facts
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.words import count, number
from stateanalytics.detectors.catalogue import Chosen, Detector, chosen_detectors
from stateanalytics.detectors.comparing import agreement, disagreements
from stateanalytics.detectors.detections import ANSWERS, Detections, detect
from stateanalytics.reporting.material import Material, Plain, Section, plain_rows

N_CAUSES, N_IN_CHART = 8, 10
FEWEST_DRAWN = 20
"""Open runs: a matrix of detectors over fewer shows less than their table."""
TROUBLE = ("stale", "stuck", "slow", "dead")
_DENOMINATOR = (
    "runs that are open at as-of and began before the window's end, "
    "by the detectors that look at them"
)


def summarize_detectors(material: Material) -> Plain:
    """Every rule that calls an open run stale, stuck, slow or dead, and where they differ."""
    facts = _open_only(material)
    rules = _asked(facts, material.detectors)
    n_open = facts.entities.height
    if not rules or not n_open:
        return {**_NOTHING, "finding": "No run is open, so no detector could contradict another."}
    judged = material.states.join(facts.entities.select(ENTITY_KEY), on=ENTITY_KEY, how="semi")
    detections = detect(facts, detectors=rules, states=judged)
    # First, because the rows of those that disagree are some of these.
    verdicts = _verdicts(detections.rows, rules)
    differences = disagreements(detections, detectors=rules)
    loud = verdicts.filter(pl.col("n_flagged") > 0)
    return {
        "finding": differences.worst or _all_agree(loud.height, len(rules), n_open),
        "denominator": _DENOMINATOR,
        "n_open": n_open,
        "n_detectors": len(rules),
        "n_disagreements": differences.rows.height,
        "causes": [_cause(row) for row in plain_rows(differences.causes.head(N_CAUSES))],
        "n_causes": differences.causes.height,
        "said": plain_rows(loud.head(N_IN_CHART)),
        "n_silent": verdicts.height - loud.height,
        "pairs": _pairs(detections, loud["detector"].head(N_IN_CHART).to_list())
        if n_open >= FEWEST_DRAWN
        else [],
    }


_NOTHING: Plain = {
    "denominator": _DENOMINATOR,
    "n_open": 0,
    "n_detectors": 0,
    "n_disagreements": 0,
    "causes": [],
    "n_causes": 0,
    "said": [],
    "n_silent": 0,
    "pairs": [],
}


def _open_only(material: Material) -> Facts:
    """The facts of the open runs: no rule about trouble looks at work that has ended."""
    whole = material.facts
    runs = material.open_runs
    kept = {
        name: getattr(whole, name).join(runs.select(ENTITY_KEY), on=ENTITY_KEY, how="semi")
        for name in ("entities", "transitions")
    }
    whose = ["source", "system", "entity_id"]
    kept["events"] = whole.events.join(runs.select(whose), on=whose, how="semi")
    return changed_facts(whole, **kept)


def _asked(facts: Facts, asked: Chosen | None) -> list[Detector]:
    """The rules about runs of the systems that were read; by default those about trouble."""
    here = set(facts.entities["system"].unique())
    return [
        rule
        for rule in chosen_detectors(asked, "report")
        if (asked is not None or rule.question in TROUBLE)
        and "session" in rule.entity_types
        and (rule.system is None or rule.system in here)
    ]


def _verdicts(detections: pl.DataFrame, rules: Sequence[Detector]) -> pl.DataFrame:
    """What each detector said of how many, the loudest first."""
    titles = {rule.name: rule.entry.known_as or rule.name for rule in rules}
    words = {rule.name: rule.entry.rule for rule in rules}
    counted = detections.group_by("detector").agg(
        n_covered=pl.col("covered").sum().cast(pl.Int64),
        n_flagged=pl.col("fires").sum().cast(pl.Int64),
        label=pl.col("label").drop_nulls().mode().sort().first(),
    )
    return counted.with_columns(
        known_as=pl.col("detector").replace(titles), rule=pl.col("detector").replace(words)
    ).sort("n_flagged", "detector", descending=[True, False])


def _cause(row: Plain) -> Plain:
    kept = ("a", "b", "label_a", "n_a", "n_b", "cause", "n", "words", "is_same_page")
    return {name: row[name] for name in kept}


def _pairs(detections: Detections, names: list[str]) -> list[Plain]:
    """How each two of these detectors agree."""
    shown = [name for name in detections.names if name in names]
    if len(shown) < 2:
        return []
    few = replace(detections, **{kind: getattr(detections, kind).select(shown) for kind in ANSWERS})
    pairs = agreement(few, n_resamples=0).pairs
    return plain_rows(pairs, ["a", "b", "n", "n_both", "n_only_a", "n_only_b", "n_neither"])


def _all_agree(n_loud: int, n_asked: int, n_open: int) -> str:
    if not n_loud:
        return (
            f"None of {count(n_asked, 'detector')} calls any of {count(n_open, 'open run')} "
            "stale, stuck, slow or dead."
        )
    if n_loud == 1:
        return "Only one detector looks at the open runs that it flags."
    return f"The {number(n_loud)} detectors that flag an open run flag the same ones."


SECTION = Section("detectors", "Detectors", summarize_detectors, place=90)

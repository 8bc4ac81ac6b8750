"""Do the detectors agree: the worst contradiction in a sentence, then each verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from stateanalytics.core.facts import Facts, changed_facts
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.words import say
from stateanalytics.detectors.catalogue import Chosen, Detector, chosen_detectors, titles
from stateanalytics.detectors.comparing import agreement, disagreements
from stateanalytics.detectors.detections import ANSWERS, Detections, detect
from stateanalytics.reporting.material import Material, Plain, Section, plain_rows

N_CAUSES, N_IN_CHART = 8, 10
FEWEST_DRAWN = 20
"""The fewest open runs for a chart of detectors; with fewer, their table shows more."""
TROUBLE = ("stale", "stuck", "slow", "dead")
_CAUSE = ("a", "b", "label_a", "n_a", "n_b", "cause", "n", "words", "is_same_page",
          "title_a", "title_b")  # fmt: skip


def summarize_detectors(material: Material) -> Plain:
    """Every rule that calls an open run stale, stuck, slow or dead, and where rules differ."""
    facts = _open_only(material)
    rules = _rules(facts, material.detectors)
    n_open = facts.entities.height
    if not rules or not n_open:
        return _nothing()
    open_ones = facts.entities.lazy().select(ENTITY_KEY)
    judged = material.states.lazy().join(open_ones, on=ENTITY_KEY, how="semi").collect()
    detections = detect(facts, detectors=rules, states=judged)
    verdicts = _verdicts(detections.rows, rules)
    both = pl.col("a", "b").replace(titles()).name.prefix("title_")
    differences = disagreements(detections, detectors=rules)
    flagging = verdicts.filter(pl.col("n_flagged") > 0)
    drawn = flagging["detector"].head(N_IN_CHART).to_list() if n_open >= FEWEST_DRAWN else []
    return {
        "finding": differences.worst or _all_agree(flagging.height, len(rules), n_open),
        "denominator": say("detectors.counted"),
        "n_open": n_open,
        "n_detectors": len(rules),
        "n_disagreements": differences.rows.height,
        "causes": plain_rows(differences.causes.head(N_CAUSES).with_columns(both), _CAUSE),
        "n_causes": differences.causes.height,
        "said": plain_rows(flagging.head(N_IN_CHART)),
        "n_silent": verdicts.height - flagging.height,
        "pairs": _pairs(detections, drawn),
    }


def _nothing() -> Plain:
    return {
        "finding": say("detectors.no_run"),
        "denominator": say("detectors.counted"),
        **dict.fromkeys(("n_open", "n_detectors", "n_disagreements", "n_causes", "n_silent"), 0),
        **{name: [] for name in ("causes", "said", "pairs")},
    }


def _open_only(material: Material) -> Facts:
    """The facts of the open runs: no rule about trouble looks at work that has ended."""
    whole = material.facts
    runs = material.open_runs.lazy()
    run_key = ["source", "system", "entity_id"]
    keys = {"entities": ENTITY_KEY, "transitions": ENTITY_KEY, "events": run_key}
    kept = {
        name: getattr(whole, name).lazy().join(runs.select(key), on=key, how="semi").collect()
        for name, key in keys.items()
    }
    return changed_facts(whole, **kept)


def _rules(facts: Facts, asked: Chosen | None) -> list[Detector]:
    """The rules about runs of the systems that were read; by default those about trouble."""
    systems_read = set(facts.entities["system"].unique())
    return [
        rule
        for rule in chosen_detectors(asked, "report")
        if (asked is not None or rule.question in TROUBLE)
        and "session" in rule.entity_types
        and (rule.system is None or rule.system in systems_read)
    ]


def _verdicts(detections: pl.DataFrame, rules: Sequence[Detector]) -> pl.DataFrame:
    """How many runs each detector covers and flags, those that flag most first."""
    numbers = {rule.name: rule.entry.known_as or rule.name for rule in rules}
    words = {rule.name: rule.entry.rule for rule in rules}
    rows = detections.lazy()
    counted = rows.group_by("detector").agg(
        n_covered=pl.col("covered").sum().cast(pl.Int64),
        n_flagged=pl.col("fires").sum().cast(pl.Int64),
        label=pl.col("label").drop_nulls().mode().sort().first(),
    )
    known_as, rule = (pl.col("detector").replace(by_name) for by_name in (numbers, words))
    title = pl.col("detector").replace(titles())
    named = counted.with_columns(known_as=known_as, rule=rule, title=title)
    return named.sort("n_flagged", "detector", descending=[True, False]).collect()


def _pairs(detections: Detections, names: list[str]) -> list[Plain]:
    """Agreement of each pair of these detectors."""
    shown = [name for name in detections.names if name in names]
    if len(shown) < 2:
        return []
    of_shown = {kind: getattr(detections, kind).select(shown) for kind in ANSWERS}
    pairs = agreement(replace(detections, **of_shown), n_resamples=0).pairs
    return plain_rows(pairs, ["a", "b", "n", "n_both", "n_only_a", "n_only_b", "n_neither"])


def _all_agree(n_flagging: int, n_detectors: int, n_open: int) -> str:
    if not n_flagging:
        return say("detectors.none", n=n_detectors, n_open=n_open)
    return say("detectors.one" if n_flagging == 1 else "detectors.agree", n=n_flagging)


SECTION = Section("detectors", "Detectors", summarize_detectors, place=90, needs=("n_open",))

"""How long runs took, and which of these durations are only lower bounds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl

from stateanalytics.core.joins import collected
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.windows import instant
from stateanalytics.core.words import count, how_long, say, share
from stateanalytics.reporting.changes import LIMITS, against_its_past
from stateanalytics.reporting.material import Material, Plain, Section, plain_rows, tally
from stateanalytics.state.definitions import ENDINGS, LEFT_OUT_OF_DURATIONS, RUN, nouns_of
from stateanalytics.survival.comparison import reversals
from stateanalytics.survival.incidence import never_ending
from stateanalytics.survival.jackknife import with_known_units
from stateanalytics.survival.occupancy import state_occupancy, stretches_of
from stateanalytics.survival.run_spells import RUN_COLUMNS, count_spells, spells, to_completion
from stateanalytics.systems import all_systems
from stateanalytics.weekly import median_times

N_KINDS_SHOWN = 12
N_MODELS_COMPARED = 6
MOST_STRETCHES = 20_000
LEAST_SHARE = 0.05
"""Rarer states are not named."""
CUT_OFF_BY = {
    "time_limit": "their time limit ended them",
    "as_of": "they are still running",
    "last_activity": "they fell silent, and are counted up to their last activity",
    "window_end": "they continued after the window",
}


def summarize_durations(material: Material) -> Plain:
    """Histogram of the durations of runs that started in the window, by how they ended."""
    runs = spells(material.facts, window=material.window, rows=material.ever)
    kept = runs.filter(pl.col("left_out").is_null())
    steps, nouns = count_spells(runs), nouns_of(kept)
    n_by, left_out = tally(kept, "cut_off_by"), tally(runs, "left_out")
    cut_off = [{"by": by, "meaning": why, "n": n_by.get(by, 0)} for by, why in CUT_OFF_BY.items()]
    return {
        "finding": _finding(kept, material.policy.slow_after_s, nouns),
        "denominator": _denominator(kept, nouns[1]),
        "nouns": nouns[1],
        "n": kept.height,
        "n_runs": kept.n_unique(ENTITY_KEY),
        "slow_after_s": material.policy.slow_after_s,
        "slow_after": how_long(material.policy.slow_after_s),
        "steps": plain_rows(steps),
        "table": _table(steps),
        "by_kind": _by_kind(kept, material),
        "reversed": _reversed(kept),
        "in_between": _in_between(material),
        "cut_off": cut_off,
        "cut_off_in_words": _bounds(cut_off),
        "found_dead": _found_dead(kept),
        "left_out": [
            {"reason": name, "meaning": meaning, "n": n}
            for name, meaning in LEFT_OUT_OF_DURATIONS.items()
            if (n := left_out.get(name))
        ],
        "n_left_out": runs.height - kept.height,
    }


def _denominator(kept: pl.DataFrame, nouns: str) -> str:
    """The entities that were counted: sessions, or turns where sessions wait for people."""
    # A turn that crashed and was resumed has several attempts but is one turn.
    n_turns = Counter(kept[list(ENTITY_KEY)].unique()[["system", "entity_type"]].rows())
    counted = [
        say("durations.counted_parts", n=n, run_type=known.runs.entity_type, system=known.title)
        for known in all_systems()
        if known.runs.entity_type != RUN and (n := n_turns[known.name, known.runs.entity_type])
    ]
    return "; ".join([say("durations.counted", nouns=nouns), *counted])


def _finding(kept: pl.DataFrame, slow_after_s: float, nouns: tuple[str, str]) -> str:
    if kept.is_empty():
        return say("durations.none")
    n_ended = int(kept["ended"].sum())
    n_cut_off = kept.height - n_ended
    n_slow = int((kept["duration_s"] > slow_after_s).sum())
    n_runs = kept.n_unique(ENTITY_KEY)
    runs = count(n_runs, *nouns)
    if n_runs < kept.height:
        runs = say("durations.attempts", n=kept.height, runs=runs)
    name = "durations.slow" if n_slow else "durations.none_slow"
    return say(
        "durations.finding",
        runs=runs,
        ended=say("durations.ended" if n_ended else "durations.none_ended", n=n_ended),
        cut_off=say("durations.cut_off", n=n_cut_off) if n_cut_off else "",
        slow=say(name, n=n_slow, limit=slow_after_s),
    )


def _table(steps: pl.DataFrame) -> Plain:
    """The histogram as a table: rows are steps of duration, columns are endings."""
    endings = [ending for ending in ENDINGS if ending in steps["ending"].to_list()]
    counts = {(row["ending"], row["low_s"]): row["n"] for row in steps.iter_rows(named=True)}
    return {
        "columns": endings,
        "rows": [
            {"step": _step(low_s, high_s), "counts": [counts.get((e, low_s), 0) for e in endings]}
            for low_s, high_s in sorted(set(steps[["low_s", "high_s"]].rows()))
        ],
    }


def _step(low_s: float, high_s: float | None) -> str:
    if high_s is None:
        return say("durations.longest_step", low=low_s)
    return say("durations.step" if low_s else "durations.shortest_step", low=low_s, high=high_s)


def _by_kind(kept: pl.DataFrame, material: Material) -> Plain:
    limits = _limits_by_kind(material)
    followed = to_completion(kept, instant(min(material.window.until, material.facts.as_of)))
    endings = [ending for ending in ENDINGS if ending in kept["ending"].to_list()]
    medians = median_times(followed, ["kind"]).select(
        "kind", "n_units", median_s="value", median_low_s="lower", median_high_s="upper"
    )
    never = never_ending(kept, by="kind").select(
        "kind", never_share="share", never_low="share_low", never_high="share_high"
    )
    per_kind = collected(
        kept.lazy()
        .group_by("kind")
        .agg(
            *((pl.col("ending") == ending).sum().alias(ending) for ending in endings),
            n=pl.len(),
            shortest_s=pl.col("duration_s").min(),
            longest_s=pl.col("duration_s").max(),
        )
        .join(medians.lazy(), on="kind", how="left", nulls_equal=True)
        .join(never.lazy(), on="kind", how="left", nulls_equal=True)
        .sort(-pl.col("n").cast(pl.Int64), "kind", nulls_last=True)
    )
    return {
        "columns": endings,
        "unit": "invocation",
        "n_kinds": per_kind.height,
        "rows": [
            {
                **{name: value for name, value in row.items() if name not in endings},
                "counts": [row[ending] for ending in endings],
                "range": say("durations.range", low=row["shortest_s"], high=row["longest_s"]),
                "median": _median(row),
                "limits": limits.get(row["kind"]),
                "never": _never(row),
            }
            for row in per_kind.head(N_KINDS_SHOWN).iter_rows(named=True)
        ],
    }


def _limits_by_kind(material: Material) -> dict[str | None, Plain | None]:
    """The median of each kind, judged against its own earlier weeks."""
    of_kinds = material.times.lazy().filter(group_kind="kind").sort("week").pipe(collected)
    series = of_kinds.partition_by("group_id")
    alpha = LIMITS["time_to_complete_by_kind"] / max(len(series), 1)
    return {of_kind["group_id"][0]: against_its_past(of_kind, alpha) for of_kind in series}


def _median(row: dict[str, Any]) -> str:
    if row["median_s"] is None:
        return say("durations.no_median")
    low, high = (
        how_long(row[name], say("durations.no_median"), is_estimate=True)
        for name in ("median_low_s", "median_high_s")
    )
    name = "durations.median" if row["median_low_s"] is not None else "durations.median_alone"
    return say(name, median=row["median_s"], low=low, high=high)


def _never(row: dict[str, Any]) -> str:
    share_of_kind, low, high = (row[name] for name in ("never_share", "never_low", "never_high"))
    if share_of_kind is None:
        name = "durations.never_unknown" if high is None else "durations.never_at_most"
        return say(name, high=high)
    return say("durations.never", share=share_of_kind, ends=_ends(low, high))


def _ends(low: float | None, high: float | None) -> str:
    """An interval in brackets; empty where there are too few units for one."""
    return "" if low is None or high is None else f" ({100 * low:.0f} to {100 * high:.0f})"


def _in_between(material: Material) -> Plain:
    """States of the window's runs at a given age, and how many recovered from each."""
    at_s, window = material.policy.slow_after_s, material.window
    of_runs = material.ever[[name for name in material.ever.columns if name in RUN_COLUMNS]]
    ever = of_runs.filter(window.holds("started_at"))
    lives = stretches_of(material.facts, window=window, policy=material.policy, rows=ever)
    shares = state_occupancy(_sampled(lives), at_s=at_s).lazy().filter(pl.col("share") > 0)
    rows = plain_rows(shares.drop("duration_s").collect())
    return {
        "at_s": at_s,
        "unit": "invocation",
        "n_units": rows[0]["n_units"] if rows else 0,
        "rows": rows,
        "in_words": _states_after(rows, at_s),
    }


def _sampled(lives: pl.DataFrame) -> pl.DataFrame:
    """All stretches, or where they are very many, those of every nth invocation."""
    units = with_known_units(lives).lazy()
    step = 1 + lives.height // MOST_STRETCHES
    sample = units.select(pl.col("unit").drop_nulls().unique().sort().gather_every(step))
    return units.join(sample, on="unit", how="semi", maintain_order="left").collect()


def _states_after(rows: list[Plain], at_s: float) -> str:
    if not rows:
        return ""
    states = []
    for row in sorted(rows, key=lambda row: -row["share"]):
        if row["share"] < LEAST_SHARE:
            break
        recovered = ""
        if row["recover"] is not None:
            recovered = say("durations.recover", share=_with_ends(row, "recover"))
        states.append(f"{_with_ends(row, 'share')} {row['state'].replace('_', ' ')}{recovered}")
    return say("durations.after", at=at_s, states="; ".join(states), n=rows[0]["n_units"])


def _with_ends(row: Plain, name: str) -> str:
    return f"{share(row[name])}{_ends(row[f'{name}_low'], row[f'{name}_high'])}"


def _reversed(kept: pl.DataFrame) -> list[Plain]:
    """Models whose order is reversed once the mix of work is taken into account."""
    largest = sorted(tally(kept, "model").items(), key=lambda each: (-each[1], each[0]))
    models = [model for model, _ in largest[:N_MODELS_COMPARED]]
    rows = reversals(kept.filter(pl.col("model").is_in(models)), by="model")
    return [
        {
            **dict(zip(("raw", "adjusted"), pair["in_words"], strict=True)),
            "is_reversed": pair["is_reversed"][0],
        }
        for pair in rows.partition_by("value", "measure", maintain_order=True)
    ]


def _found_dead(kept: pl.DataFrame) -> Plain:
    """Runs with an estimated end: an observer found them dead some time after it."""
    widths_s = kept["end_width_s"].filter(kept["end_from"] == "last_activity")
    n, widest_s = widths_s.len(), widths_s.max()
    found = say("durations.found_dead", n=n, widest=widest_s) if n else ""
    return {"n": n, "widest_s": widest_s, "in_words": found}


def _bounds(cut_off: list[Plain]) -> str:
    parts = [
        say("durations.bound", n=part["n"], reason=part["meaning"]) for part in cut_off if part["n"]
    ]
    return say("durations.bounds", parts=parts) if parts else say("durations.no_bounds")


SECTION = Section("durations", "Durations", summarize_durations, place=100, needs=("n",))

"""What the thresholds should be: today's value, the best value and the evidence for it."""

from __future__ import annotations

import polars as pl

from stateanalytics.charts.thresholds import say_worksheet
from stateanalytics.core.words import how_long, listed, number, per_hundred, say
from stateanalytics.reporting.material import Material, Plain, Section, plain_rows
from stateanalytics.thresholds.advice import Advice, recommend
from stateanalytics.thresholds.choice import DIRECTIONS
from stateanalytics.thresholds.judge import SAID
from stateanalytics.thresholds.promises import VERDICTS, review

_DRAWN = ("name", "threshold_s", "mistakes", "mistake", "per", "is_today", "is_best")


def summarize_thresholds(material: Material) -> Plain:
    """Advice on every known threshold; the largest certain saving comes first.

    Notes
    -----
    The whole snapshot is used and not only the window, because tails need all the data. In a
    large fleet, a random sample of the sessions is used.
    """
    whole = material.whole
    advice = recommend(whole.facts, policy=whole.policy, rows=whole.ever)
    has_data = pl.col("verdict") != "not_enough_data"
    is_seen = (pl.col("n") > 0) | pl.col("borrowed_s").is_not_null()
    known = advice.frame.filter(has_data).sort(
        pl.col("verdict").replace_strict({name: place for place, name in enumerate(SAID)}),
        -(pl.col("gain_low") / pl.col("loss_today")),
        "name",
        nulls_last=True,
    )
    return {
        "finding": _finding(advice, known),
        "n_thresholds": advice.frame.height,
        "n_unknown": advice.frame.height - known.height,
        "n_sessions": advice.n_sessions,
        "n_sessions_drawn": advice.n_sessions_drawn,
        "costs": _costs(advice),
        "rows": [
            {
                **_row(row, "name", "setting", "n", "in_words", "is_mixed"),
                "recommended": how_long(row["recommended_s"]) if row["recommended_s"] else None,
                "verdict": SAID[row["verdict"]],
            }
            for row in plain_rows(known)
        ],
        # Too few data for advice, but what each value would cut is known, or borrowed.
        "undecided": [
            _row(row, "name", "in_words")
            for row in plain_rows(advice.frame.filter(~has_data, is_seen))
        ],
        "worksheet": _worksheet(advice, known),
        "review": _review(whole),
    }


def _row(row: Plain, *names: str) -> Plain:
    return {"today": how_long(row["today_s"], "none"), **{name: row[name] for name in names}}


def _finding(advice: Advice, known: pl.DataFrame) -> str:
    if advice.frame.is_empty():
        return say("thresholds.none")
    if known.is_empty():
        return say("thresholds.no_data")
    n_all = advice.frame.height
    rest = say("thresholds.rest", n=n_all - known.height, n_all=n_all)
    n_of = dict(known["verdict"].value_counts().iter_rows())
    better = [verdict for verdict in ("change", *DIRECTIONS) if verdict in n_of]
    if not better:
        n_unknown = n_of.get("cannot_tell", 0) + n_of.get("not_identified", 0)
        if "keep" not in n_of:
            return say("thresholds.unclear", n=n_unknown, rest=rest)
        return say("thresholds.keep", n=n_of["keep"], n_unknown=n_unknown, rest=rest)
    first = known.filter(pl.col("verdict").is_in(better)).row(0, named=True)
    return say(
        "thresholds.change",
        n=sum(n_of[verdict] for verdict in better),
        name=first["name"],
        today=first["today_s"],
        bound={"raise": "at least ", "lower": "at most "}.get(first["verdict"], ""),
        best=first["recommended_s"] or first["bound_s"],
        rest=rest,
    )


def _review(material: Material) -> Plain | None:
    """The effect of the limits that changed."""
    facts, policy = material.facts, material.policy
    changed = review(facts, policy=policy, rows=material.ever, elapsed=material.attempts)
    if changed.is_empty():
        return None
    n_of = dict(changed["verdict"].value_counts().iter_rows())
    verdicts = [f"{number(n_of[name])} {words}" for name, words in VERDICTS.items() if name in n_of]
    return {
        "finding": say("thresholds.review", n=changed["name"].n_unique(), verdicts=verdicts),
        "rows": [
            {**row, "verdict": VERDICTS[row["verdict"]]}
            for row in plain_rows(changed, ("name", "changed_at", "verdict", "in_words"))
        ],
    }


def _costs(advice: Advice) -> str:
    costs = advice.costs
    parts = {
        "a false alarm": costs.false_alarm,
        "an hour in which trouble goes unnoticed": costs.undetected_hour,
        "a run ended by mistake": costs.lost_run,
        "an hour of work": costs.run_hour,
    }
    return listed(f"{name} {per_hundred(cost)}" for name, cost in parts.items())


def _worksheet(advice: Advice, known: pl.DataFrame) -> Plain | None:
    """The curve behind the first row: the most certain change, or else the best known value."""
    if known.is_empty():
        return None
    name = known["name"][0]
    curve = advice.curves.filter(pl.col("name") == name)
    return {"name": name, "finding": say_worksheet(curve), "curve": plain_rows(curve, _DRAWN)}


SECTION = Section(
    "thresholds", "Thresholds", summarize_thresholds, place=110, needs=("n_thresholds",)
)

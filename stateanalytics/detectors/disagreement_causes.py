"""Why one detector flags what another does not: the cause, and the cause in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import polars as pl

from stateanalytics.detectors.wording import duration, since
from stateanalytics.systems.detector import Detector

CAUSES = MappingProxyType(
    {
        "scope": "one does not look at this row at all: other entities, another window",
        "construct": "they look at different things, such as silence and time since the start",
        "liveness": "one takes a process nobody saw for dead, the other does not",
        "input": "they read different columns for the same thing",
        "threshold": "their limits differ, and what they measured lies between",
        "strictness": "both stand exactly at the limit, where one fires and the other does not",
        "clock": "the same time, by clocks that count differently",
        "version": "they are two versions of one rule",
        "condition": "one asks for something else besides",
    }
)
"""Every cause of a disagreement, and what it means."""

# A row's last write stands for its last sign of life.
_SAME = {"write": "silence"}
_OF_LIVENESS = {
    "not asked": "does not ask for the process",
    "assumed": "takes every process for alive",
    "unknown is dead": "takes a process that nobody saw for dead",
    "unknown stays unknown": "goes by the silence of a process that nobody saw",
}
_SIDES = ("a", "b")
_TRAITS = {
    **dict.fromkeys(("detector", "short", "construct", "columns"), pl.String()),
    "strict": pl.Boolean(),
    "liveness": pl.String(),
    "upper_s": pl.Float64(),
    **dict.fromkeys(("clock", "version_of", "counts", "rule", "looks", "born"), pl.String()),
}


def traits(detectors: Sequence[Detector]) -> pl.DataFrame:
    """What causes are told from: one row a detector, nothing that depends on a row."""
    rows = [
        {
            "detector": one.name,
            "short": one.short,
            "construct": _SAME.get(one.construct, one.construct),
            "columns": ", ".join(one.compares),
            "strict": one.comparison == ">",
            "liveness": _OF_LIVENESS[one.liveness],
            "upper_s": one.upper_s,
            "clock": one.clock,
            "version_of": one.version_of or one.name,
            "counts": since(one.compares),
            "rule": one.rule or one.construct,
            "looks": one.scope_words or "other rows",
            "born": one.since or "its beginning",
        }
        for one in detectors
    ]
    return pl.DataFrame(rows, schema=_TRAITS)


def with_causes(pairs: pl.DataFrame, detectors: Sequence[Detector]) -> pl.DataFrame:
    """Add ``cause`` and ``words`` to pairs of answers.

    Parameters
    ----------
    pairs : polars.DataFrame
        ``a`` (fires) and ``b`` (does not), ``covered_b``, and for both
        ``measured_<side>_s`` and ``threshold_<side>_s``.
    detectors : sequence of Detector
        All that ``a`` and ``b`` name.

    Returns
    -------
    polars.DataFrame
        The same rows with the two columns.
    """
    known = traits(detectors)
    told = pairs
    for side in _SIDES:
        renamed = known.rename({name: f"{name}_{side}" for name in known.columns[1:]})
        told = told.join(
            renamed, left_on=side, right_on="detector", how="left", maintain_order="left"
        )
    added = told.with_columns(cause=_cause()).with_columns(words=_words())
    return added.select(*pairs.columns, "cause", "words")


def _cause() -> pl.Expr:
    """The first cause that holds; each asks what would have changed the answer of b."""
    measured_a, measured_b = pl.col("measured_a_s"), pl.col("measured_b_s")
    limit_a, limit_b = pl.col("threshold_a_s"), pl.col("threshold_b_s")
    is_version = pl.col("version_of_a") == pl.col("version_of_b")
    same_construct = pl.col("construct_a") == pl.col("construct_b")
    other_columns = pl.col("columns_a") != pl.col("columns_b")
    passed = _passes("a", measured_a, limit_a)
    with_limit_of_a = _passes("b", measured_b, limit_a)
    with_measure_of_a = _passes("b", measured_a, limit_b)
    at_limit = (measured_b == limit_b) & pl.col("strict_b") & ~pl.col("strict_a")
    is_alike = (measured_a - measured_b).abs() < 1
    takes_for_dead = (pl.col("liveness_a") == _OF_LIVENESS["unknown is dead"]) | (
        pl.col("liveness_b") == _OF_LIVENESS["assumed"]
    )
    other_liveness = takes_for_dead & (pl.col("liveness_a") != pl.col("liveness_b"))
    above = _passes("b", measured_b, limit_b) & (measured_b >= pl.col("upper_s_b"))
    straddled = (measured_a > limit_a) & (measured_b <= limit_b)
    rules: Mapping[str, pl.Expr] = {
        "scope": ~pl.col("covered_b"),
        # It did not fire for its measure, so it fired for what it made of the process.
        "liveness": other_liveness & same_construct & ~passed,
        "construct": ~same_construct & ~is_version,
        "strictness": at_limit & (limit_a <= limit_b) & is_alike,
        "threshold": (passed & (limit_a != limit_b) & with_limit_of_a) | above,
        "clock": is_alike & straddled & (pl.col("clock_a") != pl.col("clock_b")),
        "input": passed & other_columns & (with_measure_of_a | ~is_version),
        "version": is_version,
    }
    chosen = pl.coalesce(
        pl.when(holds.fill_null(value=False)).then(pl.lit(name)) for name, holds in rules.items()
    )
    return chosen.fill_null("condition")


def _passes(side: str, measured: pl.Expr, limit: pl.Expr) -> pl.Expr:
    """Would this measure be over this limit by the comparison of one side; null: no."""
    over = pl.when(pl.col(f"strict_{side}")).then(measured > limit).otherwise(measured >= limit)
    return over.fill_null(value=False)


def _words() -> pl.Expr:
    a, b = pl.col("short_a"), pl.col("short_b")
    counted = pl.format("{}, {}{}", _counted("a"), _counted("b"), _limits())
    measured = duration(pl.col("measured_b_s"))
    sentences = {
        "scope": pl.format("{}, {} only looks at {}", _counted("a"), b, "looks_b"),
        "liveness": pl.format("{} {}, {} {}; {}", a, "liveness_a", b, "liveness_b", counted),
        "strictness": pl.format("at exactly {} {} fires (>=), {} only past it (>)", measured, a, b),
        "clock": pl.format(
            "{}; {} by the clock of {}, {} of {}", counted, a, "clock_a", b, "clock_b"
        ),
        "version": pl.format(
            "{} is the rule of {}: {}; {} that of {}: {}",
            *(a, "born_a", "rule_a", b, "born_b", "rule_b"),
        ),
        "condition": pl.format("{}: {}; {}: {}", a, "rule_a", b, "rule_b"),
    }
    own = (
        pl.when(pl.col("cause") == cause).then(sentence) for cause, sentence in sentences.items()
    )
    return pl.coalesce(*own, counted)


def _counted(side: str) -> pl.Expr:
    """``B2 counts 9 h since start``; its rule, where it counts nothing in this row."""
    name, measured = pl.col(f"short_{side}"), pl.col(f"measured_{side}_s")
    counts = pl.col(f"counts_{side}")
    told = pl.format("{} counts {} {}", name, duration(measured), counts)
    asks = pl.format("{} asks: {}", name, f"rule_{side}")
    return pl.when(measured.is_not_null()).then(told).otherwise(asks)


def _limits() -> pl.Expr:
    """``(limits 60 min and 12 h)``; nothing where one of them compared nothing."""
    a, b = _limit("a"), _limit("b")
    compared = pl.all_horizontal(
        pl.col(f"{what}_{side}_s").is_not_null()
        for what in ("measured", "threshold")
        for side in _SIDES
    )
    one, two = pl.format(" (limit {})", a), pl.format(" (limits {} and {})", a, b)
    return pl.when(~compared).then(pl.lit("")).when(a == b).then(one).otherwise(two)


def _limit(side: str) -> pl.Expr:
    upper = pl.col(f"upper_s_{side}")
    own = duration(pl.col(f"threshold_{side}_s"))
    return (
        pl.when(upper.is_not_null())
        .then(pl.format("{} to {}", own, duration(upper)))
        .otherwise(own)
    )

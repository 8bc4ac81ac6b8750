"""Where detectors disagree, and why: per entity, in total, and in words."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import polars as pl

from stateanalytics.core.units import how_long_each
from stateanalytics.detectors.catalogue import registry, stood_together
from stateanalytics.detectors.detections import UNIT, Detections
from stateanalytics.detectors.frames import DISAGREEMENT_CAUSES, DISAGREEMENTS
from stateanalytics.detectors.judging import ANSWERS, since
from stateanalytics.errors import ArgumentError, did_you_mean
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
    **dict.fromkeys(("detector", "title", "construct", "columns"), pl.String()),
    "strict": pl.Boolean(),
    "liveness": pl.String(),
    "upper_s": pl.Float64(),
    **dict.fromkeys(("clock", "version_of", "counts", "rule", "looks", "born"), pl.String()),
}


def traits(detectors: Sequence[Detector]) -> pl.DataFrame:
    """Traits that causes follow from: one row a detector, nothing that depends on an entity."""
    rows = [
        {
            "detector": rule.name,
            "title": rule.title,
            "construct": _SAME.get(rule.construct, rule.construct),
            "columns": ", ".join(rule.compares),
            "strict": rule.comparison == ">",
            "liveness": _OF_LIVENESS[rule.liveness],
            "upper_s": rule.upper_s,
            "clock": rule.entry.clock,
            "version_of": rule.entry.version_of or rule.name,
            "counts": since(rule.compares),
            "rule": rule.entry.rule or rule.construct,
            "looks": rule.entry.scope_words or "other rows",
            "born": rule.entry.since or "its beginning",
        }
        for rule in detectors
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
    described = pairs
    for side in _SIDES:
        renamed = known.rename({name: f"{name}_{side}" for name in known.columns[1:]})
        described = described.join(
            renamed, left_on=side, right_on="detector", how="left", maintain_order="left"
        )
    added = described.with_columns(cause=_cause()).with_columns(words=_words())
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
    a, b = pl.col("title_a"), pl.col("title_b")
    counted = pl.format("{}, {}{}", _counted("a"), _counted("b"), _limits())
    measured = how_long_each(pl.col("measured_b_s"), "never")
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
    """``stuck (dashboard, 0.26.1) counts 9 h since start``; else its rule."""
    name, measured = pl.col(f"title_{side}"), pl.col(f"measured_{side}_s")
    counts = pl.col(f"counts_{side}")
    counted = pl.format("{} counts {} {}", name, how_long_each(measured, "never"), counts)
    asks = pl.format("{} asks: {}", name, f"rule_{side}")
    return pl.when(measured.is_not_null()).then(counted).otherwise(asks)


def _limits() -> pl.Expr:
    """``(limits 1 h and 12 h)``; nothing where one of them compared nothing."""
    a, b = _limit("a"), _limit("b")
    compared = pl.all_horizontal(
        pl.col(f"{what}_{side}_s").is_not_null()
        for what in ("measured", "threshold")
        for side in _SIDES
    )
    is_range = pl.any_horizontal(pl.col(f"upper_s_{side}").is_not_null() for side in _SIDES)
    comma = pl.when(is_range).then(pl.lit(",")).otherwise(pl.lit(""))
    shared, both = pl.format(" (limit {})", a), pl.format(" (limits {}{} and {})", a, comma, b)
    return pl.when(~compared).then(pl.lit("")).when(a == b).then(shared).otherwise(both)


def _limit(side: str) -> pl.Expr:
    upper = pl.col(f"upper_s_{side}")
    own = how_long_each(pl.col(f"threshold_{side}_s"), "never")
    return (
        pl.when(upper.is_not_null())
        .then(pl.format("from {} up to {}", own, how_long_each(upper, "never")))
        .otherwise(own)
    )


# They explain a difference, but it is no contradiction: nobody claims the opposite.
_MILD = ("scope", "version")
_TROUBLE = ("stale", "stuck", "slow", "dead")
_LEADING = "session"
"""What a rule must look at to be one about runs, which are what is asked about first."""
_PLACE = ("is_same_page", "_alike", "_of_runs")


@dataclass(frozen=True, repr=False)
class Disagreements:
    """Where detectors disagree.

    Attributes
    ----------
    rows : polars.DataFrame
        `frames.DISAGREEMENTS`: a row an entity that ``a`` flags and ``b`` does not.
    causes : polars.DataFrame
        `frames.DISAGREEMENT_CAUSES`: a row a pair and cause, the worst contradiction
        first: rules about runs, those that stood on one page, then by the number of entities.
    worst : str or None
        The worst contradiction in a sentence; None where all agree.
    """

    rows: pl.DataFrame
    causes: pl.DataFrame
    worst: str | None

    def __repr__(self) -> str:
        head = self.worst or "All detectors agree."
        return f"{head}\n{self.rows.height:,} disagreements. Next: .causes, .rows"

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in repr(self).splitlines())
        return lines + str(self.causes._repr_html_())


def disagreements(
    detections: Detections | pl.DataFrame, *, detectors: Iterable[Detector] = ()
) -> Disagreements:
    """Where one detector flags what another does not, each time with the cause.

    Parameters
    ----------
    detections : Detections or polars.DataFrame
        From `detect`, or their ``rows``.
    detectors : iterable of Detector
        Rules of your own that it holds; the known ones are known.

    Returns
    -------
    Disagreements
        Rows, their causes in total, and the worst one in a sentence.

    Raises
    ------
    MissingColumnsError
        If it is no frame of detections.
    ArgumentError
        If it holds a detector that nobody knows.

    Notes
    -----
    Cause by cause it is asked what would have turned the answer of the one that is silent:
    does it look at the row at all; did the other fire for what it made of the process; do
    they look at different things; would the other's limit, or the other's column, have
    made it fire too. What one of them cannot know is no disagreement. A detector that
    never looks at any row that the other one looks at does not disagree with it.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> from stateanalytics.detectors.detections import detect
    >>> where = disagreements(detect(demo(), detectors=["B2", "B4"]))
    >>> where.causes.select("label_a", "cause", "n", "n_a", "n_b").row(0)
    ('stuck', 'construct', 1, 4, 3)
    """
    asked = Detections.of(
        detections, "disagreements", ("session_id", "kind", *ANSWERS, "label", "measured_s")
    )
    known = _known(asked, detectors)
    rows = _rows(asked, known)
    causes = _causes(rows, asked, known)
    return Disagreements(rows, causes, _sentence(causes, known))


def _known(detections: Detections, own: Iterable[Detector]) -> dict[str, Detector]:
    known = {**registry(), **{detector.name: detector for detector in own}}
    for name in detections.names:
        if name not in known:
            raise ArgumentError(
                f"These detections hold a detector {name!r:.80} that is not known here.",
                "pass it along: disagreements(detections, detectors=[yours])"
                + did_you_mean(str(name), known),
            )
    return {name: known[name] for name in detections.names}


def _rows(detections: Detections, known: dict[str, Detector]) -> pl.DataFrame:
    # Where nobody flags anything, nobody disagrees: most units need no words.
    flagged = detections.fires.select(pl.any_horizontal(pl.all()).fill_null(value=False))
    told = detections.rows_of(flagged.to_series())
    fires = told.filter(pl.col("fires")).select(
        *UNIT,
        "session_id",
        "kind",
        a="detector",
        label_a="label",
        measured_a_s="measured_s",
        threshold_a_s="threshold_s",
    )
    silent = told.filter(pl.col("is_knowable"), ~pl.col("fires").fill_null(value=False)).select(
        *UNIT,
        b="detector",
        covered_b="covered",
        measured_b_s="measured_s",
        threshold_b_s="threshold_s",
    )
    pairs = (
        fires.join(silent, on=UNIT, how="inner", maintain_order="left_right")
        .join(_meet(detections), on=["a", "b"], how="semi")
        .with_columns(
            says_b=pl.when("covered_b").then(pl.lit("fine")).otherwise(pl.lit("does not look"))
        )
    )
    return DISAGREEMENTS.conform(with_causes(pairs, list(known.values())))


def _meet(detections: Detections) -> pl.DataFrame:
    """The pairs of detectors that both look at some row."""
    looked = (
        detections.covered.unique()
        .with_row_index(" kind")
        .unpivot(index=" kind", variable_name="a")
        .filter(pl.col("value").cast(pl.Boolean))
        .drop("value")
    )
    pairs = looked.join(looked.rename({"a": "b"}), on=" kind")
    return pairs.select("a", "b").unique().filter(pl.col("a") != pl.col("b"))


def _causes(rows: pl.DataFrame, detections: Detections, known: dict[str, Detector]) -> pl.DataFrame:
    flagged = (
        detections.fires.sum()
        .unpivot(variable_name="detector", value_name="n")
        .with_columns(pl.col("n").cast(pl.Int64))
    )
    far = (pl.col("measured_a_s") / pl.col("threshold_a_s")) / (
        pl.col("measured_b_s") / pl.col("threshold_b_s")
    )
    clearest = rows.sort(
        far,
        *UNIT,
        descending=[True, *(False for _ in UNIT)],
        nulls_last=True,
    )
    counted = clearest.group_by("a", "b", "cause", maintain_order=True).agg(
        label_a=pl.col("label_a").mode().sort().first(),
        n=pl.len().cast(pl.Int64),
        example_type=pl.col("entity_type").first(),
        example_id=pl.col("entity_id").first(),
        words=pl.col("words").first(),
    )
    pairs = counted.select("a", "b").unique(maintain_order=True)
    pages = pl.DataFrame(
        [(a, b, stood_together(known[a], known[b]), _answer_alike(known[a], known[b]),
          all(_LEADING in known[name].entity_types for name in (a, b)))
         for a, b in pairs.rows()],
        schema={"a": pl.String, "b": pl.String, **dict.fromkeys(_PLACE, pl.Boolean)},
        orient="row",
    )  # fmt: skip
    whole = (
        counted.join(pages, on=["a", "b"])
        .join(flagged.rename({"detector": "a", "n": "n_a"}), on="a")
        .join(flagged.rename({"detector": "b", "n": "n_b"}), on="b")
        .with_columns(n_pair=pl.col("n").sum().over("a", "b"), _mild=pl.col("cause").is_in(_MILD))
        .with_columns(share=pl.col("n") / pl.col("n_pair"))
    )
    order = ("_mild", "_of_runs", "is_same_page", "_alike", "n", "a", "b", "cause")
    falls = [name in (*_PLACE, "n") for name in order]
    return DISAGREEMENT_CAUSES.conform(whole.sort(*order, descending=falls))


def _answer_alike(a: Detector, b: Detector) -> bool:
    """Do both say by the clock that work is in trouble, so that only one can be right."""
    return all(rule.compares and rule.question in _TROUBLE for rule in (a, b))


def _sentence(causes: pl.DataFrame, known: dict[str, Detector]) -> str | None:
    """The first cause, in a sentence that needs no table beside it."""
    if causes.is_empty():
        return None
    first = causes.row(0, named=True)
    a, b = known[first["a"]], known[first["b"]]
    label_a, label_b = first["label_a"] or a.question, b.one_label or b.question
    if label_a == label_b:  # nothing is stuck and not stuck
        label_a, label_b = a.title, b.title
    if label_a == label_b:  # and two versions of one rule may be called alike
        label_a, label_b = a.name, b.name
    where = f"The {a.entry.page} says" if first["is_same_page"] else "Two detectors say"
    looks = "is" if first["n"] == 1 else "are"
    return (
        f"{where} {first['n_a']} {label_a} beside {first['n_b']} {label_b}; "
        f"{first['n']} {looks} {label_a} and not {label_b}: {first['words']}."
    )

"""Where detectors disagree, and why: per entity, and in total."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from stateanalytics.core import schema
from stateanalytics.detectors.catalogue import registry
from stateanalytics.detectors.disagreement_causes import with_causes
from stateanalytics.detectors.frames import DETECTIONS, DISAGREEMENT_CAUSES, DISAGREEMENTS
from stateanalytics.detectors.life_spans import stood_together
from stateanalytics.errors import ArgumentError, check_columns, did_you_mean
from stateanalytics.systems.detector import Detector

UNIT = [*schema.ENTITY_KEY, "at"]
# They explain a difference, but it is no contradiction: nobody claims the opposite.
_MILD = ("scope", "version")
_TROUBLE = ("stale", "stuck", "slow", "dead")


@dataclass(frozen=True, repr=False)
class Disagreements:
    """Where detectors disagree.

    Attributes
    ----------
    rows : polars.DataFrame
        `frames.DISAGREEMENTS`: a row an entity that ``a`` flags and ``b`` does not.
    causes : polars.DataFrame
        `frames.DISAGREEMENT_CAUSES`: a row a pair and cause, the worst contradiction
        first: rules that stood on one page, then by the number of entities.
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


def disagreements(detections: pl.DataFrame, *, detectors: Iterable[Detector] = ()) -> Disagreements:
    """Where one detector flags what another does not, each time with the cause.

    Parameters
    ----------
    detections : polars.DataFrame
        From `detect`.
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
    >>> found = disagreements(detect(demo(), detectors=["B2", "B4"]))
    >>> found.causes.select("label_a", "cause", "n", "n_a", "n_b").row(0)
    ('stuck', 'construct', 6, 11, 5)
    """
    needed = (*UNIT, *(name for name in DETECTIONS.dtypes.names() if name not in UNIT))
    check_columns(detections, needed, "disagreements")
    known = _known(detections, detectors)
    rows = _rows(detections, known)
    causes = _causes(rows, detections, known)
    return Disagreements(rows, causes, _sentence(causes, known))


def _known(detections: pl.DataFrame, own: Iterable[Detector]) -> dict[str, Detector]:
    known = {**registry(), **{one.name: one for one in own}}
    names = detections["detector"].unique(maintain_order=True).to_list()
    for name in names:
        if name not in known:
            raise ArgumentError(
                f"These detections hold a detector {name!r:.80} that is not known here.",
                "pass it along: disagreements(detections, detectors=[yours])"
                + did_you_mean(str(name), known),
            )
    return {name: known[name] for name in names}


def _rows(detections: pl.DataFrame, known: dict[str, Detector]) -> pl.DataFrame:
    fires = detections.filter(pl.col("fires")).select(
        *UNIT,
        "session_id",
        "kind",
        a="detector",
        label_a="label",
        measured_a_s="measured_s",
        threshold_a_s="threshold_s",
    )
    silent = detections.filter(
        pl.col("is_knowable"), ~pl.col("fires").fill_null(value=False)
    ).select(
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


def _meet(detections: pl.DataFrame) -> pl.DataFrame:
    """The pairs of detectors that both look at some row."""
    looked = detections.filter(pl.col("covered")).select(*UNIT, "detector")
    kinds = (
        looked.group_by(UNIT)
        .agg(pl.col("detector").unique().sort())
        .select("detector")
        .unique()
        .with_row_index("kind")
        .explode("detector")
    )
    return (
        kinds.join(kinds, on="kind")
        .select(a="detector", b="detector_right")
        .unique()
        .filter(pl.col("a") != pl.col("b"))
    )


def _causes(
    rows: pl.DataFrame, detections: pl.DataFrame, known: dict[str, Detector]
) -> pl.DataFrame:
    flagged = detections.group_by("detector").agg(n=pl.col("fires").sum().cast(pl.Int64))
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
        [(a, b, stood_together(known[a], known[b]), _answer_alike(known[a], known[b]))
         for a, b in pairs.rows()],
        schema={"a": pl.String, "b": pl.String, "is_same_page": pl.Boolean, "_alike": pl.Boolean},
        orient="row",
    )  # fmt: skip
    whole = (
        counted.join(pages, on=["a", "b"])
        .join(flagged.rename({"detector": "a", "n": "n_a"}), on="a")
        .join(flagged.rename({"detector": "b", "n": "n_b"}), on="b")
        .with_columns(n_pair=pl.col("n").sum().over("a", "b"), _mild=pl.col("cause").is_in(_MILD))
        .with_columns(share=pl.col("n") / pl.col("n_pair"))
    )
    order = ("_mild", "is_same_page", "_alike", "n", "a", "b", "cause")
    falls = [name in ("is_same_page", "_alike", "n") for name in order]
    return DISAGREEMENT_CAUSES.conform(whole.sort(*order, descending=falls))


def _answer_alike(a: Detector, b: Detector) -> bool:
    """Do both say by the clock that work is in trouble, so that only one can be right."""
    return all(one.compares and one.question in _TROUBLE for one in (a, b))


def _sentence(causes: pl.DataFrame, known: dict[str, Detector]) -> str | None:
    """The first cause, in a sentence that needs no table beside it."""
    if causes.is_empty():
        return None
    first = causes.row(0, named=True)
    a, b = known[first["a"]], known[first["b"]]
    said_a, said_b = first["label_a"] or a.question, _said(b)
    where = f"The {a.page} says" if first["is_same_page"] else "Two detectors say"
    looks = "is" if first["n"] == 1 else "are"
    return (
        f"{where} {first['n_a']} {said_a} ({a.short}) beside {first['n_b']} {said_b} "
        f"({b.short}); {first['n']} {looks} {said_a} and not {said_b}: {first['words']}."
    )


def _said(detector: Detector) -> str:
    if isinstance(detector.label, str) and detector.label:
        return detector.label
    return detector.question

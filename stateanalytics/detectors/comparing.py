"""How far detectors agree, which flag the same rows, and where and why they disagree."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import polars as pl

from stateanalytics.core.joins import collected, left_joined
from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.tables import as_html
from stateanalytics.core.text import as_written
from stateanalytics.core.words import count, how_long_each
from stateanalytics.detectors import frames
from stateanalytics.detectors.catalogue import registry, stood_together, titles
from stateanalytics.detectors.detections import ANSWERS, UNIT, Detections, since
from stateanalytics.errors import (
    ArgumentError,
    check_number,
    check_one_of,
    check_share,
    did_you_mean,
)
from stateanalytics.stats.agreement import (
    CELLS,
    cells_by_class,
    cochran_q,
    fleiss_kappa,
    intervals_of_cells,
    krippendorff_alpha,
    scored_tables,
)
from stateanalytics.systems.detector import Detector

CAUSES: Mapping[str, str] = {
    row["cause"]: row["meaning"] for row in table_rows("stateanalytics.detectors", "causes.csv")
}
"""Every cause of a disagreement, and its meaning."""

# A row's last write stands for its last sign of life.
_SAME = {"write": "silence"}
_OF_LIVENESS = {
    "not asked": "does not check the process",
    "assumed": "assumes that every process is alive",
    "unknown is dead": "treats a process that was not checked as dead",
    "unknown stays unknown": "judges a process that was not checked by its silence",
}
_SIDES = ("a", "b")
_TRAITS = {
    **dict.fromkeys(("detector", "title", "construct", "columns"), pl.String()),
    "strict": pl.Boolean(),
    "liveness": pl.String(),
    "upper_s": pl.Float64(),
    **dict.fromkeys(("clock", "version_of", "counts", "rule", "looks", "born"), pl.String()),
}

# They explain a difference that is no contradiction.
_MILD = ("scope", "version")
_TROUBLE = ("stale", "stuck", "slow", "dead")
_LEADING = "session"
"""Rules that look at this type are about runs, and come first."""
_PLACE = ("is_same_page", "_rivals", "_of_runs")
_CLUSTER, _TIMES = " cluster", " times"  # no detector is called so


@dataclass(frozen=True, repr=False)
class Agreement:
    """How far detectors agree.

    Attributes
    ----------
    pairs : polars.DataFrame
        `frames.AGREEMENT`: a row per pair, cross table first.
    overall : polars.DataFrame
        `frames.AGREEMENT_OVERALL`: one row, or one per group.
    """

    pairs: pl.DataFrame
    overall: pl.DataFrame

    def __repr__(self) -> str:
        n = max(self.overall["n_detectors"].to_list(), default=0)
        return f"Agreement of {n} detectors in {self.pairs.height} pairs. Next: .pairs, .overall"

    def _repr_html_(self) -> str:
        return as_written(f"<p>{html.escape(repr(self))}</p>{as_html(self.pairs)}")


def agreement(
    detections: Detections | pl.DataFrame,
    *,
    by: str | Sequence[str] = (),
    seed: int = 0,
    n_resamples: int = 1000,
    conf_level: float = 0.95,
) -> Agreement:
    """How well each pair of detectors agrees, and all of them together.

    Parameters
    ----------
    detections : Detections or polars.DataFrame
        Result of `detect`; for several instants, their concatenated ``rows``.
    by : str or sequence of str
        Compare within groups: ``kind``, ``system``, ``entity_type``, …
    seed : int
        Of the intervals.
    n_resamples : int
        Number of bootstrap samples of whole sessions; 0 for no intervals.
    conf_level : float
        Of the intervals, between 0 and 1.

    Returns
    -------
    Agreement
        ``pairs`` with the cross table, raw agreement, kappa, MCC, AC1 and PABAK with
        intervals, and McNemar's test; ``overall`` with Fleiss' kappa, Krippendorff's alpha and
        Cochran's Q. Both begin with the columns ``by``.

    Raises
    ------
    MissingColumnsError
        If it is no frame of detections.
    ArgumentError
        If a group is unknown, fewer than two detectors are in it, or an option makes no
        sense.

    Notes
    -----
    A unit is an entity at an instant. Where a detector does not cover a unit, or cannot
    know, the unit does not count for its pairs: it never counts as *fine*. Pairs without a
    common entity type are excluded. Read the cross table first: where almost nothing is
    flagged, kappa is low whatever the detectors do, so AC1 and PABAK are given as well.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> from stateanalytics.detectors.detections import detect
    >>> agreed = agreement(detect(demo(), detectors=["B2", "B4"]), n_resamples=200)
    >>> agreed.pairs.select("n", "n_both", "n_only_a", "n_only_b", "n_neither").row(0)
    (9, 3, 1, 0, 5)
    """
    groups = [by] if isinstance(by, str) else list(by)
    wide = Detections.of(detections, "agreement", ("session_id",))
    _check(wide, groups, n_resamples, conf_level)
    pairs, overall = [], []
    for key, part in _groups(wide, groups):
        by_pair, together = _agreement_of_group(
            part, seed=seed, n_resamples=n_resamples, conf_level=conf_level
        )
        key_columns = [
            pl.lit(value, wide.units.schema[name]).alias(name) for name, value in key.items()
        ]
        pairs.append(by_pair.select(*key_columns, pl.all()))
        overall.append(together.select(*key_columns, pl.all()))
    return Agreement(pl.concat(pairs), pl.concat(overall))


def _groups(
    detections: Detections, groups: list[str]
) -> Iterator[tuple[dict[str, object], Detections]]:
    """The detections of each group, sorted by it; all of them without groups."""
    if not groups:
        yield {}, detections
        return
    units = detections.units.select(groups)
    for key in units.unique().sort(groups).iter_rows(named=True):
        in_group = pl.all_horizontal(pl.col(name).eq_missing(key[name]) for name in groups)
        yield key, detections.filter(units.select(in_group).to_series())


def _check(
    detections: Detections, groups: Sequence[str], n_resamples: int, conf_level: float
) -> None:
    for name in groups:
        check_one_of(name, detections.units.columns, "column to group by")
    if len(detections.names) < 2:
        raise ArgumentError(
            f"Agreement needs at least two detectors; found {detections.names}.",
            'detect with several: sa.detectors.detect(snap, detectors=["B2", "B4"])',
            shell="name several: --detector B2 --detector B4",
        )
    check_number("n_resamples", n_resamples, 1000, is_whole=True)
    check_share("conf_level", conf_level, 0.95)


def _agreement_of_group(
    detections: Detections, *, seed: int, n_resamples: int, conf_level: float
) -> tuple[pl.DataFrame, pl.DataFrame]:
    names = [name for name, n in detections.covered.count().unpivot().iter_rows() if n]
    patterns = detections.fires.group_by(names).agg(pl.len().cast(pl.Int64).alias(_TIMES))
    if len(names) < 2:
        return frames.AGREEMENT.empty(), _overall(patterns, names)
    labels = detections.fires.select(names).with_columns(_sessions(detections.units))
    cells, members = cells_by_class(labels, list(combinations(names, 2)), _CLUSTER)
    scored = scored_tables(_tables(cells, _shared(detections)))
    intervals = intervals_of_cells(
        cells, members, n_resamples=n_resamples, conf_level=conf_level, seed=seed
    )
    whole = left_joined(scored, intervals, on=["a", "b"])
    return frames.AGREEMENT.conform(whole), _overall(patterns, names)


def _tables(cells: pl.DataFrame, shared: pl.DataFrame) -> pl.DataFrame:
    """The cross table of each pair that is ever about the same type, over all clusters."""
    size = pl.col("_size")
    totals = cells.group_by("a", "b").agg((pl.col(CELLS) * size).sum(), n_clusters=size.sum())
    return (
        left_joined(shared, totals, on=["a", "b"])
        .with_columns(pl.col(*CELLS, "n_clusters").fill_null(0))
        .with_columns(n_uncovered=pl.col("n_shared") - pl.col("n"))
    )


def _sessions(units: pl.DataFrame) -> pl.Series:
    """The session that each unit belongs to, wherever its id is used again."""
    key = ("source", "system", "session_id")
    return units.select(
        pl.concat_str(key, separator="\x1f", ignore_nulls=True).alias(_CLUSTER)
    ).to_series()


def _shared(detections: Detections) -> pl.DataFrame:
    """Of each pair: how many units both are about, whether they cover them or not."""
    kind = detections.units.select("system", "entity_type")
    about = (
        pl.concat([kind, detections.covered], how="horizontal")
        .group_by(kind.columns)
        .agg(pl.all().count().cast(pl.Int64))
        .unpivot(index=kind.columns, variable_name="a", value_name="n_shared")
        .filter(pl.col("n_shared") > 0)
    )
    order = pl.DataFrame(combinations(detections.names, 2), schema=["a", "b"], orient="row")
    both = about.join(about.select(*kind.columns, b="a"), on=kind.columns)
    sums = both.group_by("a", "b").agg(pl.col("n_shared").sum())
    return order.join(sums, on=["a", "b"], how="inner", maintain_order="left")


def _overall(patterns: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Agreement of all detectors, from the patterns of answers and their frequencies."""
    n_rated = sum((pl.col(name).is_not_null().cast(pl.Int64) for name in names), pl.lit(0))
    rated = patterns.filter(n_rated > 1)
    used = [name for name in names if rated[name].is_not_null().any()]
    row: dict[str, object] = {"n_units": rated[_TIMES].sum(), "n_detectors": len(used)}
    if len(used) > 1:
        complete = rated.drop_nulls(used)
        yes = sum(pl.col(name).cast(pl.Int64) for name in used)
        units = complete[
            complete.select(pl.int_range(pl.len()).repeat_by(_TIMES).list.explode()).to_series()
        ]
        q, df, p_value = cochran_q(units, used)
        row |= {
            "n_complete": units.height,
            "fleiss_kappa": fleiss_kappa(units.select(yes=yes, no=len(used) - yes)),
            "krippendorff_alpha": krippendorff_alpha(rated.select(names), times=rated[_TIMES]),
            "cochran_q": q,
            "cochran_df": df,
            "cochran_p": p_value,
        }
    return frames.AGREEMENT_OVERALL.conform(pl.DataFrame([{"n_complete": 0, **row}]))


def intersections(detections: Detections | pl.DataFrame, *, most: int = 12) -> pl.DataFrame:
    """Sets of detectors that flag the same rows, the largest set of rows first.

    Parameters
    ----------
    detections : Detections or polars.DataFrame
        Result of `detect`.
    most : int
        Number of sets to keep.

    Returns
    -------
    polars.DataFrame, shape (n_sets * n_detectors, 6)
        `INTERSECTIONS`: one row per set and detector. Detectors that flag nothing are excluded;
        sets of one size are sorted by name. A row that a detector cannot judge counts as not
        flagged by it: see ``covered``.

    Raises
    ------
    MissingColumnsError
        If it is no frame of detections.
    ArgumentError
        If ``most`` is below 1.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> from stateanalytics.detectors.detections import detect
    >>> sets = intersections(detect(demo(), detectors=["B2", "B4"]))
    >>> sets.filter("is_member").select("rank", "n", "detector").rows()[:2]
    [(1, 3, 'dashboard_stale_card'), (1, 3, 'dashboard_stuck_60m')]
    """
    wide = Detections.of(detections, "intersections")
    if most < 1:
        raise ArgumentError(f"most needs at least 1; found {most!r}.", "most=12")
    flagged = (
        wide.fires.with_row_index(" unit")
        .unpivot(index=" unit", variable_name="detector")
        .filter(pl.col("value").cast(pl.Boolean))
    )
    sets = (
        flagged.group_by(" unit")
        .agg(members=pl.col("detector").sort().str.join("\n"))
        .group_by("members")
        .agg(n=pl.len().cast(pl.Int64))
        .sort("n", "members", descending=[True, False])
        .head(most)
        .with_row_index("rank", offset=1)
    )
    alone = flagged.group_by("detector").agg(n_flagged=pl.len().cast(pl.Int64)).sort("detector")
    members = pl.col("members").str.split("\n")
    rows = sets.join(alone, how="cross", maintain_order="left_right").with_columns(
        is_member=members.list.contains(pl.col("detector")), n_members=members.list.len()
    )
    return frames.INTERSECTIONS.conform(rows)


@dataclass(frozen=True, repr=False)
class Disagreements:
    """Where detectors disagree.

    Attributes
    ----------
    rows : polars.DataFrame
        `frames.DISAGREEMENTS`: a row per entity that ``a`` flags and ``b`` does not.
    causes : polars.DataFrame
        `frames.DISAGREEMENT_CAUSES`: a row per pair and cause, the worst contradiction
        first: rules about runs, those that one page showed, then by the number of entities.
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
        return as_written(lines + as_html(self.causes))


def disagreements(
    detections: Detections | pl.DataFrame, *, detectors: Iterable[Detector] = ()
) -> Disagreements:
    """Entities that one detector flags and another does not, each with the cause.

    Parameters
    ----------
    detections : Detections or polars.DataFrame
        Result of `detect`, or its ``rows``.
    detectors : iterable of Detector
        Rules of your own among the detections.

    Returns
    -------
    Disagreements
        Rows, their causes in total, and the worst one in a sentence.

    Raises
    ------
    MissingColumnsError
        If it is no frame of detections.
    ArgumentError
        If it holds an unknown detector.

    Notes
    -----
    The cause is the first difference that would have changed the answer of the detector that did
    not fire: whether it covers the row; what the other one assumes about the process; whether they
    measure different things; the other's limit; the other's column. An answer that one of them
    cannot know is no disagreement, and neither are two detectors that never cover the same rows.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> from stateanalytics.detectors.detections import detect
    >>> where = disagreements(detect(demo(), detectors=["B2", "B4"]))
    >>> where.causes.select("label_a", "cause", "n", "n_a", "n_b").row(0)
    ('stuck', 'construct', 1, 4, 3)
    """
    wide = Detections.of(
        detections, "disagreements", ("session_id", "kind", *ANSWERS, "label", "measured_s")
    )
    known = _known(wide, detectors)
    rows = _disagreement_rows(wide, known)
    causes = _causes(rows, wide, known)
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


def _disagreement_rows(detections: Detections, known: dict[str, Detector]) -> pl.DataFrame:
    # Units that no detector flags have no disagreement: most need no reasons.
    flagged = detections.fires.select(pl.any_horizontal(pl.all()).fill_null(value=False))
    answered = detections.rows_of(flagged.to_series()).lazy()
    fires = answered.filter(pl.col("fires")).select(
        *(*UNIT, "session_id", "kind"),
        a="detector",
        label_a="label",
        measured_a_s="measured_s",
        threshold_a_s="threshold_s",
    )
    silent = answered.filter(pl.col("is_knowable"), ~pl.col("fires").fill_null(value=False)).select(
        *UNIT,
        b="detector",
        covered_b="covered",
        measured_b_s="measured_s",
        threshold_b_s="threshold_s",
    )
    pairs = collected(
        fires.join(silent, on=UNIT, how="inner", maintain_order="left_right")
        .join(_overlapping(detections).lazy(), on=["a", "b"], how="semi")
        .with_columns(
            says_b=pl.when("covered_b").then(pl.lit("fine")).otherwise(pl.lit("does not look"))
        )
    )
    return frames.DISAGREEMENTS.conform(_with_causes(pairs, list(known.values())))


def _overlapping(detections: Detections) -> pl.DataFrame:
    """The pairs of detectors that both look at some row."""
    covered = (
        detections.covered.unique()
        .lazy()
        .with_row_index(" kind")
        .unpivot(index=" kind", variable_name="a")
        .filter(pl.col("value").cast(pl.Boolean))
        .drop("value")
    )
    pairs = covered.join(covered.rename({"a": "b"}), on=" kind")
    return pairs.select("a", "b").unique().filter(pl.col("a") != pl.col("b")).pipe(collected)


def _causes(rows: pl.DataFrame, detections: Detections, known: dict[str, Detector]) -> pl.DataFrame:
    flagged = (
        detections.fires.lazy()
        .sum()
        .unpivot(variable_name="detector", value_name="n")
        .with_columns(pl.col("n").cast(pl.Int64))
    )
    contrast = (pl.col("measured_a_s") / pl.col("threshold_a_s")) / (
        pl.col("measured_b_s") / pl.col("threshold_b_s")
    )
    by_contrast = rows.lazy().sort(
        contrast, *UNIT, descending=[True, *(False for _ in UNIT)], nulls_last=True
    )
    counted = collected(
        by_contrast.group_by("a", "b", "cause", maintain_order=True).agg(
            label_a=pl.col("label_a").mode().sort().first(),
            n=pl.len().cast(pl.Int64),
            example_type=pl.col("entity_type").first(),
            example_id=pl.col("entity_id").first(),
            words=pl.col("words").first(),
        )
    )
    pairs = counted[["a", "b"]].unique(maintain_order=True)
    pages = pl.LazyFrame(
        [(a, b, stood_together(known[a], known[b]), _are_rivals(known[a], known[b]),
          all(_LEADING in known[name].entity_types for name in (a, b)))
         for a, b in pairs.rows()],
        schema={"a": pl.String, "b": pl.String, **dict.fromkeys(_PLACE, pl.Boolean)},
        orient="row",
    )  # fmt: skip
    whole = (
        counted.lazy()
        .join(pages, on=["a", "b"])
        .join(flagged.rename({"detector": "a", "n": "n_a"}), on="a")
        .join(flagged.rename({"detector": "b", "n": "n_b"}), on="b")
        .with_columns(n_pair=pl.col("n").sum().over("a", "b"), _mild=pl.col("cause").is_in(_MILD))
        .with_columns(share=pl.col("n") / pl.col("n_pair"))
    )
    order = ("_mild", "_of_runs", "is_same_page", "_rivals", "n", "a", "b", "cause")
    falls = [name in (*_PLACE, "n") for name in order]
    return frames.DISAGREEMENT_CAUSES.conform(whole.sort(*order, descending=falls).pipe(collected))


def _are_rivals(a: Detector, b: Detector) -> bool:
    """Whether both judge by the clock that work is in trouble, so that only one can be right."""
    return all(rule.compares and rule.question in _TROUBLE for rule in (a, b))


def _sentence(causes: pl.DataFrame, known: dict[str, Detector]) -> str | None:
    """The first cause, in a sentence that can be read without the table."""
    if causes.is_empty():
        return None
    first = causes.row(0, named=True)
    a, b = known[first["a"]], known[first["b"]]
    label_a, label_b = first["label_a"] or a.question, b.one_label or b.question
    n, kind = first["n"], first["example_type"] or "row"
    verb, them = ("is", "it") if n == 1 else ("are", "them")
    where = ": " if n == 1 else ". For one of them, "
    if first["is_same_page"] and label_a != label_b:
        known_as = (
            f"The {a.entry.page} shows {first['n_a']} {label_a} and {first['n_b']} {label_b}; "
            f"{n} {verb} {label_a} and not {label_b}"
        )
    else:
        noun = "run" if kind == _LEADING else kind.replace("_", " ")
        things = count(n, noun, f"{noun}es" if noun.endswith("ch") else "")
        # Nothing is stuck and not stuck.
        one, other = "only one", ""
        if label_a != label_b:
            one, other = "one", f", the other does not call {them} {label_b}"
        known_as = f"Two rules disagree about {things}; {one} calls {them} {label_a}{other}"
    return f"{known_as}{where}{first['words']}."


def _traits(detectors: Sequence[Detector]) -> pl.DataFrame:
    """The traits of detectors that causes follow from: one row per detector."""
    rows = [
        {
            "detector": rule.name,
            "title": titles().get(rule.name, rule.title),
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


def _with_causes(pairs: pl.DataFrame, detectors: Sequence[Detector]) -> pl.DataFrame:
    """Add ``cause`` and ``words`` to pairs of answers: ``a`` fires, ``b`` does not."""
    known, described = _traits(detectors).lazy(), pairs.lazy()
    for side in _SIDES:
        renamed = known.select("detector", pl.exclude("detector").name.suffix(f"_{side}"))
        described = described.join(
            renamed, left_on=side, right_on="detector", how="left", maintain_order="left"
        )
    # Written once: each takes a page of expressions, and many sentences name it.
    lengths = ("measured_{}_s", "threshold_{}_s", "upper_s_{}")
    named = [length.format(side) for length in lengths for side in _SIDES]
    said = {f"said_{name}": how_long_each(name, "never") for name in named}
    added = described.with_columns(cause=_cause(), **said).with_columns(words=_words())
    return added.select(*pairs.columns, "cause", "words").pipe(collected)


def _cause() -> pl.Expr:
    """The first cause that holds: a difference that would have changed the answer of b."""
    measured_a, measured_b = pl.col("measured_a_s"), pl.col("measured_b_s")
    limit_a, limit_b = pl.col("threshold_a_s"), pl.col("threshold_b_s")
    is_version = pl.col("version_of_a") == pl.col("version_of_b")
    same_construct = pl.col("construct_a") == pl.col("construct_b")
    other_columns = pl.col("columns_a") != pl.col("columns_b")
    passed = _passes("a", measured_a, limit_a)
    with_limit_of_a = _passes("b", measured_b, limit_a)
    with_measure_of_a = _passes("b", measured_a, limit_b)
    at_limit = (measured_b == limit_b) & pl.col("strict_b") & ~pl.col("strict_a")
    is_equal = (measured_a - measured_b).abs() < 1
    takes_for_dead = (pl.col("liveness_a") == _OF_LIVENESS["unknown is dead"]) | (
        pl.col("liveness_b") == _OF_LIVENESS["assumed"]
    )
    other_liveness = takes_for_dead & (pl.col("liveness_a") != pl.col("liveness_b"))
    # What passes the own limit of b is silent for another reason than its limit or column.
    own_passed = _passes("b", measured_b, limit_b)
    above = own_passed & (measured_b >= pl.col("upper_s_b"))
    straddled = (measured_a > limit_a) & (measured_b <= limit_b)
    rules: Mapping[str, pl.Expr] = {
        "scope": ~pl.col("covered_b"),
        # Not for its measure, so it fired for what it assumes about the process.
        "liveness": other_liveness & same_construct & ~passed,
        "construct": ~same_construct & ~is_version,
        "strictness": at_limit & (limit_a <= limit_b) & is_equal,
        "threshold": (passed & ~own_passed & (limit_a != limit_b) & with_limit_of_a) | above,
        "clock": is_equal & straddled & (pl.col("clock_a") != pl.col("clock_b")),
        "input": passed & ~own_passed & other_columns & (with_measure_of_a | ~is_version),
        "version": is_version,
    }
    chosen = pl.coalesce(
        pl.when(holds.fill_null(value=False)).then(pl.lit(name)) for name, holds in rules.items()
    )
    return chosen.fill_null("condition")


def _passes(side: str, measured: pl.Expr, limit: pl.Expr) -> pl.Expr:
    """Whether a measure exceeds a limit by the comparison of one side; null: no."""
    over = pl.when(pl.col(f"strict_{side}")).then(measured > limit).otherwise(measured >= limit)
    return over.fill_null(value=False)


def _words() -> pl.Expr:
    a, b = pl.col("title_a"), pl.col("title_b")
    counted = pl.format("{}, {}{}", _counted("a"), _counted("b"), _limits())
    measured = pl.col("said_measured_b_s")
    sentences = {
        "scope": pl.format("{}, {} only covers {}", _counted("a"), b, "looks_b"),
        "liveness": pl.format("{} {}, {} {}; {}", a, "liveness_a", b, "liveness_b", counted),
        "strictness": pl.format("at exactly {} {} fires (>=), {} only past it (>)", measured, a, b),
        "clock": pl.format(
            "{}; {} by the clock of {}, {} of {}", counted, a, "clock_a", b, "clock_b"
        ),
        "version": pl.format(
            "{} is the rule of {}: {}; {} that of {}: {}",
            *(a, "born_a", "rule_a", b, "born_b", "rule_b"),
        ),
        "condition": pl.format("the rule of {} is “{}”, that of {} “{}”", a, "rule_a", b, "rule_b"),
    }
    own = (
        pl.when(pl.col("cause") == cause).then(sentence) for cause, sentence in sentences.items()
    )
    return pl.coalesce(*own, counted)


def _counted(side: str) -> pl.Expr:
    """``stuck (dashboard, 0.26.1) counts 9 h since start``; else its rule."""
    name, measured = pl.col(f"title_{side}"), pl.col(f"measured_{side}_s")
    counts = pl.col(f"counts_{side}")
    counted = pl.format("{} counts {} {}", name, f"said_measured_{side}_s", counts)
    rule = pl.format("{} fires for “{}”", name, f"rule_{side}")
    return pl.when(measured.is_not_null()).then(counted).otherwise(rule)


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
    own = pl.col(f"said_threshold_{side}_s")
    return (
        pl.when(upper.is_not_null())
        .then(pl.format("from {} up to {}", own, f"said_upper_s_{side}"))
        .otherwise(own)
    )

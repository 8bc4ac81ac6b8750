"""How far detectors agree, each pair and all together, and which flag the same rows."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.schema import INTEGER, TEXT, YES_NO, Column
from stateanalytics.detectors.frames import AGREEMENT, AGREEMENT_OVERALL, DETECTIONS
from stateanalytics.errors import (
    ArgumentError,
    check_columns,
    check_share,
    did_you_mean,
)
from stateanalytics.stats.agreement import (
    cochran_q,
    fleiss_kappa,
    krippendorff_alpha,
    pairwise_agreement,
)
from stateanalytics.stats.bootstrap import cluster_intervals

UNIT = [*schema.ENTITY_KEY, "at"]
_CLUSTER = "cluster"
_ANSWERS = ("detector", "covered", "fires", "is_knowable", "label", "measured_s", "threshold_s")
_TEXTS = ("input", "why")


@dataclass(frozen=True, repr=False)
class Agreement:
    """How far detectors agree.

    Attributes
    ----------
    pairs : polars.DataFrame
        `frames.AGREEMENT`: a row a pair, cross table first.
    overall : polars.DataFrame
        `frames.AGREEMENT_OVERALL`: one row, or one a group.
    """

    pairs: pl.DataFrame
    overall: pl.DataFrame

    def __repr__(self) -> str:
        n = max(self.overall["n_detectors"].to_list(), default=0)
        return f"Agreement of {n} detectors in {self.pairs.height} pairs. Next: .pairs, .overall"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>" + str(self.pairs._repr_html_())


def agreement(
    detections: pl.DataFrame,
    *,
    by: str | Sequence[str] = (),
    seed: int = 0,
    n_resamples: int = 1000,
    conf_level: float = 0.95,
) -> Agreement:
    """How far each pair of detectors agrees, and all of them together.

    Parameters
    ----------
    detections : polars.DataFrame
        From `detect`; of several instants, put below each other.
    by : str or sequence of str
        Compare within groups: ``kind``, ``system``, ``entity_type``, …
    seed : int
        Of the intervals.
    n_resamples : int
        How often whole sessions are drawn for them; 0 for none.
    conf_level : float
        Of the intervals, between 0 and 1.

    Returns
    -------
    Agreement
        ``pairs`` with the cross table, raw agreement, kappa, AC1 and PABAK with intervals,
        and McNemar's test; ``overall`` with Fleiss' kappa, Krippendorff's alpha and
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
    know, the unit does not count for its pairs: it never counts as *fine*. Pairs that are
    never about the same type of entity are left out. Read the cross table first: where
    almost nothing is flagged kappa is low whatever the detectors do, so AC1 and PABAK
    stand beside it.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> from stateanalytics.detectors.detections import detect
    >>> agreed = agreement(detect(demo(), detectors=["B2", "B4"]), n_resamples=200)
    >>> agreed.pairs.select("n", "n_both", "n_only_a", "n_only_b", "n_neither").row(0)
    (18, 5, 6, 0, 7)
    """
    groups = [by] if isinstance(by, str) else list(by)
    _check(detections, groups, n_resamples, conf_level)
    pairs, overall = [], []
    for key, part in _pieces(detections, groups):
        compared, together = _of_group(
            part, seed=seed, n_resamples=n_resamples, conf_level=conf_level
        )
        key_columns = [
            pl.lit(value, detections.schema[name]).alias(name) for name, value in key.items()
        ]
        pairs.append(compared.select(*key_columns, pl.all()))
        overall.append(together.select(*key_columns, pl.all()))
    return Agreement(pl.concat(pairs), pl.concat(overall))


def _pieces(
    detections: pl.DataFrame, groups: list[str]
) -> Iterator[tuple[dict[str, object], pl.DataFrame]]:
    """The detections of each group, sorted by it; all of them without groups."""
    if not groups:
        yield {}, detections
        return
    for key, part in detections.sort(groups, maintain_order=True).group_by(
        groups, maintain_order=True
    ):
        yield dict(zip(groups, key, strict=True)), part


def _check(
    detections: pl.DataFrame, groups: Sequence[str], n_resamples: int, conf_level: float
) -> None:
    check_columns(detections, (*UNIT, "session_id", "detector", "fires"), "agreement")
    there = detections.columns
    allowed = [name for name in DETECTIONS.dtypes.names() if name not in (*_ANSWERS, *_TEXTS)]
    for name in groups:
        if name not in there or name in (*_ANSWERS, *_TEXTS):
            raise ArgumentError(
                f"agreement compares within groups of {', '.join(allowed)}; found {name!r:.60}.",
                'by="kind"' + did_you_mean(str(name), allowed),
            )
    if detections["detector"].n_unique() < 2:
        names = detections["detector"].unique().to_list()
        raise ArgumentError(
            f"Agreement needs at least two detectors; found {names}.",
            'detect with several: sa.detectors.detect(snap, detectors=["B2", "B4"])',
            shell="name several: --detector B2 --detector B4",
        )
    if not isinstance(n_resamples, int) or n_resamples < 0:
        raise ArgumentError(
            f"n_resamples needs a whole number, zero or more; found {n_resamples!r:.40}.",
            "n_resamples=1000",
        )
    check_share("conf_level", conf_level, 0.95)


def _of_group(
    detections: pl.DataFrame, *, seed: int, n_resamples: int, conf_level: float
) -> tuple[pl.DataFrame, pl.DataFrame]:
    names = detections["detector"].unique(maintain_order=True).to_list()
    labels = _labels(detections)
    if len(names) < 2:
        return AGREEMENT.empty(), _overall(labels, names)
    shared = _shared(detections)
    scored = pairwise_agreement(labels, names, conf_level).drop("n_uncovered")
    pairs = scored.join(shared, on=["a", "b"], how="inner", maintain_order="left").with_columns(
        n_uncovered=pl.col("n_shared") - pl.col("n")
    )
    intervals = cluster_intervals(
        labels,
        pairs.filter(pl.col("n") > 0).select("a", "b").rows(),
        _CLUSTER,
        n_resamples=n_resamples,
        conf_level=conf_level,
        seed=seed,
    )
    whole = pairs.drop("kappa_low", "kappa_high").join(
        intervals, on=["a", "b"], how="left", maintain_order="left"
    )
    n_clusters = _clusters(labels, whole)
    return AGREEMENT.conform(whole.with_columns(n_clusters)), _overall(labels, names)


def _labels(detections: pl.DataFrame) -> pl.DataFrame:
    """A row a unit, a Boolean column a detector, and the session it belongs to."""
    wide = detections.pivot(
        on="detector",
        index=[*UNIT, "session_id"],
        values="fires",
        aggregate_function="first",
        maintain_order=True,
    )
    session = pl.concat_str("source", "system", "session_id", separator="\x1f", ignore_nulls=True)
    return wide.with_columns(session.alias(_CLUSTER))


def _shared(detections: pl.DataFrame) -> pl.DataFrame:
    """Of each pair: how many units both are about, whether they cover them or not."""
    about = detections.group_by("system", "entity_type", "detector", maintain_order=True).agg(
        n_shared=pl.len().cast(pl.Int64)
    )
    return (
        about.join(
            about.select("system", "entity_type", b="detector"), on=["system", "entity_type"]
        )
        .rename({"detector": "a"})
        .group_by("a", "b")
        .agg(pl.col("n_shared").sum())
    )


def _clusters(labels: pl.DataFrame, pairs: pl.DataFrame) -> pl.Series:
    """How many sessions the units of each pair belong to."""
    counts = labels.select(
        pl.col(_CLUSTER)
        .filter(pl.col(a).is_not_null() & pl.col(b).is_not_null())
        .n_unique()
        .alias(str(place))
        for place, (a, b) in enumerate(pairs.select("a", "b").rows())
    )
    values = counts.row(0) if counts.width else ()
    return pl.Series("n_clusters", values, dtype=pl.Int64)


def _overall(labels: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    n_rated = sum(pl.col(name).is_not_null().cast(pl.Int64) for name in names)
    rated = labels.filter(n_rated > 1).select(names)
    used = [name for name in names if rated[name].is_not_null().any()]
    row: dict[str, object] = {"n_units": rated.height, "n_detectors": len(used)}
    if len(used) > 1:
        complete = rated.select(used).drop_nulls()
        yes = sum(pl.col(name).cast(pl.Int64) for name in used)
        tested = cochran_q(rated, used)
        row |= {
            "n_complete": complete.height,
            "fleiss_kappa": fleiss_kappa(complete.select(yes=yes, no=len(used) - yes)),
            "krippendorff_alpha": krippendorff_alpha(rated),
            **{f"cochran_{name}": tested[key] for name, key in _COCHRAN.items()},
        }
    return AGREEMENT_OVERALL.conform(pl.DataFrame([{"n_complete": 0, **row}]))


_COCHRAN = {"q": "statistic", "df": "df", "p": "p_value"}


INTERSECTIONS = schema.Frame(
    "intersections",
    "one detector in one set of detectors that flag the same rows",
    ("rank", "detector"),
    (
        Column("rank", INTEGER, "place of the set, 1 for the largest"),
        Column("n", INTEGER, "rows that exactly these detectors flag"),
        Column("n_members", INTEGER, "detectors in the set"),
        Column("detector", TEXT, "one of all detectors that flag anything"),
        Column("is_member", YES_NO, "does this one flag these rows"),
        Column("n_flagged", INTEGER, "rows that this one flags at all"),
    ),
)


def intersections(detections: pl.DataFrame, *, most: int = 12) -> pl.DataFrame:
    """Sets of detectors by how many rows exactly they flag.

    Parameters
    ----------
    detections : polars.DataFrame
        From `detect`.
    most : int
        Sets to keep, the largest first.

    Returns
    -------
    polars.DataFrame, shape (n_sets * n_detectors, 6)
        `INTERSECTIONS`: a row a set and detector. Detectors that flag nothing are left
        out; sets of one size stand in the order of their names. A row that a detector
        cannot judge counts as not flagged by it: look at ``covered`` for that.

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
    [(1, 6, 'dashboard_stuck_60m'), (2, 5, 'dashboard_stale_card')]
    """
    needed = [*UNIT, "detector", "fires"]
    check_columns(detections, needed, "intersections")
    if most < 1:
        raise ArgumentError(f"most needs at least 1; found {most!r}.", "most=12")
    flagged = detections.filter(pl.col("fires")).select(*UNIT, "detector").unique()
    sets = (
        flagged.group_by(UNIT)
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
    return INTERSECTIONS.conform(rows)

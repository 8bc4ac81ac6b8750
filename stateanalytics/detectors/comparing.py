"""How far detectors agree, each pair and all together, and which flag the same rows."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.schema import INTEGER, TEXT, YES_NO, Column
from stateanalytics.detectors.detections import Detections
from stateanalytics.detectors.frames import AGREEMENT, AGREEMENT_OVERALL
from stateanalytics.errors import ArgumentError, check_share, did_you_mean, in_short
from stateanalytics.stats.agreement import (
    CELLS,
    cochran_q,
    fleiss_kappa,
    krippendorff_alpha,
    scored_tables,
)
from stateanalytics.stats.bootstrap import cells_by_class, intervals_of_cells

_CLUSTER, _TIMES = " cluster", " times"  # no detector is called so


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
    detections: Detections | pl.DataFrame,
    *,
    by: str | Sequence[str] = (),
    seed: int = 0,
    n_resamples: int = 1000,
    conf_level: float = 0.95,
) -> Agreement:
    """How far each pair of detectors agrees, and all of them together.

    Parameters
    ----------
    detections : Detections or polars.DataFrame
        From `detect`; of several instants, their ``rows`` put below each other.
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
    (9, 3, 1, 0, 5)
    """
    groups = [by] if isinstance(by, str) else list(by)
    asked = Detections.of(detections, "agreement", ("session_id",))
    _check(asked, groups, n_resamples, conf_level)
    pairs, overall = [], []
    for key, part in _pieces(asked, groups):
        compared, together = _of_group(
            part, seed=seed, n_resamples=n_resamples, conf_level=conf_level
        )
        key_columns = [
            pl.lit(value, asked.units.schema[name]).alias(name) for name, value in key.items()
        ]
        pairs.append(compared.select(*key_columns, pl.all()))
        overall.append(together.select(*key_columns, pl.all()))
    return Agreement(pl.concat(pairs), pl.concat(overall))


def _pieces(
    detections: Detections, groups: list[str]
) -> Iterator[tuple[dict[str, object], Detections]]:
    """The detections of each group, sorted by it; all of them without groups."""
    if not groups:
        yield {}, detections
        return
    units = detections.units.select(groups)
    for key in units.unique().sort(groups).iter_rows(named=True):
        is_of_group = pl.all_horizontal(pl.col(name).eq_missing(key[name]) for name in groups)
        yield key, detections.filter(units.select(is_of_group).to_series())


def _check(
    detections: Detections, groups: Sequence[str], n_resamples: int, conf_level: float
) -> None:
    allowed = detections.units.columns
    for name in groups:
        if name not in allowed:
            raise ArgumentError(
                f"agreement compares within groups of {', '.join(allowed)}; "
                f"found {in_short(name)}.",
                'by="kind"' + did_you_mean(str(name), allowed),
            )
    if len(detections.names) < 2:
        raise ArgumentError(
            f"Agreement needs at least two detectors; found {detections.names}.",
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
    detections: Detections, *, seed: int, n_resamples: int, conf_level: float
) -> tuple[pl.DataFrame, pl.DataFrame]:
    names = [name for name, n in detections.covered.count().unpivot().iter_rows() if n]
    patterns = detections.fires.group_by(names).agg(pl.len().cast(pl.Int64).alias(_TIMES))
    if len(names) < 2:
        return AGREEMENT.empty(), _overall(patterns, names)
    labels = detections.fires.select(names).with_columns(_sessions(detections.units))
    cells, members = cells_by_class(labels, list(combinations(names, 2)), _CLUSTER)
    scored = scored_tables(_tables(cells, _shared(detections)), conf_level)
    intervals = intervals_of_cells(
        cells, members, n_resamples=n_resamples, conf_level=conf_level, seed=seed
    )
    whole = (
        scored.drop("kappa_low", "kappa_high", "mcc_low", "mcc_high")
        .join(intervals, on=["a", "b"], how="left", maintain_order="left")
        .join(_clusters(cells), on=["a", "b"], how="left", maintain_order="left")
        .with_columns(pl.col("n_clusters").fill_null(0))
    )
    return AGREEMENT.conform(whole), _overall(patterns, names)


def _tables(cells: pl.DataFrame, shared: pl.DataFrame) -> pl.DataFrame:
    """The cross table of each pair that is ever about the same type, over all clusters."""
    totals = cells.group_by("a", "b").agg((pl.col(*CELLS) * pl.col("_size")).sum())
    return (
        shared.join(totals, on=["a", "b"], how="left", maintain_order="left")
        .with_columns(pl.col(*CELLS).fill_null(0))
        .with_columns(n_uncovered=pl.col("n_shared") - pl.col("n"))
    )


def _clusters(cells: pl.DataFrame) -> pl.DataFrame:
    """How many sessions the units of each pair belong to."""
    return cells.group_by("a", "b").agg(n_clusters=pl.col("_size").sum())


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
    """How far all agree, from the patterns of answers and how often each occurs."""
    n_rated = sum((pl.col(name).is_not_null().cast(pl.Int64) for name in names), pl.lit(0))
    rated = patterns.filter(n_rated > 1)
    used = [name for name in names if rated[name].is_not_null().any()]
    row: dict[str, object] = {"n_units": rated[_TIMES].sum(), "n_detectors": len(used)}
    if len(used) > 1:
        complete = rated.drop_nulls(used)
        yes = sum(pl.col(name).cast(pl.Int64) for name in used)
        each = complete[
            complete.select(pl.int_range(pl.len()).repeat_by(_TIMES).list.explode()).to_series()
        ]
        tested = cochran_q(each, used)
        row |= {
            "n_complete": each.height,
            "fleiss_kappa": fleiss_kappa(each.select(yes=yes, no=len(used) - yes)),
            "krippendorff_alpha": krippendorff_alpha(rated.select(names), times=rated[_TIMES]),
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


def intersections(detections: Detections | pl.DataFrame, *, most: int = 12) -> pl.DataFrame:
    """Sets of detectors by how many rows exactly they flag.

    Parameters
    ----------
    detections : Detections or polars.DataFrame
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
    [(1, 3, 'dashboard_stale_card'), (1, 3, 'dashboard_stuck_60m')]
    """
    asked = Detections.of(detections, "intersections")
    if most < 1:
        raise ArgumentError(f"most needs at least 1; found {most!r}.", "most=12")
    flagged = (
        asked.fires.with_row_index(" unit")
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
    return INTERSECTIONS.conform(rows)

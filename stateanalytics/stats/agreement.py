"""Agreement of labels: of two detectors, of many, beyond chance, and how sure it is.

Labels are columns of one frame, one row per unit (a session, or a session at an
instant). Null means that a detector does not cover the unit; it never means "no".
What happens within one session is not independent, so the bootstrap draws whole sessions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from random import Random
from statistics import NormalDist

import polars as pl

from stateanalytics.stats.distributions import chi_square_tail, even_split_p, student_quantile
from stateanalytics.stats.draws import multinomial


def pairwise_agreement(
    labels: pl.DataFrame, detectors: Sequence[str], *, times: str | None = None
) -> pl.DataFrame:
    """Cross table and agreement of every pair of detectors that say yes or no.

    Parameters
    ----------
    labels : polars.DataFrame, shape (n_units, >= n_detectors)
        A Boolean column per detector; null where it does not cover the unit.
    detectors : sequence of str
        Columns to compare, at least two.
    times : str, optional
        Column with the number of times that each row counts; once by default.

    Returns
    -------
    polars.DataFrame, shape (n_pairs, 15)
        ``a``, ``b``; ``n`` units that both cover, ``n_uncovered``; the cross table
        ``n_both``, ``n_only_a``, ``n_only_b``, ``n_neither``; ``raw_agreement``,
        ``kappa`` (Cohen), ``mcc`` (Matthews' correlation), ``ac1`` (Gwet), ``pabak``;
        McNemar's ``mcnemar_p`` (exact) and ``mcnemar_mid_p``. Null where no unit is covered,
        kappa also where both always give the same single answer, and MCC where either always
        gives one answer. `intervals_of_cells` gives their intervals.

    Notes
    -----
    Read the cross table first. Kappa collapses where almost all units get the same answer
    [1]_: stale sessions are rare, so AC1 and PABAK stand next to it.

    References
    ----------
    .. [1] Feinstein, A. R. and Cicchetti, D. V. (1990). High agreement but low kappa.
       J. Clin. Epidemiol. 43, 543-549.
    .. [2] Matthews, B. W. (1975). Comparison of the predicted and observed secondary
       structure of T4 phage lysozyme. Biochim. Biophys. Acta 405, 442-451.

    Examples
    --------
    >>> labels = pl.DataFrame({"slow": [True, True, None], "stuck": [True, False, True]})
    >>> pairwise_agreement(labels, ["slow", "stuck"])["n", "n_only_a", "pabak"].row(0)
    (2, 1, 0.0)
    """
    pairs = list(combinations(detectors, 2))
    weight = pl.lit(1, pl.Int64) if times is None else pl.col(times)
    weighted = labels.with_columns(weight.alias(_TIMES))
    counts = weighted.select(
        pl.col(_TIMES).filter(in_cell).sum().alias(f"{name}_{i}")
        for i, (a, b) in enumerate(pairs)
        for name, in_cell in which_cell(a, b).items()
    ).row(0)
    rows = [counts[5 * i : 5 * i + 5] for i in range(len(pairs))]
    table = pl.DataFrame(
        [(*pair, *row) for pair, row in zip(pairs, rows, strict=True)],
        schema={"a": pl.String, "b": pl.String, **dict.fromkeys(CELLS, pl.Int64)},
        orient="row",
    ).with_columns(n_uncovered=weighted[_TIMES].sum() - pl.sum_horizontal(CELLS[1:]))
    return scored_tables(table)


def scored_tables(tables: pl.DataFrame) -> pl.DataFrame:
    """Tables of `CELLS` with the scores and the p-values of `pairwise_agreement`."""
    tested = [
        (even_split_p(b, c), even_split_p(b, c, mid=True))
        for b, c in tables.select("n_only_a", "n_only_b").iter_rows()
    ]
    schema = dict.fromkeys(("mcnemar_p", "mcnemar_mid_p"), pl.Float64)
    return tables.with_columns(**score_cells()).hstack(pl.DataFrame(tested, schema, orient="row"))


_TIMES = "_times"
CELLS = ("n", "n_both", "n_only_a", "n_only_b", "n_neither")


def score_cells() -> dict[str, pl.Expr]:
    """Agreement beyond chance from the four cells, as named expressions."""
    both, only_a, only_b, neither = (pl.col(name).cast(pl.Float64) for name in CELLS[1:])
    n = both + only_a + only_b + neither
    observed = (both + neither) / n
    yes_a, yes_b = (both + only_a) / n, (both + only_b) / n
    by_chance = yes_a * yes_b + (1 - yes_a) * (1 - yes_b)
    prevalence = (yes_a + yes_b) / 2
    gwet_chance = 2 * prevalence * (1 - prevalence)
    return {
        "raw_agreement": _finite(observed),
        "kappa": _finite((observed - by_chance) / (1 - by_chance)),
        "mcc": _finite(
            (both * neither - only_a * only_b)
            / ((yes_a * (1 - yes_a)) * (yes_b * (1 - yes_b))).sqrt()
            / (n * n)
        ),
        "ac1": _finite((observed - gwet_chance) / (1 - gwet_chance)),
        "pabak": _finite(2 * observed - 1),
    }


def fleiss_kappa(counts: pl.DataFrame) -> float | None:
    """Agreement of many raters beyond chance, every unit rated equally often.

    Parameters
    ----------
    counts : polars.DataFrame, shape (n_units, n_categories)
        How many raters chose each category; as many for every unit, at least two.

    Returns
    -------
    float or None
        None where there are no units, or chance alone agrees always.

    Examples
    --------
    >>> fleiss_kappa(pl.DataFrame({"stale": [3, 0], "fine": [0, 3]}))
    1.0
    """
    if counts.is_empty():
        return None
    n, m = counts.height, sum(counts.row(0))
    shares = [value / (n * m) for value in counts.sum().row(0)]
    per_unit = counts.select(agreed=(pl.sum_horizontal(pl.all().pow(2)) - m) / (m * (m - 1)))[
        "agreed"
    ]
    observed, chance = float(per_unit.mean()), math.fsum(share**2 for share in shares)  # type: ignore[arg-type]
    return None if chance == 1 else (observed - chance) / (1 - chance)


def krippendorff_alpha(ratings: pl.DataFrame, *, times: pl.Series | None = None) -> float | None:
    """Agreement of any number of raters on words or truths; raters may skip units.

    Parameters
    ----------
    ratings : polars.DataFrame, shape (n_units, n_raters)
        One column per rater, null where the unit was not rated.
    times : polars.Series, optional
        Number of times that each unit counts; once by default.

    Returns
    -------
    float or None
        1 is perfect agreement, 0 agreement by chance; None without two ratings of a unit or
        without different values.

    Notes
    -----
    Only units with at least two ratings count. Two values agree or they do not: the nominal
    scale of [1]_.

    References
    ----------
    .. [1] Krippendorff, K. (2011). Computing Krippendorff's alpha-reliability.

    Examples
    --------
    >>> ratings = pl.DataFrame({"a": [1, 2, 3, None], "b": [1, 2, 3, 4]})
    >>> krippendorff_alpha(ratings)
    1.0
    """
    weight = pl.lit(1.0) if times is None else times.cast(pl.Float64)
    counted = (
        ratings.with_row_index("unit")
        .with_columns(weight.alias(_TIMES))
        .unpivot(index=["unit", _TIMES], variable_name="rater", value_name="value")
        .drop_nulls("value")
        .group_by("unit", _TIMES, "value")
        .agg(n=pl.len().cast(pl.Float64))
        .with_columns(m=pl.col("n").sum().over("unit"))
        .filter(pl.col("m") > 1)
    )
    weighted, m = pl.col("n") * pl.col(_TIMES), pl.col("m")
    totals = counted.group_by("value").agg(total=weighted.sum())["total"]
    n = float(totals.sum())
    by_chance = n * n - float((totals * totals).sum())
    # Sorted, because the last digit of a float sum depends on the order.
    differing = counted.select((weighted * (m - pl.col("n")) / (m - 1)).sort().sum()).item()
    return 1 - differing / n / (by_chance / (n * (n - 1))) if by_chance else None


def cochran_q(
    labels: pl.DataFrame, detectors: Sequence[str]
) -> tuple[float, int, float] | tuple[None, None, None]:
    """Test whether detectors fire equally often, over units that all of them cover.

    Returns
    -------
    tuple
        The statistic, its degrees of freedom and its p-value; None where detectors agree on
        every unit, or share none.

    Examples
    --------
    >>> labels = pl.DataFrame({"a": [True, True, True], "b": [False, False, True]})
    >>> cochran_q(labels, ["a", "b"])[:2]
    (2.0, 1)
    """
    answers = labels.select(pl.col(detectors).cast(pl.Float64))
    k, totals = len(detectors), answers.sum().row(0)
    rows = answers.select(n=pl.sum_horizontal(pl.all()))["n"]
    grand, squares = float(rows.sum()), float((rows * rows).sum())
    spread = k * grand - squares
    if not spread:
        return None, None, None
    statistic = (k - 1) * (k * math.fsum(total**2 for total in totals) - grand**2) / spread
    return statistic, k - 1, chi_square_tail(statistic, k - 1)


# --- the pieces ------------------------------------------------------------------------


def which_cell(a: str, b: str) -> dict[str, pl.Expr]:
    """Conditions for each of `CELLS`: both cover the unit, then the four cells of the table."""
    yes_a, yes_b = pl.col(a), pl.col(b)
    covered = yes_a.is_not_null() & yes_b.is_not_null()
    cells = (yes_a & yes_b, yes_a & ~yes_b, ~yes_a & yes_b, ~yes_a & ~yes_b)
    return dict(zip(CELLS, (covered, *(covered & cell for cell in cells)), strict=True))


def _finite(value: pl.Expr) -> pl.Expr:
    return pl.when(value.is_finite()).then(value)


SCORES = ("kappa", "mcc", "ac1", "pabak")

_ROWS_OF_DRAWS = 2_000_000
_PAIRS_AT_ONCE = 100
_ONE_ANSWER = ("n_neither", "n_both")


def cells_by_class(
    labels: pl.DataFrame, pairs: Sequence[tuple[str, str]], cluster: str
) -> tuple[pl.DataFrame, pl.Series]:
    """Cross table of each pair per class of clusters, and the class of every cluster.

    Parameters
    ----------
    labels : polars.DataFrame, shape (n_units, >= 1 + n_detectors)
        A Boolean column per detector (null: not covered), and the cluster of each unit.
    pairs : sequence of (str, str)
        Columns to compare.
    cluster : str
        Column that names the cluster.

    Returns
    -------
    cells : polars.DataFrame
        ``a``, ``b``, ``_class``, ``_size`` (number of its clusters) and `CELLS` of one
        cluster; only classes with units that both cover.
    members : polars.Series, shape (n_clusters,)
        Sorted.
    """
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    classes, members = _classes(labels, names, cluster)
    sizes = members.value_counts(name="_size").with_columns(pl.col("_size").cast(pl.Int64))
    parts = []
    for first in range(0, len(pairs), _PAIRS_AT_ONCE):
        batch = pairs[first : first + _PAIRS_AT_ONCE]
        sums = classes.group_by("_class").agg(
            in_cell.sum().cast(pl.Int64).alias(f"{i} {name}")
            for i, pair in enumerate(batch)
            for name, in_cell in which_cell(*pair).items()
        )
        parts += [
            sums.select(
                "_class",
                *(pl.col(f"{i} {name}").alias(name) for name in CELLS),
                a=pl.lit(a),
                b=pl.lit(b),
            ).filter(pl.col("n") > 0)
            for i, (a, b) in enumerate(batch)
        ]
    shape = {"a": pl.String, "b": pl.String, **dict.fromkeys(("_size", *CELLS), pl.Int64)}
    if not parts:
        return pl.DataFrame(schema={"_class": pl.UInt32, **shape}), members
    return pl.concat(parts).join(sizes, on="_class").select("_class", *shape), members


def intervals_of_cells(
    cells: pl.DataFrame, members: pl.Series, *, n_resamples: int, conf_level: float, seed: int
) -> pl.DataFrame:
    """Percentile intervals of kappa, MCC, AC1 and PABAK, by resampling clusters.

    Parameters
    ----------
    cells, members
        From `cells_by_class`.
    n_resamples : int
        Number of resamples of all clusters, with replacement; 0 gives no intervals.
    conf_level : float
        Between 0 and 1.
    seed : int
        The same seed gives the same intervals.

    Returns
    -------
    polars.DataFrame, shape (n_pairs, 10)
        ``a``, ``b``, and ``<score>_low``, ``<score>_high`` for each of `SCORES`; null
        where the score is not defined in any resample.

    Notes
    -----
    Clusters with the same labels are drawn as one class, and all pairs share the resamples.
    Where an answer is rare, resamples vary too little and some have none of it: each gets
    another half a unit in every cell, on average (Jeffreys' prior), and percentiles are widened
    by Student's quantile [2]_, of as many clusters as have the rarer answer.

    References
    ----------
    .. [1] Field, C. A. and Welsh, A. H. (2007). Bootstrapping clustered data. J. R.
       Statist. Soc. B 69, 369-390.
    .. [2] Hesterberg, T. C. (2015). What teachers should know about the bootstrap. The American
       Statistician 69, 371-386: the expanded percentile interval.

    Examples
    --------
    >>> labels = pl.DataFrame({"who": [1, 2, 3, 4], "a": [True, False] * 2, "b": [True, False] * 2})
    >>> cells, members = cells_by_class(labels, [("a", "b")], "who")
    >>> ends = intervals_of_cells(cells, members, n_resamples=50, conf_level=0.95, seed=0)
    >>> 0 < ends["pabak_low"].item() < 1
    True
    """
    ends = [(score, end) for score in SCORES for end in ("low", "high")]
    shape = {"a": pl.String, "b": pl.String, **{"_".join(end): pl.Float64 for end in ends}}
    if cells.is_empty() or n_resamples < 1:
        return pl.DataFrame(schema=shape)
    draws, more = _draws(members, n_resamples, seed), _half_units(n_resamples, seed)
    # By number, because grouping millions of rows by two names takes twice the time.
    pairs = cells.select("a", "b").unique(maintain_order=True).with_row_index("_pair")
    numbered = cells.join(pairs, on=["a", "b"]).drop("a", "b")
    at_once = max(1, _ROWS_OF_DRAWS // draws.height)
    parts = [
        numbered.filter(pl.col("_pair") // at_once == part)
        for part in range(-(-pairs.height // at_once))
    ]
    intervals = pl.concat(
        _percentiles(_scores(part, draws, more), _tails(part, conf_level)) for part in parts
    )
    return pairs.join(intervals, on="_pair").sort("a", "b").select(list(shape))


def _classes(
    labels: pl.DataFrame, names: list[str], cluster: str
) -> tuple[pl.DataFrame, pl.Series]:
    """Units by class of their cluster, and the class of every cluster.

    Two clusters are in one class if they have the same units, in whatever order.
    """
    patterns = (
        labels.select(*names, _cluster=cluster)
        .group_by(names)
        .agg("_cluster")
        # Sorted, so that the draws do not depend on the order of the rows.
        .sort(names, nulls_last=True)
        .with_row_index("_pattern")
    )
    by_cluster = (
        patterns.select("_pattern", "_cluster")
        .explode("_cluster", empty_as_null=False, keep_nulls=True)
        .group_by("_cluster")
        .agg(_patterns=pl.col("_pattern").sort())
    )
    kinds = by_cluster.group_by("_patterns").len().sort("_patterns").with_row_index("_class")
    members = kinds.select(pl.col("_class").repeat_by("len").list.explode()).to_series()
    units = kinds.select("_class", _pattern="_patterns").explode("_pattern")
    return units.join(patterns, on="_pattern").select("_class", *names), members


def _draws(members: pl.Series, n_resamples: int, seed: int) -> pl.DataFrame:
    """Count of each class in each resample: ``_draw``, ``_class``, ``_times``."""
    counts = members.value_counts(name="n").sort(members.name)
    classes, sizes = counts[members.name], counts["n"].to_list()
    random = Random(seed)
    times = [count for _ in range(n_resamples) for count in multinomial(random, sizes)]
    return pl.DataFrame(
        {
            "_draw": pl.int_range(n_resamples, eager=True).repeat_by(len(sizes)).list.explode(),
            "_class": pl.concat([classes] * n_resamples),
            "_times": pl.Series(times, dtype=pl.Float64),
        }
    ).filter(pl.col("_times") > 0)


def _half_units(n_resamples: int, seed: int) -> pl.DataFrame:
    """What each resample has more in each cell: half a unit on average."""
    random = Random(seed)
    more = {
        f"{name}_more": [random.gammavariate(0.5, 1.0) for _ in range(n_resamples)]
        for name in CELLS[1:]
    }
    return pl.DataFrame({"_draw": range(n_resamples), **more})


def _scores(cells: pl.DataFrame, draws: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    """The scores of each pair in each resample; null where they are not defined for the pair."""
    summed = (
        draws.lazy()
        .join(cells.lazy(), on="_class")
        .group_by("_pair", "_draw")
        .agg((pl.col(name) * pl.col("_times")).sum() for name in CELLS[1:])
        .join(more.lazy(), on="_draw")
        .with_columns(pl.col(name) + pl.col(f"{name}_more") for name in CELLS[1:])
    )
    counts = [(pl.col(name) * pl.col("_size")).sum() for name in CELLS[1:]]
    known = cells.group_by("_pair").agg(counts).select("_pair", **score_cells()).lazy()
    return (
        summed.with_columns(**score_cells())
        .join(known, on="_pair", suffix="_known")
        .with_columns(pl.when(pl.col(f"{name}_known").is_not_null()).then(name) for name in SCORES)
        .collect()
    )


def _tails(cells: pl.DataFrame, conf_level: float) -> pl.DataFrame:
    """The tail of the percentiles of each pair."""
    answers = (pl.col("_size").filter(pl.col(name) < pl.col("n")).sum() for name in _ONE_ANSWER)
    n = pl.min_horizontal(*answers).clip(lower_bound=2)

    def tail(n: int) -> float:
        expanded = student_quantile(conf_level, n - 1) * math.sqrt(n / (n - 1))
        return NormalDist().cdf(-expanded)

    rarer = cells.group_by("_pair").agg(n=n)
    return rarer.select("_pair", tail=pl.col("n").map_elements(tail, return_dtype=pl.Float64))


def _percentiles(scores: pl.DataFrame, tails: pl.DataFrame) -> pl.DataFrame:
    """The ends of the interval of each score, from its values in order."""
    known = [f"{name}_known" for name in SCORES]
    lists = scores.group_by("_pair").agg(pl.col(SCORES).drop_nulls().sort(), pl.col(known).first())

    def place(score: str, share: pl.Expr) -> pl.Expr:
        last = pl.col(score).list.len().cast(pl.Int64) - 1
        return pl.col(score).list.get((share * last).round().cast(pl.Int64), null_on_oob=True)

    # All resamples of perfect agreement have half a unit of the contrary.
    tail, ends = pl.col("tail"), list[pl.Expr]()
    for score in SCORES:
        seen = pl.col(f"{score}_known")
        ends += [
            pl.min_horizontal(place(score, tail), seen).alias(f"{score}_low"),
            pl.max_horizontal(place(score, 1 - tail), seen).alias(f"{score}_high"),
        ]
    return lists.join(tails, on="_pair").select("_pair", *ends)

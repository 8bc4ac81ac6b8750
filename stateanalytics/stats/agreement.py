"""How far labels agree: of two detectors, of many, and beyond chance.

Labels are columns of one frame, one row per unit (a session, or a session at an
instant). Null means that a detector does not cover the unit; it never means "no".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import NormalDist
from typing import Literal

import polars as pl

from stateanalytics.errors import ArgumentError, check_columns, did_you_mean
from stateanalytics.stats.distributions import chi_square_tail, even_split_p

Level = Literal["nominal", "ordinal", "interval", "ratio"]


def pairwise_agreement(
    labels: pl.DataFrame,
    detectors: Sequence[str],
    conf_level: float = 0.95,
    *,
    times: str | None = None,
) -> pl.DataFrame:
    """Cross table and agreement of every pair of detectors that say yes or no.

    Parameters
    ----------
    labels : polars.DataFrame, shape (n_units, >= n_detectors)
        A Boolean column per detector; null where it does not cover the unit.
    detectors : sequence of str
        Columns to compare, at least two.
    conf_level : float
        Level of the large-sample intervals of kappa and MCC; `bootstrap` gives
        those to report where units of one session are alike.
    times : str, optional
        The column that says how often each row counts; once by default.

    Returns
    -------
    polars.DataFrame, shape (n_pairs, 20)
        ``a``, ``b``; ``n`` units that both cover, ``n_uncovered``; the cross table
        ``n_both``, ``n_only_a``, ``n_only_b``, ``n_neither``; ``raw_agreement``,
        ``kappa`` (Cohen) with ``kappa_low`` and ``kappa_high``, ``mcc`` (Matthews'
        correlation) with ``mcc_low`` and ``mcc_high``, ``ac1`` (Gwet), ``pabak``;
        McNemar's ``mcnemar_chi2``, ``mcnemar_p`` (exact) and ``mcnemar_mid_p``. Null
        where nothing is covered, kappa also where both only ever give one and the same
        answer, and MCC where either only ever gives one.

    Raises
    ------
    MissingColumnsError, ArgumentError
        If a column is absent, or fewer than two are named.

    Notes
    -----
    Read the cross table first. Kappa collapses where almost every unit is alike [1]_:
    stale sessions are rare, so AC1 and PABAK stand beside it.

    References
    ----------
    .. [1] Feinstein, A. R. and Cicchetti, D. V. (1990). High agreement but low kappa.
       J. Clin. Epidemiol. 43, 543-549.
    .. [2] Fleiss, J. L., Cohen, J. and Everitt, B. S. (1969). Large sample standard
       errors of kappa and weighted kappa. Psychol. Bull. 72, 323-327.
    .. [3] Matthews, B. W. (1975). Comparison of the predicted and observed secondary
       structure of T4 phage lysozyme. Biochim. Biophys. Acta 405, 442-451.
    .. [4] Bishop, Y. M. M., Fienberg, S. E. and Holland, P. W. (1975). Discrete
       Multivariate Analysis, section 11.3.4: the variance of phi, which MCC is.

    Examples
    --------
    >>> labels = pl.DataFrame({"slow": [True, True, None], "stuck": [True, False, True]})
    >>> pairwise_agreement(labels, ["slow", "stuck"])["n", "n_only_a", "pabak"].row(0)
    (2, 1, 0.0)
    """
    _need(labels, detectors, 2)
    pairs = list(combinations(detectors, 2))
    each = pl.lit(1, pl.Int64) if times is None else pl.col(times)
    weighed = labels.with_columns(each.alias(_TIMES))
    counts = weighed.select(
        pl.col(_TIMES).filter(is_it).sum().alias(f"{name}_{i}")
        for i, (a, b) in enumerate(pairs)
        for name, is_it in which_cell(a, b).items()
    ).row(0)
    rows = [counts[5 * i : 5 * i + 5] for i in range(len(pairs))]
    table = pl.DataFrame(
        [(*pair, *row) for pair, row in zip(pairs, rows, strict=True)],
        schema={"a": pl.String, "b": pl.String, **dict.fromkeys(CELLS, pl.Int64)},
        orient="row",
    ).with_columns(n_uncovered=weighed[_TIMES].sum() - pl.sum_horizontal(CELLS[1:]))
    return scored_tables(table, conf_level)


def scored_tables(tables: pl.DataFrame, conf_level: float = 0.95) -> pl.DataFrame:
    """What `pairwise_agreement` gives, from ``a``, ``b``, ``n_uncovered`` and `CELLS`."""
    tested = [_mcnemar(b, c) for b, c in tables.select("n_only_a", "n_only_b").rows()]
    tests = pl.DataFrame(
        tested,
        schema=dict.fromkeys(("mcnemar_chi2", "mcnemar_p", "mcnemar_mid_p"), pl.Float64),
        orient="row",
    )
    scored = tables.with_columns(**score_cells()).with_columns(
        *_interval("kappa", _kappa_variance(), conf_level),
        *_interval("mcc", _mcc_variance(), conf_level),
    )
    return pl.concat([scored, tests], how="horizontal").select(
        "a", "b", "n", "n_uncovered", *CELLS[1:], "raw_agreement", "kappa", "kappa_low",
        "kappa_high", "mcc", "mcc_low", "mcc_high", "ac1", "pabak", "mcnemar_chi2", "mcnemar_p",
        "mcnemar_mid_p",
    )  # fmt: skip


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
        How many raters chose each category.

    Returns
    -------
    float or None
        None where fewer than two raters, no units, or chance alone agrees always.

    Raises
    ------
    ArgumentError
        If units were rated by different numbers of raters: `krippendorff_alpha` can.

    Examples
    --------
    >>> fleiss_kappa(pl.DataFrame({"stale": [3, 0], "fine": [0, 3]}))
    1.0
    """
    raters = counts.select(n=pl.sum_horizontal(pl.all()))["n"]
    if raters.n_unique() > 1:
        raise ArgumentError(
            f"fleiss_kappa needs the same number of raters for every unit; found "
            f"{raters.min()!r} to {raters.max()!r}.",
            "use krippendorff_alpha, which allows missing values",
        )
    if counts.is_empty() or raters[0] < 2:
        return None
    n, m = counts.height, int(raters[0])
    shares = [value / (n * m) for value in counts.sum().row(0)]
    per_unit = counts.select(agreed=(pl.sum_horizontal(pl.all().pow(2)) - m) / (m * (m - 1)))[
        "agreed"
    ]
    observed, chance = float(per_unit.mean()), math.fsum(share**2 for share in shares)  # type: ignore[arg-type]
    return None if chance == 1 else (observed - chance) / (1 - chance)


def krippendorff_alpha(
    ratings: pl.DataFrame, level: Level = "nominal", *, times: pl.Series | None = None
) -> float | None:
    """Agreement of any raters on any scale, units they did not rate left out.

    Parameters
    ----------
    ratings : polars.DataFrame, shape (n_units, n_raters)
        One column per rater, null where the unit was not rated. Booleans and words may
        be used with ``level="nominal"``.
    level : {"nominal", "ordinal", "interval", "ratio"}
        What a difference between two values means.
    times : polars.Series, optional
        How often each unit counts; once by default.

    Returns
    -------
    float or None
        1 is perfect agreement, 0 as by chance; None where nothing can be paired or no
        value ever differs.

    Raises
    ------
    ArgumentError
        If the level is unknown.

    Notes
    -----
    Only units with at least two ratings count. Computed from the coincidences of
    values, so any number of units costs the same after they are counted.

    References
    ----------
    .. [1] Krippendorff, K. (2011). Computing Krippendorff's alpha-reliability.

    Examples
    --------
    >>> ratings = pl.DataFrame({"a": [1, 2, 3, None], "b": [1, 2, 3, 4]})
    >>> krippendorff_alpha(ratings)
    1.0
    """
    if level not in ("nominal", "ordinal", "interval", "ratio"):
        known = ("nominal", "ordinal", "interval", "ratio")
        raise ArgumentError(
            f"level needs one of {list(known)}; found {level!r}.",
            "level='nominal'" + did_you_mean(str(level), known),
        )
    each = pl.lit(1.0) if times is None else times.cast(pl.Float64)
    long = (
        ratings.with_row_index("unit")
        .with_columns(each.alias(_TIMES))
        .unpivot(index=["unit", _TIMES], variable_name="rater", value_name="value")
        .drop_nulls("value")
    )
    counted = long.group_by("unit", _TIMES, "value").agg(n=pl.len().cast(pl.Float64))
    rated = counted.group_by("unit").agg(m=pl.col("n").sum()).filter(pl.col("m") > 1)
    pairable = counted.join(rated, on="unit")
    weighed = pl.col("n") * pl.col(_TIMES)
    totals = pairable.group_by("value").agg(total=weighed.sum()).sort("value")
    if totals.height < 2:
        return None
    same = pl.col("value") == pl.col("value_right")
    coincidences = (
        pairable.join(pairable.select("unit", "value", "n"), on="unit")
        .group_by("value", "value_right")
        .agg(o=(weighed * (pl.col("n_right") - same) / (pl.col("m") - 1)).sum())
    )
    n = float(totals["total"].sum())
    ranked = totals.with_columns(
        rank=pl.col("total").cum_sum() - pl.col("total") / 2,
        number=pl.col("value").cast(pl.Float64, strict=False)
        if level in ("interval", "ratio")
        else pl.lit(0.0),
    )
    right = ranked.select(pl.all().name.suffix("_right"))
    observed = coincidences.join(ranked, on="value").join(right, on="value_right")
    expected = ranked.join(right, how="cross")
    distance = _distance(level)
    disagreement = observed.select((pl.col("o") * distance).sum()).item() / n
    by_chance = expected.select(
        (pl.col("total") * pl.col("total_right") * distance).sum()
    ).item() / (n * (n - 1))
    return 1 - disagreement / by_chance if by_chance else None


def cochran_q(labels: pl.DataFrame, detectors: Sequence[str]) -> dict[str, float | int | None]:
    """Test whether detectors say yes equally often, over units that all of them cover.

    Returns
    -------
    dict
        ``statistic``, ``df``, ``p_value`` (None where no unit is told apart), ``n``.

    Examples
    --------
    >>> labels = pl.DataFrame({"a": [True, True, True], "b": [False, False, True]})
    >>> cochran_q(labels, ["a", "b"])["statistic"]
    2.0
    """
    _need(labels, detectors, 2)
    covered = labels.select(pl.col(detectors).cast(pl.Float64)).drop_nulls()
    k, totals = len(detectors), covered.sum().row(0) if covered.height else (0.0,) * len(detectors)
    rows = covered.select(n=pl.sum_horizontal(pl.all()))["n"]
    grand, squares = float(rows.sum()), float((rows * rows).sum())
    spread = k * grand - squares
    statistic = (
        (k - 1) * (k * math.fsum(total**2 for total in totals) - grand**2) / spread
        if spread
        else None
    )
    return {
        "statistic": statistic,
        "df": k - 1,
        "p_value": None if statistic is None else chi_square_tail(statistic, k - 1),
        "n": covered.height,
    }


# --- the pieces ------------------------------------------------------------------------


def which_cell(a: str, b: str) -> dict[str, pl.Expr]:
    """Which units both cover, and which are in each cell of their cross table."""
    yes_a, yes_b = pl.col(a), pl.col(b)
    covered = yes_a.is_not_null() & yes_b.is_not_null()
    which = (yes_a & yes_b, yes_a & ~yes_b, ~yes_a & yes_b, ~yes_a & ~yes_b)
    return dict(zip(CELLS, (covered, *(covered & is_it for is_it in which)), strict=True))


def _mcnemar(b: int, c: int) -> tuple[float | None, float, float]:
    chi2 = (b - c) ** 2 / (b + c) if b + c else None
    return chi2, even_split_p(b, c), even_split_p(b, c, mid=True)


def _interval(score: str, variance: pl.Expr, conf_level: float) -> list[pl.Expr]:
    """Both ends of a large-sample interval of a score between -1 and 1."""
    spread = NormalDist().inv_cdf(0.5 + conf_level / 2) * variance.clip(lower_bound=0.0).sqrt()
    return [
        # Near perfect agreement a normal interval reaches beyond what the score can be.
        _finite(pl.col(score) - spread).clip(lower_bound=-1.0).alias(f"{score}_low"),
        _finite(pl.col(score) + spread).clip(upper_bound=1.0).alias(f"{score}_high"),
    ]


def _kappa_variance() -> pl.Expr:
    """Fleiss, Cohen and Everitt's for two raters and two answers."""
    both, only_a, only_b, neither = (pl.col(name) / pl.col("n") for name in CELLS[1:])
    yes_a, yes_b = both + only_a, both + only_b
    chance = yes_a * yes_b + (1 - yes_a) * (1 - yes_b)
    kappa = pl.col("kappa")
    on = sum(
        p * (1 - (ya + yb) * (1 - kappa)).pow(2)
        for p, ya, yb in ((both, yes_a, yes_b), (neither, 1 - yes_a, 1 - yes_b))
    )
    off = (1 - kappa).pow(2) * (
        only_a * (yes_b + (1 - yes_a)).pow(2) + only_b * ((1 - yes_b) + yes_a).pow(2)
    )
    return (on + off - (kappa - chance * (1 - kappa)).pow(2)) / (pl.col("n") * (1 - chance).pow(2))


def _mcc_variance() -> pl.Expr:
    """That of phi, by the delta method."""
    yes_a = (pl.col("n_both") + pl.col("n_only_a")) / pl.col("n")
    yes_b = (pl.col("n_both") + pl.col("n_only_b")) / pl.col("n")
    mcc = pl.col("mcc")
    a, b = ((2 * yes - 1) / (yes * (1 - yes)).sqrt() for yes in (yes_a, yes_b))
    spread = 1 - mcc**2 + (mcc + mcc**3 / 2) * a * b - 0.75 * mcc**2 * (a**2 + b**2)
    return spread / pl.col("n")


def _distance(level: Level) -> pl.Expr:
    x, y = pl.col("number"), pl.col("number_right")
    if level == "interval":
        return (x - y).pow(2)
    if level == "ratio":
        return ((x - y) / (x + y)).fill_nan(0.0).pow(2)
    if level == "ordinal":
        return (pl.col("rank") - pl.col("rank_right")).pow(2)
    return (pl.col("value") != pl.col("value_right")).cast(pl.Float64)


def _finite(value: pl.Expr) -> pl.Expr:
    return pl.when(value.is_finite()).then(value)


def _need(labels: pl.DataFrame, detectors: Sequence[str], at_least: int) -> None:
    if len(detectors) < at_least:
        raise ArgumentError(
            f"Agreement needs at least {at_least} detectors; found {list(detectors)}.",
            "name two columns of labels",
        )
    check_columns(labels, detectors, "agreement")

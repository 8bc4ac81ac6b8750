"""What each spell adds to an estimate: of those of one unit, the sum is what varies together.

The infinitesimal jackknife: were a spell counted a little more, by how much would the
estimate move. Squared by unit and added up, that is the variance of the estimate, however
alike the spells of a unit are.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.survival.curves import survival
from stateanalytics.survival.estimates import TOLERANCE
from stateanalytics.survival.risk_sets import STRATUM, checked_spells, number, risk_sets, with_ties

CELL = STRATUM


def mean_and_influence(
    spells: pl.DataFrame, cells: list[str], until_s: float, unit: str = "unit"
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Restricted mean duration of each cell, and what each spell adds to it.

    Parameters
    ----------
    spells : polars.DataFrame
        As for `kaplan_meier`, with the columns of ``cells`` and ``unit``.
    cells : list of str
        Columns that name the cells.
    until_s : float
        The horizon, in seconds.
    unit : str
        Column of what is independent.

    Returns
    -------
    estimates : polars.DataFrame, shape (n_cells, n_columns + 3)
        `CELL` (a number), the columns of ``cells``, ``estimate`` in seconds, ``is_reached``:
        the curve is known up to the horizon.
    influences : polars.DataFrame, shape (n_spells, 3)
        `CELL`, ``unit``, ``influence`` (its sum in each cell is 0).

    Notes
    -----
    Of the area under the product-limit curve, a spell moves at each end u at risk of which
    it was minus (area from u on) / (n - d) times its own ends minus those expected [1]_.

    References
    ----------
    .. [1] Efron, B. and Stein, C. (1981). The jackknife estimate of variance. Annals of
       Statistics 9, 586-596.
    """
    rows = with_ties(checked_spells(spells, cells, "compare", also=[unit]))
    sets = risk_sets(rows, cells)
    table, estimates = means(sets.table, until_s)
    table = table.with_columns(beyond=pl.col("area").cum_sum(reverse=True).over(CELL)).with_columns(
        of_good=pl.lit(0.0), of_end=-_shared(pl.col("beyond"), until_s)
    )
    table = table.with_columns(drift=pl.col("of_end") * pl.col("n_events") / pl.col("n_at_risk"))
    moved = _moved(number(rows, cells)[0].with_columns(is_good=False), table, unit)
    return estimates.join(sets.strata, on=CELL), moved


def incidence_and_influence(
    spells: pl.DataFrame, cells: list[str], until_s: float, unit: str = "unit"
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Share of each cell that came to a good end by a duration, and what each spell adds to it.

    Parameters
    ----------
    spells : polars.DataFrame
        As for `mean_and_influence`, with ``is_good``: it ended in the way that is counted.
    cells, until_s, unit
        As for `mean_and_influence`.

    Returns
    -------
    estimates, influences : polars.DataFrame
        As `mean_and_influence`; the estimate is a share.

    Notes
    -----
    The Aalen-Johansen estimate; an end of another sort moves it by what was still to come.
    """
    rows = with_ties(checked_spells(spells, cells, "compare", also=[unit, "is_good"]))
    sets = risk_sets(rows, cells, {"n_good": pl.col("is_good") & pl.col("ended")})
    n, d = pl.col("n_at_risk"), pl.col("n_events")
    table, estimates = shares(sets.table, until_s)
    table = (
        table.with_columns(later=pl.col("step").cum_sum(reverse=True).over(CELL) - pl.col("step"))
        .with_columns(of_end=-_shared(pl.col("later"), until_s))
        .with_columns(drift=(pl.col("step") + pl.col("of_end") * d) / n)
    )
    return estimates.join(sets.strata, on=CELL), _moved(number(rows, cells)[0], table, unit)


def means(table: pl.DataFrame, until_s: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Restricted mean of each cell, from its risk sets: with ``area``, and the estimates."""
    at = pl.col("duration_s")
    width = (pl.min_horizontal(at.shift(-1).over(CELL).fill_null(until_s), until_s) - at).clip(0)
    known = table.with_columns(survival=survival()).with_columns(area=pl.col("survival") * width)
    first = pl.min_horizontal(at.min(), until_s)
    return known, _estimates(known, pl.col("area").sum() + first, until_s)


def shares(table: pl.DataFrame, until_s: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Share of each cell that came to a good end (``n_good``), as `means`: with its steps."""
    before = pl.col("survival").shift(1, fill_value=1.0).over(CELL)
    is_within = (pl.col("duration_s") <= until_s) & (pl.col("n_events") > 0)
    known = (
        table.with_columns(survival=survival())
        .with_columns(of_good=pl.when(is_within).then(before / pl.col("n_at_risk")).otherwise(0.0))
        .with_columns(step=pl.col("of_good") * pl.col("n_good"))
    )
    return known, _estimates(known, pl.col("step").sum(), until_s)


def _shared(still_to_come: pl.Expr, until_s: float) -> pl.Expr:
    """What is still to come, for each of those that went on; where nobody did, nothing is."""
    left = pl.col("n_at_risk") - pl.col("n_events")
    counts = (left > 0) & (pl.col("duration_s") <= until_s) & (pl.col("n_events") > 0)
    return pl.when(counts).then(still_to_come / left).otherwise(0.0)


def _estimates(table: pl.DataFrame, estimate: pl.Expr, until_s: float) -> pl.DataFrame:
    is_over = pl.col("survival").last() <= TOLERANCE
    return (
        table.group_by(CELL)
        .agg(
            estimate=estimate,
            is_reached=(pl.col("duration_s").max() >= until_s) | is_over,
            is_known=pl.col("from_s").first().is_not_null(),
        )
        .with_columns(is_reached=pl.col("is_reached") & pl.col("is_known"))
        .drop("is_known")
        .sort(CELL)
    )


def _moved(rows: pl.DataFrame, table: pl.DataFrame, unit: str) -> pl.DataFrame:
    """Own ends minus those expected, each weighed as the table says."""
    steps = table.select(
        CELL, "duration_s", "of_good", "of_end", upto=pl.col("drift").cum_sum().over(CELL)
    ).sort("duration_s")
    placed = rows.sort("duration_s").join_asof(
        steps, on="duration_s", by=CELL, check_sortedness=False
    )
    expected = pl.col("upto").fill_null(0.0)
    if "entry_s" in rows.columns:
        entered = steps.select(CELL, pl.col("duration_s").alias("entry_s"), before="upto")
        # Who enters at 0 is there before every end, also before one at 0.
        is_late = pl.col("entry_s") > 0
        came = pl.when(is_late).then("entry_s").otherwise(-1.0).alias("entry_s")
        placed = placed.with_columns(came).sort("entry_s")
        placed = placed.join_asof(entered, on="entry_s", by=CELL, check_sortedness=False)
        expected = expected - pl.col("before").fill_null(0.0)
    own = pl.when("ended").then(pl.col("of_end") + pl.col("of_good") * pl.col("is_good"))
    # Sorted, because the last digit of a sum follows the order of what is added.
    moved = placed.select(CELL, unit, influence=own.fill_null(0.0) - expected)
    return moved.sort(CELL, unit, "influence")

"""How sure an estimate is by independent units: 24 runs of one fan-out are not 24 witnesses.

The infinitesimal jackknife: if all spells of a unit were counted a little more, by how much
would the estimate change? This influence, squared and summed over units, is the variance of
the estimate, however similar the spells of a unit are.

`with_unit_variance` gives it at every duration of an incidence, `corrected_variance` adapts it
to few units; `mean_and_influence` and `incidence_and_influence` give the influence of each
spell at one horizon, for whoever combines several estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations_with_replacement
from statistics import NormalDist

import polars as pl

from stateanalytics.core.joins import collected, collected_all
from stateanalytics.stats.distributions import student_quantiles
from stateanalytics.survival.risk_sets import (
    STRATUM,
    TOLERANCE,
    checked_spells,
    risk_sets,
    survival,
    with_ties,
)

FEWEST_UNITS = 5
"""With fewer units their variance cannot be estimated, and there is no interval."""
MOST_UNITS = 10_000
"""Of twice as many units every second one is taken, and so on: an error of 1.5 % at most."""
UNIT = "unit"
T_RATIO, UNIT_VARIANCE, LAST_COVARIANCE = "_t_ratio", "_unit_variance", "_last_covariance"
MAX_EFFECT, N_IF_IDENTICAL = "_max_effect", "_n_if_identical"
"""Design effect and effective sample size if all spells of a unit were identical."""
_STEP = "_step"
_TERMS = ("a", "c", "r")
_PAIRS = list(combinations_with_replacement(_TERMS, 2))
_PRODUCTS = (*("".join(pair) for pair in _PAIRS), *_TERMS)
_PRIOR_UNITS = 0.25
"""Weight, in units of the rarer answer, of a prior of identical spells within units.

Few such units understate the design effect more often than they overstate it.
"""
_KEYS = ("show_id", "invocation_id", "session_id", "entity_id")


def with_known_units(spells: pl.DataFrame) -> pl.DataFrame:
    """Spells with ``unit``, the show or invocation of a run, where they have the keys of runs.

    A frame that has units keeps them; a spell of unknown unit (null) is a unit of its own. What
    is not a frame is returned as it is: the caller's check of its input explains the mistake.
    """
    if not isinstance(spells, pl.DataFrame):
        return spells
    if UNIT not in spells.columns:
        keys = [name for name in _KEYS if name in spells.columns]
        if not keys or "source" not in spells.columns:
            return spells
        spells = spells.with_columns(
            unit=pl.concat_str("source", pl.coalesce(keys), separator="\n")
        )
    if not spells[UNIT].has_nulls():
        return spells
    own = pl.lit("\n") + pl.int_range(pl.len()).cast(pl.String)
    return spells.with_columns(unit=pl.coalesce(pl.col(UNIT).cast(pl.String), own))


def with_units(spells: pl.DataFrame) -> pl.DataFrame:
    """Spells with their independent unit; without keys, each spell is a unit of its own.

    Examples
    --------
    >>> with_units(pl.DataFrame({"duration_s": [1.0, 2.0]}))["unit"].n_unique()
    2
    """
    spells = with_known_units(spells)
    if not isinstance(spells, pl.DataFrame) or UNIT in spells.columns:
        return spells
    return with_known_units(spells.with_columns(unit=pl.lit(None, pl.String)))


# --- the variance of an incidence at every duration --------------------------------------


def with_unit_variance(
    table: pl.LazyFrame,
    rows: pl.LazyFrame,
    terms: Mapping[str, pl.Expr],
    is_counted: pl.Expr,
    conf_level: float,
) -> pl.LazyFrame:
    """Add the columns that `corrected_variance` needs to the table of an incidence.

    Parameters
    ----------
    table : polars.LazyFrame
        By `STRATUM` and ``duration_s``: ``n_at_risk``, ``n_events``, ``from_s``.
    rows : polars.LazyFrame
        Spells with `STRATUM`, ``ended`` and ``unit``; without units, each spell is its own.
    terms : mapping of str to polars.Expr
        Over ``table``: ``incidence``, ``n_counted`` (the ends that count), and ``increment``,
        by how much one of them raises the incidence.
    is_counted : polars.Expr
        Over ``rows``: which of those that ended count.
    conf_level : float
        Level of the interval.

    Returns
    -------
    polars.LazyFrame
        ``table`` with ``n_units``; `T_RATIO`, the squared ratio of Student's to the normal
        quantile (null: each spell is a unit of its own); `UNIT_VARIANCE`, the variance by unit,
        and `LAST_COVARIANCE`, the covariance with the last incidence of the stratum, both null
        with fewer than `FEWEST_UNITS`. Without a column of units only ``n_units`` is added.
    """
    columns = rows.collect_schema().names()
    has_entries = "entry_s" in columns
    if has_entries:
        # Spells that left before the curve begins are not part of it.
        begin = table.group_by(STRATUM).agg(pl.col("from_s").first())
        rows = rows.join(begin, on=STRATUM).filter(pl.col("duration_s") >= pl.col("from_s"))
    if UNIT not in columns:
        if not has_entries:
            return table.with_columns(n_units=pl.col("n_at_risk").first().over(STRATUM))
        sizes = rows.group_by(STRATUM).agg(n_units=pl.len().cast(pl.Int64))
        return table.join(sizes, on=STRATUM, how="left", maintain_order="left")
    is_late = (pl.col("entry_s") > 0).fill_null(value=False) if has_entries else None
    # Many steps need them, and one plan of all would take twice as long.
    numbered, units = map(pl.DataFrame.lazy, collected_all(*_numbered(rows, is_counted, is_late)))
    strata = unit_summary(units, conf_level)
    estimable = strata.filter(~pl.col("is_alone"), pl.col("n_units") >= FEWEST_UNITS)
    table = table.with_row_index(_STEP)
    variances = _influence_squares(
        table.with_columns(**terms).join(estimable, on=STRATUM, how="semi", maintain_order="left"),
        *_sampled(numbered, units, estimable),
        is_late,
    )
    summary = strata.select(STRATUM, "n_units", T_RATIO, MAX_EFFECT, N_IF_IDENTICAL)
    return (
        table.join(summary, on=STRATUM, how="left", maintain_order="left")
        .join(variances, on=_STEP, how="left", maintain_order="left")
        .drop(_STEP)
    )


def unit_summary(units: pl.LazyFrame, conf_level: float) -> pl.LazyFrame:
    """Per stratum, what `corrected_variance` needs of its units, from their sizes ``m``."""
    quantile = student_quantiles(conf_level, pl.col("degrees"))
    z = NormalDist().inv_cdf((1 + conf_level) / 2)
    m = pl.col("m")
    return (
        units.group_by(STRATUM)
        .agg(
            ((m**2).sum() / m.sum()).alias(MAX_EFFECT),
            (m.sum() ** 2 / (m**2).sum()).alias(N_IF_IDENTICAL),
            n_units=pl.len().cast(pl.Int64),
            is_alone=(m == 1).all(),
            # Satterthwaite: a few large units that dominate leave few degrees of freedom.
            degrees=((m**2).sum() ** 2 / (m**4).sum() - 1).clip(1.0),
        )
        .with_columns(pl.when(~pl.col("is_alone")).then((quantile / z) ** 2).alias(T_RATIO))
    )


def corrected_variance(frame: pl.LazyFrame, share: str, unit_variance: pl.Expr) -> pl.LazyFrame:
    """Replace the variance of a share by the one by unit, and add the width for an interval.

    Parameters
    ----------
    frame : polars.LazyFrame
        From `with_unit_variance`, with the column ``share`` and its ``variance`` as if spells
        were independent, which holds where each is a unit of its own.
    share : str
        The column.
    unit_variance : polars.Expr
        Its variance by unit.

    Returns
    -------
    polars.LazyFrame
        ``variance``: never below that of independent spells, because few units that happen to
        be similar understate it, and drawn towards that of identical spells where few units
        have the rarer answer. ``width``: the variance with which a normal interval is as wide
        as Student's, for the part of it that is due to units.
    """
    if T_RATIO not in frame.collect_schema():
        return frame.with_columns(width="variance")
    effect, value = (unit_variance / pl.col("variance")).clip(1.0), pl.col(share)
    prior = _PRIOR_UNITS * (1 - 1 / effect)
    rarer = pl.min_horizontal(value, 1 - value) * pl.col(N_IF_IDENTICAL)
    shrunk = (effect * rarer + prior * pl.col(MAX_EFFECT)) / (rarer + prior)
    due = pl.col("variance") * (shrunk - 1).clip(0.0).fill_nan(0.0)
    is_alone = pl.col(T_RATIO).is_null()
    return frame.with_columns(
        variance=pl.col("variance") + pl.when(is_alone).then(0.0).otherwise(due),
        width=pl.col("variance") + pl.when(is_alone).then(0.0).otherwise(due * pl.col(T_RATIO)),
    )


def unit_number() -> pl.Expr:
    """A number for each unit of each stratum."""
    number = pl.col(UNIT).rank("dense").cast(pl.UInt64)
    return pl.col(STRATUM).cast(pl.UInt64) * (pl.len() + 1) + number


def leverage_weight() -> pl.Expr:
    """Weight of a unit's squared influence: 1 / (1 - its share of the stratum).

    A unit that is a large part of all draws the estimate to itself, which makes its own
    influence look small.
    """
    m = pl.col("m")
    return 1 / (1 - m / m.sum().over(STRATUM))


def _numbered(
    spells: pl.LazyFrame, is_counted: pl.Expr, is_late: pl.Expr | None
) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Spells with the number of their unit, and units with their number of spells."""
    numbered = spells.select(
        STRATUM,
        pl.col("^(duration|entry)_s$"),
        "ended",
        is_counted=is_counted,
        unit_number=unit_number(),
    )
    units = numbered.group_by("unit_number").agg(
        pl.col(STRATUM).first(),
        m=pl.len().cast(pl.Float64),
        n_from_start=(pl.len() - (0 if is_late is None else is_late.sum())).cast(pl.Float64),
    )
    return numbered, units.sort("unit_number")


def _sampled(
    numbered: pl.LazyFrame, units: pl.LazyFrame, estimable: pl.LazyFrame
) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Spells and units of the strata with a variance; of very many units, every k-th."""
    place = pl.int_range(pl.len()).over(STRATUM)
    interval = (pl.col("n_units") // MOST_UNITS).clip(1)
    sample = (
        units.join(estimable.select(STRATUM, "n_units"), on=STRATUM, maintain_order="left")
        .with_columns(leverage=leverage_weight())
        .filter(place % interval == 0)
        .with_columns(pl.col("leverage") * pl.col("n_units") / pl.len().over(STRATUM))
    )
    return numbered.join(sample, on="unit_number", how="semi", maintain_order="left"), sample


def _influence_squares(
    table: pl.LazyFrame, spells: pl.LazyFrame, units: pl.LazyFrame, is_late: pl.Expr | None
) -> pl.LazyFrame:
    """Sum over units of their squared influence on an incidence, at each duration.

    A counted end at u changes the incidence F(t) by increment(u) - (F(t) - F(u)) / (n - d), any
    other end by the second term only; the compensator takes off, for each spell at risk, the
    same divided by n. So the influence of a unit on F(t) is a + F(t) c + e(t) r, where r is the
    number of its spells at risk, and a, c and r change only when one of its own spells enters
    or leaves: the sums over units of their products are cumulative sums over durations.
    """
    n, d, f = pl.col("n_at_risk"), pl.col("n_events"), pl.col("incidence")
    steps = (
        table.with_columns(
            increment=pl.when(d > 0).then("increment").otherwise(0.0),
            # Where all at risk ended (n = d), nobody is left whose incidence could change.
            per_survivor=pl.when((d > 0) & (n > d)).then(1 / (n - d)).otherwise(0.0),
        )
        .with_columns(f_per_survivor=f * pl.col("per_survivor"))
        .with_columns(
            p=((pl.col("increment") * pl.col("n_counted") + pl.col("f_per_survivor") * d) / n)
            .cum_sum()
            .over(STRATUM),
            q=(pl.col("per_survivor") * d / n).cum_sum().over(STRATUM),
        )
    )
    moves = _moves(steps, spells, is_late)
    last = steps.group_by(STRATUM).agg(f_last=f.last())
    units = (
        units.join(last, on=STRATUM, maintain_order="left")
        .join(
            moves.group_by("unit_number", maintain_order=True).agg(pl.col("a", "c").sum()),
            on="unit_number",
            maintain_order="left",
        )
        .select(
            STRATUM,
            *("unit_number", "n_from_start", "leverage"),
            last=pl.col("a") + pl.col("f_last") * pl.col("c"),
        )
    )
    leverage, n_from_start = pl.col("leverage"), pl.col("n_from_start")
    first = units.group_by(STRATUM).agg(
        rr_first=(leverage * n_from_start**2).sum(),
        r_first=(leverage * n_from_start * pl.col("last")).sum(),
    )
    totals = {name: pl.col(name).fill_null(0.0).cum_sum().over(STRATUM) for name in _PRODUCTS}
    for name in ("rr", "r"):
        totals[name] += pl.col(f"{name}_first")
    factors = {"a": pl.lit(1.0), "c": f, "r": f * pl.col("q") - pl.col("p")}
    return (
        steps.join(_changes(moves, units), on=_STEP, how="left", maintain_order="left")
        .join(first, on=STRATUM, how="left", maintain_order="left")
        .with_columns(**totals)
        .select(
            _STEP,
            pl.sum_horizontal(
                (1 if x == y else 2) * factors[x] * factors[y] * pl.col(x + y) for x, y in _PAIRS
            ).alias(UNIT_VARIANCE),
            pl.sum_horizontal(factors[x] * pl.col(x) for x in _TERMS).alias(LAST_COVARIANCE),
        )
    )


def _changes(moves: pl.LazyFrame, units: pl.LazyFrame) -> pl.LazyFrame:
    """Change, at each step, of the sums over units of the products of a, c and r."""
    # Running sums within a unit are those of all rows minus those before the unit: a window
    # over units would take several times as long.
    is_first = (pl.col("unit_number") != pl.col("unit_number").shift(1)).fill_null(value=True)
    running = {name: pl.col(name).cum_sum() for name in _TERMS}
    before = {
        name: pl.when(is_first).then(total - pl.col(name)).forward_fill()
        for name, total in running.items()
    }
    before["r"] -= pl.col("n_from_start")
    return (
        moves.join(units.drop(STRATUM), on="unit_number", how="left", maintain_order="left")
        .with_columns(**{f"{name}_after": running[name] - before[name] for name in _TERMS})
        .select(
            _STEP,
            *(_change(x, y).alias(x + y) for x, y in _PAIRS),
            *((pl.col("leverage") * pl.col("last") * pl.col(x)).alias(x) for x in _TERMS),
        )
        .sort(_STEP, maintain_order=True)
        .group_by(_STEP, maintain_order=True)
        .sum()
    )


def _change(x: str, y: str) -> pl.Expr:
    """Change of the product of two terms of a unit, when both change in one move."""
    x_after, y_after = pl.col(f"{x}_after"), pl.col(f"{y}_after")
    return pl.col("leverage") * (x_after * pl.col(y) + pl.col(x) * (y_after - pl.col(y)))


def _moves(steps: pl.LazyFrame, spells: pl.LazyFrame, is_late: pl.Expr | None) -> pl.LazyFrame:
    """Entries to and exits from the risk set with their changes of a, c, r; by unit and time."""
    columns = ("increment", "per_survivor", "f_per_survivor", "p", "q")
    at_step = steps.select(STRATUM, _STEP, *columns, at="duration_s").sort("at")

    def placed(spells: pl.LazyFrame, moment: str) -> pl.LazyFrame:
        return spells.sort(moment, maintain_order=True).join_asof(
            at_step, left_on=moment, right_on="at", by=STRATUM, check_sortedness=False
        )

    ended = pl.col("ended").cast(pl.Float64)
    own_end = pl.col("increment") * pl.col("is_counted") + pl.col("f_per_survivor")
    # Float sums depend on the order, so rows get one of their own, whatever order they came in.
    ordered = spells.sort(pl.col("ended").cast(pl.UInt8) + pl.col("is_counted"))
    moves = placed(ordered, "duration_s").select(
        "unit_number",
        _STEP,
        a=ended * own_end - pl.col("p"),
        c=pl.col("q") - ended * pl.col("per_survivor"),
        r=pl.lit(-1.0),
    )
    if is_late is not None:
        # A spell that enters before the first step enters at it.
        first = steps.group_by(STRATUM).agg(first=pl.col(_STEP).min())
        entries = (
            placed(spells.filter(is_late), "entry_s")
            .join(first, on=STRATUM, how="left", maintain_order="left")
            .select(
                "unit_number",
                pl.coalesce(_STEP, "first").alias(_STEP),
                a=pl.col("p").fill_null(0.0),
                c=-pl.col("q").fill_null(0.0),
                r=pl.lit(1.0),
            )
        )
        moves = pl.concat([moves, entries]).sort(_STEP, maintain_order=True)
    return moves.sort("unit_number", maintain_order=True)


# --- the influence of each spell at one horizon ------------------------------------------


def mean_and_influence(
    spells: pl.DataFrame, cells: list[str], until_s: float
) -> tuple[pl.LazyFrame, pl.DataFrame]:
    """Restricted mean duration of each cell, and the influence of each spell on it.

    Parameters
    ----------
    spells : polars.DataFrame
        As for `kaplan_meier`, with ``unit`` and the columns of ``cells``.
    cells : list of str
        Columns that name the cells.
    until_s : float
        The horizon, in seconds.

    Returns
    -------
    estimates : polars.LazyFrame, shape (n_cells, n_columns + 3)
        `STRATUM` (the number of the cell), the columns of ``cells``, ``estimate`` in seconds,
        ``is_reached``: the curve is known up to the horizon.
    influences : polars.DataFrame, shape (n_spells, 3)
        `STRATUM`, ``unit``, ``influence`` (its sum in each cell is 0).

    Notes
    -----
    For each end at u at which it is at risk, a spell changes the area under the product-limit
    curve by -(area from u on) / (n - d) times its own end minus the expected one [1]_.

    References
    ----------
    .. [1] Efron, B. and Stein, C. (1981). The jackknife estimate of variance. Annals of
       Statistics 9, 586-596.
    """
    sets = risk_sets(with_ties(checked_spells(spells, cells, "compare", also=[UNIT])), cells)
    table, estimates = restricted_means(collected(sets.table).lazy(), until_s)
    later_area = pl.col("area").cum_sum(reverse=True).over(STRATUM)
    table = (
        table.with_columns(later=later_area, per_good_end=pl.lit(0.0))
        .with_columns(per_end=_loss_per_survivor(until_s))
        .with_columns(expected=pl.col("per_end") * pl.col("n_events") / pl.col("n_at_risk"))
    )
    numbered = sets.rows.with_columns(is_good=False)
    return estimates.join(sets.strata, on=STRATUM), collected(_influences(numbered, table))


def incidence_and_influence(
    spells: pl.DataFrame, cells: list[str], until_s: float
) -> tuple[pl.LazyFrame, pl.DataFrame]:
    """Share of each cell with a good end by a duration, and the influence of each spell on it.

    Parameters
    ----------
    spells : polars.DataFrame
        As for `mean_and_influence`, with ``is_good``: it ended in the way that is counted.
    cells, until_s
        As for `mean_and_influence`.

    Returns
    -------
    estimates, influences : polars.LazyFrame and DataFrame
        As for `mean_and_influence`; the estimate is a share.

    Notes
    -----
    The Aalen-Johansen estimate; an end of another kind changes it by the later good ends that
    it makes impossible.
    """
    rows = with_ties(checked_spells(spells, cells, "compare", also=[UNIT, "is_good"]))
    sets = risk_sets(rows, cells, {"n_good": pl.col("is_good") & pl.col("ended")})
    n, d = pl.col("n_at_risk"), pl.col("n_events")
    table, estimates = good_shares(collected(sets.table).lazy(), until_s)
    later_steps = pl.col("step").cum_sum(reverse=True).over(STRATUM) - pl.col("step")
    table = (
        table.with_columns(later=later_steps)
        .with_columns(per_end=_loss_per_survivor(until_s))
        .with_columns(expected=(pl.col("step") + pl.col("per_end") * d) / n)
    )
    return estimates.join(sets.strata, on=STRATUM), collected(_influences(sets.rows, table))


def restricted_means(table: pl.LazyFrame, until_s: float) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Risk sets with the ``area`` under each step of the curve, and the restricted means."""
    at = pl.col("duration_s")
    next_at = at.shift(-1).over(STRATUM).fill_null(until_s)
    width = (pl.min_horizontal(next_at, until_s) - at).clip(0)
    steps = table.with_columns(survival=survival())
    steps = steps.with_columns(area=pl.col("survival") * width)
    before_first_step = pl.min_horizontal(at.min(), until_s)
    return steps, _estimates(steps, pl.col("area").sum() + before_first_step, until_s)


def good_shares(table: pl.LazyFrame, until_s: float) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Risk sets with each ``step`` of the incidence of good ends (``n_good``), and the shares."""
    before = pl.col("survival").shift(1, fill_value=1.0).over(STRATUM)
    is_within = (pl.col("duration_s") <= until_s) & (pl.col("n_events") > 0)
    per_good_end = pl.when(is_within).then(before / pl.col("n_at_risk")).otherwise(0.0)
    steps = (
        table.with_columns(survival=survival())
        .with_columns(per_good_end=per_good_end)
        .with_columns(step=pl.col("per_good_end") * pl.col("n_good"))
    )
    return steps, _estimates(steps, pl.col("step").sum(), until_s)


def _loss_per_survivor(until_s: float) -> pl.Expr:
    """What is still to come (``later``) per spell that survives a step, as a loss of one end."""
    n_survivors = pl.col("n_at_risk") - pl.col("n_events")
    has_loss = (n_survivors > 0) & (pl.col("duration_s") <= until_s) & (pl.col("n_events") > 0)
    return -pl.when(has_loss).then(pl.col("later") / n_survivors).otherwise(0.0)


def _estimates(steps: pl.LazyFrame, estimate: pl.Expr, until_s: float) -> pl.LazyFrame:
    is_zero = pl.col("survival").last() <= TOLERANCE
    is_known = pl.col("from_s").first().is_not_null()
    is_reached = ((pl.col("duration_s").max() >= until_s) | is_zero) & is_known
    return steps.group_by(STRATUM).agg(estimate=estimate, is_reached=is_reached).sort(STRATUM)


def _influences(spells: pl.LazyFrame, table: pl.LazyFrame) -> pl.LazyFrame:
    """Own ends minus expected ends of each spell, in the units of the estimate."""
    steps = table.select(
        STRATUM,
        *("duration_s", "per_good_end", "per_end"),
        compensator=pl.col("expected").cum_sum().over(STRATUM),
    ).sort("duration_s")
    placed = spells.sort("duration_s").join_asof(
        steps, on="duration_s", by=STRATUM, check_sortedness=False
    )
    expected = pl.col("compensator").fill_null(0.0)
    if "entry_s" in spells.collect_schema():
        at_entry = steps.select(
            STRATUM, pl.col("duration_s").alias("entry_s"), before_entry="compensator"
        )
        # A spell that enters at 0 is there before every end, also before one at 0.
        entry_s = pl.when(pl.col("entry_s") > 0).then("entry_s").otherwise(-1.0).alias("entry_s")
        placed = placed.with_columns(entry_s).sort("entry_s")
        placed = placed.join_asof(at_entry, on="entry_s", by=STRATUM, check_sortedness=False)
        expected = expected - pl.col("before_entry").fill_null(0.0)
    own = pl.when("ended").then(pl.col("per_end") + pl.col("per_good_end") * pl.col("is_good"))
    # Sorted, because the last digit of a float sum depends on the order.
    influences = placed.select(STRATUM, UNIT, influence=own.fill_null(0.0) - expected)
    return influences.sort(STRATUM, UNIT, "influence")

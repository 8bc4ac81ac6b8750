"""How sure a curve is by its independent units: 24 runs of one fan-out are not 24 witnesses.

The infinitesimal jackknife: were all runs of a unit counted a little more, by how much would
the curve move. Squared and added up over units, that is its variance, however alike the runs
of a unit are.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations_with_replacement
from statistics import NormalDist

import polars as pl

from stateanalytics.stats.distributions import student_quantile
from stateanalytics.survival.risk_sets import STRATUM

FEWEST_UNITS = 5
"""Fewer do not show how alike the runs of a unit are: there is no interval."""
MOST_UNITS = 10_000
"""Of twice as many every second one is taken, and so on: a variance is then known to 1.5 %."""
UNIT = "unit"
_SUMS = ("a", "c", "r")
_PAIRS = list(combinations_with_replacement(_SUMS, 2))
_PRODUCTS = (*("".join(pair) for pair in _PAIRS), *_SUMS)
WIDER, OF_UNITS, WITH_LAST = "_wider", "_of_units", "_with_last"
STEP = "_step"
LARGEST, IF_ALIKE = "_largest_effect", "_n_if_alike"
_ALIKE = 0.25
_KEYS = ("show_id", "invocation_id", "session_id", "entity_id")


def with_known_units(spells: pl.DataFrame) -> pl.DataFrame:
    """Spells with ``unit``, the show or invocation of a run, where they have the keys of runs.

    A frame that names its units keeps them. What is no frame stays as it is, for whoever
    checks it.
    """
    if not isinstance(spells, pl.DataFrame) or UNIT in spells.columns:
        return spells
    known = [name for name in _KEYS if name in spells.columns]
    if not known or "source" not in spells.columns:
        return spells
    return spells.with_columns(unit=pl.concat_str("source", pl.coalesce(known), separator="\n"))


def with_units(spells: pl.DataFrame) -> pl.DataFrame:
    """Spells with what is independent of each other; without keys, each spell is alone.

    Examples
    --------
    >>> with_units(pl.DataFrame({"duration_s": [1.0, 2.0]}))["unit"].to_list()
    ['0', '1']
    """
    known = with_known_units(spells)
    if not isinstance(spells, pl.DataFrame) or UNIT in known.columns:
        return known
    return spells.with_columns(unit=pl.int_range(pl.len()).cast(pl.String))


def with_units_of(
    table: pl.DataFrame,
    rows: pl.DataFrame,
    parts: Mapping[str, pl.Expr],
    is_counted: pl.Expr,
    conf_level: float,
) -> pl.DataFrame:
    """A table of an incidence with what `widened` needs.

    Parameters
    ----------
    table : polars.DataFrame
        By `STRATUM` and ``duration_s``: ``n_at_risk``, ``n_events``, ``from_s``.
    rows : polars.DataFrame
        The spells with `STRATUM`, ``ended`` and ``unit``; without, each is its own.
    parts : mapping of str to polars.Expr
        Over ``table``: ``incidence``, ``n_counted`` (the ends that count), and ``each``, what
        one of them adds to it.
    is_counted : polars.Expr
        Over ``rows``: which of those that ended count.
    conf_level : float
        Of the interval.

    Returns
    -------
    polars.DataFrame
        ``table`` with ``n_units``; `WIDER`, by how much Student's variance exceeds the normal
        one with so many units (null: each spell is a unit of its own); `OF_UNITS`, the variance
        by unit, and `WITH_LAST`, the covariance with the last of the stratum, both null with
        fewer than `FEWEST_UNITS`. Of spells that have no units only ``n_units``.
    """
    if "entry_s" in rows.columns:
        # Who left before the curve begins is no part of it.
        begins = table.group_by(STRATUM).agg(pl.col("from_s").first())
        rows = rows.join(begins, on=STRATUM).filter(pl.col("duration_s") >= pl.col("from_s"))
    if UNIT not in rows.columns:
        if "entry_s" not in rows.columns:
            return table.with_columns(n_units=pl.col("n_at_risk").first().over(STRATUM))
        alone = rows.group_by(STRATUM).agg(n_units=pl.len().cast(pl.Int64))
        return table.join(alone, on=STRATUM, how="left", maintain_order="left")
    numbered, units = _numbered(rows, is_counted)
    strata = unit_facts(units, conf_level)
    told = strata.filter(~pl.col("is_alone"), pl.col("n_units") >= FEWEST_UNITS)
    table = table.with_row_index(STEP)
    of_units = _squares(
        table.with_columns(**parts).join(told, on=STRATUM, how="semi", maintain_order="left"),
        *_sampled(numbered, units, told),
    )
    kept = strata.select(STRATUM, "n_units", WIDER, LARGEST, IF_ALIKE)
    return (
        table.join(kept, on=STRATUM, how="left", maintain_order="left")
        .join(of_units, on=STEP, how="left", maintain_order="left")
        .drop(STEP)
    )


def unit_facts(units: pl.DataFrame, conf_level: float) -> pl.DataFrame:
    """What `widened` needs of the units of each stratum, from how many spells ``m`` each has."""
    quantile = pl.col("degrees").map_elements(
        lambda degrees: student_quantile(conf_level, degrees), return_dtype=pl.Float64
    )
    z = NormalDist().inv_cdf((1 + conf_level) / 2)
    m = pl.col("m")
    return (
        units.group_by(STRATUM)
        .agg(
            ((m**2).sum() / m.sum()).alias(LARGEST),
            (m.sum() ** 2 / (m**2).sum()).alias(IF_ALIKE),
            n_units=pl.len().cast(pl.Int64),
            is_alone=(m == 1).all(),
            # Large units count for more: of them there are fewer.
            degrees=((m**2).sum() ** 2 / (m**4).sum() - 1).clip(1.0),
        )
        .with_columns(pl.when(~pl.col("is_alone")).then((quantile / z) ** 2).alias(WIDER))
    )


def widened(frame: pl.DataFrame, share: str, of_units: pl.Expr) -> pl.DataFrame:
    """A frame with the variance of a share by unit, and the wider one that an interval takes.

    Parameters
    ----------
    frame : polars.DataFrame
        What `with_units_of` gave, with the column ``share`` and its ``variance`` as if spells
        were independent, which holds where each is a unit of its own.
    share : str
        The column.
    of_units : polars.Expr
        Its variance by unit.

    Returns
    -------
    polars.DataFrame
        ``variance``: never below that of independent spells, because few units that happen to
        be alike say too little of how much they vary, and drawn towards that of units alike
        throughout where few are of the rarer sort. ``width``: with it a normal interval is as
        wide as Student's, for the part that is due to units.
    """
    if WIDER not in frame.columns:
        return frame.with_columns(width="variance")
    effect, value = (of_units / pl.col("variance")).clip(1.0), pl.col(share)
    part = _ALIKE * (1 - 1 / effect)
    rarer = pl.min_horizontal(value, 1 - value) * pl.col(IF_ALIKE)
    drawn = (effect * rarer + part * pl.col(LARGEST)) / (rarer + part)
    due = pl.col("variance") * (drawn - 1).clip(0.0).fill_nan(0.0)
    is_alone = pl.col(WIDER).is_null()
    return frame.with_columns(
        variance=pl.col("variance") + pl.when(is_alone).then(0.0).otherwise(due),
        width=pl.col("variance") + pl.when(is_alone).then(0.0).otherwise(due * pl.col(WIDER)),
    )


def unit_number() -> pl.Expr:
    """A number for each unit of each stratum."""
    # One of which nobody knows the unit is alone.
    number = pl.coalesce(pl.col(UNIT).rank("dense"), pl.int_range(pl.len()) + pl.len())
    return pl.col(STRATUM).cast(pl.UInt64) * (2 * pl.len() + 1) + number.cast(pl.UInt64)


def raised() -> pl.Expr:
    """The weight of a unit's square.

    Of one that is a large part of all, its own weight hides how far off it is.
    """
    m = pl.col("m")
    return 1 / (1 - m / m.sum().over(STRATUM))


def _numbered(rows: pl.DataFrame, is_counted: pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spells with the number of their unit, and units with how many spells each has."""
    numbered = rows.select(
        STRATUM,
        pl.col("^(duration|entry)_s$"),
        "ended",
        is_counted=is_counted,
        unit_number=unit_number(),
    )
    units = numbered.group_by("unit_number").agg(
        pl.col(STRATUM).first(),
        m=pl.len().cast(pl.Float64),
        at_first=(pl.len() - _is_late(rows).sum()).cast(pl.Float64),
    )
    return numbered, units.sort("unit_number")


def _sampled(
    numbered: pl.DataFrame, units: pl.DataFrame, told: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Spells and units of the strata that tell a variance; of very many, each so manieth unit."""
    place = pl.int_range(pl.len()).over(STRATUM)
    every = (pl.col("n_units") // MOST_UNITS).clip(1)
    taken = (
        units.join(told.select(STRATUM, "n_units"), on=STRATUM, maintain_order="left")
        .with_columns(raised=raised())
        .filter(place % every == 0)
        .with_columns(pl.col("raised") * pl.col("n_units") / pl.len().over(STRATUM))
    )
    if taken.height == units.height:
        return numbered, taken
    return numbered.join(taken, on="unit_number", how="semi", maintain_order="left"), taken


def _is_late(rows: pl.DataFrame) -> pl.Expr:
    if "entry_s" not in rows.columns:
        return pl.lit(0)
    return (pl.col("entry_s") > 0).fill_null(value=False)


def _squares(table: pl.DataFrame, rows: pl.DataFrame, units: pl.DataFrame) -> pl.DataFrame:
    """Sum over units of the square of what the unit moves an incidence by, at each duration.

    An end at u that counts moves the incidence F(t) by each(u) - (F(t) - F(u)) / (n - d), any
    other end by the second term only; that those at risk were expected to end takes off as
    much per moment as all ends at u share. So a unit moves F(t) by a + F(t) c + e(t) r, where
    a, c and r, how many of it are at risk, change only when one of its own comes or goes: the
    sums over units of their products are sums of steps.
    """
    n, d, f = pl.col("n_at_risk"), pl.col("n_events"), pl.col("incidence")
    steps = (
        table.with_columns(
            each=pl.when(d > 0).then("each").otherwise(0.0),
            of_end=pl.when((d > 0) & (n > d)).then(1 / (n - d)).otherwise(0.0),
        )
        .with_columns(f_of_end=f * pl.col("of_end"))
        .with_columns(
            p=((pl.col("each") * pl.col("n_counted") + pl.col("f_of_end") * d) / n)
            .cum_sum()
            .over(STRATUM),
            q=(pl.col("of_end") * d / n).cum_sum().over(STRATUM),
        )
    )
    moves = _moves(steps, rows)
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
            "unit_number",
            "at_first",
            "raised",
            last=pl.col("a") + pl.col("f_last") * pl.col("c"),
        )
    )
    weight, at_first = pl.col("raised"), pl.col("at_first")
    first = units.group_by(STRATUM).agg(
        rr_first=(weight * at_first**2).sum(), r_first=(weight * at_first * pl.col("last")).sum()
    )
    totals = {name: pl.col(name).fill_null(0.0).cum_sum().over(STRATUM) for name in _PRODUCTS}
    for name in ("rr", "r"):
        totals[name] += pl.col(f"{name}_first")
    times = {"a": pl.lit(1.0), "c": f, "r": f * pl.col("q") - pl.col("p")}
    return (
        steps.join(_changes(moves, units), on=STEP, how="left", maintain_order="left")
        .join(first, on=STRATUM, how="left", maintain_order="left")
        .with_columns(**totals)
        .select(
            STEP,
            pl.sum_horizontal(
                (1 if x == y else 2) * times[x] * times[y] * pl.col(x + y) for x, y in _PAIRS
            ).alias(OF_UNITS),
            pl.sum_horizontal(times[x] * pl.col(x) for x in _SUMS).alias(WITH_LAST),
        )
    )


def _changes(moves: pl.DataFrame, units: pl.DataFrame) -> pl.DataFrame:
    """What happens at each step to the sums over units of the products of their own sums."""
    # Sums within a unit are those of all up to here without those of all before it: a window
    # for each unit would take several times as long.
    is_first = (pl.col("unit_number") != pl.col("unit_number").shift(1)).fill_null(value=True)
    upto = {name: pl.col(name).cum_sum() for name in _SUMS}
    before = {
        name: pl.when(is_first).then(total - pl.col(name)).forward_fill()
        for name, total in upto.items()
    }
    before["r"] -= pl.col("at_first")
    return (
        moves.join(units.drop(STRATUM), on="unit_number", how="left", maintain_order="left")
        .with_columns(**{f"{name}_after": upto[name] - before[name] for name in _SUMS})
        .select(
            STEP,
            *(_change(x, y).alias(x + y) for x, y in _PAIRS),
            *((pl.col("raised") * pl.col("last") * pl.col(x)).alias(x) for x in _SUMS),
        )
        .sort(STEP, maintain_order=True)
        .group_by(STEP, maintain_order=True)
        .sum()
    )


def _change(x: str, y: str) -> pl.Expr:
    """What a move adds to the product of two of a unit's sums."""
    x_after, y_after = pl.col(f"{x}_after"), pl.col(f"{y}_after")
    return pl.col("raised") * (x_after * pl.col(y) + pl.col(x) * (y_after - pl.col(y)))


def _moves(steps: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Who comes under observation or leaves it at which step, by unit and then time."""
    kept = steps.select(
        STRATUM, STEP, "each", "of_end", "f_of_end", "p", "q", at="duration_s"
    ).sort("at")

    def placed(spells: pl.DataFrame, moment: str) -> pl.DataFrame:
        return spells.sort(moment, maintain_order=True).join_asof(
            kept, left_on=moment, right_on="at", by=STRATUM, check_sortedness=False
        )

    ended = pl.col("ended").cast(pl.Float64)
    own = pl.col("each") * pl.col("is_counted") + pl.col("f_of_end")
    # Floats add up to the same only in the same order, whatever order the rows were in.
    ordered = rows.sort(pl.col("ended").cast(pl.UInt8) + pl.col("is_counted"))
    moves = placed(ordered, "duration_s").select(
        "unit_number",
        STEP,
        a=ended * own - pl.col("p"),
        c=pl.col("q") - ended * pl.col("of_end"),
        r=pl.lit(-1.0),
    )
    if "entry_s" in rows.columns:
        late = rows.filter(_is_late(rows))
        # Who enters before the first step enters at it.
        first = steps.group_by(STRATUM).agg(first=pl.col(STEP).min())
        entering = (
            placed(late, "entry_s")
            .join(first, on=STRATUM, how="left", maintain_order="left")
            .select(
                "unit_number",
                pl.coalesce(STEP, "first").alias(STEP),
                a=pl.col("p").fill_null(0.0),
                c=-pl.col("q").fill_null(0.0),
                r=pl.lit(1.0),
            )
        )
        moves = pl.concat([moves, entering]).sort(STEP, maintain_order=True)
    return moves.sort("unit_number", maintain_order=True)

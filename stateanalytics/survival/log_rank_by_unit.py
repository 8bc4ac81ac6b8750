"""How much the log-rank statistic varies, where spells come in units that are alike."""

from __future__ import annotations

import polars as pl

from stateanalytics.survival.by_unit import UNIT
from stateanalytics.survival.risk_sets import STRATUM

TEST = "_test"
FEWEST_UNITS = 4
"""Units of each group: with two, one null test in eight rejects at 5 %, with four one in 20."""
_OWN = [STRATUM, "group"]
_PLACE = [TEST, "group"]


def numbered_units(spells: pl.DataFrame) -> pl.DataFrame:
    """Spells with the number of their unit; of which nobody knows the unit is alone."""
    alone = pl.int_range(pl.len()) + pl.len()
    known = pl.col(UNIT).rank("dense").cast(pl.Int64) if UNIT in spells.columns else None
    return spells.with_columns(unit=alone if known is None else pl.coalesce(known, alone))


def covariance_by_unit(
    spells: pl.DataFrame, table: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Covariance of observed minus expected ends, from what each unit adds to them [1]_.

    Parameters
    ----------
    spells : polars.DataFrame
        With the numbers `TEST`, `STRATUM`, ``group`` and ``unit``.
    table : polars.DataFrame
        What `counts_at_ends` gave of them.

    Returns
    -------
    covariances : polars.DataFrame
        `TEST`, ``group``, ``group_right`` and ``v``, of tests with units of several spells.
    facts : polars.DataFrame
        Of the same tests ``degrees``, of freedom that the covariance is known with, and
        ``n`` spells, and ``is_told``: each group has `FEWEST_UNITS`, or none of several spells.

    Notes
    -----
    A unit adds its own ends minus those that its group's hazard lets expect, so that a group
    which ends faster does not look as if its units differed. What a unit adds is raised for
    its part of the group, which draws the group's hazard to itself (CR2 [2]_).

    References
    ----------
    .. [1] Lin, D. Y. and Wei, L. J. (1989). The robust inference for the Cox proportional
       hazards model. JASA 84, 1074-1078.
    .. [2] Bell, R. M. and McCaffrey, D. F. (2002). Bias reduction in standard errors for
       linear regression with multi-stage samples. Survey Methodology 28, 169-181.
    """
    several = spells.filter(pl.struct(TEST, "unit").is_duplicated()).select(TEST).unique()
    spells = spells.join(several, on=TEST, how="semi")
    steps = (
        table.join(several, on=TEST, how="semi")
        .sort(*_OWN, "duration_s")
        .with_columns(
            hazard=pl.when(pl.col("n_at_risk") > 0)
            .then(pl.col("weight") * pl.col("n_events") / pl.col("n_at_risk"))
            .otherwise(0.0)
        )
        .with_row_index("step")
    )
    placed = _placed(spells, steps)
    # By the hazard of all groups: one in which nothing ended has units, too.
    pooled = (pl.col("weight") * pl.col("d") / pl.col("n")).cum_sum().over(_OWN)
    columns = {"expected": _since_entry(steps.select(pooled).to_series())}
    groups = steps["group"].unique().sort().to_list()
    for group in groups:
        columns[f"u{group}"] = _added(steps, group)
    of_units = (
        placed.select(*_PLACE, "unit", **columns)
        # Floats add up to the same only in the same order, whatever order the rows were in.
        .sort(pl.all())
        .group_by(*_PLACE, "unit", maintain_order=True)
        .agg(pl.len().alias("m"), pl.col(list(columns)).sum())
        .filter(pl.col("expected") > 0)
    )
    expected = pl.col("expected")
    part = expected / expected.sum().over(_PLACE)
    names = [f"u{group}" for group in groups]
    raised = pl.when(part < 1).then((1 - part) ** -0.5).otherwise(0.0)
    added = (
        of_units.with_columns(pl.col(names) * raised)
        .group_by(TEST, "unit", maintain_order=True)
        .agg(pl.col(names).sum())
    )
    products = [
        added.group_by(TEST).agg(
            group=pl.lit(one, pl.UInt32),
            group_right=pl.lit(other, pl.UInt32),
            v=(pl.col(f"u{one}") * pl.col(f"u{other}")).sum(),
        )
        for one in groups
        for other in groups
    ]
    shape = {TEST: pl.UInt32, "group": pl.UInt32, "group_right": pl.UInt32, "v": pl.Float64}
    return pl.concat([pl.DataFrame(schema=shape), *products]), _facts(of_units)


def _placed(spells: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Spells with the last step of their group that they saw, and the last before they came."""
    kept = steps.select(*_OWN, "step", at="duration_s").sort("at")
    moments = {"duration_s": "left"}
    if "entry_s" in spells.columns:
        moments["entry_s"] = "came"
        spells = spells.with_columns(
            pl.when(pl.col("entry_s") > 0).then("entry_s").otherwise(-1.0).alias("entry_s")
        )
    for moment, name in moments.items():
        spells = spells.sort(moment).join_asof(
            kept.rename({"step": name}),
            left_on=moment,
            right_on="at",
            by=_OWN,
            check_sortedness=False,
            coalesce=True,
        ).drop("at", strict=False)  # fmt: skip
    return spells if "entry_s" in moments else spells.with_columns(came=pl.lit(None, pl.UInt32))


def _since_entry(upto: pl.Series) -> pl.Expr:
    """What was added up from when a spell came until it left."""
    left, came = (pl.lit(upto).gather(pl.col(name)).fill_null(0.0) for name in ("left", "came"))
    return left - came


def _added(steps: pl.DataFrame, group: int) -> pl.Expr:
    """What a spell adds to observed minus expected ends of a group."""
    at_risk = steps.filter(group=group).select(
        STRATUM, "duration_s", share=pl.col("n_at_risk") / pl.col("n")
    )
    of_group = steps.join(
        at_risk, on=[STRATUM, "duration_s"], how="left", maintain_order="left"
    ).select(
        *_OWN,
        "weight",
        "hazard",
        distance=(pl.col("group") == group).cast(pl.Float64) - pl.col("share").fill_null(0.0),
    )
    drift = of_group.select((pl.col("distance") * pl.col("hazard")).cum_sum().over(_OWN))
    of_end = of_group.select(pl.col("distance") * pl.col("weight")).to_series()
    own = pl.when("ended").then(pl.lit(of_end).gather(pl.col("left"))).otherwise(0.0)
    return own - _since_entry(drift.to_series())


def _facts(of_units: pl.DataFrame) -> pl.DataFrame:
    """Welch's degrees of freedom of each test, and whether units tell how alike spells are."""
    e, m = pl.col("expected"), pl.col("m")
    of_groups = of_units.group_by(_PLACE, maintain_order=True).agg(
        e.sum(),
        squares=(e**2).sum(),
        degrees=((e**2).sum() ** 2 / (e**4).sum() - 1).clip(1.0),
        n=m.sum(),
        is_told=(pl.len() >= FEWEST_UNITS) | (m == 1).all(),
    )
    # Of a small group each unit counts for more, and of the whole its ends do.
    weight = (1 - e / e.sum().over(TEST)) * pl.col("squares") / e
    return (
        of_groups.with_columns(weight=weight)
        .group_by(TEST)
        .agg(
            degrees=pl.col("weight").sum() ** 2 / (pl.col("weight") ** 2 / pl.col("degrees")).sum(),
            n=pl.col("n").sum(),
            is_told=pl.col("is_told").all(),
        )
    )

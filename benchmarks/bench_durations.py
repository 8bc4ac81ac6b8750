"""A million spells in seven strata: curves and incidences, beside the least they need."""

from __future__ import annotations

import importlib.util

import polars as pl

from benchmarks.measure import Row, side_by_side
from stateanalytics.survival.curves import kaplan_meier
from stateanalytics.survival.incidence import cumulative_incidence
from tests.generators import durations

GOAL_S = 1.0


def run(n_spells: int = 1_000_000) -> list[Row]:
    """Measure; durations are all different, as real ones in microseconds are."""
    spells = made(n_spells)
    rows = []
    for name, work in (
        ("kaplan_meier", lambda: kaplan_meier(spells, by="kind")),
        ("cumulative_incidence", lambda: cumulative_incidence(spells, by="kind")),
    ):
        ours_s, least_s = side_by_side(work, lambda: least(spells))
        rows.append(
            Row(
                work=f"{name}, {n_spells:,} spells in 7 strata",
                ours_s=ours_s,
                peer="only ordering and counting them",
                peer_s=least_s,
                goal=f"≤ {GOAL_S:g} s",
                is_met=ours_s <= GOAL_S,
                differs="no estimate, no interval: the least that any of them needs",
            )
        )
    if importlib.util.find_spec("lifelines"):
        rows.append(beside_lifelines(spells.head(n_spells // 5)))
    return rows


def beside_lifelines(spells: pl.DataFrame) -> Row:
    """One curve of ours beside that of the library that most people know."""
    from lifelines import KaplanMeierFitter

    durations_s, ended = spells["duration_s"].to_list(), spells["ended"].to_list()
    ours_s, peer_s = side_by_side(
        lambda: kaplan_meier(spells), lambda: KaplanMeierFitter().fit(durations_s, ended)
    )
    return Row(
        work=f"kaplan_meier, {spells.height:,} spells",
        ours_s=ours_s,
        peer="lifelines",
        peer_s=peer_s,
        goal="not slower",
        is_met=ours_s <= peer_s,
        differs="its interval is by another formula; ours has the number at risk, too",
    )


def made(n_spells: int) -> pl.DataFrame:
    """Spells of the generator, in seven kinds, with four ways to end."""
    is_over = pl.col("end") != "timed_out"
    return durations(n_spells, seed=1).select(
        "kind", "duration_s", ended=is_over, cause=pl.when(is_over).then("end")
    )


def least(spells: pl.DataFrame) -> pl.DataFrame:
    """Who is at risk and who ends at each duration, with no estimate made of it."""
    counts = spells.group_by("kind", "duration_s").agg(n=pl.len(), d=pl.col("ended").sum())
    return counts.sort("kind", "duration_s").with_columns(
        at_risk=pl.col("n").cum_sum(reverse=True).over("kind")
    )

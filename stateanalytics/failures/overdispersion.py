"""By how much failures vary more than chance alone would have it: learned from the weeks before."""

from __future__ import annotations

from datetime import timedelta

import polars as pl

from stateanalytics.core.windows import Window

STRETCHES = 8
"""As many stretches of the same length before now say how much counts vary."""
PARTS = 7
"""A stretch is cut into so many: a week into its days."""
OF_ALL = 20.0
"""What is common to all clusters counts as much as so many incidents of one's own.

And chance counts as much as so many of them all.
"""


def history(now: Window, past: Window) -> Window:
    """The stretches up to now that counts are learned from; at least the one compared with."""
    length = now.until - now.since
    return Window(
        min(past.since, now.since - STRETCHES * length), past.until, "the stretches before"
    )


def dispersions(incidents: pl.DataFrame, runs: pl.DataFrame, now: Window) -> pl.DataFrame:
    """How many times as much as by chance the incidents of each cluster vary from day to day.

    Parameters
    ----------
    incidents : polars.DataFrame
        ``cluster_id`` and ``at``, the moment of its first failure; one row an incident.
    runs : polars.DataFrame
        ``at``, when each run is counted: quiet days and weekends are not taken for bursts.
    now : Window
        Whose length the stretches have.

    Returns
    -------
    polars.DataFrame
        ``cluster_id`` and ``dispersion``, at least 1: the factor by which variances are
        larger than Poisson's. A cluster without incidents has no row.

    Notes
    -----
    Given the incidents of a stretch, chance deals them out to its days (or sevenths) as the
    runs fall [1]_. The variance beyond that, over all stretches and clusters, is what bursts
    do; that of a cluster is drawn towards it, because a handful of incidents says little.
    What grows from one stretch to the next is no dispersion.

    References
    ----------
    .. [1] McCullagh, P. and Nelder, J. A. (1989). Generalized linear models, section 4.5.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> days = [datetime(2026, 5, day, tzinfo=UTC) for day in range(4, 11)]
    >>> week = Window(days[0], days[0] + timedelta(days=7), "a week")
    >>> runs = pl.DataFrame({"at": days * 9})
    >>> steady = pl.DataFrame({"cluster_id": "a", "at": days * 2})
    >>> burst = pl.DataFrame({"cluster_id": "b", "at": days[:1] * 14})
    >>> found = dispersions(pl.concat([steady, burst]), runs, week).sort("cluster_id")
    >>> found["dispersion"].round(1).to_list()
    [2.7, 7.9]
    """
    length_us = (now.until - now.since) // timedelta(microseconds=1)
    at_us = (pl.col("at") - now.since).dt.total_microseconds()
    placed = {"stretch": at_us // length_us, "part": at_us % length_us * PARTS // length_us}
    grid = pl.concat([runs.select(**placed), incidents.select(**placed)]).select("stretch").unique()
    dealt = runs.select(**placed).group_by("stretch", "part").agg(n_runs=pl.len())
    n_runs = pl.col("n_runs").fill_null(0)
    of_stretch = n_runs.sum().over("stretch")
    shares = (
        grid.join(pl.DataFrame({"part": range(PARTS)}), how="cross")
        .join(dealt, on=["stretch", "part"], how="left")
        # In a stretch without runs, every part is like the other.
        .with_columns(share=pl.when(of_stretch > 0).then(n_runs / of_stretch).otherwise(1 / PARTS))
        .with_columns(same_part=(pl.col("share") ** 2).sort().sum().over("stretch"))
    )
    counted = (
        incidents.select("cluster_id", **placed)
        .group_by("cluster_id", "stretch", "part")
        .agg(n=pl.len().cast(pl.Float64))
        .join(shares, on=["stretch", "part"], how="left")
        # Floats add up to the same only in the same order.
        .sort("cluster_id", "stretch", "part")
        .group_by("cluster_id", "stretch", maintain_order=True)
        .agg(
            pl.col("n").sum(),
            pl.col("same_part").first(),
            squares=(pl.col("n") ** 2).sum(),
            crossed=(pl.col("n") * pl.col("share")).sum(),
        )
    )
    n = pl.col("n")
    seen = pl.col("squares") - 2 * n * pl.col("crossed") + n**2 * pl.col("same_part")
    by_chance = n * (1 - pl.col("same_part"))
    own = counted.group_by("cluster_id", maintain_order=True).agg(
        seen=seen.sum(), by_chance=by_chance.sum()
    )
    # Of few incidents altogether, chance is still the best guess.
    of_all = (pl.col("seen").sum() + OF_ALL) / (pl.col("by_chance").sum() + OF_ALL)
    drawn = (pl.col("seen") + OF_ALL * of_all) / (pl.col("by_chance") + OF_ALL)
    return own.select(
        "cluster_id",
        dispersion=drawn.clip(lower_bound=1.0),
    )

"""What runs cost: as reported, and beside that as estimated from their tokens; never mixed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.errors import ArgumentError
from stateanalytics.failures.failure_rows import window_of
from stateanalytics.failures.price_table import estimated_usd, prices
from stateanalytics.state.definitions import GOOD_ENDS, is_failure
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import counted, rows_of, within

GROUPS = ("system", "model", "provider", "project", "agent", "kind", "playbook")


def costs(
    snap: Facts,
    *,
    by: Sequence[str] | None = ("system", "model"),
    window: object = None,
    policy: Policy | None = None,
    own_prices: str | Path | None = None,
) -> pl.DataFrame:
    """What runs cost, by system and model or what else is asked, reported and estimated.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    by : sequence of str
        Some of ``system``, ``model``, ``provider``, ``project``, ``agent``, ``kind`` and
        ``playbook``; none: all runs together.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which ends count; v1 by default.
    own_prices : str or pathlib.Path, optional
        As for `prices`.

    Returns
    -------
    polars.DataFrame
        One row a group, the dearest first: ``n_runs``, ``n_completed``, ``n_merged``. Then
        twice, for what was reported and (``estimated_…``) for the list prices of the run's
        last model: ``usd``, null where no run has any; ``n`` runs that have it;
        ``per_completed_usd`` and ``per_merged_usd``, of those that have it; ``lost_usd`` to
        runs that are failures.

    Raises
    ------
    ArgumentError
        If ``by`` names something else, or the window or prices make no sense.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> costs(demo(), by=()).select("n_runs", "reported_n", "estimated_n").rows()
    [(1232, 1223, 0)]
    """
    asked = [by] if isinstance(by, str) else list(dict.fromkeys(by or ()))
    if unknown := [name for name in asked if name not in GROUPS]:
        raise ArgumentError(
            f"Costs have no group {unknown[0]!r:.60}; there are {', '.join(GROUPS)}.",
            'by=("system", "model")',
        )
    chosen = window_of(snap, window)
    rows = rows_of(snap, policy=policy)
    told = rows if chosen is None else within(rows, chosen, as_of=snap.as_of)
    return costs_of(told, prices(own_prices), asked)


def costs_of(rows: pl.DataFrame, table: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Sums over runs of a `population`; see `costs` for the columns.

    Parameters
    ----------
    rows : polars.DataFrame
        What `population` gave.
    table : polars.DataFrame
        What `prices` gave.
    by : sequence of str
    """
    runs = counted(rows).filter(pl.col("entity_type") == "session")
    priced = runs.with_columns(
        estimated_usd(runs, table),
        is_good=pl.col("outcome").is_in(list(GOOD_ENDS)).fill_null(value=False),
        is_bad=is_failure().fill_null(value=False),
        is_merged=(pl.col("outcome") == "merged").fill_null(value=False),
    )
    sums = {
        "n_runs": pl.len().cast(pl.Int64),
        "n_completed": pl.col("is_good").sum().cast(pl.Int64),
        "n_merged": pl.col("is_merged").sum().cast(pl.Int64),
    }
    for word, column in (("reported", "cost_usd"), ("estimated", "estimated_usd")):
        sums |= _sums(word, pl.col(column))
    grouped = priced.group_by(by).agg(**sums) if by else priced.select(**sums)
    dearest = pl.max_horizontal("reported_usd", "estimated_usd")
    order = [pl.struct(by)] if by else []
    return grouped.sort(
        dearest, *order, descending=[True, *[False for _ in order]], nulls_last=True
    )


def _sums(word: str, usd: pl.Expr) -> dict[str, pl.Expr]:
    """The sums of one kind of cost, over the runs that have it; the same in any order of them."""
    is_known = usd.is_not_null()

    def total(of: pl.Expr) -> pl.Expr:
        return pl.when(is_known.any()).then(usd.filter(of).sum().round(6))

    def each(of: str) -> pl.Expr:
        n_runs = (pl.col(of) & is_known).sum()
        return pl.when(n_runs > 0).then((usd.sum() / n_runs).round(6))

    return {
        f"{word}_usd": total(is_known),
        f"{word}_n": is_known.sum().cast(pl.Int64),
        f"{word}_per_completed_usd": each("is_good"),
        f"{word}_per_merged_usd": each("is_merged"),
        f"{word}_lost_usd": total(pl.col("is_bad")),
    }

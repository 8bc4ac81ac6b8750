"""What runs cost: as reported, as estimated from their tokens, and the best of both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.own_columns import with_own_column
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.errors import ArgumentError, in_short
from stateanalytics.failures import price_table
from stateanalytics.failures.failure_rows import window_of
from stateanalytics.failures.price_table import estimated_usd
from stateanalytics.state.definitions import GOOD_ENDS, is_failure
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import counted, rows_of, within
from stateanalytics.systems.linking import COUNTS, used_tokens

_OF_RUN = [name for name in COUNTS if name != "n_cache_write_1h_tokens"]
GROUPS = ("system", "model", "provider", "project", "agent", "kind", "playbook")


def costs(
    snap: Facts,
    *,
    by: Sequence[str] | None = ("system", "model"),
    window: object = None,
    policy: Policy | None = None,
    prices: str | Path | None = None,
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
    prices : str or pathlib.Path, optional
        A file of prices of your own, as for `prices`.

    Returns
    -------
    polars.DataFrame
        One row a group, the most expensive first: ``n_runs``, ``n_completed``, ``n_merged``.
        Then for what was ``reported``, what is ``estimated`` by list prices, and the
        ``total`` (as reported where it is, and estimated for the rest): ``…_usd``, null where
        no run has any; ``…_n`` runs that have it; ``…_per_completed_usd`` and
        ``…_per_merged_usd``, of those that have it; ``…_lost_usd`` to runs that are failures.

    Raises
    ------
    ArgumentError
        If ``by`` names something else, or the window or prices make no sense.

    Notes
    -----
    An estimate prices each model's tokens by itself, where the system tells them by model;
    else all of a run's by its last model. Without a price for each there is none. By
    ``model`` a run counts with every model that it used; what it reported, with the last.

    Where a system reports what a session and its subagents cost together, these add
    nothing to the total; answers of a process that was killed are in no report, and estimated.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> costs(demo(), by=()).select("n_runs", "reported_n", "estimated_n").rows()
    [(1232, 1223, 0)]
    """
    asked = [by] if isinstance(by, str) else list(dict.fromkeys(by or ()))
    if unknown := [name for name in asked if name not in GROUPS and "." not in str(name)]:
        raise ArgumentError(
            f"Costs have no group {in_short(unknown[0])}; there are {', '.join(GROUPS)}.",
            'by=("system", "model")',
        )
    chosen = window_of(snap, window)
    rows = rows_of(snap, policy=policy)
    for name in asked:
        rows = with_own_column(rows, name, getattr(snap, "own_tables", {}))
    told = rows if chosen is None else within(rows, chosen, as_of=snap.as_of)
    return costs_of(told, used_tokens(snap), price_table.prices(prices), asked)


def costs_of(
    rows: pl.DataFrame, used: pl.DataFrame, table: pl.DataFrame, by: Sequence[str] = ()
) -> pl.DataFrame:
    """Sums over runs of a `population`; see `costs` for the columns.

    Parameters
    ----------
    rows : polars.DataFrame
        What `population` gave.
    used : polars.DataFrame
        What `used_tokens` gave.
    table : polars.DataFrame
        What `prices` gave.
    by : sequence of str
    """
    runs = counted(rows).filter(pl.col("entity_type") == "session")
    priced = _priced(runs, used, table, by_model="model" in by).with_columns(
        is_good=pl.col("outcome").is_in(list(GOOD_ENDS)).fill_null(value=False),
        is_bad=is_failure().fill_null(value=False),
        is_merged=(pl.col("outcome") == "merged").fill_null(value=False),
    )
    sums = {
        "n_runs": pl.len().cast(pl.Int64),
        "n_completed": pl.col("is_good").sum().cast(pl.Int64),
        "n_merged": pl.col("is_merged").sum().cast(pl.Int64),
    }
    for word in ("reported", "estimated", "total"):
        sums |= _sums(word, pl.col("cost_usd" if word == "reported" else f"{word}_usd"))
    grouped = priced.group_by(by).agg(**sums) if by else priced.select(**sums)
    dearest = pl.max_horizontal("reported_usd", "estimated_usd")
    order = [pl.struct(by)] if by else []
    return grouped.sort(
        dearest, *order, descending=[True, *[False for _ in order]], nulls_last=True
    )


def _priced(
    runs: pl.DataFrame, used: pl.DataFrame, table: pl.DataFrame, *, by_model: bool
) -> pl.DataFrame:
    """Runs with ``estimated_usd``, ``total_usd``; ``by_model`` a row for each model of a run."""
    # A damaged input may tell one key twice: each row stays the run that it is.
    numbered = runs.with_row_index("run")
    of_run = numbered.select("run", *ENTITY_KEY, last_model="model")
    told = used.join(of_run, on=list(ENTITY_KEY)).with_columns(pl.coalesce("model", "last_model"))
    others = numbered.join(told, on="run", how="anti").with_columns(last_model="model")
    of_runs = others.select(
        "run", "model", "last_model", *_OF_RUN, is_cost_recorded=pl.lit(None, pl.Boolean)
    )
    models = pl.concat([told, of_runs], how="diagonal")
    usd, model, is_recorded = pl.col("estimated_usd"), pl.col("model"), pl.col("is_cost_recorded")
    rest = pl.when(is_recorded).then(0.0).otherwise(usd)
    split = (
        models.with_columns(estimated_usd(models, table))
        .group_by("run", *(["model"] if by_model else []))
        .agg(
            estimated_usd=pl.when(usd.is_not_null().all()).then(usd.sum()),
            rest_usd=pl.when(rest.is_not_null().all()).then(rest.sum()),
            is_told_apart=is_recorded.is_not_null().any(),
            is_last=model.eq_missing(pl.col("last_model")).any(),
        )
    )
    is_reported = pl.col("cost_usd").is_not_null()
    rest = pl.when(is_reported, ~pl.col("is_told_apart")).then(0.0).otherwise("rest_usd")
    total = pl.when(is_reported).then(pl.col("cost_usd") + rest).otherwise(rest)
    if not by_model:
        return numbered.join(split, on="run").with_columns(total_usd=total)
    # What a run reported is one number for all of its models.
    is_one = pl.col("run").is_first_distinct()
    return (
        numbered.drop("model")
        .join(split.sort("run", ~pl.col("is_last"), "model"), on="run", maintain_order="right")
        .with_columns(
            cost_usd=pl.when(is_one).then("cost_usd"),
            total_usd=pl.when(is_one).then(total).otherwise(rest),
        )
    )


def _sums(word: str, usd: pl.Expr) -> dict[str, pl.Expr]:
    """The sums of one kind of cost, over the runs that have it; the same in any order of them."""
    is_known = usd.is_not_null()

    def total(of: pl.Expr) -> pl.Expr:
        return pl.when(is_known.any()).then(usd.filter(of).sort().sum().round(6))

    def each(of: str) -> pl.Expr:
        n_runs = (pl.col(of) & is_known).sum()
        return pl.when(n_runs > 0).then((usd.sort().sum() / n_runs).round(6))

    return {
        f"{word}_usd": total(is_known),
        f"{word}_n": is_known.sum().cast(pl.Int64),
        f"{word}_per_completed_usd": each("is_good"),
        f"{word}_per_merged_usd": each("is_merged"),
        f"{word}_lost_usd": total(pl.col("is_bad")),
    }

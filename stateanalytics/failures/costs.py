"""What failed work had cost: time, tokens, dollars, each piece of work counted once."""

from __future__ import annotations

import polars as pl

from stateanalytics.errors import MissingColumnsError

NEEDED = (
    *("source", "system", "entity_type", "entity_id", "session_id"),
    *("started_at", "ended_at", "last_message_at", "end_written_by", "is_end_approximate"),
    *("n_input_tokens", "n_output_tokens", "cost_usd"),
)
COSTS = ("run_s", "n_tokens", "cost_usd")

#: What only holds the work of others; its time is the time of its parts.
CONTAINERS = ("invocation", "show", "team", "schedule", "branch")


def add_costs(failed: pl.DataFrame, entities: pl.DataFrame) -> pl.DataFrame:
    """Which work each failed row stands for, and what that work had cost.

    Parameters
    ----------
    failed : polars.DataFrame
        Failed rows of ``entities``, with columns beyond those.
    entities : polars.DataFrame
        All of them: the sessions behind plays are looked up here.

    Returns
    -------
    polars.DataFrame
        ``failed`` in its order, with ``unit`` (the work, as text: the session of a play;
        null where the row only holds the work of others), ``run_s`` (seconds),
        ``n_tokens`` and ``cost_usd`` of that work. Null: not reported, never free.

    Raises
    ------
    MissingColumnsError
        If a canonical column is absent.

    Notes
    -----
    An end that a reaper wrote, or that is approximate, says when somebody looked; the
    work then ends at its last message, and without one its length is not known. Rows
    share a unit: sum over distinct units.
    """
    if missing := [name for name in NEEDED if name not in entities.columns]:
        raise MissingColumnsError.of(missing, entities.columns, "add_costs (entities)")
    row_key = pl.concat_str("source", "system", "entity_type", "entity_id", separator="|")
    session_key = pl.concat_str("source", "system", pl.lit("session"), "session_id", separator="|")
    priced = entities.select(row_key.alias("unit"), _run_s(), _tokens(), "cost_usd").unique(
        subset="unit", keep="first", maintain_order=True
    )
    is_container = pl.col("entity_type").is_in(CONTAINERS)
    unit = pl.when(~is_container).then(pl.coalesce(session_key, row_key))
    return (
        failed.drop(COSTS, strict=False)
        .with_columns(unit=unit)
        .join(priced, on="unit", how="left", maintain_order="left")
    )


def sum_costs() -> dict[str, pl.Expr]:
    """Sums over distinct units of a group, and how many of them reported nothing.

    Returns
    -------
    dict of str to polars.Expr
        ``run_s``, ``n_tokens``, ``cost_usd``: null where no unit reported any; ``n_work``
        units; ``n_run_unreported``, ``n_tokens_unreported``, ``n_cost_unreported``.
    """
    is_first = pl.col("unit").is_first_distinct() & pl.col("unit").is_not_null()
    sums = {
        name: pl.when(pl.col(name).filter(is_first).count() > 0).then(
            pl.col(name).filter(is_first).sum()
        )
        for name in COSTS
    }
    unreported = {
        f"n_{short}_unreported": pl.col(name).filter(is_first).null_count().cast(pl.Int64)
        for short, name in (("run", "run_s"), ("tokens", "n_tokens"), ("cost", "cost_usd"))
    }
    return {**sums, "n_work": is_first.sum().cast(pl.Int64), **unreported}


def _run_s() -> pl.Expr:
    is_seen_late = (pl.col("end_written_by") == "observer").fill_null(False) | pl.col(
        "is_end_approximate"
    ).fill_null(False)
    end = (
        pl.when(is_seen_late)
        .then(pl.min_horizontal("last_message_at", "ended_at"))
        .otherwise("ended_at")
    )
    known = pl.when(~is_seen_late | pl.col("last_message_at").is_not_null()).then(end)
    seconds = (known - pl.col("started_at")).dt.total_microseconds() / 1e6
    return pl.when(seconds >= 0).then(seconds).alias("run_s")


def _tokens() -> pl.Expr:
    parts = ("n_input_tokens", "n_output_tokens")
    is_reported = pl.any_horizontal(pl.col(part).is_not_null() for part in parts)
    return pl.when(is_reported).then(pl.sum_horizontal(parts)).alias("n_tokens")

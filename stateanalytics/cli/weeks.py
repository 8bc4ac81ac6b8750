"""The command ``weeks``."""

from __future__ import annotations

from collections.abc import Sequence

import click
import polars as pl

from stateanalytics.cli.options import examples, note, sources_argument
from stateanalytics.cli.output import form_of
from stateanalytics.cli.request import READING, Request, limit_option, takes
from stateanalytics.core.units import dollars_each, how_long_each

# What a table has of a week, and what it is called there.
HEADS = {
    **{name: name for name in ("runs", "completed", "timed_out", "incidents")},
    "failure_run_s": "lost",
    "failure_cost_usd": "cost",
    "duration": "median",
    # Known of the last weeks only: the first to go where a line is short.
    "unresolved": "unresolved",
}
SHOWN = ("week", "coverage", "measure", "group_label", "value", "lower", "upper", "n", "n_of")
LIMITED = (*SHOWN[:5], "limit_low", "limit_high", "verdict", "level_since", "n", "n_of")
KINDS = {"numbers": None, "clusters": "cluster", "codes": "code", "kinds": "kind"}


@click.command(
    epilog=examples(
        "stateanalytics weeks state.db",
        "stateanalytics weeks state.db --n 8 --show clusters --top 5",
        "stateanalytics weeks history/ --n 26 --limits",
        "stateanalytics weeks 'fleet/*/state.db' --n 52 --show all -o weeks.parquet",
    )
)
@sources_argument
@click.option(
    "--n",
    "n",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="List so many ISO weeks, up to the one that holds as-of.",
)
@click.option(
    "--show",
    type=click.Choice((*KINDS, "all")),
    default="numbers",
    show_default=True,
    help="Choose what is shown: everything together, failures by cluster or reason code, durations "
    "by kind, or all of it.",
)
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="List so many clusters, codes and kinds.",
)
@click.option(
    "--limits",
    is_flag=True,
    help="Add what chance lets expect of each number, and since when it runs at its level.",
)
@takes(limit_option, *READING)
def weeks(request: Request, *, n: int, show: str, top: int, limits: bool) -> None:
    """List the numbers of the last ISO weeks, each as it stood at its end.

    The five numbers of the report, what failed and what it cost, and the median duration, with
    their intervals in files. What the data do not reach is empty, and said in `coverage`.
    """
    with request.opened() as snap:
        numbers = snap.control_limits if limits else snap.weeks
        frame = numbers(n, policy=request.chosen_policy, top=top)
        if show != "all":
            kind = pl.col("group_kind")
            frame = frame.filter(kind.eq_missing(pl.lit(KINDS[show], pl.String)))
        columns: Sequence[str] | None = LIMITED if limits else SHOWN
        is_table = form_of(request.form, request.output) == "table"
        if is_table and show == "numbers" and not limits:
            for week in frame.filter(coverage="part")["week"].unique().sort():
                note(f"the data cover {week} only in part")
            frame, columns = _by_week(frame), None
        request.write(frame, columns=columns, inputs=snap.inputs)


def _by_week(numbers: pl.DataFrame) -> pl.DataFrame:
    """A row a week, each number of it as people say it."""
    value = pl.col("value")
    said = {
        "share": (100 * value).round().cast(pl.Int64).cast(pl.String) + " %",
        "s": how_long_each(value, is_estimate=True),
        "USD": dollars_each(value),
    }
    unit = pl.col("unit").str.replace(" of .*", "")
    texts = pl.lit(None, pl.String)
    for name, text in said.items():
        texts = pl.when(unit == name).then(text).otherwise(texts)
    whole = value.cast(pl.Int64, strict=False).cast(pl.String)
    texts = pl.when(unit.is_in(list(said))).then(texts).otherwise(whole)
    said_of = (
        numbers.filter(pl.col("measure").is_in(list(HEADS)))
        .select("week", head=pl.col("measure").replace(HEADS), said=texts)
        .pivot("head", index="week", values="said")
    )
    in_order = said_of.select("week", *(head for head in HEADS.values() if head in said_of))
    # Weeks before the first that anything is known of are lines without a word.
    is_known = pl.any_horizontal(pl.exclude("week").is_not_null())
    begun = in_order.filter(is_known.cum_sum() > 0)
    return in_order if begun.is_empty() else begun

"""The command ``weeks``."""

from __future__ import annotations

import click
import polars as pl

from stateanalytics.cli.options import examples, sources_argument
from stateanalytics.cli.request import READING, Request, limit_option, takes

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
    their intervals. What the data do not reach is empty, and said in `coverage`.
    """
    with request.opened() as snap:
        numbers = snap.control_limits if limits else snap.weeks
        frame = numbers(n, policy=request.chosen_policy, top=top)
        if show != "all":
            kind = pl.col("group_kind")
            frame = frame.filter(kind.eq_missing(pl.lit(KINDS[show], pl.String)))
        request.write(frame, columns=LIMITED if limits else SHOWN, inputs=snap.inputs)

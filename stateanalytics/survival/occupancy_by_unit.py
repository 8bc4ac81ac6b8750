"""How sure shares of states are by independent units, whatever the runs of one have in common.

The infinitesimal jackknife of the Aalen-Johansen estimate: were all runs of a unit counted a
little more, by how much would each share move. A transition moves it by what came of those who
went against what came of those who stayed, and each run at risk of it by as much the other way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import polars as pl

from stateanalytics.survival.by_unit import OF_UNITS

Jumps: TypeAlias = dict[int, tuple[float, list[tuple[int, float]]]]
"""State to how many were in it, and how many went from it to which."""
Matrix: TypeAlias = list[list[float]]
Rows: TypeAlias = list[tuple[float, ...]]


class Change(NamedTuple):
    """A moment at which runs went from one state to another.

    Attributes
    ----------
    at : float
        Seconds.
    share : list of float
        Of each state, just before.
    jumps : Jumps
        Who went.
    """

    at: float
    share: list[float]
    jumps: Jumps


def variances_of_states(
    stretches: pl.DataFrame,
    place: Mapping[str, int],
    changes: Sequence[Change],
    moments: Sequence[float],
) -> pl.DataFrame:
    """Variance of each state's share by unit, at some moments.

    Parameters
    ----------
    stretches : polars.DataFrame
        Of one stratum: ``state``, ``from_s``, ``until_s``, ``next_state``; ``unit_number`` and
        ``raised``, the weight of its square.
    place : mapping of str to int
        The place of each state in shares.
    changes : sequence of Change
        In order.
    moments : sequence of float
        Ascending.

    Returns
    -------
    polars.DataFrame, shape (n_moments * n_states, 3)
        ``duration_s``, ``state``, and `OF_UNITS`.
    """
    names = [str(number) for number in range(len(place))]
    rows = stretches.select(
        *("from_s", "until_s", "unit_number", "raised"),
        state=pl.col("state").replace_strict(place, return_dtype=pl.Int64),
        then=pl.col("next_state").replace_strict(place, return_dtype=pl.Int64),
        # Floats add up to the same only in the same order, whatever order the rows were in.
    ).sort("unit_number", "from_s", "until_s", "state", "then")
    moved, since, told = _at_first(rows, names), float("-inf"), []
    for moment in moments:
        within = [change for change in changes if since < change.at <= moment]
        if within:
            steps, owns, chances = _backwards(within, len(names))
            own = _added(rows.filter(pl.col("until_s") > since), steps, owns, names, moment)
            passed = (
                pl.sum_horizontal(pl.col(i) * chances[int(i)][int(j)] for i in names).alias(j)
                for j in names
            )
            moved = (
                pl.concat([moved.with_columns(passed), own])
                .group_by("unit_number", "raised", maintain_order=True)
                .sum()
            )
        since = moment
        squares = moved.select((pl.col(name) ** 2 * pl.col("raised")).sum() for name in names)
        told += [(moment, state, squares.item(0, number)) for state, number in place.items()]
    shape = {"duration_s": pl.Float64, "state": pl.String, OF_UNITS: pl.Float64}
    return pl.DataFrame(told, schema=shape, orient="row")


def _at_first(rows: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """What each unit adds to the shares with which lives begin."""
    first = rows.filter(pl.col("from_s") == pl.col("from_s").min())
    is_of = {name: (pl.col("state") == int(name)).cast(pl.Float64) for name in names}
    added = first.select(
        "unit_number",
        "raised",
        *(((is_so - is_so.mean()) / pl.len()).alias(name) for name, is_so in is_of.items()),
    )
    others = rows.select("unit_number", "raised", *(pl.lit(0.0).alias(name) for name in names))
    return (
        pl.concat([added, others.unique("unit_number")])
        .sort("unit_number")
        .group_by("unit_number", "raised", maintain_order=True)
        .sum()
    )


def _backwards(changes: Sequence[Change], size: int) -> tuple[Rows, Rows, Matrix]:
    """From the last change to the first: what each moves the shares after all of them by.

    Returns
    -------
    steps : list of tuple
        Moment and state, and how much less of each state for each run at risk there.
    owns : list of tuple
        Moment, state and next state, and how much more for each run that went.
    chances : list of list of float
        Of each state before all changes, to be in each after them.
    """
    chances = [[float(i == j) for j in range(size)] for i in range(size)]
    steps: Rows = []
    owns: Rows = []
    for at, share, jumps in reversed(changes):
        before = list(chances)
        for state, (n, went) in jumps.items():
            least, stayed = [0.0] * size, chances[state]
            weight = share[state] / n
            for then, d in went:
                gain = [went_on - here for went_on, here in zip(chances[then], stayed, strict=True)]
                owns.append((at, state, then, *(weight * more for more in gain)))
                least = [all_of + d / n * more for all_of, more in zip(least, gain, strict=True)]
            before[state] = [here + more for here, more in zip(stayed, least, strict=True)]
            steps.append((at, state, *(weight * more for more in least)))
        chances = before
    return steps[::-1], owns, chances


def _added(
    rows: pl.DataFrame,
    steps: Rows,
    owns: Rows,
    names: Sequence[str],
    until: float,
) -> pl.DataFrame:
    """What each stretch adds: its own change, minus those that it was at risk of."""
    numbers = dict.fromkeys(names, pl.Float64)
    key = {"at": pl.Float64, "state": pl.Int64}
    upto = pl.DataFrame(steps, schema={**key, **numbers}, orient="row").with_columns(
        pl.col(names).cum_sum().over("state")
    )
    own = pl.DataFrame(owns, schema={**key, "then": pl.Int64, **numbers}, orient="row")
    there = rows.filter(pl.col("from_s") < until)

    def passed(moment: pl.Expr, sign: int) -> pl.DataFrame:
        """All that stretches of a state were at risk of up to a moment."""
        return (
            there.with_columns(at=moment)
            .sort("at")
            .join_asof(upto, on="at", by="state", check_sortedness=False)
            .select("unit_number", "raised", pl.col(names).fill_null(0.0) * sign)
        )

    went = there.filter(pl.col("until_s") <= until, pl.col("then").is_not_null())
    parts = [
        went.with_columns(at="until_s")
        .join(own, on=["at", "state", "then"], maintain_order="left")
        .select("unit_number", "raised", *names),
        passed(pl.min_horizontal("until_s", pl.lit(until)), -1),
        passed(pl.col("from_s"), 1),
    ]
    return pl.concat(parts).group_by("unit_number", "raised", maintain_order=True).sum()

"""Which verdict there would be without each single unit: of all units at once, by moments.

What a verdict rests on (sums, squares, how many units were hit) loses one unit by taking its
part from the moments of all, so that nothing is counted again. One row is a unit and a
candidate: few expressions over many rows, which takes a tenth of a loop over units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from stateanalytics.state.population import FEWEST_PROJECTS
from stateanalytics.stats.intervals import two_sided_z
from stateanalytics.thresholds.counts import EXPOSURE, Support, mistake_columns, waiting_columns
from stateanalytics.thresholds.rules import (
    ALIKE,
    FEWEST_AT_RISK,
    FEWEST_HIT,
    MUCH,
    MUCH_PER_HUNDRED,
    NEAR,
)


@dataclass(frozen=True)
class Without:
    """What there is to decide by; see `choose` for the same of all units.

    Attributes
    ----------
    counts : polars.DataFrame
        Mistakes and waiting, one row a unit.
    support : Support
        The candidates, and how many units were seen so far.
    price, hour, conf_level : float
        What a mistake and an hour of waiting cost, and the level of the intervals.
    today_s : float or None
        Today's value.
    order : sequence of int
        Places of the candidates, those nearest to today's first.
    undecided : str
        The verdict where nothing is known.
    """

    counts: pl.DataFrame
    support: Support
    price: float
    hour: float
    conf_level: float
    today_s: float | None
    order: Sequence[int]
    undecided: str

    def verdicts(self) -> pl.Series:
        """One for each unit, in the order of the counts; null: without it nothing is known."""
        rows = self._rows()
        tried = self.support.candidates_s
        today = tried.index(self.today_s) if self.today_s in tried else None
        bases = {*rows["best"].unique().drop_nulls(), *([] if today is None else [today])}
        ends = {base: self._saved(rows, base) for base in bases}
        dearer = [pl.when(pl.col("best") == base).then(ends[base]["high"]) for base in bases]
        columns = {"dearer_high": pl.coalesce(*dearer, pl.lit(None, pl.Float64))}
        if today is not None:
            columns |= {f"today_{end}": pl.lit(ends[today][end]) for end in ("low", "high")}
        rows = rows.with_columns(**columns)
        return self._decided(rows, today)

    def _rows(self) -> pl.DataFrame:
        """A row a unit and candidate, with what is left without the unit."""
        limits, n = self.support.candidates_s, self.counts.height
        has_projects = "project" in self.counts.columns
        units = self.counts.select(
            EXPOSURE,
            unit=pl.int_range(n),
            # A unit without a project is of no other's.
            group=pl.col("project").rank("dense").cast(pl.Int64).fill_null(-pl.int_range(1, n + 1))
            if has_projects
            else pl.lit(0),
        )
        is_lone, is_known = pl.len().over("group") == 1, pl.col("group") > 0
        units = units.with_columns(
            n_groups=pl.col("group").n_unique() - is_lone.cast(pl.Int64),
            n_projects=pl.col("group").filter(is_known).n_unique()
            - (is_lone & is_known).cast(pl.Int64),
        )
        places = pl.DataFrame(
            {
                "place": range(len(limits)),
                "limit_s": limits,
                "weight": self.support.weights,
                "n_at_risk": self.support.n_at_risk,
                "rank": [list(self.order).index(place) for place in range(len(limits))],
            }
        )
        wide = [
            self.counts.select(names)
            for names in (mistake_columns(limits), waiting_columns(limits))
        ]
        mistakes, waiting = (
            pl.concat([frame.to_series(place).cast(pl.Float64) for place in range(len(limits))])
            for frame in wide
        )
        rows = (
            places.join(units, how="cross", maintain_order="left_right")
            .with_columns(pl.col("place").set_sorted(), mistakes=mistakes, waiting=waiting)
            .with_columns(left=_left(pl.col(EXPOSURE)))
            .with_columns(left=pl.when(pl.col("left") > 0).then("left"))
        )
        each = pl.col("mistakes")
        together = pl.when(_left((each > 0).cast(pl.Int64)) >= FEWEST_HIT).then(
            pl.max_horizontal(_left(each**2) / _left(each), 1.0)
        )
        cost, tie = pl.col("cost"), pl.col("cost").min().over("unit")
        is_least = cost <= tie + ALIKE * tie.abs()
        return (
            rows.with_columns(
                mistakes_left=_left(each), waiting_left=_left(pl.col("waiting")), together=together
            )
            # Where hardly any was hit, as many come together as shortly before.
            .with_columns(pl.col("together").forward_fill().over("unit").fill_null(1.0))
            .with_columns(together=pl.max_horizontal("together", "weight"))
            .with_columns(cost=self._priced(pl.col("mistakes_left"), pl.col("waiting_left")))
            .with_columns(best=pl.when(is_least).then("rank").min().over("unit"))
            .with_columns(best=pl.lit(pl.Series(self.order, dtype=pl.Int64)).gather("best"))
        )

    @property
    def _n_places(self) -> int:
        return len(self.support.candidates_s)

    def _priced(self, mistakes: pl.Expr, hours: pl.Expr) -> pl.Expr:
        return 100 / pl.col("left") * (self.price * mistakes + self.hour * hours)

    def _saved(self, rows: pl.DataFrame, base: int) -> pl.DataFrame:
        """Both ends of what moving from a candidate to each one saves, row by row."""
        own = rows.filter(place=base).select(base_m="mistakes", base_w="waiting", base_t="together")
        is_later, is_base = pl.col("place") > base, pl.col("place") == base
        sign = pl.when(is_later).then(1.0).otherwise(-1.0)
        limit, weight = self.support.candidates_s[base], self.support.weights[base]
        step = (pl.col("limit_s") - limit).abs() / 3600 * self.support.waits
        later_together = pl.when(is_later).then("together").otherwise("base_t")
        kept = ("place", "group", EXPOSURE, "left", "n_groups", "n_projects", "limit_s")
        # Rows are in order of candidates, each with every unit.
        pairs = pl.concat([rows, pl.concat([own] * self._n_places)], how="horizontal")
        fewer = pairs.select(
            *kept,
            each=sign * (pl.col("base_m") - pl.col("mistakes")),
            heavy=pl.when(is_base).then(0.0).otherwise(later_together),
        ).pipe(self._intervals)
        longer = pairs.select(
            *kept,
            each=sign * (pl.col("waiting") - pl.col("base_w")),
            heavy=step * pl.when(is_later).then("weight").otherwise(weight),
        ).pipe(self._intervals)
        last = self._n_places - 1
        is_beyond = (pl.lit(base == last) | (pl.col("place") == last)) & self.support.is_beyond
        unseen = pl.when(is_beyond).then(self.support.n_open).otherwise(0.0)
        scaled = pl.concat(
            [
                pairs.select("place", scale=100 / pl.col("left")),
                fewer.rename(lambda name: f"fewer_{name}"),
                longer.rename(lambda name: f"longer_{name}"),
            ],
            how="horizontal",
        ).with_columns(fewer_high=pl.col("fewer_high") + unseen)
        m, w = (
            [pl.col("scale") * cost * pl.col(f"{name}_{end}") for end in ("total", "low", "high")]
            for name, cost in (("fewer", self.price), ("longer", self.hour))
        )
        return scaled.with_columns(
            gain=m[0] - w[0],
            below=((m[0] - m[1]) ** 2 + (w[2] - w[0]) ** 2).sqrt(),
            above=((m[2] - m[0]) ** 2 + (w[0] - w[1]) ** 2).sqrt(),
        ).select(
            low=pl.when(is_later).then(pl.col("gain") - pl.col("below"))
            .otherwise(-pl.col("gain") - pl.col("above")),
            high=pl.when(is_later).then(pl.col("gain") + pl.col("above"))
            .otherwise(pl.col("below") - pl.col("gain")),
        )  # fmt: skip

    def _intervals(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The sums of ``each`` over the other units, with both ends: `weighted_count`."""
        each, heavy, total = pl.col("each"), pl.col("heavy"), pl.col("total")
        moments = rows.with_columns(
            total=_left(each),
            n_hit=_left((each > 0).cast(pl.Int64)),
            n=pl.lit(self.counts.height - 1),
            xx=_left(each**2),
            xe=_left(each * pl.col(EXPOSURE)),
            ee=_left(pl.col(EXPOSURE) ** 2),
        ).with_columns(rate=total / pl.col("left"))
        variance = pl.col("variance")
        moments = moments.with_columns(variance=_variance("n", "xx", "xe", "ee"))
        if (rows["n_projects"] >= FEWEST_PROJECTS).any():
            x, e = (pl.col(name).sum().over("place", "group") for name in ("each", EXPOSURE))
            moments = (
                moments.with_columns(x=x, e=e)
                .with_columns(
                    gxx=_products_left(each, each, "x", "x"),
                    gxe=_products_left(each, pl.col(EXPOSURE), "x", "e"),
                    gee=_products_left(pl.col(EXPOSURE), pl.col(EXPOSURE), "e", "e"),
                )
                .with_columns(
                    variance=pl.when(pl.col("n_projects") >= FEWEST_PROJECTS)
                    .then(pl.max_horizontal(variance, _variance("n_groups", "gxx", "gxe", "gee")))
                    .otherwise(variance)
                )
            )
        z = two_sided_z(self.conf_level)
        cautious = pl.max_horizontal(variance, heavy * total)
        low, high = pl.col("spread"), pl.col("spread") + heavy**2
        return moments.with_columns(
            spread=pl.when(pl.col("n_hit") >= FEWEST_HIT).then(variance).otherwise(cautious)
        ).select(
            "total",
            low=pl.when(total > 0).then(_gamma_quantile(total, low, -z)).otherwise(0.0),
            high=_gamma_quantile(total + heavy, high, z),
        )

    def _decided(self, rows: pl.DataFrame, today: int | None) -> pl.Series:
        cost, price = pl.col("cost"), self.price
        of_best = pl.when(pl.col("place") == pl.col("best")).then("cost").max()
        at_best = of_best.over("unit")
        slack = ALIKE * at_best.abs()
        is_alike = pl.col("dearer_high") >= -slack
        is_near = (
            is_alike
            & (pl.col("n_at_risk") >= FEWEST_AT_RISK)
            & (cost <= (1 + NEAR) * at_best + slack)
            & (pl.lit(value=True) if today is None else pl.col("today_low") > slack)
        )
        rows = rows.with_columns(beyond=self._beyond(), is_alike=is_alike, is_near=is_near)
        is_today = pl.col("place") == (-1 if today is None else today)
        taken = pl.col("rank") == pl.when("is_near").then("rank").min()
        units = rows.group_by("unit", maintain_order=True).agg(
            best_cost=of_best,
            taken_beyond=pl.when(taken).then("beyond").max(),
            today_cost=pl.when(is_today).then("cost").max(),
            today_beyond=pl.when(is_today).then("beyond").max(),
            is_alike=pl.when(is_today).then("is_alike").max(),
            could=pl.lit(None, pl.Float64) if today is None else pl.col("today_high").max(),
        )
        much, little = (
            pl.max_horizontal(MUCH * pl.col(name), MUCH_PER_HUNDRED * price)
            for name in ("best_cost", "today_cost")
        )
        moved = "choose" if self.today_s is None else "change"
        if today is None and self.today_s is not None:
            moved = self.undecided
        could = pl.max_horizontal("could", "today_beyond")
        return units.select(
            verdict=pl.when(pl.col("best_cost").is_null()).then(None)
            .when(pl.col("is_alike") & (could <= little)).then(pl.lit("keep"))
            .when("is_alike").then(pl.lit(self.undecided))
            .when(pl.col("taken_beyond") <= much).then(pl.lit(moved))
            .otherwise(pl.lit(self.undecided))
        )["verdict"]  # fmt: skip

    def _beyond(self) -> pl.Expr:
        """What going on beyond the last candidate could save at most."""
        if not self.support.n_open:
            return pl.lit(-math.inf)
        is_last = pl.col("place") == self._n_places - 1 - self.support.is_beyond
        mistakes, hours = (
            pl.col(f"{name}_left") - pl.when(is_last).then(f"{name}_left").max().over("unit")
            for name in ("mistakes", "waiting")
        )
        return self._priced(mistakes + self.support.n_open, hours)


def _left(each: pl.Expr) -> pl.Expr:
    """The sum over all units of a candidate but this one."""
    return each.sum().over("place") - each


def _products_left(first: pl.Expr, second: pl.Expr, a: str, b: str) -> pl.Expr:
    """The sum, over projects, of the products of their sums, of which one has lost this unit."""
    of_first, of_second = pl.col(a), pl.col(b)
    # Each row has a part of its project's product: the rows of a project add up to it.
    every = (first * of_second).sum().over("place")
    return every - of_first * of_second + (of_first - first) * (of_second - second)


def _variance(n: str, squares: str, crossed: str, exposures: str) -> pl.Expr:
    """Of the sum that is left, in relation to the exposure that comes with it."""
    rate = pl.col("rate")
    rest = pl.col(squares) - 2 * rate * pl.col(crossed) + rate**2 * pl.col(exposures)
    n_left = pl.col(n)
    scaled = n_left / (n_left - 1) * rest.clip(lower_bound=0.0)
    return pl.when(n_left >= 2).then(scaled).otherwise(0.0)


def _gamma_quantile(mean: pl.Expr, variance: pl.Expr, z: float) -> pl.Expr:
    spread = variance / (9 * mean**2)
    cube = (1 - spread + z * spread.sqrt()).clip(lower_bound=0.0) ** 3
    return pl.when((variance <= 0) | (mean <= 0)).then(mean).otherwise(mean * cube)

"""How surprising a silence is, on one scale: phi, after the silences of its kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import polars as pl

from stateanalytics.errors import ArgumentError, check_columns, did_you_mean, in_short
from stateanalytics.survival.curves import kaplan_meier

_LOG10_E = math.log10(math.e)
# Akka's stand-in for the normal tail: 1 / (1 + exp(y (A + B y²))).
_A, _B = 1.5976, 0.070566
_LEAST_SPREAD_S = 0.1
_TICK_S = 1e-6
# Survival is a product of floats: a tenth may come out a little above a tenth.
_EPS = 1e-9


def phi(
    gaps: pl.DataFrame,
    silences_s: Iterable[float],
    *,
    by: str | Sequence[str] = ("kind",),
    model: str = "empirical",
) -> pl.DataFrame:
    """How surprising silences are: 1 is longer than nine in ten, 2 than 99 in a hundred.

    Parameters
    ----------
    gaps : polars.DataFrame, shape (n_gaps, ...)
        Silences as `silence_gaps` gives them: ``gap_s``, ``closed_by``, ``left_out``.
        Without ``closed_by``, all count as closed by a sign of life.
    silences_s : iterable of float
        Lengths to rate, in seconds, at least 0.
    by : str or sequence of str
        Columns whose groups have a scale of their own.
    model : {"empirical", "exponential", "normal"}
        What the silences did; or, for comparison, the models of Cassandra and of Akka.

    Returns
    -------
    polars.DataFrame, shape (n_groups * n_silences, n_by + 4)
        ``by``, ``silence_s``, ``phi``; ``is_capped``: the data end before, so phi is at
        least so high; ``n_gaps`` of the group. Sorted by ``by`` and ``silence_s``. Phi is
        null in groups where no silence was closed by a sign of life.

    Raises
    ------
    ArgumentError
        If a length or the model makes no sense.
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    ``phi(t) = -log10 P(a silence lasts longer than t)`` [1]_. The empirical tail is the
    Kaplan-Meier curve of the group's silences; those that as-of or the run's own end cut
    off are censored. Silences of dead runs, and those that an observer ended, tell nothing
    about living ones and are left out. Phi is capped at log10 of the number of silences.

    Agents have heavy tails (a long tool call is normal), so both models call them far too
    surprising. Exponential is ``t / mean * log10(e)``; normal is Akka's approximation,
    with a spread of at least 0.1 s.

    References
    ----------
    .. [1] Hayashibara, N., Défago, X., Yared, R. and Katayama, T. (2004). The phi accrual
       failure detector. SRDS 2004, 66-78.

    Examples
    --------
    >>> gaps = pl.DataFrame({"kind": "agent", "gap_s": [float(s) for s in range(1, 11)]})
    >>> phi(gaps, [9.0, 60.0]).select(pl.col("phi").round(6), "is_capped").rows()
    [(1.0, False), (1.0, True)]
    >>> phi(gaps, [5.5], model="exponential")["phi"].round(4).item()
    0.4343
    """
    chosen = _model(model)
    strata, groups, silences = _grouped(gaps, by, "phi")
    lengths = sorted({_checked("silences_s", length) for length in silences_s})
    asked = pl.DataFrame({"silence_s": lengths}, schema={"silence_s": pl.Float64})
    rated = chosen.rate(groups.join(asked, how="cross"), silences)
    return rated.sort("group", "silence_s").select(
        *strata, "silence_s", "phi", "is_capped", "n_gaps"
    )


def phi_threshold(
    gaps: pl.DataFrame,
    level: float,
    *,
    by: str | Sequence[str] = ("kind",),
    model: str = "empirical",
) -> pl.DataFrame:
    """The shortest silence that is so surprising, for each group.

    Parameters
    ----------
    gaps, by, model
        As for `phi`.
    level : float
        Phi to reach, above 0.

    Returns
    -------
    polars.DataFrame, shape (n_groups, n_by + 3)
        ``by``, ``phi``, ``threshold_s``: null where the data do not reach so far; ``n_gaps``.

    Raises
    ------
    ArgumentError, MissingColumnsError
        As for `phi`.

    Examples
    --------
    >>> gaps = pl.DataFrame({"kind": "agent", "gap_s": [float(s) for s in range(1, 11)]})
    >>> [phi_threshold(gaps, level)["threshold_s"].item() for level in (1, 2)]
    [9.0, None]
    """
    chosen = _model(model)
    if _checked("level", level) == 0:
        raise ArgumentError("phi_threshold needs a level above 0; found 0.", "level=3")
    strata, groups, silences = _grouped(gaps, by, "phi_threshold")
    return (
        chosen.reach(groups, silences, float(level))
        .sort("group")
        .select(*strata, phi=pl.lit(float(level)), threshold_s="threshold_s", n_gaps="n_gaps")
    )


# --- what silences are taken to follow -------------------------------------------------


@dataclass(frozen=True)
class Model:
    """How surprising lengths are in each group, and which length is so surprising."""

    rate: Callable[[pl.DataFrame, pl.DataFrame], pl.DataFrame]
    reach: Callable[[pl.DataFrame, pl.DataFrame, float], pl.DataFrame]


def _rate_empirical(grid: pl.DataFrame, silences: pl.DataFrame) -> pl.DataFrame:
    last = silences.group_by("group").agg(last_s=pl.col("duration_s").max())
    tail = _tail(silences).sort("duration_s")
    rated = (
        grid.sort("silence_s")
        .join_asof(
            tail, left_on="silence_s", right_on="duration_s", by="group", check_sortedness=False
        )
        .join(last, on="group", how="left")
    )
    reached, cap = pl.col("tail").fill_null(0.0), pl.col("n_gaps").log10()
    is_beyond = (pl.col("silence_s") >= pl.col("last_s")) | (reached > cap + _EPS)
    return rated.with_columns(
        phi=pl.when(pl.col("n_spoke") > 0).then(pl.min_horizontal(reached, cap)),
        is_capped=is_beyond,
    )


def _reach_empirical(groups: pl.DataFrame, silences: pl.DataFrame, level: float) -> pl.DataFrame:
    reached = _tail(silences).filter(pl.col("tail").is_finite(), pl.col("tail") >= level - _EPS)
    first = reached.group_by("group").agg(threshold_s=pl.col("duration_s").min())
    return groups.join(first, on="group", how="left")


def _tail(silences: pl.DataFrame) -> pl.DataFrame:
    """Phi just after each length that was seen."""
    curve = kaplan_meier(silences, by="group")
    # Where the longest silence ended, the curve is 0 but for rounding.
    left = pl.col("survival").clip(lower_bound=0.0)
    return curve.select("group", "duration_s", tail=-left.log10() + 0.0)


def _rate_exponential(grid: pl.DataFrame, _silences: pl.DataFrame) -> pl.DataFrame:
    rated = pl.col("silence_s") / pl.col("mean_s") * _LOG10_E
    return grid.with_columns(phi=rated, is_capped=pl.lit(value=False))


def _reach_exponential(groups: pl.DataFrame, _silences: pl.DataFrame, level: float) -> pl.DataFrame:
    return groups.with_columns(threshold_s=pl.col("mean_s") * (level / _LOG10_E))


def _rate_normal(grid: pl.DataFrame, _silences: pl.DataFrame) -> pl.DataFrame:
    y = (pl.col("silence_s") - pl.col("mean_s")) / _spread_s()
    power = y * (_A + _B * y**2)
    # log10(1 + exp(power)), written so that nothing overflows.
    rated = (power.clip(lower_bound=0.0) + (1 + (-power.abs()).exp()).log()) * _LOG10_E
    return grid.with_columns(phi=rated, is_capped=pl.lit(value=False))


def _reach_normal(groups: pl.DataFrame, _silences: pl.DataFrame, level: float) -> pl.DataFrame:
    at_s = pl.col("mean_s") + _akka_y(level) * _spread_s()
    return groups.with_columns(threshold_s=at_s.clip(lower_bound=0.0))


def _spread_s() -> pl.Expr:
    return pl.when(pl.col("n_spoke") > 0).then(pl.col("spread_s").clip(lower_bound=_LEAST_SPREAD_S))


def _akka_y(level: float) -> float:
    """Spreads above the mean at which Akka's approximation gives this phi.

    The only real root of ``B y³ + A y = ln(10^phi - 1)``, by Cardano's formula.

    Examples
    --------
    >>> [round(_akka_y(level), 3) for level in (0.79951, 1.64283, 7.29995)]
    [1.0, 2.0, 5.0]
    """
    power = level / _LOG10_E + math.log1p(-(10**-level))
    p, q = _A / _B / 3, power / _B / 2
    # The larger root first: the difference of the two would lose its digits.
    u = math.cbrt(abs(q) + math.sqrt(q * q + p**3))
    return math.copysign(u - p / u, q)


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "empirical": Model(_rate_empirical, _reach_empirical),
        "exponential": Model(_rate_exponential, _reach_exponential),
        "normal": Model(_rate_normal, _reach_normal),
    }
)


def _grouped(
    gaps: pl.DataFrame, by: str | Sequence[str], function: str
) -> tuple[list[str], pl.DataFrame, pl.DataFrame]:
    """Columns of the groups; what is known of each group; the silences of living runs."""
    strata = [by] if isinstance(by, str) else list(by)
    check_columns(gaps, (*strata, "gap_s"), function)
    if "left_out" in gaps.columns:
        gaps = gaps.filter(pl.col("left_out").is_null())
    if "closed_by" in gaps.columns:
        closed = pl.col("closed_by").cast(pl.String)
        gaps = gaps.filter(~closed.is_in(["death", "other_end"]))
        ended = closed == "sign_of_life"
    else:
        ended = pl.lit(value=True)
    # One group, too, needs a key: `whole`.
    rows = gaps.select(*strata, duration_s="gap_s", ended=ended).with_columns(whole=0)
    spoke_s = pl.col("duration_s").filter("ended")
    groups = (
        rows.group_by(*strata, "whole")
        .agg(
            n_gaps=pl.len().cast(pl.Int64),
            n_spoke=pl.col("ended").sum(),
            mean_s=spoke_s.mean().clip(lower_bound=_TICK_S),
            spread_s=spoke_s.std(ddof=0),
        )
        .sort(*strata, "whole")
        .with_row_index("group")
    )
    keys = [*strata, "whole"]
    keyed = rows.join(groups.select("group", *keys), on=keys, nulls_equal=True)
    return strata, groups, keyed.select("group", "duration_s", "ended")


def _model(name: str) -> Model:
    if name not in MODELS:
        raise ArgumentError(
            f"There is no model {in_short(name)}; there are {', '.join(MODELS)}.",
            "model='empirical'" + did_you_mean(str(name), MODELS),
        )
    return MODELS[name]


def _checked(name: str, value: object) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:  # type: ignore[operator]
        raise ArgumentError(
            f"{name} needs numbers of at least 0; found {in_short(value)}.", f"{name}=[600, 3600]"
        )
    return float(value)  # type: ignore[arg-type]

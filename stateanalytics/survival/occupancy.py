"""Where runs are after how long: the share in each state of a multi-state model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.errors import ArgumentError, check_columns
from stateanalytics.survival.by_unit import (
    FEWEST_UNITS,
    IF_ALIKE,
    LARGEST,
    OF_UNITS,
    UNIT,
    WIDER,
    raised,
    unit_facts,
    unit_number,
    widened,
    with_known_units,
)
from stateanalytics.survival.curves import interval
from stateanalytics.survival.incidence import cumulative_incidence
from stateanalytics.survival.occupancy_by_unit import Change, Jumps, variances_of_states
from stateanalytics.survival.risk_sets import STRATUM, number, strata_of
from stateanalytics.survival.state_stretches import AT_WORK, STRETCH, stretches_of

OCCUPANCY = (
    *("duration_s", "state", "n_in_state", "share", "share_se", "share_low", "share_high"),
    *("recover", "recover_low", "recover_high", "n_units"),
)
_MOST_MOMENTS = 50
"""Of more changes, so many tell how much units add to the variance, also until the next."""
_COUNTED = {"duration_s": pl.Float64, "state": pl.String, "n_in_state": pl.Int64}
_NONE_RECOVERS = pl.DataFrame(
    schema={
        STRATUM: pl.UInt32, "state": pl.String, "duration_s": pl.Float64,
        "recover": pl.Float64, "recover_low": pl.Float64, "recover_high": pl.Float64,
    }
)  # fmt: skip
_GOES_ON = ("running", "completed")
_ORDER = {state: place for place, state in enumerate((*AT_WORK, "completed"))}


def state_occupancy(
    lives: Facts | pl.DataFrame,
    by: str | Sequence[str] = (),
    *,
    at_s: float | Sequence[float] = (),
    window: object = None,
    silent_after_s: float | None = None,
    conf_level: float = 0.95,
) -> pl.DataFrame:
    """Share of runs in each state after each duration: queued, running, stalled, completed, ….

    Parameters
    ----------
    lives : Snapshot, Facts or polars.DataFrame
        What `read` gave; or a row a stretch of a life: ``state``, ``from_s``, ``until_s``
        and ``next_state`` (null: cut off), with the keys of runs or ``unit`` for what is alike.
    by : str or sequence of str
        Strata: columns such as ``kind``.
    at_s : float or sequence of float
        Only after these durations; none: wherever something changed.
    window, silent_after_s : optional
        Of a snapshot: only what a window saw (lives that began before enter late); and after
        how long without a sign of life a run counts as stalled, where not as the policy says.
    conf_level : float
        Level of the pointwise interval.

    Returns
    -------
    polars.DataFrame, shape (n_durations * n_states, n_by + 11)
        ``duration_s``, ``state``, ``n_in_state`` (seen in it just before), ``share`` with
        ``share_se``, ``share_low`` and ``share_high`` (null where the share is 0 or 1).
        Shares of one duration add up to 1. ``recover``: of the runs that are stalled,
        waiting, queued, … then, the share that run again or complete next, within the longest
        time that such runs were watched (null elsewhere, and without ``at_s``), with
        ``recover_low`` and ``recover_high``; ``n_units`` (null: not known).

    Raises
    ------
    MissingColumnsError, ArgumentError
        If a column is absent, or a stretch has no length.

    Notes
    -----
    The Aalen-Johansen estimate [1]_: the product over all moments of change of the identity
    plus the changes per run at risk, times the shares with which lives begin. Its variance
    is Greenwood's [2]_, with that of the first shares; where several runs are of one unit, that
    by unit, as for `kaplan_meier`. Where every end is final it equals
    `cumulative_incidence`. ``recover`` follows only the runs
    that are in the state then, so that it rests on no Markov assumption [3]_.

    References
    ----------
    .. [1] Aalen, O. O. and Johansen, S. (1978). An empirical transition matrix for
       non-homogeneous Markov chains. Scand. J. Statist. 5, 141-150.
    .. [2] Andersen, P. K. et al. (1993). Statistical Models Based on Counting Processes,
       section IV.4.1.3. Springer.
    .. [3] Putter, H. and Spitoni, C. (2018). Non-parametric estimation of transition
       probabilities in non-Markov multi-state models. Stat. Methods Med. Res. 27, 2081-2092.

    Examples
    --------
    >>> lives = pl.DataFrame(
    ...     {"state": ["running", "stalled", "running", "running"],
    ...      "from_s": [0.0, 5.0, 7.0, 0.0], "until_s": [5.0, 7.0, 9.0, 8.0],
    ...      "next_state": ["stalled", "running", None, "completed"]}
    ... )
    >>> state_occupancy(lives, at_s=6).select("state", "share").rows()
    [('running', 0.5), ('stalled', 0.5), ('completed', 0.0)]
    """
    strata = strata_of(by)
    stretches = (
        lives
        if isinstance(lives, pl.DataFrame)
        else stretches_of(lives, window=window, silent_after_s=silent_after_s)
    )
    check_columns(stretches, [*STRETCH, *strata], "state_occupancy")
    stretches = with_known_units(stretches)
    no_length = stretches.filter(~(pl.col("until_s") > pl.col("from_s")).fill_null(value=False))
    if no_length.height:
        raise ArgumentError(
            f"state_occupancy needs stretches that end after they begin; {no_length.height} of "
            f"{stretches.height} do not.",
            "stretches.filter(pl.col('until_s') > pl.col('from_s'))",
        )
    times = sorted({float(at) for at in ([at_s] if isinstance(at_s, int | float) else at_s)})
    kept = dict.fromkeys([*STRETCH, *strata, *(UNIT, *ENTITY_KEY)])
    numbered, names = number(stretches.select(name for name in kept if name in stretches), strata)
    numbered, facts = _with_units(numbered, conf_level)
    states = sorted(
        {*numbered["state"], *numbered["next_state"].drop_nulls()},
        key=lambda state: (_ORDER.get(state, len(_ORDER)), state),
    )
    shares = [
        _shares_of(own, states, times).with_columns(pl.lit(key, pl.UInt32).alias(STRATUM))
        for (key,), own in numbered.partition_by(STRATUM, as_dict=True, include_key=True).items()
    ]
    numbers = dict.fromkeys(("share", "variance", OF_UNITS), pl.Float64)
    empty = pl.DataFrame(schema={**_COUNTED, **numbers, STRATUM: pl.UInt32})
    curve = pl.concat([empty, *shares]).join(facts, on=STRATUM, how="left", maintain_order="left")
    return (
        widened(curve, "share", pl.col(OF_UNITS))
        .with_columns(share_se=pl.col("variance").sqrt())
        .with_columns(interval("share", conf_level, width=pl.col("width").sqrt()))
        .join(
            pl.concat([_NONE_RECOVERS, *(_recovering(numbered, at, conf_level) for at in times)]),
            on=[STRATUM, "duration_s", "state"],
            how="left",
            maintain_order="left",
        )
        .join(names, on=STRATUM, how="left", maintain_order="left")
        .select(*strata, *OCCUPANCY)
    )


def _with_units(numbered: pl.DataFrame, conf_level: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Stretches with the number and weight of their unit, and what is known of units."""
    if UNIT not in numbered.columns:
        none = numbered.select(STRATUM).unique().with_columns(n_units=pl.lit(None, pl.Int64))
        return numbered, none
    of_life = [name for name in ENTITY_KEY if name in numbered.columns]
    numbered = numbered.with_columns(unit_number=unit_number())
    lives = numbered.unique([STRATUM, *of_life]) if of_life else numbered
    units = lives.group_by("unit_number").agg(pl.col(STRATUM).first(), m=pl.len().cast(pl.Float64))
    facts = unit_facts(units, conf_level)
    told = facts.select(STRATUM, tells=~pl.col("is_alone") & (pl.col("n_units") >= FEWEST_UNITS))
    weights = units.select("unit_number", raised=raised())
    return (
        numbered.join(weights, on="unit_number", how="left").join(told, on=STRATUM, how="left"),
        facts.select(STRATUM, "n_units", WIDER, LARGEST, IF_ALIKE),
    )


def _recovering(stretches: pl.DataFrame, at_s: float, conf_level: float) -> pl.DataFrame:
    """Of the runs that are held up after so long, the share that goes on next, by state."""
    held = [state for state in AT_WORK if state != "running"]
    there = stretches.filter(
        pl.col("from_s") <= at_s, pl.col("until_s") > at_s, pl.col("state").is_in(held)
    ).with_columns(
        duration_s=pl.col("until_s") - at_s,
        cause=pl.when(pl.col("next_state").is_not_null()).then(
            pl.col("next_state").is_in(list(_GOES_ON))
        ),
    )
    there, key = there.rename({STRATUM: "stratum"}), ["stratum", "state"]
    kept = [name for name in (*key, UNIT, "duration_s", "cause") if name in there.columns]
    ended = (
        cumulative_incidence(there.select(kept), by=key, conf_level=conf_level)
        .filter(pl.col("cause").cast(pl.Boolean))
        .group_by(key)
        .agg(
            pl.col(f"incidence{end}").last().alias(f"recover{end}") for end in ("", "_low", "_high")
        )
    )
    known = there.filter(pl.col("cause").is_not_null()).select(key).unique()
    return known.join(ended, on=key, how="left").select(
        pl.col("stratum").alias(STRATUM),
        "state",
        duration_s=pl.lit(at_s),
        recover=pl.col("recover").fill_null(0.0),
        recover_low="recover_low",
        recover_high="recover_high",
    )


def _shares_of(
    stretches: pl.DataFrame, states: Sequence[str], times: Sequence[float]
) -> pl.DataFrame:
    """The shares of one stratum, with their variances as if runs were independent, and by unit."""
    place = {state: number for number, state in enumerate(states)}
    first = stretches.filter(pl.col("from_s") == pl.col("from_s").min())
    began = dict(first["state"].value_counts().rows())
    share = [began.get(state, 0) / first.height for state in states]
    # Of independent runs by where each began: the multinomial one.
    covariance = [
        [((i == j) * of_i - of_i * of_j) / first.height for j, of_j in enumerate(share)]
        for i, of_i in enumerate(share)
    ]
    begins = first["from_s"].item(0)
    told, changes = [(begins, share, _variances(covariance))], []
    due = [at for at in times if at >= begins]
    for at, jumps in _changes(stretches, place):
        # A change holds from its moment on: what is due before is told first.
        while due and at > due[0]:
            told.append((due.pop(0), share, _variances(covariance)))
        if times and not due:
            break
        changes.append(Change(at, share, jumps))
        share, covariance = _step(share, covariance, jumps)
        if not times:
            told.append((at, share, _variances(covariance)))
    told += [(at, share, _variances(covariance)) for at in due]
    moments_told, shares_told, variances_told = zip(*told, strict=True)
    curve = pl.DataFrame(
        {
            "duration_s": moments_told,
            "state": pl.Series([states]).new_from_index(0, len(told)),
            "share": _by_state(shares_told),
            "variance": _by_state(variances_told),
        }
    ).unique("duration_s", keep="last", maintain_order=True)
    moments = (
        times
        or curve["duration_s"].gather_every(max(1, -(-curve.height // _MOST_MOMENTS))).to_list()
    )
    if times:
        curve = curve.filter(pl.col("duration_s").is_in(times))
    curve = curve.explode("state", "share", "variance")
    if not stretches.get_column("tells", default=pl.Series([False]))[0]:
        return _with_counts(curve.with_columns(pl.lit(None, pl.Float64).alias(OF_UNITS)), stretches)
    of_units = variances_of_states(stretches, place, changes, moments).join(
        curve.select("duration_s", "state", "variance"), on=["duration_s", "state"]
    )
    # How much wider units make it is known at some moments, for each is a pass over all of
    # them, and hardly moves in between.
    effects = of_units.select("duration_s", "state", effect=pl.col(OF_UNITS) / pl.col("variance"))
    joined = curve.sort("duration_s", maintain_order=True).join_asof(
        effects.sort("duration_s"), on="duration_s", by="state", check_sortedness=False
    )
    return _with_counts(
        joined.with_columns((pl.col("effect") * pl.col("variance")).alias(OF_UNITS)).drop("effect"),
        stretches,
    )


def _by_state(lines: Sequence[Sequence[float]]) -> pl.Series:
    """Lines as long as each other, as lists; a list for each, made in Python, takes seconds."""
    flat = pl.Series([number for line in lines for number in line], dtype=pl.Float64)
    return flat.reshape((len(lines), -1)).arr.to_list()


def _with_counts(curve: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """How many were seen in each state just before."""
    joined = curve.sort("duration_s", maintain_order=True)
    for moment, name in (("from_s", "n_entered"), ("until_s", "n_left")):
        counted = (
            stretches.select("state", duration_s=moment)
            .sort("duration_s")
            .with_columns(pl.int_range(1, pl.len() + 1).over("state").alias(name))
        )
        joined = joined.join_asof(
            counted, on="duration_s", by="state", allow_exact_matches=False, check_sortedness=False
        )
    n = pl.col("n_entered").fill_null(0) - pl.col("n_left").fill_null(0)
    numbers = [name for name in ("share", "variance", OF_UNITS) if name in curve.columns]
    return joined.select("duration_s", "state", n.cast(pl.Int64).alias("n_in_state"), *numbers)


def _changes(stretches: pl.DataFrame, place: dict[str, int]) -> Iterator[tuple[float, Jumps]]:
    """Every moment at which a run went from one state to another."""
    at_risk = _with_counts(
        stretches.filter(pl.col("next_state").is_not_null())
        .select("state", duration_s="until_s")
        .unique(["state", "duration_s"]),
        # Who leaves at a moment was there just before it, who enters at it was not.
        stretches,
    )
    counted = (
        stretches.filter(pl.col("next_state").is_not_null())
        .group_by("until_s", "state", "next_state")
        .agg(n=pl.len())
        .join(at_risk.select("state", "n_in_state", until_s="duration_s"), on=["state", "until_s"])
        .sort("until_s", "state", "next_state")
        .select("until_s", "state", "n_in_state", "next_state", "n")
    )
    for at, rows in groupby(counted.iter_rows(), key=lambda row: row[0]):
        jumps: Jumps = {}
        for _, state, n_there, then, n in rows:
            jumps.setdefault(place[state], (float(n_there), []))[1].append((place[then], float(n)))
        yield at, jumps


def _step(
    share: list[float], covariance: list[list[float]], jumps: Jumps
) -> tuple[list[float], list[list[float]]]:
    """Shares and their covariance after one moment: (I + dA)' C (I + dA), and what dA adds."""
    after = list(share)
    both = [list(line) for line in covariance]
    for state, (n, went) in jumps.items():
        for then, d in [*went, (state, -sum(d for _, d in went))]:
            after[then] += share[state] * d / n
            for line, before in zip(both, covariance, strict=True):
                line[then] += before[state] * d / n
    rows = {state: list(both[state]) for state in jumps}
    for state, (n, went) in jumps.items():
        leaving = sum(d for _, d in went)
        for then, d in [*went, (state, -leaving)]:
            both[then] = [
                there + of_state * d / n
                for there, of_state in zip(both[then], rows[state], strict=True)
            ]
        # Multinomial: of n in the state, so many went to each other one, and the rest stayed.
        chances = [*((then, d / n) for then, d in went), (state, 1 - leaving / n)]
        for i, of_i in chances:
            both[i][i] += share[state] ** 2 * of_i / n
            for j, of_j in chances:
                both[i][j] -= share[state] ** 2 * of_i * of_j / n
    return after, both


def _variances(covariance: list[list[float]]) -> list[float]:
    return [max(0.0, covariance[i][i]) for i in range(len(covariance))]

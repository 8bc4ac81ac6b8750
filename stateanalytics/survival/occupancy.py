"""State occupancy: the share of runs in each state after each duration, a multi-state model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import collected
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.windows import Window, instant, read_window
from stateanalytics.errors import ArgumentError, check_columns, check_number
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.survival import jackknife
from stateanalytics.survival.curves import interval
from stateanalytics.survival.frames import StateOccupancy, fixed_columns
from stateanalytics.survival.incidence import cumulative_incidence
from stateanalytics.survival.risk_sets import STRATUM, number, strata_of
from stateanalytics.survival.run_spells import ending, runs_of, split_into_attempts
from stateanalytics.systems import all_systems

AT_WORK = ("queued", "running", "waiting", "blocked", "retrying", "stalled")
"""States of work that is not over; other states are the ways to end."""
STRETCH = ("state", "from_s", "until_s", "next_state")
_RUN_COLUMNS = (
    *("session_id", "invocation_id", "show_id"),
    *("kind", "project", "agent", "model", "playbook"),
)
_BASE, _SIGN = "base", "sign"
Matrix: TypeAlias = list[list[float]]
Jumps: TypeAlias = dict[int, tuple[float, list[tuple[int, float]]]]
"""State to its number at risk, and the numbers that moved from it to other states."""
_MOST_MOMENTS = 50
"""Of more changes, the design effect is computed at so many, and holds until the next one."""
_COUNTED = {"duration_s": pl.Float64, "state": pl.String, "n_in_state": pl.Int64}
_RECOVERY = ("duration_s", "recover", "recover_low", "recover_high")
_NO_RECOVERY = pl.DataFrame(
    schema={STRATUM: pl.UInt32, "state": pl.String, **dict.fromkeys(_RECOVERY, pl.Float64)}
)
_RECOVERED = ("running", "completed")
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
    """Share of runs in each state (queued, running, stalled, completed, …) after each duration.

    Parameters
    ----------
    lives : Snapshot, Facts or polars.DataFrame
        From `read`; or one row per stretch of a life: ``state``, ``from_s``, ``until_s`` and
        ``next_state`` (null: censored), with the keys of runs or ``unit``.
    by : str or sequence of str
        Strata: columns such as ``kind``.
    at_s : float or sequence of float
        Only after these durations; none: at every change.
    window, silent_after_s : optional
        Of a snapshot: only the lives within a window (those that began before enter late); and
        the silence after which a run counts as stalled, in place of the policy's.
    conf_level : float
        Level of the pointwise interval.

    Returns
    -------
    polars.DataFrame, shape (n_durations * n_states, n_by + 11)
        ``duration_s``, ``state``, ``n_in_state`` (runs in it just before), ``share`` with
        ``share_se``, ``share_low`` and ``share_high`` (null where the share is 0 or 1).
        Shares of one duration add up to 1. ``recover``: the share of the runs that are
        stalled, waiting, queued, … at that duration which run again or complete next, within
        the longest follow-up of such runs (null elsewhere, and without ``at_s``), with
        ``recover_low`` and ``recover_high``; ``n_units`` (null: not known).

    Raises
    ------
    MissingColumnsError, ArgumentError
        If a column is absent, or a stretch does not end after it begins.

    Notes
    -----
    The Aalen-Johansen estimate [1]_: the product over all changes of (I + dA), with dA the
    moves per run at risk, times the shares of the first states. Its variance is Greenwood's
    [2]_, plus that of the first shares; where units have several runs, it is by unit, as for
    `kaplan_meier`. Where every end is final it equals `cumulative_incidence`. ``recover``
    follows only the runs that are in the state at that duration (landmark), so that it needs
    no Markov assumption [3]_.

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
    stretches = jackknife.with_known_units(stretches)
    is_valid = stretches["until_s"] > stretches["from_s"]
    if n_invalid := stretches.height - int(is_valid.sum()):
        raise ArgumentError(
            f"state_occupancy needs stretches that end after they begin; {n_invalid} of "
            f"{stretches.height} do not.",
            "stretches.filter(pl.col('until_s') > pl.col('from_s'))",
        )
    times = sorted({float(at) for at in ([at_s] if isinstance(at_s, int | float) else at_s)})
    kept = dict.fromkeys([*STRETCH, *strata, *(jackknife.UNIT, *ENTITY_KEY)])
    numbered, names = number(stretches[[name for name in kept if name in stretches]], strata)
    numbered, summary = _with_units(numbered, conf_level)
    states = sorted(
        {*numbered["state"].to_list(), *numbered["next_state"].to_list()} - {None},
        key=lambda state: (_ORDER.get(state, len(_ORDER)), state),
    )
    shares = [
        _shares(stratum, states, times).with_columns(pl.lit(key, pl.UInt32).alias(STRATUM))
        for (key,), stratum in numbered.partition_by(
            STRATUM, as_dict=True, include_key=True
        ).items()
    ]
    numbers = dict.fromkeys(("share", "variance", jackknife.UNIT_VARIANCE), pl.Float64)
    empty = pl.DataFrame(schema={**_COUNTED, **numbers, STRATUM: pl.UInt32})
    # Sums of steps can miss 0 and 1 by rounding.
    curve = pl.concat([empty, *shares]).lazy().with_columns(pl.col("share").clip(0.0, 1.0))
    curve = curve.join(summary, on=STRATUM, how="left", maintain_order="left")
    recovery = pl.concat([_NO_RECOVERY, *(_recovery(numbered, at, conf_level) for at in times)])
    return collected(
        jackknife.corrected_variance(curve, "share", pl.col(jackknife.UNIT_VARIANCE))
        .with_columns(share_se=pl.col("variance").sqrt())
        .with_columns(interval("share", conf_level, width=pl.col("width").sqrt()))
        .join(
            recovery.lazy(), on=[STRATUM, "duration_s", "state"], how="left", maintain_order="left"
        )
        .join(names, on=STRATUM, how="left", maintain_order="left")
        .select(*strata, *fixed_columns(StateOccupancy))
    )


def _with_units(numbered: pl.DataFrame, conf_level: float) -> tuple[pl.DataFrame, pl.LazyFrame]:
    """Stretches with the number and leverage of their unit, and the summary of units."""
    if jackknife.UNIT not in numbered.columns:
        strata = numbered.lazy().select(STRATUM).unique()
        return numbered, strata.with_columns(n_units=pl.lit(None, pl.Int64))
    life_key = [name for name in ENTITY_KEY if name in numbered.columns]
    rows = numbered.lazy().with_columns(unit_number=jackknife.unit_number())
    lives = rows.unique([STRATUM, *life_key]) if life_key else rows
    units = lives.group_by("unit_number").agg(pl.col(STRATUM).first(), m=pl.len().cast(pl.Float64))
    summary = jackknife.unit_summary(units, conf_level)
    is_estimable = ~pl.col("is_alone") & (pl.col("n_units") >= jackknife.FEWEST_UNITS)
    estimable = summary.select(STRATUM, has_unit_variance=is_estimable)
    leverages = units.select("unit_number", leverage=jackknife.leverage_weight())
    return (
        rows.join(leverages, on="unit_number", how="left")
        .join(estimable, on=STRATUM, how="left")
        .pipe(collected),
        summary.select(
            STRATUM, "n_units", jackknife.T_RATIO, jackknife.MAX_EFFECT, jackknife.N_IF_IDENTICAL
        ),
    )


def _recovery(stretches: pl.DataFrame, at_s: float, conf_level: float) -> pl.DataFrame:
    """Share of the runs held up at a duration that run again or complete next, by state."""
    held_up = [state for state in AT_WORK if state != "running"]
    held_up_then = (
        stretches.lazy()
        .filter(pl.col("from_s") <= at_s, pl.col("until_s") > at_s, pl.col("state").is_in(held_up))
        .with_columns(
            duration_s=pl.col("until_s") - at_s,
            cause=pl.when(pl.col("next_state").is_not_null()).then(
                pl.col("next_state").is_in(list(_RECOVERED))
            ),
        )
    )
    key, renamed = ["stratum", "state"], held_up_then.rename({STRATUM: "stratum"})
    at_landmark = collected(renamed)
    kept = [
        name
        for name in (*key, jackknife.UNIT, "duration_s", "cause")
        if name in at_landmark.columns
    ]
    recovered = (
        cumulative_incidence(at_landmark[kept], by=key, conf_level=conf_level)
        .lazy()
        .filter(pl.col("cause").cast(pl.Boolean))
        .group_by(key)
        .agg(
            pl.col(f"incidence{end}").last().alias(f"recover{end}") for end in ("", "_low", "_high")
        )
    )
    observed = at_landmark.lazy().filter(pl.col("cause").is_not_null()).select(key).unique()
    recovery = observed.join(recovered, on=key, how="left").select(
        pl.col("stratum").alias(STRATUM),
        "state",
        duration_s=pl.lit(at_s),
        recover=pl.col("recover").fill_null(0.0),
        recover_low="recover_low",
        recover_high="recover_high",
    )
    return collected(recovery)


def _shares(stretches: pl.DataFrame, states: Sequence[str], times: Sequence[float]) -> pl.DataFrame:
    """Shares of one stratum, with the variance of independent runs and the variance by unit."""
    place = {state: index for index, state in enumerate(states)}
    first = stretches.filter(pl.col("from_s") == pl.col("from_s").min())
    counts = dict(first["state"].value_counts().rows())
    share = [counts.get(state, 0) / first.height for state in states]
    # Of the first states: the multinomial covariance.
    covariance = [
        [((i == j) * share_i - share_i * share_j) / first.height for j, share_j in enumerate(share)]
        for i, share_i in enumerate(share)
    ]
    begin = first["from_s"].item(0)
    points, changes = [(begin, share, _variances(covariance))], []
    due = [at for at in times if at >= begin]
    for at, jumps in _jumps(stretches, place):
        # A change holds from its moment on, so durations before it get the shares so far.
        while due and at > due[0]:
            points.append((due.pop(0), share, _variances(covariance)))
        if times and not due:
            break
        changes.append(Change(at, share, jumps))
        share, covariance = _step(share, covariance, jumps)
        if not times:
            points.append((at, share, _variances(covariance)))
    points += [(at, share, _variances(covariance)) for at in due]
    durations, shares, variances = zip(*points, strict=True)
    curve = pl.DataFrame(
        {
            "duration_s": durations,
            "state": pl.Series([states]).new_from_index(0, len(points)),
            "share": _as_lists(shares),
            "variance": _as_lists(variances),
        }
    ).unique("duration_s", keep="last", maintain_order=True)
    moments = (
        times
        or curve["duration_s"].gather_every(max(1, -(-curve.height // _MOST_MOMENTS))).to_list()
    )
    if times:
        curve = curve.filter(pl.col("duration_s").is_in(times))
    curve = curve.explode("state", "share", "variance")
    if not stretches.get_column("has_unit_variance", default=pl.Series([False]))[0]:
        unknown = pl.lit(None, pl.Float64).alias(jackknife.UNIT_VARIANCE)
        return _with_counts(curve.with_columns(unknown), stretches)
    rows = curve.lazy()
    by_unit = (
        variances_by_unit(stretches, place, changes, moments)
        .lazy()
        .join(rows.select("duration_s", "state", "variance"), on=["duration_s", "state"])
    )
    # Each moment takes a pass over all units, so the design effect is computed at some of them:
    # it hardly changes in between.
    effect = pl.col(jackknife.UNIT_VARIANCE) / pl.col("variance")
    effects = by_unit.select("duration_s", "state", effect=effect)
    joined = rows.sort("duration_s", maintain_order=True).join_asof(
        effects.sort("duration_s"), on="duration_s", by="state", check_sortedness=False
    )
    by_effect = (pl.col("effect") * pl.col("variance")).alias(jackknife.UNIT_VARIANCE)
    return _with_counts(joined.with_columns(by_effect).drop("effect").pipe(collected), stretches)


def _as_lists(rows: Sequence[Sequence[float]]) -> pl.Series:
    """Rows of equal length as a list column; one Python list per row would take seconds."""
    flat = pl.Series([value for row in rows for value in row], dtype=pl.Float64)
    return flat.reshape((len(rows), -1)).arr.to_list()


def _with_counts(curve: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """Add ``n_in_state``, the number of runs in each state just before."""
    joined = curve.lazy().sort("duration_s", maintain_order=True)
    for moment, name in (("from_s", "n_entered"), ("until_s", "n_exited")):
        counted = (
            stretches.lazy()
            .select("state", duration_s=moment)
            .sort("duration_s")
            .with_columns(pl.int_range(1, pl.len() + 1).over("state").alias(name))
        )
        joined = joined.join_asof(
            counted, on="duration_s", by="state", allow_exact_matches=False, check_sortedness=False
        )
    n = pl.col("n_entered").fill_null(0) - pl.col("n_exited").fill_null(0)
    numbers = [
        name for name in ("share", "variance", jackknife.UNIT_VARIANCE) if name in curve.columns
    ]
    counts = n.cast(pl.Int64).alias("n_in_state")
    return joined.select("duration_s", "state", counts, *numbers).pipe(collected)


def _jumps(stretches: pl.DataFrame, place: dict[str, int]) -> Iterator[tuple[float, Jumps]]:
    """Every moment at which runs moved between states, with their moves."""
    moved = stretches.lazy().filter(pl.col("next_state").is_not_null())
    moments = moved.select("state", duration_s="until_s").unique(["state", "duration_s"])
    # A run that leaves a state at a moment is at risk in it, one that enters is not yet.
    at_risk = _with_counts(moments.pipe(collected), stretches).lazy()
    counted = collected(
        moved.group_by("until_s", "state", "next_state")
        .agg(n=pl.len())
        .join(at_risk.select("state", "n_in_state", until_s="duration_s"), on=["state", "until_s"])
        .sort("until_s", "state", "next_state")
        .select("until_s", "state", "n_in_state", "next_state", "n")
    )
    for at, rows in groupby(counted.iter_rows(), key=lambda row: row[0]):
        jumps: Jumps = {}
        for _, state, n_at_risk, next_state, n in rows:
            _, moves = jumps.setdefault(place[state], (float(n_at_risk), []))
            moves.append((place[next_state], float(n)))
        yield at, jumps


def _step(share: list[float], covariance: Matrix, jumps: Jumps) -> tuple[list[float], Matrix]:
    """Shares and covariance after one moment: (I + dA)' C (I + dA) plus the variance of dA."""
    new_share, new_covariance = list(share), [list(row) for row in covariance]
    for state, (n, moves) in jumps.items():
        for target, d in [*moves, (state, -sum(d for _, d in moves))]:
            new_share[target] += share[state] * d / n
            for new_row, row in zip(new_covariance, covariance, strict=True):
                new_row[target] += row[state] * d / n
    rows = {state: list(new_covariance[state]) for state in jumps}
    for state, (n, moves) in jumps.items():
        n_moved = sum(d for _, d in moves)
        for target, d in [*moves, (state, -n_moved)]:
            new_covariance[target] = [
                old + of_state * d / n
                for old, of_state in zip(new_covariance[target], rows[state], strict=True)
            ]
        # Multinomial: of n in the state, d moved to each other state, and the rest stayed.
        probabilities = [*((target, d / n) for target, d in moves), (state, 1 - n_moved / n)]
        for i, p_i in probabilities:
            new_covariance[i][i] += share[state] ** 2 * p_i / n
            for j, p_j in probabilities:
                new_covariance[i][j] -= share[state] ** 2 * p_i * p_j / n
    return new_share, new_covariance


def _variances(covariance: Matrix) -> list[float]:
    return [max(0.0, covariance[i][i]) for i in range(len(covariance))]


# --- the variance by unit ----------------------------------------------------------------


class Change(NamedTuple):
    """A moment at which runs moved between states.

    Attributes
    ----------
    at : float
        Seconds.
    share : list of float
        Share of each state just before.
    jumps : Jumps
        The moves.
    """

    at: float
    share: list[float]
    jumps: Jumps


class _Backward(NamedTuple):
    """A backward pass over changes: what each of them does to the shares after the last one.

    Attributes
    ----------
    at_risk : list of tuple
        Moment and state, and the expected change of each share per run at risk.
    moved : list of tuple
        Moment, state and next state, and the change of each share per run that moved.
    transition : list of list of float
        Probability from each state before all changes to each state after them.
    """

    at_risk: list[tuple[float, ...]]
    moved: list[tuple[float, ...]]
    transition: Matrix


def variances_by_unit(
    stretches: pl.DataFrame,
    place: Mapping[str, int],
    changes: Sequence[Change],
    moments: Sequence[float],
) -> pl.DataFrame:
    """Variance of the share of each state by unit, at given moments.

    Parameters
    ----------
    stretches : polars.DataFrame
        Of one stratum: ``state``, ``from_s``, ``until_s``, ``next_state``; ``unit_number`` and
        ``leverage``, the weight of the unit's squared influence.
    place : mapping of str to int
        Index of each state.
    changes : sequence of Change
        In time order.
    moments : sequence of float
        Ascending.

    Returns
    -------
    polars.DataFrame, shape (n_moments * n_states, 3)
        ``duration_s``, ``state``, and `UNIT_VARIANCE`.

    Notes
    -----
    The infinitesimal jackknife of the Aalen-Johansen estimate. A run that moves changes later
    shares by the difference of what follows from its new state and from its old one; each run
    at risk of the move changes them by the same amount in the other direction, over n. The
    influence of a unit is carried from one moment to the next by the transition probabilities.
    """
    names = [str(index) for index in range(len(place))]
    rows = collected(
        stretches.lazy()
        .select(
            *("from_s", "until_s", "unit_number", "leverage"),
            state=pl.col("state").replace_strict(place, return_dtype=pl.Int64),
            next_state=pl.col("next_state").replace_strict(place, return_dtype=pl.Int64),
            # Float sums depend on the order, so rows get one of their own.
        )
        .sort("unit_number", "from_s", "until_s", "state", "next_state")
    )
    influence, since = _influence_on_first_shares(rows, names), float("-inf")
    variances: list[tuple[float, str, float]] = []
    for moment in moments:
        within = [change for change in changes if since < change.at <= moment]
        if within:
            backward = _backward(within, len(names))
            under_way = rows.lazy().filter(pl.col("until_s") > since)
            carried = (
                pl.sum_horizontal(
                    pl.col(i) * backward.transition[int(i)][int(j)] for i in names
                ).alias(j)
                for j in names
            )
            influence = collected(
                pl.concat(
                    [
                        influence.lazy().with_columns(carried),
                        _new_influence(under_way, backward, names, moment),
                    ]
                )
                .group_by("unit_number", "leverage", maintain_order=True)
                .sum()
            )
        since = moment
        squares = influence.select((pl.col(name) ** 2 * pl.col("leverage")).sum() for name in names)
        variances += [(moment, state, squares.item(0, index)) for state, index in place.items()]
    shape = {"duration_s": pl.Float64, "state": pl.String, jackknife.UNIT_VARIANCE: pl.Float64}
    return pl.DataFrame(variances, schema=shape, orient="row")


def _influence_on_first_shares(rows: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Influence of each unit on the shares of the states in which lives begin."""
    first = rows.lazy().filter(pl.col("from_s") == pl.col("from_s").min())
    in_state = {name: (pl.col("state") == int(name)).cast(pl.Float64) for name in names}
    own = first.select(
        "unit_number",
        "leverage",
        *(((is_in - is_in.mean()) / pl.len()).alias(name) for name, is_in in in_state.items()),
    )
    none = rows.lazy().select("unit_number", "leverage", **dict.fromkeys(names, pl.lit(0.0)))
    return collected(
        pl.concat([own, none.unique("unit_number")])
        .sort("unit_number")
        .group_by("unit_number", "leverage", maintain_order=True)
        .sum()
    )


def _backward(changes: Sequence[Change], n_states: int) -> _Backward:
    after = [[float(i == j) for j in range(n_states)] for i in range(n_states)]
    at_risk: list[tuple[float, ...]] = []
    moved: list[tuple[float, ...]] = []
    for at, share, jumps in reversed(changes):
        before = list(after)
        for state, (n_at_risk, moves) in jumps.items():
            expected, if_stays = [0.0] * n_states, after[state]
            weight = share[state] / n_at_risk
            for next_state, n_moved in moves:
                effect = [
                    if_moves - stays
                    for if_moves, stays in zip(after[next_state], if_stays, strict=True)
                ]
                moved.append((at, state, next_state, *(weight * change for change in effect)))
                expected = [
                    total + n_moved / n_at_risk * change
                    for total, change in zip(expected, effect, strict=True)
                ]
            before[state] = [
                stays + change for stays, change in zip(if_stays, expected, strict=True)
            ]
            at_risk.append((at, state, *(weight * change for change in expected)))
        after = before
    return _Backward(at_risk[::-1], moved, after)


def _new_influence(
    rows: pl.LazyFrame, backward: _Backward, names: Sequence[str], until: float
) -> pl.LazyFrame:
    """Influence of each stretch on the shares: its own move, minus the moves it was at risk of."""
    numbers = dict.fromkeys(names, pl.Float64)
    key = {"at": pl.Float64, "state": pl.Int64}
    running = pl.LazyFrame(backward.at_risk, schema={**key, **numbers}, orient="row").with_columns(
        pl.col(names).cum_sum().over("state")
    )
    per_move = pl.LazyFrame(
        backward.moved, schema={**key, "next_state": pl.Int64, **numbers}, orient="row"
    )
    begun = rows.filter(pl.col("from_s") < until)

    def expected_up_to(moment: pl.Expr, sign: int) -> pl.LazyFrame:
        return (
            begun.with_columns(at=moment)
            .sort("at")
            .join_asof(running, on="at", by="state", check_sortedness=False)
            .select("unit_number", "leverage", pl.col(names).fill_null(0.0) * sign)
        )

    moved = begun.filter(pl.col("until_s") <= until, pl.col("next_state").is_not_null())
    parts = [
        moved.with_columns(at="until_s")
        .join(per_move, on=["at", "state", "next_state"], maintain_order="left")
        .select("unit_number", "leverage", *names),
        expected_up_to(pl.min_horizontal("until_s", pl.lit(until)), -1),
        expected_up_to(pl.col("from_s"), 1),
    ]
    return pl.concat(parts).group_by("unit_number", "leverage", maintain_order=True).sum()


# --- lives of runs as stretches of one state each -------------------------------------------


def stretches_of(
    snap: Facts,
    *,
    window: object = None,
    silent_after_s: float | None = None,
    policy: Policy | None = None,
    states: pl.DataFrame | None = None,
    rows: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """One row per stretch of a run's life in one state, from its creation or first start on.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : optional
        As for `report`: only what happened in it, so that older lives enter late; None: all
        time.
    silent_after_s : float, optional
        Time without a sign of life after which a running run is *stalled*; None: the limit of
        the policy for its kind or system.
    policy : Policy, optional
        For that limit, and for states.
    states, rows : polars.DataFrame, optional
        States of the snapshot, and the `population` of all time, if already computed.

    Returns
    -------
    polars.DataFrame
        The key and columns of the run; ``state``, one of `AT_WORK` or how it ended;
        ``from_s`` and ``until_s`` since its life began; ``next_state`` (null: not observed).
        Sorted by run and time.

    Notes
    -----
    A life goes on after an end: a resumed run is running again. Each system defines which
    statuses and events mean that work waits or is retried (`Words.working_states`).
    A run without an observed end is known up to its last sign of life.
    """
    checked_snapshot(snap, "survival.state_occupancy")
    chosen = policy or Policy.v1()
    runs = runs_of(rows_of(snap, policy=policy, states=states, rows=rows)).filter(
        pl.col("left_out").is_null(), pl.col("started_at") <= instant(snap.as_of)
    )
    lives = _lives(runs, snap, _limits(runs, chosen, silent_after_s))
    moments = _moments(split_into_attempts(runs, snap), lives, snap)
    stretches = _stretches(_with_silences(moments, lives.lazy()), lives.lazy())
    if window is not None:
        stretches = _clipped(stretches, read_window(window, as_of=snap.as_of))
    return collected(stretches)


def _limits(runs: pl.DataFrame, policy: Policy, silent_after_s: float | None) -> pl.DataFrame:
    """The silence after which each kind of work counts as stalled."""
    if silent_after_s is not None:
        check_number("silent_after_s", silent_after_s, 900)
    kinds = runs[["system", "kind"]].unique(maintain_order=True)
    limits_s = [
        silent_after_s or policy.limit(system, "stalled_after_s") or policy.stalled_after(kind)
        for system, kind in kinds.iter_rows()
    ]
    limits_us = [limit_s * 1e6 for limit_s in limits_s]
    return kinds.hstack([pl.Series("limit_us", limits_us, pl.Float64)])


def _lives(runs: pl.DataFrame, snap: Facts, limits: pl.DataFrame) -> pl.DataFrame:
    """Each run with the begin of its life and the end of its follow-up."""
    is_end_known = pl.col("ended_at").is_not_null() & ~pl.col("is_end_approximate").fill_null(
        value=False
    )
    last_sign = pl.coalesce("last_activity_at", "started_at")
    watched_until = pl.when(pl.col("is_open") | is_end_known).then(instant(snap.as_of))
    key: Any = {"on": ["system", "kind"], "nulls_equal": True}
    judged = runs.lazy().join(limits.lazy(), **key, how="left", maintain_order="left")
    lives = judged.select(
        *ENTITY_KEY,
        *_RUN_COLUMNS,
        *("created_at", "started_at", "limit_us"),
        born_at=pl.min_horizontal("created_at", "started_at"),
        watched_until=watched_until.otherwise(pl.min_horizontal(last_sign, instant(snap.as_of))),
    )
    return lives.pipe(collected).with_row_index("life")


def _moments(attempts: pl.DataFrame, all_lives: pl.DataFrame, snap: Facts) -> pl.LazyFrame:
    """Everything that sets the state of a run (base) or is a sign of life (sign)."""
    lives = all_lives.lazy()
    life = lives.select("life", *ENTITY_KEY)
    numbered = attempts.lazy().join(life, on=ENTITY_KEY, how="inner")
    queued = lives.filter(pl.col("created_at") < pl.col("started_at")).select(
        "life", at="created_at", state=pl.lit("queued"), what=pl.lit(_BASE)
    )
    starts = numbered.select("life", at="started_at", state=pl.lit("running"), what=pl.lit(_BASE))
    ends = numbered.filter(~pl.col("is_open"), pl.col("ended_at").is_not_null()).select(
        "life", at="ended_at", state=ending(), what=pl.lit(_BASE)
    )
    working, terminal = _status_words()
    systems = [known.name for known in all_systems() if known.words.working_states]
    changes = (
        snap.transitions.lazy()
        .filter(pl.col("system").is_in(systems))
        .join(life, on=ENTITY_KEY, how="inner")
        .join(terminal, on=["system", "status"], how="anti")
        .join(working, left_on=["system", "status"], right_on=["system", "word"], how="left")
        .select("life", "at", pl.col("state").fill_null("running"), what=pl.lit(_BASE))
    )
    signs = (
        snap.events.lazy()
        .join(
            lives.select("life", "source", "system", "session_id", "started_at"),
            left_on=["source", "system", "entity_id"],
            right_on=["source", "system", "session_id"],
            how="inner",
        )
        .join(working, left_on=["system", "kind"], right_on=["system", "word"], how="left")
        .filter(
            pl.col("is_activity") | pl.col("state").is_not_null(),
            pl.col("at") >= pl.col("started_at"),
        )
        .select("life", "at", "state", what=pl.lit(_SIGN))
    )
    # Of several at one moment the last one counts, so ends come after signs of life.
    return pl.concat([queued, starts, signs, changes, ends]).filter(pl.col("at").is_not_null())


def _status_words() -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Words of each system with the state of work that they mean, and its terminal statuses."""
    working = [
        (system.name, word, state)
        for system in all_systems()
        for word, state in system.words.working_states.items()
    ]
    terminal = [
        (system.name, status) for system in all_systems() for status in system.ends.statuses
    ]
    names = ("system", "word", "state")
    return (
        pl.LazyFrame(working, schema=dict.fromkeys(names, pl.String), orient="row"),
        pl.LazyFrame(terminal, schema=dict.fromkeys(("system", "status"), pl.String), orient="row"),
    )


def _with_silences(moments: pl.LazyFrame, lives: pl.LazyFrame) -> pl.LazyFrame:
    """The state from each moment on, with further moments where a silence makes a run stalled."""
    # Moments are sorted by life, so neighbours replace the slower window over each life.
    is_last = (pl.col("life") != pl.col("life").shift(-1)).fill_null(value=True)
    is_base = (pl.col("what") == _BASE) & pl.col("state").is_not_null()
    is_own = pl.when(is_base).then("life").forward_fill() == pl.col("life")
    base = pl.when(is_own).then(pl.when(is_base).then("state").forward_fill())
    sign_state = pl.when((pl.col("what") == _SIGN) & base.is_in(list(AT_WORK))).then("state")
    known = (
        moments.join(
            lives.select("life", "watched_until", "limit_us"), on="life", maintain_order="left"
        )
        .filter(pl.col("at") <= pl.col("watched_until"))
        .pipe(_in_order)
        .with_columns(state=pl.coalesce(sign_state, base))
        .filter(is_last | (pl.col("at") != pl.col("at").shift(-1)))
    )
    until = pl.when(is_last).then("watched_until").otherwise(pl.col("at").shift(-1))
    silent_from = pl.col("at") + pl.duration(microseconds="limit_us")
    silences = known.filter(pl.col("state") == "running", until > silent_from).with_columns(
        at=silent_from, state=pl.lit("stalled")
    )
    return _in_order(pl.concat([known, silences]))


def _in_order(moments: pl.LazyFrame) -> pl.LazyFrame:
    """Sorted by life and time, stably."""
    # Two stable sorts by one key each are much faster than one sort by both keys.
    return moments.sort("at", maintain_order=True).sort("life", maintain_order=True)


def _stretches(moments: pl.LazyFrame, lives: pl.LazyFrame) -> pl.LazyFrame:
    """Stretches between moments; consecutive equal states are one stretch."""
    changed = (pl.col("state") != pl.col("state").shift(1)).fill_null(value=True)
    is_first = pl.col("life") != pl.col("life").shift(1)
    is_last = (pl.col("life") != pl.col("life").shift(-1)).fill_null(value=True)
    return (
        moments.filter(pl.col("state").is_not_null())
        .filter(changed | is_first)
        .with_columns(
            until=pl.when(is_last).then("watched_until").otherwise(pl.col("at").shift(-1)),
            next_state=pl.when(~is_last).then(pl.col("state").shift(-1)),
        )
        .filter(pl.col("until") > pl.col("at"))
        .join(lives.drop("watched_until", "limit_us"), on="life", maintain_order="left")
        .with_columns(
            from_s=(pl.col("at") - pl.col("born_at")).dt.total_microseconds() / 1e6,
            until_s=(pl.col("until") - pl.col("born_at")).dt.total_microseconds() / 1e6,
        )
        .select(*ENTITY_KEY, *_RUN_COLUMNS, "born_at", *STRETCH)
    )


def _clipped(stretches: pl.LazyFrame, within: Window) -> pl.LazyFrame:
    """The part of stretches within a window: older lives enter late, open ones are censored."""
    since, until = (
        (instant(moment) - pl.col("born_at")).dt.total_microseconds() / 1e6
        for moment in (within.since, within.until)
    )
    is_cut = pl.col("until_s") > until
    return (
        stretches.filter(pl.col("until_s") > since, pl.col("from_s") < until)
        .with_columns(
            from_s=pl.max_horizontal("from_s", since),
            next_state=pl.when(~is_cut).then("next_state"),
            until_s=pl.min_horizontal("until_s", until),
        )
        .filter(pl.col("until_s") > pl.col("from_s"))
    )

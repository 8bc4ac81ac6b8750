"""Lives of runs as stretches of one state each: queued, running, waiting, stalled, ended."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.windows import Window, read_window
from stateanalytics.errors import check_number
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
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
        pl.col("left_out").is_null(), pl.col("started_at") <= snap.as_of
    )
    lives = _lives(runs, snap, _limits(runs, chosen, silent_after_s))
    moments = _moments(split_into_attempts(runs, snap), lives, snap)
    stretches = _stretches(_with_silences(moments, lives), lives)
    if window is None:
        return stretches
    return _clipped(stretches, read_window(window, as_of=snap.as_of))


def _limits(runs: pl.DataFrame, policy: Policy, silent_after_s: float | None) -> pl.DataFrame:
    """The silence after which each kind of work counts as stalled."""
    if silent_after_s is not None:
        check_number("silent_after_s", silent_after_s, 900)
    kinds = runs.select("system", "kind").unique(maintain_order=True)
    limits_s = [
        silent_after_s or policy.limit(system, "stalled_after_s") or policy.stalled_after(kind)
        for system, kind in kinds.iter_rows()
    ]
    return kinds.with_columns(limit_us=pl.Series(limits_s, dtype=pl.Float64) * 1e6)


def _lives(runs: pl.DataFrame, snap: Facts, limits: pl.DataFrame) -> pl.DataFrame:
    """Each run with the begin of its life and the end of its follow-up."""
    is_end_known = pl.col("ended_at").is_not_null() & ~pl.col("is_end_approximate").fill_null(
        value=False
    )
    last_sign = pl.coalesce("last_activity_at", "started_at")
    watched_until = pl.when(pl.col("is_open") | is_end_known).then(pl.lit(snap.as_of))
    judged = runs.join(
        limits, on=["system", "kind"], how="left", nulls_equal=True, maintain_order="left"
    )
    return judged.select(
        *ENTITY_KEY,
        *_RUN_COLUMNS,
        *("created_at", "started_at", "limit_us"),
        born_at=pl.min_horizontal("created_at", "started_at"),
        watched_until=watched_until.otherwise(pl.min_horizontal(last_sign, pl.lit(snap.as_of))),
    ).with_row_index("life")


def _moments(attempts: pl.DataFrame, lives: pl.DataFrame, snap: Facts) -> pl.DataFrame:
    """Everything that sets the state of a run (base) or is a sign of life (sign)."""
    life = lives.select("life", *ENTITY_KEY)
    numbered = attempts.join(life, on=ENTITY_KEY, how="inner")
    queued = lives.filter(pl.col("created_at") < pl.col("started_at")).select(
        "life", at="created_at", state=pl.lit("queued"), what=pl.lit(_BASE)
    )
    starts = numbered.select("life", at="started_at", state=pl.lit("running"), what=pl.lit(_BASE))
    ends = numbered.filter(~pl.col("is_open"), pl.col("ended_at").is_not_null()).select(
        "life", at="ended_at", state=ending(), what=pl.lit(_BASE)
    )
    working, terminal = _status_words()
    changes = (
        snap.transitions.filter(pl.col("system").is_in(working["system"].to_list()))
        .join(life, on=ENTITY_KEY, how="inner")
        .join(terminal, on=["system", "status"], how="anti")
        .join(working, left_on=["system", "status"], right_on=["system", "word"], how="left")
        .select("life", "at", pl.col("state").fill_null("running"), what=pl.lit(_BASE))
    )
    signs = (
        snap.events.join(
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


def _status_words() -> tuple[pl.DataFrame, pl.DataFrame]:
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
        pl.DataFrame(working, schema=dict.fromkeys(names, pl.String), orient="row"),
        pl.DataFrame(terminal, schema=dict.fromkeys(("system", "status"), pl.String), orient="row"),
    )


def _with_silences(moments: pl.DataFrame, lives: pl.DataFrame) -> pl.DataFrame:
    """The state from each moment on, with further moments where a silence makes a run stalled."""
    # Moments are sorted by life, so neighbours replace the slower window over each life.
    is_last = (pl.col("life") != pl.col("life").shift(-1)).fill_null(value=True)
    is_base = (pl.col("what") == _BASE) & pl.col("state").is_not_null()
    is_own = pl.when(is_base).then("life").forward_fill() == pl.col("life")
    base = pl.when(is_own).then(pl.when(is_base).then("state").forward_fill())
    is_at_work = base.is_in(list(AT_WORK))
    sign_state = pl.when((pl.col("what") == _SIGN) & is_at_work).then("state")
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


def _in_order(moments: pl.DataFrame) -> pl.DataFrame:
    """Sorted by life and time, stably."""
    # Two stable sorts by one key each are much faster than one sort by both keys.
    return moments.sort("at", maintain_order=True).sort("life", maintain_order=True)


def _stretches(moments: pl.DataFrame, lives: pl.DataFrame) -> pl.DataFrame:
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


def _clipped(stretches: pl.DataFrame, within: Window) -> pl.DataFrame:
    """The part of stretches within a window: older lives enter late, open ones are censored."""
    since, until = (
        (pl.lit(moment) - pl.col("born_at")).dt.total_microseconds() / 1e6
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

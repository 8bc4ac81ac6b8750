"""Lives of runs as stretches of one state each: queued, running, waiting, silent, over."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.windows import Window, read_window
from stateanalytics.errors import check_number
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.survival.attempts import split_into_attempts
from stateanalytics.survival.run_spells import ending, runs_of
from stateanalytics.systems import all_systems

AT_WORK = ("queued", "running", "waiting", "blocked", "retrying", "stalled")
"""States of work that is not over; other states are the ways to end."""
STRETCH = ("state", "from_s", "until_s", "next_state")
_BORROWED = (
    "session_id",
    "invocation_id",
    "show_id",
    "kind",
    "project",
    "agent",
    "model",
    "playbook",
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
    """One row a stretch of a run's life in one state, from its first start or request on.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    window : optional
        As `report` takes it: only what was seen in it, so that older lives enter late;
        None: all time.
    silent_after_s : float, optional
        After how long without a sign of life a running run is *stalled*; None: what the
        policy says of its kind or system.
    policy : Policy, optional
        For that, and for states.
    states, rows : polars.DataFrame, optional
        States of the snapshot, and the `population` of all time, where they are at hand.

    Returns
    -------
    polars.DataFrame
        The key and columns of the run; ``state``, one of `AT_WORK` or how it ended;
        ``from_s`` and ``until_s`` since its life began; ``next_state`` (null: nobody saw
        what came then). By run and time.

    Notes
    -----
    A life goes on after an end: what was resumed is running again. Which statuses and
    events mean that work waits or is retried, each system says (`System.working_states`).
    A run whose end nobody saw is known up to its last sign of life.
    """
    checked_snapshot(snap, "survival.state_occupancy")
    chosen = policy or Policy.v1()
    runs = runs_of(rows_of(snap, policy=policy, states=states, rows=rows)).filter(
        pl.col("left_out").is_null(), pl.col("started_at") <= snap.as_of
    )
    lives = _lives(runs, snap, _limits(runs, chosen, silent_after_s))
    moments = _moments(split_into_attempts(runs, snap), lives, snap)
    whole = _stretched(_with_silences(moments, lives), lives)
    return whole if window is None else _clipped(whole, read_window(window, as_of=snap.as_of))


def _limits(runs: pl.DataFrame, policy: Policy, silent_after_s: float | None) -> pl.DataFrame:
    """After how long a silence of each kind of work counts."""
    if silent_after_s is not None:
        check_number("silent_after_s", silent_after_s, 900)
    kinds = runs.select("system", "kind").unique(maintain_order=True)
    limits_s = [
        silent_after_s or policy.limit(system, "stalled_after_s") or policy.stalled_after(kind)
        for system, kind in kinds.iter_rows()
    ]
    return kinds.with_columns(limit_us=pl.Series(limits_s, dtype=pl.Float64) * 1e6)


def _lives(runs: pl.DataFrame, snap: Facts, limits: pl.DataFrame) -> pl.DataFrame:
    """Each run with when its life began and until when it was watched."""
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
        *_BORROWED,
        *("created_at", "started_at", "limit_us"),
        born_at=pl.min_horizontal("created_at", "started_at"),
        watched_until=watched_until.otherwise(pl.min_horizontal(last_sign, pl.lit(snap.as_of))),
    ).with_row_index("life")


def _moments(attempts: pl.DataFrame, lives: pl.DataFrame, snap: Facts) -> pl.DataFrame:
    """Everything that puts a run into a state (base), or shows that it lives (sign)."""
    life = lives.select("life", *ENTITY_KEY)
    numbered = attempts.join(life, on=ENTITY_KEY, how="inner")
    queued = lives.filter(pl.col("created_at") < pl.col("started_at")).select(
        "life", at="created_at", state=pl.lit("queued"), what=pl.lit(_BASE)
    )
    starts = numbered.select("life", at="started_at", state=pl.lit("running"), what=pl.lit(_BASE))
    ends = numbered.filter(~pl.col("is_open"), pl.col("ended_at").is_not_null()).select(
        "life", at="ended_at", state=ending(), what=pl.lit(_BASE)
    )
    told, over = _words()
    changes = (
        snap.transitions.filter(pl.col("system").is_in(told["system"].to_list()))
        .join(life, on=ENTITY_KEY, how="inner")
        .join(over, on=["system", "status"], how="anti")
        .join(told, left_on=["system", "status"], right_on=["system", "word"], how="left")
        .select("life", "at", pl.col("state").fill_null("running"), what=pl.lit(_BASE))
    )
    signs = (
        snap.events.join(
            lives.select("life", "source", "system", "session_id", "started_at"),
            left_on=["source", "system", "entity_id"],
            right_on=["source", "system", "session_id"],
            how="inner",
        )
        .join(told, left_on=["system", "kind"], right_on=["system", "word"], how="left")
        .filter(
            pl.col("is_activity") | pl.col("state").is_not_null(),
            pl.col("at") >= pl.col("started_at"),
        )
        .select("life", "at", "state", what=pl.lit(_SIGN))
    )
    # Of those of one moment the last tells: it is the end, and no sign of life.
    return pl.concat([queued, starts, signs, changes, ends]).filter(pl.col("at").is_not_null())


def _words() -> tuple[pl.DataFrame, pl.DataFrame]:
    """What each system's words say of work that does not run, and its words for ends."""
    told = [
        (known.name, word, state)
        for known in all_systems()
        for word, state in known.working_states.items()
    ]
    over = [(known.name, status) for known in all_systems() for status in known.ends.statuses]
    names = ("system", "word", "state")
    return (
        pl.DataFrame(told, schema=dict.fromkeys(names, pl.String), orient="row"),
        pl.DataFrame(over, schema=dict.fromkeys(("system", "status"), pl.String), orient="row"),
    )


def _with_silences(moments: pl.DataFrame, lives: pl.DataFrame) -> pl.DataFrame:
    """The state from each moment on, with further ones where a run had been silent too long."""
    # Moments are in order of lives: the neighbours tell what a window of each life would.
    is_last = (pl.col("life") != pl.col("life").shift(-1)).fill_null(value=True)
    is_base = (pl.col("what") == _BASE) & pl.col("state").is_not_null()
    is_own = pl.when(is_base).then("life").forward_fill() == pl.col("life")
    base = pl.when(is_own).then(pl.when(is_base).then("state").forward_fill())
    is_at_work = base.is_in(list(AT_WORK))
    of_sign = pl.when((pl.col("what") == _SIGN) & is_at_work).then("state")
    told = (
        moments.join(
            lives.select("life", "watched_until", "limit_us"), on="life", maintain_order="left"
        )
        .filter(pl.col("at") <= pl.col("watched_until"))
        .pipe(_in_order)
        .with_columns(state=pl.coalesce(of_sign, base))
        .filter(is_last | (pl.col("at") != pl.col("at").shift(-1)))
    )
    until = pl.when(is_last).then("watched_until").otherwise(pl.col("at").shift(-1))
    silent_from = pl.col("at") + pl.duration(microseconds="limit_us")
    silences = told.filter(pl.col("state") == "running", until > silent_from).with_columns(
        at=silent_from, state=pl.lit("stalled")
    )
    return _in_order(pl.concat([told, silences]))


def _in_order(moments: pl.DataFrame) -> pl.DataFrame:
    """By life and time; of one moment as they were."""
    # Two stable sorts by one key each are much faster than one sort by both.
    return moments.sort("at", maintain_order=True).sort("life", maintain_order=True)


def _stretched(moments: pl.DataFrame, lives: pl.DataFrame) -> pl.DataFrame:
    """From moments to stretches; of equal states in a row the first begins it."""
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
        .select(*ENTITY_KEY, *_BORROWED, "born_at", *STRETCH)
    )


def _clipped(whole: pl.DataFrame, within: Window) -> pl.DataFrame:
    """Only what a window saw: older lives enter late, later ones are cut off."""
    since, until = (
        (pl.lit(moment) - pl.col("born_at")).dt.total_microseconds() / 1e6
        for moment in (within.since, within.until)
    )
    is_cut = pl.col("until_s") > until
    return (
        whole.filter(pl.col("until_s") > since, pl.col("from_s") < until)
        .with_columns(
            from_s=pl.max_horizontal("from_s", since),
            next_state=pl.when(~is_cut).then("next_state"),
            until_s=pl.min_horizontal("until_s", until),
        )
        .filter(pl.col("until_s") > pl.col("from_s"))
    )

"""The command ``durations``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from stateanalytics.cli.options import (
    examples,
    note,
    refuse_options_of_others,
    sources_argument,
    tables_option,
    with_tables,
)
from stateanalytics.cli.output import form_of, note_of_nothing
from stateanalytics.cli.request import IN_WINDOW, Request, takes
from stateanalytics.cli.tables import changed_only
from stateanalytics.core.schema import SPELLS, TIMEOUTS, Frame
from stateanalytics.errors import ArgumentError, did_you_mean

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.snapshot import Snapshot
    from stateanalytics.state.policy import Policy

PROBS = (0.25, 0.5, 0.75, 0.95)
# Columns of a table on the terminal; files hold all.
SHOWN = {
    "quantiles": ("in_words", "n_units"),
    "curve": None,
    "outcomes": None,
    "slow": ("threshold_s", "known_as", "n_runs", "n_flagged", "n_finished_well", "n_open"),
    "change": ("verdict", "in_words"),
    "compare": ("method", "verdict", "in_words"),
    "never-ending": ("n_units", "in_words"),
    "spells": ("entity_id", "kind", "ending", "duration_s", "cut_off_by", "left_out"),
    "left-out": None,
    "limits": (
        *("limit_s", "limit_from", "n_runs", "n_timed_out", "stopped", "n_at_limit"),
        *("stopped_low", "stopped_high"),
    ),
    "timeouts": ("entity_id", "kind", "ending", "elapsed_s", "limit_s", "limit_from", "fits"),
    "candidates": ("in_words",),
    "implicit": ("in_words",),
}
OF_TIME_LIMITS = ("limits", "timeouts", "candidates", "implicit")


@click.command(
    epilog=examples(
        "stateanalytics durations state.db",
        "stateanalytics durations state.db --by agent --prob 0.5 --prob 0.9",
        "stateanalytics durations state.db --show change --week 2026-W21 --by agent",
        "stateanalytics durations state.db --show compare --by model",
        "stateanalytics durations state.db --by teams.owner --table teams=teams.csv",
        "stateanalytics durations state.db --show curve -o curve.csv",
        "stateanalytics durations state.db --show limits",
        "stateanalytics durations state.db --show candidates --candidate 1800 --candidate 3600",
    )
)
@sources_argument
@click.option(
    "--show",
    type=click.Choice(tuple(SHOWN)),
    default="quantiles",
    show_default=True,
    help="Choose what is shown: medians and the like, curves, what becomes of runs, thresholds of "
    "slow, this window against the one before, each kind (or what --by names) against the "
    "most frequent, raw and for the same mix of work, what share never ends, the runs, those that "
    "do not count; each time limit and what it stopped, the runs with their limits, what other "
    "limits would have done, or limits that nobody declared.",
)
@click.option(
    "--by",
    multiple=True,
    default=("kind",),
    show_default=True,
    metavar="COLUMN",
    help="Count by kind, agent, model, playbook, project, system, or a column of --table, such "
    "as teams.owner; may be repeated.",
)
@click.option(
    "--prob",
    "probs",
    multiple=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Show the quantiles of these shares; by default 0.25, 0.5, 0.75, 0.95.",
)
@click.option(
    "--candidate",
    "candidates",
    multiple=True,
    type=float,
    metavar="SECONDS",
    help="Try this limit with --show candidates; may be repeated; by default 5 min to 24 h.",
)
@tables_option
@takes(*IN_WINDOW)
def durations(
    request: Request,
    *,
    show: str,
    by: tuple[str, ...],
    probs: tuple[float, ...],
    candidates: tuple[float, ...],
    own: tuple[str, ...],
) -> None:
    """Show how long runs take, and what time limits stopped.

    A run that is still going, or that its limit stopped, took at least so long; what
    cannot be trusted is excluded and counted on standard error. Limits are read from
    checkpoints and metadata; where none is declared, many ends at the same second reveal
    one, which is then called inferred.
    """
    refuse_options_of_others(
        f"--show {show}",
        {"probs": ["--show quantiles"], "candidates": ["--show candidates"]},
    )
    asked: dict[str, Any] = {
        "by": list(by),
        "window": request.window,
        "policy": request.chosen_policy,
    }
    with request.opened() as snap:
        joined = with_tables(snap, own)
        if show in OF_TIME_LIMITS:
            frame = _time_limits(joined, show, candidates=candidates or None, **asked)
        else:
            frame = _durations(joined, show, probs=probs or PROBS, **asked)
        _write(request, snap, frame, show, by)


def _durations(
    snap: Snapshot,
    show: str,
    *,
    by: list[str],
    probs: tuple[float, ...],
    window: object,
    policy: Policy,
) -> pl.DataFrame:
    import polars as pl

    from stateanalytics.survival.comparison import compare
    from stateanalytics.survival.curves import kaplan_meier
    from stateanalytics.survival.estimates import quantiles
    from stateanalytics.survival.incidence import cumulative_incidence
    from stateanalytics.survival.period_change import duration_change
    from stateanalytics.survival.plateau import never_ending
    from stateanalytics.survival.run_spells import count_left_out, spells
    from stateanalytics.survival.slow import slow_thresholds

    if show == "change":
        _check([name for name in by if "." not in name], SPELLS, SPELLS.dtypes)
        return duration_change(snap, window, by=by, policy=policy)
    is_outcome = show == "outcomes"
    runs = spells(snap, window=window, timeouts="event" if is_outcome else "cut_off", policy=policy)
    runs = _beside(runs, by, snap, SPELLS)
    n_left_out = runs["left_out"].count()
    if n_left_out and show not in ("spells", "left-out"):
        is_or_are = "is" if n_left_out == 1 else "are"
        note(f"{n_left_out} of {runs.height} runs {is_or_are} left out: see --show left-out")
    tables = {
        "spells": lambda: runs,
        "left-out": lambda: count_left_out(runs),
        "slow": lambda: slow_thresholds(runs, by=by),
        "outcomes": lambda: cumulative_incidence(runs, by=by),
        "compare": lambda: pl.concat(compare(runs, by=name) for name in by),
        "never-ending": lambda: never_ending(runs, by=by),
        "curve": lambda: kaplan_meier(runs, by=by),
        "quantiles": lambda: quantiles(kaplan_meier(runs, by=by), probs),
    }
    return tables[show]()


def _time_limits(
    snap: Snapshot,
    show: str,
    *,
    by: list[str],
    candidates: tuple[float, ...] | None,
    window: object,
    policy: Policy,
) -> pl.DataFrame:
    from stateanalytics.survival.candidates import timeout_candidates
    from stateanalytics.survival.run_spells import spells
    from stateanalytics.survival.time_limits import count_timeouts, implicit_timeouts
    from stateanalytics.survival.time_limits import timeouts as limited

    if show in ("limits", "timeouts"):
        limits = _beside(limited(snap, window=window, policy=policy), by, snap, TIMEOUTS)
        return limits if show == "timeouts" else count_timeouts(limits, by=by)
    runs = _beside(spells(snap, window=window, policy=policy), by, snap, SPELLS)
    if show == "implicit":
        return implicit_timeouts(runs, by=by)
    return timeout_candidates(runs, candidates, by=by)


def _beside(rows: pl.DataFrame, by: list[str], snap: Snapshot, frame: Frame) -> pl.DataFrame:
    """Rows with the columns of the user's own tables that dotted names mean; others are theirs."""
    from stateanalytics.core.own_columns import with_own_column

    for name in by:
        rows = with_own_column(rows, name, snap.own_tables)
    _check(by, frame, rows.columns)
    return rows


def _check(by: list[str], frame: Frame, known: Iterable[str]) -> None:
    """Refuse a column that the frame behind the table does not have, in the shell's words."""
    for name in by:
        if name not in known:
            raise ArgumentError(
                f"--by needs a column of {frame.name}; found {name!r:.60}.",
                f"such as --by agent; `stateanalytics sql --schema {frame.name}` lists them"
                + did_you_mean(name, known),
            )


def _write(
    request: Request, snap: Snapshot, frame: pl.DataFrame, show: str, by: tuple[str, ...]
) -> None:
    import polars as pl

    shown = SHOWN[show]
    columns = None if shown is None else [*(name for name in by if name not in shown), *shown]
    if columns is not None:
        columns = [name for name in dict.fromkeys(columns) if name in frame.columns]
        if form_of(request.form, request.output) == "table":
            # A kind without a name is one that nobody recorded.
            unnamed = [name for name in by if frame.schema.get(name) == pl.String]
            frame = frame.with_columns(pl.col(unnamed).fill_null("not recorded"))
            if show == "change":
                frame = changed_only(frame, "verdict", ("no_difference", "not_enough_data"))
    request.write(frame, columns=columns, inputs=snap.inputs)
    note_of_nothing(frame, snap, request.window)

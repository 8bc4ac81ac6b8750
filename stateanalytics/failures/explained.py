"""What explains that fewer runs, or more, complete than before: the faults behind the change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core.joins import left_joined
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.windows import read_window
from stateanalytics.errors import check_number
from stateanalytics.failures.failure_rows import ended_runs, find_members, judged_rows
from stateanalytics.failures.fault_table import titles_of_faults
from stateanalytics.failures.frames import EXPLAINED
from stateanalytics.failures.weekly_change import earlier_period
from stateanalytics.state.definitions import ended_well
from stateanalytics.state.population import share_of, within

if TYPE_CHECKING:
    from stateanalytics.core.facts import Facts
    from stateanalytics.state.policy import Policy

REST = "rest"
"""The part that holds all that are not named."""
WHERE = ("project", "kind", "model")
FEWEST, MOST_OF_PART, LESS_OF_ALL = 3, 0.8, 0.5
"""A part is of a project, kind or model that at least so many of its runs have, which are at
least this share of them, where at most this share of all runs has it."""


def explained_change(
    snap: Facts,
    *,
    window: object = None,
    before: object = None,
    policy: Policy | None = None,
    rules: object = None,
    n: int | None = None,
) -> pl.DataFrame:
    """The change in the share of runs that do not complete, split by fault and outcome.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        Now: as in `read_window`; None: the seven days up to as-of.
    before : str, pair of moments or Window, optional
        The period to compare with; None: the same length, just before.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    n : int, optional
        The number of parts to name; all others are one row, ``rest``. None: all are named.

    Returns
    -------
    polars.DataFrame, shape (n_parts, 12)
        ``part``, the fault of runs that failed or timed out, or else how they ended; its
        ``title``; ``dimension`` and ``value``, the project, kind or model of most of its runs;
        how many of all runs ended so in both periods; ``change``, the difference of these
        shares, with its 95 % interval. The changes of all parts add up to the change of the
        share of runs that did not complete. What explains most of it comes first. Empty where
        no run ended in one of the periods.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, a window makes no sense or they overlap, or ``n`` is
        negative.

    Notes
    -----
    A difference of shares per ended run, so that more work alone changes nothing. Nothing is
    claimed about causes: a fault that came with a release and one that came by chance look the
    same. Intervals are by independent units, as those of the headline.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> parts = explained_change(demo(), window="2026-W21", n=2)
    >>> parts["part"].to_list()[-1], parts.height
    ('rest', 3)
    >>> round(100 * parts["change"].sum())
    25
    """
    rows = judged_rows(snap, policy)
    if n is not None:
        check_number("n", n, 3, is_whole=True)
    now = read_window(window, as_of=snap.as_of)
    past = earlier_period(before, now, snap)
    failed = find_members(snap, rules=rules, rows=rows)
    sides = [ended_runs(within(rows, part, as_of=snap.as_of)) for part in (now, past)]
    return explain(sides[0], sides[1], failed, n=n)


def explain(
    now: pl.DataFrame, before: pl.DataFrame, failed: pl.DataFrame, *, n: int | None = None
) -> pl.DataFrame:
    """The parts of `explained_change`, from the ended runs of both periods.

    Parameters
    ----------
    now, before : polars.DataFrame
        Ended runs of a `population`.
    failed : polars.DataFrame
        The `members` of all time.
    n : int, optional
        As for `explained_change`.
    """
    if now.is_empty() or before.is_empty():
        return EXPLAINED.empty()
    faults = failed.select(*ENTITY_KEY, "fault_id").unique(ENTITY_KEY)
    outcome = pl.coalesce(pl.col("outcome").cast(pl.String), pl.lit("unknown"))
    part = pl.when(~ended_well().fill_null(value=False)).then(pl.coalesce("fault_id", outcome))
    ended, earlier = (
        side.join(faults, on=ENTITY_KEY, how="left").with_columns(part=part)
        for side in (now, before)
    )
    n_each = [
        side.drop_nulls("part").group_by("part").agg(pl.len().cast(pl.Int64).alias(name))
        for side, name in ((ended, "n"), (earlier, "n_before"))
    ]
    counts = n_each[0].join(n_each[1], on="part", how="full", coalesce=True).fill_null(0)
    if counts.is_empty():
        return EXPLAINED.empty()
    shares = pl.col("n") / ended.height - pl.col("n_before") / earlier.height
    total = counts.select(shares.sum()).item() or 0.0
    order = shares if total < 0 else -shares
    named = counts.sort(order, "part")["part"].to_list()[:n]
    others = counts.filter(~pl.col("part").is_in(named))["part"].to_list()
    groups = [*((one, [one]) for one in named), *([(REST, others)] if others else [])]
    rows = [_part(name, parts, ended, earlier) for name, parts in groups]
    titles = titles_of_faults(failed).rename({"fault_id": "part"})
    found = left_joined(pl.DataFrame(rows, infer_schema_length=None), titles, on="part")
    title = pl.coalesce("title", pl.col("part").str.replace_all("_", " "))
    return EXPLAINED.conform(found.with_columns(title=title))


def _part(
    name: str, parts: list[str], now: pl.DataFrame, before: pl.DataFrame
) -> dict[str, object]:
    is_in = pl.col("part").is_in(parts)
    sides = [share_of(side, is_in).sure for side in (now, before)]
    counts = [side.filter(is_in).height for side in (now, before)]
    change = counts[0] / now.height - counts[1] / before.height
    low, high = sides[0].minus(sides[1])[1:] if sides[0] and sides[1] else (None, None)
    grown = now if change >= 0 else before
    where = (None, None, None) if name == REST else _where(grown.filter(is_in), grown)
    return {
        "part": name,
        **dict(zip(("dimension", "value", "n_in"), where, strict=True)),
        **{"n": counts[0], "n_before": counts[1]},
        **{"n_runs": now.height, "n_runs_before": before.height},
        **{"change": change, "low": low, "high": high},
    }


def _where(own: pl.DataFrame, every: pl.DataFrame) -> tuple[str | None, str | None, int | None]:
    """The project, kind or model that most of some runs have, and few others."""
    found: dict[tuple[str, str, int], float] = {}
    for dimension in WHERE:
        value = own[dimension].drop_nulls().mode().sort().first()
        if value is None:
            continue
        n_in, n_all = (rows.filter(pl.col(dimension) == value).height for rows in (own, every))
        inside, outside = n_in / max(own.height, 1), n_all / every.height
        if n_in >= FEWEST and inside >= MOST_OF_PART and outside <= LESS_OF_ALL:
            found[dimension, str(value), n_in] = inside - outside
    return max(found, key=found.__getitem__, default=(None, None, None))

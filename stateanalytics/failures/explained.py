"""What explains that fewer runs, or more, complete than before: the faults behind the change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import collected_each
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.windows import read_window
from stateanalytics.errors import check_number
from stateanalytics.failures.failure_rows import ended_runs, find_members, judged_rows
from stateanalytics.failures.fault_table import titles_of_faults
from stateanalytics.failures.frames import EXPLAINED
from stateanalytics.failures.weekly_change import earlier_period
from stateanalytics.state.definitions import ended_well
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import share_of, within

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
    faults = failed.lazy().select(*ENTITY_KEY, "fault_id").unique(ENTITY_KEY)
    outcome = pl.coalesce(pl.col("outcome").cast(pl.String), pl.lit("unknown"))
    part = pl.when(~ended_well().fill_null(value=False)).then(pl.coalesce("fault_id", outcome))
    placed = [
        side.lazy().join(faults, on=ENTITY_KEY, how="left").with_columns(part=part)
        for side in (now, before)
    ]
    sides = collected_each(placed)
    places = [_places(counted) for counted in collected_each([_counted(side) for side in sides])]
    n_of = [of_side[_ALL][_ALL] for of_side in places]
    changes = {
        part: n_of[0][part] / sides[0].height - n_of[1][part] / sides[1].height
        for part in {*n_of[0], *n_of[1]}
        if part is not None
    }
    if not changes:
        return EXPLAINED.empty()
    way = 1 if fsum(changes.values()) < 0 else -1
    named = sorted(changes, key=lambda part: (way * changes[part], part))
    groups = {part: [part] for part in named[:n]}
    if n is not None and named[n:]:
        groups[REST] = named[n:]
    titles = dict(titles_of_faults(failed).rows())
    rows: list[dict[str, object]] = []
    for name, parts in groups.items():
        n_both = [sum(of_side[part] for part in parts) for of_side in n_of]
        found = _share_change(n_both, pl.col("part").is_in(parts), sides)
        grown = 0 if found["change"] >= 0 else 1
        where = _NOWHERE if name == REST else _where(name, sides[grown].height, places[grown])
        title = titles.get(name) or name.replace("_", " ")
        rows.append({"part": name, "title": title, **where, **found})
    return EXPLAINED.conform(pl.DataFrame(rows, infer_schema_length=None))


def _share_change(
    n_both: list[int], is_in: pl.Expr, sides: Sequence[pl.DataFrame]
) -> dict[str, Any]:
    """The change of the share of a part, with its interval."""
    n_runs = [side.height for side in sides]
    sure = [share_of(side, is_in).sure for side in sides]
    low, high = sure[0].minus(sure[1])[1:] if sure[0] and sure[1] else (None, None)
    return {
        **{"n": n_both[0], "n_before": n_both[1], "n_runs": n_runs[0], "n_runs_before": n_runs[1]},
        **{"change": n_both[0] / n_runs[0] - n_both[1] / n_runs[1], "low": low, "high": high},
    }


_ALL = ""
_Places = dict[str, dict[str, Counter[str | None]]]
"""By dimension and value, how many runs each part has there; None: those that completed."""


def _counted(ended: pl.DataFrame) -> pl.LazyFrame:
    long = ended.lazy().select("part", pl.col(WHERE).cast(pl.String), pl.lit(_ALL).alias(_ALL))
    return (
        long.unpivot(index="part", variable_name="dimension", value_name="value")
        .drop_nulls("value")
        .group_by("dimension", "value", "part")
        .len()
    )


def _places(counted: pl.DataFrame) -> _Places:
    found: _Places = {dimension: {} for dimension in (*WHERE, _ALL)}
    for dimension, value, part, n in counted.rows():
        found[dimension].setdefault(value, Counter())[part] = n
    return found


_NOWHERE: dict[str, object] = dict.fromkeys(("dimension", "value", "n_in"))


def _where(part: str, n_every: int, places: _Places) -> dict[str, object]:
    """The project, kind or model that most runs of a part have, and few others."""
    best, most, n_own = _NOWHERE, 0.0, places[_ALL][_ALL][part]
    for dimension in WHERE:
        values = places[dimension]
        value = min(values, key=lambda name: (-values[name][part], name), default=None)
        if value is None:
            continue
        n_in = values[value][part]
        inside, outside = n_in / max(n_own, 1), values[value].total() / n_every
        is_there = n_in >= FEWEST and inside >= MOST_OF_PART and outside <= LESS_OF_ALL
        if is_there and inside - outside > most:
            best, most = {"dimension": dimension, "value": value, "n_in": n_in}, inside - outside
    return best

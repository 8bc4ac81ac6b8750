"""Review of changed thresholds: the effect that the data before promised, and the effect since."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import collected, collected_each
from stateanalytics.core.text import visible
from stateanalytics.core.windows import WEEK, Window, read_moment
from stateanalytics.core.words import count, how_long, per_hundred
from stateanalytics.detectors.gaps import silence_gaps
from stateanalytics.errors import ArgumentError, check_number, check_one_of, in_short
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.stats.intervals import weighted_count
from stateanalytics.survival.run_spells import spells
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import Constant
from stateanalytics.thresholds.counts import (
    EXPOSURE,
    FEWEST_AT_RISK,
    FEWEST_HIT,
    MUCH_PER_HUNDRED,
    elapsed_counts,
    silence_counts,
    support,
)
from stateanalytics.thresholds.evidence import runs, silences
from stateanalytics.thresholds.frames import REVIEW
from stateanalytics.thresholds.judge import matches_kind
from stateanalytics.thresholds.settings import constants

# As forecast: the whole interval of the forecast's error is within half of the forecast change,
# or within one in a hundred. Not as forecast: that interval does not contain 0. Unclear:
# neither, or too few units before or since the change, or nothing could be forecast.
VERDICTS = {
    "as_promised": "as forecast",
    "not_as_promised": "not as forecast",
    "cannot_tell": "unclear",
}
MEASURES = {
    "false_alarms": "are flagged although they are fine",
    "closed": "reach the limit that ends them",
    "saved": "end well only because the limit is longer",
}
LONGEST = 26 * WEEK
"""Longest period before and after a change that counts."""
STOPPING_S = 1.0
"""A run may end this much before its limit: ends are recorded to the second."""


def review(
    history: Facts,
    *,
    changes: Mapping[str, tuple[object, float, float]] | None = None,
    policy: Policy | None = None,
    rows: pl.DataFrame | None = None,
    elapsed: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Whether false alarms and stopped runs changed as predicted after a threshold changed.

    Parameters
    ----------
    history : Snapshot or Facts
        From `read`, best of an archive: what a store has pruned cannot be reviewed.
    changes : mapping, optional
        Changes that no store records, by name of the threshold: the moment, the value before
        and the value since, in seconds, such as ``{"idle": ("2026-05-04", 300, 600)}``.
    policy : Policy, optional
        Decides which runs have ended; v1 by default.
    rows : polars.DataFrame, optional
        The `population` of all time under this policy, if already computed.
    elapsed : polars.DataFrame, optional
        The `spells` of all time under this policy, if already computed.

    Returns
    -------
    polars.DataFrame, shape (n_measures, 19)
        `thresholds.frames.REVIEW`, in the order of the changes.

    Raises
    ------
    ArgumentError
        If ``history`` is no snapshot, a name is no threshold, or a change is not valid.

    Notes
    -----
    Time limits are recorded with runs: a change is the week in which most runs of a kind
    started under another limit than in the week before, and the last change is reviewed. It
    uses half a year before and after it, but nothing before the previous change, as recorded
    now. The promise is the rate at the new value that the data before predict, by the same
    estimate as the advice; there is none if fewer than ten units were at risk there. A promise
    is kept if the whole interval of the difference is below half of the promised change, or
    one in a hundred; it is broken if that interval excludes 0.

    Other things change as well: a review compares two periods, and does not show why they
    differ.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> changes = {"idle": ("2026-05-20", 300, 600)}
    >>> review(demo(), changes=changes)["measure"].to_list()
    ['closed', 'saved', 'false_alarms']
    """
    checked_snapshot(history, "thresholds.review")
    rows = rows_of(history, policy=policy, rows=rows)
    reported = _reported_changes(changes or {}, policy)
    limits = rows.group_by("system", "kind").agg(pl.col("timeout_s").drop_nulls().n_unique())
    if not reported and not (limits["timeout_s"] > 1).any():
        return REVIEW.empty()
    of_all = spells(history, rows=rows) if elapsed is None else elapsed
    counted = of_all.lazy().filter(pl.col("left_out").is_null())
    changed = [*_limit_changes(counted, policy), *reported]
    is_timed = (pl.col("started_at").is_not_null(), pl.col("duration_s").is_not_null())
    timed = counted.filter(*is_timed).collect()
    evidence = {"runs": runs(timed).hstack([timed["started_at"].alias("began_at")])}
    if any(change.constant.is_of_silence for change in changed):
        gaps = silence_gaps(history, by=("kind", "project", "show_id", "invocation_id"), rows=rows)
        gaps = gaps.filter(pl.col("left_out").is_null(), pl.col("started_at").is_not_null())
        evidence["silences"] = silences(gaps).hstack([gaps["started_at"].alias("began_at")])
    reviews = [
        row for change in changed for row in _review(change, evidence[change.constant.evidence])
    ]
    return REVIEW.conform(pl.DataFrame(reviews, schema=REVIEW.dtypes))


@dataclass(frozen=True)
class _Change:
    """A changed threshold; ``previous_at``: the moment of the change before."""

    constant: Constant
    at: datetime
    before_s: float
    after_s: float
    previous_at: datetime | None = None


@dataclass(frozen=True)
class _Rate:
    """A rate per 100 units of exposure with its interval, from ``n`` independent units."""

    value: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, counts: pl.DataFrame) -> _Rate | None:
        """The rate of mistakes at the only candidate of `silence_counts` or `elapsed_counts`."""
        exposure = float(counts[EXPOSURE].sum())
        if exposure <= 0:
            return None
        n, hits = counts.height, counts["mistakes_0"]
        total = float(hits.sum())
        residual = hits - total / exposure * counts[EXPOSURE]
        variance = n / (n - 1) * float(residual.dot(residual) or 0.0) if n > 1 else 0.0
        heaviest = max(1.0, float(hits.dot(hits) or 0.0) / total) if total else 1.0
        # Few hit units underestimate the variance: at least that of a Poisson count of them.
        if (hits > 0).sum() < FEWEST_HIT:
            variance = max(variance, heaviest * total)
        low, high = weighted_count(total, variance, heaviest)
        scale = 100 / exposure
        return cls(scale * total, scale * low, scale * high, n)


def _review(change: _Change, evidence: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """One row per measure, from the evidence of all systems with ``began_at``."""
    constant = change.constant
    is_own = matches_kind(constant.kind, constant.other_kinds)
    own = evidence.lazy().filter((pl.col("system") == constant.system) & is_own)
    first = max(change.at - LONGEST, change.previous_at or change.at - LONGEST)
    periods = Window(first, change.at, "before"), Window(change.at, change.at + LONGEST, "after")
    before, after = collected_each([own.filter(period.holds("began_at")) for period in periods])
    for measure, old, promised, since in _measured(change, before, after):
        row = {
            "name": constant.name,
            "system": constant.system,
            "kind": constant.kind,
            "changed_at": change.at,
            "before_s": change.before_s,
            "after_s": change.after_s,
            "measure": measure,
            "per": "100 session-hours" if constant.is_of_silence else "100 runs",
            "n_units_before": before["unit"].n_unique(),
            "n_units": after["unit"].n_unique(),
            "before": old.value if old else None,
            **_ends("promised", promised),
            **_ends("since", since),
            "verdict": _verdict(old, promised, since),
        }
        yield row | {"in_words": _in_words(row)}


def _measured(
    change: _Change, before: pl.DataFrame, after: pl.DataFrame
) -> Iterator[tuple[str, _Rate | None, _Rate | None, _Rate | None]]:
    """Each measure with its rate before the change, the promised rate, and the rate since."""
    constant, old_s, new_s = change.constant, change.before_s, change.after_s
    if constant.mistake == "false_alarm":
        counted = silence_counts if constant.is_of_silence else elapsed_counts
        yield (
            "false_alarms",
            _Rate.of(counted(before, [old_s])),
            _Rate.of(counted(before, [new_s])) if _is_seen(before, constant, new_s) else None,
            _Rate.of(counted(after, [new_s])),
        )
    elif not constant.is_of_silence:
        before_at_old, after_at_new = (
            rows.filter((pl.col("timeout_s") == limit_s) | pl.col("timeout_s").is_null())
            for rows, limit_s in ((before, old_s), (after, new_s))
        )
        is_known = _is_seen(before, constant, new_s)
        yield (
            "closed",
            _reaching(before_at_old, old_s),
            _reaching(before, new_s) if is_known else None,
            _reaching(after_at_new, new_s),
        )
        if new_s > old_s:
            promised = _ending_well(before, old_s, new_s) if is_known else None
            yield "saved", None, promised, _ending_well(after_at_new, old_s, new_s)


def _is_seen(rows: pl.DataFrame, constant: Constant, value_s: float) -> bool:
    """Whether enough units were at risk at that value."""
    if constant.is_of_silence:
        rows = rows.select("unit", duration_s="gap_s", ended=pl.col("closed_by") != "as_of")
    at_risk = support(rows[["unit", "duration_s", "ended"]], [value_s]).n_at_risk
    return bool(at_risk) and at_risk[0] >= FEWEST_AT_RISK


def _reaching(rows: pl.DataFrame, limit_s: float) -> _Rate | None:
    """Rate of runs that reach a limit, whatever stops them there or follows."""
    is_reached = pl.col("duration_s") >= limit_s - STOPPING_S
    as_good = rows.with_columns(ended=pl.col("ended") | is_reached, is_good=pl.lit(value=True))
    return _Rate.of(elapsed_counts(as_good, [limit_s - STOPPING_S - 1e-6]))


def _ending_well(rows: pl.DataFrame, from_s: float, to_s: float) -> _Rate | None:
    """Rate of runs that end well between two limits."""
    in_time = pl.col("is_good") & (pl.col("duration_s") <= to_s)
    return _Rate.of(elapsed_counts(rows.with_columns(is_good=in_time), [from_s]))


def _ends(name: str, rate: _Rate | None) -> dict[str, float | None]:
    values = (rate.value, rate.low, rate.high) if rate else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _verdict(old: _Rate | None, promised: _Rate | None, since: _Rate | None) -> str:
    if promised is None or since is None or min(promised.n, since.n) < FEWEST_AT_RISK:
        return "cannot_tell"
    # Zou and Donner's interval of the difference, as in `choose`.
    difference = since.value - promised.value
    low = difference - math.hypot(since.value - since.low, promised.high - promised.value)
    high = difference + math.hypot(since.high - since.value, promised.value - promised.low)
    change = abs(promised.value - (old.value if old else 0.0))
    if max(high, -low) <= max(change / 2, MUCH_PER_HUNDRED):
        return "as_promised"
    return "cannot_tell" if low <= 0 <= high else "not_as_promised"


def _in_words(row: Mapping[str, Any]) -> str:
    def rate(name: str) -> str:
        # The interval of a rate has no upper end, but a run counts once.
        most = 100.0 if row["per"] == "100 runs" else math.inf
        ends = (per_hundred(min(row[f"{name}_{end}"], most)) for end in ("low", "high"))
        return f"{per_hundred(row[name])} ({' to '.join(ends)})"

    values = (how_long(row[name]) for name in ("before_s", "after_s"))
    promised = "no forecast" if row["promised"] is None else f"{rate('promised')} forecast"
    since = "none seen since" if row["since"] is None else f"{rate('since')} since"
    before = "" if row["before"] is None else f"{per_hundred(row['before'])} before, "
    return (
        f"{visible(row['name'])}, {' to '.join(values)} on {row['changed_at']:%Y-%m-%d}: of "
        f"{row['per']}, how many {MEASURES[row['measure']]}: {before}{promised}, {since} "
        f"({count(row['n_units'], 'invocation')}): {VERDICTS[row['verdict']]}."
    )


def _limit_changes(elapsed: pl.LazyFrame, policy: Policy | None) -> list[_Change]:
    """The last change of the time limit of each kind, with the moment of the change before."""
    key = ["system", "kind"]
    changed = collected(
        elapsed.filter(pl.col("timeout_s").is_not_null(), pl.col("kind").is_not_null())
        .group_by(*key, "timeout_s", week=pl.col("started_at").dt.truncate("1w"))
        .agg(n=pl.len(), at=pl.col("started_at").min())
        # The limit of a week is the one of more than half of its runs.
        .filter(pl.col("n") * 2 > pl.col("n").sum().over(*key, "week"))
        .sort(*key, "week")
        .with_columns(before_s=pl.col("timeout_s").shift(1).over(key))
        .filter(pl.col("before_s") != pl.col("timeout_s"))
        .with_columns(previous_at=pl.col("at").shift(1).over(key))
        .unique(key, keep="last", maintain_order=True)
    )
    changes = []
    for system in all_systems():
        if system.name not in changed["system"].to_list():
            continue
        of_system = changed.filter(system=system.name)
        limits = of_system.select(
            "kind",
            limit_s="timeout_s",
            is_inferred=pl.lit(value=False),
            is_mixed=pl.lit(value=False),
        )
        by_kind = {
            constant.kind: constant
            for constant in system.thresholds().kind_constants(policy or Policy.v1(), limits)
            if constant.mistake == "lost_run" and constant.evidence == "runs"
        }
        for row in of_system.iter_rows(named=True):
            if constant := by_kind.get(row["kind"]):
                moments = (row["at"], row["before_s"], row["timeout_s"], row["previous_at"])
                changes.append(_Change(constant, *moments))
    return changes


def _reported_changes(
    changes: Mapping[str, tuple[object, float, float]], policy: Policy | None
) -> list[_Change]:
    """The changes that the caller reports, checked."""
    known = {
        constant.name: constant
        for constant in constants(policy)
        if constant.evidence in ("silences", "runs") and constant.mistake == "false_alarm"
    }
    reported = []
    for name, change in changes.items():
        check_one_of(name, known, "threshold of silence or length")
        if not isinstance(change, tuple) or len(change) != 3:
            raise ArgumentError(
                "A change needs a moment, the value before and that since; "
                f"found {in_short(change)}.",
                f'changes={{"{name}": ("2026-05-04", 300, 600)}}',
            )
        at, before_s, after_s = change
        for value in (before_s, after_s):
            check_number(name, value, 600, is_above=True)
        values = (float(before_s), float(after_s))
        reported.append(_Change(known[name], read_moment(at, name), *values))
    return reported

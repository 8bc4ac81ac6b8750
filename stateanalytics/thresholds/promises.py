"""Was the advice right: what a changed threshold promised, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.schema import INTEGER, MOMENT, REAL, TEXT, Column, Frame
from stateanalytics.core.text import visible
from stateanalytics.core.windows import WEEK, read_moment
from stateanalytics.core.words import how_long, per_hundred
from stateanalytics.detectors.gaps import silence_gaps
from stateanalytics.errors import ArgumentError, check_number, did_you_mean, in_short
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.stats.intervals import weighted_count
from stateanalytics.survival.run_spells import spells
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import Constant
from stateanalytics.thresholds.counts import EXPOSURE, elapsed_counts, silence_counts, support
from stateanalytics.thresholds.evidence import runs, silences
from stateanalytics.thresholds.judge import is_of_kind
from stateanalytics.thresholds.rules import FEWEST_AT_RISK, FEWEST_HIT, MUCH_PER_HUNDRED
from stateanalytics.thresholds.settings import constants

VERDICTS = {
    "as_promised": "what came differs from what was promised by little, beyond noise",
    "not_as_promised": "what came differs from what was promised, beyond noise",
    "cannot_tell": "too few units before or since, or no prediction was possible",
}
MEASURES = {
    "false_alarms": "flagged though they were fine",
    "closed": "reach the limit that ends them",
    "saved": "end well only because the limit is longer",
}
LONGEST = 26 * WEEK
"""What is older, or later, than this is not held against a change."""

REVIEW = Frame(
    "review",
    "one measure of one threshold that was changed: before, as promised, since",
    ("name", "measure"),
    (
        Column("name", TEXT, "the threshold"),
        Column("system", TEXT, "whose it is"),
        Column("kind", TEXT, "of which kind of work; null: every kind"),
        Column("changed_at", MOMENT, "the first start under the new value, or as was said"),
        Column("before_s", REAL, "its value before", "s"),
        Column("after_s", REAL, "its value since", "s"),
        Column("measure", TEXT, f"what is counted: {', '.join(MEASURES)}"),
        Column("per", TEXT, "per how much: 100 session-hours alive, or 100 runs"),
        Column("n_units_before", INTEGER, "invocations before the change"),
        Column("n_units", INTEGER, "invocations since"),
        Column("before", REAL, "how many there were, at the old value; null: not asked"),
        Column("promised", REAL, "how many the data before expect at the new one; null: not known"),
        Column("promised_low", REAL, "lower end of its 95 % interval, by unit"),
        Column("promised_high", REAL, "upper end of its 95 % interval, by unit"),
        Column("since", REAL, "how many there have been since, at the new value"),
        Column("since_low", REAL, "lower end of its 95 % interval, by unit"),
        Column("since_high", REAL, "upper end of its 95 % interval, by unit"),
        Column("verdict", TEXT, f"one of {', '.join(VERDICTS)}"),
        Column("in_words", TEXT, "all of it as a sentence"),
    ),
)


def review(
    history: Facts,
    *,
    changes: Mapping[str, tuple[object, float, float]] | None = None,
    policy: Policy | None = None,
    rows: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Whether false alarms and ended runs moved as promised after a threshold changed.

    Parameters
    ----------
    history : Snapshot or Facts
        What `read` gave, best of an archive: what a store has forgotten cannot be reviewed.
    changes : mapping, optional
        Changes that no store records, by the name of the threshold: when, its value before
        and its value since, in seconds, such as ``{"idle": ("2026-05-04", 300, 600)}``.
    policy : Policy, optional
        Decides which runs have ended; v1 by default.
    rows : polars.DataFrame, optional
        The `population` of all time under this policy, where it is at hand.

    Returns
    -------
    polars.DataFrame, shape (n_measures, 19)
        `REVIEW`, in the order of the changes.

    Raises
    ------
    ArgumentError
        If ``history`` is no snapshot, there is no threshold of a name, or what is said of a
        change makes no sense.

    Notes
    -----
    Time limits are facts of the runs: a change is the week in which most runs of a kind began
    under another limit than in the week before, and the last one is reviewed. Half a year
    before it and after it, and not past the change before, are looked at, as they are known
    now. What is promised is what the data before say of the new value, by the same estimate
    that advice rests on; nothing is where fewer than ten units were under observation there.
    Kept is a promise that is missed by less than half of the move, or one in a hundred, with
    all of the interval; broken is one whose interval does not hold it.

    Other things change as well: a review compares two stretches of time, and does not
    show why they differ.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> said = {"idle": ("2026-05-20", 300, 600)}
    >>> review(demo(), changes=said)["measure"].to_list()
    ['closed', 'saved', 'false_alarms']
    """
    checked_snapshot(history, "thresholds.review")
    rows = rows_of(history, policy=policy, rows=rows)
    said = _said(changes or {}, policy)
    limits = rows.group_by("system", "kind").agg(pl.col("timeout_s").drop_nulls().n_unique())
    if not said and not (limits["timeout_s"] > 1).any():
        return REVIEW.empty()
    elapsed = spells(history, rows=rows).filter(pl.col("left_out").is_null())
    changed = [*_limit_changes(elapsed, policy), *said]
    began_at = pl.col("started_at").alias("began_at")
    timed = elapsed.filter(pl.col("started_at").is_not_null(), pl.col("duration_s").is_not_null())
    every = {"runs": runs(timed).with_columns(timed.select(began_at))}
    if any(change.constant.is_of_silence for change in changed):
        gaps = silence_gaps(history, by=("kind", "project", "show_id", "invocation_id"), rows=rows)
        gaps = gaps.filter(pl.col("left_out").is_null(), pl.col("started_at").is_not_null())
        every["silences"] = silences(gaps).with_columns(gaps.select(began_at))
    found = [
        row for change in changed for row in _reviewed(change, every[change.constant.evidence])
    ]
    return REVIEW.conform(pl.DataFrame(found, schema=REVIEW.dtypes))


@dataclass(frozen=True)
class _Change:
    """A threshold that was changed; ``since``: when it was changed the time before."""

    constant: Constant
    at: datetime
    before_s: float
    after_s: float
    since: datetime | None = None


@dataclass(frozen=True)
class _Rate:
    """How many there are per 100 units of exposure, with both ends; ``n`` independent units."""

    value: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, counts: pl.DataFrame) -> _Rate | None:
        """Of the first candidate of `silence_counts` or `elapsed_counts`."""
        exposure = float(counts[EXPOSURE].sum())
        if exposure <= 0:
            return None
        n, hits = counts.height, counts["mistakes_0"]
        total = float(hits.sum())
        rest = hits - total / exposure * counts[EXPOSURE]
        variance = n / (n - 1) * float((rest**2).sum()) if n > 1 else 0.0
        heaviest = max(1.0, float((hits**2).sum()) / total) if total else 1.0
        if (hits > 0).sum() < FEWEST_HIT:
            variance = max(variance, heaviest * total)
        low, high = weighted_count(total, variance, heaviest)
        each = 100 / exposure
        return cls(each * total, each * low, each * high, n)


def _reviewed(change: _Change, every: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """One row a measure, from the evidence of all systems with ``began_at``."""
    constant = change.constant
    mine = every.filter((pl.col("system") == constant.system) & is_of_kind(constant))
    begun = pl.col("began_at")
    first = max(change.at - LONGEST, change.since or change.at - LONGEST)
    before = mine.filter(begun.is_between(first, change.at, closed="left"))
    after = mine.filter(begun.is_between(change.at, change.at + LONGEST, closed="left"))
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
    """Measure, and its rate before at the old value, as promised, and since at the new one."""
    constant, old_s, new_s = change.constant, change.before_s, change.after_s
    if constant.mistake == "false_alarm":
        count = silence_counts if constant.is_of_silence else elapsed_counts
        yield (
            "false_alarms",
            _Rate.of(count(before, [old_s])),
            _Rate.of(count(before, [new_s])) if _is_seen(before, constant, new_s) else None,
            _Rate.of(count(after, [new_s])),
        )
    elif not constant.is_of_silence:
        held = [
            rows.filter((pl.col("timeout_s") == limit_s) | pl.col("timeout_s").is_null())
            for rows, limit_s in ((before, old_s), (after, new_s))
        ]
        is_known = _is_seen(before, constant, new_s)
        yield (
            "closed",
            _reaching(held[0], old_s),
            _reaching(before, new_s) if is_known else None,
            _reaching(held[1], new_s),
        )
        if new_s > old_s:
            promised = _ending_well(before, old_s, new_s) if is_known else None
            yield "saved", None, promised, _ending_well(held[1], old_s, new_s)


def _is_seen(rows: pl.DataFrame, constant: Constant, value_s: float) -> bool:
    """Whether enough units were under observation for so long."""
    if constant.is_of_silence:
        rows = rows.select("unit", duration_s="gap_s", ended=pl.col("closed_by") != "as_of")
    at_risk = support(rows.select("unit", "duration_s", "ended"), [value_s]).n_at_risk
    return bool(at_risk) and at_risk[0] >= FEWEST_AT_RISK


def _reaching(rows: pl.DataFrame, limit_s: float) -> _Rate | None:
    """Runs that come so far: who stops them there, or what they would come to, is not asked."""
    comes_so_far = pl.col("duration_s") >= limit_s - STOPPING_S
    reached = rows.with_columns(ended=pl.col("ended") | comes_so_far, is_good=pl.lit(value=True))
    return _Rate.of(elapsed_counts(reached, [limit_s - STOPPING_S - 1e-6]))


def _ending_well(rows: pl.DataFrame, from_s: float, to_s: float) -> _Rate | None:
    """Runs that end well between two limits."""
    in_time = pl.col("is_good") & (pl.col("duration_s") <= to_s)
    return _Rate.of(elapsed_counts(rows.with_columns(is_good=in_time), [from_s]))


STOPPING_S = 1.0
"""Stopping takes a moment, and ends are found to the second."""


def _ends(name: str, rate: _Rate | None) -> dict[str, float | None]:
    values = (rate.value, rate.low, rate.high) if rate else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


def _verdict(old: _Rate | None, promised: _Rate | None, since: _Rate | None) -> str:
    if promised is None or since is None or min(promised.n, since.n) < FEWEST_AT_RISK:
        return "cannot_tell"
    missed = since.value - promised.value
    low = missed - math.hypot(since.value - since.low, promised.high - promised.value)
    high = missed + math.hypot(since.high - since.value, promised.value - promised.low)
    move = abs(promised.value - (old.value if old else 0.0))
    if max(high, -low) <= max(move / 2, MUCH_PER_HUNDRED):
        return "as_promised"
    return "cannot_tell" if low <= 0 <= high else "not_as_promised"


def _in_words(row: Mapping[str, Any]) -> str:
    def rate(name: str) -> str:
        ends = (per_hundred(row[f"{name}_{end}"]) for end in ("low", "high"))
        return f"{per_hundred(row[name])} ({' to '.join(ends)})"

    values = (how_long(row[name]) for name in ("before_s", "after_s"))
    promised = "nothing could be promised" if row["promised"] is None else rate("promised")
    if row["promised"] is not None:
        promised += " promised"
    since = "none seen since" if row["since"] is None else f"{rate('since')} since"
    before = "" if row["before"] is None else f"{per_hundred(row['before'])} before, "
    verdict = row["verdict"].replace("_", " ")
    return (
        f"{visible(row['name'])}, {' to '.join(values)} on {row['changed_at']:%Y-%m-%d}: of "
        f"{row['per']}, {MEASURES[row['measure']]}: {before}{promised}, {since} "
        f"({row['n_units']} invocations): {verdict}."
    )


def _limit_changes(elapsed: pl.DataFrame, policy: Policy | None) -> list[_Change]:
    """The last change of the time limit of each kind, and when it was changed before."""
    key = ["system", "kind"]
    changed = (
        elapsed.filter(pl.col("timeout_s").is_not_null(), pl.col("kind").is_not_null())
        .group_by(*key, "timeout_s", week=pl.col("started_at").dt.truncate("1w"))
        .agg(n=pl.len(), at=pl.col("started_at").min())
        .filter(pl.col("n") * 2 > pl.col("n").sum().over(*key, "week"))
        .sort(*key, "week")
        .with_columns(before_s=pl.col("timeout_s").shift(1).over(key))
        .filter(pl.col("before_s") != pl.col("timeout_s"))
        .with_columns(since=pl.col("at").shift(1).over(key))
        .unique(key, keep="last", maintain_order=True)
    )
    found = []
    for known in all_systems():
        limits = changed.filter(system=known.name).select(
            "kind",
            limit_s="timeout_s",
            is_inferred=pl.lit(value=False),
            is_mixed=pl.lit(value=False),
        )
        of_kind = {
            constant.kind: constant
            for constant in known.kind_constants(policy or Policy.v1(), limits)
            if constant.mistake == "lost_run" and constant.evidence == "runs"
        }
        for row in changed.filter(system=known.name).iter_rows(named=True):
            if constant := of_kind.get(row["kind"]):
                found.append(
                    _Change(constant, row["at"], row["before_s"], row["timeout_s"], row["since"])
                )
    return found


def _said(
    changes: Mapping[str, tuple[object, float, float]], policy: Policy | None
) -> list[_Change]:
    """The changes that somebody remembers."""
    known = {
        constant.name: constant
        for constant in constants(policy)
        if constant.evidence in ("silences", "runs") and constant.mistake == "false_alarm"
    }
    found = []
    for name, change in changes.items():
        if name not in known:
            raise ArgumentError(
                f"There is no threshold {in_short(name)} that flags work by its silence or length.",
                f"one of {', '.join(known)}{did_you_mean(str(name), known)}",
            )
        if not isinstance(change, tuple) or len(change) != 3:
            raise ArgumentError(
                "A change needs a moment, the value before and that since; "
                f"found {in_short(change)}.",
                f'changes={{"{name}": ("2026-05-04", 300, 600)}}',
            )
        at, before_s, after_s = change
        for value in (before_s, after_s):
            check_number(name, value, 600, is_above=True)
        found.append(_Change(known[name], read_moment(at, name), float(before_s), float(after_s)))
    return found

"""Slow work: open runs by age, and ended runs that took long."""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.core.joins import Rows
from stateanalytics.core.words import how_long, say
from stateanalytics.failures.counting import SESSION_KEY
from stateanalytics.reporting.entities import pill_of
from stateanalytics.reporting.material import Material, Plain, Section, iso
from stateanalytics.state.definitions import ended_well

N_SHOWN = 8
SHOWN = ("entity_id", "name", "kind", "agent", "model", "project", "timeout_s")


def summarize_slow(material: Material) -> Plain:
    """Open runs by age, each with its silence, and ended runs that took long."""
    limit_s = material.policy.slow_after_s
    still_open = _longest_first(material.open_runs, "age_s")
    is_slow = pl.col("duration_s") > limit_s
    # A pause between attempts, or a wait for the next prompt, is not part of the work.
    attempts = material.attempts.lazy().filter(pl.col("ending") != "running")
    is_turn, is_known = pl.col("entity_type") == "turn", pl.col("left_out").is_null()
    longest_s = pl.col("duration_s").filter(is_known).max()
    longest = attempts.group_by(SESSION_KEY).agg(
        longest_s=pl.when((pl.len() > 1) | is_turn.any()).then(longest_s),
        has_turns=(is_turn & is_known).any(),
    )
    # A session that waits for people has no end of its own, but its turns may have one.
    has_duration = pl.col("has_turns") | (
        (pl.col("duration_s") >= 0)
        & ~pl.col("is_end_approximate").fill_null(False)
        & ~pl.col("end_written_by").is_in(["observer", "import"]).fill_null(False)
    )
    ended = (
        material.ended_runs.join(longest, on=SESSION_KEY, how="left")
        .filter(has_duration)
        .with_columns(duration_s=pl.min_horizontal("duration_s", "longest_s"))
    )
    counts = ended.select(n=pl.len(), n_slow=is_slow.sum(), n_good=(is_slow & ended_well()).sum())
    n_ended, n_slow, n_good = counts.collect().row(0)
    slowest = _longest_first(ended.filter(is_slow), "duration_s").head(N_SHOWN).collect()
    slow_open = still_open.filter(pl.col("age_s") > limit_s)
    return {
        "finding": _finding(still_open, slow_open, (n_good, n_slow, n_ended), limit_s),
        "slow_after_s": limit_s,
        "slow_after": how_long(limit_s),
        "n_open": still_open.height,
        "n_slow_open": slow_open.height,
        "open": [_row(row, "age_s") for row in still_open.head(N_SHOWN).iter_rows(named=True)],
        "n_ended": n_ended,
        "n_slow_ended": n_slow,
        "n_slow_and_good": n_good,
        "ended": [_row(row, "duration_s") for row in slowest.iter_rows(named=True)],
    }


def _longest_first(runs: Rows, column: str) -> Rows:
    return runs.sort(column, "entity_id", descending=[True, False], nulls_last=True)


def _row(row: dict[str, Any], column: str) -> Plain:
    silence_s = row["silence_s"] if row["is_open"] else None  # an ended run is not silent
    return {
        **{name: row[name] for name in SHOWN},
        "pill": pill_of(row),
        "lasted_s": row[column],
        "lasted": how_long(row[column]),
        "silence_s": silence_s,
        "silent": None if silence_s is None else how_long(silence_s),
        "limit": how_long(row["timeout_s"]) if row["timeout_s"] is not None else None,
        "at": iso(row["started_at"]),
    }


def _finding(
    still_open: pl.DataFrame, slow_open: pl.DataFrame, ended: tuple[int, int, int], limit_s: float
) -> str:
    n_good, n_slow, n_ended = ended
    given_open = {"n_open": still_open.height, "limit": limit_s}
    open_runs = say("slow.open" if still_open.height else "slow.none_open", **given_open)
    if slow_open.height:
        longest_s, silence_s = slow_open[["age_s", "silence_s"]].row(0)
        silence = "" if silence_s is None else say("slow.silence", seconds=silence_s)
        given_open |= {"n": slow_open.height, "longest": longest_s}
        open_runs = say("slow.slow_open", silence=silence, **given_open)
    name = ("slow.ended" if n_slow else "slow.none_slow") if n_ended else "slow.none_ended"
    return say(name, open_runs=open_runs, n=n_ended, n_slow=n_slow, n_good=n_good)


SECTION = Section("slow", "Slow", summarize_slow, place=80, needs=("n_open", "n_ended"))

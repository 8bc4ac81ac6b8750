"""What a detector compared, in words, for a whole column at once."""

from __future__ import annotations

from types import MappingProxyType

import polars as pl

from stateanalytics.core.units import how_long_each
from stateanalytics.systems.detector import Detector

SINCE = MappingProxyType(
    {
        "started_age_s": "since start",
        "elapsed_s": "since start",
        "elapsed_whole_s": "since start",
        "created_age_s": "since creation",
        "updated_age_s": "since its row was written",
        "touched_age_s": "since its row was written",
        "last_message_age_s": "since the last message",
        "silence_s": "of silence",
        "activity_age_s": "since the last activity",
        "report_age_s": "since the last report",
        "event_age_s": "since the last event",
        "detecting_age_s": "of doubt",
        "merge_wait_s": "since the merge",
        "retry_overdue_s": "since the retry was due",
        "schedule_silence_s": "since the last proof of work",
        "next_fire_overdue_s": "since the next fire was due",
    }
)
"""How people say what each measure counts."""


def since(measures: tuple[str, ...]) -> str:
    """What a detector's first measure counts, as people say it."""
    if not measures:
        return ""
    if len(measures) > 1 and measures[0] == "last_message_age_s":
        return "of silence"
    return SINCE.get(measures[0], f"of {measures[0].removesuffix('_s').replace('_', ' ')}")


def compared(detector: Detector, measured: pl.Expr, limit: pl.Expr) -> pl.Expr:
    """``9 h since start, limit 1 h``; the rule in words where nothing is compared."""
    if not detector.compares:
        return pl.lit(detector.entry.rule or detector.construct)
    counted = (
        pl.when(measured.is_not_null())
        .then(
            pl.concat_str(how_long_each(measured, "never"), pl.lit(f" {since(detector.compares)}"))
        )
        .otherwise(pl.lit("no such time is recorded"))
    )
    allowed = pl.concat_str(pl.lit(", limit "), how_long_each(limit, "never"))
    return pl.concat_str(counted, pl.when(limit.is_not_null()).then(allowed).otherwise(pl.lit("")))

"""What a detector compared, in words, for a whole column at once."""

from __future__ import annotations

from types import MappingProxyType

import polars as pl

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


def duration(seconds: pl.Expr) -> pl.Expr:
    """Seconds as people say them: ``40 s``, ``75 min``, ``9 h``, ``3.5 d``; never null.

    Examples
    --------
    >>> ages = pl.DataFrame({"s": [40.0, 4500.0, 32400.0, 302400.0, -5.0, None]})
    >>> ages.select(duration(pl.col("s"))).to_series().to_list()
    ['40 s', '75 min', '9 h', '3.5 d', '-5 s', 'never']
    """
    size = seconds.abs()
    number = (
        pl.when(size < 120)
        .then(seconds)
        .when(size < 7200)
        .then(seconds / 60)
        .when(size < 172_800)
        .then(seconds / 3600)
        .otherwise(seconds / 86_400)
    )
    unit = (
        pl.when(size < 120)
        .then(pl.lit(" s"))
        .when(size < 7200)
        .then(pl.lit(" min"))
        .when(size < 172_800)
        .then(pl.lit(" h"))
        .otherwise(pl.lit(" d"))
    )
    # One digit, and none where it would be a zero. Cut, not rounded: what has not passed a
    # limit must not read as if it had.
    tenths = (number.abs() * 10).cast(pl.Int64, strict=False)
    digit = pl.concat_str(pl.lit("."), tenths % 10)
    text = pl.concat_str(
        pl.when(seconds < 0).then(pl.lit("-")).otherwise(pl.lit("")),
        tenths // 10,
        pl.when(tenths % 10 == 0).then(pl.lit("")).otherwise(digit),
    )
    words = pl.concat_str(text, unit)
    return pl.when(seconds.is_finite()).then(words).otherwise(pl.lit("never")).fill_null("never")


def since(measures: tuple[str, ...]) -> str:
    """What a detector's first measure counts, as people say it."""
    if not measures:
        return ""
    if len(measures) > 1 and measures[0] == "last_message_age_s":
        return "of silence"
    return SINCE.get(measures[0], f"of {measures[0].removesuffix('_s').replace('_', ' ')}")


def compared(detector: Detector, measured: pl.Expr, limit: pl.Expr) -> pl.Expr:
    """``9 h since start, limit 60 min``; the rule in words where nothing is compared."""
    if not detector.compares:
        return pl.lit(detector.entry.rule or detector.construct)
    counted = (
        pl.when(measured.is_not_null())
        .then(pl.concat_str(duration(measured), pl.lit(f" {since(detector.compares)}")))
        .otherwise(pl.lit("no such time is recorded"))
    )
    allowed = pl.concat_str(pl.lit(", limit "), duration(limit))
    return pl.concat_str(counted, pl.when(limit.is_not_null()).then(allowed).otherwise(pl.lit("")))

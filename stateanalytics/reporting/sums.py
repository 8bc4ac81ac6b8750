"""The report of counts: the sections that sums allow, and the names of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import polars as pl

from stateanalytics.core.schema import MOMENT
from stateanalytics.core.windows import (
    LAST_WEEK,
    TICK,
    WEEK,
    Window,
    in_utc,
    iso_week,
    read_window,
)
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.cleaning import clean
from stateanalytics.reporting.coverage import coverage_of
from stateanalytics.reporting.front import front_of
from stateanalytics.reporting.material import Plain, plain_rows
from stateanalytics.reporting.phrases import count, listed, share
from stateanalytics.reporting.sections import HEADLINE, choose_sections
from stateanalytics.reporting.sections.fleet import KINDS, fleet_of, with_names
from stateanalytics.reporting.sections.headline import headline_of_sums
from stateanalytics.reporting.sections.over_time import over_time_of
from stateanalytics.reporting.summarize import LOSSES, redactions, said_of, title_of
from stateanalytics.state.definitions import RUN
from stateanalytics.state.population import counted
from stateanalytics.state.reason_codes import REGISTRY
from stateanalytics.summaries.summary import Summary, each_again

N_WEEKS, N_CODES = 12, 20


def summarize_sums(
    counts: Summary,
    window: object = None,
    *,
    sections: Iterable[str] | None = None,
    title: str | None = None,
    redact: bool = True,
) -> Plain:
    """The report of a summary as plain data; see `stateanalytics.reporting.report`.

    Raises
    ------
    ArgumentError
        If the window is no ISO week, or there is no section of a name.
    """
    week = _week_of(counts, window)
    chosen = [section.name for section in choose_sections(sections)]
    raw: Plain = {
        **said_of(week, title or title_of(week), counts.as_of),
        "compared_with": None,
        "actions": [],
        "runs": [],
        **front_of({"headline": {"numbers": []}}),
        "losses": plain_rows(counts.losses.with_columns(example=pl.lit(None, pl.String)), LOSSES),
        "coverage": coverage_of(counts.sources, counts.losses),
        **{name: TOLD[name](counts, week) for name in chosen if name in TOLD},
    }
    raw["sums"] = {
        **_sums(counts, [name for name in chosen if name not in TOLD]),
        # Of failures, sums hold less than the section of that name tells.
        "codes": raw.pop("failures", None),
    }
    cleaned, masked = clean(raw, secrets=redact)
    return {**cleaned, "redactions": redactions(masked, is_on=redact)}


def _week_of(counts: Summary, window: object) -> Window:
    """The ISO week that was asked for; by default the last one that is over."""
    asked = read_window(window or LAST_WEEK, as_of=counts.as_of)
    week = read_window(iso_week(asked.since), as_of=counts.as_of)
    if (week.since, week.until) != (asked.since, asked.until):
        raise ArgumentError(
            f"A summary is counted by ISO week; found {asked.label}.",
            f'window="{iso_week(asked.since)}"',
        )
    return week


def _name(week: Window) -> str:
    return iso_week(week.since)


def _rows(counts: Summary, week: Window) -> pl.DataFrame:
    """The entities of a week, a row each: those of `population.within`."""
    is_open, ended = pl.col("is_open"), pl.col("week")
    began_by_then = (pl.col("began_week") <= _name(week)).fill_null(value=True)
    is_future = (pl.col("left_out") == "future").fill_null(value=False)
    is_in = (is_open & began_by_then) | (~is_open & (ended == _name(week)).fill_null(value=True))
    if week.until > counts.as_of:
        is_in |= is_future
    return each_again(counts.states.filter(is_in))


def _headline(counts: Summary, week: Window) -> Plain:
    n_causes = counts.codes.filter(pl.col("week") == _name(week))["n_run_causes"].sum()
    units = counts.units.filter((pl.col("week") == _name(week)).fill_null(value=True))
    return headline_of_sums(_rows(counts, week), units, int(n_causes), week.label)


def _codes(counts: Summary, week: Window) -> Plain:
    """Failures by reason code, each with the commonest text that is kept of it."""
    codes = counts.codes.filter(pl.col("week") == _name(week))
    texts = counts.failures().drop_nulls("template").unique("code", keep="first")
    n_causes, n_rows = int(codes["n_causes"].sum()), int(codes["n_rows"].sum())
    by_code = (
        codes.group_by("code")
        .agg(pl.col(pl.Int64).sum())
        .join(texts.select("code", "template"), on="code", how="left", nulls_equal=True)
        .sort("n_causes", "n_rows", "code", descending=[True, True, False], nulls_last=True)
    )
    finding = f"{count(n_rows, 'failed or timed-out row').capitalize()} come from " + count(
        n_causes, "cause"
    )
    return {
        "finding": f"{finding}." if n_rows else "Nothing failed or timed out in this week.",
        "k": counts.k,
        "n_more": max(by_code.height - N_CODES, 0),
        "rows": [
            {
                **row,
                "meaning": known.meaning if (known := REGISTRY.get(row["code"])) else None,
                "shown_share": share(row["n_causes"] / n_causes),
            }
            for row in plain_rows(by_code.head(N_CODES))
        ],
    }


def _over_time(counts: Summary, week: Window) -> Plain:
    """The weeks up to the one that is reported, as far back as anything began."""
    runs = counted(counts.states, RUN)
    first = str(runs["began_week"].min() or "")
    back = [week.since - WEEK * back for back in reversed(range(N_WEEKS))]
    moments = [moment for moment in back if iso_week(moment) >= first] or [week.since]
    began = runs.drop_nulls("began_week")
    ended = began.filter(~pl.col("is_open")).with_columns(
        ended_week=pl.max_horizontal("week", "began_week")
    )

    def n_until(rows: pl.DataFrame, column: str, name: str) -> int:
        return int(rows.filter(pl.col(column) <= name)["n"].sum())

    weeks = pl.DataFrame(
        {
            "week": [iso_week(moment) for moment in moments],
            "from_at": pl.Series(moments, dtype=MOMENT),
            "is_part": [moment + WEEK > counts.as_of + TICK for moment in moments],
        }
    )
    n_open = [
        n_until(began, "began_week", name) - n_until(ended, "ended_week", name)
        for name in weeks["week"]
    ]
    steps = weeks.with_columns(n_open=pl.Series(n_open, dtype=pl.Int64))
    ends = (
        runs.filter(~pl.col("is_open"))
        .join(weeks.select("week", "from_at"), on="week")
        .group_by("from_at", ending=pl.col("outcome").cast(pl.String))
        .agg(n=pl.col("n").sum(), n_failed=pl.col("n").filter("has_failed").sum())
    )
    told = over_time_of(steps, ends, "week")
    return {**told, "denominator": "runs, by the ISO week in which they ended"}


def _fleet(counts: Summary, week: Window) -> Plain:
    groups = with_names(counts.groups.filter(pl.col("week") == _name(week)))
    frames = {
        kind: groups.group_by(group=kind).agg(
            n_good=(pl.col("n_ended") - pl.col("n_failed")).sum(),
            n_failed=pl.col("n_failed").sum(),
            n_bad=pl.col("n_causes").sum(),
        )
        for kind in KINDS
    }
    return fleet_of(frames if counts.sources.height > 1 else {}, "cause")


TOLD: Mapping[str, Callable[[Summary, Window], Plain]] = {
    HEADLINE: _headline,
    "fleet": _fleet,
    "failures": _codes,
    "over_time": _over_time,
}
"""The sections that sums allow."""


def _sums(counts: Summary, others: list[str]) -> Plain:
    n = int(counts.states["n"].sum())
    inputs = count(counts.sources.height, "input").capitalize()
    names = listed(name.replace("_", " ") for name in others)
    return {
        "finding": f"{inputs} with {count(n, 'entity', 'entities')}, counted as of "
        f"{in_utc(counts.as_of)} by policy {counts.policy}.",
        "not_told": f"Not told, because sums do not hold it: {names}." if others else "",
    }

"""Frames to plain data: the summary of a snapshot, and the summary of stored weekly counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.charts.report_charts import begin_drawing
from stateanalytics.core.facts import losses_of
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
from stateanalytics.core.words import count, listed, share
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.changes import compared_with, is_covered, with_changes, with_limits
from stateanalytics.reporting.entities import named_runs, place_of
from stateanalytics.reporting.first_screen import actions_of, coverage_of, front_of
from stateanalytics.reporting.ledger import write_ledger
from stateanalytics.reporting.material import Material, Plain, Section, clean, iso, plain_rows
from stateanalytics.reporting.sections import HEADLINE, SECTIONS, choose_sections
from stateanalytics.reporting.sections.failures import lost_in_all
from stateanalytics.reporting.sections.fleet import KINDS, fleet_of, with_names
from stateanalytics.reporting.sections.headline import headline_of_sums, summarize_headline
from stateanalytics.reporting.sections.over_time import over_time_of
from stateanalytics.state.definitions import RUN
from stateanalytics.state.population import counted
from stateanalytics.state.reason_codes import REGISTRY
from stateanalytics.summaries.summary import Summary, repeated

SHAPE_VERSION = 1
"""Of the summary: changes when a key changes its meaning or goes away."""
LOSSES = ("source", "table", "code", "n_rows", "message", "example", "action")

_LEDGER, _BEFORE = "ledger", "earlier window"  # what is made beside the sections
# Rows: fewer are done before threads have begun, and the steps of more keep all cores busy
# one by one, with less memory.
_WORTH_THREADS = range(20_000, 300_000)
_N_THREADS = 2


def summarize(
    material: Material,
    *,
    sections: Sequence[Section] = SECTIONS,
    earlier: Window | None = None,
    title: str | None = None,
    redact: bool = True,
    begin: Callable[[str], object] = str,
) -> Plain:
    """The whole report as dicts, lists, texts and numbers.

    Parameters
    ----------
    material : Material
        Facts, states and reasons, narrowed to a window.
    sections : sequence of Section
        What to tell; the headline is among them.
    earlier : Window, optional
        A window that the headline is compared with.
    title : str, optional
        Heading of the report.
    redact : bool
        Whether to mask what looks like a secret. Control characters are made visible
        and long texts cut in any case.
    begin : callable
        Called with the name of each section as it begins.

    Returns
    -------
    dict
        Fit for JSON. Keys are fixed, and each section that was asked for is one; texts of a store
        stand only in values. The same input gives the same summary.
    """
    window = material.window
    summaries, before, ledger = _parts(material, sections, earlier, redact=redact, begin=begin)
    if before:
        headline = summaries[HEADLINE]
        numbers = with_changes(headline["numbers"], before.numbers, before.n_unknown)
        summaries[HEADLINE] = {**headline, "numbers": numbers}
    facts = material.facts
    losses = losses_of(facts.findings)
    raw: Plain = {
        **said_of(window, title or title_of(window), facts.as_of),
        "compared_with": compared_with(earlier, material),
        "losses": plain_rows(losses, LOSSES),
        "coverage": coverage_of(facts.sources, losses),
        **summaries,
    }
    raw |= front_of(raw, before.lost if before else None)
    raw["runs"] = named_runs(summaries, material)
    raw["actions"] = actions_of(raw, place_of(facts), _asked_of(window, facts.as_of))
    cleaned, masked = clean(raw, secrets=redact)
    return {
        **cleaned,
        # Digests, which a mask for secrets must not touch: two reports are compared by them.
        "ledger": ledger,
        "redactions": redactions(masked, is_on=redact),
    }


def _parts(
    material: Material,
    sections: Sequence[Section],
    earlier: Window | None,
    *,
    redact: bool,
    begin: Callable[[str], object],
) -> tuple[dict[str, Plain], _Before | None, list[str]]:
    """The sections, what is told of the earlier window, and the ledger.

    None of them needs another, and most of the work of each is polars', which leaves cores
    idle between its many small steps: of a large material several are made at a time, the
    long ones first, which are the last of the page.
    """
    work: dict[str, Callable[[], Any]] = {
        section.name: partial(_made, section, material, redact=redact, begin=begin)
        for section in sections
    }
    work |= {_LEDGER: partial(write_ledger, material), _BEFORE: lambda: None}
    if earlier:
        is_told = any(section.name == "failures" for section in sections)
        work[_BEFORE] = partial(_before, material, earlier, has_failures=is_told)
    if material.ever.height not in _WORTH_THREADS:
        made = {name: make() for name, make in work.items()}
    else:
        with ThreadPoolExecutor(_N_THREADS) as threads:
            waiting = {name: threads.submit(work[name]) for name in reversed(work)}
            made = {name: each.result() for name, each in waiting.items()}
    return {section.name: made[section.name] for section in sections}, made[_BEFORE], made[_LEDGER]


class _Before(NamedTuple):
    """What a report tells of the window that it is compared with."""

    numbers: list[Plain]
    n_unknown: int
    lost: Plain | None


def _before(material: Material, earlier: Window, *, has_failures: bool) -> _Before:
    """The earlier window's numbers; what its failures cost where that is said."""
    before = material.over(earlier)
    is_told = has_failures and is_covered(earlier, material)
    return _Before(
        summarize_headline(before)["numbers"],
        before.n_unknown,
        lost_in_all(before.failed) if is_told else None,
    )


def _made(
    section: Section, material: Material, *, redact: bool, begin: Callable[[str], object]
) -> Plain:
    """A section, which is drawn as it will be shown while the next ones are made."""
    begin(section.label.lower())
    made = section.summarize(material)
    if section.name == HEADLINE:
        made = with_limits(made, material)
    begin_drawing(section.name, lambda: clean(made, secrets=redact)[0])
    return made


def said_of(window: Window, title: str, as_of: datetime) -> Plain:
    """What every report says of itself."""
    return {
        "shape_version": SHAPE_VERSION,
        "made_by": version("stateanalytics"),
        "title": title,
        "window": {
            "label": window.label,
            "since": iso(window.since),
            "until": iso(window.until),
            "days": round(window.days, 3),
            "is_over": window.until <= as_of + TICK,
        },
    }


def _asked_of(window: Window, as_of: datetime) -> str:
    """The window as commands are asked for it."""
    year, week, day = window.since.isocalendar()
    if day == 1 and window == read_window(f"{year}-W{week:02}", as_of=as_of):
        return f"--week {year}-W{week:02}"
    asked = f"--since {iso(window.since)}"
    return asked if window.until > as_of else f"{asked} --until {iso(window.until)}"


def redactions(masked: Mapping[str, int], *, is_on: bool) -> Plain:
    """How many secrets of each kind were masked."""
    kinds = [{"kind": kind, "n": n} for kind, n in sorted(masked.items())]
    return {"is_on": is_on, "n": sum(masked.values()), "kinds": kinds}


def title_of(window: Window) -> str:
    """The heading of a report that nobody gave another."""
    return "Weekly report" if window.until - window.since == WEEK else f"Report on {_days(window)}"


def _days(window: Window) -> str:
    days = round(window.days, 1)
    return "1 day" if days == 1 else f"{days:,g} days"


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


def _week_name(week: Window) -> str:
    return iso_week(week.since)


def _rows_of_week(counts: Summary, week: Window) -> pl.DataFrame:
    """The entities of a week, a row each: those of `population.within`."""
    is_open, ended = pl.col("is_open"), pl.col("week")
    began_by_then = (pl.col("began_week") <= _week_name(week)).fill_null(value=True)
    is_future = (pl.col("left_out") == "future").fill_null(value=False)
    is_in = (is_open & began_by_then) | (
        ~is_open & (ended == _week_name(week)).fill_null(value=True)
    )
    if week.until > counts.as_of:
        is_in |= is_future
    return repeated(counts.states.filter(is_in))


def _headline_from_counts(counts: Summary, week: Window) -> Plain:
    n_causes = counts.codes.filter(pl.col("week") == _week_name(week))["n_run_causes"].sum()
    units = counts.units.filter((pl.col("week") == _week_name(week)).fill_null(value=True))
    return headline_of_sums(_rows_of_week(counts, week), units, int(n_causes), week.label)


def _codes_from_counts(counts: Summary, week: Window) -> Plain:
    """Failures by reason code, each with the commonest text that is kept of it."""
    codes = counts.codes.filter(pl.col("week") == _week_name(week))
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


def _over_time_from_counts(counts: Summary, week: Window) -> Plain:
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


def _fleet_from_counts(counts: Summary, week: Window) -> Plain:
    groups = with_names(counts.groups.filter(pl.col("week") == _week_name(week)))
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
    HEADLINE: _headline_from_counts,
    "fleet": _fleet_from_counts,
    "failures": _codes_from_counts,
    "over_time": _over_time_from_counts,
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

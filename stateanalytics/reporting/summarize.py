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
from stateanalytics.core import windows
from stateanalytics.core.facts import losses_of
from stateanalytics.core.schema import MOMENT
from stateanalytics.core.words import say, share
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting import first_screen
from stateanalytics.reporting.changes import compared_with, is_covered, with_changes, with_limits
from stateanalytics.reporting.entities import named_runs, place_of
from stateanalytics.reporting.evidence import with_evidence
from stateanalytics.reporting.ledger import write_ledger
from stateanalytics.reporting.material import Material, Plain, Section, clean, iso, plain_rows
from stateanalytics.reporting.sections import HEADLINE, SECTIONS, choose_sections
from stateanalytics.reporting.sections.failures import lost_in_all
from stateanalytics.reporting.sections.fleet import KINDS, fleet_of, with_names
from stateanalytics.reporting.sections.headline import headline_of_sums, summarize_headline
from stateanalytics.reporting.sections.over_time import over_time_of
from stateanalytics.reporting.story import cost_of, story_of
from stateanalytics.state.definitions import RUN
from stateanalytics.state.population import counted
from stateanalytics.state.reasons import REGISTRY
from stateanalytics.summaries.summary import Summary, repeated

SHAPE_VERSION = 1
"""Version of the summary: it rises when a key changes its meaning or is removed."""
LOSSES = ("source", "table", "code", "n_rows", "message", "example", "action")

_LEDGER, _BEFORE = "ledger", "earlier window"  # work that is done next to the sections
# Rows: with fewer, the work is done before threads have started; with more, polars keeps all
# cores busy by itself, and threads would only take memory.
_WORTH_THREADS = range(20_000, 300_000)
_N_THREADS = 2


def summarize(
    material: Material,
    *,
    sections: Sequence[Section] = SECTIONS,
    earlier: windows.Window | None = None,
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
        Sections to include; the headline is one of them.
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
        **frame_of_report(window, title or title_of(window), facts.as_of),
        "tz": material.zone,
        "compared_with": compared_with(earlier, material),
        "losses": plain_rows(losses, LOSSES),
        "coverage": first_screen.coverage_of(facts.sources, losses, material.outdated),
        **summaries,
    }
    story = story_of(summaries[HEADLINE], material, earlier, before.cost if before else None)
    raw |= first_screen.front_of(raw, before.lost if before else None, story)
    raw |= {"place": place_of(facts, material.policy), "arguments": material.arguments}
    actions = first_screen.actions_of(raw, raw["place"], material.arguments)
    raw["actions"] = with_evidence(actions, material, raw["place"])
    raw["unassigned"] = first_screen.unassigned(actions)
    raw["runs"] = named_runs({**summaries, "actions": raw["actions"]}, material)
    # The ledger is not masked: two reports are compared by its digests.
    return {**_cleaned(raw, redact=redact), "ledger": ledger}


def _parts(
    material: Material,
    sections: Sequence[Section],
    earlier: windows.Window | None,
    *,
    redact: bool,
    begin: Callable[[str], object],
) -> tuple[dict[str, Plain], _Before | None, list[str]]:
    """The sections, the numbers of the earlier window, and the ledger.

    They do not depend on each other, and polars leaves cores idle between many small steps:
    for a large material several are made in parallel, the slowest first, which are the last of
    the page.
    """
    work: dict[str, Callable[[], Any]] = {
        section.name: partial(_summarized, section, material, redact=redact, begin=begin)
        for section in sections
    }
    work |= {_LEDGER: partial(write_ledger, material), _BEFORE: lambda: None}
    if earlier:
        has_failures = any(section.name == "failures" for section in sections)
        work[_BEFORE] = partial(_before, material, earlier, has_failures=has_failures)
    if material.ever.height not in _WORTH_THREADS:
        results = {name: task() for name, task in work.items()}
    else:
        with ThreadPoolExecutor(_N_THREADS) as threads:
            waiting = {name: threads.submit(work[name]) for name in reversed(work)}
            results = {name: future.result() for name, future in waiting.items()}
    summaries = {section.name: results[section.name] for section in sections}
    return summaries, results[_BEFORE], results[_LEDGER]


class _Before(NamedTuple):
    """The earlier window of a comparison."""

    numbers: list[Plain]
    n_unknown: int
    lost: Plain | None
    cost: Plain


def _before(material: Material, earlier: windows.Window, *, has_failures: bool) -> _Before:
    """The numbers of the earlier window, and the cost of its failures where it is shown."""
    before = material.over(earlier)
    headline = summarize_headline(before)
    completed = first_screen.completed_of(headline)
    # Where no run ended, "nothing was lost" says nothing.
    has_ended = completed is not None and completed["of"]
    has_cost = has_failures and has_ended and is_covered(earlier, material)
    return _Before(
        headline["numbers"],
        before.n_unknown,
        lost_in_all(before.failed) if has_cost else None,
        cost_of(before),
    )


def _summarized(
    section: Section, material: Material, *, redact: bool, begin: Callable[[str], object]
) -> Plain:
    """A section; its chart is drawn in the background while the next sections are made."""
    begin(section.label.lower())
    summary = section.summarize(material)
    if section.name == HEADLINE:
        summary = with_limits(summary, material)
    begin_drawing(section.name, summary, lambda drawn: clean(drawn, secrets=redact)[0])
    return summary


def frame_of_report(window: windows.Window, title: str, as_of: datetime) -> Plain:
    """Version, title and window: the keys that every report begins with."""
    return {
        "shape_version": SHAPE_VERSION,
        "made_by": version("stateanalytics"),
        "title": title,
        "window": {
            "label": window.label,
            "since": iso(window.since),
            "until": iso(window.until),
            "days": round(window.days, 3),
            "is_over": window.until <= as_of + windows.TICK,
        },
    }


def _cleaned(raw: Plain, *, redact: bool) -> Plain:
    """The summary, safe to show, with the number of masked secrets by kind."""
    cleaned, masked = clean(raw, secrets=redact)
    kinds = [{"kind": kind, "n": n} for kind, n in sorted(masked.items())]
    return {**cleaned, "redactions": {"is_on": redact, "n": masked.total(), "kinds": kinds}}


def title_of(window: windows.Window) -> str:
    """The default title of a report."""
    if window.until - window.since == windows.WEEK:
        return "Weekly report"
    days = round(window.days, 1)
    return f"Report on {'1 day' if days == 1 else f'{days:,g} days'}"


N_WEEKS, N_CODES = 12, 20


def summarize_sums(
    counts: Summary,
    window: object = None,
    *,
    sections: Iterable[str] | None = None,
    title: str | None = None,
    redact: bool = True,
) -> Plain:
    """The report of weekly counts as plain data; see `stateanalytics.reporting.report`.

    Raises
    ------
    ArgumentError
        If the window is no ISO week, or a section is not known.
    """
    week = _week_of(counts, window)
    chosen = [section.name for section in choose_sections(sections)]
    raw: Plain = {
        **frame_of_report(week, title or title_of(week), counts.as_of),
        "tz": "UTC",
        "compared_with": None,
        **{"actions": [], "unassigned": None, "runs": [], "place": ""},
        "losses": plain_rows(counts.losses.with_columns(example=pl.lit(None, pl.String)), LOSSES),
        "coverage": first_screen.coverage_of(counts.sources, counts.losses),
        **{name: COUNTED[name](counts, week) for name in chosen if name in COUNTED},
    }
    raw |= first_screen.front_of(raw)
    raw["sums"] = {
        **_sums(counts, [name for name in chosen if name not in COUNTED]),
        # Weekly counts hold less than the section on failures shows.
        "codes": raw.pop("failures", None),
    }
    return _cleaned(raw, redact=redact)


def _week_of(counts: Summary, window: object) -> windows.Window:
    """The requested ISO week; by default the last week that is over."""
    requested = windows.read_window(window or windows.LAST_WEEK, as_of=counts.as_of)
    week = windows.read_window(windows.iso_week(requested.since), as_of=counts.as_of)
    if (week.since, week.until) != (requested.since, requested.until):
        raise ArgumentError(
            f"A summary is counted by ISO week; found {requested.label}.",
            f'window="{windows.iso_week(requested.since)}"',
        )
    return week


def _week_name(week: windows.Window) -> str:
    return windows.iso_week(week.since)


def _rows_of_week(counts: Summary, week: windows.Window) -> pl.DataFrame:
    """The entities of a week, one row each, as of `population.within`."""
    is_open, name = pl.col("is_open"), _week_name(week)
    has_begun = (pl.col("began_week") <= name).fill_null(value=True)
    is_in = (is_open & has_begun) | (~is_open & (pl.col("week") == name).fill_null(value=True))
    if week.until > counts.as_of:
        is_in |= (pl.col("left_out") == "future").fill_null(value=False)
    return repeated(counts.states.filter(is_in))


def _headline_from_counts(counts: Summary, week: windows.Window) -> Plain:
    n_causes = counts.codes.filter(pl.col("week") == _week_name(week))["n_run_causes"].sum()
    units = counts.units.filter((pl.col("week") == _week_name(week)).fill_null(value=True))
    return headline_of_sums(_rows_of_week(counts, week), units, int(n_causes), week.label)


def _codes_from_counts(counts: Summary, week: windows.Window) -> Plain:
    """Failures by reason code, each with its most common stored message."""
    codes = counts.codes.filter(pl.col("week") == _week_name(week))
    texts = counts.failures().drop_nulls("template").unique("code", keep="first")
    n_causes, n_rows = (int(codes[name].sum()) for name in ("n_causes", "n_rows"))
    by_code = (
        codes.group_by("code")
        .agg(pl.col(pl.Int64).sum())
        .join(texts.select("code", "template"), on="code", how="left", nulls_equal=True)
        .sort("n_causes", "n_rows", "code", descending=[True, True, False], nulls_last=True)
    )
    name = "sums.failures" if n_rows else "sums.no_failure"
    return {
        "finding": say(name, n_rows=n_rows, n_causes=n_causes),
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


def _over_time_from_counts(counts: Summary, week: windows.Window) -> Plain:
    """The weeks up to the reported one, from the first week with a run."""
    runs = counted(counts.states, RUN)
    first = str(runs["began_week"].min() or "")
    mondays = [week.since - windows.WEEK * n for n in reversed(range(N_WEEKS))]
    moments = [moment for moment in mondays if windows.iso_week(moment) >= first] or [week.since]
    began = runs.drop_nulls("began_week")
    ended = began.filter(~pl.col("is_open")).with_columns(
        ended_week=pl.max_horizontal("week", "began_week")
    )

    def n_until(rows: pl.DataFrame, column: str, name: str) -> int:
        return int(rows.filter(pl.col(column) <= name)["n"].sum())

    names = [windows.iso_week(moment) for moment in moments]
    n_open = [
        n_until(began, "began_week", name) - n_until(ended, "ended_week", name) for name in names
    ]
    steps = pl.DataFrame(
        {
            "week": names,
            "from_at": pl.Series(moments, dtype=MOMENT),
            "is_part": [moment + windows.WEEK > counts.as_of + windows.TICK for moment in moments],
            "n_open": pl.Series(n_open, dtype=pl.Int64),
        }
    )
    ends = (
        runs.filter(~pl.col("is_open"))
        .join(steps.select("week", "from_at"), on="week")
        .group_by("from_at", ending=pl.col("outcome").cast(pl.String))
        .agg(n=pl.col("n").sum(), n_failed=pl.col("n").filter("has_failed").sum())
    )
    return {**over_time_of(steps, ends, "week"), "denominator": say("over_time.counted_weeks")}


def _fleet_from_counts(counts: Summary, week: windows.Window) -> Plain:
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


COUNTED: Mapping[str, Callable[[Summary, windows.Window], Plain]] = {
    HEADLINE: _headline_from_counts,
    "fleet": _fleet_from_counts,
    "failures": _codes_from_counts,
    "over_time": _over_time_from_counts,
}
"""The sections that weekly counts allow."""


def _sums(counts: Summary, others: list[str]) -> Plain:
    names = [name.replace("_", " ") for name in others]
    finding = say(
        "sums.finding",
        n=counts.sources.height,
        n_entities=int(counts.states["n"].sum()),
        at=windows.minute_of(counts.as_of),
        policy=counts.policy,
    )
    not_included = say("sums.not_included", sections=names) if others else ""
    return {"finding": finding, "not_included": not_included}

"""The window in five numbers, each with its denominator and what it excludes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import polars as pl

from stateanalytics.core.windows import minute_of, zone_of
from stateanalytics.core.words import interval, listed, number, say, sentence_of, share
from stateanalytics.failures.counting import count_run_incidents
from stateanalytics.reporting.changes import share_fields
from stateanalytics.reporting.entities import pill_of
from stateanalytics.reporting.material import Material, Plain, Section, tally
from stateanalytics.state.definitions import EMPTY_HANDED, LEFT_OUT, RUN, ended_well
from stateanalytics.state.population import Count, count_headline, counted, is_counted
from stateanalytics.stats.shares import share_of_units

_COLUMNS = (
    *("source", "entity_type", "entity_id", "session_id", "invocation_id", "show_id", "project"),
    *("left_out", "is_open", "outcome", "delivery", "severity", "tone"),
)
"""The columns that are needed. Every filter copies all columns, so the others are dropped."""
FAILED_AS = {"failed": "failed", "timed_out": "timed out", "aborted": "aborted"}
"""Outcomes of failed runs, as the finding names them."""
_NONE_FAILED = say("headline.note_none_failed")


def summarize_headline(material: Material) -> Plain:
    """Runs, completion share, timed-out share, unresolved runs and incidents."""
    rows = material.rows[list(_COLUMNS)]
    runs = counted(rows, RUN)
    counts = count_headline(runs, count_run_incidents(material.failed)[0])
    failed = material.failed.filter(pl.col("entity_type") == RUN)
    n_causes = failed["cause"].n_unique()
    note = say("headline.note_incidents", n=failed.height) if failed.height else _NONE_FAILED
    incidents = _figure(
        *("incidents", "Incidents", counts["incidents"], say("headline.counted_incidents"), note)
    )
    clauses = _clauses(
        *(material.window.label, counts, runs, failed),
        partial(say, "headline.failed", n_incidents=counts["incidents"].n),
    )
    if material.facts.entities.is_empty():
        clauses = [say("headline.no_data")]
    elif runs.is_empty():
        first = material.begins
        if first is not None and first >= material.window.until:
            begins = minute_of(first, zone_of(material.zone))
            clauses = [f"{clauses[0]} {say('headline.too_early', first=begins)}"]
        if n := rows.filter(entity_type=RUN, left_out="undated").height:
            clauses = [f"{clauses[0]} {say('headline.undated', n=n)}"]
    return {**headline_of(rows, counts, incidents, clauses), "n_causes": n_causes}


def headline_of_sums(rows: pl.DataFrame, units: pl.DataFrame, n_causes: int, label: str) -> Plain:
    """The headline from weekly counts, of which only the causes of failures are known."""
    runs = counted(rows, RUN)
    failed = runs.filter("has_failed")
    counts = {
        name: count._replace(**_interval_of_counts(name, count, units))
        for name, count in count_headline(runs, 0).items()
    }
    note = say("headline.note_failed", n=failed.height) if failed.height else _NONE_FAILED
    title, counted_as = "Causes of failed runs", say("headline.counted_causes")
    causes = _figure("causes", title, Count(n_causes), counted_as, note)
    in_words = partial(say, "headline.failed_causes", n_incidents=n_causes)
    return headline_of(rows, counts, causes, _clauses(label, counts, runs, failed, in_words))


def _interval_of_counts(name: str, counted: Count, units: pl.DataFrame) -> Plain:
    """The interval of a share of weekly counts; None where units and runs do not match."""
    if counted.of is not None:
        is_open = name == "unresolved"
        of_runs = units.filter(pl.col("is_open") == is_open)
        sure = share_of_units(of_runs.select(x=f"n_{name}", m="n_runs", times="n"))
        if (sure.n_hits, sure.n) == (counted.n, counted.of):
            return {"sure": sure, "unit": "invocation"}
    # An interval over runs would be too narrow: runs of an invocation are correlated.
    return {"sure": None, "unit": ""}


def headline_of(
    rows: pl.DataFrame, counts: Mapping[str, Count], last: Plain, clauses: list[str]
) -> Plain:
    """The five numbers of rows of a window.

    Parameters
    ----------
    rows : polars.DataFrame
        Of a `population`.
    counts : mapping of str to Count
        The result of `count_headline` for their runs.
    last : dict
        The fifth number: what the failures are counted as.
    clauses : list of str
        The headline in words: how many runs completed, and how the others ended.
    """
    n_runs = counts["runs"].n
    ended = rows.filter(is_counted(RUN), ~pl.col("is_open"))
    n_empty = ended.filter(ended_well() & pl.col("delivery").is_in(list(EMPTY_HANDED))).height
    note_runs = say("headline.note_runs", n_ended=ended.height, n_open=n_runs - ended.height)
    stopped = say("headline.note_timed_out") if ended.height else ""
    note_empty = say("headline.note_completed", n=n_empty) if n_empty else ""
    has_open = bool(counts["unresolved"].of)
    unresolved = "headline.note_unresolved" if has_open else "headline.note_none_open"
    figures = (
        ("runs", "Runs", "headline.counted_runs", note_runs),
        ("completed", "Completed", "headline.counted_ended", note_empty),
        ("timed_out", "Timed out", "headline.counted_ended", stopped),
        ("unresolved", "Need attention", "headline.counted_open", say(unresolved)),
    )
    numbers = [
        _figure(name, title, counts[name], say(counted_as), note)
        for name, title, counted_as, note in figures
    ]
    return {
        "finding": sentence_of(clauses),
        "clauses": clauses,
        "numbers": [*numbers, last],
        "left_out": _excluded(rows),
        "outcomes": _outcomes(ended),
    }


def _clauses(
    label: str,
    counts: Mapping[str, Count],
    runs: pl.DataFrame,
    failed: pl.DataFrame,
    failures_in_words: Callable[..., str],
) -> list[str]:
    n_completed, n_ended = counts["completed"][:2]
    n_unresolved, n_open = counts["unresolved"][:2]
    if not n_ended and not n_open:
        return [say("headline.nothing", window=label)]
    parts = [
        say("headline.completed", n=n_completed, n_ended=n_ended, share=n_completed / n_ended)
        if n_ended
        else say("headline.none_ended")
    ]
    by_outcome = tally(failed, "outcome")
    if failures := _numbers({words: by_outcome.get(name, 0) for name, words in FAILED_AS.items()}):
        parts.append(failures_in_words(endings=failures))
    elif n_ended:
        parts.append(say("headline.none_failed"))
    # A run that a person stopped is no failure, but is named among the other endings.
    not_well = tally(runs.filter(~pl.col("is_open") & ~ended_well()), "outcome")
    others = {
        f"{'more ' if outcome in by_outcome else ''}{outcome.replace('_', ' ')}": (
            n - by_outcome.get(outcome, 0)
        )
        for outcome, n in sorted(not_well.items())
    }
    if stopped := _numbers(others):
        parts.append(listed(stopped))
    if n_open:
        name = "headline.only_open" if n_open == 1 else "headline.open"
        name = name if n_unresolved else "headline.all_fine"
        parts.append(say(name, n=n_unresolved, n_open=n_open))
    return parts


def _numbers(counts: Mapping[str, int]) -> list[str]:
    """Counts with their names, without those that are zero."""
    return [f"{number(n)} {name}" for name, n in counts.items() if n]


def _figure(name: str, title: str, counted: Count, denominator: str, note: str) -> Plain:
    """A number of the headline: a share with its interval, or a count, which has none."""
    n, of = counted.n, counted.of
    ends = counted.sure.interval() if counted.sure else None
    value = n / of if of else None
    return {
        "name": name,
        "title": title,
        "n": n,
        "of": of,
        "share": value,
        "interval": None if ends is None else list(ends),
        "shown": number(n) if of is None else share(value) if of else "none",
        "shown_interval": None if ends is None else interval(ends),
        "unit": None if of is None else counted.unit,
        **share_fields(counted.sure),
        "note": note,
        "denominator": denominator,
    }


def _excluded(rows: pl.DataFrame) -> str:
    of_sessions = rows["left_out"].filter(rows["entity_type"] == "session")
    counts = tally(of_sessions.to_frame(), "left_out")
    reasons = _numbers({name: counts.get(name, 0) for name in LEFT_OUT})
    if not reasons:
        return say("headline.none_excluded")
    return say("headline.excluded", reasons=reasons, n=sum(counts.values()))


def _outcomes(ended: pl.DataFrame) -> list[Plain]:
    counts = tally(ended, "outcome")
    words = pl.col("outcome", "tone").cast(pl.String)
    # The most common tone of an outcome comes last, so that it is the one the dict keeps.
    by_tone = ended.lazy().group_by(words).len().filter(pl.col("tone").is_not_null())
    ranked = by_tone.sort("len", "tone", descending=[False, True]).collect()
    tones = dict(ranked[["outcome", "tone"]].iter_rows())
    rest = {"is_legacy": False, "effective_state": None}
    return [
        {
            "outcome": outcome,
            "n": n,
            "share": n / ended.height,
            "shown": share(n / ended.height),
            "pill": pill_of({"lifecycle": outcome, "tone": tones.get(outcome), **rest}),
        }
        for outcome, n in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    ]


SECTION = Section("headline", "Numbers", summarize_headline, place=20)

"""The week in five numbers, each with what it is a share of and what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core.words import count, interval, listed, number, share
from stateanalytics.failures.counting import count_run_incidents
from stateanalytics.reporting.changes import share_fields
from stateanalytics.reporting.entities import pill_of
from stateanalytics.reporting.material import Material, Plain, Section, tally
from stateanalytics.state.definitions import EMPTY_HANDED, LEFT_OUT, RUN, ended_well
from stateanalytics.state.headline import Count, count_headline
from stateanalytics.state.population import counted
from stateanalytics.stats.shares import share_of_units

_TOLD = (
    *("source", "entity_type", "entity_id", "session_id", "invocation_id", "show_id", "project"),
    *("left_out", "is_open", "outcome", "delivery", "severity", "tone"),
)
"""Few of the columns, which are many: each filter copies what it is given."""
FAILED_AS = {"failed": "failed", "timed_out": "timed out", "aborted": "died"}
"""How what failed ended, in words."""


def summarize_headline(material: Material) -> Plain:
    """Runs, completion share, timed-out share, unresolved runs and incidents."""
    rows = material.rows.select(_TOLD)
    runs = counted(rows, RUN)
    counts = count_headline(runs, count_run_incidents(material.failed))
    failed = material.failed.filter(pl.col("entity_type") == RUN)
    n_causes = failed["cause"].n_unique()
    incidents = _count(
        "incidents",
        "Incidents",
        counts["incidents"],
        f"behind {count(failed.height, 'failed or timed-out run')}",
        "failed and timed-out runs, those that hang together counted once",
    )
    in_all = f"in {count(counts['incidents'].n, 'incident')}"
    label = material.window.label
    told = headline_of(rows, counts, incidents, _sentence(label, counts, runs, failed, in_all))
    return {**told, "n_causes": n_causes}


def headline_of_sums(rows: pl.DataFrame, units: pl.DataFrame, n_causes: int, label: str) -> Plain:
    """The same from rows of sums and units of their runs; of failures only causes are known."""
    runs = counted(rows, RUN)
    failed = runs.filter("has_failed")
    counts = {
        name: count._replace(**_of_units(name, count, units))
        for name, count in count_headline(runs, 0).items()
    }
    causes = _count(
        "causes",
        "Causes of failed runs",
        Count(n_causes),
        f"behind {count(failed.height, 'failed or timed-out run')}",
        "pairs of request and reason code among failed and timed-out runs",
    )
    from_all = f"from {count(n_causes, 'distinct cause')}"
    return headline_of(rows, counts, causes, _sentence(label, counts, runs, failed, from_all))


def _of_units(name: str, told: Count, units: pl.DataFrame) -> Plain:
    """How sure a share of sums is; nobody knows where the units are not those of its runs."""
    if told.of is not None:
        is_open = name == "unresolved"
        of_runs = units.filter(pl.col("is_open") == is_open)
        sure = share_of_units(of_runs.select(x=f"n_{name}", m="n_runs", times="n"))
        if (sure.n_hits, sure.n) == (told.n, told.of):
            return {"sure": sure, "unit": "invocation"}
    # An interval over runs would be too narrow: those of one invocation are alike.
    return {"sure": None, "unit": ""}


def headline_of(
    rows: pl.DataFrame, counts: Mapping[str, Count], last: Plain, finding: str
) -> Plain:
    """The five numbers of rows of a window.

    Parameters
    ----------
    rows : polars.DataFrame
        Of a `population`.
    counts : mapping of str to Count
        What `count_headline` gave for their runs.
    last : dict
        The fifth number: what the failures come down to.
    finding : str
        All of it in a sentence.
    """
    runs = counted(rows, RUN)
    ended = runs.filter(~pl.col("is_open"))
    n_empty = ended.filter(ended_well() & pl.col("delivery").is_in(list(EMPTY_HANDED))).height
    numbers = [
        _count(
            "runs",
            "Runs",
            counts["runs"],
            f"{number(ended.height)} ended, {number(runs.height - ended.height)} still open",
            "sessions that ended in the window, and those open at as-of that began before its end",
        ),
        _share(
            "completed",
            "Completed",
            counts["completed"],
            "runs that ended in the window",
            f"{number(n_empty)} of them without all they promised" if n_empty else "",
        ),
        _share(
            "timed_out",
            "Timed out",
            counts["timed_out"],
            "runs that ended in the window",
            "a bound that was reached, not an error",
        ),
        _share(
            "unresolved",
            "Unresolved",
            counts["unresolved"],
            "open runs",
            "open with severity critical or warning",
        ),
        last,
    ]
    return {
        "finding": finding,
        "numbers": numbers,
        "left_out": _left_out(rows),
        "outcomes": _outcomes(ended),
    }


def _sentence(
    label: str, counts: Mapping[str, Count], runs: pl.DataFrame, failed: pl.DataFrame, in_all: str
) -> str:
    n_completed, n_ended = counts["completed"][:2]
    n_unresolved, n_open = counts["unresolved"][:2]
    if not n_ended and not n_open:
        return f"No run ended in this window ({label}), and none is open."
    parts = []
    if n_ended:
        parts.append(
            f"{number(n_completed)} of {count(n_ended, 'ended run')} completed "
            f"({share(n_completed / n_ended)})"
        )
    else:
        parts.append("no run ended")
    by_outcome = tally(failed, "outcome")
    bad = [
        f"{number(by_outcome[outcome])} {words}"
        for outcome, words in FAILED_AS.items()
        if by_outcome.get(outcome)
    ]
    if bad:
        parts.append(f"{listed(bad)}, {in_all}")
    elif n_ended:
        parts.append("none failed or timed out")
    # What a person ended is no failure, and ended all the same.
    ended = tally(runs.filter(~pl.col("is_open") & ~ended_well()), "outcome")
    others = {outcome: n - by_outcome.get(outcome, 0) for outcome, n in sorted(ended.items())}
    words = [f"{number(n)} {name.replace('_', ' ')}" for name, n in others.items() if n]
    if words:
        parts.append(listed(words))
    if n_open:
        parts.append(_of_open(n_unresolved, n_open))
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + "."


def _of_open(n_unresolved: int, n_open: int) -> str:
    if not n_unresolved:
        return f"{count(n_open, 'run')} still open, none in trouble"
    if n_open == 1:
        return "the only open run needs a look"
    needs = "needs" if n_unresolved == 1 else "need"
    return f"{number(n_unresolved)} of {count(n_open, 'open run')} {needs} a look"


def _count(name: str, title: str, counted: Count, note: str, denominator: str) -> Plain:
    """A count of everything that was read has no interval."""
    n = counted.n
    return {
        "name": name,
        "title": title,
        "n": n,
        "of": None,
        "share": None,
        "interval": None,
        "shown": number(n),
        "shown_interval": None,
        "unit": None,
        **share_fields(None),
        "note": note,
        "denominator": denominator,
    }


def _share(name: str, title: str, part: Count, denominator: str, note: str) -> Plain:
    n, of = part.n, part.of or 0
    ends = part.sure.interval() if part.sure else None
    value = n / of if of else None
    return {
        "name": name,
        "title": title,
        "n": n,
        "of": of,
        "share": value,
        "interval": None if ends is None else list(ends),
        "shown": share(value) if of else "none",
        "shown_interval": None if ends is None else interval(ends),
        "unit": part.unit,
        **share_fields(part.sure),
        "note": note,
        "denominator": denominator,
    }


def _left_out(rows: pl.DataFrame) -> str:
    is_session = pl.col("entity_type") == "session"
    counts = tally(rows.select(pl.col("left_out").filter(is_session)), "left_out")
    parts = [f"{number(counts[name])} {name}" for name in LEFT_OUT if counts.get(name)]
    if not parts:
        return "No session of the window is left out of these numbers."
    noun = "session" if sum(counts.values()) == 1 else "sessions"
    return f"Left out of all five: {listed(parts)} {noun}."


def _outcomes(ended: pl.DataFrame) -> list[Plain]:
    counts = tally(ended, "outcome")
    return [
        {
            "outcome": outcome,
            "n": n,
            "share": n / ended.height,
            "shown": share(n / ended.height),
            "pill": pill_of({**_drawn_as(ended, outcome), "effective_state": None}),
        }
        for outcome, n in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    ]


def _drawn_as(ended: pl.DataFrame, outcome: str) -> Plain:
    """The commonest tone of an outcome under this policy, for its pill."""
    tones = tally(ended.select("outcome", "tone").filter(pl.col("outcome") == outcome), "tone")
    tone = max(sorted(tones), key=lambda name: tones[name]) if tones else None
    return {"lifecycle": outcome, "tone": tone, "is_legacy": False}


SECTION = Section("headline", "Numbers", summarize_headline, place=20)

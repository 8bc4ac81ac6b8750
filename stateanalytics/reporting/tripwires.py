"""When a report is bad news for a machine: what ``--fail-on`` looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from stateanalytics.errors import ArgumentError, did_you_mean, in_short
from stateanalytics.reporting.front import moved
from stateanalytics.reporting.material import Plain
from stateanalytics.reporting.phrases import count


def tripped(summary: Plain, kinds: Iterable[str]) -> list[str]:
    """Why a report is bad news, in sentences; empty where it is none.

    Parameters
    ----------
    summary : dict
        Of a report.
    kinds : iterable of str
        ``new-critical``: failures that nobody had seen before, or that are back though they
        were resolved. ``regression``: a share of the headline is clearly worse than in the
        earlier window, or failures grow beyond chance. ``coverage``: data were lost, or a
        source of a fleet is stale or was not collected.

    Raises
    ------
    ArgumentError
        If a kind is none.
    """
    return [sentence for kind in checked_kinds(kinds) for sentence in KINDS[kind](summary)]


def checked_kinds(kinds: Iterable[str]) -> list[str]:
    """What `tripped` takes, each once, or an error that lists what there is."""
    asked = [kind.strip() for kind in kinds]
    if wrong := [kind for kind in asked if kind not in KINDS]:
        raise ArgumentError(
            f"There is nothing called {in_short(wrong[0])} to fail on; "
            f"there are {', '.join(KINDS)}.",
            '--fail-on "new-critical,coverage"' + did_you_mean(wrong[0], KINDS),
        )
    return list(dict.fromkeys(asked))


def _new(summary: Plain) -> Iterator[str]:
    clusters = summary.get("failures", {}).get("clusters", ())
    new = [one for one in clusters if one["state"] == "new" and not one["is_expected"]]
    back = [one for one in clusters if one["is_back"] and not one["is_expected"]]
    for few, words in ((new, "new"), (back, "back though resolved")):
        if few:
            yield f"{count(len(few), 'failure')} {words}, first: {few[0]['name']}"


def _regressions(summary: Plain) -> Iterator[str]:
    for number in summary["headline"]["numbers"]:
        if moved(number) > 0:
            yield f"{number['title']} is worse: {number['change']['words']}"
    growing = [
        one
        for one in summary.get("failures", {}).get("clusters", ())
        if one["state"] == "growing" and not one["is_expected"]
    ]
    for one in growing:
        yield f"more of {one['name']}: {one['n_incidents']} incidents"


def _coverage(summary: Plain) -> Iterator[str]:
    if losses := summary["losses"]:
        yield f"{count(len(losses), 'loss', 'losses')} of data, first: {losses[0]['message']}"
    told = summary["coverage"] or {}
    if told.get("n_failed") or told.get("n_stale"):
        yield str(told["in_words"])


KINDS: Mapping[str, Callable[[Plain], Iterator[str]]] = MappingProxyType(
    {"new-critical": _new, "regression": _regressions, "coverage": _coverage}
)

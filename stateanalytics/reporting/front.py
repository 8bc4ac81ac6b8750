"""The first screen: the verdict, what failures cost, and what is new, worse, back or gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from stateanalytics.reporting.material import Plain
from stateanalytics.reporting.phrases import spoken

WORSE: Mapping[str, int] = MappingProxyType({"completed": -1, "timed_out": 1, "unresolved": 1})
"""Which way each share of the headline gets worse."""
N_NAMED = 2
_LONGEST_NAME = 60
_LIVES = (("new", "New"), ("growing", "Worse"), ("back", "Back"))


def front_of(summary: Plain, lost_before: Plain | None = None) -> Plain:
    """What the first screen says beside the five numbers and the actions.

    Parameters
    ----------
    summary : dict
        Of a report; sections that it lacks add nothing.
    lost_before : dict, optional
        What failures of the earlier window had cost.

    Returns
    -------
    dict
        ``verdict``, in a few words (None: there is nothing to compare with); ``lost``, what
        failures cost, in a sentence (None: nothing failed); ``news``, each with ``title``,
        ``n`` and the first ``names`` with their ``link`` within the page.
    """
    failures = summary.get("failures", {})
    return {
        "verdict": _verdict(summary),
        "lost": _lost(failures.get("lost"), lost_before),
        "news": [] if failures.get("is_first", True) else list(_news(failures)),
    }


def said_first(summary: Plain) -> str:
    """The verdict and the finding of the headline: what every form of a report begins with."""
    verdict = f"{summary['verdict']}. " if summary.get("verdict") else ""
    return f"{verdict}{summary['headline']['finding']}"


def moved(number: Plain) -> int:
    """1: a number of the headline is clearly worse than before; -1: clearly better; else 0."""
    change = number.get("change") or {}
    if not change.get("is_clear"):
        return 0
    direction = (change.get("difference") or 0.0) * WORSE.get(number["name"], 0)
    return (direction > 0) - (direction < 0)


def _verdict(summary: Plain) -> str | None:
    if not (summary.get("compared_with") or {}).get("is_covered"):
        return None
    moves = {moved(number) for number in summary["headline"]["numbers"]} - {0}
    if moves == {1}:
        return "Worse than before"
    if moves == {-1}:
        return "Better than before"
    return "Some better, some worse" if moves else "No clear change"


def _lost(lost: Plain | None, before: Plain | None) -> str | None:
    """Both sums, and those of the earlier window where there is one."""
    if not lost or not lost["n_work"]:
        return None
    unreported = f" ({lost['unreported']} reported none)" if lost["unreported"] else ""
    now = f"{lost['time']} of runs, cost {lost['cost']}{unreported}"
    if not before:
        return f"{now}."
    then = f"{before['time']}, {before['cost']}" if before["n_work"] else "nothing"
    return f"{now}; the window before: {then}."


def _news(failures: Plain) -> Iterator[Plain]:
    for state, title in _LIVES:
        if n := failures["lives"].get(state):
            named = [one for one in failures["clusters"] if one["state"] == state][:N_NAMED]
            names = [(one["name"], f"#cluster-{one['rank']}") for one in named]
            yield _of_news(title, n, names)
    if failures["gone"]["n"]:
        names = [(name, "#failures") for name in failures["gone"]["names"][:N_NAMED]]
        yield _of_news("Gone", failures["gone"]["n"], names)


def _of_news(title: str, n: int, names: list[tuple[str, str]]) -> Plain:
    told = [{"name": spoken(name, _LONGEST_NAME), "link": link} for name, link in names]
    return {"title": title, "n": n, "names": told, "n_more": n - len(told)}

"""The first screen of a report: verdict, cost of failures, news, actions, coverage, alerts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

import polars as pl

from stateanalytics.core.units import how_long
from stateanalytics.core.windows import day_of
from stateanalytics.core.words import count, listed, number, spoken
from stateanalytics.errors import ArgumentError, did_you_mean, in_short
from stateanalytics.failures.cause_groups import TITLES
from stateanalytics.io.archive.manifests import stale
from stateanalytics.reporting.entities import show_command
from stateanalytics.reporting.material import Plain, iso

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


N_ACTIONS = 3
_LONGEST_ACTION_NAME = 84
_FIRST, _OPEN, _ENDED, _SETTING = range(4)


def actions_of(summary: Plain, place: str, window: str) -> list[Plain]:
    """At most three things to do, the most urgent first.

    Parameters
    ----------
    summary : dict
        Of a report; sections that it lacks add nothing.
    place, window : str
        What was read and which part of it is told, as commands are given them.

    Returns
    -------
    list of dict
        Each with ``what``, ``why``, ``who`` (None: nobody is named), ``command`` and ``link``, its
        place on the page. Data that
        were lost come first, since every number rests on them; then what is still open; then
        failures in the order that they have everywhere, by cost; then thresholds.
    """
    found = sorted(_possible_actions(summary, place, window), key=lambda one: int(one["rank"]))
    return found[:N_ACTIONS]


def _possible_actions(summary: Plain, place: str, window: str) -> Iterator[Plain]:
    if losses := summary.get("losses"):
        yield _action(
            _FIRST,
            f"Read again what is missing: {losses[0]['source']}",
            f"{count(len(losses), 'loss', 'losses')}; first: {losses[0]['message']}",
            f"stateanalytics attention {place} --show findings",
            "#losses",
        )
    yield from _open_work_action(summary.get("attention", {}).get("open", {}), place, window)
    failures = summary.get("failures", {})
    todo = {code["code"]: code["what_to_do"] for code in failures.get("codes", ())}
    for cluster in sorted(failures.get("clusters", ()), key=lambda one: int(one["rank"])):
        if not cluster["is_expected"] and cluster["n_incidents"]:
            yield _cluster_action(cluster, todo, f"{place} {window}")
    for row in summary.get("thresholds", {}).get("rows", ()):
        if row["verdict"] == "change":
            yield _action(
                _SETTING,
                f"Set {row['name']} to {row['recommended']}, from {row['today']}",
                row["in_words"],
                f"stateanalytics thresholds {place} --settings toml",
                "#thresholds",
            )


def _open_work_action(open_work: Plain, place: str, window: str) -> Iterator[Plain]:
    """What is open and silent, as one thing: it can still be saved or closed."""
    items = open_work.get("items", ())
    if not items:
        return
    longest = max(items, key=lambda item: item["silence_s"] or 0.0)
    n = open_work["n"]
    name = f"“{longest['name']}”" if longest["name"] else longest["entity_id"]
    yield _action(
        _OPEN,
        f"Close or save {longest['entity_type'].replace('_', ' ')} {name}"
        + (f", and look at {n - 1} more that {'is' if n == 2 else 'are'} open" if n > 1 else ""),
        f"{longest['when']}. {_hint(longest)}",
        show_command(longest, place) if n == 1 else f"stateanalytics attention {place} {window}",
        "#attention",
        who=" in ".join(filter(None, (longest["agent"], longest["project"]))) or None,
        saves_s=longest["silence_s"] or 0.0,
    )


def _hint(item: Mapping[str, Plain]) -> str:
    reason = item["reason"]
    return (reason and (reason["what_to_do"] or reason["message"])) or "No reason was stored."


def _cluster_action(cluster: Plain, todo: Mapping[str, str | None], part: str) -> Plain:
    known = {"time": cluster["run_s"], "cost": cluster["cost_usd"]}
    lost = [cluster["lost"][name] for name, value in known.items() if value is not None]
    cost = f", {' and '.join(lost)} lost" if lost else ""
    what_to_do = todo.get(cluster["code"])
    if what_to_do and what_to_do.startswith("Read the message"):
        # It stands here already.
        what_to_do = f"{TITLES[cluster['cause_group']]}." if cluster["cause_group"] else None
    who = cluster["owner"]
    return _action(
        _ENDED,
        f"Stop “{spoken(cluster['name'], _LONGEST_ACTION_NAME)}”",
        f"{count(cluster['n_incidents'], 'incident')}{cost}"
        + (f". {what_to_do}" if what_to_do else ""),
        f"stateanalytics failures {part} --show members --cluster {cluster['cluster_id']}",
        f"#cluster-{cluster['rank']}",
        who=f"{who} ({cluster['ticket']})" if who and cluster["ticket"] else who,
        saves_s=cluster["run_s"] or 0.0,
    )


def _action(
    rank: int,
    what: str,
    why: str,
    command: str,
    link: str,
    *,
    who: str | None = None,
    saves_s: float = 0.0,
) -> Plain:
    return {
        "rank": rank,
        "what": what,
        "why": why,
        "who": who,
        "command": command,
        "link": link,
        "saves_s": saves_s,
        "saves": how_long(saves_s) if saves_s else None,
    }


N_STALE_NAMED = 3


def coverage_of(sources: pl.DataFrame, losses: pl.DataFrame) -> Plain | None:
    """What the sources of a fleet cover; None where there is one only.

    Parameters
    ----------
    sources : polars.DataFrame
        One row a source: ``source``, and of archives ``looked_at`` and ``is_unchanged``, as
        of `schema.SOURCES`.
    losses : polars.DataFrame
        What `losses_of` gave.

    Returns
    -------
    dict or None
        ``n_read``, ``n_unchanged``, ``n_failed``, ``n_stale``, ``stale`` (each with ``source``
        and ``since``), and all of it ``in_words``. Stale is what was collected for the last
        time more than a week before the last time that any of them was: a store may well
        have had nothing new for longer.
    """
    failed = losses.filter(pl.col("code") == "archive.not_collected")["source"].n_unique()
    if sources.height + failed < 2:
        return None
    n_unchanged = int(sources["is_unchanged"].sum())
    told = [
        {"source": source, "since": iso(since), "day": f"{day_of(since)} {since.year}"}
        for source, since in stale(sources).iter_rows()
    ]
    return {
        "n_read": sources.height,
        "n_unchanged": n_unchanged,
        "n_failed": failed,
        "n_stale": len(told),
        "stale": told,
        "in_words": _coverage_sentence(sources.height, n_unchanged, failed, told),
    }


def _coverage_sentence(n_read: int, n_unchanged: int, n_failed: int, told: list[Plain]) -> str:
    parts = [f"{count(n_read, 'source')} read"]
    if n_unchanged:
        parts[0] += f", {number(n_unchanged)} of them unchanged when they were collected last"
    if n_failed:
        parts.append(f"{number(n_failed)} could not be collected")
    if told:
        named = [f"{each['source']} since {each['day']}" for each in told[:N_STALE_NAMED]]
        more = [f"{number(len(told) - N_STALE_NAMED)} more"] if len(told) > N_STALE_NAMED else []
        parts.append(f"{number(len(told))} stale: {listed([*named, *more])}")
    return "; ".join(parts) + "."


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
    return [sentence for kind in checked_kinds(kinds) for sentence in ALERTS[kind](summary)]


def checked_kinds(kinds: Iterable[str]) -> list[str]:
    """What `tripped` takes, each once, or an error that lists what there is."""
    asked = [kind.strip() for kind in kinds]
    if wrong := [kind for kind in asked if kind not in ALERTS]:
        raise ArgumentError(
            f"There is nothing called {in_short(wrong[0])} to fail on; "
            f"there are {', '.join(ALERTS)}.",
            '--fail-on "new-critical,coverage"' + did_you_mean(wrong[0], ALERTS),
        )
    return list(dict.fromkeys(asked))


def _new_failures(summary: Plain) -> Iterator[str]:
    clusters = summary.get("failures", {}).get("clusters", ())
    new = [one for one in clusters if one["state"] == "new" and not one["is_expected"]]
    back = [one for one in clusters if one["is_back"] and not one["is_expected"]]
    for few, words in ((new, "new"), (back, "back though resolved")):
        if few:
            yield f"{count(len(few), 'failure')} {words}, first: {few[0]['name']}"


def _regressions(summary: Plain) -> Iterator[str]:
    for share in summary["headline"]["numbers"]:
        if moved(share) > 0:
            yield f"{share['title']} is worse: {share['change']['words']}"
    growing = [
        one
        for one in summary.get("failures", {}).get("clusters", ())
        if one["state"] == "growing" and not one["is_expected"]
    ]
    for one in growing:
        yield f"more of {one['name']}: {one['n_incidents']} incidents"


def _missing_data(summary: Plain) -> Iterator[str]:
    if losses := summary["losses"]:
        yield f"{count(len(losses), 'loss', 'losses')} of data, first: {losses[0]['message']}"
    told = summary["coverage"] or {}
    if told.get("n_failed") or told.get("n_stale"):
        yield str(told["in_words"])


ALERTS: Mapping[str, Callable[[Plain], Iterator[str]]] = MappingProxyType(
    {"new-critical": _new_failures, "regression": _regressions, "coverage": _missing_data}
)

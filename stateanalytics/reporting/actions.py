"""What to do first, ranked by what can still be done and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stateanalytics.core.units import how_long
from stateanalytics.failures.cause_groups import TITLES
from stateanalytics.reporting.material import Plain
from stateanalytics.reporting.named_runs import show_command
from stateanalytics.reporting.phrases import count, spoken

N_SHOWN = 3
_LONGEST_NAME = 84
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
    found = sorted(_all(summary, place, window), key=lambda one: int(one["rank"]))
    return found[:N_SHOWN]


def _all(summary: Plain, place: str, window: str) -> Iterator[Plain]:
    if losses := summary.get("losses"):
        yield _action(
            _FIRST,
            f"Read again what is missing: {losses[0]['source']}",
            f"{count(len(losses), 'loss', 'losses')}; first: {losses[0]['message']}",
            f"stateanalytics attention {place} --show findings",
            "#losses",
        )
    yield from _open(summary.get("attention", {}).get("open", {}), place, window)
    failures = summary.get("failures", {})
    todo = {code["code"]: code["what_to_do"] for code in failures.get("codes", ())}
    for cluster in sorted(failures.get("clusters", ()), key=lambda one: int(one["rank"])):
        if not cluster["is_expected"] and cluster["n_incidents"]:
            yield _of_cluster(cluster, todo, f"{place} {window}")
    for row in summary.get("thresholds", {}).get("rows", ()):
        if row["verdict"] == "change":
            yield _action(
                _SETTING,
                f"Set {row['name']} to {row['recommended']}, from {row['today']}",
                row["in_words"],
                f"stateanalytics thresholds {place} --settings toml",
                "#thresholds",
            )


def _open(open_work: Plain, place: str, window: str) -> Iterator[Plain]:
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


def _of_cluster(cluster: Plain, todo: Mapping[str, str | None], part: str) -> Plain:
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
        f"Stop “{spoken(cluster['name'], _LONGEST_NAME)}”",
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

"""The first screen of a report: verdict, cost of failures, changes, actions and coverage."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

import polars as pl

from stateanalytics.core.text import LONG_ID
from stateanalytics.core.windows import day_of
from stateanalytics.core.words import (
    capitalised,
    count,
    how_long,
    number,
    say,
    sentence_of,
    shorten_template,
)
from stateanalytics.errors import ArgumentError, did_you_mean, in_short
from stateanalytics.io.archive.manifests import stale
from stateanalytics.reporting.changes import OPEN, per_run
from stateanalytics.reporting.entities import command, show_command
from stateanalytics.reporting.material import Plain, iso
from stateanalytics.weekly import TIME_TO_COMPLETE
from stateanalytics.weekly_limits import FEWEST_WEEKS, WORSE

N_NAMED, DAYS_A_WEEK = 2, 7
_LONGEST_NAME = 60
_LIVES = (("new", "news.new"), ("growing", "news.growing"), ("back", "news.back"))


def front_of(summary: Plain, lost_before: Plain | None = None, story: Plain | None = None) -> Plain:
    """The parts of the first screen apart from the five numbers and the actions.

    Parameters
    ----------
    summary : dict
        Of a report; sections that it lacks add nothing.
    lost_before : dict, optional
        Cost of the failures of the earlier window.
    story : dict, optional
        From `story.story_of`.

    Returns
    -------
    dict
        The ``story``; ``verdict``, what changed in a few words (None where nothing is asked
        for, or no run ended); ``lead``, how many runs completed with the verdict, and how the
        others ended; ``lost``, the cost of failures in a sentence (None where nothing failed);
        ``news``, each with ``title``, ``n`` and the first ``names`` with their ``link`` within
        the page.
    """
    failures = summary.get("failures", {})
    verdict = _verdict(summary)
    # Are the numbers judged by a history of weeks, or only by the window before?
    has_weeks = any(number.get("limits") for number in summary["headline"]["numbers"])
    return {
        "story": story or dict.fromkeys(("explained", "parts", "cost")),
        "verdict": verdict,
        "lead": _lead(summary, verdict),
        "lost": _lost(
            failures, lost_before, None if has_weeks else completed_of(summary["headline"])
        ),
        "news": [] if failures.get("is_first", True) else list(_news(failures)),
    }


def opening(summary: Plain) -> str:
    """The lead and its explanation: the first sentences of a page, a digest and a mail."""
    explained = (summary.get("story") or {}).get("explained")
    return " ".join(filter(None, (*summary["lead"], explained)))


def direction_of(number: Plain) -> int:
    """1 where a headline number is significantly worse than before, -1 where better, else 0."""
    change, limits = number.get("change") or {}, number.get("limits")
    up = {"higher": 1, "lower": -1}.get(limits["verdict"], 0) if limits else 0
    if not limits and change.get("is_clear"):
        difference = change.get("difference") or 0.0
        up = (difference > 0) - (difference < 0)
    return up * WORSE.get(number["name"], 0)


def completed_of(headline: Plain) -> Plain | None:
    """The number of runs that completed, of a headline; None: it has none."""
    return next((one for one in headline["numbers"] if one["name"] == "completed"), None)


def _lead(summary: Plain, verdict: str | None) -> list[str]:
    """How many runs completed, what is normal and what changed; then how the others ended."""
    first, *others = summary["headline"]["clauses"]
    completed = completed_of(summary["headline"]) or {}
    limits, weeks = completed.get("limits"), completed.get("weeks", ())
    *before, now = [week for week in weeks if week is not None] or [None]
    is_lowest = len(before) + 1 >= FEWEST_WEEKS and now < min(before)
    clause = first
    if limits:
        lowest = "verdict.lowest_within" if limits["verdict"] == "within" else "verdict.lowest"
        clause = say(
            lowest if is_lowest else "verdict.normal",
            completed=first,
            normal=limits["normal"],
            n=len(before) + 1,
            unit="weeks" if summary["window"]["days"] == DAYS_A_WEEK else "windows",
        )
    changed = f" {sentence_of([verdict])}" if verdict else ""
    return [sentence_of([clause]) + changed, sentence_of(others)]


def _verdict(summary: Plain) -> str | None:
    numbers = summary["headline"]["numbers"]
    completed = completed_of(summary["headline"])
    compared = summary.get("compared_with")
    if not compared or not completed or not completed["of"]:
        return None
    is_known = completed.get("limits") or completed["change"]["difference"] is not None
    if not is_known or not compared["is_covered"]:
        return say("verdict.none_ended" if compared["is_covered"] else "verdict.none_recorded")
    moved = {direction_of(number): number for number in reversed(numbers)}
    named = ((1, "verdict.worse"), (-1, "verdict.better"))
    changes = [_moved(name, moved[direction]) for direction, name in named if direction in moved]
    return capitalised("; ".join(changes)) or say("verdict.same")


def _moved(name: str, figure: Plain) -> str:
    known = figure.get("limits") or figure["change"]
    if figure["name"] == TIME_TO_COMPLETE:
        # "Worse" would be wrong here: runs take longer, but as many may complete.
        name = {"verdict.worse": "verdict.slower", "verdict.better": "verdict.faster"}[name]
    title = say("verdict.open_runs") if figure["name"] == OPEN else figure["title"].lower()
    return say(name, title=title, change=known["short"])


def _lost(failures: Plain, before: Plain | None, completed: Plain | None) -> str | None:
    """Time and cost of failures, and those of the earlier window where there is one.

    Two windows may differ significantly although earlier weeks varied as much. So where a
    history of weeks is the judge, ``completed`` is None and no test of two windows is shown.
    """
    lost = failures.get("lost")
    if not lost or not lost["n_work"]:
        return None
    no_time = "lost.not_recorded" if lost["cost_usd"] is None else "lost.of_cost"
    name = no_time if lost["run_s"] is None else "lost.now"
    what = "all work" if lost["n_work"] > failures.get("n_runs", 0) else "runs"
    words = say(name, time=lost["time"], cost=lost["cost"], what=what)
    if lost["unreported"]:
        words += say("lost.unreported", n=lost["unreported"])
    if before and before["n_work"]:
        words += say("lost.before", time=before["time"], cost=before["cost"])
        if completed and completed["of"]:
            ended = completed["of"], completed["change"]["of"]
            pairs = list(zip((lost, before), ended, strict=True))
            a_run_s, before_s = ((each["run_s"] or 0.0) / n for each, n in pairs)
            spread_s = math.hypot(*(each["spread_s"] / n for each, n in pairs))
            is_clear = abs(a_run_s - before_s) > 2 * spread_s
            words += per_run(is_more=a_run_s > before_s, is_significant=is_clear)
    elif before:
        words += say("lost.nothing_before")
    return f"{words}."


def _news(failures: Plain) -> Iterator[Plain]:
    for state, title in _LIVES:
        names = [
            (row["name"], f"#cluster-{row['rank']}")
            for row in failures["clusters"]
            if row["state"] == state and row["is_news"]
        ]
        n = failures["news"].get(state, 0)
        yield from _news_item(say(title, n_weeks=failures["n_weeks_of_history"]), n, names)
    names = [(name, "#failures") for name in failures["gone"]["names"]]
    yield from _news_item("No longer seen", failures["gone"]["n"], names)


def _news_item(title: str, n: int, names: list[tuple[str, str]]) -> Iterator[Plain]:
    shown = [
        {"name": shorten_template(name, _LONGEST_NAME), "link": link}
        for name, link in names[:N_NAMED]
    ]
    if n:
        yield {"title": title, "n": n, "names": shown, "n_more": n - len(shown)}


N_ACTIONS = 3
N_EXAMPLES = 2
_EXAMPLE = ("source", "entity_type", "entity_id")
_LONGEST_ACTION_NAME = 84
_OF_SETTING = ("name", "recommended", "today")
_FIRST, _STUCK, _ENDED, _HARD, _OPEN, _SETTING = range(6)


def unassigned(actions: Sequence[Plain]) -> str | None:
    """The actions that have no owner, in a sentence; None if all have one."""
    places = [str(place) for place, one in enumerate(actions, 1) if not one["is_owned"]]
    name = "action.unassigned" if len(places) < len(actions) else "action.all_unassigned"
    return say(name, places=places, n=len(places)) if places else None


def actions_of(summary: Plain, place: str, window: str) -> list[Plain]:
    """At most three actions, the most urgent first.

    Parameters
    ----------
    summary : dict
        Of a report; sections that it lacks add nothing.
    place, window : str
        The inputs and the window, as arguments of a command.

    Returns
    -------
    list of dict
        Each with ``what``, ``why``, ``who`` (None: nobody is known), ``is_owned``, ``command``
        and ``link``, a place on the page. Lost data come first, because every number depends on
        them; then what is stuck now; then failures by cost; then sessions in trouble; then other
        open work, which always has a place; then thresholds.
    """
    actions = sorted(_possible_actions(summary, place, window), key=itemgetter("rank"))
    first, still_open = actions[:N_ACTIONS], [one for one in actions if one["rank"] == _OPEN]
    if still_open and still_open[0] not in first:
        return [*first[:-1], still_open[0]]
    return first


def _possible_actions(summary: Plain, place: str, window: str) -> Iterator[Plain]:
    if losses := summary.get("losses"):
        yield _action(
            _FIRST,
            say("action.losses", n=len({loss["source"] for loss in losses})),
            say("action.losses_why", message=losses[0]["message"]),
            command("attention", place, "--show findings"),
            "#losses",
        )
    stuck = list(_inside_action(summary.get("inside", {}), place, window))
    yield from stuck
    # A session that is stuck may also be open work; it is then shown once, as stuck.
    examples = [one for act in stuck if act["rank"] == _STUCK for one in act["examples"]]
    done = {tuple(one[name] for name in _EXAMPLE) for one in examples}
    yield from _open_work_action(summary.get("attention", {}).get("open", {}), done, place, window)
    failures = summary.get("failures", {})
    todo = {code["code"]: code["what_to_do"] for code in failures.get("codes", ())}
    for fault in failures.get("faults", ()):
        if fault["n_incidents"] and fault["todo"]:
            yield _fault_action(fault, todo, (place, window))
    yield from _calls_action(summary.get("inside", {}))
    for row in summary.get("thresholds", {}).get("rows", ()):
        if row["verdict"] == "change":
            yield _action(
                _SETTING,
                say("action.setting", **{name: row[name] for name in _OF_SETTING}),
                # Its first sentence, without the values, which `what` already shows.
                row["in_words"].partition(". ")[0].partition(": ")[2],
                command("thresholds", place, "--settings toml"),
                "#thresholds",
            )


def _open_work_action(
    open_work: Plain, done: Container[tuple[str, ...]], place: str, window: str
) -> Iterator[Plain]:
    """One action for all open and silent work, which can still be resumed or stopped."""
    # Work that continues by itself needs no action and is not counted.
    every = open_work.get("items", ())
    items = [
        item
        for item in every
        if not _hint(item).startswith("Nothing")
        and (item["n_alike"] > 1 or tuple(item[name] for name in _EXAMPLE) not in done)
    ]
    if not items:
        return
    waits, first = [item for item in every if item not in items], items[0]
    n, n_old = (open_work[of] - sum(item[of] for item in waits) for of in ("n_runs", "n_runs_old"))
    asks = _hint(first).startswith("Answer")
    what = say("action.answer" if asks else "action.open", entity=_whose(first))
    more = "action.more_work" if open_work["is_mixed"] else "action.open_more"
    what += say(more, n=n - 1) if n > 1 else ""
    left = say("action.open_old", n=n_old) if n_old and n > 1 else ""
    # The command lists exactly the work that is counted.
    all_open = command("attention", place, "--standing open", window)
    yield _action(
        _OPEN,
        what,
        f"{first['when']}. {_hint(first)}{left}",
        show_command(first, place) if n == 1 else all_open,
        "#attention",
        examples=items,
        saves_s=first["silence_s"] or 0.0,
    )


def _whose(item: Plain) -> str:
    """The type and name of a piece of work, with its agent and project."""
    name = f"“{item['name']}”" if item["name"] else re.sub(LONG_ID, r"\1\2", item["entity_id"])
    who = say("action.run_by", agent=item["agent"]) if item["agent"] else ""
    who += say("action.run_in", project=item["project"]) if item["project"] else ""
    return f"{item['entity_type'].replace('_', ' ')} {name}{who}"


def _inside_action(inside: Plain, place: str, window: str) -> Iterator[Plain]:
    """One action for sessions that are stuck now, else for those that were not smooth."""
    sessions = inside.get("sessions", ())
    if not sessions:
        return
    first, n = sessions[0], sum(inside["efforts"].values())
    is_now = bool(inside["n_stuck_now"]) and first["effort"] == "stuck"
    others = {name: n - (is_now and name == "stuck") for name, n in inside["efforts"].items()}
    kinds = " or ".join(HARD[name] for name, n in others.items() if n)
    why = f"{_first_sign(first)}."
    if is_now:
        what = say("action.stuck", entity=_whose(first))
        yield _action(_STUCK, what, why, first["command"], "#inside", examples=[first])
    if n > is_now:
        yield _action(
            _HARD,
            say("action.hard_others" if is_now else "action.hard", n=n - is_now, kinds=kinds),
            say("action.hard_why", n=n - is_now, why=_first_sign(sessions[is_now])),
            command("failures", place, "--show effort", window),
            "#inside",
            examples=sessions[is_now:],
            saves_s=inside["lost_s"] or 0.0,
        )


def _first_sign(session: Plain) -> str:
    return str(session["why"]).partition("; ")[0]


HARD = {"stuck": "got stuck", "given_up": "gave up", "struggled": "struggled"}
FEWEST_SESSIONS = 3
"""A message of failed calls is an action only if at least so many sessions had it."""


def _calls_action(inside: Plain) -> Iterator[Plain]:
    """One action for the costliest message of calls that fail in several sessions.

    A message that runs failed with is skipped, because it is listed as a fault.
    """
    for row in inside.get("messages", ()):
        if row["n_sessions"] >= FEWEST_SESSIONS and not row["n_runs_ended"]:
            given = {"n_sessions": row["n_sessions"], "of": inside["n_sessions"]}
            lost = say("action.lost", lost=row["lost"]) if row["run_s"] is not None else ""
            yield _action(
                _ENDED,
                say("action.cluster", name=shorten_template(row["name"], _LONGEST_ACTION_NAME)),
                say("action.calls", n=row["n_rows"], **given) + lost,
                row["command"],
                "#inside",
            )
            return


def _hint(item: Mapping[str, Plain]) -> str:
    reason = item["reason"]
    return (reason and (reason["what_to_do"] or reason["message"])) or say("action.no_reason")


def _fault_action(fault: Plain, todo: Mapping[str, str | None], part: Iterable[str]) -> Plain:
    """An action for a fault, which one person would fix, without its expected failures."""
    cluster = fault["todo"]
    is_one = fault["n_clusters"] == 1 or fault["n_expected"] > 0
    counted = cluster if is_one else fault
    # A cost that would be shown as $0.00 is left out.
    known = {"time": counted["run_s"], "cost": round(counted["cost_usd"] or 0.0, 2)}
    lost = [counted["lost"][name] for name, value in known.items() if value]
    cost = say("action.lost", lost=" and ".join(lost)) if lost else ""
    what_to_do = todo.get(fault["code"])
    if what_to_do and what_to_do.startswith("Read the message"):
        what_to_do = None  # the action shows the message itself
    owner, ticket = cluster["owner"], cluster["ticket"]
    owned = "action.owner_again" if cluster["is_back"] else "action.owner"
    # Runs, as in the explanation of the window, because an incident may be in several faults.
    n_runs, n = counted["n_runs"], counted["n_incidents"]
    work = count(n_runs, "run") if n_runs else say("action.no_run", n=n)
    lost_in = f"{work}{cost}"
    name = cluster["name"] if is_one else fault["title"]
    members = cluster["cluster_id"] if is_one else fault["fault_id"]
    return _action(
        _ENDED,
        say("action.cluster", name=shorten_template(name, _LONGEST_ACTION_NAME)),
        ". ".join(map(capitalised, filter(None, (lost_in, *_where(fault), what_to_do)))),
        command("failures", *part, "--show members --cluster", members),
        f"#cluster-{fault['ranks'][0]}" if fault["ranks"] else "#failures",
        cluster_id=cluster["cluster_id"],
        who=say(owned, name=f"{owner} ({ticket})" if ticket else owner) if owner else None,
        is_owned=bool(owner),
        saves_s=counted["run_s"] or 0.0,
    )


def _where(fault: Plain) -> Iterator[str]:
    """The project, kind or model with most of a fault, and the version it was seen after."""
    if fault["dimension"]:
        part = fault["n_in"] / fault["n_fault"]
        more = "action.most_in" if 2 * part > 1 else "action.many_in"
        name = "action.all_in" if part == 1 else more
        yield say(name, dimension=fault["dimension"], value=fault["value"])
    if fault["seen_after"]:
        yield say("failures.seen_after", version=fault["seen_after"])


def _action(
    rank: int,
    what: str,
    why: str,
    shown_by: str,
    link: str,
    *,
    examples: Sequence[Plain] = (),
    cluster_id: str | None = None,
    who: str | None = None,
    is_owned: bool = False,
    saves_s: float = 0.0,
) -> Plain:
    return {
        "rank": rank,
        "what": what,
        "why": why if why.endswith((".", "…")) else f"{why}.",
        "who": who,
        "is_owned": is_owned,
        "command": shown_by,
        "link": link,
        "cluster_id": cluster_id,
        "examples": [{name: one.get(name) for name in _EXAMPLE} for one in examples[:N_EXAMPLES]],
        "saves_s": saves_s,
        "saves": how_long(saves_s) if saves_s else None,
    }


N_STALE_NAMED = 4


def coverage_of(
    sources: pl.DataFrame, losses: pl.DataFrame, outdated: pl.DataFrame | None = None
) -> Plain | None:
    """Coverage of the sources of a fleet; None for a single source.

    Parameters
    ----------
    sources : polars.DataFrame
        One row for each source, as of `schema.SOURCES`: ``source``, and for archives
        ``looked_at`` and ``is_unchanged``.
    losses : polars.DataFrame
        Losses of data, from `losses_of`.
    outdated : polars.DataFrame, optional
        Those of them whose open work is excluded, from `Material.outdated`.

    Returns
    -------
    dict or None
        ``n_read``, ``n_unchanged``, ``n_failed``, ``n_stale``, ``stale`` and ``outdated`` (each
        with ``source`` and ``since``), and the sentence ``in_words``. A source is stale if it
        was last collected more than a week before the newest collection; a source without new
        data is not.
    """
    failed = losses.filter(pl.col("code") == "archive.not_collected")["source"].n_unique()
    old = (
        []
        if outdated is None
        else _since(outdated[["source", "last_at"]].sort("last_at", "source"))
    )
    if sources.height + failed < 2:
        return None
    stale_sources = _since(stale(sources))
    covered = {
        "n_read": sources.height,
        "n_unchanged": int(sources["is_unchanged"].sum()),
        "n_failed": failed,
        "n_stale": len(stale_sources),
        "stale": stale_sources,
        "outdated": old,
    }
    return {**covered, "in_words": _coverage_sentence(covered)}


def _since(moments: pl.DataFrame) -> list[Plain]:
    return [
        {"source": source, "since": iso(since), "day": f"{day_of(since)} {since.year}"}
        for source, since in moments.iter_rows()
    ]


def _coverage_sentence(covered: Plain) -> str:
    n_read, stale, old = covered["n_read"], covered["stale"], covered["outdated"]
    parts = [say("coverage.read", n=n_read)]
    if n_unchanged := covered["n_unchanged"]:
        parts[0] += say("coverage.unchanged", n=n_unchanged)
    if n_failed := covered["n_failed"]:
        parts.append(say("coverage.failed", n=n_failed))
    if stale:
        parts.append(say("coverage.stale", n=len(stale), sources=_named(stale)))
    if old:
        parts.insert(0, say("coverage.outdated", n=len(old), n_all=n_read, sources=_named(old)))
    return "; ".join(parts) + "."


def _named(sources: list[Plain]) -> list[str]:
    """Sources with a day each, named by the last part of the path where that is unique."""
    ends = [row["source"].rpartition("/")[2] for row in sources]
    shown = ends if len({*ends}) == len(ends) else [row["source"] for row in sources]
    names = [
        say("coverage.source", source=source, day=row["day"])
        for source, row in zip(shown, sources[:N_STALE_NAMED], strict=False)
    ]
    n_more = len(sources) - N_STALE_NAMED
    return [*names, *([f"{number(n_more)} more"] if n_more > 0 else [])]


def tripped(summary: Plain, kinds: Iterable[str]) -> list[str]:
    """Sentences on why a report should raise an alert; empty where it should not.

    Parameters
    ----------
    summary : dict
        Of a report.
    kinds : iterable of str
        ``new-critical``: failures that are new, or that reappeared after they were resolved.
        ``regression``: a number of the headline is significantly worse than in the windows
        before, or failures grow significantly. ``coverage``: data were lost, or a source of a
        fleet is stale or was not collected.

    Raises
    ------
    ArgumentError
        If there is no such kind.
    """
    return [sentence for kind in checked_kinds(kinds) for sentence in ALERTS[kind](summary)]


def checked_kinds(kinds: Iterable[str]) -> list[str]:
    """The kinds for `tripped` without repeats, or an error that lists the known ones."""
    asked = [kind.strip() for kind in kinds]
    if wrong := [kind for kind in asked if kind not in ALERTS]:
        raise ArgumentError(
            f"--fail-on has no condition {in_short(wrong[0])}; there are {', '.join(ALERTS)}.",
            '--fail-on "new-critical,coverage"' + did_you_mean(wrong[0], ALERTS),
        )
    return list(dict.fromkeys(asked))


def _new_failures(summary: Plain) -> Iterator[str]:
    clusters = _unexpected(summary)
    new = [cluster for cluster in clusters if cluster["state"] == "new"]
    if new:
        yield say("alert.new", n=len(new), name=new[0]["name"])
    if back := [cluster for cluster in clusters if cluster["is_back"]]:
        yield say("alert.reappeared", n=len(back), name=back[0]["name"])


def _regressions(summary: Plain) -> Iterator[str]:
    for figure in summary["headline"]["numbers"]:
        if direction_of(figure) > 0:
            known = figure.get("limits") or figure["change"]
            yield say("alert.worse", title=figure["title"], change=known["words"])
    for cluster in _unexpected(summary):
        if cluster["state"] == "growing":
            yield say("alert.growing", name=cluster["name"], n=cluster["n_incidents"])


def _unexpected(summary: Plain) -> list[Plain]:
    clusters = summary.get("failures", {}).get("clusters", ())
    return [cluster for cluster in clusters if not cluster["is_expected"]]


def _missing_data(summary: Plain) -> Iterator[str]:
    if losses := summary["losses"]:
        yield say("alert.lost", n=len(losses), message=losses[0]["message"])
    coverage = summary["coverage"] or {}
    if coverage.get("n_failed") or coverage.get("n_stale"):
        yield str(coverage["in_words"])


ALERTS: Mapping[str, Callable[[Plain], Iterator[str]]] = {
    "new-critical": _new_failures,
    "regression": _regressions,
    "coverage": _missing_data,
}

"""Inside the runs: calls that failed, and sessions that were not smooth, whatever their end."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.words import (
    dollars,
    how_long,
    interval,
    listed,
    number,
    say,
    sentence_of,
    share,
)
from stateanalytics.failures.call_outcomes import call_rows, count_tools, failed_share, runs_ended
from stateanalytics.failures.clustering import count_clusters
from stateanalytics.failures.failure_rows import find_members
from stateanalytics.failures.run_costs import priced
from stateanalytics.failures.struggles import began_in, effort_of, signs_of, turns
from stateanalytics.reporting.entities import command, place_of, show_command
from stateanalytics.reporting.material import Material, Plain, Section
from stateanalytics.state.definitions import RUN, ended_well

N_TOOLS, N_MESSAGES, N_SESSIONS = 5, 5, 5
_NAMED = ("name", "agent", "project")
_LONGEST = 100
_EFFORTS = ("stuck", "given_up", "struggled")
_ENTITY = ("source", "entity_type", "entity_id")


def summarize_inside(material: Material) -> Plain:
    """The calls and sessions of runs that were active in the window, as far as recorded."""
    every, every_turn = material.calls, turns(material.facts)
    called, turned = (began_in(rows, material.window) for rows in (every, every_turn))
    if called.is_empty() and turned.is_empty():
        return dict(_NOTHING)
    efforts = effort_of(called, turned, signs_of(called, turned, material.policy, every_turn))
    sessions = efforts.filter(entity_type="session").join(
        material.ever.select(*_ENTITY, *_NAMED, "is_open", is_good=ended_well()),
        on=_ENTITY,
        how="left",
        maintain_order="left",
    )
    hard = sessions.filter(pl.col("effort") != "smooth")
    is_stuck_now = pl.col("is_open") & (pl.col("effort") == "stuck")
    failed = failed_share(called)
    ends = failed.interval() if failed.n else None
    counts = {name: hard.filter(effort=name).height for name in _EFFORTS}
    lost = hard.filter("is_good")
    lost_s, n_tokens = float(lost["lost_s"].sum()), lost["n_tokens"].sum()
    place = place_of(material.facts, material.policy)
    first = (is_stuck_now, "is_open", "lost_s")
    shown = hard.sort(*first, descending=True, nulls_last=True, maintain_order=True)
    counted = {
        "n_calls": called.height,
        "n_with_result": failed.n,
        "n_failed": failed.n_hits,
        "share": failed.n_hits / failed.n if failed.n else None,
        "interval": None if ends is None else list(ends),
        "unit": RUN,
        "n_sessions": sessions.height,
        "efforts": counts,
        "n_stuck_now": hard.filter(is_stuck_now).height,
        "lost_s": lost_s,
        "lost": how_long(lost_s),
        "n_tokens": n_tokens,
        "lost_usd": _lost_usd(material, lost),
    }
    clauses = _clauses(counted)
    lost_too = _lost_too(counted)
    tools = count_tools(called).filter(pl.col("n_failed") > 0).head(N_TOOLS)
    return {
        **counted,
        "finding": sentence_of([*clauses, lost_too] if lost_too else clauses),
        "calls_and_efforts": sentence_of(clauses),
        "lost_too": sentence_of([lost_too]) if lost_too else None,
        "tools": [
            {
                **{name: row[name] for name in _OF_TOOL},
                "share": share(row["share"]),
                "interval": None if row["low"] is None else interval((row["low"], row["high"])),
            }
            for row in tools.to_dicts()
        ],
        "messages": _messages(material, every, place) if failed.n_hits else [],
        "sessions": [
            {
                **{name: row[name] for name in (*_ENTITY, *_NAMED, "effort", "why")},
                "is_open": bool(row["is_open"]),
                "lost": how_long(row["lost_s"]) if row["lost_s"] else None,
                "command": show_command(row, place),
            }
            for row in shown.head(N_SESSIONS).to_dicts()
        ],
    }


def _lost_usd(material: Material, lost: pl.DataFrame) -> float | None:
    """What lost tokens cost, as their part of all tokens that the session wrote; None: unknown."""
    if lost.is_empty():
        return None
    runs = material.ever.join(lost.select(*_ENTITY, n_lost="n_tokens"), on=_ENTITY)
    costs = priced(runs, material.used, material.prices).collect()
    part = (pl.col("n_lost") / pl.col("n_output_tokens")).clip(0, 1)
    usd = pl.when(pl.col("n_output_tokens") > 0).then(pl.col("total_usd") * part)
    known = costs.select(usd).to_series().drop_nulls()
    return None if known.is_empty() else float(known.sum())


def _messages(material: Material, every: pl.DataFrame, place: str) -> list[Plain]:
    """The clusters of failed calls that cost most."""
    window = material.window
    rows = call_rows(material.facts, every)
    failed = find_members(material.facts, window=window, rows=rows, of="calls")
    ended = runs_ended(material.failed, failed, every)
    counted = count_clusters(failed, window=window, as_of=material.facts.as_of, ended=ended)
    return [
        {
            "name": row["title"],
            **{name: row[name] for name in _OF_MESSAGE},
            "lost": how_long(row["run_s"]),
            "command": command(
                *("failures", place, material.arguments),
                *("--of calls --show members --cluster", row["cluster_id"]),
            ),
        }
        for row in counted.head(N_MESSAGES).to_dicts()
    ]


_OF_MESSAGE = ("cluster_id", "n_rows", "n_sessions", "run_cluster_id", "n_runs_ended", "run_s")
_OF_TOOL = ("tool", "n_calls", "n_with_result", "n_failed", "n_sessions")
_NOTHING: Plain = {
    **dict.fromkeys(("n_calls", "n_with_result", "n_failed", "n_sessions", "n_stuck_now"), 0),
    **{"share": None, "interval": None, "efforts": {}, "lost_s": 0.0, "lost": how_long(0.0)},
    **{"n_tokens": 0, "lost_usd": None, "finding": say("inside.none")},
    **{"calls_and_efforts": None, "lost_too": None},
    **{"tools": [], "messages": [], "sessions": []},
}


def _clauses(counted: Plain) -> list[str]:
    """The counts of failed calls, and of sessions that were not smooth, as clauses."""
    n_sessions, ends = counted["n_sessions"], counted["interval"]
    clauses: list[str] = []
    if counted["n_with_result"]:
        of_calls = say(
            "inside.calls",
            n_failed=counted["n_failed"],
            n=counted["n_with_result"],
            share=share(counted["share"]),
            interval="" if ends is None else say("inside.interval", ends=interval(ends)),
        )
        clauses.append(of_calls)
    kinds = [say(f"inside.{name}", n=n) for name, n in counted["efforts"].items() if n]
    name = "inside.hard" if kinds else "inside.smooth"
    clauses.append(say(name, kinds=listed(kinds), n=n_sessions))
    return clauses


def _lost_too(counted: Plain) -> str | None:
    """What loops and failed calls cost in runs that completed; None: nothing."""
    if not counted["lost_s"]:
        return None
    usd, n_tokens = counted["lost_usd"], counted["n_tokens"]
    cost = say("inside.cost", cost=dollars(usd)) if (usd or 0) >= 0.005 else ""
    tokens = say("inside.tokens", tokens=number(n_tokens)) if n_tokens else ""
    return say("inside.lost", time=counted["lost"], tokens=tokens, cost=cost)


SECTION = Section("inside", "Inside the runs", summarize_inside, place=45, needs=("n_sessions",))

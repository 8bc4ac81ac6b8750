"""What explains that runs complete more or less often, what they cost, and whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import polars as pl

from stateanalytics.core.windows import Window, day_of, zone_of
from stateanalytics.core.words import points, say, shorten_template
from stateanalytics.failures.explained import REST, explain
from stateanalytics.failures.failure_rows import ended_runs
from stateanalytics.failures.run_costs import count_costs
from stateanalytics.queries import in_one_line
from stateanalytics.reporting.changes import explained_windows
from stateanalytics.reporting.first_screen import direction_of
from stateanalytics.reporting.material import Material, Plain, plain_rows
from stateanalytics.state.population import within

N_PARTS, N_OWNERS = 3, 3
_LONGEST_TITLE = 48


def story_of(
    headline: Plain, failures: Plain, material: Material, earlier: Window | None, cost: Plain | None
) -> Plain:
    """The parts of the story that stand in no section.

    Parameters
    ----------
    headline, failures : dict
        The sections.
    material : Material
    earlier : Window, optional
        The window that is compared with.
    cost : dict, optional
        The `cost_of` the earlier window.

    Returns
    -------
    dict
        ``parts`` that add up to the change of the share of runs that do not complete, where
        the verdict names it, and ``explained``, the same as a sentence, where one of them
        changed clearly; ``cost`` and ``owners``, sentences. None where not known.
    """
    [completed] = [one for one in headline["numbers"] if one["name"] == "completed"]
    windows = explained_windows(headline, material, earlier)
    parts, explained = [], None
    # What explains a change is said of one that the verdict names.
    if windows is not None and direction_of(completed):
        now, before = (
            ended_runs(within(material.ever, window, as_of=material.facts.as_of))
            for window in windows
        )
        parts = plain_rows(explain(now, before, material.failed_ever, n=N_PARTS))
        if any(map(_is_clear, parts)):
            before_it = say(
                "story.all_before" if completed.get("limits") else "story.window_before"
            )
            since = windows[0].since.astimezone(zone_of(material.zone))
            explained = _explained(parts, since, before_it) + _changed(windows[0], material)
    return {
        "explained": explained,
        "parts": parts,
        "cost": _cost(cost_of(material), cost),
        "owners": _owners(failures.get("owners")),
    }


def cost_of(material: Material) -> Plain:
    """What the runs of a window cost: as reported, else as estimated."""
    costs = count_costs(material.rows, material.used, material.prices)
    return plain_rows(costs, ("n_runs", "total_usd", "total_n", "reported_n"))[0]


def _changed(now: Window, material: Material) -> str:
    """What changed within a day of the onset, as a sentence; empty where nothing did."""
    near = (pl.col("changed_at") - pl.lit(now.since)).abs() <= timedelta(days=1)
    rows = material.changes.filter(near)
    return say("story.changed", changes=in_one_line(rows)) if rows.height else ""


def _signed(change: float) -> str:
    return points(change).split(" ")[0]


def _is_clear(part: Plain) -> bool:
    return part["part"] != REST and part["low"] is not None and part["low"] * part["high"] > 0


def _explained(parts: list[Plain], since: datetime, before: str) -> str:
    total = sum(part["change"] for part in parts)
    named = [part for part in parts if part["part"] != REST]
    # What is shown adds up, too.
    rest = round(100 * total) - sum(round(100 * part["change"]) for part in named)
    if rest and len(named) < len(parts):
        shown = [*map(_part, named), say("story.rest", change=_signed(rest / 100))]
    else:
        shown, total = [*map(_part, named)], total - rest / 100
    return say("story.explained", change=total, since=day_of(since), before=before, parts=shown)


def _part(part: Plain) -> str:
    where = say("story.where", **_given(part, "dimension", "value")) if part["value"] else ""
    title = shorten_template(part["title"], _LONGEST_TITLE)
    return say("story.part", title=title, where=where, change=_signed(part["change"]))


def _given(part: Plain, *names: str) -> Plain:
    return {name: part[name] for name in names}


def _cost(now: Plain, before: Plain | None) -> str | None:
    if not now["n_runs"] or now["total_usd"] is None:
        return None
    known = before and before["n_runs"] and before["total_usd"] is not None
    is_whole = now["total_n"] == now["n_runs"]
    return say(
        "story.cost",
        usd=now["total_usd"],
        how="" if now["reported_n"] else say("story.estimated"),
        of="" if is_whole else say("story.cost_of", n=now["total_n"], n_runs=now["n_runs"]),
        before=say("story.cost_before", usd=before["total_usd"]) if before and known else "",
    )


def _owners(counts: list[Plain] | None) -> str | None:
    """Clusters by owner; None without a file of owners."""
    return say("story.owners", owners=list(_each(counts))) if counts else None


def _each(counts: list[Plain]) -> Iterator[str]:
    named = [row for row in counts if row["owner"]]
    yield from (f"{row['owner']} {row['n']}" for row in named[:N_OWNERS])
    if n := sum(row["n"] for row in counts if not row["owner"]):
        yield say("story.unassigned", n=n)

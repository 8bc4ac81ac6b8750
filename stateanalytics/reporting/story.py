"""Why more or fewer runs complete, or which faults most runs fail by, and what runs cost."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import fsum

import polars as pl

from stateanalytics.core.windows import Window, day_of, zone_of
from stateanalytics.core.words import in_one_line, points, say, shorten_template
from stateanalytics.failures.explained import REST, explain
from stateanalytics.failures.failure_rows import ended_runs
from stateanalytics.failures.fault_table import titles_of_faults
from stateanalytics.failures.run_costs import count_costs, unpriced_models
from stateanalytics.reporting.changes import explained_windows
from stateanalytics.reporting.first_screen import direction_of
from stateanalytics.reporting.material import Material, Plain, plain_rows
from stateanalytics.state.definitions import RUN
from stateanalytics.state.population import within

N_PARTS = 3
_LONGEST_TITLE = 60


def story_of(
    headline: Plain, material: Material, earlier: Window | None, cost: Plain | None
) -> Plain:
    """The parts of the story that stand in no section.

    Parameters
    ----------
    headline : dict
        The section.
    material : Material
    earlier : Window, optional
        The window that is compared with.
    cost : dict, optional
        The `cost_of` the earlier window.

    Returns
    -------
    dict
        ``parts`` that add up to the change of the share of runs that do not complete, where
        the verdict names it; ``explained``, the same as a sentence, where one of them changed
        clearly, else what most runs failed by; ``cost``, a sentence. None where not known.
    """
    [completed] = [one for one in headline["numbers"] if one["name"] == "completed"]
    windows = explained_windows(headline, material, earlier)
    parts, explained = [], None
    # Only a change that the verdict names is explained.
    if windows is not None and direction_of(completed):
        now, before = (
            ended_runs(within(material.ever, window, as_of=material.facts.as_of))
            for window in windows
        )
        parts = plain_rows(explain(now, before, material.failed_ever, n=N_PARTS))
        if any(map(_is_clear, parts)) and round(100 * sum(part["change"] for part in parts)):
            has_limits = completed.get("limits")
            before_it = say("story.all_before" if has_limits else "story.window_before")
            since = windows[0].since.astimezone(zone_of(material.zone))
            explained = _explained(parts, since, before_it) + _changed(windows[0], material)
    return {
        "explained": explained or _sources(material.failed.filter(pl.col("entity_type") == RUN)),
        "parts": parts,
        "cost": _cost(cost_of(material), cost) or _no_cost(material),
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


def _sources(failed: pl.DataFrame) -> str | None:
    """The faults that most runs failed by, as a sentence whose numbers add up; None: none did."""
    if failed.is_empty():
        return None
    faults = failed.lazy().group_by("fault_id").agg(n=pl.len(), run_s=pl.col("run_s").sum())
    order, falls = ["n", "run_s", "fault_id"], [True, True, False]
    first = faults.sort(order, descending=falls).head(N_PARTS)
    titled = titles_of_faults(failed).lazy()
    shown = first.join(titled, on="fault_id", maintain_order="left").collect()
    if shown["n"][0] == failed.height:
        return say("story.sources", parts=[f"“{_short(shown['title'][0])}”"])
    sizes = [*shown["n"], failed.height - shown["n"].sum()]
    titles = [*(f"“{_short(title)}”" for title in shown["title"]), say("story.others", n=sizes[-1])]
    parts = [
        say("story.source" if place else "story.first_source", n=n, title=title, of=failed.height)
        for place, (n, title) in enumerate(zip(sizes, titles, strict=True))
        if n
    ]
    return say("story.sources", parts=parts)


def _short(title: str) -> str:
    return shorten_template(title, _LONGEST_TITLE)


def _signed(change: float) -> str:
    return points(change).split(" ")[0]


def _is_clear(part: Plain) -> bool:
    return part["part"] != REST and part["low"] is not None and part["low"] * part["high"] > 0


def _explained(parts: list[Plain], since: datetime, before: str) -> str:
    total = fsum(part["change"] for part in parts)
    named = [part for part in parts if part["part"] != REST]
    # What is shown adds up, too.
    rest = round(100 * total) - sum(round(100 * part["change"]) for part in named)
    shown = [*map(_part, named)]
    if rest and len(named) < len(parts):
        shown.append(say("story.rest", change=_signed(rest / 100)))
    else:
        total -= rest / 100
    return say(
        "story.explained",
        n=abs(round(100 * total)),
        more=say("story.more" if total > 0 else "story.fewer"),
        since=day_of(since),
        before=before,
        parts=shown,
    )


def _part(part: Plain) -> str:
    value, where = part["value"], ""
    if value:
        where = say("story.where", dimension=part["dimension"], value=value)
    change = _signed(part["change"])
    return say("story.part", title=_short(part["title"]), where=where, change=change)


def _no_cost(material: Material) -> str | None:
    """Why nothing is known about costs; None without runs."""
    models = count_costs(material.rows, material.used, material.prices, ["model"])
    names = unpriced_models(models, material.prices)
    why = say("story.no_price" if names else "story.no_tokens", models=names, n=len(names))
    return f"{say('story.no_cost', why=why)}." if models.height else None


def _cost(now: Plain, before: Plain | None) -> str | None:
    if not now["n_runs"] or now["total_usd"] is None:
        return None
    known = before and before["n_runs"] and before["total_usd"] is not None
    is_whole = now["total_n"] == now["n_runs"]
    if not (is_whole or now["total_usd"]):
        n_runs, n_known = now["n_runs"], now["total_n"]
        return f"{say('story.cost_unknown', n=n_runs - n_known, n_runs=n_runs)}."
    return say(
        "story.cost",
        usd=now["total_usd"],
        how="" if now["reported_n"] else say("story.estimated"),
        of="" if is_whole else say("story.cost_of", n=now["total_n"], n_runs=now["n_runs"]),
        before=say("story.cost_before", usd=before["total_usd"]) if before and known else "",
    )

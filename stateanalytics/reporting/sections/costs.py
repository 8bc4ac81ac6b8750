"""What runs cost: as reported, as estimated from tokens, and the best of both."""

from __future__ import annotations

from datetime import date

import polars as pl

from stateanalytics.core.words import count, dollars, say
from stateanalytics.failures.run_costs import count_costs, doubts
from stateanalytics.reporting.material import Material, Plain, Section, plain_rows

N_SHOWN = 8
KINDS = ("reported", "estimated")
_SUMS = ("usd", "per_completed_usd", "per_merged_usd", "lost_usd")


def summarize_costs(material: Material) -> Plain:
    """Reported and estimated costs of the window's runs: total, by model and by project."""
    prices_on = material.prices["as_of"].max()
    assert isinstance(prices_on, date)

    def costs_by(*columns: str) -> pl.DataFrame:
        return count_costs(material.rows, material.used, material.prices, columns)

    [total] = plain_rows(costs_by())
    age_days = (material.facts.as_of.date() - prices_on).days
    name = "costs.prices" if age_days >= 0 else "costs.newer_prices"
    prices = say(name, day=prices_on, age=count(abs(age_days), "day"))
    return {
        "finding": _finding(total, prices),
        "doubts": doubts(material.facts.findings),
        "n_reported": total["reported_n"],
        "n_estimated": total["estimated_n"],
        "prices_on": prices_on.isoformat(),
        "prices_age_days": age_days,
        "prices_of": prices,
        "total": {**total, **_shown(total)},
        "models": _most_expensive(costs_by("system", "model")),
        "projects": _most_expensive(costs_by("project")),
    }


def _most_expensive(groups: pl.DataFrame) -> Plain:
    """The first groups with a known cost, how many more there are, and how many without one."""
    known = groups.filter(pl.any_horizontal(pl.col(f"{kind}_n") > 0 for kind in KINDS))
    rows = plain_rows(known.head(N_SHOWN))
    return {
        "rows": [{**row, **_shown(row)} for row in rows],
        "n_more": max(0, known.height - N_SHOWN),
        "n_unknown": groups.height - known.height,
    }


def _shown(row: Plain) -> Plain:
    amounts = {f"{kind}_{name}": row[f"{kind}_{name}"] for kind in KINDS for name in _SUMS}
    return {f"shown_{name}": None if usd is None else dollars(usd) for name, usd in amounts.items()}


def _finding(total: Plain, prices: str) -> str:
    n_runs, n_reported, n_estimated = total["n_runs"], total["reported_n"], total["estimated_n"]
    if not n_runs:
        return say("costs.no_run")
    reported, estimated = say("costs.none_reported", n_runs=n_runs), say("costs.none_estimated")
    if n_reported:
        reported = say("costs.reported", n=n_reported, n_runs=n_runs, usd=total["reported_usd"])
    if n_estimated:
        estimated = say("costs.estimated", n=n_estimated, usd=total["estimated_usd"], prices=prices)
    has_both = n_reported and n_estimated
    together = say("costs.together", usd=total["total_usd"]) if has_both else ""
    return say("costs.finding", reported=reported, estimated=estimated, together=together)


SECTION = Section("costs", "Costs", summarize_costs, place=25, needs=("n_reported", "n_estimated"))

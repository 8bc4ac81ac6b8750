"""What runs cost: what was reported, and beside it an estimate from tokens; never one number.

A page has the chapter where something is estimated: what was only reported, failures say.
"""

from __future__ import annotations

from datetime import date

import polars as pl

from stateanalytics.failures.price_table import prices
from stateanalytics.failures.run_costs import costs_of
from stateanalytics.reporting.material import Material, Plain, Section, plain_rows
from stateanalytics.reporting.phrases import count, number

N_SHOWN = 8
KINDS = ("reported", "estimated")


def summarize_costs(material: Material) -> Plain:
    """Reported and estimated costs of the window's runs, by system and model."""
    table = prices()
    looked_on = table["as_of"].max()
    assert isinstance(looked_on, date)
    [total] = plain_rows(costs_of(material.rows, table))
    known = pl.any_horizontal(pl.col(f"{kind}_n") > 0 for kind in KINDS)
    models = costs_of(material.rows, table, ("system", "model")).filter(known)
    age_days = max(0, (material.facts.as_of.date() - looked_on).days)
    prices_of = f"list prices of {looked_on} ({count(age_days, 'day')} old)"
    return {
        "finding": _sentence(total, prices_of),
        "n_estimated": total["estimated_n"],
        "prices_on": looked_on.isoformat(),
        "prices_age_days": age_days,
        "prices_of": prices_of,
        "total": {**total, **_shown(total)},
        "models": [{**row, **_shown(row)} for row in plain_rows(models.head(N_SHOWN))],
        "n_more_models": max(0, models.height - N_SHOWN),
    }


def _shown(row: Plain) -> Plain:
    names = ("usd", "per_completed_usd", "lost_usd")
    return {
        f"shown_{kind}_{name}": _dollars(row[f"{kind}_{name}"]) for kind in KINDS for name in names
    }


def _dollars(usd: float | None) -> str | None:
    return None if usd is None else f"${usd:,.2f}"


def _sentence(total: Plain, prices_of: str) -> str:
    n_runs = total["n_runs"]
    if not n_runs:
        return "No run of the window counts."
    reported = (
        f"{number(total['reported_n'])} of {count(n_runs, 'run')} reported what they cost, "
        f"{_dollars(total['reported_usd'])}"
        if total["reported_n"]
        else f"None of {count(n_runs, 'run')} reported what it cost"
    )
    estimated = (
        f"{number(total['estimated_n'])} are estimated at {_dollars(total['estimated_usd'])}"
        if total["estimated_n"]
        else "none can be estimated"
    )
    return f"{reported}; from tokens, by {prices_of}, {estimated}."


SECTION = Section("costs", "Costs", summarize_costs, place=60)

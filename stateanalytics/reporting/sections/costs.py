"""What runs cost: what was reported, next to it an estimate from tokens, and the best of both.

A page has the chapter where something is estimated: what was only reported, failures say.
"""

from __future__ import annotations

from datetime import date

import polars as pl

from stateanalytics.core.words import count, number
from stateanalytics.failures.run_costs import count_costs
from stateanalytics.reporting.material import Material, Plain, Section, plain_rows
from stateanalytics.systems.linking import used_tokens

N_SHOWN = 8
KINDS = ("reported", "estimated")
_SUMS = ("usd", "per_completed_usd", "per_merged_usd", "lost_usd")


def summarize_costs(material: Material) -> Plain:
    """Reported and estimated costs of the window's runs: together, by model and by project."""
    looked_on = material.prices["as_of"].max()
    assert isinstance(looked_on, date)
    used = used_tokens(material.facts)

    def told(*by: str) -> pl.DataFrame:
        return count_costs(material.rows, used, material.prices, by)

    [total] = plain_rows(told())
    age_days = (material.facts.as_of.date() - looked_on).days
    age = f"{count(age_days, 'day')} old" if age_days >= 0 else f"{count(-age_days, 'day')} younger"
    prices_of = f"list prices of {looked_on} ({age})"
    return {
        "finding": _sentence(total, prices_of),
        "n_estimated": total["estimated_n"],
        "prices_on": looked_on.isoformat(),
        "prices_age_days": age_days,
        "prices_of": prices_of,
        "total": {**total, **_shown(total)},
        "models": _dearest(told("system", "model")),
        "projects": _dearest(told("project")),
    }


def _dearest(groups: pl.DataFrame) -> Plain:
    """The first groups of which a cost is known, and how many more there are."""
    known = groups.filter(pl.any_horizontal(pl.col(f"{kind}_n") > 0 for kind in KINDS))
    rows = plain_rows(known.head(N_SHOWN))
    return {
        "rows": [{**row, **_shown(row)} for row in rows],
        "n_more": max(0, known.height - N_SHOWN),
    }


def _shown(row: Plain) -> Plain:
    return {
        f"shown_{kind}_{name}": _dollars(row[f"{kind}_{name}"]) for kind in KINDS for name in _SUMS
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
    together = (
        f" As reported, and estimated for the rest, it was {_dollars(total['total_usd'])}."
        if total["reported_n"] and total["estimated_n"]
        else ""
    )
    return f"{reported}; from tokens, by {prices_of}, {estimated}.{together}"


SECTION = Section("costs", "Costs", summarize_costs, place=60)
"""What runs cost, as reported and as estimated by list prices."""

"""What a report says of failures in words: the finding of their section, and what they cost."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.units import how_long
from stateanalytics.failures.counting import incident_count, sum_costs
from stateanalytics.reporting.material import Material, Plain, tally
from stateanalytics.reporting.phrases import count, listed, number, spoken
from stateanalytics.state.definitions import RUN

N_NAMED = 2
_NOT_REPORTED, _NOT_KNOWN = _MISSING = ("not reported", "not known")
_LONGEST_NAME = 60
_SUMS = ("run_s", "cost_usd", "n_work", "n_cost_unreported")


def lost_of(row: Plain) -> Plain:
    """What a failure cost, where somebody reported it; not reported is never nothing."""
    cost, unreported = row["cost_usd"], row["n_cost_unreported"]
    return {
        "cost": _NOT_REPORTED if cost is None else f"${cost:,.2f}",
        "unreported": number(unreported) if cost is not None and unreported else None,
        "time": _NOT_KNOWN if row["run_s"] is None else how_long(row["run_s"]),
    }


def lost_in_words(lost: Plain) -> str:
    """What a failure cost, in a cell; what nobody reported is said as that."""
    known = [lost[name] for name in ("time", "cost") if lost[name] and lost[name] not in _MISSING]
    words = ", ".join(known)
    missing = "cost not reported" if lost["cost"] == _NOT_REPORTED else ""
    return ", ".join(filter(None, (words, missing)))


def lost_in_all(failed: pl.DataFrame) -> Plain:
    """What all failures of a window cost together, each work once."""
    row = failed.select(**sum_costs()).row(0, named=True)
    sums = {name: None if row[name] is None else round(row[name], 6) for name in _SUMS}
    return {**sums, **lost_of(sums)}


def name_of(row: Plain) -> str:
    """What a failure is called: by a rule, else by its template, else by its code."""
    return str(row["rule_name"] or row["template"] or row["code"] or "nothing was said")


def finding_of(
    material: Material, clusters: pl.DataFrame, codes: pl.DataFrame, n_gone: int | None
) -> str:
    """What failed and what of it nobody looks after; then what is new, back or gone."""
    failed = material.failed
    if failed.is_empty():
        return "Nothing failed or timed out in this window."
    parts = [
        _incidents(failed),
        *_dearest(clusters, has_ledger=material.ledger is not None),
    ]
    widest = max(codes.iter_rows(named=True), key=lambda row: row["n_rows"] - row["n_incidents"])
    if widest["n_rows"] >= 2 * widest["n_incidents"] and widest["n_rows"] > 2:
        parts.append(
            f"{widest['code'] or 'no code'} is {number(widest['n_rows'])} rows but only "
            f"{count(widest['n_incidents'], 'incident')}"
        )
    if n_gone is not None:
        states = tally(clusters, "state")
        told = {"new": "new", "back": "back after weeks without", "growing": "growing"}
        lives = [f"{number(states[name])} {told[name]}" for name in told if states.get(name)]
        parts.append(listed([*lives, f"{number(n_gone)} gone"] if n_gone else lives) or "none new")
    return "; ".join(parts) + "." + _returned(clusters)


def _incidents(failed: pl.DataFrame) -> str:
    """How many incidents the runs are, as the headline counts them; without any, the other work."""
    runs = failed.filter(pl.col("entity_type") == RUN)
    some, what = (runs, "run") if runs.height else (failed, "row")
    n_incidents = int(some.select(incident_count()).item())
    n, n_in_all = (rows["cluster_id"].n_unique() for rows in (some, failed))
    # What follows, such as how many are new, is told of all clusters: of one, five cannot be.
    more = f" ({number(n_in_all)} with other work)" if n_in_all >= 2 * n else ""
    return (
        f"{count(some.height, f'failed or timed-out {what}').capitalize()} "
        f"{'are' if some.height > 1 else 'is'} {count(n_incidents, 'incident')} of "
        f"{count(n, 'cluster')}{more}"
    )


def _dearest(clusters: pl.DataFrame, *, has_ledger: bool) -> list[str]:
    """Which of the failures that nobody looks after cost most."""
    unowned = clusters.filter(pl.col("owner").is_null()).head(N_NAMED if has_ledger else 1)
    names = [_quoted(name_of(row)) + _priced(row) for row in unowned.iter_rows(named=True)]
    if not has_ledger:
        return [f"{names[0]} cost most"] if _priced(unowned.row(0, named=True)) else []
    return [f"nobody looks after {listed(names)}"] if names else ["each has an owner"]


def _priced(row: Plain) -> str:
    lost = lost_of(row)
    known = {"cost": row["cost_usd"], "time": row["run_s"]}
    words = [lost[name] for name, value in known.items() if value is not None]
    return f" ({', '.join(words)})" if words else ""


def _returned(clusters: pl.DataFrame) -> str:
    back = clusters.filter(pl.col("is_back").fill_null(value=False))
    if back.is_empty():
        return ""
    named = listed(_quoted(name_of(row)) for row in back.head(N_NAMED).iter_rows(named=True))
    more = f" and {number(back.height - N_NAMED)} more" if back.height > N_NAMED else ""
    return f" Resolved, but back: {named}{more}."


def _quoted(text: str) -> str:
    return f"“{spoken(text, _LONGEST_NAME)}”"

"""Who fails more than the rest, by host, project, system and source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core.joins import left_joined
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.words import count, interval, say, share
from stateanalytics.failures.failure_rates import UNKNOWN
from stateanalytics.reporting.material import Material, Plain, Section
from stateanalytics.state.definitions import RUN, is_failure
from stateanalytics.state.population import hosts_of
from stateanalytics.stats.distributions import hypergeometric_tail
from stateanalytics.stats.shares import Prior, fit_prior

N_SHOWN = 8
DOUBT = 0.025
"""Largest probability that a group fails no more than the rest: one side of a 95 % interval."""
_NO_PROJECT = "no project"
KINDS = ("host", "project", "system", "source")


def summarize_fleet(material: Material) -> Plain:
    """Ended runs and incidents by host, project, system, source and the caller's columns."""
    usual = KINDS if material.facts.sources.height > 1 else ()
    columns = (*usual, *material.by)
    if not columns:
        return fleet_of({}, "incident")
    own = material.failed.filter(pl.col("entity_type") == RUN)
    together = own.select(*ENTITY_KEY, _unit=pl.coalesce("incident_id", "cause"))
    runs = left_joined(material.ended_runs.collect(), together.unique(ENTITY_KEY), on=ENTITY_KEY)
    groups = with_names(runs).with_columns(
        pl.col(name).cast(pl.String).fill_null(UNKNOWN) for name in material.by
    )

    def by(name: str) -> pl.DataFrame:
        return groups.group_by(pl.col(name).alias("group")).agg(
            n_good=(~is_failure()).fill_null(value=True).sum(),
            n_failed=is_failure().sum(),
            n_bad=pl.col("_unit").filter(is_failure()).n_unique(),
        )

    return fleet_of({name: by(name) for name in columns}, "incident")


def fleet_of(groupings: Mapping[str, pl.DataFrame], unit: str) -> Plain:
    """The section from counts by group.

    Parameters
    ----------
    groupings : mapping of str to polars.DataFrame
        By host, project, system and source, or another column: ``group``, ``n_good`` runs that
        ended without failing, ``n_failed`` that failed or timed out, and ``n_bad`` units that
        these are.
    unit : str
        What related failures are counted as.
    """
    if not groupings:
        return {"finding": say("fleet.one_source"), "groupings": []}
    compared = {
        name: Compared.of(frame)
        for name, frame in groupings.items()
        if frame.height > 1 and (name != "host" or frame.height < groupings["source"].height)
    }
    return {
        "finding": _finding(compared, unit),
        "unit": unit,
        "denominator": say("fleet.counted", unit=unit),
        "groupings": [
            {"by": name, "n": len(groups.rows), "n_more": len(groups.more), "rows": groups.shown()}
            for name, groups in compared.items()
        ],
    }


def with_names(runs: pl.DataFrame) -> pl.DataFrame:
    """Runs with the columns that they are grouped by."""
    return runs.with_columns(
        host=hosts_of(runs["source"]), project=pl.col("project").fill_null(_NO_PROJECT)
    )


class Compared(NamedTuple):
    """Groups with their shares of failures, those that fail significantly more first."""

    rows: list[Plain]
    prior: Prior

    @classmethod
    def of(cls, counts: pl.DataFrame) -> Compared:
        """Compare each group with all others."""
        known = counts.with_columns(n=pl.col("n_good") + pl.col("n_bad")).filter(pl.col("n") > 0)
        totals = int(known["n_bad"].sum()), int(known["n"].sum())
        prior = fit_prior(known.select("n_bad", "n").iter_rows())
        rows = [_judged(row, prior, *totals) for row in known.iter_rows(named=True)]
        order = {"more": 0, "": 1, "fewer": 2}
        rows.sort(key=lambda row: (order[row["verdict"]], -row["shrunk"], -row["n"], row["group"]))
        return cls(rows, prior)

    @property
    def more(self) -> list[Plain]:
        """The groups that fail more than the rest."""
        return [row for row in self.rows if row["verdict"] == "more"]

    def shown(self) -> list[Plain]:
        """The first groups as the page shows them, with intervals."""
        return [
            {
                **row,
                "interval": list(ends),
                "shown": share(row["share"]),
                "shown_shrunk": f"{share(row['shrunk'])} ({interval(ends)})",
                "shown_rest": share(row["rest"]),
            }
            for row in self.rows[:N_SHOWN]
            for ends in [self.prior.interval(row["n_bad"], row["n"])]
        ]


def _judged(row: Mapping[str, Any], prior: Prior, n_bad: int, n: int) -> Plain:
    own, others = (row["n_bad"], row["n"]), (n_bad - row["n_bad"], n - row["n"])
    rest, verdict = None, ""
    if others[1]:
        rest = others[0] / others[1]
        below = prior.chance_below(rest, *own)
        # Both must hold: the shrunk share differs, and so does an exact test of the counts.
        if below < DOUBT and hypergeometric_tail(*own, n_bad, n) < DOUBT:
            verdict = "more"
        good = (own[1] - own[0], own[1], n - n_bad, n)
        if below > 1 - DOUBT and hypergeometric_tail(*good) < DOUBT:
            verdict = "fewer"
    shrunk = prior.shrunk(*own)
    return {**row, "share": own[0] / own[1], "rest": rest, "shrunk": shrunk, "verdict": verdict}


def _finding(compared: Mapping[str, Compared], unit: str) -> str:
    if not any(groups.rows for groups in compared.values()):
        return say("fleet.no_run")
    parts = []
    for name, groups in compared.items():
        if not groups.more:
            continue
        first, n_others = groups.more[0], len(groups.more) - 1
        others = say("fleet.others", groups=count(n_others, f"other {name}"))
        parts.append(
            say(
                "fleet.group",
                by=name,
                group=first["group"],
                n_bad=first["n_bad"],
                n=first["n"],
                rest=first["rest"],
                others=others if n_others else "",
                unit=unit if first["n_bad"] == 1 else f"{unit}s",
            )
        )
    if not parts:
        return say("fleet.none", groups=" or ".join(compared))
    return say("fleet.more", groups=parts, n=len(parts))


SECTION = Section("fleet", "Fleet", summarize_fleet, place=35, needs=("groupings",))

"""Who fails more than the rest: hosts, projects, systems and sources side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.words import count, interval, listed, number, share
from stateanalytics.failures.failure_rates import UNKNOWN
from stateanalytics.reporting.material import Material, Plain, Section
from stateanalytics.state.definitions import RUN, is_failure
from stateanalytics.stats.distributions import hypergeometric_tail
from stateanalytics.stats.shares import Prior, fit_prior

N_SHOWN = 8
DOUBT = 0.025
"""How probable it may still be that a group fails no more than the rest: one side of 95 %."""
_ALONE = "no project"
KINDS = ("host", "project", "system", "source")


def summarize_fleet(material: Material) -> Plain:
    """Ended runs and incidents by host, project, system and source, and by what was asked for."""
    usual = KINDS if material.facts.sources.height > 1 else ()
    told = (*usual, *material.by)
    if not told:
        return fleet_of({}, "incident")
    own = material.failed.filter(pl.col("entity_type") == RUN)
    together = own.select(*ENTITY_KEY, _unit=pl.coalesce("incident_id", "cause"))
    runs = material.ended_runs.collect().join(
        together.unique(ENTITY_KEY), on=ENTITY_KEY, how="left", maintain_order="left"
    )
    groups = with_names(runs).with_columns(
        pl.col(name).cast(pl.String).fill_null(UNKNOWN) for name in material.by
    )

    def by(name: str) -> pl.DataFrame:
        return groups.group_by(pl.col(name).alias("group")).agg(
            n_good=(~is_failure()).fill_null(value=True).sum(),
            n_failed=is_failure().sum(),
            n_bad=pl.col("_unit").filter(is_failure()).n_unique(),
        )

    return fleet_of({name: by(name) for name in told}, "incident")


def fleet_of(groupings: Mapping[str, pl.DataFrame], unit: str) -> Plain:
    """The same from counts.

    Parameters
    ----------
    groupings : mapping of str to polars.DataFrame
        By host, project, system and source, or another column: ``group``, ``n_good`` runs that
        ended without failing, ``n_failed`` that failed or timed out, and ``n_bad`` units that
        these are.
    unit : str
        What failures that belong together are counted as once.
    """
    if not groupings:
        return {"finding": "Everything that was read is of one source.", "groupings": []}
    compared = {
        name: Compared.of(frame)
        for name, frame in groupings.items()
        if frame.height > 1 and (name != "host" or frame.height < groupings["source"].height)
    }
    return {
        "finding": _sentence(compared, unit),
        "unit": unit,
        "denominator": f"runs that ended in the window, those that failed by {unit}",
        "groupings": [
            {"by": name, "n": len(each.rows), "n_more": len(each.more), "rows": each.shown()}
            for name, each in compared.items()
        ],
    }


def host_of(source: str) -> str:
    """The folder that a source lies in, up to the first whose name begins with a dot.

    Examples
    --------
    >>> host_of("hosts/a/.agents/state.db"), host_of("fleet/b/state.db"), host_of("state.db")
    ('hosts/a', 'fleet/b', '.')
    """
    path = PurePath(source)
    for place, name in enumerate(path.parts):
        if name.startswith(".") and name not in (".", ".."):
            return str(PurePath(*path.parts[:place]))
    return str(path.parent)


def with_names(runs: pl.DataFrame) -> pl.DataFrame:
    """Runs with the names of what they are grouped by."""
    sources = runs["source"].unique().to_list()
    hosts = [host_of(source) for source in sources]
    return runs.with_columns(
        host=pl.col("source").replace_strict(sources, hosts, return_dtype=pl.String),
        project=pl.col("project").fill_null(_ALONE),
    )


class Compared(NamedTuple):
    """Groups with their shares of failures, those that surely fail more than the rest first."""

    rows: list[Plain]
    prior: Prior

    @classmethod
    def of(cls, counts: pl.DataFrame) -> Compared:
        """Each group beside all others."""
        known = counts.with_columns(n=pl.col("n_good") + pl.col("n_bad")).filter(pl.col("n") > 0)
        totals = int(known["n_bad"].sum()), int(known["n"].sum())
        prior = fit_prior(known.select("n_bad", "n").iter_rows())
        rows = [_judged(row, prior, *totals) for row in known.iter_rows(named=True)]
        order = {"more": 0, "": 1, "fewer": 2}
        rows.sort(key=lambda row: (order[row["verdict"]], -row["shrunk"], -row["n"], row["group"]))
        return cls(rows, prior)

    @property
    def more(self) -> list[Plain]:
        """Those that fail more than the rest."""
        return [row for row in self.rows if row["verdict"] == "more"]

    def shown(self) -> list[Plain]:
        """The first of them in words, with intervals."""
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
        # Drawn in, it is another than that of the rest; and chance would rarely deal it so.
        if below < DOUBT and hypergeometric_tail(own[0], own[1], n_bad, n) < DOUBT:
            verdict = "more"
        elif (
            below > 1 - DOUBT and hypergeometric_tail(own[1] - own[0], own[1], n - n_bad, n) < DOUBT
        ):
            verdict = "fewer"
    shrunk = prior.shrunk(*own)
    return {**row, "share": own[0] / own[1], "rest": rest, "shrunk": shrunk, "verdict": verdict}


def _sentence(compared: Mapping[str, Compared], unit: str) -> str:
    if not any(each.rows for each in compared.values()):
        return "No run ended in this window."
    parts = []
    for name, each in compared.items():
        if not each.more:
            continue
        top = each.more[0]
        rest = len(each.more) - 1
        others = f" and {count(rest, f'other {name}')}" if rest else ""
        parts.append(
            f"{name} {top['group']}{others} ({number(top['n_bad'])} "
            f"{unit}{'' if top['n_bad'] == 1 else 's'} in {number(top['n'])}, "
            f"the rest {share(top['rest'])})"
        )
    if not parts:
        names = " or ".join(compared)
        return f"No {names} fails more than the rest, beyond what chance does."
    return f"More than the rest fail{'s' if len(parts) == 1 else ''} {listed(parts)}."


SECTION = Section("fleet", "Fleet", summarize_fleet, place=35)

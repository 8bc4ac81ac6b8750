"""The counts of one or more stores, and what can be read off them."""

from __future__ import annotations

import html
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations

import polars as pl

from stateanalytics.core.text import visible
from stateanalytics.core.windows import in_utc
from stateanalytics.detectors.agreement_coefficients import CELLS, score_cells
from stateanalytics.failures.templates import merge_templates

FAILED = (pl.col("n_rows").sum(), pl.col("first_at").min(), pl.col("last_at").max())
"""How rows about failures add up."""


@dataclass(frozen=True, repr=False)
class Summary:
    """Counts of one or more stores at one instant; frozen, picklable, and it adds up.

    Attributes
    ----------
    as_of : datetime
        The instant that everything was counted at.
    policy : str
        Version of the policy that was applied.
    sources : polars.DataFrame
        Which inputs are in it: ``source``, ``system``, ``format``, ``fingerprint``,
        ``n_entities``, ``n_events``, ``n_findings``, ``last_at``.
    states : polars.DataFrame
        ``n`` entities by ``system``, ``entity_type`` and the axes of their state.
    spells : polars.DataFrame
        ``n`` runs by the columns ``by``, how they ended and how long they took, in whole
        seconds, rounded up.
    silences : polars.DataFrame
        What `gap_sums` gave; for `quality_of_service`.
    detections : polars.DataFrame
        ``n`` entities by what every detector says of them; null: it does not cover them.
    templates : polars.DataFrame
        ``n_rows``, ``first_at`` and ``last_at`` of failures by ``system``, ``code`` and
        ``pattern``: the message without what varies in it.
    """

    as_of: datetime
    policy: str
    sources: pl.DataFrame
    states: pl.DataFrame
    spells: pl.DataFrame
    silences: pl.DataFrame
    detections: pl.DataFrame
    templates: pl.DataFrame

    def runs(self) -> pl.DataFrame:
        """One row a run again, for `kaplan_meier` and its relatives.

        Returns
        -------
        polars.DataFrame, shape (n_runs, ...)
            ``spells`` without ``n``, each row as often as it was counted.
        """
        times = self.spells.select(row=pl.int_range(pl.len()).repeat_by("n"))["row"]
        return self.spells.drop("n")[times.list.explode(empty_as_null=False)]

    def agreement(self) -> pl.DataFrame:
        """Cross table, raw agreement, kappa, AC1 and PABAK of every pair of detectors.

        Returns
        -------
        polars.DataFrame, shape (n_pairs, 11)
            ``a``, ``b``, ``n`` that both cover, the four cells and the scores, as
            `agreement` gives them; intervals need the sessions, which are not in a summary.
        """
        names = [name for name in self.detections.columns if name != "n"]
        pairs = list(combinations(names, 2))
        counted = self.detections.select(
            cell.alias(f"{place} {name}")
            for place, pair in enumerate(pairs)
            for name, cell in _cells(*pair).items()
        )
        values = iter(counted.row(0) if pairs else ())
        rows = [(*pair, *(next(values) for _ in CELLS[1:])) for pair in pairs]
        schema = {"a": pl.String, "b": pl.String, **dict.fromkeys(CELLS[1:], pl.Int64)}
        return (
            pl.DataFrame(rows, schema=schema, orient="row")
            .with_columns(n=pl.sum_horizontal(CELLS[1:]))
            .filter(pl.col("n") > 0)
            .with_columns(**score_cells())
            .select("a", "b", *CELLS, *score_cells())
        )

    def failures(self) -> pl.DataFrame:
        """Failures by code and template, most frequent first.

        Returns
        -------
        polars.DataFrame, shape (n_clusters, 6)
            ``code``, ``template`` (null without a message), ``template_id``, ``n_rows``,
            ``first_at``, ``last_at``; templates are those of all stores together.
        """
        known = merge_templates(self.templates).select("pattern", "template", "template_id")
        named = self.templates.join(known, on="pattern", how="left")
        return (
            named.group_by("code", "template", "template_id")
            .agg(FAILED)
            .sort("n_rows", "code", "template", descending=[True, False, False])
        )

    def __repr__(self) -> str:
        n = int(self.states["n"].sum())
        inputs = "1 input" if self.sources.height == 1 else f"{self.sources.height:,} inputs"
        return (
            f"Summary as of {in_utc(self.as_of)}, policy {visible(self.policy)}: "
            f"{n:,} entities of {inputs}\n"
            "Next: sa.merge([…]), sa.detectors.quality_of_service(summary.silences), "
            "summary.failures()"
        )

    def _repr_html_(self) -> str:
        first, following = html.escape(repr(self)).split("\n")
        return f"<p><strong>{first}</strong></p><p>{following}</p>"


def _cells(a: str, b: str) -> dict[str, pl.Expr]:
    """The four cells of a pair, over the units that both cover."""
    yes_a, yes_b = pl.col(a), pl.col(b)
    which = (yes_a & yes_b, yes_a & ~yes_b, ~yes_a & yes_b, ~yes_a & ~yes_b)
    # Null where one of them does not cover the unit, and then counted nowhere.
    return {
        name: pl.col("n").filter(is_it & yes_a.is_not_null() & yes_b.is_not_null()).sum()
        for name, is_it in zip(CELLS[1:], which, strict=True)
    }

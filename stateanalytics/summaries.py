"""Counts of a store: small, and they add up over a fleet.

Every statistic of this package is a sum over stores. `summarize` counts one store, on
whatever machine it lies; `merge` adds the counts, to the same numbers that one read of
all stores would give.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from pathlib import Path

import polars as pl

from stateanalytics.core.redaction import redact
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.text import visible
from stateanalytics.core.windows import Moment, in_utc
from stateanalytics.detectors.detections import detect
from stateanalytics.detectors.gaps import lean_gaps
from stateanalytics.detectors.sums import gap_sums, merge_gap_sums
from stateanalytics.errors import ArgumentError, check_columns
from stateanalytics.failures.failure_rows import find_members
from stateanalytics.failures.templates import merge_templates, mine_templates
from stateanalytics.snapshot import Snapshot, read
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.state.states import states
from stateanalytics.stats.agreement import CELLS, score_cells
from stateanalytics.survival.run_spells import spells

_FAILURE_SUMS = (pl.col("n_rows").sum(), pl.col("first_at").min(), pl.col("last_at").max())
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
            .agg(_FAILURE_SUMS)
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


def merge(summaries: Iterable[Summary]) -> Summary:
    """The summary of all inputs together, as if they had been read at once.

    Parameters
    ----------
    summaries : iterable of Summary
        Counted at the same instant, by the same policy, columns and thresholds.

    Returns
    -------
    Summary
        In whatever order and grouping parts are merged, the counts are the same.

    Raises
    ------
    ArgumentError
        If there is none, they do not fit together, or one input is in several.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> week = sa.summarize(sa.demo())
    >>> merge([week]).states.equals(week.states)
    True
    """
    parts = list(summaries) if isinstance(summaries, Iterable) else [summaries]
    _check_fit(parts)
    first = parts[0]
    return Summary(
        as_of=first.as_of,
        policy=first.policy,
        sources=pl.concat([part.sources for part in parts]).sort("source", "system"),
        states=_add_counts([part.states for part in parts]),
        spells=_add_counts([part.spells for part in parts]),
        silences=merge_gap_sums(part.silences for part in parts),
        detections=_in_order(_add_counts([part.detections for part in parts])),
        templates=_add_failures(pl.concat([part.templates for part in parts])),
    )


def _add_counts(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Equal rows of all parts as one, with their ``n`` added; sorted."""
    rows = pl.concat(parts, how="diagonal")
    keys = [name for name in rows.columns if name != "n"]
    return rows.group_by(keys).agg(pl.col("n").sum()).sort(keys)


def _in_order(detections: pl.DataFrame) -> pl.DataFrame:
    """Detectors by name: stores of different systems have different ones."""
    names = sorted(name for name in detections.columns if name != "n")
    return detections.select(*names, "n").sort(names)


def _add_failures(rows: pl.DataFrame) -> pl.DataFrame:
    """Failures by system, code and pattern, sorted."""
    keys = ["system", "code", "pattern"]
    return rows.group_by(keys).agg(_FAILURE_SUMS).sort(keys)


def _check_fit(parts: Sequence[Summary]) -> None:
    if not parts or not all(isinstance(part, Summary) for part in parts):
        found = next((repr(part) for part in parts if not isinstance(part, Summary)), "none")
        raise ArgumentError(
            f"merge needs at least one summary; found {found:.60}.",
            "sa.merge([sa.summarize(path)])",
        )
    for name in ("as_of", "policy"):
        if len(different := {str(getattr(part, name)) for part in parts}) > 1:
            raise ArgumentError(
                f"merge needs summaries of one {name}; found {', '.join(sorted(different)[:3])}.",
                f"sa.summarize(path, {name}=…) with the same {name} for all",
            )
    if len({tuple(part.spells.columns) for part in parts}) > 1:
        raise ArgumentError("merge needs summaries by the same columns.", "one `by` for all")
    sources = pl.concat([part.sources for part in parts])
    again = sources.filter(pl.col("fingerprint").is_duplicated(), pl.col("n_entities") > 0)
    if again.height:
        names = ", ".join(visible(name) for name in again["source"].unique().sort().head(3))
        raise ArgumentError(
            f"The same data is in more than one summary: {names}.",
            "leave copies and backups of a store out",
        )


_AXES = ("lifecycle", "outcome", "health", "delivery", "severity", "is_legacy")
_SPELL = ("timeout_s", "duration_s", "ending", "ended", "cause", "cut_off_by", "left_out")
_SOURCE = (
    "source", "system", "format", "fingerprint", "n_entities", "n_events", "n_findings", "last_at",
)  # fmt: skip


def summarize(
    source: str | Path | Snapshot,
    *,
    as_of: Moment | None = None,
    policy: Policy | None = None,
    by: Sequence[str] = ("system", "kind"),
    thresholds_s: Iterable[float] | None = None,
) -> Summary:
    """Count one store, so that it can be added to others.

    Parameters
    ----------
    source : path or Snapshot
        As for `read`: a store, a directory or a pattern; or what `read` gave.
    as_of : datetime, date, ISO text or epoch seconds, optional
        The instant to count at. Give one for a whole fleet: it decides what is cut off.
    policy : Policy, optional
        What counts as bad; v1 by default.
    by : sequence of str
        Columns of ``entities`` that runs and silences are counted apart by.
    thresholds_s : iterable of float, optional
        Thresholds of silence; by default those that people would set, 10 s to a week.

    Returns
    -------
    Summary
        Small (counts, and masked messages), whatever the size of the store.

    Raises
    ------
    SourceError
        If the input cannot be read.
    ArgumentError, MissingColumnsError
        If an argument makes no sense, or a column of ``by`` is not there.

    Notes
    -----
    It can be sent to any `concurrent.futures.Executor`, and its answer back. Start
    processes with ``spawn`` or ``forkserver``: threads of polars do not survive a fork.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> sa.summarize(sa.demo()).silences["n_dead"].max() > 0
    True
    """
    if not isinstance(source, Snapshot):
        with read(source, as_of=as_of, progress=False) as snap:
            return _counted(snap, policy or Policy.v1(), list(by), thresholds_s)
    if as_of is not None:
        raise ArgumentError(
            "A snapshot has its own as-of; found as_of as well.", "sa.read(path, as_of=…)"
        )
    return _counted(source, policy or Policy.v1(), list(by), thresholds_s)


def _counted(
    snap: Snapshot, policy: Policy, by: list[str], thresholds_s: Iterable[float] | None
) -> Summary:
    judged = states(snap, policy=policy)
    rows = rows_of(snap, states=judged)
    runs = spells(snap, rows=rows)
    check_columns(runs, by, "summarize")
    lengths = runs.with_columns(pl.col("duration_s").ceil())
    return Summary(
        as_of=snap.as_of,
        policy=policy.version,
        sources=snap.sources.select(_SOURCE).sort("source", "system"),
        states=_add_counts([_one_each(_masked(judged.select("system", "entity_type", *_AXES)))]),
        spells=_add_counts([_one_each(_masked(lengths.select(*by, *_SPELL)))]),
        silences=gap_sums(_masked(lean_gaps(snap, by=by, rows=rows)), thresholds_s, by=by),
        detections=_detections(snap, policy, judged),
        templates=_templates(snap, policy, rows),
    )


def _detections(snap: Snapshot, policy: Policy, judged: pl.DataFrame) -> pl.DataFrame:
    """How many entities each combination of answers is about."""
    detections = detect(snap, policy=policy, states=judged)
    wide = detections.pivot(on="detector", index=list(ENTITY_KEY), values="fires")
    return _in_order(_add_counts([_one_each(wide.drop(ENTITY_KEY))]))


def _templates(snap: Snapshot, policy: Policy, rows: pl.DataFrame) -> pl.DataFrame:
    members = find_members(snap, policy=policy, rows=rows)
    patterns = members.select(
        "system",
        "code",
        mine_templates(members["message"])["pattern"],
        n_rows=pl.lit(1, pl.Int64),
        first_at="failed_at",
        last_at="failed_at",
    )
    # Behind the miner: placeholders would be words to it.
    return _add_failures(_masked(patterns))


def _one_each(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(n=pl.lit(1, pl.Int64))


def _masked(rows: pl.DataFrame) -> pl.DataFrame:
    """A summary leaves the machine of its store, and what looks like a secret does not."""
    return redact(rows)[0]

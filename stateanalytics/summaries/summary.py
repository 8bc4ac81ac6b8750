"""Summaries: frames of counts at one instant, which add up and are stored as Parquet files."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core.schema import Frame
from stateanalytics.core.text import as_written, visible
from stateanalytics.core.windows import minute_of
from stateanalytics.detectors.frames import AGREEMENT
from stateanalytics.detectors.quality import merge_gap_sums
from stateanalytics.errors import ArgumentError, DamagedStoreError, in_short
from stateanalytics.failures.masking import WILDCARD
from stateanalytics.failures.templates import merge_templates
from stateanalytics.io.frame_files import MADE_BY, read_frames, write_frames
from stateanalytics.stats.agreement import CELLS, pairwise_agreement, score_cells
from stateanalytics.summaries.shapes import FIXED, FRAMES, GROUPED_BY, shapes_of

_MOST_PLACES = 2**31
_MOST = 2.0**62
"""The greatest sum that fits into a column."""
_LONGEST_NAME = 200


@dataclass(frozen=True, repr=False)
class Summary:
    """Counts of one or more stores at one instant, which can be merged; immutable.

    Attributes
    ----------
    as_of : datetime
        The instant that everything was counted at.
    policy : str
        Version of the policy that was applied.
    k : int
        Minimum number of sessions that share a message template for its text to be kept; rarer ones
        have a digest.
    by : tuple of str
        The columns by which runs and silences are grouped.
    sources : polars.DataFrame
        The inputs: ``source``, ``system``, ``format``, ``fingerprint``,
        ``n_entities``, ``n_events``, ``last_at``, ``looked_at``, ``is_unchanged``,
        ``work_sample`` (of `counts.work_samples`).
    losses : polars.DataFrame
        What is missing of them, with the texts of ``findings``.
    states : polars.DataFrame
        ``n`` entities by ISO ``week`` of their end (null: open) and of their begin, by
        ``system``, ``entity_type`` and the axes of their state.
    codes : polars.DataFrame
        Failures by ``week``, ``system`` and reason ``code``: rows, sessions, causes.
    groups : polars.DataFrame
        Ended runs by ``week``, ``source``, ``system`` and ``project``: how many failed, and
        for how many causes.
    units : polars.DataFrame
        ``n`` units (shows, invocations) by ``week`` and how many of their runs had each outcome;
        intervals of shares are computed from it.
    spells : polars.DataFrame
        ``n`` runs by the columns ``by``, how they ended and how long they took, in whole
        seconds, rounded up.
    silences : polars.DataFrame
        The result of `gap_sums`, for `quality_of_service`.
    detections : polars.DataFrame
        ``n`` entities by the answer of every detector; null: it does not cover them.
    templates : polars.DataFrame
        ``n_rows``, ``n_sessions``, ``first_at`` and ``last_at`` of failures by ``system``,
        ``code`` and ``pattern_id``; ``pattern`` is the message without its varying parts.
    """

    as_of: datetime
    policy: str
    k: int
    by: tuple[str, ...]
    sources: pl.DataFrame
    losses: pl.DataFrame
    states: pl.DataFrame
    codes: pl.DataFrame
    groups: pl.DataFrame
    units: pl.DataFrame
    spells: pl.DataFrame
    silences: pl.DataFrame
    detections: pl.DataFrame
    templates: pl.DataFrame

    def runs(self) -> pl.DataFrame:
        """One row per run, for `kaplan_meier` and related functions.

        Returns
        -------
        polars.DataFrame, shape (n_runs, ...)
            ``spells`` without ``n``, each row as often as it was counted. A summary does not record
            which runs belong together, so intervals treat them as independent.

        Raises
        ------
        ArgumentError
            If there are more than two billion.
        """
        if (n := self.spells["n"].sum()) > _MOST_PLACES:
            raise ArgumentError(
                f"{n:,} runs are more rows than one frame holds.", "use summary.spells, by its n"
            )
        return repeated(self.spells)

    def agreement(self) -> pl.DataFrame:
        """Cross table, raw agreement, kappa, MCC, AC1 and PABAK of every pair of detectors.

        Returns
        -------
        polars.DataFrame, shape (n_pairs, 12)
            ``a``, ``b``, ``n`` that both cover, the four cells and the scores, as
            `agreement` gives them; intervals need the sessions, which are not in a summary.
        """
        names = [name for name in self.detections.columns if name != "n"]
        kept = ["a", "b", *CELLS, *score_cells()]
        if len(names) < 2:
            return AGREEMENT.empty().select(kept)
        pairs = pairwise_agreement(self.detections, names, times="n")
        return pairs.filter(pl.col("n") > 0).select(kept)

    def failures(self) -> pl.DataFrame:
        """Failures by code and template, most frequent first.

        Returns
        -------
        polars.DataFrame, shape (n_clusters, 7)
            ``code``, ``template`` (null: without a message, or seen in too few sessions),
            ``template_id``, ``n_rows``, ``n_sessions``, ``first_at``, ``last_at``; templates
            are those of all stores together.
        """
        known = merge_templates(self.templates).select("pattern", "template", "template_id")
        named = self.templates.join(known, on="pattern", how="left")
        return (
            named.group_by("code", "template", "template_id")
            .agg(FAILURE_SUMS)
            .sort("n_rows", "code", "template", descending=[True, False, False])
        )

    def write(self, path: str | Path) -> Path:
        """Write it into a folder: Parquet files, and a header file that lists them.

        Parameters
        ----------
        path : str or pathlib.Path
            A new folder, or that of a summary, which is replaced.

        Returns
        -------
        pathlib.Path
            The folder.

        Raises
        ------
        ArgumentError
            If something else is there, or it cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> import stateanalytics as sa
        >>> week = sa.summarize(sa.demo())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = Summary.read(week.write(f"{folder}/week"))
        >>> again.states.equals(week.states)
        True
        """
        head = {
            "as_of": self.as_of.astimezone(UTC).isoformat(),
            "policy": self.policy,
            "k": self.k,
            "by": list(self.by),
            "detectors": [name for name in self.detections.columns if name != "n"],
        }
        return write_frames(path, head, {name: getattr(self, name) for name in FRAMES})

    @classmethod
    def read(cls, path: str | Path) -> Summary:
        """Read the summary in a folder; nothing in it is executed.

        Parameters
        ----------
        path : str or pathlib.Path
            A folder that `write` made.

        Raises
        ------
        SourceNotFoundError, NotAStoreError, DamagedStoreError
            If nothing is there, it is no summary or one of another version, or not what was
            written.
        """
        head, frames = read_frames(path, _shapes)
        for name, frame in frames.items():
            if problem := _problem(name, frame):
                raise DamagedStoreError(
                    f"The summary {str(path)!r} is damaged: {name} has {problem}.",
                    f"make it again: {MADE_BY}",
                )
        moment = datetime.fromisoformat(head["as_of"]).astimezone(UTC)
        return cls(as_of=moment, policy=head["policy"], k=head["k"], by=tuple(head["by"]), **frames)

    def __repr__(self) -> str:
        n = int(self.states["n"].sum())
        inputs = "1 input" if self.sources.height == 1 else f"{self.sources.height:,} inputs"
        lost = f", {self.losses.height:,} losses" if self.losses.height else ""
        return (
            f"Summary as of {minute_of(self.as_of)}, policy {visible(self.policy)}: "
            f"{n:,} entities of {inputs}{lost}\n"
            'Next: sa.report(summary).write_html("fleet.html"), summary.write("fleet/"), '
            "sa.merge([…]), summary.failures()"
        )

    def _repr_html_(self) -> str:
        first, following = html.escape(repr(self)).split("\n")
        return as_written(f"<p><strong>{first}</strong></p><p>{following}</p>")


FAILURE_SUMS = (
    pl.col("n_rows", "n_sessions").sum(),
    pl.col("first_at").min(),
    pl.col("last_at").max(),
)
"""How rows about failures add up."""


def repeated(counted: pl.DataFrame) -> pl.DataFrame:
    """Rows without ``n``, each repeated ``n`` times."""
    times = counted.select(row=pl.int_range(pl.len()).repeat_by("n"))["row"]
    return counted.drop("n")[times.list.explode(empty_as_null=False)]


def _shapes(head: Mapping[str, Any]) -> Mapping[str, Frame]:
    """The shapes of the frames that a head describes; an error where it makes no sense."""
    as_of, policy, k = head["as_of"], head["policy"], head["k"]
    if type(k) is not int or not 1 <= k < _MOST_PLACES or not _is_name(policy):
        raise ValueError("k or policy")
    moment = datetime.fromisoformat(as_of)
    # Without an offset its meaning would depend on the time zone of the reader.
    if moment.tzinfo is None or not 1900 < moment.astimezone(UTC).year < 2200:
        raise ValueError(as_of)
    by, detectors = _names(head["by"]), _names(head["detectors"])
    if not {*by} <= {*GROUPED_BY} or "n" in detectors:
        raise ValueError("by or detectors")
    return shapes_of(by, detectors)


def _problem(name: str, frame: pl.DataFrame) -> str | None:
    """Why a frame cannot hold counts; None where it can. Losses may have null counts."""
    counts = [] if name == "losses" else frame.select(pl.col(pl.Int64)).get_columns()
    if any(column.null_count() or not (column >= 0).all() for column in counts):
        return "invalid counts"
    if any(float(column.cast(pl.Float64).sum()) > _MOST for column in counts):
        return "too large counts"
    weeks = [frame[column] for column in ("week", "began_week") if column in frame.columns]
    if not all(week.str.contains(r"^\d{4}-W\d\d$").all() for week in weeks):
        return "invalid weeks"
    return None


def _names(value: Any) -> Sequence[str]:
    if not isinstance(value, list) or not all(map(_is_name, value)) or len({*value}) < len(value):
        raise TypeError("not names")
    return value


def _is_name(text: Any) -> bool:
    """Whether a value is a short text of whole characters."""
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST_NAME:
        return False
    return bool(text.encode())


def merge(summaries: Iterable[Summary]) -> Summary:
    """The summary of all inputs, as if they had been read together.

    Parameters
    ----------
    summaries : iterable of Summary
        Counted at the same instant, by the same policy, columns, thresholds and ``k``.

    Returns
    -------
    Summary
        The counts do not depend on the order and the grouping of the parts.

    Raises
    ------
    ArgumentError
        If there is none, they are not comparable, or an input is in several of them.

    Notes
    -----
    A summary has no ids. An input that is in several summaries is refused by its fingerprint.
    A copy with other rows, such as a later backup, or a store without the run directories of
    the original, is counted twice, and named in ``losses`` (``summary.counted_twice``) because the
    samples of their work overlap. To count their work once, give both to one `summarize`, or
    collect them into an archive.

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
    sources = in_order("sources", [part.sources for part in parts])
    # Computed from all inputs, so that the order of merging does not matter.
    losses = [part.losses.filter(pl.col("code") != CODE) for part in parts]
    return Summary(
        as_of=first.as_of,
        policy=first.policy,
        k=first.k,
        by=first.by,
        sources=sources,
        losses=in_order("losses", [*losses, counted_twice(sources)]),
        states=add_counts([part.states for part in parts]),
        codes=added("codes", [part.codes for part in parts]),
        groups=added("groups", [part.groups for part in parts]),
        units=add_counts([part.units for part in parts]),
        spells=add_counts([part.spells for part in parts]),
        silences=merge_gap_sums(part.silences for part in parts),
        detections=by_name(add_counts([part.detections for part in parts])),
        templates=add_templates([part.templates for part in parts]),
    )


def in_order(name: str, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Rows that are not summed, sorted, in the shape of a frame."""
    shape = FIXED[name]
    return pl.concat([shape.conform(part) for part in parts]).sort(shape.dtypes.names())


def add_counts(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The distinct rows of all parts with the sum of their ``n``, sorted."""
    rows = pl.concat(parts, how="diagonal")
    keys = [name for name in rows.columns if name != "n"]
    counts = rows.group_by(keys).agg(pl.col("n").sum()).select(*keys, "n")
    # Without keys even an empty frame gives one group.
    return counts.filter(pl.col("n") > 0).sort(keys) if keys else counts.clear()


def add_templates(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Failures by system, code and pattern, with the most specific of its texts."""
    text = pl.col("pattern")
    fewest_open = (
        text.str.count_matches(WILDCARD, literal=True),
        -text.str.len_chars().cast(pl.Int64),
        text,
    )
    return added("templates", parts, text.sort_by(*fewest_open, nulls_last=True).first())


def by_name(detections: pl.DataFrame) -> pl.DataFrame:
    """Columns of detectors sorted by name, as stores of different systems differ in them."""
    names = sorted(name for name in detections.columns if name != "n")
    return detections.select(*names, "n").sort(names)


def added(name: str, parts: Sequence[pl.DataFrame], *others: pl.Expr) -> pl.DataFrame:
    """The rows of a frame by its key, with the sums of counts, and the first and last moments."""
    shape = FIXED[name]
    counts = [pl.col(name).sum() for name, dtype in shape.dtypes.items() if dtype == pl.Int64]
    moments = FAILURE_SUMS[1:] if "first_at" in shape.dtypes else ()
    rows = pl.concat([shape.conform(part) for part in parts]).group_by(shape.key)
    return rows.agg(*counts, *moments, *others).sort(shape.key).select(shape.dtypes.names())


def _check_fit(parts: Sequence[Summary]) -> None:
    if not parts or not all(isinstance(part, Summary) for part in parts):
        strange = [in_short(part) for part in parts if not isinstance(part, Summary)] or ["none"]
        raise ArgumentError(
            f"merge needs at least one summary; found {strange[0]}.",
            "sa.merge([sa.summarize(path)])",
        )
    for name in ("as_of", "policy", "k"):
        if len(different := {str(getattr(part, name)) for part in parts}) > 1:
            raise ArgumentError(
                f"merge needs summaries of one {name}; found {', '.join(sorted(different)[:3])}.",
                f"sa.summarize(path, {name}=…) with the same {name} for all",
            )
    if len({part.by for part in parts}) > 1:
        raise ArgumentError("merge needs summaries by the same columns.", "one `by` for all")
    # A copy within one summary was deduplicated, and has no entities there.
    sources = pl.concat([part.sources for part in parts]).filter(pl.col("n_entities") > 0)
    copies = sources.filter(pl.col("fingerprint").is_duplicated())
    if copies.height:
        names = ", ".join(visible(name) for name in copies["source"].unique().sort().head(3))
        raise ArgumentError(
            f"The same data is in more than one summary: {names}.",
            "leave copies and backups of a store out",
        )


CODE = "summary.counted_twice"


def counted_twice(sources: pl.DataFrame) -> pl.DataFrame:
    """A loss for each input that shares work with another, which merging counts twice.

    Parameters
    ----------
    sources : polars.DataFrame
        In the shape that a summary has of them.

    Returns
    -------
    polars.DataFrame
        ``source``, ``system``, ``code``, ``message`` and ``action``, sorted by source.
    """
    inputs = sources.sort("source", "fingerprint").with_row_index("number")
    digests = inputs.select("number", pl.col("work_sample").str.split(" ")).explode(
        "work_sample", empty_as_null=True
    )
    first = pl.col("number").min().over("work_sample")
    copies = (
        digests.drop_nulls()
        .select("number", first=first)
        .filter(pl.col("first") < pl.col("number"))
        .group_by("number")
        .agg(pl.col("first").min())
    )
    names = inputs.select(first="number", other="source")
    pairs = inputs.join(copies, on="number").join(names, on="first").sort("number")
    others = [None if other is None else visible(other) for other in pairs["other"]]
    return pairs.select(
        "source",
        "system",
        code=pl.lit(CODE),
        message=pl.format("it shares work with {}", pl.Series(others, dtype=pl.String)),
        action=pl.lit("counted twice: leave one of them out, or collect both into one archive"),
    )

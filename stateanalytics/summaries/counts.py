"""From facts to a summary: counts, and samples by which copies are recognised."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from stateanalytics.core.facts import Facts, losses_of
from stateanalytics.core.redaction import redact
from stateanalytics.core.windows import Moment, read_moment
from stateanalytics.detectors.detections import detect
from stateanalytics.detectors.gaps import lean_gaps
from stateanalytics.detectors.quality import gap_sums
from stateanalytics.errors import ArgumentError, check_columns, check_number
from stateanalytics.failures.counting import session_count
from stateanalytics.failures.failure_rows import find_members, select_failures
from stateanalytics.failures.templates import VERSION, mine_templates
from stateanalytics.snapshot import Snapshot
from stateanalytics.state.definitions import RUN, TROUBLE, cause_key, ended_well, is_failure
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import counted, rows_of, unit_of
from stateanalytics.state.states import states
from stateanalytics.summaries import summary
from stateanalytics.summaries.shapes import FIXED, GROUPED_BY
from stateanalytics.survival.run_spells import spells
from stateanalytics.systems.reading import OnError, facts_in_shards

K = 3
"""The least number of sessions with a template for its text to be kept."""

_STATE = [name for name in FIXED["states"].dtypes if name not in ("week", "began_week", "n")]
_SPELL = ("timeout_s", "duration_s", "ending", "ended", "cause", "cut_off_by", "left_out")


def summarize(
    source: str | Path | Snapshot,
    *,
    as_of: Moment | None = None,
    policy: Policy | None = None,
    by: Sequence[str] = ("system", "kind"),
    thresholds_s: Iterable[float] | None = None,
    k: int = K,
    on_error: OnError = "skip",
) -> summary.Summary:
    """Count a store, or an archive source by source, into a summary that can be merged.

    Parameters
    ----------
    source : path or Snapshot
        As for `read`: a store, an archive, a directory or a pattern; or a snapshot. A few
        sources of an archive that is larger than memory are read at a time.
    as_of : datetime, date, ISO text or epoch seconds, optional
        The instant to count at; the same for a whole fleet, as it decides what is censored.
    policy : Policy, optional
        The rules of states; v1 by default.
    by : sequence of str
        Columns of ``entities`` by which runs and silences are grouped.
    thresholds_s : iterable of float, optional
        Thresholds of silence; by default usual ones from 10 s to a week.
    k : int
        The template of a message is kept, with secrets masked, if at least this many sessions have
        it; otherwise a digest.
    on_error : {"skip", "raise", "salvage"}
        As for `read`.

    Returns
    -------
    Summary
        Its size does not depend on the size of the store.

    Raises
    ------
    SourceError
        If the input cannot be read.
    ArgumentError, MissingColumnsError
        If an argument makes no sense, or a column of ``by`` is not there.

    Notes
    -----
    It can run in any `concurrent.futures.Executor`. Start processes with ``spawn`` or
    ``forkserver``: threads of polars do not survive a fork.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> sa.summarize(sa.demo()).silences["n_ended"].max() > 0
    True
    """
    check_number("k", k, K, least=1, is_whole=True)
    chosen, columns = policy or Policy.v1(), list(dict.fromkeys(by))
    limits = None if thresholds_s is None else list(thresholds_s)
    if isinstance(source, Snapshot):
        if as_of is not None:
            raise ArgumentError(
                "A snapshot has its own as-of; found as_of as well.", "sa.read(path, as_of=…)"
            )
        return _counted(source, chosen, columns, limits, k)
    instant = None if as_of is None else read_moment(as_of, "as_of")
    shards = facts_in_shards([source], as_of=instant, on_error=on_error)
    return summary.merge(_counted(facts, chosen, columns, limits, k) for facts in shards)


def _counted(
    facts: Facts, policy: Policy, by: list[str], thresholds_s: list[float] | None, k: int
) -> summary.Summary:
    judged = states(facts, policy=policy)
    rows = rows_of(facts, states=judged)
    runs = spells(facts, rows=rows)
    check_columns(runs, by, "summarize")
    if texts := [name for name in by if name not in GROUPED_BY]:
        raise ArgumentError(
            f"summarize cannot group by {', '.join(texts)}: only names are kept.",
            f"some of {', '.join(GROUPED_BY)}",
        )
    lengths = runs.with_columns(pl.col("duration_s").ceil())
    own = [name for name in _SPELL if name not in by]
    failed = select_failures(rows).with_columns(_WEEK, cause_key())
    samples, fires = work_samples(facts.entities), detect(facts, policy=policy, states=judged).fires
    return summary.Summary(
        as_of=facts.as_of,
        policy=policy.version,
        k=k,
        by=tuple(by),
        sources=summary.in_order("sources", [facts.sources.join(samples, on="source", how="left")]),
        losses=summary.in_order("losses", [_masked(losses_of(facts.findings))]),
        states=summary.add_counts(
            [_one_each(_masked(_dated(rows).select("week", "began_week", *_STATE)))]
        ),
        codes=summary.added("codes", [_masked(_codes(failed))]),
        groups=summary.added("groups", [_groups(rows)]),
        units=summary.add_counts([_units(rows)]),
        spells=summary.add_counts([_one_each(_masked(lengths.select(*by, *own)))]),
        silences=gap_sums(_masked(lean_gaps(facts, by=by, rows=rows)), thresholds_s, by=by),
        detections=summary.by_name(summary.add_counts([_one_each(fires)])),
        templates=_templates(facts, policy, rows, k),
    )


_WEEK = pl.col("placed_at").dt.strftime("%G-W%V").alias("week")


def _dated(rows: pl.DataFrame) -> pl.DataFrame:
    """Entities with the weeks of their start and end."""
    return rows.with_columns(
        week=pl.when(~pl.col("is_open")).then(_WEEK),
        began_week=pl.coalesce("started_at", "created_at").dt.strftime("%G-W%V"),
        has_failed=is_failure().fill_null(value=False),
    )


def _codes(failed: pl.DataFrame) -> pl.DataFrame:
    """Failures by week, system and code."""
    return failed.group_by("week", "system", code="reason_code").agg(
        n_rows=pl.len(),
        n_failed=(pl.col("outcome") != "timed_out").sum(),
        n_timed_out=(pl.col("outcome") == "timed_out").sum(),
        n_sessions=session_count(),
        n_causes=pl.col("cause").n_unique(),
        n_run_causes=pl.col("cause").filter(pl.col("entity_type") == RUN).n_unique(),
        first_at=pl.col("placed_at").min(),
        last_at=pl.col("placed_at").max(),
    )


def _groups(rows: pl.DataFrame) -> pl.DataFrame:
    """Ended runs by week, source and project, whose name is masked as text of a store."""
    ended = counted(rows, RUN).filter(~pl.col("is_open")).with_columns(_WEEK)
    masked = ended.with_columns(_masked(ended.select("project"))["project"])
    return masked.group_by("week", "source", "system", "project").agg(
        n_ended=pl.len().cast(pl.Int64),
        n_failed=is_failure().sum().cast(pl.Int64),
        n_causes=cause_key().filter(is_failure()).n_unique().cast(pl.Int64),
    )


def _units(rows: pl.DataFrame) -> pl.DataFrame:
    """Units (shows, invocations) by the number of their runs with each outcome, by week."""
    runs = counted(rows, RUN).with_columns(week=pl.when(~pl.col("is_open")).then(_WEEK))
    of_units = runs.group_by("week", "is_open", unit_of()).agg(
        n_runs=pl.len().cast(pl.Int64),
        n_completed=ended_well().sum().cast(pl.Int64),
        n_timed_out=(pl.col("outcome") == "timed_out").sum().cast(pl.Int64),
        n_unresolved=pl.col("severity").is_in(list(TROUBLE)).sum().cast(pl.Int64),
    )
    return FIXED["units"].conform(_one_each(of_units.drop("unit")))


def _templates(facts: Facts, policy: Policy, rows: pl.DataFrame, k: int) -> pl.DataFrame:
    """Failures by code and pattern, with texts that at least k sessions have."""
    members = find_members(facts, policy=policy, rows=rows)
    mined = mine_templates(members["message"]).select("pattern", template="template_typed")
    own = pl.concat_str("entity_type", "entity_id", separator=":")
    # Masked after mining, as placeholders would be words for the miner.
    failed = members.select(
        "system", "code", "failed_at", place=pl.struct("source", pl.coalesce("session_id", own))
    ).hstack(_masked(mined))

    def is_common(text: str) -> pl.Expr:
        return pl.col("place").n_unique().over(text) >= k

    shown = pl.when(is_common("pattern")).then("pattern")
    texts = failed.with_columns(
        text=shown.otherwise(pl.when(is_common("template")).then("template")),
        pattern_id=_digests(failed["pattern"]),
    )
    counts = texts.group_by("system", "code", "pattern_id").agg(
        pattern=pl.col("text").first(),
        n_rows=pl.len(),
        n_sessions=pl.col("place").n_unique(),
        first_at=pl.col("failed_at").min(),
        last_at=pl.col("failed_at").max(),
    )
    return summary.add_templates([_masked(counts)])


def _digests(texts: pl.Series) -> pl.Series:
    distinct = texts.drop_nulls().unique()
    digests = [
        hashlib.blake2b(f"{VERSION} {text}".encode(), digest_size=12).hexdigest()
        for text in distinct
    ]
    return texts.replace_strict(distinct, digests, return_dtype=pl.String)


def _one_each(rows: pl.DataFrame) -> pl.DataFrame:
    # Not a literal, which would add a row to a frame without columns.
    return rows.with_columns(n=pl.repeat(1, pl.len(), dtype=pl.Int64))


def _masked(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with secrets masked, as a summary leaves the machine of its store."""
    return redact(rows)[0]


N_SAMPLED = 32
"""Number of digests of an input; copies mostly have the same ones."""

_DIGITS = 12
_OLDEST = 2**31


def work_samples(entities: pl.DataFrame) -> pl.DataFrame:
    """Digests of a sample of the dated work of each input.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.

    Returns
    -------
    polars.DataFrame, shape (n_sources, 2)
        ``source`` and ``work_sample``, at most `N_SAMPLED` digests with blanks between them.

    Notes
    -----
    The sample depends on the work alone, so that samples of inputs that share work overlap
    (a bottom-k sketch).
    """
    born_ms = pl.col("created_at").dt.epoch("ms")
    dated = entities.filter(pl.col("created_at").is_not_null()).select(
        "source",
        # Knuth's multiplicative hash within 64 bits, so that consecutive times are scattered.
        place=born_ms % _OLDEST * 2_654_435_761 % 2**32,
        work=pl.concat_str("system", "entity_type", "entity_id", born_ms, separator="\n"),
    )
    farthest = pl.col("place").bottom_k(N_SAMPLED).max().over("source")
    sampled = dated.filter(pl.col("place") <= farthest).sort("source", "place", "work")
    first = sampled.group_by("source", maintain_order=True).head(N_SAMPLED).drop_nulls("work")
    digests = [hashlib.sha256(work.encode()).hexdigest()[:_DIGITS] for work in first["work"]]
    return (
        first.with_columns(digest=pl.Series(digests, dtype=pl.String))
        .group_by("source", maintain_order=True)
        .agg(work_sample=pl.col("digest").str.join(" "))
    )

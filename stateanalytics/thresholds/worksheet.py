"""The worksheet for a threshold of silence: false alarms against delay, today's marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.words import CANDIDATES_S
from stateanalytics.detectors.quality import SUMS, quality_of_service
from stateanalytics.state.policy import Policy
from stateanalytics.thresholds.settings import OTHER, Constant, constants


def stale(
    silences: Facts | pl.DataFrame | pl.LazyFrame,
    *,
    thresholds_s: Iterable[float] | None = None,
    by: str | Sequence[str] = ("system", "kind"),
    conf_level: float = 0.95,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """What each candidate threshold of silence would have done, with today's constants marked.

    Parameters
    ----------
    silences : Snapshot, polars.DataFrame or LazyFrame
        As for `quality_of_service`.
    thresholds_s : iterable of float, optional
        Candidates in seconds; by default those that people would set, 10 s to a week.
        Today's constants join them.
    by : str or sequence of str
        Columns to judge apart. Constants are marked where they apply: by ``system`` and by
        ``kind``, as far as these are among the columns.
    conf_level : float
        Level of the intervals.
    policy : Policy, optional
        Decides which sessions have ended, and whose thresholds count as today's.

    Returns
    -------
    polars.DataFrame, shape (n_strata * n_thresholds, n_by + 24)
        The columns of `quality_of_service`, and ``n_flagged``: silences longer than the
        threshold, however they went on; ``constants``: names of today's constants that
        have this value here, joined by ", ", null where there is none; ``is_today``.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `quality_of_service`.

    Notes
    -----
    Every row flags what is strictly longer. Constants that compare with >= differ from
    their row only by silences of exactly that length. Sums keep the thresholds they were
    counted at: a constant that is not among them is not marked.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> sheet = stale(demo()).filter("is_today", kind="flow")
    >>> sheet.select("threshold_s", "constants").rows()[-1]
    (43200.0, 'stale.flow')
    """
    marked = [constant for constant in constants(policy) if _is_of_silence(constant)]
    is_summed = isinstance(silences, pl.DataFrame) and set(SUMS) <= set(silences.columns)
    if not is_summed:
        given = CANDIDATES_S if thresholds_s is None else thresholds_s
        thresholds_s = [
            *given,
            *(constant.today_s for constant in marked if constant.today_s is not None),
        ]
    judged = quality_of_service(
        silences, thresholds_s=thresholds_s, by=by, conf_level=conf_level, policy=policy
    )
    strata = judged.columns[: judged.columns.index("threshold_s")]
    flagged = pl.sum_horizontal("n_mistakes", "n_found", "n_ended_flagged", "n_cut_off_flagged")
    # One stratum has no columns: `whole` keeps its row.
    names = _names(judged.select(*strata, whole=pl.lit(0)).unique(), marked).drop("whole")
    return (
        judged.with_columns(n_flagged=flagged)
        .join(
            names, on=[*strata, "threshold_s"], how="left", nulls_equal=True, maintain_order="left"
        )
        .with_columns(is_today=pl.col("constants").is_not_null())
    )


def _is_of_silence(constant: Constant) -> bool:
    return constant.evidence == "silences" and constant.is_there and constant.today_s is not None


def _names(strata: pl.DataFrame, marked: list[Constant]) -> pl.DataFrame:
    """Names of the constants of each stratum, by their value."""
    table = pl.DataFrame(
        [(constant.name, constant.system, constant.kind, constant.today_s) for constant in marked],
        schema={"name": pl.String, "of": pl.String, "for": pl.String, "threshold_s": pl.Float64},
        orient="row",
    )
    is_its = pl.lit(value=True)
    if "system" in strata.columns:
        is_its &= pl.col("system") == pl.col("of")
    if "kind" in strata.columns:
        named = sorted({kind for constant in marked for kind in constant.other_kinds})
        is_other = (pl.col("for") == OTHER) & ~pl.col("kind").is_in(named).fill_null(value=False)
        is_its &= pl.col("for").is_null() | is_other | (pl.col("kind") == pl.col("for"))
    return (
        strata.join(table, how="cross")
        .filter(is_its)
        .group_by(*strata.columns, "threshold_s")
        .agg(constants=pl.col("name").sort().str.join(", "))
    )

"""The recommended value of every threshold, from one snapshot."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import collected
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.text import APART, CELL, as_written, visible
from stateanalytics.core.windows import instant
from stateanalytics.core.words import count, how_long, say
from stateanalytics.errors import ArgumentError, check_columns, check_number, check_share, in_short
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.survival.run_spells import spells
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import Constant
from stateanalytics.thresholds import judge
from stateanalytics.thresholds.choice import Costs, covering_limit
from stateanalytics.thresholds.evidence import MOST_SESSIONS, evidence, runs, sampled
from stateanalytics.thresholds.frames import ADVICE, ADVICE_CURVES, COVERING
from stateanalytics.thresholds.settings import constants, to_json, to_python, to_toml


@dataclass(frozen=True, repr=False, eq=False)
class Advice:
    """Recommended thresholds, with the evidence behind them.

    Attributes
    ----------
    frame : polars.DataFrame
        One row per constant, see `recommend`.
    curves : polars.DataFrame
        One row per constant and candidate: ``mistakes`` and ``waiting_h`` per 100 units of
        exposure (``per``), the ``price`` of a mistake and of an ``hour`` of waiting,
        ``loss`` (their sum) with its interval, and which candidate is today's, the best
        and the recommended one.
    costs : Costs
        Costs of mistakes.
    n_sessions, n_sessions_drawn : int
        Number of sessions in the snapshot, and in the sample.
    n_weeks : float
        From the first start to as-of, without weeks in which nothing started.
    """

    frame: pl.DataFrame
    curves: pl.DataFrame
    costs: Costs
    _judged: tuple[judge.Judged, ...]
    n_sessions: int = 0
    n_sessions_drawn: int = 0
    n_weeks: float = 1.0

    def constants(self) -> Iterator[tuple[Constant, float | None]]:
        """Each constant with its recommended value; None: no recommendation."""
        return ((advised.constant, advised.row["recommended_s"]) for advised in self._judged)

    def to_json(self) -> str:
        """The settings as their owners write them, and all advice, as JSON."""
        return to_json(self._judged, self.costs)

    def to_toml(self) -> str:
        """The settings as their owners write them as TOML, each with its reason."""
        return to_toml(self._judged)

    def to_python(self) -> str:
        """The settings as Python: our `Policy`, and the constants of systems in Python."""
        return to_python(self._judged)

    def __repr__(self) -> str:
        known = self.frame.filter((pl.col("n") > 0) | pl.col("borrowed_s").is_not_null())
        lines = [
            f"Advice on {self.frame.height} thresholds: {self.counts}",
            *(
                f"  {visible(name)}: {words}"
                for name, words in known.select("name", "in_words").rows()
            ),
            "Next: .frame, .curves, .to_toml(), .to_json(), .to_python()",
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th scope='row'{APART}>{html.escape(visible(row['name']))}</th>"
            f"<td{APART}>{how_long(row['today_s'], 'none')}</td>"
            f"<td{APART}>{how_long(row['recommended_s'], 'none')}</td>"
            f"<td{CELL}>{judge.SAID[row['verdict']]}</td>"
            f"<td{CELL}>{html.escape(row['in_words'])}</td></tr>"
            for row in self.frame.iter_rows(named=True)
        )
        heads = ("threshold", "today", "recommended", "verdict", "why")
        head = "".join(f"<th scope='col'{CELL}>{name}</th>" for name in heads)
        return as_written(
            f"<p><strong>Advice on {self.frame.height} thresholds</strong>: {self.counts}</p>"
            f"<table><tr>{head}</tr>{rows}</table>"
            "<p>Next: <code>.frame, .curves, .to_toml()</code></p>"
        )

    @property
    def counts(self) -> str:
        """How many thresholds have each verdict, and of how many sessions, in words."""
        n_of = dict(self.frame["verdict"].value_counts().iter_rows())
        verdicts = [f"{n_of[name]} {words}" for name, words in judge.SAID.items() if name in n_of]
        drawn = ""
        if self.n_sessions_drawn < self.n_sessions:
            drawn = f"; {self.n_sessions_drawn:,} of {self.n_sessions:,} sessions, drawn at random"
        return (", ".join(verdicts) or "none") + drawn


def recommend(
    snap: Facts,
    *,
    costs: Costs | None = None,
    policy: Policy | None = None,
    conf_level: float = 0.95,
    most_sessions: int | None = MOST_SESSIONS,
    seed: int = 0,
    rows: pl.DataFrame | None = None,
) -> Advice:
    """Recommend a value for every threshold, next to today's value and its cost.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    costs : Costs, optional
        Costs of mistakes; see `Costs` for the defaults.
    policy : Policy, optional
        Its thresholds are today's values, and it decides what has ended; v1 by default.
    conf_level : float
        Level of the intervals.
    most_sessions : int or None
        Of more sessions so many are drawn at random: fast on a fleet, with wider intervals, and
        the same advice as in a report. None: all.
    seed : int
        Seed of the sample.
    rows : polars.DataFrame, optional
        The `population` of all time under this policy, if already computed.

    Returns
    -------
    Advice
        ``frame`` has one row per constant of the systems in the snapshot: ``name``,
        ``system``, ``kind`` (null: every kind), ``place`` and ``setting`` (where it is set and
        its name there), ``meaning``; ``today_s``, ``recommended_s`` (null: none, see
        ``verdict``), ``bound_s`` (where the verdict is a direction, the nearest value that
        costs significantly less), ``best_s`` with the range of values not significantly more
        expensive, ``best_low_s`` to ``best_high_s`` (null: it may lie beyond the data);
        ``mistakes_…`` and ``loss_…`` today and as recommended, ``gain`` with its interval,
        all ``per`` 100 session-hours alive or 100 runs; ``n`` independent units
        (invocations; a session without one is a unit of its own), ``n_needed``,
        ``n_more`` (about how many more would decide; null: decided, or not known),
        ``n_effective`` (Kish's effective sample size), ``n_deaths`` (null: not needed),
        ``n_at_risk`` at the recommended value, else at the best; ``reached_s``, the longest
        candidate that enough units reached to recommend it, and ``outlasting``, the units that
        would go on beyond it, the stopped ones included, for each of ``n``; ``is_mixed``:
        today's limit is the most common of several in the newest 20 runs; ``flips``: the verdict
        changes if some single unit is excluded; ``best_if_half_s`` and ``best_if_double_s``, the
        best value if a mistake cost half or twice as much (an hour twice or half), with
        ``excess_…``, by which share the recommended value then costs more;
        ``healthy_upper_s``, a bound that 95 or 99 % of healthy work stays below, as the constant
        needs (null: too little data); ``covering_s``, see `covering`; ``right_price_…`` and
        ``right_deaths_…``, between which prices of a mistake, or
        deaths per 100 session-hours, today's value is the cheapest; ``borrowed_s`` with
        ``borrowed_low_s`` and ``borrowed_high_s``, for a kind with too little data: that bound
        estimated with ``n_kinds_borrowed`` other kinds, as context (see `borrow`) and never the
        ground of a recommendation; ``verdict``, one of `VERDICTS`; ``in_words``.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, or a number is not valid.

    Notes
    -----
    The best value is the one of a fixed set of round values and today's at which mistakes
    and delays cost least. `choose` decides: a value changes only for a significant gain that
    does not depend on a single unit, and only to where enough units were at risk; today's is
    only *kept* if it is known that little could be saved.

    Constants of silence are judged by silences between signs of life. A reaper reads
    ``updated_at``, which is overwritten and cannot be replayed, so silence is used instead.
    The rate of deaths of a kind is shrunk towards that of its system, which counts as much as
    `MIN_DEATHS` of its own. A bound on the 95th percentile takes 59 independent values, on the
    99th 299; a value takes 59, and today's value is judged from 19 units on.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> advice = recommend(demo())
    >>> advice.frame.filter(name="stale.engine")["verdict"].to_list()
    ['not_enough_data']
    """
    checked_snapshot(snap, "thresholds.recommend")
    if not (costs is None or isinstance(costs, Costs)):
        raise ArgumentError(
            f"costs needs Costs; found {in_short(costs)}.",
            "costs=sa.thresholds.Costs(false_alarm=5)",
        )
    check_share("conf_level", conf_level, 0.95)
    if most_sessions is not None:
        check_number("most_sessions", most_sessions, 5000, least=1, is_whole=True)
    costs = costs or Costs()
    sample = snap if most_sessions is None else sampled(snap, most_sessions, seed=seed)
    if rows is not None and sample is not snap:
        drawn = sample.entities.select(ENTITY_KEY)
        rows = rows.join(drawn, on=ENTITY_KEY, how="semi", maintain_order="left")
    data = evidence(sample, policy=policy, rows=rows)
    judged = judge.judge_all(_constants_of(snap, policy, data), data, costs, conf_level)
    return Advice(
        pl.DataFrame([advised.row for advised in judged], schema=ADVICE.dtypes),
        _curves(judged, costs),
        costs,
        judged,
        _count_sessions(snap),
        _count_sessions(sample),
        _count_weeks(sample),
    )


def covering(
    snap: Facts,
    *,
    loses: float = 0.05,
    by: str | Sequence[str] = ("system", "kind"),
    policy: Policy | None = None,
    rows: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """A time limit for each kind of work that stops few of the runs that would end well.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    loses : float
        The chance, in (0, 1), that one more invocation that would end well exceeds the limit.
    by : str or sequence of str
        One or more of ``system``, ``kind`` and ``project``; empty: all runs together.
    policy : Policy, optional
        Decides which runs have ended; v1 by default.
    rows : polars.DataFrame, optional
        The `population` of all time under this policy, if already computed.

    Returns
    -------
    polars.DataFrame, shape (n_groups, n_by + 6)
        `thresholds.frames.COVERING`, sorted by the group.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, ``loses`` is no share, or a column is not known.

    Notes
    -----
    No costs and no distribution are assumed, only that the next invocation is like those seen:
    of n of them, the limit is the smallest order statistic k with ``k >= (n + 1)(1 - loses)``
    (a conformal bound), so 5 % take 19 invocations and 1 % take 99. The value of an
    invocation is its longest run. Runs that were stopped or still run count as longer than all
    others, whether or not they would have ended well, so the limit can only be too long; it is
    null where it would fall on one of them.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> covering(demo(), by="kind").filter(kind="play")["in_words"].item()
    'About 5 % or fewer of invocations like these 101 that end well take longer than 1 h 23 min.'
    """
    checked_snapshot(snap, "thresholds.covering")
    check_share("loses", loses, 0.05)
    names = [by] if isinstance(by, str) else list(by)
    elapsed = runs(spells(snap, rows=rows_of(snap, policy=policy, rows=rows)))
    check_columns(elapsed.select("system", "kind", "project"), names, "thresholds.covering")
    lengths = judge.healthy_lengths(elapsed, is_silence=False, by=names)
    groups = lengths.group_by(names) if names else [((), lengths)]
    found = []
    for group, of_group in groups:
        longest = of_group["longest_s"]
        row: dict[str, Any] = {
            "loses": loses,
            "limit_s": judge.rounded_up(covering_limit(longest, loses)),
            "n": longest.len(),
            "n_needed": math.ceil(1 / loses - 1e-9) - 1,
            "n_censored": int(longest.is_infinite().sum()),
        }
        row["in_words"] = _covering_in_words(row)
        found.append(dict(zip(names, group, strict=True)) | row)
    own = {name: dtype for name, dtype in COVERING.dtypes.items() if name != "<by>"}
    columns: dict[str, Any] = {**dict.fromkeys(names, pl.String), **own}
    return pl.DataFrame(found, schema=columns).sort(names or "n", nulls_last=True)


def _covering_in_words(row: Mapping[str, Any]) -> str:
    units = count(row["n"], "invocation") if row["n"] else "0 invocations"
    if row["limit_s"] is None:
        name = "covering.few" if row["n"] < row["n_needed"] else "covering.censored"
        return say(name, units=units, needed=row["n_needed"], stopped=row["n_censored"])
    return say("covering.limit", limit=how_long(row["limit_s"]), loses=row["loses"], n=row["n"])


def _count_sessions(facts: Facts) -> int:
    return int((facts.entities["entity_type"] == "session").sum())


def _count_weeks(facts: Facts) -> float:
    """Weeks since the first start, without those in which nothing started; at least a day.

    A single start of 1970 does not stretch them.
    """
    started_at = pl.col("started_at")
    first, n_active = facts.entities.select(
        (instant(facts.as_of) - started_at).max(),
        started_at.dt.truncate("1w").drop_nulls().n_unique(),
    ).row(0)
    return max(1 / 7, min(first.total_seconds() / 604_800, n_active)) if first else 1 / 7


def _constants_of(
    snap: Facts, policy: Policy | None, data: Mapping[str, pl.DataFrame]
) -> list[Constant]:
    """The constants of the systems in the snapshot, and those of their kinds of work."""
    present = snap.entities["system"].unique().to_list()
    fixed = [constant for constant in constants(policy) if constant.system in present]
    by_kind: list[Constant] = []
    for system in all_systems():
        if system.name in present:
            own = pl.col("system") == system.name
            runs = data["runs"].lazy().filter(own & pl.col("kind").is_not_null())
            limits = data["limits"].lazy().filter(own).drop("system")
            kinds = runs.select("kind").unique().join(limits, on="kind", how="left").sort("kind")
            by_kind += system.thresholds().kind_constants(policy or Policy.v1(), kinds.collect())
    return [*fixed, *by_kind]


def _curves(judged: tuple[judge.Judged, ...], costs: Costs) -> pl.DataFrame:
    curves = [
        advised.curve.lazy()
        .with_columns(
            name=pl.lit(advised.constant.name),
            system=pl.lit(advised.constant.system),
            kind=pl.lit(advised.constant.kind, dtype=pl.String),
            per=pl.lit(advised.row["per"]),
            mistake=pl.lit(advised.constant.mistake),
            price=pl.lit(judge.prices(advised.constant, costs)[0]),
            hour=pl.lit(judge.prices(advised.constant, costs)[1]),
            is_today=pl.col("threshold_s").eq_missing(
                pl.lit(advised.row["today_s"], dtype=pl.Float64)
            ),
            is_best=pl.col("threshold_s") == advised.row["best_s"],
            is_recommended=pl.col("threshold_s").eq_missing(
                pl.lit(advised.row["recommended_s"], dtype=pl.Float64)
            ),
        )
        .select(list(ADVICE_CURVES.dtypes))
        for advised in judged
        if advised.curve is not None
    ]
    return pl.concat([ADVICE_CURVES.empty().lazy(), *curves]).pipe(collected)

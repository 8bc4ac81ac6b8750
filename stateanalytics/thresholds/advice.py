"""Which value every threshold should have, from one snapshot, and as settings to paste."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.text import visible
from stateanalytics.core.words import how_long
from stateanalytics.errors import ArgumentError, check_number, check_share, in_short
from stateanalytics.state.policy import Policy
from stateanalytics.systems import all_systems
from stateanalytics.thresholds.costs import Costs
from stateanalytics.thresholds.evidence import evidence, sampled
from stateanalytics.thresholds.judge import COLUMNS, Judged, judge_all, prices
from stateanalytics.thresholds.settings import UNIT_S, Constant, constants
from stateanalytics.thresholds.wording import SAID


def to_json(judged: Sequence[Judged], costs: Costs) -> str:
    """Settings by system and place, costs, and every row of advice."""
    rows = [advised.row for advised in judged]
    content = {"settings": settings(judged), "costs": asdict(costs), "advice": rows}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def to_toml(judged: Sequence[Judged]) -> str:
    """Settings as TOML: a table a place, a comment a setting."""
    lines = ["# Thresholds that the data recommend; read each comment before you take one over."]
    heading: list[str] = []
    for advised in sorted(_advised(judged), key=lambda advised: _table(advised.constant)):
        table = _table(advised.constant)
        if table != heading:
            lines += ["", f"[{'.'.join(_key(part) for part in table)}]"]
            heading = table
        value = json.dumps(written(advised.constant, advised.row["recommended_s"]))
        lines += [
            f"# {_comment(advised)}",
            f"{_key(advised.constant.path[-1])} = {value}",
        ]
    return "\n".join(lines) + "\n"


def to_python(judged: Sequence[Judged]) -> str:
    """Our policy with the recommended values, and constants in Python files as those write them."""
    changes: dict[str, Any] = {}
    files: dict[str, list[str]] = {}
    for advised in _advised(judged):
        constant, seconds = advised.constant, advised.row["recommended_s"]
        if constant.policy_field == "stalled_after_s":
            changes.setdefault("stalled_after_s", {})[constant.kind] = seconds
        elif constant.policy_field == "limits":
            of_system = changes.setdefault("limits", {}).setdefault(constant.system, {})
            of_system[constant.path[-1]] = seconds
        elif constant.policy_field:
            changes[constant.policy_field] = seconds
        if constant.place.endswith(".py"):
            name = constant.path[0] + "".join(f"[{part!r}]" for part in constant.path[1:])
            value = written(constant, seconds)
            files.setdefault(constant.place, []).append(
                f"{name} = {value!r}  # {_comment(advised)}"
            )
    lines = ["import stateanalytics as sa", "", "policy = sa.Policy.v1()"]
    if changes:
        lines[-1] += ".replace("
        lines += [*(f"    {name}={value!r}," for name, value in changes.items()), ")"]
    for place, assignments in files.items():
        lines += ["", f"# {place}", *(f"# {line}" for line in assignments)]
    return "\n".join(lines) + "\n"


def settings(judged: Sequence[Judged]) -> dict[str, Any]:
    """The recommended values, nested by system, place and name.

    Notes
    -----
    Only constants on which the data recommend something, today's value included.
    """
    nested: dict[str, Any] = {}
    for advised in _advised(judged):
        inner = nested
        for part in (advised.constant.system, advised.constant.place, *advised.constant.path[:-1]):
            inner = inner.setdefault(part, {})
        inner[advised.constant.path[-1]] = written(advised.constant, advised.row["recommended_s"])
    return nested


def written(constant: Constant, seconds: float) -> int | float | str:
    """A value as its owner writes it: seconds, milliseconds, hours, polls, or ``10m``.

    Notes
    -----
    Who reads durations takes digits and one of s, m, h, and everything else for "off"; so
    they are whole numbers of the largest unit that fits.
    """
    if constant.unit == "duration":
        whole = round(seconds)
        size, unit = next(
            (pair for pair in ((3600, "h"), (60, "m")) if whole % pair[0] == 0), (1, "s")
        )
        return f"{whole // size}{unit}"
    value = seconds / UNIT_S[constant.unit]
    if constant.unit == "polls":
        return max(1, round(value))
    return round(value) if abs(value - round(value)) < 1e-9 and constant.unit != "h" else value


def _advised(judged: Sequence[Judged]) -> list[Judged]:
    return [
        advised
        for advised in judged
        if advised.row["recommended_s"] is not None and advised.constant.is_there
    ]


def _table(constant: Constant) -> list[str]:
    return [constant.system, constant.place, *constant.path[:-1]]


def _key(name: str) -> str:
    """A TOML key: bare where it may be, a quoted string otherwise."""
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    # TOML knows JSON's escapes, but neither a bare DEL nor pairs of surrogates.
    quoted = json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")
    return name if is_bare else quoted


def _comment(advised: Judged) -> str:
    """What speaks for a value, on one line whatever a kind is called."""
    return visible(advised.row["in_words"])


CURVES = {
    **dict.fromkeys(("name", "system", "kind", "per", "mistake"), pl.String),
    **dict.fromkeys(
        (
            *("threshold_s", "mistakes", "waiting_h", "price", "hour"),
            *("loss", "loss_low", "loss_high"),
        ),
        pl.Float64,
    ),
    **dict.fromkeys(("is_today", "is_best", "is_recommended"), pl.Boolean),
}


@dataclass(frozen=True, repr=False, eq=False)
class Advice:
    """Recommended thresholds, with what they rest on.

    Attributes
    ----------
    frame : polars.DataFrame
        One row a constant, see `recommend`.
    curves : polars.DataFrame
        One row a constant and candidate: ``mistakes`` and ``waiting_h`` per 100 units of
        exposure (``per``), the ``price`` of a mistake and of an ``hour`` of waiting,
        ``loss`` (their sum) with its interval, and which candidate is today's, the best
        and the recommended one.
    costs : Costs
        What mistakes were taken to cost.
    n_sessions, n_sessions_drawn : int
        How many sessions the snapshot holds, and how many were looked at.
    n_weeks : float
        From the first start to as-of, without weeks in which nothing began.
    """

    frame: pl.DataFrame
    curves: pl.DataFrame
    costs: Costs
    _judged: tuple[Judged, ...]
    n_sessions: int = 0
    n_sessions_drawn: int = 0
    n_weeks: float = 1.0

    def constants(self) -> Iterator[tuple[Constant, float | None]]:
        """Each constant, and the value that is recommended; None: none is."""
        return ((advised.constant, advised.row["recommended_s"]) for advised in self._judged)

    def to_json(self) -> str:
        """The settings in their owners' words, and all advice, as JSON."""
        return to_json(self._judged, self.costs)

    def to_toml(self) -> str:
        """The settings in their owners' words as TOML, with what speaks for each."""
        return to_toml(self._judged)

    def to_python(self) -> str:
        """The settings as Python: our `Policy`, and the constants of systems in Python."""
        return to_python(self._judged)

    def __repr__(self) -> str:
        return "\n".join(
            [
                f"Advice on {self.frame.height} thresholds: {self._counts()}",
                *(f"  {line}" for line in self._lines()),
                "Next: .frame, .curves, .to_toml(), .to_json(), .to_python()",
            ]
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th scope='row'>{html.escape(visible(row['name']))}</th>"
            f"<td>{how_long(row['today_s'], 'none')}</td>"
            f"<td>{how_long(row['recommended_s'], 'none')}</td><td>{SAID[row['verdict']]}</td>"
            f"<td>{html.escape(row['in_words'])}</td></tr>"
            for row in self.frame.iter_rows(named=True)
        )
        return (
            f"<p><strong>Advice on {self.frame.height} thresholds</strong>: {self._counts()}</p>"
            "<table><tr><th>threshold</th><th>today</th><th>recommended</th>"
            "<th>verdict</th><th>why</th></tr>"
            f"{rows}</table><p>Next: <code>.frame, .curves, .to_toml()</code></p>"
        )

    def _counts(self) -> str:
        counted = self.frame["verdict"].value_counts(sort=True).sort("count", "verdict")
        words = (f"{n} {SAID[verdict]}" for verdict, n in counted[::-1].iter_rows())
        return ", ".join(words) or "none"

    def _lines(self) -> Iterator[str]:
        for row in self.frame.filter(pl.col("verdict") != "not_enough_data").iter_rows(named=True):
            yield f"{visible(row['name'])}: {row['in_words']}"


def recommend(
    snap: Facts,
    *,
    costs: Costs | None = None,
    policy: Policy | None = None,
    conf_level: float = 0.95,
    most_sessions: int | None = None,
    seed: int = 0,
    rows: pl.DataFrame | None = None,
) -> Advice:
    """For every threshold: today's value, what it costs, and what the data recommend.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    costs : Costs, optional
        What mistakes cost; see `Costs` for the defaults.
    policy : Policy, optional
        Whose thresholds are today's, and which decides what has ended; v1 by default.
    conf_level : float
        Of the intervals.
    most_sessions : int, optional
        Look at no more sessions than this, drawn at random: quick on a fleet, with ranges
        as wide as so many sessions make them. None: all.
    seed : int
        What they are drawn by.
    rows : polars.DataFrame, optional
        The `population` of all time under this policy, where it is at hand.

    Returns
    -------
    Advice
        ``frame`` has one row a constant of the systems in the snapshot: ``name``,
        ``system``, ``kind`` (null: every kind), ``place`` and ``setting`` (where it stands
        and what it is called there), ``meaning``; ``today_s``, ``recommended_s`` (null:
        none, see ``verdict``), ``best_s`` with the range of what cannot be told from it,
        ``best_low_s`` to ``best_high_s`` (null: it may lie beyond the data);
        ``mistakes_…`` and ``loss_…`` today and as recommended, ``gain`` with its interval,
        all ``per`` 100 session-hours alive or 100 runs; ``n`` independent units
        (invocations, of which a session without one is its own) behind it, ``n_needed``,
        ``n_effective`` (Kish: so many of one size would say as much), ``n_deaths`` (null:
        not asked), ``n_at_risk`` at the recommended value, else at the best; ``reached_s``,
        the last candidate that enough units reached to recommend it, and ``outlasting``, how
        many would go on beyond it for each of ``n``, the stopped ones too; ``is_mixed``:
        today's limit is one of several, the commonest; ``flips``: the
        verdict is another one without some one unit; ``best_if_half_s`` and
        ``best_if_double_s``, the best if a mistake cost half or twice as much (an hour twice
        or half), with ``excess_…``, how much dearer the recommended value is then, as a
        share; ``healthy_upper_s``, a bound that 95 or 99 % of healthy work stays below, as the
        constant needs (null: too little data); ``borrowed_s`` with ``borrowed_low_s`` and
        ``borrowed_high_s``, where a kind has too little: what its own few and
        ``n_kinds_borrowed`` other kinds say of that bound, as context (see `borrow`) and
        never the ground of a recommendation; ``verdict``, a key of `VERDICTS`;
        ``in_words``.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, or a number makes no sense.

    Notes
    -----
    The best value is the one of a fixed set of round values, today's among them, whose
    mistakes and delays cost least. How sure that is says `choose`: a value is only moved
    for a gain beyond noise that no single unit carries, to where enough units were still
    under observation; today's is only *kept* where it is known that little could be saved.

    Constants of silence are judged by silences between signs of life. A reaper
    reads ``updated_at``, which is overwritten and cannot be replayed: silence stands in
    for it. Kinds with fewer than `MIN_DEATHS` known deaths borrow the rate of their
    system. A bound on the 95th percentile takes 59 independent values, on the 99th 299;
    with fewer, nothing is recommended.

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
    looked_at = snap if most_sessions is None else sampled(snap, most_sessions, seed=seed)
    if rows is not None and looked_at is not snap:
        drawn = looked_at.entities.select(ENTITY_KEY)
        rows = rows.join(drawn, on=ENTITY_KEY, how="semi", maintain_order="left")
    seen = evidence(looked_at, policy=policy, rows=rows)
    asked = _asked(snap, policy, seen)
    judged = judge_all(asked, seen, costs, conf_level)
    return Advice(
        pl.DataFrame([advised.row for advised in judged], schema=COLUMNS),
        _curves(judged, costs),
        costs,
        judged,
        _count_sessions(snap),
        _count_sessions(looked_at),
        _count_weeks(looked_at),
    )


def _count_sessions(facts: Facts) -> int:
    return facts.entities.filter(pl.col("entity_type") == "session").height


def _count_weeks(facts: Facts) -> float:
    """Weeks since the first start, without those in which nothing began; at least a day.

    A single start of 1970 does not stretch them.
    """
    started_at = pl.col("started_at")
    first, n_active = facts.entities.select(
        (facts.as_of - started_at).max(), started_at.dt.truncate("1w").drop_nulls().n_unique()
    ).row(0)
    return max(1 / 7, min(first.total_seconds() / 604_800, n_active)) if first else 1 / 7


def _asked(snap: Facts, policy: Policy | None, seen: Mapping[str, pl.DataFrame]) -> list[Constant]:
    """The constants of the systems that are there, and those of the kinds that are there."""
    systems = snap.entities["system"].unique().to_list()
    fixed = [constant for constant in constants(policy) if constant.system in systems]
    of_kinds: list[Constant] = []
    for known in all_systems():
        if known.name in systems:
            own = pl.col("system") == known.name
            runs = seen["runs"].filter(own & pl.col("kind").is_not_null())
            limits = seen["limits"].filter(own).drop("system")
            kinds = runs.select(pl.col("kind").unique().sort()).join(limits, on="kind", how="left")
            of_kinds += known.kind_constants(policy or Policy.v1(), kinds.sort("kind"))
    return [*fixed, *of_kinds]


def _curves(judged: tuple[Judged, ...], costs: Costs) -> pl.DataFrame:
    drawn = [
        advised.curve.with_columns(
            name=pl.lit(advised.constant.name),
            system=pl.lit(advised.constant.system),
            kind=pl.lit(advised.constant.kind, dtype=pl.String),
            per=pl.lit(advised.row["per"]),
            mistake=pl.lit(advised.constant.mistake),
            price=pl.lit(prices(advised.constant, costs)[0]),
            hour=pl.lit(prices(advised.constant, costs)[1]),
            is_today=pl.col("threshold_s").eq_missing(
                pl.lit(advised.row["today_s"], dtype=pl.Float64)
            ),
            is_best=pl.col("threshold_s") == advised.row["best_s"],
            is_recommended=pl.col("threshold_s").eq_missing(
                pl.lit(advised.row["recommended_s"], dtype=pl.Float64)
            ),
        ).select(list(CURVES))
        for advised in judged
        if advised.curve is not None
    ]
    return pl.concat([pl.DataFrame(schema=CURVES), *drawn])

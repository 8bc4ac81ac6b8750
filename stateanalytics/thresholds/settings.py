"""The thresholds that are set today, what each does, and new values as their owners write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.text import visible
from stateanalytics.core.words import CANDIDATES_S
from stateanalytics.detectors.quality import SUMS, quality_of_service
from stateanalytics.state.policy import Policy
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import OTHER, Constant
from stateanalytics.thresholds.choice import Costs
from stateanalytics.thresholds.judge import Judged

UNIT_S = {"s": 1.0, "ms": 0.001, "h": 3600.0, "duration": 1.0, "polls": 30.0}
"""Seconds of a unit; ``duration``: ``10m``."""


def constants(policy: Policy | None = None) -> tuple[Constant, ...]:
    """All thresholds of all systems, with today's values.

    Parameters
    ----------
    policy : Policy, optional
        Its thresholds are today's values where it has a field for them; v1 by default.

    Examples
    --------
    >>> next(constant for constant in constants() if constant.name == "stale.flow").today_s
    43200.0
    """
    policy = policy or Policy.v1()
    return tuple(
        constant for system in all_systems() for constant in system.thresholds().constants(policy)
    )


def stale(
    silences: Facts | pl.DataFrame | pl.LazyFrame,
    *,
    thresholds_s: Iterable[float] | None = None,
    by: str | Sequence[str] = ("system", "kind"),
    conf_level: float = 0.95,
    policy: Policy | None = None,
) -> pl.DataFrame:
    """Worksheet of silence thresholds: false alarms and delay of each, with today's values marked.

    Parameters
    ----------
    silences : Snapshot, polars.DataFrame or LazyFrame
        As for `quality_of_service`.
    thresholds_s : iterable of float, optional
        Candidates in seconds; by default round values from 10 s to a week. Today's constants
        are added.
    by : str or sequence of str
        Columns to group by. Constants are marked where they apply: by ``system`` and
        ``kind``, as far as these are among the columns.
    conf_level : float
        Level of the intervals.
    policy : Policy, optional
        Decides which sessions have ended; its thresholds are today's values.

    Returns
    -------
    polars.DataFrame, shape (n_strata * n_thresholds, n_by + 24)
        The columns of `quality_of_service`, and ``n_flagged``: silences longer than the
        threshold, whatever followed; ``constants``: names of today's constants with this value
        here, joined by ", ", null where there is none; ``is_today``.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `quality_of_service`.

    Notes
    -----
    A row flags silences that are strictly longer. Constants that compare with >= differ from
    their row only by silences of exactly that length. Sums keep the thresholds at which they
    were counted: a constant that is not among them is not marked.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> sheet = stale(demo()).filter("is_today", kind="flow")
    >>> sheet.select("threshold_s", "constants").rows()[-1]
    (43200.0, 'stale.flow')
    """
    marked = [
        constant
        for constant in constants(policy)
        if constant.evidence == "silences" and constant.is_there and constant.today_s is not None
    ]
    is_summed = isinstance(silences, pl.DataFrame) and set(SUMS) <= set(silences.columns)
    if not is_summed:
        candidates = CANDIDATES_S if thresholds_s is None else thresholds_s
        today = (constant.today_s for constant in marked if constant.today_s is not None)
        thresholds_s = [*candidates, *today]
    quality = quality_of_service(
        silences, thresholds_s=thresholds_s, by=by, conf_level=conf_level, policy=policy
    )
    strata = quality.columns[: quality.columns.index("threshold_s")]
    flagged = pl.sum_horizontal("n_mistakes", "n_found", "n_ended_flagged", "n_cut_off_flagged")
    # Without strata there are no columns to join by: the constant `whole` keeps the row.
    names = _constant_names(quality.select(*strata, whole=pl.lit(0)).unique(), marked)
    return (
        quality.with_columns(n_flagged=flagged)
        .join(
            names.drop("whole"),
            on=[*strata, "threshold_s"],
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        .with_columns(is_today=pl.col("constants").is_not_null())
    )


def _constant_names(strata: pl.DataFrame, marked: list[Constant]) -> pl.DataFrame:
    """Names of the constants that apply to each stratum, by value."""
    table = pl.DataFrame(
        [(constant.name, constant.system, constant.kind, constant.today_s) for constant in marked],
        schema={
            **dict.fromkeys(("name", "of_system", "of_kind"), pl.String),
            "threshold_s": pl.Float64,
        },
        orient="row",
    )
    applies = pl.lit(value=True)
    if "system" in strata.columns:
        applies &= pl.col("system") == pl.col("of_system")
    if "kind" in strata.columns:
        named = sorted({kind for constant in marked for kind in constant.other_kinds})
        kind = pl.col("of_kind")
        is_other = (kind == OTHER) & ~pl.col("kind").is_in(named).fill_null(value=False)
        applies &= kind.is_null() | is_other | (pl.col("kind") == kind)
    return (
        strata.join(table, how="cross")
        .filter(applies)
        .group_by(*strata.columns, "threshold_s")
        .agg(constants=pl.col("name").sort().str.join(", "))
    )


# --- recommended values as settings -------------------------------------------------------


def to_json(judged: Sequence[Judged], costs: Costs) -> str:
    """Settings by system and place, costs, and every row of advice."""
    rows = [advised.row for advised in judged]
    content = {"settings": settings(judged), "costs": asdict(costs), "advice": rows}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def to_toml(judged: Sequence[Judged]) -> str:
    """Settings as TOML: one table per place, one comment per setting."""
    lines = ["# Thresholds that the data recommend; read each comment before you take one over."]
    heading: list[str] = []
    for advised in sorted(_advised(judged), key=lambda advised: _table(advised.constant)):
        table = _table(advised.constant)
        if table != heading:
            lines += ["", f"[{'.'.join(_key(part) for part in table)}]"]
            heading = table
        value = json.dumps(written(advised.constant, advised.row["recommended_s"]))
        lines += [f"# {_comment(advised)}", f"{_key(advised.constant.path[-1])} = {value}"]
    return "\n".join(lines) + "\n"


def to_python(judged: Sequence[Judged]) -> str:
    """Our policy with the recommended values, and constants of Python files as assignments."""
    changes: dict[str, Any] = {}
    files: dict[str, list[str]] = {}
    for advised in _advised(judged):
        constant, seconds = advised.constant, advised.row["recommended_s"]
        if constant.policy_field == "stalled_after_s":
            changes.setdefault("stalled_after_s", {})[constant.kind] = seconds
        elif constant.policy_field == "limits":
            limits = changes.setdefault("limits", {}).setdefault(constant.system, {})
            limits[constant.path[-1]] = seconds
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
    Only constants with a recommendation, which may be today's value.
    """
    nested: dict[str, Any] = {}
    for advised in _advised(judged):
        inner = nested
        for part in (advised.constant.system, advised.constant.place, *advised.constant.path[:-1]):
            inner = inner.setdefault(part, {})
        inner[advised.constant.path[-1]] = written(advised.constant, advised.row["recommended_s"])
    return nested


def written(constant: Constant, seconds: float) -> int | float | str:
    """A value in the unit of its setting: seconds, milliseconds, hours, polls, or ``10m``.

    Notes
    -----
    Parsers of such durations accept digits and one of s, m, h, and take everything else as
    "off"; so they are whole numbers of the largest unit that fits.
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
    """Those with a recommendation and a place where it can be set."""
    return [
        advised
        for advised in judged
        if advised.row["recommended_s"] is not None and advised.constant.is_there
    ]


def _table(constant: Constant) -> list[str]:
    return [constant.system, constant.place, *constant.path[:-1]]


def _key(name: str) -> str:
    """A TOML key: bare if allowed, else a quoted string."""
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    # TOML has the escapes of JSON, but allows neither a bare DEL nor surrogate pairs.
    quoted = json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")
    return name if is_bare else quoted


def _comment(advised: Judged) -> str:
    """The reason for a value on one line, whatever characters the name of a kind has."""
    return visible(advised.row["in_words"])

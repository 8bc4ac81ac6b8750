"""Recommended thresholds as settings, in the words of the systems that read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from stateanalytics.core.text import visible
from stateanalytics.thresholds.costs import Costs
from stateanalytics.thresholds.judge import Judged
from stateanalytics.thresholds.settings import UNIT_S, Constant


def to_json(judged: Sequence[Judged], costs: Costs) -> str:
    """Settings by system and place, costs, and every row of advice."""
    rows = [one.row for one in judged]
    content = {"settings": settings(judged), "costs": asdict(costs), "advice": rows}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def to_toml(judged: Sequence[Judged]) -> str:
    """Settings as TOML: a table a place, a comment a setting."""
    lines = ["# Thresholds that the data recommend; read each comment before you take one over."]
    heading: list[str] = []
    for one in sorted(_advised(judged), key=lambda one: _table(one.constant)):
        table = _table(one.constant)
        if table != heading:
            lines += ["", f"[{'.'.join(_key(part) for part in table)}]"]
            heading = table
        value = json.dumps(written(one.constant, one.row["recommended_s"]))
        lines += [
            f"# {_comment(one)}",
            f"{_key(one.constant.path[-1])} = {value}",
        ]
    return "\n".join(lines) + "\n"


def to_python(judged: Sequence[Judged]) -> str:
    """Our policy with the recommended values, and constants in Python files as those write them."""
    changes: dict[str, Any] = {}
    files: dict[str, list[str]] = {}
    for one in _advised(judged):
        constant, seconds = one.constant, one.row["recommended_s"]
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
            files.setdefault(constant.place, []).append(f"{name} = {value!r}  # {_comment(one)}")
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
    found: dict[str, Any] = {}
    for one in _advised(judged):
        inner = found
        for part in (one.constant.system, one.constant.place, *one.constant.path[:-1]):
            inner = inner.setdefault(part, {})
        inner[one.constant.path[-1]] = written(one.constant, one.row["recommended_s"])
    return found


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
    return [one for one in judged if one.row["recommended_s"] is not None and one.constant.is_there]


def _table(constant: Constant) -> list[str]:
    return [constant.system, constant.place, *constant.path[:-1]]


def _key(name: str) -> str:
    """A TOML key: bare where it may be, a quoted string otherwise."""
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    # TOML knows JSON's escapes, but neither a bare DEL nor pairs of surrogates.
    quoted = json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")
    return name if is_bare else quoted


def _comment(one: Judged) -> str:
    """What speaks for a value, on one line whatever a kind is called."""
    return visible(one.row["in_words"])

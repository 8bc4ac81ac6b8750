"""The words that a detector is described by, and its limits in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from stateanalytics.core.units import how_long

CONSTRUCTS = MappingProxyType(
    {
        "silence": "how long ago the last sign of life was",
        "elapsed": "how long ago it started",
        "write": "how long ago its row was last written, by anyone",
        "liveness": "whether its process is there",
        "lock": "whether lock files are left",
        "count": "how often something happened",
        "schedule": "whether a planned fire came",
        "verdict": "which words are stored, or what other rules said",
    }
)
"""What a rule looks at; two rules of different constructs answer different questions."""

QUESTIONS = ("stale", "stuck", "slow", "dead", "attention", "overdue", "degraded", "waiting")
COMPARISONS = (">", ">=")
LIVENESS = MappingProxyType(
    {
        "not asked": "it does not ask whether the process is alive",
        "assumed": "it takes every process for alive",
        "unknown is dead": "a process nobody could see counts as dead",
        "unknown stays unknown": "a process nobody could see is judged by its silence",
    }
)
RESTARTS = ("message", "activity", "report", "start", "creation")
"""What sets a rule's clock back to zero, where that is recorded as it happens."""


def limits_by_kind(limits: Mapping[str, float]) -> str:
    """Limits by kind of work as people write them, the default first.

    Examples
    --------
    >>> limits_by_kind({"default": 21600, "flow": 43200, "fanout": 43200})
    '6 h; flow, fanout 12 h'
    """
    default = limits["default"]
    kinds: dict[float, list[str]] = {}
    for kind, limit in limits.items():
        if limit != default:
            kinds.setdefault(limit, []).append(kind)
    own = (f"{', '.join(names)} {how_long(limit)}" for limit, names in kinds.items())
    return "; ".join((how_long(default), *own))

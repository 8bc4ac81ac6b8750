"""The words that a detector is described by, and its limits in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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


def limit_words(seconds: float) -> str:
    """A limit as people write it.

    Examples
    --------
    >>> [limit_words(s) for s in (40, 1800, 3600, 5400, 21600, 86400)]
    ['40 s', '30 min', '60 min', '90 min', '6 h', '24 h']
    """
    for size, unit, least in ((3600, "h", 7200), (60, "min", 60)):
        if seconds >= least and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


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
    own = (f"{', '.join(names)} {limit_words(limit)}" for limit, names in kinds.items())
    return "; ".join((limit_words(default), *own))

"""The thresholds that somebody once chose, of every system: `systems.base.Constant` values."""

from __future__ import annotations

from stateanalytics.state.policy import Policy
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import OTHER, Constant

__all__ = ["OTHER", "UNIT_S", "Constant", "constants"]

UNIT_S = {"s": 1.0, "ms": 0.001, "h": 3600.0, "duration": 1.0, "polls": 30.0}
"""Seconds of a unit; ``duration``: ``10m``."""


def constants(policy: Policy | None = None) -> tuple[Constant, ...]:
    """Every constant that is judged, with today's values.

    Parameters
    ----------
    policy : Policy, optional
        Whose thresholds count as today's where it has a field for them; v1 by default.

    Examples
    --------
    >>> next(one for one in constants() if one.name == "stale.flow").today_s
    43200.0
    """
    policy = policy or Policy.v1()
    return tuple(constant for known in all_systems() for constant in known.constants(policy))

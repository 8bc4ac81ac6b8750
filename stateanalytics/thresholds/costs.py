"""What a wrong alarm, a late alarm and a lost run cost: stated once, before any advice."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from stateanalytics.errors import ArgumentError


@dataclass(frozen=True)
class Costs:
    """What mistakes of a threshold cost, in minutes of a person's attention.

    Only their ratios matter for the advice: doubling all of them changes nothing but the
    numbers called loss.

    Attributes
    ----------
    false_alarm : float
        Looking at a run that was fine. Default 5: open it, read the last lines, go back.
    undetected_hour : float
        A run that is dead or will not end well, unnoticed for an hour. Default 10: what
        waits for it waits, and its context is colder when somebody looks.
    lost_run : float
        A run that would have ended well, cut off or closed by mistake. Default 60: it is
        looked into and repeated.
    run_hour : float
        An hour that a run works: model, machine and slot. Default 3.
    deaths_per_100_hours : float or None
        How often runs die, per 100 session-hours alive. None (the default): as the data
        show, where they show enough of it.

    Examples
    --------
    >>> Costs(false_alarm=20).lost_run
    60.0
    """

    false_alarm: float = 5.0
    undetected_hour: float = 10.0
    lost_run: float = 60.0
    run_hour: float = 3.0
    deaths_per_100_hours: float | None = None

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            if value is None and one.default is None:
                continue
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value) or value < 0:
                raise ArgumentError(
                    f"Costs needs numbers of at least 0; found {one.name}={value!r:.60}.",
                    f"such as Costs({one.name}={one.default or 1.0})",
                )
            object.__setattr__(self, one.name, float(value))

    def of_mistake(self, mistake: str) -> float:
        """What one mistake costs: ``false_alarm``, or ``lost_run`` where the alarm closes runs."""
        return self.lost_run if mistake == "lost_run" else self.false_alarm

"""How often a report on a stretch in which nothing changed may say that something did."""

FALSE_ALARMS = 0.05
"""Of a whole report: of all that it calls growing, higher, lower, above or below together."""

LIMITS = 0.0175
"""For weeks beyond the limits of many, and as much again for new levels."""
GROWING = 0.01
"""For clusters that grow."""


def of_changes(n_compared: int, *, has_limits: bool) -> float:
    """How often each of so many changes against an earlier window may be a false one.

    They share what is left, which is little where many weeks say the same, and better.

    Examples
    --------
    >>> round(of_changes(2, has_limits=False), 6)
    0.02
    """
    left = FALSE_ALARMS - GROWING - (2 * LIMITS if has_limits else 0.0)
    return left / max(n_compared, 1)

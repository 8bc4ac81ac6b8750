"""Thresholds as people say them."""

from __future__ import annotations

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def spoken(seconds: float | None) -> str:
    """A threshold in the largest unit that needs at most one decimal.

    Examples
    --------
    >>> [spoken(s) for s in (45, 90, 450, 1001, 5400, 43200, 129600, None)]
    ['45 s', '1.5 min', '7.5 min', '1001 s', '1.5 h', '12 h', '1.5 d', 'none']
    """
    if seconds is None:
        return "none"
    for size, unit in _UNITS:
        if seconds >= size and abs(10 * seconds / size - round(10 * seconds / size)) < 1e-9:
            return f"{seconds / size:g} {unit}"
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds / size:.3g} {unit}"


def roughly(seconds: float | None) -> str:
    """A measured duration, in the unit that keeps it to two or three digits.

    Examples
    --------
    >>> [roughly(s) for s in (0.4, 42, 119, 1043, 6369, 200_000, None)]
    ['0.4 s', '42 s', '2 min', '17 min', '1.8 h', '2.3 d', 'unknown']
    """
    if seconds is None:
        return "unknown"
    for size, unit in _UNITS:
        if seconds >= 1.5 * size:
            number = seconds / size
            return f"{number:.0f} {unit}" if unit in ("s", "min") else f"{number:.1f} {unit}"
    return f"{seconds:.2g} s"


def per_hundred(number: float | None) -> str:
    """A number per hundred, with as many digits as it deserves.

    Examples
    --------
    >>> [per_hundred(n) for n in (0, 0.034, 2.345, 41.2, None)]
    ['0', '0.034', '2.3', '41', 'unknown']
    """
    if number is None:
        return "unknown"
    if abs(number) >= 10:
        return f"{number:,.0f}"
    return f"{number:.2g}"

"""What the advice on one constant is, and how far to believe it, in two or three sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stateanalytics.core.formatting import how_long, per_hundred
from stateanalytics.systems.base import Constant

SAID = {
    "change": "change",
    "choose": "choose",
    "keep": "keep",
    "cannot_tell": "cannot tell",
    "not_identified": "not identified",
    "not_enough_data": "not enough data",
}
"""Verdicts as people read them, in the order in which they stand."""


def in_words(constant: Constant, row: Mapping[str, Any], *, why_not: str = "") -> str:
    """A row of advice as sentences.

    Parameters
    ----------
    constant : Constant
        What is judged.
    row : mapping of str to object
        The advice on it, see `recommend`.
    why_not : str
        What is missing, where it is not the number of units.
    """
    if row["verdict"] == "not_enough_data":
        behind = f"{row['n']} {'invocation' if row['n'] == 1 else 'invocations'}"
        what = "alive" if constant.is_of_silence else "that ended well"
        missing = why_not or f"it takes {row['n_needed']}"
        return f"Not enough data: {behind} {what}; {missing}.{_borrowed(constant, row)}"
    return f"{_verdict(constant, row)} {_behind(row)}"


def _borrowed(constant: Constant, row: Mapping[str, Any]) -> str:
    """What kinds have in common says of this one: context, never advice."""
    if row["borrowed_s"] is None:
        return ""
    alike = _range(row["borrowed_low_s"], row["borrowed_high_s"])
    return (
        f" Borrowed from {row['n_kinds_borrowed']} other kinds: {100 * constant.prob:.0f} % of "
        f"the healthy stay within {how_long(row['borrowed_s'])} ({alike})."
    )


def _verdict(constant: Constant, row: Mapping[str, Any]) -> str:
    today, best = how_long(constant.today_s, "none"), how_long(row["best_s"])
    today = f"{today} (mixed: other limits hold, too)" if constant.is_mixed else today
    alike = _range(row["best_low_s"], row["best_high_s"])
    does = _hits(constant, row["mistakes_today"])
    if row["verdict"] == "change":
        then = how_long(row["recommended_s"])
        return (
            f"{today} to {then}: {today} {does}, {then} "
            f"{per_hundred(row['mistakes_recommended'])}; saves {_gain(row)}."
        )
    if row["verdict"] == "choose":
        return f"Choose {how_long(row['recommended_s'])} ({alike}); none is set today."
    if row["verdict"] == "keep":
        return f"Keep {today}: no other value can save much, and it {does}."
    reached = f"beyond {how_long(row['reached_s'], 'the shortest value')}"
    if row["verdict"] == "not_identified":
        return (
            f"Not identified: {reached} most were stopped before their end. The cheapest "
            f"value that was seen is {best} ({alike}); let a few go on, drawn at random."
        )
    if row["gain"] is None:
        return f"Cannot tell: {today} lies beyond the data; the cheapest they show is {best}."
    saves = f"saves {_gain(row)}" if row["best_s"] != row["today_s"] else "is today's"
    return f"Cannot tell: {today} {does}; the cheapest value, {best} ({alike}), {saves}."


def _gain(row: Mapping[str, Any]) -> str:
    gain, low, high = (per_hundred(row[name]) for name in ("gain", "gain_low", "gain_high"))
    return f"{gain} ({low} to {high}) min of attention per {row['per']}"


def _behind(row: Mapping[str, Any]) -> str:
    """What stands behind it: units, who is left, what one unit and other costs would change."""
    one = "another verdict without one of them" if row["flips"] else "whichever one is left out"
    parts = [
        f"{row['n']} invocations (as many as {row['n_effective']:.0f} of one size), "
        f"{row['n_at_risk']} at risk there; {one}"
    ]
    if row["excess_if_half"] is not None:
        parts += [
            f"with a mistake at half the cost {how_long(row['best_if_half_s'])} is best and this "
            f"{100 * row['excess_if_half']:.0f} % dearer, at twice the cost "
            f"{how_long(row['best_if_double_s'])} and {100 * row['excess_if_double']:.0f} %"
        ]
    return f"Behind it: {'; '.join(parts)}."


def _hits(constant: Constant, mistakes: float | None) -> str:
    """What a threshold does to work that is fine, in words."""
    number = per_hundred(mistakes)
    is_closing = constant.mistake == "lost_run"
    if constant.is_of_silence:
        what = f"closes {number} live runs" if is_closing else f"gives {number} false alarms"
        return f"{what} per 100 session-hours"
    fate = "would have ended well" if is_closing else "go on to end well"
    return f"{'ends' if is_closing else 'flags'} {number} of 100 runs that {fate}"


def _range(low: float, high: float | None) -> str:
    if high is None:
        return f"{how_long(low)} or more"
    return how_long(low) if low == high else f"{how_long(low)} to {how_long(high)}"

"""The advice on a constant in two or three sentences: verdict, evidence and sensitivity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stateanalytics.core.words import count, how_long, per_hundred, say
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
        The constant that is judged.
    row : mapping of str to object
        The advice on it, see `recommend`.
    why_not : str
        What is missing, where it is not the number of units.
    """
    if row["verdict"] != "not_enough_data":
        return f"{_verdict(constant, row)} {_evidence(row)}"
    too_few = say(
        "advice.not_enough",
        units=count(row["n"], "invocation") if row["n"] else "0 invocations",
        which="alive" if constant.is_of_silence else "that ended well",
        missing=why_not or say("advice.needed", n=row["n_needed"]),
    )
    if row["borrowed_s"] is None:
        return too_few
    # From the distribution over all kinds: context for the reader, never advice.
    borrowed = say(
        "advice.borrowed",
        n=row["n_kinds_borrowed"],
        prob=constant.prob,
        limit=row["borrowed_s"],
        range=_range(row["borrowed_low_s"], row["borrowed_high_s"]),
    )
    return f"{too_few} {borrowed}"


def _verdict(constant: Constant, row: Mapping[str, Any]) -> str:
    verdict, today = row["verdict"], how_long(constant.today_s, "none")
    values = {
        "today": say("advice.mixed", today=today) if constant.is_mixed else today,
        "best": how_long(row["best_s"]),
        "range": _range(row["best_low_s"], row["best_high_s"]),
        "recommended": how_long(row["recommended_s"]),
        "effect": _effect(constant, row["mistakes_today"]),
        "gain": "" if row["gain"] is None else _gain(row),
    }
    if verdict == "change":
        return say("advice.change", **values, mistakes=row["mistakes_recommended"])
    if verdict in ("choose", "keep"):
        return say(f"advice.{verdict}", **values)
    if verdict == "not_identified":
        reached = how_long(row["reached_s"], "the shortest value")
        return say("advice.not_identified", **values, reached=reached)
    if row["gain"] is None:
        return say("advice.beyond_data", **values)
    is_todays = row["best_s"] == row["today_s"]
    return say("advice.cannot_tell_todays" if is_todays else "advice.cannot_tell", **values)


def _gain(row: Mapping[str, Any]) -> str:
    gain, low, high = row["gain"], row["gain_low"], row["gain_high"]
    return say("advice.gain", gain=gain, low=low, high=high, per=row["per"])


def _evidence(row: Mapping[str, Any]) -> str:
    """The units, how many are at risk, and what a single unit and other costs would change."""
    evidence = say(
        "advice.evidence",
        n=row["n"],
        n_effective=round(row["n_effective"]),
        n_at_risk=row["n_at_risk"],
        flips=say("advice.depends_on_one" if row["flips"] else "advice.depends_on_none"),
    )
    if row["excess_if_half"] is None:
        return f"{evidence}."
    names = ("best_if_half_s", "excess_if_half", "best_if_double_s", "excess_if_double")
    return f"{evidence}; {say('advice.other_costs', **{name: row[name] for name in names})}."


def _effect(constant: Constant, mistakes: float | None) -> str:
    """The mistakes of a threshold, in words."""
    is_closing = constant.mistake == "lost_run"
    if constant.is_of_silence:
        name = "advice.closes" if is_closing else "advice.false_alarms"
    else:
        name = "advice.ends" if is_closing else "advice.flags"
    return say(name, n=per_hundred(mistakes))


def _range(low: float, high: float | None) -> str:
    if high is None:
        return f"{how_long(low)} or more"
    return how_long(low) if low == high else f"{how_long(low)} to {how_long(high)}"

"""A limit trial: what to let go on, for how long and at what cost, to see beyond a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from stateanalytics.core.text import visible
from stateanalytics.core.units import CANDIDATES_S, how_long, per_hundred
from stateanalytics.errors import ArgumentError, check_number, check_share, did_you_mean, in_short
from stateanalytics.thresholds.advice import Advice

ENOUGH = 30
"""As many beyond the limit tell the share of them that ends well to within 18 points."""
TIMES_AS_LONG = 4.0


@dataclass(frozen=True, repr=False)
class Trial:
    """A plan to let a random share of work go on beyond what closes it today.

    Attributes
    ----------
    name : str
        The threshold.
    today_s, from_s, to_s : float
        What holds for the others, until where the data reach, and how long those of the
        trial may take.
    share : float
        Of the invocations that take part, drawn at random.
    weeks : int
        For how long, so that `ENOUGH` of them get beyond ``from_s``.
    n_beyond : float
        How many are expected to.
    cost : float
        What the time beyond costs at most, in minutes of attention: if none ends before
        ``to_s``.
    """

    name: str
    today_s: float
    from_s: float
    to_s: float
    share: float
    weeks: int
    n_beyond: float
    cost: float

    @property
    def in_words(self) -> str:
        """Who goes on, what that costs, and what it will tell."""
        within = 100 * 0.98 / math.sqrt(max(1.0, self.n_beyond))
        return (
            f"{visible(self.name)}: let a random {100 * self.share:.3g} % of invocations go on to "
            f"{how_long(self.to_s)} for {self.weeks} week{'s' if self.weeks > 1 else ''}. About "
            f"{self.n_beyond:.0f} get beyond {how_long(self.from_s)}, which costs at most "
            f"{per_hundred(self.cost)} min of attention, and tells what share of them goes on to "
            f"end well to within {within:.0f} points."
        )

    @property
    def snippet(self) -> str:
        """Python to paste where the limit is set: the same invocation always gets the same one."""
        return (
            f"# {self.in_words}\n"
            "import hashlib\n\n\n"
            "def limit_s(invocation_id: str) -> float:\n"
            '    digest = hashlib.sha256(f"limit trial {invocation_id}".encode()).digest()\n'
            f"    is_drawn = int.from_bytes(digest[:8], 'big') / 2**64 < {self.share!r}\n"
            f"    return {self.to_s!r} if is_drawn else {self.today_s!r}\n"
        )

    def __repr__(self) -> str:
        return f"{self.in_words}\nNext: print(trial.snippet)"


def plan_trial(
    advice: Advice,
    name: str,
    *,
    share: float = 0.1,
    to_s: float | None = None,
    weeks: int | None = None,
) -> Trial:
    """How to learn what a limit hides: let a random share of the work go on.

    Parameters
    ----------
    advice : Advice
        What `recommend` gave.
    name : str
        A threshold in it that has a curve, such as one that is not identified.
    share : float
        Of the invocations that take part, between 0 and 1; 0.05 to 0.1 is usual.
    to_s : float, optional
        How long those may take; by default four times what the data reach.
    weeks : int, optional
        For how long; by default until `ENOUGH` got beyond.

    Returns
    -------
    Trial
        ``in_words``, and ``snippet`` to paste.

    Raises
    ------
    ArgumentError
        If there is no such threshold, nothing is known of it, or a number makes no sense.

    Notes
    -----
    Those who go on must be drawn at random and not by how hard their work is: else what
    becomes of them says nothing about the others.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> from stateanalytics.thresholds.advice import recommend
    >>> plan_trial(recommend(demo()), "slow.agent").to_s
    10800.0
    """
    if not isinstance(advice, Advice):
        raise ArgumentError(
            f"plan_trial needs advice; found {type(advice).__name__}.",
            'plan_trial(sa.thresholds.recommend(snap), "timeout.agent")',
        )
    check_share("share", share, 0.1)
    rows = advice.frame.filter(pl.col("outlasting") > 0, pl.col("reached_s").is_not_null())
    names = rows["name"].to_list()
    if name not in names:
        raise ArgumentError(
            f"There is nothing to plan for {in_short(name)}: it is no threshold with work that "
            "outlasts the data.",
            f"one of {', '.join(names) or 'none'}{did_you_mean(str(name), names)}",
        )
    row = rows.row(names.index(name), named=True)
    from_s = row["reached_s"]
    if to_s is None:
        later = [limit for limit in CANDIDATES_S if limit >= TIMES_AS_LONG * from_s]
        to_s = later[0] if later else TIMES_AS_LONG * from_s
    check_number("to_s", to_s, TIMES_AS_LONG * from_s, least=from_s, is_above=True)
    drawn = advice.n_sessions_drawn / advice.n_sessions if advice.n_sessions else 1.0
    a_week = row["n"] / drawn / advice.n_weeks * share * row["outlasting"]
    if weeks is None:
        weeks = max(1, math.ceil(ENOUGH / a_week))
    check_number("weeks", weeks, 4, least=1, is_whole=True)
    n_beyond = weeks * a_week
    hour = advice.curves.filter(pl.col("name") == name)["hour"][0]
    cost = n_beyond * (to_s - from_s) / 3600 * hour
    today_s = row["today_s"] or from_s
    return Trial(name, today_s, from_s, float(to_s), share, weeks, n_beyond, cost)

"""Which weeks of an archive to open, from what people type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from stateanalytics.core.windows import TICK, read_window
from stateanalytics.errors import ArgumentError

_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_RANGE = re.compile(r"(?:(\d{4})-)?W(\d{2})", re.IGNORECASE)
_HOW = 'weeks="2026-W10..W21", weeks="2026-W21", or weeks="2025-W50..2026-W03"'


@dataclass(frozen=True)
class ChosenWeeks:
    """The ISO weeks from ``first`` to ``last``, both with them; without any, all.

    Attributes
    ----------
    first, last : str
        As ``2026-W10``; empty: no week was chosen.
    """

    first: str = ""
    last: str = ""

    @classmethod
    def of(cls, text: str | None) -> ChosenWeeks:
        """The weeks that somebody typed.

        Raises
        ------
        ArgumentError
            If it names no weeks, or the last before the first.

        Examples
        --------
        >>> ChosenWeeks.of("2026-W10..W21")
        ChosenWeeks(first='2026-W10', last='2026-W21')
        """
        if text is None:
            return cls()
        parts = [_RANGE.fullmatch(part.strip()) for part in str(text).split("..")]
        match parts:
            case [re.Match() as first] if first[1]:
                chosen = cls(_week(first[1], first[2]), _week(first[1], first[2]))
            case [re.Match() as first, re.Match() as last] if first[1]:
                chosen = cls(_week(first[1], first[2]), _week(last[1] or first[1], last[2]))
            case _:
                raise ArgumentError(f"weeks needs ISO weeks; found {text!r:.80}.", _HOW)
        if chosen.first > chosen.last:
            raise ArgumentError(
                f"weeks runs forward; {text!r:.80} ends before it begins.",
                'weeks="2025-W50..2026-W03" names the year of both',
            )
        return chosen

    @property
    def has(self) -> Callable[[str], bool] | None:
        """Is a week one of them; None where all are."""
        return (lambda week: self.first <= week <= self.last) if self.first else None

    def end_before(self, moments: Iterable[datetime | None]) -> datetime | None:
        """The last instant of these weeks, where any of the moments lies after it."""
        if not self.first:
            return None
        known = [moment for moment in moments if moment is not None]
        if not known:
            return None
        end = read_window(self.last, as_of=_END_OF_TIME).until - TICK
        return end if max(known) > end else None


def _week(year: str, number: str) -> str:
    text = f"{year}-W{number}"
    read_window(text, as_of=_END_OF_TIME)  # refuses a week that the year does not have
    return text

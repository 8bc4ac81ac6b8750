"""Why a run counts otherwise in another report: late, ended since, changed, or seen otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.ledger import LATER, Line, is_within, ledger_of, read_ledger
from stateanalytics.reporting.material import Material

Ledger = dict[str, Line]

CAUSES = (
    "another input",
    "another window",
    "rows that are gone",
    "new rows",
    "late rows",
    "closed censoring",
    "changed rows",
    "another policy",
    "another as-of",
    "another policy or as-of",
    "another grouping",
    "unexplained",
)
"""In the order in which they are reckoned; the last is what the others leave over."""


class Side(NamedTuple):
    """One report, as far as its runs can be compared."""

    ledger: Ledger
    sources: tuple[str, ...]
    since: datetime
    until: datetime
    as_of: datetime
    policy: str

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Side:
        """What the JSON of a report says."""
        try:
            provenance, window = summary["provenance"], summary["window"]
            return cls(
                read_ledger(summary["ledger"]),
                tuple(str(source["source"]) for source in provenance["sources"]),
                datetime.fromisoformat(window["since"]),
                datetime.fromisoformat(window["until"]),
                datetime.fromisoformat(provenance["as_of"]["at"]),
                str(summary["appendix"]["policy"]["version"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ArgumentError(
                f"The JSON of a report lacks {error!s:.60}.",
                "stateanalytics report STORE --json writes week.json beside week.html",
            ) from None

    @classmethod
    def of_material(cls, material: Material) -> tuple[Side, dict[str, str]]:
        """What a report is made from, and the ids behind its digests."""
        ledger, ids = ledger_of(material)
        facts, window = material.facts, material.window
        sources = tuple(facts.sources["source"])
        side = cls(
            ledger, sources, window.since, window.until, facts.as_of, material.policy.version
        )
        return side, ids

    def has_input_of(self, line: Line, other: Side) -> bool:
        """Is the input of one of its runs an input of another report, by name or by runs."""
        if not 0 <= line.source < len(self.sources):
            return False
        if self.sources[line.source] in other.sources:
            return True
        return any(
            own.source == line.source and run in other.ledger for run, own in self.ledger.items()
        )


def cause_of(run: str, before: Side, after: Side) -> str | None:
    """What became of one run; None: nothing."""
    was, now = before.ledger.get(run), after.ledger.get(run)
    if was is None or now is None:
        return _departure(was, before, after) if was else _arrival(now, before, after)
    if _worth(was) == _worth(now):
        return None
    if LATER in (was.ending, now.ending) and not is_open(was) and before.until != after.until:
        return "another window"
    if was.facts == now.facts:
        if _worth(was)[:-1] == _worth(now)[:-1]:
            return "another grouping"
        return _other_eyes(was, before, after)
    is_closed = is_open(was) and (has_ended(now) or now.ending == LATER)
    return "closed censoring" if is_closed else "changed rows"


def _other_eyes(was: Line, before: Side, after: Side) -> str:
    """Why a run that nobody wrote to is seen otherwise."""
    has_policy, has_instant = before.policy != after.policy, before.as_of != after.as_of
    if has_policy and (not is_open(was) or not has_instant):
        return "another policy"
    if has_instant and not has_policy:
        return "another as-of"
    return "another policy or as-of" if has_policy else "changed rows"


def _arrival(now: Line | None, before: Side, after: Side) -> str | None:
    if now is None:
        return None
    if not after.has_input_of(now, before):
        return "another input"
    if now.began is not None and now.began > before.as_of.timestamp():
        return "new rows"
    if not is_within(now, before.since, before.until):
        return "another window"
    return "late rows"


def _departure(was: Line, before: Side, after: Side) -> str:
    if not before.has_input_of(was, after):
        return "another input"
    # Open work may have ended outside of the window; nothing tells where it went.
    if not is_within(was, after.since, after.until):
        return "another window"
    return "rows that are gone"


def _worth(line: Line) -> tuple[str, bool, str | None]:
    """What the numbers take from a run."""
    return line.ending, line.is_in_trouble and is_open(line), line.incident


def is_open(line: Line) -> bool:
    """Was it open when it was looked at."""
    return line.ending == "open"


def has_ended(line: Line) -> bool:
    """Does a number count it as ended in its window."""
    return line.ending not in ("open", "left_out", LATER)


def is_counted(line: Line | None) -> bool:
    """Does any number of its window count it."""
    return line is not None and line.ending not in ("left_out", LATER)

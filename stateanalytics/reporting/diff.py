"""Why a report says something else than the one before: every run that moved a number.

Two ledgers are laid side by side, and the first is turned into the second in steps, one
cause at a time. Each step moves the numbers by what its runs are worth then, so that all
steps add up; what they do not explain is a step of its own and never hidden.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core.schema import DIFF
from stateanalytics.errors import ArgumentError, SourceNotFoundError, in_short
from stateanalytics.io.files import read_octets, unreadable
from stateanalytics.reporting import Report
from stateanalytics.reporting.causes import (
    CAUSES,
    Ledger,
    Side,
    cause_of,
    has_ended,
    is_counted,
    is_open,
)
from stateanalytics.reporting.ledger import Line
from stateanalytics.reporting.material import Plain

MAX_REPORT_BYTES = 512_000_000
_NUMBERS = ("runs", "completed", "timed_out", "unresolved", "incidents")
_HINT = "stateanalytics report STORE --json writes week.json beside week.html"
_ELSE = f"; {_HINT}"


def diff(last: Any, this: Any) -> pl.DataFrame:
    """What moved each headline number from one report to another.

    Parameters
    ----------
    last, this : Report, dict, str or pathlib.Path
        Reports, their summaries, or the JSON files beside them.

    Returns
    -------
    polars.DataFrame
        `DIFF`: for each of the five numbers a row per cause that concerns it, in the
        order of `CAUSES`, and always one for what is unexplained, so that the changes of
        a number add up from the first report to the second. Of two weeks that have no run in
        common the causes are what their runs came to, such as *runs that failed*.

    Raises
    ------
    ArgumentError
        If one of them is no report, or was written without a ledger.
    SourceNotFoundError
        If there is no such file.

    Notes
    -----
    *New rows* began after the as-of of the first report; *late rows* before it, and were
    not there yet. *Closed censoring* is work that was open and has ended since. *Changed
    rows* were written to otherwise: a sign of life, a correction. Where nothing stored
    about a run changed, its state did for *another policy* or *another as-of*; of a run
    that is still open, and where both are others, nobody can say which. Failures of *another
    grouping* hang together with others than before, and count as more or fewer incidents.

    A share is moved by runs that enter or leave either side of it, so that the size of
    a step depends on the order of steps; their sum does not.

    Examples
    --------
    >>> from stateanalytics.snapshot import demo
    >>> from stateanalytics.reporting import report
    >>> week = report(demo(), window="2026-W21")
    >>> steps = diff(week, week)
    >>> steps["cause"].unique().to_list(), steps["change"].sum()
    (['unexplained'], 0.0)
    """
    first, second = _summary(last, "last"), _summary(this, "this")
    before, after = Side.of(first), Side.of(second)
    why = {run: cause_of(run, before, after) for run in before.ledger.keys() | after.ledger.keys()}
    causes: tuple[str, ...] = CAUSES[:-1]
    if before.until <= after.since or after.until <= before.since:
        # No run is in both: the weeks differ by what their runs came to.
        why = {run: _of_week(run, cause, before, after) for run, cause in why.items()}
        causes = (*causes, *sorted({cause for cause in why.values() if cause} - set(causes)))
    names = {**_named(first), **_named(second)}
    rows: list[Plain] = []
    for name in _NUMBERS:
        stated, meant = _stated(first, name), _stated(second, name)
        count = _COUNTS[name]
        held = dict(before.ledger)
        # Where a ledger does not give its own headline, the rest is unexplained as well.
        at, steps = stated, []
        for cause in causes:
            moved = [run for run, its_cause in why.items() if its_cause == cause]
            if not moved:
                continue
            was = count(held)
            for run in moved:
                held.pop(run, None)
                if run in after.ledger:
                    held[run] = after.ledger[run]
            now = count(held)
            concerned = [run for run in moved if _matters(run, name, before, after)]
            reached = (at.n + now.n - was.n, _moved(at.of, was.of, now.of))
            if concerned or reached != (at.n, at.of):
                named = sorted(names.get(run, run) for run in concerned)
                steps.append(_row(name, cause, named, at, _Number(*reached)))
            at = _Number(*reached)
        steps.append(_row(name, "unexplained", None, at, meant))
        rows += [{**step, "title": meant.title} for step in steps]
    return DIFF.conform(pl.DataFrame(rows, schema=DIFF.dtypes))


def _of_week(run: str, cause: str | None, before: Side, after: Side) -> str | None:
    """What a run came to, where it is only in the other week."""
    if cause != "another window":
        return cause
    line = after.ledger.get(run) or before.ledger[run]
    return f"runs that {_CAME_TO.get(line.ending, 'ended otherwise')}"


_CAME_TO = {"good": "completed", "timed_out": "timed out", "open": "were open", "failed": "failed"}


class _Number(NamedTuple):
    """A headline number: a count, or a count of some whole."""

    n: int
    of: int | None
    title: str = ""

    @property
    def value(self) -> float | None:
        if self.of is None:
            return float(self.n)
        return self.n / self.of if self.of else None


def _matters(run: str, name: str, before: Side, after: Side) -> bool:
    """Does a run count differently for a number."""
    sides = []
    for side in (before, after):
        line = side.ledger.get(run)
        alone = {run: line} if line is not None else {}
        sides.append(
            (_COUNTS[name](alone), line.incident if line and name == "incidents" else None)
        )
    return sides[0] != sides[1]


def _shared(good: Callable[[Line], bool], whole: Callable[[Line], bool]) -> Any:
    def count(ledger: Ledger) -> _Number:
        of = [line for line in ledger.values() if whole(line)]
        return _Number(sum(good(line) for line in of), len(of))

    return count


_COUNTS: Mapping[str, Callable[[Ledger], _Number]] = {
    "runs": lambda ledger: _Number(sum(is_counted(line) for line in ledger.values()), None),
    "completed": _shared(lambda line: line.ending == "good", has_ended),
    "timed_out": _shared(lambda line: line.ending == "timed_out", has_ended),
    "unresolved": _shared(lambda line: line.is_in_trouble, is_open),
    "incidents": lambda ledger: _Number(
        len({line.incident for line in ledger.values() if line.incident is not None}), None
    ),
}


def _stated(summary: Mapping[str, Any], name: str) -> _Number:
    """A number as the report itself says it."""
    try:
        number = next(
            candidate for candidate in summary["headline"]["numbers"] if candidate["name"] == name
        )
        return _Number(int(number["n"]), number["of"], str(number["title"]))
    except (KeyError, TypeError, ValueError, StopIteration):
        raise ArgumentError(f"The JSON of a report has no number {name!r}.", _HINT) from None


def _named(summary: Mapping[str, Any]) -> dict[str, str]:
    """The ids of the runs that came late, by digest."""
    late = summary.get("late")
    rows = late.get("rows", ()) if isinstance(late, Mapping) else ()
    return {
        str(row["run"]): str(row["entity_id"])
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, Mapping) and row.keys() >= {"run", "entity_id"}
    }


def _moved(at: int | None, was: int | None, now: int | None) -> int | None:
    return None if at is None or was is None or now is None else at + now - was


def _row(name: str, cause: str, runs: list[str] | None, at: _Number, then: _Number) -> Plain:
    has_both = at.value is not None and then.value is not None
    return {
        "number": name,
        "cause": cause,
        "n_runs": None if runs is None else len(runs),
        "runs": runs,
        "n_before": at.n,
        "n_after": then.n,
        "of_before": at.of,
        "of_after": then.of,
        "before": at.value,
        "after": then.value,
        "change": then.value - at.value if has_both else None,  # type: ignore[operator]
    }


def _summary(given: Any, which: str) -> Mapping[str, Any]:
    """The summary of a report, whatever it is given as."""
    if isinstance(given, Report):
        return given.summary
    if isinstance(given, str | Path):
        given = _from_file(Path(given).expanduser())
    if not isinstance(given, Mapping) or "headline" not in given:
        raise ArgumentError(f"diff needs two reports; {which} is {in_short(given)}.", _HINT)
    if "ledger" not in given:
        raise ArgumentError(
            f"The report {which} has no ledger, so nobody knows its runs.",
            "write it again with this version: stateanalytics report … --json",
        )
    return given


def _from_file(path: Path) -> Any:
    try:
        octets, _ = read_octets(path, MAX_REPORT_BYTES)
        return json.loads(octets.decode("utf-8"))
    except FileNotFoundError:
        raise unreadable("report", path, None, _ELSE, kind=SourceNotFoundError) from None
    except (ValueError, RecursionError):
        raise ArgumentError(
            f"{str(path)!r} was to be the JSON of a report, but it is no JSON.", _HINT
        ) from None
    except OSError as error:
        raise unreadable("report", path, error.strerror or str(error), _ELSE) from None

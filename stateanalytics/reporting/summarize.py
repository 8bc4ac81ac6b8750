"""Frames to plain data: every number of a report, and how far it is from an earlier window's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.charts.report_charts import begin_drawing
from stateanalytics.core.facts import losses_of
from stateanalytics.core.windows import TICK, WEEK, Window, in_utc, read_window
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.actions import actions_of
from stateanalytics.reporting.cleaning import clean
from stateanalytics.reporting.coverage import coverage_of
from stateanalytics.reporting.failure_findings import lost_in_all
from stateanalytics.reporting.false_alarms import of_changes
from stateanalytics.reporting.front import front_of
from stateanalytics.reporting.ledger import write_ledger
from stateanalytics.reporting.material import Material, Plain, Section, iso, plain_rows
from stateanalytics.reporting.named_runs import named_runs, place_of
from stateanalytics.reporting.phrases import count, number, points, share
from stateanalytics.reporting.sections import HEADLINE, SECTIONS
from stateanalytics.reporting.sections.headline import summarize_headline, sure_of
from stateanalytics.reporting.since_when import with_limits

SHAPE_VERSION = 1
"""Of the summary: changes when a key changes its meaning or goes away."""
LOSSES = ("source", "table", "code", "n_rows", "message", "example", "action")
PREVIOUS, LAST_WEEK, NONE = "previous", "last-week", "none"
UNRESOLVED = "unresolved"
_LEDGER, _BEFORE = "ledger", "earlier window"  # what is made beside the sections
# Rows: fewer are done before threads have begun, and the steps of more keep all cores busy
# one by one, with less memory.
_WORTH_THREADS = range(20_000, 300_000)
_N_THREADS = 2


def summarize(
    material: Material,
    *,
    sections: Sequence[Section] = SECTIONS,
    earlier: Window | None = None,
    title: str | None = None,
    redact: bool = True,
    begin: Callable[[str], object] = str,
) -> Plain:
    """The whole report as dicts, lists, texts and numbers.

    Parameters
    ----------
    material : Material
        Facts, states and reasons, narrowed to a window.
    sections : sequence of Section
        What to tell; the headline is among them.
    earlier : Window, optional
        A window that the headline is compared with.
    title : str, optional
        Heading of the report.
    redact : bool
        Whether to mask what looks like a secret. Control characters are made visible
        and long texts cut in any case.
    begin : callable
        Called with the name of each section as it begins.

    Returns
    -------
    dict
        Fit for JSON. Keys are fixed, and each section that was asked for is one; texts of a store
        stand only in values. The same input gives the same summary.
    """
    window = material.window
    summaries, before, ledger = _parts(material, sections, earlier, redact=redact, begin=begin)
    if before:
        headline = summaries[HEADLINE]
        numbers = with_changes(headline["numbers"], before.numbers, before.n_unknown)
        summaries[HEADLINE] = {**headline, "numbers": numbers}
    facts = material.facts
    losses = losses_of(facts.findings)
    raw: Plain = {
        **said_of(window, title or title_of(window), facts.as_of),
        "compared_with": compared_with(earlier, material),
        "losses": plain_rows(losses, LOSSES),
        "coverage": coverage_of(facts.sources, losses),
        **summaries,
    }
    raw |= front_of(raw, before.lost if before else None)
    raw["runs"] = named_runs(summaries, material)
    raw["actions"] = actions_of(raw, place_of(facts), _asked_of(window, facts.as_of))
    cleaned, masked = clean(raw, secrets=redact)
    return {
        **cleaned,
        # Digests, which a mask for secrets must not touch: two reports are compared by them.
        "ledger": ledger,
        "redactions": redactions(masked, is_on=redact),
    }


def _parts(
    material: Material,
    sections: Sequence[Section],
    earlier: Window | None,
    *,
    redact: bool,
    begin: Callable[[str], object],
) -> tuple[dict[str, Plain], _Before | None, list[str]]:
    """The sections, what is told of the earlier window, and the ledger.

    None of them needs another, and most of the work of each is polars', which leaves cores
    idle between its many small steps: of a large material several are made at a time, the
    long ones first, which are the last of the page.
    """
    work: dict[str, Callable[[], Any]] = {
        section.name: partial(_made, section, material, redact=redact, begin=begin)
        for section in sections
    }
    work |= {_LEDGER: partial(write_ledger, material), _BEFORE: lambda: None}
    if earlier:
        is_told = any(section.name == "failures" for section in sections)
        work[_BEFORE] = partial(_before, material, earlier, has_failures=is_told)
    if material.ever.height not in _WORTH_THREADS:
        made = {name: make() for name, make in work.items()}
    else:
        with ThreadPoolExecutor(_N_THREADS) as threads:
            waiting = {name: threads.submit(work[name]) for name in reversed(work)}
            made = {name: each.result() for name, each in waiting.items()}
    return {section.name: made[section.name] for section in sections}, made[_BEFORE], made[_LEDGER]


class _Before(NamedTuple):
    """What a report tells of the window that it is compared with."""

    numbers: list[Plain]
    n_unknown: int
    lost: Plain | None


def _before(material: Material, earlier: Window, *, has_failures: bool) -> _Before:
    """The earlier window's numbers; what its failures cost where that is said."""
    before = material.over(earlier)
    is_told = has_failures and _is_covered(earlier, material)
    return _Before(
        summarize_headline(before)["numbers"],
        before.n_unknown,
        lost_in_all(before.failed) if is_told else None,
    )


def _made(
    section: Section, material: Material, *, redact: bool, begin: Callable[[str], object]
) -> Plain:
    """A section, which is drawn as it will be shown while the next ones are made."""
    begin(section.label.lower())
    made = section.summarize(material)
    if section.name == HEADLINE:
        made = with_limits(made, material)
    begin_drawing(section.name, lambda: clean(made, secrets=redact)[0])
    return made


def said_of(window: Window, title: str, as_of: datetime) -> Plain:
    """What every report says of itself."""
    return {
        "shape_version": SHAPE_VERSION,
        "made_by": version("stateanalytics"),
        "title": title,
        "window": {
            "label": window.label,
            "since": iso(window.since),
            "until": iso(window.until),
            "days": round(window.days, 3),
            "is_over": window.until <= as_of + TICK,
        },
    }


def _asked_of(window: Window, as_of: datetime) -> str:
    """The window as commands are asked for it."""
    year, week, day = window.since.isocalendar()
    if day == 1 and window == read_window(f"{year}-W{week:02}", as_of=as_of):
        return f"--week {year}-W{week:02}"
    asked = f"--since {iso(window.since)}"
    return asked if window.until > as_of else f"{asked} --until {iso(window.until)}"


def redactions(masked: Mapping[str, int], *, is_on: bool) -> Plain:
    """How many secrets of each kind were masked."""
    kinds = [{"kind": kind, "n": n} for kind, n in sorted(masked.items())]
    return {"is_on": is_on, "n": sum(masked.values()), "kinds": kinds}


def title_of(window: Window) -> str:
    """The heading of a report that nobody gave another."""
    return "Weekly report" if window.until - window.since == WEEK else f"Report on {_days(window)}"


def _days(window: Window) -> str:
    days = round(window.days, 1)
    return "1 day" if days == 1 else f"{days:,g} days"


def earlier_window(compare: object, window: Window, *, as_of: datetime) -> Window | None:
    """The window that a report is compared with.

    Parameters
    ----------
    compare : str, pair of moments, or None
        ``"previous"`` (as long, right before), ``"last-week"`` (seven days earlier),
        ``"none"`` or None, or any window that `read_window` knows.
    window : Window
        The one that is reported on.
    as_of : datetime
        The instant that the states are read at.

    Returns
    -------
    Window or None
        None where nothing is to be compared.

    Raises
    ------
    ArgumentError
        If it is no window, or does not begin before the one that is reported on.

    Examples
    --------
    >>> from datetime import UTC
    >>> as_of = datetime(2026, 5, 27, tzinfo=UTC)
    >>> this = read_window("2026-W21", as_of=as_of)
    >>> earlier_window("previous", this, as_of=as_of).since.isoformat()
    '2026-05-11T00:00:00+00:00'
    """
    if compare is None or compare == NONE:
        return None
    if compare in (PREVIOUS, LAST_WEEK):
        step = WEEK if compare == LAST_WEEK else window.until - window.since
        return _earlier_by(step, window)
    try:
        earlier = read_window(compare, as_of=as_of)
    except ArgumentError as error:
        raise ArgumentError(
            f"What a report is compared with is a window, too: {error.problem}",
            'compare="previous", "last-week", None, or an earlier window',
            shell="--compare previous, last-week, none, or an ISO week such as 2026-W20",
        ) from None
    if earlier.since >= window.since:
        raise ArgumentError(
            f"A report is compared with an earlier window; {earlier.label} does not begin "
            f"before {in_utc(window.since)}.",
            'name an earlier one, such as "last-week"',
            shell="name an earlier one, such as --compare last-week",
        )
    return earlier


def compared_with(earlier: Window | None, now: Material) -> Plain | None:
    """Which window stands beside this one, and how much of it the data cover."""
    if earlier is None:
        return None
    begins = _first_moment(now.facts.entities)
    if begins is None or begins >= earlier.until:
        coverage = "Nothing was recorded then, so no change is given."
    elif begins > earlier.since:
        coverage = f"The data begin {in_utc(begins)}, so only a part of it is covered."
    else:
        coverage = None
    return {
        "label": earlier.label,
        "since": iso(earlier.since),
        "until": iso(earlier.until),
        "is_covered": _is_covered(earlier, now),
        "coverage": coverage,
    }


def _is_covered(earlier: Window, now: Material) -> bool:
    """Whether anything was recorded in or before a window."""
    begins = _first_moment(now.facts.entities)
    return begins is not None and begins < earlier.until


def with_changes(numbers: list[Plain], earlier: list[Plain], n_unknown: int = 0) -> list[Plain]:
    """The numbers of this window, each with its change against the earlier one.

    What is open is not compared where nobody recorded how ``n_unknown`` runs stood then.
    """
    before = {number["name"]: number for number in earlier}
    n_shares = sum(bool(each["of"] and before[each["name"]]["of"]) for each in numbers)
    alpha = of_changes(n_shares, has_limits=any("limits" in each for each in numbers))
    return [
        {**number, "change": _change(number, before[number["name"]], n_unknown, alpha)}
        for number in numbers
    ]


def _change(now: Plain, then: Plain, n_unknown: int, alpha: float) -> Plain:
    if now["name"] == UNRESOLVED and n_unknown:
        return _as_change(now, None, f"How {count(n_unknown, 'run')} stood then is not recorded.")
    if now["name"] == UNRESOLVED and not (now["of"] and then["of"]):
        return _as_change(now, then, "No run was open at the end of one of the two windows.")
    if now["of"] is None:
        return _as_change(now, then, _more_or_less(now["n"], then["n"]))
    if not now["of"] or not then["of"]:
        return _as_change(now, then, "No run ended in one of the two windows.")
    shares = [sure_of(side) for side in (now, then)]
    difference, low, high = shares[0].minus(shares[1])
    _, least, most = shares[0].minus(shares[1], confidence=1 - alpha)
    is_clear = least > 0 or most < 0
    is_beside = ", too little to tell of one of several numbers"
    is_within = low <= 0 <= high
    verdict = "" if is_clear else ", within what chance does" if is_within else is_beside
    moved = points(difference)
    is_same = moved == points(0.0) and not is_clear
    short = "as before" if is_same else f"{moved}, {'clear' if is_clear else 'may be chance'}"
    words = (
        f"{points(difference)} against {share(then['share'])} "
        f"(95 %: {points(low)} to {points(high)}){verdict}"
    )
    return _as_change(
        now, then, words, short, difference=difference, interval=[low, high], is_clear=is_clear
    )


def _as_change(
    now: Plain,
    then: Plain | None,
    words: str,
    short: str | None = None,
    *,
    difference: float | None = None,
    interval: list[float] | None = None,
    is_clear: bool | None = None,
) -> Plain:
    if then is not None and now["of"] is None:
        difference = float(now["n"] - then["n"])
    return {
        "n": then["n"] if then else None,
        "of": then["of"] if then else None,
        "difference": difference,
        "interval": interval,
        "is_clear": is_clear,
        "words": words,
        "short": short or (words if now["of"] is None else "no change known"),
    }


def _more_or_less(now: int, then: int) -> str:
    if now == then:
        return f"as many as before, {number(then)}" if then else "none before either"
    step = number(abs(now - then))
    return f"{step} {'more' if now > then else 'fewer'} than {number(then)} before"


def _earlier_by(step: timedelta, window: Window) -> Window:
    try:
        since, until = window.since - step, window.until - step
    except OverflowError:
        raise ArgumentError(
            f"There is no window before {window.label}.",
            'leave it out: compare="none"',
            shell="leave it out: --compare none",
        ) from None
    return Window(since, until, f"{in_utc(since)} to {in_utc(until)}")


def _first_moment(entities: pl.DataFrame) -> datetime | None:
    first = entities.select(pl.min_horizontal("created_at", "started_at", "ended_at").min()).item()
    return first if isinstance(first, datetime) else None

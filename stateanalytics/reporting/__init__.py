"""A report on a window of time: a file that opens anywhere, and the same numbers as JSON."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.progress import progress
from stateanalytics.core.text import APART, CELL, as_written, visible
from stateanalytics.core.windows import Moment, read_moment, read_window
from stateanalytics.errors import ArgumentError
from stateanalytics.io.outputs import write_output
from stateanalytics.reporting.material import Material, Plain
from stateanalytics.state.policy import Policy, checked_policy

if TYPE_CHECKING:
    from stateanalytics.detectors.catalogue import Chosen
    from stateanalytics.summaries.summary import Summary

__all__ = ["Report", "report"]

_WORTH_A_PROCESS = 20_000
"""Entities: with fewer, the numbers are ready before the drawing process is."""


def report(
    snap: Facts | Summary,
    *,
    window: object = None,
    compare: object = "previous",
    as_known_at: Moment | None = None,
    policy: Policy | None = None,
    sections: Iterable[str] | None = None,
    detectors: Chosen | None = None,
    by: str | Iterable[str] = (),
    ledger: object = None,
    prices: str | Path | None = None,
    changes: object = None,
    tz: str | None = None,
    redact: bool = True,
    title: str | None = None,
    shown: bool | None = None,
) -> Report:
    """What happened in a window: five numbers, what needs attention, why work failed.

    Parameters
    ----------
    snap : Facts, Snapshot or Summary
        From `read`; or a summary from `summarize`, for the report of an ISO week, by default
        the last one that is over, with the sections that weekly counts allow.
    window : str or pair of moments, optional
        An ISO week such as ``"2026-W21"``, ``"last-week"``, or ``(since, until)``, half-open, in
        UTC; by default the seven days up to as-of. See `stateanalytics.core.windows.read_window`.
    compare : str, pair of moments, or None
        The window that the five numbers are compared with: ``"previous"`` (the same length,
        right before), ``"last-week"``, any window, or None. See
        `stateanalytics.reporting.changes.earlier_window`.
    as_known_at : datetime, date, ISO text or epoch seconds, optional
        Report what was known at this instant, such as the end of the window: rows that were
        written later do not count. By default what is known now; the section on late data then
        shows what arrived after the end of the window.
    policy : Policy, optional
        The rules of states; by default that of ADR-0033.
    sections : iterable of str, optional
        Sections to include, such as ``["attention", "durations"]``; all by default. Only these
        are computed. The five numbers of the headline are always included.
    detectors : str, Detector or sequence of them, optional
        Which rules for stale, stuck, slow and dead to compare, as for `detectors.detect`:
        ``"all"``, ``"system@version"``, names. By default those of the current releases.
    by : str or iterable of str, optional
        Further columns to compare failure shares by: ``"model"``, or a column of your own
        table, joined by the column that both have, ``"teams.owner"``.
    ledger : path or polars.DataFrame, optional
        Owners of failures: a file for `failures.owners`, or its result. The ids of faults are
        those of a ``faults.csv`` next to it, where there is one: see `failures.register`.
    prices : str or pathlib.Path, optional
        A file with your own prices for the estimates of costs, as for `failures.prices`.
    changes : path or polars.DataFrame, optional
        What changed, and when, as for `changes`.
    tz : str, optional
        The reader's time zone, such as ``"Europe/Berlin"``: weeks begin there on Monday at
        midnight, and the page shows its clock where it names no other. UTC by default.
    redact : bool
        Mask what looks like a secret; the report counts what was masked.
    title : str, optional
        Heading.
    shown : bool, optional
        Show progress; by default on a terminal.

    Returns
    -------
    Report
        With all numbers; the page is rendered when it is needed.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, the policy is no policy, a window makes no sense, or a
        section is not known; the message lists the sections. If ``as_known_at`` lies after
        as-of, or before the first row.

    Examples
    --------
    >>> from stateanalytics.snapshot import demo
    >>> week = report(demo(), window="2026-W21", sections=["headline"])
    >>> [number["title"] for number in week.summary["headline"]["numbers"]]
    ['Runs', 'Completed', 'Timed out', 'Need attention', 'Incidents', 'Median time to complete']
    >>> week.write_html("week.html")                                 # doctest: +SKIP
    """
    from stateanalytics.charts.report_charts import prepare
    from stateanalytics.detectors.catalogue import chosen_detectors
    from stateanalytics.failures.fault_registry import read_registry, registry_near
    from stateanalytics.failures.ownership import checked_ledger
    from stateanalytics.failures.run_costs import prices as price_table
    from stateanalytics.reporting.sections import choose_sections
    from stateanalytics.summaries.summary import Summary

    if isinstance(snap, Summary):
        from stateanalytics.reporting.summarize import summarize_sums

        _check_of_sums(compare, as_known_at, policy, ledger, prices, by or None, detectors, tz)
        summary = summarize_sums(snap, window, sections=sections, title=title, redact=redact)
        return Report(summary, is_redacted=redact)
    checked_snapshot(snap, "report")
    checked_policy(policy)
    from stateanalytics.reporting.changes import earlier_window
    from stateanalytics.reporting.summarize import summarize
    from stateanalytics.systems.history import facts_at
    from stateanalytics.systems.omissions import with_notes

    chosen = choose_sections(sections)
    rules = None if detectors is None else chosen_detectors(detectors, "report")
    owners = None if ledger is None else checked_ledger(ledger, "report")
    near = registry_near(None, ledger)
    registry = None if near is None else read_registry(near, "report")
    table = price_table(prices)
    facts = snap
    if as_known_at is not None:
        facts = with_notes(snap, facts_at(snap, read_moment(as_known_at, "as_known_at")))
    reported = read_window(window, as_of=facts.as_of, tz=tz)
    earlier = earlier_window(compare, reported, as_of=facts.as_of, tz=tz)
    if facts.entities.height >= _WORTH_A_PROCESS:
        prepare()
    with progress("report", 1 + len(chosen), shown=shown) as begin:
        begin("states")
        columns = (by,) if isinstance(by, str) else tuple(dict.fromkeys(by))
        own, judged_by = getattr(snap, "own_tables", {}), policy or Policy.v1()
        material = replace(
            Material.of(facts, reported, judged_by, by=columns, own=own, prices=table),
            ledger=owners,
            registry=registry,
            detectors=rules,
            declared=changes,
            zone=tz or "UTC",
        )
        if changes is not None:
            _ = material.changes  # a mistake in the file ends it before anything is computed
        summary = summarize(
            material, sections=chosen, earlier=earlier, title=title, redact=redact, begin=begin
        )
    files = [
        Path(name).expanduser()
        for name in (ledger, near, prices, changes)
        if isinstance(name, str | Path)
    ]
    return Report(summary, (*snap.inputs, *files), is_redacted=redact)


@dataclass(frozen=True)
class Report:
    """A finished report.

    Attributes
    ----------
    summary : dict
        Every number and sentence as plain data.
    inputs : tuple of Path
        Files and directories that were read, which are never written over.
    is_redacted : bool
        Whether secrets were masked; otherwise files are readable for their owner only.
    program : str
        How a shell runs this package, with which commands begin in all that is for people.
    """

    summary: Plain
    inputs: tuple[Path, ...] = field(default=(), repr=False)
    is_redacted: bool = True
    program: str = "stateanalytics"

    def as_html(self, *, is_full: bool = False) -> str:
        """The whole page: one file, no network, no script; ``is_full`` unfolds every section."""
        from stateanalytics.reporting.render import unfolded

        return unfolded(self._page) if is_full else self._page

    @cached_property
    def _page(self) -> str:
        from stateanalytics.reporting.render import render

        return render(self.summary, program=self.program)

    @cached_property
    def _with_program(self) -> Plain:
        from stateanalytics.reporting.entities import with_program

        return dict(with_program(self.summary, self.program))

    def as_email(self) -> str:
        """The first screen and a sentence of each section, styled for mail readers."""
        from stateanalytics.reporting.render import render_email

        return render_email(self._with_program)

    def as_json(self) -> str:
        """The same numbers as JSON, keys sorted, ending in a line break."""
        return json.dumps(self.summary, sort_keys=True, indent=1, allow_nan=False) + "\n"

    def as_markdown(self) -> str:
        """The first screen as Markdown for an issue or a chat; no text becomes markup."""
        from stateanalytics.reporting.digest import as_markdown

        return as_markdown(self._with_program)

    def as_slack(self) -> str:
        """The first screen as JSON for Slack: blocks of plain text, within its limits."""
        from stateanalytics.reporting.digest import as_slack

        return json.dumps(as_slack(self._with_program), ensure_ascii=False, indent=1) + "\n"

    def tripped(self, *kinds: str) -> list[str]:
        """Reasons for an alert of these kinds: ``new-critical``, ``regression``, ``coverage``."""
        from stateanalytics.reporting.first_screen import tripped

        return tripped(self.summary, kinds)

    def write_email(self, path: str | Path) -> Path:
        """Write `as_email` atomically and return the path."""
        return self._write(path, self.as_email())

    def write_slack(self, path: str | Path) -> Path:
        """Write `as_slack` atomically and return the path."""
        return self._write(path, self.as_slack())

    def write_markdown(self, path: str | Path) -> Path:
        """Write `as_markdown` atomically and return the path."""
        return self._write(path, self.as_markdown())

    def write_html(self, path: str | Path, *, is_full: bool = False) -> Path:
        """Write the page atomically and return its path; ``is_full`` unfolds every section."""
        return self._write(path, self.as_html(is_full=is_full))

    def write_json(self, path: str | Path) -> Path:
        """Write the numbers and return the path."""
        return self._write(path, self.as_json())

    def _write(self, path: str | Path, text: str) -> Path:
        return write_output(
            path, text.encode(), inputs=self.inputs, is_private=not self.is_redacted
        )

    def story(self) -> list[str]:
        """What to know and to do first, a line each: the verdict, costs, actions with commands."""
        from stateanalytics.reporting.first_screen import opening

        found = self._with_program
        cost = (found.get("story") or {}).get("cost")
        lines = [opening(found), *([f"Cost: {cost}"] if cost else ())]
        covered = found.get("coverage") or {}
        if any(covered.get(name) for name in ("outdated", "stale", "n_failed")):
            lines.append(covered["in_words"])
        for place, action in enumerate(found.get("actions", ()), 1):
            who = f" ({action['who']})" if action["who"] else ""
            lines += [f"{place}. {action['what']}{who}: {action['why']}", f"   {action['command']}"]
        lines += filter(None, [found.get("unassigned")])
        return [visible(line) for line in lines]

    def __repr__(self) -> str:
        label = self.summary["window"]["label"]
        return "\n".join([f"Report({label})", *self.story(), "Next: .write_html('week.html')"])

    def _repr_html_(self) -> str:
        first, *others = self.story()
        lead = visible(self.summary["lead"][0])
        cells = "".join(
            f"<tr><th scope='row'{CELL}>{html.escape(figure['title'])}</th>"
            f"<td{APART}>{html.escape(figure['shown'])}</td>"
            f"<td{APART}>{html.escape((figure.get('change') or {}).get('short') or '')}</td>"
            f"<td{CELL}>{html.escape(figure['note'])}</td></tr>"
            for figure in self.summary["headline"]["numbers"]
        )
        label = html.escape(self.summary["window"]["label"])
        return as_written(
            f"<p>{label}</p><p><strong>{html.escape(lead)}</strong>"
            f"{html.escape(first.removeprefix(lead))}</p><table>{cells}</table>"
            f"<p style='white-space:pre-wrap'>{html.escape(chr(10).join(others))}</p>"
            "<p>Whole report: <code>.write_html('week.html')</code></p>"
        )


def _check_of_sums(compare: object, *others: object) -> None:
    if any(other is not None for other in others) or compare not in ("previous", "none", None):
        raise ArgumentError(
            "A summary was counted at one instant by one policy, and already compares its weeks; "
            "found as_known_at, policy, by, ledger, prices, compare, detectors or tz.",
            'sa.report(summary, window="2026-W21"), or sa.summarize("history/", policy=…)',
            shell="omit --compare, --by, --ledger, --prices, --detectors, --tz and --as-known-at",
        )

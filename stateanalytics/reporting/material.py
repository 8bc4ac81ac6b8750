"""What every section of a report is made from, and how its texts are made safe to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import polars as pl

from stateanalytics import weekly_limits
from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import collected, with_group
from stateanalytics.core.redaction import redact_texts
from stateanalytics.core.schema import ENTITY_KEY, FINDING_SEVERITIES
from stateanalytics.core.text import shortened, texts_within, visible
from stateanalytics.core.windows import (
    TICK,
    WEEK,
    Window,
    instant,
    iso_week,
    minute_of,
    read_window,
    zone_of,
)
from stateanalytics.failures.call_outcomes import calls
from stateanalytics.failures.failure_rows import find_members
from stateanalytics.failures.fault_registry import with_registered
from stateanalytics.failures.incident_grouping import members_within_each
from stateanalytics.failures.run_costs import prices as price_table
from stateanalytics.queries import changes
from stateanalytics.state.definitions import RUN
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import (
    counted,
    is_counted,
    is_open_in,
    outdated_sources,
    population,
    within,
)
from stateanalytics.state.states import states as states_of
from stateanalytics.state.states import states_and_reasons
from stateanalytics.survival.run_spells import spells
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import System
from stateanalytics.systems.detector import Detector
from stateanalytics.systems.history import begins_of, rewound, without_settled_work
from stateanalytics.systems.linking import used_tokens

# Dicts, lists, texts, numbers and None: what JSON can hold, always in the same order.
Plain: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Material:
    """The facts, what was derived from them, and the part that the window holds.

    Attributes
    ----------
    facts : Facts
        Everything that was read.
    states, reasons : polars.DataFrame
        Derived at as-of under the policy.
    window : Window
        The stretch of time that is reported on.
    ever : polars.DataFrame
        The `population` of all time.
    rows : polars.DataFrame
        The `population` of the window.
    policy : Policy
        What the states were derived under.
    prices : polars.DataFrame
        List prices, from `failures.prices`.
    n_unknown : int
        Runs whose state at the end of the window is not recorded.
    ledger : polars.DataFrame or None
        Owners of failures, from `failures.owners`.
    registry : polars.DataFrame or None
        Ids of faults, from `failures.register`.
    by : sequence of str
        Further columns by which groups are compared in the section on the fleet.
    detectors : sequence of Detector, optional
        Those that are compared; by default those of the current releases about trouble.
    of_all : Material, optional
        The same without that exclusion, and without what the caller of the report chose, where
        there is one: see `whole`.
    declared : path or polars.DataFrame, optional
        What changed, as for `changes`.
    zone : str
        The time zone of its days.
    """

    facts: Facts
    states: pl.DataFrame
    reasons: pl.DataFrame
    window: Window
    ever: pl.DataFrame
    rows: pl.DataFrame
    policy: Policy
    prices: pl.DataFrame
    n_unknown: int = 0
    ledger: pl.DataFrame | None = None
    registry: pl.DataFrame | None = None
    by: Sequence[str] = ()
    detectors: Sequence[Detector] | None = None
    of_all: Material | None = None
    declared: object = None
    zone: str = "UTC"
    _mined: dict[str, pl.DataFrame] = field(default_factory=dict, repr=False)
    _mining_lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        facts: Facts,
        window: Window,
        policy: Policy,
        *,
        by: Sequence[str] = (),
        own: Mapping[str, pl.DataFrame] | None = None,
        prices: pl.DataFrame | None = None,
    ) -> Material:
        """Derive states and reasons once, and narrow the facts to the window.

        Open work is excluded if its source has no data within the window. To set the other
        choices of a caller, such as a ledger, replace the fields of the result.
        """
        states, reasons = states_and_reasons(facts, policy=policy)
        ever = population(facts.entities, states, as_of=facts.as_of)
        for name in by:
            ever = with_group(ever, name, own or {}, 'sa.report(snap, by="project")')
        rows = within(ever, window, as_of=facts.as_of)
        listed = price_table() if prices is None else prices
        every = cls(facts, states, reasons, window, ever, rows, policy, listed, by=by)
        outdated = outdated_sources(facts.sources, window)
        if outdated.is_empty():
            return every
        is_excluded = ever.select(is_open_in(outdated)).to_series()
        excluded = facts.entities.filter(is_excluded)
        states, reasons, ever, rows = (
            frame.join(excluded, on=ENTITY_KEY, how="anti", maintain_order="left")
            for frame in (states, reasons, ever, rows)
        )
        return replace(
            every,
            facts=replace(facts, entities=facts.entities.filter(~is_excluded)),
            states=states,
            reasons=reasons,
            ever=ever,
            rows=rows,
            of_all=every,
            _mined={},
            _mining_lock=Lock(),
        )

    @property
    def whole(self) -> Material:
        """The material of everything that was read, for sections that judge the whole store."""
        return self.of_all or self

    @property
    def outdated(self) -> pl.DataFrame:
        """Sources whose open work is excluded, because their data end before the window."""
        return outdated_sources(self.facts.sources, self.window)

    def over(self, window: Window) -> Material:
        """The facts over another window, with open runs as of the same delay after its end."""
        # The later one looks, the fewer runs are still open: both windows need the same delay.
        at = window.until + max(self.facts.as_of - self.window.until, -TICK)
        facts, ever = self.whole.facts, self.whole.ever
        if at >= facts.as_of:
            rows = within(ever, window, as_of=facts.as_of, sources=facts.sources)
            return replace(self, window=window, rows=rows)
        past = rewound(without_settled_work(facts, at, ever["is_open"]), at)
        judged = states_of(past.facts, policy=self.policy)
        at_end = population(past.facts.entities, judged, as_of=past.at)
        # A run counts as ended even if its end was recorded later, so that none counts twice.
        of_window = within(ever.lazy(), window, as_of=facts.as_of)
        is_old = is_open_in(outdated_sources(facts.sources, window))
        ended = of_window.filter(~pl.col("is_open")).collect()
        had_begun = pl.coalesce("started_at", "created_at") < instant(window.until)
        is_unknown = pl.col("is_lost") & (pl.col("entity_type") == "session")
        others = (
            at_end.lazy()
            .with_columns(is_lost=past.lost["status"])
            .filter(pl.col("is_open") | is_unknown, had_begun.fill_null(value=True), ~is_old)
            .join(ended.lazy(), on=ENTITY_KEY, how="anti", maintain_order="left")
            .collect()
        )
        still_open = others.filter("is_open")[at_end.columns]
        return replace(
            self,
            window=window,
            rows=pl.concat([ended, still_open], how="diagonal"),
            n_unknown=others.filter(is_unknown).height,
        )

    @cached_property
    def systems_read(self) -> list[System]:
        """Systems of the inputs and of the entities."""
        frames = (self.facts.sources, self.facts.entities)
        read = {name for frame in frames for name in frame["system"].unique()}
        return [known for known in all_systems() if known.name in read]

    @property
    def failed_ever(self) -> pl.DataFrame:
        """The `members` of all time, mined once for all windows: clusters keep their ids."""
        with self._mining_lock:  # sections are made in parallel
            if "ever" not in self._mined:
                rows = find_members(self.facts, rows=self.ever)
                self._mined["ever"] = with_registered(rows, self.registry, "report")
        return self._mined["ever"]

    @cached_property
    def attempts(self) -> pl.DataFrame:
        """The `spells` of all time."""
        return spells(self.facts, rows=self.ever)

    @cached_property
    def calls(self) -> pl.DataFrame:
        """The `calls` of the facts."""
        return calls(self.facts)

    @cached_property
    def changes(self) -> pl.DataFrame:
        """The `changes` of the facts, and those that are declared."""
        return changes(self.facts, self.declared, rows=self.ever, tz=self.zone)

    @cached_property
    def earlier_windows(self) -> list[Window]:
        """Adjacent earlier windows of the same length that the data cover completely."""
        window = self.window
        length = window.until - window.since
        moment = pl.min_horizontal("created_at", "started_at", "ended_at")
        begins = self.ever.select(moment.filter(~pl.col("is_open")).min()).item()
        if begins is None:
            return []
        n = min(weekly_limits.MOST_WEEKS - 1, (window.since - begins) // length)
        if (monday := self._monday) is not None:
            names = [iso_week(monday - WEEK * back) for back in range(n, 0, -1)]
            weeks = [read_window(name, as_of=self.facts.as_of, tz=self.zone) for name in names]
            return [replace(week, label=name) for week, name in zip(weeks, names, strict=True)]
        since = [window.since - length * back for back in range(n, 0, -1)]
        return [Window(moment, moment + length, self._name_of(moment)) for moment in since]

    @cached_property
    def named_window(self) -> Window:
        """The window under the name that it has among the earlier ones."""
        monday = self._monday
        name = self._name_of(self.window.since) if monday is None else iso_week(monday)
        return replace(self.window, label=name)

    def _name_of(self, moment: datetime) -> str:
        """The name of a window that is no week: its first day, or moment, in its zone."""
        moment = moment.astimezone(zone_of(self.zone))
        return f"{moment:%Y-%m-%d}" if self.window.days >= 1 else f"{moment:%Y-%m-%d %H:%M}"

    @property
    def _monday(self) -> date | None:
        """The first day of the window, if it is a week of the calendar of its zone."""
        ends = (self.window.since, self.window.until)
        since, until = (end.astimezone(zone_of(self.zone)) for end in ends)
        is_week = until.date() - since.date() == WEEK and since.isoweekday() == 1
        return since.date() if is_week and since.time() == until.time() == time.min else None

    @cached_property
    def numbers(self) -> pl.DataFrame:
        """The `numbers_of_ended` of earlier windows and this one."""
        windows = [*self.earlier_windows, self.named_window]
        failed = dict(zip(windows, self.failed_in(*windows), strict=True))
        return weekly_limits.numbers_of_ended(self.ever, self.failed_ever, failed, self.facts.as_of)

    @cached_property
    def times(self) -> pl.DataFrame:
        """The median times to complete of the window and of earlier ones; empty: too few."""
        if len(self.earlier_windows) + 1 < weekly_limits.FEWEST_WEEKS:
            return pl.DataFrame(schema=dict.fromkeys(("week", "group_kind", "group_id"), pl.String))
        windows = [*self.earlier_windows, self.named_window]
        return weekly_limits.times_of_started(self.attempts, windows, self.facts.as_of)

    @cached_property
    def used(self) -> pl.DataFrame:
        """The `used_tokens` of the facts."""
        return used_tokens(self.facts)

    @cached_property
    def begins_of(self) -> dict[str, datetime]:
        """When the data of each source begin."""
        return begins_of(self.facts.entities)

    @property
    def begins(self) -> datetime | None:
        """When the data begin."""
        return min(self.begins_of.values(), default=None)

    @cached_property
    def as_of(self) -> str:
        """The instant of the states for people, on the clock of its zone."""
        return minute_of(self.facts.as_of, zone_of(self.zone))

    @property
    def arguments(self) -> str:
        """The window as arguments of a command."""
        return arguments_of(self.window, self.facts.as_of)

    def failed_in(self, *windows: Window) -> list[pl.DataFrame]:
        """The `members` of each window, with the incidents that it shows."""
        ever, names = self.failed_ever, [f"{each.since} {each.until}" for each in windows]
        with self._mining_lock:
            missing = [
                each for name, each in zip(names, windows, strict=True) if name not in self._mined
            ]
            mined = members_within_each(ever, missing, self.facts.as_of, self.begins_of)
            self._mined.update((f"{each.since} {each.until}", mined[each]) for each in missing)
        return [self._mined[name] for name in names]

    @property
    def failed(self) -> pl.DataFrame:
        """The `failed_in` of the window of the report."""
        return self.failed_in(self.window)[0]

    @property
    def counted_rows(self) -> pl.DataFrame:
        """Everything of the window that rates count, without parts and repeats."""
        return counted(self.rows)

    @property
    def runs(self) -> pl.DataFrame:
        """The runs that rates count: sessions, without those that are excluded."""
        return counted(self.rows, RUN)

    @property
    def ended_runs(self) -> pl.LazyFrame:
        """Those of `runs` that have ended; lazy, because they are many."""
        return self.rows.lazy().filter(is_counted(RUN), ~pl.col("is_open"))

    @cached_property
    def open_runs(self) -> pl.DataFrame:
        """Those of `runs` that are open at as-of."""
        return self.rows.filter(is_counted(RUN), "is_open")


def arguments_of(window: Window, as_of: datetime) -> str:
    """A window as arguments of a command."""
    year, week, day = window.since.isocalendar()
    if day == 1 and window == read_window(f"{year}-W{week:02}", as_of=as_of):
        return f"--week {year}-W{week:02}"
    since = f"--since {iso(window.since)}"
    return since if window.until > as_of else f"{since} --until {iso(window.until)}"


def iso(moment: datetime | None) -> str | None:
    """A moment as ISO text in UTC, whole seconds."""
    return None if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def plain_rows(frame: pl.DataFrame, columns: Sequence[str] | None = None) -> list[Plain]:
    """The rows of a small frame as plain data."""
    chosen = frame if columns is None else frame[list(columns)]
    return [
        {name: iso(value) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in chosen.iter_rows(named=True)
    ]


def tally(frame: pl.DataFrame, column: str) -> Mapping[str, int]:
    """Number of rows by value of a column; nulls are not counted."""
    counts = frame[column].cast(pl.String).value_counts(sort=False)
    return dict(sorted(row for row in counts.iter_rows() if row[0] is not None))


def findings_by_code(findings: pl.DataFrame, *, most_rows_first: bool = False) -> pl.DataFrame:
    """Problems in the data by code, the most severe first, each with an example."""
    order = {name: place for place, name in enumerate(FINDING_SEVERITIES)}
    # A severity of a plug-in that is not known here comes last.
    place = pl.col("severity").replace_strict(order, default=len(order), return_dtype=pl.Int8)
    return (
        findings.lazy()
        .sort("source", "table", "column", "entity_type", "entity_id", "example")
        .group_by("code", "severity", maintain_order=True)
        .agg(
            pl.col("message", "example", "action").drop_nulls().first(),
            n_findings=pl.len(),
            n_rows=pl.col("n_rows").fill_null(1).sum(),
        )
        .sort(place, *([-pl.col("n_rows")] if most_rows_first else []), "code")
        .pipe(collected)
    )


class Section(NamedTuple):
    """One part of the page.

    Attributes
    ----------
    name : str
        Its key in the summary, and the name of its template.
    label : str
        Its name in the contents of the page.
    summarize : callable
        From material to plain data.
    place : int
        Its place on the page; in tens, so that another fits between two. Below `FOR_OPERATORS`
        it is part of what everybody reads.
    needs : tuple of str
        Keys of its summary, one of which has something to show; none if it always has.
    """

    name: str
    label: str
    summarize: Callable[[Material], Plain]
    place: int
    needs: tuple[str, ...] = ()

    def has_content(self, summary: Plain) -> bool:
        """Whether there is something to show in the section of this summary."""
        return not self.needs or any(summary.get(key) for key in self.needs)


FOR_OPERATORS = 30
"""Sections from this place on are for those who operate agents."""

# Longer texts are cut before control characters are escaped. Most shown texts are shorter.
LONGEST_READ = 4_000
LONGEST_SHOWN = 400
_PASTED = ("command", "place", "stop")
"""Texts that people paste into a shell. One that is too long is not shown at all."""


def clean(plain: Any, *, secrets: bool) -> tuple[Any, Counter[str]]:
    """Plain data with every text made safe to show, and the number of secrets masked by kind.

    Parameters
    ----------
    plain : dict, list, str, float, int, bool or None
        A summary. Keys are ours and stay; every text may be hostile.
    secrets : bool
        Whether to mask secrets too; control characters are always made visible and
        long texts always cut, except for commands.
    """
    texts = list(texts_within(plain))
    # Half of a surrogate pair cannot be encoded as UTF-8; it is shown as an escape.
    encodable = pl.Series(
        [text.encode(errors="backslashreplace").decode() for text in texts], dtype=pl.String
    )
    # Secrets are masked before texts are cut: half of a secret is not recognised.
    masked, n_masked = redact_texts(encodable) if secrets else (encodable, Counter[str]())
    whole = dict(zip(texts, masked, strict=True))
    shown = {text: _shown(clean_text) for text, clean_text in whole.items()}

    def walk(part: Any, key: str = "") -> Any:
        if isinstance(part, str):
            if key in _PASTED:
                return visible(whole[part]) if len(part) <= LONGEST_READ else ""
            return shown[part]
        if isinstance(part, Mapping):
            return {key: walk(value, key) for key, value in part.items()}
        return [walk(value) for value in part] if isinstance(part, list) else part

    return walk(plain), n_masked


def _shown(text: str) -> str:
    escaped = visible(text[:LONGEST_READ])
    return shortened(escaped + "…" if len(text) > LONGEST_READ else escaped, LONGEST_SHOWN)

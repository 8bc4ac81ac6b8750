"""The ledger of a report, and what changed each number from one report to another.

The numbers of a report say that something changed; its ledger, one short line for each run,
says which runs changed it. A line holds no text of a store: ids, incidents and facts are
digests. To compare two reports, the first ledger is turned into the second in steps, one cause
at a time. Each step changes the numbers by its runs, so that all steps add up; what they do
not explain is a step of its own and never hidden.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core.schema import DIFF, ENTITY_KEY
from stateanalytics.core.windows import instant
from stateanalytics.core.words import first_word
from stateanalytics.errors import ArgumentError, SourceNotFoundError, in_short
from stateanalytics.io.files import read_octets, unreadable
from stateanalytics.reporting.material import Material, Plain
from stateanalytics.state.definitions import FAILURES, TROUBLE, cause_key, ended_well, is_failure

FIELDS = ("run", "source", "began", "placed", "ending", "is_in_trouble", "incident", "facts")
"""The fields of a line, in order; see `Line`."""

LATER = "later"
"""The ending of a run that was open when the window ended, and has ended since."""

NOTHING = "-"
_FACTS = (
    *("raw_status", "started_at", "ended_at", "last_activity_at", "reason_code", "invocation_id"),
    *("process_alive", "recorded_by"),
)


class Line(NamedTuple):
    """A run in the ledger.

    Attributes
    ----------
    run : str
        Digest of its system and id; the same in every report.
    source : int
        Which input of the report it came from, from 0.
    began, placed : int or None
        Epoch seconds of its start, else creation; and of the moment that placed it in a window.
    ending : str
        ``open``, ``good``, ``timed_out``, ``failed``, ``other``; ``later`` where it began before
        the end of the window and ended after it, so that a later window counts it;
        ``left_out`` where no rate counts it.
    is_in_trouble : bool
        Whether its severity is critical or warning.
    incident : str or None
        Digest of the incident that it failed in, made from the first of its causes by name, so
        that most later rows do not change it.
    facts : str
        Digest of what is stored about it, independent of the policy.
    """

    run: str
    source: int
    began: int | None
    placed: int | None
    ending: str
    is_in_trouble: bool
    incident: str | None
    facts: str


def write_ledger(material: Material) -> list[str]:
    """The lines of a ledger as texts, sorted by run."""
    columns = [pl.col(name).cast(pl.String).fill_null(NOTHING) for name in FIELDS]
    shown = _lines(material).with_columns(pl.col("is_in_trouble").cast(pl.Int8))
    return shown.select(pl.concat_str(columns, separator=" ").sort()).to_series().to_list()


def _lines(material: Material) -> pl.DataFrame:
    """`FIELDS` of every run, and its ``entity_id``."""
    labels = material.facts.sources["source"].to_list()
    places = {label: place for place, label in enumerate(labels)}
    began = pl.coalesce("started_at", "created_at")
    runs = _runs(material).with_columns(
        place=pl.col("source").replace_strict(places, default=-1, return_dtype=pl.Int64),
        # The label of an input may change between reports; its position rarely does.
        cause=pl.when(pl.col("ending").is_in(FAILURES)).then(
            cause_key().str.strip_prefix(pl.col("source") + "|")
        ),
        # Two inputs may have the same id.
        duplicate=pl.int_range(pl.len()).over("system", "entity_id"),
    )
    incidents = material.failed.select(*ENTITY_KEY, "incident_id").unique(ENTITY_KEY)
    cause, is_alone = pl.format("{}|{}", "place", "cause"), pl.col("incident_id").is_null()
    first_cause = cause.min().over("incident_id")
    system, identity = (pl.col(name).fill_null("None") for name in ("system", "entity_id"))
    facts = [pl.col(name).cast(pl.String).fill_null(NOTHING) for name in _FACTS]
    return (
        runs.join(incidents.lazy(), on=ENTITY_KEY, how="left", maintain_order="left")
        .select(
            "entity_id",
            "ending",
            run=_digests(pl.format("{}|{}|{}", system, identity, "duplicate"), 16),
            source="place",
            began=began.dt.epoch("s"),
            placed=pl.col("placed_at").dt.epoch("s"),
            is_in_trouble=pl.col("severity").is_in(list(TROUBLE)).fill_null(value=False),
            incident=_digests(pl.when(is_alone).then(cause).otherwise(first_cause), 12),
            facts=_digests(pl.concat_str(facts, separator="|"), 8),
        )
        .collect()
    )


def _runs(material: Material) -> pl.LazyFrame:
    """The sessions of the window, and those that began before its end and ended after it."""
    is_session = pl.col("entity_type") == "session"
    until, began = instant(material.window.until), pl.coalesce("started_at", "created_at")
    ended_later = ~pl.col("is_open") & (began < until) & (pl.col("placed_at") >= until)
    is_future = (pl.col("left_out") == "future").fill_null(value=False)
    later = material.ever.lazy().filter(is_session, ended_later, ~is_future)
    is_left_out = pl.col("left_out").is_not_null()
    later_ending = pl.when(is_left_out).then(pl.lit("left_out")).otherwise(pl.lit(LATER))
    ending = first_word(
        "other",
        left_out=is_left_out,
        open="is_open",
        good=ended_well(),
        timed_out=is_failure() & (pl.col("outcome") == "timed_out"),
        failed=is_failure(),
    )
    here = material.rows.lazy().filter(is_session).with_columns(ending=ending)
    return pl.concat([here, later.with_columns(ending=later_ending)])


def _digests(texts: pl.Expr, length: int) -> pl.Expr:
    """Digests of texts, in a Python loop: polars has no hash that is stable across versions."""

    def digest(text: str) -> str:
        return hashlib.blake2b(text.encode(), digest_size=length // 2).hexdigest()

    return texts.map_elements(digest, return_dtype=pl.String)


def read_ledger(lines: object) -> dict[str, Line]:
    """The lines of a report, by run.

    Raises
    ------
    ArgumentError
        If they are not the lines of a ledger.

    Examples
    --------
    >>> line = "00ff00ff00ff00ff 0 1779840000 1779840600 good 0 - 1a2b3c4d"
    >>> read_ledger([line])["00ff00ff00ff00ff"].ending
    'good'
    """
    try:
        read = [_line(text) for text in lines]  # type: ignore[attr-defined]
    except (TypeError, ValueError, AttributeError) as error:
        raise ArgumentError(
            f"The ledger of the report cannot be read: {error!s:.80}.",
            "write the report's JSON again: stateanalytics report … --json",
        ) from None
    return {line.run: line for line in read}


def _line(text: str) -> Line:
    run, source, began, placed, ending, trouble, cause, facts = text.split(" ")
    began_s, placed_s = (None if at == NOTHING else int(at) for at in (began, placed))
    incident = None if cause == NOTHING else cause
    return Line(run, int(source), began_s, placed_s, ending, trouble == "1", incident, facts)


def is_within(line: Line, since: datetime, until: datetime) -> bool:
    """Whether a window counts a run, by the rule of `population.population`."""
    begin, end = since.timestamp(), until.timestamp()
    if line.ending == "open":
        return line.began is None or line.began < end
    return line.placed is not None and begin <= line.placed < end


_HINT = "stateanalytics report state.db --json writes week.json next to week.html"
Ledger = dict[str, Line]

CAUSES = (
    "another input",
    "another window",
    "removed rows",
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
"""Causes in the order of the steps; the last is the remainder."""


class Side(NamedTuple):
    """A report, with what is needed to compare its runs."""

    ledger: Ledger
    sources: tuple[str, ...]
    since: datetime
    until: datetime
    as_of: datetime
    policy: str

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Side:
        """The side of a report from its JSON."""
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
            raise ArgumentError(f"The JSON of a report lacks {error!s:.60}.", _HINT) from None

    @classmethod
    def of_material(cls, material: Material) -> tuple[Side, dict[str, str]]:
        """The side of a report that is being made, and the ids of its runs."""
        lines, facts, window = _lines(material), material.facts, material.window
        ledger = {row[0]: Line(*row) for row in lines.select(FIELDS).iter_rows()}
        sources = tuple(facts.sources["source"])
        side = cls(
            ledger, sources, window.since, window.until, facts.as_of, material.policy.version
        )
        return side, dict(lines.select("run", "entity_id").iter_rows())

    def has_input_of(self, line: Line, other: Side) -> bool:
        """Whether the other report has the input of a run, by name or by shared runs."""
        if not 0 <= line.source < len(self.sources):
            return False
        if self.sources[line.source] in other.sources:
            return True
        return any(
            own.source == line.source and run in other.ledger for run, own in self.ledger.items()
        )


def cause_of(run: str, before: Side, after: Side) -> str | None:
    """The cause of a change of a run between two reports; None where nothing changed."""
    was, now = before.ledger.get(run), after.ledger.get(run)
    if now is None:
        return _departure(was, before, after) if was else None
    if was is None:
        return _arrival(now, before, after)
    if _counted_as(was) == _counted_as(now):
        return None
    if LATER in (was.ending, now.ending) and not is_open(was) and before.until != after.until:
        return "another window"
    if was.facts == now.facts:
        is_regrouped = _counted_as(was)[:-1] == _counted_as(now)[:-1]
        return "another grouping" if is_regrouped else _other_rules(was, before, after)
    is_closed = is_open(was) and (has_ended(now) or now.ending == LATER)
    return "closed censoring" if is_closed else "changed rows"


def _other_rules(was: Line, before: Side, after: Side) -> str:
    """Why a run that was not written to has another state: the policy, the as-of, or both."""
    has_policy, has_instant = before.policy != after.policy, before.as_of != after.as_of
    if has_policy and (not is_open(was) or not has_instant):
        return "another policy"
    if has_instant and not has_policy:
        return "another as-of"
    return "another policy or as-of" if has_policy else "changed rows"


def _arrival(now: Line, before: Side, after: Side) -> str:
    if not after.has_input_of(now, before):
        return "another input"
    if now.began is not None and now.began > before.as_of.timestamp():
        return "new rows"
    return "late rows" if is_within(now, before.since, before.until) else "another window"


def _departure(was: Line, before: Side, after: Side) -> str:
    if not before.has_input_of(was, after):
        return "another input"
    # Open work may have ended outside of the window; the ledger does not record where.
    return "removed rows" if is_within(was, after.since, after.until) else "another window"


def _counted_as(line: Line) -> tuple[str, bool, str | None]:
    """How the numbers count a run."""
    return line.ending, line.is_in_trouble and is_open(line), line.incident


def is_open(line: Line) -> bool:
    """Whether a run was open at as-of."""
    return line.ending == "open"


def has_ended(line: Line) -> bool:
    """Whether a number counts a run as ended in its window."""
    return line.ending not in ("open", "left_out", LATER)


def is_counted(line: Line | None) -> bool:
    """Whether any number of the window counts a run."""
    return line is not None and line.ending not in ("left_out", LATER)


MAX_REPORT_BYTES = 512_000_000
_NUMBERS = ("runs", "completed", "timed_out", "unresolved", "incidents")


def diff(last: Any, this: Any) -> pl.DataFrame:
    """What changed each headline number from one report to another.

    Parameters
    ----------
    last, this : Report, dict, str or pathlib.Path
        Reports, their summaries, or their JSON files.

    Returns
    -------
    polars.DataFrame
        `DIFF`: for each of the five numbers, a row for every cause that changed it, in the
        order of `CAUSES`, and always a row for the unexplained rest, so that the changes of a
        number add up from the first report to the second. If two weeks have no run in common,
        the causes are the outcomes of their runs, such as *runs that failed*.

    Raises
    ------
    ArgumentError
        If either is no report, or was written without a ledger.
    SourceNotFoundError
        If there is no such file.

    Notes
    -----
    *New rows* began after the as-of of the first report; *late rows* began before it and were
    not stored yet. *Closed censoring* is work that was open and has ended since. *Changed
    rows* have another stored value: new activity, a correction. Where nothing stored about a
    run changed, its state changed because of *another policy* or *another as-of*; if a run is
    still open and both differ, the two cannot be separated. Failures of *another grouping* are
    related to other failures than before, and count as more or fewer incidents.

    Runs change a share by entering or leaving its numerator or denominator, so the size of a
    step depends on the order of the steps; their sum does not.

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
        # No run is in both weeks: they differ by the outcomes of their runs.
        why = {run: _outcome_of(run, cause, before, after) for run, cause in why.items()}
        causes = (*causes, *sorted({cause for cause in why.values() if cause} - set(causes)))
    by_cause = {
        cause: [run for run, its_cause in why.items() if its_cause == cause] for cause in causes
    }
    ids = {**_late_ids(first), **_late_ids(second)}
    rows = []
    for name in _NUMBERS:
        value, last = _stated(first, name), _stated(second, name)
        for cause, change, relevant in _changes(name, by_cause, before, after):
            # Where a ledger does not reproduce its own headline, the difference is unexplained.
            of = None if value.of is None or change.of is None else value.of + change.of
            changed = _Number(value.n + change.n, of, last.title)
            runs = sorted(ids.get(run, run) for run in relevant)
            if runs or (changed.n, changed.of) != (value.n, value.of):
                rows.append(_step(name, cause, runs, value, changed))
            value = changed
        rows.append(_step(name, "unexplained", None, value, last))
    return DIFF.conform(pl.DataFrame(rows, schema=DIFF.dtypes))


def _changes(
    name: str, by_cause: Mapping[str, list[str]], before: Side, after: Side
) -> Iterator[tuple[str, _Number, list[str]]]:
    """Turn the first ledger into the second: causes, changes, and runs counted differently."""
    count_runs, ledger = _COUNTS[name], dict(before.ledger)
    for cause, runs in by_cause.items():
        if not runs:
            continue
        was = count_runs(ledger)
        for run in runs:
            ledger.pop(run, None)
            if run in after.ledger:
                ledger[run] = after.ledger[run]
        now = count_runs(ledger)
        of = None if was.of is None or now.of is None else now.of - was.of
        relevant = [run for run in runs if _is_counted_differently(run, name, before, after)]
        yield cause, _Number(now.n - was.n, of), relevant


def _outcome_of(run: str, cause: str | None, before: Side, after: Side) -> str | None:
    """The outcome of a run that only one of the weeks has."""
    if cause != "another window":
        return cause
    line = after.ledger.get(run) or before.ledger[run]
    return f"runs that {_OUTCOMES.get(line.ending, 'had another outcome')}"


_OUTCOMES = {"good": "completed", "timed_out": "timed out", "open": "were open", "failed": "failed"}


class _Number(NamedTuple):
    """A headline number: a count, or a count and its denominator."""

    n: int
    of: int | None
    title: str = ""

    @property
    def value(self) -> float | None:
        if self.of is None:
            return float(self.n)
        return self.n / self.of if self.of else None


def _is_counted_differently(run: str, name: str, before: Side, after: Side) -> bool:
    """Whether a number counts a run differently in the two reports."""
    was, now = (
        (_COUNTS[name]({run: line} if line else {}), line.incident if line else None)
        for line in (before.ledger.get(run), after.ledger.get(run))
    )
    return was != now if name == "incidents" else was[0] != now[0]


def _share_of(good: Callable[[Line], bool], whole: Callable[[Line], bool]) -> Any:
    def count(ledger: Ledger) -> _Number:
        of = [line for line in ledger.values() if whole(line)]
        return _Number(sum(good(line) for line in of), len(of))

    return count


_COUNTS: Mapping[str, Callable[[Ledger], _Number]] = {
    "runs": lambda ledger: _Number(sum(is_counted(line) for line in ledger.values()), None),
    "completed": _share_of(lambda line: line.ending == "good", has_ended),
    "timed_out": _share_of(lambda line: line.ending == "timed_out", has_ended),
    "unresolved": _share_of(lambda line: line.is_in_trouble, is_open),
    "incidents": lambda ledger: _Number(
        len({line.incident for line in ledger.values() if line.incident is not None}), None
    ),
}


def _stated(summary: Mapping[str, Any], name: str) -> _Number:
    """A number as the report shows it."""
    try:
        number = next(one for one in summary["headline"]["numbers"] if one["name"] == name)
        return _Number(int(number["n"]), number["of"], str(number["title"]))
    except (KeyError, TypeError, ValueError, StopIteration):
        raise ArgumentError(f"The JSON of a report has no number {name!r}.", _HINT) from None


def _late_ids(summary: Mapping[str, Any]) -> dict[str, str]:
    """Ids of the late runs, by digest."""
    late = summary.get("late")
    rows = late.get("rows") if isinstance(late, Mapping) else None
    return {
        str(row["run"]): str(row["entity_id"])
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, Mapping) and row.keys() >= {"run", "entity_id"}
    }


def _step(name: str, cause: str, runs: list[str] | None, before: _Number, after: _Number) -> Plain:
    has_both = before.value is not None and after.value is not None
    return {
        "number": name,
        "title": after.title,
        "cause": cause,
        "runs": runs,
        "n_runs": None if runs is None else len(runs),
        "n_before": before.n,
        "n_after": after.n,
        "of_before": before.of,
        "of_after": after.of,
        "before": before.value,
        "after": after.value,
        "change": after.value - before.value if has_both else None,  # type: ignore[operator]
    }


def _summary(given: Any, which: str) -> Mapping[str, Any]:
    """The summary of a report, a dict or a JSON file."""
    # A `Report` has its summary; to import the class here would close a circle.
    given = getattr(given, "summary", given)
    if isinstance(given, str | Path):
        given = _from_file(Path(given).expanduser())
    if not isinstance(given, Mapping) or "headline" not in given:
        raise ArgumentError(f"diff needs two reports; {which} is {in_short(given)}.", _HINT)
    if "ledger" not in given:
        raise ArgumentError(
            f"The report {which} has no ledger, so its runs are not known.",
            "write it again with this version: stateanalytics report … --json",
        )
    return given


def _from_file(path: Path) -> Any:
    try:
        octets, _ = read_octets(path, MAX_REPORT_BYTES)
        return json.loads(octets.decode("utf-8"))
    except FileNotFoundError:
        raise unreadable("report", path, None, f"; {_HINT}", kind=SourceNotFoundError) from None
    except (ValueError, RecursionError):
        problem = f"{str(path)!r} should be the JSON of a report, but is not JSON."
        raise ArgumentError(problem, _HINT) from None
    except OSError as error:
        raise unreadable("report", path, error.strerror or str(error), f"; {_HINT}") from None

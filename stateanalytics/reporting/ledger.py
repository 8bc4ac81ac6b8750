"""Every run of a report in one line, and what moved each number from one report to another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core.schema import DIFF, ENTITY_KEY
from stateanalytics.errors import ArgumentError, SourceNotFoundError, in_short
from stateanalytics.io.files import read_octets, unreadable
from stateanalytics.reporting.material import Material, Plain
from stateanalytics.state.definitions import (
    FAILURES,
    TROUBLE,
    cause_key,
    ended_well,
    is_failure,
)

FIELDS = ("run", "source", "began", "placed", "ending", "is_in_trouble", "incident", "facts")
"""What the words of a line are: see `Line`."""

LATER = "later"
"""The ending of a run that was open when the window ended, and has ended since."""

NOTHING = "-"
_FACTS = (
    "raw_status",
    "started_at",
    "ended_at",
    "last_activity_at",
    "reason_code",
    "invocation_id",
    "process_alive",
    "recorded_by",
)


class Line(NamedTuple):
    """One run.

    Attributes
    ----------
    run : str
        Digest of its system and id; the same in every report.
    source : int
        Which input of the report it came from, from 0.
    began, placed : int or None
        Epoch seconds: its start, else creation; the moment that placed it in the window.
    ending : str
        ``open``, ``good``, ``timed_out``, ``failed``, ``other``; ``later``: it began before
        the end of the window and ended after it, so that a later window counts it;
        ``left_out``: no rate counts it.
    is_in_trouble : bool
        Is its severity critical or warning.
    incident : str or None
        Digest of the incident that it failed in: of the first by name of its causes, so that
        most of what comes later leaves it as it is.
    facts : str
        Digest of what is stored about it, whatever a policy makes of it.
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
    """The runs of a report as texts, in order of their digest."""
    words = [pl.col(name).cast(pl.String).fill_null(NOTHING) for name in FIELDS]
    shown = _lines(material).with_columns(pl.col("is_in_trouble").cast(pl.Int8))
    return shown.select(pl.concat_str(words, separator=" ").sort()).to_series().to_list()


def ledger_of(material: Material) -> tuple[dict[str, Line], dict[str, str]]:
    """The runs of a report by their digest, and the ids behind the digests.

    Runs that rates leave out are there too, and those that were open when the window ended.
    """
    lines = _lines(material)
    ledger = {row[0]: Line(*row) for row in lines.select(FIELDS).iter_rows()}
    return ledger, dict(lines.select("run", "entity_id").iter_rows())


def _lines(material: Material) -> pl.DataFrame:
    """`FIELDS` of every run, and its ``entity_id``."""
    labels = material.facts.sources["source"].to_list()
    places = {label: place for place, label in enumerate(labels)}
    began = pl.coalesce("started_at", "created_at")
    runs = _runs(material).with_columns(
        place=pl.col("source").replace_strict(places, default=-1, return_dtype=pl.Int64),
        # The label of an input may change from report to report; its place rarely does.
        cause=pl.when(pl.col("ending").is_in(FAILURES)).then(
            cause_key().str.strip_prefix(pl.col("source") + "|")
        ),
        # Ids of two inputs may be the same.
        again=pl.int_range(pl.len()).over("system", "entity_id"),
    )
    together = material.failed.select(*ENTITY_KEY, "incident_id").unique(ENTITY_KEY)
    cause = pl.format("{}|{}", "place", "cause")
    system, identity = (pl.col(name).fill_null("None") for name in ("system", "entity_id"))
    facts = [pl.col(name).cast(pl.String).fill_null(NOTHING) for name in _FACTS]
    return (
        runs.join(together.lazy(), on=ENTITY_KEY, how="left", maintain_order="left")
        .select(
            "entity_id",
            "ending",
            run=_digests(pl.format("{}|{}|{}", system, identity, "again"), 16),
            source="place",
            began=began.dt.epoch("s"),
            placed=pl.col("placed_at").dt.epoch("s"),
            is_in_trouble=pl.col("severity").is_in(list(TROUBLE)).fill_null(value=False),
            incident=_digests(
                pl.when(pl.col("incident_id").is_null())
                .then(cause)
                .otherwise(cause.min().over("incident_id")),
                12,
            ),
            facts=_digests(pl.concat_str(facts, separator="|"), 8),
        )
        .collect()
    )


def _runs(material: Material) -> pl.LazyFrame:
    """The sessions of the window, and those that ended only after it but began before."""
    is_session = pl.col("entity_type") == "session"
    until, began = material.window.until, pl.coalesce("started_at", "created_at")
    ended_later = ~pl.col("is_open") & (began < until) & (pl.col("placed_at") >= until)
    is_future = (pl.col("left_out") == "future").fill_null(value=False)
    later = material.ever.lazy().filter(is_session, ended_later, ~is_future)
    is_left_out = pl.col("left_out").is_not_null()
    put_off = pl.when(is_left_out).then(pl.lit("left_out")).otherwise(pl.lit(LATER))
    return pl.concat(
        [
            material.rows.lazy().filter(is_session).with_columns(ending=_ending()),
            later.with_columns(ending=put_off),
        ]
    )


def _ending() -> pl.Expr:
    return (
        pl.when(pl.col("left_out").is_not_null())
        .then(pl.lit("left_out"))
        .when("is_open")
        .then(pl.lit("open"))
        .when(ended_well())
        .then(pl.lit("good"))
        .when(is_failure())
        .then(
            pl.when(pl.col("outcome") == "timed_out")
            .then(pl.lit("timed_out"))
            .otherwise(pl.lit("failed"))
        )
        .otherwise(pl.lit("other"))
    )


def _digests(texts: pl.Expr, length: int) -> pl.Expr:
    """Digests of texts. Hashing is all that the loop does: an engine's is no faster."""

    def each(column: pl.Series) -> pl.Series:
        digests = [
            None
            if text is None
            else hashlib.blake2b(text.encode(), digest_size=length // 2).hexdigest()
            for text in column.to_list()
        ]
        return pl.Series(column.name, digests, dtype=pl.String)

    return texts.map_batches(each, return_dtype=pl.String)


def read_ledger(lines: object) -> dict[str, Line]:
    """The lines of a report, by run.

    Raises
    ------
    ArgumentError
        If they are no ledger.

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
    return Line(
        run,
        int(source),
        None if began == NOTHING else int(began),
        None if placed == NOTHING else int(placed),
        ending,
        trouble == "1",
        None if cause == NOTHING else cause,
        facts,
    )


def is_within(line: Line, since: datetime, until: datetime) -> bool:
    """Does a window count a run, by the rule of `population.population`."""
    begin, end = since.timestamp(), until.timestamp()
    if line.ending == "open":
        return line.began is None or line.began < end
    return line.placed is not None and begin <= line.placed < end


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
            reached = (at.n + now.n - was.n, _shifted(at.of, was.of, now.of))
            if concerned or reached != (at.n, at.of):
                named = sorted(names.get(run, run) for run in concerned)
                steps.append(_step(name, cause, named, at, _Number(*reached)))
            at = _Number(*reached)
        steps.append(_step(name, "unexplained", None, at, meant))
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


def _shifted(at: int | None, was: int | None, now: int | None) -> int | None:
    return None if at is None or was is None or now is None else at + now - was


def _step(name: str, cause: str, runs: list[str] | None, at: _Number, then: _Number) -> Plain:
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
    # A `Report` has its summary; to import the class here would close a circle.
    given = getattr(given, "summary", given)
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

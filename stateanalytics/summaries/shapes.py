"""The frames of a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stateanalytics.core.schema import (
    INTEGER,
    REAL,
    SPELLS,
    TEXT,
    YES_NO,
    Column,
    Entities,
    Findings,
    Frame,
    Sources,
    States,
)
from stateanalytics.core.shapes import (
    Anything,
    Columns,
    Integer,
    Moment,
    Real,
    Text,
    Words,
    YesNo,
    frame,
)
from stateanalytics.detectors.quality import SUMS

DIFFERENCES = ("worse", "better", "more", "less", "no_difference", "not_enough_data")

GROUPED_BY = ("source", "system", "entity_type", "kind", "agent", "model", "project", "playbook")
"""Columns by which runs and silences may be grouped: names, and no text of a message."""


class _Dated(Columns):
    week = Text("ISO week in which it ended; null: open, or undated")


class _Counted(Columns):
    n = Integer("how many")


class _Seen(Columns):
    first_at = Moment("the first of them")
    last_at = Moment("the last of them")


class _Sources(Columns, key=("source", "system"), name="sources"):
    """One input."""

    source = Sources.source
    system = Sources.system
    format = Sources.format
    fingerprint = Sources.fingerprint
    n_entities = Sources.n_entities
    n_events = Sources.n_events
    last_at = Sources.last_at
    looked_at = Sources.looked_at
    is_unchanged = Sources.is_unchanged
    work_sample = Text("digests of some of its work; null: none has a date")


class _Losses(Columns, key=("source", "code", "message"), name="losses"):
    """What an input lacks."""

    source = Findings.source
    system = Findings.system
    table = Findings.table
    code = Findings.code
    n_rows = Findings.n_rows
    message = Findings.message
    action = Findings.action


class _States(_Dated, key=("week", "began_week", "system", "entity_type"), name="states"):
    """Entities of one week and state."""

    began_week = Text("ISO week in which it began; null: not known")
    system = Entities.system
    entity_type = Entities.entity_type
    lifecycle = States.lifecycle
    outcome = States.outcome
    health = States.health
    delivery = States.delivery
    severity = States.severity
    tone = States.tone
    is_legacy = States.is_legacy
    is_open = YesNo("not ended, by a status that is understood")
    is_mirror = YesNo("another row records the same work")
    left_out = Text("why no rate counts it; null: counted")
    has_failed = YesNo("it is a failure, by what its system calls one")
    counted = _Counted


class _Codes(_Dated, key=("week", "system", "code"), name="codes"):
    """Failures of one week and reason code."""

    system = Sources.system
    code = Text("the stored reason code; null: none")
    n_rows = Integer("failed and timed-out entities, each work once")
    n_failed = Integer("of them failed")
    n_timed_out = Integer("of them timed out")
    n_sessions = Integer("sessions among whose work they are")
    n_causes = Integer("distinct pairs of request and code")
    n_run_causes = Integer("those of runs")
    seen = _Seen


class _Groups(_Dated, key=("week", "source", "system", "project"), name="groups"):
    """Ended runs of one week, source and project."""

    source = Entities.source
    system = Entities.system
    project = Entities.project
    n_ended = Integer("runs that ended")
    n_failed = Integer("of them failed or timed out")
    n_causes = Integer("their distinct causes")


_OF_UNITS = ("week", "is_open", "n_runs", "n_completed", "n_timed_out", "n_unresolved")


class _Units(_Dated, key=_OF_UNITS, name="units"):
    """Units (shows, invocations) of one week with equal numbers of runs by outcome."""

    is_open = YesNo("their runs that have not ended; else those that have")
    n_runs = Integer("such runs of a unit")
    n_completed = Integer("of them completed")
    n_timed_out = Integer("of them timed out")
    n_unresolved = Integer("of them that need attention")
    counted = _Counted


class _Templates(Columns, key=("system", "code", "pattern_id"), name="templates"):
    """Failures of one code and message pattern."""

    system = Sources.system
    code = _Codes.code
    pattern_id = Text("digest of the masked message; null: there is none")
    pattern = Text("the masked message, or its template; null: in too few runs")
    n_rows = Integer("failed and timed-out entities")
    n_sessions = _Codes.n_sessions
    seen = _Seen


_SPELL = SPELLS.named("timeout_s", "duration_s", "ending", "ended", "cause", "cut_off_by",
                      "left_out")  # fmt: skip
_FIXED = (_Sources, _Losses, _States, _Codes, _Groups, _Units, _Templates)
FIXED = {shape.name: shape for shape in map(frame, _FIXED)}
"""By name the frames that are the same in every summary."""

FRAMES = ("sources", "losses", "states", "codes", "groups", "units", "spells", "silences",
          "detections", "templates")  # fmt: skip
"""All of them, as they stand in a `Summary`."""


def shapes_of(by: Sequence[str], detectors: Sequence[str]) -> Mapping[str, Frame]:
    """The shapes of all frames of a summary with these grouping columns and detectors."""
    columns = [Column(name, TEXT, "a column that groups") for name in by]
    spells = [column for column in _SPELL if column.name not in by]
    sums = [
        Column(name, INTEGER, "as in `gap_sums`", "us" if name.endswith("_us") else "")
        for name in SUMS
    ]
    n = frame(_Counted).columns
    answers = [Column(name, YES_NO, "whether it fires; null: not covered") for name in detectors]
    own = (
        Frame("spells", "runs that took equally long", tuple(by), (*columns, *spells, *n)),
        Frame(
            "silences",
            "silences compared with one threshold",
            (*by, "threshold_s"),
            (*columns, Column("threshold_s", REAL, "flags longer silences", "s"), *sums),
        ),
        Frame("detections", "entities with the same answers of detectors", (), (*answers, *n)),
    )
    shapes = {**FIXED, **{shape.name: shape for shape in own}}
    return {name: shapes[name] for name in FRAMES}


class Compared(Columns):
    """One group of a measure, in one window or step of it."""

    by = Anything("a column that `by` names; null: not known", name="<by>")
    since = Moment("start of the window or step")
    until = Moment("its end, which is not part of it")
    value = Real("the measure, in its own unit; null: not known")
    low = Real("lower end of its 95 % interval, by independent units; null: cannot tell")
    high = Real("upper end")
    n = Integer("how many have it; of costs and durations: of how many it is known")
    n_of = Integer("of how many runs, failed runs, attempts or calls")
    n_units = Integer("the independent units (requests, projects, sessions, incidents) behind it")
    value_before = Real("the same of the window or step that is compared with")
    low_before = Real("lower end of its 95 % interval")
    high_before = Real("upper end")
    n_before = Integer("how many had it there")
    n_of_before = Integer("of how many")
    difference = Real(
        "value less value_before; of failures, incidents and lost cost for as many ended runs as "
        "in the window, of another sum for as many days of data"
    )
    difference_low = Real("lower end of its 95 % interval")
    difference_high = Real("upper end")
    q_value = Real("false discovery rate at which it is significant; null: too few to tell")
    verdict = Words(DIFFERENCES, "worse, better, more, less, no_difference or not_enough_data")


COMPARED = frame(Compared)

"""The frames of a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stateanalytics.core.schema import (
    ENTITIES,
    FINDINGS,
    INTEGER,
    MOMENT,
    REAL,
    SOURCES,
    SPELLS,
    STATES,
    TEXT,
    YES_NO,
    Column,
    Frame,
)
from stateanalytics.core.shapes import Anything, Columns, Integer, Moment, Real, Words, frame
from stateanalytics.detectors.quality import SUMS

DIFFERENCES = ("worse", "better", "more", "less", "no_difference", "not_enough_data")

N = Column("n", INTEGER, "how many")

GROUPED_BY = ("source", "system", "entity_type", "kind", "agent", "model", "project", "playbook")
"""Columns by which runs and silences may be grouped: names, and no text of a message."""

_SYSTEM = SOURCES.named("system")
_WEEK = Column("week", TEXT, "ISO week in which it ended; null: open, or undated")
_CODE = Column("code", TEXT, "the stored reason code; null: none")
_SEEN = (
    Column("first_at", MOMENT, "the first of them"),
    Column("last_at", MOMENT, "the last of them"),
)
_SHAPES = (
    Frame(
        "sources",
        "one input",
        ("source", "system"),
        (
            *SOURCES.named("source", "system", "format", "fingerprint", "n_entities", "n_events"),
            *SOURCES.named("last_at", "looked_at", "is_unchanged"),
            Column("work_sample", TEXT, "digests of some of its work; null: none has a date"),
        ),
    ),
    Frame(
        "losses",
        "what an input lacks",
        ("source", "code", "message"),
        FINDINGS.named("source", "system", "table", "code", "n_rows", "message", "action"),
    ),
    Frame(
        "states",
        "entities of one week and state",
        ("week", "began_week", "system", "entity_type"),
        (
            _WEEK,
            Column("began_week", TEXT, "ISO week in which it began; null: not known"),
            *ENTITIES.named("system", "entity_type"),
            *STATES.named("lifecycle", "outcome", "health", "delivery", "severity", "tone"),
            *STATES.named("is_legacy"),
            Column("is_open", YES_NO, "not ended, by a status that is understood"),
            Column("is_mirror", YES_NO, "another row records the same work"),
            Column("left_out", TEXT, "why no rate counts it; null: counted"),
            Column("has_failed", YES_NO, "it is a failure, by what its system calls one"),
            N,
        ),
    ),
    Frame(
        "codes",
        "failures of one week and reason code",
        ("week", "system", "code"),
        (
            _WEEK,
            *_SYSTEM,
            _CODE,
            Column("n_rows", INTEGER, "failed and timed-out entities, each work once"),
            Column("n_failed", INTEGER, "of them failed"),
            Column("n_timed_out", INTEGER, "of them timed out"),
            Column("n_sessions", INTEGER, "sessions among whose work they are"),
            Column("n_causes", INTEGER, "distinct pairs of request and code"),
            Column("n_run_causes", INTEGER, "those of runs"),
            *_SEEN,
        ),
    ),
    Frame(
        "groups",
        "ended runs of one week, source and project",
        ("week", "source", "system", "project"),
        (
            _WEEK,
            *ENTITIES.named("source", "system", "project"),
            Column("n_ended", INTEGER, "runs that ended"),
            Column("n_failed", INTEGER, "of them failed or timed out"),
            Column("n_causes", INTEGER, "their distinct causes"),
        ),
    ),
    Frame(
        "units",
        "units (shows, invocations) of one week with equal numbers of runs by outcome",
        ("week", "is_open", "n_runs", "n_completed", "n_timed_out", "n_unresolved"),
        (
            _WEEK,
            Column("is_open", YES_NO, "their runs that have not ended; else those that have"),
            Column("n_runs", INTEGER, "such runs of a unit"),
            Column("n_completed", INTEGER, "of them completed"),
            Column("n_timed_out", INTEGER, "of them timed out"),
            Column("n_unresolved", INTEGER, "of them that need attention"),
            N,
        ),
    ),
    Frame(
        "templates",
        "failures of one code and message pattern",
        ("system", "code", "pattern_id"),
        (
            *_SYSTEM,
            _CODE,
            Column("pattern_id", TEXT, "digest of the masked message; null: there is none"),
            Column("pattern", TEXT, "the masked message, or its template; null: in too few runs"),
            Column("n_rows", INTEGER, "failed and timed-out entities"),
            Column("n_sessions", INTEGER, "sessions among whose work they are"),
            *_SEEN,
        ),
    ),
)
_SPELL = SPELLS.named("timeout_s", "duration_s", "ending", "ended", "cause", "cut_off_by",
                      "left_out")  # fmt: skip
FIXED = {shape.name: shape for shape in _SHAPES}
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
    answers = [Column(name, YES_NO, "whether it fires; null: not covered") for name in detectors]
    own = (
        Frame("spells", "runs that took equally long", tuple(by), (*columns, *spells, N)),
        Frame(
            "silences",
            "silences compared with one threshold",
            (*by, "threshold_s"),
            (*columns, Column("threshold_s", REAL, "flags longer silences", "s"), *sums),
        ),
        Frame("detections", "entities with the same answers of detectors", (), (*answers, N)),
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

"""The frames that only SQL can name: tables about the snapshot, and predefined views.

The views are the dashboard of ADR-0017: its queries, over normalized facts and relative to
as-of instead of the clock. Where ADR-0025 moved a threshold, the policy's value counts.
Each view is a file of SQL in ``data/``.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from stateanalytics.core import schema
from stateanalytics.core.shapes import Columns, Integer, Moment, Real, Text, Words, YesNo, frame


class Snapshot(Columns, key=("as_of",)):
    """The snapshot itself; one row."""

    as_of = Moment("the instant that ages are measured at; SQL: as_of()")
    as_of_from = Text("its origin: given, data, clock")
    policy_version = Text("policy of `states`, `reasons` and `attention`")
    slow_after_s = Real("age at which a running session counts as slow", unit="s")
    n_sources = Integer("inputs")
    has_bodies = YesNo("were texts of messages read: `read(bodies=True)`, or `--bodies`")


SNAPSHOT = frame(Snapshot)


class Tables(Columns, key=("name",)):
    """One table that SQL can name."""

    name = Text("name of the table")
    row = Text("what a row of it is")
    key = Text("columns that identify a row, joined by ', '")


TABLES = frame(Tables)


class ColumnsTable(Columns, name="columns", key=("frame", "column")):
    """One column of one table."""

    frame = Text("name of the table")
    column = Text("name of the column")
    dtype = Text("type in frames; '' where it depends on the data")
    unit = Text("unit, where there is one")
    meaning = Text("what it holds; null always means not known")


COLUMNS = frame(ColumnsTable)


class ReasonCodes(Columns, key=("code",)):
    """One reason code of the registry."""

    code = Text("the code, as in `reasons` and `entities`")
    origin = Text("who defines it: a system, adr0033 or stateanalytics")
    entity_types = Text("entity types with this code, joined by |")
    statuses = Text("statuses that it is written with, in words")
    meaning = Text("the reason in words")
    what_to_do = Text("the operator's next step")
    is_emitted = YesNo("does shipped code ever write it")
    emitted_by = Text("the part of the code that writes it, by its name there; '': not known")
    since_release = Text("the release it began with; '': not known")
    since_date = Text("the day it began; '': not known")
    since_commit = Text("the commit it began with; '': not known")
    constant = Text("the name of the constant that holds it; '': none")
    nearest = Text("codes that mean nearly the same, joined by |")
    domain = Text("its first segment: run, play, schedule, …")


REASON_CODES = frame(ReasonCodes)


SESSION_KEY = ("source", "system", "session_id")


class SessionKey(Columns, key=SESSION_KEY):
    """One session."""

    source = schema.EntityKey.source
    system = schema.EntityKey.system
    session_id = Text("id of the session")


class ErrorCounts(SessionKey, key=SESSION_KEY):
    """The errors of tools in one session, counted when it is first named."""

    n_tool_answers = Integer("calls of tools with a result")
    n_tool_errors = Integer("of these, those that failed or timed out, as `failures` counts them")
    n_pruned = Integer("of these, with a result that was removed: nothing is known")


ERROR_COUNTS = frame(ErrorCounts)


class SessionView(SessionKey):
    """One session."""

    name = schema.Entities.name
    kind = schema.Entities.kind
    agent = schema.Entities.agent
    model = schema.Entities.model


class RunningSessions(SessionView, key=SESSION_KEY):
    """One session that is running (ADR-0017: running)."""

    started_at = schema.Entities.started_at
    age_s = schema.States.age_s
    silence_s = schema.States.silence_s
    effective_state = schema.States.effective_state
    severity = schema.States.severity


class Failed24h(SessionView, name="failed_24h", key=SESSION_KEY):
    """One session that failed in the 24 hours up to as-of (ADR-0017: failed, not timed out)."""

    ended_at = schema.Entities.ended_at
    duration_s = schema.States.duration_s
    reason_code = schema.Entities.reason_code
    reason_message = schema.Entities.reason_message


class SlowSessions(RunningSessions, key=SESSION_KEY):
    """One running session older than the policy's `slow_after_s`."""


class NeedsReview(SessionView, key=SESSION_KEY):
    """One session with gated, escalated or blocked plays (ADR-0017: needs review)."""

    n_plays = Integer("plays of the session that wait")
    play_statuses = Text("their stored statuses, joined by ', '")


class SessionsAndPlays(SessionKey, key=("source", "system", "play_id")):
    """One play joined to its session: did it run, was its output accepted (ADR-0017)."""

    play_id = Text("id of the play")
    play_name = Text("name of the play")
    session_status = Text("stored status of the session; null: no session")
    play_status = Text("stored status of the play")
    session_outcome = Words(schema.OUTCOMES, "did it run")
    play_outcome = Words(schema.OUTCOMES, "was the output accepted")


@dataclass(frozen=True)
class View:
    """A predefined view: the frame it gives, and its SQL."""

    frame: schema.Frame
    sql: str


def _view(shape: type[Columns]) -> View:
    of_view = frame(shape)
    file = resources.files(__package__).joinpath("data", f"{of_view.name}.sql")
    return View(of_view, file.read_text("utf-8").strip())


ENTITY_STATES = View(
    schema.Frame(
        "entity_states",
        "one entity with its facts and its state",
        schema.ENTITY_KEY,
        (*schema.ENTITIES.columns, *schema.STATES.columns[len(schema.ENTITY_KEY) :]),
    ),
    "SELECT * FROM entities JOIN states USING (source, system, entity_type, entity_id)",
)
VIEWS = (
    ENTITY_STATES,
    *map(_view, (RunningSessions, Failed24h, SlowSessions, NeedsReview, SessionsAndPlays)),
)

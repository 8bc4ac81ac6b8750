"""Ready questions as SQL views, with the same documentation as any frame.

The dashboard of ADR-0017 is here: its queries, over normalized facts and relative to
as-of instead of the clock. Where ADR-0025 moved a threshold, the policy's value counts.
Each view is a file of SQL in ``data/``, its frame a class of `sql.frames`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from stateanalytics.core.schema import ENTITIES, ENTITY_KEY, STATES, Frame
from stateanalytics.sql.frames import READY_QUESTIONS


@dataclass(frozen=True)
class View:
    """A ready question: the frame it gives, and its SQL."""

    frame: Frame
    sql: str


ENTITY_STATES = View(
    Frame(
        "entity_states",
        "one entity with its facts and its state",
        ENTITY_KEY,
        (*ENTITIES.columns, *STATES.columns[len(ENTITY_KEY) :]),
    ),
    "SELECT * FROM entities JOIN states USING (source, system, entity_type, entity_id)",
)


def _sql(frame: Frame) -> str:
    return resources.files(__package__).joinpath("data", f"{frame.name}.sql").read_text("utf-8")


VIEWS = (ENTITY_STATES, *(View(frame, _sql(frame).rstrip()) for frame in READY_QUESTIONS))

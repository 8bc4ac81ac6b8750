"""The frames that only lionagi fills; their columns are ``data/columns.csv``."""

from __future__ import annotations

from stateanalytics.core.schema import Frame
from stateanalytics.systems.columns import frames_from_csv

_FRAMES = frames_from_csv(
    __package__,
    {
        "lionagi_schedules": (
            "one lionagi schedule, with the facts its health is judged by",
            ("source", "schedule_id"),
        ),
        "lionagi_fires": (
            "one run of a schedule, and what fired it",
            ("source", "schedule_run_id"),
        ),
        "lionagi_dispositions": (
            "what an operator decided about one attention item (ADR-0030)",
            ("source", "item_id"),
        ),
        "lionagi_decisions": (
            "one decision of an operator about an attention item, the withdrawn ones too",
            ("source", "item_id", "at", "seq"),
        ),
        "lionagi_runs": ("one run directory beside the store", ("source", "run_id")),
        "lionagi_shows_on_disk": (
            "one show or play directory: what the disk says (it wins over the store, #1161)",
            ("source", "topic", "play"),
        ),
    },
)
SCHEDULES, FIRES, DISPOSITIONS, DECISIONS, RUNS, SHOWS_ON_DISK = _FRAMES


def frames() -> tuple[Frame, ...]:
    """Them, in the order of the schema."""
    return _FRAMES


def dispositions() -> Frame:
    """The one of what operators decided."""
    return DISPOSITIONS

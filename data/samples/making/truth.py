"""What was meant by each row, written down before anything reads it back."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

_CRITICAL_HEALTH = ("process_dead", "orphaned", "stalled", "misfired")
_WARNING_HEALTH = ("idle", "degraded", "disconnected")
_GOOD = ("succeeded", "completed", "merged")


@dataclass
class Truth:
    """One entity of the store, as it was meant at as-of.

    Empty text and None mean: does not apply, or is not known. ``duration_s`` is how
    long the work really took, which the row does not always say; ``timeout_from`` says
    where a reader can find the limit.
    """

    entity_type: str
    entity_id: str
    scenario: str
    lifecycle: str
    outcome: str = ""
    health: str = ""
    delivery: str = ""
    severity: str = ""
    reason_code: str = ""
    cause: str = ""
    template_id: str = ""
    duration_s: float | None = None
    ended_by: str = ""
    timeout_s: float | None = None
    timeout_from: str = ""
    n_messages: int | None = None
    n_tool_errors: int | None = None
    is_legacy: bool = False

    def __post_init__(self) -> None:
        """Severity follows from the other axes."""
        self.severity = severity(self.outcome, self.health, self.delivery)


def severity(outcome: str, health: str, delivery: str) -> str:
    """ADR-0033's cascade, spelled out."""
    ladder = (
        (outcome in ("failed", "aborted"), "critical"),
        (health in ("process_dead", "orphaned"), "critical"),
        (delivery == "missing", "critical"),
        (health in ("stalled", "misfired"), "critical"),
        (outcome == "timed_out", "warning"),
        (health in _WARNING_HEALTH, "warning"),
        (delivery in ("partial", "invalid"), "warning"),
        (health in ("running", "due"), "info"),
        (outcome == "skipped", "info"),
    )
    return next((word for applies, word in ladder if applies), "neutral")


def write_csv(path: Path, rows: Iterable[Truth]) -> None:
    """One line an entity, sorted, so that two runs can be compared line by line."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Truth)], lineterminator="\n")
        writer.writeheader()
        for row in sorted(rows, key=lambda row: (row.entity_type, row.scenario, row.entity_id)):
            writer.writerow(_cells(row))


def _cells(row: Truth) -> dict[str, object]:
    cells = asdict(row)
    for name in ("duration_s", "timeout_s"):
        cells[name] = "" if cells[name] is None else f"{cells[name]:.3f}"
    cells["is_legacy"] = str(row.is_legacy).lower()
    return cells

"""lionagi's detectors, in the order of its catalogue."""

from __future__ import annotations

from stateanalytics.systems.detector import Detector
from stateanalytics.systems.lionagi.detectors.attention import attention_pages
from stateanalytics.systems.lionagi.detectors.pages import pages
from stateanalytics.systems.lionagi.detectors.reapers import closers
from stateanalytics.systems.lionagi.detectors.stored import stored
from stateanalytics.systems.lionagi.detectors.watchdogs import proposals, schedules, watchdogs


def detectors() -> tuple[Detector, ...]:
    """Every rule of lionagi that calls work stale, stuck, slow or dead."""
    return (
        *stored(),
        *pages(),
        *attention_pages(),
        *closers(),
        *watchdogs(),
        *schedules(),
        *proposals(),
    )

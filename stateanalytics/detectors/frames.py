"""The frames of detectors, like those of `schema`: ``data/frames.csv`` and ``data/columns.csv``."""

from __future__ import annotations

from stateanalytics.core.schema import ENTITIES, frames_of

_OWN = frames_of(__package__, ENTITIES)
DETECTORS, DETECTIONS, ALARMS, AGREEMENT, AGREEMENT_OVERALL = _OWN[:5]
DISAGREEMENTS, DISAGREEMENT_CAUSES = _OWN[5:7]

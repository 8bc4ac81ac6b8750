"""The frames of failures that SQL can name: ``data/frames.csv`` and ``data/columns.csv``."""

from __future__ import annotations

from stateanalytics.core.schema import ENTITIES, frames_of

FAILURES, FAILURE_CLUSTERS, *_ = frames_of(__package__, ENTITIES)

"""opencode: databases, event logs, streams and exports of every era."""

from stateanalytics.systems.opencode.places import find
from stateanalytics.systems.opencode.reading import read

__all__ = ["find", "read"]

"""opencode: databases, event logs, streams and exports of every era.

How events add up is a rule, so that this package imports `stateanalytics.rules.opencode`,
which imports no source.
"""

from stateanalytics.sources.opencode.finding import find
from stateanalytics.sources.opencode.reading import read

__all__ = ["find", "read"]

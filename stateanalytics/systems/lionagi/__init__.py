"""lionagi's ``state.db``, releases 0.26.0 to 0.36.0, and the files that lie beside it."""

from stateanalytics.systems.lionagi.reading import read, recognises
from stateanalytics.systems.lionagi.tool_errors import count_errors

__all__ = ["count_errors", "read", "recognises"]

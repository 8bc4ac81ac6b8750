"""Agent Orchestrator: session files of every generation, their logs, and two databases.

How Agent Orchestrator itself reads a record is a rule, so that this package imports
`stateanalytics.rules.agent_orchestrator` (which imports no source). Records are opened and
parsed one by one, as files are; everything after that is one pass over frames.
"""

from stateanalytics.sources.agent_orchestrator.finding import find
from stateanalytics.sources.agent_orchestrator.reading import read

__all__ = ["find", "read"]

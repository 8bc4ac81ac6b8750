"""Agent Orchestrator: session files of every generation, their logs, and two databases."""

from stateanalytics.systems.agent_orchestrator.places import find
from stateanalytics.systems.agent_orchestrator.reading import read

__all__ = ["find", "read"]

"""The only place that opens files: one module a system, and the readers they share."""

from stateanalytics.sources.places import usual_places
from stateanalytics.sources.reading import read_facts

__all__ = ["read_facts", "usual_places"]

"""What is left of a store once it is counted: small, and it adds up over a fleet.

Every statistic of this package is a sum over stores. `summarize` counts one store, on
whatever machine it lies; `merge` adds the counts, to the same numbers that one read of
all stores would give.
"""

from stateanalytics.summaries.counting import summarize
from stateanalytics.summaries.merging import merge
from stateanalytics.summaries.summary import Summary

__all__ = ["Summary", "merge", "summarize"]

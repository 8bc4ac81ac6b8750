"""Counts of stores: small, and they add up over a fleet.

Every statistic of this package is a sum over stores. `summarize` counts one store, or an
archive source by source, on whatever machine it lies; `merge` adds the counts, to the same
numbers that one read of all stores would give. No message is in them.
"""

from stateanalytics.summaries.counts import summarize as summarize
from stateanalytics.summaries.summary import Summary as Summary
from stateanalytics.summaries.summary import merge as merge

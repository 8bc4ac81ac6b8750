"""Counts of stores: small, and additive over a fleet.

`summarize` counts one store, or an archive source by source, on any machine; `merge` adds
the counts, and the sums are those of one read of all stores. They hold no messages.
"""

from stateanalytics.summaries.counts import summarize as summarize
from stateanalytics.summaries.summary import Summary as Summary
from stateanalytics.summaries.summary import merge as merge

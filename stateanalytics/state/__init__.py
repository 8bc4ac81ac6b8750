"""Facts to NormalizedState, as named Narwhals expressions over facts and ages.

Where to find what:

* `policy`: every threshold and choice, as data; every word is in `stateanalytics.core.vocabulary`.
* `lifecycle`, `health`, `severity`: the rules of each axis; delivery is in `lifecycle`.
* `evaluate`: all rules over all rows; `display`, `states`, `reasons`: the words that follow.
* `definitions`, `population`: what the words of every count mean, and which rows it counts.
* `attention`: the entities that need a look, and what operators decided about them.

No rule knows a system. Facts that only a system knows are in the ``recorded_`` columns of
``entities`` and in its limits (`System.limits`).
"""

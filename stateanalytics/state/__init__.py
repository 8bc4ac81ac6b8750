"""Facts to NormalizedState, as named Narwhals expressions over facts and ages.

What a reader looks for, and where it is:

* `policy`: every threshold and choice, as data; every word is in `stateanalytics.core.vocabulary`.
* `lifecycle`, `health`, `severity`: the rules of each axis; delivery is in `lifecycle`.
* `evaluate`: all rules over all rows; `display`, `states`, `reasons`: the words that follow.
* `definitions`, `population`: what the words of every count mean, and which rows it counts.
* `attention`: what needs a look, and what was decided about it.

No rule knows a system: what only a system knows stands in the ``recorded_`` columns of
``entities``, and in its limits (`System.limits`).
"""

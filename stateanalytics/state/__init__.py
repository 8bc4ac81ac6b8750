"""Facts to NormalizedState, as named Narwhals expressions over facts and ages.

What a reader looks for, and where it is:

* `policy`: every threshold and choice, as data; every word is in `stateanalytics.core.vocabulary`.
* `severity`: the cascade, also for frames of one's own.
* `lifecycle`, `health`, `open_work`, `delivery`, `links`: what is derived, and why.
* `evaluate`, `signatures`, `display`, `states`, `reasons`: all of it over all rows.
* `definitions`, `population`: what the words of every count mean, and which rows it counts.
* `attention`, `reason_codes`: what needs a look; what every code means.

No rule knows a system: what only a system knows stands in the ``recorded_`` columns of
``entities``, and in its limits (`System.limits`).
"""

"""Facts to NormalizedState, as named Narwhals expressions over facts and ages.

What a reader looks for, and where it is:

* `policy`: every threshold and choice, as data; every word is in `stateanalytics.core.vocabulary`.
* `severity`, `session_health`, `staleness`: rules for frames of one's own.
* `lifecycle`, `health`, `delivery`, `links`: what is derived for an entity, and why.
* `evaluate`, `signatures`, `states`, `reasons`: all of it over all rows.
* `comparison`, `checks`: two policies; what a policy leaves unsaid.
* `engines`, `clock`: the door that makes one rule run on polars, DuckDB and Spark.
"""

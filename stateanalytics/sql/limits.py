"""What one query may take."""

MEMORY_BYTES = 2 * 1024**3
RESULT_BYTES = 1024**3
LONGEST_QUERY = 100_000
LONGEST_TEXT = 100_000
# What one call may add to one value: the engine works on 2048 values before it looks up.
MOST_GROWTH = 500_000
# What a result may be made of; Arrow hands over types of at most 64 levels.
MOST_COLUMNS = 2_000
MOST_FIELDS = 10_000
DEEPEST_TYPE = 30

# A plan can double with every level of these, and planning cannot be interrupted.
MOST_STARS = 16
DEEPEST_DOUBLING = 8
DEEPEST_QUERY = 20
# DuckDB 2.0 parses WITH inside unfinished WITH in exponential time and memory.
DEEPEST_WITH = 4

"""What a query may call and take: functions of a list, every other one is refused, and limits.

`data/functions.txt` lists what is allowed, and not what is forbidden: a function that a later
DuckDB brings is refused until somebody has looked at it. Excluded are functions that read files
or settings, run text as SQL, keep state, wait, read the clock, or build values without a
bound; `WHY_NOT` says which, for those that people are likely to try.
"""

from __future__ import annotations

import re
from pathlib import Path


def _words(*texts: str) -> frozenset[str]:
    return frozenset(" ".join(texts).split())


_LISTED = Path(__file__).with_name("data") / "functions.txt"
FUNCTIONS = _words(*re.findall(r"(?m)^(?!# ).+", _LISTED.read_text("utf-8")))

TABLE_FUNCTIONS = _words("range generate_series unnest json_each json_tree")

# Aggregates whose value grows with its rows: over a window that is one copy for every row.
GROWING = _words(
    "array_agg list group_concat string_agg listagg histogram histogram_exact",
    "json_group_array json_group_object json_group_structure",
)

# Macros that write an argument twice: inside one another they double what is to be planned.
DOUBLING = _words(
    "array_pop_back array_to_string array_to_string_comma_default fmod json_group_array",
    "json_group_object nullif split_part wavg weighted_avg",
)

# Words that DuckDB takes for a call although they have no parentheses.
CLOCK_WORDS = _words(
    "current_date current_time current_timestamp localtime localtimestamp",
    "current_localtime current_localtimestamp",
)

# Words that name the engine's user and database, unless a table has such a column.
SESSION_WORDS = _words(
    "user current_user session_user current_role current_catalog current_database current_schema"
)

_CLOCK = "with the clock the same query gives other rows tomorrow: write as_of()"
_CHANCE = (
    "with random values the same query gives other rows tomorrow: WHERE hash(entity_id) % 10 = 0"
)
_FILES = (
    "a query sees the snapshot only, no files and no network; a table of yours comes along "
    'with snap.with_table("teams", "teams.csv"), or --table teams=teams.csv'
)
_ENGINE = "a query sees the snapshot only, not the engine and its settings"

_CLOCKS = _words("now today ago get_current_time get_current_timestamp transaction_timestamp")
_READERS = _words(
    "read_text read_blob read_csv read_csv_auto read_json read_json_auto read_ndjson",
    "read_json_objects read_parquet read_duckdb parquet_scan parquet_metadata parquet_schema",
    "sniff_csv glob getenv sqlite_scan delta_scan iceberg_scan read_xlsx",
)
_INSIDES = _words("current_setting getvariable duckdb_settings duckdb_secrets")
_RUNNERS = _words("query query_table json_execute_serialized_sql")

WHY_NOT = {
    **dict.fromkeys(CLOCK_WORDS | _CLOCKS, _CLOCK),
    **dict.fromkeys(_words("random setseed uuid gen_random_uuid uuidv4 uuidv7"), _CHANCE),
    **dict.fromkeys(_READERS, _FILES),
    **dict.fromkeys(_INSIDES | SESSION_WORDS, _ENGINE),
    **dict.fromkeys(_RUNNERS, "text is never run as SQL: write the query itself"),
    **dict.fromkeys(
        _words("reduce list_reduce array_reduce"),
        "it can double a value with every step: list_sum, list_max, list_string_agg … fold a list",
    ),
    **dict.fromkeys(_words("sleep_ms pg_sleep"), "a query computes, it does not wait"),
    **dict.fromkeys(
        _words("range generate_series"),
        "as a value it has no bound: write it after FROM, as in FROM range(10) AS t(n)",
    ),
}


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
# Levels of a syntax tree, three to an operation: Python 3.11 reads 980 from JSON, 3.13 more.
DEEPEST_TREE = 900
# DuckDB 2.0 parses WITH inside unfinished WITH in exponential time and memory.
DEEPEST_WITH = 4

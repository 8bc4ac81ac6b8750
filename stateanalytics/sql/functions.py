"""What a query may call and take: functions by topic, every other one is refused, and limits.

A list of what is allowed, and not of what is forbidden: a function that a later DuckDB
brings is refused until somebody has looked at it. Excluded are functions that read files
or settings, run text as SQL, keep state, wait, read the clock, or build values without a
bound; `WHY_NOT` says which, for those that people are likely to try.
"""

from __future__ import annotations

_OPERATORS = """
+ - * / // % ** ^ || & | ~ << >> ! @ = == != <> < <= > >= ~~ !~~ ~~* !~~* ~~~ ~~~* ~* !~ !~*
@> <@ && ^@ -> ->> <-> <=> __postfix
"""

_CONDITIONS = """
if nullif greatest least coalesce ifnull constant_or_null error isfinite isinf isnan typeof
pg_typeof alias can_cast_implicitly get_type cast_to_type grouping
"""

_NUMBERS = """
abs acos acosh add asin asinh atan atan2 atanh bin bit_count bit_length cbrt ceil ceiling cos
cosh cot degrees divide even exp factorial fdiv floor fmod gamma gcd greatest_common_divisor
hash lcm least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power
radians round round_even roundbankers sign signbit sin sinh sqrt subtract tan tanh
trunc xor formatreadablesize formatreadabledecimalsize format_bytes parse_formatted_bytes
pg_size_pretty binom equi_width_bins md5_number
"""

_TEXT = """
ascii bar base64 char_length character_length chr concat concat_ws contains damerau_levenshtein
decode editdist3 encode ends_with format from_base64 from_binary from_hex hamming hex
ilike_escape instr jaccard jaro_similarity jaro_winkler_similarity lcase left left_grapheme len
length length_grapheme levenshtein like_escape lower lpad ltrim md5 mismatches nfc_normalize
not_ilike_escape not_like_escape octet_length ord overlay parse_dirname parse_dirpath
parse_filename parse_path position prefix printf regexp_escape regexp_extract regexp_extract_all
regexp_full_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table
repeat replace reverse right right_grapheme rpad rtrim sha1 sha256 split split_part starts_with
str_split str_split_regex string_split string_split_regex string_to_array strip_accents strlen
strpos substr substring substring_grapheme suffix to_base to_base64 to_binary to_hex translate
trim ucase unbin unhex unicode upper url_decode url_encode
"""

_MOMENTS = """
age as_of century date_add date_diff date_part date_sub date_trunc datediff datepart datesub
datetrunc day dayname dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms
epoch_ns epoch_us era hour isodow isoyear julian last_day make_date make_time make_timestamp
make_timestamp_ms make_timestamp_ns make_timestamptz microsecond millennium millisecond minute
month monthname nanosecond normalized_interval quarter second strftime strptime time_bucket
timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours to_microseconds
to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks
to_years try_strptime week weekday weekofyear year yearweek
"""

_LISTS = """
aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat
array_contains array_cosine_distance array_cosine_similarity array_cross_product array_distance
array_distinct array_dot_product array_extract array_filter array_grade_up array_has
array_has_all array_has_any array_indexof array_inner_product array_intersect array_length
array_negative_dot_product array_negative_inner_product array_pop_back array_pop_front
array_position array_prepend array_push_back array_push_front array_reverse
array_reverse_sort array_select array_slice array_sort array_to_string
array_to_string_comma_default array_transform array_unique array_value array_where array_zip
cardinality element_at enum_code enum_first enum_last enum_range enum_range_boundary filter
flatten generate_subscripts grade_up list_aggr list_aggregate list_any_value list_append
list_apply list_approx_count_distinct list_avg list_bit_and list_bit_or list_bit_xor
list_bool_and list_bool_or list_cat list_concat list_contains list_cosine_distance
list_cosine_similarity list_count list_distance list_distinct list_dot_product list_element
list_entropy list_extract list_filter list_first list_grade_up list_has list_has_all
list_has_any list_histogram list_indexof list_inner_product list_intersect list_kurtosis
list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode
list_negative_dot_product list_negative_inner_product list_pack list_position list_prepend
list_product list_reverse list_reverse_sort list_select list_sem list_skewness
list_slice list_sort list_stddev_pop list_stddev_samp list_string_agg list_sum list_transform
list_unique list_value list_var_pop list_var_samp list_where list_zip map map_concat
map_contains map_contains_entry map_contains_value map_entries map_extract map_extract_value
map_from_entries map_keys map_values row struct_concat struct_contains struct_extract
struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack
struct_position struct_update struct_values union_extract union_tag union_value unnest
"""

_JSON = """
array_to_json from_json from_json_strict json json_array json_array_length json_contains
json_deep_merge json_exists json_extract json_extract_path json_extract_path_text
json_extract_string json_group_array json_group_object json_group_structure json_keys
json_merge_patch json_merge_patch_diff json_normalize json_object json_pretty json_quote
json_remove json_replace json_set json_insert json_strip_nulls json_structure json_transform
json_transform_strict json_type json_valid json_value row_to_json to_json
"""

_AGGREGATES = """
any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null
arg_max_nulls_last arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and
bit_or bit_xor bitstring_agg bool_and bool_or corr count count_if count_star countif covar_pop
covar_samp entropy favg first fsum geomean geometric_mean group_concat histogram
histogram_exact kahan_sum kurtosis kurtosis_pop last list listagg mad max max_by mean median min
min_by mode product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count
regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness
stddev stddev_pop stddev_samp string_agg sum sum_no_overflow sumkahan var_pop var_samp variance
wavg weighted_avg lttb percentile_cont percentile_disc
"""

_WINDOWS = """
cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank
rank_dense row_number
"""


def _words(*texts: str) -> frozenset[str]:
    return frozenset(" ".join(texts).split())


FUNCTIONS = _words(
    _OPERATORS,
    _CONDITIONS,
    _NUMBERS,
    _TEXT,
    _MOMENTS,
    _LISTS,
    _JSON,
    _AGGREGATES,
    _WINDOWS,
)

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

_CLOCK = "the clock makes the same query give other rows tomorrow: write as_of()"
_CHANCE = "chance makes the same query give other rows tomorrow: WHERE hash(entity_id) % 10 = 0"
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

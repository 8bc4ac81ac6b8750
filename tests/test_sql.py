"""snap.sql: one SELECT over the snapshot, and nothing else within reach."""

import os
import threading
import warnings
from datetime import UTC, date, datetime, timedelta, timezone

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.errors import (
    ArgumentError,
    QueryError,
    QueryRefusedError,
    QueryTimeoutError,
    TruncatedWarning,
)
from stateanalytics.snapshot import Snapshot
from stateanalytics.state.policy import Policy
from tests import frames
from tests.examples import examples
from tests.frames import AS_OF, ago


def snapshot(entities, **more):
    made = frames.facts(entities, **more)
    return Snapshot(**{name: getattr(made, name) for name in Facts.__dataclass_fields__})


FAILED = {"entity_id": "failed", "raw_status": "failed", "name": "unique-text-of-a-session"}
RUNNING = {"raw_status": "running", "last_activity_at": ago(minutes=1), "n_messages": 1}
SESSIONS = [
    {**FAILED, "started_at": ago(hours=3), "ended_at": ago(hours=2), "n_messages": 7},
    {"entity_id": "done", "raw_status": "completed", "ended_at": ago(hours=1), "n_messages": 3},
    {**RUNNING, "entity_id": "slow", "started_at": ago(hours=2)},
    {**RUNNING, "entity_id": "fresh", "started_at": ago(minutes=5)},
]
EVENTS = [
    {"source": "state.db", "entity_id": "done", "at": ago(hours=2), "kind": "message", "seq": 1},
    {"source": "state.db", "entity_id": "done", "at": ago(hours=1), "kind": "message", "seq": 2},
]


@pytest.fixture(scope="module")
def snap():
    return snapshot(SESSIONS, events=EVENTS)


# --- what works ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        pytest.param("SELECT 1", [(1,)], id="no table"),
        pytest.param("select 1 ; -- a comment; x", [(1,)], id="a semicolon and a comment"),
        pytest.param("VALUES (1, 'a'), (2, 'b')", [(1, "a"), (2, "b")], id="VALUES"),
        pytest.param("FROM range(3)", [(0,), (1,), (2,)], id="FROM first"),
        pytest.param("TABLE events", None, id="TABLE"),
        pytest.param("DESCRIBE states", None, id="DESCRIBE"),
        pytest.param("SUMMARIZE entities", None, id="SUMMARIZE"),
        pytest.param("SHOW TABLES", None, id="SHOW TABLES"),
        pytest.param(
            "WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 FROM a) FROM b", [(2,)], id="WITH"
        ),
        ("WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) "
         "SELECT max(n) FROM t", [(3,)]),
        ("WITH states AS (SELECT * FROM states) SELECT count(*) FROM states", [(4,)]),
        ("SELECT * FROM (SELECT severity FROM states) "
         "PIVOT (count(*) FOR severity IN ('critical', 'info'))", [(1, 2)]),
        ("SELECT e.kind, s.severity FROM events e JOIN states s USING (entity_id) LIMIT 0", []),
        ("SELECT row_number() OVER (ORDER BY entity_id) AS n FROM entities QUALIFY n = 4", [(4,)]),
        pytest.param("SELECT unnest([1, 2]) AS x", [(1,), (2,)], id="unnest"),
        pytest.param("SELECT value FROM json_each('[5]')", [("5",)], id="json_each"),
        pytest.param("SELECT '{\"a\": 1}'::JSON ->> '$.a'", [("1",)], id="JSON"),
        pytest.param("SELECT repeat('ab', 2), lpad('x', 3, '-')", [("abab", "--x")], id="repeat"),
        pytest.param("SELECT repeat('a', NULL)", [(None,)], id="repeat of null"),
        ("SELECT format('{:.1f}', 1.25), printf('%03d', 7)", [("1.2", "007")]),
        pytest.param("SELECT upper(entity_id) FROM ENTITIES LIMIT 1", [("FAILED",)], id="any case"),
        pytest.param("SELECT name.upper() FROM entities LIMIT 0", [], id="dots as calls"),
        pytest.param('SELECT count(*) FROM "events"', [(2,)], id="quoted"),
        pytest.param("SELECT [x * 2 FOR x IN [1, 2]]", [([2, 4],)], id="comprehension"),
    ],
)  # fmt: skip
def test_what_a_query_may_be(snap, query, rows):
    answer = snap.sql(query)
    assert answer.width > 0
    if rows is not None:
        assert answer.rows() == rows


@pytest.mark.slow
def test_frames_come_back_as_they_are(snap):
    for name in ("entities", "events", "states", "findings", "sources"):
        given = snap.table(name)
        assert snap.sql(f"FROM {name}").equals(given), name
        assert snap.sql(f"FROM {name}").schema == given.schema, name


def test_words_sort_by_rank_and_not_by_letter(snap):
    query = "SELECT DISTINCT severity FROM states ORDER BY severity"
    assert snap.sql(query)["severity"].to_list() == ["critical", "info", "neutral"]
    assert snap.sql(query).schema["severity"] == pl.Enum(schema.SEVERITIES)
    worse = "SELECT count(*) FROM states WHERE severity <= $s::severity"
    assert snap.sql(worse, {"s": "warning"}).item() == 1
    assert snap.sql(worse, {"s": "info"}).item() == 3
    assert snap.sql("SELECT coalesce(outcome, 'open') AS o FROM states").schema["o"] == pl.String


@pytest.mark.parametrize(
    "condition",
    [
        "severity <= 'warning'",
        "'warning' > severity",
        "s.severity < $s",
        "severity BETWEEN 'a' AND 'z'",
        "health >= 'ok'",
    ],
)
def test_a_rank_is_never_compared_by_letters(snap, condition):
    with pytest.raises(QueryError, match="would be alphabetical"):
        snap.sql(f"FROM states s WHERE {condition}")


@pytest.mark.parametrize(
    ("query", "value"),
    [
        pytest.param("SELECT at FROM events ORDER BY at LIMIT 1", ago(hours=2), id="at"),
        pytest.param("SELECT max(at) FROM events WHERE at <= as_of()", ago(hours=1), id="max(at)"),
        pytest.param(
            "SELECT at AT TIME ZONE 'UTC' FROM events ORDER BY at LIMIT 1",
            ago(hours=2).replace(tzinfo=None),
            id="AT as a word",
        ),
        pytest.param("SELECT count(order) FROM reasons WHERE order > 99", 0, id="order"),
        pytest.param("SELECT count(table) + count(column) FROM findings", 0, id="table, column"),
        pytest.param(
            "SELECT 'at' || ' /* at */ é' -- at\nFROM events LIMIT 1", "at /* at */ é", id="text"
        ),
    ],
)
def test_columns_that_are_words_of_sql_need_no_quotes(snap, query, value):
    assert snap.sql(query).item() == value


def test_values_come_back_in_the_dtypes_of_the_frames(snap):
    answer = snap.sql(
        "SELECT 1 AS i, sum(n_messages) AS s, 1.5 AS d, avg(n_messages) AS a, NULL AS n, "
        "INTERVAL 90 MINUTES AS v, max(ended_at) AS m, DATE '2026-05-27' AS t, true AS b, "
        "170141183460469231731687303715884105727 AS big, 'infinity'::TIMESTAMP AS never, "
        "1::UTINYINT AS u, 2.5::FLOAT AS f FROM entities"
    )
    assert answer.row(0) == (
        *(1, 12, 1.5, 3.0, None, 5400.0, ago(hours=1), date(2026, 5, 27), True),
        *(1.7014118346046923e38, None, 1, 2.5),
    )
    kinds = [pl.Int64, pl.Int64, pl.Float64, pl.Float64, pl.String, pl.Float64]
    assert answer.dtypes[:6] == kinds
    assert answer.schema["m"] == schema.MOMENT
    assert answer.dtypes[-2:] == [pl.Int64, pl.Float64]
    difference = "SELECT ended_at - started_at FROM entities WHERE entity_id = 'failed'"
    assert snap.sql(difference).item() == 3600.0


def test_columns_of_one_name_get_numbers(snap):
    columns = snap.sql("SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a").columns
    assert columns == ["a", "a_1", "a_1_1", "a_2"]


def test_order_by_is_kept(snap):
    query = "SELECT range AS n FROM range(50000) ORDER BY hash(range), range"
    whole = snap.sql(query, max_rows=50_000)["n"]
    again = snap.sql(query, max_rows=50_000)["n"]
    assert whole.n_unique() == 50_000
    assert whole.equals(again)
    with pytest.warns(TruncatedWarning):
        assert snap.sql(query, max_rows=10)["n"].to_list() == whole.head(10).to_list()


# --- parameters ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "params", "value"),
    [
        pytest.param("SELECT $a", {"a": "it's; DROP"}, "it's; DROP", id="text is only text"),
        pytest.param("SELECT $A", {"a": 1}, 1, id="case does not matter"),
        pytest.param("SELECT ? - ?", [5, 3], 2, id="in order"),
        pytest.param("SELECT $2 - $1", (5, 3), -2, id="numbered"),
        pytest.param("SELECT 'x' IN $a", {"a": ["x", "y"]}, True, id="a list"),
        *(
            pytest.param("SELECT count(*) FROM events WHERE at > $t", {"t": at}, 1, id=kind)
            for kind, at in {
                "ISO text": "2026-05-26T22:30Z",
                "a datetime": ago(hours=1.5),
                "another zone": datetime(2026, 5, 27, 0, 30, tzinfo=timezone(timedelta(hours=2))),
            }.items()
        ),
        ("SELECT count(*) FROM entities WHERE n_messages > $n", {"n": "5"}, 1),
        ("SELECT count(*) FROM states WHERE severity = $s", {"s": "critical"}, 1),
        pytest.param("SELECT $a IS NULL", {"a": None}, True, id="null"),
    ],
)
def test_parameters_are_bound(snap, query, params, value):
    assert snap.sql(query, params).item() == value


@pytest.mark.parametrize(
    ("query", "params", "words"),
    [
        pytest.param("SELECT $since", {}, "needs a value for $since; found none", id="none"),
        pytest.param("SELECT $since", None, "a value for $since; found none", id="nothing at all"),
        pytest.param("SELECT $since", {"sinse": 1}, "did you mean 'sinse'", id="misspelt"),
        pytest.param("SELECT $a", {"a": 1, "b": 2}, "no parameter $b", id="superfluous"),
        pytest.param("SELECT 1", {"a": 1}, "no parameter $a; it has none", id="none wanted"),
        pytest.param("SELECT 1", [1], "0 parameters in order", id="none wanted in order"),
        pytest.param("SELECT ?", [1, 2], "1 parameters in order (?); found 2", id="too many"),
        pytest.param("SELECT ?, ?", [1], "2 parameters in order (?); found 1", id="too few"),
        pytest.param("SELECT $a", [1], "named parameters ($a)", id="names wanted"),
        pytest.param("SELECT $a", "x", "a dict or a list", id="text"),
        pytest.param("SELECT $a", 5, "a dict or a list", id="a number"),
        pytest.param("SELECT $a", {"a": object()}, "text, numbers, Booleans", id="an object"),
        pytest.param("SELECT ?, $a", {"a": 1}, "", id="mixed"),
    ],
)
def test_wrong_parameters_say_what_is_wrong(snap, query, params, words):
    with pytest.raises(QueryError) as caught:
        snap.sql(query, params)
    assert words in str(caught.value)
    assert "Hint:" in str(caught.value)


# --- what is refused -------------------------------------------------------------------

SECRET = "a_secret_variable"
a_secret_variable = pl.DataFrame({"token": ["hunter2"]})

FILE_READERS = (
    "read_text read_blob read_csv read_csv_auto read_json read_json_objects read_ndjson "
    "read_parquet read_duckdb parquet_scan parquet_metadata parquet_file_metadata "
    "parquet_kv_metadata parquet_schema sniff_csv glob"
).split()
INSIDES = (
    "duckdb_secrets() duckdb_settings() duckdb_settings duckdb_extensions() duckdb_databases() "
    "duckdb_tables duckdb_temporary_files() duckdb_external_file_cache() duckdb_variables() "
    "duckdb_logs pragma_version() pragma_database_size() pragma_table_info('events') "
    "information_schema.tables pg_catalog.pg_class pg_tables sqlite_master main.events "
    "memory.main.events temp.events which_secret('s3://x','s3') arrow_scan(1,2,3) "
    "python_arrow_scan(1) pandas_scan(1) python_map_function(1) seq_scan('events') "
    "enable_logging() checkpoint() enable_profiling() force_checkpoint() "
    "query('SELECT') query_table('events') query_table(['events','states']) "
    "json_execute_serialized_sql('{}')"
).split()
CALLS = (
    "current_setting('home_directory') current_setting('secret_directory') getvariable('x') "
    "getenv('HOME') json_serialize_sql('SELECT') json_deserialize_sql('{}') "
    "json_serialize_plan('SELECT') sleep_ms(100000) pg_sleep(100) write_log('x') nextval('s') "
    "setseed(0.5) txid_current() system.main.repeat('x',3) main.upper('x') "
    "system.main.getenv('HOME') now() random() today() current_timestamp current_date "
    "localtimestamp get_current_timestamp() range(1000000000000) "
    "generate_series(1,1000000000000) list_resize([1],1000000000000) "
    "format('{:2000000000}',1) format('{:{}}',1,2000000000) printf('%2000000000d',1) "
    "printf('%*d',2000000000,1) user current_user session_user current_role current_catalog "
    "current_schema current_database"
).split()
REFUSED = [
    # files
    *(f"SELECT * FROM {name}('/etc/hostname')" for name in FILE_READERS),
    "SELECT * FROM '/etc/passwd'", 'SELECT * FROM "/etc/passwd"', "FROM '/etc/passwd'",
    "FROM 'x.csv'", "FROM 'https://example.org/x.parquet'", "FROM 's3://bucket/x.parquet'",
    "FROM 'C:\\x.csv'", "DESCRIBE 'x.csv'", "SUMMARIZE '/etc/passwd'",
    "SELECT (SELECT content FROM read_text('/etc/hostname'))",
    "SELECT 1 ORDER BY (SELECT content FROM read_text('/etc/hostname'))",
    "SELECT 1 LIMIT (SELECT length(content) FROM read_text('/etc/hostname'))",
    "SELECT 1 WHERE EXISTS (FROM glob('/etc/*'))",
    "SELECT [x FOR x IN (SELECT list(file) FROM glob('/etc/*'))]",
    "WITH x AS (FROM glob('*')) FROM x", "FROM events UNION ALL FROM read_csv('x')",
    "FROM events, LATERAL (FROM glob('*'))", "FROM range((SELECT count(*) FROM glob('*')))",
    "COPY (SELECT 1) TO '/tmp/leak.csv'", "COPY events TO 'leak.csv'", "COPY events FROM 'in.csv'",
    "EXPORT DATABASE 'leak'", "IMPORT DATABASE 'leak'",
    # other databases, extensions, secrets, settings, functions with effects, the clock
    *(f"SELECT * FROM {table}" for table in INSIDES), *(f"SELECT {call}" for call in CALLS),
    "ATTACH 'other.db'", "ATTACH ':memory:' AS x", "DETACH memory", "USE memory", "INSTALL httpfs",
    "LOAD httpfs", "FORCE INSTALL sqlite", "UPDATE EXTENSIONS", "SET memory_limit = '100GB'",
    "RESET memory_limit", "SET enable_external_access = true", "SET VARIABLE x = 1",
    "PRAGMA version", "PRAGMA database_list", "PRAGMA enable_external_access = true",
    "CREATE SECRET s (TYPE s3)", "SELECT invoke(x -> x, 1)",
    "SELECT * FROM entities TABLESAMPLE 10%", "SELECT * FROM entities USING SAMPLE 3",
    "SELECT * FROM (SELECT 1) USING SAMPLE reservoir(3 ROWS) REPEATABLE (7)",
    "SELECT age(now(), ended_at) FROM entities",
    # statements that are no question
    "DROP TABLE events", "DROP VIEW states", "CREATE TABLE x AS SELECT 1",
    "CREATE TEMP TABLE x AS SELECT 1", "CREATE OR REPLACE VIEW states AS SELECT 1",
    "CREATE MACRO f(x) AS x", "CREATE FUNCTION f(x) AS x", "CREATE TYPE t AS ENUM ('a')",
    "CREATE SEQUENCE s", "CREATE SCHEMA s", "CREATE TRIGGER t",
    "INSERT INTO events SELECT * FROM events", "UPDATE events SET seq = 1", "DELETE FROM events",
    "TRUNCATE events", "ALTER TABLE events ADD COLUMN x INT",
    "MERGE INTO events USING events ON true WHEN MATCHED THEN DELETE",
    "WITH x AS (DELETE FROM events RETURNING *) SELECT * FROM x",
    "WITH x AS (INSERT INTO events SELECT * FROM events RETURNING *) SELECT * FROM x",
    "WITH x AS (UPDATE events SET seq = 1 RETURNING *) SELECT * FROM x", "SELECT 1 INTO x",
    "SELECT 1; SELECT 2", "SELECT 1;; DROP TABLE events",
    "/* SELECT */ DROP TABLE events -- SELECT", "PIVOT states ON severity USING count(*)",
    "EXPLAIN SELECT 1", "EXPLAIN ANALYZE SELECT 1", "CALL pragma_version()",
    "PREPARE p AS SELECT 1", "EXECUTE p", "DEALLOCATE p", "BEGIN", "COMMIT", "VACUUM", "ANALYZE",
    "CHECKPOINT", "COMMENT ON TABLE events IS 'x'", "SHOW ALL TABLES", "SHOW DATABASES",
    ".open x.db",
    # without a bound
    "SELECT list(entity_id) OVER () FROM entities",
    "SELECT string_agg(name) OVER (ORDER BY entity_id) FROM entities",
    "SELECT printf(name, 1) FROM entities",
    # names that come into scope nowhere
    "WITH duckdb_settings AS (FROM duckdb_settings) FROM duckdb_settings",
    "SELECT (WITH duckdb_settings AS (SELECT 1) SELECT 1), * FROM duckdb_settings",
    "FROM (WITH pg_class AS (SELECT 1) FROM pg_class), pg_class",
    "WITH a AS (FROM pg_class), pg_class AS (SELECT 1) FROM a",
]  # fmt: skip


@pytest.mark.parametrize(
    "queries", [REFUSED[::6], pytest.param(REFUSED, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_nothing_else_is_within_reach(snap, tmp_path, monkeypatch, queries):
    monkeypatch.chdir(tmp_path)
    for query in queries:
        with pytest.raises(QueryError) as caught:
            snap.sql(query)
        assert list(tmp_path.iterdir()) == [], query
        message = str(caught.value)
        assert "Hint:" in message, query
        assert os.uname().nodename not in message, query
        assert "hunter2" not in message, query


@pytest.mark.parametrize("query", ["SELECT age(as_of())", "SELECT as_of().age()"])
def test_an_age_never_counts_from_today(snap, query):
    with pytest.raises(QueryRefusedError, match=r"Hint: age\(as_of\(\), x\)"):
        snap.sql(query)
    assert snap.sql("SELECT age(as_of(), as_of() - INTERVAL 1 DAY) AS x").item() is not None


def test_a_fault_of_the_engine_shows_no_path_of_it():
    import duckdb

    from stateanalytics.sql.parsing import as_our_error

    fault = duckdb.InternalException("INTERNAL Error: It broke\n\nStack Trace:\n\n/home/x/lib.so+1")
    said = str(as_our_error(fault, ()))
    assert "It broke" in said
    assert "/home" not in said
    assert "Stack" not in said


@pytest.mark.parametrize(
    "query", ["SELECT * FROM read_text('x')", "DROP TABLE events", "SELECT 1; SELECT 2"]
)
def test_refusals_have_a_class_of_their_own(snap, query):
    with pytest.raises(PermissionError) as caught:
        snap.sql(query)
    assert type(caught.value) is QueryRefusedError


def test_python_variables_are_out_of_reach(snap):
    local = a_secret_variable  # noqa: F841
    for name in (SECRET, "local", "SESSIONS", "snap", "self", "frame", "table"):
        with pytest.raises(QueryError, match="There is no table"):
            snap.sql(f"SELECT * FROM {name}")


def test_the_engine_is_closed_even_where_the_text_is_not_checked():
    """The second wall: what a fault in the check would let through meets a shut door."""
    import duckdb

    from stateanalytics.sql import engine

    connection = engine.connect()
    engine.lock_down(connection, 5)
    for query in (
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "COPY (SELECT 1) TO '/tmp/leak.csv'",
        "ATTACH '/tmp/leak.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '100GB'",
        "SET temp_directory = '/tmp'",
        "EXPORT DATABASE '/tmp/leak'",
        f"SELECT * FROM {SECRET}",
    ):
        with pytest.raises(duckdb.Error):
            connection.execute(query).fetchall()
    connection.close()


def test_functions_are_known_to_the_engine_or_meant():
    """A name that no engine knows is a slip in the list."""
    import duckdb

    from stateanalytics.sql.functions import FUNCTIONS, TABLE_FUNCTIONS

    connection = duckdb.connect()
    known = connection.sql("SELECT lower(function_name) FROM duckdb_functions()").fetchall()
    connection.close()
    written_otherwise = {
        *("as_of", "coalesce", "ifnull", "grouping", "percentile_cont", "percentile_disc"),
        *("!", "!~", "!~*", "~*", "~~~*", "->", "<>", "==", "__postfix"),
    }
    assert FUNCTIONS - {name for (name,) in known} == written_otherwise
    assert {name for (name,) in known} >= TABLE_FUNCTIONS


WORDS = [
    *("SELECT", "FROM", "WITH", "x", "AS", "(", ")", "*", ",", ";", "events", "states", "1", "'a'"),
    *("read_text", "('x')", "DELETE", "INSERT INTO", "RETURNING *", "UNION ALL", "WHERE", "at"),
    *("LIMIT", "$a", "ATTACH", "COPY", "TO", "duckdb_settings", "getenv", "--", "/*", "*/", "\n"),
]


@examples(60)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12))
def test_any_heap_of_words_is_answered_or_refused(words):
    """Nothing but a frame or one of our errors, whatever the text."""
    tiny = snapshot(SESSIONS[:1], events=EVENTS[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncatedWarning)
        try:
            answer = tiny.sql(" ".join(words), timeout_s=5, max_rows=5)
        except QueryError as error:
            assert error.hint
        else:
            assert answer.height <= 5


# --- limits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM range(1000000000000) a, range(1000) b",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
    ],
)
def test_a_query_has_a_time_limit(snap, query):
    with pytest.raises(QueryTimeoutError, match=r"longer than its limit of 0\.2 s"):
        snap.sql(query, timeout_s=0.2)


def test_a_limit_never_strikes_the_next_query(snap):
    for _ in range(5):
        with pytest.raises(QueryTimeoutError):
            snap.sql("SELECT count(*) FROM range(100000000000)", timeout_s=0.02)
        assert snap.sql("SELECT count(*) FROM events").item() == 2


@pytest.mark.slow
def test_two_threads_do_not_disturb_each_other(snap):
    answers, errors = [], []

    def endless():
        try:
            snap.sql("SELECT count(*) FROM range(1000000000000)", timeout_s=0.5)
        except QueryTimeoutError as error:
            errors.append(error)

    def quick():
        answers.extend(snap.sql("SELECT count(*) FROM events").item() for _ in range(10))

    threads = [threading.Thread(target=work) for work in (endless, quick, endless, quick)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [2] * 20
    assert len(errors) == 2


LONG, GROWS = "makes at most 100,000", "or 500,000 bytes more than it was given"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("repeat('x', 4000000000)", LONG),
        ("lpad('x', 2000000000, 'y')", LONG),
        ("rpad('x', n, 'y') FROM (VALUES (5), (2000000000)) t(n)", LONG),
        ("'x'.repeat(4000000000)", LONG),
        ("length(repeat(repeat([1], 100000), 100000))", GROWS),
        ("length(repeat([repeat([1], 100000)], 100000))", GROWS),
        ("length(replace(repeat('a', 100000), 'a', repeat('b', 40000)))", GROWS),
        ("length(regexp_replace(repeat('a', 100000), 'a', repeat('b', 40000), 'g'))", GROWS),
        ("length(regexp_replace(repeat('a', 100000), '(a+)', repeat('\\1', 40000)))", GROWS),
    ],
)
def test_long_texts_are_not_built(snap, query, words):
    with pytest.raises(QueryError, match=words):
        snap.sql(f"SELECT {query}")


@pytest.mark.slow
def test_functions_with_a_bound_answer_as_before(snap):
    answers = {
        "repeat('é', 3)": "ééé",
        "repeat([1, 2], 2)": [1, 2, 1, 2],
        "repeat('x', NULL)": None,
        "repeat('x', -1)": "",
        "lpad('x', 3, 'y')": "yyx",
        "rpad('xxxx', 3, 'y')": "xxx",
        "replace('banana', 'an', 'xyz')": "bxyzxyza",
        "replace('a', '', 'b')": "a",
        "replace('a', 'b', NULL)": None,
        "replace(replace('ab', 'a', '1'), 'b', '2')": "12",
        "length(replace(repeat('ab', 50000), 'a', ''))": 50000,
        "regexp_replace('banana', 'a', '[x]', 'g')": "b[x]n[x]n[x]",
        "regexp_replace('banana', '(a)', '<\\1>')": "b<a>nana",
        "'banana'.replace('a', 'o')": "bonono",
    }
    for call, answer in answers.items():
        [found] = snap.sql(f"SELECT {call} AS x")["x"].to_list()
        assert found == answer, call


def built_on_itself(select, n_levels, first="SELECT 1 AS x"):
    for _ in range(n_levels):
        first = f"{select} FROM ({first}) AS t"
    return first


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (built_on_itself("SELECT {'a': x, 'b': x} AS x", 16), "10,000 fields"),
        (built_on_itself("SELECT t AS a, t AS b", 16), "10,000 fields"),
        (built_on_itself("SELECT {'a': x, 'b': x} AS x", 40), "20 levels"),
        (
            "WITH c0 AS (SELECT 1 AS x), "
            + ", ".join(f"c{n} AS (SELECT [x, x] AS x FROM c{n - 1})" for n in range(1, 40))
            + " FROM c39",
            "20 levels",
        ),
        (built_on_itself("SELECT *, *", 7, "FROM entities"), "columns; at most"),
        ("SELECT " + "[" * 100 + "1" + "]" * 100, "30 deep"),
        ("SELECT from_json('[]', '" + "[" * 300 + '"INT"' + "]" * 300 + "')", "30 deep"),
        ("SELECT from_json('[]', '" + "[" * 20000 + '"INT"' + "]" * 20000 + "')", "30 deep"),
        ("SELECT NULL::INT[99999] FROM range(1000000)", "10,000 fields"),
        # Parsing and planning cannot be interrupted, so their known explosions are refused.
        ("WITH a AS (" * 12, "WITH inside WITH"),
        ("WITH a AS (" * 12 + "SELECT 1", "WITH inside WITH"),
        ("with a as (" * 9 + "select from where" + ") select 1" * 9, "WITH inside WITH"),
        ("WITH a AS NOT MATERIALIZED (SELECT 1) FROM a", "NOT MATERIALIZED"),
        ("SELECT " + "nullif(" * 25 + "1" + ", 2)" * 25, "too deeply"),
        (
            "SELECT count(*) FROM " + "(SELECT *, * FROM " * 18 + "(SELECT 1 AS a)" + ")" * 18,
            r"\* at most 16 times",
        ),
    ],
)
def test_what_would_explode_before_it_runs_or_in_its_result_is_refused(snap, query, words):
    with pytest.raises(QueryError, match=words) as caught:
        snap.sql(query)
    assert caught.value.hint


def test_a_query_may_have_levels(snap):
    assert snap.sql(built_on_itself("SELECT x + 1 AS x", 15)).item() == 16
    assert snap.sql(" UNION ALL ".join(["SELECT 1 AS x"] * 60)).height == 60


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("[TIMESTAMP 'infinity', NULL, DATE '2020-01-01']", [None, None, datetime(2020, 1, 1)]),
        ("[DATE '-infinity']", [None]),
        ("[[DATE 'infinity']]", "[[infinity]]"),
        ("{'a': 'infinity'::TIMESTAMP}", "{'a': infinity}"),
        ("MAP {'a': TIMESTAMPTZ '-infinity'}", "{a=-infinity}"),
    ],
)
def test_moments_without_end_inside_others_are_no_trouble(snap, value, found):
    [answer] = snap.sql(f"SELECT {value} AS x")["x"].to_list()
    assert (answer.to_list() if isinstance(answer, pl.Series) else answer) == found


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("Out of Memory Error: no"), "more memory than its limit"),
        (MemoryError(), "more memory than its limit"),
        (OSError("INTERRUPT Error: Interrupted!"), "longer than its limit of 5 s"),
        (ValueError("Recursion level in ArrowSchema struct exceeded"), "cannot be transferred"),
    ],
)
def test_faults_on_the_way_out_are_ours(error, words):
    from stateanalytics.sql.parsing import from_arrow

    said = from_arrow(error, 5)
    assert words in str(said)
    assert said.hint


def test_a_cut_result_says_so(snap):
    with pytest.warns(TruncatedWarning, match=r"truncated: these are its first 3 rows") as caught:
        answer = snap.sql("FROM range(100)", max_rows=3)
    assert answer["range"].to_list() == [0, 1, 2]
    assert caught[0].filename == __file__
    # A result that just fits gives no warning, and very many rows cost only the cap.
    assert snap.sql("FROM range(3)", max_rows=3).height == 3
    with pytest.warns(TruncatedWarning):
        snap.sql("FROM range(1000000000000)", max_rows=10)


def test_nesting_that_people_write_is_fine(snap):
    four = "WITH b AS (WITH c AS (WITH d AS (SELECT 1 AS x) FROM d) FROM c) FROM b"
    assert snap.sql(f"WITH a AS ({four}) FROM a").item() == 1
    many = "WITH " + ", ".join(f"a{i} AS (SELECT {i} AS x)" for i in range(50)) + " FROM a49"
    assert snap.sql(many).item() == 49
    assert snap.sql("SELECT nullif(nullif(nullif(1, 2), 3), 4)").item() == 1
    three = "length(repeat('x', length(repeat('y', 3))))"
    assert snap.sql(f"SELECT repeat('x', {three})").item() == "xxx"


WRONG_LIMITS = {
    "max_rows": (0, -1, 1.5, True, None, "10"),
    "timeout_s": (0, -1, float("nan"), float("inf"), None, "1", True),
}


@pytest.mark.parametrize("name", WRONG_LIMITS)
def test_a_limit_is_a_positive_number(snap, name):
    for value in WRONG_LIMITS[name]:
        with pytest.raises(ArgumentError, match=name):
            snap.sql("SELECT 1", **{name: value})


# --- mistakes --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "words"),
    [
        pytest.param("SELEC 1", "syntax error", id="a slip"),
        pytest.param("", "needs SQL text", id="empty"),
        pytest.param("   ", "needs SQL text", id="blank"),
        pytest.param("-- only a comment", "no statements", id="a comment"),
        pytest.param(None, "needs SQL text", id="None"),
        pytest.param("SELECT * FROM stats", "did you mean 'states'", id="a table"),
        pytest.param("SELECT * FROM nothing_like_it", "There is no table", id="no such table"),
        pytest.param("SELECT severty FROM states", "did you mean 'severity'", id="a column"),
        pytest.param("SELECT s.severty FROM states s", "did you mean 'severity'", id="its column"),
        pytest.param('SELECT "critical" FROM states', "'single quotes'", id="double quotes"),
        pytest.param("SELECT cuont(*) FROM states", "did you mean 'count'", id="a function"),
        pytest.param("SELECT sum(name) FROM entities", "cannot be run", id="a type"),
        pytest.param("SELECT 'x'::INTEGER", "TRY_CAST", id="a cast"),
        pytest.param("SELECT 1 + 'a'", "cannot be run", id="a sum of text"),
        pytest.param("SELECT error('boom')", "boom", id="an error of its own"),
        pytest.param("SELECT (" * 3000 + "1" + ")" * 3000, "nested too deeply", id="deep"),
        pytest.param("SELECT " + "1+" * 320 + "1", "nested too deeply", id="long sums"),
        pytest.param("SELECT " + "1+" * 900 + "1", "nested too deeply", id="longer sums"),
        pytest.param("FROM (" * 5000 + "events" + ")" * 5000, "", id="deep tables"),
        pytest.param("SELECT '" + "x" * 200_000 + "'", "100,000 characters", id="long"),
        pytest.param("SELECT '\0'", "NUL", id="NUL"),
        pytest.param("SELECT '\ud800'", "surrogate", id="half a surrogate"),
        pytest.param("SELECT 1 AS a FROM events GROUP BY", "syntax error", id="cut short"),
    ],
)
def test_mistakes_say_what_to_do(snap, query, words):
    with pytest.raises(QueryError) as caught:
        snap.sql(query)
    assert words in str(caught.value)
    assert caught.value.hint
    assert len(caught.value.problem) < 1500


# --- views -----------------------------------------------------------------------------


def test_views_have_the_columns_that_are_documented(snap):
    from stateanalytics.sql.frames import VIEWS

    for view in VIEWS:
        assert snap.sql(f"FROM {view.frame.name}").schema == view.frame.dtypes, view.frame.name


def test_the_dashboard_of_adr_0017(snap):
    def of(view):
        return snap.sql(f"SELECT session_id FROM {view}")["session_id"].to_list()

    assert sorted(of("running_sessions")) == ["fresh", "slow"]
    assert of("failed_24h") == ["failed"]
    assert of("slow_sessions") == ["slow"]
    assert of("needs_review") == []


def test_the_dashboard_counts_from_as_of_and_not_from_the_clock():
    rows = [
        {"entity_id": "edge", "raw_status": "failed", "ended_at": ago(hours=24)},
        {"entity_id": "inside", "raw_status": "failed", "ended_at": ago(hours=23, minutes=59)},
        {"entity_id": "later", "raw_status": "failed", "ended_at": AS_OF + timedelta(hours=1)},
    ]
    found = snapshot(rows).sql("FROM failed_24h")["session_id"].to_list()
    assert found == ["inside"]


def test_slow_is_what_the_policy_says(snap):
    lenient = Policy.v1().replace(slow_after_s=3 * 3600)
    strict = Policy.v1().replace(slow_after_s=60)
    query = "SELECT count(*) FROM slow_sessions"
    assert snap.sql(query, policy=lenient).item() == 0
    assert snap.sql(query, policy=strict).item() == 2
    assert snap.sql("SELECT policy_version FROM snapshot", policy=strict).item() == strict.version


def test_sessions_whose_plays_wait_need_review_once():
    play = {"entity_type": "play", "session_id": "s"}
    made = snapshot(
        [
            {"entity_id": "s", "raw_status": "completed"},
            {"entity_id": "p1", "raw_status": "gated", **play},
            {"entity_id": "p2", "raw_status": "blocked", **play},
            {"entity_id": "p3", "raw_status": "merged", **play},
            {**play, "entity_id": "p4", "raw_status": "blocked", "session_id": "gone"},
        ]
    )
    row = made.sql("FROM needs_review").row(0, named=True)
    assert (row["session_id"], row["n_plays"], row["play_statuses"]) == ("s", 2, "blocked, gated")
    rows = made.sql("SELECT play_id, session_status, play_status FROM sessions_and_plays")
    assert rows.rows() == [
        ("p1", "completed", "gated"),
        ("p2", "completed", "blocked"),
        ("p3", "completed", "merged"),
        ("p4", None, "blocked"),
    ]


def test_as_of_is_the_instant_of_the_snapshot(snap):
    assert snap.sql("SELECT as_of()").item() == AS_OF
    assert snap.sql("SELECT as_of() - INTERVAL 1 DAY AS x").item() == ago(days=1)
    assert snap.sql("SELECT as_of, as_of_from FROM snapshot").row(0) == (AS_OF, "given")


def test_nothing_to_ask_gives_no_rows():
    empty = snapshot([])
    for name in ("entities", "states", "reasons", "attention", "running_sessions", "phantoms"):
        assert empty.sql(f"FROM {name}").height == 0, name


def test_microseconds_and_ages_survive():
    moment = datetime(2026, 5, 1, 1, 2, 3, 456789, tzinfo=UTC)
    made = snapshot([{"entity_id": "a", "raw_status": "failed", "ended_at": moment}])
    assert made.sql("SELECT ended_at FROM entities").item() == moment

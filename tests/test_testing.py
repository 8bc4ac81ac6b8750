"""Scaled stores, spells and messages are believable, repeatable and know their own truth."""

import contextlib
import math
import re
import sqlite3
import zlib

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.systems import reading as sources
from tests.examples import examples
from tests.generators import AS_OF, dirty_cells, draws, durations, message_gaps, write_store
from tests.generators.messages import failure_messages
from tests.generators.spells import FATES, KINDS, PACE
from tests.generators.tables import TABLES
from tests.generators.templates import TEMPLATES


def rows_of(path, sql):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def content(path):
    """Every row of every table, text as bytes: some of it is broken on purpose."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        return {
            table: connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
            for table in TABLES
        }


def slow_bits(row, seed, column):
    mask = (1 << 64) - 1
    start = seed * 0xD1342543DE82EF95 + zlib.crc32(column.encode()) * 0x9E3779B97F4A7C15
    state = (row * 0x9E3779B97F4A7C15 + start) & mask
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


@examples(40)
@given(st.lists(st.integers(0, 2**60), min_size=1, max_size=20), st.integers(0, 2**40))
def test_bits_are_those_of_the_slow_obvious_generator(numbers, seed):
    frame = pl.DataFrame({"row": pl.Series(numbers, dtype=pl.UInt64)})
    fast = frame.select(draws.bits(pl.col("row"), seed, "a column")).to_series().to_list()
    assert fast == [slow_bits(number, seed, "a column") for number in numbers]


# --- messages, durations, gaps ---------------------------------------------------------


def test_every_message_fits_its_template_and_no_other_of_its_code():
    made = failure_messages(2_000, seed=3)
    assert made["template_id"].n_unique() == len(TEMPLATES) >= 20
    patterns = {
        template.template_id: re.compile(
            ".+?".join(re.escape(part) for part in template.pattern.split("<*>")), re.DOTALL
        )
        for template in TEMPLATES
    }
    for message, template_id in made.select("message", "template_id").unique().rows():
        fitting = [name for name, pattern in patterns.items() if pattern.fullmatch(message)]
        assert fitting == [template_id]


def test_durations_follow_the_distribution_that_is_written_down():
    spells = durations(60_000, seed=5)
    for kind in KINDS:
        mine = spells.filter(pl.col("kind").eq_missing(kind.name))
        assert mine.height / spells.height == pytest.approx(kind.share, abs=0.01)
        t = kind.median_s / 2
        for fate, share in FATES.items():
            z = math.log(t / PACE[fate] / kind.median_s) / kind.sigma
            meant = share * 0.5 * (1 + math.erf(z / math.sqrt(2)))
            seen = ((mine["end"] == fate) & (mine["duration_s"] <= t)).mean()
            assert seen == pytest.approx(meant, abs=4 * math.sqrt(meant / mine.height) + 1e-3)


def test_gaps_say_which_are_long():
    gaps = message_gaps(500, seed=1, n_gaps=40, long_share=0.05)
    assert gaps["is_long"].mean() == pytest.approx(0.05, abs=0.01)
    assert gaps.filter(~pl.col("is_long"))["gap_s"].median() == pytest.approx(30.0, rel=0.05)
    assert gaps.filter("is_long")["gap_s"].median() == pytest.approx(5_400.0, rel=0.1)


# --- stores ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def thousand(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thousand")
    return write_store(folder / "state.db", 1_000, seed=7, n_messages_per_session=6)


def test_tables_have_the_columns_and_types_of_the_real_store(lionagi_samples, thousand):
    real = lionagi_samples / "organic-0.36.0" / "lionagi_home" / "state.db"
    for table in TABLES:
        columns = f"SELECT name, type FROM pragma_table_info('{table}') ORDER BY name"
        with contextlib.closing(
            sqlite3.connect(f"file:{real}?mode=ro&immutable=1", uri=True)
        ) as connection:
            wanted = connection.execute(columns).fetchall()
        assert rows_of(thousand, columns) == wanted, table


@pytest.mark.slow
def test_the_same_arguments_give_the_same_rows(tmp_path):
    same = [
        write_store(tmp_path / f"{name}.db", 60, seed=3, n_messages_per_session=3, dirty=0.1)
        for name in "ab"
    ]
    assert content(same[0]) == content(same[1])
    assert content(write_store(tmp_path / "c.db", 60, seed=4)) != content(same[0])


def test_every_message_is_listed_and_the_last_is_where_the_session_says(thousand):
    assert rows_of(
        thousand,
        "SELECT count(*), sum(abs(last - last_message_at) > 0.001) FROM (SELECT s.last_message_at,"
        " (SELECT max(m.created_at) FROM json_each(p.collection) AS j"
        "  JOIN messages AS m ON m.id = j.value) AS last FROM sessions AS s"
        " JOIN branches AS b ON b.session_id = s.id"
        " JOIN progressions AS p ON p.id = b.progression_id)",
    ) == [(1_000, 0)]
    assert rows_of(thousand, "SELECT count(*) FROM messages")[0][0] == pytest.approx(6_000, rel=0.1)


def test_statuses_and_times_hang_together(thousand):
    assert rows_of(
        thousand,
        "SELECT sum(ended_at < started_at), sum(last_message_at < started_at),"
        " sum(status = 'running' AND ended_at IS NOT NULL), sum(ended_at > 1779688800),"
        " sum(status IS NOT NULL AND status_reason_code IS NULL) FROM sessions",
    ) == [(0, 0, 0, 0, 0)]
    statuses = dict(rows_of(thousand, "SELECT status, count(*) FROM sessions GROUP BY status"))
    assert {"completed", "failed", "timed_out", "aborted", "cancelled"} <= set(statuses)


def test_a_clean_store_has_nothing_to_complain_about(thousand):
    facts, _ = sources.read_facts([thousand], as_of=AS_OF)
    assert not facts.findings["code"].str.starts_with("cell.").any()
    assert facts.entities.filter(pl.col("entity_type") == "branch").height == 1_000


@pytest.mark.slow
def test_a_dirty_store_is_read_and_every_dirty_column_is_a_finding(tmp_path):
    made = write_store(tmp_path / "state.db", 500, dirty=0.02)
    facts, _ = sources.read_facts([made], as_of=AS_OF)
    counted = facts.findings.group_by("column", "code").agg(pl.col("n_rows").sum())
    lost = dirty_cells(500, 0.02).filter("is_lost").select("column", "n_rows")
    assert lost.join(counted, on=["column", "n_rows"], how="anti").height == 0


@pytest.mark.slow
def test_integers_past_2_to_the_53_are_read_to_the_last_digit(tmp_path):
    made = write_store(tmp_path / "state.db", 500, dirty=0.02)
    facts, _ = sources.read_facts([made], as_of=AS_OF)
    big = facts.entities.filter(pl.col("n_input_tokens") > 2**53)["n_input_tokens"]
    assert big.to_list() == [2**53 + 1] * 10

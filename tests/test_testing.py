"""Scaled stores, spells and messages are believable, repeatable and know their own truth."""

import contextlib
import json
import math
import re
import sqlite3
import zlib
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.errors import ArgumentError
from stateanalytics.stats import draws
from stateanalytics.systems import reading as sources
from tests.examples import a_few, examples
from tests.generators import AS_OF, dirty_cells, durations, message_gaps, store, write_store
from tests.generators.distributions import log_normal, normal
from tests.generators.messages import failure_messages
from tests.generators.spells import FATES, KINDS, PACE
from tests.generators.tables import INDEXES, TABLES
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


# --- chance ----------------------------------------------------------------------------


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


def test_a_draw_depends_on_its_row_and_not_on_the_others():
    row = pl.col("row")
    whole = pl.select(row=pl.int_range(100)).with_columns(u=draws.uniform(row, 3, "u"))
    part = whole.select("row").slice(40, 7).with_columns(u=draws.uniform(row, 3, "u"))
    assert part["u"].to_list() == whole["u"].slice(40, 7).to_list()


def test_numbers_are_spread_as_they_should_be():
    row = pl.col("row")
    drawn = pl.select(row=pl.int_range(40_000)).select(
        uniform=draws.uniform(row, 1, "u"),
        normal=normal(row, 1, "n"),
        long=log_normal(row, 1, "l", median=60.0, sigma=0.5),
        word=draws.weighted(row, 1, "w", {"a": 3.0, "b": 1.0}),
    )
    assert drawn["uniform"].min() > 0 and drawn["uniform"].max() < 1
    assert drawn["uniform"].mean() == pytest.approx(0.5, abs=0.01)
    assert drawn["normal"].mean() == pytest.approx(0.0, abs=0.02)
    assert drawn["normal"].std() == pytest.approx(1.0, abs=0.02)
    assert drawn["long"].median() == pytest.approx(60.0, rel=0.02)
    assert (drawn["word"] == "a").mean() == pytest.approx(0.75, abs=0.01)


def test_ids_are_unlike_each_other_and_have_their_shape():
    ids = pl.select(row=pl.int_range(20_000)).select(
        uuid=draws.uuid(pl.col("row"), 0, "id"),
        hex=draws.hex_id(pl.col("row"), 0, "id", 12),
    )
    assert ids["uuid"].n_unique() == ids["hex"].n_unique() == 20_000
    assert ids["uuid"].str.contains(r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-").all()
    assert (ids["hex"].str.len_chars() == 12).all()


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


def test_messages_are_the_same_for_the_same_seed_only():
    assert failure_messages(50, seed=1).equals(failure_messages(50, seed=1))
    assert not failure_messages(50, seed=1).equals(failure_messages(50, seed=2))


@pytest.mark.parametrize("n", [0, 1])
def test_no_message_and_one_message_have_the_same_columns(n):
    assert failure_messages(n).height == n
    assert failure_messages(n).schema == failure_messages(5).schema


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


def test_nothing_lasts_longer_than_its_timeout_and_what_reaches_it_times_out():
    spells = durations(5_000, seed=2)
    assert (spells["duration_s"] <= spells["timeout_s"]).all()
    is_cut = spells["latent_s"] > spells["timeout_s"]
    assert spells.filter(is_cut)["end"].unique().to_list() == ["timed_out"]
    assert spells.filter(~is_cut)["end"].equals(spells.filter(~is_cut)["fate"].alias("end"))


def test_gaps_say_which_are_long():
    gaps = message_gaps(500, seed=1, n_gaps=40, long_share=0.05)
    assert gaps["is_long"].mean() == pytest.approx(0.05, abs=0.01)
    assert gaps.filter(~pl.col("is_long"))["gap_s"].median() == pytest.approx(30.0, rel=0.05)
    assert gaps.filter("is_long")["gap_s"].median() == pytest.approx(5_400.0, rel=0.1)


def test_gaps_need_at_least_one_a_session():
    with pytest.raises(ArgumentError, match=r"at least one gap.*n_gaps=0(.|\n)*Hint: "):
        message_gaps(3, n_gaps=0)


# --- stores ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def thousand(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thousand")
    return write_store(folder / "state.db", 1_000, seed=7, n_messages_per_session=6)


@pytest.mark.parametrize("n", a_few([0, 1, 7], 2))
def test_a_store_has_as_many_sessions_as_asked_for(tmp_path, n):
    made = write_store(tmp_path / "state.db", n)
    assert rows_of(made, "SELECT count(*) FROM sessions") == [(n,)]
    facts, _ = sources.read_facts([made], as_of=AS_OF)
    assert facts.entities.filter(pl.col("entity_type") == "session").height == n


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


@pytest.mark.slow
def test_the_size_of_the_pieces_does_not_matter(tmp_path, monkeypatch):
    whole = write_store(tmp_path / "whole.db", 120, n_messages_per_session=2)
    monkeypatch.setattr(store, "_PIECE", 48)
    pieces = write_store(tmp_path / "pieces.db", 120, n_messages_per_session=2)
    assert content(whole) == content(pieces)


def test_history_has_a_start_and_an_end_of_each_session(thousand):
    ended = "(SELECT count(*) FROM sessions WHERE status NOT IN ('running'))"
    begun = "(SELECT count(*) FROM sessions WHERE status IS NOT NULL)"
    assert rows_of(
        thousand,
        f"SELECT count(*) = {begun} + {ended}, count(DISTINCT entity_id) = {begun}"
        " FROM status_transitions",
    ) == [(1, 1)]


def test_history_can_be_left_out(tmp_path):
    made = write_store(tmp_path / "state.db", 10, has_transitions=False)
    assert rows_of(made, "SELECT count(*) FROM status_transitions") == [(0,)]


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


def test_json_of_a_clean_store_is_json(thousand):
    for column in ("node_metadata", "status_evidence_refs", "artifact_contract_json"):
        for (text,) in rows_of(thousand, f"SELECT DISTINCT {column} FROM sessions"):
            assert text is None or json.loads(text) is not ...


def test_dirty_cells_are_where_and_what_they_are_said_to_be(tmp_path):
    made = write_store(tmp_path / "state.db", 500, dirty=0.02)
    wrong = {
        "text in a number": "typeof({}) = 'text'",
        "blob": "typeof({}) = 'blob'",
        "absurd moment": "{} > 1e12",
        "integer past 2^53": "{} > 9007199254740992",
        "integer past int64": "typeof({}) = 'real'",
        "broken UTF-8": "instr(CAST({} AS BLOB), x'ff') + instr(CAST({} AS BLOB), x'c3') > 0",
        "broken JSON": "json_valid({}) = 0",
        "double-encoded JSON": "json_type({}) = 'text'",
    }
    for table, column, kind, n_rows, _ in dirty_cells(500, 0.02).rows():
        test = wrong[kind].replace("{}", column)
        count = rows_of(made, f"SELECT count(*) FROM {table} WHERE {test}")
        assert count == [(n_rows,)] == [(10,)], column


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


def test_a_clean_store_has_no_dirty_cells():
    assert dirty_cells(1_000, 0.0)["n_rows"].sum() == 0


def test_indexes_are_made_when_asked_for(tmp_path):
    made = write_store(tmp_path / "state.db", 5, has_indexes=True)
    count = "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    assert rows_of(made, count) == [(len(INDEXES),)]


def test_work_ends_at_as_of(tmp_path):
    as_of = datetime(2027, 1, 4, tzinfo=UTC)
    made = write_store(tmp_path / "state.db", 300, as_of=as_of, days=1.0)
    first, last, running = rows_of(
        made,
        "SELECT min(started_at), max(updated_at), sum(status = 'running') FROM sessions",
    )[0]
    assert as_of.timestamp() - 86_400 <= first
    assert last <= as_of.timestamp() + 0.011
    assert running > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"n_sessions": -1}, "n_sessions >= 0", id="fewer than none"),
        pytest.param({"days": 0.0}, "days > 0", id="no time"),
        pytest.param({"dirty": 0.9}, "dirty between 0 and 0.5", id="mostly dirt"),
        pytest.param({"n_messages_per_session": -2}, "n_messages", id="negative messages"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(tmp_path, options, words):
    with pytest.raises(ArgumentError, match=words):
        write_store(tmp_path / "state.db", **{"n_sessions": 1, **options})
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_never_overwritten(tmp_path):
    there = tmp_path / "state.db"
    there.write_text("mine")
    with pytest.raises(ArgumentError, match=r"exists(.|\n)*Hint: name another path"):
        write_store(there, 1)
    assert there.read_text() == "mine"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ArgumentError, match="mkdir -p"):
        write_store(tmp_path / "no" / "state.db", 1)

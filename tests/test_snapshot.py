"""read, demo and Snapshot: what a user holds, and its raw tables."""

import gc
import html
import json
import math
import weakref
from datetime import UTC, datetime, timedelta, timezone

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core import schema
from stateanalytics.snapshot import Snapshot
from tests.examples import a_few
from tests.lionagi_stores import NOW_S, write_store, wrote
from tests.ratios import times_as_slow

NOW = datetime.fromtimestamp(NOW_S, UTC)


def session(name, **more):
    ended = {"status": "completed", "created_at": NOW_S - 100}
    return {"id": name, "progression_id": "p", **ended, **more}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    b = session("b", status="failed", odd="text", blob=b"\x00\xff")
    said = {"content": json.dumps({"x": "said"}), "role": "user"}
    return write_store(
        tmp_path_factory.mktemp("store") / "state.db",
        sessions=[session("a", source_kind="live", odd=1), b],
        messages=[{"id": "m", "created_at": NOW_S - 50, **said}],
        status_transitions=[{"id": "t", "source": "executor", "entity_id": "a"}],
    )


@pytest.fixture(scope="module")
def kept(store):
    """The snapshot of it, for tests that neither close nor drop it."""
    return sa.read(store)


# --- reading ---------------------------------------------------------------------------


def test_read_gives_frames_and_says_so(store):
    snap = sa.read(store)
    assert isinstance(snap, sa.Snapshot)
    assert snap.entities.filter(entity_type="session")["entity_id"].to_list() == ["a", "b"]
    assert snap.as_of_from == "data"
    assert "2 runs, 0 open, 1 failed or timed out; from 2026-05-26; lionagi" in repr(snap)
    assert str(store) in repr(snap)
    assert "Next:" in repr(snap)


MOMENTS = [
    *(NOW, NOW.replace(tzinfo=None), NOW.astimezone(timezone(timedelta(hours=-7)))),
    *("2026-05-27", "2026-05-27T02:00:00+02:00", NOW.date(), int(NOW_S), f"{NOW_S}"),
]


@pytest.mark.parametrize("as_of", a_few(MOMENTS, 3))
def test_as_of_may_be_written_in_many_ways(store, as_of):
    snap = sa.read(store, as_of=as_of)
    assert snap.as_of == NOW
    assert snap.as_of.tzinfo is not None
    assert snap.as_of_from == "given"


@pytest.mark.parametrize(
    "as_of", ["yesterday", "", "2026-13-01", math.nan, math.inf, True, [1], "nan"]
)
def test_an_as_of_that_is_no_moment_says_so(store, as_of):
    with pytest.raises(sa.errors.ArgumentError, match=r"as_of needs a moment(.|\n)*Hint:"):
        sa.read(store, as_of=as_of)


@pytest.mark.slow
def test_several_stores_are_one_snapshot(tmp_path):
    one = write_store(tmp_path / "one.db", sessions=[session("a", model="m1")])
    another = session("a", created_at=NOW_S - 200)
    two = write_store(tmp_path / "two.db", sessions=[another, session("b", agent_name="x")])
    snap = sa.read(one, two)
    assert snap.sources["source"].to_list() == [str(one), str(two)]
    raw = snap.sql("SELECT store, id, model, agent_name FROM raw_sessions ORDER BY ALL")
    of_two = [(str(two), "a", None, None), (str(two), "b", None, "x")]
    assert raw.rows() == [(str(one), "a", "m1", None), *of_two]
    assert sa.read([one, two]).sources.height == 2
    assert sa.read(tmp_path).sources.height == 2
    assert sa.read(f"{tmp_path}/*.db").sources.height == 2


def test_the_sample_opens():
    snap = sa.demo()
    assert snap.entities.height > 100
    assert set(snap.entities["entity_type"]) >= {"session", "branch", "invocation", "schedule"}
    assert snap.sql("FROM attention").height > 0


# --- showing ---------------------------------------------------------------------------


def test_a_hostile_name_does_nothing_where_it_is_shown(tmp_path):
    folder = tmp_path / "<script>alert(1)<\x1b[31m"
    folder.mkdir()
    snap = sa.read(write_store(folder / "state.db", sessions=[session("a")]))
    assert "\x1b" not in repr(snap)
    assert "<script" not in snap._repr_html_()
    assert html.escape("<script>alert(1)") in snap._repr_html_()


@pytest.mark.slow
def test_several_inputs_say_that_they_share_one_instant_and_where_each_ends(tmp_path):
    rows = {days: session("a", created_at=NOW_S - 86400 * days) for days in (0, 3)}
    paths = [write_store(tmp_path / f"{days}.db", sessions=[row]) for days, row in rows.items()]
    one, both = sa.read(paths[0]), sa.read(*paths)
    assert "one instant" not in repr(one) + one._repr_html_()
    for shown in (repr(both), both._repr_html_()):
        assert "(the newest moment in the data, one instant for all 2 inputs)" in shown
        assert "kB, up to 2026-05-27 00:00 UTC" in shown
        assert "kB, up to 2026-05-24 00:00 UTC" in shown
    told = [sa.report(snap, sections=["provenance"]).summary for snap in (one, both)]
    said = [summary["provenance"]["as_of"]["in_words"] for summary in told]
    assert "inputs" not in said[0]
    assert said[1].endswith(
        "one instant for all 2 inputs; the data of 1 end more than a day before it, "
        "so work that is open there appears silent since"
    )


@pytest.mark.slow
def test_an_as_of_in_the_past_counts_and_lists_nothing_that_began_later(tmp_path):
    rows = [
        session(name, status="failed", created_at=NOW_S + at, ended_at=NOW_S + at)
        for name, at in BEGAN.items()
    ]
    snap = sa.read(write_store(tmp_path / "state.db", sessions=rows), as_of=NOW)
    states, listed = sa.states(snap), sa.attention(snap)
    assert states["entity_id"].to_list() == listed["entity_id"].to_list() == ["before"]
    provenance = sa.report(snap, sections=["provenance"]).summary["provenance"]
    assert provenance["entities"] == [{"entity_type": "session", "n_read": 1, "n_in_window": 1}]
    found = {one["code"]: one["n_rows"] for one in provenance["findings"]}
    assert found["time.after_as_of"] == 2


BEGAN = {"before": -100.0, "after": 100.0, "long after": 1e6}


@pytest.mark.slow
def test_many_inputs_are_counted_and_not_all_listed(tmp_path):
    paths = [write_store(tmp_path / f"{i}.db", sessions=[session("a")]) for i in range(7)]
    shown = repr(sa.read(*paths))
    assert ": 1 run, " in shown and "and 2 more, see .sources" in shown
    assert shown.count("\n") < 9


def test_a_snapshot_without_inputs_can_be_shown():
    empty = [frame.empty() for frame in schema.FACTS]
    snap = Snapshot(*empty, as_of=NOW)
    assert "0 runs, 0 open, 0 failed or timed out" in repr(snap)
    assert "no system" in snap._repr_html_()
    assert snap == snap
    assert len({snap, snap}) == 1


# --- raw tables ------------------------------------------------------------------------


def test_raw_tables_hold_what_is_stored(store, kept):
    raw = kept.sql("SELECT id, created_at, odd, blob FROM raw_sessions ORDER BY id")
    assert raw.rows() == [("a", NOW_S - 100, "1", None), ("b", NOW_S - 100, "text", "00FF")]
    assert raw.schema["created_at"] == pl.Float64
    changes = kept.sql("SELECT store, source FROM raw_status_transitions")
    assert changes.row(0) == (str(store), "executor")


def test_bodies_are_read_only_on_request(store, kept):
    query = "SELECT content FROM raw_messages"
    with pytest.raises(sa.errors.QueryError, match=r"has texts of messages(.|\n)*bodies=True"):
        kept.sql(query)
    assert kept.sql("SELECT * FROM raw_messages").columns == ["store", "id", "created_at", "role"]
    with_bodies = sa.read(store, bodies=True)
    assert "said" in with_bodies.sql(query).item()
    assert with_bodies.sql("SELECT has_bodies FROM snapshot").item() is True


def test_a_database_of_something_else_gives_no_raw_tables(tmp_path):
    write_store(tmp_path / "one.db", sessions=[session("a")])
    wrote(tmp_path / "other.db", "CREATE TABLE secrets (x)")
    snap = sa.read(tmp_path)
    assert snap.findings.filter(code="source.skipped").height == 1
    assert "raw_secrets" not in snap.schema()["frame"].to_list()
    assert snap.sql("SELECT count(*) FROM raw_sessions").item() == 1


def test_a_hostile_table_is_only_a_table(tmp_path):
    name = 'x" AS SELECT 1; DROP VIEW states; --'
    path = write_store(tmp_path / "state.db", sessions=[session("a")])
    quoted = name.replace('"', '""')
    create = f'CREATE TABLE "{quoted}" ("c""; DROP", store)'
    wrote(path, create, f"INSERT INTO \"{quoted}\" VALUES (5, 'mine')")
    snap = sa.read(path)
    row = snap.sql(f'FROM "raw_{quoted}"').row(0, named=True)
    assert row == {"store": str(path), 'c"; DROP': 5}
    assert snap.sql("SELECT count(*) FROM states").item() == 1


def test_empty_and_odd_raw_tables(tmp_path):
    numbers = [{"i": 1, "r": 1, "n": None}, {"i": 2**62, "r": 0.5, "n": None}]
    cells = [{"x": b"\x01"}, {"x": "text"}, {"x": b"\xff\xfe"}]
    store = write_store(tmp_path / "state.db", sessions=[], numbers=numbers, bytes=cells)
    snap = sa.read(store, as_of=NOW)
    assert snap.sql("FROM raw_sessions").height == 0
    numbers = snap.sql("SELECT i, r, n FROM raw_numbers")
    assert numbers.rows() == [(1, 1.0, None), (2**62, 0.5, None)]
    assert numbers.dtypes == [pl.Int64, pl.Float64, pl.String]
    assert snap.sql("SELECT x FROM raw_bytes")["x"].to_list() == ["01", "text", "FFFE"]


def test_raw_tables_end_with_the_private_copy(store):
    with sa.read(store) as snap:
        assert snap.table("raw_sessions").height == 2
        copies = [one.copy for one in snap.stores]
    assert not any(copy.exists() for copy in copies)
    assert snap.sql("SELECT count(*) FROM entities").item() == 2
    with pytest.raises(sa.errors.ArgumentError, match="closed"):
        snap.sql("FROM raw_messages")


def test_a_dropped_snapshot_leaves_nothing_behind(store):
    snap = sa.read(store)
    snap.sql("FROM raw_sessions")
    copies = [one.copy for one in snap.stores]
    gone = weakref.ref(snap)
    del snap
    assert gone() is None
    gc.collect()
    assert not any(copy.exists() for copy in copies)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.36.0", "0.26.0", "0.29.1", "organic-0.36.0/lionagi_home"])
def test_every_table_of_a_real_store_can_be_asked(lionagi_samples, version):
    snap = sa.read(lionagi_samples / version)
    names = snap.sql("SHOW TABLES")["name"].to_list()
    assert "raw_sessions" in names
    for name in names:
        assert snap.sql(f"FROM {name} LIMIT 3", timeout_s=60).columns, name
    counts = "SELECT count(*) FROM raw_sessions"
    in_states = "SELECT count(*) FROM states WHERE entity_type = 'session'"
    assert snap.sql(counts).item() == snap.sql(in_states).item()


# --- schema and tables -----------------------------------------------------------------


@pytest.mark.slow
def test_schema_lists_every_column_of_every_table(kept):
    columns = (snap := kept).schema()
    assert columns.columns == ["frame", "column", "dtype", "unit", "meaning"]
    for name in snap.sql("SHOW TABLES")["name"]:
        listed = snap.schema(name)
        assert listed["meaning"].str.len_chars().min() > 0, name
        if not name.startswith("raw_"):
            assert listed["column"].to_list() == snap.table(name).columns, name
    assert "raw_messages" in columns["frame"].to_list()
    unread = snap.schema("raw_messages").filter(column="content")["meaning"].item()
    assert "bodies=True" in unread
    # Results of functions are frames, too, and no tables of SQL.
    of_tables = snap.sql("FROM columns")
    assert columns.head(of_tables.height).equals(of_tables)
    assert "clusters" not in set(of_tables["frame"])


@pytest.mark.parametrize("name", a_few(["stats", "raw_nothing", "", None], 2))
def test_a_name_that_is_not_there_says_which_are(kept, name):
    with pytest.raises(sa.errors.ArgumentError, match=r"There is no table(.|\n)*Hint:"):
        kept.table(name)
    if name is not None:
        with pytest.raises(sa.errors.ArgumentError, match=r"There is no frame(.|\n)*Hint:"):
            kept.schema(name)


def test_a_whole_table_has_no_row_cap(demo):
    joined = demo.table("entity_states")
    assert joined.height == demo.entities.height
    assert joined["severity"].dtype == pl.Enum(schema.SEVERITIES)


def test_states_of_another_policy_do_not_mix(demo):
    query = "SELECT count(*) FROM states WHERE severity = 'critical'"
    aborted = "SELECT count(*) FROM states WHERE outcome = 'aborted'"
    plain, mild = demo.sql(query).item(), demo.sql(query, policy=sa.Policy.adr0025()).item()
    assert plain - mild <= demo.sql(aborted).item()
    assert mild < plain == demo.sql(query).item()


def test_a_small_question_is_answered_at_once(kept):
    """The states are derived once: asking for them again costs little more than nothing."""
    states = "SELECT severity, count(*) FROM states GROUP BY ALL"
    kept.sql(states)
    assert times_as_slow(kept.sql, states, "SELECT 1", most=10) < 10

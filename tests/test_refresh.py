"""A refreshed snapshot is what a fresh read gives; the one before stays what it was."""

import gc
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
import warnings
import weakref
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.core.schema import FACTS
from stateanalytics.errors import ArgumentError, SourceNotFoundError
from stateanalytics.io import parts, sqlite, sqlite_copy
from stateanalytics.io.cells import ROWID, TEXT
from stateanalytics.io.sqlite import open_store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.snapshot import read_for_once
from stateanalytics.systems import reading
from stateanalytics.systems.lionagi import events as lionagi_events
from stateanalytics.systems.lionagi import reading as lionagi
from tests.ao_trees import lifecycle, put, record, write_json
from tests.examples import a_few, examples, some_of
from tests.frames import AS_OF, facts
from tests.lionagi_stores import NOW_S, change, listing, session, write_store, wrote

FRAMES = [frame.name for frame in FACTS]


def first(path):
    """A store with two sessions, their messages, a transition and a signal."""
    return write_store(
        path,
        sessions=[session("a"), session("b", status="running", ended_at=None)],
        branches=[{"id": "x", "session_id": "a", "progression_id": "list-x", "status": None}],
        progressions=[listing("list-a", ["m1"]), listing("list-b", []), listing("list-x", ["m2"])],
        messages=[message("m1", 100), message("m2", 99)],
        status_transitions=[change("a", "completed", NOW_S - 600)],
        session_signals=[
            {"session_id": "a", "seq": 1, "kind": "RunStart", "ts": NOW_S, "payload": "{}"}
        ],
    )


def message(identity, ago_s, content="hello"):
    told = {"content": content, "role": "user", "lion_class": 2}
    return {"id": identity, "created_at": NOW_S - ago_s, **told}


def read(path):
    return sa.read(path, as_of=AS_OF, progress=False)


def assert_same(one, other):
    for name in FRAMES:
        assert_frame_equal(getattr(one, name), getattr(other, name))
    assert one.details.keys() == other.details.keys()
    for name, frame in one.details.items():
        assert_frame_equal(frame, other.details[name])
    assert (one.as_of, one.as_of_from) == (other.as_of, other.as_of_from)


WRITES = {
    "append": "INSERT INTO messages (id, created_at, content, role) "
    "VALUES ('n{n}', {at}, 'x', 'user')",
    "change": "INSERT INTO status_transitions (id, entity_type, entity_id, status, created_at) "
    "VALUES ('t{n}', 'session', 'b', 'running', {at})",
    "signal": "INSERT INTO session_signals (session_id, seq, kind, ts, payload) "
    "VALUES ('a', {n}, 'NodeStarted', {at}, '{{\"name\": \"step\"}}')",
    "finish": "UPDATE sessions SET status = 'failed', ended_at = {at} WHERE id = 'b'",
    "prune": "DELETE FROM messages WHERE id = (SELECT min(id) FROM messages)",
    "replace_last": "UPDATE messages SET id = 'r{n}', created_at = {at} "
    "WHERE rowid = (SELECT max(rowid) FROM messages)",
    "empty": "UPDATE messages SET content = '[pruned]' WHERE rowid = 1",
    "odd": "INSERT INTO messages (id, created_at, content, role) VALUES ('o{n}', 'soon', x'ff', 1)",
    "clear": "DELETE FROM status_transitions",
    "far": "INSERT INTO messages (rowid, id, created_at) VALUES ({far}, 'f{n}', {at})",
    "widen": "ALTER TABLE messages ADD COLUMN more{n} TEXT",
    "compact": "VACUUM",
    "long": "INSERT INTO messages (id, created_at, content, role) "
    "VALUES ('l{n}', {at}, hex(zeroblob(30000)), 'user')",
    "overwrite": "UPDATE messages SET content = hex(zeroblob(29999)) || 'a{n}' "
    "WHERE length(content) > 50000",
    "list": "UPDATE progressions SET collection = '[\"m1\", \"n{n}\", \"m2\", \"n2\"]' "
    "WHERE id IN ('list-a', 'list-b') OR {n} % 2",
    "escape": "UPDATE progressions SET collection = '[\"m\\u0031\", \"n{n}\", \"m1\"]' "
    "WHERE id = 'list-a'",
    "both": "UPDATE progressions SET collection = '[\"m2\", \"m1\", \"m1\"]'",
    "early": "UPDATE messages SET created_at = {at} - 900 WHERE rowid = (SELECT max(rowid) "
    "FROM messages)",
    "own": "UPDATE branches SET session_id = CASE session_id WHEN 'a' THEN 'b' ELSE 'a' END",
    "many": "INSERT INTO messages (id, created_at, content, role) WITH RECURSIVE c(i) AS (VALUES "
    "(1) UNION ALL SELECT i + 1 FROM c WHERE i < 300) SELECT 'w{n}-' || i, {at} + i, "
    "hex(zeroblob(i)), 'user' FROM c",
    "thin": "DELETE FROM messages WHERE rowid % 3 = 1",
    "checkpoint": "PRAGMA wal_checkpoint(TRUNCATE)",
    "begin_anew": "PRAGMA wal_checkpoint(RESTART)",
}  # fmt: skip


ROUNDS = st.lists(st.lists(st.sampled_from(sorted(WRITES)), max_size=3), max_size=4)


@pytest.mark.slow
@pytest.mark.parametrize("mode", a_few(["WAL", "DELETE"]))
@examples(5, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rounds=ROUNDS, is_open=st.booleans())
def test_whatever_is_written_a_refresh_equals_a_fresh_read(tmp_path_factory, mode, rounds, is_open):
    path = first(tmp_path_factory.mktemp("store") / "state.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"PRAGMA journal_mode={mode}")
        other.execute("SELECT count(*) FROM sessions").fetchone()
        if not is_open:
            other.close()
        snap, n = read(path), 0
        for writes in rounds:
            for name in writes:
                n += 1
                wrote(path, WRITES[name].format(n=n, at=NOW_S - 50 + n, far=10**12 + n))
            snap = snap.refresh(progress=False)
            assert_same(snap, read(path))


@pytest.mark.slow
@pytest.mark.parametrize("name", a_few(["append", "long", "finish", "list"], 2))
def test_beside_an_open_writer_only_the_log_is_read(tmp_path, monkeypatch, name):
    path = first(tmp_path / "state.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute(WRITES["signal"].format(n=2, at=NOW_S))
        snap = read(path)
        copies = []

        def counted(self, folder, request, *more, begin=sqlite._PrivateCopy.__init__):
            copies.append(request)
            begin(self, folder, request, *more)

        monkeypatch.setattr(sqlite._PrivateCopy, "__init__", counted)
        for n in (3, 4):
            writer.execute(WRITES[name].format(n=n, at=NOW_S + n))
            later = snap.refresh(progress=False)
            snap.close()
            snap = later
        assert copies == ["follow"] * 2
        query = "SELECT count(*), min(id), max(id) FROM {}messages"
        in_store = writer.execute(query.format("")).fetchone()
        assert snap.sql(query.format("raw_")).row(0) == in_store
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        writer.execute(WRITES["append"].format(n=5, at=NOW_S))
        assert_same(snap.refresh(progress=False), read(path))
        assert copies == ["follow"] * 3 + ["copy"] * 2


@pytest.mark.parametrize("name", ["long", "many", "thin", "list", "finish"])
def test_of_pages_that_did_not_change_no_row_is_read_again(tmp_path, name):
    path = first(tmp_path / "state.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        for write in ("many", "long", "many"):
            writer.execute(WRITES[write].format(n=9, at=NOW_S).replace("w9-", f"{write}{path}"))
            writer.execute("UPDATE messages SET id = 'x' || rowid")
        with open_store(path) as before:
            before.check()
            writer.execute(WRITES[name].format(n=7, at=NOW_S))
            with open_store(path, earlier=before) as now:
                assert now.since is not None
                columns = {"rowid": ROWID, "id": TEXT, "content": TEXT}
                rows = [read_table(each, "messages", columns)[0] for each in (before, now)]
                changed = now.since.rows["messages"]
                apart = [
                    each.filter(~pl.col("rowid").is_in([*numbers]))
                    for each, numbers in zip(rows, (changed.before, changed.now), strict=True)
                ]
                assert_frame_equal(*apart)
                assert name == "thin" or apart[1].height > rows[1].height / 3


def test_a_text_that_is_written_over_where_it_overflows_is_no_proof(tmp_path):
    """The row's own page is as it was: which row it is cannot be told by what changed."""
    path = first(tmp_path / "state.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute(WRITES["long"].format(n=9, at=NOW_S))
        with open_store(path) as before:
            before.check()
            other = "hex(zeroblob(29999)) || 'ab'"
            writer.execute(f"UPDATE messages SET content = {other} WHERE id = 'l9'")
            with open_store(path, earlier=before) as now:
                assert now.since is None


@pytest.mark.slow
@pytest.mark.parametrize("name", a_few(sorted(WRITES), 2))
def test_each_way_to_write_is_seen(tmp_path, name):
    path = first(tmp_path / "state.db")
    before = read(path)
    wrote(path, WRITES[name].format(n=7, at=NOW_S, far=10**12))
    assert_same(before.refresh(progress=False), read(path))


def test_the_snapshot_before_stays_what_it_was(tmp_path):
    path = first(tmp_path / "state.db")
    before = read(path)
    kept = {name: getattr(before, name).clone() for name in FRAMES}
    wrote(path, "DELETE FROM messages")
    after = before.refresh(progress=False)
    assert after.events.height < before.events.height
    for name, frame in kept.items():
        assert_frame_equal(getattr(before, name), frame)
    assert before.sql("SELECT count(*) AS n FROM raw_messages")["n"].item() == 2
    after.close()
    assert before.sql("SELECT count(*) AS n FROM raw_messages")["n"].item() == 2


def test_of_a_table_that_grew_only_the_new_rows_are_read(tmp_path, monkeypatch):
    path = first(tmp_path / "state.db")
    before = read(path)
    wrote(path, WRITES["append"].format(n=1, at=NOW_S))
    asked = {}

    def read_table(store, table, columns, *, system="", only=None):
        asked[table] = only
        return whole(store, table, columns, system=system, only=only)

    whole = parts.read_table
    monkeypatch.setattr(parts, "read_table", read_table)
    after = before.refresh(progress=False)
    assert asked == {"messages": {1, 2, 3}}, "the rows of the one page that changed"
    assert after.events.height == before.events.height + 1


def test_events_of_messages_that_did_not_change_are_not_derived_again(tmp_path, monkeypatch):
    path = first(tmp_path / "state.db")
    many = [(f"old{n}", NOW_S - 500, "x" * 3000, "user") for n in range(50)]
    wrote(path, ("INSERT INTO messages (id, created_at, content, role) VALUES (?, ?, ?, ?)", many))
    before = read(path)
    wrote(path, *(WRITES[name].format(n=2, at=NOW_S) for name in ("append", "list")))
    derived = []

    def message_events(raw):
        derived.append(raw["messages"].height)
        return whole(raw)

    whole = lionagi_events.message_events
    monkeypatch.setattr(lionagi_events, "message_events", message_events)
    after = before.refresh(progress=False)
    assert len(derived) == 1
    assert derived[0] < 20
    monkeypatch.undo()
    assert_same(after, read(path))


@pytest.mark.slow
def test_a_closed_snapshot_can_still_be_refreshed(tmp_path):
    path = first(tmp_path / "state.db")
    before = read(path)
    before.close()
    assert_same(before.refresh(progress=False), read(path))


@pytest.mark.slow
@pytest.mark.parametrize("n_rounds", a_few([2, 5]))
def test_a_live_writer_is_not_blocked_and_its_last_commit_is_seen(tmp_path, n_rounds):
    path = first(tmp_path / "state.db")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        snap = read(path)
        for n in range(n_rounds):
            writer.execute(WRITES["append"].format(n=n, at=NOW_S))
            snap = snap.refresh(progress=False)
            assert snap.events.filter(pl.col("kind") == "message").height == 3 + n
            writer.execute("BEGIN IMMEDIATE")
            writer.execute(WRITES["change"].format(n=n, at=NOW_S))
            assert snap.refresh(progress=False).transitions.height == 1 + n
            writer.execute("COMMIT")
        assert_same(snap.refresh(progress=False), read(path))


@pytest.mark.slow
def test_the_instant_is_chosen_as_before_or_given(tmp_path):
    path = first(tmp_path / "state.db")
    assert read(path).refresh(progress=False).as_of == AS_OF
    later = read(path).refresh(as_of="2026-06-01", progress=False)
    assert later.as_of.isoformat() == "2026-06-01T00:00:00+00:00"
    proven = sa.read(path, progress=False)
    wrote(path, WRITES["append"].format(n=1, at=NOW_S + 3600))
    assert (proven.refresh(progress=False).as_of - proven.as_of).total_seconds() == 3600


@pytest.fixture
def copied(monkeypatch):
    """The stores that are copied to be read."""
    names = []

    def open_store(path, **options):
        names.append(path.name)
        return whole(path, **options)

    whole = reading.open_store
    monkeypatch.setattr(reading, "open_store", open_store)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("mode", a_few(["WAL", "DELETE"]))
def test_what_nobody_wrote_to_is_not_read_again(tmp_path, copied, mode):
    path = first(tmp_path / "state.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute(f"PRAGMA journal_mode={mode}")
        writer.execute(WRITES["append"].format(n=1, at=NOW_S))
        before = read(path)
        after = before.refresh(progress=False)
        assert copied == ["state.db"]
        assert_same(after, before)
        before.close()
        assert after.sql("SELECT count(*) AS n FROM raw_messages")["n"].item() == 3
        for n in range(2, 4):
            writer.execute(WRITES["append"].format(n=n, at=NOW_S))
            after = after.refresh(progress=False)
            assert_same(after, read(path))
            assert_same(after.refresh(progress=False), after)
        assert copied == ["state.db"] * 5


@pytest.mark.slow
def test_of_several_stores_only_the_one_that_was_written_to_is_read_again(tmp_path, copied):
    for name in ("one.db", "two.db"):
        first(tmp_path / name)
    wrote(tmp_path / "two.db", "UPDATE sessions SET id = 'z' || id, created_at = created_at + 9")
    snap = read(str(tmp_path / "*.db"))
    wrote(tmp_path / "two.db", WRITES["finish"].format(at=NOW_S).replace("'b'", "'zb'"))
    again = snap.refresh(progress=False)
    assert copied == ["one.db", "two.db", "two.db"]
    assert_same(again, read(str(tmp_path / "*.db")))


@pytest.mark.slow
@pytest.mark.parametrize("is_there", a_few([True, False]))
def test_what_was_a_copy_of_a_store_is_whole_when_it_is_none_any_more(tmp_path, copied, is_there):
    store, backup = first(tmp_path / "a.db"), tmp_path / "b.db"
    shutil.copy(store, backup)
    snap = read(str(tmp_path / "*.db"))
    assert snap.refresh(progress=False).sources["same_as"].to_list() == [None, str(store)]
    assert copied == ["a.db", "b.db"]
    store.unlink()
    if is_there:
        write_store(store, sessions=[session("c")])
    again = snap.refresh(progress=False)
    assert again.sql("SELECT count(*) AS n FROM raw_messages")["n"].item() == 2
    assert_same(again, read(str(tmp_path / "*.db")))


@pytest.mark.parametrize("mode", ["DELETE", "PERSIST", "WAL"])
def test_a_commit_is_seen_whatever_sizes_and_times_say(tmp_path, monkeypatch, mode):
    """As where two commits fall into one tick of the clock, or the log begins anew."""
    path = str(first(tmp_path / "state.db"))
    monkeypatch.setattr(sqlite_copy, "signature", lambda _: [None, None, None])
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute(f"PRAGMA journal_mode={mode}")
        states = []
        for n in range(6):
            writer.execute(WRITES["signal"].format(n=n + 5, at=NOW_S))
            if n == 3:
                writer.execute("PRAGMA wal_checkpoint(RESTART)")
            states.append(sqlite_copy.state(path, is_live=True))
            assert sqlite_copy.state(path, is_live=True) == states[-1]
    assert len(set(states)) == 6
    assert None not in states


def test_a_writer_who_keeps_the_index_to_himself_is_told_by_time_alone(tmp_path):
    path = str(first(tmp_path / "state.db"))
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA locking_mode=EXCLUSIVE")
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute(WRITES["append"].format(n=1, at=NOW_S))
        assert sqlite_copy.state(path, is_live=True) is None
        os.utime(path, (1, 1))
        os.utime(path + "-wal", (1, 1))
        assert sqlite_copy.state(path, is_live=True) is not None


def test_what_a_closed_log_brought_into_the_store_is_told_by_time_alone(tmp_path):
    path = str(first(tmp_path / "state.db"))
    for mode in ("WAL", "DELETE"):
        wrote(path, f"PRAGMA journal_mode={mode}", WRITES["finish"].format(at=NOW_S))
        assert (sqlite_copy.state(path, is_live=False) is None) is (mode == "WAL")
    wrote(path, "PRAGMA journal_mode=WAL")
    os.utime(path, (1, 1))
    assert sqlite_copy.state(path, is_live=False) is not None


@pytest.mark.slow
def test_files_beside_a_store_are_looked_at_too(tmp_path, monkeypatch, copied):
    path = first(tmp_path / "state.db")
    run = tmp_path / "runs" / "r1" / "run.json"
    run.parent.mkdir(parents=True)
    run.write_text('{"status": "running", "started_at": "2026-05-01T00:00:00Z"}')
    snap = read(path)
    assert_same(snap.refresh(progress=False), snap)
    assert copied == ["state.db"] * 2, "within two seconds of a write, times prove nothing"
    monkeypatch.setattr("stateanalytics.io.cache._TICK_NS", 0)
    snap = read(path)
    assert_same(snap.refresh(progress=False), snap)
    assert copied == ["state.db"] * 3
    run.write_text('{"status": "failed", "started_at": "2026-05-01T00:00:00Z"}')
    again = snap.refresh(progress=False)
    assert_same(again, read(path))
    assert again.detail("lionagi_runs")["derived_status"].to_list() == ["failed"]


@pytest.mark.slow
def test_a_file_in_a_linked_directory_is_looked_at_too(tmp_path, monkeypatch):
    """As where a project lies on another disk; a repository that is worked on is left alone."""
    monkeypatch.setattr("stateanalytics.io.cache._TICK_NS", 0)
    root, disk = tmp_path / ".agent-orchestrator", tmp_path / "disk"
    stored = write_json(disk, "web-1", record(lifecycle()))
    (root / "projects").mkdir(parents=True)
    (root / "projects" / "web").symlink_to(disk / "projects" / "web")
    worktree = put(disk / "projects" / "web" / "worktrees" / "web-1" / "a.py", "1")
    time.sleep(0.02)
    snap = read(root)
    put(worktree, "12")
    assert snap.refresh(progress=False).entities is snap.entities
    put(stored, json.dumps(record(lifecycle("terminated", "killed_by_user"))))
    again = snap.refresh(progress=False)
    assert again.entities["raw_status"].to_list() == ["terminated"]
    assert_same(again, read(root))


@pytest.mark.slow
def test_a_show_that_comes_to_lie_where_the_store_says_is_read(tmp_path):
    folder = tmp_path / "elsewhere" / "topic"
    show = {"id": "s", "topic": "topic", "status": "active", "show_dir": str(folder)}
    path = write_store(tmp_path / "state.db", sessions=[session("a")], shows=[show])
    snap = read(path)
    folder.mkdir(parents=True)
    (folder / "_ABORT").touch()
    again = snap.refresh(progress=False)
    assert again.detail("lionagi_shows_on_disk")["disk_status"].to_list() == ["aborted"]
    assert_same(again, read(path))


def test_locks_that_this_process_holds_survive_a_refresh(tmp_path):
    path = first(tmp_path / "state.db")
    other = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], timeout=0)"
    other += "; db.execute('BEGIN IMMEDIATE')"
    command = [sys.executable, "-c", other, str(path)]
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("BEGIN IMMEDIATE")
        read(path).refresh(progress=False)
        assert b"locked" in subprocess.run(command, capture_output=True, check=False).stderr


@pytest.mark.slow
def test_thousands_of_refreshes_need_no_more_memory_than_a_few(tmp_path):
    path = first(tmp_path / "state.db")
    at, sizes = AS_OF, []
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        snap = read(path)
        n_refreshes = some_of(10_000, 2)
        for n in range(n_refreshes):
            if n % 100 == 0:
                writer.execute(WRITES["signal"].format(n=n + 5, at=NOW_S))
            at += timedelta(seconds=1)
            again = snap.refresh(as_of=at, progress=False)
            snap.close()
            snap = again
            if (n + 1) % (n_refreshes // 10) == 0:
                sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
        # While the log is there, which counts as a part of the store and goes with its writer.
        assert_same(snap, sa.read(path, as_of=at, progress=False))
    assert max(sizes[2:]) < sizes[1] + 30e6


def test_inputs_that_came_or_went_are_noticed(tmp_path):
    first(tmp_path / "one.db")
    snap = sa.read(str(tmp_path / "*.db"), as_of=AS_OF, progress=False)
    first(tmp_path / "two.db")
    assert snap.refresh(progress=False).sources.height == 2
    for path in tmp_path.glob("*.db"):
        path.unlink()
    with pytest.raises(SourceNotFoundError):
        snap.refresh(progress=False)


@pytest.mark.slow
def test_who_reads_once_keeps_nothing_to_go_on_from(tmp_path, monkeypatch):
    """What a command reads is the same, in less memory, and can be read again all the same."""
    store, tables, are_gone = first(tmp_path / "state.db"), [], []
    read_raw, add_starts = lionagi.read_raw, lionagi.directories.add_starts

    def watched(*arguments, **options):
        tables.append(weakref.ref((told := read_raw(*arguments, **options))[0]["messages"]))
        return told

    def looked(*arguments):
        gc.collect()
        are_gone.append(tables[-1]() is None)
        return add_starts(*arguments)

    monkeypatch.setattr(lionagi, "read_raw", watched)
    monkeypatch.setattr(lionagi.directories, "add_starts", looked)
    once, kept = read_for_once(store, as_of=AS_OF), read(store)
    assert_same(once, kept)
    assert are_gone == [True, False]
    assert_same(once.refresh(progress=False), kept)


def test_what_was_not_read_cannot_be_read_again():
    by_hand = facts([])
    snap = sa.Snapshot(**{name: getattr(by_hand, name) for name in (*FRAMES, "as_of")})
    with pytest.raises(ArgumentError, match="does not know what it was read from"):
        snap.refresh()


def test_a_table_without_row_numbers_is_read_again(tmp_path):
    path = tmp_path / "a.db"
    wrote(path, "CREATE TABLE t (id TEXT PRIMARY KEY) WITHOUT ROWID", "INSERT INTO t VALUES ('a')")
    with open_store(path) as store:
        kept = parts.refresh_table(store, "t", {"id": TEXT})
        again = parts.refresh_table(store, "t", {"id": TEXT}, kept)
    assert again.rows["id"].to_list() == ["a"]


@pytest.mark.slow
def test_a_refresh_beside_lionagi_itself_equals_a_fresh_read(tmp_path):
    """The real writer, its connection open all the while."""
    import asyncio

    from lionagi.state import db

    path = tmp_path / "state.db"

    async def work() -> None:
        async with db.StateDB(path) as store:
            snap = None
            for n in range(3):
                await store.create_progression(f"list-{n}")
                moments = dict.fromkeys(("created_at", "updated_at", "started_at"), NOW_S + n)
                own = {"id": f"s{n}", "name": "agent", "progression_id": f"list-{n}"}
                known = {"status": "running", "node_metadata": {}}
                await store.create_session({**own, **known, **moments})
                await store.insert_session_signal(
                    session_id=f"s{n}", kind="RunStart", ts=NOW_S + n, payload={}
                )
                snap = read(path) if snap is None else snap.refresh(progress=False)
                assert_same(snap, read(path))
                why = {"reason_code": "run.completed.ok", "reason_summary": "done"}
                await store.update_status("session", f"s{n}", new_status="completed", **why)
            assert_same(snap.refresh(progress=False), read(path))

    asyncio.run(work())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_that_would_wait_for_ever_is_refused(tmp_path):
    snap = read(first(tmp_path / "state.db"))
    with warnings.catch_warnings(action="ignore"):  # threads of polars, which the child lets be
        child = os.fork()
    if not child:
        try:
            snap.refresh(progress=False)
        except ArgumentError as error:
            os._exit(7 if "is a fork" in str(error) and "spawn" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

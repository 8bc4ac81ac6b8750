"""Opening a SQLite store: what works, what disturbs nobody, and what every refusal says."""

import ctypes
import gc
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
import textwrap
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

import stateanalytics as sa
from stateanalytics import errors
from stateanalytics.io import processes, refusals, sqlite, sqlite_copy
from stateanalytics.io.cells import INTEGER, TEXT
from stateanalytics.io.sqlite import open_store
from stateanalytics.io.sqlite_tables import read_table
from tests.examples import a_few
from tests.lionagi_stores import wrote

N_ROWS = 200


def written(path, *, journal="delete", n_rows=N_ROWS, text="x" * 100):
    """A small store with one table, closed again."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO t (a) VALUES (?)", [(text,)] * n_rows)
        connection.execute("COMMIT")
    return path


@pytest.fixture
def path(tmp_path):
    """A small store that a test may change."""
    return written(tmp_path / "state.db")


def n_rows(path, **named):
    with open_store(path, **named) as store:
        return read_table(store, "t", {"id": INTEGER})[0].height


def folder_listing(path):
    """Everything in the folder of a store, with sizes and times of change."""
    return sorted(
        (entry.name, entry.stat().st_size, entry.stat().st_mtime_ns, entry.stat().st_ino)
        for entry in os.scandir(Path(path).parent)
    )


def refusal(path, error):
    with pytest.raises(error) as caught:
        open_store(path).check()
    assert isinstance(caught.value, errors.SourceError)
    assert "\nHint: " in str(caught.value)
    return str(caught.value)


@contextmanager
def another_process(code, *arguments):
    """Run Python elsewhere until it prints a line; end it when the block ends."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def without_privileges(code, *arguments):
    """What Python prints when even root may not pass over file permissions."""

    def give_up():
        if os.geteuid() == 0:
            for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
                ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP

    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    how = {"capture_output": True, "text": True, "preexec_fn": give_up}
    return subprocess.run(command, check=True, **how).stdout


COUNT = """
    import sys
    from stateanalytics.errors import SourceError
    from stateanalytics.io.cells import INTEGER
    from stateanalytics.io.sqlite import open_store
    from stateanalytics.io.sqlite_tables import read_table
    try:
        with open_store(sys.argv[1]) as store:
            print(read_table(store, "t", {"id": INTEGER})[0].height)
    except SourceError as error:
        print(type(error).__name__, error)
"""
HOLD = """
    import sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    for statement in sys.argv[2:]:
        connection.execute(statement).fetchall()
    print("ready", flush=True)
    sys.stdin.read()
"""


# --- what works ------------------------------------------------------------------------


NAMES = ["state.db", "with space.db", "žluťoučký 研究 🐎.db", "what?mode=memory.db", "-dash.db"]
NAMES += ["half#fragment.db", "50%25 %00.db", "quote'\".db", "new\nline.db", "file:state.db"]
NAMES += [":memory:", os.fsdecode(b"not-utf8-\xff.db")]


@pytest.mark.parametrize("name", a_few(NAMES, 4))
def test_every_character_of_a_name_is_a_character_of_the_name(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    written(tmp_path / "plain.db").rename(path)
    assert n_rows(path) == N_ROWS
    assert n_rows(name) == N_ROWS


def test_the_label_is_the_name_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "state.db")
    with open_store("./state.db") as store:
        assert store.label == "state.db"
    with open_store("state.db", label="monday") as store:
        assert store.label == "monday"


STORES = ["agent-orchestrator-go/ao.db", "lionagi/0.36.0/state.db"]
STORES += ["opencode/v1_1.18.34/opencode.db", "opencode/v2_20260717/opencode-local.db"]


def test_tables_and_columns_are_named(tmp_path):
    with open_store(written(tmp_path / "state.db")) as store:
        assert dict(store.tables) == {"t": ("id", "a")}
        assert store.size_bytes == (tmp_path / "state.db").stat().st_size
        assert not store.is_live


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_names_of_tables_and_columns_have_no_case(shared, tmp_path, name):
    """As in SQLite: a store of which every name was written in capitals has the same rows."""
    original = shared / "samples" / name
    folder = tmp_path / "one"
    folder.mkdir()
    path = folder / original.name
    path.write_bytes(original.read_bytes())
    before = read_in_december(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("DELETE FROM sqlite_master WHERE type IN ('trigger', 'view')")
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sql%'"
        for table, sql in connection.execute(query).fetchall():
            changed = re.sub(rf"\b{table}\b", table.upper(), sql, count=1)
            for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,)):
                changed = re.sub(rf"(?<![\w']){column}(?![\w'])", column.upper(), changed)
            connection.execute(
                "UPDATE sqlite_master SET name = upper(name), tbl_name = upper(tbl_name), sql = ? "
                "WHERE name = ?",
                (changed, table),
            )
        connection.execute("UPDATE sqlite_master SET tbl_name = upper(tbl_name)")
        connection.commit()
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        names = [name for (name,) in connection.execute(query)]
        assert names == [name.upper() for name in names]
    after = read_in_december(path)
    assert before.entities.height > 20
    assert after.entities.equals(before.entities)
    assert after.transitions.equals(before.transitions)
    codes = [snap.findings["code"].value_counts().sort("code") for snap in (before, after)]
    assert codes[0].equals(codes[1])


def read_in_december(path):
    return sa.read(path, as_of=datetime(2026, 12, 1, tzinfo=UTC), progress=False)


def test_a_store_without_tables_has_none(tmp_path):
    with open_store(wrote(tmp_path / "state.db", "PRAGMA user_version = 3")) as store:
        assert dict(store.tables) == {}


def test_a_link_leads_to_the_store_and_its_log(tmp_path):
    (tmp_path / "real").mkdir()
    path = written(tmp_path / "real" / "state.db", journal="wal")
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with another_process(HOLD, path, "PRAGMA wal_autocheckpoint=0", "INSERT INTO t (a) VALUES (1)"):
        assert n_rows(link) == N_ROWS + 1
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["link.db"]


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_page_sizes_and_encodings_of_sqlite_are_read(tmp_path, encoding, page_size):
    path = wrote(
        tmp_path / "state.db",
        *(f"PRAGMA encoding='{encoding}'", f"PRAGMA page_size={page_size}"),
        *("CREATE TABLE t (a TEXT)", "INSERT INTO t VALUES ('žluť ☃ 🐎')"),
    )
    with open_store(path) as store:
        assert read_table(store, "t", {"a": TEXT})[0]["a"].to_list() == ["žluť ☃ 🐎"]


def test_every_real_store_opens(lionagi_samples):
    paths = sorted(lionagi_samples.rglob("state.db"))
    assert len(paths) >= 5
    for path in paths:
        before = folder_listing(path)
        with open_store(path) as store:
            store.check()
            assert {"sessions", "branches", "plays"} <= set(store.tables)
        assert folder_listing(path) == before


# --- the private copy ------------------------------------------------------------------


def test_the_copy_is_private_and_deleted_on_close(tmp_path):
    store = open_store(written(tmp_path / "state.db"))
    folder = store.copy.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    store.close()
    assert not folder.exists()
    store.close()


def test_the_copy_is_deleted_with_the_last_reference(tmp_path):
    store = open_store(written(tmp_path / "state.db"))
    folder = store.copy.parent
    del store
    gc.collect()
    assert not folder.exists()


def test_no_copy_is_left_by_a_refusal(tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "state.db").write_text("no store at all")
    refusal(tmp_path / "state.db", errors.NotAStoreError)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_closed_store_says_so(tmp_path):
    store = open_store(written(tmp_path / "state.db"))
    store.close()
    with pytest.raises(errors.ArgumentError, match=r"was closed.\nHint: ask for it while"):
        read_table(store, "t", {"id": INTEGER})
    with pytest.raises(errors.ArgumentError, match="was closed"):
        store.check()


def test_a_missing_folder_for_temporary_files_is_no_room(path, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    message = refusal(path, errors.NoRoomError)
    assert "No private copy can be made: " in message
    assert f"No such file or directory: '{tmp_path / 'gone'}" in message
    assert "TMPDIR" in message


def test_a_system_without_any_folder_for_temporary_files_is_no_room(path, monkeypatch):

    def none():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", none)
    assert "No usable temporary directory found" in refusal(path, errors.NoRoomError)


def test_a_copy_without_room_says_where_to_put_it(path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: type("", (), {"free": 10})())
    message = refusal(path, errors.NoRoomError)
    assert all(words in message for words in ("kB in", "10 B are free", "TMPDIR"))


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), OSError(27, "big")])
def test_a_disk_that_fills_while_copying_is_no_room(path, tmp_path, monkeypatch, problem):

    def full(source, target):
        raise problem

    monkeypatch.setattr(shutil, "copyfile", full)
    answer = sqlite_copy.answered(sqlite_copy.copied, str(path), str(tmp_path / "copy.db"), 1)
    assert answer["problem"] == "no_room"
    assert isinstance(refusals.explained(path, **answer), errors.NoRoomError)


def _copier_is(script, path, monkeypatch):
    """Stores are copied by a script, written to a path."""
    path.write_text(script)
    processes.end_idle()
    monkeypatch.setattr(processes, "isolated", lambda module: [sys.executable, str(path)])


def test_a_copier_that_crashes_is_no_riddle(path, tmp_path, monkeypatch):
    _copier_is("import os; os.abort()", tmp_path / "dies.py", monkeypatch)
    assert "crashed: exit code -6" in refusal(path, errors.DamagedStoreError)


# --- the process that copies -------------------------------------------------------------


def copier(path):
    """The id of the process that copied a store."""
    with open_store(path) as store:
        pid = store._lease.private_copy._process[0].pid
        store.check()
    return pid


def test_one_process_copies_store_after_store(path):
    assert copier(path) == copier(path)


def test_two_stores_that_are_open_unchecked_have_a_process_each(path):
    with open_store(path) as one, open_store(path) as other:
        assert one._lease.private_copy._process[0].pid != other._lease.private_copy._process[0].pid


def test_a_store_that_is_closed_unchecked_ends_its_process(path):
    with open_store(path) as store:
        (process,) = store._lease.private_copy._process
    assert not process.is_alive()
    assert n_rows(path) == N_ROWS


def test_a_process_that_met_a_damaged_store_is_not_used_again(path, tmp_path):
    bad = tmp_path / "bad.db"
    bad.write_bytes(path.read_bytes()[:-4096])
    before = copier(path)
    refusal(bad, errors.DamagedStoreError)
    assert copier(path) != before


def test_a_process_that_was_killed_while_it_waited_is_replaced(path):
    os.kill(copier(path), signal.SIGKILL)
    time.sleep(0.1)
    assert n_rows(path) == N_ROWS


def test_a_process_of_other_rights_or_of_a_parent_is_not_used(path, monkeypatch):
    before = copier(path)
    monkeypatch.setattr(processes.os, "geteuid", lambda: 12345)
    assert copier(path) != before
    with warnings.catch_warnings(action="ignore"):  # threads of polars, which the child lets be
        child = os.fork()
    if not child:
        with suppress(BaseException):
            os._exit(copier(path) == before)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_that_ask_for_the_first_check_at_once_get_one_answer(path):
    with open_store(path) as store, ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: store.unchecked(), range(8))) == [[]] * 8


def test_a_process_that_started_ahead_is_used_first(tmp_path):
    processes.end_idle()
    for _ in range(2):
        processes.start_ahead()
    [ahead] = processes._IDLE
    assert processes.mentions(written(tmp_path / "state.db"), ["CREATE TABLE t "], 2**20)
    [asked_one] = processes._IDLE
    assert asked_one is ahead


def test_a_path_is_of_the_directory_of_now(tmp_path, monkeypatch):
    words = ["CREATE TABLE t "]
    monkeypatch.chdir(tmp_path)
    assert not processes.mentions(Path("state.db"), words, 2**20)
    written("state.db")
    assert processes.mentions(Path("state.db"), words, 2**20)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir("below")
    assert not processes.mentions(Path("state.db"), words, 2**20)
    os.mkfifo("pipe.db")
    assert not processes.mentions(Path("pipe.db"), words, 2**20)


# --- while others write ---------------------------------------------------------------


def test_a_store_in_wal_mode_that_nobody_uses_gets_no_new_files(tmp_path):
    path = written(tmp_path / "state.db", journal="wal")
    before = folder_listing(path)
    assert [name for name, *_ in before] == ["state.db"]
    with open_store(path) as store:
        assert not store.is_live
        assert read_table(store, "t", {"id": INTEGER})[0].height == N_ROWS
        assert folder_listing(path) == before
    assert folder_listing(path) == before


def test_of_a_store_without_a_log_who_writes_uses_it_and_who_reads_does_not(path):
    for statements, is_live in ((["BEGIN", "SELECT * FROM t"], False), (["BEGIN IMMEDIATE"], True)):
        with another_process(HOLD, path, *statements), open_store(path) as store:
            assert store.is_live == is_live, statements


def test_rows_that_are_only_in_the_log_are_read(tmp_path):
    path = written(tmp_path / "state.db", journal="wal")
    with another_process(HOLD, path, "PRAGMA wal_autocheckpoint=0", "INSERT INTO t (a) VALUES (1)"):
        before = [name for name, *_ in folder_listing(path)]
        with open_store(path) as store:
            assert store.is_live
            assert read_table(store, "t", {"id": INTEGER})[0].height == N_ROWS + 1
        assert [name for name, *_ in folder_listing(path)] == before


@pytest.mark.parametrize("kept", [("-wal",), ("-wal", "-shm"), ("-shm",)])
def test_what_a_killed_writer_left_is_read_and_left(tmp_path, kept):
    live, path = tmp_path / "live.db", tmp_path / "copied" / "state.db"
    path.parent.mkdir()
    written(live, journal="wal")
    with another_process(HOLD, live, "PRAGMA wal_autocheckpoint=0", "INSERT INTO t (a) VALUES (1)"):
        for ending in ("", *kept):
            shutil.copy(f"{live}{ending}", f"{path}{ending}")
    before = folder_listing(path)
    with open_store(path) as store:
        assert not store.is_live
        sizes = [size for name, size, *_ in before if not name.endswith("-shm")]
        assert store.size_bytes == sum(sizes)
        expected = N_ROWS + 1 if "-wal" in kept else N_ROWS
        assert read_table(store, "t", {"id": INTEGER})[0].height == expected
    assert folder_listing(path) == before


def test_a_transaction_that_a_killed_writer_left_half_done_is_rolled_back_in_the_copy(tmp_path):
    path = written(tmp_path / "state.db", n_rows=5000)
    spill = ("PRAGMA cache_size=5", "BEGIN", "DELETE FROM t WHERE id > 10")
    with another_process(HOLD, path, *spill):
        pass
    assert (tmp_path / "state.db-journal").stat().st_size > 0
    before = folder_listing(path)
    assert n_rows(path) == 5000
    assert folder_listing(path) == before


def test_an_uncommitted_write_is_not_seen_and_not_hindered(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t (a) VALUES (1)")
        assert n_rows(path) == N_ROWS
        connection.execute("COMMIT")
    assert n_rows(path) == N_ROWS + 1


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_locks_of_this_process_survive_reading_its_store(tmp_path, journal):
    path = written(tmp_path / "state.db", journal=journal)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t (a) VALUES (1)")
        assert n_rows(path) == N_ROWS
        connect = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0)"
        intruder = connect + ".execute('BEGIN IMMEDIATE')"
        command = [sys.executable, "-c", intruder, path]
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "database is locked" in tried.stderr
        connection.execute("COMMIT")


@pytest.mark.parametrize(
    ("journal", "statements"),
    [
        ("delete", ("BEGIN EXCLUSIVE",)),
        ("wal", ("PRAGMA locking_mode=EXCLUSIVE", "INSERT INTO t (a) VALUES (1)")),
    ],
)
def test_a_store_that_stays_locked_is_busy(tmp_path, monkeypatch, journal, statements):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.2)
    path = written(tmp_path / "state.db", journal=journal)
    with another_process(HOLD, path, *statements):
        message = refusal(path, errors.StoreBusyError)
    assert "for 0.2 s (database is locked)" in message and "wait for the program" in message


def test_a_store_that_never_holds_still_is_busy(tmp_path, monkeypatch):
    path = written(tmp_path / "state.db", journal="wal")
    ticks = iter(range(1000))
    monkeypatch.setattr(sqlite_copy, "signature", lambda source: [(next(ticks), 0, 0, 0)])
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(sqlite_copy.Problem) as caught:
        sqlite_copy.by_stable_bytes(str(path), str(tmp_path / "copy.db"))
    assert caught.value.word == "busy"


WRITE = """
    import random, sqlite3, sys, time
    connection = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)
    connection.execute("PRAGMA journal_mode=wal")
    n = 0
    print("ready", flush=True)
    until = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < until:
        connection.execute("BEGIN IMMEDIATE")
        n += 1
        connection.execute("INSERT INTO t (a) VALUES (?)", ("y" * random.randrange(2000),))
        connection.execute("UPDATE total SET n = n + 1")
        connection.execute("COMMIT")
    print(n, flush=True)
"""


@pytest.mark.slow
def test_every_copy_during_writes_is_of_one_instant(tmp_path):
    path = written(tmp_path / "state.db", journal="wal")
    wrote(path, "CREATE TABLE total (n INTEGER)", f"INSERT INTO total VALUES ({N_ROWS})")
    seen, largest_log = [], 0
    with another_process(WRITE, path, 3) as writer:
        while writer.poll() is None and len(seen) < 200:
            with open_store(path) as store:
                height = read_table(store, "t", {"id": INTEGER})[0].height
                total = read_table(store, "total", {"n": INTEGER})[0]["n"].item()
                assert height == total
                seen.append(height)
            log = Path(f"{path}-wal")
            largest_log = max(largest_log, log.stat().st_size if log.exists() else 0)
            if len(seen) > 5 and seen[-1] == seen[-2]:
                break
        n_written = writer.stdout.readline()
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert seen[-1] <= N_ROWS + int(n_written)
    assert largest_log < 40e6


# --- what may not be read --------------------------------------------------------------


@pytest.mark.slow
def test_a_read_only_file_in_a_read_only_folder_is_read(tmp_path):
    for journal in ("delete", "wal"):
        folder = tmp_path / journal
        folder.mkdir()
        path = written(folder / "state.db", journal=journal)
        path.chmod(0o400)
        folder.chmod(0o500)
        try:
            assert without_privileges(COUNT, path).strip() == str(N_ROWS)
            assert [name for name, *_ in folder_listing(path)] == ["state.db"]
        finally:
            folder.chmod(0o700)


@pytest.mark.slow
def test_a_live_store_in_a_read_only_folder_is_read_with_its_log(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = written(folder / "state.db", journal="wal")
    with another_process(HOLD, path, "PRAGMA wal_autocheckpoint=0", "INSERT INTO t (a) VALUES (1)"):
        for file in folder.iterdir():
            file.chmod(0o400)
        folder.chmod(0o500)
        before = folder_listing(path)
        try:
            assert without_privileges(COUNT, path).strip() == str(N_ROWS + 1)
            assert folder_listing(path) == before
        finally:
            folder.chmod(0o700)


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["folder/state.db", "folder"])
def test_without_permission_the_error_says_who_may_read(tmp_path, closed):
    (tmp_path / "folder").mkdir()
    path = written(tmp_path / "folder" / "state.db")
    (tmp_path / closed).chmod(0)
    try:
        printed = without_privileges(COUNT, path)
    finally:
        (tmp_path / closed).chmod(0o700)
    assert printed.startswith("StoreBusyError The store '")
    assert "Permission denied" in printed and "Hint: read it as the user who owns it" in printed


USUAL = """
    import sys, warnings
    import stateanalytics as sa
    warnings.simplefilter("ignore")
    try:
        found = sa.read(*sys.argv[1:], progress=False).findings.filter(code="folder.unreadable")
        assert all(one.endswith(f"/{at}") for one, at in found.select("example", "table").rows())
        print(found["example"].to_list())
    except Exception as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("closed", "named", "words"),
    [
        (".claude", "", "usual places are empty; no right to read '{}'"),
        (".claude/projects", "", "usual places are empty; no right to read '{}'"),
        (".claude/projects/-a", "", "['{}']"),
        (".claude/projects/-a", ".claude", "['{}']"),
        (".claude/projects", ".claude", "there is no right to read '{}'"),
        (".lionagi", "", "[]"),
    ],
)
def test_folders_without_permission_are_named(tmp_path, monkeypatch, closed, named, words):
    monkeypatch.setenv("HOME", str(tmp_path))
    record = '{"type":"user","sessionId":"s","uuid":"u","timestamp":"2026-05-18T09:00:00Z"}'
    for name in (".claude/projects/-a", ".claude/projects/-b", ".lionagi"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "s.jsonl").write_text(f"{record}\n")
    (tmp_path / closed).chmod(0)
    try:
        printed = without_privileges(USUAL, *filter(None, [named and tmp_path / named]))
    finally:
        (tmp_path / closed).chmod(0o700)
    assert words.format(tmp_path / closed) in printed


# --- what is no store ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nowhere.db", ["nothing is at 'nowhere.db' (no such file or directory)", "`ls -l`"]),
        ("", ["nothing is at ''"]),
        (":memory:", ["nothing is at ':memory:'", "a store in memory belongs to one process"]),
        ("file:state.db?mode=rwc", ["nothing is at", "give the plain path, without `file:`"]),
        ("state.db\0.txt", ["nothing is at 'state.db\\x00.txt' (", "embedded null"]),
        ("x" * 5000, ["file name too long"]),
    ],
)
def test_nothing_there_says_what_to_type(tmp_path, monkeypatch, path, words):
    monkeypatch.chdir(tmp_path)
    message = refusal(path, errors.SourceNotFoundError)
    assert all(word in message for word in ["A SQLite store was needed", *words])
    assert list(tmp_path.iterdir()) == []


def test_links_that_lead_nowhere_say_where_they_lead(tmp_path):
    (tmp_path / "dangling.db").symlink_to("gone.db")
    (tmp_path / "loop.db").symlink_to("loop.db")
    assert "a link to 'gone.db'" in refusal(tmp_path / "dangling.db", errors.SourceNotFoundError)
    message = refusal(tmp_path / "loop.db", errors.SourceNotFoundError)
    assert "too many levels of symbolic links" in message


def test_what_is_no_file_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / "socket"))
        for path, kind in [
            (tmp_path, "is a directory"),
            (tmp_path / "pipe", "is a named pipe"),
            (tmp_path / "socket", "is a socket"),
            ("/dev/null", "is a device"),
        ]:
            assert kind in refusal(path, errors.NotAStoreError)


SOMETHING_ELSE = {
    "empty (0 bytes)": b"",
    "is text of no known system: it begins with '{\"id\": 1}'": b'{"id": 1}',
    "is compressed with gzip": b"\x1f\x8b\x08" + bytes(200),
    "is a zip archive": b"PK\x03\x04" + bytes(200),
    "is compressed with zstd": b"(\xb5/\xfd" + bytes(200),
    "is a DuckDB database": b"12345678DUCK" + bytes(5000),
    "is the write-ahead log of a store": b"7\x7f\x06\x82" + bytes(200),
    "begins with zeros only": bytes(8192),
    "another kind of file, damaged or encrypted": random.Random(5).randbytes(8192),
}


@pytest.mark.parametrize(("words", "content"), SOMETHING_ELSE.items())
def test_a_file_that_is_no_store_is_named_for_what_it_is(tmp_path, words, content):
    (tmp_path / "state.db").write_bytes(content)
    assert words in refusal(tmp_path / "state.db", errors.NotAStoreError)


# --- what is damaged -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("journal", "size"),
    [*(("delete", size) for size in (60, 100, 4096, 8192, 20_000)), ("wal", 40_000)],
)
def test_a_truncated_store_is_damaged(tmp_path, journal, size):
    path = written(tmp_path / "state.db", journal=journal, n_rows=2000)
    os.truncate(path, size)
    message = refusal(path, errors.DamagedStoreError)
    assert "cannot be read completely, because it is damaged" in message
    if size > 100:
        assert f"truncated: {size} of " in message, message


def overwrite(path, at, n_bytes, seed):
    """Write random bytes into a file."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(random.Random(seed).randbytes(n_bytes))


@pytest.mark.parametrize("seed", range(6))
def test_a_page_of_random_bytes_is_damage(tmp_path, seed):
    path = written(tmp_path / "state.db", n_rows=2000)
    n_pages = path.stat().st_size // 4096
    overwrite(path, 4096 * random.Random(seed).randrange(1, n_pages), 4096, seed)
    words = r"it is damaged: .*\nHint: read a backup"
    with pytest.raises(errors.DamagedStoreError, match=words), open_store(path) as store:
        read_table(store, "t", {"id": INTEGER, "a": TEXT})


def test_the_end_of_a_long_text_overwritten_is_damage_though_no_scan_meets_it(tmp_path):
    path = written(tmp_path / "state.db", n_rows=3, text="x" * 20_000)
    overwrite(path, path.stat().st_size - 4096, 4096, 1)
    assert "it is damaged" in refusal(path, errors.DamagedStoreError)


def test_a_damaged_list_of_tables_is_damage(path):
    overwrite(path, 100, 3996, 3)
    assert "it is damaged" in refusal(path, errors.DamagedStoreError)


def test_rows_against_a_constraint_are_no_damage(tmp_path):
    path = wrote(
        tmp_path / "state.db",
        "CREATE TABLE t (id INTEGER, a TEXT CHECK (a <> 'x'))",
        *("PRAGMA ignore_check_constraints=ON", "INSERT INTO t VALUES (1, 'x')"),
        *("INSERT INTO t VALUES (NULL, NULL)", "PRAGMA writable_schema=ON"),
        "UPDATE sqlite_master SET sql = 'CREATE TABLE t (id INTEGER NOT NULL, a TEXT NOT NULL)'",
    )
    assert n_rows(path) == 2


@pytest.mark.parametrize("first", a_few(range(0, 40, 10)))
def test_no_file_can_crash_the_reader(tmp_path, first):
    """Bytes changed anywhere: the store is read, or refused with an error of ours."""
    original = written(tmp_path / "original.db", n_rows=300).read_bytes()
    path = tmp_path / "state.db"
    outcomes = set()
    for seed in range(first, first + 10):
        chance = random.Random(seed)
        content = bytearray(original)
        for _ in range(chance.choice((1, 3, 30))):
            content[chance.randrange(16, len(content))] = chance.randrange(256)
        path.write_bytes(content)
        try:
            with open_store(path) as store:
                read_table(store, "t", {"id": INTEGER, "a": TEXT})
            outcomes.add("read")
        except errors.SourceError as error:
            outcomes.add(type(error).__name__)
    assert outcomes <= {"read", "DamagedStoreError", "NotAStoreError", "StoreBusyError"}
    assert {"read", "DamagedStoreError"} <= outcomes


def test_a_journal_that_names_another_file_is_refused_and_deletes_nothing(tmp_path):
    """SQLite unlinks the file that a hot journal calls its super-journal."""
    store, victim = tmp_path / "state.db", tmp_path / "id_rsa"
    wrote(store, "PRAGMA page_size=512", "CREATE TABLE sessions (id TEXT)")
    victim.write_text("precious")
    magic, name = bytes.fromhex("d9d505f920a163d7"), str(victim).encode()
    pages = store.stat().st_size // 512
    header = magic + struct.pack(">IIIII", 0, 0, pages, 512, 512)
    record = struct.pack(">I", 0x40000000 // 512 + 1) + name
    record += struct.pack(">II", len(name), sum(name)) + magic
    Path(f"{store}-journal").write_bytes(header.ljust(512, b"\0") + record)
    with pytest.raises(errors.DamagedStoreError, match="names another file"):
        open_store(store)
    assert victim.read_text() == "precious"


def test_columns_that_the_store_computes_are_not_run_by_the_check(tmp_path):
    path = written(tmp_path / "state.db", n_rows=2000)
    endless = "TEXT GENERATED ALWAYS AS (printf('%.*c', 100000000, id)) VIRTUAL"
    wrote(path, f"ALTER TABLE t ADD COLUMN m {endless}", "CREATE TABLE u (a)")
    begin = time.monotonic()
    with open_store(path) as store:
        assert store.unchecked() == ["t"]
        assert read_table(store, "t", {"id": INTEGER, "m": TEXT})[0]["m"].null_count() == 2000
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIEW v AS SELECT load_extension('evil') AS c",
        "CREATE VIEW v AS SELECT nosuch(1) AS c",
        *(f"CREATE VIEW v AS SELECT * FROM {odd}" for odd in ("gone", "pragma_journal_mode", "v")),
        "INSERT INTO sqlite_master VALUES ('table', 'v', 'v', 0, "
        "'CREATE VIRTUAL TABLE v USING vec0(a)')",
        "UPDATE sqlite_master SET sql = 'CREATE TABLE t (id INTEGER, a TEXT COLLATE mine)'",
    ],
)
def test_what_the_schema_may_not_run_here_is_no_damage(path, sql):
    assert n_rows(wrote(path, "PRAGMA writable_schema=ON", sql)) == N_ROWS


class _Ending:
    """A connection whose checks end with an error, of the whole store or of some tables."""

    def __init__(self, code, words, tables=()):
        self.error = sqlite3.DatabaseError(words)
        self.error.sqlite_errorcode = code
        self.real, self.tables = sqlite3.connect(":memory:"), tables
        self.real.executescript("CREATE TABLE good (a); CREATE TABLE bad (a)")

    def __del__(self):
        self.real.close()

    def execute(self, sql):
        if sql == "PRAGMA quick_check(20)" or any(f'check("{one}")' in sql for one in self.tables):
            raise self.error
        return self.real.execute(sql)


@pytest.mark.parametrize(
    ("code", "words", "is_damage"),
    [
        (sqlite3.SQLITE_ERROR, "unsafe use of load_extension()", False),
        (sqlite3.SQLITE_ERROR, "no such collation sequence: mine", False),
        (sqlite3.SQLITE_ERROR, "not authorized", False),
        (sqlite3.SQLITE_AUTH, "not authorized", False),
        (sqlite3.SQLITE_ERROR, "subqueries prohibited in index expressions", False),
        (sqlite3.SQLITE_ERROR, "malformed JSON", False),
        (sqlite3.SQLITE_CORRUPT, "database disk image is malformed", True),
        (sqlite3.SQLITE_CORRUPT, "malformed database schema (t)", True),
        (sqlite3.SQLITE_CORRUPT | 1 << 8, "database disk image is malformed", True),
        (sqlite3.SQLITE_NOTADB, "file is not a database", True),
        (sqlite3.SQLITE_IOERR | 2 << 8, "disk I/O error", True),
    ],
)
def test_bad_pages_end_a_check_and_expressions_only_that_of_their_table(code, words, is_damage):
    whole = sqlite_copy.look_for_damage(_Ending(code, words))
    assert whole == (([words], []) if is_damage else ([], []))
    if not is_damage:
        assert sqlite_copy.look_for_damage(_Ending(code, words, ["bad"])) == ([], ["bad"])


def test_a_check_that_stops_for_another_reason_is_no_verdict():
    with pytest.raises(sqlite3.DatabaseError, match="full"):
        sqlite_copy.look_for_damage(_Ending(sqlite3.SQLITE_FULL, "database or disk is full"))


def _copier_that(tmp_path, monkeypatch, *, fails_at, words):
    script = Path(sqlite_copy.__file__).read_text()
    assert fails_at in script
    changed = script.replace(fails_at, f"raise sqlite3.OperationalError({words!r})")
    _copier_is(f"{changed}\nmain()", tmp_path / "changed.py", monkeypatch)


def test_a_disk_that_fills_during_the_check_is_no_room(path, tmp_path, monkeypatch):
    words, check = "database or disk is full", "damage, unchecked = look_for_damage(copy)"
    _copier_that(tmp_path, monkeypatch, fails_at=check, words=words)
    assert words in refusal(path, errors.NoRoomError)


def test_an_index_by_a_function_that_is_not_trusted_is_named_and_is_no_damage(
    path, tmp_path, monkeypatch
):
    """SQLite before 3.42 does not trust its own json_extract, and calls the schema malformed."""
    words = "malformed database schema (i) - unsafe use of json_extract()"
    _copier_that(tmp_path, monkeypatch, fails_at="return request(*arguments)", words=words)
    message = refusal(path, errors.NotAStoreError)
    assert words in message and "DROP INDEX" in message
    assert "damaged" not in message


def test_damage_is_reported_once():
    message = str(refusals.explained("a.db", "damaged", "database disk image is malformed"))
    assert message.count("damaged") == 1
    assert "truncated: 1 of 2 bytes" in str(refusals.explained("a.db", "truncated", "1 of 2 bytes"))


def test_a_check_that_takes_too_long_ends_and_says_so(tmp_path, monkeypatch):
    path = written(tmp_path / "state.db", n_rows=50_000)
    monkeypatch.setattr(sqlite_copy, "CHECK_S", -1.0)
    assert sqlite_copy.checked(str(path)) == {"damage": [], "unchecked": ["*"]}


def test_a_damaged_table_next_to_a_computed_one_is_damage(path):
    wrote(path, "CREATE TABLE u (a, b GENERATED ALWAYS AS (a) VIRTUAL)")
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 't'"
        (root,) = connection.execute(query).fetchone()
    overwrite(path, (root - 1) * 4096, 4096, 1)
    assert "damaged" in refusal(path, errors.DamagedStoreError)


@pytest.mark.parametrize("log", [b"garbage" * 100, b"", b"7\x7f\x06\x82" * 300])
def test_a_log_next_to_a_store_without_log_changes_nothing(path, log):
    Path(f"{path}-wal").write_bytes(log)
    before = folder_listing(path)
    assert n_rows(path) == N_ROWS
    assert folder_listing(path) == before


def test_names_that_are_not_utf8_are_reported(path):
    wrote(path, "CREATE TABLE abcd (efgh, i)")
    content = path.read_bytes()
    assert content.count(b"abcd") > 1
    path.write_bytes(content.replace(b"abcd", b"ab\xffd"))
    with open_store(path) as store:
        assert (set(store.tables), store.illegible) == ({"t"}, ("ab\\xffd",))
    path.write_bytes(content.replace(b"efgh", b"ef\xffh"))
    with open_store(path) as store:
        assert (store.tables["abcd"], store.illegible) == (("i",), ("abcd.ef\\xffh",))

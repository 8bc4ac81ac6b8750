"""Limits of a query hold wherever the engine is, and what it took is given back."""

import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import polars as pl
import pytest

from stateanalytics.errors import ArgumentError, NoRoomError, QueryError, QueryTimeoutError
from stateanalytics.sql import running
from stateanalytics.sql.engine import TableFile, TableText, packed
from stateanalytics.sql.worker import Read, _Query, _Tables
from tests.examples import a_few
from tests.test_sql import EVENTS, SESSIONS, snapshot

MB = 10**6
LONG_TO_PLAN = {
    "9,000 ORs": "SELECT 1 WHERE " + " OR ".join(["1=1"] * 9_000),
    "7,000 comparisons": "SELECT 1 FROM entities WHERE " + " OR ".join(["name='a'"] * 7_000),
    "many joins": "SELECT count(*) FROM " + ", ".join(f"entities e{n}" for n in range(300)),
}


@pytest.fixture
def snap():
    return snapshot(SESSIONS, events=EVENTS)


def doubled(n_times, first):
    for _ in range(n_times):
        first = f"SELECT x || x AS x FROM ({first})"
    return f"SELECT sum(length(x)) FROM ({first})"


def the_worker():
    """The one that is asked next."""
    with running.WORKERS.borrowed() as found:
        return found


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def soon(is_so):
    until = time.monotonic() + 20
    while not is_so() and time.monotonic() < until:
        time.sleep(0.05)
    return is_so()


def files_of_queries():
    return sorted(path.name for path in running.WORKERS.folder().glob("*.rows"))


# --- time ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", a_few(LONG_TO_PLAN))
def test_the_limit_holds_while_a_query_is_read_and_planned(snap, name):
    snap.sql("FROM entities")  # computing tables and starting a process do not count
    began = time.monotonic()
    try:
        snap.sql(LONG_TO_PLAN[name], timeout_s=0.3)
    except QueryTimeoutError as error:
        assert "longer than its limit of 0.3 s" in str(error)
    assert time.monotonic() - began < 1.3


@pytest.mark.slow
def test_after_a_plan_that_took_too_long_the_next_query_works(snap):
    for name in ("9,000 ORs", "7,000 comparisons"):
        with pytest.raises(QueryTimeoutError):
            snap.sql(LONG_TO_PLAN[name], timeout_s=0.05)
        assert snap.sql("SELECT count(*) FROM events").item() == 2


@pytest.mark.slow
def test_a_call_that_nothing_interrupts_is_killed(snap):
    worker = the_worker()
    # No function of DuckDB is deaf to interruption for certain; a stopped process is.
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(QueryTimeoutError):
        snap.sql("SELECT 1", timeout_s=0.3)
    assert not is_running(worker.pid)
    assert snap.sql("SELECT 1").item() == 1


def test_an_engine_that_ends_a_query_itself_goes_on(snap, monkeypatch):
    for grace in ("_LEAST_GRACE_S", "_MOST_GRACE_S"):
        monkeypatch.setattr(running, grace, 20)
    worker = the_worker()
    with pytest.raises(QueryTimeoutError):
        snap.sql("SELECT count(*) FROM range(1000000000000)", timeout_s=0.1)
    assert the_worker() is worker


def test_loading_a_table_takes_no_time_of_the_query(snap):
    def slowly():
        time.sleep(0.4)
        return pl.DataFrame({"a": [1]})

    tables = {"slow": running.Table(("a",), load=slowly)}
    limits = {"as_of": snap.as_of, "max_rows": 10, "timeout_s": 0.3}
    assert running.run("FROM slow", None, tables, **limits).item() == 1


@pytest.mark.slow
def test_ctrl_c_ends_the_query(snap):
    worker = the_worker()
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        snap.sql("SELECT levenshtein(repeat('a', 90000), repeat('b', 90000))", timeout_s=20)
    assert time.monotonic() - began < 5
    assert not is_running(worker.pid)
    assert snap.sql("SELECT 1").item() == 1


# --- memory ----------------------------------------------------------------------------

TAKING = {
    "a text that doubles": doubled(18, "SELECT repeat('x', 100000) AS x"),
    "texts that double": doubled(12, "SELECT repeat('x', 100000) AS x FROM range(1000)"),
    "one list": "SELECT list(range) FROM range(1000000000)",
    "lists of long texts": "SELECT list_transform(l, lambda y: repeat('x', 100000)) "
    "FROM (SELECT list(range) AS l FROM range(100000))",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", a_few(TAKING, 2))
def test_what_takes_too_much_memory_gives_it_back(snap, name):
    here, there = resident_bytes("self"), resident_bytes(the_worker().pid)
    with pytest.raises(QueryError, match=r"more memory than its limit of 100 MB"):
        snap.sql(TAKING[name], memory_bytes=100 * MB)
    assert resident_bytes("self") - here < 50 * MB
    assert resident_bytes(the_worker().pid) - there < 300 * MB
    assert snap.sql("SELECT 1").item() == 1


def test_a_limit_of_memory_holds_for_the_result_too(snap):
    query = "SELECT repeat('x', 10000) AS x FROM range(3000)"
    assert snap.sql(query).height == 3_000
    with pytest.raises(QueryError, match="limit of 15 MB"):
        snap.sql(query, memory_bytes=15 * MB)
    assert inspect.signature(snap.sql).parameters["memory_bytes"].default == 2 * 2**30


@pytest.mark.parametrize("memory_bytes", [0, -1, 1000, 1.5e9, True, None, "2GB"])
def test_a_memory_limit_counts_bytes(snap, memory_bytes):
    with pytest.raises(ArgumentError, match="memory_bytes must be at least 1,048,576"):
        snap.sql("SELECT 1", memory_bytes=memory_bytes)


# --- processes and files ---------------------------------------------------------------


@pytest.mark.slow
def test_one_process_answers_query_after_query_and_is_replaced_when_killed(snap):
    # A new one: what other tests asked may have made the old one large, and it goes then.
    old = the_worker()
    os.kill(old.pid, signal.SIGKILL)
    assert soon(lambda: not old.is_alive())
    snap.sql("FROM states")  # the one that somebody killed is replaced
    worker = the_worker()
    for _ in range(3):
        snap.sql("FROM states")
        for wrong in ("SELECT nothing FROM states", "SELECT 'x'::INTEGER"):
            with pytest.raises(QueryError):
                snap.sql(wrong)
    assert the_worker() is worker


@pytest.mark.slow
def test_an_engine_that_breaks_down_is_an_error_of_ours(snap):
    worker = the_worker()
    threading.Timer(0.3, os.kill, [worker.pid, signal.SIGABRT]).start()
    with pytest.raises(QueryError, match=r"crashed on this query \(exit code -6\)"):
        snap.sql("SELECT count(*) FROM range(1000000000000)", timeout_s=20)
    assert snap.sql("SELECT 1").item() == 1


def test_a_table_that_cannot_be_loaded_leaves_the_worker_as_it_was(snap):
    def fails():
        raise ArgumentError("It was closed.", "open it")

    worker = the_worker()
    tables = {"broken": running.Table(("a",), load=fails)}
    limits = {"as_of": snap.as_of, "max_rows": 10, "timeout_s": 3}
    with pytest.raises(ArgumentError, match="It was closed"):
        running.run("FROM broken", None, tables, **limits)
    assert the_worker() is worker
    assert snap.sql("SELECT 1").item() == 1


def test_a_table_that_fits_nowhere_says_so(snap, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("polars.DataFrame.write_ipc_stream", full)
    with pytest.raises(NoRoomError, match="table entities") as caught:
        snap.sql("FROM entities")
    assert "No space left on device" in str(caught.value)
    monkeypatch.undo()
    assert snap.sql("FROM entities").height == 4


@pytest.mark.slow
def test_a_table_is_written_once_and_goes_with_its_snapshot(snap):
    gc.collect()
    before = files_of_queries()
    for _ in range(3):
        snap.sql("FROM entities")
        snap.sql("FROM running_sessions")
    (_, _) = set(files_of_queries()) - set(before)  # entities, states; no result stays
    snap.close()
    assert files_of_queries() == before
    assert snap.sql("SELECT count(*) FROM entities").item() == 4
    assert len(files_of_queries()) == len(before) + 1
    del snap


def test_files_go_with_a_snapshot_that_nobody_holds():
    gc.collect()
    before = files_of_queries()
    made = snapshot(SESSIONS)
    made.sql("FROM entities")
    assert len(files_of_queries()) == len(before) + 1
    del made
    assert files_of_queries() == before


@pytest.mark.parametrize(
    "touch",
    [
        pytest.param(lambda path: path.write_bytes(b"not read again"), id="read once"),
        pytest.param(Path.unlink, id="cleared away, and written again"),
    ],
)
def test_rows_are_read_once_for_all_queries_of_a_snapshot(snap, touch):
    snap.sql("FROM entities")
    for path in running.WORKERS.folder().glob("*.rows"):
        touch(path)
    assert snap.sql("FROM entities").height == 4


def test_rows_are_released_with_their_file_and_the_oldest_beyond_a_bound(tmp_path):
    files = [TableFile(str(tmp_path / name), {}) for name in "abc"]
    for file in files:
        pl.DataFrame({"n": range(1_000)}).write_ipc_stream(file.path)
    tables, a_file = _Tables(), Path(files[0].path).stat().st_size
    for file in (*files, files[0]):
        assert tables.rows(file).height == 1_000
    assert tables.unread(files) == []
    tables.release(2 * a_file)
    assert tables.unread(files) == [files[1]]
    Path(files[2].path).unlink()
    tables.release()
    assert tables.unread(files) == files[1:]


ASKING = """
import os, sys
from datetime import datetime
import polars as pl
from stateanalytics.sql import running
from stateanalytics.sql.running import Table, run
tables = {"t": Table(("a",), load=lambda: pl.DataFrame({"a": [7]}))}
def ask(query):
    limits = {"max_rows": 10, "timeout_s": 300}
    return run(query, None, tables, as_of=datetime(2026, 5, 1), **limits).item()
assert ask("FROM t") == 7
(worker,) = running.WORKERS._idle
"""


@pytest.mark.slow
def test_a_killed_parent_leaves_no_process_and_no_files(tmp_path):
    script = (
        f"{ASKING}print(worker.pid, flush=True)\n"
        "ask(\"SELECT levenshtein(repeat('a', 90000), repeat('b', 90000)) FROM t\")"
    )
    how = {"stdout": subprocess.PIPE, "text": True, "env": os.environ | {"TMPDIR": str(tmp_path)}}
    with subprocess.Popen([sys.executable, "-c", script], **how) as parent:
        worker = int(parent.stdout.readline())
        time.sleep(0.3)  # it is at the query
        parent.kill()
        parent.wait()
        assert soon(lambda: not is_running(worker))
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_process_that_ends_leaves_nothing(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", f"{ASKING}print(worker.pid)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert not is_running(int(done.stdout))
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_starts_a_worker_of_its_own():
    script = f"""{ASKING}
child = os.fork()
if not child:
    worker = None
    os._exit(ask("FROM t"))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert ask("FROM t") == 7
assert running.WORKERS._idle == [worker]
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=60)


def test_an_engine_that_fails_while_a_query_is_read_is_in_our_words(snap, monkeypatch):
    """Before anything is known of the query, and after a query of other tables."""

    def fails(*_, **__):
        raise duckdb.OutOfMemoryException("Out of Memory Error: it is full")

    desk = _Query()
    known = {"a": TableText(("x",), view="SELECT 1 AS x")}
    limits = {"ranked": frozenset(), "as_of": snap.as_of, "timeout_s": 9, "memory_bytes": 2**30}
    params = packed(None)
    good = Read("FROM a", params, known, **limits)
    bad = Read("SELECT 1", params, {}, **limits)
    for before in ([], [good]):
        assert ["error" in desk.answer(message) for message in before] == [False] * len(before)
        with monkeypatch.context() as patched:
            patched.setattr("stateanalytics.sql.worker.read_query", fails)
            said = desk.answer(bad)
        assert said["error"] == "QueryError"
        assert "1 GiB" in said["problem"], said

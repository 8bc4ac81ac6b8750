"""An archive at a URL: Delta tables in a bucket of a local server, or in a local folder."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.errors import (
    ArgumentError,
    DamagedStoreError,
    MissingComponentError,
    NotAStoreError,
    StoreBusyError,
)
from stateanalytics.io.archive import delta
from stateanalytics.systems.archiving import compact_archive
from tests.conftest import SHIPPED, component
from tests.lionagi_stores import NOW_S, session, write_store

with_delta = pytest.mark.delta
BUCKET = "s3://bucket"
WEEK_S = 7 * 86_400


@pytest.fixture(scope="module")
def library():
    return component("deltalake")


@pytest.fixture(scope="module")
def bucket(library, tmp_path_factory):
    """The URL of a bucket of a server in a process of its own."""
    component("moto.server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    log = (tmp_path_factory.mktemp("s3") / "log").open("w")
    server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with pytest.MonkeyPatch.context() as patch:
            to_server(patch, f"http://127.0.0.1:{port}")
            new = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
            for _ in range(150):
                try:
                    urllib.request.urlopen(new).close()
                    break
                except OSError:
                    time.sleep(0.2)
            yield BUCKET
    finally:
        server.terminate()
        server.wait()
        log.close()


SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"


def to_server(patch, address):
    """What people set in their environment."""
    for name, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }.items():
        patch.setenv(name, value)


@pytest.fixture(params=["folder", "bucket"])
def url(request, library, tmp_path):
    if request.param == "folder":
        return (tmp_path / "tables").as_uri()
    return f"{request.getfixturevalue('bucket')}/{tmp_path.name}"


def store_of(folder, n):
    """A store of n sessions, each a week older than the one before."""
    path = folder / "state.db"
    folder.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    earlier = dict.fromkeys(("ended_at", "updated_at", "last_message_at"), NOW_S - 600)
    times = {"created_at": NOW_S - 1200, "started_at": NOW_S - 1200} | earlier
    rows = [
        session(f"{folder.name}-{i}", **{name: at - i * WEEK_S for name, at in times.items()})
        for i in range(n)
    ]
    write_store(path, sessions=rows)
    # Files that were written just now may be written again within the same tick.
    os.utime(path, (1_779_000_000 + n, 1_779_000_000 + n))
    return path


def assert_same(ours, theirs):
    for name in ("entities", "transitions", "events", "findings"):
        assert_frame_equal(getattr(ours, name), getattr(theirs, name))
    assert_frame_equal(ours.sources.drop("looked_at"), theirs.sources.drop("looked_at"))
    assert ours.details.keys() == theirs.details.keys()
    for name, frame in ours.details.items():
        assert_frame_equal(frame, theirs.details[name])


@with_delta
def test_it_reads_like_the_same_archive_in_a_local_folder(url, tmp_path):
    """Two collections of four systems, an absent one, and the report on them."""
    sources = [*map(str, SHIPPED.values()), str(tmp_path / "absent.db")]
    for _ in range(2):
        here, there = (sa.collect(sources, to) for to in (tmp_path / "local", url))
        assert_frame_equal(here, there)
    assert set(here["status"]) == {"unchanged", "failed"}
    with sa.read(tmp_path / "local") as local, sa.read(url) as remote:
        assert_same(remote, local)
        assert remote.sources["is_unchanged"].sum() == len(SHIPPED)
        assert "archive.not_collected" in remote.findings["code"]
        pages = [sa.report(snap, window="2026-W21").as_html() for snap in (local, remote)]
        assert pages[0].replace(str(tmp_path / "local"), url) == pages[1]
    Path(tmp_path / "absent.db").write_bytes(SHIPPED["lionagi"].read_bytes())
    assert sa.collect(sources[-1], url)["status"].to_list() == ["archived"]
    with sa.read(url) as remote:
        assert "archive.not_collected" not in remote.findings["code"]


@with_delta
def test_only_what_is_new_is_added_and_only_chosen_weeks_are_read(url, tmp_path):
    for n in (2, 3, 3):
        store = store_of(tmp_path / "host", n)
        for to in (tmp_path / "local", url):
            sa.collect(store, to)
    with sa.read(url) as remote, sa.read(tmp_path / "local") as local:
        assert_same(remote, local)
        assert remote.entities.height == 3
        assert remote.refresh().entities.height == 3
    weeks = rows_of(url, "tables/entities")["week"]
    assert sorted(weeks) == ["2026-W20", "2026-W21", "2026-W22"]
    with sa.read(url, weeks="2026-W21") as remote:
        assert remote.entities["entity_id"].to_list() == ["host-1"]
        assert remote.findings["code"].to_list() == ["archive.some_weeks"]
        with pytest.raises(ArgumentError, match="only some weeks"):
            remote.archive(f"{url}/other")
    with sa.read(store) as snap:
        assert snap.archive(url)["n_rows"].to_list() == [0]
        assert snap.archive(url)["status"].to_list() == ["unchanged"]
    with sa.read(store_of(tmp_path / "host", 4)) as snap:
        assert snap.archive(url)["n_rows"].to_list() == [1]
    with sa.read(url) as remote:
        assert remote.entities.height == 4


def rows_of(url, name):
    """What polars reads of a table by itself."""
    options = {"aws_endpoint_url": os.environ.get("AWS_ENDPOINT_URL", ""), "aws_allow_http": "true"}
    is_local = url.startswith("file")
    place = f"{url.removeprefix('file://')}/{name}"
    return pl.scan_delta(place, storage_options=None if is_local else options).collect()


@with_delta
def test_others_read_the_tables_without_us(url, library, tmp_path):
    sa.collect(list(map(str, SHIPPED.values())), url)
    with sa.read(url) as snap:
        heights = {name: getattr(snap, name).height for name in ("transitions", "events")}
        heights["entities"] = snap.entities.height
    for name, height in heights.items():
        rows = rows_of(url, f"tables/{name}")
        assert rows.height == height
        assert {"source", "run", "week"} <= set(rows.columns)
        assert set(rows["run"]) <= set(rows_of(url, "runs")["run"])
    if url.startswith("file"):  # the extension of DuckDB is not in its package
        files = library.DeltaTable(f"{url}/tables/events").file_uris()
        counted = duckdb.sql(f"SELECT count(*), count(DISTINCT week) FROM read_parquet({files})")
        events = rows_of(url, "tables/events")
        assert counted.fetchall() == [(events.height, events["week"].n_unique())]


@with_delta
def test_processes_append_at_once(url, tmp_path):
    """All of them are the first, so each may find a table that another has just created."""
    stores = [store_of(tmp_path / name, 2) for name in "abcc"]
    command = [sys.executable, "-m", "stateanalytics", "archive"]
    started = [
        subprocess.Popen([*command, str(store), "--to", url], stderr=subprocess.PIPE, text=True)
        for store in stores
    ]
    for process in started:
        assert process.communicate(timeout=120)[1] == ""
        assert process.returncode == 0
    with sa.read(url) as remote, sa.read([store.parent for store in stores]) as stored:
        assert remote.entities.drop("source").equals(stored.entities.drop("source"))
        assert remote.sources.height == 3


@with_delta
def test_a_collection_that_ends_between_its_rows_and_its_runs_counts_for_nothing(
    url, tmp_path, monkeypatch
):
    store = store_of(tmp_path / "host", 2)
    whole = delta.DeltaArchive._append

    def until_the_runs(self, name, rows):
        if name == delta.RUNS:
            raise KeyboardInterrupt
        whole(self, name, rows)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(delta.DeltaArchive, "_append", until_the_runs)
        sa.collect(store, url)
    with pytest.raises(NotAStoreError, match="none of its runs was finished"):
        sa.read(url)
    assert sa.collect(store, url)["status"].to_list() == ["archived"]
    assert rows_of(url, "tables/entities").height == 4
    with sa.read(url) as snap:
        assert snap.entities.height == 2


@with_delta
def test_compaction_joins_files_and_keeps_what_is_read(url, library, tmp_path, capsys):
    for n in (1, 2, 3):
        sa.collect(store_of(tmp_path / "host", n), url)
    with sa.read(url) as snap:
        before = snap.entities
    assert len(library.DeltaTable(f"{url}/runs").file_uris()) == 3
    assert run(["archive", "--compact", "--to", url]) == 0
    assert run(["archive", "--compact", "--to", url]) == 0
    assert capsys.readouterr().out == "compacted\nnothing to compact\n"
    assert len(library.DeltaTable(f"{url}/runs").file_uris()) == 1
    with sa.read(url) as snap:
        assert_frame_equal(snap.entities, before)


@with_delta
def test_rows_that_are_there_twice_count_once_and_deleted_ones_are_named(url, library, tmp_path):
    sa.collect(store_of(tmp_path / "host", 3), url)
    with sa.read(url) as snap:
        assert snap.entities.height == 3
    twice = rows_of(url, "tables/entities")
    library.write_deltalake(f"{url}/tables/entities", twice, mode="append")
    with sa.read(url) as snap:  # a commit of which the answer was lost is made twice
        assert snap.entities.height == 3
    library.DeltaTable(f"{url}/tables/entities").delete("week = '2026-W21'")
    with sa.read(url) as snap:
        assert snap.entities["entity_id"].to_list() == ["host-0", "host-2"]
        [missing] = snap.findings.filter(code="archive.shard_missing").iter_rows(named=True)
        assert missing["n_rows"] == 1


@with_delta
@pytest.mark.parametrize("part", ["archive", "tables"])
def test_what_a_newer_version_wrote_is_refused_by_name(part, url, library, tmp_path):
    """Of this program, and of the format of the tables."""
    store = store_of(tmp_path / "host", 1)
    if part == "archive":
        sa.collect(store, url)
        row = rows_of(url, "runs").with_columns(version=pl.lit(99))
        library.write_deltalake(f"{url}/runs", row, mode="append")
    else:
        if not url.startswith("file"):
            pytest.skip("a log is written by hand in a folder only")
        log = Path(url.removeprefix("file://")) / "runs" / "_delta_log"
        log.mkdir(parents=True)
        protocol = {
            **{"minReaderVersion": 3, "minWriterVersion": 7},
            **{"readerFeatures": ["nobodysFeature"], "writerFeatures": ["nobodysFeature"]},
        }
        field = {"name": "run", "type": "string", "nullable": True, "metadata": {}}
        schema = {"type": "struct", "fields": [field]}
        about = {
            **{"id": "a", "format": {"provider": "parquet", "options": {}}},
            **{"schemaString": json.dumps(schema), "partitionColumns": [], "configuration": {}},
        }
        lines = [json.dumps({"protocol": protocol}), json.dumps({"metaData": about})]
        (log / f"{0:020}.json").write_text("\n".join(lines))
    words = "version 99; this" if part == "archive" else "need a newer deltalake"
    for use in (sa.read, lambda to: sa.collect(store, to)):
        with pytest.raises(NotAStoreError, match=words) as refused:
            use(url)
        assert url in str(refused.value)
        assert "pip install -U" in str(refused.value)


@pytest.fixture
def odd_server(monkeypatch):
    """Start a server that takes every connection, and answers with some bytes or not at all."""
    listening = []

    def start(answer):
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def serve():
            held = []
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                held.append(connection)
                if answer:
                    connection.recv(65536)
                    connection.sendall(answer)
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        to_server(monkeypatch, f"http://127.0.0.1:{server.getsockname()[1]}")

    yield start
    for server in listening:
        server.close()


@with_delta
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(b"", "did not answer within", id="no answer"),
        pytest.param(
            b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n<Error><Code>SignatureDoesNotMatch"
            b"</Code><StringToSign>" + SECRET.encode() + b"</StringToSign></Error>",
            "403 Forbidden",
            id="refused, quoting the request",
        ),
        pytest.param(b"220 mail.example.org ESMTP\r\n", "something else", id="another protocol"),
        pytest.param(None, "cannot be reached", id="nobody listens"),
    ],
)
def test_a_place_that_does_not_answer_is_an_error_in_time_that_names_it(
    answer, why, library, odd_server, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(delta, "_BOUNDS", delta._BOUNDS | {"timeout": "2s", "retry_timeout": "2s"})
    if answer is None:
        to_server(monkeypatch, "http://127.0.0.1:9")
    else:
        odd_server(answer)
    store = store_of(tmp_path / "host", 1)
    began = time.monotonic()
    for use in (sa.read, lambda to: sa.collect(store, to)):
        with pytest.raises(StoreBusyError, match=why) as refused:
            use("s3://bucket/history")
        assert "s3://bucket/history" in str(refused.value)
        assert refused.value.__cause__ is None
    for words in (["attention", "s3://bucket/history"], ["archive", str(store), "--to", BUCKET]):
        assert run(words) == 1
        said = capsys.readouterr().err
        assert "s3://bucket" in said
        assert "Hint: check its name, the network, and the credentials" in said
        assert len(said.splitlines()) == 1
    assert not re.search("AKIA|wJalr", said + str(refused.value))
    assert time.monotonic() - began < 30


@with_delta
def test_tables_of_somebody_else_are_refused_and_their_words_are_no_paths(url, library, tmp_path):
    store = store_of(tmp_path / "host", 1)
    sa.collect([store, tmp_path / "absent.db"], url)
    notes = rows_of(url, "notes").with_columns(key=pl.lit("../../../outside"))
    library.write_deltalake(f"{url}/notes", notes, mode="append")
    runs = rows_of(url, "runs")
    runs = pl.concat([runs.with_columns(run=pl.lit("x")), runs.with_columns(manifest=pl.lit("{"))])
    library.write_deltalake(f"{url}/runs", runs, mode="append")
    assert sa.collect(store, url)["status"].to_list() == ["unchanged"]
    with sa.read(url) as snap:
        assert snap.entities.height == 1
        [copy] = {path for path in snap.inputs if path.name == "archive"}
        assert not [*copy.parent.parent.glob("outside*"), *copy.parent.glob("outside*")]
    library.write_deltalake(f"{url}/b/runs", pl.DataFrame({"name": ["somebody"]}))
    for use in (sa.read, lambda to: sa.collect(store, to)):
        with pytest.raises(NotAStoreError, match=r"'runs' of .* is none of ours"):
            use(f"{url}/b")


@with_delta
@pytest.mark.parametrize("jobs", [1, 2])
def test_what_is_written_to_a_source_during_a_collection_waits_for_the_next(
    jobs, url, tmp_path, monkeypatch
):
    """Only sources that changed are copied: with another, all rows would be new."""
    monkeypatch.setattr("stateanalytics.io.cache._TICK_NS", -10_000_000_000)
    host, other = store_of(tmp_path / "host", 3), store_of(tmp_path / "other", 1)
    sa.collect([host, other], url)
    fetch = delta.DeltaArchive.fetch

    def then_write(self, keys):
        fetch(self, keys)
        store_of(tmp_path / "host", 4)

    with monkeypatch.context() as patch:
        patch.setattr(delta.DeltaArchive, "fetch", then_write)
        store_of(tmp_path / "other", 2)
        rows = sa.collect([host, other], url, jobs=jobs)
    assert rows["status"].to_list() == ["unchanged", "archived"]
    assert rows["n_rows"].to_list() == [0, 1]
    assert sa.collect([host, other], url)["n_rows"].to_list() == [1, 0]


@with_delta
def test_an_archive_is_not_archived_into_itself(url, tmp_path):
    sa.collect(store_of(tmp_path / "host", 1), url)
    with sa.read(url) as snap, pytest.raises(ArgumentError, match="is the archive itself"):
        snap.archive(f"{url}/")
    assert "the archive itself" in sa.collect(url, url)["message"].item()
    with sa.read(url) as snap:
        assert snap.archive(f"{url}/other")["status"].to_list() == ["archived"]


def damage(url, name, library, how):
    """Damage the files of a table with some rows; return their number."""
    if not url.startswith("file"):
        pytest.skip("files are damaged in a folder only")
    every = library.DeltaTable(f"{url}/{name}").file_uris()
    files = [Path(file.removeprefix("file://")) for file in every]
    files = [file for file in files if "W22" in str(file)] or files
    for file in files:
        octets = file.read_bytes()
        if how == "missing":
            file.unlink()
        else:
            file.write_bytes(octets[: len(octets) // 2] if how == "short" else bytes(len(octets)))
    return len(files)


@with_delta
@pytest.mark.parametrize("how", ["missing", "short", "zeroed"])
def test_a_damaged_file_costs_its_week_and_of_the_runs_is_called_damage(
    how, url, library, tmp_path
):
    sa.collect(store_of(tmp_path / "host", 3), url)
    damage(url, "tables/entities", library, how)
    with sa.read(url) as snap:
        assert snap.entities["entity_id"].to_list() == ["host-1", "host-2"]
        assert "archive.shard_missing" in snap.findings["code"]
    damage(url, "runs", library, how)
    delta._COPIES.clear()  # as in the next process
    with pytest.raises(DamagedStoreError, match="is damaged or missing") as refused:
        sa.read(url)
    assert url in str(refused.value)
    assert "network" not in str(refused.value)


@with_delta
def test_rows_of_runs_and_notes_that_mean_nothing_are_findings(url, library, tmp_path):
    sa.collect(store_of(tmp_path / "host", 1), url)
    with sa.read(url) as snap:
        looked_at = snap.sources["looked_at"].to_list()
    runs, notes = rows_of(url, "runs"), rows_of(url, "notes")
    none = pl.lit(None, pl.String)
    library.write_deltalake(
        f"{url}/runs", runs.with_columns(run=pl.lit("x"), manifest=none), mode="append"
    )
    with sa.read(url) as snap:
        assert snap.entities.height == 1
        assert "archive.run_unreadable" in snap.findings["code"]
    for strange in ({"at": pl.lit(2**62).cast(notes.schema["at"])}, {"key": none}):
        library.write_deltalake(f"{url}/notes", notes.with_columns(**strange), mode="append")
        with sa.read(url) as snap:
            assert "archive.look_unreadable" in snap.findings["code"]
            assert looked_at[0] in snap.sources["looked_at"].to_list()


@with_delta
def test_a_compaction_beside_another_says_to_run_it_again(url, library, tmp_path, monkeypatch):
    sa.collect(store_of(tmp_path / "host", 1), url)
    failed = library.exceptions.CommitFailedError("a concurrent transaction deleted data")

    def fail(self, *args, **kwargs):
        raise failed

    monkeypatch.setattr(library.table.TableOptimizer, "compact", fail)
    with pytest.raises(StoreBusyError, match=r"(?s)keep changing .*run the same command again"):
        compact_archive(url)


@with_delta
def test_a_copy_that_is_replaced_is_deleted(url, tmp_path):
    roots = []
    for n in (1, 2):
        sa.collect(store_of(tmp_path / "host", n), url)
        with sa.read(url) as snap:
            roots += [path for path in snap.inputs if path.name == "archive"]
    assert [root.exists() for root in roots] == [False, True]


@with_delta
def test_a_place_that_answers_slowly_is_given_up(url, monkeypatch):
    monkeypatch.setattr(delta, "_SLOW_S", 0.0)
    component("deltalake").write_deltalake(f"{url}/runs", pl.DataFrame({"run": ["a"]}))
    with pytest.raises(StoreBusyError, match="for a few small requests"):
        sa.read(url)


@with_delta
def test_no_archive_at_a_url_says_how_to_make_one(url):
    with pytest.raises(NotAStoreError, match=r"(?s)There is no archive .*sa\.collect\('state.db'"):
        sa.read(url)
    with pytest.raises(ArgumentError, match="to compact"):
        compact_archive(url)


@with_delta
def test_an_executor_is_refused_as_its_machines_do_not_see_the_private_copy(url, tmp_path):
    with pytest.raises(ArgumentError, match=r"(?s)executor .*jobs=4"):
        sa.collect(store_of(tmp_path / "host", 1), url, executor=object())
    assert sa.collect(tmp_path / "host", url, jobs=2)["status"].to_list() == ["archived"]


@pytest.mark.parametrize("place", ["s3://bucket/history", "gs://b/x", "abfss://c@a/x", "file:///x"])
def test_without_the_library_one_line_says_what_to_install(place, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    for use in (sa.read, lambda to: sa.collect(str(SHIPPED["claude_code"]), to)):
        with pytest.raises(MissingComponentError, match=re.escape(f"{place!r} needs deltalake")):
            use(place)
    for words in (["archive", str(SHIPPED["lionagi"]), "--to", place], ["attention", place]):
        assert run(words) == 1
        said = capsys.readouterr().err
        assert "pip install 'stateanalytics[delta]', or name a local folder" in said
        assert len(said.splitlines()) == 1


def test_a_url_that_is_none_is_an_error_in_words():
    for use in (sa.read, lambda to: sa.collect(str(SHIPPED["lionagi"]), to)):
        with pytest.raises(ArgumentError, match=r"'s3://\[x/y' is no URL"):
            use("s3://[x/y")


def test_a_url_holds_no_credentials():
    for place in (f"s3://AKIA:{SECRET}@bucket/x", f"abfss://c@a/x?sig={SECRET}"):
        with pytest.raises(ArgumentError, match="into the environment") as refused:
            sa.read(place)
        assert SECRET not in str(refused.value)


@with_delta
@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OSError("Unsupported scheme: x"), StoreBusyError, "cannot be used: OSError"),
        (OSError('Config error: unsupported value "x"'), StoreBusyError, "cannot be used: OSErr"),
        (ValueError("Unsupported reader features"), NotAStoreError, "need a newer deltalake"),
        (ValueError("Parquet error: Server says: 503 Slow Down"), StoreBusyError, "503 Slow Down"),
        (ValueError("Parquet error: 404 Not Found"), DamagedStoreError, "damaged or missing"),
        (ValueError("NoSuchBucket: 404 Not Found"), StoreBusyError, "404 Not Found"),
        (MemoryError("no room"), MemoryError, "no room"),
    ],
)
def test_each_kind_of_error_of_the_library_has_its_own_words(error, kind, words, library):
    with pytest.raises(kind, match=words), delta._reaching("s3://bucket/x"):
        raise error


@with_delta
def test_the_command_to_type_names_the_whole_url_as_one_word(library, tmp_path):
    url = (tmp_path / ("long name " * 20)).as_uri().replace("%20", " ")
    with pytest.raises(NotAStoreError) as refused:
        sa.read(url)
    assert refused.value.shell == f"stateanalytics archive state.db --to '{url}'"


@with_delta
def test_compaction_drops_notes_that_newer_ones_replace(url, tmp_path):
    store = store_of(tmp_path / "host", 1)
    for _ in range(4):
        sa.collect([store, tmp_path / "absent.db"], url)
    assert rows_of(url, "notes").height == 8
    with sa.read(url) as snap:
        before = snap.sources["looked_at", "is_unchanged"].rows()
    compact_archive(url)
    notes = rows_of(url, "notes")
    assert sorted(notes["status"]) == ["archived", "failed", "unchanged"]
    delta._COPIES.clear()  # as in the next process
    with sa.read(url) as snap:
        assert snap.sources["looked_at", "is_unchanged"].rows() == before
        assert "archive.not_collected" in snap.findings["code"]


@with_delta
def test_a_table_of_more_bytes_than_memory_is_not_read(url, tmp_path, monkeypatch):
    sa.collect(store_of(tmp_path / "host", 3), url)
    size = {name: rows_of(url, name).estimated_size() for name in ("runs", "tables/entities")}
    monkeypatch.setattr(delta, "_MOST_BYTES", 2 * size["runs"])
    entities = rows_of(url, "tables/entities")
    dense = pl.concat([entities.filter(week="2026-W21")] * (10 * size["runs"] // 100))
    component("deltalake").write_deltalake(f"{url}/tables/entities", dense, mode="append")
    with sa.read(url) as snap:
        assert snap.entities["entity_id"].to_list() == ["host-0", "host-2"]
        assert "archive.shard_missing" in snap.findings["code"]
    monkeypatch.setattr(delta, "_MOST_BYTES", 100)
    delta._COPIES.clear()  # as in the next process
    with pytest.raises(DamagedStoreError, match=r"'runs' of .* more than 100 bytes"):
        sa.read(url)


@with_delta
def test_rows_of_one_frame_at_a_time_are_held_in_memory(url, tmp_path, monkeypatch):
    steps = []
    read, append = delta.read_shard, delta.DeltaArchive._append

    def reading(path, shard):
        steps.append(shard.frame)
        return read(path, shard)

    def appending(self, name, rows):
        steps.append(f"{name} appended")
        append(self, name, rows)

    monkeypatch.setattr(delta, "read_shard", reading)
    monkeypatch.setattr(delta.DeltaArchive, "_append", appending)
    sa.collect([store_of(tmp_path / name, 2) for name in "ab"], url)
    first = steps.index("tables/entities appended")
    assert steps[:first] == ["entities"] * first
    assert "events" not in steps or steps.index("events") > first
    assert len(set(steps[first:])) > 2

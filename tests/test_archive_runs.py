"""Runs of an archive: in any order, killed, two at once, over what is damaged or newer."""

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.core import schema
from stateanalytics.errors import DamagedStoreError, NoRoomError, NotAStoreError, SourceError
from stateanalytics.io.archive import compacting, writing
from stateanalytics.io.archive.manifests import SCHEMA_VERSION
from stateanalytics.io.archive.reading import archived_source, read_archived
from stateanalytics.io.archive.writing import Options, archive_part
from stateanalytics.io.observations import as_last_seen
from stateanalytics.io.outputs import alone_in
from stateanalytics.io.parts import Parts
from stateanalytics.systems import detail_frames
from stateanalytics.systems.archiving import Archiving, collect_each
from tests.conftest import EXTRACTS
from tests.examples import a_few, examples
from tests.frames import WHOSE, frame
from tests.lionagi_stores import session, write_store, wrote
from tests.samples import SAMPLES
from tests.test_archive import COLLECTED, codes
from tests.test_observations import store_at

ARCHIVES = EXTRACTS / "archives"
KEY = "0123456789abcdef"
MONDAY = datetime(2026, 5, 4, tzinfo=UTC)


class Killed(BaseException):
    """In place of a signal that ends the process."""


@st.composite
def versions(draw):
    """A store as it was again and again: work begins, goes on, and is pruned."""
    rows, transitions, seen = {}, [], []
    for hour in range(draw(st.integers(1, 6))):
        at = MONDAY + timedelta(hours=40 * hour)
        for name in draw(st.sets(st.sampled_from("abcd"))):
            began = rows[name]["created_at"] if name in rows else at
            status = draw(st.sampled_from(["running", "completed", "failed"]))
            ended = None if status == "running" else at
            rows[name] = {
                **WHOSE, "entity_id": name, "raw_status": status,
                "created_at": began, "updated_at": at, "ended_at": ended,
            }  # fmt: skip
            told = {**WHOSE, "entity_id": name, "at": at, "status": status}
            # Two that are alike within one store are two.
            transitions += [told] * draw(st.integers(1, 2))
        for name in draw(st.sets(st.sampled_from("abcd"))):
            rows.pop(name, None)
            transitions = [row for row in transitions if row["entity_id"] != name]
        beat = {**WHOSE, "entity_type": "store", "entity_id": "beat", "kind": "beat", "at": at}
        seen.append(
            Parts(
                "lionagi",
                "by hand",
                frame("entities", list(rows.values())),
                frame("transitions", transitions),
                frame("events", [beat] * 3),
                schema.FINDINGS.empty(),
                label="state.db",
            )
        )
    return seen


def put(part, root, **options):
    return archive_part(
        part, root, KEY, detail_frames(), place="state.db", options=Options(),
        **{"observed_at": MONDAY, "files": ""} | options,
    )  # fmt: skip


def killed_after(n_files):
    """What ends a run at its n-th file."""
    left = [n_files]
    write = writing.put_whole

    def put_or_die(target, content):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        write(target, content)

    return put_or_die


@pytest.mark.slow
@examples(40)
@given(versions(), st.data())
def test_runs_in_any_order_with_kills_between_are_merged_like_copies(seen, data):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        root, whole = Path(folder), {}
        for i in data.draw(st.lists(st.integers(0, len(seen) - 1), min_size=1, max_size=6)):
            if data.draw(st.booleans()):
                patched.setattr(writing, "put_whole", killed_after(data.draw(st.integers(0, 6))))
            try:
                put(seen[i], root)
                whole[i] = seen[i]
            except Killed:
                pass
            patched.undo()
            if data.draw(st.booleans()):
                n_files = data.draw(st.integers(0, 9))
                patched.setattr(compacting, "put_whole", killed_after(n_files))
                with suppress(Killed):
                    compacting.compact(root, is_forced=True)
                patched.undo()
        source = archived_source(root, KEY)
        assert bool(source.runs) == bool(whole)
        if whole:
            kept = read_archived(source, detail_frames())
            expected = as_last_seen([whole[i] for i in sorted(whole)], detail_frames())
            for name in ("entities", "transitions", "events"):
                ours, theirs = getattr(kept, name), getattr(expected, name)
                assert_frame_equal(ours.sort(ours.columns), theirs.sort(ours.columns))


# At the desk, `tests.test_archive_weeks` has the cases by hand.
@pytest.mark.slow
@examples(40)
@given(versions())
def test_of_what_a_week_holds_it_holds_the_whole_history(seen):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for part in seen:
            put(part, root)
        source = archived_source(root, KEY)
        whole = read_archived(source, detail_frames())
        for week in {path.parent.name for path in root.rglob("*.parquet")}:
            some = read_archived(source, detail_frames(), weeks=week.__eq__)
            # An id that was pruned and given again names other work.
            there = whole.entities.join(some.entities, on=["entity_id", "created_at"], how="semi")
            ours = some.entities.join(there, on=["entity_id", "created_at"], how="semi")
            assert_frame_equal(ours.sort("entity_id"), there.sort("entity_id"))
            own = there.select("entity_id", "created_at")
            told, expected = (
                part.transitions.join(own, on="entity_id").filter(
                    pl.col("at") >= pl.col("created_at")
                )
                for part in (some, whole)
            )
            assert_frame_equal(told.sort(told.columns), expected.sort(told.columns))


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_nothing_to_mend(tmp_path):
    history, store = tmp_path / "history", store_at(tmp_path / "state.db", 3)
    code = [
        "import os, signal, stateanalytics as sa",
        "from stateanalytics.io.archive import writing",
        "write, left = writing.put_whole, [1, 2]",
        "def put(target, content):",
        "    left.pop() if left else os.kill(os.getpid(), signal.SIGKILL)",
        "    write(target, content)",
        "writing.put_whole = put",
        f"sa.read({str(store)!r}).archive({str(history)!r})",
    ]
    ended = subprocess.run([sys.executable, "-c", "\n".join(code)], check=False)
    assert ended.returncode == -signal.SIGKILL
    left = set(history.rglob("*.parquet"))
    assert len(left) == 2
    with pytest.raises(NotAStoreError, match="no run that was finished"):
        sa.read(history)
    with sa.read(store) as snap:
        snap.archive(history)
        assert left < set(history.rglob("*.parquet"))
        assert_frame_equal(sa.read(history).sources.drop(COLLECTED), snap.sources.drop(COLLECTED))


@pytest.mark.slow
def test_two_runs_at_once_harm_nobody(of_day, tmp_path):
    history, snap, wait = tmp_path / "history", of_day(3), threading.Barrier(4)

    said = []

    def add():
        wait.wait()
        said.append(snap.archive(history))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = sa.read(history)
    # New rows are new to one of them.
    assert sorted(row["status"].item() for row in said) == ["archived", *["unchanged"] * 3]
    assert len(list((history / "manifests").iterdir())) == 1
    others = ["fingerprint", *COLLECTED]
    assert_frame_equal(kept.sources.drop(others), snap.sources.drop(others))
    assert codes(kept) == []


@pytest.fixture(scope="module")
def two_runs(of_day, tmp_path_factory):
    """An archive of two runs of a store."""
    history = tmp_path_factory.mktemp("two_runs") / "history"
    for day in (1, 2):
        of_day(day).archive(history)
    return history


@pytest.fixture
def history(two_runs, tmp_path):
    """A copy of such an archive, to be spoilt; its store is somewhere else."""
    return shutil.copytree(two_runs, tmp_path / "history")


def manifests(history):
    return sorted((history / "manifests").iterdir())


def shards(history, name="transitions"):
    return sorted(history.rglob(f"{name}-*.parquet"))


def edit(manifest, **values):
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | values))


def replaced(history, change, name="entities"):
    """A shard with other rows, under a manifest that says so."""
    shard = shards(history, name)[-1]
    change(pl.read_parquet(shard)).write_parquet(shard)
    octets = shard.read_bytes()
    digest = sha256(octets).hexdigest()
    shard.rename(shard.with_name(f"{name}-{digest[:32]}.parquet"))
    old = shard.stem.removeprefix(f"{name}-")
    for manifest in manifests(history):
        told = json.loads(manifest.read_text())
        for each in told["shards"]:
            if each["sha256"].startswith(old):
                each |= {"sha256": digest, "n_bytes": len(octets)}
        manifest.write_text(json.dumps(told))


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:99]), "archive.shard_damaged",
                     id="truncated"),
        pytest.param(lambda path: path.write_bytes(b""), "archive.shard_damaged", id="empty"),
        pytest.param(lambda path: pl.read_parquet(path).reverse().write_parquet(path),
                     "archive.shard_damaged", id="replaced"),
        pytest.param(Path.unlink, "archive.shard_missing", id="missing"),
    ],
)  # fmt: skip
def test_a_shard_that_is_not_what_was_written_costs_its_own_rows(history, spoil, code):
    whole = sa.read(history)
    shard = shards(history)[0]
    n_rows = pl.read_parquet(shard).height
    spoil(shard)
    kept = sa.read(history)
    assert codes(kept) == [code]
    assert kept.findings.filter(code=code)["n_rows"].to_list() == [n_rows]
    assert kept.transitions.height == whole.transitions.height - n_rows
    assert kept.entities.height == whole.entities.height


def test_a_spoilt_archive_ends_the_load_where_that_is_asked_for(history):
    assert sa.read(history, on_error="raise").entities.height
    shards(history)[0].unlink()
    with pytest.raises(DamagedStoreError, match="not there any more"):
        sa.read(history, on_error="raise")


def test_rows_of_a_lost_shard_that_the_store_still_has_are_archived_again(of_day, history):
    for shard in shards(history):
        shard.unlink()
    snap = of_day(3)
    snap.archive(history)
    assert set(snap.transitions["at"]) <= set(sa.read(history).transitions["at"])


def test_rows_of_another_system_are_left_out(history):
    replaced(history, lambda rows: rows.with_columns(system=pl.lit("opencode")))
    kept = sa.read(history)
    assert codes(kept) == ["archive.shard_foreign"]
    assert kept.entities["system"].unique().to_list() == ["lionagi"]


def test_columns_that_nobody_knows_are_ignored_and_missing_ones_are_null(history):
    whole = sa.read(history)
    replaced(history, lambda rows: rows.drop("agent").with_columns(colour=pl.lit("red")))
    kept = sa.read(history)
    assert codes(kept) == ["archive.column_unknown"]
    found = kept.findings.filter(code="archive.column_unknown").row(0, named=True)
    assert (found["table"], found["column"]) == ("entities", "colour")
    assert kept.entities.schema == whole.entities.schema
    assert kept.entities.height == whole.entities.height


def test_columns_of_another_type_cost_their_own_shard(history):
    replaced(history, lambda rows: rows.with_columns(n_turns=pl.lit("many")))
    assert codes(sa.read(history)) == ["archive.shard_damaged"]


def test_a_frame_that_nobody_knows_is_left_out(history):
    manifest = manifests(history)[0]
    told = json.loads(manifest.read_text())
    told["shards"][0]["frame"] = "horoscopes"
    manifest.write_text(json.dumps(told))
    assert codes(sa.read(history)) == ["archive.frame_unknown"]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        pytest.param({"schema_version": 99}, "schema version 99, newer", id="a newer version"),
        pytest.param({"run": "ffffffff"}, "manifest of another run", id="renamed"),
        pytest.param({"shards": 7}, "is no manifest", id="shards of another type"),
        pytest.param({"system": "../.."}, "is no manifest", id="a system that leads out"),
        pytest.param({"shards": [{"frame": "events", "week": "../../..", "sha256": "0" * 64,
                                  "n_rows": 1, "n_bytes": 1}]}, "is no manifest",
                     id="a week that leads out"),
        pytest.param({"observed_at": "noon"}, "is no manifest", id="no moment"),
        pytest.param({"last_at": None, "counts": {"entities": "x"}}, "is no manifest", id="counts"),
        pytest.param({"schema_version": 2, "shards": None}, "schema version 2, newer",
                     id="other fields in a newer version"),
        pytest.param({"schema_version": "1"}, "is no manifest", id="a version of another type"),
        pytest.param({"first_at": "0001-01-01T00:00:00+05:00"}, "is no manifest",
                     id="a moment before all others"),
        pytest.param({"label": "\ud800"}, "is no manifest", id="half a character"),
        pytest.param({"format": None}, "is no manifest", id="no format"),
        pytest.param({"size_bytes": 10**400}, "is no manifest", id="a size that nothing has"),
        pytest.param({"counts": {"entities": -1}}, "is no manifest", id="fewer rows than none"),
        pytest.param({"findings": {"x": [[]] * 3}}, "is no manifest", id="findings"),
    ],
)  # fmt: skip
def test_a_manifest_that_is_none_costs_its_own_run(history, values, problem):
    edit(manifests(history)[0], **values)
    kept = sa.read(history)
    [found] = kept.findings.filter(code="archive.run_unreadable")["message"]
    assert problem in found
    assert kept.entities.height


def test_a_manifest_that_is_nested_too_deep_costs_its_own_run(history):
    manifests(history)[0].write_text('{"shards": ' + "[" * 100_000)
    assert codes(sa.read(history)) == ["archive.run_unreadable"]


@pytest.mark.parametrize("find", [manifests, shards], ids=["manifest", "shard"])
@pytest.mark.parametrize("put_there", [
    pytest.param(os.mkfifo, id="a pipe"),
    pytest.param(lambda path: path.symlink_to("/dev/zero"), id="a device"),
    pytest.param(lambda path: path.symlink_to("nowhere"), id="a link to nowhere"),
    pytest.param(Path.mkdir, id="a directory"),
])  # fmt: skip
def test_what_is_no_file_is_left_out_and_named(history, find, put_there):
    path = find(history)[-1]
    path.unlink()
    put_there(path)
    kept = sa.read(history)
    [code] = codes(kept)
    assert code.startswith("archive.run_" if find is manifests else "archive.shard_")
    assert kept.entities.height


def test_an_archive_of_nothing_that_is_understood_says_so(history):
    for manifest in manifests(history):
        manifest.write_text("{")
    with pytest.raises(SourceError, match="is no manifest"):
        sa.read(history)


@pytest.mark.slow
def test_a_clock_that_runs_backwards_puts_nothing_in_disorder(tmp_path):
    store, days = tmp_path / "state.db", iter([9, 8, 7])
    for day in range(3):
        store.unlink(missing_ok=True)
        store_at(store, day)
        clock = MONDAY + timedelta(days=next(days))
        archiving = Archiving(tmp_path / "history", Options(), lambda clock=clock: clock)
        list(collect_each(archiving, [store]))
    kept = sa.read(tmp_path / "history")
    assert codes(kept) == ["archive.clock_went_back"]
    statuses = kept.entities.filter(entity_type="session").sort("entity_id")["raw_status"]
    assert statuses.to_list() == ["completed", "completed", "running"]


def test_a_store_that_was_restored_from_a_backup_loses_nothing_here(of_day, tmp_path):
    for day in (3, 1):
        of_day(day).archive(tmp_path / "history")
    kept = sa.read(tmp_path / "history")
    assert codes(kept) == ["archive.source_went_back"]
    sessions = kept.entities.filter(entity_type="session").sort("entity_id")
    assert sessions.select("entity_id", "raw_status").rows() == [
        ("s0", "completed"), ("s1", "running"), ("s2", "completed"), ("s3", "running"),
    ]  # fmt: skip


def test_of_runs_that_prove_the_same_moment_the_later_one_holds(tmp_path):
    """A store that shrank, or whose writer closed it, is not older for that."""
    store, history = store_at(tmp_path / "state.db", 3), tmp_path / "history"
    with closing(sqlite3.connect(store)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE room AS SELECT zeroblob(100000) AS room")
        writer.commit()
        with sa.read(store) as snap:
            assert snap.archive(history)["status"].to_list() == ["archived"]
    wrote(
        store, "DROP TABLE room", "UPDATE sessions SET status = 'failed' WHERE id = 's2'", "VACUUM"
    )
    with sa.read(store) as snap:
        assert snap.archive(history)["status"].to_list() == ["archived"]
        assert_frame_equal(sa.read(history).sources.drop(COLLECTED), snap.sources.drop(COLLECTED))
    later = sa.read(history)
    assert later.entities.filter(entity_id="s2")["raw_status"].to_list() == ["failed"]
    assert codes(later) == []


@pytest.mark.slow
def test_a_store_whose_writer_closed_it_did_not_go_back(tmp_path):
    store, history = store_at(tmp_path / "state.db", 3), tmp_path / "history"
    with closing(sqlite3.connect(store)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE sessions SET status = 'failed' WHERE id = 's2'")
        writer.commit()
        assert run(["archive", str(store), "--to", str(history)]) == 0
    assert run(["archive", str(store), "--to", str(history)]) == 0
    with sa.read(store) as snap:
        kept = sa.read(history)
        assert codes(kept) == []
        assert_frame_equal(kept.sources.drop(COLLECTED), snap.sources.drop(COLLECTED))


def test_what_has_no_name_stays_where_only_files_were_touched(tmp_path):
    nameless = {**WHOSE, "entity_id": None, "raw_status": "running", "created_at": MONDAY}
    part = Parts(
        "lionagi", "by hand", frame("entities", [nameless]), schema.TRANSITIONS.empty(),
        schema.EVENTS.empty(), schema.FINDINGS.empty(), label="state.db",
    )  # fmt: skip
    for files in ("one", "two"):
        put(part, tmp_path, files=files)
    kept = read_archived(archived_source(tmp_path, KEY), detail_frames())
    assert kept.entities["raw_status"].to_list() == ["running"]


@pytest.mark.slow
@pytest.mark.parametrize("reason", a_few([errno.ENOSPC, errno.EROFS, errno.EACCES]))
def test_where_nothing_can_be_written_what_is_there_stays_readable(
    of_day, history, monkeypatch, capsys, reason
):
    whole, snap = sa.read(history), of_day(4)

    def refuse(*_, **__):
        raise OSError(reason, os.strerror(reason))

    store = Path(snap.sources["source"].item())
    store.unlink()
    store_at(store, 4)
    monkeypatch.setattr(writing, "put_whole", refuse)
    with pytest.raises(NoRoomError, match="Nothing that was archived before is lost"):
        snap.archive(history)
    assert run(["archive", str(store), "--to", str(history)]) == 1
    assert os.strerror(reason) in capsys.readouterr().err
    assert sa.read(history).entities.equals(whole.entities)


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_an_archive_of_every_schema_version_is_read(version):
    """`tests.data.make_archive` wrote them; none of an older version is ever written again."""
    kept = sa.read(ARCHIVES / f"schema_{version}")
    sessions = kept.entities.filter(entity_type="session").sort("entity_id")
    assert sessions.select("source", "entity_id", "raw_status").rows() == [
        ("state.db", "s0", "completed"),
        ("state.db", "s1", "completed"),
        ("state.db", "s2", "running"),
    ]
    assert kept.transitions.height == 5
    assert codes(kept) == []


def test_turns_that_an_older_version_archived_are_those_of_the_model():
    story = SAMPLES / "twelve_weeks"
    archived, stored = (sa.read(story / name).entities for name in ("history", "state.db"))
    both = archived.join(stored, on=["entity_type", "entity_id"], suffix="_stored")
    assert both["n_model_turns"].to_list() == both["n_model_turns_stored"].to_list()
    assert both["n_model_turns"].sum() > 0 and both["n_turns"].null_count() == both.height


def test_a_column_of_another_type_is_another_schema_version():
    """Else shards that were written before would be read as something else."""
    for shard in (ARCHIVES / f"schema_{SCHEMA_VERSION}").rglob("*.parquet"):
        now = {**schema.FRAMES, **detail_frames()}[shard.name.rpartition("-")[0]].dtypes
        then = pl.read_parquet_schema(shard)
        assert {name: now[name] for name in then} == dict(then)


def test_an_archive_that_another_process_never_releases_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("stateanalytics.io.outputs.MOST_WAIT_S", 0.2)
    store = write_store(tmp_path / "state.db", sessions=[session("s1")])
    archive = tmp_path / "history"
    archive.mkdir()
    with alone_in(archive):
        (row,) = sa.collect(store, archive).to_dicts()
        assert row["status"] == "failed"
        assert "has been writing to" in row["message"] and str(archive) in row["message"]
    assert sa.collect(store, archive)["status"].to_list() == ["archived"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_keep_the_lock_of_an_archive(tmp_path):
    script = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from stateanalytics.io import outputs\n"
        "outputs.MOST_WAIT_S = 0.2\n"
        "with outputs.alone_in(Path(sys.argv[1])):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        time.sleep(60)\n"
        "        os._exit(0)\n"
        "try:\n"
        "    with outputs.alone_in(Path(sys.argv[1])):\n"
        "        print('free')\n"
        "finally:\n"
        "    os.kill(child, signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "free\n", done.stderr

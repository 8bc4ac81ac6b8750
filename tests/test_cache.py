"""What one process read is used by the next one, and never where anything changed since."""

import os
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.cli import reports, run
from stateanalytics.core.words import size
from stateanalytics.io import cache as files
from stateanalytics.io import json_lines
from stateanalytics.io.budget import OVER_BUDGET, Budget, BudgetSpentError, Spending
from stateanalytics.io.cache import Cache
from stateanalytics.systems import pooling, reading
from tests.conftest import SHIPPED
from tests.examples import a_few, examples, some_of
from tests.frames import AS_OF, facts
from tests.lionagi_stores import NOW_S, wrote
from tests.test_observations import store_at

FRAMES = ("entities", "transitions", "events", "findings", "sources")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own, of inputs of any size."""
    monkeypatch.setenv("STATEANALYTICS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pooling, "LEAST_BYTES", 0)
    # What was written just now may be written again within one tick of the clock.
    monkeypatch.setattr("stateanalytics.io.cache._TICK_NS", -10_000_000_000)
    return Cache(tmp_path / "cache")


def same(one, other):
    for name in FRAMES:
        assert_frame_equal(getattr(one, name), getattr(other, name))
    assert set(one.details) == set(other.details)
    for name, rows in one.details.items():
        assert_frame_equal(rows, other.details[name])
    assert one.as_of == other.as_of
    assert one.inputs == other.inputs


def read_once(monkeypatch):
    """The inputs that were read and not taken from the cache, from here on."""
    read, original = [], reading._read_by
    monkeypatch.setattr(
        reading, "_read_by", lambda *args, **more: read.append(args[2]) or original(*args, **more)
    )
    return read


def copied(system, folder):
    """A copy of the sample of a system."""
    source, target = SHIPPED[system], folder / SHIPPED[system].name
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    return target


@pytest.mark.parametrize("system", [name for name in SHIPPED if name != "opencode"])
def test_the_next_read_of_the_same_files_reads_none(tmp_path, monkeypatch, system):
    place = copied(system, tmp_path)
    fresh = sa.read(place, cache=False)
    same(sa.read(place), fresh)
    read = read_once(monkeypatch)
    with sa.read(place) as cached:
        same(cached, fresh)
        assert read == []
        assert sa.states(cached).equals(sa.states(fresh))
        # And as of a past instant, and after a refresh.
        past = fresh.sources["last_at"].max()
        assert sa.states(sa.read(place, as_of=past)).equals(sa.states(fresh.refresh(as_of=past)))
        same(cached.refresh(), fresh)


@pytest.mark.slow
def test_a_store_that_was_written_to_is_read_again(tmp_path, monkeypatch):
    store = store_at(tmp_path / "state.db", 2)
    sa.read(store)
    read = read_once(monkeypatch)
    wrote(store, "UPDATE sessions SET status = 'failed' WHERE id = 's1'")
    same(sa.read(store), sa.read(store, cache=False))
    assert read == [str(store)] * 2


@pytest.mark.slow
def test_a_store_that_a_writer_has_open_is_not_kept(tmp_path, cache):
    store = store_at(tmp_path / "state.db", 2)
    with closing(sqlite3.connect(store, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("UPDATE sessions SET status = 'failed' WHERE id = 's1'")
        sa.read(store)
        assert not cache.root.exists()
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.utime(store, (NOW_S, NOW_S))  # within a tick nothing is known of it either
    sa.read(store)
    (kept,) = cache.root.iterdir()
    before = kept.stat().st_mtime_ns
    with closing(sqlite3.connect(store, isolation_level=None)) as writer:
        writer.execute("UPDATE sessions SET status = 'running' WHERE id = 's1'")
        assert sa.read(store).entities.equals(sa.read(store, cache=False).entities)
        assert kept.stat().st_mtime_ns == before


@pytest.mark.slow
def test_of_transcripts_only_what_changed_is_read_again(tmp_path, monkeypatch):
    place = copied("claude_code", tmp_path)
    sa.read(place)
    opened, own = [], json_lines.chunks_of
    monkeypatch.setattr(json_lines, "chunks_of", lambda *args: opened.append(args[1]) or own(*args))
    changed = sorted(place.rglob("projects/**/*.jsonl"))[0]
    lines = changed.read_text("utf-8").splitlines(keepends=True)
    changed.write_text("".join(lines[:-1]), "utf-8")
    os.utime(changed, (NOW_S + 60, NOW_S + 60))
    cached = sa.read(place)
    assert opened == [changed.relative_to(place).as_posix()]
    same(cached, sa.read(place, cache=False))
    opened.clear()
    same(sa.read(place), cached)
    assert opened == []


def story(place, rng):
    """One thing that happens to some file of a tree, or to a store."""
    at = NOW_S + rng.randrange(10**6)
    paths = sorted(path for path in place.rglob("*.jsonl")) or [place]
    path = rng.choice(paths)
    content = path.read_bytes()
    match rng.randrange(7):
        case 0:  # truncated
            path.write_bytes(content[: rng.randrange(len(content) + 1)])
        case 1:  # appended
            path.write_bytes(content + content[-rng.randrange(1, 400) :])
        case 2:  # replaced by another file of the same size and time
            status = path.stat()
            other = path.with_name("other")
            other.write_bytes(bytes(reversed(content)) if rng.random() < 0.5 else content)
            other.replace(path)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            return
        case 3 if place.is_dir() and len(paths) > 1:  # renamed
            path.rename(path.with_name(f"{rng.randrange(10**6)}.jsonl"))
            return
        case 4 if place.is_dir() and len(paths) > 2:  # deleted
            path.unlink()
            return
        case 5:  # touched, with a clock that went back
            at = NOW_S - rng.randrange(10**6)
            path.write_bytes(content)
        case _:  # changed in the middle
            changed = bytearray(content)
            if changed:
                changed[rng.randrange(len(changed))] = rng.randrange(32, 126)
            path.write_bytes(bytes(changed))
    os.utime(path, (at, at))


def outcome(place, **options):
    """The snapshot, or the error that a read ends with."""
    try:
        return sa.read(place, progress=False, **options)
    except sa.errors.StateAnalyticsError as error:
        return type(error), error.problem


@pytest.mark.slow
@pytest.mark.parametrize("system", a_few(["claude_code", "lionagi", "codex"]))
def test_after_any_story_a_cached_read_is_a_fresh_one(system):
    @examples(24)
    @given(st.integers(0, 2**32))
    def told(seed):
        rng = Random(seed)
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
            patched.setenv("STATEANALYTICS_CACHE", f"{folder}/cache")
            patched.setattr(pooling, "LEAST_BYTES", 0)
            patched.setattr("stateanalytics.io.cache._TICK_NS", -10_000_000_000)
            place = copied(system, Path(folder))
            for _ in range(rng.randrange(1, 5)):
                cached, fresh = outcome(place), outcome(place, cache=False)
                if isinstance(fresh, tuple):
                    assert cached == fresh
                    return
                same(cached, fresh)
                story(place, rng)

    told()


@pytest.mark.slow
@pytest.mark.parametrize("system", ["claude_code", "codex"])
@pytest.mark.parametrize("seed", range(some_of(40, 5)))
def test_reads_that_are_cut_by_time_go_on_until_all_is_read(tmp_path, monkeypatch, system, seed):
    rng, ticks, place = Random(seed), count(), copied(system, tmp_path)
    clock = SimpleNamespace(process_time=lambda: next(ticks))
    monkeypatch.setattr("stateanalytics.io.budget.time", clock)
    for path in place.rglob("*.jsonl"):
        os.utime(path, (NOW_S + rng.randrange(1000),) * 2)
    fresh, n_unread = sa.read(place, cache=False), []
    for _ in range(rng.randrange(1, 40)):
        cut = sa.read(place, budget=f"processor_s={rng.randrange(9, 40)}")
        skipped = cut.findings.filter(code=OVER_BUDGET)["n_rows"].sum()
        if not skipped:
            same(cut, fresh)
            break
        n_unread.append(skipped)
    assert n_unread == sorted(n_unread, reverse=True)
    assert n_unread
    same(sa.read(place), fresh)


def summed_up(capsys):
    """The exit code of the bare command, and what it prints."""
    capsys.readouterr()
    return run([]), *capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("system", ["claude_code", "lionagi", "codex"])
@pytest.mark.parametrize("seed", range(some_of(40, 5)))
def test_the_usual_places_are_summed_up_without_reading_until_they_change(
    tmp_path, monkeypatch, capsys, system, seed
):
    rng, place = Random(seed), copied(system, tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("LIONAGI_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        is_own = variable.startswith(system.partition("_")[0].upper())
        home = place if place.is_dir() else tmp_path
        monkeypatch.setenv(variable, str(home if is_own else tmp_path / "nothing"))
    kept, first = os.environ["STATEANALYTICS_CACHE"], summed_up(capsys)
    assert first[0] == 0
    with monkeypatch.context() as patched:
        patched.setattr("stateanalytics.snapshot.read_for_once", None)
        assert summed_up(capsys) == first
    story(place, rng)
    again = summed_up(capsys)
    monkeypatch.setenv("STATEANALYTICS_CACHE", "off")
    assert summed_up(capsys) == again
    monkeypatch.setenv("STATEANALYTICS_CACHE", kept)
    assert summed_up(capsys) == again


def test_a_first_look_leaves_out_only_older_transcripts_and_is_kept(
    home, tmp_path, monkeypatch, capsys
):
    """The newest are read first; the year-old ones are named, and the next run reads nothing."""
    place, ticks = copied("claude_code", tmp_path), count()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(place))
    newest = max(place.rglob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    for year in range(2019, 2026):
        lines = newest.read_text("utf-8").replace("2026-05-", f"{year}-05-")
        old = newest.with_name(f"{year}{newest.name[4:]}")
        old.write_text(lines.replace(newest.stem, old.stem), "utf-8")
        os.utime(old, (86_400 * 365 * (year - 1970),) * 2)
    clock = SimpleNamespace(process_time=lambda: next(ticks))
    with monkeypatch.context() as patched:
        patched.setattr("stateanalytics.io.budget.time", clock)
        patched.setattr(reports, "_FIRST_LOOK_S", 55)
        first = summed_up(capsys)
    code, told, notes = first
    assert code == 0
    assert re.search(r"note: \d older transcripts are not read yet: this week is complete", notes)
    assert "Data of" not in told
    with monkeypatch.context() as patched:
        patched.setattr("stateanalytics.snapshot.read_for_once", None)
        assert summed_up(capsys) == first
    sa.read(place)  # another command reads the older ones as well
    assert "older transcripts" not in summed_up(capsys)[2]


def test_a_first_look_that_ends_before_this_week_is_read_says_how_to_go_on(
    home, tmp_path, monkeypatch, capsys
):
    """Its limit is not one that the user gave, and the list of findings reads everything."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(copied("claude_code", tmp_path)))
    ticks = count()
    clock = SimpleNamespace(process_time=lambda: next(ticks))
    monkeypatch.setattr("stateanalytics.io.budget.time", clock)
    monkeypatch.setattr(reports, "_FIRST_LOOK_S", 30)
    code, told, notes = summed_up(capsys)
    assert (code, "1. Data of 1 input is missing" in told) == (0, True)
    assert "note: this first look reads for 30 s; run it again to read on, or read " in notes


def test_a_large_usual_place_leaves_time_for_the_others(home, tmp_path, monkeypatch):
    """Claude Code is read first, and cut where half of the time is over; Codex is read whole."""
    claude, codex, ticks = copied("claude_code", tmp_path), copied("codex", tmp_path), count()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(claude))
    monkeypatch.setenv("CODEX_HOME", str(codex))
    newest = max(claude.rglob("*.jsonl"))
    for n in range(60):
        newest.with_name(f"{n:02}{newest.name[2:]}").write_text(newest.read_text("utf-8"), "utf-8")
    clock = SimpleNamespace(process_time=lambda: next(ticks))
    monkeypatch.setattr("stateanalytics.io.budget.time", clock)
    read = sa.read(budget="processor_s=200", cache=False)
    assert read.findings.filter(code=OVER_BUDGET)["system"].to_list() == ["claude_code"]
    whole = sa.read(codex, cache=False).entities.height
    assert read.entities["system"].value_counts().filter(system="codex")["count"].item() == whole


def test_what_an_input_does_not_need_of_the_time_goes_to_the_next(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(
        "stateanalytics.io.budget.time", SimpleNamespace(process_time=lambda: now_s[0])
    )
    spent, most = Spending(Budget(processor_s=4)), []
    for n_left, used_s in ((4, 0.25), (3, 9), (2, 1.25), (1, 0)):
        spent.begin_part(n_left)
        most.append(spent._most_s)
        now_s[0] += used_s
    # A second each, a quarter more of what the first one left; overtime takes nothing away.
    assert most == [1, 1.25, 1.25, 1.25]
    with pytest.raises(BudgetSpentError, match="budget of 4 seconds of processor time"):
        now_s[0] += 1.5
        spent.draw()
    unlimited = Spending(Budget.unlimited())
    unlimited.begin_part(2)
    unlimited.draw()


@pytest.mark.parametrize(
    ("days", "name", "n_older"),
    [(8, "a.jsonl", 3), (6, "a.jsonl", 0), (8, "messages", 0), (8, "gone.jsonl", 0)],
)
def test_only_older_transcripts_are_left_out_without_a_loss(tmp_path, days, name, n_older):
    """By the newest one that was not read: of tables nothing says which week is missing."""
    for file in ("a.jsonl", "messages"):
        (tmp_path / file).touch()
        os.utime(tmp_path / file, (AS_OF.timestamp() - days * 86_400,) * 2)
    spent = {"source": str(tmp_path), "code": OVER_BUDGET, "severity": "warning", "n_rows": 3}
    other = {**spent, "code": "x", "table": "a.jsonl"}
    read = facts([{"entity_id": "a"}], findings=[{**spent, "table": name}, other])
    without, n = reports._without_older(read)
    assert n == n_older
    assert without.findings["code"].to_list() == ["x"] if n_older else read.findings.height == 2


def spoilt(path, rng):
    content = bytearray(path.read_bytes())
    match rng.randrange(4):
        case 0:
            path.write_bytes(content[: rng.randrange(len(content))])
        case 1:
            path.write_bytes(content + b"x")
        case _:
            for _ in range(rng.choice((1, 1, 8))):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            path.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("seed", a_few(list(range(80)), 6))
def test_a_damaged_file_of_the_cache_costs_a_fresh_read(tmp_path, cache, seed):
    place = copied("codex", tmp_path)
    fresh = sa.read(place)
    (path,) = cache.root.iterdir()
    spoilt(path, Random(seed))
    same(sa.read(place), fresh)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["another program", "a pipe", "a link", "open to others"])
def test_what_somebody_else_may_have_written_is_not_used(tmp_path, cache, monkeypatch, change):
    place = copied("codex", tmp_path)
    fresh = sa.read(place)
    (path,) = cache.root.iterdir()
    if change == "another program":
        monkeypatch.setattr(files, "code_version", lambda: "0" * 64)
    elif change == "a pipe":
        path.unlink()
        os.mkfifo(path)
    elif change == "a link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        cache.root.chmod(0o777)
    read = read_once(monkeypatch)
    same(sa.read(place), fresh)
    assert read == [str(place)]


def test_files_of_the_cache_are_the_users_alone(tmp_path, cache):
    sa.read(copied("codex", tmp_path))
    assert stat.S_IMODE(cache.root.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in cache.root.iterdir()} == {0o600}


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["cache/in/a/file", "\0"])
def test_a_cache_that_cannot_be_written_stops_nobody(tmp_path, monkeypatch, folder):
    (tmp_path / "cache").write_text("")
    place = copied("codex", tmp_path)
    monkeypatch.setattr(Cache, "of_user", lambda: Cache(tmp_path / folder))
    same(sa.read(place), sa.read(place, cache=False))


def test_a_full_disk_leaves_no_half_file(tmp_path, cache, monkeypatch):
    place = copied("codex", tmp_path)

    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", full)
    sa.read(place)
    assert list(cache.root.iterdir()) == []


def test_above_the_limit_what_was_used_longest_ago_goes(tmp_path, cache, monkeypatch):
    for number in range(4):
        cache.put(str(number), {}, [b"x" * 1000])
        os.utime(cache._path(str(number)), (NOW_S + number, NOW_S + number))
    half = cache.root / "left.half"
    half.write_bytes(b"x")
    os.utime(half, (NOW_S, NOW_S))
    assert cache.get("0") is not None  # used just now
    monkeypatch.setattr(files, "MOST_BYTES", 3 * 1200)
    cache.put("4", {}, [b"x" * 1000])
    assert [number for number in range(5) if cache.get(str(number)) is not None] == [0, 3, 4]
    assert not half.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"cache": False}, {"bodies": True}, {"budget": "n_rows=1000000"},
                {"on_error": "raise"}]
)  # fmt: skip
def test_nothing_is_kept_where_that_is_not_wanted(tmp_path, cache, options):
    sa.read(copied("codex", tmp_path), **options)
    assert not cache.root.exists()


def test_a_small_input_is_not_kept(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(pooling, "LEAST_BYTES", 1_000_000)
    sa.read(copied("codex", tmp_path))
    assert not cache.root.exists()


@pytest.mark.slow
def test_commands_keep_what_they_read_and_take_no_cache(tmp_path, cache, capsys):
    place = str(copied("codex", tmp_path))
    assert run(["attention", place, "--no-cache"]) in (0, 3)
    assert not cache.root.exists()
    assert run(["attention", place]) in (0, 3)
    assert cache.usage()[0] == 1
    told = capsys.readouterr().out
    assert told[: len(told) // 2] == told[len(told) // 2 :]
    run(["doctor"])
    used = f"1 input, {size(cache.usage()[1])} of 2.0 GB"
    assert f"cache: {cache.root}, {used}" in capsys.readouterr().out


@pytest.mark.slow
def test_the_cache_is_switched_off_by_a_variable(tmp_path, cache, monkeypatch, capsys):
    monkeypatch.setenv("STATEANALYTICS_CACHE", "off")
    sa.read(copied("codex", tmp_path))
    assert not cache.root.exists()
    run(["doctor"])
    assert "cache: off, by STATEANALYTICS_CACHE" in capsys.readouterr().out


KILLED = """
import os, signal, sys, threading
from pathlib import Path
from stateanalytics.io.cache import Cache
cache, after_s = Cache(Path(sys.argv[1])), float(sys.argv[2])
threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
for number in range(10**6):
    cache.put("key", {"number": number}, [bytes([number % 251]) * 300_000])
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", a_few(list(range(200)), 2))
def test_a_process_that_is_killed_leaves_a_whole_file_or_none(tmp_path, cache, seed):
    after_s = 0.02 + 0.1 * Random(seed).random()
    command = [sys.executable, "-c", KILLED, str(cache.root), str(after_s)]
    ended = subprocess.run(command, check=False)
    assert ended.returncode == -signal.SIGKILL
    for path in cache.root.iterdir() if cache.root.exists() else ():
        assert path.suffix in (".cache", ".half")
    entry = cache.get("key")
    if entry is not None:
        assert bytes(entry.blocks[0]) == bytes([entry.head["number"] % 251]) * 300_000

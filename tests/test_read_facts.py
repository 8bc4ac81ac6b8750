"""From what a user types to facts: names, directories, patterns, and what is none."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import polars as pl
import pytest

from stateanalytics.core import schema
from stateanalytics.errors import ArgumentError, NotAStoreError, SourceNotFoundError
from stateanalytics.io.as_of import future_findings
from stateanalytics.io.files import matching
from stateanalytics.io.parts import Parts
from stateanalytics.systems.places import find_places, usual_places
from stateanalytics.systems.reading import read_facts
from tests.conftest import ROOT
from tests.lionagi_stores import NOW_S, change, session, write_store, wrote

NOW = datetime.fromtimestamp(NOW_S, UTC)


def _facts(*paths, **arguments):
    facts, stores = read_facts(list(paths), shown=False, **arguments)
    for store in stores:
        store.close()
    return facts


def _store(path: Path, *identities: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_store(path, sessions=[session(name) for name in identities or ("a",)])


def test_a_directory_stands_for_the_store_in_it_and_copies_are_left_alone(tmp_path):
    _store(tmp_path / "state.db")
    _store(tmp_path / "state.db.pre-definitions.1780000000.bak", "old")
    _store(tmp_path / "other.db", "other")
    facts = _facts(tmp_path)
    assert facts.entities["entity_id"].to_list() == ["a"]
    assert facts.sources["source"].to_list() == [str(tmp_path)]


def test_a_directory_without_state_db_gives_every_store_in_it(tmp_path):
    _store(tmp_path / "b.db", "b")
    _store(tmp_path / "a.db", "a")
    wrote(tmp_path / "c.db", "CREATE TABLE t (x)")
    facts = _facts(tmp_path)
    read = facts.entities.select("source", "entity_id").rows()
    assert read == [(str(tmp_path / f"{name}.db"), name) for name in "ab"]
    skipped = facts.findings.filter(pl.col("code") == "source.skipped")
    assert skipped.select("source", "example").rows() == [(str(tmp_path / "c.db"), "t")]
    assert facts.sources.height == 2


def test_a_project_directory_stands_for_its_hidden_store(tmp_path):
    _store(tmp_path / ".lionagi" / "state.db")
    assert _facts(tmp_path).entities.height == 1


def test_a_copy_that_is_named_itself_is_read(tmp_path):
    path = _store(tmp_path / "state.db.pre-x.bak")
    assert _facts(path).entities.height == 1


def test_inputs_are_pooled_in_the_order_they_were_named(tmp_path):
    # The same id of different work: created at another moment.
    for name, created_at in (("1", NOW_S - 900), ("2", NOW_S - 800)):
        (tmp_path / name).mkdir()
        store = session("x", created_at=created_at)
        write_store(tmp_path / name / "state.db", sessions=[store])
    one, two = tmp_path / "1" / "state.db", tmp_path / "2" / "state.db"
    facts = _facts(two, one)
    assert facts.sources["source"].to_list() == [str(two), str(one)]
    assert facts.entities.select("source", "entity_id").rows() == [(str(two), "x"), (str(one), "x")]
    assert facts.entities.select(schema.ENTITY_KEY).is_duplicated().sum() == 0


def test_a_file_that_is_named_twice_is_read_once(tmp_path):
    path = _store(tmp_path / "state.db")
    link = tmp_path / "link.db"
    link.symlink_to(path)
    facts = _facts(path, tmp_path, link, tmp_path / ".." / tmp_path.name / "state.db")
    assert facts.entities.height == 1
    twice = facts.findings.filter(pl.col("code") == "source.named_twice")
    assert twice["source"].to_list()[:2] == [str(tmp_path), str(link)]
    assert twice.height == 3


@pytest.mark.slow
def test_a_pattern_gives_every_match_and_no_journal(tmp_path):
    for name in ("a", "b"):
        _store(tmp_path / name / "state.db", name)
    _store(tmp_path / "a" / "state.db.pre-x.bak", "old")
    facts = _facts(str(tmp_path / "*" / "state.db*"))
    assert facts.entities["entity_id"].to_list() == ["a", "b"]
    assert _facts(str(tmp_path / "*")).entities["entity_id"].to_list() == ["a", "b"]


def test_a_name_that_exists_is_never_a_pattern(tmp_path):
    path = _store(tmp_path / "what? [1] #2 *.db")
    assert _facts(str(path)).sources["source"].to_list() == [str(path)]


def test_the_home_directory_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    _store(tmp_path / ".lionagi" / "state.db")
    facts = _facts("~/.lionagi/state.db")
    assert facts.sources["source"].to_list() == ["~/.lionagi/state.db"]


def test_a_single_name_need_not_be_in_a_list(tmp_path):
    facts, (store,) = read_facts(str(_store(tmp_path / "state.db")), shown=False)
    assert facts.entities.height == 1
    store.close()


def test_without_a_name_the_usual_places_are_looked_up(tmp_path, monkeypatch):
    monkeypatch.setenv("LIONAGI_HOME", str(tmp_path / "lion"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SourceNotFoundError) as told:
        read_facts(shown=False)
    assert "usual places are empty" in str(told.value)
    assert "LIONAGI_HOME" in str(told.value)
    assert "sa.demo() is a sample" in told.value.hint
    _store(tmp_path / ".lionagi" / "state.db")
    assert _facts().entities.height == 1


def test_usual_places_are_named_once():
    home = Path("/home/me")
    own = [
        home / place
        for place in (
            ".lionagi/state.db .agent-orchestrator .ao .local/share/opencode .claude "
            ".config/claude .codex"
        ).split()
    ]
    assert usual_places({}, home) == own
    assert usual_places({"LIONAGI_HOME": "/home/me/.lionagi", "XDG_DATA_HOME": ""}, home) == own
    assert usual_places({"LIONAGI_HOME": "/lion"}, home)[0] == Path("/lion/state.db")
    assert usual_places({"XDG_DATA_HOME": "/data"}, home)[3] == Path("/data/opencode")
    assert usual_places({"AO_DATA_DIR": "/ao"}, home)[2] == Path("/ao")


@pytest.mark.parametrize("name", ["", "  ", "a\x00b", 3, None])
def test_what_is_no_path_is_refused(name):
    with pytest.raises(ArgumentError, match="must be the path of a store"):
        read_facts([name], shown=False)


def test_nothing_at_a_path_says_what_is_there(tmp_path):
    _store(tmp_path / "state.db")
    with pytest.raises(SourceNotFoundError, match=r"(?s)no file or directory.*there is state\.db"):
        _facts(tmp_path / "stat.db")
    with pytest.raises(SourceNotFoundError, match="does not exist either"):
        _facts(tmp_path / "no" / "stat.db")
    with pytest.raises(SourceNotFoundError, match=r"URIs and :memory: are no stores"):
        _facts(":memory:")


def test_a_link_to_nothing_says_where_it_leads(tmp_path):
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    with pytest.raises(SourceNotFoundError):
        _facts(tmp_path / "loop.db")
    (tmp_path / "state.db").symlink_to("gone.db")
    with pytest.raises(SourceNotFoundError, match=r"is a link to 'gone\.db', which does not exist"):
        _facts(tmp_path / "state.db")


def test_a_pattern_without_a_match_says_so(tmp_path):
    with pytest.raises(SourceNotFoundError, match="No store matches"):
        _facts(str(tmp_path / "*.db"))
    _store(tmp_path / "state.db.bak")
    with pytest.raises(SourceNotFoundError, match="1 other files"):
        _facts(str(tmp_path / "*.bak"))


def test_a_directory_without_a_store_names_those_below(tmp_path):
    _store(tmp_path / "deep" / "state.db")
    with pytest.raises(NotAStoreError, match=r"(?s)has no state\.db.*deep/state\.db"):
        _facts(tmp_path)


def test_a_store_of_something_else_says_what_was_found_and_needed(tmp_path):
    path = wrote(tmp_path / "browser.db", *(f"CREATE TABLE t{n} (x)" for n in range(10)))
    needed = "'sessions', 'branches' and 'progressions' were needed"
    with pytest.raises(NotAStoreError, match=f"(?s){needed}.*'t0'.*and 2 more.*Hint: "):
        _facts(path)


def test_a_database_without_tables_is_no_store(tmp_path):
    path = tmp_path / "empty.db"
    wrote(path, "CREATE TABLE t (x)", "DROP TABLE t")
    with pytest.raises(NotAStoreError, match="found no tables"):
        _facts(path)


def test_a_failure_leaves_no_private_copy_behind(tmp_path, monkeypatch):
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(private))
    good = _store(tmp_path / "good.db")
    bad = tmp_path / "bad.db"
    wrote(bad, "CREATE TABLE t (x)")
    with pytest.raises(NotAStoreError):
        _facts(good, bad)
    assert list(private.iterdir()) == []


def test_a_given_instant_is_kept_in_utc(tmp_path):
    path = _store(tmp_path / "state.db")
    summer = timezone(timedelta(hours=2))
    facts = _facts(path, as_of=datetime(2026, 5, 27, 2, tzinfo=summer))
    assert (facts.as_of, facts.as_of_from) == (NOW, "given")
    assert _facts(path, as_of=datetime(2026, 5, 27)).as_of == NOW
    with pytest.raises(ArgumentError, match="as_of must be a datetime"):
        _facts(path, as_of="yesterday")


def _written(path: Path, *, transitions=(), **sessions) -> Path:
    rows = [session(name, **columns) for name, columns in sessions.items()]
    return write_store(path, sessions=rows, status_transitions=transitions)


def test_a_copy_is_read_as_of_its_newest_event(tmp_path):
    path = _written(
        tmp_path / "state.db",
        a={},
        b={"updated_at": NOW_S + 3600},  # may be any write, at any time
        transitions=[change("a", "completed", NOW_S - 10)],
    )
    facts = _facts(path)
    assert facts.as_of == NOW - timedelta(seconds=10)
    assert facts.as_of_from == "data"
    assert facts.sources["last_at"].to_list() == [facts.as_of]


def test_a_clock_that_ran_ahead_does_not_age_the_store(tmp_path):
    moments = (NOW_S - 20, NOW_S - 10, NOW_S + 40 * 365 * 86400)
    changes = [change("a", "completed", at) for at in moments]
    path = _written(tmp_path / "state.db", a={}, transitions=changes)
    facts = _facts(path)
    assert facts.as_of == NOW - timedelta(seconds=10)
    ahead = facts.findings.filter(pl.col("code") == "time.future")
    assert ahead.select("table", "n_rows").rows() == [("transitions", 1)]


@pytest.mark.parametrize("moment", ["created_at", "updated_at"])
def test_a_single_event_or_else_the_last_update_is_as_of(tmp_path, moment):
    rows = [{"id": "a", moment: NOW_S, "progression_id": "p"}]
    assert _facts(write_store(tmp_path / "state.db", sessions=rows)).as_of == NOW


def test_without_any_moment_the_clock_is_asked(tmp_path):
    facts = _facts(write_store(tmp_path / "state.db"), clock=lambda: NOW)
    assert (facts.as_of, facts.as_of_from, facts.why_as_of) == (NOW, "clock", "now")


def test_rows_after_as_of_are_findings(tmp_path):
    proof = [change("a", "completed", NOW_S - 100)]
    path = _written(tmp_path / "state.db", a={}, b={"ended_at": NOW_S - 5}, transitions=proof)
    facts = _facts(path)
    assert facts.as_of == NOW - timedelta(seconds=100)
    ahead = facts.findings.filter(pl.col("code") == "time.future")
    assert ahead.select("entity_id", "column").rows() == [("b", "ended_at")]


def test_an_end_after_an_as_of_that_was_asked_for_had_not_come(tmp_path):
    later = {"created_at": NOW_S - 1}
    path = _written(tmp_path / "state.db", a={}, b={"ended_at": NOW_S - 5}, proof=later)
    past = _facts(path, as_of=NOW - timedelta(seconds=100))
    assert past.entities.select("entity_id", "raw_status", "ended_at").rows() == [
        ("a", "completed", NOW - timedelta(seconds=600)),
        ("b", None, None),
    ]
    said = past.findings.filter(pl.col("code") == "time.not_recorded")
    assert ("raw_status", 1) in said.select("column", "n_rows").rows()
    assert "time.future" not in past.findings["code"].to_list()


def test_what_began_after_an_as_of_that_was_asked_for_is_left_out_and_counted(tmp_path):
    asked = NOW_S - 100
    path = _written(
        tmp_path / "state.db",
        before={"created_at": asked - 10},
        at_once={"created_at": asked + 0.5},
        after={"created_at": asked + 10},
        started_after={"created_at": None, "started_at": asked + 10},
        unknown={"created_at": None, "started_at": None},
        transitions=[
            change("before", "running", asked - 5),
            change("before", "completed", asked + 5),
            change("after", "running", asked + 20),
        ],
    )
    now, past = _facts(path), _facts(path, as_of=NOW - timedelta(seconds=100))
    assert now.entities.height == 5
    assert past.entities["entity_id"].sort().to_list() == ["before", "unknown"]
    assert past.entities["raw_status"][0] == "running"
    assert past.transitions["status"].to_list() == ["running"]
    found = past.findings.filter(pl.col("code") == "time.after_as_of")
    left_out = found.sort("table", descending=True)
    assert left_out.select("entity_type", "table", "n_rows", "action").rows() == [
        (None, "transitions", 2, "excluded"),
        ("session", "entities", 3, "excluded"),
    ]
    assert "time.after_as_of" not in now.findings["code"].to_list()
    # The input itself is the same, whenever it is looked at.
    assert past.sources["fingerprint"].to_list() == now.sources["fingerprint"].to_list()
    assert past.sources["n_entities"].to_list() == [2]


def test_an_as_of_before_everything_leaves_no_rows(tmp_path):
    facts = _facts(_written(tmp_path / "state.db", a={}), as_of=NOW - timedelta(days=9999))
    assert (facts.entities.height, facts.sources["n_entities"].to_list()) == (0, [0])
    assert facts.findings["n_rows"].to_list() == [1]


def test_a_live_store_is_read_by_the_clock(tmp_path):
    path, later = _store(tmp_path / "state.db"), NOW + timedelta(days=1)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("UPDATE sessions SET status = 'running'")
        facts = _facts(path, clock=lambda: later)
    assert facts.entities["raw_status"].to_list() == ["running"]
    assert facts.sources["is_live"].to_list() == [True]
    assert (facts.as_of, facts.as_of_from) == (later, "clock")


def test_sources_tell_what_was_read(tmp_path):
    path = _written(tmp_path / "state.db", a={}, transitions=[change("a", "completed", NOW_S)])
    row = _facts(path).sources.row(0, named=True)
    assert row["system"] == "lionagi"
    assert row["format"].startswith("lionagi 0.")
    assert (row["n_entities"], row["n_transitions"], row["n_events"]) == (1, 1, 0)
    assert row["size_bytes"] == path.stat().st_size
    assert row["first_at"] == NOW - timedelta(seconds=1200)
    assert row["last_at"] == NOW


def test_the_fingerprint_follows_the_rows_and_not_the_file(tmp_path):
    one = _store(tmp_path / "1" / "state.db", "a", "b")
    two = tmp_path / "2" / "state.db"
    two.parent.mkdir()
    wrote(Path(shutil.copy(one, two)), "VACUUM")
    other = _store(tmp_path / "3" / "state.db", "a", "c")
    prints = _facts(one, two, other).sources["fingerprint"].to_list()
    assert None not in prints
    assert prints[0] == prints[1] != prints[2]


def test_relative_names_stay_relative_and_a_pattern_is_what_was_typed(tmp_path, monkeypatch):
    """A folder whose name is itself a pattern is no part of one."""
    for name in ("in[1]/a.db", "in[1]/b/state.db", "in1/wrong.db"):
        _store(tmp_path / name)
    shutil.copytree(ROOT / "data" / "samples" / "codex", tmp_path / "in[1]" / "c")
    monkeypatch.chdir(tmp_path / "in[1]")
    names = {"*.db": ["a.db"], "*": ["a.db", "b", "c"], "../in1": ["../in1/wrong.db"]}
    for typed, labels in names.items():
        assert [place.label for place in find_places([typed])[0]] == labels
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SourceNotFoundError, match=r"no file or directory 'x\.db'"):
        _facts("x.db")


def test_places_keep_the_name_that_was_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _store(tmp_path / "state.db")
    places, again = find_places(["state.db", "."])
    assert [place.label for place in places] == ["state.db"]
    assert [place.label for place in again] == ["."]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("agent_orchestrator/projects/webshop/sessions", "."),
        ("agent_orchestrator/projects/webshop/sessions", "app-1.json"),
        ("agent_orchestrator/projects", "webshop/sessions/.."),
        ("claude_code", "."),
        ("claude_code/projects/-repo-shop", "."),
        ("codex/sessions/2026/05/19", "."),
        ("opencode", "events_july_2026.jsonl"),
    ],
)
def test_what_a_short_name_says_is_what_the_whole_one_says(folder, name, monkeypatch):
    """Names of projects lie above a folder of sessions, and a dot has no name at all."""
    path = ROOT / "data" / "samples" / folder
    monkeypatch.chdir(path)
    here, there = _facts(name), _facts(path / name)
    assert here.entities.drop("source").equals(there.entities.drop("source"))
    assert here.sources["source"].to_list() == [name]


@pytest.mark.slow
def test_no_store_is_opened_by_this_process_itself(tmp_path):
    """Closing a store would drop the locks that the same process holds on it."""
    path = write_store(tmp_path / "work.db", sessions=[session("a")])
    code = (
        "import sys\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) "
        "if event == 'open' else None)\n"
        "from stateanalytics.systems.reading import read_facts\n"
        f"facts, stores = read_facts([{str(path)!r}])\n"
        "[store.close() for store in stores]\n"
        f"assert facts.entities.height == 1 and {str(path)!r} not in opened, opened\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_odd_about_a_whole_store_is_a_finding(tmp_path):
    path = _store(tmp_path / "state.db")
    twice = "ALTER TABLE sessions ADD COLUMN twice GENERATED ALWAYS AS (id || id)"
    wrote(path, twice, "CREATE TABLE abcd (x)")
    path.write_bytes(path.read_bytes().replace(b"abcd", b"ab\xffd"))
    facts = _facts(path)
    assert facts.entities.height == 1
    found = facts.findings.filter(pl.col("code").str.starts_with("table."))
    assert found.select("system", "code", "table", "example").rows() == [
        ("lionagi", "table.illegible_name", None, "ab\\xffd"),
        ("lionagi", "table.not_checked", "sessions", None),
    ]


@pytest.mark.slow
def test_two_stars_go_through_no_link_and_have_an_end(tmp_path, monkeypatch):
    for name in ("a", "b/c", ".hidden"):
        _store(tmp_path / name / "state.db", name)
    (tmp_path / "b" / "up").symlink_to("..")
    (tmp_path / "b" / "self").symlink_to(".")
    both = ["a", "b/c"]
    for pattern in "**/state.db **/**/*.db ** **/c/../../a/**/state.db **/[bc]/**/*.db".split():
        expected = {"**/c/../../a/**/state.db": ["a"], "**/[bc]/**/*.db": ["b/c"]}
        found = _facts(str(tmp_path / pattern)).entities["entity_id"].to_list()
        assert found == expected.get(pattern, both), pattern
    monkeypatch.chdir(tmp_path)
    assert _facts("**/state.db").sources["source"].to_list() == ["a/state.db", "b/c/state.db"]
    with pytest.raises(ArgumentError, match=r"too many directories.*\nHint: begin the pattern"):
        matching(str(tmp_path / "**" / "state.db"), max_directories=3)


def test_a_tilde_that_is_nobody_is_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceNotFoundError, match="There is no file or directory '~nosuchuser/x'"):
        _facts("~nosuchuser/x")
    _store(tmp_path / "~x.db")
    assert _facts("~x.db").sources["source"].to_list() == ["~x.db"]
    assert usual_places({"LIONAGI_HOME": "~nosuchuser"}, Path("/me"))[0].name == "state.db"


@pytest.mark.slow
def test_names_of_files_that_are_not_utf8_are_escaped(tmp_path):
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.db"))
    try:
        odd.touch()
    except OSError:
        pytest.skip("this file system only takes UTF-8")
    odd.unlink()
    _store(odd, "a")
    _store(tmp_path / "b.db", "b")
    labels = [f"{tmp_path}/a\\xff.db", f"{tmp_path}/b.db"]
    for name in (tmp_path, str(tmp_path / "*.db"), odd):
        facts = _facts(name)
        assert facts.sources["source"].to_list() == labels[: facts.sources.height]
        assert facts.sources.height == (1 if name == odd else 2)


def test_a_clock_at_the_end_of_the_calendar_is_read():
    last = datetime.max.replace(tzinfo=UTC)
    events = schema.EVENTS.conform(pl.DataFrame({"at": [last]}))
    empty = (schema.ENTITIES.empty(), schema.TRANSITIONS.empty())
    part = Parts("", "", *empty, events, schema.FINDINGS.empty())
    assert future_findings(part, "a", last).is_empty()

"""Damaged trees of Agent Orchestrator: the rest is read, what was not is counted and named."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from stateanalytics.core.facts import Facts
from stateanalytics.errors import ArgumentError, DamagedStoreError
from stateanalytics.systems.agent_orchestrator import logs, reading
from stateanalytics.systems.agent_orchestrator import places as finding
from stateanalytics.systems.agent_orchestrator.records import (
    NoRecordError,
    json_record,
    key_value_record,
)
from stateanalytics.systems.reading import read_facts
from tests.ao_trees import lifecycle, put, record, write_json, write_lines
from tests.examples import a_few, examples


def facts_of(*paths: Path, **arguments: object) -> Facts:
    facts, stores = read_facts(list(paths), shown=False, **arguments)
    for store in stores:
        store.close()
    return facts


def found(facts: Facts, code: str) -> dict:
    return facts.findings.filter(code=code).row(0, named=True)


def audit_line(**keys: object) -> dict:
    state = {"legacyStatus": "working", "sessionState": "working", "sessionReason": "-"}
    base = {"timestamp": "2026-05-04T09:10:00.000Z", "actor": "dev", "source": "report"}
    base |= {"reportState": "working", "accepted": True, "before": state, "after": state}
    return base | keys


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_json(tmp_path, "good-1", record(lifecycle()))
    return tmp_path


BROKEN = [
    pytest.param('{"lifecycle": {"version": 2, "sess', id="cut off"),
    pytest.param("[1, 2]", id="a list"),
    pytest.param('"text"', id="a text"),
    pytest.param('{"createdAt": NaN}', id="NaN"),
    pytest.param("[" * 100_000, id="nested too deeply"),
    pytest.param(b"\x00\x01\x02" * 50, id="bytes"),
    pytest.param("nothing here", id="no record at all"),
]


@pytest.mark.parametrize("content", a_few(BROKEN, 2))
def test_a_corrupt_record_is_named_and_the_rest_is_read(tree: Path, content: str | bytes) -> None:
    write_json(tree, "bad-1", content)
    facts = facts_of(tree)
    assert facts.entities["entity_id"].to_list() == ["good-1"]
    told = found(facts, "record.unreadable")
    assert (told["entity_id"], told["table"]) == ("bad-1", "projects/web/sessions/bad-1.json")
    bad = facts.detail("ao_sessions").filter(session_id="bad-1").row(0, named=True)
    assert (bad["is_readable"], bad["is_current"], bad["session_state"]) == (False, False, None)
    assert bad["problem"] == told["message"]


def test_a_caller_may_ask_to_stop_at_the_first(tree: Path) -> None:
    write_json(tree, "bad-1", "{")
    with pytest.raises(DamagedStoreError, match=r"bad-1\.json.*no JSON(?s:.*)Hint: leave on_error"):
        facts_of(tree, on_error="raise")
    with pytest.raises(ArgumentError, match=r"on_error must be .*'raise'"):
        facts_of(tree, on_error="ignore")


def test_a_time_that_is_no_iso_date_is_null_and_a_counted_finding(tree: Path) -> None:
    life = lifecycle(startedAt="May 4, 2026 9:00", terminatedAt="2026-05-04 10:00:00+02:00")
    write_json(tree, "hand-1", record(life, createdAt="4 May 2026"))
    write_json(tree, "hand-2", record(lifecycle(), createdAt="1777885200000"))
    facts = facts_of(tree)
    told = facts.findings.filter(code="time.unreadable").select("column", "n_rows", "example")
    assert sorted(told.rows()) == [
        ("createdAt", 1, "4 May 2026"),
        ("lifecycle.session.startedAt", 1, "May 4, 2026 9:00"),
    ]
    sessions = facts.detail("ao_sessions").sort("session_id")
    assert sessions["created_at"].to_list() == [
        datetime(2026, 5, 4, 9, tzinfo=UTC),
        None,
        datetime(2026, 5, 4, 9, tzinfo=UTC),
    ]
    assert sessions["terminated_at"].to_list()[1] == datetime(2026, 5, 4, 8, tzinfo=UTC)


PROJECT = Path("projects") / "web"
OBSERVED = Path("0123456789ab-observability") / "processes"
LOSSES = [
    pytest.param(PROJECT / "sessions" / "bad-1.json", "{", "record.unreadable", id="a record"),
    pytest.param(
        PROJECT / "sessions" / ".agent-report-audit" / "good-1.ndjson",
        "oops\n",
        "line.unreadable",
        id="the audit trail",
    ),
    pytest.param(
        PROJECT / "worktrees" / "good-1" / ".ao" / "activity.jsonl",
        '{"ts":\n{"state": "active"}\n',
        "line.unreadable",
        id="the activity log",
    ),
    pytest.param(OBSERVED / "poller-1.ndjson", "[]\n", "line.unreadable", id="observability"),
    pytest.param(OBSERVED / "poller-1.json", '{"traces"', "line.unreadable", id="a snapshot"),
    pytest.param(Path("recovery.log"), "\x00\n", "line.unreadable", id="the recovery log"),
    pytest.param(
        PROJECT / "feedback-reports" / "report_2026-05-04T09-00-00-000Z_0123abcd.kv",
        "no key\n",
        "record.unreadable",
        id="feedback",
    ),
    pytest.param(Path("activity-events.db"), b"SQLite format 3\0" + b"\xff" * 999,
                 "file.unreadable", id="a database"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "content", "code"), a_few(LOSSES, 2))
def test_each_kind_of_loss_is_named_or_ends_the_load(
    tree: Path, path: Path, content: str | bytes, code: str
) -> None:
    put(tree / path, content)
    facts = facts_of(tree)
    assert facts.entities["entity_id"].to_list() == ["good-1"]
    assert found(facts, code)["table"] == str(path)
    with pytest.raises(DamagedStoreError, match=rf"(?s){path.name}.*Hint: leave on_error"):
        facts_of(tree, on_error="raise")


def test_a_log_that_vanishes_during_the_scan_is_named(tree: Path, monkeypatch) -> None:
    log = tree / PROJECT / "worktrees" / "good-1" / ".ao" / "activity.jsonl"
    write_lines(log, {"ts": "2026-05-04T09:50:00.000Z", "state": "active", "source": "hook"})
    files = list(finding.files_of(tree))
    monkeypatch.setattr(reading, "files_of", lambda _: files)
    log.unlink()
    facts = facts_of(tree)
    assert facts.entities["entity_id"].to_list() == ["good-1"]
    assert found(facts, "file.vanished")["table"] == str(log.relative_to(tree))
    with pytest.raises(DamagedStoreError, match="gone when it was to be opened"):
        facts_of(tree, on_error="raise")


def test_a_healthy_tree_does_not_stop_a_strict_caller(tree: Path) -> None:
    write_json(tree, "reserved-1", "")
    assert facts_of(tree, on_error="raise").entities.height == 1


def test_a_half_written_last_line_is_no_fault_of_the_log(tree: Path) -> None:
    log = tree / "projects" / "web" / "sessions" / ".agent-report-audit" / "good-1.ndjson"
    whole = json.dumps(audit_line())
    put(log, f"{whole}\n{whole[:40]}")
    facts = facts_of(tree, on_error="raise")
    assert facts.events.height == 1
    assert found(facts, "line.unfinished")["severity"] == "info"


def test_bad_lines_are_counted_and_one_is_shown(tree: Path) -> None:
    log = tree / "projects" / "web" / "sessions" / ".agent-report-audit" / "good-1.ndjson"
    write_lines(log, "oops", audit_line(), "[]", "", "3", audit_line())
    facts = facts_of(tree)
    assert facts.events.height == 2
    told = found(facts, "line.unreadable")
    assert (told["n_rows"], told["example"]) == (3, "oops")


def test_a_line_of_a_megabyte_is_a_line(tree: Path) -> None:
    log = tree / "projects" / "web" / "sessions" / ".agent-report-audit" / "good-1.ndjson"
    write_lines(log, audit_line(note="x" * 1_000_000), audit_line())
    facts = facts_of(tree)
    assert facts.events["size_bytes"].to_list()[0] > 1_000_000
    assert facts.events["detail"].str.len_chars().max() == 500


def test_a_file_that_vanishes_during_the_scan_is_named(tree: Path, monkeypatch) -> None:
    path = write_json(tree, "gone-1", record(lifecycle()))
    files = list(finding.files_of(tree))
    monkeypatch.setattr(reading, "files_of", lambda _: files)
    path.unlink()
    facts = facts_of(tree)
    assert facts.entities["entity_id"].to_list() == ["good-1"]
    assert found(facts, "file.vanished")["entity_id"] == "gone-1"


def test_a_pipe_never_blocks_a_load(tree: Path) -> None:
    os.mkfifo(tree / "projects" / "web" / "sessions" / "pipe-1.json")
    assert facts_of(tree).entities.height == 1


def test_loops_of_links_are_no_directories(tree: Path) -> None:
    (tree / "projects" / "loop").symlink_to(tree / "projects" / "loop")
    (tree / "projects" / "web" / "sessions" / "loop-1.json").symlink_to("loop-1.json")
    assert facts_of(tree).entities.height == 1


@pytest.mark.parametrize(
    ("octets", "name"),
    [
        pytest.param("\ufeff".encode(), "Issue é", id="byte order mark"),
        pytest.param(b"", "Issue é", id="plain"),
    ],
)
def test_a_byte_order_mark_is_no_part_of_a_record(tree: Path, octets: bytes, name: str) -> None:
    text = json.dumps(record(lifecycle(), displayName=name), ensure_ascii=False)
    write_json(tree, "bom-1", octets + text.encode())
    facts = facts_of(tree)
    assert facts.entities.filter(entity_id="bom-1")["name"].item() == name


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_converted_and_said(tree: Path, encoding: str) -> None:
    text = json.dumps(record(lifecycle("idle"), displayName="Ä"), ensure_ascii=False)
    write_json(tree, "odd-1", text.encode(encoding))
    facts = facts_of(tree)
    assert facts.entities.filter(entity_id="odd-1")["raw_status"].item() == "idle"
    assert found(facts, "file.not_utf8")["entity_id"] == "odd-1"


def test_half_a_surrogate_does_not_stop_a_load(tree: Path) -> None:
    write_json(tree, "odd-1", json.dumps(record(lifecycle(), displayName="a\ud83d")))
    facts = facts_of(tree)
    assert facts.entities.filter(entity_id="odd-1")["name"].item() == "a?"
    assert found(facts, "file.half_surrogate")["n_rows"] == 1


def test_half_a_surrogate_in_a_key_value_record_costs_no_other_record(tree: Path) -> None:
    payload = r'{"version":2,"session":{"state":"stuck\ud800","reason":"x"},"pr":{"url":"\udfff"}}'
    handle = r'{"id":"\ud83d","runtimeName":"\ud83d\ude00"}'
    lines = ("status=working", f"lifecycle={payload}", f"runtimeHandle={handle}")
    put(tree / "projects" / "good" / "sessions" / "odd-1", "\n".join(lines))
    facts = facts_of(tree)
    assert set(facts.entities["entity_id"]) == {"good-1", "odd-1"}
    told = found(facts, "file.half_surrogate")
    assert (told["entity_id"], told["n_rows"], told["severity"]) == ("odd-1", 3, "info")
    assert facts.details["ao_sessions"].filter(entity_id="odd-1")["runtime_name"].item() == "😀"


def test_names_of_files_that_are_not_utf8_are_findings_and_the_rest_is_read(tree: Path) -> None:
    root = os.fsencode(next((tree / "projects").iterdir()))
    audit, worktree = root + b"/sessions/.agent-report-audit", root + b"/worktrees/\xff/.ao"
    other = root + b"/../b\xff/sessions"
    for folder in (audit, worktree, other):
        Path(os.fsdecode(folder)).mkdir(parents=True)
    put(Path(os.fsdecode(audit + b"/w\xff.ndjson")), json.dumps(audit_line()) + "\nno line\n")
    put(Path(os.fsdecode(worktree + b"/activity.jsonl")), '{"ts": "2026-05-04", "state": "idle"}')
    put(Path(os.fsdecode(other + b"/odd-1.json")), json.dumps(record(lifecycle())))
    facts = facts_of(tree)
    assert set(facts.entities["entity_id"]) == {"good-1", "odd-1"}
    assert set(facts.events["entity_id"]) == {r"w\xff", r"\xff"}
    named = facts.findings.filter(code="file.name_not_utf8")
    assert [path.rpartition("/")[2] for path in named["table"]] == [
        "odd-1.json",
        r"w\xff.ndjson",
        "activity.jsonl",
    ]
    assert found(facts, "line.unreadable")["table"].endswith(r"w\xff.ndjson")


ODD_VALUES = (None, 3, 2.5, True, [], {}, ["x"], {"a": 1}, "", "bogus", "working", 10**30)


@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.dictionaries(
        st.sampled_from(
            ("status", "createdAt", "pr", "prs", "lifecycle", "runtimeHandle", "project", "role",
             "agentReportedState", "agentReportedAt", "prEnrichment", "detectingAttempts",
             "lifecycleEvidence", "displayName", "restoredAt", "statePayload", "stateVersion")
        ),
        st.sampled_from(ODD_VALUES),
    ),
    path=st.sampled_from((("session", "state"), ("session", "reason"), ("pr", "number"),
                          ("runtime", "handle"), ("session", "lastTransitionAt"), ("pr",))),
    value=st.sampled_from(ODD_VALUES),
)  # fmt: skip
def test_wrong_types_anywhere_are_read_around(
    tmp_path_factory, keys: dict, path: tuple[str, ...], value: object
) -> None:
    root = tmp_path_factory.mktemp("odd")
    life = lifecycle()
    inner = life
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    write_json(root, "odd-1", record(life) | keys)
    write_json(root, "good-1", record(lifecycle()))
    facts = facts_of(root)
    assert sorted(facts.entities["entity_id"]) == ["good-1", "odd-1"]
    assert facts.entities.filter(entity_id="good-1")["raw_status"].item() == "working"


def test_lines_too_long_to_take_apart_are_counted(tree: Path, monkeypatch) -> None:
    monkeypatch.setattr(logs, "MAX_LINE_BYTES", 300)
    seen = {"ts": "2026-05-04T09:00:00.000Z", "state": "active", "source": "hook"}
    log = tree / "projects/web/worktrees/good-1/.ao/activity.jsonl"
    write_lines(log, {**seen, "trigger": "x" * 300}, seen, "[" * 400)
    facts = facts_of(tree)
    told = found(facts, "line.too_long")
    assert (told["severity"], told["n_rows"]) == ("warning", 2)
    assert facts.events.filter(kind="activity.active").height == 1


@examples(40)
@given(st.text(max_size=200))
def test_any_text_is_a_record_or_none(text: str) -> None:
    for parse in (json_record, key_value_record):
        try:
            parsed = parse(text)
        except NoRecordError:
            continue
        assert all(isinstance(one, str) for pair in parsed.items() for one in pair)


def test_an_unknown_word_is_kept_and_mapped_with_little_confidence(tree: Path) -> None:
    write_json(tree, "new-1", record(lifecycle("terminated", "eaten_by_bear")))
    facts = facts_of(tree)
    row = facts.detail("ao_sessions").filter(session_id="new-1").row(0, named=True)
    assert (row["session_reason"], row["lifecycle"], row["confidence"]) == (
        "eaten_by_bear",
        "aborted",
        0.4,
    )
    assert "eaten_by_bear" in found(facts, "record.would_reject")["message"]


def test_clocks_that_disagree_are_said(tree: Path) -> None:
    early = lifecycle("terminated", "manually_killed", terminatedAt="2026-05-04T08:00:00.000Z")
    write_json(tree, "skew-1", record(early))
    write_json(tree, "skew-2", record(lifecycle(), agentReportedState="started",
                                      agentReportedAt="2026-05-09T09:00:00Z"))  # fmt: skip
    facts = facts_of(tree, as_of=datetime(2026, 5, 10, tzinfo=UTC))
    told = found(facts, "time.before_creation")
    assert (told["entity_id"], told["column"]) == ("skew-1", "terminated_at")
    assert facts.detail("ao_sessions").filter(session_id="skew-2")["report_at"].item() is not None


def test_moments_that_no_clock_can_show_are_none(tree: Path) -> None:
    import sqlite3

    store = sqlite3.connect(tree / "activity-events.db")
    store.execute(
        "CREATE TABLE activity_events (id INTEGER, ts_epoch INTEGER, ts TEXT, project_id TEXT,"
        " session_id TEXT, source TEXT, type TEXT, log_level TEXT, summary TEXT, data TEXT)"
    )
    store.executemany(
        "INSERT INTO activity_events VALUES (?, ?, ?, 'web', 'good-1', 'x', 'session.killed',"
        " 'info', 'x', ?)",
        [(1, 10**18, None, '{"reason":"x"}'), (2, "soon", "+123456-01-01T00:00:00Z", "{")],
    )
    store.commit()
    store.close()
    write_json(tree, "far-1", record(lifecycle(), createdAt="+275760-09-13T00:00:00.000Z"))
    facts = facts_of(tree)
    assert facts.events["at"].to_list() == [None, None]
    assert facts.entities.filter(entity_id="far-1")["created_at"].to_list() == [None]
    assert found(facts, "cell.wrong_type")["column"] == "ts_epoch"
    assert found(facts, "cell.not_json")["column"] == "data"


def test_a_damaged_database_costs_its_events_only(tree: Path) -> None:
    put(tree / "activity-events.db", b"SQLite format 3\x00" + b"\xff" * 2000)
    facts = facts_of(tree)
    assert facts.entities.height == 1
    assert found(facts, "file.unreadable")["table"] == "activity-events.db"
    with pytest.raises(DamagedStoreError):
        facts_of(tree, on_error="raise")


def test_many_faults_of_one_kind_are_counted(tree: Path) -> None:
    for number in range(1005):
        write_json(tree, f"bad-{number}", "{")
    told = facts_of(tree).findings.filter(code="record.unreadable")
    assert told.height == 1001
    assert told["n_rows"].sum() == 1005
    assert told.filter(pl.col("entity_id").is_null())["n_rows"].item() == 5

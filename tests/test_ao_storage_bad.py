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
from stateanalytics.systems.agent_orchestrator.sessions import (
    NoRecordError,
    json_record,
    key_value_record,
    read_enrichment,
)
from tests.ao_trees import (
    Scenarios,
    facts_of,
    lifecycle,
    put,
    record,
    write_events,
    write_json,
    write_lines,
)
from tests.examples import a_few, examples

damage, oddities = Scenarios(), Scenarios()


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """One tree with all the damage of this page that its own session or file tells apart."""
    root = tmp_path_factory.mktemp("damaged")
    write_json(root, "good-1", record(lifecycle()))
    return facts_of(damage.written(root), as_of=datetime(2026, 5, 10, tzinfo=UTC))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """One tree with all that is odd and no damage, as a caller reads it who stops at any."""
    root = tmp_path_factory.mktemp("healthy")
    write_json(root, "good-1", record(lifecycle()))
    return facts_of(oddities.written(root), on_error="raise")


def found(facts: Facts, code: str, **columns: str) -> dict:
    return facts.findings.filter(code=code, **columns).row(0, named=True)


def record_of(facts: Facts, name: str) -> dict:
    return facts.detail("ao_sessions").filter(session_id=name).row(0, named=True)


def audit_line(**keys: object) -> dict:
    state = {"legacyStatus": "working", "sessionState": "working", "sessionReason": "-"}
    base = {"timestamp": "2026-05-04T09:10:00.000Z", "actor": "dev", "source": "report"}
    base |= {"reportState": "working", "accepted": True, "before": state, "after": state}
    return base | keys


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_json(tmp_path, "good-1", record(lifecycle()))
    return tmp_path


def test_what_can_be_read_of_a_damaged_tree_is_read(damaged: Facts) -> None:
    assert sorted(damaged.entities["entity_id"]) == [
        "bom-1", "bom-2", "good-1", "half-1", "half-2", "hand-1", "hand-2", "latin-1", "lines-1",
        "long-1", "name-1", "new-1", "skew-1", "skew-2", "utf-16",
    ]  # fmt: skip


BROKEN = {
    "cut off": '{"lifecycle": {"version": 2, "sess',
    "a list": "[1, 2]",
    "a text": '"text"',
    "NaN": '{"createdAt": NaN}',
    "nested too deeply": "[" * 100_000,
    "bytes": b"\x00\x01\x02" * 50,
    "no record at all": "nothing here",
}


@damage
def _(root: Path) -> None:
    for kind, content in BROKEN.items():
        write_json(root, kind.replace(" ", "-"), content)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_corrupt_record_is_named(damaged: Facts, kind: str) -> None:
    name = kind.replace(" ", "-")
    told = found(damaged, "record.unreadable", entity_id=name)
    assert told["table"] == f"projects/web/sessions/{name}.json"
    bad = record_of(damaged, name)
    assert (bad["is_readable"], bad["is_current"], bad["session_state"]) == (False, False, None)
    assert bad["problem"] == told["message"]


def test_a_caller_may_ask_to_stop_at_the_first(tree: Path) -> None:
    write_json(tree, "bad-1", "{")
    with pytest.raises(DamagedStoreError, match=r"bad-1\.json.*no JSON(?s:.*)Hint: omit on_error"):
        facts_of(tree, on_error="raise")
    with pytest.raises(ArgumentError, match=r"on_error must be .*'raise'"):
        facts_of(tree, on_error="ignore")


@damage
def _(root: Path) -> None:
    life = lifecycle(startedAt="May 4, 2026 9:00", terminatedAt="2026-05-04 10:00:00+02:00")
    write_json(root, "hand-1", record(life, createdAt="4 May 2026"))
    write_json(root, "hand-2", record(lifecycle(), createdAt="1777885200000"))


def test_a_time_that_is_no_iso_date_is_null_and_a_counted_finding(damaged: Facts) -> None:
    told = damaged.findings.filter(code="time.unreadable").select("column", "n_rows", "example")
    assert sorted(told.rows()) == [
        ("createdAt", 1, "4 May 2026"),
        ("lifecycle.session.startedAt", 1, "May 4, 2026 9:00"),
    ]
    created = [record_of(damaged, name)["created_at"] for name in ("good-1", "hand-1", "hand-2")]
    nine = datetime(2026, 5, 4, 9, tzinfo=UTC)
    assert created == [nine, None, nine]
    assert record_of(damaged, "hand-1")["terminated_at"] == datetime(2026, 5, 4, 8, tzinfo=UTC)


PROJECT = Path("projects") / "web"
AUDITS = PROJECT / "sessions" / ".agent-report-audit"
ACTIVITY = PROJECT / "worktrees" / "good-1" / ".ao" / "activity.jsonl"
OBSERVED = Path("0123456789ab-observability") / "processes"
LOSSES = [
    pytest.param(PROJECT / "sessions" / "lost-1.json", "{", "record.unreadable", id="a record"),
    pytest.param(AUDITS / "good-1.ndjson", "oops\n", "line.unreadable", id="the audit trail"),
    pytest.param(ACTIVITY, '{"ts":\n{"state": "active"}\n', "line.unreadable", id="activity"),
    pytest.param(OBSERVED / "poller-1.ndjson", "[]\n", "line.unreadable", id="observability"),
    pytest.param(OBSERVED / "poller-1.json", '{"traces"', "line.unreadable", id="a snapshot"),
    pytest.param(Path("recovery.log"), "\x00\n", "line.unreadable", id="the recovery log"),
    pytest.param(PROJECT / "feedback-reports" / "report_2026-05-04T09-00-00-000Z_0123abcd.kv",
                 "no key\n", "record.unreadable", id="feedback"),
    pytest.param(Path("activity-events.db"), b"SQLite format 3\0" + b"\xff" * 999,
                 "file.unreadable", id="a database"),
]  # fmt: skip


@damage
def _(root: Path) -> None:
    for loss in LOSSES:
        path, content, _ = loss.values
        put(root / path, content)


@pytest.mark.parametrize(("path", "content", "code"), LOSSES)
def test_each_kind_of_loss_is_named(damaged: Facts, path: Path, content, code: str) -> None:
    assert found(damaged, code, table=str(path))["n_rows"] == 1


@pytest.mark.parametrize(("path", "content", "code"), a_few(LOSSES, 2))
def test_each_kind_of_loss_ends_a_strict_load(tree: Path, path: Path, content, code) -> None:
    put(tree / path, content)
    with pytest.raises(DamagedStoreError, match=rf"(?s){path.name}.*Hint: omit on_error"):
        facts_of(tree, on_error="raise")


def test_files_that_vanish_during_the_scan_are_named(tree: Path, monkeypatch) -> None:
    write_lines(
        tree / ACTIVITY, {"ts": "2026-05-04T09:50:00.000Z", "state": "active", "source": "hook"}
    )
    gone = write_json(tree, "gone-1", record(lifecycle()))
    files = list(finding.files_of(tree))
    monkeypatch.setattr(reading, "files_of", lambda _: files)
    (tree / ACTIVITY).unlink()
    gone.unlink()
    facts = facts_of(tree)
    assert facts.entities["entity_id"].to_list() == ["good-1"]
    assert found(facts, "file.vanished", table=str(ACTIVITY))["entity_id"] is None
    assert found(facts, "file.vanished", entity_id="gone-1")
    with pytest.raises(DamagedStoreError, match="vanished before it was opened"):
        facts_of(tree, on_error="raise")


oddities(lambda root: write_json(root, "reserved-1", ""))


def test_a_healthy_tree_does_not_stop_a_strict_caller(healthy: Facts) -> None:
    assert healthy.entities["entity_id"].to_list() == ["good-1"]


@oddities
def _(root: Path) -> None:
    whole = json.dumps(audit_line())
    put(root / AUDITS / "good-1.ndjson", f"{whole}\n{whole[:40]}")


def test_a_half_written_last_line_is_no_fault_of_the_log(healthy: Facts) -> None:
    assert healthy.events.height == 1
    assert found(healthy, "line.unfinished")["severity"] == "info"


@damage
def _(root: Path) -> None:
    write_json(root, "lines-1", record(lifecycle()))
    lines = ("oops", audit_line(), "[]", "", "3", audit_line())
    write_lines(root / AUDITS / "lines-1.ndjson", *lines)


def test_bad_lines_are_counted_and_one_is_shown(damaged: Facts) -> None:
    assert damaged.events.filter(entity_id="lines-1").height == 2
    told = found(damaged, "line.unreadable", table=str(AUDITS / "lines-1.ndjson"))
    assert (told["n_rows"], told["example"]) == (3, "oops")


@damage
def _(root: Path) -> None:
    write_json(root, "long-1", record(lifecycle()))
    lines = (audit_line(note="x" * 1_000_000), audit_line())
    write_lines(root / AUDITS / "long-1.ndjson", *lines)


def test_a_line_of_a_megabyte_is_a_line(damaged: Facts) -> None:
    events = damaged.events.filter(entity_id="long-1")
    assert events["size_bytes"].to_list()[0] > 1_000_000
    assert events["detail"].str.len_chars().max() == 500


@oddities
def _(root: Path) -> None:
    os.mkfifo(root / PROJECT / "sessions" / "pipe-1.json")
    (root / "projects" / "loop").symlink_to(root / "projects" / "loop")
    (root / PROJECT / "sessions" / "loop-1.json").symlink_to("loop-1.json")


def test_pipes_never_block_a_load_and_loops_of_links_are_no_directories(healthy: Facts) -> None:
    assert healthy.entities.height == 1


def test_nothing_is_shown_of_a_file_outside_the_input(tree: Path, tmp_path_factory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "passwd"
    for path in (outside, tree / PROJECT / "sessions" / "own.json"):
        path.write_text("root:x:0:0\n")
    (tree / PROJECT / "sessions" / "pw.json").symlink_to(outside)
    odd = facts_of(tree).findings.filter(code="record.unreadable")
    shown = dict(odd.select("table", "example").iter_rows())
    assert {Path(path).name: example for path, example in shown.items()} == {
        "own.json": "root:x:0:0\\n",
        "pw.json": None,
    }


@damage
def _(root: Path) -> None:
    text = json.dumps(record(lifecycle(), displayName="Issue é"), ensure_ascii=False)
    for name, octets in (("bom-1", "\ufeff".encode()), ("bom-2", b"")):
        write_json(root, name, octets + text.encode())


def test_a_byte_order_mark_is_no_part_of_a_record(damaged: Facts) -> None:
    marked = damaged.entities.filter(pl.col("entity_id").str.starts_with("bom-"))
    assert marked["name"].to_list() == ["Issue é"] * 2


ENCODINGS = ("latin-1", "utf-16")


@damage
def _(root: Path) -> None:
    text = json.dumps(record(lifecycle("idle"), displayName="Ä"), ensure_ascii=False)
    for encoding in ENCODINGS:
        write_json(root, encoding, text.encode(encoding))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_another_encoding_is_converted_and_said(damaged: Facts, encoding: str) -> None:
    assert damaged.entities.filter(entity_id=encoding)["raw_status"].item() == "idle"
    assert found(damaged, "file.not_utf8", entity_id=encoding)["n_rows"] == 1


@damage
def _(root: Path) -> None:
    write_json(root, "half-1", json.dumps(record(lifecycle(), displayName="a\ud83d")))


def test_half_a_surrogate_does_not_stop_a_load(damaged: Facts) -> None:
    assert damaged.entities.filter(entity_id="half-1")["name"].item() == "a?"
    assert found(damaged, "file.half_surrogate", entity_id="half-1")["n_rows"] == 1


@damage
def _(root: Path) -> None:
    payload = r'{"version":2,"session":{"state":"stuck\ud800","reason":"x"},"pr":{"url":"\udfff"}}'
    handle = r'{"id":"\ud83d","runtimeName":"\ud83d\ude00"}'
    lines = ("status=working", f"lifecycle={payload}", f"runtimeHandle={handle}")
    put(root / "projects" / "good" / "sessions" / "half-2", "\n".join(lines))


def test_half_a_surrogate_in_a_key_value_record_costs_no_other_record(damaged: Facts) -> None:
    told = found(damaged, "file.half_surrogate", entity_id="half-2")
    assert (told["n_rows"], told["severity"]) == (3, "info")
    assert record_of(damaged, "half-2")["runtime_name"] == "😀"


@damage
def _(root: Path) -> None:
    project = os.fsencode(root / PROJECT)
    audit, worktree = project + b"/sessions/.agent-report-audit", project + b"/worktrees/\xff/.ao"
    other = project + b"/../b\xff/sessions"
    put(Path(os.fsdecode(audit + b"/w\xff.ndjson")), json.dumps(audit_line()) + "\nno line\n")
    put(Path(os.fsdecode(worktree + b"/activity.jsonl")), '{"ts": "2026-05-04", "state": "idle"}')
    put(Path(os.fsdecode(other + b"/name-1.json")), json.dumps(record(lifecycle())))


def test_names_of_files_that_are_not_utf8_are_findings_and_the_rest_is_read(damaged: Facts) -> None:
    events = damaged.events.group_by("entity_id").len()
    odd = dict(events.filter(pl.col("entity_id").str.contains(r"\\")).rows())
    assert odd == {r"w\xff": 1, r"\xff": 1}
    named = damaged.findings.filter(code="file.name_not_utf8")["table"]
    files = [path.rpartition("/")[2] for path in named]
    assert files == ["name-1.json", r"w\xff.ndjson", "activity.jsonl"]
    assert found(damaged, "line.unreadable", table=str(AUDITS / r"w\xff.ndjson"))["n_rows"] == 1


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
    write_lines(tree / ACTIVITY, {**seen, "trigger": "x" * 300}, seen, "[" * 400)
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


SCALARS = st.none() | st.booleans() | st.integers() | st.integers(2**62) | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


def flat_by_the_standard_library(text: str) -> dict[str, str] | None:
    """What Agent Orchestrator keeps of a JSON object, value by value; None: it is none."""

    def refuse(word: str) -> float:
        raise ValueError(word)

    try:
        value = json.loads(text, parse_constant=refuse)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    words = {"prAutoDetect": {True: "on", False: "off"}}
    return {
        key: item
        if isinstance(item, str)
        else words.get(key, {True: "true", False: "false"})[item]
        if isinstance(item, bool)
        else json.dumps(item)
        for key, item in value.items()
        if item is not None
    }


def flat(text: str) -> dict[str, str | None] | None:
    try:
        return json_record(text)
    except NoRecordError:
        return None


def same_value(text: str | None, other: str | None) -> bool:
    """Are two texts the same, or JSON of the same value; numbers are floats, as in JavaScript."""
    if text == other or text is None or other is None:
        return text == other
    return json.loads(text, parse_int=float) == json.loads(other, parse_int=float)


def assert_read_as_by_the_standard_library(text: str) -> None:
    read, wanted = flat(text), flat_by_the_standard_library(text)
    assert (read or {}).keys() == (wanted or {}).keys()
    assert (read is None) == (wanted is None)
    assert all(same_value(read[key], wanted[key]) for key in read or ())


@pytest.mark.slow
@examples(200)
@given(st.dictionaries(st.text() | st.just("prAutoDetect"), VALUES), st.booleans())
def test_a_record_is_what_the_standard_library_reads(value: dict, is_ascii: bool) -> None:
    assert_read_as_by_the_standard_library(json.dumps(value, ensure_ascii=is_ascii, indent=2))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"a":1,"b":{"c":1,"d":2,"c":3},"a":{"e":-0}}', id="a key twice"),
        pytest.param('{"a":{"n":123456789012345678901234}}', id="more than 64 bits"),
        pytest.param('{"a":[18446744073709551616,18446744073709551615]}', id="the edge of them"),
        pytest.param('{"a":-9223372036854775809}', id="below them"),
        pytest.param('{"a":{"b":[1,{"c":[-2.50]}]},"d":1e-5}', id="floats in lists"),
        pytest.param('{"a":{"b":-0.0,"c":1E5}}', id="odd floats"),
        pytest.param('{"a":NaN}', id="NaN"),
        pytest.param('{"a":"\\ud83d\\ude00","b":{"c":"\\u00e9\\/\x7f"}}', id="escapes"),
        pytest.param('{"a":"\t"}', id="a control character"),
        pytest.param('{"a":{"b":' * 120 + "1" + "}}" * 120, id="deep"),
        pytest.param("[{}]", id="a list"),
        pytest.param('"{}"', id="a text"),
        pytest.param('{"a":1} x', id="more behind it"),
        pytest.param('\ufeff{"a":1}', id="a byte order mark"),
    ],
)
def test_an_unusual_record_is_what_the_standard_library_reads(text: str) -> None:
    assert_read_as_by_the_standard_library(text)


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ('{"a":{"b":1e400}}', None),
        ('{"a":"\\ud800"}', None),
        pytest.param('{"a":' * 2000 + "1" + "}" * 2000, None, id="read"),
        pytest.param('{"a":' * 400 + "1" + "}" * 400, {"a": "nested too deeply"}, id="kept"),
    ],
)
def test_what_json_can_write_and_nothing_can_use_is_refused(text: str, record) -> None:
    assert flat(text) == record


ENRICHED = st.sampled_from(("title", "additions", "mergeable", "enrichedAt", "other"))


@examples(100)
@given(
    st.lists(st.lists(st.tuples(ENRICHED, VALUES), max_size=4), max_size=4),
    st.sampled_from(((",", ":"), (", ", ": "))),
)
def test_details_of_pull_requests_are_what_the_standard_library_reads(
    objects: list[list[tuple[str, object]]], separators: tuple[str, str]
) -> None:
    """Keys may be there twice, nested, and of any type."""
    comma, colon = separators
    pairs = [
        [f'"{key}"{colon}{json.dumps(value, separators=separators)}' for key, value in written]
        for written in objects
    ]
    texts = [f"{{{comma.join(each)}}}" for each in pairs]
    column = pl.Series("text", [*texts, None, "{", "[1]", '"title"'], dtype=pl.String)
    read = read_enrichment(column)
    for text, row in zip(column, read.to_dicts(), strict=True):
        wanted = flat_by_the_standard_library(text or "") or {}
        assert all(same_value(value, wanted.get(key)) for key, value in row.items())


damage(lambda root: write_json(root, "new-1", record(lifecycle("terminated", "eaten_by_bear"))))


def test_an_unknown_word_is_kept_and_mapped_with_little_confidence(damaged: Facts) -> None:
    row = record_of(damaged, "new-1")
    meant = [row[name] for name in ("session_reason", "lifecycle", "confidence")]
    assert meant == ["eaten_by_bear", "aborted", 0.4]
    told = found(damaged, "record.would_reject", entity_id="new-1")
    assert "eaten_by_bear" in told["message"]


@damage
def _(root: Path) -> None:
    early = lifecycle("terminated", "manually_killed", terminatedAt="2026-05-04T08:00:00.000Z")
    write_json(root, "skew-1", record(early))
    write_json(root, "skew-2", record(lifecycle(), agentReportedState="started",
                                      agentReportedAt="2026-05-09T09:00:00Z"))  # fmt: skip


def test_clocks_that_disagree_are_said(damaged: Facts) -> None:
    told = damaged.findings.filter(code="time.before_creation")
    assert told.select("entity_id", "column").rows() == [("skew-1", "terminated_at")]
    assert record_of(damaged, "skew-2")["report_at"] is not None


def test_moments_that_no_clock_can_show_are_none(tree: Path) -> None:
    write_events(
        tree / "activity-events.db",
        (10**18, None, "good-1", "session.killed", '{"reason":"x"}'),
        ("soon", "+123456-01-01T00:00:00Z", "good-1", "session.killed", "{"),
    )
    write_json(tree, "far-1", record(lifecycle(), createdAt="+275760-09-13T00:00:00.000Z"))
    facts = facts_of(tree)
    assert facts.events["at"].to_list() == [None, None]
    assert facts.entities.filter(entity_id="far-1")["created_at"].to_list() == [None]
    assert found(facts, "cell.wrong_type")["column"] == "ts_epoch"
    assert found(facts, "cell.not_json")["column"] == "data"


def test_many_faults_of_one_kind_are_counted(tree: Path) -> None:
    for number in range(1005):
        write_json(tree, f"bad-{number}", "{")
    told = facts_of(tree).findings.filter(code="record.unreadable")
    assert told.height == 1001
    assert told["n_rows"].sum() == 1005
    assert told.filter(pl.col("entity_id").is_null())["n_rows"].item() == 5

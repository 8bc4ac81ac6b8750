"""What opencode left behind is read: every era and form, bad input, and never a secret."""

import errno
import gzip
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.errors import NotAStoreError
from stateanalytics.io import json_lines
from stateanalytics.systems.opencode import reading
from stateanalytics.systems.opencode.places import find
from stateanalytics.systems.opencode.reading import TABLES
from stateanalytics.systems.reading import read_facts
from tests.examples import a_few
from tests.fuzz.seeds import OPENCODE
from tests.lionagi_stores import wrote
from tests.opencode_logs import event, facts_of, in_sessions, read_once, step, write
from tests.test_opencode_fold import CRASH

SECRET_TABLES = ("account", "account_state", "control_account", "credential", "session_share")
SHAPES = (schema.ENTITIES, schema.TRANSITIONS, schema.EVENTS, schema.FINDINGS)


@pytest.fixture(scope="module")
def samples(shared: Path) -> Path:
    return shared / "samples" / "opencode"


def outcomes(facts: Facts, *eras: str) -> dict[str, int]:
    found = facts.details["opencode_executions"].filter(pl.col("era").is_in(eras))
    return dict(found["outcome"].value_counts().rows())


def codes(facts: Facts) -> dict[str, int]:
    return dict(facts.findings.select("code", "n_rows").rows())


def test_several_eras_in_one_database_are_told_apart(samples: Path) -> None:
    facts = read_once(samples / "v1_1.18.34" / "opencode.db")
    assert outcomes(facts, "A") == {"succeeded": 9, "failed": 4, "open": 1}
    ended = {"succeeded": 15, "failed": 9, "interrupted": 7}
    assert outcomes(facts, "V1") == {**ended, "unknown": 10, "open": 1}
    assert facts.sources["format"].to_list() == ["opencode database, era A and V1"]


@pytest.mark.parametrize(
    ("folder", "database"),
    a_few([("v2_20260717", "opencode-local.db"), ("v1_1.18.34", "opencode.db")]),
)
def test_a_database_and_the_log_of_its_events_agree(samples: Path, folder, database) -> None:
    stored = read_once(samples / folder / database)
    logged = read_once(samples / folder / "event_table.jsonl")
    for name in ("opencode_executions", "opencode_steps"):
        kept = ["session_id", "outcome", "exec_no"] if "exec" in name else ["message_id", "state"]
        frames = [one.details[name].select(kept).sort(kept) for one in (stored, logged)]
        assert frames[0].equals(frames[1]), (folder, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_executions"),
    a_few(
        [
            ("v2_20260717/sse_api_event.jsonl", 39),
            ("v1_1.18.34/sse_event.jsonl", 39),
            ("v1_1.18.34/sse_global_event_head400.jsonl", 8),
            ("v1_1.18.34/export_v1_mock-tool.json", 1),
            ("v1_1.18.34/run_json_mock-tool.jsonl", 1),
            ("v2_20260717/run_v2_mock-401.jsonl", 1),
            ("v2_20260717/session_log/ses_e048f75e8ffevxVQrxgXYmPZuK.sse", 2),
            ("v2_2.0.16_wire/failure.jsonl", 1),
        ],
        2,
    ),
)
def test_every_form_is_read(samples: Path, name: str, n_executions: int) -> None:
    facts = read_facts(samples / name)[0]
    assert facts.details["opencode_executions"].height == n_executions
    assert facts.entities.filter(pl.col("entity_type") == "session").height > 0
    for shape in SHAPES:
        assert getattr(facts, shape.name).schema == shape.dtypes
    assert facts.entities.select(schema.ENTITY_KEY).is_duplicated().sum() == 0


def test_an_export_below_its_note_is_read(samples: Path, tmp_path: Path) -> None:
    text = (samples / "v1_1.18.34" / "export_v1_mock-tool.json").read_text("utf-8")
    (export := tmp_path / "export.json").write_text(f"Exporting session: ses_1\n{text}", "utf-8")
    assert read_facts(export)[0].details["opencode_executions"].height == 1


@pytest.mark.slow
def test_logs_read_at_once_tell_what_each_tells_alone(samples: Path, tmp_path: Path) -> None:
    """Also where they tell the same sessions, are broken, are gone, or are no logs."""
    log = (samples / "v2_2.0.16_wire" / "failure.jsonl").read_text(encoding="utf-8")
    broken = tmp_path / "broken.jsonl"
    broken.write_text(f"no json\n{log}" + r'{"half": "\ud800"}' + "\n{cut off", encoding="utf-8")
    paths = [
        samples / "v2_20260717" / "session_log" / "ses_e048f75e8ffevxVQrxgXYmPZuK.sse",
        samples / "v2_2.0.16_wire" / "failure.jsonl",
        broken,
        tmp_path / "gone.jsonl",
        samples / "v1_1.18.34" / "run_json_mock-tool.jsonl",
        samples / "v1_1.18.34" / "export_v1_mock-tool.json",
        samples / "synthetic" / "v2_edge_cases_shuffled_dups.jsonl",
    ]
    random.Random(13).shuffle(paths)
    labels = [path.name for path in paths]
    for path, part in zip(paths, reading.read_many(paths, labels=labels), strict=True):
        alone = reading.read(path, label=path.name)
        assert (part.label, part.format) == (alone.label, alone.format)
        assert part.size_bytes == alone.size_bytes
        frames = [(shape.name, getattr(part, shape.name)) for shape in SHAPES]
        for name, frame in (*frames, *part.details.items()):
            own = alone.details[name] if name in alone.details else getattr(alone, name)
            assert frame.schema == own.schema
            assert_frame_equal(frame, own)
    assert "file.vanished" in set(reading.read(tmp_path / "gone.jsonl").findings["code"])


def test_a_log_that_breaks_off_while_it_is_read_is_left_out_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = (
        write(tmp_path / f"{name}.jsonl", [event(0, "execution.started", session=f"ses_{name}")])
        for name in ("good", "bad")
    )
    octets_of = json_lines._octets_of

    def failing(raw: BinaryIO, *rest: Any) -> Iterator[tuple[bytes, bool]]:
        yield from octets_of(raw, *rest)
        if os.path.samestat(os.fstat(raw.fileno()), bad.stat()):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(json_lines, "_octets_of", failing)
    of_bad, of_good = reading.read_many([bad, good], labels=["bad", "good"])
    assert of_good.entities.height > 0
    assert of_bad.entities.is_empty()
    assert of_bad.findings["code"].to_list() == ["file.unreadable"]


@pytest.mark.slow
def test_a_run_that_failed_keeps_the_error(samples: Path) -> None:
    facts = read_facts(samples / "v1_1.18.34" / "run_json_mock-401.jsonl")[0]
    row = facts.details["opencode_executions"].row(0, named=True)
    assert (row["outcome"], row["cause"], row["error_status"]) == ("failed", "provider_auth", 401)


def test_a_directory_or_a_home_gives_its_databases_only(samples: Path, tmp_path: Path) -> None:
    assert [path.name for path in find(samples / "v2_20260717")] == ["opencode-local.db"]
    place = tmp_path / ".local" / "share" / "opencode"
    place.mkdir(parents=True)
    shutil.copy(samples / "v2_20260717" / "opencode-local.db", place / "opencode-next.db")
    assert find(tmp_path) == [place / "opencode-next.db"]


@pytest.mark.slow
def test_tables_with_keys_are_never_read(samples: Path, tmp_path: Path) -> None:
    copy = tmp_path / "opencode.db"
    shutil.copy(samples / "v2_20260717" / "opencode-local.db", copy)
    copy.chmod(0o600)
    for table in SECRET_TABLES:
        create = f"CREATE TABLE {table} (id TEXT, token TEXT)"
        row = f"INSERT INTO {table} VALUES ('1', 'sk-verysecret')"
        wrote(copy, f"DROP TABLE IF EXISTS {table}", create, row)
    (tmp_path / "auth.json").write_text('{"sessionID": "ses_1", "key": "sk-verysecret"}')
    snap = sa.read(tmp_path)
    assert not set(TABLES) & set(SECRET_TABLES)
    assert not snap.stores
    frames = [snap.entities, snap.transitions, snap.events, snap.findings, *snap.details.values()]
    for frame in frames:
        assert "verysecret" not in frame.write_ndjson()
    named = snap.sql("SELECT DISTINCT frame FROM columns")["frame"]
    assert not named.str.starts_with("raw_").any()
    assert find(tmp_path / "auth.json") == []


ODD_VALUES = (
    {"finish": {"a": 1}, "cost": "many", "tokens": [1]},
    {"finish": 7, "cost": None, "tokens": "x"},
    {"error": "boo", "finish": True},
    {"model": "gpt", "started": "soon", "error": {"type": 5}},
)
ODD_NUMBERS = (-1, 2**62, 1.5, "one", None, True)


def _with_odd_values(data: dict) -> list[dict]:
    return [
        event(0, "execution.started"),
        step(1, "step.started", **{k: v for k, v in data.items() if k in ("model", "started")}),
        step(2, "step.failed", **data),
        event(3, "execution.failed", **{k: v for k, v in data.items() if k == "error"}),
    ]


def _with_an_odd_number(seq: object) -> list[dict]:
    odd = event(1, "viewed")
    odd["durable"]["seq"] = seq
    return [event(0, "execution.started"), odd]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """One log of sessions in which something is unusual."""
    lives = {
        "private": [*CRASH, step(11, "text.ended", "msg_2", text="my private words")],
        "long": [*CRASH, step(11, "text.ended", "msg_2", text="x" * 2**20)],
        "undated": [
            event(0, "execution.started", event_id="evt_1fb7eb246001KzmfAwqFA0d05E", at_ms=0),
            event(1, "execution.succeeded", at_ms=1795220746900),
        ],
        **{f"values {n}": _with_odd_values(data) for n, data in enumerate(ODD_VALUES)},
        **{f"number {seq}": _with_an_odd_number(seq) for seq in ODD_NUMBERS},
    }
    return facts_of(tmp_path_factory.mktemp("odd"), *in_sessions(lives))


@pytest.fixture(scope="module")
def odd_states(odd: Facts) -> pl.DataFrame:
    return sa.states(odd)


def test_what_people_and_models_said_is_not_loaded(odd: Facts) -> None:
    for frame in (odd.entities, odd.events, *odd.details.values()):
        assert "private words" not in frame.write_ndjson()


NO_OBJECTS = ('{"id": "evt_half", "type": "session.execution.succ', "[1, 2]", "null", "\0\0")


@pytest.mark.slow
def test_a_line_that_cannot_be_read_costs_nothing_else(tmp_path: Path) -> None:
    of_another_kind = '{"hello": 1}'
    facts = facts_of(tmp_path, *CRASH, *NO_OBJECTS, of_another_kind)
    assert facts.details["opencode_executions"]["outcome"].to_list() == ["crashed", "succeeded"]
    found = codes(facts)
    assert found["record.not_json"] == len(NO_OBJECTS)
    assert found["record.not_understood"] == 1


def test_a_line_of_a_megabyte_is_read(odd: Facts) -> None:
    steps = odd.details["opencode_steps"].filter(session_id="long")
    assert steps["n_text_chars"].max() == 2**20 + 5


def test_bytes_that_are_not_utf8_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", CRASH)
    path.write_bytes(path.read_bytes() + b'{"id": "\xff\xfe", "type": "session.x"}\n')
    facts = read_facts(path)[0]
    assert codes(facts)["record.not_utf8"] == 1
    assert facts.details["opencode_executions"].height == 2


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_log_with_a_byte_order_mark_is_read(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path / "log.jsonl", CRASH)
    path.write_text(path.read_text(encoding="utf-8"), encoding=encoding)
    facts = read_facts(path)[0]
    assert facts.details["opencode_executions"]["outcome"].to_list() == ["crashed", "succeeded"]


@pytest.mark.parametrize("number", range(len(ODD_VALUES)))
def test_values_of_unexpected_types_are_survived(odd: Facts, odd_states, number: int) -> None:
    session = f"values {number}"
    execution = odd.details["opencode_executions"].filter(session_id=session).row(0, named=True)
    assert execution["outcome"] == "failed"
    states = odd_states.filter(pl.col("entity_id").str.starts_with(session))
    assert states.height > 1
    assert states["outcome"].null_count() == 0


@pytest.mark.parametrize("seq", ODD_NUMBERS)
def test_odd_sequence_numbers_are_survived(odd: Facts, seq: object) -> None:
    found = odd.details["opencode_executions"].filter(session_id=f"number {seq}")
    assert found["outcome"].to_list() == ["open"]


def test_an_event_without_a_moment_is_dated_by_its_id(odd: Facts) -> None:
    undated = odd.details["opencode_executions"].filter(session_id="undated")
    assert undated["started_at"].dt.epoch("ms").to_list() == [1795220746822]


def _legacy(place: Path, session: str = "ses_old1", finish: str = "stop") -> None:
    created = {"created": 1795220000000}
    info = {"id": session, "title": "old", "directory": "/demo", "time": created}
    asked = {"id": "msg_1", "sessionID": session, "role": "user", "time": created}
    said = {"id": "msg_2", "sessionID": session, "role": "assistant", "parentID": "msg_1"}
    said |= {"finish": finish, "time": {"created": 1795220000100, "completed": 1795220000900}}
    part = {"id": "prt_1", "messageID": "msg_2", "sessionID": session, "type": "text", "text": "hi"}
    for name, content in {
        f"session/p/{session}.json": info,
        f"message/{session}/msg_1.json": asked,
        f"message/{session}/msg_2.json": said,
        "part/msg_2/prt_1.json": part,
        "session/p/ses_half.json": '{"id": "ses_ha',
    }.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture(scope="module")
def legacy(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """A storage directory with a session that called a tool."""
    folder = tmp_path_factory.mktemp("legacy")
    _legacy(folder / "storage")
    part = {
        "id": "prt_2", "messageID": "msg_2", "sessionID": "ses_old1", "type": "tool",
        "tool": "shell", "callID": "call_1",
        # A part has no time of its own; where both stand, the state's is the call's.
        "state": {"status": "completed", "time": {"start": 1700000001100, "end": 1700000001900}},
        "time": {"start": 1700000000001, "end": 1700000000002},
    }  # fmt: skip
    (folder / "storage" / "part" / "msg_2" / "prt_2.json").write_text(json.dumps(part))
    return read_facts(folder)[0]


def test_a_storage_directory_from_before_databases_is_read(legacy: Facts) -> None:
    execution = legacy.details["opencode_executions"].row(0, named=True)
    assert (execution["outcome"], execution["n_text_chars"], execution["era"]) == (
        "succeeded",
        2,
        "V1",
    )
    assert codes(legacy)["record.not_json"] == 1


def test_a_call_of_v1_lasts_from_its_own_start_to_its_own_end(legacy: Facts) -> None:
    tool = legacy.details["opencode_tools"].row(0, named=True)
    assert tool["started_at"] == datetime.fromtimestamp(1700000001.1, UTC)
    assert tool["ended_at"] == datetime.fromtimestamp(1700000001.9, UTC)


@pytest.mark.slow
def test_files_that_a_database_has_taken_over_are_not_counted_twice(
    samples: Path, tmp_path: Path
) -> None:
    shutil.copy(samples / "v1_1.18.34" / "opencode.db", tmp_path / "opencode.db")
    known = "ses_e0487ab27ffezMA8B0Ms2hHzLQ"
    _legacy(tmp_path / "storage", known, finish="length")
    _legacy(tmp_path / "storage")
    facts = read_facts(tmp_path)[0]
    of_known = facts.details["opencode_executions"].filter(pl.col("session_id") == known)
    assert "length" not in of_known["last_finish"].to_list()
    assert "ses_old1" in facts.details["opencode_sessions"]["session_id"].to_list()
    assert facts.entities.select(schema.ENTITY_KEY).is_duplicated().sum() == 0


def write_claimed(path: Path) -> None:
    """A 2.0 database that took a session over from V1, and has one of its own that is claimed."""
    connection = sqlite3.connect(path)
    connection.executescript(
        f"""
        {OPENCODE}
        INSERT INTO session_v2 VALUES
            ('ses_taken', NULL, 'new title', '2.0.16', 0, 1795220000000, NULL, NULL, 0, NULL),
            ('ses_own', NULL, 'own', '2.0.16', 0, 1795220000000, NULL, 1795220000500, 1, NULL);
        INSERT INTO session VALUES
            ('ses_taken', 'old title', '1.18.34', 1795220000000, NULL),
            ('ses_late', 'never imported', '1.18.34', 1795220000000, NULL);
        INSERT INTO session_message VALUES
            ('msg_1', 'ses_taken', 'user', 0, 1795220000000, 0, '{{"text": "x"}}'),
            ('msg_2', 'ses_taken', 'assistant', 1, 1795220000001, 0,
             '{{"finish": "content-filter", "content": [{{"type": "text", "text": "par"}}],
               "time": {{"created": 1795220000001, "completed": 1795220000002}}}}');
        INSERT INTO message VALUES
            ('msg_1', 'ses_taken', 1795220000000, '{{"role": "user"}}'),
            ('msg_2', 'ses_taken', 1795220000001, '{{"role": "assistant", "parentID": "msg_1"}}'),
            ('msg_9', 'ses_late', 1795220000001, '{{"role": "user"}}');
        INSERT INTO event VALUES
            ('evt_1', 'ses_own', 0, 1795220000000, 'session.execution.started.1', '{{}}'),
            ('evt_2', 'ses_own', 1, 1795220000500, 'session.execution.interrupted.1',
             '{{"reason": "shutdown"}}');
        """
    )
    connection.commit()
    connection.close()


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """A 2.0 database under another name."""
    path = tmp_path_factory.mktemp("renamed") / "backup.sqlite"
    write_claimed(path)
    return read_facts(path)[0]


def test_a_renamed_database_is_known_by_its_tables(renamed: Facts) -> None:
    assert renamed.sources["system"].to_list() == ["opencode"]


def test_sessions_that_two_taken_over_are_counted_once(renamed: Facts) -> None:
    sessions = renamed.entities.filter(pl.col("entity_type") == "session").sort("entity_id")
    assert sessions.select("entity_id", "name").rows() == [
        ("ses_late", "never imported"),
        ("ses_own", "own"),
        ("ses_taken", "new title"),
    ]
    taken = renamed.details["opencode_executions"].filter(pl.col("session_id") == "ses_taken")
    assert taken.select("is_blocked", "n_text_chars").rows() == [(True, 3)]


def test_a_claimed_session_is_suspended_and_can_be_resumed(renamed: Facts) -> None:
    state = sa.states(renamed).filter(pl.col("entity_id") == "ses_own").row(0, named=True)
    assert (state["lifecycle"], state["health"]) == ("running", "disconnected")
    assert state["reason_codes"] == "run.health.suspended_by_shutdown"
    own = renamed.details["opencode_executions"].filter(pl.col("session_id") == "ses_own")
    assert own["is_resumable"].to_list() == [True]


def test_empty_unrelated_and_compressed_files_are_no_stores(tmp_path: Path) -> None:
    empty, other, packed = (tmp_path / f"{name}.jsonl" for name in ("empty", "other", "packed"))
    empty.write_text("")
    other.write_text('{"type": "something", "id": 1}\n')
    packed.write_bytes(gzip.compress(write(tmp_path / "plain.log", CRASH).read_bytes()))
    assert find(empty) == find(other) == find(packed) == []
    with pytest.raises(NotAStoreError):
        read_facts(other)


@pytest.mark.slow
def test_the_shipped_sample_is_read() -> None:
    folder = Path(__file__).parents[1] / "data" / "samples" / "opencode"
    snap = sa.read(folder)
    assert snap.sources.select("system", "n_events").row(0) == ("opencode", 529)
    answer = snap.sql(
        "SELECT count(*) AS n FROM states WHERE display LIKE '%Blocked by provider%' "
        "AND entity_type = 'session'"
    )
    assert answer["n"].to_list() == [4]
    code = {"code": "run.failed.content_filtered"}
    filtered = snap.sql("SELECT count(*) FROM attention WHERE code = $code", code)
    assert filtered.item() == 4

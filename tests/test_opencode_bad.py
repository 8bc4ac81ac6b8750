"""Damaged opencode inputs: the rest is read, what was not is counted and named."""

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.errors import DamagedStoreError
from stateanalytics.io import files, json_lines
from stateanalytics.systems.opencode import reading as opencode
from stateanalytics.systems.opencode import records
from stateanalytics.systems.opencode.places import find
from stateanalytics.systems.reading import read_facts
from tests.examples import a_few, examples
from tests.fuzz.seeds import OPENCODE
from tests.lionagi_stores import wrote
from tests.opencode_logs import T0, event, facts_of, in_sessions, step, v1_export, v1_message, write

GOOD = (
    event(0, "execution.started"),
    step(1, "step.started"),
    step(2, "text.ended", text="done"),
    step(3, "step.ended", finish="stop"),
    event(4, "execution.succeeded"),
)
HALF = '{"id": "evt_half", "type": "session.execution.succ'


def found(facts: Facts, code: str) -> dict:
    return facts.findings.filter(code=code).row(0, named=True)


def outcomes(facts: Facts) -> list[str]:
    return facts.details["opencode_executions"]["outcome"].to_list()


@pytest.mark.slow
@pytest.mark.parametrize("octets", [HALF.encode(), '{"text": "é'.encode()[:-1]])
def test_a_last_line_that_is_being_written_is_no_fault(tmp_path: Path, octets: bytes) -> None:
    log = write(tmp_path / "log.jsonl", GOOD)
    log.write_bytes(log.read_bytes() + octets)
    facts = read_facts(log, on_error="raise")[0]
    assert outcomes(facts) == ["succeeded"]
    told = found(facts, "line.unfinished")
    assert (told["severity"], told["n_rows"], told["example"]) == ("info", 1, "line 6")


def test_a_last_line_without_its_break_may_be_whole(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", GOOD)
    log.write_bytes(log.read_bytes().rstrip(b"\n"))
    facts = read_facts(log)[0]
    assert outcomes(facts) == ["succeeded"]
    assert facts.findings.is_empty()


@pytest.mark.slow
@pytest.mark.parametrize("chunk_bytes", a_few([7, 100, 1000, 10_000]))
@pytest.mark.parametrize("ending", a_few(["\n", ""]))
def test_a_line_too_long_to_take_apart_is_counted(tmp_path, monkeypatch, chunk_bytes, ending):
    monkeypatch.setattr(json_lines, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(json_lines.budget, "MAX_LINE_BYTES", 400)
    lines = [json.dumps(line) for line in GOOD]
    assert max(map(len, lines)) < 400
    long = json.dumps({"type": "session.made.up", "id": "x" * 2000})
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join([*lines[:2], long, *lines[2:], long]) + ending)
    facts = read_facts(path)[0]
    assert outcomes(facts) == ["succeeded"]
    assert set(facts.findings["code"]) == {"record.too_long"}
    assert facts.findings["n_rows"].sum() == 2
    assert found(facts, "record.too_long")["example"] == "line 3"


@pytest.mark.slow
def test_a_line_of_a_hundred_megabytes_is_left_out_of_a_log(tmp_path):
    path = write(tmp_path / "log.jsonl", GOOD)
    with path.open("a") as file:
        file.write('{"type": "session.text.ended", "id": "' + "x" * 100_000_000 + '"}\n')
    facts = read_facts(path)[0]
    assert outcomes(facts) == ["succeeded"]
    assert found(facts, "record.too_long")["message"] == "a line of more than 16 MiB"


def test_what_may_block_in_a_storage_directory_is_named(tmp_path):
    folder = a_storage(tmp_path)
    os.mkfifo(folder / "storage" / "part" / "a.json")
    (folder / "storage" / "part" / "b.json").symlink_to("/dev/zero")
    told = found(read_facts(folder)[0], "file.unreadable")
    assert "not a regular file" in told["message"]
    assert (told["n_rows"], told["example"]) == (2, "a.json")


def a_log(folder: Path) -> Path:
    return write(folder / "log.jsonl", [*GOOD, HALF])


def an_export(folder: Path) -> Path:
    """`opencode export`, whose second half never reached the disk."""
    message = {"info": {"id": "msg_1", "sessionID": "ses_a", "role": "user"}, "parts": []}
    whole = json.dumps({"info": {"id": "ses_a", "sessionID": "ses_a"}, "messages": [message] * 9})
    path = folder / "export.json"
    path.write_text(whole[: len(whole) // 2] + "\n")
    return path


def a_storage(folder: Path) -> Path:
    session = folder / "storage" / "session" / "p"
    for name in ("session/p", "message/ses_a", "part"):
        (folder / "storage" / name).mkdir(parents=True)
    (session / "ses_a.json").write_text('{"id": "ses_a", "time": {"created": 1795220000000}}')
    (session / "ses_b.json").write_text('{"id": "ses_')
    return folder


def a_database(folder: Path) -> Path:
    path = folder / "opencode.db"
    connection = sqlite3.connect(path)
    connection.executescript(
        f"""
        {OPENCODE}
        INSERT INTO event VALUES
            ('evt_1', 'ses_a', 0, 1795220000000, 'session.execution.started.1', '{{}}'),
            ('evt_2', 'ses_a', 1, 1795220000100, 'session.execution.failed.1', '{{"error": {{"ty'),
            ('evt_3', 'ses_a', 2, 1795220000200, 'session.viewed.1', NULL);
        """
    )
    connection.commit()
    connection.close()
    return path


def a_database_beside_files(folder: Path) -> Path:
    a_storage(folder)
    create = "CREATE TABLE session (id text, title text, time_created integer)"
    row = "INSERT INTO session VALUES ('ses_c', 'x', 1795220000000)"
    return wrote(folder / "opencode.db", create, row)


BAD = [
    *((make, "record.not_json") for make in (a_log, an_export, a_storage)),
    *((a_database, "cell.not_json"), (a_database_beside_files, "record.not_json")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "code"), a_few(BAD, 2))
def test_each_kind_of_bad_record_is_named_or_ends_the_load(
    tmp_path: Path, make: Callable[[Path], Path], code: str
) -> None:
    path = make(tmp_path)
    told = found(read_facts(path)[0], code)
    assert (told["severity"], told["n_rows"], told["system"]) == ("warning", 1, "opencode")
    assert told["example"]
    words = r"cannot be read completely.*1 times, first: (?s:.*)Hint: .*skip"
    with pytest.raises(DamagedStoreError, match=words):
        read_facts(path, on_error="raise")


@pytest.fixture(scope="module")
def broken_cells(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """A database with payloads and messages that are no JSON."""
    path = a_database(tmp_path_factory.mktemp("cells"))
    insert = "INSERT INTO session_message VALUES (?, 'ses_m', 'assistant', ?, 1795220000000, 0, ?)"
    rows = [("msg_1", 0, "{"), ("msg_2", 1, "[]"), ("msg_3", 2, '{"finish": "stop"}')]
    return read_facts(wrote(path, (insert, rows)))[0]


def test_an_event_without_its_payload_still_happened(broken_cells: Facts) -> None:
    executions = broken_cells.details["opencode_executions"].filter(session_id="ses_a")
    assert executions["outcome"].to_list() == ["failed"]
    cells = broken_cells.findings.filter(code="cell.not_json", table="event")
    assert cells["example"].to_list() == ["evt_2"]


def test_messages_of_a_table_that_are_no_json_are_counted(broken_cells: Facts) -> None:
    cells = broken_cells.findings.filter(code="cell.not_json", table="session_message")
    assert cells.select("n_rows", "example").rows() == [(2, "msg_1")]


@pytest.mark.slow
def test_a_file_that_vanishes_during_the_scan_is_named(tmp_path: Path, monkeypatch) -> None:
    write(tmp_path / "kept.jsonl", GOOD)
    gone = write(tmp_path / "gone.jsonl", [event(0, "execution.started", session="ses_b")])
    places = find(tmp_path)
    gone.unlink()
    monkeypatch.setattr(Path, "is_file", _as_before(places))
    kept, lost = (opencode.read(path, label=path.name) for path in sorted(places, reverse=True))
    assert kept.entities.height > 0
    assert lost.entities.is_empty()
    assert lost.findings.select("code", "example").rows() == [("file.vanished", "gone.jsonl")]
    with pytest.raises(DamagedStoreError, match="no longer existed when it was to be opened"):
        opencode.read(gone, label="gone.jsonl", on_error="raise")


def _as_before(places: list[Path]) -> Callable[[Path], bool]:
    """What the scan saw."""
    is_file = Path.is_file
    return lambda path: path in places or is_file(path)


def test_a_legacy_file_that_vanishes_is_told_from_a_bad_one(tmp_path: Path, monkeypatch) -> None:
    folder = a_storage(tmp_path) / "storage"
    gone = folder / "session" / "p" / "ses_gone.json"
    seen = [*records._json_files(folder), gone]
    below = lambda part: [path for path in seen if part in path.parents]  # noqa: E731
    monkeypatch.setattr(records, "_json_files", below)
    facts = read_facts(tmp_path)[0]
    assert found(facts, "file.vanished")["example"] == "ses_gone.json"
    assert found(facts, "record.not_json")["example"] == "ses_b.json"
    assert facts.details["opencode_sessions"]["session_id"].to_list() == ["ses_a"]


def test_a_file_that_may_not_be_read_hides_no_other(tmp_path: Path, monkeypatch) -> None:
    log, locked = write(tmp_path / "a.jsonl", GOOD), write(tmp_path / "b.jsonl", GOOD)
    opened = files.open_regular

    def refuse(path: Path) -> object:
        if path == locked:
            raise PermissionError(13, "Permission denied")
        return opened(path)

    for module in (files, records, json_lines):
        monkeypatch.setattr(module, "open_regular", refuse)
    assert find(tmp_path) == [log]
    lost = opencode.read(locked, label="b.jsonl").findings
    assert lost["code"].to_list() == ["file.unreadable"]
    assert "Permission denied" in lost["message"][0]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """One log of sessions with clocks that disagree, or with words of other types."""
    begun = step(1, "step.started", at_ms=T0)
    lives = {
        "minutes": [
            *(event(0, "execution.started", at_ms=T0 + 600_000), begun),
            step(2, "step.ended", finish="stop", at_ms=T0 + 1_000),
            event(3, "execution.succeeded", at_ms=T0 + 700_000),
        ],
        "milliseconds": [event(0, "execution.started", at_ms=T0 + 900), begun],
        "words": [
            event(0, "execution.started"),
            step(1, "step.started"),
            step(2, "step.failed", finish=7, error={"type": 12, "message": None}),
            event(3, "execution.interrupted", reason=["user"]),
        ],
    }
    return facts_of(tmp_path_factory.mktemp("odd"), *in_sessions(lives))


def test_clocks_that_disagree_are_said_and_order_stays_that_of_the_numbers(odd: Facts) -> None:
    told = found(odd, "time.backwards")
    assert told["entity_id"] == "minutes"
    assert told["message"] == "time runs back 1 times, by up to 600 s"
    executions = odd.details["opencode_executions"].filter(session_id="minutes")
    assert executions["outcome"].to_list() == ["succeeded"]


def test_moments_that_cross_by_less_than_a_second_are_no_finding(odd: Facts) -> None:
    told = odd.findings.filter(pl.col("entity_id").is_null() | (pl.col("entity_id") != "minutes"))
    assert not told["code"].str.starts_with("time.").any()
    assert "milliseconds" not in told["entity_id"].str.split(":").list.first().to_list()


def test_words_of_other_types_where_a_word_was_meant_stay_visible(odd: Facts) -> None:
    steps = odd.details["opencode_steps"].filter(session_id="words")
    assert steps["error_type"].to_list() == ["12"]
    assert sa.states(odd)["lifecycle"].null_count() == 0


def test_two_directories_with_one_session_are_two_sessions(tmp_path: Path) -> None:
    a_day_ms = 86_400_000
    for day, (name, end) in enumerate((("one", "succeeded"), ("two", "failed"))):
        (tmp_path / name).mkdir()
        events = [*GOOD[:4], event(4, f"execution.{end}")]
        later = [one | {"created": one["created"] + day * a_day_ms} for one in events]
        write(tmp_path / name / "log.jsonl", later)
    facts = read_facts([tmp_path / "one", tmp_path / "two"])[0]
    assert facts.entities.select(schema.ENTITY_KEY).is_duplicated().sum() == 0
    states = sa.states(facts).filter(pl.col("entity_type") == "session")
    assert states["outcome"].cast(pl.String).to_list() == ["completed", "failed"]
    assert states["source"].n_unique() == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


@pytest.mark.slow
@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.dictionaries(st.sampled_from(["finish", "error", "tokens", "model", "at"]), JSON))
def test_no_payload_stops_the_reading(tmp_path: Path, data: dict) -> None:
    facts = facts_of(tmp_path, *GOOD[:2], step(2, "step.failed", **data) | {"extra": data})
    assert facts.details["opencode_steps"].height == 1
    assert sa.states(facts).height == facts.entities.height


HALF = r"a\ud83d"
WHOLE = r"a\ud83d\ude00"


def test_half_a_character_costs_no_line_of_a_log(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", GOOD)
    path.write_text(path.read_text().replace('"done"', f'"{HALF}{WHOLE}"'))
    facts = read_facts(path)[0]
    told = found(facts, "record.half_surrogate")
    assert (told["n_rows"], told["severity"]) == (1, "info")
    assert "record.not_json" not in facts.findings["code"]
    assert facts.events.height == len(GOOD)


def test_half_a_character_costs_no_message_of_an_export(tmp_path: Path) -> None:
    moment = {"created": T0, "updated": T0}
    info = {"id": "msg_1", "sessionID": "ses_a", "role": "assistant", "time": moment}
    parts = [{"id": "prt_1", "messageID": "msg_1", "type": "text", "text": "a\ud83d"}]
    session = {"id": "ses_a", "title": "\udc00", "time": moment}
    document = {"info": session, "messages": [{"info": info, "parts": parts}]}
    path = tmp_path / "export.json"
    path.write_text(json.dumps(document))
    facts = read_facts(path)[0]
    assert facts.details["opencode_sessions"]["session_id"].to_list() == ["ses_a"]
    assert found(facts, "record.half_surrogate")["n_rows"] == 2


def test_a_legacy_file_whose_name_is_not_utf8_is_named(tmp_path: Path) -> None:
    folder = a_storage(tmp_path) / "storage" / "session" / "p"
    Path(os.fsdecode(os.fsencode(folder) + b"/0\xff.json")).write_text("{")
    told = found(read_facts(tmp_path)[0], "record.not_json")
    assert (told["n_rows"], told["example"]) == (2, r"0\xff.json")


def test_impossible_tokens_and_costs_are_not_counted(tmp_path):
    odd = {"cost": -1.0, "tokens": {"input": -3, "output": 2**63 - 1}}
    sound = {"cost": 0.5, "tokens": {"input": 3, "output": 4}}
    life = [event(0, "created"), event(1, "execution.started"), event(9, "execution.succeeded")]
    steps = [step(2 + n, "step.ended", f"msg_{n}", **said) for n, said in enumerate([odd, sound])]
    export = v1_export(tmp_path, v1_message(1, **odd), v1_message(2, **sound))
    for found in (facts_of(tmp_path, *life, *steps), export):
        usage = found.entities.filter(entity_type="session")
        assert usage.select("n_input_tokens", "n_output_tokens", "cost_usd").row(0) == (3, 4, 0.5)
        assert found.findings.select("code", "n_rows").rows() == [("usage.impossible", 1)]

"""Stores with few rows, and rows that no real store should have."""

import json
import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from stateanalytics.core import schema
from stateanalytics.io.sqlite import open_store
from stateanalytics.state.states import states
from stateanalytics.systems.lionagi import reading as lionagi
from tests.examples import a_few
from tests.lionagi_stores import NOW_S, change, codes, listing, read_part, session, write_store


def _store(tmp_path: Path, **tables) -> Path:
    return write_store(tmp_path / "state.db", **tables)


def _one(part, identity: str) -> dict:
    return part.entities.filter(pl.col("entity_id") == identity).row(0, named=True)


def test_a_store_without_rows_gives_empty_frames(tmp_path):
    part = read_part(_store(tmp_path))
    assert part.entities.is_empty()
    assert part.events.is_empty()
    assert part.transitions.is_empty()
    assert part.findings.is_empty()
    assert part.entities.schema == schema.ENTITIES.dtypes


@pytest.mark.slow
def test_a_fresh_store_of_lionagi_itself_isread_part(tmp_path):
    import asyncio

    from lionagi.state import db

    async def create() -> None:
        async with db.StateDB(tmp_path / "fresh.db"):
            pass

    asyncio.run(create())
    part = read_part(tmp_path / "fresh.db")
    assert part.format == "lionagi 0.36.0"
    assert part.entities.is_empty()
    assert part.findings.is_empty()


def _one_message(tmp_path, **columns):
    return read_part(
        _store(
            tmp_path,
            sessions=[session("a", **columns)],
            branches=[{"id": "b", "session_id": "a", "progression_id": "p"}],
            progressions=[listing("p", ["m"]), listing("list-a", ["m"])],
            messages=[{"id": "m", "created_at": NOW_S - 700, "content": "{}", "role": "user"}],
        )
    )


def test_one_session_with_one_message_is_one_row_of_each(tmp_path):
    part = _one_message(tmp_path)
    assert part.entities.select("entity_type", "entity_id", "n_messages").rows() == [
        ("session", "a", 1),
        ("branch", "b", 1),
    ]
    assert part.events.select("entity_id", "kind", "role", "size_bytes").rows() == [
        ("a", "message", "user", 2)
    ]
    assert part.findings.is_empty()


def test_a_row_of_nulls_isread_part(tmp_path):
    columns = dict.fromkeys(session("a"))
    part = read_part(_store(tmp_path, sessions=[columns | {"id": "a"}]))
    row = _one(part, "a")
    assert (row["raw_status"], row["started_at"], row["last_activity_at"]) == (None, None, None)
    assert (row["n_messages"], row["recorded_by"]) == (0, "live")
    assert codes(part) == {"status.legacy": 1}


def test_cells_of_wrong_kinds_become_null_and_findings(tmp_path):
    dirty = {
        "started_at": "yesterday",
        "ended_at": 1.78e12,
        "last_message_at": b"\x00\x01",
        "name": b"\xff\xfe",
        "input_tokens": 2**70 * 1.0,
        "total_cost_usd": "free",
        "status_evidence_refs": "oops",
        "artifact_contract_json": "{broken",
        "status": 7,
    }
    part = read_part(_store(tmp_path, sessions=[session("clean"), session("dirty", **dirty)]))
    row = _one(part, "dirty")
    for column in ("started_at", "ended_at", "last_message_at", "n_input_tokens", "cost_usd"):
        assert row[column] is None, column
    assert row["evidence"] is None
    assert row["is_contract_valid"] is False
    assert _one(part, "clean")["started_at"] is not None
    found = part.findings.filter(pl.col("code").str.starts_with("cell."))
    assert {*dirty} - {"artifact_contract_json", "status"} <= {*found["column"]}
    assert set(found["table"]) == {"sessions"}
    assert found["example"].null_count() == 0


CONTRACTS = [
    (None, False, None, "not_expected"),
    ("null", False, None, "not_expected"),
    ("{}", False, None, "not_expected"),
    (" { } ", False, None, "not_expected"),
    ('"{}"', False, None, "not_expected"),
    ('{"expected": []}', True, True, "not_expected"),
    ('{"expected": [{"id": "a", "path": "a.md"}]}', True, True, "unknown"),
    ('{"other": 1}', True, False, "invalid"),
    ("[]", True, False, "invalid"),
    ("{broken", True, False, "invalid"),
]


@pytest.fixture(scope="module")
def contracts(tmp_path_factory):
    """The entities of one store with a session of each contract, and their states."""
    rows = [
        session(str(place), status="completed", artifact_contract_json=stored)
        for place, (stored, *_) in enumerate(CONTRACTS)
    ]
    part = read_part(_store(tmp_path_factory.mktemp("contracts"), sessions=rows))
    return part, states(part.entities, as_of="2026-05-27")


@pytest.mark.parametrize(
    ("identity", "has_contract", "is_valid", "delivery"),
    [(str(place), *expected) for place, (_, *expected) in enumerate(CONTRACTS)],
)
def test_an_empty_object_is_no_contract(contracts, identity, has_contract, is_valid, delivery):
    part, judged = contracts
    row = _one(part, identity)
    assert (row["has_contract"], row["is_contract_valid"]) == (has_contract, is_valid)
    of_session = judged.filter(entity_type="session", entity_id=identity)
    assert of_session["delivery"].to_list() == [delivery]


def test_impossible_tokens_and_costs_are_not_counted(tmp_path):
    odd = {"input_tokens": -7, "output_tokens": 2**63 - 1, "total_cost_usd": -5.0}
    sound = {"input_tokens": 0, "output_tokens": None, "total_cost_usd": 1.5}
    part = read_part(_store(tmp_path, sessions=[session("a") | odd, session("b") | sound]))
    usage = part.entities.select("n_input_tokens", "n_output_tokens", "cost_usd").rows()
    assert usage == [(None, None, None), (0, None, 1.5)]
    found = part.findings.filter(code="usage.impossible").select("table", "column", "n_rows")
    assert found.rows() == [("sessions", name, 1) for name in odd]


def test_rows_without_a_usable_id_are_excluded_and_counted(tmp_path):
    rows = [session("a"), session("a"), session("b") | {"id": None}, session("c")]
    part = read_part(_store(tmp_path, sessions=rows))
    assert part.entities["entity_id"].to_list() == ["a", "c"]
    assert codes(part)["id.unusable"] == 2


def test_a_placeholder_is_no_model(tmp_path):
    rows = [session("a", model="<synthetic>"), session("b", model="claude_code/sonnet")]
    part = read_part(_store(tmp_path, sessions=rows))
    assert part.entities["model"].to_list() == [None, "claude_code/sonnet"]


def test_costs_that_lionagi_hides_are_counted_and_none_reported_is_not_free(tmp_path):
    rows = [
        session("a", provider="codex", total_cost_usd=1.5),
        session("b", provider="codex", total_cost_usd=None),
        session("c", provider="claude_code", total_cost_usd=1.5),
        session("d", total_cost_usd=0.0),
    ]
    part = read_part(_store(tmp_path, sessions=rows))
    assert codes(part) == {"cost.unreliable": 1}
    assert part.entities["cost_usd"].to_list() == [1.5, None, 1.5, 0.0]


def test_a_request_names_its_tool(tmp_path):
    call = json.dumps({"function": "Bash", "arguments": {}})
    rows = [
        {"id": "q", "created_at": NOW_S, "role": "action", "lion_class": 4, "content": call},
        {"id": "a", "created_at": NOW_S, "role": "action", "lion_class": 5, "content": call},
        {"id": "x", "created_at": NOW_S, "role": "action", "lion_class": 4, "content": "{"},
    ]
    names = read_part(_store(tmp_path, messages=rows)).events["name"].to_list()
    assert names == ["Bash", None, None]


RECORDERS = {
    "live": ({"source_kind": "live"}, "live"),
    "the column's default": ({"source_kind": None}, "live"),
    "imported from files": ({"source_kind": "imported_fs"}, "imported"),
    "codex rollout": ({"source_kind": "imported_codex"}, "mirrored"),
    "by provider": ({"agent_name": "claude-code", "provider": "anthropic"}, "mirrored"),
    "by transcript": ({"agent_name": "claude-code", "cc_session_id": "x"}, "mirrored"),
    "by identity": (
        {"agent_name": "claude-code", "node_metadata": '{"process_identity_mode": "external"}'},
        "mirrored",
    ),
    "an agent of that name": ({"agent_name": "claude-code"}, "live"),
    "a provider of that name": ({"provider": "anthropic"}, "live"),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    rows = [session(name, **columns) for name, (columns, _) in RECORDERS.items()]
    return read_part(_store(tmp_path_factory.mktemp("recorded"), sessions=rows))


@pytest.mark.parametrize("name", RECORDERS)
def test_several_columns_show_who_recorded_a_session(recorded, name):
    assert _one(recorded, name)["recorded_by"] == RECORDERS[name][1]


def test_stored_health_and_delivery_are_kept_where_a_store_has_them(tmp_path):
    """ADR-0033 appendix A: columns that lionagi never added, but another may."""
    stored = {"health": "stalled", "delivery": "missing", "reason_codes": '["run.health.stalled"]'}
    play = {"id": "p", "status": "running", **stored}
    part = read_part(_store(tmp_path, sessions=[session("a", **stored)], plays=[play]))
    for identity in ("a", "p"):
        row = _one(part, identity)
        assert {name: row[f"stored_{name}"] for name in stored} == stored


ENDS = {
    "no sign of another": ({}, "executor"),
    "no end": ({"ended_at": None}, None),
    "code of a kill": ({"status_reason_code": "run.cancelled.force_kill"}, "observer"),
    "verdict": ({"status_reason_code": "session.phantom.process_dead"}, "observer"),
    "reopened": ({"status_reason_code": "session.reopened.by_resume"}, "executor"),
    "summary": ({"status_reason_summary": "phantom_reaped"}, "observer"),
    "evidence": ({"status_evidence_refs": '[{"kind": "stale_kill", "pid": 3}]'}, "observer"),
    "repaired later": ({"ended_at_is_approximate": 1}, "observer"),
    "actor": ({}, "observer"),
    "killed, resumed and then ended by itself": ({}, "executor"),
    "import": ({}, "import"),
    "imported session": ({"source_kind": "imported_fs"}, "import"),
}
WRITERS = [
    change("actor", "completed", NOW_S, actor="studio_lifecycle_reaper"),
    change("killed, resumed and then ended by itself", "failed", NOW_S - 50, actor="doctor"),
    change("killed, resumed and then ended by itself", "running", NOW_S - 40, actor="cli.resume"),
    change("killed, resumed and then ended by itself", "completed", NOW_S),
    change("import", "completed", NOW_S, actor="shows_import"),
]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """One store with a session of each way to end."""
    rows = [session(name, **columns) for name, (columns, _) in ENDS.items()]
    folder = tmp_path_factory.mktemp("ended")
    return read_part(_store(folder, sessions=rows, status_transitions=WRITERS))


@pytest.mark.parametrize("name", ENDS)
def test_code_actor_and_evidence_show_the_writer_of_an_end(ended, name):
    assert _one(ended, name)["end_written_by"] == ENDS[name][1]


def test_transitions_are_ordered_by_time_and_then_by_row(tmp_path):
    changes = [
        change("a", "completed", NOW_S),
        change("a", "running", NOW_S - 10),
        change("b", "failed", NOW_S),
        change("b", "running", "soon"),
        change("a", "odd", NOW_S, entity_type="sessions"),
    ]
    part = read_part(_store(tmp_path, status_transitions=changes))
    assert part.transitions.select("entity_id", "status", "seq").rows() == [
        ("a", "running", 2),
        ("a", "completed", 1),
        ("b", "failed", 3),
        ("a", "odd", 5),
        ("b", "running", 4),
    ]
    assert part.transitions["entity_type"].unique().to_list() == ["session"]
    assert codes(part)["transition.orphaned"] == 5


def _listed(tmp_path, messages, **lists):
    rows = [
        {"id": identity, "created_at": NOW_S - 900 + number, "content": "{}", "role": "user"}
        for number, identity in enumerate(messages)
    ]
    branches = [
        {"id": f"{name}-branch", "session_id": name[0], "progression_id": name}
        for name in lists
        if not name.startswith("list")
    ]
    known = [{"id": name.replace("_", "-"), "collection": one} for name, one in lists.items()]
    told = {"branches": branches, "progressions": known, "messages": rows}
    part = read_part(_store(tmp_path, sessions=[session("a"), session("b")], **told))
    return part, part.events.select("entity_id", "seq").rows()


def test_messages_belong_to_the_sessions_of_the_branches_that_list_them(tmp_path):
    lists = {"a1": '["m1", "m2"]', "a2": '["m2"]', "b1": '["m3","m2"]', "list_a": '["m1","m4"]'}
    part, pairs = _listed(tmp_path, ["m1", "m2", "m3", "m4"], **lists)
    # m2 was forked into both; m4 is listed by the session alone.
    assert sorted(pairs) == [("a", 1), ("a", 2), ("a", 4), ("b", 2), ("b", 3)]
    assert _one(part, "a")["n_messages"] == 3
    assert "message.orphaned" not in codes(part)


def test_a_session_has_the_messages_of_a_branch_without_one(tmp_path):
    branch = {"id": "b", "session_id": None, "progression_id": "list-a"}
    message = {"id": "m", "created_at": NOW_S - 700, "content": "{}", "role": "user"}
    rows = {"branches": [branch], "progressions": [listing("list-a", ["m"])]}
    part = read_part(_store(tmp_path, sessions=[session("a")], messages=[message], **rows))
    assert part.events["entity_id"].to_list() == ["a"]


def test_messages_in_no_list_are_kept_and_counted(tmp_path):
    part, pairs = _listed(tmp_path, ["m1", "m2"], a1='["m1"]')
    assert sorted(pairs, key=lambda row: row[1]) == [("a", 1), (None, 2)]
    assert codes(part)["message.orphaned"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("collection", "count"),
    [
        pytest.param('["m1", 3, null, "m2"]', 4, id="other values in the list"),
        pytest.param(r'["m1", "\"", "m2"]', 3, id="a quote in an id"),
        pytest.param('{"m1": 1}', None, id="an object"),
        pytest.param('"m1"', None, id="a text"),
        pytest.param("[broken", None, id="no JSON"),
        pytest.param(None, None, id="nothing"),
        pytest.param("null", None, id="the four letters"),
        pytest.param(b"\x00\xff", None, id="bytes"),
    ],
)
def test_an_odd_list_of_messages_never_stops_a_load(tmp_path, collection, count):
    part, pairs = _listed(tmp_path, ["m1", "m2"], a1=collection, b1='["m2"]')
    assert _one(part, "a")["n_messages"] == count
    assert ("b", 2) in pairs


def test_traces_of_pruning_are_counted(tmp_path):
    part = read_part(
        _store(
            tmp_path,
            sessions=[session("a")],
            branches=[{"id": "x", "session_id": "gone", "progression_id": "lost"}],
            progressions=[listing("orphan", ["m"]), listing("list-a", [])],
            plays=[{"id": "p", "status": "merged", "session_id": "gone", "show_id": "gone"}],
        )
    )
    n_rows = codes(part)
    assert n_rows["progression.orphaned"] == 1
    assert n_rows["progression.missing"] == 1
    assert n_rows["link.missing"] == 3


@pytest.mark.parametrize(
    ("summary", "data", "message"),
    [
        ("Run failed.", "HTTP 401: no", "Run failed. HTTP 401: no"),
        ("1 operation(s) failed: a.", "HTTP 401: no", "1 operation(s) failed: a. HTTP 401: no"),
        ("Run failed.", None, "Run failed."),
        ("ValueError: x", "HTTP 401: no", "ValueError: x"),
        ("", None, "no plan"),
    ],
)
def test_a_failure_without_words_has_those_of_the_worker_that_failed(
    tmp_path, summary, data, message
):
    signal = {"session_id": "a", "kind": "RunFailed", "payload": json.dumps({"data": data})}
    signals = [
        signal | {"id": "1", "seq": 1, "ts": NOW_S - 700},
        signal | {"id": "2", "seq": 2, "ts": NOW_S, "payload": '{"data": "later"}'},
    ]
    why = {"status_reason_code": "run.failed.exception", "status_reason_summary": summary}
    change = {"id": "t", "entity_type": "session", "entity_id": "a", "status": "failed",
              "previous_status": "running", "reason_code": "run.failed.exception",
              "reason_summary": summary, "created_at": NOW_S - 600}  # fmt: skip
    engine = {"id": "a", "signal_session_id": "a", "kind": "planning", "status": "failed",
              "error": "" if summary else "no plan", "ended_at": NOW_S - 600}  # fmt: skip
    rows = {"sessions": [session("a", status="failed", **why)], "engine_runs": [engine]}
    path = _store(tmp_path, **rows, session_signals=signals, status_transitions=[change])
    part = read_part(path)
    told = part.entities.filter(entity_type="session")
    assert told["reason_message"].to_list() == [message]
    assert part.transitions["message"].to_list() == [message]


def test_signals_of_the_run_are_activity_and_hooks_are_noise(tmp_path):
    kinds = {
        "RunStart": {},
        "HookSignal": {"point": "api.stream_chunk", "kwargs": {"prompt": "secret"}},
        "NodeStarted": {"op_id": "o", "name": "analyst", "elapsed": 0.0},
        "NodeCompleted": {"op_id": "o", "name": "analyst", "elapsed": 1.2},
        "RunEnd": {"duration_ms": 1500.0, "data": "the answer"},
        "RunFailed": {"error": "ValueError: boom"},
        "SomethingNew": {},
    }
    signals = [
        {"id": kind, "session_id": "a", "seq": number, "kind": kind, "op_id": "",
         "ts": NOW_S + number, "payload": json.dumps(payload)}
        for number, (kind, payload) in enumerate(kinds.items(), 1)
    ]  # fmt: skip
    path = _store(tmp_path, sessions=[session("a")], session_signals=signals)
    rows = {row["kind"][7:]: row for row in read_part(path).events.iter_rows(named=True)}
    of_no_run = {"HookSignal": False, "SomethingNew": None}
    is_activity = {kind: row["is_activity"] for kind, row in rows.items()}
    assert is_activity == {**dict.fromkeys(kinds, True), **of_no_run}
    assert rows["NodeStarted"]["duration_s"] is None
    assert (rows["NodeCompleted"]["name"], rows["NodeCompleted"]["duration_s"]) == ("analyst", 1.2)
    assert rows["RunEnd"]["duration_s"] == 1.5
    assert rows["HookSignal"]["name"] == "api.stream_chunk"
    assert rows["RunFailed"]["detail"] == "ValueError: boom"
    assert all(row["body"] is None for row in rows.values())
    bodies = read_part(path, bodies=True).events["body"].to_list()
    assert "the answer" in bodies[4]


def test_bodies_are_loaded_only_on_request(tmp_path):
    message = {"id": "m", "created_at": NOW_S, "content": '{"instruction": "x"}', "role": "user"}
    path = _store(tmp_path, messages=[message])
    assert read_part(path).events["body"].to_list() == [None]
    assert read_part(path, bodies=True).events["body"].to_list() == ['{"instruction": "x"}']


def test_refused_transitions_name_the_entity_they_were_about(tmp_path):
    event = {"id": "x", "created_at": NOW_S, "target_id": "a", "actor": "executor"}
    event["action"] = "status_transition_rejected"
    event["details"] = '{"entity_type": "session", "attempted_status": "completed"}'
    part = read_part(_store(tmp_path, sessions=[session("a")], admin_events=[event]))
    row = part.events.row(0, named=True)
    assert row["kind"] == "admin.status_transition_rejected"
    assert (row["entity_type"], row["entity_id"], row["is_activity"]) == ("session", "a", False)


def test_many_entities_with_one_problem_are_summed_up_after_a_thousand(tmp_path):
    rows = [session(f"s{number:05}", ended_at=None) for number in range(1500)]
    found = read_part(_store(tmp_path, sessions=rows)).findings
    missing = found.filter(pl.col("code") == "end.missing")
    assert missing.height == 1001
    assert missing["n_rows"].sum() == 1500
    rest = missing.filter(pl.col("entity_id").is_null())
    assert "500 more entities" in rest["message"][0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", a_few(range(5)))
def test_no_order_of_rows_in_the_file_matters(lionagi_samples, tmp_path, seed):
    with open_store(lionagi_samples / "0.36.0" / "state.db", label="x") as store:
        first = lionagi.read(store)
        second_path = _shuffled(store.copy, tmp_path / "state.db", seed)
    with open_store(second_path, label="x") as store:
        second = lionagi.read(store)
    key = list(schema.ENTITY_KEY)
    assert first.entities.sort(key).equals(second.entities.sort(key))
    by = ["code", "entity_type", "entity_id", "table", "column"]
    # Which of several bad cells is shown as the example may differ.
    kept = [name for name in schema.FINDINGS.dtypes if name != "example"]
    assert first.findings.select(kept).sort(by).equals(second.findings.select(kept).sort(by))
    for name in ("lionagi_schedules", "lionagi_dispositions"):
        columns = first.details[name].columns[:2]
        assert first.details[name].sort(columns).equals(second.details[name].sort(columns))


def _shuffled(source: Path, target: Path, seed: int) -> Path:
    with closing(sqlite3.connect(target)) as database:
        database.create_function("chance", 0, random.Random(seed).random)
        database.execute("ATTACH ? AS original", [str(source)])
        names = database.execute("SELECT name FROM original.sqlite_master WHERE type = 'table'")
        for (name,) in names.fetchall():
            if not name.startswith("sqlite_"):
                rows = f'SELECT * FROM original."{name}" ORDER BY chance()'
                database.execute(f'CREATE TABLE "{name}" AS {rows}')
        database.commit()
    return target


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({"sessions": ("id",)}, False),
        ({"sessions": ("id",), "branches": (), "progressions": ()}, False),
        ({"sessions": ("id", "progression_id"), "branches": (), "progressions": ()}, True),
    ],
)
def test_a_lionagi_store_is_recognised_by_its_tables(tables, expected):
    assert lionagi.recognises(SimpleNamespace(tables=tables)) is expected


def test_metadata_that_only_sqlite_can_read_cost_the_limit_and_nothing_else(tmp_path):
    endless = '{"timeout_seconds": 1, "a": ' + "9" * 5000 + "}"
    part = read_part(_store(tmp_path, sessions=[session("a", node_metadata=endless)]))
    assert part.entities["timeout_s"].to_list() == [None]
    assert "timeout.unreadable" in codes(part)


@pytest.mark.parametrize(
    ("stored_s", "expected_s"), [(NOW_S - 900, NOW_S - 900), (None, NOW_S - 700)]
)
def test_the_last_message_is_the_stored_one_else_the_newest(tmp_path, stored_s, expected_s):
    part = _one_message(tmp_path, last_message_at=stored_s)
    assert _one(part, "a")["last_message_at"] == datetime.fromtimestamp(expected_s, UTC)

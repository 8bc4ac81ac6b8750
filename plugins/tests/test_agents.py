"""Copilot CLI, Gemini CLI and spans of OpenTelemetry: systems that come as a package."""

import ast
import io
import json
import os
import shutil
import subprocess
import sys
import tomllib
from base64 import b64encode
from copy import deepcopy
from random import Random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stateanalytics_agents import copilot, gemini, otel

import stateanalytics as sa
from stateanalytics import plugin
from stateanalytics.otlp import as_otlp
from tests.conftest import ROOT
from tests.contract.recording import restore
from tests.samples import SAMPLES
from tests.test_plain_words import BANNED, texts

FOLDER = ROOT / "plugins"
STORES = FOLDER / "samples"
MODULES = sorted((FOLDER / "stateanalytics_agents").glob("*.py"))
SYSTEMS = (copilot, gemini, otel)
PRICES = """
as_of = 2026-11-28
[[price]]
input = 1.25
cache_write = 1.25
cache_read = 0.125
output = 10.0
[price.models]
"gemini-2.5-pro" = 2025-06-17
"gemini-2.5-flash" = 2025-06-17
"""
"""The list has none for Gemini, whose prices depend on the length of a prompt: one's own."""
INSTANTS = {
    "copilot": "2026-11-28T07:00:00Z",
    "gemini": "2026-11-28T07:02:21Z",
    "otel": "2026-11-28T07:19:44Z",
}
CHAIN = """
import json, sys
import polars as pl
import stateanalytics as sa
from stateanalytics.systems.history import facts_at

answers, known = {}, set(sa.reason_codes()["code"])
for name, (path, at) in json.loads(sys.argv[1]).items():
    snap = sa.read(path, progress=False)
    states = sa.states(snap)
    words = states.select(pl.col("lifecycle").cast(pl.String))
    calls = snap.table("calls")
    costs = sa.failures.costs(snap, prices=sys.argv[2])
    past = sa.states(facts_at(snap, at).facts).select(pl.col("lifecycle").cast(pl.String))
    answers[name] = {
        "systems": snap.sources["system"].to_list(),
        "findings": snap.findings.select("code", "n_rows").rows(),
        "states": words.group_by("lifecycle").len().sort("len", "lifecycle").rows(),
        "clusters": sa.failures.clusters(snap).select("code", "n_rows").sort("code").rows(),
        "calls": calls.group_by("tool", "outcome").len().sort("tool", "outcome").rows(),
        "spells": sa.survival.spells(snap).height,
        "past": past["lifecycle"].sort().to_list(),
        "report": len(sa.report(snap, window="2026-W48").as_html()),
        "audit": sa.audit(snap)["code"].unique().sort().to_list(),
        "codes": sorted(set(snap.entities["reason_code"].drop_nulls()) - known),
        "estimated": costs["estimated_usd"].sum(),
    }
print(json.dumps(answers, default=str))
"""


def install(folder):
    """The metadata of the package, as if it were installed."""
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text("utf-8"))["project"]
    info = folder / "stateanalytics_agents-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n")
    points = project["entry-points"]["stateanalytics.systems"]
    lines = ["[stateanalytics.systems]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = install(tmp_path_factory.mktemp("installed"))
    path = map(str, (ROOT, FOLDER, folder))
    prices = folder / "prices.toml"
    prices.write_text(PRICES)
    stores = {each.NAME: (str(STORES / each.NAME), INSTANTS[each.NAME]) for each in SYSTEMS}
    done = subprocess.run(
        [sys.executable, "-c", CHAIN, json.dumps(stores), prices],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows_of(system, path, *columns):
    return system.read(path, label="here").entities.select(*columns).rows()


def test_a_module_has_at_most_300_lines_and_imports_one_of_ours():
    for path in MODULES:
        text = path.read_text("utf-8")
        assert text.count("\n") <= 300, path
        found = {
            node.module
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom) and "stateanalytics" in node.module
        }
        ours = {name for name in found if not name.startswith("stateanalytics_agents")}
        assert ours <= {"stateanalytics", "stateanalytics.plugin"}, path


def test_its_texts_are_in_plain_english():
    found = [
        f"{path.name}:{line}: {match[0]}"
        for path in MODULES
        for line, text in texts(path)
        for match in BANNED.finditer(text)
    ]
    assert not found


def test_each_goes_through_the_whole_chain(answers):
    for name, each in answers.items():
        assert each["systems"] == [name]
        assert each["spells"] > 0
        assert each["report"] > 50_000
        assert each["codes"] == []


def test_copilot_gets_states_failures_and_calls(answers):
    each = answers["copilot"]
    assert each["findings"] == []
    assert each["states"] == [["running", 1], ["failed", 2], ["completed", 5]]
    assert each["clusters"] == [
        ["run.failed.provider_internal", 1],
        ["run.failed.provider_rate_limit", 1],
    ]
    assert each["calls"] == [
        *(["bash", "failed", 1], ["bash", "ok", 2], ["bash", "unknown", 1]),
        *(["task", "ok", 1], ["view", "denied", 1]),
    ]
    # At that instant two had ended, and one waited for a provider that did not answer.
    assert each["past"] == ["completed", "completed", "running"]


def test_gemini_gets_states_failures_and_calls(answers):
    each = answers["gemini"]
    assert each["findings"] == []
    assert each["states"] == [["cancelled", 1], ["failed", 1], ["running", 2], ["completed", 5]]
    assert each["clusters"] == [["run.failed.provider_quota", 1]]
    assert ["run_shell_command", "interrupted", 1] in each["calls"]
    assert each["past"] == ["completed", "running", "running"]


def test_spans_get_states_and_calls(answers):
    each = answers["otel"]
    assert each["findings"] == [["record.unknown_type", 1]]
    assert each["states"] == [["completed", 3]]
    assert each["past"] == ["completed", "running"]
    assert each["calls"] == [["bash", "ok", 3], ["task", "ok", 1], ["view", "denied", 1]]


def test_tokens_are_those_that_the_provider_billed():
    # The provider billed 1,500 tokens read, 300 of them cached, and 50 written for each answer.
    for system, n_answers in ((copilot, 10), (otel, 7)):
        used = system.read(STORES / system.NAME, label="here").details[f"{system.NAME}_usage"]
        assert used["n_input_tokens"].to_list() == [1500] * n_answers, system.NAME
        assert used["n_output_tokens"].sum() == 50 * n_answers
        assert used["n_cache_read_tokens"].sum() == 300 * n_answers


def test_costs_are_those_tokens_at_list_prices(answers):
    usd = 1200 * 1.25e-6 + 300 * 0.125e-6 + 50 * 10e-6
    assert answers["copilot"]["estimated"] == pytest.approx(10 * usd, abs=1e-6)
    assert answers["otel"]["estimated"] == pytest.approx(7 * usd, abs=1e-6)
    used = gemini.read(STORES / "gemini", label="here").details["gemini_usage"]
    read, cached, written = used.select(
        pl.sum("n_input_tokens", "n_cache_read_tokens", "n_output_tokens")
    ).row(0)
    usd = (read - cached) * 1.25e-6 + cached * 0.125e-6 + written * 10e-6
    assert answers["gemini"]["estimated"] == pytest.approx(usd, abs=3e-6)


def test_a_session_ends_by_its_shutdown_and_a_subagent_in_its_log():
    found = rows_of(copilot, STORES / "copilot", "kind", "raw_status", "n_turns", "n_running")
    assert sorted(found) == [
        *[("session", "ended", 1, 0)] * 4,
        *[("session", "failed", 1, 0)] * 2,
        ("session", "working", 1, 1),
        ("subagent", "ended", 1, 0),
    ]


def line(kind, second, **data):
    agent = {"agentId": data.pop("agent")} if "agent" in data else {}
    at = f"2026-11-28T09:00:{second:02d}Z"
    return {"type": kind, "data": data, "id": str(second), "timestamp": at, **agent}


def status_after(tmp_path, *lines):
    log = tmp_path / "events.jsonl"
    start = line("session.start", 0, sessionId="s", copilotVersion="1.0", startTime="-")
    log.write_text("".join(json.dumps(each) + "\n" for each in (start, *lines)))
    return rows_of(copilot, log, "raw_status", "reason_code", "ended_at")[0]


ASKED, ANSWER = line("user.message", 1, content="x"), line("assistant.message", 2, content="y")
TURN_END, SHUTDOWN = line("assistant.turn_end", 3), line("session.shutdown", 8)


@pytest.mark.parametrize(
    ("lines", "status", "code"),
    [
        ([], "new", None),
        ([ASKED], "working", None),
        ([ASKED, ANSWER, TURN_END], "answered", "run.completed.turn_ended"),
        ([ASKED, ANSWER, TURN_END, SHUTDOWN], "ended", "run.completed.turn_ended"),
        ([ASKED, line("permission.requested", 4, requestId="r")], "asking", None),
        ([ASKED, SHUTDOWN], "aborted", "run.aborted.shutdown_while_working"),
        ([ASKED, line("abort", 5, reason="user"), SHUTDOWN], "aborted", "run.aborted.user_abort"),
        ([ASKED, ANSWER, TURN_END, SHUTDOWN, line("session.resume", 9), ASKED], "working", None),
        (
            [ASKED, line("session.shutdown", 8, shutdownType="error", errorReason="out of disk")],
            "failed",
            "run.failed.provider_unknown",
        ),
    ],
)
def test_a_status_follows_from_the_events(tmp_path, lines, status, code):
    assert status_after(tmp_path, *lines)[:2] == (status, code)


def test_releases_without_usage_records_have_sums_at_the_shutdown(tmp_path):
    usage = {"inputTokens": 7, "outputTokens": 3, "cacheReadTokens": 2, "cacheWriteTokens": 0}
    metrics = {"gpt-5": {"requests": {"count": 2}, "usage": usage}}
    status_after(tmp_path, ASKED, ANSWER, line("session.shutdown", 8, modelMetrics=metrics))
    parts = copilot.read(tmp_path, label="here")
    assert parts.entities["n_input_tokens"].to_list() == [7]
    assert parts.details["copilot_usage"]["model"].to_list() == ["gpt-5"]


def test_a_chat_is_as_it_is_after_all_changes():
    found = rows_of(gemini, STORES / "gemini/tmp/byhand", "entity_id", "raw_status", "parent_id")
    assert sorted(found) == [
        ("child", "answered", "parent"),
        ("failed00", "failed", None),
        ("stopped0", "aborted", None),
    ]
    parts = gemini.read(STORES / "gemini" / "tmp" / "byhand", label="here")
    stopped = parts.entities.filter(entity_id="stopped0").to_dicts()[0]
    # What a person took back is not there, and was billed all the same; nobody recorded it.
    assert (stopped["n_turns"], stopped["n_input_tokens"]) == (2, None)
    child = parts.entities.filter(entity_id="child").to_dicts()[0]
    assert (child["n_input_tokens"], child["n_output_tokens"]) == (1003, 25)
    assert child["directory"] == "/contract/jobs/byhand"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["codex", "claude_code"])
def test_our_own_export_is_read_again_as_it_was(tmp_path, name):
    snap = sa.read(SAMPLES / name, progress=False)
    file = tmp_path / "spans.jsonl"
    file.write_text("".join(as_otlp(snap, redact=False)), "utf-8")
    parts = otel.read(file, label="here")
    assert parts.findings.is_empty()
    key = ["entity_type", "entity_id"]
    states = sa.states(snap).select(*key, pl.col("outcome").cast(pl.String))
    both = parts.entities.join(snap.entities, on=key, suffix="_before").join(states, on=key)
    assert both.height == parts.entities.height > 10
    for column in ("started_at", "ended_at", "n_input_tokens", "n_output_tokens", "cost_usd"):
        assert both[column].equals(both[f"{column}_before"].alias(column)), column
    words = {"completed": "ok", "failed": "error", "cancelled": "stopped"}
    assert both["raw_status"].to_list() == [words.get(each, each) for each in both["outcome"]]


def as_protobuf(record):
    """A message in the JSON of OTLP, whose ids are in hex, as octets of protobuf."""
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    def encoded(value):
        if isinstance(value, dict):
            return {
                key: b64encode(bytes.fromhex(each)).decode() if key.endswith(IDS) else encoded(each)
                for key, each in value.items()
            }
        return [encoded(each) for each in value] if isinstance(value, list) else value

    message = ParseDict(encoded(record), TracesData(), ignore_unknown_fields=True)
    return message.SerializeToString()


IDS = ("traceId", "spanId", "SpanId")


@pytest.mark.parametrize("has_lengths", [True, False])
def test_protobuf_is_read_as_json_is(tmp_path, has_lengths):
    texts = (STORES / "otel" / "copilot.jsonl").read_text("utf-8").splitlines()
    messages = [as_protobuf(json.loads(text)) for text in texts]
    if not has_lengths:
        messages, texts = messages[:1], texts[:1]
    (tmp_path / "spans.jsonl").write_text("\n".join(texts), "utf-8")
    begins = [len(each).to_bytes(4, "big") if has_lengths else b"" for each in messages]
    octets = b"".join(begin + each for begin, each in zip(begins, messages, strict=True))
    (tmp_path / "spans.pb").write_bytes(octets)
    read = [otel.read(tmp_path / name, label="here") for name in ("spans.jsonl", "spans.pb")]
    for name in ("entities", "transitions", "events"):
        assert getattr(read[0], name).equals(getattr(read[1], name)), name
    assert read[0].details["otel_usage"].equals(read[1].details["otel_usage"])
    (tmp_path / "spans.pb").write_bytes(octets[:-7])
    assert otel.read(tmp_path / "spans.pb", label="here").findings["code"][0] == "file.unreadable"


def test_without_its_package_protobuf_is_a_finding(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.trace.v1.trace_pb2", None)
    (tmp_path / "spans.pb").write_bytes(b"\n\x00")
    findings = otel.read(tmp_path, label="here").findings
    assert findings["code"].to_list() == ["file.needs_protobuf"]


def span(name, number, parent=None, **attributes):
    listed = [{"key": key.replace("__", "."), "value": value} for key, value in attributes.items()]
    return {
        "traceId": "0" * 32, "spanId": f"{number:016x}", "name": name, "attributes": listed,
        "startTimeUnixNano": str(1_795_000_000_000_000_000 + number * 10**9),
        "endTimeUnixNano": str(1_795_000_100_000_000_000 + number * 10**9),
        **({"parentSpanId": f"{parent:016x}"} if parent is not None else {}),
    }  # fmt: skip


def read_spans(tmp_path, *spans):
    groups = [{"resource": {}, "scopeSpans": [{"spans": list(spans)}]}]
    (tmp_path / "spans.json").write_text(json.dumps({"resourceSpans": groups}, indent=1))
    return otel.read(tmp_path, label="here")


def test_requests_without_an_agent_make_a_conversation_a_run(tmp_path):
    old = {
        "gen_ai__usage__prompt_tokens": {"intValue": "9"},
        "gen_ai__system": {"stringValue": "x"},
    }
    chat = {"gen_ai__operation__name": {"stringValue": "chat"}, **old}
    error = {"error__type": {"stringValue": "rate_limit_exceeded"}}
    failed = {**span("chat m", 2, **chat, **error), "status": {"code": 2, "message": "slow down"}}
    parts = read_spans(tmp_path, span("chat m", 1, **chat), failed)
    (row,) = parts.entities.to_dicts()
    assert (row["entity_id"], row["raw_status"], row["n_input_tokens"]) == ("0" * 32, "error", 18)
    assert row["reason_code"] == "run.failed.provider_rate_limit"


def test_spans_whose_parents_go_in_a_circle_are_runs_all_the_same(tmp_path):
    agent = {"gen_ai__operation__name": {"stringValue": "invoke_agent"}}
    parts = read_spans(tmp_path, span("a", 1, 2, **agent), span("b", 2, 1, **agent))
    assert parts.entities.height == 2


TEXTS = {
    each.NAME: sorted(
        path for path in (STORES / each.NAME).rglob("*.json*") if path.stat().st_size < 30_000
    )
    for each in SYSTEMS
}
HOSTILE = (
    *(None, True, -1, 1e308, float("nan"), "9" * 400, 10**30, "", "<script>", "\ud800", "\x00"),
    *("2026-13-99", "Request cancelled.", [], {}, [{}, 3], {"a": {}}),
)


def mutated(text, random):
    """The lines of a file: some changed, some cut, some twice, in another order."""
    lines = [json.loads(each) for each in text.splitlines()]
    for _ in range(random.randrange(8)):
        place = random.choice(lines)
        while isinstance(place, dict | list) and place:
            key = random.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if random.random() < 0.3 or not isinstance(place[key], dict | list):
                place[key] = deepcopy(random.choice(HOSTILE))
                break
            place = place[key]
    said = [json.dumps(each) for each in lines]
    if random.random() < 0.5:
        random.shuffle(said)
    said += random.choices(said, k=2)
    return "\n".join(each[:60] if random.random() < 0.1 else each for each in said)


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.NAME)
@given(seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_broken_and_hostile_lines_are_findings_and_never_errors(tmp_path_factory, system, seed):
    random = Random(seed)
    several = [path for path in TEXTS[system.NAME] if path.suffix == ".jsonl"]
    text = random.choice(several).read_text("utf-8")
    folder = tmp_path_factory.mktemp("mutated")
    file = folder / "events.jsonl"
    # The first line is why a file is read at all.
    first = text.splitlines()[0]
    file.write_bytes(f"{first}\n{mutated(text, random)}".encode("utf-8", "replace"))
    parts = system.read(file, label="here")
    for frame in ("entities", "transitions", "events", "findings"):
        shape = getattr(plugin.schema, frame.upper())
        assert getattr(parts, frame).schema == shape.dtypes
    for frame in system.FRAMES:
        assert parts.details[frame.name].schema == frame.dtypes
    known = set(parts.entities["entity_id"])
    assert set(parts.transitions["entity_id"]) <= known
    assert set(parts.events["entity_id"]) <= known
    parts.entities.write_parquet(io.BytesIO())
    shutil.rmtree(folder)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.NAME)
@pytest.mark.parametrize("octets", [b"", b"\n\n", b"{}", b"\xff\xfe", b"{" * 3000, b"\x00" * 9])
def test_files_without_records_are_not_ours_or_empty(tmp_path, system, octets):
    for name in ("events.jsonl", "session-1.json", "x.pb"):
        (tmp_path / name).write_bytes(octets)
        found = system.find(tmp_path / name)
        assert found == [] or system.read(found[0], label="here").entities.is_empty()
    assert system.find(tmp_path / "nowhere") == []


@pytest.mark.slow
def test_families_that_share_a_format_are_a_path(tmp_path):
    """A fork of opencode, and a home with transcripts like those of Claude Code."""
    restore(ROOT / "tests" / "recorded" / "opencode", tmp_path / "opencode")
    (tmp_path / "kilo").mkdir()
    shutil.copy(tmp_path / "opencode" / "opencode.db", tmp_path / "kilo" / "kilo.db")
    shutil.copytree(ROOT / "tests" / "recorded" / "claude", tmp_path / "other")
    for name, system in (("kilo", "opencode"), ("other", "claude_code")):
        assert sa.read(tmp_path / name, progress=False).sources["system"].to_list() == [system]

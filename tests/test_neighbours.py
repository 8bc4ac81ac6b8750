"""What leaves is what others' own readers read."""

import base64
import json
import sqlite3
from contextlib import closing

import click
import pytest

from stateanalytics import cli
from stateanalytics.cli.output import put, refuse_input_as_output
from stateanalytics.errors import ArgumentError
from stateanalytics.otlp import SCHEMA_URL, as_otlp
from stateanalytics.sql.frames import VIEWS
from tests.conftest import component
from tests.frames import AS_OF, ago, facts


def ended(entity_type, entity_id, **more):
    moments = {"created_at": ago(hours=3), "started_at": ago(hours=3), "ended_at": ago(hours=2)}
    row = {"entity_type": entity_type, "entity_id": entity_id, "raw_status": "completed"}
    return {**row, **moments, **more}


FAMILY = [
    ended("invocation", "i"),
    ended("session", "s", invocation_id="i", agent="coder", model="m", n_input_tokens=2**60),
    ended("engine_run", "p", session_id="s", raw_status="failed", reason_code="x.y"),
    ended("session", "t", raw_status="failed", reason_message="key sk-" + "a1B2" * 12),
    ended("session", "open", raw_status="running", ended_at=None),
]


def spans_of(snap):
    """Spans as the protobuf of OpenTelemetry parses them, whose JSON has ids in hex."""
    trace = component("opentelemetry.proto.trace.v1.trace_pb2")
    parse = component("google.protobuf.json_format").Parse
    for line in as_otlp(snap):
        told = json.loads(line)
        for scope in told["resourceSpans"][0]["scopeSpans"]:
            for span in scope["spans"]:
                for name in {"traceId", "spanId", "parentSpanId"} & {*span}:
                    span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        parsed = parse(json.dumps(told), trace.TracesData()).resource_spans[0]
        assert parsed.schema_url == SCHEMA_URL
        yield from parsed.scope_spans[0].spans


def attributes(span):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_spans_are_those_that_ended_each_below_its_own():
    found = {attributes(one)["stateanalytics.entity.id"]: one for one in spans_of(facts(FAMILY))}
    assert {*found} == {"i", "s", "p", "t"}
    above, run, play, other = (found[name] for name in "ispt")
    assert run.parent_span_id == above.span_id
    assert play.parent_span_id == run.span_id
    assert above.trace_id == run.trace_id == play.trace_id != other.trace_id
    assert not above.parent_span_id and not other.parent_span_id
    assert (len(run.trace_id), len(run.span_id)) == (16, 8)
    assert run.end_time_unix_nano == (AS_OF.timestamp() - 7200) * 10**9
    told = attributes(run)
    assert run.name == "invoke_agent coder"
    assert told["gen_ai.operation.name"] == "invoke_agent"
    assert told["gen_ai.usage.input_tokens"] == 2**60
    assert "error.type" not in told


def test_failed_spans_say_why_without_secrets():
    found = {attributes(one)["stateanalytics.entity.id"]: one for one in spans_of(facts(FAMILY))}
    assert found["p"].status.code == found["t"].status.code == 2
    assert attributes(found["p"])["error.type"] == "x.y"
    assert attributes(found["t"])["error.type"] == "_OTHER"
    assert found["t"].status.message.startswith("key ")
    assert "a1B2" not in found["t"].status.message


def test_spans_do_not_depend_on_the_order_of_rows():
    assert [*as_otlp(facts(FAMILY))] == [*as_otlp(facts(FAMILY[::-1]))]
    assert [*as_otlp(facts([]))] == []


@pytest.mark.slow
def test_views_as_files_give_what_the_snapshot_gives(demo, tmp_path, capsys):
    assert cli.run(["export", "--views", str(tmp_path)]) == 0
    assert cli.run(["sql", "--views", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out.partition("\n")[2])
    printed = {row["name"]: row["sql"] for row in rows}
    with closing(demo.duckdb()) as connection:
        for view in VIEWS:
            query = (tmp_path / f"{view.frame.name}.sql").read_text("utf-8")
            assert view.sql.strip() == printed[view.frame.name]
            found = connection.sql(query).pl()
            assert found.columns == [column.name for column in view.frame.columns]
            assert found.height == demo.table(view.frame.name).height


@pytest.mark.slow
def test_an_export_comes_with_metadata_for_datasette(demo, tmp_path, capsys):
    database, metadata, spans = (tmp_path / name for name in ("w.sqlite", "w.json", "w.jsonl"))
    store = str(demo.inputs[0])
    only = [part for name in ("entities", "states") for part in ("--only", name)]
    places = ["-o", str(database), "--metadata", str(metadata), "--otlp", str(spans)]
    assert cli.run(["export", store, *places, *only]) == 0
    tables = json.loads(metadata.read_text("utf-8"))["databases"]["w"]["tables"]
    with closing(sqlite3.connect(database)) as connection:
        for name, told in tables.items():
            there = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            assert [*told["columns"]] == there
    assert {*tables} == {"entities", "states"}
    assert tables["states"]["columns"]["age_s"].endswith("(s)")
    assert spans.read_text("utf-8").count("\n") == 1


def test_an_export_to_nowhere_says_what_to_type(capsys):
    assert cli.run(["export", "state.db"]) == 2
    assert "--otlp spans.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["output", "metadata", "otlp", "metrics_file"])
def test_what_was_written_is_written_again_and_what_was_named_to_be_read_is_not(tmp_path, option):
    kept, policy = tmp_path / "kept", tmp_path / "policy.toml"
    for path in (kept, policy):
        path.write_text("old")
    with click.Context(click.Command("x")) as context:
        context.params = {option: kept, "policy": str(policy)}
        refuse_input_as_output(kept)
        put(b"new", kept)
        with pytest.raises(ArgumentError, match="which was read"):
            put(b"new", policy)
    assert kept.read_text() == "new"


def test_two_outputs_of_one_name_are_refused(capsys):
    assert cli.run(["export", "state.db", "-o", "x.sqlite", "--metadata", "./x.sqlite"]) == 2
    assert "Two outputs have the same name" in capsys.readouterr().err

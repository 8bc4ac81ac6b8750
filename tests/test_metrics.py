"""Metrics are what the snapshot says, in a form that the parsers of others read."""

import json
import re
import shutil
import subprocess
from types import SimpleNamespace

import polars as pl
import pytest
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from stateanalytics import cli
from stateanalytics.errors import ArgumentError
from stateanalytics.metrics import MOST_VALUES, POOLED, as_openmetrics, few, limits
from tests.conftest import ROOT, component
from tests.frames import ago, facts

RULES, DASHBOARD = ROOT / "deploy" / "alerts.yml", ROOT / "deploy" / "dashboard.json"
OF_KINDS = [
    *((None, [], "silence", 60.0), ("agent", [], "silence", 3600.0)),
    *(("agent", [], "silence", 7200.0), ("agent", [], "slow", 86_400.0)),
    ("other", ["agent"], "slow", 10.0),
]
LIMITS = pl.DataFrame(
    [("lionagi", *row) for row in OF_KINDS],
    schema=["system", "kind", "other_kinds", "measure", "limit_s"],
    orient="row",
)


def samples(text):
    """What another's parser reads: the value of each name with its labels."""
    return {
        (sample.name.removeprefix("stateanalytics_"), *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def running(entity_id, kind, **hours):
    at = ago(**hours)
    moments = dict.fromkeys(("started_at", "created_at", "updated_at", "last_message_at"), at)
    named = {"entity_id": entity_id, "kind": kind, "raw_status": "running"}
    return {**named, **moments, "last_activity_at": at}


def failed(entity_id, **more):
    return {
        "entity_id": entity_id, "kind": "agent", "raw_status": "failed",
        "started_at": ago(hours=3), "ended_at": ago(hours=2), "model": "m", "provider": "p",
        "n_input_tokens": 5, "n_output_tokens": 2, "cost_usd": 0.25, **more,
    }  # fmt: skip


def test_open_runs_are_held_against_the_narrowest_limit_of_their_kind():
    agents = running("a", "agent", hours=1.5), running("b", "agent", hours=3)
    others = running("c", "flow", hours=0.1), running("d", None, hours=0.001)
    told = samples(as_openmetrics(facts([*agents, *others]), limits=LIMITS))
    assert told["open_runs", "agent", "lionagi"] == 2
    assert told["open_run_silence_seconds", "agent", "lionagi"] == 3 * 3600
    assert told["limit_seconds", "agent", "lionagi", "silence"] == 7200, "past all of them"
    assert told["open_runs_past_limit", "agent", "lionagi", "silence"] == 1
    assert told["open_runs_past_limit", "agent", "lionagi", "slow"] == 0
    assert told["limit_seconds", "flow", "lionagi", "silence"] == 60, "that of every kind"
    assert told["open_runs_past_limit", "flow", "lionagi", "slow"] == 1, "one of the others"
    assert told["open_runs_past_limit", "lionagi", "none", "silence"] == 0


def test_what_ended_in_a_day_is_told_by_error_model_and_token():
    a, b = failed("a", reason_code="run.failed.exception"), failed("b")
    c, d = failed("c", ended_at=ago(hours=25)), failed("d", raw_status="completed", model=None)
    text = as_openmetrics(facts([a, b, c, d]))
    told = samples(text)
    assert told["day_ended_runs", "failed", "lionagi", "run.failed.exception"] == 1
    assert told["day_ended_runs", POOLED, "failed", "lionagi"] == 1
    assert told["day_ended_runs", "completed", "lionagi"] == 1
    assert told["day_tokens", "input", "lionagi", "m", "p"] == 10
    assert told["day_tokens", "lionagi", "none", "output", "p"] == 2
    assert told["day_cost_usd", "lionagi", "m", "p"] == 0.5
    assert 'gen_ai_token_type="input"' in text
    assert "limit_seconds" not in text, "nobody gave limits"


def test_hostile_texts_stay_labels_few_and_without_secrets():
    models = [f"m{number}" for number in range(40)]
    odd = 'x"} 1\n# EOF\\', "sk-" + "a1B2" * 12, "y" * 300
    rows = [failed(str(n), model=model) for n, model in enumerate([*models, *odd * 2])]
    text = as_openmetrics(facts(rows))
    told = [key for key in samples(text) if key[0] == "day_tokens" and "input" in key]
    assert len(told) == MOST_VALUES + 1
    assert any(odd[0] in key for key in told)
    assert odd[1] not in text and odd[2] not in text
    assert samples(text)["day_tokens", POOLED, "input", "lionagi", "p"] == 5 * 33


def test_what_acts_or_is_not_seen_is_no_part_of_a_label():
    models = ["a", "\x1b[31ma", "a\r", "\u202ea\x00\x07"]
    text = as_openmetrics(facts([failed(str(n), model=name) for n, name in enumerate(models)]))
    assert samples(text)["day_tokens", "a", "input", "lionagi", "p"] == 20
    assert text.isascii() and text.replace("\n", "").isprintable()


def test_the_order_of_rows_and_empty_facts_change_nothing():
    rows = [failed(str(n), cost_usd=0.1 * n, model=f"m{n % 3}") for n in range(20)]
    assert as_openmetrics(facts(rows)) == as_openmetrics(facts(rows[::-1]))
    of_nothing = samples(as_openmetrics(facts([]), limits=LIMITS))
    assert of_nothing.keys() == {("as_of_timestamp_seconds",)}
    with pytest.raises(ArgumentError, match="metrics needs"):
        as_openmetrics("state.db")


def test_the_text_is_what_the_client_of_prometheus_writes():
    rows = [failed("a", model='x"\\\n', cost_usd=1e-7), running("b", None, hours=1)]
    text = as_openmetrics(facts(rows), limits=LIMITS)
    read_back = SimpleNamespace(collect=lambda: text_string_to_metric_families(text))
    assert generate_latest(read_back).decode() == text
    assert text.startswith("# HELP stateanalytics_as_of_timestamp_seconds ")
    assert "# UNIT stateanalytics_day_cost_usd usd\n" in text


def test_null_is_no_value_of_its_own():
    texts = pl.DataFrame({"code": [None, None, *(f"c{n:02}" for n in range(MOST_VALUES)), "c00"]})
    told = texts.select(few("code")).to_series()
    assert told.null_count() == 2
    assert POOLED not in told


def test_rules_and_dashboard_name_only_what_is_written():
    text = as_openmetrics(facts([running("a", "agent", hours=3), failed("b")]), limits=LIMITS)
    there = {f"stateanalytics_{key[0]}" for key in samples(text)}
    there |= {*re.findall(r"stateanalytics_[a-z_]+", text)}
    labels = {*re.findall(r"(\w+)=\"", text)}
    rules = component("yaml").safe_load(RULES.read_text("utf-8"))["groups"][0]["rules"]
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    asked = [rule["expr"] for rule in rules]
    asked += [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(rules) == 3
    for question in asked:
        named = re.findall(r"stateanalytics_[a-z_]+", question)
        assert named and {*named} <= there, question
        used = ",".join(re.findall(r"(?:by \(|\{)(.*?)[)}]", question))
        assert {*re.findall(r"[a-z_]+(?=[=!,]|$)", re.sub(r'".*?"', "", used))} <= labels, question


def test_promtool_accepts_the_rules_and_the_metrics():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here")
    subprocess.run([promtool, "check", "rules", str(RULES)], check=True, timeout=60)
    text = as_openmetrics(facts([failed("a"), running("b", "agent", hours=2)]), limits=LIMITS)
    subprocess.run([promtool, "check", "metrics"], input=text.encode(), check=True, timeout=60)


@pytest.mark.slow
def test_the_command_writes_what_watch_keeps(tmp_path, capsys):
    store, file = str(ROOT / "data" / "samples" / "state.db"), tmp_path / "x.prom"
    assert cli.run(["export", store, "--metrics", "-"]) == 0
    text = capsys.readouterr().out
    told = samples(text)
    assert told["open_runs", "agent", "lionagi"] == 7
    assert told["limit_seconds", "agent", "lionagi", "silence"] == 21_600
    assert cli.run(["watch", store, "--metrics", str(file), "--every", ".01", "--looks", "1"]) == 0
    kept = samples(file.read_text("utf-8"))
    shows = ("entities", "info", "lionagi", "show")
    assert kept[shows] == told[shows]
    assert kept["as_of_timestamp_seconds",] > told["as_of_timestamp_seconds",], "by the clock"
    assert cli.run(["watch", store, "--metrics", store, "--looks", "1"]) == 2
    assert "which was read" in capsys.readouterr().err


@pytest.mark.slow
def test_limits_are_those_of_the_advice(demo):
    held = limits(demo)
    assert {*held["measure"]} == {"silence", "slow", "time_limit"}
    assert held.filter(kind="agent", measure="silence")["limit_s"].to_list()[0] == 21_600

"""Seed 004's case, from files to the page: what a content filter stopped never reads as success."""

import json
from itertools import product
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.reporting.material import Material
from stateanalytics.reporting.sections.attention import summarize_attention
from stateanalytics.reporting.sections.failures import summarize_failures
from stateanalytics.reporting.sections.headline import summarize_headline
from tests.examples import a_few
from tests.opencode_logs import T0, event, in_sessions, step, write
from tests.report_parts import material_of

CODE = "run.failed.content_filtered"
CUT_OFF = "invocation.aborted.execution_ended"
CHAIN = "Failed · Blocked by provider content filter"
GOOD = ("completed", "succeeded", "merged")
FILES = {
    # A gateway wrote one of them as a request that is invalid, with the words of its filter.
    "V1 and A, a log": ("v1_1.18.34/event_table.jsonl", {"V1", "A"}, 5),
    "V1 and A, a database": ("v1_1.18.34/opencode.db", {"V1", "A"}, 5),
    "B, a log": ("v2_20260717/event_table.jsonl", {"B"}, 4),
    "B, a database": ("v2_20260717/opencode-local.db", {"B"}, 4),
    "C": ("synthetic/v2_edge_cases.jsonl", {"C"}, 1),
}


class Case(NamedTuple):
    """One file, the number of blocked sessions in it, and what its report is made from."""

    snap: sa.Snapshot
    n: int
    material: Material

    @property
    def blocked(self) -> list[str]:
        """Ids of all that a filter stopped: executions, their steps and turns, and sessions."""
        executions = self.snap.detail("opencode_executions").filter("is_blocked")
        steps = self.snap.detail("opencode_steps").filter("is_blocked")
        turns = executions.select(pl.concat_str("session_id", pl.lit(":turn:"), "turn_no"))
        ended = executions.filter("is_last")["session_id"]
        return [*executions["entity_id"], *steps["entity_id"], *turns.to_series(), *ended]


@pytest.fixture(scope="module", params=a_few(FILES))
def case(request, shared: Path) -> Case:
    path, eras, n = FILES[request.param]
    snap = sa.read(shared / "samples" / "opencode" / path, progress=False)
    blocked = snap.detail("opencode_executions").filter("is_blocked")
    assert set(blocked["era"]) == eras
    return Case(snap, n, material_of(snap))


def test_states_say_failed_blocked_and_critical(case):
    states = sa.states(case.snap).filter(pl.col("entity_id").is_in(case.blocked))
    assert states.filter(pl.col("entity_type") == "execution").height >= case.n
    judged = states.select("lifecycle", "outcome", "severity", "tone", "is_terminal").unique()
    assert judged.rows() == [("failed", "failed", "critical", "danger", True)]
    assert states["display"].str.contains("Blocked by provider content filter").all()
    parts = states.filter(pl.col("entity_type") != "session")
    assert parts["display"].str.starts_with(CHAIN).all()
    assert states["reason_codes"].str.contains("content_filtered").all()
    stored = case.snap.entities.filter(pl.col("entity_id").is_in(case.blocked))["reason_code"]
    assert stored.str.ends_with("failed.content_filtered").all()


def test_reasons_name_the_filter_and_who_blocked(case):
    told = sa.reasons(case.snap).filter(pl.col("code") == CODE)
    assert told.filter(pl.col("entity_type") == "execution").height >= case.n
    assert set(told["claim_status"].cast(pl.String)) <= {"observed", "inferred"}
    keys = ["source", "entity_type", "entity_id"]
    delivered = sa.reasons(case.snap).join(told, on=keys, how="semi")
    assert "run.delivery.blocked_by_provider" in delivered["code"].to_list()


def test_failures_by_code_count_each_work_once(case):
    found = sa.failures.codes(case.snap).filter(code=CODE)
    assert found["n_rows"].to_list() == [case.n]


def test_sql_finds_it_in_every_table(case):
    found = case.snap.sql(
        "SELECT count(*) FROM entities JOIN states USING (source, system, entity_type, entity_id) "
        "WHERE reason_code = $code AND entity_type = 'execution' AND outcome = 'failed'",
        {"code": CODE},
    )
    n_executions = case.snap.detail("opencode_executions").filter("is_blocked").height
    assert found.item() == n_executions
    for table in ("reasons", "attention"):
        told = case.snap.sql(f"SELECT count(*) FROM {table} WHERE code = $code", {"code": CODE})
        assert told.item() >= case.n, table
    details = case.snap.sql(
        "SELECT count(*) FROM opencode_executions AS run JOIN states "
        "ON states.entity_id = run.entity_id WHERE is_blocked AND states.outcome IN "
        "('completed', 'succeeded', 'merged')"
    )
    assert details.item() == 0


def test_the_report_shows_it_and_no_rate_counts_it_as_good(case):
    failures = summarize_failures(case.material)
    codes = {one["code"]: one["n_rows"] for one in failures["codes"]}
    assert codes[CODE] == case.n
    items = summarize_attention(case.material)["ended"]["items"]
    assert any(one["display"].startswith(CHAIN) for one in items)
    numbers = summarize_headline(case.material)["numbers"]
    completed = next(one for one in numbers if one["name"] == "completed")
    good = sa.states(case.snap).filter(pl.col("outcome").cast(pl.String).is_in(GOOD))
    good = good.filter(entity_type="session")
    assert completed["n"] == good.height
    last = case.snap.detail("opencode_executions").filter("is_blocked", "is_last")
    assert not set(good["entity_id"]) & set(last["session_id"])


@pytest.mark.slow
def test_a_blocked_turn_that_the_session_outlived_stays_a_failure(tmp_path: Path) -> None:
    lines = [
        event(0, "execution.started"),
        step(1, "step.started", "msg_1"),
        step(2, "step.ended", "msg_1", finish="content-filter"),
        *(event(3, "execution.succeeded"), event(4, "execution.started")),
        step(5, "step.started", "msg_2"),
        step(6, "text.ended", "msg_2", text="another way"),
        step(7, "step.ended", "msg_2", finish="stop"),
        event(8, "execution.succeeded"),
    ]
    log = write(tmp_path / "log.jsonl", lines)
    with sa.read(log, progress=False) as snap:
        states = {row["entity_id"]: row for row in sa.states(snap).to_dicts()}
        failures = summarize_failures(material_of(snap))
        listed = sa.attention(snap)["display"].to_list()
    assert states["ses_a"]["outcome"] == "completed"
    assert states["ses_a:turn:1"]["outcome"] == "failed"
    assert {one["code"] for one in failures["codes"]} == {CODE}
    assert any(display.startswith(CHAIN) for display in listed)


SPELLINGS = ("content-filter", "content_filter", "CONTENT_FILTER", "refusal", "SAFETY", "safety")
BY_HAND = event(2, "execution.interrupted", reason="user")
ENDS = {
    "failed": (event(2, "execution.failed", error={"type": "unknown"}), CUT_OFF),
    "shut down": (event(2, "execution.interrupted", reason="shutdown"), CUT_OFF),
    "timed out": (event(2, "execution.interrupted", reason="inactivity"), CUT_OFF),
    "succeeded": (event(2, "execution.succeeded"), CUT_OFF),
    "stopped by a person": (BY_HAND, "invocation.cancelled.aborted"),
    "crashed": (event(2, "execution.started"), "invocation.failed.stale_after_crash"),
}
SPELT = {
    f"{word} as {field} {'after' if text else 'without'} words": [
        event(0, "execution.started"),
        step(1, "step.started"),
        *([step(2, "text.ended", text=text)] if text else []),
        step(3, "step.ended", **{"finish": "stop"} | {field: word}),
        event(4, "execution.succeeded"),
    ]
    for word, field, text in product(SPELLINGS, ("finish", "rawFinish"), ("", "half an answer"))
}
SPELT["a step that failed"] = [
    event(0, "execution.started"),
    step(1, "step.started"),
    step(2, "step.failed", finish="content-filter", error={"type": "unknown", "message": ""}),
    event(3, "execution.succeeded"),
]
WITHOUT_EXECUTIONS = {
    f"{word} in an era without executions": [
        event(0, "next.prompted", input={"id": "in_1"}),
        step(1, "next.step.started"),
        step(2, "next.step.ended", finish=word),
    ]
    for word in SPELLINGS
}
BEGUN = event(0, "execution.started"), step(1, "step.started")
OPEN = {name: [*BEGUN, end] for name, (end, _) in ENDS.items()}


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> tuple[pl.DataFrame, ...]:
    """States, reasons and findings of each of these lives, which are sessions of one log."""
    log = tmp_path_factory.mktemp("lives") / "log.jsonl"
    write(log, in_sessions(SPELT | WITHOUT_EXECUTIONS | OPEN))
    with sa.read(log, progress=False) as snap:
        whose = pl.col("entity_id").str.split(":").list.first().alias("life")
        frames = (sa.states(snap), sa.reasons(snap), snap.findings)
        return tuple(frame.with_columns(whose) for frame in frames)


def outcomes(states: pl.DataFrame, entity_type: str) -> list[str]:
    return states.filter(entity_type=entity_type)["outcome"].cast(pl.String).to_list()


def test_a_content_filter_is_never_a_success_however_it_is_spelt(lives):
    """Each spelling in each field, with text and without, in a session of its own."""
    states = lives[0].filter(pl.col("life").is_in(list(SPELT)))
    for whose in ("step", "execution", "turn", "session"):
        assert outcomes(states, whose) == ["failed"] * len(SPELT), whose
    sessions = states.filter(entity_type="session")
    assert set(sessions["severity"].cast(pl.String)) == {"critical"}
    stored = lives[2].filter(code="outcome.blocked_as_success")
    assert {f"{life}:execution:1" for life in SPELT} <= set(stored["entity_id"])


@pytest.mark.slow
@pytest.mark.parametrize("spellings", a_few([[SPELLINGS[0]], [*SPELLINGS]]))
def test_messages_that_a_content_filter_ended_are_no_success(tmp_path, spellings):
    cases = list(product(spellings, ("finish", "rawFinish")))
    for n, (word, field) in enumerate(cases):
        info = {"id": f"msg_{n}", "sessionID": f"ses_{n}", "role": "assistant", "finish": "stop"}
        info |= {"time": {"created": T0, "completed": T0 + 9}, field: word}
        document = {"info": {"id": f"ses_{n}"}, "messages": [{"info": info, "parts": []}]}
        (tmp_path / f"export_{n}.json").write_text(json.dumps(document), "utf-8")
    with sa.read(tmp_path, progress=False) as snap:
        states = sa.states(snap)
    assert outcomes(states, "session") == ["failed"] * len(cases)
    assert set(states["outcome"].cast(pl.String)) == {"failed"}


def test_an_era_without_executions_ends_at_a_content_filter_too(lives):
    states = lives[0].filter(pl.col("life").is_in(list(WITHOUT_EXECUTIONS)))
    for whose in ("session", "step"):
        assert outcomes(states, whose) == ["failed"] * len(SPELLINGS), whose


def test_an_open_step_is_stale_only_after_a_crash(lives):
    told = lives[1].filter(pl.col("life").is_in(list(ENDS)), entity_type="step")
    found = dict(zip(told["life"], told["code"], strict=True))
    assert found == {name: code for name, (_, code) in ENDS.items()}
    assert told.height == len(ENDS)
    assert set(found.values()) <= set(sa.reason_codes()["code"])

"""One fault has one cause, whichever system met it; a cell that cannot be recorded says why."""

import itertools
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.failures.cause_groups import add_cause_groups
from stateanalytics.systems.reading import read_facts
from stateanalytics.systems.situations import cause_of_error
from tests import test_claude_code as claude
from tests import test_codex as codex
from tests.ao_trees import lifecycle, write_json
from tests.conftest import SHARED
from tests.examples import a_few
from tests.lionagi_stores import session, write_store
from tests.opencode_logs import event as log_event
from tests.opencode_logs import facts_of as log_facts
from tests.opencode_logs import step as log_step
from tests.opencode_logs import v1_call, v1_export, v1_message
from tests.transcripts import begun_rollout, begun_transcript
from tests.transcripts import facts_of as transcript_facts

AUTH = '{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'
BAD = '{"type":"error","error":{"type":"invalid_request_error","message":"no such field"}}'
LIMIT = "You've hit your session limit \u00b7 resets 9pm"
# The words of a provider, the tag and status of it in each client, and the one cause.
PROVIDER = {
    "401": (AUTH, "authentication_failed", "unauthorized", 401, "provider_auth"),
    "400": (BAD, "invalid_request", "bad_request", 400, "provider_invalid_request"),
    "429": ("Too Many Requests", "rate_limit", {"x": 429}, 429, "provider_rate_limit"),
    "529": ("API Error: 529 overloaded_error", "server_error", "other", 529, "provider_internal"),
    "overloaded": ("Overloaded", "overloaded", "server_overloaded", 503, "provider_internal"),
    "overflow": ("prompt is too long: 215000 tokens > 200000 maximum",
                 "invalid_request", "context_window_exceeded", 400, "context_overflow"),
    "stream cut": ("stream disconnected before completion: Transport error",
                   "unknown", "other", None, "provider_transport"),
    "quota": ("You exceeded your current quota, please check your plan and billing details.",
              "rate_limit", "usage_limit_exceeded", 429, "provider_quota"),
    "credit": ("Your credit balance is too low",
               "billing_error", "usage_limit_exceeded", 400, "provider_quota"),
    "session limit": (LIMIT, "rate_limit", "usage_limit_exceeded", 429, "provider_quota"),
    "certificate": ("unable to verify the first certificate",
                    "unknown", "other", None, "provider_transport"),
    "output limit": ("API Error: Claude's response exceeded the 32000 output token maximum.",
                     "max_output_tokens", "other", None, "truncated_length"),
    "refusal": ("Output blocked by content filtering policy",
                "invalid_request", "other", 400, "content_filtered"),
}  # fmt: skip


def codes_of(facts: Facts, entity_type: str = "session") -> list[str]:
    codes = sa.states(facts).filter(entity_type=entity_type)["reason_codes"].drop_nulls()
    return [code for text in codes for code in text.split(", ")]


def causes_of(facts: Facts, entity_type: str = "session") -> list[str]:
    return [code.rpartition(".")[2] for code in codes_of(facts, entity_type)]


def of_claude(path, words, tag, _, status, *, has_tag):
    told = begun_transcript()
    told.api_error(words, *((tag, status) if has_tag else (None, None)))
    return transcript_facts(path, told)


def of_codex(path, words, _, tag, status, *, has_tag):
    told = begun_rollout()
    info = codex.http(status) if isinstance(tag, dict) else tag
    told.complete(None, error={"message": words, "codex_error_info": info if has_tag else "other"})
    return transcript_facts(path, told)


def of_opencode(path, words, _tag, _info, status, *, has_tag):
    data = {"message": words} | ({"statusCode": status} if has_tag and status else {})
    error = {"name": "APIError" if has_tag else "UnknownError", "data": data}
    answer = v1_message(2, error=error, finish=None)
    return v1_export(path, v1_message(1, "user"), answer)


def of_agent_orchestrator(path, words, *_, has_tag):
    """A chat's turn that failed has the words of its agent, and nothing else."""
    del has_tag
    return go_store_of(path, "failed", words)


def go_store_of(path, state, words):
    """The sample of the rewrite, with all turns of its chats in one state."""
    store = SHARED / "samples" / "agent-orchestrator-go" / "ao.db"
    if not store.exists():
        pytest.skip("the folder ../shared is not here")
    (path / "ao.db").write_bytes(store.read_bytes())
    with closing(sqlite3.connect(path / "ao.db")) as db:
        triggers = db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            db.execute(f"DROP TRIGGER {name}")
        ended_at = "coalesce(completed_at, started_at, requested_at)"
        change = f"state = ?, error_message = ?, completed_at = {ended_at}"
        db.execute(f"UPDATE conversation_turns SET {change}", [state, words])
        db.commit()
    return read_facts(path / "ao.db", as_of=datetime(2026, 8, 22, 12, tzinfo=UTC))[0]


@pytest.mark.slow
@pytest.mark.parametrize("has_tag", [True, False], ids=["tagged", "words only"])
@pytest.mark.parametrize("fault", a_few(PROVIDER, 4))
@pytest.mark.parametrize("read", [of_claude, of_codex, of_opencode, of_agent_orchestrator])
def test_a_fault_of_the_provider_has_one_cause(tmp_path, read, fault, has_tag):
    *told, cause = PROVIDER[fault]
    if read is of_agent_orchestrator and has_tag:
        pytest.skip("its chats keep neither tag nor status of an error")
    is_turn = read is of_agent_orchestrator
    found = causes_of(read(tmp_path, *told, has_tag=has_tag), "turn" if is_turn else "session")
    assert cause in found
    assert not {cause for *_, cause in PROVIDER.values()} & {*found} - {cause}


# lionagi stores a code of its own, which ADR-0033 fixes; what failed stands in the words beside it.
@pytest.mark.slow
@pytest.mark.parametrize("fault", a_few(PROVIDER))
def test_a_fault_has_one_group_of_causes_in_clusters_of_every_system(tmp_path, fault):
    *told, cause = PROVIDER[fault]
    said = f"ProviderError: Claude Code said: {told[0]}"
    stored = {"status": "failed", "status_reason_code": "run.failed.provider_nonretryable"}
    write_store(tmp_path / "state.db", sessions=[session("s", status_reason_summary=said) | stored])
    as_of = datetime(2026, 5, 28, tzinfo=UTC)
    of_lionagi = read_facts(tmp_path / "state.db", as_of=as_of)[0]
    for folder in ("claude", "codex", "opencode", "go"):
        (tmp_path / folder).mkdir()
    readers = {"claude": of_claude, "codex": of_codex, "opencode": of_opencode}
    others = [read(tmp_path / name, *told, has_tag=True) for name, read in readers.items()]
    groups = {group_of_session(facts, cause) for facts in (of_lionagi, *others)}
    of_chats = of_agent_orchestrator(tmp_path / "go", *told, has_tag=False)
    clusters = sa.failures.clusters(of_chats).filter(pl.col("entity_types").str.contains("turn"))
    groups |= {*clusters["cause_group"]}
    assert len(groups) == 1
    assert groups != {None}
    assert cause_of_words(said) == cause


def group_of_session(facts: Facts, cause: str) -> str | None:
    """The group of its one cluster; of an answer that was cut off, which is no failure, its own."""
    clusters = sa.failures.clusters(facts)
    if clusters.is_empty():
        code = next(code for code in codes_of(facts) if code.endswith(f".{cause}"))
        no_words = {"template": pl.Series([None], dtype=pl.String)}
        clusters = add_cause_groups(pl.DataFrame({"code": [code], **no_words}))
    return clusters["cause_group"].item()


def cause_of_words(*texts: str) -> str:
    errors = pl.DataFrame({"error_message": list(texts)}).with_columns(
        error_type=pl.lit(None, pl.String), error_status=pl.lit(None, pl.Int64)
    )
    [cause] = errors.select(cause_of_error()).to_series().unique()
    return cause


OUTPUT = "Incomplete response returned, reason: max_output_tokens"


@pytest.mark.slow
@pytest.mark.parametrize("read", [of_claude, of_codex, of_opencode])
@pytest.mark.parametrize("has_tag", [True, False], ids=["tagged", "words only"])
def test_an_answer_cut_off_at_its_limit_is_partial_in_every_system(tmp_path, read, has_tag):
    if has_tag and read is of_opencode:
        error = {"name": "MessageOutputLengthError", "data": {}}
        answer = v1_message(2, error=error, finish=None)
        facts = v1_export(tmp_path, v1_message(1, "user"), answer)
    else:
        facts = read(tmp_path, OUTPUT, "max_output_tokens", "other", None, has_tag=has_tag)
    [row] = sa.states(facts).filter(entity_type="session").to_dicts()
    assert (row["outcome"], row["delivery"]) == ("completed", "partial")
    assert row["reason_codes"] == "run.delivery.truncated_length"


OTHER_WORDS = {
    "provider_auth": [
        "OAuth token has expired. Please obtain a new token or refresh your existing token.",
        "Your access token could not be refreshed because your refresh token was revoked.",
    ],
    "context_overflow": [
        "Request too large (max 32MB). Double press esc to go back.",
        "Conversation too long. Press esc twice to go up a few messages and try again.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "413 Payload Too Large",
    ],
    "content_filtered": [
        "The response was filtered due to the prompt triggering the content management policy."
    ],
    "truncated_length": ["The model stopped at its output limit."],
    "provider_internal": [
        "The server had an error while processing your request. Sorry about that!",
        "We're currently experiencing high demand, which may cause temporary errors.",
    ],
    "provider_rate_limit": [
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 41000."
    ],
    "provider_transport": [
        "error sending request for url (https://example.com/v1/responses)",
        "status 408 Request Timeout",
    ],
}


@pytest.mark.parametrize("cause", OTHER_WORDS)
def test_words_of_other_clients_and_providers_have_the_same_cause(cause):
    assert cause_of_words(*OTHER_WORDS[cause]) == cause


# Ends that no provider made, with the one cause and the one group of causes of each.
OTHER_FAULTS = {
    "empty answer": ("empty_output", "empty_answer"),
    "tool time limit": ("own_limit", "timeout"),
    "denied tool": ("permission_rejected", "permission"),
    "declined permission": ("permission_rejected", "permission"),
    "kill": ("process_dead_no_terminal", "killed"),
    "Ctrl-C": ("user_interrupt", "killed"),
}
SYSTEMS = ("claude_code", "codex", "opencode", "lionagi", "agent_orchestrator")
IN_MESSAGES = "it keeps calls of tools as messages, which have no state of their own"
IN_TRANSCRIPTS = "calls of tools stand in the transcripts of its agents"
NOT_RECORDED = {
    **{
        (fault, system): why
        for fault in ("tool time limit", "denied tool", "declined permission")
        for system, why in (("lionagi", IN_MESSAGES), ("agent_orchestrator", IN_TRANSCRIPTS))
    },
    ("empty answer", "agent_orchestrator"): "a turn that completed keeps no size of its answer",
}
"""Cells of the table that no store can fill, and why."""
FAULTS = (*PROVIDER, *OTHER_FAULTS)
CELLS = [cell for cell in itertools.product(OTHER_FAULTS, SYSTEMS) if cell not in NOT_RECORDED]
OWN_WORDS = {
    ("empty answer", "lionagi"): "no_evidence",
    ("kill", "lionagi"): "process_dead",
    ("kill", "agent_orchestrator"): "runtime_lost",
    ("Ctrl-C", "lionagi"): "sigint",
}
"""Codes that lionagi stores, or that the reference of Agent Orchestrator fixes."""


def test_cells_and_what_is_not_recorded_are_the_whole_table():
    grid = {*itertools.product(FAULTS, SYSTEMS)}
    assert len(grid) == 19 * 5
    # Every system has a reader of what a provider says, so that these rows have no gap.
    filled = {*CELLS, *itertools.product(PROVIDER, SYSTEMS)}
    assert filled | {*NOT_RECORDED} == grid
    assert not filled & {*NOT_RECORDED}
    assert all(NOT_RECORDED.values())
    assert {*OWN_WORDS} <= filled


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "system"), CELLS)
def test_a_fault_has_one_cause_in_every_system_that_records_it(tmp_path, fault, system):
    facts, entity_type = PROVOKE[system](tmp_path, fault)
    cause, group = OTHER_FAULTS[fault]
    found = causes_of(facts, entity_type)
    expected = OWN_WORDS.get((fault, system), cause)
    assert expected in found
    # The group that clusters show is the same, whatever word the system has.
    known = facts.entities.filter(entity_type=entity_type)["reason_message"].drop_nulls()
    codes = [code for code in codes_of(facts, entity_type) if code.endswith(f".{expected}")]
    texts = dict.fromkeys(("code", "template"), pl.String)
    words = pl.DataFrame({"code": codes[:1], "template": [known.first()]}, schema=texts)
    assert add_cause_groups(words)["cause_group"].to_list() == [group]
    by_code = words.with_columns(template=pl.lit(None, pl.String))
    assert add_cause_groups(by_code)["cause_group"].to_list() == [group]


def in_claude_code(path, fault):
    told = begun_transcript()
    ask = claude.call("toolu_1", "Bash", command="make")
    results = {
        "tool time limit": "Command timed out after 2m 0.0s",
        "denied tool": "Permission to use Bash has been denied.",
        "declined permission": "The user doesn't want to proceed with this tool use.",
    }
    if fault == "empty answer":
        told.answer(claude.say(""), stop="end_turn", usage=claude.USAGE)
    else:
        told.answer(ask, stop="tool_use", usage=claude.USAGE)
    if fault in results:
        told.result("toolu_1", results[fault], is_error=True)
        return transcript_facts(path, told), "tool_call"
    if fault == "kill":
        told.user("Are you there?", 600.0)
        return transcript_facts(path, told), "turn"
    if fault == "Ctrl-C":
        told.user(claude.say("[Request interrupted by user]"), interruptedMessageId="msg_x")
    return transcript_facts(path, told), "session"


def in_codex(path, fault):
    told = begun_rollout()
    if fault == "empty answer":
        told.complete(None)
    elif fault == "Ctrl-C":
        codex.abort("interrupted")(told)
    else:
        told.call("c")
    if fault == "tool time limit":
        told.ran("c", 124, 10.0, "command timed out after 10000 milliseconds")
    elif fault in ("denied tool", "declined permission"):
        told.event("exec_command_end", call_id="c", exit_code=-1, status="declined")
    elif fault == "kill":
        told.turn("Are you there?", 600.0)
    kinds = {"empty answer": "session", "Ctrl-C": "session", "kill": "turn"}
    return transcript_facts(path, told), kinds.get(fault, "tool_call")


def in_opencode(path, fault):
    denied = "The user has specified a rule which prevents you from using this tool call"
    declined = "The user rejected permission to use this specific tool call."
    parts = {
        "tool time limit": v1_call(output="(Command timed out after 120000 ms)"),
        "denied tool": v1_call(status="error", error=denied),
        "declined permission": v1_call(status="error", error=declined),
    }
    if fault in parts:
        answer = v1_message(2, parts=[parts[fault]])
        return v1_export(path, v1_message(1, "user"), answer), "tool_call"
    ends = {
        "empty answer": (log_event(3, "execution.succeeded"),),
        "kill": (log_event(3, "execution.started"),),
        "Ctrl-C": (log_event(3, "execution.interrupted", reason="user"),),
    }
    begin = (log_event(0, "execution.started"), log_step(1, "step.started"))
    ended = log_step(2, "step.ended", finish="stop")
    return log_facts(path, *begin, ended, *ends[fault]), "execution"


def in_lionagi(path, fault):
    """What lionagi writes at such an end, in its own words."""
    status, code, summary = {
        "empty answer": (
            "completed_empty",
            "run.completed_empty.no_evidence",
            "Run exited clean but produced no commits ahead of base and no artifacts.",
        ),
        "kill": ("failed", "session.phantom.process_dead", "phantom_reaped"),
        "Ctrl-C": ("cancelled", "run.cancelled.sigint", "User pressed Ctrl-C (SIGINT)."),
    }[fault]
    reason = {"status_reason_code": code, "status_reason_summary": summary}
    write_store(path / "state.db", sessions=[session("s", status=status, **reason)])
    return read_facts(path / "state.db", as_of=datetime(2026, 5, 28, tzinfo=UTC))[0], "session"


def in_agent_orchestrator(path, fault):
    if fault == "Ctrl-C":
        return go_store_of(path, "interrupted", ""), "turn"
    ended = dict.fromkeys(("terminatedAt", "lastTransitionAt"), "2026-05-18T09:10:00.000Z")
    ended |= {"startedAt": "2026-05-18T09:00:00.000Z"}
    life = lifecycle("terminated", "runtime_lost", runtime=("missing", "tmux_missing"), **ended)
    write_json(
        path, "app-1", {"project": "app", "status": "killed", "lifecycle": life}, project="app"
    )
    return read_facts(path, as_of=datetime(2026, 5, 19, tzinfo=UTC))[0], "session"


PROVOKE = {
    "claude_code": in_claude_code,
    "codex": in_codex,
    "opencode": in_opencode,
    "lionagi": in_lionagi,
    "agent_orchestrator": in_agent_orchestrator,
}


def test_the_groups_of_clusters_agree_with_the_causes_of_words():
    causes = {
        "provider_auth": "auth",
        "provider_internal": "provider_down",
        "context_overflow": "context_length",
        "content_filtered": "content_filter",
        "provider_transport": "network",
    }
    codes = pl.DataFrame({"code": [f"run.failed.{cause}" for cause in causes], "template": None})
    grouped = add_cause_groups(codes.with_columns(pl.col("template").cast(pl.String)))
    assert grouped["cause_group"].to_list() == list(causes.values())


def test_words_of_an_independent_corpus_have_a_cause():
    corpus = SHARED / "agent_failures_2" / "messages.jsonl"
    if not corpus.exists():
        pytest.skip("the folder ../shared is not here")
    rows = [json.loads(line) for line in corpus.read_text("utf-8").splitlines()]
    expected = {
        "plan_limit": "provider_quota",
        "billing": "provider_quota",
        "context": "context_overflow",
        "rate_429": "provider_rate_limit",
        "bad_request": "provider_invalid_request",
    }
    for fault, cause in expected.items():
        assert cause_of_words(*(row["plain"] for row in rows if row["fault"] == fault)) == cause

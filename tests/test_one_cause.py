"""One fault has one cause, whichever system met it; a cell that cannot be recorded says why."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.failures.cause_groups import add_cause_groups
from stateanalytics.systems.provider_errors import cause_of_error
from stateanalytics.systems.reading import read_facts
from tests import test_claude_code as claude
from tests import test_codex as codex
from tests.conftest import SHARED
from tests.lionagi_stores import session, write_store
from tests.opencode_logs import v1_call, v1_export, v1_message

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
    "overflow": (
        "prompt is too long: 215000 tokens > 200000 maximum",
        *("invalid_request", "context_window_exceeded", 400, "context_overflow"),
    ),
    "stream cut": (
        "stream disconnected before completion: Transport error",
        *("unknown", "other", None, "provider_transport"),
    ),
    "quota": (
        "You exceeded your current quota, please check your plan and billing details.",
        *("rate_limit", "usage_limit_exceeded", 429, "provider_quota"),
    ),
    "credit": (
        "Your credit balance is too low",
        *("billing_error", "usage_limit_exceeded", 400, "provider_quota"),
    ),
    "session limit": (LIMIT, "rate_limit", "usage_limit_exceeded", 429, "provider_quota"),
    "certificate": (
        "unable to verify the first certificate",
        *("unknown", "other", None, "provider_transport"),
    ),
    "refusal": (
        "Output blocked by content filtering policy",
        *("invalid_request", "other", 400, "content_filtered"),
    ),
}


NOT_RECORDED = {
    ("lionagi", "every fault"): "it stores codes of its own, which its registry fixes; the words "
    "beside them give the group of causes",
    ("lionagi", "calls of tools"): "calls are messages there and no work of their own",
    ("agent_orchestrator", "calls of tools"): "they stand in the transcripts of its agents",
    ("agent_orchestrator", "tag and status"): "a turn that failed keeps words only",
    ("codex", "empty answer"): "older versions end a failed turn without a word, too",
}
"""Cells of the table that no store can fill, and why."""


def causes_of(facts: Facts, entity_type: str = "session") -> list[str]:
    codes = sa.states(facts).filter(entity_type=entity_type)["reason_codes"].drop_nulls()
    return [code.rpartition(".")[2] for text in codes for code in text.split(", ")]


def of_claude(path, words, tag, _, status, *, has_tag):
    told = claude.begun()
    told.api_error(words, *((tag, status) if has_tag else (None, None)))
    return claude.facts_of(path, told)


def of_codex(path, words, _, tag, status, *, has_tag):
    told = codex.begun()
    info = codex.http(status) if isinstance(tag, dict) else tag
    told.complete(None, error={"message": words, "codex_error_info": info if has_tag else "other"})
    return codex.facts_of(path, told)


def of_opencode(path, words, _tag, _info, status, *, has_tag):
    data = {"message": words} | ({"statusCode": status} if has_tag and status else {})
    error = {"name": "APIError" if has_tag else "UnknownError", "data": data}
    answer = v1_message(2, error=error, finish=None)
    return v1_export(path, v1_message(1, "user"), answer)


def of_agent_orchestrator(path, words, *_, has_tag):
    """A chat's turn that failed has the words of its agent, and nothing else."""
    del has_tag
    store = SHARED / "samples" / "agent-orchestrator-go" / "ao.db"
    if not store.exists():
        pytest.skip("the folder ../shared is not here")
    (path / "ao.db").write_bytes(store.read_bytes())
    with closing(sqlite3.connect(path / "ao.db")) as db:
        triggers = db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            db.execute(f"DROP TRIGGER {name}")
        db.execute(
            "UPDATE conversation_turns SET state = 'failed', error_message = ?, completed_at = "
            "coalesce(completed_at, started_at, requested_at)",
            [words],
        )
        db.commit()
    return read_facts(path / "ao.db", as_of=datetime(2026, 8, 22, 12, tzinfo=UTC))[0]


@pytest.mark.parametrize("has_tag", [True, False], ids=["tagged", "words only"])
@pytest.mark.parametrize("fault", PROVIDER)
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
@pytest.mark.parametrize("fault", PROVIDER)
def test_a_fault_has_one_group_of_causes_in_clusters_of_every_system(tmp_path, fault):
    *told, cause = PROVIDER[fault]
    said = f"ProviderError: Claude Code said: {told[0]}"
    stored = {"status": "failed", "status_reason_code": "run.failed.provider_nonretryable"}
    write_store(tmp_path / "state.db", sessions=[session("s", status_reason_summary=said) | stored])
    as_of = datetime(2026, 5, 28, tzinfo=UTC)
    of_lionagi = read_facts(tmp_path / "state.db", as_of=as_of)[0]
    for folder in ("claude", "codex", "opencode"):
        (tmp_path / folder).mkdir()
    all_facts = [
        of_lionagi,
        of_claude(tmp_path / "claude", *told, has_tag=True),
        of_codex(tmp_path / "codex", *told, has_tag=True),
        of_opencode(tmp_path / "opencode", *told, has_tag=True),
    ]
    groups = {sa.failures.clusters(facts)["cause_group"].item() for facts in all_facts}
    assert len(groups) == 1
    assert groups != {None}
    assert cause_of_words(said) == cause


def cause_of_words(*texts: str) -> str:
    errors = pl.DataFrame({"error_message": list(texts)}).with_columns(
        error_type=pl.lit(None, pl.String), error_status=pl.lit(None, pl.Int64)
    )
    [cause] = errors.select(cause_of_error()).to_series().unique()
    return cause


OUTPUT = "Incomplete response returned, reason: max_output_tokens"


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
        "The response was filtered due to the prompt triggering the content management policy.",
    ],
    "truncated_length": ["The model stopped at its output limit."],
    "provider_internal": [
        "The server had an error while processing your request. Sorry about that!",
        "We're currently experiencing high demand, which may cause temporary errors.",
    ],
    "provider_rate_limit": [
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 41000.",
    ],
    "provider_transport": [
        "error sending request for url (https://example.com/v1/responses)",
        "status 408 Request Timeout",
    ],
}


@pytest.mark.parametrize("cause", OTHER_WORDS)
def test_words_of_other_clients_and_providers_have_the_same_cause(cause):
    assert cause_of_words(*OTHER_WORDS[cause]) == cause


OF_CALLS = {
    "tool time limit": (
        ("Command timed out after 2m 0.0s", 124, "(Command timed out after 120000 ms)"),
        "own_limit",
    ),
    "denied tool": (
        ("Permission to use Bash has been denied.", None, None),
        "permission_rejected",
    ),
    "declined permission": (
        ("The user doesn't want to proceed with this tool use.", None, None),
        "permission_rejected",
    ),
}
REFUSED = {
    "denied tool": "The user has specified a rule which prevents you from using this tool call",
    "declined permission": "The user rejected permission to use this specific tool call.",
}


@pytest.mark.parametrize("fault", OF_CALLS)
def test_a_call_that_was_not_allowed_or_took_too_long_has_one_cause(tmp_path, fault):
    (words, _, output), cause = OF_CALLS[fault]
    if fault in REFUSED:
        part = v1_call(status="error", error=REFUSED[fault])
    else:
        part = v1_call(output=output)
    facts = v1_export(tmp_path, v1_message(1, "user"), v1_message(2, parts=[part]))
    assert causes_of(facts, "tool_call") == [cause]
    told = claude.begun()
    told.answer(claude.call("toolu_1", "Bash"), stop="tool_use", usage=claude.USAGE)
    told.result("toolu_1", words, is_error=True)
    (tmp_path / "claude").mkdir()
    assert cause in causes_of(claude.facts_of(tmp_path / "claude", told), "tool_call")


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

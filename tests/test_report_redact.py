"""Secrets and strange characters are taken out, counted, and cost no time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.reporting.redact import LONGEST_SHOWN, MASKS, clean, redact
from tests.examples import examples
from tests.ratios import times_as_slow

TOKEN = "abcdefghij0123456789ABCDEF"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "shown", "kind"),
    [
        pytest.param(f"sk-{TOKEN}", "[API key]", "API key", id="OpenAI"),
        pytest.param(f"sk-ant-api03-{TOKEN}", "[API key]", "API key", id="Anthropic"),
        pytest.param(f"ghp_{TOKEN} x", "[API key] x", "API key", id="GitHub"),
        pytest.param(f"github_pat_{TOKEN}", "[API key]", "API key", id="GitHub, fine-grained"),
        pytest.param(f"glpat-{TOKEN}", "[API key]", "API key", id="GitLab"),
        pytest.param("id AKIAABCDEFGHIJKLMNOP.", "id [API key].", "API key", id="AWS"),
        pytest.param("xoxb-1234567890-abcdef", "[API key]", "API key", id="Slack"),
        pytest.param(f"sk_live_{TOKEN}", "[API key]", "API key", id="Stripe"),
        pytest.param(f"hf_{TOKEN}", "[API key]", "API key", id="Hugging Face"),
        pytest.param(
            f"Authorization: Bearer {TOKEN}", "Authorization: Bearer [token]", "bearer token",
            id="bearer",
        ),
        pytest.param(f"auth {JWT}!", "auth [JSON web token]!", "JSON web token", id="JWT"),
        pytest.param(f"a {KEY} b", "a [private key] b", "private key", id="private key"),
        pytest.param(KEY[:50], "[private key]", "private key", id="private key, cut off"),
        pytest.param("PASSWORD=hunter22", "PASSWORD=[secret]", "named secret", id="password"),
        pytest.param('"api_key": "x1y2z3w4"', '"api_key": "[secret]"', "named secret", id="JSON"),
        pytest.param(
            "https://ann:s3cret@host/x", "https://[user]:[password]@host/x", "password in a URL",
            id="URL",
        ),
        pytest.param("to ann.lee@example.org,", "to [e-mail],", "e-mail address", id="e-mail"),
        pytest.param("/home/ann/x.py", "/home/[user]/x.py", "home directory", id="Linux home"),
        pytest.param("/Users/ann", "/Users/[user]", "home directory", id="macOS home"),
        pytest.param(
            "C:\\Users\\ann\\x", "C:\\Users\\[user]\\x", "home directory", id="Windows home"
        ),
    ],
)  # fmt: skip
def test_a_secret_is_masked_and_counted(text, shown, kind):
    assert redact(text) == (shown, {kind: 1})


@pytest.mark.parametrize(
    "text",
    [
        "run.failed.exception",
        "Exit code 137 from pytest",
        "task-force-of-the-north-and-south",
        "unexpected token: identifier",
        "c719e353-ed34-4947-8ec3-d0a3a988adac",
        "model claude-sonnet-4 of provider anthropic",
        "2026-05-27T00:00:00Z",
    ],
)
def test_ordinary_words_stay(text):
    assert redact(text) == (text, {})


def test_every_mask_is_told_apart_in_the_count():
    text = f"sk-{TOKEN} ann@example.org bob@example.org /home/ann {JWT}"
    assert redact(text)[1] == {
        "API key": 1,
        "e-mail address": 2,
        "home directory": 1,
        "JSON web token": 1,
    }


WORST = {
    "letters": "a" * 1_000_000,
    "at signs": "a@" * 500_000,
    "dots": "a." * 500_000 + "@",
    "begins": "-----BEGIN PRIVATE KEY-----" * 40_000,
    "spaces": "bearer" + " " * 1_000_000,
    "keywords": "token=" * 160_000,
    "slashes": "/home/" * 160_000,
    "schemes": "://" * 330_000,
    "web tokens": "eyJ" * 330_000,
    "keys": "sk-" * 330_000,
}


@pytest.mark.parametrize("name", WORST)
def test_no_megabyte_is_slow(name):
    """Ten times the text takes about ten times as long, not a hundred times."""
    text = WORST[name]
    assert times_as_slow(lambda one: clean([one], secrets=True), text, text[:100_000], most=40) < 40


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("name", WORST)
def test_no_mask_is_slow_on_its_own_worst_case(kind, name):
    shape, instead = MASKS[kind]
    # Texts are cut before a mask sees them, so a square would do; a cube would not.
    long, short = WORST[name][:4_000], WORST[name][:1_000]
    assert times_as_slow(lambda text: shape.sub(instead, text), long, short, most=40) < 40


def test_clean_walks_everything_and_changes_only_texts():
    plain = {"a": [f"sk-{TOKEN}", 1, None, {"b": "x\x1b[31my\x00"}], "c": 0.5, "d": True}
    shown, found = clean(plain, secrets=True)
    assert shown == {"a": ["[API key]", 1, None, {"b": "xy\\x00"}], "c": 0.5, "d": True}
    assert found == {"API key": 1}


def test_secrets_can_be_kept_but_control_characters_cannot():
    shown, found = clean([f"sk-{TOKEN}\u202e\x07"], secrets=False)
    assert shown == [f"sk-{TOKEN}\\u202e\\x07"]
    assert not found


def test_an_escape_sequence_does_not_hide_a_secret():
    shown, found = clean([f"sk-\x1b[0m{TOKEN}"], secrets=True)
    assert shown == ["[API key]"]
    assert found == {"API key": 1}


def test_a_line_break_does_not_hide_a_secret():
    assert clean([f"x\nsk-{TOKEN}\ny"], secrets=True)[0] == ["x\\n[API key]\\ny"]


def test_long_text_is_cut_and_says_so():
    (shown,), _ = clean(["word " * 100_000], secrets=True)
    assert len(shown) <= LONGEST_SHOWN
    assert shown.endswith("…")


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=10))
@examples(50)
def test_whatever_the_text_the_result_is_json_and_printable(plain):
    shown, _ = clean(plain, secrets=True)
    text = json.dumps(shown, ensure_ascii=False)
    assert not any(ord(character) < 32 for character in text)
    text.encode("utf-8")

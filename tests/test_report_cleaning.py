"""Secrets and strange characters are taken out, counted, and cost no time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.reporting.material import LONGEST_SHOWN, clean
from tests.examples import a_few, examples
from tests.ratios import times_as_slow

TOKEN = "abcdefghij0123456789ABCDEF"


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


@pytest.mark.parametrize("name", a_few(WORST, 3))
def test_no_megabyte_is_slow(name):
    """Ten times the text takes about ten times as long, not a hundred times."""
    text = WORST[name]
    assert times_as_slow(lambda one: clean([one], secrets=True), text, text[:100_000], most=40) < 40


def test_clean_walks_everything_and_changes_only_texts():
    plain = {"a": [f"sk-{TOKEN}", 1, None, {"b": "x\x1b[31my\x00"}], "c": 0.5, "d": True}
    shown, found = clean(plain, secrets=True)
    assert shown == {"a": ["[API key]", 1, None, {"b": "xy\\x00"}], "c": 0.5, "d": True}
    assert found == {"API key": 1}


@pytest.mark.parametrize(
    ("text", "is_masked", "shown"),
    [
        (f"sk-{TOKEN}\u202e\x07", False, f"sk-{TOKEN}\\u202e\\x07"),
        (f"sk-\x1b[0m{TOKEN}", True, "[API key]"),
        (f"x\nsk-{TOKEN}\ny", True, "x\\n[API key]\\ny"),
    ],
    ids=["control characters stay visible", "an escape sequence", "a line break"],
)
def test_nothing_hides_a_secret_that_is_masked(text, is_masked, shown):
    found = {"API key": 1} if is_masked else {}
    assert clean([text], secrets=is_masked) == ([shown], found)


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

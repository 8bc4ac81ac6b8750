"""Text from a store, made fit to be looked at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.core.text import shortened, visible, without_formula
from tests.examples import examples
from tests.ratios import times_as_slow


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(
            "plain ünïcode 日本 👩‍💻", "plain ünïcode 日本 👩‍💻", id="people's text stays"
        ),
        pytest.param("", "", id="empty"),
        pytest.param("\x1b[1;31mred\x1b[0m", "red", id="colours are dropped"),
        pytest.param("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\y", "xy", id="titles and links too"),
        pytest.param("\x9b2Jx", "x", id="one-byte CSI"),
        pytest.param("a\x1bb", "a\\x1bb", id="a lone escape is shown"),
        pytest.param("a\x1b]never ended", "a\\x1b]never ended", id="a title without an end"),
        pytest.param("a\r\nb\tc\x00", "a\\r\\nb\\tc\\x00", id="control characters"),
        pytest.param("\u202eevil\u2066", "\\u202eevil\\u2066", id="direction marks"),
        pytest.param("a\u2028b\ufeff", "a\\u2028b\\ufeff", id="line separators"),
        pytest.param("\ud800", "\\ud800", id="half a surrogate"),
        pytest.param("\U000e0041", "\\U000e0041", id="tag characters"),
        pytest.param("\\x07", "\\x07", id="a backslash is only a backslash"),
    ],
)
def test_strange_characters_are_shown(text, shown):
    assert visible(text) == shown


def test_a_caller_may_keep_line_breaks():
    assert visible("a\nb\x07", keep="\n") == "a\nb\\x07"


@examples(200)
@given(st.text(st.characters(codec=None), max_size=40))
def test_nothing_strange_is_left_and_once_is_enough(text):
    shown = visible(text)
    assert visible(shown) == shown
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in shown)
    shown.encode("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["\x1b[", "\x1b]", "\x1b[1;", "\x9b1", "a\x00"])
def test_a_megabyte_of_the_worst_costs_little(piece):
    """Ten times the text takes about ten times as long, not a hundred times."""
    many = piece * (1_000_000 // len(piece))
    few = many[:100_000]
    assert times_as_slow(visible, many, few, most=40) < 40


def test_short_text_stays_and_long_text_says_it_was_cut():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "ab…"
    assert shortened("abcd", 1) == "…"


@pytest.mark.parametrize(
    "begin",
    [
        *("=", "+", "-", "@", "\t", "\r", "\n=", " =", "\u00a0 =", "\ufeff=", "\x00=", "\u200b="),
        *("\uff1d", "\uff0b", "\uff0d", "\uff20", "\u3000\uff1d"),
    ],
)
def test_formulas_are_disarmed(begin):
    assert without_formula(f"{begin}1") == f"'{begin}1"
    assert without_formula(f"x{begin}1") == f"x{begin}1"

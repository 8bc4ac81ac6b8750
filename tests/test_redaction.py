"""Every kind of secret is masked wherever it stands, and what is none stays readable."""

import re
from collections import Counter

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.core.redaction import HINTS, PLACEHOLDERS, SHAPES, redact, redact_texts
from stateanalytics.systems.tool_calls import ends_in
from tests.conftest import ROOT
from tests.examples import a_few, examples
from tests.generators.failure_corpus import failure_corpus
from tests.ratios import times_as_slow
from tests.secret_kinds import READABLE, planted

PLANTED = planted()


def masked(*texts):
    return redact_texts(pl.Series(texts, dtype=pl.String))[0].to_list()


def test_a_secret_is_masked_and_counted_and_the_rest_stays():
    shown, n_masked = redact_texts(pl.Series([case.text for case in PLANTED]))
    for case, text in zip(PLANTED, shown, strict=True):
        assert text == case.masked, case.name
    assert n_masked == Counter(case.kind for case in PLANTED)


@pytest.mark.slow
def test_each_secret_is_counted_as_what_it_is():
    for case in PLANTED:
        assert redact_texts(pl.Series([case.text]))[1] == {case.kind: 1}, case.name


def test_what_is_no_secret_stays():
    assert masked(*READABLE) == READABLE


OLD = [
    # What the reports before this table masked, word by word.
    ("sk-{t}", "[API key]"),
    ("xoxb-1234567890-abcdef", "[API key]"),
    ("PASSWORD=hunter22", "PASSWORD=[secret]"),
    ('"api_key": "x1y2z3w4"', '"api_key": "[secret]"'),
    ("/home/ann/x.py", "/home/[user]/x.py"),
    ("/srv/home/.claude/x", "/srv/home/.claude/x"),
    ("/Users/ann", "/Users/[user]"),
    ("to ann.lee@example.org,", "to [e-mail],"),
]


@pytest.mark.parametrize(("text", "shown"), OLD)
def test_short_texts_read_as_expected(text, shown):
    assert masked(text.format(t="abcdefghij0123456789ABCDEF")) == [shown]


def test_kinds_are_told_apart_in_the_count_and_equal_texts_count_again():
    token = "abcdefghij0123456789ABCDEF"
    text = f"sk-{token} ann@example.org bob@example.org /home/ann"
    n_masked = redact_texts(pl.Series([text, text, None]))[1]
    assert n_masked == {"API key": 2, "e-mail address": 4, "home directory": 2}


WRAPPED = {
    "a line of a log": "2026-05-27T00:00:00Z ERROR worker-3 [ses_1] {} (retry 2 of 5)",
    "an escaped line break": "step 1\\n{}",
    "a link": "https://x.example/cb?next=%20{}",
    "colours": "\x1b[31m{}\x1b[0m",
    "other scripts": "ошибка: {} 失败",
    "JSON": '{{"error": {{"message": "{}"}}}}',
}


@pytest.mark.parametrize("name", WRAPPED)
def test_keys_of_services_are_found_wherever_they_stand(name):
    keys = [case for case in PLANTED if case.kind == "API key"]
    shown = masked(*(WRAPPED[name].format(case.secret) for case in keys))
    whole = [WRAPPED[name].format("[API key]")]
    if name == "colours":
        whole.append("[API key]")
    left = [case.name for case, text in zip(keys, shown, strict=True) if text not in whole]
    assert left == []


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["\x1b[0m", "\x00", "\u200b", "\u202e", "\u00ad", "\U000e0041"])
def test_what_nobody_sees_hides_no_secret(sign):
    texts = [case.before + sign.join(case.secret) + case.after for case in PLANTED]
    shown = [text.replace(sign, "") for text in masked(*texts)]
    assert [text for case, text in zip(PLANTED, shown, strict=True) if case.secret in text] == []


def test_twice_is_once_and_counts_nothing_more():
    once = pl.Series(masked(*(case.text for case in PLANTED)))
    twice, n_masked = redact_texts(once)
    assert twice.to_list() == once.to_list()
    assert n_masked == {}


WHOLE = st.characters(exclude_categories=["Cs"])
PIECES = st.one_of(
    st.sampled_from([*(case.text for case in PLANTED), *PLACEHOLDERS.values()]),
    st.sampled_from(["password", "token", "://", "--secret ", "Bearer ", "Cookie: ", "sk-"]),
    st.text("ab1 :=@/\\\"'`[]{}<>-_.%&;,\n\x1b\u200b\ue0f0\ue0ff", max_size=8),
)


@given(st.lists(st.lists(PIECES, max_size=8).map("".join), min_size=20, max_size=40))
@examples(30)
def test_whatever_the_text_twice_is_once(texts):
    once = masked(*texts)
    assert masked(*once) == once


@given(st.text(WHOLE, max_size=30), st.text(WHOLE, max_size=30))
@examples(30)
def test_no_secret_on_a_line_of_its_own_comes_through(before, after):
    shown = masked(*(f"{before}\n{case.text}\n{after}" for case in PLANTED))
    kept = [case for case, text in zip(PLANTED, shown, strict=True) if case.secret in text]
    assert [case.name for case in kept if case.secret not in before + after] == []


def test_no_secret_comes_through_a_text_whose_middle_is_left_out():
    for n in range(0, 500, 70):
        texts = ["ok\n" * n + case.text + "\nno" * (500 - n) for case in PLANTED]
        shown = masked(*pl.select(ends_in(pl.lit(pl.Series(texts)))).to_series())
        kept = [case for case, text in zip(PLANTED, shown, strict=True) if case.secret in text]
        assert [case.name for case in kept] == []
    lines = "\n".join(["aB3/" * 16] * 30)
    key = f"cat key\n-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----"
    for line in ("\n", "\n  "):
        texts = [text.replace("\n", line) for text in (key, "no such key\n" * 50 + key)]
        first, last = masked(*pl.select(ends_in(pl.lit(pl.Series(texts)))).to_series())
        assert first.endswith("[private key]") and "aB3/" not in first
        assert last == texts[1][:500]


def test_equal_secrets_of_one_kind_leave_equal_texts():
    texts = {masked(f"rejected: {'sk' + '-'}{letter * 30} (401)")[0] for letter in "abcXYZ019"}
    assert texts == {"rejected: [API key] (401)"}


def test_every_type_of_column_is_masked_and_keeps_its_type():
    key = PLANTED[0].secret
    frame = pl.DataFrame(
        {
            "text": [key, None, "x"],
            "category": pl.Series([key, None, "x"], dtype=pl.Categorical),
            "listed": [[key, None], [], None],
            "fixed": pl.Series([[key, "a"], None, ["b", "c"]], dtype=pl.Array(pl.String, 2)),
            "nested": [{"a": [{"b": key}]}, None, {"a": None}],
            "n": [1, 2, 3],
        }
    )
    shown, n_masked = redact(frame)
    assert shown.schema == frame.schema
    assert n_masked == {"API key": 5}
    assert shown.row(0) == (
        "[API key]", "[API key]", ["[API key]", None], ["[API key]", "a"],
        {"a": [{"b": "[API key]"}]}, 1,
    )  # fmt: skip
    assert shown[1:].equals(frame[1:])
    assert frame["text"][0] == key
    assert redact(frame.clear())[0].equals(frame.clear())


WORST = ["a", "a@", "a.", "-----BEGIN PRIVATE KEY-----", "token=", "--password ", 'password="']
WORST += ["://a:", "eyJ", "sk-", "cookie: ", "curl -u ", "PASSWORD", "\x1b["]


@pytest.mark.parametrize("part", a_few(WORST, 3))
def test_time_grows_with_the_length_of_the_text(part):
    """Ten times the text takes about ten times as long, not a hundred times."""
    short = part * (100_000 // len(part))
    assert times_as_slow(masked, short * 10, short, most=40) < 40


def test_every_shape_is_hinted_at():
    """What is found by a shape is found by the hints, which decide what is looked at."""
    spaced = pl.Series([case.text for case in PLANTED])
    texts = pl.concat([spaced, spaced.str.replace_all(" ", "\t", literal=True)])
    for kind, shape in SHAPES:
        found = texts.filter(texts.str.contains(shape))
        assert found.str.contains("|".join(HINTS)).all(), kind


def messages():
    """Messages of failures and lines of logs, where no secret stands."""
    shared = ROOT.parent / "shared"
    corpus = failure_corpus()["message"]
    # Keys that were made up for the corpus are no false alarm.
    texts = corpus.filter(~corpus.str.contains(" sk-test-", literal=True)).to_list()
    if (path := shared / "agent_failures" / "messages.jsonl").exists():
        texts += pl.read_ndjson(path)["message"].to_list()
    for path in (shared / "loghub").glob("*.csv"):
        texts += pl.read_csv(path, infer_schema=False)["Content"].to_list()
    return pl.Series(texts, dtype=pl.String)


@pytest.mark.slow
def test_false_alarms_are_at_most_one_in_two_hundred():
    texts = messages()
    shown, _ = redact_texts(texts)
    # Addresses and home directories do stand in logs; what they show is no false alarm.
    kinds = PLACEHOLDERS.keys() - {"e-mail address", "home directory"}
    secrets = "|".join(re.escape(PLACEHOLDERS[kind]) for kind in kinds)
    n_wrong = (shown.str.contains(secrets) & (shown != texts)).sum()
    assert texts.len() > 1_000
    assert n_wrong <= 0.005 * texts.len()


def test_keys_of_maps_are_masked_as_values_are():
    key = "sk-" + "a1B2" * 12
    maps = pl.Series("m", [{key: 1}, None], dtype=pl.Map(pl.String, pl.Int64))
    frame = pl.DataFrame({"m": maps}).with_columns(in_struct=pl.struct("m"))
    masked, n_masked = redact(frame)
    assert key not in str(masked.rows())
    assert masked["m"].to_list() == [[{"key": "[API key]", "value": 1}], None]
    assert n_masked == {"API key": 2}

"""The catalogue of sentences: each with example values, as a reader meets it."""

import ast
import re
from string import Formatter

import pytest

from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.words import WRITTEN_AS, count, say, sentences
from tests.conftest import ROOT
from tests.test_plain_words import BANNED

CALLS = [
    call
    for path in sorted((ROOT / "stateanalytics").rglob("*.py"))
    if "say(" in (text := path.read_text("utf-8"))
    for call in ast.walk(ast.parse(text))
    if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "say"
]
NAMED = {
    node.value
    for path in sorted((ROOT / "stateanalytics").rglob("*.py"))
    if "import" in (text := path.read_text("utf-8")) and "say" in text
    for node in ast.walk(ast.parse(text))
    if isinstance(node, ast.Constant) and isinstance(node.value, str)
}
BY_STATE = {
    *(f"failures.{state}" for state in ("new", "back", "flapping", "growing", "gone")),
    *(f"limits.{verdict}" for verdict in "above below within higher lower unclear".split()),
    *(f"limits.short_{verdict}" for verdict in ("within", "higher", "lower", "unclear")),
    *(f"inside.{effort}" for effort in ("stuck", "given_up", "struggled")),
    *(f"advice.{verdict}" for verdict in ("choose", "keep", "raise", "lower")),
    *(f"advice.cost_{costs}" for costs in ("half", "double", "half_or_double", "any")),
}
"""Sentences with a name that is put together: by the state of a cluster, by a verdict."""


def fields(text):
    return [(name, form) for _, name, form, _ in Formatter().parse(text) if name is not None]


def example(form, n):
    """A value for a field that is written in this form."""
    if form == "list":
        return ["one part", "another part"][: max(n, 1)]
    if form in ("share", "points", "percent"):
        return 0.734
    if form == "interval":
        return (0.49, 0.94)
    if form in ("duration", "limit", "estimate", "per_hundred", "dollars"):
        return 5_400.0
    return n if form else "example"


def shown(name, n):
    return say(name, **{field: example(form, n) for field, form in fields(sentences()[name])})


@pytest.mark.parametrize("name", sorted(sentences()))
def test_a_sentence_is_plain_english(name):
    for n in (0, 1, 2, 12_345):
        text = shown(name, n)
        print(f"{name}: {text}")
        assert text
        assert "  " not in text
        assert "{" not in text
        assert not BANNED.search(text)
        if text.endswith("."):
            assert text[0].isupper() or not text[0].isalpha()
            assert not text.endswith("..")


@pytest.mark.parametrize(
    ("name", "one", "several"),
    [
        ("audit.illegal", "of 1 status change 1 is illegal", "of 2 status changes 2 are illegal"),
        ("headline.open", "1 of 1 open run needs attention", "2 of 2 open runs need attention"),
        ("attention.none_bad", "None of 1 entity is", "None of 2 entities is"),
        ("durations.cut_off", " and 1 was still open", " and 2 were still open"),
        ("alert.lost", "1 loss of data", "2 losses of data"),
    ],
)
def test_nouns_and_verbs_agree_with_their_number(name, one, several):
    assert shown(name, 1).startswith(one)
    assert shown(name, 2).startswith(several)


def test_every_form_of_a_field_is_known():
    for name, text in sentences().items():
        for field, form in fields(text):
            assert not form or form in WRITTEN_AS or "/" in form or form.startswith("count "), (
                name,
                field,
            )


def test_no_sentence_is_written_twice_or_by_nobody():
    names = [row["sentence"] for row in table_rows("stateanalytics.core", "sentences.csv")]
    assert len(names) == len(set(names))
    assert set(names) - NAMED - BY_STATE == set()


@pytest.mark.parametrize(
    "call",
    [call for call in CALLS if isinstance(call.args[0], ast.Constant)],
    ids=lambda call: call.args[0].value,
)
def test_a_call_gives_a_sentence_all_of_its_values(call):
    given = {keyword.arg for keyword in call.keywords}
    needed = {field for field, _ in fields(sentences()[call.args[0].value])}
    assert needed <= given or None in given
    assert None in given or given <= needed, "a value that the sentence does not use"


def test_text_of_a_store_is_never_read_as_a_template():
    hostile = "{n:count run} {0} {__class__}"
    assert say("alert.new", n=1, name=hostile) == f"1 failure new, first: {hostile}"


def test_a_sentence_that_ends_in_a_full_stop_begins_with_a_capital():
    assert say("durations.no_bounds") == "Every end was observed."
    assert say("data.empty", at="now")[0] == "T"
    assert re.match(r"No inputs? with ", say("sums.finding", n=0, n_entities=1, at="a", policy="p"))
    assert count(0, "input") == "no inputs"

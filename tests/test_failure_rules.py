"""Your own clusters: what rules do, and what a file of rules is told that cannot be used."""

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.errors import ArgumentError
from stateanalytics.failures import rules_file
from stateanalytics.failures.rules_file import check_pattern, n_pieces, search
from tests.failures import run, store

GOOD = """
version = 1

[[rule]]
name = "limits"
action = "merge"
message = '(?i)rate limit|overloaded'
"""


def rule(**keys):
    return {"name": "mine", "action": "name", "message": "boom"} | keys


def clusters(snap, *rules):
    found = sa.failures.clusters(snap, rules={"rule": list(rules)})
    return set(found.select("code", "template", "rule_name", "n_rows").rows())


E, X = "run.failed.exception", "run.failed.exit_nonzero"
ONE, TWO = "boom at host one", "boom at host two"
SNAP = store(
    run("a", reason_code=E, reason_message=ONE),
    run("b", reason_code=E, reason_message=TWO),
    run("c", reason_code=X, reason_message=TWO),
    run("d", reason_message="quiet"),
    run("e"),
)
ALONE = {(None, "quiet", None, 1), (None, None, None, 1)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param(
            {},
            {(E, ONE, "mine", 1), (E, TWO, "mine", 1), (X, TWO, "mine", 1)},
            id="name leaves the templates",
        ),
        ({"action": "merge"}, {(E, "mine", "mine", 2), (X, "mine", "mine", 1)}),
        (
            {"action": "merge", "into_code": "run.failed.boom"},
            {("run.failed.boom", "mine", "mine", 3)},
        ),
        pytest.param(
            {"action": "split", "message": r"(host) (\w+)"},
            {
                (E, f"{ONE} [host, one]", "mine", 1),
                (E, f"{TWO} [host, two]", "mine", 1),
                (X, f"{TWO} [host, two]", "mine", 1),
            },
            id="split by what groups find",
        ),
        ({"action": "ignore", "code": E}, {(X, TWO, None, 1)}),
        pytest.param(
            {"action": "ignore", "code": "run.failed.*"}, set(), id="ignore by the head of a code"
        ),
    ],
)
def test_what_a_rule_does(keys, expected):
    assert clusters(SNAP, rule(**keys)) == expected | ALONE


def test_a_rule_can_name_rows_without_a_code():
    named = {"name": "nameless", "action": "merge", "code": ""}
    assert (None, "nameless", "nameless", 2) in clusters(SNAP, named)


def test_the_first_rule_that_fits_wins_and_the_other_is_told():
    first, second = rule(name="first", code=E, action="merge"), rule(name="second", action="merge")
    assert clusters(SNAP, first, second) >= {(E, "first", "first", 2), (X, "second", "second", 1)}
    applied = sa.failures.rules(SNAP, {"rule": [first, second, rule(name="idle", code="a.b.c")]})
    assert applied.select("rule", "name", "n_rows", "n_lost", "lost_to").rows() == [
        (1, "first", 2, 0, None),
        (2, "second", 1, 2, "first"),
        (3, "idle", 0, 0, None),
    ]


@pytest.mark.slow
def test_no_rules_are_no_rules():
    assert sa.failures.rules(SNAP, None).is_empty()
    assert sa.failures.clusters(SNAP, rules={}).equals(sa.failures.clusters(SNAP))
    assert sa.failures.rules(store(), {"rule": [rule()]})["n_rows"].to_list() == [0]


def test_a_file_is_read(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(GOOD)
    rules = sa.failures.Rules.of(path)
    assert (rules.rules[0].name, rules.origin) == ("limits", str(path))
    assert sa.failures.Rules.of(rules) is rules


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[rule]\n", "are no TOML: .*line 1"),
        ("version = 1e400", "are no TOML: a number is not finite"),
        pytest.param(f"version = {'9' * 5000}", "are no TOML: Exceeds the limit", id="digits"),
        pytest.param(f"version = 0x{'f' * 5000}", "does not fit 64 bits", id="hexadecimal"),
        pytest.param(f"rule = {'[' * 2000}{']' * 2000}", "20 levels deep", id="deep"),
        ("versoin = 1", r"line 1: unknown key 'versoin'[\s\S]*'version'"),
        ("version = 2", "line 1: version 2 is not known"),
        ("rule = 3", "line 1: rule needs tables; found 3"),
        (
            GOOD + "[[rule]]\nname='x'\naction='merge'\nmesage='y'",
            r"line 11, rule 2, key 'mesage': this key is unknown[\s\S]*did you mean 'message'",
        ),
        (
            GOOD.replace("merge", "merg"),
            r"line 6, rule 1, key 'action': needs one of .* found 'merg'[\s\S]*'merge'",
        ),
        (GOOD.replace('"limits"', "7"), "line 5, .*key 'name': a text was needed; found 7"),
        (GOOD.replace('name = "limits"\n', ""), "line 4, .*a rule needs a name"),
        ("[[rule]]\nname='x'\naction='merge'", "line 1, .*a code, a message or both"),
        (GOOD + "code = 'a.*.b'", r"line 8, .*stands at the end; found 'a.\*.b'"),
        (GOOD.replace("merge", "name") + "into_code = 'a'", "line 8, .*belongs to merge"),
        (GOOD.replace("merge", "split"), r"line 7, .*split needs a group"),
        (GOOD.replace("'(?i)rate", "'(?=x)rate"), r"line 7, .*look-around"),
        (GOOD.replace("'(?i)rate", "'(rate"), "line 7, .*unclosed group"),
        pytest.param(GOOD.replace("(?i)rate limit|overloaded", ""), "is empty", id="empty pattern"),
    ],
)
def test_what_cannot_be_used_names_line_and_key(tmp_path, text, words):
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=words):
        sa.failures.Rules.of(path)


def test_a_file_that_is_not_there_says_so():
    with pytest.raises(ArgumentError, match=r"'no\.toml' cannot be read: No such file"):
        sa.failures.Rules.of("no.toml")
    with pytest.raises(ArgumentError, match="a TOML file or a mapping; found int 3"):
        sa.failures.Rules.of(3)


@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param("(.{0,100}){50}", id="nested counts"),
        pytest.param("((a{1,30}){1,30}){1,30}", id="three deep"),
        pytest.param("(a{1000}){1000}", id="too large to compile"),
        pytest.param(r"\pL{1000}", id="large class"),
        pytest.param("a" * 5_000, id="long"),
    ],
)
def test_bombs_are_refused_before_they_run(bomb):
    with pytest.raises(ArgumentError, match="rule 1, key 'message'"):
        sa.failures.Rules.of({"rule": [rule(message=bomb)]})


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*a){20}$", "(?:a{10}){20}b"])
def test_what_explodes_elsewhere_is_linear_here(pattern):
    snap = store(*(run(str(i), reason_message="a" * 50_000 + f"! {i}") for i in range(20)))
    assert sa.failures.rules(snap, {"rule": [rule(message=pattern)]}).height == 1


def test_a_pattern_that_takes_too_long_is_stopped(monkeypatch):
    monkeypatch.setattr(rules_file, "LIMIT_S", -1.0)
    messages = pl.Series([f"boom {i}" for i in range(100)])
    words = r"rule 1: the pattern 'b' took .* for 16 of 100 messages"
    with pytest.raises(ArgumentError, match=words):
        search(messages, "b", "rules, rule 1")


@pytest.mark.parametrize("piece", [*r"\w \W \d \D \s \S \pL".split(), ".", "[a-z]"])
def test_a_class_of_characters_weighs_ten(piece):
    assert n_pieces(f"{piece}{{100}}") == 1_000
    assert check_pattern(f"{piece}{{200}}") is None
    assert "stands for 2,010 pieces, and at most 2,000" in check_pattern(f"{piece}{{201}}")[0]


def test_a_character_weighs_one_and_an_end_nothing():
    assert [n_pieces(one) for one in ("a{100}", r"^\.$", "a{2,7}", "a{0}")] == [100, 1, 7, 1]

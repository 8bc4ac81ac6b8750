"""Policies: frozen, versioned, derived, compared, written to files and read again."""

import json
import pickle

import pytest

from stateanalytics.errors import ArgumentError
from stateanalytics.state.policy import NAMES, Policy, SeverityRule
from stateanalytics.systems import limits_of_systems


def test_v1_is_the_adr_rule_by_rule():
    rules = Policy.v1().severity_rules
    assert [rule.number for rule in rules] == list(range(1, 15))
    assert rules[0] == SeverityRule(1, "outcome", ("failed", "aborted"), "critical", "danger")
    assert rules[-1].name == "everything else"


def test_the_thresholds_are_those_of_lionagi():
    policy = Policy.v1()
    hours = {"agent": 6, "play": 6, "flow": 12, "engine": 12}
    assert {kind: policy.stalled_after(kind) / 3600 for kind in hours} == hours
    assert policy.stalled_after(None) == policy.stalled_after("other") == 6 * 3600
    assert policy.idle_after_s == policy.slow_after_s == policy.stuck_after_s == 3600
    assert policy.schedule_run_stalled_after_s == 86400


def test_policies_cannot_be_changed():
    with pytest.raises(AttributeError):
        Policy.v1().idle_after_s = 1


def test_equal_content_is_equal_and_hashes_alike():
    assert Policy.v1() == Policy.v1()
    assert len({Policy.v1(), Policy.v1(), Policy.adr0025()}) == 2
    one = Policy.v1().replace(stalled_after_s={"agent": 60, "flow": 90})
    other = Policy.v1().replace(stalled_after_s={"flow": 90, "agent": 60.0})
    assert one == other


def test_every_change_has_a_version_of_its_own():
    strict = Policy.v1().replace(idle_after_s=600)
    stricter = strict.replace(idle_after_s=300)
    assert strict.version.startswith("v1+")
    assert len({Policy.v1().version, strict.version, stricter.version}) == 3
    assert strict.version == Policy.v1().replace(idle_after_s=600).version


def test_a_change_taken_back_is_the_named_policy_again():
    assert Policy.operator().replace(idle_after_s=1).replace(idle_after_s=3600) == Policy.operator()
    assert Policy.v1().replace() == Policy.v1()


def test_a_version_can_be_given():
    assert Policy.v1().replace(idle_after_s=600, version="ours-3").version == "ours-3"


OWN_LIMITS = {name: dict(own) for name, own in limits_of_systems().items()}


def test_a_limit_that_is_the_systems_own_changes_nothing():
    assert Policy.v1().replace(limits=OWN_LIMITS) == Policy.v1()
    stricter = Policy.v1().replace(limits={"opencode": {"dead_after_s": 60}})
    assert stricter.version != "v1"
    assert stricter.replace(limits=OWN_LIMITS) == Policy.v1()


def test_equal_settings_have_one_version_however_they_are_written():
    def version(limits):
        return Policy.v1().replace(limits={"opencode": limits}).version

    assert version({"dead_after_s": 60}) == version({"dead_after_s": 60.0})
    assert version({"dead_after_s": 60}) != version({"dead_after_s": 61})
    turned = Policy.parity().to_dict()["read_as"]
    turned = {name: dict(reversed(words.items())) for name, words in reversed(turned.items())}
    turned_parity = Policy.v1().replace(read_as=turned, is_unseen_dead=True, version="parity")
    assert turned_parity == Policy.parity()


def test_a_version_changes_with_the_limits_that_a_system_brings(monkeypatch):
    before = Policy.v1().replace(idle_after_s=600).version
    own = {**OWN_LIMITS["opencode"], "dead_after_s": 60.0}
    changed = {**OWN_LIMITS, "opencode": own}
    monkeypatch.setattr("stateanalytics.state.policy.limits_of_systems", lambda: changed)
    assert Policy.v1().replace(idle_after_s=600).version != before


def test_kinds_that_are_not_named_keep_their_threshold():
    policy = Policy.v1().replace(stalled_after_s={"agent": 7200})
    assert (policy.stalled_after("agent"), policy.stalled_after("flow")) == (7200, 43200)


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_survives_json_and_crosses_process_borders(name):
    policy = Policy.named(name)
    assert Policy.from_dict(json.loads(json.dumps(policy.to_dict()))) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_a_file_may_say_only_what_differs(tmp_path):
    path = tmp_path / "ours.toml"
    path.write_text(
        'base = "operator"\nidle_after_s = 1800\n[stalled_after_s]\nagent = 7200\n'
        '[read_as.session]\n"<null>" = "completed"\ndone = "completed"\n'
    )
    policy = Policy.of(path)
    assert policy.version.startswith("operator+")
    assert policy.idle_after_s == 1800
    assert policy.status_read("session", None) == "completed"
    assert policy.status_read("session", "done") == "completed"
    assert policy.status_read("play", None) is None
    as_json = tmp_path / "ours.json"
    as_json.write_text(json.dumps(policy.to_dict()))
    assert Policy.of(str(as_json)) == policy


def test_a_name_is_a_policy_too():
    assert Policy.of("adr0025") == Policy.adr0025()


def test_a_cascade_of_ones_own_can_be_plain_data():
    missing = {"axis": "delivery", "words": ["missing"], "severity": "critical", "tone": "danger"}
    rules = [{"number": 3, **missing}, {"number": 9, "severity": "neutral", "tone": "neutral"}]
    policy = Policy.from_dict({"severity_rules": rules, "version": "two rules"})
    assert [rule.number for rule in policy.severity_rules] == [3, 9]
    assert policy.words("delivery") == ("missing",)
    assert policy.words("health") == ()


def last(**fields):
    return {"number": 14, "severity": "neutral", "tone": "neutral", **fields}


def rule(**fields):
    judged = {"words": ["blocked"], "severity": "warning", "tone": "warning"}
    return {"number": 15, "axis": "health", **judged, **fields}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"idle_after": 1}, "no field 'idle_after'.*did you mean 'idle_after_s'"),
        ({"idle_after_s": "1h"}, "idle_after_s needs a number.*'1h'"),
        ({"idle_after_s": -1}, "needs a number from 0; found -1"),
        ({"idle_after_s": float("nan")}, "found nan"),
        ({"idle_after_s": True}, "found True"),
        ({"stalled_after_s": {"agent": None}}, "stalled_after_s needs"),
        ({"stalled_after_s": {"": 1}}, "is a name; found ''"),
        ({"approximate_end_confidence": 2}, "from 0 to 1; found 2"),
        ({"limits": {"opencode": {"min_runaway_steps": 0}}}, "whole number from 1; found 0"),
        ({"limits": {"opencode": {"min_runaway_steps": 2.5}}}, "whole number"),
        ({"limits": {"opencode": {"dead_after_s": None}}}, "dead_after_s needs a number"),
        ({"is_display_verbose": "yes"}, "true or false; found 'yes'"),
        ({"version": " "}, "version is a name"),
        ({"base": "v2"}, "no policy 'v2'; there are v1, adr0025"),
        ({"read_as": {"sesion": {"x": "failed"}}}, "type 'sesion'.*did you mean"),
        ({"read_as": {"session": {"x": "done"}}}, "status of a session 'done'"),
        ({"read_as": {"session": "x"}}, "needs a mapping of words"),
        ({"severity_rules": [rule()]}, "takes everything else"),
        ({"severity_rules": [last(), rule()]}, "and only the last"),
        ({"severity_rules": [rule(number=14), last()]}, "14 is there twice"),
        ({"severity_rules": [rule(number=0), last()]}, "1 to 999; found 0"),
        ({"severity_rules": [rule(axis="helth"), last()]}, "no axis 'helth'"),
        ({"severity_rules": [rule(words=["stuck"]), last()]}, "no health 'stuck'"),
        ({"severity_rules": [rule(tone="danger"), last()]}, "tone of severity warning"),
        ({"severity_rules": [rule(severity="bad"), last()]}, "no severity 'bad'"),
        ({"severity_rules": [rule(when="now"), last()]}, "has the fields"),
        ({"severity_rules": ["x"]}, "SeverityRule or a mapping"),
        ([], "mapping of fields; found list"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(content, words):
    with pytest.raises(ArgumentError, match=f"(?s){words}") as caught:
        Policy.from_dict(content)
    assert "Hint: " in str(caught.value)


def test_a_misspelt_name_says_what_was_meant():
    with pytest.raises(ArgumentError, match=r"(?s)no policy 'operater'.*did you mean 'operator'"):
        Policy.named("operater")


def test_a_file_that_is_not_there_or_not_readable_says_so(tmp_path):
    with pytest.raises(ArgumentError, match=r"file .*none.toml' cannot be read: No such file"):
        Policy.of(tmp_path / "none.toml")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(ArgumentError, match="cannot be read"):
        Policy.of(broken)


HUGE_HEX = "0x" + "f" * 5000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("idle_after_s = 1e400", id="infinite"),
        pytest.param(f"idle_after_s = {'9' * 5000}", id="digits"),
        pytest.param(f"version = {HUGE_HEX}", id="hexadecimal"),
        pytest.param(f"base = {'[' * 2000}{']' * 2000}", id="deep"),
        pytest.param("stalled_after_s = 3", id="no mapping of kinds"),
        pytest.param("read_as = [1, 2]", id="no words"),
        pytest.param("limits = [[1]]", id="no limits"),
        pytest.param("severity_rules = 1e400", id="rules are a number"),
        pytest.param("severity_rules = [{number = 1, words = 3}]", id="words are a number"),
        pytest.param("stalled_after_s = {agent = [1]}", id="seconds are a list"),
    ],
)
def test_odd_numbers_depths_and_shapes_of_a_file_are_refused_in_our_words(tmp_path, text):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(ArgumentError, match="Hint: "):
        Policy.of(path)


def test_odd_values_given_from_python_are_refused_in_our_words():
    endless = []
    endless.append(endless)
    for content in ({"idle_after_s": 10**5000}, {"severity_rules": endless}, {"limits": 10**5000}):
        with pytest.raises(ArgumentError, match="Hint: "):
            Policy.from_dict(content)


def test_a_policy_that_is_a_device_is_refused(tmp_path):
    path = tmp_path / "policy.toml"
    path.symlink_to("/dev/zero")
    with pytest.raises(ArgumentError, match="not a regular file"):
        Policy.of(path)

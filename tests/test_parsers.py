"""Any text at all through every parser of foreign text: no foreign error, no line uncounted."""

import json
import string
import tomllib
from codecs import BOM_UTF8
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from stateanalytics.core.windows import read_moment
from stateanalytics.errors import ArgumentError
from stateanalytics.failures import Rules, mine_templates
from stateanalytics.io.files import as_moment, as_text, parsed, without_halves
from stateanalytics.io.json_lines import Parser
from stateanalytics.state.policy import Policy
from stateanalytics.systems.agent_orchestrator.logs import read_logs
from stateanalytics.systems.agent_orchestrator.places import Faults, File, Kind
from stateanalytics.systems.lionagi.schedules import cadence_s
from stateanalytics.systems.opencode.records import read_record_files
from tests.examples import examples
from tests.opencode_logs import event, step

ANY = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
LARGE = st.sampled_from([10**400, -(10**400), 2**63, float("inf")])
NUMBERS = st.one_of(st.integers(), st.floats(), LARGE)
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, ANY),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY, inner, max_size=3),
    max_leaves=8,
)
SOUND = [
    {"timestamp": "2026-05-04T09:00:00.000Z", "accepted": True, "reportState": "started"},
    {"ts": "2026-05-04T09:00:00.000Z", "state": "active", "data": {"from": "a", "to": "b"}},
    event(0, "execution.started"),
    step(1, "step.failed", error={"type": "x", "message": "y"}),
    event(None, "permission.asked", id="per_1"),
]


@st.composite
def lines(draw):
    """A line of a log: sound, sound but for one value, cut off, or anything."""
    sound = dict(draw(st.sampled_from(SOUND)))
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return draw(st.binary(max_size=40)).replace(b"\n", b"")
    if kind == 1:
        return json.dumps(draw(PLAIN)).encode()
    if kind == 2:
        sound[draw(st.sampled_from([*sound, "type", "data", "durable"]))] = draw(PLAIN)
    text = json.dumps(sound).encode()
    return text[: draw(st.integers(0, len(text)))] if kind == 3 else text


def is_blank(line, *, is_first=False):
    """Is nothing in a line; a mark of the order of bytes begins a file and is nothing."""
    text = line.removeprefix(BOM_UTF8) if is_first else line
    return not text.decode("utf-8", "replace").strip()


def count_lines(written):
    return sum(not is_blank(line, is_first=not place) for place, line in enumerate(written))


@pytest.mark.parametrize("kind", [Kind.AUDIT, Kind.ACTIVITY, Kind.OBSERVABILITY, Kind.RECOVERY])
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=st.lists(lines(), max_size=8), ending=st.sampled_from([b"\n", b""]))
def test_every_line_of_a_log_is_an_entry_or_counted(tmp_path, kind, written, ending):
    path = tmp_path / "a" / ".ao" / "activity.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(written) + ending)
    faults = Faults("log", str(tmp_path))
    entries = read_logs([File(str(path), kind, "web")], faults, bodies=False)
    found = faults.findings().filter(pl.col("code").str.starts_with("line."))
    text = path.read_bytes()
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):  # it is another text then
        return
    assert entries.height + found["n_rows"].sum() == count_lines(written)


@pytest.mark.slow
@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=st.lists(lines(), max_size=8), ending=st.sampled_from([b"\n", b""]))
def test_every_line_of_an_opencode_log_is_a_record_or_counted(tmp_path, written, ending):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join(written) + ending)
    with Parser() as parser:
        gathered = read_record_files([("log", path)], parser)
    n_named = gathered.broken["n_rows"].sum()
    n_read = gathered.log.events.height + gathered.messages.height + gathered.parts.height
    sound = [line for line in written if line in {json.dumps(one).encode() for one in SOUND[2:]}]
    assert n_read + n_named >= len(sound)


CRON = st.text(string.digits + "*/,-? LW#@abc\t", max_size=25)


@examples(300)
@given(
    st.one_of(CRON, ANY, st.lists(CRON, min_size=5, max_size=7).map(" ".join)),
    st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)),
    st.one_of(st.just("UTC"), ANY, st.sampled_from(["Europe/Prague", "../etc", "posixrules"])),
)
def test_any_text_is_a_cadence_or_none(expression, after, zone):
    seconds = cadence_s(expression, after.replace(tzinfo=UTC), zone)
    assert seconds is None or seconds > 0


@examples(300)
@given(st.one_of(PLAIN, st.datetimes().map(str), st.text("0123456789-:TZ+. ", max_size=30)))
def test_any_value_is_a_moment_or_none(value):
    moment = as_moment(value)
    assert moment is None or (moment.tzinfo is UTC and 2000 <= moment.year < 2100)
    try:
        read_moment(value)
    except ArgumentError as error:
        assert "Hint" in str(error)


@examples(300)
@given(ANY)
def test_any_text_becomes_one_that_a_column_can_hold(text):
    assert pl.Series([as_text(text), without_halves(json.dumps(text))[0]]).len() == 2
    json.loads(without_halves(json.dumps([text]))[0])[0].encode()


KEYS = "version rule name action code message into_code base idle_after_s limits read_as".split()
SET = st.tuples(st.sampled_from(KEYS), st.one_of(PLAIN, ANY).map(json.dumps)).map(" = ".join)
HEADS = st.sampled_from(["[[rule]]", "[limits.x]", "[read_as]", "x = 1979-05-27", "=", "[["])
TOML = st.lists(st.one_of(SET, HEADS, ANY), max_size=6).map("\n".join)


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TOML, ending=st.sampled_from([".toml", ".json"]))
def test_any_file_is_rules_and_a_policy_or_refused_in_our_words(tmp_path, text, ending):
    path = tmp_path / f"settings{ending}"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    for read in (Rules.of, Policy.of):
        try:
            read(path)
        except ArgumentError as error:
            assert "Hint" in str(error)


@examples(200)
@given(st.dictionaries(st.sampled_from([*KEYS, "severity_rules", "stalled_after_s"]), PLAIN))
def test_any_values_are_rules_and_a_policy_or_refused_in_our_words(content):
    for read in (Rules.of, Policy.from_dict):
        try:
            read(content)
        except ArgumentError as error:
            assert "Hint" in str(error)


def test_a_message_without_words_has_a_template_or_none():
    assert mine_templates(pl.Series([None, "", " ", "\x00", "a"], dtype=pl.String)).height == 5


@pytest.mark.slow
@examples(60)
@given(st.lists(st.one_of(st.none(), st.text(max_size=80)), max_size=12))
def test_every_message_has_a_template_or_none(messages):
    mined = mine_templates(pl.Series(messages, dtype=pl.String))
    assert mined.height == len(messages)


def test_the_bounds_of_settings_are_those_that_are_told():
    assert parsed("a = " + "[" * 18 + "]" * 18, tomllib.loads)[1] is None
    assert parsed("a = " + "[" * 25 + "]" * 25, tomllib.loads)[1] is not None
    assert parsed(f"a = {2**64 - 1}", tomllib.loads)[1] is None
    assert parsed(f"a = {2**64}", tomllib.loads)[1] is not None

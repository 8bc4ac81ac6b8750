"""ADR-0025: the six statuses, their pills and colours, effective states and timeouts."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.core.vocabulary import EXIT_CODES
from stateanalytics.errors import ArgumentError, MissingColumnsError
from stateanalytics.reporting import render
from stateanalytics.reporting.pills import COLOURS, LEGACY_TOOLTIP, pill_of
from stateanalytics.state.states import states
from stateanalytics.systems import reading as sources
from tests.conformance.adr0025 import (
    LEGACY,
    PILL_CSS,
    PILLS,
    SLOW_RUN_S,
    STATUSES,
    STUCK_RUN_S,
    contrast,
    pill,
    timeout_sentence,
    validate_status,
    with_effective_state,
    with_timeout_sentence,
)
from tests.engines import assert_same_rows, on_every_engine
from tests.examples import examples

ENOUGH_FOR_SMALL_TEXT = 4.5


def test_the_six_statuses_have_the_adrs_exit_codes():
    assert {status: PILLS[status].exit_code for status in STATUSES} == {
        "running": None,
        "completed": 0,
        "failed": 1,
        "timed_out": 124,
        "aborted": 130,
        "cancelled": 143,
    }
    assert all(EXIT_CODES[status] == PILLS[status].exit_code for status in STATUSES[1:])


@pytest.mark.parametrize(
    ("status", "label", "tone", "token", "icon"),
    [
        ("running", "Running", "running", "running", "activity"),
        ("completed", "Completed", "ok", "success", "check"),
        ("failed", "Failed", "failed", "error", "x-circle"),
        ("timed_out", "Timed out", "pending", "warning", "hourglass"),
        ("aborted", "Aborted", "neutral", "neutral", "stop"),
        ("cancelled", "Cancelled", "neutral", "neutral", "slash"),
        (LEGACY, "legacy", "neutral", "neutral", "dash"),
    ],
)
def test_each_status_is_drawn_as_the_adr_says(status, label, tone, token, icon):
    one = pill(status)
    assert (one.label, one.tone, one.token, one.icon) == (label, tone, token, icon)
    assert one.border == ("dotted" if status == LEGACY else "solid")


def test_no_two_pills_differ_by_colour_alone():
    signs = [(one.icon, one.label) for one in PILLS.values()]
    assert len(set(signs)) == len(signs)


def test_what_is_no_status_is_drawn_as_legacy():
    assert pill(None) is pill("") is pill("done") is PILLS[LEGACY]


@pytest.mark.parametrize("token", sorted(COLOURS))
def test_contrasts_are_those_of_the_adrs_table(token):
    one = COLOURS[token]
    light = contrast(one.light_background, one.light_foreground)
    dark = contrast(one.dark_background, one.dark_foreground)
    assert light == pytest.approx(one.light_contrast, abs=0.1)
    assert dark == pytest.approx(one.dark_contrast, abs=0.1)
    assert min(light, dark) >= ENOUGH_FOR_SMALL_TEXT


def test_every_pill_has_colours_and_a_size():
    assert {one.token for one in PILLS.values()} <= set(COLOURS)
    assert PILL_CSS["normal"]["height"] == "20px"
    assert PILL_CSS["dense"]["height"] == "18px"


@examples(100)
@given(*[st.integers(0, 0xFFFFFF).map("#{:06X}".format)] * 2)
def test_contrast_is_symmetric_and_between_1_and_21(one, other):
    assert 1 <= contrast(one, other) <= 21.0001
    assert contrast(one, other) == contrast(other, one)


def test_other_words_are_refused_as_statuses():
    with pytest.raises(ArgumentError, match=r"must be one of running.*found 'done'"):
        validate_status("done")


def test_both_dashboard_thresholds_are_an_hour():
    assert SLOW_RUN_S == STUCK_RUN_S == 3600


STATES = pl.DataFrame(
    [
        ("running", "stalled", False, "stale running"),
        ("running", "process_dead", False, "stale running"),
        ("running", "orphaned", False, "stale running"),
        ("running", "idle", False, "running"),
        ("running", None, False, "running"),
        ("run_complete", "ok", False, "run complete"),
        ("failed", "ok", False, "failed"),
        ("timed_out", "degraded", False, "timed out"),
        ("unknown", "unknown", True, "legacy"),
        ("running", "stalled", None, "stale running"),
        (None, None, None, None),
    ],
    schema=["lifecycle", "health", "is_legacy", "expected"],
    orient="row",
)


@on_every_engine
def test_running_is_never_alone_when_nothing_runs(engine):
    found = engine.back(with_effective_state(engine.of(STATES)))
    assert_same_rows(found.select("effective_state"), STATES.select(effective_state="expected"))


def test_states_of_a_real_store_have_the_same_effective_state(lionagi_samples):
    read, _ = sources.read_facts([lionagi_samples / "0.36.0" / "state.db"])
    # States also show words that no vocabulary has, as they are stored.
    judged = states(read).filter(~pl.col("effective_state").is_in(["done", "COMPLETED"]))
    expected = judged["effective_state"].to_list()
    assert with_effective_state(judged)["effective_state"].to_list() == expected
    assert "stale running" in expected


def test_closed_vocabularies_are_fine():
    lifecycle = pl.Series(["running"], dtype=pl.Enum(["running", "failed"]))
    rows = pl.DataFrame({"lifecycle": lifecycle, "health": [None], "is_legacy": [False]})
    assert with_effective_state(rows)["effective_state"].to_list() == ["running"]


@pytest.mark.parametrize(
    ("elapsed_s", "configured_s", "expected"),
    [
        (900.0, 900.0, "timed out after 900 s (configured 900 s)"),
        (901.2, 900.0, "timed out after 901 s (configured 900 s)"),
        (900.0, None, "timed out after 900 s"),
        (None, 900.0, "timed out (configured 900 s)"),
        (None, None, "timed out"),
    ],
)
def test_the_sentence_says_what_is_known(elapsed_s, configured_s, expected):
    assert timeout_sentence(elapsed_s, configured_s) == expected


@on_every_engine
def test_the_sentence_in_bulk_is_the_same(engine):
    durations = [(900.2, 900.0), (900.2, None), (None, 900.0), (None, None)]
    rows = pl.DataFrame(
        [("timed_out", *pair) for pair in durations]
        + [("failed", 900.0, 900.0), (None, 1.0, None)],
        schema={"raw_status": pl.String, "duration_s": pl.Float64, "timeout_s": pl.Float64},
        orient="row",
    )
    sentences = [timeout_sentence(*pair) for pair in durations] + [None, None]
    expected = rows.with_columns(timeout_sentence=pl.Series(sentences))
    assert_same_rows(engine.back(with_timeout_sentence(engine.of(rows))), expected)


def test_missing_columns_say_what_to_do():
    with pytest.raises(MissingColumnsError, match="with_effective_state needs columns"):
        with_effective_state(STATES.drop("health"))
    with pytest.raises(MissingColumnsError, match="with_timeout_sentence needs columns"):
        with_timeout_sentence(STATES)


def test_a_pill_of_a_word_outside_the_vocabulary_says_why_on_the_page():
    row = {"lifecycle": "unknown", "tone": "neutral", "effective_state": "done"}
    macros = render._pages().get_template("macros.html.j2").module
    legacy = macros.pill(pill_of({**row, "is_legacy": True}))
    assert f'title="{LEGACY_TOOLTIP}"' in legacy
    assert "title" not in macros.pill(pill_of({**row, "is_legacy": False}))

"""Silences between signs of life: what opens them, what closes them, what is none."""

import itertools
from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics import Policy, read
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.detectors.gaps import CLOSED_BY, lean_gaps, silence_gaps
from stateanalytics.detectors.quality import gap_sums, quality_of_service
from stateanalytics.errors import MissingColumnsError
from stateanalytics.state.definitions import LEFT_OUT_OF_SILENCES
from stateanalytics.systems import system_named
from tests.examples import a_few, examples
from tests.frames import ago, facts

START, END = ago(hours=5), ago(hours=4)
DEATH = system_named("lionagi").ends.death_codes[0]
RUNNING = {"entity_id": "a", "started_at": START, "raw_status": "running", "kind": "agent"}
DONE = {**RUNNING, "raw_status": "completed", "ended_at": END, "end_written_by": "executor"}
DEAD = {"end_written_by": "observer", "reason_code": "session.phantom.process_dead"}
REAPED = {**DONE, "raw_status": "failed", **DEAD}


def said(*moments, entity_id="a", **more):
    whose = {"source": "state.db", "system": "lionagi", "entity_type": "session"}
    return [
        {**whose, "entity_id": entity_id, "at": at, "seq": i, "is_activity": True, **more}
        for i, at in enumerate(moments)
    ]


def gaps_of(entity, *moments, **frames):
    return silence_gaps(facts([entity], events=said(*moments), **frames))


def shown(gaps):
    return gaps.select("gap_s", "closed_by", "left_out").rows()


MIDDLE = ago(hours=4, minutes=30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entity", "moments", "expected"),
    [
        pytest.param(
            RUNNING, [MIDDLE], [(1800.0, "sign_of_life", None), (16200.0, "as_of", None)],
            id="a running session is cut off at as-of",
        ),
        pytest.param(
            DONE, [MIDDLE], [(1800.0, "sign_of_life", None), (1800.0, "own_end", None)],
            id="a run that wrote its end",
        ),
        pytest.param(
            REAPED, [MIDDLE], [(1800.0, "sign_of_life", None), (1800.0, "death", None)],
            id="a run whose process was gone",
        ),
        pytest.param(DONE, [], [(3600.0, "own_end", None)], id="a run that never spoke"),
        pytest.param(
            {**REAPED, "reason_code": "run.cancelled.manual_kill", "raw_status": "cancelled"},
            [], [(3600.0, "other_end", None)], id="killed by a person: proves nothing",
        ),
        pytest.param(
            {**REAPED, "reason_code": "session.stale.no_heartbeat"},
            [], [(3600.0, "other_end", None)], id="swept for its age: proves nothing",
        ),
        pytest.param(
            {**REAPED, "reason_code": None, "reason_message": "process_exited_without_status"},
            [], [(3600.0, "death", None)], id="a death told in the summary",
        ),
        pytest.param(
            {**DONE, "end_written_by": None}, [], [(3600.0, "other_end", None)],
            id="an end by nobody knows whom",
        ),
        pytest.param(
            {**DONE, "is_end_approximate": True}, [], [(3600.0, "other_end", None)],
            id="a repaired end",
        ),
        pytest.param(
            {**DONE, "ended_at": None}, [MIDDLE],
            [(1800.0, "sign_of_life", None), (0.0, "other_end", None)],
            id="an end without a time is cut off at the last sign of life",
        ),
        pytest.param(
            DONE, [MIDDLE, ago(hours=1)],
            [(1800.0, "sign_of_life", None), (1800.0, "own_end", None),
             (10800.0, "sign_of_life", "not_running"), (0.0, "other_end", None)],
            id="resumed: between its end and the next word nothing ran",
        ),
        pytest.param(
            REAPED, [MIDDLE, ago(hours=1)],
            [(1800.0, "sign_of_life", None), (12600.0, "sign_of_life", None),
             (0.0, "other_end", None)],
            id="called dead, then it spoke: it had been alive",
        ),
        pytest.param(
            RUNNING, [START, START, END],
            [(0.0, "sign_of_life", None)] * 2
            + [(3600.0, "sign_of_life", None), (14400.0, "as_of", None)],
            id="signs of life at one moment",
        ),
        pytest.param(
            {**RUNNING, "started_at": MIDDLE}, [START],
            [(1800.0, "sign_of_life", None), (16200.0, "as_of", None)],
            id="a message before the start is a sign of life too",
        ),
        pytest.param(
            {**RUNNING, "started_at": None}, [END], [(14400.0, "as_of", "undated")], id="no start",
        ),
        pytest.param(
            RUNNING, [ago(hours=-1)], [(18000.0, "as_of", None)], id="the future is not seen",
        ),
        pytest.param(
            {**RUNNING, "last_message_at": END}, [MIDDLE],
            [(1800.0, "sign_of_life", None), (1800.0, "sign_of_life", "unseen"),
             (14400.0, "as_of", None)],
            id="messages that the store no longer holds",
        ),
        pytest.param(
            {**RUNNING, "last_message_at": MIDDLE}, [MIDDLE],
            [(1800.0, "sign_of_life", None), (16200.0, "as_of", None)],
            id="the last message is the last event",
        ),
        pytest.param(
            {**DONE, "recorded_by": "mirrored"}, [], [(3600.0, "own_end", "mirrored")],
            id="mirrored",
        ),
        pytest.param(
            {**RUNNING, "raw_status": None}, [], [(0.0, "other_end", "legacy")], id="legacy",
        ),
        pytest.param(
            {**DONE, "ended_at": ago(hours=-1)}, [], [(18000.0, "other_end", "future")],
            id="an end after as-of",
        ),
        pytest.param(
            {**RUNNING, "process_alive": False}, [MIDDLE],
            [(1800.0, "sign_of_life", None), (16200.0, "death", None)],
            id="a probe found its process dead",
        ),
        pytest.param({**RUNNING, "started_at": None}, [], [], id="nothing known"),
    ],
)  # fmt: skip
def test_a_silence_says_what_closed_it(entity, moments, expected):
    found = gaps_of(entity, *moments)
    assert shown(found) == expected
    assert set(found["left_out"].drop_nulls()) <= set(LEFT_OUT_OF_SILENCES)


def test_only_activity_of_sessions_counts():
    quiet = said(MIDDLE, is_activity=False) + said(MIDDLE, is_activity=None)
    team = said(MIDDLE, entity_type="team")
    given = facts([RUNNING], events=quiet + team)
    assert silence_gaps(given)["gap_s"].to_list() == [18000.0]


def test_an_end_in_the_history_closes_a_stretch_of_work():
    ended = said(MIDDLE, status="completed", previous_status="running")[0] | {"seq": 1}
    found = gaps_of(RUNNING, END, transitions=[ended])
    assert shown(found) == [
        (1800.0, "other_end", None),
        (1800.0, "sign_of_life", "not_running"),
        (14400.0, "as_of", None),
    ]


def test_the_flags_follow_what_closed_it():
    found = gaps_of(REAPED, MIDDLE)
    assert found.select("is_last", "is_censored", "is_dead", "dead_known_at").rows() == [
        (False, False, False, None),
        (True, False, True, END),
    ]
    open_now = gaps_of(RUNNING).row(0, named=True)
    assert (open_now["is_last"], open_now["is_censored"], open_now["is_dead"]) == (
        True,
        True,
        False,
    )


def test_the_same_id_in_two_stores_is_two_sessions():
    again = {**DONE, "source": "other.db"}
    events = [{**row, "source": "other.db"} for row in said(MIDDLE)]
    found = silence_gaps(facts([RUNNING, again], events=events))
    assert found.select("source", "gap_s").rows() == [
        ("state.db", 18000.0),
        ("other.db", 1800.0),
        ("other.db", 1800.0),
    ]


def test_rows_in_any_order_give_the_same_silences():
    moments = [ago(hours=5 - i / 7) for i in range(30)]
    straight = gaps_of(RUNNING, *moments)
    assert gaps_of(RUNNING, *reversed(moments)).equals(straight)


def test_a_session_that_is_listed_twice_is_one():
    twice = silence_gaps(facts([RUNNING, RUNNING], events=said(MIDDLE)))
    assert twice.equals(gaps_of(RUNNING, MIDDLE))


def test_events_without_a_moment_or_an_owner_are_none():
    events = said(MIDDLE) + said(None) + said(END, entity_id=None)
    assert silence_gaps(facts([RUNNING], events=events)).equals(gaps_of(RUNNING, MIDDLE))


def test_columns_to_count_by_are_carried_along():
    found = silence_gaps(facts([{**RUNNING, "model": "m"}]), by=("model", "kind"))
    assert found.columns[4:6] == ["model", "kind"]
    assert silence_gaps(facts([RUNNING]), by="project")["project"].to_list() == [None]
    with pytest.raises(MissingColumnsError, match=r"which this frame does not have"):
        silence_gaps(facts([RUNNING]), by="colour")


def test_a_policy_that_reads_statuses_otherwise_decides_what_has_ended():
    parity = Policy.parity()
    found = silence_gaps(facts([{**DONE, "raw_status": None}]), policy=parity)
    assert shown(found) == [(3600.0, "own_end", None)]


def test_silences_of_opencode_stay_within_executions(shared):
    with read(shared / "samples/opencode/v2_20260717", progress=False) as snap:
        found = silence_gaps(snap)
        executions = snap.detail("opencode_executions")
    assert found.filter(left_out="not_running").height >= 8
    assert found.filter("is_dead").height == executions.filter(outcome="crashed").height
    counted = found.filter(pl.col("left_out").is_null(), closed_by="sign_of_life")
    inside = counted.join(
        executions.select("source", entity_id="session_id", end="ended_at"),
        on=["source", "entity_id"],
    ).filter((pl.col("started_at") < pl.col("end")) & (pl.col("end") < pl.col("ended_at")))
    assert inside.is_empty()


@pytest.mark.parametrize("where", a_few(["demo", "lionagi/0.36.0", "agent-orchestrator/v2_json"]))
def test_real_stores_add_up(where, shared, demo):
    snap = demo if where == "demo" else read(shared / "samples" / where, progress=False)
    found = silence_gaps(snap)
    assert found["gap_s"].min() >= 0
    assert set(found["closed_by"].cast(pl.String)) <= set(CLOSED_BY)
    assert found["ended_at"].max() <= snap.as_of
    # Each silence begins where the one before it ended.
    follows = found.with_columns(before=pl.col("ended_at").shift(1).over(ENTITY_KEY))
    assert follows.filter(pl.col("before") > pl.col("started_at")).is_empty()
    ends = found.group_by(ENTITY_KEY).agg(pl.col("is_last").last())
    assert ends["is_last"].all()
    assert gap_sums(lean_gaps(snap)).equals(gap_sums(found))


MINUTES = st.integers(0, 60)
SESSION = st.fixed_dictionaries(
    {
        "began": MINUTES,
        "said": st.lists(MINUTES, max_size=6),
        "ended": st.none() | MINUTES,
        "end_by": st.sampled_from(["executor", "observer", "reaper"]),
    }
)


def slowly(session):
    """The obvious version, session by session: (minutes, closed_by) of what counts."""
    signs = sorted(at for at in (session["began"], *session["said"]) if at <= 50)
    end, is_dead = session["ended"], session["end_by"] == "reaper"
    if not signs or (end is not None and end > 50):
        return []
    word = {"executor": "own_end", "observer": "other_end", "reaper": "death"}[session["end_by"]]
    # An end before the last sign of life parts the work in two; a wrong reaper does not.
    parts = end is not None and end < signs[-1] and not is_dead
    found = []
    for before, after in itertools.pairwise(signs):
        if parts and before <= end < after:
            found.append((end - before, word))
        else:
            found.append((after - before, "sign_of_life"))
    if end is None:
        return [*found, (50 - signs[-1], "as_of")]
    if end >= signs[-1]:
        return [*found, (end - signs[-1], word)]
    return [*found, (0, "other_end")]


@pytest.mark.slow
@examples(30)
@given(st.lists(SESSION, min_size=1, max_size=5), st.lists(MINUTES, min_size=1, max_size=4))
def test_silences_equal_the_loop_over_sessions(sessions, thresholds):
    origin = ago(minutes=50)
    rows, events = [], []
    for number, one in enumerate(sessions):
        name = str(number)
        row = {"entity_id": name, "started_at": origin + timedelta(minutes=one["began"])}
        row |= {"kind": "agent", "raw_status": "running"}
        if one["ended"] is not None:
            row |= {"raw_status": "failed", "ended_at": origin + timedelta(minutes=one["ended"])}
            row["end_written_by"] = "executor" if one["end_by"] == "executor" else "observer"
            row["reason_code"] = DEATH if one["end_by"] == "reaper" else None
        rows.append(row)
        moments = [origin + timedelta(minutes=at) for at in one["said"]]
        events += said(*moments, entity_id=name)
    given_facts = facts(rows, events=events)
    found = silence_gaps(given_facts).filter(pl.col("left_out").is_null())
    expected = [
        (str(number), gap * 60.0, word)
        for number, one in enumerate(sessions)
        for gap, word in slowly(one)
    ]
    shown_rows = found.select("entity_id", "gap_s", pl.col("closed_by").cast(pl.String)).rows()
    assert sorted(shown_rows) == sorted(expected)
    judged = quality_of_service(given_facts, thresholds_s=[60.0 * t for t in thresholds])
    for threshold_s, n_mistakes in judged.select("threshold_s", "n_mistakes").rows():
        longer = [gap for _, gap, word in expected if word == "sign_of_life" and gap > threshold_s]
        assert n_mistakes == len(longer)

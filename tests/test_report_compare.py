"""The five numbers beside an earlier window: what changed, and what chance may have done."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.errors import ArgumentError
from stateanalytics.reporting import report
from stateanalytics.stats.intervals import newcombe, wilson
from stateanalytics.systems.history import rewound
from tests.examples import examples
from tests.frames import AS_OF, WHOSE, ago, facts


def ended(entity_id, raw_status, *, days, **rest):
    """A session of an hour that ended so many days ago."""
    times = dict.fromkeys(("created_at", "started_at"), ago(days=days, hours=1))
    row = {"entity_id": entity_id, "raw_status": raw_status, "ended_at": ago(days=days)}
    return {**row, **times, **rest}


def some(name, raw_status, n, *, days):
    return [ended(f"{name} {i}", raw_status, days=days) for i in range(n)]


TWO_WEEKS = [
    *some("good", "completed", 56, days=1),
    *some("bad", "failed", 14, days=2),
    *some("good then", "completed", 48, days=8),
    *some("bad then", "failed", 32, days=9),
    *some("before", "completed", 3, days=20),
]


def changes(rows, **how):
    summary = report(facts(rows), sections=["headline"], **how).summary
    return {one["name"]: one["change"] for one in summary["headline"]["numbers"]}, summary


@pytest.mark.slow
def test_a_share_names_its_difference_with_an_interval():
    found, _ = changes(TWO_WEEKS)
    assert found["completed"]["words"] == "+20 points against 60 % (95 %: +5 points to +33 points)"
    assert found["completed"]["is_clear"] is True
    assert found["completed"]["interval"] == pytest.approx([0.0524, 0.3339], abs=1e-4)
    assert (found["completed"]["n"], found["completed"]["of"]) == (48, 80)


@pytest.mark.slow
def test_a_difference_that_chance_may_make_says_so():
    now = [*some("a", "completed", 4, days=1), *some("b", "failed", 2, days=1)]
    then = [*some("c", "completed", 3, days=8), *some("d", "failed", 3, days=8)]
    found, _ = changes([*now, *then])
    assert found["completed"]["words"].endswith(", no significant change")
    assert found["completed"]["is_clear"] is False


@pytest.mark.slow
def test_a_count_names_how_many_more():
    found, _ = changes(TWO_WEEKS)
    assert found["runs"]["words"] == "10 fewer than the 80 before"
    assert found["incidents"]["words"] == "18 fewer than the 32 before, not significant per run"


BEGAN = ("created_at", "started_at")
SPOKE = ("updated_at", "last_message_at", "last_activity_at")
LONG_OPEN = {
    **{"entity_id": "o", "raw_status": "running"},
    **dict.fromkeys(BEGAN, ago(days=9)),
    **dict.fromkeys(SPOKE, ago(hours=1)),
}


def test_open_work_of_an_earlier_window_is_not_guessed():
    found, _ = changes([*TWO_WEEKS, LONG_OPEN])
    assert found["unresolved"]["words"] == "The state of 1 run at that time is not recorded."
    assert found["unresolved"]["n"] is None


@pytest.mark.slow
def test_open_work_is_compared_as_it_stood_at_the_end_of_each_window():
    """Twenty-nine runs that never stop talking, twenty of them slow: at both ends of weeks."""
    began = [ago(days=9 if n < 20 else 7, minutes=9) for n in range(29)]
    runs = [
        LONG_OPEN | {"entity_id": f"o{n}", "n_messages": 2} | dict.fromkeys(BEGAN, at)
        for n, at in enumerate(began)
    ]
    begun = [
        {**WHOSE, "entity_id": run["entity_id"], "at": run["started_at"], "status": "running",
         "previous_status": None, "seq": n}
        for n, run in enumerate(runs)
    ]  # fmt: skip
    said = [
        {**WHOSE, "entity_id": run["entity_id"], "at": at, "seq": n, "kind": "message",
         "is_activity": True}
        for n, run in enumerate(runs)
        for at in (ago(days=7, minutes=1), ago(hours=1))
    ]  # fmt: skip
    whole = facts([*TWO_WEEKS, *runs], transitions=begun, events=said)
    for week, slow in ((whole, 29), (rewound(whole, ago(days=7)).facts, 20)):
        summary = report(week, sections=["slow"], compare=None).summary
        assert (summary["slow"]["n_open"], summary["slow"]["n_slow_open"]) == (29, slow)
        assert "future" not in summary["headline"]["left_out"]
    numbers = report(whole, sections=["headline"]).summary["headline"]["numbers"]
    change = {one["name"]: one["change"] for one in numbers}["unresolved"]
    assert (change["n"], change["of"]) == (0, 29)


def test_open_work_of_weeks_that_are_over_is_compared_as_long_after_their_ends():
    """Each day begins twelve runs of five hours and one that falls silent: two weeks alike."""
    late = timedelta(hours=6)

    def one(name, n, day, **rest):
        began = dict.fromkeys(BEGAN, ago(days=day, hours=8))
        return {"entity_id": f"{name} {n} {day}", "n_messages": 0, **began, **rest}

    days = range(1, 16)
    ends = {day: {"raw_status": "completed", "ended_at": ago(days=day, hours=3)} for day in days}
    done = [one("done", n, day, **ends[day]) for day in days for n in range(12)]
    began = {day: {"raw_status": "running", "updated_at": ago(days=day, hours=8)} for day in days}
    silent = [one("silent", 0, day, **began[day]) for day in days]
    runs = [*done, *silent]
    begun = [
        {**WHOSE, "entity_id": run["entity_id"], "at": run["started_at"], "status": "running",
         "previous_status": None, "seq": 1}
        for run in runs
    ] + [
        {**WHOSE, "entity_id": run["entity_id"], "at": run["ended_at"], "status": "completed",
         "previous_status": "running", "seq": 2}
        for run in done
    ]  # fmt: skip
    week = (ago(days=8) - late, ago(days=1) - late)
    whole = facts(runs, transitions=begun)
    numbers = report(whole, window=week, sections=["headline"]).summary["headline"]["numbers"]
    unresolved = {one["name"]: one for one in numbers}["unresolved"]
    # At the end of the week before, twelve were open that were about to end.
    assert (unresolved["of"], unresolved["change"]["of"]) == (15, 8)


@pytest.mark.slow
def test_the_earlier_window_is_as_long_and_right_before():
    _, summary = changes(TWO_WEEKS)
    now, then = summary["window"], summary["compared_with"]
    assert then["until"] == now["since"]
    assert (then["coverage"], then["is_covered"]) == (None, True)


@pytest.mark.slow
def test_last_week_is_seven_days_earlier_whatever_the_length():
    day = (ago(days=3), ago(days=2))
    _, summary = changes(TWO_WEEKS, window=day, compare="last-week")
    assert summary["compared_with"]["since"] == f"{ago(days=10):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.slow
@pytest.mark.parametrize("nothing", [None, "none"])
def test_nothing_to_compare_leaves_the_numbers_alone(nothing):
    summary = report(facts(TWO_WEEKS), compare=nothing, sections=["headline"]).summary
    assert summary["compared_with"] is None
    assert "change" not in summary["headline"]["numbers"][0]


@pytest.mark.slow
def test_a_window_before_the_first_record_says_so():
    _, summary = changes(some("good", "completed", 3, days=1))
    words = "Nothing was recorded in that window, so no change is given."
    assert summary["compared_with"]["coverage"] == words
    page = report(facts(some("good", "completed", 3, days=1)), sections=["headline"]).as_html()
    assert "Nothing was recorded in that window" in page
    assert 'class="change' not in page


def test_a_window_that_the_data_cover_in_part_says_from_when():
    rows = [*some("good", "completed", 3, days=1), *some("then", "completed", 3, days=8)]
    _, summary = changes(rows)
    assert summary["compared_with"]["coverage"].endswith("so they cover only a part of it.")


def test_a_later_window_cannot_be_compared_with():
    with pytest.raises(ArgumentError, match=r"earlier window; .* does not begin before .*\nHint: "):
        report(facts(TWO_WEEKS), window=(ago(days=9), ago(days=2)), compare=(ago(days=5), AS_OF))


@pytest.mark.slow
def test_the_page_shows_the_change_beside_each_number():
    page = report(facts(TWO_WEEKS), sections=["headline"]).as_html()
    assert "+20 points against 60 %" in page
    assert 'class="change clear"' in page


@examples(100)
@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 50), st.integers(1, 50))
def test_newcombe_holds_the_difference_and_turns_with_its_sign(a, n, b, m):
    a, b = min(a, n), min(b, m)
    difference, low, high = newcombe(a, n, b, m)
    assert -1 <= low <= difference <= high <= 1
    assert newcombe(b, m, a, n) == pytest.approx((-difference, -high, -low))


def test_newcombe_of_nothing_says_so():
    with pytest.raises(ArgumentError, match="two totals of at least 1; found n=0 and n_before=5"):
        newcombe(0, 0, 1, 5)
    assert wilson(0, 0) is None

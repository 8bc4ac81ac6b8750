"""What came after a window had ended: last week's report and this week's differ by named rows."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.core.facts import changed_facts
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting import report
from stateanalytics.systems.history import facts_at
from tests.conftest import ROOT
from tests.examples import a_few, examples
from tests.lionagi_stores import change, listing, session, write_store

MONDAY = datetime(2026, 5, 4, tzinfo=UTC)
"""Of week 2026-W19."""
HOUR = 3_600.0
WEEK_H = 7 * 24
WEEKS = ("2026-W19", "2026-W20", "2026-W21")
CODES = {
    "completed": "run.completed.ok", "failed": "run.failed.exception",
    "timed_out": "run.timed_out.deadline", "running": "run.running.resumed",
}  # fmt: skip
BRIEF = ("late", "over_time", "failures", "durations", "slow", "provenance", "appendix")


def end_of(week):
    return MONDAY + timedelta(days=7 * (WEEKS.index(week) + 1))


def moment_s(hours):
    return MONDAY.timestamp() + hours * HOUR


def store_at(path, script, hours):
    """The store as its writer had left it so many hours after the first Monday.

    ``script`` says of each run when it began, how much later its row was written, and when it
    went to which status.
    """
    sessions, transitions, messages, lists = [], [], [], []
    for name, (began, delay, changes) in script.items():
        if began + delay > hours:
            continue
        seen = [(at, status) for at, status in changes if at <= hours]
        spoke = [began + delay, *(at for at, _ in seen)]
        status = seen[-1][1] if seen else "running"
        sessions.append(
            session(
                name, status=status, created_at=moment_s(began + delay),
                started_at=moment_s(began),
                ended_at=None if status == "running" else moment_s(spoke[-1]),
                updated_at=moment_s(spoke[-1]), last_message_at=moment_s(spoke[-1]),
                status_reason_code=CODES[status] if seen else None, status_reason_summary=None,
            )
        )  # fmt: skip
        before = ["running", *(status for _, status in changes)]
        transitions += [
            change(name, status, moment_s(at), previous_status=previous, reason_code=CODES[status],
                   reason_summary=None)
            for (at, status), previous in zip(seen, before, strict=False)
        ]  # fmt: skip
        said = {f"{name}-{place}": moment_s(at) for place, at in enumerate(spoke)}
        text = {"content": "{}", "role": "assistant"}
        messages += [{"id": one, "created_at": at_s, **text} for one, at_s in said.items()]
        lists.append(listing(f"list-{name}", list(said)))
    path.unlink(missing_ok=True)
    told = {"status_transitions": transitions, "messages": messages, "progressions": lists}
    return write_store(path, sessions=sessions, **told)


def read_at(path, script, hours):
    at = MONDAY + timedelta(hours=hours)
    return sa.read(store_at(path, script, hours), as_of=at, progress=False)


COMMANDS = ("runs", "actions")


def without_provenance(summary):
    # The data section says what was read and found, such as what is left out by now; some
    # detectors read when a row was written, which nobody recorded of those written since.
    others = ("provenance", "losses", "detectors")
    told = {name: part for name, part in summary.items() if name not in others}
    # Commands name what was read.
    commands = {name: [row | {"command": None} for row in told[name]] for name in COMMANDS}
    return told | commands


BUSY = {
    "steady": (10, 0, [(12, "completed")]),
    "long": (100, 0, [(200, "failed")]),  # open when its week ended, failed in the next
    "longer": (150, 0, [(400, "completed")]),  # open at two ends of weeks
    "stuck": (160, 0, []),
    "next": (180, 0, [(181, "timed_out")]),
    "resumed": (120, 0, [(121, "failed"), (190, "running"), (210, "completed")]),
    "late": (30, 300, []),  # its row was written when two weeks were over
    "last": (400, 0, [(410, "failed")]),
}


@pytest.mark.parametrize(
    ("week", "sections"), a_few([(WEEKS[0], BRIEF), (WEEKS[0], None), (WEEKS[1], None)], 0)
)
def test_a_report_as_it_was_known_is_the_report_that_was_made_then(tmp_path, week, sections):
    path = tmp_path / "state.db"
    hours = WEEK_H * (WEEKS.index(week) + 1)
    asked = {"window": week, "sections": sections, "shown": False}
    kept = report(read_at(path, BUSY, hours), **asked)
    now = read_at(path, BUSY, 3 * WEEK_H)
    again = report(now, as_known_at=end_of(week), **asked)
    assert without_provenance(again.summary) == without_provenance(kept.summary)
    assert again.summary["provenance"]["as_of"] == kept.summary["provenance"]["as_of"]
    changes = sa.diff(kept, again)
    assert changes["cause"].unique().to_list() == ["unexplained"]
    assert changes["change"].fill_null(0).sum() == 0


def test_no_count_of_messages_falls_below_zero(tmp_path):
    """The row says none, and the lists name messages that came later."""
    then = facts_at(read_at(tmp_path / "state.db", BUSY, 3 * WEEK_H), end_of(WEEKS[0])).facts
    assert then.entities["n_messages"].min() == 0


@pytest.mark.slow
def test_what_came_later_is_named_and_explains_every_difference(tmp_path):
    path = tmp_path / "state.db"
    kept = report(read_at(path, BUSY, WEEK_H), window=WEEKS[0], sections=BRIEF, shown=False)
    now = read_at(path, BUSY, 3 * WEEK_H)
    now = report(now, window=WEEKS[0], sections=BRIEF, shown=False)
    late = now.summary["late"]
    told = {(row["entity_id"], row["cause"], row["then"], row["now"]) for row in late["rows"]}
    assert told == {
        ("long", "closed censoring", "open", "later"),
        ("longer", "closed censoring", "open", "later"),
        ("resumed", "changed rows", "failed", "later"),
        ("late", "late rows", None, "open"),
    }
    kinds = {kind["cause"]: kind["n"] for kind in late["kinds"]}
    assert kinds == {"late rows": 1, "closed censoring": 2, "changed rows": 1}
    by_name = {number["name"]: number for number in late["numbers"]}
    assert by_name["runs"] == {"name": "runs", "then": [5, None], "now": [3, None]}
    assert "At 2026-05-11 00:00 UTC" in late["finding"]
    changes = sa.diff(kept, now)
    runs = changes.filter(number="runs").select("cause", "runs", "n_before", "n_after").rows()
    assert runs == [
        ("late rows", ["late"], 5, 6),
        ("closed censoring", ["long", "longer"], 6, 4),
        ("changed rows", ["resumed"], 4, 3),
        ("unexplained", None, 3, 3),
    ]
    unexplained = changes.filter(cause="unexplained")
    assert unexplained["n_before"].equals(unexplained["n_after"].alias("n_before"))
    page = now.as_html()
    assert "Late data" in page
    assert '<code class="id">longer</code>' in page


@pytest.mark.slow
def test_a_failure_that_somebody_dated_back_is_a_new_failure_of_the_week(tmp_path):
    """An observer finds it dead a week later and writes the end of its last sign of life."""
    path = tmp_path / "state.db"
    script = {"ok": (10, 0, [(12, "completed")]), "dead": (100, 0, [])}
    kept = report(read_at(path, script, WEEK_H), window=WEEKS[0], sections=BRIEF, shown=False)
    whole = read_at(path, script, 2 * WEEK_H)
    dead, reaped_s = moment_s(101), moment_s(200)
    path.unlink()
    rows = [
        session("ok", status="completed", created_at=moment_s(10), started_at=moment_s(10),
                ended_at=moment_s(12), updated_at=moment_s(12), last_message_at=None),
        session("dead", status="failed", created_at=moment_s(100), started_at=moment_s(100),
                ended_at=dead, updated_at=reaped_s, last_message_at=None,
                status_reason_code="run.failed.exception"),
    ]  # fmt: skip
    write_store(
        path, sessions=rows,
        status_transitions=[change("ok", "completed", moment_s(12)),
                            change("dead", "failed", reaped_s)],
    )  # fmt: skip
    snap = sa.read(path, as_of=whole.as_of, progress=False)
    now = report(snap, window=WEEKS[0], sections=BRIEF, shown=False)
    (row,) = now.summary["late"]["rows"]
    assert (row["entity_id"], row["then"], row["now"]) == ("dead", "open", "failed")
    assert row["is_new_failure"]
    assert "1 failure among them" in now.summary["late"]["finding"]
    step = sa.diff(kept, now).filter(number="incidents", cause="closed censoring")
    assert step["runs"].to_list() == [["dead"]]


STEP = st.tuples(st.integers(1, 250), st.sampled_from(sorted(CODES)))
STEPS = st.lists(STEP, max_size=3)
RUNS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.tuples(st.integers(0, 3 * WEEK_H - 1), st.sampled_from([0, 0, 0, 5, 200]), STEPS),
    min_size=1,
    max_size=5,
)


def as_script(runs):
    """Every change comes after the one before it, and after the row was written."""
    script = {}
    for name, (began, delay, steps) in runs.items():
        at, changes, status = began + delay, [], "running"
        for after, to in steps:
            at += after
            if to != status:
                changes.append((at, to))
                status = to
        script[name] = (began, delay, changes)
    return script


def check_explained(tmp_path, runs, week):
    path, script = tmp_path / "state.db", as_script(runs)
    hours = WEEK_H * (WEEKS.index(week) + 1)
    if all(began + delay > hours for began, delay, _ in script.values()):
        return
    kept = report(read_at(path, script, hours), window=week, sections=BRIEF, shown=False)
    now = read_at(path, script, 3 * WEEK_H)
    again = report(now, window=week, as_known_at=end_of(week), sections=BRIEF, shown=False)
    assert without_provenance(again.summary) == without_provenance(kept.summary)
    made = report(now, window=week, sections=BRIEF, shown=False)
    changes = sa.diff(kept, made)
    unexplained = changes.filter(cause="unexplained")
    assert unexplained["n_before"].equals(unexplained["n_after"].alias("n_before"))
    causes = set(changes["cause"]) - {"unexplained"}
    assert causes <= {"late rows", "closed censoring", "changed rows", "another as-of"}
    named = {name for row in changes["runs"].drop_nulls() for name in row}
    assert named <= {row["entity_id"] for row in made.summary["late"]["rows"]}
    for number in made.summary["late"]["numbers"]:
        said = kept.summary["headline"]["numbers"]
        before = next(one for one in said if one["name"] == number["name"])
        assert number["then"] == [before["n"], before["of"]]


@pytest.mark.slow
def test_nothing_is_left_unexplained_where_no_row_holds_an_end(tmp_path):
    """The only run that had ended was resumed since."""
    runs = {"a": (0, 0, []), "b": (276, 0, [(47, "completed"), (17, "running")])}
    check_explained(tmp_path, runs, WEEKS[1])


@pytest.mark.slow
@examples(5, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(runs=RUNS, week=st.sampled_from(WEEKS[:2]))
def test_nothing_is_left_unexplained_whatever_happened(tmp_path, runs, week):
    check_explained(tmp_path, runs, week)


@pytest.mark.slow
def test_the_week_in_a_frame_is_the_report_as_it_was_known(demo):
    weeks = demo.weeks(2)
    for week, known_at in weeks.select("week", "known_at").unique().rows():
        asked = {"compare": None, "sections": [], "shown": False}
        said = sa.report(demo, window=week, as_known_at=known_at, **asked)
        for number in said.summary["headline"]["numbers"]:
            row = weeks.filter(week=week, measure=number["name"]).row(0, named=True)
            assert (row["n"], row["n_of"]) == (number["n"], number["of"])


@pytest.mark.slow
def test_a_window_up_to_as_of_has_nothing_late(demo):
    for window in (None, "2026-W22"):
        late = report(demo, window=window, sections=["late"], shown=False).summary["late"]
        assert (late["n"], late["known_at"]) == (0, None)
        assert late["finding"] == "The data end with the window, so there can be no late data."


@pytest.mark.slow
def test_nothing_at_all_and_nothing_before_the_end_are_said(demo):
    empty = changed_facts(demo, entities=demo.entities.clear(), events=demo.events.clear(),
                          transitions=demo.transitions.clear())  # fmt: skip
    late = report(empty, window="2026-W20", sections=["late"], shown=False).summary["late"]
    assert late["n"] == 0
    assert "there is no late data" in late["finding"]


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("2027-01-01", "nothing is known about it"),
        ("2020-01-01", "Nothing had started at 2020-01-01"),
        ("yesterday", "as_known_at needs a moment; found 'yesterday'"),
    ],
)
def test_an_instant_of_which_nothing_is_known_is_refused(demo, at, words):
    with pytest.raises(ArgumentError, match=words):
        report(demo, window="2026-W20", as_known_at=at, shown=False)


@pytest.mark.slow
def test_the_command_reports_what_was_known_and_diff_names_the_rest(tmp_path, read_once, capsys):
    store = str(ROOT / "data/samples/state.db")
    then, now = tmp_path / "then.json", tmp_path / "now.json"
    week = ["report", store, "--week", "2026-W21", "--sections", "late,provenance,appendix"]
    assert run([*week, "--as-known-at", "2026-05-25", "-o", str(then)]) == 0
    assert run([*week, "-o", str(now)]) == 0
    assert json.loads(then.read_text())["provenance"]["as_of"]["at"] == "2026-05-25T00:00:00Z"
    capsys.readouterr()
    assert run(["report", str(now), "--against", str(then), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    causes = {(row["number"], row["cause"]): row for row in told}
    ended = causes["runs", "closed censoring"]
    assert ended["runs"] == [json.loads(now.read_text())["late"]["rows"][0]["entity_id"]]
    assert run([*week, "--as-known-at", "soon", "-o", str(now)]) == 2
    assert "as_known_at needs a moment" in capsys.readouterr().err

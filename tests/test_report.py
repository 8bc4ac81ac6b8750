"""The report's numbers: what each one counts, and what is said where there is nothing."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest

from stateanalytics.core.windows import read_window
from stateanalytics.errors import ArgumentError
from stateanalytics.queries import attention
from stateanalytics.reporting import report
from stateanalytics.reporting.sections.attention import _when
from stateanalytics.state.policy import Policy
from tests.conftest import ROOT
from tests.examples import a_few
from tests.frames import AS_OF, ago, facts

KEY = "sk-abcdefghij0123456789"


def run(entity_id, raw_status, **rest):
    """A session of an hour that ended yesterday; running ones have no end."""
    times = {"started_at": ago(hours=25), "created_at": ago(hours=25)}
    if raw_status != "running":
        times |= {"ended_at": ago(hours=24), "end_written_by": "executor"}
    times["last_activity_at"] = ago(hours=24) if raw_status != "running" else ago(minutes=1)
    return {"entity_id": entity_id, "raw_status": raw_status, "n_messages": 3, **times, **rest}


FAN = {"reason_code": "run.failed.provider_retryable", "reason_message": f"429 with {KEY}"}
FAN |= {"invocation_id": "i"}
GATE = {"entity_id": "gate", "entity_type": "play", "raw_status": "blocked"}
WEEK = [
    *(run(f"good {n}", "completed") for n in range(6)),
    run("empty", "completed_empty", reason_code="run.completed_empty.no_evidence"),
    *(run(f"fan {n}", "failed", **FAN) for n in range(3)),
    run("alone", "failed"),
    run("bound", "timed_out", reason_code="run.timed_out.deadline", timeout_s=3600.0),
    run("stopped", "cancelled"),
    run("fresh", "running"),
    run("silent", "running", last_activity_at=ago(hours=24)),
    run("old", "completed", started_at=ago(days=30), ended_at=ago(days=29)),
    run("legacy", None),
    run("strange", "done"),
    run("mirror", "completed", recorded_by="mirrored"),
    run("import", "completed", recorded_by="imported"),
    {"entity_id": "undated", "raw_status": "completed"},
    {**GATE, "reason_code": "play.blocked.dep_failed", "ended_at": ago(hours=30)},
]


@pytest.fixture(scope="module")
def week(small_week):
    return small_week.summary


def numbers(summary):
    return {one["name"]: one for one in summary["headline"]["numbers"]}


def test_the_five_numbers_stand_in_their_order_with_what_they_are_of(week):
    told = {name: (one["n"], one["of"]) for name, one in numbers(week).items()}
    assert [*told] == ["runs", "completed", "timed_out", "unresolved", "incidents"]
    assert (told["timed_out"], told["unresolved"]) == ((1, 13), (1, 2))
    assert told["incidents"][0] == 3, "a fan-out is one cause"
    note = numbers(week)["incidents"]["note"]
    assert note == "5 failed or timed-out runs; outages count once"


def test_runs_are_what_ended_in_the_window_and_what_is_open(week):
    runs = numbers(week)["runs"]
    assert runs["n"] == 15
    assert runs["note"] == "13 ended, 2 still open"
    assert runs["interval"] is None


def test_completed_is_of_ended_runs_and_names_the_empty_handed(week):
    completed = numbers(week)["completed"]
    assert (completed["n"], completed["of"]) == (7, 13)
    # A fan-out among them is no three witnesses: Wilson's would be 0.29 to 0.77.
    assert completed["interval"] == pytest.approx([0.2528, 0.8009], abs=1e-3)
    assert completed["note"] == "1 of those completed did not deliver everything they promised"
    assert completed["denominator"] == "runs that ended in the window"


def test_what_is_left_out_is_counted_and_named(week):
    counts = {one["reason"]: one["n"] for one in week["provenance"]["left_out"]}
    assert counts == {
        **{"legacy": 2, "mirrored": 1, "imported": 1, "driven": 0},
        **{"undated": 1, "future": 0},
    }
    assert "2 legacy, 1 mirrored, 1 imported and 1 undated sessions" in week["headline"]["left_out"]


def test_outcomes_add_up_to_the_ended_runs(week):
    outcomes = week["headline"]["outcomes"]
    counts = {one["outcome"]: one["n"] for one in outcomes}
    assert counts == {"completed": 7, "failed": 4, "timed_out": 1, "cancelled": 1}
    assert sum(one["share"] for one in outcomes) == pytest.approx(1)


def test_the_headline_says_it_in_words(week):
    assert week["headline"]["finding"] == (
        "7 of 13 ended runs completed (54 %); 4 failed and 1 timed out, in 3 incidents; "
        "1 cancelled; 1 of 2 open runs needs attention."
    )


def test_open_work_in_trouble_stands_apart_from_ended_causes(week):
    attention = week["attention"]
    assert [one["entity_id"] for one in attention["open"]["items"]] == ["silent"]
    ended = {one["entity_id"]: one["n_alike"] for one in attention["ended"]["items"]}
    assert ended.pop("alone") == 1
    assert sorted(ended.values()) == [1, 1, 3]


@pytest.mark.slow
def test_ended_work_that_says_the_same_of_other_requests_is_one_thing_to_look_at():
    said = [f"429 of request req_{n}f4b04e860a{n}" for n in range(5)]
    rows = [
        run(f"run {n}", "failed", invocation_id=f"i{n}", reason_message=message)
        for n, message in enumerate([*said, "exit code 1", "exit code 2"])
    ]
    told = report(facts(rows), sections=["attention"], shown=False).summary["attention"]
    items = told["ended"]["items"]
    assert [(one["n_alike"], one["n_causes"]) for one in items] == [(5, 5), (1, 1), (1, 1)]
    assert told["n_things"] == 3


def test_an_item_tells_its_chain_its_reason_and_what_to_do(week):
    (item,) = week["attention"]["open"]["items"]
    assert item["display"] == "Running · Stalled"
    shown = {"label": "stale running", "token": "error", "icon": "clock"}
    assert item["pill"] == {**shown, "is_dotted": False, "tooltip": None}
    why = item["reason"]
    assert (why["code"], why["claim_status"]) == ("run.health.stalled", "inferred")
    assert re.search("24 h|1 d", why["message"] + (why["evidence"] or ""))
    assert why["what_to_do"]
    assert item["when"] == "open for 1 d 1 h, silent for 1 d"


def test_what_was_never_heard_of_is_open_and_silent_for_one_time():
    never = {"is_open": True, "age_s": 60.0, "silence_s": 60.0}
    assert _when(never) == "open and silent for 1 min"
    assert _when({**never, "age_s": 90.0}) == "open for 1 min 30 s, silent for 1 min"


def test_what_v1_leaves_neutral_though_blocked_is_listed(week):
    blocked = week["attention"]["blocked"]
    assert [one["entity_id"] for one in blocked["items"]] == ["gate"]
    assert "1 entity is blocked, which policy v1 calls neutral" in blocked["finding"]


@pytest.mark.slow
def test_another_policy_raises_it():
    told = ["attention", "appendix"]
    summary = report(facts(WEEK), policy=Policy.operator(), sections=told).summary
    assert summary["attention"]["blocked"]["n"] == 0
    assert summary["appendix"]["policy"]["version"] == "operator"


def test_severity_by_type_adds_up(week):
    for row in week["attention"]["by_type"]:
        assert row["n"] == row["critical"] + row["warning"] + row["info"] + row["neutral"]
    assert [row["entity_type"] for row in week["attention"]["by_type"]] == ["session", "play"]


def test_attention_of_a_window_is_what_its_report_counts(week):
    items = attention(facts(WEEK), window=read_window(None, as_of=AS_OF))
    assert not items.is_empty()
    for severity in ("critical", "warning"):
        counted = sum(row[severity] for row in week["attention"]["by_type"])
        assert items.filter(severity=severity).height == counted


@pytest.mark.slow
def test_progress_names_every_section_as_it_begins(monkeypatch):
    begun = []
    seen = nullcontext(begun.append)
    monkeypatch.setattr("stateanalytics.reporting.progress", lambda *_, **__: seen)
    report(facts(WEEK), sections=["headline", "attention"])
    assert begun == ["states", "numbers", "attention"]


def test_failures_by_code_count_rows_sessions_and_causes(week):
    codes = {one["code"]: one for one in week["failures"]["codes"]}
    fan = codes["run.failed.provider_retryable"]
    assert (fan["n_rows"], fan["n_sessions"], fan["n_causes"]) == (3, 3, 1)
    assert (fan["n_rows"] / week["failures"]["n_rows"], fan["share"]) == (0.6, pytest.approx(1 / 3))
    assert fan["meaning"]
    [cluster] = [one for one in week["failures"]["clusters"] if one["code"] == fan["code"]]
    assert cluster["examples"] == ["429 with [API key]"]
    assert codes["(no code was stored)"]["n_rows"] == 1
    assert week["failures"]["stopped"] == {"aborted": 0, "cancelled": 1}


def test_durations_count_what_can_be_trusted(week):
    durations = week["durations"]
    assert durations["n"] == 15
    cut_off = {one["by"]: one["n"] for one in durations["cut_off"]}
    assert cut_off == {"time_limit": 1, "as_of": 1, "last_activity": 1, "window_end": 0}
    assert durations["found_dead"] == {"n": 0, "widest_s": None, "in_words": ""}
    for row in durations["by_kind"]["rows"]:
        assert row["median"] == "not identified" or " to " in row["median"]
        assert row["never"].startswith("cannot tell") or "% (" in row["never"]
    left_out = {one["reason"]: one["n"] for one in durations["left_out"]}
    assert left_out == {"legacy": 2, "mirrored": 1, "imported": 1, "undated": 1}
    assert sum(step["n"] for step in durations["steps"]) == durations["n"]


def test_coverage_is_of_ended_runs(week):
    coverage = {one["column"]: (one["n_known"], one["n"]) for one in week["provenance"]["coverage"]}
    assert coverage["ended_at"] == (13, 13)
    assert coverage["timeout_s"] == (1, 13)
    assert coverage["cost_usd"] == (0, 13)


@pytest.mark.slow
def test_secrets_are_masked_and_counted_and_can_be_kept(week):
    assert KEY not in json.dumps(week)
    assert week["redactions"]["is_on"] is True
    assert {"kind": "API key", "n": week["redactions"]["n"]} in week["redactions"]["kinds"]
    kept = report(facts(WEEK), redact=False, sections=["failures"])
    assert KEY in kept.as_json()
    assert kept.summary["redactions"] == {"is_on": False, "n": 0, "kinds": []}


def test_json_holds_the_same_numbers_with_sorted_keys(small_week, week):
    text = small_week.as_json()
    assert json.loads(text) == week
    assert list(json.loads(text)) == sorted(week)
    assert text.endswith("}\n")


def keys_of(part):
    if isinstance(part, dict):
        yield from part
        for value in part.values():
            yield from keys_of(value)
    elif isinstance(part, list):
        for value in part:
            yield from keys_of(value)


@pytest.mark.slow
def test_keys_are_ours_and_never_text_from_a_store():
    hostile = [{**row, "entity_type": "</b>", "kind": "</i>", "project": "</u>"} for row in WEEK]
    for key in keys_of(report(facts(hostile)).summary):
        assert re.fullmatch(r"[a-z][a-z0-9_-]*", key)


def test_our_own_words_are_never_cut(week):
    def texts(part):
        if isinstance(part, str):
            yield part
        elif isinstance(part, (dict, list)):
            for value in part.values() if isinstance(part, dict) else part:
                yield from texts(value)

    # A message in a title is not ours, and may end in a gap.
    assert not [text for text in texts(week) if text.endswith("…") and " · " not in text]


NOTHING_TO_SAY = [
    pytest.param([], 1, id="no entity"),
    pytest.param([run("a", "completed")], 9, id="one row"),
    pytest.param([run("a", "running")], 10, id="only running"),
    pytest.param([run("a", None), run("b", "")], 5, id="all legacy"),
    pytest.param([{"entity_id": "a"}], 5, id="all null"),
    pytest.param([run("a", "completed"), run("a", "completed")], 9, id="the same twice"),
    pytest.param([run("a", "failed", ended_at=ago(hours=40))], 10, id="ends before its start"),
    pytest.param([run("a", "running", started_at=AS_OF + timedelta(days=3))], 5, id="starts later"),
    pytest.param(
        [{"entity_id": "t", "entity_type": "team", "raw_status": "active"}], 5, id="a team"
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("entities", "n_titles"), a_few(NOTHING_TO_SAY))
def test_little_or_nothing_still_makes_a_report(entities, n_titles):
    made = report(facts(entities))
    json.loads(made.as_json())
    page = made.as_html()
    # A store without anything is one sentence, and where it comes from.
    assert page.count("<h2") == n_titles
    assert ("For operators" in page) == bool(entities)
    assert "None" not in re.sub(r"None of|None is", "", made.summary["headline"]["finding"])


def test_a_page_without_runs_says_that_some_have_no_time():
    rows = [{"entity_id": f"{n}", "raw_status": "completed"} for n in range(3)]
    made = report(facts(rows), sections=["headline"], shown=False)
    assert made.summary["headline"]["finding"].endswith(
        "and none is open. 3 sessions have no time that can be read and are in no window."
    )


@pytest.mark.slow
def test_nothing_at_all_is_said_in_words():
    summary = report(facts([])).summary
    nothing = "Nothing is recorded here yet: no run, no message, no event."
    assert summary["headline"]["finding"] == nothing
    assert summary["attention"]["finding"] == "Nothing in this window needs attention."
    assert summary["failures"]["finding"] == "Nothing failed or timed out in this window."
    assert "No run that started in this window" in summary["durations"]["finding"]
    assert [one["shown"] for one in summary["headline"]["numbers"]] == ["0", *["none"] * 3, "0"]


@pytest.mark.slow
def test_a_week_without_entities_is_said_in_words():
    made = report(facts(WEEK), window="2026-W02", sections=["headline", "over_time"])
    finding = made.summary["headline"]["finding"]
    assert "No run ended in this window (week 2026-W02" in finding
    assert "and none is open. The data begin 2026-04-27 00:00 UTC." in finding
    far = report(facts(WEEK), window="2026-W02", sections=["headline"], tz="Europe/Berlin")
    assert "The data begin 2026-04-27 02:00 CEST." in far.summary["headline"]["finding"]
    assert made.as_html()


@pytest.mark.slow
def test_a_past_week_says_that_states_are_of_now():
    def is_over(**asked):
        return report(facts(WEEK), sections=[], **asked).summary["window"]["is_over"]

    assert is_over(window="2026-W21") is True
    assert is_over() is True
    assert is_over(window="2026-W22") is False


@pytest.mark.slow
def test_a_report_is_written_and_says_where(tmp_path, small_week):
    page, side = tmp_path / "wéek 1.html", tmp_path / "week.json"
    assert small_week.write_html(page) == page
    assert small_week.write_json(str(side)) == side
    assert page.read_text("utf-8") == small_week.as_html()
    assert side.read_text("utf-8") == small_week.as_json()


@pytest.mark.slow
def test_a_report_of_a_store_knows_its_files(tmp_path):
    from stateanalytics.snapshot import read

    store = tmp_path / "state.db"
    shutil.copy(ROOT / "data" / "samples" / "state.db", store)
    made = report(read(store), window="2026-W21", sections=[])
    with pytest.raises(ArgumentError, match="which was read"):
        made.write_html(store)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "title"),
    [
        pytest.param(None, "Weekly report", id="the last seven days"),
        pytest.param("2026-W21", "Weekly report", id="a week"),
        pytest.param(("2026-05-01", "2026-05-02"), "Report on 1 day", id="a day"),
        pytest.param(("2026-04-01", "2026-05-01"), "Report on 30 days", id="a month"),
        pytest.param(("2026-05-01", "2026-05-01T06:00"), "Report on 0.2 days", id="hours"),
    ],
)
def test_the_title_fits_the_window(window, title):
    assert report(facts([]), window=window, sections=[]).summary["title"] == title


def test_the_words_do_not_depend_on_the_locale():
    label = report(facts([]), window="2026-W21", sections=[]).summary["window"]["label"]
    assert label == "week 2026-W21, Mon 18 May to Sun 24 May 2026"


@pytest.mark.slow
def test_a_dirty_store_makes_a_report_that_counts_its_dirt(tmp_path):
    from stateanalytics.snapshot import read
    from tests.generators import write_store

    made = report(read(write_store(tmp_path / "dirty.db", 300, dirty=0.2, seed=5)))
    assert any(one["code"].startswith("cell.") for one in made.summary["provenance"]["findings"])
    assert made.as_html().count("<h2") >= 8
    json.loads(made.as_json())


def test_a_report_shows_itself(small_week):
    assert "7 of 13 ended runs completed" in repr(small_week)
    assert ".write_html('week.html')" in repr(small_week)
    assert ">Completed</th>" in small_week._repr_html_()


@pytest.mark.slow
def test_a_title_can_be_given():
    made = report(facts(WEEK), title="Fleet <north>", sections=[])
    assert "<h1>Fleet &lt;north&gt;</h1>" in made.as_html()


@pytest.mark.slow
def test_times_of_any_zone_are_shown_in_utc():
    entities = [run("a", "failed", reason_code="run.failed.exception")]
    window = (datetime(2026, 5, 20), AS_OF)
    summary = report(facts(entities), window=window, sections=["failures"]).summary
    assert summary["window"]["since"] == "2026-05-20T00:00:00Z"
    assert summary["failures"]["codes"][0]["last_at"] == f"{ago(hours=24):%Y-%m-%dT%H:%M:%SZ}"
    assert AS_OF.tzinfo is UTC


@pytest.mark.slow
def test_sa_report_can_be_called_however_the_package_was_imported():
    code = (
        "import stateanalytics.core.redaction, stateanalytics as sa\n"
        "from stateanalytics import report\n"
        "assert callable(sa.report) and callable(report)\n"
        "try:\n    sa.report('state.db')\n"
        "except sa.errors.ArgumentError as error:\n    print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "report needs a snapshot" in told.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("invocations", "is_told"),
    [
        pytest.param("aa", False, id="two rows are too few"),
        pytest.param("aaa", True, id="three rows of one incident"),
        pytest.param("aab", False, id="less than twice as many rows as incidents"),
        pytest.param("aabb", True, id="just twice as many"),
    ],
)
def test_a_code_of_many_rows_and_few_incidents_is_told(invocations, is_told):
    rows = [
        run(str(n), "failed", reason_code="run.failed.exception", invocation_id=name,
            ended_at=ago(hours=24 - 5 * n))
        for n, name in enumerate(invocations)
    ]  # fmt: skip
    section = report(facts(rows), sections=["failures"]).summary["failures"]
    words = f"; run.failed.exception: {len(rows)} runs in "
    assert (words in section["finding"]) is is_told

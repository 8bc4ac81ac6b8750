"""One entity's life: found by the beginning of its id, told in order, and nothing of it runs."""

import html
import sys
from datetime import timedelta
from types import SimpleNamespace

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.charts.timeline import chart_timeline
from stateanalytics.cli import run as cli
from stateanalytics.errors import ArgumentError, MissingColumnsError
from stateanalytics.reporting import session as session_pages
from stateanalytics.reporting.material import clean
from stateanalytics.reporting.session import session_page
from stateanalytics.systems.claude_code import frames
from stateanalytics.systems.claude_code.reading import texts
from stateanalytics.systems.history import linked_work
from stateanalytics.timeline import (
    LANES,
    TIMELINE,
    find_entity,
    last_steps,
    note_on_texts,
    timeline_of,
)
from tests.conftest import ROOT
from tests.frames import AS_OF, WHOSE, ago, facts
from tests.lionagi_stores import session, write_store
from tests.transcripts import begun_rollout, begun_transcript, facts_of, transcript_maker

HOSTILE = '</title><img src=x onerror="alert(1)">\x1b[2J<script>alert(1)</script>'
SECRET = "DB_PASS=hunter2"


def made(**more):
    ended = {"started_at": ago(hours=9), "ended_at": ago(hours=1)}
    event = {**WHOSE, "entity_id": "s-1", "at": ago(hours=8)}
    message = {**event, "kind": "message", "is_activity": True}
    return facts(
        [
            {"entity_id": "s-1", "raw_status": "failed", "kind": "agent", **ended, **more},
            {"entity_id": "s-2", "raw_status": "running", "started_at": ago(hours=1)},
            {"entity_id": "b", "entity_type": "branch", "parent_type": "session",
             "parent_id": "s-1", "session_id": "s-1", "ended_at": ago(hours=1)},
            {"entity_id": "s-1", "entity_type": "invocation", "started_at": ago(hours=9)},
        ],
        events=[
            {**message, "role": "user"},
            {**event, "kind": "signal.X", "is_activity": False, "duration_s": 5.0},
            {**message, "role": "tool", "name": "Bash"},
        ],
    )  # fmt: skip


@pytest.fixture(scope="module")
def one(demo):
    largest = sa.failures.incidents(demo).sort("n_sessions", descending=True).row(0, named=True)
    members = sa.failures.members(demo)
    failed = members.filter(entity_type="session", incident_id=largest["incident_id"])
    return sa.session(demo, failed.sort("entity_id")["entity_id"][0])


def told(snap, entity_id="session:s-1"):
    entity = find_entity(snap.entities, entity_id)
    return timeline_of(snap, entity, states=sa.states(snap), runs=sa.survival.spells(snap))


@pytest.mark.slow
def test_the_failed_one_of_a_fan_out_says_why_and_who_failed_with_it(one):
    assert one.summary["finding"].startswith("Failed after ")
    assert "429 rate limit" in one.summary["finding"]
    assert "25 failed together within 47 s" in one.summary["similar"]["in_words"]
    page = one.as_html()
    assert "25 failed together within 47 s" in page
    assert page.count("<svg") >= 2
    assert "<script" not in page


def test_what_happened_stands_in_order_with_every_lane():
    rows = told(made())
    assert rows["at"].drop_nulls().is_sorted()
    by_lane = {lane: rows.filter(lane=lane) for lane in LANES}
    assert by_lane["state"]["what"].to_list() == ["failed"]
    assert by_lane["attempt"]["duration_s"].to_list() == [8 * 3600.0]
    assert by_lane["message"]["what"].to_list() == ["message · user"]
    assert by_lane["tool"]["what"].to_list() == ["message · tool · Bash"]
    assert by_lane["event"]["duration_s"].to_list() == [5.0]
    assert by_lane["child"].select("entity_type", "entity_id").rows() == [("branch", "b")]
    silences = by_lane["silence"]
    assert silences["what"].to_list() == ["silent for 1 h", "silent for 7 h"]
    # 1 h is not longer than a limit of 1 h; 7 h is longer than all of them.
    assert silences["detail"].to_list() == [
        "past worker.idle (10 min)",
        "past worker.idle (10 min), idle (1 h), phantom (1 h), stale.agent (6 h)",
    ]


def test_a_sign_of_life_that_no_event_records_ends_a_silence():
    running = {**WHOSE, "entity_id": "r", "raw_status": "running", "started_at": ago(hours=9)}
    for sign, spans in (({}, [9]), ({"last_activity_at": ago(hours=2)}, [7, 2])):
        silences = told(facts([running | sign]), "r").filter(lane="silence")
        assert silences["duration_s"].to_list() == [3600.0 * hours for hours in spans]


def test_a_wait_for_a_person_is_no_silence():
    """Two turns seven hours apart, the last one silent for its last two hours."""
    session = {**WHOSE, "entity_id": "s", "raw_status": "completed", "started_at": ago(hours=20)}
    turns = [
        {**WHOSE, "entity_type": "turn", "entity_id": f"s:turn:{n}", "session_id": "s",
         "raw_status": "completed", "started_at": ago(hours=since), "ended_at": ago(hours=until)}
        for n, (since, until) in enumerate([(20, 19), (12, 9)])
    ]  # fmt: skip
    said = {**WHOSE, "entity_id": "s", "at": ago(hours=11), "seq": 1, "kind": "message",
            "is_activity": True}  # fmt: skip
    whole = facts([session | {"ended_at": ago(hours=1)}, *turns], events=[said])
    silences = told(whole, "session:s").filter(lane="silence")
    assert silences["duration_s"].to_list() == [3600.0, 3600.0, 7200.0]
    assert silences["at"].to_list() == [ago(hours=20), ago(hours=12), ago(hours=11)]


def test_a_short_id_is_the_session_and_not_its_subagents():
    ids = ("fffffff1-a", "fffffff1-a/b", "fffffff2-a/b")
    rows = facts([{**WHOSE, "entity_id": name, "raw_status": "completed"} for name in ids])
    assert find_entity(rows.entities, "fffffff1")["entity_id"] == "fffffff1-a"
    assert find_entity(rows.entities, "fffffff2")["entity_id"] == "fffffff2-a/b"


def test_a_retry_says_its_error_in_words():
    events = sa.read(ROOT / "tests" / "recorded" / "claude", progress=False).events
    said = events.filter(kind="retry")["detail"]
    assert {"529 Overloaded", "Connection dropped (ECONNRESET)"} <= {*said}
    assert not said.str.starts_with("{").any()


@pytest.mark.parametrize(
    ("client", "of_log"),
    [("claude", ["attachment", "queue-operation", "api-request"]), ("codex", ["tokens", "usage"])],
)
def test_what_only_a_log_needs_is_no_row(client, of_log):
    snap = sa.read(ROOT / "tests" / "recorded" / client, progress=False)
    logged = snap.events.filter(pl.col("kind").is_in(of_log))
    assert logged["kind"].n_unique() == len(of_log)
    entity_id = logged["entity_id"][0]
    timeline = sa.session(snap, entity_id).timeline
    assert [*timeline.filter(lane="state")["what"]] == ["Completed"], "a status in words"
    shown = timeline.filter(lane="message")["what"]
    assert not {*of_log, "message", "message · unknown"} & set(shown)
    said = snap.events.filter(pl.col("role") == "assistant", entity_id=entity_id)
    alone = said.filter(~pl.col("at").is_in(sa.failures.calls(snap)["started_at"].implode()))
    assert shown.str.starts_with("message · assistant").sum() == alone.height > 0


def test_messages_that_only_think_or_ask_for_a_call_are_no_rows_beside_it(tmp_path):
    transcript = begun_transcript()
    thought, said = {"type": "thinking", "thinking": ""}, {"type": "text", "text": "Let me look."}
    for number, blocks in enumerate([[thought, said], [thought, thought]]):
        called = transcript_maker.call(f"c{number}", "Read", file_path=f"{number}.py")
        transcript.answer(*blocks, called, stop="tool_use", usage=(1, 0, 0, 2))
        transcript.result(f"c{number}", "done")
    # The text has the moment of the thought before it.
    first, second, *_ = (line for line in transcript.lines if line["type"] == "assistant")
    second["timestamp"] = first["timestamp"]
    facts_of(tmp_path, transcript)
    with sa.read(tmp_path) as snap:
        timeline = sa.session(snap, transcript.session_id).timeline
    shown = timeline.filter(pl.col("lane").is_in(["message", "call"]))
    agent = shown.filter(~pl.col("what").str.contains("user"))
    assert agent.select("what", "detail").rows() == [
        ("message · assistant", "Let me look."), ("Read 0.py", None),
        ("2 × message · assistant", None), ("Read 1.py", None),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["claude_code", "codex", "opencode"])
def test_the_last_steps_of_a_session_are_the_end_of_its_timeline(name):
    with sa.read(ROOT / "data" / "samples" / name) as snap:
        called = sa.failures.calls(snap)
        for entity in snap.entities.filter(entity_type="session").tail(12).to_dicts():
            timeline = session_page(snap, entity["entity_id"], n_texts=None).timeline
            steps = timeline.filter(pl.col("lane").is_in(["message", "tool", "call"])).tail(5)
            assert last_steps(snap, entity, called, n=5).equals(steps)


def test_texts_of_the_newest_codex_are_those_of_its_items():
    recorded = sa.read(ROOT / "tests" / "recorded" / "codex")
    page = session_page(recorded, "session:01a20c9f-1879-78c0-af2a-683e0eb0db42", n_texts=6)
    said = page.timeline.filter(lane="message").drop_nulls("detail")["detail"].to_list()
    assert said == ["[[success]] please do it (begin)", "Hello, this is the answer."]
    assert "No texts" not in page.summary["note_on_texts"]


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"raw_status": "timed_out", "timeout_s": 900.0, "timeout_elapsed_s": 900.4,
          "reason_code": "run.timed_out.deadline"},
         "Timed out after 1 h: timed out after 900.4 s (configured timeout: 900 s)"),
        # Metadata of an earlier time.
        ({"raw_status": "completed", "timeout_s": 900.0, "timeout_elapsed_s": 900.4},
         "Completed after 1 h"),
        ({"raw_status": "failed"}, "Failed after 1 h: It did not end well, and no reason was"),
        ({"raw_status": "failed", "reason_code": "run.failed.x"}, "Failed after 1 h: run.failed.x"),
        ({"raw_status": "completed"}, "Completed after 1 h"),
    ],
)  # fmt: skip
def test_the_first_sentence_says_why_as_far_as_it_is_known(known, words):
    ended = {**WHOSE, "entity_id": "e", "started_at": ago(hours=3), "ended_at": ago(hours=2)}
    finding = session_page(facts([ended | known]), "e").summary["finding"]
    assert finding.startswith(words) and ("timed out" in finding) == ("timed out" in words)


def test_the_linked_work_alone_gives_the_page_of_all_facts(demo, monkeypatch):
    chosen = demo.entities.group_by("entity_type", maintain_order=True).head(2)
    names = [":".join(row) for row in chosen[["entity_type", "entity_id"]].rows()]
    some = [session_page(demo, name) for name in names]
    assert linked_work(demo, chosen["entity_id"][0]).entities.height < demo.entities.height / 2
    monkeypatch.setattr(session_pages, "linked_work", lambda facts, _: facts)
    for name, page in zip(names, some, strict=True):
        whole = session_page(demo, name)
        assert page.summary == whole.summary
        assert page.timeline.equals(whole.timeline)


def test_what_still_runs_is_silent_up_to_as_of():
    rows = told(made(), "s-2").filter(lane="silence")
    assert rows["until"].to_list() == [AS_OF]


@pytest.mark.slow
def test_order_of_rows_does_not_matter_and_null_is_survived():
    snap = made()
    shuffled = facts(snap.entities.reverse().to_dicts(), events=snap.events.reverse().to_dicts())
    assert told(snap).equals(told(shuffled))
    bare = facts([{"entity_id": "x", "raw_status": None}])
    rows = told(bare, "x")
    assert rows["lane"].to_list() == ["state", "attempt"]
    chart_timeline(rows)
    chart_timeline(TIMELINE.empty())
    assert sa.session(bare, "x").as_html()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("s-", "is 3 entities: session:s-1, session:s-2, invocation:s-1"),
        ("nope", "There is no entity 'nope' among 4"),
        ("", "session needs the id"),
        (None, "session needs the id"),
        ("branch:s-1", "There is no entity"),
    ],
)
def test_what_is_not_one_entity_is_one_line(asked, words):
    with pytest.raises(ArgumentError, match=words):
        find_entity(made().entities, asked)


def test_the_same_id_in_two_stores_is_told_by_the_store():
    rows = [{"entity_id": "a", "source": name} for name in ("one.db", "two.db")]
    words = r"session:a of one\.db, session:a of two\.db"
    with pytest.raises(ArgumentError, match=words) as raised:
        find_entity(facts(rows).entities, "a")
    assert "one of the stores alone" in str(raised.value)


@pytest.mark.parametrize("own", ["two\nlines", "a\u202eb", "ann.lee@example.org", "a$(id)'b"])
def test_an_entity_is_found_by_its_id_as_pages_show_it(own):
    entities = facts([{"entity_id": own}, {"entity_id": "another"}]).entities
    shown = clean(own, secrets=True)[0]
    assert find_entity(entities, shown)["entity_id"] == own
    two = facts([{"entity_id": "ann@example.org"}, {"entity_id": "bob@example.org"}]).entities
    with pytest.raises(ArgumentError, match="is 2 entities"):
        find_entity(two, "[e-mail]")


def test_a_session_is_meant_where_an_id_is_shared():
    assert find_entity(made().entities, "s-1")["entity_type"] == "session"
    assert find_entity(made().entities, "invocation:s-1")["entity_type"] == "invocation"


@pytest.mark.slow
def test_hostile_text_is_inert_and_secrets_are_masked(tmp_path):
    snap = made(name=HOSTILE, reason_message=f"{HOSTILE} {SECRET}")
    page = sa.session(snap, "session:s-1")
    pages = page.as_html(), page._repr_html_()
    for shown in (*pages, repr(page)):
        assert "hunter2" not in shown
        assert "\x1b" not in shown
    for shown in pages:
        assert "<img" not in shown
        assert "<script" not in shown
    open_page = sa.session(snap, "session:s-1", redact=False)
    path = open_page.write_html(tmp_path / "one.html")
    assert "hunter2" in path.read_text("utf-8")
    assert path.stat().st_mode & 0o077 == 0


def brush(chart, first, last):
    """What the page sends when a stretch is dragged over."""
    ends = [1000 * moment.timestamp() for moment in (first, last)]
    chosen = {"value": {"at": ends} if first < last else {}, "store": []}
    chart._vl_selections = {**chart._vl_selections, "chosen_time": chosen}


@pytest.mark.slow
def test_a_widget_narrows_to_kinds_and_a_stretch_and_shows_the_rows():
    look = sa.session(made(name=HOSTILE, reason_message=SECRET), "session:s-1")
    controls, shown = look.widget.children
    which, chart = controls.children
    which.value = ("message", "tool")
    assert look.selected["what"].to_list() == ["message · user", "message · tool · Bash"]
    assert "2 of " in shown.value
    assert "Bash" in shown.value
    assert set(chart.chart.data["lane"]) == {"message", "tool"}
    which.value = ("silence",)
    brush(chart, ago(hours=5), ago(hours=4))
    assert look.selected["what"].to_list() == ["silent for 7 h"], "it went on there"
    brush(chart, ago(hours=4), ago(hours=4))
    assert look.selected.height == 2
    which.value = ()
    assert look.selected.equals(look.timeline)
    assert look.choose("state", ["2020-01-01", "2020-01-02"]).selected.is_empty()
    assert which.value == ("state",)
    assert look.choose().selected.equals(look.timeline)
    bundle = look._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    for part in (bundle["text/html"], shown.value, str(chart.spec["datasets"])):
        assert "hunter2" not in part
        assert "<img" not in part or part.startswith("{"), "text of a store is data there"


def test_marimo_shows_the_drawing_above_the_words(one, monkeypatch):
    marimo = SimpleNamespace(vstack=list, Html=lambda text: {"html": text})
    monkeypatch.setitem(sys.modules, "marimo", marimo)
    drawing, words = one._display_()
    assert drawing.to_dict() == one.chart().to_dict()
    assert words == {"html": one._repr_html_()}


def test_a_kind_that_did_not_happen_is_said():
    with pytest.raises(ArgumentError, match=r"kind 'massage'(.|\n)*'message'"):
        sa.session(made(), "session:s-1").choose("massage")


@pytest.mark.slow
def test_the_drawing_masks_what_the_page_masks():
    snap = made(raw_status=SECRET)
    page = sa.session(snap, "session:s-1")
    assert "hunter2" not in page.as_html()
    assert "hunter2" not in page.chart().to_json()
    assert "hunter2" in sa.session(snap, "session:s-1", redact=False).as_html()


def test_the_chart_draws_bars_moments_and_silences_past_a_limit(one):
    chart = one.chart()
    drawn = chart.to_dict()
    fills = {row["fill"] for rows in drawn["datasets"].values() for row in rows if "fill" in row}
    assert "silence" in fills
    with pytest.raises(MissingColumnsError, match="chart_timeline needs columns"):
        chart_timeline(pl.DataFrame({"a": [1]}))


@pytest.mark.slow
def test_a_long_life_is_cut_and_says_so():
    events = [
        {**WHOSE, "entity_id": "s", "at": ago(minutes=n), "kind": "message", "is_activity": True}
        for n in range(400)
    ]
    snap = facts([{"entity_id": "s", "raw_status": "running", "started_at": ago(hours=9)}],
                 events=events)  # fmt: skip
    page = sa.session(snap, "s")
    assert page.timeline.height > 400
    assert len(page.summary["rows"]) == 300
    assert "are not shown here" in page.as_html()
    assert f"and {page.timeline.height - 300} more" in repr(page)


@pytest.mark.slow
@pytest.mark.usefixtures("read_once")
def test_the_command_tells_and_writes(tmp_path, capsys):
    store = str(write_store(tmp_path / "state.db", sessions=[session("6009d20f-1")]))
    path = tmp_path / "one.html"
    assert cli(["show", store, "6009d20f", "-o", str(path)]) == 0
    assert capsys.readouterr().out == f"wrote {path}\n"
    assert cli(["show", store, "6009d20f", "--open"]) == 2
    assert "-o run.html --open" in capsys.readouterr().err
    assert cli(["show", store, "zzz"]) == 2
    assert "There is no entity 'zzz'" in capsys.readouterr().err


def test_what_its_reasons_advise_is_told_wherever_it_is_shown(one):
    [advice] = [each["what_to_do"] for each in one.summary["reasons"] if each["what_to_do"]]
    assert repr(one).endswith(f"\nWhat to do: {advice}")
    for page in (one.as_html(), one._repr_html_()):
        assert f"What to do: {html.escape(advice)}" in page


def test_every_session_of_the_sample_has_a_timeline(demo):
    states, runs = sa.states(demo), sa.survival.spells(demo)
    for key in demo.entities.filter(entity_type="session").head(3).iter_rows(named=True):
        rows = timeline_of(demo, key, states=states, runs=runs)
        assert rows.filter(lane="state").height >= 1
        assert (rows["until"] - rows["at"]).drop_nulls().min() >= timedelta(0)


def said(page):
    rows = page.timeline.filter(pl.col("lane") == "message").select("what", "detail").rows()
    return [(what.rpartition(" ")[2], text) for what, text in rows if text]


@pytest.mark.slow
@pytest.mark.parametrize("begun", [begun_transcript, begun_rollout])
def test_the_last_messages_have_their_texts_as_long_as_the_transcript_is_there(tmp_path, begun):
    log = begun()
    for n in range(4):
        text = f"answer {n} {SECRET if n == 3 else ''} <script>alert(1)</script>"
        if begun is begun_rollout:
            log.say(text)
            log.complete(text)
            log.turn(f"question {n}", 9.0)
        else:
            log.answer(transcript_maker.say(text), stop="end_turn", usage=(9, 0, 0, 9))
            log.user(f"question {n}", 9.0)
    read = facts_of(tmp_path, log, tail="{broken\n")
    own = getattr(log, "session_id", None) or log.thread_id
    page = sa.session(read, own)
    texts = said(page)
    assert len(texts) == 6
    assert texts[-1] == ("user", "question 3")
    assert "<script>" not in page.as_html()
    assert "hunter2" not in page.as_html()
    assert len(said(sa.session(read, own, bodies=True))) == 9
    assert not said(session_page(read, own, n_texts=0))
    for path in tmp_path.rglob("*.jsonl"):
        path.unlink()
    assert not said(sa.session(read, own))


def test_a_frame_that_names_a_file_outside_of_the_input_is_not_followed(tmp_path):
    log = begun_transcript()
    log.answer(transcript_maker.say("inside"), stop="end_turn", usage=(9, 0, 0, 9))
    read = facts_of(tmp_path / "home", log)
    outside = tmp_path / "outside.jsonl"
    outside.write_text(log.text().replace("inside", "outside"))
    entity = find_entity(read.entities, log.session_id)
    moved = read.detail(frames.SESSIONS).with_columns(file=pl.lit("../outside.jsonl"))
    elsewhere = SimpleNamespace(inputs=read.inputs, detail=lambda _: moved)
    assert texts(elsewhere, entity).is_empty()
    assert texts(read, entity)["text"].to_list()[-1] == "inside"


@pytest.mark.slow
def test_bodies_that_were_read_are_texts_too_and_none_where_none_is_asked_for():
    body = {**WHOSE, "entity_id": "s-1", "at": ago(hours=8), "kind": "message", "role": "user",
            "is_activity": True, "body": "x" * 600}  # fmt: skip
    row = {"entity_id": "s-1", "raw_status": "failed", "started_at": ago(hours=9)}
    read = facts([row], events=[body])
    assert said(session_page(read, "s-1")) == [("user", "x" * 500)]
    assert not said(session_page(read, "s-1", n_texts=0))


def test_a_session_of_a_system_that_is_not_installed_has_a_timeline():
    read = made()
    elsewhere = read.entities.with_columns(system=pl.lit("gone"))
    key = find_entity(elsewhere, "session:s-1")
    rows = timeline_of(read, key, states=sa.states(read), runs=sa.survival.spells(read), n_texts=6)
    assert rows.filter(lane="state").height == 1


@pytest.mark.parametrize(
    ("entity", "is_archived", "bodies", "words"),
    [
        ({}, False, False, "the store holds none of this run."),
        ({}, True, False, "made with --bodies shows them with --bodies; otherwise show the run "
         "from the store itself (/lib/state.db) while that has it."),
        ({}, True, True, "this archive holds none of this run; show the run from the store"),
        ({"system": "agent_orchestrator"}, False, False, "none are read from Agent Orchestrator; "
         "the transcripts of its agents may have them; --bodies shows"),
        ({"system": "gone"}, True, True, "none are read from gone; the transcripts"),
        ({"entity_type": "invocation"}, True, False, ""),
    ],
)  # fmt: skip
def test_a_run_without_texts_says_why_and_what_helps(tmp_path, entity, is_archived, bodies, words):
    if is_archived:
        (tmp_path / "manifests").mkdir()
    whole = {"entity_type": "session", "system": "lionagi", "source": "/lib/state.db", **entity}
    facts_read, rows = SimpleNamespace(inputs=(tmp_path,)), told(made())
    note = note_on_texts(facts_read, whole, rows, bodies=bodies)
    assert words in note
    assert bool(words) == note.startswith("No texts of messages: ")
    with_text = rows.with_columns(detail=pl.lit("said"))
    assert not note_on_texts(facts_read, whole, with_text, bodies=bodies)


def test_the_note_on_texts_stands_on_the_page_and_in_the_terminal_once():
    note = "No texts of messages: the store holds none of this run."
    page = sa.session(made(), "session:s-1")
    assert repr(page).count(note) == page.as_html().count(note) == 1
    assert page._repr_html_().count(note) == 1
    assert not session_page(made(), "session:s-1", n_texts=0).summary["note_on_texts"]


def test_an_end_before_the_start_is_said_so():
    ended = {"entity_id": "e", "raw_status": "completed", "reason_message": "done"}
    ended |= {"started_at": ago(seconds=60), "ended_at": ago(seconds=100)}
    finding = session_page(facts([ended]), "e").summary["finding"]
    assert finding == "Completed 40 s before it began: done"


def test_a_schedule_that_waits_for_its_next_run_is_past_no_limit(demo):
    rows = sa.session(demo, "schedule:74d5754b2130").timeline.filter(lane="silence")
    assert rows.height >= 2
    assert rows["detail"].null_count() == rows.height

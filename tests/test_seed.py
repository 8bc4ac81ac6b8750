"""What the seeds say, to the letter: ADR-0033's words are read as themselves."""

import json
import random
import sqlite3
from contextlib import closing

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.core.vocabulary import ADR_LIFECYCLES, STATUS_WORDS
from stateanalytics.reporting.session import session_page
from stateanalytics.systems.situations import texts_of
from tests.examples import examples
from tests.frames import facts
from tests.lionagi_stores import NOW_S, change, listing, session, write_store

STORED = {(word.entity_type, word.raw_status): word.lifecycle for word in STATUS_WORDS}
WORDS = [(entity_type, word) for entity_type, words in ADR_LIFECYCLES.items() for word in words]


@pytest.mark.slow
@pytest.mark.parametrize(("entity_type", "word"), WORDS)
def test_every_lifecycle_word_of_the_adr_is_read(entity_type, word):
    row = {"entity_type": entity_type, "entity_id": "e", "raw_status": word}
    state = sa.states(facts([row])).row(0, named=True)
    assert state["lifecycle"] == STORED.get((entity_type, word), word)
    assert not state["is_legacy"]


BAD_ENDS = ["play failed critical", "show failed critical", "play timed_out warning"]


@pytest.mark.parametrize(("entity_type", "word", "severity"), [*map(str.split, BAD_ENDS)])
def test_a_bad_end_in_words_of_the_adr_has_its_severity(entity_type, word, severity):
    row = {"entity_type": entity_type, "entity_id": "e", "raw_status": word}
    found = sa.states(facts([row])).select(pl.col("outcome", "severity").cast(pl.String))
    assert found.row(0) == (word, severity)


# ADR-0033, appendix A, as it is written there.
APPENDIX_A = """
ALTER TABLE sessions ADD COLUMN health       TEXT;
ALTER TABLE sessions ADD COLUMN delivery     TEXT;
ALTER TABLE sessions ADD COLUMN reason_codes JSON DEFAULT '[]';
ALTER TABLE plays ADD COLUMN health       TEXT;
ALTER TABLE plays ADD COLUMN delivery     TEXT;
ALTER TABLE plays ADD COLUMN reason_codes JSON DEFAULT '[]';
CREATE INDEX IF NOT EXISTS idx_sessions_severity
    ON sessions(status, health) WHERE status != 'completed';
CREATE INDEX IF NOT EXISTS idx_plays_severity
    ON plays(status, health) WHERE status NOT IN ('merged', 'skipped');
"""
NO_REASON = dict.fromkeys(("status_reason_code", "status_reason_summary", "status_evidence_refs"))


def adr_store(folder, codes=(), **tables):
    """A snapshot of a store with the columns of appendix A, ``codes`` filled in by id."""
    tables = {"sessions": [session("other")], "plays": [play("other")], **tables}
    path = write_store(folder / "state.db", **tables)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(APPENDIX_A)
        for table in ("sessions", "plays"):
            pairs = [(text, identity) for identity, text in dict(codes).items()]
            connection.executemany(f"UPDATE {table} SET reason_codes = ? WHERE id = ?", pairs)
    return sa.read(path, as_of=NOW_S)


def failed(identity, **columns):
    return session(identity, **NO_REASON, status="failed") | columns


def play(identity, **columns):
    own = {"id": identity, "show_id": "show", "name": identity, "created_at": NOW_S - 900}
    return {**own, "status": "merged", "depends_on": "[]", **columns}


def reasons_of(snap, identity):
    kept = ("code", "claim_status", "dimension")
    rows = sa.reasons(snap).filter(entity_id=identity).sort("order")
    return rows.select(pl.col(kept).cast(pl.String)).rows()


def test_the_columns_default_is_no_claim(tmp_path):
    snap = adr_store(tmp_path, sessions=[failed("a"), session("b")])
    assert snap.entities["stored_reason_codes"].drop_nulls().unique().to_list() == ["[]"]
    assert sa.audit(snap).filter(code="audit.stored_differs").is_empty()


@pytest.mark.slow
def test_listed_codes_are_the_stored_reasons(tmp_path):
    codes = {
        "one": '["run.failed.exit_nonzero"]',
        "two": '["run.delivery.missing", "run.failed.exit_nonzero", "run.delivery.missing"]',
        "odd": '["made.up.code"]',
    }
    snap = adr_store(tmp_path, codes, sessions=[failed(name) for name in codes])
    exit_nonzero = ("run.failed.exit_nonzero", "observed", "lifecycle")
    assert reasons_of(snap, "one") == [exit_nonzero]
    missing = ("run.delivery.missing", "observed", "delivery")
    assert reasons_of(snap, "two") == [exit_nonzero, missing]
    clusters = sa.failures.clusters(snap).select("code", "n_rows").rows()
    assert sorted(clusters) == [("made.up.code", 1), ("run.failed.exit_nonzero", 2)]
    told = sa.audit(snap).filter(code="audit.reason_unknown")
    assert told["entity_id"].to_list() == ["odd"]


@pytest.mark.slow
def test_a_listed_code_that_the_facts_do_not_give_is_told_and_one_that_they_give_is_once(tmp_path):
    silent = {"status": "running", "ended_at": None, "last_message_at": NOW_S - 90_000}
    names = ("silent", "busy")
    snap = adr_store(
        tmp_path,
        dict.fromkeys(names, '["run.health.stalled"]'),
        sessions=[failed("silent", **silent), failed("busy", **silent, updated_at=NOW_S)],
        progressions=[listing(f"list-{name}", ["m"]) for name in names],
        branches=[{"id": n, "session_id": n, "progression_id": f"list-{n}"} for n in names],
    )
    states = sa.states(snap).filter(pl.col("entity_type") == "session")
    assert states["reason_codes"].to_list() == ["run.health.stalled"] * 2
    assert [code for code, *_ in reasons_of(snap, "silent")] == ["run.health.stalled"]
    assert sa.audit(snap).filter(code="audit.stored_differs").is_empty()
    lively = adr_store(
        mkdir(tmp_path / "lively"),
        {"s": '["run.health.stalled"]'},
        sessions=[failed("s", status="running", ended_at=None, last_message_at=NOW_S - 60)],
    )
    rows = sa.audit(lively).filter(code="audit.stored_differs")
    assert rows["says"].to_list() == ["stored reasons run.health.stalled"]


def mkdir(path):
    path.mkdir()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("text", ["[1]", '{"code": "a.b.c"}', '["a", null]', "7", '[["a"]]'])
def test_a_list_of_anything_but_texts_is_a_finding(tmp_path, text):
    snap = adr_store(tmp_path, {"a": text}, sessions=[failed("a")])
    found = snap.findings.filter(code="reason_codes.not_texts")
    assert found.select("entity_id", "n_rows").rows() == [("a", 1)]
    assert reasons_of(snap, "a") == [("run.failed.unexplained", "inferred", "lifecycle")]


@examples(30)
@given(st.lists(st.text('ab._,:[]{} é"\\/\n😀', max_size=6), max_size=5), st.booleans())
def test_any_list_of_texts_is_read_in_its_order(texts, is_escaped):
    lists = [json.dumps(listed, ensure_ascii=is_escaped) for listed in (texts, [*texts, 1])]
    frame = pl.DataFrame({"codes": [*lists, None]})
    expected = [text for text in dict.fromkeys(texts) if text]
    assert frame.select(texts_of("codes"))["codes"].to_list() == [expected, None, None]


@pytest.mark.parametrize(
    "text", [r'["\ud800"]', r'["\x"]', '["a\nb"]', '[\xa0"a"]', '["a",]', '["a"', "[", r'["\u12"]']
)
def test_what_is_almost_a_list_of_texts_is_none(text):
    assert pl.DataFrame({"codes": [text]}).select(texts_of("codes")).item() is None


PLAYS = [
    play("done"),
    play("broken", status="failed"),
    play("prüfung", status="blocked"),
    play("blocked-by-escaped", status="blocked", depends_on=json.dumps(["prüfung"])),
    play("blocked-by-failure", status="blocked", depends_on='["done", "broken"]'),
    play("blocked-by-blocked", status="blocked", depends_on='["blocked-by-failure"]'),
    play("blocked-by-nobody", status="blocked", depends_on='["nobody"]'),
    play("blocked-by-itself", status="blocked", depends_on='["blocked-by-itself"]'),
    play("blocked-by-done", status="blocked", depends_on='["done"]'),
    play("waits", status="pending", depends_on='["broken"]'),
    play("explained", status="blocked", depends_on='["broken"]')
    | {"status_reason_code": "play.blocked.dep_failed"},
    play("elsewhere", status="blocked", depends_on='["broken"]', show_id="another"),
]
BECAUSE = {
    "blocked-by-failure": "play.blocked.dependency_failed",
    "blocked-by-blocked": "play.blocked.dependency_failed",
    "blocked-by-escaped": "play.blocked.dependency_failed",
    "blocked-by-nobody": "play.blocked.dependency_invalid",
    "elsewhere": "play.blocked.dependency_invalid",
    "show": "show.failed.critical_path_blocked",
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_other_entities_explain_what_is_blocked(tmp_path, seed):
    plays = random.Random(seed).sample(PLAYS, len(PLAYS))
    snap = adr_store(tmp_path, plays=plays, shows=[{"id": "show", "status": "failed"}])
    codes = "show.failed.critical_path_blocked|^play.blocked.dependency"
    found = sa.reasons(snap).filter(pl.col("code").str.contains(codes))
    assert dict(found.select("entity_id", "code").rows()) == BECAUSE
    assert found["claim_status"].unique().to_list() == ["inferred"]
    named = {
        identity: [piece["entity_id"] for piece in json.loads(evidence)]
        for identity, evidence in found.select("entity_id", "evidence").rows()
    }
    assert named == {
        "blocked-by-failure": ["broken"],
        "blocked-by-blocked": ["blocked-by-failure"],
        "blocked-by-escaped": ["prüfung"],
        "blocked-by-nobody": [None],
        "elsewhere": [None],
        "show": ["broken"],
    }
    assert found["code"].is_in(sa.reason_codes()["code"].implode()).all()


@pytest.mark.slow
def test_an_explanation_is_that_of_the_instant(tmp_path):
    """The play that failed later explains nothing before that."""
    changes = [
        change("broken", "failed", NOW_S - 100, entity_type="play", reason_code=None),
        change("waits", "blocked", NOW_S - 500, entity_type="play", reason_code=None),
    ]
    plays = [
        play("broken", status="failed", updated_at=NOW_S - 100),
        play("waits", status="blocked", depends_on='["broken"]', updated_at=NOW_S - 500),
    ]
    write_store(tmp_path / "state.db", plays=plays, status_transitions=changes)
    code = "play.blocked.dependency_failed"
    for as_of, codes in ((NOW_S, [code]), (NOW_S - 200, [])):
        snap = sa.read(tmp_path / "state.db", as_of=as_of)
        assert [found for found, *_ in reasons_of(snap, "waits") if found == code] == codes


@pytest.mark.slow
@pytest.mark.parametrize("where", ["column", "metadata"])
@pytest.mark.parametrize(("status", "health"), [("completed", "orphaned"), ("active", "ok")])
def test_a_team_whose_parent_is_over_is_orphaned(tmp_path, where, status, health):
    parent = {"show_id": "s"} if where == "column" else {"node_metadata": '{"show_id": "s"}'}
    teams = [{"id": "t", "name": "crew", "status": "active", **parent}]
    snap = adr_store(tmp_path, shows=[{"id": "s", "status": status}], teams=teams)
    team = sa.states(snap).filter(entity_id="t").row(0, named=True)
    assert (team["health"], team["severity"] == "critical") == (health, health == "orphaned")
    codes = ["team.health.orphaned"] if health == "orphaned" else []
    assert [code for code, *_ in reasons_of(snap, "t")] == codes


@pytest.mark.slow
@pytest.mark.parametrize("last_message_at", [NOW_S - 60, NOW_S - 1200, None])
def test_a_message_after_the_start_is_a_sign_of_life(tmp_path, last_message_at):
    running = {"status": "running", "ended_at": None, "updated_at": None}
    snap = adr_store(tmp_path, sessions=[failed("a", **running, last_message_at=last_message_at)])
    state = sa.states(snap).row(0, named=True)
    is_alive = last_message_at == NOW_S - 60
    assert state["health"] == ("running" if is_alive else "unknown")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cron_expr", "late_s", "health"),
    [
        (None, 30 * 3600, "misfired"),
        ("at dawn", 301, "misfired"),
        ("at dawn", 300, "due"),
        ("at dawn", -1, "ok"),
    ],
)
def test_an_overdue_schedule_without_a_cadence_is_misfired(tmp_path, cron_expr, late_s, health):
    schedule = {"id": "s", "enabled": 1, "trigger_type": "cron", "cron_expr": cron_expr}
    schedule |= {"next_fire_at": NOW_S - late_s, "created_at": NOW_S - 90_000}
    snap = adr_store(tmp_path, schedules=[schedule])
    assert sa.states(snap).filter(entity_id="s")["health"].to_list() == [health]


@pytest.mark.parametrize(("after_s", "health"), [(-5, "misfired"), (5, "due")])
def test_a_schedule_that_fired_at_its_planned_time_missed_nothing(tmp_path, after_s, health):
    planned = NOW_S - 3600
    schedule = {"id": "s", "enabled": 1, "trigger_type": "once", "next_fire_at": planned}
    fired = {"id": "r", "schedule_id": "s", "status": "completed", "fired_at": planned + after_s}
    snap = adr_store(tmp_path, schedules=[schedule], schedule_runs=[fired])
    assert sa.states(snap).filter(entity_id="s")["health"].to_list() == [health]


@pytest.mark.slow
@pytest.mark.parametrize("status", ["failed", "timed_out", "aborted"])
def test_what_ended_badly_has_a_reason_even_if_none_is_stored(tmp_path, status):
    snap = adr_store(tmp_path, sessions=[failed("a", status=status)])
    assert reasons_of(snap, "a") == [(f"run.{status}.unexplained", "inferred", "lifecycle")]
    item = sa.attention(snap).filter(entity_id="a").row(0, named=True)
    assert item["message"].startswith("It did not end well")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("elapsed", "expected", "n_findings"),
    [("900.4", 900.4, 0), ('"900.4"', None, 1), ("-1", None, 1), ("null", None, 0)],
)
def test_the_time_that_had_passed_at_a_limit_is_read(tmp_path, elapsed, expected, n_findings):
    metadata = f'{{"timeout_seconds": 900, "timeout_elapsed": {elapsed}}}'
    snap = adr_store(tmp_path, sessions=[failed("a", status="timed_out", node_metadata=metadata)])
    row = snap.entities.filter(entity_id="a").row(0, named=True)
    assert (row["timeout_s"], row["timeout_elapsed_s"]) == (900.0, expected)
    assert snap.findings.filter(code="timeout.unreadable").height == n_findings
    told = {fact["label"]: fact["value"] for fact in session_page(snap, "a").summary["facts"]}
    in_words = "after 900.4 s (configured timeout: 900 s)"
    assert told.get("Timed out") == (in_words if expected else None)


@pytest.mark.slow
@pytest.mark.parametrize("status", ["completed", "timed_out", "failed", "aborted", "cancelled"])
@pytest.mark.parametrize("by", [{"source": "admin"}, {"actor": "admin"}, {}])
def test_an_admin_may_only_set_three_statuses(tmp_path, status, by):
    changes = [change("a", status, NOW_S - 600, **by)]
    snap = adr_store(tmp_path, sessions=[session("a", status=status)], status_transitions=changes)
    found = sa.audit(snap).filter(code="audit.admin_target")
    is_forbidden = bool(by) and status in ("completed", "timed_out")
    assert found["says"].to_list() == [f"an admin set it to '{status}'"] * is_forbidden


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "exit_code", "is_odd"),
    [
        ("completed", 0, False),
        ("completed", 1, True),
        ("failed", 0, True),
        ("failed", 1, False),
        ("failed", 124, False),
        ("timed_out", 124, False),
        ("timed_out", 143, True),
        ("timed_out", 1, False),
        ("cancelled", None, False),
        ("running", 1, False),
    ],
)
def test_an_exit_code_that_means_another_end_is_told(tmp_path, status, exit_code, is_odd):
    run = {"id": "r", "schedule_id": "s", "status": status, "exit_code": exit_code}
    snap = adr_store(tmp_path, schedule_runs=[run | {"fired_at": NOW_S - 60, "ended_at": NOW_S}])
    found = sa.audit(snap).filter(code="audit.exit_code_differs")
    assert found["entity_id"].to_list() == ["r"] * is_odd


def test_a_play_that_failed_its_gate_says_nothing_of_its_process(tmp_path):
    plays = [play("a", status="gate_failed", exit_code=0), play("b", status="merged", exit_code=1)]
    found = sa.audit(adr_store(tmp_path, plays=plays))
    assert found.filter(code="audit.exit_code_differs").is_empty()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outcome", "delivery", "severity"),
    [
        ("completed", "passed", "neutral"),
        ("failed", "missing", "critical"),
        ("timed_out", "partial", "warning"),
        ("skipped", "not_expected", "neutral"),
        ("odd", "unknown", "neutral"),
        ("", None, "neutral"),
        (None, None, "neutral"),
    ],
)
def test_the_last_run_of_a_schedule_carries_its_delivery(tmp_path, outcome, delivery, severity):
    schedule = {"id": "s", "enabled": 1, "last_run_outcome": outcome}
    snap = adr_store(tmp_path, schedules=[schedule])
    state = sa.states(snap).filter(entity_id="s").row(0, named=True)
    assert (state["delivery"], state["severity"]) == (delivery, severity)
    codes = [code for code, *_ in reasons_of(snap, "s") if ".delivery." in code]
    assert codes == [f"schedule.delivery.{delivery}"] * (delivery in ("missing", "partial"))
    assert all(code in (state["reason_codes"] or "") for code in codes)

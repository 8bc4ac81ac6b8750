"""The database of the Go rewrite says of each thing what its scenarios say."""

import json
import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, changed_facts
from stateanalytics.systems.agent_orchestrator.go_sessions import add_silence, go_statuses
from stateanalytics.systems.history import facts_at
from tests.ao_trees import facts_of

AS_OF = datetime(2026, 8, 22, 12, tzinfo=UTC)
AXES = ("lifecycle", "outcome", "health", "delivery")


def shuffled(store: Path, to: Path) -> Path:
    """A copy of which every table has its rows in another order."""
    to.write_bytes(store.read_bytes())
    with closing(sqlite3.connect(to)) as db:
        kinds = dict(db.execute("SELECT name, type FROM sqlite_master").fetchall())
        for name in [name for name, kind in kinds.items() if kind == "trigger"]:
            db.execute(f"DROP TRIGGER {name}")
        for name in [name for name, kind in kinds.items() if kind == "table"]:
            rows = db.execute(f"SELECT * FROM {name}").fetchall()
            random.Random(3).shuffle(rows)
            db.execute(f"DELETE FROM {name}")
            marks = ", ".join("?" * len(rows[0])) if rows else ""
            db.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        db.commit()
    return to


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    return shared / "samples" / "agent-orchestrator-go"


@pytest.fixture(scope="module")
def facts(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    copy = shuffled(folder / "ao.db", tmp_path_factory.mktemp("go") / "ao.db")
    return facts_of(copy, as_of=AS_OF)


@pytest.fixture(scope="module")
def known(facts: Facts, folder: Path) -> pl.DataFrame:
    """What each scenario expects, beside what is read and derived, in columns ``read_…``."""
    rows = facts.entities.join(
        sa.states(facts).select("entity_type", "entity_id", *AXES, "reason_codes"),
        on=["entity_type", "entity_id"],
    )
    key = ["entity_type", "entity_id"]
    read = rows.select(*key, pl.exclude(key).cast(pl.String).name.prefix("read_"))
    scenarios = pl.read_csv(folder / "scenarios.csv", infer_schema=False)
    return scenarios.filter(pl.col("entity_type") != "project").join(read, on=key, how="left")


def differences(known: pl.DataFrame, expected: str, found: str) -> list[tuple[object, ...]]:
    wrong = known.filter(pl.col(expected).ne_missing(pl.col(found)))
    return wrong.select("entity_id", expected, found).rows()


def test_every_status_is_the_word_that_is_shown(known: pl.DataFrame) -> None:
    # Of a spawn nothing is shown.
    shown = known.filter(pl.col("entity_type") != "spawn")
    assert differences(shown, "ao_status", "read_raw_status") == []


@pytest.mark.parametrize("axis", AXES)
def test_every_axis_is_as_the_scenarios_say(known: pl.DataFrame, axis: str) -> None:
    assert differences(known, axis, f"read_{axis}") == []


def test_a_session_that_changed_its_agent_names_the_transcripts_of_both(facts: Facts) -> None:
    ids = dict(facts.entities.select("entity_id", "native_session_id").iter_rows())
    assert ids["api-9"].split(" ") == [
        "1cec943b-94bd-481a-bb8b-2108d366179a",
        "79601a00-bfd2-4338-8b1d-f38f63b61047",
        "600aa996-6bab-4a43-8ca6-24d7497cef29",
    ]


def test_what_failed_has_the_code_that_was_stored(known: pl.DataFrame) -> None:
    failed = known.filter((pl.col("entity_type") != "session") & pl.col("reason").is_not_null())
    codes = "run.failed." + failed["reason"].str.to_lowercase()
    assert failed.height == 4
    assert failed["read_reason_codes"].to_list() == codes.to_list()


@pytest.mark.parametrize("column", ["n_input_tokens", "n_output_tokens", "cost_usd"])
def test_usage_is_what_events_or_a_chat_add_up_to(known: pl.DataFrame, column: str) -> None:
    assert differences(known, column, f"read_{column}") == []


def test_usage_is_kept_by_model_with_what_was_not_measured_as_a_finding(facts: Facts) -> None:
    of_one = facts.detail("ao_usage").filter(entity_id="api-7")
    assert of_one["model"].n_unique() == 2
    assert of_one["n_input_tokens"].sum() == 91_500
    told = facts.entities.filter(entity_id="api-7")
    assert told["n_cache_read_tokens"].item() == of_one["n_cache_read_tokens"].sum() > 0
    found = facts.findings.filter(code="usage.incomplete")
    assert found["entity_id"].to_list() == ["api-8"]


def test_failed_starts_have_all_attempts_as_their_denominator(facts: Facts) -> None:
    spawns = facts.detail("ao_work").filter(entity_type="spawn")
    assert dict(spawns["raw_status"].value_counts().rows()) == {"spawned": 40, "failed": 3}
    failed = spawns.filter(raw_status="failed").sort("ended_at")
    assert failed["session_id"].to_list() == ["api-1", "api-2", None]
    codes = sa.states(facts).filter(pl.col("entity_id").is_in(["api-1", "api-2"]))["reason_codes"]
    assert all("run.aborted.spawn_failed" in text for text in codes)


@pytest.mark.parametrize(
    ("session", "code"),
    [
        ("api-4", "run.health.awaiting_decision"),
        ("api-5", "run.health.tool_server_failed"),
        ("api-6", "run.health.reauth_required"),
        ("api-6", "run.health.model_rerouted"),
        ("api-11", "run.health.message_held"),
        ("mono-1", "run.health.cleanup_preserved_dirty"),
        ("notes-1", "run.health.spawn_unfinished"),
    ],
)
def test_what_else_is_known_of_a_session_is_a_reason(known, session: str, code: str) -> None:
    assert code in known.filter(entity_id=session)["read_reason_codes"].item()


def test_a_turn_that_failed_later_was_running(facts: Facts) -> None:
    then = sa.states(facts_at(facts, datetime(2026, 8, 22, 11, 30, tzinfo=UTC)).facts)
    of_turn = then.filter(entity_id="turn-api-3-3").select("lifecycle", "outcome").row(0)
    assert of_turn == ("running", None)
    assert "turn-api-5-1" not in then["entity_id"]


def test_a_turn_of_which_only_the_start_is_known_was_not_there_before(facts: Facts) -> None:
    last = pl.col("entity_id") == "turn-web-1-2"
    unknown = pl.when(~last).then("created_at").alias("created_at")
    work = facts.detail("ao_work").with_columns(unknown)
    details = {**facts.details, "ao_work": work}
    known = changed_facts(facts, entities=facts.entities.with_columns(unknown), details=details)
    then = facts_at(known, datetime(2026, 8, 22, 11, 30, tzinfo=UTC))
    assert then.lost.height == then.facts.entities.height
    for frame in (then.facts.entities, then.facts.detail("ao_work")):
        assert frame.filter(last).is_empty()


def test_messages_and_telemetry_are_events_of_their_sessions(facts: Facts) -> None:
    said = facts.events.filter(entity_id="api-3", kind="message")
    assert said["role"].to_list().count("assistant") == 2
    assert facts.entities.filter(entity_id="api-3")["n_messages"].item() == said.height
    spawned = facts.events.filter(kind="telemetry.ao.session.spawned")
    assert spawned["duration_s"].min() > 0


def test_changes_of_status_are_transitions_and_say_when_a_session_ended(facts: Facts) -> None:
    of_one = facts.transitions.filter(entity_id="web-13")
    assert of_one["status"].to_list()[-1] == "merged"
    over = facts.entities.filter(raw_status="terminated")
    assert over["ended_at"].null_count() == 0
    last = facts.transitions.filter(status="terminated").group_by("entity_id").agg(pl.max("at"))
    ended = over.join(last, on="entity_id", how="left")
    assert (ended["ended_at"] == ended["at"]).all()


def test_a_pull_request_that_is_given_away_no_longer_speaks_for_its_first_session() -> None:
    url, opened = "https://x/1", {"state": "open", "ci": "passing", "mergeability": "mergeable"}
    told = [
        ("a", "session_created", {"activity": "idle", "isTerminated": False}),
        ("a", "pr_created", {"url": url, "review": "none", **opened}),
        ("b", "session_created", {"activity": "idle", "isTerminated": False}),
        ("b", "pr_session_changed", {"url": url, "fromSession": "a", "toSession": "b"}),
        ("a", "session_updated", {"activity": "waiting_input", "isTerminated": False}),
        ("a", "session_updated", {"activity": "idle", "isTerminated": False}),
    ]
    changes = pl.DataFrame(
        [
            {"seq": seq, "session_id": session, "event_type": kind, "payload": json.dumps(said)}
            for seq, (session, kind, said) in enumerate(told)
        ]
    ).with_columns(created_at=pl.lit(AS_OF) + pl.duration(minutes="seq"))
    pulls = pl.DataFrame({"url": [url], "source_branch": "a", "target_branch": "main"})
    aliases = pl.DataFrame(schema=dict.fromkeys(("alias_url", "canonical_url"), pl.String))
    tables = {"change_log": changes, "pr": pulls, "pr_url_alias": aliases}
    stood = go_statuses(tables).sort("seq")
    assert stood.select("session_id", "decided_status").rows() == [
        ("a", "idle"), ("a", "mergeable"), ("b", "idle"), ("b", "mergeable"),
        ("a", "needs_input"), ("a", "idle"),
    ]  # fmt: skip


ONE_CHAT = """
CREATE TABLE sessions (id, session_mode, harness, is_terminated, created_at);
CREATE TABLE pr (url);
CREATE TABLE change_log (seq);
INSERT INTO sessions VALUES ('a', 'chat', 'codex', 0, '2026-08-22 10:00:00');
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shown", "replaced"),
    [
        pytest.param("edit", ["t2", "t3", "x1", "u3", "v1"], id="the edit is shown"),
        pytest.param("root", ["x1", "u2", "u3", "v1"], id="the person went back to before it"),
        pytest.param("again", ["t2", "t3", "x1", "u2", "u3"], id="an edit of the edit is shown"),
        # What was said before the fork of a branch is edited from there.
        pytest.param("first", ["t1", "t2", "t3", "x1", "u2", "u3", "v1"], id="before the fork"),
        pytest.param("", ["t1", "t2", "x1", "u2", "u3"], id="an earlier version names edits only"),
    ],
)
def test_turns_that_a_chat_goes_on_without_are_marked(
    tmp_path: Path, shown: str, replaced: list[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "ao.db")) as db:
        db.executescript(
            f"""
            {ONE_CHAT}
            CREATE TABLE conversations (id, active_branch_id);
            CREATE TABLE conversation_branches
            (id, parent_branch_id, replaced_turn_id, fork_after_sequence);
            CREATE TABLE conversation_turns (id, conversation_id, branch_id, rolled_back_at);
            CREATE TABLE conversation_messages (id, turn_id, sequence);
            INSERT INTO conversations VALUES ('c', '{shown}');
            INSERT INTO conversation_branches VALUES
            ('root', NULL, NULL, 0), ('edit', 'root', 't2', 2), ('again', 'edit', 'u2', 6),
            ('first', 'edit', 't1', 0);
            INSERT INTO conversation_turns VALUES
            ('t1', 'c', 'root', NULL), ('t2', 'c', 'root', NULL), ('t3', 'c', 'root', NULL),
            ('x1', 'c', 'root', '2026-08-22 11:00:00'),
            ('u2', 'c', 'edit', NULL), ('u3', 'c', 'edit', '2026-08-22 11:00:00'),
            ('v1', 'c', 'again', NULL);
            INSERT INTO conversation_messages VALUES
            (1, 't1', 1), (2, 't1', 2), (3, 't2', 3), (4, 't3', 5), (5, 'x1', 6), (6, 'u2', 7),
            (7, 'u3', 8), (8, 'v1', 9);
            """
        )
    work = facts_of(tmp_path / "ao.db").detail("ao_work")
    assert set(work.filter("is_replaced")["entity_id"]) == set(replaced)
    assert work["is_replaced"].null_count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("beyond", ["253402300800000", "9999-12-31 23:59:59 -1400 X"])
def test_a_moment_beyond_every_calendar_is_a_finding(tmp_path: Path, beyond: str) -> None:
    with closing(sqlite3.connect(tmp_path / "ao.db")) as db:
        db.executescript(
            f"""
            {ONE_CHAT}
            CREATE TABLE telemetry_event (id, name, occurred_at);
            INSERT INTO telemetry_event VALUES ('t', 'ao.session.spawned', '{beyond}');
            """
        )
    found = facts_of(tmp_path / "ao.db").findings.filter(code="time.unreadable")
    (told,) = found.select("table", "column", "example").rows()
    assert told == ("telemetry_event", "occurred_at", beyond)


def test_a_moment_of_a_local_clock_is_read(facts: Facts) -> None:
    written = facts.entities.filter(entity_id="old-2")["created_at"].item()
    assert written == datetime(2026, 7, 22, 12, 0, 0, 500_000, tzinfo=UTC)


@pytest.fixture(scope="module")
def odd(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """A store with what no known version writes, and with what is left after a crash."""
    store = tmp_path_factory.mktemp("odd") / "ao.db"
    store.write_bytes((folder / "ao.db").read_bytes())
    with closing(sqlite3.connect(store)) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            db.execute(f"DROP TRIGGER {name}")
        db.executescript(
            """
            PRAGMA ignore_check_constraints = ON;
            UPDATE sessions SET activity_state = 'pondering' WHERE id = 'web-4';
            UPDATE sessions SET harness = 'newer' WHERE id = 'web-5';
            UPDATE sessions SET created_at = '0001-01-01 00:00:00 +0000 UTC' WHERE id = 'web-16';
            UPDATE sessions SET is_terminated = 1, activity_state = 'exited' WHERE id = 'api-4';
            UPDATE conversation_turns SET state = 'paused' WHERE id = 'turn-api-4-2';
            UPDATE conversation_turns SET state = '' WHERE id = 'turn-api-3-1';
            UPDATE conversations SET usage_currency = 'EUR' WHERE id = 'conv-api-3';
            UPDATE conversations SET account_json = '{"reauthRequiredAt": "0001-01-01T00:00:00Z"}'
            WHERE id = 'conv-api-5';
            UPDATE conversations SET mcp_servers_json =
            '[{"name": "good", "status": "ready"}, {"name": "bad", "status": "failed"}]'
            WHERE id = 'conv-api-5';
            UPDATE review_run SET verdict = 'maybe' WHERE id = 'run-2';
            UPDATE pr SET session_id = 'nobody' WHERE session_id = 'web-23';
            UPDATE model_usage_events SET cached_input_tokens = 0,
            cached_input_provenance = 'unsupported' WHERE id = 1;
            UPDATE model_usage_events SET input_tokens = NULL, input_provenance = 'unknown'
            WHERE id = 2;
            UPDATE model_usage_events SET model_id = '<synthetic>' WHERE id = 3;
            UPDATE model_usage_events SET created_at = '2026-08-22 11:59:50 +0000 UTC'
            WHERE id = 4;
            UPDATE conversations SET session_id = 'api-7', usage_input_tokens = 5,
            usage_cost = 1.5, usage_currency = 'USD' WHERE id = 'conv-api-6';
            UPDATE conversations SET current_session_id = 'web-2' WHERE scope = 'project';
            UPDATE sessions SET first_signal_at = NULL, runtime_handle_id = '' WHERE id = 'old-1';
            UPDATE telemetry_event SET level = 'fatal' WHERE name = 'ao.daemon.started';
            UPDATE notifications SET created_at = '2026-08-22 11:30:00 +0000 UTC',
            resolved_at = '2026-08-22 11:40:00.000000001 +0000 UTC' WHERE type = 'needs_input';
            INSERT INTO pr_url_alias VALUES ('https://x/old', 'https://x/gone');
            UPDATE pr SET pr_state = 'merged' WHERE session_id = 'web-27';
            INSERT INTO change_log (project_id, session_id, event_type, payload, created_at)
            SELECT 'web', 'web-27', 'pr_updated', json_object('url', url, 'state', 'merged'),
            '2026-08-22 11:00:00 +0000 UTC' FROM pr WHERE session_id = 'web-27';
            """
        )
    return facts_of(store, as_of=AS_OF)


def test_a_word_that_is_not_known_is_kept_and_counted(odd: Facts) -> None:
    states = sa.states(odd).filter(pl.col("entity_id").is_in(["web-4", "turn-api-4-2"]))
    assert states["lifecycle"].to_list() == ["unknown", "unknown"]
    found = odd.findings.filter(code="status.unknown").sort("table", "column")
    assert found.select("table", "column", "example").rows() == [
        ("conversation_turns", "state", ", paused"),
        ("review_run", "verdict", "maybe"),
        ("sessions", "activity_state", "pondering"),
        ("sessions", "harness", "newer"),
        ("telemetry_event", "level", "fatal"),
    ]
    words = odd.entities.filter(entity_id="web-4")["raw_status"]
    assert words.to_list() == ["pondering"]
    review = sa.states(odd).filter(entity_id="run-2").select("lifecycle", "delivery")
    assert review.row(0) == ("completed", None)


def test_what_was_not_measured_is_no_number_and_counted(odd: Facts) -> None:
    # Of 91,500: 12,900 are unknown, and 13,800 are of lines that no model wrote.
    used = odd.entities.filter(entity_id="api-7").select("n_input_tokens", "n_cache_read_tokens")
    assert used.row(0) == (64_800, 68_000 - 9_000 - 10_600)
    incomplete = odd.findings.filter(code="usage.incomplete")
    assert incomplete.select("entity_id", "example").rows() == [
        ("api-7", "unknown"),
        ("api-8", "malformed_jsonl"),
    ]
    assert odd.entities.filter(entity_id="api-3")["cost_usd"].item() is None
    foreign = odd.findings.filter(code="cost.other_currency")
    assert foreign.select("n_rows", "example").row(0) == (1, "EUR")


def test_rows_of_a_session_that_is_gone_are_counted(odd: Facts) -> None:
    found = odd.findings.filter(code="link.missing").select("table", "column", "n_rows", "example")
    assert sorted(found.rows()) == [
        ("pr", "session_id", 1, "nobody"),
        ("pr_url_alias", "canonical_url", 1, "https://x/gone"),
    ]


def test_a_start_that_failed_without_telemetry_is_told_by_its_row(odd: Facts) -> None:
    told = odd.detail("ao_circumstances").filter(code="run.aborted.spawn_failed")
    assert sorted(told["entity_id"]) == ["api-1", "api-2", "old-1"]


def test_a_merge_after_its_session_ended_is_no_second_end(facts: Facts, odd: Facts) -> None:
    then = facts.entities.filter(entity_id="web-27").row(0, named=True)
    now = odd.entities.filter(entity_id="web-27").row(0, named=True)
    assert (then["raw_status"], now["raw_status"]) == ("terminated", "merged")
    assert now["ended_at"] == then["ended_at"] is not None
    past = facts_at(odd, datetime(2026, 8, 22, 11, 30, tzinfo=UTC)).facts.entities
    assert past.filter(entity_id="web-27")["ended_at"].item() == now["ended_at"]


def test_what_a_chat_cost_is_kept_where_transcripts_tell_its_tokens(odd: Facts) -> None:
    used = odd.detail("ao_usage").filter(entity_id="api-7", measured="chat")
    told = used.select("cost_usd", "n_input_tokens", "n_output_tokens")
    assert told.rows() == [(1.5, None, None)]


def test_answers_and_turns_are_signs_of_life(facts: Facts, odd: Facts) -> None:
    last = odd.entities.filter(entity_id="api-7")["last_activity_at"].item()
    assert last == datetime(2026, 8, 22, 11, 59, 50, tzinfo=UTC)
    started = facts.events.filter(kind="turn.started")
    turns = facts.detail("ao_work").filter(pl.col("entity_type") == "turn")
    assert started.height == turns["started_at"].count() > 0
    assert started["is_activity"].all()


def test_a_chat_that_went_on_in_another_session_leaves_each_its_turns(odd: Facts) -> None:
    of_one = odd.events.filter(entity_id="web-1", kind="message")
    assert of_one.height == 3
    assert odd.events.filter(entity_id="web-2", kind="message").is_empty()


def test_the_time_that_a_person_was_waited_for_is_kept(odd: Facts) -> None:
    over = odd.events.filter(kind="attention.needs_input.resolved")
    assert over["duration_s"].to_list() == [600]


@pytest.mark.parametrize(("later_s", "word"), [(90, "idle"), (91, "no_signal")])
def test_silence_is_judged_by_the_newest_moment_of_a_store(later_s: int, word: str) -> None:
    row = {"generation": "G3", "has_hooks": True, "activity_last_at": AS_OF}
    known = {**row, "last_transition_at": AS_OF, "legacy_status": "idle"}
    session = pl.DataFrame([known]).with_columns(first_signal_at=pl.lit(None, schema.MOMENT))
    told = pl.DataFrame({"at": [AS_OF + timedelta(seconds=later_s)]})
    # A record of another generation has a clock that no Python date holds.
    far = pl.lit(300_000_000_000_000_000).cast(schema.MOMENT)
    other = session.with_columns(generation=pl.lit("V3"), last_transition_at=far)
    both = pl.concat([session, other], how="vertical_relaxed")
    shown = add_silence(both, [told, told.clear()])
    assert shown["legacy_status"].to_list() == [word, "idle"]


def test_the_moment_that_go_writes_for_none_is_none(odd: Facts) -> None:
    assert odd.entities.filter(entity_id="web-16")["created_at"].item() is None
    assert odd.findings.filter(code="time.unreadable").is_empty()
    told = odd.detail("ao_circumstances").filter(entity_id="api-5")
    assert told.select("code", "detail").rows() == [("run.health.tool_server_failed", "bad")]


def test_a_session_without_a_change_ended_when_it_was_last_written(odd: Facts) -> None:
    row = odd.entities.filter(entity_id="api-4").row(0, named=True)
    assert row["ended_at"] == row["updated_at"] is not None
    assert (row["is_end_approximate"], row["end_written_by"]) == (True, None)
    codes = sa.states(odd).filter(entity_id="api-4")["reason_codes"].item()
    assert "awaiting_decision" not in codes


@pytest.mark.slow
def test_rows_without_an_id_of_their_own_are_left_out_and_counted(folder: Path, tmp_path) -> None:
    store = tmp_path / "ao.db"
    store.write_bytes((folder / "ao.db").read_bytes())
    with closing(sqlite3.connect(store)) as db:
        db.executescript(
            """
            CREATE TABLE t AS SELECT * FROM session_interface_transitions;
            DROP TABLE session_interface_transitions;
            ALTER TABLE t RENAME TO session_interface_transitions;
            INSERT INTO session_interface_transitions SELECT * FROM session_interface_transitions;
            INSERT INTO session_interface_transitions (session_id, phase) VALUES ('api-11', 'x');
            UPDATE sessions SET id = NULL WHERE id = 'api-4';
            """
        )
    odd = facts_of(store, as_of=AS_OF)
    moves = odd.entities.filter(entity_type="interface_transition")
    assert sorted(moves["entity_id"]) == ["itx-1", "itx-2"]
    found = odd.findings.filter(code="id.unusable").select("table", "n_rows").rows()
    assert sorted(found) == [("session_interface_transitions", 3), ("sessions", 1)]
    assert odd.entities["entity_id"].null_count() == 0


def test_no_word_of_the_samples_is_unknown(facts: Facts) -> None:
    found = facts.findings.select("code", "table", "n_rows").rows()
    assert sorted(found) == [
        ("time.local_clock", "sessions", 1),
        ("usage.incomplete", "usage_sources", 1),
        ("usage.no_time", "model_usage_events", 1),
    ]

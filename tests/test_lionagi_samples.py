"""Every real lionagi store is read as its scenarios describe it."""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from stateanalytics.core import schema
from stateanalytics.core.vocabulary import TABLES
from stateanalytics.io.parts import Parts
from stateanalytics.systems import detail_frames
from stateanalytics.systems.lionagi.frames import CALLS, TURNS
from stateanalytics.systems.reading import read_facts
from tests.examples import a_few
from tests.lionagi_stores import read_part

NOW = datetime(2026, 5, 27, tzinfo=UTC)
WRITTEN = ("0.26.0", "0.26.12", "0.29.1", "0.36.0")
SCENARIOS = (*WRITTEN, "migrated-0.26.12-to-0.36.0")
ORGANIC = "organic-0.36.0/lionagi_home"


@pytest.fixture(scope="module")
def parts(lionagi_samples: Path) -> dict[str, Parts]:
    versions = (*SCENARIOS, ORGANIC)
    return {version: read_part(lionagi_samples / version / "state.db") for version in versions}


def _scenarios(samples: Path, version: str) -> pl.DataFrame:
    return pl.read_csv(samples / version / "scenarios.csv", infer_schema=False)


def _sessions(part: Parts) -> pl.DataFrame:
    return part.entities.filter(entity_type="session")


def _named(part: Parts, scenarios: pl.DataFrame, name: str) -> dict:
    identity = scenarios.filter(scenario=name)["entity_id"][0]
    return part.entities.filter(entity_id=identity).row(0, named=True)


@pytest.mark.parametrize("version", WRITTEN)
def test_every_row_of_every_entity_table_is_an_entity(parts, lionagi_samples, version):
    meta = dict(pl.read_csv(lionagi_samples / version / "meta.csv", infer_schema=False).rows())
    counted = dict(parts[version].entities["entity_type"].value_counts().rows())
    expected = {
        entity_type: int(meta[f"rows.{table}"])
        for entity_type, table in TABLES.items()
        if int(meta.get(f"rows.{table}", 0))
    }
    assert counted == expected


@pytest.mark.parametrize("version", WRITTEN)
def test_every_transition_message_signal_and_decision_is_kept(parts, lionagi_samples, version):
    meta = dict(pl.read_csv(lionagi_samples / version / "meta.csv", infer_schema=False).rows())
    part = parts[version]

    def rows(table: str) -> int:
        return int(meta.get(f"rows.{table}", 0))

    kinds = part.events.select(
        message=(pl.col("kind") == "message").sum(),
        signal=pl.col("kind").str.starts_with("signal.").sum(),
        admin=pl.col("kind").str.starts_with("admin.").sum(),
        attention=pl.col("kind").str.starts_with("attention.").sum(),
        team=(pl.col("kind") == "team_message").sum(),
    ).row(0, named=True)
    assert part.transitions.height == rows("status_transitions")
    assert kinds == {
        "message": rows("messages"),
        "signal": rows("session_signals"),
        "admin": rows("admin_events"),
        "attention": rows("attention_disposition_history"),
        "team": rows("team_messages"),
    }


@pytest.mark.parametrize("version", SCENARIOS)
def test_statuses_kinds_and_messages_are_those_of_the_scenarios(parts, lionagi_samples, version):
    expected = _scenarios(lionagi_samples, version).filter(pl.col("entity_type") == "session")
    both = expected.join(_sessions(parts[version]), on="entity_id", how="left")
    is_counted = pl.col("message_count").is_not_null()
    # A CSV has no difference between the empty status and none, so both are compared as none.
    wrong = both.filter(
        pl.col("status").ne_missing(pl.col("raw_status").replace("", None))
        | pl.col("invocation_kind").ne_missing(pl.col("kind"))
        | (is_counted & (pl.col("message_count").cast(pl.Int64) != pl.col("n_messages")))
    )
    told = ("scenario", "status", "raw_status", "message_count", "n_messages")
    assert wrong.select(told).rows() == []


@pytest.mark.parametrize("version", SCENARIOS)
def test_ages_and_silences_are_those_of_the_scenarios(parts, lionagi_samples, version):
    expected = _scenarios(lionagi_samples, version).filter(
        (pl.col("entity_type") == "session") & (pl.col("scenario") != "raw_ms_epoch")
    )

    def since(moment: str) -> pl.Expr:
        return (pl.lit(NOW) - pl.col(moment)).dt.total_microseconds() / 1e6

    last_at = "last_activity_at" if version != "0.26.0" else "updated_at"
    both = expected.join(_sessions(parts[version]), on="entity_id")
    both = both.with_columns(age=since("started_at"), silence=since(last_at))
    wrong_age = both.filter((pl.col("age_s").cast(pl.Float64) - pl.col("age")).abs() > 1e-3)
    # A session without any moment counts as silent since 1970 there; here nothing is known.
    silent = both.filter(pl.col("idle_s").cast(pl.Float64) < 1e9)
    is_near = (pl.col("idle_s").cast(pl.Float64) - pl.col("silence")).abs() < 0.01
    wrong_silence = silent.filter(~is_near.fill_null(False))
    assert wrong_age.select("scenario", "age_s", "age").rows() == []
    assert wrong_silence.select("scenario", "idle_s", "silence").rows() == []


@pytest.mark.parametrize("version", (*SCENARIOS, ORGANIC))
def test_frames_have_their_canonical_shape_and_distinct_keys(parts, version):
    part, lazy = parts[version], {CALLS.name, TURNS.name}
    for frame, shape in (
        (part.entities, schema.ENTITIES),
        (part.transitions, schema.TRANSITIONS),
        (part.events, schema.EVENTS),
        (part.findings, schema.FINDINGS),
        # What is read when it is asked for needs the store, which is closed.
        *((part.details[name], detail_frames()[name]) for name in {*part.details} - lazy),
    ):
        assert frame.schema == shape.dtypes
    assert part.entities.select(schema.ENTITY_KEY).is_duplicated().sum() == 0
    assert part.findings["severity"].is_in(schema.FINDING_SEVERITIES).all()


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.26.0", "lionagi 0.26.0"),
        ("0.26.12", "lionagi 0.26.7 to 0.26.14"),
        ("0.29.1", "lionagi 0.29.1 to 0.30.2"),
        ("0.36.0", "lionagi 0.36.0"),
        ("migrated-0.26.12-to-0.36.0", "lionagi 0.36.0"),
    ],
)
def test_the_release_is_recognised_by_tables_and_columns(parts, version, name):
    assert parts[version].format == name


@pytest.mark.parametrize("version", ["0.29.1", "0.36.0"])
def test_ends_have_the_writer_of_their_scenario(parts, lionagi_samples, version):
    scenarios = _scenarios(lionagi_samples, version).filter(
        (pl.col("entity_type") == "session") & (pl.col("scenario") != "rejected_transition")
    )
    writers = scenarios.join(_sessions(parts[version]), on="entity_id")
    by_writer = {
        writer: set(writers.filter(end_written_by=writer)["scenario"])
        for writer in ("observer", "import", "executor")
    }
    observed = {
        *("killed_manual", "killed_force", "swept_stale_auto", "doctor_swept"),
        *("phantom_reaped_dead", "phantom_reaped_artifacts", "zombie_terminal_locks"),
        "admin_transition",
    }
    newer = {"imported_codex", "raw_approx_end"} if version == "0.36.0" else set()
    assert by_writer["observer"] == observed | newer
    assert by_writer["import"] == {"imported_fs"}
    ended = {"completed_ok", "cancelled_sigint", "timed_out_zero_turns", "reopened"}
    assert ended <= by_writer["executor"]


def test_reaped_invocations_and_runs_have_observed_ends(parts, lionagi_samples):
    scenarios = _scenarios(lionagi_samples, "0.36.0")
    part = parts["0.36.0"]
    for name in ("inv_timed_out_reaped", "srun_timed_out_24h", "srun_never_dispatched"):
        assert _named(part, scenarios, name)["end_written_by"] == "observer", name
    for name in ("inv_completed", "inv_failed", "srun_ok", "srun_exit124"):
        assert _named(part, scenarios, name)["end_written_by"] == "executor", name


@pytest.mark.parametrize("version", SCENARIOS)
@pytest.mark.parametrize(
    ("scenario", "column", "expected"),
    [
        ("imported_fs", "recorded_by", "imported"),
        ("mirror_idle_4min", "recorded_by", "mirrored"),
        ("run_fresh", "recorded_by", "live"),
        ("run_fresh", "has_artifacts", True),
        ("orphan_no_output", "has_artifacts", False),
    ],
)
def test_each_release_records_who_wrote_and_artifacts(
    parts, lionagi_samples, version, scenario, column, expected
):
    row = _named(parts[version], _scenarios(lionagi_samples, version), scenario)
    assert row[column] == expected


def test_contracts_and_verdicts_are_read_and_judged(parts, lionagi_samples):
    scenarios = _scenarios(lionagi_samples, "0.36.0")
    columns = (
        *("has_contract", "is_contract_valid", "verdict", "is_verdict_valid", "n_expected"),
        *("n_required_missing", "n_optional_missing", "n_produced"),
    )

    def facts(name: str) -> tuple:
        row = _named(parts["0.36.0"], scenarios, name)
        return tuple(row[column] for column in columns)

    assert facts("contract_passed") == (True, True, "passed", True, 1, 0, 0, 1)
    assert facts("contract_warning") == (True, True, "warning", True, 2, 0, 1, 1)
    assert facts("contract_failed")[2:6] == ("failed", True, 2, 1)
    assert facts("contract_not_verified") == (True, True, None, None, 1, None, None, None)
    assert facts("completed_ok") == (False, None, None, None, None, None, None, None)
    assert facts("raw_contract_bad")[:2] == (True, False)
    assert facts("raw_verification_array")[2:4] == (None, False)
    assert facts("raw_verification_unknown")[2:4] == ("skipped", False)


def test_every_planted_oddity_of_the_newest_store_is_a_finding(parts, lionagi_samples):
    scenarios = _scenarios(lionagi_samples, "0.36.0")
    names = scenarios.select("scenario", "entity_id")
    found = parts["0.36.0"].findings.drop_nulls("entity_id").join(names, on="entity_id")
    codes = {*found.select("scenario", "code").rows()}
    assert {
        ("raw_node_metadata_array", "metadata.not_an_object"),
        ("raw_bad_evidence", "evidence.not_a_list"),
        ("raw_unknown_status", "status.unknown"),
        ("raw_upper_status", "status.unknown"),
        ("raw_empty_status", "status.unknown"),
        ("raw_end_before_start", "end.before_start"),
        ("raw_no_end", "end.missing"),
        ("raw_running_with_end", "end.while_running"),
        ("raw_verification_array", "verdict.invalid"),
        ("raw_verification_unknown", "verdict.invalid"),
        ("raw_contract_bad", "contract.invalid"),
    } <= codes
    legacy = parts["0.36.0"].findings.filter(pl.col("code") == "status.legacy")
    assert legacy.select("severity", "n_rows").rows() == [("info", 4)]
    cells = parts["0.36.0"].findings.filter(pl.col("code").str.starts_with("cell."))
    assert {
        ("sessions", "node_metadata", "cell.not_json"),
        ("sessions", "node_metadata", "cell.double_encoded"),
        ("sessions", "status_evidence_refs", "cell.not_json"),
        ("sessions", "started_at", "cell.absurd_moment"),
        ("sessions", "ended_at", "cell.absurd_moment"),
    } <= set(cells.select("table", "column", "code").rows())


def test_an_ordinary_store_has_no_alarming_finding(parts):
    found = parts[ORGANIC].findings
    assert set(found["severity"]) == {"info"}
    expected = {"message.orphaned", "run.contradicts_store", "show.not_in_store"}
    assert set(found["code"]) == expected


def test_parents_are_plays_shows_requests_and_schedules(parts, lionagi_samples):
    scenarios = _scenarios(lionagi_samples, "0.36.0")
    part = parts["0.36.0"]

    def parent(name: str) -> str | None:
        row = _named(part, scenarios, name)
        if row["parent_id"] is None:
            return None
        key = {"entity_type": row["parent_type"], "entity_id": row["parent_id"]}
        parents = part.entities.filter(**key)
        return f"{parents['entity_type'][0]} {parents['name'][0]}"

    assert parent("inv_completed_child0") == "invocation codex-pr-review"
    assert parent("completed_ok") == "play backend"
    assert parent("play_backend") == "show issue-sweep"
    assert parent("srun_ok") == "schedule nightly-cron"
    assert parent("inv_completed") == "schedule_run nightly-cron"
    assert parent("show_issue-sweep") is None


def test_branches_and_sessions_have_the_invocation_of_their_request(parts, lionagi_samples):
    scenarios = _scenarios(lionagi_samples, "0.36.0")
    part = parts["0.36.0"]
    child = _named(part, scenarios, "inv_completed_child0")
    invocation = _named(part, scenarios, "inv_completed")["entity_id"]
    branches = part.entities.filter(entity_type="branch", session_id=child["entity_id"])
    assert child["invocation_id"] == invocation
    assert branches["invocation_id"].to_list() == [invocation]
    assert _named(part, scenarios, "inv_running_2sessions")["n_children"] == 2
    assert _named(part, scenarios, "inv_zero_sessions_40h")["n_children"] == 0
    assert _named(part, scenarios, "inv_command_zero_sessions")["kind"] == "command"


def test_schedules_have_the_facts_by_which_their_health_is_judged(parts, lionagi_samples):
    names = (
        _scenarios(lionagi_samples, "0.36.0")
        .filter(pl.col("entity_type") == "schedule")
        .select("scenario", schedule_id="entity_id")
    )
    details = parts["0.36.0"].details["lionagi_schedules"].join(names, on="schedule_id")
    rows = {row["scenario"]: row for row in details.iter_rows(named=True)}
    assert {name: row["cadence_s"] for name, row in rows.items()} == {
        "schedule_nightly-cron": 86400.0,
        "schedule_missed-cron": 3600.0,
        "schedule_interval-ok": 1800.0,
        "schedule_interval-overdue": 600.0,
        "schedule_pr-poll": 300.0,
        "schedule_paused": 3600.0,
        "schedule_never-fired": 31536000.0,
    }
    assert rows["schedule_missed-cron"]["n_missed"] == 1
    assert rows["schedule_missed-cron"]["last_executed_at"] is None
    assert rows["schedule_interval-ok"]["last_executed_status"] == "running"
    assert rows["schedule_interval-ok"]["n_failed_in_row"] == 4
    assert rows["schedule_paused"]["is_enabled"] is False
    states = parts["0.36.0"].entities.filter(pl.col("entity_type") == "schedule")
    assert dict(states["raw_status"].value_counts().rows()) == {"enabled": 6, "disabled": 1}


def test_attention_items_have_the_entity_of_their_id(parts, lionagi_samples):
    part = parts["0.36.0"]
    failed = _named(part, _scenarios(lionagi_samples, "0.36.0"), "failed_exception")
    item = part.details["lionagi_dispositions"].row(0, named=True)
    assert (item["entity_type"], item["entity_id"]) == ("session", failed["entity_id"])
    assert (item["state"], item["source_status"]) == ("snoozed", "failed")
    decisions = part.events.filter(pl.col("kind").str.starts_with("attention."))
    assert decisions.select("kind", "entity_id").rows() == [
        ("attention.acknowledged", failed["entity_id"]),
        ("attention.snoozed", failed["entity_id"]),
        ("attention.expected", None),  # names a schedule that is not there
        ("attention.open", None),
    ]


def test_the_runs_next_to_an_organic_store_are_read(parts):
    part = parts[ORGANIC]
    runs = part.details["lionagi_runs"]
    assert runs.height == 12
    assert runs["session_id"].null_count() == 0
    assert runs.filter(pl.col("n_planned_ops") == 2)["kind"].to_list() == ["flow"]
    killed = part.findings.filter(pl.col("code") == "run.contradicts_store")
    assert killed["message"].to_list() == ["run.json has running, the store has cancelled"]


def test_the_shows_next_to_an_organic_store_are_read(parts):
    disk = parts[ORGANIC].details["lionagi_shows_on_disk"]
    shows = disk.filter(pl.col("play").is_null())
    assert dict(shows.select("topic", "disk_status").rows()) == {
        "aborted-show": "aborted",
        "checkout-v2": "active",
        "done-show": "completed",
        "failed-final": "completed",
        "gated-show": "completed",
    }
    assert dict(shows.select("topic", "is_show_passed").rows())["failed-final"] is False
    strange = disk.filter(pl.col("play") == "weird").row(0, named=True)
    assert (strange["disk_status"], strange["store_status"]) == ("run_complete", None)
    docs = disk.filter(pl.col("play") == "docs").row(0, named=True)
    assert docs["depends_on"] == '["api", "nope"]'
    assert disk.filter(pl.col("play") == "perf")["feedback"].to_list() == ["still slow"]


@pytest.mark.slow
@pytest.mark.parametrize("version", a_few(SCENARIOS, 2))
def test_as_of_is_the_newest_moment_that_a_copy_proves(lionagi_samples, version):
    facts, stores = read_facts([lionagi_samples / version], shown=False)
    for store in stores:
        store.close()
    behind = (NOW - facts.as_of).total_seconds()
    # Not an hour later, where one session's clock ran ahead.
    assert 0 <= behind < 61
    assert facts.as_of_from == "data"
    ahead = facts.findings.filter(pl.col("code") == "time.future")
    names = _scenarios(lionagi_samples, version).select("scenario", "entity_id")
    assert ahead.join(names, on="entity_id")["scenario"].to_list() == ["raw_future"]


@pytest.mark.slow
def test_all_samples_can_be_read_at_once(lionagi_samples):
    facts, stores = read_facts([str(lionagi_samples / "*" / "state.db")], shown=False)
    for store in stores:
        store.close()
    assert facts.sources["format"].n_unique() == 4
    assert facts.entities.select(schema.ENTITY_KEY).is_duplicated().sum() == 0
    assert facts.sources["n_entities"].sum() == facts.entities.height
